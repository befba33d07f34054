use super::*;
use crate::block::Layer;
use crate::fixture::*;
use crate::ledger::Ledger;
use crate::snapshot::NodeState;
use crate::snapshot_builder::{SnapshotBuilder, SnapshotInput};
use crate::stack::MdState;
use diskvitals_finding::Health;
use diskvitals_finding::reason::Reason;

/// A mirror md0 of sda and sdb with a filesystem on it; sdc has another one.
struct Node {
    host: TestHost,
    ledger: Ledger,
}

impl Node {
    fn new() -> Node {
        let md = Layer::Md { level: Some("raid1".into()) };
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .disk("sdc", "8:32", "C")
            .with(device("md0", "9:0", md, &["sda", "sdb"]))
            .mounted("9:0", "/", "/srv", "ext4", "/dev/md0")
            .mounted("8:32", "/", "/alone", "ext4", "/dev/sdc");
        for drive in &mut host.inventory.drives {
            drive.location.enclosure = Some("shelf".into());
        }
        host.read_all(0);
        let mut node = Node { host, ledger: Ledger::default() };
        node.mirror("++", 1);
        node.snapshot(2);
        node
    }

    /// The mirror with members that are `+` in sync, `f` being filled, `-` away.
    fn mirror(&mut self, slots: &str, second: i64) {
        let present = ["sda", "sdb"].into_iter().zip(slots.chars()).zip(0..);
        let present = present.filter(|((_, state), _)| *state != '-');
        let members: Vec<_> = present
            .map(|((name, state), slot)| {
                md_member(name, if state == '+' { "in_sync" } else { "spare" }, Some(slot))
            })
            .collect();
        let below = members.iter().map(|member| member.device.clone()).collect();
        self.host.inventory.devices.get_mut("md0").unwrap().underlying = below;
        self.host.scan(second);
        let lost = slots.chars().filter(|state| *state != '+').count();
        let state = MdState {
            level: "raid1".into(),
            raid_disks: 2,
            degraded: u32::try_from(lost).unwrap(),
            array_state: "clean".into(),
            members,
            ..MdState::default()
        };
        self.host.layer("md0", crate::block::LayerState::Md(state), second);
    }

    fn order(&mut self, target: MaintenanceTarget, since: i64) {
        let order = MaintenanceOrder {
            by: "uid 0 (root)".into(),
            note: "swapping the cable".into(),
            since: at(since),
            seconds: 7200,
        };
        Arc::make_mut(&mut self.host.facts.maintenance).insert(target, Arc::new(order));
    }

    fn snapshot(&mut self, second: i64) -> Snapshot {
        let facts = &self.host.facts;
        let active = self.ledger.levels();
        let judgements = crate::assess::assess(facts, &active, &self.host.policy, at(second));
        self.ledger.apply(judgements, at(second));
        let input = SnapshotInput {
            facts,
            ledger: &mut self.ledger,
            policy: &self.host.policy,
            care: &crate::care::CarePlan::default(),
            node: NodeState::default(),
            settled: true,
            now: at(second),
        };
        let built = SnapshotBuilder::default().build(&Arc::default(), input);
        (*built.snapshot).clone()
    }

    /// `REASON SUBJECT` of each adverse finding, in brackets if it does not count; what counts first.
    fn findings(&mut self, second: i64) -> Vec<String> {
        let snapshot = self.snapshot(second);
        let adverse = snapshot.findings.values().filter(|it| it.severity > Severity::Info);
        let mut shown: Vec<String> = adverse
            .map(|it| {
                let text = format!("{} {}", it.reason, label::subject(&snapshot, &it.subject));
                if it.is_counted() { text } else { format!("[{text}]") }
            })
            .collect();
        shown.sort();
        shown
    }
}

fn drive_target(id: &str) -> MaintenanceTarget {
    MaintenanceTarget::Subject(Subject::Drive(DriveId::new(id)))
}

fn counted(shown: &[String]) -> Vec<&str> {
    shown.iter().map(String::as_str).filter(|text| !text.starts_with('[')).collect()
}

