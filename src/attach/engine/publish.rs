//! Publishing: what is staged is bound to a pod's path, or to several as the access modes allow;
//! and back.

use crate::attach::engine::hand::Hand;
use crate::attach::engine::volume::{Backing, Volume};
use crate::attach::engine::{PublishWish, settle, stage};
use crate::attach::fault::Fault;
use crate::attach::record::Operation;
use crate::attach::rules::{access, paths};
use crate::attach::step::{Place, Source, Step, Steps};
use crate::host::clock;
use crate::model::attach::Attachment;
use crate::model::path::HostPath;

const TARGET: &str = "target_path";
const STAGING: &str = "staging_path";

pub async fn publish<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wish: &PublishWish,
) -> Result<(), Fault> {
    volume.usable()?;
    stage::fits(volume, &wish.access)?;
    let place = hand.place(TARGET, &HostPath::from(wish.target_path.as_str()))?;
    let read_only = wish.read_only || access::is_read_only(wish.access.mode);
    if let Some(there) = volume.published.iter().find(|held| held.path == place.path) {
        if there.read_only != read_only || !access::same(&there.access, &wish.access) {
            return Err(Fault::Exists(format!(
                "volume {} is published to {} with other arguments",
                volume.handle,
                access::name_of(there)
            )));
        }
        volume.looked = false;
        settle::settle(hand, volume).await?;
        if volume.published.iter().any(|held| held.path == place.path) {
            return Ok(());
        }
    }
    if let Some(holder) = access::holder(wish.access.mode, &volume.published) {
        return Err(Fault::Precondition(format!(
            "volume {} is published to {} already",
            volume.handle,
            access::name_of(holder)
        )));
    }
    let staged = staged_for(hand, volume, wish, read_only)?;
    stage::find_strangers(hand, volume, &place, TARGET).await?;
    let (access, pod) = (wish.access.clone(), wish.pod.clone());
    hand.intend(
        volume,
        Operation::Publish {
            path: place.path.clone(),
            access,
            read_only,
            pod,
        },
    )
    .await?;
    let published = bind(hand, volume, wish, &place, staged, read_only).await;
    stage::conclude(hand, volume, published).await
}

