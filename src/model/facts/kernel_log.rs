//! The kernel log's events, attributed to their drive, volume or device.
//!
//! In: batches of events from the reader, and notices of filesystem errors. Out: an error history
//! for each subject. Nothing is counted twice: an event that a reader sends again after a restart
//! is recognized by its number. Does not judge whether something is bad.

mod attribution;
pub mod lost_records;
mod pending;
pub mod second_witness;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::drive::{DriveKind, Transport};
use crate::facts::device_names::DeviceNames;
use crate::facts::full_reads::BegunRead;
use crate::facts::kernel_log::lost_records::LostRecords;
use crate::facts::{Facts, KnownDrive, Urgency};
use crate::policy::ErrorPolicy;
use crate::source_update::{FsErrorNotice, SourceStatus};
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::{Subject, UnknownHealth};
use diskvitals_kernel_log::error_history::{ErrorHistory, ErrorTally};
use diskvitals_kernel_log::event::{
    Batch, Class, Cursor, DamagedCopies, DeviceName, Event, Line, LineOrigin, NameAssignment,
};
use diskvitals_kernel_log::parsed_record::DeviceKind;
use diskvitals_text::duration::elapsed;

/// Maximum number of events that wait for attribution, at a start for drives and mounts.
const MAX_PENDING: usize = 1024;
/// A filesystem may report errors while it is being mounted, before the mount table lists it.
const MOUNT_LAG: Duration = Duration::from_secs(5);
/// A notice waits this long for a log record of the same error, which has more detail.
const NOTICE_LAG: Duration = Duration::from_secs(2);
/// Not more often does the log ask for a scan.
const SCAN_PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of subjects with errors; the one with the oldest last error is removed first.
const MAX_SUBJECTS: usize = 4096;

#[derive(Clone, Debug, Default)]
pub struct KernelFacts {
    pub names: DeviceNames,
    /// Error histories. Kept in the store, also while the subject is not present.
    pub errors: BTreeMap<Subject, Arc<ErrorHistory>>,
    pub progress: Arc<LogProgress>,
    /// Members of each btrfs, by its UUID, that a scrub has read to the end, and since when.
    pub(super) scrubs: BTreeMap<String, BTreeMap<u64, Timestamp>>,
    /// The last status of the reader. While it cannot read, a log without errors proves nothing.
    reader: Option<SourceStatus>,
    /// Records from before this start have not been read yet.
    backlog_unread: bool,
    /// When devices got their names, from the log; the newest time of each.
    attached_at: BTreeMap<String, Timestamp>,
    /// When a record was read that says that a device is offline or gone, and when a scan was requested for it.
    removal_read_at: Option<Timestamp>,
    scan_requested_at: Option<Timestamp>,
}

/// The position to which the log is counted; stored together with the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogProgress {
    pub cursor: Option<Cursor>,
    /// Counted, but not yet attributed.
    pub pending: Vec<PendingIncident>,
    /// Earlier records may be lost: the ring buffer overran, or the log could not be read.
    #[serde(rename = "deaf_until")]
    pub gap_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_records: Option<LostRecords>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_losses: Vec<LostRecords>,
    /// Incidents about unknown devices.
    pub unattributed: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun_reads: Vec<BegunRead>,
    /// The last end of a pass over an array of which the begin, or which array it was, is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_pass_end: Option<Timestamp>,
    pub last_unattributed: Option<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingIncident {
    Event {
        event: Box<Event>,
        since: Timestamp,
    },
    Notice {
        notice: FsErrorNotice,
        since: Timestamp,
    },
    /// A counter has grown since `from`.
    Growth {
        subject: Subject,
        event: Box<Event>,
        from: Timestamp,
        since: Timestamp,
    },
}

impl KernelFacts {
    /// A warning about incidents on unknown devices. `wall`: a time as the wall clock has it.
    pub fn unattributed_warning(&self, wall: impl Fn(Timestamp) -> Timestamp) -> Option<String> {
        let LogProgress { unattributed, last_unattributed: Some(last), .. } = &*self.progress
        else {
            return None;
        };
        let text = diskvitals_text::echo::truncate(&last.text, 200);
        Some(format!(
            "the kernel log has {unattributed} incidents on unknown devices, last at {}: {text}",
            wall(last.time)
        ))
    }

