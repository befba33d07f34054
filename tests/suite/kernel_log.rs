//! Records of real kernels, read from /dev/kmsg during an injected fault. A new case needs a file
//! and its result in the snapshot.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use diskvitals_analyze as analyze;
use diskvitals_analyze::InputSource;

use crate::programs::built_program;

#[test]
fn kernel_logs_recorded_during_fault_injection_are_classified_as_expected() {
    let mut text = String::new();
    for file in files(Path::new("tests/kernel_log")) {
        let answer = analyze::kernel_log(&InputSource::File(file.clone())).unwrap();
        let classes: Vec<String> = answer
            .classes
            .iter()
            .map(|(class, count)| format!("{count} {}", class.name()))
            .collect();
        let classes = if classes.is_empty() { "nothing".to_owned() } else { classes.join(", ") };
        writeln!(
            text,
            "{}: {} records, {classes}",
            file.strip_prefix("tests/kernel_log").unwrap().display(),
            answer.records
        )
        .unwrap();
        for device in &answer.devices {
            let classes: Vec<String> = device
                .classes
                .iter()
                .map(|(class, count)| format!("{count} {}", class.name()))
                .collect();
            writeln!(
                text,
                "    {}: {}; fault {:?}, {} sectors",
                device.device,
                classes.join(", "),
                device.drive_fault,
                device.distinct_sectors
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// The exit status of `analyze kernel-log` for these files, and what it prints.
#[allow(clippy::disallowed_methods)] // A test starts the program it tests.
fn analyze_files(dir: &Path, files: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(built_program("diskvitals"));
    command.args(["analyze", "kernel-log"]);
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
        command.arg(dir.join(name));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[test]
fn a_log_that_was_not_understood_has_an_exit_status_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let prose = ("notes.txt", "The disk makes noises.\nWhat is it?\n");
    let clean = ("clean.txt", "[    1.0] eth0: link up\n");
    let failing =
        ("failing.txt", "[    1.0] critical medium error, dev sda, sector 8 op 0x0:(READ)\n");
    let (code, text) = analyze_files(dir.path(), &[prose]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("UNKNOWN: no record of the kernel")
            && text.contains("2 lines were not understood, for example line 1: The disk makes"),
        "{text}"
    );
    assert_eq!(analyze_files(dir.path(), &[clean]).0, Some(0));
    assert_eq!(analyze_files(dir.path(), &[failing]).0, Some(0));
    // One of several.
    assert_eq!(analyze_files(dir.path(), &[failing, prose, clean]).0, Some(3));
}
