//! What permits a mkfs: our own record that the volume is new, a reading of the whole device, or
//! root's authorization.
//!
//! In: a volume's copy with the record of its formatting. Out: a proof for the mkfs, or the reason
//! why there is none. The actor continues an unfinished reading in the background (`continue_scan`).

use diskvitals_host::clock;
use diskvitals_text::causes::with_causes;

use crate::engine::step_context::StepContext;
use crate::engine::volume::{Backing, Volume};
use crate::error::ProvisionError;
use crate::record::formatting::{FormatAuthorization, FormatBasis, FormatRecord, PastFormat};
use crate::step::{
    Device, DeviceIdentity, FormatProof, ScanState, Step, StepErrorKind, StepExecutor,
};

/// Of the same volume, for records: a pool volume is its handle, because its device is attached
/// anew each time.
fn identity(volume: &Volume, device: &Device) -> DeviceIdentity {
    if volume.is_static() {
        return device.device_identity();
    }
    DeviceIdentity { size: device.size, name: Some(format!("volume {}", volume.handle)) }
}

/// The proof that the device may be formatted. Reads a part of the device if that is needed.
pub async fn proof<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    device: &Device,
) -> Result<FormatProof, ProvisionError> {
    if let Some(proof) = authorized(volume, device) {
        return Ok(proof);
    }
    if volume.format.new {
        return Ok(FormatProof::New);
    }
    let state = scan_part(ctx, volume, device).await?;
    if let Some(at) = state.data_at {
        return Err(not_blank(volume, device, at));
    }
    if state.is_complete() {
        let tracked = volume.is_static();
        return Ok(FormatProof::Scanned { state, tracked });
    }
    Err(ProvisionError::Unavailable(format!(
        "{} is read before it is formatted, because it may hold data: {} % of {} bytes are read, all zero; reading continues, ask again",
        device.name,
        state.percent(),
        device.size
    )))
}

/// Whether root permits a mkfs on this device.
pub(crate) fn authorized(volume: &Volume, device: &Device) -> Option<FormatProof> {
    let authorization = volume.format.authorization.as_ref()?;
    let is_same = authorization.device.is_certainly_same(&identity(volume, device));
    (is_same && authorization.is_valid(clock::now())).then(|| FormatProof::Authorized {
        device: volume.is_static().then(|| authorization.device.clone()),
    })
}

pub(crate) fn not_blank(volume: &Volume, device: &Device, at: u64) -> ProvisionError {
    ProvisionError::FailedPrecondition(format!(
        "{} contains data without a known signature at byte {at}: it is not formatted. If nobody needs the data: diskvitals format-authorize {}",
        device.name, volume.handle
    ))
}

async fn scan_part<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    device: &Device,
) -> Result<ScanState, ProvisionError> {
    let begun = volume.format.scan.is_some();
    let state = volume
        .format
        .scan
        .clone()
        .unwrap_or_else(|| ScanState { device: identity(volume, device), ..ScanState::default() });
    if !begun {
        tracing::info!(
            volume = volume.handle,
            device = device.name,
            "a device is read for data before it is formatted"
        );
    }
    let step = Step::Scan { device: device.node.clone(), state, tracked: volume.is_static() };
    let state = ctx.run_for_scan(step).await?;
    volume.format.scan = Some(state.clone());
    write(ctx, volume).await?;
    Ok(state)
}

/// Reads the next part. The device is left as it was found.
pub(crate) async fn continue_scan<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    if !volume.is_scanning() {
        return Ok(());
    }
    let read = match ctx.attach_device(volume, true).await {
        Ok(Some(device)) => scan_part(ctx, volume, &device).await.map(drop),
        Ok(None) => Ok(()),
        Err(fault) => Err(fault),
    };
    if let Err(error) = &read {
        tracing::warn!(volume = volume.handle, error = %with_causes(error), "a device cannot be read for data; it will be tried again");
    }
    ctx.detach_device(volume).await?;
    read
}

