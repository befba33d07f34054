//! How long to wait before the next attempt at the API server: ever longer, and on each node
//! another time, so that not all come at once when it is back.

use std::time::Duration;

use crate::csi::report::Pace;

#[derive(Debug)]
pub struct Pause {
    first: Duration,
    longest: Duration,
    /// Of this node, 0 to 255.
    spread: u32,
    failures: u32,
}

impl Pause {
    pub fn new(pace: &Pace, node: &str) -> Pause {
        let spread = node.bytes().fold(7_u32, |sum, byte| {
            (sum.wrapping_mul(31) ^ u32::from(byte)) & 0xff
        });
        Pause {
            first: pace.first_pause,
            longest: pace.longest_pause,
            spread,
            failures: 0,
        }
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// `asked`: the server's own wish.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let pause = self
            .first
            .saturating_mul(1 << self.failures.min(20))
            .min(self.longest);
        self.failures += 1;
        // Between half of it and all of it, another part each time.
        let part = (self.spread.wrapping_add(self.failures.wrapping_mul(97))) & 0xff;
        let pause = pause / 2 + pause * part / 512;
        pause.max(asked.unwrap_or_default().min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_two_minutes_differ_by_node_and_begin_anew_after_a_success() {
        let pauses = |node: &str| {
            let mut pause = Pause::new(&Pace::default(), node);
            std::iter::repeat_with(|| pause.failed(None))
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
        let mut pause = Pause::new(&Pace::default(), "worker-1");
        assert_eq!(
            pause.failed(Some(Duration::from_secs(30))),
            Duration::from_secs(30)
        );
        assert_eq!(
            pause.failed(Some(Duration::from_secs(3600))),
            Duration::from_secs(120)
        );
        pause.succeeded();
        assert!(pause.failed(None) <= Duration::from_secs(1));
    }
}
