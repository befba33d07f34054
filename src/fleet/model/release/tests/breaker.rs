use super::*;
use crate::model::pin::Pin;
use crate::model::release::breaker::{Breaker, BreakerLimits, Open, Opener, Sample};
use crate::model::release::budget::ActionSummary;
use crate::model::{Claim, Node, Report, View, Volume};
use diskvitals_cluster::node_storage::{
    DAEMON_REACHABLE, DriveEntry, NodeStorageStatus, VolumeCondition, VolumeEntry, VolumeStatus,
};

/// A fleet and its breaker, at a time in seconds.
struct Fleet {
    view: View,
    breaker: Breaker,
    actions: Vec<ActionSummary>,
    went_back: Option<&'static str>,
    reset_at: Option<Timestamp>,
    seconds: u64,
}

impl Fleet {
    /// All is well for as long as makes every version old.
    fn of(nodes: u32) -> Fleet {
        let mut view = View::default();
        for number in 0..nodes {
            let name = name(number);
            let node = Node {
                uid: format!("uid-of-{name}"),
                hostname: name.clone(),
                is_ready: true,
                is_unschedulable: false,
                ..Node::default()
            };
            let status = NodeStorageStatus {
                node_uid: node.uid.clone(),
                daemon_version: "1".into(),
                conditions: vec![condition(DAEMON_REACHABLE, wall(0))],
                ..NodeStorageStatus::default()
            };
            view.nodes.insert(name.clone(), node);
            let report = Report { status: Some(status), last_write: None, ..Report::default() };
            view.reports.insert(name, report);
        }
        let mut fleet = Fleet {
            view,
            breaker: Breaker::default(),
            actions: Vec::new(),
            went_back: None,
            reset_at: None,
            seconds: 0,
        };
        fleet.observe();
        fleet.seconds = 2 * 86_400;
        fleet.observe();
        fleet
    }

    fn observe(&mut self) -> Option<Opener> {
        let sample = Sample {
            view: &self.view,
            actions: &self.actions,
            went_back: self.went_back,
            reset_at: self.reset_at,
        };
        let now = Now {
            elapsed: Duration::from_secs(self.seconds),
            wall: wall(i64::try_from(self.seconds).expect("small")),
        };
        self.breaker.observe(&sample, &BreakerLimits::default(), now);
        self.opener()
    }

    fn after(&mut self, seconds: u64) -> Option<Opener> {
        self.seconds += seconds;
        self.observe()
    }

    fn opener(&self) -> Option<Opener> {
        self.breaker.state().open.as_ref().map(|open| open.opener)
    }

    fn is_paused(&self) -> bool {
        self.breaker.state().pause.is_some()
    }

    fn status(&mut self, node: u32) -> &mut NodeStorageStatus {
        let report = self.view.reports.get_mut(&name(node)).expect("a report");
        report.status.as_mut().expect("a status")
    }

    fn node(&mut self, node: u32) -> &mut Node {
        self.view.nodes.get_mut(&name(node)).expect("a node")
    }

    fn fail_drive(&mut self, node: u32, drive: &str, reason: &str) {
        let entry = DriveEntry {
            id: drive.into(),
            health: Health::Bad,
            reason: reason.into(),
            ..DriveEntry::default()
        };
        self.status(node).drives.push(entry);
    }

    fn affect(&mut self, node: u32) {
        let volume = VolumeEntry { health: Health::Bad, ..VolumeEntry::default() };
        self.status(node).volumes.push(volume);
    }

    /// A volume of one handle that every node reports; on these nodes it has a PersistentVolume.
    fn affect_all(&mut self, pinned: impl IntoIterator<Item = u32>, is_bound: bool) {
        let (driver, handle) = ("csi.diskvitals.io".to_owned(), "fast-1".to_owned());
        for node in pinned {
            let pin = Pin::Label { key: "kubernetes.io/hostname".into(), value: name(node) };
            let csi = Some((driver.clone(), handle.clone()));
            let claim = is_bound.then(Claim::default);
            let volume = Volume { csi, claim, pins: vec![pin] };
            self.view.volumes.insert(format!("pv-{node}"), volume);
        }
        self.view.observe(Duration::from_secs(self.seconds));
        for node in 0..u32::try_from(self.view.nodes.len()).expect("few") {
            let condition = VolumeCondition {
                status: VolumeStatus::Inaccessible,
                reason: "DeviceMissing".into(),
                message: String::new(),
            };
            let entry = VolumeEntry {
                driver: driver.clone(),
                handle: handle.clone(),
                health: Health::Bad,
                health_conditions: vec![condition],
                ..VolumeEntry::default()
            };
            let status = self.status(node);
            status.daemon_version = "2".into();
            status.volumes.push(entry);
        }
    }

