//! The drives of the guest: QEMU's options for each, its address in the guest, and the id that
//! diskvitals must give it.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
pub enum Bus {
    /// On a PCIe root port of this number.
    Nvme(u8),
    /// On this port of the board's AHCI; cannot be plugged.
    Sata(u8),
    /// virtio-scsi, target.
    Scsi(u8),
    /// megasas (a RAID controller's firmware), target.
    MegaRaid(u8),
    /// mptsas1068 (a SAS host adapter), target.
    Sas(u8),
    /// xHCI, port.
    Usb(u8),
}

#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// The base of QEMU's names: the block node, `f-` + it for the file below, `d-` + it for the
    /// device.
    pub node: &'static str,
    pub bus: Bus,
    pub serial: &'static str,
    /// The last two digits of its WWN; 0 for buses that have none.
    wwn: u8,
    /// The id that diskvitals must give it.
    pub id: &'static str,
}

pub const SIZE_MIB: u64 = 320;

/// Free root ports and USB ports for drives that return in another slot: root port 9, USB port 4.
pub const NVME_PORTS: u8 = 12;

/// From here on no drive's; those of pools of ZFS have higher numbers.
pub const FREE_SCSI_TARGET: u8 = 20;

const fn nvme(node: &'static str, port: u8, serial: &'static str, id: &'static str) -> Drive {
    Drive { node, bus: Bus::Nvme(port), serial, wwn: 0, id }
}

const fn disk(
    node: &'static str,
    bus: Bus,
    serial: &'static str,
    wwn: u8,
    id: &'static str,
) -> Drive {
    Drive { node, bus, serial, wwn, id }
}

/// Members of pools and of LVM's RAID: not there at the boot, but added by their scenario.
const fn member(node: &'static str, number: u8, serial: &'static str, id: &'static str) -> Drive {
    disk(node, Bus::Scsi(number), serial, number, id)
}

// A scenario's drives are its own: what one breaks, another must find GOOD.
pub const NVME_PULLED: Drive = nvme("nv0", 0, "NVSER0001", "QEMU_NVMe_Ctrl_NVSER0001");
pub const NVME_MEDIUM: Drive = nvme("nv1", 1, "NVSER0002", "QEMU_NVMe_Ctrl_NVSER0002");
pub const NVME_SLOW: Drive = nvme("nv2", 2, "NVSER0003", "QEMU_NVMe_Ctrl_NVSER0003");
pub const NVME_METADATA: Drive = nvme("nv3", 3, "NVSER0004", "QEMU_NVMe_Ctrl_NVSER0004");
/// For the scenarios about SMART; QEMU emulates enough of it only for NVMe.
pub const NVME_WARNS: Drive = nvme("nv4", 4, "NVSER0005", "QEMU_NVMe_Ctrl_NVSER0005");
pub const NVME_TORN: Drive = nvme("nv5", 5, "NVSER0006", "QEMU_NVMe_Ctrl_NVSER0006");
pub const NVME_HANGS: Drive = nvme("nv6", 6, "NVSER0007", "QEMU_NVMe_Ctrl_NVSER0007");
pub const NVME_FLOODS: Drive = nvme("nv7", 7, "NVSER0008", "QEMU_NVMe_Ctrl_NVSER0008");
pub const NVME_HALF: Drive = nvme("nv8", 8, "NVSER0009", "QEMU_NVMe_Ctrl_NVSER0009");
pub const NVME_DIES: Drive = nvme("nv10", 10, "NVSER0010", "QEMU_NVMe_Ctrl_NVSER0010");
/// A pool of volumes for pods.
pub const NVME_POOL: Drive = nvme("nv11", 11, "NVSER0011", "QEMU_NVMe_Ctrl_NVSER0011");
pub const SATA_MEDIUM: Drive = disk("sa0", Bus::Sata(0), "SATA0001", 0x01, "naa.5000c50000000001");
pub const SATA_SLOW: Drive = disk("sa1", Bus::Sata(1), "SATA0002", 0x02, "naa.5000c50000000002");
pub const SATA_PULLED: Drive = disk("sa2", Bus::Sata(2), "SATA0003", 0x03, "naa.5000c50000000003");
pub const SATA_METADATA: Drive =
    disk("sa3", Bus::Sata(3), "SATA0004", 0x04, "naa.5000c50000000004");
