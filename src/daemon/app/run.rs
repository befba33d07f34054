//! The life of the daemon: build all parts, run them, notify systemd, reload, drain.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::api::server::{self, Lamps, Server, SocketAccess};
use crate::app::cleanup::CleanupExecutor;
use crate::app::error::RunError;
use crate::app::lamps::LampWorkers;
use crate::app::options::{Options, WatchdogTimeout};
use crate::app::settings::ReloadChannels;
use crate::app::watchdog::Watchdog;
use crate::app::{level, metrics, node, systemd};
use crate::state::lock::{self, LockError, StateLock};
use crate::state::owner::{Heartbeat, Owner, OwnerHandles};
use crate::state::store::{self, Store};
use diskvitals_config::{Config, ConfigError};
use diskvitals_host::file_watch::FileWatch;
use diskvitals_host::heap;
use diskvitals_host::helper::Program;
use diskvitals_host::memory::MemoryLockError;
use diskvitals_host::root::HostRoot;
use diskvitals_host::subordinate_uids::{self, SubordinateUids};
use diskvitals_host::timer_grid::TimerGrid;
use diskvitals_host::trusted_file::read_bounded;
use diskvitals_host::worker_pool::{WorkerPool, WorkerPoolConfig};
use diskvitals_model::source_update::SourceRequest;
use diskvitals_program::logging::{LogQueue, Logging};
use diskvitals_provision::engine::Engine;
use diskvitals_provision::executor::WorkerExecutor;
use diskvitals_quota::refusals::SocketRefusals;
use diskvitals_source::context::{Context, JobWorkers, SourceError};
use diskvitals_source::worker_main::{WorkerRole, arguments, freezer_arguments};
use diskvitals_source::{
    checks, counters, diskstats, fs_errors, hardware, kmsg, kubelet, mounts, probe, smart,
};
use diskvitals_text::causes::with_causes;

/// Locking the state directory takes no time, unless the underlying disk does not respond.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// All tasks must have ended within this time, even if devices hang.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(4500);

