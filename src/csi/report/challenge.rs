//! Challenges: somebody in the cluster writes a nonce into the spec of this node's `NodeStorage`
//! object, and the node says what its daemon sees now.
//!
//! In: the node's object, the connection to the daemon. Out: the answer to the present challenge,
//! for the publisher of the object. The daemon reads again for each answer, and one message of one run
//! of the daemon is the whole answer. Without the daemon there is none. A flood of nonces costs one
//! answer for each interval.

mod answer;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::agent::Agent;
use crate::report::challenge::answer::answer;
use crate::report::node_snapshot::timestamp_from_wire;
use crate::report::object_watch::{StorageObject, follow_part};
use crate::report::{DaemonView, ReportTiming, maybe_sleep_until, now};
use diskvitals_cluster::node_storage::{Challenge, ChallengeAnswer, MAX_CHALLENGED};
use diskvitals_kubernetes::retry_delay::RetryDelay;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;

/// What the daemon's answer may take beyond its patience.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// What the publisher of the object does with its answer.
#[derive(Clone, Debug)]
pub(crate) enum AnswerState {
    /// The stored one stays: the present challenge is answered by it, or not answered yet.
    Keep,
    /// There is no challenge.
    Remove,
    Set(Arc<ChallengeAnswer>),
}

impl AnswerState {
    /// Without challenges, an answer of an earlier time is removed.
    pub(crate) fn initial(enabled: bool) -> AnswerState {
        match enabled {
            true => AnswerState::Keep,
            false => AnswerState::Remove,
        }
    }

    pub(crate) fn apply<'a>(
        &'a self,
        stored: Option<&'a ChallengeAnswer>,
    ) -> Option<&'a ChallengeAnswer> {
        match self {
            AnswerState::Keep => stored,
            AnswerState::Remove => None,
            AnswerState::Set(answer) => Some(answer),
        }
    }
}

/// The challenge of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// The object has not been read yet.
    Unknown,
    Nothing,
    Challenge {
        challenge: Challenge,
        /// The object has an answer to it.
        is_answered: bool,
    },
}

pub(crate) async fn run(
    agent: Agent,
    views: watch::Receiver<DaemonView>,
    objects: watch::Receiver<StorageObject>,
    node: &str,
    timing: &ReportTiming,
    answers: watch::Sender<AnswerState>,
) -> Infallible {
    let (sender, asked) = watch::channel(Asked::Unknown);
    tokio::select! {
        never = follow_part(objects, &sender, asked_by_object) => never,
        never = answer_all(&agent, views, asked, node, timing, &answers) => never,
    }
}

fn asked_by_object(object: &StorageObject) -> Asked {
    match object {
        StorageObject::Unknown => Asked::Unknown,
        StorageObject::Absent => Asked::Nothing,
        StorageObject::Present(object) => asked_by(object),
    }
}

/// A challenge that cannot be read is of a newer version, and is not answered.
fn asked_by(object: &Value) -> Asked {
    let spec = &object["spec"]["challenge"];
    let challenge = match Option::<Challenge>::deserialize(spec) {
        Ok(challenge) => challenge.filter(|challenge| !challenge.nonce.is_empty()),
        Err(error) => {
            tracing::warn!(%error, "the challenge in the NodeStorage object cannot be read");
            None
        }
    };
    challenge.map_or(Asked::Nothing, |challenge| {
        let answered = object["status"]["challenge"]["nonce"].as_str();
        Asked::Challenge { is_answered: answered == Some(&challenge.nonce), challenge }
    })
}

