//! The vendors' tools that know the state of a RAID controller's arrays: when one is run.
//!
//! In: which controllers are here, and when they were last reset. Out: `SourceUpdate::RaidReports`. Each
//! call asks the firmware, and stalls the controller's I/O: hourly at most, one at a time, while no
//! smartctl runs; none for a day after one did not answer in time or the kernel reset the controller.
//! MegaCli is never run: it stops the firmware of newer controllers.
//!
//! How far a rebuild is costs a second query, while one runs. `storcli`, `ssacli` and `arcconf` understand
//! the answers.

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
const MAX_CONTROLLERS: usize = 8;

struct Tool {
    names: RaidTool,
    families: &'static [RaidFamily],
    query: Query,
    /// How far a rebuild is, where the first answer does not say that.
    progress: Option<Query>,
    /// Of the first answer, and that about rebuilds.
    parse: fn(&[u8], Option<&[u8]>) -> Result<Vec<RaidReport>, ParseError>,
    /// How many controllers an answer says that there are, if each is asked by its number.
    count: fn(&[u8]) -> usize,
}

struct Query {
    /// `N` is the number of a controller.
    arguments: &'static [&'static str],
    /// Its answer in a recorded host.
    recorded: &'static str,
}

/// Of two tools for one controller the first that is installed and answers.
const TOOLS: [Tool; 3] = [
    Tool {
        names: STORCLI,
        families: &[RaidFamily::MegaRaid],
        // Without `nolog` it writes a log into its working directory.
        query: Query {
            arguments: &["/cALL", "show", "all", "J", "nolog"],
            recorded: "/exec/storcli/show.json",
        },
        progress: Some(Query {
            arguments: &["/cALL/eALL/sALL", "show", "rebuild", "J", "nolog"],
            recorded: "/exec/storcli/rebuild.json",
        }),
        parse: storcli::parse,
        count: |_| 1,
    },
    Tool {
        names: SSACLI,
        families: &[RaidFamily::SmartArray],
        query: Query {
            arguments: &["ctrl", "all", "show", "config", "detail"],
            recorded: "/exec/ssacli/config.txt",
        },
        progress: None,
        parse: |answer, _| ssacli::parse(answer),
        count: |_| 1,
    },
    Tool {
        names: ARCCONF,
        families: &[RaidFamily::SmartArray, RaidFamily::Adaptec],
        query: Query {
            arguments: &["GETCONFIG", "N", "AL"],
            recorded: "/exec/arcconf/getconfig.txt",
        },
        progress: Some(Query {
            arguments: &["GETSTATUS", "N"],
            recorded: "/exec/arcconf/getstatus.txt",
        }),
        parse: arcconf::parse,
        count: arcconf::count,
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
    Failed(Failed),
}

#[derive(Debug)]
struct Failed {
    tool: &'static str,
    failure: Failure,
    /// What it reported before: only how far rebuilds are is not known.
    known: Option<Vec<RaidReport>>,
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
            result(Answer::Failed(Failed::new("the controller's tool", TASK_LOST.to_owned()))),
            async move { result(ask(family, &backend, &root, &directory).await) },
        );
    }

    pub(crate) fn record(&mut self, result: RaidToolResult, at: Instant) -> SourceUpdate {
        let RaidToolResult { family, begun, answer } = result;
        self.running = false;
        let mut error = None;
        let reports = match answer {
            Answer::NotInstalled => {
                // Nothing is started to see whether it is.
                self.set_due(family, at + RETRY);
                Observation::Unavailable
            }
            Answer::Reports(reports) => Observation::ok(begun, reports),
            Answer::Failed(Failed { tool, failure, known }) => {
                let why = match failure.has_timed_out {
                    true => {
                        self.set_due(family, at + PAUSE);
                        format!("timed out: {}; not asked again for a day", failure.why)
                    }
                    false => failure.why,
                };
                self.stuck = failure.stuck;
                tracing::warn!(tool, why, "a RAID controller's tool has no answer");
                error = Some((tool, why.clone()));
                match known {
                    Some(reports) => Observation::ok(begun, reports),
                    None => Observation::failed(begun, why),
                }
            }
        };
        if let Some(schedule) = self.schedules.get_mut(&family) {
            schedule.error = error;
        }
        SourceUpdate::RaidReports { family, reports }
    }
}

