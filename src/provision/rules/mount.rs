//! Permitted mount flags: one table per filesystem (mount(8), ext4(5), xfs(5), btrfs(5)). Every
//! other flag is refused, for example those that name another device or file (journal_dev, logdev,
//! device=), change the kind of mount (bind, move, remount, loop, shared …) or stop the node on an
//! error of the filesystem (errors=panic).

use crate::provision::error::ProvisionError;
use crate::provision::rules::filesystem::Filesystem;

/// What may stand behind the `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagValue {
    None,
    Number,
    /// With a suffix k, m or g.
    Size,
    OneOf(&'static [&'static str]),
}

use FlagValue::{None as Bare, Number, OneOf, Size};

type Row = (&'static str, FlagValue);

/// Of each mount, whatever the filesystem.
const COMMON_FLAGS: &[Row] = &[
    ("defaults", Bare),
    ("ro", Bare),
    ("rw", Bare),
    ("atime", Bare),
    ("noatime", Bare),
    ("relatime", Bare),
    ("norelatime", Bare),
    ("strictatime", Bare),
    ("diratime", Bare),
    ("nodiratime", Bare),
    ("lazytime", Bare),
    ("nolazytime", Bare),
    ("exec", Bare),
    ("noexec", Bare),
    ("suid", Bare),
    ("nosuid", Bare),
    ("nodev", Bare),
    ("nosymfollow", Bare),
    ("sync", Bare),
    ("async", Bare),
    ("dirsync", Bare),
    ("discard", Bare),
    ("nodiscard", Bare),
];

const EXT4: &[Row] = &[
    ("acl", Bare),
    ("noacl", Bare),
    ("user_xattr", Bare),
    ("auto_da_alloc", Bare),
    ("noauto_da_alloc", Bare),
    ("barrier", OneOf(&["0", "1"])),
    ("barrier", Bare),
    ("nobarrier", Bare),
    ("block_validity", Bare),
    ("commit", Number),
    ("data", OneOf(&["journal", "ordered", "writeback"])),
    ("dax", OneOf(&["always", "never", "inode"])),
    ("delalloc", Bare),
    ("nodelalloc", Bare),
    ("dioread_lock", Bare),
    ("dioread_nolock", Bare),
    ("errors", OneOf(&["continue", "remount-ro"])),
    ("init_itable", Number),
    ("noinit_itable", Bare),
    ("inode_readahead_blks", Number),
    ("journal_async_commit", Bare),
    ("journal_checksum", Bare),
    ("journal_ioprio", Number),
    ("max_batch_time", Number),
    ("min_batch_time", Number),
    ("prefetch_block_bitmaps", Bare),
    ("no_prefetch_block_bitmaps", Bare),
    ("stripe", Number),
    ("grpquota", Bare),
    ("usrquota", Bare),
    ("prjquota", Bare),
    ("noquota", Bare),
    ("quota", Bare),
];

const XFS: &[Row] = &[
    ("allocsize", Size),
    ("attr2", Bare),
    ("dax", OneOf(&["always", "never", "inode"])),
    ("filestreams", Bare),
    ("inode32", Bare),
    ("inode64", Bare),
    ("largeio", Bare),
    ("nolargeio", Bare),
    ("logbsize", Size),
    ("logbufs", Number),
    ("noalign", Bare),
    ("nouuid", Bare),
    ("noquota", Bare),
    ("quota", Bare),
    ("uquota", Bare),
    ("usrquota", Bare),
    ("gquota", Bare),
    ("grpquota", Bare),
    ("pquota", Bare),
    ("prjquota", Bare),
    ("uqnoenforce", Bare),
    ("gqnoenforce", Bare),
    ("pqnoenforce", Bare),
    ("sunit", Number),
    ("swidth", Number),
    ("swalloc", Bare),
    ("wsync", Bare),
];

const BTRFS: &[Row] = &[
    ("acl", Bare),
    ("noacl", Bare),
    ("autodefrag", Bare),
    ("noautodefrag", Bare),
    ("barrier", Bare),
    ("nobarrier", Bare),
    ("commit", Number),
    ("compress", Bare),
    ("compress", OneOf(BTRFS_COMPRESSION)),
    ("compress-force", Bare),
    ("compress-force", OneOf(BTRFS_COMPRESSION)),
    ("datacow", Bare),
    ("nodatacow", Bare),
    ("datasum", Bare),
    ("nodatasum", Bare),
    ("discard", OneOf(&["sync", "async"])),
    ("flushoncommit", Bare),
    ("noflushoncommit", Bare),
    ("max_inline", Size),
    ("metadata_ratio", Number),
    ("space_cache", OneOf(&["v1", "v2"])),
    ("ssd", Bare),
    ("nossd", Bare),
    ("ssd_spread", Bare),
    ("nossd_spread", Bare),
    ("thread_pool", Number),
    ("treelog", Bare),
    ("notreelog", Bare),
    ("user_subvol_rm_allowed", Bare),
];

const BTRFS_COMPRESSION: &[&str] = &[
    "no", "none", "zlib", "lzo", "zstd", "zlib:1", "zlib:3", "zlib:6", "zlib:9", "zstd:1",
    "zstd:3", "zstd:6", "zstd:9", "zstd:15",
];
/// Flags of one mount.
const MAX_FLAGS: usize = 32;

fn table(filesystem: Filesystem) -> &'static [Row] {
    match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    }
}

/// Each flag is one option. Where the filesystem was not `named`, it is the one that will be found:
/// then each one's flags are well-formed, and those of another are refused when it is known.
pub(crate) fn check(
    filesystem: Filesystem,
    named: bool,
    flags: &[String],
) -> Result<(), ProvisionError> {
    let wrong = |problem: String| {
        Err(ProvisionError::InvalidArgument {
            field: "access.mount_flags",
            problem,
        })
    };
    if flags.len() > MAX_FLAGS {
        return wrong(format!(
            "are {}, at most {MAX_FLAGS} are allowed",
            flags.len()
        ));
    }
    for flag in flags {
        let allowed = if named {
            allows(filesystem, flag)
        } else {
            Filesystem::ALL
                .into_iter()
                .any(|filesystem| allows(filesystem, flag))
        };
        if !allowed {
            let shown: String = flag
                .chars()
                .take(64)
                .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                .collect();
            let on = if named {
                filesystem.name()
            } else {
                "ext4, xfs or btrfs"
            };
            return wrong(format!(
                "`{shown}` is not among what volumes with {on} may be mounted with"
            ));
        }
    }
    Ok(())
}

fn allows(filesystem: Filesystem, flag: &str) -> bool {
    let (name, value) = flag
        .split_once('=')
        .map_or((flag, None), |(name, value)| (name, Some(value)));
    COMMON_FLAGS
        .iter()
        .chain(table(filesystem))
        .any(|(known, form)| *known == name && is_valid_value(*form, value))
}

fn is_valid_value(form: FlagValue, value: Option<&str>) -> bool {
    let digits = |text: &str| {
        (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match (form, value) {
        (Bare, value) => value.is_none(),
        (_, None) => false,
        (Number, Some(text)) => digits(text),
        (Size, Some(text)) => {
            digits(text.trim_end_matches(['k', 'm', 'g', 'K', 'M', 'G']))
                && !text
                    .bytes()
                    .rev()
                    .nth(1)
                    .is_some_and(|byte| byte.is_ascii_alphabetic())
        }
        (OneOf(words), Some(text)) => words.contains(&text),
    }
}

/// The flags for the mount itself, and whether they ask for a read-only one.
pub(crate) fn options(flags: &[String]) -> (Vec<String>, bool) {
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
