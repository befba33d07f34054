//! Output of `xfs_repair -n` (xfsprogs, repair/*.c: do_warn and do_log; the verifiers of libxfs).

use std::collections::BTreeSet;

use crate::Problem;
use crate::Weight::{Bookkeeping, Damage, Transient};
use crate::parse::line_template::{ProblemRule, rule, template};
use crate::parse::problem_collector::ProblemCollector;
use crate::parse::progress::XfsProgress;

/// Maximum number of inodes that are kept until it is known whether they are only open and deleted.
const MAX_INODES: usize = 200_000;

/// Longest begin of a line that is kept over progress lines, in bytes.
const MAX_INTERRUPTED: usize = 4096;

/// Messages about the device, not about its content.
const FAILURES: [&str; 10] = [
    // A system call that the jail refused.
    "Function not implemented",
    "fatal error -- ",
    "Sorry, could not find valid secondary superblock",
    " contains a mounted ",
    "superblock read failed",
    "read failed: ",
    "error - read only ",
    "Required memory for repair is greater that the maximum specified",
    "Memory allocation failed",
    "is not an XFS filesystem image",
];

const BOILERPLATE: [&str; 16] = [
    "Cannot get host filesystem geometry.",
    "Repair may fail if there is a sector size mismatch between",
    "the image and the host filesystem.",
    "ignored because the -n option was used.  Expect spurious inconsistencies",
    "which may be resolved by first mounting the filesystem to replay the log.",
    "No modify flag set, skipping phase N",
    "If repair fails due to lack of memory, please",
    "turn prefetching off (-P) to reduce the memory footprint.",
    "If repair fails due to lack of memory, please increase system RAM and/or",
    "swap space to at least NMB.",
    "attempting to find secondary superblock...",
    "found candidate secondary superblock...",
    "verified secondary superblock...",
    "would write modified primary superblock",
    "Cannot proceed further in no_modify mode.",
    "with the -m option. Please increase it to at least N.",
];

const RULES: [ProblemRule; 30] = [
    rule("sb_fdblocks N, counted N", "free-blocks", Transient, 0),
    rule("sb_icount N, counted N", "inode-count", Transient, 0),
    rule("sb_ifree N, counted N", "free-inodes", Transient, 0),
    rule("agi unlinked bucket N", "unlinked-bucket", Transient, 3),
    rule("Would clear next_unlinked in inode N", "next-unlinked", Transient, 1),
    rule("would clear next_unlinked in inode N", "next-unlinked", Transient, 1),
    rule("leftover CoW extent", "leftover-cow", Transient, 3),
    rule("would have reset inode N nlinks from N to N", "inode-links", Bookkeeping, 1),
    rule("agf_freeblks N, counted N in ag N", "agf-free-blocks", Bookkeeping, 3),
    rule("agf_longest N, counted N in ag N", "agf-longest", Bookkeeping, 3),
    rule("agf_btreeblks N, counted N", "agf-btree-blocks", Bookkeeping, 3),
    rule("agi_count N, counted N in ag N", "agi-count", Bookkeeping, 3),
    rule("agi_freecount N, counted N in ag N", "agi-free-count", Bookkeeping, 3),
    rule("bad nblocks N for inode N", "inode-blocks", Bookkeeping, 2),
    rule("bad nextents N for inode N", "inode-extents", Damage, 2),
    rule("agf has bad CRC for ag N", "agf-crc", Damage, 1),
    rule("agi has bad CRC for ag N", "agi-crc", Damage, 1),
    rule("bad CRC for inode N", "inode-crc", Damage, 1),
    rule("on inode N, would reset magic number", "inode-magic", Damage, 2),
    rule("bad magic number N on inode N", "inode-magic", Damage, 2),
    rule("bad inode type N inode N", "inode-type", Damage, 2),
    rule("would have cleared inode N", "inode-unusable", Damage, 1),
    rule("references free inode N", "entry-to-free-inode", Damage, 5),
    rule("points to free inode N", "entry-to-free-inode", Damage, 3),
    rule("multiply claimed by", "multiply-claimed", Damage, 3),
    rule("bad hash table for directory inode N", "directory-hash", Damage, 1),
    rule("would rebuild directory inode N", "directory-rebuild", Damage, 1),
    rule("bad primary superblock", "superblock", Damage, 0),
    rule("Primary superblock would have been modified", "superblock-modified", Damage, 0),
    rule("Inode allocation btrees are too corrupted", "inode-btrees", Damage, 0),
];

#[derive(Debug, Default)]
pub(crate) struct State {
    permille: Option<u16>,
    /// The begin of a line that a progress line has interrupted.
    interrupted: String,
    disconnected: BTreeSet<u64>,
    /// Inodes without a link and in no directory: open but deleted.
    unlinked: BTreeSet<u64>,
    /// The checker found a secondary superblock, which shows that the filesystem is XFS.
    secondary_superblock: bool,
}

impl State {
    pub(crate) fn permille(&self) -> Option<u16> {
        self.permille
    }

    /// A progress line may come in the middle of another line, which continues on the next one.
    pub(crate) fn push_line(&mut self, line: &str, found: &mut ProblemCollector) {
        if let Some(progress) = XfsProgress::find(line) {
            self.permille = self.permille.max(progress.permille());
            if self.interrupted.len() < MAX_INTERRUPTED {
                self.interrupted.push_str(progress.before);
            }
            return;
        }
        if self.interrupted.is_empty() {
            return self.push_whole_line(line, found);
        }
        let mut whole = std::mem::take(&mut self.interrupted);
        whole.push(' ');
        whole.push_str(line.trim_start());
        self.push_whole_line(&whole, found);
    }

