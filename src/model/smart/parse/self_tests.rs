//! Self-tests: the running one, and the log of results. ATA in every version, SCSI from 7.3, NVMe
//! from 7.4 on.

use crate::model::smart::parse::fields::Field;
use crate::model::smart::report::{STATUS_ONLY_KIND, SelfTest, SelfTestOutcome, SelfTests};

/// ATA's standard log has 21 entries, NVMe's and SCSI's 20.
const MAX_ENTRIES: usize = 24;

pub(crate) fn self_tests(root: Field<'_>) -> SelfTests {
    let now = root.get("ata_smart_data").get("self_test");
    let minutes = now.get("polling_minutes");
    let nvme = root.get("nvme_self_test_log");
    let long_seconds = root.get_u64("scsi_extended_self_test_seconds");
    let long = long_seconds
        .and_then(|seconds| u32::try_from(seconds.div_ceil(60)).ok())
        .or_else(|| minutes.get("extended").as_unsigned());
    let log = log(root);
    let log_read = log.is_some();
    let last = if log_read {
        None
    } else {
        last_outcome(now.get("status"))
    };
    SelfTests {
        running: ata_running(now.get("status")).or_else(|| nvme_running(nvme)),
        log: log.unwrap_or_else(|| {
            last_failure_by_status(now.get("status"))
                .into_iter()
                .collect()
        }),
        log_read,
        last,
        short_minutes: minutes
            .get("short")
            .as_unsigned()
            .filter(|minutes| *minutes > 0),
        long_minutes: long.filter(|minutes| *minutes > 0),
    }
}

/// None: the log was not read. smartctl does not report an empty SCSI log either; a log never
/// becomes empty again.
fn log(root: Field<'_>) -> Option<Vec<SelfTest>> {
    let ata = root.get("ata_smart_self_test_log");
    // The extended log has 48 bits for a sector's number, the standard one 28.
    let ata = ["extended", "standard"]
        .map(|name| ata.get(name))
        .into_iter()
        .find(|log| log.get_u64("count").is_some() || log.get("table").is_some());
    if let Some(log) = ata {
        return Some(table_entries(log, ata_test));
    }
    let nvme = root.get("nvme_self_test_log");
    if nvme.is_object() {
        return Some(table_entries(nvme, nvme_test));
    }
    let scsi: Vec<SelfTest> = (0..20)
        .map_while(|number| scsi_test(root.get(&format!("scsi_self_test_{number}"))))
        .collect();
    (!scsi.is_empty()).then_some(scsi)
}

fn table_entries(log: Field<'_>, parse: fn(Field<'_>) -> Option<SelfTest>) -> Vec<SelfTest> {
    let rows = log.get("table").items();
    rows.filter_map(parse).take(MAX_ENTRIES).collect()
}

/// Self-test execution status, ACS-4: the high nibble is the state, the low one the remaining
/// tenths.
fn ata_running(status: Field<'_>) -> Option<u8> {
    let remaining = status.get("remaining_percent").as_unsigned::<u8>();
    match status.get_u64("value") {
        Some(value) if value >> 4 == 15 => {
            remaining.or_else(|| u8::try_from((value & 15) * 10).ok())
        }
        Some(_) => None,
        None => remaining.filter(|_| {
            status
                .get("string")
                .as_text()
                .is_some_and(|words| words.contains("in progress"))
        }),
    }
}

fn ata_test(entry: Field<'_>) -> Option<SelfTest> {
    let kind = entry.get("type");
    let status = entry.get("status");
    let name = kind.get("string").as_text().unwrap_or_default();
    Some(SelfTest {
        // 2: extended, 82h: extended, captive.
        extended: matches!(kind.get_u64("value"), Some(0x02 | 0x82))
            || name.starts_with("Extended"),
        kind: name,
        outcome: ata_outcome(status)?,
        text: status.get("string").as_text().unwrap_or_default(),
        hours: entry.get_u64("lifetime_hours"),
        lba: entry.get_u64("lba"),
    })
}

