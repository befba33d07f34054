//! Everything about one claim, read without a cache.
//!
//! In: a question. Out: readings. A call that fails leaves a failed reading, and the gates that need
//! it refuse.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Namespace, Node as KubeNode, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{Selector, SelectorExt};
use serde::de::DeserializeOwned;

use crate::api::release::act::Evict;
use crate::api::{Api, reduce};
use crate::model::release::evidence::{
    ClaimState, ClaimTemplate, DryRun, GroupClaim, GroupState, NodeState, OtherClaim, Peer,
    PodState, Reading, StatefulSetState, StorageClassState, VolumeState,
};
use crate::model::release::steps::{ClaimProgress, PodProgress, VolumeProgress};
use crate::model::release::{EMPTY_MEMBER, POLICY_ANNOTATION, VOLUME_ANNOTATION};
use crate::release::action::ActionObject;
use crate::release::readings::{Question, Readings};
use diskvitals_cluster::node_storage::Health;
use diskvitals_cluster::storage_action::{ObjectRef, StorageAction};
use diskvitals_kubernetes::api_error::{ApiError, CallError, classify_error};

const MAINTENANCE: [&str; 3] = ["MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress"];

impl Api {
    /// The action itself is read last: what a person decided meanwhile counts.
    pub(crate) async fn read_release(&self, question: &Question) -> Readings {
        let mut readings = self.read_evidence(question).await;
        if let Some(action) = &question.action {
            let pods = kube::Api::<Pod>::namespaced(self.client.clone(), &action.namespace);
            let pod = self.get(&pods, &action.spec.pod.name).await;
            readings.progress.pod = map(pod, |pod| pod_progress(&pod));
            readings.action = self.read_action(action).await;
        }
        readings
    }

