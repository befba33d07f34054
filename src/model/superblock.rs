//! The superblock of a filesystem on a block device: its type and UUID, and what ext4 says of its
//! own state.
//!
//! In: the bytes at two offsets of the device. Out: `Superblock`. Used where udev's database has no
//! record of the device, and for what ext4 records about errors and checks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Bytes that `parse` needs from the start of the device: XFS at 0, ext4 at 1024.
pub const START_LENGTH: usize = 4096;
/// Where ext2 to ext4 have their superblock, and its length (struct ext4_super_block).
pub const EXT_OFFSET: u64 = 1024;
pub const EXT_LENGTH: usize = 1024;
/// Where btrfs has its first superblock (BTRFS_SUPER_INFO_OFFSET), and how much of it is needed.
pub const BTRFS_OFFSET: u64 = 64 * 1024;
pub const BTRFS_LENGTH: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// `ext4` for ext2 to ext4, `xfs` or `btrfs`.
    pub fs_type: String,
    pub uuid: String,
    /// Of ext2 to ext4 only.
    pub ext: Option<ExtState>,
}

/// What ext2 to ext4 record about themselves (Documentation/filesystems/ext4/super.rst). The times
/// are those of the wall clock of the machine that wrote them.
///
/// While it is mounted, the kernel keeps the superblock's block in the page cache of the device and
/// changes it there (sb_bread_unmovable(), ext4_update_super(), fs/ext4/super.c). A buffered read
/// of the device returns that copy: `errors` is the same as `errors_count` in sysfs, also before it
/// is on the disk. The kernel never changes `last_checked`; only e2fsck, mke2fs and tune2fs do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtState {
    /// s_state, 0x1: unmounted cleanly, and its last e2fsck left nothing unrepaired. The kernel
    /// keeps it while it is mounted with a journal; without one, the mount takes it away.
    pub is_valid: bool,
    /// s_state, 0x2: the kernel met an error. Only e2fsck takes it away.
    pub has_errors: bool,
    pub has_journal: bool,
    /// s_error_count: errors since the last e2fsck.
    pub errors: u32,
    /// s_first_error_time and s_last_error_time: of these errors.
    pub first_error: Option<Timestamp>,
    pub last_error: Option<Timestamp>,
    /// s_mtime: the last mount for writing.
    pub last_mounted: Option<Timestamp>,
    /// s_lastcheck: the end of the last e2fsck, also if it repaired nothing; at first, of mke2fs.
    pub last_checked: Option<Timestamp>,
}

impl ExtState {
    /// Unmounted: nothing is left to repair, as far as it knows.
    pub fn is_clean(&self) -> bool {
        self.is_valid && !self.has_errors && self.errors == 0
    }

    /// Mounted: it was clean before the mount, and has met no error since. Without a journal, the
    /// mount has removed the sign of it.
    pub(crate) fn is_clean_while_mounted(&self) -> bool {
        self.has_journal && self.is_clean()
    }

    /// Errors that nothing has repaired.
    pub(crate) fn has_recorded_errors(&self) -> bool {
        self.has_errors || self.errors > 0
    }
}

/// `start`: the first bytes of the device; `btrfs`: those at `BTRFS_OFFSET`, none on a smaller
/// device. None: no known filesystem, or one without a UUID.
pub fn parse(start: &[u8], btrfs: &[u8]) -> Option<Superblock> {
    let named = |fs_type: &str, uuid: Option<String>, ext: Option<ExtState>| {
        Some(Superblock { fs_type: fs_type.to_owned(), uuid: uuid?, ext })
    };
    // struct btrfs_super_block: csum, fsid, bytenr, flags, magic.
    if bytes(btrfs, 64) == Some(*b"_BHRfS_M") {
        return named("btrfs", uuid(btrfs, 32), None);
    }
    // struct xfs_dsb: sb_magicnum, sb_uuid.
    if bytes(start, 0) == Some(*b"XFSB") {
        return named("xfs", uuid(start, 32), None);
    }
    parse_ext(start.get(EXT_OFFSET as usize..)?)
}

/// `block`: the bytes at `EXT_OFFSET`. Offsets as in struct ext4_super_block. The byte above the 32
/// bits of each time is elsewhere (s_lastcheck_hi and others, since 4.17).
pub fn parse_ext(block: &[u8]) -> Option<Superblock> {
    let short = |at| bytes(block, at).map(u16::from_le_bytes);
    let long = |at| bytes(block, at).map(u32::from_le_bytes);
    let time = |low, high: usize| {
        let seconds = i64::from(long(low)?) | i64::from(*block.get(high)?) << 32;
        Timestamp::from_second(seconds).ok().filter(|_| seconds > 0)
    };
    if short(0x38) != Some(0xef53) {
        return None;
    }
    let state = short(0x3a)?;
    let state = ExtState {
        is_valid: state & 0x1 != 0,
        has_errors: state & 0x2 != 0,
        // EXT4_FEATURE_COMPAT_HAS_JOURNAL.
        has_journal: long(0x5c)? & 0x4 != 0,
        errors: long(0x194)?,
        first_error: time(0x198, 0x278),
        last_error: time(0x1cc, 0x279),
        last_mounted: time(0x2c, 0x275),
        last_checked: time(0x40, 0x277),
    };
    Some(Superblock { fs_type: "ext4".to_owned(), uuid: uuid(block, 0x68)?, ext: Some(state) })
}

