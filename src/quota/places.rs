//! Places: for connections, and for watches. When none is free, a newcomer takes that of somebody who
//! has more, or one that is not in use. So nobody locks others out.
//!
//! Shares are equal at each level of holders: among uids, then among the groups of each uid, and so on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

/// Who has a place.
pub trait Holder: Clone {
    const LEVELS: usize;

    /// Whether both are in the same group at this level, if they are at all levels above it.
    fn is_with(&self, other: &Self, level: usize) -> bool;
}

/// Whether a place is in use: calls that are not answered completely.
#[derive(Debug)]
pub struct Activity(Mutex<(usize, Instant)>);

impl Activity {
    pub fn new() -> Arc<Activity> {
        Arc::new(Activity(Mutex::new((0, Instant::now()))))
    }

    /// A call, until the result is dropped.
    pub fn begin(self: &Arc<Activity>) -> InUse {
        self.change(|calls| calls + 1);
        InUse(self.clone())
    }

    fn change(&self, calls: impl FnOnce(usize) -> usize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (calls(state.0), Instant::now());
    }

    /// Since when there is no call.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.0 == 0).then_some(state.1)
    }
}

#[derive(Debug)]
pub struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.change(|calls| calls - 1);
    }
}

#[derive(Clone, Debug)]
pub struct Places<H> {
    total: usize,
    per_group: usize,
    taken: Arc<Mutex<Taken<H>>>,
}

#[derive(Debug)]
struct Taken<H> {
    next: u64,
    places: Vec<Place<H>>,
}

#[derive(Debug)]
struct Place<H> {
    id: u64,
    holder: H,
    activity: Arc<Activity>,
    revoke: watch::Sender<bool>,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub struct PlacePermit<H> {
    id: u64,
    taken: Arc<Mutex<Taken<H>>>,
    /// True once somebody else has the place.
    pub revoked: watch::Receiver<bool>,
}

impl<H: Holder> Places<H> {
    pub fn new(total: usize, per_group: usize) -> Places<H> {
        Places {
            total,
            per_group,
            taken: Arc::new(Mutex::new(Taken { next: 0, places: Vec::new() })),
        }
    }

    /// None if all places are in use by others who have no more than `holder`. `per_group`: of the
    /// first level.
    pub fn acquire(&self, holder: &H, activity: &Arc<Activity>) -> Option<PlacePermit<H>> {
        let mut taken = lock(&self.taken);
        let of_group = |place: &&Place<H>| place.holder.is_with(holder, 0);
        let own = taken.places.iter().filter(of_group).count();
        let yielding = if own >= self.per_group {
            Some(taken.places.iter().filter(of_group).collect())
        } else if taken.places.len() >= self.total {
            Some(taken.places.iter().collect())
        } else {
            None
        };
        if let Some(candidates) = yielding {
            let id = yielding_place(candidates, holder)?.id;
            let at = taken.places.iter().position(|place| place.id == id)?;
            taken.places.swap_remove(at).revoke.send_replace(true);
        }
        let id = taken.next;
        taken.next += 1;
        let (revoke, revoked) = watch::channel(false);
        taken.places.push(Place { id, holder: holder.clone(), activity: activity.clone(), revoke });
        Some(PlacePermit { id, taken: self.taken.clone(), revoked })
    }
}

/// The state is consistent after any panic: no step of a change can panic.
fn lock<H>(taken: &Mutex<Taken<H>>) -> MutexGuard<'_, Taken<H>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<H> Drop for PlacePermit<H> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.places.retain(|place| place.id != self.id);
    }
}

/// The place that a newcomer takes.
fn yielding_place<'a, H: Holder>(
    mut candidates: Vec<&'a Place<H>>,
    newcomer: &H,
) -> Option<&'a Place<H>> {
    // The newcomer has less than those that are left: one of them yields, also one in use.
    let mut is_entitled = false;
    for level in 0..H::LEVELS {
        let groups = groups_at(candidates, level);
        let largest = groups.iter().map(Vec::len).max()?;
        let is_own = |group: &&Vec<&Place<H>>| is_same(&group[0].holder, newcomer, level);
        let own = groups.iter().find(is_own).map_or(0, Vec::len);
        is_entitled |= largest > own + 1;
        let has_more = |group: &&Vec<&'a Place<H>>| group.len() > own;
        if !is_entitled && let Some(idle) = longest_idle(groups.iter().filter(has_more).flatten()) {
            return Some(idle);
        }
        let remaining = groups.iter().filter(|group| match is_entitled {
            true => group.len() == largest,
            false => is_own(group),
        });
        candidates = remaining.flatten().copied().collect();
    }
    longest_idle(&candidates).or_else(|| {
        let newest = candidates.into_iter().max_by_key(|place| place.id);
        newest.filter(|_| is_entitled)
    })
}

fn is_same<H: Holder>(one: &H, other: &H, level: usize) -> bool {
    (0..=level).all(|level| one.is_with(other, level))
}

