//! A jail for programs that read devices: the program cannot write anything.
//!
//! In: a program, and the devices (or the one file) that it may read. Out: its process, and its
//! output as a stream. This file is the caller's side; `child` is the code that our own binary runs
//! before it becomes the program; `syscall_filter` lists the system calls that the program may use,
//! `run_group` bounds its processes, `free_id` finds its user id, `orphans` finds what of it was left.
//! Does not depend on filesystems.
//!
//! As root: a separate mount namespace, all of it read-only, whose /dev has only the devices to be
//! read, at mode 0440; a network namespace without interfaces; another user without groups and
//! capabilities, with an id that nothing else has; without Landlock, no /proc. Where possible, a control
//! group bounds all its processes together; always, the number of its user's processes has a limit.
//! Always: no_new_privs; Landlock, where the kernel has it; no file can grow (RLIMIT_FSIZE), where the
//! program allows that; a seccomp filter. Without root and without both Landlock and RLIMIT_FSIZE, the
//! program is not started.

mod child;
mod free_id;
mod orphans;
mod run_group;
mod syscall_filter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, pipe2};
use serde::{Deserialize, Serialize};

use crate::helper::Program;
use crate::jail::run_group::{RunBounds, Unbounded};
use crate::process::waiting_in;
use crate::sys;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;

pub use child::{enter, private_dev};
pub use free_id::IdError;
pub use free_id::{free_id, has_own_ids, ids_of_runs};
pub use orphans::kill_orphans;
pub use run_group::{RunGroup, clear_all_leftover_groups, clear_leftover_groups, weakness};
pub use syscall_filter::is_fork;

/// The descriptor on which the program reports its progress: below the jail's limit of descriptors,
/// and far above those that programs open.
pub const PROGRESS_FD: i32 = 200;
/// A program that writes faster than it is read waits, as with its output: ample for the reports of
/// a tenth of a second.
const PROGRESS_PIPE_BYTES: i32 = 1 << 20;
/// The path of the one file inside the jail.
pub const IMAGE_PATH: &str = "/dev/image";

/// The stacks of the program's threads count as address space (8 MiB each by default).
const STACK_SIZE: u64 = 2 << 20;
/// Beside the threads of the checker: a shell script around it, and what that starts.
const OTHER_TASKS: u64 = 64;
/// The byte that lets the program start: a control group bounds the number of its processes, or none does.
const IN_GROUP: u8 = 0;
const NO_GROUP: u8 = 1;

/// A block device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Name in /dev.
    pub name: String,
    pub dev: DevNo,
}

/// The properties of the jail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailSpec {
    /// None: we are not root, and the program runs as our user.
    pub isolation: Option<Isolation>,
    /// Address space, in bytes.
    pub memory: u64,
    /// The program exits if the file size is limited (xfs_repair sets RLIMIT_FSIZE to infinity).
    pub unlimited_files: bool,
    /// Runs at the lowest priority.
    pub low_priority: bool,
    /// When this process exits, the program is killed.
    pub parent: i32,
    /// The program has a pipe as `PROGRESS_FD`, to which it can write.
    pub progress: bool,
    /// Bytes per second; the caller throttles the program.
    pub read_rate: Option<u64>,
}

impl JailSpec {
    fn uid(&self) -> u32 {
        let own = self.isolation.as_ref().map(|cell| cell.uid);
        own.unwrap_or_else(|| nix::unistd::Uid::current().as_raw())
    }

    /// How many processes and threads it may have. The address space of one process has no room for
    /// the stacks of more.
    fn tasks(&self) -> u64 {
        self.memory / STACK_SIZE + OTHER_TASKS
    }

