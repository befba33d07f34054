//! What checkers print → flaws. A line at a time, so that the output is never held whole.
//!
//! In: lines of e2fsck, xfs_repair -n or btrfs check. Out: flaws (kind and ids, addresses stripped)
//! and notes about the run itself. Knows nothing of exit statuses (`ballot`) nor of what flaws mean
//! together (`steps`). What is not known word for word to be harmless counts as a flaw.

mod btrfs;
mod e2fsck;
mod found;
mod shape;
#[cfg(test)]
pub mod tests;
mod xfs;

use crate::model::check::parse::found::Found;
pub use crate::model::check::parse::shape::broken;
use crate::model::check::{Filesystem, Flaw};

/// Of one line this much is kept, in bytes.
pub const LONGEST_TEXT: usize = 400;
/// Distinct flaws of one run that are kept; the rest is counted.
pub const MOST_FLAWS: usize = 200;
/// A line is read in parts of this, in bytes, each with the line's label before it: e2fsck prints
/// all the differences of a bitmap in one line.
pub const LONGEST_LINE: usize = 256 * 1024;

/// Reads one run's output.
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    found: Found,
}

pub use e2fsck::ABORTED;

#[derive(Debug)]
enum Dialect {
    E2fsck(Box<e2fsck::State>),
    Xfs(xfs::State),
    Btrfs(btrfs::State),
}

/// What one run's output says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Distinct, worst first: where all of these are transient, so is all that was only counted.
    pub flaws: Vec<Flaw>,
    pub more_flaws: u64,
    /// The words that tell of a dirty log or a journal to be recovered.
    pub pending_replay: Option<String>,
    /// The words by which the checker says that it could not do its work (no memory, no superblock
    /// to begin with, a device error).
    pub failure: Option<String>,
    /// It came to its end by its own account (e2fsck's summary, xfs_repair's "No modify flag set,
    /// skipping filesystem flush and exiting").
    pub complete: bool,
}

impl Reader {
    pub fn new(filesystem: Filesystem) -> Reader {
        let dialect = match filesystem {
            Filesystem::Ext4 => Dialect::E2fsck(Box::default()),
            Filesystem::Xfs => Dialect::Xfs(xfs::State::default()),
            Filesystem::Btrfs => Dialect::Btrfs(btrfs::State::default()),
        };
        Reader {
            dialect,
            found: Found::default(),
        }
    }

    /// One line without its end; not necessarily UTF-8 before it came here (lossy).
    pub fn line(&mut self, line: &str) {
        // A progress bar overwrites its own line: what counts is what stands after it.
        let line = line.trim_end_matches('\r');
        let line = line.rsplit('\r').next().unwrap_or(line);
        shape::parts(line, LONGEST_LINE)
            .iter()
            .for_each(|part| self.part(part));
    }

    fn part(&mut self, line: &str) {
        let line: String = line
            .chars()
            .filter(|c| !matches!(c, '\u{1}' | '\u{2}' | '\u{8}'))
            .collect();
        let line = line.trim_end();
        if line.is_empty() {
            self.found.close();
            return;
        }
        match &mut self.dialect {
            Dialect::E2fsck(state) => state.line(line, &mut self.found),
            Dialect::Xfs(state) => state.line(line, &mut self.found),
            Dialect::Btrfs(state) => state.line(line, &mut self.found),
        }
    }

    /// What it is doing, by its own account (`Pass 1: Checking inodes, blocks, and sizes`).
    pub fn phase(&self) -> Option<&str> {
        self.found.phase.as_deref()
    }

    pub fn finish(mut self) -> Parsed {
        self.found.close();
        match self.dialect {
            Dialect::E2fsck(state) => state.finish(&mut self.found),
            Dialect::Xfs(state) => state.finish(&mut self.found),
            Dialect::Btrfs(state) => state.finish(&mut self.found),
        }
        self.found.parsed()
    }
}
