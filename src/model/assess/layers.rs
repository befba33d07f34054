//! Rules about layers with a state of their own: thin pools, multipath, caches; and the worst state of several
//! layers, for every such rule.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::assess::input::{Context, VolumeInput};
use crate::assess::link;
use crate::assess::merge;
use crate::assess::space::{fills_up, full_in};
use crate::assess::text::{
    BAD, INACCESSIBLE, Level, SUSPECT, evidence, join_limited, percent, raised, unknown,
};
use crate::block::LayerState;
use crate::facts::Facts;
use crate::label;
use crate::stack::{Multipath, ThinPool};
use crate::volume::VolumeFacts;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, FindingDetails, Subject, Verdict, WitnessKind};

/// The state of one layer; for a volume over several layers, the worst one counts.
pub(super) struct Degradation {
    pub level: Level,
    pub message: String,
    /// What to do in this state, if the reason's own action is not exact enough.
    pub advice: Option<String>,
    /// What ends it, if that is more exact than what the rule says of all layers.
    pub clears: Option<String>,
    pub evidence: Vec<Evidence>,
}

/// The thin pool below the volume is nearly or fully used, in data or in metadata. Source:
/// dm-thin's and VDO's status. SUSPECT, degraded, from `suspect_percent`, or when its data will be full within
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
    let clears = format!(
        "the pool accepts writes and less than {} % of its data and of its metadata space is used",
        context.policy.thin_pool.clear_percent
    );
    worst_layer(context.facts, devices, &clears, |name, at, state| match state {
        LayerState::Thin(pool) => Some(thin_pool(context, name, at, pool, active)),
        _ => None,
    })
}

/// Paths of a multipath device below the volume have failed. Source: dm-multipath's status; of NVMe
/// multipath `link::paths_lost`. SUSPECT, degraded, while one is left; BAD, inaccessible, when none is.
/// Clears when all are active.
pub(crate) fn paths_degraded(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    let below = volume.devices.iter().filter_map(|name| facts.device(name)?.drive.as_ref());
    let drives: BTreeSet<&DriveId> = below.collect();
    let drives = drives.into_iter().filter_map(|id| facts.drives.get(id));
    let of_nvme = drives.map(|known| link::paths_lost(facts, known)).fold(None, merge);
    merge(paths(facts, &volume.devices), of_nvme).or_else(|| clear_without_layer(facts, volume))
}

pub(crate) fn paths(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    worst_layer(facts, devices, "all paths are active", |name, at, state| match state {
        LayerState::Multipath(multipath) => Some(failed_paths(facts, name, at, multipath)),
        _ => None,
    })
}

/// A cache below the volume does not work, or has lost writes. Source: the status of dm-cache and
/// dm-writecache, bcache's state. BAD. Clears when it works again.
pub(crate) fn cache_failed(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    caches(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume))
}

pub(crate) fn caches(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    worst_layer(facts, devices, "the cache works again", |name, at, state| {
        let LayerState::Cache(cache) = state else {
            return None;
        };
        let (kind, label) = (&cache.kind, label(facts, name));
        Some(cache.fault.as_ref().map(|fault| Degradation {
            level: BAD,
            message: format!("the {kind} of {label} does not work (`{fault}`)"),
            advice: None,
            clears: None,
            evidence: vec![evidence(
                WitnessKind::Layer,
                format!("{kind} of {name}"),
                at,
                &cache.status_line,
            )],
        }))
    })
}

/// What to do first where a cache below the volume has writes that are on no other drive, and one of
/// these drives holds it: a cache that is detached loses them.
pub(super) fn flush_first(
    facts: &Facts,
    devices: &[String],
    is_failing: impl Fn(&DriveId) -> bool,
) -> Option<String> {
    let inventory = facts.inventory()?;
    devices.iter().find_map(|name| {
        let LayerState::Cache(cache) = facts.layer_state(name)? else {
            return None;
        };
        let of_cache = inventory.devices.values().filter(|it| cache.devices.contains(&it.dev));
        let mut drives = of_cache.flat_map(|it| inventory.drives_below(&it.name));
        if !cache.is_dirty || !drives.any(&is_failing) {
            return None;
        }
        let label = label(facts, name);
        let command = match cache.kind.as_str() {
            "bcache" => format!(
                " (`writethrough` to /sys/block/{name}/bcache/cache_mode, until `state` there is `clean`)"
            ),
            // Its name is not LVM's.
            _ if !label.contains('/') => String::new(),
            "dm-writecache" => format!(" (`lvconvert --splitcache {label}`)"),
            _ => format!(" (`lvchange --cachemode writethrough {label}`)"),
        };
        Some(format!(
            "The {} of {label} holds writes that are on no other drive: have it write them back first{command}, and never detach it by force. Make sure that there is a backup of today. Then follow the drive's finding.",
            cache.kind
        ))
    })
}

/// Clear if a good scan shows no layer of this kind below the volume.
pub(super) fn clear_without_layer(facts: &Facts, volume: &VolumeFacts) -> Option<Verdict> {
    let inventory = facts.inventory.value()?;
    // A device that the scan lists and whose state has not been read yet may be of this kind.
    let pending = volume.devices.iter().any(|name| {
        let device = inventory.devices.get(name);
        device.is_some_and(|device| device.layer.has_state()) && facts.layer_state(name).is_none()
    });
    (!pending && !volume.device_gone).then_some(Verdict::Clear)
}

impl Degradation {
    /// `since`: when it began, if that is known.
    pub(super) fn raise(self, clears: &str, since: Option<Timestamp>) -> Option<Verdict> {
        let clears = self.clears.as_deref().unwrap_or(clears);
        let verdict = raised(self.level, self.message, self.evidence, clears, since)?;
        let Verdict::Raised(details) = verdict else {
            return Some(verdict);
        };
        Some(Verdict::Raised(FindingDetails { advice: self.advice, ..details }))
    }
}

