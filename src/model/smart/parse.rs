//! smartctl's JSON, of any version from 7.0 on, into an `Answer`.
//!
//! In: the bytes of standard output. Out: an `Answer`, or that this is no answer about a drive. May
//! not enter: judgement.
//!
//! A field of the wrong type is passed over: one odd value must not lose a drive's verdict. A
//! document that ends early is an error as a whole. How smartctl ended is read from
//! `smartctl.exit_status` (smartctl(8), EXIT STATUS). Bits 0 to 2 are about the asking and say
//! nothing of the drive; bit 2 is common on healthy drives behind bridges and means nothing where
//! health data is there.

mod ata;
mod fields;
mod identity;
mod nvme;
mod scsi;
mod self_tests;
#[cfg(test)]
mod tests;
mod untold;

use serde_json::Value;

use crate::model::smart::Answer;
use crate::model::smart::parse::fields::Field;
use crate::model::smart::report::{Body, Identity, Message, Report};

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("this is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("this is smartctl's text, which says less: run smartctl with -j (or --json)")]
    Text,
    #[error("this is JSON, but not smartctl's")]
    Foreign,
    /// `--scan`, `--version`: smartctl's, and not of one drive.
    #[error(
        "smartctl was not asked about a drive here: this is what it says with --scan or --version"
    )]
    NoDrive,
    #[error("smartctl {}.{} is too old: 7.0 is the first whose JSON can be read", .0[0], .0[1])]
    TooOld([u32; 2]),
    #[error("smartctl's version is missing: this cannot be read safely")]
    NoVersion,
}

/// The first that is asked: the first release with JSON.
const OLDEST: [u32; 2] = [7, 0];
/// The first that is read: recorded answers of 7.0's development versions, which called themselves
/// 6.7.
const OLDEST_RECORDED: [u32; 2] = [6, 7];
/// Messages of smartctl that are kept.
const MOST_MESSAGES: usize = 32;
/// One that is longer than this gets no further line: the longest of drivedb.h have a dozen, most
/// of them addresses.
const LONGEST_WARNING: usize = 800;

/// Reads what smartctl wrote about one drive.
pub fn parse(output: &[u8]) -> Result<Answer, ParseError> {
    let document = document(output)?;
    let root = Field::of(&document);
    let smartctl = new_enough(version_of(root)?, OLDEST_RECORDED)?;
    let report = report(root, smartctl);
    if says_something(&report) {
        return Ok(Answer::Told(Box::new(report)));
    }
    untold::why(root, &report).ok_or(ParseError::NoDrive)
}

/// smartctl's version, 7.0 or newer, from `smartctl -j -V` or any other of its answers; its text
/// will do too (`smartctl --version`).
pub fn version(output: &[u8]) -> Result<[u32; 2], ParseError> {
    let version = match version_of_text(output) {
        Some(version) => version,
        None => version_of(Field::of(&document(output)?))?,
    };
    new_enough(version, OLDEST)
}

/// Who answered, of any answer about a drive, also one that says nothing of its health
/// (`smartctl -j -i`).
pub fn identity(output: &[u8]) -> Result<Identity, ParseError> {
    let document = document(output)?;
    version_of(Field::of(&document))?;
    Ok(identity::identity(Field::of(&document)))
}

fn document(output: &[u8]) -> Result<Value, ParseError> {
    if let Some(version) = version_of_text(output) {
        return Err(new_enough(version, OLDEST)
            .err()
            .unwrap_or(ParseError::Text));
    }
    // A drive's model may hold any byte, and smartctl passes it on.
    let text = String::from_utf8_lossy(output);
    if text.contains("=== START OF ") && !text.trim_start().starts_with('{') {
        return Err(ParseError::Text);
    }
    Ok(serde_json::from_str(&text)?)
}

fn version_of(root: Field<'_>) -> Result<[u32; 2], ParseError> {
    let smartctl = root.get("smartctl");
    if !smartctl.is_object() {
        return Err(ParseError::Foreign);
    }
    let mut numbers = smartctl
        .get("version")
        .items()
        .map(|number| number.amount::<u32>());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Ok([major, minor]),
        _ => Err(ParseError::NoVersion),
    }
}

