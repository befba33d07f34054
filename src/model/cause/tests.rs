use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::block::{BlockDevice, Layer};
use crate::fixture::*;
use crate::ledger::Ledger;
use crate::signature::{OsdLabel, Signature};
use crate::snapshot::NodeState;
use crate::snapshot_builder::{SnapshotBuilder, SnapshotInput};
use crate::source_update::{SourceStatus, SourceUpdate};
use crate::stack::{MdState, Multipath, MultipathPath, ThinPool, ZfsPool};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::{Acknowledgement, Health, SeenLevel, Status};
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor};
use diskvitals_smart::history::{Metric, Point, Series, SmartHistory};

#[test]
fn a_source_that_cannot_be_read_is_a_cause_of_its_own() {
    let mut node = Node::new(TestHost::default().disk("sda", "8:0", "A"));
    let status = SourceStatus::Down("smartctl is not installed".into());
    let source = Source::Smart;
    node.host.apply(SourceUpdate::Source { source, status }, 0);
    let snapshot = node.snapshot(900);
    let causes: Vec<_> = snapshot.causes.values().collect();
    assert_eq!(causes.len(), 1);
    let cause = causes[0];
    assert_eq!(
        (cause.id.as_str(), cause.kind, cause.name.as_str()),
        ("source:smart", CauseKind::Source, "SMART")
    );
    assert!(cause.counted && cause.hits.is_empty());
    assert_eq!(cause.explain, "source:smart");
    assert_eq!(snapshot.node.health, Some(Health::Suspect));
}

struct Node {
    host: TestHost,
    ledger: Ledger,
    /// Of the last round.
    transitions: usize,
    seq: u64,
}

impl Node {
    fn new(mut host: TestHost) -> Node {
        host.read_all(0);
        Node { host, ledger: Ledger::default(), transitions: 0, seq: 0 }
    }

    fn log(&mut self, class: Class, device: &str, sectors: &[u64], second: i64) {
        self.seq += 1;
        let mut event = event(class, device, at(second), sectors);
        event.seq = self.seq;
        event.blame = Blame::Yes;
        let cursor = Cursor {
            boot_id: "boot".into(),
            counted_to: Some(self.seq),
            reread_from: self.seq + 1,
            lost: 0,
        };
        let batch = Batch {
            cursor,
            events: vec![event],
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        };
        self.host.apply(SourceUpdate::KernelLog(batch), second);
    }

    fn snapshot(&mut self, second: i64) -> Snapshot {
        let facts = &self.host.facts;
        let active = self.ledger.levels();
        let judgements = crate::assess::assess(facts, &active, &self.host.policy, at(second));
        self.ledger.follow_filesystems(&judgements, |subject| facts.filesystem_uuid(subject));
        self.transitions = self.ledger.apply(judgements, at(second)).len();
        self.ledger.clear_subjects(|subject| facts.is_removed(subject), at(second));
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

    fn causes(&mut self, second: i64) -> Vec<String> {
        lines(&self.snapshot(second))
    }
}

/// `SEVERITY NAME (DETAIL): REASON… > FOLLOWER… | HIT…` of each cause, as lists have them. `(HIT)` is
/// covered, `[HIT]` is the last copy.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let mut causes: Vec<_> = snapshot.causes.values().collect();
    causes.sort_by_key(|cause| cause.rank());
    let reasons = |findings: &[CauseFinding]| {
        let names = findings.iter().map(|finding| finding.reason.name());
        names.collect::<Vec<_>>().join(" ")
    };
    let line = |cause: &&Arc<Cause>| {
        let hits: Vec<String> = cause
            .hits
            .iter()
            .map(|hit| match (hit.covered, hit.last_copy) {
                (true, true) => format!("[{}]", hit.name),
                (true, false) => format!("({})", hit.name),
                (false, _) => hit.name.clone(),
            })
            .collect();
        let consequences = reasons(&cause.consequences);
        format!(
            "{:?} {} ({}): {} > {consequences} | {}",
            cause.severity,
            cause.name,
            cause.detail,
            reasons(&cause.findings),
            hits.join(" ")
        )
    };
    causes.iter().map(line).collect()
}