    async fn read_action(&self, action: &ActionObject) -> Reading<Option<ActionObject>> {
        let resource = ApiResource::erase::<StorageAction>(&());
        let actions = kube::Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            &action.namespace,
            &resource,
        );
        match self.get(&actions, &action.name).await {
            Reading::Read(Some(object)) => match super::action(object) {
                Ok(action) => Reading::Read(Some(action)),
                Err(error) => Reading::Failed(message(error)),
            },
            Reading::Read(None) => Reading::Read(None),
            Reading::Failed(why) => Reading::Failed(why),
        }
    }

    async fn read_evidence(&self, question: &Question) -> Readings {
        let (namespace, mut readings) = (&question.claim.namespace, Readings::default());
        let evidence = &mut readings.evidence;
        evidence.namespace_is_selected = self.is_selected(question).await;
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let node = self.get(&nodes, &question.node).await;
        evidence.node = map(node, |node| node_state(&node));
        let volumes = kube::Api::<PersistentVolume>::all(self.client.clone());
        match self.get(&volumes, &question.volume).await {
            Reading::Read(Some(volume)) => {
                readings.progress.volume = Reading::Read(Some(volume_progress(&volume)));
                let uid = volume.uid().unwrap_or_default();
                let volume = reduce::volume(volume);
                readings.pins = volume.pins;
                evidence.volume =
                    Reading::Read(Some(VolumeState { uid, pinned_to: None, claim: volume.claim }));
            }
            Reading::Read(None) => {
                readings.progress.volume = Reading::Read(None);
                evidence.volume = Reading::Read(None);
            }
            Reading::Failed(why) => {
                readings.progress.volume = Reading::Failed(why.clone());
                evidence.volume = Reading::Failed(why);
            }
        }
        let claims = kube::Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
        let claim = self.get(&claims, &question.claim.name).await;
        if let Reading::Read(Some(claim)) = &claim {
            let classes = kube::Api::<StorageClass>::all(self.client.clone());
            let class = self.get(&classes, &class_of(claim)).await;
            evidence.storage_class = map(class, |class| StorageClassState {
                waits_for_first_consumer: class.volume_binding_mode.as_deref()
                    == Some("WaitForFirstConsumer"),
            });
        }
        readings.progress.claim = map_ref(&claim, claim_progress);
        evidence.claim = map_ref(&claim, claim_state);
        let pods = kube::Api::<Pod>::namespaced(self.client.clone(), namespace);
        let all = match self.list(&pods, Some).await {
            Ok((all, _)) => all,
            Err(error) => {
                evidence.pod = Reading::Failed(message(error));
                return readings;
            }
        };
        let mut users = all
            .iter()
            .filter(|pod| is_live(pod) && claims_of(pod).any(|claim| claim == question.claim.name));
        let Some(pod) = users.next() else {
            evidence.pod = Reading::Read(None);
            return readings;
        };
        if users.next().is_some() {
            evidence.pod = Reading::Failed("several pods use the claim".to_owned());
            return readings;
        }
        evidence.pod = Reading::Read(Some(pod_state(pod)));
        self.read_members(question, pod, &all, &claims, &mut readings).await;
        let evidence = &mut readings.evidence;
        evidence.eviction = self.try_eviction(&pods, pod).await;
        if let Reading::Read(Some(claim)) = &claim {
            evidence.room = self.room(question, claim, pod, &all).await;
        }
        readings
    }

    async fn is_selected(&self, question: &Question) -> Reading<bool> {
        let Some(selector) = question.namespace_selector.clone() else {
            return Reading::Read(true);
        };
        let selector = match Selector::try_from(selector) {
            Ok(selector) => selector,
            Err(error) => return Reading::Failed(format!("the policy's selector: {error}")),
        };
        let namespaces = kube::Api::<Namespace>::all(self.client.clone());
        let namespace = self.get(&namespaces, &question.claim.namespace).await;
        let labels = namespace.map(|it| it.map(|it| it.metadata.labels.unwrap_or_default()));
        labels.map(|labels| labels.is_some_and(|labels| selector.matches(&labels)))
    }

    /// The pod's StatefulSet, its other claims, and the other pods and claims of its group.
    async fn read_members(
        &self,
        question: &Question,
        pod: &Pod,
        pods: &[Pod],
        claims: &kube::Api<PersistentVolumeClaim>,
        readings: &mut Readings,
    ) {
        let namespace = &question.claim.namespace;
        if let Reading::Read(Some(PodState { stateful_set: Some(owner), .. })) =
            &readings.evidence.pod
        {
            let sets = kube::Api::<StatefulSet>::namespaced(self.client.clone(), namespace);
            let set = self.get(&sets, &owner.name).await;
            readings.evidence.stateful_set = map(set, |set| stateful_set_state(&set));
        }
        let all_claims = match self.list(claims, Some).await {
            Ok((all, _)) => all,
            Err(error) => {
                let why = message(error);
                readings.evidence.other_claims = Reading::Failed(why.clone());
                readings.evidence.group = Reading::Failed(why);
                return;
            }
        };
        let claims: BTreeMap<String, PersistentVolumeClaim> =
            all_claims.into_iter().map(|claim| (claim.name_any(), claim)).collect();
        self.read_other_claims(question, pod, &claims, readings).await;
        let group = question.label_keys.iter().find_map(|key| Some((key, pod.labels().get(key)?)));
        let Some((key, value)) = group else {
            readings.evidence.group = Reading::Read(None);
            return;
        };
        let is_of_group = |labels: &BTreeMap<String, String>| labels.get(key) == Some(value);
        let mut group = GroupState { name: format!("{key}={value}"), ..GroupState::default() };
        let mut of_group: BTreeMap<&str, Option<&PersistentVolumeClaim>> = claims
            .iter()
            .filter(|(_, claim)| is_of_group(claim.labels()))
            .map(|(name, claim)| (name.as_str(), Some(claim)))
            .collect();
        for member in pods.iter().filter(|it| is_live(it) && is_of_group(it.labels())) {
            for name in claims_of(member) {
                of_group.insert(name, claims.get(name));
            }
            if member.uid() == pod.uid() {
                continue;
            }
            let volumes: Option<Vec<String>> = claims_of(member)
                .map(|name| claims.get(name)?.spec.as_ref()?.volume_name.clone())
                .collect();
            readings.peer_volumes.insert(member.name_any(), volumes);
            group.peers.push(Peer {
                name: member.name_any(),
                is_ready: is_ready(member) && member.metadata.deletion_timestamp.is_none(),
                drives: Health::Unknown,
            });
        }
        of_group.remove(question.claim.name.as_str());
        group.claims = of_group
            .into_iter()
            .map(|(name, claim)| GroupClaim {
                name: name.to_owned(),
                // A claim that a pod names and that does not exist is as good as pending.
                is_pending: claim.is_none_or(|claim| !is_bound(claim)),
                is_terminating: claim.is_some_and(is_terminating),
                is_in_action: false,
            })
            .collect();
        readings.evidence.group = Reading::Read(Some(group));
    }

    async fn read_other_claims(
        &self,
        question: &Question,
        pod: &Pod,
        claims: &BTreeMap<String, PersistentVolumeClaim>,
        readings: &mut Readings,
    ) {
        let volumes = kube::Api::<PersistentVolume>::all(self.client.clone());
        let mut others = Vec::new();
        for name in claims_of(pod).filter(|name| *name != question.claim.name) {
            let volume = claims
                .get(name)
                .and_then(|claim| claim.spec.as_ref()?.volume_name.clone())
                .filter(|volume| !volume.is_empty());
            if let Some(volume) = volume {
                match self.get(&volumes, &volume).await {
                    Reading::Read(Some(volume)) => {
                        let pins = reduce::volume(volume).pins;
                        readings.other_pins.insert(name.to_owned(), pins);
                    }
                    Reading::Read(None) => {}
                    Reading::Failed(why) => {
                        readings.evidence.other_claims = Reading::Failed(why);
                        return;
                    }
                }
            }
            others.push(OtherClaim { name: name.to_owned(), is_movable: false });
        }
        readings.evidence.other_claims = Reading::Read(others);
    }

    async fn try_eviction(&self, pods: &kube::Api<Pod>, pod: &Pod) -> Reading<DryRun> {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let answer = self.evict(pods, &name, &uid, Evict::DryRun).await;
        match answer {
            Ok(_) => Reading::Read(DryRun::Allowed),
            Err(CallError::Kube(kube::Error::Api(status))) if [409, 429].contains(&status.code) => {
                Reading::Read(DryRun::Refused(status.message.clone()))
            }
            Err(error) => Reading::Failed(why(error)),
        }
    }

    pub(in crate::api) async fn get<K>(
        &self,
        objects: &kube::Api<K>,
        name: &str,
    ) -> Reading<Option<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        match self.call(objects.get_opt(name)).await {
            Ok(object) => Reading::Read(object),
            Err(error) => Reading::Failed(why(error)),
        }
    }
}

