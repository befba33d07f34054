//! The second half of an operation, which begins after its intent is on disk: an operation that
//! creates something is undone, one that removes or grows something is finished.
//!
//! In: a volume's copy with an intent. Out: steps, and the volume without the intent. The
//! operations
//! themselves and `recover` call it; each function may be repeated.

use crate::model::path::HostPath;
use crate::provision::engine::attachment;
use crate::provision::engine::step_context::{ATTACHMENTS_DIR, StepContext, VOLUMES_DIR};
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::error::ProvisionError;
use crate::provision::record::VolumeRecord;
use crate::provision::step::{Step, StepExecutor, Wipe};

/// Undoes staging. A filesystem that mkfs may have begun is in nobody's use; a volume of the pool
/// is
/// made blank again.
pub(crate) async fn undo_stage<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("path", path)?;
    attachment::find_remaining_device(ctx, volume).await?;
    match ctx.unmount(volume, &place, Some("path"), false).await {
        // It leads through a link now, or did from the start: what is ours is nowhere that it
        // names. A mount that is left elsewhere holds the device.
        Err(ProvisionError::InvalidArgument { .. }) => {}
        unmounted => drop(unmounted?),
    }
    attachment::release_device(ctx, volume).await?;
    ctx.write_attachments(volume).await?;
    ctx.end_operation(volume).await
}

pub(crate) async fn finish_unstage<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
    field: Option<&'static str>,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("staging_path", path)?;
    attachment::find_remaining_device(ctx, volume).await?;
    let mounted_there = volume
        .staged
        .as_ref()
        .is_some_and(|staged| !staged.access.block)
        && !matches!(volume.backing, Backing::Directory(_));
    if (mounted_there || volume.staged.is_none())
        && let Some(other) = ctx.unmount(volume, &place, field, mounted_there).await?
    {
        return Err(ProvisionError::InUse(format!(
            "{} is mounted at {}, not this volume",
            other.source, place.path
        )));
    }
    if volume.published.is_empty()
        && volume
            .staged
            .as_ref()
            .is_none_or(|staged| staged.path == *path)
    {
        ctx.detach_device(volume).await?;
    }
    let staged = volume.staged.take_if(|staged| staged.path == *path);
    if let Err(fault) = ctx.write_attachments(volume).await {
        volume.staged = staged.or(volume.staged.take());
        return Err(fault);
    }
    volume.error = None;
    ctx.end_operation(volume).await
}

pub(crate) async fn undo_publish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("path", path)?;
    attachment::find_remaining_device(ctx, volume).await?;
    // Nothing else was mounted there when it began.
    match ctx.unmount(volume, &place, Some("path"), true).await {
        Ok(None) => match ctx.run(Step::RemoveTarget { target: place }).await {
            // What is in it was there before us.
            Err(ProvisionError::InUse(why)) => {
                tracing::info!(volume = volume.handle, %why, "a target is left as it was")
            }
            removed => removed?,
        },
        // Somebody else's is there now; or it leads through a link, and what is ours is nowhere
        // that it names.
        Ok(Some(_)) | Err(ProvisionError::InvalidArgument { .. }) => {}
        Err(fault) => return Err(fault),
    }
    attachment::release_device(ctx, volume).await?;
    ctx.write_attachments(volume).await?;
    ctx.end_operation(volume).await
}

pub(crate) async fn finish_unpublish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
    field: Option<&'static str>,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("target_path", path)?;
    attachment::find_remaining_device(ctx, volume).await?;
    let known = volume.published.iter().any(|held| held.path == *path);
    if let Some(other) = ctx.unmount(volume, &place, field, known).await? {
        return Err(ProvisionError::InUse(format!(
            "{} is mounted at {}, not this volume",
            other.source, place.path
        )));
    }
    let published = volume.published.clone();
    volume.published.retain(|held| held.path != *path);
    if let Err(fault) = ctx.write_attachments(volume).await {
        volume.published = published;
        return Err(fault);
    }
    ctx.run(Step::RemoveTarget { target: place }).await?;
    if !volume.is_attached() {
        ctx.detach_device(volume).await?;
    }
    ctx.end_operation(volume).await
}

/// The record (or the tagged logical volume, which is the same) is what makes it: without one
/// nobody was told of it. A logical volume that is not finished shows what others have left on its
/// extents: it is none yet.
pub(crate) async fn undo_create<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if let Backing::LogicalVolume { group, name } = &volume.backing {
        let found = ctx
            .find_logical_volume(group, name)
            .await?
            .filter(|found| !found.unfinished);
        volume.exists = found.is_some();
        volume.size = found.map_or(volume.size, |found| found.size);
    }
    if !volume.exists {
        ctx.remove_record(VOLUMES_DIR, &volume.handle).await?;
        // Nothing was ever written into it.
        ctx.remove_backing(volume, Wipe::None).await?;
    }
    ctx.end_operation(volume).await
}

/// After the first step the volume may be incomplete, so that deletion cannot be undone.
pub(crate) async fn finish_delete<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    ctx.detach_device(volume).await?;
    ctx.remove_backing(volume, ctx.settings.wipe).await?;
    ctx.remove_record(VOLUMES_DIR, &volume.handle).await?;
    ctx.remove_record(ATTACHMENTS_DIR, &volume.handle).await?;
    volume.exists = false;
    ctx.end_operation(volume).await
}

/// Grows the image or the logical volume, and updates its record. Idempotent.
pub(crate) async fn grow_device<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    size: u64,
) -> Result<(), ProvisionError> {
    match &volume.backing {
        Backing::Image(image) => {
            ctx.run(Step::GrowImage {
                image: image.clone(),
                size,
            })
            .await?;
            if let Some(record) = &volume.record {
                let record = VolumeRecord {
                    size: size.max(record.size),
                    ..record.clone()
                };
                ctx.write_volume_record(&record).await?;
                volume.record = Some(record);
            }
        }
        Backing::LogicalVolume { group, name } => {
            ctx.run(Step::GrowLogicalVolume {
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
