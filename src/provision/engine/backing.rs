//! The image, logical volume or device of a volume. Each function creates, attaches, finds,
//! detaches or removes it with one step.

use crate::engine::settings::Settings;
use crate::engine::step_context::{StepContext, record_write_error};
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::tags;
use crate::step::{Device, Step, StepExecutor, Wipe};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::BackingKind;

/// The directory of images in the pool's folder.
const IMAGES_DIR: &str = "images";

impl<S: StepExecutor> StepContext<S> {
    /// Attaches the volume's device, or finds it if it is attached. None for a folder.
    pub(crate) async fn attach_device(
        &self,
        volume: &mut Volume,
        read_only: bool,
    ) -> Result<Option<Device>, ProvisionError> {
        let step = match &volume.backing {
            Backing::Image(image) => Step::AttachImage { image: image.clone(), read_only },
            Backing::LogicalVolume { group, name } => {
                Step::ActivateLogicalVolume { group: group.clone(), name: name.clone() }
            }
            Backing::Device(path) => Step::ResolveDevice { path: path.clone() },
            Backing::Directory(_) => return Ok(None),
        };
        volume.device = self.run_for_device(step).await?;
        volume.require_device().cloned().map(Some)
    }

    /// Finds the device if it still exists; a missing device is not an error. If a volume group does
    /// not answer, an attached volume keeps the device that it had.
    pub(crate) async fn find_remaining_device(
        &self,
        volume: &mut Volume,
    ) -> Result<(), ProvisionError> {
        match self.find_device(volume).await {
            Err(ProvisionError::Unavailable(_)) => {
                volume.device = None;
                Ok(())
            }
            Err(_) if volume.is_attached() && volume.device.is_some() => Ok(()),
            found => found,
        }
    }

    /// Finds the attached device.
    pub(crate) async fn find_device(&self, volume: &mut Volume) -> Result<(), ProvisionError> {
        volume.device = match &volume.backing {
            Backing::Image(image) => {
                let image = image.clone();
                self.run_for_device(Step::FindImage { image }).await?
            }
            Backing::LogicalVolume { group, name } => {
                let found = self.find_logical_volume(group, name).await?;
                found.and_then(|found| {
                    let name = found.device?;
                    Some(Device {
                        node: HostPath::from(format!("/dev/{name}").as_str()),
                        name,
                        size: found.size,
                        read_only: false,
                        identity: None,
                    })
                })
            }
            Backing::Device(path) => {
                let path = path.clone();
                self.run_for_device(Step::ResolveDevice { path }).await?
            }
            Backing::Directory(_) => None,
        };
        Ok(())
    }

    /// Detaches the device. A static volume's device is never detached.
    pub(crate) async fn detach_device(&self, volume: &mut Volume) -> Result<(), ProvisionError> {
        let step = match &volume.backing {
            Backing::Image(image) => Step::DetachImage { image: image.clone() },
            Backing::LogicalVolume { group, name } => {
                Step::DeactivateLogicalVolume { group: group.clone(), name: name.clone() }
            }
            Backing::Device(_) | Backing::Directory(_) => return Ok(()),
        };
        self.run(step).await?;
        volume.device = None;
        Ok(())
    }

    /// Creates the volume's image or logical volume, blank.
    pub(crate) async fn create_backing(&self, volume: &Volume) -> Result<(), ProvisionError> {
        let step = match (&volume.backing, &volume.record) {
            (Backing::Image(image), Some(_)) => {
                Step::CreateImage { image: image.clone(), size: volume.size }
            }
            (Backing::LogicalVolume { group, name }, Some(record)) => Step::CreateLogicalVolume {
                group: group.clone(),
                name: name.clone(),
                size: volume.size,
                tags: tags::encode(record).map_err(record_write_error)?,
            },
            _ => return Ok(()),
        };
        self.run(step).await
    }

    pub(crate) async fn remove_backing(
        &self,
        volume: &Volume,
        wipe: Wipe,
    ) -> Result<(), ProvisionError> {
        let step = match &volume.backing {
            Backing::Image(image) => Step::RemoveImage { image: image.clone(), wipe },
            Backing::LogicalVolume { group, name } => {
                Step::RemoveLogicalVolume { group: group.clone(), name: name.clone(), wipe }
            }
            Backing::Device(_) | Backing::Directory(_) => return Ok(()),
        };
        self.run(step).await
    }
}

/// The backing of a volume of the pool.
pub(crate) fn pool_backing(
    settings: &Settings,
    kind: BackingKind,
    handle: &str,
) -> Option<Backing> {
    match kind {
        BackingKind::Loop => {
            Some(Backing::Image(settings.directory.join(IMAGES_DIR).join(format!("{handle}.img"))))
        }
        BackingKind::Lvm => settings
            .volume_group
            .clone()
            .map(|group| Backing::LogicalVolume { group, name: handle.to_owned() }),
        BackingKind::StaticDevice | BackingKind::StaticDirectory => None,
    }
}
