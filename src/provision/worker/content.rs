//! Detects the content of a device: by blkid's low-level probing (`blkid -p`, libblkid), and by
//! reading the areas of signatures. The device is opened read-only.
//!
//! The result "blank" requires that blkid finds nothing and that the areas contain zeros where
//! filesystems, volume managers and partition tables keep their headers and copies. It is a sample:
//! it forbids formatting where it fails, and permits nothing where it succeeds (`FormatProof`).

use std::path::Path;
use std::time::Duration;

use crate::step::{Content, StepErrorKind};
use crate::worker::error::{StepWorkerError, io_error};
use crate::worker::tool;
use diskvitals_finding::path::HostPath;
use diskvitals_host::block::{DeviceFile, OpenMode};
use diskvitals_host::root::HostRoot;

/// blkid reads some hundred KiB.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// Areas that must contain zeros besides the first and the last MiB: start and length. They hold
/// copies of superblocks of ext4 (second group, with blocks of 1 and 4 KiB) and btrfs (64 MiB, 256
/// GiB). A filesystem whose first superblock is lost can be restored from them.
pub(crate) const BACKUP_AREAS: [(u64, u64); 4] =
    [(8 * MIB, 65536), (64 * MIB, 65536), (128 * MIB, 65536), (256 << 30, 65536)];

/// [`BACKUP_AREAS`] with the first and the last MiB of a device of this size.
pub(crate) fn signature_areas(size: u64) -> impl Iterator<Item = (u64, u64)> {
    [(0, MIB), (size.saturating_sub(MIB), MIB)]
        .into_iter()
        .chain(BACKUP_AREAS)
        .filter(move |(start, _)| *start < size)
}

/// The content that was found on a device. The caller decides whether it may be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbedContent {
    Blank,
    /// No signature, but data other than zeros at this byte or after it.
    UnknownData {
        at: u64,
    },
    Filesystem {
        fs_type: String,
        uuid: Option<String>,
    },
    Other {
        what: String,
    },
}

pub fn probe(root: &HostRoot, device: &HostPath) -> Result<Content, StepWorkerError> {
    let path = root.at_host_path(device);
    let block = DeviceFile::open(&path, OpenMode::Read).map_err(io_error("opening", device))?;
    Ok(match probe_block(&block, &path, device)? {
        ProbedContent::Blank => Content::Blank,
        ProbedContent::UnknownData { at } => Content::Unknown { at },
        ProbedContent::Filesystem { fs_type, uuid } => {
            Content::Filesystem { size: filesystem_size(&block, &fs_type), fs_type, uuid }
        }
        ProbedContent::Other { what } => Content::Foreign { what },
    })
}

/// `path` is the path of `device` in this process.
pub(crate) fn probe_block(
    block: &DeviceFile,
    path: &Path,
    device: &HostPath,
) -> Result<ProbedContent, StepWorkerError> {
    let ran =
        tool::run("blkid", &["-p", "-o", "export", "--", &path.to_string_lossy()], PROBE_TIMEOUT)?;
    let output = ran.stdout();
    let signature = match ran.exit_code() {
        Some(0) if !ran.output.truncated => parse_blkid(&output),
        // Status 2: blkid found nothing (blkid(8)) or could not read. The reads below detect the
        // latter.
        Some(2) if output.trim().is_empty() => None,
        Some(8) => Some(other_content("more than one signature, which contradict each other")),
        _ => return Err(ran.to_error(StepErrorKind::Other, &format!("probing {device}"))),
    };
    if let Some(signature) = signature {
        return Ok(signature);
    }
    for (start, length) in signature_areas(block.size) {
        let is_zero = block.is_zero(start, length).map_err(|error| {
            StepWorkerError::io(format!("reading {device} at byte {start}"), error)
        })?;
        if !is_zero {
            return Ok(ProbedContent::UnknownData { at: start });
        }
    }
    Ok(ProbedContent::Blank)
}

fn other_content(what: impl Into<String>) -> ProbedContent {
    ProbedContent::Other { what: what.into() }
}

/// None means no signature. The input has one `KEY=value` per line (blkid(8), export); a backslash
/// escapes characters that are unsafe in a shell.
fn parse_blkid(text: &str) -> Option<ProbedContent> {
    let value = |wanted: &str| {
        let line =
            text.lines().find_map(|line| line.split_once('=').filter(|(key, _)| *key == wanted));
        line.map(|(_, value)| value.replace('\\', ""))
    };
    // The properties of a partition (PART_ENTRY_…) do not describe its content.
    text.lines().find(|line| {
        !line.trim().is_empty() && !line.starts_with("DEVNAME=") && !line.starts_with("PART_ENTRY_")
    })?;
    Some(match (value("TYPE"), value("USAGE").as_deref(), value("PTTYPE")) {
        (Some(fs_type), Some("filesystem"), None) => ProbedContent::Filesystem {
            fs_type,
            uuid: value("UUID").filter(|uuid| !uuid.is_empty()),
        },
        (Some(fs_type), _, Some(table)) => {
            other_content(format!("{fs_type} and a partition table ({table})"))
        }
        (None, _, Some(table)) => other_content(format!("a partition table ({table})")),
        (Some(other), ..) => other_content(other),
        (None, _, None) => other_content("a signature that blkid does not name"),
    })
}

/// The filesystem's size in bytes from its superblock; None for types that we cannot read.
pub(crate) fn filesystem_size(block: &DeviceFile, fs_type: &str) -> Option<u64> {
    let start = match fs_type {
        "ext2" | "ext3" | "ext4" => 1024,
        "xfs" => 0,
        "btrfs" => 65536,
        _ => return None,
    };
    size_in_superblock(fs_type, &block.read(start, 1024).ok()?)
}

