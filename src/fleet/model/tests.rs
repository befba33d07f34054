use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as KubeCondition, Time};
use proptest::prelude::*;

use super::claims::{Entry, desired};
use super::figures::{ModelFigures, figures};
use super::pin::Pin;
use super::retention::expired;
use super::*;
use diskvitals_cluster::node_storage::DAEMON_REACHABLE;
use diskvitals_cluster::node_storage::{
    DriveEntry, Health, ModelCount, VolumeCondition, VolumeEntry, VolumeStatus,
};

const DRIVE: &str = "naa.5000c500a1b2c3d4";

fn at(seconds: u64) -> Elapsed {
    Duration::from_secs(seconds)
}

fn node(name: &str) -> Node {
    Node {
        uid: format!("uid-of-{name}"),
        hostname: name.to_owned(),
        is_ready: true,
        is_unschedulable: false,
        ..Node::default()
    }
}

fn claim() -> Claim {
    Claim { namespace: "shop".into(), name: "data".into(), uid: "u1".into() }
}

/// A complete report of a daemon that answers.
fn status(of: &str) -> NodeStorageStatus {
    NodeStorageStatus {
        node_uid: format!("uid-of-{of}"),
        health: Health::Good,
        drive_ids: vec![DRIVE.into()],
        conditions: vec![KubeCondition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: "Answers".into(),
            status: "True".into(),
            type_: DAEMON_REACHABLE.into(),
        }],
        ..NodeStorageStatus::default()
    }
}

fn broken(of: &str) -> NodeStorageStatus {
    let mut status = status(of);
    status.health = Health::Bad;
    status.counts.bad = 1;
    status.drives =
        vec![DriveEntry { id: DRIVE.into(), health: Health::Bad, ..DriveEntry::default() }];
    status.volumes = vec![VolumeEntry {
        driver: "csi.example.com".into(),
        handle: "h1".into(),
        health: Health::Bad,
        health_conditions: vec![VolumeCondition {
            status: VolumeStatus::Inaccessible,
            reason: "DriveOffline".into(),
            message: "drive sda is offline".into(),
        }],
        drive_ids: vec![DRIVE.into()],
        ..VolumeEntry::default()
    }];
    status
}

fn view(statuses: &[(&str, NodeStorageStatus)]) -> View {
    let mut view = View::default();
    for (name, status) in statuses {
        view.nodes.insert((*name).into(), node(name));
        report(&mut view, name, status.clone());
    }
    view.volumes.insert(
        "pv1".into(),
        Volume {
            csi: Some(("csi.example.com".into(), "h1".into())),
            claim: Some(claim()),
            pins: vec![Pin::Label { key: "topology.example.com/node".into(), value: "a".into() }],
        },
    );
    view.observe(at(0));
    view
}

fn report(view: &mut View, name: &str, status: NodeStorageStatus) {
    let report = Report {
        eviction: None,
        is_quarantined: false,
        challenge: None,
        uid: format!("report-of-{name}"),
        resource_version: "1".into(),
        last_write: Some(Timestamp::UNIX_EPOCH),
        status: Some(status),
    };
    view.reports.insert(name.into(), report);
}

fn reasons(entries: &BTreeMap<Claim, Entry>) -> Vec<String> {
    let conditions = entries.values().flat_map(|entry| &entry.conditions);
    conditions.map(|it| it.reason.clone()).collect()
}

fn decide(view: &View, written: &BTreeMap<Claim, Entry>, now: u64) -> BTreeMap<Claim, Entry> {
    desired(view, written, &Policy::default(), at(now))
}

/// As written after the drive broke.
fn after_break() -> BTreeMap<Claim, Entry> {
    let written = decide(&view(&[("a", broken("a"))]), &BTreeMap::new(), 1);
    assert_eq!(reasons(&written), ["DriveOffline"]);
    written
}

#[test]
fn a_listed_volume_that_is_tied_to_the_node_makes_its_claim_unhealthy() {
    after_break();
}

