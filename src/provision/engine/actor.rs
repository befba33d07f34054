//! The engine's actor: the one task that owns all volumes.
//!
//! In: requests (checked in `admit`), settings, results of operations. Out: operations, each in its
//! own task with a copy of its volume; the view; `SourceUpdate::Provision` on each change. The
//! actor waits for channels only.

mod admit;
mod detach_unrecorded;
mod publication;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::engine::discover::{self, DiscoveredRecords};
use crate::engine::handle::{Engine, REQUEST_QUEUE};
use crate::engine::job::{Message, Reply, VolumeJob};
use crate::engine::request::Response;
use crate::engine::settings::Settings;
use crate::engine::step_context::{POOL_TARGET, StepContext};
use crate::engine::view::EngineView;
use crate::engine::volume::{Volume, static_backing};
use crate::error::ProvisionError;
use crate::step::{PoolCapacity, StepExecutor};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::{BackingKind, ProvisionState};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_text::causes::with_causes;

/// Retry interval until the records are readable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The daemon has ended; this is not a failure of the engine.
    #[error("the owner of the state has ended")]
    OwnerGone,
    #[error("all handles of the engine are closed")]
    NoClients,
    #[error("an operation on a volume has failed")]
    Operation(#[source] tokio::task::JoinError),
}

struct VolumeEntry {
    volume: Volume,
    /// Set while an operation has a copy of the volume.
    activity: Option<watch::Receiver<String>>,
    /// The running operation is a recovery or a part of a scan, not a request.
    is_recovering: bool,
    /// The request that starts after the recovery.
    queued: Option<(VolumeJob, Reply)>,
}

impl VolumeEntry {
    fn idle(volume: Volume) -> VolumeEntry {
        VolumeEntry { volume, activity: None, is_recovering: false, queued: None }
    }
}

enum TaskResult {
    Discovered(Result<DiscoveredRecords, ProvisionError>),
    Capacities(Vec<(BackingKind, Result<PoolCapacity, ProvisionError>)>),
    /// A detachment of a volume whose records are not read.
    Unrecorded {
        handle: String,
        reply: Reply,
        result: Result<Response, ProvisionError>,
    },
    /// The volume after the operation. The actor stores it and then answers the caller.
    Operation {
        volume: Box<Volume>,
        /// A part of a scan failed: the next one waits for the rescan.
        failed_scan: bool,
        reply: Option<(Reply, Result<Response, ProvisionError>)>,
    },
}

pub struct Actor<S> {
    executor: Arc<S>,
    settings: watch::Receiver<Arc<Settings>>,
    messages: mpsc::Receiver<Message>,
    updates: mpsc::Sender<SourceUpdate>,
    view: watch::Sender<Arc<EngineView>>,
    tasks: JoinSet<TaskResult>,
    volumes: BTreeMap<String, VolumeEntry>,
    /// What detachments of volumes whose records are not read are doing.
    unrecorded: BTreeMap<String, watch::Receiver<String>>,
    capacities: Vec<(BackingKind, Result<PoolCapacity, ProvisionError>)>,
    /// Of the volume group, when lvm last listed them.
    physical_volumes: Vec<HostPath>,
    /// The state of the drives below the pool.
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// None after the records were read.
    records_error: Option<String>,
    volume_group_error: Option<String>,
    /// Files in the directories of records that are not records; they are logged.
    unrecognized_files: BTreeSet<String>,
    is_discovering: bool,
    is_measuring: bool,
    /// Callers that wait for a rescan that begins after their request.
    rescan_waiters: Vec<oneshot::Sender<()>>,
    last_published: Option<Observation<ProvisionState>>,
}

impl Engine {
    /// Creates a handle and its actor; the caller must run the actor.
    pub fn new<S: StepExecutor>(
        executor: S,
        settings: watch::Receiver<Arc<Settings>>,
        updates: mpsc::Sender<SourceUpdate>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (Engine, Actor<S>) {
        let (sender, messages) = mpsc::channel(REQUEST_QUEUE);
        let unknown = Some("the daemon has not read its volumes' records yet".to_owned());
        let first =
            Arc::new(EngineView { records_error: unknown.clone(), ..EngineView::default() });
        let (view, views) = watch::channel(first);
        let engine = Engine {
            messages: sender,
            view: views,
            request_timeout: settings.borrow().request_timeout,
        };
        let actor = Actor {
            executor: Arc::new(executor),
            settings,
            messages,
            updates,
            view,
            tasks: JoinSet::new(),
            volumes: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            capacities: Vec::new(),
            physical_volumes: Vec::new(),
            snapshots,
            records_error: unknown,
            volume_group_error: None,
            unrecognized_files: BTreeSet::new(),
            is_discovering: false,
            is_measuring: false,
            rescan_waiters: Vec::new(),
            last_published: None,
        };
        (engine, actor)
    }
}

impl<S: StepExecutor> Actor<S> {
    /// Runs until the daemon ends. Dropping the future stops all operations at once, like a kill.
    pub async fn run(mut self) -> Result<Infallible, EngineError> {
        self.start_discovery();
        let mut tick = delayed_interval(RETRY_INTERVAL);
        loop {
            let known = self.records_error.is_none();
            tokio::select! {
                message = self.messages.recv() => match message.ok_or(EngineError::NoClients)? {
                    Message::Request(request, reply) => self.accept(*request, reply),
                    Message::Rescan(done) => {
                        self.rescan_waiters.push(done);
                        self.rescan();
                    }
                },
                Some(ended) = self.tasks.join_next() => self.handle_task_result(ended.map_err(EngineError::Operation)?),
                Ok(()) = self.settings.changed() => self.sync_static_volumes(),
                _ = tick.tick() => self.retry_pending(),
            }
            if !known && self.records_error.is_none() {
                tick = delayed_interval(self.settings.borrow().rescan_interval);
            }
            self.publish_inventory().await?;
        }
    }

    fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    fn pool_context(&self) -> StepContext<S> {
        let (executor, settings) = (self.executor.clone(), self.settings());
        StepContext::new(executor, settings, POOL_TARGET, "reading the pool").0
    }

    fn start_discovery(&mut self) {
        if self.is_discovering {
            return;
        }
        self.is_discovering = true;
        let ctx = self.pool_context();
        self.tasks.spawn(async move { TaskResult::Discovered(discover::read_records(&ctx).await) });
    }

    fn start_measuring(&mut self) {
        if self.is_measuring {
            return;
        }
        self.is_measuring = true;
        let ctx = self.pool_context();
        self.tasks
            .spawn(async move { TaskResult::Capacities(discover::measure_capacities(&ctx).await) });
    }

    /// Repeats every action that has not succeeded yet.
    fn retry_pending(&mut self) {
        let is_unread = self.volumes.values().any(|entry| entry.volume.is_unrecorded());
        if self.records_error.is_some() || self.volume_group_error.is_some() || is_unread {
            self.start_discovery();
        }
        if self.records_error.is_some() {
            return;
        }
        self.start_measuring();
        for entry in self.volumes.values_mut() {
            // A static volume may change at any time: its drive may be removed and inserted again.
            entry.volume.is_reconciled &= !entry.volume.is_static() || entry.volume.is_attached();
        }
        self.recover_all();
        let handles: Vec<String> = self.volumes.keys().cloned().collect();
        for handle in handles {
            self.continue_scan(&handle);
        }
    }

    /// Reads the next part of an idle volume's device, if it is being read.
    fn continue_scan(&mut self, handle: &str) {
        let is_due = |entry: &VolumeEntry| entry.activity.is_none() && entry.volume.is_scanning();
        if self.volumes.get(handle).is_some_and(is_due) {
            self.start_job(handle, VolumeJob::Scan, None);
        }
    }

    fn rescan(&mut self) {
        if self.records_error.is_some() {
            return;
        }
        for entry in self.volumes.values_mut() {
            entry.volume.is_reconciled = false;
        }
        self.recover_all();
    }

    fn recover_all(&mut self) {
        let needs_recovery = |entry: &VolumeEntry| {
            entry.activity.is_none()
                && entry.volume.check_detachable().is_ok()
                && (!entry.volume.is_reconciled || entry.volume.intent.is_some())
        };
        let handles: Vec<String> = self
            .volumes
            .iter()
            .filter(|(_, entry)| needs_recovery(entry))
            .map(|(handle, _)| handle.clone())
            .collect();
        for handle in handles {
            self.start_job(&handle, VolumeJob::Recover, None);
        }
        self.notify_rescan_waiters();
    }

    fn notify_rescan_waiters(&mut self) {
        let is_recovering = self.volumes.values().any(|entry| {
            entry.activity.is_some()
                && (!entry.volume.is_reconciled || entry.volume.intent.is_some())
        });
        if !is_recovering {
            for waiter in self.rescan_waiters.drain(..) {
                // The caller may have stopped waiting.
                let _ = waiter.send(());
            }
        }
    }

    /// Starts an operation on an idle volume, with a copy of it. An interrupted operation is
    /// recovered first.
    fn start_job(&mut self, handle: &str, job: VolumeJob, reply: Option<Reply>) {
        let (executor, settings) = (self.executor.clone(), self.settings());
        let Some(entry) = self.volumes.get_mut(handle) else {
            return;
        };
        let (ctx, activity) = StepContext::new(executor, settings, handle, job.description());
        entry.activity = Some(activity);
        let is_scan = matches!(job, VolumeJob::Scan);
        entry.is_recovering = is_scan || matches!(job, VolumeJob::Recover);
        let mut volume = entry.volume.clone();
        self.tasks.spawn(async move {
            let result = job.run(&ctx, &mut volume).await;
            TaskResult::Operation {
                volume: Box::new(volume),
                failed_scan: is_scan && result.is_err(),
                reply: reply.map(|reply| (reply, result)),
            }
        });
    }

