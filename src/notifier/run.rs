//! The life of the process: one task owns planner and queue, and moves data between the daemon's
//! view, the store and the attempts at the targets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::config::{self, Config};
use crate::daemon_watch::{self, DaemonView, POLL_INTERVAL};
use crate::host_name;
use crate::message::Notification;
use crate::node_state::NodeState;
use crate::options::Options;
use crate::planner::PlannerState;
use crate::queue::Queue;
use crate::store::{StoreError, Stored};
use crate::store_thread::{self, StoreThread, Written};
use crate::targets::{DeliveryError, Target, TargetKind};
use diskvitals_host::clock;
use diskvitals_host::file_watch::FileWatch;
use diskvitals_host::trusted_file::read_bounded;
use diskvitals_text::causes::with_causes;

/// A message is on disk before its first attempt. A disk that does not answer in this time is not
/// waited for.
const STORE_PATIENCE: Duration = Duration::from_secs(2);
/// Between writes to a disk that fails.
const STORE_RETRY: Duration = Duration::from_secs(10);
/// For attempts in progress and the last write when the process is stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// A daemon that was asked and did not answer for so long gets no heartbeat.
const FRESH: Duration = Duration::from_secs(2 * POLL_INTERVAL.as_secs());

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an attempt came to.
enum Attempt {
    Message { target: String, id: String, result: Result<String, DeliveryError> },
    Heartbeat { target: String, result: Result<String, DeliveryError> },
}

struct Heartbeat {
    due: Instant,
    in_flight: bool,
    last_error: Option<String>,
}

struct Agent {
    config: Config,
    options: Options,
    planner: PlannerState,
    /// As it was last given to the store.
    planner_stored: String,
    queue: Queue,
    store: StoreThread,
    writing: Option<oneshot::Receiver<Written>>,
    /// When the write in progress began, or the next one may begin.
    write_since: Instant,
    store_error: Option<String>,
    attempts: JoinSet<Attempt>,
    heartbeats: BTreeMap<String, Heartbeat>,
    view: watch::Receiver<DaemonView>,
    is_silent: bool,
    status: String,
}

pub(crate) async fn run(options: Options, config: Config) -> Result<(), RunError> {
    let listen = |kind| signal(kind).map_err(RunError::Signal);
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let (store, stored, store_error) = store_thread::start(&options.state_dir)?;
    let mut changes = FileWatch::start(&[&options.config], read_bounded);
    let socket = config.socket.clone();
    let (view, views) = watch::channel(DaemonView::Silent("it has not been reached yet".into()));
    let mut agent = Agent::new(options, config, store, views);
    agent.load(stored);
    if let Some(why) = store_error {
        agent.note_store_error(why);
    }
    tracing::info!(
        targets = agent.config.targets.len(),
        waiting = agent.queue.waiting(),
        socket = %agent.config.socket.display(),
        "diskvitals-notify runs"
    );
    // A lost message to systemd is followed by a time-out and a restart.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let following = daemon_watch::run(&socket, &view);
    tokio::pin!(following);
    loop {
        agent.step();
        let due = agent.next_due();
        tokio::select! {
            biased;
            () = stopped(&mut terminate, &mut interrupt) => break,
            _ = hangup.recv() => agent.reload(),
            () = changes.changed() => agent.reload(),
            never = &mut following => match never {},
            changed = agent.view.changed() => if changed.is_ok() { agent.observe() },
            Some(ended) = agent.attempts.join_next() => if let Ok(attempt) = ended { agent.finish(attempt) },
            written = maybe(&mut agent.writing) => agent.written(written),
            () = sleep_until(due) => agent.tick(),
        }
    }
    tracing::info!("stopping");
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    agent.stop().await;
    Ok(())
}

