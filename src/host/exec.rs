//! Starting programs: absolute path, no shell, a small fixed environment, a process group of its own, a time-out, bounded output.
//!
//! Comes in: what to run. Goes out: the raw wait status and what it wrote. Never waits for a process that cannot be killed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// After the program's end its output is awaited this long: something that it left behind may hold the pipes for ever.
const LATE_OUTPUT: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Exec {
    /// Absolute; never searched for.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub stdin: Vec<u8>,
    /// For all of it. Then the whole process group is killed.
    pub timeout: Duration,
    /// Bytes of stdout and of stderr that are kept, each; the rest is read and dropped.
    pub max_output: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The status of wait(2), with exit code and signal still in it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// More was written than kept.
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
}

/// Runs it to its end. When the future is dropped, the process group is killed.
pub async fn run(exec: &Exec) -> Result<Output, ExecError> {
    let program = &exec.program;
    if !program.is_absolute() {
        return Err(ExecError::NotAbsolute(program.clone()));
    }
    let mut child = start(exec).map_err(|source| ExecError::Start { program: program.clone(), source })?;
    let mut group = Group::of(&child);
    let stdin = child.stdin.take();
    let (mut stdout, mut stderr) = (Kept::new(exec.max_output), Kept::new(exec.max_output));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = {
        let read = async { tokio::join!(stdout.fill(out), stderr.fill(err)) };
        tokio::pin!(read);
        let feed = feed(stdin, &exec.stdin);
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
        let ended = tokio::time::timeout(exec.timeout, end).await;
        if ended.is_ok() {
            // Its number may be somebody else's from now on. What the program left running on purpose stays.
            group.release();
            if !read_all {
                // Elapsed: what is there by now is what it said.
                tokio::time::timeout(LATE_OUTPUT, &mut read).await.ok();
            }
        }
        ended
    };
    match ended {
        // Dropping the child leaves a process in D state to tokio's reaper, which waits for nothing.
        Err(_) => Err(ExecError::TimedOut { program: program.clone(), timeout: exec.timeout }),
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

fn start(exec: &Exec) -> io::Result<Child> {
    command(&exec.program, &exec.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

// Descriptors of ours are CLOEXEC (the standard library opens nothing else), so the child has its three only.
#[allow(clippy::disallowed_methods)] // This is the place where processes are started.
fn command(program: &Path, args: &[String]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command.args(args).env_clear().env("LANG", "C.UTF-8").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.current_dir(Path::new("/")).process_group(0);
    command
}

/// A program that writes for as long as it runs. Dropping it kills its process group.
#[derive(Debug)]
pub struct Following {
    child: Child,
    group: Group,
}

/// Starts it, without input and without a place for its complaints. Out: also the reading end of its output, which the caller must read or close:
/// a program of good manners then ends by itself.
pub fn follow(program: &Path, args: &[String]) -> Result<(Following, OwnedFd), ExecError> {
    if !program.is_absolute() {
        return Err(ExecError::NotAbsolute(program.to_owned()));
    }
    let wrong = |source| ExecError::Start { program: program.to_owned(), source };
    let mut child = command(program, args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(wrong)?;
    let group = Group::of(&child);
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe.into()).and_then(ChildStdout::into_owned_fd);
    Ok((Following { child, group }, output.map_err(wrong)?))
}

impl Following {
    /// Until it has ended. Out: how, in words. Cancel-safe.
    pub async fn ended(&mut self) -> String {
        let ended = self.child.wait().await;
        self.group.release();
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

async fn feed(stdin: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut stdin) = stdin {
        // A program that does not read its input is within its rights: it ends with EPIPE here and a status there.
        let _ = stdin.write_all(bytes).await;
    }
}

/// Kills the process group unless released.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // ESRCH: it ended by itself in the meantime.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

struct Kept {
    bytes: Vec<u8>,
    max: usize,
    truncated: bool,
}

impl Kept {
    fn new(max: usize) -> Kept {
        Kept { bytes: Vec::new(), max, truncated: false }
    }

    /// Until the end, or an error of the pipe, which is an end too.
    async fn fill(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let room = self.max - self.bytes.len();
            self.truncated |= read > room;
            self.bytes.extend_from_slice(&buffer[..read.min(room)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Exec {
        Exec {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
            max_output: 100,
        }
    }

    #[tokio::test]
    async fn input_output_status_and_a_small_environment() {
        let exec = Exec { stdin: b"hello".to_vec(), max_output: 1000, ..shell("cat; env >&2; exit 3") };
        let output = run(&exec).await.unwrap();
        assert_eq!((output.status, output.stdout.as_slice(), output.truncated), (3 << 8, &b"hello"[..], false));
        let env = String::from_utf8(output.stderr).unwrap();
        let names: std::collections::BTreeSet<&str> = env.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(names.is_subset(&["LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].into()), "{env}");
    }

    #[tokio::test]
    async fn output_is_bounded_and_an_unread_input_is_no_error() {
        let exec = Exec { stdin: vec![b'x'; 1 << 20], ..shell("exec 0<&-; head -c 300000 /dev/zero") };
        let output = run(&exec).await.unwrap();
        assert_eq!((output.status, output.stdout.len(), output.truncated), (0, 100, true));
    }

    #[tokio::test]
    async fn a_time_out_kills_the_children_too() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let exec = Exec { timeout: Duration::from_millis(500), ..shell(&format!("sleep 1000 & echo $! > {}; wait", pids.display())) };
        assert!(matches!(run(&exec).await, Err(ExecError::TimedOut { .. })));
        // Killed or never started under load; it must not be running.
        if let Ok(pid) = std::fs::read_to_string(&pids).unwrap_or_default().trim().parse::<u32>() {
            let alive = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
            for _ in 0..600 {
                if !alive() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("{pid} still runs");
        }
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_does_not_hold_us_up() {
        let output = run(&shell("sleep 5 & echo done")).await.unwrap();
        assert_eq!(output.stdout, b"done\n");
    }

    #[tokio::test]
    async fn a_program_that_is_followed_is_killed_with_what_it_started_when_nobody_follows() {
        use std::io::BufRead;
        let (following, output) = follow(Path::new("/bin/sh"), &["-c".to_owned(), "sleep 1000 & echo $!; wait".to_owned()]).unwrap();
        let pid = tokio::task::spawn_blocking(move || {
            nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
            std::io::BufReader::new(std::fs::File::from(output)).lines().next().unwrap().unwrap()
        });
        let stat = format!("/proc/{}/stat", pid.await.unwrap());
        assert!(std::fs::exists(&stat).unwrap());
        drop(following);
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_relative_or_missing_program_is_an_error_that_names_it() {
        let error = run(&Exec { program: "sh".into(), ..shell("") }).await.unwrap_err();
        assert_eq!(error.to_string(), "starting sh: the path is not absolute");
        let error = run(&Exec { program: "/nonexistent/x".into(), ..shell("") }).await.unwrap_err();
        assert_eq!(error.to_string(), "starting /nonexistent/x");
    }
}
