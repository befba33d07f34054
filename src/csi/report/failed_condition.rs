//! The node condition `StorageFailed`: the node as a whole cannot work with its storage. True or
//! False, never Unknown: programs that taint nodes read it, and most of them take Unknown for a
//! failure.
//!
//! In: the view of the daemon. Out: the condition; nothing while the state is not known, so that the
//! published value stays. No I/O.

use crate::report::DaemonView;
use crate::report::condition::{ConditionStatus, StorageCondition, camel_case};
use diskvitals_kubernetes::event::message;

pub(crate) fn failed_condition(view: &DaemonView, _in_grace: bool) -> Option<StorageCondition> {
    if view.outage.is_some() {
        return None;
    }
    let found = view.snapshot.as_ref()?.failures.as_ref()?;
    let condition = |status, reason: &str, why: &str| StorageCondition {
        status,
        reason: camel_case(reason),
        message: message(why),
    };
    if let Some(worst) = found.failures.first() {
        let messages: Vec<&str> = found.failures.iter().map(|it| it.message.as_str()).collect();
        return Some(condition(ConditionStatus::True, &worst.reason, &messages.join("; ")));
    }
    found.is_complete.then(|| {
        condition(
            ConditionStatus::False,
            "StorageUsable",
            "the filesystems of the system can be used, and more than half of the drives that carry volumes are reachable",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::report::Outage;
    use crate::report::node_failures::{NodeFailure, NodeFailures};
    use crate::report::node_snapshot::NodeSnapshot;

    fn view(failures: &[&str], is_complete: bool) -> DaemonView {
        let failure = |reason: &&str| NodeFailure {
            reason: (*reason).to_owned(),
            message: format!("{reason} in\nwords"),
        };
        let failures = failures.iter().map(failure).collect();
        DaemonView {
            snapshot: Some(Arc::new(NodeSnapshot {
                failures: Some(NodeFailures { failures, is_complete }),
                ..NodeSnapshot::default()
            })),
            outage: None,
        }
    }

    fn of(view: &DaemonView) -> Option<(ConditionStatus, String, String)> {
        let condition = failed_condition(view, false)?;
        Some((condition.status, condition.reason, condition.message.to_string()))
    }

    #[test]
    fn a_failure_is_true_whatever_is_unknown_and_fitness_needs_all_to_be_known() {
        for is_complete in [true, false] {
            let failed = of(&view(&["SystemFilesystemReadOnly", "DrivesUnreachable"], is_complete));
            let message = "SystemFilesystemReadOnly in words; DrivesUnreachable in words";
            assert_eq!(
                failed,
                Some((ConditionStatus::True, "SystemFilesystemReadOnly".into(), message.into()))
            );
        }
        let fit = of(&view(&[], true)).expect("known");
        assert_eq!((fit.0, fit.1.as_str()), (ConditionStatus::False, "StorageUsable"));
        assert_eq!(of(&view(&[], false)), None);
    }

    #[test]
    fn an_absent_daemon_and_one_that_does_not_know_this_say_nothing() {
        let mut away = view(&["DrivesUnreachable"], true);
        away.outage = Some(Outage { since: Instant::now(), why: "gone".into() });
        let older = DaemonView { snapshot: Some(Arc::new(NodeSnapshot::default())), outage: None };
        for silent in [away, older, DaemonView::default()] {
            for in_grace in [true, false] {
                assert_eq!(failed_condition(&silent, in_grace), None);
            }
        }
    }
}
