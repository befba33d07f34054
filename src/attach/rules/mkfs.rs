//! Options for mkfs: what each one may be given (mke2fs(8), mkfs.xfs(8), mkfs.btrfs(8)). A table a
//! program, with the form of each value: sizes, counts, features, labels. Nothing that names a
//! device or a file, forces, or only pretends (-F, -f, -n of mke2fs, -N of mkfs.xfs, journal
//! devices) is in it.

use crate::attach::fault::Fault;
use crate::attach::rules::filesystem::Filesystem;

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
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

type Row = (&'static str, Form);

const EXT4: &[Row] = &[
    ("-b", Form::Number),
    ("-C", Form::Number),
    ("-e", Form::OneOf(&["continue", "remount-ro"])),
    (
        "-E",
        Form::List(&[
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
    ("-g", Form::Number),
    ("-G", Form::Number),
    ("-i", Form::Number),
    ("-I", Form::Number),
    ("-j", Form::Nothing),
    ("-J", Form::List(&["size", "fast_commit_size"])),
    ("-L", Form::Label),
    ("-m", Form::Number),
    ("-N", Form::Number),
    ("-O", Form::Features),
    ("-q", Form::Nothing),
    (
        "-T",
        Form::OneOf(&[
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
    ("-b", Form::List(&["size"])),
    (
        "-d",
        Form::List(&[
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
        Form::List(&[
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
    ("-K", Form::Nothing),
    (
        "-l",
        Form::List(&[
            "size",
            "version",
            "sunit",
            "su",
            "lazy-count",
            "internal",
            "concurrency",
        ]),
    ),
    ("-L", Form::Label),
    (
        "-m",
        Form::List(&[
            "bigtime",
            "crc",
            "finobt",
            "inobtcount",
            "reflink",
            "rmapbt",
            "autofsck",
        ]),
    ),
    ("-n", Form::List(&["size", "version", "ftype", "parent"])),
    ("-q", Form::Nothing),
    ("-s", Form::List(&["size"])),
];

const BTRFS: &[Row] = &[
    ("-d", Form::OneOf(&["single", "dup"])),
    ("--data", Form::OneOf(&["single", "dup"])),
    ("-m", Form::OneOf(&["single", "dup"])),
    ("--metadata", Form::OneOf(&["single", "dup"])),
    ("-M", Form::Nothing),
    ("--mixed", Form::Nothing),
    ("-n", Form::Number),
    ("--nodesize", Form::Number),
    ("-s", Form::Number),
    ("--sectorsize", Form::Number),
    (
        "--csum",
        Form::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
    ),
    (
        "--checksum",
        Form::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
    ),
    ("-O", Form::Features),
    ("--features", Form::Features),
    ("-K", Form::Nothing),
    ("--nodiscard", Form::Nothing),
    ("-L", Form::Label),
    ("--label", Form::Label),
    ("-q", Form::Nothing),
    ("--quiet", Form::Nothing),
];

/// Features that put something elsewhere, or lock data to keys that are not here.
const FORBIDDEN_FEATURES: &[&str] = &["journal_dev", "encrypt", "raid56", "zoned"];
const LONGEST: usize = 512;

fn table(filesystem: Filesystem) -> &'static [Row] {
    match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    }
}

/// Splits `text` at blanks and checks each option with its value. What comes out is given to mkfs
/// as it is, an argument each.
pub fn options(filesystem: Filesystem, text: &str) -> Result<Vec<String>, Fault> {
    let wrong = |problem: String| Fault::Invalid {
        field: "mkfs_options",
        problem,
    };
    if text.len() > LONGEST {
        return Err(wrong(format!(
            "has {} bytes, at most {LONGEST} are allowed",
            text.len()
        )));
    }
    let mut words = text.split_ascii_whitespace();
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        let refused = || {
            wrong(format!(
                "`{}` is not among what mkfs.{} may be given",
                shown(word),
                filesystem.name()
            ))
        };
        let (name, attached) = named(filesystem, word).ok_or_else(refused)?;
        let form = table(filesystem)
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, form)| *form)
            .ok_or_else(refused)?;
        if form == Form::Nothing {
            if attached.is_some() {
                return Err(wrong(format!("`{name}` takes no value")));
            }
            arguments.push(name.to_owned());
            continue;
        }
        let value = attached
            .or_else(|| words.next())
            .ok_or_else(|| wrong(format!("`{name}` has no value")))?;
        if value.starts_with('-') || !fits(form, value) {
            return Err(wrong(format!(
                "`{}` is no value for `{name}`",
                shown(value)
            )));
        }
        arguments.extend([name.to_owned(), value.to_owned()]);
    }
    Ok(arguments)
}

/// The option's name and what is attached to it: `-b4096`, `--nodesize=16k`.
fn named(filesystem: Filesystem, word: &str) -> Option<(&'static str, Option<&str>)> {
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

fn fits(form: Form, value: &str) -> bool {
    match form {
        Form::Nothing => false,
        Form::Number => is_number(value),
        Form::OneOf(words) => words.contains(&value),
        Form::Label => {
            (1..=12).contains(&value.len())
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        Form::Features => value.split(',').all(|word| {
            let name = word.strip_prefix('^').unwrap_or(word);
            is_word(name) && !FORBIDDEN_FEATURES.contains(&name)
        }),
        Form::List(known) => value.split(',').all(|part| {
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

fn shown(word: &str) -> String {
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
        let arguments = |filesystem, text| options(filesystem, text).expect(text);
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
                    options(Filesystem::Ext4, text),
                    Err(Fault::Invalid {
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
            assert!(options(Filesystem::Xfs, text).is_err(), "{text}");
        }
        for text in [
            "-f",
            "--rootdir=/etc",
            "-r /etc",
            "--force",
            "/dev/sdb",
            "-d raid1",
        ] {
            assert!(options(Filesystem::Btrfs, text).is_err(), "{text}");
        }
        assert!(options(Filesystem::Ext4, &"-q ".repeat(300)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_ever_becomes_a_bare_argument(text in "[-a-zA-Z0-9=/,^ .]{0,60}") {
            for filesystem in Filesystem::ALL {
                if let Ok(arguments) = options(filesystem, &text) {
                    prop_assert!(arguments.iter().all(|argument| !argument.contains('/')), "{:?}", arguments);
                    prop_assert!(arguments.first().is_none_or(|first| first.starts_with('-')));
                }
            }
        }
    }
}
