//! dm-raid: LVM's RAID. Read by `source/layers/status.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block::{Inventory, Layer};
use crate::redundancy::{Array, Member, Scheme};
use crate::stack::{Kind, StorageStack, tree_of_array};
use crate::volume::Stack;

/// dm-raid's status (Documentation/admin-guide/device-mapper/dm-raid.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmRaid {
    pub level: String,
    /// One character a leg: A alive and in sync, a alive, D dead, - missing.
    pub health: String,
    pub sync_action: Option<String>,
    pub status_line: String,
    /// md's layout word, of a raid10 whose table was read.
    #[serde(default)]
    pub layout: Option<u32>,
}

impl StorageStack for DmRaid {
    fn kind(&self) -> Kind {
        Kind::Array
    }

    fn level(&self) -> String {
        self.level.clone()
    }

    fn figure(&self) -> String {
        let live = self.health.chars().filter(|leg| !"D-".contains(*leg)).count();
        format!("{}, {live} of {} legs", self.level, self.health.chars().count())
    }

    fn members(&self, inventory: &Inventory, name: &str) -> Vec<String> {
        let is_image =
            |name: &String| mapped(inventory, name).is_some_and(|it| it.contains("_rimage_"));
        match self.is_intact() {
            Some(true) => legs(inventory, name).into_values().flatten().filter(is_image).collect(),
            _ => Vec::new(),
        }
    }

    /// While its state is not known (its level is empty), all its legs count as in sync.
    fn tree(
        &self,
        inventory: &Inventory,
        name: &str,
        below: &mut dyn FnMut(&str) -> Stack,
    ) -> Option<Stack> {
        let legs = legs(inventory, name);
        if legs.is_empty() {
            return None;
        }
        let mut stack =
            |names: &[String]| Stack::all_of(names.iter().map(|name| below(name)).collect());
        if self.level.is_empty() {
            let mut names = legs.values().flatten();
            let is_mirror = names.any(|name| {
                mapped(inventory, name).is_some_and(|it| leg_of(it, "_mimage_").is_some())
            });
            let parts: Vec<Stack> = legs.values().map(|names| stack(names)).collect();
            let (level, tolerates) = match is_mirror {
                true => ("mirror", parts.len().saturating_sub(1)),
                false => ("RAID of a level not known yet", 1),
            };
            return Some(Stack::Redundant { level: format!("{level} {name}"), tolerates, parts });
        }
        let Some(array) = self.array() else {
            let device = inventory.devices.get(name)?;
            return Some(stack(&device.underlying));
        };
        let mut whole: Vec<Option<Stack>> = vec![None; array.members().len()];
        let mut filling = Vec::new();
        for (number, names) in &legs {
            let at = *number as usize;
            let in_sync = array.members().get(at).is_none_or(|member| member.in_sync);
            match self.health.chars().nth(at).unwrap_or('A') {
                _ if in_sync => {
                    whole.resize(whole.len().max(at + 1), None);
                    whole[at] = Some(stack(names));
                }
                'a' => filling.push(stack(names)),
                _ => {}
            }
        }
        Some(tree_of_array(&format!("{} {name}", self.level), &array, &whole, filling))
    }

    /// Letters: `A` in sync, `a` not in sync, `D` dead, `-` missing (__raid_dev_status(),
    /// drivers/md/dm-raid.c). While the whole array is synchronized, after its creation or a crash, no
    /// leg is `A`: then each leg of a mirror holds all that was written, and no parity is valid.
    fn array(&self) -> Option<Array> {
        let scheme = Scheme::of(&self.level, self.layout)?;
        let is_whole_sync = !self.health.contains('A');
        let members = self.health.chars().map(|leg| Member {
            in_sync: leg == 'A' || (leg == 'a' && is_whole_sync),
            ..Member::default()
        });
        Some(Array::new(scheme, members.collect(), is_whole_sync))
    }

    fn is_intact(&self) -> Option<bool> {
        Some(self.health.chars().all(|leg| leg == 'A'))
    }

    fn action(&self) -> Option<&str> {
        self.sync_action.as_deref()
    }

    fn clear_usage(&mut self) {
        self.status_line.clear();
    }
}

/// The devices of each leg of LVM's RAID: `LV_rimage_N` and `LV_rmeta_N`, or `LV_mimage_N` of the older
/// mirror.
fn legs(inventory: &Inventory, name: &str) -> BTreeMap<u32, Vec<String>> {
    let mut legs: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let device = inventory.devices.get(name).into_iter();
    for name in device.flat_map(|device| &device.underlying) {
        let marks = ["_rimage_", "_rmeta_", "_mimage_"].into_iter();
        let number =
            mapped(inventory, name).and_then(|it| marks.filter_map(|mark| leg_of(it, mark)).next());
        if let Some(number) = number {
            legs.entry(number).or_default().push(name.clone());
        }
    }
    legs
}

fn leg_of(mapped: &str, mark: &str) -> Option<u32> {
    mapped.rsplit_once(mark)?.1.parse().ok()
}

/// The name of a dm device below /dev/mapper.
fn mapped<'a>(inventory: &'a Inventory, device: &str) -> Option<&'a str> {
    match &inventory.devices.get(device)?.layer {
        Layer::Dm { name, .. } => Some(name),
        _ => None,
    }
}
