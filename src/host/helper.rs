//! A long-lived helper process: a copy of our own binary that sends and receives messages, one line
//! of JSON each.
//!
//! In: how to start the process, messages for it. Out: its messages. The process ends when its
//! standard input is closed; its end is not waited for. Knows nothing of the messages' meaning.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::host::exec::{spawn_in_thread, thread_lost};

/// Messages are small.
const MAX_LINE: u64 = 1 << 20;
/// A helper starts within milliseconds and always reads; one that does not is useless.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Program {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// Dropping it closes its pipes, which ends it; it is reaped whenever it has ended.
pub struct Helper {
    /// Held for the reaping, too.
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// What was read of a line.
    line: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("starting a helper process")]
    Start(#[source] std::io::Error),
    #[error("a helper process has not been started in {} s: the disk that its program lies on does not answer", HELPER_TIMEOUT.as_secs())]
    StartTimeout,
    #[error("a helper process was started without its pipes")]
    NoPipes,
    #[error("talking to a helper process")]
    Pipe(#[source] std::io::Error),
    #[error("a helper process has not listened for {} s", HELPER_TIMEOUT.as_secs())]
    WriteTimeout,
    #[error("a helper process has ended")]
    Exited,
    #[error("encoding a line for a helper process")]
    Encode(#[source] serde_json::Error),
    #[error("what a helper process says makes no sense")]
    Decode(#[source] serde_json::Error),
}

impl Helper {
    /// A helper that is started after the time-out finds its input closed, and ends.
    #[allow(clippy::disallowed_methods)] // Our own binary, no shell, bounded lines.
    pub async fn start(program: &Program) -> Result<Helper, HelperError> {
        let mut command = Command::new(&program.program);
        command
            .args(&program.args)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(false);
        let started = spawn_in_thread(command, |child| child).map_err(HelperError::Start)?;
        let started = tokio::time::timeout(HELPER_TIMEOUT, started)
            .await
            .map_err(|_| HelperError::StartTimeout)?;
        let mut child = started
            .unwrap_or_else(thread_lost)
            .map_err(HelperError::Start)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HelperError::NoPipes);
        };
        Ok(Helper {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            line: Vec::new(),
        })
    }

    /// The next message. Cancel-safe: the part of a line that was read is kept.
    pub async fn recv<T: DeserializeOwned>(&mut self) -> Result<T, HelperError> {
        let left = MAX_LINE.saturating_sub(self.line.len() as u64);
        (&mut self.stdout)
            .take(left)
            .read_until(b'\n', &mut self.line)
            .await
            .map_err(HelperError::Pipe)?;
        if self.line.last() != Some(&b'\n') {
            return Err(HelperError::Exited);
        }
        let said = serde_json::from_slice(&self.line).map_err(HelperError::Decode);
        self.line.clear();
        said
    }

    /// SIGKILL. The next `recv` reports the end.
    pub(crate) fn kill(&mut self) {
        // An error: it is gone already.
        let _ = self.child.start_kill();
    }

    pub async fn send(&mut self, what: &impl Serialize) -> Result<(), HelperError> {
        let mut line = serde_json::to_vec(what).map_err(HelperError::Encode)?;
        line.push(b'\n');
        let written = tokio::time::timeout(HELPER_TIMEOUT, self.stdin.write_all(&line)).await;
        written
            .map_err(|_| HelperError::WriteTimeout)?
            .map_err(HelperError::Pipe)
    }

    /// Closes the helper's input, which ends it, and waits until it has exited.
    pub(crate) async fn close(self) {
        let Helper {
            mut child,
            stdin,
            stdout,
            ..
        } = self;
        drop((stdin, stdout));
        // How it ended says nothing.
        child.wait().await.ok();
    }

    /// The process id, until the process has been reaped.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }
}
