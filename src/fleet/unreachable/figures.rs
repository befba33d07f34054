//! The numbers that the metrics show. Pure.

use std::collections::BTreeMap;

use crate::model::unreachable::eviction::Waiting;
use crate::unreachable::UnreachableStorage;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Drivers that some node does not reach, or of which it is silent.
    pub drivers: BTreeMap<String, DriverFigures>,
    /// By outcome.
    pub evictions: BTreeMap<&'static str, u64>,
    /// The eviction that does not end yet.
    pub waiting: Option<WaitingFigures>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverFigures {
    pub nodes: u64,
    /// Nodes that do not reach it, for long enough.
    pub unreachable: u64,
    pub is_beyond: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFigures {
    pub namespace: String,
    pub pod: String,
    pub what: Waiting,
}

impl UnreachableStorage {
    pub(crate) fn figures(&self) -> Figures {
        let drivers = self.decision.drivers.iter().map(|(driver, state)| {
            let figures = DriverFigures {
                nodes: state.nodes as u64,
                unreachable: state.unreachable.len() as u64,
                is_beyond: state.is_beyond(),
            };
            (driver.clone(), figures)
        });
        let mut evictions: BTreeMap<&'static str, u64> = [("ok", 0), ("refused", 0)].into();
        evictions.extend(self.evictions.iter().map(|(outcome, count)| (*outcome, *count)));
        Figures {
            drivers: drivers.collect(),
            evictions,
            waiting: self.wait.as_ref().map(|(eviction, wait)| WaitingFigures {
                namespace: eviction.namespace.clone(),
                pod: eviction.pod.clone(),
                what: wait.what,
            }),
        }
    }
}
