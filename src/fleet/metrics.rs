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

use crate::duty::DutyFigures;
use crate::model::figures::{Figures, ModelFigures};
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_exposition::plain_text::plain;

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
    /// None before the first evaluation.
    pub figures: Option<Arc<Figures>>,
    /// Of each duty that has some.
    pub duties: Vec<Arc<dyn DutyFigures>>,
    pub counters: Counters,
}

/// The models with the most bad drives, then with the most drives are shown; the others are one.
const MAX_MODELS: usize = 200;

#[derive(Debug)]
struct StateCollector(Arc<State>);

const REPLICA: [FamilyRow<State>; 2] = families! {
    State:
    Gauge "diskvitals_fleet_leader": "Whether this replica leads." => |it, to| to.value(it.leads);
    Gauge "diskvitals_fleet_synced": "Whether all watched objects are known and the watches work."
        => |it, to| to.value(it.is_synced && it.is_watching);
};

const CALLS: [FamilyRow<Counters>; 2] = families! {
    Counters:
    Counter "diskvitals_fleet_writes": "Writes by duty and outcome."
        => |it, to| it.writes.iter().try_for_each(|((duty, outcome), count)| {
            to.labeled(&[("duty", *duty), ("outcome", *outcome)], *count)
        });
    Counter "diskvitals_fleet_api_errors": "Calls that the API server did not accept or answer."
        => |it, to| to.value(it.api_errors);
};

const NODES: [FamilyRow<Figures>; 4] = families! {
    Figures:
    Gauge "diskvitals_fleet_nodes":
        "Nodes by the health that they report; unknown: the node does not report."
        => nodes_by_health;
    Gauge "diskvitals_fleet_nodes_reporting":
        "Nodes whose daemon answers and whose report is about them."
        => |it, to| to.value(it.reporting);
    Gauge "diskvitals_fleet_objects": "Objects that are watched."
        => |it, to| {
            to.labeled(&[("resource", "nodes")], it.nodes)?;
            to.labeled(&[("resource", "nodestorages")], it.reports)?;
            to.labeled(&[("resource", "persistentvolumes")], it.volumes)
        };
    Gauge "diskvitals_fleet_shared_drives": "Drives that several nodes have at the same time."
        => |it, to| to.value(it.shared_drives);
};

/// Of a model and firmware. None: no sample.
struct ModelRow {
    drives: Option<u64>,
    bad: Option<u64>,
}

const MODELS: [FamilyRow<ModelRow>; 2] = families! {
    ModelRow:
    Gauge "diskvitals_fleet_drives": "Drives by model and firmware, as nodes report them."
        => |it, to| to.value(it.drives);
    Gauge "diskvitals_fleet_bad_drives":
        "Drives that are bad, missing ones too, by model and firmware; without those under maintenance."
        => |it, to| to.value(it.bad);
};

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let state = &*self.0;
        let mut families = Families::new(encoder);
        families.encode(&REPLICA, &[([], state)])?;
        if let Some(figures) = &state.figures {
            families.encode(&NODES, &[([], &**figures)])?;
            encode_models(&mut families, figures)?;
        }
        for figures in &state.duties {
            figures.encode(&mut families)?;
        }
        families.encode(&CALLS, &[([], &state.counters)])
    }
}

fn nodes_by_health(figures: &Figures, to: &mut Samples<'_, '_>) -> fmt::Result {
    for (severity, health) in [(0, "good"), (1, "unknown"), (2, "suspect"), (3, "bad")] {
        let count = figures.nodes_by_health.get(&severity).copied();
        to.labeled(&[("health", health)], count.unwrap_or_default())?;
    }
    Ok(())
}

fn encode_models(families: &mut Families<'_>, figures: &Figures) -> fmt::Result {
    let mut models: Vec<_> = figures.models.iter().collect();
    models.sort_by_key(|(_, model)| std::cmp::Reverse((model.bad, model.drives)));
    let (shown, others) = models.split_at(models.len().min(MAX_MODELS));
    let sum = |of: fn(&ModelFigures) -> u64| others.iter().map(|(_, model)| of(model)).sum::<u64>();
    let rows: Vec<_> = shown
        .iter()
        .map(|(_, it)| ModelRow { drives: Some(it.drives), bad: Some(it.bad) })
        .collect();
    let other = ModelRow {
        drives: Some(sum(|it| it.drives)).filter(|count| *count > 0),
        bad: Some(sum(|it| it.bad) + figures.unlisted_bad).filter(|count| *count > 0),
    };
    let names = shown.iter().map(|((model, firmware), _)| (model.as_str(), firmware.as_str()));
    let subjects: Vec<_> = names
        .chain([("other", "")])
        .zip(rows.iter().chain([&other]))
        .map(|((model, firmware), row)| ([("model", model), ("firmware", firmware)], row))
        .collect();
    families.encode(&MODELS, &subjects)
}

/// In the older text format, which every scraper reads.
pub(crate) fn render(state: &Arc<State>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StateCollector(state.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(plain(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: State) -> String {
        render(&Arc::new(state)).expect("text")
    }

    #[test]
    fn what_is_not_known_yet_has_no_figures() {
        let text = text(State { is_synced: true, is_watching: true, ..State::default() });
        for family in ["nodes", "objects", "drives", "shared_drives", "claims"] {
            assert!(!text.contains(&format!("diskvitals_fleet_{family}")), "{family}: {text}");
        }
        assert!(text.contains("diskvitals_fleet_synced 1"), "{text}");
    }

    #[test]
    fn bad_drives_are_counted_by_model_and_firmware_and_those_that_no_report_lists_as_other() {
        let models = (0..=MAX_MODELS).map(|number| {
            let figures = ModelFigures { drives: 2, bad: u64::from(number == 7) };
            ((format!("M{number:03}"), "F1".to_owned()), figures)
        });
        let text = text(State {
            figures: Some(Arc::new(Figures {
                models: models.collect(),
                unlisted_bad: 5,
                ..Figures::default()
            })),
            ..State::default()
        });
        for line in [
            "diskvitals_fleet_bad_drives{model=\"M007\",firmware=\"F1\"} 1",
            "diskvitals_fleet_bad_drives{model=\"other\",firmware=\"\"} 5",
            "diskvitals_fleet_drives{model=\"other\",firmware=\"\"} 2",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
