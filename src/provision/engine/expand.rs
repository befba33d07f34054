//! Expansion of a volume, and of its filesystem where it is mounted.

use crate::engine::completion;
use crate::engine::request::{ExpandRequest, ExpandResponse};
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::Operation;
use crate::step::{Step, StepExecutor};
use diskvitals_finding::provision::ProvidedAttachment;

pub async fn expand<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    request: &ExpandRequest,
) -> Result<ExpandResponse, ProvisionError> {
    volume.check_usable()?;
    if let Some(path) = &request.volume_path
        && !volume.attachments().any(|held| held.path.as_bytes() == path.as_bytes())
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
        // An administrator may have grown the device; the engine does not grow it.
        ctx.find_device(volume).await?;
        volume.size = volume.device.as_ref().map_or(0, |device| device.size);
        if request.range.size_for_growth(volume.size, 1)? > volume.size {
            return Err(ProvisionError::OutOfRange(format!(
                "volume {} has {} bytes; it comes from the configuration and cannot be expanded",
                volume.handle, volume.size
            )));
        }
    } else {
        let room = ctx.capacity(volume.kind).await?;
        let size = request.range.size_for_growth(volume.size, room.unit)?;
        if size > volume.size {
            let more = size - volume.size;
            if more > room.available {
                return Err(ProvisionError::ResourceExhausted(format!(
                    "{more} more bytes are needed, the pool has {} left",
                    room.available
                )));
            }
            ctx.begin_operation(volume, Operation::Expand { size }).await?;
            let grown = completion::grow_device(ctx, volume, size).await;
            if let Err(ProvisionError::ResourceExhausted(_)) | Ok(()) = &grown {
                // Either nothing was grown, or everything.
                ctx.end_operation(volume).await?;
            }
            grown?;
        }
    }
    let mounted = volume.attachments().find(|held| !held.access.block).cloned();
    let never_mounted = volume.record.as_ref().is_some_and(|record| {
        !record.accesses.is_empty() && record.accesses.iter().all(|access| access.block)
    });
    let node_expansion_required = match &mounted {
        Some(at) if !request.device_only => {
            grow_filesystem(ctx, volume, at).await?;
            false
        }
        Some(_) => true,
        None => !volume.is_attached() && !never_mounted,
    };
    Ok(ExpandResponse { size: volume.size, node_expansion_required })
}

async fn grow_filesystem<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    at: &ProvidedAttachment,
) -> Result<(), ProvisionError> {
    if at.read_only {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is mounted read-only at {}: its filesystem cannot be grown",
            volume.handle, at.path
        )));
    }
    let place = ctx.rooted_path("volume_path", &at.path)?;
    let Some(mounted) = ctx.find_mount(volume, &place, None).await? else {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is no longer mounted at {}",
            volume.handle, at.path
        )));
    };
    ctx.find_device(volume).await?;
    ctx.run(Step::GrowFilesystem {
        device: volume.require_device()?.node.clone(),
        at: place,
        fs_type: mounted.fs_type,
    })
    .await
}
