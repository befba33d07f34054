//! What a stack with redundancy lacks, for the findings about it.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::assess::{format_span, percent};
use crate::facts::{Facts, KnownDrive};
use crate::label;
use crate::redundancy::Array;
use crate::stack::{Proof, StorageStack};
use crate::volume::VolumeFacts;
use diskvitals_finding::ids::DriveId;

/// What may still fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// It does not run: its state.
    Stopped,
    /// Some of its data has no copy.
    TooFew,
    #[default]
    None,
    Some(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Shortfall {
    /// As people call it: `md0`, `vg/home`.
    pub name: String,
    pub level: String,
    /// `devices`, `legs`.
    pub unit: &'static str,
    pub have: usize,
    pub all: usize,
    pub left: Left,
    /// The state of one that does not run.
    pub state: String,
    /// What is left of its data can be read.
    pub is_mounted: bool,
    /// Devices of which none may fail.
    pub holders: Vec<String>,
    /// Only a part of the data has no second copy.
    pub is_part: bool,
    /// `sda lacks 2 ranges`.
    pub lacking: Vec<String>,
    pub waits_for_parity: bool,
    pub is_parity: bool,
    /// `rebuild`, or the name of md for what runs; empty when nothing does.
    pub action: String,
    /// `, 9 % done`, of the action.
    pub progress: String,
    /// Members are being filled.
    pub is_rebuilding: bool,
    /// Devices that are to be filled.
    pub filling: Vec<String>,
    /// `raid device 1 (was sdb, serial S, last in sync …)`.
    pub missing: Vec<String>,
    /// Members that failed and are still listed.
    pub faulty: Vec<String>,
    /// Members that are back and lack what was written while they were away. Which of the holders they
    /// are is not known.
    pub not_current: Vec<String>,
    /// What a person does about it.
    pub repair: String,
    /// What members are called where it ends when all of them are present and in sync.
    pub slots: &'static str,
    /// What ends it, if that is something else.
    pub clears: Option<&'static str>,
    pub proof: Vec<Proof>,
}

impl Shortfall {
    /// What follows from the copies alone. `devices_of`: the devices in a slot.
    pub(super) fn of_array(
        place: Place,
        array: Option<&Array>,
        devices_of: &dyn Fn(usize) -> Vec<String>,
    ) -> Shortfall {
        let Some(array) = array else {
            return Shortfall::default();
        };
        let sets = array.copy_sets().unwrap_or_default();
        let last = sets.iter().filter(|set| set.tolerates == 0);
        let slots: BTreeSet<usize> = last.flat_map(|set| set.members.iter().copied()).collect();
        let lacks =
            array.members().iter().filter(|member| member.in_sync && !member.bad_blocks.is_empty());
        let lacking = lacks.map(|member| {
            let names = place.drive_names(&member.devices).join(", ");
            match member.bad_blocks.len() {
                1 => format!("{names} lacks 1 range (bad_blocks)"),
                more => format!("{names} lacks {more} ranges (bad_blocks)"),
            }
        });
        Shortfall {
            is_part: array.is_raid10() && slots.len() < array.count_in_sync(),
            lacking: lacking.collect(),
            waits_for_parity: array.waits_for_parity(),
            is_parity: array.is_parity(),
            holders: slots.iter().flat_map(|slot| devices_of(*slot)).collect(),
            filling: array.members().iter().flat_map(|it| it.filling.iter().cloned()).collect(),
            ..Shortfall::default()
        }
    }
}

impl Left {
    /// None: as much as of the complete array.
    pub(super) fn of(array: &Array) -> Option<Left> {
        let is_complete = array.missing_slots().next().is_none();
        match array.tolerates() {
            None => Some(Left::TooFew),
            Some(0) if array.by_design() == 0 && is_complete => None,
            Some(0) => Some(Left::None),
            Some(further) if is_complete && further >= array.by_design() => None,
            Some(further) => Some(Left::Some(further)),
        }
    }

    /// Until when it is to be repaired.
    pub(super) fn deadline(self) -> &'static str {
        match self {
            Left::Stopped | Left::TooFew | Left::None => "today",
            Left::Some(_) => "this week",
        }
    }
}

/// md's words, which dm-raid has too.
pub(crate) fn action_text(action: Option<&str>) -> String {
    match action.unwrap_or_default() {
        "idle" | "" => String::new(),
        "recover" => "rebuild".to_owned(),
        action => action.to_owned(),
    }
}

/// `, 43 % done, 3 hours left`.
pub(crate) fn progress_text(stack: &dyn StorageStack) -> String {
    let share = stack.progress().and_then(|(done, all)| percent(done, all));
    progress_words(share, stack.seconds_left())
}

/// `share`: percent.
pub(crate) fn progress_words(share: Option<u64>, seconds_left: Option<u64>) -> String {
    let share = share.map(|share| format!(", {share} % done"));
    let left = seconds_left.and_then(|left| i64::try_from(left).ok());
    let left = left.map(|left| format!(", {} left", format_span(SignedDuration::from_secs(left))));
    share.into_iter().chain(left).collect()
}

/// Where a stack is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub facts: &'a Facts,
    /// Its kernel name; empty for a filesystem.
    pub name: &'a str,
    /// The volume that is asked about, if it is a filesystem.
    pub volume: Option<&'a VolumeFacts>,
}

impl<'a> Place<'a> {
    /// The drives below these devices.
    pub(crate) fn drives(self, devices: &[String]) -> BTreeSet<&'a DriveId> {
        let inventory = self.facts.inventory().into_iter();
        inventory.flat_map(|it| devices.iter().flat_map(|name| it.drives_below(name))).collect()
    }

    /// `sda` for a device on one drive; otherwise the device's own name.
    pub(crate) fn drive_names(self, devices: &[String]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for device in devices {
            let mut drives = self.drives(std::slice::from_ref(device)).into_iter();
            let one = drives.next().filter(|_| drives.next().is_none());
            let known = one.and_then(|id| self.facts.drives.get(id));
            let name = match known {
                Some(known) if !known.facts.name.is_empty() => known.facts.name.clone(),
                _ => self.device_label(device),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    pub(super) fn device_label(self, device: &str) -> String {
        match self.facts.inventory() {
            Some(inventory) => label::device(inventory, device),
            None => device.to_owned(),
        }
    }
}

/// `sdb, serial S`.
pub(super) fn drive_text(known: &KnownDrive) -> String {
    match serial_of(known) {
        Some(serial) => format!("{}, serial {serial}", known.facts.name),
        None => known.facts.name.clone(),
    }
}

pub(super) fn serial_of(known: &KnownDrive) -> Option<&str> {
    let serial = known.facts.serial.as_deref().map(str::trim)?;
    Some(serial).filter(|serial| !serial.is_empty())
}
