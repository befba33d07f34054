//! Inside the jail: the steps between the start of our own binary and that of the program.
//! Single-threaded; a right that was dropped is never regained.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use caps::{CapSet, CapsHashSet};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::unistd::{Gid, Uid, chown, dup, dup2_stdin, getppid, setgroups, setresgid, setresuid};

use crate::jail::free_id::is_root_of_the_host;
use crate::jail::syscall_filter::{self, FilterInput};
use crate::jail::{DeviceNode, IMAGE_PATH, Isolation, JailSpec, NO_GROUP, PROGRESS_FD, STACK_SIZE};
use crate::sys;
use diskvitals_finding::path::HostPath;
use diskvitals_text::causes::with_causes;

/// Maximum number of descriptors of the program.
const MAX_OPEN_FILES: u64 = 256;
/// The control group's own bound is reached first, and is noted there.
const BEYOND_GROUP: u64 = 64;
/// Processes of the same user in other containers, which are counted and not visible.
const UNSEEN_TASKS: u64 = 4096;
/// The nodes that every program may expect in /dev.
const STANDARD_NODES: [(&str, u32, u32); 5] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9)];

#[derive(Debug, thiserror::Error)]
enum JailError {
    #[error("started in a wrong way")]
    Arguments,
    #[error("{0}")]
    Syscall(&'static str, #[source] Errno),
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    #[error("giving up capabilities")]
    Capabilities(#[source] caps::errors::CapsError),
    #[error("whoever started it has ended")]
    ParentExited,
    #[error("starting {0}")]
    Start(String, #[source] io::Error),
}

/// The main function of the jail process, until it becomes the program. Its standard input is a
/// socket to which it sends the listener for refused calls, and writes errors.
pub fn enter(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Ok(error_fd) = dup(std::io::stdin()) else {
        return ExitCode::FAILURE;
    };
    let Err(error) = confine(args, &error_fd);
    // The reader may have closed the socket.
    File::from(error_fd).write_all(with_causes(&error).as_bytes()).ok();
    ExitCode::FAILURE
}

fn confine(
    mut args: impl Iterator<Item = OsString>,
    error_fd: &OwnedFd,
) -> Result<Infallible, JailError> {
    let call = |what: &'static str| move |errno: Errno| JailError::Syscall(what, errno);
    let cloexec = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(error_fd, cloexec).map_err(call("keeping a descriptor from the program"))?;
    let plan = args
        .next()
        .and_then(|plan| serde_json::from_str::<JailSpec>(plan.to_str()?).ok())
        .ok_or(JailError::Arguments)?;
    let command = args.next().ok_or(JailError::Arguments)?;
    let in_group = receive_permission(error_fd, plan.progress)
        .map_err(|error| JailError::Io("waiting for its control group", error))?;
    // While it sees all processes.
    let most_tasks = most_tasks(&plan, in_group).map_err(call("reading its limits"))?;
    let has_landlock = sys::landlock_version().is_ok();
    let mut program = program(&command, args);
    // The first process to be killed when memory is short.
    std::fs::write("/proc/self/oom_score_adj", "1000")
        .map_err(|error| JailError::Io("writing oom_score_adj", error))?;
    if plan.low_priority {
        sys::lower_priority().map_err(|error| JailError::Io("lowering its priority", error))?;
    }
    if let Some(cell) = &plan.isolation {
        isolate(cell, Path::new(&command), has_landlock)?;
    }
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| JailError::Io("opening /dev/null", error))?;
    dup2_stdin(&null).map_err(call("giving it an empty input"))?;
    if let Some(cell) = &plan.isolation {
        drop_privileges(cell)?;
    }
    nix::sys::prctl::set_no_new_privs().map_err(call("setting no_new_privs"))?;
    match sys::restrict_by_landlock(Some(null.as_fd())) {
        Ok(()) => {}
        // The kernel has no Landlock, or it is disabled: the other restrictions hold without it, if
        // there are any.
        Err(error)
            if !has_landlock
                && (plan.isolation.is_some() || !plan.unlimited_files)
                && matches!(
                    error.raw_os_error().map(Errno::from_raw),
                    Some(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EPERM)
                ) => {}
        Err(error) => return Err(JailError::Io("restricting it by Landlock", error)),
    }
    // Set after the change of user, which clears it (prctl(2)).
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(call("binding its life to ours"))?;
    if getppid().as_raw() != plan.parent {
        return Err(JailError::ParentExited);
    }
    sys::ignore_file_size_signal().map_err(|error| JailError::Io("ignoring SIGXFSZ", error))?;
    if !plan.unlimited_files {
        setrlimit(Resource::RLIMIT_FSIZE, 0, 0).map_err(call("setting its limits"))?;
    }
    let limits = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MAX_OPEN_FILES),
        (Resource::RLIMIT_STACK, STACK_SIZE),
        (Resource::RLIMIT_AS, plan.memory),
    ];
    let tasks = most_tasks.map(|most| (Resource::RLIMIT_NPROC, most));
    for (resource, limit) in limits.into_iter().chain(tasks) {
        setrlimit(resource, limit, limit).map_err(call("setting its limits"))?;
    }
    let threads_only = !in_group && most_tasks.is_none();
    filter_system_calls(error_fd, threads_only)
        .map_err(|error| JailError::Io("filtering its system calls (seccomp)", error))?;
    Err(JailError::Start(command.to_string_lossy().into_owned(), program.exec()))
}

