//! SMART data for people: a drive's section, its attributes, their history, a self-test, a recorded
//! smartctl output.

pub mod file;
pub mod history;
pub mod self_test;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use diskvitals_terminal::layout::{heading, label_value_lines, labelled};
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table, toned};
use diskvitals_wire as wire;

const ATTRIBUTES: [Column<wire::SmartAttribute>; 8] = [
    column("ID", 0, 0, |it, _| strong(it.id)),
    column("NAME", 12, 0, |it, _| by_failure(&it.name, it)),
    column("VALUE", 0, 0, |it, _| by_failure(it.value, it)),
    column("WORST", 0, 2, |it, _| plain(it.worst)),
    column("THRESHOLD", 0, 1, |it, _| plain(it.threshold.map_or("".into(), |it| it.to_string()))),
    column("MEANS", 0, 3, |it, _| toned((means(it), Tone::Faint))),
    column("FAILED", 0, 0, |it, _| by_failure(&it.failed, it)),
    column("RAW", 8, 0, |it, _| plain(&it.raw_text)),
];
/// Maximum number of self-tests that are shown; JSON has more.
const MAX_SELF_TESTS: usize = 5;

/// `36 °C`, for the table of drives.
pub fn temperature(drive: &wire::Drive) -> String {
    drive
        .smart
        .as_ref()
        .and_then(|smart| smart.temperature_celsius)
        .map(|celsius| format!("{celsius} °C"))
        .unwrap_or_default()
}

/// The used share of the designed life; of eMMC and UFS in tenths.
pub fn wear(drive: &wire::Drive) -> String {
    let wear = drive.smart.as_ref().and_then(|smart| smart.wear_percent);
    let wear = wear.or_else(|| drive.flash.as_ref()?.used_percent);
    wear.map(|percent| format!("{percent} %")).unwrap_or_default()
}

pub fn power_on_hours(drive: &wire::Drive) -> String {
    let hours = drive.smart.as_ref().and_then(|smart| smart.power_on_hours);
    hours.map(|hours| hours.to_string()).unwrap_or_default()
}

/// `asleep, last asked 9 h ago`, of a drive that is left alone.
pub(crate) fn rest(drive: &wire::Drive, screen: &Screen) -> Option<String> {
    let smart = drive.smart.as_ref();
    let is_asleep = smart.is_some_and(|it| it.state() == wire::smart::State::Asleep);
    let word = match (drive.asleep || is_asleep, smart.is_some_and(|it| it.idle)) {
        (true, _) => "asleep",
        (false, true) => "idle",
        (false, false) => return None,
    };
    let asked = smart.and_then(|it| it.asked.as_ref());
    let asked = asked.map(|asked| format!(", last asked {}", screen.ago(Some(asked))));
    Some(word.to_owned() + &asked.unwrap_or_default())
}

