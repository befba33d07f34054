//! Actions and policies of the controller, as people see them: what waits for whom, what holds it
//! back, what became of it. Pure: records and the time in, rows out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::actions::{ActionRecord, Meta, PolicyRecord};
use crate::view::claims::ClaimRow;
use crate::view::{Gap, Read};
use diskvitals_cluster::gate::Gate;
use diskvitals_cluster::storage_action::{
    ABORTED, APPROVAL_LIFETIME, Approval, CLAIM_DELETED, CONFIRMED, NOT_CARRIED_OUT, POD_EVICTED,
    PREPARED, REPLACED, STUCK, StorageActionSpec, StorageActionStatus, present_evidence,
};
use diskvitals_cluster::storage_policy::BREAKER_OPEN;

/// What the controller carries out, in order.
const STEP_CONDITIONS: [&str; 5] = [CONFIRMED, PREPARED, CLAIM_DELETED, POD_EVICTED, REPLACED];

/// In the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum State {
    /// For a person's approval.
    Waiting,
    Stuck,
    /// Approved and confirmed; a person carries it out.
    ByHand,
    Running,
    /// And not begun.
    Approved,
    /// The approval is too old, or about other evidence. The controller takes it back.
    ApprovalInvalid,
    /// This version cannot read it.
    Unknown,
    Replaced,
    Aborted,
    Rejected,
}

