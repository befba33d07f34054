//! The state of a software RAID, from /sys/block/mdN/md (Documentation/admin-guide/md.rst). Reading
//! some of these attributes takes the lock of the array.

use crate::layers::LayerError;
use diskvitals_host::root::HostRoot;
use diskvitals_model::stack::{MdMember, MdState};

pub fn read(root: &HostRoot, device: &str) -> Result<MdState, LayerError> {
    let dir = format!("/sys/block/{device}/md");
    let attributes = MdAttributes { root, dir: &dir };
    let mut members = Vec::new();
    let failed = |source| LayerError::Read { path: dir.clone(), source };
    for entry in std::fs::read_dir(root.at(&dir)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A name that is no UTF-8 does not occur: the kernel builds it from device names.
        if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with("dev-")) {
            members.extend(member(&attributes, name)?);
        }
    }
    members.sort_by(|a, b| {
        (a.slot.unwrap_or(u32::MAX), &a.device).cmp(&(b.slot.unwrap_or(u32::MAX), &b.device))
    });
    let sync_action = attributes.text("sync_action")?;
    // `none`, or the sector up to which the array is synchronized.
    let resync_start = attributes.text("resync_start")?;
    let is_resync_due = sync_action.as_deref() == Some("resync")
        || resync_start.is_some_and(|start| start.parse::<u64>().is_ok());
    Ok(MdState {
        level: attributes.text("level")?.unwrap_or_default(),
        layout: layout(&attributes)?,
        raid_disks: attributes.number("raid_disks")?.unwrap_or(0),
        // Levels without redundancy have no such attribute.
        degraded: attributes.number("degraded")?.unwrap_or(0),
        array_state: attributes.required("array_state")?,
        sync_action,
        is_resync_due,
        sync_completed: sync_completed(&attributes)?,
        sync_speed: attributes.count("sync_speed")?,
        last_sync_action: attributes.text("last_sync_action")?,
        mismatch_cnt: attributes.count("mismatch_cnt")?,
        members,
    })
}

/// During a reshape the new layout is first. Levels without one may have any number.
fn layout(attributes: &MdAttributes<'_>) -> Result<Option<u32>, LayerError> {
    let text = attributes.text("layout")?;
    Ok(text.and_then(|text| text.split_whitespace().next()?.parse().ok()))
}

/// None for a member that leaves the array while it is read.
fn member(attributes: &MdAttributes<'_>, name: &str) -> Result<Option<MdMember>, LayerError> {
    let Some(state) = attributes.text(&format!("{name}/state"))? else {
        return Ok(None);
    };
    let slot = attributes
        .text(&format!("{name}/slot"))?
        .filter(|slot| slot != "none" && slot != "journal");
    let slot = slot
        .map(|slot| slot.parse().map_err(|_| attributes.malformed(&format!("{name}/slot"), &slot)))
        .transpose()?;
    let errors = attributes.number(&format!("{name}/errors"))?.unwrap_or(0);
    let block = format!("{}/{name}/block", attributes.dir);
    let block = std::fs::read_link(attributes.root.at(block)).ok();
    // The block device of a member that was pulled out is gone; its name remains.
    let device = block
        .as_ref()
        .and_then(|link| link.file_name()?.to_str())
        .unwrap_or_else(|| name.trim_start_matches("dev-"));
    Ok(Some(MdMember {
        device: device.to_owned(),
        state,
        slot,
        errors: u64::from(errors),
        bad_blocks: bad_blocks(attributes, name)?,
    }))
}

/// More ranges tell no more.
const MAX_BAD_BLOCKS: usize = 64;

/// Lines of `START LENGTH` in sectors of the device (badblocks_show(), block/badblocks.c); its data
/// begins at `offset`.
fn bad_blocks(attributes: &MdAttributes<'_>, name: &str) -> Result<Vec<(u64, u64)>, LayerError> {
    let file = format!("{name}/bad_blocks");
    let Some(text) = attributes.text(&file)? else {
        return Ok(Vec::new());
    };
    let offset = u64::from(attributes.number(&format!("{name}/offset"))?.unwrap_or(0));
    let range = |line: &str| {
        let (start, length) = line.split_once(' ')?;
        let start: u64 = start.parse().ok()?;
        Some((start.saturating_sub(offset), length.trim().parse().ok()?))
    };
    text.lines()
        .take(MAX_BAD_BLOCKS)
        .map(|line| range(line).ok_or_else(|| attributes.malformed(&file, line)))
        .collect()
}

/// `none`, `delayed`, or `DONE / ALL` in sectors.
fn sync_completed(attributes: &MdAttributes<'_>) -> Result<Option<(u64, u64)>, LayerError> {
    let Some(text) = attributes.text("sync_completed")? else {
        return Ok(None);
    };
    let Some((done, all)) = text.split_once('/') else {
        return Ok(None);
    };
    match (done.trim().parse(), all.trim().parse()) {
        (Ok(done), Ok(all)) => Ok(Some((done, all))),
        _ => Err(attributes.malformed("sync_completed", &text)),
    }
}

struct MdAttributes<'a> {
    root: &'a HostRoot,
    dir: &'a str,
}

impl MdAttributes<'_> {
    /// None if there is no such attribute, or it is empty.
    fn text(&self, name: &str) -> Result<Option<String>, LayerError> {
        let path = format!("{}/{name}", self.dir);
        match self.root.read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())
                .filter(|text| !text.is_empty())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LayerError::Read { path, source }),
        }
    }

    fn required(&self, name: &str) -> Result<String, LayerError> {
        let missing = || LayerError::Read {
            path: format!("{}/{name}", self.dir),
            source: std::io::ErrorKind::NotFound.into(),
        };
        self.text(name)?.ok_or_else(missing)
    }

    /// While an array is reshaped, `raid_disks` is `4 (3)`: the new number and the old one.
    fn number(&self, name: &str) -> Result<Option<u32>, LayerError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let first = text.split_whitespace().next().unwrap_or("");
        first.parse().map(Some).map_err(|_| self.malformed(name, &text))
    }

    /// None also for the word that stands there while nothing is counted (`none`).
    fn count(&self, name: &str) -> Result<Option<u64>, LayerError> {
        match self.text(name)?.filter(|text| text != "none") {
            Some(text) => text.parse().map(Some).map_err(|_| self.malformed(name, &text)),
            None => Ok(None),
        }
    }

    fn malformed(&self, name: &str, text: &str) -> LayerError {
        LayerError::Malformed {
            path: format!("{}/{name}", self.dir),
            text: text.chars().take(80).collect(),
        }
    }
}
