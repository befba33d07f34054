//! What may not be done at once: of the drives of an array, and of those on a controller, one thing at a
//! time. Arrays that share a drive are busy together.

use std::collections::{BTreeMap, BTreeSet};

use crate::block::LayerState;
use crate::facts::Facts;
use crate::label;
use crate::stack::action_text;
use diskvitals_finding::ids::DriveId;

/// Of the drives of an array, and of those on a controller, one is tested at a time.
#[derive(Default)]
pub(super) struct Groups<'a> {
    /// By drive: names of arrays, pools and controllers.
    of_drive: BTreeMap<&'a DriveId, BTreeSet<String>>,
    /// What an array does besides, or that this is not known.
    working: Busy,
}

/// Why nothing starts, by group.
pub(super) type Busy = BTreeMap<String, String>;

impl<'a> Groups<'a> {
    pub(super) fn of(facts: &'a Facts) -> Groups<'a> {
        let mut groups = Groups { of_drive: BTreeMap::new(), working: BTreeMap::new() };
        let mut on_controller: BTreeMap<&str, Vec<&DriveId>> = BTreeMap::new();
        for (id, known) in facts.drives.iter().filter(|(_, it)| it.missing_since.is_none()) {
            groups.of_drive.entry(id).or_default().insert(format!("drive {id}"));
            if let Some(pci) = &known.facts.location.pci {
                on_controller.entry(pci).or_default().push(id);
            }
        }
        for (pci, drives) in on_controller {
            groups.add(format!("controller {pci}"), drives.into_iter());
        }
        let Some(inventory) = facts.inventory() else { return groups };
        for device in inventory.devices.values().filter(|it| it.layer.has_state()) {
            let group = label::device(inventory, &device.name);
            let layer = facts.layers.get(&device.name);
            let state = layer.filter(|it| it.stuck.is_none()).and_then(|it| it.state.value());
            let does = match state {
                Some(state) => working(state),
                None => Some("its state is not known".to_owned()),
            };
            if let Some(does) = does {
                groups.working.insert(group.clone(), format!("{group}: {does}"));
            }
            groups.add(group, inventory.drives_below(&device.name).into_iter());
        }
        for fs in inventory.btrfs.iter().filter(|fs| fs.devices.len() > 1 || fs.operation.is_some())
        {
            let group = format!("btrfs {}", fs.label.as_ref().unwrap_or(&fs.uuid));
            if let Some(operation) = &fs.operation {
                groups.working.insert(group.clone(), format!("{group}: {operation} runs"));
            }
            let drives = fs.devices.iter().flat_map(|name| inventory.drives_below(name));
            groups.add(group, drives);
        }
        groups
    }

    fn add(&mut self, group: String, drives: impl Iterator<Item = &'a DriveId>) {
        for id in drives {
            self.of_drive.entry(id).or_default().insert(group.clone());
        }
    }

    pub(super) fn conflict(&self, busy: &Busy, drive: &DriveId) -> Option<String> {
        let groups = self.of_drive.get(drive)?;
        let of = |known: &Busy| groups.iter().find_map(|group| known.get(group).cloned());
        of(&self.working).or_else(|| of(busy))
    }

    pub(super) fn occupy(&self, busy: &mut Busy, drive: &DriveId, why: &str) {
        for group in self.of_drive.get(drive).into_iter().flatten() {
            busy.entry(group.clone()).or_insert_with(|| why.to_owned());
        }
    }
}

/// `check runs`; None: nothing.
fn working(state: &LayerState) -> Option<String> {
    let action = match state {
        LayerState::Zfs(pool) if !pool.has_layout() => {
            return Some("what `zpool status` says of it is not known".to_owned());
        }
        LayerState::Zfs(pool) => pool.running_scan(),
        state => state.stack()?.running(),
    };
    Some(format!("{} runs", action_text(Some(action?))))
}
