//! Runs lvm(8) in a process in the host's mount namespace, where lvm's configuration, its locks and
//! /dev are.
//!
//! While lvm changes a volume, device-mapper suspends that volume's writers. Therefore this process
//! leaves the daemon's control group, and an intent records what it changes. If it is killed, the
//! suspended volume is resumed: at once, by the unit's ExecStopPost, or at the next start.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checks::freezer::Freezer;
use crate::worker_main::{WorkerRole, arguments};
use diskvitals_finding::dev::DevNo;
use diskvitals_fscheck::Filesystem;
use diskvitals_host::exec::{Exec, ExecError, Output, run_own};
use diskvitals_host::root::HostRoot;

/// Time to read a volume group's metadata.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to create or remove: lvm waits for the I/O of the origin and for udev.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time to replay a log of the largest size on a slow disk.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(600);
/// Fits a volume group with thousands of logical volumes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The change that an lvm process is about to make: recorded by the process that becomes lvm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LvmChange {
    /// The folder of the intents, as a path on the host.
    pub intents: PathBuf,
    pub group: String,
    /// The volume whose writers it suspends; empty if none.
    pub volume: String,
    pub snapshot: String,
}

/// The lvm operations of snapshots. A trait for tests.
pub trait Lvm: Clone + Send + Sync + 'static {
    /// Runs `lvm ARGS` without changing anything.
    fn query(&self, args: Vec<String>) -> impl Future<Output = Result<Output, ExecError>> + Send;

    /// Runs `lvm ARGS` to create or remove this snapshot of this volume.
    fn change(
        &self,
        group: &str,
        volume: &str,
        snapshot: &str,
        args: Vec<String>,
    ) -> impl Future<Output = Result<Output, ExecError>> + Send;

    /// Mounts and unmounts the filesystem on `dev` in a private namespace, so that its log is
    /// replayed.
    fn replay(
        &self,
        filesystem: Filesystem,
        dev: DevNo,
    ) -> impl Future<Output = Result<Output, ExecError>> + Send;
}

#[derive(Clone, Debug)]
pub struct HostLvm {
    pub root: HostRoot,
    /// Our own binary.
    pub worker: PathBuf,
    /// Path on the host.
    pub lvm: PathBuf,
    /// Resumes the volumes that a killed lvm left suspended.
    pub freezer: Freezer,
}

impl HostLvm {
    fn exec(&self, place: WorkerRole, args: Vec<String>, timeout: Duration) -> Exec {
        let ours = arguments(place, &self.root)
            .into_iter()
            .map(|argument| argument.to_string_lossy().into_owned());
        Exec {
            program: self.worker.clone(),
            args: ours.chain(args).collect(),
            stdin: Vec::new(),
            timeout,
            max_output: MAX_OUTPUT_BYTES,
        }
    }

    async fn resume_suspended(&self) {
        Box::pin(self.freezer.resume_suspended(true))
            .await
            .lines
            .iter()
            .for_each(|line| tracing::warn!("{line}"));
    }

    fn lvm_exec(&self, changes: Option<&LvmChange>, args: Vec<String>, timeout: Duration) -> Exec {
        // Names and paths: JSON can represent them all.
        let changes = serde_json::json!(changes).to_string();
        self.exec(
            WorkerRole::Lvm,
            [self.lvm.to_string_lossy().into_owned(), changes].into_iter().chain(args).collect(),
            timeout,
        )
    }
}

impl Lvm for HostLvm {
    async fn query(&self, args: Vec<String>) -> Result<Output, ExecError> {
        Box::pin(run_own(&self.lvm_exec(None, args, QUERY_TIMEOUT))).await
    }

    async fn change(
        &self,
        group: &str,
        volume: &str,
        snapshot: &str,
        args: Vec<String>,
    ) -> Result<Output, ExecError> {
        let (group, volume, snapshot) = (group.to_owned(), volume.to_owned(), snapshot.to_owned());
        let changes = LvmChange { intents: self.freezer.intents.clone(), group, volume, snapshot };
        // Resumes volumes that an earlier lvm left suspended, before the change; and those that
        // this one left, after it, however it ended. An lvm that still runs is left alone.
        self.resume_suspended().await;
        let ran = Box::pin(run_own(&self.lvm_exec(Some(&changes), args, CHANGE_TIMEOUT))).await;
        self.resume_suspended().await;
        ran
    }

    async fn replay(&self, filesystem: Filesystem, dev: DevNo) -> Result<Output, ExecError> {
        Box::pin(run_own(&self.exec(
            WorkerRole::Replay,
            vec![filesystem.name().to_owned(), dev.to_string()],
            REPLAY_TIMEOUT,
        )))
        .await
    }
}
