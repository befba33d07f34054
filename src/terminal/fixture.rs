//! A screen for tests, here and in what uses it.

use jiff::tz::TimeZone;

use crate::screen::Screen;

pub fn screen(width: Option<u16>) -> Screen {
    Screen {
        width,
        color: false,
        now: "2026-03-01T12:00:00Z".parse().unwrap(),
        zone: TimeZone::UTC,
    }
}

/// Seconds before the test's now.
pub fn before(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: screen(None).now.as_second() - seconds, nanos: 0 })
}
