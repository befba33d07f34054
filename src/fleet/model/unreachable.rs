//! Nodes that do not reach the storage of a CSI driver: which of them get no new pods, and whose pods
//! may move. Pure.
//!
//! In: the view and the time; what lasts is remembered between two calls. Out: for each driver how
//! many of its nodes are affected, and for each node the drivers that its taint is for. A backend
//! that is away is not cured by moving pods: beyond a share of the driver's nodes, or where no node
//! proves that it reaches the storage, nothing new is decided. A node that says nothing counts as
//! affected, and clears nothing.

pub(crate) mod eviction;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{Elapsed, Node, Policy, View};
use diskvitals_cluster::node_storage::NodeStorageStatus;
use diskvitals_text::hash::sha256_short;

#[derive(Clone, Copy, Debug)]
pub struct UnreachableLimits {
    /// How long a node must not reach the storage, without interruption.
    pub hold: Duration,
    /// How long it must reach it again.
    pub good: Duration,
    /// How long it must be without a volume of the driver, which proves nothing: then it is tried
    /// again.
    pub empty: Duration,
    /// An eviction is waited for so long before it is announced.
    pub patience: Duration,
}

impl Default for UnreachableLimits {
    fn default() -> UnreachableLimits {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        UnreachableLimits {
            hold: minutes(5),
            good: minutes(10),
            empty: minutes(60),
            patience: minutes(30),
        }
    }
}

/// So many of a driver's nodes may be affected before nothing moves.
pub(crate) fn budget(nodes: usize) -> usize {
    (nodes / 5).max(1)
}

/// What a node says of a driver's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A volume answers.
    Reached,
    Unreachable,
    /// It has no volume of the driver, or none that was probed: that proves nothing.
    NoVolume,
    /// It says nothing, or something that is too old, or about another Node object.
    Unknown,
}

/// Of one driver on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pair {
    /// Since when it has been unreachable. What is unknown is no step forward: it ends the time.
    unreachable_since: Option<Elapsed>,
    reached_since: Option<Elapsed>,
    /// Since when it has been reached or without a volume.
    clear_since: Option<Elapsed>,
    /// The node gets the taint for it: from the decision on until it is good again.
    is_granted: bool,
    /// uid and machine id of the Node that it was granted for.
    node: (String, String),
}

/// What is remembered between two decisions. After a restart it is learned anew; a node that has the
/// taint keeps it until all of its drivers are good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pairs: BTreeMap<Key, Pair>,
}

/// Driver and node.
type Key = (String, String);

/// The driver of a taint whose memory is lost and whose value names none.
const SOME_DRIVER: &str = "";

/// One driver that some node does not reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverState {
    /// Nodes that have the driver.
    pub nodes: usize,
    /// Nodes that prove that they reach it.
    pub reached: usize,
    pub limit: usize,
    /// Nodes that do not reach it, are silent, or have the taint.
    pub affected: BTreeSet<String>,
    /// Those of them that say that they do not reach it, for long enough.
    pub unreachable: BTreeSet<String>,
}

impl DriverState {
    /// The backend is away for too many, or nothing shows that it is there: moving pods would help
    /// nobody.
    pub(crate) fn is_beyond(&self) -> bool {
        let is_away = self.affected.len() > self.limit || self.reached == 0;
        !self.unreachable.is_empty() && is_away
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaintOrder {
    /// The value of the taint.
    Set(String),
    Remove,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub drivers: BTreeMap<String, DriverState>,
    /// By node. What is not named stays as it is.
    pub taints: BTreeMap<String, TaintOrder>,
    /// Node and driver whose pods may be evicted: the node has the taint for it, says now that it
    /// does not reach it, and is neither away nor cordoned.
    pub evictable: BTreeSet<(String, String)>,
}

/// What one decision looks at.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub view: &'a View,
    pub policy: &'a Policy,
    pub limits: &'a UnreachableLimits,
    /// Key of the taint.
    pub key: &'a str,
    pub now: Elapsed,
    /// The API server's time.
    pub server: Option<Timestamp>,
}

impl Situation<'_> {
    pub(crate) fn reach(&self, node: &str, driver: &str) -> Reach {
        let is_ready = self.view.nodes.get(node).is_some_and(|node| node.is_ready);
        let fresh = self.view.fresh(node, self.policy, self.server);
        let Some(status) = fresh.filter(|_| is_ready) else {
            return Reach::Unknown;
        };
        let Some(listed) = &status.unreachable_drivers else {
            return Reach::Unknown;
        };
        let is_some = driver == SOME_DRIVER;
        let is_reached = |reached: &String| is_some || reached == driver;
        match listed.iter().find(|entry| is_some || entry.driver == driver) {
            Some(entry) if entry.unknown || is_some => Reach::Unknown,
            Some(_) => Reach::Unreachable,
            None if status.truncated.unreachable_drivers => Reach::Unknown,
            None if status.reached_drivers.iter().any(is_reached) => Reach::Reached,
            None => Reach::NoVolume,
        }
    }

