//! Output of `btrfs check --readonly` (btrfs-progs, check/). Lines of standard error may come
//! before or after all of standard output.

use crate::model::check::Weight::{Bookkeeping, Damage, Transient};
use crate::model::check::parse::line_template::{LineTemplate, ProblemRule, rule, template};
use crate::model::check::parse::problem_collector::ProblemCollector;

const RULES: [ProblemRule; 15] = [
    rule("checksum verify failed on N", "checksum", Bookkeeping, 1),
    rule("parent transid verify failed on N", "transid", Damage, 1),
    rule("Csum didn't match", "checksum-no-good-copy", Damage, 0),
    rule("csum didn't match", "checksum-no-good-copy", Damage, 0),
    rule("bad tree block N", "tree-block", Damage, 1),
    rule("ref mismatch on [N N]", "extent-references", Damage, 2),
    rule(
        "backpointer mismatch on [N N]",
        "extent-backpointer",
        Damage,
        2,
    ),
    rule("owner ref check failed [N N]", "extent-owner", Damage, 2),
    rule("bytenr mimsmatch", "extent-start", Damage, 2),
    rule("referencer count mismatch", "extent-referencer", Damage, 2),
    rule("root N inode N errors N", "inode", Damage, 2),
    rule("unresolved ref dir N", "directory-entry", Damage, 2),
    rule(
        "block device size is smaller than total_bytes",
        "device-too-small",
        Damage,
        0,
    ),
    rule(
        "super bytes used N mismatches actual used N",
        "bytes-used",
        Bookkeeping,
        0,
    ),
    // Of the free space tree, which the kernel derives from the extents and can rebuild.
    rule(ORPHANED_FREE_SPACE, "free-space-orphan", Bookkeeping, 2),
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
const PROOF_OF_DAMAGE: [&str; 3] = ["checksum-no-good-copy", "transid", "tree-block"];

const BOILERPLATE: [&str; 8] = [
    "Opening filesystem to check...",
    "WARNING: filesystem mounted, continuing because of --force",
    "ERROR: errors found in extent allocation tree or chunk allocation",
    "ERROR: errors found in fs roots",
    "ERROR: errors found in csum tree",
    "ERROR: errors found in root refs",
    "Ignoring transid failure",
    "cache and super generation don't match, space cache will be invalidated",
];

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
            self.errors_found |= line.ends_with("error(s) found");
            return;
        }
        if BOILERPLATE.contains(&line)
            || line.starts_with("Checking filesystem on ")
            || line.starts_with("UUID: ")
        {
            self.phase_failed |= line.starts_with("ERROR: errors found");
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
            || line.starts_with("Couldn't ");
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
        let (kind, ids, weight) = shape.classify(&RULES, Damage);
        let weight = if is_leftover { Transient } else { weight };
        found.begin_problem(kind, ids, weight, line);
    }

    pub(crate) fn finish(self, found: &mut ProblemCollector) {
        match self.aborted {
            Some(_) if found.failure.is_none() && found.has_kind(&PROOF_OF_DAMAGE) => {
                found.complete = true
            }
            Some(words) => found.set_failure(&words),
            None => {}
        }
        // The parser did not recognize the output, but the checker reports errors.
        let unexplained = self.phase_failed || self.errors_found && !self.mkfs_leftovers;
        if unexplained && !found.any_above(Transient) {
            found.begin_problem("errors-found", Vec::new(), Damage, "error(s) found");
            found.end_problem();
        }
        found.only_harmless_errors = self.mkfs_leftovers && !found.any_above(Transient);
    }
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
    let parts = line
        .strip_prefix("Error reading ")
        .and_then(|rest| rest.split_once(", -"));
    parts.is_some_and(|(at, error)| number(at) && number(error))
}

/// `[1/7] checking root items`, `checking extents`
fn is_phase(line: &str) -> bool {
    let numbered = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] checking "));
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
