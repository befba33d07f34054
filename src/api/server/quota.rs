//! Quotas per uid for a bounded resource (connections, watches, bytes): a total limit, a limit per
//! uid, and a separate share for root, which other uids cannot use up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::api::server::caller::{AgentAccess, AgentCallers};

/// Connections of uids that may not call. They are open only until the refusal was read.
const MAX_REFUSED: usize = 16;
const MAX_REFUSED_PER_UID: usize = 4;

/// The quota of a socket's connections.
pub(crate) struct ConnectionQuota {
    connections: UidQuota,
    /// The uids that may call, where not everyone may. The others have a small quota of their own:
    /// they take no share of those that may call, and still read why they are refused.
    restricted: Option<(watch::Receiver<AgentCallers>, UidQuota)>,
}

impl ConnectionQuota {
    /// `allowed`: those that may call; None: everyone may.
    pub(crate) fn new(
        connections: UidQuota,
        allowed: Option<watch::Receiver<AgentCallers>>,
    ) -> ConnectionQuota {
        let refused = UidQuota::new(MAX_REFUSED, MAX_REFUSED_PER_UID);
        ConnectionQuota {
            connections,
            restricted: allowed.map(|allowed| (allowed, refused)),
        }
    }

    pub(crate) fn acquire(&self, uid: Option<u32>, gid: Option<u32>) -> Option<QuotaPermit> {
        match &self.restricted {
            Some((allowed, refused))
                if allowed.borrow().access(uid, gid) == AgentAccess::Nothing =>
            {
                refused.acquire(uid, 1)
            }
            _ => self.connections.acquire(uid, 1),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct UidQuota {
    total: usize,
    per_uid: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    /// Only uids that hold something: few, so a list is faster than a map.
    by_uid: Vec<(Option<u32>, usize)>,
    /// The sum of all uids but 0, whose share is not in the total.
    others: usize,
}

impl Held {
    /// The state is consistent after any panic: no step of a change can panic.
    fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
        held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&mut self, uid: Option<u32>, amount: usize) {
        let position = self.by_uid.iter().position(|(held, _)| *held == uid);
        let before = match position {
            Some(at) if amount == 0 => self.by_uid.swap_remove(at).1,
            Some(at) => std::mem::replace(&mut self.by_uid[at].1, amount),
            None => {
                if amount > 0 {
                    self.by_uid.push((uid, amount));
                }
                0
            }
        };
        if uid != Some(0) {
            self.others = self.others - before + amount;
        }
    }

    fn of(&self, uid: Option<u32>) -> usize {
        let held = self.by_uid.iter().find(|(held, _)| *held == uid);
        held.map_or(0, |(_, amount)| *amount)
    }
}

/// A part of the quota; it is returned when dropped.
#[derive(Debug)]
pub(crate) struct QuotaPermit {
    uid: Option<u32>,
    amount: usize,
    quota: UidQuota,
}

impl UidQuota {
    pub(crate) fn new(total: usize, per_uid: usize) -> UidQuota {
        UidQuota {
            total,
            per_uid,
            held: Arc::default(),
        }
    }

    /// None when the share of `uid` or the total is used up.
    pub(crate) fn acquire(&self, uid: Option<u32>, amount: usize) -> Option<QuotaPermit> {
        let mut permit = QuotaPermit {
            uid,
            amount: 0,
            quota: self.clone(),
        };
        permit.resize(amount).then_some(permit)
    }
}

impl QuotaPermit {
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// False, without a change, when the quota does not allow a larger amount.
    pub(crate) fn resize(&mut self, amount: usize) -> bool {
        if amount == self.amount {
            return true;
        }
        let mut held = Held::lock(&self.quota.held);
        let own = held.of(self.uid) - self.amount + amount;
        let within_total =
            self.uid == Some(0) || held.others - self.amount + amount <= self.quota.total;
        if amount > self.amount && !(own <= self.quota.per_uid && within_total) {
            return false;
        }
        held.set(self.uid, own);
        self.amount = amount;
        true
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(allow_uids: &[u32]) -> AgentCallers {
        AgentCallers {
            allow_uids: allow_uids.to_vec(),
            ..AgentCallers::default()
        }
    }

    #[test]
    fn uids_that_may_not_call_take_no_share_of_those_that_may() {
        let (uids, allowed) = watch::channel(callers(&[65532]));
        let quota = ConnectionQuota::new(UidQuota::new(2, 2), Some(allowed));
        let refused: Vec<_> = (1000..2000)
            .filter_map(|uid| quota.acquire(Some(uid), None))
            .collect();
        assert_eq!(refused.len(), MAX_REFUSED);
        let _first = quota.acquire(Some(65532), None).expect("a share");
        let _second = quota.acquire(Some(65532), None).expect("a share");
        assert!(quota.acquire(Some(65532), None).is_none());
        assert!(quota.acquire(Some(0), None).is_some());
        uids.send_replace(callers(&[65532, 1000]));
        assert!(
            quota.acquire(Some(1000), None).is_none(),
            "the total is used up"
        );
    }

    #[test]
    fn one_uid_cannot_exhaust_the_quota_of_another_and_root_is_never_locked_out() {
        let shares = UidQuota::new(3, 2);
        let mut taken: Vec<_> = (0..2)
            .map(|_| shares.acquire(Some(1000), 1).unwrap())
            .collect();
        assert!(shares.acquire(Some(1000), 1).is_none());
        taken.push(shares.acquire(Some(1001), 1).unwrap());
        assert!(shares.acquire(Some(1002), 1).is_none(), "all are given out");
        assert!(shares.acquire(Some(0), 1).is_some());
        taken.clear();
        assert!(shares.acquire(Some(1002), 1).is_some());
    }
}