    /// Number of records since boot that were overwritten before they were read. None: nothing has
    /// been read.
    pub fn lost_records(&self) -> Option<u64> {
        self.progress.cursor.as_ref().map(|cursor| cursor.lost)
    }

    /// Since when the log has been read without a gap, for rules that wait for quiet; None while it
    /// is not read.
    pub(crate) fn quiet_since(&self, last: Timestamp) -> Option<Timestamp> {
        (!self.is_unavailable() && !self.backlog_unread)
            .then(|| self.progress.gap_until.map_or(last, |until| until.max(last)))
    }

    fn is_unavailable(&self) -> bool {
        matches!(self.reader, Some(SourceStatus::Down(_) | SourceStatus::Absent(_)))
    }

    /// There is no log to read (switched off), and none was read in an earlier run.
    fn is_absent(&self) -> bool {
        self.progress.cursor.is_none() && matches!(self.reader, Some(SourceStatus::Absent(_)))
    }

    /// Why no evidence comes from the log: it has not been read once, in this run or an earlier
    /// one. None where there is no log to read (switched off).
    pub(crate) fn unread_cause(&self) -> Option<UnknownHealth> {
        if self.progress.cursor.is_some() {
            return None;
        }
        match &self.reader {
            Some(SourceStatus::Absent(_)) => None,
            Some(SourceStatus::Down(why)) => {
                Some(UnknownHealth::failed(format!("kernel log: {why}")))
            }
            Some(SourceStatus::Active(_) | SourceStatus::Limited(_)) | None => {
                Some(UnknownHealth::pending("the kernel log has not been read yet"))
            }
        }
    }
}

impl Facts {
    pub fn errors(&self, subject: &Subject) -> Option<&ErrorHistory> {
        self.kernel.errors.get(subject).map(Arc::as_ref)
    }

    pub fn tally(&self, subject: &Subject, class: Class) -> Option<&ErrorTally> {
        self.errors(subject)?.get(class)
    }

    /// Restores error histories from the store, at the start or later.
    pub fn restore_errors(
        &mut self,
        errors: Vec<(Subject, ErrorHistory)>,
        progress: Option<LogProgress>,
    ) {
        let boot = |progress: &LogProgress| progress.cursor.as_ref().map(|at| at.boot_id.clone());
        let ours = boot(&self.kernel.progress);
        // The reader did not wait for the store and began with the oldest record: both have counted
        // the common records of this boot.
        let overlapping = ours.is_some() && ours == progress.as_ref().and_then(boot);
        for (subject, old) in errors {
            let known = self.kernel.errors.entry(subject).or_default();
            Arc::make_mut(known).merge(old, overlapping);
        }
        let Some(old) = progress else { return };
        self.kernel.backlog_unread = self.kernel.progress.cursor.is_none();
        let ours = Arc::make_mut(&mut self.kernel.progress);
        if ours.cursor.is_none() {
            let pending = std::mem::replace(ours, old).pending;
            ours.pending.extend(pending);
        } else {
            // The reader did not wait for the store; its later events are newer.
            ours.unattributed = ours.unattributed.max(old.unattributed);
            ours.gap_until = ours.gap_until.max(old.gap_until);
            if overlapping {
                ours.earlier_losses.splice(..0, old.earlier_losses);
                match ours.lost_records {
                    Some(_) => ours.earlier_losses.extend(old.lost_records),
                    None => ours.lost_records = old.lost_records,
                }
            }
        }
    }

    /// What happened until `now` was not read: quiet times begin anew.
    pub fn restart_quiet_times(&mut self, now: Timestamp) {
        Arc::make_mut(&mut self.kernel.progress).gap_until = Some(now);
    }

