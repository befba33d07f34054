//! Filesystems made and grown by their own programs, on devices that nobody has mounted.
//!
//! Before: the device is opened as one who must be alone (O_EXCL: EBUSY while it is mounted or part
//! of something), and what is on it is looked at. The programs open it in the same way themselves,
//! and are never told to go on regardless (`-f`, `-F`): between the look and theirs there is
//! nothing that they would not see. One that outlives this process (it was killed) keeps the
//! device: a second one meets `Held` until it has ended.

use std::path::Path;
use std::time::Duration;

use crate::attach::step::{Identity, Trouble};
use crate::attach::worker::content::Seen;
use crate::attach::worker::failure::Failure;
use crate::attach::worker::{content, device, tool};
use crate::host::block::Way;
use crate::host::root::HostRoot;
use crate::model::path::HostPath;

/// mkfs writes some hundred MiB at most: metadata of the largest volume, on the slowest disk.
const MAKING: Duration = Duration::from_secs(1800);
/// e2fsck reads all metadata, resize2fs may move some of it.
const GROWING: Duration = Duration::from_secs(4 * 3600);

/// What a record of ours says of the device.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a> {
    Nothing,
    /// A mkfs was begun on it, which was this one, when it was blank, and nobody heard of its end.
    CutOff(&'a Identity),
}

pub fn format(
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
    options: &[String],
    before: Before<'_>,
) -> Result<(), Failure> {
    let arguments = arguments(fs_type, options)?;
    let program = format!("mkfs.{fs_type}");
    let path = root.at_host_path(device);
    // What is missing is told before anything is touched.
    tool::find(&program)?;
    let block = device::open_alone(root, device, Way::ReadAlone)?;
    if let Before::CutOff(was) = before {
        let is = Identity {
            size: block.size,
            name: device::identity(Path::new("/"), block.dev),
        };
        if !was.is_same(&is) {
            let message = format!(
                "{device} is not known to be the device whose mkfs was cut off, and is not cleared: that was {was}, this is {is}"
            );
            return Err(Failure::new(Trouble::Foreign, message));
        }
    }
    match content::examine(&block, &path, device)? {
        Seen::Blank => drop(block),
        seen if matches!(before, Before::CutOff(_)) && is_remainder(&seen, fs_type) => {
            drop(block);
            blank(root, device)?;
        }
        seen => return Err(foreign(device, &seen)),
    }
    let arguments: Vec<String> = arguments
        .into_iter()
        .chain(["--".to_owned(), path.to_string_lossy().into_owned()])
        .collect();
    // Whatever kind of error it is from here on, mkfs may have written.
    made(&program, &arguments, &path, root, device, fs_type)
        .map_err(|failure| failure.of_kind(Trouble::Failed))
}

fn made(
    program: &str,
    arguments: &[String],
    path: &Path,
    root: &HostRoot,
    device: &HostPath,
    fs_type: &str,
) -> Result<(), Failure> {
    let ran = tool::run(program, arguments, MAKING)?;
    if ran.code() != Some(0) {
        return Err(ran.failure(Trouble::Failed, &format!("making an {fs_type} on {device}")));
    }
    // A program that says 0 and made nothing has been seen (a full thin pool): the truth is on the
    // device.
    let block = device::open_alone(root, device, Way::WriteAlone)?;
    block
        .synchronise()
        .map_err(|error| Failure::io(format!("synchronising {device}"), error))?;
    match content::examine(&block, path, device)? {
        Seen::Filesystem { fs_type: made, .. } if made == fs_type => Ok(()),
        seen => Err(Failure::new(
            Trouble::Failed,
            format!("after {program} on {device} there is no {fs_type} but {seen:?}"),
        )),
    }
}

/// What lies elsewhere a mkfs writes over, or it means nothing without a superblock.
pub fn blank(root: &HostRoot, device: &HostPath) -> Result<(), Failure> {
    let block = device::open_alone(root, device, Way::WriteAlone)?;
    for (start, length) in content::places(block.size) {
        block.zero(start, length).map_err(|error| {
            Failure::io(
                format!("clearing what a cut-off mkfs left on {device}"),
                error,
            )
        })?;
    }
    match content::examine(&block, &root.at_host_path(device), device)? {
        Seen::Blank => Ok(()),
        left => Err(foreign(device, &left)),
    }
}

