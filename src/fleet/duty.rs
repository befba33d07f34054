//! What the owner (`run`) knows of a duty, and what a duty may look at.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::calls::{Call, Caller, Outcome};
use crate::events::Announcement;
use crate::listing::List;
use crate::model::release::Now;
use crate::model::{Elapsed, View};
use diskvitals_exposition::families::Families;

/// As in --duties, and in the label `duty` of the metrics.
pub(crate) type DutyName = &'static str;

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
