//! The vendors' tools that know the state of a RAID controller's arrays: when one is run.
//!
//! In: which controllers are here, and when they were last reset. Out: `SourceUpdate::RaidReports`. Each
//! call asks the firmware, and stalls the controller's I/O: hourly at most, one at a time, while no
//! smartctl runs; none for a day after one did not answer in time or the kernel reset the controller.
//! MegaCli is never run: it stops the firmware of newer controllers.
//!
//! `storcli`, `ssacli` and `arcconf` understand the answers.

mod arcconf;
mod ssacli;
mod storcli;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::context::Context;
use crate::program::{self, Failure};
use crate::smart::SmartTaskResult;
use crate::smart::backend::Backend;
use crate::smart::raid_tools::words::ParseError;
use crate::smart::tasks::{TASK_LOST, TaskSet};
use diskvitals_checker::SEARCH_PATH;
use diskvitals_finding::observation::Observation;
use diskvitals_host::clock::now;
use diskvitals_host::exec::{Exec, UnkillableChild};
use diskvitals_host::root::HostRoot;
use diskvitals_model::raid_report::{
    ARCCONF, RaidFamily, RaidReport, RaidTool, RaidToolRequests, SSACLI, STORCLI,
};
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
/// Of one tool that is asked for each controller.
const MAX_CONTROLLERS: u32 = 8;

struct Tool {
    names: RaidTool,
    families: &'static [RaidFamily],
    /// `N` is the number of a controller.
    arguments: &'static [&'static str],
    parse: fn(&[u8]) -> Result<Vec<RaidReport>, ParseError>,
    /// How many controllers an answer says that there are, if each is asked by its number.
    count: fn(&[u8]) -> u32,
    /// Its answer in a recorded host.
    recorded: &'static str,
}

/// Of two tools for one controller the first that is installed and answers.
const TOOLS: [Tool; 3] = [
    Tool {
        names: STORCLI,
        families: &[RaidFamily::MegaRaid],
        // Without `nolog` it writes a log into its working directory.
        arguments: &["/cALL", "show", "all", "J", "nolog"],
        parse: storcli::parse,
        count: |_| 1,
        recorded: "/exec/storcli/show.json",
    },
    Tool {
        names: SSACLI,
        families: &[RaidFamily::SmartArray],
        arguments: &["ctrl", "all", "show", "config", "detail"],
        parse: ssacli::parse,
        count: |_| 1,
        recorded: "/exec/ssacli/config.txt",
    },
    Tool {
        names: ARCCONF,
        families: &[RaidFamily::SmartArray, RaidFamily::Adaptec],
        arguments: &["GETCONFIG", "N", "AL"],
        parse: arcconf::parse,
        count: arcconf::count,
        recorded: "/exec/arcconf/getconfig.txt",
    },
];

