//! Runs the program of `[notify] exec` on each transition of severity, one at a time, with the
//! finding on its standard input.
//!
//! In: transitions from the owner, through a bounded queue that drops the oldest. Out: one process
//! for each, through `host::exec`. The JSON is that of the API's Finding, with two more members:
//! `transition`: {"kind", "from", "to"}, and `cause`: {"id", "name"}, which is the same for all findings
//! with one cause.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Evidence, Finding, Status, Subject};
use diskvitals_host::clock;
use diskvitals_host::exec::{self, Exec, ExecError};
use diskvitals_model::ledger::Transition;

/// Transitions that wait for a slow program. When the queue is full, the oldest are dropped, and
/// their count is logged.
pub(crate) const QUEUE: usize = 256;

/// The settings in `[notify]`; they may change at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotifySettings {
    pub exec: Option<PathBuf>,
    pub timeout: Duration,
}

impl Default for NotifySettings {
    fn default() -> Self {
        NotifySettings { exec: None, timeout: Duration::from_secs(30) }
    }
}

/// Runs until the owner has ended.
pub(crate) async fn run(
    settings: watch::Receiver<NotifySettings>,
    mut transitions: broadcast::Receiver<Arc<Transition>>,
) {
    loop {
        let transition = match transitions.recv().await {
            Ok(transition) => transition,
            Err(broadcast::error::RecvError::Lagged(lost)) => {
                tracing::warn!(lost, "notifications dropped: the program of [notify] is too slow");
                continue;
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let NotifySettings { exec: program, timeout } = settings.borrow().clone();
        // What follows from the failure of a drive is announced by one finding of each volume.
        let is_announced = transition.from != transition.to && transition.finding.follows.is_none();
        let Some(program) = program.filter(|_| is_announced) else {
            continue;
        };
        run_program(program, timeout, &transition).await;
    }
}

async fn run_program(program: PathBuf, timeout: Duration, transition: &Transition) {
    let stdin = format!("{}\n", message(transition)).into_bytes();
    let command = Exec { program, args: Vec::new(), stdin, timeout, max_output: 4096 };
    let finding = transition.finding.id.as_str();
    match exec::run(&command).await {
        Ok(output) if output.status == 0 => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let status = describe_wait_status(output.status);
            tracing::warn!(program = %command.program.display(), finding, status, said = said.trim(), "the notification program ended with an error");
        }
        Err(error) => {
            let cause = match &error {
                ExecError::Start { source, .. } | ExecError::Wait { source, .. } => {
                    source.to_string()
                }
                ExecError::NotAbsolute(_)
                | ExecError::TimedOut { .. }
                | ExecError::Unkillable { .. } => String::new(),
            };
            tracing::warn!(%error, cause, finding, "a notification was not delivered");
        }
    }
}

/// The meaning of wait(2)'s status, for messages.
fn describe_wait_status(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit {}", status >> 8 & 0xff),
        signal => format!("signal {signal}"),
    }
}

/// The finding as protobuf's canonical JSON, with the names that the API's clients print.
pub(crate) fn message(transition: &Transition) -> Value {
    let mut message = finding(&transition.finding);
    message["transition"] = json!({
        "kind": transition.kind.name(),
        "from": transition.from.map(severity),
        "to": transition.to.map(severity),
    });
    if let Some(cause) = &transition.cause {
        message["cause"] = json!({"id": cause.id.as_str(), "name": cause.name});
    }
    message
}

/// The program is started at once, so the clock's present offset applies.
fn wall_text(time: Timestamp) -> String {
    clock::wall(time).to_string()
}

