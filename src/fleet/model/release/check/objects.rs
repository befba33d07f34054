//! The gates that look at objects read from the API server: node, volume, claim, pod, StatefulSet
//! and group.
//!
//! In: one case with its candidate. Out: why a gate refuses, in words.

use crate::model::release::candidate::Candidate;
use crate::model::release::check::{ActionState, Case};
use crate::model::release::evidence::{
    ClaimState, ClaimTemplate, DryRun, NodeState, PodState, StatefulSetState, VolumeState,
};
use crate::model::release::{CLAIM_LABEL, CLAIM_LABEL_VALUE, Now, REJOINS, REJOINS_ANY};
use diskvitals_cluster::gate::Gate;

pub(super) fn of_node(
    gate: Gate,
    case: &Case<'_>,
    candidate: &Candidate,
    now: Now,
) -> Option<String> {
    let node = match case.evidence.node.as_ref() {
        Ok(Some(node)) if node.uid == candidate.node_uid => node,
        reading => {
            return (gate == Gate::NodeNotReady).then(|| absent("node", &candidate.node, reading));
        }
    };
    match gate {
        Gate::NodeNotReady => node_not_ready(case, candidate, node, now),
        Gate::NodeUnschedulable if node.is_unschedulable => {
            Some(format!("node {} is cordoned", candidate.node))
        }
        Gate::NodeMaintenance if !node.maintenance.is_empty() => {
            Some(format!("node {} has {}", candidate.node, node.maintenance.join(", ")))
        }
        _ => None,
    }
}

fn node_not_ready(
    case: &Case<'_>,
    candidate: &Candidate,
    node: &NodeState,
    now: Now,
) -> Option<String> {
    let ready = candidate
        .node_ready_since
        .map(|since| now.elapsed.saturating_sub(since))
        .filter(|_| node.is_ready);
    match ready {
        Some(ready) if ready >= case.limits.node_ready => None,
        Some(ready) => {
            Some(format!("node {} has been Ready for {} s", candidate.node, ready.as_secs()))
        }
        None => Some(format!("node {} is not Ready", candidate.node)),
    }
}

/// An object that is not there, is another one, or could not be read.
fn absent<T>(kind: &str, name: &str, reading: Result<&Option<T>, &str>) -> String {
    match reading {
        Ok(None) => format!("{kind} {name} does not exist"),
        Ok(Some(_)) => format!("{kind} {name} is another object"),
        Err(why) => format!("{kind} {name} could not be read: {why}"),
    }
}

pub(super) fn of_claim(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
    let volume = case.evidence.volume.as_ref();
    if gate == Gate::NotPinned {
        return match volume {
            Ok(Some(volume)) if volume.pinned_to.as_deref() == Some(&candidate.node) => None,
            Ok(Some(_)) => {
                Some(format!("volume {} is not tied to node {}", candidate.volume, candidate.node))
            }
            reading => Some(absent("volume", &candidate.volume, reading)),
        };
    }
    let claim = match case.evidence.claim.as_ref() {
        Ok(Some(claim)) if claim.uid == candidate.claim.uid => claim,
        reading => {
            let name = &candidate.claim.name;
            return (gate == Gate::ClaimChanged).then(|| absent("claim", name, reading));
        }
    };
    match gate {
        Gate::ClaimChanged => claim_changed(case.action, candidate, claim, volume.ok()?.as_ref()?),
        Gate::ClaimTerminating if claim.is_terminating => {
            Some(format!("claim {} is being deleted", candidate.claim.name))
        }
        Gate::NotLabeled
            if claim.labels.get(CLAIM_LABEL).map(String::as_str) != Some(CLAIM_LABEL_VALUE) =>
        {
            Some(format!(
                "claim {} does not have {CLAIM_LABEL}: {CLAIM_LABEL_VALUE}",
                candidate.claim.name
            ))
        }
        Gate::NotSelected => not_selected(case, candidate, claim),
        _ => None,
    }
}

