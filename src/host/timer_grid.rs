//! Moments that all periodic work of the daemon shares, as round_jiffies() does for the kernel's timers:
//! an idle processor is woken once for all of it, not once for each.
//!
//! In: how long something may wait. Out: when it is done.

use std::time::Duration;

use tokio::time::Instant;

const STEP: Duration = Duration::from_secs(10);

/// One for all tasks of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct TimerGrid {
    start: Instant,
}

impl TimerGrid {
    pub fn start() -> TimerGrid {
        TimerGrid { start: Instant::now() }
    }

    /// The last shared moment of the next `interval`, or its end where it has none.
    pub fn after(self, interval: Duration) -> Instant {
        let now = Instant::now();
        let end = now + interval;
        let past = (end - self.start).as_nanos() % STEP.as_nanos();
        let shared = end - Duration::from_nanos(u64::try_from(past).unwrap_or_default());
        if shared > now { shared } else { end }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_starts_at_different_times_shares_its_moments_and_is_never_late() {
        let grid = TimerGrid::start();
        for (offset, interval) in [(300, 10), (1700, 15), (400, 30), (9999, 60), (4, 17)] {
            advance(Duration::from_millis(offset)).await;
            let mut last = Instant::now();
            for _ in 0..5 {
                let next = grid.after(Duration::from_secs(interval));
                assert!(next > last && next <= last + Duration::from_secs(interval));
                assert_eq!((next - grid.start).as_millis() % STEP.as_millis(), 0);
                sleep_until(next).await;
                // The work itself takes a while.
                advance(Duration::from_millis(7)).await;
                last = Instant::now();
            }
            assert!(
                grid.after(Duration::from_secs(interval)) - last
                    > Duration::from_secs(interval) - STEP
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_before_the_next_moment_does_not_wait_for_it() {
        let grid = TimerGrid::start();
        advance(Duration::from_secs(2)).await;
        let soon = Duration::from_secs(5);
        assert_eq!(grid.after(soon), Instant::now() + soon);
        advance(Duration::from_secs(8)).await;
        assert_eq!(grid.after(STEP), Instant::now() + STEP);
    }
}