/// ACS-4, self-test execution status: 1 aborted by the host, 2 interrupted by a reset, 3 to 8 the
/// drive found a fault, 15 runs.
fn ata_outcome(status: Field<'_>) -> Option<SelfTestOutcome> {
    if let Some(value) = status.get_u64("value") {
        return Some(match value >> 4 {
            0 => SelfTestOutcome::Passed,
            3..=8 => SelfTestOutcome::Failed,
            15 => SelfTestOutcome::Running,
            _ => SelfTestOutcome::Other,
        });
    }
    let words = status
        .get("string")
        .as_text()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is = |part: &str| words.contains(part);
    if is("aborted") || is("interrupted") {
        return Some(SelfTestOutcome::Other);
    }
    if is("in progress") {
        return Some(SelfTestOutcome::Running);
    }
    match status.get("passed").as_bool() {
        Some(true) => Some(SelfTestOutcome::Passed),
        Some(false) => Some(SelfTestOutcome::Failed),
        None if is("without error") => Some(SelfTestOutcome::Passed),
        None if is("failure") || is("fatal") || is("damage") => Some(SelfTestOutcome::Failed),
        None => status.is_object().then_some(SelfTestOutcome::Other),
    }
}

/// The result of the last test, from the drive's status. A running or aborted test proves nothing
/// about earlier ones.
fn last_outcome(status: Field<'_>) -> Option<SelfTestOutcome> {
    ata_outcome(status)
        .filter(|outcome| matches!(outcome, SelfTestOutcome::Passed | SelfTestOutcome::Failed))
}

/// Without the log, the status of the last test reports a failure.
fn last_failure_by_status(status: Field<'_>) -> Option<SelfTest> {
    let text = status.get("string").as_text()?;
    let failed = ata_outcome(status).filter(|outcome| *outcome == SelfTestOutcome::Failed)?;
    Some(SelfTest {
        kind: STATUS_ONLY_KIND.to_owned(),
        outcome: failed,
        text,
        ..SelfTest::default()
    })
}

fn nvme_running(log: Field<'_>) -> Option<u8> {
    log.get("current_self_test_operation")
        .get_u64("value")
        .filter(|operation| *operation != 0)?;
    let done = log
        .get("current_self_test_completion_percent")
        .as_unsigned::<u8>()
        .unwrap_or(0);
    Some(100_u8.saturating_sub(done))
}

/// NVM Express Base 2.0, Device Self-test log: 5 to 7 failed, 1 to 4, 8 and 9 aborted, 15 is no
/// entry.
fn nvme_test(entry: Field<'_>) -> Option<SelfTest> {
    let (code, result) = (entry.get("self_test_code"), entry.get("self_test_result"));
    let outcome = match result.get_u64("value")? {
        0 => SelfTestOutcome::Passed,
        5..=7 => SelfTestOutcome::Failed,
        15 => return None,
        _ => SelfTestOutcome::Other,
    };
    Some(SelfTest {
        kind: code.get("string").as_text().unwrap_or_default(),
        extended: code.get_u64("value") == Some(2),
        outcome,
        text: result.get("string").as_text().unwrap_or_default(),
        hours: entry.get_u64("power_on_hours"),
        lba: entry.get_u64("lba"),
    })
}

/// SPC-6, Self-Test Results log page: 3 to 7 failed, 1 and 2 aborted, 15 runs.
fn scsi_test(entry: Field<'_>) -> Option<SelfTest> {
    let (code, result) = (entry.get("code"), entry.get("result"));
    let outcome = match result.get_u64("value")? {
        0 => SelfTestOutcome::Passed,
        3..=7 => SelfTestOutcome::Failed,
        15 => SelfTestOutcome::Running,
        _ => SelfTestOutcome::Other,
    };
    Some(SelfTest {
        kind: code.get("string").as_text().unwrap_or_default(),
        // 2: background extended, 6: foreground extended.
        extended: matches!(code.get_u64("value"), Some(2 | 6)),
        outcome,
        text: result.get("string").as_text().unwrap_or_default(),
        hours: entry.get("power_on_time").get_u64("hours"),
        lba: entry.get("lba_first_failure").get_u64("value"),
    })
}
