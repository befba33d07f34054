//! SMART: what a drive says of itself, as smartctl tells it, and what that means. Pure.
//!
//! `parse` reads one run of smartctl into an `Answer`; `complete` fills in what an answer leaves
//! out; `memory` keeps the values that decide, over time; `rules` judges a report with its memory.
//! May not enter: starting smartctl (`source::smart`), clocks, JSON outside `parse`.
//!
//! Sources of the formats: smartctl(8); smartmontools' ataprint.cpp, nvmeprint.cpp, scsiprint.cpp;
//! ACS-4; NVM Express Base 2.0 §5.16.1.3; SPC-6, SBC-4.

mod carry_forward;
#[cfg(test)]
pub mod fixture;
pub mod history;
pub mod parse;
pub mod report;
pub mod rules;

use serde::{Deserialize, Serialize};

use crate::model::smart::report::SmartReport;

/// One run of smartctl, read. A run that could not ask is never an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmartResponse {
    /// The drive told something of its health.
    #[serde(rename = "told")]
    Report(Box<SmartReport>),
    /// It sleeps and was left asleep (`-n standby`); smartctl's word for the mode.
    #[serde(rename = "asleep")]
    Standby { mode: String },
    /// There is no SMART to be had here, and that is no fault: a virtual disk, a RAID volume, a
    /// bridge that passes nothing on, SMART switched off. `why` is a sentence for people; `hint`
    /// what an admin can do, where there is something.
    NotApplicable { why: String, hint: Option<String> },
    /// It should have answered and did not. Never good, never bad.
    Failed { why: String },
    /// It did not answer in its time, and smartctl was killed. Not answering is something that is
    /// wrong with it, or with the way to it.
    TimedOut { why: String },
}

/// A self-test that an admin may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestKind {
    Short,
    Long,
}