fn bytes<const N: usize>(block: &[u8], at: usize) -> Option<[u8; N]> {
    block.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// As blkid prints it; None for one of zeros.
fn uuid(block: &[u8], at: usize) -> Option<String> {
    let bytes: [u8; 16] = bytes(block, at)?;
    if bytes == [0; 16] {
        return None;
    }
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "6b1d3b1e-7a57-4b61-8e0e-1b9a3d1f8a11";

    fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
        block[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn uuid_bytes() -> Vec<u8> {
        let digits: String = UUID.chars().filter(|c| *c != '-').collect();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..32).step_by(2).map(byte).collect()
    }

    #[test]
    fn each_filesystem_is_recognized_with_its_uuid() {
        let (mut xfs, mut ext, mut btrfs) = (vec![0; 4096], vec![0; 4096], vec![0; 4096]);
        put(&mut xfs, 0, b"XFSB");
        put(&mut xfs, 32, &uuid_bytes());
        put(&mut ext, 1024 + 56, &0xef53_u16.to_le_bytes());
        put(&mut ext, 1024 + 58, &1_u16.to_le_bytes());
        put(&mut ext, 1024 + 104, &uuid_bytes());
        put(&mut btrfs, 64, b"_BHRfS_M");
        put(&mut btrfs, 32, &uuid_bytes());
        let found = |start: &[u8], second: &[u8]| parse(start, second).unwrap();
        for (block, name) in [(found(&xfs, &[]), "xfs"), (found(&[], &btrfs), "btrfs")] {
            assert_eq!((block.fs_type.as_str(), block.uuid.as_str()), (name, UUID));
        }
        let clean = found(&ext, &[]);
        assert_eq!((clean.fs_type.as_str(), clean.uuid.as_str()), ("ext4", UUID));
        let valid = ExtState { is_valid: true, ..ExtState::default() };
        assert_eq!(clean.ext, Some(valid));
        assert_eq!(parse(&[0; 4096], &[0; 4096]), None);
    }

    #[test]
    fn ext4_records_its_errors_and_its_last_check() {
        let mut ext = vec![0; EXT_LENGTH];
        put(&mut ext, 0x38, &0xef53_u16.to_le_bytes());
        put(&mut ext, 0x3a, &3_u16.to_le_bytes());
        put(&mut ext, 0x5c, &0x3c_u32.to_le_bytes());
        put(&mut ext, 0x68, &uuid_bytes());
        put(&mut ext, 0x194, &7_u32.to_le_bytes());
        put(&mut ext, 0x198, &1_551_441_600_u32.to_le_bytes());
        put(&mut ext, 0x1cc, &1_551_441_605_u32.to_le_bytes());
        put(&mut ext, 0x2c, &1_551_441_600_u32.to_le_bytes());
        // After 2106.
        put(&mut ext, 0x40, &5_u32.to_le_bytes());
        put(&mut ext, 0x277, &[1]);
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let state = parse_ext(&ext).unwrap().ext.unwrap();
        let expected = ExtState {
            is_valid: true,
            has_errors: true,
            has_journal: true,
            errors: 7,
            first_error: at(1_551_441_600),
            last_error: at(1_551_441_605),
            last_mounted: at(1_551_441_600),
            last_checked: at((1 << 32) + 5),
        };
        assert_eq!(state, expected);
        assert!(
            state.has_recorded_errors() && !state.is_clean() && !state.is_clean_while_mounted()
        );
        // e2fsck with the answer "no" sets the time and the count, and leaves the state.
        put(&mut ext, 0x3a, &0_u16.to_le_bytes());
        put(&mut ext, 0x194, &0_u32.to_le_bytes());
        assert!(!parse_ext(&ext).unwrap().ext.unwrap().is_clean());
        put(&mut ext, 0x3a, &1_u16.to_le_bytes());
        let repaired = parse_ext(&ext).unwrap().ext.unwrap();
        assert!(repaired.is_clean() && repaired.is_clean_while_mounted());
        put(&mut ext, 0x5c, &0_u32.to_le_bytes());
        let without_journal = parse_ext(&ext).unwrap().ext.unwrap();
        assert!(without_journal.is_clean() && !without_journal.is_clean_while_mounted());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            start in proptest::collection::vec(any::<u8>(), 0..2048),
            second in proptest::collection::vec(any::<u8>(), 0..128),
        ) {
            let _ = parse(&start, &second);
            let _ = parse_ext(&start);
        }
    }
}
