//! The seam to the system: runs programs, gives jobs to workers, reads one file. Tests replace it
//! by drives that hang for a day.

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

    /// Runs a job that may block in a worker.
    fn run_job(
        &self,
        target: String,
        job: Job,
        timeout: Duration,
    ) -> impl Future<Output = WorkerOutcome<JobResult>> + Send;

    /// Whether the kernel has suspended this device. The state changes without an event, and
    /// opening the device would resume it.
    fn is_suspended(&self, device: HostPath) -> impl Future<Output = bool> + Send;

    /// Identifies one version of a program file. None: there is no such file, or its disk does not
    /// answer.
    fn file_stamp(&self, program: PathBuf) -> impl Future<Output = Option<FileStamp>> + Send;
}

/// Device, inode, size, and the time of the last change in seconds and nanoseconds.
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
        // This read does not block (runtime_status_show(), drivers/base/power/sysfs.c, takes no
        // lock). The timeout keeps the query going if it ever does.
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(status));
        let read = tokio::time::timeout(RUNTIME_STATUS_TIMEOUT, read).await;
        matches!(read, Ok(Ok(Ok(status))) if status.trim() == "suspended")
    }

    async fn file_stamp(&self, program: PathBuf) -> Option<FileStamp> {
        // In the blocking pool: the disk of the program may be the one that fails.
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
