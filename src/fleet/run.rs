//! The one task that owns the controller's state: changes of the watches in, decisions out, a few
//! writes at a time.
//!
//! In: changes, whether this process leads. Out: writes through `api`, and the state for metrics and
//! probes. Both replicas watch and note times, so that a standby that takes over knows since when a
//! state has lasted; only the leader writes.

mod duties;
mod outcome;

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, ClaimWrite, ClusterChange};
use crate::claims::ledger::{ClaimLedger, Support};
use crate::events::{Announcement, EventQueue};
use crate::listing::{List, Lists, SeenTime};
use crate::metrics::{ClaimFigures, Counters, State};
use crate::model::claims::{Entry, desired};
use crate::model::figures::{Figures, figures};
use crate::model::retention::{Expired, expired};
use crate::model::{Claim, Elapsed, View};
use crate::options::{Duty, Options};
use crate::pace::WritePace;
use crate::quarantine::{self, Quarantines};
use crate::release::{self, Engine};
use crate::shared_drives::{SharedDrives, announce_shared_drives};
use crate::timing::Timing;
use crate::unreachable::{self, UnreachableStorage};
use diskvitals_host::clock;
use diskvitals_kubernetes::api_error::ApiError;
use diskvitals_kubernetes::event::Event;
use diskvitals_kubernetes::lease::Leadership;

/// The state is published at least this often: a probe sees that the loop runs.
const TICK: Duration = Duration::from_secs(5);

/// What became of a write.
enum Done {
    Adopted(Result<Vec<(Claim, Entry)>, ApiError>),
    Claim(Claim, Entry, ClaimWrite),
    Event(Event, Result<(), ApiError>),
    /// Whether the object is gone.
    Report(Expired, Result<bool, ApiError>),
    Release(release::Done),
    Quarantine(quarantine::Done),
    Unreachable(unreachable::Done),
}

pub(crate) struct Owner {
    api: Arc<Api>,
    duties: Vec<Duty>,
    watched: BTreeSet<List>,
    timing: Timing,
    state: watch::Sender<Arc<State>>,
    seen: SeenTime,
    view: View,
    lists: Lists,
    leads: bool,
    /// Until when, if nothing is renewed.
    leads_until: Option<Instant>,
    /// None without the duty.
    release: Option<Engine>,
    /// None without the duty.
    quarantines: Option<Quarantines>,
    /// None without the duty.
    unreachable: Option<UnreachableStorage>,
    /// None until the claims that this manager wrote before are known.
    ledger: Option<ClaimLedger>,
    is_adopting: bool,
    events: EventQueue,
    expired: VecDeque<Expired>,
    shared: SharedDrives,
    jobs: JoinSet<Done>,
    pace: WritePace,
    evaluate_at: Option<Instant>,
    retention_at: Instant,
    /// Of the last evaluation.
    figures: Option<Arc<Figures>>,
    counters: Counters,
}

impl Owner {
    pub(crate) fn new(
        api: Arc<Api>,
        options: &Options,
        timing: Timing,
        identity: &str,
        state: watch::Sender<Arc<State>>,
    ) -> Owner {
        let duties = &options.duties;
        Owner {
            api,
            duties: duties.clone(),
            watched: options.lists(),
            release: duties.contains(&Duty::Release).then(|| {
                Engine::new(timing.release, options.carry_out_in.iter().cloned().collect())
            }),
            quarantines: duties
                .contains(&Duty::Quarantine)
                .then(|| Quarantines::new(timing.quarantine, &options.unclean_taint)),
            unreachable: duties.contains(&Duty::Unreachable).then(|| {
                UnreachableStorage::new(
                    timing.unreachable,
                    timing.policy,
                    &options.unreachable_taint,
                    options.evict_unreachable,
                )
            }),
            pace: WritePace::new(timing.retry_delay(identity)),
            timing,
            state,
            seen: SeenTime::default(),
            view: View::default(),
            lists: Lists::default(),
            leads: false,
            leads_until: None,
            ledger: None,
            is_adopting: false,
            events: EventQueue::new(identity),
            expired: VecDeque::new(),
            shared: SharedDrives::new(),
            jobs: JoinSet::new(),
            evaluate_at: None,
            retention_at: Instant::now(),
            figures: None,
            counters: Counters::default(),
        }
    }

