//! What each gate looks at.
//!
//! In: one case. Out: the gates that refuse it, with the reason in words. A reading that failed is
//! refused by one gate, the one that names what could not be read; the gates that look at its fields
//! leave it to that one.

use jiff::Timestamp;

use crate::cluster::gate::{Gate, Stage};
use crate::cluster::storage_action::{Approval, StorageActionSpec, StorageActionStatus};
use crate::cluster::storage_policy::StoragePolicySpec;
use crate::fleet::model::Elapsed;
use crate::fleet::model::release::breaker::BreakerState;
use crate::fleet::model::release::budget::{self, ActionSummary};
use crate::fleet::model::release::candidate::{Candidate, Sighting};
use crate::fleet::model::release::evidence::{
    Answer, AnsweredFinding, ClaimState, ClaimTemplate, DryRun, Evidence, NodeState, PodState,
    Reading, StatefulSetState, VolumeState, Witness, hash,
};
use crate::fleet::model::release::{
    CLAIM_LABEL, CLAIM_LABEL_VALUE, Limits, Now, REJOINS, REJOINS_ANY,
};

/// Everything that a decision rests on.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    pub policy: &'a PolicyState,
    pub sighting: &'a Sighting,
    pub evidence: &'a Evidence,
    pub fleet: &'a FleetState,
    /// None: nothing is proposed yet.
    pub action: Option<&'a ActionState>,
    pub limits: &'a Limits,
}

/// A StoragePolicy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyState {
    pub name: String,
    pub spec: StoragePolicySpec,
    /// When the API server created it.
    pub created: Option<Timestamp>,
}

/// A StorageAction that is about to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ActionState {
    pub namespace: String,
    pub name: String,
    pub spec: StorageActionSpec,
    pub status: StorageActionStatus,
    /// Asked for each step anew.
    pub answer: Reading<Answer>,
}

impl ActionState {
    /// `namespace/name`, as in the annotation of the volume.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The state of the controller and of all actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetState {
    /// When this process began to watch.
    pub started: Elapsed,
    pub nodes: u32,
    pub breaker: BreakerState,
    /// How much longer this process is the leader. None: it is not.
    pub lease_left: Option<std::time::Duration>,
    /// All actions that still exist. A failed reading refuses.
    pub actions: Reading<Vec<ActionSummary>>,
}

/// A gate that holds the case back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub gate: Gate,
    /// What was found, for people.
    pub text: String,
}

/// All gates that refuse, in the order of the table. Empty: the case may go on.
pub(crate) fn check(case: &Case<'_>, now: Now) -> Vec<Refusal> {
    let stage = if case.action.is_some() {
        Stage::Confirm
    } else {
        Stage::Propose
    };
    Gate::ALL
        .iter()
        .filter(|gate| gate.stage() <= stage)
        .filter_map(|&gate| refuse(gate, case, now).map(|text| Refusal { gate, text }))
        .collect()
}

