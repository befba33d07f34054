//! Rules about redundancy and pools: md, LVM's RAID, btrfs, thin pools, multipath.

use jiff::Timestamp;

use crate::model::assess::text::{evidence, join_limited, percent, raised, unknown};
use crate::model::block::{LayerState, MdState, Multipath, ThinPool};
use crate::model::facts::{Facts, LayerFacts};
use crate::model::finding::{Evidence, Severity, Status, Verdict};
use crate::model::graph::stack::{btrfs_tolerance, tolerance};
use crate::model::observation::Observation;
use crate::model::policy::Policy;
use crate::model::volume::VolumeFacts;

/// What one layer says; worst first wins for a volume over several.
struct Degradation {
    severity: Severity,
    status: Status,
    message: String,
    evidence: Vec<Evidence>,
}

/// An array beneath the volume is short of members. Sources: md's sysfs, dm-raid's status, btrfs'
/// devinfo.
/// SUSPECT, degraded, while what is left carries the data; BAD, inaccessible, when more is lost
/// than the level survives or the array does not run. Clears when every array is whole again.
pub(crate) fn raid_degraded(facts: &Facts, volume: &VolumeFacts) -> Option<Verdict> {
    match btrfs(facts, volume) {
        Some(Ok(said)) => said.raise("every member of the filesystem is present again"),
        Some(Err(verdict)) => raid(facts, &volume.devices).or(Some(verdict)),
        None => raid(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume)),
    }
}

pub(crate) fn raid(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    worst_layer(
        facts,
        devices,
        "every member of the array is active and in sync",
        |name, at, state| match state {
            LayerState::Md(md) => Some(md_array(name, at, md)),
            LayerState::DmRaid {
                level,
                health,
                sync_action,
                status_line,
            } => Some(dm_raid(
                name,
                at,
                level,
                health,
                sync_action.as_deref(),
                status_line,
            )),
            _ => None,
        },
    )
}

/// The thin pool beneath the volume is nearly or wholly used, in data or in metadata. Source:
/// dm-thin's status. SUSPECT, degraded, from `suspect_percent`; BAD from `bad_percent` until below
/// `suspect_percent`; BAD, inaccessible, when the pool is out of space, read-only or failed. Clears
/// below `clear_percent` in a pool that takes writes.
pub(crate) fn thin_pool_full(
    facts: &Facts,
    volume: &VolumeFacts,
    policy: &Policy,
    active: Option<Severity>,
) -> Option<Verdict> {
    thin(facts, &volume.devices, policy, active).or_else(|| clear_without_layer(facts, volume))
}

pub(crate) fn thin(
    facts: &Facts,
    devices: &[String],
    policy: &Policy,
    active: Option<Severity>,
) -> Option<Verdict> {
    worst_layer(
        facts,
        devices,
        "the pool accepts writes and both its data and its metadata are below the limit",
        |name, at, state| match state {
            LayerState::Thin(pool) => Some(thin_pool(name, at, pool, policy, active)),
            _ => None,
        },
    )
}

/// Paths of a multipath device beneath the volume have failed. Source: dm-multipath's status.
/// SUSPECT, degraded, while one is left; BAD, inaccessible, when none is. Clears when all are
/// active.
pub(crate) fn paths_degraded(facts: &Facts, volume: &VolumeFacts) -> Option<Verdict> {
    paths(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume))
}

pub(crate) fn paths(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    worst_layer(
        facts,
        devices,
        "all paths are active",
        |name, at, state| match state {
            LayerState::Multipath(multipath) => {
                Some(multipath_degradation(facts, name, at, multipath))
            }
            _ => None,
        },
    )
}

/// No such layer is beneath the volume (any more), as a good scan says.
fn clear_without_layer(facts: &Facts, volume: &VolumeFacts) -> Option<Verdict> {
    let inventory = facts.inventory.value()?;
    // A device that the scan lists and whose state has not been asked for yet may be such a layer.
    let pending = volume.devices.iter().any(|name| {
        let layered = inventory.devices.get(name).is_some_and(|device| {
            use crate::model::block::Layer;
            matches!(device.layer, Layer::Md { .. } | Layer::Dm { .. })
        });
        layered
            && facts
                .layers
                .get(name)
                .is_none_or(|layer| layer.last_known().is_none())
    });
    (!pending && !volume.device_gone).then_some(Verdict::Clear)
}

impl Degradation {
    fn raise(self, clears: &str) -> Option<Verdict> {
        raised(
            self.severity,
            self.status,
            self.message,
            self.evidence,
            clears,
            None,
        )
    }
}

