//! Filesystem checks: a table, one check in full, the progress of one.

use std::time::Duration;

use crate::api::wire;
use crate::api::wire::check::{Mode, State, Verdict};
use crate::api::wire::check_run::Ballot;
use crate::cli::render::{heading, wrapped};
use crate::cli::screen::{Screen, Tone, bytes, enum_label, escape_control, or_dash};
use crate::cli::table::{Column, column, table as layout};

const COLUMNS: [Column; 7] = [
    column("CHECK", 0, 0),
    column("VERDICT", 0, 0),
    column("TARGET", 16, 2),
    column("FS", 0, 5),
    column("MODE", 0, 4),
    column("WHEN", 0, 3),
    column("WHY", 20, 1),
];

const RUNS: [Column; 8] = [
    column("RUN", 0, 0),
    column("MODE", 0, 0),
    column("BALLOT", 0, 0),
    column("FINDINGS", 0, 0),
    column("TOOK", 0, 0),
    column("HELD", 0, 2),
    column("READ", 0, 3),
    column("ENDED", 20, 1),
];

/// Findings of a run that are listed; JSON has all that are kept.
const MAX_LISTED_FINDINGS: usize = 20;

pub(crate) fn table(checks: &[wire::Check], screen: &Screen) -> String {
    if checks.is_empty() {
        return "no checks: `diskvitals check VOLUME` makes one\n".to_owned();
    }
    let row = |check: &wire::Check| {
        let (verdict, tone) = verdict(check);
        let why = if check.state() == State::Ended {
            &check.reason
        } else {
            &check.phase
        };
        vec![
            (check.id.clone(), Tone::Plain),
            (verdict, tone),
            (check.target.clone(), Tone::Plain),
            (check.filesystem.clone(), Tone::Plain),
            (mode(check.mode()), Tone::Plain),
            (
                screen.ago(check.ended.as_ref().or(check.asked.as_ref())),
                Tone::Plain,
            ),
            (why.clone(), Tone::Plain),
        ]
    };
    layout(
        &COLUMNS,
        &checks.iter().map(row).collect::<Vec<_>>(),
        screen,
    )
}

/// The verdict, why, and the runs.
pub(crate) fn one(check: &wire::Check, screen: &Screen) -> String {
    let (word, tone) = verdict(check);
    let mut text = heading(
        &format!(
            "check {} of {} ({})",
            check.id,
            escape_control(&check.target),
            check.filesystem
        ),
        screen,
    );
    text.push_str(&format!(
        "{}  {}\n",
        screen.paint(tone, word),
        mode(check.mode())
    ));
    let why = if check.state() == State::Ended {
        &check.reason
    } else {
        &check.phase
    };
    if !why.is_empty() {
        text.push_str(&wrapped(why, "", screen));
    }
    for signal in &check.signals {
        text.push_str(&format!(
            "  {} {}: {}\n",
            screen.date_time(signal.time.as_ref()),
            escape_control(&signal.source),
            escape_control(&signal.text)
        ));
    }
    if !check.runs.is_empty() {
        text.push('\n');
        let rows: Vec<_> = check
            .runs
            .iter()
            .enumerate()
            .map(|(place, run)| row(place + 1, run))
            .collect();
        text.push_str(&layout(&RUNS, &rows, screen));
    }
    // The deciding runs show the same: the last of them is shown. What a clean one shows, healthy
    // filesystems in use show.
    let found = |run: &&wire::CheckRun| {
        run.mode == check.mode && run.ballot() == Ballot::Findings && !run.findings.is_empty()
    };
    if let Some(run) = check.runs.iter().rev().find(found) {
        text.push_str(&findings(run, screen));
    }
    text
}

/// With what each run's checker wrote.
pub(crate) fn in_full(check: &wire::Check, screen: &Screen) -> String {
    let mut text = one(check, screen);
    text.push_str(&format!(
        "\nasked {} by {}\n",
        screen.date_time(check.asked.as_ref()),
        escape_control(or_dash(&check.origin))
    ));
    for (place, run) in check.runs.iter().enumerate() {
        text.push_str(&output(place + 1, run, screen));
    }
    text
}

/// For `explain`: the newest check of each thing around, its runs' output included.
pub(crate) fn checks_of_subject(checks: &[wire::Check], screen: &Screen) -> String {
    checks
        .iter()
        .map(|check| format!("\n{}", in_full(check, screen)))
        .collect()
}

