//! The source of checks over the world that does as it is told, with an owner that writes down what
//! it hears.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use crate::host::helper::Program;
use crate::host::root::HostRoot;
use crate::host::worker::{Spawn, Workers};
use crate::model::check::steps::Outcome;
use crate::model::check::{Progress, State as CheckState, Stop, Wanted};
use crate::model::ids::CheckId;
use crate::model::kernel::event::Resume;
use crate::model::path::HostPath;
use crate::model::policy::checks::Tools;
use crate::model::report::{REQUESTS, Report, SourceStatus};
use crate::source::checks::run_in;
use crate::source::checks::tests::fake::{Fake, How, Played};
use crate::source::context::{
    CheckSettings, Context, KernelLogSettings, SmartSettings, SourceSettings,
};

pub struct Lab {
    pub world: Fake,
    pub wanted: watch::Sender<Arc<Vec<Wanted>>>,
    settings: watch::Sender<Arc<SourceSettings>>,
    heard: Arc<Mutex<Vec<(f64, Report)>>>,
    /// The owner does not take what is over out of its list.
    pub lags: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

pub fn lab(wanted: Vec<Wanted>) -> Lab {
    lab_with(wanted, |_| {})
}

pub fn lab_with(wanted: Vec<Wanted>, prepare: impl FnOnce(&mut Played)) -> Lab {
    lab_at(HostRoot::new("/"), wanted, prepare)
}

pub fn lab_at(root: HostRoot, first: Vec<Wanted>, prepare: impl FnOnce(&mut Played)) -> Lab {
    let begun = Instant::now();
    let mut state = Played::default();
    prepare(&mut state);
    let world = Fake {
        state: Arc::new(Mutex::new(state)),
        begun,
    };
    let checks = CheckSettings {
        at_once: 1,
        max_io_pressure: 20,
        tools: Tools::default(),
    };
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
            timeout: far,
            at_once: 1,
            nvme_events: false,
            device_types: Vec::new(),
        },
    }));
    let wanted = watch::Sender::new(Arc::new(first));
    let (sender, mut reports) = mpsc::channel(64);
    let workers = || {
        Workers::start(Spawn {
            program: "/nonexistent".into(),
            args: Vec::new(),
            active: 1,
            max_stuck: 1,
        })
    };
    let nothing = || Program {
        program: "/nonexistent".into(),
        args: Vec::new(),
    };
    let context = Context {
        root,
        reports: sender,
        requests: broadcast::channel(REQUESTS).0,
        workers: workers(),
        probe_workers: workers(),
        settings: settings.subscribe(),
        targets: watch::Sender::default().subscribe(),
        fs_errors: nothing(),
        smart_targets: watch::Sender::default().subscribe(),
        checks: wanted.subscribe(),
        checker: nothing(),
        freezer: nothing(),
        freeze_intents: "/nonexistent".into(),
        resume: watch::Sender::new(Resume::From(None)).subscribe(),
    };
    let played = world.clone();
    let source = tokio::spawn(async move {
        // Ends only with its owner.
        let Err(_gone) = run_in(context, played).await;
    });
    let (heard, lags) = (
        Arc::<Mutex<Vec<(f64, Report)>>>::default(),
        watch::Sender::new(false),
    );
    let (hears, list, lagging) = (heard.clone(), wanted.clone(), lags.subscribe());
    let owner = tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            if let Report::Check(progress) = &report
                && progress.outcome.is_some()
                && !*lagging.borrow()
            {
                let id = progress.id.clone();
                list.send_modify(|list| Arc::make_mut(list).retain(|wanted| wanted.id != id));
            }
            hears
                .lock()
                .unwrap()
                .push((begun.elapsed().as_secs_f64(), report));
        }
    });
    Lab {
        world,
        wanted,
        settings,
        heard,
        lags,
        tasks: vec![source, owner],
    }
}

impl Lab {
    pub async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    pub fn how(&self, device: &str, change: impl FnOnce(&mut How)) {
        self.world
            .look(|state| change(state.how.entry(device.to_owned()).or_default()));
    }

    pub fn want(&self, change: impl FnOnce(&mut Vec<Wanted>)) {
        self.wanted
            .send_modify(|wanted| change(Arc::make_mut(wanted)));
    }

    pub fn change(&self, id: &str, change: impl FnOnce(&mut Wanted)) {
        let id = CheckId::known(id);
        self.want(|all| {
            change(
                all.iter_mut()
                    .find(|wanted| wanted.id == id)
                    .expect("it is wanted"),
            )
        });
    }

    pub fn stop(&self, id: &str) {
        let id = CheckId::known(id);
        let stop = || {
            Some(Stop {
                why: "cancelled by uid 0 (root)".to_owned(),
            })
        };
        self.want(|all| {
            all.iter_mut()
                .filter(|wanted| wanted.id == id)
                .for_each(|wanted| wanted.stop = stop())
        });
    }

    pub fn settings(&self, change: impl FnOnce(&mut CheckSettings)) {
        self.settings
            .send_modify(|settings| change(&mut Arc::make_mut(settings).checks));
    }

    pub fn reports(&self) -> Vec<(f64, Report)> {
        self.heard.lock().unwrap().clone()
    }

    /// All that was told of one check, with the seconds since the beginning.
    pub fn told(&self, id: &str) -> Vec<(f64, Progress)> {
        let of = |(at, report)| match report {
            Report::Check(progress) if progress.id.as_str() == id => Some((at, *progress)),
            _ => None,
        };
        self.reports().into_iter().filter_map(of).collect()
    }

    pub fn state(&self, id: &str) -> CheckState {
        self.told(id).pop().expect("something was told").1.state
    }

    /// What came of it, and after how many seconds; told exactly once.
    pub fn ended(&self, id: &str) -> Option<(f64, Outcome, usize)> {
        let mut ends = self
            .told(id)
            .into_iter()
            .filter_map(|(at, progress)| Some((at, progress.outcome?, progress.runs.len())));
        let first = ends.next();
        assert!(ends.next().is_none(), "{id} ended twice");
        first
    }

    /// What was done, without the times.
    pub fn done(&self) -> Vec<String> {
        self.world
            .look(|state| state.done.iter().map(|(_, what)| what.clone()).collect())
    }

    pub fn begun(&self, what: &str) -> Vec<u64> {
        self.world.look(|state| {
            state
                .done
                .iter()
                .filter(|(_, done)| done == what)
                .map(|(at, _)| at.round() as u64)
                .collect()
        })
    }

    /// Nothing is left of anything.
    pub fn nothing_is_left(&self) {
        self.world.look(|state| {
            assert!(state.wrong.is_empty(), "{:?}", state.wrong);
            assert!(state.frozen.is_empty(), "frozen: {:?}", state.frozen);
            assert!(state.running.is_empty(), "running: {:?}", state.running);
            assert!(
                state.snapshots.is_empty(),
                "snapshots: {:?}",
                state.snapshots
            );
        });
    }

    pub fn statuses(&self) -> Vec<SourceStatus> {
        let of = |(_, report)| match report {
            Report::Source { status, .. } => Some(status),
            _ => None,
        };
        self.reports().into_iter().filter_map(of).collect()
    }
}
