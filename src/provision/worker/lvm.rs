//! Logical volumes of the pool's volume group, by lvm(8), whose output is read as JSON
//! (`--reportformat json`, lvmreport(7)).
//!
//! An lvm that changes something is never killed because it is slow: a kill between suspend and
//! resume would leave a volume suspended and block all its writers. It runs outside the daemon's
//! control group, and its caller gets `Stuck`.
//!
//! Our volumes are not activated at boot (`--setactivationskip y`); they are activated on use
//! (`-K`).

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::step::{Device, LogicalVolume, PoolCapacity, StepErrorKind, Wipe};
use crate::worker::error::StepWorkerError;
use crate::worker::{content, device, tool};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::OpenMode;
use diskvitals_host::root::HostRoot;

/// For reads of a group's metadata. If a drive does not respond, the kernel stops after some
/// attempts of 30 s.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
/// Practically unlimited: see the module header.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
/// The tag of a new volume until its areas of signatures are cleared: until then it shows the
/// earlier content of its extents.
const UNFINISHED_TAG: &str = "diskvitals.unfinished";
const VOLUME_FIELDS: &str =
    "lv_name,lv_size,lv_tags,lv_kernel_major,lv_kernel_minor,lv_device_open";

/// lvm's row for one volume; all values are strings.
#[derive(Debug, Deserialize)]
struct VolumeRow {
    lv_name: String,
    lv_size: String,
    lv_tags: String,
    lv_kernel_major: String,
    lv_kernel_minor: String,
    lv_device_open: String,
}

#[derive(Debug, Deserialize)]
struct GroupRow {
    vg_size: String,
    vg_free: String,
    vg_extent_size: String,
    pv_name: String,
}

#[derive(Debug, Deserialize)]
struct LvmReport<T> {
    report: Vec<Rows<T>>,
}

#[derive(Debug, Deserialize)]
struct Rows<T> {
    #[serde(rename = "lv", alias = "vg")]
    rows: Vec<T>,
}

fn parse_rows<T: DeserializeOwned>(text: &str) -> Option<impl Iterator<Item = T>> {
    let report: LvmReport<T> = serde_json::from_str(text).ok()?;
    Some(report.report.into_iter().flat_map(|part| part.rows))
}

/// The state of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LvState {
    name: String,
    size: u64,
    tags: Vec<String>,
    /// Set while the volume is active.
    dev: Option<DevNo>,
    open: bool,
}

impl LvState {
    fn is_unfinished(&self) -> bool {
        self.tags.iter().any(|tag| tag == UNFINISHED_TAG)
    }
}

/// Checks a name by the rules of lvm(8). It cannot be parsed as an option, another path or a list.
fn check_name(word: &str) -> Result<&str, StepWorkerError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if begins && word.len() <= 127 && word.chars().all(plain) {
        return Ok(word);
    }
    Err(StepErrorKind::InvalidPath.error(format!("`{}` is no name for lvm", word.escape_debug())))
}

/// Checks a tag. It may have some more characters than a name, but must not begin like an option.
fn check_tag(tag: &str) -> Result<&str, StepWorkerError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-/=!:&#".contains(c);
    if !tag.is_empty() && !tag.starts_with('-') && tag.len() <= 1024 && tag.chars().all(plain) {
        return Ok(tag);
    }
    Err(StepErrorKind::InvalidPath.error(format!("`{}` is no tag for lvm", tag.escape_debug())))
}

fn run_change(doing: &str, words: &[&str]) -> Result<(), StepWorkerError> {
    let ran = tool::run("lvm", words, CHANGE_TIMEOUT)?;
    if ran.exit_code() == Some(0) {
        Ok(())
    } else {
        Err(ran.to_error(error_kind(&ran.message()), doing))
    }
}

/// lvm has one exit status for all errors (5), so the kind depends on the message
/// (lib/metadata/lv_manip.c, tools/toollib.c).
fn error_kind(message: &str) -> StepErrorKind {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&[
        "insufficient free space",
        "Insufficient free space",
        "insufficient suitable allocatable extents",
    ]) {
        StepErrorKind::NoSpace
    } else if has(&[
        "in use",
        "is used by another device",
        "contains a filesystem in use",
        "Device or resource busy",
    ]) {
        StepErrorKind::InUse
    } else if has(&["not found", "Failed to find logical volume"]) {
        StepErrorKind::NotFound
    } else if message.contains("already exists") {
        StepErrorKind::AlreadyExists
    } else {
        StepErrorKind::Other
    }
}

