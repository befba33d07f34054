//! The source of checks over the fake backend, with an owner that writes down what
//! it hears.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use crate::checks::run_with;
use crate::checks::tests::fake::{FakeBackend, FakeBehavior, FakeState};
use crate::context::{CheckSettings, Context, KernelLogSettings, SmartSettings, SourceSettings};
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::decision::CheckOutcome;
use diskvitals_fscheck::policy::Tools;
use diskvitals_fscheck::{Cancellation, CheckProgress, CheckState, DesiredCheck};
use diskvitals_host::helper::Program;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerPool, WorkerPoolConfig};
use diskvitals_kernel_log::event::ResumePoint;
use diskvitals_model::source_update::{REQUEST_QUEUE_CAPACITY, SourceStatus, SourceUpdate};

pub struct Harness {
    pub backend: FakeBackend,
    pub desired: watch::Sender<Arc<Vec<DesiredCheck>>>,
    settings: watch::Sender<Arc<SourceSettings>>,
    received: Arc<Mutex<Vec<(f64, SourceUpdate)>>>,
    /// The owner does not take what is over out of its list.
    pub owner_lags: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

pub fn harness(wanted: Vec<DesiredCheck>) -> Harness {
    harness_with(wanted, |_| {})
}

pub fn harness_with(wanted: Vec<DesiredCheck>, prepare: impl FnOnce(&mut FakeState)) -> Harness {
    harness_at(HostRoot::new("/"), wanted, prepare)
}

pub fn harness_at(
    root: HostRoot,
    first: Vec<DesiredCheck>,
    prepare: impl FnOnce(&mut FakeState),
) -> Harness {
    let begun = Instant::now();
    let mut state = FakeState::default();
    prepare(&mut state);
    let backend = FakeBackend { state: Arc::new(Mutex::new(state)), begun };
    let checks = CheckSettings { at_once: 1, max_io_pressure: 20, tools: Tools::default() };
    let far = Duration::from_secs(3600);
    let settings = watch::Sender::new(Arc::new(SourceSettings {
        checks,
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
        smart: SmartSettings {
            enabled: false,
            command: "/nonexistent".into(),
            interval: far,
            suspect_interval: far,
            shortest_interval: far,
            slow_interval: far,
            idle_interval: far,
            timeout: far,
            at_once: 1,
            nvme_events: false,
            device_types: Vec::new(),
        },
    }));
    let wanted = watch::Sender::new(Arc::new(first));
    let (sender, mut reports) = mpsc::channel(64);
    let workers = || {
        WorkerPool::start(WorkerPoolConfig {
            program: "/nonexistent".into(),
            args: Vec::new(),
            active: 1,
            max_stuck: 1,
        })
    };
    let nothing = || Program { program: "/nonexistent".into(), args: Vec::new() };
    let context = Context {
        root,
        reports: sender,
        requests: broadcast::channel(REQUEST_QUEUE_CAPACITY).0,
        workers: workers(),
        probe_workers: workers(),
        settings: settings.subscribe(),
        targets: watch::Sender::default().subscribe(),
        fs_errors: nothing(),
        smart_targets: watch::Sender::default().subscribe(),
        raid_tools: watch::Sender::default().subscribe(),
        checks: wanted.subscribe(),
        checker: nothing(),
        freezer: nothing(),
        freeze_intents: "/nonexistent".into(),
        grid: diskvitals_host::timer_grid::TimerGrid::start(),
        resume: watch::Sender::new(ResumePoint::From(None)).subscribe(),
    };
    let played = backend.clone();
    let source = tokio::spawn(async move {
        // Ends only with its owner.
        let Err(_gone) = run_with(context, played).await;
    });
    let (heard, lags) =
        (Arc::<Mutex<Vec<(f64, SourceUpdate)>>>::default(), watch::Sender::new(false));
    let (hears, list, lagging) = (heard.clone(), wanted.clone(), lags.subscribe());
    let owner = tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            if let SourceUpdate::Check(progress) = &report
                && progress.outcome.is_some()
                && !*lagging.borrow()
            {
                let id = progress.id.clone();
                list.send_modify(|list| Arc::make_mut(list).retain(|wanted| wanted.id != id));
            }
            hears.lock().unwrap().push((begun.elapsed().as_secs_f64(), report));
        }
    });
    Harness {
        backend,
        desired: wanted,
        settings,
        received: heard,
        owner_lags: lags,
        tasks: vec![source, owner],
    }
}