pub(crate) async fn run(
    options: Options,
    config: Config,
    refused: Vec<ConfigError>,
    logging: &Logging,
    locked: Result<(), MemoryLockError>,
) -> Result<(), RunError> {
    let root = host_root(&options.host_root)?;
    let grid = TimerGrid::start();
    let is_locked = locked.is_ok();
    let mut limitations = Vec::from_iter(locked.err().map(|error| error.to_string()));
    if !nix::unistd::geteuid().is_root() {
        limitations.push(
            "not root: device-mapper's state and directories of other users cannot be read".into(),
        );
    }
    limitations.iter().for_each(
        |limitation| tracing::warn!(%limitation, "this daemon sees or does less than it could"),
    );

    let lock = lock_state(&options.state_dir).await?;
    let main_socket = server::bind(&options.socket, SocketAccess::Group).await?;
    let agent_socket =
        server::bind_beside(&options.socket, &options.agent_socket, SocketAccess::Anyone).await?;
    let scrapes = metrics::bind(&options, &config).await?;
    let mut signals = Signals::new().map_err(RunError::Signal)?;

    let mut channels = ReloadChannels::new(&config, &options);
    if !refused.is_empty() {
        channels.refuse_at_start(&refused);
    }
    let facts = node::node_facts(&root, limitations);
    let store_config = store::StoreConfig {
        boot_id: facts.boot_id.clone(),
        ..store::StoreConfig::new(&options.state_dir)
    };
    let (store, store_events) = Store::spawn(store_config, lock).map_err(RunError::Store)?;
    let (owner, owner_handles) =
        Owner::new(channels.assessment.subscribe(), store, store_events, grid);
    let mut owner = owner.with_boot_id(facts.boot_id.clone());
    if let WatchdogTimeout::After(timeout) = options.watchdog {
        owner = owner.with_watchdog(timeout);
    }
    if let Some(timeout) = sd_notify::watchdog_enabled() {
        owner = owner.with_watchdog(timeout / 2);
    }
    let program = own_program()?;
    let workers = |place| -> JobWorkers {
        WorkerPool::start(WorkerPoolConfig {
            program: program.clone(),
            args: arguments(place, &root),
            active: if place == WorkerRole::OwnMounts { 2 } else { 1 },
            max_stuck: config.probes.max_stuck as usize,
        })
    };
    let (own, in_host_mounts) = (workers(WorkerRole::OwnMounts), workers(WorkerRole::HostMounts));
    let context = Context {
        root: root.clone(),
        reports: owner_handles.reports.clone(),
        requests: owner_handles.requests.clone(),
        workers: own.clone(),
        probe_workers: in_host_mounts.clone(),
        fs_errors: Program {
            program: program.clone(),
            args: arguments(WorkerRole::FsErrors, &root),
        },
        settings: channels.sources.subscribe(),
        targets: owner_handles.probe_targets.clone(),
        smart_targets: owner_handles.smart_targets.clone(),
        raid_tools: owner_handles.raid_tools.clone(),
        checks: owner_handles.checks.clone(),
        checker: Program { program: program.clone(), args: arguments(WorkerRole::Check, &root) },
        freezer: Program {
            program: program.clone(),
            args: freezer_arguments(&root, never_freeze_paths(&options, &config)),
        },
        grid,
        freeze_intents: options.socket.parent().unwrap_or(Path::new("/")).join("freeze"),
        resume: owner_handles.kernel_log_resume.clone(),
    };

    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let owner_stop = stopping.clone();
    let mut published = owner_handles.handle.snapshots();
    let mut owner_task = tokio::spawn(owner.run(wait_for_stop(owner_stop)));
    let watchdog = watchdog(options.watchdog, &owner_handles.heartbeat, logging.queue())?;
    spawn(&mut tasks, mounts::run(context.clone()));
    spawn(&mut tasks, kmsg::run(context.clone()));
    let refusals = SocketRefusals::default();
    let scraping = scrapes.map(|scrapes| {
        tokio::spawn(scrapes.serve(
            &facts,
            owner_handles.handle.snapshots(),
            refusals.clone(),
            wait_for_stop(stopping.clone()),
        ))
    });
    let (uids, subordinate) = watch::channel(Arc::default());
    let systemd = systemd::run(owner_handles.handle.clone(), owner_handles.heartbeat.clone(), grid);
    tasks.spawn(run_periodic(context, uids, is_locked, systemd));
    let mut server =
        Server::new(owner_handles.handle.clone(), facts, channels.agent_callers.subscribe())
            .with_refusals(refusals)
            .with_config(channels.in_force.subscribe())
            .with_subordinate_uids(subordinate);
    let steps = WorkerExecutor::new(&root, program.clone());
    let mut cleanup = CleanupExecutor { steps: steps.clone(), engine: None };
    // In a recorded tree, nothing can be created or mounted.
    if !root.is_recorded() {
        let (engine, actor) = Engine::new(
            steps.clone(),
            channels.volumes.subscribe(),
            owner_handles.reports.clone(),
            owner_handles.handle.snapshots(),
        );
        tasks.spawn(async { actor.run().await.map_err(RunError::from) });
        cleanup.engine = Some(engine.clone());
        server = server.with_cleanup(Arc::new(cleanup.clone()));
        server = server.with_volumes(engine, config.csi.driver_name.clone());
        let backend = Arc::new(LampWorkers(in_host_mounts.clone()));
        let lamps = Lamps::new(owner_handles.handle.clone(), backend);
        server = server.with_lamps(lamps.clone());
        tasks.spawn(async { match lamps.turn_off_old().await {} });
    }
    server = server.with_orders(Arc::new(cleanup), channels.orders.subscribe());
    let serving_stop = stopping.clone();
    let mut serving = tokio::spawn(async move {
        // Requests wait until history is read (a second at most, then the owner continues without
        // it). An empty answer would withdraw findings that were reported before the start. An
        // error: the owner has ended, so the daemon ends.
        let _ = published.changed().await;
        server.serve(main_socket, Some(agent_socket), wait_for_stop(serving_stop)).await
    });
    tracing::info!(socket = %options.socket.display(), state = %options.state_dir.display(), version = env!("CARGO_PKG_VERSION"), "diskvitalsd started");

    let ended = tokio::select! {
        ended = run_until_signal(&mut signals, &options, &mut channels, &owner_handles, logging) => ended,
        Some(ended) = tasks.join_next() => ended.map_err(RunError::TaskFailed).and_then(|ended: Result<Infallible, RunError>| ended.map(|never| match never {})),
        ended = &mut serving => ended.map_err(RunError::TaskFailed).and_then(|served| served.map_err(RunError::from)).and(Err(RunError::TaskEnded("api"))),
        ended = &mut owner_task => ended.map_err(RunError::TaskFailed).and(Err(RunError::TaskEnded("owner"))),
    };
    // The supervisor may no longer read its messages.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    // The owner's loop ends now; the shutdown has its own time limit below.
    drop(watchdog);
    stop.send_replace(true);
    tasks.abort_all();
    own.close();
    in_host_mounts.close();
    steps.close();
    let drained = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
        // The results no longer matter: the daemon is ending.
        let _ = tokio::join!(finish(&mut serving), finish(&mut owner_task), async {
            if let Some(mut scraping) = scraping {
                finish(&mut scraping).await;
            }
        });
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

/// Waits for a task that has not been joined yet.
async fn finish<T>(task: &mut JoinHandle<T>) {
    if !task.is_finished() {
        drop(task.await);
    }
}

/// None if systemd's watchdog is on: that one observes more.
fn watchdog(
    timeout: WatchdogTimeout,
    heartbeat: &Heartbeat,
    log: LogQueue,
) -> Result<Option<Watchdog>, RunError> {
    match timeout {
        WatchdogTimeout::After(long) if sd_notify::watchdog_enabled().is_none() => {
            Watchdog::start(heartbeat.clone(), long, log).map(Some).map_err(RunError::Watchdog)
        }
        WatchdogTimeout::After(_) | WatchdogTimeout::Off => Ok(None),
    }
}

/// Makes the path absolute, because workers have another working directory.
fn host_root(dir: &Path) -> Result<HostRoot, RunError> {
    match std::fs::canonicalize(dir) {
        Ok(dir) => Ok(HostRoot::new(dir)),
        Err(source) => Err(RunError::HostRoot { dir: dir.to_owned(), source }),
    }
}

/// Our own file as it was at the start: after an upgrade, its name belongs to another version.
fn own_program() -> Result<PathBuf, RunError> {
    std::fs::metadata("/proc/self/exe").map_err(RunError::OwnProgram)?;
    // The child resolves the link before exec: it is our file, even if its path was replaced.
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Our own paths that a thaw needs, besides the program itself.
fn never_freeze_paths<'a>(
    options: &'a Options,
    config: &'a Config,
) -> impl Iterator<Item = &'a Path> {
    let tools = &config.checks.tools;
    let tools = [&tools.e2fsck, &tools.xfs_repair, &tools.btrfs, &tools.lvm]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path);
    let sockets = [options.socket.parent(), options.agent_socket.parent()].into_iter().flatten();
    [options.state_dir.as_path(), options.kubelet_root.as_path()]
        .into_iter()
        .chain(sockets)
        .chain(tools)
}