/// Runs `lvs` or `vgs` for one group.
fn run_report<T>(
    command: &str,
    fields: &str,
    group: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<T, StepWorkerError> {
    let doing = format!("reading the volume group {}", check_name(group)?);
    let command = format!("{command} --reportformat json --units b --nosuffix -o {fields} {group}");
    let words: Vec<&str> = command.split(' ').collect();
    let ran = tool::run("lvm", &words, READ_TIMEOUT)?;
    if ran.exit_code() != Some(0) || ran.output.truncated {
        return Err(ran.to_error(error_kind(&ran.message()), &doing));
    }
    parse(&ran.stdout()).ok_or_else(|| {
        StepErrorKind::Other.error(format!("{doing}: lvm's answer is not understood"))
    })
}

/// With `pv_name`, lvm reports one row for each physical volume.
pub fn capacity(group: &str) -> Result<PoolCapacity, StepWorkerError> {
    run_report("vgs", "vg_size,vg_free,vg_extent_size,pv_name", group, parse_capacity)
}

/// `NoSpace` unless the group has `bytes` left, rounded up to extents.
fn require_space(group: &str, bytes: u64) -> Result<(), StepWorkerError> {
    let room = capacity(group)?;
    let unit = room.unit.max(1);
    if room.available >= bytes.div_ceil(unit).saturating_mul(unit) {
        return Ok(());
    }
    Err(StepErrorKind::NoSpace.error(format!(
        "the volume group {group} has {} bytes left, {bytes} are needed",
        room.available
    )))
}

pub fn parse_capacity(text: &str) -> Option<PoolCapacity> {
    let rows: Vec<GroupRow> = parse_rows(text)?.collect();
    let row = rows.first()?;
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    Some(PoolCapacity {
        total: bytes(&row.vg_size)?,
        available: bytes(&row.vg_free)?,
        unit: bytes(&row.vg_extent_size)?,
        physical_volumes: rows.iter().map(|row| HostPath::from(row.pv_name.trim())).collect(),
    })
}

fn list_volumes(group: &str) -> Result<Vec<LvState>, StepWorkerError> {
    run_report("lvs", VOLUME_FIELDS, group, parse_volumes)
}

/// None if any row cannot be parsed, because an omitted volume would count as absent.
pub fn parse_volumes(text: &str) -> Option<Vec<LvState>> {
    let parse = |row: VolumeRow| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let dev = number(&row.lv_kernel_major)
            .zip(number(&row.lv_kernel_minor))
            .map(|(major, minor)| DevNo::new(major, minor));
        Some(LvState {
            name: row.lv_name.trim_matches(['[', ']']).to_owned(),
            size: row.lv_size.trim().parse().ok()?,
            tags: row.lv_tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            dev,
            open: matches!(row.lv_device_open.trim(), "open" | "1"),
        })
    };
    parse_rows(text)?.map(parse).collect()
}

fn find_volume(group: &str, name: &str) -> Result<Option<LvState>, StepWorkerError> {
    check_name(name)?;
    Ok(list_volumes(group)?.into_iter().find(|volume| volume.name == name))
}

fn require_volume(group: &str, name: &str) -> Result<LvState, StepWorkerError> {
    find_volume(group, name)?.ok_or_else(|| {
        StepErrorKind::NotFound.error(format!("there is no logical volume {name} in {group}"))
    })
}

pub(crate) fn list_tagged(group: &str, tag: &str) -> Result<Vec<LogicalVolume>, StepWorkerError> {
    let ours = list_volumes(group)?
        .into_iter()
        .filter(|volume| volume.tags.iter().any(|known| known == tag));
    let listed = ours.map(|volume| LogicalVolume {
        device: volume.dev.and_then(|dev| device::kernel_name(dev).ok()),
        unfinished: volume.is_unfinished(),
        name: volume.name,
        size: volume.size,
        tags: volume.tags.into_iter().filter(|tag| tag != UNFINISHED_TAG).collect(),
        open: volume.open,
    });
    Ok(listed.collect())
}

pub fn create(group: &str, name: &str, size: u64, tags: &[String]) -> Result<(), StepWorkerError> {
    tags.iter().try_for_each(|tag| check_tag(tag).map(drop))?;
    let known = find_volume(group, name)?;
    match &known {
        Some(known) if known.size < size => {
            return Err(StepErrorKind::AlreadyExists.error(format!(
                "{group}/{name} exists with {} bytes instead of {size}",
                known.size
            )));
        }
        Some(known) => update_tags(group, known, tags, &[])?,
        None => {
            require_space(group, size)?;
            let size = format!("{size}b");
            // The volume stays inactive, so that lvcreate itself neither zeroes nor wipes it (-Z,
            // -W). The code below does that; until then the volume has the tag.
            let flags = "lvcreate --yes -an -Zn -Wn --setactivationskip y --addtag";
            let mut words: Vec<&str> = flags.split(' ').chain([UNFINISHED_TAG]).collect();
            words.extend(tags.iter().flat_map(|tag| ["--addtag", tag]));
            words.extend(["-L", &size, "-n", name, group]);
            run_change(&format!("making the logical volume {group}/{name}"), &words)?;
        }
    }
    if known.is_none_or(|known| known.is_unfinished()) {
        wipe_and_untag(group, name)
    } else {
        Ok(())
    }
}

