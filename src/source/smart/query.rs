//! Runs one smartctl query of one drive and interprets its result.
//!
//! In: how to reach the drive, the scope. Out: a `QueryResponse`, or the smartctl process that
//! cannot be killed. May not enter: when to query.
//!
//! The scope (smartctl(8)). Once per `slow_interval`, a full query: `-x`, everything, with the text
//! output and without white space (`--json=co`). Otherwise a quick query of the data that decides
//! the verdict, by protocol:
//! - ATA: `-i -H -c -A -l xerror,error -l xselftest,selftest`. The extended logs, as with `-x`:
//!   newer drives leave the summary log empty, and a count from alternating logs would seem to
//!   jump. Not: device statistics, pending defects, SCT, phy counters, log directories.
//! - SCSI: `-i -H -A -l error -l selftest -l ssd`. Not: background scan, pending defects,
//!   environment and SAS phy pages.
//! - NVMe: `-x`, which equals `-a` there: one health page, the error log, and from 7.4 on the
//!   self-test log.
//!
//! Values that only a full query reads are kept until the next one (`SmartReport::carry_forward`).
//!
//! `-n standby` always: a disk in standby is not woken; NVMe ignores it. The exit status is then 2,
//! as for a drive that cannot be opened. `-n standby,3` would distinguish the two, but sets the bit
//! of a wrong command line; the JSON message distinguishes them in all versions. `-n standby,3,5`
//! also ends where a bridge cannot tell the power mode: from 7.3 on (before, it is a wrong command
//! line), and such a drive would never be read. It is woken at most once per `idle_interval`.
//! smartctl(8) warns that the detection of the type may wake a drive: on Linux that is INQUIRY and
//! sysfs (os_linux.cpp), neither of which reads the medium.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::smart::backend::Backend;
use crate::smart::kept_output;
use diskvitals_finding::path::HostPath;
use diskvitals_host::exec::{Exec, ExecError, Output, UnkillableChild};
use diskvitals_host::root::HostRoot;
use diskvitals_model::drive::Transport;
use diskvitals_smart::parse::ParseError;
use diskvitals_smart::report::{Body, Identity};
use diskvitals_smart::{SmartOutput, SmartResponse, parse};
use diskvitals_text::causes::with_causes;

/// The longest outputs, with device statistics, 256 errors and the text output, are half of this.
pub const MAX_OUTPUT: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Query {
    pub program: PathBuf,
    pub device: PathBuf,
    pub device_type: Option<String>,
    pub scope: ReadScope,
    pub timeout: Duration,
    /// The expected serial number. None if only the number of a USB bridge is available.
    pub serial: Option<String>,
    /// Whether to try `-d sat` if smartctl does not support the bridge.
    pub try_sat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    Full,
    QuickAta,
    QuickScsi,
}

#[derive(Debug)]
pub enum QueryOutcome {
    Response(QueryResponse),
    Stuck(UnkillableChild),
    /// smartctl could not be started: not a fault of the drive.
    StartFailed(String),
}

#[derive(Debug)]
pub struct QueryResponse {
    pub response: SmartResponse,
    /// What smartctl printed; None if nothing.
    pub output: Option<Box<SmartOutput>>,
    /// The fallback device type that worked.
    pub device_type: Option<String>,
    /// The fallback device type was tried. It need not be tried again.
    pub fallback_tried: bool,
    /// Another drive responded: the device name now belongs to it.
    pub wrong_drive: bool,
}

impl From<SmartResponse> for QueryResponse {
    fn from(response: SmartResponse) -> QueryResponse {
        QueryResponse {
            response,
            output: None,
            device_type: None,
            fallback_tried: false,
            wrong_drive: false,
        }
    }
}

impl ReadScope {
    /// By the protocol in the last full report; None if there is none.
    pub(crate) fn quick_for(body: &Body) -> Option<ReadScope> {
        match body {
            Body::Ata(_) => Some(ReadScope::QuickAta),
            Body::Scsi(_) => Some(ReadScope::QuickScsi),
            Body::Nvme(_) => Some(ReadScope::Full),
            Body::None => None,
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            // With the text output, which alone has the firmware warnings of drivedb; compact, to
            // compensate for its size.
            ReadScope::Full => &["--json=co", "-n", "standby", "-x"],
            ReadScope::QuickAta => &[
                "-j",
                "-n",
                "standby",
                "-i",
                "-H",
                "-c",
                "-A",
                "-l",
                "xerror,error",
                "-l",
                "xselftest,selftest",
            ],
            ReadScope::QuickScsi => &[
                "-j", "-n", "standby", "-i", "-H", "-A", "-l", "error", "-l", "selftest", "-l",
                "ssd",
            ],
        }
    }
}

