//! The superblock of a filesystem on a block device: its type and UUID, and what ext4 says of its
//! own state.
//!
//! In: the bytes at two offsets of the device. Out: `Superblock`. Used where udev's database has no
//! record of the device.

use serde::{Deserialize, Serialize};

/// Bytes that `parse` needs from the start of the device: XFS at 0, ext4 at 1024.
pub(crate) const START_LENGTH: usize = 4096;
/// Where btrfs has its first superblock (BTRFS_SUPER_INFO_OFFSET), and how much of it is needed.
pub(crate) const BTRFS_OFFSET: u64 = 64 * 1024;
pub(crate) const BTRFS_LENGTH: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// `ext4` for ext2 to ext4, `xfs` or `btrfs`.
    pub fs_type: String,
    pub uuid: String,
    /// Of ext2 to ext4 only.
    pub ext: Option<ExtState>,
}

/// What ext4 writes about itself (Documentation/filesystems/ext4/super.rst).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtState {
    /// s_state: cleanly unmounted (0x1), and no error seen (not 0x2).
    pub is_clean: bool,
    /// s_error_count: errors since the last e2fsck.
    pub errors: u32,
}

/// `start`: the first bytes of the device; `btrfs`: those at `BTRFS_OFFSET`, none on a smaller
/// device. None: no known filesystem, or one without a UUID.
pub(crate) fn parse(start: &[u8], btrfs: &[u8]) -> Option<Superblock> {
    let named = |fs_type: &str, uuid: Option<String>, ext: Option<ExtState>| {
        Some(Superblock {
            fs_type: fs_type.to_owned(),
            uuid: uuid?,
            ext,
        })
    };
    // struct btrfs_super_block: csum, fsid, bytenr, flags, magic.
    if bytes(btrfs, 64) == Some(*b"_BHRfS_M") {
        return named("btrfs", uuid(btrfs, 32), None);
    }
    // struct xfs_dsb: sb_magicnum, sb_uuid.
    if bytes(start, 0) == Some(*b"XFSB") {
        return named("xfs", uuid(start, 32), None);
    }
    // struct ext4_super_block, 1024 bytes after the start: s_magic at 56, s_state at 58, s_uuid at
    // 104, s_error_count at 0x194.
    let ext = start.get(1024..)?;
    if bytes(ext, 56).map(u16::from_le_bytes) != Some(0xef53) {
        return None;
    }
    let state = u16::from_le_bytes(bytes(ext, 58)?);
    let state = ExtState {
        is_clean: state & 0x3 == 0x1,
        errors: u32::from_le_bytes(bytes(ext, 0x194)?),
    };
    named("ext4", uuid(ext, 104), Some(state))
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
        assert_eq!(
            (clean.fs_type.as_str(), clean.uuid.as_str()),
            ("ext4", UUID)
        );
        let state = |is_clean, errors| Some(ExtState { is_clean, errors });
        assert_eq!(clean.ext, state(true, 0));
        put(&mut ext, 1024 + 58, &3_u16.to_le_bytes());
        put(&mut ext, 1024 + 0x194, &7_u32.to_le_bytes());
        assert_eq!(found(&ext, &[]).ext, state(false, 7));
        assert_eq!(parse(&[0; 4096], &[0; 4096]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            start in proptest::collection::vec(any::<u8>(), 0..2048),
            second in proptest::collection::vec(any::<u8>(), 0..128),
        ) {
            let _ = parse(&start, &second);
        }
    }
}
