//! Output of `e2fsck -fn` (e2fsprogs, e2fsck/problem.c and message.c): each problem has its
//! question in the same line or the next, and may have several lines.

use crate::Problem;
use crate::Weight::{Bookkeeping, Damage, Transient};
use crate::parse::MAX_TEXT_BYTES;
use crate::parse::line_template::{ProblemRule, rule, template, truncate};
use crate::parse::problem_collector::ProblemCollector;

/// The question after a problem (problem.c, `prompt`), without its `?`.
const QUESTIONS: [&str; 26] = [
    "Clear HTree index",
    "Clear bad block inode",
    "Clear inode",
    "Clear flag",
    "Clear",
    "Clone multiply-claimed blocks",
    "Connect to /lost+found",
    "Continue",
    "Convert",
    "Create",
    "Recreate",
    "Delete file",
    "Expand",
    "Fix",
    "Ignore error",
    "Force rewrite",
    "Relocate",
    "Rebuild",
    "Allocate",
    "Salvage",
    "Split",
    "Suppress messages",
    "Truncate",
    "Unlink",
    "Optimize",
    "Abort",
];

/// Healthy filesystems have these problems while they are mounted, also while frozen: filter F.
const ORPHANS: [&str; 4] = [
    "corrupted orphan linked list",
    "was part of the orphaned inode list",
    "Deleted inode N has zero dtime",
    "Orphan file",
];

const RULES: [ProblemRule; 34] = [
    rule("corrupted orphan linked list", "orphan-list", Transient, 0),
    rule("was part of the orphaned inode list", "orphan-inode", Transient, 1),
    rule("Deleted inode N has zero dtime", "deleted-inode-no-dtime", Transient, 1),
    rule("Free blocks count wrong for group #N", "group-free-blocks", Transient, 1),
    rule("Free inodes count wrong for group #N", "group-free-inodes", Transient, 1),
    rule("Directories count wrong for group #N", "group-directories", Transient, 1),
    rule("Free blocks count wrong", "free-blocks", Transient, 0),
    rule("Free inodes count wrong", "free-inodes", Transient, 0),
    rule("block bitmap does not match checksum", "block-bitmap-checksum", Bookkeeping, 1),
    rule("inode bitmap does not match checksum", "inode-bitmap-checksum", Bookkeeping, 1),
    rule("Padding at end of", "bitmap-padding", Bookkeeping, 0),
    rule("i_blocks is", "inode-blocks", Bookkeeping, 1),
    rule("ref count is", "inode-links", Bookkeeping, 1),
    rule("[QUOTA WARNING]", "quota-usage", Bookkeeping, 1),
    rule("Update quota info", "quota-usage", Bookkeeping, 1),
    rule("group descriptor checksums are invalid", "group-descriptor-checksum", Damage, 0),
    rule("passes checks, but checksum does not match inode", "inode-checksum", Damage, 1),
    rule("checksum does not match inode", "inode-checksum", Damage, 1),
    rule("directory passes checks but fails checksum", "directory-checksum", Damage, 2),
    rule("passes checks, but checksum does not match extent", "extent-checksum", Damage, 1),
    rule("Multiply-claimed block(s) in inode", "multiply-claimed", Damage, 1),
    rule("(inode #N, mod time", "multiply-claimed-file", Damage, 2),
    rule("multiply-claimed block(s), shared with", "multiply-claimed-file", Damage, 2),
    rule("has deleted/unused inode", "entry-to-unused-inode", Damage, 4),
    rule("has an incorrect filetype", "entry-filetype", Bookkeeping, 3),
    rule("Unattached inode", "unattached-inode", Damage, 1),
    rule("Unconnected directory inode", "unconnected-directory", Damage, 1),
    rule("has corrupt extent header", "extent-header", Damage, 1),
    rule("has an invalid extent", "invalid-extent", Damage, 1),
    rule("has illegal block(s)", "illegal-blocks", Damage, 1),
    rule("has invalid mode", "invalid-mode", Damage, 1),
    rule("i_size is", "inode-size", Damage, 1),
    rule("The filesystem size (according to the superblock) is", "device-too-small", Damage, 1),
    rule("Superblock invalid, trying backup blocks", "superblock", Damage, 0),
];

/// The last line of a run that could not continue.
pub(crate) const E2FSCK_ABORTED: &str = "e2fsck: aborted";

/// Errors of the device: no evidence about the filesystem. `(Invalid argument)`: the seek position
/// does not exist, since the device has become smaller or was removed (blkdev_llseek(),
/// block/fops.c). The library's own message is `Invalid argument passed to ext2 library`.
const DEVICE_ERRORS: [&str; 9] = [
    // A system call that the jail refused.
    "Function not implemented",
    "Input/output error",
    "(Invalid argument)",
    "resulted in short read",
    "No such device",
    "Remote I/O error",
    "Connection timed out",
    "Cannot allocate memory",
    "Memory allocation failed",
];

