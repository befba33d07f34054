//! The numbers that the metrics show. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::duty::DutyFigures;
use crate::release::Engine;
use crate::release::action::ActionStateName;
use diskvitals_cluster::gate::Gate;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow};

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

const FAMILIES: [FamilyRow<Figures>; 3] = families! {
    Figures:
    Counter "diskvitals_fleet_gate_refusals": "Decisions that a gate began to hold back."
        => |it, to| it.refusals.iter().try_for_each(|(gate, count)| to.labeled(&[("gate", gate.name())], *count));
    Gauge "diskvitals_fleet_breaker_open":
        "Whether too much failed at once: nothing is proposed until a person resets the breaker."
        => |it, to| to.value(it.is_open);
    Gauge "diskvitals_fleet_paused": "Whether too many nodes are away for proposals."
        => |it, to| to.value(it.is_paused);
};

/// Once the actions are known.
const OF_ACTIONS: [FamilyRow<Figures>; 2] = families! {
    Figures:
    Gauge "diskvitals_fleet_actions": "StorageAction objects by state, as the leader read them last."
        => |it, to| it.actions.iter().flatten().try_for_each(|(state, count)| to.labeled(&[("state", state.name())], *count));
    Gauge "diskvitals_fleet_release_candidates": "Claims on dead drives that no gate of a policy holds back."
        => |it, to| to.value(it.would_act);
};

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families.encode(&FAMILIES, &[([], self)])?;
        match self.actions {
            None => Ok(()),
            Some(_) => families.encode(&OF_ACTIONS, &[([], self)]),
        }
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