impl Failed {
    fn new(tool: &'static str, why: String) -> Failed {
        let failure = Failure { why, has_timed_out: false, stuck: None };
        Failed { tool, failure, known: None }
    }
}

/// What is asked.
enum Origin<'a> {
    Program { path: PathBuf, directory: &'a Path, timeout: Duration },
    Recorded(&'a HostRoot),
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
        let origin = match root.is_recorded() {
            true => Some(Origin::Recorded(root)).filter(|_| root.at(tool.query.recorded).exists()),
            false => find(tool, backend).await.map(|path| Origin::Program {
                path,
                directory,
                timeout: TIMEOUT,
            }),
        };
        let Some(origin) = origin else { continue };
        let next = run(tool, &origin).await;
        match &next {
            Answer::NotInstalled => {}
            Answer::Failed(failed) if !failed.failure.has_timed_out && failed.known.is_none() => {
                answer = next;
            }
            Answer::Reports(_) | Answer::Failed(_) => return next,
        }
    }
    answer
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

/// Asks each controller in turn, if the tool has to be asked so; then for the progress of rebuilds.
async fn run(tool: &Tool, origin: &Origin<'_>) -> Answer {
    let mut answers: Vec<(Vec<u8>, Vec<RaidReport>)> = Vec::new();
    let mut controllers = 1;
    while answers.len() < controllers {
        let first = tool.query.run(tool, origin, answers.len() + 1).await;
        let read = first.and_then(|it| Ok((understand(tool, &it, None)?, it)));
        match read {
            Ok((reports, first)) => {
                controllers = (tool.count)(&first).min(MAX_CONTROLLERS);
                answers.push((first, reports));
            }
            Err(failed) => return Answer::Failed(failed),
        }
    }
    let mut failed = None;
    for (number, (first, reports)) in (1..).zip(&mut answers) {
        let Some(progress) = tool.progress.as_ref().filter(|_| lacks_progress(reports)) else {
            continue;
        };
        let second = progress.run(tool, origin, number).await;
        match second.and_then(|second| understand(tool, first, Some(&second))) {
            Ok(complete) => *reports = complete,
            Err(why) => {
                failed = Some(why);
                break;
            }
        }
    }
    let reports = answers.into_iter().flat_map(|(_, reports)| reports).collect();
    match failed {
        Some(failed) => Answer::Failed(Failed { known: Some(reports), ..failed }),
        None => Answer::Reports(reports),
    }
}

fn lacks_progress(reports: &[RaidReport]) -> bool {
    let mut arrays = reports.iter().flat_map(|report| &report.arrays);
    arrays.any(|array| array.rebuild.as_ref().is_some_and(|it| it.percent.is_none()))
}

impl Query {
    async fn run(
        &self,
        tool: &Tool,
        origin: &Origin<'_>,
        number: usize,
    ) -> Result<Vec<u8>, Failed> {
        let failed = |why| Failed::new(tool.names.name, why);
        let (path, directory, timeout) = match origin {
            Origin::Recorded(root) => {
                let answer = root.read(self.recorded);
                return answer
                    .map_err(|error| failed(format!("reading {}: {error}", self.recorded)));
            }
            Origin::Program { path, directory, timeout } => (path, directory, timeout),
        };
        // What an earlier run left there goes.
        let emptied = match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::DirBuilder::new().mode(0o700).create(directory),
        };
        emptied.map_err(|error| failed(format!("creating {}: {error}", directory.display())))?;
        let argument = |text: &&str| match *text {
            "N" => number.to_string(),
            text => text.to_owned(),
        };
        let exec = Exec {
            program: path.clone(),
            args: self.arguments.iter().map(argument).collect(),
            stdin: Vec::new(),
            timeout: *timeout,
            max_output: MAX_OUTPUT,
        };
        // The status says the same as the answer, or there is no answer.
        match program::run(&exec, directory).await {
            Ok(output) if output.truncated => {
                Err(failed(format!("not understood: more than {MAX_OUTPUT} bytes")))
            }
            Ok(output) => Ok(output.stdout),
            Err(failure) => Err(Failed { tool: tool.names.name, failure, known: None }),
        }
    }
}

fn understand(
    tool: &Tool,
    first: &[u8],
    rebuilds: Option<&[u8]>,
) -> Result<Vec<RaidReport>, Failed> {
    (tool.parse)(first, rebuilds).map_err(|error| {
        Failed::new(tool.names.name, format!("not understood: {}", with_causes(&error)))
    })
}