fn lv(name: &str, dev: &str, volume: &str, below: &[&str]) -> BlockDevice {
    let mut lv = dm(name, dev, &format!("vg-{volume}"), "LVM-x", below);
    if let Layer::Dm { volume_group, logical_volume, .. } = &mut lv.layer {
        (*volume_group, *logical_volume) = (Some("vg".into()), Some(volume.into()));
    }
    lv
}

/// A mirror md0 of sda and sdb below two logical volumes; sdc is alone.
fn mirror() -> TestHost {
    let md = Layer::Md { level: Some("raid1".into()) };
    TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .with(device("md0", "9:0", md, &["sda", "sdb"]))
        .with(lv("dm-0", "253:0", "home", &["md0"]))
        .with(lv("dm-1", "253:1", "srv", &["md0"]))
        .uuid("dm-0", "home")
        .uuid("dm-1", "srv")
        .uuid("sdc", "c")
        .mounted("253:0", "/", "/home", "ext4", "/dev/mapper/vg-home")
        .mounted("253:1", "/", "/srv", "xfs", "/dev/mapper/vg-srv")
        .mounted("8:32", "/", "/data", "ext4", "/dev/sdc")
}

fn md_state(degraded: u32) -> LayerState {
    LayerState::Md(MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded,
        array_state: "clean".into(),
        ..MdState::default()
    })
}

#[test]
fn a_failing_drive_is_one_cause_with_what_follows_from_it() {
    let mut node = Node::new(mirror());
    node.log(Class::Medium, "sdc", &[1], 10);
    node.log(Class::Medium, "sdc", &[1], 700);
    node.host.probe("/data", failing_probe(5), 701);
    assert_eq!(
        node.causes(702),
        ["Bad sdc (): MediaErrors > IoErrors DriveFailing NotAccessible | /data"]
    );
    let snapshot = node.snapshot(703);
    let cause = snapshot.causes.values().next().unwrap();
    assert_eq!((cause.id.as_str(), cause.explain.as_str()), ("drive:C", "sdc"));
    assert_eq!(
        cause.action,
        "Save what is on it first, this host has no other copy; then replace it."
    );
    assert_eq!(cause.hits[0].reasons, [Reason::IoErrors, Reason::NotAccessible]);
}

#[test]
fn redundancy_covers_what_is_on_a_failing_member() {
    let mut node = Node::new(mirror());
    node.host.layer("md0", md_state(0), 5);
    node.log(Class::Medium, "sda", &[1], 10);
    node.log(Class::Medium, "sda", &[1], 700);
    assert_eq!(
        node.causes(702),
        [
            "Bad sda (): MediaErrors > DriveFailing DriveFailing RedundancyAtRisk RedundancyAtRisk | (/home) (/srv)"
        ]
    );
}

#[test]
fn osds_and_the_zvols_of_virtual_machines_are_hit_as_far_as_redundancy_covers_them() {
    let zvol = |dataset: &str| Layer::Zvol { dataset: Some(dataset.into()) };
    let mut host = mirror()
        .with(device("zd0", "230:0", zvol("tank/vm-100-disk-0"), &["md0"]))
        .with(device("zd16", "230:16", zvol("tank/home"), &["sda"]))
        .uuid("zd16", "z")
        .mounted("230:16", "/", "/z", "ext4", "/dev/zd16");
    let osd = |id: &str| OsdLabel {
        uuid: id.into(),
        role: "main".into(),
        id: Some(id.into()),
        cluster: None,
    };
    for (device, id) in [("dm-1", "7"), ("sda", "8")] {
        let label = Signature { fs_type: "ceph_bluestore".into(), osd: Some(osd(id)), zfs: None };
        host.inventory.signatures.insert(device.into(), vec![label]);
    }
    let mut node = Node::new(host);
    node.host.layer("md0", md_state(0), 5);
    node.log(Class::Medium, "sda", &[1], 10);
    let causes = node.causes(11);
    let (_, hits) = causes[0].split_once(" | ").unwrap();
    assert_eq!(hits, "/z osd.8 (/home) (/srv) (osd.7) (tank/vm-100-disk-0)");
    // With both members BAD, one more may not fail.
    node.log(Class::Medium, "sdb", &[1], 20);
    for second in [700, 1400] {
        node.log(Class::Medium, "sda", &[1], second);
        node.log(Class::Medium, "sdb", &[1], second);
    }
    let causes = node.causes(1401);
    let (_, hits) = causes[0].split_once(" | ").unwrap();
    assert!(hits.contains(" osd.7 ") && !hits.contains("(osd.7)"), "{causes:?}");
}

