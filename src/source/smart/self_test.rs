//! Starts a self-test for an admin: `smartctl -t short` or `-t long`.
//!
//! In: the command and the expected serial number. Out: smartctl's own sentence, or a
//! `SelfTestError`.
//!
//! Only the text output has the result: therefore `--json=o`. smartctl prints `Testing has begun.`
//! (ATA), `Short Background Self Test has begun` (SCSI) or `Self-test has begun` (NVMe, from 7.4
//! on). Older versions ignore `-t` for NVMe without a message and exit with 0, so only that
//! sentence counts as success.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use crate::smart::SUSPEND_UNKNOWN;
use crate::smart::backend::Backend;
use crate::smart::query::{self, OutputError};
use crate::smart::tasks::TASK_LOST;
use diskvitals_host::exec::{Exec, ExecError, Output, UnkillableChild};
use diskvitals_smart::SelfTestKind;
use diskvitals_text::causes::with_causes;

/// Starting a test takes one or two commands.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a quotation from smartctl.
const MAX_TEXT_LENGTH: usize = 400;

#[derive(Debug)]
pub enum SelfTestStartResult {
    /// smartctl's own sentence when a test has begun.
    Response(Result<String, SelfTestError>),
    Stuck(UnkillableChild),
}

/// Why no self-test was started, as text for the admin.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error("SMART data is not read here: {0}")]
    Disabled(&'static str),
    #[error("{0}")]
    ToolUnusable(String),
    #[error("the version of smartctl is not known yet: try again")]
    VersionUnknown,
    #[error("SMART data of this drive is not read")]
    NotQueried,
    #[error("smartctl has hung on this drive since {since}, and cannot be killed")]
    StuckSince { since: Timestamp },
    #[error("smartctl has hung on this drive, and cannot be killed")]
    Stuck,
    #[error("the drive is suspended and is not woken for a self-test: read from it first")]
    Suspended,
    #[error("{SUSPEND_UNKNOWN}")]
    SuspendUnknown,
    #[error("another self-test is about to be started")]
    AnotherPending,
    #[error("{TASK_LOST}")]
    TaskLost,
    #[error("{}", with_causes(.0))]
    Exec(ExecError),
    #[error(transparent)]
    Output(OutputError),
    #[error("the drive does not report its serial number")]
    NoSerial,
    /// The device name now belongs to another drive.
    #[error("another drive answered: serial number {actual} instead of {expected}")]
    WrongDrive { expected: String, actual: String },
    /// The message of smartctl.
    #[error("{0}")]
    Refused(String),
    #[error(
        "smartctl {major}.{minor} started nothing (exit status {status}); self-tests of NVMe drives need 7.4 or newer"
    )]
    TooOld { major: u32, minor: u32, status: i32 },
    #[error("smartctl started nothing and printed nothing (exit status {status})")]
    NoOutput { status: i32 },
}

pub(crate) fn start_command(
    program: &Path,
    device: PathBuf,
    device_type: Option<&str>,
    kind: SelfTestKind,
) -> Exec {
    let kind = match kind {
        SelfTestKind::Short => "short",
        SelfTestKind::Long => "long",
    };
    let options = ["--json=o", "-t", kind];
    command(program, &device, device_type, &options)
}

/// Reads the identity: the kernel gives a device name to another drive as soon as the previous one
/// is removed.
pub(crate) fn identify_command(program: &Path, device: &Path, device_type: Option<&str>) -> Exec {
    command(program, device, device_type, &["-j", "-i"])
}

fn command(program: &Path, device: &Path, device_type: Option<&str>, options: &[&str]) -> Exec {
    let device = device.to_string_lossy();
    let args = options.iter().copied();
    let args = args.chain(device_type.into_iter().flat_map(|name| ["-d", name]));
    let args = args.chain([device.as_ref()]).map(str::to_owned).collect();
    query::smartctl_command(program, args, TIMEOUT)
}

/// `identify`: the command that reads the identity, and the expected serial number.
pub async fn start<W: Backend>(
    backend: W,
    start: Exec,
    identify: Option<(Exec, String)>,
) -> SelfTestStartResult {
    match check_and_start(backend, start, identify).await {
        Err(SelfTestError::Exec(ExecError::Unkillable { child, .. })) => {
            SelfTestStartResult::Stuck(child)
        }
        result => SelfTestStartResult::Response(result),
    }
}

