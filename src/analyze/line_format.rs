//! The text formats of a kernel log: parses the prefix of a line, which contains its time and its
//! writer.
//!
//! In: one line. Out: the kernel's text, or the result that a program wrote the line. Does not
//! interpret device names. The formats: dmesg with all its options, journalctl, syslog (RFC 3164,
//! RFC 5424, ISO time stamps, facility and level as words), netconsole, consoles of real-time and
//! Android kernels, a bare `kernel: `, the output of grep, quoted mail, numbered lines, logs of
//! containers, a line in brackets or quotes.

mod container;
mod level_words;
mod stamps;
mod wall_clock;

pub use crate::line_format::container::is_partial;
use crate::line_format::level_words::{is_level_word, level_number};
use crate::line_format::stamps::{is_caller, is_time_of_day, parse_seconds, parse_time_of_day};

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// Written by the kernel. `kernel_time`: the kernel's clock; `wall`: a time of day with the day
    /// of the month. Both in microseconds.
    Kernel { text: &'a str, kernel_time: Option<u64>, wall: Option<u64>, facility: u8 },
    /// Written by a program, or about one. `text`: after the tag, if there is a tag.
    Program {
        kernel_time: Option<u64>,
        text: Option<&'a str>,
        /// Something stands in front of the tag.
        has_header: bool,
    },
    /// A line of a container, or a line with a date, and nothing shows who wrote it.
    Unsigned { text: &'a str, wall: Option<u64> },
    /// Nothing in front of the text.
    Bare { text: &'a str },
    /// `-- Boot 3f… --`, `-- Reboot --`
    Boot,
    /// Of the tool that printed the log: `-- No entries --`.
    Note,
}

pub fn parse_line(line: &str) -> LogLine<'_> {
    if let Some(inside) = without_enclosure(line)
        && let found @ LogLine::Kernel { .. } = parse_open_line(inside)
    {
        return found;
    }
    parse_open_line(line)
}

/// `[Nov  7 16:01:25 host kernel: text]`, `"[   12.345678] text",`: what is inside.
fn without_enclosure(line: &str) -> Option<&str> {
    let line = line.trim().trim_end_matches(',');
    let inside = |open: char, close: char| line.strip_prefix(open)?.strip_suffix(close);
    [('"', '"'), ('\'', '\''), ('`', '`'), ('(', ')')]
        .into_iter()
        .find_map(|(open, close)| inside(open, close))
        .or_else(|| {
            let inside = inside('[', ']')?;
            let mut depth = 0_i32;
            let closes_before = inside.bytes().any(|byte| {
                depth += i32::from(byte == b'[') - i32::from(byte == b']');
                depth < 0
            });
            (!closes_before).then_some(inside)
        })
}

fn parse_open_line(line: &str) -> LogLine<'_> {
    let mut at = LineParser::new(line);
    at.skip_quote_marks();
    let length = at.rest.len();
    at.skip_line_number();
    at.skip_file_name();
    at.parse_cut_bracket();
    if at.rest.starts_with("-- Boot ") || at.rest.starts_with("-- Reboot") {
        return LogLine::Boot;
    }
    if is_note(at.rest) {
        return LogLine::Note;
    }
    if !at.parse_priority() {
        return LogLine::Program { kernel_time: None, text: None, has_header: true };
    }
    for _ in 0..8 {
        let before = at.rest.len();
        at.parse_container();
        at.parse_level_words();
        at.parse_bracket();
        at.parse_dmesg_names();
        at.parse_wall_clock();
        if at.rest.len() == before {
            break;
        }
        if at.rest.starts_with('<') && at.kernel_time.is_none() && !at.parse_priority() {
            return LogLine::Program { kernel_time: None, text: None, has_header: true };
        }
    }
    let has_header = at.rest.len() < length;
    match at.parse_tag() {
        Tag::Kernel => {
            at.parse_priority();
            for _ in 0..4 {
                at.parse_bracket();
            }
            // Some daemons print the tag's colon again.
            at.rest = at.rest.strip_prefix(": ").unwrap_or(at.rest);
        }
        Tag::Program(text) => {
            return LogLine::Program { kernel_time: at.kernel_time, text: Some(text), has_header };
        }
        Tag::None if at.has_syslog_stamp && !at.has_kernel_time_after_host() => {
            return LogLine::Unsigned { text: at.rest, wall: at.wall };
        }
        Tag::None if at.is_of_container && at.kernel_time.is_none() => {
            return LogLine::Unsigned { text: at.rest, wall: at.wall };
        }
        Tag::None => {}
    }
    if at.rest.len() == length {
        return LogLine::Bare { text: at.rest };
    }
    LogLine::Kernel {
        text: at.rest,
        kernel_time: at.kernel_time,
        wall: at.wall,
        facility: at.facility,
    }
}

/// `-- Logs begin at …`, `-- No entries --`, `[snip]`
fn is_note(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("-- ") && line.ends_with(" --")
        || line.starts_with("-- Logs begin at ")
        || line.starts_with("-- Journal begins at ")
        || ["[snip]", "[cut]", "<snip>"].contains(&line)
}