    pub(super) fn apply_kernel_log(&mut self, batch: Batch, now: Timestamp) -> Urgency {
        self.kernel.backlog_unread = false;
        let before = self.kernel.progress.cursor.clone();
        let same_boot =
            before.as_ref().is_some_and(|cursor| cursor.boot_id == batch.cursor.boot_id);
        if before.is_some() && !same_boot {
            self.reset_for_new_boot();
        }
        let before = before.filter(|_| same_boot);
        if batch.cursor.lost > before.as_ref().map_or(0, |cursor| cursor.lost) {
            self.note_lost_records(now);
        }
        // The first reading is evidence for every drive, also without an event.
        let mut change = match self.kernel.progress.cursor {
            None => Urgency::Immediate,
            Some(_) => Urgency::Nothing,
        };
        let counted_to = before.and_then(|cursor| cursor.counted_to);
        let (mounts, devices): (Vec<NameAssignment>, Vec<NameAssignment>) =
            batch.name_assignments.into_iter().partition(|assigned| assigned.is_filesystem);
        // Before the events: the devices that udev lists have their names from these records.
        for attached in devices {
            self.device_replaced(&attached.name, attached.at);
        }
        // Each mount between the events before it and those after it.
        let mut mounts = mounts.into_iter().peekable();
        for event in batch.events {
            while let Some(mounted) = mounts.next_if(|mounted| mounted.seq < event.seq) {
                self.filesystem_mounted(&mounted);
            }
            if counted_to.is_some_and(|counted| event.seq <= counted) {
                continue;
            }
            change = change.max(self.ingest(event, now));
        }
        for mounted in mounts {
            self.filesystem_mounted(&mounted);
        }
        for read in &batch.full_reads {
            if counted_to.is_none_or(|counted| read.seq > counted) {
                self.apply_full_read(read);
                change = change.max(Urgency::Coalesce);
            }
        }
        Arc::make_mut(&mut self.kernel.progress).cursor = Some(batch.cursor);
        change
    }

    pub(super) fn apply_fs_error(&mut self, notice: FsErrorNotice, now: Timestamp) -> Urgency {
        self.defer(PendingIncident::Notice { notice, since: now });
        // Every applied update retries pending incidents, including the update of this notice.
        Urgency::Nothing
    }

    /// The reader has reported its status.
    pub(super) fn set_kernel_log_status(&mut self, status: SourceStatus, now: Timestamp) {
        let was_unavailable = self.kernel.is_unavailable();
        self.kernel.reader = Some(status);
        if was_unavailable && !self.kernel.is_unavailable() {
            self.restart_quiet_times(now);
        }
    }

    /// The state of a SCSI device changes without a uevent, and a uevent may be lost. Repeated until a scan
    /// has begun after the record.
    pub(super) fn request_scan_after_removal(&mut self, now: Timestamp) {
        let (kernel, scanned) = (&mut self.kernel, self.inventory.at());
        let is_unscanned = kernel.removal_read_at.zip(scanned).is_some_and(|(read, at)| at < read);
        let pauses = |requested| elapsed(requested, now) < SCAN_PAUSE;
        if is_unscanned && !kernel.scan_requested_at.is_some_and(pauses) {
            kernel.scan_requested_at = Some(now);
            self.is_scan_due = true;
        }
    }

    fn ingest(&mut self, event: Event, now: Timestamp) -> Urgency {
        if event.class == Class::Removed {
            self.kernel.removal_read_at = Some(now);
        }
        self.resolve_event(&event, now, now).unwrap_or_else(|| {
            let event = Box::new(event);
            self.defer(PendingIncident::Event { event, since: now });
            Urgency::Nothing
        })
    }

