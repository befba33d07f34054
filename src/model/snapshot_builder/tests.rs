use super::*;
use crate::block::Inventory;
use crate::drive::{DriveFacts, DriveKind, Location, Transport};
use crate::facts::probes::ProbeFacts;
use crate::facts::{KnownDrive, KnownVolume};
use crate::policy::VolumeSettings;
use crate::probe::MountProbe;
use crate::source_update::SourceUpdate;
use crate::volume::{MountRole, Stack, VolumeFacts, VolumeMount};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::mount::MountTable;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{FindingDetails, Judgement, SeenLevel, Status, UnknownCause, Verdict};
use diskvitals_kernel_log::event::{Batch, Cursor};
use diskvitals_smart::SmartResponse;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn drive_id() -> DriveId {
    DriveId::new("naa.5")
}

fn volume_id() -> VolumeId {
    VolumeId::filesystem("u")
}

fn drive() -> KnownDrive {
    let facts = DriveFacts {
        id: drive_id(),
        id_stable: true,
        identities: Vec::new(),
        place: DriveId::default(),
        name: "sda".to_owned(),
        devices: Vec::new(),
        links: Vec::new(),
        vendor: None,
        model: None,
        serial: None,
        firmware: None,
        wwn: None,
        kind: DriveKind::Hdd,
        transport: Transport::Sata,
        size_bytes: 1,
        logical_block_size: 512,
        physical_block_size: 512,
        rotational: None,
        removable: false,
        write_cache: None,
        location: Location::default(),
        state: None,
        command_timeout: None,
        lowered_link_speed: None,
        flash: None,
        asleep: false,
    };
    let (first_seen, last_seen) = (at(0), at(0));
    KnownDrive {
        facts,
        first_seen,
        last_seen,
        missing_since: None,
        abnormal_state_since: None,
        volumes: vec![volume_id()],
        in_use: true,
        signatures: Vec::new(),
        member_of: Vec::new(),
        content: Default::default(),
        medium_size: 0,
        released: None,
        last_use: None,
        failed: None,
        moved: None,
    }
}

fn volume() -> KnownVolume {
    let path = HostPath::from("/data");
    let root = HostPath::from("/");
    let facts = VolumeFacts {
        id: volume_id(),
        driver: None,
        handle: None,
        pv: None,
        block: false,
        ephemeral: false,
        device: None,
        source: None,
        fs_type: None,
        fs_uuid: None,
        fs_label: None,
        mounts: vec![VolumeMount {
            path,
            role: MountRole::Host,
            options: Default::default(),
            super_options: Default::default(),
            root,
            pod_uid: None,
        }],
        missing_mounts: Vec::new(),
        pods: Vec::new(),
        drive_ids: vec![drive_id()],
        stack: Stack::Nothing,
        devices: Vec::new(),
        device_gone: false,
        remote: false,
        provided: None,
    };
    KnownVolume {
        facts: facts.into(),
        first_seen: at(0),
        first_super_read_only: false,
        first_mount_read_only: false,
        retained: false,
        read_only_by_choice: Default::default(),
        seen_writable: Default::default(),
        absences: Default::default(),
        mounted_since: Default::default(),
        remounted_at: None,
        hidden_by: None,
    }
}

fn node_facts() -> Facts {
    let mut facts = Facts {
        inventory: Observation::ok(at(0), Arc::new(Inventory::default())).into(),
        ..Facts::default()
    };
    facts.mounts = Observation::ok(at(0), MountTable::default()).into();
    facts.drives.insert(drive_id(), drive());
    facts.volumes.insert(volume_id(), volume());
    for update in [
        SourceUpdate::KernelLog(Batch {
            cursor: Cursor::default(),
            events: Vec::new(),
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: true,
        }),
        SourceUpdate::Counters(Observation::ok(at(0), Vec::new())),
    ] {
        facts.apply(update, &VolumeSettings::default(), at(0));
    }
    facts
}

fn measured(facts: &mut Facts, available_bytes: u64, second: i64) {
    let usage = Usage { total_bytes: 1_000_000, available_bytes, ..Usage::default() };
    let result = Observation::ok(
        at(second),
        MountProbe { statfs: Ok(usage), readdir: Ok(()), btrfs: None, mount_id: None },
    );
    facts.probes.insert(
        HostPath::from("/data"),
        ProbeFacts { result, usage: Some((usage, at(second))), ..ProbeFacts::default() },
    );
}

