//! The delay before the next attempt to reach the API server: exponential backoff with a jitter that
//! differs by client, so that not all nodes return at the same moment.
//!
//! In: failures, and the delay that the server requests (Retry-After). Out: a delay. No I/O.

use std::time::Duration;

use diskvitals_text::backoff::Backoff;

#[derive(Debug)]
pub struct RetryDelay {
    backoff: Backoff,
    /// Differs by client and by attempt.
    jitter: u32,
}

impl RetryDelay {
    /// `client`: the name of the node or of the process.
    pub fn new(initial: Duration, max: Duration, client: &str) -> RetryDelay {
        let jitter =
            client.bytes().fold(7_u32, |sum, byte| (sum.wrapping_mul(31) ^ u32::from(byte)) & 0xff);
        RetryDelay { backoff: Backoff::new(initial, max), jitter }
    }

    pub fn reset(&mut self) {
        self.backoff.reset();
    }

    /// `retry_after`: the delay that the server requests.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let delay = self.backoff.next_delay();
        // The delay is between half and all of the backoff, different for each attempt.
        self.jitter = self.jitter.wrapping_add(97);
        let delay = delay / 2 + delay * (self.jitter & 0xff) / 512;
        delay.max(self.bounded(retry_after))
    }

    /// The delay that the server requests, within the limit of our own.
    pub fn bounded(&self, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or_default().min(self.backoff.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default(client: &str) -> RetryDelay {
        RetryDelay::new(Duration::from_secs(1), Duration::from_secs(120), client)
    }

    #[test]
    fn the_delay_grows_to_two_minutes_differs_by_node_and_resets_after_a_success() {
        let delays = |node: &str| {
            let mut retry = default(node);
            std::iter::repeat_with(|| retry.next(None)).take(12).collect::<Vec<_>>()
        };
        let of_one = delays("worker-1");
        for (number, delay) in of_one.iter().enumerate() {
            let whole = Duration::from_secs(1 << number.min(10)).min(Duration::from_secs(120));
            assert!(*delay >= whole / 2 && *delay <= whole, "{number}: {delay:?}");
        }
        assert_ne!(of_one, delays("worker-2"));
        let mut retry = default("worker-1");
        assert_eq!(retry.next(Some(Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(retry.next(Some(Duration::from_secs(3600))), Duration::from_secs(120));
        retry.reset();
        assert!(retry.next(None) <= Duration::from_secs(1));
    }
}