#[test]
fn a_reason_that_the_api_server_refuses_is_left_out_and_hides_no_other() {
    let mut odd = broken("a");
    for reason in ["", "Drive\nOffline", "2Drives", "Off:", "\u{202e}Off"] {
        odd.volumes[0].health_conditions.push(VolumeCondition {
            status: VolumeStatus::DataLoss,
            reason: reason.into(),
            message: String::new(),
        });
    }
    assert_eq!(
        reasons(&decide(&view(&[("a", odd.clone())]), &BTreeMap::new(), 1)),
        ["DriveOffline"]
    );
    odd.volumes[0].health_conditions.remove(0);
    let written = after_break();
    assert_eq!(decide(&view(&[("a", odd)]), &written, 1), written);
}

#[test]
fn a_node_cannot_speak_about_a_volume_of_another_node() {
    let view = view(&[("a", status("a")), ("b", broken("b"))]);
    assert_eq!(decide(&view, &BTreeMap::new(), 1), BTreeMap::new());
}

#[test]
fn absence_clears_only_when_the_drives_of_the_entry_are_present_and_not_bad() {
    let written = after_break();
    assert_eq!(decide(&view(&[("a", status("a"))]), &written, 2), BTreeMap::new());
    let mut silent = status("a");
    silent.conditions[0].status = "False".into();
    let mut cut = status("a");
    cut.truncated.volumes = true;
    let mut without_drive = status("a");
    without_drive.drive_ids.clear();
    let mut still_bad = broken("a");
    still_bad.volumes.clear();
    let mut of_unknown_health = broken("a");
    of_unknown_health.volumes[0].health = Health::Unknown;
    let mut of_a_newer_version = broken("a");
    of_a_newer_version.volumes[0].health_conditions[0].status = VolumeStatus::Unknown;
    let other_node = status("another node object of this name");
    let mut of_unlisted_health = status("a");
    of_unlisted_health.health = Health::Unknown;
    let mut bad_without_a_drive = status("a");
    bad_without_a_drive.health = Health::Bad;
    let mut of_other_numbers = status("a");
    of_other_numbers.counts.bad = 1;
    let mut of_unlisted_volumes = status("a");
    of_unlisted_volumes.counts.affected = 1;
    for kept in [
        of_unlisted_health,
        bad_without_a_drive,
        of_other_numbers,
        of_unlisted_volumes,
        silent,
        cut,
        without_drive,
        still_bad,
        of_unknown_health,
        of_a_newer_version,
        other_node,
        NodeStorageStatus::default(),
    ] {
        assert_eq!(decide(&view(&[("a", kept.clone())]), &written, 2), written, "{kept:?}");
    }
    let mut gone = view(&[("a", status("a"))]);
    gone.reports.clear();
    assert_eq!(decide(&gone, &written, 2), written);
}

#[test]
fn after_a_restart_the_drives_are_not_known_and_the_whole_node_must_be_in_order() {
    let mut written = after_break();
    written.get_mut(&claim()).expect("written").drives.clear();
    let mut missing = status("a");
    missing.counts.missing = 1;
    assert_eq!(decide(&view(&[("a", missing)]), &written, 2), written);
    assert_eq!(decide(&view(&[("a", status("a"))]), &written, 2), BTreeMap::new());
}

#[test]
fn a_node_that_is_not_ready_for_five_minutes_makes_its_volumes_unavailable_until_it_is_ready() {
    let mut view = view(&[("a", status("a"))]);
    view.nodes.get_mut("a").expect("a").is_ready = false;
    view.observe(at(10));
    assert_eq!(decide(&view, &BTreeMap::new(), 309), BTreeMap::new());
    assert_eq!(view.next_deadline(&Policy::default(), at(309)), Some(at(310)));
    let written = decide(&view, &BTreeMap::new(), 310);
    assert_eq!(reasons(&written), ["NodeUnavailable"]);
    view.nodes.get_mut("a").expect("a").is_ready = true;
    view.observe(at(311));
    assert_eq!(decide(&view, &written, 311), BTreeMap::new());
}

