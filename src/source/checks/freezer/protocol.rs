//! The messages between the daemon and the freezer, as lines of JSON: one request, then the events
//! that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checks::freezer::FreezeRequest;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum FreezerRequest {
    /// The first request. `intents`: the folder of the intents, as a path on the host.
    Freeze { freeze: FreezeRequest, intents: PathBuf },
    /// The second request. The end of the pipe has the same meaning.
    Thaw,
    /// A single request: thaw the filesystems in the intents of dead freezers; `only`: the intent
    /// of this name.
    Repair { intents: PathBuf, only: Option<String> },
    /// A single request: resume the volumes in the intents of dead lvm processes; `forget`: remove
    /// these intents.
    Resume { intents: PathBuf, forget: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FreezerEvent {
    /// Everything is ready. FIFREEZE is called next, and may block for ever.
    AboutToFreeze,
    Frozen {
        freeze_duration: Duration,
    },
    /// `early`: why it was thawed without a request.
    Thawed {
        held: Duration,
        freeze_duration: Duration,
        early: Option<String>,
        /// The limit was reached.
        late: bool,
    },
    /// Nothing is frozen: the filesystem is refused, frozen by another program, or the freeze
    /// failed.
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

/// The result of thawing leftovers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairResult {
    /// One line for each intent that was handled, or could not be.
    pub lines: Vec<String>,
    /// A filesystem may still be frozen.
    pub maybe_frozen: bool,
}

/// The result of resuming suspended volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeResult {
    /// One line for each device that was handled, or could not be.
    pub lines: Vec<String>,
    /// There were intents of processes that have exited.
    pub had_intents: bool,
    /// A process with an intent is still running.
    pub still_running: bool,
}
