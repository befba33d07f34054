//! Enumerates the disks behind one controller, slot by slot. Controllers are enumerated in
//! parallel: one that hangs delays no other.
//!
//! In: the controller, the disks known before. Out: the complete list, or an error; then the known
//! disks remain. A slot that times out, or at which a smartctl runs already, keeps its disk. A slot
//! that reports no disk is checked again before its disk is removed: a single failed INQUIRY looks
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::inventory::identity::{self, IdentityAssignment, IdentityCandidate};
use crate::smart::backend::Backend;
use crate::smart::controller_locks::{ControllerLockGuard, ControllerLocks};
use crate::smart::controllers::{Controller, ControllerKind};
use crate::smart::query;
use crate::smart::tasks::TASK_LOST;
use diskvitals_host::clock::now;
use diskvitals_host::exec::{ExecError, Output, UnkillableChild};
use diskvitals_model::drive::{DriveFacts, DriveKind, Location, Transport, model_serial};
use diskvitals_model::source_update::RaidMemberDrive;
use diskvitals_smart::report::Identity;

/// The identity is reported quickly or not at all.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// Further checks of a slot that had a disk and reports none.
const ABSENT_RETRIES: u32 = 3;
/// Slots that may time out before the fault is that of the controller.
const MAX_TIMEOUTS: usize = 2;
/// Consecutive empty enclosures that end the enumeration of an areca controller.
const MAX_EMPTY_GROUPS: usize = 2;

/// The state of a controller between two enumerations.
#[derive(Clone, Debug, Default)]
pub struct KnownDisks {
    /// By slot.
    pub disks: BTreeMap<String, Identity>,
    /// Slots at which smartctl hangs and cannot be killed: they are skipped.
    pub stuck: BTreeSet<String>,
    /// Slots that had a disk, and how often in a row they have reported none.
    pub absent_counts: BTreeMap<String, u32>,
}

/// Why there is no list of the disks. The disks known before remain known.
#[derive(Debug, thiserror::Error)]
pub enum EnumerateError {
    #[error("{TASK_LOST}")]
    TaskLost,
    /// The controller could not be accessed.
    #[error("{0}")]
    AccessFailed(String),
    #[error("{count} places have not answered within {} s", timeout.as_secs())]
    TimedOut { count: usize, timeout: Duration },
    /// A fault of the controller, or of the access to it: not of all its disks.
    #[error("none of its {0} disks answers")]
    NoDiskAnswers(usize),
}

#[derive(Debug)]
pub struct Enumeration {
    pub drives: Result<Vec<RaidMemberDrive>, EnumerateError>,
    pub disks: BTreeMap<String, Identity>,
    pub absent_counts: BTreeMap<String, u32>,
    /// The list may lack a disk: a slot could not be read, or has lost its disk.
    pub incomplete: bool,
    /// Slots at which smartctl hung.
    pub stuck: Vec<StuckSlot>,
}

#[derive(Debug)]
pub struct StuckSlot {
    pub slot: String,
    pub since: Timestamp,
    pub child: UnkillableChild,
    /// Held until that smartctl has exited.
    pub lock: Option<ControllerLockGuard>,
}

/// The content of one slot.
enum SlotContent {
    Disk(Box<Identity>),
    Empty,
    /// The access failed before any disk was reached: the node of the controller cannot be opened,
    /// for example.
    AccessFailed(String),
    /// No response in time.
    TimedOut(Option<(Timestamp, UnkillableChild)>),
    /// A smartctl runs there already.
    Busy,
}