#[test]
fn after_a_restart_an_unavailable_node_stays_unavailable_until_it_is_ready() {
    let mut view = view(&[("a", status("a"))]);
    view.nodes.get_mut("a").expect("a").is_ready = false;
    view.observe(at(0));
    let written = decide(&view, &BTreeMap::new(), 300);
    assert_eq!(reasons(&written), ["NodeUnavailable"]);
    // The new process has seen the node for a second.
    assert_eq!(decide(&view, &written, 1), written);
    let node = view.nodes.remove("a").expect("a");
    view.observe(at(1));
    let deleted = decide(&view, &written, 1);
    assert_eq!(reasons(&deleted), ["NodeDeleted"]);
    // It registers again, and its kubelet is not up yet.
    view.nodes.insert("a".into(), node.clone());
    view.observe(at(2));
    assert_eq!(reasons(&decide(&view, &deleted, 2)), ["NodeUnavailable"]);
    let ready = Node { is_ready: true, ..node };
    view.nodes.insert("a".into(), ready);
    view.observe(at(3));
    assert_eq!(decide(&view, &deleted, 3), BTreeMap::new());
}

#[test]
fn the_last_word_of_an_unavailable_node_stays_beside_its_unavailability() {
    let written = after_break();
    let mut view = view(&[("a", broken("a"))]);
    view.nodes.clear();
    view.observe(at(0));
    let after = decide(&view, &written, 300);
    assert_eq!(reasons(&after), ["DriveOffline", "NodeDeleted"]);
    assert_eq!(decide(&view, &after, 301), after);
}

#[test]
fn a_zone_with_one_node_ties_no_volume_to_it() {
    let mut view = view(&[("a", status("a"))]);
    let zone = Pin::Label { key: "topology.kubernetes.io/zone".into(), value: "west".into() };
    assert_eq!(zone.node(&view), None);
    // Two nodes with one host name: nobody knows which.
    view.nodes.insert("b".into(), Node { hostname: "a".into(), ..node("b") });
    view.observe(at(1));
    let host = Pin::Label { key: "kubernetes.io/hostname".into(), value: "a".into() };
    assert_eq!(host.node(&view), None);
    assert_eq!(Pin::Name("b".into()).node(&view), Some("b"));
}

#[test]
fn a_drive_is_shared_when_two_ready_nodes_list_it_for_two_minutes() {
    let policy = Policy::default();
    let mut view = view(&[("a", status("a")), ("b", status("b"))]);
    assert!(view.shared_drives(&policy, at(119)).is_empty());
    let nodes = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert_eq!(view.shared_drives(&policy, at(120)), BTreeMap::from([(DRIVE.to_owned(), nodes)]));
    // A disk that has moved on: the old node's report is outdated.
    view.nodes.get_mut("a").expect("a").is_ready = false;
    view.observe(at(121));
    assert!(view.shared_drives(&policy, at(500)).is_empty());
}

#[test]
fn ids_that_identify_nothing_are_never_shared() {
    for id in ["path:pci-0000:00:05.0", "QEMU_HARDDISK_QM00001", "naa.", "eui.0000000000000000", ""]
    {
        let with = |of: &str| NodeStorageStatus { drive_ids: vec![id.to_owned()], ..status(of) };
        let view = view(&[("a", with("a")), ("b", with("b"))]);
        assert!(view.shared_drives(&Policy::default(), at(500)).is_empty(), "{id}");
    }
}

#[test]
fn the_report_of_a_deleted_node_is_removed_after_thirty_days_and_of_a_living_one_never() {
    let mut view = view(&[("a", status("a")), ("b", status("b"))]);
    view.nodes.remove("a");
    view.observe(at(0));
    let days = |days: i64| Timestamp::from_second(days * 86_400).expect("a time");
    let names = |now, wall| -> Vec<String> {
        let old = expired(&view, &Policy::default(), at(now), wall);
        old.into_iter().map(|it| it.name).collect()
    };
    assert_eq!(names(3600, days(30)), ["a"]);
    assert!(names(3600, days(29)).is_empty());
    assert!(names(3599, days(30)).is_empty(), "seen absent for less than an hour");
    // The controller's clock is behind the API server's.
    assert!(names(3600, days(-400)).is_empty());
}

