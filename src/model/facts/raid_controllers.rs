//! RAID controllers: the drives that only a controller can list, because the kernel has no device
//! for them.
//!
//! In: lists of controllers. Out: member drives by controller.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::drive::{DriveFacts, Transport};
use crate::facts::latest::Latest;
use crate::facts::{Facts, KnownDrive, Urgency};
use crate::raid_report::{CacheProtection, RaidFamily, RaidReport, RaidToolRequests};
use crate::source_update::RaidMemberDrive;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_kernel_log::event::Class;

#[derive(Clone, Debug, Default)]
pub struct RaidControllers {
    /// The last good list of each controller.
    members: BTreeMap<String, Vec<RaidMemberDrive>>,
    /// The ids of members that the kernel does not list, by controller and slot.
    pub(super) ids: BTreeMap<(String, String), DriveId>,
    /// Why a controller did not list its drives at the last query.
    errors: BTreeMap<String, String>,
    pub(crate) reports: BTreeMap<RaidFamily, ToolReports>,
    /// The present arrays, by their controller and id.
    pub(super) arrays: BTreeMap<ControllerKey, Vec<DriveId>>,
}

/// The driver and the PCI address.
pub(super) type ControllerKey = (String, Option<String>);

/// What the tool of one family has reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolReports {
    pub(crate) newest: Latest<Vec<RaidReport>>,
    /// When it last answered.
    pub(crate) answered: Option<Timestamp>,
    /// Since when the protection of a write cache is impaired, by the controller's address.
    pub(crate) impaired_since: BTreeMap<Option<String>, Timestamp>,
}

impl RaidControllers {
    /// Why this controller does not list its drives, with the controller's name.
    pub(crate) fn error_of(&self, controller: &str) -> Option<(&String, &String)> {
        self.errors.get_key_value(controller)
    }

    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    pub(super) fn member(&self, controller: &str, drive: &DriveId) -> Option<&RaidMemberDrive> {
        let mut members = self.members.get(controller)?.iter();
        members.find(|member| {
            let id = slot_of(&member.facts).and_then(|slot| self.ids.get(&slot));
            id.unwrap_or(&member.facts.id) == drive
        })
    }

    /// Whether the controller has listed its drives.
    pub(super) fn has_listed(&self, controller: &str) -> bool {
        self.members.contains_key(controller)
    }

    /// Member drives for which the kernel has no device. A drive that a controller passes through
    /// is in `own`.
    pub(super) fn without_own_device(&self, own: &[DriveFacts]) -> Vec<DriveFacts> {
        let mut hidden: Vec<DriveFacts> = Vec::new();
        for member in self.members.values().flatten() {
            let mut known = own.iter().chain(&hidden);
            if !known.any(|known| is_same_drive(known, &member.facts)) {
                hidden.push(member.facts.clone());
            }
        }
        hidden
    }

    /// Returns what changed, and whether the list of members did. A failed list removes nothing:
    /// the last good list counts, and the health of its drives is unknown.
    fn replace(
        &mut self,
        controller: String,
        drives: Observation<Vec<RaidMemberDrive>>,
    ) -> (Urgency, bool) {
        let mut listed = match drives {
            Observation::Ok { value, .. } => value,
            Observation::Failed { error, .. } => {
                let before = self.errors.insert(controller, error.clone());
                let same = before == Some(error);
                return (immediate_if(!same), false);
            }
            Observation::Unavailable => return (Urgency::Nothing, false),
        };
        let had_failed = self.errors.remove(&controller).is_some();
        for member in &mut listed {
            member.facts.location.raid_controller = Some(controller.clone());
        }
        if self.members.get(&controller) == Some(&listed) {
            return (immediate_if(had_failed), false);
        }
        self.members.insert(controller, listed);
        (Urgency::Immediate, true)
    }
}

impl Facts {
    pub(super) fn update_arrays(&mut self) {
        let mut arrays: BTreeMap<ControllerKey, Vec<DriveId>> = BTreeMap::new();
        for (id, known) in &self.drives {
            if let Some(key) = controller_of(&known.facts).filter(|_| known.missing_since.is_none())
            {
                arrays.entry(key).or_default().push(id.clone());
            }
        }
        self.raid_controllers.arrays = arrays;
    }

    /// The present arrays of the controller of which this drive is an array, by id.
    pub(crate) fn arrays_beside(&self, drive: &DriveFacts) -> impl Iterator<Item = &KnownDrive> {
        let ids = controller_of(drive).and_then(|key| self.raid_controllers.arrays.get(&key));
        ids.into_iter().flatten().filter_map(|id| self.drives.get(id))
    }

    pub(crate) fn count_of_controllers(&self, family: RaidFamily) -> usize {
        let arrays = self.raid_controllers.arrays.keys();
        arrays.filter(|(driver, _)| RaidFamily::of_driver(driver) == Some(family)).count()
    }

