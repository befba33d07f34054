//! The life of the daemon: build everything, run it, notify systemd, reload, drain.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::server::{self, ServeError, Server, SocketAccess};
use crate::app::cleanup::CleanupExecutor;
use crate::app::options::{Options, WatchdogTimeout};
use crate::app::reload::FileWatch;
use crate::app::watchdog::Watchdog;
use crate::app::{level, metrics, node, provisioning};
use crate::config::{self, Config, ConfigError};
use crate::host::helper::Program;
use crate::host::listen::ListenError;
use crate::host::memory;
use crate::host::root::HostRoot;
use crate::host::worker_pool::{WorkerPool, WorkerPoolConfig};
use crate::logging::{LogQueue, Logging};
use crate::model::causes::with_causes;
use crate::model::ledger::RetentionLimits;
use crate::model::path::HostPath;
use crate::model::policy::smart::SmartOverride;
use crate::model::source_update::SourceRequest;
use crate::provision::engine::{Engine, EngineError, Settings as VolumesSettings};
use crate::provision::executor::WorkerExecutor;
use crate::source::context::{
    CheckSettings, Context, DeviceType, JobWorkers, KernelLogSettings, SmartSettings, SourceError,
    SourceSettings,
};
use crate::source::worker_main::{WorkerRole, arguments, freezer_arguments};
use crate::source::{
    checks, counters, diskstats, fs_errors, hardware, kmsg, kubelet, mounts, probe, smart,
};
use crate::state::lock::{self, LockError, StateLock};
use crate::state::owner::{Heartbeat, Owner, OwnerHandles};
use crate::state::settings::{AssessmentSettings, SharedAssessmentSettings};
use crate::state::store::{self, Store};
use crate::state::{handle, notify};

