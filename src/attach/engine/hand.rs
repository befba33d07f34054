//! The hand that takes one operation's steps: what is taken is told in `doing`, and records are
//! written through it.
//!
//! In: a volume's copy, the terms. Out: steps, one after another. It decides nothing.

use std::sync::Arc;

use tokio::sync::watch;

use crate::attach::engine::Settings;
use crate::attach::engine::volume::{Backing, Volume};
use crate::attach::fault::Fault;
use crate::attach::record::{self, Operation, VERSION, tags};
use crate::attach::rules::paths;
use crate::attach::step::{
    Content, Device, Done, Identity, LogicalVolume, Mounted, Place, Record, Room, Step, StepError,
    Steps, Trouble, Wipe,
};
use crate::host::clock;
use crate::model::attach::Kind;
use crate::model::path::HostPath;

/// Where records and images lie in the pool's folder.
pub const VOLUMES: &str = "volumes";
pub const IMAGES: &str = "images";
pub const INTENTS: &str = "intents";
pub const ATTACHMENTS: &str = "attachments";
/// Whose steps the reading of records and of rooms is; and the record that says that a folder is a
/// pool.
pub const POOL: &str = "pool";

pub struct Hand<S> {
    steps: Arc<S>,
    pub settings: Arc<Settings>,
    /// Whose steps are taken one after another.
    target: String,
    /// Of the operation, for people.
    purpose: &'static str,
    doing: watch::Sender<String>,
}

impl<S: Steps> Hand<S> {
    pub fn new(
        steps: Arc<S>,
        settings: Arc<Settings>,
        target: String,
        purpose: &'static str,
    ) -> (Hand<S>, watch::Receiver<String>) {
        let (doing, told) = watch::channel(purpose.to_owned());
        (
            Hand {
                steps,
                settings,
                target,
                purpose,
                doing,
            },
            told,
        )
    }

    pub async fn take(&self, step: Step) -> Result<Done, StepError> {
        self.doing
            .send_replace(format!("{}: {}", self.purpose, step.about().words));
        self.steps.take(&self.target, step).await
    }

    /// `field`: the request's field that held the step's path.
    async fn fault_of(&self, step: Step, field: Option<&'static str>) -> Result<Done, Fault> {
        let what = step.about().words;
        self.take(step)
            .await
            .map_err(|error| Fault::of_step(&what, field, error))
    }

    pub async fn step(&self, step: Step) -> Result<(), Fault> {
        self.fault_of(step, None).await.map(drop)
    }

    pub async fn step_at(&self, step: Step, field: &'static str) -> Result<(), Fault> {
        self.fault_of(step, Some(field)).await.map(drop)
    }

    pub async fn device(&self, step: Step) -> Result<Option<Device>, Fault> {
        match self.fault_of(step, None).await? {
            Done::Device(device) => Ok(Some(device)),
            Done::Nothing => Ok(None),
            other => Err(strange(&other)),
        }
    }

    pub async fn room(&self, step: Step) -> Result<Room, Fault> {
        match self.fault_of(step, None).await? {
            Done::Room(room) => Ok(room),
            other => Err(strange(&other)),
        }
    }

    /// Of the pool's folder; of the one above it, where it will be made when it is needed.
    pub async fn folder_room(&self) -> Result<Room, Fault> {
        let folder = self.settings.folder.clone();
        match (
            self.room(Step::FolderRoom {
                folder: folder.clone(),
            })
            .await,
            folder.as_path().parent(),
        ) {
            (Err(Fault::Unavailable(_)), Some(above)) if !self.settings.folder_given => {
                self.room(Step::FolderRoom {
                    folder: HostPath::from(above),
                })
                .await
            }
            (room, _) => room,
        }
    }

    pub async fn content(&self, device: &Device) -> Result<Content, Fault> {
        match self
            .fault_of(
                Step::LookAt {
                    device: device.node.clone(),
                },
                None,
            )
            .await?
        {
            Done::Content(content) => Ok(content),
            other => Err(strange(&other)),
        }
    }

    pub async fn mounted(
        &self,
        target: &Place,
        field: Option<&'static str>,
    ) -> Result<Option<Mounted>, Fault> {
        match self
            .fault_of(
                Step::WhatIsMounted {
                    target: target.clone(),
                },
                field,
            )
            .await?
        {
            Done::Mounted { mounted } => Ok(mounted),
            other => Err(strange(&other)),
        }
    }

