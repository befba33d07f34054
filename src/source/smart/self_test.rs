//! A self-test that an admin starts: `smartctl -t short` or `-t long`, and what smartctl says to
//! it.
//!
//! Its words are in the text of the answer only, hence `--json=o`. It says `Testing has begun.`
//! (ATA), `Short Background Self Test has begun` (SCSI), `Self-test has begun` (NVMe, from 7.4 on;
//! older ones pass over `-t` without a word and end with 0), and so only a word that it has begun
//! counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::host::exec::{Exec, ExecError, Output, UnkillableChild};
use crate::model::smart::{SelfTestKind, parse};
use crate::source::smart::backend::Backend;
use crate::source::smart::query;

/// To start it takes a command or two.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Of smartctl's words.
const MAX_TEXT_LENGTH: usize = 400;

#[derive(Debug)]
pub enum SelfTestStartResult {
    Response(Result<String, String>),
    /// None was started: another drive has the device's name by now.
    WrongDrive(String),
    Stuck(UnkillableChild),
}

pub fn start_command(
    program: &Path,
    device: PathBuf,
    device_type: Option<&str>,
    kind: SelfTestKind,
) -> Exec {
    let kind = match kind {
        SelfTestKind::Short => "short",
        SelfTestKind::Long => "long",
    };
    let mut args = vec!["--json=o".to_owned(), "-t".to_owned(), kind.to_owned()];
    args.extend(
        device_type
            .iter()
            .flat_map(|device_type| ["-d".to_owned(), (*device_type).to_owned()]),
    );
    args.push(device.to_string_lossy().into_owned());
    query::smartctl_command(program, args, TIMEOUT)
}

/// Asks who is there. A name is given to another drive as soon as the one before has gone.
pub fn identify_command(program: &Path, device: &Path, device_type: Option<&str>) -> Exec {
    let mut args = vec!["-j".to_owned(), "-i".to_owned()];
    args.extend(
        device_type
            .iter()
            .flat_map(|device_type| ["-d".to_owned(), (*device_type).to_owned()]),
    );
    args.push(device.to_string_lossy().into_owned());
    query::smartctl_command(program, args, TIMEOUT)
}

/// `who`: the question who is there, and the serial number that is to be told.
pub async fn start<W: Backend>(
    world: W,
    exec: Exec,
    who: Option<(Exec, String)>,
) -> SelfTestStartResult {
    if let Some((who, meant)) = who {
        let told = match world.run(who).await {
            Ok(output) => parse_serial(&output),
            Err(error) => return failed(error),
        };
        match told {
            Ok(told) if query::serials_match(&meant, &told) => {}
            Ok(told) => {
                return SelfTestStartResult::WrongDrive(format!(
                    "another drive answered: serial number {} instead of {}",
                    told.trim(),
                    meant.trim()
                ));
            }
            Err(why) => return SelfTestStartResult::Response(Err(why)),
        }
    }
    match world.run(exec).await {
        Ok(output) => SelfTestStartResult::Response(parse_output(&output)),
        Err(error) => failed(error),
    }
}

fn failed(error: ExecError) -> SelfTestStartResult {
    match error {
        ExecError::Unkillable { child: remains, .. } => SelfTestStartResult::Stuck(remains),
        ExecError::Start { program, source } => {
            SelfTestStartResult::Response(Err(format!("starting {}: {source}", program.display())))
        }
        error => SelfTestStartResult::Response(Err(error.to_string())),
    }
}

fn parse_serial(output: &Output) -> Result<String, String> {
    if let Some(why) = query::output_error(output) {
        return Err(why);
    }
    let identity = parse::identity(&output.stdout)
        .map_err(|error| format!("the answer of smartctl makes no sense: {error}"))?;
    identity
        .serial
        .ok_or_else(|| "the drive does not tell who it is".to_owned())
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

fn parse_output(output: &Output) -> Result<String, String> {
    if let Some(why) = query::output_error(output) {
        return Err(why);
    }
    let StartOutput { smartctl } = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the answer of smartctl makes no sense: {error}"))?;
    // Without its first lines (name, copyright) and headings.
    let said = smartctl.output.iter().map(|line| line.trim());
    let said: Vec<&str> = said
        .filter(|line| !line.is_empty() && !line.starts_with("==="))
        .skip_while(is_banner)
        .collect();
    let words = |lines: &[&str]| {
        lines
            .join(" ")
            .chars()
            .take(MAX_TEXT_LENGTH)
            .collect::<String>()
    };
    let begun = said
        .iter()
        .position(|line| line.to_ascii_lowercase().contains("has begun"));
    let refused = output.status >> 8 & 0b111 != 0;
    match begun {
        Some(at) if !refused => Ok(words(said.get(at..).unwrap_or_default())),
        _ if !said.is_empty() => Err(words(&said)),
        _ => {
            let messages: Vec<&str> = smartctl
                .messages
                .iter()
                .map(|message| message.string.as_str())
                .collect();
            match messages.as_slice() {
                [] => Err(no_output_error(
                    &smartctl.version,
                    output.status >> 8 & 0xff,
                )),
                messages => Err(words(messages)),
            }
        }
    }
}

fn is_banner(line: &&str) -> bool {
    line.starts_with("smartctl ") || line.starts_with("Copyright ")
}

fn no_output_error(version: &[u32], status: i32) -> String {
    match version {
        [major, minor, ..] if (*major, *minor) < (7, 4) => {
            format!(
                "smartctl {major}.{minor} started nothing (exit status {status}); self-tests of NVMe drives need 7.4 or newer"
            )
        }
        _ => format!("smartctl started nothing and said nothing (exit status {status})"),
    }
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
        parse_output(&Output {
            status: status << 8,
            stdout,
            stderr: Vec::new(),
            truncated: false,
        })
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
