//! Quotas per uid for a bounded resource (connections, watches): a total limit, a limit per uid,
//! and a separate share for root, which other uids cannot use up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug)]
pub(crate) struct UidQuota {
    total: usize,
    per_uid: usize,
    held: Arc<Mutex<HashMap<Option<u32>, usize>>>,
}

/// One unit of the quota; it is returned when dropped.
#[derive(Debug)]
pub(crate) struct QuotaPermit {
    uid: Option<u32>,
    held: Arc<Mutex<HashMap<Option<u32>, usize>>>,
}

impl UidQuota {
    pub(crate) fn new(total: usize, per_uid: usize) -> UidQuota {
        UidQuota {
            total,
            per_uid,
            held: Arc::default(),
        }
    }

    /// None when the share of `uid` or the total is used up. Uid 0's share is not in the total.
    pub(crate) fn acquire(&self, uid: Option<u32>) -> Option<QuotaPermit> {
        // The map is consistent after any panic: each change is one step.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = held
            .iter()
            .filter(|(uid, _)| **uid != Some(0))
            .map(|(_, count)| *count)
            .sum();
        let own = held.get(&uid).copied().unwrap_or(0);
        if own >= self.per_uid || (uid != Some(0) && others >= self.total) {
            return None;
        }
        held.insert(uid, own + 1);
        Some(QuotaPermit {
            uid,
            held: self.held.clone(),
        })
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uid_cannot_exhaust_the_quota_of_another_and_root_is_never_locked_out() {
        let shares = UidQuota::new(3, 2);
        let mut taken: Vec<_> = (0..2)
            .map(|_| shares.acquire(Some(1000)).unwrap())
            .collect();
        assert!(shares.acquire(Some(1000)).is_none());
        taken.push(shares.acquire(Some(1001)).unwrap());
        assert!(shares.acquire(Some(1002)).is_none(), "all are given out");
        assert!(shares.acquire(Some(0)).is_some());
        taken.clear();
        assert!(shares.acquire(Some(1002)).is_some());
    }
}
