//! The records of the kubelet on disk: which CSI volumes are staged and published on this node, and
//! for which pods. A worker reads them: the directory is on a disk.
//!
//! In: the host root, the directory of the kubelet. Out: `KubeletRecords`. Never touches a mounted
//! volume: only directories and records above the mount points are read. An invalid record is
//! skipped with a warning that names it.
//!
//! Layouts: kubernetes/pkg/volume/csi (csi_attacher.go, csi_mounter.go, csi_block.go); staging
//! moved from `pv/NAME` to `DRIVER/SHA256` in 1.24.

pub mod records;
mod scan;

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::context::{Context, SourceError};
use crate::jobs::{Job, JobResult};
use crate::status_reporter::StatusReporter;
use crate::worker_job::{JobError, answer, run_with_retry};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::source::Source;
use diskvitals_host::clock::now;
use diskvitals_model::source_update::{SourceRequest, SourceStatus, SourceUpdate};

pub use crate::kubelet::scan::scan;

/// The kubelet announces no change of its records. The mount that follows triggers a scan
/// (`SourceRequest::Kubelet`).
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// The scans after a change of the mount table: at the end of the burst, and when the kubelet has
/// had time to remove the record of an unmounted volume. The last one is later than the grace
/// period after which a missing mount is reported.
const RESCAN_DELAYS: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_secs(3), Duration::from_millis(10_500)];

/// Runs until the owner of the state ends.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut settings = context.settings.clone();
    let mut status_reporter = StatusReporter::new(Source::Kubelet);
    let mut reported_warnings: Vec<String> = Vec::new();
    let mut rescans: Vec<Instant> = Vec::new();
    loop {
        let (kubelet_root, timeout) = {
            let settings = settings.borrow();
            (settings.kubelet_root.clone(), settings.worker_timeout)
        };
        let job = Job::Kubelet { kubelet_root: kubelet_root.clone() };
        // Of a reading that began before a request, the end may be later than the request.
        let began = now();
        let outcome = run_with_retry(&context.workers, "kubelet", job, timeout).await;
        let answer = answer(outcome, |result| match result {
            JobResult::Kubelet(records) => Some(records),
            _ => None,
        });
        let (observation, status, warnings) = match answer {
            Ok(Some(records)) => {
                let status = SourceStatus::Active(format!("records below {kubelet_root}"));
                let warnings = records.warnings.clone();
                (Observation::ok(began, records), status, warnings)
            }
            Ok(None) => (
                Observation::Unavailable,
                SourceStatus::Absent(format!("no kubelet here: there is no {kubelet_root}")),
                Vec::new(),
            ),
            Err(error) => {
                let error = match error {
                    JobError::Stuck { .. } => {
                        format!("{kubelet_root}: {error}: the disk below it does not answer")
                    }
                    _ => error.to_string(),
                };
                (Observation::failed(began, &error), SourceStatus::Down(error), Vec::new())
            }
        };
        context.report(SourceUpdate::Kubelet(observation)).await?;
        for warning in warnings.iter().filter(|warning| !reported_warnings.contains(warning)) {
            tracing::warn!(%warning, "a record of the kubelet is skipped");
        }
        reported_warnings = warnings;
        status_reporter.report(&context, status).await?;
        let due =
            rescans.iter().copied().min().unwrap_or_else(|| context.grid.after(SCAN_INTERVAL));
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
                        // A scan that is due sooner also covers this change.
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