/// The place that it is bound from; None: it is made ready at the target itself.
fn staged_for<S: Steps>(
    hand: &Hand<S>,
    volume: &Volume,
    wish: &PublishWish,
    read_only: bool,
) -> Result<Option<Place>, Fault> {
    if let Some(path) = &wish.staging_path {
        let place = hand.place(STAGING, &HostPath::from(path.as_str()))?;
        if volume
            .staged
            .as_ref()
            .is_none_or(|staged| staged.path != place.path)
        {
            return Err(Fault::Precondition(format!(
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
        return Err(Fault::Precondition(format!(
            "volume {} is staged as {is}, and wanted as {wanted}",
            volume.handle
        )));
    }
    if staged.read_only && !read_only {
        return Err(Fault::Precondition(format!(
            "volume {} is staged read-only",
            volume.handle
        )));
    }
    hand.place(STAGING, &staged.path).map(Some)
}

async fn bind<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wish: &PublishWish,
    place: &Place,
    staged: Option<Place>,
    read_only: bool,
) -> Result<(), Fault> {
    let (target, block) = (place.clone(), wish.access.block);
    match (volume.backing.clone(), staged) {
        (Backing::Folder(path), _) => {
            stage::check_folder(hand, &path).await?;
            hand.step_at(
                Step::Bind {
                    source: Source::Folder { path },
                    target,
                    read_only,
                },
                TARGET,
            )
            .await?;
        }
        (_, _) if block => {
            stage::attach_and_mount(hand, volume, &wish.access, None, TARGET, read_only).await?;
            let Some(device) = &volume.device else {
                return Err(Fault::Unavailable(format!(
                    "volume {} has no device",
                    volume.handle
                )));
            };
            hand.step_at(
                Step::BindDevice {
                    device: device.node.clone(),
                    target,
                    read_only,
                },
                TARGET,
            )
            .await?;
        }
        (_, Some(staged)) => bind_staged(hand, volume, staged, target, read_only).await?,
        (_, None) => {
            stage::attach_and_mount(hand, volume, &wish.access, Some(place), TARGET, read_only)
                .await?;
        }
    }
    let (path, access, pod, since) = (
        place.path.clone(),
        wish.access.clone(),
        wish.pod.clone(),
        clock::now(),
    );
    volume.published.push(Attachment {
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
async fn bind_staged<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    place: Place,
    target: Place,
    read_only: bool,
) -> Result<(), Fault> {
    if volume.device.is_none() {
        hand.find(volume).await?;
    }
    let Some(device) = &volume.device else {
        return Err(Fault::Unavailable(format!(
            "volume {} has no device",
            volume.handle
        )));
    };
    let source = Source::Staged {
        place,
        device: device.node.clone(),
    };
    let bound = hand
        .step_at(
            Step::Bind {
                source,
                target,
                read_only,
            },
            TARGET,
        )
        .await;
    if let Err(Fault::Precondition(_)) = &bound {
        // Or its device is another one by now: the next look tells.
        volume.looked = false;
    }
    bound
}

pub async fn undo<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), Fault> {
    let place = hand.place("path", path)?;
    stage::find_what_is_left(hand, volume).await?;
    // Nothing else was mounted there when it began.
    match hand.unmount(volume, &place, Some("path"), true).await {
        Ok(None) => match hand.step(Step::RemoveTarget { target: place }).await {
            // What is in it was there before us.
            Err(Fault::Held(why)) => {
                tracing::info!(volume = volume.handle, %why, "a target is left as it was")
            }
            removed => removed?,
        },
        // Somebody else's is there now; or it leads through a link, and what is ours is nowhere
        // that it names.
        Ok(Some(_)) | Err(Fault::Invalid { .. }) => {}
        Err(fault) => return Err(fault),
    }
    stage::take_back_device(hand, volume).await?;
    hand.write_attachments(volume).await?;
    hand.done(volume).await
}

pub async fn unpublish<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), Fault> {
    volume.touchable()?;
    let place = hand.place(TARGET, &HostPath::from(path))?;
    if !volume.published.iter().any(|held| held.path == place.path) {
        // A staging path is no target: it would be unmounted under all pods.
        if volume
            .staged
            .as_ref()
            .is_some_and(|staged| staged.path == place.path)
        {
            return Err(Fault::Precondition(format!(
                "volume {} is staged at {}, not published there",
                volume.handle, place.path
            )));
        }
        stage::find_what_is_left(hand, volume).await?;
        match hand.mounted(&place, Some(TARGET)).await? {
            // After a reboot the folder may be left. A path that is not a pod's is nobody's that we
            // know.
            None if !paths::is_target(&place) => return Ok(()),
            None => {
                return hand
                    .step_at(Step::RemoveTarget { target: place }, TARGET)
                    .await;
            }
            Some(mounted) if volume.is_mounted_as(&mounted) => {}
            Some(other) => {
                return Err(Fault::Precondition(format!(
                    "{} is mounted at {}, not this volume",
                    other.source, place.path
                )));
            }
        }
    }
    hand.intend(
        volume,
        Operation::Unpublish {
            path: place.path.clone(),
        },
    )
    .await?;
    let unpublished = finish_unpublish(hand, volume, &place.path, Some(TARGET)).await;
    stage::conclude_unmaking(hand, volume, unpublished).await
}

pub async fn finish_unpublish<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &HostPath,
    field: Option<&'static str>,
) -> Result<(), Fault> {
    let place = hand.place(TARGET, path)?;
    stage::find_what_is_left(hand, volume).await?;
    let known = volume.published.iter().any(|held| held.path == *path);
    if let Some(other) = hand.unmount(volume, &place, field, known).await? {
        return Err(Fault::Held(format!(
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
    hand.step(Step::RemoveTarget { target: place }).await?;
    if !volume.is_attached() {
        hand.detach(volume).await?;
    }
    hand.done(volume).await
}
