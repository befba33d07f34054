//! Parses the JSON output of smartctl 7.0 and later into a `SmartResponse`.
//!
//! In: the bytes of standard output. Out: a `SmartResponse`, or an error: the output is not about a
//! drive. Must not contain: evaluation.
//!
//! A field of an unexpected type is skipped: one odd value must not lose the verdict of a drive. A
//! truncated document is an error. `smartctl.exit_status` is smartctl's own status (smartctl(8),
//! EXIT STATUS). Bits 0 to 2 are about the command and not about the drive; bit 2 is common for
//! healthy drives behind bridges and means nothing when health data is present.

mod ata;
mod bridge;
mod fields;
mod identity;
mod json_output;
mod no_data;
mod nvme;
mod scsi;
mod self_tests;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::SmartResponse;
use crate::parse::fields::{Field, is_all_ones};
use crate::parse::json_output::StrayText;
use crate::report::{Body, Identity, Message, SelfTest, SelfTestOutcome, SmartReport};

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("this is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("this is smartctl's text, which says less: run smartctl with -j (or --json)")]
    TextOutput,
    #[error("this is JSON, but not smartctl's")]
    NotSmartctl,
    #[error("this holds the output of more than one run of smartctl: give each its own file")]
    SeveralOutputs,
    /// `--scan`, `--version`: output of smartctl that is not about one drive.
    #[error(
        "smartctl was not asked about a drive here: this is what it says with --scan or --version"
    )]
    NoDrive,
    #[error("smartctl {}.{} is too old: 7.0 is the first whose JSON can be read", .0[0], .0[1])]
    TooOld([u32; 2]),
    #[error("smartctl's version is missing: this cannot be read safely")]
    NoVersion,
}

/// The oldest version that the daemon starts: the first release with JSON.
const MIN_VERSION: [u32; 2] = [7, 0];
/// The oldest version that is parsed: recorded output of development versions of 7.0, which
/// reported 6.7.
const MIN_RECORDED_VERSION: [u32; 2] = [6, 7];
/// Maximum number of messages kept.
const MAX_MESSAGES: usize = 32;
/// Lines are no longer added to a message of this length: the longest in drivedb.h have a dozen
/// lines, most of them addresses.
const MAX_WARNING_LENGTH: usize = 800;

/// Parses the output of smartctl about one drive.
pub fn parse(output: &[u8]) -> Result<SmartResponse, ParseError> {
    let (document, stray) = document(output)?;
    let root = Field::of(&document);
    let smartctl = check_version(version_of(root)?, MIN_RECORDED_VERSION)?;
    let mut report = report(root, smartctl);
    let no_answer =
        bridge::answered_for_drive(root, &report).or_else(|| nothing_valid_left(&report));
    if let Some(why) = no_answer {
        return Ok(SmartResponse::Failed { why });
    }
    report.notes.extend(stray.map(|text| text.note(smartctl)));
    if has_content(&report) {
        return Ok(SmartResponse::Report(Box::new(report)));
    }
    no_data::classify(root, &report).ok_or(ParseError::NoDrive)
}

/// The version of smartctl, 7.0 or newer, from the output of `smartctl -j -V`, from any other JSON
/// output, or from text (`smartctl --version`).
pub fn version(output: &[u8]) -> Result<[u32; 2], ParseError> {
    let version = match version_of_text(output) {
        Some(version) => version,
        None => version_of(Field::of(&document(output)?.0))?,
    };
    check_version(version, MIN_VERSION)
}

/// The identity of the drive in any output about a drive, also without health data (`smartctl -j
/// -i`).
pub fn identity(output: &[u8]) -> Result<Identity, ParseError> {
    let (document, _) = document(output)?;
    version_of(Field::of(&document))?;
    Ok(identity::identity(Field::of(&document)))
}

/// smartctl's JSON, and the text around it.
fn document(output: &[u8]) -> Result<(Value, Option<StrayText>), ParseError> {
    // The model of a drive may contain any byte, and smartctl copies it.
    let text = String::from_utf8_lossy(output);
    let error = match json_output::find(&text)? {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    if let Some(version) = version_of_text(output) {
        return Err(check_version(version, MIN_VERSION).err().unwrap_or(ParseError::TextOutput));
    }
    if text.contains("=== START OF ") {
        return Err(ParseError::TextOutput);
    }
    Err(error.into())
}

fn version_of(root: Field<'_>) -> Result<[u32; 2], ParseError> {
    let smartctl = root.get("smartctl");
    if !smartctl.is_object() {
        return Err(ParseError::NotSmartctl);
    }
    let mut numbers = smartctl.get("version").items().map(|number| number.as_unsigned::<u32>());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Ok([major, minor]),
        _ => Err(ParseError::NoVersion),
    }
}