async fn answer_all(
    agent: &Agent,
    mut views: watch::Receiver<DaemonView>,
    mut asked: watch::Receiver<Asked>,
    node: &str,
    timing: &ReportTiming,
    answers: &watch::Sender<AnswerState>,
) -> Infallible {
    let mut retry = RetryDelay::new(timing.initial_backoff, timing.max_backoff, node);
    let mut not_before = Instant::now();
    let mut last_error = None;
    loop {
        let present = asked.borrow_and_update().clone();
        let challenge = match present {
            Asked::Challenge { challenge, is_answered: false } if !is_set(answers, &challenge) => {
                Some(challenge)
            }
            Asked::Nothing => {
                answers.send_replace(AnswerState::Remove);
                None
            }
            Asked::Challenge { .. } => {
                // The stored answer stays, also after a restart.
                answers.send_if_modified(|state| {
                    let removes = matches!(state, AnswerState::Remove);
                    if removes {
                        *state = AnswerState::Keep;
                    }
                    removes
                });
                None
            }
            Asked::Unknown => None,
        };
        let due = challenge.is_some().then_some(not_before);
        tokio::select! {
            changed = asked.changed() => if changed.is_err() {
                // The process is ending.
                std::future::pending::<()>().await;
            },
            outcome = async {
                maybe_sleep_until(due).await;
                let challenge = challenge.unwrap_or_default();
                ask(agent, &mut views, &challenge, timing).await
            } => match outcome {
                Ok(answer) => {
                    tracing::info!(
                        node,
                        nonce = answer.nonce,
                        findings = answer.findings.len(),
                        missing = answer.missing.len(),
                        "a challenge is answered"
                    );
                    answers.send_replace(AnswerState::Set(Arc::new(answer)));
                    retry.reset();
                    last_error = None;
                    not_before = Instant::now() + timing.answer_interval;
                }
                Err(status) => {
                    if last_error.as_deref() != Some(status.message()) {
                        tracing::warn!(
                            node,
                            error = status.message(),
                            "a challenge cannot be answered; retrying"
                        );
                    }
                    last_error = Some(status.message().to_owned());
                    // The daemon that comes back is to answer soon.
                    let delay = retry.next(None).min(timing.answer_interval);
                    not_before = Instant::now() + delay;
                }
            }
        }
    }
}

fn is_set(answers: &watch::Sender<AnswerState>, challenge: &Challenge) -> bool {
    matches!(&*answers.borrow(), AnswerState::Set(answer) if answer.nonce == challenge.nonce)
}

async fn ask(
    agent: &Agent,
    views: &mut watch::Receiver<DaemonView>,
    challenge: &Challenge,
    timing: &ReportTiming,
) -> Result<ChallengeAnswer, Status> {
    let some = |names: &[String]| names.iter().take(MAX_CHALLENGED).cloned().collect();
    let request = wire::ConfirmRequest {
        persistent_volumes: some(&challenge.persistent_volumes),
        drive_ids: some(&challenge.drive_ids),
        patience: prost_types::Duration::try_from(timing.answer_patience).ok(),
    };
    let confirm = |client: Client| {
        let request = request.clone();
        async move { client.confirm(request).await }
    };
    let limit = timing.answer_patience + ANSWER_GRACE;
    let confirmed = agent.execute(limit, confirm).await?;
    let until = Instant::now() + timing.poll_interval * 2;
    wait_for_same_run(views, confirmed.node.as_ref(), until).await?;
    Ok(answer(challenge, confirmed, now()))
}

/// The rest of the object is from the view of the daemon: both are to be of one run of one daemon in
/// one boot.
async fn wait_for_same_run(
    views: &mut watch::Receiver<DaemonView>,
    node: Option<&wire::Node>,
    until: Instant,
) -> Result<(), Status> {
    let run = node.map(|node| {
        (node.boot_id.as_str(), node.machine_id.as_str(), timestamp_from_wire(node.started))
    });
    let is_same = |view: &DaemonView| {
        let seen = view.snapshot.as_ref().map(|snapshot| {
            let node = &snapshot.node;
            (node.boot_id.as_str(), node.machine_id.as_str(), node.started)
        });
        view.outage.is_none() && seen.is_some() && seen == run
    };
    match timeout_at(until, views.wait_for(is_same)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Status::unavailable(
            "diskvitalsd was restarted while it answered, or its snapshot is not complete",
        )),
    }
}

#[cfg(test)]
mod tests;
