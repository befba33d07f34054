//! The owner of the state: one task with one loop. It applies source updates, assesses the facts,
//! publishes a snapshot, and sends the changes to the store.
//!
//! In: `SourceUpdate`s, `Command`s, changed settings, events of the store. Out: snapshots, changes,
//! transitions, targets for the sources. The owner waits only for its own inputs: not for the disk,
//! a client or a source.

pub mod change_stream;
mod clock_steps;
mod commands;
mod io_waiters;
mod reading_waiters;
mod store_sync;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::state::handle::{Command, Handle};
use crate::state::owner::change_stream::ChangeStream;
use crate::state::owner::io_waiters::IoWaiters;
use crate::state::owner::reading_waiters::ReadingWaiters;
use crate::state::owner::store_sync::StoreSync;
use crate::state::settings::{AssessmentSettings, SharedAssessmentSettings};
use crate::state::store::{Store, StoreContents, StoreEvent};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_fscheck::DesiredCheck;
use diskvitals_host::clock;
use diskvitals_host::timer_grid::TimerGrid;
use diskvitals_kernel_log::event::{Cursor, ResumePoint};
use diskvitals_model::assess;
use diskvitals_model::care::{self, CareTask};
use diskvitals_model::facts::{Facts, Urgency};
use diskvitals_model::ledger::{Ledger, Transition, TransitionKind};
use diskvitals_model::maintenance;
use diskvitals_model::probe::ProbeTarget;
use diskvitals_model::raid_report::RaidToolRequests;
use diskvitals_model::snapshot::{NodeState, Snapshot, StoreStatus};
use diskvitals_model::snapshot_builder::{SnapshotBuilder, SnapshotInput};
use diskvitals_model::source_update::{
    REQUEST_QUEUE_CAPACITY, SmartTarget, SourceRequest, SourceStatus, SourceUpdate,
};
use diskvitals_model::timeline::ClockStep;

/// The minimum time between two publications, so that a burst of updates is assessed a few times
/// and not once for each update.
const MIN_PUBLISH_INTERVAL: Duration = Duration::from_millis(20);
/// Usage figures are collected for this long, and longer where judging all volumes takes longer. The
/// probes of many mounts are spread over their interval, so that each second has some.
const USAGE_DELAY: Duration = Duration::from_secs(2);
const MAX_USAGE_DELAY: Duration = Duration::from_secs(10);
const USAGE_DELAY_PER_VOLUME: Duration = Duration::from_millis(20);
/// Updates of a flood are published together. With the reader's own delay and
/// `MIN_PUBLISH_INTERVAL`, the total stays within a tenth of a second.
const COALESCE_DELAY: Duration = Duration::from_millis(40);
/// Updates are applied for so long, and at most so many, before any other input is handled.
const BATCH_TIME: Duration = Duration::from_millis(250);
const MAX_BATCH: usize = 1024;
/// The loop's heartbeat when nothing else happens. Each costs an idle processor a wakeup.
const TICK_INTERVAL: Duration = Duration::from_secs(10);
/// While changes wait for the disk, or requests for readings.
const BUSY_TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Rules that depend on time are evaluated this often, also without an update.
const ASSESSMENT_INTERVAL: Duration = Duration::from_secs(10);
/// The start waits this long for the store's contents; contents that arrive later are merged then.
const STORE_OPEN_TIMEOUT: Duration = Duration::from_secs(1);
/// The kernel log is read from the position in the store. This long after the node counts as settled,
/// it is read without that position.
const KERNEL_LOG_PATIENCE: Duration = Duration::from_secs(10);
/// A snapshot counts as complete after this time even if a source or a probe has not reported.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time to write the queued changes to disk at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The owner's channels, for the rest of the daemon.
#[derive(Debug)]
pub struct OwnerHandles {
    pub handle: Handle,
    /// For the sources.
    pub reports: mpsc::Sender<SourceUpdate>,
    /// Subscribe to get the requests to sources.
    pub requests: broadcast::Sender<SourceRequest>,
    pub probe_targets: watch::Receiver<Arc<Vec<ProbeTarget>>>,
    pub smart_targets: watch::Receiver<Arc<Vec<SmartTarget>>>,
    pub raid_tools: watch::Receiver<Arc<RaidToolRequests>>,
    /// Filesystem checks that have not ended.
    pub checks: watch::Receiver<Arc<Vec<DesiredCheck>>>,
    /// The position at which the kernel log's reader starts.
    pub kernel_log_resume: watch::Receiver<ResumePoint>,
    pub heartbeat: Heartbeat,
}