/// A lock on the state directory is had at once, or the disk below it does not answer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Scans of sysfs and of the kubelet's folder take milliseconds.
const SCAN_TIMEOUT: Duration = Duration::from_secs(15);
/// Everything must have ended by then, whatever hangs.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(4500);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("the host's root {} cannot be used: give another --host-root", dir.display())]
    HostRoot {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("finding this program's own file, to start its workers")]
    OwnProgram(#[source] std::io::Error),
    #[error(
        "the state directory cannot be used: stop the other daemon, or give another --state-dir"
    )]
    State(#[source] LockError),
    #[error("starting the store's thread")]
    Store(#[source] std::io::Error),
    #[error("the socket cannot be used")]
    Listen(#[from] ListenError),
    #[error(
        "metrics cannot be served on {address}: give another address, or the unit its network (docs/metrics.md)"
    )]
    Metrics {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("starting the watchdog's thread")]
    Watchdog(#[source] std::io::Error),
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    #[error("serving clients")]
    Serve(#[from] ServeError),
    #[error("a source has ended")]
    Source(#[from] SourceError),
    #[error("the engine of this node's own volumes has ended")]
    Volumes(#[from] EngineError),
    #[error("the task `{0}` has ended before its time")]
    TaskEnded(&'static str),
    #[error("a task has failed")]
    TaskFailed(#[source] tokio::task::JoinError),
}

/// What a reload changes.
struct ReloadChannels {
    assessment: watch::Sender<SharedAssessmentSettings>,
    sources: watch::Sender<Arc<SourceSettings>>,
    notify: watch::Sender<notify::NotifySettings>,
    allow_uids: watch::Sender<Vec<u32>>,
    volumes: watch::Sender<Arc<VolumesSettings>>,
}

pub(crate) async fn run(
    options: Options,
    config: Config,
    logging: &Logging,
) -> Result<(), RunError> {
    let root = host_root(&options.host_root)?;
    let mut limitations = Vec::from_iter(memory::lock_all().err().map(|error| error.to_string()));
    if !nix::unistd::geteuid().is_root() {
        limitations
            .push("not root: device-mapper's state and folders of other users are not seen".into());
    }
    limitations.iter().for_each(
        |limitation| tracing::warn!(%limitation, "this daemon sees or does less than it could"),
    );

    let lock = lock_state(&options.state_dir).await?;
    let main_socket = server::bind(&options.socket, SocketAccess::Group).await?;
    let agent_socket = server::bind(&options.agent_socket, SocketAccess::Anyone).await?;
    let scrapes = metrics::bind(&options, &config).await?;
    let mut signals = Signals::new().map_err(RunError::Signal)?;

    let dials = ReloadChannels::new(&config, &options);
    let (store, store_events) =
        Store::spawn(store::StoreConfig::new(&options.state_dir), lock).map_err(RunError::Store)?;
    let (owner, doors) = Owner::new(dials.assessment.subscribe(), store, store_events);
    let facts = node::node_facts(&root, limitations);
    let owner = owner.with_boot_id(facts.boot_id.clone());
    let program = own_program()?;
    let workers = |place| -> JobWorkers {
        WorkerPool::start(WorkerPoolConfig {
            program: program.clone(),
            args: arguments(place, &root),
            active: if place == WorkerRole::OwnMounts { 2 } else { 1 },
            max_stuck: config.probes.max_stuck as usize,
        })
    };
    let (own, in_host_mounts) = (
        workers(WorkerRole::OwnMounts),
        workers(WorkerRole::HostMounts),
    );
    let context = Context {
        root: root.clone(),
        reports: doors.reports.clone(),
        requests: doors.requests.clone(),
        workers: own.clone(),
        probe_workers: in_host_mounts.clone(),
        fs_errors: Program {
            program: program.clone(),
            args: arguments(WorkerRole::FsErrors, &root),
        },
        settings: dials.sources.subscribe(),
        targets: doors.probe_targets.clone(),
        smart_targets: doors.smart_targets.clone(),
        checks: doors.checks.clone(),
        checker: Program {
            program: program.clone(),
            args: arguments(WorkerRole::Check, &root),
        },
        freezer: Program {
            program: program.clone(),
            args: freezer_arguments(&root, never_freeze_paths(&options, &config)),
        },
        freeze_intents: options
            .socket
            .parent()
            .unwrap_or(Path::new("/"))
            .join("freeze"),
        resume: doors.kernel_log_resume.clone(),
    };

    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let owner_stop = stopping.clone();
    let mut published = doors.handle.snapshots();
    let mut owner_task = tokio::spawn(owner.run(wait_for_stop(owner_stop)));
    let watchdog = watchdog(options.watchdog, &doors.heartbeat, logging.queue())?;
    spawn_sources(&mut tasks, &context);
    let notices = doors.transitions.subscribe();
    let notify_settings = dials.notify.subscribe();
    tasks.spawn(async move {
        notify::run(notify_settings, notices).await;
        Err(RunError::TaskEnded("notify"))
    });
    let scraping = scrapes.map(|scrapes| {
        tokio::spawn(scrapes.serve(
            &facts,
            doors.handle.snapshots(),
            wait_for_stop(stopping.clone()),
        ))
    });
    let mut server = Server::new(doors.handle.clone(), facts, dials.allow_uids.subscribe());
    let steps = WorkerExecutor::new(&root, program.clone());
    // In a recorded tree there is nothing that could be made or mounted.
    if !root.is_recorded() {
        let (engine, actor) = Engine::new(
            steps.clone(),
            dials.volumes.subscribe(),
            doors.reports.clone(),
        );
        tasks.spawn(async { actor.run().await.map_err(RunError::from) });
        server = server.with_cleanup(Arc::new(CleanupExecutor {
            steps: steps.clone(),
            engine: engine.clone(),
        }));
        server = server.with_volumes(engine, config.csi.driver_name.clone());
    }
    let serving_stop = stopping.clone();
    let mut serving = tokio::spawn(async move {
        // What is asked before history is read waits for it (a second at most, then the owner goes
        // on without): an answer of nothing would take back what was told before the start. An
        // error: the owner is gone, which ends everything.
        let _ = published.changed().await;
        server
            .serve(main_socket, Some(agent_socket), wait_for_stop(serving_stop))
            .await
    });
    tasks.spawn(notify_systemd(
        doors.handle.clone(),
        doors.heartbeat.clone(),
    ));
    tracing::info!(socket = %options.socket.display(), state = %options.state_dir.display(), version = env!("CARGO_PKG_VERSION"), "diskvitalsd started");

    let ended = tokio::select! {
        ended = run_until_signal(&mut signals, &options, &dials, &doors, logging) => ended,
        Some(ended) = tasks.join_next() => ended.map_err(RunError::TaskFailed).and_then(|ended: Result<Infallible, RunError>| ended.map(|never| match never {})),
        ended = &mut serving => ended.map_err(RunError::TaskFailed).and_then(|served| served.map_err(RunError::from)).and(Err(RunError::TaskEnded("api"))),
        ended = &mut owner_task => ended.map_err(RunError::TaskFailed).and(Err(RunError::TaskEnded("owner"))),
    };
    // Whoever supervises it may not listen any more.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    // The loop ends now; how long the end may take is told below.
    drop(watchdog);
    stop.send_replace(true);
    tasks.abort_all();
    own.close();
    in_host_mounts.close();
    steps.close();
    let drained = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
        // Their results no longer matter: the end is decided.
        let _ = tokio::join!(
            async {
                if !serving.is_finished() {
                    drop((&mut serving).await)
                }
            },
            async {
                if !owner_task.is_finished() {
                    drop((&mut owner_task).await)
                }
            },
            async {
                if let Some(scraping) = scraping {
                    drop(scraping.await)
                }
            }
        );
    });
    if drained.await.is_err() {
        tracing::warn!("something did not end in time and is left behind");
    }
    tracing::info!(
        stuck_workers = *own.stuck_count().borrow() + *in_host_mounts.stuck_count().borrow(),
        "diskvitalsd stopped"
    );
    ended
}

/// Not where systemd does it, which sees as much and more.
fn watchdog(
    patience: WatchdogTimeout,
    heartbeat: &Heartbeat,
    log: LogQueue,
) -> Result<Option<Watchdog>, RunError> {
    match patience {
        WatchdogTimeout::After(long) if sd_notify::watchdog_enabled().is_none() => {
            Watchdog::start(heartbeat.clone(), long, log)
                .map(Some)
                .map_err(RunError::Watchdog)
        }
        WatchdogTimeout::After(_) | WatchdogTimeout::Off => Ok(None),
    }
}

/// Absolute, since workers have another working directory.
fn host_root(dir: &Path) -> Result<HostRoot, RunError> {
    let wrong = |source| RunError::HostRoot {
        dir: dir.to_owned(),
        source,
    };
    let dir = std::fs::canonicalize(dir).map_err(wrong)?;
    Ok(HostRoot::new(dir))
}

/// Our own file, as it was when we started: after an upgrade on disk, workers of the old version
/// would not be found by name.
fn own_program() -> Result<PathBuf, RunError> {
    std::fs::metadata("/proc/self/exe").map_err(RunError::OwnProgram)?;
    // The child resolves it before it becomes itself: it is ours, also when the file was replaced.
    Ok(PathBuf::from("/proc/self/exe"))
}

/// What the way back from a freeze needs of ours, beside the program itself.
fn never_freeze_paths<'a>(
    options: &'a Options,
    config: &'a Config,
) -> impl Iterator<Item = &'a Path> {
    let tools = &config.checks.tools;
    let tools = [&tools.e2fsck, &tools.xfs_repair, &tools.btrfs, &tools.lvm]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path);
    let sockets = [options.socket.parent(), options.agent_socket.parent()]
        .into_iter()
        .flatten();
    [options.state_dir.as_path(), options.kubelet_root.as_path()]
        .into_iter()
        .chain(sockets)
        .chain(tools)
}

/// Another live daemon: refuse. A disk that does not answer, a predecessor that is dying, no right
/// to write: history stays in memory and the store's thread goes on trying.
async fn lock_state(dir: &Path) -> Result<Option<StateLock>, RunError> {
    match lock::acquire_within(dir, LOCK_TIMEOUT).await {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Held { .. }) => Err(RunError::State(error)),
        Err(error) => {
            tracing::warn!(
                error = with_causes(&error),
                "history is kept in memory for now"
            );
            Ok(None)
        }
    }
}

