//! Nodes on which the new claim finds room: what the class's driver has published as capacity, on
//! nodes that the pod may run on.
//!
//! In: the claim and its pod. Out: names of nodes, a few. A rule that is not understood rules a node
//! out. It is no promise: the scheduler decides.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Node as KubeNode, NodeSelectorTerm, PersistentVolumeClaim, Pod, Taint, Toleration,
};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt};

use crate::api::Api;
use crate::api::release::read::{class_of, is_live, message, node_of, why};
use crate::model::release::evidence::Reading;
use crate::release::readings::Question;

/// So many nodes are enough to know.
const ENOUGH: usize = 3;
/// Lists of nodes for one question, and nodes in each.
const MAX_LISTS: usize = 32;
const MAX_NODES: u32 = 64;

impl Api {
    pub(super) async fn room(
        &self,
        question: &Question,
        claim: &PersistentVolumeClaim,
        pod: &Pod,
        pods: &[Pod],
    ) -> Reading<Vec<String>> {
        let requests = claim.spec.as_ref().and_then(|it| it.resources.as_ref()?.requests.as_ref());
        let Some(wanted) = requests.and_then(|it| bytes(it.get("storage")?)) else {
            return Reading::Failed("the claim's size cannot be read".to_owned());
        };
        let capacities = kube::Api::<CSIStorageCapacity>::all(self.client.clone());
        let capacities = match self.list(&capacities, Some).await {
            Ok((capacities, _)) => capacities,
            Err(error) => return Reading::Failed(message(error)),
        };
        let class = class_of(claim);
        let mut large: Vec<(u128, CSIStorageCapacity)> = capacities
            .into_iter()
            .filter(|it| it.storage_class_name == class)
            .filter_map(|it| Some((has_room(&it, wanted)?, it)))
            .collect();
        large.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let occupied = occupied(question, pod, pods);
        let nodes = kube::Api::<KubeNode>::all(self.client.clone());
        let mut room = BTreeSet::new();
        for (_, capacity) in large.into_iter().take(MAX_LISTS) {
            let topology = capacity.node_topology.map(Selector::try_from);
            // Without a topology it can be used nowhere (KEP-1472).
            let Some(Ok(selector)) = topology else {
                continue;
            };
            let parameters = ListParams::default().labels_from(&selector).limit(MAX_NODES);
            match self.call(nodes.list(&parameters)).await {
                Ok(page) => room.extend(
                    page.items
                        .iter()
                        .filter(|node| may_run_on(pod, node))
                        .map(|node| node.name_any())
                        .filter(|name| *name != question.node && !occupied.contains(name)),
                ),
                Err(error) => return Reading::Failed(why(error)),
            }
            if room.len() >= ENOUGH {
                break;
            }
        }
        Reading::Read(room.into_iter().take(ENOUGH).collect())
    }
}

fn has_room(capacity: &CSIStorageCapacity, wanted: u128) -> Option<u128> {
    let size = bytes(capacity.capacity.as_ref()?)?;
    let largest = match &capacity.maximum_volume_size {
        Some(largest) => bytes(largest)?,
        None => size,
    };
    (size >= wanted && largest >= wanted).then_some(size)
}

/// Where pods of the namespace may keep this one away: it has a rule about other pods, and one of
/// its group, by the policy's labels, runs there.
fn occupied(question: &Question, pod: &Pod, pods: &[Pod]) -> BTreeSet<String> {
    let affinity = pod.spec.as_ref().and_then(|it| it.affinity.as_ref());
    let has_rule = affinity
        .and_then(|it| it.pod_anti_affinity.as_ref())
        .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())
        .is_some_and(|rules| !rules.is_empty());
    if !has_rule {
        return BTreeSet::new();
    }
    let key = question.label_keys.iter().find(|key| pod.labels().contains_key(*key));
    let is_peer = |other: &&Pod| {
        is_live(other) && key.is_some_and(|key| other.labels().get(key) == pod.labels().get(key))
    };
    let nodes = pods.iter().filter(is_peer).filter_map(node_of);
    nodes.map(str::to_owned).collect()
}

