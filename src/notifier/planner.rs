//! Decides what is announced, and when: transitions of causes, grouped; reminders; the daemon's
//! silence; digests.
//!
//! In: the daemon's state or its absence, the settings, and the time. Out: notifications. Pure: the
//! state before and after is a value, which is stored together with the notifications that came of
//! it. After a crash the same transitions give the same ids.

mod lane;
mod transitions;

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::message::{Item, Kind, Level, Notification, SCHEMA, Transition, stable_id};
use crate::node_state::{NodeCounts, NodeState};
use crate::planner::lane::{Lane, SLOW_WAIT};
use crate::schedule::{Digest, QuietHours, local_date};
use crate::text::{self, Writer};

/// Items of one notification. More items make more notifications.
const MAX_ITEMS: usize = 100;
/// Threads that one message continues.
const MAX_PARENTS: usize = 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// How long changes are collected before they are sent as one message.
    pub group_wait: SignedDuration,
    /// The time until the first reminder, doubled for each further one, and its maximum.
    pub repeat: Option<SignedDuration>,
    pub repeat_max: SignedDuration,
    pub quiet_hours: Option<QuietHours>,
    /// Quiet hours hold back a first raise that is not BAD, too.
    pub quiet_hours_bad_only: bool,
    pub daily_limit: Option<u32>,
    pub digest: Digest,
    pub daemon_silent: Option<SignedDuration>,
    pub min_severity: Level,
    pub zone: TimeZone,
}

