//! Quarantine: the cluster's controller writes into the spec of this node's `NodeStorage` object which
//! pods the node had when it was lost, and the node says whether anything of them is left.
//!
//! In: the node's object, the connection to the daemon. Out: the daemon's answer to the present
//! quarantine, for the publisher of the object, and an event when the node is not clean for long. The
//! daemon is asked again and again, also while the node is clean: its last answer counts, and without
//! an answer the node is not clean. Nothing is kept here over a restart: the order is in the object,
//! and what is left is in the mount table.

mod answer;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;

use crate::agent::Agent;
use crate::report::object_watch::{StorageObject, follow_part};
use crate::report::quarantine::answer::answer;
use crate::report::transitions::{EventTarget, StorageTransition, StorageTransitionKind};
use crate::report::{ReportTiming, maybe_sleep_until, now};
use diskvitals_cluster::node_storage::{CleanReason, MAX_QUARANTINED, Quarantine};
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;

pub(crate) use crate::report::quarantine::answer::QuarantineAnswer;

/// Reason of the event about a node that is not clean.
pub(crate) const ATTACHMENTS_UNCLEAN: &str = "AttachmentsUnclean";
/// Longer than the daemon's patience with its own readings.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// While the node is clean it is asked less often.
const CLEAN_INTERVALS: u32 = 2;

/// What the publisher of the object says about the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuarantineState {
    /// This reporter does not answer.
    Disabled,
    /// The object has not been read yet.
    Unknown,
    Absent,
    /// The daemon has not answered, and why.
    NoAnswer(String),
    Answered(Arc<QuarantineAnswer>),
}

/// The quarantine in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ordered {
    Unknown,
    Nothing,
    /// It is of a newer version.
    Unreadable(String),
    Quarantine(Quarantine),
}

pub(crate) async fn run(
    agent: Agent,
    objects: watch::Receiver<StorageObject>,
    node: &str,
    timing: &ReportTiming,
    states: watch::Sender<QuarantineState>,
    events: mpsc::Sender<StorageTransition>,
) -> Infallible {
    let (sender, ordered) = watch::channel(Ordered::Unknown);
    tokio::select! {
        never = follow_part(objects, &sender, ordered_by) => never,
        never = answer_all(&agent, ordered, node, timing, &states, &events) => never,
    }
}

fn ordered_by(object: &StorageObject) -> Ordered {
    let spec = match object {
        StorageObject::Unknown => return Ordered::Unknown,
        StorageObject::Absent => return Ordered::Nothing,
        StorageObject::Present(object) => &object["spec"]["quarantine"],
    };
    match Option::<Quarantine>::deserialize(spec) {
        Ok(Some(quarantine)) if quarantine.id.is_empty() => {
            Ordered::Unreadable("the quarantine has no id".to_owned())
        }
        Ok(Some(quarantine)) => Ordered::Quarantine(quarantine),
        Ok(None) => Ordered::Nothing,
        Err(error) => Ordered::Unreadable(format!("the quarantine cannot be read: {error}")),
    }
}

/// A quarantine since this process knows it.
struct Present {
    quarantine: Quarantine,
    /// When an event is due.
    unclean_at: Instant,
    /// The reasons that were published.
    published: BTreeSet<CleanReason>,
    last_log: Option<CleanReason>,
}

