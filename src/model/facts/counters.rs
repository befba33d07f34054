//! Kernel error counters: growth that the kernel log did not report is also an incident.
//!
//! In: readings. Out: histories of counters by subject, and incidents attributed like the log's.
//! The first reading is a baseline, not an incident. Does not judge whether something is bad.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::counters::{
    CounterDevice, CounterGrowth, CounterHistory, CounterKey, CounterReading, DISK_SEQUENCE,
    recorded_time,
};
use crate::facts::btrfs_members::AWAY;
use crate::facts::filesystem_homes::HOME;
use crate::facts::kernel_log::PendingIncident;
use crate::facts::kernel_log::second_witness::{Answer, may_refute};
use crate::facts::last_pass::{LAST_PASS, from_former, merged};
use crate::facts::md_slots::{LOST, digits};
use crate::facts::readings::Reading;
use crate::facts::{Facts, KnownVolume, Urgency};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{Subject, UnknownHealth};
use diskvitals_kernel_log::event::{
    Blame, Class, DamagedCopies, DeviceName, Event, Line, LineOrigin, MAX_LINE_BYTES,
};
use diskvitals_text::echo::truncate;

/// A volume has one ext4 or one XFS. Of every other source, a subject may have several counters: a
/// btrfs of each member, a drive of each path, partition in an array or PCI function. Values of two
/// of them must not be compared, so the file is part of the name.
fn series_name(reading: &CounterReading) -> String {
    match reading.source.as_str() {
        "ext4" | "xfs" => reading.source.clone(),
        source => format!("{source} {}", reading.file),
    }
}

#[derive(Clone, Debug, Default)]
pub struct Counters {
    histories: BTreeMap<CounterKey, Arc<CounterHistory>>,
    /// Those that may refute a record. None: in the last reading; otherwise the first that lacked it.
    presence: BTreeMap<CounterKey, Option<Timestamp>>,
    read_at: Option<Timestamp>,
    /// An earlier run has read them.
    restored: bool,
    /// Why the last reading failed, and when.
    error: Option<(Timestamp, String)>,
}

impl Counters {
    pub fn iter(&self) -> impl Iterator<Item = (&CounterKey, &Arc<CounterHistory>)> + Clone {
        self.histories.iter()
    }

    /// Restores the counters from before a restart, so that growth since then is found.
    pub fn restore(&mut self, remembered: Vec<(CounterKey, CounterHistory)>) {
        self.restored |= !remembered.is_empty();
        // The first version stored the counters of all owners of a source as one series.
        let of_one_owner =
            |name: &str| matches!(name, "ext4" | "xfs") || name.contains(char::is_whitespace);
        for (key, history) in remembered {
            let (key, history) = from_former(key, history);
            if key.1 == LAST_PASS {
                let note = merged(history, self.get(&key));
                self.histories.insert(key, Arc::new(note));
                continue;
            }
            // What was found before the store was read may be a copy.
            if key.1 == HOME {
                self.histories.insert(key, Arc::new(history));
                continue;
            }
            if !of_one_owner(&key.1) {
                continue;
            }
            let entry = self.histories.entry(key);
            entry.or_insert_with(|| Arc::new(history));
        }
    }

    /// Why no evidence comes from the counters: they have not been read once, in this run or an
    /// earlier one.
    pub(crate) fn unread_cause(&self) -> Option<UnknownHealth> {
        if self.read_at.is_some() || self.restored {
            return None;
        }
        Some(match &self.error {
            Some((_, error)) => UnknownHealth::failed(format!("error counters: {error}")),
            None => UnknownHealth::pending("the kernel's error counters have not been read yet"),
        })
    }

