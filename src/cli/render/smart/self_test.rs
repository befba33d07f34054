//! The progress of a self-test: one line per change.

use crate::args::TestKind;
use crate::self_test::{SelfTestProgress, minutes, self_tests};
use diskvitals_terminal::screen::{escape_control, or_dash};
use diskvitals_wire as wire;

/// `first`: the test was not known to run before.
pub fn line(
    progress: &SelfTestProgress,
    first: bool,
    kind: TestKind,
    drive: &wire::Drive,
) -> String {
    let name = escape_control(or_dash(if drive.name.is_empty() { &drive.id } else { &drive.name }));
    let kind_of = match kind {
        TestKind::Short => "short",
        TestKind::Long => "long",
    };
    let text = match progress {
        SelfTestProgress::Requested => format!("{name}: {kind_of} self-test requested"),
        SelfTestProgress::Refused(why) => format!("{name}: refused: {}", escape_control(why)),
        SelfTestProgress::Running(remaining) => {
            let remaining =
                remaining.map(|remaining| format!(", {remaining} % remain")).unwrap_or_default();
            let takes = if first { expected_duration(drive, kind) } else { String::new() };
            format!("{name}: the {kind_of} self-test runs{remaining}{takes}")
        }
        SelfTestProgress::Finished(test) => {
            let place = test.lba.map(|lba| format!(", first at LBA {lba}")).unwrap_or_default();
            format!(
                "{name}: {}: {}{place}",
                escape_control(&test.outcome),
                escape_control(&test.text)
            )
        }
        SelfTestProgress::ResultUnknown => {
            format!("{name}: the drive reports no result: the test is over or never started")
        }
        SelfTestProgress::NotStarted => format!(
            "{name}: the daemon has not polled the drive yet; `diskvitals drive` shows the polling state"
        ),
    };
    format!("{text}\n")
}

fn expected_duration(drive: &wire::Drive, kind: TestKind) -> String {
    let takes = match self_tests(drive).map_or(0, |tests| minutes(tests, kind)) {
        0 => "the drive does not report its duration".to_owned(),
        minutes @ 1..120 => format!("it takes about {minutes} min"),
        minutes => format!("it takes about {} h", minutes.div_ceil(60)),
    };
    format!("; {takes}, and it goes on without this command")
}
