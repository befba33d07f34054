//! A recorded smartctl output, for people.

use crate::render::smart::{hours, label, verdict};
use diskvitals_analyze::smart::{Health, SmartAnalysis, SmartFinding};
use diskvitals_finding::severity::Severity;
use diskvitals_terminal::layout::{heading, label_value_lines, labelled, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, bytes, escape_control};

/// The text for one file of `analyze smart`.
pub fn text(smart: &SmartAnalysis, screen: &Screen) -> String {
    let (word, tone) = match smart.health {
        Health::Good => ("GOOD", Tone::Good),
        Health::Suspect => ("SUSPECT", Tone::Warning),
        Health::Bad => ("BAD", Tone::Critical),
        Health::Unknown => ("UNKNOWN", Tone::Warning),
    };
    let drive = &smart.drive;
    let or_empty = |text: &Option<String>| escape_control(text.as_deref().unwrap_or_default());
    let mut lines = vec![
        ("health", screen.paint(tone, word)),
        ("because", or_empty(&smart.why)),
        ("to do", or_empty(&smart.hint)),
        (
            "model",
            escape_control(
                format!("{} {}", or_empty(&drive.vendor), or_empty(&drive.model)).trim(),
            ),
        ),
        ("family", or_empty(&drive.family)),
        ("serial", or_empty(&drive.serial)),
        ("firmware", or_empty(&drive.firmware)),
        ("size", drive.size_bytes.map(bytes).unwrap_or_default()),
        ("self-assessment", verdict(smart.passed).to_owned()),
        (
            "temperature",
            drive.temperature_celsius.map(|celsius| format!("{celsius} °C")).unwrap_or_default(),
        ),
        ("powered on", drive.power_on_hours.map(hours).unwrap_or_default()),
    ];
    // A count of zero has no line.
    let shown = |metric: &str, value: u64| match metric {
        "temperature" | "power_on_hours" => None,
        "wear_percent" | "spare_percent" => Some(format!("{value} %")),
        _ if value == 0 => None,
        _ => Some(value.to_string()),
    };
    let values: Vec<(String, String)> = smart
        .values
        .iter()
        .filter_map(|(metric, value)| Some((label(metric), shown(metric, *value)?)))
        .collect();
    lines.extend(values.iter().map(|(label, value)| (label.as_str(), value.clone())));
    let messages = smart.messages.iter().map(|text| escape_control(text));
    lines.extend(labelled("smartctl", messages));
    let notes = smart.notes.iter().map(|text| escape_control(text));
    lines.extend(labelled("left out", notes));
    let mut text = heading(&escape_control(&smart.file), screen);
    text.push_str(&label_value_lines(&lines));
    smart.findings.iter().for_each(|finding| text.push_str(&finding_text(finding, screen)));
    text
}

fn finding_text(finding: &SmartFinding, screen: &Screen) -> String {
    let (word, tone) = match finding.severity {
        Severity::Bad => ("BAD", Tone::Critical),
        Severity::Suspect => ("SUSPECT", Tone::Warning),
        Severity::Info => ("info", Tone::Plain),
    };
    let mut text = format!(
        "{} {}\n",
        screen.paint(tone, word),
        screen.paint(Tone::Strong, finding.reason.name())
    );
    text.push_str(&wrapped(&finding.message, "    ", screen));
    // Evidence is verbatim: neither cut nor wrapped.
    finding
        .evidence
        .iter()
        .for_each(|line| text.push_str(&format!("    | {}\n", escape_control(line))));
    text.push_str(&wrapped(
        &format!("To do: {}", finding.reason.action_at(finding.severity)),
        "    ",
        screen,
    ));
    text
}
