//! Drives and volumes as they are published, each shared with the previous snapshot if it is equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::assess;
use crate::assess::input::Context;
use crate::assess::risk::{self, Outlook};
use crate::assess::scrub;
use crate::condition;
use crate::facts::{Facts, KnownDrive, KnownVolume, drive_use};
use crate::maintenance;
use crate::snapshot::{Drive, Presence, Snapshot, Volume, VolumeUsage};
use crate::snapshot_builder::{FindingsBySubject, SnapshotInput};
use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Finding, Health, Subject, UnknownCause, UnknownHealth};

/// In place of what a drive belongs to that something writes to.
const WRITTEN_RAW: &str =
    "something unknown that writes to it, such as a virtual machine with the whole disk";

pub(super) fn drives(
    previous: &Snapshot,
    scene: &SnapshotInput<'_>,
    findings: &FindingsBySubject,
) -> BTreeMap<DriveId, Arc<Drive>> {
    let drive = |(id, known): (&DriveId, &KnownDrive)| {
        let subject = Subject::Drive(id.clone());
        let (health, health_unknown_why, health_unknown_cause) = health(scene, findings, &subject);
        let presence =
            known.missing_since.map_or(Presence::Present, |since| Presence::Missing { since });
        let ids = ids(findings, &subject);
        let errors = scene.facts.kernel.errors.get(&subject);
        let smart = scene.facts.smart.get(id);
        let is_configured = maintenance::is_configured(scene.policy, &known.facts);
        let order = maintenance::order_of(&scene.facts.maintenance, &known.facts);
        let order = order.filter(|_| !is_configured);
        let maintenance = is_configured || order.is_some();
        let lamp = scene.facts.lamps.get(id);
        let mut member_of = known.member_of.clone();
        if drive_use::is_written_raw(scene.facts, known) {
            member_of.push(WRITTEN_RAW.to_owned());
        }
        let care = scene.care.get(id).cloned().unwrap_or_default();
        let flash = scene.facts.flash(known).map(|report| report.health);
        let links = scene.facts.links(known);
        let last_seen = known.last_seen;
        if let Some(old) = previous.drives.get(id) {
            let still = presence == Presence::Present || old.last_seen == last_seen;
            if still
                && old.facts == known.facts
                && (old.presence, old.health, old.maintenance, old.first_seen)
                    == (presence, health, maintenance, known.first_seen)
                && old.health_unknown_why == health_unknown_why
                && old.health_unknown_cause == health_unknown_cause
                && old.findings == ids
                && old.maintenance_order.as_ref() == order
                && old.lamp.as_ref() == lamp
                && old.volumes == known.volumes
                && old.member_of == member_of
                && old.care == care
                && (old.flash, &old.links) == (flash, &links)
                && same_arc(old.errors.as_ref(), errors)
                && same_arc(old.smart.as_ref(), smart)
            {
                return (id.clone(), old.clone());
            }
        }
        let drive = Drive {
            facts: known.facts.clone(),
            presence,
            first_seen: known.first_seen,
            last_seen,
            health,
            health_unknown_why,
            health_unknown_cause,
            findings: ids,
            maintenance,
            maintenance_order: order.cloned(),
            lamp: lamp.cloned(),
            member_of,
            volumes: known.volumes.clone(),
            errors: errors.cloned(),
            smart: smart.cloned(),
            care,
            flash,
            links,
        };
        (id.clone(), Arc::new(drive))
    };
    scene.facts.drives.iter().map(drive).collect()
}

