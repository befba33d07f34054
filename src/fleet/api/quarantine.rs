//! What the quarantine reads of one node, and what it writes: the list in the node's NodeStorage,
//! and the node's taints.
//!
//! In: names. Out: readings without a cache, and whether a write was accepted. A write names the
//! version of the object that it is meant for.

use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolumeClaim, Pod, Taint, Volume};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde::Deserialize;
use serde_json::json;

use crate::api::release::{is_accepted, why};
use crate::api::{Api, reduce};
use crate::model::Node;
use crate::model::quarantine::{NodeReading, NodeReadings, PodReading, ReportReading, Word};
use crate::model::release::evidence::Reading;
use crate::quarantine::Versions;
use diskvitals_cluster::node_storage::{
    ATTACHMENTS_CLEAN, NodeStorage, NodeStorageStatus, Quarantine,
};
use diskvitals_kubernetes::api_error::ApiError;

impl Api {
    pub(crate) async fn read_quarantine(&self, name: &str, key: &str) -> (NodeReadings, Versions) {
        let (mut readings, mut versions) = (NodeReadings::default(), Versions::default());
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let mut reduced = Node::default();
        readings.node = match self.get(&nodes, name).await {
            Reading::Read(Some(node)) => {
                versions.node = version_of(&node);
                let spec = node.spec.as_ref();
                versions.taints = spec.and_then(|it| it.taints.clone()).unwrap_or_default();
                reduced = reduce::node(node.clone());
                Reading::Read(Some(node_reading(&node, &reduced, &versions.taints, key)))
            }
            Reading::Read(None) => Reading::Read(None),
            Reading::Failed(why) => Reading::Failed(why),
        };
        let resource = ApiResource::erase::<NodeStorage>(&());
        let reports = kube::Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        readings.report = match self.get(&reports, name).await {
            Reading::Read(Some(object)) => {
                versions.report = version_of(&object);
                match report_reading(object, &reduced) {
                    Ok(report) => Reading::Read(Some(report)),
                    Err(error) => Reading::Failed(format!("its quarantine: {error}")),
                }
            }
            Reading::Read(None) => Reading::Read(None),
            Reading::Failed(why) => Reading::Failed(why),
        };
        // The pods last: one that is on the list and is not there now was deleted.
        readings.pods = self.pods_of(name).await;
        (readings, versions)
    }

    /// All pods of a node, in every namespace.
    pub(super) async fn list_pods(&self, node: &str) -> Reading<Vec<Pod>> {
        let pods = kube::Api::<Pod>::all(self.client.clone());
        let parameters = ListParams::default().fields(&format!("spec.nodeName={node}"));
        match self.call(pods.list(&parameters)).await {
            Ok(pods) => Reading::Read(pods.items),
            Err(error) => Reading::Failed(why(error)),
        }
    }

    /// Name of the PersistentVolume of a claim. None: there is no claim, or it is not bound.
    pub(super) async fn volume_of_claim(
        &self,
        claims: &kube::Api<PersistentVolumeClaim>,
        claim: &str,
    ) -> Reading<Option<String>> {
        let claim = self.get(claims, claim).await;
        let name = claim.map(|claim| claim.and_then(|claim| claim.spec?.volume_name));
        name.map(|name| name.filter(|name| !name.is_empty()))
    }

    async fn pods_of(&self, node: &str) -> Reading<Vec<PodReading>> {
        let pods = match self.list_pods(node).await {
            Reading::Read(pods) => pods,
            Reading::Failed(why) => return Reading::Failed(why),
        };
        let mut read = Vec::new();
        for pod in pods {
            read.push(self.pod_reading(&pod).await);
        }
        Reading::Read(read)
    }

