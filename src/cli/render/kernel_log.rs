//! The analysis of a kernel log, for people: devices, each with its errors.

use diskvitals_analyze::kernel_log_analysis::{KernelLogAnalysis, LogHealth, Unreadable};
use diskvitals_kernel_log::event::Class;
use diskvitals_kernel_log::fault::DriveFault;
use diskvitals_terminal::layout::heading;
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Column, column, plain, table};

const DEVICES: [Column; 6] = [
    column("DEVICE", 0, 0),
    column("DRIVE AT FAULT", 0, 0),
    column("WHAT", 20, 0),
    column("WHY", 20, 1),
    column("SECTORS", 0, 2),
    column("NOT PRINTED", 0, 1),
];
const EVENTS: [Column; 4] =
    [column("LINE", 0, 1), column("CLASS", 0, 0), column("DEVICE", 0, 0), column("TEXT", 30, 0)];
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
    let number = |number: u64| match number {
        0 => String::new(),
        number => number.to_string(),
    };
    let rows = log.devices.iter().map(|device| {
        let what: Vec<String> = device
            .classes
            .iter()
            .map(|(class, count)| format!("{count} {}", class.name()))
            .collect();
        vec![
            (device.device.clone(), Tone::Strong),
            fault(device.drive_fault),
            plain(what.join(", ")),
            plain(device.fault_reason),
            plain(number(device.distinct_sectors)),
            (number(device.suppressed), Tone::Faint),
        ]
    });
    text.push_str(&table(&DEVICES, rows, screen));
    text.push('\n');
    let rows = log.events.iter().take(MAX_EVENTS).map(|event| {
        let tone = match event.class {
            Class::Medium => Tone::Critical,
            _ => Tone::Warning,
        };
        vec![
            (event.line.to_string(), Tone::Faint),
            (event.class.name().to_owned(), tone),
            plain(&event.device),
            plain(event.text.lines().next().unwrap_or_default()),
        ]
    });
    text.push_str(&table(&EVENTS, rows, screen));
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

fn fault(fault: DriveFault) -> (String, Tone) {
    match fault {
        DriveFault::Yes => ("likely".to_owned(), Tone::Critical),
        DriveFault::Unclear => ("unclear".to_owned(), Tone::Warning),
        DriveFault::No => ("no".to_owned(), Tone::Good),
    }
}
