//! Shares of what is bounded: connections and watches, which have places (`places`), and bytes.
//! Root's share is its own, and others cannot use it up. What is left for the others grows smaller
//! with each that takes a part, and is never used up by one of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::api::server::caller::{AgentAccess, AgentCallers, CallerId};
use diskvitals_host::subordinate_uids::SubordinateUids;
use diskvitals_quota::places::{Activity, InUse, PlacePermit, Places};

/// Connections of callers that may not call. They are open only until the refusal was read.
const MAX_REFUSED: usize = 16;
const MAX_REFUSED_PER_UID: usize = 4;

/// Whom a caller counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Uid 0, without a group that makes it a reader: an interposer's uid is 0, too.
    Root,
    Other,
    /// It may not call here.
    Refused,
}

/// The part of a caller, of what has no places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    Root,
    Uid(Option<u32>),
    /// Uid 0 in a group of readers: pods have both in common, and are told apart by their control
    /// groups.
    Reader(Option<u32>, Option<Arc<str>>),
}

impl Share {
    pub(crate) fn new(standing: Standing, caller: &CallerId) -> Share {
        match (standing, caller.uid) {
            (Standing::Root, _) => Share::Root,
            (_, Some(0)) => Share::Reader(caller.gid, caller.control_groups.clone()),
            _ => Share::Uid(caller.counted_uid()),
        }
    }
}

/// Places of root, and places of all others.
#[derive(Clone, Debug)]
pub(crate) struct SharedPlaces {
    root: Places<CallerId>,
    others: Places<CallerId>,
}

impl SharedPlaces {
    pub(crate) fn new(total: usize, per_uid: usize) -> SharedPlaces {
        SharedPlaces { root: Places::new(per_uid, per_uid), others: Places::new(total, per_uid) }
    }

    /// A place that is in use until it is free.
    pub(crate) fn acquire_in_use(
        &self,
        standing: Standing,
        caller: &CallerId,
    ) -> Option<(PlacePermit<CallerId>, InUse)> {
        let activity = Activity::new();
        let in_use = activity.begin();
        Some((self.of(standing).acquire(caller, &activity)?, in_use))
    }

    fn of(&self, standing: Standing) -> &Places<CallerId> {
        match standing {
            Standing::Root => &self.root,
            Standing::Other | Standing::Refused => &self.others,
        }
    }
}

/// The quota of a socket's connections.
pub(crate) struct ConnectionQuota {
    places: SharedPlaces,
    /// The callers that may call, where not everyone may.
    allowed: Option<watch::Receiver<AgentCallers>>,
    subordinate: watch::Receiver<Arc<SubordinateUids>>,
    /// Those that may not have a small quota of their own: they take no share of those that may, and
    /// still read why they are refused.
    refused: Places<CallerId>,
}

impl ConnectionQuota {
    /// `allowed`: those that may call; None: everyone may.
    pub(crate) fn new(
        places: SharedPlaces,
        allowed: Option<watch::Receiver<AgentCallers>>,
        subordinate: watch::Receiver<Arc<SubordinateUids>>,
    ) -> ConnectionQuota {
        let refused = Places::new(MAX_REFUSED, MAX_REFUSED_PER_UID);
        ConnectionQuota { places, allowed, subordinate, refused }
    }

    /// Without what is known of its process.
    pub(crate) fn caller(&self, uid: Option<u32>, gid: Option<u32>) -> CallerId {
        let subordinate = uid.and_then(|uid| self.subordinate.borrow().first_of_owner(uid));
        CallerId { uid, gid, subordinate, ..CallerId::default() }
    }

    pub(crate) fn standing(&self, uid: Option<u32>, gid: Option<u32>) -> Standing {
        let access = match &self.allowed {
            Some(allowed) => allowed.borrow().access(uid, gid),
            None => AgentAccess::Full,
        };
        match access {
            AgentAccess::Nothing => Standing::Refused,
            AgentAccess::Full if uid == Some(0) => Standing::Root,
            AgentAccess::Full | AgentAccess::Read => Standing::Other,
        }
    }

