//! Tracks the volumes whose calls have passed through the interposer, to recognize recently
//! confirmed volumes and bypassed ones.
//!
//! In: calls, and the daemon's list of the driver's volumes. Out: whether the driver has just
//! confirmed a volume; which volumes bypass the interposer. No I/O; the time is an argument.
//!
//! A volume in the first list proves nothing: its calls passed before the interposer started. One
//! list without a call also proves nothing, because lists and calls are not simultaneous.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::interposer::health_source::ListedVolume;

/// How long the driver's confirmation counts while the daemon has not found the volume yet.
const CONFIRMATION_TTL: Duration = Duration::from_secs(10);
/// Volumes without a call and without a list entry for this time are dropped.
const TRACKING_TTL: Duration = Duration::from_secs(600);
/// Number of volumes above which old ones are dropped without a list.
const EXPIRY_THRESHOLD: usize = 10_000;

#[derive(Default)]
pub(crate) struct VolumeTracker(Mutex<TrackerState>);

#[derive(Default)]
struct TrackerState {
    /// Indexed by handle.
    tracked: HashMap<String, TrackedVolume>,
    confirmed: HashMap<String, Instant>,
    has_baseline: bool,
    /// Volumes in the last list without a call.
    untracked: HashSet<String>,
}

struct TrackedVolume {
    paths: BTreeSet<String>,
    /// The volume was in the first list, so some of its paths are unknown.
    preexisting: bool,
    last_seen: Instant,
}

impl VolumeTracker {
    /// Records a stage or publish before it is forwarded to the driver. Its result is irrelevant:
    /// the call did not bypass the interposer.
    pub(crate) fn record_attach(&self, handle: &str, path: &str, now: Instant) {
        let mut state = self.lock();
        if state.tracked.len() >= EXPIRY_THRESHOLD {
            state.expire(now);
        }
        let here = state.tracked.entry(handle.to_owned()).or_insert_with(|| TrackedVolume {
            paths: BTreeSet::new(),
            preexisting: false,
            last_seen: now,
        });
        here.paths.insert(path.to_owned());
        here.last_seen = now;
    }

    /// Records that the driver has created, staged or published the volume.
    pub(crate) fn confirm(&self, handle: &str, now: Instant) {
        let mut state = self.lock();
        if state.confirmed.len() >= EXPIRY_THRESHOLD {
            state.confirmed.retain(|_, at| now.duration_since(*at) < CONFIRMATION_TTL);
        }
        state.confirmed.insert(handle.to_owned(), now);
    }

    pub(crate) fn record_unpublish(&self, handle: &str, path: &str) {
        let mut state = self.lock();
        if let Some(here) = state.tracked.get_mut(handle) {
            here.paths.remove(path);
            if here.paths.is_empty() && !here.preexisting {
                state.tracked.remove(handle);
            }
        }
        state.confirmed.remove(handle);
    }

    pub(crate) fn record_unstage(&self, handle: &str) {
        let mut state = self.lock();
        state.tracked.remove(handle);
        state.confirmed.remove(handle);
    }

    /// Whether the driver has confirmed the volume a moment ago.
    pub(crate) fn is_recently_confirmed(&self, handle: &str, now: Instant) -> bool {
        self.lock()
            .confirmed
            .get(handle)
            .is_some_and(|at| now.duration_since(*at) < CONFIRMATION_TTL)
    }

