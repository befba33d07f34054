//! The states of a volume for CSI and for people: its csi, operational and usage status, and the
//! old VolumeCondition.
//!
//! In: a volume's facts, its active findings, its health. Out: values. The comment of each function
//! has its rules.

use jiff::Timestamp;

use crate::assess::MAX_MESSAGE;
use crate::facts::KnownVolume;
use crate::volume::{Condition, CsiStatus, MountRole, OperationalStatus, UsageStatus, VolumeFacts};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Finding, Health, Status};
use diskvitals_text::echo::truncate;

fn has_any(findings: &[&Finding], is_it: fn(Reason) -> bool) -> bool {
    findings.iter().any(|finding| {
        finding.is_active() && finding.severity > Severity::Info && is_it(finding.reason)
    })
}

/// NONE: not a CSI volume. REMOVED: removed with its drive. FAILED: by a finding, a mount that the
/// records require is missing (before that finding it may still appear), or this node provides the
/// volume and cannot serve it. PUBLISHED: a pod has it. STAGED: staged only. CREATED: known,
/// neither staged nor published.
pub fn csi_status(known: &KnownVolume, findings: &[&Finding]) -> CsiStatus {
    let facts = &known.facts;
    let mounted = |role: MountRole| facts.mounts.iter().any(|mount| mount.role == role);
    // A folder and a raw device are staged without a mount.
    let staged_by_us = facts.provided.as_ref().is_some_and(|volume| volume.staged.is_some());
    if facts.driver.is_none() {
        CsiStatus::None
    } else if known.retained {
        CsiStatus::Removed
    } else if has_any(findings, Reason::is_unmounted) || provision_error(facts).is_some() {
        CsiStatus::Failed
    } else if mounted(MountRole::Pod) {
        CsiStatus::Published
    } else if mounted(MountRole::Staging) || staged_by_us || (facts.block && facts.device.is_some())
    {
        CsiStatus::Staged
    } else {
        CsiStatus::Created
    }
}

/// Why this node cannot serve a volume that it provides. One that a pod has mounted is served, also if
/// the pool does not return its record.
fn provision_error(facts: &VolumeFacts) -> Option<&str> {
    let provided = facts.provided.as_ref()?;
    let has_pod = facts.mounts.iter().any(|mount| mount.role == MountRole::Pod);
    provided.error.as_deref().filter(|_| !(provided.is_unread && has_pod))
}

/// MISSING: its device or drive is gone, or none of its required mounts exists. INOPERATIVE:
/// present, but inaccessible.
pub fn operational_status(known: &KnownVolume, findings: &[&Finding]) -> OperationalStatus {
    let inaccessible =
        |finding: &&&Finding| finding.is_active() && finding.status >= Status::Inaccessible;
    let unmounted = known.facts.mounts.is_empty() && has_any(findings, Reason::is_unmounted);
    if known.retained || has_any(findings, |it| it == Reason::DeviceMissing) || unmounted {
        OperationalStatus::Missing
    } else if findings.iter().any(|finding| inaccessible(&finding)) {
        OperationalStatus::Inoperative
    } else {
        OperationalStatus::Operative
    }
}

/// FAILED: it is in use but inaccessible. IN_USE: a pod has it, or the host has mounted it. IDLE:
/// staged, or known and unused. RELEASED: no longer in use, kept only because its drive is missing.
pub fn usage_status(known: &KnownVolume, findings: &[&Finding]) -> UsageStatus {
    let facts = &known.facts;
    if known.retained {
        return UsageStatus::Released;
    }
    let used =
        !facts.pods.is_empty() || facts.mounts.iter().any(|mount| mount.role != MountRole::Staging);
    let serves = operational_status(known, findings) == OperationalStatus::Operative
        && !has_any(findings, |it| it == Reason::NotMounted);
    match (used, serves) {
        (true, true) => UsageStatus::InUse,
        (true, false) => UsageStatus::Failed,
        (false, _) => UsageStatus::Idle,
    }
}

/// The statuses of one volume, as the functions above give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    pub csi: CsiStatus,
    pub operational: OperationalStatus,
    pub usage: UsageStatus,
}

pub fn statuses(known: &KnownVolume, findings: &[&Finding]) -> Statuses {
    Statuses {
        csi: csi_status(known, findings),
        operational: operational_status(known, findings),
        usage: usage_status(known, findings),
    }
}

const UNKNOWN_SINCE: &str = " (unknown since ";

