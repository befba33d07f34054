//! Creates and grows filesystems with their own programs, on devices that are not mounted.
//!
//! The module first opens the device exclusively (O_EXCL: EBUSY while it is mounted or part of
//! another device) and probes its content. The programs also open it exclusively and are never
//! forced (`-f`, `-F`), so they detect a change after the probe. A program that outlives this
//! process (because it was killed) keeps the device: a second one gets `InUse` until the first
//! ends.

use std::path::Path;
use std::time::Duration;

use crate::step::{DeviceIdentity, FormatProof, StepErrorKind};
use crate::worker::content::ProbedContent;
use crate::worker::error::{StepWorkerError, io_error};
use crate::worker::{content, device, scan, tool};
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::{DeviceFile, OpenMode};
use diskvitals_host::root::HostRoot;

/// mkfs writes at most some hundred MiB: metadata of the largest volume, on the slowest disk.
const MKFS_TIMEOUT: Duration = Duration::from_secs(1800);
/// e2fsck reads all metadata; resize2fs may move some of it.
const GROW_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

pub enum Permission<'a> {
    Proof(&'a FormatProof),
    /// A record names the device of an earlier mkfs, which was permitted and has no recorded end.
    Interrupted(&'a DeviceIdentity),
}

impl Permission<'_> {
    fn check(&self, block: &DeviceFile, device: &HostPath) -> Result<(), StepWorkerError> {
        let (expected, why) = match self {
            Permission::Proof(FormatProof::New | FormatProof::Authorized { device: None }) => {
                return Ok(());
            }
            Permission::Proof(FormatProof::Scanned { state, tracked }) => {
                return scan::check_complete(block, device, state, *tracked);
            }
            Permission::Proof(FormatProof::Authorized { device: Some(expected) }) => {
                (expected, "that may be formatted")
            }
            Permission::Interrupted(expected) => (*expected, "whose mkfs was interrupted"),
        };
        let found =
            DeviceIdentity { size: block.size, name: device::identity(Path::new("/"), block.dev) };
        if expected.is_certainly_same(&found) {
            return Ok(());
        }
        Err(StepErrorKind::ForeignData.error(format!(
            "{device} is not known to be the device {why}, and is not cleared: expected {expected}, found {found}"
        )))
    }

    /// Whether such content may be cleared.
    fn covers(&self, found: &ProbedContent, fs_type: &str) -> bool {
        match self {
            Permission::Proof(FormatProof::Authorized { .. }) => {
                matches!(found, ProbedContent::UnknownData { .. })
            }
            Permission::Proof(_) => false,
            Permission::Interrupted(_) => may_be_interrupted_mkfs(found, fs_type),
        }
    }
}

pub fn format(
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
    options: &[String],
    permission: &Permission<'_>,
) -> Result<(), StepWorkerError> {
    let arguments = mkfs_arguments(fs_type, options)?;
    let program = format!("mkfs.{fs_type}");
    let path = root.at_host_path(device);
    // A missing program is an error before the first access to the device.
    tool::find(&program)?;
    let block = device::open_exclusive(root, device, OpenMode::ReadExclusive)?;
    permission.check(&block, device)?;
    match content::probe_block(&block, &path, device)? {
        ProbedContent::Blank => drop(block),
        found if permission.covers(&found, fs_type) => {
            drop(block);
            wipe_signatures(root, device)?;
        }
        found => return Err(not_blank(device, &found)),
    }
    // From here on mkfs may have written, whatever error occurs.
    run_mkfs(&program, &arguments, &path, root, device, fs_type)
        .map_err(|error| error.with_kind(StepErrorKind::Other))
}

fn run_mkfs(
    program: &str,
    arguments: &[String],
    path: &Path,
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
) -> Result<(), StepWorkerError> {
    let path_argument = path.to_string_lossy();
    let arguments = arguments.iter().map(String::as_str);
    let arguments: Vec<&str> = arguments.chain(["--", &path_argument]).collect();
    tool::run(program, &arguments, MKFS_TIMEOUT)?
        .require_success(&format!("making an {fs_type} on {device}"))?;
    // On a full thin pool mkfs can return 0 without a filesystem: the device is read again.
    let block = device::open_exclusive(root, device, OpenMode::WriteExclusive)?;
    block.sync().map_err(io_error("synchronising", device))?;
    match content::probe_block(&block, path, device)? {
        ProbedContent::Filesystem { fs_type: made, .. } if made == fs_type => Ok(()),
        found => Err(StepErrorKind::Other
            .error(format!("after {program} on {device} there is no {fs_type} but {found:?}"))),
    }
}

/// Clears the areas of signatures. A later mkfs overwrites the rest, or the rest is meaningless
/// without a superblock.
pub(crate) fn wipe_signatures(root: &HostRoot, device: &HostPath) -> Result<(), StepWorkerError> {
    let block = device::open_exclusive(root, device, OpenMode::WriteExclusive)?;
    for (start, length) in content::signature_areas(block.size) {
        block
            .zero(start, length)
            .map_err(io_error("clearing the data without a signature on", device))?;
    }
    match content::probe_block(&block, &root.at_host_path(device), device)? {
        ProbedContent::Blank => Ok(()),
        left => Err(not_blank(device, &left)),
    }
}