    /// What all its processes may use together: the address space of one, with what the kernel needs
    /// for it (page tables, stacks, buffers). A single process reaches its address space first.
    fn bounds(&self) -> RunBounds {
        let nodes = self.isolation.iter().flat_map(|cell| &cell.nodes);
        RunBounds {
            memory: self.memory + self.memory / 8 + (64 << 20),
            tasks: self.tasks(),
            low_priority: self.low_priority,
            read_rate: self.read_rate,
            devices: nodes.map(|node| node.dev).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub uid: u32,
    pub gid: u32,
    /// All nodes in /dev, besides null, zero, full, random and urandom.
    pub nodes: Vec<DeviceNode>,
    /// Visible as `IMAGE_PATH`.
    pub image: Option<HostPath>,
}

impl Isolation {
    /// Whether its user id is one of a run, and of nothing else.
    fn is_own_id(&self) -> bool {
        free_id::RESERVED.contains(&self.uid)
    }
}

/// Whether isolation is possible here: namespaces and another user need capabilities that only root
/// has, and not in every container.
pub fn is_possible() -> bool {
    let needed = [
        caps::Capability::CAP_SYS_ADMIN,
        caps::Capability::CAP_SETUID,
        caps::Capability::CAP_SETGID,
        caps::Capability::CAP_SETPCAP,
    ];
    nix::unistd::geteuid().is_root()
        && needed
            .iter()
            .all(|right| caps::has_cap(None, caps::CapSet::Effective, *right).unwrap_or(false))
}

/// Maximum number of distinct refused calls that are kept of a program.
const MAX_REFUSED: usize = 8;
/// Refused calls are answered in batches, so that a flood of them does not block everything else.
const REFUSED_BATCH: usize = 64;

/// A program in its jail. It is killed when the thread that started it exits.
#[derive(Debug)]
pub struct JailedProcess {
    child: Child,
    group: Pid,
    output: File,
    /// Carries the listener, then errors from before the program started; ends when it starts.
    setup: UnixStream,
    setup_error: Vec<u8>,
    listener: Listener,
    refused: BTreeSet<i32>,
    /// Carries what it writes to `PROGRESS_FD`.
    progress: Option<File>,
    /// Bounds all its processes.
    bounds: Arc<RunGroup>,
    unbounded: Unbounded,
    /// It runs as root.
    is_root: bool,
    /// The name of our own binary as a process, which the program's replaces.
    own_name: Option<String>,
}

/// The listener for calls that the filter refuses.
#[derive(Debug)]
enum Listener {
    /// It may still arrive.
    Expected,
    Open(OwnedFd),
    /// There is none, or the program has ended.
    Absent,
}

/// `program` is our own binary, with the arguments that lead to `child::enter`. `bounds`: of this run
/// alone.
#[allow(clippy::disallowed_methods)] // Absolute path, no shell, a fixed environment.
pub fn start(
    program: &Program,
    plan: &JailSpec,
    bounds: Arc<RunGroup>,
    command: &Path,
    args: &[OsString],
) -> io::Result<JailedProcess> {
    let (output, output_end) = pipe2(OFlag::O_CLOEXEC)?;
    let (setup, setup_end) = UnixStream::pair()?;
    let errors_end = output_end.try_clone()?;
    // Both are polled, and reads must not block.
    nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    setup.set_nonblocking(true)?;
    let progress = plan.progress.then(progress_pipe).transpose()?;
    let child = Command::new(&program.program)
        .args(&program.args)
        .arg(serde_json::to_string(plan)?)
        .arg(command)
        .args(args)
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(setup_end)))
        .stdout(Stdio::from(output_end))
        .stderr(Stdio::from(errors_end))
        .spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(|_| io::ErrorKind::InvalidData)?);
    let (progress, progress_end) = progress.unzip();
    let unbounded = bounds.add(group);
    let permission = match unbounded.tasks {
        None => IN_GROUP,
        Some(_) => NO_GROUP,
    };
    let own_name = text_field(group, "status", "Name:");
    // It waits for this. An error: it has exited, which is noticed later.
    sys::send_byte(setup.as_fd(), permission, progress_end.as_ref().map(AsFd::as_fd)).ok();
    Ok(JailedProcess {
        child,
        group,
        output: File::from(output),
        setup,
        setup_error: Vec::new(),
        listener: Listener::Expected,
        refused: BTreeSet::new(),
        progress,
        bounds,
        unbounded,
        is_root: plan.uid() == 0,
        own_name,
    })
}

