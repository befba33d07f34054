//! Exponential back-off: how long to wait before the next attempt.
//!
//! In: the first and the longest delay, and the number of failures so far. Out: a delay. There is
//! no clock, and no jitter.

use std::time::Duration;

/// The delay doubles with each attempt, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    attempts: u32,
}

impl Backoff {
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, attempts: 0 }
    }

    /// The delay before the next attempt; the one after that waits twice as long.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.delay(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        delay
    }

    /// An attempt succeeded: the next delay is `first` again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The delay after `attempts` doublings.
    pub fn delay(&self, attempts: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempts).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_maximum_and_restarts_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let delays: Vec<u64> = (0..4).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), Duration::from_secs(1));
    }

    #[test]
    fn many_attempts_do_not_overflow() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(backoff.delay(u32::MAX), Duration::MAX);
        let zero = Backoff::new(Duration::ZERO, Duration::from_secs(1));
        assert_eq!(zero.delay(32), Duration::ZERO);
    }
}
