//! Recovery of a volume after an interrupted operation (by an error or by the end of the daemon).
//! An operation that creates something is undone unless its record exists; one that removes
//! something is finished. Then the records are compared with the host.
//!
//! In: a volume's copy with the state of its records. Out: the same without an intent, or an error.
//! Recovery runs before every other operation on the volume, so that none starts from a partial
//! state.

use crate::engine::step_context::{FORMATS_DIR, StepContext};
use crate::engine::volume::{Backing, RecordProblem, Volume};
use crate::engine::{attachment, completion, formatting};
use crate::error::ProvisionError;
use crate::record::Operation;
use crate::step::StepExecutor;
use diskvitals_finding::provision::ProvidedAttachment;
use diskvitals_text::causes::with_causes;

pub async fn recover<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    volume.check_detachable()?;
    let settled = recover_and_reconcile(ctx, volume).await;
    log_recovery(volume, settled.as_ref().err());
    settled
}

/// Recovers before a deletion. Abandons growth that cannot be finished: no caller has received it as
/// done, its caller repeats the request, and the record has the size.
pub(crate) async fn recover_before_deletion<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    volume.check_detachable()?;
    match &volume.intent {
        // The intent of the deletion replaces it.
        Some(intent) if matches!(intent.operation, Operation::Expand { .. }) => {
            reconcile_once(ctx, volume).await
        }
        _ => recover(ctx, volume).await,
    }
}

/// Ends an operation that creates something: removes its intent, or undoes everything. A stuck
/// operation keeps its intent, because its outcome is unknown.
pub(crate) async fn finish_or_undo<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    result: Result<(), ProvisionError>,
) -> Result<(), ProvisionError> {
    match result {
        Ok(()) => {
            // The operation is done and recorded. If the intent remains, the next recovery removes
            // it.
            if let Err(error) = ctx.end_operation(volume).await {
                tracing::warn!(volume = volume.handle, %error, "an intent could not be removed");
            }
            Ok(())
        }
        Err(fault @ ProvisionError::Stuck(_)) => Err(fault),
        Err(fault) => {
            // A failed recovery is logged and tried again later.
            drop(recover(ctx, volume).await);
            Err(fault)
        }
    }
}

/// Ends a deletion: a volume in use stays; everything else is finished later.
pub(crate) async fn finish_removal<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    result: Result<(), ProvisionError>,
) -> Result<(), ProvisionError> {
    if let Err(ProvisionError::InUse(_)) = &result
        && let Err(error) = ctx.end_operation(volume).await
    {
        tracing::warn!(volume = volume.handle, %error, "an intent could not be removed");
    }
    result
}

async fn recover_and_reconcile<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    match volume.intent.clone() {
        Some(intent) if volume.has_begun => {
            recover_operation(ctx, volume, intent.operation).await?;
        }
        Some(_) => ctx.end_operation(volume).await?,
        None => {}
    }
    reconcile_once(ctx, volume).await
}

async fn reconcile_once<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if volume.exists && !volume.is_reconciled {
        reconcile(ctx, volume).await?;
        volume.is_reconciled = true;
    }
    drop_detached_orphan(ctx, volume).await
}

/// Logs only changes, because recovery repeats: its first failure, another reason, or success
/// again.
fn log_recovery(volume: &mut Volume, error: Option<&ProvisionError>) {
    let error = error.map(|fault| with_causes(fault));
    match &error {
        Some(error) if volume.recovery_error.as_ref() != Some(error) => {
            tracing::warn!(
                volume = volume.handle,
                error,
                "recovery of a volume failed; it will be tried again"
            );
        }
        None if volume.recovery_error.is_some() => {
            tracing::info!(
                volume = volume.handle,
                "recovery of a volume succeeded after earlier failures"
            )
        }
        _ => {}
    }
    volume.recovery_error = error;
}

/// Drops a volume whose own record is missing, after all of its parts are detached.
pub(crate) async fn drop_detached_orphan<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if matches!(volume.record_problem, Some(RecordProblem::Orphan))
        && !volume.is_attached()
        && volume.intent.is_none()
    {
        if !volume.format.is_empty() {
            ctx.remove_record(FORMATS_DIR, &volume.handle).await?;
        }
        volume.exists = false;
    }
    Ok(())
}