    pub async fn records(&self, folder: &str) -> Result<Vec<Record>, Fault> {
        match self
            .fault_of(
                Step::ReadRecords {
                    folder: self.settings.folder.join(folder),
                },
                None,
            )
            .await?
        {
            Done::Records { records } => Ok(records),
            other => Err(strange(&other)),
        }
    }

    pub async fn logical_volumes(&self, group: &str) -> Result<Vec<LogicalVolume>, Fault> {
        match self
            .fault_of(
                Step::LogicalVolumes {
                    group: group.to_owned(),
                    tag: tags::MARK.to_owned(),
                },
                None,
            )
            .await?
        {
            Done::LogicalVolumes { volumes } => Ok(volumes),
            other => Err(strange(&other)),
        }
    }

    pub async fn logical_volume(
        &self,
        group: &str,
        name: &str,
    ) -> Result<Option<LogicalVolume>, Fault> {
        Ok(self
            .logical_volumes(group)
            .await?
            .into_iter()
            .find(|volume| volume.name == name))
    }

    /// A path of ours, or one that a record tells: checked as a caller's is.
    pub fn place(&self, field: &'static str, path: &HostPath) -> Result<Place, Fault> {
        let text = std::str::from_utf8(path.as_bytes())
            .map_err(|_| Fault::invalid(field, "is no UTF-8"))?;
        paths::place(&self.settings.kubelet_root, field, text)
    }

    /// Writes down what is about to be done. It may be there whatever the step answers, so the
    /// volume has it from now on.
    pub async fn intend(&self, volume: &mut Volume, operation: Operation) -> Result<(), Fault> {
        volume.intent = Some(volume.intent(operation, clock::now()));
        let written = self.write_intent(volume).await;
        if let Err(fault) = written {
            // Nothing else was begun. Where this fails as well, it is settled later.
            if !matches!(fault, Fault::Stuck(_))
                && let Err(left) = self.done(volume).await
            {
                tracing::warn!(volume = volume.handle, error = %left, "an intent that could not be written may be left");
            }
            return Err(fault);
        }
        Ok(())
    }

    /// From now on, what is on this device is our mkfs's; None: no longer so.
    pub async fn formatting(
        &self,
        volume: &mut Volume,
        device: Option<Identity>,
    ) -> Result<(), Fault> {
        if let Some(intent) = &mut volume.intent {
            (intent.formatting, intent.device) = (device.is_some(), device);
        }
        self.write_intent(volume).await
    }

    async fn write_intent(&self, volume: &Volume) -> Result<(), Fault> {
        let Some(intent) = &volume.intent else {
            return Ok(());
        };
        let text = record::write(intent).map_err(unwritable)?;
        match self.write(INTENTS, &volume.handle, text.clone()).await {
            Err(Fault::Unavailable(_)) if !self.settings.folder_given => {
                // The first record ever: a step makes the folder that it writes into, and none
                // above it.
                let (folder, name) = (self.settings.folder.clone(), record::file_name(POOL));
                self.step(Step::WriteRecord {
                    folder,
                    name,
                    text: format!("{{ \"version\": {VERSION} }}\n"),
                })
                .await?;
                self.write(INTENTS, &volume.handle, text).await
            }
            written => written,
        }
    }

    /// Nothing is about to be done any more.
    pub async fn done(&self, volume: &mut Volume) -> Result<(), Fault> {
        self.remove(INTENTS, &volume.handle).await?;
        volume.intent = None;
        Ok(())
    }

    pub async fn write_attachments(&self, volume: &Volume) -> Result<(), Fault> {
        if !volume.is_attached() {
            return self.remove(ATTACHMENTS, &volume.handle).await;
        }
        let text = record::write(&volume.attachments()).map_err(unwritable)?;
        self.write(ATTACHMENTS, &volume.handle, text).await
    }

    pub async fn write(&self, folder: &str, handle: &str, text: String) -> Result<(), Fault> {
        self.step(Step::WriteRecord {
            folder: self.settings.folder.join(folder),
            name: record::file_name(handle),
            text,
        })
        .await
    }

    pub async fn remove(&self, folder: &str, handle: &str) -> Result<(), Fault> {
        self.step(Step::RemoveRecord {
            folder: self.settings.folder.join(folder),
            name: record::file_name(handle),
        })
        .await
    }

