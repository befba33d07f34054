//! Rules about what should be mounted, what it stands on, and whether it answers.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::assess::text::{MOUNTINFO, evidence, join_limited, mount_line, raised, unknown};
use crate::model::facts::{Facts, KnownVolume, elapsed};
use crate::model::finding::{Evidence, Severity, Status, Verdict};
use crate::model::mount::Mount;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::policy::Policy;
use crate::model::probe::{MountProbe, ProbeError};
use crate::model::volume::{ExpectedMount, MountRole};

/// A mount that was there and went: longer than the kubelet needs from an unmount to the removal of
/// its record.
pub(crate) const VANISHED_GRACE: Duration = Duration::from_secs(10);
/// A device is scanned for within this time after it has been mounted.
const SCAN_GRACE: Duration = Duration::from_secs(5);

/// The mount's block device is in no scan while the filesystem is in use, or the volume went with
/// its drive.
/// Source: mountinfo's device number against /sys/class/block. BAD, inaccessible. Clears when the
/// device is there again or nothing is mounted.
pub(crate) fn device_missing(
    facts: &Facts,
    known: &KnownVolume,
    now: Timestamp,
) -> Option<Verdict> {
    let volume = &known.facts;
    if let Some(error) = facts.inventory.error().or(facts.mounts.error()) {
        return unknown(error);
    }
    let scanned = facts.inventory.value().and(facts.inventory.at())?;
    if !volume.device_gone {
        return Some(Verdict::Clear);
    }
    let device = volume.device.as_deref().unwrap_or("of unknown name");
    let clears =
        "the device is there again, or nothing of it is mounted and its drive has returned";
    let drives: Vec<_> = volume
        .drive_ids
        .iter()
        .filter_map(|id| facts.drives.get(id))
        .filter(|drive| drive.missing_since.is_some())
        .collect();
    let since = drives.iter().filter_map(|drive| drive.missing_since).min();
    let with = match drives.is_empty() {
        true => String::new(),
        false => format!(
            " with drive {}",
            join_limited(drives.iter().map(|drive| &drive.facts.id))
        ),
    };
    if known.retained {
        let proof = vec![evidence(
            "/sys/class/block",
            since.unwrap_or(scanned),
            format!("{device} is not there"),
        )];
        let message = format!(
            "block device {device} was removed{with}, and the volume is not mounted any more"
        );
        return raised(
            Severity::Bad,
            Status::Inaccessible,
            message,
            proof,
            clears,
            since,
        );
    }
    // A device that was plugged in and mounted a moment ago may not have been scanned yet.
    let used_since = known.in_use_since();
    if scanned <= used_since && elapsed(used_since, now) < SCAN_GRACE {
        return unknown("the block devices have not been scanned since it was mounted");
    }
    let mut proof = mount_evidence(facts, known);
    proof.push(evidence(
        "/sys/class/block",
        scanned,
        format!("{device} is not there"),
    ));
    let used = match volume.mounts.is_empty() {
        true => "the volume is on it".to_owned(),
        false => format!(
            "{} is mounted",
            join_limited(volume.mounts.iter().map(|mount| &mount.path))
        ),
    };
    let message = format!("block device {device} is missing{with} while {used}");
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        clears,
        since,
    )
}

