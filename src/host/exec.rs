//! Runs external programs: absolute path, no shell, a small fixed environment, a separate process
//! group, a time-out, bounded output.
//!
//! In: the program and its arguments. Out: the raw wait status and the output. A process that
//! cannot be killed is never waited for: the caller gets an `UnkillableChild`, and can await its
//! exit before it starts another one.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::process::waiting_in;
use crate::trusted_file;

/// After the program has exited, its output is awaited for this long: a process that it left
/// running may keep the pipes open for ever.
const LATE_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// A killed process exits within this time, or is blocked in the kernel.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);
/// The start time-out of programs without a time-out. A start takes milliseconds, unless the disk
/// of the program does not respond.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// For a thread that only starts a process.
const STACK_SIZE: usize = 128 * 1024;

#[derive(Clone, Debug)]
pub struct Exec {
    /// Absolute; never searched in PATH.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub stdin: Vec<u8>,
    /// For the whole run. Then the process group is killed.
    pub timeout: Duration,
    /// How many bytes of stdout and of stderr each are kept; the rest is read and dropped.
    pub max_output: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The status of wait(2), which contains exit code and signal.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// The program wrote more than was kept.
    pub truncated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("starting {}: the path is not absolute", .0.display())]
    NotAbsolute(PathBuf),
    #[error("starting {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("waiting for {}", program.display())]
    Wait {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} has not ended after {timeout:?} and was killed", program.display())]
    TimedOut { program: PathBuf, timeout: Duration },
    #[error("{} has not ended after {timeout:?}, and cannot be killed", program.display())]
    Unkillable { program: PathBuf, timeout: Duration, child: UnkillableChild },
}

/// A program that was killed and has not exited: one of its threads is in uninterruptible sleep.
/// Nothing waits for it.
#[derive(Debug)]
pub struct UnkillableChild {
    /// The state of the process and its wait channel, where /proc shows them (`D (disk sleep) in
    /// blk_execute_rq`).
    pub waiting_in: Option<String>,
    exited: oneshot::Receiver<()>,
}