async fn stopped(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Completes with the result of a write in progress; never without one. An error: the store's
/// thread has ended.
async fn maybe(writing: &mut Option<oneshot::Receiver<Written>>) -> Option<Written> {
    match writing {
        Some(writing) => writing.await.ok(),
        None => std::future::pending().await,
    }
}

impl Agent {
    fn new(
        options: Options,
        config: Config,
        store: StoreThread,
        view: watch::Receiver<DaemonView>,
    ) -> Agent {
        let mut queue = Queue::new(config.max_queue, config.give_up);
        set_targets(&mut queue, &config);
        let mut agent = Agent {
            planner: PlannerState::default(),
            planner_stored: String::new(),
            queue,
            store,
            writing: None,
            write_since: Instant::now(),
            store_error: None,
            attempts: JoinSet::new(),
            heartbeats: BTreeMap::new(),
            view,
            is_silent: true,
            status: String::new(),
            options,
            config,
        };
        agent.set_heartbeats();
        agent
    }

    fn load(&mut self, stored: Stored) {
        if let Some(text) = &stored.planner {
            match serde_json::from_str(text) {
                Ok(planner) => self.planner = planner,
                Err(error) => {
                    tracing::error!(%error, "what was announced before cannot be read; present problems are announced again");
                }
            }
            self.planner_stored.clone_from(text);
        }
        if self.planner.host().is_empty() || self.config.host.is_some() {
            self.planner.set_host(&host_name(&self.config));
        }
        self.requeue(stored);
    }

    fn requeue(&mut self, stored: Stored) {
        for delivery in stored.deliveries {
            let notification = Arc::new(delivery.notification);
            self.queue.push(&delivery.target, &notification, true, Instant::now());
        }
    }

    fn now() -> Timestamp {
        clock::wall_now()
    }

    fn observe(&mut self) {
        let view = self.view.borrow_and_update().clone();
        let now = Self::now();
        let settings = &self.config.planner;
        let notifications = match view {
            DaemonView::Answers { state, .. } => {
                if std::mem::take(&mut self.is_silent) {
                    tracing::info!(node = state.host, "diskvitalsd answers");
                }
                let state = match &self.config.host {
                    Some(host) => Arc::new(renamed(host, &state)),
                    None => state,
                };
                self.planner.observe(&state, settings, now)
            }
            DaemonView::Silent(why) => {
                tracing::warn!(why, "diskvitalsd does not answer");
                self.is_silent = true;
                self.planner.observe_silence(&why, settings, now)
            }
        };
        self.announce(notifications);
    }

    fn tick(&mut self) {
        let notifications = self.planner.tick(&self.config.planner, Self::now());
        self.announce(notifications);
    }

    fn announce(&mut self, notifications: Vec<Notification>) {
        let now = Instant::now();
        for notification in notifications {
            let notification = Arc::new(notification);
            let (id, title) = (&notification.id, &notification.title);
            tracing::info!(id, title, "a message is queued");
            for target in &self.config.targets {
                if target.wants(&notification) {
                    self.queue.push(&target.name, &notification, false, now);
                }
            }
        }
        match serde_json::to_string(&self.planner) {
            Ok(state) if state != self.planner_stored => {
                self.queue.set_planner(state.clone());
                self.planner_stored = state;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "what was announced cannot be stored"),
        }
    }

    /// Starts what is due: a write, attempts, heartbeats.
    fn step(&mut self) {
        let now = Instant::now();
        let may_write = self.store_error.is_none() || self.write_since + STORE_RETRY <= now;
        if self.writing.is_none() && may_write {
            let changes = self.queue.take_changes();
            if !changes.is_empty() || self.store_error.is_some() {
                self.writing = self.store.write(changes);
                self.write_since = now;
            }
        }
        // Without an answer of the disk, memory must do.
        let waits_for_disk = self.writing.is_some()
            && self.store_error.is_none()
            && now < self.write_since + STORE_PATIENCE;
        if !waits_for_disk {
            for (name, notification) in self.queue.start_due(now) {
                if let Some(target) = self.target(&name) {
                    self.attempts.spawn(async move {
                        let result = target.deliver(&notification).await;
                        let id = notification.id.clone();
                        Attempt::Message { target: target.name, id, result }
                    });
                }
            }
        }
        self.ping(now);
        let status = format!(
            "{} targets, {} messages wait{}",
            self.config.targets.len(),
            self.queue.waiting(),
            if self.store_error.is_some() { " in memory only" } else { "" }
        );
        if status != self.status {
            // Without systemd there is no socket.
            let _ = sd_notify::notify(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn target(&self, name: &str) -> Option<Target> {
        let mut targets = self.config.targets.iter();
        targets.find(|target| target.name == name).cloned()
    }

    fn next_due(&self) -> Instant {
        let now = Instant::now();
        let wall = Self::now();
        let planned = self.planner.next_due(&self.config.planner, wall);
        // At least a second: a digest that waits for the daemon's answer is due all the time.
        let wait = planned.duration_since(wall).max(SignedDuration::from_secs(1));
        let mut due = now + Duration::try_from(wait).unwrap_or(Duration::from_secs(1));
        if let Some(queued) = self.queue.next_due() {
            // Due now and not started: it waits for the disk.
            due = due.min(queued.max(match self.writing {
                Some(_) => self.write_since + STORE_PATIENCE,
                None => now,
            }));
        }
        if self.store_error.is_some() && self.writing.is_none() {
            due = due.min(self.write_since + STORE_RETRY);
        }
        let heartbeats = self.heartbeats.values().filter(|heartbeat| !heartbeat.in_flight);
        heartbeats.fold(due, |due, heartbeat| due.min(heartbeat.due)).max(now)
    }

    fn finish(&mut self, attempt: Attempt) {
        let now = Instant::now();
        match attempt {
            Attempt::Message { target, id, result } => self.queue.finish(&target, &id, result, now),
            Attempt::Heartbeat { target, result } => {
                let Some(heartbeat) = self.heartbeats.get_mut(&target) else {
                    return;
                };
                heartbeat.in_flight = false;
                let error = result.err().map(|error| error.to_string());
                match &error {
                    Some(why) if heartbeat.last_error != error => {
                        tracing::error!(target_name = target, why, "a heartbeat was not delivered");
                    }
                    None if heartbeat.last_error.is_some() => {
                        tracing::info!(target_name = target, "heartbeats are delivered again");
                    }
                    _ => {}
                }
                heartbeat.last_error = error;
            }
        }
    }

    fn set_heartbeats(&mut self) {
        let mut heartbeats = BTreeMap::new();
        for target in &self.config.targets {
            if matches!(target.kind, TargetKind::Heartbeat(_)) {
                let old = self.heartbeats.remove(&target.name);
                let heartbeat = old.unwrap_or(Heartbeat {
                    due: Instant::now(),
                    in_flight: false,
                    last_error: None,
                });
                heartbeats.insert(target.name.clone(), heartbeat);
            }
        }
        self.heartbeats = heartbeats;
    }

    /// Only while the daemon answers: silence is not health.
    fn ping(&mut self, now: Instant) {
        let is_fresh = match &*self.view.borrow() {
            DaemonView::Answers { at, .. } => at.elapsed() < FRESH,
            DaemonView::Silent(_) => false,
        };
        for target in &self.config.targets {
            let TargetKind::Heartbeat(settings) = &target.kind else {
                continue;
            };
            let Some(heartbeat) = self.heartbeats.get_mut(&target.name) else {
                continue;
            };
            if heartbeat.in_flight || heartbeat.due > now {
                continue;
            }
            if !is_fresh {
                heartbeat.due = now + Duration::from_secs(1);
                continue;
            }
            heartbeat.due = now + settings.interval;
            heartbeat.in_flight = true;
            let (settings, name, timeout) = (settings.clone(), target.name.clone(), target.timeout);
            self.attempts.spawn(async move {
                let result = match tokio::time::timeout(timeout, settings.ping()).await {
                    Ok(result) => result,
                    Err(_) => Err(DeliveryError::unavailable("no answer in time")),
                };
                Attempt::Heartbeat { target: name, result }
            });
        }
    }

    fn written(&mut self, written: Option<Written>) {
        self.writing = None;
        match written {
            Some(Ok(late)) => {
                if self.store_error.take().is_some() {
                    tracing::info!("the queue is on disk again");
                }
                if let Some(stored) = late {
                    self.requeue(stored);
                }
            }
            Some(Err((changes, why))) => {
                self.queue.restore(changes);
                self.note_store_error(why);
            }
            None => self.note_store_error("the thread of the queue has ended".to_owned()),
        }
    }

    /// Each new reason once.
    fn note_store_error(&mut self, why: String) {
        if self.store_error.as_ref() != Some(&why) {
            tracing::error!(
                why,
                "the queue is not on disk: messages are kept in memory and sent; a restart now may send some again"
            );
        }
        self.store_error = Some(why);
    }

    fn reload(&mut self) {
        match config::load(&self.options.config) {
            Ok(mut config) => {
                // The connection stays where it is.
                config.socket.clone_from(&self.config.socket);
                set_targets(&mut self.queue, &config);
                self.config = config;
                self.set_heartbeats();
                tracing::info!(
                    targets = self.config.targets.len(),
                    "the configuration was reloaded"
                );
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::error!(
                    error,
                    "the configuration is refused; the previous one stays in force"
                );
            }
        }
    }

    /// Attempts in progress end, and what has changed is written.
    async fn stop(mut self) {
        let end = Instant::now() + SHUTDOWN_TIMEOUT;
        let last_write = Instant::now() + SHUTDOWN_TIMEOUT / 2;
        while let Ok(Some(ended)) =
            tokio::time::timeout_at(last_write, self.attempts.join_next()).await
        {
            if let Ok(attempt) = ended {
                self.finish(attempt);
            }
        }
        let write = async {
            if self.writing.is_some() {
                let written = maybe(&mut self.writing).await;
                self.written(written);
            }
            let changes = self.queue.take_changes();
            if !changes.is_empty() {
                self.writing = self.store.write(changes);
                let written = maybe(&mut self.writing).await;
                self.written(written);
            }
        };
        if tokio::time::timeout_at(end, write).await.is_err() {
            tracing::error!(
                "the disk of the queue does not answer; a restart may send some messages again"
            );
        }
    }
}

fn set_targets(queue: &mut Queue, config: &Config) {
    let queued =
        config.targets.iter().filter(|target| !matches!(target.kind, TargetKind::Heartbeat(_)));
    let names: Vec<&str> = queued.map(|target| target.name.as_str()).collect();
    queue.set_targets(&names, config.max_queue, config.give_up);
}

/// The state under the host's name of the configuration.
fn renamed(host: &str, state: &NodeState) -> NodeState {
    NodeState { host: host.to_owned(), ..state.clone() }
}
