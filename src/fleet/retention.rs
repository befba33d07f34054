//! What the controller always does: it removes the report of a node that was deleted long ago.
//!
//! In: the view, the API server's time (`model::retention`). Out: one deletion after the other.

use std::collections::VecDeque;
use std::time::Duration;

use crate::api::Api;
use crate::calls::{Call, Caller, Calls, Outcome};
use crate::duty::{Context, Duty};
use crate::model::retention::{Expired, expired};
use crate::model::{Elapsed, Policy};
use crate::timing::Timing;
use diskvitals_kubernetes::api_error::ApiError;

#[derive(Default)]
pub(crate) struct Retention {
    policy: Policy,
    interval: Duration,
    next_round: Elapsed,
    expired: VecDeque<Expired>,
    calls: Calls<(Expired, Result<bool, ApiError>)>,
}

impl Retention {
    pub(crate) fn new(timing: &Timing) -> Retention {
        let (policy, interval) = (timing.policy, timing.retention_interval);
        Retention { policy, interval, ..Retention::default() }
    }
}

impl Duty for Retention {
    fn reset(&mut self, now: Elapsed) {
        self.next_round = now;
        self.expired.clear();
        self.calls = Calls::default();
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        Some(if self.expired.is_empty() { self.next_round } else { now })
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        if self.next_round <= cx.now.elapsed {
            self.next_round = cx.now.elapsed + self.interval;
            // Without the API server's time nothing is old.
            if let Some(server) = cx.server {
                self.expired = expired(cx.view, &self.policy, cx.now.elapsed, server).into();
            }
        }
        let (report, api) = (self.expired.pop_front()?, caller.api.clone());
        Some(self.calls.start(async move {
            let gone = delete(&api, &report).await;
            (report, gone)
        }))
    }

    fn end_call(&mut self, _cx: Context<'_>) -> Outcome {
        match self.calls.take() {
            Some((report, Ok(true))) => {
                tracing::info!(
                    node = report.name,
                    "the report of a node that was deleted long ago is removed"
                );
                Outcome::Done(Some("ok"))
            }
            Some((_, Ok(false))) => Outcome::Done(Some("conflict")),
            // The next round finds it again.
            Some((_, Err(error))) => Outcome::new("deleting an old report", Err(error)),
            None => Outcome::Done(None),
        }
    }
}

/// Whether the object is gone.
async fn delete(api: &Api, report: &Expired) -> Result<bool, ApiError> {
    // The watch may be behind: the node may be back.
    if api.node_exists(&report.name).await? { Ok(false) } else { api.delete_report(report).await }
}
