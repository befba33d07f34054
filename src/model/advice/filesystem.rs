//! The advice for a corrupted filesystem, with its device and its mount point. Pure.

use crate::model::block::{Inventory, Layer};
use crate::model::check::{Filesystem, repair};
use crate::model::finding::{Finding, Severity, Subject};
use crate::model::label;
use crate::model::reason::Reason;
use crate::model::snapshot::Snapshot;

/// `None`: for another reason, or if the device or its filesystem is not known. Then the text of the
/// table says it with placeholders.
pub(super) fn action(snapshot: &Snapshot, finding: &Finding) -> Option<String> {
    if finding.reason != Reason::FilesystemCorrupted {
        return None;
    }
    let inventory = &snapshot.inventory;
    let (name, fs_type, mount) = match &finding.subject {
        Subject::Volume(id) => {
            let facts = &snapshot.volumes.get(id)?.facts;
            let mount = facts.mounts.first().map(|mount| mount.path.to_string());
            let device = facts.device.as_ref().filter(|_| !facts.device_gone)?;
            (device, facts.fs_type.as_deref(), mount)
        }
        Subject::Device(name) => {
            let device = inventory.devices.get(name)?;
            (name, device.fs_type.as_deref(), None)
        }
        Subject::Drive(_) | Subject::Source(_) => return None,
    };
    let filesystem = Filesystem::from_name(fs_type?)?;
    let mount = mount.as_deref();
    if finding.severity < Severity::Bad {
        return (filesystem == Filesystem::Btrfs).then(|| of_copies(mount));
    }
    let unmount = match (filesystem, mount) {
        (Filesystem::Btrfs, _) | (_, None) => "",
        _ => ", and unmount it",
    };
    let steps = repair::sequence(filesystem, &path(inventory, name), mount);
    Some(format!(
        "Find out what caused the corruption first (drive, memory, power). Save what can be read{unmount}. Then {steps}."
    ))
}

/// Each damaged block of the btrfs has or had a good copy.
fn of_copies(mount: Option<&str>) -> String {
    let mount = mount.unwrap_or("MOUNT");
    format!(
        "Find out what damaged the copies (drive, memory, cable), and start a scrub, which rewrites them from good ones: `btrfs scrub start -B {mount}`. Repeat it until it finds no error."
    )
}

/// `/dev/sdb1`, `/dev/vg/home`, `/dev/mapper/luks`: as a command takes it.
fn path(inventory: &Inventory, name: &str) -> String {
    let label = label::device(inventory, name);
    match inventory.devices.get(name).map(|device| &device.layer) {
        Some(Layer::Dm {
            logical_volume: None,
            ..
        }) if label != name => format!("/dev/mapper/{label}"),
        _ => format!("/dev/{label}"),
    }
}
