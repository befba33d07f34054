//! Support bundles: one file with everything that the daemon knows, for a person elsewhere.
//!
//! `contents` names the files and converts the answers, `write` makes the archive, `read` reads it
//! with limits, `redact` replaces serial numbers, `kernel_log` finds the storage lines. In: the daemon,
//! the kernel log, an archive. Out: an archive, or `Answers`.

mod contents;
mod kernel_log;
pub mod read;
mod redact;
pub mod write;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::answers::{self, Answers};
use crate::args::report::BundleArgs;
use crate::bundle::contents::{FORMAT, KERNEL_LOG, KIND, MANIFEST, Manifest};
use crate::bundle::redact::Redactor;
use crate::complain;
use crate::error::Error;
use diskvitals_terminal::output::write_document;
use diskvitals_terminal::screen::bytes;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;

pub use crate::bundle::read::read;
pub use crate::bundle::write::WriteError;
pub(crate) use crate::bundle::write::write_file;

/// Of one smartctl output, decompressed; the daemon keeps none that is larger.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// One file of the archive.
struct Part {
    name: String,
    bytes: Vec<u8>,
}

pub async fn run(client: &Client, args: &BundleArgs) -> Result<ExitCode, Error> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(WriteError::Terminal.into());
    }
    if !to_stdout && !args.force {
        write::check_absent(&args.file)?;
    }
    let mut answers = answers::collect(client).await?;
    let mut outputs = smart_outputs(client, &mut answers).await?;
    let log = match kernel_log::read(Path::new("/dev/kmsg")) {
        Ok(text) => Some(text),
        Err(error) => {
            let gap = format!("{KERNEL_LOG}: reading /dev/kmsg: {error}; be root to include it");
            answers.gaps.push(gap);
            None
        }
    };
    let (manifest, parts) = parts(&answers, &mut outputs, log, args.redact)?;
    let archive = write::archive(&folder(&manifest), &parts).map_err(WriteError::Archive)?;
    if to_stdout {
        write_document(&archive).map_err(Error::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    write_file(&args.file, &archive, Some(0o600), args.force)?;
    complain(&format!(
        "{} written: {} files, {}",
        args.file.display(),
        parts.len(),
        bytes(archive.len() as u64)
    ));
    for gap in &answers.gaps {
        complain(&format!("missing in it: {gap}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// smartctl's last output of a drive, as JSON where it is JSON.
enum SmartctlOutput {
    Json(Value),
    Text(String),
}

async fn smart_outputs(
    client: &Client,
    answers: &mut Answers,
) -> Result<Vec<(String, SmartctlOutput)>, Error> {
    let mut outputs = Vec::new();
    let names = contents::drive_file_names(&answers.drives);
    for (at, name) in names.into_iter().enumerate() {
        let drive = &answers.drives[at];
        // Such a drive is never queried.
        if drive.smart.is_none() {
            continue;
        }
        let why = match client.smart_output(&drive.id).await {
            Ok(None) => {
                let gap = "smartctl's outputs: this daemon does not keep them yet";
                answers.gaps.push(gap.to_owned());
                break;
            }
            Ok(Some(output)) if !output.unavailable.is_empty() => output.unavailable,
            Ok(Some(output)) => match decompressed(&output) {
                Ok(output) => {
                    outputs.push((name, output));
                    continue;
                }
                Err(error) => format!("decompressing it: {error}"),
            },
            Err(error) if error.is_not_found() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        answers.gaps.push(format!("{name}: {why}"));
    }
    Ok(outputs)
}

fn decompressed(output: &wire::SmartOutput) -> std::io::Result<SmartctlOutput> {
    let mut bytes = Vec::new();
    GzDecoder::new(&output.gzip[..]).take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(match serde_json::from_slice(&bytes) {
        Ok(value) => SmartctlOutput::Json(value),
        Err(_) => SmartctlOutput::Text(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// All files, the manifest first: what is cut short still says what it should contain.
fn parts(
    answers: &Answers,
    outputs: &mut Vec<(String, SmartctlOutput)>,
    mut log: Option<String>,
    redact: bool,
) -> Result<(Manifest, Vec<Part>), Error> {
    let mut files = contents::to_json(answers)?;
    let mut manifest = Manifest {
        kind: KIND.to_owned(),
        format: FORMAT,
        diskvitals: answers.version.clone(),
        time: answers.taken.to_string(),
        host: answers.node.name.clone(),
        redacted: redact,
        missing: answers.gaps.clone(),
        files: Vec::new(),
    };
    if redact {
        let known = outputs.iter().filter_map(|(_, output)| match output {
            SmartctlOutput::Json(value) => Some(value),
            SmartctlOutput::Text(_) => None,
        });
        let mut redactor = Redactor::new(answers, known);
        for (_, output) in outputs.iter_mut() {
            match output {
                SmartctlOutput::Json(value) => redactor.json(value),
                SmartctlOutput::Text(text) => *text = redactor.text(text),
            }
        }
        files.iter_mut().for_each(|(_, value)| redactor.json(value));
        log = log.map(|text| redactor.text(&text));
        manifest.host = redactor.text(&manifest.host);
        for gap in &mut manifest.missing {
            *gap = redactor.text(gap);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut push = |name: &str, bytes: Vec<u8>| {
        parts.push(Part { name: name.to_owned(), bytes });
    };
    for (file, value) in &files {
        push(file.name(), format!("{value:#}\n").into_bytes());
    }
    if let Some(log) = log {
        push(KERNEL_LOG, log.into_bytes());
    }
    for (name, output) in outputs {
        let text = match output {
            SmartctlOutput::Json(value) => format!("{value:#}\n"),
            SmartctlOutput::Text(text) => std::mem::take(text),
        };
        push(name, text.into_bytes());
    }
    manifest.files = parts.iter().map(|part| part.name.clone()).collect();
    let text = serde_json::to_string_pretty(&manifest).map_err(WriteError::Manifest)?;
    parts.insert(0, Part { name: MANIFEST.to_owned(), bytes: (text + "\n").into_bytes() });
    Ok((manifest, parts))
}

/// `diskvitals-rack7-20260301T120000Z`: what is unpacked is one folder.
fn folder(manifest: &Manifest) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_".contains(c) => c,
        _ => '_',
    };
    let host: String = manifest.host.chars().take(64).map(plain).collect();
    let time = manifest.time.split('.').next().unwrap_or_default();
    let time: String = time.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    format!("diskvitals-{host}-{time}Z")
}

/// Seconds since 1970, for the archive.
fn now() -> u64 {
    let now = diskvitals_host::clock::wall_now().as_second();
    u64::try_from(now).unwrap_or(0)
}

#[cfg(test)]
mod tests;
