//! The numbers that the metrics show. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::duty::DutyFigures;
use crate::model::unreachable::eviction::Waiting;
use crate::unreachable::UnreachableStorage;
use diskvitals_cluster::node_storage::PodEviction;
use diskvitals_exposition::families::Families;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Drivers that some node does not reach, or of which it is silent.
    pub drivers: BTreeMap<String, DriverFigures>,
    /// By outcome.
    pub evictions: BTreeMap<&'static str, u64>,
    /// The eviction that does not end yet.
    pub waiting: Option<(PodEviction, Waiting)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverFigures {
    /// Nodes that do not reach it, for long enough.
    pub unreachable: u64,
    pub is_beyond: bool,
}

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Nodes that have not reached the storage of a CSI driver for five minutes. Drivers that all nodes reach are not listed.";
        let mut nodes = families.gauge("diskvitals_fleet_driver_unreachable_nodes", None, help)?;
        for (driver, of) in &self.drivers {
            nodes.value(&[("driver", driver.as_str())], of.unreachable)?;
        }
        let help =
            "Whether the storage of a CSI driver is away for so many nodes that nothing moves.";
        let mut away = families.gauge("diskvitals_fleet_driver_storage_away", None, help)?;
        for (driver, of) in &self.drivers {
            away.value(&[("driver", driver.as_str())], u64::from(of.is_beyond))?;
        }
        let help = "Evictions of pods from nodes that do not reach their storage, by outcome.";
        let mut evictions = families.counter("diskvitals_fleet_evictions", None, help)?;
        for (outcome, count) in &self.evictions {
            evictions.count(&[("outcome", *outcome)], *count)?;
        }
        let help = "The eviction that has not ended: its pod does not end, or is not replaced.";
        let mut waiting = families.gauge("diskvitals_fleet_eviction_waiting", None, help)?;
        if let Some((eviction, what)) = &self.waiting {
            let labels = [
                ("pod_namespace", eviction.namespace.as_str()),
                ("pod_name", eviction.pod.as_str()),
                ("waits_for", what.name()),
            ];
            waiting.value(&labels, 1_u64)?;
        }
        Ok(())
    }
}

impl UnreachableStorage {
    pub(crate) fn figures(&self) -> Figures {
        let drivers = self.decision.drivers.iter().map(|(driver, state)| {
            let figures = DriverFigures {
                unreachable: state.unreachable.len() as u64,
                is_beyond: state.is_beyond(),
            };
            (driver.clone(), figures)
        });
        Figures {
            drivers: drivers.collect(),
            evictions: self.evictions.clone(),
            waiting: self.wait.as_ref().map(|(eviction, wait)| (eviction.clone(), wait.what)),
        }
    }
}