    pub(crate) fn acquire(
        &self,
        standing: Standing,
        caller: &CallerId,
        activity: &Arc<Activity>,
    ) -> Option<PlacePermit<CallerId>> {
        let places = match standing {
            Standing::Refused => &self.refused,
            Standing::Root | Standing::Other => self.places.of(standing),
        };
        places.acquire(caller, activity)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ByteQuota {
    total: usize,
    per_share: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    /// Only those that hold something: few, so a list is faster than a map.
    by_share: Vec<(Share, usize)>,
    /// The sum of all but root's, which is not in the total.
    others: usize,
}

impl Held {
    /// The state is consistent after any panic: no step of a change can panic.
    fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
        held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&mut self, share: &Share, amount: usize) {
        let position = self.by_share.iter().position(|(held, _)| held == share);
        let before = match position {
            Some(at) if amount == 0 => self.by_share.swap_remove(at).1,
            Some(at) => std::mem::replace(&mut self.by_share[at].1, amount),
            None => {
                if amount > 0 {
                    self.by_share.push((share.clone(), amount));
                }
                0
            }
        };
        if *share != Share::Root {
            self.others = self.others - before + amount;
        }
    }

    fn of(&self, share: &Share) -> usize {
        let held = self.by_share.iter().find(|(held, _)| held == share);
        held.map_or(0, |(_, amount)| *amount)
    }
}

/// A part of the quota; it is returned when dropped.
#[derive(Debug)]
pub(crate) struct BytePermit {
    share: Share,
    amount: usize,
    quota: ByteQuota,
}

impl ByteQuota {
    pub(crate) fn new(total: usize, per_share: usize) -> ByteQuota {
        ByteQuota { total, per_share, held: Arc::default() }
    }

    /// None when the share of the caller is used up.
    pub(crate) fn acquire(&self, share: &Share, amount: usize) -> Option<BytePermit> {
        let mut permit = BytePermit { share: share.clone(), amount: 0, quota: self.clone() };
        permit.resize(amount).then_some(permit)
    }
}

impl BytePermit {
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// False, without a change, when the quota does not allow a larger amount.
    pub(crate) fn resize(&mut self, amount: usize) -> bool {
        if amount == self.amount {
            return true;
        }
        let mut held = Held::lock(&self.quota.held);
        let own = held.of(&self.share) - self.amount + amount;
        // What a caller holds, it leaves free for the others once more: each that comes finds a part,
        // whatever those before it hold and never give back.
        let leaves_enough = self.share == Share::Root
            || held.others - self.amount + amount + own <= self.quota.total;
        if amount > self.amount && !(own <= self.quota.per_share && leaves_enough) {
            return false;
        }
        held.set(&self.share, own);
        self.amount = amount;
        true
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32, gid: u32) -> CallerId {
        CallerId { uid: Some(uid), gid: Some(gid), ..CallerId::default() }
    }

    /// With a call, as long as it is open.
    fn connect(
        quota: &ConnectionQuota,
        caller: &CallerId,
    ) -> Option<(PlacePermit<CallerId>, InUse)> {
        let activity = Activity::new();
        let standing = quota.standing(caller.uid, caller.gid);
        let permit = quota.acquire(standing, caller, &activity)?;
        Some((permit, activity.begin()))
    }

    fn no_ranges() -> watch::Receiver<Arc<SubordinateUids>> {
        watch::channel(Arc::default()).1
    }

    fn callers() -> AgentCallers {
        AgentCallers { allow_uids: vec![65532], read_uids: Vec::new(), read_gids: vec![65533] }
    }

    #[tokio::test]
    async fn callers_that_may_not_call_take_no_share_of_those_that_may() {
        let (_callers, allowed) = watch::channel(callers());
        let quota = ConnectionQuota::new(SharedPlaces::new(2, 2), Some(allowed), no_ranges());
        let refused: Vec<_> =
            (1000..2000).filter_map(|uid| connect(&quota, &caller(uid, uid))).collect();
        assert_eq!(refused.len(), MAX_REFUSED);
        let held: Vec<_> = (0..3).filter_map(|_| connect(&quota, &caller(65532, 65532))).collect();
        assert_eq!(held.len(), 2);
        assert!(connect(&quota, &caller(0, 0)).is_some());
    }

