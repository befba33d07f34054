//! Programs that steps need: found in the usual directories, run to their end by `host::exec`.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::host::exec;
use crate::host::exec::{Exec, Output};
use crate::provision::step::StepErrorKind;
use crate::provision::worker::error::StepWorkerError;

/// Where distributions put them.
const SEARCH_PATH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// lvm's list of thousands of volumes; everything else is far below.
const MAX_OUTPUT: usize = 16 << 20;
/// Of what a program complains about, so much goes into a message.
const MAX_MESSAGE_CHARS: usize = 600;

/// Absolute, of a regular file that can be run.
pub(crate) fn find(name: &str) -> Result<PathBuf, StepWorkerError> {
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let found = SEARCH_PATH
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(runs);
    found.ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::Unsupported,
            format!(
                "{name} is not installed (looked for in {})",
                SEARCH_PATH.join(", ")
            ),
        )
    })
}

/// What a program left.
#[derive(Debug)]
pub(crate) struct ToolOutput {
    name: String,
    pub output: Output,
}

/// `timeout`: then it is killed. One runtime a run: this process waits for nothing else meanwhile.
pub(crate) fn run(
    name: &str,
    args: &[String],
    timeout: Duration,
) -> Result<ToolOutput, StepWorkerError> {
    let exec = Exec {
        program: find(name)?,
        args: args.to_vec(),
        stdin: Vec::new(),
        timeout,
        max_output: MAX_OUTPUT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|error| StepWorkerError::io(format!("preparing to run {name}"), error))?;
    let output = runtime.block_on(exec::run(&exec)).map_err(|error| {
        StepWorkerError::with_source(StepErrorKind::Other, format!("running {name}"), error)
    })?;
    Ok(ToolOutput {
        name: name.to_owned(),
        output,
    })
}

impl ToolOutput {
    /// None where a signal ended it.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        ExitStatus::from_raw(self.output.status).code()
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What it complained of, as one line.
    pub(crate) fn message(&self) -> String {
        let text = String::from_utf8_lossy(if self.output.stderr.trim_ascii().is_empty() {
            &self.output.stdout
        } else {
            &self.output.stderr
        });
        let line = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        line.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_MESSAGE_CHARS)
            .collect()
    }

    pub(crate) fn to_error(&self, kind: StepErrorKind, doing: &str) -> StepWorkerError {
        StepWorkerError::new(
            kind,
            format!(
                "{doing}: {}: {} {}",
                self.name,
                ExitStatus::from_raw(self.output.status),
                self.message()
            ),
        )
    }
}
