//! The owner of the state: one task, one loop that only moves data. Reports come in; it applies
//! them, judges, publishes, and tells the store.
//!
//! In: `Report`s, `Command`s, changed rules, what the store says. Out: snapshots, changes,
//! transitions, what to probe, what to look at again. It waits for nothing but its own inputs: not
//! for the disk, not for a client, not for a source.

pub mod changes;
mod history;
mod io;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};

use crate::host::clock;
use crate::model::check::Wanted;
use crate::model::facts::{Change, Facts};
use crate::model::finding::{Finding, Severity};
use crate::model::kernel::event::{Cursor, Resume};
use crate::model::ledger::{Ledger, LedgerError, Transition, TransitionKind};
use crate::model::picture::{Painter, Scene};
use crate::model::probe::ProbeTarget;
use crate::model::report::{REQUESTS, Report, Request, SmartTarget, Source, SourceStatus};
use crate::model::snapshot::{NodeState, Snapshot, StoreStatus};
use crate::state::handle::{Command, CommandError, Handle};
use crate::state::judge::{Judge, SharedRules};
use crate::state::notify;
use crate::state::owner::changes::Changes;
use crate::state::owner::history::History;
use crate::state::owner::io::IoAskers;
use crate::state::store::{Event, Store};

/// After a publication the next one waits this long, so that a burst of reports is judged a few
/// times and not once a report.
const GAP: Duration = Duration::from_millis(20);
/// Figures may come together for this long: a round of probes is judged once or twice.
const FIGURES_WAIT: Duration = Duration::from_secs(1);
/// What comes in a flood is told together; with the reader's own pace and `GAP` still within a
/// tenth of a second.
const FLOOD_WAIT: Duration = Duration::from_millis(40);
/// Reports that are applied before anything else is looked at.
const BATCH: usize = 1024;
const BEAT: Duration = Duration::from_secs(1);
/// Rules that depend on time are looked at this often without any report.
const BEATS_PER_ASSESSMENT: u64 = 10;
/// The store's memory is awaited this long at the start; later it is joined when it comes.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// The kernel's log is read from where the store says; a store that has not said it by then is not
/// waited for.
const BEATS_BEFORE_READING: u64 = 10;
/// A picture is called full after this time even if something has not answered.
const SETTLE_DEADLINE: Duration = Duration::from_millis(1500);
/// An acknowledgement's answer waits this long for the disk.
const STORED_WAIT: Duration = Duration::from_secs(5);
/// At the end, what is queued for the disk has this long.
const FLUSH: Duration = Duration::from_secs(1);

/// What the rest of the daemon holds of the owner.
#[derive(Debug)]
pub struct Doors {
    pub handle: Handle,
    /// For the sources.
    pub reports: mpsc::Sender<Report>,
    /// Subscribe for what to look at again.
    pub requests: broadcast::Sender<Request>,
    /// Subscribe for `notify::run`.
    pub transitions: broadcast::Sender<Arc<Transition>>,
    pub targets: watch::Receiver<Arc<Vec<ProbeTarget>>>,
    pub smart_targets: watch::Receiver<Arc<Vec<SmartTarget>>>,
    /// Filesystem checks that are not over.
    pub checks: watch::Receiver<Arc<Vec<Wanted>>>,
    /// With what the kernel log's reader begins.
    pub resume: watch::Receiver<Resume>,
    pub heartbeat: Heartbeat,
}

/// Grows at least once a second while the owner's loop turns: what the watchdog is fed by.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct Owner<J> {
    judge: J,
    facts: Facts,
    ledger: Ledger,
    painter: Painter,
    sources: BTreeMap<Source, (SourceStatus, Timestamp)>,
    changes: Changes,
    history: History,
    rules: watch::Receiver<SharedRules>,
    reports: mpsc::Receiver<Report>,
    commands: mpsc::Receiver<Command>,
    store_events: mpsc::Receiver<Event>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    targets: watch::Sender<Arc<Vec<ProbeTarget>>>,
    smart_targets: watch::Sender<Arc<Vec<SmartTarget>>>,
    checks: watch::Sender<Arc<Vec<Wanted>>>,
    resume: watch::Sender<Resume>,
    requests: broadcast::Sender<Request>,
    transitions: broadcast::Sender<Arc<Transition>>,
    heartbeat: Heartbeat,
    /// In which calendars are read; looked up once, since that reads files.
    zone: TimeZone,
    /// From this time on the picture counts as full.
    settle_by: Instant,
    /// Who waits for the next reading of the I/O counters.
    io_askers: IoAskers,
    /// When to publish next; None when nothing has changed.
    due: Option<Instant>,
    published: Instant,
}

