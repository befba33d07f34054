//! Fair shares of something bounded (connections, watches): so many in all, so many for one uid,
//! and root never locked out by others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug)]
pub struct Shares {
    total: usize,
    per_uid: usize,
    held: Arc<Mutex<HashMap<Option<u32>, usize>>>,
}

/// One of them; given back when dropped.
#[derive(Debug)]
pub struct Share {
    uid: Option<u32>,
    held: Arc<Mutex<HashMap<Option<u32>, usize>>>,
}

impl Shares {
    pub fn new(total: usize, per_uid: usize) -> Shares {
        Shares {
            total,
            per_uid,
            held: Arc::default(),
        }
    }

    /// None when `uid` has its share, or all are given out. Uid 0 has its share beside the total.
    pub fn take(&self, uid: Option<u32>) -> Option<Share> {
        // The map is whole after any panic: each change is one step.
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
        Some(Share {
            uid,
            held: self.held.clone(),
        })
    }
}

impl Drop for Share {
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
    fn one_uid_cannot_take_the_share_of_another_and_root_is_never_locked_out() {
        let shares = Shares::new(3, 2);
        let mut taken: Vec<_> = (0..2).map(|_| shares.take(Some(1000)).unwrap()).collect();
        assert!(shares.take(Some(1000)).is_none());
        taken.push(shares.take(Some(1001)).unwrap());
        assert!(shares.take(Some(1002)).is_none(), "all are given out");
        assert!(shares.take(Some(0)).is_some());
        taken.clear();
        assert!(shares.take(Some(1002)).is_some());
    }
}
