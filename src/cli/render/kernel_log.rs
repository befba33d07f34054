//! The analysis of a kernel log, for people: devices, each with its errors.

use diskvitals_analyze::kernel_log_analysis::{
    DeviceSummary, EventLine, KernelLogAnalysis, LogHealth, Unreadable,
};
use diskvitals_kernel_log::event::Class;
use diskvitals_kernel_log::fault::DriveFault;
use diskvitals_terminal::layout::heading;
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, strong, table, toned};

const DEVICES: [Column<DeviceSummary>; 6] = [
    column("DEVICE", 0, 0, |it, _| strong(&it.device)),
    column("DRIVE AT FAULT", 0, 0, |it, _| toned(fault(it.drive_fault))),
    column("WHAT", 20, 0, |it, _| plain(classes(it))),
    column("WHY", 20, 1, |it, _| plain(it.fault_reason)),
    column("SECTORS", 0, 2, |it, _| plain(unless_zero(it.distinct_sectors))),
    column("NOT PRINTED", 0, 1, |it, _| (unless_zero(it.suppressed), Tone::Faint)),
];
const EVENTS: [Column<EventLine>; 4] = [
    column("LINE", 0, 1, |it, _| toned((it.line, Tone::Faint))),
    column("CLASS", 0, 0, |it, _| toned((it.class.name(), class_tone(it.class)))),
    column("DEVICE", 0, 0, |it, _| plain(&it.device)),
    column("TEXT", 30, 0, |it, _| plain(it.text.lines().next().unwrap_or_default())),
];
/// Maximum number of events that are shown; JSON has more.
const MAX_EVENTS: usize = 20;

pub fn text(log: &KernelLogAnalysis, screen: &Screen) -> String {
    let mut text = heading(&escape_control(&log.file), screen);
    match log.health {
        LogHealth::Unknown => {
            text.push_str(&unknown(log));
            return text;
        }
        LogHealth::Clean => {
            text.push_str(&format!(
                "{} records of the kernel, none of them about a failing drive or filesystem\n",
                log.records
            ));
            text.push_str(&not_understood(log));
            return text;
        }
        LogHealth::Errors => {}
    }
    text.push_str(&table(&DEVICES, &log.devices, screen));
    text.push('\n');
    text.push_str(&table(&EVENTS, log.events.iter().take(MAX_EVENTS), screen));
    let left = log.events.len().saturating_sub(MAX_EVENTS) as u64 + log.more_events;
    if left > 0 {
        text.push_str(&format!("and {left} more\n"));
    }
    text.push_str(&format!("{} records of the kernel\n", log.records));
    text.push_str(&not_understood(log));
    text
}

/// Nothing was found because nothing, or too little, was understood.
fn unknown(log: &KernelLogAnalysis) -> String {
    let why = match log.records {
        0 => "no record of the kernel was found in it".to_owned(),
        records => format!("{records} records of the kernel, but most lines were not understood"),
    };
    format!(
        "UNKNOWN: {why}: this says nothing about drives and filesystems\n{}",
        not_understood(log)
    )
}

/// How many lines, and one of them.
fn not_understood(log: &KernelLogAnalysis) -> String {
    let Some(example) = &log.example else {
        return String::new();
    };
    let lines = match log.lines_not_understood {
        1 => "1 line was".to_owned(),
        lines => format!("{lines} lines were"),
    };
    format!(
        "{lines} not understood, for example line {}: {}\n",
        example.line,
        escape_control(&example.text)
    )
}

pub fn unreadable(answer: &Unreadable) -> String {
    let unknown = answer.health.map_or("", |_| "UNKNOWN: ");
    format!("{}: {unknown}{}\n", escape_control(&answer.file), escape_control(&answer.error))
}

fn unless_zero(number: u64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

fn classes(device: &DeviceSummary) -> String {
    let classes = device.classes.iter().map(|(class, count)| format!("{count} {}", class.name()));
    classes.collect::<Vec<_>>().join(", ")
}

fn class_tone(class: Class) -> Tone {
    match class {
        Class::Medium => Tone::Critical,
        _ => Tone::Warning,
    }
}

fn fault(fault: DriveFault) -> (&'static str, Tone) {
    match fault {
        DriveFault::Yes => ("likely", Tone::Critical),
        DriveFault::Unclear => ("unclear", Tone::Warning),
        DriveFault::No => ("no", Tone::Good),
    }
}
