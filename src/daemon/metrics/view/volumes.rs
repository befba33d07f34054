//! Families about volumes: users, underlying drives, health, usage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::metrics::view::drives::errors;
use crate::metrics::view::{HEALTH_STATES, health, known, second};
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_finding::ids::VolumeId;
use diskvitals_fscheck::{Check, CheckVerdict};
use diskvitals_model::probe::Usage;
use diskvitals_model::snapshot::{Snapshot, Volume, VolumeUsage};
use diskvitals_model::volume::VolumeFacts;

const VERDICTS: [&str; 5] = ["clean", "suspected", "corrupted", "inconclusive", "failed"];

const FAMILIES: [FamilyRow<Volume>; 14] = families! {
    Volume:
    Gauge "diskvitals_volume_info":
        "What a volume is to Kubernetes, one series for each pod that has it: always 1."
        => info;
    Gauge "diskvitals_volume_drive_info": "Drives below a volume: always 1."
        => |it, to| it.facts.drive_ids.iter().try_for_each(|id| to.info(&[("drive", id.as_str())]));
    Gauge "diskvitals_volume_filesystem_info":
        "What is in a volume, and on which device now: always 1."
        => |Volume { facts, .. }, to| to.info(&[
            ("filesystem", known(&facts.fs_type)), ("device", known(&facts.device)),
        ]);
    Gauge "diskvitals_volume_health": "1 for the state that the volume's health is in."
        => |it, to| to.states("state", &HEALTH_STATES, health(it.health));
    Gauge "diskvitals_volume_abnormal":
        "1 while the volume's condition is reported to Kubernetes as abnormal."
        => |it, to| to.value(it.condition.as_ref().map(|condition| condition.abnormal));
    Gauge "diskvitals_volume_size" in BYTES:
        "Of its filesystem, or of its device where it has none."
        => |it, to| to.value(size(it));
    Gauge "diskvitals_volume_available" in BYTES: "What an unprivileged user can still write."
        => |it, to| to.value(fresh_usage(it).map(|usage| usage.available_bytes));
    Gauge "diskvitals_volume_used" in BYTES: "What is used."
        => |it, to| to.value(fresh_usage(it).map(|usage| usage.used_bytes));
    Gauge "diskvitals_volume_time_to_full" in SECONDS:
        "Time until it is full at the rate of the last days, while it is filling up."
        => |it, to| to.value(seconds_to_full(it));
    Gauge "diskvitals_volume_inodes": "Inodes of its filesystem, where their number is fixed."
        => |it, to| to.value(counted_inodes(it).map(|usage| usage.total_inodes));
    Gauge "diskvitals_volume_available_inodes": "Inodes that are left."
        => |it, to| to.value(counted_inodes(it).map(|usage| usage.available_inodes));
    Gauge "diskvitals_volume_last_probe_timestamp" in SECONDS:
        "When a probe of it last came back, since the epoch."
        => |it, to| to.value(it.last_probe.map(second));
    Gauge "diskvitals_volume_last_scrub_timestamp" in SECONDS:
        "When the last known check or scrub of an array, pool or btrfs below it ended, since the epoch."
        => |it, to| it.scrubs.iter().try_for_each(|scrub| {
            let of = [("of", scrub.name.as_str()), ("kind", scrub.kind.word())];
            to.labeled(&of, scrub.ended.map(second))
        });
    Counter "diskvitals_volume_errors":
        "Incidents in the kernel log about the volume's filesystem and its own device, by class."
        => |it, to| errors(&it.errors, |_| true, to);
};

const CHECK_FAMILIES: [FamilyRow<Check>; 2] = families! {
    Check:
    Gauge "diskvitals_volume_check_verdict":
        "1 for the verdict of the volume's last filesystem check."
        => |it, to| it.verdict.map_or(Ok(()), |now| to.states("verdict", &VERDICTS, verdict(now)));
    Gauge "diskvitals_volume_check_timestamp" in SECONDS:
        "When the last filesystem check of it was over, since the epoch."
        => |it, to| to.value(it.ended.map(second));
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let volumes = snapshot.volumes.iter();
    let volumes: Vec<_> = volumes.map(|(id, it)| ([("volume", id.as_str())], &**it)).collect();
    families.encode(&FAMILIES, &volumes)?;
    let checks = newest_checks(snapshot).into_iter();
    let checks: Vec<_> = checks.map(|(id, it)| ([("volume", id.as_str())], it)).collect();
    families.encode(&CHECK_FAMILIES, &checks)
}

fn info(volume: &Volume, to: &mut Samples<'_, '_>) -> fmt::Result {
    let facts = &volume.facts;
    pods(facts).into_iter().try_for_each(|(namespace, pod)| {
        let (driver, pv) = (known(&facts.driver), known(&facts.pv));
        to.info(&[("driver", driver), ("pv", pv), ("namespace", namespace), ("pod", pod)])
    })
}

/// The pods of the volume. One pair without names if no pod uses the volume; a pod without a known
/// name is named by its uid.
fn pods(facts: &VolumeFacts) -> BTreeSet<(&str, &str)> {
    let mut pods: BTreeSet<_> = facts
        .pods
        .iter()
        .map(|used| match &used.name {
            Some(name) => (name.namespace.as_str(), name.name.as_str()),
            None => ("", used.uid.as_str()),
        })
        .collect();
    if pods.is_empty() {
        pods.insert(("", ""));
    }
    pods
}

/// Figures of a volume that does not respond are outdated: they are left out until it responds.
fn fresh_usage(volume: &Volume) -> Option<&Usage> {
    match &volume.usage {
        VolumeUsage::Mounted { usage, stale: None, .. } => Some(usage),
        _ => None,
    }
}

fn size(volume: &Volume) -> Option<u64> {
    match &volume.usage {
        VolumeUsage::Block { size_bytes } => Some(*size_bytes),
        _ => fresh_usage(volume).map(|usage| usage.total_bytes),
    }
}

fn counted_inodes(volume: &Volume) -> Option<&Usage> {
    fresh_usage(volume).filter(|usage| usage.total_inodes > 0)
}

fn seconds_to_full(volume: &Volume) -> Option<i64> {
    match volume.usage {
        VolumeUsage::Mounted { at, full_at: Some(full), stale: None, .. } => {
            Some(full.duration_since(at).as_secs())
        }
        _ => None,
    }
}

/// Those that have ended.
fn newest_checks(snapshot: &Snapshot) -> BTreeMap<&VolumeId, &Check> {
    let mut newest: BTreeMap<&VolumeId, &Check> = BTreeMap::new();
    for check in snapshot.checks.values() {
        let (Some(volume), Some(_), Some(_)) = (&check.target.volume, check.verdict, check.ended)
        else {
            continue;
        };
        let older = newest.get(volume).is_none_or(|known| known.ended < check.ended);
        if older && snapshot.is_check_of(check, volume) && snapshot.volumes.contains_key(volume) {
            newest.insert(volume, check);
        }
    }
    newest
}

fn verdict(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Clean => "clean",
        CheckVerdict::Suspected => "suspected",
        CheckVerdict::Corrupted => "corrupted",
        CheckVerdict::Inconclusive => "inconclusive",
        CheckVerdict::Failed => "failed",
    }
}