fn claim_changed(
    action: Option<&ActionState>,
    candidate: &Candidate,
    claim: &ClaimState,
    volume: &VolumeState,
) -> Option<String> {
    let is_bound =
        claim.volume_name == candidate.volume && volume.claim.as_ref() == Some(&candidate.claim);
    if !is_bound {
        return Some(format!(
            "claim {} and volume {} are not bound to each other",
            candidate.claim.name, candidate.volume
        ));
    }
    let spec = &action?.spec;
    let is_same = spec.claim.uid == claim.uid
        && spec.claim.name == candidate.claim.name
        && spec.persistent_volume.uid == volume.uid;
    (!is_same).then(|| "claim or volume is another object than the action's".to_owned())
}

fn not_selected(case: &Case<'_>, candidate: &Candidate, claim: &ClaimState) -> Option<String> {
    let namespace = &candidate.claim.namespace;
    match case.evidence.namespace_is_selected.as_ref() {
        Err(why) => return Some(format!("namespace {namespace} could not be read: {why}")),
        Ok(false) => return Some(format!("the policy does not select namespace {namespace}")),
        Ok(true) => {}
    }
    let classes = &case.policy.spec.claims.storage_class_names;
    (!classes.is_empty() && !classes.contains(&claim.storage_class))
        .then(|| format!("the policy does not select storage class {}", claim.storage_class))
}

pub(super) fn of_pod(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
    let pod = match case.evidence.pod.as_ref() {
        Ok(Some(pod)) => pod,
        reading => {
            let name = format!("of claim {}", candidate.claim.name);
            return (gate == Gate::PodElsewhere).then(|| absent("pod", &name, reading));
        }
    };
    match gate {
        Gate::PodElsewhere => {
            let is_other = case.action.is_some_and(|action| action.spec.pod.uid != pod.uid);
            if is_other {
                return Some(format!("pod {} is another object", pod.name));
            }
            (pod.node != candidate.node).then(|| format!("pod {} is on {}", pod.name, pod.node))
        }
        Gate::ReadyPod => pod.is_ready.then(|| format!("pod {} is Ready", pod.name)),
        Gate::NotWaitForFirstConsumer => match case.evidence.storage_class.as_ref() {
            Ok(Some(class)) if class.waits_for_first_consumer => None,
            Ok(Some(_)) => Some("its volumeBindingMode is not WaitForFirstConsumer".to_owned()),
            reading => Some(absent("storage class", "of the claim", reading)),
        },
        Gate::OtherClaimPinned => match case.evidence.other_claims.as_ref() {
            Ok(claims) => claims
                .iter()
                .find(|claim| !claim.is_movable)
                .map(|claim| format!("claim {} of pod {} is tied to a node", claim.name, pod.name)),
            Err(why) => Some(format!("the pod's claims could not be read: {why}")),
        },
        _ => of_stateful_set(gate, case, candidate, pod),
    }
}

