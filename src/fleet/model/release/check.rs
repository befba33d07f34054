//! What each gate looks at.
//!
//! In: one case. Out: the gates that refuse it, with the reason in words. A reading that failed is
//! refused by one gate, the one that names what could not be read; the gates that look at its fields
//! leave it to that one.

mod objects;

use jiff::Timestamp;

use crate::model::Elapsed;
use crate::model::release::breaker::BreakerState;
use crate::model::release::budget::{self, ActionSummary};
use crate::model::release::candidate::{Candidate, Sighting};
use crate::model::release::evidence::{Answer, Evidence, Reading, former_hash, hash};
use crate::model::release::{Limits, Now};
use diskvitals_cluster::gate::{Effect, Gate, Stage};
use diskvitals_cluster::node_storage::{AnsweredFinding, TimeSpan, Witness};
use diskvitals_cluster::storage_action::{Approval, StorageActionSpec, StorageActionStatus};
use diskvitals_cluster::storage_policy::{Mode, StoragePolicySpec, StoragePolicyStatus};

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

impl PolicyState {
    /// It no longer exists, or cannot be read: everything is refused.
    pub(crate) fn unreadable(name: &str) -> PolicyState {
        PolicyState {
            name: name.to_owned(),
            spec: StoragePolicySpec { hold: String::new(), ..StoragePolicySpec::default() },
            created: None,
        }
    }

    fn is_unreadable(&self) -> bool {
        *self == PolicyState::unreadable(&self.name)
    }
}

/// A StoragePolicy object, reduced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyObject {
    pub uid: String,
    pub resource_version: String,
    pub generation: Option<i64>,
    pub state: PolicyState,
    pub status: StoragePolicyStatus,
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
    /// That of the gate; a reading that failed only holds, because it says nothing.
    pub effect: Effect,
    /// What was found, for people.
    pub text: String,
}

/// All gates that refuse, in the order of the table. Empty: the case may go on.
pub(crate) fn check(case: &Case<'_>, now: Now) -> Vec<Refusal> {
    let stage = if case.action.is_some() { Stage::Confirm } else { Stage::Propose };
    Gate::ALL
        .iter()
        .filter(|gate| gate.stage() <= stage)
        .filter_map(|&gate| {
            refuse(gate, case, now).map(|text| Refusal {
                gate,
                effect: if is_unread(gate, case) { Effect::Hold } else { gate.effect() },
                text,
            })
        })
        .collect()
}

/// Whether what the gate looks at is not known.
fn is_unread(gate: Gate, case: &Case<'_>) -> bool {
    let evidence = case.evidence;
    match gate {
        Gate::BootChanged => {
            candidate(case).is_some_and(|it| it.boot_id.is_empty() || it.machine_id.is_empty())
        }
        Gate::NotPinned => evidence.volume.is_failed(),
        Gate::ClaimChanged => evidence.claim.is_failed(),
        Gate::NotSelected => evidence.namespace_is_selected.is_failed(),
        Gate::PodElsewhere => evidence.pod.is_failed(),
        Gate::NotStatefulSet => evidence.stateful_set.is_failed(),
        Gate::NotWaitForFirstConsumer => evidence.storage_class.is_failed(),
        Gate::OtherClaimPinned => evidence.other_claims.is_failed(),
        _ => false,
    }
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
            objects::of_node(gate, case, candidate(case)?, now)
        }
        Gate::NotPinned
        | Gate::ClaimChanged
        | Gate::ClaimTerminating
        | Gate::NotLabeled
        | Gate::NotSelected => objects::of_claim(gate, case, candidate(case)?),
        Gate::PodElsewhere
        | Gate::ReadyPod
        | Gate::NotStatefulSet
        | Gate::OrdinalNotWanted
        | Gate::RolloutUnderWay
        | Gate::NotWaitForFirstConsumer
        | Gate::HasDataSource
        | Gate::EmptyMemberNotDeclared
        | Gate::OtherClaimPinned => objects::of_pod(gate, case, candidate(case)?),
        Gate::GroupUnknown
        | Gate::GroupNotReady
        | Gate::GroupInTrouble
        | Gate::NoRoomElsewhere
        | Gate::DisruptionBudget => objects::of_group(gate, case, candidate(case)?),
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
        Gate::PolicyInvalid if case.policy.is_unreadable() => {
            Some(format!("policy {} was deleted, or its spec cannot be read", case.policy.name))
        }
        Gate::PolicyInvalid if policy.hold_time().is_none() => Some(format!(
            "policy {}: hold `{}` is no time of at least 10m",
            case.policy.name, policy.hold
        )),
        Gate::PolicySuspended if policy.suspended => {
            Some(format!("policy {} is suspended", case.policy.name))
        }
        // It may have proposed before.
        Gate::PolicySuspended if case.action.is_some() && policy.mode == Mode::Observe => {
            Some(format!("policy {} only observes", case.policy.name))
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
        return Some("the node no longer lists the failure".to_owned());
    }
    let (candidate, action) = (candidate(case)?, case.action?);
    let answer = action.answer.as_ref().ok()?;
    // Before the daemon knows its state, what it does not list is unknown.
    (unsettled(answer).is_none() && answered(candidate, answer).is_none())
        .then(|| "the node's answer does not have the finding".to_owned())
}

