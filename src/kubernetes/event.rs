//! A Kubernetes event with names that events.k8s.io/v1 allows
//! (pkg/apis/core/validation/events.go).
//!
//! In: what has happened, and the object that it concerns. Out: the object to create. No I/O.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use diskvitals_text::echo::Shown;
use diskvitals_text::hash::sha256_short;

/// Longest reason, action and reporting instance, in bytes.
pub const MAX_SHORT_LEN: usize = 128;
/// Longest note of an event, and longest message of a condition that we write, in bytes.
const MAX_MESSAGE_LEN: usize = 1024;
/// Namespace of events about objects without a namespace.
const CLUSTER_SCOPED_NAMESPACE: &str = "default";
/// The daemon's `Cause.id`: events with the same value on a node have one cause.
const CAUSE_ANNOTATION: &str = "diskvitals.io/cause";

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    pub kind: &'static str,
    /// Empty if the object has no namespace.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Regarding {
    fn api_version(&self) -> &'static str {
        match self.kind {
            "CSIDriver" => "storage.k8s.io/v1",
            "NodeStorage" | "StorageAction" | "StoragePolicy" => "diskvitals.io/v1alpha1",
            _ => "v1",
        }
    }

    /// The namespace of an event about it.
    pub fn event_namespace(&self) -> String {
        match self.namespace.as_str() {
            "" => CLUSTER_SCOPED_NAMESPACE.to_owned(),
            namespace => namespace.to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub namespace: String,
    pub name: String,
    pub regarding: Regarding,
    pub reason: String,
    pub action: &'static str,
    pub note: Shown,
    pub warning: bool,
    pub reporting_instance: String,
    /// Value of the annotation `CAUSE_ANNOTATION`.
    pub cause: Option<Shown>,
    pub time: Timestamp,
}

/// Text for people in a field of the Kubernetes API: the note of an event, the message of a condition.
pub fn message(text: &str) -> Shown {
    Shown::value(text, ' ', MAX_MESSAGE_LEN)
}

/// `kubectl describe node` finds events by the node's name in the uid field, as the kubelet writes
/// them.
pub fn regarding_node(node: &str) -> Regarding {
    Regarding {
        kind: "Node",
        namespace: String::new(),
        name: node.to_owned(),
        uid: node.to_owned(),
    }
}

/// The longest allowed prefix of the node's name; the chart's admission policy uses the same.
pub fn reporting_instance(node: &str) -> &str {
    &node[..node.floor_char_boundary(MAX_SHORT_LEN)]
}

/// A transition of an object has the same event name in every process, so the API server refuses
/// the second event.
pub fn event_name(uid: &str, key: &str) -> String {
    let text = format!("{uid}\0{key}");
    format!("diskvitals.{}", sha256_short(text.as_bytes()))
}

pub fn to_kube_event(event: &Event, controller: &str) -> KubeEvent {
    let Event {
        namespace,
        name,
        regarding,
        reason,
        action,
        note,
        warning,
        reporting_instance: instance,
        cause,
        time,
    } = event;
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            annotations: cause
                .as_ref()
                .map(|cause| [(CAUSE_ANNOTATION.to_owned(), cause.to_string())].into()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(regarding.api_version().into()),
            kind: Some(regarding.kind.into()),
            namespace: Some(regarding.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(regarding.name.clone()),
            uid: Some(regarding.uid.clone()),
            ..ObjectReference::default()
        }),
        reason: Some(reason.clone()),
        action: Some((*action).into()),
        note: Some(note.to_string()),
        type_: Some(if *warning { "Warning" } else { "Normal" }.into()),
        event_time: Some(MicroTime(*time)),
        reporting_controller: Some(controller.into()),
        reporting_instance: Some(instance.clone()),
        ..KubeEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_cluster::naming::is_dns_subdomain;

    #[test]
    fn a_name_is_the_same_for_the_same_transition_of_the_same_object_and_else_another() {
        assert_eq!(event_name("a", "b"), "diskvitals.59b271ae1bbcb1d31d41929817f4b16f");
        assert_ne!(event_name("a", "b"), event_name("ab", ""));
        assert!(is_dns_subdomain(&event_name("a", "b")));
    }
}