/// Never broken, and not used but by its scenario.
pub const SATA_RESTS: Drive = disk("sa4", Bus::Sata(4), "SATA0005", 0x05, "naa.5000c50000000005");
pub const SCSI_MEDIUM: Drive = disk("sc0", Bus::Scsi(0), "SCSI0001", 0x11, "naa.5000c50000000011");
pub const SCSI_PULLED: Drive = disk("sc1", Bus::Scsi(1), "SCSI0002", 0x12, "naa.5000c50000000012");
pub const RAID_LEG_A: Drive = disk("sc2", Bus::Scsi(2), "SCSI0003", 0x13, "naa.5000c50000000013");
pub const RAID_LEG_B: Drive = disk("sc3", Bus::Scsi(3), "SCSI0004", 0x14, "naa.5000c50000000014");
pub const BENEATH_DM: Drive = disk("sc4", Bus::Scsi(4), "SCSI0005", 0x15, "naa.5000c50000000015");
pub const BENEATH_POOL: Drive = disk("sc5", Bus::Scsi(5), "SCSI0006", 0x16, "naa.5000c50000000016");
pub const SCSI_RESTART: Drive = disk("sc6", Bus::Scsi(6), "SCSI0007", 0x17, "naa.5000c50000000017");
pub const SCSI_FORGOTTEN: Drive =
    disk("sc8", Bus::Scsi(8), "SCSI0009", 0x19, "naa.5000c50000000019");
/// Filesystem checks: two for a volume group, and one alone.
pub const CHECKED_A: Drive = disk("sc9", Bus::Scsi(9), "SCSI0010", 0x1a, "naa.5000c5000000001a");
pub const CHECKED_B: Drive = disk("sc10", Bus::Scsi(10), "SCSI0011", 0x1b, "naa.5000c5000000001b");
pub const CHECKED_DISK: Drive =
    disk("sc11", Bus::Scsi(11), "SCSI0012", 0x1c, "naa.5000c5000000001c");
pub const CHECKED_FROZEN: Drive =
    disk("sc12", Bus::Scsi(12), "SCSI0013", 0x1d, "naa.5000c5000000001d");
/// The halves of a btrfs that mirrors its data.
pub const BTRFS_HALF_A: Drive =
    disk("sc13", Bus::Scsi(13), "SCSI0014", 0x1e, "naa.5000c5000000001e");
pub const BTRFS_HALF_B: Drive =
    disk("sc14", Bus::Scsi(14), "SCSI0015", 0x1f, "naa.5000c5000000001f");
/// Never broken: the control on the same adapter.
pub const SCSI_INNOCENT: Drive =
    disk("sc7", Bus::Scsi(7), "SCSI0008", 0x18, "naa.5000c50000000018");
pub const MEGARAID_MEDIUM: Drive =
    disk("mg0", Bus::MegaRaid(0), "MEGA0001", 0x21, "naa.5000c50000000021");
pub const SAS_MEDIUM: Drive = disk("mp0", Bus::Sas(0), "MPTS0001", 0x31, "naa.5000c50000000031");
pub const USB_PULLED: Drive = disk("us0", Bus::Usb(1), "USB0001", 0, "QEMU_HARDDISK_USB0001");
pub const USB_MEDIUM: Drive = disk("us1", Bus::Usb(2), "USB0002", 0, "QEMU_HARDDISK_USB0002");

pub const ZFS_PULLED_A: Drive = member("zp41", 0x41, "ZPOOL41", "naa.5000c50000000041");
pub const ZFS_PULLED_B: Drive = member("zp42", 0x42, "ZPOOL42", "naa.5000c50000000042");
pub const ZFS_UNREADABLE_A: Drive = member("zp43", 0x43, "ZPOOL43", "naa.5000c50000000043");
pub const ZFS_UNREADABLE_B: Drive = member("zp44", 0x44, "ZPOOL44", "naa.5000c50000000044");
pub const ZFS_CHECKSUM_A: Drive = member("zp45", 0x45, "ZPOOL45", "naa.5000c50000000045");
pub const ZFS_CHECKSUM_B: Drive = member("zp46", 0x46, "ZPOOL46", "naa.5000c50000000046");
pub const ZFS_SUSPENDED_A: Drive = member("zp47", 0x47, "ZPOOL47", "naa.5000c50000000047");
pub const ZFS_SUSPENDED_B: Drive = member("zp48", 0x48, "ZPOOL48", "naa.5000c50000000048");
pub const ZFS_SPARED_A: Drive = member("zp49", 0x49, "ZPOOL49", "naa.5000c50000000049");
pub const ZFS_SPARED_B: Drive = member("zp4a", 0x4a, "ZPOOL4A", "naa.5000c5000000004a");
pub const ZFS_SPARE: Drive = member("zp4b", 0x4b, "ZPOOL4B", "naa.5000c5000000004b");
pub const ZFS_FULL_A: Drive = member("zp4c", 0x4c, "ZPOOL4C", "naa.5000c5000000004c");
pub const ZFS_FULL_B: Drive = member("zp4d", 0x4d, "ZPOOL4D", "naa.5000c5000000004d");
pub const ZFS_EXPORTED_A: Drive = member("zp54", 0x54, "ZPOOL54", "naa.5000c50000000054");
pub const ZFS_EXPORTED_B: Drive = member("zp55", 0x55, "ZPOOL55", "naa.5000c50000000055");
pub const ZFS_ZVOL_A: Drive = member("zp56", 0x56, "ZPOOL56", "naa.5000c50000000056");
pub const ZFS_ZVOL_B: Drive = member("zp57", 0x57, "ZPOOL57", "naa.5000c50000000057");