fn may_run_on(pod: &Pod, node: &KubeNode) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let node_spec = node.spec.as_ref();
    let is_unschedulable = node_spec.and_then(|it| it.unschedulable) == Some(true);
    let labels = node.labels();
    let mut wanted = spec.node_selector.iter().flatten();
    let is_selected = wanted.all(|(key, value)| labels.get(key) == Some(value));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut taints = node_spec.iter().flat_map(|it| it.taints.iter().flatten());
    let is_tolerated = taints.all(|taint| {
        taint.effect == "PreferNoSchedule" || tolerations.iter().any(|it| tolerates(it, taint))
    });
    let required = spec
        .affinity
        .as_ref()
        .and_then(|it| it.node_affinity.as_ref())
        .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let has_affinity = required.is_none_or(|it| {
        let mut terms = it.node_selector_terms.iter();
        terms.any(|term| matches(term, node))
    });
    is_ready && !is_unschedulable && is_selected && is_tolerated && has_affinity
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_effect = toleration
        .effect
        .as_ref()
        .is_none_or(|effect| effect.is_empty() || *effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let is_equal = toleration.value.as_deref().unwrap_or_default()
        == taint.value.as_deref().unwrap_or_default();
    is_effect && (key == taint.key && (exists || is_equal) || key.is_empty() && exists)
}

/// Operators that a label selector does not have (`Gt`, `Lt`), and fields other than the name, match
/// nothing.
fn matches(term: &NodeSelectorTerm, node: &KubeNode) -> bool {
    let expressions = term.match_expressions.iter().flatten();
    let requirements: Vec<LabelSelectorRequirement> = expressions
        .map(|it| LabelSelectorRequirement {
            key: it.key.clone(),
            operator: it.operator.clone(),
            values: it.values.clone(),
        })
        .collect();
    let mut fields = term.match_fields.iter().flatten();
    let name = node.name_any();
    let has_name = fields.all(|it| {
        let is_listed = it.values.iter().flatten().any(|value| *value == name);
        it.key == "metadata.name"
            && match it.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
    });
    let is_empty = requirements.is_empty() && term.match_fields.iter().flatten().next().is_none();
    let selector = Selector::try_from(LabelSelector {
        match_expressions: Some(requirements),
        match_labels: None,
    });
    !is_empty && has_name && selector.is_ok_and(|it| it.matches(node.labels()))
}

/// A quantity of Kubernetes in bytes, rounded down. None: another form.
fn bytes(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor: u128 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "P" => 1000_u128.pow(5),
        "E" => 1000_u128.pow(6),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        _ => {
            // An exponent, or thousandths.
            if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
                return whole(number, 10_u128.checked_pow(exponent.parse().ok()?)?);
            }
            return (suffix == "m").then(|| whole(number, 1))?.map(|it| it / 1000);
        }
    };
    whole(number, factor)
}

fn whole(number: &str, factor: u128) -> Option<u128> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = &fraction[..fraction.len().min(18)];
    let digits = u32::try_from(fraction.len()).ok()?;
    let value: u128 = format!("{integer}{fraction}").parse().ok()?;
    Some(value.checked_mul(factor)? / 10_u128.pow(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_read_in_each_form_and_another_text_is_none() {
        let read = |text: &str| bytes(&Quantity(text.to_owned()));
        assert_eq!(read("10Gi"), Some(10 << 30));
        assert_eq!(read("1.5Ki"), Some(1536));
        assert_eq!(read("2k"), Some(2000));
        assert_eq!(read("3e3"), Some(3000));
        assert_eq!(read("5000m"), Some(5));
        assert_eq!(read("7"), Some(7));
        for text in ["", "-1", "Gi", "1Xi", "1e999", "soon"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    fn node(value: serde_json::Value) -> KubeNode {
        serde_json::from_value(value).expect("a node")
    }

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod")
    }

    #[test]
    fn a_pod_finds_room_only_where_it_may_run() {
        let ready = serde_json::json!({
            "metadata": {"name": "b", "labels": {"disk": "nvme"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let on = |spec| may_run_on(&pod(spec), &node(ready.clone()));
        let any = || serde_json::json!({"containers": []});
        assert!(on(any()));
        assert!(on(serde_json::json!({"containers": [], "nodeSelector": {"disk": "nvme"}})));
        assert!(!on(serde_json::json!({"containers": [], "nodeSelector": {"disk": "hdd"}})));
        let affinity = |operator: &str| {
            on(serde_json::json!({"containers": [], "affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                [{"matchExpressions": [{"key": "disk", "operator": operator, "values": ["nvme"]}]}]}}}}))
        };
        assert!(affinity("In") && !affinity("NotIn") && !affinity("Gt"));
        let mut tainted = ready.clone();
        tainted["spec"] = serde_json::json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        assert!(!may_run_on(&pod(any()), &node(tainted.clone())));
        let tolerant = serde_json::json!({"containers": [], "tolerations": [{"key": "k", "operator": "Exists"}]});
        assert!(may_run_on(&pod(tolerant), &node(tainted)));
        let mut away = ready;
        away["status"] = serde_json::json!({});
        assert!(!may_run_on(&pod(any()), &node(away)));
    }
}