#[derive(Clone, Copy)]
struct LineParser<'a> {
    rest: &'a str,
    kernel_time: Option<u64>,
    wall: Option<u64>,
    facility: u8,
    /// A syslog time stamp was present: a tag must follow.
    has_syslog_stamp: bool,
    /// A runtime of containers printed the line's beginning.
    is_of_container: bool,
}

enum Tag<'a> {
    Kernel,
    /// The text after it.
    Program(&'a str),
    None,
}

impl<'a> LineParser<'a> {
    fn new(line: &'a str) -> LineParser<'a> {
        LineParser {
            rest: line,
            kernel_time: None,
            wall: None,
            facility: 0,
            has_syslog_stamp: false,
            is_of_container: false,
        }
    }

    /// The quote marks of a mail: `> `, `| ` and blanks.
    fn skip_quote_marks(&mut self) {
        self.rest = self.rest.trim_start_matches(['>', '|', ' ', '\t', '\u{feff}']);
        // The mark of a list, a patch or a quoted code.
        let after = self.rest.trim_start_matches(['-', '+', '*', '#', '`', ' ']);
        if after.starts_with('[') || after.len() < self.rest.len() && begins_with_header(after) {
            self.rest = after;
        }
    }

    /// `  12  [   12.345678] `, `12. Nov  7 …`, `12| <6>…`: the numbers of a pasted text.
    fn skip_line_number(&mut self) {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=6).contains(&digits) {
            return;
        }
        let after = &self.rest[digits..];
        let text = after.strip_prefix(['.', ':', ')', '|', '#']).unwrap_or(after);
        let header = text.trim_start();
        if header.len() < after.len() && begins_with_header(header) {
            self.rest = header;
        }
    }

    /// `kern.log:`, `/var/log/messages-20201202:`, `42:`: grep's, in front of a line of another
    /// form.
    fn skip_file_name(&mut self) {
        let Some((name, rest)) = self.rest.split_once(':') else {
            return;
        };
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_file = name != "kernel"
            && name.len() <= 80
            && ["log", "messages", "dmesg", "kern"].iter().any(|word| name.contains(word))
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
        let begins_line = rest.starts_with(['[', '<'])
            || is_file && rest.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
        if begins_line && (is_number || is_file) {
            self.rest = rest;
        }
    }

    /// `12.345678] `, `345678] `, `26 15:05:30 2020] `: a bracket whose beginning was not copied.
    fn parse_cut_bracket(&mut self) {
        let Some((stamp, rest)) = self.rest.split_once("] ") else {
            return;
        };
        let stamp = stamp.trim();
        if stamp.len() > 40 || stamp.contains('[') {
            return;
        }
        let last = stamp.rsplit(' ').next().unwrap_or_default();
        let is_digits = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(time) = parse_seconds(stamp) {
            self.kernel_time = Some(time);
        } else if (last.len() == 4 && is_digits(last) || is_time_of_day(last))
            && let Some(wall) = parse_time_of_day(stamp)
        {
            self.wall = Some(wall);
        } else if !((3..=6).contains(&stamp.len()) && is_digits(stamp)) {
            return;
        }
        self.rest = rest;
    }

    /// netconsole's lines, as a log daemon stores them: `192.0.2.7 [   12.345678] `, without a tag;
    /// also with words for the facility and the level.
    fn has_kernel_time_after_host(&mut self) -> bool {
        let (mut rest, mut hosts) = (self.rest, 0);
        for _ in 0..4 {
            if self.kernel_time.is_some() {
                break;
            }
            let (word, after) = token(rest);
            hosts += usize::from(!is_level_word(word));
            if hosts > 1 || word.ends_with(':') && !is_level_word(word) {
                break;
            }
            let mut ahead = LineParser { rest: after, ..*self };
            ahead.parse_bracket();
            if ahead.kernel_time.is_some() {
                *self = ahead;
                self.parse_bracket();
            }
            rest = after;
        }
        self.kernel_time.is_some()
    }

    /// `<6>`, `<6>1 ` (RFC 5424). False: a program's facility.
    fn parse_priority(&mut self) -> bool {
        let Some((number, rest)) =
            self.rest.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        else {
            return true;
        };
        let Some(priority) = number.parse::<u16>().ok().filter(|_| number.len() <= 3) else {
            return true;
        };
        self.facility = (priority >> 3).min(255) as u8;
        self.rest = rest.strip_prefix("1 ").unwrap_or(rest);
        self.facility == 0
    }