/// Refuses to start beside another live daemon. If the disk does not respond, a predecessor is
/// still ending, or writing is not permitted, history stays in memory and the store's thread
/// retries.
async fn lock_state(dir: &Path) -> Result<Option<StateLock>, RunError> {
    match lock::acquire_within(dir, LOCK_TIMEOUT).await {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Held { .. }) => Err(RunError::State(error)),
        Err(error) => {
            tracing::warn!(error = with_causes(&error), "history is kept in memory for now");
            Ok(None)
        }
    }
}

/// What mostly waits for the moments of the grid is one task: of several, each moment would wake a second thread.
async fn run_periodic(
    context: Context,
    uids: watch::Sender<Arc<SubordinateUids>>,
    is_locked: bool,
    systemd: impl Future<Output = Result<Infallible, RunError>>,
) -> Result<Infallible, RunError> {
    let grid = context.grid;
    let ended = tokio::select! {
        ended = hardware::run(context.clone()) => ended,
        ended = kubelet::run(context.clone()) => ended,
        ended = probe::run(context.clone()) => ended,
        ended = diskstats::run(context.clone()) => ended,
        ended = counters::run(context.clone()) => ended,
        ended = fs_errors::run(context.clone()) => ended,
        ended = smart::run(context.clone()) => ended,
        ended = checks::run(context.clone()) => ended,
        never = subordinate_uids::run(context.root.clone(), uids, grid) => match never {},
        never = heap::release_freed_regularly(is_locked, grid) => match never {},
        ended = systemd => return ended,
    };
    ended.map_err(RunError::from)
}

fn spawn(
    tasks: &mut JoinSet<Result<Infallible, RunError>>,
    source: impl Future<Output = Result<Infallible, SourceError>> + Send + 'static,
) {
    tasks.spawn(async { source.await.map_err(RunError::from) });
}

async fn wait_for_stop(mut stopping: watch::Receiver<bool>) {
    // An error: the sender no longer exists, which also means shutdown.
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

/// Reloads on SIGHUP and changes of a file, until a signal ends the daemon.
async fn run_until_signal(
    signals: &mut Signals,
    options: &Options,
    channels: &mut ReloadChannels,
    owner_handles: &OwnerHandles,
    logging: &Logging,
) -> Result<(), RunError> {
    let mut changes = FileWatch::start(&options.config_files(), read_bounded);
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.hangup.recv() => reload(options, channels, owner_handles, logging),
            () = changes.changed() => reload(options, channels, owner_handles, logging),
        }
    }
}

/// Applies all of the new configuration or nothing: a file with an error changes nothing.
fn reload(
    options: &Options,
    channels: &mut ReloadChannels,
    owner_handles: &OwnerHandles,
    logging: &Logging,
) {
    match options.load_config() {
        Ok(config) => {
            logging.set_level(level(config.log.level));
            channels.update(&config, options);
            // No source receives this while it starts; a starting source reads everything anyway.
            let _ = owner_handles.requests.send(SourceRequest::All);
            tracing::info!("the configuration was reloaded");
        }
        Err(error) => channels.refuse(&[error]),
    }
}
