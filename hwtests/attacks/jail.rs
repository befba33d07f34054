//! Attacks of a hostile checker on the host: what its jail must refuse. Each attack alone makes the
//! run FAILED, although the genuine checker runs after it.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use diskvitals_fscheck::{Filesystem, Mode, Run, RunResult, Termination};
use diskvitals_source::checks::runner::RunRequest;
use nix::libc;

use crate::checker::fixture::{order, ran, text};
use crate::support::Testbed;

/// A Perl script whose attack is an expression that is true on success. The checker that it then
/// becomes is the genuine one, and overwrites its text (`\r`).
fn attacker(testbed: &Testbed, attack: &str) -> PathBuf {
    let path = testbed.path("attacker");
    let body = format!(
        r#"#!/usr/bin/perl
        $| = 1;
        sub worked {{ my $result = syscall($_[0], @_[1 .. $#_]); return $result >= 0; }}
        sub connects {{
            my ($family, $address) = @_;
            my $socket;
            return socket($socket, $family, 1, 0) && connect($socket, $address);
        }}
        print +(({attack}) ? "POSSIBLE" : "refused: $!"), "\r";
        exec "/usr/sbin/e2fsck", @ARGV;
        "#
    );
    std::fs::write(&path, body).expect("a script");
    let readable = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&path, readable(0o755)).expect("its mode");
    std::fs::set_permissions(testbed.path(""), readable(0o711)).expect("the folder's mode");
    path
}

/// Names and expressions of the attacks, on these two listeners of the test.
fn attacks(port: u16, abstract_name: &str) -> Vec<(&'static str, String)> {
    const NEW_USER: i32 = libc::CLONE_NEWUSER;
    let call = |number: i64, arguments: &str| format!("worked({number}, {arguments})");
    // A child that a clone created must not continue the script.
    let clone = format!(
        "do {{ my $pid = syscall({}, {}, 0, 0, 0, 0); kill('KILL', $$) if $pid == 0; $pid > 0 }}",
        libc::SYS_clone,
        NEW_USER | libc::SIGCHLD
    );
    vec![
        ("a user namespace", call(libc::SYS_unshare, &NEW_USER.to_string())),
        ("a clone in a user namespace", clone),
        ("TCP", format!("connects(2, pack('S n C4 x8', 2, {port}, 127, 0, 0, 1))")),
        ("an abstract socket", format!("connects(1, pack('S x a*', 1, '{abstract_name}'))")),
        ("netlink", "socket(my $socket, 16, 3, 0)".to_owned()),
        ("a raw socket", "socket(my $socket, 2, 3, 1)".to_owned()),
        // An array of one element: key, value and number of entries.
        ("bpf", call(libc::SYS_bpf, "0, (my $map = pack('L5 x64', 2, 4, 8, 1, 0)), 84")),
        // KEYCTL_GET_KEYRING_ID of the process keyring, created if needed.
        ("keyctl", format!("syscall({}, 0, -2, 1) > 0", libc::SYS_keyctl)),
        (
            "a key",
            format!(
                "syscall({}, (my $type = 'user'), (my $name = 'k'), (my $key = 'v'), 1, -2) > 0",
                libc::SYS_add_key
            ),
        ),
        ("io_uring", call(libc::SYS_io_uring_setup, "4, (my $ring = pack('x120'))")),
        ("ptrace", call(libc::SYS_ptrace, "0, 0, 0, 0")),
        (
            "a mount",
            call(
                libc::SYS_mount,
                "(my $from = 'none'), (my $to = '/mnt'), (my $type = 'tmpfs'), 0, 0",
            ),
        ),
        (
            "a signal to another process",
            format!("worked({}, {}, 0)", libc::SYS_kill, std::process::id()),
        ),
        ("another session", call(libc::SYS_setsid, "0")),
        ("a watch on files", call(libc::SYS_inotify_init1, "0")),
        ("faults in user space", call(libc::SYS_userfaultfd, "1")),
    ]
}

async fn check(testbed: &Testbed, disk: &crate::support::Disk, attack: &str) -> (String, Run) {
    let run = ran(RunRequest {
        command: attacker(testbed, attack),
        ..order(disk, Filesystem::Ext4, Mode::Unmounted)
    })
    .await
    .run;
    assert!(
        matches!(run.termination, Termination::Exited(_)),
        "{attack}: {:?} {}",
        run.termination,
        text(&run)
    );
    (text(&run), run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_checker_reaches_nothing_outside_its_jail_and_its_run_is_failed() {
    let testbed = Testbed::new();
    let disk = testbed.ext4("e.img", 16, &[]);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = format!("dvhw-jail-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let _unix = UnixListener::bind_addr(&address).expect("an abstract socket");
    let port = tcp.local_addr().expect("its port").port();

    let (output, run) = check(&testbed, &disk, "0").await;
    assert_eq!(run.result, RunResult::Clean, "{output}");
    let mut wrong = Vec::new();
    for (what, attack) in attacks(port, &name) {
        let (output, run) = check(&testbed, &disk, &attack).await;
        let first = output.split('\r').next().unwrap_or_default();
        let is_named = run.failure_reason.contains("a system call that its jail refuses");
        if first != "refused: Function not implemented"
            || run.result != RunResult::Failed
            || !is_named
        {
            wrong.push(format!("{what}: {first}, {:?} {}", run.result, run.failure_reason));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    // The C library uses clone3 for each thread, and then clone: it is refused, and proves nothing.
    let clone3 = format!(
        "do {{ my $arguments = pack('Q11', {}, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0);
              my $pid = syscall({}, $arguments, 88); kill('KILL', $$) if $pid == 0; $pid > 0 }}",
        libc::CLONE_NEWUSER,
        libc::SIGCHLD,
        libc::SYS_clone3
    );
    // A call that no kernel has yet.
    for quiet in [clone3, "worked(4000, 0)".to_owned()] {
        let (output, run) = check(&testbed, &disk, &quiet).await;
        assert!(output.starts_with("refused: Function not"), "{output}");
        assert_eq!(run.result, RunResult::Clean, "{output}");
    }
}
