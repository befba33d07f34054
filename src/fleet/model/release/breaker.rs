//! When too much fails at once, the diagnosis is the suspect: the breaker opens, and only a person
//! closes it. When too many nodes are away, it only pauses, and goes on by itself.
//!
//! In: the view, the actions and the time. Out: the state, and what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::model::pin::ClaimsOfNodes;
use crate::model::release::Now;
use crate::model::release::budget::ActionSummary;
use crate::model::{Elapsed, View};
use diskvitals_cluster::node_storage::{Health, NodeStorageStatus, VolumeEntry, VolumeStatus};

/// What opens the breaker. The name is the reason of the condition `BreakerOpen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opener {
    /// More drives went BAD in an hour than the fleet's size explains.
    ManyDrives,
    /// More than 2 % of the nodes got an affected volume within an hour, in use or not.
    ManyNodes,
    /// One reason appeared on three nodes within 15 minutes, under a version of the daemon that is
    /// younger than a day.
    NewVersion,
    /// Two actions are stuck.
    ActionsStuck,
    /// The API server showed an older state than before.
    StoreWentBack,
    /// A version of the controller that knows other ones.
    Unknown,
}

impl Opener {
    pub(crate) const ALL: [Opener; 6] = [
        Opener::ManyDrives,
        Opener::ManyNodes,
        Opener::NewVersion,
        Opener::ActionsStuck,
        Opener::StoreWentBack,
        Opener::Unknown,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Opener::ManyDrives => "ManyDrives",
            Opener::ManyNodes => "ManyNodes",
            Opener::NewVersion => "NewVersion",
            Opener::ActionsStuck => "ActionsStuck",
            Opener::StoreWentBack => "StoreWentBack",
            Opener::Unknown => "Unknown",
        }
    }

    /// From the reason of a condition.
    pub(crate) fn from_name(name: &str) -> Opener {
        let opener = Opener::ALL.into_iter().find(|it| it.name() == name);
        opener.unwrap_or(Opener::Unknown)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub opener: Opener,
    /// What was counted, for people.
    pub text: String,
    /// A person's reset must be later.
    pub at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BreakerState {
    pub open: Option<Open>,
    /// Why it pauses.
    pub pause: Option<String>,
}

impl BreakerState {
    pub(crate) fn store_went_back(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        (open.opener == Opener::StoreWentBack).then(|| open.text.clone())
    }

    pub(crate) fn open_without_store(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        (open.opener != Opener::StoreWentBack)
            .then(|| format!("{}: {}", open.opener.name(), open.text))
    }

    pub(crate) fn paused(&self) -> Option<String> {
        self.pause.clone()
    }
}

/// Thresholds.
#[derive(Clone, Copy, Debug)]
pub struct BreakerLimits {
    /// Of new BAD drives and newly affected nodes.
    pub window: Duration,
    pub min_drives: u32,
    /// Failures of one drive in a year, in parts of a million: 1.36 %.
    pub failures_per_million: u64,
    /// How many times the expected failures of one window are still explained by the fleet's size.
    pub factor: u64,
    pub min_nodes: u32,
    pub nodes_percent: u32,
    pub version_window: Duration,
    pub version_age: Duration,
    pub version_nodes: usize,
    pub stuck_actions: usize,
    pub away_nodes: u32,
    pub away_percent: u32,
    /// A report that the API server last took before this time is silence.
    pub silent_after: Duration,
    /// A pause ends after this time without its cause.
    pub good_time: Duration,
    /// How far a reset may lie in the future: clocks differ.
    pub clock_skew: Duration,
}

impl Default for BreakerLimits {
    fn default() -> BreakerLimits {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        BreakerLimits {
            window: minutes(60),
            min_drives: 3,
            failures_per_million: 13_600,
            factor: 5,
            min_nodes: 3,
            nodes_percent: 2,
            version_window: minutes(15),
            version_age: minutes(24 * 60),
            version_nodes: 3,
            stuck_actions: 2,
            away_nodes: 2,
            away_percent: 5,
            silent_after: minutes(45),
            good_time: minutes(30),
            clock_skew: minutes(2),
        }
    }
}

/// What the breaker looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub view: &'a View,
    pub actions: &'a [ActionSummary],
    /// An object had a lower resourceVersion in a consistent read than before: which one.
    pub went_back: Option<&'a str>,
    /// The latest `breakerResetAt` of all policies.
    pub reset_at: Option<Timestamp>,
}

/// What a node reported last, by its uid.
#[derive(Clone, Debug, Default)]
struct LastReport {
    bad_drives: BTreeSet<String>,
    is_affected: bool,
    reasons: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    state: BreakerState,
    reports: BTreeMap<String, LastReport>,
    /// Since when a version of the daemon is known. One that was there at the start may be new.
    versions: BTreeMap<String, Elapsed>,
    new_bad: BTreeMap<(String, String), Elapsed>,
    new_affected: BTreeMap<String, Elapsed>,
    /// By reason and node, with the daemon's version.
    new_reasons: BTreeMap<(String, String), (Elapsed, String)>,
    /// Actions that were stuck when a person reset the breaker.
    forgiven: BTreeSet<(String, String)>,
    good_since: Option<Elapsed>,
}