impl<J: Judge> Owner<J> {
    /// Binds nothing and waits for nothing; `run` begins.
    pub fn new(
        judge: J,
        rules: watch::Receiver<SharedRules>,
        store: Store,
        store_events: mpsc::Receiver<Event>,
    ) -> (Owner<J>, Doors) {
        let revision = u64::try_from(clock::now().as_microsecond()).unwrap_or_default();
        let (snapshots, snapshot_receiver) = watch::channel(Arc::new(Snapshot {
            revision,
            ..Snapshot::default()
        }));
        let (report_sender, reports) = mpsc::channel(BATCH);
        let (command_sender, commands) = mpsc::channel(64);
        let (targets, target_receiver) = watch::channel(Arc::default());
        let (smart_targets, smart_receiver) = watch::channel(Arc::default());
        let (checks, checks_receiver) = watch::channel(Arc::default());
        let (resume, resume_receiver) = watch::channel(Resume::Unknown);
        let (requests, transitions) = (
            broadcast::Sender::new(REQUESTS),
            broadcast::Sender::new(notify::QUEUE),
        );
        let heartbeat = Heartbeat::default();
        let doors = Doors {
            handle: Handle::new(snapshot_receiver, command_sender),
            reports: report_sender,
            requests: requests.clone(),
            transitions: transitions.clone(),
            targets: target_receiver,
            smart_targets: smart_receiver,
            checks: checks_receiver,
            resume: resume_receiver,
            heartbeat: heartbeat.clone(),
        };
        let owner = Owner {
            judge,
            facts: Facts::default(),
            ledger: Ledger::default(),
            painter: Painter::default(),
            sources: BTreeMap::new(),
            changes: Changes::new(revision),
            history: History::new(store),
            rules,
            reports,
            commands,
            store_events,
            snapshots,
            targets,
            smart_targets,
            checks,
            resume,
            requests,
            transitions,
            heartbeat,
            zone: TimeZone::system(),
            io_askers: IoAskers::default(),
            settle_by: Instant::now() + SETTLE_DEADLINE,
            due: None,
            published: Instant::now(),
        };
        (owner, doors)
    }

    /// In which boot this runs: volumes are remembered for it.
    pub fn in_boot(mut self, boot: String) -> Owner<J> {
        self.history.boot = Some(boot).filter(|boot| !boot.is_empty());
        self
    }

