//! Logical volumes of the pool's volume group, by lvm(8), whose output is read as JSON
//! (`--reportformat json`, lvmreport(7)).
//!
//! An lvm that changes something is never killed for being slow: between suspend and resume it
//! would leave a volume suspended, and all its writers blocked. It runs outside the daemon's
//! control group, and its caller gets `Stuck`.
//!
//! Our volumes are not activated at boot (`--setactivationskip y`); they are activated on use
//! (`-K`).

use std::time::Duration;

use serde::Deserialize;

use crate::host::block::OpenMode;
use crate::host::root::HostRoot;
use crate::model::dev::DevNo;
use crate::provision::step::{Device, LogicalVolume, PoolCapacity, StepErrorKind, Wipe};
use crate::provision::worker::error::StepWorkerError;
use crate::provision::worker::tool::ToolOutput;
use crate::provision::worker::{content, device, tool};

/// Reading a group's metadata; on a drive that does not answer the kernel gives up after some tries
/// of 30 s.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
/// As good as never: see above.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
/// On a volume between its making and the zeroing of the places where signatures are looked for:
/// until then it shows what was on its extents before.
const UNFINISHED_TAG: &str = "diskvitals.unfinished";
const VOLUME_FIELDS: &str =
    "lv_name,lv_size,lv_tags,lv_kernel_major,lv_kernel_minor,lv_device_open";

/// What lvm says of one volume; all values are texts.
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
}

#[derive(Debug, Deserialize)]
struct LvmReport<T> {
    report: Vec<T>,
}

#[derive(Debug, Deserialize)]
struct LvsRows {
    lv: Vec<VolumeRow>,
}

#[derive(Debug, Deserialize)]
struct VgsRows {
    vg: Vec<GroupRow>,
}

/// A logical volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LvState {
    name: String,
    size: u64,
    tags: Vec<String>,
    /// While it is active.
    dev: Option<DevNo>,
    open: bool,
}

impl LvState {
    fn is_unfinished(&self) -> bool {
        self.tags.iter().any(|tag| tag == UNFINISHED_TAG)
    }
}

/// Names and tags as lvm(8) allows them; none can be taken for an option, another path or a list.
fn check_name(word: &str) -> Result<&str, StepWorkerError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if begins && word.len() <= 127 && word.chars().all(plain) {
        return Ok(word);
    }
    Err(StepWorkerError::new(
        StepErrorKind::InvalidPath,
        format!("`{}` is no name for lvm", word.escape_debug()),
    ))
}

/// A tag may have some more characters, and begin with none that is an option's.
fn check_tag(tag: &str) -> Result<&str, StepWorkerError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-/=!:&#".contains(c);
    if !tag.is_empty() && !tag.starts_with('-') && tag.len() <= 1024 && tag.chars().all(plain) {
        return Ok(tag);
    }
    Err(StepWorkerError::new(
        StepErrorKind::InvalidPath,
        format!("`{}` is no tag for lvm", tag.escape_debug()),
    ))
}

fn run_lvm(words: &[&str], timeout: Duration) -> Result<ToolOutput, StepWorkerError> {
    tool::run(
        "lvm",
        &words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>(),
        timeout,
    )
}

fn run_change(doing: &str, words: &[&str]) -> Result<(), StepWorkerError> {
    let ran = run_lvm(words, CHANGE_TIMEOUT)?;
    if ran.exit_code() == Some(0) {
        Ok(())
    } else {
        Err(ran.to_error(error_kind(&ran.message()), doing))
    }
}

/// lvm has one status for all that goes wrong (5); what it was is in its words
/// (lib/metadata/lv_manip.c, tools/toollib.c).
fn error_kind(said: &str) -> StepErrorKind {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
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
    } else if said.contains("already exists") {
        StepErrorKind::AlreadyExists
    } else {
        StepErrorKind::Other
    }
}

fn run_report(doing: &str, words: &[&str]) -> Result<String, StepWorkerError> {
    let ran = run_lvm(words, READ_TIMEOUT)?;
    if ran.exit_code() == Some(0) && !ran.output.truncated {
        Ok(ran.stdout())
    } else {
        Err(ran.to_error(error_kind(&ran.message()), doing))
    }
}