/// Whether a killed mkfs of this type may have left this content.
fn may_be_interrupted_mkfs(found: &ProbedContent, wanted: &str) -> bool {
    match found {
        ProbedContent::UnknownData { .. } => true,
        ProbedContent::Filesystem { fs_type, .. } => fs_type == wanted,
        ProbedContent::Blank | ProbedContent::Other { .. } => false,
    }
}

fn not_blank(device: &HostPath, found: &ProbedContent) -> StepWorkerError {
    let what = match found {
        ProbedContent::Blank => "nothing".to_owned(),
        ProbedContent::UnknownData { at } => {
            format!("data without a known signature at byte {at} or behind")
        }
        ProbedContent::Filesystem { fs_type, .. } => format!("a filesystem ({fs_type})"),
        ProbedContent::Other { what } => what.clone(),
    };
    StepErrorKind::ForeignData
        .error(format!("{device} is not blank and is not formatted: it carries {what}"))
}

/// The default options, then the caller's options, which override them.
///
/// mkfs does not discard: a discard would free the blocks of an image or a thin volume, and with
/// them the reserved space. The kernel zeroes ext4's inode tables and journal after the first mount
/// (lazy_itable_init, lazy_journal_init), so the time does not grow with the size. No blocks are
/// reserved for root (-m 0), because a pod's volume does not serve root.
fn mkfs_arguments(fs_type: &str, options: &[String]) -> Result<Vec<String>, StepWorkerError> {
    let (defaults, options): (&[&str], Vec<String>) = match fs_type {
        "ext4" => {
            let (mut extended, rest) = split_extended_options(options);
            extended.insert(0, "nodiscard,lazy_itable_init=1,lazy_journal_init=1".to_owned());
            // mke2fs(8) uses the last -E only.
            let options = [extended.join(",")].into_iter().chain(rest).collect();
            (&["-q", "-m", "0", "-E"], options)
        }
        "xfs" | "btrfs" => (&["-q", "-K"], options.to_vec()),
        other => {
            return Err(StepErrorKind::Unsupported
                .error(format!("making an {other}: only ext4, xfs and btrfs are supported")));
        }
    };
    let defaults = defaults.iter().map(|word| (*word).to_owned());
    Ok(defaults.chain(options).collect())
}

/// Separates the values of `-E` from the other arguments.
fn split_extended_options(options: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut extended, mut rest) = (Vec::new(), Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("-E") {
            Some("") => extended.extend(words.next().cloned()),
            Some(value) => extended.push(value.to_owned()),
            None => rest.push(word.clone()),
        }
    }
    (extended, rest)
}

/// Only ext4 supports this; the other filesystems grow online on every machine.
pub(crate) fn grow_unmounted(
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
) -> Result<(), StepWorkerError> {
    if fs_type != "ext4" {
        return Err(StepErrorKind::NotFound.error(format!(
            "the {fs_type} on {device} is not mounted, and grows only while it is"
        )));
    }
    let path = root.at_host_path(device);
    let block = device::open_exclusive(root, device, OpenMode::ReadExclusive)?;
    if content::fills_device(&block, fs_type) {
        return Ok(());
    }
    drop(block);
    let path = path.to_string_lossy();
    // resize2fs(8) requires a check; -p makes only safe repairs, without questions. Status 1:
    // e2fsck repaired something.
    let checked = tool::run("e2fsck", &["-f", "-p", &path], GROW_TIMEOUT)?;
    if !matches!(checked.exit_code(), Some(0 | 1)) {
        return Err(checked.to_error(
            StepErrorKind::Other,
            &format!("checking the ext4 on {device} before it is grown"),
        ));
    }
    tool::run("resize2fs", &[&path], GROW_TIMEOUT)?
        .require_success(&format!("growing the ext4 on {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(fs_type: &str, options: &[&str]) -> Vec<String> {
        mkfs_arguments(fs_type, &options.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
            .unwrap()
    }

    #[test]
    fn caller_options_follow_the_defaults_and_extended_ones_are_merged() {
        let ours = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
        assert_eq!(made("ext4", &[]), ["-q", "-m", "0", "-E", ours]);
        let with = format!("{ours},stride=16,resize=1g");
        assert_eq!(
            made("ext4", &["-E", "stride=16", "-i", "8192", "-Eresize=1g"]),
            ["-q", "-m", "0", "-E", &with, "-i", "8192"]
        );
        assert_eq!(made("xfs", &["-m", "reflink=0"]), ["-q", "-K", "-m", "reflink=0"]);
    }

    #[test]
    fn only_filesystems_that_we_know_how_to_make_are_made() {
        for other in ["vfat", "ntfs", "../ext4", ""] {
            assert_eq!(
                mkfs_arguments(other, &[]).unwrap_err().kind,
                StepErrorKind::Unsupported,
                "{other}"
            );
        }
    }

    #[test]
    fn another_type_or_a_partition_table_is_never_taken_for_an_interrupted_mkfs() {
        let filesystem =
            |fs_type: &str| ProbedContent::Filesystem { fs_type: fs_type.into(), uuid: None };
        assert!(may_be_interrupted_mkfs(&ProbedContent::UnknownData { at: 0 }, "ext4"));
        assert!(may_be_interrupted_mkfs(&filesystem("ext4"), "ext4"));
        assert!(!may_be_interrupted_mkfs(&filesystem("xfs"), "ext4"));
        assert!(!may_be_interrupted_mkfs(
            &ProbedContent::Other { what: "a partition table (gpt)".into() },
            "ext4"
        ));
    }
}
