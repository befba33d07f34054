//! The second witness of what the kernel's log says: a counter that the same error moves, in sysfs or
//! in the drive.
//!
//! In: incidents of the log, readings of counters, reports of drives. Out: `SecondWitness` of each
//! tally, and requests to read what may refute one. Only a counter that the kernel moves with every
//! such error refutes by standing still; all others confirm only, so that a silent one never makes a
//! dying drive milder. Does not judge.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::counters::{CounterHistory, LIBATA_ERRORS};
use crate::model::drive::{DriveFacts, Transport};
use crate::model::facts::counters::CounterKey;
use crate::model::facts::{Facts, Urgency};
use crate::model::finding::Subject;
use crate::model::ids::{DriveId, VolumeId};
use crate::model::kernel_log::error_history::{ErrorTally, SecondWitness};
use crate::model::kernel_log::event::{Class, Line, LineOrigin};
use crate::model::smart::history::{Metric, Series};

/// Less is needed for the counter of an error that has been logged; it is read after one second.
const COUNTED_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// An error is counted up to this long before it is logged, at the end of its recovery.
const LOGGED_AFTER: SignedDuration = SignedDuration::from_secs(5);
/// So long may the recovery of a command last that ends in the error handler: it is counted at its time-out, and
/// logged after aborts and resets.
const RECOVERED_AFTER: SignedDuration = SignedDuration::from_mins(3);
/// Without an answer for so long, the record is enough.
pub(crate) const NO_ANSWER_AFTER: Duration = Duration::from_secs(10);

/// What a drive counts of errors itself, and only of such.
const OF_DRIVES: [Metric; 8] = [
    Metric::Reallocated,
    Metric::Pending,
    Metric::OfflineUncorrectable,
    Metric::ReportedUncorrectable,
    Metric::LoggedErrors,
    Metric::MediaErrors,
    Metric::GrownDefects,
    Metric::UncorrectedErrors,
];

/// The counters of one series that were read.
pub(in crate::model::facts) struct Answer {
    pub key: CounterKey,
    /// Those that had moved.
    pub grown: Vec<String>,
    /// It is the first reading of counts that are on the disk: `grown` are those that are not 0.
    pub is_from_before: bool,
}

impl Facts {
    /// A new record: a counter may have moved just before it. Otherwise what can refute it is read.
    pub(super) fn ask_second_witness(&mut self, subject: &Subject, class: Class) {
        let Some(tally) = self.tally(subject, class) else {
            return;
        };
        if tally.second_witness == SecondWitness::Confirmed {
            return;
        }
        let since = |name: &str| {
            let is_of_handler = matches!(name, LIBATA_ERRORS | "iotmo_cnt");
            let logged_after = match is_of_handler && class != Class::Medium {
                true => RECOVERED_AFTER,
                false => LOGGED_AFTER,
            };
            tally.last.time.saturating_sub(logged_after).ok()
        };
        let has_moved = self.counters.series(subject.clone(), "").any(|(series, history)| {
            let mut counters = history.counters();
            counters.any(|(name, counter)| {
                self.counts(subject, (series, history), name, class)
                    && counter.last_growth.is_some_and(|at| Some(at) >= since(name))
            })
        });
        if has_moved {
            self.set_second_witness(subject, class, SecondWitness::Confirmed);
        } else if let Subject::Drive(drive) = subject
            && self.is_refuted_by_drive(drive, class, tally)
        {
            self.smart_due.insert(drive.clone());
        }
    }

    /// `read`: what answered at `at`; `before`: when they were last read.
    pub(in crate::model::facts) fn compare_with_log(
        &mut self,
        read: &[Answer],
        before: Option<Timestamp>,
        at: Timestamp,
    ) -> Urgency {
        let counted_by = |time: Timestamp| time.saturating_add(COUNTED_AFTER).unwrap_or(time);
        // No earlier reading has answered for a record of this time.
        let is_new = |time: Timestamp| before.is_none_or(|before| counted_by(time) > before);
        let mut changes = Vec::new();
        for answer in read {
            let (subject, series) = &answer.key;
            let Some(errors) = self.errors(subject) else {
                continue;
            };
            let history = self.counters.series(subject.clone(), "");
            let Some((_, history)) = history.into_iter().find(|(name, _)| name == series) else {
                continue;
            };
            let series = (series.as_str(), history);
            for (class, tally) in &errors.tallies {
                let is_of_record = answer.is_from_before || is_new(tally.last.time);
                let has_moved =
                    answer.grown.iter().any(|name| self.counts(subject, series, name, *class));
                let witness = match tally.second_witness {
                    SecondWitness::Confirmed => continue,
                    _ if has_moved && is_of_record && tally.last.time <= at => {
                        SecondWitness::Confirmed
                    }
                    // What stood still while nobody read it may have begun anew.
                    _ if before.is_none() => continue,
                    SecondWitness::Silent if !is_new(tally.first.time) => continue,
                    // libata refuses the commands of a disk that it has given up: another counter has moved.
                    _ if !answer.grown.is_empty() && !is_printed_by_libata(tally) => continue,
                    _ if counted_by(tally.first.time) <= at
                        && self.always_counts(subject, series, *class, tally) =>
                    {
                        SecondWitness::Unmoved(at)
                    }
                    _ => continue,
                };
                changes.push((subject.clone(), *class, witness));
            }
        }
        let mut change = Urgency::Nothing;
        // One of several counters has moved: the others refute nothing.
        changes.sort_by_key(|(_, _, witness)| *witness);
        for (subject, class, witness) in changes {
            change = change.max(self.set_second_witness(&subject, class, witness));
        }
        change
    }

