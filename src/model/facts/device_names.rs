//! Kernel names of drives, current and former: names are reused as soon as they are free, and a log
//! record is about the drive that had the name when it was written.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::{Inventory, Layer};
use crate::drive::{DriveFacts, Transport};
use diskvitals_finding::ids::DriveId;
use diskvitals_kernel_log::event::DeviceName;
use diskvitals_text::duration::elapsed;

/// Maximum number of assignments that are kept of one name.
const MAX_ASSIGNMENTS: usize = 4;
/// Beyond it, links of members that are gone are forgotten.
const MAX_LINKS: usize = 4096;
/// The log has records of a new device before the first scan that finds it has ended: the kernel
/// reads its partition table first.
const SCAN_LAG: Duration = Duration::from_secs(30);

/// Names of drives and of their partitions, current and former.
#[derive(Clone, Debug, Default)]
pub struct DeviceNames {
    assignments: BTreeMap<DeviceName, Vec<Assignment>>,
    /// Names of the devices that filesystem checks create, with the start and end of the last
    /// assignment. These devices exist for a short time, and are few.
    check_devices: BTreeMap<String, (Timestamp, Option<Timestamp>)>,
    /// Kernel names of members of ZFS pools by udev's links below /dev, also of those that are gone:
    /// its records name members so. Of links that several devices have, none (by-uuid: the pool's).
    links: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Assignment {
    drive: DriveId,
    /// None: since before the first scan.
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl DeviceNames {
    /// Updates the names after a scan. `first`: no scan was made before, so the present devices may
    /// have existed for long.
    pub fn update(&mut self, inventory: &Inventory, first: bool, now: Timestamp) {
        self.update_links(inventory);
        let mut current = BTreeMap::new();
        for drive in &inventory.drives {
            for name in names_of(drive, inventory) {
                // Two devices on one libata port: the port identifies neither, `ata3.00` does.
                current
                    .entry(name)
                    .and_modify(|holder| *holder = None)
                    .or_insert(Some(drive.id.clone()));
            }
        }
        for (name, holders) in &mut self.assignments {
            let now_held = current.get(name).and_then(Option::as_ref);
            if let Some(last) = holders
                .last_mut()
                .filter(|last| last.until.is_none() && Some(&last.drive) != now_held)
            {
                last.until = Some(now);
            }
        }
        for (name, drive) in current {
            let Some(drive) = drive else { continue };
            let holders = self.assignments.entry(name).or_default();
            if holders.last().is_some_and(|last| last.until.is_none()) {
                continue;
            }
            holders.push(Assignment { drive, from: (!first).then_some(now), until: None });
            let surplus = holders.len().saturating_sub(MAX_ASSIGNMENTS);
            holders.drain(..surplus);
            // Most names have one assignment, and thousands of them room for four.
            holders.shrink_to_fit();
        }
    }

    fn update_links(&mut self, inventory: &Inventory) {
        let mut current: BTreeMap<String, Option<String>> = BTreeMap::new();
        let members = inventory.devices.values();
        for member in members.filter(|it| it.fs_type.as_deref() == Some("zfs_member")) {
            for link in member.links.iter().filter_map(|link| link.strip_prefix("/dev/")) {
                current
                    .entry(link.to_owned())
                    .and_modify(|device| *device = None)
                    .or_insert(Some(member.name.clone()));
            }
        }
        if self.links.len() > MAX_LINKS {
            self.links.clear();
        }
        // One that the members of a pool have is of none of them, also when only one is left.
        current.retain(|link, _| self.links.get(link).is_none_or(Option::is_some));
        self.links.append(&mut current);
    }

    /// The kernel name of a member of a pool that a record names by a link.
    pub(super) fn of_link(&self, name: &DeviceName) -> Option<DeviceName> {
        match name {
            DeviceName::Block(link) => self.links.get(link)?.clone().map(DeviceName::Block),
            _ => None,
        }
    }

    /// Updates the devices of checks, after every successful scan.
    pub(crate) fn update_check_devices(&mut self, inventory: &Inventory, now: Timestamp) {
        for (_, (_, until)) in self.check_devices.iter_mut().filter(|(name, (_, until))| {
            until.is_none() && !inventory.check_devices.contains(*name)
        }) {
            *until = Some(now);
        }
        for name in &inventory.check_devices {
            let held = self.check_devices.entry(name.clone()).or_insert((now, None));
            if held.1.is_some() {
                *held = (now, None);
            }
        }
        self.check_devices
            .retain(|_, (_, until)| until.is_none_or(|until| elapsed(until, now) <= SCAN_LAG * 2));
    }

    /// Whether a check's own device had this name at that time: the check itself judges records
    /// about it.
    pub fn is_check_device(&self, name: &DeviceName, at: Timestamp) -> bool {
        let DeviceName::Block(name) = name else {
            return false;
        };
        let Some((from, until)) = self.check_devices.get(name) else {
            return false;
        };
        (*from <= at || elapsed(at, *from) <= SCAN_LAG) && until.is_none_or(|until| at <= until)
    }

    /// Whether another drive had this name at that time than now.
    pub(crate) fn was_reassigned(&self, name: &DeviceName, at: Timestamp) -> bool {
        let Some(holders) = self.assignments.get(name) else {
            return false;
        };
        let had = |holder: &&Assignment| {
            holder.from.is_none_or(|from| from <= at)
                && holder.until.is_some_and(|until| at <= until)
        };
        let now = holders.last().filter(|holder| holder.until.is_none());
        // At the moment of the change, the record may be about either: the newer is assumed.
        now.is_some_and(|now| {
            now.from.is_some_and(|from| at < from)
                && holders.iter().any(|holder| had(&holder) && holder.drive != now.drive)
        })
    }

    /// Whether a device of the drive has gone since then, such as one of its paths.
    pub(crate) fn has_lost_one(&self, drive: &DriveId, since: Timestamp) -> bool {
        let is_lost = |holder: &Assignment| {
            holder.drive == *drive && holder.until.is_some_and(|until| until >= since)
        };
        let names = self.assignments.iter();
        let mut devices = names.filter(|(name, _)| matches!(name, DeviceName::Block(_)));
        devices.any(|(_, holders)| holders.iter().any(is_lost))
    }

    /// The drive that had this name at that time. A record may be slightly older than the scan that
    /// first found its device.
    pub(crate) fn drive_at(&self, name: &DeviceName, at: Timestamp) -> Option<&DriveId> {
        let holders = self.assignments.get(name)?;
        let held = holders.iter().rev().find(|holder| holder.from.is_none_or(|from| from <= at));
        let soon =
            |holder: &&Assignment| holder.from.is_some_and(|from| elapsed(at, from) <= SCAN_LAG);
        held.or_else(|| holders.iter().find(soon)).map(|holder| &holder.drive)
    }
}

/// All names that the kernel log may use for this drive.
fn names_of(drive: &DriveFacts, inventory: &Inventory) -> Vec<DeviceName> {
    let mut names = Vec::new();
    for device in &drive.devices {
        names.push(DeviceName::Block(device.name.clone()));
        names.push(DeviceName::Number(device.dev));
        names.extend(device.hctl.clone().map(DeviceName::Hctl));
        for part in inventory.devices.values() {
            if matches!(part.layer, Layer::Partition { .. })
                && part.underlying.first() == Some(&device.name)
            {
                names.push(DeviceName::Block(part.name.clone()));
                names.push(DeviceName::Number(part.dev));
            }
        }
    }
    names.extend(drive.location.controllers.iter().cloned().map(DeviceName::Nvme));
    if let Some(port) = drive.location.ata_port {
        names.push(DeviceName::Ata { port, device: None });
        names
            .extend(ata_device(drive).map(|device| DeviceName::Ata { port, device: Some(device) }));
    }
    names.extend(drive.location.pci.clone().map(DeviceName::Pci));
    names.extend(raid_array(drive));
    names
}

/// megaraid_sas has arrays on the channels from 2, with 128 targets each (MEGASAS_MAX_PD_CHANNELS and
/// MEGASAS_MAX_DEV_PER_CHANNEL, megaraid_sas.h). Only its records contain such names.
fn raid_array(drive: &DriveFacts) -> Option<DeviceName> {
    let pci = drive.location.pci.clone().filter(|_| drive.transport == Transport::Raid)?;
    Some(DeviceName::RaidArray { pci, number: array_number(drive)? })
}

/// aacraid has them on channel 0, each target with the number of its container (CONTAINER_CHANNEL,
/// CONTAINER_TO_ID, aacraid.h); the addresses of hpsa and smartpqi are the driver's own.
pub(crate) fn array_number(drive: &DriveFacts) -> Option<u32> {
    let (channel, target) = channel_and_target(drive)?;
    match drive.location.array_driver.as_deref() {
        Some("aacraid") => (channel == 0).then_some(target),
        Some("hpsa" | "smartpqi") => None,
        _ => Some(channel.checked_sub(2)? * 128 + target),
    }
}

/// Behind a port multiplier the link is the SCSI channel; without one the device is the SCSI target
/// (ata_scsi_scan_host(), drivers/ata/libata-scsi.c).
fn ata_device(drive: &DriveFacts) -> Option<u32> {
    let (channel, target) = channel_and_target(drive)?;
    Some(channel + target)
}

fn channel_and_target(drive: &DriveFacts) -> Option<(u32, u32)> {
    let mut fields =
        drive.location.hctl.as_ref()?.split(':').skip(1).map(|field| field.parse::<u16>().ok());
    Some((fields.next()??.into(), fields.next()??.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestHost, at};

    fn block(name: &str) -> DeviceName {
        DeviceName::Block(name.into())
    }

    fn holder<'a>(names: &'a DeviceNames, name: &str, second: i64) -> Option<&'a str> {
        names.drive_at(&block(name), at(second)).map(DriveId::as_str)
    }

    #[test]
    fn a_record_is_about_the_drive_that_had_the_name_when_it_was_written() {
        let mut names = DeviceNames::default();
        let mut host = TestHost::default().disk("sda", "8:0", "A");
        names.update(&host.inventory, true, at(0));
        host.pull("sda");
        names.update(&host.inventory, false, at(100));
        assert_eq!(
            holder(&names, "sda", 150),
            Some("A"),
            "gone, and still the drive that had it last"
        );
        host.plug("sda", "8:0", "B");
        names.update(&host.inventory, false, at(200));
        assert_eq!(
            (holder(&names, "sda", -50), holder(&names, "sda", 150), holder(&names, "sda", 200)),
            (Some("A"), Some("A"), Some("B"))
        );
        assert_eq!(
            names
                .drive_at(&DeviceName::Number("8:0".parse().unwrap()), at(300))
                .map(DriveId::as_str),
            Some("B")
        );
        let former = |second| names.was_reassigned(&block("sda"), at(second));
        assert_eq!([-50, 99, 150, 200].map(former), [true, true, false, false]);
        host.pull("sda");
        names.update(&host.inventory, false, at(300));
        assert!(!names.was_reassigned(&block("sda"), at(50)), "nobody has it now");
    }

    #[test]
    fn a_record_may_precede_the_scan_of_a_new_device() {
        let mut names = DeviceNames::default();
        names.update(&Inventory::default(), true, at(0));
        let host = TestHost::default().disk("sdb", "8:16", "B");
        names.update(&host.inventory, false, at(100));
        assert_eq!((holder(&names, "sdb", 99), holder(&names, "sdb", 10)), (Some("B"), None));
    }

    #[test]
    fn ports_controllers_and_partitions_are_names_too() {
        let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
        for (at, target) in [(0, "0"), (1, "1")] {
            let drive = &mut host.inventory.drives[at];
            drive.location.ata_port = Some(3);
            drive.location.hctl = Some(format!("2:0:{target}:0"));
            drive.devices[0].hctl.clone_from(&drive.location.hctl);
        }
        host.inventory.drives[0].location.controllers = vec!["nvme7".into()];
        let part = Layer::Partition { number: 1, start_bytes: 1 << 20 };
        host = host.with(crate::fixture::device("sda1", "8:1", part, &["sda"]));
        let mut names = DeviceNames::default();
        names.update(&host.inventory, true, at(0));
        let held = |name: DeviceName| names.drive_at(&name, at(1)).map(DriveId::to_string);
        assert_eq!(held(DeviceName::Ata { port: 3, device: None }), None, "two drives on one port");
        assert_eq!(held(DeviceName::Ata { port: 3, device: Some(1) }).as_deref(), Some("B"));
        assert_eq!(held(DeviceName::Hctl("2:0:0:0".into())).as_deref(), Some("A"));
        assert_eq!(held(DeviceName::Nvme("nvme7".into())).as_deref(), Some("A"));
        assert_eq!((held(block("sda1")).as_deref(), held(block("sdc"))), (Some("A"), None));
    }
}
