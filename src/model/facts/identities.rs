//! Which drive of a scan is which known drive.
//!
//! A device chooses what it calls itself: a USB stick may have the serial number of a disk, and
//! cheap bridges all have the same. So history belongs to an identity at its place. A drive keeps
//! its id where it was last seen, whoever else uses the same identity. It takes its id along to
//! another place only if nothing else could be meant.
//!
//! In: the drives of one scan, and the known ones. Out: an id for each drive of the scan.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::Inventory;
use crate::drive::{DriveFacts, DriveKind, Transport};
use crate::facts::raid_controllers::is_passed_through;
use crate::facts::{Facts, KnownDrive, drive_use};
use crate::policy::VolumeSettings;
use crate::source_update::SourceUpdate;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_text::duration::elapsed;

/// After a start, drives appear in any order, and some need minutes. So long, a drive that turned up
/// in another place may still prove to be another one, and clears no finding.
const MOVE_SETTLES: Duration = Duration::from_secs(600);

/// Between a location and a number: several media have been there that call themselves the same.
const NUMBER: &str = "/medium-";

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
            true => is_of_place(&self.facts.id, &drive.place),
            false => drive.identities.iter().any(|identity| self.has(identity)),
        }
    }

    /// Whether this is another medium: behind a bridge, the identity is the bridge's.
    fn differs_from(&self, drive: &DriveFacts) -> bool {
        let own = &self.facts;
        let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
        self.has_another_size(drive)
            || differ(&own.model, &drive.model)
            || differ(&own.vendor, &drive.vendor)
    }

    /// A reader without a card has none, and stays what it is with another card. A dock without a disk
    /// is compared with its last one.
    fn has_another_size(&self, drive: &DriveFacts) -> bool {
        let own = match self.facts.size_bytes {
            0 if !drive.removable => self.medium_size,
            size => size,
        };
        let sizes = [own, drive.size_bytes];
        !sizes.contains(&0) && sizes[0] != sizes[1]
    }

    /// A drive has one WWN.
    fn has_another_wwn(&self, drive: &DriveFacts) -> bool {
        let is_wwn = |identity: &&DriveId| identity.as_str().starts_with("naa.");
        let mut wwns = drive.identities.iter().filter(is_wwn).peekable();
        let has_one = self.facts.identities.iter().chain([&self.facts.id]).any(|it| is_wwn(&it));
        has_one && wwns.peek().is_some() && wwns.all(|wwn| !self.has(wwn))
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
            && !is_of_place(&self.facts.id, &self.place())
            && has_one_place(&self.facts)
            && has_one_place(drive)
            && drive.transport != Transport::Loop
    }
}

impl Facts {
    /// Gives the drives that the kernel lists the ids under which they are known.
    pub(super) fn identify(&mut self, inventory: &mut Inventory, now: Timestamp) {
        let is_listed = |known: &KnownDrive| known.facts.location.raid_controller.is_none();
        let drives = inventory.drives.iter();
        let contents = drives.map(|drive| drive_use::contents(inventory, drive)).collect();
        self.identify_drives(&mut inventory.drives, contents, is_listed, now);
        inventory.drives.sort_by(|a, b| a.id.cmp(&b.id));
        for drive in &inventory.drives {
            for node in &drive.devices {
                if let Some(device) = inventory.devices.get_mut(&node.name) {
                    device.drive = Some(drive.id.clone());
                }
            }
        }
    }

