//! The status of each source, and since when it has not worked.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::source_update::SourceStatus;
use diskvitals_finding::source::Source;

#[derive(Clone, Debug, Default)]
pub struct SourceStates {
    /// Sources that have not reported yet are absent.
    states: BTreeMap<Source, SourceState>,
}

#[derive(Clone, Debug)]
pub struct SourceState {
    pub status: SourceStatus,
    /// Since when it has been down or limited, for whatever reasons; None: it is not.
    pub failing_since: Option<Timestamp>,
}

impl SourceStates {
    pub fn get(&self, source: Source) -> Option<&SourceState> {
        self.states.get(&source)
    }

    pub fn status(&self, source: Source) -> Option<&SourceStatus> {
        Some(&self.get(source)?.status)
    }

    pub(super) fn set(&mut self, source: Source, status: SourceStatus, now: Timestamp) {
        let fails = matches!(status, SourceStatus::Down(_) | SourceStatus::Limited(_));
        let before = self.get(source).and_then(|state| state.failing_since);
        let failing_since = fails.then(|| before.unwrap_or(now));
        self.states.insert(source, SourceState { status, failing_since });
    }
}
