//! The map of device names in the log: which block device has an H:C:T:L, which SCSI host an ATA
//! port is, which devices are behind a bridge or a network.
//!
//! In: `TopologyUpdate`s. Out: one key for all names of a drive, and its `DeviceKind`. Bounded;
//! valid until the next boot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::device_name;
use crate::event::DeviceName;
use crate::parsed_record::DeviceKind;

/// Maximum number of names; a real machine has fewer, a hostile log may have more.
const MAX_NAMES: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceMap {
    name_by_hctl: BTreeMap<String, String>,
    /// ATA port → SCSI host.
    host_by_port: BTreeMap<u32, u32>,
    /// `scsi hostN: ahci` lines whose `ataN: SATA max …` line has not been read yet.
    unmatched_ata_hosts: VecDeque<u32>,
    /// Kind of a device, by `drive_key`.
    kind_by_key: BTreeMap<String, DeviceKind>,
    /// SCSI hosts whose driver the log names.
    known_hosts: BTreeSet<u32>,
    /// USB paths of SCSI hosts: `1-2` → 6.
    host_by_usb_path: BTreeMap<String, u32>,
    /// MMC cards by their hosts: `mmc1` → `mmcblk0`.
    card_by_host: BTreeMap<String, String>,
    /// MMC hosts that reported a card.
    hosts_with_card: BTreeSet<String>,
    /// NVMe controllers by their PCI functions.
    nvme_by_pci: BTreeMap<String, String>,
    /// Devices whose filesystem is mounted, as far as the log says.
    mounted: BTreeSet<String>,
    pub is_virtual_machine: bool,
    /// Something was unplugged: a USB device, a card of a slot, a drive of a port.
    pub has_unplugged_device: bool,
}

impl DeviceMap {
    pub(crate) fn assign_name(&mut self, hctl: &str, name: &str) {
        if self.name_by_hctl.get(hctl).is_some_and(|known| known == name) {
            return;
        }
        // Another device had the name before; its kind is outdated too.
        self.name_by_hctl.retain(|_, known| known != name);
        if self.name_by_hctl.len() < MAX_NAMES {
            self.name_by_hctl.insert(hctl.to_owned(), name.to_owned());
        }
    }

    pub(crate) fn add_scsi_host(&mut self, host: u32, driver: &str) {
        let driver = driver.trim();
        let kind = if driver.contains("usb-storage") || driver.starts_with("uas") {
            Some(DeviceKind::Usb)
        } else if [
            "iSCSI",
            "iscsi",
            "iSER",
            "SRP",
            "fcoe",
            "FCoE",
            "qla2",
            "QLogic Fibre",
            "Emulex",
            "lpfc",
            "zfcp",
            "ibmvfc",
            "bnx2fc",
        ]
        .iter()
        .any(|word| driver.contains(word))
        {
            Some(DeviceKind::Network)
        } else if [
            "Virtio",
            "virtio",
            "storvsc",
            "VMware",
            "vmw_pvscsi",
            "PVSCSI",
            "scsi_debug",
            "xen",
            "Xen",
            "TCM",
            "tcm_loop",
            "ibmvscsi",
        ]
        .iter()
        .any(|word| driver.contains(word))
        {
            Some(DeviceKind::Virtual)
        } else {
            None
        };
        if self.known_hosts.len() < MAX_NAMES {
            self.known_hosts.insert(host);
        }
        self.kind_by_key.remove(&scsi_host_key(host));
        self.name_by_hctl.retain(|hctl, _| scsi_host_of(hctl) != Some(host));
        if let Some(kind) = kind {
            self.set_kind(&DeviceName::ScsiHost(host), kind);
        }
        if let Some(path) = driver.split_whitespace().nth(1).and_then(|path| path.split(':').next())
            && kind == Some(DeviceKind::Usb)
            && self.host_by_usb_path.len() < MAX_NAMES
        {
            self.host_by_usb_path.insert(path.to_owned(), host);
        }
        if ["ata", "ahci", "piix"].iter().any(|word| driver.contains(word)) {
            if self.unmatched_ata_hosts.len() >= 256 {
                self.unmatched_ata_hosts.pop_front();
            }
            self.unmatched_ata_hosts.push_back(host);
        }
    }

