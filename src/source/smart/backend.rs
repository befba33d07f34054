//! What the source does to the world: runs programs, asks workers, looks at a file. A seam, so that
//! tests can play drives that hang for a day.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::exec::{self, Exec, ExecError, Output};
use crate::host::root::HostRoot;
use crate::host::worker_pool::WorkerOutcome;
use crate::model::path::HostPath;
use crate::source::context::JobWorkers;
use crate::source::jobs::{Job, JobResult};

/// For one attribute of sysfs.
const RUNTIME_STATUS_TIMEOUT: Duration = Duration::from_secs(5);

pub trait Backend: Clone + Send + Sync + 'static {
    fn run(&self, exec: Exec) -> impl Future<Output = Result<Output, ExecError>> + Send;

    /// A question that may block, to a worker.
    fn run_job(
        &self,
        target: String,
        job: Job,
        timeout: Duration,
    ) -> impl Future<Output = WorkerOutcome<JobResult>> + Send;

    /// Whether the kernel has suspended this device by now: that changes without an event, and to
    /// open it would resume it.
    fn is_suspended(&self, device: HostPath) -> impl Future<Output = bool> + Send;

    /// What tells one version of a program from the next; None where there is none, or its disk
    /// does not answer.
    fn file_stamp(&self, program: PathBuf) -> impl Future<Output = Option<FileStamp>> + Send;
}

/// Of a file: device, inode, size, time of its last change in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(pub u64, pub u64, pub u64, pub i64, pub i64);

#[derive(Clone)]
pub struct HostBackend {
    pub workers: JobWorkers,
    pub root: HostRoot,
}

impl Backend for HostBackend {
    async fn run(&self, exec: Exec) -> Result<Output, ExecError> {
        exec::run(&exec).await
    }

    async fn run_job(
        &self,
        target: String,
        job: Job,
        timeout: Duration,
    ) -> WorkerOutcome<JobResult> {
        self.workers.run(&target, job, timeout).await
    }

    async fn is_suspended(&self, device: HostPath) -> bool {
        let Some(name) = device.as_path().file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let status = self.root.at(format!(
            "/sys/class/block/{name}/device/power/runtime_status"
        ));
        // Nothing blocks there (runtime_status_show(), drivers/base/power/sysfs.c takes no lock);
        // one that did would not hold up the question.
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(status));
        let read = tokio::time::timeout(RUNTIME_STATUS_TIMEOUT, read).await;
        matches!(read, Ok(Ok(Ok(status))) if status.trim() == "suspended")
    }

    async fn file_stamp(&self, program: PathBuf) -> Option<FileStamp> {
        // In the blocking pool: the disk that it lies on may be the one that dies.
        tokio::task::spawn_blocking(move || stamp(&program))
            .await
            .ok()
            .flatten()
    }
}

fn stamp(program: &Path) -> Option<FileStamp> {
    let data = std::fs::metadata(program).ok()?;
    Some(FileStamp(
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
    ))
}