impl UnkillableChild {
    /// The process exists until `end` completes; a separate task awaits it.
    pub fn watch(
        waiting_in: Option<String>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> UnkillableChild {
        let (tell, gone) = oneshot::channel();
        tokio::spawn(async move {
            end.await;
            // The receiver may have been dropped.
            let _ = tell.send(());
        });
        UnkillableChild { waiting_in, exited: gone }
    }

    /// Whether the process has exited.
    pub fn has_exited(&mut self) -> bool {
        // An error: the runtime is ending.
        self.exited.try_recv() != Err(oneshot::error::TryRecvError::Empty)
    }

    /// Completes when the process has exited, possibly after days.
    pub async fn exited(self) {
        // An error: the runtime is ending.
        let _ = self.exited.await;
    }
}

/// Runs a program to its end. When the future is dropped, the process group is killed.
pub async fn run(exec: &Exec) -> Result<Output, ExecError> {
    let checked = exec.program.clone();
    run_if(exec, Path::new("/"), move || trusted_file::check_program(&checked)).await
}

/// The same in this working directory.
pub async fn run_in(exec: &Exec, directory: &Path) -> Result<Output, ExecError> {
    let checked = exec.program.clone();
    run_if(exec, directory, move || trusted_file::check_program(&checked)).await
}

/// The same for our own binary: it runs already, whoever may change it.
pub async fn run_own(exec: &Exec) -> Result<Output, ExecError> {
    run_if(exec, Path::new("/"), || Ok(())).await
}

async fn run_if(
    exec: &Exec,
    directory: &Path,
    check: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<Output, ExecError> {
    let program = &exec.program;
    let deadline = Instant::now() + exec.timeout;
    let mut command = command(program, &exec.args)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.current_dir(directory);
    let StartedChild { mut child, mut group } =
        start(program, command, check, exec.timeout).await?;
    let stdin = child.stdin.take();
    let (mut stdout, mut stderr) =
        (BoundedBuffer::new(exec.max_output), BoundedBuffer::new(exec.max_output));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = {
        let read = async { tokio::join!(stdout.read_to_end(out), stderr.read_to_end(err)) };
        tokio::pin!(read);
        let feed = write_stdin(stdin, &exec.stdin);
        tokio::pin!(feed);
        let (mut fed, mut read_all) = (false, false);
        let end = async {
            loop {
                tokio::select! {
                    status = child.wait() => break status,
                    () = &mut feed, if !fed => fed = true,
                    _ = &mut read, if !read_all => read_all = true,
                }
            }
        };
        let ended = tokio::time::timeout_at(deadline, end).await;
        if ended.is_ok() {
            // The process id may be reused from now on. Processes that the program left running on
            // purpose are not killed.
            group.release();
            if !read_all {
                // On a time-out, the output that has arrived is used.
                tokio::time::timeout(LATE_OUTPUT_TIMEOUT, &mut read).await.ok();
            }
        }
        ended
    };
    match ended {
        Err(_) => {
            let pid = child.id();
            // Kills the group now; the exit is awaited below.
            drop(group);
            let end = async move {
                // The status is irrelevant: the process was killed.
                let _ = child.wait().await;
            };
            match reap(pid, end).await {
                None => {
                    Err(ExecError::TimedOut { program: program.clone(), timeout: exec.timeout })
                }
                Some(child) => Err(ExecError::Unkillable {
                    program: program.clone(),
                    timeout: exec.timeout,
                    child,
                }),
            }
        }
        Ok(Err(source)) => Err(ExecError::Wait { program: program.clone(), source }),
        Ok(Ok(status)) => {
            let truncated = stdout.truncated || stderr.truncated;
            Ok(Output {
                status: std::os::unix::process::ExitStatusExt::into_raw(status),
                stdout: stdout.bytes,
                stderr: stderr.bytes,
                truncated,
            })
        }
    }
}

struct StartedChild {
    child: Child,
    group: ProcessGroup,
}

impl StartedChild {
    fn new(child: Child) -> StartedChild {
        StartedChild { group: ProcessGroup::of(&child), child }
    }
}

/// Replaces this process with another program. SIGPIPE stays ignored, as in this process: when the
/// reader of its output closes, the program is not killed. Out: why the program was not started.
pub fn exec(program: &Path, args: &[OsString]) -> io::Error {
    if !program.is_absolute() {
        return io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute");
    }
    let words: Result<Vec<CString>, _> = std::iter::once(program.as_os_str())
        .chain(args.iter().map(OsString::as_os_str))
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    let words = match words {
        Ok(words) => words,
        Err(error) => return error.into(),
    };
    match nix::unistd::execv(&words[0], &words) {
        Ok(never) => match never {},
        Err(errno) => errno.into(),
    }
}

/// An `Unkillable` error: the program did not start in time, since its disk does not respond.
async fn start(
    program: &Path,
    command: Command,
    check: impl FnOnce() -> io::Result<()> + Send + 'static,
    timeout: Duration,
) -> Result<StartedChild, ExecError> {
    let failed = |source| ExecError::Start { program: program.to_owned(), source };
    // If the future is dropped, the child is killed when the result is dropped.
    let mut starting =
        spawn_checked_in_thread(command, check, StartedChild::new).map_err(failed)?;
    match tokio::time::timeout(timeout, &mut starting).await {
        Ok(started) => started.unwrap_or_else(thread_lost).map_err(failed),
        Err(_) => Err(ExecError::Unkillable {
            program: program.to_owned(),
            timeout,
            child: UnkillableChild::watch(None, kill_late_start(starting)),
        }),
    }
}

/// Starts the process on a separate thread: the parent waits until the program is read from disk
/// (vfork(2)), which on a dead disk never ends. The thread ends when the disk responds, or with the
/// daemon. If nothing waits for the process when it has started, it is dropped.
pub(super) fn spawn_in_thread<T: Send + 'static>(
    command: Command,
    started: impl FnOnce(Child) -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<io::Result<T>>> {
    spawn_checked_in_thread(command, || Ok(()), started)
}

/// The same, if `check`, which may hang as well, has no objection.
fn spawn_checked_in_thread<T: Send + 'static>(
    mut command: Command,
    check: impl FnOnce() -> io::Result<()> + Send + 'static,
    started: impl FnOnce(Child) -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<io::Result<T>>> {
    let (tell, told) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let run = move || {
        let _inside = runtime.enter();
        // The receiver may have been dropped.
        let _ = tell.send(check().and_then(|()| command.spawn()).map(started));
    };
    // Detached: the thread ends by itself.
    std::thread::Builder::new().name("exec".to_owned()).stack_size(STACK_SIZE).spawn(run)?;
    Ok(told)
}

/// The error when the thread that starts a process ended without a result.
pub(super) fn thread_lost<T>(_: oneshot::error::RecvError) -> io::Result<T> {
    Err(io::ErrorKind::BrokenPipe.into())
}

/// Kills a process that starts too late, as soon as it exists.
async fn kill_late_start(starting: oneshot::Receiver<io::Result<StartedChild>>) {
    if let Ok(Ok(StartedChild { mut child, group })) = starting.await {
        drop(group);
        // The status is irrelevant: the process was killed.
        let _ = child.wait().await;
    }
}

/// Waits a moment for the exit of a killed process. Out: the process, if it does not exit.
async fn reap(
    pid: Option<u32>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Option<UnkillableChild> {
    let mut end = Box::pin(end);
    match tokio::time::timeout(REAP_TIMEOUT, &mut end).await {
        Ok(()) => None,
        Err(_) => Some(UnkillableChild::watch(waiting_in(pid), end)),
    }
}

// Our descriptors are CLOEXEC (the standard library sets it on each), so the child inherits only
// the three standard ones.
#[allow(clippy::disallowed_methods)] // The only place that starts other programs.
fn command(program: &Path, args: &[String]) -> Result<Command, ExecError> {
    if !program.is_absolute() {
        return Err(ExecError::NotAbsolute(program.to_owned()));
    }
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.current_dir("/").process_group(0);
    Ok(command)
}

/// A running program whose output is read as a stream. Dropping it kills its process group.
#[derive(Debug)]
pub struct StreamingChild {
    child: Child,
    group: ProcessGroup,
}

/// Starts a program without input; its standard error is discarded. Out: also the read end of its
/// output, which the caller reads or closes. A program that does not start within `START_TIMEOUT`
/// is an `Unkillable` error: its disk does not respond.
pub async fn spawn_streaming(
    program: &Path,
    args: &[String],
) -> Result<(StreamingChild, OwnedFd), ExecError> {
    let mut command = command(program, args)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let checked = program.to_owned();
    let check = move || trusted_file::check_program(&checked);
    let StartedChild { mut child, group } = start(program, command, check, START_TIMEOUT).await?;
    let output = child
        .stdout
        .take()
        .ok_or(io::ErrorKind::BrokenPipe.into())
        .and_then(ChildStdout::into_owned_fd)
        .map_err(|source| ExecError::Start { program: program.to_owned(), source })?;
    Ok((StreamingChild { child, group }, output))
}

impl StreamingChild {
    /// Waits for the exit. Out: how the program ended, as text. Cancel-safe.
    pub async fn wait(&mut self) -> String {
        let ended = self.child.wait().await;
        self.group.release();
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

async fn write_stdin(stdin: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut stdin) = stdin {
        // A program need not read its input: the write then fails with EPIPE, and the program has
        // an exit status.
        let _ = stdin.write_all(bytes).await;
    }
}

/// Kills the process group unless released.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> ProcessGroup {
        ProcessGroup(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // ESRCH: the group has already exited.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

struct BoundedBuffer {
    bytes: Vec<u8>,
    max: usize,
    truncated: bool,
}

impl BoundedBuffer {
    fn new(max: usize) -> BoundedBuffer {
        BoundedBuffer { bytes: Vec::new(), max, truncated: false }
    }

    /// Reads until the end of file or an error of the pipe, which counts as the end.
    async fn read_to_end(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let room = self.max - self.bytes.len();
            self.truncated |= read > room;
            self.bytes.extend_from_slice(&buffer[..read.min(room)]);
        }
    }
}

/// A program that cannot be read, as on a disk that does not answer, until the lease is dropped.
#[cfg(test)]
pub(super) fn program_on_a_dead_disk(directory: &Path) -> (PathBuf, crate::sys::Lease) {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("program");
    std::fs::write(&path, "#!/bin/sh\necho '{\"limitations\":[]}'; read job; echo 1\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Another test's fork may hold the descriptor of the writing until its execve(2).
    let lease = loop {
        match crate::sys::Lease::take(std::fs::File::open(&path).unwrap()) {
            Ok(lease) => break lease,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        std::thread::yield_now();
    };
    (path, lease)
}

#[cfg(test)]
mod tests;
