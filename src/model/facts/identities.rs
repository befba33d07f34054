//! Which drive of a scan is which known drive.
//!
//! A device chooses what it calls itself: a USB stick may have the serial number of a disk, and
//! cheap bridges all have the same. So history belongs to an identity at its place. A drive keeps
//! its id where it was last seen, whoever else uses the same identity. It takes its id along to
//! another place only if nothing else could be meant.
//!
//! In: the drives of one scan, and the known ones. Out: an id for each drive of the scan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::block::Inventory;
use crate::model::drive::{DriveFacts, Transport};
use crate::model::facts::raid_controllers::is_passed_through;
use crate::model::facts::{Facts, KnownDrive, elapsed};
use crate::model::ids::DriveId;
use crate::model::policy::VolumeSettings;
use crate::model::source_update::SourceUpdate;

/// After a start, drives appear in any order, and some need minutes. So long, a drive that turned up
/// in another place may still prove to be another one, and clears no finding.
const MOVE_SETTLES: Duration = Duration::from_secs(600);

/// A drive's last move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub from: DriveId,
    pub at: Timestamp,
}

impl KnownDrive {
    pub(crate) fn has_just_moved(&self, now: Timestamp) -> bool {
        let moved = self.moved.as_ref();
        moved.is_some_and(|moved| elapsed(moved.at, now) < MOVE_SETTLES)
    }

    /// An older version stored no `place`.
    fn place(&self) -> DriveId {
        match (self.facts.place.as_str(), &self.facts.location.path) {
            ("", Some(path)) => DriveId::new(format!("path:{path}")),
            _ => self.facts.place.clone(),
        }
    }

    fn has(&self, identity: &DriveId) -> bool {
        self.facts.id == *identity || self.facts.identities.contains(identity)
    }

    /// Whether this may be the drive: both are without an identity, or have one in common.
    fn may_be(&self, drive: &DriveFacts) -> bool {
        match drive.identities.is_empty() {
            true => self.facts.id == drive.place,
            false => drive.identities.iter().any(|identity| self.has(identity)),
        }
    }

    fn resembles(&self, drive: &DriveFacts) -> bool {
        let own = &self.facts;
        (own.transport, own.kind, own.size_bytes) == (drive.transport, drive.kind, drive.size_bytes)
            && (&own.model, &own.vendor) == (&drive.model, &drive.vendor)
    }

    /// The paths of one drive come and go, and a network has no places.
    fn moves(&self, drive: &DriveFacts) -> bool {
        let has_one_place = |it: &DriveFacts| it.devices.len() < 2 && !it.transport.is_remote();
        self.place() != drive.place
            && !self.place().as_str().is_empty()
            && self.facts.id != self.place()
            && has_one_place(&self.facts)
            && has_one_place(drive)
            && drive.transport != Transport::Loop
    }
}

impl Facts {
    /// Gives the drives that the kernel lists the ids under which they are known.
    pub(super) fn identify(&mut self, inventory: &mut Inventory, now: Timestamp) {
        let is_listed = |known: &KnownDrive| known.facts.location.raid_controller.is_none();
        self.identify_drives(&mut inventory.drives, is_listed, now);
        inventory.drives.sort_by(|a, b| a.id.cmp(&b.id));
        for drive in &inventory.drives {
            for node in &drive.devices {
                if let Some(device) = inventory.devices.get_mut(&node.name) {
                    device.drive = Some(drive.id.clone());
                }
            }
        }
    }

    /// `is_own`: whether the known drive would be in this list if it were present.
    pub(super) fn identify_drives(
        &mut self,
        drives: &mut [DriveFacts],
        is_own: impl Fn(&KnownDrive) -> bool,
        now: Timestamp,
    ) {
        let ids = Assignment::new(&self.drives, drives, &is_own, now).ids;
        for (drive, id) in drives.iter_mut().zip(&ids) {
            if drive.id != *id {
                drive.id_stable = *id != drive.place && drive.transport != Transport::Loop;
                drive.id = id.clone();
            }
            self.note_move(drive, now);
        }
        // The same device under a former id: the store was read after the first scan.
        let assigned: BTreeSet<&DriveId> = ids.iter().collect();
        let places: BTreeMap<&DriveId, &DriveFacts> =
            drives.iter().map(|drive| (&drive.place, drive)).collect();
        self.drives.retain(|id, known| {
            let here = places.get(&known.place());
            let is_renamed = here.is_some_and(|drive| known.may_be(drive));
            assigned.contains(id) || known.missing_since.is_some() || !is_renamed || !is_own(known)
        });
        self.smart.retain(&self.drives);
        self.before_moves.retain(|id, _| {
            let known = self.drives.get(id);
            known.is_some_and(|known| known.has_just_moved(now))
        });
    }

    /// What smartctl read from an impostor is dropped when the drive is found where it was before.
    fn note_move(&mut self, drive: &DriveFacts, now: Timestamp) {
        let Some(known) = self.drives.get_mut(&drive.id) else {
            return;
        };
        let returned = |moved: &&Move| moved.from == drive.place;
        if known.has_just_moved(now) && known.moved.as_ref().filter(returned).is_some() {
            known.moved = None;
            if let Some(before) = self.before_moves.remove(&drive.id) {
                self.smart.put_back(&drive.id, before);
            }
        } else if known.moves(drive) {
            let from = known.place();
            known.moved = Some(Move { from, at: now });
            let before = self.smart.get(&drive.id).cloned();
            self.before_moves.insert(drive.id.clone(), before);
        }
    }