    async fn pod_reading(&self, pod: &Pod) -> PodReading {
        let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
        let namespace = pod.namespace().unwrap_or_default();
        let claims =
            kube::Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &namespace);
        let mut reading = PodReading {
            uid: pod.uid().unwrap_or_default(),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            ..PodReading::default()
        };
        for volume in volumes {
            reading.is_movable |= is_network(volume);
            let Some(claim) = claim_of(pod, volume) else {
                continue;
            };
            match self.volume_of_claim(&claims, &claim).await {
                // A claim that is not bound has never been mounted.
                Reading::Read(name) => reading.volumes.extend(name),
                Reading::Failed(_) => reading.is_movable = true,
            }
        }
        reading
    }

    pub(crate) async fn write_quarantine(
        &self,
        node: &str,
        (uid, version): (&str, &str),
        quarantine: Option<&Quarantine>,
    ) -> Result<bool, ApiError> {
        // A merge patch keeps fields that are not named.
        let quarantine = match quarantine {
            None => serde_json::Value::Null,
            Some(quarantine) => json!({
                "id": quarantine.id,
                "since": quarantine.since,
                "podUIDs": quarantine.pod_uids,
                "truncated": quarantine.truncated,
                "bootID": quarantine.boot_id,
            }),
        };
        self.patch_report(node, (uid, version), json!({"quarantine": quarantine})).await
    }

    /// Of the spec of a NodeStorage what `spec` names.
    pub(super) async fn patch_report(
        &self,
        node: &str,
        (uid, version): (&str, &str),
        spec: serde_json::Value,
    ) -> Result<bool, ApiError> {
        let reports: kube::Api<NodeStorage> = kube::Api::all(self.client.clone());
        let patch = Patch::Merge(json!({
            "metadata": {"uid": uid, "resourceVersion": version},
            "spec": spec,
        }));
        let parameters = PatchParams {
            field_manager: Some(super::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let call = reports.patch(node, &parameters, &patch);
        is_accepted(self.call(call).await)
    }

    /// The whole list: it is one field.
    pub(crate) async fn write_taints(
        &self,
        node: &str,
        (uid, version): (&str, &str),
        taints: &[Taint],
    ) -> Result<bool, ApiError> {
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let patch = Patch::Merge(json!({
            "metadata": {"uid": uid, "resourceVersion": version},
            "spec": {"taints": taints},
        }));
        let parameters = PatchParams::default();
        let call = nodes.patch(node, &parameters, &patch);
        is_accepted(self.call(call).await)
    }
}

pub(super) fn version_of(object: &impl ResourceExt) -> (String, String) {
    (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default())
}

fn node_reading(node: &KubeNode, reduced: &Node, taints: &[Taint], key: &str) -> NodeReading {
    let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
    // With another effect it is not ours, and keeps no pod away.
    let mut ours = taints.iter().filter(|taint| taint.key == key && taint.effect == "NoSchedule");
    NodeReading {
        is_ready: reduced.is_ready,
        boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
        taint: ours.next().map(|it| it.value.clone().unwrap_or_default()),
    }
}

fn report_reading(object: DynamicObject, node: &Node) -> Result<ReportReading, serde_json::Error> {
    let written = object.data.pointer("/spec/quarantine");
    let quarantine = written.filter(|it| !it.is_null()).map(Quarantine::deserialize).transpose()?;
    let report = reduce::report(object);
    Ok(ReportReading { quarantine, word: report.current(node).and_then(word) })
}

fn word(status: &NodeStorageStatus) -> Option<Word> {
    let mut conditions = status.conditions.iter();
    let clean = conditions.find(|it| it.type_ == ATTACHMENTS_CLEAN)?;
    Some(Word {
        of: status.observed_quarantine.clone(),
        is_clean: clean.status == "True",
        reason: clean.reason.clone(),
        message: clean.message.clone(),
    })
}

/// Kinds of volumes that name storage on the network without a claim.
fn is_network(volume: &Volume) -> bool {
    volume.nfs.is_some()
        || volume.iscsi.is_some()
        || volume.fc.is_some()
        || volume.rbd.is_some()
        || volume.cephfs.is_some()
        || volume.glusterfs.is_some()
}

pub(super) fn claim_of(pod: &Pod, volume: &Volume) -> Option<String> {
    let named = volume.persistent_volume_claim.as_ref();
    named.map(|claim| claim.claim_name.clone()).or_else(|| {
        // The claim of a generic ephemeral volume.
        let ephemeral = volume.ephemeral.is_some();
        ephemeral.then(|| format!("{}-{}", pod.name_any(), volume.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantine_in_another_form_is_not_read_as_none() {
        let object = |spec: serde_json::Value| DynamicObject {
            types: None,
            metadata: Default::default(),
            data: json!({"spec": spec}),
        };
        let read = |spec| report_reading(object(spec), &Node::default());
        assert!(read(json!({"quarantine": 7})).is_err());
        assert!(read(json!({})).is_ok_and(|it| it.quarantine.is_none()));
        let listed = read(json!({"quarantine": {"id": "q", "podUIDs": ["u"]}}));
        assert!(listed.is_ok_and(|it| it.quarantine.is_some_and(|it| it.pod_uids == ["u"])));
    }

    #[test]
    fn a_taint_of_our_key_with_another_effect_is_not_ours() {
        let taint = |effect: &str| Taint {
            key: "k/unclean".into(),
            value: Some("q".into()),
            effect: effect.into(),
            time_added: None,
        };
        let read = |effect| {
            node_reading(&KubeNode::default(), &Node::default(), &[taint(effect)], "k/unclean")
                .taint
        };
        assert_eq!(read("NoSchedule"), Some("q".to_owned()));
        assert_eq!(read("NoExecute"), None);
    }

    #[test]
    fn a_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "db-0"}})).expect("pod");
        let volume: Volume =
            serde_json::from_value(json!({"name": "tmp", "ephemeral": {}})).expect("volume");
        assert_eq!(claim_of(&pod, &volume), Some("db-0-tmp".to_owned()));
        let volume: Volume =
            serde_json::from_value(json!({"name": "x", "emptyDir": {}})).expect("volume");
        assert_eq!(claim_of(&pod, &volume), None);
    }
}
