//! Runs a job in a worker process and reduces the outcome to an answer or a `JobError`.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::context::JobWorkers;
use crate::jobs::{Job, JobResult};
use diskvitals_finding::failure_domain::FailureDomains;
use diskvitals_host::worker_pool::WorkerOutcome;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The worker could not do the job, or died, or none was free. The text names the operation.
    #[error("{0}")]
    Failed(String),
    #[error("a worker answered another question than was asked")]
    UnexpectedResult,
    #[error("reading has not returned since {since}{}", waiting_suffix(.waiting_in.as_deref()))]
    Stuck { since: Timestamp, waiting_in: Option<String> },
    #[error("the worker that hung has ended without an answer")]
    LateWorkerExited,
}

fn waiting_suffix(waiting_in: Option<&str>) -> String {
    waiting_in.map_or_else(String::new, |place| format!(", waiting in {place}"))
}

/// Runs the job once more if the worker died (out of memory, for example): that is no evidence
/// about the target.
pub(crate) async fn run_with_retry(
    workers: &JobWorkers,
    target: &str,
    job: Job,
    timeout: Duration,
) -> WorkerOutcome<JobResult> {
    run_with_retry_in(workers, &FailureDomains::default(), target, job, timeout).await
}

/// As `run_with_retry`, for a target of these failure domains.
pub(crate) async fn run_with_retry_in(
    workers: &JobWorkers,
    domains: &FailureDomains,
    target: &str,
    job: Job,
    timeout: Duration,
) -> WorkerOutcome<JobResult> {
    match workers.run_in(domains, target, job.clone(), timeout).await {
        WorkerOutcome::Failed(_) => workers.run_in(domains, target, job, timeout).await,
        outcome => outcome,
    }
}

/// `select`: extracts the expected variant from the result.
pub fn answer<T>(
    outcome: WorkerOutcome<JobResult>,
    select: impl FnOnce(JobResult) -> Option<T>,
) -> Result<T, JobError> {
    match outcome {
        WorkerOutcome::Completed(result) => select_answer(result, select),
        WorkerOutcome::Failed(error) | WorkerOutcome::Refused(error) => {
            Err(JobError::Failed(error))
        }
        WorkerOutcome::Stuck { since, waiting_in, .. } => {
            Err(JobError::Stuck { since, waiting_in })
        }
    }
}

/// Waits until a late worker answers or exits.
pub(crate) async fn late_answer<T>(
    late: oneshot::Receiver<Result<JobResult, String>>,
    select: impl FnOnce(JobResult) -> Option<T>,
) -> Result<T, JobError> {
    match late.await {
        Ok(Ok(result)) => select_answer(result, select),
        Ok(Err(error)) => Err(JobError::Failed(error)),
        Err(_) => Err(JobError::LateWorkerExited),
    }
}

fn select_answer<T>(
    result: JobResult,
    select: impl FnOnce(JobResult) -> Option<T>,
) -> Result<T, JobError> {
    match result {
        JobResult::Failed { error } => Err(JobError::Failed(error)),
        result => select(result).ok_or(JobError::UnexpectedResult),
    }
}
