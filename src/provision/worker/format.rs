//! Creates and grows filesystems with their own programs, on devices that are not mounted.
//!
//! First the device is opened exclusively (O_EXCL: EBUSY while it is mounted or part of another
//! device), and its content is probed. The programs open it exclusively too, and are never forced
//! (`-f`, `-F`): they detect a change between the probe and their own start. A program that
//! outlives this process (because it was killed) keeps the device: a second one gets `InUse` until
//! the first has ended.

use std::path::Path;
use std::time::Duration;

use crate::host::block::OpenMode;
use crate::host::root::HostRoot;
use crate::model::path::HostPath;
use crate::provision::step::{DeviceIdentity, StepErrorKind};
use crate::provision::worker::content::ProbedContent;
use crate::provision::worker::error::StepWorkerError;
use crate::provision::worker::{content, device, tool};

/// mkfs writes some hundred MiB at most: metadata of the largest volume, on the slowest disk.
const MKFS_TIMEOUT: Duration = Duration::from_secs(1800);
/// e2fsck reads all metadata, resize2fs may move some of it.
const GROW_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// What a record of ours says of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PriorFormat<'a> {
    Nothing,
    /// A mkfs was begun on it, which was this one, when it was blank, and nobody heard of its end.
    Interrupted(&'a DeviceIdentity),
}

pub(crate) fn format(
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
    options: &[String],
    before: PriorFormat<'_>,
) -> Result<(), StepWorkerError> {
    let arguments = mkfs_arguments(fs_type, options)?;
    let program = format!("mkfs.{fs_type}");
    let path = root.at_host_path(device);
    // A missing program is an error before the device is touched.
    tool::find(&program)?;
    let block = device::open_exclusive(root, device, OpenMode::ReadExclusive)?;
    if let PriorFormat::Interrupted(was) = before {
        let is = DeviceIdentity {
            size: block.size,
            name: device::identity(Path::new("/"), block.dev),
        };
        if !was.is_certainly_same(&is) {
            let message = format!(
                "{device} is not known to be the device whose mkfs was cut off, and is not cleared: that was {was}, this is {is}"
            );
            return Err(StepWorkerError::new(StepErrorKind::ForeignData, message));
        }
    }
    match content::probe_block(&block, &path, device)? {
        ProbedContent::Blank => drop(block),
        seen if matches!(before, PriorFormat::Interrupted(_))
            && may_be_interrupted_mkfs(&seen, fs_type) =>
        {
            drop(block);
            wipe_signatures(root, device)?;
        }
        seen => return Err(not_blank(device, &seen)),
    }
    let arguments: Vec<String> = arguments
        .into_iter()
        .chain(["--".to_owned(), path.to_string_lossy().into_owned()])
        .collect();
    // Whatever kind of error it is from here on, mkfs may have written.
    run_mkfs(&program, &arguments, &path, root, device, fs_type)
        .map_err(|failure| failure.with_kind(StepErrorKind::Other))
}

fn run_mkfs(
    program: &str,
    arguments: &[String],
    path: &Path,
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
) -> Result<(), StepWorkerError> {
    let ran = tool::run(program, arguments, MKFS_TIMEOUT)?;
    if ran.exit_code() != Some(0) {
        return Err(ran.to_error(
            StepErrorKind::Other,
            &format!("making an {fs_type} on {device}"),
        ));
    }
    // A program that says 0 and made nothing has been seen (a full thin pool): the truth is on the
    // device.
    let block = device::open_exclusive(root, device, OpenMode::WriteExclusive)?;
    block
        .sync()
        .map_err(|error| StepWorkerError::io(format!("synchronising {device}"), error))?;
    match content::probe_block(&block, path, device)? {
        ProbedContent::Filesystem { fs_type: made, .. } if made == fs_type => Ok(()),
        seen => Err(StepWorkerError::new(
            StepErrorKind::Other,
            format!("after {program} on {device} there is no {fs_type} but {seen:?}"),
        )),
    }
}

/// What lies elsewhere a mkfs writes over, or it means nothing without a superblock.
pub(crate) fn wipe_signatures(root: &HostRoot, device: &HostPath) -> Result<(), StepWorkerError> {
    let block = device::open_exclusive(root, device, OpenMode::WriteExclusive)?;
    for (start, length) in content::signature_areas(block.size) {
        block.zero(start, length).map_err(|error| {
            StepWorkerError::io(
                format!("clearing what a cut-off mkfs left on {device}"),
                error,
            )
        })?;
    }
    match content::probe_block(&block, &root.at_host_path(device), device)? {
        ProbedContent::Blank => Ok(()),
        left => Err(not_blank(device, &left)),
    }
}

