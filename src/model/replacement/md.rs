//! md: the new member is added and filled while the old one still holds its data (mdadm(8), --replace).

use crate::block::{BlockDevice, Layer, LayerState};
use crate::facts::KnownDrive;
use crate::replacement::{Guide, Need, NewDrive, Step, StepKind};
use crate::stack::{MdMember, MdState, StorageStack};
use diskvitals_finding::ids::DriveId;

/// udev's names for members of arrays whose metadata the firmware defines: they are added to the
/// container (mdadm(8)).
const EXTERNAL: [&str; 2] = ["isw_raid_member", "ddf_raid_member"];

impl<'a> Guide<'a> {
    /// The arrays with redundancy that have a member on the drive, or had one that nothing has replaced.
    pub(super) fn arrays_of_drive(&self) -> Vec<(&'a str, &'a MdState)> {
        let layers = self.facts.layers.iter();
        let arrays = layers.filter_map(|(name, layer)| match layer.state.last_known()? {
            LayerState::Md(md) if self.inventory.devices.contains_key(name) => {
                Some((name.as_str(), md))
            }
            _ => None,
        });
        let is_its = |(name, md): &(&str, &MdState)| {
            md.array().is_some()
                && (self.member_on(name, md, self.id()).is_some()
                    || self.lost_drives(name, md).contains(&self.id()))
        };
        arrays.filter(is_its).collect()
    }

    /// Also one that failed and whose device is gone.
    fn member_on(&self, name: &str, md: &'a MdState, drive: &DriveId) -> Option<&'a MdMember> {
        let slots = self.facts.layers.get(name).map(|layer| &layer.slots);
        let was_its = |member: &MdMember| {
            let mut seen = slots.into_iter().flat_map(|it| it.values());
            !self.inventory.devices.contains_key(&member.device)
                && seen.any(|it| it.device == member.device && it.drive.as_ref() == Some(drive))
        };
        let mut members = md.members.iter();
        members.find(|member| self.is_on(&member.device, drive) || was_its(member))
    }

    /// The drives that were in slots that hold no current data now. md notices a member that is gone with
    /// its next write only.
    pub(super) fn lost_drives(&self, name: &str, md: &MdState) -> Vec<&'a DriveId> {
        let is_there = |member: &MdMember| self.inventory.devices.contains_key(&member.device);
        let is_short = md.degraded > 0 || !md.members.iter().all(is_there);
        let is_in_sync = |slot: u32| {
            let mut members = md.members.iter().filter(|member| member.slot == Some(slot));
            members.any(|member| member.is("in_sync") && is_there(member))
        };
        let slots = self.facts.layers.get(name).into_iter().flat_map(|layer| &layer.slots);
        let lost = slots.filter(|(slot, _)| is_short && !is_in_sync(**slot));
        lost.filter_map(|(_, seen)| seen.drive.as_ref()).collect()
    }

    pub(super) fn is_member_of(&self, array: &str, device: &BlockDevice) -> bool {
        let array = self.inventory.devices.get(array);
        let of_array = array.into_iter().flat_map(|it| &it.underlying);
        let mut listed = of_array.filter_map(|name| self.inventory.devices.get(name));
        let uuid = device
            .fs_uuid
            .as_ref()
            .filter(|_| device.fs_type.as_deref() == Some("linux_raid_member"));
        uuid.is_some() && listed.any(|it| it.fs_uuid.as_ref() == uuid)
    }

    /// It waits for data of an array of the old drive, or is to be added to one: a member in sync is in use.
    pub(super) fn is_filled_by_its_arrays(&self, device: &BlockDevice) -> bool {
        self.arrays_of_drive().iter().any(|(name, md)| {
            match md.members.iter().find(|it| it.device == device.name) {
                Some(member) => !member.is("in_sync"),
                None => self.is_member_of(name, device),
            }
        })
    }