    /// The volume's device, made where there is none. None for a folder.
    pub async fn attach(
        &self,
        volume: &mut Volume,
        read_only: bool,
    ) -> Result<Option<Device>, Fault> {
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
            Backing::Folder(_) => return Ok(None),
        };
        volume.device = self.device(step).await?;
        match &volume.device {
            Some(device) => Ok(Some(device.clone())),
            None => Err(Fault::Unavailable(format!(
                "volume {} has no device",
                volume.handle
            ))),
        }
    }

    /// Finds the device that it has already.
    pub async fn find(&self, volume: &mut Volume) -> Result<(), Fault> {
        volume.device = match &volume.backing {
            Backing::Image(image) => {
                self.device(Step::FindImage {
                    image: image.clone(),
                })
                .await?
            }
            Backing::LogicalVolume { group, name } => {
                self.logical_volume(group, name).await?.and_then(|volume| {
                    let name = volume.device?;
                    Some(Device {
                        node: HostPath::from(format!("/dev/{name}").as_str()),
                        name,
                        size: volume.size,
                        read_only: false,
                        identity: None,
                    })
                })
            }
            Backing::Device(path) => {
                self.device(Step::ResolveDevice { path: path.clone() })
                    .await?
            }
            Backing::Folder(_) => None,
        };
        Ok(())
    }

    /// A static volume's device is not ours to take away.
    pub async fn detach(&self, volume: &mut Volume) -> Result<(), Fault> {
        match &volume.backing {
            Backing::Image(image) => {
                self.step(Step::DetachImage {
                    image: image.clone(),
                })
                .await?
            }
            Backing::LogicalVolume { group, name } => {
                self.step(Step::DeactivateLogicalVolume {
                    group: group.clone(),
                    name: name.clone(),
                })
                .await?
            }
            Backing::Device(_) | Backing::Folder(_) => return Ok(()),
        }
        volume.device = None;
        Ok(())
    }

    /// Makes what it lies in, with `size` bytes, blank.
    pub async fn make(&self, volume: &Volume) -> Result<(), Fault> {
        match (&volume.backing, &volume.record) {
            (Backing::Image(image), Some(_)) => {
                self.step(Step::MakeImage {
                    image: image.clone(),
                    size: volume.size,
                })
                .await
            }
            (Backing::LogicalVolume { group, name }, Some(record)) => {
                let tags = tags::write(record).map_err(unwritable)?;
                self.step(Step::MakeLogicalVolume {
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

    pub async fn unmake(&self, volume: &Volume, wipe: Wipe) -> Result<(), Fault> {
        match &volume.backing {
            Backing::Image(image) => {
                self.step(Step::RemoveImage {
                    image: image.clone(),
                    wipe,
                })
                .await
            }
            Backing::LogicalVolume { group, name } => {
                self.step(Step::RemoveLogicalVolume {
                    group: group.clone(),
                    name: name.clone(),
                    wipe,
                })
                .await
            }
            Backing::Device(_) | Backing::Folder(_) => Ok(()),
        }
    }

    /// Unmounts it where it is mounted; what else is mounted there stays, and is told. `known`: a
    /// record says that it is there, which must do for a folder that is the whole of its
    /// filesystem.
    pub async fn unmount(
        &self,
        volume: &Volume,
        target: &Place,
        field: Option<&'static str>,
        known: bool,
    ) -> Result<Option<Mounted>, Fault> {
        let told = known && matches!(volume.backing, Backing::Folder(_));
        match self.mounted(target, field).await? {
            None => Ok(None),
            Some(mounted) if !told && !volume.is_mounted_as(&mounted) => Ok(Some(mounted)),
            Some(_) => {
                self.fault_of(
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

fn unwritable(error: record::RecordError) -> Fault {
    let source = StepError {
        kind: Trouble::Failed,
        message: crate::model::causes::with_causes(&error),
    };
    Fault::Failed {
        operation: "writing a record".into(),
        source,
    }
}

fn strange(done: &Done) -> Fault {
    let source = StepError {
        kind: Trouble::Failed,
        message: format!("the worker answered another question: {done:?}"),
    };
    Fault::Failed {
        operation: "taking a step".into(),
        source,
    }
}

/// The backing of a volume of the pool.
pub fn pool_backing(settings: &Settings, kind: Kind, handle: &str) -> Option<Backing> {
    match kind {
        Kind::Loop => Some(Backing::Image(
            settings.folder.join(IMAGES).join(format!("{handle}.img")),
        )),
        Kind::Lvm => settings.group.clone().map(|group| Backing::LogicalVolume {
            group,
            name: handle.to_owned(),
        }),
        Kind::StaticDevice | Kind::StaticDirectory => None,
    }
}