    /// Which tools are to be asked.
    pub fn raid_tool_requests(&self) -> RaidToolRequests {
        let mut requests = RaidToolRequests::new();
        for ((driver, _), arrays) in &self.raid_controllers.arrays {
            let Some(family) = RaidFamily::of_driver(driver) else { continue };
            let last_reset = requests.entry(family).or_default();
            for id in arrays {
                let errors = self.errors(&Subject::Drive(id.clone()));
                let reset = errors.and_then(|history| history.get(Class::Reset));
                *last_reset = (*last_reset).max(reset.map(|tally| tally.last.time));
            }
        }
        requests
    }

    pub(super) fn apply_raid_reports(
        &mut self,
        family: RaidFamily,
        reports: Observation<Vec<RaidReport>>,
    ) -> Urgency {
        let known = self.raid_controllers.reports.entry(family).or_default();
        if let Observation::Ok { at, value } = &reports {
            // An answer that does not name the battery's state is no repair of it.
            let is_well = |it: &RaidReport| {
                matches!(it.protection, CacheProtection::Optimal | CacheProtection::Absent)
            };
            let reported = |pci: &Option<String>| value.iter().find(|it| it.pci == *pci);
            known.impaired_since.retain(|pci, _| reported(pci).is_some_and(|it| !is_well(it)));
            for report in value {
                if let CacheProtection::Impaired(_) = report.protection {
                    known.impaired_since.entry(report.pci.clone()).or_insert(*at);
                }
            }
            known.answered = Some(*at);
        }
        // The first "not installed" is news too.
        let is_first = known.newest.set_answered();
        let (change, _) = known.newest.replace(reports);
        if is_first { Urgency::Immediate } else { change }
    }

    pub(super) fn apply_raid_members(
        &mut self,
        controller: String,
        drives: Observation<Vec<RaidMemberDrive>>,
        now: Timestamp,
    ) -> Urgency {
        let (change, members_changed) = self.raid_controllers.replace(controller, drives);
        if members_changed {
            self.update_drives(now);
            self.update_drive_volumes(now);
        }
        change
    }

    /// The drives of a controller that is no longer `present` are missing.
    pub(super) fn apply_controllers(&mut self, present: &[String], now: Timestamp) -> Urgency {
        let known =
            self.drives.values().filter_map(|known| known.facts.location.raid_controller.as_ref());
        let removed: Vec<String> = known
            .chain(self.raid_controllers.members.keys())
            .filter(|controller| !present.contains(controller))
            .cloned()
            .collect();
        removed
            .into_iter()
            .map(|controller| {
                self.apply_raid_members(controller, Observation::ok(now, Vec::new()), now)
            })
            .max()
            .unwrap_or(Urgency::Nothing)
    }
}

/// None: it is no array of a RAID controller.
fn controller_of(drive: &DriveFacts) -> Option<ControllerKey> {
    Some((drive.location.array_driver.clone()?, drive.location.pci.clone()))
}

fn immediate_if(changed: bool) -> Urgency {
    if changed { Urgency::Immediate } else { Urgency::Nothing }
}

/// A disk with two ports may be behind an adapter, too.
fn can_be_passed_through(transport: Transport) -> bool {
    matches!(
        transport,
        Transport::Sata
            | Transport::Sas
            | Transport::Scsi
            | Transport::Nvme
            | Transport::Raid
            | Transport::Unknown
    )
}

/// The controller and the slot of a member.
pub(super) fn slot_of(member: &DriveFacts) -> Option<(String, String)> {
    let location = &member.location;
    location.raid_controller.clone().zip(location.slot.clone())
}

/// Whether one is a member of a controller, and the other the kernel's device of it.
pub(super) fn is_passed_through(a: &DriveFacts, b: &DriveFacts) -> bool {
    a.location.raid_controller.is_some() != b.location.raid_controller.is_some()
        && is_same_drive(a, b)
}

/// Whether two descriptions are of one drive: the same identity, or the same serial number, model
/// and size. A controller may add the vendor to the model. It reserves a little of the size of
/// logical disks only, never of a disk that it passes through. What is on a bus that no such
/// controller has, or in another slot of the same controller, is another drive, whatever it calls
/// itself.
fn is_same_drive(a: &DriveFacts, b: &DriveFacts) -> bool {
    let (here, there) = (&a.location, &b.location);
    let elsewhere = match (&here.raid_controller, &there.raid_controller) {
        (Some(one), Some(other)) => one == other && here.slot != there.slot,
        (None, None) => false,
        _ => !can_be_passed_through(a.transport) || !can_be_passed_through(b.transport),
    };
    if elsewhere {
        return false;
    }
    let fold = |text: &Option<String>| {
        text.as_deref().map(|text| text.trim().to_ascii_lowercase()).filter(|text| !text.is_empty())
    };
    if a.id == b.id || (a.wwn.is_some() && a.wwn == b.wwn) {
        return true;
    }
    let same_serial = fold(&a.serial).is_some_and(|serial| Some(serial) == fold(&b.serial));
    let same_model = match (fold(&a.model), fold(&b.model)) {
        (Some(a), Some(b)) => a.ends_with(&b) || b.ends_with(&a),
        _ => false,
    };
    same_serial && same_model && a.size_bytes == b.size_bytes
}
