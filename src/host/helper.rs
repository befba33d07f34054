//! A long-lived helper process: a copy of our own binary that exchanges messages with the daemon,
//! one line of JSON each.
//!
//! In: how to start the process, messages for it. Out: its messages. The process exits when its
//! standard input is closed; its exit is not awaited. Does not interpret the messages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;

use crate::exec::{spawn_in_thread, thread_lost};

/// The longest message; usual messages are small.
const MAX_LINE: u64 = 1 << 20;
/// What is kept of the memory of a long message: the answer to a scan has half a megabyte.
const KEPT_LINE: usize = 4 << 10;
/// A helper starts within milliseconds and always reads its input; one that does not is useless.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent starts. Each has its own thread, which hangs while the disk of
/// the program does not respond.
const MAX_STARTS: usize = 4;
static STARTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_STARTS)));
static URGENT_STARTS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(MAX_STARTS)));

#[derive(Clone, Debug)]
pub struct Program {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// Dropping it closes its pipes, which ends the process; it is reaped when it has exited.
pub struct Helper {
    /// Also needed to reap the process.
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The part of a line that was read.
    line: Vec<u8>,
    max_line: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("starting a child process")]
    Start(#[source] std::io::Error),
    #[error("a child process was not started within {} s: the disk that holds its program does not answer", HELPER_TIMEOUT.as_secs())]
    StartTimeout,
    #[error("a child process was started without its pipes")]
    NoPipes,
    #[error("the pipe to a child process")]
    Pipe(#[source] std::io::Error),
    #[error("a child process has not read its input for {} s", HELPER_TIMEOUT.as_secs())]
    WriteTimeout,
    #[error("a child process ended without an answer")]
    Exited,
    #[error("encoding a message for a child process")]
    Encode(#[source] serde_json::Error),
    #[error("a message of a child process makes no sense")]
    Decode(#[source] serde_json::Error),
}

impl Helper {
    /// A helper that starts after the time-out finds its input closed, and exits.
    pub async fn start(program: &Program) -> Result<Helper, HelperError> {
        Helper::start_with(program, STARTS.clone(), MAX_LINE).await
    }

    /// The same for a helper on which the thaw of a filesystem depends: other starts that hang do
    /// not delay it.
    pub async fn start_urgent(program: &Program) -> Result<Helper, HelperError> {
        Helper::start_with(program, URGENT_STARTS.clone(), MAX_LINE).await
    }

    /// `starts`: the limit of concurrent starts. `max_line`: the length of the longest message.
    #[allow(clippy::disallowed_methods)] // Our own binary, no shell, bounded lines.
    pub(super) async fn start_with(
        program: &Program,
        starts: Arc<Semaphore>,
        max_line: u64,
    ) -> Result<Helper, HelperError> {
        let mut command = Command::new(&program.program);
        command
            .args(&program.args)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(false);
        let started = async {
            // The semaphore is never closed.
            let permit = starts.acquire_owned().await.ok();
            let starting = spawn_in_thread(command, move |child| {
                drop(permit);
                child
            })?;
            starting.await.unwrap_or_else(thread_lost)
        };
        let mut child = tokio::time::timeout(HELPER_TIMEOUT, started)
            .await
            .map_err(|_| HelperError::StartTimeout)?
            .map_err(HelperError::Start)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HelperError::NoPipes);
        };
        Ok(Helper { child, stdin, stdout: BufReader::new(stdout), line: Vec::new(), max_line })
    }

    /// Receives the next message. Cancel-safe: a part of a line that was read is kept.
    pub async fn recv<T: DeserializeOwned>(&mut self) -> Result<T, HelperError> {
        let left = self.max_line.saturating_sub(self.line.len() as u64);
        (&mut self.stdout)
            .take(left)
            .read_until(b'\n', &mut self.line)
            .await
            .map_err(HelperError::Pipe)?;
        if self.line.last() != Some(&b'\n') {
            return Err(HelperError::Exited);
        }
        let message = serde_json::from_slice(&self.line).map_err(HelperError::Decode);
        self.line.clear();
        self.line.shrink_to(KEPT_LINE);
        message
    }

    /// Sends SIGKILL. The next `recv` reports the end.
    pub fn kill(&mut self) {
        // An error: it has already exited.
        let _ = self.child.start_kill();
    }

    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), HelperError> {
        let mut line = serde_json::to_vec(message).map_err(HelperError::Encode)?;
        line.push(b'\n');
        let written = tokio::time::timeout(HELPER_TIMEOUT, self.stdin.write_all(&line)).await;
        written.map_err(|_| HelperError::WriteTimeout)?.map_err(HelperError::Pipe)
    }

    /// Closes the helper's input, which ends it, and waits until it has exited.
    pub async fn close(self) {
        let Helper { mut child, stdin, stdout, .. } = self;
        drop((stdin, stdout));
        // The exit status is irrelevant.
        child.wait().await.ok();
    }

    /// The process id, until the process has been reaped.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::program_on_a_dead_disk;

    #[tokio::test]
    async fn starts_on_a_dead_disk_are_bounded_and_one_that_is_given_up_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (program, lease) = program_on_a_dead_disk(dir.path());
        let hangs = Program { program, args: Vec::new() };
        let starts = Arc::new(Semaphore::new(1));
        let start = |program| Helper::start_with(program, starts.clone(), MAX_LINE);
        let soon = Duration::from_millis(50);
        let first = tokio::time::timeout(soon, start(&hangs)).await;
        assert!(first.is_err(), "the disk has not answered");
        assert_eq!(starts.available_permits(), 0, "its thread still hangs");
        let works = Program { program: "/bin/cat".into(), args: Vec::new() };
        let mut second = Box::pin(start(&works));
        let waiting = tokio::time::timeout(soon, &mut second).await;
        assert!(waiting.is_err(), "there is no thread for it");
        drop(lease);
        let mut helper = second.await.expect("the disk has answered");
        helper.send(&7).await.unwrap();
        assert_eq!(helper.recv::<u8>().await.unwrap(), 7);
    }
}
