//! Output of `btrfs check --readonly` (btrfs-progs, check/). Lines of standard error may come
//! before or after all of standard output.

use crate::model::check::Weight::{Bookkeeping, Damage, Transient};
use crate::model::check::parse::line_template::{ProblemRule, rule, template};
use crate::model::check::parse::problem_collector::ProblemCollector;

const RULES: [ProblemRule; 14] = [
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
];

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
    errors_found: bool,
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
            self.errors_found |= line.starts_with("ERROR: errors found");
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
        let (kind, ids, weight) = shape.classify(&RULES, Damage);
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
        if self.errors_found && !found.any_above(Transient) {
            found.begin_problem("errors-found", Vec::new(), Damage, "error(s) found");
            found.end_problem();
        }
    }
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