    pub(super) fn read_at(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// The reading that began at `since` or later.
    pub(super) fn read_since(&self, since: Timestamp) -> Reading {
        match &self.error {
            _ if self.read_at.is_some_and(|at| at >= since) => Reading::Made,
            Some((at, error)) if *at >= since => {
                Reading::Impossible(format!("the error counters could not be read: {error}"))
            }
            _ => Reading::Outstanding("the error counters have not been read again".to_owned()),
        }
    }

    /// Returns the growth since the previous reading; None if nothing changed.
    pub(super) fn record(
        &mut self,
        key: &CounterKey,
        reading: &CounterReading,
        at: Timestamp,
    ) -> Option<Vec<CounterGrowth>> {
        let known = self.histories.get(key);
        let mut history = known.map(|known| (**known).clone()).unwrap_or_default();
        // It is in the kernel's memory, and was read each time.
        let was_gone = self.presence.get(key).is_some_and(|gone| gone.is_some());
        if was_gone && reading.source == "scsi" {
            history.restart();
        }
        let growth = history.update(reading, at);
        if known.is_some_and(|known| **known == history) {
            return None;
        }
        self.histories.insert(key.clone(), Arc::new(history));
        Some(growth)
    }

    fn note_presence<'a>(&mut self, read: impl Iterator<Item = &'a CounterKey>, at: Timestamp) {
        let mut before = std::mem::take(&mut self.presence);
        for gone in before.values_mut() {
            gone.get_or_insert(at);
        }
        before.extend(read.filter(|key| may_refute(key)).map(|key| (key.clone(), None)));
        self.presence = before;
    }

    /// A series of this subject that has gone since then.
    pub(super) fn gone_since(&self, subject: &Subject, since: Timestamp) -> Option<&str> {
        let of_subject = self.presence.range((subject.clone(), String::new())..);
        let mut of_subject = of_subject.take_while(|((owner, _), _)| owner == subject);
        let gone = of_subject.find(|(_, gone)| gone.is_some_and(|gone| gone >= since));
        gone.map(|((_, series), _)| series.as_str())
    }

    pub(super) fn get(&self, key: &CounterKey) -> Option<&CounterHistory> {
        self.histories.get(key).map(Arc::as_ref)
    }

    pub(super) fn remove(&mut self, key: &CounterKey) {
        self.histories.remove(key);
    }

    /// Keeps something that is no counter of the kernel, until it is removed.
    pub(super) fn put(&mut self, key: CounterKey, note: CounterHistory) {
        if self.histories.get(&key).is_none_or(|known| **known != note) {
            self.histories.insert(key, Arc::new(note));
        }
    }

    /// What was read of another one is not its.
    pub(super) fn forget(&mut self, subject: &Subject) {
        self.histories.retain(|(of, _), _| of != subject);
        self.presence.retain(|(of, _), _| of != subject);
    }

    /// Above this number, the notes of this name go that are not `kept`.
    pub(super) fn limit_notes(
        &mut self,
        name: &str,
        limit: usize,
        is_kept: impl Fn(&CounterKey) -> bool,
    ) {
        let notes = self.histories.keys().filter(|(_, series)| series == name);
        if notes.count() > limit {
            self.histories.retain(|key, _| key.1 != name || is_kept(key));
        }
    }

    /// The series of a subject whose name begins with `prefix`.
    pub(super) fn series<'a>(
        &'a self,
        subject: Subject,
        prefix: &'static str,
    ) -> impl Iterator<Item = (&'a str, &'a CounterHistory)> + use<'a> {
        self.histories
            .range((subject.clone(), prefix.to_owned())..)
            .take_while(move |((owner, series), _)| *owner == subject && series.starts_with(prefix))
            .map(|((_, series), history)| (series.as_str(), history.as_ref()))
    }
}

impl Facts {
    /// Whether the counters are to be read soon.
    pub fn take_counters_request(&mut self) -> bool {
        std::mem::take(&mut self.are_counters_due)
    }

