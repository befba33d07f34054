//! `StorageAction` (`sta`): one intervention for one claim, in the namespace of the claim. It is the
//! proposal with its evidence, the record of the approval, the intent record of the steps and their
//! audit. The controller creates it before the first step, so that a second controller, or the same
//! one after a crash, meets it.
//!
//! In: nothing. Out: plain data, and the name of the object. The spec does not change, except for
//! the approval.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

/// Limits of the lists, in entries.
pub const MAX_EVIDENCE: usize = 8;
pub const MAX_STEPS: usize = 16;
/// Longest line of evidence or text of a step, in bytes.
pub const MAX_LINE_LEN: usize = 512;
/// How long an approval is valid.
pub const APPROVAL_LIFETIME: Duration = Duration::from_secs(3600);
/// Annotation: what the person who decided wrote about it.
pub const NOTE_ANNOTATION: &str = "diskvitals.io/note";
/// Longest name of an object (RFC 1123 subdomain).
const MAX_NAME_LEN: usize = 253;

/// Conditions, in the order of the steps.
pub const CONFIRMED: &str = "Confirmed";
pub const PREPARED: &str = "Prepared";
pub const CLAIM_DELETED: &str = "ClaimDeleted";
pub const POD_EVICTED: &str = "PodEvicted";
pub const REPLACED: &str = "Replaced";
/// Condition: a person must resolve it. The action keeps its share of the budget.
pub const STUCK: &str = "Stuck";
/// Condition: the action ended without having deleted anything.
pub const ABORTED: &str = "Aborted";

/// Reason of the condition of the next step where every gate is free and the approval is valid: a
/// person goes on.
pub const NOT_CARRIED_OUT: &str = "NotCarriedOut";

/// What is to be done, to which objects, and why. Immutable, except for the approval.
#[allow(clippy::duplicated_attributes, reason = "columns of one type are no duplicates")]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "fleet",
    kube(
        group = "diskvitals.io",
        version = "v1alpha1",
        kind = "StorageAction",
        plural = "storageactions",
        shortname = "sta",
        category = "diskvitals",
        namespaced,
        status = "StorageActionStatus",
        printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
        printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claim.name"),
        printcolumn(name = "Node", type_ = "string", json_path = ".spec.node.name"),
        printcolumn(name = "Drive", type_ = "string", json_path = ".spec.drive.id"),
        printcolumn(name = "Approval", type_ = "string", json_path = ".spec.approval"),
        printcolumn(
            name = "Step",
            type_ = "string",
            json_path = ".status.step",
            description = "The last step that was done"
        ),
        printcolumn(
            name = "Blocked-By",
            type_ = "string",
            json_path = ".status.blockedBy",
            description = "The gate that holds it back"
        ),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )
)]
#[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.approval == oldSelf.approval || oldSelf.approval == 'Pending' || (oldSelf.approval == 'Approved' && self.approval == 'Pending')",
        "message": "only a pending action can be approved or rejected; an approval can only be taken back to Pending",
    },
    {
        "rule": "self.approval == oldSelf.approval ? self.approvedBy == oldSelf.approvedBy && self.approvedHash == oldSelf.approvedHash && has(self.approvedAt) == has(oldSelf.approvedAt) && (!has(self.approvedAt) || self.approvedAt == oldSelf.approvedAt) : true",
        "message": "approvedBy, approvedAt and approvedHash change only together with approval",
    },
    {
        "rule": "self.approval != 'Approved' || (self.approvedBy != '' && self.approvedHash != '' && has(self.approvedAt))",
        "message": "an approval needs approvedBy, approvedAt and approvedHash: use kubectl diskvitals approve",
    },
])))]
#[serde(rename_all = "camelCase")]
pub struct StorageActionSpec {
    #[serde(rename = "type")]
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub kind: ActionType,
    /// Name of the StoragePolicy.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = immutable())))]
    pub policy: String,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub claim: ObjectRef,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub persistent_volume: ObjectRef,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub pod: ObjectRef,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub node: NodeRef,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub drive: DriveRef,
    #[cfg_attr(feature = "fleet", schemars(extend("x-kubernetes-validations" = immutable())))]
    pub finding: FindingRef,
    /// The pod's group, as `label=value`: a budget counts by it.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 400), extend("x-kubernetes-validations" = immutable())))]
    pub group: String,
    /// Why, in lines for people, as of the proposal.
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(
        length(max = MAX_EVIDENCE),
        inner(length(max = MAX_LINE_LEN)),
        extend("x-kubernetes-validations" = immutable())
    ))]
    pub evidence: Vec<String>,
    /// Hash of what the evidence says, without times. `status.evidenceHash` is the present one.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = immutable())))]
    pub evidence_hash: String,
    #[serde(default)]
    pub approval: Approval,
    /// User name of the person, as the API server knows it.
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(length(max = 512)))]
    pub approved_by: String,
    /// An approval is valid for one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "fleet", schemars(with = "Time"))]
    pub approved_at: Option<Time>,
    /// The evidence that the person saw. An approval is valid for this evidence only.
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(length(max = 64)))]
    pub approved_hash: String,
}

