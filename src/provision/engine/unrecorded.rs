//! Volumes whose records the pool's disk does not return. They are not unattached: what they have is
//! taken from the kernel's mount table and loop devices, and they can be detached. Their records are not
//! written.
//!
//! In: a handle. Out: a volume with the attachments that the kernel has, known to no caller.

use crate::engine::backing::pool_backing;
use crate::engine::settings::Settings;
use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, RecordProblem, Volume};
use crate::error::ProvisionError;
use crate::rules::names;
use crate::step::StepExecutor;
use diskvitals_finding::provision::{AccessMode, BackingKind, ProvidedAttachment, VolumeAccess};
use diskvitals_host::clock;
use diskvitals_model::graph::kube::{CsiPathKind, parse_csi_path};

/// The volume of a handle while no record is read; None if only a record could tell that there is one.
pub fn volume(settings: &Settings, handle: &str, why: &str) -> Option<Volume> {
    let mut volume = match settings.static_volumes.iter().find(|entry| entry.name == handle) {
        Some(entry) => Volume::from_static(entry),
        None if names::is_pool_handle(handle) => {
            let backing = pool_backing(settings, BackingKind::Loop, handle)?;
            Volume::new(handle, BackingKind::Loop, backing)
        }
        None => return None,
    };
    volume.record_problem = Some(RecordProblem::NotRead(why.to_owned()));
    Some(volume)
}

/// The volume with its device and the attachments that the kernel has. A raw block volume that no pod
/// has is staged without a mount, and counts as not staged.
pub(crate) async fn with_attachments<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
) -> Result<Volume, ProvisionError> {
    let mut volume = volume.clone();
    (volume.staged, volume.published) = (None, Vec::new());
    find_group(ctx, &mut volume).await?;
    ctx.find_remaining_device(&mut volume).await?;
    let Some(device) = &volume.device else {
        return Ok(volume);
    };
    let remains = ctx.find_remains(None, None, Some(&device.name)).await?;
    for path in remains.mounts {
        let parsed = parse_csi_path(&ctx.settings.kubelet_root, &path);
        let access = VolumeAccess {
            mode: AccessMode::SingleNodeWriter,
            block: parsed.as_ref().is_some_and(|parsed| parsed.block),
            fs_type: None,
            mount_flags: Vec::new(),
        };
        let attachment =
            ProvidedAttachment { path, access, read_only: false, pod: None, since: clock::now() };
        match parsed {
            Some(parsed) if parsed.kind == CsiPathKind::Staging && volume.staged.is_none() => {
                volume.staged = Some(attachment)
            }
            // Any other mount is somebody's: it keeps the volume staged.
            _ => volume.published.push(attachment),
        }
    }
    Ok(volume)
}

/// A handle does not tell whether the volume is an image or a logical volume.
async fn find_group<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    let (Backing::Image(image), Some(group)) = (&volume.backing, &ctx.settings.volume_group) else {
        return Ok(());
    };
    if ctx.find_remains(None, Some(image), None).await?.loops.is_empty()
        && ctx.find_logical_volume(group, &volume.handle).await?.is_some()
    {
        volume.kind = BackingKind::Lvm;
        volume.backing =
            Backing::LogicalVolume { group: group.clone(), name: volume.handle.clone() };
    }
    Ok(())
}