    /// `contents`: what each has on it, if that is known. `is_own`: whether the known drive would be in
    /// this list if it were present.
    pub(super) fn identify_drives(
        &mut self,
        drives: &mut [DriveFacts],
        contents: Vec<BTreeSet<String>>,
        is_own: impl Fn(&KnownDrive) -> bool,
        now: Timestamp,
    ) {
        let known = self.drives.values();
        // Those that were found before the store was read, and that it does not know, have no history.
        let is_restored = |known: &&KnownDrive| {
            self.restored_drives.is_empty() || self.restored_drives.contains(&known.facts.id)
        };
        let known = known.filter(is_restored).collect();
        let assignment = Assignment::new(known, drives, &contents, &is_own, now);
        // The same device under a former id: the store was read after the first scan.
        let is_renamed = |known: &&KnownDrive| {
            let here = drives.iter().position(|drive| drive.place == known.place());
            here.is_some_and(|at| known.may_be(&drives[at]) && !assignment.is_other(known, at))
        };
        let unassigned = self.drives.values().filter(|known| {
            !assignment.taken.contains(&known.facts.id)
                && known.missing_since.is_none()
                && is_own(known)
        });
        let renamed = unassigned.filter(is_renamed).map(|known| known.facts.id.clone());
        let renamed: BTreeSet<DriveId> = renamed.collect();
        let ids = assignment.ids;
        for (drive, id) in drives.iter_mut().zip(&ids) {
            if drive.id != *id {
                drive.id_stable =
                    !is_of_place(id, &drive.place) && drive.transport != Transport::Loop;
                drive.id = id.clone();
            }
        }
        for drive in &*drives {
            self.note_move(drive, drives, now);
        }
        self.drives.retain(|id, _| !renamed.contains(id));
        self.smart.retain(&self.drives);
        self.before_moves.retain(|id, _| {
            let known = self.drives.get(id);
            known.is_some_and(|known| known.has_just_moved(now))
        });
    }

    /// What smartctl read from an impostor is dropped when the drive is found where it was before.
    fn note_move(&mut self, drive: &DriveFacts, drives: &[DriveFacts], now: Timestamp) {
        let Some(known) = self.drives.get_mut(&drive.id) else {
            return;
        };
        let place = known.place();
        let is_impostor = |other: &DriveFacts| {
            other.id != drive.id && other.place == place && known.may_be(other)
        };
        let had_impostor = drives.iter().any(is_impostor);
        let returned = |moved: &&Move| moved.from == drive.place && place != drive.place;
        if known.has_just_moved(now) && known.moved.as_ref().filter(returned).is_some() {
            if had_impostor {
                known.moved = None;
                if let Some(before) = self.before_moves.remove(&drive.id) {
                    self.smart.put_back(&drive.id, before);
                }
            } else if let Some(moved) = &mut known.moved {
                // It was put back, or whatever was taken for it is gone: what has been read stays, and
                // clears nothing yet.
                moved.at = now;
                self.before_moves.insert(drive.id.clone(), self.smart.get(&drive.id).cloned());
            }
        } else if known.moves(drive) {
            known.moved = Some(Move { from: place, at: now });
            let before = self.smart.get(&drive.id).cloned();
            self.before_moves.insert(drive.id.clone(), before);
        }
    }

    /// Adds what the store knows of a drive, at the start or later.
    pub fn restore_drive(&mut self, old: KnownDrive) {
        self.restored_drives.insert(old.facts.id.clone());
        let known = self.drives.get_mut(&old.facts.id);
        let known = known.filter(|known| {
            let is_other_content = known.facts.transport == Transport::Usb
                && ![&old.content, &known.content].iter().any(|content| content.is_empty())
                && old.content.is_disjoint(&known.content);
            !is_other_content && !is_another_behind_a_bridge(&old, &known.facts)
        });
        let Some(known) = known else {
            // What was read of another one is not its: which of them is here is decided next.
            self.smart.put_back(&old.facts.id, None);
            self.counters.forget(&Subject::Drive(old.facts.id.clone()));
            self.drives.insert(old.facts.id.clone(), old);
            return;
        };
        if old.moves(&known.facts) {
            let (from, at) = (old.place(), known.first_seen);
            known.moved = Some(Move { from, at });
        } else if known.moved.is_none() {
            known.moved = old.moved;
        }
        if known.medium_size == 0 {
            (known.medium_size, known.content) = (old.medium_size, old.content);
        }
        known.first_seen = known.first_seen.min(old.first_seen);
        known.failed = old.failed.or(known.failed);
    }

    /// The scans before the store was read did not know where the drives had been.
    pub fn identify_again(&mut self, settings: &VolumeSettings, now: Timestamp) {
        for (id, known) in &self.drives {
            if known.has_just_moved(now) {
                let before = self.smart.get(id).cloned();
                self.before_moves.entry(id.clone()).or_insert(before);
            }
        }
        let seen = self.inventory.observation().clone().map(|it| (*it).clone());
        if seen.value().is_some() {
            self.apply(SourceUpdate::Inventory(seen), settings, now);
            // The store also knows where each filesystem was.
            self.update_volumes(settings, now);
        }
        self.restored_drives.clear();
    }
}