    /// Until `stop` is done; then what is queued is written, for a second at most.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        self.settle_by = Instant::now() + SETTLE_DEADLINE;
        self.await_store().await;
        self.due = Some(Instant::now());
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let settle = sleep_until(self.settle_by);
        tokio::pin!(settle);
        let mut settle_passed = false;
        loop {
            let due = self.due;
            tokio::select! {
                () = &mut stop => break,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.publish(Vec::new()),
                Some(command) = self.commands.recv() => self.command(command),
                Some(report) = self.reports.recv() => self.take_in(report),
                Some(event) = self.store_events.recv() => self.hear_store(event),
                Ok(()) = self.rules.changed() => {
                    let rules = self.rules.borrow_and_update().clone();
                    self.judge.take_rules(&mut self.facts, &rules);
                    self.hurry();
                }
                () = &mut settle, if !settle_passed => {
                    settle_passed = true;
                    self.hurry();
                }
                _ = beat.tick() => self.beat(),
            }
        }
        self.history
            .write(&self.facts, &self.ledger, true, Vec::new());
        if !self.history.close(FLUSH).await {
            tracing::warn!("the disk did not take the last changes of history in time");
        }
    }

    /// A dead disk must not keep the node unanswered: then it is joined later.
    async fn await_store(&mut self) {
        if let Ok(Some(event)) = timeout(STORE_WAIT, self.store_events.recv()).await {
            self.hear_store(event);
        }
    }

    /// The kernel's log is read from where the store says; a store that does not answer is not
    /// waited for.
    fn let_read(&self, from: Option<Cursor>) {
        self.resume.send_if_modified(|resume| {
            let first = *resume == Resume::Unknown;
            if first {
                *resume = Resume::From(from);
            }
            first
        });
    }

    fn beat(&mut self) {
        let beats = self.heartbeat.0.fetch_add(1, Ordering::Relaxed);
        if beats.is_multiple_of(BEATS_PER_ASSESSMENT) || self.history.behind() {
            self.begin_due_checks();
            self.hurry();
        }
        if beats >= BEATS_BEFORE_READING {
            self.let_read(None);
        }
        if self.history.errors_due() {
            self.history
                .write(&self.facts, &self.ledger, false, Vec::new());
        }
    }

    fn begin_due_checks(&mut self) {
        let rules = self.rules.borrow().clone();
        let checks = &rules.policy.checks;
        self.facts.prune_checks(checks.keep as usize);
        let begun = self
            .facts
            .begin_due_checks(checks, &self.ledger, &self.zone, clock::now());
        if begun > 0 {
            tracing::info!(checks = begun, "filesystem checks are due");
        }
    }

    fn take_in(&mut self, first: Report) {
        let (now, rules) = (clock::now(), self.rules.borrow().clone());
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(report) = next else { break };
            match self.apply(report, &rules, now) {
                Change::Nothing => {}
                Change::Figures => self.publish_by(Instant::now() + FIGURES_WAIT),
                Change::Soon => self.publish_by(Instant::now() + FLOOD_WAIT),
                Change::Material => self.hurry(),
            }
            next = self.reports.try_recv().ok();
        }
        // The last one taken out of the queue, when the batch was full.
        if let Some(report) = next {
            self.apply(report, &rules, now);
            self.hurry();
        }
    }

    fn apply(
        &mut self,
        report: Report,
        rules: &crate::state::judge::Rules,
        now: Timestamp,
    ) -> Change {
        if let Report::DiskStats(seen) = &report {
            self.io_askers.answer(seen);
        }
        let Report::Source { source, status } = report else {
            return self.judge.apply(&mut self.facts, report, rules, now);
        };
        if self
            .sources
            .get(&source)
            .is_some_and(|(known, _)| *known == status)
        {
            return Change::Nothing;
        }
        self.sources.insert(source, (status.clone(), now));
        self.judge.apply(
            &mut self.facts,
            Report::Source { source, status },
            rules,
            now,
        );
        Change::Material
    }

    fn hear_store(&mut self, event: Event) {
        match event {
            Event::Opened(loaded) => {
                let now = clock::now();
                self.judge.restore(&mut self.facts, loaded.drives);
                self.let_read(
                    loaded
                        .progress
                        .as_ref()
                        .and_then(|progress| progress.cursor.clone()),
                );
                self.judge
                    .restore_errors(&mut self.facts, loaded.errors, loaded.progress);
                self.judge
                    .restore_counters(&mut self.facts, loaded.counters);
                self.facts.restore_smart(loaded.smart);
                self.facts.restore_checks(loaded.checks);
                // Device numbers and mounts are of one boot.
                if loaded.boot.is_some() && loaded.boot == self.history.boot {
                    self.facts.restore_volumes(loaded.volumes);
                }
                let given_up = self.ledger.join(loaded.findings, now);
                if !given_up.is_empty() {
                    tracing::info!(
                        findings = given_up.len(),
                        "findings go on under the ids that history has for them"
                    );
                }
                self.history.opened();
            }
            Event::Reopened => self.history.opened(),
            Event::Status(StoreStatus::Memory(why)) => {
                self.let_read(None);
                self.history.failed(why);
            }
            Event::Status(status) => self.history.status = status,
        }
        self.hurry();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Acknowledge {
                finding,
                by,
                note,
                reply,
            } => {
                let result = self.ledger.acknowledge(&finding, by, note, clock::now());
                self.answer_stored(result, reply);
            }
            Command::Unacknowledge { finding, reply } => {
                let result = self.ledger.unacknowledge(&finding);
                self.answer_stored(result, reply);
            }
            Command::Subscribe { resume, reply } => {
                let subscription = self.changes.subscribe(resume, &self.snapshots.borrow());
                // Whoever asked may have gone.
                let _ = reply.send(subscription);
            }
            Command::Refresh(request) => {
                // Without sources nobody listens.
                let _ = self.requests.send(request);
            }
            Command::ReadIo { reply } => {
                self.io_askers.wait(reply, clock::now());
                // Without sources nobody listens.
                let _ = self.requests.send(Request::DiskStats);
            }
            Command::Bypassed { driver, bypassed } => {
                if self.facts.bypassed.hear(&driver, bypassed) {
                    match bypassed {
                        true => tracing::warn!(
                            driver,
                            "volumes of a CSI driver do not pass through diskvitals-csi"
                        ),
                        false => tracing::info!(
                            driver,
                            "volumes of a CSI driver pass through diskvitals-csi again"
                        ),
                    }
                    self.hurry();
                }
            }
            Command::StartCheck { asked, reply } => {
                let rules = self.rules.borrow().clone();
                let begun =
                    self.facts
                        .start_check(asked, &rules.policy.checks, &self.ledger, clock::now());
                self.publish(Vec::new());
                // Whoever asked may have gone.
                let _ = reply.send(begun.map_err(CommandError::from));
            }
            Command::CancelCheck { check, reply } => {
                let cancelled = self
                    .facts
                    .cancel_check(&check)
                    .ok_or(CommandError::NoSuchCheck(check));
                self.publish(Vec::new());
                // Whoever asked may have gone.
                let _ = reply.send(cancelled);
            }
        }
    }

    /// Published at once; answered when it is on disk, by a task of its own. While history is known
    /// to be in memory only, answered at once.
    fn answer_stored(
        &mut self,
        result: Result<Transition, LedgerError>,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    ) {
        let transition = match result {
            Ok(transition) => transition,
            Err(error) => {
                // Whoever asked may have gone.
                let _ = reply.send(Err(error.into()));
                return;
            }
        };
        let finding = transition.finding.clone();
        self.tell_transitions(vec![transition]);
        if self.history.in_memory() {
            self.publish(Vec::new());
            // Whoever asked may have gone.
            let _ = reply.send(Ok(finding));
            return;
        }
        let (stored, answer) = oneshot::channel();
        self.publish(vec![stored]);
        tokio::spawn(async move {
            let result = match timeout(STORED_WAIT, answer).await {
                Ok(Ok(Ok(()))) => Ok(finding),
                Ok(Ok(Err(why))) => Err(CommandError::NotStored(format!(
                    "{why} (it holds in memory)"
                ))),
                Ok(Err(_)) => Err(CommandError::NotStored(
                    "the disk does not keep up (it holds in memory)".to_owned(),
                )),
                Err(_) => Err(CommandError::NotStored(format!(
                    "no answer from the disk after {STORED_WAIT:?} (it holds in memory)"
                ))),
            };
            // Whoever asked may have gone.
            let _ = reply.send(result);
        });
    }

    /// Publish as soon as the gap since the last time allows.
    fn hurry(&mut self) {
        self.publish_by(Instant::now());
    }

    fn publish_by(&mut self, wanted: Instant) {
        let allowed = wanted.max(self.published + GAP);
        self.due = Some(self.due.map_or(allowed, |due| due.min(allowed)));
    }

    fn publish(&mut self, stored: Vec<crate::state::store::Stored>) {
        self.due = None;
        let (now, rules) = (clock::now(), self.rules.borrow().clone());
        let judgements = self
            .judge
            .assess(&self.facts, &self.ledger, &rules.policy, now);
        let mut transitions = self.ledger.merge(judgements, now);
        self.judge.forget(&mut self.facts, &rules, now);
        let (facts, judge) = (&self.facts, &self.judge);
        transitions.extend(
            self.ledger
                .subjects_gone(|subject| judge.gone(facts, subject), now),
        );
        self.ledger.prune(rules.history, now);
        let settled = self.snapshots.borrow().settled
            || self.judge.settled(&self.facts)
            || Instant::now() >= self.settle_by;
        let scene = Scene {
            facts: &self.facts,
            ledger: &self.ledger,
            verdicts: &self.judge,
            policy: &rules.policy,
            node: self.node(),
            settled,
            now,
        };
        let previous = self.snapshots.borrow().clone();
        let picture = self.painter.next(&previous, scene);
        if !picture.same {
            self.snapshots.send_replace(picture.snapshot);
        }
        self.changes.tell(picture.changes);
        self.tell_transitions(transitions);
        tell(&self.targets, self.judge.probe_targets(&self.facts));
        tell(
            &self.smart_targets,
            self.judge.smart_targets(&self.facts, &self.ledger),
        );
        tell(
            &self.checks,
            self.facts.wanted_checks(&rules.policy, &self.ledger, now),
        );
        self.history.write(&self.facts, &self.ledger, false, stored);
        self.published = Instant::now();
    }

    fn node(&self) -> NodeState {
        let stuck = self.facts.stuck();
        let inventory = self
            .facts
            .inventory
            .value()
            .map_or(&[][..], |inventory| &inventory.warnings);
        let kubelet = self
            .facts
            .kubelet
            .value()
            .map_or(&[][..], |kubelet| &kubelet.warnings);
        NodeState {
            sources: self.sources.clone(),
            store: self.history.status.clone(),
            stuck_probes: stuck
                .values()
                .fold(0, |sum, stuck| sum.saturating_add(*stuck)),
            stuck,
            timings: self.facts.timings.clone(),
            kernel_log_lost: self.facts.kernel.lost(),
            health: None,
            warnings: inventory
                .iter()
                .chain(kubelet)
                .cloned()
                .chain(self.facts.kernel.remark())
                .chain(self.facts.bypassed.remarks())
                .collect(),
        }
    }

    fn tell_transitions(&self, transitions: Vec<Transition>) {
        for transition in transitions {
            log(&transition);
            // Without a notifier nobody listens.
            let _ = self.transitions.send(Arc::new(transition));
        }
    }
}