/// What a mkfs of this type, killed in the middle, may have left.
fn may_be_interrupted_mkfs(seen: &ProbedContent, wanted: &str) -> bool {
    match seen {
        ProbedContent::UnknownData { .. } => true,
        ProbedContent::Filesystem { fs_type, .. } => fs_type == wanted,
        ProbedContent::Blank | ProbedContent::Other { .. } => false,
    }
}

fn not_blank(device: &HostPath, seen: &ProbedContent) -> StepWorkerError {
    let what = match seen {
        ProbedContent::Blank => "nothing".to_owned(),
        ProbedContent::UnknownData { at } => {
            format!("data without a known signature at byte {at} or behind")
        }
        ProbedContent::Filesystem { fs_type, .. } => format!("a filesystem ({fs_type})"),
        ProbedContent::Other { what } => what.clone(),
    };
    StepWorkerError::new(
        StepErrorKind::ForeignData,
        format!("{device} is not blank and is not formatted: it carries {what}"),
    )
}

/// Ours before the caller's, so that his hold where both say something.
///
/// Nothing is discarded: an image's or a thin volume's blocks would be given back, and with them
/// the promise that there is room. ext4's inode tables and journal are zeroed by the kernel after
/// the first mount (lazy_itable_init, lazy_journal_init), so that the time does not grow with the
/// size; none of it is kept for root (-m 0), whom a volume of a pod does not serve.
fn mkfs_arguments(fs_type: &str, options: &[String]) -> Result<Vec<String>, StepWorkerError> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut arguments = match fs_type {
        "ext4" => {
            const DEFAULT_EXTENDED: &str = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
            let (extended, rest) = split_extended_options(options);
            // mke2fs(8) takes the last -E only.
            let all = extended
                .iter()
                .fold(DEFAULT_EXTENDED.to_owned(), |all, more| {
                    format!("{all},{more}")
                });
            return Ok(words(&["-q", "-m", "0", "-E"])
                .into_iter()
                .chain([all])
                .chain(rest)
                .collect());
        }
        "xfs" | "btrfs" => words(&["-q", "-K"]),
        other => {
            return Err(StepWorkerError::new(
                StepErrorKind::Unsupported,
                format!("making an {other}: only ext4, xfs and btrfs are made"),
            ));
        }
    };
    arguments.extend(options.iter().cloned());
    Ok(arguments)
}

/// The values of `-E`, and the other words.
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

/// Only ext4 can: the others grow while they are mounted, everywhere.
pub(crate) fn grow_unmounted(
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
) -> Result<(), StepWorkerError> {
    if fs_type != "ext4" {
        return Err(StepWorkerError::new(
            StepErrorKind::NotFound,
            format!("the {fs_type} on {device} is not mounted, and grows only while it is"),
        ));
    }
    let path = root.at_host_path(device);
    let block = device::open_exclusive(root, device, OpenMode::ReadExclusive)?;
    if content::fills_device(&block, fs_type) {
        return Ok(());
    }
    drop(block);
    let path = path.to_string_lossy().into_owned();
    // resize2fs(8) wants it checked; -p repairs what is safe without asking. 1: something was
    // repaired.
    let checked = tool::run(
        "e2fsck",
        &["-f".to_owned(), "-p".to_owned(), path.clone()],
        GROW_TIMEOUT,
    )?;
    if !matches!(checked.exit_code(), Some(0 | 1)) {
        return Err(checked.to_error(
            StepErrorKind::Other,
            &format!("checking the ext4 on {device} before it is grown"),
        ));
    }
    let grown = tool::run("resize2fs", &[path], GROW_TIMEOUT)?;
    if grown.exit_code() != Some(0) {
        return Err(grown.to_error(
            StepErrorKind::Other,
            &format!("growing the ext4 on {device}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(fs_type: &str, options: &[&str]) -> Vec<String> {
        mkfs_arguments(
            fs_type,
            &options
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
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
        assert_eq!(
            made("xfs", &["-m", "reflink=0"]),
            ["-q", "-K", "-m", "reflink=0"]
        );
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
        let filesystem = |fs_type: &str| ProbedContent::Filesystem {
            fs_type: fs_type.into(),
            uuid: None,
        };
        assert!(may_be_interrupted_mkfs(
            &ProbedContent::UnknownData { at: 0 },
            "ext4"
        ));
        assert!(may_be_interrupted_mkfs(&filesystem("ext4"), "ext4"));
        assert!(!may_be_interrupted_mkfs(&filesystem("xfs"), "ext4"));
        assert!(!may_be_interrupted_mkfs(
            &ProbedContent::Other {
                what: "a partition table (gpt)".into()
            },
            "ext4"
        ));
    }
}
