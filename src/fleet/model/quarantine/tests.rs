use proptest::prelude::*;

use super::*;
use crate::model::Volume;
use crate::model::pin::Pin;
use crate::model::release::tests::wall;

/// A node, its report and its pods, changed by orders.
#[derive(Clone)]
struct Cluster {
    readings: NodeReadings,
    memory: Memory,
    seconds: u64,
    count: u64,
}

fn pod(uid: &str) -> PodReading {
    PodReading { uid: uid.to_owned(), is_terminating: false, is_movable: true, volumes: Vec::new() }
}

impl Cluster {
    fn new(pods: &[&str]) -> Cluster {
        Cluster {
            readings: NodeReadings {
                node: Reading::Read(Some(NodeReading {
                    is_ready: true,
                    boot_id: "boot-1".into(),
                    taint: None,
                })),
                report: Reading::Read(Some(ReportReading::default())),
                pods: Reading::Read(pods.iter().map(|uid| pod(uid)).collect()),
            },
            memory: Memory::default(),
            seconds: 0,
            count: 0,
        }
    }

    /// It was lost with these pods, and is away.
    fn lost(pods: &[&str]) -> Cluster {
        let mut cluster = Cluster::new(pods);
        cluster.node().is_ready = false;
        cluster.settle();
        cluster
    }

    /// Back, without the pods that a person deleted meanwhile.
    fn returned(lost: &[&str], left: &[&str]) -> Cluster {
        let mut cluster = Cluster::lost(lost);
        cluster.set_pods(left);
        cluster.node().is_ready = true;
        cluster.settle();
        cluster
    }

    fn node(&mut self) -> &mut NodeReading {
        match &mut self.readings.node {
            Reading::Read(Some(node)) => node,
            other => unreachable!("{other:?}"),
        }
    }

    fn report(&mut self) -> &mut ReportReading {
        match &mut self.readings.report {
            Reading::Read(Some(report)) => report,
            other => unreachable!("{other:?}"),
        }
    }

    fn set_pods(&mut self, pods: &[&str]) {
        self.readings.pods = Reading::Read(pods.iter().map(|uid| pod(uid)).collect());
    }

    fn say(&mut self, is_clean: bool, reason: CleanReason) {
        let of = self.report().quarantine.as_ref().map(|it| it.id.clone());
        self.report().word = Some(Word {
            of: of.unwrap_or_default(),
            is_clean,
            reason: reason.name().to_owned(),
            message: "pid 7 holds it".into(),
        });
    }

    fn next(&mut self) -> Order {
        self.count += 1;
        let now = Now { elapsed: Duration::from_secs(self.seconds), wall: wall(0) };
        let id = format!("q{}", self.count);
        let limits = QuarantineLimits::default();
        next(&self.readings, &mut self.memory, &limits, &id, now)
    }

    fn step(&mut self) -> Order {
        let order = self.next();
        match order.clone() {
            Order::Nothing | Order::Wait { .. } => {}
            Order::Write(quarantine) => self.report().quarantine = quarantine,
            Order::Taint(id) => self.node().taint = Some(id),
            Order::Untaint => self.node().taint = None,
        }
        order
    }

    /// Until there is nothing to write.
    fn settle(&mut self) -> Order {
        for _ in 0..10 {
            let order = self.step();
            if matches!(order, Order::Nothing | Order::Wait { .. }) {
                return order;
            }
        }
        panic!("it does not settle: {:?}", self.readings);
    }

    fn after(&mut self, seconds: u64) -> Order {
        self.seconds += seconds;
        self.settle()
    }

    fn is_tainted(&mut self) -> bool {
        self.node().taint.is_some()
    }

    fn uids(&mut self) -> Vec<String> {
        let quarantine = self.report().quarantine.as_ref();
        quarantine.map_or_else(Vec::new, |it| it.pod_uids.clone())
    }
}

