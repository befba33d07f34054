//! A volume's device, filesystem and mount on the host: the parts that staging, publishing and
//! recovery share.
//!
//! In: a volume's copy and its mount path. Out: steps. The module writes no intents and no
//! attachment records; it only records that mkfs has begun.

use crate::engine::formatting;
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::Operation;
use crate::rules::filesystem::Filesystem;
use crate::rules::{access, mkfs, mount};
use crate::step::{Content, Device, MountedFilesystem, OwnedPath, RootedPath, Step, StepExecutor};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{VolumeAccess, VolumePresence};

/// Refuses a path that is not this volume's, before anything is done. Its own mount may be there.
pub async fn check_target<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    target: &OwnedPath,
    field: &'static str,
) -> Result<(), ProvisionError> {
    if ctx.find_mount(volume, &target.place, Some(field)).await?.is_some() {
        ctx.find_remaining_device(volume).await?;
        return refuse_foreign_mount(ctx, volume, &target.place, field).await;
    }
    let target = target.clone();
    ctx.run_for_field(Step::CheckTarget { target }, field).await
}

/// Attaches the device and, if `target` is given, mounts its filesystem there. Returns whether the
/// attachment is read-only.
pub(crate) async fn attach_and_mount<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    wanted: &VolumeAccess,
    target: Option<&OwnedPath>,
    field: &'static str,
    read_only: bool,
) -> Result<bool, ProvisionError> {
    let (options, asked) = mount::options(&wanted.mount_flags);
    let read_only = read_only || asked || access::is_read_only(wanted.mode);
    let device = ctx.attach_device(volume, wanted.block && read_only).await?;
    let Some(device) = device else {
        return Ok(read_only);
    };
    if volume.is_static() {
        volume.size = device.size;
    }
    if device.read_only && !read_only {
        return Err(ProvisionError::FailedPrecondition(format!(
            "{} is read-only, but volume {} is requested for writing",
            device.name, volume.handle
        )));
    }
    let Some(target) = target else {
        return Ok(read_only);
    };
    refuse_foreign_mount(ctx, volume, &target.place, field).await?;
    let (filesystem, size) = ensure_filesystem(ctx, volume, &device, wanted).await?;
    if let (Filesystem::Ext4, Some(size), Some(_)) = (filesystem, size, &volume.record)
        && is_smaller_than_device(size, device.size)
    {
        grow_before_mount(ctx, volume, &device, &target.place).await?;
    }
    mount::check(filesystem, true, &wanted.mount_flags)?;
    formatting::mark_used(ctx, volume).await?;
    let fs_type = filesystem.name().to_owned();
    ctx.run_for_field(
        Step::Mount { device: device.node, target: target.clone(), fs_type, options, read_only },
        field,
    )
    .await?;
    Ok(read_only)
}

/// Refuses to mount over another volume's mount.
pub(crate) async fn refuse_foreign_mount<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    target: &RootedPath,
    field: &'static str,
) -> Result<(), ProvisionError> {
    match ctx.find_mount(volume, target, Some(field)).await? {
        Some(other) if !volume.matches_mount(&other) => Err(ProvisionError::AlreadyExists(
            format!("{field}: {} is mounted at {} already", other.source, target.path),
        )),
        _ => Ok(()),
    }
}

/// The filesystem for a blank device: the type in the staging request, or else the type in the
/// creation request.
fn requested_fs_type<'a>(volume: &'a Volume, wanted: &'a VolumeAccess) -> Option<&'a str> {
    let accesses = volume.record.iter().flat_map(|record| &record.accesses);
    let mut of_record = accesses.filter_map(|access| access.fs_type.as_deref());
    wanted.fs_type.as_deref().or_else(|| of_record.next())
}

