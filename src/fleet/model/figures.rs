//! Numbers about the cluster for the metrics.
//!
//! In: the view. Out: counts of nodes by health, and of drives by model and firmware. A node whose
//! report is not current or not fresh counts as unknown; the drives of a current one count until
//! they are reported otherwise.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{Elapsed, Policy, View};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// By `Health::severity`.
    pub nodes_by_health: BTreeMap<u8, u64>,
    /// Nodes whose report is current and fresh.
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

/// `server`: the API server's time.
pub(crate) fn figures(view: &View, policy: &Policy, now: Elapsed, server: Timestamp) -> Figures {
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
        // A report that is not fresh says nothing good.
        let fresh = view.fresh(name, policy, Some(server));
        let health = fresh.map_or(Health::Unknown, NodeStorageStatus::worst_health);
        *figures.nodes_by_health.entry(health.severity()).or_default() += 1;
        figures.reporting += u64::from(fresh.is_some());
        let Some(status) = current else { continue };
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
