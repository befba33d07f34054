//! Families about volumes: users, underlying drives, health, usage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::metrics::view::{HEALTH_STATES, health, known};
use diskvitals_exposition::families::{BYTES, Families, SECONDS};
use diskvitals_finding::ids::VolumeId;
use diskvitals_fscheck::{Check, CheckVerdict};
use diskvitals_host::clock;
use diskvitals_kernel_log::event::Class;
use diskvitals_model::probe::Usage;
use diskvitals_model::snapshot::{Snapshot, Volume, VolumeUsage};
use diskvitals_model::volume::VolumeFacts;

const VERDICTS: [&str; 5] = ["clean", "suspected", "corrupted", "inconclusive", "failed"];

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let volumes = || snapshot.volumes.iter().map(|(id, volume)| (id.as_str(), volume));
    let help = "What a volume is to Kubernetes, one series for each pod that has it: always 1.";
    let mut family = families.gauge("diskvitals_volume_info", None, help)?;
    for (id, volume) in volumes() {
        let facts = &volume.facts;
        for (namespace, pod) in pods(facts) {
            let labels = [
                ("volume", id),
                ("driver", known(&facts.driver)),
                ("pv", known(&facts.pv)),
                ("namespace", namespace),
                ("pod", pod),
            ];
            family.value(&labels, 1)?;
        }
    }
    let mut family =
        families.gauge("diskvitals_volume_drive_info", None, "Drives below a volume: always 1.")?;
    for (id, volume) in volumes() {
        for drive in &volume.facts.drive_ids {
            family.value(&[("volume", id), ("drive", drive.as_str())], 1)?;
        }
    }
    let mut family = families.gauge(
        "diskvitals_volume_filesystem_info",
        None,
        "What is in a volume, and on which device now: always 1.",
    )?;
    for (id, volume) in volumes() {
        let facts = &volume.facts;
        family.value(
            &[
                ("volume", id),
                ("filesystem", known(&facts.fs_type)),
                ("device", known(&facts.device)),
            ],
            1,
        )?;
    }
    let mut family = families.gauge(
        "diskvitals_volume_health",
        None,
        "1 for the state that the volume's health is in.",
    )?;
    for (id, volume) in volumes() {
        family.states(Some(("volume", id)), "state", &HEALTH_STATES, health(volume.health))?;
    }
    let mut family = families.gauge(
        "diskvitals_volume_abnormal",
        None,
        "1 while the volume's condition is reported to Kubernetes as abnormal.",
    )?;
    for (id, condition) in
        volumes().filter_map(|(id, volume)| Some((id, volume.condition.as_ref()?)))
    {
        family.value(&[("volume", id)], u64::from(condition.abnormal))?;
    }
    usage(families, snapshot)?;
    let help = "When a probe of it last came back, since the epoch.";
    let mut family =
        families.gauge("diskvitals_volume_last_probe_timestamp", Some(&SECONDS), help)?;
    for (id, at) in volumes().filter_map(|(id, volume)| Some((id, volume.last_probe?))) {
        family.signed(&[("volume", id)], clock::wall(at).as_second())?;
    }
    let help =
        "Incidents in the kernel log about the volume's filesystem and its own device, by class.";
    let mut family = families.counter("diskvitals_volume_errors", None, help)?;
    for (id, volume) in volumes() {
        // All classes have a series, so that the first incident is an increase.
        for class in Class::ALL {
            let tally = volume.errors.as_ref().and_then(|errors| errors.get(class));
            family.count(
                &[("volume", id), ("class", class.name())],
                tally.map_or(0, |tally| tally.incidents),
            )?;
        }
    }
    checks(families, snapshot)
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

fn usage(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let mut family = families.gauge(
        "diskvitals_volume_size",
        Some(&BYTES),
        "Of its filesystem, or of its device where it has none.",
    )?;
    for (id, volume) in &snapshot.volumes {
        let size = match &volume.usage {
            VolumeUsage::Block { size_bytes } => Some(*size_bytes),
            _ => fresh_usage(volume).map(|usage| usage.total_bytes),
        };
        size.map_or(Ok(()), |size| family.value(&[("volume", id.as_str())], size))?;
    }
    type UsageValue = fn(&Usage) -> u64;
    let bytes: [(&str, &str, UsageValue); 2] = [
        ("diskvitals_volume_available", "What an unprivileged user can still write.", |usage| {
            usage.available_bytes
        }),
        ("diskvitals_volume_used", "What is used.", |usage| usage.used_bytes),
    ];
    for (name, help, figure) in bytes {
        let mut family = families.gauge(name, Some(&BYTES), help)?;
        for (id, usage) in
            snapshot.volumes.iter().filter_map(|(id, volume)| Some((id, fresh_usage(volume)?)))
        {
            family.value(&[("volume", id.as_str())], figure(usage))?;
        }
    }
    let help = "Time until it is full at the rate of the last days, while it is filling up.";
    let mut family = families.gauge("diskvitals_volume_time_to_full", Some(&SECONDS), help)?;
    for (id, volume) in &snapshot.volumes {
        if let VolumeUsage::Mounted { at, full_at: Some(full), stale: None, .. } = volume.usage {
            family.signed(&[("volume", id.as_str())], full.duration_since(at).as_secs())?;
        }
    }
    let inodes: [(&str, &str, UsageValue); 2] = [
        (
            "diskvitals_volume_inodes",
            "Inodes of its filesystem, where their number is fixed.",
            |usage| usage.total_inodes,
        ),
        ("diskvitals_volume_available_inodes", "Inodes that are left.", |usage| {
            usage.available_inodes
        }),
    ];
    for (name, help, figure) in inodes {
        let mut family = families.gauge(name, None, help)?;
        let counted =
            snapshot.volumes.iter().filter_map(|(id, volume)| Some((id, fresh_usage(volume)?)));
        for (id, usage) in counted.filter(|(_, usage)| usage.total_inodes > 0) {
            family.value(&[("volume", id.as_str())], figure(usage))?;
        }
    }
    Ok(())
}

/// The newest check of each volume that has ended.
fn checks(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let mut newest: BTreeMap<&VolumeId, (&Check, CheckVerdict)> = BTreeMap::new();
    for check in snapshot.checks.values() {
        let (Some(volume), Some(verdict), Some(_)) =
            (&check.target.volume, check.verdict, check.ended)
        else {
            continue;
        };
        let older = newest.get(volume).is_none_or(|(known, _)| known.ended < check.ended);
        if older && snapshot.is_check_of(check, volume) && snapshot.volumes.contains_key(volume) {
            newest.insert(volume, (check, verdict));
        }
    }
    let mut family = families.gauge(
        "diskvitals_volume_check_verdict",
        None,
        "1 for the verdict of the volume's last filesystem check.",
    )?;
    for (id, (_, outcome)) in &newest {
        family.states(Some(("volume", id.as_str())), "verdict", &VERDICTS, verdict(*outcome))?;
    }
    let help = "When the last filesystem check of it was over, since the epoch.";
    let mut family = families.gauge("diskvitals_volume_check_timestamp", Some(&SECONDS), help)?;
    for (id, (check, _)) in &newest {
        check.ended.map_or(Ok(()), |ended| {
            family.signed(&[("volume", id.as_str())], clock::wall(ended).as_second())
        })?;
    }
    Ok(())
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
