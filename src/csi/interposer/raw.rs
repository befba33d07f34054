//! Reads protobuf messages field by field (protobuf.dev, "Encoding") and changes one field without
//! changing the bytes of the others.
//!
//! No crate is used, because prost drops unknown fields, so an answer of a newer driver would lose
//! them. Crates that keep unknown fields need generated code or a descriptor of every message and
//! re-encode the whole message. The interposer must return all other bytes unchanged.
//!
//! In: bytes. Out: fields, bytes. The module depends on no message type. Invalid protobuf results
//! in [`DecodeError`], never in a guess.

use std::borrow::Cow;

/// Maximum depth of nested groups; official decoders stop at 100.
const MAX_GROUP_DEPTH: u32 = 100;
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// Not a valid protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not what its type says")]
pub struct DecodeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u32,
    pub value: Value<'a>,
    /// The bytes of the whole field, with its key.
    pub raw: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    /// A string, bytes, an embedded message, or packed numbers.
    Bytes(&'a [u8]),
    /// Fixed-width numbers and groups: the module decodes no field of these types.
    Other,
}

impl<'a> Field<'a> {
    /// The payload, if the field is `number` and has one. Every decoder treats a known number with
    /// another wire type as an unknown field.
    pub fn bytes(&self, number: u32) -> Option<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) if self.number == number => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn varint(&self, number: u32) -> Option<u64> {
        match self.value {
            Value::Varint(value) if self.number == number => Some(value),
            _ => None,
        }
    }
}

/// All fields of a message, in wire order.
pub fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, DecodeError> {
    let mut found = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let (number, wire) = key(&mut rest)?;
        let value = value(&mut rest, number, wire, MAX_GROUP_DEPTH)?;
        found.push(Field { number, value, raw: &start[..start.len() - rest.len()] });
    }
    Ok(found)
}

fn key(rest: &mut &[u8]) -> Result<(u32, u8), DecodeError> {
    let key = varint(rest)?;
    let number = key >> 3;
    if number == 0 || number > MAX_FIELD_NUMBER {
        return Err(DecodeError);
    }
    Ok((u32::try_from(number).map_err(|_| DecodeError)?, (key & 7) as u8))
}

fn value<'a>(
    rest: &mut &'a [u8],
    number: u32,
    wire: u8,
    depth: u32,
) -> Result<Value<'a>, DecodeError> {
    match wire {
        0 => varint(rest).map(Value::Varint),
        1 => take(rest, 8).map(|_| Value::Other),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| DecodeError)?;
            take(rest, length).map(Value::Bytes)
        }
        3 => {
            let depth = depth.checked_sub(1).ok_or(DecodeError)?;
            loop {
                let (inner, wire) = key(rest)?;
                if wire == 4 {
                    return if inner == number { Ok(Value::Other) } else { Err(DecodeError) };
                }
                value(rest, inner, wire, depth)?;
            }
        }
        5 => take(rest, 4).map(|_| Value::Other),
        _ => Err(DecodeError),
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, left) = rest.split_at_checked(length).ok_or(DecodeError)?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for (index, byte) in rest.iter().take(10).enumerate() {
        // The tenth byte has space for one bit.
        if index == 9 && *byte > 1 {
            return Err(DecodeError);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Ok(value);
        }
    }
    Err(DecodeError)
}

/// The last field `number` of type string, as decoders use it; empty if there is none.
pub(crate) fn string_field(message: &[u8], number: u32) -> Result<&str, DecodeError> {
    let last = fields(message)?.iter().filter_map(|field| field.bytes(number)).next_back();
    std::str::from_utf8(last.unwrap_or_default()).map_err(|_| DecodeError)
}

/// The last field `number` of type int32 or enum; 0 if there is none.
pub(crate) fn int32_field(message: &[u8], number: u32) -> Result<i32, DecodeError> {
    let last = fields(message)?.iter().filter_map(|field| field.varint(number)).next_back();
    Ok(truncate_to_i32(last.unwrap_or_default()))
}

