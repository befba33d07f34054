//! Rules about ZFS pools.

use jiff::Timestamp;

use crate::assess::input::{Context, DriveInput, VolumeInput};
use crate::assess::layers::{Degradation, clear_without_layer, worst_layer};
use crate::assess::text::{
    DATA_LOSS, INACCESSIBLE, SUSPECT, drive_name, evidence, raised, unknown,
};
use crate::block::LayerState;
use crate::counters::CounterHistory;
use crate::facts::Facts;
use crate::facts::pool_members::series_of;
use crate::label;
use crate::stack::{self, Place, PoolState, PoolStatus, ScanState, Vdev, ZfsPool};
use crate::volume::VolumeFacts;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};

/// The reasons that the state of a pool decides.
pub(super) const OF_STATE: [Reason; 3] =
    [Reason::PoolDegraded, Reason::PoolFaulted, Reason::PoolSuspended];

/// The pool is DEGRADED, or a spare is in use or a member is not ONLINE in one that is ONLINE. Sources: the
/// module's `state` of the pool, `zpool status`. SUSPECT, degraded. Clears when the pool and its members are
/// ONLINE, or when PoolFaulted or PoolSuspended takes over.
pub(crate) fn degraded(input: &VolumeInput) -> Option<Verdict> {
    of_volume(input, Reason::PoolDegraded)
}

/// The pool is neither ONLINE nor DEGRADED nor suspended. Source: the module's `state` of the pool. BAD,
/// inaccessible. Clears with any other state, and when the pool is exported.
pub(crate) fn faulted(input: &VolumeInput) -> Option<Verdict> {
    of_volume(input, Reason::PoolFaulted)
}

/// The pool is SUSPENDED: I/O to it failed as a whole (failmode `wait` or `continue`), or its other
/// import went on (multihost). Source: the module's `state` of the pool. BAD, inaccessible. Clears with
/// any other state, and when the pool is exported.
pub(crate) fn suspended(input: &VolumeInput) -> Option<Verdict> {
    of_volume(input, Reason::PoolSuspended)
}

fn of_volume(input: &VolumeInput, reason: Reason) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    of_devices(facts, &volume.devices, reason).or_else(|| clear_without_layer(facts, volume))
}

pub(super) fn of_devices(facts: &Facts, devices: &[String], reason: Reason) -> Option<Verdict> {
    worst_layer(facts, devices, clears(reason), |name, at, state| match state {
        LayerState::Zfs(pool) => {
            let is_it = reason_of(pool) == Some(reason);
            Some(is_it.then(|| degradation(facts, name, at, pool, reason)))
        }
        _ => None,
    })
}

/// The module has shown the state of a pool below the volume since then.
pub(super) fn is_read_since(facts: &Facts, volume: &VolumeFacts, since: Timestamp) -> bool {
    let mut layers = volume.devices.iter().filter_map(|name| facts.layers.get(name));
    layers.any(|layer| match layer.state.observation() {
        Observation::Ok { at, value: LayerState::Zfs(_) } => *at > since,
        _ => false,
    })
}

fn reason_of(pool: &ZfsPool) -> Option<Reason> {
    let is_short = |status: &PoolStatus| {
        status.lacking().next().is_some() || status.spares_in_use().next().is_some()
    };
    match pool.state {
        PoolState::Online => {
            pool.status.as_ref().filter(|it| is_short(it)).map(|_| Reason::PoolDegraded)
        }
        PoolState::Degraded => Some(Reason::PoolDegraded),
        PoolState::Suspended => Some(Reason::PoolSuspended),
        PoolState::Faulted
        | PoolState::Unavail
        | PoolState::Offline
        | PoolState::Removed
        | PoolState::Split => Some(Reason::PoolFaulted),
    }
}

fn clears(reason: Reason) -> &'static str {
    match reason {
        Reason::PoolDegraded => "every member of the pool that holds data works again",
        _ => "the pool works again, or is exported",
    }
}

