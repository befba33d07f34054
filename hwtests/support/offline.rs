//! The ground truth about an image: what the offline checker finds while the image is not in use.
//!
//! The output is read by rules of its own, not by those of the program under test.

use std::path::Path;

use diskvitals_fscheck::Filesystem;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfflineResult {
    Clean,
    /// The problems found: the first lines of output.
    Damaged(Vec<String>),
    /// Inconclusive: a log that must be replayed, or a failure of the checker itself.
    Unknown(String),
}

const SHOWN: usize = 3;

/// Of an image (or a device) that is not mounted.
#[expect(clippy::disallowed_methods, reason = "a test runs the checkers of the system")]
pub fn check(filesystem: Filesystem, image: &Path) -> OfflineResult {
    let (program, arguments): (&str, &[&str]) = match filesystem {
        Filesystem::Ext4 => ("/usr/sbin/e2fsck", &["-fn"]),
        Filesystem::Xfs => ("/usr/sbin/xfs_repair", &["-n", "-f"]),
        Filesystem::Btrfs => ("/usr/bin/btrfs", &["check", "--readonly"]),
    };
    // A device is no file.
    let arguments: Vec<&str> = arguments
        .iter()
        .filter(|argument| **argument != "-f" || image.is_file())
        .copied()
        .collect();
    let output = std::process::Command::new(program).args(&arguments).arg(image).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let found: Vec<String> =
        text.lines().filter(|line| !is_boilerplate(filesystem, line)).map(str::to_owned).collect();
    let shown = || found.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let Some(code) = output.status.code() else {
        return OfflineResult::Unknown(format!("{program}: {}", output.status));
    };
    match filesystem {
        Filesystem::Xfs if text.contains("valuable metadata changes in a log") => {
            OfflineResult::Unknown("its log is not replayed".to_owned())
        }
        Filesystem::Ext4 if text.contains("skipping journal recovery") => {
            OfflineResult::Unknown("its journal is not replayed".to_owned())
        }
        // 8: inconclusive; but the problems found before count.
        Filesystem::Ext4 if code & !0xc != 0 => {
            OfflineResult::Unknown(format!("exit status {code}: {}", shown().join(" | ")))
        }
        _ if found.is_empty() && code == 0 => OfflineResult::Clean,
        _ if found.is_empty() => OfflineResult::Damaged(vec![format!("exit status {code}")]),
        _ => OfflineResult::Damaged(shown()),
    }
}

fn is_boilerplate(filesystem: Filesystem, line: &str) -> bool {
    let begins =
        |with: &[&str]| line.trim().is_empty() || with.iter().any(|with| line.starts_with(with));
    match filesystem {
        // The summary: `image: 3120/16384 files (0.3% non-contiguous), 14523/65536 blocks`.
        Filesystem::Ext4 => {
            begins(&["e2fsck ", "Pass "])
                || line.contains("non-contiguous)")
                || line.contains("could be shorter")
        }
        Filesystem::Xfs => {
            let geometry = [
                "Cannot get host filesystem geometry",
                "Repair may fail if there is",
                "the image and the host filesystem",
            ];
            begins(&geometry) || begins(&["Phase ", "        - ", "No modify flag"])
        }
        Filesystem::Btrfs => {
            let summary = [
                "Opening filesystem",
                "Checking filesystem",
                "UUID: ",
                "found ",
                "total ",
                "btree space",
                "file data blocks",
                " referenced ",
            ];
            begins(&summary)
                || (line.starts_with('[') && line.contains("checking"))
                || line.starts_with("no error found")
                || line.contains("cache and super generation don't match")
        }
    }
}
