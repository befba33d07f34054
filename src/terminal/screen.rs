//! Formatting for people: colors, ages, sizes, escapes. Pure: width, color, the time and its zone
//! are arguments.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use diskvitals_text::echo::Shown;

#[derive(Clone, Debug)]
pub struct Screen {
    /// Columns of the terminal; None: no limit.
    pub width: Option<u16>,
    pub color: bool,
    pub now: Timestamp,
    pub zone: TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Good,
    Warning,
    Critical,
    Faint,
}

impl Screen {
    pub fn paint(&self, tone: Tone, text: impl std::fmt::Display) -> String {
        let style = match tone {
            _ if !self.color => return text.to_string(),
            Tone::Plain => return text.to_string(),
            Tone::Strong => Style::new().bold(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
            Tone::Critical => AnsiColor::Red.on_default().bold(),
            Tone::Faint => Style::new().dimmed(),
        };
        format!("{style}{text}{style:#}")
    }

    /// `3 min ago`; after a day, the local time.
    pub fn ago(&self, time: Option<&prost_types::Timestamp>) -> String {
        let Some(time) = time.and_then(timestamp) else {
            return "never".to_owned();
        };
        match self.now.as_second() - time.as_second() {
            // Clocks differ and are adjusted: a time slightly in the future counts as now.
            ..5 => "just now".to_owned(),
            seconds @ 5..60 => format!("{seconds} s ago"),
            seconds @ 60..3600 => format!("{} min ago", seconds / 60),
            seconds @ 3600..86_400 => format!("{} h ago", seconds / 3600),
            _ => self.local(time),
        }
    }

    /// Local time to the second, with the date.
    pub fn date_time(&self, time: Option<&prost_types::Timestamp>) -> String {
        match time.and_then(timestamp) {
            Some(time) => self.local(time),
            None => "-".to_owned(),
        }
    }

    /// The same with the zone, `CET` or `+01`: once on a page that leaves the machine.
    pub fn zoned(&self, time: &prost_types::Timestamp) -> String {
        let format = "%Y-%m-%d %H:%M:%S %Z";
        let shown = timestamp(time).map(|it| it.to_zoned(self.zone.clone()).strftime(format));
        shown.map_or_else(|| "-".to_owned(), |it| it.to_string())
    }

    /// The text of a message with its times in the form of the screen: the daemon writes them as
    /// `2026-03-01T12:00:00Z`, because it does not know the zone of its readers.
    pub fn local_times(&self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            // A colon or a full stop may follow the time.
            let (time, tail) = word.split_at(word.find('Z').map_or(0, |z| z + 1));
            shown.push_str(before);
            match time.parse::<Timestamp>() {
                Ok(time) => {
                    shown.push_str(&self.local(time));
                    shown.push_str(tail);
                }
                Err(_) => shown.push_str(word),
            }
            rest = after;
        }
        shown + rest
    }

    /// A message of the daemon as this screen shows it: escaped, with local times.
    pub fn message(&self, text: &str) -> String {
        escape_control(&self.local_times(text))
    }

    fn local(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// The present local time.
    pub fn clock(&self) -> String {
        self.local(self.now)
    }

    /// The time since then; none if it is in the future.
    pub fn since(&self, time: &prost_types::Timestamp) -> std::time::Duration {
        let elapsed = timestamp(time).map(|time| self.now.duration_since(time));
        elapsed.and_then(|elapsed| elapsed.try_into().ok()).unwrap_or_default()
    }
}

pub fn timestamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

/// External text must not control the terminal, or look like another text: control characters, and
/// characters that are invisible or reorder the line, are shown as escapes.
pub fn escape_control(text: &str) -> String {
    Shown::line(text, usize::MAX).to_string()
}

/// `35 s`, `2 min 10 s`, `3 h 5 min`, `2 d 4 h`.
pub fn span(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    let (large, small, units) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => (seconds / 60, seconds % 60, ("min", "s")),
        3600..86_400 => (seconds / 3600, seconds / 60 % 60, ("h", "min")),
        _ => (seconds / 86_400, seconds / 3600 % 24, ("d", "h")),
    };
    match small {
        0 => format!("{large} {}", units.0),
        small => format!("{large} {} {small} {}", units.0, units.1),
    }
}

pub fn bytes(count: u64) -> String {
    diskvitals_text::size::format_bytes(count)
}

/// `-` for the empty text.
pub fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{before, screen};

    #[test]
    fn ages_are_words() {
        let ages: Vec<String> = [-100, 0, 4, 5, 59, 60, 3599, 3600, 86_400, 200_000, 9_000_000]
            .map(|age| screen(None).ago(before(age).as_ref()))
            .into();
        let words = [
            "just now",
            "just now",
            "just now",
            "5 s ago",
            "59 s ago",
            "1 min ago",
            "59 min ago",
            "1 h ago",
            "2026-02-28 12:00:00",
            "2026-02-27 04:26:40",
            "2025-11-17 08:00:00",
        ];
        assert_eq!(ages, words);
        assert_eq!(screen(None).ago(None), "never");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let spans = [0, 59, 60, 130, 3600, 11_100, 86_400, 190_000]
            .map(|seconds| span(std::time::Duration::from_secs(seconds)));
        let words = ["0 s", "59 s", "1 min", "2 min 10 s", "1 h", "3 h 5 min", "1 d", "2 d 4 h"];
        assert_eq!(spans, words);
    }

    #[test]
    fn times_in_messages_are_local_and_to_the_second() {
        let mut screen = screen(None);
        screen.zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, shown) in [
            ("since 2026-03-01T10:00:00Z: waits", "since 2026-03-01 12:00:00: waits"),
            ("2026-03-01T10:00:00.123456789Z", "2026-03-01 12:00:00"),
            ("sd 0:0:0:0 of 1.5 TiB, 2026-03-01", "sd 0:0:0:0 of 1.5 TiB, 2026-03-01"),
            ("ä 12Z", "ä 12Z"),
            ("", ""),
        ] {
            assert_eq!(screen.local_times(text), shown);
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(escape_control("a\u{1b}[31mb\nc"), r"a\u{1b}[31mb\nc");
    }

    #[test]
    fn colours_can_be_off() {
        let mut screen = screen(None);
        assert_eq!(screen.paint(Tone::Critical, "BAD"), "BAD");
        screen.color = true;
        assert_eq!(screen.paint(Tone::Good, "GOOD"), "\u{1b}[32mGOOD\u{1b}[0m");
    }
}
