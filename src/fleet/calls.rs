//! Calls of the API server that are under way.
//!
//! In: a call that a duty has decided. Out: its result, to that duty alone, and what the owner counts.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use diskvitals_kubernetes::api_error::ApiError;

/// What a call needs.
#[derive(Clone)]
pub(crate) struct Caller {
    pub api: Arc<Api>,
    /// When another process may lead, if nothing is renewed.
    pub leads_until: Option<Instant>,
}

impl Caller {
    /// The process may have been stopped since the decision.
    pub(crate) fn leads(&self) -> bool {
        self.leads_until.is_some_and(|until| Instant::now() < until)
    }
}

pub(crate) type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What became of a call.
pub(crate) enum Outcome {
    /// With a value of the label `outcome` of the metrics, if it counts as a write.
    Done(Option<&'static str>),
    /// What it has read is to be evaluated.
    Read,
    Failed {
        counted: Option<&'static str>,
        operation: &'static str,
        error: ApiError,
    },
}

impl Outcome {
    /// Only errors are counted.
    pub(crate) fn new(operation: &'static str, result: Result<(), ApiError>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done(None),
            Err(error) => Outcome::Failed { counted: Some("error"), operation, error },
        }
    }
}

/// Calls of one duty that are under way, and the results of those that have ended.
pub(crate) struct Calls<T> {
    results: (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>),
    under_way: usize,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Calls { results: mpsc::unbounded_channel(), under_way: 0 }
    }
}

impl<T: Send + 'static> Calls<T> {
    pub(crate) fn start(&mut self, call: impl Future<Output = T> + Send + 'static) -> Call {
        self.under_way += 1;
        let sender = self.results.0.clone();
        // After a reset nobody waits for the result.
        Box::pin(async move { _ = sender.send(call.await) })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// The result of a call that has ended.
    pub(crate) fn take(&mut self) -> Option<T> {
        let result = self.results.1.try_recv().ok()?;
        self.under_way -= 1;
        Some(result)
    }
}

#[cfg(test)]
mod tests;
