//! One volume of the engine: its backing, its attachments, and the intent of an operation on it.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::engine::settings::StaticVolume;
use crate::engine::view::VolumeView;
use crate::error::ProvisionError;
use crate::record::formatting::FormatRecord;
use crate::record::{AttachmentsRecord, Intent, Operation, VERSION, VolumeRecord};
use crate::rules::access;
use crate::step::{Device, MountedFilesystem, ScanState};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{
    BackingKind, ProvidedAttachment, ProvidedVolume, VolumePresence,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    Image(HostPath),
    LogicalVolume { group: String, name: String },
    Device(HostPath),
    Directory(HostPath),
}

/// The reason why a volume cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// A record of the volume is unreadable: no operation changes the volume.
    #[error("{0}")]
    Unreadable(String),
    /// The pool's disk does not return a record. The volume can only be detached, by what the kernel
    /// has of it; its records are not written.
    #[error("{0}")]
    NotRead(String),
    /// The volume can only be detached.
    #[error("its own record is missing")]
    Orphan,
}

#[derive(Clone, Debug)]
pub struct Volume {
    pub handle: String,
    /// The requested name, even before the volume exists; the handle if the name is unknown.
    pub name: String,
    pub kind: BackingKind,
    pub backing: Backing,
    /// Size in bytes; 0 if it is unknown.
    pub size: u64,
    /// Set for volumes of the pool.
    pub record: Option<VolumeRecord>,
    pub device: Option<Device>,
    pub staged: Option<ProvidedAttachment>,
    pub published: Vec<ProvidedAttachment>,
    /// What permits its next mkfs, as stored on disk.
    pub format: FormatRecord,
    /// Unknown fields of the attachments' record.
    pub unknown_fields: Map<String, Value>,
    /// The intent of the running or interrupted operation, as stored on disk.
    pub intent: Option<Intent>,
    /// A step of the intent's operation may have run. Without its record no step may: a crash would
    /// leave a part that nothing names.
    pub has_begun: bool,
    /// The volume is complete and visible to callers. The actor drops a volume that neither exists
    /// nor has an intent.
    pub exists: bool,
    /// The records were compared with the host since the start of the daemon.
    pub is_reconciled: bool,
    /// The record of the attachments could not be written: recovery writes it again.
    pub is_record_outdated: bool,
    pub record_problem: Option<RecordProblem>,
    /// Of a static volume that is not attached, when it was last looked for.
    pub presence: VolumePresence,
    /// That its device is here could not be recorded yet.
    pub is_seen_unrecorded: bool,
    /// The error of the last comparison with the host.
    pub error: Option<String>,
    /// The error of the last failed recovery; it is already logged.
    pub recovery_error: Option<String>,
}

impl Volume {
    pub fn new(handle: &str, kind: BackingKind, backing: Backing) -> Volume {
        Volume {
            handle: handle.to_owned(),
            name: handle.to_owned(),
            kind,
            backing,
            size: 0,
            record: None,
            device: None,
            staged: None,
            published: Vec::new(),
            format: FormatRecord::none(handle),
            unknown_fields: Map::new(),
            intent: None,
            has_begun: false,
            exists: true,
            is_reconciled: false,
            is_record_outdated: false,
            record_problem: None,
            presence: VolumePresence::Present,
            is_seen_unrecorded: false,
            error: None,
            recovery_error: None,
        }
    }

    pub fn from_static(entry: &StaticVolume) -> Volume {
        let backing = static_backing(entry.kind, entry.path.clone());
        let mut volume = Volume::new(&entry.name, entry.kind, backing);
        volume.presence = volume.presence_without_device(entry.expected);
        volume
    }

    /// Of a static volume whose device or directory is not there, or has not been looked for.
    pub(crate) fn presence_without_device(&self, is_expected: bool) -> VolumePresence {
        let was_here = self.format.seen == self.static_path();
        if was_here || is_expected { VolumePresence::Missing } else { VolumePresence::Absent }
    }

    pub(crate) fn with_record(mut self, record: VolumeRecord) -> Volume {
        self.name.clone_from(&record.name);
        self.size = record.size;
        self.record = Some(record);
        self
    }

    pub(crate) fn is_static(&self) -> bool {
        matches!(self.kind, BackingKind::StaticDevice | BackingKind::StaticDirectory)
    }

    pub fn is_attached(&self) -> bool {
        self.staged.is_some() || !self.published.is_empty()
    }

    pub(crate) fn is_staged_at(&self, path: &HostPath) -> bool {
        self.staged.as_ref().is_some_and(|staged| staged.path == *path)
    }

    pub(crate) fn is_published_at(&self, path: &HostPath) -> bool {
        self.published.iter().any(|held| held.path == *path)
    }

    /// Whether its device is to be read for data in the background.
    pub(crate) fn is_scanning(&self) -> bool {
        let unfinished = |scan: &ScanState| !scan.is_complete() && scan.data_at.is_none();
        self.format.scan.as_ref().is_some_and(unfinished)
            && self.exists
            && !self.is_attached()
            && self.intent.is_none()
            && self.check_usable().is_ok()
    }

    pub fn attachments(&self) -> impl Iterator<Item = &ProvidedAttachment> {
        self.staged.iter().chain(&self.published)
    }

    pub(crate) fn require_device(&self) -> Result<&Device, ProvisionError> {
        self.device.as_ref().ok_or_else(|| {
            ProvisionError::Unavailable(format!("volume {} has no device", self.handle))
        })
    }

