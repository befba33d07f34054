//! Fake drives, which behave as a test says, and an owner that writes down what it hears. Time is
//! tokio's, and stands still while anybody works.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::context::{Context, KernelLogSettings, SmartSettings, SourceSettings};
use crate::jobs::{Job, JobResult};
use crate::smart::backend::{Backend, FileStamp};
use crate::smart::controllers::Controller;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_host::exec::{Exec, ExecError, Output, UnkillableChild};
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerOutcome, WorkerPool, WorkerPoolConfig};
use diskvitals_kernel_log::event::ResumePoint;
use diskvitals_model::drive::Transport;
use diskvitals_model::raid_report::RaidToolRequests;
use diskvitals_model::source_update::{
    REQUEST_QUEUE_CAPACITY, SmartTarget, SourceRequest, SourceStatus, SourceUpdate,
};
use diskvitals_smart::SmartResponse;

/// How a drive takes a question.
#[derive(Clone, Debug)]
pub enum DriveBehavior {
    /// It answers with this, and smartctl's exit status.
    Json(Value, i32),
    /// smartctl writes this and ends with this wait status.
    Raw(Vec<u8>, i32),
    /// It answers after so long.
    Delayed(Duration, Value),
    /// smartctl hangs until it is killed.
    Hangs,
    /// So when all log pages are read; the quick ones are these.
    HangsOnFull(Value),
    /// The same, and smartctl cannot be killed until it is let go.
    UnkillableOnFull(Value),
    /// It hangs, and cannot be killed until it is let go.
    Unkillable,
    /// The task that asks is lost.
    Panics,
    /// smartctl cannot be started.
    StartFails,
}

#[derive(Clone, Debug)]
pub struct SmartctlRun {
    pub at: Duration,
    pub args: Vec<String>,
}

#[derive(Default)]
pub struct FakeState {
    pub drives: BTreeMap<String, DriveBehavior>,
    pub version: Option<[u32; 2]>,
    pub file: u64,
    pub runs: Vec<SmartctlRun>,
    pub running: usize,
    pub most_running: usize,
    pub held: Vec<oneshot::Sender<()>>,
    pub controllers: Vec<Controller>,
    pub events_set: Vec<String>,
    /// Times that somebody looked which controllers there are.
    pub discoveries: usize,
    /// Devices that the kernel has suspended.
    pub suspended: Vec<String>,
    /// Devices whose suspend state cannot be read.
    pub suspend_unknown: Vec<String>,
    /// Whether looking for controllers ends in a panic.
    pub panics: bool,
}

#[derive(Clone)]
pub struct FakeBackend {
    pub state: Arc<Mutex<FakeState>>,
    begun: Instant,
}

