//! Merges the daemon's health into the upstream driver's raw answers: one field is changed, all
//! other fields, known or not, stay as they are.
//!
//! In: the bytes of an answer and the daemon's health. Out: the new bytes, or [`DecodeError`];
//! after an error the upstream's answer is forwarded unchanged. No I/O and no CSI types, only field
//! numbers (CSI_WIRE, sections 1 to 3).

use std::collections::HashMap;

use crate::interposer::health_source::{HealthStatus, VolumeCondition, VolumeHealth};
use crate::interposer::raw::{DecodeError, Value};
use crate::interposer::{raw, status_limits};
use crate::limits;

/// NodeGetCapabilitiesResponse, ControllerGetCapabilitiesResponse: capabilities.
const CAPABILITIES: u32 = 1;
/// NodeServiceCapability, ControllerServiceCapability: rpc; and its type.
const RPC: u32 = 1;
const TYPE: u32 = 1;
/// NodeGetVolumeStatsResponse, and both VolumeStatus messages: volume_condition (until 1.12).
const CONDITION: u32 = 2;
/// VolumeCondition.
const ABNORMAL: u32 = 1;
const CONDITION_MESSAGE: u32 = 2;
/// NodeGetVolumeHealthResponse, ControllerGetVolumeHealthResponse: volume_health.
const VOLUME_HEALTH: u32 = 1;
/// VolumeHealth.
const HEALTH_VOLUME_ID: u32 = 1;
const HEALTH_STATUSES: u32 = 2;
/// ControllerListVolumeHealthResponse, ListVolumesResponse: entries and next_token.
const ENTRIES: u32 = 1;
const NEXT_TOKEN: u32 = 2;
/// ListVolumesResponse.Entry, ControllerGetVolumeResponse: volume and status.
const VOLUME: u32 = 1;
const STATUS: u32 = 2;
/// Volume.
const VOLUME_ID: u32 = 2;
/// NodeGetStorageHealthResponse.
const BACKEND_HEALTH: u32 = 1;

/// The rpc capabilities that a …GetCapabilities answer announces.
pub(crate) fn announced_capabilities(message: &[u8]) -> Result<Vec<i32>, DecodeError> {
    let mut found = Vec::new();
    for capability in raw::fields(message)?.iter().filter_map(|field| field.bytes(CAPABILITIES)) {
        let rpc = raw::fields(capability)?
            .iter()
            .filter_map(|field| field.bytes(RPC))
            .collect::<Vec<_>>()
            .concat();
        if !rpc.is_empty() {
            found.push(raw::int32_field(&rpc, TYPE)?);
        }
    }
    Ok(found)
}

/// Adds the capabilities that are not announced yet.
pub fn add_capabilities(message: &[u8], add: &[i32]) -> Result<Vec<u8>, DecodeError> {
    let present = announced_capabilities(message)?;
    let mut out = message.to_vec();
    for number in add.iter().filter(|number| !present.contains(number)) {
        let (mut rpc, mut capability) = (Vec::new(), Vec::new());
        raw::put_number(&mut rpc, TYPE, u64::from(number.unsigned_abs()));
        raw::put_bytes(&mut capability, RPC, &rpc);
        raw::put_bytes(&mut out, CAPABILITIES, &capability);
    }
    Ok(out)
}

/// NodeGetVolumeStats.
pub fn stats(message: &[u8], ours: &VolumeCondition) -> Result<Vec<u8>, DecodeError> {
    with_condition(message, ours)
}

/// ControllerGetVolume.
pub fn volume(message: &[u8], ours: &VolumeCondition) -> Result<Vec<u8>, DecodeError> {
    raw::edit(message, STATUS, |status| with_condition(status.unwrap_or_default(), ours))
}

/// ListVolumes: merges conditions into the entries of known volumes.
pub fn volumes(
    message: &[u8],
    ours: &HashMap<String, VolumeHealth>,
) -> Result<Vec<u8>, DecodeError> {
    raw::edit_each(message, ENTRIES, |entry| {
        let inner = raw::fields(entry)?
            .iter()
            .filter_map(|field| field.bytes(VOLUME))
            .collect::<Vec<_>>()
            .concat();
        match ours.get(raw::string_field(&inner, VOLUME_ID)?) {
            Some(VolumeHealth { condition: Some(condition), .. }) => volume(entry, condition),
            _ => Ok(entry.to_vec()),
        }
    })
}

fn with_condition(message: &[u8], ours: &VolumeCondition) -> Result<Vec<u8>, DecodeError> {
    raw::edit(message, CONDITION, |theirs| merge_condition(theirs, ours))
}

/// The result is abnormal if one of the two is, with both messages, the daemon's first. If the
/// daemon reports a healthy volume, the upstream's condition stays unchanged.
fn merge_condition(theirs: Option<&[u8]>, ours: &VolumeCondition) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    let Some(theirs) = theirs else {
        put_condition(&mut out, ours.abnormal, &ours.message);
        return Ok(out);
    };
    let fields = raw::fields(theirs)?;
    let message = raw::string_field(theirs, CONDITION_MESSAGE)?;
    if !ours.abnormal {
        return Ok(theirs.to_vec());
    }
    let abnormal = fields
        .iter()
        .filter_map(|field| field.varint(ABNORMAL))
        .next_back()
        .is_some_and(|value| value != 0);
    let both = if abnormal && !message.is_empty() && !ours.message.contains(message) {
        format!("{}; {message}", ours.message)
    } else {
        ours.message.clone()
    };
    put_condition(&mut out, true, &both);
    for field in fields {
        let known = matches!(
            (field.number, field.value),
            (ABNORMAL, Value::Varint(_)) | (CONDITION_MESSAGE, Value::Bytes(_))
        );
        if !known {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out)
}