/// Clears the areas of signatures, then removes the tag. If wiping is configured, the rest was
/// wiped when the extents were freed.
fn wipe_and_untag(group: &str, name: &str) -> Result<(), StepWorkerError> {
    let device = lvchange_activate(group, name)?;
    let block =
        device::open_exclusive(&HostRoot::new("/"), &device.node, OpenMode::WriteExclusive)?;
    for (start, length) in content::signature_areas(block.size) {
        block.zero(start, length).map_err(|error| {
            StepWorkerError::io(format!("clearing the new logical volume {group}/{name}"), error)
        })?;
    }
    drop(block);
    lvchange_deactivate(group, name)?;
    change_tags(group, name, &[], &[UNFINISHED_TAG.to_owned()])
}

pub(crate) fn change_tags(
    group: &str,
    name: &str,
    add: &[String],
    remove: &[String],
) -> Result<(), StepWorkerError> {
    update_tags(group, &require_volume(group, name)?, add, remove)
}

fn update_tags(
    group: &str,
    known: &LvState,
    add: &[String],
    remove: &[String],
) -> Result<(), StepWorkerError> {
    let mut words = vec!["lvchange", "--yes"];
    for tag in add.iter().filter(|tag| !known.tags.contains(tag)) {
        words.extend(["--addtag", check_tag(tag)?]);
    }
    for tag in remove.iter().filter(|tag| known.tags.contains(tag)) {
        words.extend(["--deltag", check_tag(tag)?]);
    }
    if words.len() == 2 {
        return Ok(());
    }
    let volume = format!("{group}/{}", known.name);
    words.push(&volume);
    run_change(&format!("changing the tags of {volume}"), &words)
}

pub fn grow(group: &str, name: &str, size: u64) -> Result<(), StepWorkerError> {
    let known = require_volume(group, name)?;
    if known.size >= size {
        return Ok(());
    }
    require_space(group, size - known.size)?;
    let (volume, size) = (format!("{group}/{name}"), format!("{size}b"));
    run_change(&format!("growing {volume}"), &["lvextend", "--yes", "-L", &size, &volume])
}

/// `Zero` overwrites the whole volume (BLKZEROOUT), because a later volume on the same extents
/// would show the old data. The content of a discarded block depends on the device: the
/// administrator who configures `Discard` is responsible for that.
pub fn remove(root: &HostRoot, group: &str, name: &str, wipe: Wipe) -> Result<(), StepWorkerError> {
    let Some(known) = find_volume(group, name)? else {
        return Ok(());
    };
    check_unused(root, &known)?;
    if wipe != Wipe::None {
        let device = lvchange_activate(group, name)?;
        let block = device::open_exclusive(root, &device.node, OpenMode::WriteExclusive)?;
        let wiped = if wipe == Wipe::Zero { block.zero(0, block.size) } else { block.discard() };
        wiped.map_err(|error| {
            StepWorkerError::io(format!("wiping the logical volume {group}/{name}"), error)
        })?;
    }
    lvchange_deactivate(group, name)?;
    run_change(
        &format!("removing {group}/{name}"),
        &["lvremove", "--yes", &format!("{group}/{name}")],
    )
}

fn check_unused(root: &HostRoot, known: &LvState) -> Result<(), StepWorkerError> {
    match known.dev.filter(|_| known.open) {
        Some(dev) => Err(device::in_use(root, &device::by_number(dev)?.node)),
        None => Ok(()),
    }
}

/// Activates a volume for use. Refuses an unfinished one, which would show earlier content of its
/// extents.
pub fn activate(group: &str, name: &str) -> Result<Device, StepWorkerError> {
    check_finished(group, &require_volume(group, name)?)?;
    lvchange_activate(group, name)
}

fn check_finished(group: &str, known: &LvState) -> Result<(), StepWorkerError> {
    if known.is_unfinished() {
        let message = format!(
            "the creation of the logical volume {group}/{} has not finished: it may show earlier data of its extents",
            known.name
        );
        return Err(StepErrorKind::ForeignData.error(message));
    }
    Ok(())
}

fn lvchange_activate(group: &str, name: &str) -> Result<Device, StepWorkerError> {
    let volume = format!("{group}/{name}");
    if require_volume(group, name)?.dev.is_none() {
        run_change(&format!("activating {volume}"), &["lvchange", "-ay", "-K", &volume])?;
    }
    let dev = require_volume(group, name)?.dev;
    let dev = dev.ok_or_else(|| {
        StepErrorKind::Other.error(format!("{volume} has no device after it was activated"))
    })?;
    device::by_number(dev)
}

pub fn deactivate(root: &HostRoot, group: &str, name: &str) -> Result<(), StepWorkerError> {
    match find_volume(group, name)? {
        Some(known) if known.dev.is_some() => {
            check_unused(root, &known)?;
            lvchange_deactivate(group, name)
        }
        _ => Ok(()),
    }
}

fn lvchange_deactivate(group: &str, name: &str) -> Result<(), StepWorkerError> {
    let volume = format!("{group}/{name}");
    run_change(&format!("deactivating {volume}"), &["lvchange", "-an", &volume])
}

#[cfg(test)]
mod tests;
