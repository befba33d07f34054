//! What the kernel's log has said, laid at the door of the drive, the volume or the device that it
//! is about.
//!
//! In: batches of events, as the reader hands them over, and notices of filesystem errors. Out: a
//! memory a subject. Nothing is counted twice: what a reader tells again after a restart is known
//! by its number. May not enter: whether something is bad.

mod attribution;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::facts::device_names::DeviceNames;
use crate::model::facts::kernel_log::attribution::Attribution;
use crate::model::facts::{Facts, Urgency, elapsed};
use crate::model::finding::Subject;
use crate::model::kernel_log::error_history::ErrorHistory;
use crate::model::kernel_log::event::{Batch, Class, Cursor, DeviceName, Event, Line, LineOrigin};
use crate::model::policy::ErrorPolicy;
use crate::model::source_update::FsErrorNotice;

/// Events that wait to be laid at a door, at most: at a start, until drives and mounts are known.
const MAX_PENDING: usize = 1024;
/// A filesystem may complain while it is being mounted, before the mount table shows it.
const MOUNT_LAG: Duration = Duration::from_secs(5);
/// A notice waits this long for the log to tell of the same error with more words.
const NOTICE_LAG: Duration = Duration::from_secs(2);
/// Things whose errors are remembered; the ones that were quiet longest go first.
const MAX_SUBJECTS: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct KernelFacts {
    pub names: DeviceNames,
    /// What was said of each. Kept in the store, also while the thing is not here.
    pub errors: BTreeMap<Subject, Arc<ErrorHistory>>,
    pub progress: Arc<LogProgress>,
    /// False once the reader has said that it cannot read: then silence is no news.
    log_unavailable: bool,
    /// What was said while nobody ran has not been read yet.
    backlog_unread: bool,
    /// When devices came to their names, as the log told; the newest of each.
    attached_at: BTreeMap<String, Timestamp>,
}

/// How far the log is counted; stored together with what was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogProgress {
    pub cursor: Option<Cursor>,
    /// Counted, and not yet laid at a door.
    pub pending: Vec<PendingIncident>,
    /// Until then something may have been said that nobody heard: the ring overran, or the log
    /// could not be read.
    #[serde(rename = "deaf_until")]
    pub gap_until: Option<Timestamp>,
    /// Incidents about devices that nobody knows.
    pub unattributed: u64,
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
    /// A counter grew between `from` and now.
    Growth {
        subject: Subject,
        event: Box<Event>,
        from: Timestamp,
        since: Timestamp,
    },
}

impl KernelFacts {
    /// What the log said of things that are not known here.
    pub(crate) fn unattributed_warning(&self) -> Option<String> {
        let LogProgress {
            unattributed,
            last_unattributed: Some(last),
            ..
        } = &*self.progress
        else {
            return None;
        };
        let text = crate::model::assess::truncate(&last.text, 200);
        Some(format!(
            "the kernel log has {unattributed} incidents on unknown devices, last at {}: {text}",
            last.time
        ))
    }

    /// Records that were overwritten before they were read, since the boot; None while none of it
    /// has been read.
    pub(crate) fn lost_records(&self) -> Option<u64> {
        self.progress.cursor.as_ref().map(|cursor| cursor.lost)
    }

    /// Since when the log has been heard without a gap, as far as a rule that waits for quiet needs
    /// it; None while it is not heard at all.
    pub(crate) fn quiet_since(&self, last: Timestamp) -> Option<Timestamp> {
        (!self.log_unavailable && !self.backlog_unread).then(|| {
            self.progress
                .gap_until
                .map_or(last, |until| until.max(last))
        })
    }
}

impl Facts {
    pub(crate) fn errors(&self, subject: &Subject) -> Option<&ErrorHistory> {
        self.kernel.errors.get(subject).map(Arc::as_ref)
    }