/// Whether the drive is known by its location: `path:…`, or `path:…` with a number.
fn is_of_place(id: &DriveId, place: &DriveId) -> bool {
    let rest = id.as_str().strip_prefix(place.as_str());
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix(NUMBER);
        rest.is_empty() || number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn is_another_behind_a_bridge(known: &KnownDrive, drive: &DriveFacts) -> bool {
    drive.transport == Transport::Usb && known.has_another_size(drive)
}

struct Assignment<'a> {
    known: Vec<&'a KnownDrive>,
    drives: &'a [DriveFacts],
    contents: &'a [BTreeSet<String>],
    ids: Vec<DriveId>,
    taken: BTreeSet<DriveId>,
}

impl<'a> Assignment<'a> {
    fn new(
        known: Vec<&'a KnownDrive>,
        drives: &'a [DriveFacts],
        contents: &'a [BTreeSet<String>],
        is_own: &dyn Fn(&KnownDrive) -> bool,
        now: Timestamp,
    ) -> Self {
        let mut assignment = Assignment {
            known,
            drives,
            contents,
            ids: vec![DriveId::default(); drives.len()],
            taken: BTreeSet::new(),
        };
        assignment.keep(is_own, |known, drive| {
            let moved = known.moved.as_ref().filter(|_| known.has_just_moved(now));
            moved.is_some_and(|moved| moved.from == drive.place)
        });
        assignment.keep(is_own, |known, drive| known.place() == drive.place);
        // A new identity says less than one that is known.
        assignment.follow(is_own, false);
        assignment.follow(is_own, true);
        for (at, drive) in drives.iter().enumerate() {
            if assignment.is_open(at) {
                let id = assignment.id_of_place(at, &drive.place);
                assignment.assign(at, id);
            }
        }
        assignment
    }

    /// Another medium that was here keeps the id of this place.
    fn id_of_place(&self, at: usize, place: &DriveId) -> DriveId {
        let is_free = |id: &DriveId| {
            let mut known = self.known.iter().filter(|known| known.facts.id == *id);
            !self.taken.contains(id)
                && !known.any(|known| known.place() != *place || self.is_other(known, at))
        };
        let numbered =
            (2..).map(|number| DriveId::known(format!("{}{NUMBER}{number}", place.as_str())));
        let mut ids = std::iter::once(place.clone()).chain(numbered);
        ids.find(is_free).unwrap_or_else(|| place.clone())
    }

    /// Whether the known drive is another medium than this one, although they call themselves the same.
    /// That counts where others do so too, and behind a bridge; elsewhere disks are resized.
    fn is_other(&self, known: &KnownDrive, at: usize) -> bool {
        let drive = &self.drives[at];
        let is_of_bridge = drive.transport == Transport::Usb;
        is_another_behind_a_bridge(known, drive)
            || is_of_bridge && self.is_swapped(known, at)
            || self.is_ambiguous(known, drive) && known.differs_from(drive)
    }

    /// Whether all that they have in common is also used by others.
    fn is_ambiguous(&self, known: &KnownDrive, drive: &DriveFacts) -> bool {
        let is_resized = matches!(drive.kind, DriveKind::Virtual | DriveKind::Remote)
            || matches!(drive.transport, Transport::Loop | Transport::Raid | Transport::Nvme)
            || drive.transport.is_remote();
        let is_shared = |identity: &DriveId| {
            let claimants = self.drives.iter().filter(|it| it.identities.contains(identity));
            let owners = self.known.iter().filter(|it| it.has(identity));
            claimants.count() > 1 || owners.count() > 1
        };
        let mut common = drive.identities.iter().filter(|it| known.has(it)).peekable();
        !is_resized && common.peek().is_some() && common.all(is_shared)
    }

