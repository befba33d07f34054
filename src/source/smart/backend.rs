//! The interface to the system: runs programs, gives jobs to workers, reads one file. Tests replace
//! it with drives that hang for a day.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::context::JobWorkers;
use crate::jobs::{Job, JobResult};
use diskvitals_finding::path::HostPath;
use diskvitals_host::blocking::BlockingLane;
use diskvitals_host::exec::{self, Exec, ExecError, Output};
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::WorkerOutcome;

static RUNTIME_STATUS: BlockingLane = BlockingLane::new();
static SMARTCTL_FILE: BlockingLane = BlockingLane::new();
/// Time-out for reading one attribute of sysfs.
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
    /// opening the device would resume it. None: unknown.
    fn is_suspended(&self, device: HostPath) -> impl Future<Output = Option<bool>> + Send;

    /// Identifies one version of a program file. None: there is no such file, or its disk does not
    /// respond.
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

    async fn is_suspended(&self, device: HostPath) -> Option<bool> {
        let root = self.root.clone();
        let read = RUNTIME_STATUS.run(move || read_suspended(&root, &device));
        tokio::time::timeout(RUNTIME_STATUS_TIMEOUT, read).await.ok()?.ok()?
    }

    async fn file_stamp(&self, program: PathBuf) -> Option<FileStamp> {
        // The disk that holds the program may be the one that dies.
        SMARTCTL_FILE.run(move || stamp(&program)).await.ok()?
    }
}

/// From sysfs, where reading does not block: runtime_status_show(), drivers/base/power/sysfs.c,
/// takes no lock. None: unknown.
fn read_suspended(root: &HostRoot, device: &HostPath) -> Option<bool> {
    let name = device.as_path().file_name()?.to_str()?;
    let status = root.at(format!("/sys/class/block/{name}/device/power/runtime_status"));
    match std::fs::read_to_string(status) {
        Ok(status) => Some(status.trim() == "suspended"),
        // The kernel, or this device, has no runtime power management.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

fn stamp(program: &Path) -> Option<FileStamp> {
    let data = std::fs::metadata(program).ok()?;
    Some(FileStamp(data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_state_that_cannot_be_read_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let power = |name: &str| {
            let power = dir.path().join(format!("sys/class/block/{name}/device/power"));
            std::fs::create_dir_all(&power).unwrap();
            power.join("runtime_status")
        };
        std::fs::write(power("sda"), "suspended\n").unwrap();
        std::fs::write(power("sdb"), "active\n").unwrap();
        std::fs::create_dir(power("sdc")).unwrap();
        let read = |name: &str| read_suspended(&root, &format!("/dev/{name}").as_str().into());
        assert_eq!(
            ["sda", "sdb", "sdc", "nvme0"].map(read),
            [Some(true), Some(false), None, Some(false)]
        );
    }
}
