//! Rules about expected mounts, their devices, and whether the mounted volumes respond.

use std::time::Duration;

use jiff::Timestamp;

use crate::assess::input::{Context, VolumeInput};
use crate::assess::text::{
    INACCESSIBLE, Level, MOUNTINFO, SUSPECT, evidence, join_limited, mount_line, raised, unknown,
};
use crate::drive::DriveKind;
use crate::facts::{Facts, KnownVolume};
use crate::probe::{MountProbe, ProbeError};
use crate::volume::{ExpectedMount, MountRole, VolumeFacts};
use diskvitals_finding::mount::Mount;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{ProvidedVolume, VolumePresence};
use diskvitals_finding::{Evidence, Verdict, WitnessKind};
use diskvitals_text::duration::elapsed;

/// Grace for a mount that disappeared: longer than the kubelet needs from an unmount to the removal
/// of its record.
pub(crate) const VANISHED_GRACE: Duration = Duration::from_secs(10);
/// A device is scanned within this time after it has been mounted.
const SCAN_GRACE: Duration = Duration::from_secs(5);

/// No scan lists the mount's block device while the filesystem is in use, or the volume was removed
/// with its drive, or the device or directory of a static volume is not there.
/// Source: mountinfo's device number against /sys/class/block; the look for a static volume. BAD,
/// inaccessible. Clears when the device is listed again or nothing is mounted, or the static volume is
/// there again.
pub(crate) fn device_missing(input: &VolumeInput) -> Option<Verdict> {
    let (Context { facts, now, .. }, known) = (input.context, input.known);
    let volume = &known.facts;
    if let Some(error) = facts.inventory.error().or(facts.mounts.error()) {
        return unknown(error);
    }
    if let Some(why) = unread_since_restart(facts, known) {
        return unknown(why);
    }
    let scanned = facts.inventory.value().and(facts.inventory.at())?;
    if !volume.device_gone {
        return match &volume.provided {
            Some(provided) if provided.presence != VolumePresence::Present => {
                static_volume_missing(facts, provided)
            }
            _ => Some(Verdict::Clear),
        };
    }
    let device = volume.device.as_deref().unwrap_or("of unknown name");
    let clears =
        "the device is there again, or nothing of it is mounted and its drive has returned";
    let drives: Vec<_> = volume.drive_ids.iter().filter_map(|id| facts.drives.get(id)).collect();
    let missing = || drives.iter().filter(|drive| drive.missing_since.is_some());
    let since = missing().filter_map(|drive| drive.missing_since).min();
    let with = match since {
        None => String::new(),
        Some(_) => {
            format!(" with drive {}", join_limited(missing().map(|drive| &drive.facts.id)))
        }
    };
    let absent = |at| {
        evidence(WitnessKind::Inventory, "/sys/class/block", at, format!("{device} is not there"))
    };
    if known.retained {
        let proof = vec![absent(since.unwrap_or(scanned))];
        let message =
            format!("block device {device} was removed{with}, and the volume is no longer mounted");
        return raised(INACCESSIBLE, message, proof, clears, since);
    }
    // A device that was plugged in and mounted a moment ago may not have been scanned yet.
    let used_since = known.in_use_since();
    if scanned <= used_since && elapsed(used_since, now) < SCAN_GRACE {
        return unknown("the block devices have not been scanned since it was mounted");
    }
    let mut proof = mount_evidence(facts, known);
    proof.push(absent(scanned));
    let used = match volume.mounts.is_empty() {
        true => "the volume is on it".to_owned(),
        false => {
            format!("{} is mounted", join_limited(volume.mounts.iter().map(|mount| &mount.path)))
        }
    };
    let message = format!("block device {device} is missing{with} while {used}");
    raised(INACCESSIBLE, message, proof, clears, since)
}

fn static_volume_missing(facts: &Facts, volume: &ProvidedVolume) -> Option<Verdict> {
    if let Some(error) = facts.provision.error() {
        return unknown(error);
    }
    let Some(why) = volume.error.as_deref() else {
        return unknown("it has not been looked for yet");
    };
    let at = facts.provision.at()?;
    let proof = vec![evidence(WitnessKind::Other, volume.backing.to_string(), at, why)];
    let message = format!("static volume {} is missing: {why}", volume.handle);
    let clears = "its device or directory is there again, or its entry leaves the configuration";
    raised(INACCESSIBLE, message, proof, clears, None)
}