impl From<LedgerError> for CommandError {
    fn from(error: LedgerError) -> CommandError {
        match error {
            LedgerError::NoSuchFinding(id) => CommandError::NoSuchFinding(id),
            LedgerError::NotAcknowledged(id) => CommandError::NotAcknowledged(id),
        }
    }
}

/// What is as it was is not told anew.
fn tell<T: PartialEq>(told: &watch::Sender<Arc<T>>, now: T) {
    told.send_if_modified(|told| {
        let changed = **told != now;
        if changed {
            *told = Arc::new(now);
        }
        changed
    });
}

/// One line a transition; what is bad needs somebody.
fn log(transition: &Transition) {
    let Transition { finding, kind, .. } = transition;
    let (subject, reason, message) = (
        finding.subject.to_string(),
        finding.reason.name(),
        finding.message.as_str(),
    );
    let (kind_name, id) = (kind.name(), finding.id.as_str());
    match (kind, finding.severity) {
        (TransitionKind::Raised | TransitionKind::Worsened, Severity::Bad) => {
            tracing::error!(
                subject,
                reason,
                transition = kind_name,
                id,
                message,
                "finding"
            );
        }
        (TransitionKind::Raised | TransitionKind::Worsened, Severity::Suspect) => {
            tracing::warn!(
                subject,
                reason,
                transition = kind_name,
                id,
                message,
                "finding"
            );
        }
        _ => tracing::info!(
            subject,
            reason,
            transition = kind_name,
            id,
            message,
            "finding"
        ),
    }
}