pub async fn enumerate<W: Backend>(
    backend: W,
    program: std::path::PathBuf,
    device: std::path::PathBuf,
    controller: Controller,
    known: KnownDisks,
    locks: ControllerLocks,
    timeout: Duration,
) -> Enumeration {
    let mut found = BTreeMap::new();
    let (mut timeouts, mut stuck, mut empty_groups) = (0, Vec::new(), 0);
    let (mut absent_counts, mut incomplete) = (BTreeMap::new(), false);
    let mut error = None;
    'groups: for group in &controller.slot_groups {
        let (mut empty, mut any) = (0, false);
        for (index, slot) in group.iter().enumerate() {
            let slot_lock =
                controller.device.as_ref().and_then(|device| locks.lock_slot(device, slot));
            let content = match (known.stuck.contains(slot), &slot_lock) {
                (true, _) => SlotContent::TimedOut(None),
                (false, None) => SlotContent::Busy,
                (false, Some(_)) => query_slot(&backend, &program, &device, slot, timeout).await,
            };
            let before = known.disks.get(slot);
            // A disk that does not respond is not removed.
            let retained = match &content {
                SlotContent::Empty => before.filter(|_| {
                    let times = known.absent_counts.get(slot).map_or(1, |times| times + 1);
                    absent_counts.insert(slot.clone(), times);
                    times <= ABSENT_RETRIES
                }),
                SlotContent::TimedOut(_) | SlotContent::Busy => before,
                SlotContent::Disk(_) | SlotContent::AccessFailed(_) => None,
            };
            found.extend(retained.map(|disk| (slot.clone(), disk.clone())));
            match content {
                SlotContent::Disk(identity) => {
                    found.insert(slot.clone(), *identity);
                    (empty, any) = (0, true);
                }
                SlotContent::Empty if retained.is_some() => (empty, any) = (0, true),
                SlotContent::Empty => {
                    incomplete |= before.is_some();
                    empty += 1;
                }
                SlotContent::Busy => {
                    incomplete |= before.is_none();
                    (empty, any) = (0, true);
                }
                SlotContent::AccessFailed(why) => {
                    error = Some(EnumerateError::AccessFailed(why));
                    break 'groups;
                }
                SlotContent::TimedOut(unkillable) => {
                    timeouts += 1;
                    (empty, any) = (0, true);
                    stuck.extend(unkillable.map(|(since, child)| StuckSlot {
                        slot: slot.clone(),
                        since,
                        child,
                        lock: slot_lock,
                    }));
                    if timeouts > MAX_TIMEOUTS {
                        error = Some(EnumerateError::TimedOut { count: timeouts, timeout });
                        break 'groups;
                    }
                }
            }
            // Slots that had a disk are always read: a new gap is no evidence about them.
            let later = group.iter().skip(index + 1);
            if empty >= max_gap(controller.kind)
                && !later.into_iter().any(|slot| known.disks.contains_key(slot))
            {
                break;
            }
        }
        empty_groups = if any { 0 } else { empty_groups + 1 };
        if empty_groups >= MAX_EMPTY_GROUPS {
            break;
        }
    }
    if error.is_none()
        && !known.disks.is_empty()
        && found.keys().all(|slot| absent_counts.contains_key(slot))
    {
        error = Some(EnumerateError::NoDiskAnswers(known.disks.len()));
    }
    match error {
        Some(error) => Enumeration {
            drives: Err(error),
            disks: known.disks,
            absent_counts: known.absent_counts,
            incomplete: false,
            stuck,
        },
        None => {
            absent_counts.retain(|slot, _| found.contains_key(slot));
            Enumeration {
                drives: Ok(drives(&controller, &found)),
                disks: found,
                absent_counts,
                incomplete,
                stuck,
            }
        }
    }
}

/// The number of consecutive empty slots that ends a group; the reasons are in `controllers`.
fn max_gap(kind: ControllerKind) -> usize {
    match kind {
        ControllerKind::Megaraid | ControllerKind::Aacraid => usize::MAX,
        ControllerKind::Cciss => 8,
        ControllerKind::Areca => 24,
        ControllerKind::ThreeWare => 32,
    }
}

/// Without the drive database: the identity does not depend on it, and loading it is nine tenths of
/// the work of a command that may run 128 times.
async fn query_slot<W: Backend>(
    backend: &W,
    program: &Path,
    device: &Path,
    slot: &str,
    timeout: Duration,
) -> SlotContent {
    // Without `-n`: a disk in standby would not report its identity, and reading it does not wake
    // the disk (IDENTIFY DEVICE, INQUIRY).
    let args = ["-j", "-i", "-B", "/dev/null", "-d", slot]
        .map(str::to_owned)
        .into_iter()
        .chain([device.to_string_lossy().into_owned()])
        .collect();
    let since = now();
    match backend.run(query::smartctl_command(program, args, timeout)).await {
        Ok(output) => parse_slot(&output),
        Err(ExecError::TimedOut { .. }) => SlotContent::TimedOut(None),
        Err(ExecError::Unkillable { child, .. }) => SlotContent::TimedOut(Some((since, child))),
        Err(error) => SlotContent::AccessFailed(error.to_string()),
    }
}

