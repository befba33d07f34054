//! The text of an outcome for people: what was found, how severe it is, what to do.

use crate::decision::CheckOutcome;
use crate::{CheckVerdict, Filesystem, Mode, Problem, Run, Weight, repair};

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
    let of = |weight| problems.iter().filter(|problem| problem.weight == weight).count();
    let parts = [
        (of(Weight::Damage), "damage"),
        (of(Weight::DamagedCopy), "damaged copy beside a good one"),
        (of(Weight::Unknown), "of unknown meaning"),
        (of(Weight::Bookkeeping), "bookkeeping"),
        (of(Weight::Transient), "also seen on healthy mounted filesystems"),
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
    let beyond = if more > 0 { format!(", {more} more") } else { String::new() };
    let kind = if worst.weight == Weight::Bookkeeping { "; only bookkeeping is wrong" } else { "" };
    if all == 1 {
        return format!("one flaw ({}{kind}): {}", counts.join(", "), quoted(&worst.text));
    }
    format!(
        "{all} flaws ({}{beyond}{kind}), the worst of them {}",
        counts.join(", "),
        quoted(&worst.text)
    )
}

/// What a run found that is CLEAN: nothing, or what its checker does not count as an error.
pub(crate) fn found_in_clean_run(run: &Run) -> String {
    if run.no_error_found && !run.problems.is_empty() {
        format!("no error, only {}", rebuilt_bookkeeping(run))
    } else {
        "nothing".to_owned()
    }
}

/// `2 lines about bookkeeping that the kernel rebuilds`
pub(crate) fn rebuilt_bookkeeping(run: &Run) -> String {
    match run.problems.len() as u64 + run.more_problems {
        1 => "one line about bookkeeping that the kernel rebuilds".to_owned(),
        count => format!("{count} lines about bookkeeping that the kernel rebuilds"),
    }
}

/// What follows from what was found in data that did not change.
pub(crate) fn conclusion(
    found: &str,
    filesystem: Filesystem,
    device: &str,
    verdict: CheckVerdict,
    problems: &[Problem],
) -> String {
    let worst = problems.first().map_or(Weight::Transient, |problem| problem.weight);
    match verdict {
        CheckVerdict::Suspected => format!(
            "{found}. Nothing is lost: each of these blocks has a good copy. Start a scrub, which rewrites the damaged copies (btrfs scrub start -B MOUNT), and look at the drive below."
        ),
        CheckVerdict::Inconclusive => format!(
            "{found}, and its closing line says that it found no error. Nothing has to be repaired for it; a newer version of the checker may say more."
        ),
        // Nothing reads it, and `btrfs check --repair` is no remedy (`repair`).
        _ if filesystem == Filesystem::Btrfs && worst == Weight::Bookkeeping => format!(
            "{found}. No data is lost by that. Keep a current backup, and make a new filesystem if later checks find more."
        ),
        _ => format!(
            "{found}. Back up what can still be read, then {}.",
            repair::sequence(filesystem, device, None)
        ),
    }
}

/// Describes that the log or journal must be replayed.
pub(crate) fn describe_pending_replay(filesystem: Filesystem, run: &Run, words: &str) -> String {
    let log = if filesystem == Filesystem::Xfs { "log" } else { "journal" };
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
    format!("Its {log} waits to be replayed ({}): {what}. To know more, {then}.", quoted(words))
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
