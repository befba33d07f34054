use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;

use super::*;
use crate::model::Report;
use crate::model::release::tests::wall;
use diskvitals_cluster::node_storage::{DAEMON_REACHABLE, NodeStorageStatus, UnreachableDriver};

const KEY: &str = "diskvitals.io/storage-unreachable";
const HOLD: u64 = 300;
const GOOD: u64 = 600;

/// The report of a node whose daemon answers.
pub(crate) fn report(
    node_uid: &str,
    unreachable_drivers: Option<Vec<UnreachableDriver>>,
    reached: &[&str],
) -> Report {
    let status = NodeStorageStatus {
        node_uid: node_uid.to_owned(),
        unreachable_drivers,
        reached_drivers: reached.iter().map(|driver| (*driver).to_owned()).collect(),
        conditions: vec![Condition {
            type_: DAEMON_REACHABLE.into(),
            status: "True".into(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: Time(wall(0)),
            observed_generation: None,
        }],
        ..NodeStorageStatus::default()
    };
    Report { status: Some(status), last_write: Some(wall(0)), ..Report::default() }
}

/// Nodes with drivers, changed by orders as the API server would.
#[derive(Clone, Default)]
struct Cluster {
    view: View,
    memory: Memory,
    seconds: u64,
    last: Decision,
}

impl Cluster {
    /// Nodes a, b, c…, all with driver d, which all reach it.
    fn new(nodes: usize) -> Cluster {
        let mut cluster = Cluster::default();
        for at in 0..nodes {
            let name = name(at);
            let node = Node {
                uid: format!("uid-{name}"),
                machine_id: format!("machine-{name}"),
                is_ready: true,
                ..Node::default()
            };
            cluster.view.nodes.insert(name.clone(), node);
            cluster.view.drivers.insert(name.clone(), ["d".to_owned()].into());
            cluster.says(&name, Some(&[]));
        }
        cluster
    }

    /// The drivers that the node does not reach; None: its daemon does not say.
    fn says(&mut self, node: &str, unreachable: Option<&[&str]>) {
        let entry = |driver: &&str| UnreachableDriver {
            driver: (*driver).to_owned(),
            ..UnreachableDriver::default()
        };
        let reached = ["d", "e", "x-"].into_iter();
        let reached = reached.filter(|driver| unreachable.is_some_and(|all| !all.contains(driver)));
        let reached: Vec<&str> = reached.collect();
        let listed = unreachable.map(|all| all.iter().map(entry).collect());
        self.writes(node, listed, &reached);
    }

    /// It has no volume.
    fn is_empty(&mut self, node: &str) {
        self.writes(node, Some(vec![]), &[]);
    }

    fn writes(
        &mut self,
        node: &str,
        unreachable_drivers: Option<Vec<UnreachableDriver>>,
        reached: &[&str],
    ) {
        let node_uid = &self.view.nodes[node].uid;
        let report = report(node_uid, unreachable_drivers, reached);
        self.view.reports.insert(node.to_owned(), report);
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.view.nodes.get_mut(name).expect("a node")
    }

    /// Decides, and carries the taints out.
    fn decide(&mut self) -> &Decision {
        let situation = Situation {
            view: &self.view,
            policy: &Policy::default(),
            limits: &UnreachableLimits::default(),
            key: KEY,
            now: Duration::from_secs(self.seconds),
            server: Some(wall(0)),
        };
        let decision = decide(&situation, &mut self.memory);
        for (name, order) in &decision.taints {
            let taints = &mut self.view.nodes.get_mut(name).expect("a node").taints;
            match order {
                TaintOrder::Set(value) => taints.insert(KEY.to_owned(), value.clone()),
                TaintOrder::Remove => taints.remove(KEY),
            };
        }
        self.last = decision;
        &self.last
    }

    fn pass(&mut self, seconds: u64) -> &Decision {
        self.decide();
        self.seconds += seconds;
        self.decide()
    }

    fn tainted(&self) -> BTreeMap<&str, &str> {
        let nodes = self.view.nodes.iter();
        nodes
            .filter_map(|(name, node)| Some((name.as_str(), node.taints.get(KEY)?.as_str())))
            .collect()
    }
}

fn name(at: usize) -> String {
    format!("n{at:02}")
}

#[test]
fn a_node_that_does_not_reach_the_storage_for_five_minutes_gets_the_taint_and_may_lose_pods() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD - 1);
    assert_eq!(cluster.tainted(), BTreeMap::new());
    cluster.pass(1);
    assert_eq!(cluster.tainted(), [("n00", "d")].into());
    assert!(cluster.last.evictable.is_empty(), "first the taint");
    cluster.decide();
    assert_eq!(cluster.last.evictable, [("n00".to_owned(), "d".to_owned())].into());
}

