//! The disks behind one controller: its places are asked one after the other who is there.
//! Controllers are asked at the same time, each for itself: one that hangs holds up no other.
//!
//! In: the controller, what was found last time. Out: the whole list, or why there is none: then
//! nothing is lost. A place that does not answer in time keeps the disk that it had, and so does
//! one at which a smartctl runs already; one that says that nobody is there is asked again before
//! it is believed: a single INQUIRY that fails looks the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::host::clock::now;
use crate::host::exec::{ExecError, Output, Remains};
use crate::model::drive::{DriveFacts, DriveKind, Location, Transport};
use crate::model::ids::DriveId;
use crate::model::report::HiddenDrive;
use crate::model::smart::parse;
use crate::model::smart::report::Identity;
use crate::source::inventory::identity::{self, Candidate};
use crate::source::smart::ask;
use crate::source::smart::controllers::{Controller, Kind};
use crate::source::smart::taken::{Hold, Taken};
use crate::source::smart::world::World;

/// Who is there is told at once, or not at all.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// A place that had a disk and says that nobody is there is asked so many times more.
const ASKED_AGAIN: u32 = 3;
/// Places that do not answer: so many are their disks' affair, more are the controller's.
const MOST_SILENT: usize = 2;
/// Empty enclosures in a row that end an areca controller.
const EMPTY_GROUPS: usize = 2;

/// What is known of a controller from one time to the next.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// By place.
    pub disks: BTreeMap<String, Identity>,
    /// Places where smartctl hangs and cannot be killed: they are left alone.
    pub stuck: BTreeSet<String>,
    /// Places that had a disk, and how often in a row they have said by now that nobody is there.
    pub doubts: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub struct Enumerated {
    pub drives: Result<Vec<HiddenDrive>, String>,
    pub disks: BTreeMap<String, Identity>,
    pub doubts: BTreeMap<String, u32>,
    /// Something may be there that is not in the list: one place could not be asked, or has lost
    /// its disk.
    pub unsure: bool,
    /// What was stuck this time.
    pub stuck: Vec<StuckPlace>,
}

#[derive(Debug)]
pub struct StuckPlace {
    pub place: String,
    pub since: Timestamp,
    pub remains: Remains,
    /// Nobody else asks there until it has gone.
    pub hold: Option<Hold>,
}

/// Who is at one place.
enum There {
    Disk(Box<Identity>),
    Nobody,
    /// No disk was asked: the controller's node cannot be opened, say.
    Trouble(String),
    /// No answer in time.
    Silent(Option<(Timestamp, Remains)>),
    /// Somebody asks there already.
    Busy,
}

