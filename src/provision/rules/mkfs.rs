//! Permitted mkfs options and their values (mke2fs(8), mkfs.xfs(8), mkfs.btrfs(8)): one table per
//! program, with the form of each value (sizes, counts, features, labels). Options that name a
//! device or a file, force, or only simulate (-F, -f, -n of mke2fs, -N of mkfs.xfs, journal
//! devices) are not permitted.

use crate::provision::error::ProvisionError;
use crate::provision::rules::filesystem::Filesystem;

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionValue {
    Nothing,
    /// Digits, with a suffix that mkfs knows.
    Number,
    /// Words of `[A-Za-z0-9_^-]`, separated by commas, each of which may have `=NUMBER` where its
    /// name is in the list; the first part is checked by it.
    List(&'static [&'static str]),
    /// Features by their names, each perhaps with `^` before it.
    Features,
    Label,
    OneOf(&'static [&'static str]),
}

type Row = (&'static str, OptionValue);

const EXT4: &[Row] = &[
    ("-b", OptionValue::Number),
    ("-C", OptionValue::Number),
    ("-e", OptionValue::OneOf(&["continue", "remount-ro"])),
    (
        "-E",
        OptionValue::List(&[
            "stride",
            "stripe_width",
            "stripe-width",
            "lazy_itable_init",
            "lazy_journal_init",
            "num_backup_sb",
            "packed_meta_blocks",
            "nodiscard",
            "discard",
            "resize",
        ]),
    ),
    ("-g", OptionValue::Number),
    ("-G", OptionValue::Number),
    ("-i", OptionValue::Number),
    ("-I", OptionValue::Number),
    ("-j", OptionValue::Nothing),
    ("-J", OptionValue::List(&["size", "fast_commit_size"])),
    ("-L", OptionValue::Label),
    ("-m", OptionValue::Number),
    ("-N", OptionValue::Number),
    ("-O", OptionValue::Features),
    ("-q", OptionValue::Nothing),
    (
        "-T",
        OptionValue::OneOf(&[
            "small",
            "floppy",
            "big",
            "huge",
            "news",
            "largefile",
            "largefile4",
            "default",
        ]),
    ),
];

const XFS: &[Row] = &[
    ("-b", OptionValue::List(&["size"])),
    (
        "-d",
        OptionValue::List(&[
            "agcount",
            "agsize",
            "sunit",
            "swidth",
            "su",
            "sw",
            "noalign",
            "concurrency",
        ]),
    ),
    (
        "-i",
        OptionValue::List(&[
            "size",
            "perblock",
            "maxpct",
            "align",
            "attr",
            "projid32bit",
            "sparse",
            "nrext64",
            "exchange",
        ]),
    ),
    ("-K", OptionValue::Nothing),
    (
        "-l",
        OptionValue::List(&[
            "size",
            "version",
            "sunit",
            "su",
            "lazy-count",
            "internal",
            "concurrency",
        ]),
    ),
    ("-L", OptionValue::Label),
    (
        "-m",
        OptionValue::List(&[
            "bigtime",
            "crc",
            "finobt",
            "inobtcount",
            "reflink",
            "rmapbt",
            "autofsck",
        ]),
    ),
    (
        "-n",
        OptionValue::List(&["size", "version", "ftype", "parent"]),
    ),
    ("-q", OptionValue::Nothing),
    ("-s", OptionValue::List(&["size"])),
];

const BTRFS: &[Row] = &[
    ("-d", OptionValue::OneOf(&["single", "dup"])),
    ("--data", OptionValue::OneOf(&["single", "dup"])),
    ("-m", OptionValue::OneOf(&["single", "dup"])),
    ("--metadata", OptionValue::OneOf(&["single", "dup"])),
    ("-M", OptionValue::Nothing),
    ("--mixed", OptionValue::Nothing),
    ("-n", OptionValue::Number),
    ("--nodesize", OptionValue::Number),
    ("-s", OptionValue::Number),
    ("--sectorsize", OptionValue::Number),
    (
        "--csum",
        OptionValue::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
    ),
    (
        "--checksum",
        OptionValue::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
    ),
    ("-O", OptionValue::Features),
    ("--features", OptionValue::Features),
    ("-K", OptionValue::Nothing),
    ("--nodiscard", OptionValue::Nothing),
    ("-L", OptionValue::Label),
    ("--label", OptionValue::Label),
    ("-q", OptionValue::Nothing),
    ("--quiet", OptionValue::Nothing),
];

/// Features that put something elsewhere, or lock data to keys that are not here.
const FORBIDDEN_FEATURES: &[&str] = &["journal_dev", "encrypt", "raid56", "zoned"];
const MAX_OPTIONS_BYTES: usize = 512;

fn table(filesystem: Filesystem) -> &'static [Row] {
    match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    }
}