#[test]
fn what_follows_from_the_absence_of_the_drive_is_shown_and_does_not_count() {
    let mut node = Node::new();
    assert_eq!(node.findings(3), [""; 0]);
    node.order(drive_target("B"), 4);
    node.host.pull("sdb");
    node.mirror("+-", 5);
    let shown = node.findings(600);
    assert_eq!(counted(&shown), [""; 0], "{shown:?}");
    assert!(shown.iter().any(|it| it.starts_with("[DriveMissing was sdb")), "{shown:?}");
    assert!(shown.iter().any(|it| it.starts_with("[Redundancy")), "{shown:?}");
    let snapshot = node.snapshot(601);
    let health = snapshot.node.health;
    assert!(!matches!(health, Some(Health::Bad | Health::Suspect)), "{health:?}");
    assert!(snapshot.causes.values().all(|cause| !cause.counted), "{:#?}", snapshot.causes);
    // It is put back, and filled.
    node.host.plug("sdb", "8:16", "B");
    node.mirror("+f", 700);
    let shown = node.findings(701);
    assert!(counted(&shown).is_empty() && !shown.is_empty(), "{shown:?}");
    // At the end, what is left counts.
    let ended = take_ended(&mut node.host.facts.maintenance, at(7204));
    assert_eq!(ended.len(), 1);
    let shown = node.findings(7204);
    assert_eq!(counted(&shown), shown, "{shown:?}");
}

#[test]
fn the_failure_of_another_member_counts_as_always() {
    let mut node = Node::new();
    node.order(drive_target("B"), 4);
    // sda is lost, and sdb is still there.
    node.host.pull("sda");
    node.mirror("-+", 5);
    let shown = node.findings(600);
    assert_eq!(counted(&shown), shown, "{shown:?}");
    assert!(shown.iter().any(|it| it.starts_with("DriveMissing was sda")), "{shown:?}");
    // Both are: the array has lost its data.
    node.host.pull("sdb");
    node.mirror("--", 700);
    let shown = node.findings(1400);
    let own: Vec<&String> = shown.iter().filter(|it| it.starts_with('[')).collect();
    assert_eq!(own, ["[DriveMissing was sdb]"], "{shown:?}");
}

#[test]
fn a_volume_that_becomes_inaccessible_counts_although_its_drive_is_under_maintenance() {
    let mut node = Node::new();
    node.order(drive_target("C"), 4);
    node.host.pull("sdc");
    node.host.scan(5);
    let shown = node.findings(600);
    assert!(shown.iter().any(|it| it.starts_with("[DriveMissing was sdc")), "{shown:?}");
    assert!(counted(&shown).iter().any(|it| it.ends_with("/alone")), "{shown:?}");
}

#[test]
fn an_enclosure_covers_its_drives_an_array_what_it_lacks_and_the_node_everything() {
    let array = MaintenanceTarget::Subject(Subject::Device("md0".into()));
    let shelf = MaintenanceTarget::Enclosure("shelf".into());
    let lost = |target: MaintenanceTarget| {
        let mut node = Node::new();
        node.order(target, 4);
        node.host.pull("sdb");
        node.mirror("+-", 5);
        node.findings(600)
    };
    for target in [shelf, MaintenanceTarget::Node] {
        let shown = lost(target);
        assert!(counted(&shown).is_empty() && !shown.is_empty(), "{shown:?}");
    }
    let shown = lost(array);
    assert_eq!(counted(&shown), ["DriveFailing /srv", "DriveMissing was sdb"], "{shown:?}");
    let shown = lost(MaintenanceTarget::Enclosure("another".into()));
    assert_eq!(counted(&shown), shown);
}

#[test]
fn lost_data_is_never_explained() {
    let mut snapshot = Node::new().snapshot(3);
    let id = DriveId::new("A");
    Arc::make_mut(snapshot.drives.get_mut(&id).unwrap()).maintenance = true;
    add_finding(&mut snapshot, Subject::Drive(id), Reason::PendingSectors);
    let facts = Facts::default();
    assert_eq!(explained(&snapshot, &facts, at(3)).len(), 1);
    for finding in snapshot.findings.values_mut() {
        Arc::make_mut(finding).status = Status::DataLoss;
    }
    assert_eq!(explained(&snapshot, &facts, at(3)).len(), 0);
}

#[test]
fn an_order_ends_after_its_length_and_the_longest_one_is_shown() {
    let mut node = Node::new();
    node.order(drive_target("A"), 0);
    node.order(MaintenanceTarget::Node, 100);
    let id = DriveId::new("A");
    let until = |node: &mut Node, second| {
        node.snapshot(second).drives[&id].maintenance_order.as_ref().map(|it| it.until())
    };
    assert_eq!(until(&mut node, 200), Some(at(7300)));
    assert!(take_ended(&mut node.host.facts.maintenance, at(7199)).is_empty());
    assert_eq!(take_ended(&mut node.host.facts.maintenance, at(7200)).len(), 1);
    assert_eq!(take_ended(&mut node.host.facts.maintenance, at(7300)).len(), 1);
    assert!(node.host.facts.maintenance.is_empty());
    // The configuration has no end.
    node.host.policy.maintenance = vec!["sda".into()];
    node.order(MaintenanceTarget::Node, 8000);
    let drive = node.snapshot(8001).drives[&id].clone();
    assert!(drive.maintenance && drive.maintenance_order.is_none());
}
