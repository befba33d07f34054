//! Putting right what was cut off, by an error or by the end of the daemon: what makes a thing is
//! undone unless its record says that it is done; what unmakes a thing is finished. Then the
//! records are compared with what the host has.
//!
//! In: a volume's copy, as its records tell it. Out: the same without an intent, or why that could
//! not be. It comes before every other operation on the volume, so no operation ever sees half of
//! another.

use crate::attach::engine::hand::{ATTACHMENTS, Hand, VOLUMES};
use crate::attach::engine::volume::{Backing, Broken, Volume};
use crate::attach::engine::{grow, publish, stage};
use crate::attach::fault::Fault;
use crate::attach::record::Operation;
use crate::attach::step::{Steps, Wipe};
use crate::model::attach::Attachment;
use crate::model::causes::with_causes;
use crate::model::path::HostPath;

pub async fn settle<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    volume.touchable()?;
    let settled = put_right(hand, volume).await;
    tell(volume, settled.as_ref().err());
    settled
}

/// Before something of the volume is unmade. Growth that cannot be finished is given up then: as
/// long as it is not told as done it was promised to nobody, its caller asks again, and the record
/// tells the size.
pub async fn settle_to_unmake<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    volume.touchable()?;
    match &volume.intent {
        // What is written down of the unmaking takes its place.
        Some(intent) if matches!(intent.operation, Operation::Expand { .. }) => {
            compare(hand, volume).await
        }
        _ => settle(hand, volume).await,
    }
}

async fn put_right<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    if let Some(intent) = volume.intent.clone() {
        recover(hand, volume, intent.operation).await?;
    }
    compare(hand, volume).await
}

async fn compare<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    if volume.made && !volume.looked {
        reconcile(hand, volume).await?;
        volume.looked = true;
    }
    forget_orphan(volume);
    Ok(())
}

/// It is tried again and again, and told when it begins to fail, fails otherwise, or succeeds at
/// last.
fn tell(volume: &mut Volume, error: Option<&Fault>) {
    let error = error.map(|fault| with_causes(fault));
    match &error {
        Some(error) if volume.unsettled.as_ref() != Some(error) => {
            tracing::warn!(
                volume = volume.handle,
                error,
                "a volume could not be put right yet"
            );
        }
        None if volume.unsettled.is_some() => {
            tracing::info!(
                volume = volume.handle,
                "a volume that could not be put right before is put right now"
            )
        }
        _ => {}
    }
    volume.unsettled = error;
}

/// Once nothing of it is attached, there is no trace left of a volume whose own record is gone.
pub fn forget_orphan(volume: &mut Volume) {
    if matches!(volume.broken, Some(Broken::Orphan(_)))
        && !volume.is_attached()
        && volume.intent.is_none()
    {
        volume.made = false;
    }
}

async fn recover<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    operation: Operation,
) -> Result<(), Fault> {
    if volume.unsettled.is_none() {
        tracing::info!(
            volume = volume.handle,
            operation = operation.name(),
            "an operation that was cut off is put right"
        );
    }
    match operation {
        Operation::Create { .. } => undo_create(hand, volume).await,
        Operation::Delete => finish_delete(hand, volume).await,
        Operation::Expand { size } => match grow::grow_device(hand, volume, size).await {
            // The room is gone that was there when it began: it stays as large as it is.
            Ok(()) | Err(Fault::Exhausted(_)) => hand.done(volume).await,
            Err(fault) => Err(fault),
        },
        Operation::Stage { path, .. } if is_at(&path)(volume.staged.as_ref()) => {
            hand.done(volume).await
        }
        Operation::Stage { path, .. } => stage::undo(hand, volume, &path).await,
        Operation::Unstage { path } => unless_held(hand, volume, Step::Unstage(path)).await,
        Operation::Publish { path, .. }
            if volume.published.iter().any(|held| held.path == path) =>
        {
            hand.done(volume).await
        }
        Operation::Publish { path, .. } => publish::undo(hand, volume, &path).await,
        Operation::Unpublish { path } => unless_held(hand, volume, Step::Unpublish(path)).await,
    }
}

enum Step {
    Unstage(HostPath),
    Unpublish(HostPath),
}