/// Nothing is mounted at the staging path that the kubelet's record, or this node's own of a volume
/// that it provides, names. Sources: vol_data.json, the attachment's record, mountinfo. Judged for
/// drivers of which some volume is or was mounted at its staging path: others stage without a
/// mount, or not at all. SUSPECT, degraded, while a pod's own mount is there (it works until it is
/// published anew); else BAD, inaccessible. After `not_mounted_after`, or ten seconds when it had
/// been there. Clears when it is mounted or the record is gone.
pub(crate) fn staging_not_mounted(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    let staged = |other: &KnownVolume| {
        other
            .facts
            .mounts
            .iter()
            .any(|mount| mount.role == MountRole::Staging)
    };
    let missing = known
        .facts
        .missing_mounts
        .iter()
        .filter(|mount| mount.role == MountRole::Staging);
    let was_staged = missing.clone().any(|mount| {
        known
            .absences
            .get(&mount.path)
            .is_some_and(|absent| absent.was_mounted)
    });
    let by_us = missing.clone().any(|mount| mount.record.is_none());
    let driver_stages = by_us
        || was_staged
        || facts
            .volumes
            .values()
            .any(|other| other.facts.driver == known.facts.driver && staged(other));
    if !driver_stages && missing.count() > 0 {
        // A driver without NodeStageVolume: the kubelet makes the record and the folder all the
        // same (csi_attacher.go, MountDevice).
        return unknown("no volume of this driver has been seen mounted at its staging path");
    }
    let published = known
        .facts
        .mounts
        .iter()
        .any(|mount| mount.role == MountRole::Pod);
    let (severity, status) = if published {
        (Severity::Suspect, Status::Degraded)
    } else {
        (Severity::Bad, Status::Inaccessible)
    };
    missing_mounts(
        facts,
        known,
        policy,
        now,
        MountRole::Staging,
        severity,
        status,
    )
}

/// Nothing is mounted at a pod's path that the kubelet's record, or this node's own, names. Sources
/// and times as for the staging path. BAD, inaccessible: the pod writes elsewhere. Clears when it
/// is mounted or the record is gone.
pub(crate) fn not_mounted(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
) -> Option<Verdict> {
    missing_mounts(
        facts,
        known,
        policy,
        now,
        MountRole::Pod,
        Severity::Bad,
        Status::Inaccessible,
    )
}

fn missing_mounts(
    facts: &Facts,
    known: &KnownVolume,
    policy: &Policy,
    now: Timestamp,
    role: MountRole,
    severity: Severity,
    status: Status,
) -> Option<Verdict> {
    known.facts.driver.as_ref()?;
    let missing: Vec<&ExpectedMount> = known
        .facts
        .missing_mounts
        .iter()
        .filter(|mount| mount.role == role)
        .collect();
    // What this node has mounted itself needs no word of the kubelet.
    let by_us = !missing.is_empty() && missing.iter().all(|mount| mount.record.is_none());
    if let Some(error) = facts
        .kubelet
        .error()
        .filter(|_| !by_us)
        .or(facts.mounts.error())
    {
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
            // The record must have been seen after that time as well: the kubelet unmounts first
            // and removes its record then.
            let seen = |read| elapsed(absent.since, read) >= grace;
            let recorded = mount.record.is_none() || facts.kubelet.at().is_some_and(seen);
            recorded && elapsed(absent.since, now) >= grace
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
                let driver = known.facts.driver.as_deref().unwrap_or_default();
                evidence(
                    record.to_string(),
                    facts.kubelet.at().unwrap_or(read),
                    format!("driver {driver}, volume handle {handle}: {}", mount.path),
                )
            });
            let table = evidence(MOUNTINFO, read, format!("no mount at {}", mount.path));
            record.into_iter().chain([table])
        })
        .collect();
    let since = late
        .iter()
        .filter_map(|mount| known.absences.get(&mount.path))
        .map(|absent| absent.since)
        .min();
    let paths = join_limited(late.iter().map(|mount| &mount.path));
    let whose = if late.iter().all(|mount| mount.record.is_none()) {
        "this node's own"
    } else {
        "the kubelet's"
    };
    let (message, clears) = match role {
        MountRole::Staging => (
            format!(
                "according to {whose} record the volume is staged, but nothing is mounted at {paths}"
            ),
            "the staging path is mounted, or the record of it is gone",
        ),
        _ => (
            format!(
                "according to {whose} record a pod has the volume, but nothing is mounted at {paths}"
            ),
            "the pod's path is mounted, or the record of it is gone",
        ),
    };
    raised(severity, status, message, proof, clears, since)
}

