//! SMART: the health data of a drive as smartctl reports it, and its evaluation. Pure.
//!
//! `parse` converts the output of one run of smartctl to a `SmartResponse`. `carry_forward` fills
//! in values that a partial report lacks. `history` keeps the deciding values over time. `rules`
//! evaluates a report with its history. Must not contain: starting smartctl (`source::smart`),
//! clocks, JSON outside `parse`.
//!
//! Sources of the formats: smartctl(8); ataprint.cpp, nvmeprint.cpp and scsiprint.cpp of
//! smartmontools; ACS-4; NVM Express Base 2.0 §5.16.1.3; SPC-6, SBC-4.

#![warn(unreachable_pub)]

pub mod advisory;
mod carry_forward;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod history;
pub mod parse;
pub mod policy;
pub mod report;
pub mod rules;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::report::SmartReport;

/// The parsed result of one run of smartctl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmartResponse {
    /// The drive reported health data.
    #[serde(rename = "told")]
    Report(Box<SmartReport>),
    /// The drive is in standby and was not woken (`-n standby`). `mode`: smartctl's name of the
    /// mode.
    #[serde(rename = "asleep")]
    Standby { mode: String },
    /// The device has no SMART, which is not a fault: a virtual disk, a RAID volume, a bridge that
    /// passes no commands on, or SMART is switched off. `why`: a sentence for people. `hint`: what
    /// an admin can do, if anything.
    NotApplicable {
        why: String,
        hint: Option<String>,
        /// The drive itself says that it has no SMART data; false: smartctl could not ask it.
        said_so: bool,
    },
    /// The query failed. This is neither good nor bad.
    Failed { why: String },
    /// The drive did not respond in time, and smartctl was killed. The drive, or the path to it,
    /// has a fault.
    TimedOut { why: String },
}

/// What smartctl printed, for support: nothing evaluates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmartOutput {
    pub at: Timestamp,
    pub exit_status: i32,
    /// Of a query for all log pages; others read only what decides the verdict.
    pub complete: bool,
    /// Whether it could be interpreted.
    pub usable: bool,
    /// Bytes, decompressed.
    pub size: u64,
    /// Compressed; otherwise the reason why the output is not kept.
    pub gzip: Result<Box<[u8]>, String>,
}

impl SmartOutput {
    /// Whether this newer output says more than the kept one: all log pages are read only rarely, and
    /// an output that could not be interpreted is needed to find out why.
    pub fn replaces(&self, kept: &SmartOutput) -> bool {
        self.complete || !self.usable || !kept.complete || !kept.usable
    }
}

/// The kind of a self-test that an admin or a schedule may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestKind {
    Short,
    Long,
}
