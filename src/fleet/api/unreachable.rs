//! What the duty `unreachable` reads and writes: a node's taint, the pods of a node, and the note of
//! an eviction in its NodeStorage.
//!
//! In: names and uids. Out: readings without a cache, and whether a write was accepted. A write names
//! the version of the object that it is meant for.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolumeClaim, Pod, Toleration};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde::Deserialize;
use serde_json::json;

use crate::api::Api;
use crate::api::quarantine::{claim_of, version_of};
use crate::api::release::act::Evict;
use crate::api::release::why;
use crate::model::release::evidence::Reading;
use crate::model::unreachable::eviction::{EvictionReadings, Owner, PodReading};
use crate::release::job::Acted;
use crate::taint::with_taint;
use diskvitals_cluster::node_storage::{NodeStorage, PodEviction};
use diskvitals_kubernetes::api_error::{ApiError, classify_error};

impl Api {
    /// False: there was nothing to write, or the Node is gone, another one, or was changed meanwhile.
    pub(crate) async fn set_taint(
        &self,
        name: &str,
        uid: &str,
        key: &str,
        value: Option<&str>,
    ) -> Result<bool, ApiError> {
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let node = self.call(nodes.get_opt(name)).await.map_err(classify_error)?;
        let Some(node) = node.filter(|node| node.uid().as_deref() == Some(uid)) else {
            return Ok(false);
        };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let taints = taints.unwrap_or_default();
        let ours: Vec<_> = taints.iter().filter(|taint| taint.key == key).collect();
        let is_so = match (ours.as_slice(), value) {
            ([], None) => true,
            ([taint], Some(value)) => {
                taint.value.as_deref() == Some(value) && taint.effect == "NoSchedule"
            }
            _ => false,
        };
        if is_so {
            return Ok(false);
        }
        let (uid, version) = version_of(&node);
        let taints = with_taint(&taints, key, value);
        self.write_taints(name, (&uid, &version), &taints).await
    }

    /// None: removes the note. False: the object is gone, was changed meanwhile, or notes another pod.
    pub(crate) async fn record_eviction(
        &self,
        node: &str,
        eviction: Option<&PodEviction>,
    ) -> Result<bool, ApiError> {
        let resource = ApiResource::erase::<NodeStorage>(&());
        let reports = kube::Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let report = self.call(reports.get_opt(node)).await;
        let Some(report) = report.map_err(classify_error)? else {
            return Ok(eviction.is_none());
        };
        let noted = report.data.pointer("/spec/eviction");
        let noted = noted.filter(|noted| !noted.is_null());
        let noted = noted.map(PodEviction::deserialize);
        match (noted, eviction) {
            (None, None) => return Ok(true),
            (Some(_), Some(_)) => return Ok(false),
            (None, Some(_)) | (Some(_), None) => {}
        }
        let (uid, version) = version_of(&report);
        self.patch_report(node, (&uid, &version), json!({"eviction": eviction})).await
    }

    pub(crate) async fn pods_to_evict(&self, node: &str, key: &str) -> Reading<Vec<PodReading>> {
        let pods = match self.list_pods(node).await {
            Reading::Read(pods) => pods,
            Reading::Failed(why) => return Reading::Failed(why),
        };
        let mut read = Vec::new();
        for pod in pods {
            let mut reading = pod_reading(&pod, key);
            reading.volumes = self.volumes_of(&pod).await;
            read.push(reading);
        }
        Reading::Read(read)
    }

