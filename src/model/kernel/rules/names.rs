//! Names that are given anew: what comes to a name takes it from what had it before. None of these
//! is an error.

use crate::model::kernel::name;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Learn, Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "name-capacity",
        "",
        ": detected capacity change from 0 to ",
        Read(capacity),
        "block/genhd.c set_capacity_and_notify(): loop devices and the like when they are set up; 3.10-6.18",
    ),
    rule(
        "name-virtio",
        "virtio_blk ",
        "-byte logical blocks",
        Read(virtio),
        "drivers/block/virtio_blk.c virtblk_update_capacity(); 4.12-6.18",
    ),
    rule(
        "name-ext4",
        "EXT4-fs (",
        "): mounted filesystem ",
        Read(mounted),
        "fs/ext4/super.c ext4_fill_super(); 3.10-6.18",
    ),
    rule(
        "name-ext3",
        "EXT3-fs (",
        "): mounted filesystem ",
        Read(mounted),
        "fs/ext3/super.c ext3_fill_super(); 3.10-4.2",
    ),
    rule(
        "name-ext4-again",
        "EXT4-fs (",
        "): re-mounted",
        Read(mounted),
        "fs/ext4/super.c ext4_remount(), __ext4_remount(); 3.10-6.18",
    ),
    rule(
        "name-xfs",
        "XFS (",
        "): Mounting V",
        Read(mounted),
        "fs/xfs/xfs_log.c xfs_log_mount(); 3.15-6.18",
    ),
    rule(
        "name-xfs-old",
        "XFS (",
        "): Mounting Filesystem",
        Read(mounted),
        "fs/xfs/xfs_log.c xfs_log_mount(); 3.10-3.14",
    ),
    rule(
        "name-btrfs",
        "BTRFS",
        "first mount of filesystem ",
        Read(mounted),
        "fs/btrfs/super.c btrfs_fill_super(); 6.7-6.18",
    ),
];

/// `loop0: detected capacity change from 0 to 131072`
fn capacity(text: &Text<'_>) -> Option<Said> {
    Some(Said::new(
        name::block(text.before.trim_start())?,
        Part::Learn(Learn::Attached),
    ))
}

/// `virtio_blk virtio1: [vda] 131072 512-byte logical blocks`
fn virtio(text: &Text<'_>) -> Option<Said> {
    let (_, rest) = text.all.split_once('[')?;
    let (disk, _) = rest.split_once(']')?;
    Some(Said::new(name::block(disk)?, Part::Learn(Learn::Attached)))
}

fn mounted(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Learn(Learn::Mounted)))
}
