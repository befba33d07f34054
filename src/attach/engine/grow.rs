//! Growing: the volume, and where it is mounted, the filesystem on it.

use crate::attach::engine::hand::{Hand, VOLUMES};
use crate::attach::engine::volume::{Backing, Volume};
use crate::attach::engine::{ExpandWish, Expanded, pool};
use crate::attach::fault::Fault;
use crate::attach::record::Operation;
use crate::attach::step::{Step, Steps};
use crate::model::attach::Attachment;

pub async fn expand<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wish: &ExpandWish,
) -> Result<Expanded, Fault> {
    volume.usable()?;
    if let Some(path) = &wish.volume_path
        && !volume
            .staged
            .iter()
            .chain(&volume.published)
            .any(|held| held.path.as_bytes() == path.as_bytes())
    {
        return Err(Fault::NotFound(format!(
            "volume {} is not at the path that volume_path names",
            volume.handle
        )));
    }
    if matches!(volume.backing, Backing::Folder(_)) {
        return Err(Fault::Precondition(format!(
            "volume {} is a folder: it has no size of its own",
            volume.handle
        )));
    }
    if volume.is_static() {
        // Somebody else may have grown it; nobody does so here.
        hand.find(volume).await?;
        volume.size = volume.device.as_ref().map_or(0, |device| device.size);
        if wish.range.grown(volume.size, 1)? > volume.size {
            return Err(Fault::OutOfRange(format!(
                "volume {} has {} bytes, and is not ours to grow",
                volume.handle, volume.size
            )));
        }
    } else {
        let room = pool::room(hand, volume.kind).await?;
        let size = wish.range.grown(volume.size, room.unit)?;
        if size > volume.size {
            let more = size - volume.size;
            if more > room.available {
                return Err(Fault::Exhausted(format!(
                    "{more} bytes more are wanted, the pool has {} left",
                    room.available
                )));
            }
            hand.intend(volume, Operation::Expand { size }).await?;
            let grown = grow_device(hand, volume, size).await;
            if let Err(Fault::Exhausted(_)) | Ok(()) = &grown {
                // Not one byte more, or all of them.
                hand.done(volume).await?;
            }
            grown?;
        }
    }
    let mounted: Option<Attachment> = volume
        .staged
        .iter()
        .chain(&volume.published)
        .find(|held| !held.access.block)
        .cloned();
    let only_block = volume.staged.is_some() || !volume.published.is_empty();
    let never_mounted = volume.record.as_ref().is_some_and(|record| {
        !record.accesses.is_empty() && record.accesses.iter().all(|access| access.block)
    });
    let node_expansion_required = match &mounted {
        Some(at) if !wish.device_only => {
            grow_filesystem(hand, volume, at).await?;
            false
        }
        Some(_) => true,
        None => !only_block && !never_mounted,
    };
    Ok(Expanded {
        size: volume.size,
        node_expansion_required,
    })
}

/// The image or the logical volume, and its record. Again is as good as once.
pub async fn grow_device<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    size: u64,
) -> Result<(), Fault> {
    match &volume.backing {
        Backing::Image(image) => {
            hand.step(Step::GrowImage {
                image: image.clone(),
                size,
            })
            .await?;
            if let Some(record) = &volume.record {
                let record = crate::attach::record::VolumeRecord {
                    size: size.max(record.size),
                    ..record.clone()
                };
                hand.write(VOLUMES, &volume.handle, pool::record_text(&record)?)
                    .await?;
                volume.record = Some(record);
            }
        }
        Backing::LogicalVolume { group, name } => {
            hand.step(Step::GrowLogicalVolume {
                group: group.clone(),
                name: name.clone(),
                size,
            })
            .await?;
        }
        Backing::Device(_) | Backing::Folder(_) => return Ok(()),
    }
    volume.size = size.max(volume.size);
    if let Some(device) = &mut volume.device {
        device.size = volume.size;
    }
    Ok(())
}

async fn grow_filesystem<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    at: &Attachment,
) -> Result<(), Fault> {
    if at.read_only {
        return Err(Fault::Precondition(format!(
            "volume {} is mounted read-only at {}: its filesystem cannot be grown",
            volume.handle, at.path
        )));
    }
    let place = hand.place("volume_path", &at.path)?;
    let Some(mounted) = hand.mounted(&place, None).await? else {
        return Err(Fault::Precondition(format!(
            "volume {} is not mounted at {} any more",
            volume.handle, at.path
        )));
    };
    hand.find(volume).await?;
    let Some(device) = &volume.device else {
        return Err(Fault::Unavailable(format!(
            "volume {} has no device",
            volume.handle
        )));
    };
    hand.step(Step::GrowFilesystem {
        device: device.node.clone(),
        at: place,
        fs_type: mounted.fs_type,
    })
    .await
}
