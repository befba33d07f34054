//! Output of `btrfs check --readonly` (btrfs-progs, check/). Lines of standard error may come
//! before or after all of standard output.

use std::collections::BTreeMap;

use crate::Problem;
use crate::Weight::{Bookkeeping, Damage, DamagedCopy, Transient, Unknown};
use crate::parse::line_template::{LineTemplate, ProblemRule, rule, template};
use crate::parse::problem_collector::ProblemCollector;

/// Lines of btrfs-progs 5.10 to 6.17. The first rule that matches counts. Every other line is
/// `Unknown`: what it means is not known.
const RULES: [ProblemRule; 35] = [
    // One copy of a block: another one may be good (read_tree_block(), kernel-shared/disk-io.c).
    rule(CHECKSUM, "checksum", DamagedCopy, 1),
    rule(TRANSID, "transid", DamagedCopy, 1),
    rule("mirror N bytenr N csum", "data-checksum", DamagedCopy, 2),
    // read_tree_block() prints these when all copies failed.
    rule("sum didn't match", NO_GOOD_COPY, Damage, 0),
    rule("Ignoring transid failure", NO_GOOD_TRANSID, Damage, 0),
    rule("bad tree block N", "tree-block", Damage, 1),
    rule("corrupt leaf", "tree-block", Damage, 2),
    rule("corrupt node", "tree-block", Damage, 2),
    rule("ref mismatch on [N N]", "extent-references", Damage, 2),
    rule("backpointer mismatch on [N N]", "extent-backpointer", Damage, 2),
    rule("owner ref check failed [N N]", "extent-owner", Damage, 2),
    rule("bytenr mimsmatch", "extent-start", Damage, 2),
    rule("referencer count mismatch", "extent-referencer", Damage, 2),
    rule("has no backref item in extent tree", "extent-backref", Damage, 2),
    rule("has no tree block found", "extent-backref", Damage, 2),
    rule("incorrect global backref count", "extent-backref-count", Damage, 1),
    rule("type mismatch with chunk", "extent-type", Damage, 2),
    rule("root N inode N errors ", INODE, Damage, 2),
    rule("unresolved ref dir N", "directory-entry", Damage, 2),
    rule("unresolved ref root N", "root-reference", Damage, 2),
    rule("root dir N not found", "root-directory", Damage, 2),
    rule("block device size is smaller than total_bytes", "device-too-small", Damage, 0),
    rule("overlap with previous dev extent", "device-extent", Damage, 2),
    rule("is beyond device boundary", "device-extent", Damage, 2),
    // Totals.
    rule("super bytes used N mismatches actual used N", "bytes-used", Bookkeeping, 0),
    rule("used N but extent items used N", "block-group-used", Bookkeeping, 2),
    rule("has incorrect used bytes", "device-used", Bookkeeping, 1),
    rule("device size detected", "device-size", Bookkeeping, 0),
    // Checksums that belong to no data: nothing reads them.
    rule("there are no extents for csum range N-N", "checksum-without-extent", Bookkeeping, 2),
    rule(
        "csum exists for N-N but there is no extent record",
        "checksum-without-extent",
        Bookkeeping,
        2,
    ),
    // Quota counters: the kernel counts them again (btrfs quota rescan).
    rule("Counts for qgroup id: N", "quota-count", Bookkeeping, 2),
    rule("Qgroup are marked as inconsistent", "quota-count", Bookkeeping, 0),
    // The free space cache and tree: the kernel derives them from the extents and rebuilds them.
    rule(ORPHANED_FREE_SPACE, "free-space-orphan", Bookkeeping, 2),
    rule("free space", "free-space", Bookkeeping, 1),
    rule("space cache generation", "free-space", Bookkeeping, 1),
];

const CHECKSUM: &str = "checksum verify failed on N";
const TRANSID: &str = "parent transid verify failed on N";
const NO_GOOD_COPY: &str = "checksum-no-good-copy";
const NO_GOOD_TRANSID: &str = "transid-no-good-copy";
const INODE: &str = "inode";

/// What print_inode_error() (check/main.c) says of sizes and counts of an inode. Its data is whole.
const INODE_COUNTS: [&str; 6] = [
    "nbytes wrong",
    "dir isize wrong",
    "link count wrong",
    "file extent discount",
    "odd csum item",
    "some csum missing",
];