/// Grows with each tick of the owner's loop; the watchdog reads it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct Owner {
    facts: Facts,
    ledger: Ledger,
    snapshot_builder: SnapshotBuilder,
    sources: BTreeMap<Source, (SourceStatus, Timestamp)>,
    change_stream: ChangeStream,
    store_sync: StoreSync,
    settings: watch::Receiver<SharedAssessmentSettings>,
    reports: mpsc::Receiver<SourceUpdate>,
    commands: mpsc::Receiver<Command>,
    store_events: mpsc::Receiver<StoreEvent>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    probe_targets: watch::Sender<Arc<Vec<ProbeTarget>>>,
    smart_targets: watch::Sender<Arc<Vec<SmartTarget>>>,
    raid_tools: watch::Sender<Arc<RaidToolRequests>>,
    checks: watch::Sender<Arc<Vec<DesiredCheck>>>,
    kernel_log_resume: watch::Sender<ResumePoint>,
    requests: broadcast::Sender<SourceRequest>,
    heartbeat: Heartbeat,
    tick_interval: Duration,
    grid: TimerGrid,
    assess_at: Instant,
    /// The time zone of calendars; looked up once, because the look-up reads files.
    zone: TimeZone,
    /// What the schedule says of each drive.
    care: BTreeMap<DriveId, Vec<CareTask>>,
    /// From this time on the snapshot counts as complete.
    settle_by: Instant,
    /// The requests that wait for the next reading of the I/O counters.
    io_waiters: IoWaiters,
    reading_waiters: ReadingWaiters,
    clock_step: Option<ClockStep>,
    /// Time of the next publication; None when nothing has changed.
    publish_at: Option<Instant>,
    published_at: Instant,
}

impl Owner {
    /// Binds nothing and waits for nothing; `run` starts the work.
    pub fn new(
        rules: watch::Receiver<SharedAssessmentSettings>,
        store: Store,
        store_events: mpsc::Receiver<StoreEvent>,
        grid: TimerGrid,
    ) -> (Owner, OwnerHandles) {
        let revision = u64::try_from(clock::now().as_microsecond()).unwrap_or_default();
        let (snapshots, snapshot_receiver) =
            watch::channel(Arc::new(Snapshot { revision, ..Snapshot::default() }));
        let (report_sender, reports) = mpsc::channel(MAX_BATCH);
        let (command_sender, commands) = mpsc::channel(64);
        let (targets, target_receiver) = watch::channel(Arc::default());
        let (smart_targets, smart_receiver) = watch::channel(Arc::default());
        let raid_tools = watch::Sender::default();
        let (checks, checks_receiver) = watch::channel(Arc::default());
        let (resume, resume_receiver) = watch::channel(ResumePoint::Unknown);
        let requests = broadcast::Sender::new(REQUEST_QUEUE_CAPACITY);
        let heartbeat = Heartbeat::default();
        let handles = OwnerHandles {
            handle: Handle::new(snapshot_receiver, command_sender),
            reports: report_sender,
            requests: requests.clone(),
            probe_targets: target_receiver,
            smart_targets: smart_receiver,
            raid_tools: raid_tools.subscribe(),
            checks: checks_receiver,
            kernel_log_resume: resume_receiver,
            heartbeat: heartbeat.clone(),
        };
        let owner = Owner {
            facts: Facts::default(),
            ledger: Ledger::default(),
            snapshot_builder: SnapshotBuilder::default(),
            sources: BTreeMap::new(),
            change_stream: ChangeStream::new(revision),
            store_sync: StoreSync::new(store),
            settings: rules,
            reports,
            commands,
            store_events,
            snapshots,
            probe_targets: targets,
            smart_targets,
            raid_tools,
            checks,
            kernel_log_resume: resume,
            requests,
            heartbeat,
            tick_interval: TICK_INTERVAL,
            grid,
            assess_at: Instant::now(),
            zone: TimeZone::system(),
            care: BTreeMap::new(),
            io_waiters: IoWaiters::default(),
            reading_waiters: ReadingWaiters::default(),
            clock_step: None,
            settle_by: Instant::now() + SETTLE_TIMEOUT,
            publish_at: None,
            published_at: Instant::now(),
        };
        (owner, handles)
    }