impl Query {
    pub fn command(&self, device_type: Option<&str>) -> Exec {
        let mut args: Vec<String> =
            self.scope.arguments().iter().map(|text| (*text).to_owned()).collect();
        args.extend(
            device_type.iter().flat_map(|device_type| ["-d".to_owned(), (*device_type).to_owned()]),
        );
        args.push(self.device.to_string_lossy().into_owned());
        smartctl_command(&self.program, args, self.timeout)
    }
}

pub(crate) fn smartctl_command(program: &Path, args: Vec<String>, timeout: Duration) -> Exec {
    Exec { program: program.to_owned(), args, stdin: Vec::new(), timeout, max_output: MAX_OUTPUT }
}

/// The path of the host's device in this mount namespace, and the device type that smartctl needs
/// for it. smartctl detects the type only by the name below /dev (os_linux.cpp,
/// autodetect_smart_device()).
pub fn device_node(
    root: &HostRoot,
    device: &HostPath,
    transport: Transport,
) -> (PathBuf, Option<&'static str>) {
    let path = device.as_path();
    // Names without a file, or names that smartctl parses itself: the bus of megaraid, and the
    // nodes of 3ware and aacraid, which smartctl creates.
    let by_name = ["/dev/bus/", "/dev/tw", "/dev/aac"]
        .iter()
        .any(|prefix| path.to_string_lossy().starts_with(prefix));
    if by_name || root.dir() == Path::new("/") {
        return (path.to_owned(), None);
    }
    let theirs = root.at(path);
    if root.is_recorded() {
        return (theirs, None);
    }
    match root.is_same_device(path) {
        true => (path.to_owned(), None),
        false => {
            let device_type = match transport {
                Transport::Nvme => Some("nvme"),
                Transport::Sata | Transport::Usb => Some("sat"),
                Transport::Sas | Transport::Scsi => Some("sat,auto"),
                _ => None,
            };
            (theirs, device_type)
        }
    }
}

/// Runs a query. If smartctl does not recognize a USB bridge, it is tried once more with `-d sat`:
/// a bridge without the two ATA PASS-THROUGH commands of SAT rejects them as SCSI requires. Other
/// types send vendor-specific commands, whose effect on an unknown bridge is undefined (smartctl(8)
/// warns of usbcypress and usbjmicron,x; sntasmedia, sntjmicron and sntrealtek are similar). Only
/// an admin may set them.
pub async fn query<B: Backend>(backend: &B, query: &Query) -> QueryOutcome {
    let output = match run_smartctl(backend, query.command(query.device_type.as_deref())).await {
        Ok(output) => output,
        Err(outcome) => return outcome,
    };
    let first = with_output(interpret(&output, query), &output, query);
    if !query.try_sat
        || query.device_type.is_some()
        || !contains_bytes(&output.stdout, b"Unknown USB bridge")
    {
        return QueryOutcome::Response(first);
    }
    let second = match run_smartctl(backend, query.command(Some("sat"))).await {
        Ok(output) => with_output(interpret(&output, query), &output, query),
        Err(QueryOutcome::Response(failed)) => QueryResponse { fallback_tried: true, ..failed },
        Err(outcome) => return outcome,
    };
    QueryOutcome::Response(match second.response {
        // No output, and tried already: a time-out, or an error of the system.
        _ if second.fallback_tried => second,
        SmartResponse::Report(_) => {
            QueryResponse { device_type: Some("sat".to_owned()), fallback_tried: true, ..second }
        }
        // A bridge that passes no command on rejects CHECK POWER MODE too, and smartctl reports
        // that as SLEEP (ataprint.cpp). A disk that really sleeps responds when it is awake.
        SmartResponse::Standby { .. } | SmartResponse::Failed { .. } => first,
        SmartResponse::NotApplicable { .. } | SmartResponse::TimedOut { .. } => {
            QueryResponse { fallback_tried: true, ..first }
        }
    })
}

