//! A drive: a physical or virtual disk with an identity that survives reboots, re-plugging and
//! renaming; never `sdX`.

use serde::{Deserialize, Serialize};

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::DriveId;

/// The result of a hardware scan for one drive. An NVMe controller is a drive (its namespaces are
/// `devices`), a SCSI logical unit is a drive (its multipath paths are `devices`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFacts {
    pub id: DriveId,
    /// False when the id is made from the drive's location, because the drive has no identity of
    /// its own (virtio without serial, some USB bridges).
    pub id_stable: bool,
    /// What it calls itself, as ids, best first; without bogus texts. Another drive may have the
    /// same: a clone, a bridge with a fixed serial number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<DriveId>,
    /// `path:…`, its location as an id: differs between any two present drives.
    #[serde(default)]
    pub place: DriveId,
    /// Kernel name of the first device (`sda`, `nvme0n1`): an attribute that may change. For an
    /// NVMe controller without namespaces, `nvme0`.
    pub name: String,
    /// Block devices that are this drive: one, or several namespaces or paths. Sorted by name.
    pub devices: Vec<DriveDevice>,
    /// `/dev/disk/by-…` links from udev, sorted.
    pub links: Vec<String>,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// `naa.…`, `eui.…`, `nguid.…` or `uuid.…` from sysfs and udev, lower case, without `0x`.
    pub wwn: Option<String>,
    pub kind: DriveKind,
    pub transport: Transport,
    /// Sum over namespaces; one path's size for multipath.
    pub size_bytes: u64,
    pub logical_block_size: u32,
    pub physical_block_size: u32,
    pub rotational: Option<bool>,
    pub removable: bool,
    pub write_cache: Option<WriteCache>,
    pub location: Location,
    /// The kernel's state of the device: SCSI `device/state` (`running`, `offline`, `blocked`,
    /// `transport-offline`…; scsi_sysfs.c), NVMe controller `state` (`live`, `resetting`,
    /// `connecting`, `deleting`, `dead`; nvme core.c). It is not the worst of several paths: each
    /// device below has its own state.
    pub state: Option<String>,
    /// How long the kernel waits for a command before it aborts it and resets the drive, in seconds
    /// (`device/timeout`, drivers/scsi/sd.c); the shortest of several paths. Only SCSI has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_timeout: Option<u64>,
    /// The speed to which the kernel has limited the SATA link after errors, below what the port allows
    /// (`3.0 Gbps`; sata_down_spd_limit(), drivers/ata/libata-core.c).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowered_link_speed: Option<String>,
    /// The wear that an eMMC reports. That of UFS is among the counters: reading it asks the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashHealth>,
    /// True while the device is runtime-suspended (`power/runtime_status`): a query would wake it.
    pub asleep: bool,
}

impl DriveFacts {
    /// Any state but SCSI's `running` and NVMe's `live`, of the drive or of one of its devices.
    pub fn has_abnormal_state(&self) -> bool {
        let devices = self.devices.iter().map(|device| &device.state);
        let mut states = devices.chain([&self.state]).flatten();
        states.any(|state| !matches!(state.trim(), "running" | "live" | ""))
    }
}

/// The health report of an eMMC (JESD84-B51, EXT_CSD bytes 267 to 269), which the kernel reads when it
/// initializes the card and not again (mmc_decode_ext_csd(), drivers/mmc/core/mmc.c), or of a UFS device
/// (JESD220, Device Health Descriptor), with the same codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashHealth {
    /// Of two types of memory: tenths of the designed life, the one in use included; 11: exceeded;
    /// 0: not defined.
    pub life_time: [u8; 2],
    /// 1: normal; 2: 80 % of the reserved blocks are used; 3: 90 %, urgent; 0: not defined.
    pub pre_eol_info: u8,
}

/// The source of the counters of a UFS device, and their names.
pub const UFS: &str = "ufs";
pub const UFS_PRE_EOL: &str = "eol_info";
pub const UFS_LIFE_TIME: [&str; 2] = ["life_time_estimation_a", "life_time_estimation_b"];

impl FlashHealth {
    /// At least so much of the designed life is used, of the type with more wear.
    pub fn used_percent(&self) -> Option<u64> {
        let codes = self.life_time.into_iter().filter(|code| (1..=11).contains(code));
        codes.max().map(|code| u64::from(code - 1) * 10)
    }

