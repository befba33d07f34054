//! Volumes of the pool come and go: made with the size that a range comes to, and deleted with what
//! was in them.

use crate::attach::engine::hand::{Hand, VOLUMES};
use crate::attach::engine::volume::{Backing, Volume};
use crate::attach::engine::{CreateWish, settle, stage};
use crate::attach::fault::Fault;
use crate::attach::record::{self, Operation};
use crate::attach::rules::filesystem::Filesystem;
use crate::attach::rules::{access, mkfs, names, sizes};
use crate::attach::step::{Room, Step, Steps};
use crate::model::attach::Kind;

/// What can be said of a wish before anything is looked at. Returns the smallest size that its
/// filesystems can have.
pub fn check(wish: &CreateWish) -> Result<u64, Fault> {
    names::check_name(&wish.name)?;
    wish.range.check()?;
    if matches!(wish.kind, Some(Kind::StaticDevice | Kind::StaticDirectory)) {
        return Err(Fault::invalid(
            "kind",
            "is a static one: those come from the configuration",
        ));
    }
    if wish.accesses.is_empty() {
        return Err(Fault::invalid("accesses", "are empty"));
    }
    let mut least = sizes::SMALLEST;
    for wanted in &wish.accesses {
        access::check(wanted)?;
        if !wanted.block {
            let filesystem = Filesystem::asked(wanted.fs_type.as_deref())?;
            mkfs::options(filesystem, &wish.mkfs_options)?;
            least = least.max(filesystem.smallest());
        }
    }
    if wish.accesses.iter().all(|wanted| wanted.block)
        && !Filesystem::ALL
            .into_iter()
            .any(|fs| mkfs::options(fs, &wish.mkfs_options).is_ok())
    {
        return Err(Fault::invalid(
            "mkfs_options",
            "are no mkfs's that is used here",
        ));
    }
    Ok(least)
}

/// Whether a volume of the same name is the one that is wished for.
pub fn same(volume: &Volume, wish: &CreateWish) -> Result<(), Fault> {
    let differs = |what: &str| {
        Err(Fault::Exists(format!(
            "a volume with this name is there already, with another {what}"
        )))
    };
    volume
        .usable()
        .or_else(|_| differs("record, which cannot be read"))?;
    // Whoever asks for none takes what was made, whatever the default has become since.
    if wish.kind.is_some_and(|kind| kind != volume.kind) {
        return differs("kind");
    }
    if !wish.range.contains(volume.size) {
        return differs("size");
    }
    let Some(record) = &volume.record else {
        return differs("record");
    };
    if record
        .mkfs_options
        .split_ascii_whitespace()
        .ne(wish.mkfs_options.split_ascii_whitespace())
    {
        return differs("mkfs_options");
    }
    let within = |one: &[_], other: &[_]| {
        one.iter()
            .all(|wanted| other.iter().any(|known| access::same(wanted, known)))
    };
    if !within(&wish.accesses, &record.accesses) || !within(&record.accesses, &wish.accesses) {
        return differs("access");
    }
    Ok(())
}

/// `volume` has its record, but for the size.
pub async fn create<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wish: &CreateWish,
    least: u64,
) -> Result<(), Fault> {
    if volume.intent.is_some() {
        settle::settle(hand, volume).await?;
        if volume.made {
            return same(volume, wish);
        }
        // It was begun for another wish of the same name, and is made by this one.
        if wish.kind.is_some_and(|kind| kind != volume.kind) {
            return Err(Fault::Aborted(
                "a volume with this name and another kind was just given up: ask again".into(),
            ));
        }
        if let Some(record) = &mut volume.record {
            record.accesses.clone_from(&wish.accesses);
            record.mkfs_options.clone_from(&wish.mkfs_options);
        }
    }
    let room = room(hand, volume.kind).await?;
    let size = wish.range.new_volume(least, room.unit)?;
    if size > room.available {
        return Err(Fault::Exhausted(format!(
            "{size} bytes are wanted, the pool has {} left",
            room.available
        )));
    }
    volume.size = size;
    let Some(record) = &mut volume.record else {
        return Err(Fault::Unavailable(
            "the volume has no record to make it by".into(),
        ));
    };
    record.size = size;
    let record = record.clone();
    hand.intend(
        volume,
        Operation::Create {
            record: record.clone(),
        },
    )
    .await?;
    let made = make(hand, volume, &record).await;
    stage::conclude(hand, volume, made).await
}

async fn make<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    record: &record::VolumeRecord,
) -> Result<(), Fault> {
    hand.make(volume).await?;
    if let Backing::Image(_) = volume.backing {
        hand.write(VOLUMES, &volume.handle, record_text(record)?)
            .await?;
    }
    (volume.made, volume.looked) = (true, true);
    Ok(())
}

pub fn record_text(record: &record::VolumeRecord) -> Result<String, Fault> {
    record::write(record)
        .map_err(|error| Fault::Precondition(crate::model::causes::with_causes(&error)))
}

pub async fn room<S: Steps>(hand: &Hand<S>, kind: Kind) -> Result<Room, Fault> {
    match (kind, &hand.settings.group) {
        (Kind::Loop, _) => hand.folder_room().await,
        (Kind::Lvm, Some(group)) => {
            hand.room(Step::GroupRoom {
                group: group.clone(),
            })
            .await
        }
        (Kind::Lvm | Kind::StaticDevice | Kind::StaticDirectory, _) => Err(Fault::invalid(
            "kind",
            "is not configured here: [pool] volume_group is not set",
        )),
    }
}

pub async fn delete<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    volume.usable()?;
    if volume.is_static() {
        return Err(Fault::Precondition(format!(
            "volume {} comes from the configuration: it is not deleted",
            volume.handle
        )));
    }
    if let Some(holders) = volume.holders() {
        return Err(Fault::Precondition(format!(
            "volume {} is {holders}",
            volume.handle
        )));
    }
    hand.intend(volume, Operation::Delete).await?;
    let deleted = settle::finish_delete(hand, volume).await;
    stage::conclude_unmaking(hand, volume, deleted).await
}
