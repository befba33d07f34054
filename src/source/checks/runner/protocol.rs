//! The messages between the daemon and the helper that runs a checker, one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::checks::runner::RunRequest;
use diskvitals_fscheck::{Run, RunActivity};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerRequest {
    /// Open the devices, make the loops.
    Run(Box<RunRequest>),
    /// Start the checker.
    Start,
    /// Instead of a run: detach the loops that a killed helper left.
    DetachLoops,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerEvent {
    Ready,
    Activity(RunActivity),
    /// The last event, also when the checker did not start. A checker that does not exit keeps its
    /// helper alive.
    Finished(Box<Run>),
    LoopsDetached(Vec<String>),
}
