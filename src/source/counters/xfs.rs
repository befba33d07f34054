//! XFS: which of its metadata the kernel has found to be sick, from the ioctl XFS_IOC_FSGEOMETRY
//! (struct xfs_fsop_geom, fs/xfs/libxfs/xfs_fs.h; `sick` since 5.2). Reads the bits of the
//! filesystem as a whole only; a check reads those of its allocation groups and inodes.
//!
//! The ioctl reads memory. Opening the mount's directory may start a read-ahead of its first block
//! (xfs_dir_open()), as every probe of the mount does; so sleeping drives are left out.
//! /sys/fs/xfs/DEVICE/error has policy and no counters.
//!
//! Newer kernels report new sick parts through a monitor (XFS_IOC_HEALTH_MONITOR). It would be
//! another source beside `fs_errors`, not a part of this one.

use std::collections::BTreeMap;

use crate::counters::block_reading;
use diskvitals_finding::path::HostPath;
use diskvitals_host::xfs::{GEOMETRY, XfsError, geometry};
use diskvitals_model::counters::CounterReading;

/// XFS_FSOP_GEOM_SICK_*, from bit 0.
const SICK_BITS: [&str; 10] = [
    "counters",
    "uquota",
    "gquota",
    "pquota",
    "rt_bitmap",
    "rt_summary",
    "quotacheck",
    "nlinks",
    "metadir",
    "metapath",
];
/// Offsets in struct xfs_fsop_geom.
const SICK_OFFSET: usize = 112;
const CHECKED_OFFSET: usize = 116;

/// One value per bit, `sick_NAME`, 0 or 1; bits of later kernels are named by their number. The
/// `checked` bits are included.
pub fn parse(geometry: &[u8; GEOMETRY]) -> (BTreeMap<String, u64>, BTreeMap<String, String>) {
    let word = |at: usize| {
        u32::from_ne_bytes([geometry[at], geometry[at + 1], geometry[at + 2], geometry[at + 3]])
    };
    let (sick, checked) = (word(SICK_OFFSET), word(CHECKED_OFFSET));
    let name = |bit: usize| {
        SICK_BITS.get(bit).map_or_else(|| format!("sick_bit_{bit}"), |name| format!("sick_{name}"))
    };
    let bits = (0..32).filter(|bit| *bit < SICK_BITS.len() || sick >> bit & 1 == 1);
    let values = bits.map(|bit| (name(bit), u64::from(sick >> bit & 1))).collect();
    (
        values,
        BTreeMap::from([
            ("sick".to_owned(), format!("{sick:#x}")),
            ("checked".to_owned(), format!("{checked:#x}")),
        ]),
    )
}

/// Reads the XFS mounted at `path` on the block device `device`. None if the kernel does not
/// support the ioctl.
pub fn read(path: &HostPath, device: &str) -> Result<Option<CounterReading>, XfsError> {
    let Some(geometry) = geometry(path)? else {
        return Ok(None);
    };
    let (values, mut details) = parse(&geometry);
    details.insert("mount".into(), path.to_string());
    let file = "XFS_IOC_FSGEOMETRY".into();
    Ok(Some(block_reading(device, "xfs", file, values, details)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_bit_is_a_value_and_an_unknown_one_when_it_is_set() {
        let mut geometry = [0; GEOMETRY];
        assert_eq!(parse(&geometry).0.values().sum::<u64>(), 0);
        assert_eq!(parse(&geometry).0.len(), 10);
        geometry[SICK_OFFSET..SICK_OFFSET + 4]
            .copy_from_slice(&(1_u32 | 1 << 7 | 1 << 20).to_ne_bytes());
        let (values, details) = parse(&geometry);
        assert_eq!(
            (
                values["sick_counters"],
                values["sick_nlinks"],
                values["sick_uquota"],
                values["sick_bit_20"]
            ),
            (1, 1, 0, 1)
        );
        assert_eq!(details["sick"], "0x100081");
    }
}