fn refuse(gate: Gate, case: &Case<'_>, now: Now) -> Option<String> {
    match gate {
        Gate::PolicyInvalid
        | Gate::PolicySuspended
        | Gate::StoreWentBack
        | Gate::BreakerOpen
        | Gate::FleetPaused
        | Gate::ControllerYoung => of_controller(gate, case, now),
        Gate::ReportNotCurrent => matches!(case.sighting, Sighting::Unknown)
            .then(|| "the node's report is not current".to_owned()),
        Gate::FindingGone => finding_gone(case),
        Gate::NotApproved
        | Gate::EvidenceChanged
        | Gate::ApprovalExpired
        | Gate::BudgetUsed
        | Gate::LeaseShort
        | Gate::NoAnswer
        | Gate::NotSettled
        | Gate::OneWitness => of_action(gate, case, case.action?, now),
        Gate::Truncated
        | Gate::NotInaccessible
        | Gate::ReasonNotAllowed
        | Gate::Redundant
        | Gate::FindingAcknowledged
        | Gate::DriveInMaintenance
        | Gate::HoldNotOver
        | Gate::OlderThanInstallation
        | Gate::DaemonYoung
        | Gate::BootChanged
        | Gate::DriveElsewhere => of_report(gate, case, candidate(case)?, now),
        Gate::NodeNotReady | Gate::NodeUnschedulable | Gate::NodeMaintenance => {
            of_node(gate, case, candidate(case)?, now)
        }
        Gate::NotPinned
        | Gate::ClaimChanged
        | Gate::ClaimTerminating
        | Gate::NotLabeled
        | Gate::NotSelected => of_claim(gate, case, candidate(case)?),
        Gate::PodElsewhere
        | Gate::ReadyPod
        | Gate::NotStatefulSet
        | Gate::OrdinalNotWanted
        | Gate::RolloutUnderWay
        | Gate::NotWaitForFirstConsumer
        | Gate::HasDataSource
        | Gate::EmptyMemberNotDeclared
        | Gate::OtherClaimPinned => of_pod(gate, case, candidate(case)?),
        Gate::GroupUnknown
        | Gate::GroupNotReady
        | Gate::GroupInTrouble
        | Gate::NoRoomElsewhere
        | Gate::DisruptionBudget => of_group(gate, case, candidate(case)?),
    }
}

fn candidate<'a>(case: &Case<'a>) -> Option<&'a Candidate> {
    match case.sighting {
        Sighting::Listed(candidate) => Some(candidate),
        Sighting::Gone | Sighting::Unknown => None,
    }
}

fn of_controller(gate: Gate, case: &Case<'_>, now: Now) -> Option<String> {
    let policy = &case.policy.spec;
    let breaker = &case.fleet.breaker;
    match gate {
        Gate::PolicyInvalid if policy.hold_time().is_none() => Some(format!(
            "policy {}: hold {} is no time of at least 10m",
            case.policy.name, policy.hold
        )),
        Gate::PolicySuspended if policy.suspended => {
            Some(format!("policy {} is suspended", case.policy.name))
        }
        Gate::StoreWentBack => breaker.store_went_back(),
        Gate::BreakerOpen => breaker.open_without_store(),
        Gate::FleetPaused => breaker.paused(),
        Gate::ControllerYoung => {
            let age = now.elapsed.saturating_sub(case.fleet.started);
            (age < case.limits.controller_age)
                .then(|| format!("the controller has watched for {} s", age.as_secs()))
        }
        _ => None,
    }
}

fn finding_gone(case: &Case<'_>) -> Option<String> {
    if matches!(case.sighting, Sighting::Gone) {
        return Some("the node does not list the failure any more".to_owned());
    }
    let (candidate, action) = (candidate(case)?, case.action?);
    let answer = action.answer.as_ref().ok()?;
    // Before the daemon knows its state, what it does not list is unknown.
    (is_settled(answer) && answered(candidate, answer).is_none())
        .then(|| "the node's answer does not have the finding".to_owned())
}

fn answered<'a>(candidate: &Candidate, answer: &'a Answer) -> Option<&'a AnsweredFinding> {
    answer
        .findings
        .iter()
        .find(|finding| finding.drive == candidate.drive.id && finding.reason == candidate.reason)
}

fn is_settled(answer: &Answer) -> bool {
    answer.is_settled && answer.reads_inventory && answer.reads_kernel_log
}

