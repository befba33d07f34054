//! When the next write may start: a rate, and a delay after the API server refused or did not answer.
//!
//! In: what became of writes. Out: the earliest time of the next one, and how many may run at once.
//! No I/O but the log.

use std::time::Duration;

use tokio::time::Instant;

use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_kubernetes::retry_delay::RetryDelay;
use diskvitals_quota::token_bucket::TokenBucket;

/// Writes at the same time, and in one second.
const WRITES_AT_ONCE: usize = 4;
const WRITES_PER_SECOND: u32 = 20;

pub(crate) struct WritePace {
    bucket: TokenBucket,
    retry_delay: RetryDelay,
    /// No write before this time: the API server failed. None: the last write succeeded.
    not_before: Option<Instant>,
    last_error: Option<String>,
}

impl WritePace {
    pub(crate) fn new(retry_delay: RetryDelay) -> WritePace {
        let interval = Duration::from_secs(1) / WRITES_PER_SECOND;
        WritePace {
            bucket: TokenBucket::new(WRITES_PER_SECOND, interval),
            retry_delay,
            not_before: None,
            last_error: None,
        }
    }

    /// One after a failure: many attempts would be a burst on a server that is overloaded.
    pub(crate) fn at_once(&self) -> usize {
        if self.not_before.is_some() { 1 } else { WRITES_AT_ONCE }
    }

    pub(crate) fn earliest(&mut self) -> Instant {
        let allowed = self.bucket.next_available(true);
        self.not_before.map_or(allowed, |until| until.max(allowed))
    }

    pub(crate) fn is_allowed(&mut self) -> bool {
        // In this order: without a delay, the earliest time is the time of the question.
        self.earliest() <= Instant::now()
    }

    pub(crate) fn take(&mut self) {
        self.bucket.use_one();
    }

    pub(crate) fn succeed(&mut self) {
        // It started before the failure of another one: the delay holds.
        if self.is_waiting() {
            return;
        }
        self.retry_delay.reset();
        self.not_before = None;
        if self.last_error.take().is_some() {
            tracing::info!("the API server accepts writes again");
        }
    }

    pub(crate) fn fail(&mut self, operation: &'static str, error: ApiError) {
        let is_final = matches!(error, ApiError::Rejected(_));
        let (why, after) = error.into_message_and_delay();
        if self.last_error.as_ref() != Some(&why) {
            tracing::warn!(operation, error = why, "the API server refuses, or does not answer");
            self.last_error = Some(why);
        }
        if is_final {
            return;
        }
        // Writes that ran together have failed once.
        let delay = if self.is_waiting() {
            self.retry_delay.bounded(after)
        } else {
            self.retry_delay.next(after)
        };
        self.not_before = self.not_before.max(Some(Instant::now() + delay));
    }

    fn is_waiting(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_kubernetes::api_error::Rejection;

    fn pace() -> WritePace {
        let (initial, max) = (Duration::from_secs(1), Duration::from_secs(120));
        WritePace::new(RetryDelay::new(initial, max, "a"))
    }

    fn error(after: Option<u64>) -> ApiError {
        ApiError::Retryable { why: "429".into(), after: after.map(Duration::from_secs) }
    }

    fn wait(pace: &mut WritePace) -> Duration {
        pace.earliest().saturating_duration_since(Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_of_an_earlier_write_does_not_end_the_delay_that_the_server_asked_for() {
        let mut pace = pace();
        pace.fail("writing", error(Some(60)));
        pace.succeed();
        assert_eq!(wait(&mut pace), Duration::from_secs(60));
        assert_eq!(pace.at_once(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        pace.succeed();
        assert_eq!((wait(&mut pace), pace.at_once()), (Duration::ZERO, WRITES_AT_ONCE));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_fail_together_count_once_and_the_longest_delay_holds() {
        let mut pace = pace();
        for _ in 0..WRITES_AT_ONCE {
            pace.fail("writing", error(None));
        }
        assert!(wait(&mut pace) <= Duration::from_secs(1));
        pace.fail("writing", error(Some(30)));
        pace.fail("writing", error(Some(5)));
        assert_eq!(wait(&mut pace), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_wrong_delays_no_other() {
        let mut pace = pace();
        let (kind, why) = ("422 Invalid".to_owned(), "422".to_owned());
        pace.fail("writing", ApiError::Rejected(Rejection { kind, why }));
        assert_eq!(wait(&mut pace), Duration::ZERO);
    }
}