/// The limit on the number of its user's processes and threads. None: a control group bounds those of
/// the run, or the kernel has no limit for this user (root).
fn most_tasks(plan: &JailSpec, in_group: bool) -> Result<Option<u64>, Errno> {
    let own = plan.isolation.as_ref();
    let most = match plan.uid() {
        // Nothing else has the id: the number is that of this run.
        _ if own.is_some_and(Isolation::is_own_id) => plan.tasks() + BEYOND_GROUP,
        _ if in_group => return Ok(None),
        0 if is_root_of_the_host() => return Ok(None),
        uid => tasks_of(uid) + UNSEEN_TASKS + plan.tasks(),
    };
    let (_, highest) = getrlimit(Resource::RLIMIT_NPROC)?;
    Ok(Some(most.min(highest)))
}

/// The visible processes and threads of a user.
fn tasks_of(uid: u32) -> u64 {
    let field = |status: &str, name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("status")).ok())
        .map(|status| String::from_utf8_lossy(&status).into_owned())
        .filter(|status| field(status, "Uid:") == Some(uid.into()))
        .filter_map(|status| field(&status, "Threads:"))
        .sum()
}

/// Waits until the supervisor has put this process into its control group. Out: whether that bounds the
/// number of its processes. With it comes the pipe that becomes the program's `PROGRESS_FD`. It is all that
/// the program gets beside its output; like that, it can only be written to.
fn receive_permission(socket: &OwnedFd, progress: bool) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    while let Err(errno) = poll(&mut fds, PollTimeout::NONE) {
        if errno != Errno::EINTR {
            return Err(errno.into());
        }
    }
    let (byte, pipe) = sys::receive_byte(socket.as_fd())?.ok_or(io::ErrorKind::UnexpectedEof)?;
    if progress {
        keep_progress_pipe(&pipe.ok_or(io::ErrorKind::UnexpectedEof)?)?;
    }
    Ok(byte != NO_GROUP)
}