#[derive(Debug)]
pub struct RaidToolResult {
    family: RaidFamily,
    begun: Timestamp,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    NotInstalled,
    Reports(Vec<RaidReport>),
    /// The tool, and why.
    Failed(&'static str, String),
    /// It did not end in time. With a process, it cannot be killed.
    TimedOut(&'static str, String, Option<UnkillableChild>),
}

/// What the loop of the source does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ask(RaidFamily),
    /// No smartctl may start: a tool runs, or waits for the last smartctl to end.
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

/// When the tool of a family is due.
struct Schedule {
    due: Instant,
    /// The last reset for which a pause began.
    reset: Option<Timestamp>,
    /// The tool, and why the last one has no answer.
    error: Option<(&'static str, String)>,
}

pub struct RaidTools {
    schedules: BTreeMap<RaidFamily, Schedule>,
    running: bool,
    stuck: Option<UnkillableChild>,
}

impl RaidTools {
    pub(crate) fn new(is_recorded: bool, at: Instant) -> RaidTools {
        let due = if is_recorded { at } else { at + FIRST_AFTER };
        let schedule = |family| (family, Schedule { due, reset: None, error: None });
        let schedules = RaidFamily::ALL.into_iter().map(schedule).collect();
        RaidTools { schedules, running: false, stuck: None }
    }

    /// Why tools had no answer, for the status of the source.
    pub(crate) fn errors(&self) -> impl Iterator<Item = String> {
        let errors = self.schedules.values().filter_map(|it| it.error.as_ref());
        errors.map(|(tool, why)| format!("{tool}: {why}"))
    }

    pub(crate) fn step(
        &mut self,
        requests: &RaidToolRequests,
        smartctl: Smartctl,
        at: Instant,
        time: Timestamp,
    ) -> Step {
        if self.running {
            return Step::HoldSmartctl;
        }
        if self.stuck.as_mut().is_some_and(|child| child.has_exited()) {
            self.stuck = None;
        }
        let must_wait = smartctl == Smartctl::Stuck || self.stuck.is_some();
        let mut next: Option<(Instant, RaidFamily)> = None;
        for (family, schedule) in &mut self.schedules {
            let Some(last_reset) = requests.get(family) else { continue };
            if let Some(reset) = last_reset.filter(|reset| Some(*reset) != schedule.reset) {
                schedule.reset = Some(reset);
                let pause = PAUSE.saturating_sub(elapsed(reset, time));
                schedule.due = schedule.due.max(at + pause);
            }
            if schedule.due <= at && must_wait {
                schedule.due = at + RETRY;
            }
            if next.is_none_or(|(due, _)| schedule.due < due) {
                next = Some((schedule.due, *family));
            }
        }
        match next {
            Some((due, _)) if due > at => Step::WaitUntil(Some(due)),
            Some(_) if smartctl == Smartctl::Running => Step::HoldSmartctl,
            Some((_, family)) => {
                self.running = true;
                self.set_due(family, at + INTERVAL);
                Step::Ask(family)
            }
            None => Step::WaitUntil(None),
        }
    }

    fn set_due(&mut self, family: RaidFamily, due: Instant) {
        if let Some(schedule) = self.schedules.get_mut(&family) {
            schedule.due = due;
        }
    }

    pub(crate) fn start<W: Backend>(
        &self,
        family: RaidFamily,
        context: &Context,
        backend: &W,
        tasks: &mut TaskSet,
    ) {
        let begun = now();
        let result =
            move |answer| SmartTaskResult::RaidTool(RaidToolResult { family, begun, answer });
        let (root, backend) = (context.root.clone(), backend.clone());
        // Below /run, which no disk can block.
        let directory = context.freeze_intents.with_file_name("raid-tool");
        tasks.spawn(
            result(Answer::Failed("the controller's tool", TASK_LOST.to_owned())),
            async move { result(ask(family, &backend, &root, &directory).await) },
        );
    }

    pub(crate) fn record(&mut self, result: RaidToolResult, at: Instant) -> SourceUpdate {
        let RaidToolResult { family, begun, answer } = result;
        self.running = false;
        let mut error = None;
        let mut failed = |tool: &'static str, why: String| {
            tracing::warn!(tool, why, "a RAID controller's tool has no answer");
            error = Some((tool, why.clone()));
            Observation::failed(begun, why)
        };
        let reports = match answer {
            Answer::NotInstalled => {
                // Nothing is started to see whether it is.
                self.set_due(family, at + RETRY);
                Observation::Unavailable
            }
            Answer::Reports(reports) => Observation::ok(begun, reports),
            Answer::Failed(tool, why) => failed(tool, why),
            Answer::TimedOut(tool, why, stuck) => {
                self.set_due(family, at + PAUSE);
                self.stuck = stuck;
                failed(tool, format!("timed out: {why}; not asked again for a day"))
            }
        };
        if let Some(schedule) = self.schedules.get_mut(&family) {
            schedule.error = error;
        }
        SourceUpdate::RaidReports { family, reports }
    }
}

/// The first answer of a tool that is installed. After one that did not end no other is run.
async fn ask<W: Backend>(
    family: RaidFamily,
    backend: &W,
    root: &HostRoot,
    directory: &Path,
) -> Answer {
    let mut answer = Answer::NotInstalled;
    for tool in TOOLS.iter().filter(|tool| tool.families.contains(&family)) {
        let next = match root.is_recorded() {
            true => recorded(tool, root),
            false => match find(tool, backend).await {
                Some(path) => run(tool, path, directory, TIMEOUT).await,
                None => Answer::NotInstalled,
            },
        };
        match next {
            Answer::NotInstalled => {}
            Answer::Failed(..) => answer = next,
            Answer::Reports(_) | Answer::TimedOut(..) => return next,
        }
    }
    answer
}

fn recorded(tool: &Tool, root: &HostRoot) -> Answer {
    match root.read(tool.recorded) {
        Ok(bytes) => understand(tool, &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Answer::NotInstalled,
        Err(error) => {
            Answer::Failed(tool.names.name, format!("reading {}: {error}", tool.recorded))
        }
    }
}

async fn find<W: Backend>(tool: &Tool, backend: &W) -> Option<PathBuf> {
    for name in tool.names.programs {
        for place in tool.names.places.iter().chain(&SEARCH_PATH) {
            let path = Path::new(place).join(name);
            if backend.file_stamp(path.clone()).await.is_some() {
                return Some(path);
            }
        }
    }
    None
}

/// Asks each controller in turn, if the tool has to be asked so.
async fn run(tool: &Tool, program: PathBuf, directory: &Path, timeout: Duration) -> Answer {
    let failed = |why: String| Answer::Failed(tool.names.name, why);
    let (mut reports, mut controllers, mut number) = (Vec::new(), 1, 1);
    while number <= controllers {
        // What an earlier run left there goes.
        let emptied = match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::DirBuilder::new().mode(0o700).create(directory),
        };
        if let Err(error) = emptied {
            return failed(format!("creating {}: {error}", directory.display()));
        }
        let argument = |text: &&str| match *text {
            "N" => number.to_string(),
            text => text.to_owned(),
        };
        let exec = Exec {
            program: program.clone(),
            args: tool.arguments.iter().map(argument).collect(),
            stdin: Vec::new(),
            timeout,
            max_output: MAX_OUTPUT,
        };
        // The status says the same as the answer, or there is no answer.
        let output = match program::run(&exec, directory).await {
            Ok(output) if output.truncated => {
                return failed(format!("not understood: more than {MAX_OUTPUT} bytes"));
            }
            Ok(output) => output.stdout,
            Err(Failure { why, stuck, has_timed_out: true }) => {
                return Answer::TimedOut(tool.names.name, why, stuck);
            }
            Err(Failure { why, .. }) => return failed(why),
        };
        match understand(tool, &output) {
            Answer::Reports(more) => reports.extend(more),
            other => return other,
        }
        controllers = (tool.count)(&output).min(MAX_CONTROLLERS);
        number += 1;
    }
    Answer::Reports(reports)
}

fn understand(tool: &Tool, bytes: &[u8]) -> Answer {
    match (tool.parse)(bytes) {
        Ok(reports) => Answer::Reports(reports),
        Err(error) => {
            Answer::Failed(tool.names.name, format!("not understood: {}", with_causes(&error)))
        }
    }
}
