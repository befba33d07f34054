//! Filesystem checks: a table, one check in full, the progress of one.

use std::path::Path;
use std::time::Duration;

use crate::words::enum_label;
use diskvitals_fscheck::{RunActivity, RunProgress};
use diskvitals_terminal::layout::{Part, counted, heading, wrapped, wrapped_parts};
use diskvitals_terminal::screen::{Screen, Tone, bytes, escape_control, or_dash, span};
use diskvitals_terminal::table::{Column, column, plain, table as layout, toned};
use diskvitals_wire as wire;
use diskvitals_wire::check::{Mode, State, Verdict};
use diskvitals_wire::check_run::Ballot;

const COLUMNS: [Column<wire::Check>; 7] = [
    column("CHECK", 0, 0, |it, _| plain(&it.id)),
    column("VERDICT", 0, 0, |it, _| verdict(it)),
    column("TARGET", 16, 2, |it, _| plain(&it.target)),
    column("FS", 0, 5, |it, _| plain(&it.filesystem)),
    column("MODE", 0, 4, |it, _| plain(mode(it.mode()))),
    column("WHEN", 0, 3, |it, screen| plain(screen.ago(it.ended.as_ref().or(it.asked.as_ref())))),
    column("WHY", 20, 1, |it, _| plain(reason(it))),
];

/// Maximum number of a run's findings in the list; JSON has all that are stored.
const MAX_LISTED_FINDINGS: usize = 20;

pub fn table(checks: &[wire::Check], screen: &Screen) -> String {
    if checks.is_empty() {
        return "no checks: `diskvitals check VOLUME` starts one\n".to_owned();
    }
    layout(&COLUMNS, checks, screen)
}

/// The reason for the verdict, or the current phase of a check that has not ended, with its progress.
pub fn reason(check: &wire::Check) -> String {
    let percent = check.progress.and_then(|run| run.percent);
    match (check.state(), percent) {
        (State::Ended, _) => check.reason.clone(),
        (_, Some(percent)) => format!("{}, {percent} %", check.phase),
        (_, None) => check.phase.clone(),
    }
}

/// The verdict, its reason, and the runs.
pub fn one(check: &wire::Check, screen: &Screen) -> String {
    let (word, tone) = verdict(check);
    let mut text = heading(
        &format!(
            "check {} of {} ({})",
            escape_control(&check.id),
            escape_control(&check.target),
            escape_control(&check.filesystem)
        ),
        screen,
    );
    text.push_str(&format!("{}  {}\n", screen.paint(tone, word), mode(check.mode())));
    if !reason(check).is_empty() {
        text.push_str(&wrapped(&reason(check), "", screen));
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
        text.push_str(&format!("\n{}", runs(check, screen)));
    }
    // The deciding runs have the same findings: only those of the last one are printed. A clean
    // run's findings are left out: checkers also print them for healthy filesystems in use.
    let decides = |run: &&wire::CheckRun| {
        run.mode == check.mode && run.ballot() == Ballot::Findings && !run.findings.is_empty()
    };
    if let Some(run) = check.runs.iter().rev().find(decides) {
        text.push_str(&findings(run, screen));
    }
    text
}

/// One check with the output of each run.
pub(crate) fn in_full(check: &wire::Check, screen: &Screen) -> String {
    let mut text = one(check, screen);
    text.push_str(&format!(
        "\nrequested {} by {}\n",
        screen.date_time(check.asked.as_ref()),
        escape_control(or_dash(&check.origin))
    ));
    for (number, run) in (1..).zip(&check.runs) {
        text.push_str(&output(number, run, screen));
    }
    text
}

/// For `explain`: the newest check of each related object. What the checkers printed is left to
/// `checks`, since it may have thousands of lines.
pub(crate) fn checks_of_subject(checks: &[wire::Check], screen: &Screen) -> String {
    checks.iter().map(|check| summary(check, screen)).collect()
}

