//! When something is due on a person's clock: quiet hours and digests. Pure; the zone is an argument.

use std::str::FromStr;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use diskvitals_text::echo::echo;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error("`{0}` is no time of day: write 07:30")]
    Time(String),
    #[error("`{0}` is no span of hours: write 22:00-07:00")]
    Span(String),
    #[error("`{0}` is no schedule: write off, daily 08:00 or weekly mon 08:00")]
    Digest(String),
}

fn time_of_day(text: &str) -> Result<Time, ScheduleError> {
    let wrong = || ScheduleError::Time(echo(text));
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |part: &str| match part.len() {
        1 | 2 => part.parse::<i8>().map_err(|_| wrong()),
        _ => Err(wrong()),
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).map_err(|_| wrong())
}

/// From a time of day until another one, which may be on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuietHours {
    from: Time,
    until: Time,
}

impl FromStr for QuietHours {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<QuietHours, ScheduleError> {
        let wrong = || ScheduleError::Span(echo(text));
        let (from, until) = text.split_once('-').ok_or_else(wrong)?;
        let hours =
            QuietHours { from: time_of_day(from.trim())?, until: time_of_day(until.trim())? };
        match hours.from == hours.until {
            true => Err(wrong()),
            false => Ok(hours),
        }
    }
}

impl QuietHours {
    /// When they end, if they contain `now`.
    pub(crate) fn end(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.contain(now, zone).then(|| Digest::Daily(self.until).next(now, zone)).flatten()
    }

    pub(crate) fn contain(&self, now: Timestamp, zone: &TimeZone) -> bool {
        let time = zone.to_datetime(now).time();
        match self.from < self.until {
            true => time >= self.from && time < self.until,
            false => time >= self.from || time < self.until,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Digest {
    #[default]
    Off,
    Daily(Time),
    Weekly(Weekday, Time),
}

impl FromStr for Digest {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Digest, ScheduleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let day = |name: &str| {
            Some(match name {
                "mon" => Weekday::Monday,
                "tue" => Weekday::Tuesday,
                "wed" => Weekday::Wednesday,
                "thu" => Weekday::Thursday,
                "fri" => Weekday::Friday,
                "sat" => Weekday::Saturday,
                "sun" => Weekday::Sunday,
                _ => return None,
            })
        };
        match words.as_slice() {
            ["off"] => Ok(Digest::Off),
            ["daily", time] => Ok(Digest::Daily(time_of_day(time)?)),
            ["weekly", name, time] => match day(name) {
                Some(day) => Ok(Digest::Weekly(day, time_of_day(time)?)),
                None => Err(ScheduleError::Digest(echo(text))),
            },
            _ => Err(ScheduleError::Digest(echo(text))),
        }
    }
}

impl Digest {
    /// The first time after `after`. None: never.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let today = zone.to_datetime(after).date();
        let (time, weekday) = match self {
            Digest::Off => return None,
            Digest::Daily(time) => (*time, None),
            Digest::Weekly(day, time) => (*time, Some(*day)),
        };
        (0..=8_i64)
            .filter_map(|days| today.checked_add(days.days()).ok())
            .filter(|date| weekday.is_none_or(|day| date.weekday() == day))
            // A time that the clock skips in spring becomes the one after it.
            .filter_map(|date| {
                Some(date.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp())
            })
            .find(|due| *due > after)
    }
}

/// The day of the daily limit.
pub(crate) fn local_date(now: Timestamp, zone: &TimeZone) -> String {
    zone.to_datetime(now).date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> TimeZone {
        // Central European time as POSIX writes it: the tests need no database of zones.
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn quiet_hours_may_pass_midnight() {
        let night: QuietHours = "22:00-07:00".parse().expect("hours");
        for (time, quiet) in [
            ("2026-11-24T20:59:00Z", false),
            ("2026-11-24T21:00:00Z", true),
            ("2026-11-25T05:59:59Z", true),
            ("2026-11-25T06:00:00Z", false),
        ] {
            assert_eq!(night.contain(at(time), &berlin()), quiet, "{time}");
        }
        let end = |time: &str| night.end(at(time), &berlin()).map(|end| end.to_string());
        assert_eq!(end("2026-11-24T21:00:00Z").as_deref(), Some("2026-11-25T06:00:00Z"));
        assert_eq!(end("2026-11-25T06:00:00Z"), None);
        let noon: QuietHours = "12:00-13:00".parse().expect("hours");
        assert!(noon.contain(at("2026-11-24T11:30:00Z"), &berlin()));
        for wrong in ["", "22:00", "7-8", "25:00-07:00", "07:00-07:00", "22:00-07:60"] {
            assert!(wrong.parse::<QuietHours>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_digest_is_due_on_the_wall_clock_also_when_the_clocks_change() {
        let daily: Digest = "daily 08:00".parse().expect("a schedule");
        let next = |digest: Digest, time: &str| {
            digest.next(at(time), &berlin()).map(|due| due.to_string())
        };
        assert_eq!(next(daily, "2026-11-24T06:59:00Z").as_deref(), Some("2026-11-24T07:00:00Z"));
        assert_eq!(next(daily, "2026-11-24T07:00:00Z").as_deref(), Some("2026-11-25T07:00:00Z"));
        assert_eq!(next(daily, "2026-10-24T07:00:00Z").as_deref(), Some("2026-10-25T07:00:00Z"));
        let weekly: Digest = "weekly mon 08:00".parse().expect("a schedule");
        assert_eq!(next(weekly, "2026-11-24T06:59:00Z").as_deref(), Some("2026-11-30T07:00:00Z"));
        assert_eq!(next(Digest::Off, "2026-11-24T06:59:00Z"), None);
        for wrong in ["", "daily", "weekly 08:00", "weekly foo 08:00", "hourly", "daily 8"] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
