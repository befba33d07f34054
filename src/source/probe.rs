//! Probes: statfs and readdir of every mounted volume, by a worker in the host's mount namespace,
//! one job per filesystem at a time. A volume that may not be probed because too much hangs in its
//! failure domains is reported as not probed.
//!
//! The interval follows the load: a node with few mounts probes each of them more often, at no more
//! cost than one with many.
//!
//! In: the targets of the owner, a timer, requests. Out: `SourceUpdate::Probe`,
//! `SourceUpdate::ProbeStuck`. `assess` judges a stuck or failing volume; here it is only probed
//! less often.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::{Context, SourceError};
use crate::jobs::{Job, JobResult};
use crate::worker_job::{JobError, answer, late_answer};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_host::timer_grid::TimerGrid;
use diskvitals_host::worker_pool::WorkerOutcome;
use diskvitals_model::probe::{MountProbe, ProbePace, ProbeTarget, StuckProbe};
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};
use diskvitals_text::backoff::Backoff;

/// The longest interval between probes of a volume that does not respond.
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// Volumes due within this time are probed together: one pass over a thousand plans, not a thousand
/// passes.
const BATCH_WINDOW: Duration = Duration::from_millis(500);
/// The interval of attempts while another job of the filesystem hangs: its end shows that the
/// filesystem responds again.
const RETRY_INTERVAL: Duration = Duration::from_secs(4);
/// A new mount may be unmounted at once (mkfs scripts, formatting by a driver); an open directory
/// would make that fail with EBUSY. At the start no mount is new.
const SETTLE: Duration = Duration::from_secs(1);

/// Each mount adds this to the interval: 500 of them are probed within a minute.
const PER_MOUNT: Duration = Duration::from_millis(60_000 / 500);
/// The shortest interval, however few mounts there are: a hang is reported after it and the
/// time-out.
const SHORTEST: Duration = Duration::from_secs(10);
/// The shortest interval of a network filesystem.
const SHORTEST_NETWORK: Duration = Duration::from_secs(30);

/// How often each mount is probed. The configured interval is the longest.
#[derive(Clone, Copy, Debug)]
struct Intervals {
    by_load: Duration,
    configured: Duration,
    grid: TimerGrid,
}

impl Intervals {
    fn new(mounts: usize, configured: Duration, grid: TimerGrid) -> Intervals {
        let count = u32::try_from(mounts).unwrap_or(u32::MAX);
        let by_load = PER_MOUNT.saturating_mul(count).max(SHORTEST);
        Intervals { by_load: by_load.min(configured), configured, grid }
    }

    fn of(self, target: &ProbeTarget) -> Duration {
        match target.pace {
            ProbePace::Local => self.by_load,
            ProbePace::Network => self.by_load.max(SHORTEST_NETWORK).min(self.configured),
            ProbePace::Idle => self.configured,
        }
    }

    /// Few mounts are probed together. The probes of many stay spread over their interval.
    fn after(self, interval: Duration) -> Instant {
        match self.by_load <= SHORTEST {
            true => self.grid.after(interval),
            false => Instant::now() + interval,
        }
    }
}

/// The schedule of one path.
struct Plan {
    target: ProbeTarget,
    due: Instant,
    /// Consecutive probes that hung or failed to run.
    consecutive_failures: u32,
    /// A probe is running.
    in_flight: bool,
    /// The last probe was not tried: too many others are stuck.
    refused: bool,
    /// Somebody waits for a probe, also of drives at rest.
    requested: bool,
}

impl Plan {
    fn request(&mut self) {
        (self.due, self.requested) = (Instant::now(), true);
    }

    /// A probe could wake the drives: the last result holds.
    fn is_left_alone(&self) -> bool {
        self.target.asleep || (self.target.at_rest && !self.requested)
    }
}

