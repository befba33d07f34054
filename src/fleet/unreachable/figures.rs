//! The numbers that the metrics show. Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::duty::DutyFigures;
use crate::model::unreachable::eviction::Waiting;
use crate::unreachable::UnreachableStorage;
use diskvitals_cluster::node_storage::PodEviction;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};

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

const OF_DRIVER: [FamilyRow<DriverFigures>; 2] = families! {
    DriverFigures:
    Gauge "diskvitals_fleet_driver_unreachable_nodes":
        "Nodes that have not reached the storage of a CSI driver for five minutes. Drivers that all nodes reach are not listed."
        => |it, to| to.value(it.unreachable);
    Gauge "diskvitals_fleet_driver_storage_away":
        "Whether the storage of a CSI driver is away for so many nodes that nothing moves."
        => |it, to| to.value(it.is_beyond);
};

const OF_EVICTIONS: [FamilyRow<Figures>; 2] = families! {
    Figures:
    Counter "diskvitals_fleet_evictions":
        "Evictions of pods from nodes that do not reach their storage, by outcome."
        => |it, to| it.evictions.iter().try_for_each(|(outcome, count)| to.labeled(&[("outcome", *outcome)], *count));
    Gauge "diskvitals_fleet_eviction_waiting":
        "The eviction that has not ended: its pod does not end, or is not replaced."
        => waiting;
};

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let drivers = self.drivers.iter();
        let drivers: Vec<_> = drivers.map(|(name, it)| ([("driver", name.as_str())], it)).collect();
        families.encode(&OF_DRIVER, &drivers)?;
        families.encode(&OF_EVICTIONS, &[([], self)])
    }
}

fn waiting(figures: &Figures, to: &mut Samples<'_, '_>) -> fmt::Result {
    let Some((eviction, what)) = &figures.waiting else {
        return Ok(());
    };
    to.info(&[
        ("pod_namespace", &eviction.namespace),
        ("pod_name", &eviction.pod),
        ("waits_for", what.name()),
    ])
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