    /// Compares the daemon's list of the driver's volumes with the calls. Returns the volumes that
    /// are in two lists in succession without a call.
    pub(crate) fn find_bypassed(&self, listed: &[ListedVolume], now: Instant) -> Vec<String> {
        let mut state = self.lock();
        let here: Vec<&str> = listed
            .iter()
            .filter(|volume| volume.attached)
            .map(|volume| volume.handle.as_str())
            .collect();
        let first = !std::mem::replace(&mut state.has_baseline, true);
        let mut unseen = HashSet::new();
        for handle in here {
            match state.tracked.get_mut(handle) {
                Some(known) => known.last_seen = now,
                None if first => {
                    state.tracked.insert(
                        handle.to_owned(),
                        TrackedVolume { paths: BTreeSet::new(), preexisting: true, last_seen: now },
                    );
                }
                None => {
                    unseen.insert(handle.to_owned());
                }
            }
        }
        let mut bypassed: Vec<String> = unseen.intersection(&state.untracked).cloned().collect();
        bypassed.sort();
        state.untracked = unseen;
        state.expire(now);
        bypassed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TrackerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackerState {
    fn expire(&mut self, now: Instant) {
        self.tracked.retain(|_, here| now.duration_since(here.last_seen) < TRACKING_TTL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interposer::health_source::{VolumeCondition, VolumeHealth};

    const MINUTE: Duration = Duration::from_secs(60);

    fn list(handles: &[&str]) -> Vec<ListedVolume> {
        let health = VolumeHealth {
            statuses: Ok(Vec::new()),
            condition: Some(VolumeCondition::default()),
            local: true,
        };
        handles
            .iter()
            .map(|handle| ListedVolume {
                handle: (*handle).to_owned(),
                attached: true,
                health: health.clone(),
            })
            .collect()
    }

    #[test]
    fn a_volume_attached_before_the_first_list_is_no_bypass() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        for minute in 0..4 {
            assert!(tracker.find_bypassed(&list(&["old"]), now + minute * MINUTE).is_empty());
        }
        tracker.record_unpublish("old", "/p");
        assert!(tracker.find_bypassed(&list(&["old"]), now + 5 * MINUTE).is_empty());
        assert!(tracker.find_bypassed(&list(&["old"]), now + 6 * MINUTE).is_empty());
    }

    #[test]
    fn a_volume_listed_twice_without_a_call_is_a_bypass() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        tracker.find_bypassed(&[], now);
        tracker.record_attach("mine", "/p", now);
        assert!(tracker.find_bypassed(&list(&["mine", "other"]), now + MINUTE).is_empty());
        assert_eq!(tracker.find_bypassed(&list(&["mine", "other"]), now + 2 * MINUTE), ["other"]);
        tracker.record_attach("other", "/p", now + 2 * MINUTE);
        assert!(tracker.find_bypassed(&list(&["mine", "other"]), now + 3 * MINUTE).is_empty());
    }

    #[test]
    fn a_call_between_two_lists_is_no_bypass() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        tracker.find_bypassed(&[], now);
        tracker.find_bypassed(&list(&["v"]), now + MINUTE);
        tracker.record_attach("v", "/p", now + MINUTE);
        assert!(tracker.find_bypassed(&list(&["v"]), now + 2 * MINUTE).is_empty());
    }

    #[test]
    fn a_volume_unstaged_through_us_and_restaged_around_us_is_a_bypass() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        tracker.find_bypassed(&list(&["v"]), now);
        tracker.record_unstage("v");
        assert!(tracker.find_bypassed(&[], now + MINUTE).is_empty());
        assert!(tracker.find_bypassed(&list(&["v"]), now + 2 * MINUTE).is_empty());
        assert_eq!(tracker.find_bypassed(&list(&["v"]), now + 3 * MINUTE), ["v"]);
    }

    #[test]
    fn unpublishing_one_of_two_paths_keeps_the_volume_tracked() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        tracker.find_bypassed(&[], now);
        tracker.record_attach("v", "/staging", now);
        tracker.record_attach("v", "/pod", now);
        tracker.record_unpublish("v", "/pod");
        assert!(tracker.find_bypassed(&list(&["v"]), now + MINUTE).is_empty());
        assert!(tracker.find_bypassed(&list(&["v"]), now + 2 * MINUTE).is_empty());
    }

    #[test]
    fn a_confirmation_is_recent_for_ten_seconds() {
        let (tracker, now) = (VolumeTracker::default(), Instant::now());
        tracker.confirm("v", now);
        assert!(tracker.is_recently_confirmed("v", now + Duration::from_secs(9)));
        assert!(!tracker.is_recently_confirmed("v", now + Duration::from_secs(10)));
        assert!(!tracker.is_recently_confirmed("w", now));
        tracker.confirm("v", now);
        tracker.record_unstage("v");
        assert!(!tracker.is_recently_confirmed("v", now));
    }
}
