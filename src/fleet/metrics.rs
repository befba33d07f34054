//! The controller's metrics. Pure.
//!
//! In: the owner's state. Out: text in Prometheus' formats.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::metrics::plain_text::plain;
use crate::metrics::view::families::Families;
use crate::metrics::view::label;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub api_errors: u64,
    /// By duty and outcome.
    pub writes: BTreeMap<(&'static str, &'static str), u64>,
}

impl Counters {
    pub(crate) fn count(&mut self, duty: &'static str, outcome: &'static str) {
        *self.writes.entry((duty, outcome)).or_default() += 1;
    }
}

/// What the owner shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// When the owner's loop last ran.
    pub at: Option<Instant>,
    pub leads: bool,
    pub is_synced: bool,
    pub is_watching: bool,
    /// By `Health::severity`.
    pub nodes_by_health: BTreeMap<u8, u64>,
    pub reporting: u64,
    pub nodes: u64,
    pub reports: u64,
    pub volumes: u64,
    pub shared_drives: u64,
    pub claims_written: u64,
    pub claims_waiting: u64,
    pub is_supported: Option<bool>,
    /// Number of drives by model and firmware.
    pub models: BTreeMap<(String, String), u64>,
    pub counters: Counters,
}

/// The models with the most drives are shown; the others are one.
const MAX_MODELS: usize = 200;

#[derive(Debug)]
struct StateCollector(Arc<State>);

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let state = &self.0;
        let mut families = Families::new(encoder);
        families
            .gauge(
                "diskvitals_fleet_leader",
                None,
                "Whether this replica leads.",
            )?
            .unlabeled(state.leads.into())?;
        families
            .gauge(
                "diskvitals_fleet_synced",
                None,
                "Whether all watched objects are known and the watches work.",
            )?
            .unlabeled((state.is_synced && state.is_watching).into())?;
        if state.is_synced {
            let mut nodes = families.gauge(
                "diskvitals_fleet_nodes",
                None,
                "Nodes by the health that they report; unknown: the node does not report.",
            )?;
            for (severity, health) in [(0, "good"), (1, "unknown"), (2, "suspect"), (3, "bad")] {
                let count = state.nodes_by_health.get(&severity).copied();
                nodes.value(&[("health", health)], count.unwrap_or_default())?;
            }
            families
                .gauge(
                    "diskvitals_fleet_nodes_reporting",
                    None,
                    "Nodes whose daemon answers and whose report is about them.",
                )?
                .unlabeled(signed(state.reporting))?;
            let mut objects = families.gauge(
                "diskvitals_fleet_objects",
                None,
                "Objects that are watched.",
            )?;
            for (kind, count) in [
                ("nodes", state.nodes),
                ("nodestorages", state.reports),
                ("persistentvolumes", state.volumes),
            ] {
                objects.value(&[("resource", kind)], count)?;
            }
            families
                .gauge(
                    "diskvitals_fleet_shared_drives",
                    None,
                    "Drives that several nodes have at the same time.",
                )?
                .unlabeled(signed(state.shared_drives))?;
            let mut drives = families.gauge(
                "diskvitals_fleet_drives",
                None,
                "Drives by model and firmware, as nodes report them.",
            )?;
            let mut other = 0;
            let mut models: Vec<_> = state.models.iter().collect();
            models.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (at, ((model, firmware), count)) in models.into_iter().enumerate() {
                if at < MAX_MODELS {
                    drives.value(
                        &[("model", label(model)), ("firmware", label(firmware))],
                        *count,
                    )?;
                } else {
                    other += *count;
                }
            }
            if other > 0 {
                drives.value(&[("model", "other"), ("firmware", "")], other)?;
            }
        }
        families
            .gauge(
                "diskvitals_fleet_claims",
                None,
                "Claims with health that this replica has written.",
            )?
            .unlabeled(signed(state.claims_written))?;
        families
            .gauge(
                "diskvitals_fleet_claims_waiting",
                None,
                "Claims whose health is still to be written.",
            )?
            .unlabeled(signed(state.claims_waiting))?;
        if let Some(supported) = state.is_supported {
            families
                .gauge(
                    "diskvitals_fleet_claim_health_supported",
                    None,
                    "Whether the API server keeps the health of claims.",
                )?
                .unlabeled(supported.into())?;
        }
        let mut writes = families.counter(
            "diskvitals_fleet_writes",
            None,
            "Writes by duty and outcome.",
        )?;
        for ((duty, outcome), count) in &state.counters.writes {
            writes.count(&[("duty", *duty), ("outcome", *outcome)], *count)?;
        }
        families
            .counter(
                "diskvitals_fleet_api_errors",
                None,
                "Calls that the API server did not accept or answer.",
            )?
            .unlabeled_count(state.counters.api_errors)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// In the older text format, which every scraper reads.
pub(crate) fn render(state: &Arc<State>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StateCollector(state.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(plain(&text))
}