/// `smartctl 7.3 2022-02-28 r5338 [x86_64-linux-…`, its first line whenever it writes text.
fn version_of_text(output: &[u8]) -> Option<[u32; 2]> {
    let mut words = output.trim_ascii_start().split(u8::is_ascii_whitespace);
    let (name, version) = (words.next()?, words.next()?);
    let (major, minor) = std::str::from_utf8(version).ok()?.split_once('.')?;
    let digits = minor
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(minor.len());
    let minor = minor.get(..digits)?;
    (name == b"smartctl").then_some([major.parse().ok()?, minor.parse().ok()?])
}

fn new_enough(version: [u32; 2], oldest: [u32; 2]) -> Result<[u32; 2], ParseError> {
    if version < oldest {
        Err(ParseError::TooOld(version))
    } else {
        Ok(version)
    }
}

fn report(root: Field<'_>, smartctl: [u32; 2]) -> Report {
    let identity = identity::identity(root);
    let nvme_log = root.get("nvme_smart_health_information_log");
    let support = root.get("smart_support");
    let body = match identity.protocol.as_str() {
        "ATA" => Body::Ata(ata::body(root)),
        "NVMe" => Body::Nvme(nvme::body(root)),
        "SCSI" => Body::Scsi(scsi::body(root, smartctl)),
        _ => Body::None,
    };
    Report {
        smartctl,
        exit_status: root
            .get("smartctl")
            .get("exit_status")
            .amount()
            .unwrap_or(0),
        messages: messages(root),
        with_text: root.get("smartctl").get("output").is_some(),
        available: support.get("available").truth(),
        enabled: support.get("enabled").truth(),
        passed: root.get("smart_status").get("passed").truth(),
        temperature: identity::temperature(root),
        temperature_limit: identity::temperature_limit(root),
        power_on_hours: root
            .get("power_on_time")
            .number("hours")
            .or_else(|| nvme_log.number("power_on_hours")),
        power_cycles: root
            .number("power_cycle_count")
            .or_else(|| nvme_log.number("power_cycles")),
        self_tests: self_tests::self_tests(root),
        identity,
        body,
    }
}

fn messages(root: Field<'_>) -> Vec<Message> {
    let read = |message: Field<'_>| {
        let severity = message.get("severity").text().unwrap_or_default();
        message
            .get("string")
            .text()
            .map(|text| Message { text, severity })
    };
    let mut messages: Vec<Message> = root
        .get("smartctl")
        .get("messages")
        .items()
        .filter_map(read)
        .take(MOST_MESSAGES)
        .collect();
    for text in warnings(root.get("smartctl").get("output").items().map(Field::text)) {
        if messages.len() < MOST_MESSAGES && !messages.iter().any(|message| message.text == text) {
            messages.push(Message {
                text,
                severity: "warning".to_owned(),
            });
        }
    }
    messages
}

/// drivedb's warnings, which no version tells but in its text (smartctl.cpp, ataprint.cpp): from
/// `==> WARNING: ` to the next empty line, as one line.
fn warnings(output: impl Iterator<Item = Option<String>>) -> Vec<String> {
    let (mut warnings, mut within) = (Vec::<String>::new(), false);
    for line in output {
        match line {
            None => within = false,
            Some(line) if line.starts_with("==> WARNING:") && warnings.len() < MOST_MESSAGES => {
                within = true;
                warnings.push(line);
            }
            Some(line) if within => {
                if let Some(warning) = warnings
                    .last_mut()
                    .filter(|warning| warning.len() < LONGEST_WARNING)
                {
                    warning.push(' ');
                    warning.push_str(&line);
                }
            }
            Some(_) => {}
        }
    }
    warnings
}

/// Health, or at least a log that holds something: `smartctl -l selftest` alone may tell of a
/// failed test.
fn says_something(report: &Report) -> bool {
    let logged = match &report.body {
        Body::Ata(ata) => {
            ata.error_count.is_some_and(|count| count > 0)
                || ata.pending_defects.is_some_and(|count| count > 0)
                || !ata.statistics.is_empty()
        }
        Body::Scsi(scsi) => scsi.background_errors.is_some_and(|count| count > 0),
        Body::Nvme(nvme) => !nvme.last_errors.is_empty(),
        Body::None => false,
    };
    report.states_health() || logged || !report.self_tests.log.is_empty()
}
