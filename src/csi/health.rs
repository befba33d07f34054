//! Volume health in the form that Kubernetes accepts: converts the daemon's volumes and storage
//! faults to the status list of CSI 1.13 and to the VolumeCondition of CSI 1.12.
//!
//! In: volumes and faults of the daemon. Out: values that every caller can store. The module does
//! no I/O and does not depend on requests.
//!
//! A status list observes [`limits`]: at most [`MAX_STATUSES`] entries, unique by (status, reason),
//! each with a reason and a message of allowed length.

use std::cmp::Reverse;

use crate::limits;
use crate::limits::MAX_STATUSES;
use diskvitals_finding::reason::Reason;
use diskvitals_wire as wire;

/// VolumeHealthErrorType of CSI 1.13, ascending by severity. `Degraded` and `Inaccessible` also
/// have the numbers of StorageHealthErrorType's STORAGE_DEGRADED and STORAGE_UNREACHABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthErrorType {
    Degraded = 1,
    Inaccessible = 2,
    DataLoss = 3,
}

impl HealthErrorType {
    /// The enum value of CSI 1.13.
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// One adverse status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthStatus {
    pub status: HealthErrorType,
    /// Output of [`limits::conform_reason`].
    pub reason: String,
    /// Output of [`limits::truncate_message`].
    pub message: String,
}

impl HealthStatus {
    /// Makes any text conform to the limits.
    pub fn new(status: HealthErrorType, reason: &str, message: &str) -> HealthStatus {
        HealthStatus {
            status,
            reason: limits::conform_reason(reason).into_owned(),
            message: limits::truncate_message(message).into_owned(),
        }
    }
}

/// VolumeCondition of CSI 1.12.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeCondition {
    pub abnormal: bool,
    /// Output of [`limits::truncate_message`].
    pub message: String,
}

/// The reason why the health of a volume is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HealthUnknown(pub String);

/// Health of one volume, for both health APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHealth {
    /// The worst status is first; at most [`MAX_STATUSES`]. An empty list means healthy. Unknown
    /// health is therefore an error of the call.
    pub statuses: Result<Vec<HealthStatus>, HealthUnknown>,
    /// While health is unknown: the last known condition, with a message that states this. None if
    /// there is none.
    pub condition: Option<VolumeCondition>,
    /// The drives belong to this node: if this node cannot reach them, no node can.
    pub local: bool,
}

impl VolumeHealth {
    /// The health that a controller reports. A controller's INACCESSIBLE means: from all nodes. One
    /// node's failure therefore only makes a volume DEGRADED that other nodes can also reach.
    pub(crate) fn for_controller(mut self) -> VolumeHealth {
        if !self.local
            && let Ok(statuses) = &mut self.statuses
        {
            for status in
                statuses.iter_mut().filter(|status| status.status == HealthErrorType::Inaccessible)
            {
                status.status = HealthErrorType::Degraded;
                status.message = format!("as seen from one node: {}", status.message);
            }
        }
        self
    }
}

/// Health of a volume in the daemon's snapshot of the node.
pub fn of_volume(volume: &wire::Volume) -> VolumeHealth {
    let condition = condition(volume);
    VolumeHealth {
        statuses: statuses(volume, condition.as_ref()),
        condition,
        local: !volume.remote,
    }
}

/// The status that follows from a volume's state alone, independent of its findings and even while
/// its health is unknown.
pub(crate) fn state_status(volume: &wire::Volume) -> Option<HealthStatus> {
    let known =
        matches!(volume.health(), wire::Health::Good | wire::Health::Suspect | wire::Health::Bad);
    // While health is unknown, the condition is the last known one. Without a status that names its
    // cause, the cause may have ended.
    status_from_state(volume, condition(volume).as_ref())
        .filter(|state| known || state.reason != NOT_HEALTHY)
}

fn condition(volume: &wire::Volume) -> Option<VolumeCondition> {
    let condition = volume.condition.as_ref()?;
    Some(VolumeCondition {
        abnormal: condition.abnormal,
        message: limits::truncate_message(&without_paths(&condition.message, volume)).into_owned(),
    })
}