    /// The drive has reported its own counts.
    pub(in crate::model::facts) fn compare_with_drive(&mut self, drive: &DriveId) -> Urgency {
        let subject = Subject::Drive(drive.clone());
        let mut change = Urgency::Nothing;
        for class in [Class::Medium, Class::Io, Class::Timeout] {
            let Some(tally) = self.tally(&subject, class) else {
                continue;
            };
            let Some(history) = self.smart.get(drive).map(|smart| &smart.history) else {
                continue;
            };
            let Some((at, _)) = history.last else {
                continue;
            };
            let since = tally.first.time.saturating_sub(LOGGED_AFTER).unwrap_or_default();
            let mut series = OF_DRIVES.iter().filter_map(|metric| history.series.get(metric));
            let is_complete =
                tally.first.time.saturating_add(COUNTED_AFTER).is_ok_and(|by| by <= at);
            let witness = match tally.second_witness {
                SecondWitness::Confirmed => continue,
                _ if series.any(|series| has_grown(series, since)) => SecondWitness::Confirmed,
                _ if is_complete && self.is_refuted_by_drive(drive, class, tally) => {
                    SecondWitness::Unmoved(at)
                }
                _ => continue,
            };
            change = change.max(self.set_second_witness(&subject, class, witness));
        }
        change
    }

    fn set_second_witness(
        &mut self,
        subject: &Subject,
        class: Class,
        witness: SecondWitness,
    ) -> Urgency {
        let Some(errors) = self.kernel.errors.get_mut(subject) else {
            return Urgency::Nothing;
        };
        let Some(tally) = Arc::make_mut(errors).tallies.get_mut(&class) else {
            return Urgency::Nothing;
        };
        if tally.second_witness == SecondWitness::Confirmed || tally.second_witness == witness {
            return Urgency::Nothing;
        }
        tally.second_witness = witness;
        Urgency::Immediate
    }

    /// Whether the answer of something that is asked can still refute these records.
    pub(crate) fn may_be_refuted(
        &self,
        subject: &Subject,
        class: Class,
        tally: &ErrorTally,
    ) -> bool {
        let mut series = self.counters.series(subject.clone(), "");
        series.any(|series| self.always_counts(subject, series, class, tally))
            || matches!(subject, Subject::Drive(drive) if self.is_refuted_by_drive(drive, class, tally))
    }

    /// Whether errors of this class move this counter.
    fn counts(
        &self,
        subject: &Subject,
        (series, history): (&str, &CounterHistory),
        name: &str,
        class: Class,
    ) -> bool {
        let of_drive = matches!(class, Class::Medium | Class::Io | Class::Timeout);
        let source = series.split(' ').next().unwrap_or_default();
        match (source, name, class) {
            ("scsi", LIBATA_ERRORS | "iotmo_cnt", _) => of_drive,
            // smartctl moves it: libata's own errors are not in it.
            ("scsi", "ioerr_cnt", _) => of_drive && !self.is_of_libata(subject, history),
            ("md", "errors", _) => of_drive,
            (
                "ext4",
                "errors_count",
                Class::FsError | Class::FsCorruption | Class::FsShutdown | Class::ReadOnly,
            ) => true,
            ("btrfs", "read_errs" | "write_errs" | "flush_errs", Class::FsError) => true,
            ("btrfs", "corruption_errs" | "generation_errs", Class::FsCorruption) => true,
            ("xfs", name, Class::FsCorruption) => name.starts_with("sick_"),
            _ => false,
        }
    }