fn answered<'a>(candidate: &Candidate, answer: &'a Answer) -> Option<&'a AnsweredFinding> {
    answer.findings.iter().find(|finding| {
        finding.drive_id == candidate.drive.id && finding.reason == candidate.reason
    })
}

/// What the answer does not rest on, and why.
fn unsettled(answer: &Answer) -> Option<String> {
    let what = match (answer.is_settled, answer.reads_inventory, answer.reads_kernel_log) {
        (false, _, _) => "the daemon has not read everything since its start",
        (_, false, _) => "the daemon does not read its drives",
        (_, _, false) => "the daemon does not read its kernel log",
        (true, true, true) => return None,
    };
    let parts = std::iter::once(what).chain(answer.missing.iter().map(String::as_str));
    Some(parts.collect::<Vec<_>>().join("; "))
}

/// Two kinds of source see the failure: the kernel log, and a scan or probe of now. Where the log has
/// lost records of that time: a scan of now, and a counter or a probe.
fn is_proven(finding: &AnsweredFinding) -> bool {
    let has = |kind| finding.witnesses.contains(&kind);
    let by_log = has(Witness::KernelLog) && (has(Witness::Inventory) || has(Witness::Probe));
    let without_log = has(Witness::Inventory) && (has(Witness::Counter) || has(Witness::Probe));
    by_log || (finding.records_lost.is_some() && without_log)
}

fn witnesses(finding: &AnsweredFinding) -> String {
    let kinds: Vec<String> = finding.witnesses.iter().map(|kind| format!("{kind:?}")).collect();
    let lost = finding.records_lost.as_ref().map(|TimeSpan { since, until }| {
        format!("; kernel-log has lost records since {:.0}, until {:.0}", since.0, until.0)
    });
    format!("witnesses: {}{}", kinds.join(", "), lost.unwrap_or_default())
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
                candidate.is_acknowledged || finding.is_some_and(|finding| finding.acknowledged);
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
            (Some(since), Some(created)) => {
                Some(format!("it began at {since}, the policy was created at {created}"))
            }
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
            Some(format!("drive {} is listed by {} too", candidate.drive.id, nodes.join(", ")))
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

fn of_action(gate: Gate, case: &Case<'_>, action: &ActionState, now: Now) -> Option<String> {
    let spec = &action.spec;
    let is_approved = spec.approval == Approval::Approved;
    let answer = action.answer.as_ref();
    match gate {
        Gate::NotApproved => (!is_approved).then(|| "it waits for approval".to_owned()),
        Gate::EvidenceChanged if is_approved => {
            // What could not be read is refused by its own gate, and is no change.
            let (candidate, evidence) = (candidate(case)?, case.evidence);
            let is_same = hash(candidate, evidence)? == spec.approved_hash
                || former_hash(candidate, evidence)? == spec.approved_hash;
            (!is_same).then(|| "the evidence changed after the approval".to_owned())
        }
        Gate::ApprovalExpired if is_approved => approval_expired(spec, case.limits, now),
        Gate::BudgetUsed => budget_used(case, action, now.wall),
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
        Gate::NotSettled => Some(format!("node {}: {}", spec.node.name, unsettled(answer.ok()?)?)),
        Gate::OneWitness => {
            let finding = answered(candidate(case)?, answer.ok()?)?;
            (!is_proven(finding)).then(|| witnesses(finding))
        }
        _ => None,
    }
}

fn budget_used(case: &Case<'_>, action: &ActionState, now: Timestamp) -> Option<String> {
    let actions = match case.fleet.actions.as_ref() {
        Ok(actions) => actions,
        Err(why) => return Some(format!("the actions could not be read: {why}")),
    };
    let (spec, status) = (&action.spec, &action.status);
    let own = ActionSummary::new(&action.namespace, &action.name, spec, status);
    let budget = &case.policy.spec.budget;
    budget::refusal(budget, case.fleet.nodes, actions, &own, now)
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
