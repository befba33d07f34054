//! One question to one drive: which smartctl is started for it, and what its end means.
//!
//! In: how to reach the drive, what to read. Out: an `Answer`, or what is left of a smartctl that
//! cannot be killed. May not enter: when to ask.
//!
//! What is read (smartctl(8)). Whole, once a `slow_interval`: `-x`, all there is, with its text and
//! without white space (`--json=co`). In between, by protocol, what decides and is quick:
//! - ATA: `-i -H -c -A -l xerror,error -l xselftest,selftest`. The extended logs, as `-x` reads
//!   them: newer drives leave the summary log empty, and a count that came from another log each
//!   time would seem to jump. Not: device statistics, pending defects, SCT, phy counters, log
//!   directories.
//! - SCSI: `-i -H -A -l error -l selftest -l ssd`. Not: background scan, pending defects,
//!   environment and SAS phy pages.
//! - NVMe: `-x`, which is no more than `-a` there: one health page, the error log, and from 7.4 on
//!   the self-test log.
//!
//! What only the whole reading tells stands until the next one (`Report::complete`).
//!
//! `-n standby` always: a disk that sleeps is not woken; for NVMe it does nothing. The exit status
//! is then 2, as for a drive that cannot be opened; `-n standby,3` would tell the two apart, but
//! sets the bit of a wrong command line, and the JSON's message tells them apart in all versions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::exec::{Exec, ExecError, Output, UnkillableChild};
use crate::host::root::HostRoot;
use crate::model::causes::with_causes;
use crate::model::drive::Transport;
use crate::model::path::HostPath;
use crate::model::smart::parse::ParseError;
use crate::model::smart::report::{Body, Identity};
use crate::model::smart::{SmartResponse, parse};
use crate::source::smart::backend::Backend;

/// The longest answers, with device statistics and 256 errors and all of it as text too, are half
/// of it.
pub const MAX_OUTPUT: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Query {
    pub program: PathBuf,
    pub device: PathBuf,
    pub device_type: Option<String>,
    pub scope: ReadScope,
    pub timeout: Duration,
    /// Of the drive that is meant; None where the system's word on it is not the drive's own (a USB
    /// bridge's).
    pub serial: Option<String>,
    /// Whether to try `-d sat` where smartctl does not know the bridge.
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
    /// smartctl itself could not be started: no drive's fault.
    StartFailed(String),
}

#[derive(Debug)]
pub struct QueryResponse {
    pub response: SmartResponse,
    /// The fallback device type that worked.
    pub device_type: Option<String>,
    /// The fallback device type was tried. It need not be tried again.
    pub fallback_tried: bool,
    /// Another drive answered: the device name now belongs to another drive.
    pub wrong_drive: bool,
}

impl From<SmartResponse> for QueryResponse {
    fn from(response: SmartResponse) -> QueryResponse {
        QueryResponse {
            response,
            device_type: None,
            fallback_tried: false,
            wrong_drive: false,
        }
    }
}

