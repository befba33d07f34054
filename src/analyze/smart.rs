//! What `analyze smart` answers: one object a file of smartctl's JSON.
//!
//! In: a file, the limits. Out: `Smart`. Judges by the daemon's rules; without a history only
//! levels count.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::io::Read;

use serde::Serialize;

use crate::analyze::input::Source;
use crate::model::finding::{Severity, Status};
use crate::model::policy::smart::SmartPolicy;
use crate::model::reason::Reason;
use crate::model::smart::report::{Body, Report};
use crate::model::smart::{Answer, memory, parse, rules};

/// No answer of smartctl's is longer, with every log that it reads.
const LONGEST: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("this is longer than any answer of smartctl's ({} MiB)", LONGEST >> 20)]
    TooLong,
    #[error(transparent)]
    Parse(#[from] parse::ParseError),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Smart {
    pub file: String,
    /// Empty where the drive told nothing.
    pub drive: Drive,
    pub health: Health,
    pub findings: Vec<Finding>,
    pub answer: Kind,
    /// Why the health is unknown, and what can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The drive's own verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The values that decide.
    pub values: BTreeMap<&'static str, u64>,
    /// smartctl's warnings, drivedb's of a known bad firmware among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Drive {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
}

/// Named as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Health {
    #[serde(rename = "HEALTH_GOOD")]
    Good,
    #[serde(rename = "HEALTH_SUSPECT")]
    Suspect,
    #[serde(rename = "HEALTH_BAD")]
    Bad,
    #[serde(rename = "HEALTH_UNKNOWN")]
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    Told,
    Asleep,
    NotApplicable,
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    #[serde(serialize_with = "severity")]
    pub severity: Severity,
    #[serde(serialize_with = "status")]
    pub status: Status,
    pub reason: Reason,
    pub message: String,
    pub evidence: Vec<String>,
}

/// Reads one file and says what it tells of its drive.
pub fn smart(source: &Source, policy: &SmartPolicy) -> Result<Smart, Error> {
    let mut bytes = Vec::new();
    source.reader()?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::TooLong);
    }
    Ok(smart_of(&bytes, source.name(), policy)?)
}

/// The same of bytes that are there already.
pub fn smart_of(
    output: &[u8],
    file: String,
    policy: &SmartPolicy,
) -> Result<Smart, parse::ParseError> {
    let untold = |file: String, answer: Kind, why: String, hint: Option<String>| Smart {
        file,
        drive: Drive::default(),
        health: Health::Unknown,
        findings: Vec::new(),
        answer,
        why: Some(why),
        hint,
        passed: None,
        values: BTreeMap::new(),
        messages: Vec::new(),
    };
    Ok(match parse::parse(output)? {
        Answer::Told(report) => told(file, &report, policy),
        Answer::Asleep { mode } => untold(
            file,
            Kind::Asleep,
            format!("the drive was asleep ({mode}) and was not woken"),
            None,
        ),
        Answer::NotApplicable { why, hint } => untold(file, Kind::NotApplicable, why, hint),
        Answer::Failed { why } | Answer::TimedOut { why } => untold(file, Kind::Failed, why, None),
    })
}

fn told(file: String, report: &Report, policy: &SmartPolicy) -> Smart {
    let said = rules::judge(report, None, policy);
    let health = match said.iter().map(|said| said.severity).max() {
        Some(Severity::Bad) => Health::Bad,
        Some(Severity::Suspect) => Health::Suspect,
        Some(Severity::Info) | None if report.states_health() => Health::Good,
        Some(Severity::Info) | None => Health::Unknown,
    };
    let why = "it holds logs of the drive only, neither its verdict nor its counters: ask with smartctl -x";
    let identity = &report.identity;
    Smart {
        file,
        drive: Drive {
            vendor: identity.vendor.clone(),
            model: identity.model.clone(),
            family: identity.family.clone(),
            serial: identity.serial.clone(),
            firmware: identity.firmware.clone(),
            wwn: identity.wwn.clone(),
            protocol: (report.body != Body::None).then(|| identity.protocol.clone()),
            size_bytes: identity.size_bytes,
            temperature_celsius: report.temperature,
            power_on_hours: report.power_on_hours,
        },
        health,
        findings: said
            .into_iter()
            .map(|said| Finding {
                severity: said.severity,
                status: said.status,
                reason: said.reason,
                message: said.message,
                evidence: said.evidence,
            })
            .collect(),
        answer: Kind::Told,
        why: (health == Health::Unknown).then(|| why.to_owned()),
        hint: None,
        passed: report.passed,
        values: memory::values(report)
            .into_iter()
            .map(|(metric, value)| (metric.name(), value))
            .collect(),
        messages: report
            .messages
            .iter()
            .map(|message| message.text.clone())
            .collect(),
    }
}

fn severity<S: serde::Serializer>(severity: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match severity {
        Severity::Info => "SEVERITY_INFO",
        Severity::Suspect => "SEVERITY_SUSPECT",
        Severity::Bad => "SEVERITY_BAD",
    })
}

fn status<S: serde::Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match status {
        Status::Information => "FINDING_STATUS_INFORMATION",
        Status::Degraded => "FINDING_STATUS_DEGRADED",
        Status::Inaccessible => "FINDING_STATUS_INACCESSIBLE",
        Status::DataLoss => "FINDING_STATUS_DATA_LOSS",
    })
}
