//! Keeps the node's `NodeStorage` object up to date on the API server. It compares before it writes:
//! a write that changes nothing costs the API server as much as a change.
//!
//! In: the view of the daemon, the answers to challenges and to a quarantine, and whether the object is known to be
//! absent. Out: the object, created where it is missing, and merge patches of its status: when what it says changes, within a rate limit, and every
//! half hour, so that its age shows whether the reporter still runs. Answers go at once: they have a
//! rate limit of their own. While the API server is away only the newest state waits.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::report::api::ApiServer;
use crate::report::attempts::Attempts;
use crate::report::challenge::AnswerState;
use crate::report::first_evidence::PendingSince;
use crate::report::node_storage::{Context, says_the_same, storage_status, withdrawn_status};
use crate::report::quarantine::QuarantineState;
use crate::report::{DaemonView, ReportTiming, maybe_sleep_until, now};
use diskvitals_cluster::node_storage::{ATTACHMENTS_CLEAN, NodeStorageStatus};
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_quota::token_bucket::TokenBucket;
use diskvitals_text::hash::fnv1a_64;

const OBJECT: &str = "NodeStorage";

/// The object on the API server.
struct Published {
    /// uid of the Node object.
    node_uid: String,
    /// As the API server has stored it; null without a status.
    stored: Value,
    /// The last written status. None: there is none, or it is about another node of this name.
    status: Option<NodeStorageStatus>,
    written_at: Instant,
    /// It was read after the last write.
    is_fresh: bool,
}

pub(crate) async fn run(
    mut views: watch::Receiver<DaemonView>,
    mut answers: watch::Receiver<AnswerState>,
    mut quarantines: watch::Receiver<QuarantineState>,
    mut absent: watch::Receiver<bool>,
    api: &ApiServer,
    node: &str,
    timing: &ReportTiming,
) -> Infallible {
    let mut attempts = Attempts::new(timing, node, OBJECT);
    let mut changes = TokenBucket::new(timing.condition_burst, timing.storage_interval);
    let refresh = refresh_interval(timing.storage_refresh, node);
    let mut waiting = PendingSince::default();
    let mut published: Option<Published> = None;
    loop {
        let view = views.borrow_and_update().clone();
        let grace_until = view.grace_until(timing.absence_grace);
        let overdue = waiting.update(view.snapshot.as_deref(), timing.absence_grace);
        let answer = answers.borrow_and_update().clone();
        let quarantine = quarantines.borrow_and_update().clone();
        let wanted = published.as_ref().and_then(|published| {
            let context = published.context(&overdue, &answer, &quarantine, now());
            storage_status(&view, grace_until.is_some(), &context)
        });
        let due = match (&published, &wanted) {
            (None, _) => Some(Instant::now()),
            (Some(published), Some(wanted)) => Some(published.due(wanted, refresh, &mut changes)),
            (Some(_), None) => None,
        };
        tokio::select! {
            changed = views.changed() => if changed.is_err() {
                // The watch has ended because the process is ending.
                std::future::pending::<()>().await;
            },
            changed = answers.changed() => if changed.is_err() {
                // As above.
                std::future::pending::<()>().await;
            },
            changed = quarantines.changed() => if changed.is_err() {
                // As above.
                std::future::pending::<()>().await;
            },
            changed = absent.changed() => match changed {
                // Who waits for a report would wait for the next refresh.
                Ok(()) if *absent.borrow_and_update() => published = None,
                Ok(()) => {}
                // As above.
                Err(_) => std::future::pending::<()>().await,
            },
            () = maybe_sleep_until(grace_until) => {}
            () = maybe_sleep_until(waiting.next_overdue(timing.absence_grace)) => {}
            () = maybe_sleep_until(due.map(|due| due.max(attempts.earliest()))) => {
                let (outcome, is_change) = match (&published, wanted) {
                    (Some(published), Some(wanted)) if published.is_change(&wanted) => {
                        let is_limited = !published.is_answer_only(&wanted);
                        (write(api, published, wanted).await, is_limited)
                    }
                    // Somebody may have deleted or edited the object, or made the Node anew.
                    (Some(published), Some(wanted)) if published.is_fresh => {
                        (write(api, published, wanted).await, false)
                    }
                    _ => (read(api).await, false),
                };
                match outcome {
                    Ok(new) => {
                        attempts.record_success();
                        if is_change {
                            changes.use_one();
                            log_change(node, published.as_ref(), &new);
                        }
                        published = Some(new);
                    }
                    Err(error) => {
                        if !matches!(error, ApiError::Retryable { .. }) {
                            published = None;
                        }
                        attempts.record_failure(error);
                    }
                }
            }
        }
    }
}

