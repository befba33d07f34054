//! Events that wait to be published.
//!
//! In: decisions. Out: events for the API server, the oldest first. No I/O but the log.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::calls::{Call, Caller, Calls, Outcome};
use crate::model::Claim;
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_kubernetes::event::{Event, Regarding, event_name, message, reporting_instance};

const MAX_EVENTS: usize = 1000;

/// `namespace`: empty for an object without one.
pub(crate) fn regarding(kind: &'static str, namespace: &str, name: &str, uid: &str) -> Regarding {
    let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
    Regarding { kind, namespace, name, uid }
}

pub(crate) fn regarding_claim(claim: &Claim) -> Regarding {
    regarding("PersistentVolumeClaim", &claim.namespace, &claim.name, &claim.uid)
}

/// What is announced about one object.
pub(crate) struct Announcement {
    pub regarding: Regarding,
    pub reason: &'static str,
    pub note: String,
    pub is_warning: bool,
}

impl Announcement {
    pub(crate) fn new(
        regarding: Regarding,
        reason: &'static str,
        note: impl Into<String>,
        is_warning: bool,
    ) -> Announcement {
        Announcement { regarding, reason, note: note.into(), is_warning }
    }
}

pub(crate) struct EventQueue {
    reporting_instance: String,
    waiting: VecDeque<Event>,
    calls: Calls<(Event, Result<(), ApiError>)>,
}

impl EventQueue {
    pub(crate) fn new(identity: &str) -> EventQueue {
        EventQueue {
            reporting_instance: reporting_instance(identity).to_owned(),
            waiting: VecDeque::new(),
            calls: Calls::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Calls that are under way do not count.
    pub(crate) fn reset(&mut self) {
        self.waiting.clear();
        self.calls = Calls::default();
    }

    pub(crate) fn next_call(&mut self, caller: &Caller) -> Option<Call> {
        let (event, api) = (self.waiting.pop_front()?, caller.api.clone());
        Some(self.calls.start(async move {
            let published = api.publish(&event).await;
            (event, published)
        }))
    }

    /// One that may be tried again waits before all others.
    pub(crate) fn end_call(&mut self) -> Outcome {
        let (event, error) = match self.calls.take() {
            Some((event, Err(error))) => (event, error),
            Some((_, Ok(()))) => return Outcome::Done(Some("ok")),
            None => return Outcome::Done(None),
        };
        let operation = "publishing an event";
        // An event is of use for an hour: one that may not be written now is dropped.
        let (counted, error) = match error {
            ApiError::Forbidden(rejection) | ApiError::Rejected(rejection) => {
                ("refused", ApiError::Rejected(rejection))
            }
            error @ ApiError::Retryable { .. } => {
                self.waiting.push_front(event);
                ("error", error)
            }
        };
        Outcome::Failed { counted: Some(counted), operation, error }
    }

    /// False: there are too many, and it is dropped.
    pub(crate) fn push(&mut self, announcement: Announcement, time: Timestamp) -> bool {
        if self.waiting.len() >= MAX_EVENTS {
            return false;
        }
        let Announcement { regarding, reason, note, is_warning } = announcement;
        // A second leader, or the same one after a restart, repeats it once an hour at most.
        let hour = time.as_second() / 3600;
        self.waiting.push_back(Event {
            name: event_name(
                &format!("{} {}", regarding.kind, regarding.uid),
                &format!("{reason} {note} {hour}"),
            ),
            namespace: regarding.event_namespace(),
            regarding,
            reason: reason.to_owned(),
            action: if is_warning { "Raised" } else { "Cleared" },
            note: message(&note),
            warning: is_warning,
            reporting_instance: self.reporting_instance.clone(),
            cause: None,
            time,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_kubernetes::event::regarding_node;
    use diskvitals_text::echo::is_deceptive;

    #[test]
    fn no_text_of_a_node_leaves_as_it_is_or_without_an_end() {
        let mut queue = EventQueue::new("replica-1");
        for note in ["drive a\r\n\u{1b}[31m\u{202e}\u{200b}".to_owned(), "ä".repeat(5000)] {
            let announcement = Announcement {
                regarding: regarding_node("node-1"),
                reason: "SharedDrive",
                note,
                is_warning: true,
            };
            assert!(queue.push(announcement, Timestamp::UNIX_EPOCH));
            let note = queue.waiting.pop_front().expect("an event").note;
            assert!(note.len() <= 1024 && !note.contains(is_deceptive), "{note}");
        }
    }
}