    /// Sets the current boot: volumes are stored for it.
    pub(crate) fn with_boot_id(mut self, boot: String) -> Owner {
        self.store_sync.boot = Some(boot).filter(|boot| !boot.is_empty());
        self
    }

    /// For a watchdog that ends the process when the heartbeat has not grown for this time.
    pub(crate) fn with_watchdog(mut self, timeout: Duration) -> Owner {
        self.tick_interval = TICK_INTERVAL.min(timeout / 2);
        self
    }

    /// Runs until `stop` completes; then writes the queued changes, for a second at most.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        self.settle_by = Instant::now() + SETTLE_TIMEOUT;
        self.await_store().await;
        self.publish_at = Some(Instant::now());
        let mut ticked_at = Instant::now();
        let mut tick_at = ticked_at;
        let settle = sleep_until(self.settle_by);
        tokio::pin!(settle);
        let mut settle_passed = false;
        loop {
            let due = self.publish_at;
            let busy_tick = ticked_at + BUSY_TICK_INTERVAL;
            let write = self.store_sync.flood_due().map(|due| due.max(busy_tick));
            let awaited = self.is_awaited().then_some(busy_tick);
            let next_tick = write.into_iter().chain(awaited).fold(tick_at, Instant::min);
            self.heartbeat.0.fetch_add(1, Ordering::Relaxed);
            tokio::select! {
                () = &mut stop => break,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.publish(Vec::new()),
                Some(command) = self.commands.recv() => self.handle_command(command),
                Some(report) = self.reports.recv() => self.apply_batch(report),
                Some(event) = self.store_events.recv() => self.handle_store_event(event),
                Ok(()) = self.settings.changed() => {
                    self.settings.borrow_and_update();
                    self.publish_soon();
                }
                () = &mut settle, if !settle_passed => {
                    settle_passed = true;
                    self.publish_soon();
                }
                () = sleep_until(next_tick) => {
                    ticked_at = Instant::now();
                    // What sources read at the moment of the grid is here by then.
                    tick_at = self.grid.after(self.tick_interval) + COALESCE_DELAY;
                    self.tick();
                }
            }
            self.answer_readings();
        }
        self.store_sync.write(&self.facts, &self.ledger, true, Vec::new());
        if !self.store_sync.close(FLUSH_TIMEOUT).await {
            tracing::warn!("the disk did not take the last changes of history in time");
        }
    }

    /// Waits for the store at the start. The wait is short, so that the node is monitored even with
    /// a dead disk; contents that arrive later are merged then.
    async fn await_store(&mut self) {
        if let Ok(Some(event)) = timeout(STORE_OPEN_TIMEOUT, self.store_events.recv()).await {
            self.handle_store_event(event);
        }
    }

    /// Starts the kernel log's reader at the stored position, or without one if the store has not
    /// reported it. Only the first call has an effect.
    fn start_kernel_log(&self, from: Option<Cursor>) {
        self.kernel_log_resume.send_if_modified(|resume| {
            let first = *resume == ResumePoint::Unknown;
            if first {
                *resume = ResumePoint::From(from);
            }
            first
        });
    }

    /// What only a tick ends has a limit soon.
    fn is_awaited(&self) -> bool {
        self.store_sync.is_behind()
            || !self.reading_waiters.is_empty()
            || *self.kernel_log_resume.borrow() == ResumePoint::Unknown
    }

    fn tick(&mut self) {
        self.follow_clock();
        let now = Instant::now();
        if now >= self.assess_at || self.store_sync.is_behind() {
            self.assess_at = self.grid.after(ASSESSMENT_INTERVAL);
            self.begin_due_checks();
            self.begin_due_self_tests();
            self.publish_soon();
        }
        if now >= self.settle_by + KERNEL_LOG_PATIENCE {
            self.start_kernel_log(None);
        }
        if self.store_sync.flood_due().is_some_and(|due| now >= due) {
            self.store_sync.write(&self.facts, &self.ledger, false, Vec::new());
        }
    }

    fn begin_due_checks(&mut self) {
        let rules = self.settings.borrow().clone();
        let checks = &rules.policy.checks;
        self.facts.checks.prune(checks.keep as usize);
        let begun =
            self.facts.queue_due_checks(checks, &self.ledger.levels(), &self.zone, clock::now());
        if begun > 0 {
            tracing::info!(checks = begun, "filesystem checks are due");
        }
    }

    fn begin_due_self_tests(&mut self) {
        let (rules, now) = (self.settings.borrow().clone(), clock::now());
        let active = self.ledger.active().map(AsRef::as_ref);
        let plan = care::plan(&self.facts, &rules.policy, active, &self.zone, now);
        self.care = plan.tasks;
        for (drive, kind) in plan.starts {
            tracing::info!(%drive, ?kind, "a self-test is due");
            self.facts.note_test_started(&drive, kind, now);
            // Without sources there is no receiver.
            let _ = self.requests.send(SourceRequest::SelfTest { drive, kind });
        }
    }

    fn apply_batch(&mut self, first: SourceUpdate) {
        let (now, rules) = (clock::now(), self.settings.borrow().clone());
        let mut next = Some(first);
        let begun = Instant::now();
        for count in 1..=MAX_BATCH {
            let Some(report) = next else { break };
            match self.apply(report, &rules, now) {
                Urgency::Nothing => {}
                Urgency::UsageOnly => self.publish_by(Instant::now() + self.usage_delay()),
                Urgency::Coalesce => self.publish_by(Instant::now() + COALESCE_DELAY),
                Urgency::Immediate => self.publish_soon(),
            }
            // What stays in the queue has its turn after other inputs.
            let is_full = count == MAX_BATCH || begun.elapsed() >= BATCH_TIME;
            next = if is_full { None } else { self.reports.try_recv().ok() };
        }
        self.send_requests();
    }

    fn usage_delay(&self) -> Duration {
        let volumes = u32::try_from(self.facts.volumes.len()).unwrap_or(u32::MAX);
        let delay = USAGE_DELAY_PER_VOLUME.saturating_mul(volumes);
        delay.clamp(USAGE_DELAY, MAX_USAGE_DELAY)
    }

    fn apply(
        &mut self,
        report: SourceUpdate,
        rules: &AssessmentSettings,
        now: Timestamp,
    ) -> Urgency {
        if let SourceUpdate::CountedIo(seen) = &report {
            self.io_waiters.reply(seen);
        }
        let is_io = matches!(report, SourceUpdate::DiskStats(_));
        let SourceUpdate::Source { source, status } = report else {
            let change = self.facts.apply(report, &rules.volumes, now);
            if is_io {
                self.probe_waiting_mounts();
            }
            return change;
        };
        if self.sources.get(&source).is_some_and(|(known, _)| *known == status) {
            return Urgency::Nothing;
        }
        self.sources.insert(source, (status.clone(), now));
        self.facts.apply(SourceUpdate::Source { source, status }, &rules.volumes, now);
        Urgency::Immediate
    }

    /// Superblocks of filesystems that were mounted or unmounted, or counted errors; mounts of those
    /// that have just failed; a scan and counters that say what a record does not.
    fn send_requests(&mut self) {
        let paths = self.facts.take_probe_requests();
        if !paths.is_empty() {
            // Without sources there is no receiver.
            let _ = self.requests.send(SourceRequest::Probe(paths));
        }
        let devices = self.facts.take_ext_superblock_requests();
        if !devices.is_empty() {
            let _ = self.requests.send(SourceRequest::ExtSuperblocks(devices));
        }
        if self.facts.take_scan_request() {
            let _ = self.requests.send(SourceRequest::Inventory);
        }
        if self.facts.take_counters_request() {
            let _ = self.requests.send(SourceRequest::Counters);
        }
        let drives = self.facts.take_smart_request();
        if !drives.is_empty() {
            let _ = self.requests.send(SourceRequest::Smart(drives));
        }
    }

    /// The schedule of the other probes stays.
    fn probe_waiting_mounts(&self) {
        let paths = self.facts.newly_waiting_mounts();
        if !paths.is_empty() {
            tracing::debug!(mounts = paths.len(), "I/O does not complete: probing at once");
            // Without sources there is no receiver.
            let _ = self.requests.send(SourceRequest::Probe(paths));
        }
    }

    fn handle_store_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Opened(contents) => self.restore(*contents),
            StoreEvent::Reopened => self.store_sync.mark_open(),
            StoreEvent::Status(StoreStatus::MemoryOnly(why)) => {
                self.start_kernel_log(None);
                self.store_sync.mark_failed(why);
            }
            StoreEvent::Status(status) => self.store_sync.status = status,
        }
        self.publish_soon();
    }

    /// Merges the store's contents, at the start or later. Facts that sources reported before are
    /// newer.
    fn restore(&mut self, contents: StoreContents) {
        for old in contents.drives {
            self.facts.restore_drive(old);
        }
        self.start_kernel_log(
            contents.progress.as_ref().and_then(|progress| progress.cursor.clone()),
        );
        self.facts.restore_errors(contents.errors, contents.progress);
        self.restore_clock(contents.clock_step, contents.is_quiet_lost);
        self.facts.counters.restore(contents.counters);
        self.facts.smart.restore(contents.smart);
        self.facts.space.restore(contents.space);
        self.facts.checks.restore(contents.checks);
        // What has begun since the start is newer.
        let orders = Arc::make_mut(&mut self.facts.maintenance);
        for (target, order) in contents.maintenance {
            orders.entry(target).or_insert(order);
        }
        let lamps = Arc::make_mut(&mut self.facts.lamps);
        for (drive, lamp) in contents.lamps {
            lamps.entry(drive).or_insert(lamp);
        }
        let settings = self.settings.borrow().clone();
        self.facts.identify_again(&settings.volumes, clock::now());
        // Device numbers and mounts are valid for one boot.
        if contents.boot.is_some() && contents.boot == self.store_sync.boot {
            self.facts.restore_volumes(contents.volumes, &settings.volumes, clock::now());
        }
        let replaced = self.ledger.restore(contents.findings, clock::now());
        if !replaced.is_empty() {
            tracing::info!(
                findings = replaced.len(),
                "findings continue under the ids that history has for them"
            );
        }
        self.store_sync.mark_open();
    }

    /// Publishes as soon as the minimum interval since the last publication allows.
    fn publish_soon(&mut self) {
        self.publish_by(Instant::now());
    }

    fn publish_by(&mut self, wanted: Instant) {
        let allowed = wanted.max(self.published_at + MIN_PUBLISH_INTERVAL);
        self.publish_at = Some(self.publish_at.map_or(allowed, |due| due.min(allowed)));
    }

    fn publish(&mut self, stored: Vec<crate::state::store::WriteAck>) {
        self.publish_at = None;
        let (now, rules) = (clock::now(), self.settings.borrow().clone());
        self.facts.wall_offset = clock::offset();
        self.facts.booted = Some(clock::booted());
        for (target, order) in maintenance::take_ended(&mut self.facts.maintenance, now) {
            let thing = maintenance::name(&self.snapshots.borrow(), &target);
            tracing::info!(thing, note = order.note, "maintenance has ended");
        }
        let active = self.ledger.levels();
        let judgements = assess::assess(&self.facts, &active, &rules.policy, now);
        let previous = self.snapshots.borrow().clone();
        self.ledger.follow_filesystems(&judgements, |subject| {
            match subject {
                Subject::Volume(id) if !self.facts.volumes.contains_key(id) => {
                    let before = previous.volumes.get(id);
                    before.and_then(|volume| volume.facts.fs_uuid.clone())
                }
                _ => None,
            }
            .or_else(|| self.facts.filesystem_uuid(subject))
        });
        let mut transitions = self.ledger.apply(judgements, now);
        self.facts.forget_errors(&rules.policy.errors, now);
        self.facts.forget_missing_drives(rules.policy.forget_missing_after, now);
        let facts = &self.facts;
        transitions.extend(self.ledger.clear_subjects(|subject| facts.is_removed(subject), now));
        if transitions.iter().any(|transition| transition.to.is_none()) {
            // Volumes that are gone are in the previous snapshot.
            let origins = previous.origins();
            self.ledger.note_origins(&transitions, |finding| {
                let subject = (&finding.subject).into();
                // A volume of the former boot may be the node's own.
                origins.is_known(subject) && origins.is_user_made(subject, [finding.reason.name()])
            });
        }
        self.ledger.prune(rules.history, now);
        let active = self.ledger.active().map(AsRef::as_ref);
        self.facts.count_models(&previous, active, now);
        let settled = self.snapshots.borrow().settled
            || (self.facts.settled() && !assess::is_first_look_outstanding(&self.facts))
            || Instant::now() >= self.settle_by;
        let node = self.node_state(&rules, now);
        let scene = SnapshotInput {
            facts: &self.facts,
            ledger: &mut self.ledger,
            policy: &rules.policy,
            care: &self.care,
            node,
            settled,
            now,
        };
        let update = self.snapshot_builder.build(&previous, scene);
        if !update.unchanged {
            self.snapshots.send_replace(update.snapshot);
        }
        self.change_stream.publish(update.changes);
        transitions.iter().for_each(log_transition);
        send_if_changed(&self.probe_targets, self.facts.probe_targets());
        send_if_changed(&self.smart_targets, smart_targets(&self.facts, &self.ledger));
        send_if_changed(&self.raid_tools, self.facts.raid_tool_requests());
        send_if_changed(
            &self.checks,
            self.facts.desired_checks(&rules.policy, &self.ledger.levels(), now),
        );
        self.store_sync.write(&self.facts, &self.ledger, false, stored);
        self.published_at = Instant::now();
    }

    fn node_state(&self, rules: &AssessmentSettings, now: Timestamp) -> NodeState {
        let stuck = self.facts.stuck();
        let inventory =
            self.facts.inventory.value().map_or(&[][..], |inventory| &inventory.warnings);
        let kubelet = self.facts.kubelet.value().map_or(&[][..], |kubelet| &kubelet.warnings);
        NodeState {
            sources: self
                .sources
                .iter()
                .map(|(source, (status, since))| {
                    let shown = assess::shown_source(&self.facts, *source, status);
                    (*source, (shown, *since))
                })
                .collect(),
            store: self.store_sync.status.clone(),
            stuck_probes: stuck.values().fold(0, |sum, stuck| sum.saturating_add(*stuck)),
            stuck,
            timings: self.facts.timings.clone(),
            kernel_log_lost: self.facts.kernel.lost_records(),
            failure_policy: rules.policy.node_failure.clone(),
            kernel_log_losses: self.facts.losses_of_boot(),
            health: None,
            warnings: rules
                .config_warnings
                .iter()
                .chain(inventory)
                .chain(kubelet)
                .cloned()
                .chain({
                    let wall = |time| self.facts.wall_time(time);
                    self.facts.kernel.unattributed_warning(wall)
                })
                .chain(self.facts.bypassed_drivers.warnings())
                .chain(self.clock_warning(now))
                .collect(),
        }
    }
}

