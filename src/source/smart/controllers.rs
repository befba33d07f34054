//! RAID controllers that hide their physical disks from the kernel: finds them, and determines how
//! smartctl reaches the disks behind them.
//!
//! In: /sys/class/scsi_host, /sys/class/scsi_device, /sys/class/scsi_generic, in a worker. Out: one
//! `Controller` each. `enumerate` queries the disks.
//!
//! The access, by driver (smartctl(8), -d; os_linux.cpp):
//! - megaraid_sas: `megaraid,N` on /dev/bus/HOST, a name that smartctl parses itself. N is the
//!   firmware's number, 0 to 127 with gaps of any size (a backplane's begin at 8 or 32), so all are
//!   queried; a missing one is reported within milliseconds, without access to a disk.
//! - hpsa, smartpqi, cciss: `cciss,N` on the controller's own node (SCSI type 12). N counts the
//!   controller's list of physical devices from 0, including enclosures: eight in a row that are no
//!   disk end it.
//! - arcmsr: `areca,N`, `areca,N/E` on the controller's own node (SCSI type 3). Slots from 1 in up
//!   to 8 enclosures: 24 empty ones in a row end an enclosure, two empty enclosures in a row end
//!   it. Controllers without enclosures have only the first.
//! - 3w-9xxx, 3w-sas, 3w-xxxx: `3ware,N` on /dev/twaN, twlN, tweN, whose N counts the driver's
//!   controllers. Ports from 0; 32 empty ones in a row end it.
//! - aacraid: `aacraid,H,L,ID`, where H is the driver's number of the controller (`unique_id`). The
//!   kernel has each physical disk as a SCSI device of a channel other than 0, without a block
//!   device: those are queried.

pub mod enumerate;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::inventory::classify;
use crate::inventory::sysfs::SysfsReader;
use diskvitals_finding::path::HostPath;
use diskvitals_host::root::HostRoot;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerKind {
    Megaraid,
    Cciss,
    Areca,
    ThreeWare,
    Aacraid,
}

impl ControllerKind {
    fn from_driver(driver: &str) -> Option<ControllerKind> {
        Some(match driver {
            "megaraid_sas" => ControllerKind::Megaraid,
            "hpsa" | "smartpqi" | "cciss" => ControllerKind::Cciss,
            "arcmsr" => ControllerKind::Areca,
            "3w-9xxx" | "3w-sas" | "3w-xxxx" => ControllerKind::ThreeWare,
            "aacraid" => ControllerKind::Aacraid,
            _ => return None,
        })
    }

    /// The name in smartctl's options.
    pub fn name(self) -> &'static str {
        match self {
            ControllerKind::Megaraid => "megaraid",
            ControllerKind::Cciss => "cciss",
            ControllerKind::Areca => "areca",
            ControllerKind::ThreeWare => "3ware",
            ControllerKind::Aacraid => "aacraid",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    pub kind: ControllerKind,
    /// Number of the SCSI host.
    pub host: u32,
    /// smartctl's device argument; None: there is no such node, and `device_error` explains why.
    pub device: Option<HostPath>,
    pub device_error: Option<String>,
    pub pci: Option<String>,
    /// The `-d` of each slot that may contain a disk, in groups of neighbors.
    pub slot_groups: Vec<Vec<String>>,
    /// SCSI devices of the host in the kernel: when they change, the disks may have changed.
    pub devices: Vec<String>,
}

impl Controller {
    /// `megaraid host0`.
    pub fn name(&self) -> String {
        format!("{} host{}", self.kind.name(), self.host)
    }
}

const HOSTS: &str = "/sys/class/scsi_host";
const DEVICES: &str = "/sys/class/scsi_device";
const GENERIC: &str = "/sys/class/scsi_generic";
/// SCSI peripheral device types (SPC-6, 6.7.2).
const DISK: u64 = 0;
const PROCESSOR: u64 = 3;
const ARRAY_CONTROLLER: u64 = 12;

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("reading {HOSTS}")]
    ListHosts(#[source] std::io::Error),
}

/// Runs in a worker: sysfs may wait for a device. The error: the result is unknown, and no
/// controller counts as removed.
pub fn find(root: &HostRoot) -> Result<Vec<Controller>, FindError> {
    let reader = SysfsReader::new(root);
    let names = match reader.try_list(HOSTS) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(FindError::ListHosts)?,
    };
    let mut hosts: Vec<(u32, String)> = names
        .iter()
        .filter_map(|name| {
            let driver = reader.text(&format!("{HOSTS}/{name}/proc_name")).ok()??;
            Some((name.strip_prefix("host")?.parse().ok()?, driver))
        })
        .collect();
    hosts.sort();
    let known = |(host, driver): &(u32, String)| {
        // 3ware's nodes are numbered per driver.
        let rank = hosts.iter().filter(|(other, same)| same == driver && other < host).count();
        Some(read_controller(&reader, ControllerKind::from_driver(driver)?, *host, driver, rank))
    };
    Ok(hosts.iter().filter_map(known).collect())
}

