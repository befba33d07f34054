//! Rules about operations that do not return in time: probes, queries of layers, and I/O.

use jiff::Timestamp;

use crate::assess::input::{Context, VolumeInput};
use crate::assess::text::{INACCESSIBLE, evidence, raised, unknown};
use crate::facts::probes::ProbeFacts;
use crate::facts::{Facts, LayerFacts};
use crate::probe::StuckProbe;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::{Verdict, WitnessKind};
use diskvitals_text::duration::elapsed;

/// A probe of one of the volume's mounts has not returned in its time. Source: the prober.
/// BAD, inaccessible. Clears when this probe or a later one returns, or the mount is removed.
pub(crate) fn volume_probe(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    if volume.block {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error);
    }
    let probes = || {
        let mounts = volume.mounts.iter();
        mounts.filter_map(|mount| Some((&mount.path, facts.probes.get(&mount.path)?)))
    };
    if let Some((path, stuck)) = probes()
        .filter_map(|(path, probe)| Some((path, probe.stuck.as_ref()?)))
        .min_by_key(|(_, stuck)| stuck.since)
    {
        let via = match stuck.path == *path {
            true => String::new(),
            false => format!(" (asked at {})", stuck.path),
        };
        let message = format!(
            "a probe of {path}{via} has been pending since {}: programs that use the volume hang too",
            facts.wall_text(stuck.since)
        );
        return timed_out(facts, message, format!("probe {}", stuck.path), stuck);
    }
    if volume.mounts.is_empty() {
        return facts.mounts.value().map(|_| Verdict::Clear);
    }
    let error = |(path, probe): (_, &ProbeFacts)| {
        probe.result.error().map(|error| format!("probing {path}: {error}"))
    };
    match probes().find_map(error) {
        Some(why) => unknown(why),
        None => probes().any(|(_, probe)| probe.result.value().is_some()).then_some(Verdict::Clear),
    }
}

/// A query of the state of an md or dm device has not returned in its time. Source: the layers'
/// reader.
/// BAD, inaccessible: the device is suspended or its I/O hangs. Clears when the query returns.
pub(crate) fn layer_probe(facts: &Facts, name: &str, layer: &LayerFacts) -> Option<Verdict> {
    if let Some(stuck) = &layer.stuck {
        let message = format!(
            "a query of the state of {name} has been pending since {}: the device is suspended, or its I/O hangs",
            facts.wall_text(stuck.since)
        );
        return timed_out(facts, message, format!("state of {name}"), stuck);
    }
    match layer.state.observation() {
        Observation::Ok { .. } => Some(Verdict::Clear),
        Observation::Failed { error, .. } => unknown(error),
        Observation::Unavailable => None,
    }
}

fn timed_out(
    facts: &Facts,
    message: String,
    source: String,
    stuck: &StuckProbe,
) -> Option<Verdict> {
    let waiting = stuck.waiting_in.as_ref().map(|function| format!(", waiting in {function}"));
    let text =
        format!("pending since {}{}", facts.wall_text(stuck.since), waiting.unwrap_or_default());
    let proof = vec![evidence(WitnessKind::Probe, source, stuck.since, text)];
    let clears = "the pending probe or a later one is answered";
    raised(INACCESSIBLE, message, proof, clears, Some(stuck.since))
}

/// I/O is in flight on a device below the volume and none has been completed for
/// `io_stalled_after`. Source: two readings of /proc/diskstats that far apart. BAD, inaccessible.
/// Not judged where the queue keeps no statistics. Clears with the next completion.
pub(crate) fn io_stalled(input: &VolumeInput) -> Option<Verdict> {
    let (Context { facts, policy, .. }, volume) = (input.context, &input.known.facts);
    if volume.devices.is_empty() {
        // Removed with its device, or no local device below it: the counters no longer exist.
        return (volume.device_gone || volume.mounts.is_empty()).then_some(Verdict::Clear);
    }
    let at = match facts.disk_io.stats() {
        Observation::Unavailable => return None,
        Observation::Failed { error, .. } => return unknown(error),
        Observation::Ok { at, .. } => *at,
    };
    let inventory = facts.inventory()?;
    let mut judged = false;
    let mut stalled = None;
    // Top first: the last one found is the lowest, nearest to the cause.
    for name in &volume.devices {
        let Some(device) = inventory.devices.get(name).filter(|device| device.iostats) else {
            continue;
        };
        let Some(progress) = facts.disk_io.progress(device.dev) else {
            continue;
        };
        judged = true;
        let is_stalled = |since: &Timestamp| elapsed(*since, at) >= policy.io_stalled_after;
        if let Some(since) = progress.waiting_since.filter(is_stalled) {
            stalled = Some((name, progress, since));
        }
    }
    let Some((name, progress, since)) = stalled else {
        return judged.then_some(Verdict::Clear);
    };
    let proof = vec![
        evidence(WitnessKind::Counter, "/proc/diskstats", since, &progress.first_line),
        evidence(WitnessKind::Counter, "/proc/diskstats", at, &progress.last_line),
    ];
    let message = format!(
        "{name}, the device of the volume, has I/O in flight and has completed none since {}",
        facts.wall_text(since)
    );
    let clears = "the device completes I/O again, or has none in flight";
    raised(INACCESSIBLE, message, proof, clears, Some(since))
}
