//! Rules for name assignments: a new device receives a name that another device had before. None of
//! these records is an error.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::parsed_record::{
    MatchedText, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Rule};

pub(crate) const RULES: &[Rule] = &[
    DRIVE.rule(
        "name-capacity",
        ": detected capacity change from 0 to ",
        Parse(capacity_change),
        "block/genhd.c set_capacity_and_notify(): loop devices and the like when they are set up; 3.10-6.18",
    ),
    DRIVE.with_prefix("virtio_blk ").rule(
        "name-virtio",
        "-byte logical blocks",
        Parse(virtio),
        "drivers/block/virtio_blk.c virtblk_update_capacity(); 4.12-6.18",
    ),
    DRIVE.with_prefix("EXT4-fs (").rule(
        "name-ext4",
        "): mounted filesystem ",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/ext4/super.c ext4_fill_super(); 3.10-6.18",
    ),
    DRIVE.with_prefix("EXT3-fs (").rule(
        "name-ext3",
        "): mounted filesystem ",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/ext3/super.c ext3_fill_super(); 3.10-4.2",
    ),
    DRIVE.with_prefix("EXT4-fs (").rule(
        "name-ext4-again",
        "): re-mounted",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/ext4/super.c ext4_remount(), __ext4_remount(); 3.10-6.18",
    ),
    DRIVE.with_prefix("XFS (").rule(
        "name-xfs",
        "): Mounting V",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/xfs/xfs_log.c xfs_log_mount(); 3.15-6.18",
    ),
    DRIVE.with_prefix("XFS (").rule(
        "name-xfs-old",
        "): Mounting Filesystem",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/xfs/xfs_log.c xfs_log_mount(); 3.10-3.14",
    ),
    DRIVE.with_prefix("BTRFS").rule(
        "name-btrfs",
        "first mount of filesystem ",
        Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted)),
        "fs/btrfs/super.c btrfs_fill_super(); 6.7-6.18",
    ),
];

/// `loop0: detected capacity change from 0 to 131072`
fn capacity_change(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(
        device_name::parse_block(text.before.trim_start())?,
        RecordKind::Topology(TopologyUpdate::DiskAttached),
    ))
}

/// `virtio_blk virtio1: [vda] 131072 512-byte logical blocks`
fn virtio(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (_, rest) = text.all.split_once('[')?;
    let (disk, _) = rest.split_once(']')?;
    Some(ParsedRecord::new(
        device_name::parse_block(disk)?,
        RecordKind::Topology(TopologyUpdate::DiskAttached),
    ))
}
