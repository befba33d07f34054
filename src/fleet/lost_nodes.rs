//! The duty `lost-nodes`: the condition StorageHealthy of a lost node does not stay True.
//!
//! In: the view, the API server's time (`model::lost_nodes`). Out: one write after the other. The
//! node's reporter takes the condition back with its next write.

use std::collections::VecDeque;

use crate::calls::{Call, Caller, Calls, Outcome};
use crate::duty::{Context, Duty};
use crate::model::Elapsed;
use crate::model::lost_nodes::{LostNode, lost_nodes};
use crate::timing::{LostNodeTiming, Timing};
use diskvitals_kubernetes::api_error::ApiError;

#[derive(Default)]
pub(crate) struct LostNodes {
    timing: LostNodeTiming,
    next_round: Elapsed,
    lost: VecDeque<LostNode>,
    calls: Calls<(LostNode, Result<bool, ApiError>)>,
}

impl LostNodes {
    pub(crate) fn new(timing: &Timing) -> LostNodes {
        LostNodes { timing: timing.lost, ..LostNodes::default() }
    }
}

impl Duty for LostNodes {
    fn reset(&mut self, now: Elapsed) {
        self.next_round = now;
        self.lost.clear();
        self.calls = Calls::default();
    }

    /// The watch shows the own write before the next round.
    fn is_busy(&self) -> bool {
        self.calls.is_busy()
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        Some(if self.lost.is_empty() { self.next_round } else { now })
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        let is_due = self.lost.is_empty() && self.next_round <= cx.now.elapsed;
        if is_due {
            self.next_round = cx.now.elapsed + self.timing.round;
        }
        // Without the API server's time no report is old.
        let server = cx.server?;
        if is_due {
            self.lost = lost_nodes(cx.view, self.timing.silent_after, server).into();
        }
        let (node, caller) = (self.lost.pop_front()?, caller.clone());
        Some(self.calls.start(async move {
            let written = if caller.leads() {
                caller.api.end_healthy(&node, server).await
            } else {
                Ok(false)
            };
            (node, written)
        }))
    }

    fn end_call(&mut self, _cx: Context<'_>) -> Outcome {
        match self.calls.take() {
            Some((node, Ok(true))) => {
                tracing::info!(
                    node = node.name,
                    last_report = %node.last_report,
                    "the node is lost: its storage is not known to be healthy any more"
                );
                Outcome::Done(Some("ok"))
            }
            Some((_, Ok(false))) => Outcome::Done(Some("conflict")),
            // The next round finds it again.
            Some((_, Err(error))) => {
                Outcome::new("setting the condition of a lost node", Err(error))
            }
            None => Outcome::Done(None),
        }
    }
}