fn reason(order: &Order) -> &str {
    match order {
        Order::Wait { reason, .. } => reason,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_node_that_is_lost_has_the_list_first_and_then_the_taint() {
    let mut cluster = Cluster::new(&["a", "b"]);
    cluster.node().is_ready = false;
    assert!(matches!(cluster.step(), Order::Write(Some(list)) if list.pod_uids == ["a", "b"]));
    assert!(matches!(cluster.step(), Order::Taint(_)));
    assert_eq!(reason(&cluster.step()), "NotReady");
}

#[test]
fn a_node_without_a_pod_that_can_move_is_left_alone() {
    let mut cluster = Cluster::new(&[]);
    cluster.readings.pods = Reading::Read(vec![PodReading { is_movable: false, ..pod("pinned") }]);
    cluster.node().is_ready = false;
    assert_eq!(cluster.step(), Order::Nothing);
}

#[test]
fn a_node_that_returns_with_all_its_pods_is_free_at_once() {
    let mut cluster = Cluster::returned(&["a", "b"], &["a", "b"]);
    assert!(!cluster.is_tainted());
    assert_eq!(cluster.report().quarantine, None);
}

#[test]
fn what_is_gone_from_the_api_must_be_proven_gone_from_the_node() {
    let mut cluster = Cluster::returned(&["a", "b"], &["a"]);
    assert_eq!(cluster.uids(), ["b"]);
    assert_eq!(reason(&cluster.step()), "NoAnswer");
    cluster.say(false, CleanReason::Held);
    let order = cluster.after(3600);
    assert_eq!(reason(&order), "Held");
    assert!(cluster.is_tainted());
    cluster.say(true, CleanReason::ProvenClean);
    assert_eq!(reason(&cluster.settle()), "ProvenClean");
    assert_eq!(reason(&cluster.after(29)), "ProvenClean");
    assert_eq!(cluster.after(1), Order::Nothing);
    assert!(!cluster.is_tainted());
    assert_eq!(cluster.report().quarantine, None);
}

#[test]
fn the_word_about_another_quarantine_proves_nothing() {
    let mut cluster = Cluster::returned(&["a"], &[]);
    cluster.say(true, CleanReason::ProvenClean);
    cluster.report().word.as_mut().expect("said").of = "older".into();
    assert_eq!(reason(&cluster.after(3600)), "NoAnswer");
    assert!(cluster.is_tainted());
}

#[test]
fn a_proof_that_is_withdrawn_counts_from_the_next_one_on() {
    let mut cluster = Cluster::returned(&["a"], &[]);
    cluster.say(true, CleanReason::ProvenClean);
    cluster.settle();
    cluster.after(20);
    cluster.say(false, CleanReason::Unreadable);
    cluster.after(20);
    cluster.say(true, CleanReason::ProvenClean);
    assert_eq!(reason(&cluster.settle()), "ProvenClean");
    assert!(cluster.is_tainted());
}

#[test]
fn a_pod_that_is_being_deleted_stays_on_the_list() {
    let mut cluster = Cluster::lost(&["a"]);
    cluster.readings.pods = Reading::Read(vec![PodReading { is_terminating: true, ..pod("a") }]);
    cluster.node().is_ready = true;
    cluster.settle();
    assert_eq!(cluster.uids(), ["a"]);
    assert!(cluster.is_tainted());
}

#[test]
fn only_a_volume_that_is_tied_to_a_node_does_not_move() {
    let mut view = View::default();
    let volume = |pins| Volume { pins, ..Volume::default() };
    view.volumes.insert("local".into(), volume(vec![Pin::Name("a".into())]));
    view.volumes.insert("network".into(), volume(Vec::new()));
    let is_movable = |volumes: &[&str]| {
        let pod = PodReading {
            volumes: volumes.iter().map(|name| (*name).to_owned()).collect(),
            ..PodReading::default()
        };
        let mut readings =
            NodeReadings { pods: Reading::Read(vec![pod]), ..NodeReadings::default() };
        readings.complete(&view);
        readings.pods.as_ref().expect("read")[0].is_movable
    };
    assert!(!is_movable(&[]) && !is_movable(&["local"]));
    assert!(is_movable(&["local", "network"]) && is_movable(&["unknown"]));
}

#[test]
fn an_error_never_counts_as_gone() {
    fn failed<T>() -> Reading<T> {
        Reading::Failed("500".to_owned())
    }
    let mut cluster = Cluster::lost(&["a"]);
    cluster.node().is_ready = true;
    let (before, mut pods) = (cluster.readings.clone(), cluster.clone());
    pods.readings.pods = failed();
    assert_eq!(reason(&pods.after(3600)), "Unread");
    assert_eq!(pods.readings.node, before.node);
    let mut report = cluster.clone();
    report.readings.report = failed();
    assert_eq!(reason(&report.after(3600)), "Unread");
    cluster.readings.node = failed();
    assert_eq!(reason(&cluster.after(3600)), "Unread");
}

#[test]
fn a_node_that_was_created_anew_gets_its_taint_again() {
    let mut cluster = Cluster::returned(&["a"], &[]);
    cluster.node().taint = None;
    // The new object has another uid: the report is not current.
    cluster.report().word = None;
    assert!(matches!(cluster.step(), Order::Taint(_)));
}

#[test]
fn more_pods_than_the_list_holds_are_said_to_be_cut() {
    let names: Vec<String> = (0..100).map(|at| format!("pod-{at:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut cluster = Cluster::lost(&names);
    let quarantine = cluster.report().quarantine.clone().expect("a list");
    assert!(quarantine.truncated);
    assert_eq!(quarantine.pod_uids.len(), MAX_QUARANTINED);
    // All listed ones are back, and still nobody knows about the others.
    cluster.node().is_ready = true;
    cluster.settle();
    assert!(cluster.is_tainted());
}

#[test]
fn a_taint_without_a_list_is_not_removed() {
    let mut cluster = Cluster::new(&[]);
    cluster.node().taint = Some("lost".into());
    assert_eq!(reason(&cluster.settle()), "NoQuarantine");
    assert_eq!(reason(&cluster.after(60)), "NoAnswer");
    let quarantine = cluster.report().quarantine.clone().expect("a list");
    assert!(quarantine.truncated && quarantine.pod_uids.is_empty());
    assert_eq!(quarantine.boot_id, "boot-1");
}

#[test]
fn a_node_that_is_lost_again_has_the_pods_of_both_times() {
    let mut cluster = Cluster::returned(&["a", "b"], &["b"]);
    cluster.set_pods(&["b", "c"]);
    cluster.node().is_ready = false;
    let id = cluster.report().quarantine.as_ref().map(|it| it.id.clone());
    cluster.settle();
    assert_eq!(cluster.uids(), ["a", "b", "c"]);
    let quarantine = cluster.report().quarantine.clone().expect("a list");
    assert_ne!(Some(&quarantine.id), id.as_ref(), "the old word proves nothing");
    assert_eq!(cluster.node().taint.as_ref(), Some(&quarantine.id));
}

proptest! {
    /// Whatever happens in whatever order: while a pod that had been on the lost node is gone, and
    /// the node has not proven itself clean, the node has the taint whenever it is Ready and the
    /// controller has had its turn.
    #[test]
    fn the_taint_is_never_removed_by_ignorance(events in proptest::collection::vec(0_u8..8, 1..40)) {
        let mut cluster = Cluster::lost(&["a", "b"]);
        let mut gone = false;
        for event in events {
            match event {
                0 => cluster.node().is_ready = true,
                1 => cluster.node().is_ready = false,
                2 if !cluster.node().is_ready => {
                    cluster.set_pods(&["b"]);
                    gone = true;
                }
                2 => {}
                3 => cluster.readings.pods = Reading::Failed("500".into()),
                4 => cluster.memory = Memory::default(),
                5 => cluster.report().word = None,
                6 => cluster.say(false, CleanReason::Held),
                _ => cluster.node().taint = None,
            }
            if event == 3 {
                cluster.after(100);
                cluster.set_pods(if gone { &["b"] } else { &["a", "b"] });
            }
            cluster.after(100);
            if gone {
                prop_assert!(cluster.is_tainted(), "{event}");
            }
        }
    }
}
