//! Programs that steps need: found at the usual places, run to their end by `host::exec`.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::attach::step::Trouble;
use crate::attach::worker::failure::Failure;
use crate::host::exec;
use crate::host::exec::{Exec, Output};

/// Where distributions put them.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// lvm's list of thousands of volumes; everything else is far below.
const MOST_OUTPUT: usize = 16 << 20;
/// Of what a program complains about, so much goes into a message.
const MOST_SAID: usize = 600;

/// Absolute, of a regular file that can be run.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let found = PLACES
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(runs);
    found.ok_or_else(|| {
        Failure::new(
            Trouble::Unsupported,
            format!(
                "{name} is not installed (looked for in {})",
                PLACES.join(", ")
            ),
        )
    })
}

/// What a program left.
#[derive(Debug)]
pub struct Ran {
    name: String,
    pub output: Output,
}

/// `timeout`: then it is killed. One runtime a run: this process waits for nothing else meanwhile.
pub fn run(name: &str, args: &[String], timeout: Duration) -> Result<Ran, Failure> {
    let exec = Exec {
        program: find(name)?,
        args: args.to_vec(),
        stdin: Vec::new(),
        timeout,
        max_output: MOST_OUTPUT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|error| Failure::io(format!("preparing to run {name}"), error))?;
    let output = runtime
        .block_on(exec::run(&exec))
        .map_err(|error| Failure::because(Trouble::Failed, format!("running {name}"), error))?;
    Ok(Ran {
        name: name.to_owned(),
        output,
    })
}

impl Ran {
    /// None where a signal ended it.
    pub fn code(&self) -> Option<i32> {
        ExitStatus::from_raw(self.output.status).code()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What it complained of, as one line.
    pub fn said(&self) -> String {
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
            .take(MOST_SAID)
            .collect()
    }

    pub fn failure(&self, kind: Trouble, doing: &str) -> Failure {
        Failure::new(
            kind,
            format!(
                "{doing}: {}: {} {}",
                self.name,
                ExitStatus::from_raw(self.output.status),
                self.said()
            ),
        )
    }
}
