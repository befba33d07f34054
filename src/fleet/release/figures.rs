//! The numbers that the metrics show. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::duty::DutyFigures;
use crate::metrics::gauge;
use crate::release::Engine;
use crate::release::action::ActionStateName;
use diskvitals_cluster::gate::Gate;
use diskvitals_exposition::families::Families;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Decisions that a gate began to hold back, by gate: all gates from the start.
    pub refusals: BTreeMap<Gate, u64>,
    /// None: the actions are not known; a standby does not read them.
    pub actions: Option<BTreeMap<ActionStateName, u64>>,
    /// Claims that no gate holds back.
    pub would_act: u64,
    pub is_open: bool,
    pub is_paused: bool,
}

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Decisions that a gate began to hold back.";
        let mut refusals = families.counter("diskvitals_fleet_gate_refusals", None, help)?;
        for (gate, count) in &self.refusals {
            refusals.count(&[("gate", gate.name())], *count)?;
        }
        let help = "Whether too much failed at once: nothing is proposed until a person resets the breaker.";
        gauge(families, "diskvitals_fleet_breaker_open", help, self.is_open)?;
        let help = "Whether too many nodes are away for proposals.";
        gauge(families, "diskvitals_fleet_paused", help, self.is_paused)?;
        let Some(actions) = &self.actions else {
            return Ok(());
        };
        let help = "StorageAction objects by state, as the leader read them last.";
        let mut states = families.gauge("diskvitals_fleet_actions", None, help)?;
        for (state, count) in actions {
            states.value(&[("state", state.name())], *count)?;
        }
        let help = "Claims on dead drives that no gate of a policy holds back.";
        gauge(families, "diskvitals_fleet_release_candidates", help, self.would_act)
    }
}

impl Engine {
    pub(crate) fn figures(&self) -> Figures {
        let actions = self.actions.as_ref().ok().map(|actions| {
            let mut states: BTreeMap<ActionStateName, u64> =
                ActionStateName::ALL.map(|state| (state, 0)).into();
            for action in actions {
                *states.entry(action.state()).or_default() += 1;
            }
            states
        });
        let free = self
            .decisions
            .iter()
            .filter(|(_, decision)| decision.read_at.is_some() && decision.refusals.is_empty());
        let claims: std::collections::BTreeSet<&String> =
            free.map(|(key, _)| &key.claim_uid).collect();
        let breaker = self.breaker.state();
        Figures {
            refusals: self.counts.clone(),
            actions,
            would_act: claims.len() as u64,
            is_open: breaker.open.is_some(),
            is_paused: breaker.pause.is_some(),
        }
    }
}
