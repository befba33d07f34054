//! The messages that wait, for each target: which one is due, and what became of it.
//!
//! In: notifications, results of attempts, and the time. Out: the next attempts, and what is to be
//! stored. A target that accepts nothing waits as a whole; a message that a target refuses waits
//! alone. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::message::{Kind, Notification};
use crate::store::Changes;
use crate::targets::DeliveryError;
use diskvitals_text::backoff::Backoff;

/// Between attempts at a target that accepts nothing.
const TARGET_BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(600));
/// Between attempts with a message that was refused.
const REFUSED_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(300), Duration::from_secs(6 * 3600));

#[derive(Debug)]
pub(crate) struct Queue {
    lines: BTreeMap<String, Line>,
    max: usize,
    give_up: Duration,
    changes: Changes,
}

#[derive(Debug)]
struct Line {
    entries: VecDeque<Entry>,
    backoff: Backoff,
    paused_until: Option<Instant>,
    /// The id of the message of the attempt in progress.
    in_flight: Option<String>,
    last_error: Option<String>,
}

#[derive(Debug)]
struct Entry {
    notification: Arc<Notification>,
    not_before: Instant,
    queued: Instant,
    refusals: u32,
}

impl Line {
    fn new() -> Line {
        Line {
            entries: VecDeque::new(),
            backoff: TARGET_BACKOFF,
            paused_until: None,
            in_flight: None,
            last_error: None,
        }
    }
}

impl Queue {
    pub(crate) fn new(max: usize, give_up: Duration) -> Queue {
        Queue { lines: BTreeMap::new(), max, give_up, changes: Changes::default() }
    }

    /// The targets of the configuration. Messages for others are dropped.
    pub(crate) fn set_targets(&mut self, names: &[&str], max: usize, give_up: Duration) {
        (self.max, self.give_up) = (max, give_up);
        for name in names {
            // A changed target is tried at once.
            let line = self.lines.entry((*name).to_owned()).or_insert_with(Line::new);
            line.paused_until = None;
            line.backoff.reset();
        }
        let gone = |name: &String| !names.contains(&name.as_str());
        for (name, line) in self.lines.iter().filter(|(name, _)| gone(name)) {
            let ids = line.entries.iter().map(|entry| entry.notification.id.clone());
            self.changes.removed.extend(ids.map(|id| (id, name.clone())));
            if !line.entries.is_empty() {
                tracing::warn!(target_name = %name, messages = line.entries.len(), "the target is no longer configured; its messages are dropped");
            }
        }
        self.lines.retain(|name, _| !gone(name));
    }

    /// Adds a message, unless the target has it already. `is_stored`: it comes from the disk.
    pub(crate) fn push(
        &mut self,
        target: &str,
        notification: &Arc<Notification>,
        is_stored: bool,
        now: Instant,
    ) {
        let Some(line) = self.lines.get_mut(target) else {
            if is_stored {
                let gone = (notification.id.clone(), target.to_owned());
                self.changes.removed.push(gone);
            }
            return;
        };
        if line.entries.iter().any(|entry| entry.notification.id == notification.id) {
            return;
        }
        line.entries.push_back(Entry {
            notification: notification.clone(),
            not_before: now,
            queued: now,
            refusals: 0,
        });
        if !is_stored {
            self.changes.added.push((target.to_owned(), notification.clone()));
        }
        while self.lines.get(target).is_some_and(|line| line.entries.len() > self.max) {
            self.drop_one(target, "the queue is full");
        }
    }

    /// Drops first what users can make, then a reminder, a digest or a summary, and the oldest of
    /// these.
    fn drop_one(&mut self, target: &str, why: &str) {
        let Some(line) = self.lines.get_mut(target) else {
            return;
        };
        let in_flight = line.in_flight.clone();
        let free = |entry: &Entry| in_flight.as_ref() != Some(&entry.notification.id);
        let can_go = |entry: &Entry| {
            matches!(
                entry.notification.kind,
                Kind::Reminder | Kind::Digest | Kind::Summary | Kind::DaemonBack
            )
        };
        let at = line
            .entries
            .iter()
            .position(|entry| free(entry) && entry.notification.is_user_made())
            .or_else(|| {
                let mut entries = line.entries.iter();
                entries.position(|entry| free(entry) && can_go(entry))
            })
            .or_else(|| line.entries.iter().position(free));
        if let Some(entry) = at.and_then(|at| line.entries.remove(at)) {
            let (id, title) = (&entry.notification.id, &entry.notification.title);
            tracing::error!(
                target_name = target,
                id,
                title,
                why,
                "a message is dropped and was not delivered"
            );
            self.remove_stored(id, target);
        }
    }

