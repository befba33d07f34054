//! NodePublishVolume and its reverse: binds a staged volume to a pod's path, or to several as the
//! access mode allows.

use crate::host::clock;
use crate::model::path::HostPath;
use crate::model::provision::ProvidedAttachment;
use crate::provision::engine::request::PublishRequest;
use crate::provision::engine::step_context::StepContext;
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::engine::{attachment, completion, recover};
use crate::provision::error::ProvisionError;
use crate::provision::record::Operation;
use crate::provision::rules::{access, paths};
use crate::provision::step::{BindSource, RootedPath, Step, StepExecutor};

const TARGET_FIELD: &str = "target_path";
const STAGING_FIELD: &str = "staging_path";

pub(crate) async fn publish<S: StepExecutor>(
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
        if volume.published.iter().any(|held| held.path == place.path) {
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
    attachment::refuse_foreign_mount(ctx, volume, &place, TARGET_FIELD).await?;
    let (access, pod) = (request.access.clone(), request.pod.clone());
    ctx.begin_operation(
        volume,
        Operation::Publish {
            path: place.path.clone(),
            access,
            read_only,
            pod,
        },
    )
    .await?;
    let published = bind_and_record(ctx, volume, request, &place, staged, read_only).await;
    recover::finish_or_undo(ctx, volume, published).await
}

/// The staging path to bind from; None: the volume is mounted at the target itself.
fn staging_path_for<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    request: &PublishRequest,
    read_only: bool,
) -> Result<Option<RootedPath>, ProvisionError> {
    if let Some(path) = &request.staging_path {
        let place = ctx.rooted_path(STAGING_FIELD, &HostPath::from(path.as_str()))?;
        if volume
            .staged
            .as_ref()
            .is_none_or(|staged| staged.path != place.path)
        {
            return Err(ProvisionError::FailedPrecondition(format!(
                "volume {} is not staged at {}",
                volume.handle, place.path
            )));
        }
    }
    let Some(staged) = &volume.staged else {
        return Ok(None);
    };
    let sort = |block| {
        if block {
            "a block volume"
        } else {
            "a filesystem"
        }
    };
    if staged.access.block != request.access.block {
        let (is, wanted) = (sort(staged.access.block), sort(request.access.block));
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
    place: &RootedPath,
    staged: Option<RootedPath>,
    read_only: bool,
) -> Result<(), ProvisionError> {
    let (target, block) = (place.clone(), request.access.block);
    match (volume.backing.clone(), staged) {
        (Backing::Directory(path), _) => {
            attachment::check_directory(ctx, &path).await?;
            ctx.run_for_field(
                Step::Bind {
                    source: BindSource::Directory { path },
                    target,
                    read_only,
                },
                TARGET_FIELD,
            )
            .await?;
        }
        (_, _) if block => {
            attachment::attach_and_mount(
                ctx,
                volume,
                &request.access,
                None,
                TARGET_FIELD,
                read_only,
            )
            .await?;
            let Some(device) = &volume.device else {
                return Err(ProvisionError::Unavailable(format!(
                    "volume {} has no device",
                    volume.handle
                )));
            };
            ctx.run_for_field(
                Step::BindDevice {
                    device: device.node.clone(),
                    target,
                    read_only,
                },
                TARGET_FIELD,
            )
            .await?;
        }
        (_, Some(staged)) => bind_staged(ctx, volume, staged, target, read_only).await?,
        (_, None) => {
            attachment::attach_and_mount(
                ctx,
                volume,
                &request.access,
                Some(place),
                TARGET_FIELD,
                read_only,
            )
            .await?;
        }
    }
    let (path, access, pod, since) = (
        place.path.clone(),
        request.access.clone(),
        request.pod.clone(),
        clock::now(),
    );
    volume.published.push(ProvidedAttachment {
        path,
        access,
        read_only,
        pod,
        since,
    });
    let written = ctx.write_attachments(volume).await;
    if written.is_err() {
        volume.published.pop();
    }
    written
}

/// Another process may have mounted over the staging path since.
async fn bind_staged<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    place: RootedPath,
    target: RootedPath,
    read_only: bool,
) -> Result<(), ProvisionError> {
    if volume.device.is_none() {
        ctx.find_device(volume).await?;
    }
    let Some(device) = &volume.device else {
        return Err(ProvisionError::Unavailable(format!(
            "volume {} has no device",
            volume.handle
        )));
    };
    let source = BindSource::Staged {
        place,
        device: device.node.clone(),
    };
    let bound = ctx
        .run_for_field(
            Step::Bind {
                source,
                target,
                read_only,
            },
            TARGET_FIELD,
        )
        .await;
    if let Err(ProvisionError::FailedPrecondition(_)) = &bound {
        // Or its device has changed: the next recovery finds out.
        volume.is_reconciled = false;
    }
    bound
}

pub(crate) async fn unpublish<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), ProvisionError> {
    volume.check_detachable()?;
    let place = ctx.rooted_path(TARGET_FIELD, &HostPath::from(path))?;
    if !volume.published.iter().any(|held| held.path == place.path) {
        // A staging path is no target: it would be unmounted under all pods.
        if volume
            .staged
            .as_ref()
            .is_some_and(|staged| staged.path == place.path)
        {
            return Err(ProvisionError::FailedPrecondition(format!(
                "volume {} is staged at {}, not published there",
                volume.handle, place.path
            )));
        }
        attachment::find_remaining_device(ctx, volume).await?;
        match ctx.find_mount(&place, Some(TARGET_FIELD)).await? {
            // After a reboot the folder may be left. A path that is not a pod's is nobody's that we
            // know.
            None if !paths::is_publish_target(&place) => return Ok(()),
            None => {
                return ctx
                    .run_for_field(Step::RemoveTarget { target: place }, TARGET_FIELD)
                    .await;
            }
            Some(mounted) if volume.matches_mount(&mounted) => {}
            Some(other) => {
                return Err(ProvisionError::FailedPrecondition(format!(
                    "{} is mounted at {}, not this volume",
                    other.source, place.path
                )));
            }
        }
    }
    ctx.begin_operation(
        volume,
        Operation::Unpublish {
            path: place.path.clone(),
        },
    )
    .await?;
    let unpublished =
        completion::finish_unpublish(ctx, volume, &place.path, Some(TARGET_FIELD)).await;
    recover::finish_removal(ctx, volume, unpublished).await
}
