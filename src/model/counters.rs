//! Error counters of the kernel besides its log: their history, and which of them have grown. Pure.
//!
//! In: readings. Out: growths with their times. A counter that decreased means another device, a
//! reload or a reset: its baseline starts again, without growth.
//!
//! How rules use it:
//!
//! - Keep one `CounterHistory` for each owner and `CounterReading::source`, and store it with the drive or volume (it is serde). The first reading after a start is then
//!   compared with the last one before it, so growth in between is observed.
//! - `history.update(&reading, at)` returns the growths of this reading. The first reading is a
//!   baseline without growth: an `errors_count` of last year is information, not an event.
//! - `history.counters()` are the histories of the single counters. `last_growth` and the total
//!   growth survive a reset (a reboot sets SCSI's counters to 0), so a rule by quiet time
//!   continues; `grown` counts from the baseline only.
//! - A `CounterHistory` changes only when a value changes: compare it before and after to decide
//!   whether to store it.
//! - A failed reading gives no `CounterReading`, so nothing changes. The same holds for a counter
//!   that is missing in a reading.
//! - A value may be a state and not a count (links, UFS): XFS's `sick_…` bits and btrfs's `missing` are 0 or 1.
//!   Setting one is growth, clearing it is a reset; `Counter::last` is the current state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_finding::Subject;

/// SCSI's `iotmo_cnt` of a disk of libata, which moves with every error that libata handles, and so
/// means no time-out there. It confirms what the log says of the disk.
pub const LIBATA_ERRORS: &str = "iotmo_cnt of libata";

/// The detail that tells a device from a former one of the same name: its number among all disks of
/// this boot (diskseq, Linux 5.15).
pub const DISK_SEQUENCE: &str = "diskseq";

/// The subject of the counters, and the name of their series (`series_name`).
pub type CounterKey = (Subject, String);

/// The owner of the counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum CounterDevice {
    /// A block device or a filesystem on it, by kernel name (`sda`, `dm-3`, `md0`).
    Block(String),
    /// An NVMe controller: `nvme0`.
    Nvme(String),
    /// A PCI function: `0000:03:00.0`.
    Pci(String),
}

/// The counters of one owner and one kind, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterReading {
    #[serde(rename = "of")]
    pub device: CounterDevice,
    /// `scsi`, `ext4`, `xfs`, `btrfs`, `btrfs-scrub`, `md`, `multipath`, `bcache`, `nvme`, `aer`,
    /// `pcie-link`, `sas-link`, `nvme-paths`, `ufs`.
    pub source: String,
    /// The file that was read, for evidence.
    pub file: String,
    /// By the kernel's own name (`ioerr_cnt`, `errors_count`, `write_errs`). XFS's sick bits are
    /// values too, one per bit.
    pub values: BTreeMap<String, u64>,
    /// Related details, verbatim, name and value (`first_error_time`, `last_error_func`).
    pub details: BTreeMap<String, String>,
}

/// One counter that was higher than in the previous reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterGrowth {
    /// The counter's name in `CounterReading::values`.
    pub name: String,
    pub from: u64,
    pub to: u64,
    /// When the higher value was read: the counter grew between the previous reading and then.
    pub at: Timestamp,
}

impl CounterGrowth {
    pub fn amount(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The detail of this name as a time of the wall clock (ext4: fs/ext4/sysfs.c).
pub(crate) fn recorded_time(details: &BTreeMap<String, String>, name: &str) -> Option<Timestamp> {
    let seconds = details.get(name)?.trim().parse().ok()?;
    Timestamp::from_second(seconds).ok().filter(|_| seconds > 0)
}

/// The history of one counter, of constant size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The value from which growth is counted: from the first reading, or the first one after a
    /// reset.
    pub baseline: u64,
    /// When the baseline was read.
    pub since: Timestamp,
    /// The newest value.
    pub last: u64,
    /// The growth since the baseline: `last - baseline`.
    pub grown: u64,
    /// The growth since the first reading, over all resets.
    #[serde(rename = "grown_ever")]
    pub total_growth: u64,
    /// When growth was first and last observed, over all resets.
    pub first_growth: Option<Timestamp>,
    pub last_growth: Option<Timestamp>,
    /// Readings that showed growth, over all resets.
    #[serde(rename = "growths")]
    pub growth_count: u32,
    /// Number of times that the counter decreased.
    pub resets: u32,
    #[serde(skip)]
    is_restarted: bool,
}

/// The history of the counters of one owner and source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterHistory {
    counters: BTreeMap<String, Counter>,
    /// `CounterReading::file` and `CounterReading::details` at the last growth, for evidence;
    /// before any growth, those of the first reading.
    pub file: String,
    pub details: BTreeMap<String, String>,
}