fn degradation(
    facts: &Facts,
    device: &str,
    at: Timestamp,
    pool: &ZfsPool,
    reason: Reason,
) -> Degradation {
    let name = label_of(facts, device);
    let (state, command) = (pool.state.word(), argument(&name));
    let (level, message, advice) = match reason {
        Reason::PoolDegraded => (
            SUSPECT,
            format!(
                "ZFS pool {name} works without a part of its redundancy (state {state}){}",
                shortfall(facts, pool)
            ),
            bring_back(facts, pool, &command),
        ),
        Reason::PoolSuspended => (
            INACCESSIBLE,
            format!(
                "ZFS pool {name} is suspended: too many of its members do not answer, and all that reads or writes waits"
            ),
            format!(
                "Bring its members back (power, cables, adapter), then run `zpool clear {command}`. Until then start no other `zpool` or `zfs` command: it may hang, and then hangs for every pool."
            ),
        ),
        _ => (
            INACCESSIBLE,
            format!("ZFS pool {name} does not work (state {state})"),
            format!(
                "Find out why members are missing (`zpool status -v {command}`; power, cables, adapter) and bring them back, then `zpool clear {command}`. Do not create the pool again, and write to none of its members."
            ),
        ),
    };
    let mut proof = vec![evidence(WitnessKind::Layer, stack::state_file(device), at, state)];
    if let (Some(status), Some(read)) = (&pool.status, pool.status_at) {
        let rows = status.lacking().map(|(_, member)| member).chain(status.spares_in_use());
        proof.extend(rows.take(MAX_ROWS).map(|member| {
            evidence(WitnessKind::Layer, format!("zpool status {name}"), read, member.row())
        }));
    }
    Degradation { level, message, advice: Some(advice), clears: None, evidence: proof }
}

/// What to do about the member that is missing or fails, by the name that `zpool` takes.
fn bring_back(facts: &Facts, pool: &ZfsPool, command: &str) -> String {
    let lacking: Vec<&Vdev> =
        pool.status.iter().flat_map(|it| it.lacking()).map(|it| it.1).collect();
    let (find, who, name) = match lacking.as_slice() {
        [member] => {
            let former = member.note.strip_prefix("was ").and_then(|path| path.rsplit('/').next());
            let shown = member_name(facts, member);
            let who = former.filter(|_| shown == member.name).map_or(shown, str::to_owned);
            (String::new(), who, argument(&member.name))
        }
        _ => (
            format!("`zpool status -v {command}` shows the member that is missing or fails. "),
            "it".to_owned(),
            "MEMBER".to_owned(),
        ),
    };
    format!(
        "{find}Bring {who} back (`zpool online {command} {name}`), or replace it (`zpool replace {command} {name} NEW`), this week."
    )
}

/// More rows of members prove no more.
const MAX_ROWS: usize = 8;

/// `: sdc in raidz2-0 is FAULTED (too many errors); 1 more may fail; a resilver runs`.
fn shortfall(facts: &Facts, pool: &ZfsPool) -> String {
    let Some(status) = &pool.status else {
        return String::new();
    };
    let members = status.lacking().map(|(top, member)| {
        let place = match top.children.is_empty() {
            true => String::new(),
            false => format!(" in {}", top.name),
        };
        let note = match member.note.as_str() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        let state = member.state.map_or("", |it| it.word());
        format!("{}{place} is {state}{note}", member_name(facts, member))
    });
    let spares = status.spares_in_use();
    let spares = spares.map(|spare| format!("spare {} is in use", member_name(facts, spare)));
    let mut parts: Vec<String> = members.chain(spares).collect();
    if parts.len() > MAX_ROWS {
        let more = parts.len() - MAX_ROWS;
        parts.truncate(MAX_ROWS);
        parts.push(format!("{more} more"));
    }
    parts.push(match status.tolerates() {
        None => "a part of its data has no redundancy".to_owned(),
        Some(0) => "no redundancy left: the next failure may lose it".to_owned(),
        Some(more) => format!("{more} more may fail"),
    });
    if let Some(scan) = status.scan.as_ref().filter(|scan| scan.state == ScanState::Running) {
        parts.push(if scan.is_resilver { "a resilver runs" } else { "a scrub runs" }.to_owned());
    }
    format!(": {}", parts.join("; "))
}

/// The drive, or what the tool calls it.
fn member_name(facts: &Facts, member: &Vdev) -> String {
    let device = facts.inventory().and_then(|inventory| member.device(inventory));
    let place = Place { facts, name: "", volume: None };
    let drive =
        device.and_then(|it| place.drive_names(std::slice::from_ref(&it.name)).into_iter().next());
    drive.unwrap_or_else(|| member.name.clone())
}