#[test]
fn an_interruption_begins_the_hold_time_anew() {
    for interruption in [Some(&[][..]), None] {
        let mut cluster = Cluster::new(3);
        cluster.says("n00", Some(&["d"]));
        cluster.pass(HOLD - 1);
        cluster.says("n00", interruption);
        cluster.pass(1);
        cluster.says("n00", Some(&["d"]));
        cluster.pass(HOLD - 1);
        assert_eq!(cluster.tainted(), BTreeMap::new());
        cluster.pass(1);
        assert_eq!(cluster.tainted().len(), 1);
    }
}

#[test]
fn the_taint_goes_after_ten_minutes_without_interruption_and_unknown_clears_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.says("n00", Some(&[]));
    cluster.pass(GOOD - 1);
    assert_eq!(cluster.tainted().len(), 1);
    let unknown =
        UnreachableDriver { driver: "d".into(), unknown: true, ..UnreachableDriver::default() };
    cluster.writes("n00", Some(vec![unknown]), &[]);
    cluster.pass(3600);
    assert_eq!(cluster.tainted().len(), 1);
    assert!(cluster.last.evictable.is_empty(), "nor is it a reason");
    cluster.says("n00", None);
    cluster.pass(3600);
    assert_eq!(cluster.tainted().len(), 1);
    cluster.says("n00", Some(&[]));
    cluster.pass(GOOD - 1);
    assert_eq!(cluster.tainted().len(), 1);
    cluster.pass(1);
    assert_eq!(cluster.tainted(), BTreeMap::new());
    assert_eq!(cluster.decide(), &Decision::default());
}

#[test]
fn away_for_more_than_a_fifth_of_the_nodes_nothing_moves() {
    for (nodes, away, is_moved) in [(3, 1, true), (3, 2, false), (10, 2, true), (10, 3, false)] {
        let mut cluster = Cluster::new(nodes);
        for at in 0..away {
            cluster.says(&name(at), Some(&["d"]));
        }
        cluster.pass(HOLD);
        cluster.decide();
        assert_eq!(cluster.tainted().len(), if is_moved { away } else { 0 }, "{away} of {nodes}");
        assert_eq!(cluster.last.evictable.is_empty(), !is_moved);
        assert_eq!(cluster.last.drivers["d"].is_beyond(), !is_moved);
    }
}

#[test]
fn without_a_node_that_reaches_the_storage_nothing_shows_that_it_is_there() {
    let mut cluster = Cluster::new(10);
    for at in 0..10 {
        cluster.is_empty(&name(at));
    }
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    assert_eq!(cluster.tainted(), BTreeMap::new());
    assert!(cluster.last.drivers["d"].is_beyond());
    cluster.says("n05", Some(&[]));
    cluster.decide();
    assert_eq!(cluster.tainted().len(), 1);
    let mut alone = Cluster::new(1);
    alone.says("n00", Some(&["d"]));
    alone.pass(HOLD);
    assert_eq!(alone.tainted(), BTreeMap::new(), "the only node of a cluster");
}

#[test]
fn a_node_without_a_volume_is_tried_again_after_an_hour() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.is_empty("n00");
    cluster.pass(3599);
    assert_eq!(cluster.tainted().len(), 1);
    cluster.pass(1);
    assert_eq!(cluster.tainted(), BTreeMap::new());
}