/// An entry of the free space tree that belongs to no block group (check_free_space_tree(),
/// common/clear-cache.c; btrfs-progs 6.16.1 and later).
const ORPHANED_FREE_SPACE: &str = "Space key logical N length N has no corresponding block group";

/// The temporary chunks of mkfs.btrfs, by logical address: system, metadata and data, from
/// BTRFS_BLOCK_RESERVED_1M_FOR_SUPER on (mkfs/common.h). Older versions delete the chunks and leave
/// their entries in the free space tree. The kernel looks entries up by block group, and it never
/// creates one at these addresses: they only grow.
const TEMPORARY_CHUNKS: std::ops::RangeInclusive<u64> = (1 << 20)..=(21 << 20);

/// These kinds prove that a block is damaged, even if the checker could not continue.
const PROOF_OF_DAMAGE: [&str; 4] = [NO_GOOD_COPY, NO_GOOD_TRANSID, "transid", "tree-block"];

/// Maximum number of blocks whose damaged copies wait for the end of the output.
const MAX_COPIES: usize = 10_000;

const BOILERPLATE: [&str; 5] = [
    "Opening filesystem to check...",
    "WARNING: filesystem mounted, continuing because of --force",
    "cache and super generation don't match, space cache will be invalidated",
    // After a warning about the size of a device.
    "recommended to use 'btrfs rescue fix-device-size' to fix it",
    "No device size related problem found",
];

/// Lines that begin so say nothing about the filesystem's structures.
const BOILERPLATE_BEGINNINGS: [&str; 9] = [
    "Checking filesystem on ",
    "UUID: ",
    "using SB copy ",
    "WARNING: unable to open devid ",
    // A missing member: the layers above report it.
    "warning, device ",
    // The counts of a quota group, after the line that reports it.
    "our:",
    "disk:",
    "diff:",
    "Rescan hasn't been initialized",
];

/// A tree that is needed cannot be read. "Couldn't find free space inode" is about the cache.
const OPENING_FAILED: [&str; 4] =
    ["Couldn't read ", "Couldn't setup ", "Couldn't open ", "Couldn't map "];

/// `ERROR: errors found in fs roots`: the end of a phase.
const PHASE_FAILED: &str = "ERROR: errors found in ";

/// Statistics at the end, each with a number.
const STATISTICS: [&str; 9] = [
    "total csum bytes: N",
    "total tree bytes: N",
    "total fs tree bytes: N",
    "total extent tree bytes: N",
    "btree space waste bytes: N",
    "file data blocks allocated: N",
    "referenced N",
    "found N bytes used, no error found",
    "found N bytes used, error(s) found",
];

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The checker stopped early because a required tree is missing.
    aborted: Option<String>,
    /// The statistics end with `error(s) found`.
    errors_found: bool,
    /// A phase of the check reports errors.
    phase_failed: bool,
    /// Entries that mkfs.btrfs left in the free space tree: they count as errors.
    mkfs_leftovers: bool,
    /// Blocks of which a copy was damaged, by address. Only a later line shows that no copy is good.
    copies: BTreeMap<String, Problem>,
    /// The address in the last line about a copy.
    last_copy: Option<String>,
}

impl State {
    pub(crate) fn push_line(&mut self, line: &str, found: &mut ProblemCollector) {
        let indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        let shape = template(line);
        if is_phase(line) {
            return found.set_phase(line);
        }
        if STATISTICS.contains(&shape.text.as_str()) {
            found.end_problem();
            found.complete |= line.starts_with("found ");
            found.no_error_found |= line.ends_with(" no error found");
            self.errors_found |= line.ends_with("error(s) found");
            return;
        }
        self.phase_failed |= line.starts_with(PHASE_FAILED);
        if BOILERPLATE.contains(&line)
            || line.starts_with(PHASE_FAILED)
            || BOILERPLATE_BEGINNINGS.iter().any(|begin| line.starts_with(begin))
        {
            return found.end_problem();
        }
        let refused = [
            "No valid Btrfs found",
            "mount check: ",
            "could not check mount status",
            "is currently mounted, use --force",
            "Cannot allocate memory",
        ];
        if refused.iter().any(|words| line.contains(words))
            || line.contains("not enough memory")
            || !indented && is_read_error(line)
            // A system call that the jail refused.
            || line.starts_with("ERROR: ") && line.ends_with("Function not implemented")
        {
            return found.set_failure(line);
        }
        // btrfs also reports a bad checksum as EIO: only the end shows whether the device failed.
        let opening = line.starts_with("ERROR: could not setup ")
            || line.starts_with("ERROR: cannot open file system")
            || OPENING_FAILED.iter().any(|begin| line.starts_with(begin));
        if opening || line.starts_with("ERROR: ") && line.contains("Input/output error") {
            found.end_problem();
            self.aborted.get_or_insert_with(|| line.to_owned());
            return;
        }
        if indented && found.continue_problem(line) {
            return;
        }
        let is_leftover = is_mkfs_leftover(&shape);
        self.mkfs_leftovers |= is_leftover;
        let (kind, mut ids, weight) = shape.classify(&RULES, Unknown);
        let weight = match kind.as_str() {
            _ if is_leftover => Transient,
            INODE if only_counts_are_wrong(line) => Bookkeeping,
            NO_GOOD_COPY | NO_GOOD_TRANSID => {
                // These lines follow those about the copies, and do not name the block.
                ids.extend(self.last_copy.take());
                weight
            }
            _ => weight,
        };
        if weight == Damage
            && let Some(block) = ids.first()
        {
            self.copies.remove(block);
        }
        if weight == DamagedCopy && self.copies.len() < MAX_COPIES {
            return self.add_copy(kind, ids, line, found);
        }
        found.begin_problem(kind, ids, weight, line);
    }

