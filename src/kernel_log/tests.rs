//! Tests of the rule table: one line per form of a message, by kernel version, with its expected
//! result.

use jiff::Timestamp;
use proptest::prelude::*;

use crate::classify::{Classifier, ClassifierOptions};
use crate::event::{DamagedCopies, Event};
use crate::record;
use crate::record::Record;

mod ata;
mod drives;
mod excuses;
mod families;
mod filesystems;
mod foreign_text;
mod layers;
mod properties;
mod scsi;
mod upper_wordings;
mod wordings;

/// The incidents of these lines as text: `class device blame[ sectors]`. Lines are one millisecond
/// apart; `@60 ` in front sets the time to 60 seconds.
fn classify_to_text(lines: &str) -> String {
    let events = classify(lines);
    let shown: Vec<String> = events.iter().filter(|event| event.count > 0).map(show).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join("; ") }
}

fn classify(lines: &str) -> Vec<Event> {
    let mut classifier = Classifier::new(ClassifierOptions::default());
    let mut events = Vec::new();
    for (number, line) in
        lines.lines().map(str::trim_start).filter(|line| !line.is_empty()).enumerate()
    {
        let at = line.strip_prefix('@').and_then(|line| line.split_once(' '));
        let (seconds, line) =
            at.map_or((0, line), |(seconds, line)| (seconds.parse().unwrap(), line));
        let text = line.replace("\\n", "\n");
        classifier.push(
            &Record::from_text(number as u64, seconds * 1_000_000 + number as u64 * 1000, &text),
            Timestamp::UNIX_EPOCH,
            &mut events,
        );
    }
    classifier.finish(Timestamp::UNIX_EPOCH, &mut events);
    events
}

fn show(event: &Event) -> String {
    let blame = format!("{:?}", event.blame).to_lowercase();
    let sectors: String = event.sectors.iter().map(|sector| format!(" {sector}")).collect();
    let damaged = match event.damaged {
        DamagedCopies::ALL => String::new(),
        DamagedCopies::NONE => " corrected".to_owned(),
        DamagedCopies { data, metadata } => format!(" copies {data} {metadata}"),
    };
    format!("{} {} {blame}{sectors}{damaged}", event.class.name(), event.device)
}

/// Each pair: lines, and their expected incidents.
fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(lines, expected)| {
            Some(classify_to_text(lines))
                .filter(|got| got != expected)
                .map(|got| format!("{lines}\n  => {got}\n  not {expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
