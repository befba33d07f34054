//! Maintenance: things of which a person has said that their findings are expected for a time. Pure.
//!
//! In: orders of people, the configuration, a snapshot. Out: the findings that they explain: those
//! about these things, and what follows from their absence alone. They are shown and do not count.
//! Lost data, a volume that its users cannot reach and the failure of anything else count as always.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cause::{Grouping, Origin};
use crate::drive::DriveFacts;
use crate::facts::Facts;
use crate::label;
use crate::policy::Policy;
use crate::snapshot::{Drive, Presence, Snapshot, Volume};
use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Status, Subject};
use diskvitals_text::duration::elapsed;

/// What is under maintenance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaintenanceTarget {
    /// All of it.
    Node,
    /// All drives in it, also those that are pulled from it. As `Location::enclosure`.
    Enclosure(String),
    Subject(Subject),
}

/// Ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceOrder {
    /// `uid 0 (root)`.
    pub by: String,
    pub note: String,
    pub since: Timestamp,
    /// No time: stored times are never later than now (`timeline::Rebase`).
    pub seconds: u64,
}

impl MaintenanceOrder {
    pub fn until(&self) -> Timestamp {
        self.since.checked_add(Duration::from_secs(self.seconds)).unwrap_or(Timestamp::MAX)
    }
}

pub type MaintenanceOrders = BTreeMap<MaintenanceTarget, Arc<MaintenanceOrder>>;

/// Takes the orders out that have ended.
pub fn take_ended(orders: &mut Arc<MaintenanceOrders>, now: Timestamp) -> MaintenanceOrders {
    let is_over = |it: &MaintenanceOrder| elapsed(it.since, now) >= Duration::from_secs(it.seconds);
    if !orders.values().any(|it| is_over(it)) {
        return MaintenanceOrders::new();
    }
    Arc::make_mut(orders).extract_if(.., |_, it| is_over(it)).collect()
}

/// As people call it.
pub fn name(snapshot: &Snapshot, target: &MaintenanceTarget) -> String {
    match target {
        MaintenanceTarget::Node => "this node".to_owned(),
        MaintenanceTarget::Enclosure(id) => format!("enclosure {id}"),
        MaintenanceTarget::Subject(subject) => label::subject(snapshot, subject),
    }
}

/// The order that covers a drive; of several the one that ends last.
pub(crate) fn order_of<'a>(
    orders: &'a MaintenanceOrders,
    drive: &DriveFacts,
) -> Option<&'a Arc<MaintenanceOrder>> {
    let covers = |target: &MaintenanceTarget| match target {
        MaintenanceTarget::Node => true,
        MaintenanceTarget::Enclosure(id) => drive.location.enclosure.as_ref() == Some(id),
        MaintenanceTarget::Subject(subject) => *subject == Subject::Drive(drive.id.clone()),
    };
    let covering = orders.iter().filter(|(target, _)| covers(target));
    covering.map(|(_, order)| order).max_by_key(|order| order.until())
}

/// Without an end: `[drives] maintenance`.
pub(crate) fn is_configured(policy: &Policy, drive: &DriveFacts) -> bool {
    policy.maintenance.iter().any(|name| {
        *name == drive.id.as_str()
            || *name == drive.name
            || drive.devices.iter().any(|device| device.name == *name)
    })
}

/// The active findings that maintenance explains.
pub(crate) fn explained(snapshot: &Snapshot, facts: &Facts, now: Timestamp) -> BTreeSet<FindingId> {
    if snapshot.maintenance.is_empty() && !snapshot.drives.values().any(|it| it.maintenance) {
        return BTreeSet::new();
    }
    let rules = Rules { snapshot, grouping: Grouping { snapshot, facts, now } };
    let findings = snapshot.findings.values().map(Arc::as_ref);
    let explained = findings.filter(|it| may_be_explained(it) && rules.explain(it));
    explained.map(|finding| finding.id.clone()).collect()
}

/// Lost data, and a volume that its users cannot reach, are never what a person has expected.
fn may_be_explained(finding: &Finding) -> bool {
    match (&finding.subject, finding.status) {
        (_, Status::DataLoss) | (Subject::Volume(_), Status::Inaccessible) => false,
        (_, Status::Information | Status::Degraded | Status::Inaccessible) => true,
    }
}

struct Rules<'a> {
    snapshot: &'a Snapshot,
    grouping: Grouping<'a>,
}

