//! Probes: statfs and readdir of every mounted volume, by a worker in the host's mount namespace,
//! one job per filesystem at a time.
//!
//! In: the targets of the owner, a timer, requests. Out: `SourceUpdate::Probe`,
//! `SourceUpdate::ProbeStuck`. `assess` judges a stuck or failing volume; here it is only probed
//! less often.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker_pool::WorkerOutcome;
use crate::model::backoff::Backoff;
use crate::model::observation::Observation;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, ProbeTarget, StuckProbe};
use crate::model::source_update::{Source, SourceRequest, SourceStatus, SourceUpdate};
use crate::source::context::{Context, SourceError};
use crate::source::jobs::{Job, JobResult};
use crate::source::worker_job::{answer, late_answer};

/// The longest interval between probes of a volume that does not respond.
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// Volumes due within this time are probed together: one pass over a thousand plans, not a thousand
/// passes.
const BATCH_WINDOW: Duration = Duration::from_millis(500);
/// A new mount may be unmounted at once (mkfs scripts, formatting by a driver); an open directory
/// would make that fail with EBUSY. At the start no mount is new.
const SETTLE: Duration = Duration::from_secs(1);

/// The schedule of one path.
struct Plan {
    target: ProbeTarget,
    due: Instant,
    /// Consecutive probes that hung or failed to run.
    consecutive_failures: u32,
    /// A probe is running.
    in_flight: bool,
}

/// The end of one probe.
struct ProbeOutcome {
    path: HostPath,
    responded: bool,
}