#[cfg(feature = "fleet")]
fn immutable() -> serde_json::Value {
    serde_json::json!([{"rule": "self == oldSelf", "message": "it does not change"}])
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum ActionType {
    /// The claim is deleted, the volume kept, and the pod gets a new claim on another node.
    Release,
    /// A type of a newer version: it is left alone.
    #[default]
    #[serde(other, skip_serializing)]
    #[cfg_attr(feature = "fleet", schemars(skip))]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum Approval {
    Approved,
    /// Final: this finding of this claim is not proposed again.
    Rejected,
    /// A value of a newer version reads as this one.
    #[default]
    #[serde(other)]
    Pending,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 253)))]
    pub name: String,
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 64)))]
    pub uid: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 253)))]
    pub name: String,
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 64)))]
    pub uid: String,
    /// Boot id of the kernel. After another boot the action is aborted.
    #[serde(rename = "bootID")]
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 64)))]
    pub boot_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DriveRef {
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 256)))]
    pub id: String,
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(length(max = 128)))]
    pub model: String,
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(length(max = 128)))]
    pub serial: String,
    #[serde(default)]
    #[cfg_attr(feature = "fleet", schemars(length(max = 128)))]
    pub slot: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FindingRef {
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 128)))]
    pub id: String,
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 64)))]
    pub reason: String,
    /// By the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "fleet", schemars(with = "Time"))]
    pub since: Option<Time>,
}

/// How far it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageActionStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last step that was done.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = 64)))]
    pub step: String,
    /// Name of the first gate that holds it back (docs/remediation.md).
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = 64)))]
    pub blocked_by: String,
    /// The evidence as it is now, where it is no longer that of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_EVIDENCE), inner(length(max = MAX_LINE_LEN))))]
    pub evidence: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = 64)))]
    pub evidence_hash: String,
    /// What was done and when, oldest first.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_STEPS)))]
    pub steps: Vec<StepRecord>,
    /// `Confirmed`, `Prepared`, `ClaimDeleted`, `PodEvicted`, `Replaced`, `Stuck`, `Aborted`.
    #[cfg_attr(feature = "fleet", schemars(length(max = 8)))]
    pub conditions: Vec<Condition>,
}

impl StorageActionStatus {
    /// Whether a condition is True. An absent one is not.
    pub fn has(&self, condition: &str) -> bool {
        self.conditions.iter().any(|it| it.type_ == condition && it.status == "True")
    }

    /// Nothing is left to do.
    pub fn is_finished(&self) -> bool {
        self.has(REPLACED) || self.has(ABORTED)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    pub time: Time,
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_LINE_LEN)))]
    pub text: String,
}

/// The evidence that an approval is about: that of the status, where the controller has written it.
pub fn present_evidence<'a>(
    spec: &'a StorageActionSpec,
    status: Option<&'a StorageActionStatus>,
) -> (&'a [String], &'a str) {
    match status {
        Some(status) if !status.evidence_hash.is_empty() => {
            (&status.evidence, &status.evidence_hash)
        }
        _ => (&spec.evidence, &spec.evidence_hash),
    }
}

/// Name of the object: `release-<claim>-<identity>`, where `identity` is the beginning of
/// a hash of all that the action is about. The same intervention has the same name, whoever creates it.
pub fn object_name(claim: &str, identity: &str) -> String {
    const PREFIX: &str = "release-";
    let identity = format!("-{}", &identity[..identity.floor_char_boundary(32)]);
    let mut end = claim.len().min(MAX_NAME_LEN - PREFIX.len() - identity.len());
    while !claim.is_char_boundary(end) {
        end -= 1;
    }
    // A subdomain's parts end with a letter or digit.
    let claim = claim[..end].trim_end_matches(['.', '-']);
    format!("{PREFIX}{claim}{identity}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_and_keeps_its_hash_whatever_the_claim_is_called() {
        assert_eq!(
            object_name("data-db-0", &"07".repeat(32)),
            format!("release-data-db-0-{}", "07".repeat(16))
        );
        let long = object_name(&format!("{}.{}", "a".repeat(227), "b".repeat(25)), "7");
        assert!(long.len() <= 253 && long.ends_with("b-7"), "{long}");
    }

    #[test]
    fn an_approval_or_type_of_a_newer_version_approves_nothing() {
        let approval: Approval = serde_json::from_value("Delegated".into()).expect("read");
        assert_eq!(approval, Approval::Pending);
        let kind: ActionType = serde_json::from_value("Handover".into()).expect("read");
        assert_eq!(kind, ActionType::Unknown);
    }

    #[test]
    fn the_evidence_of_the_status_replaces_that_of_the_spec() {
        let spec = StorageActionSpec { evidence_hash: "a".into(), ..StorageActionSpec::default() };
        let mut status = StorageActionStatus::default();
        assert_eq!(present_evidence(&spec, Some(&status)).1, "a");
        status.evidence_hash = "b".into();
        assert_eq!(present_evidence(&spec, Some(&status)).1, "b");
        assert_eq!(present_evidence(&spec, None).1, "a");
    }
}
