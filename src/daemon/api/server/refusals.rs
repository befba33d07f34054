//! Refusals of connections: one line per uid and minute in the log, whatever was refused and however
//! often, with the number of the others when the minute is over, and how many connections a caller may open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::server::quota::Share;
use diskvitals_quota::refusals::{Refusal, RefusalCounts};
use diskvitals_quota::token_bucket::TokenBucket;

const INTERVAL: Duration = Duration::from_secs(60);
/// Uids with lines of their own within a minute. All others have one together.
const MAX_UIDS: usize = 32;

/// The log of one socket's refusals.
#[derive(Clone, Debug)]
pub(super) struct RefusalLog {
    socket: Arc<str>,
    lines: Arc<Mutex<Lines>>,
    pub(super) counts: RefusalCounts,
}

impl RefusalLog {
    pub(super) fn new(socket: &str, counts: RefusalCounts) -> RefusalLog {
        RefusalLog { socket: socket.into(), lines: Arc::default(), counts }
    }

    pub(super) fn note(&self, uid: Option<u32>, why: Refusal) {
        self.counts.count(why);
        let (key, noted) = self.lines().note(uid, Instant::now());
        match noted {
            Noted::Written => {
                tracing::warn!(socket = &*self.socket, uid, "connection refused: {why}");
            }
            Noted::FirstCounted(due) => self.tell_number_at(due, key),
            Noted::Counted => {}
        }
    }