    /// `[   12.345678]`, `[  +0.000041]`, `[<    0.000041>]`, `[Sun Apr 26 15:05:30 2020]`, `[Jan13 04:31]`,
    /// `[  T665]`, `[ C36]`, `[    1.5 <    0.1>]`, `[    1.345678@1]`, `[    1.345678,1]`
    fn parse_bracket(&mut self) {
        let Some(inside) = self.rest.trim_start().strip_prefix('[') else {
            return;
        };
        let Some((stamp, rest)) = inside.split_once(']') else {
            return;
        };
        let stamp = stamp.trim();
        if stamp.is_empty() || stamp.len() > 48 {
            return;
        }
        let first = stamp.split([' ', '<', '@']).next().unwrap_or_default();
        // Some vendors' kernels print the CPU after a comma.
        let without_cpu = first
            .rsplit_once(',')
            .filter(|(time, _)| time.contains('.'))
            .map_or(first, |(time, _)| time);
        let distance = stamp.trim_matches(['<', '>', '+', '-', ' ']);
        if let Some(time) = parse_seconds(without_cpu) {
            self.kernel_time = Some(time);
        } else if parse_seconds(distance).is_some() || is_caller(stamp) {
            // The time since the previous line, or the thread or CPU that wrote the line.
        } else if let Some(wall) = parse_time_of_day(stamp) {
            self.wall = Some(wall);
        } else {
            return;
        }
        self.rest = rest.strip_prefix(' ').unwrap_or(rest);
        self.skip_cpu_or_level();
    }

    /// After the time: `000: ` of a real-time kernel, `<4>` of a console, and the CPU and the task
    /// of some phones' kernels: `(0)[165:mmcqd/0]`, `<0>.(0)[165:mmcqd/0]`.
    fn skip_cpu_or_level(&mut self) {
        let after = match self.rest.as_bytes() {
            [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b':', b' ', ..] => 5,
            [b'<', b'0'..=b'7', b'>', ..] => 3,
            _ => 0,
        };
        self.rest = &self.rest[after..];
        let number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let task = self.rest.trim_start_matches(['.', '-', ' ']);
        if let Some((cpu, task)) = task.strip_prefix('(').and_then(|rest| rest.split_once(")["))
            && let Some((task, text)) = task.split_once(']')
            && let Some((pid, name)) = task.split_once(':')
            && number(cpu)
            && number(pid)
            && name.len() <= 15
        {
            self.rest = text;
        }
    }

    /// `kern  :info  : ` of dmesg -x.
    fn parse_dmesg_names(&mut self) {
        let Some((facility, rest)) = self.rest.split_once(':') else {
            return;
        };
        let Some(number) = level_words::facility_number(facility.trim_end()) else {
            return;
        };
        let Some((level, after)) = rest.split_once(':') else {
            return;
        };
        if level_number(level.trim()).is_some() {
            self.facility = number;
            self.rest = after.strip_prefix(' ').unwrap_or(after);
        }
    }

    /// `host kernel: `, `kernel: `, `host kern.err kernel: `, `host kernel - - - `. `host sshd[123]: `
    /// and `systemd[1]: ` are tags of programs.
    fn parse_tag(&mut self) -> Tag<'a> {
        let head_end = self.rest.char_indices().nth(160).map_or(self.rest.len(), |(end, _)| end);
        let head = &self.rest[..head_end];
        // The text stands in the next line.
        if let Some(before) = self.rest.strip_suffix("kernel - - -")
            && before.split_whitespace().count() <= 1
        {
            self.rest = "";
            return Tag::Kernel;
        }
        for (tag, length) in [
            ("kernel: ", 8),
            ("vmunix: ", 8),
            ("kernel:", 7),
            ("kernel[0]: ", 11),
            ("kernel - - - ", 13),
            ("kernel - - ", 11),
            ("[kernel] ", 9),
        ] {
            let Some(at) = head.find(tag) else { continue };
            let before = &head[..at];
            let own_word = before.is_empty() || before.ends_with(' ');
            let hosts = before
                .split_whitespace()
                .filter(|word| !is_level_word(word) && !is_number_or_letter(word));
            if own_word && !before.contains(": ") && hosts.count() <= 1 {
                // `kernel:` at a line's end is an empty record; elsewhere it is text.
                if length == 7 && at + 7 != self.rest.len() && !self.has_syslog_stamp {
                    continue;
                }
                self.rest = &self.rest[at + length..];
                return Tag::Kernel;
            }
        }
        let mut rest = head;
        for _ in 0..2 {
            let (word, after) = token(rest);
            if let Some((name, number)) =
                word.strip_suffix("]:").and_then(|word| word.split_once('['))
                && !name.is_empty()
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                let start = head.len() - after.len();
                return Tag::Program(self.rest.get(start..).unwrap_or_default());
            }
            rest = after;
        }
        Tag::None
    }
}

/// The ids and the level of Android's log: `0     0 E kernel: `.
fn is_number_or_letter(word: &str) -> bool {
    word.len() == 1 || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a stamp, a priority or a date begins here.
fn begins_with_header(text: &str) -> bool {
    let mut at = LineParser::new(text);
    at.parse_priority();
    at.parse_bracket();
    at.parse_wall_clock();
    at.rest.len() < text.len()
}

fn token(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    text.split_once(' ').unwrap_or((text, ""))
}
