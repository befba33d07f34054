//! What the log has taught of names and kinds: which letters an H:C:T:L has, which SCSI host an ATA
//! port is, what is behind a bridge or a network.
//!
//! In: `Learn`s. Out: one key for all names of a drive, and its `Kind`. Bounded; holds until the
//! next boot.

use std::collections::{BTreeMap, VecDeque};

use crate::model::kernel::event::Device;
use crate::model::kernel::name;
use crate::model::kernel::said::Kind;

/// Names that are remembered; a machine has fewer, a hostile log has more.
const MOST: usize = 4096;

#[derive(Clone, Debug, Default)]
pub struct Learned {
    letters: BTreeMap<String, String>,
    /// ATA port → SCSI host.
    hosts: BTreeMap<u32, u32>,
    /// `scsi hostN: ahci` lines whose `ataN: SATA max …` has not come yet.
    unmatched: VecDeque<u32>,
    /// By key.
    kinds: BTreeMap<String, Kind>,
    /// USB paths of SCSI hosts: `1-2` → 6.
    usb: BTreeMap<String, u32>,
    /// Cards by their hosts: `mmc1` → `mmcblk0`.
    cards: BTreeMap<String, String>,
    pub guest: bool,
}

impl Learned {
    pub fn letters(&mut self, hctl: &str, name: &str) {
        if self.letters.get(hctl).is_some_and(|known| known == name) {
            return;
        }
        // The letters were another's before, and so is what was known of them.
        self.letters.retain(|_, known| known != name);
        if self.letters.len() < MOST {
            self.letters.insert(hctl.to_owned(), name.to_owned());
        }
    }

    pub fn host(&mut self, host: u32, driver: &str) {
        let driver = driver.trim();
        let kind = if driver.contains("usb-storage") || driver.starts_with("uas") {
            Some(Kind::Usb)
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
            Some(Kind::Network)
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
            Some(Kind::Virtual)
        } else {
            None
        };
        self.kinds.remove(&host_key(host));
        self.letters.retain(|hctl, _| host_of(hctl) != Some(host));
        if let Some(kind) = kind {
            self.kind(&Device::ScsiHost(host), kind);
        }
        if let Some(path) = driver
            .split_whitespace()
            .nth(1)
            .and_then(|path| path.split(':').next())
            && kind == Some(Kind::Usb)
            && self.usb.len() < MOST
        {
            self.usb.insert(path.to_owned(), host);
        }
        if ["ata", "ahci", "piix"]
            .iter()
            .any(|word| driver.contains(word))
        {
            if self.unmatched.len() >= 256 {
                self.unmatched.pop_front();
            }
            self.unmatched.push_back(host);
        }
    }

    /// libata tells of its hosts first and of its ports after, in the same order
    /// (ata_host_register()).
    pub fn port(&mut self, port: u32) {
        if let Some(host) = self.unmatched.pop_front() {
            self.same(port, host);
        }
    }

    pub fn same(&mut self, port: u32, host: u32) {
        if self.hosts.len() < MOST {
            self.hosts.insert(port, host);
        }
    }

    pub fn host_of_port(&self, port: u32) -> Option<u32> {
        self.hosts.get(&port).copied()
    }

    pub fn kind(&mut self, device: &Device, kind: Kind) {
        let key = self.key(device);
        if self.kinds.len() < MOST {
            self.kinds.insert(key, kind);
        }
    }

    /// `mmcblk0: mmc1:0001 …`; the card's other areas (`mmcblk0boot0`) are told of in the same way.
    pub fn card(&mut self, host: &str, name: &str) {
        let is_card = name
            .strip_prefix("mmcblk")
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        if is_card && self.cards.len() < MOST {
            self.cards.insert(host.to_owned(), name.to_owned());
        }
    }

    /// The host behind this USB port, if it was a disk.
    pub fn usb_host(&self, path: &str) -> Option<u32> {
        self.usb.get(path).copied()
    }