fn statuses(
    volume: &wire::Volume,
    condition: Option<&VolumeCondition>,
) -> Result<Vec<HealthStatus>, HealthUnknown> {
    match volume.health() {
        wire::Health::Good | wire::Health::Suspect | wire::Health::Bad => {}
        wire::Health::Unknown if !volume.health_unknown_why.is_empty() => {
            return Err(HealthUnknown(volume.health_unknown_why.clone()));
        }
        // Unspecified may be a value of a newer daemon.
        wire::Health::Unknown | wire::Health::Unspecified => {
            return Err(HealthUnknown("diskvitalsd gives no reason".into()));
        }
    }
    let findings = volume.findings.iter().filter_map(status_from_finding);
    let findings: Vec<HealthStatus> = findings
        .map(|status| HealthStatus { message: without_paths(&status.message, volume), ..status })
        .collect();
    let worst = findings.iter().map(|status| status.status).max();
    // The state is added only if it is more severe than every finding.
    let state = status_from_state(volume, condition)
        .filter(|state| worst.is_none_or(|worst| worst < state.status));
    Ok(merge_statuses(findings.into_iter().chain(state)))
}

/// The reason of an abnormal condition without a status that explains it.
const NOT_HEALTHY: &str = "NotHealthy";
/// Reasons of states.
pub(crate) const STATE_REASONS: [&str; 4] = [
    Reason::DeviceMissing.name(),
    Reason::NotAccessible.name(),
    NOT_HEALTHY,
    Reason::NotMounted.name(),
];

/// The status of a condition that is abnormal by a rule about states (csi status, operational
/// status, usage). A volume that this node provides and cannot serve has no finding; other volumes
/// may not have one yet.
fn status_from_state(
    volume: &wire::Volume,
    condition: Option<&VolumeCondition>,
) -> Option<HealthStatus> {
    let condition = condition.filter(|condition| condition.abnormal)?;
    let (status, reason) =
        match (volume.operational_status(), volume.csi_status(), volume.usage_status()) {
            (wire::OperationalStatus::Missing, _, _) => {
                (HealthErrorType::Inaccessible, Reason::DeviceMissing.name())
            }
            (_, wire::CsiStatus::Failed, _) => {
                (HealthErrorType::Inaccessible, Reason::NotMounted.name())
            }
            (_, _, wire::UsageStatus::Failed) => {
                (HealthErrorType::Inaccessible, Reason::NotAccessible.name())
            }
            _ => (HealthErrorType::Degraded, NOT_HEALTHY),
        };
    Some(HealthStatus::new(status, reason, &condition.message))
}

/// A message for people who see the cluster: the kubelet's mounts of the volume, paths of 150
/// characters, by what they are.
pub(crate) fn without_paths(message: &str, volume: &wire::Volume) -> String {
    let mounts = volume.mounts.iter().chain(&volume.missing_mounts);
    let mut message = message.to_owned();
    for mount in mounts.filter(|mount| !mount.path.is_empty()) {
        let pod = volume.pods.iter().find(|pod| pod.uid == mount.pod_uid && !pod.name.is_empty());
        let what = match (mount.role(), pod) {
            (wire::MountRole::Staging, _) => "the staging path".to_owned(),
            (wire::MountRole::Pod, Some(pod)) => {
                format!("the path of pod {}/{}", pod.namespace, pod.name)
            }
            (wire::MountRole::Pod, None) => "a pod's path".to_owned(),
            (wire::MountRole::Host | wire::MountRole::Unspecified, _) => continue,
        };
        message = message.replace(&mount.path, &what);
    }
    without_kubelet_paths(&message)
}

