//! From a candidate that no gate holds back to the object that is proposed, and from all candidates
//! to the numbers of a policy.
//!
//! In: a candidate, its evidence, refusals. Out: name and spec of a StorageAction, its new evidence,
//! the counts of the status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::cluster::gate::Gate;
use crate::cluster::storage_action::{
    ActionType, Approval, FindingRef, NodeRef, ObjectRef, StorageActionSpec, object_name,
    present_evidence,
};
use crate::cluster::storage_policy::BlockedCount;
use crate::fleet::model::release::candidate::Candidate;
use crate::fleet::model::release::check::{ActionState, Refusal};
use crate::fleet::model::release::evidence::{Evidence, hash, lines};

/// A StorageAction that is to be created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    pub namespace: String,
    pub name: String,
    pub spec: StorageActionSpec,
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
        claim: ObjectRef {
            name: candidate.claim.name.clone(),
            uid: candidate.claim.uid.clone(),
        },
        persistent_volume: ObjectRef {
            name: candidate.volume.clone(),
            uid: volume.uid.clone(),
        },
        pod: ObjectRef {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        },
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
        name: object_name(&candidate.claim.name, candidate.identity(&pod.uid)),
        spec,
    })
}

/// Lines and hash for the status of an action whose evidence is no longer that of the spec, or that
/// of the status.
pub(crate) fn evidence_update(
    action: &ActionState,
    candidate: &Candidate,
    evidence: &Evidence,
) -> Option<(Vec<String>, String)> {
    let hash = hash(candidate, evidence)?;
    let (_, known) = present_evidence(&action.spec, Some(&action.status));
    (known != hash).then(|| (lines(candidate, evidence), hash))
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
    let blocked = blocked.into_iter().map(|(gate, count)| BlockedCount {
        gate: gate.name().to_owned(),
        count,
    });
    (would_act, blocked.collect())
}