/// Returns the filesystem on the device. Creates it first if nothing is on the device for certain, or
/// if root permits it.
async fn ensure_filesystem<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    device: &Device,
    wanted: &VolumeAccess,
) -> Result<(Filesystem, Option<u64>), ProvisionError> {
    let content = ctx.probe_content(device).await?;
    match content {
        Content::Unknown { at } if formatting::authorized(volume, device).is_none() => {
            Err(formatting::not_blank(volume, device, at))
        }
        Content::Foreign { what } => Err(ProvisionError::FailedPrecondition(format!(
            "{} contains {what}: it is not formatted",
            device.name
        ))),
        Content::Filesystem { fs_type, size, .. } => {
            let known = Filesystem::from_name(&fs_type);
            let other = wanted.fs_type.as_deref().filter(|asked| *asked != fs_type);
            match (known, other) {
                (Some(filesystem), None) => Ok((filesystem, size)),
                (_, Some(asked)) => Err(ProvisionError::FailedPrecondition(format!(
                    "{} contains {fs_type}, but {asked} is requested: it is not formatted",
                    device.name
                ))),
                (None, None) => Err(ProvisionError::FailedPrecondition(format!(
                    "{} contains {fs_type}, which is not supported for volumes",
                    device.name
                ))),
            }
        }
        Content::Blank | Content::Unknown { .. } => {
            let filesystem = Filesystem::requested(requested_fs_type(volume, wanted))?;
            let (name, least) = (filesystem.name(), filesystem.min_size());
            if device.size < least {
                return Err(ProvisionError::FailedPrecondition(format!(
                    "{} has {} bytes, {name} needs {least}",
                    device.name, device.size
                )));
            }
            let options = volume.record.as_ref().map_or("", |record| &record.mkfs_options);
            let options = mkfs::parse_options(filesystem, options)?;
            format(ctx, volume, device, filesystem, options).await?;
            Ok((filesystem, None))
        }
    }
}

async fn format<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    device: &Device,
    filesystem: Filesystem,
    options: Vec<String>,
) -> Result<(), ProvisionError> {
    let proof = formatting::proof(ctx, volume, device).await?;
    let before = volume.format.clone();
    formatting::record_use(ctx, volume, device, &proof).await?;
    ctx.set_formatting(volume, Some(device.device_identity())).await?;
    let step = Step::Format {
        device: device.node.clone(),
        fs_type: filesystem.name().to_owned(),
        options,
        proof,
    };
    let operation = step.description();
    match ctx.execute(step).await {
        Ok(_) => ctx.set_formatting(volume, None).await,
        Err(error) => {
            // The content is not from our mkfs and must not count as ours later.
            if error.kind.is_refusal() {
                if let Err(left) = ctx.set_formatting(volume, None).await {
                    tracing::warn!(volume = volume.handle, error = %left, "the intent may still record a refused mkfs as begun");
                }
                if let Err(left) = formatting::restore(ctx, volume, before, error.kind).await {
                    tracing::warn!(volume = volume.handle, error = %left, "a refused mkfs may still be recorded as permitted and begun");
                }
            }
            Err(ProvisionError::from_step(&operation, None, error))
        }
    }
}

/// Whether a volume was grown without its filesystem. A filesystem of full size may leave out a
/// tail that is too short for the metadata of a block group.
fn is_smaller_than_device(filesystem: u64, device: u64) -> bool {
    let missing = device.saturating_sub(filesystem);
    missing >= 8 << 20 || missing >= device / 8
}