async fn check_and_start<W: Backend>(
    backend: W,
    start: Exec,
    identify: Option<(Exec, String)>,
) -> Result<String, SelfTestError> {
    if let Some((identify, expected)) = identify {
        let output = backend.run(identify).await.map_err(SelfTestError::Exec)?;
        let actual = parse_serial(&output)?;
        if !query::serials_match(&expected, &actual) {
            return Err(SelfTestError::WrongDrive {
                expected: expected.trim().to_owned(),
                actual: actual.trim().to_owned(),
            });
        }
    }
    let output = backend.run(start).await.map_err(SelfTestError::Exec)?;
    parse_output(&output)
}

fn parse_serial(output: &Output) -> Result<String, SelfTestError> {
    query::identity(output).map_err(SelfTestError::Output)?.serial.ok_or(SelfTestError::NoSerial)
}

#[derive(Deserialize)]
struct StartOutput {
    smartctl: Smartctl,
}

#[derive(Deserialize)]
struct Smartctl {
    #[serde(default)]
    version: Vec<u32>,
    #[serde(default)]
    output: Vec<String>,
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    string: String,
}

fn parse_output(output: &Output) -> Result<String, SelfTestError> {
    query::check_output(output).map_err(SelfTestError::Output)?;
    let StartOutput { smartctl } = serde_json::from_slice(&output.stdout)
        .map_err(|error| SelfTestError::Output(OutputError::Json(error)))?;
    // Without the first lines (name, copyright) and headings.
    let lines = smartctl.output.iter().map(|line| line.trim());
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("==="))
        .skip_while(is_banner)
        .collect();
    let joined =
        |lines: &[&str]| -> String { lines.join(" ").chars().take(MAX_TEXT_LENGTH).collect() };
    let begun = lines.iter().position(|line| line.to_ascii_lowercase().contains("has begun"));
    let refused = output.status >> 8 & 0b111 != 0;
    match begun {
        Some(index) if !refused => return Ok(joined(lines.get(index..).unwrap_or_default())),
        _ if !lines.is_empty() => return Err(SelfTestError::Refused(joined(&lines))),
        _ => {}
    }
    let messages = smartctl.messages.iter();
    let messages: Vec<&str> = messages.map(|message| message.string.as_str()).collect();
    let status = output.status >> 8 & 0xff;
    Err(match smartctl.version[..] {
        _ if !messages.is_empty() => SelfTestError::Refused(joined(&messages)),
        [major, minor, ..] if (major, minor) < (7, 4) => {
            SelfTestError::TooOld { major, minor, status }
        }
        _ => SelfTestError::NoOutput { status },
    })
}

fn is_banner(line: &&str) -> bool {
    line.starts_with("smartctl ") || line.starts_with("Copyright ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(status: i32, lines: &[&str]) -> Result<String, String> {
        let mut output = vec![
            "smartctl 7.3 2022-02-28 r5338 [x86_64-linux]",
            "Copyright (C) 2002-22, Bruce Allen",
            "",
        ];
        output.extend(lines);
        let stdout = serde_json::json!({"smartctl": {"version": [7, 3], "output": output, "exit_status": status}}).to_string().into_bytes();
        parse_output(&Output { status: status << 8, stdout, stderr: Vec::new(), truncated: false })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_test_has_begun_when_smartctl_says_so() {
        let lines = [
            "=== START OF OFFLINE IMMEDIATE AND SELF-TEST SECTION ===",
            "Testing has begun.",
            "Please wait 2 minutes for test to complete.",
        ];
        assert_eq!(
            parsed(0, &lines),
            Ok("Testing has begun. Please wait 2 minutes for test to complete.".to_owned())
        );
        assert_eq!(
            parsed(0, &["Short Background Self Test has begun"]),
            Ok("Short Background Self Test has begun".to_owned())
        );
    }

    #[test]
    fn a_running_self_test_is_a_refusal_quoting_smartctl() {
        let lines = [
            "Can't start self-test without aborting current test (90% remaining),",
            "add '-t force' option to override.",
        ];
        let words = "Can't start self-test without aborting current test (90% remaining), add '-t force' option to override.";
        assert_eq!(parsed(4, &lines), Err(words.to_owned()));
    }

    #[test]
    fn empty_output_is_no_success() {
        assert!(parsed(0, &[]).is_err_and(|why| why.contains("7.4 or newer")));
        let cut = Output {
            status: 0,
            stdout: b"{\"smartctl\":".to_vec(),
            stderr: Vec::new(),
            truncated: false,
        };
        assert!(parse_output(&cut).is_err());
    }
}