impl CounterHistory {
    /// A note without a counter.
    pub fn note<const N: usize>(
        file: String,
        details: [(&str, Option<String>); N],
    ) -> CounterHistory {
        let details = details.into_iter();
        CounterHistory {
            file,
            details: details.filter_map(|(name, text)| Some((name.to_owned(), text?))).collect(),
            ..CounterHistory::default()
        }
    }

    /// Compares `reading`, made at `at`, with the history, and adds it. Out: the growths, by name.
    ///
    /// `reading` must have the owner and source of this history; the caller keeps one history for
    /// each pair.
    pub fn update(&mut self, reading: &CounterReading, at: Timestamp) -> Vec<CounterGrowth> {
        let sequence = reading.details.get(DISK_SEQUENCE);
        let known = self.details.get(DISK_SEQUENCE);
        if known.is_some() && sequence.is_some() && known != sequence {
            self.restart();
        }
        let first = self.counters.is_empty();
        let mut growths = Vec::new();
        for (name, value) in &reading.values {
            match self.counters.get_mut(name) {
                Some(counter) => {
                    growths.extend(counter.update(*value, at).map(|from| CounterGrowth {
                        name: name.clone(),
                        from,
                        to: *value,
                        at,
                    }))
                }
                None => {
                    self.counters.insert(name.clone(), Counter::new(*value, at));
                }
            }
        }
        if first || !growths.is_empty() {
            self.file.clone_from(&reading.file);
            self.details.clone_from(&reading.details);
        } else if let Some(sequence) = sequence {
            self.details.insert(DISK_SEQUENCE.to_owned(), sequence.clone());
        }
        growths
    }

    /// The device is another one: the next reading is a new baseline.
    pub fn restart(&mut self) {
        self.counters.values_mut().for_each(|counter| counter.is_restarted = true);
    }

    /// The newest value of one counter.
    pub(crate) fn last(&self, name: &str) -> Option<u64> {
        self.counters.get(name).map(|counter| counter.last)
    }

    /// Sorted by name.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counter)> {
        self.counters.iter().map(|(name, counter)| (name.as_str(), counter))
    }
}

impl Counter {
    fn new(value: u64, at: Timestamp) -> Counter {
        Counter { baseline: value, since: at, last: value, ..Counter::default() }
    }

    /// When its value last changed, or was first read.
    pub(crate) fn moved_at(&self) -> Timestamp {
        self.last_growth.map_or(self.since, |grown| grown.max(self.since))
    }