    fn push_whole_line(&mut self, line: &str, found: &mut ProblemCollector) {
        let indented = line.starts_with([' ', '\t']);
        // The search for superblocks prints dots without a line break.
        let line = line.trim().trim_start_matches('.');
        if line.is_empty() {
            return;
        }
        if indented && line.starts_with("- ") {
            return found.end_problem();
        }
        if is_phase(line) {
            return found.set_phase(line);
        }
        if line == "ALERT: The filesystem has valuable metadata changes in a log which is being" {
            return found.set_pending_replay(
                "The filesystem has valuable metadata changes in a log which is being ignored",
            );
        }
        match line {
            "No modify flag set, skipping filesystem flush and exiting." => {
                found.end_problem();
                found.complete = true;
                return;
            }
            // Printed after a superblock problem: nothing can be checked without a change.
            "Exiting now." => {
                found.end_problem();
                found.complete |= self.secondary_superblock;
                return;
            }
            "verified secondary superblock..." => self.secondary_superblock = true,
            _ => {}
        }
        if FAILURES.iter().any(|words| line.contains(words)) && !line.contains(['"']) {
            return found.set_failure(line);
        }
        let addressless = without_address(line);
        let shape = template(&addressless);
        let memory = shape.text.starts_with("Memory available for repair (")
            || shape.text.starts_with("At least ");
        if memory && shape.text.len() < 120 || BOILERPLATE.contains(&shape.text.as_str()) {
            return found.end_problem();
        }
        if indented && found.continue_problem(line) {
            return;
        }
        self.push_problem(&addressless, line, found);
    }

    fn push_problem(&mut self, addressless: &str, line: &str, found: &mut ProblemCollector) {
        for (words, kind) in [
            ("Metadata CRC error detected at ", "metadata-crc"),
            ("Metadata corruption detected at ", "metadata-corruption"),
        ] {
            if let Some(what) = addressless.strip_prefix(words) {
                let ids = what
                    .split_whitespace()
                    .filter(|word| *word != "block" && *word != ",")
                    .take(4)
                    .map(|word| word.trim_end_matches(',').to_owned());
                return found.begin_problem(kind, ids.collect(), Damage, line);
            }
        }
        let shape = template(addressless);
        let inode = || shape.ids.first().and_then(|id| id.parse::<u64>().ok());
        if shape.text == "disconnected inode N, would move to lost+found"
            && let Some(inode) = inode()
        {
            found.end_problem();
            if self.disconnected.len() >= MAX_INODES {
                return found.set_failure(
                    "more disconnected inodes than can be told from open, deleted files",
                );
            }
            self.disconnected.insert(inode);
            return;
        }
        if shape.text == "would have reset inode N nlinks from N to N"
            && matches!(&shape.ids[..], [_, from, to] if from == "0" && to == "1")
            && let Some(inode) = inode()
        {
            if self.unlinked.len() < MAX_INODES {
                self.unlinked.insert(inode);
            }
            return found.begin_problem("inode-links", shape.ids, Transient, line);
        }
        // One phase reports the problem, a later one the repair that it would make: it is the same
        // problem.
        let head = addressless
            .find(", would ")
            .and_then(|at| addressless.get(..at))
            .unwrap_or(addressless);
        let (kind, mut ids, weight) = template(head).classify(&RULES, Damage);
        match kind.as_str() {
            // The counters change between runs; the allocation group does not.
            "agf-free-blocks" | "agf-longest" | "agf-btree-blocks" | "agi-count"
            | "agi-free-count" => ids = ids.split_off(ids.len().min(2)),
            "inode-blocks" | "inode-extents" | "inode-type" => {
                ids = ids.split_off(ids.len().min(1))
            }
            _ => {}
        }
        found.begin_problem(kind, ids, weight, line);
    }

    pub(crate) fn finish(mut self, found: &mut ProblemCollector) {
        let interrupted = std::mem::take(&mut self.interrupted);
        self.push_whole_line(&interrupted, found);
        for inode in &self.disconnected {
            let weight = if self.unlinked.contains(inode) { Transient } else { Damage };
            let text = format!("disconnected inode {inode}, would move to lost+found");
            found.add(Problem {
                kind: "disconnected-inode".to_owned(),
                ids: vec![inode.to_string()],
                weight,
                text,
            });
        }
    }
}

/// `Phase 3 - for each AG...`
fn is_phase(line: &str) -> bool {
    let rest = line.strip_prefix("Phase ").and_then(|rest| rest.split_once(" - "));
    rest.is_some_and(|(number, _)| {
        number.len() == 1 && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Removes the address in the program's code, which differs in each run: `detected at
/// 0x55c1e0a2d1a0, xfs_agf block 0x1/0x200`.
fn without_address(line: &str) -> String {
    let Some((before, after)) = line.split_once(" detected at 0x") else {
        return line.to_owned();
    };
    let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
    let rest = after.get(digits..).unwrap_or_default();
    format!("{before} detected at {}", rest.strip_prefix(", ").unwrap_or(rest))
}