/// Online growth of an ext4 needs CAP_SYS_RESOURCE, which not every machine grants; offline growth
/// needs no capability. A filesystem that cannot be grown now is mounted with its present size.
async fn grow_before_mount<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
    device: &Device,
    target: &RootedPath,
) -> Result<(), ProvisionError> {
    let step = Step::GrowFilesystem {
        device: device.node.clone(),
        at: target.clone(),
        fs_type: Filesystem::Ext4.name().to_owned(),
    };
    match ctx.run(step).await {
        Err(fault @ ProvisionError::Stuck(_)) => Err(fault),
        Err(error) => {
            tracing::warn!(volume = volume.handle, %error, "a filesystem that is smaller than its volume is mounted as it is");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

pub(crate) async fn release_device<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if volume.is_attached() {
        return Ok(());
    }
    let formatting = volume.intent.as_ref().is_some_and(|intent| intent.formatting);
    if formatting && volume.is_static() {
        repeat_interrupted_format(ctx, volume).await?;
    } else if formatting && volume.record.is_some() {
        wipe_interrupted_format(ctx, volume).await?;
    }
    ctx.detach_device(volume).await?;
    if formatting {
        ctx.set_formatting(volume, None).await?;
    }
    Ok(())
}

/// No data is lost: mkfs was permitted on the device when it began and has not been mounted since. An
/// interrupted mkfs leaves content that is neither blank nor a filesystem, and no later mkfs may
/// overwrite it. The volume itself is kept: its extents could be allocated to another volume, and a
/// logical volume holds its own record.
async fn wipe_interrupted_format<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    match ctx.attach_device(volume, false).await {
        Ok(Some(device)) => ctx.run(Step::WipeSignatures { device: device.node }).await,
        Ok(None) => Ok(()),
        Err(ProvisionError::Unavailable(why)) => {
            tracing::error!(
                volume = volume.handle,
                why,
                "mkfs was interrupted on a device that is missing: the device will not be formatted again"
            );
            Ok(())
        }
        Err(fault) => Err(fault),
    }
}

/// A static volume cannot be created again: its mkfs is repeated. Content that is not from our mkfs
/// is kept, and so is the content of another device that now has the same name.
async fn repeat_interrupted_format<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
) -> Result<(), ProvisionError> {
    let (Some(device), Some(intent)) = (&volume.device, &volume.intent) else {
        return Ok(());
    };
    let (Operation::Stage { access, .. } | Operation::Publish { access, .. }) = &intent.operation
    else {
        return Ok(());
    };
    let fs_type = Filesystem::requested(requested_fs_type(volume, access))?.name().to_owned();
    let step = Step::RepeatFormat {
        device: device.node.clone(),
        expected: intent.device.clone().unwrap_or_default(),
        fs_type,
        options: Vec::new(),
    };
    match ctx.run(step).await {
        // The abandoned mkfs may still run.
        Err(
            fault @ (ProvisionError::InUse(_)
            | ProvisionError::Interrupted(_)
            | ProvisionError::Stuck(_)),
        ) => Err(fault),
        Err(error) => {
            tracing::error!(volume = volume.handle, %error, "an interrupted mkfs could not be repeated: check what is on the device");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Checks whether an unattached static volume exists. One that was never here, and is not expected, is
/// absent; only a path that certainly does not exist counts as that.
pub(crate) async fn check_unattached<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    let checked = match &volume.backing {
        Backing::Directory(path) => check_directory(ctx, path).await,
        Backing::Device(_) | Backing::Image(_) | Backing::LogicalVolume { .. } => {
            ctx.find_device(volume).await
        }
    };
    match checked {
        Ok(()) => {
            volume.size = volume.device.as_ref().map_or(volume.size, |device| device.size);
            volume.error = None;
            volume.presence = VolumePresence::Present;
            formatting::record_seen(ctx, volume).await;
        }
        Err(fault @ ProvisionError::Stuck(_)) => return Err(fault),
        Err(fault) => {
            let is_expected = ctx.settings.is_expected(&volume.handle);
            volume.presence = match &fault {
                ProvisionError::Unavailable(_) => volume.presence_without_device(is_expected),
                _ => VolumePresence::Missing,
            };
            volume.device = None;
            volume.error = Some(fault.to_string());
        }
    }
    Ok(())
}

pub(crate) async fn check_directory<S: StepExecutor>(
    ctx: &StepContext<S>,
    path: &HostPath,
) -> Result<(), ProvisionError> {
    ctx.run(Step::CheckDirectory { path: path.clone(), roots: ctx.settings.static_roots.clone() })
        .await
}

/// Whether the volume is mounted at a path that no record lists. Another mount at the path is an
/// error.
pub(crate) async fn is_mounted_unrecorded<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    target: &RootedPath,
    field: &'static str,
) -> Result<bool, ProvisionError> {
    ctx.find_remaining_device(volume).await?;
    match ctx.find_mount(volume, target, Some(field)).await? {
        None => Ok(false),
        Some(mounted) if volume.matches_mount(&mounted) => Ok(true),
        Some(other) => Err(ProvisionError::FailedPrecondition(foreign_mount(&other, target))),
    }
}

pub(crate) fn foreign_mount(other: &MountedFilesystem, target: &RootedPath) -> String {
    format!("{} is mounted at {}, not this volume", other.source, target.path)
}

/// Checks that the kind of volume permits the requested access.
pub(crate) fn check_access(volume: &Volume, wanted: &VolumeAccess) -> Result<(), ProvisionError> {
    access::check(wanted)?;
    if wanted.block && matches!(volume.backing, Backing::Directory(_)) {
        return Err(ProvisionError::invalid_argument(
            "access.block",
            format!("volume {} is a folder", volume.handle),
        ));
    }
    Ok(())
}
