//! How far a check has come.

use std::collections::BTreeMap;
use std::sync::Arc;

use diskvitals_finding::ids::CheckId;
use diskvitals_fscheck::{CheckState, FilesystemSignal, Run};

/// The current activity of a check, and its results so far.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskProgress {
    pub state: CheckState,
    pub runs: Vec<Arc<Run>>,
    pub signals: Vec<FilesystemSignal>,
}

/// The progress of every active check. The source adds and removes the entries, the tasks update
/// them.
pub type ProgressMap = BTreeMap<CheckId, TaskProgress>;

/// Whether `now` differs from `before` only in the phase of a run.
pub(crate) fn differs_only_in_phase(before: &TaskProgress, now: &TaskProgress) -> bool {
    let running = |progress: &TaskProgress| matches!(progress.state, CheckState::Running { .. });
    running(before) && running(now) && before.runs == now.runs && before.signals == now.signals
}