    /// Adds what the store knows of a drive, at the start or later.
    pub(crate) fn restore_drive(&mut self, old: KnownDrive) {
        let Some(known) = self.drives.get_mut(&old.facts.id) else {
            self.drives.insert(old.facts.id.clone(), old);
            return;
        };
        if old.moves(&known.facts) {
            let (from, at) = (old.place(), known.first_seen);
            known.moved = Some(Move { from, at });
        } else if known.moved.is_none() {
            known.moved = old.moved;
        }
        known.first_seen = known.first_seen.min(old.first_seen);
        known.failed = old.failed.or(known.failed);
    }

    /// The scans before the store was read did not know where the drives had been.
    pub(crate) fn identify_again(&mut self, settings: &VolumeSettings, now: Timestamp) {
        for (id, known) in &self.drives {
            if known.has_just_moved(now) {
                let before = self.smart.get(id).cloned();
                self.before_moves.entry(id.clone()).or_insert(before);
            }
        }
        let seen = self.inventory.observation().clone().map(|it| (*it).clone());
        if seen.value().is_some() {
            self.apply(SourceUpdate::Inventory(seen), settings, now);
        }
    }
}

struct Assignment<'a> {
    known: &'a BTreeMap<DriveId, KnownDrive>,
    drives: &'a [DriveFacts],
    ids: Vec<DriveId>,
    taken: BTreeSet<DriveId>,
}

impl<'a> Assignment<'a> {
    fn new(
        known: &'a BTreeMap<DriveId, KnownDrive>,
        drives: &'a [DriveFacts],
        is_own: &dyn Fn(&KnownDrive) -> bool,
        now: Timestamp,
    ) -> Self {
        let mut assignment = Assignment {
            known,
            drives,
            ids: vec![DriveId::default(); drives.len()],
            taken: BTreeSet::new(),
        };
        assignment.keep(is_own, |known, drive| {
            let moved = known.moved.as_ref().filter(|_| known.has_just_moved(now));
            moved.is_some_and(|moved| moved.from == drive.place)
        });
        assignment.keep(is_own, |known, drive| known.place() == drive.place);
        assignment.follow(is_own);
        for (at, drive) in drives.iter().enumerate() {
            if assignment.ids[at].as_str().is_empty() {
                assignment.assign(at, drive.place.clone());
            }
        }
        assignment
    }

    fn assign(&mut self, at: usize, id: DriveId) {
        self.taken.insert(id.clone());
        self.ids[at] = id;
    }

    fn is_open(&self, at: usize) -> bool {
        self.ids[at].as_str().is_empty()
    }

    /// A drive that `is_there` keeps its id.
    fn keep(
        &mut self,
        is_own: &dyn Fn(&KnownDrive) -> bool,
        is_there: impl Fn(&KnownDrive, &DriveFacts) -> bool,
    ) {
        let mut own: Vec<&KnownDrive> = self.known.values().filter(|known| is_own(known)).collect();
        own.sort_by_key(|known| known.first_seen);
        for (at, drive) in self.drives.iter().enumerate() {
            let is_it = |known: &&&KnownDrive| {
                is_there(known, drive)
                    && known.may_be(drive)
                    && !self.taken.contains(&known.facts.id)
            };
            if self.is_open(at)
                && let Some(known) = own.iter().find(is_it)
            {
                self.assign(at, known.facts.id.clone());
            }
        }
    }

    /// Drives that are new, or in another place than before.
    fn follow(&mut self, is_own: &dyn Fn(&KnownDrive) -> bool) {
        let open: Vec<usize> = (0..self.drives.len()).filter(|at| self.is_open(*at)).collect();
        let before = self.taken.clone();
        for at in &open {
            let drive = &self.drives[*at];
            let mut usable = drive
                .identities
                .iter()
                .filter_map(|identity| self.by_identity(identity, drive, &open, &before, is_own));
            if let Some(id) = usable.find(|id| !self.taken.contains(id)) {
                self.assign(*at, id);
            }
        }
    }

    /// The id that this identity gives the drive; None if others have or had the same.
    fn by_identity(
        &self,
        identity: &DriveId,
        drive: &DriveFacts,
        open: &[usize],
        taken: &BTreeSet<DriveId>,
        is_own: &dyn Fn(&KnownDrive) -> bool,
    ) -> Option<DriveId> {
        let open = open.iter().map(|at| &self.drives[*at]);
        let claimants: Vec<&DriveFacts> =
            open.filter(|other| other.identities.contains(identity)).collect();
        let owners: Vec<&KnownDrive> =
            self.known.values().filter(|known| known.has(identity)).collect();
        let is_absent = |known: &&&KnownDrive| {
            let is_present = !is_own(known) && known.missing_since.is_none();
            !taken.contains(&known.facts.id)
                && (!is_present || is_passed_through(&known.facts, drive))
        };
        let absent: Vec<&KnownDrive> = owners.iter().filter(is_absent).copied().collect();
        let owner = match (owners.as_slice(), absent.as_slice(), claimants.len()) {
            ([], _, 1) => return Some(identity.clone()),
            ([_], [owner], 1) => *owner,
            // The identity is known to have been used twice, or is now.
            _ => {
                let alike = |known: &&&KnownDrive| known.resembles(drive);
                let mut alike = absent.iter().filter(alike);
                let owner = alike.next().filter(|_| alike.next().is_none())?;
                let rivals = claimants.iter().filter(|other| owner.resembles(other));
                (rivals.count() == 1 && owner.facts.id != owner.place()).then_some(*owner)?
            }
        };
        Some(match owner.facts.id == owner.place() {
            true => identity.clone(),
            false => owner.facts.id.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
