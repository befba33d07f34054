//! One check, requested as an administrator does: `diskvitals check`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::programs::built_program;
use crate::support::pause;

/// A frozen check waits a minute between its two runs, and others run first.
const TIME_LIMIT: Duration = Duration::from_secs(900);
/// A new mount or device must be known within this time.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Clean,
    Suspected,
    Corrupted,
    Inconclusive,
    Failed,
    /// No answer at all.
    Nothing,
}

pub const VERDICTS: [Verdict; 6] = [
    Verdict::Clean,
    Verdict::Suspected,
    Verdict::Corrupted,
    Verdict::Inconclusive,
    Verdict::Failed,
    Verdict::Nothing,
];

#[derive(Clone, Debug)]
pub struct Answer {
    pub verdict: Verdict,
    /// `FROZEN`
    pub mode: String,
    pub runs: usize,
    pub reason: String,
    pub took: Duration,
}

impl Answer {
    fn none(why: String, took: Duration) -> Answer {
        Answer { verdict: Verdict::Nothing, mode: String::new(), runs: 0, reason: why, took }
    }
}

/// Requests a check of a mount point or a device.
pub async fn ask(socket: &Path, filesystem: Filesystem, target: &Path, freeze: bool) -> Answer {
    let started = Instant::now();
    loop {
        let (json, text) = match timeout(TIME_LIMIT, run(socket, filesystem, target, freeze)).await
        {
            Ok(answer) => answer,
            Err(_) => {
                return Answer::none(format!("no answer within {TIME_LIMIT:?}"), started.elapsed());
            }
        };
        if let Some(check) = json {
            return read(&check, started.elapsed());
        }
        if started.elapsed() > DISCOVERY_LIMIT {
            return Answer::none(text, started.elapsed());
        }
        // It was mounted a moment ago.
        pause(Duration::from_millis(500)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
async fn run(
    socket: &Path,
    filesystem: Filesystem,
    target: &Path,
    freeze: bool,
) -> (Option<serde_json::Value>, String) {
    let mut command = Command::new(PathBuf::from(built_program("diskvitals")));
    // Under such a load a daemon may take longer to answer than the default time-out.
    command
        .arg("--socket")
        .arg(socket)
        .args(["--timeout", "60", "--output", "json", "check"])
        .arg(target);
    if target.starts_with("/dev") {
        // Without udev the node does not know the content of a device that is not mounted.
        command.args(["--filesystem", filesystem.name()]);
    }
    if freeze {
        command.arg("--freeze");
    }
    let output =
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("diskvitals starts");
    let json = serde_json::from_slice::<serde_json::Value>(&output.stdout)
        .ok()
        .filter(|value| value.is_object());
    let text = [output.stdout, output.stderr].concat();
    (json, String::from_utf8_lossy(&text).trim().to_owned())
}

fn read(answer: &serde_json::Value, took: Duration) -> Answer {
    let check = answer.get("check").unwrap_or(answer);
    let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let verdict = match text("verdict").trim_start_matches("VERDICT_") {
        "CLEAN" => Verdict::Clean,
        "SUSPECTED" => Verdict::Suspected,
        "CORRUPTED" => Verdict::Corrupted,
        "INCONCLUSIVE" => Verdict::Inconclusive,
        "FAILED" => Verdict::Failed,
        _ => Verdict::Nothing,
    };
    let mode = text("mode").rsplit("MODE_").next().unwrap_or_default().to_owned();
    Answer {
        verdict,
        mode,
        runs: check["runs"].as_array().map_or(0, Vec::len),
        reason: text("reason"),
        took,
    }
}