    pub(super) fn apply_counters(
        &mut self,
        seen: Observation<Vec<CounterReading>>,
        now: Timestamp,
    ) -> Urgency {
        let (at, readings) = match seen {
            Observation::Ok { at, value } => (at, value),
            Observation::Failed { at, error } => {
                let before = self.counters.error.as_ref().map(|(_, error)| error);
                let is_new = before != Some(&error);
                self.counters.error = Some((at, error));
                return match is_new && self.counters.unread_cause().is_some() {
                    true => Urgency::Immediate,
                    false => Urgency::Nothing,
                };
            }
            Observation::Unavailable => return Urgency::Nothing,
        };
        self.counters.error = None;
        self.note_counters_read(at);
        let before = self.counters.read_at.replace(at);
        // The first reading is evidence for every drive, also without a counter.
        let mut change = match before {
            None => Urgency::Immediate,
            Some(_) => Urgency::Nothing,
        };
        let mut read = Vec::new();
        for reading in &readings {
            if let ("ext4", CounterDevice::Block(name), Some(errors)) =
                (reading.source.as_str(), &reading.device, reading.values.get("errors_count"))
            {
                self.request_changed_ext_superblock(name, *errors);
            }
            let Some(subject) = self.subject_of(reading) else {
                continue;
            };
            let key = (subject, series_name(reading));
            let is_first = !self.counters.histories.contains_key(&key);
            let reading = &*self.links.compare(&key, reading, self.counters.get(&key), now);
            // It was read after `at`: a record of meanwhile may have moved it.
            let growths = self.counters.record(&key, reading, now);
            let mut grown: Vec<String> = Vec::new();
            grown.extend(growths.iter().flatten().map(|growth| growth.name.clone()));
            let is_from_before = is_first && keeps_its_counts(reading);
            if is_from_before {
                let counted = reading.values.iter().filter(|(_, value)| **value > 0);
                grown.extend(counted.map(|(name, _)| name.clone()));
            }
            let counted_last = recorded_time(&reading.details, "last_error_time");
            let counted_last = counted_last.filter(|_| is_from_before);
            let counted_last = counted_last.map(|wall| self.steady_time(wall));
            read.push(Answer { key: key.clone(), grown, is_from_before, counted_last });
            let Some(mut growths) = growths else {
                continue;
            };
            change = Urgency::Immediate;
            if is_first {
                growths.extend(sick_at_first_sight(reading, at));
            }
            let from = before.unwrap_or(at);
            for event in growths.iter().filter_map(|growth| incident_from_growth(reading, growth)) {
                self.defer(PendingIncident::Growth {
                    subject: key.0.clone(),
                    event: Box::new(event),
                    from,
                    since: now,
                });
            }
        }
        if change == Urgency::Immediate {
            self.record_scrubs();
        }
        self.record_btrfs_passes(&readings, at);
        self.counters.note_presence(read.iter().map(|answer| &answer.key), at);
        change.max(self.compare_with_log(&read, before, at))
    }

    /// The subject is the volume for a filesystem's counters, the drive for a device's. An array's
    /// own counters have none: its layer state reports them.
    fn subject_of(&self, reading: &CounterReading) -> Option<Subject> {
        let device = log_device(&reading.device);
        let source = reading.source.as_str();
        if matches!(source, "ext4" | "xfs" | "btrfs" | "btrfs-scrub") {
            let DeviceName::Block(name) = &device else {
                return None;
            };
            let inventory = self.inventory()?;
            let on = self.volumes_on(inventory.devices.get(name), std::iter::once(&device), None);
            return on.into_iter().next();
        }
        let at = self.inventory.at()?;
        self.drive_by_name(&device, at).cloned().map(Subject::Drive)
    }

    /// Drops the counters of subjects that were found to be absent.
    pub(super) fn forget_counters(&mut self) {
        if !self.settled() || self.inventory.value().is_none() || self.mounts.value().is_none() {
            return;
        }
        let arrays = self.known_arrays();
        let (drives, volumes) = (&self.drives, &self.volumes);
        self.counters.histories.retain(|(subject, series), _| match subject {
            _ if series.starts_with(AWAY) || series == HOME || series == LAST_PASS => true,
            Subject::Device(uuid) if series.starts_with(LOST) => arrays.contains(&digits(uuid)),
            Subject::Drive(id) => drives.contains_key(id),
            Subject::Volume(id) => volumes.contains_key(id),
            Subject::Device(_) | Subject::Source(_) => false,
        });
        let histories = &self.counters.histories;
        self.counters.presence.retain(|key, _| histories.contains_key(key));
        self.links.retain(|key| histories.contains_key(key));
    }

    /// The counters of this volume's ext4 or XFS (`source`).
    pub(crate) fn filesystem_counters(
        &self,
        known: &KnownVolume,
        source: &str,
    ) -> Option<&CounterHistory> {
        self.counters
            .histories
            .get(&(Subject::Volume(known.facts.id.clone()), source.to_owned()))
            .map(Arc::as_ref)
    }
}

/// Its counts are on the disk: what the first reading finds may be of a record before it.
fn keeps_its_counts(reading: &CounterReading) -> bool {
    matches!(reading.source.as_str(), "ext4" | "btrfs")
}