/// Who holds it now has it: then it was not unmade, and the caller will ask again.
async fn unless_held<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    step: Step,
) -> Result<(), Fault> {
    let finished = match step {
        Step::Unstage(path) => stage::finish_unstage(hand, volume, &path, None).await,
        Step::Unpublish(path) => publish::finish_unpublish(hand, volume, &path, None).await,
    };
    match finished {
        Err(Fault::Held(why)) => {
            tracing::warn!(volume = volume.handle, %why, "what was about to be unmounted is in use, and stays");
            // What of it is there still is compared with the records.
            volume.looked = false;
            hand.done(volume).await
        }
        finished => finished,
    }
}

fn is_at(path: &HostPath) -> impl Fn(Option<&Attachment>) -> bool + '_ {
    move |held| held.is_some_and(|held| held.path == *path)
}

/// The record (or the tagged logical volume, which is the same) is what makes it: without one
/// nobody was told of it. A logical volume that is not finished shows what others have left on its
/// extents: it is none yet.
pub async fn undo_create<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    if let Backing::LogicalVolume { group, name } = &volume.backing {
        let found = hand
            .logical_volume(group, name)
            .await?
            .filter(|found| !found.unfinished);
        volume.made = found.is_some();
        volume.size = found.map_or(volume.size, |found| found.size);
    }
    if !volume.made {
        hand.remove(VOLUMES, &volume.handle).await?;
        // Nothing was ever written into it.
        hand.unmake(volume, Wipe::None).await?;
    }
    hand.done(volume).await
}

/// From the first step on there may be half of it, so there is no way back.
pub async fn finish_delete<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    hand.detach(volume).await?;
    hand.unmake(volume, hand.settings.wipe).await?;
    hand.remove(VOLUMES, &volume.handle).await?;
    hand.remove(ATTACHMENTS, &volume.handle).await?;
    volume.made = false;
    hand.done(volume).await
}

/// Records without a mount, after a reboot or an administrator's umount, are dropped. What cannot
/// be asked stays as it is.
async fn reconcile<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    if volume.is_static() && !volume.is_attached() {
        return stage::look(hand, volume).await;
    }
    if !volume.is_attached() {
        return Ok(());
    }
    let before = (volume.staged.clone(), volume.published.clone());
    match hand.find(volume).await {
        // A drive that is gone leaves its mounts behind.
        Err(fault @ Fault::Unavailable(_)) => {
            volume.device = None;
            volume.trouble = Some(fault.to_string());
        }
        found => {
            found?;
            volume.trouble = None;
        }
    }
    let mut trouble = None;
    if let Some(staged) = volume.staged.clone()
        && !is_there(hand, volume, &staged, true, &mut trouble).await?
    {
        volume.staged = None;
    }
    let mut published = Vec::new();
    for held in volume.published.clone() {
        if is_there(hand, volume, &held, false, &mut trouble).await? {
            published.push(held);
        }
    }
    volume.published = published;
    if trouble.is_some() {
        volume.trouble = trouble;
    }
    if before != (volume.staged.clone(), volume.published.clone()) {
        tracing::info!(
            volume = volume.handle,
            "what it was mounted at is no longer mounted"
        );
        if !volume.is_attached() && volume.device.is_some() {
            hand.detach(volume).await?;
        }
        hand.write_attachments(volume).await?;
    }
    Ok(())
}

/// Whether an attachment of the records is there still.
async fn is_there<S: Steps>(
    hand: &Hand<S>,
    volume: &Volume,
    held: &Attachment,
    staged: bool,
    trouble: &mut Option<String>,
) -> Result<bool, Fault> {
    if staged && matches!(volume.backing, Backing::Folder(_)) {
        // Nothing is done to stage a folder.
        return Ok(true);
    }
    if staged && held.access.block {
        return Ok(volume.device.is_some());
    }
    let place = hand.place("path", &held.path)?;
    let Some(mounted) = hand.mounted(&place, None).await? else {
        return Ok(false);
    };
    if volume.device.is_some() && !volume.is_mounted_as(&mounted) {
        *trouble = Some(format!(
            "{} is mounted at {}, where this volume should be",
            mounted.source, held.path
        ));
    }
    Ok(true)
}
