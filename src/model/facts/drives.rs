//! Drives that are present or were removed, with the volumes that they carried when removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::block::{Inventory, Layer};
use crate::drive::DriveFacts;
use crate::facts::raid_controllers::slot_of;
use crate::facts::{Facts, KnownDrive, drive_use};
use crate::membership;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_text::duration::elapsed;

/// The mounts and arrays of a removed drive are removed within moments (by udev and systemd),
/// reported before or after the drive's own removal.
pub(crate) const REMOVAL_WINDOW: Duration = Duration::from_secs(2);

impl Facts {
    /// Only the time has changed.
    pub(super) fn update_last_seen(&mut self, now: Timestamp) {
        for known in self.drives.values_mut().filter(|known| known.missing_since.is_none()) {
            known.last_seen = now;
        }
    }

    pub(super) fn update_drives(&mut self, now: Timestamp) {
        let Some(inventory) = self.inventory.value().cloned() else {
            return;
        };
        let inventory = &*inventory;
        let mut hidden = self.raid_controllers.without_own_device(&inventory.drives);
        let is_member = |known: &KnownDrive| known.facts.location.raid_controller.is_some();
        self.identify_drives(&mut hidden, Vec::new(), is_member, now);
        let in_slot = |member: &DriveFacts| Some((slot_of(member)?, member.id.clone()));
        let slots: BTreeMap<(String, String), DriveId> =
            hidden.iter().filter_map(in_slot).collect();
        self.raid_controllers.ids.clone_from(&slots);
        let members = membership::by_drive(inventory);
        let mut present = BTreeSet::new();
        for facts in inventory.drives.iter().chain(&hidden) {
            present.insert(facts.id.clone());
            // Until now, if it is awake now.
            let was_asleep = self.drives.get(&facts.id).is_some_and(|it| it.facts.asleep);
            if facts.asleep || was_asleep {
                self.smart.note_left_alone(&facts.id, now);
            }
            let troubled = facts.has_abnormal_state();
            match self.drives.get_mut(&facts.id) {
                Some(known) => {
                    known.abnormal_state_since =
                        troubled.then(|| known.abnormal_state_since.unwrap_or(now));
                    known.last_seen = now;
                    known.missing_since = None;
                    known.last_use = None;
                    known.facts = facts.clone();
                }
                None => {
                    let known = KnownDrive {
                        facts: facts.clone(),
                        first_seen: now,
                        last_seen: now,
                        missing_since: None,
                        abnormal_state_since: troubled.then_some(now),
                        volumes: Vec::new(),
                        in_use: false,
                        signatures: Vec::new(),
                        member_of: Vec::new(),
                        content: BTreeSet::new(),
                        medium_size: 0,
                        released: None,
                        last_use: None,
                        failed: None,
                        moved: None,
                    };
                    self.drives.insert(facts.id.clone(), known);
                }
            }
            if let Some(known) = self.drives.get_mut(&facts.id) {
                known.signatures = drive_use::signatures(inventory, facts);
                let member_of = members.get(&facts.id).into_iter().flatten();
                known.member_of = member_of.cloned().collect();
                // What is put into an empty reader is compared with what was there.
                if facts.size_bytes > 0 {
                    known.medium_size = facts.size_bytes;
                    known.content = drive_use::contents(inventory, facts);
                }
            }
        }
        let held = drives_with_holders(inventory);
        for (id, known) in &mut self.drives {
            if present.contains(id) {
                continue;
            }
            if let Some(controller) = &known.facts.location.raid_controller {
                // A RAID member is missing if its controller's list does not contain it. Before the
                // first list, nothing is missing.
                if !self.raid_controllers.has_listed(controller) {
                    continue;
                }
                // A drive in the same slot is its replacement: the removal is no longer a loss.
                let slot = known.facts.location.slot.clone();
                known.in_use =
                    !slot.is_some_and(|slot| slots.contains_key(&(controller.clone(), slot)));
            }
            if known.missing_since.is_none() {
                known.missing_since = Some(now);
                if let Some((volumes, at)) = self.recent_removals.drive_volumes.get(id)
                    && elapsed(*at, now) <= REMOVAL_WINDOW
                {
                    known.in_use = true;
                    known.volumes.extend(volumes.iter().cloned());
                    known.volumes.sort();
                    known.volumes.dedup();
                }
                if !known.in_use {
                    known.last_use = drive_use::at_removal(
                        &known.facts,
                        &known.signatures,
                        known.released,
                        inventory,
                        &self.disk_io,
                        now,
                    );
                    known.in_use = known.last_use.is_some();
                }
            }
        }
        for (id, known) in &mut self.drives {
            if known.missing_since.is_none() && known.facts.location.raid_controller.is_none() {
                let is_mounted = |volume: &VolumeId| {
                    self.volumes.get(volume).is_some_and(|known| !known.retained)
                };
                let in_use = held.contains(id) || known.volumes.iter().any(is_mounted);
                let removals = &mut self.recent_removals.drive_volumes;
                set_drive_volumes(removals, id, known, in_use, None, now);
            }
        }
        self.update_arrays();
        self.update_detached_drives();
    }