fn summary(check: &wire::Check, screen: &Screen) -> String {
    let (word, tone) = verdict(check);
    let title = format!("check of {} ({})", check.target, check.filesystem);
    let title = [Part::new("", escape_control(&title), Tone::Strong)];
    let mut text = format!("\n{}", wrapped_parts(&title, "", "  ", screen));
    let when = screen.ago(check.ended.as_ref().or(check.asked.as_ref()));
    let verdict = [
        Part::new("", word, tone),
        Part::new("  ", format!("{}, {when}", mode(check.mode())), Tone::Plain),
    ];
    text.push_str(&wrapped_parts(&verdict, "", "  ", screen));
    if !reason(check).is_empty() {
        text.push_str(&wrapped(&reason(check), "", screen));
    }
    if let Some(run) = check.runs.last() {
        text.push_str(&wrapped(&counts(run), "  ", screen));
    }
    let command = format!("  diskvitals checks {}", escape_control(&check.id));
    text + &format!("{}\n", screen.paint(Tone::Faint, command))
}

/// `e2fsck -fn: 12 problems (10 damage, 2 bookkeeping)`.
fn counts(run: &wire::CheckRun) -> String {
    use wire::check_finding::Weight;
    let of = |weight: Weight| {
        let matching = run.findings.iter().filter(|it| it.weight() == weight);
        matching.count()
    };
    let weights = [
        (of(Weight::Damage), "damage"),
        (of(Weight::Bookkeeping), "bookkeeping"),
        (of(Weight::Transient), "transient"),
    ];
    let weights: Vec<String> = weights
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, weight)| format!("{count} {weight}"))
        .collect();
    let weights = match (run.more_findings, weights.is_empty()) {
        (_, true) => String::new(),
        (0, false) => format!(" ({})", weights.join(", ")),
        // Only the first ones are stored.
        (_, false) => format!(" (of the first {}: {})", run.findings.len(), weights.join(", ")),
    };
    format!("{}: {}{weights}", run.command, counted(all_findings(run), "problem"))
}

/// The current phase and its duration.
pub fn progress(check: &wire::Check, elapsed: Duration, cancelled: bool) -> (String, String) {
    let what = match check.state() {
        _ if cancelled => "cancelling".to_owned(),
        State::Queued => format!("queued: {}", escape_control(&check.phase)),
        _ => escape_control(&check.phase),
    };
    let run = check.progress.unwrap_or_default();
    let known = |duration: Option<prost_types::Duration>| {
        duration.and_then(|duration| Duration::try_from(duration).ok())
    };
    let detail = run_progress(elapsed, run.percent, known(run.remaining), known(run.last_duration));
    (format!("{}: {what}", escape_control(&check.target)), detail)
}

/// The same for an image that is checked without a daemon.
pub(crate) fn image_progress(
    path: &Path,
    activity: &RunActivity,
    elapsed: Duration,
) -> (String, String) {
    let path = escape_control(&path.display().to_string());
    let run = RunProgress::new(jiff::Timestamp::UNIX_EPOCH, elapsed, activity.permille);
    let percent = run.permille.map(|done| u32::from(done / 10));
    (
        format!("{path}: {}", escape_control(&activity.phase)),
        run_progress(elapsed, percent, run.remaining, None),
    )
}

/// `37 %, about 2 min 10 s left`, where the checker reports it; otherwise the time since the start,
/// beside that of the last run.
fn run_progress(
    elapsed: Duration,
    percent: Option<u32>,
    remaining: Option<Duration>,
    last: Option<Duration>,
) -> String {
    match (percent, remaining, last) {
        (Some(percent), Some(left), _) => format!("{percent} %, about {} left", span(left)),
        (Some(percent), None, _) => format!("{percent} %, {}", span(elapsed)),
        (None, _, Some(last)) => {
            format!("{}; the last run took {}", span(elapsed), span(last))
        }
        (None, _, None) => span(elapsed),
    }
}

