//! What is read for one decision, without a cache, and what of it people are shown.
//!
//! In: readings. Out: lines of evidence, and a hash of what they say. Each reading may have failed;
//! then its gate refuses.

use std::collections::BTreeMap;

use crate::model::release::candidate::Candidate;
use crate::model::{Claim, Elapsed};
use diskvitals_cluster::node_storage::{AnsweredFinding, Health};
use diskvitals_cluster::storage_action::{MAX_EVIDENCE, MAX_LINE_LEN, ObjectRef};
use diskvitals_text::hash::{fnv1a_64, fnv1a_128, sha256};

/// One reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading<T> {
    Read(T),
    /// Why there is none.
    Failed(String),
}

impl<T> Default for Reading<T> {
    fn default() -> Reading<T> {
        Reading::Failed("not read".to_owned())
    }
}

impl<T> Reading<T> {
    pub(crate) fn as_ref(&self) -> Result<&T, &str> {
        match self {
            Reading::Read(value) => Ok(value),
            Reading::Failed(why) => Err(why),
        }
    }

    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Read(value) => Reading::Read(of(value)),
            Reading::Failed(why) => Reading::Failed(why),
        }
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, Reading::Failed(_))
    }
}

/// What is read from the API server for one candidate. `None` inside a reading: the object does not
/// exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Evidence {
    /// The policy's selector against the labels of the claim's namespace.
    pub namespace_is_selected: Reading<bool>,
    pub node: Reading<Option<NodeState>>,
    pub volume: Reading<Option<VolumeState>>,
    pub claim: Reading<Option<ClaimState>>,
    /// The pod that uses the claim. None: no pod does.
    pub pod: Reading<Option<PodState>>,
    /// The other PersistentVolumeClaims of the pod.
    pub other_claims: Reading<Vec<OtherClaim>>,
    pub stateful_set: Reading<Option<StatefulSetState>>,
    pub storage_class: Reading<Option<StorageClassState>>,
    /// None: the pod carries none of the labels.
    pub group: Reading<Option<GroupState>>,
    /// Names of other nodes on which the new claim finds room: ready, schedulable, and enough
    /// capacity published for the storage class.
    pub room: Reading<Vec<String>>,
    pub eviction: Reading<DryRun>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub uid: String,
    pub is_ready: bool,
    pub is_unschedulable: bool,
    /// Conditions that are not False: `MaintenancePlanned`, `MaintenanceInProgress`,
    /// `DrainInProgress`.
    pub maintenance: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeState {
    pub uid: String,
    /// The one node that its affinity ties it to.
    pub pinned_to: Option<String>,
    /// Its claimRef.
    pub claim: Option<Claim>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimState {
    pub uid: String,
    pub volume_name: String,
    pub labels: BTreeMap<String, String>,
    pub is_terminating: bool,
    pub storage_class: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodState {
    pub name: String,
    pub uid: String,
    pub node: String,
    /// The condition Ready is True.
    pub is_ready: bool,
    /// The controlling owner, if it is a StatefulSet.
    pub stateful_set: Option<ObjectRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherClaim {
    pub name: String,
    /// Its volume can be used on another node: none is bound yet, or it is not tied to one node.
    pub is_movable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatefulSetState {
    pub name: String,
    pub uid: String,
    pub replicas: i32,
    /// `spec.ordinals.start`.
    pub first_ordinal: i32,
    /// Spec not observed yet, or revisions differ, or it is being deleted.
    pub is_rolling_out: bool,
    /// Value of the annotation `diskvitals.io/empty-member`.
    pub empty_member: Option<String>,
    pub templates: Vec<ClaimTemplate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimTemplate {
    pub name: String,
    /// dataSource, dataSourceRef, volumeName or selector.
    pub has_source: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageClassState {
    pub waits_for_first_consumer: bool,
}

/// The pods and claims that share the pod's group label, in its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// `label=value`.
    pub name: String,
    /// Without the pod itself.
    pub peers: Vec<Peer>,
    /// Without the claim itself.
    pub claims: Vec<GroupClaim>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub name: String,
    pub is_ready: bool,
    /// Worst health of the drives below its volumes, as their nodes report them now.
    pub drives: Health,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupClaim {
    pub name: String,
    pub is_pending: bool,
    pub is_terminating: bool,
    /// Named by a StorageAction that has not ended, or is stuck.
    pub is_in_action: bool,
}

/// Eviction of the pod with dryRun=All and its uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DryRun {
    Allowed,
    /// 429, or another refusal, with the API server's text.
    Refused(String),
}

/// The node's answer to a challenge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// Monotonic time at which the challenge with this nonce was written.
    pub asked_at: Elapsed,
    pub boot_id: String,
    pub machine_id: String,
    pub is_settled: bool,
    pub reads_inventory: bool,
    pub reads_kernel_log: bool,
    /// What could not be read, each with its source.
    pub missing: Vec<String>,
    pub findings: Vec<AnsweredFinding>,
}

/// Why an action is proposed, for people.
pub(crate) fn lines(candidate: &Candidate, evidence: &Evidence) -> Vec<String> {
    let mut lines = vec![candidate.drive_line(), candidate.volume_line()];
    if let Ok(Some(pod)) = evidence.pod.as_ref() {
        let state = if pod.is_ready { "Ready" } else { "not Ready" };
        lines.push(format!("pod {} on node {} is {state}", pod.name, pod.node));
    }
    if let Ok(Some(set)) = evidence.stateful_set.as_ref() {
        let declared = set.empty_member.as_deref().unwrap_or("nothing");
        lines.push(format!(
            "StatefulSet {} wants {} replicas and declares {declared} about empty members",
            set.name, set.replicas
        ));
    }
    if let Ok(Some(group)) = evidence.group.as_ref() {
        let ready: Vec<&str> = group
            .peers
            .iter()
            .filter(|peer| peer.counts())
            .map(|peer| peer.name.as_str())
            .collect();
        lines.push(format!(
            "other members of {} that are Ready on good drives: {}",
            group.name,
            list(&ready)
        ));
    }
    if let Ok(room) = evidence.room.as_ref() {
        let names: Vec<&str> = room.iter().map(String::as_str).collect();
        lines.push(format!("nodes with room for the new volume: {}", list(&names)));
    }
    lines.truncate(MAX_EVIDENCE);
    for line in &mut lines {
        *line = diskvitals_text::echo::truncate(line, MAX_LINE_LEN);
    }
    lines
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Peer {
    /// Whether the group can rely on it.
    pub(crate) fn counts(&self) -> bool {
        self.is_ready && self.drives == Health::Good
    }
}

/// What an approval is about: which objects, which drive, why, and what was declared. No time, no
/// text, nothing that moves while the case stays the same. None: a part of it could not be read.
pub(crate) fn hash(candidate: &Candidate, evidence: &Evidence) -> Option<String> {
    let facts = Facts::new(candidate, evidence)?;
    let texts = facts.texts.iter().map(String::as_str);
    let claims = facts.claims.iter().copied();
    let all: Vec<&str> = facts.identity.into_iter().chain(texts).chain(claims).collect();
    Some(hash_of(&all))
}

/// As earlier versions made it, with 32 digits. A node could choose the id of its drive so that other
/// evidence has the same one: it serves approvals that were given before the upgrade, until they
/// expire.
pub(crate) fn former_hash(candidate: &Candidate, evidence: &Evidence) -> Option<String> {
    let facts = Facts::new(candidate, evidence)?;
    let identity = fnv1a_64(facts.identity.join("\0").bytes());
    let texts = facts.texts.join("\0\0");
    let claims = facts.claims.join("\0");
    let text = format!("{identity:016x}\0\0{texts}\0\0{claims}");
    Some(format!("{:032x}", fnv1a_128(text.bytes())))
}

/// 64 digits. As JSON, no text can end one part and begin the next.
pub(crate) fn hash_of(parts: &[&str]) -> String {
    sha256(serde_json::json!(parts).to_string().as_bytes())
}

struct Facts<'a> {
    identity: [&'a str; 7],
    texts: [String; 6],
    claims: Vec<&'a str>,
}

impl<'a> Facts<'a> {
    fn new(candidate: &'a Candidate, evidence: &'a Evidence) -> Option<Facts<'a>> {
        let pod = evidence.pod.as_ref().ok()?.as_ref();
        let set = evidence.stateful_set.as_ref().ok()?.as_ref();
        let group = evidence.group.as_ref().ok()?.as_ref();
        let mut claims: Vec<&str> =
            evidence.other_claims.as_ref().ok()?.iter().map(|claim| claim.name.as_str()).collect();
        claims.sort_unstable();
        let empty_member = set.and_then(|set| set.empty_member.as_deref());
        Some(Facts {
            identity: candidate.identity(pod.map_or("", |pod| &pod.uid)),
            texts: [
                candidate.machine_id.clone(),
                candidate.is_inaccessible.to_string(),
                candidate.is_redundant.to_string(),
                set.map_or("", |set| &set.uid).to_owned(),
                empty_member.unwrap_or_default().to_owned(),
                group.map_or("", |group| &group.name).to_owned(),
            ],
            claims,
        })
    }
}