    pub fn kind_of(&self, device: &Device) -> Kind {
        if let Device::Block(name) = device
            && name::is_virtual(name)
        {
            return Kind::Virtual;
        }
        let key = self.key(device);
        let by_host = self
            .hctl_of(device)
            .and_then(|hctl| host_of(&hctl))
            .and_then(|host| self.kinds.get(&host_key(host)));
        // What was learnt before the letters were given.
        let own = self
            .kinds
            .get(&key)
            .max(self.hctl_of(device).and_then(|hctl| self.kinds.get(&hctl)));
        match own.max(by_host) {
            Some(kind) => *kind,
            None if self.guest => Kind::Virtual,
            None => Kind::Direct,
        }
    }

    pub fn hctl_of(&self, device: &Device) -> Option<String> {
        match device {
            Device::Hctl(hctl) => Some(hctl.clone()),
            Device::Block(name) => {
                let disk = name::whole(name);
                self.letters
                    .iter()
                    .find(|(_, known)| *known == disk)
                    .map(|(hctl, _)| hctl.clone())
            }
            Device::ScsiHost(host) => Some(format!("{host}:0:0:0")),
            _ => None,
        }
    }

    /// One key for all names of a drive, as far as they are known to be one.
    pub fn key(&self, device: &Device) -> String {
        match device {
            Device::Block(name) => name::drive(name).to_owned(),
            Device::Hctl(hctl) => self
                .letters
                .get(hctl)
                .cloned()
                .unwrap_or_else(|| hctl.clone()),
            Device::Ata { port, device } => {
                let hctl = self
                    .host_of_port(*port)
                    .map(|host| format!("{host}:0:{}:0", device.unwrap_or(0)));
                match hctl.and_then(|hctl| self.letters.get(&hctl)) {
                    Some(name) => name.clone(),
                    // A port and its only device are one for us; the slave of an old cable is
                    // another.
                    None if device.unwrap_or(0) == 0 => format!("ata{port}"),
                    None => device_key(*port, *device),
                }
            }
            other => other.to_string(),
        }
    }

    /// The letters of a device that a record names otherwise.
    pub fn block_name(&self, device: &Device) -> Option<Device> {
        match device {
            Device::Hctl(_) | Device::Ata { .. } => {
                let key = self.key(device);
                key.starts_with(|c: char| c.is_ascii_lowercase())
                    .then_some(key)
                    .filter(|key| !key.starts_with("ata"))
                    .map(Device::Block)
            }
            Device::Block(name) if name::is_card_host(name) => {
                self.cards.get(name).cloned().map(Device::Block)
            }
            _ => None,
        }
    }
}

fn device_key(port: u32, device: Option<u32>) -> String {
    Device::Ata { port, device }.to_string()
}

fn host_key(host: u32) -> String {
    Device::ScsiHost(host).to_string()
}

pub fn host_of(hctl: &str) -> Option<u32> {
    hctl.split(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_hosts_in_the_order_in_which_libata_tells_of_them() {
        let mut learned = Learned::default();
        learned.host(0, "usb-storage 1-2:1.0");
        learned.host(1, "ahci");
        learned.host(2, "ahci");
        learned.port(1);
        learned.port(2);
        learned.letters("2:0:0:0", "sdb");
        assert_eq!(
            learned.key(&Device::Ata {
                port: 2,
                device: Some(0)
            }),
            "sdb"
        );
        assert_eq!(
            learned.key(&Device::Ata {
                port: 1,
                device: None
            }),
            "ata1"
        );
        assert_eq!(
            learned.kind_of(&Device::Hctl("0:0:0:0".to_owned())),
            Kind::Usb
        );
        assert_eq!(
            learned.kind_of(&Device::Block("sdb1".to_owned())),
            Kind::Direct
        );
    }

    #[test]
    fn letters_that_are_given_anew_lose_what_was_known() {
        let mut learned = Learned::default();
        learned.host(6, "uas");
        learned.letters("6:0:0:0", "sda");
        assert_eq!(learned.kind_of(&Device::Block("sda".to_owned())), Kind::Usb);
        learned.letters("0:0:0:0", "sda");
        assert_eq!(
            learned.kind_of(&Device::Block("sda".to_owned())),
            Kind::Direct
        );
    }
}