/// The worst of what these devices' states say; a state that could not be read leaves the answer
/// open.
fn worst_layer(
    facts: &Facts,
    devices: &[String],
    clears: &str,
    rule: impl Fn(&str, Timestamp, &LayerState) -> Option<Option<Degradation>>,
) -> Option<Verdict> {
    let mut worst: Option<Degradation> = None;
    let mut applies = false;
    let mut why = None;
    for (name, layer) in devices
        .iter()
        .filter_map(|name| facts.layers.get_key_value(name))
    {
        let relevant = layer
            .last_known()
            .is_some_and(|state| rule(name, Timestamp::UNIX_EPOCH, state).is_some());
        match layer.state.observation() {
            Observation::Ok { at, value } => {
                if let Some(said) = rule(name, *at, value) {
                    applies = true;
                    if let Some(said) = said
                        && worst.as_ref().is_none_or(|known| {
                            (known.severity, known.status) < (said.severity, said.status)
                        })
                    {
                        worst = Some(said);
                    }
                }
            }
            Observation::Failed { error, .. } if relevant || layer.last_known().is_none() => {
                why.get_or_insert(format!("state of {name}: {error}"));
            }
            _ => {}
        }
        if let Some(stuck) = pending(layer, relevant) {
            why.get_or_insert(format!(
                "the state of {name} has been asked for since {stuck} without an answer"
            ));
        }
    }
    match (worst, why) {
        (Some(said), _) => said.raise(clears),
        (None, Some(why)) => unknown(why),
        (None, None) => applies.then_some(Verdict::Clear),
    }
}

fn pending(layer: &LayerFacts, relevant: bool) -> Option<Timestamp> {
    layer
        .stuck
        .as_ref()
        .filter(|_| relevant || layer.last_known().is_none())
        .map(|stuck| stuck.since)
}

fn md_array(name: &str, at: Timestamp, md: &MdState) -> Option<Degradation> {
    // md.rst, array_state: these do no I/O. `broken` is a raid0 or linear array that has lost a
    // member.
    let dead = matches!(
        md.array_state.as_str(),
        "inactive" | "clear" | "broken" | "suspended"
    );
    let survives = tolerance(&md.level, md.raid_disks as usize);
    let lost = md.degraded > 0 && survives.is_none_or(|tolerates| md.degraded as usize > tolerates);
    if !dead && md.degraded == 0 {
        return None;
    }
    let have = md.raid_disks.saturating_sub(md.degraded);
    let mut message = format!(
        "{name} ({}) runs with {have} of {} devices",
        md.level, md.raid_disks
    );
    if dead {
        message = format!(
            "{name} ({}) does not run: its state is `{}`",
            md.level, md.array_state
        );
    } else if lost {
        message.push_str(": too few to carry its data");
    }
    if let Some(action) = md
        .sync_action
        .as_deref()
        .filter(|action| !matches!(*action, "idle" | ""))
    {
        let progress = md
            .sync_completed
            .and_then(|(done, all)| percent(done, all))
            .map(|share| format!(" {share} %"))
            .unwrap_or_default();
        message.push_str(&format!("; {action}{progress}"));
    }
    let faulty: Vec<&str> = md
        .members
        .iter()
        .filter(|member| member.state.split(',').any(|word| word == "faulty"))
        .map(|member| member.device.as_str())
        .collect();
    if !faulty.is_empty() {
        message.push_str(&format!("; faulty: {}", join_limited(faulty)));
    }
    let mut proof = vec![
        evidence(
            format!("/sys/block/{name}/md/degraded"),
            at,
            md.degraded.to_string(),
        ),
        evidence(
            format!("/sys/block/{name}/md/array_state"),
            at,
            &md.array_state,
        ),
    ];
    for member in md.members.iter().take(4) {
        proof.push(evidence(
            format!("/sys/block/{name}/md/dev-{}/state", member.device),
            at,
            &member.state,
        ));
    }
    let (severity, status) = if dead || lost {
        (Severity::Bad, Status::Inaccessible)
    } else {
        (Severity::Suspect, Status::Degraded)
    };
    Some(Degradation {
        severity,
        status,
        message,
        evidence: proof,
    })
}

/// Legs: `A` in sync, `a` being filled, `D` dead, `-` missing. While a new RAID synchronises for
/// the first time (`resync`), `a` is no loss.
fn dm_raid(
    name: &str,
    at: Timestamp,
    level: &str,
    health: &str,
    sync_action: Option<&str>,
    status_line: &str,
) -> Option<Degradation> {
    let dead = health
        .chars()
        .filter(|leg| matches!(leg, 'D' | '-'))
        .count();
    let filling = health.chars().filter(|leg| *leg == 'a').count();
    let recovering = filling > 0 && sync_action.is_some_and(|action| action == "recover");
    if dead == 0 && !recovering {
        return None;
    }
    let all = health.chars().count();
    let mut message = format!(
        "{name} ({level}) runs with {} of {all} legs",
        all.saturating_sub(dead + if recovering { filling } else { 0 })
    );
    if recovering {
        message.push_str("; it is being rebuilt");
    }
    let lost = tolerance(level, all).is_none_or(|tolerates| dead > tolerates);
    let (severity, status) = if lost && dead > 0 {
        (Severity::Bad, Status::Inaccessible)
    } else {
        (Severity::Suspect, Status::Degraded)
    };
    Some(Degradation {
        severity,
        status,
        message,
        evidence: vec![evidence(format!("dm status of {name}"), at, status_line)],
    })
}