/// Nothing is mounted at the staging path that the kubelet's record, or this node's own record of a
/// volume that it provides, names. Sources: vol_data.json, the attachment's record, mountinfo.
/// Judged only for drivers of which some volume is or was mounted at its staging path: others stage
/// without a mount, or not at all. A volume that this node provides may be a directory: while its
/// record has not been read, it is unknown whether a mount is to be there. SUSPECT, degraded, while a pod's own mount exists (it works
/// until it is published again); otherwise BAD, inaccessible. Raised after `not_mounted_after`, or
/// after ten seconds if it was mounted before. Clears when it is mounted or the record is removed.
pub(crate) fn staging_not_mounted(input: &VolumeInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let missing: Vec<_> = missing_mounts(known, MountRole::Staging).collect();
    if let Some(why) = facts.unread_record(&known.facts).filter(|_| !missing.is_empty()) {
        return unknown(format!("how the volume is staged is not known: {why}"));
    }
    let was_mounted = |mount: &&ExpectedMount| {
        known.absences.get(&mount.path).is_some_and(|absent| absent.was_mounted)
    };
    let stages = |other: &KnownVolume| {
        other.facts.driver == known.facts.driver && other.facts.has_mount_of(MountRole::Staging)
    };
    let driver_stages = missing.iter().any(|mount| mount.record.is_none() || was_mounted(mount))
        || facts.volumes.values().any(stages);
    if !driver_stages && !missing.is_empty() {
        // A driver without NodeStageVolume: the kubelet still creates the record and the folder
        // (csi_attacher.go, MountDevice).
        return unknown("no volume of this driver has been seen mounted at its staging path");
    }
    let published = known.facts.has_mount_of(MountRole::Pod);
    expected_mounts(input, MountRole::Staging, if published { SUSPECT } else { INACCESSIBLE })
}

/// Nothing is mounted at a pod's path that the kubelet's record, or this node's own, names. Sources
/// and times as for the staging path. BAD, inaccessible: a container that starts writes elsewhere. One
/// that was running keeps its own mount, which is not read. Clears when it is mounted or the record is
/// removed.
pub(crate) fn not_mounted(input: &VolumeInput) -> Option<Verdict> {
    expected_mounts(input, MountRole::Pod, INACCESSIBLE)
}

/// Only the memory of an earlier run has the volume: the kubelet's records do not, and this node's own
/// have not been read.
fn unread_since_restart<'a>(facts: &'a Facts, known: &KnownVolume) -> Option<&'a str> {
    facts.unread_record(&known.facts).filter(|_| known.facts.provided.is_some())
}

fn missing_mounts(known: &KnownVolume, role: MountRole) -> impl Iterator<Item = &ExpectedMount> {
    known.facts.missing_mounts.iter().filter(move |mount| mount.role == role)
}

fn expected_mounts(input: &VolumeInput, role: MountRole, level: Level) -> Option<Verdict> {
    let (Context { facts, policy, now }, known) = (input.context, input.known);
    let driver = known.facts.driver.as_ref()?;
    if let Some(why) = unread_since_restart(facts, known) {
        return unknown(why);
    }
    let missing: Vec<&ExpectedMount> = missing_mounts(known, role).collect();
    let is_own = |mounts: &[&ExpectedMount]| mounts.iter().all(|mount| mount.record.is_none());
    // Mounts that this node has made itself need no record of the kubelet.
    let kubelet = facts.kubelet.error().filter(|_| missing.is_empty() || !is_own(&missing));
    if let Some(error) = kubelet.or(facts.mounts.error()) {
        return unknown(error);
    }
    let read = facts.mounts.value().and(facts.mounts.at())?;
    if missing.is_empty() {
        return Some(Verdict::Clear);
    }
    let due = |mount: &&ExpectedMount| {
        known.absences.get(&mount.path).is_some_and(|absent| {
            let grace = if absent.was_mounted {
                VANISHED_GRACE.min(policy.not_mounted_after)
            } else {
                policy.not_mounted_after
            };
            let is_over = |time| elapsed(absent.since, time) >= grace;
            // The record must also have been read after that time: the kubelet unmounts first and
            // then removes its record.
            let recorded = mount.record.is_none() || facts.kubelet.at().is_some_and(is_over);
            recorded && is_over(now)
        })
    };
    let late: Vec<&ExpectedMount> = missing.into_iter().filter(due).collect();
    if late.is_empty() {
        return unknown("it may be on its way");
    }
    let proof = late
        .iter()
        .take(3)
        .flat_map(|mount| {
            let record = mount.record.as_ref().map(|record| {
                let handle = known.facts.handle.as_deref().unwrap_or_default();
                let text = format!("driver {driver}, volume handle {handle}: {}", mount.path);
                evidence(
                    WitnessKind::Other,
                    record.to_string(),
                    facts.kubelet.at().unwrap_or(read),
                    text,
                )
            });
            let table = evidence(
                WitnessKind::MountTable,
                MOUNTINFO,
                read,
                format!("no mount at {}", mount.path),
            );
            record.into_iter().chain([table])
        })
        .collect();
    let absences = late.iter().filter_map(|mount| known.absences.get(&mount.path));
    let since = absences.map(|absent| absent.since).min();
    let paths = join_limited(late.iter().map(|mount| &mount.path));
    let record = if is_own(&late) { "this node's own" } else { "the kubelet's" };
    let (expected, clears) = match role {
        MountRole::Staging => {
            ("the volume is staged", "the staging path is mounted, or the record of it is gone")
        }
        _ => ("a pod has the volume", "the pod's path is mounted, or the record of it is gone"),
    };
    // A container has mounts of its own: what is unmounted on the host stays in it.
    let was_mounted = late
        .iter()
        .all(|mount| known.absences.get(&mount.path).is_some_and(|absent| absent.was_mounted));
    let of_containers = match (role, was_mounted) {
        (MountRole::Pod, true) => {
            " any more; a container that was running may still have it, one that starts now does not"
        }
        _ => "",
    };
    let message = format!(
        "according to {record} record {expected}, but nothing is mounted at {paths}{of_containers}"
    );
    raised(level, message, proof, clears, since)
}