pub const LVM_LEG_A: Drive = member("lv58", 0x58, "LVMRAID58", "naa.5000c50000000058");
pub const LVM_LEG_B: Drive = member("lv59", 0x59, "LVMRAID59", "naa.5000c50000000059");

/// A mirror, and the drive that takes the place of its first member.
pub const REPLACED: Drive = member("rp5a", 0x5a, "REPLACE5A", "naa.5000c5000000005a");
pub const REPLACED_OTHER: Drive = member("rp5b", 0x5b, "REPLACE5B", "naa.5000c5000000005b");
pub const REPLACED_NEW: Drive = member("rp5c", 0x5c, "REPLACE5C", "naa.5000c5000000005c");

/// There at the boot.
pub const ALL: &[Drive] = &[
    NVME_PULLED,
    NVME_MEDIUM,
    NVME_SLOW,
    NVME_METADATA,
    NVME_WARNS,
    NVME_TORN,
    NVME_HANGS,
    NVME_FLOODS,
    NVME_HALF,
    NVME_DIES,
    NVME_POOL,
    SATA_MEDIUM,
    SATA_SLOW,
    SATA_PULLED,
    SATA_METADATA,
    SATA_RESTS,
    SCSI_MEDIUM,
    SCSI_PULLED,
    RAID_LEG_A,
    RAID_LEG_B,
    BENEATH_DM,
    BENEATH_POOL,
    SCSI_RESTART,
    SCSI_FORGOTTEN,
    CHECKED_A,
    CHECKED_B,
    CHECKED_DISK,
    CHECKED_FROZEN,
    BTRFS_HALF_A,
    BTRFS_HALF_B,
    SCSI_INNOCENT,
    MEGARAID_MEDIUM,
    SAS_MEDIUM,
    USB_PULLED,
    USB_MEDIUM,
];

impl Drive {
    /// QEMU's id of the device.
    pub fn device_id(&self) -> String {
        format!("d-{}", self.node)
    }

    /// The node of the file below; faults are inserted between the two.
    pub fn file_node(&self) -> String {
        format!("f-{}", self.node)
    }

    /// As `-device` and `device_add` take it, at `bus`: its own slot, or another one when it
    /// returns.
    pub fn properties(&self, bus: Bus) -> Value {
        let mut device =
            json!({ "id": self.device_id(), "drive": self.node, "serial": self.serial });
        let more = match bus {
            Bus::Nvme(port) => json!({ "driver": "nvme", "bus": format!("rp{port}") }),
            Bus::Sata(port) => {
                json!({ "driver": "ide-hd", "bus": format!("ide.{port}"), "rotation_rate": 7200 })
            }
            Bus::Scsi(target) => {
                json!({ "driver": "scsi-hd", "bus": "virtio-scsi.0", "scsi-id": target, "lun": 0 })
            }
            Bus::MegaRaid(target) => {
                json!({ "driver": "scsi-hd", "bus": "megaraid.0", "scsi-id": target, "lun": 0 })
            }
            Bus::Sas(target) => {
                json!({ "driver": "scsi-hd", "bus": "sas.0", "scsi-id": target, "lun": 0 })
            }
            Bus::Usb(port) => {
                json!({ "driver": "usb-storage", "bus": "usb.0", "port": port.to_string() })
            }
        };
        merge(&mut device, more);
        if self.node == SATA_RESTS.node {
            // A disk whose model is QEMU's is one of a hypervisor, which does not turn.
            merge(&mut device, json!({ "model": "LAB ROTATING DISK" }));
        }
        if self.wwn > 0 {
            // Errors are passed to the guest; QEMU's default pauses it for some.
            merge(
                &mut device,
                json!({ "wwn": 0x5000_c500_0000_0000_u64 + u64::from(self.wwn), "rerror": "report", "werror": "report" }),
            );
        }
        device
    }

    /// A link that is the same under every kernel name.
    pub fn link(&self) -> String {
        match self.bus {
            Bus::Nvme(_) => format!("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{}", self.serial),
            Bus::Usb(_) => format!("/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_{}-0:0", self.serial),
            _ => format!("/dev/disk/by-id/wwn-0x5000c500000000{:02x}", self.wwn),
        }
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}