    /// Whether what was on the known drive is now on another one that looks the same, or what is on
    /// this drive was on another one.
    fn is_swapped(&self, known: &KnownDrive, at: usize) -> bool {
        let (drive, content) = (&self.drives[at], self.content(at));
        if !known.content.is_disjoint(content) {
            return false;
        }
        let is_elsewhere = (0..self.drives.len()).any(|other| {
            other != at
                && known.may_be(&self.drives[other])
                && known.resembles(&self.drives[other])
                && !known.content.is_disjoint(self.content(other))
        });
        let was_elsewhere = self.known.iter().any(|other| {
            other.may_be(drive) && other.resembles(drive) && !other.content.is_disjoint(content)
        });
        is_elsewhere || was_elsewhere
    }

    fn content(&self, at: usize) -> &'a BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.contents.get(at).unwrap_or(&NONE)
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
        let known = self.known.iter().copied();
        let mut own: Vec<&KnownDrive> = known.filter(|known| is_own(known)).collect();
        own.sort_by_key(|known| known.first_seen);
        for (at, drive) in self.drives.iter().enumerate() {
            let is_it = |known: &&&KnownDrive| {
                is_there(known, drive)
                    && known.may_be(drive)
                    && !self.is_other(known, at)
                    && !self.taken.contains(&known.facts.id)
            };
            if self.is_open(at)
                && let Some(known) = own.iter().find(is_it)
            {
                self.assign(at, known.facts.id.clone());
            }
        }
    }

    /// Drives that are in another place than before, or new (`is_new`).
    fn follow(&mut self, is_own: &dyn Fn(&KnownDrive) -> bool, is_new: bool) {
        let open: Vec<usize> = (0..self.drives.len()).filter(|at| self.is_open(*at)).collect();
        let before = self.taken.clone();
        for at in &open {
            let mut usable = self.drives[*at].identities.iter().filter_map(|identity| {
                let owners: Vec<&KnownDrive> =
                    self.known.iter().copied().filter(|known| known.has(identity)).collect();
                match owners.as_slice() {
                    [] => (is_new && self.claimants(identity, &open).len() == 1)
                        .then(|| identity.clone()),
                    owners => {
                        let owner = self.owner(identity, *at, &open, owners, &before, is_own)?;
                        Some(match is_of_place(&owner.facts.id, &owner.place()) {
                            true => identity.clone(),
                            false => owner.facts.id.clone(),
                        })
                    }
                }
            });
            if let Some(id) = usable.find(|id| !self.taken.contains(id)) {
                self.assign(*at, id);
            }
        }
    }

    fn claimants(&self, identity: &DriveId, open: &[usize]) -> Vec<usize> {
        let open = open.iter().copied();
        open.filter(|at| self.drives[*at].identities.contains(identity)).collect()
    }

    /// The known drive that this identity makes this one; None if others have or had the same.
    fn owner<'b>(
        &self,
        identity: &DriveId,
        at: usize,
        open: &[usize],
        owners: &[&'b KnownDrive],
        taken: &BTreeSet<DriveId>,
        is_own: &dyn Fn(&KnownDrive) -> bool,
    ) -> Option<&'b KnownDrive> {
        let drive = &self.drives[at];
        let claimants = self.claimants(identity, open);
        let is_absent = |known: &&KnownDrive| {
            let is_present = !is_own(known) && known.missing_since.is_none();
            !taken.contains(&known.facts.id)
                && (!is_present || is_passed_through(&known.facts, drive))
        };
        let absent: Vec<&KnownDrive> = owners.iter().copied().filter(is_absent).collect();
        let is_it = |known: &KnownDrive| !known.has_another_wwn(drive) && !self.is_other(known, at);
        if let ([_], [owner], [_]) = (owners, absent.as_slice(), claimants.as_slice()) {
            return is_it(owner).then_some(*owner);
        }
        // The identity is known to have been used twice, or is now.
        let alike = |known: &&KnownDrive, at: usize| {
            let (content, own) = (self.content(at), &known.content);
            known.resembles(&self.drives[at])
                && (content.is_empty() || own.is_empty() || !own.is_disjoint(content))
        };
        let mut candidates = absent.into_iter().filter(|known| alike(known, at) && is_it(known));
        let owner = candidates.next().filter(|_| candidates.next().is_none())?;
        let rivals = claimants.iter().filter(|other| alike(&owner, **other));
        (rivals.count() == 1 && !is_of_place(&owner.facts.id, &owner.place())).then_some(owner)
    }
}

#[cfg(test)]
mod tests;