    fn add_copy(
        &mut self,
        kind: String,
        ids: Vec<String>,
        line: &str,
        found: &mut ProblemCollector,
    ) {
        found.end_problem();
        let Some(block) = ids.last().cloned() else {
            return;
        };
        self.last_copy = Some(block.clone());
        let problem = Problem::new(kind, ids, DamagedCopy, line);
        self.copies.entry(block).or_insert(problem);
    }

    pub(crate) fn finish(self, found: &mut ProblemCollector) {
        for mut problem in self.copies.into_values() {
            // A checker that could not open the filesystem for it had no better copy.
            if self.aborted.is_some() && !found.complete && problem.kind == "transid" {
                problem.weight = Damage;
            }
            found.add(problem);
        }
        match self.aborted {
            Some(_) if found.failure.is_none() && found.has_kind(&PROOF_OF_DAMAGE) => {
                found.complete = true
            }
            Some(words) => found.set_failure(&words),
            None => {}
        }
        // The checker counts errors, and the parser recognized no line about one. A damaged copy
        // beside a good one is none.
        let unexplained = self.phase_failed || self.errors_found && !self.mkfs_leftovers;
        if unexplained && !found.has_weight(&[Bookkeeping, Unknown, Damage]) {
            found.begin_problem("errors-found", Vec::new(), Unknown, "error(s) found");
            found.end_problem();
        }
        found.only_harmless_errors = self.mkfs_leftovers && !found.any_above(Transient);
        found.no_error_found &= !self.errors_found && !self.phase_failed;
    }
}

/// `root 5 inode 257 errors 400, nbytes wrong`
fn only_counts_are_wrong(line: &str) -> bool {
    let mut words = line.split(", ").skip(1).peekable();
    words.peek().is_some() && words.all(|word| INODE_COUNTS.contains(&word.trim()))
}

fn is_mkfs_leftover(line: &LineTemplate) -> bool {
    let mut numbers = line.ids.iter().map(|id| id.parse::<u64>().ok());
    let (Some(Some(start)), Some(Some(length))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    line.text == ORPHANED_FREE_SPACE
        && start
            .checked_add(length)
            .is_some_and(|end| TEMPORARY_CHUNKS.contains(&start) && TEMPORARY_CHUNKS.contains(&end))
}

/// `Error reading 30474240, -1`: pread(2) failed (read_data_from_disk(),
/// kernel-shared/extent_io.c). The content of the block is unknown then, and the problems reported
/// after it are consequences.
fn is_read_error(line: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = line.strip_prefix("Error reading ").and_then(|rest| rest.split_once(", -"));
    parts.is_some_and(|(at, error)| number(at) && number(error))
}

/// `[1/7] checking root items`, `checking extents`
fn is_phase(line: &str) -> bool {
    let numbered = line.strip_prefix('[').and_then(|rest| rest.split_once("] checking "));
    let known = [
        "checking extents",
        "checking free space cache",
        "checking free space tree",
        "checking fs roots",
        "checking csums",
        "checking root refs",
        "checking quota groups",
    ];
    numbered.is_some_and(|(numbers, _)| template(numbers).text == "N/N") || known.contains(&line)
}
