//! What the `NodeStorage` object says of a node, a drive, a volume and a stale mount beyond their
//! health: names that people and the cluster know.
//!
//! In: wire messages. Out: plain data. No I/O.

use jiff::Timestamp;

use crate::health;
use crate::health::HealthStatus;
use crate::report::node_snapshot::timestamp_from_wire;
use diskvitals_wire as wire;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub boot_id: String,
    pub machine_id: String,
    /// When the daemon was started.
    pub started: Option<Timestamp>,
    /// Of the daemon.
    pub version: String,
    /// Why the kubelet's folder is not completely read; None while it is.
    pub kubelet_unreadable: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveIdentity {
    pub kernel_name: String,
    pub model: String,
    pub serial: String,
    pub firmware: String,
    /// As `diskvitals drives` prints it.
    pub kind: String,
    pub enclosure: String,
    pub slot: String,
    pub is_missing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeIdentity {
    /// Empty for a filesystem of the host.
    pub driver: String,
    /// The handle of a CSI volume; of another one its mount point, without one its device.
    pub handle: String,
    pub pv: String,
    /// What is wrong with it, worst first; empty while its health is unknown.
    pub statuses: Vec<HealthStatus>,
}

/// A mount of a pod that no longer exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleMount {
    pub driver: String,
    pub handle: String,
    pub volume: String,
    pub pod_uid: String,
    pub path: String,
    pub role: &'static str,
    /// When it was attached.
    pub since: Option<Timestamp>,
    pub why: String,
}

impl NodeIdentity {
    pub(crate) fn from_wire(node: &wire::Node) -> NodeIdentity {
        let kubelet = node.sources.iter().find(|source| source.name == "kubelet");
        let unreadable = match kubelet {
            Some(source) if source.state() == wire::source_state::State::Active => None,
            Some(source) if !source.detail.is_empty() => Some(source.detail.clone()),
            Some(_) => Some("the kubelet's folder is not read".to_owned()),
            None => {
                Some("diskvitalsd does not say whether it reads the kubelet's folder".to_owned())
            }
        };
        NodeIdentity {
            boot_id: node.boot_id.clone(),
            machine_id: node.machine_id.clone(),
            started: timestamp_from_wire(node.started),
            version: node.version.clone(),
            kubelet_unreadable: unreadable,
        }
    }
}

impl DriveIdentity {
    pub(crate) fn from_wire(drive: &wire::Drive) -> DriveIdentity {
        let location = drive.location.clone().unwrap_or_default();
        DriveIdentity {
            kernel_name: drive.name.clone(),
            model: drive.model.trim().to_owned(),
            serial: drive.serial.trim().to_owned(),
            firmware: drive.firmware.trim().to_owned(),
            kind: kind(drive.kind()).to_owned(),
            enclosure: location.enclosure,
            slot: location.slot,
            is_missing: drive.presence() == wire::Presence::Missing,
        }
    }
}

fn kind(kind: wire::DriveKind) -> &'static str {
    match kind {
        wire::DriveKind::Hdd => "HDD",
        wire::DriveKind::Ssd => "SSD",
        wire::DriveKind::Nvme => "NVMe",
        wire::DriveKind::Emmc => "eMMC",
        wire::DriveKind::Usb => "USB",
        wire::DriveKind::Virtual => "virtual",
        wire::DriveKind::Remote => "remote",
        wire::DriveKind::Unknown | wire::DriveKind::Unspecified => "unknown",
    }
}

impl VolumeIdentity {
    pub(crate) fn from_wire(volume: &wire::Volume) -> VolumeIdentity {
        let host_mount = volume
            .mounts
            .iter()
            .find(|mount| mount.role() == wire::MountRole::Host)
            .map(|mount| &mount.path);
        let names =
            [Some(&volume.handle), host_mount, Some(&volume.device_name), Some(&volume.device)];
        let handle = names.into_iter().flatten().find(|name| !name.is_empty());
        VolumeIdentity {
            driver: volume.driver.clone(),
            handle: handle.unwrap_or(&volume.id).clone(),
            pv: volume.pv.clone(),
            statuses: health::of_volume(volume).statuses.unwrap_or_default(),
        }
    }
}

impl StaleMount {
    pub(crate) fn from_wire(attachment: wire::Attachment) -> StaleMount {
        let role = match attachment.role() {
            wire::MountRole::Pod => "Pod",
            wire::MountRole::Staging => "Staging",
            wire::MountRole::Host => "Host",
            wire::MountRole::Unspecified => "Unknown",
        };
        StaleMount {
            role,
            driver: attachment.driver,
            handle: attachment.handle,
            volume: attachment.volume_id,
            pod_uid: attachment.pod_uid,
            path: attachment.path,
            since: timestamp_from_wire(attachment.since),
            why: attachment.stale,
        }
    }
}