    /// Whether the kernel moves these counters with each error that it logs in these words.
    fn always_counts(
        &self,
        subject: &Subject,
        (series, history): (&str, &CounterHistory),
        class: Class,
        tally: &ErrorTally,
    ) -> bool {
        let is_logged = |test: &dyn Fn(&str) -> bool| {
            [&tally.first, &tally.last]
                .iter()
                .all(|line| line.origin == LineOrigin::KernelLog && test(&line.text))
        };
        let has = |wanted: &str| history.counters().any(|(name, _)| name == wanted);
        let source = series.split(' ').next().unwrap_or_default();
        // It counts from after the record on: the disk was plugged in again, the filesystem mounted again.
        let mut counters = history.counters();
        if counters.any(|(_, counter)| counter.since > tally.first.time) {
            return false;
        }
        match (source, subject) {
            ("scsi", Subject::Drive(drive)) => {
                let drive = self.drives.get(drive).map(|known| &known.facts);
                let counters = match class {
                    _ if self.is_of_libata(subject, history) => has(LIBATA_ERRORS),
                    Class::Medium => has("ioerr_cnt"),
                    // What ends in the error handler is in this one only.
                    Class::Io | Class::Timeout => has("ioerr_cnt") && has("iotmo_cnt"),
                    _ => false,
                };
                counters && drive.is_some_and(is_driven_by_sd) && is_logged(&is_of_sd)
            }
            ("ext4", Subject::Volume(volume)) => {
                // save_error_info() (fs/ext4/super.c): not before the mount, not on a read-only device.
                self.is_written_since_before(volume, tally.last.time)
                    && match class {
                        Class::FsCorruption => is_logged(&|text| text.starts_with("EXT4-fs ")),
                        Class::FsError => is_logged(&|text| text.starts_with("EXT4-fs error")),
                        Class::ReadOnly => is_logged(&|text| {
                            text.starts_with("EXT4-fs (")
                                && text.contains("Remounting filesystem read-only")
                        }),
                        _ => false,
                    }
            }
            // Other records are not counted, or not by every kernel: a tree block that is wrong is not.
            ("btrfs", Subject::Volume(_)) => {
                is_logged(&|text| text.starts_with("BTRFS") && text.contains(" errs: wr "))
            }
            _ => false,
        }
    }

    fn is_of_libata(&self, subject: &Subject, history: &CounterHistory) -> bool {
        let is_on_port = |drive: &DriveId| {
            let known = self.drives.get(drive);
            known.is_some_and(|known| known.facts.location.ata_port.is_some())
        };
        history.counters().any(|(name, _)| name == LIBATA_ERRORS)
            || matches!(subject, Subject::Drive(drive) if is_on_port(drive))
    }

    fn is_written_since_before(&self, volume: &VolumeId, time: Timestamp) -> bool {
        let Some(known) = self.volumes.get(volume) else {
            return false;
        };
        let is_writable = |name: &String| self.device(name).is_some_and(|it| !it.read_only);
        let mounted = known.mounted_since.values().min();
        mounted.is_some_and(|since| *since < time)
            && known.facts.device.as_ref().is_some_and(is_writable)
    }

    /// Whether the drive's own count would have moved. One that has never counted an error may not
    /// count any.
    fn is_refuted_by_drive(&self, drive: &DriveId, class: Class, tally: &ErrorTally) -> bool {
        let is_nvme =
            self.drives.get(drive).is_some_and(|known| known.facts.transport == Transport::Nvme);
        let history = self.smart.get(drive).map(|smart| &smart.history);
        let series = history.and_then(|history| history.series.get(&Metric::MediaErrors));
        let logged = |line: &Line| line.origin == LineOrigin::KernelLog;
        is_nvme
            && class == Class::Medium
            && logged(&tally.first)
            && series.and_then(|it| it.points.last()).is_some_and(|last| last.value > 0)
            && series
                .and_then(|it| it.points.first())
                .is_some_and(|first| first.at < tally.first.time)
    }
}

fn has_grown(series: &Series, since: Timestamp) -> bool {
    let mut steps = series.points.windows(2);
    steps.any(|pair| pair[1].at >= since && pair[1].value > pair[0].value)
}

/// Every failed command of the disk passes through the SCSI layer.
fn is_driven_by_sd(drive: &DriveFacts) -> bool {
    drive.location.raid_controller.is_none() && drive.transport != Transport::Raid
}

fn is_printed_by_libata(tally: &ErrorTally) -> bool {
    let lines = [&tally.first, &tally.last];
    lines.iter().all(|line| line.text.starts_with("ata"))
}

/// Records of a command of the SCSI layer that has failed: its sense data, libata's report, the block
/// layer's. A bio that fails without a command has others, and so have adapters and internal commands.
fn is_of_sd(text: &str) -> bool {
    let is_of_libata = text.strip_prefix("ata").is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && !text.contains("qc timeout")
    });
    let block = text
        .strip_prefix("blk_update_request: ")
        .or_else(|| text.strip_prefix("print_req_error: "))
        .or_else(|| text.strip_prefix("end_request: "))
        .unwrap_or(text);
    let is_of_block = block.starts_with("critical medium error, dev sd")
        || block.starts_with("I/O error, dev sd");
    is_of_libata || is_of_block || text.starts_with("sd ") && text.contains("[sd")
}
