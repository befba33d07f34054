//! The report as text, for mail and tickets: the same sections as the page.

use crate::answers::Answers;
use crate::render::smart::{history, self_tests};
use crate::render::status::{cordons, monitoring_gaps, unknown};
use crate::render::{causes, checks, drives, findings, volumes};
use crate::report::page::summary;
use crate::report::{node_verdict, status_view};
use diskvitals_model::label;
use diskvitals_terminal::layout::{heading, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_wire as wire;

const MAX_CHECKS: usize = 20;
const MAX_CAUSES: usize = 100;

pub(crate) fn report(answers: &Answers, screen: &Screen) -> String {
    let active: Vec<wire::Finding> = answers.active_findings().cloned().collect();
    let view = status_view(answers, &active);
    let mut text = head(answers, screen);
    let all = answers.causes();
    for cause in all.iter().take(MAX_CAUSES) {
        text.push('\n');
        text.push_str(&causes::whole_block(cause, view.findings, screen));
    }
    if all.len() > MAX_CAUSES {
        text.push_str(&format!("\nand {} more causes\n", all.len() - MAX_CAUSES));
    }
    text.push_str(&cordons(&answers.node, screen));
    text.push_str(&unknown(&view, screen));
    if !answers.lost.contains(&"the node") {
        text.push_str(&monitoring_gaps(&answers.node, screen));
    }
    text.push_str(&list(answers, "drives", answers.drives.len(), screen, || {
        drives::table(&answers.drives, screen)
    }));
    text.push_str(&list(answers, "volumes", answers.volumes.len(), screen, || {
        volumes::table(&answers.volumes, screen) + &forecasts(answers, screen)
    }));
    text.push_str(&list(answers, "checks", answers.checks.len(), screen, || {
        checks::table(&answers.checks[..answers.checks.len().min(MAX_CHECKS)], screen)
    }));
    text.push_str(&last_self_tests(answers, screen));
    let mut lowest_first = active.clone();
    findings::sort_lowest_first(&mut lowest_first);
    text.push_str(&findings::in_full(&lowest_first, screen));
    text.push_str(&histories(answers, screen));
    text
}

fn head(answers: &Answers, screen: &Screen) -> String {
    let taken = prost_types::Timestamp { seconds: answers.taken.as_second(), nanos: 0 };
    let title = format!("Storage of {}, {}", answers.node.name, screen.zoned(&taken));
    let mut text: String = wrapped(&title, "", screen)
        .lines()
        .map(|line| format!("{}\n", screen.paint(Tone::Strong, line)))
        .collect();
    let (word, tone) = match node_verdict(answers) {
        Verdict::Good => ("GOOD", Tone::Good),
        Verdict::Warning => ("WARNING", Tone::Warning),
        Verdict::Critical => ("CRITICAL", Tone::Critical),
        Verdict::Unknown => ("UNKNOWN", Tone::Warning),
    };
    let line = wrapped(&format!("{word}  {}", summary(answers)), "", screen);
    let rest = line.strip_prefix(word).unwrap_or(&line);
    text.push_str(&format!("{}{rest}", screen.paint(tone, word)));
    if answers.lost.contains(&"the node") {
        return text + &incomplete(answers, screen);
    }
    let versions = format!(
        "Linux {}, diskvitalsd {}, started {}",
        answers.node.kernel,
        answers.node.version,
        screen.date_time(answers.node.started.as_ref())
    );
    text.push_str(&wrapped(&versions, "", screen));
    text + &incomplete(answers, screen)
}

fn incomplete(answers: &Answers, screen: &Screen) -> String {
    let mut text = String::new();
    if !answers.gaps.is_empty() {
        text.push('\n');
        text.push_str(&heading("This report is not complete", screen));
        for gap in &answers.gaps {
            text.push_str(&wrapped(gap, "  ", screen));
        }
    }
    text
}

/// A list that the bundle lacks is not empty.
fn list(
    answers: &Answers,
    name: &'static str,
    count: usize,
    screen: &Screen,
    rows: impl FnOnce() -> String,
) -> String {
    let rows = match (answers.lost.contains(&name), count) {
        (true, 0) => "missing in the bundle\n".to_owned(),
        (true, _) => format!("not complete in the bundle\n{}", rows()),
        (false, _) => rows(),
    };
    format!("\n{}{rows}", heading(name, screen))
}

/// When volumes are full at their present rate, the first one first.
fn forecasts(answers: &Answers, screen: &Screen) -> String {
    let full = |volume: &wire::Volume| {
        let usage = volume.usage.as_ref()?;
        Some((usage.full_at?, volumes::place(volume)))
    };
    let mut all: Vec<(prost_types::Timestamp, String)> =
        answers.volumes.iter().filter_map(full).collect();
    all.sort_by_key(|(time, _)| time.seconds);
    all.iter()
        .map(|(time, place)| {
            let day: String = screen.date_time(Some(time)).chars().take(10).collect();
            wrapped(&format!("full on {day} at this rate: {place}"), "  ", screen)
        })
        .collect()
}

fn last_self_tests(answers: &Answers, screen: &Screen) -> String {
    let mut sorted: Vec<&wire::Drive> = answers.drives.iter().collect();
    sorted.sort_by_cached_key(|drive| label::sort_key(&drive.name));
    let mut text = String::new();
    for drive in sorted {
        let tests = drive.smart.iter().flat_map(self_tests).next();
        if let Some(last) = tests {
            text.push_str(&wrapped(&format!("{}  {last}", drive.name), "", screen));
        }
    }
    match text.is_empty() {
        true => String::new(),
        false => format!("\n{}{text}", heading("last self-tests", screen)),
    }
}

/// The histories of drives that are not in good health.
fn histories(answers: &Answers, screen: &Screen) -> String {
    let adverse = answers.drives.iter().filter(|drive| drives::rank(drive.health) != 3);
    let of = |drive: &wire::Drive| {
        let history = answers.histories.iter().find(|it| it.drive_id == drive.id)?;
        let text = history::text(history, screen);
        Some(format!("\n{}\n{text}", escape_control(&drive.name)))
    };
    adverse.filter_map(of).collect()
}