pub(in crate::api) fn why(error: CallError) -> String {
    message(classify_error(error))
}

pub(super) fn message(error: ApiError) -> String {
    error.into_message_and_delay().0
}

fn map<T, U>(reading: Reading<Option<T>>, of: impl FnOnce(T) -> U) -> Reading<Option<U>> {
    reading.map(|object| object.map(of))
}

fn map_ref<T, U>(reading: &Reading<Option<T>>, of: impl FnOnce(&T) -> U) -> Reading<Option<U>> {
    match reading {
        Reading::Read(object) => Reading::Read(object.as_ref().map(of)),
        Reading::Failed(why) => Reading::Failed(why.clone()),
    }
}

fn node_state(node: &KubeNode) -> NodeState {
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let mut state = NodeState {
        uid: node.uid().unwrap_or_default(),
        is_ready: false,
        is_unschedulable: node.spec.as_ref().and_then(|it| it.unschedulable) == Some(true),
        maintenance: Vec::new(),
    };
    for condition in conditions {
        if condition.type_ == "Ready" {
            state.is_ready = condition.status == "True";
        } else if MAINTENANCE.contains(&condition.type_.as_str()) && condition.status != "False" {
            state.maintenance.push(condition.type_.clone());
        }
    }
    state
}

fn volume_progress(volume: &PersistentVolume) -> VolumeProgress {
    let policy = volume.spec.as_ref();
    VolumeProgress {
        uid: volume.uid().unwrap_or_default(),
        resource_version: volume.resource_version().unwrap_or_default(),
        reclaim_policy: policy
            .and_then(|spec| spec.persistent_volume_reclaim_policy.clone())
            .unwrap_or_default(),
        kept_by: volume.annotations().get(VOLUME_ANNOTATION).cloned(),
        previous_policy: volume.annotations().get(POLICY_ANNOTATION).cloned(),
    }
}

