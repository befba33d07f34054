//! The kubelet's on-disk records: which CSI volumes are staged and published here, for which pods.
//! Read by a worker: the folder lies on a disk.
//!
//! In: the host root, the kubelet's folder. Out: `KubeletRecords`. Never touches a mounted volume:
//! only folders and records above the mount points are listed and read. A record that makes no
//! sense is skipped with a warning that names it.
//!
//! Layouts: kubernetes/pkg/volume/csi (csi_attacher.go, csi_mounter.go, csi_block.go); staging
//! moved from `pv/NAME` to `DRIVER/SHA256` in 1.24.

mod records;
mod scan;

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker_pool::WorkerOutcome;
use crate::model::observation::Observation;
use crate::model::source_update::{Source, SourceRequest, SourceStatus, SourceUpdate};
use crate::source::context::{Context, SourceError};
use crate::source::jobs::{Job, JobResult};

pub use crate::source::kubelet::scan::{KubeletError, scan};

/// The kubelet writes records without telling anyone; a mount that follows is told to us and makes
/// us look (`Request::Kubelet`).
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Looks that follow a change of the mount table: once the burst is over, and when the kubelet has
/// had time to remove the record of what it unmounted (the last one lies behind the grace after
/// which a mount that vanished is told).
const RESCAN_DELAYS: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_secs(3),
    Duration::from_millis(10_500),
];

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut settings = context.settings.clone();
    let mut reported: Option<(SourceStatus, Vec<String>)> = None;
    let mut rescans: Vec<Instant> = Vec::new();
    loop {
        let (kubelet_root, timeout) = {
            let settings = settings.borrow();
            (settings.kubelet_root.clone(), settings.worker_timeout)
        };
        let job = Job::Kubelet {
            kubelet_root: kubelet_root.clone(),
        };
        let outcome = match context.workers.run("kubelet", job.clone(), timeout).await {
            // A worker that died says nothing of the records: the next one is asked.
            WorkerOutcome::Failed(_) => context.workers.run("kubelet", job, timeout).await,
            outcome => outcome,
        };
        let (observation, status, warnings) = match outcome {
            WorkerOutcome::Completed(JobResult::Kubelet(Some(records))) => {
                let status = SourceStatus::Active(format!("records below {kubelet_root}"));
                let warnings = records.warnings.clone();
                (Observation::ok(now(), records), status, warnings)
            }
            WorkerOutcome::Completed(JobResult::Kubelet(None)) => (
                Observation::Unavailable,
                SourceStatus::Absent(format!("no kubelet here: there is no {kubelet_root}")),
                Vec::new(),
            ),
            WorkerOutcome::Completed(JobResult::Failed { error })
            | WorkerOutcome::Failed(error) => failed(error),
            WorkerOutcome::Completed(_) => {
                failed("a worker answered another question than was asked".into())
            }
            WorkerOutcome::Stuck {
                since, waiting_in, ..
            } => {
                let waiting =
                    waiting_in.map_or_else(String::new, |place| format!(", waiting in {place}"));
                failed(format!(
                    "reading {kubelet_root} has not returned since {since}{waiting}: the disk below it does not answer"
                ))
            }
        };
        context.report(SourceUpdate::Kubelet(observation)).await?;
        if reported.as_ref() != Some(&(status.clone(), warnings.clone())) {
            for warning in warnings.iter().filter(|warning| {
                !reported
                    .as_ref()
                    .is_some_and(|(_, told)| told.contains(warning))
            }) {
                tracing::warn!(%warning, "a record of the kubelet is skipped");
            }
            context
                .report(SourceUpdate::Source {
                    source: Source::Kubelet,
                    status: status.clone(),
                })
                .await?;
            reported = Some((status, warnings));
        }
        let due = rescans
            .iter()
            .copied()
            .min()
            .unwrap_or_else(|| Instant::now() + SCAN_INTERVAL);
        loop {
            let next = rescans.iter().copied().min().unwrap_or(due);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    rescans.retain(|look| *look > Instant::now());
                    break;
                }
                changed = settings.changed() => {
                    changed.map_err(|_| SourceError::OwnerGone)?;
                    break;
                }
                request = requests.recv() => match request {
                    Ok(SourceRequest::Kubelet) => {
                        // A look that is near already sees this change as well.
                        let soon = Instant::now() + RESCAN_DELAYS[0];
                        let waiting = rescans.iter().copied().filter(|look| *look <= soon).min();
                        rescans = RESCAN_DELAYS.iter().map(|after| Instant::now() + *after).collect();
                        if let Some(first) = waiting {
                            rescans[0] = first;
                        }
                    }
                    Ok(SourceRequest::All) | Err(RecvError::Lagged(_)) => break,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
                },
            }
        }
    }
}

fn failed(
    error: String,
) -> (
    Observation<crate::model::kubelet::KubeletRecords>,
    SourceStatus,
    Vec<String>,
) {
    (
        Observation::failed(now(), &error),
        SourceStatus::Down(error),
        Vec::new(),
    )
}
