//! The only module that reads the time.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::ClockId;

/// Wall-clock time, for people and for the store. Intervals use tokio's monotonic clock.
#[allow(clippy::disallowed_methods)] // The only reader of the clock.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// CLOCK_MONOTONIC, the clock of the kernel log, apart from drift. Zero if it cannot be read, which
/// happens on no Linux.
pub fn monotonic() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
