//! Runs the steps of one operation on one volume: reports the step in progress, and reads and
//! writes the volume's records.
//!
//! In: a volume's copy and the settings. Out: steps, one after another. It makes no decisions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use crate::engine::settings::Settings;
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::formatting::FormatRecord;
use crate::record::{self, Operation, RecordError, VERSION, VolumeRecord, tags};
use crate::rules::paths;
use crate::step::{
    Content, Device, DeviceIdentity, LogicalVolume, MountedFilesystem, PathOwner, PathRole,
    PoolCapacity, RecordFile, Remains, RootedPath, ScanState, Step, StepError, StepErrorKind,
    StepExecutor, StepOutput,
};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::BackingKind;
use diskvitals_host::clock;
use diskvitals_text::causes::with_causes;

/// Directories of records in the pool's folder.
pub(crate) const VOLUMES_DIR: &str = "volumes";
pub(crate) const INTENTS_DIR: &str = "intents";
pub(crate) const ATTACHMENTS_DIR: &str = "attachments";
pub(crate) const FORMATS_DIR: &str = "formats";
/// The target of steps for the whole pool, and the name of the record that marks a folder as a
/// pool.
pub(crate) const POOL_TARGET: &str = "pool";

/// A write that can be repeated later waits this long for a pool that may hang. Callers give a
/// detachment two minutes.
const POOL_PATIENCE: Duration = Duration::from_secs(10);

/// The target of a volume's steps that wait for the pool alone.
fn pool_target(target: &str) -> String {
    match target {
        POOL_TARGET => target.to_owned(),
        handle => format!("{handle} in the pool"),
    }
}

pub struct StepContext<S> {
    executor: Arc<S>,
    pub settings: Arc<Settings>,
    /// The executor runs steps of one target one after another.
    target: String,
    /// The target of steps that wait for the pool alone.
    pool_target: String,
    /// A description of the operation for messages.
    operation: &'static str,
    activity: watch::Sender<String>,
}

impl<S: StepExecutor> StepContext<S> {
    pub fn new(
        executor: Arc<S>,
        settings: Arc<Settings>,
        target: &str,
        operation: &'static str,
    ) -> (StepContext<S>, watch::Receiver<String>) {
        let (activity, receiver) = watch::channel(operation.to_owned());
        let context = StepContext {
            executor,
            settings,
            target: target.to_owned(),
            pool_target: pool_target(target),
            operation,
            activity,
        };
        (context, receiver)
    }

    pub async fn execute(&self, step: Step) -> Result<StepOutput, StepError> {
        self.activity.send_replace(format!("{}: {}", self.operation, step.description()));
        let target = match step.waits_for_pool() {
            true => &self.pool_target,
            false => &self.target,
        };
        self.executor.execute(target, step).await
    }

    /// `field` is the request's field with the step's path.
    async fn run_with_output(
        &self,
        step: Step,
        field: Option<&'static str>,
    ) -> Result<StepOutput, ProvisionError> {
        let operation = step.description();
        self.execute(step)
            .await
            .map_err(|error| ProvisionError::from_step(&operation, field, error))
    }

    pub async fn run(&self, step: Step) -> Result<(), ProvisionError> {
        self.run_with_output(step, None).await.map(drop)
    }

    pub(crate) async fn run_for_field(
        &self,
        step: Step,
        field: &'static str,
    ) -> Result<(), ProvisionError> {
        self.run_with_output(step, Some(field)).await.map(drop)
    }

    pub(super) async fn run_for_device(
        &self,
        step: Step,
    ) -> Result<Option<Device>, ProvisionError> {
        match self.run_with_output(step, None).await? {
            StepOutput::Device(device) => Ok(Some(device)),
            StepOutput::Empty => Ok(None),
            other => Err(unexpected_output(&other)),
        }
    }

    async fn run_for_capacity(&self, step: Step) -> Result<PoolCapacity, ProvisionError> {
        match self.run_with_output(step, None).await? {
            StepOutput::Capacity(room) => Ok(room),
            other => Err(unexpected_output(&other)),
        }
    }

    /// The capacity of the pool's folder, or of its parent if the folder is created on demand.
    async fn directory_capacity(&self) -> Result<PoolCapacity, ProvisionError> {
        let folder = self.settings.directory.clone();
        let parent = folder.as_path().parent().map(HostPath::from);
        match (self.run_for_capacity(Step::DirectoryCapacity { folder }).await, parent) {
            (Err(ProvisionError::Unavailable(_)), Some(folder))
                if !self.settings.directory_configured =>
            {
                self.run_for_capacity(Step::DirectoryCapacity { folder }).await
            }
            (capacity, _) => capacity,
        }
    }

    /// The space that the pool has left for volumes of `kind`.
    pub async fn capacity(&self, kind: BackingKind) -> Result<PoolCapacity, ProvisionError> {
        match (kind, &self.settings.volume_group) {
            (BackingKind::Loop, _) => self.directory_capacity().await,
            (BackingKind::Lvm, Some(group)) => {
                let group = group.clone();
                self.run_for_capacity(Step::VolumeGroupCapacity { group }).await
            }
            (BackingKind::Lvm | BackingKind::StaticDevice | BackingKind::StaticDirectory, _) => {
                Err(no_volume_group())
            }
        }
    }