/// The SMART section; empty if the drive is not polled for SMART data.
pub fn section(drive: &wire::Drive, screen: &Screen) -> String {
    let Some(smart) = &drive.smart else {
        return String::new();
    };
    let power = smart.power_on_hours.map(hours).unwrap_or_default();
    let cycles =
        smart.power_cycles.map(|cycles| format!("{cycles} power cycles")).unwrap_or_default();
    let value = |metric: &str| smart.values.iter().find(|value| value.metric == metric);
    let percent = |metric: &str, latest: Option<u32>, what: &str| match (value(metric), latest) {
        (Some(value), _) => format!("{} % {what}{}", value.value, change_text(value, " %", screen)),
        (None, Some(latest)) => format!("{latest} % {what}"),
        (None, None) => String::new(),
    };
    let days_left = smart.wear_days_left;
    let days_left =
        days_left.map(|days| format!("; 100 % in {days} days at its rate")).unwrap_or_default();
    let device = match (&smart.device[..], &smart.device_type[..]) {
        (device, "") => device.to_owned(),
        (device, kind) => format!("{device} as {kind}"),
    };
    let mut lines: Vec<(String, String)> = [
        ("state", state(smart, screen)),
        ("self-assessment", painted_verdict(smart.passed, screen)),
        ("temperature", temperature(drive)),
        (
            "powered on",
            [power, cycles]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("wear", percent("wear_percent", smart.wear_percent, "used") + &days_left),
        ("spare", percent("spare_percent", smart.spare_percent, "left")),
    ]
    .map(|(label, text)| (label.to_owned(), text))
    .into();
    let own_line = ["temperature", "power_on_hours", "wear_percent", "spare_percent"];
    let counts = || smart.values.iter().filter(|value| !own_line.contains(&value.metric.as_str()));
    let quiet = |value: &&wire::SmartValue| value.value == 0 && value.changed.is_none();
    lines.extend(counts().filter(|value| !quiet(value)).map(|value| {
        (label(&value.metric), format!("{}{}", value.value, change_text(value, "", screen)))
    }));
    let zero: Vec<String> = counts().filter(quiet).map(|value| label(&value.metric)).collect();
    lines.push(("at zero".to_owned(), zero.join(", ")));
    let owned = |(label, text): (&str, String)| (label.to_owned(), text);
    lines.extend(labelled("self-tests", self_tests(smart)).map(owned));
    if !smart.attributes.is_empty() {
        lines.push((
            "attributes".to_owned(),
            format!("{}: --attributes shows them", smart.attributes.len()),
        ));
    }
    lines.push(("family".to_owned(), escape_control(&smart.family)));
    lines.push(("device".to_owned(), escape_control(&device)));
    let messages = smart.messages.iter().map(|text| escape_control(text));
    lines.extend(labelled("smartctl", messages).map(owned));
    let notes = smart.notes.iter().map(|text| escape_control(text));
    lines.extend(labelled("left out", notes).map(owned));
    format!("\n{}{}", heading("SMART", screen), label_value_lines(&lines))
}

/// The result of the last poll, and the age of the values below it.
fn state(smart: &wire::Smart, screen: &Screen) -> String {
    use wire::smart::State;
    let detail = if smart.detail.is_empty() {
        String::new()
    } else {
        format!(": {}", screen.message(&smart.detail))
    };
    let age = || match &smart.answered {
        Some(answered) => format!("; the values below are from {}", screen.ago(Some(answered))),
        None => "; it has reported no data yet".to_owned(),
    };
    let asked = || screen.ago(smart.asked.as_ref());
    match smart.state() {
        State::Answered if smart.idle => {
            format!("idle, last asked {}; not asked until its next I/O{}", asked(), age())
        }
        State::Answered => format!("answered {}", screen.ago(smart.answered.as_ref())),
        State::Waiting | State::Unspecified => "not polled yet".to_owned(),
        State::Asleep if smart.detail.is_empty() => {
            format!("asleep, last asked {}{}", asked(), age())
        }
        State::Asleep => {
            format!("asleep ({}), last asked {}{}", screen.message(&smart.detail), asked(), age())
        }
        State::NotApplicable => format!("not applicable{detail}"),
        State::Failed => screen
            .paint(Tone::Warning, format!("polled without success {}{detail}{}", asked(), age())),
        State::Stuck => screen.paint(Tone::Warning, format!("stuck{detail}{}", age())),
    }
}

/// `, 12 more than on …, changed 2 h ago`; empty for a value that never changed.
fn change_text(value: &wire::SmartValue, unit: &str, screen: &Screen) -> String {
    let since = match screen.ago(value.first_time.as_ref()) {
        recent if recent.ends_with("ago") => recent,
        time => format!("at {time}"),
    };
    let changed = value
        .changed
        .as_ref()
        .map(|time| format!(", last changed {}", screen.ago(Some(time))))
        .unwrap_or_default();
    match value.value.cmp(&value.first) {
        Ordering::Greater => {
            format!(" ({}{unit} more than {since}{changed})", value.value - value.first)
        }
        Ordering::Less => {
            format!(" ({}{unit} less than {since}{changed})", value.first - value.value)
        }
        Ordering::Equal if value.changed.is_some() => format!(" (as {since}{changed})"),
        Ordering::Equal => {
            format!(" (unchanged since {})", screen.date_time(value.first_time.as_ref()))
        }
    }
}

/// How long ago this power-on hour was; None: unknown. The logs of ATA and SCSI have 16 bits for
/// it, so an old drive's hour may be any that has wrapped to this one.
fn hours_since(now: u64, at: u64) -> Option<u64> {
    let may_have_wrapped = now > u64::from(u16::MAX) && at <= u64::from(u16::MAX);
    now.checked_sub(at).filter(|_| !may_have_wrapped)
}

pub fn self_tests(smart: &wire::Smart) -> Vec<String> {
    let Some(tests) = &smart.self_tests else {
        return Vec::new();
    };
    let running =
        tests.running_remaining_percent.map(|remaining| format!("one runs, {remaining} % remain"));
    let one = |test: &wire::SelfTest| {
        let when =
            test.hours.map(|at| match smart.power_on_hours.and_then(|now| hours_since(now, at)) {
                Some(ago) => format!(", {ago} hours of power ago"),
                None => format!(", at hour {at}"),
            });
        let place = test.lba.map(|lba| format!(", first at LBA {lba}")).unwrap_or_default();
        format!(
            "{} {}: {}{place}{}",
            escape_control(&test.kind),
            escape_control(&test.outcome),
            escape_control(&test.text),
            when.unwrap_or_default()
        )
    };
    let more = tests.log.len().saturating_sub(MAX_SELF_TESTS);
    let more = (more > 0).then(|| format!("and {more} older"));
    running.into_iter().chain(tests.log.iter().take(MAX_SELF_TESTS).map(one)).chain(more).collect()
}

/// The table of ATA attributes.
pub fn attributes(drive: &wire::Drive, screen: &Screen) -> String {
    let attributes =
        drive.smart.as_ref().map(|smart| smart.attributes.as_slice()).unwrap_or_default();
    if attributes.is_empty() {
        return "no attributes: the drive has reported none, or it is not an ATA drive\n"
            .to_owned();
    }
    let smart = drive.smart.as_ref();
    let age = smart.map(|smart| screen.ago(smart.answered.as_ref())).unwrap_or_default();
    format!(
        "{}{}",
        heading(&format!("attributes of {}, read {age}", escape_control(&drive.id)), screen),
        table(&ATTRIBUTES, attributes, screen)
    )
}

fn by_failure(text: impl ToString, attribute: &wire::SmartAttribute) -> Cell {
    let tone = match attribute.failed.as_str() {
        "now" => Tone::Critical,
        "past" => Tone::Warning,
        _ => Tone::Plain,
    };
    toned((text, tone))
}

fn means(attribute: &wire::SmartAttribute) -> &'static str {
    if attribute.prefailure { "failure" } else { "old age" }
}

