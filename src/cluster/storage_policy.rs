//! `StoragePolicy` (`stp`): what the cluster's controller may propose for claims on dead drives. A
//! person writes the spec, the controller the status. Without a policy nothing is proposed.
//!
//! In: nothing. Out: plain data. The schema refuses a mode, a reason or a hold time that this
//! version does not have; a value of a newer version that is read all the same does less, never more.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use serde::{Deserialize, Serialize};

use diskvitals_finding::reason::Reason;

/// Limits of the lists, in entries.
#[cfg(feature = "fleet")]
pub(crate) const MAX_STORAGE_CLASSES: usize = 64;
#[cfg(feature = "fleet")]
pub(crate) const MAX_LABEL_KEYS: usize = 16;
#[cfg(feature = "fleet")]
pub(crate) const MAX_BLOCKED: usize = 64;

/// Shortest time that a finding must hold before an action is proposed.
pub(crate) const MIN_HOLD: Duration = Duration::from_secs(600);

/// Condition: the policy is readable and in force.
pub const READY: &str = "Ready";
/// Condition: the breaker is open. Its reason names what opened it.
pub const BREAKER_OPEN: &str = "BreakerOpen";

/// Which claims, for which reasons, and within which limits.
#[allow(clippy::duplicated_attributes, reason = "columns of one type are no duplicates")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "fleet",
    kube(
        group = "diskvitals.io",
        version = "v1alpha1",
        kind = "StoragePolicy",
        plural = "storagepolicies",
        shortname = "stp",
        category = "diskvitals",
        status = "StoragePolicyStatus",
        printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
        printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspended"),
        printcolumn(
            name = "Would-Act",
            type_ = "integer",
            json_path = ".status.wouldAct",
            description = "Claims that no gate holds back now"
        ),
        printcolumn(
            name = "Acted",
            type_ = "integer",
            json_path = ".status.acted",
            description = "Finished actions of this policy"
        ),
        printcolumn(
            name = "Breaker",
            type_ = "string",
            json_path = ".status.conditions[?(@.type==\"BreakerOpen\")].status",
            description = "True: no new action until a person sets spec.breakerResetAt"
        ),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct StoragePolicySpec {
    /// `Observe` counts what would be proposed. `Propose` creates StorageActions that wait for a
    /// person.
    pub mode: Mode,
    /// True: the policy proposes nothing, and its actions before the deletion of the claim stop.
    pub suspended: bool,
    pub claims: ClaimSelection,
    /// Findings for which a claim may be released. The volume must be inaccessible as well.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 2)))]
    pub reasons: Vec<PolicyReason>,
    /// How long a finding must hold without interruption, in one boot and under one version of the
    /// daemon: hours, minutes and seconds, such as 30m or 1h30m. At least 10m.
    #[cfg_attr(feature = "fleet", schemars(
        length(max = 16),
        regex(pattern = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"),
        extend("x-kubernetes-validations" = [{
            "rule": "self != '' && duration(self) >= duration('10m')",
            "message": "hold must be at least 10m, such as 30m or 1h30m",
        }])
    ))]
    pub hold: String,
    pub group: Group,
    /// Pods of the group that must be Ready, on drives that are Good, beside the pod of the claim.
    #[cfg_attr(feature = "fleet", schemars(range(min = 1, max = 1000)))]
    pub min_ready_peers: u32,
    pub budget: Budget,
    /// A person sets the present time: a breaker that was opened before it closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker_reset_at: Option<Time>,
}

impl Default for StoragePolicySpec {
    fn default() -> StoragePolicySpec {
        StoragePolicySpec {
            mode: Mode::default(),
            suspended: false,
            claims: ClaimSelection::default(),
            reasons: vec![PolicyReason::DriveMissing, PolicyReason::DriveOffline],
            hold: "30m".to_owned(),
            group: Group::default(),
            min_ready_peers: 2,
            budget: Budget::default(),
            breaker_reset_at: None,
        }
    }
}

impl StoragePolicySpec {
    /// None: no duration, or shorter than the minimum.
    pub fn hold_time(&self) -> Option<Duration> {
        let span: jiff::SignedDuration = self.hold.parse().ok()?;
        let hold = Duration::try_from(span).ok()?;
        (hold >= MIN_HOLD).then_some(hold)
    }

