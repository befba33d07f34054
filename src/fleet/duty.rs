//! What the owner (`run`) knows of a duty, and the table of all duties.
//!
//! In: options. Out: the duties that they name, as one list. A duty is its folder and its line in
//! `DUTIES`.

use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use crate::claims::Claims;
use crate::events::Announcement;
use crate::listing::List;
use crate::model::release::Now;
use crate::model::{Elapsed, View};
use crate::options::Options;
use crate::quarantine::Quarantines;
use crate::release::Engine;
use crate::retention::Retention;
use crate::shared_drives::SharedDrives;
use crate::timing::Timing;
use crate::unreachable::UnreachableStorage;
use diskvitals_exposition::families::Families;
use diskvitals_kubernetes::api_error::ApiError;

/// As in --duties, and in the label `duty` of the metrics.
pub(crate) type DutyName = &'static str;

pub(crate) const RELEASE: DutyName = "release";
pub(crate) const UNREACHABLE: DutyName = "unreachable";

type NewDuty = fn(&Options, &Timing) -> Box<dyn Duty>;

/// In the order of their writes.
pub(crate) const DUTIES: [(DutyName, NewDuty); 5] = [
    ("claims", |_, timing| Box::new(Claims::new(timing))),
    ("shared-drives", |_, timing| Box::new(SharedDrives::new(timing))),
    (RELEASE, |options, timing| Box::new(Engine::new(timing.release, &options.carry_out_in))),
    ("quarantine", |options, timing| {
        Box::new(Quarantines::new(timing.quarantine, &options.unclean_taint))
    }),
    (UNREACHABLE, |options, timing| {
        let (key, evicts) = (&options.unreachable_taint, options.evict_unreachable);
        Box::new(UnreachableStorage::new(timing, key, evicts))
    }),
];

/// Those of the options, and what is always done.
pub(crate) fn duties(options: &Options, timing: &Timing) -> Vec<(DutyName, Box<dyn Duty>)> {
    let chosen = DUTIES.iter().filter(|(name, _)| options.duties.contains(name));
    let mut duties: Vec<_> = chosen.map(|(name, new)| (*name, new(options, timing))).collect();
    duties.push(("retention", Box::new(Retention::new(timing))));
    duties
}

/// One thing that the controller does. Each needs rights of its own (docs/fleet.md).
pub(crate) trait Duty: Send {
    /// What it needs to know beside nodes and reports.
    fn lists(&self) -> &'static [List] {
        &[]
    }

    /// Called when what is known of a list has changed; `observe` follows.
    fn note_change(&mut self, _list: List, _now: Elapsed) {}

    /// Called after each change of the view, on each replica, and by time.
    fn observe(&mut self, _cx: Context<'_>) {}

    /// Leadership has changed. Another process may have written meanwhile: what was read is
    /// forgotten, and calls that are under way do not count.
    fn reset(&mut self, now: Elapsed);

    /// Whether its calls go before events that wait.
    fn precedes_events(&self) -> bool {
        false
    }

    /// Whether a call must end before the next one.
    fn is_busy(&self) -> bool {
        false
    }

    /// When there is something to do next. Asked unless it is busy.
    fn next_time(&self, _now: Elapsed) -> Option<Elapsed> {
        None
    }

    /// The next call of the API server. By the leader only, and unless it is busy.
    fn next_call(&mut self, _cx: Context<'_>, _caller: &Caller) -> Option<Call> {
        None
    }

    /// Takes the result of a call that has ended.
    fn end_call(&mut self, _cx: Context<'_>) -> Outcome {
        Outcome::Done(None)
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        Vec::new()
    }

    /// None: nothing is known yet.
    fn metrics(&self) -> Option<Arc<dyn DutyFigures>> {
        None
    }
}

/// What a duty may look at.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub view: &'a View,
    pub now: Now,
    /// The API server's time.
    pub server: Option<Timestamp>,
    /// How much longer this process is the leader. None: it is not.
    pub lease_left: Option<Duration>,
}

/// Numbers of a duty, for the metrics.
pub(crate) trait DutyFigures: Debug + Send + Sync {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result;
}

/// What a call needs.
#[derive(Clone)]
pub(crate) struct Caller {
    pub api: Arc<Api>,
    /// When another process may lead, if nothing is renewed.
    pub leads_until: Option<Instant>,
}

impl Caller {
    /// The process may have been stopped since the decision.
    pub(crate) fn leads(&self) -> bool {
        self.leads_until.is_some_and(|until| Instant::now() < until)
    }
}

pub(crate) type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What became of a call.
pub(crate) enum Outcome {
    /// With a value of the label `outcome` of the metrics, if it counts as a write.
    Done(Option<&'static str>),
    /// What it has read is to be evaluated.
    Read,
    Failed {
        counted: Option<&'static str>,
        operation: &'static str,
        error: ApiError,
    },
}

impl Outcome {
    /// Only errors are counted.
    pub(crate) fn new(operation: &'static str, result: Result<(), ApiError>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done(None),
            Err(error) => Outcome::Failed { counted: Some("error"), operation, error },
        }
    }
}

/// Calls of one duty that are under way, and the results of those that have ended.
pub(crate) struct Calls<T> {
    results: (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>),
    under_way: usize,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Calls { results: mpsc::unbounded_channel(), under_way: 0 }
    }
}

impl<T: Send + 'static> Calls<T> {
    pub(crate) fn start(&mut self, call: impl Future<Output = T> + Send + 'static) -> Call {
        self.under_way += 1;
        let sender = self.results.0.clone();
        // After a reset nobody waits for the result.
        Box::pin(async move { _ = sender.send(call.await) })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// The result of a call that has ended.
    pub(crate) fn take(&mut self) -> Option<T> {
        let result = self.results.1.try_recv().ok()?;
        self.under_way -= 1;
        Some(result)
    }
}

#[cfg(test)]
mod tests;
