//! Lists that come in parts: only a complete one replaces what is known.
//!
//! In: changes of a watch. Out: the known objects by name, whether they are complete, whether the
//! watch fails, and for how long everything has been seen. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::release::check::PolicyObject;
use crate::model::{Elapsed, Node, Report, View, Volume};
use diskvitals_kubernetes::watch::Change;

/// A kind of objects that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    Nodes,
    Reports,
    Volumes,
    /// The CSI drivers of nodes.
    Drivers,
    Policies,
}

impl List {
    pub(crate) fn resource(self) -> &'static str {
        match self {
            List::Nodes => "nodes",
            List::Reports => "nodestorages",
            List::Volumes => "persistentvolumes",
            List::Drivers => "csinodes",
            List::Policies => "storagepolicies",
        }
    }
}

#[allow(clippy::large_enum_variant, reason = "it is moved once, from a watch to the owner")]
#[derive(Clone, Debug)]
pub(crate) enum ClusterChange {
    Node(Change<Node>),
    Report(Change<Report>),
    Volume(Change<Volume>),
    Policy(Change<PolicyObject>),
    /// The CSI drivers of a node.
    Drivers(Change<BTreeSet<String>>),
}

/// Lists that are being received, and which kinds are known completely.
#[derive(Default)]
pub(crate) struct Lists {
    nodes: Listing<Node>,
    reports: Listing<Report>,
    volumes: Listing<Volume>,
    drivers: Listing<BTreeSet<String>>,
    policies: Listing<PolicyObject>,
}

impl Lists {
    /// The list, if what is known of it has changed.
    pub(crate) fn apply(&mut self, change: ClusterChange, view: &mut View) -> Option<List> {
        let (list, is_changed) = match change {
            ClusterChange::Node(it) => (List::Nodes, self.nodes.apply(it, &mut view.nodes)),
            ClusterChange::Report(it) => (List::Reports, self.reports.apply(it, &mut view.reports)),
            ClusterChange::Volume(it) => (List::Volumes, self.volumes.apply(it, &mut view.volumes)),
            ClusterChange::Drivers(it) => {
                (List::Drivers, self.drivers.apply(it, &mut view.drivers))
            }
            ClusterChange::Policy(it) => {
                (List::Policies, self.policies.apply(it, &mut view.policies))
            }
        };
        is_changed.then_some(list)
    }

    pub(crate) fn state(&self, list: List) -> ListState {
        match list {
            List::Nodes => self.nodes.state,
            List::Reports => self.reports.state,
            List::Volumes => self.volumes.state,
            List::Drivers => self.drivers.state,
            List::Policies => self.policies.state,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListState {
    pub is_complete: bool,
    /// Until the next list is complete: what changed meanwhile is not known.
    pub is_failing: bool,
}

struct Listing<T> {
    new: BTreeMap<String, T>,
    state: ListState,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing { new: BTreeMap::new(), state: ListState::default() }
    }
}

impl<T: PartialEq> Listing<T> {
    /// True if what is known has changed. What was known stays until a new list is complete.
    fn apply(&mut self, change: Change<T>, known: &mut BTreeMap<String, T>) -> bool {
        match change {
            Change::Listing => self.new.clear(),
            Change::ListedOne(name, object) => {
                self.new.insert(name, object);
            }
            Change::Listed => {
                *known = std::mem::take(&mut self.new);
                self.state = ListState { is_complete: true, is_failing: false };
                return true;
            }
            Change::Set(name, object) => {
                if known.get(&name) == Some(&object) {
                    return false;
                }
                known.insert(name, object);
                return true;
            }
            Change::Deleted(name) => return known.remove(&name).is_some(),
            Change::Failing => self.state.is_failing = true,
        }
        false
    }
}

/// A clock that stands still while a watch fails: a state that was seen before and after does not
/// count as having lasted in between.
#[derive(Debug, Default)]
pub(crate) struct SeenTime {
    total: Elapsed,
    since: Option<Instant>,
}

impl SeenTime {
    pub(crate) fn set(&mut self, is_seeing: bool, at: Instant) {
        match (is_seeing, self.since) {
            (true, None) => self.since = Some(at),
            (false, Some(since)) => {
                self.total += at.saturating_duration_since(since);
                self.since = None;
            }
            _ => {}
        }
    }

    pub(crate) fn elapsed(&self, at: Instant) -> Elapsed {
        let running = self.since.map(|since| at.saturating_duration_since(since));
        self.total + running.unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_watch_is_trusted_again_only_after_a_complete_list() {
        let mut listing = Listing::<u8>::default();
        let mut known = BTreeMap::new();
        let one = || Change::ListedOne("a".to_owned(), 1);
        for change in [Change::Listing, one(), Change::Listed] {
            listing.apply(change, &mut known);
        }
        assert!(listing.state.is_complete && !listing.state.is_failing);
        listing.apply(Change::Failing, &mut known);
        for change in
            [Change::Listing, Change::ListedOne("b".to_owned(), 2), Change::Listing, one()]
        {
            assert!(!listing.apply(change, &mut known));
            assert!(listing.state.is_failing);
        }
        assert_eq!(known, [("a".to_owned(), 1)].into());
        assert!(listing.apply(Change::Listed, &mut known));
        assert!(!listing.state.is_failing);
    }

    #[test]
    fn time_in_which_nothing_was_seen_does_not_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = SeenTime::default();
        assert_eq!(seen.elapsed(at(5)), Duration::ZERO);
        seen.set(true, at(5));
        seen.set(true, at(6));
        assert_eq!(seen.elapsed(at(15)), Duration::from_secs(10));
        seen.set(false, at(15));
        seen.set(false, at(20));
        assert_eq!(seen.elapsed(at(600)), Duration::from_secs(10));
        seen.set(true, at(600));
        assert_eq!(seen.elapsed(at(601)), Duration::from_secs(11));
    }
}
