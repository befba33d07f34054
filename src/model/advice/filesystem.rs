//! The advice for a filesystem with errors or corruption: its type, its device and its mount point decide
//! how it is checked and repaired. Pure.

use crate::block::{Inventory, Layer};
use crate::label;
use crate::snapshot::Snapshot;
use diskvitals_finding::reason::LoggedErrors;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Subject};
use diskvitals_fscheck::{Filesystem, repair};

/// Instead of the reason's text.
pub(super) fn action(snapshot: &Snapshot, finding: &Finding) -> Option<String> {
    match finding.reason.logged_errors()? {
        LoggedErrors::Corruption => for_corruption(snapshot, finding),
        LoggedErrors::Filesystem => for_errors(snapshot, finding),
        LoggedErrors::Io
        | LoggedErrors::Medium
        | LoggedErrors::Timeout
        | LoggedErrors::Reset
        | LoggedErrors::Transport
        | LoggedErrors::ArrayState => None,
    }
}

/// `None`: if the device or its filesystem is not known. Then the text of the
/// table says it with placeholders.
fn for_corruption(snapshot: &Snapshot, finding: &Finding) -> Option<String> {
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
    match filesystem {
        _ if finding.severity == Severity::Bad => {}
        Filesystem::Btrfs => return Some(of_copies(mount)),
        // It has no copies that could have repaired it: nothing but the log says so.
        Filesystem::Ext4 => {
            let target = mount.map_or_else(|| path(inventory, name), str::to_owned);
            return Some(format!("Check it: `diskvitals check {target}`. Keep a backup of today."));
        }
        Filesystem::Xfs => return None,
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
        Some(Layer::Dm { logical_volume: None, .. }) if label != name => {
            format!("/dev/mapper/{label}")
        }
        _ => format!("/dev/{label}"),
    }
}

/// None for a device of which no volume is known.
fn for_errors(snapshot: &Snapshot, finding: &Finding) -> Option<String> {
    let Subject::Volume(id) = &finding.subject else {
        return None;
    };
    let volume = &snapshot.volumes.get(id)?.facts;
    let names: Vec<&str> = volume
        .drive_ids
        .iter()
        .filter_map(|id| Some(snapshot.drives.get(id)?.facts.name.as_str()))
        .filter(|name| !name.is_empty())
        .collect();
    let first = match names.as_slice() {
        [] => "Save important data, and look at what is below it first.".to_owned(),
        [name] => format!("Save important data, and look at {name}, the drive below, first."),
        [_, _] | [_, _, _] => format!(
            "Save important data, and look at the drives below first ({}).",
            names.join(", ")
        ),
        _ => "Save important data, and look at the drives below first.".to_owned(),
    };
    let mount = volume.mounts.first().map(|mount| mount.path.to_string());
    let is_root = volume.mounts.iter().any(|it| it.path.to_string() == "/");
    let check = match (volume.fs_type.as_deref(), mount) {
        (Some("btrfs"), Some(path)) => {
            let path = if is_root { "/" } else { path.as_str() };
            format!("Then scrub it: `btrfs scrub start -B {path}`.")
        }
        (Some("ext2" | "ext3" | "ext4"), _) if is_root => {
            "/ cannot be unmounted: check it at the next boot (`fsck.mode=force` on the kernel command line), or from a rescue system.".to_owned()
        }
        _ if is_root => "/ cannot be unmounted: check it from a rescue system.".to_owned(),
        _ => "Check the filesystem when it can be unmounted.".to_owned(),
    };
    Some(format!("{first} {check}"))
}
