//! The second witness of what the kernel's log says: a counter that the same error moves, in sysfs or
//! in the drive.
//!
//! In: incidents of the log, readings of counters, reports of drives. Out: `SecondWitness` of each
//! tally, and requests to read what may refute one. Only a counter that the kernel moves with every
//! such error refutes by standing still; all others confirm only, so that a silent one never makes a
//! dying drive milder. Does not judge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::counters::{Counter, CounterHistory, CounterKey, LIBATA_ERRORS};
use crate::drive::{DriveFacts, Transport};
use crate::facts::{Facts, KnownDrive, Urgency};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_kernel_log::error_history::{ErrorTally, SecondWitness};
use diskvitals_kernel_log::event::{Class, Line, LineOrigin};
use diskvitals_smart::history::{Metric, Series};

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
pub(in crate::facts) struct Answer {
    pub key: CounterKey,
    /// Those that had moved.
    pub grown: Vec<String>,
    /// It is the first reading of counts that are on the disk: `grown` are those that are not 0.
    pub is_from_before: bool,
    /// When the newest error in such counts was, as far as the disk says it.
    pub counted_last: Option<Timestamp>,
}

impl Facts {
    /// A new record: a counter may have moved just before it. Otherwise what can support or refute it
    /// is read.
    pub(super) fn ask_second_witness(&mut self, subject: &Subject, class: Class, now: Timestamp) {
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
            let key = (subject.clone(), series.to_owned());
            counters.any(|(name, counter)| {
                self.counts(&key, name, class)
                    && counter.last_growth.is_some_and(|at| Some(at) >= since(name))
            })
        });
        if has_moved {
            self.set_second_witness(subject, class, SecondWitness::Confirmed);
            return;
        }
        if let Subject::Drive(drive) = subject
            && self.is_refuted_by_drive(drive, class, tally)
        {
            self.smart_due.insert(drive.clone());
        }
        match subject {
            Subject::Drive(drive) => {
                let known = self.drives.get(drive);
                let volumes = known.into_iter().flat_map(|known| &known.volumes);
                self.probes.request_for_log(volumes, now);
            }
            Subject::Volume(volume) => self.probes.request_for_log([volume], now),
            Subject::Device(_) | Subject::Source(_) => {}
        }
    }

    /// `read`: what was read from `at` on; `before`: when they were last read.
    pub(in crate::facts) fn compare_with_log(
        &mut self,
        read: &[Answer],
        before: Option<Timestamp>,
        at: Timestamp,
    ) -> Urgency {
        let mut by_subject: BTreeMap<&Subject, Vec<&Answer>> = BTreeMap::new();
        for answer in read {
            by_subject.entry(&answer.key.0).or_default().push(answer);
        }
        let mut changes = Vec::new();
        for (subject, answers) in by_subject {
            let tallies = self.errors(subject).into_iter().flat_map(|errors| &errors.tallies);
            for (class, tally) in tallies {
                let witness = self.witness_of(subject, &answers, *class, tally, before, at);
                changes.extend(witness.map(|witness| (subject.clone(), *class, witness)));
            }
        }
        let mut change = Urgency::Nothing;
        for (subject, class, witness) in changes {
            change = change.max(self.set_second_witness(&subject, class, witness));
        }
        change
    }

    /// What these readings say of a tally. None: nothing new.
    fn witness_of(
        &self,
        subject: &Subject,
        answers: &[&Answer],
        class: Class,
        tally: &ErrorTally,
        before: Option<Timestamp>,
        at: Timestamp,
    ) -> Option<SecondWitness> {
        let (first, last) = (tally.first.time, tally.last.time);
        // No earlier reading has answered for a record of this time.
        let is_new = |time: Timestamp| before.is_none_or(|before| counted_by(time) > before);
        // The first record that has no answer yet.
        let unanswered = match tally.second_witness {
            SecondWitness::Confirmed => return None,
            SecondWitness::Unmoved(answered) if counted_by(last) <= answered => None,
            SecondWitness::Unmoved(_) => Some(last),
            SecondWitness::Silent => Some(first),
        };
        let since = first.saturating_sub(LOGGED_AFTER).unwrap_or_default();
        let has_moved = |answer: &&Answer| {
            let is_of_record = match answer.counted_last {
                Some(counted) => counted >= since,
                None => answer.is_from_before || unanswered.is_some() && is_new(last),
            };
            is_of_record && answer.grown.iter().any(|name| self.counts(&answer.key, name, class))
        };
        if answers.iter().any(has_moved) {
            return Some(SecondWitness::Confirmed);
        }
        // What stood still while nobody read it may have begun anew.
        let is_first_answer =
            before.is_some() && unanswered.is_some_and(is_new) && counted_by(first) <= at;
        let mut refuting = answers.iter().filter(|answer| may_refute(&answer.key)).peekable();
        let is_refuted = is_first_answer
            && refuting.peek().is_some()
            && refuting.all(|answer| {
                // libata refuses the commands of a disk that it has given up: another counter has moved.
                (answer.grown.is_empty() || is_printed_by_libata(tally))
                    && self.always_counts(&answer.key, class, tally)
            })
            && self.have_all_answered(subject, answers, unanswered_since(tally));
        is_refuted.then_some(SecondWitness::Unmoved(at))
    }

    /// Whether everything has answered that could have counted an error since then: each path of the
    /// drive, each member of the filesystem. One that has gone meanwhile took its count with it.
    fn have_all_answered(&self, subject: &Subject, answers: &[&Answer], since: Timestamp) -> bool {
        let have_stayed = self.counters.gone_since(subject, since).is_none();
        have_stayed
            && match subject {
                Subject::Drive(drive) => {
                    let known = self.drives.get(drive);
                    let devices = known.into_iter().flat_map(|known| &known.facts.devices);
                    let mut paths =
                        devices.map(|path| format!("scsi /sys/block/{}/device", path.name));
                    paths.all(|path| answers.iter().any(|answer| answer.key.1 == path))
                        && !self.kernel.names.has_lost_one(drive, since)
                }
                _ => true,
            }
    }

    /// The drive has reported its own counts, read between `begun` and `ended`.
    pub(in crate::facts) fn compare_with_drive(
        &mut self,
        drive: &DriveId,
        begun: Timestamp,
        ended: Timestamp,
    ) -> Urgency {
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
            let is_complete = at == ended && counted_by(tally.first.time) <= begun;
            let witness = match tally.second_witness {
                SecondWitness::Confirmed => continue,
                _ if series.any(|series| has_grown(series, since)) => SecondWitness::Confirmed,
                SecondWitness::Unmoved(answered) if counted_by(tally.last.time) <= answered => {
                    continue;
                }
                _ if is_complete && self.is_refuted_by_drive(drive, class, tally) => {
                    SecondWitness::Unmoved(begun)
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
        series.any(|(series, _)| {
            let key = (subject.clone(), series.to_owned());
            may_refute(&key) && self.always_counts(&key, class, tally)
        }) || matches!(subject, Subject::Drive(drive) if self.is_refuted_by_drive(drive, class, tally))
    }

    /// Whether errors of this class move this counter.
    fn counts(&self, key: &CounterKey, name: &str, class: Class) -> bool {
        let of_drive = matches!(class, Class::Medium | Class::Io | Class::Timeout);
        match (source(key), name, class) {
            ("scsi", LIBATA_ERRORS | "iotmo_cnt", _) => of_drive,
            // smartctl moves it: libata's own errors are not in it.
            ("scsi", "ioerr_cnt", _) => of_drive && !self.is_of_libata(key),
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

    /// A counter of errors of the drive, or of a filesystem on it, that has moved since then.
    pub(crate) fn grown_counter(
        &self,
        known: &KnownDrive,
        since: Timestamp,
    ) -> Option<(&CounterHistory, &str, &Counter)> {
        let drive = (Subject::Drive(known.facts.id.clone()), Class::Io);
        let volumes = known.volumes.iter();
        let volumes = volumes.map(|id| (Subject::Volume(id.clone()), Class::FsError));
        std::iter::once(drive).chain(volumes).find_map(|(subject, class)| {
            self.counters.series(subject.clone(), "").find_map(|(series, history)| {
                let key = (subject.clone(), series.to_owned());
                let mut counters = history.counters();
                let (name, counter) = counters.find(|(name, counter)| {
                    self.counts(&key, name, class)
                        && counter.last_growth.is_some_and(|at| at >= since)
                })?;
                Some((history, name, counter))
            })
        })
    }

    /// Whether the kernel moves these counters with each error that it logs in these words.
    fn always_counts(&self, key: &CounterKey, class: Class, tally: &ErrorTally) -> bool {
        let Some(history) = self.counters.get(key) else {
            return false;
        };
        let is_logged = |test: &dyn Fn(&str) -> bool| {
            [&tally.first, &tally.last]
                .iter()
                .all(|line| line.origin == LineOrigin::KernelLog && test(&line.text))
        };
        let has = |wanted: &str| history.counters().any(|(name, _)| name == wanted);
        // It counts from after the record on: the disk was plugged in again, the filesystem mounted again.
        let mut counters = history.counters();
        if counters.any(|(_, counter)| counter.since > unanswered_since(tally)) {
            return false;
        }
        match (source(key), &key.0) {
            ("scsi", Subject::Drive(drive)) => {
                let drive = self.drives.get(drive).map(|known| &known.facts);
                let counters = match class {
                    _ if self.is_of_libata(key) => has(LIBATA_ERRORS),
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

    fn is_of_libata(&self, key: &CounterKey) -> bool {
        let is_on_port = |drive: &DriveId| {
            let known = self.drives.get(drive);
            known.is_some_and(|known| known.facts.location.ata_port.is_some())
        };
        let history = self.counters.get(key);
        history.is_some_and(|history| history.counters().any(|(name, _)| name == LIBATA_ERRORS))
            || matches!(&key.0, Subject::Drive(drive) if is_on_port(drive))
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
    /// count any, and one controller may not count those of another one, nor a namespace those of
    /// another namespace.
    fn is_refuted_by_drive(&self, drive: &DriveId, class: Class, tally: &ErrorTally) -> bool {
        let is_all_of_it = |drive: &DriveFacts| match drive.location.controllers.as_slice() {
            [] => drive.devices.len() == 1,
            [_] => true,
            _ => false,
        };
        let is_nvme = self.drives.get(drive).is_some_and(|known| {
            known.facts.transport == Transport::Nvme && is_all_of_it(&known.facts)
        });
        let history = self.smart.get(drive).map(|smart| &smart.history);
        let series = history.and_then(|history| history.series.get(&Metric::MediaErrors));
        let logged = |line: &Line| line.origin == LineOrigin::KernelLog;
        is_nvme
            && class == Class::Medium
            && logged(&tally.first)
            && series.and_then(|it| it.points.last()).is_some_and(|last| last.value > 0)
            && series.and_then(|it| it.reset).is_none_or(|reset| reset.at < tally.first.time)
            && series
                .and_then(|it| it.points.first())
                .is_some_and(|first| first.at < tally.first.time)
    }
}

/// When a counter shows an error that was logged at this time.
fn counted_by(time: Timestamp) -> Timestamp {
    time.saturating_add(COUNTED_AFTER).unwrap_or(time)
}

/// No counter has answered for the records of this time and later.
fn unanswered_since(tally: &ErrorTally) -> Timestamp {
    match tally.second_witness {
        SecondWitness::Unmoved(answered) => answered.max(tally.first.time),
        SecondWitness::Silent | SecondWitness::Confirmed => tally.first.time,
    }
}

fn source((_, series): &CounterKey) -> &str {
    series.split(' ').next().unwrap_or_default()
}

/// Whether the errors of its subject move counters of this source. A drive or a btrfs has several.
pub(in crate::facts) fn may_refute(key: &CounterKey) -> bool {
    matches!(
        (source(key), &key.0),
        ("scsi", Subject::Drive(_)) | ("ext4" | "btrfs", Subject::Volume(_))
    )
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
