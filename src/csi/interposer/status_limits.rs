//! Merges the upstream driver's health statuses with the daemon's into one list within the limits
//! of [`limits`], unique by status and reason.
//!
//! In: the upstream's raw entries and the daemon's statuses. Out: one valid list of raw entries,
//! worst first. Unknown fields stay in their entries.

use std::collections::HashSet;

use crate::interposer::health_source::HealthStatus;
use crate::interposer::raw;
use crate::interposer::raw::{DecodeError, Value};
use crate::limits;
use crate::limits::MAX_STATUSES;

// VolumeHealthEntry and StorageBackendHealth have the same first three fields.
const STATUS: u32 = 1;
const REASON: u32 = 2;
const MESSAGE: u32 = 3;
/// StorageBackendHealth only: the capability that an entry is limited to. It is part of the entry's
/// identity.
const CAPABILITY: u32 = 4;

/// One entry of the result.
struct Entry {
    status: i32,
    reason: String,
    capability: Vec<u8>,
    raw: Vec<u8>,
}

/// Merges both lists. None if the upstream's is valid and there is nothing to add.
pub(crate) fn merge_entries(
    theirs: &[&[u8]],
    ours: &[HealthStatus],
) -> Result<Option<Vec<Vec<u8>>>, DecodeError> {
    let mut entries: Vec<Entry> =
        theirs.iter().map(|raw| conform_entry(raw)).collect::<Result<_, _>>()?;
    let untouched = |entries: &[Entry]| {
        entries.len() == theirs.len()
            && entries.iter().zip(theirs).all(|(entry, raw)| entry.raw == *raw)
    };
    entries.extend(ours.iter().map(encode_entry));
    let mut seen = HashSet::new();
    entries.retain(|entry| {
        seen.insert((entry.status, entry.reason.clone(), entry.capability.clone()))
    });
    if entries.len() <= MAX_STATUSES && untouched(&entries) {
        return Ok(None);
    }
    // A stable sort keeps the upstream's entries first among equally severe ones.
    entries.sort_by_key(|entry| std::cmp::Reverse(severity_rank(entry.status)));
    entries.truncate(MAX_STATUSES);
    Ok(Some(entries.into_iter().map(|entry| entry.raw).collect()))
}

/// Higher numbers are worse, in both enums. Numbers that CSI 1.13 does not define rank last,
/// because callers skip them.
fn severity_rank(status: i32) -> i32 {
    if (1..=3).contains(&status) { status } else { 0 }
}

fn encode_entry(status: &HealthStatus) -> Entry {
    let reason = limits::conform_reason(&status.reason);
    let mut raw = Vec::new();
    put_status_fields(
        &mut raw,
        status.status.number(),
        &reason,
        &limits::truncate_message(&status.message),
    );
    Entry {
        status: status.status.number(),
        reason: reason.into_owned(),
        capability: Vec::new(),
        raw,
    }
}

/// An entry of the upstream; unchanged if it is valid.
fn conform_entry(entry: &[u8]) -> Result<Entry, DecodeError> {
    let status = raw::int32_field(entry, STATUS)?;
    let (reason, message) = (raw::string_field(entry, REASON)?, raw::string_field(entry, MESSAGE)?);
    let (fit_reason, fit_message) =
        (limits::conform_reason(reason), limits::truncate_message(message));
    let fields = raw::fields(entry)?;
    let capability =
        fields.iter().filter_map(|field| field.bytes(CAPABILITY)).collect::<Vec<_>>().concat();
    let mut out = entry.to_vec();
    if fit_reason != reason || fit_message != message {
        out.clear();
        put_status_fields(&mut out, status, &fit_reason, &fit_message);
        let ours = |field: &raw::Field<'_>| {
            matches!(
                (field.number, field.value),
                (STATUS, Value::Varint(_)) | (REASON | MESSAGE, Value::Bytes(_))
            )
        };
        for field in fields.iter().filter(|field| !ours(field)) {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(Entry { status, reason: fit_reason.into_owned(), capability, raw: out })
}

fn put_status_fields(out: &mut Vec<u8>, status: i32, reason: &str, message: &str) {
    if status != 0 {
        // An int32 is sent as 64 bits with its sign extended.
        raw::put_number(out, STATUS, i64::from(status).cast_unsigned());
    }
    raw::put_bytes(out, REASON, reason.as_bytes());
    if !message.is_empty() {
        raw::put_bytes(out, MESSAGE, message.as_bytes());
    }
}
