//! Creation and deletion of volumes in the pool.

use crate::engine::request::CreateRequest;
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::engine::{completion, recover};
use crate::error::ProvisionError;
use crate::record::{self, Operation};
use crate::rules::filesystem::Filesystem;
use crate::rules::{access, mkfs, names, sizes};
use crate::step::StepExecutor;
use diskvitals_finding::provision::{BackingKind, VolumeAccess};

/// Checks a request without access to the host. Returns the smallest size that its filesystems can
/// have.
pub(crate) fn check_request(request: &CreateRequest) -> Result<u64, ProvisionError> {
    names::check_name(&request.name)?;
    request.range.check()?;
    if matches!(request.kind, Some(BackingKind::StaticDevice | BackingKind::StaticDirectory)) {
        return Err(ProvisionError::invalid_argument(
            "kind",
            "is a static one: those come from the configuration",
        ));
    }
    if request.accesses.is_empty() {
        return Err(ProvisionError::invalid_argument("accesses", "are empty"));
    }
    let mut least = sizes::MIN_SIZE;
    for wanted in &request.accesses {
        access::check(wanted)?;
        if !wanted.block {
            let filesystem = Filesystem::requested(wanted.fs_type.as_deref())?;
            mkfs::parse_options(filesystem, &request.mkfs_options)?;
            least = least.max(filesystem.min_size());
        }
    }
    if request.accesses.iter().all(|wanted| wanted.block)
        && !Filesystem::ALL
            .into_iter()
            .any(|fs| mkfs::parse_options(fs, &request.mkfs_options).is_ok())
    {
        return Err(ProvisionError::invalid_argument(
            "mkfs_options",
            "are not permitted for any supported mkfs",
        ));
    }
    Ok(least)
}

/// Whether an existing volume of the same name fits the request.
pub(crate) fn check_same_volume(
    volume: &Volume,
    request: &CreateRequest,
) -> Result<(), ProvisionError> {
    let differs = |what: &str| {
        Err(ProvisionError::AlreadyExists(format!(
            "a volume with this name exists already, with another {what}"
        )))
    };
    volume.check_usable().or_else(|_| differs("record, which cannot be read"))?;
    // A request without a kind accepts the existing kind, even if the default has changed since.
    if request.kind.is_some_and(|kind| kind != volume.kind) {
        return differs("kind");
    }
    if !request.range.contains(volume.size) {
        return differs("size");
    }
    let Some(record) = &volume.record else {
        return differs("record");
    };
    if record
        .mkfs_options
        .split_ascii_whitespace()
        .ne(request.mkfs_options.split_ascii_whitespace())
    {
        return differs("mkfs_options");
    }
    let within = |some: &[VolumeAccess], others: &[VolumeAccess]| {
        let is_among = |one| others.iter().any(|other| access::is_compatible(one, other));
        some.iter().all(is_among)
    };
    let (wanted, known) = (&request.accesses, &record.accesses);
    if !within(wanted, known) || !within(known, wanted) {
        return differs("access");
    }
    Ok(())
}

/// `volume` has all parts of its record except the size.
pub async fn create<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    request: &CreateRequest,
    least: u64,
) -> Result<(), ProvisionError> {
    if volume.intent.is_some() {
        recover::recover(ctx, volume).await?;
        if volume.exists {
            return check_same_volume(volume, request);
        }
        // An earlier request with the same name began the creation; this request completes it.
        if request.kind.is_some_and(|kind| kind != volume.kind) {
            return Err(ProvisionError::Aborted(
                "a volume with this name and another kind was just given up: ask again".into(),
            ));
        }
        if let Some(record) = &mut volume.record {
            record.accesses.clone_from(&request.accesses);
            record.mkfs_options.clone_from(&request.mkfs_options);
        }
    }
    let room = ctx.capacity(volume.kind).await?;
    let size = request.range.size_for_new(least, room.unit)?;
    if size > room.available {
        return Err(ProvisionError::ResourceExhausted(format!(
            "{size} bytes are needed, the pool has {} left",
            room.available
        )));
    }
    volume.size = size;
    let Some(record) = &mut volume.record else {
        return Err(ProvisionError::Unavailable(
            "the volume has no record to create it from".into(),
        ));
    };
    record.size = size;
    let record = record.clone();
    let operation = Operation::Create { record: record.clone() };
    ctx.begin_operation(volume, operation).await?;
    let created = create_and_record(ctx, volume, &record).await;
    recover::finish_or_undo(ctx, volume, created).await
}

async fn create_and_record<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    record: &record::VolumeRecord,
) -> Result<(), ProvisionError> {
    // Before the volume: it is lost with the volume, and a volume without it counts as used.
    volume.format.new = true;
    ctx.write_format_record(&volume.handle, &volume.format).await?;
    ctx.create_backing(volume).await?;
    if let Backing::Image(_) = volume.backing {
        ctx.write_volume_record(record).await?;
    }
    (volume.exists, volume.is_reconciled) = (true, true);
    Ok(())
}

pub async fn delete<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    if volume.is_static() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} comes from the configuration and cannot be deleted",
            volume.handle
        )));
    }
    if let Some(holders) = volume.attached_at() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "volume {} is {holders}",
            volume.handle
        )));
    }
    ctx.begin_operation(volume, Operation::Delete).await?;
    let deleted = completion::finish_delete(ctx, volume).await;
    recover::finish_removal(ctx, volume, deleted).await
}
