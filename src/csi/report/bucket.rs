//! So many at once, then one each so often.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct Bucket {
    size: u32,
    every: Duration,
    left: u32,
    filled: Instant,
}

impl Bucket {
    pub fn new(size: u32, every: Duration) -> Bucket {
        Bucket {
            size,
            every,
            left: size,
            filled: Instant::now(),
        }
    }

    /// When one may be taken.
    pub fn next(&mut self) -> Instant {
        self.fill();
        if self.left > 0 {
            Instant::now()
        } else {
            self.filled + self.every
        }
    }

    pub fn take(&mut self) {
        self.fill();
        self.left = self.left.saturating_sub(1);
    }

    fn fill(&mut self) {
        while self.left < self.size && self.filled + self.every <= Instant::now() {
            self.left += 1;
            self.filled += self.every;
        }
        if self.left == self.size {
            self.filled = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let mut bucket = Bucket::new(3, Duration::from_secs(5));
        let begin = Instant::now();
        let mut times = Vec::new();
        for _ in 0..6 {
            tokio::time::sleep_until(bucket.next()).await;
            bucket.take();
            times.push(begin.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 5, 10, 15]);
        // Rest fills it again, to its size and not beyond.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let rested = Instant::now();
        for _ in 0..4 {
            tokio::time::sleep_until(bucket.next()).await;
            bucket.take();
        }
        assert_eq!(rested.elapsed().as_secs(), 5);
    }
}