/// The drives to query for SMART data; drives with an adverse finding are suspect.
fn smart_targets(facts: &Facts, ledger: &Ledger) -> Vec<SmartTarget> {
    let suspect: BTreeSet<&DriveId> = ledger
        .active()
        .filter(|finding| finding.severity > Severity::Info)
        .filter_map(|finding| match &finding.subject {
            Subject::Drive(id) => Some(id),
            Subject::Volume(_) | Subject::Device(_) | Subject::Source(_) => None,
        })
        .collect();
    facts.smart_targets(&|drive| suspect.contains(drive))
}

/// Sends a value only if it differs from the last one.
fn send_if_changed<T: PartialEq>(sender: &watch::Sender<Arc<T>>, now: T) {
    sender.send_if_modified(|last| {
        let changed = **last != now;
        if changed {
            *last = Arc::new(now);
        }
        changed
    });
}

/// Logs one line for each transition; a BAD finding requires a person.
fn log_transition(transition: &Transition) {
    let Transition { finding, kind, .. } = transition;
    let (subject, reason, message) =
        (finding.subject.to_string(), finding.reason.name(), finding.message.as_str());
    let (kind_name, id) = (kind.name(), finding.id.as_str());
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(subject, reason, transition = kind_name, id, message, "finding")
        };
    }
    match (kind, finding.severity) {
        _ if finding.follows.is_some() => log!(info),
        (TransitionKind::Raised | TransitionKind::Worsened, Severity::Bad) => log!(error),
        (TransitionKind::Raised | TransitionKind::Worsened, Severity::Suspect) => log!(warn),
        _ => log!(info),
    }
}
