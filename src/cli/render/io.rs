//! The analysis of recorded I/O counters, for people: a line for each drive, then what was slow and
//! what was not judged.

use diskvitals_analyze::io::{IoAnalysis, IoDrive, Times, Verdict};
use diskvitals_terminal::layout::{counted, heading, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, strong, table, toned};

const DRIVES: [Column<IoDrive>; 5] = [
    column("DRIVE", 0, 0, |it, _| strong(escape_control(&it.name))),
    column("MODEL", 10, 2, |it, _| plain(escape_control(&it.model))),
    column("VERDICT", 0, 0, |it, _| toned(verdict(it.verdict))),
    column("SLOW HOURS", 0, 0, |it, _| plain(it.slow_hours.len())),
    column("JUDGED", 0, 1, |it, _| plain(it.judged)),
];

fn verdict(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::NotJudged => ("not judged", Tone::Faint),
        Verdict::Usual => ("usual", Tone::Good),
        Verdict::SlowHours => ("slow hours", Tone::Warning),
        Verdict::Slow => ("slow", Tone::Critical),
    }
}

/// The text for one file of `analyze io`.
pub fn text(io: &IoAnalysis, screen: &Screen) -> String {
    let mut text = heading(&escape_control(&io.file), screen);
    if let Some((begin, end)) = io.begin.zip(io.end) {
        text.push_str(&format!("from {} to {}\n", local(begin, screen), local(end, screen)));
    }
    if io.drives.is_empty() {
        text.push_str("no SCSI, SATA or NVMe drive\n");
    }
    text.push_str(&table(&DRIVES, &io.drives, screen));
    for drive in &io.drives {
        let name = escape_control(&drive.name);
        let mut note =
            |words: String| text.push_str(&wrapped(&format!("{name}: {words}"), "", screen));
        if let Some(worst) = &drive.worst {
            note(times(worst));
        }
        if let Some(first) = drive.slow_hours.first() {
            let hours = counted(drive.slow_hours.len() as u64, "slow hour");
            note(format!("{hours}, the first from {}", local(*first, screen)));
        }
        if drive.common_cause_hours > 0 {
            let hours = counted(drive.common_cause_hours, "hour");
            note(format!(
                "{hours} slow together with more than a third of the drives: a common cause"
            ));
        }
        drive.not_judged.iter().for_each(|why| note(format!("not judged: {why}")));
    }
    text
}

/// As "reads of up to 24 KiB took 71 ms (4 peers: 11 ms; its own usual: 14 ms at most)".
fn times(times: &Times) -> String {
    let peers = times.peers.zip(times.peer_count);
    let references: Vec<String> = [
        peers.map(|(peers, count)| format!("{count} peers: {} ms", shown(peers))),
        times.usual.map(|usual| format!("its own usual: {} ms at most", shown(usual))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let references = match references.is_empty() {
        true => String::new(),
        false => format!(" ({})", references.join("; ")),
    };
    format!("{} took {} ms{references}", times.requests, shown(times.now))
}

fn shown(milliseconds: f64) -> String {
    if milliseconds < 10.0 { format!("{milliseconds:.2}") } else { format!("{milliseconds:.0}") }
}

fn local(time: jiff::Timestamp, screen: &Screen) -> String {
    time.to_zoned(screen.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_terminal::fixture::screen;
    use jiff::Timestamp;

    #[test]
    fn the_slow_drive_is_told_with_its_peers_and_the_others_with_why_not() {
        let slow = Times {
            requests: "reads of up to 24 KiB".to_owned(),
            now: 71.4,
            peers: Some(11.2),
            peer_count: Some(4),
            usual: None,
        };
        let drive = |name: &str, verdict, worst| IoDrive {
            name: name.to_owned(),
            model: "WDC WD80EFAX".to_owned(),
            verdict,
            not_judged: Vec::new(),
            judged: 60,
            slow: 0,
            slow_hours: Vec::new(),
            common_cause_hours: 0,
            worst,
            cells: Vec::new(),
        };
        let hour = Timestamp::from_second(1_764_000_000).expect("a time");
        let sdc = IoDrive {
            slow_hours: vec![hour, hour],
            ..drive("sdc", Verdict::SlowHours, Some(slow))
        };
        let idle = IoDrive {
            judged: 0,
            not_judged: vec!["too little load".to_owned()],
            ..drive("sdd", Verdict::NotJudged, None)
        };
        let drives = vec![drive("sda", Verdict::Usual, None), sdc, idle];
        let io =
            IoAnalysis { file: "node7.io".to_owned(), begin: Some(hour), end: Some(hour), drives };
        insta::assert_snapshot!(text(&io, &screen(Some(80))));
    }
}