/// What a mkfs of this type, killed in the middle, may have left.
fn is_remainder(seen: &Seen, wanted: &str) -> bool {
    match seen {
        Seen::Unexplained { .. } => true,
        Seen::Filesystem { fs_type, .. } => fs_type == wanted,
        Seen::Blank | Seen::Other { .. } => false,
    }
}

fn foreign(device: &HostPath, seen: &Seen) -> Failure {
    let what = match seen {
        Seen::Blank => "nothing".to_owned(),
        Seen::Unexplained { at } => {
            format!("data without a known signature at byte {at} or behind")
        }
        Seen::Filesystem { fs_type, .. } => format!("a filesystem ({fs_type})"),
        Seen::Other { what } => what.clone(),
    };
    Failure::new(
        Trouble::Foreign,
        format!("{device} is not blank and is not formatted: it carries {what}"),
    )
}

/// Ours before the caller's, so that his hold where both say something.
///
/// Nothing is discarded: an image's or a thin volume's blocks would be given back, and with them
/// the promise that there is room. ext4's inode tables and journal are zeroed by the kernel after
/// the first mount (lazy_itable_init, lazy_journal_init), so that the time does not grow with the
/// size; none of it is kept for root (-m 0), whom a volume of a pod does not serve.
fn arguments(fs_type: &str, options: &[String]) -> Result<Vec<String>, Failure> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut arguments = match fs_type {
        "ext4" => {
            const OURS: &str = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
            let (extended, rest) = extended(options);
            // mke2fs(8) takes the last -E only.
            let all = extended
                .iter()
                .fold(OURS.to_owned(), |all, more| format!("{all},{more}"));
            return Ok(words(&["-q", "-m", "0", "-E"])
                .into_iter()
                .chain([all])
                .chain(rest)
                .collect());
        }
        "xfs" | "btrfs" => words(&["-q", "-K"]),
        other => {
            return Err(Failure::new(
                Trouble::Unsupported,
                format!("making an {other}: only ext4, xfs and btrfs are made"),
            ));
        }
    };
    arguments.extend(options.iter().cloned());
    Ok(arguments)
}

/// The values of `-E`, and the other words.
fn extended(options: &[String]) -> (Vec<String>, Vec<String>) {
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
pub fn grow_unmounted(root: &HostRoot, device: &HostPath, fs_type: &str) -> Result<(), Failure> {
    if fs_type != "ext4" {
        return Err(Failure::new(
            Trouble::NotFound,
            format!("the {fs_type} on {device} is not mounted, and grows only while it is"),
        ));
    }
    let path = root.at_host_path(device);
    let block = device::open_alone(root, device, Way::ReadAlone)?;
    if content::fills(&block, fs_type) {
        return Ok(());
    }
    drop(block);
    let path = path.to_string_lossy().into_owned();
    // resize2fs(8) wants it checked; -p repairs what is safe without asking. 1: something was
    // repaired.
    let checked = tool::run(
        "e2fsck",
        &["-f".to_owned(), "-p".to_owned(), path.clone()],
        GROWING,
    )?;
    if !matches!(checked.code(), Some(0 | 1)) {
        return Err(checked.failure(
            Trouble::Failed,
            &format!("checking the ext4 on {device} before it is grown"),
        ));
    }
    let grown = tool::run("resize2fs", &[path], GROWING)?;
    if grown.code() != Some(0) {
        return Err(grown.failure(Trouble::Failed, &format!("growing the ext4 on {device}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(fs_type: &str, options: &[&str]) -> Vec<String> {
        arguments(
            fs_type,
            &options
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap()
    }

    #[test]
    fn options_of_the_caller_come_behind_ours_and_extended_ones_among_them() {
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
                arguments(other, &[]).unwrap_err().kind,
                Trouble::Unsupported,
                "{other}"
            );
        }
    }

    #[test]
    fn what_a_cut_off_mkfs_may_have_left_is_never_another_type_or_a_table() {
        let filesystem = |fs_type: &str| Seen::Filesystem {
            fs_type: fs_type.into(),
            uuid: None,
        };
        assert!(is_remainder(&Seen::Unexplained { at: 0 }, "ext4"));
        assert!(is_remainder(&filesystem("ext4"), "ext4"));
        assert!(!is_remainder(&filesystem("xfs"), "ext4"));
        assert!(!is_remainder(
            &Seen::Other {
                what: "a partition table (gpt)".into()
            },
            "ext4"
        ));
    }
}
