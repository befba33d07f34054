//! Runs the steps of one operation on one volume: reports the step in progress, and reads and
//! writes the volume's records.
//!
//! In: a volume's copy and the settings. Out: steps, one after another. It decides nothing.

use std::sync::Arc;

use tokio::sync::watch;

use crate::host::clock;
use crate::model::causes::with_causes;
use crate::model::path::HostPath;
use crate::model::provision::BackingKind;
use crate::provision::engine::settings::Settings;
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::error::ProvisionError;
use crate::provision::record::{self, Operation, VERSION, VolumeRecord, tags};
use crate::provision::rules::paths;
use crate::provision::step::{
    Content, Device, DeviceIdentity, LogicalVolume, MountedFilesystem, PoolCapacity, RecordFile,
    RootedPath, Step, StepError, StepErrorKind, StepExecutor, StepOutput, Wipe,
};

/// Where records and images lie in the pool's folder.
pub(crate) const VOLUMES_DIR: &str = "volumes";
pub(crate) const IMAGES_DIR: &str = "images";
pub(crate) const INTENTS_DIR: &str = "intents";
pub(crate) const ATTACHMENTS_DIR: &str = "attachments";
/// Whose steps the reading of records and of rooms is; and the record that says that a folder is a
/// pool.
pub(crate) const POOL_TARGET: &str = "pool";

pub(crate) struct StepContext<S> {
    executor: Arc<S>,
    pub settings: Arc<Settings>,
    /// The executor runs steps of one target one after another.
    target: String,
    /// Of the operation, for people.
    operation: &'static str,
    activity: watch::Sender<String>,
}

impl<S: StepExecutor> StepContext<S> {
    pub(crate) fn new(
        steps: Arc<S>,
        settings: Arc<Settings>,
        target: String,
        purpose: &'static str,
    ) -> (StepContext<S>, watch::Receiver<String>) {
        let (doing, told) = watch::channel(purpose.to_owned());
        (
            StepContext {
                executor: steps,
                settings,
                target,
                operation: purpose,
                activity: doing,
            },
            told,
        )
    }

    pub(crate) async fn execute(&self, step: Step) -> Result<StepOutput, StepError> {
        self.activity
            .send_replace(format!("{}: {}", self.operation, step.spec().description));
        self.executor.execute(&self.target, step).await
    }

    /// `field`: the request's field that held the step's path.
    async fn run_with_output(
        &self,
        step: Step,
        field: Option<&'static str>,
    ) -> Result<StepOutput, ProvisionError> {
        let what = step.spec().description;
        self.execute(step)
            .await
            .map_err(|error| ProvisionError::from_step(&what, field, error))
    }

    pub(crate) async fn run(&self, step: Step) -> Result<(), ProvisionError> {
        self.run_with_output(step, None).await.map(drop)
    }

    pub(crate) async fn run_for_field(
        &self,
        step: Step,
        field: &'static str,
    ) -> Result<(), ProvisionError> {
        self.run_with_output(step, Some(field)).await.map(drop)
    }

