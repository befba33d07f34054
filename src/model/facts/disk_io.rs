//! Disk I/O: since when each device has had requests in flight without completing one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::DiskStat;
use crate::facts::Urgency;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::observation::Observation;
use diskvitals_text::duration::elapsed;

/// A pool that is in use writes far more often than once in this time.
pub(crate) const RECENT_WRITES: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Default)]
pub struct DiskIo {
    stats: Observation<Vec<DiskStat>>,
    progress: BTreeMap<DevNo, IoProgress>,
    /// The devices whose wait exceeded `WAIT_BEFORE_PROBE` at the last reading.
    newly_waiting: BTreeSet<DevNo>,
    /// Also of devices that were removed, while their last write is recent.
    writes: BTreeMap<DevNo, Writes>,
}

/// Written sectors of a device, and their last observed growth.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Writes {
    name: String,
    sectors: u64,
    /// With the line of /proc/diskstats.
    last: Option<(Timestamp, Arc<str>)>,
}

/// A volume whose device completes no I/O for this long is probed at once. A drive that is only slow
/// completes some.
pub const WAIT_BEFORE_PROBE: Duration = Duration::from_secs(5);

/// A drive that completed I/O within this time is in use.
const RECENT_IO: Duration = Duration::from_secs(60);

/// When a device last completed a request while it had I/O in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoProgress {
    pub completed: u64,
    /// When it was read first.
    since: Timestamp,
    /// When it was last seen to have completed some.
    completed_at: Option<Timestamp>,
    /// Since when I/O has been in flight without a completion; otherwise None.
    pub waiting_since: Option<Timestamp>,
    /// The diskstats lines at the start of the wait and now.
    pub first_line: Arc<str>,
    pub last_line: Arc<str>,
}

impl DiskIo {
    pub fn stats(&self) -> &Observation<Vec<DiskStat>> {
        &self.stats
    }

    pub fn progress(&self, dev: DevNo) -> Option<&IoProgress> {
        self.progress.get(&dev)
    }

    pub(crate) fn newly_waiting(&self) -> &BTreeSet<DevNo> {
        &self.newly_waiting
    }

    /// Whether the device has completed I/O of late, as of the last reading.
    pub(crate) fn has_recent_io(&self, dev: DevNo) -> bool {
        let progress = self.progress.get(&dev);
        let completed = progress.and_then(|progress| progress.completed_at);
        completed
            .zip(self.stats.at())
            .is_some_and(|(completed, now)| elapsed(completed, now) <= RECENT_IO)
    }

    /// Whether the device has completed nothing since then, and nothing for a minute, and has nothing to
    /// complete.
    pub(super) fn has_none_since(&self, dev: DevNo, since: Timestamp) -> bool {
        let (Observation::Ok { at, .. }, Some(progress)) = (&self.stats, self.progress.get(&dev))
        else {
            return false;
        };
        let quiet_from = progress.completed_at.unwrap_or(progress.since);
        quiet_from <= since
            && elapsed(quiet_from, *at) >= RECENT_IO
            && progress.waiting_since.is_none()
    }

    /// When the device with this name and number was last observed to be written to.
    pub fn last_write(&self, dev: DevNo, name: &str) -> Option<(Timestamp, &str)> {
        let known = self.writes.get(&dev).filter(|known| known.name == name)?;
        let (at, line) = known.last.as_ref()?;
        Some((*at, line))
    }

    pub(super) fn apply(&mut self, stats: Observation<Vec<DiskStat>>) -> Urgency {
        self.newly_waiting.clear();
        let was_waiting = self.has_waiting_io();
        let had_failed = self.stats.error().is_some();
        if let Observation::Ok { at, value } = &stats {
            let mut progress = BTreeMap::new();
            for stat in value {
                let old = self.progress.remove(&stat.dev);
                let progressed = next_progress(old, stat, *at);
                if progressed.waited_at(*at)
                    && !self.stats.at().is_some_and(|last| progressed.waited_at(last))
                {
                    self.newly_waiting.insert(stat.dev);
                }
                progress.insert(stat.dev, progressed);
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
            self.writes.retain(|dev, known| progress.contains_key(dev) || is_recent(known));
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
        let has_grown = old.as_ref().is_some_and(|old| old.sectors < stat.sectors_written);
        let last = match has_grown {
            true => Some((at, stat.line.clone())),
            false => old.and_then(|old| old.last),
        };
        let writes = Writes { name: stat.name.clone(), sectors: stat.sectors_written, last };
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

impl IoProgress {
    fn waited_at(&self, at: Timestamp) -> bool {
        self.waiting_since.is_some_and(|since| elapsed(since, at) >= WAIT_BEFORE_PROBE)
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
        old => IoProgress {
            completed: stat.completed,
            since: old.as_ref().map_or(at, |old| old.since),
            completed_at: match old {
                Some(old) if old.completed != stat.completed => Some(at),
                old => old.and_then(|old| old.completed_at),
            },
            waiting_since: (stat.in_flight > 0).then_some(at),
            first_line: line.clone(),
            last_line: line,
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::TestHost;

    fn host() -> TestHost {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .uuid("sda", "u")
            .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.read_all(0);
        host
    }

    #[test]
    fn the_mounts_of_a_device_without_completions_are_probed_once() {
        let mut host = host();
        let mut due = |completed, in_flight, second| {
            host.io("8:0", "sda", completed, in_flight, second);
            host.facts.newly_waiting_mounts().len()
        };
        assert_eq!(due(7, 1, 10), 0);
        assert_eq!(due(7, 1, 14), 0);
        assert_eq!(due(7, 1, 15), 1);
        assert_eq!(due(7, 1, 20), 0, "it is known to wait");
        assert_eq!(due(8, 1, 25), 0, "a slow drive completes some");
        assert_eq!(due(8, 1, 31), 1);
        assert_eq!(due(8, 0, 36), 0);
    }

    #[test]
    fn a_device_without_statistics_is_not_waited_for() {
        let mut host = host();
        host.inventory.devices.get_mut("sda").unwrap().iostats = false;
        host.scan(1);
        host.io("8:0", "sda", 7, 1, 10);
        host.io("8:0", "sda", 7, 1, 20);
        assert!(host.facts.newly_waiting_mounts().is_empty());
    }
}