fn spawn_sources(tasks: &mut JoinSet<Result<Infallible, RunError>>, context: &Context) {
    spawn(tasks, hardware::run(context.clone()));
    spawn(tasks, mounts::run(context.clone()));
    spawn(tasks, kubelet::run(context.clone()));
    spawn(tasks, probe::run(context.clone()));
    spawn(tasks, diskstats::run(context.clone()));
    spawn(tasks, counters::run(context.clone()));
    spawn(tasks, fs_errors::run(context.clone()));
    spawn(tasks, kmsg::run(context.clone()));
    spawn(tasks, smart::run(context.clone()));
    spawn(tasks, checks::run(context.clone()));
}

fn spawn(
    tasks: &mut JoinSet<Result<Infallible, RunError>>,
    source: impl Future<Output = Result<Infallible, SourceError>> + Send + 'static,
) {
    tasks.spawn(async { source.await.map_err(RunError::from) });
}

async fn wait_for_stop(mut stopping: watch::Receiver<bool>) {
    // An error: the sender has gone, which is the end as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Until somebody asks for the end. Reloads meanwhile.
async fn run_until_signal(
    signals: &mut Signals,
    options: &Options,
    dials: &ReloadChannels,
    doors: &OwnerHandles,
    logging: &Logging,
) -> Result<(), RunError> {
    let file = options
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from(config::DEFAULT_FILE));
    let mut changes = FileWatch::start(&file);
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.hangup.recv() => reload(options, dials, doors, logging),
            () = changes.changed() => reload(options, dials, doors, logging),
        }
    }
}

