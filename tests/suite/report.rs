//! `--report`: a real daemon on a recorded host, the reporter, and the test's API server.

mod challenge;
mod daemon;
mod failed;
mod process;
mod quarantine;
mod refusals;
pub mod server;
mod storage;
mod unreachable;

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diskvitals_csi::report::{ApiServer, EnabledReports, ReportTiming, Reporter};
use diskvitals_kubernetes::Config;
use server::{NODE, Server};
use tokio::sync::oneshot;

use crate::smart::host::{Daemon, Host, OFTEN, SOON, pause, sata};
use crate::smartctl::Ata;

/// The volume on the first drive, as named in the tree.
const POD: &str = "tenant-0/app-0";

pub struct Scene {
    pub host: Host,
    pub server: Server,
}

impl Scene {
    pub fn stage() -> Scene {
        let scene = Scene { host: Host::new(OFTEN), server: Server::start() };
        scene.server.state().claims = scene
            .pvs()
            .into_iter()
            .enumerate()
            .map(|(at, pv)| (pv, format!("tenant-{at}")))
            .collect();
        scene
    }

    /// The first drive reports that it fails.
    pub fn break_drive(&self) {
        self.host
            .smartctl
            .set_response("/dev/sda", &Ata { passed: false, ..sata() }.response())
            .expect("written");
    }

    pub fn mend_drive(&self) {
        self.host.smartctl.set_response("/dev/sda", &sata().response()).expect("written");
    }

    pub fn agent(&self) -> PathBuf {
        self.dir().join("a.sock")
    }

    pub fn dir(&self) -> PathBuf {
        self.host.root().parent().expect("below a folder").to_owned()
    }

    /// The PVs, sorted by their pods.
    fn pvs(&self) -> Vec<String> {
        let logs = std::fs::read_dir(self.host.root().join("var/log/pods")).expect("readable");
        let mut pods: Vec<(String, String)> = logs
            .map(|entry| {
                let name = entry.expect("readable").file_name().into_string().expect("text");
                let (pod, uid) = name.rsplit_once('_').expect("a pod's folder");
                (pod.to_owned(), uid.to_owned())
            })
            .collect();
        pods.sort();
        let pv = |(_, uid): (String, String)| {
            let volumes = self
                .host
                .root()
                .join(format!("var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"));
            let first = std::fs::read_dir(volumes)
                .expect("readable")
                .next()
                .expect("a volume")
                .expect("readable");
            first.file_name().into_string().expect("text")
        };
        pods.into_iter().map(pv).collect()
    }

    pub fn until<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + SOON;
        loop {
            if let Some(out) = condition() {
                return out;
            }
            let state = self.server.state();
            let last: Vec<_> = state.asked.iter().rev().take(5).collect();
            assert!(
                Instant::now() < end,
                "not so: {what}; events {:#?}, condition {:#?}, asked last {last:#?}",
                state.events,
                state.conditions
            );
            drop(state);
            pause(20);
        }
    }

    /// Waits until the count stays the same for this number of polls. The wait counts polls instead
    /// of time, so that a suspended machine does not count as silence.
    pub fn until_still(&self, what: &str, count: impl Fn() -> usize) -> usize {
        let (mut last, mut looks) = (count(), 0);
        self.until(what, || {
            let now = count();
            looks = if now == last { looks + 1 } else { 0 };
            last = now;
            (looks >= 75).then_some(now)
        })
    }

    pub fn until_told(&self, line: &str) {
        self.until(line, || self.server.told().iter().any(|told| told == line).then_some(()));
    }

    pub fn until_status(&self, status: &str) {
        self.until(status, || (self.server.status().as_deref() == Some(status)).then_some(()));
    }

    /// Runs the reporter in this process with the test's timing.
    pub fn report(&self, enabled: EnabledReports, timing: ReportTiming) -> Running {
        let config = Config::new(self.server.url().parse().expect("an address"));
        let agent = self.agent();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let api = ApiServer::new(config, NODE, &timing).expect("a client");
                let reporter =
                    Reporter { withdraw: false, agent, node: NODE.into(), enabled, timing, api };
                tokio::select! {
                    never = reporter.run() => match never {},
                    // An error means that the test has ended.
                    _ = stopped => {}
                }
            });
        });
        Running { stop: Some(stop), thread: Some(thread) }
    }
}

/// Stops when dropped at the end of the test.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("once").expect("no panic in the reporter");
        }
    }
}

pub const BOTH: EnabledReports = EnabledReports {
    events: true,
    conditions: true,
    storage_failed: false,
    storage: false,
    challenges: false,
    clean_stale: false,
};

/// The default timing with shorter delays.
pub fn brisk() -> ReportTiming {
    ReportTiming {
        absence_grace: Duration::from_secs(2),
        debounce: Duration::from_millis(50),
        poll_interval: Duration::from_secs(1),
        heartbeat_interval: Duration::from_millis(400),
        message_interval: Duration::from_millis(100),
        event_interval: Duration::from_millis(20),
        condition_interval: Duration::from_millis(20),
        storage_interval: Duration::from_millis(20),
        initial_backoff: Duration::from_millis(40),
        max_backoff: Duration::from_secs(2),
        request_timeout: Duration::from_secs(1),
        ..ReportTiming::default()
    }
}

pub fn started(scene: &Scene) -> Daemon {
    scene.host.started()
}
