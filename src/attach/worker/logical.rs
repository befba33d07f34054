//! Logical volumes of the pool's volume group, by lvm(8), whose answers are read as JSON
//! (`--reportformat json`, lvmreport(7)).
//!
//! An lvm that changes something is never killed for being slow: between suspend and resume it
//! would leave a volume suspended, and everybody who writes to it waiting. It runs apart from the
//! daemon's control group, and whoever waits for it is told that it is stuck.
//!
//! Nothing of ours is activated by booting (`--setactivationskip y`): who needs a volume has it
//! activated (`-K`).

use std::time::Duration;

use serde::Deserialize;

use crate::attach::step::{Device, LogicalVolume, Room, Trouble, Wipe};
use crate::attach::worker::failure::Failure;
use crate::attach::worker::tool::Ran;
use crate::attach::worker::{content, device, tool};
use crate::host::block::Way;
use crate::host::root::HostRoot;
use crate::model::dev::DevNo;

/// Reading a group's metadata; on a drive that does not answer the kernel gives up after some tries
/// of 30 s.
const READING: Duration = Duration::from_secs(180);
/// As good as never: see above.
const CHANGING: Duration = Duration::from_secs(30 * 86_400);
/// On a volume between its making and the zeroing of the places where signatures are looked for:
/// until then it shows what was on its extents before.
const UNFINISHED: &str = "diskvitals.unfinished";
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
struct Report<T> {
    report: Vec<T>,
}

#[derive(Debug, Deserialize)]
struct Volumes {
    lv: Vec<VolumeRow>,
}

#[derive(Debug, Deserialize)]
struct Groups {
    vg: Vec<GroupRow>,
}

/// A logical volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    name: String,
    size: u64,
    tags: Vec<String>,
    /// While it is active.
    dev: Option<DevNo>,
    open: bool,
}

impl Known {
    fn is_unfinished(&self) -> bool {
        self.tags.iter().any(|tag| tag == UNFINISHED)
    }
}

/// Names and tags as lvm(8) allows them; none can be taken for an option, another path or a list.
fn checked(word: &str) -> Result<&str, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if begins && word.len() <= 127 && word.chars().all(plain) {
        return Ok(word);
    }
    Err(Failure::new(
        Trouble::Path,
        format!("`{}` is no name for lvm", word.escape_debug()),
    ))
}

/// A tag may have some more characters, and begin with none that is an option's.
fn checked_tag(tag: &str) -> Result<&str, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-/=!:&#".contains(c);
    if !tag.is_empty() && !tag.starts_with('-') && tag.len() <= 1024 && tag.chars().all(plain) {
        return Ok(tag);
    }
    Err(Failure::new(
        Trouble::Path,
        format!("`{}` is no tag for lvm", tag.escape_debug()),
    ))
}

fn lvm(words: &[&str], timeout: Duration) -> Result<Ran, Failure> {
    tool::run(
        "lvm",
        &words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>(),
        timeout,
    )
}

fn change(doing: &str, words: &[&str]) -> Result<(), Failure> {
    let ran = lvm(words, CHANGING)?;
    if ran.code() == Some(0) {
        Ok(())
    } else {
        Err(ran.failure(trouble(&ran.said()), doing))
    }
}

/// lvm has one status for all that goes wrong (5); what it was is in its words
/// (lib/metadata/lv_manip.c, tools/toollib.c).
fn trouble(said: &str) -> Trouble {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "insufficient free space",
        "Insufficient free space",
        "insufficient suitable allocatable extents",
    ]) {
        Trouble::Full
    } else if has(&[
        "in use",
        "is used by another device",
        "contains a filesystem in use",
        "Device or resource busy",
    ]) {
        Trouble::Held
    } else if has(&["not found", "Failed to find logical volume"]) {
        Trouble::NotFound
    } else if said.contains("already exists") {
        Trouble::Exists
    } else {
        Trouble::Failed
    }
}

fn report(doing: &str, words: &[&str]) -> Result<String, Failure> {
    let ran = lvm(words, READING)?;
    if ran.code() == Some(0) && !ran.output.truncated {
        Ok(ran.stdout())
    } else {
        Err(ran.failure(trouble(&ran.said()), doing))
    }
}

pub fn room(group: &str) -> Result<Room, Failure> {
    let doing = format!(
        "asking for the room in the volume group {}",
        checked(group)?
    );
    let fields = "vg_size,vg_free,vg_extent_size";
    let text = report(
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
    parse_room(&text).ok_or_else(|| {
        Failure::new(
            Trouble::Failed,
            format!("{doing}: lvm's answer makes no sense"),
        )
    })
}

fn parse_room(text: &str) -> Option<Room> {
    let report: Report<Groups> = serde_json::from_str(text).ok()?;
    let row = report
        .report
        .into_iter()
        .flat_map(|groups| groups.vg)
        .next()?;
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    Some(Room {
        total: bytes(&row.vg_size)?,
        available: bytes(&row.vg_free)?,
        unit: bytes(&row.vg_extent_size)?,
    })
}

fn volumes(group: &str) -> Result<Vec<Known>, Failure> {
    let doing = format!("listing the volume group {}", checked(group)?);
    let text = report(
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
        Failure::new(
            Trouble::Failed,
            format!("{doing}: lvm's answer makes no sense"),
        )
    })
}