/// The end of one probe.
struct ProbeOutcome {
    path: HostPath,
    response: Response,
    /// The probe was stuck before: its worker is free now.
    was_stuck: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Response {
    /// An answer, or an error of the filesystem.
    Received,
    /// The probe hung or failed to run.
    Missing,
    /// Another job of the same filesystem hangs: a probe of another mount, or a reading of counters.
    Waiting,
    /// Not tried: unmounted before its turn, or too many others are stuck.
    NotTried { refused: bool },
}

/// Outcomes that wait for the source's loop.
const OUTCOME_QUEUE: usize = 64;

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let context = Arc::new(context);
    let status = match context.root.is_recorded() {
        false => SourceStatus::Active("statfs and readdir by worker processes".into()),
        true => SourceStatus::Active("answers of a recorded tree".into()),
    };
    context.report(SourceUpdate::Source { source: Source::Probe, status }).await?;
    let mut requests = context.requests.subscribe();
    let mut limitations = context.probe_workers.limitations();
    let (mut targets, mut settings) = (context.targets.clone(), context.settings.clone());
    let mut plans: BTreeMap<HostPath, Plan> = BTreeMap::new();
    let mut running: JoinSet<Result<(), SourceError>> = JoinSet::new();
    let (outcome_sender, mut outcomes) = mpsc::channel(OUTCOME_QUEUE);
    update_plans(&mut plans, &targets.borrow_and_update());
    // The earliest due time of the plans that are not being probed.
    let mut next = Some(Instant::now());
    loop {
        let intervals = Intervals::new(plans.len(), settings.borrow().probe_interval, context.grid);
        if next.is_some_and(|next| next <= Instant::now()) {
            let due = take_due(&mut plans, intervals);
            next = due.next;
            for targets in due.filesystems {
                running.spawn(probe_in_turn(context.clone(), targets, outcome_sender.clone()));
            }
        }
        tokio::select! {
            Some(outcome) = outcomes.recv() => {
                next = next.into_iter().chain(record_outcome(&mut plans, &outcome, intervals)).min();
            }
            ended = running.join_next(), if !running.is_empty() => match ended {
                Some(Ok(ended)) => ended?,
                // A probe task panicked or was cancelled: all plans are probed again.
                Some(Err(_)) | None => {
                    plans.values_mut().for_each(|plan| plan.in_flight = false);
                    next = Some(Instant::now());
                }
            },
            changed = targets.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                update_plans(&mut plans, &targets.borrow_and_update());
                let configured = settings.borrow().probe_interval;
                shorten_waits(&mut plans, Intervals::new(targets.borrow().len(), configured, context.grid));
                next = Some(Instant::now());
            }
            changed = settings.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let configured = settings.borrow_and_update().probe_interval;
                let intervals = Intervals::new(plans.len(), configured, context.grid);
                shorten_waits(&mut plans, intervals);
                next = Some(Instant::now());
            }
            changed = limitations.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let status = SourceStatus::Limited(limitations.borrow_and_update().join("; "));
                context.report(SourceUpdate::Source { source: Source::Probe, status }).await?;
            }
            request = requests.recv() => match request {
                Ok(SourceRequest::All) => {
                    plans.values_mut().for_each(Plan::request);
                    next = Some(Instant::now());
                }
                Ok(SourceRequest::Probe(paths)) => {
                    for path in &paths {
                        if let Some(plan) = plans.get_mut(path) {
                            plan.request();
                        }
                    }
                    next = Some(Instant::now());
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
            },
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// Adds new paths, due soon, or at once at the start; drops removed paths (a running probe ends by
/// itself).
fn update_plans(plans: &mut BTreeMap<HostPath, Plan>, targets: &[ProbeTarget]) {
    let due = Instant::now() + if plans.is_empty() { Duration::ZERO } else { SETTLE };
    let wanted: BTreeSet<&HostPath> = targets.iter().map(|target| &target.path).collect();
    plans.retain(|path, _| wanted.contains(path));
    for target in targets {
        match plans.get_mut(&target.path) {
            // Another filesystem at the same path is another volume.
            Some(plan) if plan.target.dev == target.dev => plan.target = target.clone(),
            _ => {
                let plan = Plan {
                    target: target.clone(),
                    due,
                    consecutive_failures: 0,
                    in_flight: false,
                    refused: false,
                    requested: false,
                };
                plans.insert(target.path.clone(), plan);
            }
        }
    }
}

/// After the intervals have become shorter: fewer mounts, or a drive that is in use again.
fn shorten_waits(plans: &mut BTreeMap<HostPath, Plan>, intervals: Intervals) {
    let at = Instant::now();
    // The back-off of a mount that does not answer stays.
    let waiting =
        plans.values_mut().filter(|plan| !plan.in_flight && plan.consecutive_failures == 0);
    for plan in waiting {
        plan.due = plan.due.min(at + intervals.of(&plan.target));
    }
}

struct Due {
    /// The due mounts of each filesystem.
    filesystems: Vec<Vec<ProbeTarget>>,
    /// When the next mount is due.
    next: Option<Instant>,
}

/// Takes the due mounts; they are in flight from now on.
fn take_due(plans: &mut BTreeMap<HostPath, Plan>, intervals: Intervals) -> Due {
    let at = Instant::now();
    let soon = at + BATCH_WINDOW.min(intervals.by_load / 4);
    let mut next: Option<Instant> = None;
    let mut filesystems: BTreeMap<String, Vec<ProbeTarget>> = BTreeMap::new();
    for plan in plans.values_mut().filter(|plan| !plan.in_flight) {
        if plan.due <= soon && !plan.is_left_alone() {
            (plan.in_flight, plan.requested) = (true, false);
            filesystems.entry(filesystem_key(&plan.target)).or_default().push(plan.target.clone());
            continue;
        }
        if plan.due <= soon {
            plan.due = intervals.after(intervals.configured);
        }
        next = Some(next.map_or(plan.due, |next| next.min(plan.due)));
    }
    Due { filesystems: filesystems.into_values().collect(), next }
}

/// All mounts of a filesystem hang together, and each stuck process costs memory: one job each.
fn filesystem_key(target: &ProbeTarget) -> String {
    format!("{} {}", target.dev, target.filesystem)
}

/// Out: when this path, or another one that has waited for it, is due.
fn record_outcome(
    plans: &mut BTreeMap<HostPath, Plan>,
    ended: &ProbeOutcome,
    intervals: Intervals,
) -> Option<Instant> {
    let mut next = None;
    let mut recovered = None;
    if let Some(plan) = plans.get_mut(&ended.path) {
        plan.in_flight = false;
        plan.refused = ended.response == Response::NotTried { refused: true };
        let failed_before = plan.consecutive_failures > 0 || ended.was_stuck;
        match ended.response {
            Response::Received => {
                recovered = failed_before.then_some(plan.target.dev);
                plan.consecutive_failures = 0;
            }
            Response::Missing | Response::Waiting => {
                plan.consecutive_failures = plan.consecutive_failures.saturating_add(1);
            }
            Response::NotTried { .. } => {}
        }
        let interval = intervals.of(&plan.target);
        let backoff = Backoff::new(interval, MAX_BACKOFF.max(interval));
        plan.due = match (ended.response, plan.consecutive_failures) {
            // No worker is spent while the other job hangs.
            (Response::Waiting, _) => Instant::now() + RETRY_INTERVAL,
            (_, 0) => intervals.after(interval),
            (_, failures) => Instant::now() + backoff.delay(failures),
        };
        next = Some(plan.due);
    }
    if recovered.is_some() || ended.was_stuck {
        // The other mounts of a filesystem that responds again respond too, whatever their back-off
        // is. The worker that was stuck is free for a probe that was refused.
        let is_due = |plan: &&mut Plan| {
            let waited = Some(plan.target.dev) == recovered && plan.consecutive_failures > 0;
            waited || (ended.was_stuck && plan.refused)
        };
        for plan in plans.values_mut().filter(is_due) {
            plan.due = Instant::now();
            next = Some(plan.due);
        }
    }
    next
}

/// Probes mounts of one filesystem, one after the other.
async fn probe_in_turn(
    context: Arc<Context>,
    targets: Vec<ProbeTarget>,
    outcomes: mpsc::Sender<ProbeOutcome>,
) -> Result<(), SourceError> {
    let mut stuck = Vec::new();
    for target in targets {
        let path = target.path.clone();
        let response = if is_target(&context, &target) {
            match probe(&context, target).await? {
                Probed::Ended(response) => response,
                Probed::Stuck(late) => {
                    stuck.push((path, late));
                    continue;
                }
            }
        } else {
            Response::NotTried { refused: false }
        };
        send_outcome(&outcomes, path, response, false).await?;
    }
    // Until the late answer, the path is not probed again.
    for (path, late) in stuck {
        let LateProbe { started, begun, .. } = late;
        let result = late_answer(late.answer, mount_probe).await;
        let response = match &result {
            Ok(_) => Response::Received,
            Err(_) => Response::Missing,
        };
        report(&context, &path, result, started, begun).await?;
        send_outcome(&outcomes, path, response, true).await?;
    }
    Ok(())
}

/// Whether it is still to be probed: thousands of mounts may have gone while it waited its turn.
fn is_target(context: &Context, target: &ProbeTarget) -> bool {
    let targets = context.targets.borrow();
    targets
        .binary_search_by(|known| known.path.cmp(&target.path))
        .is_ok_and(|at| targets[at].dev == target.dev)
}

async fn send_outcome(
    outcomes: &mpsc::Sender<ProbeOutcome>,
    path: HostPath,
    response: Response,
    was_stuck: bool,
) -> Result<(), SourceError> {
    let outcome = ProbeOutcome { path, response, was_stuck };
    let sent = outcomes.send(outcome).await;
    sent.map_err(|_| SourceError::OwnerGone)
}

enum Probed {
    Ended(Response),
    Stuck(LateProbe),
}

struct LateProbe {
    answer: oneshot::Receiver<Result<JobResult, String>>,
    started: Instant,
    begun: Timestamp,
}

async fn probe(context: &Context, target: ProbeTarget) -> Result<Probed, SourceError> {
    // A result is as old as the start of its probe: an error may come while it runs.
    let (started, begun) = (Instant::now(), now());
    let timeout = context.settings.borrow().probe_timeout;
    let key = filesystem_key(&target);
    let (path, id, dev) = (target.path, target.id, target.dev);
    let job =
        Job::ProbeMount { path: path.clone(), id, dev, is_btrfs: target.filesystem == "btrfs" };
    let outcome = context.probe_workers.run_in(&target.domains, &key, job, timeout).await;
    let response = match &outcome {
        WorkerOutcome::Stuck { late: None, .. } => Response::Waiting,
        WorkerOutcome::Stuck { .. } | WorkerOutcome::Failed(_) => Response::Missing,
        // An error that the worker reports is also a response of the filesystem.
        WorkerOutcome::Completed(_) => Response::Received,
        WorkerOutcome::Refused(_) => Response::NotTried { refused: true },
    };
    match outcome {
        WorkerOutcome::Stuck { since, waiting_in, late } => {
            let stuck = StuckProbe { since, waiting_in, path: path.clone() };
            context.report(SourceUpdate::ProbeStuck { path, stuck }).await?;
            Ok(match late {
                Some(answer) => Probed::Stuck(LateProbe { answer, started, begun }),
                // Another mount of the same filesystem is being probed, and hangs.
                None => Probed::Ended(response),
            })
        }
        outcome => {
            let result = answer(outcome, mount_probe);
            report(context, &path, result, started, begun).await?;
            Ok(Probed::Ended(response))
        }
    }
}

async fn report(
    context: &Context,
    path: &HostPath,
    result: Result<MountProbe, JobError>,
    started: Instant,
    begun: Timestamp,
) -> Result<(), SourceError> {
    let update = SourceUpdate::Probe {
        path: path.clone(),
        result: Observation::from_result(begun, result),
        duration: started.elapsed(),
    };
    context.report(update).await
}

fn mount_probe(result: JobResult) -> Option<MountProbe> {
    match result {
        JobResult::ProbeMount(probe) => Some(probe),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