#[test]
fn a_degraded_array_is_one_cause_with_all_its_mounts() {
    let mut node = Node::new(mirror());
    node.host.layer("md0", md_state(1), 10);
    assert_eq!(
        node.causes(11),
        ["Suspect md0 (raid1, 1 of 2 devices): RedundancyLost RedundancyLost >  | [/home] [/srv]"]
    );
    // A member that is suspect for another reason did not degrade it, and nothing covers that member.
    node.log(Class::Transport, "sda", &[], 20);
    assert_eq!(
        node.causes(21),
        [
            "Suspect md0 (raid1, 1 of 2 devices): RedundancyLost RedundancyLost >  | [/home] [/srv]",
            "Suspect sda (): LinkErrors >  | /home /srv",
        ]
    );
}

#[test]
fn what_an_array_lacks_follows_from_the_member_that_md_has_taken_out() {
    let mut node = Node::new(mirror());
    let state = LayerState::Md(MdState {
        level: "raid1".into(),
        raid_disks: 2,
        degraded: 1,
        array_state: "clean".into(),
        members: vec![md_member("sda", "in_sync", Some(0)), md_member("sdb", "faulty", None)],
        ..MdState::default()
    });
    node.host.layer("md0", state, 10);
    assert_eq!(
        node.causes(11),
        ["Suspect sdb (): RaidMemberFailed > RedundancyLost RedundancyLost | [/home] [/srv]"]
    );
}

#[test]
fn a_multipath_device_with_one_path_has_no_redundancy_left_and_its_name_after_a_boot() {
    let host = TestHost::default()
        .disk("sdb", "8:16", "B")
        .with(dm("dm-0", "253:0", "mpatha", "mpath-B", &["sdb"]))
        .uuid("dm-0", "san")
        .mounted("253:0", "/", "/san", "xfs", "/dev/mapper/mpatha");
    for (active, hit) in [(1, "[/san]"), (2, "(/san)")] {
        let mut node = Node::new(host.clone());
        let path = |at: u32| MultipathPath {
            dev: DevNo::new(8, 16 * at),
            active: at <= active,
            fail_count: 0,
        };
        let paths = (1..=3).map(path).collect();
        let state = Multipath { paths, ..Multipath::default() };
        node.host.layer("dm-0", LayerState::Multipath(state), 10);
        assert_eq!(
            node.causes(11),
            [format!("Suspect mpatha ({active} of 3 paths): PathsDegraded >  | {hit}")]
        );
        let snapshot = node.snapshot(12);
        assert_eq!(snapshot.causes.values().next().unwrap().explain, "mpatha");
    }
}

#[test]
fn an_array_that_lacks_a_missing_drive_follows_from_that_drive() {
    let mut node = Node::new(mirror());
    node.host.layer("md0", md_state(0), 5);
    node.snapshot(6);
    node.host.pull("sdb");
    node.host.scan(10);
    node.host.layer("md0", md_state(1), 11);
    assert_eq!(
        node.causes(12),
        [
            "Bad was sdb (): DriveMissing > RedundancyLost RedundancyLost DriveFailing DriveFailing | [/home] [/srv]"
        ]
    );
}

#[test]
fn what_an_array_lacks_comes_first_among_suspect_causes_with_advice_for_its_state() {
    let mut node = Node::new(mirror());
    node.log(Class::Reset, "sdc", &[], 5);
    node.host.layer("md0", md_state(1), 10);
    let snapshot = node.snapshot(11);
    assert!(lines(&snapshot)[0].starts_with("Suspect md0"), "{:#?}", lines(&snapshot));
    let causes = snapshot.causes.values();
    let array = causes.clone().find(|cause| cause.kind == CauseKind::Array).unwrap();
    assert!(array.message.starts_with("no redundancy left: "), "{}", array.message);
    assert!(array.action.contains("`mdadm /dev/md0 --add /dev/NEW`"), "{}", array.action);
    // A drive that md has taken out is nothing to watch.
    let mut node = Node::new(mirror());
    node.host.layer("md0", md_state(0), 5);
    node.snapshot(6);
    node.host.pull("sdb");
    node.host.scan(10);
    node.host.layer("md0", md_state(1), 11);
    let snapshot = node.snapshot(12);
    let drive = snapshot.causes.values().find(|cause| cause.kind == CauseKind::Drive).unwrap();
    assert!(drive.action.contains("No redundancy is left for"), "{}", drive.action);
    assert!(!drive.action.contains("covers"), "{}", drive.action);
}

