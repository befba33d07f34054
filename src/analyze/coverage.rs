//! How much of a file was understood: the kernel's records, and the lines of other programs in a
//! known form. A log that was not understood says nothing about a drive.
//!
//! In: what each line was. Out: counts, and a line that was not understood.

use serde::Serialize;

use crate::kernel_words::Likeness;

const MAX_EXAMPLE_CHARS: usize = 200;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExampleLine {
    pub line: u64,
    pub text: String,
}

/// The result for a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Understanding {
    /// Records of the kernel.
    pub records: u64,
    pub not_understood: u64,
    pub example: Option<ExampleLine>,
    /// The kernel wrote none of it, or less than half was understood.
    pub is_insufficient: bool,
}

#[derive(Debug, Default)]
pub struct Coverage {
    kernel: u64,
    programs: u64,
    /// Further lines, of which only the tag shows who wrote them.
    bare_programs: u64,
    continued: u64,
    other: Tally,
    /// Lines without a header, whose meaning depends on the others: of the kernel by their words, of
    /// a form that the kernel and others print, of no such form.
    bare_kernel: Tally,
    bare_possible: Tally,
    bare_other: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    lines: u64,
    first: Option<ExampleLine>,
}

impl Tally {
    fn add(&mut self, line: u64, text: &str) {
        self.lines += 1;
        self.first.get_or_insert_with(|| ExampleLine {
            line,
            text: text.chars().take(MAX_EXAMPLE_CHARS).collect(),
        });
    }
}

impl Coverage {
    pub(crate) fn add_kernel(&mut self) {
        self.kernel += 1;
    }

    pub(crate) fn add_program(&mut self) {
        self.programs += 1;
    }

    /// `systemd[1]: …` in a log whose lines have no headers.
    pub(crate) fn add_bare_program(&mut self) {
        self.bare_programs += 1;
    }

    /// A further line of a record.
    pub(crate) fn add_continuation(&mut self) {
        self.continued += 1;
    }

    pub(crate) fn add_other(&mut self, line: u64, text: &str) {
        self.other.add(line, text);
    }

    pub(crate) fn add_bare(&mut self, likeness: Likeness, line: u64, text: &str) {
        match likeness {
            Likeness::Kernel => self.bare_kernel.add(line, text),
            Likeness::Possible => self.bare_possible.add(line, text),
            Likeness::Other => self.bare_other.add(line, text),
        }
    }

    /// Whether a line had a header.
    pub(crate) fn has_headers(&self) -> bool {
        self.kernel + self.programs > 0
    }

    pub fn finish(self) -> Understanding {
        // `name: text` is a record only among records that are the kernel's by their words.
        let has_headers = self.has_headers();
        let is_bare_log = !has_headers && self.bare_kernel.lines * 10 >= self.bare_possible.lines;
        let mut others = vec![self.other, self.bare_other];
        let mut bare = 0;
        match is_bare_log {
            true => bare = self.bare_kernel.lines + self.bare_possible.lines,
            false if has_headers => others.extend([self.bare_kernel, self.bare_possible]),
            false => {
                bare = self.bare_kernel.lines;
                others.push(self.bare_possible);
            }
        }
        let records = self.kernel + bare;
        let understood = records + self.programs + self.bare_programs + self.continued;
        let not_understood = others.iter().map(|tally| tally.lines).sum();
        let example =
            others.into_iter().filter_map(|tally| tally.first).min_by_key(|example| example.line);
        Understanding {
            records,
            not_understood,
            example,
            is_insufficient: records == 0 || understood < not_understood,
        }
    }
}
