//! dm-raid: LVM's RAID. Its status and table are read by `source/layers/status.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block::{Inventory, Layer};
use crate::redundancy::{Array, Member, Scheme};
use crate::stack::shortfall::{action_text, progress_text};
use crate::stack::{Below, Left, Place, Shortfall, StorageStack, tree_of_array};
use crate::volume::Stack;
use diskvitals_finding::reason::LayerKind;

/// dm-raid's status (Documentation/admin-guide/device-mapper/dm-raid.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmRaid {
    pub level: String,
    /// One character a leg: A alive and in sync, a alive, D dead, - missing.
    pub health: String,
    pub sync_action: Option<String>,
    /// Sectors in sync, or done of what runs, and all.
    #[serde(default)]
    pub synced: Option<(u64, u64)>,
    /// Sectors that differed at the last check; 0 also without one.
    #[serde(default)]
    pub mismatches: Option<u64>,
    pub status_line: String,
    /// md's layout word, of a raid10 whose table was read.
    #[serde(default)]
    pub layout: Option<u32>,
}

impl StorageStack for DmRaid {
    fn kind(&self) -> LayerKind {
        LayerKind::Array
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
    fn tree(&self, inventory: &Inventory, name: &str, below: Below) -> Option<Stack> {
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
            return Some(match is_mirror {
                true => Stack::Redundant {
                    level: format!("mirror {}", self.name(inventory, name)),
                    tolerates: parts.len().saturating_sub(1),
                    parts,
                },
                false => Stack::Undetermined {
                    level: format!("array {} whose level is not known", self.name(inventory, name)),
                    parts,
                },
            });
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
        Some(tree_of_array(
            &format!("{} {}", self.level, self.name(inventory, name)),
            &array,
            &whole,
            filling,
        ))
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

    fn shortfall(&self, place: Place) -> Option<Shortfall> {
        let array = self.array();
        let is_dead = |leg: &char| "D-".contains(*leg);
        let slots = self.health.chars().enumerate();
        let dead: Vec<usize> = slots.filter(|(_, leg)| is_dead(leg)).map(|(at, _)| at).collect();
        let left = match &array {
            None if dead.is_empty() => return None,
            None => Left::TooFew,
            Some(array) => Left::of(array)?,
        };
        let legs = place.facts.inventory().map(|it| legs(it, place.name)).unwrap_or_default();
        let devices_of = |leg: usize| -> Vec<String> {
            let number = u32::try_from(leg).unwrap_or(u32::MAX);
            legs.get(&number).cloned().unwrap_or_default()
        };
        let slots = array.iter().flat_map(Array::missing_slots);
        let to_fill: Vec<usize> = slots.filter(|leg| !dead.contains(leg)).collect();
        let missing =
            dead.iter().map(|leg| match place.drive_names(&devices_of(*leg)).as_slice() {
                [] => format!("leg {leg}"),
                drives => format!("leg {leg} (on {})", drives.join(", ")),
            });
        let shortfall = Shortfall {
            name: place.device_label(place.name),
            level: self.level(),
            unit: "legs",
            slots: "legs",
            have: array.as_ref().map_or(0, Array::count_in_sync),
            all: self.health.chars().count(),
            left,
            action: action_text(self.action()),
            progress: progress_text(self),
            is_rebuilding: self.action() == Some("recover") && !to_fill.is_empty(),
            missing: missing.collect(),
            proof: vec![(format!("dm status of {}", place.name), self.status_line.clone())],
            ..Shortfall::of_array(place, array.as_ref(), &devices_of)
        };
        let filling = to_fill.into_iter().flat_map(devices_of).collect();
        let shortfall = Shortfall { filling, ..shortfall };
        Some(Shortfall { repair: repair(&shortfall), ..shortfall })
    }

    fn action(&self) -> Option<&str> {
        self.sync_action.as_deref()
    }

    /// Only while something runs: then the ratio is of that.
    fn progress(&self) -> Option<(u64, u64)> {
        self.synced.filter(|_| self.action().is_some_and(|action| action != "idle"))
    }

    fn mismatches(&self) -> Option<u64> {
        self.mismatches.filter(|_| self.action() == Some("idle"))
    }

    fn clear_usage(&mut self) {
        self.synced = None;
        self.status_line.clear();
    }
}

fn repair(shortfall: &Shortfall) -> String {
    let (name, when) = (&shortfall.name, shortfall.left.deadline());
    if shortfall.waits_for_parity {
        return format!(
            "Let the synchronization of {name} run (`lvchange --syncaction repair {name}`)."
        );
    }
    let command = match shortfall.filling.is_empty() {
        false => format!(
            "if it is back and tests healthy, `lvchange --refresh {name}`; otherwise `lvconvert --repair {name}`"
        ),
        true => format!(
            "`lvconvert --repair {name}`. If the old drive is back and tests healthy, `lvchange --refresh {name}` is enough"
        ),
    };
    format!("Replace the missing leg {when}: {command}.")
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