/// Whether the unused tail of the device is shorter than a block; false in doubt.
pub(crate) fn fills_device(block: &DeviceFile, fs_type: &str) -> bool {
    filesystem_size(block, fs_type)
        .is_some_and(|claimed| claimed.saturating_add(LARGEST_BLOCK) > block.size)
}

/// The largest block size of the filesystems whose size is read.
const LARGEST_BLOCK: u64 = 65536;

/// Offsets: struct ext4_super_block (s_blocks_count_lo 4, s_log_block_size 24, s_feature_incompat
/// 96, s_blocks_count_hi 336), struct xfs_dsb (sb_blocksize 4, sb_dblocks 8, big-endian), struct
/// btrfs_super_block (total_bytes 112).
fn size_in_superblock(fs_type: &str, superblock: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_le_bytes(superblock.get(at..at + 4)?.try_into().ok()?));
    let quad = |at: usize| -> Option<[u8; 8]> { superblock.get(at..at + 8)?.try_into().ok() };
    const INCOMPAT_64BIT: u32 = 0x80;
    match fs_type {
        "xfs" => {
            let unit = word(4)?.swap_bytes();
            u64::from_be_bytes(quad(8)?).checked_mul(u64::from(unit))
        }
        "btrfs" => Some(u64::from_le_bytes(quad(112)?)),
        _ => {
            let high =
                if word(96)? & INCOMPAT_64BIT != 0 { u64::from(word(336)?) << 32 } else { 0 };
            (high | u64::from(word(4)?)).checked_mul(1024_u64.checked_shl(word(24)?)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_filesystem_has_its_type_and_uuid() {
        let text = "DEVNAME=/dev/loop3\nUUID=f0e6a351-b4e2-4bcd-a714-3b8581972fc0\nVERSION=1.0\nBLOCK_SIZE=1024\nTYPE=ext4\nUSAGE=filesystem\n";
        let uuid = Some("f0e6a351-b4e2-4bcd-a714-3b8581972fc0".to_owned());
        assert_eq!(
            parse_blkid(text),
            Some(ProbedContent::Filesystem { fs_type: "ext4".into(), uuid })
        );
    }

    #[test]
    fn that_a_device_is_a_partition_says_nothing_of_what_is_on_it() {
        let text = "DEVNAME=/dev/sdb1\nPART_ENTRY_SCHEME=gpt\nPART_ENTRY_NAME=a\\ b\nPART_ENTRY_NUMBER=1\n";
        assert_eq!(parse_blkid(text), None);
        assert_eq!(parse_blkid(""), None);
    }

    #[test]
    fn partition_tables_array_members_and_unknown_signatures_are_foreign() {
        let other = |text: &str| match parse_blkid(text) {
            Some(ProbedContent::Other { what }) => what,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(other("DEVNAME=/dev/sdb\nPTUUID=1\nPTTYPE=gpt\n"), "a partition table (gpt)");
        assert_eq!(other("TYPE=crypto_LUKS\nUSAGE=crypto\n"), "crypto_LUKS");
        assert_eq!(other("TYPE=linux_raid_member\nUSAGE=raid\n"), "linux_raid_member");
        assert_eq!(
            other("TYPE=vfat\nUSAGE=filesystem\nPTTYPE=dos\n"),
            "vfat and a partition table (dos)"
        );
        assert_eq!(other("LABEL=x\n"), "a signature that blkid does not name");
    }

    #[test]
    fn signature_areas_lie_on_the_device_and_include_both_ends() {
        assert_eq!(
            signature_areas(100 * MIB).collect::<Vec<_>>(),
            [(0, MIB), (99 * MIB, MIB), (8 * MIB, 65536), (64 * MIB, 65536)]
        );
        assert_eq!(signature_areas(512).collect::<Vec<_>>(), [(0, MIB), (0, MIB)]);
        assert_eq!(signature_areas(0).count(), 0);
    }

    #[test]
    fn a_size_is_read_from_each_superblock_as_it_is_written() {
        let mut ext4 = vec![0; 1024];
        ext4[4..8].copy_from_slice(&100_u32.to_le_bytes());
        ext4[24] = 2;
        ext4[336] = 1;
        assert_eq!(
            size_in_superblock("ext4", &ext4),
            Some(100 * 4096),
            "no 64bit: the high half means nothing"
        );
        ext4[96] = 0x80;
        assert_eq!(size_in_superblock("ext4", &ext4), Some((100 + (1 << 32)) * 4096));
        let mut xfs = vec![0; 1024];
        xfs[4..8].copy_from_slice(&4096_u32.to_be_bytes());
        xfs[8..16].copy_from_slice(&7_u64.to_be_bytes());
        assert_eq!(size_in_superblock("xfs", &xfs), Some(7 * 4096));
        ext4[24] = 0xff;
        assert_eq!(size_in_superblock("ext4", &ext4), None, "damaged");
    }

    proptest! {
        #[test]
        fn only_empty_blkid_output_means_blank(lines in proptest::collection::vec("[A-Z_]{1,12}=[a-z0-9]{0,8}", 0..6)) {
            let text = lines.join("\n");
            let silent = lines.iter().all(|line| line.starts_with("DEVNAME=") || line.starts_with("PART_ENTRY_"));
            prop_assert_eq!(parse_blkid(&text).is_none(), silent);
        }

        #[test]
        fn no_bytes_of_a_superblock_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1024)) {
            for fs_type in ["ext4", "xfs", "btrfs"] {
                size_in_superblock(fs_type, &bytes);
            }
        }
    }
}