    fn remove_stored(&mut self, id: &str, target: &str) {
        // One that never reached the disk need not be removed from it.
        self.changes.added.retain(|(name, notification)| name != target || notification.id != id);
        self.changes.removed.push((id.to_owned(), target.to_owned()));
    }

    /// The next attempts: one for each target that has a message due and none in progress.
    pub(crate) fn start_due(&mut self, now: Instant) -> Vec<(String, Arc<Notification>)> {
        let mut started = Vec::new();
        for (name, line) in &mut self.lines {
            let paused = line.paused_until.is_some_and(|until| until > now);
            if paused || line.in_flight.is_some() {
                continue;
            }
            // What users can make waits for the rest.
            let due = line.entries.iter().filter(|entry| entry.not_before <= now);
            let due = due.min_by_key(|entry| entry.notification.is_user_made());
            if let Some(entry) = due {
                line.in_flight = Some(entry.notification.id.clone());
                started.push((name.clone(), entry.notification.clone()));
            }
        }
        started
    }

    /// When `start_due` has something to start next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let lines = self.lines.values().filter(|line| line.in_flight.is_none());
        lines
            .filter_map(|line| {
                let first = line.entries.iter().map(|entry| entry.not_before).min()?;
                Some(line.paused_until.map_or(first, |until| first.max(until)))
            })
            .min()
    }

    /// An attempt has ended.
    pub(crate) fn finish(
        &mut self,
        target: &str,
        id: &str,
        result: Result<String, DeliveryError>,
        now: Instant,
    ) {
        let Some(line) = self.lines.get_mut(target) else {
            return;
        };
        line.in_flight = None;
        let at = line.entries.iter().position(|entry| entry.notification.id == id);
        let Some(at) = at else { return };
        let title = line.entries[at].notification.title.clone();
        match result {
            Ok(answer) => {
                tracing::info!(target_name = target, id, title, answer, "a message was delivered");
                line.entries.remove(at);
                line.backoff.reset();
                (line.paused_until, line.last_error) = (None, None);
                self.remove_stored(id, target);
                return;
            }
            Err(DeliveryError::Unavailable { why, retry_after }) => {
                let wait = line
                    .backoff
                    .next_delay()
                    .max(retry_after.unwrap_or_default().min(line.backoff.max() * 6));
                line.paused_until = Some(now + wait);
                // Each new reason once, not each attempt.
                if line.last_error.as_ref() != Some(&why) {
                    tracing::error!(
                        target_name = target,
                        why,
                        waiting = line.entries.len(),
                        "the target cannot be used; its messages wait"
                    );
                    line.last_error = Some(why);
                }
            }
            Err(DeliveryError::Refused(why)) => {
                tracing::error!(
                    target_name = target,
                    id,
                    title,
                    why,
                    "a message was refused; it is tried again later"
                );
                let entry = &mut line.entries[at];
                entry.not_before = now + REFUSED_BACKOFF.delay(entry.refusals);
                entry.refusals += 1;
            }
        }
        if now.duration_since(line.entries[at].queued) >= self.give_up {
            let entry = line.entries.remove(at);
            let title = entry.map(|entry| entry.notification.title.clone());
            tracing::error!(
                target_name = target,
                id,
                title,
                "give_up has passed: a message is dropped and was not delivered"
            );
            self.remove_stored(id, target);
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.entries.len()).sum()
    }

    /// What is to be stored. A write that fails gives it back with `restore`.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn set_planner(&mut self, state: String) {
        self.changes.planner = Some(state);
    }

    /// A write has failed: what it had comes before what has changed since.
    pub(crate) fn restore(&mut self, mut failed: Changes) {
        let since = std::mem::take(&mut self.changes);
        let removed = |(target, notification): &(String, Arc<Notification>)| {
            since.removed.iter().any(|(id, name)| *id == notification.id && name == target)
        };
        failed.added.retain(|added| !removed(added));
        failed.planner = since.planner.or(failed.planner);
        failed.added.extend(since.added);
        failed.removed.extend(since.removed);
        failed.removed.sort_unstable();
        failed.removed.dedup();
        self.changes = failed;
    }
}

#[cfg(test)]
mod tests;