/// Items only in the bitmap (`-`) or only in the filesystem (`+`). e2fsck reports each bitmap once,
/// in one line that may be split; the whole list decides.
#[derive(Debug, Default)]
struct Differences {
    problems: ProblemCollector,
    /// The list contains a `+`. If there are orphans, a list with `-` only is normal: it is the
    /// effect of open, deleted files.
    has_missing: bool,
}

/// Removes the path of e2fsck, which it prints as it was started: `/usr/sbin/e2fsck: …`.
fn without_path(line: &str) -> &str {
    let path = line.split_once("e2fsck: ").map(|(path, _)| path);
    path.filter(|path| path.starts_with('/') && path.ends_with('/'))
        .and_then(|path| line.strip_prefix(path))
        .unwrap_or(line)
}

#[derive(Debug, Default)]
pub(crate) struct State {
    orphans: bool,
    blocks: Differences,
    inodes: Differences,
    /// The bitmap whose differences the next lines list.
    bitmap: Option<&'static str>,
    /// The first message that e2fsck could not open the filesystem.
    open_error: Option<String>,
}

impl State {
    pub(crate) fn push_line(&mut self, line: &str, found: &mut ProblemCollector) {
        let indented = line.starts_with([' ', '\t']);
        let line = without_path(line.trim());
        let statement = without_question(line);
        if statement.is_empty() || statement == "IGNORED." {
            return;
        }
        let shape = template(statement);
        if let Some(phase) = boilerplate(line, &shape.text) {
            found.end_problem();
            if phase {
                found.set_phase(line);
            }
            return;
        }
        if is_summary(line) {
            found.end_problem();
            found.complete = true;
            return;
        }
        if line.starts_with("Warning: skipping journal recovery")
            || line.ends_with(": recovering journal")
        {
            return found.set_pending_replay(line);
        }
        if DEVICE_ERRORS.iter().any(|words| line.contains(words))
            && (line.starts_with("Error ") || line.starts_with("e2fsck: "))
        {
            return found.set_failure(line);
        }
        // e2fsck may continue with a backup superblock, or with the rest of the first one.
        if line.starts_with("e2fsck: ") && line.contains(" while trying to open ") {
            found.end_problem();
            self.open_error.get_or_insert_with(|| truncate(line, MAX_TEXT_BYTES).to_owned());
            return;
        }
        let gave_up =
            ["Get a newer version of e2fsck!", E2FSCK_ABORTED, "Memory allocation failed"];
        if gave_up.iter().any(|words| line.contains(words))
            && (line.starts_with("e2fsck: ") || !line.contains(['\'', '"']))
        {
            return found.set_failure(line);
        }
        for (words, kind) in [
            ("Block bitmap differences:", "block-bitmap"),
            ("Inode bitmap differences:", "inode-bitmap"),
        ] {
            if let Some(rest) = statement.strip_prefix(words) {
                self.bitmap = Some(kind);
                return self.push_differences(kind, rest.trim(), line, found);
            }
        }
        if indented && found.continue_problem(line) {
            return;
        }
        if statement.starts_with(|c: char| c.is_lowercase())
            && !statement.contains(':')
            && found.continue_problem(line)
        {
            return;
        }
        if let Some(kind) = self.bitmap.filter(|_| is_difference_list(statement)) {
            return self.push_differences(kind, statement, line, found);
        }
        self.bitmap = None;
        self.push_problem(statement, line, found);
    }

    fn push_problem(&mut self, statement: &str, line: &str, found: &mut ProblemCollector) {
        let shape = template(statement);
        let orphan_file =
            statement.starts_with("Orphan file") && shape.text.contains("is not clean");
        self.orphans |= ORPHANS[..3].iter().any(|words| shape.text.contains(words)) || orphan_file;
        if orphan_file {
            return found.begin_problem("orphan-file", shape.ids, Transient, line);
        }
        let (kind, ids, weight) = shape.classify(&RULES, Damage);
        found.begin_problem(kind, ids, weight, line);
    }

    /// `+33618 -(100--200)`: each item is a separate problem, so that the problems that two runs
    /// have in common are found although others change.
    fn push_differences(
        &mut self,
        kind: &'static str,
        items: &str,
        line: &str,
        found: &mut ProblemCollector,
    ) {
        found.end_problem();
        if !is_difference_list(items) {
            if !items.is_empty() {
                self.push_problem(items, line, found);
            }
            return;
        }
        let (name, list) = match kind {
            "block-bitmap" => ("Block", &mut self.blocks),
            _ => ("Inode", &mut self.inodes),
        };
        list.has_missing |= items.split_whitespace().any(|item| item.starts_with('+'));
        for item in items.split_whitespace() {
            let text = format!("{name} bitmap differences: {item}");
            let flaw = Problem {
                kind: kind.to_owned(),
                ids: vec![truncate(item, 80).to_owned()],
                weight: Bookkeeping,
                text: truncate(&text, 200).to_owned(),
            };
            list.problems.add(flaw);
        }
    }

