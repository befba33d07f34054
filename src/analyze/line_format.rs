//! The text formats of a kernel log: parses the prefix of a line, which contains its time and its
//! writer.
//!
//! In: one line. Out: the kernel's text, or the result that a program wrote the line. Does not
//! interpret device names. The formats: dmesg with all its options, journalctl, syslog (RFC 3164,
//! RFC 5424, ISO time stamps, BSD facility words), netconsole, consoles of real-time and Android
//! kernels, a bare `kernel: `, the output of grep, quoted mail.

const FACILITIES: [&str; 12] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp",
];
const LEVELS: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug",
];

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLine<'a> {
    /// Written by the kernel. `kernel_time`: the kernel's clock; `wall`: a time of day with the day
    /// of the month. Both in microseconds.
    Kernel {
        text: &'a str,
        kernel_time: Option<u64>,
        wall: Option<u64>,
        facility: u8,
        /// The line has a time, a level, a tag or the like in front of the text.
        has_prefix: bool,
    },
    /// Written by a program, or about one.
    Program { kernel_time: Option<u64> },
    /// `-- Boot 3f… --`, `-- Reboot --`
    Boot,
}

pub(crate) fn parse_line(line: &str) -> LogLine<'_> {
    let mut at = LineParser {
        rest: line,
        kernel_time: None,
        wall: None,
        facility: 0,
        has_syslog_stamp: false,
    };
    at.skip_quote_marks();
    let length = at.rest.len();
    at.skip_file_name();
    at.parse_cut_bracket();
    if at.rest.starts_with("-- Boot ") || at.rest.starts_with("-- Reboot") {
        return LogLine::Boot;
    }
    if !at.parse_priority() {
        return LogLine::Program { kernel_time: None };
    }
    for _ in 0..6 {
        let before = at.rest.len();
        at.parse_bracket();
        at.parse_dmesg_names();
        at.parse_wall_clock();
        if at.rest.len() == before {
            break;
        }
    }
    match at.parse_tag() {
        Tag::Kernel => {
            for _ in 0..4 {
                at.parse_bracket();
            }
            // Some daemons print the tag's colon again.
            at.rest = at.rest.strip_prefix(": ").unwrap_or(at.rest);
        }
        Tag::Program => {
            return LogLine::Program {
                kernel_time: at.kernel_time,
            };
        }
        Tag::None if at.has_syslog_stamp && !at.has_kernel_time_after_host() => {
            return LogLine::Program { kernel_time: None };
        }
        Tag::None => {}
    }
    LogLine::Kernel {
        text: at.rest,
        kernel_time: at.kernel_time,
        wall: at.wall,
        facility: at.facility,
        has_prefix: at.rest.len() < length,
    }
}

#[derive(Clone, Copy)]
struct LineParser<'a> {
    rest: &'a str,
    kernel_time: Option<u64>,
    wall: Option<u64>,
    facility: u8,
    /// A syslog time stamp was present: a tag must follow.
    has_syslog_stamp: bool,
}

enum Tag {
    Kernel,
    Program,
    None,
}

