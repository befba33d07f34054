//! Growing: the volume, and where it is mounted, the filesystem on it.

use crate::model::provision::ProvidedAttachment;
use crate::provision::engine::step_context::{StepContext, VOLUMES_DIR};
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::engine::{ExpandRequest, ExpandResponse, pool};
use crate::provision::error::ProvisionError;
use crate::provision::record::Operation;
use crate::provision::step::{Step, StepExecutor};

pub async fn expand<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    wish: &ExpandRequest,
) -> Result<ExpandResponse, ProvisionError> {
    volume.check_usable()?;
    if let Some(path) = &wish.volume_path
        && !volume
            .staged
            .iter()
            .chain(&volume.published)
            .any(|held| held.path.as_bytes() == path.as_bytes())
    {
        return Err(ProvisionError::NotFound(format!(
            "volume {} is not at the path that volume_path names",
            volume.handle
        )));
    }
    if matches!(volume.backing, Backing::Directory(_)) {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is a folder: it has no size of its own",
            volume.handle
        )));
    }
    if volume.is_static() {
        // Somebody else may have grown it; nobody does so here.
        hand.find_device(volume).await?;
        volume.size = volume.device.as_ref().map_or(0, |device| device.size);
        if wish.range.size_for_growth(volume.size, 1)? > volume.size {
            return Err(ProvisionError::OutOfRange(format!(
                "volume {} has {} bytes, and is not ours to grow",
                volume.handle, volume.size
            )));
        }
    } else {
        let room = pool::capacity(hand, volume.kind).await?;
        let size = wish.range.size_for_growth(volume.size, room.unit)?;
        if size > volume.size {
            let more = size - volume.size;
            if more > room.available {
                return Err(ProvisionError::ResourceExhausted(format!(
                    "{more} bytes more are wanted, the pool has {} left",
                    room.available
                )));
            }
            hand.begin_operation(volume, Operation::Expand { size })
                .await?;
            let grown = grow_device(hand, volume, size).await;
            if let Err(ProvisionError::ResourceExhausted(_)) | Ok(()) = &grown {
                // Not one byte more, or all of them.
                hand.end_operation(volume).await?;
            }
            grown?;
        }
    }
    let mounted: Option<ProvidedAttachment> = volume
        .staged
        .iter()
        .chain(&volume.published)
        .find(|held| !held.access.block)
        .cloned();
    let only_block = volume.staged.is_some() || !volume.published.is_empty();
    let never_mounted = volume.record.as_ref().is_some_and(|record| {
        !record.accesses.is_empty() && record.accesses.iter().all(|access| access.block)
    });
    let node_expansion_required = match &mounted {
        Some(at) if !wish.device_only => {
            grow_filesystem(hand, volume, at).await?;
            false
        }
        Some(_) => true,
        None => !only_block && !never_mounted,
    };
    Ok(ExpandResponse {
        size: volume.size,
        node_expansion_required,
    })
}

/// The image or the logical volume, and its record. Again is as good as once.
pub async fn grow_device<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    size: u64,
) -> Result<(), ProvisionError> {
    match &volume.backing {
        Backing::Image(image) => {
            hand.run(Step::GrowImage {
                image: image.clone(),
                size,
            })
            .await?;
            if let Some(record) = &volume.record {
                let record = crate::provision::record::VolumeRecord {
                    size: size.max(record.size),
                    ..record.clone()
                };
                hand.write_record(VOLUMES_DIR, &volume.handle, pool::record_text(&record)?)
                    .await?;
                volume.record = Some(record);
            }
        }
        Backing::LogicalVolume { group, name } => {
            hand.run(Step::GrowLogicalVolume {
                group: group.clone(),
                name: name.clone(),
                size,
            })
            .await?;
        }
        Backing::Device(_) | Backing::Directory(_) => return Ok(()),
    }
    volume.size = size.max(volume.size);
    if let Some(device) = &mut volume.device {
        device.size = volume.size;
    }
    Ok(())
}

async fn grow_filesystem<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    at: &ProvidedAttachment,
) -> Result<(), ProvisionError> {
    if at.read_only {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is mounted read-only at {}: its filesystem cannot be grown",
            volume.handle, at.path
        )));
    }
    let place = hand.rooted_path("volume_path", &at.path)?;
    let Some(mounted) = hand.find_mount(&place, None).await? else {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is not mounted at {} any more",
            volume.handle, at.path
        )));
    };
    hand.find_device(volume).await?;
    let Some(device) = &volume.device else {
        return Err(ProvisionError::Unavailable(format!(
            "volume {} has no device",
            volume.handle
        )));
    };
    hand.run(Step::GrowFilesystem {
        device: device.node.clone(),
        at: place,
        fs_type: mounted.fs_type,
    })
    .await
}
