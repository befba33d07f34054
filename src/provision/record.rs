//! The records of volumes as JSON. Volumes of the pool have theirs beside their images or in the
//! tags of their logical volumes; attachments and intents have one file per volume. Each record has
//! a version, and unknown fields are kept.
//!
//! In: texts of records. Out: values, or why a record cannot be used. A record that cannot be read
//! is never overwritten, because it may be the only trace of a volume. This module reads and writes
//! no files.

pub mod formatting;
pub mod tags;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rules::names;
use crate::step::DeviceIdentity;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, PodRef, ProvidedAttachment, VolumeAccess};

/// The version of all records. A record with a greater version was written by a newer program and
/// is not used.
pub const VERSION: u32 = 1;

/// A volume of the pool, as it was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeRecord {
    pub version: u32,
    pub handle: String,
    pub name: String,
    pub kind: BackingKind,
    /// Size in bytes. For a logical volume, the size that LVM reports takes precedence.
    pub size: u64,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mkfs_options: String,
    #[serde(default)]
    pub accesses: Vec<VolumeAccess>,
    /// Fields that a newer program wrote.
    #[serde(flatten)]
    pub unknown_fields: Map<String, Value>,
}

/// Where a volume is staged and published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachmentsRecord {
    pub version: u32,
    pub handle: String,
    pub kind: BackingKind,
    /// The path in a static volume's entry at the time of the attachment. The configuration may no
    /// longer contain the entry.
    #[serde(rename = "entry", default, skip_serializing_if = "Option::is_none")]
    pub static_path: Option<HostPath>,
    pub staged: Option<ProvidedAttachment>,
    #[serde(default)]
    pub published: Vec<ProvidedAttachment>,
    #[serde(flatten)]
    pub unknown_fields: Map<String, Value>,
}

/// An operation on a volume, written before its first step and removed after its last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    pub version: u32,
    pub handle: String,
    pub since: Timestamp,
    pub operation: Operation,
    /// mkfs may have begun. The device was blank before, so its content is from that mkfs.
    #[serde(default)]
    pub formatting: bool,
    /// The device of the mkfs. When the mkfs is repeated, its name may belong to another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceIdentity>,
    pub kind: BackingKind,
    /// See `AttachmentsRecord`.
    #[serde(rename = "entry", default, skip_serializing_if = "Option::is_none")]
    pub static_path: Option<HostPath>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Operation {
    Create { record: VolumeRecord },
    Delete,
    Expand { size: u64 },
    Stage { path: HostPath, access: VolumeAccess },
    Unstage { path: HostPath },
    Publish { path: HostPath, access: VolumeAccess, read_only: bool, pod: Option<PodRef> },
    Unpublish { path: HostPath },
}