    pub(crate) async fn run(
        mut self,
        mut changes: mpsc::Receiver<ClusterChange>,
        mut leadership: watch::Receiver<Leadership>,
    ) -> Infallible {
        loop {
            self.leads_until = leadership.borrow().until;
            self.work();
            self.publish();
            let wake = self.next_wake();
            tokio::select! {
                Some(change) = changes.recv() => {
                    self.apply(change);
                    // A list comes in thousands.
                    for _ in 0..1000 {
                        match changes.try_recv() {
                            Ok(change) => self.apply(change),
                            Err(_) => break,
                        }
                    }
                }
                Ok(()) = leadership.changed() => {
                    let leads = leadership.borrow_and_update().leads;
                    self.set_leads(leads);
                }
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => match done {
                    Ok(done) => self.finish(done),
                    // A panic ends the process (`panic = "abort"`).
                    Err(error) => tracing::error!(%error, "a write was cut off"),
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    fn has(&self, duty: Duty) -> bool {
        self.duties.contains(&duty)
    }

    fn now(&self) -> Elapsed {
        self.seen.elapsed(Instant::now())
    }

    fn is_synced(&self) -> bool {
        self.watched.iter().all(|list| self.lists.state(*list).is_complete)
    }

    fn is_watching(&self) -> bool {
        !self.watched.iter().any(|list| self.lists.state(*list).is_failing)
    }

    /// Whether what is known is what the API server has. Otherwise nothing is decided or written.
    fn is_seeing(&self) -> bool {
        self.is_synced() && self.is_watching()
    }

    fn apply(&mut self, change: ClusterChange) {
        let (was_seeing, elapsed) = (self.is_seeing(), self.now());
        let changed = self.lists.apply(change, &mut self.view);
        let now = Instant::now();
        self.seen.set(self.is_seeing(), now);
        let Some(list) = changed else {
            return;
        };
        if let Some(release) = &mut self.release {
            release.note_change(list, elapsed);
        }
        // After a gap, what was decided before it must not be written.
        let is_back = self.is_seeing() && !was_seeing;
        let debounce = if is_back { Duration::ZERO } else { self.timing.debounce };
        self.evaluate_by(now + debounce);
    }

    fn evaluate_by(&mut self, at: Instant) {
        self.evaluate_at = Some(self.evaluate_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn set_leads(&mut self, leads: bool) {
        self.leads = leads;
        // Another one may write from here on: what it writes is read anew, and what became of the
        // own writes is known from there alone.
        self.jobs = JoinSet::new();
        self.ledger = None;
        self.is_adopting = false;
        self.events.clear();
        self.expired.clear();
        self.shared.clear();
        self.retention_at = Instant::now();
        self.evaluate_at = Some(Instant::now());
        let now = self.now();
        if let Some(release) = &mut self.release {
            release.set_leads(now);
        }
        if let Some(quarantines) = &mut self.quarantines {
            quarantines.set_leads(now);
        }
        if let Some(unreachable) = &mut self.unreachable {
            unreachable.set_leads(now);
        }
    }

    /// Decides when a decision is due, and starts what may start.
    fn work(&mut self) {
        if !self.is_seeing() {
            return;
        }
        let at = Instant::now();
        if self.evaluate_at.is_some_and(|due| due <= at) {
            self.evaluate_at = None;
            self.evaluate();
        }
        if self.leads && self.retention_at <= at {
            self.retention_at = at + self.timing.retention_interval;
            // Without the API server's time nothing is old.
            if let Some(server) = self.api.server_now() {
                let old = expired(&self.view, &self.timing.policy, self.now(), server);
                self.expired = old.into();
            }
        }
        while self.leads && self.jobs.len() < self.pace.at_once() && self.pace.is_allowed() {
            if !self.start_one() {
                break;
            }
            self.pace.take();
        }
    }

    fn evaluate(&mut self) {
        let now = self.now();
        self.view.observe(now);
        let policy = self.timing.policy;
        if let Some(ledger) = &mut self.ledger {
            ledger.set_desired(desired(&self.view, &ledger.written, &policy, now));
        }
        if self.leads && self.has(Duty::SharedDrives) {
            self.announce_shared_drives(now);
        }
        self.with_release(|release, cx| release.observe(cx));
        self.with_quarantines(|quarantines, cx| quarantines.observe(cx));
        self.with_unreachable(|unreachable, cx| unreachable.observe(cx));
        // Time alone changes a decision too.
        if let Some(due) = self.view.next_deadline(&policy, now) {
            self.evaluate_by(Instant::now() + due.saturating_sub(now));
        }
        // Without the API server's time it is not known which reports are fresh.
        let server = self.api.server_now();
        self.figures = server.map(|server| Arc::new(figures(&self.view, &policy, now, server)));
        let due = server.map_or(Some(TICK), |server| self.view.next_aging(&policy, server));
        if let Some(due) = due {
            self.evaluate_by(Instant::now() + due);
        }
    }

    fn announce_shared_drives(&mut self, now: Duration) {
        let shared = self.view.shared_drives(&self.timing.policy, now);
        for announcement in announce_shared_drives(&self.shared, &shared, &self.view) {
            self.announce(announcement);
        }
        self.shared = shared;
    }

    /// What a duty has to say is published by the leader only.
    fn announce_all(&mut self, news: Vec<Announcement>) {
        if self.leads {
            for announcement in news {
                self.announce(announcement);
            }
        }
    }

    fn announce(&mut self, announcement: Announcement) {
        if !self.events.push(announcement, clock::wall_now()) {
            self.counters.count("events", "dropped");
        }
    }

    /// Starts one write. False: there is none.
    fn start_one(&mut self) -> bool {
        let (api, now) = (self.api.clone(), self.now());
        if self.has(Duty::Claims) && self.ledger.is_none() {
            if !std::mem::replace(&mut self.is_adopting, true) {
                self.jobs.spawn(async move { Done::Adopted(api.own_claims().await) });
                return true;
            }
        } else if let Some((claim, entry)) =
            self.ledger.as_mut().and_then(|ledger| ledger.next(now))
        {
            self.jobs.spawn(async move {
                let write = api.apply_health(&claim, &entry.conditions, clock::wall_now()).await;
                Done::Claim(claim, entry, write)
            });
            return true;
        }
        if let Some(event) = self.events.pop() {
            self.jobs.spawn(async move {
                let published = api.publish(&event).await;
                Done::Event(event, published)
            });
            return true;
        }
        if let Some(job) = self.with_release(Engine::next_job).flatten() {
            let until = self.leads_until;
            self.jobs.spawn(async move { Done::Release(job.run(&api, until).await) });
            return true;
        }
        if let Some(job) = self.with_quarantines(Quarantines::next_job).flatten() {
            self.jobs.spawn(async move { Done::Quarantine(job.run(&api).await) });
            return true;
        }
        let job = self.with_unreachable(UnreachableStorage::next_job);
        if let Some(job) = job.flatten() {
            let until = self.leads_until;
            self.jobs.spawn(async move { Done::Unreachable(job.run(&api, until).await) });
            return true;
        }
        if let Some(report) = self.expired.pop_front() {
            self.jobs.spawn(async move {
                // The watch may be behind: the node may be back.
                let gone = match api.node_exists(&report.name).await {
                    Ok(true) => Ok(false),
                    Ok(false) => api.delete_report(&report).await,
                    Err(error) => Err(error),
                };
                Done::Report(report, gone)
            });
            return true;
        }
        false
    }

    fn next_wake(&mut self) -> Instant {
        let at = Instant::now();
        let wake = at + TICK;
        if !self.is_seeing() {
            return wake;
        }
        let evaluation = self.evaluate_at;
        let retention = self.leads.then_some(self.retention_at);
        let write = self.next_write(at);
        let due = [evaluation, retention, write].into_iter().flatten().min();
        due.map_or(wake, |due| wake.min(due.max(at)))
    }

    fn next_write(&mut self, at: Instant) -> Option<Instant> {
        if !self.leads || self.jobs.len() >= self.pace.at_once() {
            return None;
        }
        let now = self.now();
        let must_adopt = self.has(Duty::Claims) && self.ledger.is_none() && !self.is_adopting;
        let due = if must_adopt || !self.events.is_empty() || !self.expired.is_empty() {
            now
        } else {
            let health = self.ledger.as_ref().and_then(|it| it.next_time(now));
            let release = self.release.as_ref().and_then(|it| it.next_time(now));
            let quarantines = self.quarantines.as_ref();
            let quarantine = quarantines.and_then(|it| it.next_time(now));
            let unreachable = self.unreachable.as_ref();
            let unreachable = unreachable.and_then(|it| it.next_time(now));
            let duties = [health, release, quarantine, unreachable];
            duties.into_iter().flatten().min()?
        };
        Some((at + due.saturating_sub(now)).max(self.pace.earliest()))
    }

    fn publish(&self) {
        let claims = self.ledger.as_ref().map(|ledger| ClaimFigures {
            written: ledger.written.len() as u64,
            waiting: ledger.backlog() as u64,
            is_supported: match ledger.support {
                Support::Unknown => None,
                Support::Present => Some(true),
                Support::Absent(_) => Some(false),
            },
        });
        self.state.send_replace(Arc::new(State {
            at: Some(Instant::now()),
            leads: self.leads,
            is_synced: self.is_synced(),
            is_watching: self.is_watching(),
            figures: self.figures.clone(),
            claims,
            release: self.release.as_ref().map(Engine::figures),
            unreachable: self.unreachable.as_ref().map(UnreachableStorage::figures),
            counters: self.counters.clone(),
        }));
    }
}
