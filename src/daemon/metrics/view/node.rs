//! Families about the daemon itself: version, sources, stuck probes.

use std::fmt;

use crate::metrics::view::{HEALTH_STATES, SnapshotCollector, health, second};
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_model::cordon;
use diskvitals_model::snapshot::StoreStatus;
use diskvitals_model::source_update::SourceStatus;

const SOURCE_STATES: [&str; 4] = ["active", "limited", "down", "absent"];

const NODE: [FamilyRow<SnapshotCollector>; 8] = families! {
    SnapshotCollector:
    Gauge "diskvitals_build_info": "The daemon that answers: always 1."
        => |it, to| to.info(&[("version", &it.node.version)]);
    Gauge "diskvitals_node_info": "The node that it watches: always 1."
        => |it, to| to.info(&[("node", &it.node.name), ("kernel", &it.node.kernel)]);
    Gauge "diskvitals_start_time" in SECONDS: "When the daemon was started, since the epoch."
        => |it, to| to.value(second(it.node.started));
    Gauge "diskvitals_node_health":
        "Worst health of drives and volumes; acknowledged findings and drives under maintenance do not count."
        => |it, to| to.states("state", &HEALTH_STATES, it.snapshot.node.health.map_or("unknown", health));
    Gauge "diskvitals_source_state":
        "How a source is: active, limited (sees less than it should), down (gives nothing), absent (does not apply here)."
        => |it, to| it.snapshot.node.sources.iter().try_for_each(|(source, (status, _))| {
            let of = ("source", source.name());
            to.states_of(of, "state", &SOURCE_STATES, source_state(status))
        });
    Gauge "diskvitals_store_state":
        "Where history is kept: ok (on disk), memory (lost at a restart), opening."
        => |it, to| to.states("state", &["ok", "memory", "opening"], store_state(&it.snapshot.node.store));
    Histogram "diskvitals_probe_duration" in SECONDS:
        "How long answers took, those that came late too: of volumes (probe) and of drives (smart)."
        => |it, to| it.snapshot.node.timings.iter().try_for_each(|(source, timing)| {
            to.timing(&[("source", source.name())], timing)
        });
    Gauge "diskvitals_probe_stuck": "Questions that have not been answered in their time."
        => |it, to| it.snapshot.node.stuck.iter().try_for_each(|(source, stuck)| {
            to.labeled(&[("source", source.name())], u64::from(*stuck))
        });
};

const KERNEL_LOG: [FamilyRow<SnapshotCollector>; 1] = families! {
    SnapshotCollector:
    Counter "diskvitals_kernel_log_lost_records":
        "Records of the kernel's log that were overwritten before they could be read, since the boot."
        => |it, to| to.value(it.snapshot.node.kernel_log_lost);
};

const WORK: [FamilyRow<SnapshotCollector>; 3] = families! {
    SnapshotCollector:
    Gauge "diskvitals_pool_cordoned":
        "1 while the pool takes no new volumes of a kind, because a drive below it is failing without redundancy."
        => |it, to| it.snapshot.node_context.pool.keys().try_for_each(|kind| {
            let cordon = cordon::of_pool(&it.snapshot, *kind).ok();
            to.labeled(&[("kind", cordon::name(*kind))], cordon.map(|cordon| cordon.is_some()))
        });
    Gauge "diskvitals_checks_running": "Filesystem checks that are not over."
        => |it, to| to.value(it.snapshot.checks.values().filter(|it| !it.is_over()).count() as u64);
    Counter "diskvitals_refusals":
        "Connections and calls that were refused or ended because their callers had as much as they may have."
        => refusals;
};

pub(super) fn encode(families: &mut Families<'_>, of: &SnapshotCollector) -> fmt::Result {
    families.encode(&NODE, &[([], of)])?;
    if of.snapshot.node.kernel_log_lost.is_some() {
        families.encode(&KERNEL_LOG, &[([], of)])?;
    }
    families.encode(&WORK, &[([], of)])
}

/// The socket of users, and that of the agent.
fn refusals(of: &SnapshotCollector, to: &mut Samples<'_, '_>) -> fmt::Result {
    for (socket, counts) in [("main", &of.refusals.main), ("agent", &of.refusals.agent)] {
        for (cause, count) in counts.by_cause() {
            to.labeled(&[("socket", socket), ("cause", cause)], count)?;
        }
    }
    Ok(())
}

fn store_state(store: &StoreStatus) -> &'static str {
    match store {
        StoreStatus::Ok => "ok",
        StoreStatus::MemoryOnly(_) => "memory",
        StoreStatus::Opening => "opening",
    }
}

fn source_state(status: &SourceStatus) -> &'static str {
    match status {
        SourceStatus::Active(_) => "active",
        SourceStatus::Limited(_) => "limited",
        SourceStatus::Down(_) => "down",
        SourceStatus::Absent(_) => "absent",
    }
}