/// The mounted volume answers statfs, open or readdir with an error. Source: the probe of each of
/// its mounts.
/// BAD, inaccessible, for an error of the volume (EIO, ENOTCONN, ESTALE, EUCLEAN, ESHUTDOWN,
/// ENODEV…). Errors that only deny access (EACCES, EPERM, ELOOP), our own errors (ENOMEM, EMFILE…)
/// and ENOENT (unmounted a moment ago) raise nothing.
/// Clears when every mount has answered both calls without an error, or no mount is left.
pub(crate) fn not_accessible(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    if volume.block {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error);
    }
    if volume.mounts.is_empty() {
        return facts.mounts.value().map(|_| Verdict::Clear);
    }
    let mut bad: Vec<(&HostPath, Timestamp, &ProbeError)> = Vec::new();
    let mut why = None;
    let mut answered = false;
    let mut all = true;
    for mount in &volume.mounts {
        let path = &mount.path;
        let Some(probe) = facts.probes.get(path) else {
            all = false;
            continue;
        };
        if let Some(stuck) = &probe.stuck {
            let since = facts.wall_text(stuck.since);
            why.get_or_insert(format!("the probe of {path} has been pending since {since}"));
        }
        match &probe.result {
            Observation::Unavailable => all = false,
            Observation::Failed { error, .. } => {
                why.get_or_insert(format!("probing {path}: {error}"));
            }
            Observation::Ok { at, value } => {
                answered = true;
                for error in probe_errors(value) {
                    if is_volume_error(error.errno) {
                        bad.push((path, *at, error));
                    } else {
                        why.get_or_insert(format!("probing {path}: {error}"));
                    }
                }
            }
        }
    }
    let Some((path, at, error)) = bad.first() else {
        return match why {
            Some(why) => unknown(why),
            None if answered && all => Some(Verdict::Clear),
            None => None,
        };
    };
    let others = match bad.iter().filter(|(other, ..)| other != path).count() {
        0 => String::new(),
        more => format!(" (and {more} more of its mounts)"),
    };
    let mut proof: Vec<Evidence> = bad
        .iter()
        .take(4)
        .map(|(path, at, error)| {
            evidence(WitnessKind::Probe, format!("{} {path}", error.operation), *at, &error.text)
        })
        .collect();
    let read = facts.mounts.at().unwrap_or(*at);
    proof.extend(
        mount_line_of(facts, path)
            .map(|line| evidence(WitnessKind::MountTable, MOUNTINFO, read, line)),
    );
    let (operation, text) = (&error.operation, &error.text);
    let message = format!("{path}{others} answers {operation} with an error: {text}");
    let clears = "statfs and readdir of every mount of the volume succeed, or it is unmounted";
    let mut verdict = raised(INACCESSIBLE, message, proof, clears, None);
    if let Some(Verdict::Raised(details)) = &mut verdict {
        details.advice = advice_by_errno(facts, volume, path, error.errno);
    }
    verdict
}

/// A server or a FUSE process answers, not a filesystem of the kernel over several devices.
fn is_served(volume: &VolumeFacts) -> bool {
    let fs_type = volume.fs_type.as_deref().unwrap_or_default();
    volume.remote || fs_type.starts_with("fuse")
}

