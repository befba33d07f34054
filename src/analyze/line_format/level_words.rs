//! Words for the facility and the level in front of a record: `kern.err`, `kern`, `WARN`, `[err]`.
//!
//! In: a word. Out: whether it is one, and its number (syslog(3)).

use crate::line_format::LineParser;

const FACILITIES: [&str; 12] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp",
];
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
/// Other words for the same levels.
const LEVEL_ALIASES: [(&str, u8); 7] = [
    ("panic", 0),
    ("emergency", 0),
    ("critical", 2),
    ("error", 3),
    ("warning", 4),
    ("information", 6),
    ("trace", 7),
];

pub(super) fn facility_number(word: &str) -> Option<u8> {
    let place = FACILITIES.iter().position(|name| *name == word)?;
    u8::try_from(place).ok()
}

pub(super) fn level_number(word: &str) -> Option<u8> {
    let word = word.to_ascii_lowercase();
    let place = LEVELS.iter().position(|name| *name == word);
    place
        .and_then(|place| u8::try_from(place).ok())
        .or_else(|| LEVEL_ALIASES.iter().find(|(alias, _)| *alias == word).map(|(_, level)| *level))
}

/// `kern.err`, `user.warning`, `kern`, `ERROR`, `[err]`, `(kern.info)`, `<notice>`
pub(super) fn is_level_word(word: &str) -> bool {
    let word = word.trim_matches(['[', ']', '(', ')', '<', '>', ':', ',', '|']);
    let is_facility = |word: &str| {
        let word = word.to_ascii_lowercase();
        facility_number(&word).is_some()
            || word == "kernel"
            || word.strip_prefix("local").is_some_and(|number| number.len() == 1)
    };
    match word.split_once(['.', ':', '/']) {
        Some((facility, level)) => is_facility(facility) && level_number(level).is_some(),
        None => level_number(word).is_some() || word == "kern" || word == "KERN",
    }
}

impl LineParser<'_> {
    /// Words for the facility and the level, if a stamp or a date follows them: `INFO: task …` is the
    /// kernel's own text.
    pub(super) fn parse_level_words(&mut self) {
        if self.kernel_time.is_some() || self.has_syslog_stamp {
            return;
        }
        let mut ahead = *self;
        for _ in 0..2 {
            let (word, after) = super::token(ahead.rest);
            if !is_level_word(word) {
                return;
            }
            ahead.rest = after.trim_start();
            let before = ahead.rest.len();
            ahead.parse_bracket();
            ahead.parse_wall_clock();
            if ahead.rest.len() < before {
                *self = ahead;
                return;
            }
        }
    }
}
