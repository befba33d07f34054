//! Queue of transitions that wait to be published as events: in order for each object, bounded, and
//! fair between objects.
//! In: transitions, and whether the first of them was published. Out: the next one. The queue does
//! not depend on the API server.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::report::transitions::{EventTarget, StorageTransition};

/// Maximum number of queued transitions.
const MAX_LEN: usize = 2000;
/// After this number of failures other objects come first: a failing webhook may affect the events
/// of one namespace only.
const MAX_ATTEMPTS_IN_TURN: u32 = 8;

#[derive(Debug)]
struct QueuedTransition {
    transition: StorageTransition,
    since: Instant,
    failures: u32,
}

#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<QueuedTransition>,
    /// Transitions that have failed for this time are dropped.
    max_age: Duration,
}

impl Queue {
    pub(crate) fn new(max_age: Duration) -> Queue {
        Queue { entries: VecDeque::new(), max_age }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn first(&self) -> Option<&StorageTransition> {
        self.entries.front().map(|queued| &queued.transition)
    }

    /// Warnings go before waiting news that something is over, unless these are about the same
    /// object. Returns the number of dropped transitions. The oldest are dropped first; those of
    /// the node last, because they are the most informative.
    pub(crate) fn push(&mut self, transitions: Vec<StorageTransition>) -> usize {
        let since = Instant::now();
        for transition in transitions {
            let at = if transition.kind.is_warning() {
                let is_warning = |queued: &&QueuedTransition| queued.transition.kind.is_warning();
                let warnings = self.entries.iter().take_while(is_warning).count();
                let is_same =
                    |queued: &QueuedTransition| queued.transition.target == transition.target;
                let same = self.entries.iter().rposition(is_same);
                warnings.max(same.map_or(0, |last| last + 1))
            } else {
                self.entries.len()
            };
            let queued = QueuedTransition { transition, since, failures: 0 };
            self.entries.insert(at, queued);
        }
        let dropped = self.entries.len().saturating_sub(MAX_LEN);
        let mut over = dropped;
        self.entries.retain(|queued| {
            let kept = over == 0 || queued.transition.target == EventTarget::Node;
            over -= usize::from(!kept);
            kept
        });
        self.entries.drain(..over);
        dropped
    }

    /// Removes the first transition after it was published or rejected permanently.
    pub(crate) fn pop(&mut self) {
        self.entries.pop_front();
    }

    /// Records a failure of the first transition. `aside` means that transitions of other objects
    /// may succeed. Returns whether the transition is dropped.
    pub(crate) fn record_failure(&mut self, aside: bool) -> bool {
        let Some(first) = self.entries.front_mut() else {
            return false;
        };
        first.failures += 1;
        if first.failures < MAX_ATTEMPTS_IN_TURN && !aside {
            return false;
        }
        if first.failures >= MAX_ATTEMPTS_IN_TURN && first.since.elapsed() >= self.max_age {
            self.entries.pop_front();
            return true;
        }
        let target = first.transition.target.clone();
        let (same, others): (VecDeque<QueuedTransition>, VecDeque<QueuedTransition>) =
            std::mem::take(&mut self.entries)
                .into_iter()
                .partition(|queued| queued.transition.target == target);
        self.entries = others;
        self.entries.extend(same);
        false
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::report::transitions::StorageTransitionKind;
    use diskvitals_finding::provision::PodRef;

    fn transition(target: EventTarget, number: usize) -> StorageTransition {
        let (key, reason) = (number.to_string(), "SmartFailing".to_owned());
        StorageTransition {
            key,
            target,
            kind: StorageTransitionKind::Raised,
            reason,
            note: String::new(),
            cause: None,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn pod(uid: &str) -> EventTarget {
        EventTarget::Pod(PodRef { uid: uid.into(), name: "web".into(), namespace: "shop".into() })
    }

    fn keys(queue: &mut Queue) -> Vec<String> {
        let mut keys = Vec::new();
        while let Some(first) = queue.first() {
            keys.push(first.key.clone());
            queue.pop();
        }
        keys
    }

    fn queue(abouts: &[EventTarget]) -> Queue {
        let mut queue = Queue::new(Duration::from_secs(3600));
        queue.push(
            abouts
                .iter()
                .cloned()
                .enumerate()
                .map(|(number, target)| transition(target, number))
                .collect(),
        );
        queue
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_whose_events_fail_eight_times_is_moved_behind_the_others_in_order() {
        let mut queue = queue(&[pod("a"), EventTarget::Node, pod("a"), pod("b")]);
        for _ in 0..7 {
            assert!(!queue.record_failure(false));
            assert_eq!(queue.first().map(|transition| transition.key.as_str()), Some("0"));
        }
        queue.record_failure(false);
        // From then on each failure puts it aside at once.
        assert_eq!(queue.first().map(|transition| transition.key.as_str()), Some("1"));
        queue.pop();
        queue.pop();
        queue.push(vec![transition(EventTarget::Node, 4)]);
        queue.record_failure(false);
        assert_eq!(keys(&mut queue), ["4", "0", "2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_for_an_hour_is_given_up_and_what_was_not_tried_is_not() {
        let mut queue = queue(&[pod("a"), pod("b")]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        let given_up: Vec<bool> =
            std::iter::repeat_with(|| queue.record_failure(false)).take(8).collect();
        assert_eq!(given_up.iter().position(|given_up| *given_up), Some(7));
        assert_eq!(keys(&mut queue), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_goes_before_waiting_news_about_other_objects() {
        let over = |target: EventTarget, number| StorageTransition {
            kind: StorageTransitionKind::Cleared,
            ..transition(target, number)
        };
        let mut queue = Queue::new(Duration::from_secs(3600));
        queue.push(vec![over(pod("a"), 0), over(pod("b"), 1)]);
        queue.push(vec![transition(pod("c"), 2), transition(pod("b"), 3), transition(pod("d"), 4)]);
        assert_eq!(keys(&mut queue), ["2", "4", "0", "1", "3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn on_overflow_the_oldest_are_dropped_and_node_events_last() {
        let mut queue = queue(&[EventTarget::Node, pod("a"), pod("b")]);
        let more = |count: usize, target: EventTarget| {
            (0..count)
                .map(|number| transition(target.clone(), 10 + number))
                .collect::<Vec<StorageTransition>>()
        };
        assert_eq!(queue.push(more(MAX_LEN - 2, pod("c"))), 1);
        assert_eq!(
            queue.first().map(|transition| transition.target.clone()),
            Some(EventTarget::Node)
        );
        assert_eq!(queue.entries[1].transition.key, "2");
        assert_eq!(
            (queue.push(more(MAX_LEN + 5, EventTarget::Node)), queue.len()),
            (MAX_LEN + 5, MAX_LEN)
        );
        assert_eq!(
            queue.first().map(|transition| transition.key.as_str()),
            Some("15"),
            "the node's too, where there are no others"
        );
    }
}