/// int32 and enums use the low half of the sent value.
#[expect(clippy::cast_possible_truncation, reason = "that is how the encoding reads an int32")]
pub(crate) fn truncate_to_i32(value: u64) -> i32 {
    value as i32
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Changes the embedded message `number`, even if it is absent; all other fields stay unchanged.
/// Several occurrences become one: decoders merge them, which equals joining their bytes.
pub fn edit(
    message: &[u8],
    number: u32,
    change: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, DecodeError>,
) -> Result<Vec<u8>, DecodeError> {
    let fields = fields(message)?;
    let present: Vec<&[u8]> = fields.iter().filter_map(|field| field.bytes(number)).collect();
    let joined: Option<Cow<'_, [u8]>> = match present.as_slice() {
        [] => None,
        [one] => Some(Cow::Borrowed(*one)),
        many => Some(Cow::Owned(many.concat())),
    };
    let changed = change(joined.as_deref())?;
    let mut out = Vec::with_capacity(message.len() + changed.len() + 12);
    let mut written = false;
    for field in &fields {
        if field.bytes(number).is_none() {
            out.extend_from_slice(field.raw);
        } else if !written {
            put_bytes(&mut out, number, &changed);
            written = true;
        }
    }
    if !written {
        put_bytes(&mut out, number, &changed);
    }
    Ok(out)
}

/// Changes each of the repeated embedded messages `number`; all other fields, and their order, stay
/// unchanged.
pub(crate) fn edit_each(
    message: &[u8],
    number: u32,
    mut change: impl FnMut(&[u8]) -> Result<Vec<u8>, DecodeError>,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(message.len());
    for field in fields(message)? {
        match field.bytes(number) {
            Some(payload) => put_bytes(&mut out, number, &change(payload)?),
            None => out.extend_from_slice(field.raw),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_is_one_field_and_an_unfinished_one_is_an_error() {
        // Group 5 with field 1 = 7 in it, then field 2 = "x".
        let message = [0x2b, 0x08, 0x07, 0x2c, 0x12, 0x01, b'x'];
        let found = fields(&message).expect("reads");
        assert_eq!(
            (found.len(), found[0].raw, found[1].bytes(2)),
            (2, &message[..4], Some(&b"x"[..]))
        );
        for junk in [
            &message[..3],
            &[0x2b, 0x34],
            &[0x2c],
            &[0x00],
            &[0x0a, 0x05, 0x01],
            &[0xff; 11],
            &[0x06],
        ] {
            assert_eq!(fields(junk), Err(DecodeError), "{junk:?}");
        }
        assert_eq!(fields(&vec![0x2b; 4096]), Err(DecodeError));
    }

    #[test]
    fn the_last_of_several_counts_and_another_wire_type_does_not() {
        let message = [0x0a, 0x01, b'a', 0x0a, 0x01, b'b', 0x08, 0x01, 0x10, 0x05, 0x10, 0x07];
        assert_eq!(string_field(&message, 1), Ok("b"));
        assert_eq!(int32_field(&message, 2), Ok(7));
        assert_eq!(string_field(&[0x0a, 0x01, 0xff], 1), Err(DecodeError));
        assert_eq!(
            int32_field(&[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 2),
            Ok(-1)
        );
    }

    #[test]
    fn a_message_field_that_occurs_twice_becomes_one() {
        let mut message = Vec::new();
        put_bytes(&mut message, 2, &[0x08, 0x01]);
        put_number(&mut message, 9, 300);
        put_bytes(&mut message, 2, &[0x12, 0x01, b'x']);
        let edited =
            edit(&message, 2, |payload| Ok(payload.expect("there").to_vec())).expect("reads");
        let mut expected = Vec::new();
        put_bytes(&mut expected, 2, &[0x08, 0x01, 0x12, 0x01, b'x']);
        put_number(&mut expected, 9, 300);
        assert_eq!(edited, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_decoder_and_no_byte_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(fields) = fields(&bytes) {
                prop_assert_eq!(fields.iter().flat_map(|field| field.raw.to_vec()).collect::<Vec<u8>>(), bytes);
            }
        }

        #[test]
        fn numbers_are_read_as_they_were_written(number in 1u32..(1 << 29), value: u64, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut message = Vec::new();
            put_number(&mut message, number, value);
            put_bytes(&mut message, number, &bytes);
            let found = fields(&message).expect("reads");
            prop_assert_eq!(found[0].varint(number), Some(value));
            prop_assert_eq!(found[1].bytes(number), Some(bytes.as_slice()));
        }
    }
}
