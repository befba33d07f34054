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
use diskvitals_exposition::families::Families;
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

impl Collector for StateCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let state = &self.0;
        let mut families = Families::new(encoder);
        let help = "Whether this replica leads.";
        gauge(&mut families, "diskvitals_fleet_leader", help, state.leads)?;
        let help = "Whether all watched objects are known and the watches work.";
        let is_synced = state.is_synced && state.is_watching;
        gauge(&mut families, "diskvitals_fleet_synced", help, is_synced)?;
        if let Some(figures) = &state.figures {
            encode_figures(&mut families, figures)?;
        }
        for figures in &state.duties {
            figures.encode(&mut families)?;
        }
        let help = "Writes by duty and outcome.";
        let mut writes = families.counter("diskvitals_fleet_writes", None, help)?;
        for ((duty, outcome), count) in &state.counters.writes {
            writes.count(&[("duty", *duty), ("outcome", *outcome)], *count)?;
        }
        let help = "Calls that the API server did not accept or answer.";
        let mut errors = families.counter("diskvitals_fleet_api_errors", None, help)?;
        errors.unlabeled_count(state.counters.api_errors)
    }
}

fn encode_figures(families: &mut Families<'_>, figures: &Figures) -> fmt::Result {
    let help = "Nodes by the health that they report; unknown: the node does not report.";
    let mut nodes = families.gauge("diskvitals_fleet_nodes", None, help)?;
    for (severity, health) in [(0, "good"), (1, "unknown"), (2, "suspect"), (3, "bad")] {
        let count = figures.nodes_by_health.get(&severity).copied();
        nodes.value(&[("health", health)], count.unwrap_or_default())?;
    }
    let help = "Nodes whose daemon answers and whose report is about them.";
    gauge(families, "diskvitals_fleet_nodes_reporting", help, figures.reporting)?;
    let help = "Objects that are watched.";
    let mut objects = families.gauge("diskvitals_fleet_objects", None, help)?;
    for (kind, count) in [
        ("nodes", figures.nodes),
        ("nodestorages", figures.reports),
        ("persistentvolumes", figures.volumes),
    ] {
        objects.value(&[("resource", kind)], count)?;
    }
    let help = "Drives that several nodes have at the same time.";
    gauge(families, "diskvitals_fleet_shared_drives", help, figures.shared_drives)?;
    let mut models: Vec<_> = figures.models.iter().collect();
    models.sort_by_key(|(_, model)| std::cmp::Reverse((model.bad, model.drives)));
    let (shown, others) = models.split_at(models.len().min(MAX_MODELS));
    let sum = |of: fn(&ModelFigures) -> u64| others.iter().map(|(_, model)| of(model)).sum::<u64>();
    let mut encode = |name, help, of: fn(&ModelFigures) -> u64, other: u64| {
        let mut drives = families.gauge(name, None, help)?;
        for ((model, firmware), figures) in shown {
            let labels = [("model", model.as_str()), ("firmware", firmware.as_str())];
            drives.value(&labels, of(figures))?;
        }
        if other > 0 {
            drives.value(&[("model", "other"), ("firmware", "")], other)?;
        }
        Ok(())
    };
    encode(
        "diskvitals_fleet_drives",
        "Drives by model and firmware, as nodes report them.",
        |model| model.drives,
        sum(|model| model.drives),
    )?;
    encode(
        "diskvitals_fleet_bad_drives",
        "Drives that are bad, missing ones too, by model and firmware; without those under maintenance.",
        |model| model.bad,
        sum(|model| model.bad) + figures.unlisted_bad,
    )
}

/// Of one gauge without labels.
pub(crate) fn gauge(
    families: &mut Families<'_>,
    name: &'static str,
    help: &str,
    value: impl Into<u64>,
) -> fmt::Result {
    let value = i64::try_from(value.into()).unwrap_or(i64::MAX);
    families.gauge(name, None, help)?.unlabeled(value)
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
