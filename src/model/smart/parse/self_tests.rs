//! Self-tests: what runs, what ran and how it ended. ATA's from every version, SCSI's from 7.3,
//! NVMe's from 7.4.

use crate::model::smart::parse::fields::Field;
use crate::model::smart::report::{BY_STATUS, Outcome, SelfTest, SelfTests};

/// ATA's standard log holds 21, NVMe's and SCSI's 20.
const MOST: usize = 24;

pub fn self_tests(root: Field<'_>) -> SelfTests {
    let now = root.get("ata_smart_data").get("self_test");
    let minutes = now.get("polling_minutes");
    let nvme = root.get("nvme_self_test_log");
    let long_seconds = root.number("scsi_extended_self_test_seconds");
    let long = long_seconds
        .and_then(|seconds| u32::try_from(seconds.div_ceil(60)).ok())
        .or_else(|| minutes.get("extended").amount());
    let log = log(root);
    let told = log.is_some();
    let last = if told {
        None
    } else {
        of_the_last(now.get("status"))
    };
    SelfTests {
        running: ata_running(now.get("status")).or_else(|| nvme_running(nvme)),
        log: log.unwrap_or_else(|| only_the_last(now.get("status")).into_iter().collect()),
        told,
        last,
        short_minutes: minutes.get("short").amount().filter(|minutes| *minutes > 0),
        long_minutes: long.filter(|minutes| *minutes > 0),
    }
}

/// None: it was not read. An empty log of SCSI is not told either; it never becomes empty again.
fn log(root: Field<'_>) -> Option<Vec<SelfTest>> {
    let ata = root.get("ata_smart_self_test_log");
    // The extended log has 48 bits for a sector's number, the standard one 28.
    let ata = ["extended", "standard"]
        .map(|name| ata.get(name))
        .into_iter()
        .find(|log| log.number("count").is_some() || log.get("table").is_some());
    if let Some(log) = ata {
        return Some(
            log.get("table")
                .items()
                .filter_map(ata_test)
                .take(MOST)
                .collect(),
        );
    }
    let nvme = root.get("nvme_self_test_log");
    if nvme.is_object() {
        return Some(
            nvme.get("table")
                .items()
                .filter_map(nvme_test)
                .take(MOST)
                .collect(),
        );
    }
    let scsi: Vec<SelfTest> = (0..20)
        .map_while(|number| scsi_test(root.get(&format!("scsi_self_test_{number}"))))
        .collect();
    (!scsi.is_empty()).then_some(scsi)
}

/// Self-test execution status, ACS-4: the high nibble how it goes, the low one what remains in
/// tenths.
fn ata_running(status: Field<'_>) -> Option<u8> {
    let remaining = status.get("remaining_percent").amount::<u8>();
    match status.number("value") {
        Some(value) if value >> 4 == 15 => {
            remaining.or_else(|| u8::try_from((value & 15) * 10).ok())
        }
        Some(_) => None,
        None => remaining.filter(|_| {
            status
                .get("string")
                .text()
                .is_some_and(|words| words.contains("in progress"))
        }),
    }
}

fn ata_test(entry: Field<'_>) -> Option<SelfTest> {
    let kind = entry.get("type");
    let status = entry.get("status");
    let name = kind.get("string").text().unwrap_or_default();
    Some(SelfTest {
        // 2: extended, 82h: extended, captive.
        extended: matches!(kind.number("value"), Some(0x02 | 0x82)) || name.starts_with("Extended"),
        kind: name,
        outcome: ata_outcome(status)?,
        text: status.get("string").text().unwrap_or_default(),
        hours: entry.number("lifetime_hours"),
        lba: entry.number("lba"),
    })
}

/// ACS-4, self-test execution status: 1 aborted by the host, 2 interrupted by a reset, 3 to 8 the
/// drive found a fault, 15 runs.
fn ata_outcome(status: Field<'_>) -> Option<Outcome> {
    if let Some(value) = status.number("value") {
        return Some(match value >> 4 {
            0 => Outcome::Passed,
            3..=8 => Outcome::Failed,
            15 => Outcome::Running,
            _ => Outcome::Other,
        });
    }
    let words = status
        .get("string")
        .text()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is = |part: &str| words.contains(part);
    if is("aborted") || is("interrupted") {
        return Some(Outcome::Other);
    }
    if is("in progress") {
        return Some(Outcome::Running);
    }
    match status.get("passed").truth() {
        Some(true) => Some(Outcome::Passed),
        Some(false) => Some(Outcome::Failed),
        None if is("without error") => Some(Outcome::Passed),
        None if is("failure") || is("fatal") || is("damage") => Some(Outcome::Failed),
        None => status.is_object().then_some(Outcome::Other),
    }
}

/// The last test by the drive's status; the one that runs and the one that was broken off say
/// nothing of those before.
fn of_the_last(status: Field<'_>) -> Option<Outcome> {
    ata_outcome(status).filter(|outcome| matches!(outcome, Outcome::Passed | Outcome::Failed))
}

/// Where the log was not read, a failure is told by the status of the last test.
fn only_the_last(status: Field<'_>) -> Option<SelfTest> {
    let text = status.get("string").text()?;
    let failed = ata_outcome(status).filter(|outcome| *outcome == Outcome::Failed)?;
    Some(SelfTest {
        kind: BY_STATUS.to_owned(),
        outcome: failed,
        text,
        ..SelfTest::default()
    })
}

fn nvme_running(log: Field<'_>) -> Option<u8> {
    log.get("current_self_test_operation")
        .number("value")
        .filter(|operation| *operation != 0)?;
    let done = log
        .get("current_self_test_completion_percent")
        .amount::<u8>()
        .unwrap_or(0);
    Some(100_u8.saturating_sub(done))
}

/// NVM Express Base 2.0, Device Self-test log: 5 to 7 failed, 1 to 4, 8 and 9 aborted, 15 is no
/// entry.
fn nvme_test(entry: Field<'_>) -> Option<SelfTest> {
    let (code, result) = (entry.get("self_test_code"), entry.get("self_test_result"));
    let outcome = match result.number("value")? {
        0 => Outcome::Passed,
        5..=7 => Outcome::Failed,
        15 => return None,
        _ => Outcome::Other,
    };
    Some(SelfTest {
        kind: code.get("string").text().unwrap_or_default(),
        extended: code.number("value") == Some(2),
        outcome,
        text: result.get("string").text().unwrap_or_default(),
        hours: entry.number("power_on_hours"),
        lba: entry.number("lba"),
    })
}

/// SPC-6, Self-Test Results log page: 3 to 7 failed, 1 and 2 aborted, 15 runs.
fn scsi_test(entry: Field<'_>) -> Option<SelfTest> {
    let (code, result) = (entry.get("code"), entry.get("result"));
    let outcome = match result.number("value")? {
        0 => Outcome::Passed,
        3..=7 => Outcome::Failed,
        15 => Outcome::Running,
        _ => Outcome::Other,
    };
    Some(SelfTest {
        kind: code.get("string").text().unwrap_or_default(),
        // 2: background extended, 6: foreground extended.
        extended: matches!(code.number("value"), Some(2 | 6)),
        outcome,
        text: result.get("string").text().unwrap_or_default(),
        hours: entry.get("power_on_time").number("hours"),
        lba: entry.get("lba_first_failure").number("value"),
    })
}