impl<'a> LineParser<'a> {
    /// The quote marks of a mail: `> `, `| ` and blanks.
    fn skip_quote_marks(&mut self) {
        self.rest = self
            .rest
            .trim_start_matches(['>', '|', ' ', '\t', '\u{feff}']);
        // The mark of a list, a patch or a quoted code.
        let after = self.rest.trim_start_matches(['-', '+', '*', '#', '`', ' ']);
        if after.starts_with('[') {
            self.rest = after;
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
            && ["log", "messages", "dmesg", "kern"]
                .iter()
                .any(|word| name.contains(word))
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
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

    /// netconsole's lines, as a log daemon stores them: `192.0.2.7 [   12.345678] `, without a tag.
    fn has_kernel_time_after_host(&mut self) -> bool {
        if self.kernel_time.is_none() {
            let (_, after) = token(self.rest);
            let mut ahead = LineParser {
                rest: after,
                ..*self
            };
            ahead.parse_bracket();
            if ahead.kernel_time.is_some() {
                *self = ahead;
                self.parse_bracket();
            }
        }
        self.kernel_time.is_some()
    }

    /// `<6>`, `<6>1 ` (RFC 5424). False: a program's facility.
    fn parse_priority(&mut self) -> bool {
        let Some((number, rest)) = self
            .rest
            .strip_prefix('<')
            .and_then(|rest| rest.split_once('>'))
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

    /// `[   12.345678]`, `[  +0.000041]`, `[Sun Apr 26 15:05:30 2020]`, `[Jan13 04:31]`,
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
        if let Some(time) = parse_seconds(without_cpu) {
            self.kernel_time = Some(time);
        } else if first.starts_with('+') && parse_seconds(&first[1..]).is_some() || is_caller(stamp)
        {
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
        if let Some((cpu, task)) = task
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(")["))
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
        let Some(number) = FACILITIES
            .iter()
            .position(|name| *name == facility.trim_end())
        else {
            return;
        };
        let Some((level, after)) = rest.split_once(':') else {
            return;
        };
        if LEVELS.contains(&level.trim()) {
            self.facility = number as u8;
            self.rest = after.strip_prefix(' ').unwrap_or(after);
        }
    }

    /// `Nov  7 16:01:25`, `set 03 13:04:29`, `2020-12-02T21:55:55.868531+01:00`,
    /// `Wed 2020-12-02 21:55:55 CET`, `1606945555.868531`
    fn parse_wall_clock(&mut self) {
        if self.has_syslog_stamp
            || self.kernel_time.is_some()
            || self.wall.is_some()
            || self.rest.starts_with('[')
        {
            return;
        }
        // dmesg --time-format iso prints a comma, and no host or tag.
        let (first, after) = token(self.rest);
        if first.len() >= 19
            && first.as_bytes()[4] == b'-'
            && first.contains('T')
            && first.contains(':')
        {
            self.wall = parse_time_of_day(first);
            self.has_syslog_stamp = !first.contains(',');
            self.rest = after;
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
        for words in 0..4 {
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
                // `CET` of journalctl's short-full format, or a year.
                let (zone, after) = token(self.rest);
                if (2..=5).contains(&zone.len())
                    && zone.bytes().all(|byte| byte.is_ascii_uppercase())
                    || zone.len() == 4 && zone.bytes().all(|byte| byte.is_ascii_digit())
                {
                    self.rest = after;
                }
                return;
            }
            rest = after;
        }
    }

    /// `host kernel: `, `kernel: `, `host kern.err kernel: `, `host kernel - - - `. `host sshd[123]: ` and `systemd[1]: ` are
    /// tags of programs.
    fn parse_tag(&mut self) -> Tag {
        let head_end = self
            .rest
            .char_indices()
            .nth(160)
            .map_or(self.rest.len(), |(end, _)| end);
        let head = &self.rest[..head_end];
        for (tag, length) in [
            ("kernel: ", 8),
            ("vmunix: ", 8),
            ("kernel:", 7),
            ("kernel - - - ", 13),
            ("kernel - - ", 11),
        ] {
            let Some(at) = head.find(tag) else { continue };
            let before = &head[..at];
            let own_word = before.is_empty() || before.ends_with(' ');
            let hosts = before
                .split_whitespace()
                .filter(|word| !is_facility_and_level(word));
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
            if let Some((name, number)) = word
                .strip_suffix("]:")
                .and_then(|word| word.split_once('['))
                && !name.is_empty()
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                return Tag::Program;
            }
            rest = after;
        }
        Tag::None
    }
}

fn token(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    text.split_once(' ').unwrap_or((text, ""))
}

/// `kern.err`, `user.warning`: the facility and the level, as BSD's and busybox' log daemons print
/// them.
fn is_facility_and_level(word: &str) -> bool {
    word.split_once('.').is_some_and(|(facility, level)| {
        (FACILITIES.contains(&facility) || facility.starts_with("local"))
            && (LEVELS.contains(&level) || ["error", "warning", "panic"].contains(&level))
    })
}

/// `12.345678`, in some languages `12,345678` → microseconds.
fn parse_seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once(['.', ','])?;
    if whole.is_empty()
        || whole.len() > 12
        || part.is_empty()
        || part.len() > 9
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
    {
        return None;
    }
    let micros: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(micros)
}

/// `T665`, `C36`; some formats contain both.
fn is_caller(text: &str) -> bool {
    let text = text.trim();
    let number = text.strip_prefix('T').or_else(|| text.strip_prefix('C'));
    number.is_some_and(|number| {
        !number.is_empty() && number.len() <= 10 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_time_of_day(word: &str) -> bool {
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
fn parse_time_of_day(stamp: &str) -> Option<u64> {
    let bytes = stamp.as_bytes();
    let at = (0..bytes.len().saturating_sub(4)).find(|at| {
        stamp.get(*at..).is_some_and(|rest| {
            is_time_of_day(rest.get(..8).or_else(|| rest.get(..5)).unwrap_or_default())
        })
    })?;
    let two = |at: usize| {
        stamp
            .get(at..at + 2)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (hours, minutes) = (two(at)?, two(at + 3)?);
    let seconds = if bytes.get(at + 5) == Some(&b':') {
        two(at + 6)?
    } else {
        0
    };
    let fraction = match bytes.get(at + 8) {
        Some(b'.' | b',') => stamp.get(at + 9..).map(|rest| {
            rest.chars()
                .take(6)
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        }),
        _ => None,
    };
    let micros = fraction
        .and_then(|digits| format!("{digits:0<6}").parse::<u64>().ok())
        .unwrap_or(0);
    let day = stamp
        .get(..at)?
        .split(|c: char| !c.is_ascii_digit())
        .filter(|word| (1..=2).contains(&word.len()))
        .filter_map(|word| word.parse::<u64>().ok())
        .next_back()
        .unwrap_or(0);
    Some((((day * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}