fn finding(finding: &Finding) -> Value {
    let (kind, id) = match &finding.subject {
        Subject::Drive(id) => ("SUBJECT_KIND_DRIVE", id.to_string()),
        Subject::Volume(id) => ("SUBJECT_KIND_VOLUME", id.to_string()),
        Subject::Device(name) => ("SUBJECT_KIND_DEVICE", name.clone()),
        Subject::Source(source) => ("SUBJECT_KIND_SOURCE", source.name().to_owned()),
    };
    let record = |evidence: &Evidence| json!({"source": evidence.source, "time": wall_text(evidence.time), "text": evidence.text});
    let mut message = json!({
        "id": finding.id.as_str(),
        "subject": {"kind": kind, "id": id},
        "severity": severity(finding.severity),
        "status": match finding.status {
            Status::Information => "FINDING_STATUS_INFORMATION",
            Status::Degraded => "FINDING_STATUS_DEGRADED",
            Status::Inaccessible => "FINDING_STATUS_INACCESSIBLE",
            Status::DataLoss => "FINDING_STATUS_DATA_LOSS",
        },
        "reason": finding.reason.name(),
        "message": finding.message,
        "since": wall_text(finding.since),
        "lastSeen": wall_text(finding.last_seen),
        "count": finding.count.to_string(),
        "evidence": finding.evidence.iter().map(record).collect::<Vec<_>>(),
        "clearsWhen": finding.clears_when,
        "action": finding.action(),
    });
    if let Some(acknowledged) = &finding.acknowledged {
        message["acknowledged"] = json!({"by": acknowledged.by, "time": wall_text(acknowledged.time), "note": acknowledged.note});
    }
    if let Some(leader) = &finding.follows {
        message["follows"] = json!(leader.as_str());
    }
    if let Some(cleared) = &finding.cleared {
        message["cleared"] = json!({"time": wall_text(cleared.time), "why": cleared.why});
    }
    message
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "SEVERITY_INFO",
        Severity::Suspect => "SEVERITY_SUSPECT",
        Severity::Bad => "SEVERITY_BAD",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use diskvitals_finding::ids::{CauseId, DriveId, FindingId};
    use diskvitals_finding::reason::Reason;
    use diskvitals_model::cause::Cause;
    use diskvitals_model::ledger::TransitionKind;

    fn transition(id: &str, from: Option<Severity>) -> Arc<Transition> {
        let finding = Finding {
            id: FindingId::known(id),
            subject: Subject::Drive(DriveId::new("naa.5")),
            reason: Reason::DriveMissing,
            severity: Severity::Bad,
            status: Status::Inaccessible,
            message: "gone".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            last_seen: Timestamp::UNIX_EPOCH,
            count: 1,
            evidence: Vec::new(),
            clears_when: "it is back".to_owned(),
            advice: None,
            acknowledged: None,
            cleared: None,
            follows: None,
        };
        Arc::new(Transition {
            finding: Arc::new(finding),
            from,
            to: Some(Severity::Bad),
            kind: TransitionKind::Raised,
            cause: None,
        })
    }

    #[test]
    fn the_message_reads_like_the_api() {
        let expected = json!({
            "id": "f", "subject": {"kind": "SUBJECT_KIND_DRIVE", "id": "naa.5"}, "severity": "SEVERITY_BAD",
            "status": "FINDING_STATUS_INACCESSIBLE", "reason": "DriveMissing", "message": "gone", "since": "1970-01-01T00:00:00Z",
            "lastSeen": "1970-01-01T00:00:00Z", "count": "1", "evidence": [], "action": Reason::DriveMissing.action_at(Severity::Bad), "clearsWhen": "it is back",
            "transition": {"kind": "raised", "from": null, "to": "SEVERITY_BAD"},
        });
        assert_eq!(message(&transition("f", None)), expected);
        let mut grouped = (*transition("f", None)).clone();
        grouped.cause = Some(Arc::new(Cause {
            id: CauseId::known("drive:naa.5"),
            name: "sda".to_owned(),
            ..Cause::default()
        }));
        let cause = json!({"id": "drive:naa.5", "name": "sda"});
        assert_eq!(message(&grouped)["cause"], cause);
    }

    #[tokio::test]
    async fn each_severity_transition_is_notified_once_and_a_full_queue_drops_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let (program, told) = (dir.path().join("program"), dir.path().join("told"));
        std::fs::write(&program, format!("#!/bin/sh\ncat >> {}\n", told.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (_settings, settings) = watch::channel(NotifySettings {
            exec: Some(program),
            timeout: Duration::from_secs(60),
        });
        let (send, receive) = broadcast::channel(4);
        for id in ["lost", "lost too", "c", "d"] {
            send.send(transition(id, None)).unwrap();
        }
        send.send(transition("same severity", Some(Severity::Bad))).unwrap();
        let mut follower = (*transition("follower", None)).clone();
        Arc::make_mut(&mut follower.finding).follows = Some(FindingId::known("c"));
        send.send(Arc::new(follower)).unwrap();
        drop(send);
        run(settings, receive).await;
        let told = std::fs::read_to_string(told).unwrap();
        let ids: Vec<String> = told
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(ids, ["c", "d"]);
    }

    #[tokio::test]
    async fn a_failing_or_hanging_program_does_not_stop_notifications() {
        let (_settings, settings) = watch::channel(NotifySettings {
            exec: Some("/nonexistent".into()),
            timeout: Duration::from_millis(10),
        });
        let (send, receive) = broadcast::channel(4);
        send.send(transition("a", None)).unwrap();
        drop(send);
        run(settings, receive).await;
    }
}