    fn status(&self, node: &str) -> Option<&NodeStorageStatus> {
        self.view.reports.get(node)?.status.as_ref()
    }

    fn listed(&self, node: &str) -> impl Iterator<Item = &str> {
        let status = self.status(node);
        let listed = status.and_then(|status| status.unreachable_drivers.as_ref());
        listed.into_iter().flatten().map(|it| it.driver.as_str())
    }

    fn has_driver(&self, node: &str, driver: &str) -> bool {
        let registered = self.view.drivers.get(node);
        registered.is_some_and(|drivers| drivers.contains(driver))
            || self.listed(node).any(|listed| listed == driver)
            || self
                .status(node)
                .is_some_and(|status| status.reached_drivers.iter().any(|it| it == driver))
    }

    fn value(&self, node: &str) -> Option<&String> {
        self.view.nodes.get(node)?.taints.get(self.key)
    }

    /// A Node object that was created anew is the same node if it is the same machine.
    fn is_same_node(&self, name: &str, pair: &Pair) -> bool {
        self.view.nodes.get(name).is_none_or(|node| {
            let (uid, machine) = &pair.node;
            *uid == node.uid || node.machine_id.is_empty() || *machine == node.machine_id
        })
    }
}

fn identity(node: &Node) -> (String, String) {
    (node.uid.clone(), node.machine_id.clone())
}

pub(crate) fn decide(situation: &Situation<'_>, memory: &mut Memory) -> Decision {
    let view = situation.view;
    memory.forget(situation);
    memory.observe(situation);
    let mut decision = Decision::default();
    let drivers: BTreeSet<String> = memory.pairs.keys().map(|(driver, _)| driver.clone()).collect();
    for driver in drivers.into_iter().filter(|it| it != SOME_DRIVER) {
        let state = memory.driver_state(situation, &driver);
        if !state.is_beyond() {
            memory.grant(situation, &driver, &state.unreachable);
        }
        if !state.affected.is_empty() {
            decision.drivers.insert(driver, state);
        }
    }
    for (name, node) in &view.nodes {
        let wanted = memory.granted(name);
        let has = situation.value(name);
        let order = match (taint_value(&wanted), has) {
            (Some(value), has)
                if has != Some(&value) && memory.may_set(name, node, has.is_some()) =>
            {
                Some(TaintOrder::Set(value))
            }
            (None, Some(_)) if wanted.is_empty() => Some(TaintOrder::Remove),
            _ => None,
        };
        if let Some(order) = order {
            decision.taints.insert(name.clone(), order);
        } else if has.is_some() && !node.is_unschedulable {
            let drivers = decision.drivers.iter();
            let evictable = drivers.filter(|(driver, state)| {
                wanted.contains(driver.as_str())
                    && !state.is_beyond()
                    && state.unreachable.contains(name)
            });
            let pairs = evictable.map(|(driver, _)| (name.clone(), driver.clone()));
            decision.evictable.extend(pairs);
        }
    }
    decision
}

impl Memory {
    /// Pairs of deleted nodes go with their report, and those of another machine at once.
    fn forget(&mut self, situation: &Situation<'_>) {
        let view = situation.view;
        self.pairs.retain(|(_, name), pair| {
            let is_known = view.nodes.contains_key(name) || view.reports.contains_key(name);
            is_known && (!pair.is_granted || situation.is_same_node(name, pair))
        });
    }