    fn record_event(&mut self, subjects: Vec<Subject>, event: &Event, now: Timestamp) -> Urgency {
        let mut change = Urgency::Nothing;
        for subject in subjects {
            if self.is_of_former_mount(&subject, event) {
                continue;
            }
            if let Subject::Volume(id) = &subject
                && ends_with_mount(event.class)
            {
                self.probes.request(id);
            }
            let event: &Event = &self.as_the_path_allows(&subject, event);
            // A filesystem that no scan has found may have no other copy.
            let without_good_copy = event.damaged.is_partial()
                && self.btrfs_of_volume(&subject).is_none_or(|fs| !fs.has_good_copy(event.damaged));
            let memory = Arc::make_mut(self.kernel.errors.entry(subject.clone()).or_default());
            let new = match without_good_copy {
                // Also a later record of an incident: a member may have gone missing in it.
                true => {
                    let is_first = memory
                        .get(event.class)
                        .is_none_or(|tally| tally.last_uncorrected.is_none());
                    memory.add(&Event {
                        damaged: DamagedCopies::ALL,
                        count: event.count.max(u64::from(is_first)),
                        ..event.clone()
                    })
                }
                false => memory.add(event),
            };
            if event.first.origin == LineOrigin::KernelLog {
                self.are_counters_due = true;
                self.ask_second_witness(&subject, event.class, now);
            }
            change = change.max(if new { Urgency::Immediate } else { Urgency::Coalesce });
        }
        if self.kernel.errors.len() > MAX_SUBJECTS {
            let errors = &mut self.kernel.errors;
            let quietest = errors.iter().min_by_key(|(_, memory)| memory.last_seen());
            let quietest = quietest.map(|(subject, _)| subject.clone());
            quietest.and_then(|subject| errors.remove(&subject));
        }
        change
    }

