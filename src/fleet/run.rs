//! The one task that owns the controller's state: changes of the watches in, decisions out, a few
//! writes at a time.
//!
//! In: changes, whether this process leads. Out: calls of duties and events, and the state for metrics
//! and probes. Both replicas watch and note times, so that a standby that takes over knows since when
//! a state has lasted; only the leader writes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::api::Api;
use crate::calls::{Caller, Outcome};
use crate::duties::duties;
use crate::duty::{Context, Duty, DutyName};
use crate::events::EventQueue;
use crate::listing::{ClusterChange, List, Lists, SeenTime};
use crate::metrics::{Counters, State};
use crate::model::figures::{Figures, figures};
use crate::model::release::Now;
use crate::model::{Elapsed, View};
use crate::options::Options;
use crate::pace::WritePace;
use crate::timing::Timing;
use diskvitals_host::clock;
use diskvitals_kubernetes::lease::Leadership;

/// The state is published at least this often: a probe sees that the loop runs.
const TICK: Duration = Duration::from_secs(5);

pub(crate) struct Owner {
    api: Arc<Api>,
    duties: Vec<(DutyName, Box<dyn Duty>)>,
    watched: BTreeSet<List>,
    timing: Timing,
    state: watch::Sender<Arc<State>>,
    seen: SeenTime,
    view: View,
    lists: Lists,
    leads: bool,
    /// Until when, if nothing is renewed.
    leads_until: Option<Instant>,
    events: EventQueue,
    /// Of the duty at the index, or of an event.
    calls: JoinSet<Option<usize>>,
    pace: WritePace,
    evaluate_at: Option<Instant>,
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
        let duties = duties(options, &timing);
        let of_duties = duties.iter().flat_map(|(_, duty)| duty.lists()).copied();
        Owner {
            api,
            watched: of_duties.chain([List::Nodes, List::Reports]).collect(),
            duties,
            pace: WritePace::new(timing.retry_delay(identity)),
            timing,
            state,
            seen: SeenTime::default(),
            view: View::default(),
            lists: Lists::default(),
            leads: false,
            leads_until: None,
            events: EventQueue::new(identity),
            calls: JoinSet::new(),
            evaluate_at: None,
            figures: None,
            counters: Counters::default(),
        }
    }

    pub(crate) fn watched(&self) -> &BTreeSet<List> {
        &self.watched
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
                Some(ended) = self.calls.join_next(), if !self.calls.is_empty() => match ended {
                    Ok(ended) => self.finish(ended),
                    // A panic ends the process (`panic = "abort"`).
                    Err(error) => tracing::error!(%error, "a write was cut off"),
                },
                () = sleep_until(wake) => {}
            }
        }
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
        for (_, duty) in &mut self.duties {
            duty.note_change(list, elapsed);
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
        self.calls = JoinSet::new();
        self.events.reset();
        self.evaluate_at = Some(Instant::now());
        let now = self.now();
        for (_, duty) in &mut self.duties {
            duty.reset(now);
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
        while self.leads && self.calls.len() < self.pace.at_once() && self.pace.is_allowed() {
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
        for index in 0..self.duties.len() {
            self.with_duty(index, |duty, cx| duty.observe(cx));
        }
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

    /// What a duty announces is published by the leader only.
    fn with_duty<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut dyn Duty, Context<'_>) -> T,
    ) -> T {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let cx = Context {
            view: &self.view,
            now: Now { elapsed: self.now(), wall: clock::wall_now() },
            server: self.api.server_now(),
            lease_left: self.leads_until.filter(|_| self.leads).map(left),
        };
        let (_, duty) = &mut self.duties[index];
        let outcome = act(duty.as_mut(), cx);
        for announcement in duty.take_announcements().into_iter().filter(|_| self.leads) {
            if !self.events.push(announcement, clock::wall_now()) {
                self.counters.count("events", "dropped");
            }
        }
        outcome
    }

    /// Starts one call. False: there is none.
    fn start_one(&mut self) -> bool {
        let duties = self.duties.len();
        let before = self.duties.iter().take_while(|(_, duty)| duty.precedes_events()).count();
        (0..before).any(|index| self.start_call(Some(index)))
            || self.start_call(None)
            || (before..duties).any(|index| self.start_call(Some(index)))
    }

    fn start_call(&mut self, of: Option<usize>) -> bool {
        let caller = Caller { api: self.api.clone(), leads_until: self.leads_until };
        let call = match of {
            None => self.events.next_call(&caller),
            Some(index) if self.duties[index].1.is_busy() => None,
            Some(index) => self.with_duty(index, |duty, cx| duty.next_call(cx, &caller)),
        };
        let spawned = call.map(|call| {
            self.calls.spawn(async move {
                call.await;
                of
            })
        });
        spawned.is_some()
    }

    fn finish(&mut self, of: Option<usize>) {
        let (name, outcome) = match of {
            None => ("events", self.events.end_call()),
            Some(index) => {
                let outcome = self.with_duty(index, |duty, cx| duty.end_call(cx));
                (self.duties[index].0, outcome)
            }
        };
        let counted = match outcome {
            Outcome::Done(counted) => {
                self.pace.succeed();
                counted
            }
            Outcome::Read => {
                self.pace.succeed();
                self.evaluate_at = Some(Instant::now());
                None
            }
            Outcome::Failed { counted, operation, error } => {
                self.counters.api_errors += 1;
                self.pace.fail(operation, error);
                counted
            }
        };
        if let Some(counted) = counted {
            self.counters.count(name, counted);
        }
    }

    fn next_wake(&mut self) -> Instant {
        let at = Instant::now();
        let wake = at + TICK;
        if !self.is_seeing() {
            return wake;
        }
        let evaluation = self.evaluate_at;
        let write = self.next_write(at);
        let due = [evaluation, write].into_iter().flatten().min();
        due.map_or(wake, |due| wake.min(due.max(at)))
    }

    fn next_write(&mut self, at: Instant) -> Option<Instant> {
        if !self.leads || self.calls.len() >= self.pace.at_once() {
            return None;
        }
        let now = self.now();
        let idle = self.duties.iter().filter(|(_, duty)| !duty.is_busy());
        let due = if self.events.is_empty() {
            idle.filter_map(|(_, duty)| duty.next_time(now)).min()?
        } else {
            now
        };
        Some((at + due.saturating_sub(now)).max(self.pace.earliest()))
    }

    fn publish(&self) {
        self.state.send_replace(Arc::new(State {
            at: Some(Instant::now()),
            leads: self.leads,
            is_synced: self.is_synced(),
            is_watching: self.is_watching(),
            figures: self.figures.clone(),
            duties: self.duties.iter().filter_map(|(_, duty)| duty.metrics()).collect(),
            counters: self.counters.clone(),
        }));
    }
}
