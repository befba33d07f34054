//! Checks smartctl itself: the file exists, it starts, and its version writes JSON.
//!
//! In: its path. Out: its version, or the reason as text. The result is a state of this source,
//! never of a drive.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::context::USUAL_SMARTCTL;
use crate::smart::backend::{Backend, FileStamp};
use crate::smart::query;
use diskvitals_host::exec::{ExecError, UnkillableChild};
use diskvitals_smart::parse::{self, ParseError};

const TIMEOUT: Duration = Duration::from_secs(10);
const REMEDY: &str = "install smartmontools 7.0 or newer, or set smart.command";

#[derive(Debug)]
pub enum ToolCheck {
    /// The file has not changed since the last check.
    Unchanged,
    Ready {
        version: [u32; 2],
        stamp: FileStamp,
    },
    Unusable(String),
    Stuck(UnkillableChild),
}

/// `known`: the file that the last check found usable.
pub async fn check<W: Backend>(
    backend: W,
    program: PathBuf,
    known: Option<FileStamp>,
) -> ToolCheck {
    let Some(stamp) = backend.file_stamp(program.clone()).await else {
        let missing = match program == Path::new(USUAL_SMARTCTL) {
            true => format!("smartctl is not installed (no {USUAL_SMARTCTL})"),
            false => format!("{} does not exist", program.display()),
        };
        return ToolCheck::Unusable(format!("{missing}: {REMEDY}"));
    };
    if known == Some(stamp) {
        return ToolCheck::Unchanged;
    }
    let exec =
        query::smartctl_command(&program, vec!["-j".to_owned(), "--version".to_owned()], TIMEOUT);
    let output = match backend.run(exec).await {
        Ok(output) => output,
        Err(ExecError::Unkillable { child, .. }) => return ToolCheck::Stuck(child),
        Err(ExecError::Start { source, .. }) => {
            return ToolCheck::Unusable(format!(
                "starting {}: {source}: {REMEDY}",
                program.display()
            ));
        }
        Err(error) => return ToolCheck::Unusable(format!("asking for its version: {error}")),
    };
    match parse::version(&output.stdout) {
        Ok(version) => ToolCheck::Ready { version, stamp },
        Err(ParseError::TooOld([major, minor])) => ToolCheck::Unusable(format!(
            "{} is version {major}.{minor}: {REMEDY}",
            program.display()
        )),
        Err(_) => ToolCheck::Unusable(format!(
            "{} does not report its version{}: {REMEDY}",
            program.display(),
            output_error_suffix(&output)
        )),
    }
}

fn output_error_suffix(output: &diskvitals_host::exec::Output) -> String {
    query::check_output(output).map_or_else(|error| format!(" ({error})"), |()| String::new())
}
