//! Drives that are not good, and drives by model.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::view::Gap;
use crate::view::nodes::{NodeView, Report};
use diskvitals_cluster::node_storage::Health;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DriveRow {
    pub node: String,
    pub health: Health,
    pub enclosure: String,
    pub slot: String,
    pub serial: String,
    pub model: String,
    pub id: String,
    pub name: String,
    pub reason: String,
    pub since: Option<Timestamp>,
    pub acknowledged: bool,
    pub maintenance: bool,
    pub maintenance_until: Option<Timestamp>,
    pub report: Report,
}

impl DriveRow {
    /// Findings that a person has put aside do not count.
    pub(crate) fn is_counted(&self) -> bool {
        !self.acknowledged && !self.maintenance
    }

    pub(crate) fn is_to_replace(&self) -> bool {
        self.health == Health::Bad && self.is_counted() && self.report.is_of_a_node()
    }
}

/// Drives that are not good, worst first; with `all`, the good ones too, of which the id is known.
pub(crate) fn drives(nodes: &[NodeView<'_>], all: bool) -> Vec<DriveRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let Some(status) = node.status else { continue };
        let listed = status.drives.iter().map(|drive| DriveRow {
            node: node.name.to_owned(),
            health: node.report.judge(drive.health),
            enclosure: drive.enclosure.clone(),
            slot: drive.slot.clone(),
            serial: drive.serial.clone(),
            model: drive.model.clone(),
            id: drive.id.clone(),
            name: drive.name.clone(),
            reason: drive.reason.clone(),
            since: drive.since.as_ref().map(|time| time.0),
            acknowledged: drive.acknowledged,
            maintenance: drive.maintenance,
            maintenance_until: drive.maintenance_until.as_ref().map(|time| time.0),
            report: node.report.clone(),
        });
        rows.extend(listed);
        if !all {
            continue;
        }
        // A drive that a cut list does not name may be any.
        let health = match status.truncated.drives {
            true => Health::Unknown,
            false => node.report.judge(Health::Good),
        };
        let unlisted = status.drive_ids.iter().filter(|id| {
            let mut listed = status.drives.iter();
            !listed.any(|drive| drive.id == **id)
        });
        rows.extend(unlisted.map(|id| DriveRow {
            node: node.name.to_owned(),
            health,
            enclosure: String::new(),
            slot: String::new(),
            serial: String::new(),
            model: String::new(),
            id: id.clone(),
            name: String::new(),
            reason: String::new(),
            since: None,
            acknowledged: false,
            maintenance: false,
            maintenance_until: None,
            report: node.report.clone(),
        }));
    }
    rows.sort_by(|a, b| {
        let key = |row: &DriveRow| {
            let severity = std::cmp::Reverse(row.health.severity());
            (!row.report.is_of_a_node(), !row.is_counted(), severity)
        };
        (key(a), &a.node, &a.id).cmp(&(key(b), &b.node, &b.id))
    });
    rows
}

/// Lists of drives that are cut.
pub(crate) fn gaps(nodes: &[NodeView<'_>]) -> Vec<Gap> {
    cut(nodes, "drives", |status| status.truncated.drives)
}

pub(crate) fn cut(
    nodes: &[NodeView<'_>],
    list: &str,
    is_cut: impl Fn(&diskvitals_cluster::node_storage::NodeStorageStatus) -> bool,
) -> Vec<Gap> {
    let cut: Vec<&str> = nodes
        .iter()
        .filter(|node| node.status.is_some_and(&is_cut))
        .map(|node| node.name)
        .collect();
    match cut.is_empty() {
        true => Vec::new(),
        false => vec![Gap::new(
            format!("{list} of {}", some(&cut)),
            "the node's list is cut: there are more (on the node: diskvitals status)".to_owned(),
        )],
    }
}

/// The first names, and how many more.
pub(crate) fn some<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelRow {
    pub model: String,
    /// `?`: the model has several on the node of a drive that is not good.
    pub firmware: String,
    pub kind: String,
    pub drives: u64,
    pub bad: u64,
    pub suspect: u64,
    pub nodes: u64,
}

/// Drives of existing nodes by model and firmware, those with bad drives first.
pub(crate) fn models(nodes: &[NodeView<'_>]) -> Vec<ModelRow> {
    let mut rows: BTreeMap<(String, String), ModelRow> = BTreeMap::new();
    let of_nodes = nodes.iter().filter(|node| node.report.is_of_a_node());
    for status in of_nodes.filter_map(|node| node.status) {
        for model in &status.models {
            let row = entry(&mut rows, &model.model, &model.firmware);
            row.kind.clone_from(&model.kind);
            row.drives += u64::from(model.count);
            row.nodes += 1;
        }
        for drive in &status.drives {
            let mut same = status.models.iter().filter(|it| it.model == drive.model);
            let firmware = match (same.next(), same.next()) {
                (Some(only), None) => &only.firmware,
                _ => "?",
            };
            let row = entry(&mut rows, &drive.model, firmware);
            match drive.health {
                Health::Bad => row.bad += 1,
                Health::Suspect => row.suspect += 1,
                Health::Good | Health::Unknown => {}
            }
        }
    }
    let mut rows: Vec<ModelRow> = rows.into_values().collect();
    rows.retain(|row| row.drives + row.bad + row.suspect > 0);
    rows.sort_by_key(|row| std::cmp::Reverse((row.bad, row.suspect, row.drives)));
    rows
}

fn entry<'a>(
    rows: &'a mut BTreeMap<(String, String), ModelRow>,
    model: &str,
    firmware: &str,
) -> &'a mut ModelRow {
    let key = (model.to_owned(), firmware.to_owned());
    rows.entry(key).or_insert_with(|| ModelRow {
        model: model.to_owned(),
        firmware: firmware.to_owned(),
        ..ModelRow::default()
    })
}