pub(crate) fn capacity(group: &str) -> Result<PoolCapacity, StepWorkerError> {
    let doing = format!(
        "asking for the room in the volume group {}",
        check_name(group)?
    );
    let fields = "vg_size,vg_free,vg_extent_size";
    let text = run_report(
        &doing,
        &[
            "vgs",
            "--reportformat",
            "json",
            "--units",
            "b",
            "--nosuffix",
            "-o",
            fields,
            group,
        ],
    )?;
    parse_capacity(&text).ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::Other,
            format!("{doing}: lvm's answer makes no sense"),
        )
    })
}

fn parse_capacity(text: &str) -> Option<PoolCapacity> {
    let report: LvmReport<VgsRows> = serde_json::from_str(text).ok()?;
    let row = report
        .report
        .into_iter()
        .flat_map(|groups| groups.vg)
        .next()?;
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    Some(PoolCapacity {
        total: bytes(&row.vg_size)?,
        available: bytes(&row.vg_free)?,
        unit: bytes(&row.vg_extent_size)?,
    })
}

fn list_volumes(group: &str) -> Result<Vec<LvState>, StepWorkerError> {
    let doing = format!("listing the volume group {}", check_name(group)?);
    let text = run_report(
        &doing,
        &[
            "lvs",
            "--reportformat",
            "json",
            "--units",
            "b",
            "--nosuffix",
            "-o",
            VOLUME_FIELDS,
            group,
        ],
    )?;
    parse_volumes(&text).ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::Other,
            format!("{doing}: lvm's answer makes no sense"),
        )
    })
}

/// None on any row that is not understood: a volume that is left out would be taken for one that is
/// not there.
fn parse_volumes(text: &str) -> Option<Vec<LvState>> {
    let report: LvmReport<LvsRows> = serde_json::from_str(text).ok()?;
    let known = |row: VolumeRow| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let dev = number(&row.lv_kernel_major)
            .zip(number(&row.lv_kernel_minor))
            .map(|(major, minor)| DevNo::new(major, minor));
        Some(LvState {
            name: row.lv_name.trim_matches(['[', ']']).to_owned(),
            size: row.lv_size.trim().parse().ok()?,
            tags: row
                .lv_tags
                .split(',')
                .filter(|tag| !tag.is_empty())
                .map(str::to_owned)
                .collect(),
            dev,
            open: matches!(row.lv_device_open.trim(), "open" | "1"),
        })
    };
    report
        .report
        .into_iter()
        .flat_map(|volumes| volumes.lv)
        .map(known)
        .collect()
}

fn find_volume(group: &str, name: &str) -> Result<Option<LvState>, StepWorkerError> {
    check_name(name)?;
    Ok(list_volumes(group)?
        .into_iter()
        .find(|volume| volume.name == name))
}

fn require_volume(group: &str, name: &str) -> Result<LvState, StepWorkerError> {
    find_volume(group, name)?.ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::NotFound,
            format!("there is no logical volume {name} in {group}"),
        )
    })
}

pub(crate) fn list_tagged(group: &str, tag: &str) -> Result<Vec<LogicalVolume>, StepWorkerError> {
    let ours = list_volumes(group)?
        .into_iter()
        .filter(|volume| volume.tags.iter().any(|known| known == tag));
    let told = ours.map(|volume| LogicalVolume {
        device: volume.dev.and_then(|dev| device::kernel_name(dev).ok()),
        unfinished: volume.is_unfinished(),
        name: volume.name,
        size: volume.size,
        tags: volume
            .tags
            .into_iter()
            .filter(|tag| tag != UNFINISHED_TAG)
            .collect(),
        open: volume.open,
    });
    Ok(told.collect())
}