/// Makes the pipe for progress. Its writing end is for the process in the jail.
fn progress_pipe() -> io::Result<(File, OwnedFd)> {
    let (reading, writing) = pipe2(OFlag::O_CLOEXEC)?;
    nix::fcntl::fcntl(&reading, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Refused beyond a user's share of memory for pipes (pipe(7)): the usual size then has to do.
    nix::fcntl::fcntl(&reading, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PROGRESS_PIPE_BYTES)).ok();
    Ok((File::from(reading), writing))
}

/// The scheduler's statistics of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    pub ran: Duration,
    /// Time of waiting for a processor.
    pub waited: Duration,
}

impl JailedProcess {
    /// Readable when there is output, and at its end.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// The available output. None: none at present; empty: the output has ended.
    pub fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.output.read(buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes on what the program has written to `PROGRESS_FD`. At most so much that a flood of it does
    /// not block everything else.
    pub fn drain_progress(&mut self, buffer: &mut [u8], mut each: impl FnMut(&[u8])) {
        const MOST_READS: usize = 32;
        let Some(pipe) = &mut self.progress else {
            return;
        };
        for _ in 0..MOST_READS {
            match pipe.read(buffer) {
                Ok(length @ 1..) => each(buffer.get(..length).unwrap_or_default()),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    return;
                }
                // The program has closed it, or cannot be read.
                Ok(_) | Err(_) => {
                    self.progress = None;
                    return;
                }
            }
        }
    }

