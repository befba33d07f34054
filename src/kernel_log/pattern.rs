//! The pattern of a kernel message: its format string, with a typed field for each conversion.
//!
//! In: a pattern and the text of a record. Out: the devices and the fields that the text has at the
//! pattern's places. A pattern is matched from the first byte of the record, and no field matches
//! any text: a record that only quotes a kernel message (a program's name, a mount option, a path)
//! does not match.
//!
//! - `<disk>` and the other names of `Field`: a typed field.
//! - `<read|write>`: one of these texts, tried in this order; an empty one matches always.
//! - `{tag#<dec> }`: optional, taken if it matches.
//! - `$` at the end: nothing follows on the line but blanks.

use crate::device_name;
use crate::event::DeviceName;

/// Longest name of a program in a record: TASK_COMM_LEN without its final zero.
const MAX_COMM_BYTES: usize = 15;
const MAX_FIELD_BYTES: usize = 160;

#[derive(Debug)]
pub(crate) struct Pattern(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(&'static str),
    Choice(Vec<&'static str>),
    Field(Field),
    Optional(Vec<Piece>),
    End,
}

/// The type of a field. Each takes as many bytes as its type allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Name of a block device: `sda1`, `dm-3`, `cciss!c0d0`.
    Disk,
    /// A device in any form: `sda1`, `253:4`, `/dev/sda1`, the UUID of a filesystem.
    Dev,
    /// `8:16`
    Number,
    /// `2:0:0:0`
    Hctl,
    /// The number of a SCSI host.
    Host,
    /// `ata3`, `ata3.00`
    Ata,
    /// `nvme0`
    Nvme,
    /// `0000:03:00.0`
    Pci,
    /// `nvme0`, or the PCI address of an NVMe controller.
    Controller,
    /// Decimal digits, also negative.
    Dec,
    /// Hexadecimal digits, also after `0x`.
    Hex,
    /// Digits, separators and hexadecimal digits: the registers of a command.
    Registers,
    /// An identifier: a function, an instance of an adapter (`mpt2sas_cm0`).
    Word,
    /// Words of the kernel, with blanks: the name of a command or of a status.
    Words,
    /// Name of a kernel source file or function.
    File,
    /// Path of a device, without blanks.
    Path,
    /// Blanks, or nothing.
    Blanks,
    /// Name of a program, which any user chooses. Ends where the pattern's next text begins.
    Comm,
}

const FIELDS: [(&str, Field); 18] = [
    ("disk", Field::Disk),
    ("dev", Field::Dev),
    ("number", Field::Number),
    ("hctl", Field::Hctl),
    ("host", Field::Host),
    ("ata", Field::Ata),
    ("nvme", Field::Nvme),
    ("pci", Field::Pci),
    ("controller", Field::Controller),
    ("dec", Field::Dec),
    ("hex", Field::Hex),
    ("registers", Field::Registers),
    ("word", Field::Word),
    ("words", Field::Words),
    ("file", Field::File),
    ("path", Field::Path),
    ("blanks", Field::Blanks),
    ("comm", Field::Comm),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("`{0}` is no field")]
    UnknownField(&'static str),
    #[error("`{0}` has no end")]
    Unclosed(&'static str),
    #[error("a program's name must end before a text longer than a program's name")]
    OpenComm,
    #[error("the pattern of `{0}` can match the empty text")]
    Unanchored(&'static str),
}

/// What a pattern found in a record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'a> {
    /// In the order of the text: see `devices`.
    devices: Vec<(Field, &'a str)>,
    /// The choices and the fields that are no devices, blanks or programs, in the order of the
    /// text. An optional group that did not match adds none.
    pub fields: Vec<&'a str>,
    /// Bytes of the whole record. A message that is longer than a program's name may be followed by
    /// another line; 0: it may not.
    record_bytes: usize,
}

impl Captures<'_> {
    pub(crate) fn of_record(text: &str) -> Captures<'static> {
        Captures { record_bytes: text.len(), ..Captures::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.devices.clear();
        self.fields.clear();
    }

    /// The devices in the order of the text. None: a name is not of the form that its field has.
    pub(crate) fn devices(&self) -> Option<Vec<DeviceName>> {
        let devices = self.devices.iter();
        devices.map(|(field, name)| field.device(name)).collect()
    }

    fn may_end_at(&self, rest: &str) -> bool {
        let rest = rest.trim_start_matches([' ', '\t', '\r']);
        rest.trim_ascii().is_empty()
            || rest.starts_with('\n')
                && self.record_bytes.saturating_sub(rest.len()) > MAX_COMM_BYTES
    }
}

impl Pattern {
    pub(crate) fn parse(text: &'static str) -> Result<Pattern, PatternError> {
        let pieces = parse_pieces(text)?;
        for (at, piece) in pieces.iter().enumerate() {
            let ends = matches!(pieces.get(at + 1), Some(Piece::Text(next)) if next.len() > MAX_COMM_BYTES);
            if matches!(piece, Piece::Field(Field::Comm)) && !ends {
                return Err(PatternError::OpenComm);
            }
        }
        Ok(Pattern(pieces))
    }

    /// Adds what it finds at the text's beginning to `captures`, and returns the text after it.
    pub(crate) fn find<'a>(&self, text: &'a str, captures: &mut Captures<'a>) -> Option<&'a str> {
        match_pieces(&self.0, text, captures)
    }

    /// Whether a text that begins with this byte can match.
    pub(crate) fn can_begin_with(&self, byte: u8) -> bool {
        let begins = |text: &str| text.bytes().next().is_none_or(|first| first == byte);
        match self.0.first() {
            Some(Piece::Text(text)) => begins(text),
            Some(Piece::Choice(choices)) => choices.iter().any(|choice| begins(choice)),
            Some(Piece::Field(field)) if !matches!(field, Field::Comm | Field::Blanks) => {
                field.allows(byte, 0)
            }
            _ => true,
        }
    }

    /// Whether it matches a text of which nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.find("", &mut Captures::default()).is_some()
    }
}

fn parse_pieces(text: &'static str) -> Result<Vec<Piece>, PatternError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '{', '$']) {
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        let (open, inside) = rest[at..].split_at(1);
        let close = match open {
            "<" => '>',
            "{" => '}',
            _ => {
                pieces.push(Piece::End);
                rest = inside;
                continue;
            }
        };
        let (inside, after) = inside.split_once(close).ok_or(PatternError::Unclosed(text))?;
        rest = after;
        pieces.push(if close == '}' {
            Piece::Optional(parse_pieces(inside)?)
        } else if inside.contains('|') {
            Piece::Choice(inside.split('|').collect())
        } else {
            let field = FIELDS.iter().find(|(name, _)| *name == inside);
            Piece::Field(field.ok_or(PatternError::UnknownField(inside))?.1)
        });
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn match_pieces<'a>(
    pieces: &[Piece],
    text: &'a str,
    captures: &mut Captures<'a>,
) -> Option<&'a str> {
    let mut rest = text;
    for (at, piece) in pieces.iter().enumerate() {
        rest = match piece {
            Piece::Text(expected) => rest.strip_prefix(expected)?,
            Piece::End => {
                if !captures.may_end_at(rest) {
                    return None;
                }
                rest
            }
            Piece::Choice(choices) => {
                let (choice, after) = choices
                    .iter()
                    .find_map(|choice| Some((*choice, rest.strip_prefix(choice)?)))?;
                captures.fields.push(choice);
                after
            }
            Piece::Optional(inner) => {
                let (devices, fields) = (captures.devices.len(), captures.fields.len());
                match match_pieces(inner, rest, captures) {
                    Some(after) => after,
                    None => {
                        captures.devices.truncate(devices);
                        captures.fields.truncate(fields);
                        rest
                    }
                }
            }
            Piece::Field(Field::Comm) => {
                let Some(Piece::Text(next)) = pieces.get(at + 1) else {
                    return None;
                };
                let end = (0..=MAX_COMM_BYTES)
                    .find(|end| rest.get(*end..).is_some_and(|rest| rest.starts_with(next)))?;
                &rest[end..]
            }
            Piece::Field(field) => {
                let (value, after) = field.take(rest)?;
                match field {
                    Field::Blanks => {}
                    field if field.is_device() => captures.devices.push((*field, value)),
                    _ => captures.fields.push(value),
                }
                after
            }
        };
    }
    Some(rest)
}

impl Field {
    /// The field at the text's beginning, and the text after it.
    fn take(self, text: &str) -> Option<(&str, &str)> {
        let end = text
            .bytes()
            .enumerate()
            .position(|(at, byte)| !self.allows(byte, at))
            .unwrap_or(text.len());
        // A final dot or dash ends the sentence, not the name.
        let value = match self {
            Field::Disk
            | Field::Dev
            | Field::Ata
            | Field::Hctl
            | Field::Number
            | Field::Pci
            | Field::Controller => text[..end].trim_end_matches(['.', ':', '-']),
            _ => &text[..end],
        };
        let possible = match self {
            Field::Blanks => true,
            Field::Disk => value.starts_with(|c: char| c.is_ascii_lowercase()),
            Field::Hctl => value.bytes().filter(|byte| *byte == b':').count() == 3,
            Field::Number => value.contains(':'),
            Field::Ata => value.starts_with("ata"),
            Field::Nvme => value.starts_with("nvme"),
            _ => !value.is_empty(),
        };
        (possible && value.len() <= MAX_FIELD_BYTES).then(|| (value, &text[value.len()..]))
    }

    fn is_device(self) -> bool {
        matches!(
            self,
            Field::Disk
                | Field::Dev
                | Field::Number
                | Field::Hctl
                | Field::Host
                | Field::Ata
                | Field::Nvme
                | Field::Pci
                | Field::Controller
        )
    }

    fn allows(self, byte: u8, at: usize) -> bool {
        let digit = byte.is_ascii_digit();
        match self {
            Field::Host => digit,
            Field::Dec => digit || at == 0 && byte == b'-',
            Field::Hex => byte.is_ascii_hexdigit() || at == 1 && byte == b'x',
            Field::Registers => byte.is_ascii_hexdigit() || matches!(byte, b'/' | b':'),
            Field::Number | Field::Hctl => digit || byte == b':',
            Field::Ata => digit || byte == b'.' || at < 3 && byte.is_ascii_lowercase(),
            Field::Nvme => digit || at < 4 && byte.is_ascii_lowercase(),
            Field::Pci => byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'),
            Field::Controller => byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.'),
            Field::Words => byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'/' | b'-'),
            Field::Disk => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'!' | b'/')
            }
            Field::Dev => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'!' | b'/' | b':')
            }
            Field::Word => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Field::File => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/')
            }
            Field::Path => byte > b' ' && byte != 0x7f,
            Field::Blanks => matches!(byte, b' ' | b'\t'),
            Field::Comm => false,
        }
    }

    /// The device of this name. None: the name has not the form of the field.
    fn device(self, name: &str) -> Option<DeviceName> {
        match self {
            Field::Disk => device_name::parse_block(name),
            Field::Host => name.parse().ok().map(DeviceName::ScsiHost),
            Field::Pci => device_name::parse_pci(name),
            Field::Controller => device_name::parse_pci(name).or_else(|| Field::Nvme.device(name)),
            _ => device_name::parse(name).filter(|device| match (self, device) {
                (Field::Dev, DeviceName::Block(_)) => device_name::parse_block_path(name).is_some(),
                (Field::Dev, _)
                | (Field::Number, DeviceName::Number(_))
                | (Field::Hctl, DeviceName::Hctl(_))
                | (Field::Ata, DeviceName::Ata { .. })
                | (Field::Nvme, DeviceName::Nvme(_)) => true,
                _ => false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(pattern: &'static str, text: &'a str) -> Option<(Captures<'a>, &'a str)> {
        let mut captures = Captures::default();
        let rest = Pattern::parse(pattern).unwrap().find(text, &mut captures)?;
        Some((captures, rest))
    }

    #[test]
    fn a_pattern_matches_from_the_first_byte_and_types_its_fields() {
        let pattern = "sd <hctl>: {[<disk>] }{tag#<dec> }rejecting";
        let (captures, rest) = found(pattern, "sd 2:0:0:0: [sdb] tag#3 rejecting I/O").unwrap();
        assert_eq!(
            captures.devices().unwrap(),
            [DeviceName::Hctl("2:0:0:0".into()), DeviceName::Block("sdb".into())]
        );
        assert_eq!((captures.fields.as_slice(), rest), (&["3"][..], " I/O"));
        assert!(found(pattern, "sd 2:0:0:0: rejecting").is_some());
        for foreign in [
            " sd 2:0:0:0: rejecting",
            "x: sd 2:0:0:0: rejecting",
            "sd 2:0:0: rejecting",
            "sd x:0:0:0: rejecting",
            "sd 2:0:0:0: [s db] rejecting",
            "sd 2:0:0:0: x rejecting",
        ] {
            assert_eq!(found(pattern, foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_choice_takes_the_first_text_that_matches_and_the_end_allows_blanks() {
        let pattern = "<print_req_error: |><I/O|timeout> error, dev <disk>$";
        for (text, fields) in [
            ("I/O error, dev sda \n", ["", "I/O"]),
            ("print_req_error: timeout error, dev sda", ["print_req_error: ", "timeout"]),
        ] {
            assert_eq!(found(pattern, text).unwrap().0.fields, fields);
        }
        assert_eq!(found(pattern, "I/O error, dev sda, sector 1"), None);
    }

    #[test]
    fn the_name_of_a_program_ends_before_the_kernels_own_text_and_is_short() {
        let pattern = "<comm>: attempt to access beyond end of device\n<disk>: rw=";
        for (comm, matches) in
            [("mount", true), ("a: b\nsda: rw=", true), ("", true), ("0123456789abcdef", false)]
        {
            let text = format!("{comm}: attempt to access beyond end of device\nloop0: rw=0");
            assert_eq!(found(pattern, &text).is_some(), matches, "{comm}");
        }
        for open in ["<comm>: no", "<comm>", "<comm><disk>"] {
            assert_eq!(Pattern::parse(open).unwrap_err(), PatternError::OpenComm);
        }
    }

    #[test]
    fn a_pattern_with_an_unknown_field_or_without_its_end_is_refused() {
        assert_eq!(Pattern::parse("a <any> b").unwrap_err(), PatternError::UnknownField("any"));
        for open in ["a <disk", "a {b"] {
            assert!(matches!(Pattern::parse(open), Err(PatternError::Unclosed(_))));
        }
    }
}
