//! Rate limit as a token bucket: a burst at once, then one per interval.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct TokenBucket {
    capacity: u32,
    refill_interval: Duration,
    tokens: u32,
    last_refill: Instant,
}

impl TokenBucket {
    pub(crate) fn new(size: u32, every: Duration) -> TokenBucket {
        TokenBucket {
            capacity: size,
            refill_interval: every,
            tokens: size,
            last_refill: Instant::now(),
        }
    }

    /// The time at which the next token is available. `is_urgent`: otherwise, a fifth of the bucket
    /// is left for what is.
    pub(crate) fn next_available(&mut self, is_urgent: bool) -> Instant {
        self.refill();
        let reserve = if is_urgent { 0 } else { self.capacity / 5 };
        match (reserve + 1).saturating_sub(self.tokens) {
            0 => Instant::now(),
            missing => self.last_refill + self.refill_interval * missing,
        }
    }

    pub(crate) fn take(&mut self) {
        self.refill();
        self.tokens = self.tokens.saturating_sub(1);
    }

    fn refill(&mut self) {
        while self.tokens < self.capacity
            && self.last_refill + self.refill_interval <= Instant::now()
        {
            self.tokens += 1;
            self.last_refill += self.refill_interval;
        }
        if self.tokens == self.capacity {
            self.last_refill = Instant::now();
        }
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
            bucket.take();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 5, 10, 15]);
        // Rest fills it again, to its size and not beyond.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let rested = Instant::now();
        for _ in 0..4 {
            tokio::time::sleep_until(bucket.next_available(true)).await;
            bucket.take();
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
            bucket.take();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(bucket.next_available(true), Instant::now());
    }
}