/// `smartctl 7.3 2022-02-28 r5338 [x86_64-linux-…`: the first line of every text output.
fn version_of_text(output: &[u8]) -> Option<[u32; 2]> {
    let mut words = output.trim_ascii_start().split(u8::is_ascii_whitespace);
    let (name, version) = (words.next()?, words.next()?);
    let (major, minor) = std::str::from_utf8(version).ok()?.split_once('.')?;
    let digits = minor.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(minor.len());
    let minor = minor.get(..digits)?;
    (name == b"smartctl").then_some([major.parse().ok()?, minor.parse().ok()?])
}

fn check_version(version: [u32; 2], oldest: [u32; 2]) -> Result<[u32; 2], ParseError> {
    if version < oldest { Err(ParseError::TooOld(version)) } else { Ok(version) }
}

fn report(root: Field<'_>, smartctl: [u32; 2]) -> SmartReport {
    let mut notes = Vec::new();
    let identity = identity::identity(root);
    let nvme_log = root.get("nvme_smart_health_information_log");
    let support = root.get("smart_support");
    let status = root.get("smartctl").get("exit_status");
    let mut verdict = Verdict {
        passed: root.get("smart_status").get("passed").as_bool(),
        exit_status: status.as_unsigned().unwrap_or(0),
    };
    let body = match identity.protocol.as_str() {
        "ATA" => Body::Ata(ata::body(root, &mut verdict, &mut notes)),
        "NVMe" => Body::Nvme(nvme::body(root, &mut verdict, &mut notes)),
        "SCSI" => Body::Scsi(scsi::body(root, smartctl, &mut verdict, &mut notes)),
        _ => Body::None,
    };
    let plausible = |amount: &u64| !is_all_ones(*amount);
    let power_on_hours = root
        .get("power_on_time")
        .get_u64("hours")
        .or_else(|| nvme_log.get_u64("power_on_hours"))
        .filter(plausible);
    SmartReport {
        smartctl,
        exit_status: verdict.exit_status,
        messages: messages(root),
        with_text: root.get("smartctl").get("output").is_some(),
        available: support.get("available").as_bool(),
        enabled: support.get("enabled").as_bool(),
        passed: verdict.passed,
        temperature: identity::temperature(root),
        temperature_limit: identity::temperature_limit(root),
        power_on_hours,
        power_cycles: root
            .get_u64("power_cycle_count")
            .or_else(|| nvme_log.get_u64("power_cycles"))
            .filter(plausible),
        self_tests: self_tests::self_tests(root, power_on_hours, &mut notes),
        notes,
        identity,
        body,
    }
}

/// Why a report whose invalid values were dropped is no answer: what is left carries no verdict,
/// and no failed self-test either. None: it is one.
fn nothing_valid_left(report: &SmartReport) -> Option<String> {
    let failed = |test: &SelfTest| test.outcome == SelfTestOutcome::Failed;
    let is_evidence = report.notes.is_empty()
        || report.has_health_data()
        || report.self_tests.log.iter().any(failed);
    (!is_evidence).then(|| {
        let notes = report.notes.join("; ");
        format!("what smartctl read is no evidence about the drive's health: {notes}")
    })
}

/// The drive's overall verdict, and the exit status, whose bit 3 repeats it (smartctl(8)).
struct Verdict {
    passed: Option<bool>,
    exit_status: u8,
}

impl Verdict {
    /// The verdict rests on what is no evidence.
    fn drop(&mut self) {
        self.passed = None;
        self.exit_status &= !8;
    }
}

fn messages(root: Field<'_>) -> Vec<Message> {
    let read = |message: Field<'_>| {
        let severity = message.get("severity").as_text().unwrap_or_default();
        message.get("string").as_text().map(|text| Message { text, severity })
    };
    let mut messages: Vec<Message> =
        root.get("smartctl").get("messages").items().filter_map(read).take(MAX_MESSAGES).collect();
    for text in drivedb_warnings(root.get("smartctl").get("output").items().map(Field::as_text)) {
        if messages.len() < MAX_MESSAGES && !messages.iter().any(|message| message.text == text) {
            messages.push(Message { text, severity: "warning".to_owned() });
        }
    }
    messages
}

/// Warnings of drivedb, which every version has in its text only (smartctl.cpp, ataprint.cpp): from
/// `==> WARNING: ` to the next empty line, joined into one line.
fn drivedb_warnings(output: impl Iterator<Item = Option<String>>) -> Vec<String> {
    let (mut warnings, mut within) = (Vec::<String>::new(), false);
    for line in output {
        match line {
            None => within = false,
            Some(line) if line.starts_with("==> WARNING:") && warnings.len() < MAX_MESSAGES => {
                within = true;
                warnings.push(line);
            }
            Some(line) if within => {
                if let Some(warning) =
                    warnings.last_mut().filter(|warning| warning.len() < MAX_WARNING_LENGTH)
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

/// Whether there is health data, or at least a log with an entry: `smartctl -l selftest` alone may
/// contain a failed test.
fn has_content(report: &SmartReport) -> bool {
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
    report.has_health_data() || logged || !report.self_tests.log.is_empty()
}