/// All or nothing: a file with an error changes nothing.
fn reload(options: &Options, dials: &ReloadChannels, doors: &OwnerHandles, logging: &Logging) {
    match config::load(options.config.as_deref()) {
        Ok(config) => {
            logging.set_level(level(config.log.level));
            dials.update(&config, options);
            // Nobody listens while the sources start; then they read everything anyhow.
            let _ = doors.requests.send(SourceRequest::All);
            tracing::info!("the configuration was read anew");
        }
        Err(error) => log_refused(&error),
    }
}

fn log_refused(error: &ConfigError) {
    tracing::error!(
        error = with_causes(error),
        "the new configuration is refused; the old one stays in force"
    );
}

impl ReloadChannels {
    fn new(config: &Config, options: &Options) -> ReloadChannels {
        ReloadChannels {
            assessment: watch::Sender::new(assessment_settings(config, options)),
            sources: watch::Sender::new(source_settings(config, options)),
            notify: watch::Sender::new(notify_settings(config)),
            allow_uids: watch::Sender::new(config.csi.allow_uids.clone()),
            volumes: watch::Sender::new(Arc::new(provisioning::settings(config, options))),
        }
    }

    fn update(&self, config: &Config, options: &Options) {
        self.assessment
            .send_replace(assessment_settings(config, options));
        self.sources.send_replace(source_settings(config, options));
        self.notify.send_replace(notify_settings(config));
        self.allow_uids.send_replace(config.csi.allow_uids.clone());
        provisioning::reload(&self.volumes, config, options);
    }
}

fn assessment_settings(config: &Config, options: &Options) -> SharedAssessmentSettings {
    Arc::new(AssessmentSettings {
        policy: config.policy(),
        volumes: config.volume_settings(HostPath::from(options.kubelet_root.as_path())),
        history: RetentionLimits {
            max_age: config.history.keep,
            max_count: config.history.max_findings as usize,
        },
    })
}

