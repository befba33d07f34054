//! What the plugin keeps of Kubernetes' objects: few fields, since a cluster has tens of thousands
//! of them. Pure: an object in, a record out.

pub(crate) mod actions;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use serde::Deserialize;

use diskvitals_cluster::node_storage::{NodeStorageStatus, Quarantine};

/// The node's word. Each object is read for itself, so that one that this version cannot read does
/// not hide the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct StorageRecord {
    pub name: String,
    pub status: Option<NodeStorageStatus>,
    /// Why the status cannot be read.
    pub broken: Option<String>,
    /// Of the controller.
    pub quarantine: Option<Quarantine>,
}

impl From<serde_json::Value> for StorageRecord {
    fn from(mut object: serde_json::Value) -> StorageRecord {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.to_owned();
        let status = object["status"].take();
        let (status, broken) = match Option::<NodeStorageStatus>::deserialize(status) {
            Ok(status) => (status, None),
            Err(error) => (None, Some(error.to_string())),
        };
        // One of another version is a quarantine all the same.
        let quarantine = Option::<Quarantine>::deserialize(object["spec"]["quarantine"].take());
        let quarantine = quarantine.unwrap_or_else(|_| Some(Quarantine::default()));
        StorageRecord { name, status, broken, quarantine }
    }
}

/// A condition that is True or not, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub is_true: bool,
    /// `False`, `Unknown`, or `missing`.
    pub word: String,
    pub reason: String,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeRecord {
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub ready: Ready,
}