#[test]
fn a_node_that_is_away_silent_or_of_an_older_reporter_counts_as_affected() {
    let break_it: [fn(&mut Cluster); 5] = [
        |cluster| cluster.node("n01").is_ready = false,
        |cluster| drop(cluster.view.reports.remove("n01")),
        |cluster| cluster.says("n01", None),
        |cluster| cluster.node("n01").uid = "another".into(),
        |cluster| {
            let report = cluster.view.reports.get_mut("n01").expect("there");
            report.last_write = Some(wall(-3600));
        },
    ];
    for (at, break_it) in break_it.into_iter().enumerate() {
        let mut cluster = Cluster::new(3);
        cluster.says("n00", Some(&["d"]));
        break_it(&mut cluster);
        cluster.pass(HOLD);
        assert_eq!(cluster.tainted(), BTreeMap::new(), "{at}");
        assert!(cluster.last.drivers["d"].is_beyond(), "{at}");
    }
}

#[test]
fn without_the_api_servers_time_nothing_is_known() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    for seconds in [0, 9000] {
        let situation = Situation {
            view: &cluster.view,
            policy: &Policy::default(),
            limits: &UnreachableLimits::default(),
            key: KEY,
            now: Duration::from_secs(seconds),
            server: None,
        };
        let decision = decide(&situation, &mut cluster.memory);
        assert!(decision.taints.is_empty() && decision.evictable.is_empty());
    }
}

#[test]
fn when_too_many_follow_the_taint_stays_and_no_pod_moves() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.decide();
    assert!(!cluster.last.evictable.is_empty());
    cluster.says("n01", Some(&["d"]));
    cluster.pass(HOLD);
    assert_eq!(cluster.tainted(), [("n00", "d")].into());
    assert!(cluster.last.evictable.is_empty());
}

#[test]
fn two_drivers_are_one_taint_and_a_name_that_is_no_label_value_is_hashed() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.says("n00", Some(&["d", "x-"]));
    cluster.pass(HOLD);
    assert_eq!(cluster.tainted(), [("n00", "several")].into());
    cluster.says("n00", Some(&["x-"]));
    cluster.pass(GOOD);
    let hashed = cluster.tainted()["n00"];
    assert!(hashed.starts_with("driver-") && is_label_value(hashed), "{hashed}");
}

#[test]
fn a_node_object_that_is_created_anew_gets_the_taint_again() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    let old = cluster.view.nodes.remove("n00").expect("there");
    cluster.decide();
    let anew = Node { uid: "uid-2".into(), taints: BTreeMap::new(), ..old };
    cluster.view.nodes.insert("n00".into(), anew.clone());
    cluster.pass(1);
    assert_eq!(cluster.tainted(), [("n00", "d")].into());
    assert!(cluster.last.evictable.is_empty(), "the report about the old Node is no evidence");
    // Another machine under the old name has another history.
    let other = Node { uid: "uid-3".into(), machine_id: "another".into(), ..anew };
    cluster.view.nodes.insert("n00".into(), other);
    cluster.pass(1);
    assert_eq!(cluster.tainted(), BTreeMap::new());
}

#[test]
fn a_taint_that_is_removed_by_hand_returns_only_while_the_node_says_why() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.decide();
    cluster.node("n00").taints.clear();
    cluster.decide();
    assert_eq!(cluster.tainted().len(), 1);
    cluster.decide();
    cluster.says("n00", None);
    cluster.decide();
    cluster.node("n00").taints.clear();
    cluster.pass(60);
    assert_eq!(cluster.tainted(), BTreeMap::new());
}

#[test]
fn a_controller_that_starts_anew_keeps_a_taint_until_the_node_is_good() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.decide();
    cluster.memory = Memory::default();
    cluster.pass(HOLD - 1);
    assert!(cluster.last.evictable.is_empty(), "the hold time is anew");
    cluster.says("n01", Some(&["d"]));
    cluster.pass(HOLD);
    assert_eq!(
        cluster.tainted(),
        [("n00", "d")].into(),
        "the taint counts although it was forgotten why"
    );
    cluster.says("n01", Some(&[]));
    cluster.says("n00", Some(&[]));
    cluster.pass(GOOD - 1);
    assert_eq!(cluster.tainted().len(), 1);
    cluster.pass(1);
    assert_eq!(cluster.tainted(), BTreeMap::new());
}

#[test]
fn after_a_restart_another_driver_does_not_stand_for_that_of_the_taint() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.pass(HOLD);
    cluster.decide();
    cluster.memory = Memory::default();
    // No volume of d is left, and e answers.
    cluster.writes("n00", Some(vec![]), &["e"]);
    cluster.pass(GOOD);
    assert_eq!(cluster.tainted(), [("n00", "d")].into());
    cluster.node("n00").taints.insert(KEY.into(), "several".into());
    cluster.memory = Memory::default();
    cluster.pass(GOOD);
    assert_eq!(cluster.tainted(), BTreeMap::new());
}

