//! The inputs that every source gets, and the error with which it ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};

use crate::jobs::{Job, JobResult};
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::DesiredCheck;
use diskvitals_fscheck::policy::Tools;
use diskvitals_host::helper::Program;
use diskvitals_host::root::HostRoot;
use diskvitals_host::timer_grid::TimerGrid;
use diskvitals_host::worker_pool::WorkerPool;
use diskvitals_kernel_log::event::ResumePoint;
use diskvitals_model::probe::ProbeTarget;
use diskvitals_model::raid_report::RaidToolRequests;
use diskvitals_model::source_update::{SmartTarget, SourceRequest, SourceUpdate};

pub type JobWorkers = WorkerPool<Job, JobResult>;

#[derive(Clone)]
pub struct Context {
    pub root: HostRoot,
    pub reports: mpsc::Sender<SourceUpdate>,
    /// Each source subscribes; the owner sends.
    pub requests: broadcast::Sender<SourceRequest>,
    /// Workers in our own mount namespace, for /sys and the kubelet's records.
    pub workers: JobWorkers,
    /// Workers in the host's mount namespace, for volumes.
    pub probe_workers: JobWorkers,
    /// The helper that receives filesystem errors.
    pub fs_errors: Program,
    pub settings: watch::Receiver<Arc<SourceSettings>>,
    /// The mounts that the owner requests to probe.
    pub targets: watch::Receiver<Arc<Vec<ProbeTarget>>>,
    /// The drives whose SMART data the owner requests.
    pub smart_targets: watch::Receiver<Arc<Vec<SmartTarget>>>,
    /// Whether the owner requests the state of arrays.
    pub raid_tools: watch::Receiver<Arc<RaidToolRequests>>,
    /// The filesystem checks that the owner requests.
    pub checks: watch::Receiver<Arc<Vec<DesiredCheck>>>,
    /// The helper that runs a checker, and the one that holds a filesystem's writers.
    pub checker: Program,
    pub freezer: Program,
    /// The directory of freeze intents, as a path on the host.
    pub freeze_intents: PathBuf,
    /// When periodic work is done.
    pub grid: TimerGrid,
    /// Where to start reading the kernel log.
    pub resume: watch::Receiver<ResumePoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// Path on the host.
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
    /// Whether to make the kernel report filesystem errors.
    pub fs_events: bool,
    pub kernel_log: KernelLogSettings,
    pub smart: SmartSettings,
    pub checks: CheckSettings,
}

/// Settings of all checks, besides the properties of each check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSettings {
    /// Maximum number of checks that run at the same time.
    pub at_once: usize,
    /// Scheduled checks wait while tasks wait for I/O for more than this percentage of the time.
    pub max_io_pressure: u8,
    pub tools: Tools,
}

pub use diskvitals_smart::policy::DEFAULT_SMARTCTL as USUAL_SMARTCTL;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmartSettings {
    pub enabled: bool,
    /// Absolute path.
    pub command: PathBuf,
    /// Intervals between two queries: of a healthy drive; of a drive with problems; and the minimum
    /// in all cases.
    pub interval: Duration,
    pub suspect_interval: Duration,
    pub shortest_interval: Duration,
    /// Log pages that are slow on some drives are read at this interval.
    pub slow_interval: Duration,
    /// The longest time for which an idle rotating drive is not queried.
    pub idle_interval: Duration,
    /// Time-out of one run of smartctl.
    pub timeout: Duration,
    /// Maximum number of concurrent runs.
    pub at_once: usize,
    /// Whether to make NVMe controllers announce health events.
    pub nvme_events: bool,
    /// Patterns of model and serial, and the value of `-d` for them; the first match applies.
    pub device_types: Vec<DeviceType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceType {
    pub model: Option<String>,
    pub serial: Option<String>,
    /// `sat,12`; `ignore`: the drive is never queried.
    pub device_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLogSettings {
    pub enabled: bool,
    /// Path on the host.
    pub path: HostPath,
    /// Kernel names of devices that usually are no drives, but count as drives with their errors.
    pub admit: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The daemon is ending; the source has not failed.
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
    pub async fn report(&self, report: SourceUpdate) -> Result<(), SourceError> {
        self.reports.send(report).await.map_err(|_| SourceError::OwnerGone)
    }
}
