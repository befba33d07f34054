//! Which drive is the new one, and whether it is fit: what is on it, its size, its sectors, its age.

use crate::block::{BlockDevice, Layer};
use crate::drive::DriveKind;
use crate::facts::KnownDrive;
use crate::membership;
use crate::replacement::{Guide, Step, StepKind, drive_words};
use crate::stack::MdState;
use diskvitals_finding::ids::DriveId;

/// A drive that a factory has tested has run for less.
const NEW_HOURS: u64 = 48;

impl<'a> Guide<'a> {
    /// The one that a person has named; the one that is being filled already; the one in the place of
    /// the drive that is out; or the only one that nothing uses.
    pub(super) fn new_drive(&self, with: Option<&DriveId>) -> Result<Option<&'a KnownDrive>, Step> {
        if let Some(id) = with {
            let new = self.facts.drives.get(id).filter(|it| it.missing_since.is_none());
            return match new {
                Some(new) if new.facts.id != *self.id() => Ok(Some(new)),
                _ => Err(Step::new(
                    StepKind::Unfit,
                    "The new drive is not there, or is the old one.",
                )),
            };
        }
        let present = || {
            let drives = self.facts.drives.values();
            drives.filter(|it| it.missing_since.is_none() && it.facts.id != *self.id())
        };
        let filling = self.filling_drive().and_then(|id| self.facts.drives.get(id));
        let in_its_place = || {
            let (place, location) = (&self.known.facts.place, &self.known.facts.location);
            present().find(|it| {
                let slot = (&it.facts.location.enclosure, &it.facts.location.slot);
                self.is_missing()
                    && (it.facts.place == *place
                        || location.slot.is_some() && slot == (&location.enclosure, &location.slot))
            })
        };
        if let Some(new) = filling.or_else(in_its_place) {
            return Ok(Some(new));
        }
        let is_candidate = |it: &&KnownDrive| {
            let is_disk = matches!(
                it.facts.kind,
                DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme | DriveKind::Virtual
            );
            is_disk && !it.facts.removable && self.is_unused(&it.facts.id)
        };
        let unused: Vec<&KnownDrive> = present().filter(is_candidate).collect();
        match unused.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            several => {
                let names: Vec<String> = several.iter().map(|it| drive_words(it)).collect();
                Err(Step::new(
                    StepKind::Insert,
                    format!(
                        "Nothing uses {}. Say which one is the new drive: --with NAME.",
                        names.join(", ")
                    ),
                ))
            }
        }
    }

    /// The drive whose device an array of the old one fills, or will fill.
    fn filling_drive(&self) -> Option<&'a DriveId> {
        let arrays = self.arrays_of_drive().into_iter();
        let waiting = arrays.flat_map(|(_, md): (&str, &MdState)| {
            md.members.iter().filter(|member| !member.is("in_sync") && !member.is("faulty"))
        });
        let mut drives = waiting.filter_map(|member| self.inventory.devices.get(&member.device));
        drives.find_map(|device| {
            let id = self.inventory.drives_below(&device.name).into_iter().next()?;
            (id != self.id()).then_some(id)
        })
    }

    /// Neither it nor a partition of it holds anything, or is used; a physical volume that is in no
    /// group may be ours.
    fn is_unused(&self, drive: &DriveId) -> bool {
        let devices = self.devices_of(drive);
        !devices.is_empty() && devices.iter().all(|device| self.holds(device).is_empty())
    }

    /// What is on a device; `not read` if that is not known.
    fn holds(&self, device: &BlockDevice) -> Vec<String> {
        let name = &device.name;
        let inventory = self.inventory;
        let mut holds = membership::of_device(inventory, device);
        let others = inventory.devices.values();
        let above = others.filter(|it| {
            it.underlying.contains(name) && !matches!(it.layer, Layer::Partition { .. })
        });
        holds.extend(above.map(|it| it.name.clone()));
        let known = self.facts.volumes.values();
        if known.into_iter().any(|it| it.facts.devices.contains(name)) {
            holds.push("a volume".to_owned());
        }
        if let Some(path) = inventory.swaps.get(name) {
            holds.push(format!("swap {path}"));
        }
        if holds.is_empty()
            && let Some(kind) = &device.fs_type
        {
            holds.push(kind.clone());
        }
        let has_partitions = inventory
            .devices
            .values()
            .any(|it| it.underlying.contains(name) && matches!(it.layer, Layer::Partition { .. }));
        let read = inventory.signatures.get(name);
        if holds.is_empty() && !has_partitions && read.is_none_or(|found| !found.is_empty()) {
            holds.push("something that is not read".to_owned());
        }
        holds
    }

    /// What is on it that the old drive's own stacks have not put there.
    pub(super) fn unfit(&self, new: &KnownDrive) -> Option<Step> {
        let is_ours = |device: &BlockDevice| {
            self.is_filled_by_its_arrays(device)
                || device.fs_type.as_deref() == Some("LVM2_member") && self.has_lvm()
        };
        let devices = self.devices_of(&new.facts.id);
        if devices.is_empty() {
            let text = format!("{} has no block device.", drive_words(new));
            return Some(Step::new(StepKind::Unfit, text));
        }
        let devices = devices.into_iter().filter(|device| !is_ours(device));
        let foreign: Vec<String> = devices
            .flat_map(|device| {
                self.holds(device).into_iter().map(|it| format!("{} holds {it}", device.name))
            })
            .collect();
        (!foreign.is_empty()).then(|| {
            Step::new(
                StepKind::Unfit,
                format!(
                    "{} is not empty: {}. Nothing is printed that writes to it. Take another drive, or find out whose data it is.",
                    drive_words(new),
                    foreign.join(", ")
                ),
            )
        })
    }

    /// What to know before it is used.
    pub(super) fn warnings(&self, new: &KnownDrive) -> Vec<String> {
        let mut warnings = Vec::new();
        let name = &new.facts.name;
        let sectors = |known: &KnownDrive| known.medium_size.max(known.facts.size_bytes) / 512;
        let (old_size, new_size) = (sectors(self.known), sectors(new));
        if new_size < old_size {
            warnings.push(format!(
                "{name} is smaller by {} sectors of 512 bytes ({new_size}, the old one {old_size}): it is too small for what fills the old drive",
                old_size - new_size
            ));
        }
        let (old_block, new_block) =
            (self.known.facts.logical_block_size, new.facts.logical_block_size);
        if old_block != new_block {
            warnings.push(format!(
                "{name} has sectors of {new_block} bytes, the old one of {old_block}: not every array takes it"
            ));
        }
        let smart = self.facts.smart.get(&new.facts.id);
        let report = smart.and_then(|it| it.history.last.as_ref()).map(|(_, report)| report);
        if let Some(line) = report.and_then(|it| it.drive_managed_smr()) {
            warnings.push(format!(
                "{name} has drive-managed SMR ({line}): a rebuild onto it may take days, or fail"
            ));
        }
        if let Some(hours) = report.and_then(|it| it.power_on_hours).filter(|it| *it > NEW_HOURS) {
            warnings.push(format!("{name} is not new: it has run for {hours} hours"));
        }
        warnings
    }
}