    pub(crate) fn finish(self, found: &mut ProblemCollector) {
        if let Some(words) = self.open_error.filter(|_| !found.complete) {
            found.set_failure(&words);
        }
        for list in [self.blocks, self.inodes] {
            let transient = self.orphans && !list.has_missing;
            found.merge(list.problems, if transient { Transient } else { Bookkeeping });
        }
    }
}

fn is_difference_list(text: &str) -> bool {
    let item = |item: &str| {
        item.starts_with(['+', '-'])
            && item.len() > 1
            && item.bytes().all(|byte| byte.is_ascii_digit() || b"+-()".contains(&byte))
    };
    !text.is_empty() && text.split_whitespace().all(item)
}

/// Removes `Fix? no`, which follows a problem or is alone in a line.
fn without_question(line: &str) -> &str {
    let Some(asked) = line.strip_suffix("? no").or_else(|| line.strip_suffix("? yes")) else {
        return line.strip_suffix("  IGNORED.").unwrap_or(line);
    };
    if line.starts_with("Rename to ") {
        return "";
    }
    let Some(question) = QUESTIONS.iter().find(|question| asked.ends_with(**question)) else {
        return line;
    };
    let statement = asked.strip_suffix(question).unwrap_or(asked);
    if statement.is_empty() || statement.ends_with([' ', '\t']) {
        statement.trim_end()
    } else {
        line
    }
}

/// Some: the line is not about the filesystem; true: it contains a phase.
fn boilerplate(line: &str, shape: &str) -> Option<bool> {
    let after_number = line.split_once(": ").map(|(_, rest)| rest);
    match line {
        _ if line.starts_with("Pass ") && after_number.is_some() && is_pass(line) => {
            return Some(true);
        }
        _ if line.starts_with("e2fsck 1.") && line.ends_with(')') => {}
        _ if line.starts_with("Warning!  ")
            && (line.ends_with(" is mounted.") || line.ends_with(" is in use.")) => {}
        _ if line.ends_with(" is mounted.")
            && !line.contains(['\'', '"'])
            && line.split(' ').count() == 3 => {}
        _ if line.ends_with("Optimize? no") && is_optimisation(shape) => {}
        _ if line.ends_with(": ***** FILE SYSTEM WAS MODIFIED *****") => {}
        _ if line.ends_with(": ********** WARNING: Filesystem still has errors **********") => {}
        _ if shape.ends_with(" was not cleanly unmounted, check forced.") => {}
        _ if shape.ends_with(" has gone N days without being checked, check forced.") => {}
        _ if shape.ends_with(" has been mounted N times without being checked, check forced.") => {}
        "The superblock could not be read or does not describe a valid ext2/ext3/ext4"
        | "filesystem.  If the device is valid and it really contains an ext2/ext3/ext4"
        | "filesystem (and not swap or ufs or something else), then the superblock"
        | "is corrupt, and you might try running e2fsck with an alternate superblock:"
        | "e2fsck -b 8193 <device>"
        | "or"
        | "e2fsck -b 32768 <device>"
        | "Possibly non-existent device?"
        | "Running additional passes to resolve blocks claimed by more than one inode..." => {}
        _ => return None,
    }
    Some(false)
}

/// `Pass 1: Checking inodes, blocks, and sizes`, `Pass 1B: Rescanning for multiply-claimed blocks`.
fn is_pass(line: &str) -> bool {
    const DOES: [&str; 9] = [
        "Checking ",
        "Rescanning ",
        "Scanning ",
        "Reconciling ",
        "Optimizing ",
        "Memory used",
        "Peak memory",
        "Duplicate ",
        "Pass ",
    ];
    let Some((number, does)) = line.strip_prefix("Pass ").and_then(|rest| rest.split_once(": "))
    else {
        return false;
    };
    number.len() <= 2
        && number.starts_with(|c: char| c.is_ascii_digit())
        && DOES.iter().any(|words| does.starts_with(words))
}

fn is_optimisation(shape: &str) -> bool {
    let tree = shape.strip_prefix("Inode N extent tree (at level N) could be ");
    tree.is_some_and(|rest| matches!(rest, "shorter." | "narrower."))
        || shape == "Extent tree (inode N) could be optimized."
}

/// `/dev/sdb1: 74/16384 files (0.0% non-contiguous), 10056/65536 blocks`
fn is_summary(line: &str) -> bool {
    line.rsplit_once(": ").is_some_and(|(_, counts)| {
        template(counts).text == "N/N files (N.N% non-contiguous), N/N blocks"
    })
}