#[test]
fn a_full_pool_is_one_cause_with_all_its_mounts() {
    let pool = lv("dm-5", "253:5", "pool", &["sda"]);
    let host = TestHost::default()
        .disk("sda", "8:0", "A")
        .with(pool)
        .with(lv("dm-6", "253:6", "a", &["dm-5"]))
        .with(lv("dm-7", "253:7", "b", &["dm-5"]))
        .uuid("dm-6", "a")
        .uuid("dm-7", "b")
        .mounted("253:6", "/", "/a", "ext4", "/dev/mapper/vg-a")
        .mounted("253:7", "/", "/b", "ext4", "/dev/mapper/vg-b");
    let mut node = Node::new(host);
    let state = ThinPool {
        metadata_used: 16,
        metadata_total: 100,
        data_used: 99,
        data_total: 100,
        mode: "rw".into(),
        ..ThinPool::default()
    };
    node.host.layer("dm-5", LayerState::Thin(state), 5);
    assert_eq!(
        node.causes(6),
        ["Bad vg/pool (data 99 %, metadata 16 %): ThinPoolFull ThinPoolFull >  | /a /b"]
    );
}

#[test]
fn a_full_zfs_pool_is_one_cause_and_a_dataset_at_its_quota_another() {
    let pool = BlockDevice {
        size_bytes: 0,
        ..device("zfs:tank", "0:0", Layer::ZfsPool { name: "tank".into() }, &["sda"])
    };
    let mut host = TestHost::default().disk("sda", "8:0", "A").with(pool);
    host = host.mounted("0:50", "/", "/tank", "zfs", "tank");
    for number in 1..=15 {
        let (dev, name) = (format!("0:{}", 50 + number), format!("tank/{number:02}"));
        host = host.mounted(&dev, "/", &format!("/{name}"), "zfs", &name);
    }
    let mut node = Node::new(host);
    node.host.layer("zfs:tank", LayerState::Zfs(ZfsPool::default()), 5);
    let of = |used: u64, left: u64| healthy_probe(usage(used + left, left));
    node.host.probe("/tank", of(GIB, GIB / 128), 6);
    for number in 1..=14 {
        node.host.probe(&format!("/tank/{number:02}"), of(number * GIB, GIB / 128), 6);
    }
    node.host.probe("/tank/15", of(GIB, 0), 6);
    let causes: Vec<String> = node.snapshot(7).causes.keys().map(ToString::to_string).collect();
    assert_eq!(causes, ["pool:tank"], "what is left is what its quota leaves");
    node.host.probe("/tank", of(GIB, 20 * GIB), 8);
    for number in 1..=14 {
        node.host.probe(&format!("/tank/{number:02}"), of(number * GIB, 20 * GIB), 8);
    }
    let causes: Vec<String> = node.snapshot(9).causes.keys().map(ToString::to_string).collect();
    assert_eq!(causes, ["mount:mnt:/tank/15"]);
}

#[test]
fn a_volume_that_is_degraded_otherwise_is_a_cause_of_its_own_after_worse_ones() {
    let mut node = Node::new(mirror());
    node.log(Class::Medium, "sdc", &[1], 10);
    node.log(Class::Medium, "sdc", &[1], 700);
    let full = healthy_probe(usage(100 * GIB, GIB / 2));
    node.host.probe("/data", full, 701);
    let lines = node.causes(702);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(lines[0], "Bad sdc (): MediaErrors > IoErrors DriveFailing | /data");
    assert!(lines[1].ends_with("/data (ext4 on sdc): OutOfSpace >  | "), "{lines:#?}");
    let snapshot = node.snapshot(703);
    let full = snapshot.causes.values().find(|cause| cause.kind == CauseKind::Mount);
    assert_eq!(full.unwrap().findings[0].figure, "over 99 %");
}