    /// libata prints its SCSI hosts first and its ports after them, in the same order
    /// (ata_host_register()).
    pub(crate) fn add_ata_port(&mut self, port: u32) {
        if let Some(host) = self.unmatched_ata_hosts.pop_front() {
            self.link_port_to_host(port, host);
        }
    }

    pub(crate) fn link_port_to_host(&mut self, port: u32, host: u32) {
        if self.host_by_port.len() < MAX_NAMES {
            self.host_by_port.insert(port, host);
        }
    }

    pub(crate) fn host_of_port(&self, port: u32) -> Option<u32> {
        self.host_by_port.get(&port).copied()
    }

    pub(crate) fn set_kind(&mut self, device: &DeviceName, kind: DeviceKind) {
        let key = self.drive_key(device);
        if self.kind_by_key.len() < MAX_NAMES {
            self.kind_by_key.insert(key, kind);
        }
    }

    /// `mmcblk0: mmc1:0001 …`; the card's other areas (`mmcblk0boot0`) print the same form.
    pub(crate) fn add_card(&mut self, host: &str, name: &str) {
        let is_card = name
            .strip_prefix("mmcblk")
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        if is_card && self.card_by_host.len() < MAX_NAMES {
            self.card_by_host.insert(host.to_owned(), name.to_owned());
        }
    }

    pub(crate) fn add_host_with_card(&mut self, host: &DeviceName) {
        if self.hosts_with_card.len() < MAX_NAMES {
            self.hosts_with_card.insert(host.to_string());
        }
    }

    /// The MMC host has, or had, a card; that of the same number is usually its own.
    pub(crate) fn has_card(&self, host: &str) -> bool {
        self.hosts_with_card.contains(host) || self.card_by_host.contains_key(host)
    }

    pub(crate) fn add_nvme(&mut self, pci: &str, name: &str) {
        if self.nvme_by_pci.len() < MAX_NAMES {
            self.nvme_by_pci.insert(pci.to_owned(), name.to_owned());
        }
    }

    pub(crate) fn set_mounted(&mut self, name: &str, is_mounted: bool) {
        if !is_mounted {
            self.mounted.remove(name);
        } else if self.mounted.len() < MAX_NAMES {
            self.mounted.insert(name.to_owned());
        }
    }

    /// A filesystem of the disk or of one of its partitions is mounted.
    pub(crate) fn is_disk_mounted(&self, disk: &str) -> bool {
        self.mounted.iter().any(|name| device_name::whole_disk(name) == disk)
    }

    /// Whether the disk can be behind a USB bridge: the log does not say that it is elsewhere.
    pub(crate) fn may_be_usb(&self, device: &DeviceName) -> bool {
        let host = self.hctl_of(device).and_then(|hctl| scsi_host_of(&hctl));
        self.kind_of(device) == DeviceKind::Usb
            || host.is_none_or(|host| {
                !self.known_hosts.contains(&host)
                    && !self.host_by_port.values().any(|of_port| *of_port == host)
            })
    }

