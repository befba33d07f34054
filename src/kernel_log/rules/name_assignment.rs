//! Rules for name assignments: a new device receives a name that another device had before. None of
//! these records is an error.

use crate::parsed_record::{RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, RuleAction, rules};

const ATTACHED: RuleAction = Record(RecordKind::Topology(TopologyUpdate::DiskAttached));
const MOUNTED: RuleAction = Record(RecordKind::Topology(TopologyUpdate::FilesystemMounted));

const REMOUNTED: RuleAction = Record(RecordKind::Topology(TopologyUpdate::FilesystemRemounted));

const UNMOUNTED: RuleAction = Record(RecordKind::Topology(TopologyUpdate::FilesystemUnmounted));

rules! {
    "name-capacity": DRIVE, "<disk>: detected capacity change from 0 to "
        => ATTACHED, "block/genhd.c set_capacity_and_notify(): \
            loop devices and the like when they are set up; 3.10-6.18";
    "name-virtio": DRIVE, "virtio_blk <word>: [<disk>] <dec> <dec>-byte logical blocks"
        => ATTACHED, "drivers/block/virtio_blk.c virtblk_update_capacity(); 4.12-6.18";
    "name-ext4": DRIVE, "EXT<4|3|2>-fs (<disk>): mounted filesystem "
        => MOUNTED, "fs/ext4/super.c ext4_fill_super(), ext3, ext2; 3.10-6.18";
    "name-ext4-again": DRIVE, "EXT4-fs (<disk>): re-mounted"
        => REMOUNTED, "fs/ext4/super.c ext4_remount(), __ext4_remount(); 3.10-6.18";
    "unmounted-ext4": DRIVE, "EXT4-fs (<disk>): unmounting filesystem"
        => UNMOUNTED, "fs/ext4/super.c ext4_put_super(); 6.0-6.18";
    "unmounted-xfs": DRIVE, "XFS (<disk>): Unmounting Filesystem"
        => UNMOUNTED, "fs/xfs/xfs_super.c xfs_fs_put_super(); 3.10-6.18";
    "unmounted-btrfs": DRIVE,
        "BTRFS info (device <disk>{ state <word>}): last unmount of filesystem "
        => UNMOUNTED, "fs/btrfs/disk-io.c close_ctree(); 6.7-6.18";
    "name-xfs": DRIVE, "XFS (<disk>): Mounting "
        => MOUNTED,
           "fs/xfs/xfs_log.c xfs_log_mount(): `V5 Filesystem`, up to 3.14 `Filesystem`; 3.10-6.18";
    "name-btrfs": DRIVE, "BTRFS info (device <disk>{ state <word>}): first mount of filesystem "
        => MOUNTED, "fs/btrfs/super.c btrfs_fill_super(); 6.7-6.18";
}