impl State {
    pub(crate) fn is_finished(self) -> bool {
        matches!(self, State::Replaced | State::Aborted | State::Rejected)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Drive {
    pub id: String,
    pub model: String,
    pub serial: String,
    pub slot: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    pub time: Option<Timestamp>,
    pub text: String,
}

/// What holds an action back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Block {
    pub gate: String,
    pub meaning: String,
    pub advice: String,
}

impl Block {
    pub(crate) fn of(name: &str) -> Option<Block> {
        if name.is_empty() {
            return None;
        }
        let (meaning, advice) = match name.parse::<Gate>() {
            Ok(gate) => (gate.meaning(), gate.advice()),
            Err(_) => (
                "The controller has a gate that this version of the plugin does not know.",
                "Use the plugin of the controller's version.",
            ),
        };
        Some(Block {
            gate: name.to_owned(),
            meaning: meaning.to_owned(),
            advice: advice.to_owned(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActionRow {
    pub namespace: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub state: State,
    /// Why it has this state: of a stuck, aborted or approved one the controller's words.
    pub why: String,
    pub claim: String,
    pub volume: String,
    #[serde(rename = "volumeUID")]
    pub volume_uid: String,
    pub pod: String,
    pub node: String,
    pub drive: Drive,
    pub reason: String,
    pub since: Option<Timestamp>,
    pub group: String,
    pub policy: String,
    /// The last step that was done.
    pub step: String,
    pub blocked_by: Option<Block>,
    pub approved_by: String,
    pub approved_at: Option<Timestamp>,
    /// Until when the approval is valid.
    pub valid_until: Option<Timestamp>,
    pub note: String,
    pub evidence: Vec<String>,
    pub evidence_hash: String,
    /// The evidence is no longer that of the proposal.
    pub has_new_evidence: bool,
    pub steps: Vec<Line>,
    pub created: Option<Timestamp>,
}

pub(crate) fn action(record: &ActionRecord, now: Timestamp) -> ActionRow {
    let Meta { namespace, name, created, note, .. } = record.meta.clone();
    let unreadable = Default::default();
    let (spec, status) = record.content.as_ref().unwrap_or(&unreadable);
    let (evidence, hash) = present_evidence(spec, Some(status));
    let (state, why) = state(record, now);
    let approved_at = spec.approved_at.as_ref().map(|time| time.0);
    let is_approved = spec.approval == Approval::Approved;
    let node = &spec.node.name;
    ActionRow {
        namespace,
        name,
        kind: record.kind.clone(),
        state,
        why,
        claim: spec.claim.name.clone(),
        volume: spec.persistent_volume.name.clone(),
        volume_uid: spec.persistent_volume.uid.clone(),
        pod: spec.pod.name.clone(),
        node: node.clone(),
        drive: Drive {
            id: spec.drive.id.clone(),
            model: spec.drive.model.clone(),
            serial: spec.drive.serial.clone(),
            slot: spec.drive.slot.clone(),
        },
        reason: spec.finding.reason.clone(),
        since: spec.finding.since.as_ref().map(|time| time.0),
        group: spec.group.clone(),
        policy: spec.policy.clone(),
        step: last_step(status).to_owned(),
        blocked_by: match state.is_finished() {
            true => None,
            false => Block::of(&status.blocked_by),
        },
        approved_by: spec.approved_by.clone(),
        approved_at,
        valid_until: approved_at.filter(|_| is_approved).and_then(valid_until),
        note,
        evidence: evidence.to_vec(),
        evidence_hash: hash.to_owned(),
        has_new_evidence: hash != spec.evidence_hash,
        steps: status
            .steps
            .iter()
            .map(|step| Line { time: Some(step.time.0), text: step.text.clone() })
            .collect(),
        created,
    }
}

/// The conditions are set with the steps; the text may be of an earlier one.
fn last_step(status: &StorageActionStatus) -> &str {
    let done = STEP_CONDITIONS.iter().rev().find(|it| status.has(it));
    done.copied().unwrap_or(&status.step)
}

fn valid_until(approved_at: Timestamp) -> Option<Timestamp> {
    let lifetime = jiff::SignedDuration::try_from(APPROVAL_LIFETIME).ok()?;
    approved_at.checked_add(lifetime).ok()
}

fn message(status: &StorageActionStatus, condition: &str, value: &str) -> String {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|it| it.type_ == condition && it.status == value);
    match found {
        Some(found) if !found.message.is_empty() => found.message.clone(),
        Some(found) => found.reason.clone(),
        None => String::new(),
    }
}

fn state(record: &ActionRecord, now: Timestamp) -> (State, String) {
    let (spec, status) = match &record.content {
        Ok((spec, status)) => (spec, status),
        Err(why) => {
            return (State::Unknown, format!("this version cannot read it: {why}"));
        }
    };
    // What has ended has ended, whatever a newer version calls its approval.
    for (condition, state) in
        [(REPLACED, State::Replaced), (ABORTED, State::Aborted), (STUCK, State::Stuck)]
    {
        if status.has(condition) {
            return (state, message(status, condition, "True"));
        }
    }
    // Beyond the point of no return an approval decides nothing.
    if status.has(CLAIM_DELETED) || status.has(POD_EVICTED) {
        return under_way(status, State::Running);
    }
    match record.approval.as_str() {
        "" | "Pending" => (State::Waiting, String::new()),
        "Rejected" => (State::Rejected, String::new()),
        "Approved" => approved(spec, status, now),
        other => (State::Unknown, format!("this version does not know the approval `{other}`")),
    }
}

fn approved(
    spec: &StorageActionSpec,
    status: &StorageActionStatus,
    now: Timestamp,
) -> (State, String) {
    let until = spec.approved_at.as_ref().and_then(|at| valid_until(at.0));
    if until.is_none_or(|until| now >= until) {
        let why = "the approval has expired; the controller takes it back";
        return (State::ApprovalInvalid, why.to_owned());
    }
    if spec.approved_hash != present_evidence(spec, Some(status)).1 {
        let why = "the evidence has changed since the approval; the controller takes it back";
        return (State::ApprovalInvalid, why.to_owned());
    }
    match status.has(CONFIRMED) || status.has(PREPARED) {
        true => under_way(status, State::Running),
        false => under_way(status, State::Approved),
    }
}

/// With the commands for a person, or why it does not go on: the condition of its next step is False.
fn under_way(status: &StorageActionStatus, state: State) -> (State, String) {
    let mut furthest = STEP_CONDITIONS.iter().rev().filter_map(|step| {
        let mut conditions = status.conditions.iter();
        conditions.find(|it| it.type_ == *step)
    });
    let Some(held) = furthest.next().filter(|it| it.status == "False") else {
        return (state, String::new());
    };
    let why = message(status, &held.type_, "False");
    match held.reason == NOT_CARRIED_OUT {
        // Also of one that was begun, when its namespace is no longer listed.
        true => (State::ByHand, why),
        false => (state, why),
    }
}

/// Waiting ones first, then those under way, then those that have ended; the oldest first.
pub(crate) fn actions(records: &[ActionRecord], now: Timestamp) -> Vec<ActionRow> {
    let mut rows: Vec<ActionRow> = records.iter().map(|it| action(it, now)).collect();
    rows.sort_by_cached_key(|row| {
        (row.state, row.created, row.namespace.clone(), row.name.clone())
    });
    rows
}

/// Why a person cannot decide about the action. None: he can.
pub(crate) fn undecidable(row: &ActionRow) -> Option<String> {
    let by = match row.approved_by.as_str() {
        "" => String::new(),
        name => format!(" by {name}"),
    };
    let why = match row.state {
        State::Waiting if row.kind != "Release" => {
            format!("this version does not know what an action of the type `{}` does", row.kind)
        }
        State::Waiting if row.evidence_hash.is_empty() => {
            "it has no hash of its evidence: there is nothing to decide about".to_owned()
        }
        State::Waiting => return None,
        State::Approved | State::ByHand | State::Running => format!("it is approved already{by}"),
        State::ApprovalInvalid => {
            format!("it was approved{by}, and {}. Decide when it waits for approval again", row.why)
        }
        State::Stuck => format!("it is under way and stuck: {}", row.why),
        State::Rejected => format!("it is rejected{by}; that is final"),
        State::Replaced => "it is done: the volume was replaced".to_owned(),
        State::Aborted => format!("it was aborted: {}", row.why),
        State::Unknown => row.why.clone(),
    };
    Some(why)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Breaker {
    /// What opened it.
    pub opener: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Blocked {
    pub gate: String,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyRow {
    pub name: String,
    pub mode: String,
    pub suspended: bool,
    pub would_act: u32,
    pub acted: u32,
    pub blocked: Vec<Blocked>,
    /// None: the breaker is not open.
    pub breaker: Option<Breaker>,
    /// The controller has not judged this spec yet, or this version cannot read it. Then the numbers
    /// mean nothing.
    pub unknown: Option<String>,
}

pub(crate) fn policy(record: &PolicyRecord) -> PolicyRow {
    let generation = record.meta.generation;
    let unreadable = Default::default();
    let (spec, status) = record.content.as_ref().unwrap_or(&unreadable);
    let mut conditions = status.conditions.iter();
    let open = conditions.find(|it| it.type_ == BREAKER_OPEN && it.status != "False");
    let unknown = match &record.content {
        Err(why) => Some(format!("this version cannot read it: {why}")),
        Ok((_, status)) if status.observed_generation.is_none() => {
            Some("the controller has not judged it yet (duty `release`)".to_owned())
        }
        Ok((_, status)) if generation.is_some_and(|it| status.observed_generation < Some(it)) => {
            Some("the controller has not judged its last change yet".to_owned())
        }
        Ok(_) => None,
    };
    PolicyRow {
        name: record.meta.name.clone(),
        mode: record.mode.clone(),
        suspended: spec.suspended,
        would_act: status.would_act,
        acted: status.acted,
        blocked: status
            .blocked
            .iter()
            .map(|it| Blocked { gate: it.gate.clone(), count: it.count })
            .collect(),
        breaker: open.map(|it| Breaker {
            opener: it.reason.clone(),
            message: it.message.clone(),
            since: Some(it.last_transition_time.0),
        }),
        unknown,
    }
}

/// What the controller proposes, and by which policies.
pub(crate) struct Remediation {
    pub actions: Read<Vec<ActionRow>>,
    pub policies: Read<Vec<PolicyRow>>,
}

impl Remediation {
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let actions = self.actions.as_ref().err().map(|why| {
            let why = format!("{why}; whether an action waits or is stuck is not known");
            Gap::new("storageactions", why)
        });
        let policies = self.policies.as_ref().err().map(|why| {
            let why = format!("{why}; whether a breaker is open is not known");
            Gap::new("storagepolicies", why)
        });
        actions.into_iter().chain(policies).collect()
    }

    /// Actions that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &ActionRow> {
        let rows = self.actions.as_deref().unwrap_or_default();
        rows.iter().filter(|row| !row.state.is_finished())
    }

    pub(crate) fn open_breakers(&self) -> Vec<PolicyRow> {
        let rows = self.policies.as_deref().unwrap_or_default();
        let open = rows.iter().filter(|row| row.breaker.is_some());
        open.cloned().collect()
    }

    /// Writes on each claim what the controller would do, and what holds it back.
    pub(crate) fn mark(&self, claims: &mut [ClaimRow]) {
        for claim in claims.iter_mut().filter(|it| it.is_of_kubernetes) {
            // Of a volume that the caller may not read the claim is not known; its name is enough.
            let is_of_it = |row: &&ActionRow| {
                row.volume == claim.volume
                    && (claim.claim.is_empty()
                        || (&row.namespace, &row.claim) == (&claim.namespace, &claim.claim))
            };
            if let Some(row) = self.open().find(is_of_it) {
                claim.action = short(row);
            }
        }
    }
}

/// An action in a few words.
pub(crate) fn short(row: &ActionRow) -> String {
    let kind = row.kind.to_lowercase();
    match (&row.state, &row.blocked_by) {
        (State::Stuck, _) => format!("{kind} STUCK"),
        // It is what waiting means.
        (State::Waiting, Some(block)) if block.gate != Gate::NotApproved.name() => {
            format!("{kind} held by {}", block.gate)
        }
        (State::Waiting, _) => format!("{kind} waits for approval"),
        (State::Approved, Some(block)) => format!("{kind} approved, held by {}", block.gate),
        (State::ByHand, _) => format!("{kind} to be done by hand"),
        (State::Running, Some(block)) => {
            format!("{kind} under way: {}, held by {}", row.step, block.gate)
        }
        (State::Running, None) => format!("{kind} under way: {}", row.step),
        (State::Approved, None) => format!("{kind} approved"),
        (State::ApprovalInvalid, _) => format!("{kind}: approval invalid"),
        (State::Unknown, _) => format!("{kind}: unknown"),
        (State::Replaced | State::Aborted | State::Rejected, _) => format!("{kind} ended"),
    }
}

/// How long an approval is still valid.
pub(crate) fn time_left(row: &ActionRow, now: Timestamp) -> Option<Duration> {
    let left = row.valid_until?.duration_since(now);
    Duration::try_from(left).ok()
}