    /// What the store remembers, at the start or late.
    pub(crate) fn restore_errors(
        &mut self,
        errors: Vec<(Subject, ErrorHistory)>,
        progress: Option<LogProgress>,
    ) {
        let boot = |cursor: Option<&Cursor>| cursor.map(|cursor| cursor.boot_id.clone());
        let ours = boot(self.kernel.progress.cursor.as_ref());
        // The reader did not wait for the store and began with the oldest record: what both know of
        // this boot, both have counted.
        let overlapping = ours.is_some()
            && ours
                == boot(
                    progress
                        .as_ref()
                        .and_then(|progress| progress.cursor.as_ref()),
                );
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
            // The reader did not wait; what it told since is newer.
            ours.unattributed = ours.unattributed.max(old.unattributed);
            ours.gap_until = ours.gap_until.max(old.gap_until);
        }
    }

    pub(super) fn apply_kernel_log(&mut self, batch: Batch, now: Timestamp) -> Urgency {
        self.kernel.backlog_unread = false;
        let before = self.kernel.progress.cursor.clone();
        let same_boot = before
            .as_ref()
            .is_some_and(|cursor| cursor.boot_id == batch.cursor.boot_id);
        if before.is_some() && !same_boot {
            self.reset_for_new_boot();
        }
        let before = before.filter(|_| same_boot);
        if batch.cursor.lost > before.as_ref().map_or(0, |cursor| cursor.lost) {
            Arc::make_mut(&mut self.kernel.progress).gap_until = Some(now);
        }
        let counted_to = before.and_then(|cursor| cursor.counted_to);
        let mut change = Urgency::Nothing;
        // A filesystem that is mounted anew is neither shut nor read-only, whether or not anybody
        // saw it unmounted.
        for attached in &batch.name_assignments {
            match attached.is_filesystem {
                true => self.filesystem_remounted(&attached.name, attached.at),
                false => self.device_replaced(&attached.name, attached.at),
            }
        }
        for event in batch.events {
            if counted_to.is_some_and(|counted| event.seq <= counted) {
                continue;
            }
            change = change.max(self.ingest(event, now));
        }
        for refused in &batch.rejected_sectors {
            let drive = self
                .drive_by_name(&refused.device, refused.at)
                .cloned()
                .map(Subject::Drive);
            if let Some(memory) = drive.and_then(|drive| self.kernel.errors.get_mut(&drive))
                && Arc::make_mut(memory).retract_sector(refused.sector)
            {
                change = Urgency::Immediate;
                self.kernel.errors.retain(|_, memory| !memory.is_empty());
            }
        }
        Arc::make_mut(&mut self.kernel.progress).cursor = Some(batch.cursor);
        change
    }

    pub(super) fn apply_fs_error(&mut self, notice: FsErrorNotice, now: Timestamp) -> Urgency {
        self.defer(PendingIncident::Notice { notice, since: now });
        // Looked at again with every report that is applied, this one first.
        Urgency::Nothing
    }

    /// The reader has said how it is.
    pub(super) fn set_kernel_log_available(&mut self, heard: bool, now: Timestamp) {
        if self.kernel.log_unavailable && heard {
            Arc::make_mut(&mut self.kernel.progress).gap_until = Some(now);
        }
        self.kernel.log_unavailable = !heard;
    }

    fn ingest(&mut self, event: Event, now: Timestamp) -> Urgency {
        match self.attribute(&event, now, now) {
            Attribution::Subjects(subjects) => self.record_event(subjects, &event),
            Attribution::Deferred => {
                self.defer(PendingIncident::Event {
                    event: Box::new(event),
                    since: now,
                });
                Urgency::Nothing
            }
            Attribution::Unattributed => self.count_unattributed(&event),
            Attribution::OwnCheck => Urgency::Nothing,
        }
    }

    fn record_event(&mut self, subjects: Vec<Subject>, event: &Event) -> Urgency {
        let mut change = Urgency::Nothing;
        for subject in subjects {
            let memory = self.kernel.errors.entry(subject).or_default();
            let new = Arc::make_mut(memory).add(event);
            change = change.max(if new {
                Urgency::Immediate
            } else {
                Urgency::Coalesce
            });
        }
        if self.kernel.errors.len() > MAX_SUBJECTS {
            let quietest = self
                .kernel
                .errors
                .iter()
                .min_by_key(|(_, memory)| memory.last_seen())
                .map(|(subject, _)| subject.clone());
            quietest.and_then(|subject| self.kernel.errors.remove(&subject));
        }
        change
    }

    fn count_unattributed(&mut self, event: &Event) -> Urgency {
        let progress = Arc::make_mut(&mut self.kernel.progress);
        progress.unattributed = progress.unattributed.saturating_add(event.count);
        progress.last_unattributed = Some(event.last.clone());
        Urgency::UsageOnly
    }

    pub(super) fn defer(&mut self, pending: PendingIncident) {
        let waiting = &mut Arc::make_mut(&mut self.kernel.progress).pending;
        waiting.push(pending);
        if waiting.len() > MAX_PENDING
            && let PendingIncident::Event { event, .. } = waiting.remove(0)
        {
            self.count_unattributed(&event);
        }
    }

    /// Looks again at what could not be laid at a door.
    pub(super) fn retry_pending(&mut self, now: Timestamp) -> Urgency {
        if self.kernel.progress.pending.is_empty() {
            return Urgency::Nothing;
        }
        let waiting = std::mem::take(&mut Arc::make_mut(&mut self.kernel.progress).pending);
        let mut change = Urgency::Nothing;
        let mut still = Vec::new();
        for pending in waiting {
            match &pending {
                PendingIncident::Event { event, since } => match self.attribute(event, *since, now)
                {
                    Attribution::Subjects(subjects) => {
                        change = change.max(self.record_event(subjects, event))
                    }
                    Attribution::Deferred => still.push(pending),
                    Attribution::Unattributed => {
                        change = change.max(self.count_unattributed(event))
                    }
                    Attribution::OwnCheck => {}
                },
                PendingIncident::Growth {
                    subject,
                    event,
                    from,
                    since,
                } => match self.resolve_growth(subject, event, *from, *since, now) {
                    Some(said) => change = change.max(said),
                    None => still.push(pending),
                },
                PendingIncident::Notice { notice, since } => {
                    match self.resolve_notice(notice, *since, now) {
                        Some(said) => change = change.max(said),
                        None => still.push(pending),
                    }
                }
            }
        }
        if !still.is_empty() {
            Arc::make_mut(&mut self.kernel.progress).pending = still;
        }
        change
    }

    /// A counter's growth counts where the log has not told of something since the reading before;
    /// None: wait.
    fn resolve_growth(
        &mut self,
        subject: &Subject,
        event: &Event,
        from: Timestamp,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Urgency> {
        if self
            .errors(subject)
            .and_then(ErrorHistory::last_seen)
            .is_some_and(|last| last >= from || elapsed(last, from) <= NOTICE_LAG)
        {
            return Some(Urgency::Nothing);
        }
        if !self.kernel.log_unavailable && elapsed(since, now) < NOTICE_LAG {
            return None;
        }
        Some(self.record_event(vec![subject.clone()], event))
    }

    /// A notice counts where the log has not told of the same; None: wait.
    fn resolve_notice(
        &mut self,
        notice: &FsErrorNotice,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Urgency> {
        let due = self.kernel.log_unavailable || elapsed(since, now) >= NOTICE_LAG;
        let mounts = self.mount_table()?;
        // By the mount it was seen on: btrfs's subvolumes have numbers of their own.
        let shown = mounts
            .mounts
            .iter()
            .find(|mount| mount.dev == notice.dev || mount.mount_point == notice.path);
        let volume = shown.and_then(|mount| {
            self.volumes.values().find(|known| {
                known
                    .facts
                    .mounts
                    .iter()
                    .any(|m| m.path == mount.mount_point)
            })
        });
        let Some(volume) = volume else {
            return due.then_some(Urgency::Nothing);
        };
        let subject = Subject::Volume(volume.facts.id.clone());
        let told = |class: Class| {
            let last = self
                .errors(&subject)
                .and_then(|memory| memory.get(class))
                .map(|tally| tally.last.time);
            last.is_some_and(|last| {
                elapsed(last, notice.at) <= NOTICE_LAG
                    || elapsed(notice.at, last) <= NOTICE_LAG && last >= notice.at
            })
        };
        if [Class::FsCorruption, Class::FsError, Class::FsShutdown]
            .into_iter()
            .any(told)
        {
            return Some(Urgency::Nothing);
        }
        if !due {
            return None;
        }
        let device = volume
            .facts
            .device
            .clone()
            .map_or(DeviceName::Number(notice.dev), DeviceName::Block);
        Some(self.record_event(vec![subject], &event_from_notice(notice, device)))
    }

    fn mount_lag_elapsed(&self, since: Timestamp, now: Timestamp) -> bool {
        elapsed(since, now) >= MOUNT_LAG
    }

    /// After the volumes have changed: what was said of a device before its filesystem was seen is
    /// the volume's, and what ends with a mount is over.
    pub(super) fn reassign_to_volumes(&mut self, gone: &[crate::model::ids::VolumeId]) {
        for id in gone {
            let subject = Subject::Volume(id.clone());
            self.clear_mount_errors(&subject);
            // XFS forgets with the unmount what it knew to be sick.
            self.counters.remove(&(subject, "xfs".to_owned()));
        }
        let devices: Vec<String> = self
            .kernel
            .errors
            .keys()
            .filter_map(|subject| {
                if let Subject::Device(name) = subject {
                    Some(name.clone())
                } else {
                    None
                }
            })
            .collect();
        for name in devices {
            let own = self
                .volumes
                .values()
                .find(|known| known.facts.device.as_deref() == Some(name.as_str()))
                .map(|known| known.facts.id.clone());
            let last = self
                .kernel
                .errors
                .get(&Subject::Device(name.clone()))
                .and_then(|memory| memory.last_seen());
            let former = last.is_some_and(|last| {
                self.kernel
                    .names
                    .was_reassigned(&DeviceName::Block(name.clone()), last)
            });
            if let Some(volume) = own
                && let Some(memory) = self.kernel.errors.remove(&Subject::Device(name))
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

    /// A shutdown, and a read-only state, last as long as the mount.
    fn clear_mount_errors(&mut self, subject: &Subject) {
        let Some(memory) = self.kernel.errors.get_mut(subject) else {
            return;
        };
        if memory.get(Class::FsShutdown).is_some() || memory.get(Class::ReadOnly).is_some() {
            Arc::make_mut(memory)
                .tallies
                .retain(|class, _| !matches!(class, Class::FsShutdown | Class::ReadOnly));
        }
        if memory.is_empty() {
            self.kernel.errors.remove(subject);
        }
    }

    fn filesystem_remounted(&mut self, device: &str, at: Timestamp) {
        let name = DeviceName::Block(device.to_owned());
        let mut subjects = self.volumes_on(None, std::iter::once(&name), None);
        subjects.push(Subject::Device(device.to_owned()));
        for subject in subjects {
            let since = |class: Class| {
                self.errors(&subject)
                    .and_then(|memory| memory.get(class))
                    .is_some_and(|tally| tally.last.time > at)
            };
            if !since(Class::FsShutdown) && !since(Class::ReadOnly) {
                self.clear_mount_errors(&subject);
            }
        }
    }

    /// What was said of the device that had the name before is no matter of this one's.
    fn device_replaced(&mut self, device: &str, at: Timestamp) {
        let former = |subject: &Subject| matches!(subject, Subject::Device(name) if name == device);
        self.kernel.errors.retain(|subject, memory| {
            !former(subject) || memory.last_seen().is_none_or(|last| last >= at)
        });
        if self.kernel.attached_at.len() >= MAX_SUBJECTS {
            let oldest = self
                .kernel
                .attached_at
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(name, _)| name.clone());
            oldest.and_then(|name| self.kernel.attached_at.remove(&name));
        }
        self.kernel.attached_at.insert(device.to_owned(), at);
    }

    fn reset_for_new_boot(&mut self) {
        self.kernel.attached_at.clear();
        let subjects: Vec<Subject> = self.kernel.errors.keys().cloned().collect();
        for subject in &subjects {
            self.clear_mount_errors(subject);
        }
    }

    /// Drops memories that no rule looks at any more: longer than the longest patience, and than
    /// the window.
    pub(crate) fn forget_errors(&mut self, policy: &ErrorPolicy, now: Timestamp) {
        let keep = policy
            .bad_quiet_after
            .max(policy.window)
            .max(policy.quiet_after)
            .saturating_mul(2);
        let Ok(age) = jiff::SignedDuration::try_from(keep) else {
            return;
        };
        let Ok(since) = now.checked_sub(age) else {
            return;
        };
        self.forget_counters();
        let old =
            |memory: &ErrorHistory| memory.tallies.values().any(|tally| tally.last.time < since);
        if !self.kernel.errors.values().any(|memory| old(memory)) {
            return;
        }
        for memory in self.kernel.errors.values_mut().filter(|memory| old(memory)) {
            Arc::make_mut(memory).prune_before(since);
        }
        self.kernel.errors.retain(|_, memory| !memory.is_empty());
    }
}

/// The notice in the shape of an incident. Errors of checks are corruption: EUCLEAN and EBADMSG are
/// ext4's EFSCORRUPTED and EFSBADCRC.
fn event_from_notice(notice: &FsErrorNotice, device: DeviceName) -> Event {
    let class = if matches!(notice.errno, 74 | 117) {
        Class::FsCorruption
    } else {
        Class::FsError
    };
    let inode = notice
        .inode
        .map(|inode| format!(", inode {inode}"))
        .unwrap_or_default();
    let text = format!(
        "FAN_FS_ERROR on {}: errno {}{inode}, {} since the last notice",
        notice.path, notice.errno, notice.count
    );
    Event::without_log_record(
        "fanotify",
        class,
        device,
        u64::from(notice.count.max(1)),
        Line {
            time: notice.at,
            text,
            origin: LineOrigin::Fanotify,
        },
    )
}

#[cfg(test)]
mod tests;