fn of_stateful_set(
    gate: Gate,
    case: &Case<'_>,
    candidate: &Candidate,
    pod: &PodState,
) -> Option<String> {
    let owner = match &pod.stateful_set {
        Some(owner) => owner,
        None => {
            return (gate == Gate::NotStatefulSet)
                .then(|| format!("pod {} is not controlled by a StatefulSet", pod.name));
        }
    };
    let set = match case.evidence.stateful_set.as_ref() {
        Ok(Some(set)) if set.uid == owner.uid => set,
        reading => {
            return (gate == Gate::NotStatefulSet)
                .then(|| absent("StatefulSet", &owner.name, reading));
        }
    };
    let member = member(set, pod, &candidate.claim.name);
    let Some((ordinal, template)) = member else {
        return (gate == Gate::NotStatefulSet).then(|| {
            format!(
                "claim {} does not come from a template of StatefulSet {}",
                candidate.claim.name, set.name
            )
        });
    };
    match gate {
        Gate::OrdinalNotWanted => {
            let wanted = set.first_ordinal..set.first_ordinal.saturating_add(set.replicas);
            (!wanted.contains(&ordinal)).then(|| {
                format!(
                    "StatefulSet {} wants ordinals {} to {}",
                    set.name,
                    wanted.start,
                    wanted.end - 1
                )
            })
        }
        Gate::RolloutUnderWay if set.is_rolling_out => {
            Some(format!("StatefulSet {} is being rolled out", set.name))
        }
        Gate::HasDataSource if template.has_source => {
            Some(format!("template {} of StatefulSet {} names a source", template.name, set.name))
        }
        Gate::EmptyMemberNotDeclared => {
            let declared = set.empty_member.as_deref();
            let allows = declared == Some(REJOINS_ANY) || declared == Some(REJOINS) && ordinal != 0;
            (!allows).then(|| {
                format!(
                    "StatefulSet {} declares {} for ordinal {ordinal}",
                    set.name,
                    declared.unwrap_or("nothing")
                )
            })
        }
        _ => None,
    }
}

/// The pod's ordinal, and the template that its claim comes from.
fn member<'a>(
    set: &'a StatefulSetState,
    pod: &PodState,
    claim: &str,
) -> Option<(i32, &'a ClaimTemplate)> {
    let ordinal = pod.name.strip_prefix(&set.name)?.strip_prefix('-')?;
    let number: u32 = ordinal.parse().ok()?;
    // As Kubernetes writes it: no sign, no leading zeros.
    let is_canonical = number.to_string() == ordinal;
    let template =
        set.templates.iter().find(|template| claim == format!("{}-{}", template.name, pod.name))?;
    Some((i32::try_from(number).ok().filter(|_| is_canonical)?, template))
}

pub(super) fn of_group(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
    match gate {
        Gate::NoRoomElsewhere => {
            return match case.evidence.room.as_ref() {
                Ok(nodes) => (!nodes.iter().any(|node| *node != candidate.node))
                    .then(|| "no other node has room".to_owned()),
                Err(why) => Some(format!("the room on other nodes is not known: {why}")),
            };
        }
        Gate::DisruptionBudget => {
            return match case.evidence.eviction.as_ref() {
                Ok(DryRun::Allowed) => None,
                Ok(DryRun::Refused(why)) => Some(why.clone()),
                Err(why) => Some(format!("the eviction could not be tried: {why}")),
            };
        }
        _ => {}
    }
    let group = match case.evidence.group.as_ref() {
        Ok(Some(group)) => group,
        Ok(None) => {
            return (gate == Gate::GroupUnknown)
                .then(|| "the pod carries no label of a group".to_owned());
        }
        Err(why) => {
            return (gate == Gate::GroupUnknown)
                .then(|| format!("the group could not be read: {why}"));
        }
    };
    match gate {
        Gate::GroupNotReady => {
            let ready = group.peers.iter().filter(|peer| peer.counts()).count();
            let wanted = case.policy.spec.min_ready_peers.max(1);
            (ready < usize::try_from(wanted).unwrap_or(usize::MAX)).then(|| {
                let others = group.peers.iter().filter(|peer| !peer.counts());
                let others = others.map(|peer| match peer.is_ready {
                    true => format!(", {} has drives that are {:?}", peer.name, peer.drives),
                    false => format!(", {} is not Ready", peer.name),
                });
                format!(
                    "{ready} other members of {} are Ready on good drives, {wanted} are needed{}",
                    group.name,
                    others.collect::<String>()
                )
            })
        }
        Gate::GroupInTrouble => group
            .claims
            .iter()
            .find(|claim| claim.is_pending || claim.is_terminating || claim.is_in_action)
            .map(|claim| {
                format!(
                    "claim {} of {} is pending, being deleted or in an action",
                    claim.name, group.name
                )
            }),
        _ => None,
    }
}
