//! The time stamps of log lines: the kernel's clock, times of day, and the caller beside them.
//!
//! In: the text of a stamp. Out: microseconds. Does not search a line for stamps.

/// `12.345678`, in some languages `12,345678` → microseconds.
pub(super) fn parse_seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once(['.', ','])?;
    if whole.is_empty()
        || whole.len() > 12
        || part.is_empty()
        || part.len() > 9
        || !text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
    {
        return None;
    }
    let micros: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

/// `T665`, `C36`; some formats contain both.
pub(super) fn is_caller(text: &str) -> bool {
    let text = text.trim();
    let number = text.strip_prefix('T').or_else(|| text.strip_prefix('C'));
    number.is_some_and(|number| {
        !number.is_empty() && number.len() <= 10 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

pub(super) fn is_time_of_day(word: &str) -> bool {
    let bytes = word.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    digit(0)
        && digit(1)
        && bytes.get(2) == Some(&b':')
        && digit(3)
        && digit(4)
        && (bytes.len() == 5 || bytes.get(5) == Some(&b':') && digit(6) && digit(7))
}

/// Reads a time of day from a stamp, and the day of the month. Sufficient to compare the times of
/// nearby records.
pub(super) fn parse_time_of_day(stamp: &str) -> Option<u64> {
    let bytes = stamp.as_bytes();
    let at = (0..bytes.len().saturating_sub(4)).find(|at| {
        stamp.get(*at..).is_some_and(|rest| {
            is_time_of_day(rest.get(..8).or_else(|| rest.get(..5)).unwrap_or_default())
        })
    })?;
    let two = |at: usize| stamp.get(at..at + 2).and_then(|text| text.parse::<u64>().ok());
    let (hours, minutes) = (two(at)?, two(at + 3)?);
    let seconds = if bytes.get(at + 5) == Some(&b':') { two(at + 6)? } else { 0 };
    let fraction = match bytes.get(at + 8) {
        Some(b'.' | b',') => stamp
            .get(at + 9..)
            .map(|rest| rest.chars().take(6).take_while(char::is_ascii_digit).collect::<String>()),
        _ => None,
    };
    let micros =
        fraction.and_then(|digits| format!("{digits:0<6}").parse::<u64>().ok()).unwrap_or(0);
    let day = stamp
        .get(..at)?
        .split(|c: char| !c.is_ascii_digit())
        .filter(|word| (1..=2).contains(&word.len()))
        .filter_map(|word| word.parse::<u64>().ok())
        .next_back()
        .unwrap_or(0);
    Some((((day * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

/// A date with a time of day in one word: `2020-12-02T21:55:55.868531+01:00`,
/// `02/Dec/2020:21:55:55`.
pub(super) fn is_date(word: &str) -> bool {
    let digit = |at: usize| word.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    word.len() >= 19
        && digit(0)
        && digit(1)
        && (word.as_bytes()[4] == b'-' || word.as_bytes()[2] == b'/')
        && parse_time_of_day(word).is_some()
}
