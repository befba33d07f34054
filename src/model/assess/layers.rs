//! Rules about redundancy and pools: md, LVM's RAID, btrfs, thin pools, multipath.

use jiff::Timestamp;

use crate::model::assess::reason_rules::{Context, VolumeInput};
use crate::model::assess::space::{fills_up, full_in};
use crate::model::assess::text::{
    BAD, INACCESSIBLE, Level, SUSPECT, evidence, join_limited, percent, raised, unknown,
};
use crate::model::block::{Layer, LayerState, MdState, Multipath, ThinPool};
use crate::model::facts::Facts;
use crate::model::finding::{Evidence, Severity, Subject, Verdict, WitnessKind};
use crate::model::graph::stack::{btrfs_tolerance, tolerance};
use crate::model::label;
use crate::model::observation::Observation;
use crate::model::volume::VolumeFacts;

/// The state of one layer; for a volume over several layers, the worst one counts.
struct Degradation {
    level: Level,
    message: String,
    evidence: Vec<Evidence>,
}

/// An array below the volume lacks members. Sources: md's sysfs, dm-raid's status, btrfs' devinfo.
/// SUSPECT, degraded, while the remaining members carry the data; BAD, inaccessible, when more are
/// lost than the level survives or the array does not run. Clears when every array is complete
/// again.
pub(crate) fn raid_degraded(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    match btrfs(facts, volume) {
        Some(Ok(worst)) => worst.raise("every member of the filesystem is present again"),
        Some(Err(verdict)) => raid(facts, &volume.devices).or(Some(verdict)),
        None => raid(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume)),
    }
}

pub(crate) fn raid(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    let clears = "every member of the array is active and in sync";
    worst_layer(facts, devices, clears, |name, at, state| match state {
        LayerState::Md(md) => Some(md_array(name, at, md)),
        LayerState::DmRaid { .. } => Some(dm_raid(facts, name, at, state)),
        _ => None,
    })
}

/// The thin pool below the volume is nearly or fully used, in data or in metadata. Source:
/// dm-thin's status. SUSPECT, degraded, from `suspect_percent`, or when its data will be full within
/// `[space] forecast` at the rate of the last days; BAD from `bad_percent` until below
/// `suspect_percent`; BAD, inaccessible, when the pool is out of space, read-only or failed. Clears
/// below `clear_percent` in a pool that accepts writes.
pub(crate) fn thin_pool_full(input: &VolumeInput) -> Option<Verdict> {
    let volume = &input.known.facts;
    thin(input.context, &volume.devices, input.active)
        .or_else(|| clear_without_layer(input.context.facts, volume))
}

pub(crate) fn thin(
    context: Context,
    devices: &[String],
    active: Option<Severity>,
) -> Option<Verdict> {
    let clears = "the pool accepts writes and both its data and its metadata are below the limit";
    worst_layer(
        context.facts,
        devices,
        clears,
        |name, at, state| match state {
            LayerState::Thin(pool) => Some(thin_pool(context, name, at, pool, active)),
            _ => None,
        },
    )
}

/// Paths of a multipath device below the volume have failed. Source: dm-multipath's status.
/// SUSPECT, degraded, while one is left; BAD, inaccessible, when none is. Clears when all are
/// active.
pub(crate) fn paths_degraded(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    paths(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume))
}

pub(crate) fn paths(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    worst_layer(
        facts,
        devices,
        "all paths are active",
        |name, at, state| match state {
            LayerState::Multipath(multipath) => Some(failed_paths(facts, name, at, multipath)),
            _ => None,
        },
    )
}

/// Clear if a good scan shows no layer of this kind below the volume.
fn clear_without_layer(facts: &Facts, volume: &VolumeFacts) -> Option<Verdict> {
    let inventory = facts.inventory.value()?;
    // A device that the scan lists and whose state has not been read yet may be of this kind.
    let pending = volume.devices.iter().any(|name| {
        let device = inventory.devices.get(name);
        device.is_some_and(|device| matches!(device.layer, Layer::Md { .. } | Layer::Dm { .. }))
            && facts.layer_state(name).is_none()
    });
    (!pending && !volume.device_gone).then_some(Verdict::Clear)
}

impl Degradation {
    fn raise(self, clears: &str) -> Option<Verdict> {
        raised(self.level, self.message, self.evidence, clears, None)
    }
}