fn parse_slot(output: &Output) -> SlotContent {
    let identity = match query::identity(output) {
        Ok(identity) => identity,
        Err(error) => return SlotContent::AccessFailed(error.to_string()),
    };
    // An enclosure has a model and no size; so may an ATA disk that does not spin up.
    let is_disk =
        identity.serial.is_some() && (identity.size_bytes.is_some() || identity.protocol == "ATA");
    if is_disk {
        return SlotContent::Disk(Box::new(identity));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find(|line| ACCESS_ERRORS.iter().any(|sign| line.contains(sign))) {
        Some(line) => SlotContent::AccessFailed(unquote(line)),
        None if output.status >> 8 & 1 != 0 => {
            SlotContent::AccessFailed("smartctl refused its command line".to_owned())
        }
        None => SlotContent::Empty,
    }
}

/// Messages about a failed access, not about an empty slot: of open(2), mknod(2) and os_linux.cpp.
const ACCESS_ERRORS: [&str; 8] = [
    "cannot open",
    "cannot create",
    "Permission denied",
    "Operation not permitted",
    "not found in /proc/devices",
    "bus number",
    "used exclusively",
    "No such file",
];

/// `"string": "…",` without its wrapping.
fn unquote(line: &str) -> String {
    let text = line.trim().trim_end_matches(',');
    text.strip_prefix("\"string\":").unwrap_or(text).trim().trim_matches('"').to_owned()
}

fn drives(controller: &Controller, found: &BTreeMap<String, Identity>) -> Vec<RaidMemberDrive> {
    let candidates: Vec<IdentityCandidate> =
        found.iter().map(|(slot, disk)| candidate(controller, slot, disk)).collect();
    let found: Vec<(&String, &Identity)> = found.iter().collect();
    let mut drives: Vec<RaidMemberDrive> = identity::assign_ids(&candidates)
        .into_iter()
        .filter_map(|assigned| {
            let (slot, disk) = found.get(*assigned.members.first()?)?;
            let device = controller.device.clone()?;
            Some(RaidMemberDrive {
                facts: facts(controller, slot, disk, assigned),
                device,
                device_type: (*slot).clone(),
            })
        })
        .collect();
    drives.sort_by(|a, b| a.facts.id.cmp(&b.facts.id));
    drives
}

fn candidate(controller: &Controller, slot: &str, disk: &Identity) -> IdentityCandidate {
    let serial = disk.serial.clone().filter(|serial| !identity::is_bogus_serial(serial));
    let number = disk.wwn.clone().filter(|wwn| {
        !identity::is_bogus_number(wwn.split_once('.').map_or(wwn.as_str(), |(_, digits)| digits))
    });
    let named =
        serial.as_ref().map(|serial| model_serial(disk.model.as_deref().unwrap_or("disk"), serial));
    let where_it_is = controller
        .pci
        .as_ref()
        .map_or_else(|| format!("host{}", controller.host), |pci| format!("pci-{pci}"));
    let path = format!("{where_it_is}-{}", slot.replace(',', "-"));
    IdentityCandidate {
        identities: number.into_iter().chain(named).collect(),
        exact_path: format!("host{}-{}", controller.host, slot.replace(',', "-")),
        path,
        serial,
        model: disk.model.clone(),
        size_bytes: disk.size_bytes.unwrap_or(0),
        // A slot holds one disk: equal serial numbers are a fault of the hardware.
        nexus: None,
        is_unstable: false,
        is_remote: false,
    }
}

fn facts(
    controller: &Controller,
    slot: &str,
    disk: &Identity,
    assigned: IdentityAssignment,
) -> DriveFacts {
    let transport = match disk.protocol.as_str() {
        "ATA" => Transport::Sata,
        "SCSI" => Transport::Sas,
        "NVMe" => Transport::Nvme,
        _ => Transport::Unknown,
    };
    let kind = match (transport, disk.rotation_rate) {
        (Transport::Nvme, _) => DriveKind::Nvme,
        (_, Some(0)) => DriveKind::Ssd,
        (_, Some(_)) => DriveKind::Hdd,
        (_, None) => DriveKind::Unknown,
    };
    DriveFacts {
        id: assigned.id,
        id_stable: assigned.stable,
        identities: assigned.identities,
        place: assigned.place,
        name: format!("{slot}@host{}", controller.host),
        vendor: disk.vendor.clone(),
        model: disk.model.clone(),
        serial: disk.serial.clone(),
        firmware: disk.firmware.clone(),
        wwn: disk.wwn.clone(),
        kind,
        transport,
        size_bytes: disk.size_bytes.unwrap_or(0),
        logical_block_size: 512,
        physical_block_size: 512,
        rotational: disk.rotation_rate.map(|rate| rate > 0),
        location: Location {
            pci: controller.pci.clone(),
            hctl: hctl(controller, slot),
            slot: Some(slot.to_owned()),
            ..Location::default()
        },
        ..DriveFacts::default()
    }
}

/// aacraid's disks have a SCSI address; for other drivers, no kernel device corresponds to a slot.
fn hctl(controller: &Controller, slot: &str) -> Option<String> {
    let (lun, id) = slot.strip_prefix("aacraid,")?.split_once(',')?.1.split_once(',')?;
    let end = format!(":{id}:{lun}");
    let mut matching = controller
        .devices
        .iter()
        .filter(|hctl| hctl.ends_with(&end) && hctl.split(':').nth(1) != Some("0"));
    matching.next().filter(|_| matching.next().is_none()).cloned()
}