pub(super) fn volumes(
    previous: &Snapshot,
    scene: &SnapshotInput<'_>,
    findings: &FindingsBySubject,
) -> BTreeMap<VolumeId, Arc<Volume>> {
    let context = Context { facts: scene.facts, policy: scene.policy, now: scene.now };
    let of_drives = risk::drive_findings(context, scene.ledger.active().map(Arc::as_ref));
    let outlook = Outlook { context, drives: &of_drives };
    let volume = |(id, known): (&VolumeId, &KnownVolume)| {
        let subject = Subject::Volume(id.clone());
        let old = previous.volumes.get(id);
        let (health, health_unknown_why, health_unknown_cause) = health(scene, findings, &subject);
        let about = findings.get(&subject).map_or(&[][..], Vec::as_slice);
        let unknown = (health == Health::Unknown)
            .then_some((health_unknown_why.as_str(), scene.facts.wall_time(scene.now)));
        let about: Vec<&Finding> = about.iter().map(Arc::as_ref).collect();
        let statuses = condition::statuses(known, &about);
        let condition = condition::condition(
            &known.facts,
            &about,
            health,
            statuses,
            unknown,
            old.and_then(|old| old.condition.as_ref()),
        );
        let is_lost = about.iter().any(|finding| finding.reason == Reason::RedundancyLost);
        let redundancy = Some(&known.facts).filter(|_| !is_lost);
        let sentence = redundancy.and_then(|it| outlook.sentence(&it.stack, &it.devices));
        let batch = redundancy.and_then(|facts| outlook.batch(facts));
        let redundancy = sentence.into_iter().chain(batch).collect::<Vec<_>>().join("; ");
        let scrubs = scrub::last_scrubs(scene.facts, &known.facts);
        let usage = usage(scene.facts, known, old.map(|old| &old.usage));
        let last_probe = last_probe(scene.facts, known);
        let ids = ids(findings, &subject);
        let errors = scene.facts.kernel.errors.get(&subject);
        if let Some(old) = old
            && old.facts == known.facts
            && same_arc(old.errors.as_ref(), errors)
            && (old.usage, old.last_probe, old.first_seen, old.health)
                == (usage, last_probe, known.first_seen, health)
            && (old.csi_status, old.operational_status, old.usage_status)
                == (statuses.csi, statuses.operational, statuses.usage)
            && old.health_unknown_why == health_unknown_why
            && old.health_unknown_cause == health_unknown_cause
            && (&old.redundancy, &old.condition) == (&redundancy, &condition)
            && old.scrubs == scrubs
            && old.findings == ids
        {
            return (id.clone(), old.clone());
        }
        let volume = Volume {
            facts: known.facts.clone(),
            usage,
            csi_status: statuses.csi,
            operational_status: statuses.operational,
            usage_status: statuses.usage,
            health,
            health_unknown_why,
            health_unknown_cause,
            redundancy,
            scrubs,
            condition,
            findings: ids,
            first_seen: known.first_seen,
            last_probe,
            errors: errors.cloned(),
        };
        (id.clone(), Arc::new(volume))
    };
    scene.facts.volumes.iter().map(volume).collect()
}

/// Histories are shared until a record is added to them.
fn same_arc<T>(old: Option<&Arc<T>>, new: Option<&Arc<T>>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        _ => false,
    }
}

/// `last_seen` changes with each scan and does not count; SMART counts only if it has news.
pub(super) fn drive_changed(old: &Drive, new: &Drive) -> bool {
    let rest = Drive {
        last_seen: new.last_seen,
        errors: new.errors.clone(),
        smart: new.smart.clone(),
        ..old.clone()
    };
    rest != *new
        || !same_arc(old.errors.as_ref(), new.errors.as_ref())
        || match (&old.smart, &new.smart) {
            (Some(old), Some(new)) => !Arc::ptr_eq(old, new) && old.has_changed(new),
            (old, new) => old.is_some() != new.is_some(),
        }
}

/// Other code decides on changes of the figures. Here, figures that became stale, or current again,
/// are a change.
pub(super) fn volume_changed(old: &Volume, new: &Volume) -> bool {
    let stale = |usage: &VolumeUsage| match usage {
        VolumeUsage::Mounted { stale, .. } => *stale,
        _ => None,
    };
    let rest = Volume {
        usage: new.usage,
        last_probe: new.last_probe,
        errors: new.errors.clone(),
        ..old.clone()
    };
    rest != *new
        || stale(&old.usage) != stale(&new.usage)
        || !same_arc(old.errors.as_ref(), new.errors.as_ref())
}