#[test]
fn no_pod_moves_from_a_cordoned_node() {
    let mut cluster = Cluster::new(3);
    cluster.says("n00", Some(&["d"]));
    cluster.node("n00").is_unschedulable = true;
    cluster.pass(HOLD);
    cluster.decide();
    assert_eq!(cluster.tainted().len(), 1);
    assert!(cluster.last.evictable.is_empty());
}

#[derive(Clone, Debug)]
enum Change {
    Says(usize, Option<Vec<bool>>),
    Ready(usize, bool),
    Recreate(usize),
    Untaint(usize),
    Restart,
    Pass(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let node = 0_usize..8;
    prop_oneof![
        4 => (node.clone(), proptest::option::weighted(0.8, proptest::collection::vec(any::<bool>(), 2)))
            .prop_map(|(node, says)| Change::Says(node, says)),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, ready)| Change::Ready(node, ready)),
        1 => node.clone().prop_map(Change::Recreate),
        1 => node.prop_map(Change::Untaint),
        1 => Just(Change::Restart),
        4 => (0_u64..700).prop_map(Change::Pass),
    ]
}

proptest! {
    /// Whatever happens, no decision brings a driver beyond its budget, takes a taint from a node that
    /// does not say that it reaches its storage, or moves a pod of a node without the taint.
    #[test]
    fn no_decision_goes_beyond_the_budget_of_a_driver(
        nodes in 1_usize..8,
        changes in proptest::collection::vec(change(), 1..60),
    ) {
        let mut cluster = Cluster::new(nodes);
        let drivers = ["d", "e"];
        for of in cluster.view.drivers.values_mut() {
            of.insert("e".into());
        }
        for change in changes {
            match change {
                Change::Says(at, says) if at < nodes => {
                    let listed = says.map(|says| {
                        let listed = drivers.iter().zip(says).filter(|(_, is_listed)| *is_listed);
                        listed.map(|(driver, _)| *driver).collect::<Vec<&str>>()
                    });
                    cluster.says(&name(at), listed.as_deref());
                }
                Change::Ready(at, ready) if at < nodes => cluster.node(&name(at)).is_ready = ready,
                Change::Recreate(at) if at < nodes => {
                    let node = cluster.node(&name(at));
                    (node.uid, node.taints) = (format!("{}-", node.uid), BTreeMap::new());
                }
                Change::Untaint(at) if at < nodes => cluster.node(&name(at)).taints.clear(),
                Change::Restart => cluster.memory = Memory::default(),
                Change::Pass(seconds) => cluster.seconds += seconds,
                _ => {}
            }
            let before = cluster.tainted().into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
            cluster.decide();
            let after = cluster.tainted();
            let is_new = after.keys().any(|name| !before.contains(*name));
            if is_new {
                prop_assert!(after.len() <= drivers.len() * budget(nodes));
            }
            for driver in drivers {
                let of = |value: &&str| *value == driver || *value == "several";
                let tainted = after.values().filter(|value| of(value)).count();
                prop_assert!(!is_new || tainted <= budget(nodes), "{driver}: {after:?}");
                let evictable = cluster.last.evictable.iter().filter(|(_, of)| of == driver);
                let count = evictable.count();
                prop_assert!(count <= budget(nodes) && (count == 0 || cluster.last.drivers[driver].reached > 0));
            }
            for (name, _) in &cluster.last.evictable {
                prop_assert!(after.contains_key(name.as_str()));
                let status = cluster.view.reports[name].status.as_ref().expect("a status");
                prop_assert!(status.unreachable_drivers.as_ref().is_some_and(|it| !it.is_empty()));
            }
            for (name, order) in &cluster.last.taints {
                let report = cluster.view.reports[name].current(&cluster.view.nodes[name]);
                let listed = report.and_then(|it| it.unreachable_drivers.as_ref());
                if *order == TaintOrder::Remove {
                    prop_assert!(listed.is_some(), "a silent node keeps its taint");
                }
            }
        }
    }
}
