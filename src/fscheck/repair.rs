//! How a damaged filesystem is repaired: the exact commands in their order, for people.
//!
//! Never a step: `xfs_repair -L`, which discards the log and with it the newest changes
//! (xfs_repair(8)), and `btrfs check --repair`, which can make damage worse (btrfs-check(8)).

use crate::Filesystem;

/// The steps after a backup; continues a sentence. `device`: `/dev/sdb1`. `mount`: where it is mounted.
pub fn sequence(filesystem: Filesystem, device: &str, mount: Option<&str>) -> String {
    match filesystem {
        // e2fsck -n ignores the journal: what it shows of a journal that was not replayed is wrong.
        Filesystem::Ext4 => format!(
            "repair it: mount and unmount {device} once, which replays its journal; `e2fsck -fn {device}` shows what would be changed; `e2fsck -f {device}` repairs it; mount it again, which shows the repair to diskvitals"
        ),
        // xfs_repair refuses a log that was not replayed, and changes no time stamp or UUID.
        Filesystem::Xfs => format!(
            "repair it: mount and unmount {device} once, which replays its log; `xfs_repair -n {device}` shows what would be changed; `xfs_repair {device}` repairs it; `diskvitals check {device}` before it is mounted again, because XFS keeps no record of a repair"
        ),
        Filesystem::Btrfs => {
            let begin = match mount {
                Some(_) => "start a scrub",
                None => "mount it and start a scrub",
            };
            let mount = mount.unwrap_or("MOUNT");
            format!(
                "{begin}, which repairs what has a good copy (`btrfs scrub start -B {mount}`); unmount it and run `diskvitals check {device}`; if damage is left, make a new filesystem and restore the backup"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_names_the_device_and_no_step_that_loses_data() {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
            let text = sequence(filesystem, "/dev/vg/home", None);
            assert!(text.contains("/dev/vg/home"), "{text}");
            for never in ["-L", "--repair", "-y"] {
                assert!(!text.contains(never), "{text}");
            }
        }
        for (filesystem, first, then) in [
            (Filesystem::Ext4, "e2fsck -fn", "e2fsck -f /"),
            (Filesystem::Xfs, "xfs_repair -n", "xfs_repair /"),
        ] {
            let text = sequence(filesystem, "/dev/sdb1", None);
            let at = |words: &str| text.find(words).unwrap();
            assert!(at("mount and unmount") < at(first) && at(first) < at(then));
        }
    }
}
