//! Lines of a text log that continue the record before them: a record with a line break has a
//! second line, and a user may have chosen what stands there.
//!
//! In: the lines of a log, with or without a prefix. Out: records. A line without a prefix begins a
//! record only in a log whose lines have none. A line with a prefix continues a record if the
//! kernel's reader (syslog(2)) has split a quoted name at its line breaks.

use crate::framing::{Measure, Wrap, may_be_broken};

/// Lines before the first one with a prefix that are kept until the log's form is known.
const MAX_UNDECIDED: usize = 256;
/// A record of the kernel has at most 1 KiB.
const MAX_LINES: usize = 64;

/// A record of a text log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRecord {
    pub line: u64,
    pub kernel_time: Option<u64>,
    pub wall: Option<u64>,
    pub facility: u8,
    pub text: String,
    /// The text as it was before its lines were broken at the file's column.
    pub unwrapped: Option<String>,
    /// Each line but the last had no room for the first word of the next.
    pub may_be_broken: bool,
    /// Of the last line that belongs to the record.
    pub measure: Measure,
}

impl TextRecord {
    fn append(&mut self, line: &TextRecord, wrap: Option<Wrap>, longest: usize) {
        self.may_be_broken &= may_be_broken(self.measure, line.measure, longest);
        if let Some(wrap) = wrap
            && wrap.continues(self.measure, line.measure)
        {
            let whole = self.unwrapped.get_or_insert_with(|| self.text.clone());
            let between = wrap.between(self.measure, line.measure);
            if between == " " {
                whole.truncate(whole.trim_end_matches(' ').len());
            }
            whole.push_str(between);
            whole.push_str(&line.text);
        } else if let Some(whole) = &mut self.unwrapped {
            whole.push('\n');
            whole.push_str(&line.text);
        }
        self.measure = line.measure;
        self.text.push('\n');
        self.text.push_str(&line.text);
    }
}

#[derive(Debug, Default)]
pub struct RecordJoiner {
    pub wrap: Option<Wrap>,
    /// Characters of the file's longest line, as far as it is known.
    pub longest: usize,
    form: Form,
    /// The last record, to which more lines can be added.
    last: Option<TextRecord>,
    /// Lines with the last record's time, of which a later one may show that they are a part of a
    /// name in it.
    held: Vec<TextRecord>,
    /// Lines without a prefix that were added to the last record.
    added: usize,
    /// The last line was a program's: lines with its time in microseconds belong to it.
    program_time: Option<u64>,
}

#[derive(Debug)]
enum Form {
    /// No line had a prefix yet.
    Undecided(Vec<TextRecord>),
    /// No line has a prefix.
    Bare,
    Prefixed,
}

impl Default for Form {
    fn default() -> Form {
        Form::Undecided(Vec::new())
    }
}

impl RecordJoiner {
    /// Adds a line of the kernel; returns the records that are complete.
    pub fn push(&mut self, line: TextRecord, has_prefix: bool) -> Vec<TextRecord> {
        if has_prefix {
            return self.push_prefixed(line);
        }
        match &mut self.form {
            Form::Undecided(lines) => {
                lines.push(line);
                if lines.len() < MAX_UNDECIDED {
                    return Vec::new();
                }
                let lines = std::mem::take(lines);
                self.form = Form::Bare;
                lines
            }
            Form::Bare => vec![line],
            Form::Prefixed => {
                if let Some(last) = self.held.last_mut().or(self.last.as_mut())
                    && self.added < MAX_LINES
                {
                    self.added += 1;
                    last.append(&line, self.wrap, self.longest);
                }
                Vec::new()
            }
        }
    }

    fn push_prefixed(&mut self, line: TextRecord) -> Vec<TextRecord> {
        self.form = Form::Prefixed;
        if line.kernel_time.is_some() && line.kernel_time == self.program_time {
            return Vec::new();
        }
        if let Some(last) = &mut self.last
            && (last.kernel_time, last.wall) == (line.kernel_time, line.wall)
            && self.held.len() < MAX_LINES
            && let Some(ends_name) = end_of_quoted_name(&last.text)
        {
            let is_end = ends_name(&line.text);
            self.held.push(line);
            if is_end {
                for part in self.held.drain(..) {
                    last.append(&part, None, self.longest);
                }
            }
            return Vec::new();
        }
        let records = self.interrupt();
        self.last = Some(line);
        records
    }

    /// A line of a program, or about one.
    pub(crate) fn push_program(&mut self, kernel_time: Option<u64>) -> Vec<TextRecord> {
        self.form = Form::Prefixed;
        let records = self.interrupt();
        self.program_time = kernel_time;
        records
    }

    /// The log goes on with another boot: lines without a prefix no longer belong to the last
    /// record.
    pub fn interrupt(&mut self) -> Vec<TextRecord> {
        self.added = 0;
        self.program_time = None;
        self.last.take().into_iter().chain(self.held.drain(..)).collect()
    }

    /// No more lines will come.
    pub fn finish(&mut self) -> Vec<TextRecord> {
        let mut records = match std::mem::take(&mut self.form) {
            Form::Undecided(lines) => lines,
            Form::Bare | Form::Prefixed => Vec::new(),
        };
        records.extend(self.interrupt());
        records
    }
}

/// For a record in which the kernel quotes a name as it is, line breaks included: the test for the
/// text that follows the name.
fn end_of_quoted_name(text: &str) -> Option<fn(&str) -> bool> {
    let crash =
        ["]: segfault at ", "] trap ", "traps: ", "] general protection", "]: bad frame in "];
    if crash.iter().any(|words| text.contains(words)) {
        return Some(ends_with_mapping);
    }
    text.contains(": Unknown parameter '").then_some(|line| line.trim_ascii_end().ends_with('\''))
}

/// ` in NAME[7f3a5c000000+1000]`, since 6.6 `[1139,7f3a5c000000+1000]`, and since 6.1 ` likely on
/// CPU 3 (core 3, socket 0)` (mm/memory.c print_vma_addr(), arch/x86/mm/fault.c
/// show_signal_msg()).
fn ends_with_mapping(line: &str) -> bool {
    let line = line.split(" likely on CPU ").next().unwrap_or_default();
    line.trim_ascii_end().strip_suffix(']').and_then(|line| line.rsplit_once('[')).is_some_and(
        |(_, mapping)| {
            mapping.contains('+')
                && mapping
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'+' | b','))
        },
    )
}
