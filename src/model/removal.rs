//! Whether a drive can be pulled now: whether all that is on it has a sound copy elsewhere. Pure.
//!
//! In: the facts, and which drives are BAD. Out: "yes", "no" or "not known", with a reason for each
//! thing that stands against it. What is not read, or not understood, is never a "yes". Who may pull
//! it, and what to type before, is not decided here.

use std::collections::BTreeSet;

use crate::assess::ActiveFindings;
use crate::block::{BlockDevice, Layer, LayerState};
use crate::facts::{Facts, KnownDrive, drive_use};
use crate::label;
use crate::membership;
use crate::stack::{StorageStack, action_text};
use crate::volume::{Impact, Stack};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;

/// In ascending order of what stands against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CanBePulled {
    Yes,
    NotKnown,
    No,
}

/// Whether a drive can be pulled, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub answer: CanBePulled,
    /// Sorted, without a "yes"; empty if the answer is "yes".
    pub objections: Vec<(CanBePulled, String)>,
}

/// None: no such drive is known. `active`: the findings; a BAD drive holds no sound copy.
pub(crate) fn removal(facts: &Facts, active: &ActiveFindings, drive: &DriveId) -> Option<Removal> {
    let known = facts.drives.get(drive)?;
    let bad = active.iter().filter(|(_, finding)| finding.level.0 == Severity::Bad);
    let bad = bad.filter_map(|((subject, _), _)| match subject {
        Subject::Drive(id) => Some(id),
        _ => None,
    });
    let mut judge =
        Judge { facts, drive, unsound: bad.chain([drive]).collect(), objections: BTreeSet::new() };
    judge.drive(known);
    judge.volumes();
    judge.devices(known);
    // The worst first.
    let objections: Vec<(CanBePulled, String)> = judge.objections.into_iter().rev().collect();
    let answer = objections.first().map_or(CanBePulled::Yes, |(answer, _)| *answer);
    Some(Removal { answer, objections })
}

struct Judge<'a> {
    facts: &'a Facts,
    drive: &'a DriveId,
    /// The drive itself, and those that are BAD: they hold no sound copy.
    unsound: BTreeSet<&'a DriveId>,
    objections: BTreeSet<(CanBePulled, String)>,
}