    /// Notes since when what lasts, and which grant ends.
    fn observe(&mut self, situation: &Situation<'_>) {
        for (name, node) in &situation.view.nodes {
            for driver in situation.listed(name) {
                let key = (driver.to_owned(), name.clone());
                self.pairs.entry(key).or_default();
            }
            if let Some(value) = situation.value(name)
                && self.granted(name).is_empty()
            {
                let is_known = situation.has_driver(name, value);
                let driver = if is_known { value } else { SOME_DRIVER };
                let key = (driver.to_owned(), name.clone());
                let pair = self.pairs.entry(key).or_default();
                (pair.is_granted, pair.node) = (true, identity(node));
            }
        }
        let (now, limits) = (situation.now, situation.limits);
        self.pairs.retain(|(driver, name), pair| {
            let reach = situation.reach(name, driver);
            let since = |is_so: bool, since: Option<Elapsed>| is_so.then(|| since.unwrap_or(now));
            pair.unreachable_since = since(reach == Reach::Unreachable, pair.unreachable_since);
            pair.reached_since = since(reach == Reach::Reached, pair.reached_since);
            let is_clear = matches!(reach, Reach::Reached | Reach::NoVolume);
            pair.clear_since = since(is_clear, pair.clear_since);
            if situation.value(name).is_some()
                && let Some(node) = situation.view.nodes.get(name)
            {
                pair.node = identity(node);
            }
            let lasts = |since: Option<Elapsed>, time: Duration| {
                since.is_some_and(|since| now.saturating_sub(since) >= time)
            };
            let is_good =
                lasts(pair.reached_since, limits.good) || lasts(pair.clear_since, limits.empty);
            pair.is_granted &= !is_good;
            pair.is_granted || !is_clear
        });
    }

    fn driver_state(&self, situation: &Situation<'_>, driver: &str) -> DriverState {
        let mut state = DriverState::default();
        for name in situation.view.nodes.keys() {
            let pair = self.pairs.get(&(driver.to_owned(), name.clone()));
            if pair.is_none() && !situation.has_driver(name, driver) {
                continue;
            }
            state.nodes += 1;
            let reach = situation.reach(name, driver);
            state.reached += usize::from(reach == Reach::Reached);
            let is_bad = matches!(reach, Reach::Unreachable | Reach::Unknown);
            let is_granted = pair.is_some_and(|pair| pair.is_granted);
            if is_bad || is_granted || situation.value(name).is_some() {
                state.affected.insert(name.clone());
            }
            let since = pair.and_then(|pair| pair.unreachable_since);
            let hold = situation.limits.hold;
            if since.is_some_and(|since| situation.now.saturating_sub(since) >= hold) {
                state.unreachable.insert(name.clone());
            }
        }
        state.limit = budget(state.nodes);
        state
    }

    fn grant(&mut self, situation: &Situation<'_>, driver: &str, nodes: &BTreeSet<String>) {
        for name in nodes {
            let node = situation.view.nodes.get(name);
            let pair = self.pairs.get_mut(&(driver.to_owned(), name.clone()));
            if let (Some(pair), Some(node)) = (pair, node) {
                (pair.is_granted, pair.node) = (true, identity(node));
            }
        }
    }

    /// The drivers of the node's taint.
    fn granted(&self, name: &str) -> BTreeSet<&str> {
        let pairs = self.pairs.iter();
        let granted = pairs.filter(|((_, of), pair)| of == name && pair.is_granted);
        granted.map(|((driver, _), _)| driver.as_str()).collect()
    }

    /// A taint that is gone is set again while the node says that it does not reach the storage, and
    /// on a Node object that was created anew. Of a node that says nothing a person may remove it.
    fn may_set(&self, name: &str, node: &Node, has_taint: bool) -> bool {
        let mut pairs = self.pairs.iter().filter(|((_, of), _)| of == name);
        has_taint
            || pairs.any(|(_, pair)| {
                pair.is_granted && (pair.unreachable_since.is_some() || pair.node.0 != node.uid)
            })
    }
}

/// None: no driver is known. A driver's name that is no label value is a hash.
fn taint_value(drivers: &BTreeSet<&str>) -> Option<String> {
    let mut known = drivers.iter().filter(|driver| **driver != SOME_DRIVER);
    match (known.next(), known.next()) {
        (None, _) => None,
        (Some(_), Some(_)) => Some("several".to_owned()),
        (Some(driver), None) if is_label_value(driver) => Some((*driver).to_owned()),
        (Some(driver), None) => Some(format!("driver-{}", sha256_short(driver.as_bytes()))),
    }
}

/// apimachinery, `validation.IsValidLabelValue`.
fn is_label_value(text: &str) -> bool {
    let ends = [text.chars().next(), text.chars().last()];
    text.len() <= 63
        && ends.into_iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
pub(crate) mod tests;
