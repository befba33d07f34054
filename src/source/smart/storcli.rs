//! storcli or perccli, which know the state of a MegaRAID controller's arrays: when one is run.
//!
//! In: whether such arrays are here, and when their controllers were last reset. Out:
//! `SourceUpdate::RaidReports`. Each call asks the firmware, and stalls the controller's I/O: hourly at
//! most, one at a time, while no smartctl runs; none for a day after one did not answer in time or the
//! kernel reset the controller. MegaCli is never run: it stops the firmware of newer controllers.

mod parse;
#[cfg(test)]
mod tests;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::context::Context;
use crate::program::{self, Failure};
use crate::smart::SmartTaskResult;
use crate::smart::backend::Backend;
use crate::smart::tasks::{TASK_LOST, TaskSet};
use diskvitals_checker::SEARCH_PATH;
use diskvitals_finding::observation::Observation;
use diskvitals_host::clock::now;
use diskvitals_host::exec::{Exec, UnkillableChild};
use diskvitals_host::root::HostRoot;
use diskvitals_model::raid_report::{RaidReport, StorcliRequest};
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_text::causes::with_causes;
use diskvitals_text::duration::elapsed;

const INTERVAL: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(60);
/// After a time-out, or a reset of the controller.
const PAUSE: Duration = Duration::from_secs(24 * 3600);
/// At a start, drives are asked first.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// While a smartctl cannot be killed.
const RETRY: Duration = Duration::from_secs(600);
/// A controller with 200 drives has 200 KiB.
const MAX_OUTPUT: usize = 8 << 20;
const PROGRAMS: [&str; 4] = ["storcli64", "storcli", "perccli64", "perccli"];
/// Beside `SEARCH_PATH`.
const PLACES: [&str; 2] = ["/opt/MegaRAID/storcli", "/opt/MegaRAID/perccli"];
/// Without `nolog` it writes a log into its working directory.
const ARGUMENTS: [&str; 5] = ["/cALL", "show", "all", "J", "nolog"];
const RECORDED: &str = "/exec/storcli/show.json";

#[derive(Debug)]
pub struct StorcliResult {
    begun: Timestamp,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    NotInstalled,
    Reports(Vec<RaidReport>),
    Failed(String),
    /// It did not end in time. With a process, it cannot be killed.
    TimedOut(String, Option<UnkillableChild>),
}

/// What the loop of the source does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ask,
    /// No smartctl may start: storcli runs, or waits for the last one to end.
    HoldSmartctl,
    WaitUntil(Option<Instant>),
}

/// The smartctl processes of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Smartctl {
    Idle,
    Running,
    /// One cannot be killed, and may never end.
    Stuck,
}

pub struct Storcli {
    due: Instant,
    running: bool,
    /// The last reset for which a pause began.
    reset: Option<Timestamp>,
    stuck: Option<UnkillableChild>,
    /// Why the last one has no answer, for the status of the source.
    pub(crate) error: Option<String>,
}

impl Storcli {
    pub(crate) fn new(is_recorded: bool, at: Instant) -> Storcli {
        let due = if is_recorded { at } else { at + FIRST_AFTER };
        Storcli { due, running: false, reset: None, stuck: None, error: None }
    }

    pub(crate) fn step(
        &mut self,
        request: StorcliRequest,
        smartctl: Smartctl,
        at: Instant,
        time: Timestamp,
    ) -> Step {
        if self.running {
            return Step::HoldSmartctl;
        }
        if !request.is_needed {
            return Step::WaitUntil(None);
        }
        if let Some(reset) = request.last_reset.filter(|reset| Some(*reset) != self.reset) {
            self.reset = Some(reset);
            self.due = self.due.max(at + PAUSE.saturating_sub(elapsed(reset, time)));
        }
        if self.stuck.as_mut().is_some_and(|child| child.has_exited()) {
            self.stuck = None;
        }
        if self.due <= at && (smartctl == Smartctl::Stuck || self.stuck.is_some()) {
            self.due = at + RETRY;
        }
        if self.due > at {
            return Step::WaitUntil(Some(self.due));
        }
        if smartctl == Smartctl::Running {
            return Step::HoldSmartctl;
        }
        (self.due, self.running) = (at + INTERVAL, true);
        Step::Ask
    }

    pub(crate) fn start<W: Backend>(&self, context: &Context, backend: &W, tasks: &mut TaskSet) {
        let begun = now();
        let result = move |answer| SmartTaskResult::Storcli(StorcliResult { begun, answer });
        let (root, backend) = (context.root.clone(), backend.clone());
        // Below /run, which no disk can block.
        let directory = context.freeze_intents.with_file_name("storcli");
        tasks.spawn(result(Answer::Failed(TASK_LOST.to_owned())), async move {
            result(ask(&backend, &root, &directory).await)
        });
    }

    pub(crate) fn record(&mut self, result: StorcliResult, at: Instant) -> SourceUpdate {
        let StorcliResult { begun, answer } = result;
        (self.running, self.error) = (false, None);
        let mut failed = |why: String| {
            tracing::warn!(why, "storcli has no answer");
            self.error = Some(why.clone());
            Observation::failed(begun, why)
        };
        SourceUpdate::RaidReports(match answer {
            Answer::NotInstalled => {
                // Nothing is started to see whether it is.
                self.due = at + RETRY;
                Observation::Unavailable
            }
            Answer::Reports(reports) => Observation::ok(begun, reports),
            Answer::Failed(why) => failed(why),
            Answer::TimedOut(why, stuck) => {
                (self.due, self.stuck) = (at + PAUSE, stuck);
                failed(format!("timed out: {why}; not asked again for a day"))
            }
        })
    }
}

async fn ask<W: Backend>(backend: &W, root: &HostRoot, directory: &Path) -> Answer {
    if root.is_recorded() {
        return match root.read(RECORDED) {
            Ok(bytes) => understand(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Answer::NotInstalled,
            Err(error) => Answer::Failed(format!("reading {RECORDED}: {error}")),
        };
    }
    for name in PROGRAMS {
        for place in PLACES.iter().chain(&SEARCH_PATH) {
            let path = Path::new(place).join(name);
            if backend.file_stamp(path.clone()).await.is_some() {
                return run(path, directory, TIMEOUT).await;
            }
        }
    }
    Answer::NotInstalled
}

async fn run(program: PathBuf, directory: &Path, timeout: Duration) -> Answer {
    // What an earlier run left there goes.
    let emptied = match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::DirBuilder::new().mode(0o700).create(directory),
    };
    if let Err(error) = emptied {
        return Answer::Failed(format!("creating {}: {error}", directory.display()));
    }
    let exec = Exec {
        program,
        args: ARGUMENTS.map(str::to_owned).into(),
        stdin: Vec::new(),
        timeout,
        max_output: MAX_OUTPUT,
    };
    match program::run(&exec, directory).await {
        Ok(output) if output.truncated => {
            Answer::Failed(format!("not understood: more than {MAX_OUTPUT} bytes"))
        }
        // The status says the same as the answer, or there is no answer.
        Ok(output) => understand(&output.stdout),
        Err(Failure { why, stuck, has_timed_out: true }) => Answer::TimedOut(why, stuck),
        Err(Failure { why, .. }) => Answer::Failed(why),
    }
}

fn understand(bytes: &[u8]) -> Answer {
    match parse::parse(bytes) {
        Ok(reports) => Answer::Reports(reports),
        Err(error) => Answer::Failed(format!("not understood: {}", with_causes(&error))),
    }
}