fn groups_at<H: Holder>(places: Vec<&Place<H>>, level: usize) -> Vec<Vec<&Place<H>>> {
    let mut groups: Vec<Vec<&Place<H>>> = Vec::new();
    for place in places {
        let same = |group: &&mut Vec<&Place<H>>| is_same(&group[0].holder, &place.holder, level);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

fn longest_idle<'a, 'p: 'a, H: 'p>(
    places: impl IntoIterator<Item = &'a &'p Place<H>>,
) -> Option<&'p Place<H>> {
    let idle = places
        .into_iter()
        .filter_map(|place| Some((place.activity.idle_since()?, place.id, *place)));
    idle.min_by_key(|(since, id, _)| (*since, *id)).map(|(_, _, place)| place)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Uid, gid, control group and process, as those of the daemon's sockets.
    #[derive(Clone, Debug)]
    struct Caller(u32, u32, &'static str, u32);

    impl Holder for Caller {
        const LEVELS: usize = 4;

        fn is_with(&self, other: &Caller, level: usize) -> bool {
            match level {
                0 => self.0 == other.0,
                1 => self.1 == other.1,
                2 => self.2 == other.2,
                _ => self.3 == other.3,
            }
        }
    }

    fn holder(uid: u32, gid: u32, group: &'static str, pid: u32) -> Caller {
        Caller(uid, gid, group, pid)
    }

    fn user(uid: u32) -> Caller {
        holder(uid, uid, "/user.slice", uid)
    }

    /// A connection, idle or with a call.
    struct Held {
        permit: PlacePermit<Caller>,
        activity: Arc<Activity>,
        _call: Option<InUse>,
    }

    impl Held {
        fn is_revoked(&self) -> bool {
            *self.permit.revoked.borrow()
        }
    }

    fn take(places: &Places<Caller>, holder: &Caller, is_in_use: bool) -> Option<Held> {
        let activity = Activity::new();
        Some(Held {
            permit: places.acquire(holder, &activity)?,
            _call: is_in_use.then(|| activity.begin()),
            activity,
        })
    }

    fn left(held: &[Held]) -> usize {
        held.iter().filter(|held| !held.is_revoked()).count()
    }

    #[tokio::test]
    async fn users_who_have_all_places_in_use_lock_nobody_out() {
        let places = Places::new(96, 32);
        let mut greedy: Vec<Held> = Vec::new();
        for uid in 1..=3 {
            greedy.extend((0..100).filter_map(|_| take(&places, &user(uid), true)));
        }
        assert_eq!(greedy.len(), 96);
        // Each of many users gets one, and keeps it.
        let others: Vec<Held> =
            (10..60).map(|uid| take(&places, &user(uid), true).expect("a place")).collect();
        assert_eq!((left(&greedy), left(&others)), (46, 50));
        assert!(take(&places, &user(1), true).is_none(), "more than the others");
        assert_eq!((left(&greedy), left(&others)), (46, 50));
    }

    #[tokio::test]
    async fn neither_gids_nor_processes_of_a_uid_take_places_of_another() {
        for (gids, pids) in [(1, 1000), (1000, 1), (1000, 1000)] {
            let places = Places::new(8, 6);
            let victim = take(&places, &user(7), true).expect("a place");
            let mut greedy = Vec::new();
            for number in 0..1000 {
                let holder = holder(1, number % gids, "/user.slice", number % pids);
                greedy.extend(take(&places, &holder, true));
            }
            assert_eq!(left(&greedy), 6);
            let newcomer = take(&places, &user(8), true).expect("a place");
            let second = take(&places, &user(9), true).expect("a place");
            assert_eq!(left(&[victim, newcomer, second]), 3);
        }
    }

    #[tokio::test]
    async fn two_groups_of_root_have_equal_parts() {
        let places = Places::new(96, 32);
        let first: Vec<Held> =
            (0..32).filter_map(|_| take(&places, &holder(0, 65533, "/pod-a", 1), true)).collect();
        let second: Vec<Held> =
            (0..32).filter_map(|_| take(&places, &holder(0, 65534, "/pod-b", 2), true)).collect();
        assert_eq!((left(&first), left(&second)), (16, 16));
    }

    #[tokio::test]
    async fn a_pod_with_many_processes_has_no_more_than_another_pod_of_its_uid() {
        let places = Places::new(96, 32);
        let forks: Vec<Held> = (0..1000)
            .filter_map(|pid| take(&places, &holder(0, 65533, "/pod-a", pid), true))
            .collect();
        assert_eq!(left(&forks), 32);
        let honest: Vec<Held> =
            (0..16).filter_map(|_| take(&places, &holder(0, 65533, "/pod-b", 7), true)).collect();
        let again: Vec<Held> = (0..1000)
            .filter_map(|pid| take(&places, &holder(0, 65533, "/pod-a", 2000 + pid), true))
            .collect();
        assert_eq!(left(&honest), 16);
        assert_eq!(left(&forks) + left(&again), 16);
    }

    #[tokio::test]
    async fn within_a_pod_a_process_with_one_connection_does_not_yield_to_one_with_many() {
        let places = Places::new(96, 8);
        let one = take(&places, &holder(1, 1, "/a", 1), false).expect("a place");
        let many: Vec<Held> =
            (0..50).filter_map(|_| take(&places, &holder(1, 1, "/a", 2), true)).collect();
        assert!(!one.is_revoked());
        assert_eq!(left(&many), 7);
        let other = take(&places, &holder(1, 1, "/a", 3), true).expect("a place");
        assert!(!one.is_revoked() && !other.is_revoked());
        assert_eq!(left(&many), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_idle_for_longest_yields_to_a_newcomer() {
        let places = Places::new(4, 4);
        let mut held = Vec::new();
        for pid in 0..4 {
            held.push(take(&places, &holder(1, 1, "/a", pid), pid == 0).expect("a place"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The second was used since.
        drop(held[1].activity.begin());
        for expected in [2, 3] {
            tokio::time::advance(Duration::from_secs(1)).await;
            let newcomer = take(&places, &holder(2, 2, "/b", 1), true);
            assert!(held[expected].is_revoked(), "{expected}");
            held.extend(newcomer);
        }
        // Both have half: what the other does not use remains the other's.
        assert!(take(&places, &holder(2, 2, "/b", 1), true).is_none());
        assert!(take(&places, &holder(1, 1, "/a", 9), true).is_some());
        assert!(held[1].is_revoked() && !held[0].is_revoked());
        held.truncate(1);
        assert!(take(&places, &holder(2, 2, "/b", 1), true).is_some());
    }
}
