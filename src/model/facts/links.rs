//! Links and paths, each compared with the best that the drive had in the same place.
//!
//! In: readings of the kernel's counters. Out: the same readings with the best values so far, in how
//! many of them in a row the drive worked over less, and what SAS phys counted in a day. These are kept
//! like counters, by drive and place. Does not judge whether something is bad.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::counters::{CounterHistory, CounterKey, CounterReading, DISK_SEQUENCE};
use crate::drive::{FlashHealth, Transport, UFS, UFS_LIFE_TIME, UFS_PRE_EOL};
use crate::facts::{Facts, KnownDrive};
use crate::link::{
    COMPLETED, DriveLink, IN_FLIGHT, LANES, NVME_PATHS, PATHS, PCIE_LINK, PHY_ERRORS, RATE,
    SAS_LINK, SHELF_LANES, best, in_a_day, low,
};
use diskvitals_finding::Subject;

/// Where the count of low readings ends: more of them mean nothing more.
pub(crate) const MOST_LOW: u64 = 10;
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Readings of a day that a count must have grown in: a plug or a reset is one.
const LEAST_RISES: u32 = 3;
/// After so long without a reading, while another place of the drive has some, it is no longer there.
const GONE_AFTER: SignedDuration = SignedDuration::from_hours(3);

/// What is known of links in this run only.
#[derive(Clone, Debug, Default)]
pub struct LinkWatch {
    read_at: BTreeMap<CounterKey, Timestamp>,
    /// What the drive had read and written at the last reading.
    completed: BTreeMap<CounterKey, u64>,
    days: BTreeMap<CounterKey, Day>,
}

/// The counters of a SAS link since a time at which nothing was plugged.
#[derive(Clone, Debug)]
struct Day {
    since: Timestamp,
    sequence: Option<String>,
    first: BTreeMap<&'static str, u64>,
    last: BTreeMap<&'static str, u64>,
    rises: BTreeMap<&'static str, u32>,
}

impl LinkWatch {
    /// The reading as it is kept; `known`: what is kept so far.
    pub(super) fn compare<'a>(
        &mut self,
        key: &CounterKey,
        reading: &'a CounterReading,
        known: Option<&CounterHistory>,
        at: Timestamp,
    ) -> Cow<'a, CounterReading> {
        let source = reading.source.as_str();
        if !matches!(source, PCIE_LINK | SAS_LINK | NVME_PATHS) {
            return Cow::Borrowed(reading);
        }
        self.read_at.insert(key.clone(), at);
        let mut reading = reading.clone();
        let values = &mut reading.values;
        match source {
            PCIE_LINK => {
                let completed = values.remove(COMPLETED).unwrap_or(0);
                let is_busy = values.remove(IN_FLIGHT).is_some_and(|flying| flying > 0);
                let before = self.completed.insert(key.clone(), completed);
                let has_worked = before.is_some_and(|before| before != completed);
                compare(values, known, LANES, has_worked);
                // An idle link may run slower.
                compare(values, known, RATE, has_worked && is_busy);
            }
            SAS_LINK => {
                for what in [LANES, RATE, SHELF_LANES] {
                    compare(values, known, what, true);
                }
                let sequence = reading.details.get(DISK_SEQUENCE).cloned();
                self.count_a_day(key, &mut reading.values, sequence, at);
            }
            _ => compare(values, known, PATHS, true),
        }
        Cow::Owned(reading)
    }

    /// What is known of others is dropped.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&CounterKey) -> bool) {
        self.read_at.retain(|key, _| is_kept(key));
        self.completed.retain(|key, _| is_kept(key));
        self.days.retain(|key, _| is_kept(key));
    }

    fn count_a_day(
        &mut self,
        key: &CounterKey,
        values: &mut BTreeMap<String, u64>,
        sequence: Option<String>,
        at: Timestamp,
    ) {
        let of_phys = PHY_ERRORS.into_iter();
        let now: BTreeMap<&str, u64> =
            of_phys.filter_map(|name| Some((name, *values.get(name)?))).collect();
        let begun = || Day {
            since: at,
            sequence: sequence.clone(),
            first: now.clone(),
            last: now.clone(),
            rises: BTreeMap::new(),
        };
        let day = self.days.entry(key.clone()).or_insert_with(begun);
        let is_same = day.sequence == sequence
            && day.last.len() == now.len()
            && now.iter().all(|(name, value)| day.last.get(name).is_some_and(|last| last <= value));
        if !is_same {
            *day = begun();
            return;
        }
        for (name, value) in &now {
            if day.last.get(name) != Some(value) {
                *day.rises.entry(name).or_default() += 1;
            }
        }
        day.last.clone_from(&now);
        if at.duration_since(day.since) < DAY {
            return;
        }
        for (name, value) in &now {
            let grown = value - day.first.get(name).copied().unwrap_or(*value);
            let is_steady = day.rises.get(name).is_some_and(|rises| *rises >= LEAST_RISES);
            values.insert(in_a_day(name), if is_steady { grown } else { 0 });
        }
        *day = begun();
    }
}

