//! LVM: RAID volumes are repaired onto the new physical volume, linear ones are moved (lvmraid(7)).

use std::collections::BTreeSet;

use crate::block::{BlockDevice, Layer, LayerState};
use crate::facts::KnownDrive;
use crate::label;
use crate::replacement::{Guide, Need, NewDrive, Step, StepKind, quoted};
use crate::stack::StorageStack;

const PV: &str = "LVM2_member";

impl<'a> Guide<'a> {
    pub(super) fn has_lvm(&self) -> bool {
        let of_present = self.physical_volumes().next().is_some();
        of_present || self.known.signatures.iter().any(|it| it.fs_type == PV)
    }

    fn physical_volumes(&self) -> impl Iterator<Item = &'a BlockDevice> {
        let devices = self.devices_of(self.id()).into_iter();
        devices.filter(|device| device.fs_type.as_deref() == Some(PV))
    }

    pub(super) fn lvm(&self) -> Vec<Need<'_>> {
        if self.is_missing() {
            return self.lvm_lost();
        }
        self.physical_volumes().filter_map(|pv| self.lvm_need(pv)).collect()
    }

    /// RAID volumes with a dead leg, while a drive with a physical volume is out.
    fn lvm_lost(&self) -> Vec<Need<'_>> {
        if !self.has_lvm() {
            return Vec::new();
        }
        let layers = self.facts.layers.iter();
        let short = layers.filter_map(|(name, layer)| match layer.state.last_known()? {
            LayerState::DmRaid(raid) if raid.lacking().is_none_or(|it| it > 0) => {
                let volume = self.logical_volume(name)?;
                Some((volume, raid))
            }
            _ => None,
        });
        let needs = short.map(|((group, volume), raid)| {
            if raid.running().is_some() {
                return Need::Step(self.wait(raid, &format!("{group}/{volume}")));
            }
            let stack = format!("{group}/{volume}");
            Need::New(NewDrive {
                stack,
                is_on_old: false,
                take_out: None,
                step: Box::new(move |new| {
                    let commands = |new: &str| {
                        let lv = quoted(&format!("{group}/{volume}"));
                        vec![
                            format!("vgextend {} {new}", quoted(group)),
                            format!("lvconvert --repair {lv} {new}"),
                        ]
                    };
                    self.on_physical_volume(
                        new,
                        format!("Repair {group}/{volume} onto the new drive. When every volume of {group} is repaired, `vgreduce --removemissing {}` forgets the old one.", quoted(group)),
                        &commands,
                    )
                }),
            })
        });
        needs.collect()
    }

    fn lvm_need(&self, pv: &'a BlockDevice) -> Option<Need<'_>> {
        let above: Vec<&BlockDevice> = self
            .inventory
            .devices
            .values()
            .filter(|device| device.name != pv.name && matches!(device.layer, Layer::Dm { .. }))
            .filter(|device| self.inventory.devices_below(&device.name).contains(pv.name.as_str()))
            .collect();
        let is_raid = |device: &&&BlockDevice| {
            let layer = self.facts.layers.get(&device.name);
            let state = layer.and_then(|it| it.state.last_known());
            matches!(state, Some(LayerState::DmRaid(_)))
        };
        for device in &above {
            let state = self.facts.layers.get(&device.name)?.state.last_known();
            if let Some(LayerState::DmRaid(raid)) = state
                && raid.running().is_some_and(|it| !matches!(it, "check" | "repair"))
            {
                return Some(Need::Step(
                    self.wait(raid, &label::device(self.inventory, &device.name)),
                ));
            }
        }
        let old = self.path(&pv.name);
        if let Some(raid) = above.iter().find(is_raid) {
            let (group, volume) = self.logical_volume(&raid.name)?;
            return Some(self.move_off(
                group,
                format!("lvconvert --replace {old} {}", quoted(&format!("{group}/{volume}"))),
                "Fill the new drive while the old one stays in use.",
            ));
        }
        let linear = above.iter().find_map(|it| self.logical_volume(&it.name));
        if let Some((group, _)) = linear {
            return Some(self.move_off(
                group,
                format!("pvmove {old}"),
                "Move what is on the old drive; it is copied while it is in use.",
            ));
        }
        let groups: BTreeSet<&str> = self
            .inventory
            .devices
            .values()
            .filter_map(|it| self.logical_volume(&it.name))
            .map(|it| it.0)
            .collect();
        let group = match groups.into_iter().collect::<Vec<_>>().as_slice() {
            [one] => quoted(one),
            _ => "VG".to_owned(),
        };
        Some(Need::Step(Step::type_in(
            format!(
                "No active volume is on {old}. `pvs -o +pv_used {old}` must show 0 used, and its group. Then take it out of the group."
            ),
            [format!("vgreduce {group} {old}"), format!("pvremove {old}")],
        )))
    }

    fn move_off(&self, group: &'a str, command: String, text: &'static str) -> Need<'_> {
        Need::New(NewDrive {
            stack: format!("the volume group {group}"),
            is_on_old: true,
            take_out: None,
            step: Box::new(move |new| {
                let commands = |new: &str| {
                    vec![format!("vgextend {} {new}", quoted(group)), format!("{command} {new}")]
                };
                self.on_physical_volume(new, text.to_owned(), &commands)
            }),
        })
    }

    /// The new drive is a physical volume first.
    fn on_physical_volume(
        &self,
        new: &KnownDrive,
        text: String,
        commands: &dyn Fn(&str) -> Vec<String>,
    ) -> Step {
        let Some(disk) = self.disk_of(&new.facts.id) else {
            return Step::new(StepKind::NotKnown, "The new drive has no block device.");
        };
        let path = self.path(&disk.name);
        match disk.fs_type.as_deref() {
            Some(PV) => Step::type_in(text, commands(&path)),
            _ => {
                Step::type_in("Make the new drive a physical volume.", [format!("pvcreate {path}")])
            }
        }
    }

    /// Its group and name.
    fn logical_volume(&self, device: &str) -> Option<(&'a str, &'a str)> {
        match &self.inventory.devices.get(device)?.layer {
            Layer::Dm { volume_group: Some(group), logical_volume: Some(volume), .. } => {
                Some((group, volume))
            }
            _ => None,
        }
    }
}
