//! What runtimes and viewers of containers print in front of a line: CRI's `stdout F `, docker
//! compose's `web-1  | `, kubectl's `[pod/web-0/app] `.

use crate::line_format::{LineParser, token};

const MAX_NAME_BYTES: usize = 80;

impl LineParser<'_> {
    pub(super) fn parse_container(&mut self) {
        let rest = self.rest.trim_start();
        let after = match self.has_syslog_stamp && !self.is_of_container {
            true => after_stream(rest).or_else(|| after_name(rest)),
            false if self.kernel_time.is_none() => after_name(rest).or_else(|| after_path(rest)),
            false => None,
        };
        if let Some(after) = after {
            // What follows is a whole line again, with a date of its own.
            self.rest = after;
            self.is_of_container = true;
            self.has_syslog_stamp = false;
            self.wall = None;
        }
    }
}

/// `stdout F text`: the stream, and whether the line is full or partial (the Kubernetes CRI logging
/// format).
fn after_stream(rest: &str) -> Option<&str> {
    let (stream, rest) = token(rest);
    let (tags, text) = token(rest);
    (matches!(stream, "stdout" | "stderr") && matches!(tags.split(':').next(), Some("F" | "P")))
        .then_some(text)
}

/// Whether the line goes on in the next line of its stream.
pub fn is_partial(line: &str) -> bool {
    let mut words = line.split(' ');
    let date = words.next().unwrap_or_default();
    date.len() >= 20
        && date.contains('T')
        && matches!(words.next(), Some("stdout" | "stderr"))
        && words.next() == Some("P")
}

/// `web-1  | text`
fn after_name(rest: &str) -> Option<&str> {
    let (name, text) = rest.split_once('|')?;
    let name = name.trim_end();
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    let has_blanks = text.is_empty() || text.starts_with(' ');
    (is_name && has_blanks).then(|| text.strip_prefix(' ').unwrap_or(text))
}

/// `[pod/web-0/app] text`
fn after_path(rest: &str) -> Option<&str> {
    let (path, text) = rest.strip_prefix('[')?.split_once("] ")?;
    let is_path = path.len() <= 2 * MAX_NAME_BYTES
        && path.contains('/')
        && path.starts_with(|c: char| c.is_ascii_lowercase())
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    is_path.then_some(text)
}
