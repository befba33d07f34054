//! The engine's types → wire, and requests → the engine's types.

use tonic::Status;

use crate::api::status::invalid;
use diskvitals_convert::{time, wall_time};
use diskvitals_finding::provision::{
    AccessMode, BackingKind, ProvidedAttachment, VolumeAccess, VolumePresence,
};
use diskvitals_host::clock;
use diskvitals_model::cordon;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::storage::StorageUnknown;
use diskvitals_provision::engine::VolumeView;
use diskvitals_provision::error::ProvisionError;
use diskvitals_provision::rules::sizes;
use diskvitals_provision::step::PoolCapacity;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;

pub(crate) fn kind(kind: BackingKind) -> wire::ProvidedKind {
    match kind {
        BackingKind::Loop => wire::ProvidedKind::Loop,
        BackingKind::Lvm => wire::ProvidedKind::Lvm,
        BackingKind::StaticDevice => wire::ProvidedKind::StaticDevice,
        BackingKind::StaticDirectory => wire::ProvidedKind::StaticDirectory,
    }
}

pub(crate) fn kind_of(number: i32) -> Result<Option<BackingKind>, Status> {
    match wire::ProvidedKind::try_from(number) {
        Ok(wire::ProvidedKind::Unspecified) => Ok(None),
        Ok(wire::ProvidedKind::Loop) => Ok(Some(BackingKind::Loop)),
        Ok(wire::ProvidedKind::Lvm) => Ok(Some(BackingKind::Lvm)),
        Ok(wire::ProvidedKind::StaticDevice | wire::ProvidedKind::StaticDirectory) | Err(_) => {
            Err(invalid("kind", "is neither PROVIDED_KIND_LOOP nor PROVIDED_KIND_LVM"))
        }
    }
}

pub(crate) fn required_access(access: Option<wire::Access>) -> Result<VolumeAccess, Status> {
    access_of(access.ok_or_else(|| invalid("access", "is missing"))?)
}

pub(crate) fn access_of(access: wire::Access) -> Result<VolumeAccess, Status> {
    let mode = AccessMode::from_number(access.mode)
        .ok_or_else(|| invalid("access.mode", "is not a CSI access mode"))?;
    Ok(VolumeAccess {
        mode,
        block: access.block,
        fs_type: Some(access.fs_type).filter(|name| !name.is_empty()),
        mount_flags: access.mount_flags,
    })
}

fn access(access: &VolumeAccess) -> wire::Access {
    wire::Access {
        mode: access.mode.number(),
        block: access.block,
        fs_type: access.fs_type.clone().unwrap_or_default(),
        mount_flags: access.mount_flags.clone(),
    }
}

/// An error while it is not known whether new volumes may be placed in the pool.
pub(crate) fn pool_kind(
    snapshot: &Snapshot,
    kind_of: BackingKind,
    capacity: &Result<PoolCapacity, ProvisionError>,
) -> Result<wire::PoolKind, StorageUnknown> {
    let (total, available, unit, problem) = match capacity {
        Ok(PoolCapacity { total, available, unit, .. }) => {
            let cordon = cordon::of_pool(snapshot, kind_of)?;
            let available = if cordon.is_some() { 0 } else { *available };
            let problem = cordon.map(|cordon| cordon.text(clock::wall(cordon.since)));
            (*total, available, (*unit).max(1), problem.unwrap_or_default())
        }
        Err(error) => (0, 0, 1, with_causes(error)),
    };
    let multiple = |bytes: u64| bytes / unit * unit;
    Ok(wire::PoolKind {
        kind: kind(kind_of).into(),
        total_bytes: total,
        available_bytes: multiple(available),
        largest_bytes: multiple(available),
        smallest_bytes: sizes::MIN_SIZE.div_ceil(unit) * unit,
        problem,
    })
}

pub(crate) fn volume(view: &VolumeView, driver: &str) -> wire::ProvidedVolume {
    let provided = &view.provided;
    let one = |role, attached| attachment(driver, &provided.handle, role, attached);
    let staged = provided.staged.iter().map(|staged| one(wire::MountRole::Staging, staged));
    let published = provided.published.iter().map(|attached| one(wire::MountRole::Pod, attached));
    let is_absent = provided.presence == VolumePresence::Absent;
    wire::ProvidedVolume {
        handle: provided.handle.clone(),
        name: view.name.clone(),
        kind: kind(provided.kind).into(),
        size_bytes: provided.size,
        created: view.created.map(wall_time),
        mkfs_options: view.mkfs_options.clone(),
        accesses: view.accesses.iter().map(access).collect(),
        attachments: staged.chain(published).collect(),
        device: provided.device.clone().unwrap_or_default(),
        busy: view.current_activity().unwrap_or_default(),
        problem: provided.error.clone().filter(|_| !is_absent).unwrap_or_default(),
        absent: provided.error.clone().filter(|_| is_absent).unwrap_or_default(),
    }
}

pub(crate) fn attachment(
    driver: &str,
    handle: &str,
    role: wire::MountRole,
    attached: &ProvidedAttachment,
) -> wire::Attachment {
    let pod = attached.pod.clone().unwrap_or_default();
    wire::Attachment {
        driver: driver.to_owned(),
        handle: handle.to_owned(),
        volume_id: diskvitals_finding::ids::VolumeId::csi(driver, handle).to_string(),
        role: role.into(),
        path: attached.path.to_string(),
        read_only: attached.read_only,
        mode: attached.access.mode.number(),
        block: attached.access.block,
        pod_uid: pod.uid,
        pod_name: pod.name,
        pod_namespace: pod.namespace,
        since: Some(time(attached.since)),
        stale: String::new(),
    }
}
