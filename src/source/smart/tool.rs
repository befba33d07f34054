//! Whether there is a smartctl that can be used: it is there, it starts, and it is of a version
//! that writes JSON.
//!
//! In: its path. Out: its version, or in words what is wrong with it. That is a state of this
//! source, never of a drive.

use std::path::PathBuf;
use std::time::Duration;

use crate::host::exec::{ExecError, Remains};
use crate::model::smart::parse::{self, ParseError};
use crate::source::smart::ask;
use crate::source::smart::world::{Stamp, World};

const TIMEOUT: Duration = Duration::from_secs(10);
const REMEDY: &str = "install smartmontools 7.0 or newer, or set smart.command";

#[derive(Debug)]
pub enum Checked {
    /// The same file as before.
    Same,
    Ready {
        version: [u32; 2],
        stamp: Stamp,
    },
    Unusable(String),
    Stuck(Remains),
}

/// `known`: the file that was found usable before.
pub async fn check<W: World>(world: W, program: PathBuf, known: Option<Stamp>) -> Checked {
    let Some(stamp) = world.stamp(program.clone()).await else {
        return Checked::Unusable(format!("{} is not there: {REMEDY}", program.display()));
    };
    if known == Some(stamp) {
        return Checked::Same;
    }
    let exec = ask::exec(
        &program,
        vec!["-j".to_owned(), "--version".to_owned()],
        TIMEOUT,
    );
    let output = match world.run(exec).await {
        Ok(output) => output,
        Err(ExecError::Unkillable { remains, .. }) => return Checked::Stuck(remains),
        Err(ExecError::Start { source, .. }) => {
            return Checked::Unusable(format!(
                "starting {}: {source}: {REMEDY}",
                program.display()
            ));
        }
        Err(error) => return Checked::Unusable(format!("asking for its version: {error}")),
    };
    match parse::version(&output.stdout) {
        Ok(version) => Checked::Ready { version, stamp },
        Err(ParseError::TooOld([major, minor])) => Checked::Unusable(format!(
            "{} is version {major}.{minor}: {REMEDY}",
            program.display()
        )),
        Err(_) => Checked::Unusable(format!(
            "{} does not tell its version{}: {REMEDY}",
            program.display(),
            complaint(&output)
        )),
    }
}

fn complaint(output: &crate::host::exec::Output) -> String {
    ask::unusable(output).map_or_else(String::new, |why| format!(" ({why})"))
}
