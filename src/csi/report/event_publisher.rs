//! Publishes each transition as a Kubernetes event, once, within the rate limit of the API server.
//!
//! In: the view of the daemon, transitions that others detect. Out: events. An event that cannot be written now waits in a bounded
//! queue; an event that the API server rejects permanently is logged and dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::report::api::ApiServer;
use crate::report::event::event_of;
use crate::report::node_snapshot::NodeSnapshot;
use crate::report::queue::Queue;
use crate::report::transitions::{
    EventTarget, HEALTH_KNOWN, HEALTH_UNKNOWN, StorageTransition, StorageTransitionKind,
    detect_transitions, next_baseline,
};
use crate::report::{DaemonView, ReportTiming, maybe_sleep_until, now};
use diskvitals_kubernetes::api_error::{ApiError, Rejection};
use diskvitals_kubernetes::event::{Regarding, regarding_node};
use diskvitals_kubernetes::retry_delay::RetryDelay;
use diskvitals_quota::token_bucket::TokenBucket;

pub(crate) async fn run(
    mut views: watch::Receiver<DaemonView>,
    mut others: mpsc::Receiver<StorageTransition>,
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
) -> Infallible {
    let mut publisher = EventPublisher::new(api, node, timing);
    loop {
        let view = views.borrow_and_update().clone();
        let grace_until = view.grace_until(timing.absence_grace);
        publisher.update(&view, grace_until.is_some());
        let due = publisher.due();
        tokio::select! {
            changed = views.changed() => if changed.is_err() {
                // The watch has ended because the process is ending.
                std::future::pending::<()>().await;
            },
            Some(other) = others.recv() => publisher.enqueue(vec![other]),
            () = maybe_sleep_until(grace_until) => {}
            () = maybe_sleep_until(due) => publisher.publish_next().await,
        }
    }
}

pub(super) struct EventPublisher<'a> {
    api: &'a ApiServer,
    node: &'a str,
    last_snapshot: Option<Arc<NodeSnapshot>>,
    /// `last_snapshot` plus issues whose end is still unpublished.
    baseline: Option<NodeSnapshot>,
    /// The outage of the daemon has been published.
    outage_reported: bool,
    queue: Queue,
    rate_limit: TokenBucket,
    retry_delay: RetryDelay,
    not_before: Option<Instant>,
    last_error: Option<String>,
    /// Count of rejections by kind and namespace.
    rejections: BTreeMap<(String, String), u64>,
    /// Indexed by namespace.
    forbidden: BTreeMap<String, Forbidden>,
    /// How long a permission may take to become effective.
    rbac_grace: Duration,
    given_up: u64,
}

/// The time since which a permission has been missing without a success, and the last time that it
/// was missing.
#[derive(Clone, Copy, Debug)]
struct Forbidden {
    since: Instant,
    last: Instant,
}

