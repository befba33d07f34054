//! The framing of a text log: what stands in front of every line besides the known formats, and at
//! which column a mail client or a terminal has wrapped the lines.
//!
//! In: the first lines of a file. Out: the `LogLine` of each line. An unknown prefix counts only if
//! it repeats over the lines: a single record may quote anything.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::kernel_words::{Likeness, likeness};
use crate::line_format::{LogLine, parse_line};
use diskvitals_kernel_log::rules;

/// Lines from which the framing is determined.
pub(crate) const SAMPLE_LINES: usize = 512;
/// An unknown prefix is shorter.
const MAX_PREFIX_BYTES: usize = 240;
/// With fewer wrapped lines, only the meaning of a record shows that it was wrapped.
const MIN_WRAPPED_LINES: usize = 3;
const SHORTEST_WRAP: usize = 66;
const WRAP_COLUMNS: std::ops::RangeInclusive<usize> = 40..=250;
/// So many breaks at one column are no coincidence.
const MANY_BREAKS: usize = 4;
/// A mail client that quotes puts its mark in front of some of the parts only.
const MARK: usize = 2;
/// The kernel indents the further lines of a record by more.
const MAX_WRAPPED_INDENT: usize = 3;
/// Fewer lines of a program are no log that it passes on.
const MIN_RELAYED_LINES: usize = 3;

#[derive(Debug, Default)]
pub struct Framing {
    /// Most lines have a header of the kernel behind an unknown prefix.
    has_prefix: bool,
    /// A program passes on the kernel's log: nearly all lines are its own, with the kernel's header
    /// behind its tag, and no line is the kernel's.
    is_relayed: bool,
    /// Each line begins with its number.
    is_numbered: bool,
    pub wrap: Option<Wrap>,
    /// Characters of the longest line of the sample.
    pub longest: usize,
}

/// Lines were broken at this column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrap {
    column: usize,
    /// Of lines with a quote mark, which may be missing on the further parts.
    marked_column: usize,
    /// Also inside words, as a terminal does.
    is_hard: bool,
}

/// The length of a line and of its indent, in characters: quote marks count for the length only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    pub length: usize,
    pub indent: usize,
    first_word: usize,
    is_marked: bool,
}

impl Measure {
    pub fn of(line: &str) -> Measure {
        let body = without_quote_marks(line);
        let text = body.trim_start();
        Measure {
            length: line.chars().count(),
            is_marked: body.len() < line.len(),
            indent: body.chars().count() - text.chars().count(),
            first_word: text.split_whitespace().next().map_or(0, |word| word.chars().count()),
        }
    }
}

/// Whether the line's first word had no room in the line before, in a file of which nothing else is
/// known.
pub(crate) fn may_be_broken(before: Measure, line: Measure, longest: usize) -> bool {
    line.indent <= MAX_WRAPPED_INDENT
        && before.length + line.first_word + 1 + MARK > longest.max(SHORTEST_WRAP)
}

/// Whether the line belongs to the one before: it is indented, or was broken off.
pub(crate) fn may_continue(before: Measure, line: Measure, longest: usize) -> bool {
    line.indent > 0 || may_be_broken(before, line, longest)
}

impl Wrap {
    /// Whether the line before ended because this one's first word had no room.
    pub fn continues(self, before: Measure, line: Measure) -> bool {
        let column = self.column_of(before);
        line.indent <= MAX_WRAPPED_INDENT
            && before.length + line.first_word + 1 + MARK > column
            && before.length <= column + 1
    }

    fn column_of(self, line: Measure) -> usize {
        match line.is_marked {
            true => self.marked_column,
            false => self.column,
        }
    }

    /// What stood between the two parts, without their own blanks.
    pub fn between(self, before: Measure, line: Measure) -> &'static str {
        let is_full = before.length >= self.column_of(before);
        match self.is_hard && is_full && line.indent == 0 {
            true => "",
            false => " ",
        }
    }
}

/// A mail's `> `; without it, the line as it is.
pub(crate) fn without_quote_marks(line: &str) -> &str {
    let mut body = line;
    while let Some(rest) = body.trim_start_matches([' ', '\t']).strip_prefix(['>', '|']) {
        body = rest;
    }
    match body.len() < line.len() {
        true => body.strip_prefix(' ').unwrap_or(body),
        false => body,
    }
}

