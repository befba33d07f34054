//! The error history of one drive, volume or device, from the kernel log: one tally per class of
//! incident. Bounded and pure.
//!
//! In: events that were attributed to the subject. Out: counts, failed sectors and times for the
//! rules in `assess`. Kept in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{Blame, Class, DamagedCopies, Event, Line, Operation};

/// Incidents with a shorter gap between them are one episode: a flood is one episode, a retry an
/// hour later is another.
pub(crate) const EPISODE_GAP: Duration = Duration::from_secs(600);
/// The same sector failing again within this time is a retry of the same attempt (readahead, then
/// the read itself; retries of md and the drivers).
pub(crate) const RETRY_WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of episodes whose start is kept; the latest are kept.
const MAX_EPISODES: usize = 32;
/// Maximum number of failed sectors kept, the latest; further ones are only counted.
pub(crate) const MAX_FAILED_SECTORS: usize = 64;
/// Maximum number of sectors that are reported individually; more are a flood.
const MAX_SECTORS_AS_NEWS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorHistory {
    pub tallies: BTreeMap<Class, ErrorTally>,
}

/// All incidents of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTally {
    /// The highest blame of any incident.
    pub blame: Blame,
    pub incidents: u64,
    pub records: u64,
    /// Records that the kernel suppressed: the counts are too low by at least this number.
    pub suppressed: u64,
    /// Incidents that redundancy or the drive corrected.
    pub corrected: u64,
    pub first: Line,
    pub last: Line,
    /// Time of the last incident that was not corrected, and that no other copy may correct.
    pub last_uncorrected: Option<Timestamp>,
    /// Starts of episodes, latest last.
    pub episodes: Vec<Timestamp>,
    #[serde(rename = "places")]
    pub sectors: Vec<FailedSector>,
    /// Failures in other sectors than those in `sectors`, in the latest episode.
    #[serde(rename = "more_places")]
    pub more_sectors: u64,
    #[serde(default, skip_serializing_if = "SecondWitness::is_silent")]
    pub second_witness: SecondWitness,
}

/// What another kind of witness than the log says of the incidents of a tally: a counter that the same
/// errors move. In the order of what it proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondWitness {
    /// It was read at this time, and has not moved since before the first incident.
    Unmoved(Timestamp),
    /// There is none, or it has not answered since an incident.
    #[default]
    Silent,
    /// It has moved with an incident.
    Confirmed,
}

impl SecondWitness {
    fn is_silent(&self) -> bool {
        *self == SecondWitness::Silent
    }
}

/// A sector that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedSector {
    /// The device name in the record (`sda`, `sda1`).
    pub device: String,
    /// In units of 512 bytes, from the start of `device`.
    pub sector: u64,
    /// Attempts that failed in this sector; retries of one attempt count once.
    pub times: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    /// The failed operation was a read.
    #[serde(rename = "read", default)]
    pub is_read: bool,
}

impl ErrorHistory {
    /// Adds an event. True when the event adds a new class, sector or episode.
    pub fn add(&mut self, event: &Event) -> bool {
        match self.tallies.get_mut(&event.class) {
            Some(tally) => tally.add(event),
            // Later records of an incident whose start had another class or was pruned.
            None if event.count == 0 => false,
            None => {
                self.tallies.insert(event.class, ErrorTally::new(event));
                true
            }
        }
    }

    pub fn get(&self, class: Class) -> Option<&ErrorTally> {
        self.tallies.get(&class)
    }

    /// Number of incidents of all classes.
    pub fn incidents(&self) -> u64 {
        self.tallies.values().map(|tally| tally.incidents).fold(0, u64::saturating_add)
    }

    /// Time of the latest record of any class.
    pub fn last_seen(&self) -> Option<Timestamp> {
        self.tallies.values().map(|tally| tally.last.time).max()
    }

    /// Removes tallies whose last record is older than `since`; time alone ends no corruption, and repairs
    /// no array. True when one was removed.
    pub fn prune_before(&mut self, since: Timestamp) -> bool {
        let before = self.tallies.len();
        self.tallies.retain(|class, tally| {
            matches!(class, Class::FsCorruption | Class::ArrayState) || tally.last.time >= since
        });
        self.tallies.len() != before
    }