async fn answer_all(
    agent: &Agent,
    mut ordered: watch::Receiver<Ordered>,
    node: &str,
    timing: &ReportTiming,
    states: &watch::Sender<QuarantineState>,
    events: &mpsc::Sender<StorageTransition>,
) -> Infallible {
    let mut present: Option<Present> = None;
    let mut not_before = Instant::now();
    loop {
        let order = ordered.borrow_and_update().clone();
        match order {
            Ordered::Unknown => {}
            Ordered::Nothing => {
                set(states, QuarantineState::Absent);
                present = None;
            }
            Ordered::Unreadable(why) => {
                set(states, QuarantineState::NoAnswer(why));
                present = None;
            }
            Ordered::Quarantine(quarantine) => {
                if present.as_ref().is_none_or(|it| it.quarantine != quarantine) {
                    tracing::warn!(
                        node,
                        quarantine = quarantine.id,
                        pods = quarantine.pod_uids.len(),
                        "the node is in quarantine"
                    );
                    let why = "diskvitalsd has not been asked yet".to_owned();
                    set(states, QuarantineState::NoAnswer(why));
                    not_before = Instant::now();
                    present = Some(Present::new(quarantine, present, timing));
                }
            }
        }
        let due = present.as_ref().map(|_| not_before);
        tokio::select! {
            changed = ordered.changed() => if changed.is_err() {
                // The process is ending.
                std::future::pending::<()>().await;
            },
            asked = async {
                maybe_sleep_until(due).await;
                let quarantine = present.as_ref().map(|it| it.quarantine.clone());
                ask(agent, quarantine.unwrap_or_default()).await
            } => {
                let Some(present) = &mut present else { continue };
                let is_clean = present.record(asked, node, states, events);
                let intervals = if is_clean { CLEAN_INTERVALS } else { 1 };
                not_before = Instant::now() + timing.clean_interval * intervals;
            }
        }
    }
}

/// Wakes the publisher for a change only.
fn set(states: &watch::Sender<QuarantineState>, new: QuarantineState) {
    states.send_if_modified(|state| {
        let changed = *state != new;
        *state = new;
        changed
    });
}

async fn ask(agent: &Agent, quarantine: Quarantine) -> Result<QuarantineAnswer, Status> {
    let pods = quarantine.pod_uids.iter().take(MAX_QUARANTINED);
    let request = wire::CleanStaleRequest {
        quarantine_id: quarantine.id.clone(),
        pod_uids: pods.cloned().collect(),
    };
    let clean = |client: Client| {
        let request = request.clone();
        async move { client.clean_stale(request).await }
    };
    let cleaning = agent.execute(ANSWER_TIMEOUT, clean).await?;
    Ok(answer(&quarantine, cleaning))
}

impl Present {
    /// More pods in the same quarantine do not defer the event.
    fn new(quarantine: Quarantine, before: Option<Present>, timing: &ReportTiming) -> Present {
        let before = before.filter(|before| before.quarantine.id == quarantine.id);
        let unclean_at = Instant::now() + timing.unclean_after;
        Present {
            unclean_at: before.as_ref().map_or(unclean_at, |it| it.unclean_at),
            published: before.map(|it| it.published).unwrap_or_default(),
            quarantine,
            last_log: None,
        }
    }

    /// Returns whether the node is clean.
    fn record(
        &mut self,
        asked: Result<QuarantineAnswer, Status>,
        node: &str,
        states: &watch::Sender<QuarantineState>,
        events: &mpsc::Sender<StorageTransition>,
    ) -> bool {
        let (reason, message, state) = match asked {
            Ok(answer) => {
                let (reason, message) = (answer.reason, answer.message.clone());
                (reason, message, QuarantineState::Answered(Arc::new(answer)))
            }
            Err(status) => {
                let why = format!("diskvitalsd does not answer: {}", status.message());
                (CleanReason::NoAnswer, why.clone(), QuarantineState::NoAnswer(why))
            }
        };
        if self.last_log != Some(reason) {
            let quarantine = &self.quarantine.id;
            tracing::info!(
                node,
                quarantine,
                reason = reason.name(),
                message,
                "what is left of the pods of a quarantine"
            );
            self.last_log = Some(reason);
        }
        set(states, state);
        if reason == CleanReason::ProvenClean {
            return true;
        }
        if Instant::now() >= self.unclean_at && self.published.insert(reason) {
            // A full queue: the publisher waits for the API server, and the condition says the same.
            let _ = events.try_send(self.event(reason, &message));
        }
        false
    }

    fn event(&self, reason: CleanReason, message: &str) -> StorageTransition {
        StorageTransition {
            key: format!("quarantine {} {}", self.quarantine.id, reason.name()),
            target: EventTarget::Node,
            kind: StorageTransitionKind::Raised,
            reason: ATTACHMENTS_UNCLEAN.to_owned(),
            note: format!(
                "the node stays tainted, because it is not clean of the pods that it had when it was lost: {}: {message}; {}",
                reason.name(),
                reason.advice()
            ),
            cause: None,
            at: now(),
        }
    }
}

#[cfg(test)]
mod tests;
