//! One Kubernetes event with names and lengths that events.k8s.io/v1 allows
//! (pkg/apis/core/validation/events.go).
//!
//! In: a transition and the object that it concerns. Out: every field of the event. No I/O.

use jiff::Timestamp;

use crate::csi::health::STATE_REASONS;
use crate::csi::limits;
use crate::csi::report::quarantine::ATTACHMENTS_UNCLEAN;
use crate::csi::report::transitions::{
    HEALTH_KNOWN, HEALTH_UNKNOWN, HEALTH_WITHDRAWN, StorageTransition, StorageTransitionKind,
};
use crate::model::echo::is_deceptive;
use crate::model::hash::sha256_short;
use crate::model::reason::Reason;

/// Longest reason, action and reporting instance, in bytes.
const MAX_SHORT_LEN: usize = 128;
/// Namespace of events about objects without a namespace.
pub(crate) const CLUSTER_SCOPED_NAMESPACE: &str = "default";
/// The daemon's `Cause.id`: events with the same value on a node have one cause.
pub(crate) const CAUSE_ANNOTATION: &str = "diskvitals.io/cause";
const CLEARED_SUFFIX: &str = "Cleared";
/// Instead of the reason of a newer daemon: the chart's admission policy permits known reasons alone
/// (files/reasons.json).
const OTHER_REASON: &str = "OtherReason";

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regarding {
    pub kind: &'static str,
    /// Empty if the object has no namespace.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Regarding {
    pub(crate) fn api_version(&self) -> &'static str {
        match self.kind {
            "CSIDriver" => "storage.k8s.io/v1",
            "NodeStorage" | "StorageAction" | "StoragePolicy" => "diskvitals.io/v1alpha1",
            _ => "v1",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub namespace: String,
    pub name: String,
    pub regarding: Regarding,
    pub reason: String,
    pub action: &'static str,
    pub note: String,
    pub warning: bool,
    pub reporting_instance: String,
    /// Value of the annotation `CAUSE_ANNOTATION`.
    pub cause: Option<String>,
    pub time: Timestamp,
}

impl Event {
    pub(crate) fn new(transition: &StorageTransition, regarding: Regarding, node: &str) -> Event {
        let namespace = if regarding.namespace.is_empty() {
            CLUSTER_SCOPED_NAMESPACE.to_owned()
        } else {
            regarding.namespace.clone()
        };
        let (reason, note) = if is_known_reason(&transition.reason) {
            (transition.reason.as_str(), transition.note.clone())
        } else {
            let note = format!("{}: {}", transition.reason, transition.note);
            (OTHER_REASON, note)
        };
        Event {
            namespace,
            name: event_name(&regarding.uid, &transition.key),
            reason: if transition.kind == StorageTransitionKind::Cleared {
                format!("{reason}{CLEARED_SUFFIX}")
            } else {
                reason.to_owned()
            },
            action: transition.kind.action(),
            note: limits::truncate_message(&note.replace(is_deceptive, " ")).into_owned(),
            warning: transition.kind.is_warning(),
            reporting_instance: reporting_instance(node).to_owned(),
            cause: transition.cause.clone(),
            time: transition.at,
            regarding,
        }
    }
}

/// `kubectl describe node` finds events by the node's name in the uid field, as the kubelet writes
/// them.
pub(crate) fn regarding_node(node: &str) -> Regarding {
    Regarding {
        kind: "Node",
        namespace: String::new(),
        name: node.to_owned(),
        uid: node.to_owned(),
    }
}

/// The longest allowed prefix of the node's name; the chart's admission policy uses the same.
pub(crate) fn reporting_instance(node: &str) -> &str {
    &node[..node.floor_char_boundary(MAX_SHORT_LEN)]
}

/// A transition of an object has the same event name in every process, so the API server refuses
/// the second event.
pub(crate) fn event_name(uid: &str, key: &str) -> String {
    let text = format!("{uid}\0{key}");
    format!("diskvitals.{}", sha256_short(text.as_bytes()))
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

fn is_known_reason(text: &str) -> bool {
    text.parse::<Reason>().is_ok() || OWN_REASONS.contains(&text) || STATE_REASONS.contains(&text)
}

/// Reasons without a finding.
const OWN_REASONS: [&str; 5] =
    [ATTACHMENTS_UNCLEAN, HEALTH_KNOWN, HEALTH_UNKNOWN, HEALTH_WITHDRAWN, OTHER_REASON];

/// Whether the text is a DNS subdomain (RFC 1123), so that it is one component of a URL path.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let ends = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = part.as_bytes();
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::csi::report::transitions::EventTarget;

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
        let event = Event::new(
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
        let over = Event::new(
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
            let event = Event::new(
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

    #[test]
    fn a_name_is_the_same_for_the_same_transition_of_the_same_object_and_else_another() {
        assert_eq!(event_name("a", "b"), "diskvitals.59b271ae1bbcb1d31d41929817f4b16f");
        assert_ne!(event_name("a", "b"), event_name("ab", ""));
        assert!(is_dns_subdomain(&event_name("a", "b")));
    }

    #[test]
    fn a_path_is_not_a_dns_subdomain() {
        for (text, good) in [
            ("pvc-1", true),
            ("a.b-c.d", true),
            ("", false),
            ("../nodes", false),
            ("a/b", false),
            ("a?b", false),
            ("A", false),
            ("-a", false),
            ("a..b", false),
        ] {
            assert_eq!(is_dns_subdomain(text), good, "{text}");
        }
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }

    proptest! {
        #[test]
        fn every_event_keeps_to_the_api_servers_lengths(reason in "\\PC{0,300}", note in "[aä🙂\\x00-\\x1f\u{202a}-\u{202e}\u{2066}\u{200b}]{0,1500}", node in "[a-zä]{1,253}") {
            for kind in [StorageTransitionKind::Raised, StorageTransitionKind::Cleared] {
                let event = Event::new(&transition(&reason, &note, kind), regarding_node(&node), &node);
                prop_assert!(!event.reason.is_empty() && event.reason.len() <= 128 && event.reason.bytes().all(|b| b.is_ascii_alphanumeric()));
                prop_assert!(event.note.len() <= 1024 && !event.note.contains(is_deceptive));
                prop_assert!(event.reporting_instance.len() <= 128 && node.starts_with(&event.reporting_instance));
            }
        }
    }
}
