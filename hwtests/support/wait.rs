//! Waits for conditions, never for time alone.

use std::time::Duration;

use diskvitals_host::clock::now;
use tokio::time::{Instant, sleep};

use super::SOON;

/// Polls until `condition` gives a value. Ends the test after `within`, naming `what`.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "within {within:?} not so: {what}");
        pause(Duration::from_millis(20)).await;
    }
}

/// For an assertion that something does NOT happen; every other wait has a condition.
pub async fn pause(time: Duration) {
    sleep(time).await;
}

/// Until the wall clock shows another second: tools of filesystems record whole ones.
pub async fn a_later_second() {
    let second = now().as_second();
    eventually("a later second", SOON, async || (now().as_second() > second).then_some(())).await;
}