/// What XFS has found to be wrong is evidence also when it found it before the first reading, and it
/// forgets it at an unmount (xfs_unmountfs()): from then on only the incident is left.
fn sick_at_first_sight(
    reading: &CounterReading,
    at: Timestamp,
) -> impl Iterator<Item = CounterGrowth> {
    let is_xfs = reading.source == "xfs";
    let is_sick =
        move |(name, value): &(&String, &u64)| is_xfs && name.starts_with("sick_") && **value > 0;
    let values = reading.values.iter().filter(is_sick);
    values.map(move |(name, value)| CounterGrowth {
        name: name.clone(),
        from: *value,
        to: *value,
        at,
    })
}

/// The incident that growth of this counter means. None: nothing adverse, or its state is judged
/// instead.
///
/// SCSI's ioerr_cnt counts every command that ended with an error, also those that a drive does not
/// support (drivers/scsi/scsi_lib.c): no incident. Correctable PCIe errors were corrected by the
/// link itself.
fn incident_from_growth(reading: &CounterReading, growth: &CounterGrowth) -> Option<Event> {
    let class = match (reading.source.as_str(), growth.name.as_str()) {
        ("scsi", "iotmo_cnt") => Class::Timeout,
        ("ext4", "errors_count") => Class::FsError,
        ("xfs", name) if name.starts_with("sick_") => Class::FsCorruption,
        ("btrfs", "write_errs" | "read_errs" | "flush_errs") => Class::FsError,
        ("btrfs", "corruption_errs" | "generation_errs") => Class::FsCorruption,
        ("md", "errors") => Class::Io,
        // The totals; each kind has another counter.
        ("aer", "fatal.TOTAL_ERR_FATAL" | "nonfatal.TOTAL_ERR_NONFATAL") => Class::Transport,
        _ => return None,
    };
    let damaged = match (reading.source.as_str(), class) {
        ("btrfs", _) if growth.name == "generation_errs" => DamagedCopies::ONE_OF_METADATA,
        // Read errors that md corrected by writing (fix_read_error(), drivers/md/raid1.c).
        ("md", _) => DamagedCopies::NONE,
        // Repaired from another copy if there is one: only the log reports a failed repair.
        ("btrfs", Class::FsCorruption) => DamagedCopies::ONE,
        _ => DamagedCopies::ALL,
    };
    let (file, name) = (&reading.file, &growth.name);
    let mut text = match growth.amount() {
        0 => format!("{file}: {name} is {}", growth.to),
        _ => format!("{file}: {name} grew from {} to {}", growth.from, growth.to),
    };
    for (name, value) in reading.details.iter().filter(|(name, _)| *name != DISK_SEQUENCE) {
        text.push_str(&format!(", {name} {value}"));
    }
    let text = truncate(&text, MAX_LINE_BYTES);
    let line = Line { time: growth.at, text, origin: LineOrigin::Counter };
    Some(Event {
        blame: if class == Class::Transport { Blame::No } else { Blame::Unclear },
        damaged,
        ..Event::without_log_record(
            "counter",
            class,
            log_device(&reading.device),
            growth.amount().max(1),
            line,
        )
    })
}

