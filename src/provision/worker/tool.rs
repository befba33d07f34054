//! The programs that steps need: found in the usual directories and run to their end by
//! `host::exec`.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::step::StepErrorKind;
use crate::worker::error::{StepWorkerError, io_error};
use diskvitals_host::exec;
use diskvitals_host::exec::{Exec, Output};

/// Where distributions install programs.
const SEARCH_PATH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Enough for lvm's list of thousands of volumes; all other output is much smaller.
const MAX_OUTPUT: usize = 16 << 20;
/// Maximum length of a program's error text in a message.
const MAX_MESSAGE_CHARS: usize = 600;

/// The absolute path of an executable regular file.
pub fn find(name: &str) -> Result<PathBuf, StepWorkerError> {
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let found = SEARCH_PATH.iter().map(|folder| Path::new(folder).join(name)).find(runs);
    found.ok_or_else(|| {
        let folders = SEARCH_PATH.join(", ");
        StepErrorKind::Unsupported.error(format!("{name} is not installed (searched {folders})"))
    })
}

/// Status and output of a program.
#[derive(Debug)]
pub struct ToolOutput {
    name: String,
    pub output: Output,
}

/// Runs a program, and kills it after `timeout`. Each run has its own runtime: this process waits
/// for nothing else.
pub fn run(name: &str, args: &[&str], timeout: Duration) -> Result<ToolOutput, StepWorkerError> {
    let exec = Exec {
        program: find(name)?,
        args: args.iter().map(|word| (*word).to_owned()).collect(),
        stdin: Vec::new(),
        timeout,
        max_output: MAX_OUTPUT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("preparing to run", &name))?;
    let output = runtime.block_on(exec::run(&exec)).map_err(|error| {
        StepWorkerError::with_source(StepErrorKind::Other, format!("running {name}"), error)
    })?;
    Ok(ToolOutput { name: name.to_owned(), output })
}

impl ToolOutput {
    /// None if a signal terminated the program.
    pub fn exit_code(&self) -> Option<i32> {
        ExitStatus::from_raw(self.output.status).code()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The program's error text as one line.
    pub fn message(&self) -> String {
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
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_MESSAGE_CHARS).collect()
    }

    pub fn require_success(&self, doing: &str) -> Result<(), StepWorkerError> {
        match self.exit_code() {
            Some(0) => Ok(()),
            _ => Err(self.to_error(StepErrorKind::Other, doing)),
        }
    }

    pub fn to_error(&self, kind: StepErrorKind, doing: &str) -> StepWorkerError {
        let (name, message) = (&self.name, self.message());
        let status = ExitStatus::from_raw(self.output.status);
        kind.error(format!("{doing}: {name}: {status} {message}"))
    }
}
