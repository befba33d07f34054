//! The table of reasons, and one reason in full.

use crate::words::severity_word;
use diskvitals_terminal::layout::wrapped;
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, strong, table};
use diskvitals_wire as wire;

const COLUMNS: [Column<wire::ReasonText>; 4] = [
    column("REASON", 0, 0, |it, _| strong(&it.name)),
    column("ABOUT", 0, 2, |it, _| plain(&it.about)),
    column("LEVELS", 0, 1, |it, _| plain(levels(it))),
    column("MEANING", 12, 0, |it, _| plain(&it.meaning)),
];

/// One line each; `one` has the rest.
pub fn all(reasons: &[wire::ReasonText], screen: &Screen) -> String {
    table(&COLUMNS, reasons, screen)
}

fn levels(reason: &wire::ReasonText) -> String {
    reason.levels().map(|level| severity_word(level).0).collect::<Vec<_>>().join(", ")
}

/// A line with the name, then one paragraph per column.
pub fn one(reason: &wire::ReasonText, screen: &Screen) -> String {
    let levels: Vec<String> = reason
        .levels()
        .map(|level| {
            let (word, tone) = severity_word(level);
            screen.paint(tone, word)
        })
        .collect();
    let levels = match levels.as_slice() {
        [] => String::new(),
        levels => format!("; {}", levels.join(", ")),
    };
    let mut text = format!(
        "{} ({}{levels})\n",
        screen.paint(Tone::Strong, escape_control(&reason.name)),
        escape_control(&reason.about)
    );
    text.push_str(&wrapped(&reason.meaning, "    ", screen));
    let over = match reason.clears_when.starts_with("never") {
        true => "It is over ",
        false => "It is over when ",
    };
    // An older daemon does not send all of them.
    let paragraphs = [
        ("The data: ", &reason.data, ""),
        ("To do: ", &reason.action, ""),
        (over, &reason.clears_when, "."),
    ];
    for (before, body, after) in paragraphs.into_iter().filter(|it| !it.1.is_empty()) {
        text.push_str(&wrapped(&format!("{before}{body}{after}"), "    ", screen));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_convert::reasons;
    use diskvitals_terminal::fixture::screen;

    #[test]
    fn a_reason_is_printed_with_all_its_sections_in_order() {
        let table = reasons::all().reasons;
        let pending =
            table.iter().find(|reason| reason.name == "PendingSectors").expect("is there");
        insta::assert_snapshot!(one(pending, &screen(Some(80))), @"
        PendingSectors (drive; SUSPECT, BAD)
            Some sectors cannot be read. Their contents are lost on this drive unless a
            later read succeeds.
            The data: The contents of those sectors cannot be read from this drive. The
            other data on it is not affected.
            To do: With redundancy: a RAID check or a repairing scrub rewrites the
            sectors from the other copies, which repairs those that are only weak.
            Without: copy the data off first; what cannot be read is lost unless a
            backup has it. Replace the drive if the number grows.
            It is over when the drive reports none.
        ");
    }

    #[test]
    fn the_list_has_one_line_for_each_reason_at_any_width() {
        let reasons = reasons::all().reasons;
        for width in [Some(60), Some(80), Some(200), None] {
            let text = all(&reasons, &screen(width));
            assert_eq!(text.lines().count(), reasons.len() + 1, "{width:?}");
            for (line, reason) in text.lines().skip(1).zip(&reasons) {
                assert!(line.starts_with(&reason.name), "{line}");
                assert!(line.chars().count() <= width.map_or(usize::MAX, usize::from));
            }
        }
    }

    #[test]
    fn fields_missing_from_an_older_daemon_are_left_out() {
        let reason = wire::ReasonText {
            name: "A".into(),
            about: "drive".into(),
            meaning: "It is so.".into(),
            action: "Act.".into(),
            ..wire::ReasonText::default()
        };
        assert_eq!(one(&reason, &screen(None)), "A (drive)\n    It is so.\n    To do: Act.\n");
    }
}