fn of_report(gate: Gate, case: &Case<'_>, candidate: &Candidate, now: Now) -> Option<String> {
    let answer = case.action.and_then(|action| action.answer.as_ref().ok());
    let since = |since: Option<Elapsed>| since.map(|since| now.elapsed.saturating_sub(since));
    match gate {
        Gate::Truncated if candidate.is_truncated => {
            Some(format!("the report of node {} is cut", candidate.node))
        }
        Gate::NotInaccessible if !candidate.is_inaccessible => Some(candidate.volume_line()),
        Gate::ReasonNotAllowed if !case.policy.spec.allows(&candidate.reason) => {
            Some(format!("the policy does not allow {}", candidate.reason))
        }
        Gate::Redundant if candidate.is_redundant => {
            Some(format!("volume {} has redundancy", candidate.volume))
        }
        Gate::FindingAcknowledged => {
            let finding = answer.and_then(|answer| answered(candidate, answer));
            let acknowledged =
                candidate.is_acknowledged || finding.is_some_and(|finding| finding.is_acknowledged);
            acknowledged.then(|| format!("{} is acknowledged", candidate.finding_id()))
        }
        Gate::DriveInMaintenance if candidate.in_maintenance => {
            Some(format!("drive {} is under maintenance", candidate.drive.id))
        }
        Gate::HoldNotOver => {
            let hold = case.policy.spec.hold_time()? / case.limits.hold_divisor.max(1);
            match since(candidate.held_since) {
                Some(held) if held >= hold => None,
                Some(held) => Some(format!("{} s of {} s", held.as_secs(), hold.as_secs())),
                None => Some("it is not known since when it holds".to_owned()),
            }
        }
        Gate::OlderThanInstallation => match (candidate.since, case.policy.created) {
            (Some(since), Some(created)) if since >= created => None,
            (Some(since), Some(created)) => Some(format!(
                "it began at {since}, the policy was created at {created}"
            )),
            _ => Some("it is not known when it began, or when the policy was created".to_owned()),
        },
        Gate::DaemonYoung => match since(candidate.daemon_since) {
            Some(age) if age >= case.limits.daemon_age => None,
            age => Some(format!(
                "diskvitalsd {} has run for {} s",
                candidate.daemon_version,
                age.unwrap_or_default().as_secs()
            )),
        },
        Gate::BootChanged => boot_changed(case.action, candidate, answer),
        Gate::DriveElsewhere if !candidate.elsewhere.is_empty() => {
            let nodes: Vec<&str> = candidate.elsewhere.iter().map(String::as_str).collect();
            Some(format!(
                "drive {} is listed by {} too",
                candidate.drive.id,
                nodes.join(", ")
            ))
        }
        _ => None,
    }
}

fn boot_changed(
    action: Option<&ActionState>,
    candidate: &Candidate,
    answer: Option<&Answer>,
) -> Option<String> {
    if candidate.boot_id.is_empty() || candidate.machine_id.is_empty() {
        return Some("the node does not say which boot and machine it is".to_owned());
    }
    let node = action.map(|action| &action.spec.node);
    if node.is_some_and(|node| node.uid != candidate.node_uid) {
        return Some(format!("node {} is another object", candidate.node));
    }
    if node.is_some_and(|node| node.boot_id != candidate.boot_id)
        || answer.is_some_and(|answer| answer.boot_id != candidate.boot_id)
    {
        return Some(format!("node {} was started anew", candidate.node));
    }
    answer
        .is_some_and(|answer| answer.machine_id != candidate.machine_id)
        .then(|| format!("another machine answers as node {}", candidate.node))
}