    #[tokio::test]
    async fn an_interposer_whose_uid_is_0_takes_no_share_of_root() {
        let (_callers, allowed) = watch::channel(callers());
        let quota = ConnectionQuota::new(SharedPlaces::new(96, 32), Some(allowed), no_ranges());
        let interposer: Vec<_> =
            (0..40).filter_map(|_| connect(&quota, &caller(0, 65533))).collect();
        assert_eq!(interposer.len(), 32);
        let root: Vec<_> = (0..40).filter_map(|_| connect(&quota, &caller(0, 0))).collect();
        assert_eq!(root.len(), 32);
        let bytes = ByteQuota::new(6 << 20, 3 << 20);
        let of = |gid| Share::new(quota.standing(Some(0), Some(gid)), &caller(0, gid));
        let _greedy = bytes.acquire(&of(65533), 3 << 20).expect("all it may have");
        assert!(bytes.acquire(&of(65533), 1).is_none());
        assert!(bytes.acquire(&of(0), 3 << 20).is_some());
    }

    #[tokio::test]
    async fn a_reader_with_all_waiting_requests_locks_out_neither_root_nor_another_reader() {
        let places = SharedPlaces::new(24, 8);
        let take = |standing, uid| places.acquire_in_use(standing, &caller(uid, uid));
        let greedy: Vec<_> = (1..=3)
            .flat_map(|uid| (0..100).filter_map(move |_| take(Standing::Other, uid)))
            .collect();
        assert_eq!(greedy.len(), 24);
        assert!(take(Standing::Root, 0).is_some());
        let other = take(Standing::Other, 4).expect("a place");
        let again: Vec<_> = (0..100).filter_map(|_| take(Standing::Other, 1)).collect();
        assert!(!*other.0.revoked.borrow(), "{}", again.len());
    }

    #[tokio::test]
    async fn a_user_with_subordinate_uids_counts_as_one_more_user_and_not_as_thousands() {
        let ranges = SubordinateUids::parse("greedy:100000:65536\n");
        let (_ranges, ranges) = watch::channel(Arc::new(ranges));
        let quota = ConnectionQuota::new(SharedPlaces::new(96, 32), None, ranges);
        let connect = |uid| {
            let (caller, activity) = (quota.caller(Some(uid), Some(uid)), Activity::new());
            let permit = quota.acquire(Standing::Other, &caller, &activity)?;
            Some((permit, activity.begin(), Share::new(Standing::Other, &caller)))
        };
        let victims: Vec<_> = (0..30).filter_map(|_| connect(4001)).collect();
        let greedy: Vec<_> = (100_000..102_000).filter_map(connect).collect();
        let is_left = |held: &&(PlacePermit<CallerId>, InUse, Share)| !*held.0.revoked.borrow();
        assert_eq!(victims.iter().filter(is_left).count(), 30);
        assert_eq!(greedy.iter().filter(is_left).count(), 32);
        assert!(greedy.iter().all(|held| held.2 == Share::Uid(Some(100_000))));
        // What a caller may do is decided by the uid that it has.
        assert_eq!(quota.caller(Some(100_007), None).uid, Some(100_007));
    }

    #[test]
    fn nobody_uses_up_the_bytes_of_others_who_come_later() {
        let quota = ByteQuota::new(6 << 20, 3 << 20);
        let mut held = Vec::new();
        for uid in 0..8 {
            let share = Share::Uid(Some(uid));
            let mut own = 0;
            while let Some(permit) = quota.acquire(&share, 4096) {
                own += permit.amount();
                held.push(permit);
            }
            assert!(own >= (6 << 20) >> (uid + 1), "{uid} has {own}");
        }
        assert!(quota.acquire(&Share::Root, 3 << 20).is_some());
        held.clear();
        assert!(quota.acquire(&Share::Uid(Some(9)), 3 << 20).is_some());
    }
}