/// What the planner remembers; stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlannerState {
    host: String,
    /// A first answer of the daemon was complete.
    initialized: bool,
    known: BTreeMap<String, KnownCause>,
    /// Cleared findings that are accounted for: id → when it cleared.
    cleared: BTreeMap<String, Timestamp>,
    /// Changes of the node's own storage.
    #[serde(flatten)]
    own: Lane,
    /// Changes that unprivileged users can make.
    user_made: Lane,
    day: String,
    silence: Option<Silence>,
    /// Since when the daemon had not answered, if that was announced and its return was not yet.
    back_since: Option<Timestamp>,
    digest_after: Option<Timestamp>,
    #[serde(skip)]
    counts: Option<NodeCounts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KnownCause {
    /// Without evidence and hits.
    item: Item,
    subject: String,
    counted: bool,
    acknowledged: bool,
    /// It did not count, because of maintenance.
    #[serde(default)]
    maintained: bool,
    /// How often it counted again after that.
    #[serde(default)]
    maintenances: u32,
    /// The worst so far, as in `ObservedCause`; none in a file of an earlier version.
    #[serde(default)]
    status: Option<i32>,
    /// Its beginning was announced.
    announced: bool,
    /// The id of the message that announced it.
    #[serde(default)]
    thread: Option<String>,
    /// Identifies this occurrence.
    key: String,
    /// Findings: id → (reason and subject, severity).
    findings: BTreeMap<String, (String, Level)>,
    /// The daemon no longer lists it, and nothing proves that it is over.
    missing_since: Option<Timestamp>,
    over_since: Option<Timestamp>,
    reminders: u32,
    reminder_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Change {
    key: String,
    item: Item,
    /// A first raise, or a change to BAD: neither quiet hours nor the daily limit hold it back.
    urgent: bool,
    /// The message that announced it, if another occurrence may have followed.
    #[serde(default)]
    thread: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Silence {
    since: Timestamp,
    why: String,
    announced: bool,
}

impl PlannerState {
    /// The host's name, for when the daemon has not given it yet.
    pub(crate) fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.host);
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The daemon has answered completely.
    pub(crate) fn observe(
        &mut self,
        state: &NodeState,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        self.counts = Some(state.counts.clone());
        if let Some(silence) = self.silence.take()
            && silence.announced
        {
            self.back_since = Some(silence.since);
        }
        let changes = self.changes(state, settings, now);
        let (user_made, own): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|it| it.item.user_made);
        // What the cause of a pod's volume turns out to be may be the node's own, and the reverse.
        self.own.take_over(&mut self.user_made, &own);
        self.user_made.take_over(&mut self.own, &user_made);
        self.own.collect(own, now);
        self.user_made.collect(user_made, now);
        self.tick(settings, now)
    }

    /// The daemon does not answer, or not completely.
    pub(crate) fn observe_silence(
        &mut self,
        why: &str,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        self.counts = None;
        self.back_since = None;
        let silence = self.silence.get_or_insert_with(|| Silence {
            since: now,
            why: String::new(),
            announced: false,
        });
        why.clone_into(&mut silence.why);
        self.tick(settings, now)
    }

    /// What is due by now.
    pub(crate) fn tick(&mut self, settings: &Settings, now: Timestamp) -> Vec<Notification> {
        let today = local_date(now, &settings.zone);
        if self.day != today {
            self.day = today;
            self.own.sent_today = 0;
            self.user_made.sent_today = 0;
        }
        let mut notifications: Vec<Notification> =
            self.announce_return(settings, now).into_iter().collect();
        for user_made in [false, true] {
            notifications.extend(self.close_window(user_made, settings, now));
        }
        for user_made in [false, true] {
            notifications.extend(self.release_held(user_made, settings, now));
        }
        notifications.extend(self.announce_silence(settings, now));
        notifications.extend(self.remind(settings, now));
        notifications.extend(self.make_digest(settings, now));
        notifications
    }

    /// When `tick` has something to do next, at the latest.
    pub(crate) fn next_due(&self, settings: &Settings, now: Timestamp) -> Timestamp {
        let soon = now + SignedDuration::from_secs(60);
        [
            self.own.window_end(settings),
            self.user_made.window_end(settings),
            self.silence
                .as_ref()
                .filter(|silence| !silence.announced)
                .and_then(|silence| Some(silence.since + settings.daemon_silent?)),
            self.digest_after
                .and_then(|after| settings.digest.next(after, &settings.zone))
                .map(|due| due.max(settings.quiet_until(now).unwrap_or(due))),
            settings.quiet_until(now),
        ]
        .into_iter()
        .flatten()
        .fold(soon, Timestamp::min)
    }

    fn lane(&mut self, user_made: bool) -> &mut Lane {
        match user_made {
            true => &mut self.user_made,
            false => &mut self.own,
        }
    }

    fn close_window(
        &mut self,
        user_made: bool,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        let is_bad_only = settings.quiet_hours_bad_only && settings.quiet_until(now).is_some();
        let is_quiet = self.is_quiet(user_made, settings, now);
        let passes = |change: &Change| {
            let is_let_through = !is_bad_only || change.item.severity == Level::Bad;
            !is_quiet || (change.urgent && is_let_through)
        };
        let sent = self.lane(user_made).close_window(settings, passes, now);
        let notifications = self.grouped(Kind::Changes, sent.unwrap_or_default(), settings, now);
        self.lane(user_made).note_sent(notifications.len(), now);
        notifications
    }

    /// Messages about what users can make do not use up the limit of the others.
    fn is_quiet(&self, user_made: bool, settings: &Settings, now: Timestamp) -> bool {
        let sent = match user_made {
            true => self.own.sent_today.saturating_add(self.user_made.sent_today),
            false => self.own.sent_today,
        };
        settings.quiet_until(now).is_some()
            || settings.daily_limit.is_some_and(|limit| sent >= limit)
    }

    fn release_held(
        &mut self,
        user_made: bool,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        if self.is_quiet(user_made, settings, now) {
            return Vec::new();
        }
        let (held, omitted) = self.lane(user_made).take_held();
        let mut summaries = self.grouped(Kind::Summary, held, settings, now);
        if let Some(last) = summaries.last_mut().filter(|_| omitted > 0) {
            last.text.push_str(&format!(
                "\n{omitted} further changes were held back and are not listed: `diskvitals findings --all`\n"
            ));
        }
        summaries
    }

    fn grouped(
        &mut self,
        kind: Kind,
        mut changes: Vec<Change>,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        // Worst first, and what has cleared last. The changes of one cause stay in their order.
        let mut best = BTreeMap::new();
        for change in &changes {
            let rank = change.item.rank();
            let best = best.entry(change.item.cause.clone()).or_insert(rank);
            *best = (*best).max(rank);
        }
        changes.sort_by_cached_key(|change| {
            let rank = best.get(&change.item.cause).copied();
            (std::cmp::Reverse(rank), change.item.cause.clone())
        });
        let mut notifications = Vec::new();
        for group in changes.chunks(MAX_ITEMS) {
            let keys: Vec<&str> = group.iter().map(|change| change.key.as_str()).collect();
            let items: Vec<Item> = group.iter().map(|change| change.item.clone()).collect();
            let level = items.iter().map(|item| item.severity).max();
            let writer = Writer { zone: &settings.zone, host: &self.host };
            let text = writer.items(&items);
            let mut notification =
                self.notification(kind, level.unwrap_or(Level::Info), &keys, items, text, now);
            notification.replies_to = self.continue_threads(group, &notification.id);
            notifications.push(notification);
        }
        notifications
    }

    /// The messages that announced the causes of these changes. A first raise begins a thread.
    fn continue_threads(&mut self, changes: &[Change], id: &str) -> Vec<String> {
        let mut parents = Vec::new();
        for change in changes {
            let thread = match (&change.thread, self.known.get_mut(&change.item.cause)) {
                (Some(thread), _) => thread.clone(),
                // This occurrence, not an earlier one.
                (None, Some(known)) if change.key.starts_with(&known.key) => {
                    known.thread.get_or_insert_with(|| id.to_owned()).clone()
                }
                _ => continue,
            };
            if thread != id && !parents.contains(&thread) && parents.len() < MAX_PARENTS {
                parents.push(thread);
            }
        }
        parents
    }

    fn notification(
        &mut self,
        kind: Kind,
        severity: Level,
        keys: &[&str],
        items: Vec<Item>,
        text: String,
        now: Timestamp,
    ) -> Notification {
        let user_made = !items.is_empty() && items.iter().all(|item| item.user_made);
        let lane = self.lane(user_made);
        lane.sent_today = lane.sent_today.saturating_add(1);
        Notification {
            schema: SCHEMA.to_owned(),
            id: self.id(kind, keys),
            kind,
            severity,
            host: self.host.clone(),
            time: now,
            title: text::title(kind, &self.host, severity, &items),
            text,
            items,
            replies_to: Vec::new(),
        }
    }

    fn announce_return(&mut self, settings: &Settings, now: Timestamp) -> Option<Notification> {
        if settings.quiet_hours_bad_only && settings.quiet_until(now).is_some() {
            return None;
        }
        let since = self.back_since.take()?;
        let writer = Writer { zone: &settings.zone, host: &self.host };
        let text = format!(
            "diskvitalsd on {} answers again. It did not answer since {}.\n",
            self.host,
            writer.local(since)
        );
        let since = since.to_string();
        let silent = self.id(Kind::DaemonSilent, &[&since]);
        let mut back =
            self.notification(Kind::DaemonBack, Level::Info, &[&since], Vec::new(), text, now);
        back.replies_to = vec![silent];
        Some(back)
    }

    fn id(&self, kind: Kind, keys: &[&str]) -> String {
        let kind_name = format!("{kind:?}");
        let parts = [self.host.as_str(), &kind_name].into_iter().chain(keys.iter().copied());
        stable_id(parts)
    }

    fn announce_silence(&mut self, settings: &Settings, now: Timestamp) -> Option<Notification> {
        let limit = settings.daemon_silent?;
        let silence = self.silence.as_mut()?;
        if silence.announced || now.duration_since(silence.since) < limit {
            return None;
        }
        silence.announced = true;
        let silence = silence.clone();
        let writer = Writer { zone: &settings.zone, host: &self.host };
        let text = format!(
            "diskvitalsd on {} has not answered since {}: {}.\nNothing is known about its drives until it answers.\n\n  to do     on a host: systemctl status diskvitalsd; journalctl -u diskvitalsd\n            in a cluster: kubectl describe and kubectl logs of the daemon's pod on this node\n",
            self.host,
            writer.local(silence.since),
            silence.why
        );
        let since = silence.since.to_string();
        Some(self.notification(
            Kind::DaemonSilent,
            Level::Unknown,
            &[&since],
            Vec::new(),
            text,
            now,
        ))
    }

    fn remind(&mut self, settings: &Settings, now: Timestamp) -> Vec<Notification> {
        // Without the daemon nobody knows whether it is still there.
        if settings.repeat.is_none() || self.silence.is_some() {
            return Vec::new();
        }
        [false, true]
            .into_iter()
            .flat_map(|user_made| self.remind_of(user_made, settings, now))
            .collect()
    }

    fn remind_of(
        &mut self,
        user_made: bool,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Notification> {
        if self.is_quiet(user_made, settings, now) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for cause in self.known.values_mut() {
            let is_due = cause.item.user_made == user_made
                && cause.is_open()
                && cause.reminder_at.is_some_and(|at| at <= now);
            if !is_due {
                continue;
            }
            cause.reminders += 1;
            let wait = settings.reminder_wait(cause.reminders);
            cause.reminder_at = wait.map(|wait| now + wait);
            due.push(Change {
                key: format!("{} reminder {}", cause.key, cause.reminders),
                item: Item { time: now, transition: Transition::Present, ..cause.item.clone() },
                urgent: false,
                thread: None,
            });
        }
        self.grouped(Kind::Reminder, due, settings, now)
    }

    fn make_digest(&mut self, settings: &Settings, now: Timestamp) -> Option<Notification> {
        let after = *self.digest_after.get_or_insert(now);
        let due = settings.digest.next(after, &settings.zone)?;
        // After a start, the daemon has a minute to answer.
        let unsure = self.counts.is_none() && self.silence.is_none();
        if due > now || (unsure && now.duration_since(due) < SLOW_WAIT) {
            return None;
        }
        // It comes at the end of the quiet hours.
        if settings.quiet_until(now).is_some() {
            return None;
        }
        // However many were missed: one.
        self.digest_after = Some(now);
        let writer = Writer { zone: &settings.zone, host: &self.host };
        let silent = self.silence.as_ref().map(|silence| {
            format!("no answer since {}: {}", writer.local(silence.since), silence.why)
        });
        let digest = writer.digest(self.counts.as_ref(), silent.as_deref());
        let (level, summary, mut text) = (digest.level, digest.summary, digest.text);
        let mut items: Vec<Item> = self
            .known
            .values()
            .filter(|cause| cause.over_since.is_none())
            .map(|cause| Item { time: now, transition: Transition::Present, ..cause.item.clone() })
            .collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.rank()));
        if !items.is_empty() {
            text.push_str(match silent {
                Some(_) => "\nLast known problems:\n\n",
                None => "\nProblems:\n\n",
            });
            text.push_str(&writer.items(&items));
        }
        if !digest.remarks.is_empty() {
            text.push('\n');
            text.push_str(&digest.remarks);
        }
        let items = items.into_iter().take(MAX_ITEMS).collect();
        let mut digest =
            self.notification(Kind::Digest, level, &[&due.to_string()], items, text, now);
        digest.title = format!("[digest] {}: {summary}", self.host);
        Some(digest)
    }
}

impl Settings {
    /// The end of the quiet hours, if it is one of them.
    fn quiet_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.quiet_hours?.end(now, &self.zone)
    }

    /// The wait before reminder number `count`, from 0.
    fn reminder_wait(&self, count: u32) -> Option<SignedDuration> {
        let factor = 1_i32.checked_shl(count.min(30)).unwrap_or(i32::MAX);
        let wait = self.repeat?.checked_mul(factor).unwrap_or(self.repeat_max);
        Some(wait.min(self.repeat_max))
    }
}

impl KnownCause {
    /// Announced, and a person has not taken note of it.
    fn is_open(&self) -> bool {
        self.announced && self.counted && self.over_since.is_none()
    }
}

#[cfg(test)]
mod tests;