    fn stick(&mut self, name: &str) {
        self.actions.push(ActionSummary {
            name: name.into(),
            is_stuck: true,
            ..ActionSummary::default()
        });
    }

    fn reset(&mut self) {
        let seconds = i64::try_from(self.seconds).expect("small");
        self.reset_at = Some(wall(seconds));
    }
}

fn name(node: u32) -> String {
    format!("n{node:04}")
}

/// A fleet that the opener has just opened.
fn opened_by(opener: Opener) -> Fleet {
    let mut fleet = Fleet::of(100);
    match opener {
        Opener::ManyDrives => {
            for drive in 0..4 {
                fleet.fail_drive(0, &format!("d{drive}"), &format!("Reason{drive}"));
            }
        }
        Opener::ManyNodes => (0..3).for_each(|node| fleet.affect(node)),
        Opener::NewVersion => {
            for node in 0..3 {
                fleet.status(node).daemon_version = "2".into();
                fleet.fail_drive(node, "d", "DriveOffline");
            }
        }
        Opener::ActionsStuck => {
            fleet.stick("one");
            fleet.stick("two");
        }
        Opener::StoreWentBack => fleet.went_back = Some("node n0000: 7 after 9"),
        Opener::Unknown => {
            fleet.breaker.adopt(Open {
                opener: Opener::from_name("OfANewerVersion"),
                text: String::new(),
                at: wall(0),
            });
        }
    }
    fleet.observe();
    assert_eq!(fleet.opener(), Some(opener));
    fleet.went_back = None;
    fleet
}

#[test]
fn each_opener_opens_and_time_alone_never_closes() {
    for opener in Opener::ALL {
        let mut fleet = opened_by(opener);
        assert!(!fleet.is_paused());
        let well = Fleet::of(100);
        fleet.view = well.view;
        fleet.actions.clear();
        assert_eq!(fleet.after(30 * 86_400), Some(opener));
        assert_eq!(Opener::from_name(opener.name()), opener);
    }
}

#[test]
fn a_person_closes_it_by_a_reset_that_is_later_and_only_what_comes_later_counts_again() {
    for opener in Opener::ALL {
        let mut fleet = opened_by(opener);
        // The reset of an earlier opening.
        fleet.reset_at = Some(wall(0));
        assert_eq!(fleet.after(1), Some(opener), "an old reset");
        fleet.reset_at = Some(wall(i64::from(u32::MAX)));
        assert_eq!(fleet.after(1), Some(opener), "a reset in the far future");
        fleet.after(1);
        fleet.reset();
        assert_eq!(fleet.after(1), None, "{opener:?}");
        assert_eq!(fleet.after(1), None, "{opener:?} again");
    }
    let mut fleet = opened_by(Opener::ActionsStuck);
    fleet.after(1);
    fleet.reset();
    fleet.after(1);
    fleet.stick("three");
    assert_eq!(fleet.after(1), None);
    fleet.stick("four");
    assert_eq!(fleet.after(1), Some(Opener::ActionsStuck));
}

#[test]
fn three_new_bad_drives_in_an_hour_are_explained_and_so_are_more_in_a_large_fleet() {
    let mut fleet = Fleet::of(100);
    for drive in 0..3 {
        fleet.fail_drive(0, &format!("d{drive}"), &format!("Reason{drive}"));
    }
    assert_eq!(fleet.after(1), None);
    // The first three are more than an hour old.
    fleet.after(3601);
    fleet.fail_drive(1, "d4", "Reason4");
    assert_eq!(fleet.after(1), None);
    // 2.4 million drives: 3.7 failures in an hour are expected, 18 explained.
    let mut large = Fleet::of(1000);
    large.status(0).counts.drives = 2_400_000;
    for drive in 0..18 {
        large.fail_drive(0, &format!("d{drive}"), &format!("Reason{drive}"));
    }
    assert_eq!(large.after(1), None);
    large.fail_drive(0, "d18", "Reason18");
    assert_eq!(large.after(1), Some(Opener::ManyDrives));
}

#[test]
fn nodes_with_affected_volumes_count_from_three_and_above_two_percent() {
    let mut small = Fleet::of(10);
    small.affect(0);
    small.affect(1);
    assert_eq!(small.after(1), None);
    small.affect(2);
    assert_eq!(small.after(1), Some(Opener::ManyNodes));
    let mut large = Fleet::of(200);
    (0..4).for_each(|node| large.affect(node));
    assert_eq!(large.after(1), None, "2 % of 200");
    large.affect(4);
    assert_eq!(large.after(1), Some(Opener::ManyNodes));
}

