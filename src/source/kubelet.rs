//! The kubelet's on-disk records: which CSI volumes are staged and published here, for which pods. Read by a worker: the folder lies on a disk.
//!
//! In: the host root, the kubelet's folder. Out: `KubeletRecords`. Never touches a mounted volume: only folders and records above the mount points are
//! listed and read. A record that makes no sense is skipped with a warning that names it.
//!
//! Layouts: kubernetes/pkg/volume/csi (csi_attacher.go, csi_mounter.go, csi_block.go); staging moved from `pv/NAME` to `DRIVER/SHA256` in 1.24.

mod records;
mod scan;

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::worker::Outcome;
use crate::model::observation::Observation;
use crate::model::report::{Report, Request, Source, SourceStatus};
use crate::source::context::{Context, SourceError};
use crate::source::jobs::{Answer, Job};

pub use crate::source::kubelet::scan::{KubeletError, scan};

/// The kubelet writes records without telling anyone; a mount that follows is told to us and makes us look (`Request::Kubelet`).
const EVERY: Duration = Duration::from_secs(60);

/// Runs until the owner of the state is gone.
pub async fn run(context: Context) -> Result<Infallible, SourceError> {
    let mut requests = context.requests.subscribe();
    let mut settings = context.settings.clone();
    let mut told: Option<(SourceStatus, Vec<String>)> = None;
    loop {
        let (kubelet_root, timeout) = {
            let settings = settings.borrow();
            (settings.kubelet_root.clone(), settings.worker_timeout)
        };
        let outcome = context.workers.ask("kubelet", Job::Kubelet { kubelet_root: kubelet_root.clone() }, timeout).await;
        let (observation, status, warnings) = match outcome {
            Outcome::Answer(Answer::Kubelet(Some(records))) => {
                let status = SourceStatus::Active(format!("records below {kubelet_root}"));
                let warnings = records.warnings.clone();
                (Observation::ok(now(), records), status, warnings)
            }
            Outcome::Answer(Answer::Kubelet(None)) => {
                (Observation::Unavailable, SourceStatus::Absent(format!("no kubelet here: there is no {kubelet_root}")), Vec::new())
            }
            Outcome::Answer(Answer::Failed { error }) | Outcome::Failed(error) => failed(error),
            Outcome::Answer(_) => failed("a worker answered another question than was asked".into()),
            Outcome::Stuck { since, waiting_in, .. } => {
                let waiting = waiting_in.map_or_else(String::new, |place| format!(", waiting in {place}"));
                failed(format!("reading {kubelet_root} has not returned since {since}{waiting}: the disk below it does not answer"))
            }
        };
        context.report(Report::Kubelet(observation)).await?;
        if told.as_ref() != Some(&(status.clone(), warnings.clone())) {
            for warning in warnings.iter().filter(|warning| !told.as_ref().is_some_and(|(_, told)| told.contains(warning))) {
                tracing::warn!(%warning, "a record of the kubelet is skipped");
            }
            context.report(Report::Source { source: Source::Kubelet, status: status.clone() }).await?;
            told = Some((status, warnings));
        }
        let next = Instant::now() + EVERY;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => break,
                changed = settings.changed() => {
                    changed.map_err(|_| SourceError::OwnerGone)?;
                    break;
                }
                request = requests.recv() => match request {
                    Ok(Request::All | Request::Kubelet) | Err(RecvError::Lagged(_)) => break,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return Err(SourceError::OwnerGone),
                },
            }
        }
    }
}

fn failed(error: String) -> (Observation<crate::model::kubelet::KubeletRecords>, SourceStatus, Vec<String>) {
    (Observation::failed(now(), &error), SourceStatus::Down(error), Vec::new())
}
