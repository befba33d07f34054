//! Whether a path below the kubelet's folder belongs to a volume: by its form (`rules::paths`) and by
//! the kubelet's record beside it, `vol_data.json` (saveVolumeData(), pkg/volume/csi/csi_util.go).
//!
//! In: the path and the volume. Out: whether a record proves it, or why the path is another's. Only
//! a record that nobody but root can have written is evidence.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use serde::Deserialize;

use crate::rules::paths;
use crate::step::{PathOwner, RootedPath, StepErrorKind};
use crate::worker::error::{StepWorkerError, io_error};
use diskvitals_finding::path::HostPath;
use diskvitals_host::resolve_beneath;

/// The kubelet's own records have a few hundred bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeData {
    driver_name: String,
    volume_handle: String,
}

/// True if the kubelet's record names the owner, false if there is no such record. A path of another
/// form or of another volume is an error.
pub(super) fn is_recorded(place: &RootedPath, owner: &PathOwner) -> Result<bool, StepWorkerError> {
    let record =
        paths::kubelet_record(place, owner).map_err(|why| StepErrorKind::InvalidPath.error(why))?;
    let Some(text) = read_record(&place.root, &record)? else {
        return Ok(false);
    };
    let refused = |why: String| {
        StepErrorKind::ForeignData.error(format!("{} is not used: {record} {why}", place.path))
    };
    let data: VolumeData = serde_json::from_slice(&text)
        .map_err(|error| refused(format!("is no record of the kubelet ({error})")))?;
    if (&data.driver_name, &data.volume_handle) == (&owner.driver, &owner.handle) {
        return Ok(true);
    }
    Err(refused(format!(
        "gives it to volume {} of driver {}, not to {} of {}",
        data.volume_handle, data.driver_name, owner.handle, owner.driver
    )))
}

/// None without a record that is evidence.
fn read_record(root: &HostPath, path: &HostPath) -> Result<Option<Vec<u8>>, StepWorkerError> {
    let spot = match resolve_beneath::resolve(root, path) {
        Err(error) if error.is_not_found() => return Ok(None),
        found => found?,
    };
    let reading = io_error::<Errno>("reading", path);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(spot.parent.as_fd(), spot.name.as_c_str(), flags, Mode::empty()) {
        // ELOOP: a link.
        Err(Errno::ENOENT | Errno::ELOOP) => return Ok(None),
        opened => opened.map_err(&reading)?,
    };
    if !(is_roots_own(&spot.parent, SFlag::S_IFDIR).map_err(&reading)?
        && is_roots_own(&file, SFlag::S_IFREG).map_err(&reading)?)
    {
        return Ok(None);
    }
    let mut text = Vec::new();
    File::from(file)
        .take(MAX_RECORD_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(io_error("reading", path))?;
    if text.len() as u64 > MAX_RECORD_BYTES {
        return Err(StepErrorKind::ForeignData
            .error(format!("{path} is longer than a record of the kubelet")));
    }
    Ok(Some(text))
}

/// Whether only root can write to the file or folder.
fn is_roots_own(file: &OwnedFd, kind: SFlag) -> Result<bool, Errno> {
    let stat = fstat(file)?;
    let shared = Mode::S_IWGRP | Mode::S_IWOTH;
    Ok(stat.st_uid == 0
        && SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
        && !Mode::from_bits_truncate(stat.st_mode).intersects(shared))
}