impl Operation {
    /// A description for messages.
    pub fn description(&self) -> &'static str {
        match self {
            Operation::Create { .. } => "creating it",
            Operation::Delete => "deleting it",
            Operation::Expand { .. } => "growing it",
            Operation::Stage { .. } => "staging it",
            Operation::Unstage { .. } => "unstaging it",
            Operation::Publish { .. } => "publishing it",
            Operation::Unpublish { .. } => "unpublishing it",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0}")]
    Unreadable(String),
    #[error("its name is no handle")]
    NotAHandle,
    #[error("it is no record")]
    Parse(#[source] serde_json::Error),
    #[error("it was written by a newer program (version {0}, this one reads {VERSION})")]
    NewerVersion(u64),
    #[error("it belongs to another volume, {0}")]
    WrongHandle(String),
    #[error("it cannot be written as JSON")]
    Serialize(#[source] serde_json::Error),
    #[error("its tags are not whole")]
    IncompleteTags,
    #[error("its tags are no base64")]
    Base64(#[source] base64::DecodeError),
}

/// Parses the record of volume `handle`.
pub fn read<T: DeserializeOwned>(handle: &str, text: &[u8]) -> Result<T, RecordError> {
    let value: Value = serde_json::from_slice(text).map_err(RecordError::Parse)?;
    if let Some(version) = value.get("version").and_then(Value::as_u64)
        && version > u64::from(VERSION)
    {
        return Err(RecordError::NewerVersion(version));
    }
    match value.get("handle").and_then(Value::as_str) {
        Some(other) if other != handle => Err(RecordError::WrongHandle(other.to_owned())),
        _ => serde_json::from_value(value).map_err(RecordError::Parse),
    }
}

pub fn write<T: Serialize>(record: &T) -> Result<String, RecordError> {
    serde_json::to_string_pretty(record).map(|text| text + "\n").map_err(RecordError::Serialize)
}

/// The volume's name in an unusable record, so that the name is not given to another volume.
pub(crate) fn name_in_unreadable(text: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(text).ok()?;
    Some(value.get("name")?.as_str()?.to_owned())
}

/// `dv-….json`, `fast-1.json`.
pub fn file_name(handle: &str) -> String {
    format!("{handle}.json")
}

/// The handle in the file name of a record; None if the file is not a record.
pub(crate) fn handle_from_file_name(file: &str) -> Option<&str> {
    file.strip_suffix(".json")
        .filter(|handle| names::is_pool_handle(handle) || names::is_static_name(handle))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record() -> VolumeRecord {
        VolumeRecord {
            version: VERSION,
            handle: names::pool_handle([1; 16]),
            name: "pvc-\u{e4} \"x\"".into(),
            kind: BackingKind::Loop,
            size: 1 << 20,
            created: Timestamp::UNIX_EPOCH,
            mkfs_options: "-m 0".into(),
            accesses: Vec::new(),
            unknown_fields: Map::new(),
        }
    }

    #[test]
    fn a_record_reads_back_as_itself_with_fields_of_a_later_minor_version() {
        let mut record = record();
        record.unknown_fields.insert("colour".into(), "red".into());
        let text = write(&record).unwrap();
        assert_eq!(read::<VolumeRecord>(&record.handle, text.as_bytes()).unwrap(), record);
    }

    #[test]
    fn a_truncated_newer_or_foreign_record_is_refused_and_its_name_still_known() {
        let record = record();
        let text = write(&record).unwrap();
        assert!(matches!(
            read::<VolumeRecord>(&record.handle, &text.as_bytes()[..40]),
            Err(RecordError::Parse(_))
        ));
        assert!(matches!(
            read::<VolumeRecord>("dv-other", text.as_bytes()),
            Err(RecordError::WrongHandle(_))
        ));
        let newer = text.replace("\"version\": 1", "\"version\": 2");
        assert!(matches!(
            read::<VolumeRecord>(&record.handle, newer.as_bytes()),
            Err(RecordError::NewerVersion(2))
        ));
        assert_eq!(name_in_unreadable(newer.as_bytes()), Some(record.name));
        assert_eq!(name_in_unreadable(b"{"), None);
    }

    #[test]
    fn an_operation_reads_back_as_itself() {
        let access = VolumeAccess {
            mode: diskvitals_finding::provision::AccessMode::SingleNodeWriter,
            block: false,
            fs_type: None,
            mount_flags: Vec::new(),
        };
        let path = HostPath::new(b"/k/\xff");
        for operation in [
            Operation::Create { record: record() },
            Operation::Delete,
            Operation::Expand { size: 7 },
            Operation::Stage { path: path.clone(), access: access.clone() },
            Operation::Publish {
                path: path.clone(),
                access,
                read_only: true,
                pod: Some(PodRef::default()),
            },
            Operation::Unpublish { path },
        ] {
            let entry = Some("/dev/disk/by-id/x".into());
            let device = Some(DeviceIdentity { size: 7, name: Some("wwid naa.5000".into()) });
            let (kind, since) = (BackingKind::StaticDevice, Timestamp::UNIX_EPOCH);
            let intent = Intent {
                version: 1,
                handle: "a".into(),
                since,
                operation,
                formatting: true,
                device,
                kind,
                static_path: entry,
            };
            assert_eq!(read::<Intent>("a", write(&intent).unwrap().as_bytes()).unwrap(), intent);
        }
    }

    #[test]
    fn only_files_named_by_a_handle_are_records() {
        assert_eq!(handle_from_file_name("fast-1.json"), Some("fast-1"));
        assert_eq!(
            handle_from_file_name(&file_name(&names::pool_handle([2; 16]))),
            Some(names::pool_handle([2; 16]).as_str())
        );
        for file in ["dv-1.json", ".json", "fast-1.json.tmp", "a b.json"] {
            assert_eq!(handle_from_file_name(file), None, "{file}");
        }
    }
}