impl Breaker {
    /// An earlier process opened it.
    pub(crate) fn adopt(&mut self, open: Open) {
        self.state.open.get_or_insert(open);
    }

    pub(crate) fn state(&self) -> &BreakerState {
        &self.state
    }

    /// Called after each change of the view, so that no transition is missed. True: the state
    /// changed.
    pub(crate) fn observe(
        &mut self,
        sample: &Sample<'_>,
        limits: &BreakerLimits,
        now: Now,
    ) -> bool {
        let before = self.state.clone();
        self.note_reports(sample.view, now.elapsed);
        self.forget_old(limits, now.elapsed);
        self.reset(sample, limits, now);
        if self.state.open.is_none() {
            let cause = self.cause(sample, limits, now.elapsed);
            self.state.open = cause.map(|(opener, text)| Open { opener, text, at: now.wall });
        }
        self.pause(sample.view, limits, now);
        self.state != before
    }

    /// When the state changes by the passing of time alone.
    pub(crate) fn next_deadline(&self, limits: &BreakerLimits) -> Option<Elapsed> {
        self.state.pause.as_ref()?;
        Some(self.good_since? + limits.good_time)
    }

    fn note_reports(&mut self, view: &View, now: Elapsed) {
        let claims = ClaimsOfNodes::new(view);
        for (name, node) in &view.nodes {
            let report = view.reports.get(name);
            let Some(status) = report.and_then(|report| report.current(node)) else {
                // What it said last is compared with what it says next.
                continue;
            };
            let version = status.daemon_version.clone();
            self.versions.entry(version.clone()).or_insert(now);
            let is_of_node = |volume: &VolumeEntry| claims.contain(name, volume);
            let present = last_report(status, &is_of_node);
            let last = self.reports.insert(node.uid.clone(), present.clone());
            // The first report of a node says nothing about when its state began.
            let Some(last) = last else { continue };
            for drive in present.bad_drives.difference(&last.bad_drives) {
                let drive = (node.uid.clone(), drive.clone());
                self.new_bad.insert(drive, now);
            }
            if present.is_affected && !last.is_affected {
                self.new_affected.insert(node.uid.clone(), now);
            }
            for reason in present.reasons.difference(&last.reasons) {
                let key = (reason.clone(), node.uid.clone());
                self.new_reasons.insert(key, (now, version.clone()));
            }
        }
        let uids: BTreeSet<&String> = view.nodes.values().map(|node| &node.uid).collect();
        self.reports.retain(|uid, _| uids.contains(uid));
    }

    fn forget_old(&mut self, limits: &BreakerLimits, now: Elapsed) {
        let is_young = |since: Elapsed, window| now.saturating_sub(since) <= window;
        self.new_bad.retain(|_, since| is_young(*since, limits.window));
        self.new_affected.retain(|_, since| is_young(*since, limits.window));
        self.new_reasons.retain(|_, (since, _)| is_young(*since, limits.version_window));
    }

    /// A person has looked at what is counted now: only what comes later counts again.
    fn reset(&mut self, sample: &Sample<'_>, limits: &BreakerLimits, now: Now) {
        let Some(open) = &self.state.open else { return };
        let latest = jiff::SignedDuration::try_from(limits.clock_skew)
            .ok()
            .and_then(|skew| now.wall.checked_add(skew).ok());
        let is_reset = sample
            .reset_at
            .is_some_and(|at| at > open.at && latest.is_some_and(|latest| at <= latest));
        if is_reset {
            self.state.open = None;
            self.new_bad.clear();
            self.new_affected.clear();
            self.new_reasons.clear();
            self.forgiven = stuck(sample.actions).collect();
        }
    }

    fn cause(
        &self,
        sample: &Sample<'_>,
        limits: &BreakerLimits,
        now: Elapsed,
    ) -> Option<(Opener, String)> {
        if let Some(what) = sample.went_back {
            return Some((Opener::StoreWentBack, what.to_owned()));
        }
        let stuck = stuck(sample.actions).filter(|action| !self.forgiven.contains(action)).count();
        if stuck >= limits.stuck_actions {
            return Some((Opener::ActionsStuck, format!("{stuck} actions are stuck")));
        }
        self.new_version(limits, now)
            .or_else(|| self.many_drives(sample.view, limits))
            .or_else(|| self.many_nodes(sample.view, limits))
    }