/// The worst state of these devices; a state that could not be read makes the verdict unknown.
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
            .state
            .last_known()
            .is_none_or(|state| rule(name, Timestamp::UNIX_EPOCH, state).is_some());
        match layer.state.observation() {
            Observation::Ok { at, value } => {
                if let Some(degradation) = rule(name, *at, value) {
                    applies = true;
                    let level = worst.as_ref().map(|worst| worst.level);
                    worst = degradation
                        .filter(|new| level.is_none_or(|level| level < new.level))
                        .or(worst);
                }
            }
            Observation::Failed { error, .. } if relevant => {
                why.get_or_insert(format!("state of {name}: {error}"));
            }
            _ => {}
        }
        if let Some(stuck) = layer.stuck.as_ref().filter(|_| relevant) {
            why.get_or_insert(format!(
                "the state of {name} has been asked for since {} without an answer",
                facts.wall_text(stuck.since)
            ));
        }
    }
    match (worst, why) {
        (Some(worst), _) => worst.raise(clears),
        (None, Some(why)) => unknown(why),
        (None, None) => applies.then_some(Verdict::Clear),
    }
}

/// `VG/LV` instead of `dm-3`. Evidence keeps the kernel's name.
fn label(facts: &Facts, name: &str) -> String {
    match facts.inventory() {
        Some(inventory) => label::device(inventory, name),
        None => name.to_owned(),
    }
}