impl ReadScope {
    /// By the protocol of the last whole answer, where it told one.
    pub fn quick_for(body: &Body) -> Option<ReadScope> {
        match body {
            Body::Ata(_) => Some(ReadScope::QuickAta),
            Body::Scsi(_) => Some(ReadScope::QuickScsi),
            Body::Nvme(_) => Some(ReadScope::Full),
            Body::None => None,
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            // With smartctl's text, in which alone drivedb's warnings of a firmware stand; compact,
            // which makes up for it.
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
        let mut args: Vec<String> = self
            .scope
            .arguments()
            .iter()
            .map(|text| (*text).to_owned())
            .collect();
        args.extend(
            device_type
                .iter()
                .flat_map(|device_type| ["-d".to_owned(), (*device_type).to_owned()]),
        );
        args.push(self.device.to_string_lossy().into_owned());
        smartctl_command(&self.program, args, self.timeout)
    }
}

pub fn smartctl_command(program: &Path, args: Vec<String>, timeout: Duration) -> Exec {
    Exec {
        program: program.to_owned(),
        args,
        stdin: Vec::new(),
        timeout,
        max_output: MAX_OUTPUT,
    }
}

/// Where the host's device is found here, and the type to give with it: smartctl goes by the name
/// (os_linux.cpp, autodetect_smart_device()), and only by the one below /dev.
pub fn device_node(
    root: &HostRoot,
    device: &HostPath,
    transport: Transport,
) -> (PathBuf, Option<&'static str>) {
    let path = device.as_path();
    // Names that are no files, or that smartctl takes apart: megaraid's bus, 3ware's and aacraid's
    // nodes, which it makes itself.
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

/// Asks, and where smartctl does not know a USB bridge, once more with `-d sat`: a bridge that does
/// not know the two ATA PASS-THROUGH commands of SAT refuses them as SCSI says. The other types
/// send a vendor's own commands, which on a stranger's bridge may mean anything (smartctl(8) warns
/// of usbcypress and usbjmicron,x; sntasmedia, sntjmicron and sntrealtek are of the same kind):
/// they are for an admin to set.
pub async fn query<W: Backend>(world: &W, query: &Query) -> QueryOutcome {
    let output = match run_smartctl(world, query.command(query.device_type.as_deref())).await {
        Ok(output) => output,
        Err(outcome) => return outcome,
    };
    let first = interpret(&output, query);
    if !query.try_sat
        || query.device_type.is_some()
        || !contains_bytes(&output.stdout, b"Unknown USB bridge")
    {
        return QueryOutcome::Response(first);
    }
    let second = match run_smartctl(world, query.command(Some("sat"))).await {
        Ok(output) => interpret(&output, query),
        Err(QueryOutcome::Response(failed)) => QueryResponse {
            fallback_tried: true,
            ..failed
        },
        Err(outcome) => return outcome,
    };
    QueryOutcome::Response(match second.response {
        // No output, and tried already: a time-out, or an error of the system.
        _ if second.fallback_tried => second,
        SmartResponse::Report(_) => QueryResponse {
            device_type: Some("sat".to_owned()),
            fallback_tried: true,
            ..second
        },
        // A bridge that passes no command on rejects CHECK POWER MODE too, and smartctl reports
        // that as SLEEP (ataprint.cpp). A disk that does sleep answers when it is awake.
        SmartResponse::Standby { .. } | SmartResponse::Failed { .. } => first,
        SmartResponse::NotApplicable { .. } | SmartResponse::TimedOut { .. } => QueryResponse {
            fallback_tried: true,
            ..first
        },
    })
}

/// The error: the outcome of a run without output.
async fn run_smartctl<W: Backend>(world: &W, exec: Exec) -> Result<Output, QueryOutcome> {
    let error = match world.run(exec).await {
        Ok(output) => return Ok(output),
        Err(error) => error,
    };
    let response = match error {
        ExecError::Unkillable { child, .. } => return Err(QueryOutcome::Stuck(child)),
        ExecError::NotAbsolute(_) => return Err(QueryOutcome::StartFailed(error.to_string())),
        ExecError::Start { .. } => return Err(QueryOutcome::StartFailed(with_causes(&error))),
        ExecError::TimedOut { .. } => SmartResponse::TimedOut {
            why: error.to_string(),
        },
        ExecError::Wait { .. } => SmartResponse::Failed {
            why: with_causes(&error),
        },
    };
    Err(QueryOutcome::Response(response.into()))
}

/// The meaning of the output of one run.
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
pub fn check_output(output: &Output) -> Result<(), OutputError> {
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

/// Equal but for white space (udev writes `_` for it), or one cut short: SCSI's inquiry and udev
/// keep fewer characters than the drive has.
pub fn serials_match(expected: &str, actual: &str) -> bool {
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
