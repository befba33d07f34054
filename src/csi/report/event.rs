//! The event about a transition, with lengths that events.k8s.io/v1 allows
//! (pkg/apis/core/validation/events.go).
//!
//! In: a transition and the object that it concerns. Out: every field of the event. No I/O.

use crate::health::STATE_REASONS;
use crate::report::quarantine::ATTACHMENTS_UNCLEAN;
use crate::report::transitions::{
    HEALTH_KNOWN, HEALTH_UNKNOWN, HEALTH_WITHDRAWN, StorageTransition, StorageTransitionKind,
};
use diskvitals_finding::reason::Reason;
use diskvitals_kubernetes::event::{Event, Regarding, event_name, message, reporting_instance};

const CLEARED_SUFFIX: &str = "Cleared";
/// Instead of the reason of a newer daemon: the chart's admission policy permits known reasons alone
/// (files/reasons.json).
const OTHER_REASON: &str = "OtherReason";

pub fn event_of(transition: &StorageTransition, regarding: Regarding, node: &str) -> Event {
    let (reason, note) = if is_known_reason(&transition.reason) {
        (transition.reason.as_str(), transition.note.clone())
    } else {
        let note = format!("{}: {}", transition.reason, transition.note);
        (OTHER_REASON, note)
    };
    Event {
        namespace: regarding.event_namespace(),
        name: event_name(&regarding.uid, &transition.key),
        reason: if transition.kind == StorageTransitionKind::Cleared {
            format!("{reason}{CLEARED_SUFFIX}")
        } else {
            reason.to_owned()
        },
        action: transition.kind.action(),
        note: message(&note),
        warning: transition.kind.is_warning(),
        reporting_instance: reporting_instance(node).to_owned(),
        cause: transition.cause.as_deref().map(message),
        time: transition.at,
        regarding,
    }
}

fn is_known_reason(text: &str) -> bool {
    text.parse::<Reason>().is_ok() || OWN_REASONS.contains(&text) || STATE_REASONS.contains(&text)
}

/// Reasons without a finding.
const OWN_REASONS: [&str; 5] =
    [ATTACHMENTS_UNCLEAN, HEALTH_KNOWN, HEALTH_UNKNOWN, HEALTH_WITHDRAWN, OTHER_REASON];

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::report::transitions::EventTarget;
    use diskvitals_kubernetes::event::regarding_node;
    use diskvitals_text::echo::is_deceptive;

    fn transition(reason: &str, note: &str, kind: StorageTransitionKind) -> StorageTransition {
        StorageTransition {
            key: "0123456789ab 1 Bad 2".into(),
            target: EventTarget::Node,
            kind,
            reason: reason.into(),
            note: note.into(),
            cause: Some("drive:naa.5".into()),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_node_event_is_in_the_default_namespace_and_names_the_reporting_node() {
        let event = event_of(
            &transition("SmartFailing", "drive sda: failing", StorageTransitionKind::Raised),
            regarding_node("worker-1"),
            "worker-1",
        );
        assert_eq!(
            (
                event.namespace.as_str(),
                event.regarding.uid.as_str(),
                event.reporting_instance.as_str()
            ),
            ("default", "worker-1", "worker-1")
        );
        assert_eq!(
            (event.reason.as_str(), event.action, event.warning),
            ("SmartFailing", "Raised", true)
        );
        let over = event_of(
            &transition("SmartFailing", "over", StorageTransitionKind::Cleared),
            regarding_node("worker-1"),
            "worker-1",
        );
        assert_eq!((over.reason.as_str(), over.warning), ("SmartFailingCleared", false));
    }

    /// `UPDATE_EXPECTED=1` writes the list.
    #[test]
    fn the_charts_policy_permits_the_reasons_of_the_reporter_and_no_others() {
        let reasons: std::collections::BTreeSet<&str> = Reason::ALL
            .iter()
            .map(|reason| reason.name())
            .chain(OWN_REASONS)
            .chain(STATE_REASONS)
            .collect();
        assert!(!reasons.iter().any(|it| it.ends_with(CLEARED_SUFFIX)), "the policy cuts it off");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join("helm/diskvitals/files/reasons.json");
        let list = serde_json::to_string_pretty(&reasons).expect("text") + "\n";
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &list).expect("written");
        }
        let policy = std::fs::read_to_string(&path).expect("the chart's list");
        assert!(policy == list, "UPDATE_EXPECTED=1 writes {path:?} anew");
    }

    #[test]
    fn the_reason_of_a_newer_daemon_is_in_the_note() {
        for (kind, reason) in [
            (StorageTransitionKind::Raised, "OtherReason"),
            (StorageTransitionKind::Cleared, "OtherReasonCleared"),
        ] {
            let event = event_of(
                &transition("NotInventedYet", "drive sda: odd", kind),
                regarding_node("a"),
                "a",
            );
            assert_eq!(
                (event.reason.as_str(), event.note.as_str()),
                (reason, "NotInventedYet: drive sda: odd")
            );
        }
    }

    proptest! {
        #[test]
        fn every_event_keeps_to_the_api_servers_lengths(reason in "\\PC{0,300}", note in "[aä🙂\\x00-\\x1f\u{202a}-\u{202e}\u{2066}\u{200b}]{0,1500}", node in "[a-zä]{1,253}") {
            for kind in [StorageTransitionKind::Raised, StorageTransitionKind::Cleared] {
                let event = event_of(&transition(&reason, &note, kind), regarding_node(&node), &node);
                prop_assert!(!event.reason.is_empty() && event.reason.len() <= 128 && event.reason.bytes().all(|b| b.is_ascii_alphanumeric()));
                prop_assert!(event.note.len() <= 1024 && !event.note.contains(is_deceptive));
                prop_assert!(event.reporting_instance.len() <= 128 && node.starts_with(&event.reporting_instance));
            }
        }
    }
}