fn source_settings(config: &Config, options: &Options) -> Arc<SourceSettings> {
    Arc::new(SourceSettings {
        kubelet_root: HostPath::from(options.kubelet_root.as_path()),
        admit: config.drives.admit.clone(),
        ignore: config.drives.ignore.clone(),
        reconcile_interval: config.drives.reconcile_interval,
        probe_interval: config.probes.interval,
        probe_timeout: config.probes.timeout,
        worker_timeout: SCAN_TIMEOUT,
        disk_stats_interval: config.io.interval,
        counters_interval: config.counters.interval,
        fs_events: config.fs_events.enabled,
        kernel_log: KernelLogSettings {
            enabled: config.kernel_log.enabled,
            path: HostPath::from(config.kernel_log.path.as_path()),
            admit: config.drives.admit.clone(),
        },
        smart: smart_settings(&config.smart),
        checks: CheckSettings {
            at_once: config.checks.at_once as usize,
            max_io_pressure: config.checks.max_io_pressure,
            tools: config.checks.tools.clone(),
        },
    })
}

fn smart_settings(smart: &config::SmartConfig) -> SmartSettings {
    let typed = |given: &SmartOverride| {
        let SmartOverride {
            model,
            serial,
            device_type,
            ..
        } = given.clone();
        device_type.map(|device_type| DeviceType {
            model,
            serial,
            device_type,
        })
    };
    SmartSettings {
        enabled: smart.enabled,
        command: smart.command.clone(),
        interval: smart.interval,
        suspect_interval: smart.suspect_interval,
        shortest_interval: smart.shortest_interval,
        slow_interval: smart.slow_interval,
        timeout: smart.timeout,
        at_once: smart.at_once as usize,
        nvme_events: smart.nvme_events,
        device_types: smart.overrides.iter().filter_map(typed).collect(),
    }
}

fn notify_settings(config: &Config) -> notify::NotifySettings {
    notify::NotifySettings {
        exec: config.notify.exec.clone(),
        timeout: config.notify.timeout,
    }
}

/// READY with the first full picture, then the watchdog's food while the owner's loop turns.
async fn notify_systemd(
    handle: handle::Handle,
    heartbeat: Heartbeat,
) -> Result<Infallible, RunError> {
    let mut snapshots = handle.snapshots();
    if snapshots
        .wait_for(|snapshot| snapshot.settled)
        .await
        .is_err()
    {
        return Err(RunError::TaskEnded("owner"));
    }
    send_to_systemd(&[sd_notify::NotifyState::Ready]);
    let watchdog = sd_notify::watchdog_enabled();
    let every = watchdog
        .map_or(Duration::from_secs(30), |period| period / 4)
        .min(Duration::from_secs(30));
    let (mut fed, mut shown) = (None, String::new());
    loop {
        let count = heartbeat.count();
        if fed != Some(count) {
            fed = Some(count);
            if watchdog.is_some() {
                send_to_systemd(&[sd_notify::NotifyState::Watchdog]);
            }
        }
        let snapshot = handle.snapshot();
        let adverse = snapshot
            .findings
            .values()
            .filter(|finding| finding.is_counted())
            .count();
        let line = format!(
            "{} drives, {} volumes, {adverse} findings that count",
            snapshot.drives.len(),
            snapshot.volumes.len()
        );
        if line != shown {
            send_to_systemd(&[sd_notify::NotifyState::Status(&line)]);
            shown = line;
        }
        tokio::time::sleep(every).await;
    }
}

/// Without systemd there is no socket, and that is fine; with it, a lost message is repeated soon
/// or means a restart.
fn send_to_systemd(state: &[sd_notify::NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

#[cfg(test)]
mod tests {
    #[test]
    fn sources_and_the_configuration_have_the_same_default_smartctl() {
        assert_eq!(
            crate::config::DEFAULT_SMARTCTL,
            crate::source::context::USUAL_SMARTCTL
        );
    }
}