#[test]
fn a_claim_counts_on_the_node_that_it_is_pinned_to_and_nowhere_else() {
    let cases: [(&[u32], bool, &str); 4] = [
        (&[0, 1], true, "two nodes have it"),
        (&[77, 78, 79], true, "pinned to nodes that do not exist"),
        (&[], true, "no PersistentVolume"),
        (&[0, 1, 2], false, "no claim"),
    ];
    for (pinned, is_bound, case) in cases {
        let mut fleet = Fleet::of(10);
        fleet.affect_all(pinned.iter().copied(), is_bound);
        assert_eq!(fleet.after(1), None, "{case}");
    }
    // No pod has the claims: after a failure they are Pending.
    let mut fleet = Fleet::of(10);
    fleet.affect_all([0, 1, 2], true);
    assert_eq!(fleet.after(1), Some(Opener::NewVersion));
    let mut fleet = Fleet::of(10);
    fleet.affect_all([0, 1, 2], true);
    for node in 0..10 {
        fleet.status(node).daemon_version = "1".into();
    }
    assert_eq!(fleet.after(1), Some(Opener::ManyNodes));
}

#[test]
fn one_reason_on_three_nodes_is_suspect_under_a_young_version_only() {
    let mut old = Fleet::of(100);
    (0..3).for_each(|node| old.fail_drive(node, "d", "DriveOffline"));
    assert_eq!(old.after(1), None);
    let mut different = Fleet::of(100);
    for (node, reason) in [(0, "DriveOffline"), (1, "DriveOffline"), (2, "DriveMissing")] {
        different.status(node).daemon_version = "2".into();
        different.fail_drive(node, "d", reason);
    }
    assert_eq!(different.after(1), None);
    let mut slow = Fleet::of(100);
    for node in 0..3 {
        slow.status(node).daemon_version = "2".into();
        slow.fail_drive(node, "d", "DriveOffline");
        assert_eq!(slow.after(451), None, "three in more than 15 minutes");
    }
}

#[test]
fn what_a_node_reports_first_or_again_is_no_transition() {
    let mut fleet = Fleet::of(2);
    // A controller that starts into a fleet with years of neglect.
    for node in 0..2 {
        for drive in 0..9 {
            fleet.fail_drive(node, &format!("d{drive}"), "DriveOffline");
        }
        fleet.affect(node);
    }
    fleet.breaker = Breaker::default();
    assert_eq!(fleet.after(1), None);
    assert_eq!(fleet.after(1), None);
    // A daemon that is away for a moment.
    fleet.status(0).conditions[0].status = "False".into();
    fleet.after(1);
    fleet.status(0).conditions[0].status = "True".into();
    assert_eq!(fleet.after(1), None);
}

#[test]
fn nodes_that_are_away_pause_until_thirty_good_minutes_have_passed() {
    let mut fleet = Fleet::of(30);
    fleet.node(0).is_ready = false;
    fleet.after(1);
    assert!(!fleet.is_paused(), "one node");
    fleet.node(1).is_unschedulable = true;
    fleet.node(1).is_ready = false;
    fleet.after(1);
    assert!(!fleet.is_paused(), "a cordoned node does not count");
    fleet.status(2).conditions[0].status = "False".into();
    fleet.after(1);
    assert!(fleet.is_paused(), "not ready and silent: 2 of 30");
    assert_eq!(fleet.opener(), None);
    fleet.status(2).conditions[0].status = "True".into();
    fleet.after(1);
    fleet.after(1799);
    assert!(fleet.is_paused());
    fleet.node(2).is_ready = false;
    fleet.after(1);
    fleet.node(2).is_ready = true;
    fleet.after(1);
    let limits = BreakerLimits::default();
    let due = Duration::from_secs(fleet.seconds + 1800);
    assert_eq!(fleet.breaker.next_deadline(&limits), Some(due));
    fleet.after(1799);
    assert!(fleet.is_paused(), "the good time began anew");
    fleet.after(1);
    assert!(!fleet.is_paused());
    assert_eq!(fleet.breaker.next_deadline(&limits), None);
}

#[test]
fn a_report_that_was_not_refreshed_is_silence_and_a_node_without_one_is_a_choice() {
    let mut fleet = Fleet::of(30);
    let written = wall(i64::try_from(fleet.seconds).expect("small"));
    for node in 0..30 {
        let report = fleet.view.reports.get_mut(&name(node)).expect("a report");
        report.last_write = Some(written);
    }
    fleet.view.reports.remove(&name(0));
    fleet.view.reports.remove(&name(1));
    fleet.after(2699);
    assert!(!fleet.is_paused());
    fleet.after(1);
    assert!(fleet.is_paused());
}

#[test]
fn five_percent_of_a_large_fleet_are_no_pause() {
    let mut fleet = Fleet::of(100);
    (0..5).for_each(|node| fleet.node(node).is_ready = false);
    fleet.after(1);
    assert!(!fleet.is_paused());
    fleet.node(5).is_ready = false;
    fleet.after(1);
    assert!(fleet.is_paused());
}