    /// What is between the host and the drive takes the blame, as sysfs shows it: records that say so are
    /// not believed (`ClassifierOptions::knows_devices`).
    fn as_the_path_allows<'a>(&self, subject: &Subject, event: &'a Event) -> Cow<'a, Event> {
        let Subject::Drive(id) = subject else {
            return Cow::Borrowed(event);
        };
        if event.first.origin != LineOrigin::KernelLog {
            return Cow::Borrowed(event);
        }
        let kind = match self.drives.get(id).map(|known| &known.facts) {
            Some(drive) if drive.transport.is_remote() => DeviceKind::Network,
            Some(drive) if drive.transport == Transport::Usb => DeviceKind::Usb,
            Some(drive) if drive.kind == DriveKind::Virtual => DeviceKind::Virtual,
            _ => DeviceKind::Direct,
        };
        let blame = kind.blame(event.class, event.blame);
        match blame == event.blame {
            true => Cow::Borrowed(event),
            false => Cow::Owned(Event { blame, ..event.clone() }),
        }
    }

    fn count_unattributed(&mut self, event: &Event) -> Urgency {
        let progress = Arc::make_mut(&mut self.kernel.progress);
        progress.unattributed = progress.unattributed.saturating_add(event.count);
        progress.last_unattributed = Some(event.last.clone());
        Urgency::UsageOnly
    }

    fn mount_lag_elapsed(&self, since: Timestamp, now: Timestamp) -> bool {
        elapsed(since, now) >= MOUNT_LAG
    }

    /// After the volumes have changed: moves the errors of a device to the volume on it, and clears
    /// errors that end with a mount.
    pub(super) fn reassign_to_volumes(&mut self, gone: &[(VolumeId, Option<String>)]) {
        for (id, uuid) in gone {
            let subject = Subject::Volume(id.clone());
            self.clear_mount_errors(&subject);
            if let Some(uuid) = uuid {
                self.keep_corruption(id, uuid);
            }
            self.forget_mount_counters(&subject);
        }
        let device = |subject: &Subject| match subject {
            Subject::Device(name) => Some(name.clone()),
            _ => None,
        };
        let devices: Vec<String> = self.kernel.errors.keys().filter_map(device).collect();
        for name in devices {
            let mut volumes = self.volumes.values();
            let own = volumes.find(|known| known.facts.device.as_ref() == Some(&name));
            let own = own.map(|known| known.facts.id.clone());
            let subject = Subject::Device(name.clone());
            let last = self.errors(&subject).and_then(ErrorHistory::last_seen);
            let names = &self.kernel.names;
            let former =
                last.is_some_and(|last| names.was_reassigned(&DeviceName::Block(name), last));
            if let Some(volume) = own
                && let Some(memory) = self.kernel.errors.remove(&subject)
                && !former
            {
                let volume = Subject::Volume(volume);
                let mut memory = (*memory).clone();
                memory.tallies.retain(|class, tally| {
                    !class.is_filesystem_class() || self.may_originate_from(&volume, &tally.last)
                });
                if !memory.is_empty() {
                    Arc::make_mut(self.kernel.errors.entry(volume).or_default())
                        .merge(memory, false);
                }
            }
        }
    }

    /// On unmount, XFS forgets which metadata is sick, and ext4 may be repaired: what it counts after
    /// the next mount is a new baseline.
    pub(super) fn forget_mount_counters(&mut self, subject: &Subject) {
        for source in ["xfs", "ext4"] {
            self.counters.remove(&(subject.clone(), source.to_owned()));
        }
    }

    pub(super) fn clear_mount_errors(&mut self, subject: &Subject) {
        let Some(memory) = self.kernel.errors.get_mut(subject) else {
            return;
        };
        if memory.tallies.keys().any(|class| ends_with_mount(*class)) {
            Arc::make_mut(memory).tallies.retain(|class, _| !ends_with_mount(*class));
        }
        if memory.is_empty() {
            self.kernel.errors.remove(subject);
        }
    }

    /// Removes errors of the former device with this name.
    fn device_replaced(&mut self, device: &str, at: Timestamp) {
        let former = |subject: &Subject| matches!(subject, Subject::Device(name) if name == device);
        self.kernel.errors.retain(|subject, memory| {
            !former(subject) || memory.last_seen().is_none_or(|last| last >= at)
        });
        if self.kernel.attached_at.len() >= MAX_SUBJECTS {
            let attached = &mut self.kernel.attached_at;
            let oldest = attached.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone());
            oldest.and_then(|name| attached.remove(&name));
        }
        self.kernel.attached_at.insert(device.to_owned(), at);
    }

    fn reset_for_new_boot(&mut self) {
        self.kernel.attached_at.clear();
        let progress = Arc::make_mut(&mut self.kernel.progress);
        (progress.lost_records, progress.earlier_losses) = (None, Vec::new());
        let subjects: Vec<Subject> = self.kernel.errors.keys().cloned().collect();
        for subject in &subjects {
            self.clear_mount_errors(subject);
        }
    }

    /// Drops histories that no rule still reads: older than the longest quiet period and than
    /// the window. Records of a drive stay while it is gone or offline: they are evidence of that,
    /// whatever the periods are.
    pub fn forget_errors(&mut self, policy: &ErrorPolicy, now: Timestamp) {
        let keep =
            policy.bad_quiet_after.max(policy.window).max(policy.quiet_after).saturating_mul(2);
        let age = jiff::SignedDuration::try_from(keep).ok();
        let Some(since) = age.and_then(|age| now.checked_sub(age).ok()) else {
            return;
        };
        self.forget_counters();
        // After a gap, rules wait for a whole quiet period again.
        if self.kernel.progress.gap_until.is_some_and(|end| end > since) {
            return;
        }
        let drives = &self.drives;
        let is_evidence = |subject: &Subject| match subject {
            Subject::Drive(id) => drives.get(id).is_some_and(KnownDrive::is_unusable),
            _ => false,
        };
        let old = |(subject, memory): (&Subject, &Arc<ErrorHistory>)| {
            memory.tallies.values().any(|tally| tally.last.time < since) && !is_evidence(subject)
        };
        if !self.kernel.errors.iter().any(old) {
            return;
        }
        for (subject, memory) in &mut self.kernel.errors {
            if old((subject, memory)) {
                Arc::make_mut(memory).prune_before(since);
            }
        }
        self.kernel.errors.retain(|_, memory| !memory.is_empty());
    }
}

/// A shutdown and a read-only state last until the unmount.
pub(super) fn ends_with_mount(class: Class) -> bool {
    matches!(class, Class::FsShutdown | Class::ReadOnly)
}

#[cfg(test)]
mod tests;
