//! Disk I/O: since when each device has had requests in flight without completing one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::block::DiskStat;
use crate::model::dev::DevNo;
use crate::model::facts::drive_use::RECENT_WRITES;
use crate::model::facts::{Urgency, elapsed};
use crate::model::observation::Observation;

#[derive(Clone, Debug, Default)]
pub(crate) struct DiskIo {
    stats: Observation<Vec<DiskStat>>,
    progress: BTreeMap<DevNo, IoProgress>,
    /// Also of devices that were removed, while their last write is recent.
    writes: BTreeMap<DevNo, Writes>,
}

/// Written sectors of a device, and their last observed growth.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Writes {
    name: String,
    sectors: u64,
    /// With the line of /proc/diskstats.
    last: Option<(Timestamp, String)>,
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

    /// When the device with this name and number was last observed to be written to.
    pub(crate) fn last_write(&self, dev: DevNo, name: &str) -> Option<(Timestamp, &str)> {
        let known = self.writes.get(&dev).filter(|known| known.name == name)?;
        let (at, line) = known.last.as_ref()?;
        Some((*at, line))
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
            for stat in value {
                self.record_writes(stat, *at);
            }
            let is_recent = |known: &Writes| {
                let last = known.last.as_ref();
                last.is_some_and(|(last, _)| elapsed(*last, *at) <= RECENT_WRITES)
            };
            let progress = &self.progress;
            self.writes
                .retain(|dev, known| progress.contains_key(dev) || is_recent(known));
        }
        let failed = stats.error().is_some();
        self.stats = stats;
        if failed != had_failed || was_waiting || self.has_waiting_io() {
            Urgency::Immediate
        } else {
            Urgency::Nothing
        }
    }

    /// A lower count, or another name, is another device's.
    fn record_writes(&mut self, stat: &DiskStat, at: Timestamp) {
        let old = self.writes.remove(&stat.dev);
        let old = old.filter(|old| old.name == stat.name && old.sectors <= stat.sectors_written);
        let has_grown = old
            .as_ref()
            .is_some_and(|old| old.sectors < stat.sectors_written);
        let last = match has_grown {
            true => Some((at, stat.line.clone())),
            false => old.and_then(|old| old.last),
        };
        let writes = Writes {
            name: stat.name.clone(),
            sectors: stat.sectors_written,
            last,
        };
        self.writes.insert(stat.dev, writes);
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
