//! The advice for errors of a filesystem: its type and its mount point decide how it can be checked.

use crate::model::finding::{Finding, Severity, Subject};
use crate::model::reason::Reason;
use crate::model::snapshot::Snapshot;

/// Instead of the reason's text. None for a device of which no volume is known.
pub(super) fn action(snapshot: &Snapshot, finding: &Finding) -> Option<String> {
    let Subject::Volume(id) = &finding.subject else {
        return None;
    };
    if finding.reason != Reason::FilesystemErrors {
        return None;
    }
    let volume = &snapshot.volumes.get(id)?.facts;
    let names: Vec<&str> = volume
        .drive_ids
        .iter()
        .filter_map(|id| Some(snapshot.drives.get(id)?.facts.name.as_str()))
        .filter(|name| !name.is_empty())
        .collect();
    let first = match names.as_slice() {
        [] => "Look at what is below it first.".to_owned(),
        [name] => format!("Look at {name}, the drive below, first."),
        [_, _] | [_, _, _] => format!("Look at the drives below first ({}).", names.join(", ")),
        _ => "Look at the drives below first.".to_owned(),
    };
    let save = match finding.severity {
        Severity::Bad => "Save the data. ",
        _ => "",
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
    Some(format!("{save}{first} {check}"))
}
