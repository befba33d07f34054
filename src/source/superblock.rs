//! Superblocks: which filesystem is on a block device of which udev's database has no record, what
//! ext2 to ext4 record about their errors and checks, and the signatures of members.
//!
//! In: a device. Out: its `Superblock`, its `Signature`s. Opens it for reading only, in a worker: a
//! device may not answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use diskvitals_finding::dev::DevNo;
use diskvitals_host::block::dev_no;
use diskvitals_host::root::HostRoot;
use diskvitals_model::signature::{self, EDGE_LENGTH, LABEL_COPIES, LABEL_LENGTH, Signature};
use diskvitals_model::superblock::{
    BTRFS_LENGTH, BTRFS_OFFSET, EXT_LENGTH, EXT_OFFSET, START_LENGTH, Superblock, parse, parse_ext,
};

#[derive(Debug, thiserror::Error)]
pub enum SuperblockError {
    #[error("opening {path}")]
    Open {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is another device than {dev} now")]
    Replaced { path: String, dev: DevNo },
    #[error("reading {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// None: no filesystem that is known here. `only_ext`: an ext2 to ext4 is on it, as udev knows.
pub fn read(
    root: &HostRoot,
    device: &str,
    dev: DevNo,
    only_ext: bool,
) -> Result<Option<Superblock>, SuperblockError> {
    let (path, file) = open(root, device, dev)?;
    let superblock = match only_ext {
        true => read_ext(&file),
        false => read_from(&file),
    };
    superblock.map_err(|source| SuperblockError::Read { path, source })
}

/// Every signature on a device of `size` bytes.
pub(crate) fn read_signatures(
    root: &HostRoot,
    device: &str,
    dev: DevNo,
    size: u64,
) -> Result<Vec<Signature>, SuperblockError> {
    let (path, file) = open(root, device, dev)?;
    signatures_from(&file, size).map_err(|source| SuperblockError::Read { path, source })
}

fn signatures_from(device: &File, size: u64) -> io::Result<Vec<Signature>> {
    let length = EDGE_LENGTH.min(size) as usize;
    let start = read_at(device, 0, length)?;
    let end = read_at(device, size - length as u64, length)?;
    let fits = |at: &&u64| size.saturating_sub(**at) >= LABEL_LENGTH as u64;
    let copies = LABEL_COPIES.iter().filter(fits).map(|at| read_at(device, *at, LABEL_LENGTH));
    Ok(signature::parse(&start, &end, size, &copies.collect::<io::Result<Vec<_>>>()?))
}

/// A recorded tree has the first bytes of devices in `exec/devices`. Of a host: nothing.
pub(crate) fn recorded_signatures(root: &HostRoot) -> io::Result<BTreeMap<String, Vec<Signature>>> {
    let dir = root.at("/exec/devices");
    if !root.is_recorded() || !dir.is_dir() {
        return Ok(BTreeMap::new());
    }
    let read = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let file = File::open(entry.path())?;
        let found = signatures_from(&file, file.metadata()?.len())?;
        Ok((entry.file_name().to_string_lossy().into_owned(), found))
    };
    std::fs::read_dir(dir)?.map(read).collect()
}

fn open(root: &HostRoot, device: &str, dev: DevNo) -> Result<(String, File), SuperblockError> {
    // In sysfs, `!` replaces the `/` of a name.
    let path = format!("/dev/{}", device.replace('!', "/"));
    let open = || {
        let file = File::open(root.at(&path))?;
        let number = file.metadata()?.rdev();
        Ok((file, number))
    };
    let (file, number) =
        open().map_err(|source| SuperblockError::Open { path: path.clone(), source })?;
    if dev_no(number) != dev {
        return Err(SuperblockError::Replaced { path, dev });
    }
    Ok((path, file))
}

/// Reads the block that the kernel holds in memory while it is mounted, and nothing else: that
/// causes no I/O.
fn read_ext(device: &File) -> io::Result<Option<Superblock>> {
    Ok(parse_ext(&read_at(device, EXT_OFFSET, EXT_LENGTH)?))
}

pub fn read_from(device: &File) -> io::Result<Option<Superblock>> {
    let start = read_at(device, 0, START_LENGTH)?;
    let btrfs = read_at(device, BTRFS_OFFSET, BTRFS_LENGTH)?;
    Ok(parse(&start, &btrfs))
}

/// Less at the end of the device.
fn read_at(device: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match device.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_at_both_ends_and_copies_of_a_label_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let device = File::create_new(&path).unwrap();
        let size = (1 << 30) + 8192;
        device.set_len(size).unwrap();
        let kinds = || {
            let found = signatures_from(&File::open(&path).unwrap(), size).unwrap();
            found.into_iter().map(|it| it.fs_type).collect::<Vec<_>>()
        };
        assert!(kinds().is_empty());
        device.write_all_at(b"LVM2 001", 512 + 24).unwrap();
        device.write_all_at(b"\x83\x74\x02\x6d", size - 4096 + 60).unwrap();
        device.write_all_at(b"bluestore block device\n", 1 << 30).unwrap();
        assert_eq!(kinds(), ["LVM2_member", "ceph_bluestore", "drbd"]);
        for size in [0, 1, 511, 70_000] {
            device.set_len(size).unwrap();
            signatures_from(&File::open(&path).unwrap(), size).unwrap();
        }
    }

    #[test]
    fn a_device_that_is_too_small_has_no_superblock_and_others_are_read_at_both_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let device = File::create_new(&path).unwrap();
        device.set_len(100).unwrap();
        let found = || read_from(&File::open(&path).unwrap()).unwrap();
        assert_eq!(found(), None);
        device.set_len(1 << 20).unwrap();
        device.write_all_at(b"XFSB", 0).unwrap();
        device.write_all_at(&[0x11; 16], 32).unwrap();
        assert_eq!(found().unwrap().fs_type, "xfs");
        device.write_all_at(b"_BHRfS_M", BTRFS_OFFSET + 64).unwrap();
        device.write_all_at(&[0x22; 16], BTRFS_OFFSET + 32).unwrap();
        assert_eq!(read_ext(&File::open(&path).unwrap()).unwrap(), None);
        let btrfs = found().unwrap();
        assert_eq!((btrfs.fs_type.as_str(), &btrfs.uuid[..9]), ("btrfs", "22222222-"));
    }
}
