//! Volumes of the pool come and go: made with the size that a range comes to, and deleted with what
//! was in them.

use crate::model::provision::BackingKind;
use crate::provision::engine::step_context::{StepContext, VOLUMES_DIR};
use crate::provision::engine::volume::{Backing, Volume};
use crate::provision::engine::{CreateRequest, recover, stage};
use crate::provision::error::ProvisionError;
use crate::provision::record::{self, Operation};
use crate::provision::rules::filesystem::Filesystem;
use crate::provision::rules::{access, mkfs, names, sizes};
use crate::provision::step::{PoolCapacity, Step, StepExecutor};

/// What can be said of a wish before anything is looked at. Returns the smallest size that its
/// filesystems can have.
pub fn check_request(wish: &CreateRequest) -> Result<u64, ProvisionError> {
    names::check_name(&wish.name)?;
    wish.range.check()?;
    if matches!(
        wish.kind,
        Some(BackingKind::StaticDevice | BackingKind::StaticDirectory)
    ) {
        return Err(ProvisionError::invalid_argument(
            "kind",
            "is a static one: those come from the configuration",
        ));
    }
    if wish.accesses.is_empty() {
        return Err(ProvisionError::invalid_argument("accesses", "are empty"));
    }
    let mut least = sizes::MIN_SIZE;
    for wanted in &wish.accesses {
        access::check(wanted)?;
        if !wanted.block {
            let filesystem = Filesystem::requested(wanted.fs_type.as_deref())?;
            mkfs::parse_options(filesystem, &wish.mkfs_options)?;
            least = least.max(filesystem.min_size());
        }
    }
    if wish.accesses.iter().all(|wanted| wanted.block)
        && !Filesystem::ALL
            .into_iter()
            .any(|fs| mkfs::parse_options(fs, &wish.mkfs_options).is_ok())
    {
        return Err(ProvisionError::invalid_argument(
            "mkfs_options",
            "are no mkfs's that is used here",
        ));
    }
    Ok(least)
}

/// Whether a volume of the same name is the one that is wished for.
pub fn check_same_volume(volume: &Volume, wish: &CreateRequest) -> Result<(), ProvisionError> {
    let differs = |what: &str| {
        Err(ProvisionError::AlreadyExists(format!(
            "a volume with this name is there already, with another {what}"
        )))
    };
    volume
        .check_usable()
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
        one.iter().all(|wanted| {
            other
                .iter()
                .any(|known| access::is_compatible(wanted, known))
        })
    };
    if !within(&wish.accesses, &record.accesses) || !within(&record.accesses, &wish.accesses) {
        return differs("access");
    }
    Ok(())
}

/// `volume` has its record, but for the size.
pub async fn create<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    wish: &CreateRequest,
    least: u64,
) -> Result<(), ProvisionError> {
    if volume.intent.is_some() {
        recover::recover(hand, volume).await?;
        if volume.exists {
            return check_same_volume(volume, wish);
        }
        // It was begun for another wish of the same name, and is made by this one.
        if wish.kind.is_some_and(|kind| kind != volume.kind) {
            return Err(ProvisionError::Aborted(
                "a volume with this name and another kind was just given up: ask again".into(),
            ));
        }
        if let Some(record) = &mut volume.record {
            record.accesses.clone_from(&wish.accesses);
            record.mkfs_options.clone_from(&wish.mkfs_options);
        }
    }
    let room = capacity(hand, volume.kind).await?;
    let size = wish.range.size_for_new(least, room.unit)?;
    if size > room.available {
        return Err(ProvisionError::ResourceExhausted(format!(
            "{size} bytes are wanted, the pool has {} left",
            room.available
        )));
    }
    volume.size = size;
    let Some(record) = &mut volume.record else {
        return Err(ProvisionError::Unavailable(
            "the volume has no record to make it by".into(),
        ));
    };
    record.size = size;
    let record = record.clone();
    hand.begin_operation(
        volume,
        Operation::Create {
            record: record.clone(),
        },
    )
    .await?;
    let made = create_and_record(hand, volume, &record).await;
    stage::finish_or_undo(hand, volume, made).await
}

async fn create_and_record<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
    record: &record::VolumeRecord,
) -> Result<(), ProvisionError> {
    hand.create_backing(volume).await?;
    if let Backing::Image(_) = volume.backing {
        hand.write_record(VOLUMES_DIR, &volume.handle, record_text(record)?)
            .await?;
    }
    (volume.exists, volume.is_reconciled) = (true, true);
    Ok(())
}

pub fn record_text(record: &record::VolumeRecord) -> Result<String, ProvisionError> {
    record::write(record).map_err(|error| {
        ProvisionError::FailedPrecondition(crate::model::causes::with_causes(&error))
    })
}

pub async fn capacity<S: StepExecutor>(
    hand: &StepContext<S>,
    kind: BackingKind,
) -> Result<PoolCapacity, ProvisionError> {
    match (kind, &hand.settings.volume_group) {
        (BackingKind::Loop, _) => hand.directory_capacity().await,
        (BackingKind::Lvm, Some(group)) => {
            hand.run_for_capacity(Step::VolumeGroupCapacity {
                group: group.clone(),
            })
            .await
        }
        (BackingKind::Lvm | BackingKind::StaticDevice | BackingKind::StaticDirectory, _) => {
            Err(ProvisionError::invalid_argument(
                "kind",
                "is not configured here: [pool] volume_group is not set",
            ))
        }
    }
}

pub async fn delete<S: StepExecutor>(
    hand: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    if volume.is_static() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} comes from the configuration: it is not deleted",
            volume.handle
        )));
    }
    if let Some(holders) = volume.attached_at() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is {holders}",
            volume.handle
        )));
    }
    hand.begin_operation(volume, Operation::Delete).await?;
    let deleted = recover::finish_delete(hand, volume).await;
    stage::finish_removal(hand, volume, deleted).await
}
