//! Changes that wait: for the end of the window in which they are collected, of quiet hours, or of
//! the day. The node's own storage and what users can make wait in lanes of their own, so that no
//! number of the latter delays or displaces the former.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::message::Transition;
use crate::planner::{Change, Settings};

/// Changes of one window that keep all evidence and hits: a flood must fit into the memory of a small
/// process.
const MAX_DETAILED: usize = 1000;
/// Held items that are described. The others are counted.
const MAX_HELD: usize = 1000;
/// So many notifications of changes within `BURST_WINDOW` go out at once; then one per `SLOW_WAIT`,
/// with all changes.
const BURST: usize = 10;
const BURST_WINDOW: SignedDuration = SignedDuration::from_mins(10);
pub(super) const SLOW_WAIT: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Lane {
    /// Transitions that wait for the end of the window.
    window: Vec<Change>,
    window_since: Option<Timestamp>,
    held: Vec<Change>,
    held_omitted: u64,
    /// When the latest notifications of changes were made.
    recent: Vec<Timestamp>,
    pub(super) sent_today: u32,
}

impl Lane {
    pub(super) fn collect(&mut self, changes: Vec<Change>, now: Timestamp) {
        if !changes.is_empty() && self.window_since.is_none() {
            self.window_since = Some(now);
        }
        for mut change in changes {
            if self.window.len() >= MAX_DETAILED {
                change.item.shorten();
            }
            self.window.push(change);
        }
    }

    /// Takes what waits in the other lane about the causes of these changes: its beginning must not come
    /// after them.
    pub(super) fn take_over(&mut self, other: &mut Lane, changes: &[Change]) {
        let is_theirs = |waiting: &Change| {
            let mut changes = changes.iter();
            changes.any(|change| change.item.cause == waiting.item.cause)
        };
        if other.window.iter().any(is_theirs) {
            let begun = [self.window_since, other.window_since];
            self.window_since = begun.into_iter().flatten().min();
            self.window.extend(other.window.extract_if(.., |it| is_theirs(it)));
        }
        self.held.extend(other.held.extract_if(.., |it| is_theirs(it)));
    }

    pub(super) fn window_end(&self, settings: &Settings) -> Option<Timestamp> {
        let since = self.window_since?;
        let recent = self.recent.iter().filter(|sent| since.duration_since(**sent) < BURST_WINDOW);
        let wait = match recent.count() >= BURST {
            true => settings.group_wait.max(SLOW_WAIT),
            false => settings.group_wait,
        };
        Some(since + wait)
    }

    /// What is to be sent of a window that is over; None while there is none. `passes`: neither
    /// quiet hours nor the daily limit hold it back.
    pub(super) fn close_window(
        &mut self,
        settings: &Settings,
        passes: impl Fn(&Change) -> bool,
        now: Timestamp,
    ) -> Option<Vec<Change>> {
        // A clock that was set back delays nothing.
        let since = self.window_since?;
        if now >= since && self.window_end(settings).is_some_and(|end| end > now) {
            return None;
        }
        self.window_since = None;
        let (mut sent, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.window).into_iter().partition(passes);
        for change in &mut sent {
            self.replace_held(change);
        }
        for change in held {
            match self.held.len() < MAX_HELD {
                true => self.held.push(change),
                false => self.held_omitted += 1,
            }
        }
        Some(sent)
    }

    pub(super) fn note_sent(&mut self, notifications: usize, now: Timestamp) {
        self.recent.retain(|sent| *sent <= now && now.duration_since(*sent) < BURST_WINDOW);
        self.recent.extend(std::iter::repeat_n(now, notifications));
    }

    /// What is sent now supersedes the beginning of the same cause that was held back.
    fn replace_held(&mut self, change: &mut Change) {
        if change.item.transition != Transition::Worse {
            return;
        }
        let is_superseded = |held: &Change| {
            held.item.cause == change.item.cause
                && matches!(held.item.transition, Transition::Raised | Transition::Worse)
        };
        let mut held = self.held.iter().filter(|held| is_superseded(held));
        let was_raised = held.any(|held| held.item.transition == Transition::Raised);
        self.held.retain(|held| !is_superseded(held));
        if was_raised {
            change.item.transition = Transition::Raised;
        }
    }

    /// What was held back, and how many more are not described.
    pub(super) fn take_held(&mut self) -> (Vec<Change>, u64) {
        (std::mem::take(&mut self.held), std::mem::take(&mut self.held_omitted))
    }
}
