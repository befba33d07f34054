//! The result of `analyze smart`: one object per file of smartctl's JSON.
//!
//! In: a file, the limits. Out: `SmartAnalysis`. Applies the daemon's rules; without a history only
//! the rules about current values apply.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::io::Read;

use serde::{Serialize, Serializer};

use crate::EXIT_UNKNOWN;
use crate::input_source::InputSource;
use diskvitals_finding::Status;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_smart::policy::SmartPolicy;
use diskvitals_smart::report::{Body, Identity, SmartReport};
use diskvitals_smart::{SmartResponse, history, parse, rules};

/// Larger than the output of smartctl with all logs.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SmartError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("this is longer than any answer of smartctl's ({} MiB)", MAX_OUTPUT_BYTES >> 20)]
    TooLong,
    #[error(transparent)]
    Parse(#[from] parse::ParseError),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SmartAnalysis {
    pub file: String,
    /// Empty when the output does not name the drive.
    pub drive: DriveIdentity,
    pub health: Health,
    pub findings: Vec<SmartFinding>,
    #[serde(rename = "answer")]
    pub response: ResponseKind,
    /// Why the health is unknown, and how to obtain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The drive's own assessment (SMART overall health).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The attributes that decide the verdict.
    pub values: BTreeMap<&'static str, u64>,
    /// What of the output was left out because it is no evidence, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// smartctl's warnings, including drivedb's warnings about firmware with known bugs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DriveIdentity {
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

/// The names are those of the gRPC API.
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
pub enum ResponseKind {
    #[serde(rename = "told")]
    Report,
    #[serde(rename = "asleep")]
    Standby,
    NotApplicable,
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub struct SmartFinding {
    #[serde(serialize_with = "serialize_severity")]
    pub severity: Severity,
    #[serde(serialize_with = "serialize_status")]
    pub status: Status,
    pub reason: Reason,
    pub message: String,
    pub action: &'static str,
    pub evidence: Vec<String>,
}

/// 1: the file could not be read; 3: it says nothing about the health of a drive.
pub fn exit_status(answer: &Result<SmartAnalysis, SmartError>) -> u8 {
    match answer {
        Ok(answer) if answer.health != Health::Unknown => 0,
        Ok(_) | Err(SmartError::Parse(_) | SmartError::TooLong) => EXIT_UNKNOWN,
        Err(SmartError::Read(_)) => 1,
    }
}

/// Reads one file and returns its drive's health.
pub fn smart(source: &InputSource, policy: &SmartPolicy) -> Result<SmartAnalysis, SmartError> {
    let mut bytes = Vec::new();
    source.reader()?.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_OUTPUT_BYTES {
        return Err(SmartError::TooLong);
    }
    Ok(smart_from(&bytes, source.name(), policy)?)
}

/// The same for bytes in memory.
pub fn smart_from(
    output: &[u8],
    file: String,
    policy: &SmartPolicy,
) -> Result<SmartAnalysis, parse::ParseError> {
    let named = parse::identity(output).map(|identity| drive_identity(&identity));
    let (response, why, hint) = match parse::parse(output)? {
        SmartResponse::Report(report) => return Ok(analysis_of_report(file, &report, policy)),
        SmartResponse::Standby { mode } => (
            ResponseKind::Standby,
            format!("the drive was asleep ({mode}) and was not woken"),
            None,
        ),
        SmartResponse::NotApplicable { why, hint, .. } => (ResponseKind::NotApplicable, why, hint),
        SmartResponse::Failed { why } | SmartResponse::TimedOut { why } => {
            (ResponseKind::Failed, why, None)
        }
    };
    Ok(SmartAnalysis {
        file,
        drive: named.unwrap_or_default(),
        health: Health::Unknown,
        findings: Vec::new(),
        response,
        why: Some(why),
        hint,
        passed: None,
        values: BTreeMap::new(),
        notes: Vec::new(),
        messages: Vec::new(),
    })
}

fn analysis_of_report(file: String, report: &SmartReport, policy: &SmartPolicy) -> SmartAnalysis {
    let hits = rules::evaluate(report, None, policy);
    let health = match hits.iter().map(|hit| hit.severity).max() {
        Some(Severity::Bad) => Health::Bad,
        Some(Severity::Suspect) => Health::Suspect,
        Some(Severity::Info) | None if report.has_health_data() => Health::Good,
        Some(Severity::Info) | None => Health::Unknown,
    };
    let why = "it holds logs of the drive only, neither its verdict nor its counters: ask with smartctl -x";
    SmartAnalysis {
        file,
        drive: DriveIdentity {
            temperature_celsius: report.temperature,
            power_on_hours: report.power_on_hours,
            protocol: (report.body != Body::None).then(|| report.identity.protocol.clone()),
            ..drive_identity(&report.identity)
        },
        health,
        findings: hits
            .into_iter()
            .map(|hit| SmartFinding {
                severity: hit.severity,
                status: hit.status,
                reason: hit.reason,
                message: hit.message,
                action: hit.reason.action_at(hit.severity),
                evidence: hit.evidence,
            })
            .collect(),
        response: ResponseKind::Report,
        why: (health == Health::Unknown).then(|| why.to_owned()),
        hint: None,
        passed: report.passed,
        values: history::metric_values(report)
            .into_iter()
            .map(|(metric, value)| (metric.name(), value))
            .collect(),
        notes: report.notes.clone(),
        messages: report.messages.iter().map(|message| message.text.clone()).collect(),
    }
}

fn drive_identity(identity: &Identity) -> DriveIdentity {
    DriveIdentity {
        vendor: identity.vendor.clone(),
        model: identity.model.clone(),
        family: identity.family.clone(),
        serial: identity.serial.clone(),
        firmware: identity.firmware.clone(),
        wwn: identity.wwn.clone(),
        protocol: Some(identity.protocol.clone()).filter(|protocol| !protocol.is_empty()),
        size_bytes: identity.size_bytes,
        temperature_celsius: None,
        power_on_hours: None,
    }
}

fn serialize_severity<S: Serializer>(severity: &Severity, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match severity {
        Severity::Info => "SEVERITY_INFO",
        Severity::Suspect => "SEVERITY_SUSPECT",
        Severity::Bad => "SEVERITY_BAD",
    })
}

fn serialize_status<S: Serializer>(status: &Status, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match status {
        Status::Information => "FINDING_STATUS_INFORMATION",
        Status::Degraded => "FINDING_STATUS_DEGRADED",
        Status::Inaccessible => "FINDING_STATUS_INACCESSIBLE",
        Status::DataLoss => "FINDING_STATUS_DATA_LOSS",
    })
}