    /// The disks of a SCSI host.
    pub(crate) fn disks_of_host(&self, host: u32) -> Vec<String> {
        self.name_by_hctl
            .iter()
            .filter(|(hctl, _)| scsi_host_of(hctl) == Some(host))
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// The SCSI host behind this USB port, if the port had a disk.
    pub(crate) fn host_of_usb_path(&self, path: &str) -> Option<u32> {
        self.host_by_usb_path.get(path).copied()
    }

    /// The kind that the name shows, and the machine.
    pub(crate) fn kind_by_name(&self, device: &DeviceName) -> DeviceKind {
        match device {
            DeviceName::Block(name) if device_name::is_virtual(name) => DeviceKind::Virtual,
            DeviceName::Block(name) if device_name::is_remote(name) => DeviceKind::Network,
            _ if self.is_virtual_machine => DeviceKind::Virtual,
            _ => DeviceKind::Direct,
        }
    }

    /// The kind that records have shown, too.
    pub(crate) fn kind_of(&self, device: &DeviceName) -> DeviceKind {
        let by_name = self.kind_by_name(device);
        if matches!(device, DeviceName::Block(name) if device_name::is_virtual(name) || device_name::is_remote(name))
        {
            return by_name;
        }
        let key = self.drive_key(device);
        let by_host = self
            .hctl_of(device)
            .and_then(|hctl| scsi_host_of(&hctl))
            .and_then(|host| self.kind_by_key.get(&scsi_host_key(host)));
        // Kinds may have been recorded before the block name was assigned.
        let own = self
            .kind_by_key
            .get(&key)
            .max(self.hctl_of(device).and_then(|hctl| self.kind_by_key.get(&hctl)));
        own.max(by_host).copied().unwrap_or(by_name)
    }

    pub(crate) fn hctl_of(&self, device: &DeviceName) -> Option<String> {
        match device {
            DeviceName::Hctl(hctl) => Some(hctl.clone()),
            DeviceName::Block(name) => {
                let disk = device_name::whole_disk(name);
                self.name_by_hctl
                    .iter()
                    .find(|(_, known)| *known == disk)
                    .map(|(hctl, _)| hctl.clone())
            }
            DeviceName::ScsiHost(host) => Some(format!("{host}:0:0:0")),
            _ => None,
        }
    }

    /// One key for all names of a drive, as far as the log links them.
    pub(crate) fn drive_key(&self, device: &DeviceName) -> String {
        match device {
            DeviceName::Block(name) => device_name::drive_of(name).to_owned(),
            DeviceName::Hctl(hctl) => {
                self.name_by_hctl.get(hctl).cloned().unwrap_or_else(|| hctl.clone())
            }
            DeviceName::Ata { port, device: unit } => {
                let hctl = self
                    .host_of_port(*port)
                    .map(|host| format!("{host}:0:{}:0", unit.unwrap_or(0)));
                match hctl.and_then(|hctl| self.name_by_hctl.get(&hctl)) {
                    Some(name) => name.clone(),
                    // A port and its only device have one key; the slave on a PATA cable has
                    // another.
                    None if unit.unwrap_or(0) == 0 => format!("ata{port}"),
                    None => device.to_string(),
                }
            }
            other => other.to_string(),
        }
    }

    /// The block device name of a device for which a record uses another name.
    pub(crate) fn block_name(&self, device: &DeviceName) -> Option<DeviceName> {
        match device {
            DeviceName::Hctl(_) | DeviceName::Ata { .. } => {
                let key = self.drive_key(device);
                key.starts_with(|c: char| c.is_ascii_lowercase())
                    .then_some(key)
                    .filter(|key| !key.starts_with("ata"))
                    .map(DeviceName::Block)
            }
            DeviceName::Block(name) if device_name::is_mmc_host(name) => {
                self.card_by_host.get(name).cloned().map(DeviceName::Block)
            }
            DeviceName::Pci(pci) => self.nvme_by_pci.get(pci).cloned().map(DeviceName::Nvme),
            _ => None,
        }
    }
}

fn scsi_host_key(host: u32) -> String {
    DeviceName::ScsiHost(host).to_string()
}

pub(crate) fn scsi_host_of(hctl: &str) -> Option<u32> {
    hctl.split(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ata_ports_map_to_scsi_hosts_in_registration_order() {
        let mut devices = DeviceMap::default();
        devices.add_scsi_host(0, "usb-storage 1-2:1.0");
        devices.add_scsi_host(1, "ahci");
        devices.add_scsi_host(2, "ahci");
        devices.add_ata_port(1);
        devices.add_ata_port(2);
        devices.assign_name("2:0:0:0", "sdb");
        assert_eq!(devices.drive_key(&DeviceName::Ata { port: 2, device: Some(0) }), "sdb");
        assert_eq!(devices.drive_key(&DeviceName::Ata { port: 1, device: None }), "ata1");
        assert_eq!(devices.kind_of(&DeviceName::Hctl("0:0:0:0".to_owned())), DeviceKind::Usb);
        assert_eq!(devices.kind_of(&DeviceName::Block("sdb1".to_owned())), DeviceKind::Direct);
    }

    #[test]
    fn a_reassigned_name_loses_its_device_kind() {
        let mut devices = DeviceMap::default();
        devices.add_scsi_host(6, "uas");
        devices.assign_name("6:0:0:0", "sda");
        assert_eq!(devices.kind_of(&DeviceName::Block("sda".to_owned())), DeviceKind::Usb);
        devices.assign_name("0:0:0:0", "sda");
        assert_eq!(devices.kind_of(&DeviceName::Block("sda".to_owned())), DeviceKind::Direct);
    }
}