impl Harness {
    pub async fn advance(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    pub fn set_behavior(&self, device: &str, change: impl FnOnce(&mut FakeBehavior)) {
        self.backend
            .with_state(|state| change(state.behaviors.entry(device.to_owned()).or_default()));
    }

    pub fn change_desired(&self, change: impl FnOnce(&mut Vec<DesiredCheck>)) {
        self.desired.send_modify(|wanted| change(Arc::make_mut(wanted)));
    }

    pub fn change(&self, id: &str, change: impl FnOnce(&mut DesiredCheck)) {
        let id = CheckId::known(id);
        self.change_desired(|all| {
            change(all.iter_mut().find(|wanted| wanted.id == id).expect("it is wanted"))
        });
    }

    pub fn cancel(&self, id: &str) {
        let id = CheckId::known(id);
        let stop = || Some(Cancellation { reason: "cancelled by uid 0 (root)".to_owned() });
        self.change_desired(|all| {
            all.iter_mut()
                .filter(|wanted| wanted.id == id)
                .for_each(|wanted| wanted.cancellation = stop())
        });
    }

    pub fn settings(&self, change: impl FnOnce(&mut CheckSettings)) {
        self.settings.send_modify(|settings| change(&mut Arc::make_mut(settings).checks));
    }

    pub fn reports(&self) -> Vec<(f64, SourceUpdate)> {
        self.received.lock().unwrap().clone()
    }

    /// All that was told of one check, with the seconds since the beginning.
    pub fn progress_of(&self, id: &str) -> Vec<(f64, CheckProgress)> {
        let of = |(at, report)| match report {
            SourceUpdate::Check(progress) if progress.id.as_str() == id => Some((at, *progress)),
            _ => None,
        };
        self.reports().into_iter().filter_map(of).collect()
    }

    pub fn state(&self, id: &str) -> CheckState {
        self.progress_of(id).pop().expect("something was told").1.state
    }

    /// What came of it, and after how many seconds; told exactly once.
    pub fn outcome_of(&self, id: &str) -> Option<(f64, CheckOutcome, usize)> {
        let mut ends = self
            .progress_of(id)
            .into_iter()
            .filter_map(|(at, progress)| Some((at, progress.outcome?, progress.runs.len())));
        let first = ends.next();
        assert!(ends.next().is_none(), "{id} ended twice");
        first
    }

    /// What was done, without the times.
    pub fn log(&self) -> Vec<String> {
        self.backend.with_state(|state| state.log.iter().map(|(_, what)| what.clone()).collect())
    }

    pub fn times_of(&self, what: &str) -> Vec<u64> {
        self.backend.with_state(|state| {
            state
                .log
                .iter()
                .filter(|(_, done)| done == what)
                .map(|(at, _)| at.round() as u64)
                .collect()
        })
    }

    /// Nothing is left of anything.
    pub fn assert_clean(&self) {
        self.backend.with_state(|state| {
            assert!(state.violations.is_empty(), "{:?}", state.violations);
            assert!(state.frozen.is_empty(), "frozen: {:?}", state.frozen);
            assert!(state.running.is_empty(), "running: {:?}", state.running);
            assert!(state.snapshots.is_empty(), "snapshots: {:?}", state.snapshots);
        });
    }

    pub fn statuses(&self) -> Vec<SourceStatus> {
        let of = |(_, report)| match report {
            SourceUpdate::Source { status, .. } => Some(status),
            _ => None,
        };
        self.reports().into_iter().filter_map(of).collect()
    }
}
