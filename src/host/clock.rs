//! The one place where the time is read.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::ClockId;

/// Wall-clock time, for what people and the store see. Intervals use tokio's monotonic clock.
#[allow(clippy::disallowed_methods)] // This is the edge.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// CLOCK_MONOTONIC, which is what the kernel's log counts in, give or take its drift. Zero where it
/// cannot be read, which no Linux does.
pub fn monotonic() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