/// `--withdraw`: the object stays, because nobody may lose what others recorded there, and says that
/// it knows nothing.
pub(crate) async fn withdraw(api: &ApiServer, node: &str, timing: &ReportTiming) -> Infallible {
    let withdrawn = || async {
        let Some(stored) = api.storage_status().await? else {
            return Ok(());
        };
        let published = Published::new(api.node_uid().await?, stored);
        let nothing = BTreeSet::new();
        let (answer, quarantine) = (AnswerState::Remove, QuarantineState::Disabled);
        let context = published.context(&nothing, &answer, &quarantine, now());
        let status = withdrawn_status(&context);
        write(api, &published, status).await.map(drop)
    };
    let mut attempts = Attempts::new(timing, node, OBJECT);
    attempts.until_success(withdrawn).await;
    tracing::info!(node, "the NodeStorage object is withdrawn");
    std::future::pending().await
}

fn log_change(node: &str, before: Option<&Published>, after: &Published) {
    let health = |published: &Published| published.status.as_ref().map(|status| status.health);
    let after = health(after);
    if before.and_then(health) != after {
        tracing::info!(node, health = ?after.unwrap_or_default(), "the NodeStorage object is written");
    }
}

impl Published {
    fn new(node_uid: String, stored: Value) -> Published {
        // A status that cannot be read is replaced like none.
        let status: Option<NodeStorageStatus> =
            serde_json::from_value(stored.clone()).ok().flatten();
        let status = status.filter(|status| status.node_uid == node_uid);
        let reported = status.as_ref().and_then(|status| status.reported_at.as_ref());
        Published {
            written_at: instant_of(reported.map(|time| time.0), now()),
            node_uid,
            stored,
            status,
            is_fresh: true,
        }
    }

    fn context<'a>(
        &'a self,
        overdue: &'a BTreeSet<String>,
        answer: &'a AnswerState,
        quarantine: &'a QuarantineState,
        now: Timestamp,
    ) -> Context<'a> {
        Context {
            answer: answer.apply(self.status.as_ref().and_then(|last| last.challenge.as_ref())),
            node_uid: &self.node_uid,
            last: self.status.as_ref(),
            overdue,
            quarantine,
            now,
        }
    }

    fn is_change(&self, wanted: &NodeStorageStatus) -> bool {
        self.status.as_ref().is_none_or(|status| !says_the_same(status, wanted))
    }

    /// Only the answer to a challenge or a quarantine is new, which does not count as a change.
    fn is_answer_only(&self, wanted: &NodeStorageStatus) -> bool {
        self.status.as_ref().is_some_and(|status| {
            let is_quarantine_answered =
                answered_quarantine(status).is_some() || answered_quarantine(wanted).is_some();
            let mut status = NodeStorageStatus {
                challenge: wanted.challenge.clone(),
                observed_quarantine: wanted.observed_quarantine.clone(),
                ..status.clone()
            };
            if is_quarantine_answered {
                let is_clean = |it: &&Condition| it.type_ == ATTACHMENTS_CLEAN;
                status.conditions.retain(|it| !is_clean(&it));
                let clean = wanted.conditions.iter().find(is_clean);
                // As `finish` orders them.
                status.conditions.extend(clean.cloned());
            }
            says_the_same(&status, wanted)
        })
    }

    fn has_answer(&self, wanted: &NodeStorageStatus) -> bool {
        let nonce = |status: &NodeStorageStatus| {
            status.challenge.as_ref().map(|answer| answer.nonce.clone())
        };
        let quarantine = |status: &NodeStorageStatus| {
            let answered = answered_quarantine(status)?;
            Some((answered.0.to_owned(), answered.1.to_owned()))
        };
        let last = self.status.as_ref();
        last.and_then(nonce) == nonce(wanted) && last.and_then(quarantine) == quarantine(wanted)
    }

    /// The time of the next write. While a state flaps, the latest one is written as soon as the
    /// rate limit allows.
    fn due(
        &self,
        wanted: &NodeStorageStatus,
        refresh: Duration,
        changes: &mut TokenBucket,
    ) -> Instant {
        if !self.has_answer(wanted) {
            Instant::now()
        } else if self.is_change(wanted) {
            changes.next_available(true)
        } else {
            self.written_at + refresh
        }
    }
}