fn keep_progress_pipe(pipe: &OwnedFd) -> io::Result<()> {
    // The copy, unlike what was received, is not closed when the program starts.
    match nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_DUPFD(PROGRESS_FD))? {
        PROGRESS_FD => Ok(()),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Restricts this process to the calls of `syscall_filter`, and sends the listener for refused calls
/// over `socket`. Without a listener if the kernel has none (before 5.0), a container's own filter
/// has one, or a filter refuses seccomp(2) (`@system-service` of systemd before 254).
pub(super) fn filter_system_calls(socket: &OwnedFd, threads_only: bool) -> io::Result<()> {
    let filter = |listener| {
        syscall_filter::filter(FilterInput {
            pid: std::process::id(),
            socket: socket.as_raw_fd().unsigned_abs(),
            listener,
            threads_only,
        })
    };
    let Ok(listener) = sys::filter_with_listener(&filter(true)) else {
        return sys::filter_without_listener(&filter(false));
    };
    sys::send_byte(socket.as_fd(), 0, Some(listener.as_fd()))
}

/// E2FSCK_CONFIG: an /etc/e2fsck.conf could change its output, and make it write a log.
/// MALLOC_ARENA_MAX: glibc reserves 64 MiB of address space for each thread's arena (mallopt(3)). Of the
/// threads of xfs_repair, one for each allocation group, the last ones could then not be made, and
/// the others waited for them forever.
#[allow(clippy::disallowed_methods)] // Becomes this process.
fn program(command: &OsString, args: impl Iterator<Item = OsString>) -> Command {
    let mut program = Command::new(command);
    program
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("E2FSCK_CONFIG", "/dev/null")
        .env("MALLOC_ARENA_MAX", "1");
    program
}

/// Enters a network namespace without interfaces, and a read-only mount namespace of its own, whose
/// /dev has the nodes of the jail. Without Landlock, a process may read much of another one with its
/// user id (/proc/PID/environ, mem, root): it then has no /proc.
fn isolate(cell: &Isolation, command: &Path, has_landlock: bool) -> Result<(), JailError> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        // The kernel has no such namespaces, or no more of them (user.max_net_namespaces): the
        // filter refuses sockets as well.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOSPC) => {}
        Err(errno) => return Err(JailError::Syscall("leaving the network", errno)),
    }
    let keep: Vec<&Path> = cell.image.iter().map(HostPath::as_path).chain([command]).collect();
    private_dev(&keep).map_err(|errno| JailError::Syscall("making a /dev of its own", errno))?;
    // Another user opens what is made here.
    umask(Mode::empty());
    let bound = |errno| JailError::Syscall("showing it the image", errno);
    for node in &cell.nodes {
        make_device_node(node, cell.gid)
            .map_err(|errno| JailError::Syscall("making a device node", errno))?;
    }
    if let Some(image) = &cell.image {
        File::create(IMAGE_PATH)
            .map_err(|error| JailError::Io("making a place for the image", error))?;
        mount(Some(image.as_path()), IMAGE_PATH, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(bound)?;
        // A bind mount takes its flags only from a remount (mount(2)).
        let flags = MsFlags::MS_BIND
            | MsFlags::MS_REMOUNT
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV;
        mount(None::<&str>, IMAGE_PATH, None::<&str>, flags, None::<&str>).map_err(bound)?;
    }
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(None::<&str>, "/dev", None::<&str>, flags, None::<&str>)
        .map_err(|errno| JailError::Syscall("making its /dev read-only", errno))?;
    // A checker that runs as root could hold the lock of its run's group, which is then never removed. It
    // can open it no other way: `private_dev` has detached what is mounted elsewhere, and nobody mounts
    // here. An error: there is none, or no more.
    while umount2(CONTROL_GROUPS, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    if !has_landlock {
        hide_processes().map_err(|error| JailError::Io("hiding /proc", error))?;
    }
    match sys::all_mounts_read_only() {
        Ok(()) => Ok(()),
        // Before 5.12 the call is missing: the user of the jail then writes only where all users
        // can.
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) => Ok(()),
        Err(error) => Err(JailError::Io("making all its mounts read-only", error)),
    }
}

/// What of /proc says nothing about processes. Without the first one, e2fsck does not look whether its
/// device is in use, and judges a mounted filesystem as an unmounted one.
const HARMLESS: [(&str, &str); 7] = [
    ("/proc/self/mounts", "mounts"),
    ("/proc/swaps", "swaps"),
    ("/proc/partitions", "partitions"),
    ("/proc/devices", "devices"),
    ("/proc/filesystems", "filesystems"),
    ("/proc/meminfo", "meminfo"),
    ("/proc/cpuinfo", "cpuinfo"),
];

