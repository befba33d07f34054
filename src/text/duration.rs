//! Durations as people write them: `90s`, `10min`, `1h 30min`, `7d`, `2w`, or whole seconds. A day
//! has 24 hours. And the time between two moments. Pure.

use std::time::Duration;

use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("`{0}` is not a duration: write 90s, 10min, 1h, 7d or 2w")]
    Unreadable(String),
    #[error("`{0}` is negative")]
    Negative(String),
}

/// In jiff's friendly format or ISO 8601; a number alone counts seconds.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let unreadable = || DurationError::Unreadable(crate::echo::echo(text));
    let span: jiff::Span = text.parse().map_err(|_| unreadable())?;
    let duration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| unreadable())?;
    Duration::try_from(duration).map_err(|_| DurationError::Negative(crate::echo::echo(text)))
}

/// From `since` to `now`; zero if `since` is later.
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_any_unit_from_milliseconds_to_weeks() {
        let seconds = |text: &str| parse(text).map(|duration| duration.as_secs_f64());
        for (text, expected) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("0.5s", 0.5),
            ("250ms", 0.25),
            ("10min", 600.0),
            ("1h 30m", 5400.0),
            ("7d", 604_800.0),
            ("2w", 1_209_600.0),
            ("1w2d", 777_600.0),
            ("PT5M", 300.0),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        // A month and a year have no fixed length.
        for text in ["", "soon", "1mo", "1y", "d", "7 x"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a duration: write 90s"), "{error}");
        }
        assert_eq!(parse("-1d"), Err(DurationError::Negative("-1d".to_owned())));
        let long = parse(&"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 300, "{}", long.len());
    }
}
