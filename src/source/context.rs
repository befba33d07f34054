//! What every source is given, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};

use crate::host::helper::Program;
use crate::host::root::HostRoot;
use crate::host::worker::Workers;
use crate::model::kernel::event::Resume;
use crate::model::path::HostPath;
use crate::model::probe::ProbeTarget;
use crate::model::report::{Report, Request};
use crate::source::jobs::{Answer, Job};

pub type JobWorkers = Workers<Job, Answer>;

#[derive(Clone)]
pub struct Context {
    pub root: HostRoot,
    pub reports: mpsc::Sender<Report>,
    /// Each source subscribes; the owner sends.
    pub requests: broadcast::Sender<Request>,
    /// Workers in our own mount namespace, for /sys and the kubelet's records.
    pub workers: JobWorkers,
    /// Workers in the host's mount namespace, for volumes.
    pub probe_workers: JobWorkers,
    /// The helper that hears of filesystems' errors.
    pub fs_errors: Program,
    pub settings: watch::Receiver<Arc<SourceSettings>>,
    /// What the owner wants probed.
    pub targets: watch::Receiver<Arc<Vec<ProbeTarget>>>,
    /// With what to begin in the kernel's log.
    pub resume: watch::Receiver<Resume>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// As the host names it.
    pub kubelet_root: HostPath,
    pub admit: Vec<String>,
    pub ignore: Vec<String>,
    pub reconcile_interval: Duration,
    pub probe_interval: Duration,
    pub probe_timeout: Duration,
    /// For scans of sysfs and of the kubelet's records.
    pub worker_timeout: Duration,
    pub disk_stats_interval: Duration,
    pub counters_interval: Duration,
    /// Whether to have the kernel tell of filesystems' errors.
    pub fs_events: bool,
    pub kernel_log: KernelLogSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLogSettings {
    pub enabled: bool,
    /// As the host names it.
    pub path: HostPath,
    /// Kernel names that count as drives although they usually do not: then their errors count too.
    pub admit: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The end of the daemon, not a failure of the source.
    #[error("the owner of the state is gone")]
    OwnerGone,
    #[error("starting the thread `{name}`")]
    Thread {
        name: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl Context {
    pub async fn report(&self, report: Report) -> Result<(), SourceError> {
        self.reports.send(report).await.map_err(|_| SourceError::OwnerGone)
    }
}