#[test]
fn acknowledged_causes_come_last_and_do_not_count() {
    let mut node = Node::new(mirror());
    node.log(Class::Medium, "sdc", &[1], 10);
    node.log(Class::Medium, "sdc", &[1], 700);
    node.log(Class::Reset, "sda", &[], 700);
    let snapshot = node.snapshot(702);
    for finding in snapshot.findings.values() {
        let of_sdc =
            [Subject::Drive(DriveId::new("C")), Subject::Volume(VolumeId::filesystem("c"))];
        if of_sdc.contains(&finding.subject) {
            let (by, note) = ("uid 0 (root)".to_owned(), "known".to_owned());
            node.ledger
                .acknowledge(&finding.id, (by, note), SeenLevel::default(), at(703))
                .unwrap();
        }
    }
    let snapshot = node.snapshot(704);
    let mut causes: Vec<_> = snapshot.causes.values().collect();
    causes.sort_by_key(|cause| cause.rank());
    let shown: Vec<_> =
        causes.iter().map(|cause| (cause.name.as_str(), cause.severity, cause.counted)).collect();
    assert_eq!(shown, [("sda", Severity::Suspect, true), ("sdc", Severity::Bad, false)]);
}

#[test]
fn growth_is_that_of_the_last_day_and_unknown_growth_is_none() {
    let point = |hours: i64, value| Point { at: at(hours * 3600), value };
    let history = |points: Vec<Point>| {
        let series = Series { points, reset: None };
        let smart = crate::facts::smart::SmartFacts {
            history: Arc::new(SmartHistory {
                series: [(Metric::Pending, series)].into(),
                ..SmartHistory::default()
            }),
            ..Default::default()
        };
        let mut node = Node::new(mirror());
        let mut snapshot = node.snapshot(1);
        let id = DriveId::new("C");
        Arc::make_mut(snapshot.drives.get_mut(&id).unwrap()).smart = Some(Arc::new(smart));
        let pending = finding(Subject::Drive(id), Reason::PendingSectors, Severity::Bad, 0);
        figures::of_finding(&snapshot, &pending, at(100 * 3600))
    };
    let grown = vec![point(0, 10), point(70, 16), point(90, 24), point(99, 24)];
    assert_eq!(history(grown), ("24".to_owned(), 8));
    let calm = vec![point(0, 24), point(99, 24)];
    assert_eq!(history(calm), ("24".to_owned(), 0));
    let asleep = vec![point(0, 10), point(10, 24)];
    assert_eq!(history(asleep), ("24".to_owned(), 0), "an old reading");
    assert_eq!(history(Vec::new()), (String::new(), 0));
}

/// A filesystem that is unmounted for its repair and mounted again is one cause and one finding: what
/// was acknowledged stays so, and nobody gets another message.
#[test]
fn a_filesystem_is_one_cause_whether_it_is_mounted_or_not() {
    for (class, reason, severity) in [
        (Class::FsCorruption, Reason::FilesystemCorrupted, Severity::Bad),
        (Class::FsError, Reason::FilesystemErrors, Severity::Suspect),
    ] {
        let mut node = Node::new(mirror());
        node.log(class, "dm-0", &[], 10);
        let before = node.snapshot(11);
        let [cause] = before.causes.values().collect::<Vec<_>>()[..] else {
            panic!("one cause: {:#?}", lines(&before));
        };
        assert_eq!((cause.name.as_str(), cause.severity), ("/home", severity));
        let id = cause.findings[0].id.clone();
        let (by, note) = ("uid 0 (root)".to_owned(), "repairing".to_owned());
        node.ledger.acknowledge(&id, (by, note), SeenLevel::default(), at(12)).unwrap();
        for (mounted, second) in [(false, 20), (true, 30), (false, 40)] {
            node.host = match mounted {
                true => {
                    let host = std::mem::take(&mut node.host);
                    host.mounted("253:0", "/", "/home", "ext4", "/dev/mapper/vg-home")
                }
                false => {
                    node.host.umount("/home");
                    std::mem::take(&mut node.host)
                }
            };
            node.host.read_mounts(second);
            let after = node.snapshot(second + 1);
            let [now] = after.causes.values().collect::<Vec<_>>()[..] else {
                panic!("one cause: {:#?}", lines(&after));
            };
            let found = &now.findings[0];
            assert_eq!((&now.id, &found.id, found.reason), (&cause.id, &id, reason));
            assert_eq!((found.severity, found.acknowledged), (severity, true));
            assert_eq!(node.transitions, 0, "{class:?}, mounted: {mounted}");
            let (name, detail) = match mounted {
                true => ("/home", "ext4 on vg/home"),
                false => ("vg/home", "filesystem, not mounted"),
            };
            assert_eq!((now.name.as_str(), now.detail.as_str()), (name, detail));
            let subject = &after.findings[&id].subject;
            assert_eq!(matches!(subject, Subject::Volume(_)), mounted, "{subject:?}");
        }
    }
}

