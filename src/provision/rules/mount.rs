//! Permitted mount flags: one table per filesystem (mount(8), ext4(5), xfs(5), btrfs(5)). Every
//! other flag is refused, for example those that name another device or file (journal_dev, logdev,
//! device=), change the kind of mount (bind, move, remount, loop, shared …) or stop the node on an
//! error of the filesystem (errors=panic).

use crate::error::ProvisionError;
use crate::rules::filesystem::Filesystem;
use diskvitals_text::echo::echo;

/// Flags by the form of their values. Blanks separate the flags in a string.
struct FlagTable {
    /// Flags without a value.
    bare: &'static str,
    number: &'static str,
    /// Flags with a number, which may have the suffix k, m or g.
    size: &'static str,
    /// Flags with their permitted values.
    choice: &'static [(&'static str, &'static str)],
}

/// Flags for every filesystem, without a value.
const COMMON_FLAGS: &str = "defaults ro rw atime noatime relatime norelatime strictatime diratime \
    nodiratime lazytime nolazytime exec noexec suid nosuid nodev nosymfollow sync async dirsync \
    discard nodiscard";

const EXT4: FlagTable = FlagTable {
    bare: "acl noacl user_xattr auto_da_alloc noauto_da_alloc barrier nobarrier block_validity \
        delalloc nodelalloc dioread_lock dioread_nolock noinit_itable journal_async_commit \
        journal_checksum prefetch_block_bitmaps no_prefetch_block_bitmaps grpquota usrquota \
        prjquota noquota quota",
    number: "commit init_itable inode_readahead_blks journal_ioprio max_batch_time \
        min_batch_time stripe",
    size: "",
    choice: &[
        ("barrier", "0 1"),
        ("data", "journal ordered writeback"),
        ("dax", "always never inode"),
        ("errors", "continue remount-ro"),
    ],
};

const XFS: FlagTable = FlagTable {
    bare: "attr2 filestreams inode32 inode64 largeio nolargeio noalign nouuid noquota quota \
        uquota usrquota gquota grpquota pquota prjquota uqnoenforce gqnoenforce pqnoenforce \
        swalloc wsync",
    number: "logbufs sunit swidth",
    size: "allocsize logbsize",
    choice: &[("dax", "always never inode")],
};

const BTRFS: FlagTable = FlagTable {
    bare: "acl noacl autodefrag noautodefrag barrier nobarrier compress compress-force datacow \
        nodatacow datasum nodatasum flushoncommit noflushoncommit ssd nossd ssd_spread \
        nossd_spread treelog notreelog user_subvol_rm_allowed",
    number: "commit metadata_ratio thread_pool",
    size: "max_inline",
    choice: &[
        ("compress", BTRFS_COMPRESSION),
        ("compress-force", BTRFS_COMPRESSION),
        ("discard", "sync async"),
        ("space_cache", "v1 v2"),
    ],
};

const BTRFS_COMPRESSION: &str = "no none zlib lzo zstd zlib:1 zlib:3 zlib:6 zlib:9 zstd:1 zstd:3 \
    zstd:6 zstd:9 zstd:15";
/// Maximum number of flags of one mount.
const MAX_FLAGS: usize = 32;

/// Checks each flag. If the request does not name the filesystem, the flags of every filesystem are
/// accepted until the filesystem is found on the device.
pub fn check(filesystem: Filesystem, named: bool, flags: &[String]) -> Result<(), ProvisionError> {
    let wrong = |problem| Err(ProvisionError::invalid_argument("access.mount_flags", problem));
    if flags.len() > MAX_FLAGS {
        return wrong(format!("are {}, at most {MAX_FLAGS} are allowed", flags.len()));
    }
    let single = [filesystem];
    let (possible, names): (&[Filesystem], _) =
        if named { (&single, filesystem.name()) } else { (&Filesystem::ALL, "ext4, xfs or btrfs") };
    match flags.iter().find(|flag| !possible.iter().any(|one| allows(*one, flag))) {
        Some(flag) => wrong(format!("`{}` is not permitted for volumes with {names}", echo(flag))),
        None => Ok(()),
    }
}

fn allows(filesystem: Filesystem, flag: &str) -> bool {
    let table = match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    };
    let has = |words: &str, word: &str| words.split_ascii_whitespace().any(|known| known == word);
    match flag.split_once('=') {
        None => has(COMMON_FLAGS, flag) || has(table.bare, flag),
        Some((name, value)) => {
            has(table.number, name) && is_number(value)
                || has(table.size, name)
                    && is_number(
                        value.strip_suffix(['k', 'm', 'g', 'K', 'M', 'G']).unwrap_or(value),
                    )
                || table.choice.iter().any(|(known, values)| *known == name && has(values, value))
        }
    }
}

fn is_number(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The options for the filesystem, and whether the flags request a read-only mount.
pub fn options(flags: &[String]) -> (Vec<String>, bool) {
    let read_only = flags.iter().rev().find_map(|flag| match flag.as_str() {
        "ro" => Some(true),
        "rw" => Some(false),
        _ => None,
    });
    let options = flags
        .iter()
        .filter(|flag| !matches!(flag.as_str(), "ro" | "rw" | "defaults"))
        .cloned()
        .collect();
    (options, read_only.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(filesystem: Filesystem, flag: &str) -> bool {
        check(filesystem, true, &[flag.to_owned()]).is_ok()
    }

    #[test]
    fn a_filesystems_own_flags_are_taken_by_it_alone() {
        assert!(
            one(Filesystem::Ext4, "noatime")
                && one(Filesystem::Ext4, "data=journal")
                && one(Filesystem::Ext4, "commit=5")
        );
        assert!(
            one(Filesystem::Xfs, "nouuid")
                && one(Filesystem::Xfs, "allocsize=64m")
                && one(Filesystem::Btrfs, "compress=zstd:3")
        );
        assert!(!one(Filesystem::Xfs, "data=journal") && !one(Filesystem::Ext4, "nouuid"));
        assert!(
            check(Filesystem::Ext4, false, &["nouuid".into()]).is_ok(),
            "the filesystem is not known yet"
        );
    }

    #[test]
    fn flags_that_name_other_files_or_change_the_kind_of_mount_are_refused() {
        let bad = [
            "bind",
            "rbind",
            "move",
            "remount",
            "loop",
            "shared",
            "rslave",
            "private",
            "unbindable",
            "x-mount.mkdir",
            "journal_dev=8:1",
        ];
        let more = [
            "logdev=/dev/sda",
            "rtdev=/dev/sda",
            "device=/dev/sda",
            "subvol=/",
            "errors=panic",
            "noatime,suid",
            "noatime\0",
            "",
            "=",
            "commit=",
            "commit=-1",
        ];
        for flag in bad.into_iter().chain(more).chain([
            "commit=5,ro",
            "dev",
            "context=x",
            "allocsize=kk",
            "allocsize=1kk",
            "ro=1",
            "-o",
        ]) {
            for filesystem in Filesystem::ALL {
                assert!(!one(filesystem, flag), "{flag:?} on {filesystem:?}");
            }
        }
    }

    #[test]
    fn read_only_is_no_option_of_the_filesystem() {
        let flags: Vec<String> = ["defaults", "noatime", "ro"].map(String::from).into();
        assert_eq!(options(&flags), (vec!["noatime".to_owned()], true));
    }
}
