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
use crate::model::drive::Transport;
use crate::model::path::HostPath;
use crate::model::smart::report::Body;
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
    Response {
        response: SmartResponse,
        /// The type that was tried and worked.
        device_type: Option<String>,
        /// Others were tried in vain.
        fallback_tried: bool,
        /// It is another drive than was meant: the device's name was given to another meanwhile.
        wrong_drive: bool,
    },
    Stuck(UnkillableChild),
    /// smartctl itself could not be started: no drive's fault.
    StartFailed(String),
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
        Err(reply) => return reply,
    };
    if query.try_sat
        && query.device_type.is_none()
        && contains_bytes(&output.stdout, b"Unknown USB bridge")
    {
        let second = match run_smartctl(world, query.command(Some("sat"))).await {
            Ok(output) => interpret(&output, query),
            Err(reply @ (QueryOutcome::Stuck(_) | QueryOutcome::StartFailed(_))) => return reply,
            Err(reply) => return with_fallback_tried(reply),
        };
        return match second {
            (answer @ SmartResponse::Report(_), another) => QueryOutcome::Response {
                response: answer,
                device_type: Some("sat".to_owned()),
                fallback_tried: true,
                wrong_drive: another,
            },
            // A bridge that passes nothing on refuses CHECK POWER MODE as well, and smartctl calls
            // that SLEEP (ataprint.cpp). If the disk does sleep, it will tell when it is awake.
            (SmartResponse::Standby { .. } | SmartResponse::Failed { .. }, _) => {
                let (answer, another) = interpret(&output, query);
                QueryOutcome::Response {
                    response: answer,
                    device_type: None,
                    fallback_tried: false,
                    wrong_drive: another,
                }
            }
            _ => {
                let (answer, another) = interpret(&output, query);
                QueryOutcome::Response {
                    response: answer,
                    device_type: None,
                    fallback_tried: true,
                    wrong_drive: another,
                }
            }
        };
    }
    let (answer, another) = interpret(&output, query);
    QueryOutcome::Response {
        response: answer,
        device_type: None,
        fallback_tried: false,
        wrong_drive: another,
    }
}

fn with_fallback_tried(reply: QueryOutcome) -> QueryOutcome {
    match reply {
        QueryOutcome::Response {
            response: answer,
            device_type,
            wrong_drive: another,
            ..
        } => QueryOutcome::Response {
            response: answer,
            device_type,
            fallback_tried: true,
            wrong_drive: another,
        },
        other => other,
    }
}

/// The error: what the end of it means when there is no output.
async fn run_smartctl<W: Backend>(world: &W, exec: Exec) -> Result<Output, QueryOutcome> {
    let failed = |why: String| QueryOutcome::Response {
        response: SmartResponse::Failed { why },
        device_type: None,
        fallback_tried: false,
        wrong_drive: false,
    };
    match world.run(exec).await {
        Ok(output) => Ok(output),
        Err(ExecError::Unkillable { child: remains, .. }) => Err(QueryOutcome::Stuck(remains)),
        Err(error @ ExecError::TimedOut { .. }) => {
            let answer = SmartResponse::TimedOut {
                why: error.to_string(),
            };
            Err(QueryOutcome::Response {
                response: answer,
                device_type: None,
                fallback_tried: false,
                wrong_drive: false,
            })
        }
        Err(error @ ExecError::NotAbsolute(_)) => Err(QueryOutcome::StartFailed(error.to_string())),
        Err(ExecError::Start { program, source }) => Err(QueryOutcome::StartFailed(format!(
            "starting {}: {source}",
            program.display()
        ))),
        Err(ExecError::Wait { program, source }) => Err(failed(format!(
            "waiting for {}: {source}",
            program.display()
        ))),
    }
}

/// What one run of smartctl says, and whether it speaks of another drive than was meant.
fn interpret(output: &Output, query: &Query) -> (SmartResponse, bool) {
    let failed = |why: String| (SmartResponse::Failed { why }, false);
    if let Some(why) = output_error(output) {
        return failed(why);
    }
    match parse::parse(&output.stdout) {
        Err(error) => failed(format!("the answer of smartctl makes no sense: {error}")),
        Ok(SmartResponse::Report(report)) => {
            let identity = &report.identity;
            match (&query.serial, &identity.serial) {
                (Some(meant), Some(told)) if !serials_match(meant, told) => {
                    let why = format!(
                        "another drive answered: serial number {} instead of {}",
                        told.trim(),
                        meant.trim()
                    );
                    (SmartResponse::Failed { why }, true)
                }
                _ if identity.serial.is_none()
                    && identity.model.is_none()
                    && report.body == Body::None =>
                {
                    failed("the answer of smartctl names no drive".to_owned())
                }
                _ => (SmartResponse::Report(report), false),
            }
        }
        Ok(answer) => (answer, false),
    }
}

/// Why what a run has written is not to be looked at, whatever it is.
pub fn output_error(output: &Output) -> Option<String> {
    if output.truncated {
        return Some(format!("smartctl wrote more than {} KiB", MAX_OUTPUT >> 10));
    }
    // wait(2): the low seven bits are the signal.
    if let signal @ 1.. = output.status & 0x7f {
        return Some(format!("smartctl was ended by signal {signal}"));
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map_or_else(String::new, |line| format!(": {line:.200}"));
        return Some(format!(
            "smartctl wrote nothing and ended with status {}{complaint}",
            output.status >> 8 & 0xff
        ));
    }
    None
}

/// Equal but for white space (udev writes `_` for it), or one cut short: SCSI's inquiry and udev
/// keep fewer characters than the drive has.
pub fn serials_match(meant: &str, told: &str) -> bool {
    let plain = |text: &str| {
        text.chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_uppercase())
            .collect::<String>()
    };
    let (meant, told) = (plain(meant), plain(told));
    let (short, long) = if meant.len() < told.len() {
        (&meant, &told)
    } else {
        (&told, &meant)
    };
    long.contains(short.as_str())
}

fn contains_bytes(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