impl<'a> EventPublisher<'a> {
    pub(super) fn new(
        api: &'a ApiServer,
        node: &'a str,
        timing: &ReportTiming,
    ) -> EventPublisher<'a> {
        EventPublisher {
            api,
            node,
            last_snapshot: None,
            baseline: None,
            outage_reported: false,
            queue: Queue::new(timing.max_event_age),
            rate_limit: TokenBucket::new(timing.event_burst, timing.event_interval),
            retry_delay: RetryDelay::new(timing.initial_backoff, timing.max_backoff, node),
            not_before: None,
            last_error: None,
            rejections: BTreeMap::new(),
            forbidden: BTreeMap::new(),
            rbac_grace: timing.rbac_grace,
            given_up: 0,
        }
    }

    fn update(&mut self, view: &DaemonView, in_grace: bool) {
        let now = now();
        if let Some(snapshot) = &view.snapshot
            && self.last_snapshot.as_ref().is_none_or(|last| !Arc::ptr_eq(last, snapshot))
        {
            self.enqueue(detect_transitions(self.baseline.as_ref(), snapshot, now));
            self.baseline = Some(self.baseline.as_ref().map_or_else(
                || NodeSnapshot::clone(snapshot),
                |before| next_baseline(before, snapshot),
            ));
            self.last_snapshot = Some(snapshot.clone());
        }
        match &view.outage {
            // A reporter that has never reached the daemon has no start of the outage: an earlier
            // reporter may have published it.
            Some(outage) if !in_grace && !self.outage_reported && self.last_snapshot.is_some() => {
                let note = format!(
                    "the storage health of this node is unknown: diskvitalsd does not answer: {}",
                    outage.why
                );
                self.enqueue(vec![self.daemon_transition(
                    StorageTransitionKind::BecameUnknown,
                    HEALTH_UNKNOWN,
                    note,
                    now,
                )]);
                self.outage_reported = true;
            }
            None if self.outage_reported => {
                let note = "diskvitalsd answers again: the storage health of this node is known"
                    .to_owned();
                self.enqueue(vec![self.daemon_transition(
                    StorageTransitionKind::BecameKnown,
                    HEALTH_KNOWN,
                    note,
                    now,
                )]);
                self.outage_reported = false;
            }
            _ => {}
        }
    }

    fn daemon_transition(
        &self,
        kind: StorageTransitionKind,
        reason: &str,
        note: String,
        at: jiff::Timestamp,
    ) -> StorageTransition {
        StorageTransition {
            key: format!("daemon {} {at}", kind.action()),
            target: EventTarget::Node,
            kind,
            reason: reason.to_owned(),
            note,
            cause: None,
            at,
        }
    }

    pub(super) fn enqueue(&mut self, transitions: Vec<StorageTransition>) {
        let dropped = self.queue.push(transitions);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                waiting = self.queue.len(),
                "too many events wait; the oldest are dropped"
            );
        }
    }

    pub(super) fn due(&mut self) -> Option<Instant> {
        self.queue.first().map(|transition| {
            self.rate_limit
                .next_available(transition.kind.is_warning())
                .max(self.not_before.unwrap_or_else(Instant::now))
        })
    }

    pub(super) async fn publish_next(&mut self) {
        let Some(transition) = self.queue.first().cloned() else {
            return;
        };
        self.rate_limit.use_one();
        match self.publish(&transition).await {
            Ok(()) => {
                self.retry_delay.reset();
                (self.not_before, self.last_error) = (None, None);
                self.forbidden.remove(namespace(&transition.target));
                self.queue.pop();
            }
            Err(ApiError::Rejected(rejection)) => self.record_rejection(&transition, rejection),
            Err(ApiError::Forbidden(rejection))
                if self.is_forbidden_for_good(namespace(&transition.target)) =>
            {
                self.record_rejection(&transition, rejection)
            }
            Err(error) => {
                // The server may accept events of other namespaces.
                let aside = matches!(error, ApiError::Forbidden(_));
                let (why, retry_after) = error.into_message_and_delay();
                self.record_failure(&transition, why, retry_after, aside);
            }
        }
    }

    fn record_failure(
        &mut self,
        transition: &StorageTransition,
        why: String,
        retry_after: Option<Duration>,
        aside: bool,
    ) {
        if self.last_error.as_ref() != Some(&why) {
            tracing::warn!(
                error = why,
                waiting = self.queue.len(),
                "events cannot be published; retrying"
            );
        }
        if self.queue.record_failure(aside) {
            self.given_up += 1;
            tracing::warn!(
                reason = transition.reason,
                why,
                given_up = self.given_up,
                "an event could not be published for too long and is given up"
            );
        }
        self.last_error = Some(why);
        self.not_before = Some(Instant::now() + self.retry_delay.next(retry_after));
    }

    /// Immediately after an installation its roles may not be effective everywhere.
    fn is_forbidden_for_good(&mut self, namespace: &str) -> bool {
        let (now, grace) = (Instant::now(), self.rbac_grace);
        self.forbidden.retain(|_, forbidden| now < forbidden.last + grace);
        let forbidden = self
            .forbidden
            .entry(namespace.to_owned())
            .or_insert(Forbidden { since: now, last: now });
        forbidden.last = now;
        now >= forbidden.since + grace
    }

    /// Logs each kind of rejection once for each namespace: a terminating namespace or a missing
    /// permission affects all of its events.
    fn record_rejection(&mut self, transition: &StorageTransition, rejection: Rejection) {
        self.queue.pop();
        if self.rejections.len() >= 64 {
            self.rejections.clear();
        }
        let Rejection { kind, why } = rejection;
        let times =
            self.rejections.entry((kind, namespace(&transition.target).to_owned())).or_default();
        *times += 1;
        if *times == 1 {
            tracing::warn!(
                reason = transition.reason,
                why,
                "the API server rejects an event; it is dropped"
            );
        }
    }

    async fn publish(&self, transition: &StorageTransition) -> Result<(), ApiError> {
        let regarding = match &transition.target {
            EventTarget::Node => regarding_node(self.node),
            EventTarget::Pod(pod) => Regarding {
                kind: "Pod",
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            },
            EventTarget::Claim(claimed) => match self.api.find_claim(claimed).await? {
                Some(claim) => claim,
                // The volume has no claim, or one that no pod of this node uses.
                None => return Ok(()),
            },
        };
        self.api.create_event(&event_of(transition, regarding, self.node)).await
    }
}

/// Namespace of the event, if it is known here.
fn namespace(target: &EventTarget) -> &str {
    match target {
        EventTarget::Node => "",
        EventTarget::Pod(pod) => &pod.namespace,
        EventTarget::Claim(claimed) => claimed.namespaces.first().map_or("", String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_finding::provision::PodRef;
    use diskvitals_kubernetes::Config;

    fn pod(name: &str, namespace: &str) -> StorageTransition {
        let target = EventTarget::Pod(PodRef {
            uid: name.into(),
            name: name.into(),
            namespace: namespace.into(),
        });
        StorageTransition {
            key: name.into(),
            target,
            kind: StorageTransitionKind::Raised,
            reason: "DriveFailing".into(),
            note: String::new(),
            cause: None,
            at: now(),
        }
    }

    fn api(timing: &ReportTiming) -> ApiServer {
        ApiServer::new(
            Config::new("http://127.0.0.1:1".parse().expect("an address")),
            "worker-1",
            timing,
        )
        .expect("a client")
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_are_grouped_regardless_of_names_in_their_messages() {
        let timing = ReportTiming::default();
        let api = api(&timing);
        let mut publisher = EventPublisher::new(&api, "worker-1", &timing);
        for (name, namespace) in [("a", "shop"), ("b", "shop"), ("c", "bank")] {
            let rejection = Rejection {
                kind: "403 Forbidden".into(),
                why: format!("403 Forbidden: events {name:?} is forbidden"),
            };
            publisher.record_rejection(&pod(name, namespace), rejection);
        }
        assert_eq!(publisher.rejections.values().collect::<Vec<_>>(), [&1, &2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_permission_is_retried_for_five_minutes_and_then_final() {
        let timing = ReportTiming::default();
        let api = api(&timing);
        let mut publisher = EventPublisher::new(&api, "worker-1", &timing);
        let mut after = async |seconds| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            publisher.is_forbidden_for_good("shop")
        };
        assert_eq!(
            [after(0).await, after(120).await, after(120).await, after(120).await, after(1).await],
            [false, false, false, true, true]
        );
        // Not missing for long: perhaps another installation.
        assert!(!after(301).await);
    }
}
