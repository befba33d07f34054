//! Which volumes' calls have passed by: what is fresh, and what came by another way.
//!
//! In: calls, and the daemon's list of the driver's volumes. Out: whether the driver has just
//! vouched for a volume; which volumes bypass us. No I/O; the time is an argument.
//!
//! A volume that was here before our first look at the list says nothing: its calls passed before
//! we started. Neither does one that is missing at one look only, for lists and calls are not seen
//! at the same moment.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::csi::interposer::verdict::Listed;

/// For so long after a call that succeeded the driver's own word counts, where the daemon has not
/// found the volume yet.
const FRESH: Duration = Duration::from_secs(10);
/// What is neither called for nor listed for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Where forgetting begins without a list.
const MANY: usize = 10_000;

#[derive(Default)]
pub struct Seen(Mutex<State>);

#[derive(Default)]
struct State {
    /// By handle.
    here: HashMap<String, Here>,
    vouched: HashMap<String, Instant>,
    looked: bool,
    /// Here at the last look, without a call.
    unseen: HashSet<String>,
}

struct Here {
    paths: BTreeSet<String>,
    /// It was here before our first look, so that we do not know all its paths.
    before: bool,
    last: Instant,
}

impl Seen {
    /// A stage or publish has passed towards the driver. How it ends does not matter: it came by
    /// this way.
    pub fn begun(&self, handle: &str, path: &str, now: Instant) {
        let mut state = self.lock();
        if state.here.len() >= MANY {
            state.forget(now);
        }
        let here = state.here.entry(handle.to_owned()).or_insert_with(|| Here {
            paths: BTreeSet::new(),
            before: false,
            last: now,
        });
        here.paths.insert(path.to_owned());
        here.last = now;
    }

    /// The driver said that it has made, staged or published the volume.
    pub fn vouched(&self, handle: &str, now: Instant) {
        let mut state = self.lock();
        if state.vouched.len() >= MANY {
            state
                .vouched
                .retain(|_, at| now.duration_since(*at) < FRESH);
        }
        state.vouched.insert(handle.to_owned(), now);
    }

    pub fn unpublished(&self, handle: &str, path: &str) {
        let mut state = self.lock();
        if let Some(here) = state.here.get_mut(handle) {
            here.paths.remove(path);
            if here.paths.is_empty() && !here.before {
                state.here.remove(handle);
            }
        }
        state.vouched.remove(handle);
    }

    pub fn unstaged(&self, handle: &str) {
        let mut state = self.lock();
        state.here.remove(handle);
        state.vouched.remove(handle);
    }

    /// The driver has vouched for it a moment ago.
    pub fn is_fresh(&self, handle: &str, now: Instant) -> bool {
        self.lock()
            .vouched
            .get(handle)
            .is_some_and(|at| now.duration_since(*at) < FRESH)
    }

    /// The daemon's list of the driver's volumes. Those that are here, at the second look in
    /// succession, without a call of theirs having passed.
    pub fn look(&self, listed: &[Listed], now: Instant) -> Vec<String> {
        let mut state = self.lock();
        let here: Vec<&str> = listed
            .iter()
            .filter(|volume| volume.here)
            .map(|volume| volume.handle.as_str())
            .collect();
        let first = !std::mem::replace(&mut state.looked, true);
        let mut unseen = HashSet::new();
        for handle in here {
            match state.here.get_mut(handle) {
                Some(known) => known.last = now,
                None if first => {
                    state.here.insert(
                        handle.to_owned(),
                        Here {
                            paths: BTreeSet::new(),
                            before: true,
                            last: now,
                        },
                    );
                }
                None => {
                    unseen.insert(handle.to_owned());
                }
            }
        }
        let mut bypassed: Vec<String> = unseen.intersection(&state.unseen).cloned().collect();
        bypassed.sort();
        state.unseen = unseen;
        state.forget(now);
        bypassed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self, now: Instant) {
        self.here
            .retain(|_, here| now.duration_since(here.last) < FORGOTTEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::interposer::verdict::{Condition, Told};

    const MINUTE: Duration = Duration::from_secs(60);

    fn list(handles: &[&str]) -> Vec<Listed> {
        let told = Told {
            statuses: Ok(Vec::new()),
            condition: Condition::default(),
            local: true,
        };
        handles
            .iter()
            .map(|handle| Listed {
                handle: (*handle).to_owned(),
                here: true,
                told: told.clone(),
            })
            .collect()
    }

    #[test]
    fn what_was_here_before_the_first_look_bypasses_nobody() {
        let (seen, now) = (Seen::default(), Instant::now());
        for minute in 0..4 {
            assert!(seen.look(&list(&["old"]), now + minute * MINUTE).is_empty());
        }
        seen.unpublished("old", "/p");
        assert!(seen.look(&list(&["old"]), now + 5 * MINUTE).is_empty());
        assert!(seen.look(&list(&["old"]), now + 6 * MINUTE).is_empty());
    }

    #[test]
    fn a_volume_that_is_here_twice_without_a_call_bypasses_us() {
        let (seen, now) = (Seen::default(), Instant::now());
        seen.look(&[], now);
        seen.begun("mine", "/p", now);
        assert!(
            seen.look(&list(&["mine", "other"]), now + MINUTE)
                .is_empty()
        );
        assert_eq!(
            seen.look(&list(&["mine", "other"]), now + 2 * MINUTE),
            ["other"]
        );
        seen.begun("other", "/p", now + 2 * MINUTE);
        assert!(
            seen.look(&list(&["mine", "other"]), now + 3 * MINUTE)
                .is_empty()
        );
    }

    #[test]
    fn a_call_that_is_seen_between_two_looks_is_no_bypass() {
        let (seen, now) = (Seen::default(), Instant::now());
        seen.look(&[], now);
        seen.look(&list(&["v"]), now + MINUTE);
        seen.begun("v", "/p", now + MINUTE);
        assert!(seen.look(&list(&["v"]), now + 2 * MINUTE).is_empty());
    }

    #[test]
    fn a_volume_that_left_by_us_and_came_back_otherwise_is_noticed() {
        let (seen, now) = (Seen::default(), Instant::now());
        seen.look(&list(&["v"]), now);
        seen.unstaged("v");
        assert!(seen.look(&[], now + MINUTE).is_empty());
        assert!(seen.look(&list(&["v"]), now + 2 * MINUTE).is_empty());
        assert_eq!(seen.look(&list(&["v"]), now + 3 * MINUTE), ["v"]);
    }

    #[test]
    fn one_pod_of_two_that_leaves_takes_nothing_away() {
        let (seen, now) = (Seen::default(), Instant::now());
        seen.look(&[], now);
        seen.begun("v", "/staging", now);
        seen.begun("v", "/pod", now);
        seen.unpublished("v", "/pod");
        assert!(seen.look(&list(&["v"]), now + MINUTE).is_empty());
        assert!(seen.look(&list(&["v"]), now + 2 * MINUTE).is_empty());
    }

    #[test]
    fn the_drivers_word_is_fresh_for_ten_seconds() {
        let (seen, now) = (Seen::default(), Instant::now());
        seen.vouched("v", now);
        assert!(seen.is_fresh("v", now + Duration::from_secs(9)));
        assert!(!seen.is_fresh("v", now + Duration::from_secs(10)));
        assert!(!seen.is_fresh("w", now));
        seen.vouched("v", now);
        seen.unstaged("v");
        assert!(!seen.is_fresh("v", now));
    }
}