/// Adds the best value so far and how often in a row it was not reached. A lower one that does not
/// count is left out, and so changes nothing.
fn compare(
    values: &mut BTreeMap<String, u64>,
    known: Option<&CounterHistory>,
    what: &str,
    counts: bool,
) {
    let Some(value) = values.get(what).copied() else {
        return;
    };
    let last = |name: &str| known.and_then(|known| known.last(name)).unwrap_or(0);
    let highest = last(&best(what)).max(value);
    let low_readings = match value < highest {
        false => 0,
        true if counts => (last(&low(what)) + 1).min(MOST_LOW),
        true => {
            values.remove(what);
            return;
        }
    };
    values.insert(best(what), highest);
    values.insert(low(what), low_readings);
}

impl Facts {
    /// The links and paths of a drive where it is now.
    pub(crate) fn links(&self, known: &KnownDrive) -> Vec<DriveLink> {
        let subject = Subject::Drive(known.facts.id.clone());
        let of_source = |source| self.links_of(&subject, source);
        [PCIE_LINK, SAS_LINK, NVME_PATHS].into_iter().flat_map(of_source).collect()
    }

    /// The paths to its namespaces. Every volume asks: a drive that is not NVMe has none.
    pub(crate) fn paths(&self, known: &KnownDrive) -> Vec<DriveLink> {
        match known.facts.transport {
            Transport::Nvme | Transport::NvmeFabrics => {
                self.links_of(&Subject::Drive(known.facts.id.clone()), NVME_PATHS)
            }
            _ => Vec::new(),
        }
    }

    fn links_of(&self, subject: &Subject, source: &'static str) -> Vec<DriveLink> {
        let read_at =
            |series: &str| self.links.read_at.get(&(subject.clone(), series.to_owned())).copied();
        let all = || self.counters.series(subject.clone(), source);
        let newest = all().filter_map(|(series, _)| read_at(series)).max();
        let is_there = |series: &str| {
            newest.is_none_or(|newest| {
                read_at(series).is_some_and(|at| newest.duration_since(at) < GONE_AFTER)
            })
        };
        let there = all().filter(|(series, _)| is_there(series));
        there.filter_map(|(series, history)| DriveLink::of_history(series, history)).collect()
    }

    /// What the flash of a drive reports of its wear.
    pub(crate) fn flash(&self, known: &KnownDrive) -> Option<FlashReport> {
        if let Some(health) = known.facts.flash {
            let folder = format!("/sys/block/{}/device", known.facts.name);
            return Some(FlashReport { health, folder, at: self.inventory.at()?, is_cached: true });
        }
        let subject = Subject::Drive(known.facts.id.clone());
        let (_, history) = self.counters.series(subject, UFS).next()?;
        let code = |name: &str| history.last(name).and_then(|code| u8::try_from(code).ok());
        let health = FlashHealth {
            life_time: UFS_LIFE_TIME.map(|name| code(name).unwrap_or(0)),
            pre_eol_info: code(UFS_PRE_EOL).unwrap_or(0),
        };
        let at = history.counters().map(|(_, counter)| counter.moved_at()).max()?;
        Some(FlashReport { health, folder: history.file.clone(), at, is_cached: false })
    }
}

/// A report, and where it was read.
pub(crate) struct FlashReport {
    pub health: FlashHealth,
    pub folder: String,
    /// When it was read, or when it last changed.
    pub at: Timestamp,
    /// The kernel read it when it initialized the card, and not again.
    pub is_cached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::CounterDevice;
    use crate::fixture::at;
    use crate::link::Compared;
    use diskvitals_finding::ids::DriveId;

