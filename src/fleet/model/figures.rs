//! Numbers about the cluster for the metrics.
//!
//! In: the view. Out: counts of nodes by health, and of drives by model and firmware. A node whose
//! report is not current counts as unknown, and its drives do not count.

use std::collections::BTreeMap;

use crate::cluster::node_storage::Health;
use crate::fleet::model::{Elapsed, Policy, View};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// By `Health::severity`.
    pub nodes_by_health: BTreeMap<u8, u64>,
    /// Nodes whose report is current.
    pub reporting: u64,
    pub nodes: u64,
    pub reports: u64,
    pub volumes: u64,
    pub shared_drives: u64,
    /// By model and firmware.
    pub models: BTreeMap<(String, String), ModelFigures>,
    /// Bad drives that no report lists, because its list was cut.
    pub unlisted_bad: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelFigures {
    pub drives: u64,
    /// Bad drives, without those under maintenance; a missing drive is one of them.
    pub bad: u64,
}

pub(crate) fn figures(view: &View, policy: &Policy, now: Elapsed) -> Figures {
    let mut figures = Figures {
        nodes: view.nodes.len() as u64,
        reports: view.reports.len() as u64,
        volumes: view.volumes.len() as u64,
        shared_drives: view.shared_drives(policy, now).len() as u64,
        ..Figures::default()
    };
    for (name, node) in &view.nodes {
        let report = view.reports.get(name);
        let current = report.and_then(|report| report.current(node));
        let health = current.map_or(Health::Unknown, |status| status.health);
        *figures
            .nodes_by_health
            .entry(health.severity())
            .or_default() += 1;
        let Some(status) = current else { continue };
        figures.reporting += 1;
        for model in &status.models {
            let key = (model.model.clone(), model.firmware.clone());
            figures.models.entry(key).or_default().drives += u64::from(model.count);
        }
        let bad = || {
            let drives = status.drives.iter();
            drives.filter(|drive| drive.health == Health::Bad)
        };
        for drive in bad().filter(|drive| !drive.maintenance) {
            let key = (drive.model.clone(), drive.firmware.clone());
            figures.models.entry(key).or_default().bad += 1;
        }
        if status.truncated.drives {
            let listed = bad().count() as u64;
            figures.unlisted_bad += u64::from(status.counts.bad).saturating_sub(listed);
        }
    }
    figures
}