    /// Names of the PersistentVolumes of a pod's claims.
    async fn volumes_of(&self, pod: &Pod) -> Reading<Vec<String>> {
        let namespace = pod.namespace().unwrap_or_default();
        let claims =
            kube::Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &namespace);
        let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
        let mut names = Vec::new();
        for claim in volumes.filter_map(|volume| claim_of(pod, volume)) {
            match self.volume_of_claim(&claims, &claim).await {
                Reading::Read(name) => names.extend(name),
                Reading::Failed(why) => return Reading::Failed(why),
            }
        }
        Reading::Read(names)
    }

    /// Whether the eviction would be allowed.
    pub(crate) async fn ask_eviction(&self, eviction: &PodEviction) -> Result<Acted, ApiError> {
        let (namespace, pod) = (&eviction.namespace, &eviction.pod);
        self.evict_pod(namespace, pod, &eviction.pod_uid, Evict::DryRun).await
    }

    pub(crate) async fn evict_noted(&self, eviction: &PodEviction) -> Result<Acted, ApiError> {
        let (namespace, pod) = (&eviction.namespace, &eviction.pod);
        self.evict_pod(namespace, pod, &eviction.pod_uid, Evict::Now).await
    }

    pub(crate) async fn read_eviction(&self, eviction: &PodEviction) -> EvictionReadings {
        let pods = kube::Api::<Pod>::namespaced(self.client.clone(), &eviction.namespace);
        let is_same = |pod: &Pod| pod.uid().as_deref() == Some(&eviction.pod_uid);
        let pod = self.get(&pods, &eviction.pod).await;
        let pod = pod.map(|pod| pod.filter(is_same).map(|pod| pod_reading(&pod, "")));
        // The group last: a pod that is gone by now has its replacement after it.
        let listed = self.call(pods.list(&ListParams::default())).await;
        let group = match listed {
            Ok(listed) => {
                let read = listed.iter().map(|pod| pod_reading(pod, ""));
                let is_of_group = |pod: &PodReading| {
                    let owner = pod.owner.as_ref();
                    owner.is_some_and(|owner| owner.uid == eviction.owner_uid)
                };
                Reading::Read(read.filter(is_of_group).collect())
            }
            Err(error) => Reading::Failed(why(error)),
        };
        EvictionReadings { pod, group }
    }
}

fn pod_reading(pod: &Pod, key: &str) -> PodReading {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or_default();
    let mut conditions = status.into_iter().flat_map(|it| it.conditions.iter().flatten());
    let volumes = spec.into_iter().flat_map(|it| it.volumes.iter().flatten());
    let mut tolerations = spec.into_iter().flat_map(|it| it.tolerations.iter().flatten());
    PodReading {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        owner: controllers
            .next()
            .map(|owner| Owner { kind: owner.kind.clone(), uid: owner.uid.clone() }),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        has_ended: ["Succeeded", "Failed"].contains(&phase),
        is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        tolerates: tolerations.any(|it| tolerates(it, key)),
        inline_drivers: volumes
            .filter_map(|volume| Some(volume.csi.as_ref()?.driver.clone()))
            .collect::<BTreeSet<String>>(),
        volumes: Reading::default(),
    }
}

/// Whichever value the taint has.
fn tolerates(toleration: &Toleration, key: &str) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    let of = text(&toleration.key);
    let is_for_all = of.is_empty() && text(&toleration.operator) == "Exists";
    (effect.is_empty() || effect == "NoSchedule") && (is_for_all || of == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> PodReading {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "2", "controller": true}]},
            "spec": spec,
        }));
        pod_reading(&pod.expect("a pod"), "k/unreachable")
    }

    #[test]
    fn a_pod_that_tolerates_the_taint_could_return_to_the_node() {
        let tolerates =
            |toleration| pod(json!({"containers": [], "tolerations": [toleration]})).tolerates;
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k/unreachable", "operator": "Exists"}), true),
            (json!({"key": "k/unreachable", "value": "x", "effect": "NoSchedule"}), true),
            (json!({"key": "k/other", "operator": "Exists"}), false),
            (
                json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
        ] {
            assert_eq!(tolerates(toleration.clone()), expected, "{toleration}");
        }
    }

    #[test]
    fn the_owner_is_the_controller_and_inline_volumes_name_their_driver() {
        let read =
            pod(json!({"containers": [], "volumes": [{"name": "v", "csi": {"driver": "d"}}]}));
        let owner = read.owner.expect("an owner");
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("StatefulSet", "2"));
        assert!(read.inline_drivers.contains("d") && !read.is_ready && !read.has_ended);
    }
}