fn findings(run: &wire::CheckRun, screen: &Screen) -> String {
    let title = format!("{} found", escape_control(&run.command));
    let mut text = format!("\n{}", heading(&title, screen));
    for finding in run.findings.iter().take(MAX_LISTED_FINDINGS) {
        let tone = match finding.weight() {
            wire::check_finding::Weight::Damage => Tone::Critical,
            wire::check_finding::Weight::Bookkeeping
            | wire::check_finding::Weight::Unknown
            | wire::check_finding::Weight::DamagedCopy => Tone::Warning,
            _ => Tone::Faint,
        };
        text.push_str(&format!("  {}\n", screen.paint(tone, escape_control(&finding.text))));
    }
    let more = run.findings.len().saturating_sub(MAX_LISTED_FINDINGS) as u64 + run.more_findings;
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

fn output(number: usize, run: &wire::CheckRun, screen: &Screen) -> String {
    if run.output.is_empty() {
        return String::new();
    }
    let title = format!("run {number}: {}", escape_control(&run.command));
    let mut text = format!("\n{}", heading(&title, screen));
    for line in run.output.lines() {
        text.push_str(&format!("  {}\n", escape_control(line)));
    }
    if run.output_bytes > run.output.len() as u64 {
        text.push_str(&format!("  … ({} in all)\n", bytes(run.output_bytes)));
    }
    text
}

fn runs(check: &wire::Check, screen: &Screen) -> String {
    let columns: [Column<(usize, &wire::CheckRun)>; 8] = [
        column("RUN", 0, 0, |(number, _), _| plain(number)),
        column("MODE", 0, 0, |(_, run), _| plain(mode(run.mode()))),
        column("RESULT", 0, 0, |(_, run), _| toned(ballot(run))),
        column("FINDINGS", 0, 0, |(_, run), _| plain(all_findings(run))),
        column("TOOK", 0, 0, |(_, run), _| {
            plain(run.duration.as_ref().map_or("-".into(), seconds))
        }),
        column("HELD", 0, 2, |(_, run), _| plain(run.held.as_ref().map_or("".into(), seconds))),
        column("READ", 0, 3, |(_, run), _| plain(bytes(run.bytes_read))),
        column("ENDED", 20, 1, |(_, run), _| plain(ended(run))),
    ];
    layout(&columns, &(1..).zip(&check.runs).collect::<Vec<_>>(), screen)
}

fn ballot(run: &wire::CheckRun) -> (&'static str, Tone) {
    match run.ballot() {
        Ballot::Clean => ("clean", Tone::Good),
        Ballot::Findings => ("findings", Tone::Warning),
        Ballot::Failed => ("failed", Tone::Warning),
        Ballot::Unspecified => ("-", Tone::Faint),
    }
}

fn ended(run: &wire::CheckRun) -> String {
    match (run.exit_status, run.signal) {
        _ if !run.failure.is_empty() => run.failure.clone(),
        (Some(status), _) => format!("status {status}"),
        (None, signal) => format!("signal {signal}"),
    }
}

fn all_findings(run: &wire::CheckRun) -> u64 {
    run.findings.len() as u64 + run.more_findings
}

fn seconds(duration: &prost_types::Duration) -> String {
    let millis = duration.seconds.saturating_mul(1000) + i64::from(duration.nanos / 1_000_000);
    if millis < 10_000 { format!("{millis} ms") } else { format!("{} s", millis / 1000) }
}

/// `MODE_READ_ONLY` → `read only`.
pub fn mode(mode: Mode) -> String {
    match mode {
        Mode::Unspecified => "-".to_owned(),
        mode => enum_label(mode.as_str_name(), "MODE_"),
    }
}

pub fn verdict(check: &wire::Check) -> (String, Tone) {
    if check.state() != State::Ended {
        return plain(enum_label(check.state().as_str_name(), "STATE_"));
    }
    let tone = match check.verdict() {
        Verdict::Clean => Tone::Good,
        Verdict::Suspected | Verdict::Inconclusive | Verdict::Failed => Tone::Warning,
        Verdict::Corrupted => Tone::Critical,
        Verdict::Unspecified => Tone::Faint,
    };
    (enum_label(check.verdict().as_str_name(), "VERDICT_").to_ascii_uppercase(), tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_percentage_or_the_time_beside_that_of_the_last_run() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let elapsed = Duration::from_secs(65);
        let texts = [
            run_progress(elapsed, Some(37), seconds(130), seconds(9)),
            run_progress(elapsed, Some(1), None, seconds(9)),
            run_progress(elapsed, None, None, seconds(3600)),
            run_progress(elapsed, None, None, None),
        ];
        let expected = [
            "37 %, about 2 min 10 s left",
            "1 %, 1 min 5 s",
            "1 min 5 s; the last run took 1 h",
            "1 min 5 s",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_hostile_target_and_phase_are_escaped_in_the_progress_line() {
        let check = wire::Check {
            target: "/a\u{1b}[2Jb\u{202e}".to_owned(),
            phase: "Pass 1\r\n".to_owned(),
            state: State::Running.into(),
            ..Default::default()
        };
        let (what, _) = progress(&check, Duration::ZERO, false);
        assert_eq!(what, r"/a\u{1b}[2Jb\u{202e}: Pass 1\r\n");
    }
}
