//! Families about the daemon itself: version, sources, stuck probes.

use std::fmt;

use crate::metrics::view::{HEALTH_STATES, Node, health};
use diskvitals_exposition::families::{Families, SECONDS};
use diskvitals_host::clock;
use diskvitals_model::cordon;
use diskvitals_model::snapshot::{Snapshot, StoreStatus};
use diskvitals_model::source_update::SourceStatus;
use diskvitals_quota::refusals::SocketRefusals;

pub(super) fn encode(families: &mut Families<'_>, node: &Node, snapshot: &Snapshot) -> fmt::Result {
    let mut family =
        families.gauge("diskvitals_build_info", None, "The daemon that answers: always 1.")?;
    family.value(&[("version", node.version.as_str())], 1)?;
    let mut family =
        families.gauge("diskvitals_node_info", None, "The node that it watches: always 1.")?;
    family.value(&[("node", node.name.as_str()), ("kernel", node.kernel.as_str())], 1)?;
    let mut family = families.gauge(
        "diskvitals_start_time",
        Some(&SECONDS),
        "When the daemon was started, since the epoch.",
    )?;
    family.unlabeled(clock::wall(node.started).as_second())?;
    let state = &snapshot.node;
    let help = "Worst health of drives and volumes; acknowledged findings and drives under maintenance do not count.";
    let mut family = families.gauge("diskvitals_node_health", None, help)?;
    let worst = state.health.map_or("unknown", health);
    family.states(None, "state", &HEALTH_STATES, worst)?;

    let help = "How a source is: active, limited (sees less than it should), down (gives nothing), absent (does not apply here).";
    let mut family = families.gauge("diskvitals_source_state", None, help)?;
    for (source, (status, _)) in &state.sources {
        family.states(
            Some(("source", source.name())),
            "state",
            &["active", "limited", "down", "absent"],
            source_state(status),
        )?;
    }
    let help = "Where history is kept: ok (on disk), memory (lost at a restart), opening.";
    let mut family = families.gauge("diskvitals_store_state", None, help)?;
    let store = match &state.store {
        StoreStatus::Ok => "ok",
        StoreStatus::MemoryOnly(_) => "memory",
        StoreStatus::Opening => "opening",
    };
    family.states(None, "state", &["ok", "memory", "opening"], store)?;

    let help = "How long answers took, those that came late too: of volumes (probe) and of drives (smart).";
    let mut family = families.histogram("diskvitals_probe_duration", Some(&SECONDS), help)?;
    for (source, timing) in &state.timings {
        family.histogram_value(&[("source", source.name())], timing)?;
    }
    let mut family = families.gauge(
        "diskvitals_probe_stuck",
        None,
        "Questions that have not been answered in their time.",
    )?;
    for (source, stuck) in &state.stuck {
        family.value(&[("source", source.name())], u64::from(*stuck))?;
    }
    if let Some(lost) = state.kernel_log_lost {
        let help = "Records of the kernel's log that were overwritten before they could be read, since the boot.";
        families
            .counter("diskvitals_kernel_log_lost_records", None, help)?
            .unlabeled_count(lost)?;
    }
    let help = "1 while the pool takes no new volumes of a kind, because a drive below it is failing without redundancy.";
    let mut family = families.gauge("diskvitals_pool_cordoned", None, help)?;
    for kind in snapshot.node_context.pool.keys() {
        if let Ok(cordon) = cordon::of_pool(snapshot, *kind) {
            family.value(&[("kind", cordon::name(*kind))], u64::from(cordon.is_some()))?;
        }
    }
    let mut family = families.gauge(
        "diskvitals_checks_running",
        None,
        "Filesystem checks that are not over.",
    )?;
    let running = snapshot.checks.values().filter(|check| !check.is_over()).count();
    family.unlabeled(i64::try_from(running).unwrap_or(i64::MAX))
}

/// The socket of users, and that of the agent.
pub(super) fn encode_refusals(
    families: &mut Families<'_>,
    refusals: &SocketRefusals,
) -> fmt::Result {
    let help = "Connections and calls that were refused or ended because their callers had as much as they may have.";
    let mut family = families.counter("diskvitals_refusals", None, help)?;
    for (socket, counts) in [("main", &refusals.main), ("agent", &refusals.agent)] {
        for (cause, count) in counts.by_cause() {
            family.count(&[("socket", socket), ("cause", cause)], count)?;
        }
    }
    Ok(())
}

fn source_state(status: &SourceStatus) -> &'static str {
    match status {
        SourceStatus::Active(_) => "active",
        SourceStatus::Limited(_) => "limited",
        SourceStatus::Down(_) => "down",
        SourceStatus::Absent(_) => "absent",
    }
}
