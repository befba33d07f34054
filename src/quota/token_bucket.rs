//! A rate: a burst at once, then one token per interval.
//!
//! In: what is taken, and when. Out: whether it is there, or when it will be. Exact: what counts is the
//! time at which the bucket is full again.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Debug)]
pub struct TokenBucket {
    burst: u32,
    interval: Duration,
    full_at: Instant,
}

impl TokenBucket {
    pub fn new(burst: u32, interval: Duration) -> TokenBucket {
        TokenBucket { burst, interval, full_at: Instant::now() }
    }

    /// False, and nothing is taken, if there are fewer.
    pub fn take(&mut self, tokens: f64, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + self.interval.mul_f64(tokens);
        let is_enough = full_at - now <= self.interval * self.burst;
        if is_enough {
            self.full_at = full_at;
        }
        is_enough
    }

    /// One that the caller has waited for, if it is there.
    pub fn use_one(&mut self) {
        self.take(1.0, Instant::now());
    }

    pub fn add(&mut self, tokens: f64) {
        let earlier = self.full_at.checked_sub(self.interval.mul_f64(tokens));
        self.full_at = earlier.unwrap_or(self.full_at);
    }

    /// Nothing has been taken for so long that it is as new.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// The time at which the next token is available. `is_urgent`: otherwise, a fifth of the burst
    /// is left for what is.
    pub fn next_available(&self, is_urgent: bool) -> Instant {
        let reserve = if is_urgent { 0 } else { self.burst / 5 };
        let others = self.burst.saturating_sub(reserve + 1);
        let available = self.full_at.checked_sub(self.interval * others);
        available.map_or_else(Instant::now, |at| at.max(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let mut bucket = TokenBucket::new(3, Duration::from_secs(5));
        let begin = Instant::now();
        let mut times = Vec::new();
        for _ in 0..6 {
            tokio::time::sleep_until(bucket.next_available(true)).await;
            bucket.use_one();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 5, 10, 15]);
        // Rest fills it again, to its size and not beyond.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let rested = Instant::now();
        for _ in 0..4 {
            tokio::time::sleep_until(bucket.next_available(true)).await;
            bucket.use_one();
        }
        assert_eq!(rested.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_leaves_a_fifth_of_the_burst_to_what_is_urgent() {
        let mut bucket = TokenBucket::new(10, Duration::from_secs(5));
        let begin = Instant::now();
        let mut times = Vec::new();
        for _ in 0..9 {
            tokio::time::sleep_until(bucket.next_available(false)).await;
            bucket.use_one();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(bucket.next_available(true), Instant::now());
    }
}