    pub async fn probe_content(&self, device: &Device) -> Result<Content, ProvisionError> {
        let step = Step::ProbeContent { device: device.node.clone() };
        match self.run_with_output(step, None).await? {
            StepOutput::Content(content) => Ok(content),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn run_for_scan(&self, step: Step) -> Result<ScanState, ProvisionError> {
        match self.run_with_output(step, None).await? {
            StepOutput::Scanned(state) => Ok(state),
            other => Err(unexpected_output(&other)),
        }
    }

    /// The mount at a path, which is perhaps the volume's.
    pub(crate) async fn find_mount(
        &self,
        volume: &Volume,
        target: &RootedPath,
        field: Option<&'static str>,
    ) -> Result<Option<MountedFilesystem>, ProvisionError> {
        let folder = match &volume.backing {
            Backing::Directory(path) => Some(path.clone()),
            Backing::Device(_) | Backing::Image(_) | Backing::LogicalVolume { .. } => None,
        };
        let step = Step::FindMount { target: target.clone(), folder };
        match self.run_with_output(step, field).await? {
            StepOutput::Mounted { mounted } => Ok(mounted),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn read_records(
        &self,
        folder: &str,
    ) -> Result<Vec<RecordFile>, ProvisionError> {
        let step = Step::ReadRecords { folder: self.settings.directory.join(folder) };
        match self.run_with_output(step, None).await? {
            StepOutput::Records { records } => Ok(records),
            other => Err(unexpected_output(&other)),
        }
    }

    pub async fn list_logical_volumes(
        &self,
        group: &str,
    ) -> Result<Vec<LogicalVolume>, ProvisionError> {
        let step =
            Step::ListLogicalVolumes { group: group.to_owned(), tag: tags::VOLUME_TAG.to_owned() };
        match self.run_with_output(step, None).await? {
            StepOutput::LogicalVolumes { volumes } => Ok(volumes),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn find_logical_volume(
        &self,
        group: &str,
        name: &str,
    ) -> Result<Option<LogicalVolume>, ProvisionError> {
        let volumes = self.list_logical_volumes(group).await?;
        Ok(volumes.into_iter().find(|volume| volume.name == name))
    }

    /// Checks a path from the engine or from a record like a caller's path.
    pub(crate) fn rooted_path(
        &self,
        field: &'static str,
        path: &HostPath,
    ) -> Result<RootedPath, ProvisionError> {
        let text = std::str::from_utf8(path.as_bytes())
            .map_err(|_| ProvisionError::invalid_argument(field, "is no UTF-8"))?;
        paths::rooted_path(&self.settings.kubelet_root, field, text)
    }

    /// What a path must belong to.
    pub(crate) fn path_owner(
        &self,
        volume: &Volume,
        role: PathRole,
        block: Option<bool>,
    ) -> PathOwner {
        PathOwner {
            driver: self.settings.driver.clone(),
            handle: volume.handle.clone(),
            role,
            block,
        }
    }

    /// Writes the intent of an operation. The record may exist whatever the step returns, so the
    /// volume keeps the intent in either case. After an error no step of the operation has begun.
    pub(crate) async fn begin_operation(
        &self,
        volume: &mut Volume,
        operation: Operation,
    ) -> Result<(), ProvisionError> {
        volume.intent = Some(volume.new_intent(operation, clock::wall_now()));
        let written = self.write_intent(volume).await;
        volume.has_begun = written.is_ok();
        // If this removal fails too, recovery removes the intent later.
        if !matches!(written, Ok(()) | Err(ProvisionError::Stuck(_)))
            && let Err(error) = self.end_operation(volume).await
        {
            tracing::warn!(volume = volume.handle, %error, "an intent that could not be written may be left");
        }
        written
    }

    /// Records that mkfs is about to write to this device; None: mkfs has ended.
    pub(crate) async fn set_formatting(
        &self,
        volume: &mut Volume,
        device: Option<DeviceIdentity>,
    ) -> Result<(), ProvisionError> {
        if let Some(intent) = &mut volume.intent {
            (intent.formatting, intent.device) = (device.is_some(), device);
        }
        self.write_intent(volume).await
    }

    async fn write_intent(&self, volume: &Volume) -> Result<(), ProvisionError> {
        match &volume.intent {
            Some(intent) => self.write_first_record(INTENTS_DIR, &volume.handle, intent).await,
            None => Ok(()),
        }
    }

    /// Writes a record that may be the first of the pool.
    async fn write_first_record(
        &self,
        folder: &str,
        handle: &str,
        record: &impl Serialize,
    ) -> Result<(), ProvisionError> {
        match self.write_record(folder, handle, record).await {
            Err(ProvisionError::Unavailable(_)) if !self.settings.directory_configured => {
                // A step creates the folder that it writes to, but not the folder's parent.
                self.run(Step::WriteRecord {
                    folder: self.settings.directory.clone(),
                    name: record::file_name(POOL_TARGET),
                    text: format!("{{ \"version\": {VERSION} }}\n"),
                })
                .await?;
                self.write_record(folder, handle, record).await
            }
            written => written,
        }
    }

    /// Removes the intent.
    pub(crate) async fn end_operation(&self, volume: &mut Volume) -> Result<(), ProvisionError> {
        self.remove_record(INTENTS_DIR, &volume.handle).await?;
        volume.intent = None;
        Ok(())
    }

    /// After an error the record on disk may be the old or the new one.
    pub(crate) async fn write_attachments(
        &self,
        volume: &mut Volume,
    ) -> Result<(), ProvisionError> {
        if volume.is_unrecorded() {
            // They may list more than the kernel still has.
            volume.check_usable()?;
        }
        volume.is_record_outdated = true;
        let handle = volume.handle.clone();
        if volume.is_attached() {
            volume.note_seen();
            let record = volume.attachments_record();
            self.write_record(ATTACHMENTS_DIR, &handle, &record).await?;
        } else {
            self.remove_record(ATTACHMENTS_DIR, &handle).await?;
        }
        volume.is_record_outdated = false;
        Ok(())
    }

    /// Awaits a write that can be repeated later, but not a pool that hangs. A started step continues.
    pub(crate) async fn with_pool_patience(
        &self,
        write: impl Future<Output = Result<(), ProvisionError>>,
    ) -> Result<(), ProvisionError> {
        tokio::time::timeout(POOL_PATIENCE, write).await.unwrap_or_else(|_| {
            Err(ProvisionError::Stuck(format!(
                "the pool {} has not answered for {} s",
                self.settings.directory,
                POOL_PATIENCE.as_secs()
            )))
        })
    }

    pub(crate) async fn find_remains(
        &self,
        at: Option<&HostPath>,
        image: Option<&HostPath>,
        device: Option<&str>,
    ) -> Result<Remains, ProvisionError> {
        let step = Step::FindRemains {
            at: at.cloned(),
            image: image.cloned(),
            device: device.map(str::to_owned),
        };
        match self.run_with_output(step, None).await? {
            StepOutput::Remains(remains) => Ok(remains),
            other => Err(unexpected_output(&other)),
        }
    }

    async fn write_record(
        &self,
        folder: &str,
        handle: &str,
        record: &impl Serialize,
    ) -> Result<(), ProvisionError> {
        self.run(Step::WriteRecord {
            folder: self.settings.directory.join(folder),
            name: record::file_name(handle),
            text: record::write(record).map_err(record_write_error)?,
        })
        .await
    }

    pub(crate) async fn write_format_record(
        &self,
        handle: &str,
        record: &FormatRecord,
    ) -> Result<(), ProvisionError> {
        if record.is_empty() {
            return self.remove_record(FORMATS_DIR, handle).await;
        }
        self.write_first_record(FORMATS_DIR, handle, record).await
    }

    /// The record of a volume in an image.
    pub(crate) async fn write_volume_record(
        &self,
        record: &VolumeRecord,
    ) -> Result<(), ProvisionError> {
        self.write_record(VOLUMES_DIR, &record.handle, record).await
    }

    pub(crate) async fn remove_record(
        &self,
        folder: &str,
        handle: &str,
    ) -> Result<(), ProvisionError> {
        self.run(Step::RemoveRecord {
            folder: self.settings.directory.join(folder),
            name: record::file_name(handle),
        })
        .await
    }

    /// Unmounts the volume; a foreign mount stays and is returned. `known` means that a record
    /// lists the mount: the only evidence for a folder whose own mount is gone, and for a static
    /// device that was removed.
    pub async fn unmount(
        &self,
        volume: &Volume,
        target: &RootedPath,
        field: Option<&'static str>,
        known: bool,
    ) -> Result<Option<MountedFilesystem>, ProvisionError> {
        let recorded = known
            && match &volume.backing {
                Backing::Directory(_) => true,
                Backing::Device(_) => volume.device.is_none(),
                Backing::Image(_) | Backing::LogicalVolume { .. } => false,
            };
        match self.find_mount(volume, target, field).await? {
            None => Ok(None),
            Some(mounted) if !recorded && !volume.matches_mount(&mounted) => Ok(Some(mounted)),
            Some(_) => {
                let step = Step::Unmount { target: target.clone(), lazy: false };
                self.run_with_output(step, field).await.map(|_| None)
            }
        }
    }
}

pub(crate) fn record_write_error(error: RecordError) -> ProvisionError {
    let error = StepError::new(StepErrorKind::Other, with_causes(&error));
    ProvisionError::from_step("writing a record", None, error)
}

fn unexpected_output(output: &StepOutput) -> ProvisionError {
    let error = StepError::new(StepErrorKind::Other, format!("unexpected output: {output:?}"));
    ProvisionError::from_step("executing a step", None, error)
}

pub(crate) fn no_volume_group() -> ProvisionError {
    ProvisionError::invalid_argument(
        "kind",
        "is not configured here: [pool] volume_group is not set",
    )
}