    const HOUR: i64 = 3600;

    /// The history of one link after readings, each at an hour.
    fn history(source: &str, readings: &[&[(&str, u64)]]) -> CounterHistory {
        let key = (Subject::Drive(DriveId::new("A")), source.to_owned());
        let (mut watch, mut history) = (LinkWatch::default(), CounterHistory::default());
        for (hour, values) in (0..).zip(readings) {
            let reading = CounterReading {
                device: CounterDevice::Block("sda".into()),
                source: source.into(),
                file: "/sys/x".into(),
                values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
                details: BTreeMap::new(),
            };
            let kept = watch.compare(&key, &reading, Some(&history), at(hour * HOUR)).into_owned();
            history.update(&kept, at(hour * HOUR));
        }
        history
    }

    fn link(source: &str, readings: &[&[(&str, u64)]]) -> DriveLink {
        DriveLink::of_history(&format!("{source} /sys/x"), &history(source, readings)).unwrap()
    }

    fn low_of(compared: Option<Compared>) -> (u64, u64, u64) {
        compared.map(|it| (it.now, it.best, it.low_readings)).unwrap()
    }

    #[test]
    fn only_readings_between_which_the_drive_worked_count_as_low() {
        let best: &[(&str, u64)] = &[(LANES, 4), (RATE, 16_000), (COMPLETED, 1), (IN_FLIGHT, 1)];
        let worked: &[(&str, u64)] = &[(LANES, 2), (RATE, 8000), (COMPLETED, 2), (IN_FLIGHT, 1)];
        let rests: &[(&str, u64)] = &[(LANES, 2), (RATE, 8000), (COMPLETED, 2), (IN_FLIGHT, 0)];
        let idle: &[(&str, u64)] = &[(LANES, 4), (RATE, 2500), (COMPLETED, 3), (IN_FLIGHT, 0)];
        let narrow = link(PCIE_LINK, &[best, worked]);
        assert_eq!(low_of(narrow.lanes), (2, 4, 1));
        assert_eq!(low_of(narrow.rate), (8000, 16_000, 1));
        let resting = link(PCIE_LINK, &[best, worked, rests, rests]);
        assert_eq!((low_of(resting.lanes), low_of(resting.rate)), ((2, 4, 1), (8000, 16_000, 1)));
        let slower_while_idle = link(PCIE_LINK, &[best, idle, best, idle]);
        assert_eq!(low_of(slower_while_idle.rate), (16_000, 16_000, 0));
        let again = link(PCIE_LINK, &[best, worked, best]);
        assert_eq!((low_of(again.lanes), low_of(again.rate)), ((4, 4, 0), (16_000, 16_000, 0)));
    }

    #[test]
    fn the_first_reading_after_a_start_is_compared_with_the_best_of_before() {
        let mut kept = history(PCIE_LINK, &[&[(LANES, 4), (COMPLETED, 1)]]);
        let mut values = BTreeMap::from([(LANES.to_owned(), 2)]);
        compare(&mut values, Some(&kept), LANES, true);
        assert_eq!(values[&best(LANES)], 4);
        kept.restart();
        compare(&mut values, Some(&kept), LANES, true);
        assert_eq!(values[&best(LANES)], 4, "also of a disk that was plugged anew");
    }

    #[test]
    fn counts_of_a_phy_are_of_a_day_in_which_they_grew_several_times() {
        let name = PHY_ERRORS[0];
        let day = |count: &dyn Fn(u64) -> u64| {
            let values: Vec<Vec<(&str, u64)>> =
                (0..25).map(|hour| vec![(RATE, 12_000), (name, count(hour))]).collect();
            let readings: Vec<&[(&str, u64)]> = values.iter().map(Vec::as_slice).collect();
            link(SAS_LINK, &readings).errors_a_day
        };
        assert_eq!(day(&|hour| 100 + hour), [(name.to_owned(), 24)]);
        assert_eq!(day(&|_| 100), []);
        assert_eq!(day(&|hour| if hour < 9 { 100 } else { 900 }), [], "one plug");
        assert_eq!(day(&|hour| if hour < 9 { 100 + hour } else { hour }), [], "it was reset");
    }
}
