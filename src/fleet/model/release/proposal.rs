//! From a candidate that no gate holds back to the object that is proposed, and from all candidates
//! to the numbers of a policy.
//!
//! In: a candidate, its evidence, refusals. Out: name and spec of a StorageAction, its new evidence,
//! the counts of the status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::release::candidate::Candidate;
use crate::model::release::check::{ActionState, Refusal};
use crate::model::release::evidence::{Evidence, former_hash, hash, hash_of, lines};
use diskvitals_cluster::gate::Gate;
use diskvitals_cluster::storage_action::{
    ActionType, Approval, FindingRef, NodeRef, ObjectRef, StorageActionSpec, object_name,
    present_evidence,
};
use diskvitals_cluster::storage_policy::BlockedCount;

/// A StorageAction that is to be created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    pub namespace: String,
    pub name: String,
    pub spec: StorageActionSpec,
}

/// For the status of an action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EvidenceUpdate {
    pub lines: Vec<String>,
    pub hash: String,
    /// False: only its hash is made in another way than an earlier version made it.
    pub has_changed: bool,
}

/// None: an object that the action must name is not known.
pub(crate) fn proposal(
    policy: &str,
    candidate: &Candidate,
    evidence: &Evidence,
) -> Option<Proposal> {
    let pod = evidence.pod.as_ref().ok()?.as_ref()?;
    let volume = evidence.volume.as_ref().ok()?.as_ref()?;
    let group = evidence.group.as_ref().ok()?.as_ref()?;
    let spec = StorageActionSpec {
        kind: ActionType::Release,
        policy: policy.to_owned(),
        claim: ObjectRef { name: candidate.claim.name.clone(), uid: candidate.claim.uid.clone() },
        persistent_volume: ObjectRef { name: candidate.volume.clone(), uid: volume.uid.clone() },
        pod: ObjectRef { name: pod.name.clone(), uid: pod.uid.clone() },
        node: NodeRef {
            name: candidate.node.clone(),
            uid: candidate.node_uid.clone(),
            boot_id: candidate.boot_id.clone(),
        },
        drive: candidate.drive.clone(),
        finding: FindingRef {
            id: candidate.finding_id(),
            reason: candidate.reason.clone(),
            since: candidate.since.map(Time),
        },
        group: group.name.clone(),
        evidence: lines(candidate, evidence),
        evidence_hash: hash(candidate, evidence)?,
        approval: Approval::Pending,
        ..StorageActionSpec::default()
    };
    Some(Proposal {
        namespace: candidate.claim.namespace.clone(),
        name: object_name(&candidate.claim.name, &hash_of(&candidate.identity(&pod.uid))),
        spec,
    })
}

/// Whether both are about the same objects, boot, drive and reason. Their names do not show it: an
/// earlier version made them in another way.
pub(crate) fn is_same_intervention(one: &StorageActionSpec, other: &StorageActionSpec) -> bool {
    let identity = |it: &StorageActionSpec| {
        [
            &it.claim.uid,
            &it.persistent_volume.name,
            &it.pod.uid,
            &it.node.uid,
            &it.node.boot_id,
            &it.drive.id,
            &it.finding.reason,
        ]
        .map(String::clone)
    };
    identity(one) == identity(other)
}

/// For an action whose evidence is no longer that of the spec, or that
/// of the status.
pub(crate) fn evidence_update(
    action: &ActionState,
    candidate: &Candidate,
    evidence: &Evidence,
) -> Option<EvidenceUpdate> {
    let hash = hash(candidate, evidence)?;
    let (_, known) = present_evidence(&action.spec, Some(&action.status));
    if known == hash {
        return None;
    }
    let has_changed = former_hash(candidate, evidence)? != known;
    // What a person has approved keeps its hash.
    let is_kept = !has_changed && action.spec.approval == Approval::Approved;
    (!is_kept).then(|| EvidenceUpdate { lines: lines(candidate, evidence), hash, has_changed })
}

/// Numbers of a policy's status: candidates that nothing holds back, and the others by their first
/// gate.
pub(crate) fn tally<'a>(
    checked: impl IntoIterator<Item = &'a [Refusal]>,
) -> (u32, Vec<BlockedCount>) {
    let mut would_act = 0;
    let mut blocked: BTreeMap<Gate, u32> = BTreeMap::new();
    for refusals in checked {
        match refusals.first() {
            None => would_act += 1,
            Some(refusal) => *blocked.entry(refusal.gate).or_default() += 1,
        }
    }
    let blocked = blocked
        .into_iter()
        .map(|(gate, count)| BlockedCount { gate: gate.name().to_owned(), count });
    (would_act, blocked.collect())
}