    fn new_version(&self, limits: &BreakerLimits, now: Elapsed) -> Option<(Opener, String)> {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((reason, node), (_, version)) in &self.new_reasons {
            let first = self.versions.get(version).copied().unwrap_or(now);
            if now.saturating_sub(first) < limits.version_age {
                nodes.entry(reason).or_default().insert(node);
            }
        }
        let (reason, nodes) =
            nodes.into_iter().find(|(_, nodes)| nodes.len() >= limits.version_nodes)?;
        let text = format!(
            "{reason} appeared on {} nodes within {} min, under a version of diskvitalsd that is known for less than {} h",
            nodes.len(),
            limits.version_window.as_secs() / 60,
            limits.version_age.as_secs() / 3600
        );
        Some((Opener::NewVersion, text))
    }

    fn many_drives(&self, view: &View, limits: &BreakerLimits) -> Option<(Opener, String)> {
        let drives: u64 = view
            .reports
            .iter()
            .filter(|(name, _)| view.nodes.contains_key(*name))
            .filter_map(|(_, report)| report.status.as_ref())
            .map(|status| u64::from(status.counts.drives))
            .sum();
        let bad = self.new_bad.len() as u64;
        // bad > factor * expected, in whole numbers: a year has 31,557,600 seconds.
        let explained = u128::from(limits.factor)
            * u128::from(drives)
            * u128::from(limits.failures_per_million)
            * u128::from(limits.window.as_secs());
        let is_more = u128::from(bad) * 1_000_000 * 31_557_600 > explained;
        (bad > u64::from(limits.min_drives) && is_more).then(|| {
            let text = format!(
                "{bad} of {drives} drives went BAD within {} min",
                limits.window.as_secs() / 60
            );
            (Opener::ManyDrives, text)
        })
    }

    fn many_nodes(&self, view: &View, limits: &BreakerLimits) -> Option<(Opener, String)> {
        let (affected, nodes) = (self.new_affected.len(), view.nodes.len());
        is_share(affected, nodes, limits.min_nodes, limits.nodes_percent).then(|| {
            let text = format!(
                "{affected} of {nodes} nodes got an affected volume within {} min",
                limits.window.as_secs() / 60
            );
            (Opener::ManyNodes, text)
        })
    }

    fn pause(&mut self, view: &View, limits: &BreakerLimits, now: Now) {
        let away = view
            .nodes
            .iter()
            .filter(|(_, node)| !node.is_unschedulable)
            .filter(|(name, node)| !node.is_ready || is_silent(view, name, limits, now.wall))
            .count();
        let nodes = view.nodes.len();
        if is_share(away, nodes, limits.away_nodes, limits.away_percent) {
            self.good_since = None;
            // The number moves; the state does not.
            self.state.pause.get_or_insert_with(|| {
                format!("{away} of {nodes} nodes are not ready or do not report")
            });
        } else if self.state.pause.is_some() {
            let since = *self.good_since.get_or_insert(now.elapsed);
            if now.elapsed.saturating_sub(since) >= limits.good_time {
                self.state.pause = None;
                self.good_since = None;
            }
        }
    }
}

/// More than `percent` of all, and at least `min`.
fn is_share(count: usize, all: usize, min: u32, percent: u32) -> bool {
    let (count, all) = (count as u64, all as u64);
    count >= u64::from(min) && count * 100 > all * u64::from(percent)
}

fn stuck(actions: &[ActionSummary]) -> impl Iterator<Item = (String, String)> {
    let stuck = actions.iter().filter(|action| action.is_stuck);
    stuck.map(|action| (action.namespace.clone(), action.name.clone()))
}

/// A node that never reported has no daemon, which is a choice.
fn is_silent(view: &View, name: &str, limits: &BreakerLimits, wall: Timestamp) -> bool {
    let (Some(node), Some(report)) = (view.nodes.get(name), view.reports.get(name)) else {
        return false;
    };
    let age =
        report.last_write.and_then(|written| Duration::try_from(wall.duration_since(written)).ok());
    report.current(node).is_none() || age.is_some_and(|age| age >= limits.silent_after)
}

/// A volume that is tied to another node, or that nobody has claimed, counts nowhere.
fn last_report(
    status: &NodeStorageStatus,
    is_of_node: &dyn Fn(&VolumeEntry) -> bool,
) -> LastReport {
    let bad = || status.drives.iter().filter(|it| it.health == Health::Bad);
    let volumes = || {
        let bad = status.volumes.iter().filter(|it| it.health == Health::Bad);
        bad.filter(|volume| is_of_node(volume))
    };
    let of_volumes = volumes().flat_map(|volume| &volume.health_conditions).filter(|condition| {
        matches!(condition.status, VolumeStatus::Inaccessible | VolumeStatus::DataLoss)
    });
    LastReport {
        bad_drives: bad().map(|drive| drive.id.clone()).collect(),
        is_affected: volumes().next().is_some(),
        reasons: bad()
            .map(|drive| drive.reason.clone())
            .chain(of_volumes.map(|condition| condition.reason.clone()))
            .collect(),
    }
}