struct BuilderFixture {
    builder: SnapshotBuilder,
    last: Arc<Snapshot>,
    ledger: Ledger,
    policy: Policy,
    settled: bool,
}

impl BuilderFixture {
    fn new() -> BuilderFixture {
        let last = Arc::new(Snapshot { revision: 100, ..Snapshot::default() });
        BuilderFixture {
            builder: SnapshotBuilder::default(),
            last,
            ledger: Ledger::default(),
            policy: Policy::default(),
            settled: true,
        }
    }

    fn next(&mut self, facts: &Facts, second: i64) -> Vec<(u64, ChangeKind, &'static str)> {
        let (ledger, policy) = (&mut self.ledger, &self.policy);
        let scene = SnapshotInput {
            facts,
            ledger,
            policy,
            care: &crate::care::CarePlan::default(),
            node: NodeState::default(),
            settled: self.settled,
            now: at(second),
        };
        let update = self.builder.build(&self.last, scene);
        self.last = update.snapshot;
        let name = |item: &ChangedItem| match item {
            ChangedItem::Drive(_) => "drive",
            ChangedItem::Volume(_) => "volume",
            ChangedItem::Finding(_) => "finding",
            ChangedItem::Check(_) => "check",
            ChangedItem::Cause(_) => "cause",
        };
        update
            .changes
            .iter()
            .map(|change| (change.revision, change.kind, name(&change.item)))
            .collect()
    }

    fn judge(&mut self, verdict: Verdict, second: i64) {
        let subject = Subject::Drive(drive_id());
        self.ledger
            .apply(vec![Judgement { subject, reason: Reason::DriveMissing, verdict }], at(second));
    }

    fn raise(&mut self, second: i64) {
        let message = "gone".to_owned();
        let (severity, status) = (Severity::Bad, Status::Inaccessible);
        self.judge(
            Verdict::Raised(FindingDetails {
                severity,
                status,
                message,
                evidence: Vec::new(),
                clears_when: String::new(),
                advice: None,
                since: None,
                of_drive_failure: false,
            }),
            second,
        );
    }
}

use ChangeKind::{Added, Modified, Removed};

#[test]
fn each_change_is_one_revision_and_no_change_shares_the_snapshot() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    assert_eq!(fixture.next(&facts, 0), [(101, Added, "drive"), (102, Added, "volume")]);
    assert_eq!(fixture.last.revision, 102);
    let before = fixture.last.clone();
    assert_eq!(fixture.next(&facts, 1), []);
    assert!(Arc::ptr_eq(&before, &fixture.last));
    fixture.raise(2);
    assert_eq!(
        fixture.next(&facts, 2),
        [(103, Modified, "drive"), (104, Added, "finding"), (105, Added, "cause")]
    );
    assert!(
        Arc::ptr_eq(&before.volumes[&volume_id()], &fixture.last.volumes[&volume_id()]),
        "what did not change is shared"
    );
    assert_eq!(fixture.last.drives[&drive_id()].health, Health::Bad);
    fixture.judge(Verdict::Clear, 3);
    assert_eq!(
        fixture.next(&facts, 3),
        [(106, Modified, "drive"), (107, Removed, "finding"), (108, Removed, "cause")]
    );
    assert_eq!(fixture.last.history.len(), 1);
    facts.volumes.clear();
    assert_eq!(fixture.next(&facts, 4), [(109, Removed, "volume")]);
}

#[test]
fn timestamps_update_in_the_snapshot_without_a_change_event() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    measured(&mut facts, 500_000, 0);
    fixture.raise(0);
    fixture.next(&facts, 0);
    measured(&mut facts, 500_000, 3000);
    facts.drives.get_mut(&drive_id()).unwrap().last_seen = at(3000);
    fixture.raise(3000);
    assert_eq!(fixture.next(&facts, 3000), []);
    assert_eq!(fixture.last.volumes[&volume_id()].last_probe, Some(at(3000)));
    assert_eq!(fixture.last.findings.values().next().unwrap().last_seen, at(3000));
}