pub(super) fn finding_changed(old: &Finding, new: &Finding) -> bool {
    Finding { last_seen: new.last_seen, ..old.clone() } != *new
}

fn ids(findings: &FindingsBySubject, subject: &Subject) -> Vec<FindingId> {
    findings.get(subject).into_iter().flatten().map(|finding| finding.id.clone()).collect()
}

/// The worst of the active findings, acknowledged ones too: an acknowledged failing drive is still
/// failing. Unknown only without adverse findings.
fn health(
    scene: &SnapshotInput<'_>,
    findings: &FindingsBySubject,
    subject: &Subject,
) -> (Health, String, Option<UnknownCause>) {
    let findings = findings.get(subject).into_iter().flatten();
    let worst = findings.map(|finding| finding.severity).max();
    let unknown = assess::health_unknown(scene.facts, subject, scene.policy, scene.now);
    match (assess::health(worst, unknown.is_some()), unknown) {
        (Health::Unknown, Some(UnknownHealth { cause, why })) => {
            (Health::Unknown, why, Some(cause))
        }
        (known, _) => (known, String::new(), None),
    }
}

/// Mounts of one volume show one filesystem: the newest measurement of any of them counts.
fn usage(facts: &Facts, volume: &KnownVolume, before: Option<&VolumeUsage>) -> VolumeUsage {
    if volume.facts.block {
        let device = volume.facts.device.as_ref().and_then(|name| facts.device(name));
        // A device that is being set up has no size yet.
        let device = device.filter(|device| device.size_bytes > 0);
        return match (device, before) {
            (Some(device), _) => VolumeUsage::Block { size_bytes: device.size_bytes },
            (None, Some(known @ VolumeUsage::Block { .. })) if facts.inventory().is_none() => {
                *known
            }
            (None, _) => VolumeUsage::Unknown,
        };
    }
    if volume.facts.mounts.is_empty() {
        // For a volume that this node provides, the size is known even if it is not mounted.
        return match volume.facts.provided.as_ref().map(|provided| provided.size) {
            None | Some(0) => VolumeUsage::Unknown,
            Some(size_bytes) => VolumeUsage::Block { size_bytes },
        };
    }
    let mounts = volume.facts.mounts.iter();
    let probes: Vec<_> = mounts.filter_map(|mount| facts.probes.get(&mount.path)).collect();
    let measured = probes.iter().filter_map(|probe| probe.usage);
    let Some((usage, at)) = measured.max_by_key(|(_, at)| *at) else {
        let tried = probes
            .iter()
            .any(|probe| probe.result != Observation::Unavailable || probe.stuck.is_some());
        return if tried { VolumeUsage::Unknown } else { VolumeUsage::NotMeasured };
    };
    // One mount that responds is enough: the figures are the filesystem's.
    let answers = probes.iter().any(|probe| {
        probe.stuck.is_none()
            && match &probe.result {
                Observation::Ok { value, .. } => {
                    value.statfs.as_ref().is_ok_and(|measured| measured.total_bytes > 0)
                }
                Observation::Failed { .. } => false,
                Observation::Unavailable => true,
            }
    });
    let failing_since = || {
        let stuck = probes.iter().filter_map(|probe| Some(probe.stuck.as_ref()?.since)).min();
        stuck.or_else(|| probes.iter().filter_map(|probe| probe.result.at()).min())
    };
    let stale = match before {
        _ if answers => None,
        Some(VolumeUsage::Mounted { stale: Some(since), .. }) => Some(*since),
        _ => failing_since(),
    };
    let subject = Subject::Volume(volume.facts.id.clone());
    let forecast = facts.space.forecast(&subject, usage.available_bytes, at);
    VolumeUsage::Mounted {
        usage,
        at,
        stale,
        full_at: forecast.and_then(|forecast| at.checked_add(forecast.full_in).ok()),
    }
}

fn last_probe(facts: &Facts, volume: &KnownVolume) -> Option<Timestamp> {
    let mounts = volume.facts.mounts.iter();
    mounts.filter_map(|mount| facts.probes.get(&mount.path)?.result.at()).max()
}