/// The same for a mount that the volume no longer has: with its pod, the name is gone.
pub(crate) fn without_kubelet_paths(message: &str) -> String {
    let shortened = |word: &str| {
        let path = word.trim_end_matches([',', ';', ':', '.', ')']);
        let is_pods = path.contains("/pods/") && path.contains("/volumes/kubernetes.io~");
        let what = match path.starts_with('/') {
            true if path.ends_with("/globalmount") => "the staging path",
            true if is_pods && path.ends_with("/mount") => "a pod's path",
            _ => return word.to_owned(),
        };
        format!("{what}{}", &word[path.len()..])
    };
    message.split(' ').map(shortened).collect::<Vec<_>>().join(" ")
}

/// A finding of severity INFO is not a health status.
fn status_from_finding(finding: &wire::Finding) -> Option<HealthStatus> {
    if finding.cleared.is_some() || finding.severity() == wire::Severity::Info {
        return None;
    }
    let status = match finding.status() {
        wire::FindingStatus::DataLoss => HealthErrorType::DataLoss,
        wire::FindingStatus::Inaccessible => HealthErrorType::Inaccessible,
        // The finding is adverse by its severity, even if a newer daemon uses another status.
        wire::FindingStatus::Degraded
        | wire::FindingStatus::Information
        | wire::FindingStatus::Unspecified => HealthErrorType::Degraded,
    };
    Some(HealthStatus::new(status, &finding.reason, &finding.message))
}

/// Health of a provided volume that is not in the daemon's snapshot of the node: it is unused, or
/// was attached a moment ago. After a longer use the snapshot should contain it; its health is then
/// unknown.
pub(crate) fn of_provided(volume: &wire::ProvidedVolume, just_attached: bool) -> VolumeHealth {
    if volume.problem.is_empty() && !volume.attachments.is_empty() && !just_attached {
        let why = "it is in use, but diskvitalsd does not list it; compare --driver-name with the daemon's name of the driver";
        return VolumeHealth {
            statuses: Err(HealthUnknown(why.into())),
            condition: None,
            local: true,
        };
    }
    if volume.problem.is_empty() {
        let message = match volume.absent.as_str() {
            "" => "the volume is not staged or published yet and nothing is known against it",
            absent => absent,
        };
        let message = limits::truncate_message(message).into_owned();
        return VolumeHealth {
            statuses: Ok(Vec::new()),
            condition: Some(VolumeCondition { abnormal: false, message }),
            local: true,
        };
    }
    let status = HealthStatus::new(
        HealthErrorType::Inaccessible,
        Reason::NotAccessible.name(),
        &volume.problem,
    );
    VolumeHealth {
        condition: Some(VolumeCondition { abnormal: true, message: status.message.clone() }),
        statuses: Ok(vec![status]),
        local: true,
    }
}

/// Faults of the storage below a driver's volumes: unique by (status, reason), worst first.
pub fn of_storage(health: &wire::StorageHealth) -> Vec<HealthStatus> {
    merge_statuses(health.faults.iter().map(|fault| {
        let status = if fault.unreachable {
            HealthErrorType::Inaccessible
        } else {
            HealthErrorType::Degraded
        };
        HealthStatus::new(status, &fault.reason, &fault.message)
    }))
}

/// Merges statuses: unique by (status, reason), worst first, at most [`MAX_STATUSES`]. The least
/// severe are dropped, and the messages of equal ones are joined.
pub(crate) fn merge_statuses(
    statuses: impl IntoIterator<Item = HealthStatus>,
) -> Vec<HealthStatus> {
    let mut listed: Vec<HealthStatus> = Vec::new();
    for status in statuses {
        match listed
            .iter_mut()
            .find(|other| (other.status, &other.reason) == (status.status, &status.reason))
        {
            Some(same)
                if same.message.split("; ").any(|part| part == status.message)
                    || status.message.is_empty() => {}
            Some(same) if same.message.is_empty() => same.message = status.message,
            Some(same) => {
                same.message =
                    limits::truncate_message(&format!("{}; {}", same.message, status.message))
                        .into_owned()
            }
            None => listed.push(status),
        }
    }
    // A stable sort keeps the daemon's order among equally severe statuses.
    listed.sort_by_key(|status| Reverse(status.status));
    listed.truncate(MAX_STATUSES);
    listed
}

#[cfg(test)]
mod tests;
