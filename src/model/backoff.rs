//! Exponential backoff: the delay before the next attempt of something that has failed.
//!
//! In: the number of attempts that failed in succession. Out: a delay. Pure: the caller counts the
//! failures and waits.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
}

impl Backoff {
    /// `initial`: the delay after the first failure. Each further failure doubles it, up to `max`.
    pub const fn new(initial: Duration, max: Duration) -> Backoff {
        Backoff { initial, max }
    }

    /// The delay after `failures` earlier failures and one more.
    pub fn delay(&self, failures: u32) -> Duration {
        self.initial
            .saturating_mul(2_u32.saturating_pow(failures))
            .min(self.max)
    }

    pub fn max(&self) -> Duration {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let delays: Vec<u64> = (0..7).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(30));
    }
}