/// Records that mkfs is about to begin: an authorization is used up.
pub(crate) async fn record_use<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    device: &Device,
    proof: &FormatProof,
) -> Result<(), ProvisionError> {
    let permitted_by = match proof {
        FormatProof::New => return Ok(()),
        FormatProof::Scanned { .. } => FormatBasis::Scan,
        FormatProof::Authorized { .. } => FormatBasis::Authorization,
    };
    let device = identity(volume, device);
    // What a failed mkfs leaves on a volume of the pool is made blank again.
    volume.format.new = !volume.is_static();
    tracing::info!(volume = volume.handle, %device, ?permitted_by, "a device that was not created here is formatted");
    volume.format.authorization = None;
    volume.format.formatted = Some(PastFormat { at: clock::now(), device, permitted_by });
    write(ctx, volume).await
}

/// A mkfs was refused before it began: the permission is still there. A device that is not as it was
/// recorded is read again.
pub async fn restore<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    before: FormatRecord,
    refusal: StepErrorKind,
) -> Result<(), ProvisionError> {
    volume.format = before;
    if refusal == StepErrorKind::ForeignData {
        volume.format.scan = None;
    }
    write(ctx, volume).await
}

/// Records, before the first mount and before the device is given to a pod, that the volume is not
/// new.
pub(crate) async fn mark_used<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<(), ProvisionError> {
    let used =
        FormatRecord { new: false, scan: None, authorization: None, ..volume.format.clone() };
    if used == volume.format {
        return Ok(());
    }
    let before = std::mem::replace(&mut volume.format, used);
    let written = write(ctx, volume).await;
    if written.is_err() {
        volume.format = before;
    }
    written
}

/// Permits one mkfs on the device as it is now, or takes the permission back.
pub async fn authorize<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
    revoke: bool,
) -> Result<(), ProvisionError> {
    volume.check_usable()?;
    let before = volume.format.authorization.clone();
    volume.format.authorization =
        if revoke { None } else { Some(new_authorization(ctx, volume).await?) };
    if let Err(fault) = write(ctx, volume).await {
        volume.format.authorization = before;
        return Err(fault);
    }
    tracing::warn!(
        volume = volume.handle,
        device = volume.format.authorization.as_ref().map(|it| it.device.to_string()),
        "root has {} one format of a device",
        if revoke { "revoked" } else { "authorized" }
    );
    Ok(())
}

async fn new_authorization<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &mut Volume,
) -> Result<FormatAuthorization, ProvisionError> {
    let refused = |why: &str| {
        Err(ProvisionError::FailedPrecondition(format!("volume {} {why}", volume.handle)))
    };
    if let Some(holders) = volume.attached_at() {
        return refused(&format!("is {holders}"));
    }
    if matches!(volume.backing, Backing::Directory(_)) {
        return refused("is a folder: it is never formatted");
    }
    let device = if volume.is_static() {
        ctx.find_remaining_device(volume).await?;
        identity(volume, volume.require_device()?)
    } else {
        DeviceIdentity { size: volume.size, name: Some(format!("volume {}", volume.handle)) }
    };
    if device.name.is_none() {
        return Err(ProvisionError::FailedPrecondition(format!(
            "the device of volume {} has no identity (WWN, serial number): make the filesystem yourself",
            volume.handle
        )));
    }
    Ok(FormatAuthorization { device, since: clock::now() })
}

/// Records that the device or directory of a static volume is here. A pool that does not take the record
/// keeps nothing else from being done: it is written again when the volume is looked at next.
pub(crate) async fn record_seen<S: StepExecutor>(ctx: &StepContext<S>, volume: &mut Volume) {
    let is_new = volume.note_seen();
    if !volume.is_seen_unrecorded {
        return;
    }
    match ctx.with_pool_patience(write(ctx, volume)).await {
        Ok(()) => volume.is_seen_unrecorded = false,
        Err(error) if is_new => {
            let error = with_causes(&error);
            tracing::warn!(
                volume = volume.handle,
                error,
                "that a static volume is here cannot be recorded: if it is gone after a restart, it is not missed"
            );
        }
        Err(error) => {
            tracing::debug!(volume = volume.handle, %error, "that a static volume is here cannot be recorded")
        }
    }
}

async fn write<S: StepExecutor>(
    ctx: &StepContext<S>,
    volume: &Volume,
) -> Result<(), ProvisionError> {
    ctx.write_format_record(&volume.handle, &volume.format).await
}
