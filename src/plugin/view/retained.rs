//! Volumes that were kept when their claim went away, on drives that failed, and on nodes that are
//! gone. Nobody deletes them but a person: the disk may still be saved.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::VolumeRecord;
use crate::view::Base;
use crate::view::actions::ActionRow;
use crate::view::fence::{Reach, reach};
use crate::view::nodes::{NodeView, Report};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetainedRow {
    pub volume: String,
    pub reclaim_policy: String,
    /// The claim that had it.
    pub namespace: String,
    pub claim: String,
    pub node: String,
    pub drives: Vec<String>,
    /// What is known of the drives now.
    pub drive_state: String,
    pub since: Option<Timestamp>,
    /// The action that kept it.
    pub action: String,
}

/// Released volumes that an action kept, that a node reports on a drive that is not good, or whose
/// node no longer exists. Others are no matter of failed drives.
pub(crate) fn retained(
    base: &Base,
    nodes: &[NodeView<'_>],
    volumes: &[VolumeRecord],
    actions: &[ActionRow],
) -> Vec<RetainedRow> {
    let mut rows: Vec<RetainedRow> =
        volumes.iter().filter_map(|volume| row(base, nodes, volume, actions)).collect();
    rows.sort_by(|a, b| (&a.node, a.since, &a.volume).cmp(&(&b.node, b.since, &b.volume)));
    rows
}

fn row(
    base: &Base,
    nodes: &[NodeView<'_>],
    volume: &VolumeRecord,
    actions: &[ActionRow],
) -> Option<RetainedRow> {
    let action = actions.iter().find(|it| it.volume == volume.name && it.volume_uid == volume.uid);
    let reach = reach(volume, &base.nodes);
    let pinned = match &reach {
        Reach::One(node) => Some(node.as_str()),
        _ => None,
    };
    let name = pinned.or(action.map(|it| it.node.as_str()));
    let node = name.and_then(|name| nodes.iter().find(|it| it.name == name));
    let status = node.and_then(|it| it.status);
    let ids = drive_ids(volume, status, action);
    let is_on_failed_drive = status.is_some_and(|status| {
        let mut drives = status.drives.iter();
        drives.any(|drive| ids.contains(&drive.id) && drive.health == Health::Bad)
    });
    if action.is_none() && !is_on_failed_drive && reach != Reach::Nobody {
        return None;
    }
    let claim = volume.claim.clone().unwrap_or_default();
    Some(RetainedRow {
        volume: volume.name.clone(),
        reclaim_policy: volume.reclaim_policy.clone(),
        namespace: claim.namespace,
        claim: claim.name,
        node: name.unwrap_or_default().to_owned(),
        drives: ids.iter().map(|id| serial(id, status, action)).collect(),
        drive_state: match reach {
            Reach::Nobody => "its node no longer exists".to_owned(),
            _ => drive_state(node, &ids),
        },
        since: volume.phase_since,
        action: action.map(|it| it.name.clone()).unwrap_or_default(),
    })
}

fn drive_ids(
    volume: &VolumeRecord,
    status: Option<&NodeStorageStatus>,
    action: Option<&ActionRow>,
) -> BTreeSet<String> {
    let entries = status.map(|it| it.volumes.as_slice()).unwrap_or_default();
    let is_of_it = |driver: &str, handle: &str, name: &str| match name {
        "" => !driver.is_empty() && driver == volume.driver && handle == volume.handle,
        name => name == volume.name,
    };
    let listed = entries
        .iter()
        .filter(|it| is_of_it(&it.driver, &it.handle, &it.persistent_volume))
        .flat_map(|it| it.drive_ids.iter().cloned());
    let of_action = action.map(|it| it.drive.id.clone());
    listed.chain(of_action).collect()
}

fn serial(id: &str, status: Option<&NodeStorageStatus>, action: Option<&ActionRow>) -> String {
    let drives = status.map(|it| it.drives.as_slice()).unwrap_or_default();
    let listed = drives.iter().find(|it| it.id == id);
    let of_action = action.filter(|it| it.drive.id == id);
    let serial =
        listed.map(|it| it.serial.as_str()).or(of_action.map(|it| it.drive.serial.as_str()));
    match serial {
        None | Some("") => id.to_owned(),
        Some(serial) => serial.to_owned(),
    }
}

fn drive_state(node: Option<&NodeView<'_>>, ids: &BTreeSet<String>) -> String {
    let Some((node, status)) = node.and_then(|it| Some((it, it.status?))) else {
        return "not known: its node does not report".to_owned();
    };
    if node.report != Report::Current {
        return "not known: its node has no current report".to_owned();
    }
    let listed = status.drives.iter().filter(|it| ids.contains(&it.id));
    let listed: Vec<String> = listed
        .map(|drive| match drive.health {
            Health::Bad => format!("BAD ({})", drive.reason),
            Health::Suspect => format!("SUSPECT ({})", drive.reason),
            Health::Good => "good".to_owned(),
            Health::Unknown => "unknown".to_owned(),
        })
        .collect();
    match () {
        () if !listed.is_empty() => listed.join(", "),
        () if ids.is_empty() => "not known: nothing says on which drive it is".to_owned(),
        () if status.truncated.drives => "not known: the node's list of drives is cut".to_owned(),
        () if ids.iter().any(|id| status.drive_ids.contains(id)) => {
            "good now: look at the volume before you delete it".to_owned()
        }
        () => "gone from the node".to_owned(),
    }
}
