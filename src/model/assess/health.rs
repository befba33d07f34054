//! Health of drives and volumes: the worst finding, or unknown.

use jiff::Timestamp;

use crate::assess::mounted::is_volume_error;
use crate::assess::raid_volume;
use crate::assess::smart::{self, Answer};
use crate::facts::{Facts, KnownDrive, KnownVolume};
use crate::policy::Policy;
use crate::volume::VolumeFacts;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Health, Subject, UnknownCause, UnknownHealth};

/// Health from the worst active finding, and from whether a source should have reported and did
/// not.
/// A subject that is known to be bad or suspect stays so; only one without findings is unknown.
pub fn health(worst: Option<Severity>, unknown: bool) -> Health {
    match worst {
        Some(Severity::Bad) => Health::Bad,
        Some(Severity::Suspect) => Health::Suspect,
        _ if unknown => Health::Unknown,
        _ => Health::Good,
    }
}

/// The source that should have reported on this subject and did not, or has not yet; `None` when all
/// that apply have reported once. docs/findings.md has the table.
pub(crate) fn health_unknown(
    facts: &Facts,
    subject: &Subject,
    policy: &Policy,
    now: Timestamp,
) -> Option<UnknownHealth> {
    match subject {
        Subject::Drive(id) => drive(facts, facts.drives.get(id)?, policy, now),
        Subject::Volume(id) => volume(facts, facts.volumes.get(id)?),
        Subject::Device(name) => {
            layer(facts, name).or_else(|| drives(facts)).map(UnknownHealth::failed)
        }
        Subject::Source(_) => None,
    }
}

/// Whether something that comes within moments of a start is outstanding: the kernel's log, its
/// counters, the first probe of a volume. Not the answers of drives to smartctl.
pub fn is_first_look_outstanding(facts: &Facts) -> bool {
    let is_pending = |unknown: Option<UnknownHealth>| {
        unknown.is_some_and(|it| it.cause == UnknownCause::Pending)
    };
    is_pending(facts.kernel.unread_cause())
        || is_pending(facts.counters.unread_cause())
        || facts.volumes.values().any(|known| is_pending(volume(facts, known)))
}

/// Evidence about a drive whose kind has SMART is its answer to smartctl, from this run or an earlier
/// one. Where there is no SMART data, the kernel's log and its error counters must have been read
/// once, and the log without a loss that the drive's own counters do not make up for.
fn drive(
    facts: &Facts,
    known: &KnownDrive,
    policy: &Policy,
    now: Timestamp,
) -> Option<UnknownHealth> {
    let failed = drives(facts).or_else(|| smart::query_failure(facts, known));
    if let Some(why) = failed {
        return Some(UnknownHealth::failed(why));
    }
    // A removed drive is judged by its removal: nothing more answers.
    if known.missing_since.is_some() {
        return None;
    }
    match smart::answer(facts, known, policy.smart_answer_valid, now) {
        Answer::Received => None,
        Answer::Outstanding(unknown) => Some(unknown),
        Answer::None => facts
            .kernel
            .unread_cause()
            .or_else(|| facts.counters.unread_cause())
            .or_else(|| facts.lost_evidence(&known.facts.id, now))
            .or_else(|| facts.without_evidence(&known.facts.id))
            .or_else(|| raid_volume::unknown_state(facts, known, now)),
    }
}

fn volume(facts: &Facts, known: &KnownVolume) -> Option<UnknownHealth> {
    let volume = &known.facts;
    let sources = || {
        if let Some(error) = facts.mounts.error() {
            return Some(format!("mounts: {error}"));
        }
        if let Some(error) = facts.kubelet.error().filter(|_| volume.driver.is_some()) {
            return Some(format!("the kubelet's records: {error}"));
        }
        let local = !volume.remote || volume.device.is_some();
        let scan = drives(facts).filter(|_| local);
        scan.or_else(|| volume.devices.iter().find_map(|name| layer(facts, name)))
    };
    match sources() {
        Some(why) => Some(UnknownHealth::failed(why)),
        None => probes(facts, known).or_else(|| devices(volume)),
    }
}

fn drives(facts: &Facts) -> Option<String> {
    Some(format!("drives: {}", facts.inventory.error()?))
}

fn layer(facts: &Facts, name: &str) -> Option<String> {
    Some(format!("state of {name}: {}", facts.layers.get(name)?.state.error()?))
}

/// One mount that has answered is enough: all show one filesystem. Without one, a failure counts
/// before a first probe that is outstanding. A mount that other mounts hide is not probed, nor are
/// those of sleeping drives. A user that hides a volume does not make it good.
fn probes(facts: &Facts, known: &KnownVolume) -> Option<UnknownHealth> {
    if known.facts.block {
        return None;
    }
    if let Some(by) = &known.hidden_by {
        return Some(UnknownHealth::failed(format!(
            "{} cannot be probed: the user with uid {} has mounted a FUSE filesystem over it, at {}",
            by.hidden, by.uid, by.mount_point
        )));
    }
    let mut unknown: Option<UnknownHealth> = None;
    let mut awaited = None;
    let is_asleep = facts.is_asleep(&known.facts);
    for mount in &known.facts.mounts {
        let path = &mount.path;
        let probe = facts.probes.get(path);
        match probe.map(|probe| &probe.result) {
            Some(Observation::Failed { error, .. }) => {
                unknown.get_or_insert_with(|| {
                    UnknownHealth::failed(format!("probing {path}: {error}"))
                });
            }
            Some(Observation::Ok { value, .. }) => match &value.statfs {
                Err(error) if !is_volume_error(error.errno) => {
                    unknown.get_or_insert_with(|| {
                        UnknownHealth::failed(format!("probing {path}: {error}"))
                    });
                }
                _ => return None,
            },
            Some(Observation::Unavailable) | None => {
                if probe.is_some_and(|probe| probe.answered) {
                    return None;
                }
                let target = facts.probes.mounts().get(path);
                let is_own = target.is_some_and(|target| target.volume == known.facts.id);
                awaited = awaited.or((is_own && !is_asleep).then_some(path));
            }
        }
    }
    let pending = |path| UnknownHealth::pending(format!("{path} has not been probed yet"));
    unknown.or_else(|| awaited.map(pending))
}

/// Only the source of such a mount leads to its devices. Without them, no failure of a drive is its
/// own.
fn devices(volume: &VolumeFacts) -> Option<UnknownHealth> {
    let is_on_devices = matches!(volume.fs_type.as_deref(), Some("btrfs" | "bcachefs"));
    let (mount, source) = (volume.mounts.first()?, volume.source.as_ref()?);
    (is_on_devices && volume.device.is_none() && !volume.device_gone).then(|| {
        UnknownHealth::failed(format!(
            "{}: the source {source} leads to no known block device, so its drives are not known",
            mount.path
        ))
    })
}