pub async fn enumerate<W: World>(
    world: W,
    program: std::path::PathBuf,
    device: std::path::PathBuf,
    controller: Controller,
    known: Known,
    taken: Taken,
    timeout: Duration,
) -> Enumerated {
    let mut found = BTreeMap::new();
    let (mut silent, mut stuck, mut empty_groups) = (0, Vec::new(), 0);
    let (mut doubts, mut unsure) = (BTreeMap::new(), false);
    let mut trouble = None;
    'groups: for group in &controller.places {
        let (mut empty, mut any) = (0, false);
        for (index, place) in group.iter().enumerate() {
            let hold = controller
                .device
                .as_ref()
                .and_then(|device| taken.place(device, place));
            let there = match (known.stuck.contains(place), &hold) {
                (true, _) => There::Silent(None),
                (false, None) => There::Busy,
                (false, Some(_)) => ask_place(&world, &program, &device, place, timeout).await,
            };
            let before = known.disks.get(place);
            // Who was there is there: not to answer is not to be gone.
            let kept = match &there {
                There::Nobody => before.filter(|_| {
                    let times = known.doubts.get(place).map_or(1, |times| times + 1);
                    doubts.insert(place.clone(), times);
                    times <= ASKED_AGAIN
                }),
                There::Silent(_) | There::Busy => before,
                There::Disk(_) | There::Trouble(_) => None,
            };
            found.extend(kept.map(|disk| (place.clone(), disk.clone())));
            match there {
                There::Disk(identity) => {
                    found.insert(place.clone(), *identity);
                    (empty, any) = (0, true);
                }
                There::Nobody if kept.is_some() => (empty, any) = (0, true),
                There::Nobody => {
                    unsure |= before.is_some();
                    empty += 1;
                }
                There::Busy => {
                    unsure |= before.is_none();
                    (empty, any) = (0, true);
                }
                There::Trouble(why) => {
                    trouble = Some(why);
                    break 'groups;
                }
                There::Silent(remains) => {
                    silent += 1;
                    (empty, any) = (0, true);
                    stuck.extend(remains.map(|(since, remains)| StuckPlace {
                        place: place.clone(),
                        since,
                        remains,
                        hold,
                    }));
                    if silent > MOST_SILENT {
                        trouble = Some(format!(
                            "{silent} places have not answered within {} s",
                            timeout.as_secs()
                        ));
                        break 'groups;
                    }
                }
            }
            // Not before the last of those that had a disk: a gap that is new says nothing of them.
            let later = group.iter().skip(index + 1);
            if empty >= gap(controller.kind)
                && !later
                    .into_iter()
                    .any(|place| known.disks.contains_key(place))
            {
                break;
            }
        }
        empty_groups = if any { 0 } else { empty_groups + 1 };
        if empty_groups >= EMPTY_GROUPS {
            break;
        }
    }
    if trouble.is_none()
        && !known.disks.is_empty()
        && found.keys().all(|place| doubts.contains_key(place))
    {
        // All at once is the controller's doing, or ours.
        trouble = Some(format!("none of its {} disks answers", known.disks.len()));
    }
    match trouble {
        Some(why) => Enumerated {
            drives: Err(why),
            disks: known.disks,
            doubts: known.doubts,
            unsure: false,
            stuck,
        },
        None => {
            doubts.retain(|place, _| found.contains_key(place));
            Enumerated {
                drives: Ok(drives(&controller, &found)),
                disks: found,
                doubts,
                unsure,
                stuck,
            }
        }
    }
}

/// Empty places in a row that end a group; why, is said in `controllers`.
fn gap(kind: Kind) -> usize {
    match kind {
        Kind::Megaraid | Kind::Aacraid => usize::MAX,
        Kind::Cciss => 8,
        Kind::Areca => 24,
        Kind::ThreeWare => 32,
    }
}

/// Without the drive database: who a disk is does not depend on it, and to read it is nine tenths
/// of the work of a question that may be asked 128 times.
async fn ask_place<W: World>(
    world: &W,
    program: &Path,
    device: &Path,
    place: &str,
    timeout: Duration,
) -> There {
    // Without `-n`: a sleeping disk would not say who it is, and to say so does not wake it
    // (IDENTIFY DEVICE, INQUIRY).
    let args = ["-j", "-i", "-B", "/dev/null", "-d", place]
        .map(str::to_owned)
        .into_iter()
        .chain([device.to_string_lossy().into_owned()])
        .collect();
    let since = now();
    match world.run(ask::exec(program, args, timeout)).await {
        Ok(output) => read(&output),
        Err(ExecError::TimedOut { .. }) => There::Silent(None),
        Err(ExecError::Unkillable { remains, .. }) => There::Silent(Some((since, remains))),
        Err(error) => There::Trouble(error.to_string()),
    }
}

