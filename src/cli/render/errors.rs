//! Kernel log errors of a drive or a volume: one line per class.

use diskvitals_terminal::layout::{counted, labelled};
use diskvitals_terminal::screen::{Screen, escape_control};
use diskvitals_wire as wire;

/// Label and text of each line; empty if the log contains no errors.
pub fn lines(errors: &[wire::ErrorTally], screen: &Screen) -> Vec<(&'static str, String)> {
    labelled("kernel log", errors.iter().map(|it| line(it, screen))).collect()
}

fn line(tally: &wire::ErrorTally, screen: &Screen) -> String {
    let mut text = format!(
        "{}: {} in {}",
        escape_control(&tally.class),
        counted(tally.incidents, "incident"),
        counted(tally.records, "record")
    );
    if tally.suppressed > 0 {
        text.push_str(&format!(", at least {} more not printed", tally.suppressed));
    }
    if tally.corrected > 0 {
        text.push_str(&format!(", {} corrected", tally.corrected));
    }
    let sectors: Vec<String> = tally
        .sectors
        .iter()
        .take(5)
        .map(|failed| format!("{} of {}", failed.sector, escape_control(&failed.device)))
        .collect();
    if !sectors.is_empty() {
        let more = (tally.sectors.len() - sectors.len()) as u64 + tally.more_sectors;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push_str(&format!("; sectors {}{more}", sectors.join(", ")));
    }
    let last = tally.last.as_ref().and_then(|record| record.time.as_ref());
    text.push_str(&format!("; last {}", screen.ago(last)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_terminal::fixture::{before, screen};

    #[test]
    fn each_class_is_a_line_with_its_counts_and_places() {
        let place = |sector| wire::FailedSector { device: "sda".into(), sector, times: 1 };
        let record = wire::LogRecord {
            time: before(7200),
            text: "critical medium error, dev sda, sector 5".into(),
        };
        let tally = wire::ErrorTally {
            class: "medium".into(),
            incidents: 3,
            records: 12,
            suppressed: 4,
            corrected: 1,
            last: Some(record),
            sectors: (1..=7).map(place).collect(),
            more_sectors: 2,
            ..wire::ErrorTally::default()
        };
        let other = wire::ErrorTally {
            class: "reset".into(),
            incidents: 1,
            records: 1,
            ..wire::ErrorTally::default()
        };
        let lines = lines(&[tally, other], &screen(None));
        assert_eq!(lines[0].0, "kernel log");
        assert!(
            lines[0].1.starts_with(
                "medium: 3 incidents in 12 records, at least 4 more not printed, 1 corrected; \
                 sectors 1 of sda, 2 of sda, 3 of sda, 4 of sda, 5 of sda and 4 more; last 2"
            ),
            "{}",
            lines[0].1
        );
        assert_eq!(
            (lines[1].0, lines[1].1.starts_with("reset: 1 incident in 1 record;")),
            ("", true)
        );
    }
}