fn finding(subject: Subject, reason: Reason, severity: Severity, second: i64) -> Finding {
    Finding {
        id: FindingId::new(&subject.to_string(), reason.name(), at(second)),
        subject,
        reason,
        severity,
        status: Status::Degraded,
        message: "m".into(),
        since: at(second),
        last_seen: at(second),
        count: 1,
        evidence: Vec::new(),
        clears_when: String::new(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    }
}

proptest! {
    #[test]
    fn every_finding_is_in_a_cause_and_every_cause_has_findings(
        found in proptest::collection::vec((0..9usize, 0..Reason::ALL.len(), 0..3u8, any::<bool>(), any::<bool>()), 0..24),
        degraded in 0..3u32,
    ) {
        let mut node = Node::new(mirror());
        node.host.layer("md0", md_state(0), 1);
        let mut snapshot = node.snapshot(2);
        let volume = |name: &str| Subject::Volume(VolumeId::filesystem(name));
        let subjects = [
            Subject::Drive(DriveId::new("A")), Subject::Drive(DriveId::new("B")), Subject::Drive(DriveId::new("C")),
            Subject::Drive(DriveId::new("unknown")), Subject::Device("md0".into()), Subject::Device("gone".into()),
            volume("home"), volume("srv"), volume("unknown"),
        ];
        let mut last = None;
        for (second, (subject, reason, severity, acknowledged, follows)) in found.into_iter().enumerate() {
            let severity = [Severity::Info, Severity::Suspect, Severity::Bad][usize::from(severity)];
            let mut finding = finding(subjects[subject].clone(), Reason::ALL[reason], severity, second as i64);
            finding.follows = last.clone().filter(|_| follows);
            if acknowledged {
                finding.acknowledged = Some(Acknowledgement { by: "b".into(), time: at(0), note: "n".into() });
            }
            last = Some(finding.id.clone());
            match &finding.subject {
                Subject::Drive(id) => if let Some(drive) = snapshot.drives.get_mut(id) {
                    Arc::make_mut(drive).findings.push(finding.id.clone());
                },
                Subject::Volume(id) => if let Some(volume) = snapshot.volumes.get_mut(id) {
                    Arc::make_mut(volume).findings.push(finding.id.clone());
                },
                Subject::Device(_) | Subject::Source(_) => {}
            }
            snapshot.findings.insert(finding.id.clone(), Arc::new(finding));
        }
        node.host.layer("md0", md_state(degraded), 3);
        let causes = group(&snapshot, &node.host.facts, at(100));
        for finding in snapshot.findings.values() {
            let own = causes.values().filter(|cause| cause.findings.iter().any(|it| it.id == finding.id)).count();
            prop_assert!(causes.values().any(|cause| cause.contains(&finding.id)), "{finding:?}");
            prop_assert!(own <= 1);
        }
        for (id, cause) in &causes {
            prop_assert_eq!(id, &cause.id);
            prop_assert!(!cause.findings.is_empty());
            let worst = cause.all_findings().filter(|it| !cause.counted || !it.acknowledged).map(|it| it.severity).max();
            prop_assert_eq!(worst, Some(cause.severity));
        }
    }
}
