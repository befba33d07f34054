//! Parses the output of the checkers into problems, one line at a time: the whole output is never
//! in memory.
//!
//! In: lines of e2fsck, xfs_repair -n or btrfs check. Out: problems (kind and ids, without memory
//! addresses) and notes about the run itself. `run_result` interprets exit statuses, `decision`
//! judges all problems together. A line that is not known to be harmless counts as a problem.

mod btrfs;
mod crash;
mod e2fsck;
mod line_template;
mod problem_collector;
mod progress;
#[cfg(test)]
pub mod tests;
mod xfs;

pub use crate::parse::line_template::{split_point, truncate};
use crate::parse::problem_collector::ProblemCollector;
use crate::{Filesystem, Problem};

/// Maximum length of a quoted line, in bytes.
pub const MAX_TEXT_BYTES: usize = 400;
/// Maximum number of distinct problems that are kept of one run; further ones are counted.
pub const MAX_PROBLEMS: usize = 200;
/// Maximum size of a part of a line, in bytes. A longer line is parsed in parts, each with the
/// line's label before it: e2fsck prints all the differences of a bitmap in one line.
pub const MAX_LINE_BYTES: usize = 256 * 1024;

/// Parses the output of one run.
#[derive(Debug)]
pub struct OutputParser {
    dialect: Dialect,
    problems: ProblemCollector,
}

pub(crate) use e2fsck::E2FSCK_ABORTED;
pub use progress::ProgressStream;

#[derive(Debug)]
enum Dialect {
    E2fsck(Box<e2fsck::State>),
    Xfs(xfs::State),
    Btrfs(btrfs::State),
}

/// The parsed output of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedOutput {
    /// Distinct, worst first: if all of these are transient, so are those that were only counted.
    pub problems: Vec<Problem>,
    pub more_problems: u64,
    /// The message that a log is dirty or a journal needs recovery.
    pub pending_replay: Option<String>,
    /// The checker's message that it could not do its work (out of memory, no usable superblock, a
    /// device error).
    pub failure: Option<String>,
    /// The output shows that the run was completed (e2fsck's summary, xfs_repair's "No modify flag
    /// set, skipping filesystem flush and exiting").
    pub complete: bool,
    /// The checker counts as errors what harms nothing, and found nothing else: an exit status that
    /// reports errors is explained.
    pub only_harmless_errors: bool,
    /// The checker's own closing statement is that it found no error (btrfs check).
    pub no_error_found: bool,
    /// The line with which the checker crashed. The output has no problems then.
    pub crash: Option<String>,
}

impl OutputParser {
    pub fn new(filesystem: Filesystem) -> OutputParser {
        let dialect = match filesystem {
            Filesystem::Ext4 => Dialect::E2fsck(Box::default()),
            Filesystem::Xfs => Dialect::Xfs(xfs::State::default()),
            Filesystem::Btrfs => Dialect::Btrfs(btrfs::State::default()),
        };
        OutputParser { dialect, problems: ProblemCollector::default() }
    }

    /// Parses one line without its line end. The caller has replaced invalid UTF-8 (lossy).
    pub fn push_line(&mut self, line: &str) {
        // A progress bar overwrites its own line: only the text after it counts.
        let line = line.trim_end_matches('\r');
        let line = line.rsplit('\r').next().unwrap_or(line);
        line_template::split_line(line, MAX_LINE_BYTES)
            .iter()
            .for_each(|part| self.push_part(part));
    }

    fn push_part(&mut self, line: &str) {
        let line: String =
            line.chars().filter(|c| !matches!(c, '\u{1}' | '\u{2}' | '\u{8}')).collect();
        let line = line.trim_end();
        if line.is_empty() {
            self.problems.end_problem();
            return;
        }
        if crash::is_crash(line) {
            return self.problems.set_crash(line);
        }
        if crash::is_stack_frame(line) {
            return self.problems.end_problem();
        }
        match &mut self.dialect {
            Dialect::E2fsck(state) => state.push_line(line, &mut self.problems),
            Dialect::Xfs(state) => state.push_line(line, &mut self.problems),
            Dialect::Btrfs(state) => state.push_line(line, &mut self.problems),
        }
    }

    /// The phase that the checker printed last (`Pass 1: Checking inodes, blocks, and sizes`).
    pub fn phase(&self) -> Option<&str> {
        self.problems.phase.as_deref()
    }

    /// The part of the run that is done, in thousandths, if the output contains it (xfs_repair).
    pub fn permille(&self) -> Option<u16> {
        match &self.dialect {
            Dialect::Xfs(state) => state.permille(),
            Dialect::E2fsck(_) | Dialect::Btrfs(_) => None,
        }
    }

    pub fn finish(mut self) -> ParsedOutput {
        self.problems.end_problem();
        match self.dialect {
            Dialect::E2fsck(state) => state.finish(&mut self.problems),
            Dialect::Xfs(state) => state.finish(&mut self.problems),
            Dialect::Btrfs(state) => state.finish(&mut self.problems),
        }
        self.problems.into_output()
    }
}