/// None on any row that is not understood: a volume that is left out would be taken for one that is
/// not there.
fn parse_volumes(text: &str) -> Option<Vec<Known>> {
    let report: Report<Volumes> = serde_json::from_str(text).ok()?;
    let known = |row: VolumeRow| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let dev = number(&row.lv_kernel_major)
            .zip(number(&row.lv_kernel_minor))
            .map(|(major, minor)| DevNo::new(major, minor));
        Some(Known {
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

fn volume(group: &str, name: &str) -> Result<Option<Known>, Failure> {
    checked(name)?;
    Ok(volumes(group)?
        .into_iter()
        .find(|volume| volume.name == name))
}

fn there(group: &str, name: &str) -> Result<Known, Failure> {
    volume(group, name)?.ok_or_else(|| {
        Failure::new(
            Trouble::NotFound,
            format!("there is no logical volume {name} in {group}"),
        )
    })
}

pub fn tagged(group: &str, tag: &str) -> Result<Vec<LogicalVolume>, Failure> {
    let ours = volumes(group)?
        .into_iter()
        .filter(|volume| volume.tags.iter().any(|known| known == tag));
    let told = ours.map(|volume| LogicalVolume {
        device: volume.dev.and_then(|dev| device::name(dev).ok()),
        unfinished: volume.is_unfinished(),
        name: volume.name,
        size: volume.size,
        tags: volume
            .tags
            .into_iter()
            .filter(|tag| tag != UNFINISHED)
            .collect(),
        open: volume.open,
    });
    Ok(told.collect())
}

pub fn make(group: &str, name: &str, size: u64, tags: &[String]) -> Result<(), Failure> {
    tags.iter().try_for_each(|tag| checked_tag(tag).map(drop))?;
    let known = volume(group, name)?;
    match &known {
        Some(known) if known.size < size => {
            return Err(Failure::new(
                Trouble::Exists,
                format!(
                    "{group}/{name} is there with {} bytes instead of {size}",
                    known.size
                ),
            ));
        }
        Some(known) => add_tags(group, known, tags)?,
        None => {
            let room = room(group)?;
            if room.available
                < size
                    .div_ceil(room.unit.max(1))
                    .saturating_mul(room.unit.max(1))
            {
                let message = format!(
                    "the volume group {group} has {} bytes left, {size} are wanted",
                    room.available
                );
                return Err(Failure::new(Trouble::Full, message));
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
                UNFINISHED,
            ];
            tags.iter()
                .for_each(|tag| words.extend(["--addtag", tag.as_str()]));
            words.extend(["-L", &size, "-n", name, group]);
            change(&format!("making the logical volume {group}/{name}"), &words)?;
        }
    }
    if known.is_none_or(|known| known.is_unfinished()) {
        finish(group, name)
    } else {
        Ok(())
    }
}

fn add_tags(group: &str, known: &Known, tags: &[String]) -> Result<(), Failure> {
    let missing: Vec<String> = tags
        .iter()
        .filter(|tag| !known.tags.contains(tag))
        .cloned()
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        tag(group, &known.name, &missing, &[])
    }
}

/// Makes it blank where one looks for signatures, and takes the mark away. The rest was wiped when
/// its extents were let go, where that is wanted.
fn finish(group: &str, name: &str) -> Result<(), Failure> {
    let device = switch_on(group, name)?;
    let block = device::open_alone(&HostRoot::new("/"), &device.node, Way::WriteAlone)?;
    for (start, length) in content::places(block.size) {
        block.zero(start, length).map_err(|error| {
            Failure::io(
                format!("clearing the new logical volume {group}/{name}"),
                error,
            )
        })?;
    }
    drop(block);
    switch_off(group, name)?;
    tag(group, name, &[], &[UNFINISHED.to_owned()])
}

pub fn tag(group: &str, name: &str, add: &[String], remove: &[String]) -> Result<(), Failure> {
    let known = there(group, name)?;
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
        words.extend(["--addtag", checked_tag(tag)?]);
    }
    for tag in remove {
        words.extend(["--deltag", checked_tag(tag)?]);
    }
    words.push(&volume);
    change(&format!("changing the tags of {volume}"), &words)
}

pub fn grow(group: &str, name: &str, size: u64) -> Result<(), Failure> {
    let known = there(group, name)?;
    if known.size >= size {
        return Ok(());
    }
    let (room, more) = (room(group)?, size - known.size);
    if room.available < more {
        let message = format!(
            "the volume group {group} has {} bytes left, {more} are wanted",
            room.available
        );
        return Err(Failure::new(Trouble::Full, message));
    }
    let (volume, size) = (format!("{group}/{name}"), format!("{size}b"));
    change(
        &format!("growing {volume}"),
        &["lvextend", "--yes", "-L", &size, &volume],
    )
}

/// `Zero` writes zeros over all of it (BLKZEROOUT): a volume that is made of the same extents later
/// would show what was there. What is discarded reads as the device likes: whoever configures that
/// knows his.
pub fn remove(root: &HostRoot, group: &str, name: &str, wipe: Wipe) -> Result<(), Failure> {
    let Some(known) = volume(group, name)? else {
        return Ok(());
    };
    unused(root, &known)?;
    if wipe != Wipe::None {
        let device = switch_on(group, name)?;
        let block = device::open_alone(root, &device.node, Way::WriteAlone)?;
        let wiped = if wipe == Wipe::Zero {
            block.zero(0, block.size)
        } else {
            block.discard()
        };
        wiped.map_err(|error| {
            Failure::io(format!("wiping the logical volume {group}/{name}"), error)
        })?;
    }
    switch_off(group, name)?;
    change(
        &format!("removing {group}/{name}"),
        &["lvremove", "--yes", &format!("{group}/{name}")],
    )
}

fn unused(root: &HostRoot, known: &Known) -> Result<(), Failure> {
    match known.dev.filter(|_| known.open) {
        Some(dev) => Err(device::held(root, &device::by_number(dev)?.node)),
        None => Ok(()),
    }
}

/// For who uses it: one that is not finished would show him what was on its extents before.
pub fn activate(group: &str, name: &str) -> Result<Device, Failure> {
    whole(group, &there(group, name)?)?;
    switch_on(group, name)
}

fn whole(group: &str, known: &Known) -> Result<(), Failure> {
    if known.is_unfinished() {
        let message = format!(
            "the logical volume {group}/{} was never finished: it may show what others have left on its extents",
            known.name
        );
        return Err(Failure::new(Trouble::Foreign, message));
    }
    Ok(())
}

fn switch_on(group: &str, name: &str) -> Result<Device, Failure> {
    let volume = format!("{group}/{name}");
    if there(group, name)?.dev.is_none() {
        change(
            &format!("activating {volume}"),
            &["lvchange", "-ay", "-K", &volume],
        )?;
    }
    let dev = there(group, name)?.dev;
    let dev = dev.ok_or_else(|| {
        Failure::new(
            Trouble::Failed,
            format!("{volume} has no device after it was activated"),
        )
    })?;
    device::by_number(dev)
}

pub fn deactivate(root: &HostRoot, group: &str, name: &str) -> Result<(), Failure> {
    match volume(group, name)? {
        Some(known) if known.dev.is_some() => {
            unused(root, &known)?;
            switch_off(group, name)
        }
        _ => Ok(()),
    }
}

fn switch_off(group: &str, name: &str) -> Result<(), Failure> {
    let volume = format!("{group}/{name}");
    change(
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
        let root = Known {
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
        let ours = Known {
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
    fn one_that_was_never_finished_is_not_given_to_anybody() {
        let known = parse_volumes(LVS).unwrap();
        assert_eq!(
            whole("vg", &known[0]).map_err(|failure| failure.kind),
            Ok(())
        );
        assert_eq!(
            whole("vg", &known[1]).map_err(|failure| failure.kind),
            Err(Trouble::Foreign)
        );
    }

    #[test]
    fn an_answer_with_a_row_that_makes_no_sense_is_no_answer() {
        assert_eq!(parse_volumes(&LVS.replace("4194304", "4,00m")), None);
        assert_eq!(parse_volumes("{}"), None);
        assert_eq!(parse_room("WARNING: x"), None);
    }

    #[test]
    fn room_is_read_in_bytes() {
        let text = r#"{"report":[{"vg":[{"vg_size":"1069547520", "vg_free":"536870912", "vg_extent_size":"4194304"}]}]}"#;
        assert_eq!(
            parse_room(text),
            Some(Room {
                total: 1_069_547_520,
                available: 536_870_912,
                unit: 4_194_304
            })
        );
    }

    #[test]
    fn names_that_lvm_could_take_for_something_else_are_refused() {
        for wrong in ["", "-f", "a/b", "a b", ".", "..", "@tag", "a,b", "a\nb"] {
            assert_eq!(checked(wrong).unwrap_err().kind, Trouble::Path, "{wrong:?}");
        }
        assert!(checked("pvc-1_a.b").is_ok() && checked_tag("diskvitals.size=1").is_ok());
        assert!(checked_tag("--all").is_err() && checked_tag("a,b").is_err());
    }

    #[test]
    fn what_went_wrong_is_read_from_lvms_words() {
        let of = |said| trouble(said);
        assert_eq!(
            of("Volume group \"x\" has insufficient free space (1 extents): 25 required."),
            Trouble::Full
        );
        assert_eq!(
            of("Logical volume vg/a contains a filesystem in use."),
            Trouble::Held
        );
        assert_eq!(
            of("Failed to find logical volume \"vg/a\""),
            Trouble::NotFound
        );
        assert_eq!(of("Volume group \"vg\" not found"), Trouble::NotFound);
        assert_eq!(
            of("Logical Volume \"a\" already exists in volume group \"vg\""),
            Trouble::Exists
        );
        assert_eq!(of("device-mapper: reload ioctl failed"), Trouble::Failed);
    }
}