/// Replaces /proc by copies of what is harmless in it.
fn hide_processes() -> io::Result<()> {
    let copies: Vec<_> = HARMLESS
        .iter()
        // Some kernels are built without one of them.
        .filter_map(|(from, to)| Some((to, std::fs::read(from).ok()?)))
        .collect();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let (options, target) = (Some("mode=0755,size=16m,nr_inodes=64"), "/proc");
    mount(Some("diskvitals"), target, Some("tmpfs"), flags, options)?;
    let proc = Path::new("/proc");
    std::fs::create_dir(proc.join("self"))?;
    for (name, content) in copies {
        std::fs::write(proc.join(name), content)?;
    }
    std::os::unix::fs::symlink("../mounts", proc.join("self/mounts"))?;
    mount(
        None::<&str>,
        target,
        None::<&str>,
        flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY,
        None::<&str>,
    )?;
    Ok(())
}

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The paths of programs and of the kernel.
const BASE_PATHS: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/proc",
    "/sys",
    "/dev",
];

/// Enters a mount namespace whose /dev has only the standard nodes; its changes are visible nowhere
/// else. Other mounts are kept only if they are at, above or below `keep`, or contain programs: a
/// copy of a mount keeps its filesystem in use after all others have unmounted it.
pub fn private_dev(keep: &[&Path]) -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let wanted: Vec<&Path> = keep.iter().copied().chain(BASE_PATHS.iter().map(Path::new)).collect();
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let mut points: Vec<HostPath> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(HostPath::unescape)
        .collect();
    // Upper mounts first: resolving a path through a dead NFS or FUSE mount may never return, and
    // detaching a mount also detaches all mounts on it.
    points.sort_by_key(|point| point.as_path().components().count());
    let mut detached: Vec<&Path> = Vec::new();
    for path in points.iter().map(HostPath::as_path) {
        let is_wanted =
            wanted.iter().any(|wanted| wanted.starts_with(path) || path.starts_with(wanted));
        // Mounts at the same path are stacked, and are detached one by one.
        let went_along = detached.iter().any(|gone| path != *gone && path.starts_with(gone));
        // An error: hidden by another mount, or locked by the kernel (EINVAL, ENOENT). It then
        // stays for the duration of one run.
        if !is_wanted
            && !went_along
            && umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok()
        {
            detached.push(path);
        }
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(
        Some("diskvitals"),
        "/dev",
        Some("tmpfs"),
        flags,
        Some("mode=0755,size=64k,nr_inodes=256"),
    )?;
    let before = umask(Mode::empty());
    let made = STANDARD_NODES.iter().try_for_each(|(name, major, minor)| {
        let path = Path::new("/dev").join(name);
        mknod(
            &path,
            SFlag::S_IFCHR,
            Mode::from_bits_truncate(0o666),
            makedev(u64::from(*major), u64::from(*minor)),
        )
    });
    umask(before);
    made
}

/// Creates a node for reading; only processes that may override permissions can open it for
/// writing.
fn make_device_node(node: &DeviceNode, gid: u32) -> Result<(), Errno> {
    // The name must not be a path.
    if node.name.is_empty() || node.name.contains('/') || node.name.starts_with('.') {
        return Err(Errno::EINVAL);
    }
    let path = Path::new("/dev").join(&node.name);
    let number = makedev(u64::from(node.dev.major), u64::from(node.dev.minor));
    mknod(&path, SFlag::S_IFBLK, Mode::from_bits_truncate(0o440), number)?;
    chown(&path, None, Some(Gid::from_raw(gid)))
}

fn drop_privileges(cell: &Isolation) -> Result<(), JailError> {
    let call = |what: &'static str| move |errno: Errno| JailError::Syscall(what, errno);
    for capability in caps::read(None, CapSet::Bounding).map_err(JailError::Capabilities)? {
        caps::drop(None, CapSet::Bounding, capability).map_err(JailError::Capabilities)?;
    }
    let (uid, gid) = (Uid::from_raw(cell.uid), Gid::from_raw(cell.gid));
    setgroups(&[]).map_err(call("leaving its groups"))?;
    setresgid(gid, gid, gid).map_err(call("changing its group"))?;
    setresuid(uid, uid, uid).map_err(call("changing its user"))?;
    // Another user has no capabilities left; root would have them.
    let none = CapsHashSet::new();
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        match caps::clear(None, set).and_then(|()| caps::read(None, set)) {
            Ok(left) if left == none => {}
            Ok(_) => return Err(JailError::Syscall("giving up capabilities", Errno::EPERM)),
            Err(error) => return Err(JailError::Capabilities(error)),
        }
    }
    Ok(())
}
