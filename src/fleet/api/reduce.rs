//! Objects of the API server, reduced to what decisions need: a cluster has a hundred thousand of
//! them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde::Deserialize;

use crate::api::FIELD_MANAGER;
use crate::model::claims::{Condition, Entry};
use crate::model::pin::Pin;
use crate::model::{Claim, Node, Report, Volume};
use diskvitals_cluster::node_condition::{STORAGE_HEALTHY, STORAGE_HEALTHY_MANAGER};
use diskvitals_cluster::node_storage::{MAX_MESSAGE_LEN, NodeStorageStatus, PodEviction};
use diskvitals_text::echo::is_deceptive;
use diskvitals_text::echo::truncate;

pub(super) fn node(node: KubeNode) -> Node {
    let spec = node.spec.unwrap_or_default();
    let taints = spec.taints.into_iter().flatten();
    let taints = taints.filter(|taint| taint.effect == "NoSchedule");
    let status = node.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_true = |name| conditions.iter().any(|it| it.type_ == name && it.status == "True");
    let is_ready = is_true("Ready");
    // The times of ready nodes are not kept: they change all the time.
    let managers = node.metadata.managed_fields.iter().flatten();
    let reports = managers
        .filter(|_| !is_ready && is_true(STORAGE_HEALTHY))
        .filter(|it| it.manager.as_deref() == Some(STORAGE_HEALTHY_MANAGER));
    Node {
        healthy_report: reports.filter_map(|it| Some(it.time.as_ref()?.0)).max(),
        uid: node.metadata.uid.unwrap_or_default(),
        hostname: node
            .metadata
            .labels
            .and_then(|mut labels| labels.remove("kubernetes.io/hostname"))
            .unwrap_or_default(),
        is_ready,
        is_unschedulable: spec.unschedulable == Some(true),
        taints: taints.map(|taint| (taint.key, taint.value.unwrap_or_default())).collect(),
        machine_id: status.node_info.map(|it| it.machine_id).unwrap_or_default(),
    }
}

pub(super) fn report(object: DynamicObject) -> Report {
    // A status in another form is none.
    let mut status =
        object.data.get("status").and_then(|status| NodeStorageStatus::deserialize(status).ok());
    let volumes = status.iter_mut().flat_map(|status| &mut status.volumes);
    for condition in volumes.flat_map(|volume| &mut volume.health_conditions) {
        // Tenants read it in their claims.
        let shown = |c| if is_deceptive(c) { '\u{fffd}' } else { c };
        let message: String = condition.message.chars().map(shown).collect();
        condition.message = truncate(&message, MAX_MESSAGE_LEN);
    }
    let challenge = object.data.pointer("/spec/challenge/nonce");
    Report {
        challenge: challenge.and_then(|nonce| Some(nonce.as_str()?.to_owned())),
        is_quarantined: object.data.pointer("/spec/quarantine").is_some_and(|it| !it.is_null()),
        eviction: object
            .data
            .pointer("/spec/eviction")
            .and_then(|it| PodEviction::deserialize(it).ok()),
        // A question of the controller is no word of the node.
        last_write: last_write(&object.metadata, Some(FIELD_MANAGER)),
        uid: object.metadata.uid.unwrap_or_default(),
        resource_version: object.metadata.resource_version.unwrap_or_default(),
        status,
    }
}

/// By the API server's clock: of the field managers but one, and of the creation.
pub(super) fn last_write(metadata: &ObjectMeta, ignored: Option<&str>) -> Option<Timestamp> {
    let managers = metadata.managed_fields.iter().flatten();
    managers
        .filter(|manager| ignored.is_none() || manager.manager.as_deref() != ignored)
        .filter_map(|manager| manager.time.as_ref())
        .chain(&metadata.creation_timestamp)
        .map(|time| time.0)
        .max()
}

pub(super) fn volume(volume: PersistentVolume) -> Volume {
    let Some(spec) = volume.spec else {
        return Volume::default();
    };
    let claim = spec.claim_ref.and_then(|claim| {
        Some(Claim { namespace: claim.namespace?, name: claim.name?, uid: claim.uid? })
    });
    let terms = spec
        .node_affinity
        .and_then(|affinity| affinity.required)
        .map(|required| required.node_selector_terms)
        .unwrap_or_default();
    Volume { csi: spec.csi.map(|csi| (csi.driver, csi.volume_handle)), claim, pins: pins(terms) }
}

/// Names of the CSI drivers that are registered on a node.
pub(super) fn csi_node(node: CSINode) -> BTreeSet<String> {
    let drivers = node.spec.drivers.into_iter();
    drivers.map(|driver| driver.name).collect()
}

/// Terms are alternatives: only a single one can tie a volume to a node.
fn pins(terms: Vec<NodeSelectorTerm>) -> Vec<Pin> {
    let Ok([term]) = <[NodeSelectorTerm; 1]>::try_from(terms) else {
        return Vec::new();
    };
    let single = |requirement: NodeSelectorRequirement| {
        let values = requirement.values.filter(|_| requirement.operator == "In")?;
        let [value] = <[String; 1]>::try_from(values).ok()?;
        Some((requirement.key, value))
    };
    let fields = term.match_fields.into_iter().flatten().filter_map(single);
    let labels = term.match_expressions.into_iter().flatten().filter_map(single);
    fields
        .filter(|(key, _)| key == "metadata.name")
        .map(|(_, value)| Pin::Name(value))
        .chain(labels.map(|(key, value)| Pin::Label { key, value }))
        .collect()
}

/// A claim with health that this manager has applied.
pub(super) fn own_claim(claim: PersistentVolumeClaim) -> Option<(Claim, Entry)> {
    let metadata = claim.metadata;
    let is_ours = metadata.managed_fields.iter().flatten().any(|manager| {
        manager.manager.as_deref() == Some(FIELD_MANAGER)
            && manager.subresource.as_deref() == Some("status")
    });
    let health = claim.status?.health_status?;
    let conditions = health.health_conditions.unwrap_or_default();
    let known = |condition: k8s_openapi::api::core::v1::VolumeHealthCondition| {
        let status = ["Degraded", "Inaccessible", "DataLoss"]
            .into_iter()
            .find(|status| *status == condition.status)?;
        Some(Condition {
            status,
            reason: condition.reason,
            message: condition.message.unwrap_or_default(),
        })
    };
    is_ours.then_some(())?;
    let entry = Entry {
        conditions: conditions.into_iter().filter_map(known).collect(),
        ..Entry::default()
    };
    let claim = Claim { namespace: metadata.namespace?, name: metadata.name?, uid: metadata.uid? };
    Some((claim, entry))
}
