//! Refusals of connections: one line per uid and minute in the log, whatever was refused and however
//! often, and how many connections a caller may open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::server::token_bucket::TokenBucket;

const INTERVAL: Duration = Duration::from_secs(60);
/// Uids with lines of their own within a minute. All others have one together.
const MAX_UIDS: usize = 32;

/// The log of one socket's refusals.
#[derive(Clone, Debug)]
pub(super) struct RefusalLog {
    socket: Arc<str>,
    lines: Arc<Mutex<Lines>>,
}

impl RefusalLog {
    pub(super) fn new(socket: &str) -> RefusalLog {
        RefusalLog {
            socket: socket.into(),
            lines: Arc::default(),
        }
    }

    pub(super) fn note(&self, uid: Option<u32>, why: &str) {
        // The state is consistent after any panic: no step of a change can panic.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = lines.due(uid, Instant::now()) {
            tracing::warn!(
                socket = &*self.socket,
                uid,
                more,
                "connection refused: {why}"
            );
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    by_uid: BTreeMap<Option<u32>, Line>,
    others: Option<Line>,
}

#[derive(Debug)]
struct Line {
    written: Instant,
    /// Refusals since then.
    more: u64,
}

impl Lines {
    /// Whether a line is due, and how many refusals since the last one had none.
    fn due(&mut self, uid: Option<u32>, now: Instant) -> Option<u64> {
        let is_over = |line: &Line| now.duration_since(line.written) >= INTERVAL;
        let is_full = self.by_uid.len() >= MAX_UIDS;
        if is_full && !self.by_uid.contains_key(&uid) {
            self.by_uid.retain(|_, line| !is_over(line));
        }
        let known = self.by_uid.contains_key(&uid) || self.by_uid.len() < MAX_UIDS;
        let slot = match known {
            true => {
                let fresh = !self.by_uid.contains_key(&uid);
                let line = self.by_uid.entry(uid).or_insert(Line {
                    written: now,
                    more: 0,
                });
                if fresh {
                    return Some(0);
                }
                line
            }
            false => match &mut self.others {
                Some(line) => line,
                None => {
                    self.others = Some(Line {
                        written: now,
                        more: 0,
                    });
                    return Some(0);
                }
            },
        };
        if !is_over(slot) {
            slot.more += 1;
            return None;
        }
        slot.written = now;
        Some(std::mem::take(&mut slot.more))
    }
}

/// New connections: far more at once than the bound on open ones, and so many per second for ever.
const CONNECT_BURST: u32 = 512;
const CONNECTS_PER_SECOND: u32 = 64;
/// What a connection costs that was ended for a flood: a reconnect is no way around the budget.
const FLOOD_CONNECTS: f64 = 64.0;
/// Callers that are counted alone.
const MAX_CALLERS: usize = 256;

type Caller = (Option<u32>, Option<u32>);

/// The connections that each uid and gid opens. Root is not limited.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectBudget {
    callers: Arc<Mutex<BTreeMap<Caller, TokenBucket>>>,
}

impl ConnectBudget {
    pub(super) fn admit(&self, caller: Caller) -> bool {
        self.take(caller, 1.0, Instant::now())
    }

    /// A connection of this caller was ended for a flood.
    pub(super) fn note_flood(&self, caller: Caller) {
        let now = Instant::now();
        if !self.take(caller, FLOOD_CONNECTS, now) {
            self.take(caller, 1.0, now);
        }
    }

    fn take(&self, caller: Caller, connects: f64, now: Instant) -> bool {
        if caller.0 == Some(0) {
            return true;
        }
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, bucket| !bucket.is_full(now));
        }
        // Too many at once share one bucket.
        let key = match callers.contains_key(&caller) || callers.len() < MAX_CALLERS {
            true => caller,
            false => (None, None),
        };
        callers
            .entry(key)
            .or_insert_with(|| TokenBucket::new(CONNECT_BURST, CONNECTS_PER_SECOND, now))
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
        assert_eq!(lines.due(Some(4001), at(0)), Some(0));
        for _ in 0..4000 {
            assert_eq!(lines.due(Some(4001), at(1)), None);
        }
        assert_eq!(lines.due(Some(4002), at(1)), Some(0));
        assert_eq!(lines.due(Some(4001), at(60)), Some(4000));
        assert_eq!(lines.due(Some(4001), at(61)), None);
    }

    #[test]
    fn lines_of_many_uids_are_bounded() {
        let now = Instant::now();
        let mut lines = Lines::default();
        let written = (0..10_000).filter(|uid| lines.due(Some(*uid), now).is_some());
        assert_eq!(written.count(), MAX_UIDS + 1);
        let later = now + INTERVAL;
        assert_eq!(
            lines.due(Some(20_000), later),
            Some(0),
            "there is room again"
        );
        assert!(lines.by_uid.len() <= MAX_UIDS);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_have_a_budget_for_each_caller_and_root_has_none() {
        let budget = ConnectBudget::default();
        let user = (Some(4001), Some(4001));
        let admitted = || (0..10_000).filter(|_| budget.admit(user)).count();
        assert_eq!(admitted(), 512);
        assert!(budget.admit((Some(4002), Some(4002))));
        assert!((0..10_000).all(|_| budget.admit((Some(0), Some(7)))));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(admitted(), 64);
        // Somebody who is polite connects for ever.
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(20)).await;
            assert!(budget.admit(user));
        }
        for _ in 0..8 {
            budget.note_flood(user);
        }
        assert!(admitted() < 64);
        for gid in 0..10_000 {
            budget.admit((Some(1), Some(gid)));
        }
        assert!(budget.callers.lock().unwrap().len() <= MAX_CALLERS + 1);
    }
}