impl Backend for FakeBackend {
    async fn run(&self, exec: Exec) -> Result<Output, ExecError> {
        let taken = {
            let mut state = self.state.lock().expect("whole");
            let version = exec.args.last().is_some_and(|last| last == "--version");
            if version {
                let answer = state.version.map(|[major, minor]| match major {
                    7.. => ok(json!({"json_format_version": [1, 0], "smartctl": {"version": [major, minor], "exit_status": 0}}), 0),
                    _ => Output { stdout: format!("smartctl {major}.{minor} 2017-11-05 r4594\n").into_bytes(), ..ok(Value::Null, 1) },
                });
                return answer.ok_or_else(|| no_program(&exec));
            }
            let at = self.begun.elapsed();
            state.runs.push(SmartctlRun { at, args: exec.args.clone() });
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            behavior_of(&state.drives, &exec.args)
                .unwrap_or_else(|| DriveBehavior::Json(empty_slot(), 2))
        };
        let outcome = match taken {
            DriveBehavior::Json(value, status) => Ok(ok(value, status)),
            DriveBehavior::Raw(stdout, status) => {
                let truncated = stdout.len() > exec.max_output;
                Ok(Output { status, stdout, stderr: Vec::new(), truncated })
            }
            DriveBehavior::Delayed(long, value) if long < exec.timeout => {
                tokio::time::sleep(long).await;
                Ok(ok(value, 0))
            }
            DriveBehavior::HangsOnFull(value) | DriveBehavior::UnkillableOnFull(value)
                if !exec.args.iter().any(|arg| arg == "-x") =>
            {
                Ok(ok(value, 0))
            }
            DriveBehavior::Delayed(..) | DriveBehavior::Hangs | DriveBehavior::HangsOnFull(_) => {
                tokio::time::sleep(exec.timeout).await;
                Err(ExecError::TimedOut { program: exec.program.clone(), timeout: exec.timeout })
            }
            DriveBehavior::Unkillable | DriveBehavior::UnkillableOnFull(_) => {
                tokio::time::sleep(exec.timeout).await;
                let (release, held) = oneshot::channel::<()>();
                self.state.lock().expect("whole").held.push(release);
                let end = async move {
                    held.await.ok();
                };
                let remains = UnkillableChild::watch(
                    Some("D (disk sleep) in blk_execute_rq".to_owned()),
                    end,
                );
                Err(ExecError::Unkillable {
                    program: exec.program.clone(),
                    timeout: exec.timeout,
                    child: remains,
                })
            }
            DriveBehavior::Panics => panic!("a task that is lost"),
            DriveBehavior::StartFails => Err(no_program(&exec)),
        };
        self.state.lock().expect("whole").running -= 1;
        outcome
    }

    async fn run_job(
        &self,
        _target: String,
        job: Job,
        _timeout: Duration,
    ) -> WorkerOutcome<JobResult> {
        let mut state = self.state.lock().expect("whole");
        match job {
            Job::Controllers => {
                state.discoveries += 1;
                let (panics, found) = (state.panics, state.controllers.clone());
                drop(state);
                assert!(!panics, "a task that is lost");
                WorkerOutcome::Completed(JobResult::Controllers(found))
            }
            Job::NvmeEvents { controller } => {
                state.events_set.push(controller);
                WorkerOutcome::Completed(JobResult::NvmeEvents { changed: true })
            }
            _ => WorkerOutcome::Failed("what?".to_owned()),
        }
    }

    async fn is_suspended(&self, device: HostPath) -> Option<bool> {
        let state = self.state.lock().expect("whole");
        let device = device.to_string();
        (!state.suspend_unknown.contains(&device)).then(|| state.suspended.contains(&device))
    }

    async fn file_stamp(&self, _program: PathBuf) -> Option<FileStamp> {
        let state = self.state.lock().expect("whole");
        state.version.map(|_| FileStamp(0, state.file, 0, 0, 0))
    }
}

fn no_program(exec: &Exec) -> ExecError {
    ExecError::Start { program: exec.program.clone(), source: std::io::ErrorKind::NotFound.into() }
}

/// The device with the type that is given with it, where the test says something of that:
/// `/dev/bus/0 megaraid,3`; else the device.
fn behavior_of(drives: &BTreeMap<String, DriveBehavior>, args: &[String]) -> Option<DriveBehavior> {
    let device = args.last().cloned().unwrap_or_default();
    let kind = args.iter().position(|arg| arg == "-d").and_then(|at| args.get(at + 1));
    let both = kind.map(|kind| format!("{device} {kind}"));
    both.and_then(|both| drives.get(&both)).or_else(|| drives.get(&device)).cloned()
}

fn ok(value: Value, status: i32) -> Output {
    Output {
        status: status << 8,
        stdout: value.to_string().into_bytes(),
        stderr: Vec::new(),
        truncated: false,
    }
}

pub fn healthy(serial: &str) -> Value {
    json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 0},
        "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
        "model_name": "Nimbus Disk 4T", "serial_number": serial, "firmware_version": "N1",
        "user_capacity": {"blocks": 8, "bytes": 4096}, "rotation_rate": 7200,
        "smart_status": {"passed": true},
    })
}

pub fn standby() -> Value {
    json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 2,
            "messages": [{"string": "Device is in STANDBY mode, exit(2)", "severity": "information"}]},
        "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
    })
}

