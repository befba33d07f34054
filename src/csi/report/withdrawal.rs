//! `--report --withdraw`: publishes once that health is no longer reported: on the node, and on the
//! pods and claims of the volumes that are not healthy, whose warnings would stay without an end.
//! Removes the node conditions, which would keep their last values for ever.
//!
//! In: the first snapshot of the node. Out: events, and one server-side apply.

use std::convert::Infallible;

use tokio::sync::watch;

use crate::report::api::ApiServer;
use crate::report::attempts::Attempts;
use crate::report::event_publisher::EventPublisher;
use crate::report::node_condition::NodeConditionKind;
use crate::report::node_snapshot::{NodeSnapshot, Subject};
use crate::report::transitions::{
    EventTarget, HEALTH_WITHDRAWN, StorageTransition, StorageTransitionKind, users,
};
use crate::report::{DaemonView, ReportTiming, now};

/// Waits for the daemon as long as an outage is tolerated. Without it only the node's event is
/// published.
pub(crate) async fn publish_events(
    mut views: watch::Receiver<DaemonView>,
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
) -> Infallible {
    let has_snapshot = views.wait_for(|view| view.snapshot.is_some());
    let snapshot = match tokio::time::timeout(timing.absence_grace, has_snapshot).await {
        Ok(Ok(view)) => view.snapshot.clone(),
        Ok(Err(_)) | Err(_) => None,
    };
    let mut publisher = EventPublisher::new(api, node, timing);
    publisher.enqueue(withdrawal_transitions(snapshot.as_deref(), now()));
    while let Some(due) = publisher.due() {
        tokio::time::sleep_until(due).await;
        publisher.publish_next().await;
    }
    tracing::info!(node, "it is published that health is no longer reported");
    std::future::pending().await
}

pub(crate) async fn remove_condition(
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
    kind: &NodeConditionKind,
) -> Infallible {
    let mut attempts = Attempts::new(timing, node, kind.name);
    attempts.until_success(|| api.remove_condition(kind)).await;
    tracing::info!(node, condition = kind.name, "the node condition is removed");
    std::future::pending().await
}

/// One for the node, and one for each user of a volume with an adverse issue.
fn withdrawal_transitions(
    snapshot: Option<&NodeSnapshot>,
    at: jiff::Timestamp,
) -> Vec<StorageTransition> {
    let transition = |key: String, target, note: String| StorageTransition {
        key,
        target,
        kind: StorageTransitionKind::Withdrawn,
        reason: HEALTH_WITHDRAWN.to_owned(),
        note,
        cause: None,
        at,
    };
    let mut transitions = vec![transition(
        "withdrawn".to_owned(),
        EventTarget::Node,
        "health is no longer reported: diskvitals was withdrawn from this node".to_owned(),
    )];
    let Some(snapshot) = snapshot else {
        return transitions;
    };
    // Worst first: the event of an object is about the first, whatever else is known.
    for (id, issue) in snapshot.adverse() {
        let Subject::Volume(volume) = &issue.subject else {
            continue;
        };
        let note = format!(
            "{}: health is no longer reported. The last was: {}: {}",
            snapshot.display_name(&issue.subject),
            issue.reason,
            issue.text()
        );
        for target in snapshot.volumes.get(volume).map(users).unwrap_or_default() {
            if transitions.iter().all(|it| it.target != target) {
                transitions.push(transition(format!("{id} withdrawn"), target, note.clone()));
            }
        }
    }
    transitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::node_snapshot::Severity;
    use crate::report::transitions::tests::{at, drive, issue, snapshot, volume};

    #[test]
    fn the_node_and_each_user_of_a_volume_with_findings_have_one_event_of_the_end_of_reports() {
        let mut slow = issue(volume("v1"), Severity::Suspect);
        (slow.reason, slow.severity) = ("IoStalled".into(), Severity::Bad);
        let mild = issue(volume("v1"), Severity::Suspect);
        let issues = [
            ("a", issue(drive("d1"), Severity::Bad)),
            ("b", slow),
            ("ba", mild),
            ("c", issue(volume("v1"), Severity::Info)),
            ("d", issue(volume("fs:root"), Severity::Bad)),
        ];
        let published: Vec<(String, String)> =
            withdrawal_transitions(Some(&snapshot(&issues)), at(0))
                .into_iter()
                .map(|transition| {
                    assert!(!transition.kind.is_warning());
                    let target = match transition.target {
                        EventTarget::Node => "node".to_owned(),
                        EventTarget::Pod(pod) => pod.name,
                        EventTarget::Claim(claim) => claim.pv,
                    };
                    (target, transition.note)
                })
                .collect();
        let note = "volume pv1: health is no longer reported. The last was: IoStalled: it says that it fails";
        assert_eq!(
            published,
            [
                (
                    "node".into(),
                    "health is no longer reported: diskvitals was withdrawn from this node".into()
                ),
                ("web".into(), note.into()),
                ("pv1".into(), note.into()),
            ]
        );
    }

    #[test]
    fn without_a_daemon_only_the_node_learns_it() {
        assert_eq!(withdrawal_transitions(None, at(0)).len(), 1);
    }
}
