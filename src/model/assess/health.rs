//! Health of drives and volumes: the worst finding, or unknown.

use crate::model::assess::mounted::is_volume_error;
use crate::model::assess::smart;
use crate::model::facts::{Facts, KnownVolume};
use crate::model::finding::{Health, Severity, Subject};
use crate::model::observation::Observation;

/// Health from the worst active finding, and from whether a source should have reported and did
/// not.
/// A subject that is known to be bad or suspect stays so; only one without findings is unknown.
pub(crate) fn health(worst: Option<Severity>, unknown: bool) -> Health {
    match worst {
        Some(Severity::Bad) => Health::Bad,
        Some(Severity::Suspect) => Health::Suspect,
        _ if unknown => Health::Unknown,
        _ => Health::Good,
    }
}

/// The source that should have reported on this subject and did not, with its error; `None` when
/// all that apply have reported (or need not yet).
pub(crate) fn health_unknown(facts: &Facts, subject: &Subject) -> Option<String> {
    match subject {
        Subject::Drive(id) => {
            drives(facts).or_else(|| smart::health_unknown(facts, facts.drives.get(id)?))
        }
        Subject::Volume(id) => volume(facts, facts.volumes.get(id)?),
        Subject::Device(name) => layer(facts, name).or_else(|| drives(facts)),
    }
}

fn volume(facts: &Facts, known: &KnownVolume) -> Option<String> {
    let volume = &known.facts;
    if let Some(error) = facts.mounts.error() {
        return Some(format!("mounts: {error}"));
    }
    if let Some(error) = facts.kubelet.error().filter(|_| volume.driver.is_some()) {
        return Some(format!("the kubelet's records: {error}"));
    }
    let local = !volume.remote || volume.device.is_some();
    let scan = drives(facts).filter(|_| local);
    scan.or_else(|| volume.devices.iter().find_map(|name| layer(facts, name)))
        .or_else(|| probes(facts, known))
}

fn drives(facts: &Facts) -> Option<String> {
    Some(format!("drives: {}", facts.inventory.error()?))
}

fn layer(facts: &Facts, name: &str) -> Option<String> {
    Some(format!(
        "state of {name}: {}",
        facts.layers.get(name)?.state.error()?
    ))
}

/// No probe of its mounts gave a result, and at least one failed.
fn probes(facts: &Facts, known: &KnownVolume) -> Option<String> {
    if known.facts.block {
        return None;
    }
    let mut why = None;
    for mount in &known.facts.mounts {
        match facts.probes.get(&mount.path).map(|probe| &probe.result) {
            Some(Observation::Failed { error, .. }) => {
                why.get_or_insert(format!("probing {}: {error}", mount.path));
            }
            Some(Observation::Ok { value, .. }) => match &value.statfs {
                Err(error) if !is_volume_error(error.errno) => {
                    why.get_or_insert(format!("probing {}: {error}", mount.path));
                }
                _ => return None,
            },
            Some(Observation::Unavailable) | None => {}
        }
    }
    why
}