/// Runs until the owner of the state ends.
pub(crate) async fn run(context: Context) -> Result<Infallible, SourceError> {
    let context = Arc::new(context);
    let status = match context.root.is_recorded() {
        false => SourceStatus::Active("statfs and readdir by worker processes".into()),
        true => SourceStatus::Active("answers of a recorded tree".into()),
    };
    context
        .report(SourceUpdate::Source {
            source: Source::Probe,
            status,
        })
        .await?;
    let mut requests = context.requests.subscribe();
    let mut limitations = context.probe_workers.limitations();
    let (mut targets, mut settings) = (context.targets.clone(), context.settings.clone());
    let mut plans: BTreeMap<HostPath, Plan> = BTreeMap::new();
    let mut running: JoinSet<Result<ProbeOutcome, SourceError>> = JoinSet::new();
    update_plans(&mut plans, &targets.borrow_and_update());
    // The earliest due time of the plans that are not being probed.
    let mut next = Some(Instant::now());
    loop {
        let interval = settings.borrow().probe_interval;
        if next.is_some_and(|next| next <= Instant::now()) {
            next = start_due(&mut plans, &mut running, &context, interval);
        }
        tokio::select! {
            ended = running.join_next(), if !running.is_empty() => match ended {
                Some(Ok(ended)) => next = next.into_iter().chain(record_outcome(&mut plans, &ended?, interval)).min(),
                // A probe task panicked or was cancelled: all plans are probed again.
                Some(Err(_)) | None => {
                    plans.values_mut().for_each(|plan| plan.in_flight = false);
                    next = Some(Instant::now());
                }
            },
            changed = targets.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                update_plans(&mut plans, &targets.borrow_and_update());
                next = Some(Instant::now());
            }
            changed = settings.changed() => changed.map_err(|_| SourceError::OwnerGone)?,
            changed = limitations.changed() => {
                changed.map_err(|_| SourceError::OwnerGone)?;
                let status = SourceStatus::Limited(limitations.borrow_and_update().join("; "));
                context.report(SourceUpdate::Source { source: Source::Probe, status }).await?;
            }
            request = requests.recv() => match request {
                Ok(SourceRequest::All) => {
                    plans.values_mut().for_each(|plan| plan.due = Instant::now());
                    next = Some(Instant::now());
                }
                Ok(SourceRequest::Probe(paths)) => {
                    for path in &paths {
                        if let Some(plan) = plans.get_mut(path) {
                            plan.due = Instant::now();
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
    let due = Instant::now()
        + if plans.is_empty() {
            Duration::ZERO
        } else {
            SETTLE
        };
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
                };
                plans.insert(target.path.clone(), plan);
            }
        }
    }
}

/// Starts the due probes. Out: when the next one is due.
fn start_due(
    plans: &mut BTreeMap<HostPath, Plan>,
    running: &mut JoinSet<Result<ProbeOutcome, SourceError>>,
    context: &Arc<Context>,
    interval: Duration,
) -> Option<Instant> {
    let at = Instant::now();
    let soon = at + BATCH_WINDOW.min(interval / 4);
    let mut next: Option<Instant> = None;
    for plan in plans.values_mut().filter(|plan| !plan.in_flight) {
        if plan.due <= soon && !plan.target.asleep {
            plan.in_flight = true;
            running.spawn(probe(context.clone(), plan.target.clone()));
            continue;
        }
        if plan.due <= soon {
            // A probe would wake the drive: the last result holds.
            plan.due = at + interval;
        }
        next = Some(next.map_or(plan.due, |next| next.min(plan.due)));
    }
    next
}

/// Out: when this path, or another mount of its filesystem, is due.
fn record_outcome(
    plans: &mut BTreeMap<HostPath, Plan>,
    ended: &ProbeOutcome,
    interval: Duration,
) -> Option<Instant> {
    let plan = plans.get_mut(&ended.path)?;
    plan.in_flight = false;
    let (recovered, dev) = (
        ended.responded && plan.consecutive_failures > 0,
        plan.target.dev,
    );
    plan.consecutive_failures = if ended.responded {
        0
    } else {
        plan.consecutive_failures.saturating_add(1)
    };
    let backoff = Backoff::new(interval, MAX_BACKOFF.max(interval));
    plan.due = Instant::now() + backoff.delay(plan.consecutive_failures);
    let mut next = plan.due;
    if recovered {
        // The filesystem responds again: so may its other mounts, whatever their back-off is.
        for plan in plans
            .values_mut()
            .filter(|plan| plan.target.dev == dev && plan.consecutive_failures > 0)
        {
            plan.due = Instant::now();
            next = next.min(plan.due);
        }
    }
    Some(next)
}

/// One probe, including the wait for a late answer: until then the path is not probed again.
async fn probe(context: Arc<Context>, target: ProbeTarget) -> Result<ProbeOutcome, SourceError> {
    let (path, sent) = (target.path.clone(), Instant::now());
    let timeout = context.settings.borrow().probe_timeout;
    // One job per filesystem: all its mounts hang together, and each stuck process costs memory.
    let key = format!("{} {}", target.dev, target.filesystem);
    let outcome = context
        .probe_workers
        .run(&key, Job::ProbeMount { path: path.clone() }, timeout)
        .await;
    let (responded, result) = match outcome {
        WorkerOutcome::Stuck {
            since,
            waiting_in,
            late,
        } => {
            let stuck = StuckProbe {
                since,
                waiting_in,
                path: path.clone(),
            };
            context
                .report(SourceUpdate::ProbeStuck {
                    path: path.clone(),
                    stuck,
                })
                .await?;
            let Some(late) = late else {
                // Another mount of the same filesystem is being probed, and hangs.
                return Ok(ProbeOutcome {
                    path,
                    responded: false,
                });
            };
            let result = late_answer(late, mount_probe).await;
            (result.is_ok(), result)
        }
        // An error that the worker reports is also a response of the filesystem.
        outcome @ WorkerOutcome::Completed(_) => (true, answer(outcome, mount_probe)),
        outcome @ WorkerOutcome::Failed(_) => (false, answer(outcome, mount_probe)),
    };
    context
        .report(SourceUpdate::Probe {
            path: path.clone(),
            result: Observation::from_result(now(), result),
            duration: sent.elapsed(),
        })
        .await?;
    Ok(ProbeOutcome { path, responded })
}

fn mount_probe(result: JobResult) -> Option<MountProbe> {
    match result {
        JobResult::ProbeMount(probe) => Some(probe),
        _ => None,
    }
}