fn put_condition(out: &mut Vec<u8>, abnormal: bool, message: &str) {
    if abnormal {
        raw::put_number(out, ABNORMAL, 1);
    }
    if !message.is_empty() {
        raw::put_bytes(out, CONDITION_MESSAGE, limits::truncate_message(message).as_bytes());
    }
}

/// NodeGetVolumeHealth, ControllerGetVolumeHealth. An empty `message` results in the daemon's
/// health alone.
pub fn health(message: &[u8], handle: &str, ours: &[HealthStatus]) -> Result<Vec<u8>, DecodeError> {
    raw::edit(message, VOLUME_HEALTH, |theirs| {
        volume_health(theirs.unwrap_or_default(), handle, ours)
    })
}

/// One VolumeHealth.
pub fn volume_health(
    theirs: &[u8],
    handle: &str,
    ours: &[HealthStatus],
) -> Result<Vec<u8>, DecodeError> {
    let fields = raw::fields(theirs)?;
    let mut out = Vec::new();
    if !fields.iter().any(|field| field.bytes(HEALTH_VOLUME_ID).is_some()) {
        raw::put_bytes(&mut out, HEALTH_VOLUME_ID, handle.as_bytes());
    }
    put_merged_statuses(&mut out, theirs, HEALTH_STATUSES, ours)?;
    Ok(out)
}

/// NodeGetStorageHealth. An empty `message` results in the daemon's health alone.
pub fn storage(message: &[u8], ours: &[HealthStatus]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    put_merged_statuses(&mut out, message, BACKEND_HEALTH, ours)?;
    Ok(out)
}

/// Replaces the repeated field `number` by the merged list.
fn put_merged_statuses(
    out: &mut Vec<u8>,
    message: &[u8],
    number: u32,
    ours: &[HealthStatus],
) -> Result<(), DecodeError> {
    let fields = raw::fields(message)?;
    let theirs: Vec<&[u8]> = fields.iter().filter_map(|field| field.bytes(number)).collect();
    match status_limits::merge_entries(&theirs, ours)? {
        None => out.extend_from_slice(message),
        Some(entries) => {
            for field in fields.iter().filter(|field| field.bytes(number).is_none()) {
                out.extend_from_slice(field.raw);
            }
            for entry in entries {
                raw::put_bytes(out, number, &entry);
            }
        }
    }
    Ok(())
}

/// A page of ControllerListVolumeHealth: its volumes, and the token of the next page.
pub struct Page {
    pub handles: Vec<String>,
    pub next_token: String,
}

pub fn parse_page(message: &[u8]) -> Result<Page, DecodeError> {
    let mut handles = Vec::new();
    for entry in raw::fields(message)?.iter().filter_map(|field| field.bytes(ENTRIES)) {
        handles.push(raw::string_field(entry, HEALTH_VOLUME_ID)?.to_owned());
    }
    Ok(Page { handles, next_token: raw::string_field(message, NEXT_TOKEN)?.to_owned() })
}

/// ControllerListVolumeHealth: merges health into the existing entries.
pub fn listed_health(
    message: &[u8],
    ours: &HashMap<String, Vec<HealthStatus>>,
) -> Result<Vec<u8>, DecodeError> {
    raw::edit_each(message, ENTRIES, |entry| {
        let handle = raw::string_field(entry, HEALTH_VOLUME_ID)?;
        match ours.get(handle) {
            Some(statuses) => volume_health(entry, handle, statuses),
            None => Ok(entry.to_vec()),
        }
    })
}

/// ControllerListVolumeHealth: appends `more` entries and replaces the token.
pub fn append_entries(
    message: &[u8],
    more: &[(String, Vec<HealthStatus>)],
    next_token: &str,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(message.len());
    for field in raw::fields(message)?.iter().filter(|field| field.bytes(NEXT_TOKEN).is_none()) {
        out.extend_from_slice(field.raw);
    }
    for (handle, statuses) in more {
        raw::put_bytes(&mut out, ENTRIES, &volume_health(&[], handle, statuses)?);
    }
    if !next_token.is_empty() {
        raw::put_bytes(&mut out, NEXT_TOKEN, next_token.as_bytes());
    }
    Ok(out)
}

/// The same list request, for another page. Fields 1 and 2: max_entries and starting_token.
pub fn request_for_page(request: &[u8], starting_token: &str) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(request.len());
    for field in raw::fields(request)?.iter().filter(|field| !matches!(field.number, 1 | 2)) {
        out.extend_from_slice(field.raw);
    }
    if !starting_token.is_empty() {
        raw::put_bytes(&mut out, 2, starting_token.as_bytes());
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
