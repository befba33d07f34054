//! Errors whose cause was repaired no longer count: what is counted begins anew.
//!
//! In: the subject and the reason of a finding that a person calls repaired, or a read of a whole device
//! that has ended without an error. Out: classes of errors, removed from the history. What a drive
//! counts itself (SMART) is not touched.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::block::{BlockDevice, Layer, LayerState};
use crate::model::facts::Facts;
use crate::model::facts::corruption::of_filesystem;
use crate::model::finding::Subject;
use crate::model::kernel_log::error_history::{ErrorHistory, FailedSector};
use crate::model::kernel_log::event::{Class, FullRead};
use crate::model::reason::Reason;

/// Whether a repair of the cause ends such a finding: it rests on errors of the past.
pub(crate) fn ends(subject: &Subject, reason: Reason) -> bool {
    reason == Reason::FilesystemCorrupted || !classes(subject, reason).is_empty()
}

fn classes(subject: &Subject, reason: Reason) -> &'static [Class] {
    match (subject, reason) {
        (Subject::Drive(_), Reason::IoErrors) => &[Class::Io],
        // Errors of its own device; those of its drives belong to the drives.
        (_, Reason::IoErrors) => &[Class::Io, Class::Medium, Class::Timeout],
        (_, Reason::MediaErrors) => &[Class::Medium],
        (_, Reason::IoTimeouts) => &[Class::Timeout],
        (_, Reason::ControllerResets) => &[Class::Reset],
        (_, Reason::LinkErrors) => &[Class::Transport],
        (Subject::Volume(_), Reason::FilesystemErrors) => &[Class::FsError],
        (Subject::Device(_), Reason::FilesystemErrors) => &[Class::FsError, Class::FsShutdown],
        _ => &[],
    }
}

impl Facts {
    pub(crate) fn forget_repaired(&mut self, subject: &Subject, reason: Reason) {
        let classes = classes(subject, reason);
        let filesystem = self.filesystem_uuid(subject);
        let subjects = filesystem.map(|uuid| of_filesystem(&uuid));
        for subject in subjects.iter().chain([subject]) {
            self.forget_classes(subject, classes);
        }
    }

    fn forget_classes(&mut self, subject: &Subject, classes: &[Class]) {
        let Some(memory) = self.kernel.errors.get_mut(subject) else {
            return;
        };
        if memory.tallies.keys().any(|class| classes.contains(class)) {
            Arc::make_mut(memory)
                .tallies
                .retain(|class, _| !classes.contains(class));
        }
        if memory.is_empty() {
            self.kernel.errors.remove(subject);
        }
    }

    /// All of a device was read, and no error of what is below it was reported since the read began:
    /// earlier errors are over. An array's check reads each member in sync; a scrub only what is in
    /// use, so that it proves nothing about single sectors of the medium.
    pub(super) fn apply_full_read(&mut self, read: &FullRead) {
        if let Some(LayerState::Md(array)) = self.layer_state(&read.device) {
            let members = array.members.iter().filter(|member| {
                let mut words = member.state.split(',');
                words.any(|word| word == "in_sync")
            });
            let members: Vec<String> = members.map(|member| member.device.clone()).collect();
            for member in members {
                let classes = [Class::Io, Class::Medium, Class::Timeout];
                self.forget_read(&member, &classes, read.since);
            }
            return;
        }
        let is_whole = |devices: &[String]| devices == [read.device.clone()];
        let btrfs = self.inventory().and_then(|it| it.btrfs_of(&read.device));
        if btrfs.is_some_and(|btrfs| is_whole(&btrfs.devices)) {
            self.forget_read(&read.device, &[Class::Io, Class::Timeout], read.since);
        }
    }

    /// `device`: a whole drive, or a partition of it.
    fn forget_read(&mut self, device: &str, classes: &[Class], since: Timestamp) {
        let drives = self.inventory().map(|it| it.drives_below(device));
        let drives: Vec<_> = drives.into_iter().flatten().cloned().collect();
        let [drive] = drives.as_slice() else {
            return;
        };
        let subject = Subject::Drive(drive.clone());
        let (Some(history), Some(range)) = (self.errors(&subject), self.range(device)) else {
            return;
        };
        let is_clean = history.last_seen().is_some_and(|last| last < since);
        let over: Vec<Class> = classes
            .iter()
            .copied()
            .filter(|class| is_clean && range.covers(history, *class))
            .collect();
        self.forget_classes(&subject, &over);
    }

    fn range(&self, device: &str) -> Option<Range> {
        let part = self.device(device)?;
        let whole = match &part.layer {
            Layer::Partition { .. } => self.device(part.underlying.first()?)?,
            Layer::Disk | Layer::Loop { .. } => part,
            _ => return None,
        };
        Some(Range::of(part, whole))
    }
}

/// The part of a drive that was read.
struct Range {
    part: String,
    whole: String,
    /// In sectors of the whole.
    start: u64,
    end: u64,
    is_nearly_all: bool,
}

const SECTOR: u64 = 512;

impl Range {
    fn of(part: &BlockDevice, whole: &BlockDevice) -> Range {
        let start = match part.layer {
            Layer::Partition { start_bytes, .. } => start_bytes,
            _ => 0,
        };
        Range {
            part: part.name.clone(),
            whole: whole.name.clone(),
            start: start / SECTOR,
            end: (start + part.size_bytes) / SECTOR,
            // The rest are a boot partition and the table.
            is_nearly_all: part.size_bytes >= whole.size_bytes / 10 * 9,
        }
    }

    /// Whether all errors of this class were in the range. Errors without a sector may have been
    /// anywhere.
    fn covers(&self, history: &ErrorHistory, class: Class) -> bool {
        let Some(tally) = history.get(class) else {
            return false;
        };
        let is_inside = |failed: &FailedSector| {
            failed.device == self.part
                || failed.device == self.whole && (self.start..self.end).contains(&failed.sector)
        };
        let all_named = !tally.sectors.is_empty() && tally.more_sectors == 0;
        tally.sectors.iter().all(is_inside) && (all_named || self.is_nearly_all)
    }
}