/// `reported_uncorrectable` → `reported uncorrectable`.
pub fn label(metric: &str) -> String {
    let name = metric.strip_suffix("_percent").unwrap_or(metric);
    escape_control(&name.replace('_', " ").replace("crc", "CRC"))
}

/// With its unit, which is the same for each value of a series.
pub(crate) fn label_with_unit(metric: &str) -> String {
    let unit = match metric {
        "temperature" => "°C",
        "latency" => "µs",
        "power_on_hours" => return label(metric),
        _ if metric.ends_with("_percent") => "%",
        _ => return label(metric),
    };
    format!("{}, {unit}", label(metric))
}

pub fn verdict(passed: Option<bool>) -> &'static str {
    match passed {
        Some(true) => "passed",
        Some(false) => "FAILED",
        None => "",
    }
}

fn painted_verdict(passed: Option<bool>, screen: &Screen) -> String {
    match passed {
        Some(false) => screen.paint(Tone::Critical, verdict(passed)),
        _ => verdict(passed).to_owned(),
    }
}

/// `29798 h (3.4 years)`
pub fn hours(hours: u64) -> String {
    if hours < 8766 {
        format!("{hours} h")
    } else {
        format!("{hours} h ({:.1} years)", hours as f64 / 8766.0)
    }
}