async fn recover_operation<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    operation: Operation,
) -> Result<(), ProvisionError> {
    if volume.recovery_error.is_none() {
        tracing::info!(
            volume = volume.handle,
            operation = operation.description(),
            "recovering a volume from an interrupted operation"
        );
    }
    match operation {
        Operation::Create { .. } => completion::undo_create(ctx, volume).await,
        Operation::Delete => completion::finish_delete(ctx, volume).await,
        Operation::Expand { size } => match completion::grow_device(ctx, volume, size).await {
            // Other volumes have used the free space since the start: the volume keeps its size.
            Ok(()) | Err(ProvisionError::ResourceExhausted(_)) => ctx.end_operation(volume).await,
            Err(fault) => Err(fault),
        },
        Operation::Stage { path, .. } if volume.is_staged_at(&path) => {
            ctx.end_operation(volume).await
        }
        Operation::Stage { path, .. } => completion::undo_stage(ctx, volume, &path).await,
        // Earlier versions wrote intents of detachments.
        Operation::Unstage { path } => {
            let finished = completion::finish_unstage(ctx, volume, &path, None).await;
            end_detachment(ctx, volume, finished).await
        }
        Operation::Publish { path, .. } if volume.is_published_at(&path) => {
            ctx.end_operation(volume).await
        }
        Operation::Publish { path, .. } => completion::undo_publish(ctx, volume, &path).await,
        Operation::Unpublish { path } => {
            let finished = completion::finish_unpublish(ctx, volume, &path, None).await;
            end_detachment(ctx, volume, finished).await
        }
    }
}

/// A volume in use was not removed: its user keeps it, and the caller repeats the request.
async fn end_detachment<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    finished: Result<(), ProvisionError>,
) -> Result<(), ProvisionError> {
    match finished {
        Err(ProvisionError::InUse(why)) => {
            tracing::warn!(volume = volume.handle, %why, "what was about to be unmounted is in use, and stays");
            // The next recovery compares the records with the host.
            volume.is_reconciled = false;
        }
        finished => finished?,
    }
    ctx.end_operation(volume).await
}

/// Drops records without a mount (after a reboot or an administrator's umount). If the host cannot
/// be read, the records stay as they are.
async fn reconcile<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if volume.is_static() && !volume.is_attached() {
        return attachment::check_unattached(ctx, volume).await;
    }
    if !volume.is_attached() {
        return rewrite_outdated(ctx, volume).await;
    }
    if volume.is_static() {
        formatting::record_seen(ctx, volume).await;
    }
    let before = (volume.staged.clone(), volume.published.clone());
    match ctx.find_device(volume).await {
        // A removed drive leaves its mounts behind.
        Err(fault @ ProvisionError::Unavailable(_)) => {
            volume.device = None;
            volume.error = Some(fault.to_string());
        }
        found => {
            found?;
            volume.error = None;
        }
    }
    let mut problem = None;
    if let Some(staged) = volume.staged.clone()
        && !is_still_attached(ctx, volume, &staged, true, &mut problem).await?
    {
        volume.staged = None;
    }
    let mut published = Vec::new();
    for held in volume.published.clone() {
        if is_still_attached(ctx, volume, &held, false, &mut problem).await? {
            published.push(held);
        }
    }
    volume.published = published;
    if problem.is_some() {
        volume.error = problem;
    }
    if before != (volume.staged.clone(), volume.published.clone()) {
        tracing::info!(volume = volume.handle, "what it was mounted at is no longer mounted");
        if !volume.is_attached() && volume.device.is_some() {
            ctx.detach_device(volume).await?;
        }
        return ctx.write_attachments(volume).await;
    }
    rewrite_outdated(ctx, volume).await
}

/// Writes the record that the pool did not take. A pool that hangs must not keep the next detachment
/// waiting.
async fn rewrite_outdated<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if !volume.is_record_outdated {
        return Ok(());
    }
    ctx.with_pool_patience(ctx.write_attachments(volume)).await
}

/// Whether an attachment of the records still exists.
async fn is_still_attached<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    held: &ProvidedAttachment,
    staged: bool,
    problem: &mut Option<String>,
) -> Result<bool, ProvisionError> {
    if staged && matches!(volume.backing, Backing::Directory(_)) {
        // A folder is staged without any action.
        return Ok(true);
    }
    if staged && held.access.block {
        return Ok(volume.device.is_some());
    }
    let place = ctx.rooted_path("path", &held.path)?;
    let Some(mounted) = ctx.find_mount(volume, &place, None).await? else {
        return Ok(false);
    };
    if volume.device.is_some() && !volume.matches_mount(&mounted) {
        *problem = Some(format!(
            "{} is mounted at {}, where this volume should be",
            mounted.source, held.path
        ));
    }
    Ok(true)
}