    /// How many there were is in the log when the minute is over, also if no further one comes.
    fn tell_number_at(&self, due: Instant, key: LineKey) {
        let log = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            let more = log.lines().take_number(key, Instant::now());
            let (socket, uid) = (&*log.socket, key.uid());
            if more > 0 {
                tracing::warn!(
                    socket,
                    uid,
                    more,
                    "further connections were refused within a minute"
                );
            }
        });
    }

    /// The state is consistent after any panic: no step of a change can panic.
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Lines(BTreeMap<LineKey, Line>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LineKey {
    Uid(Option<u32>),
    Others,
}

impl LineKey {
    fn uid(self) -> Option<u32> {
        match self {
            LineKey::Uid(uid) => uid,
            LineKey::Others => None,
        }
    }
}

#[derive(Debug)]
struct Line {
    written: Instant,
    /// Refusals since then.
    more: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Noted {
    /// It gets a line of its own.
    Written,
    /// It is counted, and the number is due at this time.
    FirstCounted(Instant),
    Counted,
}

impl Lines {
    fn note(&mut self, uid: Option<u32>, now: Instant) -> (LineKey, Noted) {
        let is_over = |line: &Line| line.more == 0 && now - line.written >= INTERVAL;
        let mut key = LineKey::Uid(uid);
        if !self.0.contains_key(&key) && self.0.len() >= MAX_UIDS {
            self.0.retain(|_, line| !is_over(line));
            if self.0.len() >= MAX_UIDS {
                key = LineKey::Others;
            }
        }
        let noted = match self.0.get_mut(&key) {
            Some(line) if !is_over(line) => {
                line.more += 1;
                match line.more {
                    1 => Noted::FirstCounted(line.written + INTERVAL),
                    _ => Noted::Counted,
                }
            }
            _ => {
                let line = Line { written: now, more: 0 };
                self.0.insert(key, line);
                Noted::Written
            }
        };
        (key, noted)
    }

    /// The number that is due, which is written now.
    fn take_number(&mut self, key: LineKey, now: Instant) -> u64 {
        let line = self.0.get_mut(&key);
        line.map_or(0, |line| {
            line.written = now;
            std::mem::take(&mut line.more)
        })
    }
}

/// New connections: far more at once than the bound on open ones, and 64 per second for ever.
const CONNECT_BURST: u32 = 512;
const CONNECT_INTERVAL: Duration = Duration::from_micros(15_625);
/// What a connection costs that was ended for a flood: a reconnect is no way around the budget.
const FLOOD_CONNECTS: f64 = 64.0;
/// Callers that are counted alone.
const MAX_CALLERS: usize = 256;

/// Its gid and pid.
type Process = (Option<u32>, u32);

/// The connections that each caller opens. Root is not limited, but its lookups are: what more it opens at
/// once counts by process alone.
#[derive(Clone, Debug)]
pub(super) struct ConnectBudget {
    callers: Arc<Mutex<BTreeMap<Share, TokenBucket>>>,
    lookups: Arc<Mutex<TokenBucket>>,
    /// Readers with uid 0, whose share is known only after a lookup, that were refused: until then, they are
    /// without one.
    refused: Arc<Mutex<BTreeMap<Process, Instant>>>,
}

impl Default for ConnectBudget {
    fn default() -> ConnectBudget {
        let lookups = TokenBucket::new(CONNECT_BURST, CONNECT_INTERVAL);
        ConnectBudget {
            callers: Arc::default(),
            lookups: Arc::new(Mutex::new(lookups)),
            refused: Arc::default(),
        }
    }
}

impl ConnectBudget {
    /// Whether to look up which process it is that root connects with.
    pub(super) fn admit_lookup(&self) -> bool {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        lookups.take(1.0, Instant::now())
    }

    pub(super) fn was_refused(&self, process: Process) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(&process).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn note_refused(&self, process: Process) {
        let now = Instant::now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, until| *until > now);
        if refused.len() < MAX_CALLERS {
            refused.insert(process, now + CONNECT_INTERVAL);
        }
    }

    pub(super) fn admit(&self, caller: &Share) -> bool {
        self.take(caller, 1.0, Instant::now())
    }

    /// A connection of this caller was ended for a flood.
    pub(super) fn note_flood(&self, caller: &Share) {
        let now = Instant::now();
        if !self.take(caller, FLOOD_CONNECTS, now) {
            self.take(caller, 1.0, now);
        }
    }

    fn take(&self, caller: &Share, connects: f64, now: Instant) -> bool {
        if *caller == Share::Root {
            return true;
        }
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, bucket| !bucket.is_full(now));
        }
        // Too many at once share one bucket.
        let key = match callers.contains_key(caller) || callers.len() < MAX_CALLERS {
            true => caller.clone(),
            false => Share::Uid(None),
        };
        callers
            .entry(key)
            .or_insert_with(|| TokenBucket::new(CONNECT_BURST, CONNECT_INTERVAL))
            .take(connects, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_has_one_line_a_minute_and_no_uid_hides_another() {
        let start = Instant::now();
        let mut lines = Lines::default();
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(lines.note(Some(4001), at(0)).1, Noted::Written);
        let (key, first) = lines.note(Some(4001), at(1));
        assert_eq!(first, Noted::FirstCounted(at(60)));
        for _ in 1..4000 {
            assert_eq!(lines.note(Some(4001), at(1)).1, Noted::Counted);
        }
        assert_eq!(lines.note(Some(4002), at(1)).1, Noted::Written);
        assert_eq!(lines.take_number(key, at(60)), 4000);
        // That was the line of the next minute.
        let (_, next) = lines.note(Some(4001), at(61));
        assert_eq!(next, Noted::FirstCounted(at(120)));
        assert_eq!(lines.take_number(key, at(120)), 1);
        assert_eq!(lines.note(Some(4001), at(180)).1, Noted::Written);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_refusals_is_told_when_no_further_one_comes() {
        let log = RefusalLog::new("s", RefusalCounts::default());
        for _ in 0..100 {
            log.note(Some(4001), Refusal::Connections);
        }
        assert!(log.counts.by_cause().any(|count| count == ("connections", 100)));
        let pending = |log: &RefusalLog| log.lines().0.values().map(|line| line.more).sum::<u64>();
        assert_eq!(pending(&log), 99);
        tokio::time::sleep(INTERVAL + Duration::from_secs(1)).await;
        assert_eq!(pending(&log), 0);
    }

    #[test]
    fn lines_of_many_uids_are_bounded() {
        let now = Instant::now();
        let mut lines = Lines::default();
        let written = (0..10_000).filter(|uid| lines.note(Some(*uid), now).1 == Noted::Written);
        assert_eq!(written.count(), MAX_UIDS + 1);
        let later = now + INTERVAL;
        lines.take_number(LineKey::Others, now);
        let (key, noted) = lines.note(Some(20_000), later);
        assert_eq!(
            (key, noted),
            (LineKey::Uid(Some(20_000)), Noted::Written),
            "there is room again"
        );
        assert!(lines.0.len() <= MAX_UIDS);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_have_a_budget_for_each_caller_and_root_has_none() {
        let budget = ConnectBudget::default();
        let user = Share::Uid(Some(4001));
        let admitted = || (0..10_000).filter(|_| budget.admit(&user)).count();
        assert_eq!(admitted(), 512);
        assert!(budget.admit(&Share::Uid(Some(4002))));
        assert!((0..10_000).all(|_| budget.admit(&Share::Root)));
        // Pods of interposers: one that floods leaves the others alone.
        let pod = |name: &str| Share::Reader(Some(65533), Some(name.into()));
        assert!((0..10_000).any(|_| !budget.admit(&pod("/a"))));
        assert!(budget.admit(&pod("/b")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(admitted(), 64);
        // Somebody who is polite connects for ever.
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(20)).await;
            assert!(budget.admit(&user));
        }
        for _ in 0..8 {
            budget.note_flood(&user);
        }
        assert!(admitted() < 64);
        for uid in 0..10_000 {
            budget.admit(&Share::Uid(Some(uid)));
        }
        assert!(budget.callers.lock().unwrap().len() <= MAX_CALLERS + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_uid_0_costs_no_lookup_for_each_connection() {
        let budget = ConnectBudget::default();
        assert_eq!((0..10_000).filter(|_| budget.admit_lookup()).count(), 512);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..10_000).filter(|_| budget.admit_lookup()).count(), 64);

        let (flood, other) = ((Some(65533), 7), (Some(65533), 8));
        let mut lookups = 0;
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            if !budget.was_refused(flood) {
                lookups += 1;
                budget.note_refused(flood);
            }
            assert!(!budget.was_refused(other));
        }
        assert!((60..=64).contains(&lookups), "{lookups}");
        (0..10_000).for_each(|pid| budget.note_refused((None, pid)));
        assert!(budget.refused.lock().unwrap().len() <= MAX_CALLERS);
    }
}