/// Of a RAID controller's place without a disk.
pub fn empty_slot() -> Value {
    json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 2,
            "messages": [{"string": "Smartctl open device: /dev/bus/0 [megaraid_disk_09] failed: INQUIRY failed", "severity": "error"}]},
    })
}

pub fn target(name: &str) -> SmartTarget {
    SmartTarget {
        drive: DriveId::known(name),
        device: HostPath::new(format!("/dev/{name}")),
        device_type: None,
        transport: Transport::Sata,
        controllers: Vec::new(),
        model: Some("Nimbus Disk 4T".to_owned()),
        serial: Some(name.to_uppercase()),
        asleep: false,
        idle: false,
        suspect: false,
        kernel_error_count: 0,
        last_response: None,
    }
}

pub struct Lab {
    pub backend: FakeBackend,
    pub reports: mpsc::Receiver<SourceUpdate>,
    pub requests: broadcast::Sender<SourceRequest>,
    targets: watch::Sender<Arc<Vec<SmartTarget>>>,
    pub raid_tools: watch::Sender<Arc<RaidToolRequests>>,
    settings: watch::Sender<Arc<SourceSettings>>,
    _task: tokio::task::JoinHandle<()>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self._task.abort();
    }
}

pub fn settings() -> SmartSettings {
    SmartSettings {
        enabled: true,
        command: "/opt/smartctl".into(),
        interval: Duration::from_secs(600),
        suspect_interval: Duration::from_secs(120),
        shortest_interval: Duration::from_secs(30),
        slow_interval: Duration::from_secs(86400),
        idle_interval: Duration::from_secs(86400),
        timeout: Duration::from_secs(60),
        at_once: 2,
        nvme_events: false,
        device_types: Vec::new(),
    }
}

/// Drives `sda`, `sdb`, … with serial numbers `SDA`, `SDB`, …
pub fn lab(drives: &[(&str, DriveBehavior)]) -> Lab {
    let targets = drives.iter().map(|(name, _)| target(name)).collect();
    lab_with(drives, targets, settings(), |_| {})
}

pub fn lab_with(
    drives: &[(&str, DriveBehavior)],
    targets: Vec<SmartTarget>,
    smart: SmartSettings,
    prepare: impl FnOnce(&mut FakeState),
) -> Lab {
    lab_at(HostRoot::new("/"), drives, targets, smart, prepare)
}

pub fn lab_at(
    root: HostRoot,
    drives: &[(&str, DriveBehavior)],
    targets: Vec<SmartTarget>,
    smart: SmartSettings,
    prepare: impl FnOnce(&mut FakeState),
) -> Lab {
    let begun = Instant::now();
    let mut state = FakeState { version: Some([7, 3]), ..FakeState::default() };
    state.drives = drives.iter().map(|(name, how)| (format!("/dev/{name}"), how.clone())).collect();
    prepare(&mut state);
    let backend = FakeBackend { state: Arc::new(Mutex::new(state)), begun };
    let mut lab = lab_of(backend.clone(), root, targets, smart);
    lab.backend = backend;
    lab
}