/// The error: the outcome of a run without output.
async fn run_smartctl<B: Backend>(backend: &B, exec: Exec) -> Result<Output, QueryOutcome> {
    let error = match backend.run(exec).await {
        Ok(output) => return Ok(output),
        Err(error) => error,
    };
    let response = match error {
        ExecError::Unkillable { child, .. } => return Err(QueryOutcome::Stuck(child)),
        ExecError::NotAbsolute(_) => return Err(QueryOutcome::StartFailed(error.to_string())),
        ExecError::Start { .. } => return Err(QueryOutcome::StartFailed(with_causes(&error))),
        ExecError::TimedOut { .. } => SmartResponse::TimedOut { why: error.to_string() },
        ExecError::Wait { .. } => SmartResponse::Failed { why: with_causes(&error) },
    };
    Err(QueryOutcome::Response(response.into()))
}

/// The output of another drive does not belong to this one.
fn with_output(response: QueryResponse, output: &Output, query: &Query) -> QueryResponse {
    if response.wrong_drive {
        return response;
    }
    let usable = !matches!(response.response, SmartResponse::Failed { .. });
    let output = kept_output::keep(output, query.scope == ReadScope::Full, usable);
    QueryResponse { output: output.map(Box::new), ..response }
}

/// Interprets the output of one run.
fn interpret(output: &Output, query: &Query) -> QueryResponse {
    let failed = |why: String| QueryResponse::from(SmartResponse::Failed { why });
    let parsed = check_output(output)
        .and_then(|()| parse::parse(&output.stdout).map_err(OutputError::Invalid));
    let report = match parsed {
        Err(error) => return failed(error.to_string()),
        Ok(SmartResponse::Report(report)) => report,
        Ok(response) => return response.into(),
    };
    let identity = &report.identity;
    match (&query.serial, &identity.serial) {
        (Some(expected), Some(actual)) if !serials_match(expected, actual) => QueryResponse {
            wrong_drive: true,
            ..failed(format!(
                "another drive answered: serial number {} instead of {}",
                actual.trim(),
                expected.trim()
            ))
        },
        (_, None) if identity.model.is_none() && report.body == Body::None => {
            failed("the output of smartctl names no drive".to_owned())
        }
        _ => SmartResponse::Report(report).into(),
    }
}

/// Why the output of a run of smartctl cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("smartctl wrote more than {} KiB", MAX_OUTPUT >> 10)]
    Truncated,
    #[error("smartctl was ended by signal {0}")]
    Signal(i32),
    #[error("smartctl wrote nothing and ended with status {status}{complaint}")]
    Empty { status: i32, complaint: String },
    #[error("the output of smartctl is invalid: {0}")]
    Invalid(ParseError),
    #[error("the output of smartctl is invalid: {0}")]
    Json(serde_json::Error),
}

/// Checks what holds for the output of every run, before the output is parsed.
pub(crate) fn check_output(output: &Output) -> Result<(), OutputError> {
    if output.truncated {
        return Err(OutputError::Truncated);
    }
    // wait(2): the low seven bits are the signal.
    if let signal @ 1.. = output.status & 0x7f {
        return Err(OutputError::Signal(signal));
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let mut lines = complaint.lines().map(str::trim);
        let complaint = lines
            .find(|line| !line.is_empty())
            .map_or_else(String::new, |line| format!(": {line:.200}"));
        let status = output.status >> 8 & 0xff;
        return Err(OutputError::Empty { status, complaint });
    }
    Ok(())
}

/// The identity of the drive in the output of `smartctl -i`.
pub fn identity(output: &Output) -> Result<Identity, OutputError> {
    check_output(output)?;
    parse::identity(&output.stdout).map_err(OutputError::Invalid)
}

/// Whether two serial numbers are equal without white space (udev writes `_` for it), or one
/// contains the other: SCSI INQUIRY and udev truncate serial numbers.
pub(crate) fn serials_match(expected: &str, actual: &str) -> bool {
    let plain = |text: &str| {
        text.chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_uppercase())
            .collect::<String>()
    };
    let (expected, actual) = (plain(expected), plain(actual));
    expected.contains(&actual) || actual.contains(&expected)
}

fn contains_bytes(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
