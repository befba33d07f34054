//! Errors whose cause was repaired no longer count: what is counted begins anew.
//!
//! In: the subject and the reason of a finding that a person calls repaired, or a read of a whole device
//! that has ended without an error. Out: classes of errors, removed from the history. What a drive
//! counts itself (SMART) is not touched.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::block::{Layer, LayerState};
use crate::facts::corruption::of_filesystem;
use crate::facts::{Facts, KnownVolume};
use diskvitals_finding::Subject;
use diskvitals_finding::reason::{LoggedErrors, Reason};
use diskvitals_kernel_log::error_history::{ErrorHistory, FailedSector};
use diskvitals_kernel_log::event::Class;

/// Whether a repair of the cause ends such a finding: it rests on errors of the past.
pub fn ends(subject: &Subject, reason: Reason) -> bool {
    reason == Reason::FilesystemCorrupted || !classes(subject, reason).is_empty()
}

/// The incidents that such a finding rests on.
pub(crate) fn classes(subject: &Subject, reason: Reason) -> &'static [Class] {
    let Some(errors) = reason.logged_errors() else {
        return &[];
    };
    match (errors, subject) {
        (LoggedErrors::Io, Subject::Drive(_)) => &[Class::Io],
        // Errors of its own device; those of its drives belong to the drives.
        (LoggedErrors::Io, _) => &[Class::Io, Class::Medium, Class::Timeout],
        (LoggedErrors::Medium, _) => &[Class::Medium],
        (LoggedErrors::Timeout, _) => &[Class::Timeout],
        (LoggedErrors::Reset, _) => &[Class::Reset],
        (LoggedErrors::Transport, _) => &[Class::Transport],
        (LoggedErrors::ArrayState, _) => &[Class::ArrayState],
        (LoggedErrors::Filesystem, Subject::Volume(_)) => &[Class::FsError],
        (LoggedErrors::Filesystem, Subject::Device(_)) => &[Class::FsError, Class::FsShutdown],
        (LoggedErrors::Filesystem, Subject::Drive(_) | Subject::Source(_))
        | (LoggedErrors::Corruption, _) => &[],
    }
}

