//! Computes when a check is due: from an interval or a calendar, spread over the volumes so that
//! the checks do not all start at once.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use diskvitals_text::hash::fnv1a_64;

/// Every calendar has an occurrence within this many days: the 31st can be two months away.
const MAX_SEARCH_DAYS: u32 = 63;

/// `daily 03:00`, `Sun 03:00`, `Mon,Thu 02:30`, `1 04:00` (the first of each month), `1,15 04:00`;
/// local time.
///
/// A month without that day is skipped. A time that a clock change skips is later by that amount;
/// if a time occurs twice, the first counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Calendar {
    text: String,
    days: Days,
    time: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Days {
    Daily,
    Weekdays(Vec<Weekday>),
    /// Days of the month.
    Dates(Vec<i8>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a calendar: write `daily 03:00`, `Sun 03:00`, `Mon,Thu 02:30` or `1 04:00`")]
pub struct ParseCalendarError(pub String);

impl TryFrom<String> for Calendar {
    type Error = ParseCalendarError;

    fn try_from(text: String) -> Result<Calendar, ParseCalendarError> {
        match parse_calendar(&text) {
            Some((days, time)) => Ok(Calendar { text, days, time }),
            None => Err(ParseCalendarError(text)),
        }
    }
}

impl From<Calendar> for String {
    fn from(calendar: Calendar) -> String {
        calendar.text
    }
}

fn parse_calendar(text: &str) -> Option<(Days, Time)> {
    let mut words = text.split_whitespace();
    let (days, time) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let (hour, minute) = time.split_once(':')?;
    let two = |text: &str| {
        text.parse::<i8>().ok().filter(|_| {
            (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let time = Time::new(two(hour)?, two(minute).filter(|_| minute.len() == 2)?, 0, 0).ok()?;
    let all = || days.split(',');
    let days = if days.eq_ignore_ascii_case("daily") {
        Days::Daily
    } else if days.starts_with(|c: char| c.is_ascii_digit()) {
        Days::Dates(
            all()
                .map(|day| two(day).filter(|day| (1..=31).contains(day)))
                .collect::<Option<_>>()?,
        )
    } else {
        Days::Weekdays(all().map(weekday).collect::<Option<_>>()?)
    };
    Some((days, time))
}

/// `Mon`, `monday`
fn weekday(name: &str) -> Option<Weekday> {
    const NAMES: [(&str, Weekday); 7] = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let name = name.to_ascii_lowercase();
    NAMES
        .iter()
        .find(|(long, _)| *long == name || long.get(..3) == Some(name.as_str()))
        .map(|(_, day)| *day)
}

impl Calendar {
    fn includes(&self, date: Date) -> bool {
        match &self.days {
            Days::Daily => true,
            Days::Weekdays(weekdays) => weekdays.contains(&date.weekday()),
            Days::Dates(days) => days.contains(&date.day()),
        }
    }

    /// The first occurrence after `after`, with each occurrence delayed by `offset`.
    fn next_after(&self, after: Timestamp, offset: Duration, zone: &TimeZone) -> Option<Timestamp> {
        // With its offset, an occurrence of an earlier day can still be in the future.
        let begin =
            after.checked_sub(offset).ok()?.to_zoned(zone.clone()).date().yesterday().ok()?;
        let occurrence = |date: Date| {
            date.to_datetime(self.time)
                .to_zoned(zone.clone())
                .ok()?
                .timestamp()
                .checked_add(offset)
                .ok()
        };
        begin
            .series(jiff::Span::new().days(1))
            .take(MAX_SEARCH_DAYS as usize + 2)
            .filter(|date| self.includes(*date))
            .filter_map(occurrence)
            .find(|at| *at > after)
    }
}

/// The schedule of a volume's checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    Every(Duration),
    At(Calendar),
}

/// The next time after `last` (the end of the last check, or the time when the volume was first
/// found), delayed by up to `jitter`. The delay depends on the volume's `name` only, so each volume
/// always has the same delay. If the jitter is longer than a calendar's interval, each occurrence
/// still has one check.
pub fn next_due(
    schedule: &Schedule,
    last: Timestamp,
    name: &str,
    jitter: Duration,
    zone: &TimeZone,
) -> Timestamp {
    let offset = Duration::from_secs_f64((jitter.as_secs_f64() * jitter_fraction(name)).max(0.0))
        .min(jitter);
    let next = match schedule {
        Schedule::Every(interval) => last.checked_add(interval.saturating_add(offset)).ok(),
        Schedule::At(calendar) => calendar.next_after(last, offset, zone),
    };
    next.unwrap_or(Timestamp::MAX)
}

/// A number from 0 to below 1, derived from the hash of the name.
fn jitter_fraction(name: &str) -> f64 {
    let hash = fnv1a_64(name.bytes());
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((hash ^ (hash >> 33)) >> 11) as f64 / (1_u64 << 53) as f64
}