pub(crate) fn create(
    group: &str,
    name: &str,
    size: u64,
    tags: &[String],
) -> Result<(), StepWorkerError> {
    tags.iter().try_for_each(|tag| check_tag(tag).map(drop))?;
    let known = find_volume(group, name)?;
    match &known {
        Some(known) if known.size < size => {
            return Err(StepWorkerError::new(
                StepErrorKind::AlreadyExists,
                format!(
                    "{group}/{name} exists with {} bytes instead of {size}",
                    known.size
                ),
            ));
        }
        Some(known) => add_tags(group, known, tags)?,
        None => {
            let room = capacity(group)?;
            if room.available
                < size
                    .div_ceil(room.unit.max(1))
                    .saturating_mul(room.unit.max(1))
            {
                let message = format!(
                    "the volume group {group} has {} bytes left, {size} are needed",
                    room.available
                );
                return Err(StepWorkerError::new(StepErrorKind::NoSpace, message));
            }
            let size = format!("{size}b");
            // Inactive: nothing can be zeroed or wiped by lvcreate itself then (-Z, -W); it is done
            // below, and its tag tells that it still has to be.
            let mut words = vec![
                "lvcreate",
                "--yes",
                "-an",
                "-Zn",
                "-Wn",
                "--setactivationskip",
                "y",
                "--addtag",
                UNFINISHED_TAG,
            ];
            tags.iter()
                .for_each(|tag| words.extend(["--addtag", tag.as_str()]));
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

fn add_tags(group: &str, known: &LvState, tags: &[String]) -> Result<(), StepWorkerError> {
    let missing: Vec<String> = tags
        .iter()
        .filter(|tag| !known.tags.contains(tag))
        .cloned()
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        change_tags(group, &known.name, &missing, &[])
    }
}

/// Makes it blank where one looks for signatures, and takes the mark away. The rest was wiped when
/// its extents were let go, where that is wanted.
fn wipe_and_untag(group: &str, name: &str) -> Result<(), StepWorkerError> {
    let device = lvchange_activate(group, name)?;
    let block =
        device::open_exclusive(&HostRoot::new("/"), &device.node, OpenMode::WriteExclusive)?;
    for (start, length) in content::signature_areas(block.size) {
        block.zero(start, length).map_err(|error| {
            StepWorkerError::io(
                format!("clearing the new logical volume {group}/{name}"),
                error,
            )
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
    let known = require_volume(group, name)?;
    let add: Vec<&String> = add.iter().filter(|tag| !known.tags.contains(tag)).collect();
    let remove: Vec<&String> = remove
        .iter()
        .filter(|tag| known.tags.contains(tag))
        .collect();
    if add.is_empty() && remove.is_empty() {
        return Ok(());
    }
    let volume = format!("{group}/{name}");
    let mut words = vec!["lvchange", "--yes"];
    for tag in add {
        words.extend(["--addtag", check_tag(tag)?]);
    }
    for tag in remove {
        words.extend(["--deltag", check_tag(tag)?]);
    }
    words.push(&volume);
    run_change(&format!("changing the tags of {volume}"), &words)
}

pub(crate) fn grow(group: &str, name: &str, size: u64) -> Result<(), StepWorkerError> {
    let known = require_volume(group, name)?;
    if known.size >= size {
        return Ok(());
    }
    let (room, more) = (capacity(group)?, size - known.size);
    if room.available < more {
        let message = format!(
            "the volume group {group} has {} bytes left, {more} are needed",
            room.available
        );
        return Err(StepWorkerError::new(StepErrorKind::NoSpace, message));
    }
    let (volume, size) = (format!("{group}/{name}"), format!("{size}b"));
    run_change(
        &format!("growing {volume}"),
        &["lvextend", "--yes", "-L", &size, &volume],
    )
}

/// `Zero` writes zeros over all of it (BLKZEROOUT): a volume that is made of the same extents later
/// would show what was there. What is discarded reads as the device likes: whoever configures that
/// knows his.
pub(crate) fn remove(
    root: &HostRoot,
    group: &str,
    name: &str,
    wipe: Wipe,
) -> Result<(), StepWorkerError> {
    let Some(known) = find_volume(group, name)? else {
        return Ok(());
    };
    check_unused(root, &known)?;
    if wipe != Wipe::None {
        let device = lvchange_activate(group, name)?;
        let block = device::open_exclusive(root, &device.node, OpenMode::WriteExclusive)?;
        let wiped = if wipe == Wipe::Zero {
            block.zero(0, block.size)
        } else {
            block.discard()
        };
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

/// For who uses it: one that is not finished would show him what was on its extents before.
pub(crate) fn activate(group: &str, name: &str) -> Result<Device, StepWorkerError> {
    check_finished(group, &require_volume(group, name)?)?;
    lvchange_activate(group, name)
}

fn check_finished(group: &str, known: &LvState) -> Result<(), StepWorkerError> {
    if known.is_unfinished() {
        let message = format!(
            "the logical volume {group}/{} was never finished: it may show what others have left on its extents",
            known.name
        );
        return Err(StepWorkerError::new(StepErrorKind::ForeignData, message));
    }
    Ok(())
}

fn lvchange_activate(group: &str, name: &str) -> Result<Device, StepWorkerError> {
    let volume = format!("{group}/{name}");
    if require_volume(group, name)?.dev.is_none() {
        run_change(
            &format!("activating {volume}"),
            &["lvchange", "-ay", "-K", &volume],
        )?;
    }
    let dev = require_volume(group, name)?.dev;
    let dev = dev.ok_or_else(|| {
        StepWorkerError::new(
            StepErrorKind::Other,
            format!("{volume} has no device after it was activated"),
        )
    })?;
    device::by_number(dev)
}

pub(crate) fn deactivate(root: &HostRoot, group: &str, name: &str) -> Result<(), StepWorkerError> {
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
    run_change(
        &format!("deactivating {volume}"),
        &["lvchange", "-an", &volume],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As lvm 2.03.16 answers.
    const LVS: &str = r#"
  {
      "report": [
          {
              "lv": [
                  {"lv_name":"root", "lv_size":"1073741824", "lv_tags":"", "lv_kernel_major":"254", "lv_kernel_minor":"0", "lv_device_open":"open"},
                  {"lv_name":"pvc-1", "lv_size":"4194304", "lv_tags":"diskvitals.unfinished,diskvitals.volume", "lv_kernel_major":"-1", "lv_kernel_minor":"-1", "lv_device_open":""}
              ]
          }
      ]
  }
"#;

    #[test]
    fn volumes_are_read_with_their_device_while_they_are_active() {
        let known = parse_volumes(LVS).unwrap();
        let root = LvState {
            name: "root".into(),
            size: 1 << 30,
            tags: Vec::new(),
            dev: Some(DevNo::new(254, 0)),
            open: true,
        };
        let tags = vec![
            "diskvitals.unfinished".to_owned(),
            "diskvitals.volume".to_owned(),
        ];
        let ours = LvState {
            name: "pvc-1".into(),
            size: 4 << 20,
            tags,
            dev: None,
            open: false,
        };
        assert_eq!(known, [root, ours]);
        assert_eq!(parse_volumes(r#"{"report":[{"lv":[]}]}"#), Some(vec![]));
    }

    #[test]
    fn an_unfinished_logical_volume_is_never_activated() {
        let known = parse_volumes(LVS).unwrap();
        assert_eq!(
            check_finished("vg", &known[0]).map_err(|failure| failure.kind),
            Ok(())
        );
        assert_eq!(
            check_finished("vg", &known[1]).map_err(|failure| failure.kind),
            Err(StepErrorKind::ForeignData)
        );
    }

    #[test]
    fn an_answer_with_a_row_that_makes_no_sense_is_no_answer() {
        assert_eq!(parse_volumes(&LVS.replace("4194304", "4,00m")), None);
        assert_eq!(parse_volumes("{}"), None);
        assert_eq!(parse_capacity("WARNING: x"), None);
    }

    #[test]
    fn capacity_is_read_in_bytes() {
        let text = r#"{"report":[{"vg":[{"vg_size":"1069547520", "vg_free":"536870912", "vg_extent_size":"4194304"}]}]}"#;
        assert_eq!(
            parse_capacity(text),
            Some(PoolCapacity {
                total: 1_069_547_520,
                available: 536_870_912,
                unit: 4_194_304
            })
        );
    }

    #[test]
    fn names_that_lvm_could_take_for_something_else_are_refused() {
        for wrong in ["", "-f", "a/b", "a b", ".", "..", "@tag", "a,b", "a\nb"] {
            assert_eq!(
                check_name(wrong).unwrap_err().kind,
                StepErrorKind::InvalidPath,
                "{wrong:?}"
            );
        }
        assert!(check_name("pvc-1_a.b").is_ok() && check_tag("diskvitals.size=1").is_ok());
        assert!(check_tag("--all").is_err() && check_tag("a,b").is_err());
    }

    #[test]
    fn the_error_kind_is_read_from_lvms_messages() {
        let of = |said| error_kind(said);
        assert_eq!(
            of("Volume group \"x\" has insufficient free space (1 extents): 25 required."),
            StepErrorKind::NoSpace
        );
        assert_eq!(
            of("Logical volume vg/a contains a filesystem in use."),
            StepErrorKind::InUse
        );
        assert_eq!(
            of("Failed to find logical volume \"vg/a\""),
            StepErrorKind::NotFound
        );
        assert_eq!(of("Volume group \"vg\" not found"), StepErrorKind::NotFound);
        assert_eq!(
            of("Logical Volume \"a\" already exists in volume group \"vg\""),
            StepErrorKind::AlreadyExists
        );
        assert_eq!(
            of("device-mapper: reload ioctl failed"),
            StepErrorKind::Other
        );
    }
}