/// ZFS has counted errors of the drive as a member of a pool. Source: `zpool status`. SUSPECT: redundancy
/// repairs them, and cable, adapter and memory make them too. Clears when the counts are zero and none has
/// grown for `quiet_after`: an import sets them to zero as `zpool clear` does.
pub(crate) fn member_errors(input: &DriveInput) -> Option<Verdict> {
    let (Context { facts, policy, now }, known) = (input.context, input.known);
    let id = &known.facts.id;
    if known.missing_since.is_some() {
        // Reported by DriveMissing.
        return Some(Verdict::Clear);
    }
    let inventory = facts.inventory()?;
    let quiet_since = now.saturating_sub(policy.errors.quiet_after).unwrap_or(now);
    let counts: Vec<(&str, &CounterHistory)> = facts
        .pool_member_counts(id)
        .filter(|(_, history)| Facts::has_counted(history, quiet_since))
        .collect();
    let (mut found, mut proof) = (Vec::new(), Vec::new());
    for (device, layer) in &facts.layers {
        let Some(LayerState::Zfs(pool)) = layer.state.last_known() else {
            continue;
        };
        let (Some(status), Some(read)) = (&pool.status, pool.status_at) else {
            if inventory.drives_below(device).contains(id) {
                return unknown(format!("members of {} are not known", label_of(facts, device)));
            }
            continue;
        };
        for (top, member) in status.members().filter(|_| !counts.is_empty()) {
            let series = series_of(device, member);
            if counts.iter().any(|(name, _)| *name == series) {
                let pool = label_of(facts, device);
                found.push(counted(&pool, top, member));
                let source = format!("zpool status {pool}");
                proof.push(evidence(WitnessKind::Layer, source, read, member.row()));
            }
        }
    }
    if found.is_empty() {
        return Some(Verdict::Clear);
    }
    let message = format!("{}: {}", drive_name(known), found.join("; "));
    let clears =
        "the counts are zero (`zpool clear`) and none has grown for `[errors] quiet_after`";
    raised(SUSPECT, message, proof, clears, None)
}

/// `ZFS pool tank has counted 0 read, 0 write and 12 checksum errors of it in mirror-0`.
fn counted(pool: &str, top: &Vdev, member: &Vdev) -> String {
    let Vdev { read_errors, write_errors, checksum_errors, .. } = member;
    let place = match top.children.is_empty() {
        true => String::new(),
        false => format!(" in {}", top.name),
    };
    let all = top.leaves();
    let least = all.iter().map(|it| it.checksum_errors).min().unwrap_or(0);
    let most = all.iter().map(|it| it.checksum_errors).max().unwrap_or(0);
    let is_shared = all.len() > 1 && least > 0 && most <= least.saturating_mul(2);
    match [*read_errors, *write_errors, *checksum_errors] {
        [0, 0, 0] => {
            format!("ZFS pool {pool} had counted errors of it{place}, and counts from zero again")
        }
        _ if is_shared => format!(
            "ZFS pool {pool} has counted {checksum_errors} checksum errors of it{place}, and about as many of every other member there: look at memory, adapter and cables first"
        ),
        _ => format!(
            "ZFS pool {pool} has counted {read_errors} read, {write_errors} write and {checksum_errors} checksum errors of it{place}"
        ),
    }
}

/// `zpool status` counts blocks that no copy could repair (`errors:`). BAD, data loss. Clears when it counts
/// none: they are gone when the files are replaced, or deleted, and two scrubs have read the rest.
pub(crate) fn data_errors(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    lost_data(facts, &volume.devices).or_else(|| clear_without_layer(facts, volume))
}

pub(super) fn lost_data(facts: &Facts, devices: &[String]) -> Option<Verdict> {
    let unread =
        devices.iter().find_map(|name| match facts.layers.get(name)?.state.last_known()? {
            LayerState::Zfs(pool) if pool.status.is_none() => Some((name, &pool.status_error)),
            _ => None,
        });
    if let Some((name, error)) = unread {
        let why = error.as_deref().unwrap_or("`zpool status` has not answered yet");
        return unknown(format!("members of {}: {why}", label_of(facts, name)));
    }
    let clears = "`zpool status` counts no data error in the pool";
    worst_layer(facts, devices, clears, |name, _, state| match state {
        LayerState::Zfs(pool) => {
            let status = pool.status.as_ref()?;
            let read = pool.status_at.unwrap_or_default();
            Some((status.data_errors > 0).then(|| {
                let pool = label_of(facts, name);
                let (count, command) = (status.data_errors, argument(&pool));
                let source = format!("zpool status {pool}");
                Degradation {
                    level: DATA_LOSS,
                    message: format!(
                        "ZFS pool {pool} has {count} data errors that no copy could repair"
                    ),
                    advice: Some(format!(
                        "List the files with `zpool status -v {command}`, and restore them from a backup; find out what damaged them (drive, memory, cable). Then scrub twice: `zpool scrub {command}`."
                    )),
                    clears: None,
                    evidence: vec![evidence(
                        WitnessKind::Layer,
                        source,
                        read,
                        format!("errors: {count} data errors"),
                    )],
                }
            }))
        }
        _ => None,
    })
}

fn label_of(facts: &Facts, device: &str) -> String {
    facts.inventory().map_or_else(|| device.to_owned(), |it| label::device(it, device))
}

/// The name of a pool as a shell takes it: it may have blanks, and no quotes.
pub(super) fn argument(name: &str) -> String {
    match name.contains(' ') {
        true => format!("'{name}'"),
        false => name.to_owned(),
    }
}