/// With any backend; the fake one is then not asked.
pub fn lab_of(
    played: impl Backend,
    root: HostRoot,
    targets: Vec<SmartTarget>,
    smart: SmartSettings,
) -> Lab {
    let backend = FakeBackend { state: Arc::default(), begun: Instant::now() };
    let far = Duration::from_secs(3600);
    let settings = watch::Sender::new(Arc::new(SourceSettings {
        checks: Default::default(),
        kubelet_root: HostPath::new("/var/lib/kubelet"),
        admit: Vec::new(),
        ignore: Vec::new(),
        reconcile_interval: far,
        probe_interval: far,
        probe_timeout: far,
        worker_timeout: far,
        disk_stats_interval: far,
        kernel_log: KernelLogSettings {
            enabled: false,
            path: HostPath::new("/dev/kmsg"),
            admit: Vec::new(),
        },
        counters_interval: far,
        fs_events: false,
        smart,
    }));
    let targets = watch::Sender::new(Arc::new(targets));
    let raid_tools = watch::Sender::default();
    let (sender, reports) = mpsc::channel(1 << 16);
    let requests = broadcast::channel(REQUEST_QUEUE_CAPACITY).0;
    let workers = || {
        WorkerPool::start(WorkerPoolConfig {
            program: "/nonexistent".into(),
            args: Vec::new(),
            active: 1,
            max_stuck: 1,
        })
    };
    let context = Context {
        root,
        reports: sender,
        requests: requests.clone(),
        workers: workers(),
        probe_workers: workers(),
        settings: settings.subscribe(),
        targets: watch::Sender::default().subscribe(),
        fs_errors: diskvitals_host::helper::Program {
            program: "/nonexistent".into(),
            args: Vec::new(),
        },
        smart_targets: targets.subscribe(),
        raid_tools: raid_tools.subscribe(),
        checks: watch::Sender::default().subscribe(),
        checker: diskvitals_host::helper::Program {
            program: "/nonexistent".into(),
            args: Vec::new(),
        },
        freezer: diskvitals_host::helper::Program {
            program: "/nonexistent".into(),
            args: Vec::new(),
        },
        freeze_intents: "/nonexistent/freeze".into(),
        grid: diskvitals_host::timer_grid::TimerGrid::start(),
        resume: watch::Sender::new(ResumePoint::From(None)).subscribe(),
    };
    let task = tokio::spawn(async move {
        // Ends only with its owner.
        let Err(_gone) = crate::smart::run_with_backend(context, played).await;
    });
    Lab { backend, reports, requests, targets, raid_tools, settings, _task: task }
}

impl Lab {
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub fn set(&self, drive: &str, how: DriveBehavior) {
        self.state(|state| state.drives.insert(format!("/dev/{drive}"), how));
    }

    pub fn state<T>(&self, look: impl FnOnce(&mut FakeState) -> T) -> T {
        look(&mut self.backend.state.lock().expect("whole"))
    }

    pub fn targets(&self, change: impl FnOnce(&mut Vec<SmartTarget>)) {
        self.targets.send_modify(|targets| change(Arc::make_mut(targets)));
    }

    pub fn settings(&self, change: impl FnOnce(&mut SmartSettings)) {
        self.settings.send_modify(|settings| {
            let mut new = (**settings).clone();
            change(&mut new.smart);
            *settings = Arc::new(new);
        });
    }

    pub fn ask(&self, request: SourceRequest) {
        self.requests.send(request).expect("the source listens");
    }

    /// Seconds since the beginning at which smartctl was started for this drive.
    pub fn starts(&self, drive: &str) -> Vec<u64> {
        let device = format!("/dev/{drive}");
        self.state(|state| {
            state
                .runs
                .iter()
                .filter(|run| run.args.last() == Some(&device))
                .map(|run| run.at.as_secs())
                .collect()
        })
    }

    pub fn arguments(&self, drive: &str) -> Vec<String> {
        let device = format!("/dev/{drive}");
        self.state(|state| {
            state
                .runs
                .iter()
                .filter(|run| run.args.last() == Some(&device))
                .map(|run| run.args.join(" "))
                .collect()
        })
    }

    /// All that was reported so far.
    pub fn reported(&mut self) -> Vec<SourceUpdate> {
        std::iter::from_fn(|| self.reports.try_recv().ok()).collect()
    }

    /// What was said of one drive so far.
    pub fn responses(&mut self, drive: &str) -> Vec<SmartResponse> {
        let id = DriveId::known(drive);
        let of = |report| match report {
            SourceUpdate::Smart { drive, response: answer, .. } if drive == id => Some(*answer),
            _ => None,
        };
        self.reported().into_iter().filter_map(of).collect()
    }

    pub fn statuses(&mut self) -> Vec<SourceStatus> {
        let of = |report| match report {
            SourceUpdate::Source { source: Source::Smart, status } => Some(status),
            _ => None,
        };
        self.reported().into_iter().filter_map(of).collect()
    }
}
