//! Detection of writes: digests of a device's content, and the kernel's counters of writes to it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Ranges that the mount itself writes when it is frozen and thawed: superblock and log. A digest
/// excludes them.
pub type Range = std::ops::Range<u64>;

/// Digest of all bytes of a device or a file, without `except`. Any changed bit changes it, except
/// with a probability of 2
///
/// -64.
pub fn digest(path: &Path, except: &[Range]) -> u64 {
    let file =
        std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut block, zeroes) = (vec![0_u8; 64 << 10], vec![0_u8; 64 << 10]);
    let (mut sum, mut at) = (0x243f_6a88_85a3_08d3_u64, 0_u64);
    loop {
        let read = file
            .read_at(&mut block, at)
            .unwrap_or_else(|error| panic!("reading {} at {at}: {error}", path.display()));
        if read == 0 {
            return sum;
        }
        for range in except {
            let (from, to) = (
                range.start.clamp(at, at + read as u64) - at,
                range.end.clamp(at, at + read as u64) - at,
            );
            block[from as usize..to as usize].fill(0);
        }
        if block[..read] == zeroes[..read] {
            // Most of an image is zero; the positions of the other bytes are part of the sum.
            at += read as u64;
            continue;
        }
        sum = (sum ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        for word in block[..read].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            sum = (sum ^ u64::from_le_bytes(bytes))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        at += read as u64;
    }
}

/// Sectors (512 bytes) written to a block device since it was created: /sys/block/NAME/stat, the
/// seventh number (Documentation/block/stat.rst).
pub fn sectors_written(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?;
    text.split_whitespace().nth(6)?.parse().ok()
}

/// Loop devices, in use or not, and the sectors written to each.
pub fn all_loops() -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("loop"));
    names.filter_map(|name| sectors_written(&name).map(|sectors| (name, sectors))).collect()
}