impl Judge<'_> {
    fn no(&mut self, why: String) {
        self.objections.insert((CanBePulled::No, why));
    }

    fn not_known(&mut self, why: String) {
        self.objections.insert((CanBePulled::NotKnown, why));
    }

    fn drive(&mut self, known: &KnownDrive) {
        let location = &known.facts.location;
        if let Some(driver) = &location.array_driver {
            self.no(format!("it is an array of a RAID controller ({driver}), not one drive"));
        }
        if let Some(controller) = &location.raid_controller {
            self.not_known(format!("{controller} knows which of its arrays need this drive"));
        } else if known.missing_since.is_none() && known.facts.devices.is_empty() {
            self.not_known("the kernel lists no block device of it".to_owned());
        }
        if known.missing_since.is_some() {
            self.not_known("the kernel no longer lists it".to_owned());
        }
        if drive_use::is_written_raw(self.facts, known) {
            self.not_known("something unknown writes to it".to_owned());
        }
        if let Some(error) = self.facts.inventory.error() {
            self.not_known(format!("the devices could not be read again: {error}"));
        }
        if self.facts.mounts.value().is_none() {
            self.not_known("the mount table has not been read".to_owned());
        }
    }

    /// None: the stack does not stand on the drive.
    fn impact(&self, stack: &Stack) -> Option<Impact> {
        match stack.impact(&|id| id == self.drive) {
            Impact::None => None,
            _ => Some(stack.impact(&|id| self.unsound.contains(id))),
        }
    }

    fn volumes(&mut self) {
        let Some(inventory) = self.facts.inventory() else {
            self.not_known("the devices have not been read".to_owned());
            return;
        };
        for known in self.facts.volumes.values() {
            let volume = &known.facts;
            let name = label::volume(inventory, volume);
            match self.impact(&volume.stack) {
                Some(Impact::Exposed) => self.no(no_copy(&name)),
                Some(Impact::Covered | Impact::None) => {}
                Some(Impact::Unknown) => self.not_known(dependence_unknown(&name)),
                None if volume.stack == Stack::Nothing && volume.drive_ids.contains(self.drive) => {
                    self.not_known(dependence_unknown(&name));
                }
                None => {}
            }
        }
        for fs in &inventory.btrfs {
            let mut below = |name: &str| self.facts.device_stack(name).unwrap_or_default();
            let stack = fs.tree(inventory, "", &mut below).unwrap_or_default();
            let Some(impact) = self.impact(&stack) else { continue };
            let name = format!("btrfs {}", fs.label.as_ref().unwrap_or(&fs.uuid));
            match impact {
                Impact::Exposed => self.no(no_copy(&name)),
                Impact::Unknown => self.not_known(dependence_unknown(&name)),
                Impact::Covered | Impact::None => {}
            }
            self.running(&name, fs);
        }
    }

    /// A check and a scrub only read.
    fn running(&mut self, name: &str, stack: &dyn StorageStack) {
        if let Some(action) = stack.running()
            && !matches!(action, "check" | "scrub")
        {
            self.no(format!("{name}: {} runs", action_text(Some(action))));
        }
    }

    fn devices(&mut self, known: &KnownDrive) {
        let Some(inventory) = self.facts.inventory() else { return };
        let own: Vec<&str> = known.facts.devices.iter().map(|it| it.name.as_str()).collect();
        for device in inventory.devices.values() {
            let below = inventory.devices_below(&device.name);
            if !own.iter().any(|name| below.contains(name)) {
                continue;
            }
            if let Some(path) = inventory.swaps.get(&device.name) {
                let stack = self.facts.device_stack(&device.name).unwrap_or_default();
                if !matches!(self.impact(&stack), Some(Impact::Covered)) {
                    self.no(format!("swap on {path} is active"));
                }
            }
            match &device.layer {
                Layer::Disk | Layer::Partition { .. } => self.content(device),
                _ => self.layer(device),
            }
        }
    }

    /// What stands on the drive: an array, a mapping, a pool.
    fn layer(&mut self, device: &BlockDevice) {
        let Some(inventory) = self.facts.inventory() else { return };
        let name = label::device(inventory, &device.name);
        let layer = self.facts.layers.get(&device.name);
        let state = layer.and_then(|it| it.state.last_known());
        let is_current = layer.is_some_and(|it| it.stuck.is_none() && it.state.value().is_some());
        if device.layer.has_state() && !is_current {
            self.not_known(format!("the state of {name} is not known"));
        }
        // Also of a member that holds no current data: its neighbors are busy.
        match state {
            Some(LayerState::Md(md)) if md.is_resync_due => {
                self.no(format!("{name} is not yet synchronized"));
            }
            Some(LayerState::Cache(cache)) if cache.is_dirty => {
                self.no(format!("{name} has writes in its cache that its disk does not have yet"));
            }
            Some(LayerState::Zfs(pool)) => match &pool.status {
                Some(status) if status.is_resilvering() => {
                    self.no(format!("{name}: resilver runs"));
                }
                Some(_) if pool.status_error.is_none() => {}
                _ => self.not_known(format!("what `zpool status` says of {name} is not known")),
            },
            _ => {}
        }
        if let Some(stack) = state.and_then(LayerState::stack) {
            self.running(&name, stack);
        }
        let stack = self.facts.device_stack(&device.name).unwrap_or_default();
        match self.impact(&stack) {
            Some(Impact::Exposed) => self.exposed(device, &name),
            Some(Impact::Unknown) => self.not_known(dependence_unknown(&name)),
            _ => {}
        }
    }

    /// Only what nothing else stands on counts: an array above may have the copy.
    fn exposed(&mut self, device: &BlockDevice, name: &str) {
        let Some(inventory) = self.facts.inventory() else { return };
        let has_above =
            inventory.devices.values().any(|other| other.underlying.contains(&device.name));
        if has_above || inventory.btrfs_of(&device.name).is_some() {
            return;
        }
        let members = membership::of_device(inventory, device);
        match members.is_empty() {
            true => self.no(no_copy(name)),
            false => self.elsewhere(name, &members),
        }
    }

    /// A pool or a cluster may have copies on other nodes, or in what is not active here.
    fn elsewhere(&mut self, name: &str, members: &[String]) {
        let members = members.join(", ");
        self.not_known(format!("{name} belongs to {members}, whose copies are not seen here"));
    }

    /// It was taken out of an md array that runs here on sound members: its superblock stays.
    fn is_former_member(&self, device: &BlockDevice) -> bool {
        let Some(inventory) = self.facts.inventory() else { return false };
        let is_md = device.fs_type.as_deref() == Some("linux_raid_member");
        let Some(uuid) = device.fs_uuid.as_ref().filter(|_| is_md) else { return false };
        self.facts.layers.iter().any(|(name, layer)| {
            let state = layer.state.value().filter(|_| layer.stuck.is_none());
            let Some(LayerState::Md(md)) = state else { return false };
            let is_running =
                !matches!(md.array_state.as_str(), "inactive" | "clear" | "broken" | "suspended");
            let array = inventory.devices.get(name).filter(|_| is_running && !md.is_resync_due);
            let mut members = array.into_iter().flat_map(|it| &it.underlying);
            let is_of_array = |it: &String| {
                inventory.devices.get(it).is_some_and(|it| it.fs_uuid.as_ref() == Some(uuid))
            };
            members.any(is_of_array) && {
                let stack = self.facts.device_stack(name).unwrap_or_default();
                let impact = stack.impact(&|id| self.unsound.contains(id));
                matches!(impact, Impact::None | Impact::Covered)
            }
        })
    }

    /// What is on the drive or a partition, by its signature, where nothing that is active explains it.
    fn content(&mut self, device: &BlockDevice) {
        let Some(inventory) = self.facts.inventory() else { return };
        let name = &device.name;
        if device.fs_type.as_deref() == Some("swsuspend") {
            self.no(format!("{name} holds a hibernated system"));
            return;
        }
        let is_above = |other: &&BlockDevice| other.underlying.contains(name);
        let mut above = inventory.devices.values().filter(is_above);
        if device.fs_type.as_deref() == Some("LVM2_member") && above.clone().next().is_some() {
            // The kernel lists no logical volume that is not active.
            self.not_known(format!(
                "logical volumes on {name} that are not active are not seen: `lvs -a -o +devices` lists them"
            ));
        }
        let is_used = above.next().is_some()
            || inventory.swaps.contains_key(name)
            || inventory.btrfs_of(name).is_some()
            || self.facts.volumes.values().any(|it| it.facts.devices.contains(name));
        if is_used {
            return;
        }
        let members = membership::of_device(inventory, device);
        let read = inventory.signatures.get(name);
        if self.is_former_member(device) {
            return;
        }
        if !members.is_empty() {
            self.elsewhere(name, &members);
        } else if let Some(kind) = &device.fs_type {
            self.not_known(format!("{name} holds {kind} that is not in use"));
        } else if read.is_none_or(|found| !found.is_empty()) {
            self.not_known(format!("what {name} holds is not known"));
        }
    }
}

fn dependence_unknown(name: &str) -> String {
    format!("how {name} depends on it is not known")
}

fn no_copy(name: &str) -> String {
    format!("no sound copy of {name} is known elsewhere")
}

#[cfg(test)]
mod tests;
