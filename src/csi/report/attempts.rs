//! Attempts to write one thing to the API server until it is written: when the next one is due, and
//! one line of log for each new error.
//!
//! In: the outcome of each attempt. Out: the earliest time of the next one. No I/O but the log.

use tokio::time::Instant;

use crate::report::ReportTiming;
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_kubernetes::retry_delay::RetryDelay;

pub(crate) struct Attempts<'a> {
    node: &'a str,
    /// The object, for the log.
    object: &'static str,
    retry_delay: RetryDelay,
    not_before: Option<Instant>,
    last_error: Option<String>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(timing: &ReportTiming, node: &'a str, object: &'static str) -> Attempts<'a> {
        Attempts {
            node,
            object,
            retry_delay: RetryDelay::new(timing.initial_backoff, timing.max_backoff, node),
            not_before: None,
            last_error: None,
        }
    }

    pub(crate) fn earliest(&self) -> Instant {
        self.not_before.unwrap_or_else(Instant::now)
    }

    pub(crate) fn record_success(&mut self) {
        self.retry_delay.reset();
        (self.not_before, self.last_error) = (None, None);
    }

    pub(crate) fn record_failure(&mut self, error: ApiError) {
        let (why, retry_after) = error.into_message_and_delay();
        if self.last_error.as_ref() != Some(&why) {
            tracing::warn!(
                node = self.node,
                object = self.object,
                error = why,
                "the API server does not take a report; retrying"
            );
        }
        self.last_error = Some(why);
        self.not_before = Some(Instant::now() + self.retry_delay.next(retry_after));
    }

    /// Repeats an attempt until it succeeds.
    pub(crate) async fn until_success<T, F>(&mut self, attempt: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        loop {
            tokio::time::sleep_until(self.earliest()).await;
            match attempt().await {
                Ok(done) => {
                    self.record_success();
                    return done;
                }
                Err(error) => self.record_failure(error),
            }
        }
    }
}