#[test]
fn usage_changes_are_published_when_noticeable_or_after_the_interval() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    measured(&mut facts, 500_000, 0);
    fixture.next(&facts, 0);
    measured(&mut facts, 499_400, 60);
    assert_eq!(fixture.next(&facts, 60), []);
    assert!(
        matches!(fixture.last.volumes[&volume_id()].usage, VolumeUsage::Mounted { usage, .. } if usage.available_bytes == 499_400)
    );
    measured(&mut facts, 498_800, 120);
    assert_eq!(fixture.next(&facts, 120).len(), 1, "small steps add up");
    measured(&mut facts, 498_799, 180);
    assert_eq!(fixture.next(&facts, 180), []);
    measured(&mut facts, 498_798, 420);
    assert_eq!(fixture.next(&facts, 420).len(), 1, "after five minutes the smallest step is told");
}

#[test]
fn the_last_usage_remains_and_is_stale_since_the_first_failed_probe() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    assert_eq!(fixture.next(&facts, 0).len(), 2);
    assert_eq!(fixture.last.volumes[&volume_id()].usage, VolumeUsage::NotMeasured);
    measured(&mut facts, 1, 10);
    fixture.next(&facts, 10);
    for second in [20, 30] {
        facts.probes.get_mut(&HostPath::from("/data")).unwrap().result =
            Observation::failed(at(second), "no worker");
        fixture.next(&facts, second);
    }
    let usage = fixture.last.volumes[&volume_id()].usage;
    assert!(
        matches!(usage, VolumeUsage::Mounted { at: when, stale: Some(since), .. } if when == at(10) && since == at(20)),
        "{usage:?}"
    );
}

#[test]
fn a_failed_source_is_unknown_also_before_settled_and_never_with_an_adverse_finding() {
    let mut fixture = BuilderFixture { settled: false, ..BuilderFixture::new() };
    let facts = Facts { inventory: Observation::failed(at(0), "no scan").into(), ..node_facts() };
    fixture.next(&facts, 0);
    let drive = &fixture.last.drives[&drive_id()];
    assert_eq!(
        (drive.health, drive.health_unknown_why.as_str()),
        (Health::Unknown, "drives: no scan")
    );
    assert_eq!(fixture.last.node.health, None);
    fixture.settled = true;
    fixture.next(&facts, 1);
    assert_eq!(fixture.last.node.health, Some(Health::Unknown));
    fixture.raise(2);
    fixture.next(&facts, 2);
    let drive = &fixture.last.drives[&drive_id()];
    assert_eq!((drive.health, drive.health_unknown_cause), (Health::Bad, None));
    assert_eq!(drive.health_unknown_why, "");
}

/// Nothing has failed, and nothing is known to be good: the drive is shown as unknown, and the node
/// is good.
#[test]
fn a_drive_that_has_never_been_awake_does_not_make_the_node_unknown() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    let standby = SourceUpdate::Smart {
        drive: drive_id(),
        at: at(0),
        response: Box::new(SmartResponse::Standby { mode: "STANDBY".to_owned() }),
        duration: Duration::ZERO,
    };
    facts.apply(standby, &VolumeSettings::default(), at(0));
    fixture.next(&facts, 0);
    let drive = &fixture.last.drives[&drive_id()];
    assert_eq!(
        (drive.health, drive.health_unknown_cause),
        (Health::Unknown, Some(UnknownCause::Asleep))
    );
    assert_eq!(fixture.last.volumes[&volume_id()].health, Health::Good);
    assert_eq!(fixture.last.node.health, Some(Health::Good));
}

#[test]
fn a_filesystem_without_a_size_is_not_measured() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    measured(&mut facts, 5, 10);
    fixture.next(&facts, 10);
    let dead =
        MountProbe { statfs: Ok(Usage::default()), readdir: Ok(()), btrfs: None, mount_id: None };
    let probe = facts.probes.get_mut(&HostPath::from("/data")).unwrap();
    probe.result = Observation::ok(at(20), dead);
    fixture.next(&facts, 20);
    let usage = fixture.last.volumes[&volume_id()].usage;
    assert!(
        matches!(usage, VolumeUsage::Mounted { usage, stale: Some(_), .. } if usage.total_bytes == 1_000_000),
        "{usage:?}"
    );
}