/// The name that the kernel log uses.
fn log_device(counted: &CounterDevice) -> DeviceName {
    match counted {
        CounterDevice::Block(name) => DeviceName::Block(name.clone()),
        CounterDevice::Nvme(name) => DeviceName::Nvme(name.clone()),
        CounterDevice::Pci(address) => DeviceName::Pci(address.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::source_update::{SourceStatus, SourceUpdate};
    use diskvitals_finding::ids::DriveId;
    use diskvitals_finding::source::Source;
    use diskvitals_kernel_log::event::{Batch, Cursor};

    fn reading(of: CounterDevice, source: &str, name: &str, value: u64) -> CounterReading {
        CounterReading {
            device: of,
            source: source.into(),
            file: format!("/sys/{source}"),
            values: BTreeMap::from([(name.into(), value)]),
            details: BTreeMap::new(),
        }
    }

    fn plain() -> TestHost {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .uuid("sda", "u")
            .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.read_all(0);
        host
    }

    fn read(host: &mut TestHost, name: &str, value: u64, second: i64) {
        let sda = || CounterDevice::Block("sda".into());
        let source = if name == "errors_count" { "ext4" } else { "scsi" };
        let seen = Observation::ok(at(second), vec![reading(sda(), source, name, value)]);
        host.apply(SourceUpdate::Counters(seen), second);
        // Anything that comes later.
        host.apply(
            SourceUpdate::Source {
                source: Source::Udev,
                status: SourceStatus::Active(String::new()),
            },
            second + 5,
        );
    }

    fn incidents(host: &TestHost, subject: &Subject, class: Class) -> Option<u64> {
        host.facts.errors(subject)?.get(class).map(|tally| tally.incidents)
    }

    #[test]
    fn counter_growth_is_an_incident_and_the_first_reading_is_a_baseline() {
        let mut host = plain();
        let data = Subject::Volume(volume("fs:u"));
        read(&mut host, "errors_count", 7, 10);
        assert_eq!(incidents(&host, &data, Class::FsError), None);
        read(&mut host, "errors_count", 9, 70);
        assert_eq!(incidents(&host, &data, Class::FsError), Some(2));
        let first = &host.facts.errors(&data).unwrap().get(Class::FsError).unwrap().first;
        assert_eq!(
            (first.origin, first.text.as_str()),
            (LineOrigin::Counter, "/sys/ext4: errors_count grew from 7 to 9")
        );
        read(&mut host, "errors_count", 0, 130);
        read(&mut host, "errors_count", 0, 190);
        assert_eq!(
            incidents(&host, &data, Class::FsError),
            Some(2),
            "checked clean: the counter begins anew"
        );
        let drive = Subject::Drive(DriveId::new("A"));
        read(&mut host, "iotmo_cnt", 1, 200);
        read(&mut host, "iotmo_cnt", 2, 260);
        read(&mut host, "ioerr_cnt", 1, 270);
        read(&mut host, "ioerr_cnt", 5, 330);
        assert_eq!(
            (incidents(&host, &drive, Class::Timeout), incidents(&host, &drive, Class::Io)),
            (Some(1), None)
        );
    }

    #[test]
    fn counters_of_two_owners_of_one_drive_are_not_compared_with_each_other() {
        let mut host = plain();
        let drive = Subject::Drive(DriveId::new("A"));
        let member = |array: &str, partition: &str, errors: u64| CounterReading {
            file: format!("/sys/block/{array}/md/dev-{partition}/errors"),
            ..reading(CounterDevice::Block("sda".into()), "md", "errors", errors)
        };
        for (second, of_the_second) in [(10, 0), (70, 0), (130, 2)] {
            let readings = vec![member("md0", "sda1", 5), member("md1", "sda2", of_the_second)];
            host.apply(SourceUpdate::Counters(Observation::ok(at(second), readings)), second);
            host.apply(
                SourceUpdate::Source {
                    source: Source::Udev,
                    status: SourceStatus::Active(String::new()),
                },
                second + 5,
            );
            let expected = (of_the_second > 0).then_some(of_the_second);
            assert_eq!(incidents(&host, &drive, Class::Io), expected, "{second} s");
        }
    }

    #[test]
    fn growth_that_the_kernel_log_reported_is_not_counted_again() {
        let mut host = plain();
        let data = Subject::Volume(volume("fs:u"));
        read(&mut host, "errors_count", 0, 10);
        let cursor = Cursor { boot_id: "b".into(), counted_to: Some(1), reread_from: 2, lost: 0 };
        let events = vec![event(Class::FsCorruption, "sda", at(40), &[])];
        host.apply(
            SourceUpdate::KernelLog(Batch {
                cursor,
                events,
                name_assignments: Vec::new(),
                full_reads: Vec::new(),
                is_backlog: false,
            }),
            40,
        );
        read(&mut host, "errors_count", 1, 70);
        assert_eq!(
            (incidents(&host, &data, Class::FsError), incidents(&host, &data, Class::FsCorruption)),
            (None, Some(1))
        );
    }

    #[test]
    fn a_failed_reading_changes_nothing() {
        let mut host = plain();
        read(&mut host, "errors_count", 3, 10);
        let before = host.facts.counters.histories.clone();
        assert_eq!(
            host.apply(SourceUpdate::Counters(Observation::failed(at(20), "no")), 20),
            Urgency::Nothing
        );
        assert_eq!(host.facts.counters.histories, before);
    }
}
