//! The date in front of a line, as log daemons and viewers print it.
//!
//! In: a line. Out: the time of day with the day of the month, and the line after it.

use crate::line_format::level_words::is_level_word;
use crate::line_format::stamps::{is_date, is_time_of_day, parse_seconds, parse_time_of_day};
use crate::line_format::{LineParser, token};

impl LineParser<'_> {
    /// `Nov  7 16:01:25`, `set 03 13:04:29`, `2020-12-02T21:55:55.868531+01:00`,
    /// `Wed 2020-12-02 21:55:55 CET`, `2020-12-02 21:55:55,868 +0100`, `02/Dec/2020:21:55:55 +0100`,
    /// `1606945555.868531`
    pub(super) fn parse_wall_clock(&mut self) {
        if self.has_syslog_stamp || self.kernel_time.is_some() || self.rest.starts_with('[') {
            return;
        }
        // dmesg --time-format iso prints a comma, and no host or tag.
        let (first, after) = token(self.rest);
        let date = first.trim_end_matches([':', ',']);
        if is_date(date) && (date.contains('T') || date.contains('/')) && date.contains(':') {
            self.wall = parse_time_of_day(date);
            self.has_syslog_stamp = !date.contains(',');
            self.rest = after;
            if self.has_syslog_stamp {
                self.skip_after_date();
            }
            return;
        }
        if first.len() >= 10
            && first.contains('.')
            && first.as_bytes()[0].is_ascii_digit()
            && parse_seconds(first).is_some()
        {
            self.wall = parse_seconds(first);
            self.has_syslog_stamp = true;
            self.rest = after;
            return;
        }
        // Fields up to a time of day; a date has at most this many.
        let mut rest = self.rest;
        for words in 0..5 {
            let (word, after) = token(rest);
            if word.is_empty() || word.len() > 16 {
                return;
            }
            if is_time_of_day(word) {
                if words == 0 && !self.rest.starts_with(|c: char| c.is_ascii_digit()) {
                    return;
                }
                let stamp_length = self.rest.len() - after.len();
                self.wall = parse_time_of_day(&self.rest[..stamp_length]);
                self.has_syslog_stamp = true;
                self.rest = after;
                self.skip_after_date();
                return;
            }
            // `1 INFO: task x 10:20 …` is text: in front of a time are a day, a month, a year.
            let date = word.trim_end_matches([',', '.']);
            if !date.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '/' | '.')) {
                return;
            }
            rest = after;
        }
    }

    /// `CET` of journalctl's short-full format, `+0100`, `PM`, a year, a dash.
    fn skip_after_date(&mut self) {
        for _ in 0..2 {
            let (word, after) = token(self.rest);
            let zone = word.trim_end_matches(':');
            // Not `XFS` or `BTRFS`, which begin the kernel's text.
            let is_upper = (1..=5).contains(&zone.len())
                && zone.bytes().all(|byte| byte.is_ascii_uppercase())
                && (zone.ends_with('T') || ["UTC", "MSK", "WIB", "AM", "PM", "Z"].contains(&zone));
            let is_number =
                |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
            let is_offset = zone.len() >= 5 && zone.strip_prefix(['+', '-']).is_some_and(is_number);
            let is_year = zone.len() == 4 && is_number(zone);
            let is_dash = ["-", "|", "--"].contains(&word);
            if (is_upper || is_offset || is_year || is_dash) && !is_level_word(word) {
                self.rest = after;
            }
        }
    }
}
