//! The node condition `StorageHealthy`: reduces the daemon's snapshot of the node to a status, a
//! reason and a message.
//!
//! In: the view of the daemon. Out: the condition, or nothing while it is unknown. No I/O. The
//! condition is True only if all health is known and no finding counts; if any health is unknown,
//! it is Unknown.

use crate::report::node_snapshot::{Drive, Health, Issue, NodeSnapshot, Severity, Subject};
use crate::report::{DaemonView, Outage};
use diskvitals_finding::reason::Reason;
use diskvitals_kubernetes::event::{MAX_SHORT_LEN, message};
use diskvitals_text::echo::Shown;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub(crate) fn from_name(name: &str) -> Option<ConditionStatus> {
        let all = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
        all.into_iter().find(|status| status.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageCondition {
    pub status: ConditionStatus,
    pub reason: String,
    pub message: Shown,
}

/// `in_grace`: a possible outage of the daemon is not to be published yet.
pub(crate) fn storage_condition(view: &DaemonView, in_grace: bool) -> Option<StorageCondition> {
    Some(match view.current(in_grace)? {
        Ok(snapshot) => from_snapshot(snapshot),
        Err(Outage { why, .. }) => unknown(
            "DaemonNotAnswering",
            &format!("diskvitalsd on this node does not answer: {why}"),
        ),
    })
}

fn from_snapshot(snapshot: &NodeSnapshot) -> StorageCondition {
    let adverse = snapshot.adverse();
    let counted: Vec<&Issue> =
        adverse.iter().map(|(_, issue)| *issue).filter(|issue| issue.is_counted()).collect();
    if let Some(worst) = counted.first() {
        let number = |level| counted.iter().filter(|issue| issue.severity == level).count();
        let numbers = [(number(Severity::Bad), "bad"), (number(Severity::Suspect), "suspect")];
        let numbers: Vec<String> =
            numbers.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        return StorageCondition {
            status: ConditionStatus::False,
            reason: camel_case(&worst.reason),
            message: message(&format!(
                "{}: {}{}",
                numbers.join(", "),
                lines(snapshot, &counted).join("; "),
                unknown_health_list(snapshot)
            )),
        };
    }
    match snapshot.health {
        Health::Good => {
            let excluded = adverse.len();
            let excluded = if excluded == 0 {
                String::new()
            } else {
                format!("; {excluded} acknowledged or under maintenance")
            };
            let found = format!(
                "no findings for {} drives and {} volumes{excluded}",
                snapshot.drives.len(),
                snapshot.volumes.len()
            );
            StorageCondition {
                status: ConditionStatus::True,
                reason: "NothingFound".into(),
                message: message(&found),
            }
        }
        // The daemon counts a finding that is not in the snapshot, or uses a newer value: the node
        // is unhealthy, for a reason that is unknown here.
        Health::Bad | Health::Suspect => {
            unknown("HealthUnknown", "diskvitalsd reports a problem without a finding")
        }
        Health::Unknown => {
            let whys = unknown_health_list(snapshot);
            let whys = if whys.is_empty() {
                "; diskvitalsd does not see all drives or mounts".to_owned()
            } else {
                whys
            };
            unknown("HealthUnknown", whys.trim_start_matches("; "))
        }
    }
}

/// One line for each drive and volume: its worst finding, then the reasons of the others. Volumes
/// that only share the failure of their drive are a number.
fn lines(snapshot: &NodeSnapshot, counted: &[&Issue]) -> Vec<String> {
    let has_drive = counted.iter().any(|issue| matches!(issue.subject, Subject::Drive(_)));
    let (shared, own): (Vec<&Issue>, Vec<&Issue>) = counted
        .iter()
        .copied()
        .partition(|issue| has_drive && issue.reason.parse() == Ok(Reason::DriveFailing));
    let mut lines = Vec::new();
    for (at, issue) in own.iter().enumerate() {
        let is_same = |other: &&&Issue| other.subject == issue.subject;
        if own[..at].iter().any(|other| is_same(&other)) {
            continue;
        }
        let others: Vec<&str> =
            own[at + 1..].iter().filter(is_same).map(|other| other.reason.as_str()).collect();
        let others = match others.as_slice() {
            [] => String::new(),
            others => format!(" (and {})", others.join(", ")),
        };
        lines.push(format!(
            "{}: {}: {}{others}",
            issue.reason,
            snapshot.display_name(&issue.subject),
            issue.text()
        ));
    }
    match shared.len() {
        0 => {}
        1 => lines.push("1 volume on a failing drive".to_owned()),
        count => lines.push(format!("{count} volumes on failing drives")),
    }
    lines
}

/// Drives and volumes of unknown health, each with its reason.
fn unknown_health_list(snapshot: &NodeSnapshot) -> String {
    let drives =
        snapshot.drives.values().filter_map(|drive| Some((&drive.name, unknown_reason(drive)?)));
    let volumes = snapshot.volumes.values().filter(|volume| volume.health == Health::Unknown);
    let whys = drives.chain(volumes.map(|volume| (&volume.name, &volume.why)));
    whys.map(|(name, why)| {
        format!(
            "; {name}: health unknown: {}",
            if why.is_empty() { "no reason given" } else { why }
        )
    })
    .collect()
}

fn unknown_reason(drive: &Drive) -> Option<&String> {
    let counts = drive.health == Health::Unknown && !drive.is_asleep && !drive.maintenance;
    counts.then_some(&drive.why)
}

fn unknown(reason: &str, why: &str) -> StorageCondition {
    StorageCondition {
        status: ConditionStatus::Unknown,
        reason: reason.to_owned(),
        message: message(why),
    }
}

/// Converts text to CamelCase of letters and digits, as required for a condition's reason and
/// recommended for an event's.
pub(crate) fn camel_case(text: &str) -> String {
    let kept: String = text
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .skip_while(|c| !c.is_ascii_alphabetic())
        .take(MAX_SHORT_LEN)
        .collect();
    if kept.is_empty() { "Unspecified".to_owned() } else { kept }
}

#[cfg(test)]
mod tests;