/// Abnormal when health is SUSPECT or BAD, csi status FAILED, operational status MISSING, usage
/// FAILED, staging or target path not mounted, or not readable. Each cause has its sentence, worst
/// first; at most 1,024 bytes.
///
/// While health is UNKNOWN, the last known condition stays, with "(unknown since …: why)" added; None
/// if there is none. `unknown` is the reason and its start; `previous` is the last result of this
/// function.
pub fn condition(
    facts: &VolumeFacts,
    findings: &[&Finding],
    health: Health,
    statuses: Statuses,
    unknown: Option<(&str, Timestamp)>,
    previous: Option<&Condition>,
) -> Option<Condition> {
    if health == Health::Unknown {
        return previous.map(|previous| unknown_condition(unknown, previous));
    }
    let mut adverse: Vec<&&Finding> = findings
        .iter()
        .filter(|finding| finding.is_active() && finding.severity > Severity::Info)
        .collect();
    adverse.sort_by(|a, b| b.weight().cmp(&a.weight()).then(a.reason.cmp(&b.reason)));
    let mut causes: Vec<String> =
        adverse.iter().map(|finding| format!("{}: {}", finding.reason, finding.message)).collect();
    // States that no finding has described yet.
    if causes.is_empty() {
        causes.extend(match statuses.operational {
            OperationalStatus::Missing => Some("the volume's device is missing".to_owned()),
            _ => None,
        });
        let unmounted = statuses.csi == CsiStatus::Failed && provision_error(facts).is_none();
        causes.extend(unmounted.then(|| {
            "the volume is not staged or published as the kubelet's records say".to_owned()
        }));
        causes.extend(
            (statuses.usage == UsageStatus::Failed)
                .then(|| "the volume is in use and does not serve".to_owned()),
        );
        causes.extend(
            matches!(health, Health::Suspect | Health::Bad)
                .then(|| "the volume is not healthy".to_owned()),
        );
    }
    let is_missing = adverse.iter().any(|finding| finding.reason == Reason::DeviceMissing);
    if let Some(problem) = provision_error(facts).filter(|_| !is_missing) {
        // No finding describes it. Only lost data is worse.
        let worse = adverse.iter().take_while(|finding| finding.status == Status::DataLoss).count();
        causes.insert(worse.min(causes.len()), format!("the volume cannot be used: {problem}"));
    }
    if causes.is_empty() {
        return Some(Condition { abnormal: false, message: normal_message(facts, statuses) });
    }
    Some(Condition { abnormal: true, message: join_causes(&causes) })
}

/// As many whole sentences as fit; the first is cut if it alone is too long.
fn join_causes(causes: &[String]) -> String {
    let mut message = truncate(&causes[0], MAX_MESSAGE);
    for (at, cause) in causes.iter().enumerate().skip(1) {
        let rest = format!("; and {} more", causes.len() - at);
        if message.len() + "; ".len() + cause.len() + rest.len() > MAX_MESSAGE {
            if message.len() + rest.len() <= MAX_MESSAGE {
                message.push_str(&rest);
            }
            break;
        }
        message.push_str("; ");
        message.push_str(cause);
    }
    message
}

fn normal_message(facts: &VolumeFacts, statuses: Statuses) -> String {
    let what = match (statuses.csi, statuses.usage) {
        (CsiStatus::Published, _) => "published",
        (CsiStatus::Staged, _) => "staged",
        (CsiStatus::Created, _) => "not staged or published yet",
        (_, UsageStatus::Idle) => "idle",
        _ if facts.mounts.is_empty() => "not mounted",
        _ => "mounted",
    };
    format!("the volume is {what} and nothing is known against it")
}

fn unknown_condition(unknown: Option<(&str, Timestamp)>, previous: &Condition) -> Condition {
    let (why, since) = match unknown {
        Some((why, since)) => (why, format!("{since:.0}")),
        None => ("a source has not answered", "now".to_owned()),
    };
    // The start of the unknown state is added once and then stays.
    let (last, since) = match previous.message.split_once(UNKNOWN_SINCE) {
        Some((last, rest)) => {
            (last, rest.split_once(": ").map_or(since, |(first, _)| first.to_owned()))
        }
        None => (previous.message.as_str(), since),
    };
    let suffix = truncate(&format!("{UNKNOWN_SINCE}{since}: {}", truncate(why, 200)), 300);
    let message = format!("{}{suffix})", truncate(last, MAX_MESSAGE - suffix.len() - 1));
    Condition { abnormal: previous.abnormal, message }
}

#[cfg(test)]
mod tests;