fn of_node(gate: Gate, case: &Case<'_>, candidate: &Candidate, now: Now) -> Option<String> {
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
        Gate::NodeMaintenance if !node.maintenance.is_empty() => Some(format!(
            "node {} has {}",
            candidate.node,
            node.maintenance.join(", ")
        )),
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
        Some(ready) => Some(format!(
            "node {} has been Ready for {} s",
            candidate.node,
            ready.as_secs()
        )),
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

fn of_claim(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
    let volume = case.evidence.volume.as_ref();
    if gate == Gate::NotPinned {
        return match volume {
            Ok(Some(volume)) if volume.pinned_to.as_deref() == Some(&candidate.node) => None,
            Ok(Some(_)) => Some(format!(
                "volume {} is not tied to node {}",
                candidate.volume, candidate.node
            )),
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
    (!classes.is_empty() && !classes.contains(&claim.storage_class)).then(|| {
        format!(
            "the policy does not select storage class {}",
            claim.storage_class
        )
    })
}

fn of_pod(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
    let pod = match case.evidence.pod.as_ref() {
        Ok(Some(pod)) => pod,
        reading => {
            let name = format!("of claim {}", candidate.claim.name);
            return (gate == Gate::PodElsewhere).then(|| absent("pod", &name, reading));
        }
    };
    match gate {
        Gate::PodElsewhere => {
            let is_other = case
                .action
                .is_some_and(|action| action.spec.pod.uid != pod.uid);
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
        Gate::HasDataSource if template.has_source => Some(format!(
            "template {} of StatefulSet {} names a source",
            template.name, set.name
        )),
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
    let number: i32 = ordinal.parse().ok()?;
    // As Kubernetes writes it: no sign, no leading zeros.
    let is_canonical = number.to_string() == ordinal;
    let template = set
        .templates
        .iter()
        .find(|template| claim == format!("{}-{}", template.name, pod.name))?;
    is_canonical.then_some((number, template))
}

fn of_group(gate: Gate, case: &Case<'_>, candidate: &Candidate) -> Option<String> {
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
                format!(
                    "{ready} other members of {} are Ready on good drives, {wanted} are needed",
                    group.name
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

fn of_action(gate: Gate, case: &Case<'_>, action: &ActionState, now: Now) -> Option<String> {
    let spec = &action.spec;
    let is_approved = spec.approval == Approval::Approved;
    let answer = action.answer.as_ref();
    match gate {
        Gate::NotApproved => (!is_approved).then(|| "it waits for approval".to_owned()),
        Gate::EvidenceChanged if is_approved => {
            let is_same = hash(candidate(case)?, case.evidence) == spec.approved_hash;
            (!is_same).then(|| "the evidence changed after the approval".to_owned())
        }
        Gate::ApprovalExpired if is_approved => approval_expired(spec, case.limits, now),
        Gate::BudgetUsed => budget::refusal(case, action, now.wall),
        Gate::LeaseShort => match case.fleet.lease_left {
            Some(left) if left >= case.limits.lease_left => None,
            Some(left) => Some(format!("the lease ends in {} s", left.as_secs())),
            None => Some("this process does not lead".to_owned()),
        },
        Gate::NoAnswer => match answer {
            Ok(answer) => {
                let age = now.elapsed.saturating_sub(answer.asked_at);
                (age > case.limits.answer_age)
                    .then(|| format!("the answer is {} s old", age.as_secs()))
            }
            Err(why) => Some(format!("node {}: {why}", spec.node.name)),
        },
        Gate::NotSettled => (!is_settled(answer.ok()?))
            .then(|| format!("the daemon of node {} is not settled", spec.node.name)),
        Gate::OneWitness => {
            let finding = answered(candidate(case)?, answer.ok()?)?;
            let has = |kind| finding.witnesses.contains(&kind);
            let is_proven =
                has(Witness::KernelLog) && (has(Witness::Inventory) || has(Witness::Probe));
            (!is_proven).then(|| format!("witnesses: {:?}", finding.witnesses))
        }
        _ => None,
    }
}

fn approval_expired(spec: &StorageActionSpec, limits: &Limits, now: Now) -> Option<String> {
    let Some(approved) = spec.approved_at.as_ref() else {
        return Some("the time of the approval is missing".to_owned());
    };
    let age = now.wall.duration_since(approved.0);
    let skew = jiff::SignedDuration::try_from(limits.clock_skew).ok()?;
    let valid = jiff::SignedDuration::try_from(limits.approval).ok()?;
    (age < -skew || age >= valid).then(|| format!("it was approved at {}", approved.0))
}
