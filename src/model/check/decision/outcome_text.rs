//! The text of an outcome for people: what was found, how severe it is, what to do.

use crate::model::check::decision::CheckOutcome;
use crate::model::check::{CheckVerdict, Filesystem, Mode, Problem, Run, Weight};

/// Maximum length of a quoted line, in characters.
const MAX_QUOTE_CHARS: usize = 160;

pub(crate) fn quoted(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    let cut: String = line.chars().take(MAX_QUOTE_CHARS).collect();
    let more = if cut.len() < line.len() { "…" } else { "" };
    format!("\"{cut}{more}\"")
}

/// Without the final full stop, so that a sentence can continue after it.
pub(crate) fn without_full_stop(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

/// `e2fsck found 12 things (3 damaged, 9 bookkeeping), the worst of them "…"`
pub(crate) fn describe_run(filesystem: Filesystem, run: &Run) -> String {
    format!(
        "{} found {}",
        filesystem.checker().0,
        describe_problems(&run.problems, run.more_problems)
    )
}

pub(crate) fn describe_problems(problems: &[Problem], more: u64) -> String {
    let of = |weight| {
        problems
            .iter()
            .filter(|problem| problem.weight == weight)
            .count()
    };
    let (damage, bookkeeping, transient) = (
        of(Weight::Damage),
        of(Weight::Bookkeeping),
        of(Weight::Transient),
    );
    let parts = [
        (damage, "damage"),
        (bookkeeping, "bookkeeping"),
        (transient, "also seen on healthy mounted filesystems"),
    ];
    let counts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let Some(worst) = problems.first() else {
        return "nothing in particular".to_owned();
    };
    let all = problems.len() as u64 + more;
    let beyond = if more > 0 {
        format!(", {more} more")
    } else {
        String::new()
    };
    let kind = if damage == 0 && bookkeeping > 0 {
        "; only bookkeeping is wrong"
    } else {
        ""
    };
    if all == 1 {
        return format!(
            "one flaw ({}{kind}): {}",
            counts.join(", "),
            quoted(&worst.text)
        );
    }
    format!(
        "{all} flaws ({}{beyond}{kind}), the worst of them {}",
        counts.join(", "),
        quoted(&worst.text)
    )
}

pub(crate) fn repair_advice(filesystem: Filesystem) -> &'static str {
    match filesystem {
        Filesystem::Ext4 => "repair the unmounted filesystem with e2fsck -f",
        Filesystem::Xfs => "repair the unmounted filesystem with xfs_repair",
        Filesystem::Btrfs => {
            "scrub it, and restore what is lost (btrfs check --repair is a last resort)"
        }
    }
}

/// Describes that the log or journal must be replayed.
pub(crate) fn describe_pending_replay(filesystem: Filesystem, run: &Run, words: &str) -> String {
    let log = if filesystem == Filesystem::Xfs {
        "log"
    } else {
        "journal"
    };
    let what = if run.problems.is_empty() {
        "nothing else was found".to_owned()
    } else {
        format!(
            "what was found may come from that alone ({})",
            describe_problems(&run.problems, run.more_problems)
        )
    };
    let then = match run.mode {
        Mode::Unmounted => {
            format!("mount it once, which replays the {log}, unmount it and check again")
        }
        Mode::ReadOnly => {
            format!("mount it writable once, which replays the {log}, and check again")
        }
        _ => format!("replay the {log} and check again"),
    };
    format!(
        "Its {log} waits to be replayed ({}): {what}. To know more, {then}.",
        quoted(words)
    )
}

/// The outcome when no run was completed.
pub(crate) fn failed_outcome(runs: &[&Run], mode: Mode) -> CheckOutcome {
    let Some(run) = runs.last() else {
        return CheckOutcome::new(CheckVerdict::Failed, mode, "Nothing was run.".to_owned());
    };
    let subject = match runs.len() {
        1 => "The run could not do its work".to_owned(),
        count => format!("None of {count} runs could do its work"),
    };
    let found = if run.problems.is_empty() {
        String::new()
    } else {
        format!(
            " Before that it named {}, which proves nothing so far.",
            describe_problems(&run.problems, run.more_problems)
        )
    };
    let reason = format!(
        "{subject}: {}. This says nothing of the filesystem.{found}",
        without_full_stop(&run.failure_reason)
    );
    CheckOutcome::new(CheckVerdict::Failed, mode, reason)
}