impl Framing {
    pub fn of(lines: &[&str]) -> Framing {
        let lines: Vec<&str> =
            lines.iter().copied().filter(|line| !line.trim().is_empty()).collect();
        let mut framing = Framing {
            is_numbered: are_numbered(&lines),
            longest: lines.iter().map(|line| line.chars().count()).max().unwrap_or(0),
            ..Framing::default()
        };
        let (mut own, mut framed, mut relayed) = (0, 0, 0);
        for line in &lines {
            let line = framing.without_number(line);
            match parse_line(line) {
                LogLine::Kernel { .. } => own += 1,
                found => match find_header(line, found) {
                    Some((_, Writer::Unknown)) => framed += 1,
                    Some((_, Writer::Program)) => relayed += 1,
                    None => {
                        own += usize::from(
                            matches!(found, LogLine::Bare { text } if likeness(text) == Likeness::Kernel),
                        );
                    }
                },
            }
        }
        // A wrapped log has continuations, which have no header.
        framing.has_prefix = framed > own && framed * 3 >= lines.len();
        framing.is_relayed =
            own == 0 && relayed >= MIN_RELAYED_LINES && relayed * 4 >= lines.len() * 3;
        framing.wrap = framing.find_wrap(&lines);
        framing
    }

    pub fn parse<'a>(&self, line: &'a str) -> LogLine<'a> {
        let line = self.without_number(line);
        let found = parse_line(line);
        if matches!(found, LogLine::Kernel { .. }) || !(self.has_prefix || self.is_relayed) {
            return found;
        }
        match find_header(line, found) {
            Some((framed, Writer::Unknown)) if self.has_prefix => framed,
            Some((relayed, Writer::Program)) if self.is_relayed => relayed,
            _ => found,
        }
    }

    fn without_number<'a>(&self, line: &'a str) -> &'a str {
        match self.is_numbered {
            true => numbered(line).map_or(line, |(_, rest)| rest),
            false => line,
        }
    }

    /// The column at which lines were broken: every line without a header follows a line that had no
    /// room for its first word, and no other line is longer.
    fn find_wrap(&self, lines: &[&str]) -> Option<Wrap> {
        let measures: Vec<Measure> = lines.iter().map(|line| Measure::of(line)).collect();
        let is_bare: Vec<bool> =
            lines.iter().map(|line| matches!(self.parse(line), LogLine::Bare { .. })).collect();
        let continued: Vec<(Measure, Measure)> = (1..lines.len())
            .filter(|at| is_bare[*at] && measures[*at].indent <= MAX_WRAPPED_INDENT)
            .map(|at| (measures[at - 1], measures[at]))
            .collect();
        let longest = |is_marked: bool| {
            let before = continued.iter().map(|(before, _)| before);
            before.filter(|before| before.is_marked == is_marked).map(|before| before.length).max()
        };
        let column = longest(false).max(longest(true))?;
        let wrap = Wrap {
            column: longest(false).unwrap_or(column),
            marked_column: longest(true).unwrap_or(column),
            is_hard: false,
        };
        let full: Vec<_> =
            continued.iter().filter(|(before, line)| wrap.continues(*before, *line)).collect();
        let longer = measures.iter().zip(&is_bare);
        let longer = longer.filter(|(line, is_bare)| !**is_bare && line.length > column).count();
        let is_wrapped = WRAP_COLUMNS.contains(&column)
            && is_bare.first() == Some(&false)
            && full.len() >= MIN_WRAPPED_LINES
            && full.len() * 5 >= continued.len() * 4
            && longer * 20 <= lines.len();
        // A break between words leaves lines of any length; a blank at a hard break may be lost.
        let full_to = |missing: usize| {
            full.iter()
                .filter(|(before, _)| before.length + missing >= wrap.column_of(*before))
                .count()
        };
        let may_be_hard = full_to(0) * 4 >= full.len() && full_to(1) * 10 >= full.len() * 9;
        is_wrapped.then(|| Wrap {
            is_hard: may_be_hard && {
                let hard = Wrap { is_hard: true, ..wrap };
                let meaning = |wrap| self.with_meaning(lines, wrap);
                match meaning(hard).cmp(&meaning(wrap)) {
                    Ordering::Equal => has_broken_words(lines, &is_bare)
                        .unwrap_or(full.len() >= MANY_BREAKS || full_to(0) == full.len()),
                    order => order == Ordering::Greater,
                }
            },
            ..wrap
        })
    }

    /// How many records have a meaning, if they were broken like this.
    fn with_meaning(&self, lines: &[&str], wrap: Wrap) -> usize {
        lines
            .windows(2)
            .filter(|pair| {
                let (LogLine::Kernel { text, .. }, LogLine::Bare { text: rest }) =
                    (self.parse(pair[0]), self.parse(pair[1]))
                else {
                    return false;
                };
                let between = wrap.between(Measure::of(pair[0]), Measure::of(pair[1]));
                rules::table().knows(&format!("{text}{between}{rest}"))
            })
            .count()
    }
}