/// The worst state of these devices; a state that could not be read makes the verdict unknown.
pub(super) fn worst_layer(
    facts: &Facts,
    devices: &[String],
    clears: &str,
    rule: impl Fn(&str, Timestamp, &LayerState) -> Option<Option<Degradation>>,
) -> Option<Verdict> {
    let mut worst: Option<Degradation> = None;
    let mut applies = false;
    let mut why = None;
    for (name, layer) in devices.iter().filter_map(|name| facts.layers.get_key_value(name)) {
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
        (Some(worst), _) => worst.raise(clears, None),
        (None, Some(why)) => unknown(why),
        (None, None) => applies.then_some(Verdict::Clear),
    }
}

/// `VG/LV` instead of `dm-3`. Evidence keeps the kernel's name.
pub(super) fn label(facts: &Facts, name: &str) -> String {
    match facts.inventory() {
        Some(inventory) => label::device(inventory, name),
        None => name.to_owned(),
    }
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
    let (kind, used) = match pool.is_vdo {
        true => ("VDO pool", format!("{data_share} of its space are used")),
        false => (
            "thin pool",
            format!("{data_share} of its data and {metadata_share} of its metadata space are used"),
        ),
    };
    let label = label(context.facts, name);
    let (level, message) = if matches!(pool.mode.as_str(), "ro" | "out_of_data_space" | "Fail") {
        let mode = &pool.mode;
        (INACCESSIBLE, format!("{kind} {label} accepts no writes (its mode is `{mode}`): {used}"))
    } else if pool.needs_check {
        (BAD, format!("{kind} {label} needs a check of its metadata (needs_check): {used}"))
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
        (level, format!("{kind} {label} is filling up: {used}{soon}"))
    };
    let proof =
        vec![evidence(WitnessKind::Layer, format!("dm status of {name}"), at, &pool.status_line)];
    Some(Degradation {
        level,
        message,
        advice: thin_advice(&label, pool, data >= metadata),
        clears: None,
        evidence: proof,
    })
}

/// What is full decides which part is to be extended.
fn thin_advice(label: &str, pool: &ThinPool, is_data: bool) -> Option<String> {
    // Pools that LVM did not make have no name of its kind.
    let is_lvm = label.contains('/');
    if pool.is_vdo {
        return Some(match pool.mode.as_str() {
            "ro" => "Save what can be read: VDO is read-only because it lost metadata. Then deactivate it and have it rebuilt (`vdoforcerebuild`, lvmvdo(7)), which may lose data, and check the filesystem on it.".to_owned(),
            _ => {
                let command = match is_lvm {
                    true => format!(" (`lvextend -L +SIZE {label}`)"),
                    false => String::new(),
                };
                format!(
                    "`fstrim` the filesystems on it; overwriting files needs free blocks too. Then give it more space{command}."
                )
            }
        });
    }
    if pool.needs_check || matches!(pool.mode.as_str(), "ro" | "Fail") {
        return is_lvm.then(|| {
            format!(
                "Save what can be read. Stop the pool's users, deactivate its volumes and the pool, then repair its metadata: `lvconvert --repair {label}`. If its metadata is full, extend it: `lvextend --poolmetadatasize +SIZE {label}`."
            )
        });
    }
    let (what, option) = match is_data || pool.mode == "out_of_data_space" {
        true => ("data", "-L +SIZE"),
        false => ("metadata", "--poolmetadatasize +SIZE"),
    };
    // While writes wait for space, a discard may wait too. It frees few blocks of metadata.
    let is_freeing = is_data && pool.mode != "out_of_data_space";
    Some(match is_lvm {
        true if is_freeing => format!(
            "`fstrim` the filesystems on the pool: it frees the blocks that no file uses. If that is not enough, extend the pool's data: `lvextend {option} {label}`, or delete old snapshots."
        ),
        true => format!(
            "Extend the pool's {what}: `lvextend {option} {label}`. If the volume group has no space left: `fstrim` the filesystems on the pool, and delete old snapshots."
        ),
        false => format!(
            "Extend the device of the pool's {what}. Where that is not possible: `fstrim` the filesystems on the pool, and delete old snapshots."
        ),
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
        devices.find(|device| device.dev == dev).map(|device| device.name.clone())
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
        0 => (INACCESSIBLE, format!("multipath device {label} has no working path left of {all}")),
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
    Some(Degradation { level, message, advice: None, clears: None, evidence: proof })
}

#[cfg(test)]
#[test]
fn the_advice_for_a_thin_pool_names_what_is_full() {
    let pool = |mode: &str, needs_check| ThinPool {
        metadata_used: 1,
        metadata_total: 2,
        data_used: 1,
        data_total: 2,
        mode: mode.into(),
        needs_check,
        ..ThinPool::default()
    };
    for (label, mode, needs_check, is_data, text) in [
        ("vg/pool", "rw", false, true, "`lvextend -L +SIZE vg/pool`"),
        ("vg/pool", "rw", false, false, "`lvextend --poolmetadatasize +SIZE vg/pool`"),
        ("vg/pool", "out_of_data_space", false, false, "`lvextend -L +SIZE vg/pool`"),
        ("vg/pool", "rw", true, true, "`lvconvert --repair vg/pool`"),
        ("docker-pool", "rw", false, true, "the device of the pool's data"),
    ] {
        let advice = thin_advice(label, &pool(mode, needs_check), is_data).unwrap();
        assert!(advice.contains(text), "{label} {mode}: {advice}");
    }
    assert_eq!(thin_advice("docker-pool", &pool("Fail", false), true), None);
}
