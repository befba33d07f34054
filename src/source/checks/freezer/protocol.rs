//! What daemon and freezer say to each other: one order, and then what comes of it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::source::checks::freezer::FreezeRequest;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum FreezerRequest {
    /// The first word. `intents`: where notes are kept, as the host names it.
    Freeze {
        order: FreezeRequest,
        intents: PathBuf,
    },
    /// The second word; the end of the pipe says the same.
    Thaw,
    /// The only word: thaw what notes of dead freezers say; `only` of the one of this name.
    Repair {
        intents: PathBuf,
        only: Option<String>,
    },
    /// The only word: resume what notes of dead lvm processes say; `forget` them then.
    Resume { intents: PathBuf, forget: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FreezerEvent {
    /// All is ready; FIFREEZE is called next, which may take as long as it likes.
    AboutToFreeze,
    Frozen {
        freeze_duration: Duration,
    },
    /// `early`: why, where it was not for being told.
    Thawed {
        held: Duration,
        freeze_duration: Duration,
        early: Option<String>,
        /// For its limit.
        late: bool,
    },
    /// Nothing is frozen: it will not be, somebody else holds it, or it did not work.
    Refused {
        why: String,
    },
    AlreadyFrozen,
    Failed {
        why: String,
    },
    Repaired(RepairResult),
    Resumed(ResumeResult),
}

/// What came of looking for what was left frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairResult {
    /// For each note that something was done about, or that could not be helped.
    pub lines: Vec<String>,
    /// Something may be frozen still.
    pub maybe_frozen: bool,
}

/// What came of looking for volumes that were left suspended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeResult {
    /// For each device that something was done about, or that could not be helped.
    pub lines: Vec<String>,
    /// There were notes of processes that have ended.
    pub had_intents: bool,
    /// One is still at work.
    pub still_running: bool,
}