    fn handle_task_result(&mut self, ended: TaskResult) {
        match ended {
            TaskResult::Discovered(found) => {
                self.is_discovering = false;
                match found {
                    Ok(found) => self.merge_discovered(found),
                    Err(fault) => {
                        self.records_error = Some(format!(
                            "the records of volumes cannot be read: {}",
                            with_causes(&fault)
                        ))
                    }
                }
            }
            TaskResult::Capacities(capacities) => {
                self.is_measuring = false;
                let group = capacities.iter().find(|(kind, _)| *kind == BackingKind::Lvm);
                if let Some((_, Ok(capacity))) = group {
                    self.physical_volumes.clone_from(&capacity.physical_volumes);
                }
                self.capacities = capacities;
            }
            TaskResult::Unrecorded { handle, reply, result } => {
                self.end_unrecorded(handle, reply, result)
            }
            TaskResult::Operation { volume, failed_scan, reply } => {
                let handle = volume.handle.clone();
                let changed_size = self.volumes.get(&handle).is_some_and(|entry| {
                    (entry.volume.size, entry.volume.exists) != (volume.size, volume.exists)
                });
                let stays = volume.exists || volume.intent.is_some();
                let before = self.volumes.remove(&handle);
                if stays {
                    self.volumes.insert(handle.clone(), VolumeEntry::idle(*volume));
                }
                self.sync_static_volumes();
                if changed_size {
                    self.start_measuring();
                }
                self.notify_rescan_waiters();
                self.publish_view();
                if let Some(waiting) = before.and_then(|before| before.queued) {
                    self.resume_queued(handle.clone(), waiting);
                }
                if !failed_scan {
                    self.continue_scan(&handle);
                }
                if let Some((reply, result)) = reply {
                    // A caller that stopped waiting finds the operation done at its next request.
                    let _ = reply.send(result);
                }
            }
        }
    }

    /// A volume that is already known is newer than the records that were read, unless one of its own
    /// was not.
    fn merge_discovered(&mut self, found: DiscoveredRecords) {
        let group_error = found.logical_volumes.as_ref().err().map(|error| {
            let why = with_causes(error);
            format!("the volumes of the volume group are not known: {why}")
        });
        let unrecognized = found.unrecognized_files();
        // The records are read again while some are unknown: only changes are logged.
        match &group_error {
            Some(why) if self.volume_group_error != group_error => {
                tracing::warn!(%why, "volumes may be missing")
            }
            None if self.volume_group_error.is_some() => {
                tracing::info!("the volumes of the volume group are known again")
            }
            _ => {}
        }
        for file in unrecognized.difference(&self.unrecognized_files) {
            tracing::warn!(file, "a file in the directory of the pool's records is no record");
        }
        (self.volume_group_error, self.unrecognized_files) = (group_error, unrecognized);
        let settings = self.settings();
        for (handle, volume) in discover::build_volumes(&settings, found) {
            let entry = self.entry_of_discovered(volume);
            match self.volumes.entry(handle) {
                btree_map::Entry::Vacant(place) => {
                    if let Some(why) = &entry.volume.record_problem {
                        tracing::error!(volume = entry.volume.handle, %why, "a volume is left alone");
                    }
                    place.insert(entry);
                }
                btree_map::Entry::Occupied(mut known)
                    if known.get().volume.is_unrecorded()
                        && known.get().activity.is_none()
                        && !entry.volume.is_unrecorded() =>
                {
                    tracing::info!(volume = entry.volume.handle, "its records can be read again");
                    known.insert(entry);
                }
                btree_map::Entry::Occupied(_) => {}
            }
        }
        self.records_error = None;
        self.sync_static_volumes();
        self.start_measuring();
        self.recover_all();
    }

    /// Updates the static volumes: the configured ones, and removed ones while they are attached.
    fn sync_static_volumes(&mut self) {
        if self.records_error.is_some() {
            return;
        }
        let settings = self.settings();
        let free = |entry: &VolumeEntry| {
            entry.activity.is_none() && !entry.volume.is_attached() && entry.volume.intent.is_none()
        };
        self.volumes.retain(|name, entry| {
            !entry.volume.is_static()
                || !free(entry)
                || entry.volume.record_problem.is_some()
                || settings.static_volumes.iter().any(|wanted| wanted.name == *name)
        });
        let mut fresh = false;
        for wanted in &settings.static_volumes {
            let backing = static_backing(wanted.kind, wanted.path.clone());
            let same = |entry: &VolumeEntry| {
                entry.volume.backing == backing
                    || !free(entry)
                    || entry.volume.record_problem.is_some()
            };
            if !self.volumes.get(&wanted.name).is_some_and(same) {
                self.volumes
                    .insert(wanted.name.clone(), VolumeEntry::idle(Volume::from_static(wanted)));
                fresh = true;
            }
        }
        if fresh {
            self.recover_all();
        }
    }
}

fn delayed_interval(every: Duration) -> Interval {
    let mut tick = interval(every);
    tick.reset_at(Instant::now() + every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
