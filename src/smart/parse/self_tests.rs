//! Self-tests: the running one, and the log of results. ATA in every version, SCSI from 7.3, NVMe
//! from 7.4 on.

use crate::parse::fields::Field;
use crate::report::{STATUS_ONLY_KIND, SelfTest, SelfTestOutcome, SelfTests};

/// ATA's standard log has 21 entries, NVMe's and SCSI's 20.
const MAX_ENTRIES: usize = 24;

/// ACS-4, self-test execution status: the tenths that remain are 0 to 9.
const MAX_REMAINING_TENTHS: u64 = 9;

/// An entry of a log.
enum Entry {
    Test(SelfTest),
    /// The place has never been used: nothing behind it has.
    Unused,
    /// It has codes that the standard reserves.
    Invalid,
}

/// `power_on_hours`: the drive's own.
pub(crate) fn self_tests(
    root: Field<'_>,
    power_on_hours: Option<u64>,
    notes: &mut Vec<String>,
) -> SelfTests {
    let now = root.get("ata_smart_data").get("self_test");
    let minutes = now.get("polling_minutes");
    let nvme = root.get("nvme_self_test_log");
    let long_seconds = root.get_u64("scsi_extended_self_test_seconds");
    let long = long_seconds
        .and_then(|seconds| u32::try_from(seconds.div_ceil(60)).ok())
        .or_else(|| minutes.get("extended").as_unsigned());
    let mut log = entries(root).map(|entries| valid_tests(entries, notes));
    drop_later_hours(log.iter_mut().flatten(), power_on_hours, notes);
    let log_read = log.is_some();
    let last = if log_read { None } else { last_outcome(now.get("status")) };
    SelfTests {
        running: ata_running(now.get("status")).or_else(|| nvme_running(nvme)),
        log: log.unwrap_or_else(|| last_failure_by_status(now.get("status")).into_iter().collect()),
        log_read,
        last,
        short_minutes: minutes.get("short").as_unsigned().filter(|minutes| *minutes > 0),
        long_minutes: long.filter(|minutes| *minutes > 0),
    }
}

/// None: the log was not read. smartctl does not report an empty SCSI log either; a log never
/// becomes empty again.
fn entries(root: Field<'_>) -> Option<Vec<Entry>> {
    let ata = root.get("ata_smart_self_test_log");
    // The extended log has 48 bits for a sector's number, the standard one 28.
    let ata = ["extended", "standard"]
        .map(|name| ata.get(name))
        .into_iter()
        .find(|log| log.get_u64("count").is_some() || log.get("table").is_some());
    if let Some(log) = ata {
        return Some(log.get("table").items().map(ata_entry).collect());
    }
    let nvme = root.get("nvme_self_test_log");
    if nvme.is_object() {
        return Some(nvme.get("table").items().map(nvme_entry).collect());
    }
    let numbers = (0..20).map(|number| root.get(&format!("scsi_self_test_{number}")));
    let scsi: Vec<Entry> = numbers.map(scsi_entry).collect();
    let any = scsi.iter().any(|entry| !matches!(entry, Entry::Unused));
    any.then_some(scsi)
}

/// The tests before the first unused place. Logs are filled without gaps, so what is behind it was
/// never written as a test (smartctl leaves the place of an unused entry empty).
fn valid_tests(entries: Vec<Entry>, notes: &mut Vec<String>) -> Vec<SelfTest> {
    let used =
        entries.iter().position(|entry| matches!(entry, Entry::Unused)).unwrap_or(entries.len());
    let behind = entries[used..].iter().filter(|entry| !matches!(entry, Entry::Unused)).count();
    let mut tests = Vec::new();
    let mut invalid = 0;
    for entry in entries.into_iter().take(used) {
        match entry {
            Entry::Test(test) if tests.len() < MAX_ENTRIES => tests.push(test),
            Entry::Test(_) | Entry::Unused => {}
            Entry::Invalid => invalid += 1,
        }
    }
    for (count, why) in [(behind, "behind unused ones"), (invalid, "with reserved codes")] {
        if count > 0 {
            let entries = if count == 1 { "entry" } else { "entries" };
            notes.push(format!("the self-test log has {count} {entries} {why}: not counted"));
        }
    }
    tests
}

/// Hours later than the drive's own make only the age of a test unknown: the counters of ATA and
/// SCSI have 16 bits and wrap, and some drives count other units than in their hours.
fn drop_later_hours<'a>(
    tests: impl Iterator<Item = &'a mut SelfTest>,
    own: Option<u64>,
    notes: &mut Vec<String>,
) {
    let Some(own) = own else { return };
    let later: Vec<String> = tests
        .filter_map(|test| test.hours.take_if(|hours| *hours > own))
        .map(|hours| hours.to_string())
        .collect();
    if !later.is_empty() {
        let hours = later.join(", ");
        notes.push(format!("the self-test log has tests at hour {hours}, later than the drive's own {own}: their age is unknown"));
    }
}

/// Self-test execution status, ACS-4: the high nibble is the state, the low one the remaining
/// tenths.
fn ata_running(status: Field<'_>) -> Option<u8> {
    let remaining = status.get("remaining_percent").as_unsigned::<u8>();
    match status.get_u64("value") {
        // A status with all bits set is none.
        Some(value) if value & 15 > MAX_REMAINING_TENTHS => None,
        Some(value) if value >> 4 == 15 => {
            remaining.or_else(|| u8::try_from((value & 15) * 10).ok())
        }
        Some(_) => None,
        None => remaining.filter(|_| {
            status.get("string").as_text().is_some_and(|words| words.contains("in progress"))
        }),
    }
}