    pub(super) fn md(&self) -> Vec<Need<'_>> {
        let arrays = self.arrays_of_drive();
        let needs = arrays.into_iter().map(|(name, md)| self.md_need(name, md));
        needs.collect()
    }

    fn md_need(&self, name: &'a str, md: &'a MdState) -> Need<'_> {
        let running = md.running().filter(|it| !matches!(*it, "check" | "repair"));
        if running.is_some() || md.is_resync_due {
            return Need::Step(self.wait(md, name));
        }
        let array = format!("/dev/{name}");
        let old = self.member_on(name, md, self.id());
        if let Some(old) = old.filter(|it| it.is("faulty")) {
            let is_there = self.inventory.devices.contains_key(&old.device);
            let device = if is_there { self.path(&old.device) } else { "detached".to_owned() };
            let container = self.container(old).unwrap_or(array);
            return Need::Step(Step::type_in(
                format!("{name} no longer uses {}: take it out of the array.", old.device),
                [format!("mdadm {container} --remove {device}")],
            ));
        }
        let spare = md
            .members
            .iter()
            .find(|it| !it.is("in_sync") && !it.is("faulty") && !self.is_on(&it.device, self.id()));
        let is_there = |it: &&MdMember| self.inventory.devices.contains_key(&it.device);
        match (old.filter(|it| it.is("in_sync")).filter(is_there), spare) {
            (None, Some(_)) => Need::Step(Step::new(
                StepKind::Wait,
                format!("{name} has the new member and begins to fill it by itself."),
            )),
            (Some(old), Some(spare)) if self.container(old).is_none() => {
                let (from, to) = (self.path(&old.device), self.path(&spare.device));
                Need::Step(Step::type_in(
                    format!(
                        "Fill the new member of {name} while the old one stays in use: no copy is lost meanwhile."
                    ),
                    [format!("mdadm {array} --replace {from} --with {to}")],
                ))
            }
            (Some(old), Some(_)) if self.is_pullable() => Need::Step(Step::type_in(
                format!(
                    "The metadata of {name} is that of its firmware, which fills a spare only after a failure. Have a backup."
                ),
                [format!("mdadm {array} --fail {}", self.path(&old.device))],
            )),
            (Some(old), Some(_)) => Need::Step(Step::new(
                StepKind::NotKnown,
                format!("{} cannot be taken out of {name} now.", old.device),
            )),
            (_, None) => {
                let fail =
                    |it: &MdMember| format!("mdadm {array} --fail {}", self.path(&it.device));
                Need::New(NewDrive {
                    stack: name.to_owned(),
                    is_on_old: old.is_some(),
                    take_out: old.map(fail),
                    step: Box::new(move |new| self.md_add(name, md, new)),
                })
            }
        }
    }

    fn is_pullable(&self) -> bool {
        self.removal.answer == crate::removal::CanBePulled::Yes
    }

    /// A new member: a partition where the others are partitions.
    fn md_add(&self, name: &str, md: &MdState, new: &KnownDrive) -> Step {
        let Some(disk) = self.disk_of(&new.facts.id) else {
            return Step::new(StepKind::NotKnown, "The new drive has no block device.");
        };
        let others = || md.members.iter().filter(|it| !it.is("faulty"));
        let container = others().find_map(|it| self.container(it));
        let target = container.unwrap_or_else(|| format!("/dev/{name}"));
        let numbers = others().filter_map(|member| {
            let device = self.inventory.devices.get(&member.device)?;
            match device.layer {
                Layer::Partition { number, .. } => Some((number, device)),
                _ => None,
            }
        });
        let member = match numbers.min_by_key(|(number, _)| *number) {
            None => Some(disk),
            Some((number, pattern)) => {
                let devices = self.devices_of(&new.facts.id);
                let part = devices.into_iter().find(
                    |it| matches!(it.layer, Layer::Partition { number: n, .. } if n == number),
                );
                if part.is_none() {
                    return self.partition(pattern, disk);
                }
                part
            }
        };
        let Some(member) = member else {
            return Step::new(StepKind::NotKnown, "The new drive has no such partition.");
        };
        Step::type_in(
            format!("Add the new drive to {name}."),
            [format!("mdadm {target} --add {}", self.path(&member.name))],
        )
    }

    /// The table goes through a file: of a copy from disk to disk, swapped arguments destroy the good
    /// one. Identifiers are not copied: two disks with the same ones are mistaken for each other.
    fn partition(&self, pattern: &BlockDevice, disk: &BlockDevice) -> Step {
        let from = pattern.underlying.first().map(|name| self.path(name)).unwrap_or_default();
        let to = self.path(&disk.name);
        Step::type_in(
            "Give the new drive the partitions of a member. Read the file before you apply it: it must fit the size of the new drive. A boot loader and an ESP are copied separately.",
            [
                format!(
                    "sfdisk --dump {from} | grep -v '^label-id:' | sed 's/, *uuid=[^,]*//' > /root/partitions"
                ),
                format!("sfdisk {to} < /root/partitions"),
            ],
        )
    }

    /// The container of a member whose metadata is external.
    fn container(&self, member: &MdMember) -> Option<String> {
        let device = self.inventory.devices.get(&member.device)?;
        let kind = device.fs_type.as_deref()?;
        if !EXTERNAL.contains(&kind) {
            return None;
        }
        let mut devices = self.inventory.devices.values();
        let container = devices.find(|it| {
            matches!(&it.layer, Layer::Md { level: Some(level) } if level == "container")
                && it.underlying.contains(&member.device)
        });
        container.map(|it| format!("/dev/{}", it.name))
    }
}