/// `None`: no btrfs; `Err`: a btrfs with all its members, or one that cannot be told.
fn btrfs(facts: &Facts, volume: &VolumeFacts) -> Option<Result<Degradation, Verdict>> {
    let device = volume.device.as_ref()?;
    let fs = facts
        .inventory()?
        .btrfs
        .iter()
        .find(|fs| fs.devices.contains(device))?;
    if let Some(error) = facts.inventory.error() {
        return unknown(error).map(Err);
    }
    let at = facts.inventory.at()?;
    if fs.missing_devices == 0 {
        return Some(Err(Verdict::Clear));
    }
    let profiles = || fs.data_profiles.iter().chain(&fs.metadata_profiles);
    let tolerates = profiles()
        .map(|profile| btrfs_tolerance(profile))
        .min()
        .unwrap_or(0);
    let lost = fs.missing_devices as usize > tolerates;
    let names = join_limited(profiles().collect::<std::collections::BTreeSet<_>>());
    let all = fs.devices.len() + fs.missing_devices as usize;
    let message = format!(
        "the btrfs {} ({names}) runs without {} of its {all} devices",
        fs.uuid, fs.missing_devices
    );
    let proof = vec![evidence(
        format!("/sys/fs/btrfs/{}/devinfo", fs.uuid),
        at,
        format!("missing: {}", fs.missing_devices),
    )];
    // It is mounted, so it serves what it can; what had no second copy is gone with the member.
    let severity = if lost {
        Severity::Bad
    } else {
        Severity::Suspect
    };
    Some(Ok(Degradation {
        severity,
        status: Status::Degraded,
        message,
        evidence: proof,
    }))
}

fn thin_pool(
    name: &str,
    at: Timestamp,
    pool: &ThinPool,
    policy: &Policy,
    active: Option<Severity>,
) -> Option<Degradation> {
    let policy = &policy.thin_pool;
    let proof = vec![evidence(
        format!("dm status of {name}"),
        at,
        &pool.status_line,
    )];
    let data = percent(pool.data_used, pool.data_total);
    let metadata = percent(pool.metadata_used, pool.metadata_total);
    let share = |used: Option<u64>| {
        used.map(|used| format!("{used} %"))
            .unwrap_or_else(|| "an unknown share".to_owned())
    };
    let used = format!(
        "{} of its data and {} of its metadata space are used",
        share(data),
        share(metadata)
    );
    if matches!(pool.mode.as_str(), "ro" | "out_of_data_space" | "Fail") {
        let message = format!(
            "thin pool {name} accepts no writes (its mode is `{}`): {used}",
            pool.mode
        );
        return Some(Degradation {
            severity: Severity::Bad,
            status: Status::Inaccessible,
            message,
            evidence: proof,
        });
    }
    if pool.needs_check {
        let message =
            format!("thin pool {name} needs a check of its metadata (needs_check): {used}");
        return Some(Degradation {
            severity: Severity::Bad,
            status: Status::Degraded,
            message,
            evidence: proof,
        });
    }
    let most = data.into_iter().chain(metadata).max()?;
    let bad = most >= u64::from(policy.bad_percent)
        || (active == Some(Severity::Bad) && most >= u64::from(policy.suspect_percent));
    let suspect = most >= u64::from(policy.suspect_percent)
        || (active.is_some() && most >= u64::from(policy.clear_percent));
    if !bad && !suspect {
        return None;
    }
    let severity = if bad {
        Severity::Bad
    } else {
        Severity::Suspect
    };
    Some(Degradation {
        severity,
        status: Status::Degraded,
        message: format!("thin pool {name} is filling up: {used}"),
        evidence: proof,
    })
}

fn multipath_degradation(
    facts: &Facts,
    name: &str,
    at: Timestamp,
    multipath: &Multipath,
) -> Option<Degradation> {
    let all = multipath.paths.len();
    let failed: Vec<String> = multipath
        .paths
        .iter()
        .filter(|path| !path.active)
        .map(|path| {
            let device = facts.inventory().and_then(|inventory| {
                inventory
                    .devices
                    .values()
                    .find(|device| device.dev == path.dev)
            });
            device.map_or_else(|| path.dev.to_string(), |device| device.name.clone())
        })
        .collect();
    if failed.is_empty() && all > 0 {
        return None;
    }
    let proof = vec![evidence(
        format!("dm status of {name}"),
        at,
        &multipath.status_line,
    )];
    Some(match all - failed.len() {
        0 => Degradation {
            severity: Severity::Bad,
            status: Status::Inaccessible,
            message: format!("multipath device {name} has no working path left of {all}"),
            evidence: proof,
        },
        left => Degradation {
            severity: Severity::Suspect,
            status: Status::Degraded,
            message: format!(
                "multipath device {name} works with {left} of {all} paths; failed: {}",
                join_limited(failed)
            ),
            evidence: proof,
        },
    })
}
