//! A self-test on its way, a line for each news.

use crate::api::wire;
use crate::cli::args::TestKind;
use crate::cli::screen::{or_dash, plain};
use crate::cli::self_test::{Progress, minutes, tests};

/// `first`: it was not known to run before.
pub fn line(progress: &Progress, first: bool, kind: TestKind, drive: &wire::Drive) -> String {
    let name = plain(or_dash(if drive.name.is_empty() {
        &drive.id
    } else {
        &drive.name
    }));
    let kind_of = match kind {
        TestKind::Short => "short",
        TestKind::Long => "long",
    };
    let text = match progress {
        Progress::Asked => format!("{name}: asked for a {kind_of} self-test"),
        Progress::Refused(why) => format!("{name}: refused: {}", plain(why)),
        Progress::Runs(remaining) => {
            let remaining = remaining
                .map(|remaining| format!(", {remaining} % remain"))
                .unwrap_or_default();
            let takes = if first {
                takes(drive, kind)
            } else {
                String::new()
            };
            format!("{name}: the {kind_of} self-test runs{remaining}{takes}")
        }
        Progress::Ended(test) => {
            let place = test
                .lba
                .map(|lba| format!(", first at LBA {lba}"))
                .unwrap_or_default();
            format!(
                "{name}: {}: {}{place}",
                plain(&test.outcome),
                plain(&test.text)
            )
        }
        Progress::Untold => {
            format!("{name}: the drive does not tell how the test went: it is over, or never began")
        }
        Progress::NotTaken => format!(
            "{name}: the daemon has not got to the drive; diskvitals drive tells how it is asked"
        ),
    };
    format!("{text}\n")
}

fn takes(drive: &wire::Drive, kind: TestKind) -> String {
    let takes = match tests(drive).map_or(0, |tests| minutes(tests, kind)) {
        0 => "the drive does not tell how long it takes".to_owned(),
        minutes @ 1..120 => format!("it takes about {minutes} min"),
        minutes => format!("it takes about {} h", minutes.div_ceil(60)),
    };
    format!("; {takes}, and it goes on without this command")
}