    /// At least so many of the reserved blocks are used.
    pub fn reserve_used_percent(&self) -> Option<u64> {
        match self.pre_eol_info {
            1 => Some(0),
            2 => Some(80),
            3 => Some(90),
            _ => None,
        }
    }
}

/// `MODEL_SERIAL`, with each run of white space replaced by one `_`.
pub fn model_serial(model: &str, serial: &str) -> String {
    let fold = |text: &str| text.split_whitespace().collect::<Vec<_>>().join("_");
    format!("{}_{}", fold(model), fold(serial))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDevice {
    pub name: String,
    pub dev: DevNo,
    pub size_bytes: u64,
    /// `state` of the SCSI device or NVMe path behind this block device.
    pub state: Option<String>,
    /// SCSI host:channel:target:lun, if it is a SCSI device.
    pub hctl: Option<String>,
}

/// Whether a hypervisor or a cloud emulates the disk, by its SCSI vendor and model: its health and
/// rotation speed have no meaning.
pub fn is_emulated(vendor: Option<&str>, model: Option<&str>) -> bool {
    const VENDORS: [&str; 9] =
        ["QEMU", "VMware", "VBOX", "Msft", "Google", "NUTANIX", "Xen", "Virtuozzo", "AHV"];
    const MODELS: [&str; 13] = [
        "QEMU ",
        "VMware",
        "VBOX ",
        "ORCL-VBOX",
        "Amazon EC2",
        "Amazon Elastic",
        "nvme_card",
        "MSFT NVMe",
        "Microsoft NVMe",
        "Alibaba Cloud",
        "Google ",
        "Virtual ",
        "Parallels",
    ];
    vendor.is_some_and(|vendor| VENDORS.iter().any(|known| vendor.eq_ignore_ascii_case(known)))
        || model.is_some_and(|model| MODELS.iter().any(|known| model.starts_with(known)))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveKind {
    Hdd,
    Ssd,
    Nvme,
    /// Flash on the MMC bus: eMMC, also an SD card.
    Emmc,
    Usb,
    /// virtio, Xen, Hyper-V, a cloud's NVMe, a hypervisor's SCSI disk, an admitted loop device.
    Virtual,
    /// iSCSI, Fibre Channel, NVMe over fabrics, nbd, rbd: the kernel accesses it over a network.
    Remote,
    #[default]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Sata,
    Sas,
    /// Parallel or unspecified SCSI.
    Scsi,
    Nvme,
    Usb,
    Mmc,
    Virtio,
    Xen,
    HyperV,
    Iscsi,
    FibreChannel,
    /// NVMe over TCP, RDMA or Fibre Channel.
    NvmeFabrics,
    Nbd,
    Loop,
    /// A logical disk of a RAID controller.
    Raid,
    #[default]
    Unknown,
}

impl Transport {
    /// A path over a network: its loss does not affect the medium.
    pub fn is_remote(self) -> bool {
        matches!(
            self,
            Transport::Iscsi | Transport::FibreChannel | Transport::NvmeFabrics | Transport::Nbd
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteCache {
    WriteBack,
    WriteThrough,
}

/// The drive's location, as far as sysfs and udev report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Address of the nearest PCI device above it: `0000:03:00.0`.
    pub pci: Option<String>,
    pub sas_address: Option<String>,
    pub hctl: Option<String>,
    /// Number of the libata port (`ata3` in the kernel's log; drivers/ata/libata-core.c numbers
    /// them from 1 as they appear).
    #[serde(default)]
    pub ata_port: Option<u32>,
    /// NVMe controllers that lead to the drive (`nvme0`): the kernel log names them.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// The RAID controller that hides the drive from the kernel (`megaraid host0`). The drive has
    /// no devices, and `slot` is the controller's name for its slot (`megaraid,3`). None for a
    /// drive that the kernel lists.
    #[serde(rename = "behind", default, skip_serializing_if = "Option::is_none")]
    pub raid_controller: Option<String>,
    /// Driver of the RAID controller of which the drive is an array (`megaraid_sas`): a virtual drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_driver: Option<String>,
    /// udev's ID_PATH.
    pub path: Option<String>,
    /// Enclosure's id (its logical id or name) and the slot's name or number, from the SES driver's
    /// links.
    pub enclosure: Option<String>,
    pub slot: Option<String>,
}