#[test]
fn an_array_of_unknown_state_counts_for_the_node_until_that_is_acknowledged() {
    let mut fixture = BuilderFixture::new();
    let mut facts = node_facts();
    let mut array = facts.drives.remove(&drive_id()).unwrap();
    array.facts.transport = Transport::Raid;
    array.facts.location.array_driver = Some("aacraid".to_owned());
    let mut second = array.clone();
    second.facts.id = DriveId::new("naa.6");
    facts.drives.insert(drive_id(), array);
    facts.drives.insert(DriveId::new("naa.6"), second);
    let (subject, reason) = (Subject::Drive(drive_id()), Reason::RaidStateUnknown);
    let verdict = Verdict::Raised(FindingDetails {
        severity: Severity::Info,
        status: Status::Information,
        message: "array state not read".to_owned(),
        evidence: Vec::new(),
        clears_when: String::new(),
        advice: None,
        since: None,
        of_drive_failure: false,
    });
    fixture.ledger.apply(vec![Judgement { subject, reason, verdict }], at(0));
    fixture.next(&facts, 0);
    assert_eq!(fixture.last.node.health, Some(Health::Unknown));
    let id = fixture.last.findings.keys().next().cloned().unwrap();
    let by = ("uid 0".to_owned(), "no tool for it".to_owned());
    fixture.ledger.acknowledge(&id, by, SeenLevel::default(), at(1)).unwrap();
    fixture.next(&facts, 1);
    assert_eq!(fixture.last.node.health, Some(Health::Good));
    let drives: Vec<Health> = fixture.last.drives.values().map(|drive| drive.health).collect();
    assert_eq!(drives, [Health::Unknown; 2], "an acknowledgement is no reading");
}

#[test]
fn an_acknowledged_finding_counts_for_its_drive_and_not_for_the_node() {
    let mut fixture = BuilderFixture::new();
    let facts = node_facts();
    fixture.raise(0);
    fixture.next(&facts, 0);
    assert_eq!(fixture.last.node.health, Some(Health::Bad));
    let id = fixture.last.drives[&drive_id()].findings[0].clone();
    fixture
        .ledger
        .acknowledge(&id, ("uid 0".to_owned(), "known".to_owned()), SeenLevel::default(), at(1))
        .unwrap();
    fixture.next(&facts, 1);
    assert_eq!(
        (fixture.last.node.health, fixture.last.drives[&drive_id()].health),
        (Some(Health::Good), Health::Bad)
    );
    fixture.ledger.unacknowledge(&id).unwrap();
    fixture.policy.maintenance = vec!["sda".to_owned()];
    fixture.next(&facts, 2);
    assert!(fixture.last.drives[&drive_id()].maintenance);
    assert_eq!(fixture.last.node.health, Some(Health::Good));
}

#[test]
fn a_node_whose_drives_or_mounts_cannot_be_listed_is_unknown_and_not_good() {
    let mut fixture = BuilderFixture::new();
    let empty = Facts {
        inventory: Observation::failed(at(0), "no /sys").into(),
        mounts: Observation::ok(at(0), MountTable::default()).into(),
        ..Facts::default()
    };
    fixture.next(&empty, 0);
    assert_eq!(fixture.last.node.health, Some(Health::Unknown));
    let mut blind = node_facts();
    blind.mounts = Observation::failed(at(1), "no /proc").into();
    fixture.next(&blind, 1);
    assert_eq!(fixture.last.node.health, Some(Health::Unknown));
    fixture.next(&node_facts(), 2);
    assert_eq!(fixture.last.node.health, Some(Health::Good));
}

/// A loop device has its number before its file.
#[test]
fn a_raw_device_that_is_being_set_up_has_no_size() {
    let usage_at_size = |size_bytes| {
        let mut facts = node_facts();
        let device = crate::fixture::device(
            "loop0",
            "7:0",
            crate::block::Layer::Loop { backing_file: None },
            &[],
        );
        let device = crate::block::BlockDevice { size_bytes, ..device };
        let devices = [("loop0".to_owned(), device)].into();
        let inventory = Inventory { devices, ..Inventory::default() };
        facts.inventory = Observation::ok(at(0), Arc::new(inventory)).into();
        let mut volume = volume();
        let of_device = VolumeFacts {
            block: true,
            device: Some("loop0".to_owned()),
            mounts: Vec::new(),
            ..(*volume.facts).clone()
        };
        volume.facts = of_device.into();
        facts.volumes.insert(volume_id(), volume);
        let mut fixture = BuilderFixture::new();
        fixture.next(&facts, 0);
        fixture.last.volumes[&volume_id()].usage
    };
    assert_eq!(usage_at_size(8 << 20), VolumeUsage::Block { size_bytes: 8 << 20 });
    assert_eq!(usage_at_size(0), VolumeUsage::Unknown);
}