/// Whether the breaks are inside words, by the file's other words: what is one word elsewhere was
/// one, and two that stand elsewhere were two.
fn has_broken_words(lines: &[&str], is_bare: &[bool]) -> Option<bool> {
    let mut words: HashMap<&str, i64> = HashMap::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        *words.entry(word).or_default() += 1;
    }
    let mut broken = 0_i64;
    for (at, pair) in lines.windows(2).enumerate() {
        let (Some(end), Some(start)) = (
            pair[0].split_whitespace().next_back(),
            without_quote_marks(pair[1]).split_whitespace().next(),
        ) else {
            continue;
        };
        if !is_bare[at + 1] {
            continue;
        }
        let count = |word: &str| words.get(word).copied().unwrap_or(0);
        if count(&format!("{end}{start}")) > 0 {
            broken += 1;
        } else if count(end) > 1 && count(start) > 1 {
            broken -= 1;
        }
    }
    (broken != 0).then_some(broken > 0)
}

/// Who printed what stands in front of the header.
enum Writer {
    Unknown,
    Program,
}

/// The first header of the kernel in the line, behind other text.
fn find_header<'a>(line: &'a str, found: LogLine<'a>) -> Option<(LogLine<'a>, Writer)> {
    let is_signed = match found {
        LogLine::Program { text, .. } => {
            text?;
            true
        }
        LogLine::Unsigned { .. } => false,
        LogLine::Bare { .. } => false,
        LogLine::Kernel { .. } | LogLine::Boot | LogLine::Note => return None,
    };
    for (at, _) in line.char_indices().take_while(|(at, _)| *at < MAX_PREFIX_BYTES) {
        let before = line[..at].chars().next_back();
        if at == 0 || before.is_some_and(char::is_alphanumeric) {
            continue;
        }
        let rest = &line[at..];
        let (is_stamp, is_tag) = (is_printk_stamp(rest), rest.starts_with("kernel: "));
        if !(is_stamp || is_tag || begins_with_date(rest)) {
            continue;
        }
        // What an opening mark began, its counterpart ends.
        let rest = match before {
            Some('"') => ["\"}", "\",", "\""]
                .into_iter()
                .find_map(|end| rest.strip_suffix(end))
                .unwrap_or(rest),
            Some('\'') => rest.trim_end_matches('\''),
            Some('(') => rest.strip_suffix(')').unwrap_or(rest),
            Some('[')
                if !rest.starts_with('[')
                    || rest.matches(']').count() > rest.matches('[').count() =>
            {
                rest.strip_suffix(']').unwrap_or(rest)
            }
            _ => rest,
        };
        let header = parse_line(rest);
        let LogLine::Kernel { kernel_time, wall, .. } = header else {
            continue;
        };
        if kernel_time.or(wall).is_none() && !is_tag && !is_stamp {
            continue;
        }
        let has_tag =
            matches!(found, LogLine::Unsigned { .. }) && (is_tag || line[..at].contains(": "));
        return Some((
            header,
            match is_signed || has_tag {
                true => Writer::Program,
                false => Writer::Unknown,
            },
        ));
    }
    None
}

/// `[   12.345678]`, `[  +0.000041]`: printk prints six digits after the point (kernel/printk/printk.c
/// print_time()).
fn is_printk_stamp(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('[') else {
        return false;
    };
    let inside = inside.trim_start_matches([' ', '+']);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(inside);
    (1..=12).contains(&whole)
        && inside[whole..]
            .strip_prefix('.')
            .is_some_and(|part| digits(part) == 6 && part[6..].starts_with([']', '@', ',', ' ']))
}

/// `Nov  7 16:01:25 `, `2020-12-02T21:55:55`
fn begins_with_date(text: &str) -> bool {
    const MONTHS: [&str; 12] = [
        "Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ",
        "Dec ",
    ];
    MONTHS.iter().any(|month| text.starts_with(month))
        || text.len() > 10
            && text.bytes().take(4).all(|byte| byte.is_ascii_digit())
            && text.as_bytes()[4] == b'-'
}

/// `12: text`, `12| text`, `  12  text`
fn numbered(line: &str) -> Option<(u64, &str)> {
    let text = line.trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = text[..digits].parse().ok().filter(|_| digits <= 6)?;
    let after = &text[digits..];
    let rest = after.strip_prefix(['.', ':', ')', '|', '#']).unwrap_or(after);
    rest.starts_with([' ', '\t']).then(|| (number, rest.strip_prefix([' ', '\t']).unwrap_or(rest)))
}

/// The numbers of the lines that have one increase by one; a wrapped line has none.
fn are_numbered(lines: &[&str]) -> bool {
    let numbers: Vec<u64> =
        lines.iter().filter_map(|line| numbered(line)).map(|(number, _)| number).collect();
    numbers.len() >= 2
        && numbers.len() * 4 >= lines.len()
        && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}
