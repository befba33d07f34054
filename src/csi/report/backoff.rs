//! How long to wait before the next attempt at the API server: ever longer, and on each node
//! another time, so that not all come at once when it is back.

use std::time::Duration;

use crate::csi::report::ReportTiming;

#[derive(Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    /// Of this node, 0 to 255.
    jitter: u32,
    failures: u32,
}

impl Backoff {
    pub fn new(timing: &ReportTiming, node: &str) -> Backoff {
        let spread = node.bytes().fold(7_u32, |sum, byte| {
            (sum.wrapping_mul(31) ^ u32::from(byte)) & 0xff
        });
        Backoff {
            initial: timing.initial_backoff,
            max: timing.max_backoff,
            jitter: spread,
            failures: 0,
        }
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// `asked`: the server's own wish.
    pub fn next_delay(&mut self, asked: Option<Duration>) -> Duration {
        let pause = self
            .initial
            .saturating_mul(1 << self.failures.min(20))
            .min(self.max);
        self.failures += 1;
        // Between half of it and all of it, another part each time.
        let part = (self.jitter.wrapping_add(self.failures.wrapping_mul(97))) & 0xff;
        let pause = pause / 2 + pause * part / 512;
        pause.max(asked.unwrap_or_default().min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_grows_to_two_minutes_differs_by_node_and_resets_after_a_success() {
        let pauses = |node: &str| {
            let mut pause = Backoff::new(&ReportTiming::default(), node);
            std::iter::repeat_with(|| pause.next_delay(None))
                .take(12)
                .collect::<Vec<_>>()
        };
        let of_one = pauses("worker-1");
        for (number, pause) in of_one.iter().enumerate() {
            let whole = Duration::from_secs(1 << number.min(10)).min(Duration::from_secs(120));
            assert!(
                *pause >= whole / 2 && *pause <= whole,
                "{number}: {pause:?}"
            );
        }
        assert_ne!(of_one, pauses("worker-2"));
        let mut pause = Backoff::new(&ReportTiming::default(), "worker-1");
        assert_eq!(
            pause.next_delay(Some(Duration::from_secs(30))),
            Duration::from_secs(30)
        );
        assert_eq!(
            pause.next_delay(Some(Duration::from_secs(3600))),
            Duration::from_secs(120)
        );
        pause.reset();
        assert!(pause.next_delay(None) <= Duration::from_secs(1));
    }
}