fn ata_entry(entry: Field<'_>) -> Entry {
    let kind = entry.get("type");
    let status = entry.get("status");
    let name = kind.get("string").as_text().unwrap_or_default();
    let (code, value) = (kind.get_u64("value"), status.get_u64("value"));
    let hours = entry.get_u64("lifetime_hours");
    let zeros = (code, value, hours.unwrap_or(0)) == (Some(0), Some(0), 0);
    let ones = (code, value) == (Some(0xff), Some(0xff));
    if entry.is_none() || zeros || ones {
        return Entry::Unused;
    }
    // ACS-4, SMART EXECUTE OFF-LINE IMMEDIATE: subcommands; and the states of the status.
    let reserved_code = matches!(code, Some(0x05..=0x3f | 0x80 | 0x85..=0x8f | 0x100..));
    let reserved_status = value.is_some_and(|value| {
        matches!(value >> 4, 9..=14 | 16..) || value & 15 > MAX_REMAINING_TENTHS
    });
    if reserved_code || reserved_status {
        return Entry::Invalid;
    }
    let Some(outcome) = ata_outcome(status) else {
        return Entry::Invalid;
    };
    Entry::Test(SelfTest {
        // 2: extended, 82h: extended, captive.
        extended: matches!(code, Some(0x02 | 0x82)) || name.starts_with("Extended"),
        kind: name,
        outcome,
        text: status.get("string").as_text().unwrap_or_default(),
        hours,
        lba: entry.get_u64("lba"),
    })
}

/// ACS-4, self-test execution status: 1 aborted by the host, 2 interrupted by a reset, 3 to 8 the
/// drive found a fault, 15 runs.
fn ata_outcome(status: Field<'_>) -> Option<SelfTestOutcome> {
    if let Some(value) = status.get_u64("value") {
        if value & 15 > MAX_REMAINING_TENTHS {
            return None;
        }
        return Some(match value >> 4 {
            0 => SelfTestOutcome::Passed,
            3..=8 => SelfTestOutcome::Failed,
            15 => SelfTestOutcome::Running,
            _ => SelfTestOutcome::Other,
        });
    }
    let words = status.get("string").as_text().unwrap_or_default().to_ascii_lowercase();
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
    log.get("current_self_test_operation").get_u64("value").filter(|operation| *operation != 0)?;
    let done = log.get("current_self_test_completion_percent").as_unsigned::<u8>().unwrap_or(0);
    Some(100_u8.saturating_sub(done))
}

/// NVM Express Base 2.0, Device Self-test log: codes 1 short, 2 extended, 3 host-initiated refresh
/// (2.1), 14 vendor specific; results 5 to 7 failed, 1 to 4, 8 and 9 aborted, 15 is no entry.
fn nvme_entry(entry: Field<'_>) -> Entry {
    let (code, result) = (entry.get("self_test_code"), entry.get("self_test_result"));
    let number = code.get_u64("value");
    if entry.is_none() || number == Some(0) {
        return Entry::Unused;
    }
    let outcome = match result.get_u64("value") {
        Some(15) => return Entry::Unused,
        Some(0) => SelfTestOutcome::Passed,
        Some(5..=7) => SelfTestOutcome::Failed,
        Some(1..=9) => SelfTestOutcome::Other,
        Some(_) | None => return Entry::Invalid,
    };
    if !matches!(number, None | Some(1..=3 | 14)) {
        return Entry::Invalid;
    }
    Entry::Test(SelfTest {
        kind: code.get("string").as_text().unwrap_or_default(),
        extended: number == Some(2),
        outcome,
        text: result.get("string").as_text().unwrap_or_default(),
        hours: entry.get_u64("power_on_hours"),
        lba: entry.get_u64("lba"),
    })
}

/// SPC-6, Self-Test Results log page: codes 3 and 7 are reserved; results 3 to 7 failed, 1 and 2
/// aborted, 15 runs, 8 to 14 are reserved.
fn scsi_entry(entry: Field<'_>) -> Entry {
    if !entry.is_object() {
        return Entry::Unused;
    }
    let (code, result) = (entry.get("code"), entry.get("result"));
    let number = code.get_u64("value");
    let outcome = match result.get_u64("value") {
        Some(0) => SelfTestOutcome::Passed,
        Some(3..=7) => SelfTestOutcome::Failed,
        Some(15) => SelfTestOutcome::Running,
        Some(1..=2) => SelfTestOutcome::Other,
        Some(_) | None => return Entry::Invalid,
    };
    let hours = entry.get("power_on_time").get_u64("hours");
    if (number, outcome, hours) == (Some(0), SelfTestOutcome::Passed, Some(0)) {
        return Entry::Unused;
    }
    if !matches!(number, None | Some(0..=2 | 4..=6)) {
        return Entry::Invalid;
    }
    Entry::Test(SelfTest {
        kind: code.get("string").as_text().unwrap_or_default(),
        // 2: background extended, 6: foreground extended.
        extended: matches!(number, Some(2 | 6)),
        outcome,
        text: result.get("string").as_text().unwrap_or_default(),
        hours,
        lba: entry.get("lba_first_failure").get_u64("value"),
    })
}
