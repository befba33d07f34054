//! The result of `analyze kernel-log`: one object per file.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::coverage::{ExampleLine, Understanding};
use crate::smart::Health;
use diskvitals_kernel_log::classify::RejectedRequest;
use diskvitals_kernel_log::device_name;
use diskvitals_kernel_log::event::{Class, Event};
use diskvitals_kernel_log::fault::{DriveFault, FaultSummary};

/// Maximum number of events listed per file; all are counted.
pub(crate) const MAX_LISTED_EVENTS: usize = 200;

/// What a log says as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogHealth {
    /// No record of the kernel, or less than half of the lines was understood, and no error is among
    /// them.
    Unknown,
    /// Records of the kernel, and no error of a drive or a filesystem.
    Clean,
    Errors,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelLogAnalysis {
    pub file: String,
    pub health: LogHealth,
    /// Number of records that the kernel wrote.
    pub records: u64,
    /// Lines in no known form.
    pub lines_not_understood: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<ExampleLine>,
    pub classes: BTreeMap<Class, u64>,
    pub drive_fault: DriveFault,
    pub devices: Vec<DeviceSummary>,
    /// The first `MAX_LISTED_EVENTS`.
    pub events: Vec<EventLine>,
    /// Number of further events.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_events: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSummary {
    pub device: String,
    pub classes: BTreeMap<Class, u64>,
    pub drive_fault: DriveFault,
    /// Why, in words.
    pub fault_reason: &'static str,
    pub distinct_sectors: u64,
    pub suppressed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct EventLine {
    pub line: u64,
    pub class: Class,
    pub device: String,
    pub text: String,
}

/// A file that could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct Unreadable {
    pub file: String,
    pub error: String,
    /// UNKNOWN for a file that should describe a drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Collects the events of one file.
#[derive(Debug, Default)]
pub struct AnalysisBuilder {
    tally: FaultSummary,
    classes: BTreeMap<Class, u64>,
    events: Vec<EventLine>,
    omitted_events: u64,
}

impl AnalysisBuilder {
    pub fn add(&mut self, event: &Event, is_direct: bool) {
        self.tally.add(event, is_direct);
        if event.count == 0 {
            return;
        }
        *self.classes.entry(event.class).or_default() += event.count;
        if self.events.len() < MAX_LISTED_EVENTS {
            let text = event.last.text.clone();
            self.events.push(EventLine {
                line: event.seq,
                class: event.class,
                device: event.device.to_string(),
                text,
            });
        } else {
            self.omitted_events += 1;
        }
    }

    pub fn add_removal(&mut self) {
        self.tally.add_removal();
    }

    pub fn excuse(&mut self, excused: &RejectedRequest) {
        self.tally.add_rejected(excused);
    }

    pub fn build(mut self, file: String, lines: Understanding) -> KernelLogAnalysis {
        for (name, rejected) in self.tally.remove_rejected() {
            let of = |event: &EventLine| {
                event.class == Class::Io && device_name::whole_disk(&event.device) == name
            };
            self.events.retain(|event| !of(event));
            if let Some(count) = self.classes.get_mut(&Class::Io) {
                *count = count.saturating_sub(rejected);
            }
        }
        self.classes.retain(|_, count| *count > 0);
        let with_errors = self.tally.devices().filter(|(_, record)| !record.classes.is_empty());
        let devices = with_errors.map(|(name, record)| {
            let verdict = self.tally.verdict(name, record);
            DeviceSummary {
                device: name.to_owned(),
                classes: record.classes.clone(),
                drive_fault: verdict.fault,
                fault_reason: verdict.reason,
                distinct_sectors: record.sectors.len() as u64,
                suppressed: record.suppressed,
            }
        });
        let devices = devices.collect();
        let health = match self.classes.is_empty() {
            false => LogHealth::Errors,
            true if lines.is_insufficient => LogHealth::Unknown,
            true => LogHealth::Clean,
        };
        KernelLogAnalysis {
            file,
            health,
            records: lines.records,
            lines_not_understood: lines.not_understood,
            example: lines.example,
            classes: self.classes,
            drive_fault: match health {
                LogHealth::Unknown => DriveFault::Unclear,
                LogHealth::Clean | LogHealth::Errors => self.tally.worst_fault(),
            },
            devices,
            events: self.events,
            more_events: self.omitted_events,
        }
    }
}