impl Facts {
    pub fn forget_repaired(&mut self, subject: &Subject, reason: Reason) {
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
            Arc::make_mut(memory).tallies.retain(|class, _| !classes.contains(class));
        }
        if memory.is_empty() {
            self.kernel.errors.remove(subject);
        }
    }

    /// The errors of the members in sync, and those of the array itself if each of its members is one.
    pub(super) fn forget_read_array(&mut self, array: &str, since: Timestamp) {
        const CLASSES: [Class; 3] = [Class::Io, Class::Medium, Class::Timeout];
        let Some(state) = self.layer_state(array) else {
            return;
        };
        let is_complete = state.is_intact() == Some(true);
        let inventory = self.inventory();
        let members = state.stack().zip(inventory).map(|(stack, it)| stack.members(it, array));
        if is_complete && self.had_no_error_below(array, since) {
            self.forget_own(&[array.to_owned()], &CLASSES, since);
        }
        for member in members.unwrap_or_default() {
            self.forget_read(&member, &CLASSES, since);
        }
    }

    pub(super) fn forget_scrubbed(&mut self, device: &str, since: Timestamp) {
        const CLASSES: [Class; 2] = [Class::Io, Class::Timeout];
        let btrfs = self.inventory().and_then(|it| it.btrfs_of(device));
        let devices = btrfs.map(|it| it.devices.clone()).unwrap_or_default();
        if devices.iter().all(|device| self.had_no_error_below(device, since)) {
            self.forget_own(&devices, &CLASSES, since);
        }
        for device in &devices {
            self.forget_read(device, &CLASSES, since);
        }
    }

    fn had_no_error_below(&self, device: &str, since: Timestamp) -> bool {
        let drives = self.inventory().map(|it| it.drives_below(device));
        let mut drives = drives.into_iter().flatten();
        drives.all(|drive| {
            let history = self.errors(&Subject::Drive(drive.clone()));
            let last = history.and_then(ErrorHistory::last_seen);
            last.is_none_or(|last| last < since)
        })
    }

    /// Errors of these devices themselves, of the volume on them, and of its filesystem while it is not
    /// mounted.
    fn forget_own(&mut self, devices: &[String], classes: &[Class], since: Timestamp) {
        let is_on = |known: &&KnownVolume| {
            let device = known.facts.device.as_ref();
            device.is_some_and(|name| devices.contains(name))
        };
        let volumes = self.volumes.values().filter(is_on);
        let mut subjects: BTreeSet<Subject> =
            volumes.map(|known| Subject::Volume(known.facts.id.clone())).collect();
        for device in devices {
            subjects.insert(Subject::Device(device.clone()));
            subjects.extend(self.device_uuid(device).map(|uuid| of_filesystem(uuid)));
        }
        for subject in subjects {
            let last = self.errors(&subject).and_then(ErrorHistory::last_seen);
            if last.is_some_and(|last| last < since) {
                self.forget_classes(&subject, classes);
            }
        }
    }

    /// `device`: a whole drive, a partition of it, or linear pieces of these.
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

    fn range(&self, name: &str) -> Option<Range> {
        let mut range = Range::default();
        let device = self.device(name)?;
        let Layer::Dm { .. } = device.layer else {
            self.add_piece(name, 0, u64::MAX, &mut range)?;
            return Some(range);
        };
        let Some(LayerState::Linear { extents }) = self.layer_state(name) else {
            return None;
        };
        for extent in extents {
            let is_it = |below: &&String| self.device(below).is_some_and(|it| it.dev == extent.dev);
            let below = device.underlying.iter().find(is_it)?;
            let end = extent.offset.checked_add(extent.length)?;
            self.add_piece(below, extent.offset, end, &mut range)?;
        }
        Some(range)
    }

    /// Adds the sectors from `start` to `end` of a partition or drive, by its own name and that of its
    /// drive. None for a part of any other layer.
    fn add_piece(&self, device: &str, start: u64, end: u64, range: &mut Range) -> Option<()> {
        let device = self.device(device)?;
        let end = end.min(device.size_bytes / SECTOR);
        let length = end.checked_sub(start)?;
        range.pieces.push((device.name.clone(), start, end));
        match &device.layer {
            Layer::Partition { start_bytes, .. } => {
                let from = start_bytes / SECTOR;
                self.add_piece(device.underlying.first()?, from + start, from + end, range)
            }
            Layer::Disk | Layer::Loop { .. } => {
                range.drive_sectors = device.size_bytes / SECTOR;
                range.read_sectors += length;
                Some(())
            }
            _ => None,
        }
    }
}

const SECTOR: u64 = 512;

/// The parts of a drive that were read.
#[derive(Default)]
struct Range {
    /// A device, and the first sector of it and the one after the last.
    pieces: Vec<(String, u64, u64)>,
    read_sectors: u64,
    drive_sectors: u64,
}

impl Range {
    /// Whether all errors of this class were in the range. Errors without a sector may have been
    /// anywhere.
    fn covers(&self, history: &ErrorHistory, class: Class) -> bool {
        let Some(tally) = history.get(class) else {
            return false;
        };
        let is_inside = |failed: &FailedSector| {
            let mut pieces = self.pieces.iter();
            pieces.any(|(device, start, end)| {
                failed.device == *device && (*start..*end).contains(&failed.sector)
            })
        };
        let all_named = !tally.sectors.is_empty() && tally.more_sectors == 0;
        // The rest are a boot partition and the table.
        let is_nearly_all = self.read_sectors >= self.drive_sectors / 10 * 9;
        tally.sectors.iter().all(is_inside) && (all_named || is_nearly_all)
    }
}