fn md_array(name: &str, at: Timestamp, md: &MdState) -> Option<Degradation> {
    // md.rst, array_state: these do no I/O. `broken` is a raid0 or linear array that has lost a
    // member.
    let dead = matches!(
        md.array_state.as_str(),
        "inactive" | "clear" | "broken" | "suspended"
    );
    let degraded = md.degraded as usize;
    let lost = degraded > 0
        && tolerance(&md.level, md.raid_disks as usize)
            .is_none_or(|tolerates| degraded > tolerates);
    if !dead && degraded == 0 {
        return None;
    }
    let (level, disks) = (&md.level, md.raid_disks);
    let have = disks.saturating_sub(md.degraded);
    let mut message = match (dead, lost) {
        (true, _) => format!(
            "{name} ({level}) does not run: its state is `{}`",
            md.array_state
        ),
        (false, true) => {
            format!(
                "{name} ({level}) runs with {have} of {disks} devices: too few to carry its data"
            )
        }
        (false, false) => format!("{name} ({level}) runs with {have} of {disks} devices"),
    };
    let action = md.sync_action.as_deref().unwrap_or_default();
    if !matches!(action, "idle" | "") {
        let progress = md.sync_completed.and_then(|(done, all)| percent(done, all));
        let progress = progress
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
    let file = |name_below: &str| format!("/sys/block/{name}/md/{name_below}");
    let mut proof = vec![
        evidence(
            WitnessKind::Layer,
            file("degraded"),
            at,
            md.degraded.to_string(),
        ),
        evidence(WitnessKind::Layer, file("array_state"), at, &md.array_state),
    ];
    proof.extend(md.members.iter().take(4).map(|member| {
        evidence(
            WitnessKind::Layer,
            file(&format!("dev-{}/state", member.device)),
            at,
            &member.state,
        )
    }));
    let level = if dead || lost { INACCESSIBLE } else { SUSPECT };
    Some(Degradation {
        level,
        message,
        evidence: proof,
    })
}

/// Legs: `A` in sync, `a` being filled, `D` dead, `-` missing. During the first synchronization of
/// a new RAID (`resync`), `a` is not a loss.
fn dm_raid(facts: &Facts, name: &str, at: Timestamp, state: &LayerState) -> Option<Degradation> {
    let LayerState::DmRaid {
        level: raid,
        health,
        sync_action,
        status_line,
    } = state
    else {
        return None;
    };
    let count = |legs: &str| health.chars().filter(|leg| legs.contains(*leg)).count();
    let (dead, filling) = (count("D-"), count("a"));
    let recovering = filling > 0 && sync_action.as_deref() == Some("recover");
    if dead == 0 && !recovering {
        return None;
    }
    let all = health.chars().count();
    let have = all.saturating_sub(dead + if recovering { filling } else { 0 });
    let rebuild = if recovering {
        "; it is being rebuilt"
    } else {
        ""
    };
    let lost = dead > 0 && tolerance(raid, all).is_none_or(|tolerates| dead > tolerates);
    Some(Degradation {
        level: if lost { INACCESSIBLE } else { SUSPECT },
        message: format!(
            "{} ({raid}) runs with {have} of {all} legs{rebuild}",
            label(facts, name)
        ),
        evidence: vec![evidence(
            WitnessKind::Layer,
            format!("dm status of {name}"),
            at,
            status_line,
        )],
    })
}

/// `None`: not a btrfs. `Err`: a btrfs with all its members, or one in an unknown state.
fn btrfs(facts: &Facts, volume: &VolumeFacts) -> Option<Result<Degradation, Verdict>> {
    let device = volume.device.as_ref()?;
    let fs = facts.inventory()?.btrfs_of(device)?;
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
    let (uuid, missing) = (&fs.uuid, fs.missing_devices);
    let all = fs.devices.len() + missing as usize;
    let source = format!("/sys/fs/btrfs/{uuid}/devinfo");
    Some(Ok(Degradation {
        // It is mounted, so its readable data is available; data without a second copy is lost.
        level: if lost { BAD } else { SUSPECT },
        message: format!("the btrfs {uuid} ({names}) runs without {missing} of its {all} devices"),
        evidence: vec![evidence(
            WitnessKind::Inventory,
            source,
            at,
            format!("missing: {missing}"),
        )],
    }))
}

fn thin_pool(
    context: Context,
    name: &str,
    at: Timestamp,
    pool: &ThinPool,
    active: Option<Severity>,
) -> Option<Degradation> {
    let policy = &context.policy.thin_pool;
    let data = percent(pool.data_used, pool.data_total);
    let metadata = percent(pool.metadata_used, pool.metadata_total);
    let share = |used: Option<u64>| {
        used.map_or_else(|| "an unknown share".to_owned(), |used| format!("{used} %"))
    };
    let (data_share, metadata_share) = (share(data), share(metadata));
    let used =
        format!("{data_share} of its data and {metadata_share} of its metadata space are used");
    let label = label(context.facts, name);
    let (level, message) = if matches!(pool.mode.as_str(), "ro" | "out_of_data_space" | "Fail") {
        let mode = &pool.mode;
        (
            INACCESSIBLE,
            format!("thin pool {label} accepts no writes (its mode is `{mode}`): {used}"),
        )
    } else if pool.needs_check {
        (
            BAD,
            format!("thin pool {label} needs a check of its metadata (needs_check): {used}"),
        )
    } else {
        let most = data.into_iter().chain(metadata).max()?;
        let reaches = |limit: u8| most >= u64::from(limit);
        let suspect = reaches(policy.suspect_percent);
        let left = pool.data_total.saturating_sub(pool.data_used);
        let subject = Subject::Device(name.to_owned());
        let space = &context.policy.space;
        let used_from = 100 - u64::from(space.forecast_percent.min(100));
        let soon = fills_up(context.facts, &subject, left, at, active, space)
            .filter(|_| data.is_some_and(|data| data >= used_from))
            .map(|forecast| format!("; {}", full_in(&forecast)));
        let level = if reaches(policy.bad_percent) || (active == Some(Severity::Bad) && suspect) {
            BAD
        } else if suspect || soon.is_some() || (active.is_some() && reaches(policy.clear_percent)) {
            SUSPECT
        } else {
            return None;
        };
        let soon = soon.unwrap_or_default();
        (
            level,
            format!("thin pool {label} is filling up: {used}{soon}"),
        )
    };
    let proof = vec![evidence(
        WitnessKind::Layer,
        format!("dm status of {name}"),
        at,
        &pool.status_line,
    )];
    Some(Degradation {
        level,
        message,
        evidence: proof,
    })
}

fn failed_paths(
    facts: &Facts,
    name: &str,
    at: Timestamp,
    multipath: &Multipath,
) -> Option<Degradation> {
    let all = multipath.paths.len();
    let device_name = |dev| {
        let mut devices = facts.inventory()?.devices.values();
        devices
            .find(|device| device.dev == dev)
            .map(|device| device.name.clone())
    };
    let failed: Vec<String> = multipath
        .paths
        .iter()
        .filter(|path| !path.active)
        .map(|path| device_name(path.dev).unwrap_or_else(|| path.dev.to_string()))
        .collect();
    if failed.is_empty() && all > 0 {
        return None;
    }
    let label = label(facts, name);
    let (level, message) = match all - failed.len() {
        0 => (
            INACCESSIBLE,
            format!("multipath device {label} has no working path left of {all}"),
        ),
        left => {
            let failed = join_limited(failed);
            let works = format!("works with {left} of {all} paths; failed: {failed}");
            (SUSPECT, format!("multipath device {label} {works}"))
        }
    };
    let proof = vec![evidence(
        WitnessKind::Layer,
        format!("dm status of {name}"),
        at,
        &multipath.status_line,
    )];
    Some(Degradation {
        level,
        message,
        evidence: proof,
    })
}