/// Splits `text` at blanks and checks each option with its value. What comes out is given to mkfs
/// as it is, an argument each.
pub(crate) fn parse_options(
    filesystem: Filesystem,
    text: &str,
) -> Result<Vec<String>, ProvisionError> {
    let wrong = |problem: String| ProvisionError::InvalidArgument {
        field: "mkfs_options",
        problem,
    };
    if text.len() > MAX_OPTIONS_BYTES {
        return Err(wrong(format!(
            "has {} bytes, at most {MAX_OPTIONS_BYTES} are allowed",
            text.len()
        )));
    }
    let mut words = text.split_ascii_whitespace();
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        let refused = || {
            wrong(format!(
                "`{}` is not among what mkfs.{} may be given",
                printable(word),
                filesystem.name()
            ))
        };
        let (name, attached) = split_option(filesystem, word).ok_or_else(refused)?;
        let form = table(filesystem)
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, form)| *form)
            .ok_or_else(refused)?;
        if form == OptionValue::Nothing {
            if attached.is_some() {
                return Err(wrong(format!("`{name}` takes no value")));
            }
            arguments.push(name.to_owned());
            continue;
        }
        let value = attached
            .or_else(|| words.next())
            .ok_or_else(|| wrong(format!("`{name}` has no value")))?;
        if value.starts_with('-') || !is_valid_value(form, value) {
            return Err(wrong(format!(
                "`{}` is no value for `{name}`",
                printable(value)
            )));
        }
        arguments.extend([name.to_owned(), value.to_owned()]);
    }
    Ok(arguments)
}

/// The option's name and what is attached to it: `-b4096`, `--nodesize=16k`.
fn split_option(filesystem: Filesystem, word: &str) -> Option<(&'static str, Option<&str>)> {
    let (head, attached) = match word.split_once('=') {
        Some((head, value)) if head.starts_with("--") => (head, Some(value)),
        _ if word.starts_with("--") => (word, None),
        _ => word
            .split_at_checked(2)
            .map(|(head, rest)| (head, Some(rest).filter(|rest| !rest.is_empty())))?,
    };
    table(filesystem)
        .iter()
        .find(|(known, _)| *known == head)
        .map(|(known, _)| (*known, attached))
}

fn is_valid_value(form: OptionValue, value: &str) -> bool {
    match form {
        OptionValue::Nothing => false,
        OptionValue::Number => is_number(value),
        OptionValue::OneOf(words) => words.contains(&value),
        OptionValue::Label => {
            (1..=12).contains(&value.len())
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        OptionValue::Features => value.split(',').all(|word| {
            let name = word.strip_prefix('^').unwrap_or(word);
            is_word(name) && !FORBIDDEN_FEATURES.contains(&name)
        }),
        OptionValue::List(known) => value.split(',').all(|part| {
            let (name, value) = part
                .split_once('=')
                .map_or((part, None), |(name, value)| (name, Some(value)));
            known.contains(&name) && value.is_none_or(is_number)
        }),
    }
}

fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !text.starts_with('-')
}

/// Digits and a decimal point, then perhaps a unit.
fn is_number(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (1..=20).contains(&text.len())
        && text.len() - digits.len() <= 1
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn printable(word: &str) -> String {
    word.chars()
        .take(64)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_options_pass_with_their_values() {
        let arguments = |filesystem, text| parse_options(filesystem, text).expect(text);
        assert_eq!(
            arguments(
                Filesystem::Ext4,
                " -b 4096  -m0 -O ^has_journal,metadata_csum -E stride=16,nodiscard"
            ),
            [
                "-b",
                "4096",
                "-m",
                "0",
                "-O",
                "^has_journal,metadata_csum",
                "-E",
                "stride=16,nodiscard"
            ]
        );
        assert_eq!(
            arguments(Filesystem::Xfs, "-m reflink=1,crc=1 -i size=512 -K"),
            ["-m", "reflink=1,crc=1", "-i", "size=512", "-K"]
        );
        assert_eq!(
            arguments(Filesystem::Btrfs, "--nodesize=16k -L data"),
            ["--nodesize", "16k", "-L", "data"]
        );
        assert!(arguments(Filesystem::Ext4, "").is_empty());
    }

    #[test]
    fn devices_files_force_and_dry_runs_are_refused() {
        let ext4 = [
            "-F",
            "-n",
            "-S",
            "/dev/sda",
            "-J device=/dev/sda",
            "-J device=UUID=1",
            "-d /etc",
            "-l /etc/passwd",
            "-t ext2",
            "-c",
            "-O journal_dev",
            "-z /tmp/undo",
            "-b -4096",
            "-b",
            "-L ../x",
            "-- /dev/sda",
            "-",
            "-q/dev/sda",
            "-E root_owner=0:0",
            "-E offset=1",
        ];
        for text in ext4 {
            assert!(
                matches!(
                    parse_options(Filesystem::Ext4, text),
                    Err(ProvisionError::InvalidArgument {
                        field: "mkfs_options",
                        ..
                    })
                ),
                "{text}"
            );
        }
        for text in [
            "-f",
            "-N",
            "-l logdev=/dev/sda",
            "-r rtdev=/dev/sda",
            "-d file=1",
            "-d name=x",
            "-p proto",
            "-c options=/etc/x",
            "-b 4096",
        ] {
            assert!(parse_options(Filesystem::Xfs, text).is_err(), "{text}");
        }
        for text in [
            "-f",
            "--rootdir=/etc",
            "-r /etc",
            "--force",
            "/dev/sdb",
            "-d raid1",
        ] {
            assert!(parse_options(Filesystem::Btrfs, text).is_err(), "{text}");
        }
        assert!(parse_options(Filesystem::Ext4, &"-q ".repeat(300)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_ever_becomes_a_bare_argument(text in "[-a-zA-Z0-9=/,^ .]{0,60}") {
            for filesystem in Filesystem::ALL {
                if let Ok(arguments) = parse_options(filesystem, &text) {
                    prop_assert!(arguments.iter().all(|argument| !argument.contains('/')), "{:?}", arguments);
                    prop_assert!(arguments.first().is_none_or(|first| first.starts_with('-')));
                }
            }
        }
    }
}