fn read(output: &Output) -> There {
    if let Some(why) = ask::unusable(output) {
        return There::Trouble(why);
    }
    let identity = match parse::identity(&output.stdout) {
        Ok(identity) => identity,
        Err(error) => {
            return There::Trouble(format!("the answer of smartctl makes no sense: {error}"));
        }
    };
    // An enclosure has a name and no size; an ATA disk that does not spin up may have none either.
    let is_disk =
        identity.serial.is_some() && (identity.size_bytes.is_some() || identity.protocol == "ATA");
    if is_disk {
        return There::Disk(Box::new(identity));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text
        .lines()
        .find(|line| NOT_ASKED.iter().any(|sign| line.contains(sign)))
    {
        Some(line) => There::Trouble(message(line)),
        None if output.status >> 8 & 1 != 0 => {
            There::Trouble("smartctl refused its command line".to_owned())
        }
        None => There::Nobody,
    }
}

/// Signs that it was not the place that failed, but the way there: of open(2), mknod(2) and
/// os_linux.cpp's own words.
const NOT_ASKED: [&str; 8] = [
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
fn message(line: &str) -> String {
    let text = line.trim().trim_end_matches(',');
    text.strip_prefix("\"string\":")
        .unwrap_or(text)
        .trim()
        .trim_matches('"')
        .to_owned()
}

fn drives(controller: &Controller, found: &BTreeMap<String, Identity>) -> Vec<HiddenDrive> {
    let candidates: Vec<Candidate> = found
        .iter()
        .map(|(place, disk)| candidate(controller, place, disk))
        .collect();
    let found: Vec<(&String, &Identity)> = found.iter().collect();
    let mut drives: Vec<HiddenDrive> = identity::assign(&candidates)
        .into_iter()
        .filter_map(|assigned| {
            let (place, disk) = found.get(*assigned.members.first()?)?;
            let device = controller.device.clone()?;
            Some(HiddenDrive {
                facts: facts(controller, place, disk, assigned.id, assigned.stable),
                device,
                device_type: (*place).clone(),
            })
        })
        .collect();
    drives.sort_by(|a, b| a.facts.id.cmp(&b.facts.id));
    drives
}

fn candidate(controller: &Controller, place: &str, disk: &Identity) -> Candidate {
    let serial = disk
        .serial
        .clone()
        .filter(|serial| !identity::is_bogus_serial(serial));
    let number = disk.wwn.clone().filter(|wwn| {
        !identity::is_bogus_number(
            wwn.split_once('.')
                .map_or(wwn.as_str(), |(_, digits)| digits),
        )
    });
    let named = serial
        .as_ref()
        .map(|serial| identity::model_serial(disk.model.as_deref().unwrap_or("disk"), serial));
    let where_it_is = controller.pci.as_ref().map_or_else(
        || format!("host{}", controller.host),
        |pci| format!("pci-{pci}"),
    );
    let path = format!("{where_it_is}-{}", place.replace(',', "-"));
    Candidate {
        identities: number.into_iter().chain(named).collect(),
        exact_path: format!("host{}-{}", controller.host, place.replace(',', "-")),
        path,
        serial,
        model: disk.model.clone(),
        size_bytes: disk.size_bytes.unwrap_or(0),
        // One place, one disk: equal serials are a lie of the hardware.
        nexus: None,
        never_stable: false,
    }
}

fn facts(
    controller: &Controller,
    place: &str,
    disk: &Identity,
    id: DriveId,
    id_stable: bool,
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
        id,
        id_stable,
        name: format!("{place}@host{}", controller.host),
        devices: Vec::new(),
        links: Vec::new(),
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
        removable: false,
        write_cache: None,
        location: Location {
            pci: controller.pci.clone(),
            hctl: hctl(controller, place),
            slot: Some(place.to_owned()),
            ..Location::default()
        },
        state: None,
        asleep: false,
    }
}

/// aacraid's disks have a SCSI address; elsewhere the kernel does not tell which of its devices a
/// place is.
fn hctl(controller: &Controller, place: &str) -> Option<String> {
    let (lun, id) = place
        .strip_prefix("aacraid,")?
        .split_once(',')?
        .1
        .split_once(',')?;
    let end = format!(":{id}:{lun}");
    let mut matching = controller
        .devices
        .iter()
        .filter(|hctl| hctl.ends_with(&end) && hctl.split(':').nth(1) != Some("0"));
    matching
        .next()
        .filter(|_| matching.next().is_none())
        .cloned()
}