/// A SCSI device of a host.
struct ScsiDevice {
    hctl: String,
    channel: u32,
    target: u32,
    lun: u64,
    kind: Option<u64>,
    has_block: bool,
}

fn read_controller(
    reader: &SysfsReader<'_>,
    kind: ControllerKind,
    host: u32,
    driver: &str,
    rank: usize,
) -> Controller {
    let names = reader.list(DEVICES);
    let devices: Vec<ScsiDevice> =
        names.iter().filter_map(|name| read_device(reader, host, name)).collect();
    let generic = |kind: u64| {
        let of = |node: &String| {
            let path = reader.link(&format!("{GENERIC}/{node}/device"))?;
            let hctl = path.rsplit('/').next()?;
            devices
                .iter()
                .any(|device| device.hctl == hctl && device.kind == Some(kind))
                .then(|| HostPath::new(format!("/dev/{node}")))
        };
        reader.list(GENERIC).iter().find_map(of)
    };
    let no_node =
        |what: &str| Some(format!("there is no /dev/sgN of its {what}: load the module sg"));
    let (device, missing) = match kind {
        ControllerKind::Megaraid => (Some(HostPath::new(format!("/dev/bus/{host}"))), None),
        ControllerKind::Cciss => (generic(ARRAY_CONTROLLER), no_node("controller device")),
        ControllerKind::Areca => (generic(PROCESSOR), no_node("processor device")),
        ControllerKind::ThreeWare => {
            let letter = match driver {
                "3w-sas" => 'l',
                "3w-xxxx" => 'e',
                _ => 'a',
            };
            (Some(HostPath::new(format!("/dev/tw{letter}{rank}"))), None)
        }
        // smartctl opens /dev/aacH, whatever its device argument is.
        ControllerKind::Aacraid => {
            (Some(HostPath::new(format!("/dev/aac{}", aacraid_adapter(reader, host, rank)))), None)
        }
    };
    let missing = missing.filter(|_| device.is_none());
    let pci = reader
        .link(&format!("{HOSTS}/host{host}"))
        .and_then(|path| classify::pci_address(&path).map(str::to_owned));
    let places = match kind {
        ControllerKind::Megaraid => vec![(0..128).map(|id| format!("megaraid,{id}")).collect()],
        ControllerKind::Cciss => vec![(0..128).map(|id| format!("cciss,{id}")).collect()],
        ControllerKind::ThreeWare => vec![(0..128).map(|id| format!("3ware,{id}")).collect()],
        ControllerKind::Areca => (1..=8)
            .map(|enclosure| (1..=128).map(|slot| areca_slot(slot, enclosure)).collect())
            .collect(),
        ControllerKind::Aacraid => {
            let adapter = aacraid_adapter(reader, host, rank);
            let hidden = devices.iter().filter(|device| {
                device.channel > 0 && device.kind == Some(DISK) && !device.has_block
            });
            vec![
                hidden
                    .map(|device| format!("aacraid,{adapter},{},{}", device.lun, device.target))
                    .collect(),
            ]
        }
    };
    Controller {
        kind,
        host,
        device,
        device_error: missing,
        pci,
        slot_groups: places,
        devices: devices.into_iter().map(|device| device.hctl).collect(),
    }
}

fn areca_slot(slot: u32, enclosure: u32) -> String {
    if enclosure == 1 { format!("areca,{slot}") } else { format!("areca,{slot}/{enclosure}") }
}

/// aacraid numbers its controllers itself, and uses that number for its nodes (aac_probe_one(),
/// aac_cfg_open(), drivers/scsi/aacraid/linit.c).
fn aacraid_adapter(reader: &SysfsReader<'_>, host: u32, rank: usize) -> u64 {
    let told = reader.number(&format!("{HOSTS}/host{host}/unique_id")).ok().flatten();
    told.unwrap_or(rank as u64)
}

fn read_device(reader: &SysfsReader<'_>, of: u32, hctl: &str) -> Option<ScsiDevice> {
    let mut numbers = hctl.split(':').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (host, channel, target, lun) = (next()?, next()?, next()?, next()?);
    if host != u64::from(of) {
        return None;
    }
    let kind = reader.number(&format!("{DEVICES}/{hctl}/device/type")).ok().flatten();
    let has_block = reader.is_dir(&format!("{DEVICES}/{hctl}/device/block"));
    Some(ScsiDevice {
        hctl: hctl.to_owned(),
        channel: u32::try_from(channel).ok()?,
        target: u32::try_from(target).ok()?,
        lun,
        kind,
        has_block,
    })
}
