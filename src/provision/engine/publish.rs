//! Publishing: what is staged is bound to a pod's path, or to several as the access modes allow;
//! and back.

use crate::host::clock;
use crate::model::path::HostPath;
use crate::model::provision::ProvidedAttachment;
use crate::provision::engine::step_context::StepContext;
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::engine::{PublishRequest, recover, stage};
use crate::provision::error::ProvisionError;
use crate::provision::record::Operation;
use crate::provision::rules::{access, paths};
use crate::provision::step::{BindSource, RootedPath, Step, StepExecutor};

const TARGET_FIELD: &str = "target_path";
const STAGING_FIELD: &str = "staging_path";

pub async fn publish<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    wish: &PublishRequest,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    stage::check_access(volume, &wish.access)?;
    let place = hand.rooted_path(TARGET_FIELD, &HostPath::from(wish.target_path.as_str()))?;
    let read_only = wish.read_only || access::is_read_only(wish.access.mode);
    if let Some(there) = volume.published.iter().find(|held| held.path == place.path) {
        if there.read_only != read_only || !access::is_compatible(&there.access, &wish.access) {
            return Err(ProvisionError::AlreadyExists(format!(
                "volume {} is published to {} with other arguments",
                volume.handle,
                access::describe(there)
            )));
        }
        volume.is_reconciled = false;
        recover::recover(hand, volume).await?;
        if volume.published.iter().any(|held| held.path == place.path) {
            return Ok(());
        }
    }
    if let Some(holder) = access::conflicting_attachment(wish.access.mode, &volume.published) {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is published to {} already",
            volume.handle,
            access::describe(holder)
        )));
    }
    let staged = staging_path_for(hand, volume, wish, read_only)?;
    stage::refuse_foreign_mount(hand, volume, &place, TARGET_FIELD).await?;
    let (access, pod) = (wish.access.clone(), wish.pod.clone());
    hand.begin_operation(
        volume,
        Operation::Publish {
            path: place.path.clone(),
            access,
            read_only,
            pod,
        },
    )
    .await?;
    let published = bind_and_record(hand, volume, wish, &place, staged, read_only).await;
    stage::finish_or_undo(hand, volume, published).await
}

/// The place that it is bound from; None: it is made ready at the target itself.
fn staging_path_for<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &Volume,
    wish: &PublishRequest,
    read_only: bool,
) -> Result<Option<RootedPath>, ProvisionError> {
    if let Some(path) = &wish.staging_path {
        let place = hand.rooted_path(STAGING_FIELD, &HostPath::from(path.as_str()))?;
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
    if staged.access.block != wish.access.block {
        let (is, wanted) = (sort(staged.access.block), sort(wish.access.block));
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is staged as {is}, and wanted as {wanted}",
            volume.handle
        )));
    }
    if staged.read_only && !read_only {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is staged read-only",
            volume.handle
        )));
    }
    hand.rooted_path(STAGING_FIELD, &staged.path).map(Some)
}

async fn bind_and_record<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    wish: &PublishRequest,
    place: &RootedPath,
    staged: Option<RootedPath>,
    read_only: bool,
) -> Result<(), ProvisionError> {
    let (target, block) = (place.clone(), wish.access.block);
    match (volume.backing.clone(), staged) {
        (Backing::Directory(path), _) => {
            stage::check_directory(hand, &path).await?;
            hand.run_for_field(
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
            stage::attach_and_mount(hand, volume, &wish.access, None, TARGET_FIELD, read_only)
                .await?;
            let Some(device) = &volume.device else {
                return Err(ProvisionError::Unavailable(format!(
                    "volume {} has no device",
                    volume.handle
                )));
            };
            hand.run_for_field(
                Step::BindDevice {
                    device: device.node.clone(),
                    target,
                    read_only,
                },
                TARGET_FIELD,
            )
            .await?;
        }
        (_, Some(staged)) => bind_staged(hand, volume, staged, target, read_only).await?,
        (_, None) => {
            stage::attach_and_mount(
                hand,
                volume,
                &wish.access,
                Some(place),
                TARGET_FIELD,
                read_only,
            )
            .await?;
        }
    }
    let (path, access, pod, since) = (
        place.path.clone(),
        wish.access.clone(),
        wish.pod.clone(),
        clock::now(),
    );
    volume.published.push(ProvidedAttachment {
        path,
        access,
        read_only,
        pod,
        since,
    });
    let written = hand.write_attachments(volume).await;
    if written.is_err() {
        volume.published.pop();
    }
    written
}

/// The staging path may have been mounted over by somebody else since.
async fn bind_staged<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    place: RootedPath,
    target: RootedPath,
    read_only: bool,
) -> Result<(), ProvisionError> {
    if volume.device.is_none() {
        hand.find_device(volume).await?;
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
    let bound = hand
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
        // Or its device is another one by now: the next look tells.
        volume.is_reconciled = false;
    }
    bound
}

pub async fn undo_publish<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    let place = hand.rooted_path("path", path)?;
    stage::find_remaining_device(hand, volume).await?;
    // Nothing else was mounted there when it began.
    match hand.unmount(volume, &place, Some("path"), true).await {
        Ok(None) => match hand.run(Step::RemoveTarget { target: place }).await {
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
    stage::release_device(hand, volume).await?;
    hand.write_attachments(volume).await?;
    hand.end_operation(volume).await
}

pub async fn unpublish<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), ProvisionError> {
    volume.check_detachable()?;
    let place = hand.rooted_path(TARGET_FIELD, &HostPath::from(path))?;
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
        stage::find_remaining_device(hand, volume).await?;
        match hand.find_mount(&place, Some(TARGET_FIELD)).await? {
            // After a reboot the folder may be left. A path that is not a pod's is nobody's that we
            // know.
            None if !paths::is_publish_target(&place) => return Ok(()),
            None => {
                return hand
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
    hand.begin_operation(
        volume,
        Operation::Unpublish {
            path: place.path.clone(),
        },
    )
    .await?;
    let unpublished = finish_unpublish(hand, volume, &place.path, Some(TARGET_FIELD)).await;
    stage::finish_removal(hand, volume, unpublished).await
}

pub async fn finish_unpublish<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    path: &HostPath,
    field: Option<&'static str>,
) -> Result<(), ProvisionError> {
    let place = hand.rooted_path(TARGET_FIELD, path)?;
    stage::find_remaining_device(hand, volume).await?;
    let known = volume.published.iter().any(|held| held.path == *path);
    if let Some(other) = hand.unmount(volume, &place, field, known).await? {
        return Err(ProvisionError::InUse(format!(
            "{} is mounted at {}, not this volume",
            other.source, place.path
        )));
    }
    let published = volume.published.clone();
    volume.published.retain(|held| held.path != *path);
    if let Err(fault) = hand.write_attachments(volume).await {
        volume.published = published;
        return Err(fault);
    }
    hand.run(Step::RemoveTarget { target: place }).await?;
    if !volume.is_attached() {
        hand.detach_device(volume).await?;
    }
    hand.end_operation(volume).await
}