/// None: the reason's own text, for every other error (numbers of
/// include/uapi/asm-generic/errno{,-base}.h).
fn advice_by_errno(
    facts: &Facts,
    volume: &VolumeFacts,
    path: &HostPath,
    errno: i32,
) -> Option<String> {
    const EIO: i32 = 5;
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    const ETIMEDOUT: i32 = 110;
    const ENETDOWN: i32 = 100;
    const EHOSTUNREACH: i32 = 113;
    const ENOTCONN: i32 = 107;
    const ESHUTDOWN: i32 = 108;
    const ESTALE: i32 = 116;
    const EUCLEAN: i32 = 117;
    let device = volume.device.as_deref();
    let drives = || volume.drive_ids.iter().filter_map(|id| facts.drives.get(id));
    let causes = if drives().any(|drive| drive.facts.transport.is_remote()) {
        "the network, the server, a removal"
    } else if drives().any(|drive| drive.facts.kind == DriveKind::Virtual) {
        "the hypervisor or cloud that provides it, a removal"
    } else {
        "cable, power, a reset of its bridge or controller, a removal"
    };
    Some(match (errno, device) {
        (EIO | ENXIO | ENODEV, Some(device)) => format!(
            "The cause is the device {device}, the connection to it ({causes}) or the filesystem: look in the kernel log for errors and resets of {device}. Copy what can still be read. Stop what uses {path} and unmount it; after a removal the device comes back under another name. Check the filesystem read-only before you mount it again."
        ),
        (EIO, None) if is_served(volume) => format!(
            "The server or process behind {path} answers with an I/O error: look at its own log and storage."
        ),
        (ESTALE, _) => format!(
            "The server's export has changed, or was exported anew: unmount {path} and mount it again."
        ),
        (ENOTCONN, _) => format!(
            "The FUSE process behind {path} has ended: find out why in its log, unmount {path} and mount it again."
        ),
        (ENETDOWN..=ETIMEDOUT | 111..=EHOSTUNREACH, _) if errno != ESHUTDOWN => format!(
            "The server behind {path} does not answer: check the network and the server. The mount works again when it answers."
        ),
        (ESHUTDOWN, _) => format!(
            "The filesystem has shut itself down: find out why in the kernel log, stop its users, unmount {path}, check the filesystem and mount it again."
        ),
        (EUCLEAN, _) => format!(
            "The filesystem found that it is corrupted: read the kernel log, save what can be read, unmount {path} and check the filesystem."
        ),
        _ => return None,
    })
}

pub(crate) fn probe_errors(probe: &MountProbe) -> impl Iterator<Item = &ProbeError> {
    probe.statfs.as_ref().err().into_iter().chain(probe.readdir.as_ref().err())
}

/// Errors of the volume itself. Other errors deny access to the caller, or come from the caller's
/// own lack of resources (numbers of include/uapi/asm-generic/errno{,-base}.h).
pub(crate) fn is_volume_error(errno: i32) -> bool {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    const EINVAL: i32 = 22;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENAMETOOLONG: i32 = 36;
    const ENOSYS: i32 = 38;
    const ELOOP: i32 = 40;
    const EOPNOTSUPP: i32 = 95;
    !matches!(
        errno,
        EPERM
            | ENOENT
            | EINTR
            | EAGAIN
            | ENOMEM
            | EACCES
            | ENOTDIR
            | EINVAL
            | ENFILE
            | EMFILE
            | ENAMETOOLONG
            | ENOSYS
            | ELOOP
            | EOPNOTSUPP
    )
}

/// The mount that a lookup of `path` reaches: the last one listed for that path.
pub(crate) fn mount_at<'a>(facts: &'a Facts, path: &HostPath) -> Option<&'a Mount> {
    let dev = facts.probes.mounts().get(path).map(|target| target.dev);
    let mut mounts = facts.mount_table()?.mounts.iter().rev();
    mounts.find(|mount| mount.mount_point == *path && dev.is_none_or(|dev| mount.dev == dev))
}

pub(crate) fn mount_line_of(facts: &Facts, path: &HostPath) -> Option<String> {
    mount_at(facts, path).map(mount_line)
}

pub(crate) fn mount_evidence(facts: &Facts, known: &KnownVolume) -> Vec<Evidence> {
    let Some(at) = facts.mounts.at() else {
        return Vec::new();
    };
    let mounts = known.facts.mounts.iter().take(3);
    mounts
        .filter_map(|mount| mount_line_of(facts, &mount.path))
        .map(|line| evidence(WitnessKind::MountTable, MOUNTINFO, at, line))
        .collect()
}