/// The mounted volume answers statfs, open or readdir with an error. Source: the probe of each of
/// its mounts.
/// BAD, inaccessible, for an error of the volume (EIO, ENOTCONN, ESTALE, EUCLEAN, ESHUTDOWN,
/// ENODEV…). What only forbids looking (EACCES, EPERM, ELOOP), what is ours (ENOMEM, EMFILE…) and
/// ENOENT (unmounted a moment ago) raise nothing.
/// Clears when every mount has answered both questions well, or none is left.
pub(crate) fn not_accessible(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    if known.facts.block {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error);
    }
    if known.facts.mounts.is_empty() {
        return facts.mounts.value().map(|_| Verdict::Clear);
    }
    let mut bad: Vec<(&HostPath, Timestamp, &ProbeError)> = Vec::new();
    let mut why = None;
    let mut asked = false;
    let mut all = true;
    for mount in &known.facts.mounts {
        let Some(probe) = facts.probes.get(&mount.path) else {
            all = false;
            continue;
        };
        if let Some(stuck) = &probe.stuck {
            why.get_or_insert(format!(
                "the probe of {} has been pending since {}",
                mount.path, stuck.since
            ));
        }
        match &probe.result {
            Observation::Unavailable => all = false,
            Observation::Failed { error, .. } => {
                why.get_or_insert(format!("probing {}: {error}", mount.path));
            }
            Observation::Ok { at, value } => {
                asked = true;
                for error in probe_errors(value) {
                    match is_volume_error(error.errno) {
                        true => bad.push((&mount.path, *at, error)),
                        false => {
                            why.get_or_insert(format!("probing {}: {error}", mount.path));
                        }
                    }
                }
            }
        }
    }
    let Some((path, at, error)) = bad.first() else {
        return match why {
            Some(why) => unknown(why),
            None if asked && all => Some(Verdict::Clear),
            None => None,
        };
    };
    let more = bad
        .iter()
        .map(|(path, ..)| path)
        .filter(|other| *other != path)
        .count();
    let others = if more > 0 {
        format!(" (and {more} more of its mounts)")
    } else {
        String::new()
    };
    let mut proof: Vec<Evidence> = bad
        .iter()
        .take(4)
        .map(|(path, at, error)| evidence(format!("{} {path}", error.operation), *at, &error.text))
        .collect();
    proof.extend(
        mount_line_of(facts, path)
            .map(|line| evidence(MOUNTINFO, facts.mounts.at().unwrap_or(*at), line)),
    );
    let message = format!(
        "{path}{others} answers {} with an error: {}",
        error.operation, error.text
    );
    let clears = "statfs and readdir of every mount of the volume succeed, or it is unmounted";
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        clears,
        None,
    )
}

pub(crate) fn probe_errors(probe: &MountProbe) -> impl Iterator<Item = &ProbeError> {
    probe
        .statfs
        .as_ref()
        .err()
        .into_iter()
        .chain(probe.readdir.as_ref().err())
}

/// Errors that the volume itself gives, as against those that forbid the asker to look or come of
/// the asker's own want (numbers of include/uapi/asm-generic/errno{,-base}.h).
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

/// The mount that a lookup of `path` ends in: the last of those listed there.
pub(crate) fn mount_at<'a>(facts: &'a Facts, path: &HostPath) -> Option<&'a Mount> {
    let dev = facts.probes.mounts().get(path).map(|target| target.dev);
    let mut at = facts
        .mount_table()?
        .mounts
        .iter()
        .rev()
        .filter(|mount| mount.mount_point == *path);
    match dev {
        Some(dev) => at.find(|mount| mount.dev == dev),
        None => at.next(),
    }
}

pub(crate) fn mount_line_of(facts: &Facts, path: &HostPath) -> Option<String> {
    mount_at(facts, path).map(mount_line)
}

pub(crate) fn mount_evidence(facts: &Facts, known: &KnownVolume) -> Vec<Evidence> {
    let Some(at) = facts.mounts.at() else {
        return Vec::new();
    };
    known
        .facts
        .mounts
        .iter()
        .take(3)
        .filter_map(|mount| mount_line_of(facts, &mount.path))
        .map(|line| evidence(MOUNTINFO, at, line))
        .collect()
}