    /// Whether a finding of this reason may release a claim.
    pub fn allows(&self, reason: &str) -> bool {
        let reason = reason.parse().ok();
        reason.is_some() && self.reasons.iter().any(|it| it.reason() == reason)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum Mode {
    Propose,
    /// A mode of a newer version reads as this one.
    #[default]
    #[serde(other)]
    Observe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum PolicyReason {
    DriveMissing,
    DriveOffline,
    /// A reason of a newer version: matches nothing.
    #[serde(other, skip_serializing)]
    #[cfg_attr(feature = "fleet", schemars(skip))]
    Unknown,
}

impl PolicyReason {
    fn reason(self) -> Option<Reason> {
        match self {
            PolicyReason::DriveMissing => Some(Reason::DriveMissing),
            PolicyReason::DriveOffline => Some(Reason::DriveOffline),
            PolicyReason::Unknown => None,
        }
    }
}

/// Among the claims with the label `diskvitals.io/on-dead-drive: release`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSelection {
    /// By the labels of the claim's namespace. Absent: all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Empty: all classes.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_STORAGE_CLASSES)))]
    pub storage_class_names: Vec<String>,
}

/// Which pods are members of one database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// The first of these labels that the pod carries names its group, by its value. A pod with none
    /// of them is in no known group, and its claim is not released.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = MAX_LABEL_KEYS)))]
    pub label_keys: Vec<String>,
}

impl Default for Group {
    fn default() -> Group {
        let keys = ["cnpg.io/cluster", "strimzi.io/cluster", "app.kubernetes.io/instance"];
        Group { label_keys: keys.map(str::to_owned).to_vec() }
    }
}

/// How many actions at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// Confirmed and not finished, of all policies together. A stuck action counts.
    #[cfg_attr(feature = "fleet", schemars(range(min = 1, max = 100)))]
    pub in_flight: u32,
    #[cfg_attr(feature = "fleet", schemars(range(min = 1, max = 100)))]
    pub per_group: u32,
    #[cfg_attr(feature = "fleet", schemars(range(min = 1, max = 100)))]
    pub per_node: u32,
    pub per_day: DailyBudget,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { in_flight: 1, per_group: 1, per_node: 1, per_day: DailyBudget::default() }
    }
}

/// The larger of the two, within 24 hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DailyBudget {
    #[cfg_attr(feature = "fleet", schemars(range(min = 1, max = 1000)))]
    pub absolute: u32,
    /// Of the cluster's nodes.
    #[cfg_attr(feature = "fleet", schemars(range(min = 0, max = 1000)))]
    pub per_mille: u32,
}

impl Default for DailyBudget {
    fn default() -> DailyBudget {
        DailyBudget { absolute: 3, per_mille: 2 }
    }
}

/// What the controller decided. A number changes only when a decision changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StoragePolicyStatus {
    /// The generation of the spec that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Claims that no gate holds back now. In mode `Observe` nothing happens to them.
    pub would_act: u32,
    /// Finished actions, among those that still exist.
    pub acted: u32,
    /// Candidates by the first gate that holds them back.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_BLOCKED)))]
    pub blocked: Vec<BlockedCount>,
    /// `Ready`, `BreakerOpen`.
    #[cfg_attr(feature = "fleet", schemars(length(max = 8)))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BlockedCount {
    /// Name of a gate (docs/remediation.md).
    pub gate: String,
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: serde_json::Value) -> StoragePolicySpec {
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn a_policy_without_a_mode_observes_and_so_does_one_of_a_newer_version() {
        for spec in [serde_json::json!({}), serde_json::json!({"mode": "Act"})] {
            assert_eq!(read(spec).mode, Mode::Observe);
        }
        assert_eq!(read(serde_json::json!({"mode": "Propose"})).mode, Mode::Propose);
    }

    #[test]
    fn a_reason_of_a_newer_version_allows_nothing() {
        let spec = read(serde_json::json!({"reasons": ["DriveTired"]}));
        assert!(!spec.allows("DriveTired") && !spec.allows("Unknown"));
        assert!(StoragePolicySpec::default().allows("DriveOffline"));
        assert!(!StoragePolicySpec::default().allows("MediaErrors"));
    }

    #[test]
    fn a_policy_can_name_each_reason_of_a_drive_that_is_gone_and_no_other() {
        for reason in Reason::ALL {
            let spec = read(serde_json::json!({"reasons": [reason.name()]}));
            assert_eq!(spec.allows(reason.name()), reason.is_gone(), "{reason}");
        }
    }

    #[test]
    fn a_hold_time_below_ten_minutes_or_without_a_unit_is_none() {
        let hold = |text: &str| read(serde_json::json!({ "hold": text })).hold_time();
        assert_eq!(hold("30m"), Some(Duration::from_secs(1800)));
        assert_eq!(hold("1h30m"), Some(Duration::from_secs(5400)));
        for text in ["9m59s", "-30m", "", "30", "soon", "0h"] {
            assert_eq!(hold(text), None, "{text}");
        }
    }
}
