//! What the source does to the world: runs programs, asks workers, looks at a file. A seam, so that
//! tests can play drives that hang for a day.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::exec::{self, Exec, ExecError, Output};
use crate::host::root::HostRoot;
use crate::host::worker::Outcome;
use crate::model::path::HostPath;
use crate::source::context::JobWorkers;
use crate::source::jobs::{Answer, Job};

/// For one attribute of sysfs.
const STATUS: Duration = Duration::from_secs(5);

pub trait World: Clone + Send + Sync + 'static {
    fn run(&self, exec: Exec) -> impl Future<Output = Result<Output, ExecError>> + Send;

    /// A question that may block, to a worker.
    fn ask(
        &self,
        target: String,
        job: Job,
        timeout: Duration,
    ) -> impl Future<Output = Outcome<Answer>> + Send;

    /// Whether the kernel has suspended this device by now: that changes without an event, and to
    /// open it would resume it.
    fn suspended(&self, device: HostPath) -> impl Future<Output = bool> + Send;

    /// What tells one version of a program from the next; None where there is none, or its disk
    /// does not answer.
    fn stamp(&self, program: PathBuf) -> impl Future<Output = Option<Stamp>> + Send;
}

/// Of a file: device, inode, size, time of its last change in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u64, pub u64, pub u64, pub i64, pub i64);

#[derive(Clone)]
pub struct Real {
    pub workers: JobWorkers,
    pub root: HostRoot,
}

impl World for Real {
    async fn run(&self, exec: Exec) -> Result<Output, ExecError> {
        exec::run(&exec).await
    }

    async fn ask(&self, target: String, job: Job, timeout: Duration) -> Outcome<Answer> {
        self.workers.ask(&target, job, timeout).await
    }

    async fn suspended(&self, device: HostPath) -> bool {
        let Some(name) = device.as_path().file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let status = self.root.at(format!(
            "/sys/class/block/{name}/device/power/runtime_status"
        ));
        // Nothing blocks there (runtime_status_show(), drivers/base/power/sysfs.c takes no lock);
        // one that did would not hold up the question.
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(status));
        let read = tokio::time::timeout(STATUS, read).await;
        matches!(read, Ok(Ok(Ok(status))) if status.trim() == "suspended")
    }

    async fn stamp(&self, program: PathBuf) -> Option<Stamp> {
        // In the blocking pool: the disk that it lies on may be the one that dies.
        tokio::task::spawn_blocking(move || stamp(&program))
            .await
            .ok()
            .flatten()
    }
}

fn stamp(program: &Path) -> Option<Stamp> {
    let data = std::fs::metadata(program).ok()?;
    Some(Stamp(
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
    ))
}