/// The current phase and its duration.
pub(crate) fn progress(
    check: &wire::Check,
    elapsed: Duration,
    cancelled: bool,
) -> (String, String) {
    let what = match check.state() {
        _ if cancelled => "cancelling".to_owned(),
        State::Queued => format!("queued: {}", escape_control(&check.phase)),
        _ => escape_control(&check.phase),
    };
    (
        format!("{}: {what}", escape_control(&check.target)),
        format!("{} s", elapsed.as_secs()),
    )
}

fn findings(run: &wire::CheckRun, screen: &Screen) -> String {
    let mut text = format!(
        "\n{}\n",
        screen.paint(
            Tone::Strong,
            format!("{} found", escape_control(&run.command))
        )
    );
    for finding in run.findings.iter().take(MAX_LISTED_FINDINGS) {
        let tone = match finding.weight() {
            wire::check_finding::Weight::Damage => Tone::Critical,
            wire::check_finding::Weight::Bookkeeping => Tone::Warning,
            _ => Tone::Faint,
        };
        text.push_str(&format!(
            "  {}\n",
            screen.paint(tone, escape_control(&finding.text))
        ));
    }
    let more = run.findings.len().saturating_sub(MAX_LISTED_FINDINGS) as u64 + run.more_findings;
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

fn output(place: usize, run: &wire::CheckRun, screen: &Screen) -> String {
    if run.output.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{}\n",
        screen.paint(
            Tone::Strong,
            format!("run {place}: {}", escape_control(&run.command))
        )
    );
    for line in run.output.lines() {
        text.push_str(&format!("  {}\n", escape_control(line)));
    }
    if run.output_bytes > run.output.len() as u64 {
        text.push_str(&format!("  … ({} in all)\n", bytes(run.output_bytes)));
    }
    text
}

fn row(place: usize, run: &wire::CheckRun) -> Vec<(String, Tone)> {
    let (ballot, tone) = match run.ballot() {
        Ballot::Clean => ("clean", Tone::Good),
        Ballot::Findings => ("findings", Tone::Warning),
        Ballot::Failed => ("failed", Tone::Warning),
        Ballot::Unspecified => ("-", Tone::Faint),
    };
    let ended = match (run.exit_status, run.signal) {
        _ if !run.failure.is_empty() => run.failure.clone(),
        (Some(status), _) => format!("status {status}"),
        (None, signal) => format!("signal {signal}"),
    };
    vec![
        (place.to_string(), Tone::Plain),
        (mode(run.mode()), Tone::Plain),
        (ballot.to_owned(), tone),
        (
            (run.findings.len() as u64 + run.more_findings).to_string(),
            Tone::Plain,
        ),
        (seconds(run.duration.as_ref()), Tone::Plain),
        (
            run.held
                .as_ref()
                .map(|held| seconds(Some(held)))
                .unwrap_or_default(),
            Tone::Plain,
        ),
        (bytes(run.bytes_read), Tone::Plain),
        (ended, Tone::Plain),
    ]
}

fn seconds(duration: Option<&prost_types::Duration>) -> String {
    let Some(duration) = duration else {
        return "-".to_owned();
    };
    let millis = duration.seconds.saturating_mul(1000) + i64::from(duration.nanos / 1_000_000);
    if millis < 10_000 {
        format!("{millis} ms")
    } else {
        format!("{} s", millis / 1000)
    }
}

/// `MODE_READ_ONLY` → `read only`.
pub(crate) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Unspecified => "-".to_owned(),
        mode => enum_label(mode.as_str_name(), "MODE_"),
    }
}

pub(crate) fn verdict(check: &wire::Check) -> (String, Tone) {
    if check.state() != State::Ended {
        return (
            enum_label(check.state().as_str_name(), "STATE_"),
            Tone::Plain,
        );
    }
    let tone = match check.verdict() {
        Verdict::Clean => Tone::Good,
        Verdict::Suspected | Verdict::Inconclusive => Tone::Warning,
        Verdict::Corrupted => Tone::Critical,
        Verdict::Failed => Tone::Warning,
        Verdict::Unspecified => Tone::Faint,
    };
    (
        enum_label(check.verdict().as_str_name(), "VERDICT_").to_ascii_uppercase(),
        tone,
    )
}