impl From<Node> for NodeRecord {
    fn from(node: Node) -> NodeRecord {
        let conditions = node.status.and_then(|status| status.conditions);
        let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        NodeRecord {
            name: node.metadata.name.unwrap_or_default(),
            uid: node.metadata.uid.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            ready: match ready {
                None => Ready { word: "missing".to_owned(), ..Ready::default() },
                Some(condition) => Ready {
                    is_true: condition.status == "True",
                    word: condition.status,
                    reason: condition.reason.unwrap_or_default(),
                    since: condition.last_transition_time.map(|time| time.0),
                },
            },
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PodRecord {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
    /// Succeeded or Failed: its volumes are unmounted.
    pub has_ended: bool,
    pub deleting: Option<Timestamp>,
    pub ready: Ready,
    /// Names of the claims that it uses.
    pub claims: Vec<String>,
    pub containers: Vec<ContainerRecord>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerRecord {
    pub name: String,
    pub command: String,
    pub is_privileged: bool,
}

impl From<Pod> for PodRecord {
    fn from(pod: Pod) -> PodRecord {
        let name = pod.metadata.name.unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let claims = spec.volumes.into_iter().flatten().filter_map(|volume| {
            // The claim of a generic ephemeral volume is named after pod and volume.
            let ephemeral = volume.ephemeral.map(|_| format!("{name}-{}", volume.name));
            volume.persistent_volume_claim.map(|claim| claim.claim_name).or(ephemeral)
        });
        let claims = claims.collect();
        // The first container that waits says more than the pod's condition: CrashLoopBackOff.
        let waiting = status
            .container_statuses
            .iter()
            .flatten()
            .find_map(|it| it.state.as_ref()?.waiting.as_ref()?.reason.clone());
        let ready =
            status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let phase = status.phase.unwrap_or_default();
        let containers = spec.containers.into_iter().map(|it| ContainerRecord {
            is_privileged: it
                .security_context
                .and_then(|context| context.privileged)
                .unwrap_or(false),
            command: it.command.unwrap_or_default().into_iter().next().unwrap_or_default(),
            name: it.name,
        });
        PodRecord {
            namespace: pod.metadata.namespace.unwrap_or_default(),
            uid: pod.metadata.uid.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            has_ended: matches!(phase.as_str(), "Succeeded" | "Failed"),
            deleting: pod.metadata.deletion_timestamp.map(|time| time.0),
            ready: Ready {
                is_true: ready.as_ref().is_some_and(|it| it.status == "True"),
                word: phase,
                reason: waiting.or_else(|| ready.as_ref()?.reason.clone()).unwrap_or_default(),
                since: ready.and_then(|it| it.last_transition_time).map(|it| it.0),
            },
            claims,
            containers: containers.collect(),
            name,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeRecord {
    pub name: String,
    pub uid: String,
    /// Empty: no CSI volume.
    pub driver: String,
    pub handle: String,
    /// The directory in which the kubelet mounts volumes of this type; empty: not known.
    pub plugin_directory: String,
    pub is_block: bool,
    pub access_modes: Vec<String>,
    pub claim: Option<ClaimRef>,
    /// `Bound`, `Released`, …
    pub phase: String,
    /// Since when it has the phase.
    pub phase_since: Option<Timestamp>,
    /// `Retain`, `Delete`.
    pub reclaim_policy: String,
    /// One of the terms must match; None: every node can use the volume.
    pub affinity: Option<Vec<Term>>,
}

/// All must match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Term {
    pub labels: Vec<NodeSelectorRequirement>,
    pub fields: Vec<NodeSelectorRequirement>,
}

impl From<PersistentVolume> for VolumeRecord {
    fn from(volume: PersistentVolume) -> VolumeRecord {
        let spec = volume.spec.unwrap_or_default();
        // k8s.io/kubernetes/pkg/volume: the plugins' names, with ~ for /.
        let plugin_directory = match () {
            () if spec.csi.is_some() => "kubernetes.io~csi",
            () if spec.local.is_some() => "kubernetes.io~local-volume",
            () if spec.nfs.is_some() => "kubernetes.io~nfs",
            () if spec.iscsi.is_some() => "kubernetes.io~iscsi",
            () if spec.fc.is_some() => "kubernetes.io~fc",
            () => "",
        };
        let claim = spec.claim_ref.map(|claim| ClaimRef {
            namespace: claim.namespace.unwrap_or_default(),
            name: claim.name.unwrap_or_default(),
            uid: claim.uid.unwrap_or_default(),
        });
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        let terms = required.map(|selector| selector.node_selector_terms);
        let (driver, handle) = match spec.csi {
            Some(csi) => (csi.driver, csi.volume_handle),
            None => Default::default(),
        };
        let status = volume.status.unwrap_or_default();
        VolumeRecord {
            name: volume.metadata.name.unwrap_or_default(),
            uid: volume.metadata.uid.unwrap_or_default(),
            driver,
            handle,
            plugin_directory: plugin_directory.to_owned(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            access_modes: spec.access_modes.unwrap_or_default(),
            claim,
            phase: status.phase.unwrap_or_default(),
            phase_since: status.last_phase_transition_time.map(|time| time.0),
            reclaim_policy: spec.persistent_volume_reclaim_policy.unwrap_or_default(),
            affinity: terms.map(|terms| {
                let terms = terms.into_iter().map(|term| Term {
                    labels: term.match_expressions.unwrap_or_default(),
                    fields: term.match_fields.unwrap_or_default(),
                });
                terms.collect()
            }),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimRecord {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Name of its PersistentVolume; empty: not bound.
    pub volume: String,
    pub deleting: Option<Timestamp>,
}

impl From<PersistentVolumeClaim> for ClaimRecord {
    fn from(claim: PersistentVolumeClaim) -> ClaimRecord {
        ClaimRecord {
            namespace: claim.metadata.namespace.unwrap_or_default(),
            name: claim.metadata.name.unwrap_or_default(),
            uid: claim.metadata.uid.unwrap_or_default(),
            volume: claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default(),
            deleting: claim.metadata.deletion_timestamp.map(|time| time.0),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AttachmentRecord {
    pub name: String,
    pub node: String,
    pub volume: String,
    pub is_attached: bool,
    pub created: Option<Timestamp>,
    pub deleting: Option<Timestamp>,
}

impl From<VolumeAttachment> for AttachmentRecord {
    fn from(attachment: VolumeAttachment) -> AttachmentRecord {
        AttachmentRecord {
            name: attachment.metadata.name.unwrap_or_default(),
            node: attachment.spec.node_name,
            volume: attachment.spec.source.persistent_volume_name.unwrap_or_default(),
            is_attached: attachment.status.is_some_and(|status| status.attached),
            created: attachment.metadata.creation_timestamp.map(|time| time.0),
            deleting: attachment.metadata.deletion_timestamp.map(|time| time.0),
        }
    }
}

/// Whether the attach-detach controller attaches the driver's volumes. The API server writes the
/// default, true.
pub(crate) fn needs_attach(driver: &CSIDriver) -> bool {
    driver.spec.attach_required.unwrap_or(true)
}
