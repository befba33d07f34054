//! The second half of an operation, after its intent is on disk: an operation that creates
//! something is undone; one that removes or grows something is finished. A detachment has no intent:
//! only its mounts and its loop device must go, and a pool on a dead disk can record nothing.
//!
//! In: a volume's copy with an intent. Out: steps, and the volume without the intent. The
//! operations themselves and `recover` call these functions; each may be repeated.

use crate::engine::attachment;
use crate::engine::step_context::{ATTACHMENTS_DIR, FORMATS_DIR, StepContext, VOLUMES_DIR};
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::{Operation, VolumeRecord};
use crate::step::{RootedPath, Step, StepExecutor, Wipe};
use diskvitals_finding::path::HostPath;
use diskvitals_text::causes::with_causes;

/// Undoes staging. No process uses a filesystem while its mkfs may be incomplete; a volume of the
/// pool becomes blank again.
pub(crate) async fn undo_stage<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("path", path)?;
    ctx.find_remaining_device(volume).await?;
    match ctx.unmount(volume, &place, Some("path"), false).await {
        // The path contains a link, so our mount is not there. A mount that remains elsewhere keeps
        // the device busy.
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
    ctx.find_remaining_device(volume).await?;
    let is_mounted = volume.staged.as_ref().is_some_and(|staged| !staged.access.block)
        && !matches!(volume.backing, Backing::Directory(_));
    if is_mounted || volume.staged.is_none() {
        unmount_own(ctx, volume, &place, field, is_mounted).await?;
    }
    if volume.published.is_empty() && (volume.staged.is_none() || volume.is_staged_at(path)) {
        ctx.detach_device(volume).await?;
    }
    let staged = volume.staged.take_if(|staged| staged.path == *path);
    if let Err(fault) = record_detachment(ctx, volume, path).await {
        volume.staged = staged.or(volume.staged.take());
        return Err(fault);
    }
    volume.error = None;
    Ok(())
}

/// Records what is still attached. The record follows the mounts: where the pool does not take it, the
/// kernel's own tables must prove that the path and, after the last detachment, the loop device are
/// free. Recovery writes the record when the pool is back; a later start finds a record without a
/// mount, and corrects it.
async fn record_detachment<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let write = async {
        ctx.write_attachments(volume).await?;
        // Growth that could not be finished is given up: no caller has received it as done.
        match &volume.intent {
            Some(intent) if matches!(intent.operation, Operation::Expand { .. }) => {
                ctx.end_operation(volume).await
            }
            _ => Ok(()),
        }
    };
    let Err(error) = ctx.with_pool_patience(write).await else {
        return Ok(());
    };
    volume.is_reconciled = false;
    confirm_detached(ctx, volume, path).await?;
    let error = with_causes(&error);
    tracing::warn!(
        volume = volume.handle,
        error,
        "a volume was detached, and the pool did not take the record; it is written when the pool is back"
    );
    Ok(())
}

async fn confirm_detached<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let image = match &volume.backing {
        Backing::Image(image) if !volume.is_attached() => Some(image),
        _ => None,
    };
    let remains = ctx.find_remains(Some(path), image, None).await?;
    let mounts = remains.mounts.iter().map(|at| format!("mounted at {at}"));
    let loops = remains.loops.iter().map(|name| format!("attached as {name}"));
    let left: Vec<String> = mounts.chain(loops).collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(ProvisionError::InUse(format!("volume {} is still {}", volume.handle, left.join(", "))))
}

/// Unmounts the volume; returns `InUse` if another filesystem is mounted there.
async fn unmount_own<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    target: &RootedPath,
    field: Option<&'static str>,
    known: bool,
) -> Result<(), ProvisionError> {
    match ctx.unmount(volume, target, field, known).await? {
        Some(other) => Err(ProvisionError::InUse(attachment::foreign_mount(&other, target))),
        None => Ok(()),
    }
}

pub(crate) async fn undo_publish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path("path", path)?;
    ctx.find_remaining_device(volume).await?;
    // At the start of the operation nothing else was mounted there.
    match ctx.unmount(volume, &place, Some("path"), true).await {
        Ok(None) => match ctx.run(Step::RemoveTarget { target: place, owner: None }).await {
            // The content existed before the publication.
            Err(ProvisionError::InUse(why)) => {
                tracing::info!(volume = volume.handle, %why, "a target is left as it was")
            }
            removed => removed?,
        },
        // Another mount is there now, or the path contains a link: our mount is not there.
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
    ctx.find_remaining_device(volume).await?;
    let known = volume.is_published_at(path);
    unmount_own(ctx, volume, &place, field, known).await?;
    let published = volume.published.clone();
    volume.published.retain(|held| held.path != *path);
    let detached = async {
        if !volume.is_attached() {
            ctx.detach_device(volume).await?;
        }
        record_detachment(ctx, volume, path).await
    };
    if let Err(fault) = detached.await {
        volume.published = published;
        return Err(fault);
    }
    ctx.run(Step::RemoveTarget { target: place, owner: None }).await
}

/// A volume exists if its record (or its tagged logical volume) exists: without one, no caller has
/// received it. An unfinished logical volume does not exist yet, because it shows earlier data of
/// its extents.
pub(crate) async fn undo_create<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if let Backing::LogicalVolume { group, name } = &volume.backing {
        let found = ctx.find_logical_volume(group, name).await?.filter(|found| !found.unfinished);
        volume.exists = found.is_some();
        volume.size = found.map_or(volume.size, |found| found.size);
    }
    if !volume.exists {
        ctx.remove_record(VOLUMES_DIR, &volume.handle).await?;
        ctx.remove_record(FORMATS_DIR, &volume.handle).await?;
        // Nothing was ever written to it.
        ctx.remove_backing(volume, Wipe::None).await?;
    }
    ctx.end_operation(volume).await
}

/// After the first step the volume may be incomplete, so deletion cannot be undone.
pub(crate) async fn finish_delete<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    ctx.detach_device(volume).await?;
    ctx.remove_backing(volume, ctx.settings.wipe).await?;
    ctx.remove_record(VOLUMES_DIR, &volume.handle).await?;
    ctx.remove_record(ATTACHMENTS_DIR, &volume.handle).await?;
    ctx.remove_record(FORMATS_DIR, &volume.handle).await?;
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
            ctx.run(Step::GrowImage { image: image.clone(), size }).await?;
            if let Some(record) = &volume.record {
                let record = VolumeRecord { size: size.max(record.size), ..record.clone() };
                ctx.write_volume_record(&record).await?;
                volume.record = Some(record);
            }
        }
        Backing::LogicalVolume { group, name } => {
            ctx.run(Step::GrowLogicalVolume { group: group.clone(), name: name.clone(), size })
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
