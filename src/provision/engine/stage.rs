//! NodeStageVolume and its reverse: attaches the device, formats it if it is certainly blank, and
//! mounts it at the staging path.

use crate::engine::request::StageRequest;
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::engine::{attachment, completion, recover};
use crate::error::ProvisionError;
use crate::record::Operation;
use crate::rules::access;
use crate::step::{OwnedPath, PathRole, StepExecutor};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{ProvidedAttachment, VolumeAccess};
use diskvitals_host::clock;

const STAGING_FIELD: &str = "staging_path";

pub async fn stage<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    request: &StageRequest,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    attachment::check_access(volume, &request.access)?;
    let path = HostPath::from(request.staging_path.as_str());
    let target = ctx.rooted_path(STAGING_FIELD, &path)?;
    if let Some(staged) = volume.staged.clone() {
        if staged.path != target.path {
            return Err(ProvisionError::FailedPrecondition(format!(
                "volume {} is staged at {} already",
                volume.handle, staged.path
            )));
        }
        if !access::is_compatible(&staged.access, &request.access) {
            return Err(ProvisionError::AlreadyExists(format!(
                "volume {} is staged at {} with another access",
                volume.handle, staged.path
            )));
        }
        volume.is_reconciled = false;
        recover::recover(ctx, volume).await?;
        if volume.staged.is_some() {
            return Ok(());
        }
    }
    let target = OwnedPath {
        owner: ctx.path_owner(volume, PathRole::Stage, Some(request.access.block)),
        place: target,
    };
    attachment::check_target(ctx, volume, &target, STAGING_FIELD).await?;
    let operation =
        Operation::Stage { path: target.place.path.clone(), access: request.access.clone() };
    ctx.begin_operation(volume, operation).await?;
    let staged = attach_and_record(ctx, volume, &request.access, &target).await;
    recover::finish_or_undo(ctx, volume, staged).await
}

async fn attach_and_record<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    wanted: &VolumeAccess,
    target: &OwnedPath,
) -> Result<(), ProvisionError> {
    let read_only = match &volume.backing {
        Backing::Directory(path) => {
            attachment::check_directory(ctx, path).await?;
            access::is_read_only(wanted.mode)
        }
        Backing::Image(_) | Backing::LogicalVolume { .. } | Backing::Device(_) => {
            let mount_target = (!wanted.block).then_some(target);
            attachment::attach_and_mount(ctx, volume, wanted, mount_target, STAGING_FIELD, false)
                .await?
        }
    };
    volume.staged = Some(ProvidedAttachment {
        path: target.place.path.clone(),
        access: wanted.clone(),
        read_only,
        pod: None,
        since: clock::now(),
    });
    let written = ctx.write_attachments(volume).await;
    if written.is_err() {
        volume.staged = None;
    }
    written
}

pub async fn unstage<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), ProvisionError> {
    let target = ctx.rooted_path(STAGING_FIELD, &HostPath::from(path))?;
    if let Some(held) = volume.published.first() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is published to {}",
            volume.handle,
            access::describe(held)
        )));
    }
    // No record lists a staging there, but a mount may exist. Without one, a volume that is staged
    // nowhere may still have its device, from a staging that was interrupted.
    if !volume.is_staged_at(&target.path)
        && !attachment::is_mounted_unrecorded(ctx, volume, &target, STAGING_FIELD).await?
        && volume.staged.is_some()
    {
        return Ok(());
    }
    completion::finish_unstage(ctx, volume, &target.path, Some(STAGING_FIELD)).await
}
