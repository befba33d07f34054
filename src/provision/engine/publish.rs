//! NodePublishVolume and its reverse: binds a staged volume to a pod's path, or to several if the
//! access mode allows it.

use crate::engine::request::PublishRequest;
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::engine::{attachment, completion, formatting, recover};
use crate::error::ProvisionError;
use crate::record::Operation;
use crate::rules::access;
use crate::step::{BindSource, OwnedPath, PathRole, RootedPath, Step, StepExecutor};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::ProvidedAttachment;
use diskvitals_host::clock;

const TARGET_FIELD: &str = "target_path";
const STAGING_FIELD: &str = "staging_path";

pub async fn publish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    request: &PublishRequest,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    attachment::check_access(volume, &request.access)?;
    let place = ctx.rooted_path(TARGET_FIELD, &HostPath::from(request.target_path.as_str()))?;
    let read_only = request.read_only || access::is_read_only(request.access.mode);
    if let Some(there) = volume.published.iter().find(|held| held.path == place.path) {
        if there.read_only != read_only || !access::is_compatible(&there.access, &request.access) {
            return Err(ProvisionError::AlreadyExists(format!(
                "volume {} is published to {} with other arguments",
                volume.handle,
                access::describe(there)
            )));
        }
        volume.is_reconciled = false;
        recover::recover(ctx, volume).await?;
        if volume.is_published_at(&place.path) {
            return Ok(());
        }
    }
    if let Some(holder) = access::conflicting_attachment(request.access.mode, &volume.published) {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is published to {} already",
            volume.handle,
            access::describe(holder)
        )));
    }
    let staged = staging_path_for(ctx, volume, request, read_only)?;
    let target = OwnedPath {
        owner: ctx.path_owner(volume, PathRole::Publish, Some(request.access.block)),
        place,
    };
    attachment::check_target(ctx, volume, &target, TARGET_FIELD).await?;
    let operation = Operation::Publish {
        path: target.place.path.clone(),
        access: request.access.clone(),
        read_only,
        pod: request.pod.clone(),
    };
    ctx.begin_operation(volume, operation).await?;
    let published = bind_and_record(ctx, volume, request, &target, staged, read_only).await;
    recover::finish_or_undo(ctx, volume, published).await
}

/// The staging path to bind from; None if the volume is mounted at the target itself.
fn staging_path_for<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    request: &PublishRequest,
    read_only: bool,
) -> Result<Option<RootedPath>, ProvisionError> {
    if let Some(path) = &request.staging_path {
        let place = ctx.rooted_path(STAGING_FIELD, &HostPath::from(path.as_str()))?;
        if !volume.is_staged_at(&place.path) {
            return Err(ProvisionError::FailedPrecondition(format!(
                "volume {} is not staged at {}",
                volume.handle, place.path
            )));
        }
    }
    let Some(staged) = &volume.staged else {
        return Ok(None);
    };
    if staged.access.block != request.access.block {
        let (block, filesystem) = ("a block volume", "a filesystem");
        let (is, wanted) = match staged.access.block {
            true => (block, filesystem),
            false => (filesystem, block),
        };
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is staged as {is} and requested as {wanted}",
            volume.handle
        )));
    }
    if staged.read_only && !read_only {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is staged read-only",
            volume.handle
        )));
    }
    ctx.rooted_path(STAGING_FIELD, &staged.path).map(Some)
}

async fn bind_and_record<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    request: &PublishRequest,
    target: &OwnedPath,
    staged: Option<RootedPath>,
    read_only: bool,
) -> Result<(), ProvisionError> {
    let (place, target, access) = (target, target.clone(), &request.access);
    match (volume.backing.clone(), staged) {
        (Backing::Directory(path), _) => {
            attachment::check_directory(ctx, &path).await?;
            let step = Step::Bind { source: BindSource::Directory { path }, target, read_only };
            ctx.run_for_field(step, TARGET_FIELD).await?;
        }
        (_, Some(staged)) if !access.block => {
            bind_staged(ctx, volume, staged, target, read_only).await?
        }
        _ => {
            let mounted = (!access.block).then_some(place);
            attachment::attach_and_mount(ctx, volume, access, mounted, TARGET_FIELD, read_only)
                .await?;
            if access.block {
                formatting::mark_used(ctx, volume).await?;
                let step = Step::BindDevice {
                    device: volume.require_device()?.node.clone(),
                    target,
                    read_only,
                };
                ctx.run_for_field(step, TARGET_FIELD).await?;
            }
        }
    }
    volume.published.push(ProvidedAttachment {
        path: place.place.path.clone(),
        access: access.clone(),
        read_only,
        pod: request.pod.clone(),
        since: clock::now(),
    });
    let written = ctx.write_attachments(volume).await;
    if written.is_err() {
        volume.published.pop();
    }
    written
}

/// The step checks the device, because another process may have mounted over the staging path.
async fn bind_staged<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    place: RootedPath,
    target: OwnedPath,
    read_only: bool,
) -> Result<(), ProvisionError> {
    if volume.device.is_none() {
        ctx.find_device(volume).await?;
    }
    let step = Step::Bind {
        source: BindSource::Staged { place, device: volume.require_device()?.node.clone() },
        target,
        read_only,
    };
    let bound = ctx.run_for_field(step, TARGET_FIELD).await;
    if let Err(ProvisionError::FailedPrecondition(_)) = &bound {
        // Or its device has changed: the next recovery detects it.
        volume.is_reconciled = false;
    }
    bound
}

pub async fn unpublish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), ProvisionError> {
    let place = ctx.rooted_path(TARGET_FIELD, &HostPath::from(path))?;
    if !volume.is_published_at(&place.path) {
        // A staging path is not a target: its unmount would affect all pods.
        if volume.is_staged_at(&place.path) {
            return Err(ProvisionError::FailedPrecondition(format!(
                "volume {} is staged at {}, not published there",
                volume.handle, place.path
            )));
        }
        if !attachment::is_mounted_unrecorded(ctx, volume, &place, TARGET_FIELD).await? {
            // After a reboot the folder may remain. Only this volume's is removed.
            let step = Step::RemoveTarget {
                target: place,
                owner: Some(ctx.path_owner(volume, PathRole::Publish, None)),
            };
            return ctx.run_for_field(step, TARGET_FIELD).await;
        }
    }
    completion::finish_unpublish(ctx, volume, &place.path, Some(TARGET_FIELD)).await
}