    /// Merges an older history of the same subject. `overlapping`: both counted the same records,
    /// so the one with more records includes the other. The same holds when both start with the
    /// same record.
    pub fn merge(&mut self, older: ErrorHistory, overlapping: bool) {
        for (class, old) in older.tallies {
            match self.tallies.get_mut(&class) {
                None => {
                    self.tallies.insert(class, old);
                }
                Some(tally) => tally.merge(old, overlapping),
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }
}

impl ErrorTally {
    fn new(event: &Event) -> ErrorTally {
        let mut tally = ErrorTally {
            blame: event.blame,
            incidents: 0,
            records: 0,
            suppressed: 0,
            corrected: 0,
            first: event.first.clone(),
            last: event.first.clone(),
            last_uncorrected: None,
            episodes: Vec::new(),
            sectors: Vec::new(),
            more_sectors: 0,
            second_witness: SecondWitness::default(),
        };
        tally.add(event);
        tally
    }

    fn add(&mut self, event: &Event) -> bool {
        let time = event.last.time.max(event.first.time);
        let mut new = event.blame > self.blame && event.count > 0;
        if event.count > 0 {
            self.blame = self.blame.max(event.blame);
            let quiet = |since: Timestamp| elapsed(since, event.first.time) >= EPISODE_GAP;
            if self.episodes.is_empty() || quiet(self.last.time) {
                self.episodes.push(event.first.time);
                let surplus = self.episodes.len().saturating_sub(MAX_EPISODES);
                self.episodes.drain(..surplus);
                self.more_sectors = 0;
                new = true;
            }
            if event.damaged == DamagedCopies::NONE {
                self.corrected = self.corrected.saturating_add(event.count);
            }
            if event.damaged.is_all() {
                if self.last_uncorrected.is_none() {
                    new = true;
                }
                self.last_uncorrected = self.last_uncorrected.max(Some(time));
            }
        }
        self.incidents = self.incidents.saturating_add(event.count);
        self.records = self.records.saturating_add(event.records);
        self.suppressed = self.suppressed.saturating_add(event.suppressed);
        for sector in &event.sectors {
            let read = event.operation == Some(Operation::Read);
            new |= self.add_sector(event.device.to_string(), *sector, event.first.time, time, read);
        }
        self.more_sectors = self.more_sectors.saturating_add(event.more_sectors);
        if event.first.time < self.first.time {
            self.first = event.first.clone();
        }
        if event.last.time >= self.last.time {
            self.last = event.last.clone();
        }
        new
    }

    fn add_sector(
        &mut self,
        device: String,
        sector: u64,
        first: Timestamp,
        last: Timestamp,
        read: bool,
    ) -> bool {
        if let Some(failed) = self
            .sectors
            .iter_mut()
            .find(|failed| failed.sector == sector && failed.device == device)
        {
            // Failures within the retry window are one attempt.
            let again = elapsed(failed.last, first) >= RETRY_WINDOW;
            failed.times = failed.times.saturating_add(u32::from(again));
            failed.last = failed.last.max(last);
            failed.is_read |= read;
            return again;
        }
        let full = self.sectors.len() >= MAX_FAILED_SECTORS;
        if full {
            // Recent failures matter: the sector with the oldest failure makes room.
            let oldest = self
                .sectors
                .iter()
                .enumerate()
                .min_by_key(|(_, failed)| failed.last)
                .map(|(at, _)| at);
            oldest.map(|at| self.sectors.remove(at));
            self.more_sectors = self.more_sectors.saturating_add(1);
        }
        self.sectors.push(FailedSector { device, sector, times: 1, first, last, is_read: read });
        // Failures in more sectors are a flood, which is reported rolled up.
        !full && self.sectors.len() <= MAX_SECTORS_AS_NEWS
    }

    fn merge(&mut self, old: ErrorTally, overlapping: bool) {
        if overlapping || old.first == self.first {
            if old.records > self.records {
                *self = old;
            }
            return;
        }
        self.blame = self.blame.max(old.blame);
        self.incidents = self.incidents.saturating_add(old.incidents);
        self.records = self.records.saturating_add(old.records);
        self.suppressed = self.suppressed.saturating_add(old.suppressed);
        self.corrected = self.corrected.saturating_add(old.corrected);
        self.last_uncorrected = self.last_uncorrected.max(old.last_uncorrected);
        // Nothing is known of the older ones where they alone were not confirmed.
        self.second_witness = self.second_witness.max(old.second_witness);
        if old.first.time < self.first.time {
            self.first = old.first;
        }
        if old.last.time > self.last.time {
            self.last = old.last;
        }
        self.episodes.extend(old.episodes);
        self.episodes.sort();
        self.episodes.dedup();
        let surplus = self.episodes.len().saturating_sub(MAX_EPISODES);
        self.episodes.drain(..surplus);
        for failed in old.sectors {
            let room = self.sectors.len() < MAX_FAILED_SECTORS;
            match self
                .sectors
                .iter_mut()
                .find(|known| known.sector == failed.sector && known.device == failed.device)
            {
                Some(known) => {
                    known.times = known.times.saturating_add(failed.times);
                    known.first = known.first.min(failed.first);
                    known.last = known.last.max(failed.last);
                }
                None if room => self.sectors.push(failed),
                None => self.more_sectors = self.more_sectors.saturating_add(1),
            }
        }
    }

    /// Episodes that began within `window` before the last record.
    pub fn episodes_within(&self, window: Duration) -> usize {
        self.episodes.iter().filter(|start| elapsed(**start, self.last.time) <= window).count()
    }

    /// Distinct sectors that failed within `window` before the last record.
    pub fn sectors_within(&self, window: Duration) -> u64 {
        let within = self
            .sectors
            .iter()
            .filter(|failed| elapsed(failed.last, self.last.time) <= window)
            .count() as u64;
        within.saturating_add(self.more_sectors)
    }

    /// The sector failed within `window` before the last record.
    pub fn is_recent(&self, failed: &FailedSector, window: Duration) -> bool {
        elapsed(failed.last, self.last.time) <= window
    }

    /// A sector that failed in more than one attempt within `window` before the last record.
    pub fn repeatedly_failed_sector(&self, window: Duration) -> Option<&FailedSector> {
        self.sectors
            .iter()
            .filter(|failed| elapsed(failed.last, self.last.time) <= window)
            .find(|failed| failed.times > 1)
    }
}

/// Zero when the clock was set back.
fn elapsed(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{at, event};

    #[test]
    fn a_retry_is_the_same_attempt_and_a_later_failure_there_is_another() {
        let mut history = ErrorHistory::default();
        assert!(history.add(&event(Class::Medium, "sda", at(0), &[2048])));
        assert!(!history.add(&event(Class::Medium, "sda", at(1), &[2048])));
        assert_eq!(history.tallies[&Class::Medium].repeatedly_failed_sector(Duration::MAX), None);
        assert!(history.add(&event(Class::Medium, "sda", at(60), &[2048])));
        let tally = &history.tallies[&Class::Medium];
        assert_eq!(
            tally
                .repeatedly_failed_sector(Duration::MAX)
                .map(|failed| (failed.sector, failed.times)),
            Some((2048, 2))
        );
        assert_eq!(
            (tally.incidents, tally.episodes.len(), tally.sectors_within(Duration::MAX)),
            (3, 1, 1)
        );
    }

    #[test]
    fn an_incident_after_a_gap_starts_a_new_episode() {
        let mut history = ErrorHistory::default();
        for second in [0, 5, 700, 701, 2000] {
            history.add(&event(Class::Timeout, "sda", at(second), &[]));
        }
        let tally = &history.tallies[&Class::Timeout];
        assert_eq!(tally.episodes, [at(0), at(700), at(2000)]);
        assert_eq!(tally.episodes_within(Duration::from_secs(1500)), 2);
    }

    #[test]
    fn later_records_of_an_incident_add_their_sector_and_no_incident() {
        let mut history = ErrorHistory::default();
        let mut more = event(Class::Medium, "sda", at(0), &[7]);
        more.count = 0;
        assert!(!history.add(&more));
        assert!(history.is_empty());
        history.add(&event(Class::Medium, "sda", at(0), &[]));
        history.add(&more);
        assert_eq!(
            (
                history.tallies[&Class::Medium].incidents,
                history.tallies[&Class::Medium].sectors.len()
            ),
            (1, 1)
        );
    }

    #[test]
    fn merged_histories_count_shared_incidents_once() {
        let (mut early, mut late) = (ErrorHistory::default(), ErrorHistory::default());
        early.add(&event(Class::Io, "sda", at(0), &[1]));
        late.add(&event(Class::Io, "sda", at(0), &[1]));
        late.add(&event(Class::Io, "sda", at(20), &[1, 2]));
        let mut joined = late.clone();
        joined.merge(early.clone(), false);
        assert_eq!(joined, late);
        let mut other = ErrorHistory::default();
        other.add(&event(Class::Io, "sda", at(9000), &[3]));
        other.merge(late, false);
        let tally = &other.tallies[&Class::Io];
        assert_eq!(
            (tally.incidents, tally.sectors.len(), tally.first.time, tally.last.time),
            (3, 3, at(0), at(9000))
        );
    }

    proptest! {
        #[test]
        fn counts_add_up_and_the_history_is_bounded(events in prop::collection::vec((0i64..100_000, 0u64..500, any::<bool>()), 0..400)) {
            let mut history = ErrorHistory::default();
            for (second, sector, corrected) in &events {
                history.add(&crate::event::Event { damaged: if *corrected { DamagedCopies::NONE } else { DamagedCopies::ALL }, ..event(Class::Medium, "sda", at(*second), &[*sector]) });
            }
            let Some(tally) = history.tallies.get(&Class::Medium) else { return Ok(()) };
            prop_assert_eq!(tally.incidents, events.len() as u64);
            prop_assert_eq!(tally.corrected, events.iter().filter(|(_, _, corrected)| *corrected).count() as u64);
            prop_assert!(tally.sectors.len() <= MAX_FAILED_SECTORS && tally.episodes.len() <= MAX_EPISODES);
            prop_assert!(tally.first.time <= tally.last.time);
            prop_assert!(history.tallies.len() == 1);
        }
    }
}