/// The quarantine that a status answers, and the answer.
fn answered_quarantine(status: &NodeStorageStatus) -> Option<(&str, &str)> {
    let clean = status.conditions.iter().find(|it| it.type_ == ATTACHMENTS_CLEAN)?;
    let id = status.observed_quarantine.as_str();
    (!id.is_empty()).then_some((id, clean.reason.as_str()))
}

/// The object, created where it is missing.
async fn read(api: &ApiServer) -> Result<Published, ApiError> {
    let node_uid = api.node_uid().await?;
    let stored = match api.storage_status().await? {
        Some(stored) => stored,
        None => {
            api.create_storage().await?;
            Value::Null
        }
    };
    Ok(Published::new(node_uid, stored))
}

async fn write(
    api: &ApiServer,
    published: &Published,
    status: NodeStorageStatus,
) -> Result<Published, ApiError> {
    let unserializable = |error: serde_json::Error| ApiError::Retryable {
        why: format!("writing the status as JSON: {error}"),
        after: None,
    };
    let wanted = serde_json::to_value(&status).map_err(unserializable)?;
    let stored = api.patch_storage_status(&replacement(&published.stored, wanted)).await?;
    Ok(Published {
        node_uid: published.node_uid.clone(),
        stored,
        status: Some(status),
        written_at: Instant::now(),
        is_fresh: false,
    })
}

/// A merge patch (RFC 7386) after which only `wanted` is left of `stored`.
fn replacement(stored: &Value, wanted: Value) -> Value {
    let Value::Object(wanted) = wanted else {
        return wanted;
    };
    let nothing = Map::new();
    let stored = stored.as_object().unwrap_or(&nothing);
    let removed = stored
        .keys()
        .filter(|key| !wanted.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let mut patch: Map<String, Value> = removed.collect();
    for (key, value) in wanted {
        let value = replacement(stored.get(&key).unwrap_or(&Value::Null), value);
        patch.insert(key, value);
    }
    Value::Object(patch)
}

/// When a status was written, by the wall clock, on the runtime's clock. A time in the future is of
/// a clock that was ahead.
fn instant_of(written: Option<Timestamp>, now: Timestamp) -> Instant {
    let age = written.map(|written| now.duration_since(written));
    let age = age.and_then(|age| Duration::try_from(age).ok());
    let instant = Instant::now();
    age.and_then(|age| instant.checked_sub(age)).unwrap_or(instant)
}

/// Up to a tenth longer, by node: the nodes of a cluster that was started at once spread out.
fn refresh_interval(interval: Duration, node: &str) -> Duration {
    let hash = fnv1a_64(node.bytes());
    interval + interval / 10 * u32::try_from(hash % 256).unwrap_or(0) / 256
}

#[cfg(test)]
mod tests;
