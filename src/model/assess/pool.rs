//! Rules about ZFS pools.

use jiff::Timestamp;

use crate::assess::input::VolumeInput;
use crate::assess::layers::{Degradation, clear_without_layer, worst_layer};
use crate::assess::text::{INACCESSIBLE, SUSPECT, evidence};
use crate::block::LayerState;
use crate::facts::Facts;
use crate::label;
use crate::stack::{self, PoolState, ZfsPool};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};

/// The reasons that the state of a pool decides.
pub(super) const OF_STATE: [Reason; 3] =
    [Reason::PoolDegraded, Reason::PoolFaulted, Reason::PoolSuspended];

/// The pool is DEGRADED. Source: the module's `state` of the pool. SUSPECT, degraded. Clears when it is
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
            let is_it = reason_of(pool.state) == Some(reason);
            Some(is_it.then(|| degradation(facts, name, at, pool, reason)))
        }
        _ => None,
    })
}

fn reason_of(state: PoolState) -> Option<Reason> {
    match state {
        PoolState::Online => None,
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
    let name = facts.inventory().map_or_else(|| device.to_owned(), |it| label::device(it, device));
    let (state, command) = (pool.state.word(), argument(&name));
    let (level, message, advice) = match reason {
        Reason::PoolDegraded => (
            SUSPECT,
            format!("ZFS pool {name} works without a part of its redundancy (state {state})"),
            format!(
                "`zpool status -v {command}` shows the member that is missing or fails. Bring it back (`zpool online {command} MEMBER`), or replace it (`zpool replace {command} MEMBER NEW`), this week."
            ),
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
    Degradation {
        level,
        message,
        advice: Some(advice),
        clears: None,
        evidence: vec![evidence(WitnessKind::Layer, stack::state_file(device), at, state)],
    }
}

/// The name of a pool as a shell takes it: it may have blanks, and no quotes.
fn argument(name: &str) -> String {
    match name.contains(' ') {
        true => format!("'{name}'"),
        false => name.to_owned(),
    }
}

#[cfg(test)]
#[path = "tests/pool.rs"]
mod tests;
