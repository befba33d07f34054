//! Rules about what does not come back: probes, questions to layers, and I/O.

use crate::model::assess::text::{evidence, raised, unknown};
use crate::model::facts::{Facts, KnownVolume, LayerFacts, elapsed};
use crate::model::finding::{Severity, Status, Verdict};
use crate::model::observation::Observation;
use crate::model::policy::Policy;
use crate::model::probe::StuckProbe;

/// A probe of one of the volume's mounts has not come back in its time. Source: the prober.
/// BAD, inaccessible. Clears when the probe, or a later one, comes back, or the mount is gone.
pub(crate) fn volume_probe(facts: &Facts, known: &KnownVolume) -> Option<Verdict> {
    if known.facts.block {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error);
    }
    let probes = || {
        known
            .facts
            .mounts
            .iter()
            .filter_map(|mount| Some((&mount.path, facts.probes.get(&mount.path)?)))
    };
    if let Some((path, stuck)) = probes()
        .filter_map(|(path, probe)| Some((path, probe.stuck.as_ref()?)))
        .min_by_key(|(_, stuck)| stuck.since)
    {
        let via = if stuck.path == *path {
            String::new()
        } else {
            format!(" (asked at {})", stuck.path)
        };
        let message = format!(
            "a probe of {path}{via} has been pending since {}: programs that use the volume hang too",
            stuck.since
        );
        return timed_out(message, format!("probe {}", stuck.path), stuck);
    }
    if known.facts.mounts.is_empty() {
        return facts.mounts.value().map(|_| Verdict::Clear);
    }
    let failed = probes().find_map(|(path, probe)| {
        probe
            .result
            .error()
            .map(|error| format!("probing {path}: {error}"))
    });
    match failed {
        Some(why) => unknown(why),
        None if probes().any(|(_, probe)| probe.result.value().is_some()) => Some(Verdict::Clear),
        None => None,
    }
}

/// A question about the state of an md or dm device has not come back in its time. Source: the
/// layers' reader.
/// BAD, inaccessible: the device is suspended or its I/O hangs. Clears when it is answered.
pub(crate) fn layer_probe(name: &str, layer: &LayerFacts) -> Option<Verdict> {
    if let Some(stuck) = &layer.stuck {
        let message = format!(
            "a query of the state of {name} has been pending since {}: the device is suspended, or its I/O hangs",
            stuck.since
        );
        return timed_out(message, format!("state of {name}"), stuck);
    }
    match layer.state.observation() {
        Observation::Ok { .. } => Some(Verdict::Clear),
        Observation::Failed { error, .. } => unknown(error),
        Observation::Unavailable => None,
    }
}

fn timed_out(message: String, source: String, stuck: &StuckProbe) -> Option<Verdict> {
    let text = match &stuck.waiting_in {
        Some(place) => format!("pending since {}, waiting in {place}", stuck.since),
        None => format!("pending since {}", stuck.since),
    };
    let proof = vec![evidence(source, stuck.since, text)];
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        "the pending probe or a later one is answered",
        Some(stuck.since),
    )
}

/// I/O is in flight on a device beneath the volume and none has been completed for
/// `io_stalled_after`. Source: two readings of /proc/diskstats that far apart. BAD, inaccessible.
/// Not judged where the queue keeps no statistics. Clears with the next completion.
pub(crate) fn io_stalled(facts: &Facts, known: &KnownVolume, policy: &Policy) -> Option<Verdict> {
    let volume = &known.facts;
    if volume.devices.is_empty() {
        // Gone with its device, or nothing local beneath it: the counters that told are no more.
        return (volume.device_gone || volume.mounts.is_empty()).then_some(Verdict::Clear);
    }
    if let Some(error) = facts.disk_io.stats().error() {
        return unknown(error);
    }
    let at = facts
        .disk_io
        .stats()
        .value()
        .and(facts.disk_io.stats().at())?;
    let inventory = facts.inventory()?;
    let mut judged = false;
    let mut stalled = None;
    // Top first: the last one found is the lowest, nearest to the cause.
    for name in &volume.devices {
        let Some(device) = inventory.devices.get(name).filter(|device| device.iostats) else {
            continue;
        };
        let Some(memory) = facts.disk_io.progress(device.dev) else {
            continue;
        };
        judged = true;
        if let Some(since) = memory
            .waiting_since
            .filter(|since| elapsed(*since, at) >= policy.io_stalled_after)
        {
            stalled = Some((name, memory, since));
        }
    }
    let Some((name, memory, since)) = stalled else {
        return judged.then_some(Verdict::Clear);
    };
    let proof = vec![
        evidence("/proc/diskstats", since, &memory.first_line),
        evidence("/proc/diskstats", at, &memory.last_line),
    ];
    let message = format!(
        "{name}, the device of the volume, has I/O in flight and has completed none since {since}"
    );
    raised(
        Severity::Bad,
        Status::Inaccessible,
        message,
        proof,
        "the device completes I/O again, or has none in flight",
        Some(since),
    )
}
