//! Incidents that cannot be attributed yet, and those that may be duplicates of the kernel log:
//! each waits until it is recorded, counted as unattributed, or dropped.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::facts::kernel_log::attribution::Attribution;
use crate::facts::kernel_log::{MAX_PENDING, NOTICE_LAG, PendingIncident};
use crate::facts::{Facts, Urgency};
use crate::source_update::FsErrorNotice;
use diskvitals_finding::Subject;
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_kernel_log::event::{Class, DeviceName, Event, Line, LineOrigin};
use diskvitals_text::duration::elapsed;

/// Between the record of the block layer and that of ZFS. The block layer leaves out records of a storm, ZFS
/// prints all.
const REPEAT_LAG: Duration = Duration::from_secs(10);

impl Facts {
    pub(in crate::facts) fn defer(&mut self, pending: PendingIncident) {
        let waiting = &mut Arc::make_mut(&mut self.kernel.progress).pending;
        waiting.push(pending);
        if waiting.len() > MAX_PENDING
            && let PendingIncident::Event { event, .. } = waiting.remove(0)
        {
            self.count_unattributed(&event);
        }
    }

    /// Drops the pending events that are over.
    pub(in crate::facts) fn drop_pending(&mut self, is_over: impl Fn(&Event) -> bool) {
        let is_over = |pending: &PendingIncident| matches!(pending, PendingIncident::Event { event, .. } if is_over(event));
        let progress = &mut self.kernel.progress;
        if progress.pending.iter().any(is_over) {
            let pending = &mut Arc::make_mut(progress).pending;
            pending.retain(|pending| !is_over(pending));
        }
    }

    /// Retries the attribution of pending incidents.
    pub(in crate::facts) fn retry_pending(&mut self, now: Timestamp) -> Urgency {
        if self.kernel.progress.pending.is_empty() {
            return Urgency::Nothing;
        }
        let waiting = std::mem::take(&mut Arc::make_mut(&mut self.kernel.progress).pending);
        let mut change = Urgency::Nothing;
        let mut still = Vec::new();
        for pending in waiting {
            let resolved = match &pending {
                PendingIncident::Event { event, since } => self.resolve_event(event, *since, now),
                PendingIncident::Growth { subject, event, from, since } => {
                    self.resolve_growth(subject, event, *from, *since, now)
                }
                PendingIncident::Notice { notice, since } => {
                    self.resolve_notice(notice, *since, now)
                }
            };
            match resolved {
                Some(resolved) => change = change.max(resolved),
                None => still.push(pending),
            }
        }
        if !still.is_empty() {
            Arc::make_mut(&mut self.kernel.progress).pending = still;
        }
        change
    }

    /// None: the event must wait.
    pub(super) fn resolve_event(
        &mut self,
        event: &Event,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Urgency> {
        let member = self.kernel.names.of_link(&event.device);
        let is_link = member.is_some();
        let named = member.map(|device| Event { device, ..event.clone() });
        let event = named.as_ref().unwrap_or(event);
        match self.attribute(event, since, now) {
            Attribution::Subjects(subjects)
                if is_link && self.has_errors_near(&subjects, event) =>
            {
                Some(Urgency::Nothing)
            }
            Attribution::Subjects(subjects) => Some(self.record_event(subjects, event, now)),
            Attribution::Deferred => None,
            Attribution::Unattributed => Some(self.count_unattributed(event)),
            Attribution::Ignored => Some(Urgency::Nothing),
        }
    }

    /// ZFS repeats what the block layer has logged under the drive's own name.
    fn has_errors_near(&self, subjects: &[Subject], event: &Event) -> bool {
        let near = |before: Timestamp, after: Timestamp| elapsed(before, after) <= REPEAT_LAG;
        let tallies = subjects.iter().filter_map(|subject| self.errors(subject));
        tallies.flat_map(|history| history.tallies.values()).any(|tally| {
            let (first, last) = (tally.first.time, tally.last.time);
            near(event.last.time, first) && near(last, event.first.time)
        })
    }

    /// A counter's growth counts if the log has reported nothing since the previous reading; None:
    /// the growth must wait.
    fn resolve_growth(
        &mut self,
        subject: &Subject,
        event: &Event,
        from: Timestamp,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Urgency> {
        // A failed read that was logged does not say that structures are wrong.
        let last = match event.class {
            Class::FsCorruption => self.tally(subject, event.class).map(|tally| tally.last.time),
            _ => self.errors(subject).and_then(ErrorHistory::last_seen),
        };
        if last.is_some_and(|last| last >= from || elapsed(last, from) <= NOTICE_LAG) {
            return Some(Urgency::Nothing);
        }
        if !self.kernel.is_unavailable() && elapsed(since, now) < NOTICE_LAG {
            return None;
        }
        Some(self.record_event(vec![subject.clone()], event, now))
    }

    /// A notice counts if the log has not reported the same error; None: the notice must wait.
    fn resolve_notice(
        &mut self,
        notice: &FsErrorNotice,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Urgency> {
        let due = self.kernel.is_unavailable() || elapsed(since, now) >= NOTICE_LAG;
        let mounts = self.mount_table()?;
        // By the mount of the notice: btrfs subvolumes have their own device numbers.
        let mut mounts = mounts.mounts.iter();
        let shown =
            mounts.find(|mount| mount.dev == notice.dev || mount.mount_point == notice.path);
        let volume = shown.and_then(|mount| {
            let mut volumes = self.volumes.values();
            volumes.find(|known| known.facts.mount_at(&mount.mount_point).is_some())
        });
        let Some(volume) = volume else {
            return due.then_some(Urgency::Nothing);
        };
        let subject = Subject::Volume(volume.facts.id.clone());
        let is_logged = |class: Class| {
            self.tally(&subject, class).is_some_and(|tally| {
                let last = tally.last.time;
                elapsed(last, notice.at) <= NOTICE_LAG
                    || elapsed(notice.at, last) <= NOTICE_LAG && last >= notice.at
            })
        };
        if [Class::FsCorruption, Class::FsError, Class::FsShutdown].into_iter().any(is_logged) {
            return Some(Urgency::Nothing);
        }
        if !due {
            return None;
        }
        let device =
            volume.facts.device.clone().map_or(DeviceName::Number(notice.dev), DeviceName::Block);
        Some(self.record_event(vec![subject], &event_from_notice(notice, device), now))
    }
}

/// Converts the notice to an incident. Errors of checks are corruption: EUCLEAN and EBADMSG are
/// ext4's EFSCORRUPTED and EFSBADCRC.
fn event_from_notice(notice: &FsErrorNotice, device: DeviceName) -> Event {
    let is_corruption = matches!(notice.errno, 74 | 117);
    let class = if is_corruption { Class::FsCorruption } else { Class::FsError };
    let inode = notice.inode.map(|inode| format!(", inode {inode}")).unwrap_or_default();
    let text = format!(
        "FAN_FS_ERROR on {}: errno {}{inode}, {} since the last notice",
        notice.path, notice.errno, notice.count
    );
    let line = Line { time: notice.at, text, origin: LineOrigin::Fanotify };
    Event::without_log_record("fanotify", class, device, u64::from(notice.count.max(1)), line)
}