    async fn run_for_device(&self, step: Step) -> Result<Option<Device>, ProvisionError> {
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

    /// Of the pool's folder; of the one above it, where it will be made when it is needed.
    async fn directory_capacity(&self) -> Result<PoolCapacity, ProvisionError> {
        let folder = self.settings.directory.clone();
        match (
            self.run_for_capacity(Step::DirectoryCapacity {
                folder: folder.clone(),
            })
            .await,
            folder.as_path().parent(),
        ) {
            (Err(ProvisionError::Unavailable(_)), Some(above))
                if !self.settings.directory_configured =>
            {
                self.run_for_capacity(Step::DirectoryCapacity {
                    folder: HostPath::from(above),
                })
                .await
            }
            (room, _) => room,
        }
    }

    /// What the pool has left for volumes of `kind`.
    pub(crate) async fn capacity(&self, kind: BackingKind) -> Result<PoolCapacity, ProvisionError> {
        match (kind, &self.settings.volume_group) {
            (BackingKind::Loop, _) => self.directory_capacity().await,
            (BackingKind::Lvm, Some(group)) => {
                self.run_for_capacity(Step::VolumeGroupCapacity {
                    group: group.clone(),
                })
                .await
            }
            (BackingKind::Lvm | BackingKind::StaticDevice | BackingKind::StaticDirectory, _) => {
                Err(ProvisionError::invalid_argument(
                    "kind",
                    "is not configured here: [pool] volume_group is not set",
                ))
            }
        }
    }

    pub(crate) async fn probe_content(&self, device: &Device) -> Result<Content, ProvisionError> {
        match self
            .run_with_output(
                Step::ProbeContent {
                    device: device.node.clone(),
                },
                None,
            )
            .await?
        {
            StepOutput::Content(content) => Ok(content),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn find_mount(
        &self,
        target: &RootedPath,
        field: Option<&'static str>,
    ) -> Result<Option<MountedFilesystem>, ProvisionError> {
        match self
            .run_with_output(
                Step::FindMount {
                    target: target.clone(),
                },
                field,
            )
            .await?
        {
            StepOutput::Mounted { mounted } => Ok(mounted),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn read_records(
        &self,
        folder: &str,
    ) -> Result<Vec<RecordFile>, ProvisionError> {
        match self
            .run_with_output(
                Step::ReadRecords {
                    folder: self.settings.directory.join(folder),
                },
                None,
            )
            .await?
        {
            StepOutput::Records { records } => Ok(records),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn list_logical_volumes(
        &self,
        group: &str,
    ) -> Result<Vec<LogicalVolume>, ProvisionError> {
        match self
            .run_with_output(
                Step::ListLogicalVolumes {
                    group: group.to_owned(),
                    tag: tags::VOLUME_TAG.to_owned(),
                },
                None,
            )
            .await?
        {
            StepOutput::LogicalVolumes { volumes } => Ok(volumes),
            other => Err(unexpected_output(&other)),
        }
    }

    pub(crate) async fn find_logical_volume(
        &self,
        group: &str,
        name: &str,
    ) -> Result<Option<LogicalVolume>, ProvisionError> {
        Ok(self
            .list_logical_volumes(group)
            .await?
            .into_iter()
            .find(|volume| volume.name == name))
    }

    /// A path of ours, or one that a record tells: checked as a caller's is.
    pub(crate) fn rooted_path(
        &self,
        field: &'static str,
        path: &HostPath,
    ) -> Result<RootedPath, ProvisionError> {
        let text = std::str::from_utf8(path.as_bytes())
            .map_err(|_| ProvisionError::invalid_argument(field, "is no UTF-8"))?;
        paths::rooted_path(&self.settings.kubelet_root, field, text)
    }

    /// Writes down what is about to be done. It may be there whatever the step answers, so the
    /// volume has it from now on.
    pub(crate) async fn begin_operation(
        &self,
        volume: &mut Volume,
        operation: Operation,
    ) -> Result<(), ProvisionError> {
        volume.intent = Some(volume.new_intent(operation, clock::now()));
        let written = self.write_intent(volume).await;
        if let Err(fault) = written {
            // No step has begun. If this fails too, recovery removes the intent later.
            if !matches!(fault, ProvisionError::Stuck(_))
                && let Err(left) = self.end_operation(volume).await
            {
                tracing::warn!(volume = volume.handle, error = %left, "an intent that could not be written may be left");
            }
            return Err(fault);
        }
        Ok(())
    }

    /// From now on, what is on this device is our mkfs's; None: no longer so.
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
        let Some(intent) = &volume.intent else {
            return Ok(());
        };
        let text = record::write(intent).map_err(record_write_error)?;
        match self
            .write_record(INTENTS_DIR, &volume.handle, text.clone())
            .await
        {
            Err(ProvisionError::Unavailable(_)) if !self.settings.directory_configured => {
                // The first record ever: a step makes the folder that it writes into, and none
                // above it.
                let (folder, name) = (
                    self.settings.directory.clone(),
                    record::file_name(POOL_TARGET),
                );
                self.run(Step::WriteRecord {
                    folder,
                    name,
                    text: format!("{{ \"version\": {VERSION} }}\n"),
                })
                .await?;
                self.write_record(INTENTS_DIR, &volume.handle, text).await
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

    pub(crate) async fn write_attachments(&self, volume: &Volume) -> Result<(), ProvisionError> {
        if !volume.is_attached() {
            return self.remove_record(ATTACHMENTS_DIR, &volume.handle).await;
        }
        let text = record::write(&volume.attachments_record()).map_err(record_write_error)?;
        self.write_record(ATTACHMENTS_DIR, &volume.handle, text)
            .await
    }

    async fn write_record(
        &self,
        folder: &str,
        handle: &str,
        text: String,
    ) -> Result<(), ProvisionError> {
        self.run(Step::WriteRecord {
            folder: self.settings.directory.join(folder),
            name: record::file_name(handle),
            text,
        })
        .await
    }

    /// The record of a volume that lies in an image.
    pub(crate) async fn write_volume_record(
        &self,
        record: &VolumeRecord,
    ) -> Result<(), ProvisionError> {
        let text = record::write(record)
            .map_err(|error| ProvisionError::FailedPrecondition(with_causes(&error)))?;
        self.write_record(VOLUMES_DIR, &record.handle, text).await
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

    /// The volume's device, made where there is none. None for a folder.
    pub(crate) async fn attach_device(
        &self,
        volume: &mut Volume,
        read_only: bool,
    ) -> Result<Option<Device>, ProvisionError> {
        let step = match &volume.backing {
            Backing::Image(image) => Step::AttachImage {
                image: image.clone(),
                read_only,
            },
            Backing::LogicalVolume { group, name } => Step::ActivateLogicalVolume {
                group: group.clone(),
                name: name.clone(),
            },
            Backing::Device(path) => Step::ResolveDevice { path: path.clone() },
            Backing::Directory(_) => return Ok(None),
        };
        volume.device = self.run_for_device(step).await?;
        match &volume.device {
            Some(device) => Ok(Some(device.clone())),
            None => Err(ProvisionError::Unavailable(format!(
                "volume {} has no device",
                volume.handle
            ))),
        }
    }

    /// Finds the device that it has already.
    pub(crate) async fn find_device(&self, volume: &mut Volume) -> Result<(), ProvisionError> {
        volume.device = match &volume.backing {
            Backing::Image(image) => {
                self.run_for_device(Step::FindImage {
                    image: image.clone(),
                })
                .await?
            }
            Backing::LogicalVolume { group, name } => self
                .find_logical_volume(group, name)
                .await?
                .and_then(|volume| {
                    let name = volume.device?;
                    Some(Device {
                        node: HostPath::from(format!("/dev/{name}").as_str()),
                        name,
                        size: volume.size,
                        read_only: false,
                        identity: None,
                    })
                }),
            Backing::Device(path) => {
                self.run_for_device(Step::ResolveDevice { path: path.clone() })
                    .await?
            }
            Backing::Directory(_) => None,
        };
        Ok(())
    }

    /// A static volume's device is not ours to take away.
    pub(crate) async fn detach_device(&self, volume: &mut Volume) -> Result<(), ProvisionError> {
        match &volume.backing {
            Backing::Image(image) => {
                self.run(Step::DetachImage {
                    image: image.clone(),
                })
                .await?
            }
            Backing::LogicalVolume { group, name } => {
                self.run(Step::DeactivateLogicalVolume {
                    group: group.clone(),
                    name: name.clone(),
                })
                .await?
            }
            Backing::Device(_) | Backing::Directory(_) => return Ok(()),
        }
        volume.device = None;
        Ok(())
    }

    /// Makes what it lies in, with `size` bytes, blank.
    pub(crate) async fn create_backing(&self, volume: &Volume) -> Result<(), ProvisionError> {
        match (&volume.backing, &volume.record) {
            (Backing::Image(image), Some(_)) => {
                self.run(Step::CreateImage {
                    image: image.clone(),
                    size: volume.size,
                })
                .await
            }
            (Backing::LogicalVolume { group, name }, Some(record)) => {
                let tags = tags::encode(record).map_err(record_write_error)?;
                self.run(Step::CreateLogicalVolume {
                    group: group.clone(),
                    name: name.clone(),
                    size: volume.size,
                    tags,
                })
                .await
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn remove_backing(
        &self,
        volume: &Volume,
        wipe: Wipe,
    ) -> Result<(), ProvisionError> {
        match &volume.backing {
            Backing::Image(image) => {
                self.run(Step::RemoveImage {
                    image: image.clone(),
                    wipe,
                })
                .await
            }
            Backing::LogicalVolume { group, name } => {
                self.run(Step::RemoveLogicalVolume {
                    group: group.clone(),
                    name: name.clone(),
                    wipe,
                })
                .await
            }
            Backing::Device(_) | Backing::Directory(_) => Ok(()),
        }
    }

    /// Unmounts the volume; a mount of something else stays and is returned. `known`: a
    /// record says that it is there, which must do for a folder that is the whole of its
    /// filesystem.
    pub(crate) async fn unmount(
        &self,
        volume: &Volume,
        target: &RootedPath,
        field: Option<&'static str>,
        known: bool,
    ) -> Result<Option<MountedFilesystem>, ProvisionError> {
        let told = known && matches!(volume.backing, Backing::Directory(_));
        match self.find_mount(target, field).await? {
            None => Ok(None),
            Some(mounted) if !told && !volume.matches_mount(&mounted) => Ok(Some(mounted)),
            Some(_) => {
                self.run_with_output(
                    Step::Unmount {
                        target: target.clone(),
                        lazy: false,
                    },
                    field,
                )
                .await?;
                Ok(None)
            }
        }
    }
}

fn record_write_error(error: record::RecordError) -> ProvisionError {
    let source = StepError {
        kind: StepErrorKind::Other,
        message: with_causes(&error),
    };
    ProvisionError::Failed {
        operation: "writing a record".into(),
        source,
    }
}

fn unexpected_output(done: &StepOutput) -> ProvisionError {
    let source = StepError {
        kind: StepErrorKind::Other,
        message: format!("the worker answered another question: {done:?}"),
    };
    ProvisionError::Failed {
        operation: "taking a step".into(),
        source,
    }
}

/// The backing of a volume of the pool.
pub(crate) fn pool_backing(
    settings: &Settings,
    kind: BackingKind,
    handle: &str,
) -> Option<Backing> {
    match kind {
        BackingKind::Loop => Some(Backing::Image(
            settings
                .directory
                .join(IMAGES_DIR)
                .join(format!("{handle}.img")),
        )),
        BackingKind::Lvm => settings
            .volume_group
            .clone()
            .map(|group| Backing::LogicalVolume {
                group,
                name: handle.to_owned(),
            }),
        BackingKind::StaticDevice | BackingKind::StaticDirectory => None,
    }
}