    /// Updates the volumes of each present drive, after the volumes have changed. A missing drive
    /// keeps its volumes.
    pub(super) fn update_drive_volumes(&mut self, now: Timestamp) {
        let held = self.inventory().map(drives_with_holders).unwrap_or_default();
        let mut on: BTreeMap<&DriveId, Vec<VolumeId>> = BTreeMap::new();
        for (id, volume) in &self.volumes {
            for drive in &volume.facts.drive_ids {
                on.entry(drive).or_default().push(id.clone());
            }
        }
        for (id, known) in &mut self.drives {
            if known.missing_since.is_none() && known.facts.location.raid_controller.is_none() {
                let volumes = on.remove(id).unwrap_or_default();
                let in_use = held.contains(id) || !volumes.is_empty();
                let removals = &mut self.recent_removals.drive_volumes;
                set_drive_volumes(removals, id, known, in_use, Some(volumes), now);
            }
        }
        self.recent_removals.drive_volumes.retain(|_, (_, at)| elapsed(*at, now) <= REMOVAL_WINDOW);
        self.update_detached_drives();
    }

    /// A detached drive is missed only by the volumes that records still require.
    fn update_detached_drives(&mut self) {
        let volumes = &self.volumes;
        let is_required = |volume: &VolumeId| {
            let known = volumes.get(volume);
            known.is_some_and(|known| known.facts.driver.is_some())
        };
        let detached = |known: &&mut KnownDrive| known.was_detached();
        for known in self.drives.values_mut().filter(detached) {
            known.volumes.retain(is_required);
            known.in_use = !known.volumes.is_empty();
        }
    }
}

fn set_drive_volumes(
    loads: &mut BTreeMap<DriveId, (Vec<VolumeId>, Timestamp)>,
    id: &DriveId,
    known: &mut KnownDrive,
    in_use: bool,
    volumes: Option<Vec<VolumeId>>,
    now: Timestamp,
) {
    let volumes = volumes.unwrap_or_else(|| known.volumes.clone());
    let lost_some = known.volumes.iter().any(|volume| !volumes.contains(volume));
    if known.in_use && (!in_use || lost_some) {
        let recent = loads.get(id).filter(|(_, at)| elapsed(*at, now) <= REMOVAL_WINDOW);
        let mut before = recent.map(|(volumes, _)| volumes.clone()).unwrap_or_default();
        before.extend(known.volumes.iter().cloned());
        loads.insert(id.clone(), (before, now));
    }
    if known.in_use && !in_use {
        known.released = Some(now);
    }
    known.in_use = in_use;
    known.volumes = volumes;
}

/// Drives that an array, a device-mapper table, a bcache or DRBD 9 holds (sysfs holders), and members
/// of imported ZFS pools.
fn drives_with_holders(inventory: &Inventory) -> BTreeSet<DriveId> {
    let mut held = BTreeSet::new();
    for device in inventory.devices.values() {
        let is_holder = matches!(
            device.layer,
            Layer::Md { .. } | Layer::Dm { .. } | Layer::Bcache | Layer::ZfsPool { .. }
        ) || device.name.starts_with("drbd");
        // dm-multipath holds its paths and is the drive itself: it alone does not count as use.
        if !is_holder || device.is_multipath() {
            continue;
        }
        for name in &device.underlying {
            held.extend(inventory.drives_below(name).into_iter().cloned());
        }
    }
    held
}
