//! Records of real kernels, read from /dev/kmsg during an injected fault. A new case needs a file
//! and its result in the snapshot.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use diskvitals::analyze;
use diskvitals::analyze::InputSource;

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
        let classes = if classes.is_empty() {
            "nothing".to_owned()
        } else {
            classes.join(", ")
        };
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
        if path.is_dir() {
            files.extend(self::files(&path))
        } else {
            files.push(path)
        }
    }
    files.sort();
    files
}