    /// The path in a static volume's entry.
    pub(crate) fn static_path(&self) -> Option<HostPath> {
        match &self.backing {
            Backing::Device(path) | Backing::Directory(path) => Some(path.clone()),
            Backing::Image(_) | Backing::LogicalVolume { .. } => None,
        }
    }

    /// Notes that the device or directory of a static volume is here, or was. Returns whether that is
    /// new.
    pub(crate) fn note_seen(&mut self) -> bool {
        let path = self.static_path();
        let is_new = path.is_some() && self.format.seen != path;
        if is_new {
            self.format.seen = path;
            self.is_seen_unrecorded = true;
        }
        is_new
    }

    pub(crate) fn attachments_record(&self) -> AttachmentsRecord {
        AttachmentsRecord {
            version: VERSION,
            handle: self.handle.clone(),
            kind: self.kind,
            static_path: self.static_path(),
            staged: self.staged.clone(),
            published: self.published.clone(),
            unknown_fields: self.unknown_fields.clone(),
        }
    }

    /// Whether a mount shows this volume. A device node is compared by its name, because it is
    /// bound from a filesystem of device nodes.
    pub(crate) fn matches_mount(&self, mounted: &MountedFilesystem) -> bool {
        if let Backing::Directory(_) = &self.backing {
            return mounted.shows_folder;
        }
        let Some(device) = &self.device else {
            return false;
        };
        let last = |bytes| <[u8]>::rsplit(bytes, |byte| *byte == b'/').next();
        let name = Some(device.name.as_bytes());
        let mapped = match &self.backing {
            // Device-mapper doubles the dashes within a part of a name (lvm(8)).
            Backing::LogicalVolume { group, name } => {
                Some(format!("{}-{}", group.replace('-', "--"), name.replace('-', "--")))
            }
            Backing::Image(_) | Backing::Device(_) | Backing::Directory(_) => None,
        };
        let source = last(mounted.source.as_bytes());
        source == name
            || last(mounted.root.as_bytes()) == name
            || mounted.source.as_bytes() == device.node.as_bytes()
            || mapped.is_some_and(|mapped| source == Some(mapped.as_bytes()))
    }

    /// Whether the volume's records allow every operation.
    pub(crate) fn check_usable(&self) -> Result<(), ProvisionError> {
        match &self.record_problem {
            None => Ok(()),
            Some(problem) => Err(ProvisionError::FailedPrecondition(format!(
                "volume {} cannot be used: {problem}",
                self.handle
            ))),
        }
    }

    /// Whether the volume's records allow at least a detach that relies on them.
    pub(crate) fn check_detachable(&self) -> Result<(), ProvisionError> {
        match &self.record_problem {
            Some(RecordProblem::Unreadable(_) | RecordProblem::NotRead(_)) => self.check_usable(),
            Some(RecordProblem::Orphan) | None => Ok(()),
        }
    }

    /// Whether it may have records that were not read.
    pub(crate) fn is_unrecorded(&self) -> bool {
        matches!(self.record_problem, Some(RecordProblem::NotRead(_)))
    }

    /// The attachment path, for messages.
    pub fn attached_at(&self) -> Option<String> {
        let staged = self.staged.iter().map(|staged| format!("staged at {}", staged.path));
        let published =
            self.published.iter().map(|held| format!("published to {}", access::describe(held)));
        let all: Vec<String> = published.chain(staged).take(4).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    pub(crate) fn to_provisioned(&self) -> ProvidedVolume {
        let backing = match &self.backing {
            Backing::Image(path) | Backing::Device(path) | Backing::Directory(path) => path.clone(),
            Backing::LogicalVolume { group, name } => {
                HostPath::from(format!("/dev/{group}/{name}").as_str())
            }
        };
        let problem = self.record_problem.as_ref().map(ToString::to_string);
        let is_idle = problem.is_none() && self.intent.is_none() && !self.is_attached();
        let unfinished = || {
            let intent = self.intent.as_ref()?;
            Some(format!(
                "{} was interrupted and has not been recovered yet",
                intent.operation.description()
            ))
        };
        ProvidedVolume {
            handle: self.handle.clone(),
            kind: self.kind,
            size: self.size,
            device: self.device.as_ref().map(|device| device.name.clone()),
            backing,
            staged: self.staged.clone(),
            published: self.published.clone(),
            presence: if is_idle { self.presence } else { VolumePresence::Present },
            error: problem.or_else(|| self.error.clone()).or_else(unfinished),
            is_unread: self.is_static() && self.is_unrecorded(),
        }
    }

    pub fn view(&self, activity: Option<watch::Receiver<String>>) -> VolumeView {
        let record = self.record.as_ref();
        let mut provided = self.to_provisioned();
        if activity.is_some() && self.record_problem.is_none() && self.error.is_none() {
            provided.error = None;
        }
        VolumeView {
            provided,
            name: self.name.clone(),
            created: record.map(|record| record.created),
            mkfs_options: record.map_or_else(String::new, |record| record.mkfs_options.clone()),
            accesses: record.map_or_else(Vec::new, |record| record.accesses.clone()),
            authorization: self.format.authorization.clone(),
            activity,
        }
    }

    /// An intent for `operation`.
    pub(crate) fn new_intent(&self, operation: Operation, now: Timestamp) -> Intent {
        Intent {
            version: VERSION,
            handle: self.handle.clone(),
            since: now,
            operation,
            formatting: false,
            device: None,
            kind: self.kind,
            static_path: self.static_path(),
        }
    }
}

pub(crate) fn static_backing(kind: BackingKind, path: HostPath) -> Backing {
    if kind == BackingKind::StaticDirectory {
        Backing::Directory(path)
    } else {
        Backing::Device(path)
    }
}
