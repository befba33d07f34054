//! md arrays and LVM's RAID: what their members still hold.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::assess::redundancy::members::leg_devices;
use crate::assess::redundancy::words::{Left, Shown, Tool};
use crate::assess::redundancy::{Loss, View};
use crate::assess::text::{INACCESSIBLE, SUSPECT, evidence, percent};
use crate::block::LayerState;
use crate::redundancy::Array;
use crate::stack::{DmRaid, MdState, StorageStack};
use diskvitals_finding::{Evidence, WitnessKind};

/// Vendors of network storage mirror their system over all bays, also the empty ones. Nobody makes
/// a mirror of so many for its own sake.
const MANY_SLOTS: usize = 4;

impl View<'_> {
    pub(super) fn md(self, name: &str, at: Timestamp, md: &MdState) -> Option<Loss> {
        // md.rst, array_state: these do no I/O. `broken` is a raid0 or linear array that has lost a
        // member.
        let is_stopped =
            matches!(md.array_state.as_str(), "inactive" | "clear" | "broken" | "suspended");
        let array = md.array();
        let left = match &array {
            _ if is_stopped => Left::Stopped,
            None if md.degraded > 0 => Left::TooFew,
            None => return None,
            Some(array) => self.left(array)?,
        };
        let members = || md.members.iter();
        let faulty = self.faulty_members(name, md);
        let missing = match &array {
            Some(array) => self.missing_members(name, md, array, &faulty),
            None => Vec::new(),
        };
        if let Some(array) = &array
            && self.never_had_the_others(name, md, array)
        {
            return None;
        }
        let action = md.sync_action.as_deref().unwrap_or_default();
        let progress = md
            .sync_completed
            .and_then(|(done, all)| percent(done, all))
            .map(|share| format!(", {share} % done"))
            .unwrap_or_default();
        let devices_of = |slot: usize| {
            let members = array.as_ref().map(Array::members).unwrap_or_default();
            members.get(slot).map(|member| member.devices.clone())
        };
        let all = md.raid_disks as usize;
        let shown = Shown {
            name: self.label(name),
            level: md.level.clone(),
            unit: "devices",
            have: all.saturating_sub(md.degraded as usize),
            all,
            left,
            state: md.array_state.clone(),
            action: match action {
                "idle" | "" => String::new(),
                "recover" => "rebuild".to_owned(),
                action => action.to_owned(),
            },
            progress,
            is_rebuilding: action == "recover",
            missing,
            faulty,
            has_partitions: members().any(|member| self.is_partition(&member.device)),
            tool: Some(Tool::Md),
            ..self.shown(array.as_ref(), &devices_of)
        };
        Some(shown.loss(level_of(left), md_evidence(name, at, md)))
    }

    pub(super) fn dm_raid(self, name: &str, at: Timestamp, state: &LayerState) -> Option<Loss> {
        let LayerState::DmRaid(DmRaid { level, health, sync_action, status_line, .. }) = state
        else {
            return None;
        };
        let array = state.stack().and_then(|it| it.array());
        let letters = |letters: &str| -> Vec<usize> {
            let legs = health.chars().enumerate();
            legs.filter(|(_, leg)| letters.contains(*leg)).map(|(at, _)| at).collect()
        };
        let dead = letters("D-");
        let left = match &array {
            None if dead.is_empty() => return None,
            None => Left::TooFew,
            Some(array) => self.left(array)?,
        };
        let inventory = self.facts.inventory();
        let devices_of = |leg: usize| Some(leg_devices(inventory?, name, leg));
        let filling: Vec<usize> = match &array {
            Some(array) => array.missing_slots().filter(|leg| !dead.contains(leg)).collect(),
            None => Vec::new(),
        };
        let of_legs = |legs: &[usize]| -> Vec<String> {
            let legs = legs.iter().filter_map(|leg| devices_of(*leg));
            legs.flatten().collect()
        };
        let action = sync_action.as_deref().unwrap_or_default();
        let missing = dead.iter().map(|leg| {
            let drives = self.drive_names(&devices_of(*leg).unwrap_or_default());
            match drives.as_slice() {
                [] => format!("leg {leg}"),
                drives => format!("leg {leg} (on {})", drives.join(", ")),
            }
        });
        let all = health.chars().count();
        let shown = Shown {
            name: self.label(name),
            level: level.clone(),
            unit: "legs",
            have: array.as_ref().map_or(0, Array::count_in_sync),
            all,
            left,
            action: match action {
                "idle" | "" => String::new(),
                "recover" => "rebuild".to_owned(),
                action => action.to_owned(),
            },
            is_rebuilding: action == "recover" && !filling.is_empty(),
            missing: missing.collect(),
            tool: Some(Tool::Lvm),
            ..self.shown(array.as_ref(), &devices_of)
        };
        let shown = Shown { filling: self.drive_names(&of_legs(&filling)), ..shown };
        let proof =
            vec![evidence(WitnessKind::Layer, format!("dm status of {name}"), at, status_line)];
        Some(shown.loss(level_of(left), proof))
    }

    /// What may still fail, if that is less than of the complete array.
    fn left(self, array: &Array) -> Option<Left> {
        let is_complete = array.missing_slots().next().is_none();
        match array.tolerates() {
            None => Some(Left::TooFew),
            Some(0) if array.by_design() == 0 && is_complete => None,
            Some(0) => Some(Left::None),
            Some(further) if is_complete && further >= array.by_design() => None,
            Some(further) => Some(Left::Some(further)),
        }
    }

    /// What follows from the copies alone. `devices_of`: the devices in a slot.
    fn shown(
        self,
        array: Option<&Array>,
        devices_of: &dyn Fn(usize) -> Option<Vec<String>>,
    ) -> Shown {
        let Some(array) = array else {
            return Shown::default();
        };
        let sets = array.copy_sets().unwrap_or_default();
        let last = sets.iter().filter(|set| set.tolerates == 0);
        let slots: BTreeSet<usize> = last.flat_map(|set| set.members.iter().copied()).collect();
        let holders: Vec<String> =
            slots.iter().filter_map(|slot| devices_of(*slot)).flatten().collect();
        let filling: Vec<String> =
            array.members().iter().flat_map(|member| member.filling.iter().cloned()).collect();
        let lacks =
            array.members().iter().filter(|member| member.in_sync && !member.bad_blocks.is_empty());
        let lacking = lacks.map(|member| {
            let names = self.drive_names(&member.devices).join(", ");
            match member.bad_blocks.len() {
                1 => format!("{names} lacks 1 range (bad_blocks)"),
                more => format!("{names} lacks {more} ranges (bad_blocks)"),
            }
        });
        Shown {
            is_part: array.is_raid10() && slots.len() < array.count_in_sync(),
            lacking: lacking.collect(),
            waits_for_parity: array.waits_for_parity(),
            is_parity: array.is_parity(),
            holders: self.drive_names(&holders),
            failing: self.failing_among(&holders),
            unknown: self.unknown_among(&holders),
            filling: self.drive_names(&filling),
            ..Shown::default()
        }
    }

    /// A mirror with two copies at least, of which nothing shows that its empty slots ever held a
    /// member.
    fn never_had_the_others(self, name: &str, md: &MdState, array: &Array) -> bool {
        let history = self.facts.layers.get(name).map(|layer| &layer.slots);
        let is_new = |slot: usize| {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            history.is_none_or(|history| !history.contains_key(&slot))
        };
        array.is_mirror()
            && array.members().len() >= MANY_SLOTS
            && array.count_in_sync() >= 2
            && array.tolerates().is_some_and(|tolerates| tolerates + 1 == array.count_in_sync())
            && array.members().iter().all(|member| member.filling.is_empty())
            && array.missing_slots().all(is_new)
            && !md.members.iter().any(|member| member.is("faulty"))
            && self.former_members(name, md).is_empty()
    }
}

fn level_of(left: Left) -> crate::assess::text::Level {
    match left {
        Left::Stopped | Left::TooFew => INACCESSIBLE,
        Left::None | Left::Some(_) => SUSPECT,
    }
}

fn md_evidence(name: &str, at: Timestamp, md: &MdState) -> Vec<Evidence> {
    let file = |name_below: &str| format!("/sys/block/{name}/md/{name_below}");
    let mut proof = vec![
        evidence(WitnessKind::Layer, file("degraded"), at, md.degraded.to_string()),
        evidence(WitnessKind::Layer, file("raid_disks"), at, md.raid_disks.to_string()),
        evidence(WitnessKind::Layer, file("array_state"), at, &md.array_state),
    ];
    let mut states: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in &md.members {
        states.entry(&member.state).or_default().push(&member.device);
    }
    proof.extend(states.iter().map(|(state, devices)| {
        let devices = devices.join(",");
        let devices = match devices.contains(',') {
            true => format!("{{{devices}}}"),
            false => devices,
        };
        evidence(WitnessKind::Layer, file(&format!("dev-{devices}/state")), at, *state)
    }));
    proof
}
