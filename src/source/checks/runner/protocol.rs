//! What the daemon and the helper that runs a checker tell each other, a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::model::check::Run;
use crate::source::checks::runner::RunRequest;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerRequest {
    /// Open the devices, make the loops.
    Run(Box<RunRequest>),
    /// Begin.
    Start,
    /// Instead of a run: detach the loops that somebody killed has left.
    DetachLoops,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerEvent {
    Ready,
    Phase(String),
    /// The last word, also where it did not begin. A checker that does not go keeps the helper.
    Finished(Box<Run>),
    LoopsDetached(Vec<String>),
}