fn claim_state(claim: &PersistentVolumeClaim) -> ClaimState {
    ClaimState {
        uid: claim.uid().unwrap_or_default(),
        volume_name: volume_of(claim),
        labels: claim.labels().clone(),
        is_terminating: is_terminating(claim),
        storage_class: class_of(claim),
    }
}

fn claim_progress(claim: &PersistentVolumeClaim) -> ClaimProgress {
    ClaimProgress {
        uid: claim.uid().unwrap_or_default(),
        is_terminating: is_terminating(claim),
        volume_name: volume_of(claim),
        drives: Health::Unknown,
    }
}

fn volume_of(claim: &PersistentVolumeClaim) -> String {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    name.unwrap_or_default()
}

pub(super) fn class_of(claim: &PersistentVolumeClaim) -> String {
    let class = claim.spec.as_ref().and_then(|it| it.storage_class_name.clone());
    class.unwrap_or_default()
}

fn is_terminating(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
    phase == Some("Bound")
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

pub(super) fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Without generic ephemeral volumes: their claims end with the pod.
fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(claim.claim_name.as_str())
    })
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn pod_state(pod: &Pod) -> PodState {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|it| it.controller == Some(true));
    PodState {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: node_of(pod).unwrap_or_default().to_owned(),
        is_ready: is_ready(pod),
        stateful_set: owner
            .filter(|it| it.kind == "StatefulSet" && it.api_version.starts_with("apps/"))
            .map(|it| ObjectRef { name: it.name.clone(), uid: it.uid.clone() }),
    }
}

fn pod_progress(pod: &Pod) -> PodProgress {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    PodProgress {
        uid: pod.uid().unwrap_or_default(),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        is_ready: is_ready(pod),
        is_pending: phase == Some("Pending"),
        created: pod.metadata.creation_timestamp.as_ref().map(|it| it.0),
    }
}

fn stateful_set_state(set: &StatefulSet) -> StatefulSetState {
    let (spec, status) = (&set.spec, set.status.as_ref());
    let templates = spec.volume_claim_templates.iter().flatten();
    let first = spec.ordinals.as_ref().and_then(|it| it.start);
    StatefulSetState {
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        replicas: spec.replicas.unwrap_or(1),
        first_ordinal: first.unwrap_or_default(),
        is_rolling_out: set.metadata.deletion_timestamp.is_some()
            || status.is_none_or(|status| {
                status.observed_generation != set.metadata.generation
                    || status.update_revision != status.current_revision
            }),
        empty_member: set.annotations().get(EMPTY_MEMBER).cloned(),
        templates: templates.map(claim_template).collect(),
    }
}

fn claim_template(template: &PersistentVolumeClaim) -> ClaimTemplate {
    let has_source = template.spec.as_ref().is_some_and(|spec| {
        let is_named = spec.volume_name.as_ref().is_some_and(|it| !it.is_empty());
        spec.data_source.is_some()
            || spec.data_source_ref.is_some()
            || is_named
            || spec.selector.is_some()
    });
    ClaimTemplate { name: template.name_any(), has_source }
}
