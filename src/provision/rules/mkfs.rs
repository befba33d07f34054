//! Permitted mkfs options and their values (mke2fs(8), mkfs.xfs(8), mkfs.btrfs(8)): one table per
//! program, with the form of each value (sizes, counts, features, labels). Options that name a
//! device or a file, force, or only simulate (-F, -f, -n of mke2fs, -N of mkfs.xfs, journal
//! devices) are not permitted.

use OptionValue::{Features, Label, List, Nothing, Number, OneOf};

use crate::error::ProvisionError;
use crate::rules::filesystem::Filesystem;
use diskvitals_text::echo::echo;

/// The form of an option's value. Blanks separate the names in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionValue {
    Nothing,
    /// Digits, with a suffix that mkfs accepts.
    Number,
    /// `NAME` or `NAME=NUMBER`, separated by commas; the string lists the permitted names.
    List(&'static str),
    /// Feature names, each with an optional `^`.
    Features,
    Label,
    OneOf(&'static str),
}

/// The names of an option, and the form of its value.
type Row = (&'static str, OptionValue);

const EXT4: &[Row] = &[
    ("-b -C -g -G -i -I -m -N", Number),
    ("-e", OneOf("continue remount-ro")),
    (
        "-E",
        List(
            "stride stripe_width stripe-width lazy_itable_init lazy_journal_init num_backup_sb \
             packed_meta_blocks nodiscard discard resize",
        ),
    ),
    ("-j -q", Nothing),
    ("-J", List("size fast_commit_size")),
    ("-L", Label),
    ("-O", Features),
    ("-T", OneOf("small floppy big huge news largefile largefile4 default")),
];

const XFS: &[Row] = &[
    ("-b -s", List("size")),
    ("-d", List("agcount agsize sunit swidth su sw noalign concurrency")),
    ("-i", List("size perblock maxpct align attr projid32bit sparse nrext64 exchange")),
    ("-K -q", Nothing),
    ("-l", List("size version sunit su lazy-count internal concurrency")),
    ("-L", Label),
    ("-m", List("bigtime crc finobt inobtcount reflink rmapbt autofsck")),
    ("-n", List("size version ftype parent")),
];

const BTRFS: &[Row] = &[
    ("-d --data -m --metadata", OneOf("single dup")),
    ("-M --mixed -K --nodiscard -q --quiet", Nothing),
    ("-n --nodesize -s --sectorsize", Number),
    ("--csum --checksum", OneOf("crc32c xxhash sha256 blake2")),
    ("-O --features", Features),
    ("-L --label", Label),
];

/// Features that use another device, or encrypt data with external keys.
const FORBIDDEN_FEATURES: &[&str] = &["journal_dev", "encrypt", "raid56", "zoned"];
const MAX_OPTIONS_BYTES: usize = 512;

/// Splits `text` at blanks and checks each option with its value. The result is passed to mkfs, one
/// argument per element.
pub fn parse_options(filesystem: Filesystem, text: &str) -> Result<Vec<String>, ProvisionError> {
    let wrong = |problem| ProvisionError::invalid_argument("mkfs_options", problem);
    if text.len() > MAX_OPTIONS_BYTES {
        return Err(wrong(format!(
            "has {} bytes, at most {MAX_OPTIONS_BYTES} are allowed",
            text.len()
        )));
    }
    let mut words = text.split_ascii_whitespace();
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        let (name, form, attached) = find_option(filesystem, word).ok_or_else(|| {
            wrong(format!(
                "`{}` is not a permitted option of mkfs.{}",
                echo(word),
                filesystem.name()
            ))
        })?;
        arguments.push(name.to_owned());
        if form == Nothing {
            if attached.is_some() {
                return Err(wrong(format!("`{name}` takes no value")));
            }
            continue;
        }
        let value = attached
            .or_else(|| words.next())
            .ok_or_else(|| wrong(format!("`{name}` has no value")))?;
        if value.starts_with('-') || !is_valid_value(form, value) {
            return Err(wrong(format!("`{}` is no value for `{name}`", echo(value))));
        }
        arguments.push(value.to_owned());
    }
    Ok(arguments)
}

/// The option's name, the form of its value, and the attached value if there is one: `-b4096`,
/// `--nodesize=16k`.
fn find_option(filesystem: Filesystem, word: &str) -> Option<(&str, OptionValue, Option<&str>)> {
    let (name, attached) = match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (name, Some(value)),
        _ if word.starts_with("--") => (word, None),
        _ => {
            let (name, rest) = word.split_at_checked(2)?;
            (name, Some(rest).filter(|rest| !rest.is_empty()))
        }
    };
    let table = match filesystem {
        Filesystem::Ext4 => EXT4,
        Filesystem::Xfs => XFS,
        Filesystem::Btrfs => BTRFS,
    };
    let (_, form) = table.iter().find(|(names, _)| has_word(names, name))?;
    Some((name, *form, attached))
}

fn has_word(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known == word)
}

fn is_valid_value(form: OptionValue, value: &str) -> bool {
    match form {
        Nothing => false,
        Number => is_number(value),
        OneOf(words) => has_word(words, value),
        Label => {
            (1..=12).contains(&value.len())
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        Features => value.split(',').all(|word| {
            let name = word.strip_prefix('^').unwrap_or(word);
            is_word(name) && !FORBIDDEN_FEATURES.contains(&name)
        }),
        List(known) => value.split(',').all(|part| {
            let (name, value) =
                part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            has_word(known, name) && value.is_none_or(is_number)
        }),
    }
}

fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !text.starts_with('-')
}

/// Digits and a decimal point, then an optional unit.
fn is_number(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (1..=20).contains(&text.len())
        && text.len() - digits.len() <= 1
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
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
                    Err(ProvisionError::InvalidArgument { field: "mkfs_options", .. })
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
        for text in ["-f", "--rootdir=/etc", "-r /etc", "--force", "/dev/sdb", "-d raid1"] {
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