impl Rules<'_> {
    fn explain(&self, finding: &Finding) -> bool {
        let orders = &self.snapshot.maintenance;
        if orders.contains_key(&MaintenanceTarget::Node) || self.is_ordered(&finding.subject) {
            return true;
        }
        let (origins, is_consequence) = self.grouping.origins(finding);
        let volume = match &finding.subject {
            Subject::Drive(id) => return self.is_maintained(id),
            Subject::Source(_) => return false,
            Subject::Device(_) => None,
            Subject::Volume(id) => self.snapshot.volumes.get(id),
        };
        let layers = match volume {
            Some(volume) => self.grouping.layer_origins(volume, finding.reason),
            None if finding.reason.layer().is_some() => origins,
            None => return false,
        };
        if layers.is_empty() {
            return volume.is_some_and(|volume| match self.grouping.failing_drives(volume) {
                failing if failing.is_empty() => self.are_followers_explained(finding),
                failing => is_consequence && self.is_of_maintained(&failing),
            });
        }
        layers.iter().all(|layer| {
            let device = layer.device().map(|name| Subject::Device(name.to_owned()));
            device.is_some_and(|it| self.is_ordered(&it))
                || finding.reason.follows_drive() && self.lacks_only_maintained(layer, finding)
        })
    }

    fn is_ordered(&self, subject: &Subject) -> bool {
        let target = MaintenanceTarget::Subject(subject.clone());
        self.snapshot.maintenance.contains_key(&target)
    }

    fn is_maintained(&self, drive: &DriveId) -> bool {
        self.snapshot.drives.get(drive).is_some_and(|it| it.maintenance)
    }

    /// Of the failing drives at least one is under maintenance, and the others, if any, are
    /// acknowledged.
    fn is_of_maintained(&self, failing: &[(Severity, &DriveId)]) -> bool {
        let (ours, others): (Vec<&DriveId>, Vec<&DriveId>) =
            failing.iter().map(|(_, id)| *id).partition(|id| self.is_maintained(id));
        let is_set_aside =
            |id: &DriveId| self.grouping.own_findings(id).all(|it| it.acknowledged.is_some());
        !ours.is_empty() && others.into_iter().all(is_set_aside)
    }

    /// The drives are good again, and what followed from them is left.
    fn are_followers_explained(&self, finding: &Finding) -> bool {
        let findings = self.snapshot.findings.values();
        let followers = findings.filter(|it| it.follows.as_ref() == Some(&finding.id));
        let mut followers = followers.peekable();
        followers.peek().is_some() && followers.all(|it| may_be_explained(it) && self.explain(it))
    }

    /// Each member without current data is on a drive under maintenance: it is being filled there, or
    /// the drive is not in the array.
    fn lacks_only_maintained(&self, layer: &Origin, finding: &Finding) -> bool {
        let Some(stack) = self.grouping.stack_of(layer) else { return false };
        let Some(lacking) = stack.lacking().filter(|count| *count > 0) else { return false };
        let inventory = &self.snapshot.inventory;
        let below = |devices: &[String]| -> BTreeSet<&DriveId> {
            devices.iter().flat_map(|name| inventory.drives_below(name)).collect()
        };
        let slots = stack.array();
        let slots = slots.iter().flat_map(|array| array.members());
        let filling: Vec<_> = slots.filter(|it| !it.in_sync).map(|it| below(&it.filling)).collect();
        let returned = filling
            .iter()
            .filter(|drives| !drives.is_empty() && drives.iter().all(|id| self.is_maintained(id)));
        let current = below(&stack.members(inventory, layer.device().unwrap_or_default()));
        let volumes = self.volumes_of(layer, finding);
        let is_away = |id: &DriveId, drive: &Drive| {
            drive.maintenance
                && !current.contains(id)
                && !filling.iter().any(|drives| drives.contains(id))
                && drive.volumes.iter().any(|it| volumes.contains(it))
                && (drive.presence != Presence::Present
                    || self.grouping.own_findings(id).any(|it| it.reason.leaves_array()))
        };
        let away = self.snapshot.drives.iter().filter(|(id, drive)| is_away(id, drive));
        returned.count() + away.count() >= lacking
    }

    fn volumes_of(&self, layer: &Origin, finding: &Finding) -> BTreeSet<&VolumeId> {
        let is_on = |id: &VolumeId, volume: &Volume| {
            let device = layer.device();
            device.is_some_and(|name| volume.facts.devices.iter().any(|it| it == name))
                || finding.subject == Subject::Volume(id.clone())
        };
        let volumes = self.snapshot.volumes.iter();
        volumes.filter(|(id, volume)| is_on(id, volume)).map(|(id, _)| id).collect()
    }
}