#[test]
fn a_report_counts_for_45_minutes_by_the_servers_clock_and_then_its_node_is_unknown() {
    let view = view(&[("a", status("a"))]);
    let counts = |server: i64| {
        let server = Timestamp::from_second(server).expect("a time");
        let figures = figures(&view, &Policy::default(), at(1), server);
        (figures.nodes_by_health, figures.reporting)
    };
    let good = (BTreeMap::from([(Health::Good.severity(), 1)]), 1);
    let unknown = (BTreeMap::from([(Health::Unknown.severity(), 1)]), 0);
    let policy = Policy::default();
    assert_eq!(
        view.next_aging(&policy, Timestamp::from_second(100).expect("a time")),
        Some(at(2600))
    );
    // The second server of two may be a little behind.
    assert_eq!(counts(-2), good);
    assert_eq!(counts(2699), good);
    assert_eq!(counts(2700), unknown);
}

/// Anything that a reporter, or its absence, may say without saying that the volume is well.
fn doubtful() -> impl Strategy<Value = Option<NodeStorageStatus>> {
    let any_status = (any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u8).prop_map(
        |(reachable, cut, same_node, drives)| {
            let mut status = status(if same_node { "a" } else { "b" });
            status.conditions[0].status = if reachable { "True" } else { "Unknown" }.into();
            status.truncated.volumes = cut;
            match drives {
                0 => status.drive_ids.clear(),
                1 => status.drives = broken("a").drives,
                _ => {}
            }
            let proves = reachable && !cut && same_node && drives == 2;
            (!proves).then_some(status)
        },
    );
    prop_oneof![Just(None), any_status]
}

proptest! {
    #[test]
    fn no_sequence_of_failed_readings_clears_an_entry(readings in proptest::collection::vec(doubtful(), 0..20)) {
        let first = after_break();
        let mut written = first.clone();
        for (second, reading) in readings.into_iter().enumerate() {
            let mut view = view(&[("a", status("a"))]);
            match reading {
                Some(status) => report(&mut view, "a", status),
                None => { view.reports.remove("a"); }
            }
            written = decide(&view, &written, second as u64);
        }
        prop_assert_eq!(written, first);
    }

    #[test]
    fn the_order_of_observations_does_not_change_the_decision(order in Just(vec![0, 1, 2, 3]).prop_shuffle()) {
        let whole = view(&[("a", broken("a")), ("b", status("b"))]);
        let mut view = View::default();
        for step in order {
            match step {
                0 => view.nodes.clone_from(&whole.nodes),
                1 => { view.reports.insert("a".into(), whole.reports["a"].clone()); }
                2 => { view.reports.insert("b".into(), whole.reports["b"].clone()); }
                _ => view.volumes.clone_from(&whole.volumes),
            }
            view.observe(at(0));
        }
        prop_assert_eq!(decide(&view, &BTreeMap::new(), 1), decide(&whole, &BTreeMap::new(), 1));
    }
}

#[test]
fn only_current_reports_count_drives_and_a_cut_list_hides_no_bad_one() {
    let models =
        vec![ModelCount { model: "M".into(), firmware: "F".into(), kind: "ATA".into(), count: 24 }];
    let mut reporting = broken("a");
    (reporting.drives[0].model, reporting.drives[0].firmware) = ("M".into(), "F".into());
    let mut maintained = reporting.drives[0].clone();
    (maintained.id, maintained.maintenance) = ("naa.5000c500a1b2c3d5".into(), true);
    reporting.drives.push(maintained);
    (reporting.counts.bad, reporting.truncated.drives) = (5, true);
    reporting.models = models;
    // Of an earlier node of this name.
    let mut outdated = reporting.clone();
    outdated.node_uid = "another".into();
    let view = view(&[("a", reporting), ("b", outdated)]);
    let figures = figures(&view, &Policy::default(), at(1), Timestamp::UNIX_EPOCH);
    let key = ("M".to_owned(), "F".to_owned());
    assert_eq!(figures.models, [(key, ModelFigures { drives: 24, bad: 1 })].into());
    assert_eq!((figures.unlisted_bad, figures.reporting), (3, 1));
    let of = |health: Health| figures.nodes_by_health.get(&health.severity()).copied();
    assert_eq!((of(Health::Bad), of(Health::Unknown)), (Some(1), Some(1)));
}