    /// Out: the previous value, if the counter grew.
    fn update(&mut self, value: u64, at: Timestamp) -> Option<u64> {
        let before = std::mem::replace(&mut self.last, value);
        let is_restarted = std::mem::take(&mut self.is_restarted) || value < before;
        if is_restarted {
            (self.baseline, self.since, self.grown) = (value, at, 0);
            self.resets = self.resets.saturating_add(1);
        }
        if is_restarted || value == before {
            return None;
        }
        self.grown = value - self.baseline;
        self.total_growth = self.total_growth.saturating_add(value - before);
        self.first_growth.get_or_insert(at);
        self.last_growth = Some(at);
        self.growth_count = self.growth_count.saturating_add(1);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(values: &[(&str, u64)]) -> CounterReading {
        CounterReading {
            device: CounterDevice::Block("sda".into()),
            source: "scsi".into(),
            file: "/sys/block/sda/device".into(),
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            details: BTreeMap::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    #[test]
    fn the_first_reading_is_a_baseline_and_later_growth_is_reported() {
        let mut history = CounterHistory::default();
        assert_eq!(history.update(&reading(&[("errors_count", 41)]), at(0)), []);
        assert_eq!(history.update(&reading(&[("errors_count", 41)]), at(60)), []);
        let growths = history.update(&reading(&[("errors_count", 43)]), at(120));
        assert_eq!(
            growths,
            [CounterGrowth { name: "errors_count".into(), from: 41, to: 43, at: at(120) }]
        );
        let counter = &history.counters["errors_count"];
        assert_eq!(
            (counter.baseline, counter.since, counter.last, counter.grown),
            (41, at(0), 43, 2)
        );
        assert_eq!(
            (counter.first_growth, counter.last_growth, counter.growth_count),
            (Some(at(120)), Some(at(120)), 1)
        );
    }

    #[test]
    fn a_decreased_counter_gets_a_new_baseline_and_keeps_its_last_growth() {
        let mut history = CounterHistory::default();
        for (second, value) in [(0, 5), (60, 8)] {
            history.update(&reading(&[("ioerr_cnt", value)]), at(second));
        }
        assert_eq!(history.update(&reading(&[("ioerr_cnt", 2)]), at(120)), []);
        let counter = &history.counters["ioerr_cnt"];
        assert_eq!(
            (counter.baseline, counter.since, counter.grown, counter.resets),
            (2, at(120), 0, 1)
        );
        assert_eq!((counter.total_growth, counter.last_growth), (3, Some(at(60))));
    }

    #[test]
    fn growth_over_a_restart_of_the_daemon_is_seen() {
        let mut history = CounterHistory::default();
        history.update(&reading(&[("write_errs", 1)]), at(0));
        let stored = serde_json::to_string(&history).expect("stored");
        let mut history: CounterHistory = serde_json::from_str(&stored).expect("read back");
        assert_eq!(history.update(&reading(&[("write_errs", 4)]), at(600))[0].amount(), 3);
    }

    #[test]
    fn details_are_those_of_the_growth() {
        let mut history = CounterHistory::default();
        history.update(&reading(&[("errors_count", 0)]), at(0));
        let mut grown = reading(&[("errors_count", 1)]);
        grown.details.insert("last_error_func".into(), "ext4_lookup".into());
        history.update(&grown, at(60));
        history.update(&reading(&[("errors_count", 1)]), at(120));
        assert_eq!(history.details["last_error_func"], "ext4_lookup");
    }

    proptest! {
        #[test]
        fn growths_are_all_increments_and_resets_are_none(values in proptest::collection::vec(0u64..20, 1..40)) {
            let mut history = CounterHistory::default();
            let mut reported = 0;
            for (second, value) in (0..).zip(&values) {
                let growths = history.update(&reading(&[("n", *value)]), at(second));
                prop_assert!(growths.iter().all(|growth| growth.from < growth.to && growth.to == *value));
                reported += growths.iter().map(CounterGrowth::amount).sum::<u64>();
            }
            let increments: u64 = values.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).sum();
            let resets = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
            let counter = &history.counters["n"];
            prop_assert_eq!((reported, counter.total_growth), (increments, increments));
            prop_assert_eq!(counter.resets as usize, resets);
            prop_assert_eq!((counter.last, counter.grown), (values[values.len() - 1], counter.last - counter.baseline));
            prop_assert_eq!(counter.last_growth.is_some(), increments > 0);
        }

        #[test]
        fn a_missing_value_leaves_its_counter_unchanged(values in proptest::collection::vec(proptest::option::of(0u64..20), 1..40)) {
            let (mut history, mut only_read) = (CounterHistory::default(), CounterHistory::default());
            for (second, value) in (0..).zip(&values) {
                match value {
                    Some(value) => {
                        let read = reading(&[("n", *value)]);
                        prop_assert_eq!(history.update(&read, at(second)), only_read.update(&read, at(second)));
                    }
                    None => prop_assert_eq!(history.update(&reading(&[]), at(second)), []),
                }
            }
            prop_assert_eq!(history.counters.get("n"), only_read.counters.get("n"));
        }

        #[test]
        fn unchanged_values_do_not_change_the_history(values in proptest::collection::vec(any::<u64>(), 1..10)) {
            let mut history = CounterHistory::default();
            for (second, value) in (0..).zip(&values) {
                history.update(&reading(&[("n", *value)]), at(second));
            }
            let before = history.clone();
            history.update(&reading(&[("n", values[values.len() - 1])]), at(1000));
            prop_assert_eq!(history, before);
        }
    }
}
