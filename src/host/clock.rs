//! The one place where the time is read.

use jiff::Timestamp;

/// Wall-clock time, for what people and the store see. Intervals use tokio's monotonic clock.
#[allow(clippy::disallowed_methods)] // This is the edge.
pub fn now() -> Timestamp {
    Timestamp::now()
}
