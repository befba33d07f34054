//! What every source is given, and how it ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};

use crate::host::helper::Program;
use crate::host::root::HostRoot;
use crate::host::worker_pool::WorkerPool;
use crate::model::check::DesiredCheck;
use crate::model::kernel_log::event::ResumePoint;
use crate::model::path::HostPath;
use crate::model::policy::checks::Tools;
use crate::model::probe::ProbeTarget;
use crate::model::source_update::{SmartTarget, SourceRequest, SourceUpdate};
use crate::source::jobs::{Job, JobResult};

pub type JobWorkers = WorkerPool<Job, JobResult>;

#[derive(Clone)]
pub(crate) struct Context {
    pub root: HostRoot,
    pub reports: mpsc::Sender<SourceUpdate>,
    /// Each source subscribes; the owner sends.
    pub requests: broadcast::Sender<SourceRequest>,
    /// Workers in our own mount namespace, for /sys and the kubelet's records.
    pub workers: JobWorkers,
    /// Workers in the host's mount namespace, for volumes.
    pub probe_workers: JobWorkers,
    /// The helper that hears of filesystems' errors.
    pub fs_errors: Program,
    pub settings: watch::Receiver<Arc<SourceSettings>>,
    /// What the owner wants probed.
    pub targets: watch::Receiver<Arc<Vec<ProbeTarget>>>,
    /// Which drives the owner wants asked for their SMART data.
    pub smart_targets: watch::Receiver<Arc<Vec<SmartTarget>>>,
    /// Which filesystems the owner wants checked.
    pub checks: watch::Receiver<Arc<Vec<DesiredCheck>>>,
    /// The helper that runs a checker; the one that holds a filesystem's writers.
    pub checker: Program,
    pub freezer: Program,
    /// Where intents to freeze are written, as the host names it.
    pub freeze_intents: PathBuf,
    /// With what to begin in the kernel's log.
    pub resume: watch::Receiver<ResumePoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceSettings {
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
    /// Whether to have the kernel report errors of filesystems.
    pub fs_events: bool,
    pub kernel_log: KernelLogSettings,
    pub smart: SmartSettings,
    pub checks: CheckSettings,
}

/// What runs checks must know beside each check's own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckSettings {
    /// Checks of which runs go on at a time.
    pub at_once: usize,
    /// Scheduled ones wait while tasks wait for I/O more than so many percent of the time.
    pub max_io_pressure: u8,
    pub tools: Tools,
}

pub(crate) use crate::model::policy::smart::DEFAULT_SMARTCTL as USUAL_SMARTCTL;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmartSettings {
    pub enabled: bool,
    /// Absolute.
    pub command: PathBuf,
    /// Between two questions to a drive that is well; to one that is not; at least, whatever
    /// happens.
    pub interval: Duration,
    pub suspect_interval: Duration,
    pub shortest_interval: Duration,
    /// Log pages that are slow on some drives are read this often.
    pub slow_interval: Duration,
    /// For one run of smartctl.
    pub timeout: Duration,
    /// Runs at a time.
    pub at_once: usize,
    /// Set the feature of NVMe controllers that has them announce health events.
    pub nvme_events: bool,
    /// First match wins: patterns of model and serial, and what to give as `-d`.
    pub device_types: Vec<DeviceType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceType {
    pub model: Option<String>,
    pub serial: Option<String>,
    /// `sat,12`; `ignore`: never asked.
    pub device_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelLogSettings {
    pub enabled: bool,
    /// As the host names it.
    pub path: HostPath,
    /// Kernel names that count as drives although they usually do not: then their errors count too.
    pub admit: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
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
    pub(crate) async fn report(&self, report: SourceUpdate) -> Result<(), SourceError> {
        self.reports
            .send(report)
            .await
            .map_err(|_| SourceError::OwnerGone)
    }
}
