//! Disk I/O: since when each device has had requests in flight without completing one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::block::DiskStat;
use crate::model::dev::DevNo;
use crate::model::facts::Urgency;
use crate::model::observation::Observation;

#[derive(Clone, Debug, Default)]
pub(crate) struct DiskIo {
    stats: Observation<Vec<DiskStat>>,
    progress: BTreeMap<DevNo, IoProgress>,
}

/// When a device last completed a request while it had I/O in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IoProgress {
    pub completed: u64,
    /// Since when I/O has been in flight without a completion; otherwise None.
    pub waiting_since: Option<Timestamp>,
    /// The diskstats lines at the start of the wait and now.
    pub first_line: String,
    pub last_line: String,
}

impl DiskIo {
    pub(crate) fn stats(&self) -> &Observation<Vec<DiskStat>> {
        &self.stats
    }

    pub(crate) fn progress(&self, dev: DevNo) -> Option<&IoProgress> {
        self.progress.get(&dev)
    }

    pub(super) fn apply(&mut self, stats: Observation<Vec<DiskStat>>) -> Urgency {
        let was_waiting = self.has_waiting_io();
        let had_failed = self.stats.error().is_some();
        if let Observation::Ok { at, value } = &stats {
            let mut progress = BTreeMap::new();
            for stat in value {
                let old = self.progress.remove(&stat.dev);
                progress.insert(stat.dev, next_progress(old, stat, *at));
            }
            self.progress = progress;
        }
        let failed = stats.error().is_some();
        self.stats = stats;
        if failed != had_failed || was_waiting || self.has_waiting_io() {
            Urgency::Immediate
        } else {
            Urgency::Nothing
        }
    }

    fn has_waiting_io(&self) -> bool {
        let Some(at) = self.stats.at() else {
            return false;
        };
        self.progress
            .values()
            .any(|progress| progress.waiting_since.is_some_and(|since| since < at))
    }
}

/// A counter that differs in either direction has moved: a lower value is another device's with the
/// same number.
fn next_progress(old: Option<IoProgress>, stat: &DiskStat, at: Timestamp) -> IoProgress {
    let line = stat.line.clone();
    match old {
        Some(mut progress)
            if progress.completed == stat.completed
                && progress.waiting_since.is_some()
                && stat.in_flight > 0 =>
        {
            progress.last_line = line;
            progress
        }
        _ => IoProgress {
            completed: stat.completed,
            waiting_since: (stat.in_flight > 0).then_some(at),
            first_line: line.clone(),
            last_line: line,
        },
    }
}
