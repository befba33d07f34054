//! What the daemon and the helper that runs a checker tell each other, a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::model::check::Run;
use crate::source::checks::runner::RunOrder;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Open the devices, make the loops.
    Run(Box<RunOrder>),
    /// Begin.
    Go,
    /// Instead of a run: detach the loops that somebody killed has left.
    CleanUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Ready,
    Phase(String),
    /// The last word, also where it did not begin. A checker that does not go keeps the helper.
    Ended(Box<Run>),
    Cleaned(Vec<String>),
}
