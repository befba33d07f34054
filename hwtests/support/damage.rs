//! Damage to unmounted filesystems by writing to the device. The image is not written, because the
//! device has a page cache of its own.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Disk;
use super::tools::run;

/// Overwrites the first block of the ext4 directory `folder` (relative to its root), and returns
/// the directory's inode. The block size must be 4096 bytes.
pub fn ext4_folder(disk: &Disk, folder: &str) -> u64 {
    let debugfs = |request: String| run("/usr/sbin/debugfs", &[&"-R", &request, &disk.device]);
    let blocks = debugfs(format!("blocks {folder}"));
    let block: u64 = blocks
        .split_whitespace()
        .next()
        .and_then(|block| block.parse().ok())
        .unwrap_or_else(|| panic!("no block: {blocks}"));
    write(&disk.device, block * 4096, &[0xa5; 4096]);
    // `Inode: 12   Type: directory …`
    let stat = debugfs(format!("stat {folder}"));
    stat.split_whitespace()
        .nth(1)
        .and_then(|inode| inode.parse().ok())
        .unwrap_or_else(|| panic!("no inode: {stat}"))
}

/// Changes one byte of each occurrence of `pattern` on the device, aligned to 4096 bytes. Returns
/// how many there were.
pub fn each_block_that_begins_with(disk: &Disk, pattern: &[u8]) -> usize {
    let device = std::fs::read(&disk.device).expect("the device");
    let hits: Vec<usize> =
        (0..device.len()).step_by(4096).filter(|at| device[*at..].starts_with(pattern)).collect();
    for at in &hits {
        write(&disk.device, *at as u64, &[pattern[0] ^ 0xff]);
    }
    hits.len()
}

fn write(device: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(device).expect("the device");
    file.write_all_at(bytes, at).and_then(|()| file.sync_all()).expect("the damage");
}
