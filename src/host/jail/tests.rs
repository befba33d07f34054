//! The jail's layers that restrict one thread, on this kernel, each alone: the thread that a test
//! starts.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::{self, JoinHandle};

use nix::libc::{self, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter};
use nix::sched::{CloneFlags, unshare};

use super::*;

/// Restricts a thread by the filter; then it tries what the filter refuses. Out: its result, and
/// our end of the socket.
fn refused_thread(
    before: impl FnOnce() + Send + 'static,
) -> (JoinHandle<nix::Result<()>>, UnixStream) {
    let (setup, end) = UnixStream::pair().unwrap();
    let tries = move || {
        nix::sys::prctl::set_no_new_privs().unwrap();
        before();
        child::filter_system_calls(&OwnedFd::from(end), false).unwrap();
        unshare(CloneFlags::CLONE_NEWUSER)
    };
    (thread::spawn(tries), setup)
}

fn wait_for_input(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, 10_000_u16), Ok(1));
}

#[test]
fn a_refused_call_fails_and_its_listener_learns_its_number() {
    let (thread, setup) = refused_thread(|| ());
    wait_for_input(setup.as_fd());
    let (_, listener) = sys::receive_byte(setup.as_fd()).unwrap().unwrap();
    let listener = listener.expect("a listener");
    wait_for_input(listener.as_fd());
    let number = sys::refuse_call(listener.as_fd()).unwrap();
    assert_eq!(number.map(libc::c_long::from), Some(libc::SYS_unshare));
    assert_eq!(thread.join().unwrap(), Err(Errno::ENOSYS));
}

/// As under `SystemCallFilter=@system-service` of systemd 252.
#[test]
fn where_seccomp_is_refused_prctl_installs_the_filter_without_a_listener() {
    let step = |code, k, jf| sock_filter { code, jt: 0, jf, k };
    let load_number = step(0x20, 0, 0);
    let is_seccomp = step(0x15, u32::try_from(libc::SYS_seccomp).unwrap(), 1);
    let refuse = step(0x06, SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(), 0);
    let unit = [load_number, is_seccomp, refuse, step(0x06, SECCOMP_RET_ALLOW, 0)];
    let (thread, setup) = refused_thread(move || sys::filter_without_listener(&unit).unwrap());
    assert_eq!(thread.join().unwrap(), Err(Errno::ENOSYS));
    assert!(sys::receive_byte(setup.as_fd()).unwrap().is_none());
}

#[test]
fn landlock_shuts_what_this_kernel_can_shut() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("diskvitals-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _unix = UnixListener::bind_addr(&address).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("file"), tcp.local_addr().unwrap());
    let tries = move || {
        nix::sys::prctl::set_no_new_privs().unwrap();
        if let Err(error) = sys::restrict_by_landlock(None) {
            println!("no Landlock here: {error}");
            return None;
        }
        Some([
            File::create(path).map(drop),
            TcpStream::connect(to).map(drop),
            UnixStream::connect_addr(&address).map(drop),
        ])
    };
    let Some(results) = thread::spawn(tries).join().unwrap() else {
        return;
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    let is_shut = results
        .map(|result| result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied));
    assert_eq!(is_shut, [true, kernel >= (6, 7), kernel >= (6, 12)]);
}
