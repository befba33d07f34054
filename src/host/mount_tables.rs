//! Mount tables of processes. In a user namespace anybody may mount what he likes, in any number and
//! at any path: such a table is read up to a bound, and all of them together up to another one. The
//! kernel lists the mounts that a namespace began with before those that were added.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::root::HostRoot;

/// Bytes of one table: a host with ten thousand mounts has less.
const MAX_TABLE: u64 = 4 << 20;
/// Bytes of all tables of users in one search.
const MAX_TABLES: u64 = 24 << 20;

/// The tables of users that one search may still read.
pub struct UsersTables {
    host: Option<PathBuf>,
    left: u64,
}

impl UsersTables {
    pub fn new(root: &HostRoot) -> UsersTables {
        let host = std::fs::read_link(root.at("/proc/1/ns/user"))
            .or_else(|_| std::fs::read_link("/proc/self/ns/user"));
        UsersTables { host: host.ok(), left: MAX_TABLES }
    }

    /// Whether the process is in another user namespace than the host's. Where it is, its mount
    /// namespace is too, unless root has made it.
    pub fn is_of_user(&self, process: &Path) -> bool {
        let its = std::fs::read_link(process.join("ns/user")).ok();
        its.is_some() && self.host.is_some() && its != self.host
    }

    /// The whole lines of the table within the bounds, and whether these are all.
    pub fn read(&mut self, process: &Path) -> io::Result<(Vec<u8>, bool)> {
        let bound = MAX_TABLE.min(self.left);
        let mut text = Vec::new();
        let file = File::open(process.join("mountinfo"))?;
        file.take(bound + 1).read_to_end(&mut text)?;
        let is_complete = text.len() as u64 <= bound;
        if !is_complete {
            let lines = text.iter().rposition(|byte| *byte == b'\n');
            text.truncate(lines.map_or(0, |at| at + 1));
        }
        self.left = self.left.saturating_sub(text.len() as u64);
        Ok((text, is_complete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_any_size_costs_no_more_than_its_bound_and_all_no_more_than_theirs() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!("9 1 0:5 / /{} rw - tmpfs x rw\n", "z".repeat(3000));
        let count = (2 * MAX_TABLE) as usize / line.len();
        std::fs::write(folder.path().join("mountinfo"), line.repeat(count)).expect("written");
        let mut tables = UsersTables::new(&HostRoot::new("/"));
        let mut all = 0;
        for _ in 0..20 {
            let (text, is_complete) = tables.read(folder.path()).expect("readable");
            assert!(!is_complete && text.len() as u64 <= MAX_TABLE);
            assert!(text.is_empty() || text.ends_with(b"\n"), "a whole line");
            all += text.len() as u64;
        }
        assert!(all <= MAX_TABLES && all > MAX_TABLES - MAX_TABLE, "{all}");
        std::fs::write(folder.path().join("mountinfo"), &line).expect("written");
        let mut fresh = UsersTables::new(&HostRoot::new("/"));
        let read = fresh.read(folder.path()).expect("readable");
        assert_eq!(read, (line.into_bytes(), true));
    }
}