    /// Readable when a call is to be refused: the program waits for the answer.
    pub fn filter(&self) -> Option<BorrowedFd<'_>> {
        match &self.listener {
            Listener::Expected => Some(self.setup.as_fd()),
            Listener::Open(listener) => Some(listener.as_fd()),
            Listener::Absent => None,
        }
    }

    /// Refuses the calls that wait for it.
    pub fn refuse_calls(&mut self) {
        if matches!(self.listener, Listener::Expected) {
            self.receive_listener();
        }
        let Listener::Open(listener) = &self.listener else {
            return;
        };
        for _ in 0..REFUSED_BATCH {
            // Without a waiting call, `refuse_call` would block.
            let is_readable = |fds: &[PollFd<'_>]| {
                let events = fds.first().and_then(PollFd::revents);
                events.is_some_and(|events| events.contains(PollFlags::POLLIN))
            };
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let answer = match poll(&mut fds, PollTimeout::ZERO) {
                Ok(0) | Err(Errno::EINTR) => return,
                Ok(_) if is_readable(&fds) => sys::refuse_call(listener.as_fd()),
                // The program has ended (POLLHUP).
                Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
                Err(errno) => Err(errno.into()),
            };
            match answer {
                Ok(Some(number)) if self.refused.len() < MAX_REFUSED => {
                    self.refused.insert(number);
                }
                Ok(_) => {}
                Err(_) => {
                    self.listener = Listener::Absent;
                    return;
                }
            }
        }
    }

    /// Numbers of refused system calls. Empty also if the filter has no listener.
    pub fn refused(&self) -> &BTreeSet<i32> {
        &self.refused
    }

    fn receive_listener(&mut self) {
        self.listener = match sys::receive_byte(self.setup.as_fd()) {
            Ok(Some((_, Some(listener)))) => Listener::Open(listener),
            Ok(Some((byte, None))) => {
                self.setup_error.push(byte);
                Listener::Absent
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Listener::Expected,
            Ok(None) | Err(_) => Listener::Absent,
        };
    }

    /// Why the program did not start. Called after the process has exited.
    pub fn setup_error(&mut self) -> Option<String> {
        self.refuse_calls();
        // End of file or an error: there is no more text.
        self.setup.read_to_end(&mut self.setup_error).ok();
        (!self.setup_error.is_empty())
            .then(|| String::from_utf8_lossy(&self.setup_error).into_owned())
    }

    /// Sends a signal to the process and all its children. No effect after its exit.
    pub fn signal(&self, signal: Signal) {
        killpg(self.group, signal).ok();
    }

    /// Whether it has exited. If so, its group is killed, `look` reads it for the last time, and it
    /// is reaped.
    pub fn try_wait(
        &mut self,
        look: impl FnOnce(&JailedProcess),
    ) -> io::Result<Option<ExitStatus>> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // Checked without reaping, so that the process id is not reused before the group is killed.
        match waitid(Id::Pid(self.group), flags) {
            Ok(WaitStatus::StillAlive) => return Ok(None),
            Ok(_) => self.signal(Signal::SIGKILL),
            Err(errno) => return Err(errno.into()),
        }
        look(self);
        self.child.wait().map(Some)
    }

    /// Which bound of all its processes it has reached; continues a sentence that begins with the
    /// checker's name.
    pub fn exceeded_bound(&self) -> Option<String> {
        self.bounds.exceeded()
    }

    /// Why nothing bounds the number of its processes, which may therefore make none: no control group,
    /// and the kernel has no limit for root.
    pub fn tasks_unbounded_because(&self) -> Option<&str> {
        self.unbounded.tasks.as_deref().filter(|_| self.is_root)
    }

    /// Bytes that it and its present children caused to be read from devices (read_bytes of
    /// proc_pid_io(5)).
    pub fn bytes_read(&self) -> Option<u64> {
        let read = |pid| field(pid, "io", "read_bytes:");
        let of_others: u64 = self
            .bounds
            .processes()
            .into_iter()
            .filter(|pid| *pid != self.group)
            .filter_map(read)
            .sum();
        Some(read(self.group)?.saturating_add(of_others))
    }

    /// The peak of its resident set, in bytes (VmHWM of proc_pid_status(5)). None: it is still our own
    /// binary, or has ended.
    pub fn peak_memory(&self) -> Option<u64> {
        // The name first: it changes after the memory.
        let is_own = text_field(self.group, "status", "Name:")? == self.own_name.as_deref()?;
        let kib = field(self.group, "status", "VmHWM:")?;
        (kib > 0 && !is_own).then(|| kib.saturating_mul(1024))
    }

    pub fn waiting_in(&self) -> Option<String> {
        waiting_in(Some(self.child.id()))
    }

    /// For each thread, by id: how long it has run, and how long it has waited for a processor
    /// (/proc/PID/schedstat; Documentation/scheduler/sched-stats.rst). Empty where the kernel has
    /// no statistics.
    pub fn sched_stats(&self) -> BTreeMap<u32, SchedStat> {
        let threads =
            std::fs::read_dir(format!("/proc/{}/task", self.group)).into_iter().flatten().flatten();
        let numbers = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        numbers
            .filter_map(|number| {
                let text = std::fs::read_to_string(format!(
                    "/proc/{}/task/{number}/schedstat",
                    self.group
                ))
                .ok()?;
                let mut figures = text
                    .split_whitespace()
                    .map_while(|figure| figure.parse().ok())
                    .map(Duration::from_nanos);
                Some((number, SchedStat { ran: figures.next()?, waited: figures.next()? }))
            })
            .collect()
    }
}

/// A number in a file of /proc/PID.
fn field(pid: Pid, file: &str, name: &str) -> Option<u64> {
    let text = text_field(pid, file, name)?;
    text.split_whitespace().next()?.parse().ok()
}

fn text_field(pid: Pid, file: &str, name: &str) -> Option<String> {
    // The name of a process is bytes.
    let content = std::fs::read(format!("/proc/{pid}/{file}")).ok()?;
    String::from_utf8_lossy(&content)
        .lines()
        .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}
