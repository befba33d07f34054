use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::Layer;
use crate::facts::KnownVolume;
use crate::fixture::*;
use crate::snapshot::{Drive, NodeContext, Presence, Snapshot, Volume, VolumeUsage};
use crate::source_update::SourceStatus;
use crate::storage::{
    StorageFault, StorageUnknown, connectivity, driver_storage, pool_connectivity,
};
use crate::volume::{Condition, CsiStatus, OperationalStatus, Stack, UsageStatus};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::provision::{
    AccessMode, BackingKind, ProvidedAttachment, ProvidedVolume, ProvisionState, VolumeAccess,
    VolumePresence,
};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Health, Subject, UnknownCause};

/// A pool's folder on the partition sdp1 of the drive P, with one volume of it: attached as loop7
/// and staged, or neither.
pub fn pool(staged: Option<&str>, published: &[&str]) -> TestHost {
    let mut host = TestHost::default()
        .disk("sdp", "8:0", "P")
        .with(device("sdp1", "8:1", Layer::Partition { number: 1, start_bytes: 1 << 20 }, &["sdp"]))
        .mounted("8:1", "/", "/pool", "ext4", "/dev/sdp1");
    let attachment = |path: &str| ProvidedAttachment {
        path: path.into(),
        access: VolumeAccess {
            mode: AccessMode::SingleNodeWriter,
            block: false,
            fs_type: None,
            mount_flags: Vec::new(),
        },
        read_only: false,
        pod: None,
        since: at(-100),
    };
    let volume = ProvidedVolume {
        handle: "v1".into(),
        kind: BackingKind::Loop,
        size: 5 * GIB,
        device: staged.map(|_| "loop7".into()),
        backing: "/pool/images/v1.img".into(),
        staged: staged.map(attachment),
        published: published.iter().map(|path| attachment(path)).collect(),
        presence: VolumePresence::Present,
        error: None,
        is_unread: false,
    };
    for path in staged.iter().chain(published) {
        host = host.mounted("7:7", "/", path, "ext4", "/dev/loop7");
    }
    if staged.is_some() {
        host = host.with(device(
            "loop7",
            "7:7",
            Layer::Loop { backing_file: Some("/pool/images/v1.img".into()) },
            &[],
        ));
    }
    host.provision = Some(ProvisionState {
        driver: "own".into(),
        volumes: vec![volume],
        directory: Some("/pool".into()),
        volume_group: None,
        physical_volumes: Vec::new(),
    });
    host
}

/// As it would be published of facts that nothing is known against.
pub fn volume(known: &KnownVolume) -> Volume {
    Volume {
        facts: known.facts.clone(),
        usage: VolumeUsage::NotMeasured,
        csi_status: CsiStatus::Published,
        operational_status: OperationalStatus::Operative,
        usage_status: UsageStatus::InUse,
        health: Health::Good,
        health_unknown_why: String::new(),
        health_unknown_cause: None,
        redundancy: String::new(),
        scrubs: Vec::new(),
        condition: Some(Condition::default()),
        findings: Vec::new(),
        first_seen: known.first_seen,
        last_probe: None,
        errors: None,
    }
}

/// Volume `m` of driver `d` on a mirror of the drives A and B, volume `s` on A alone; drive C is
/// another's.
fn test_snapshot() -> Snapshot {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/m", "ext4", "/dev/sda")
        .mounted("8:0", "/s", "/s", "ext4", "/dev/sda");
    host = host.csi("d", "m", None, &[("u1", "/m")]).csi("d", "s", None, &[("u2", "/s")]);
    host.read_all(0);
    let mut snapshot = Snapshot { settled: true, ..Snapshot::default() };
    for (id, known) in host.facts.volumes.iter().filter(|(_, known)| known.facts.driver.is_some()) {
        let mut of = volume(known);
        if id.as_str() == "csi:d/m" {
            let facts = Arc::make_mut(&mut of.facts);
            facts.drive_ids = vec![DriveId::new("A"), DriveId::new("B")];
            let parts = facts.drive_ids.iter().cloned().map(Stack::Drive).collect();
            facts.stack = Stack::Redundant { level: "raid1 md0".into(), tolerates: 1, parts };
        }
        snapshot.volumes.insert(id.clone(), Arc::new(of));
    }
    for (name, serial) in [("sda", "A"), ("sdb", "B"), ("sdc", "C")] {
        snapshot.drives.insert(DriveId::new(serial), Arc::new(published(name, serial)));
    }
    snapshot
}

fn drive_mut<'a>(snapshot: &'a mut Snapshot, serial: &str) -> &'a mut Drive {
    Arc::make_mut(snapshot.drives.get_mut(&DriveId::new(serial)).expect("known"))
}

fn remove_drive(snapshot: &mut Snapshot, serial: &str) {
    let drive = drive_mut(snapshot, serial);
    drive.presence = Presence::Missing { since: at(0) };
    drive.health = Health::Bad;
    add_finding(snapshot, Subject::Drive(DriveId::new(serial)), Reason::DriveMissing);
}

fn faults(snapshot: &Snapshot, driver: &str) -> Result<Vec<StorageFault>, StorageUnknown> {
    driver_storage(snapshot, driver).map(|known| known.faults)
}

fn fault_summaries(
    snapshot: &Snapshot,
) -> Result<Vec<(bool, &'static str, String)>, StorageUnknown> {
    faults(snapshot, "d").map(|faults| {
        faults
            .into_iter()
            .map(|fault| (fault.unreachable, fault.reason.name(), fault.message))
            .collect()
    })
}

fn volumes<'a>(snapshot: &'a Snapshot, ids: &[&str]) -> Vec<&'a Volume> {
    ids.iter().map(|id| snapshot.volumes[&crate::fixture::volume(id)].as_ref()).collect()
}

#[test]
fn faults_name_only_drives_under_the_drivers_volumes() {
    let mut snapshot = test_snapshot();
    drive_mut(&mut snapshot, "C").health = Health::Bad;
    assert_eq!(fault_summaries(&snapshot), Ok(Vec::new()));
    drive_mut(&mut snapshot, "B").health = Health::Bad;
    add_finding(&mut snapshot, Subject::Drive(DriveId::new("B")), Reason::SmartFailing);
    let message =
        "1 of 2 drives beneath the volumes are failing: sdb (B): SmartFailing: it is so".to_owned();
    assert_eq!(fault_summaries(&snapshot), Ok(vec![(false, "DriveFailing", message)]));
}

#[test]
fn storage_is_unreachable_only_when_every_drive_is_gone() {
    let mut snapshot = test_snapshot();
    remove_drive(&mut snapshot, "A");
    assert_eq!(
        fault_summaries(&snapshot)
            .map(|faults| faults.iter().map(|fault| (fault.0, fault.1)).collect::<Vec<_>>()),
        Ok(vec![(false, "DriveMissing")])
    );
    remove_drive(&mut snapshot, "B");
    assert_eq!(
        fault_summaries(&snapshot)
            .map(|faults| faults.iter().map(|fault| (fault.0, fault.1)).collect::<Vec<_>>()),
        Ok(vec![(true, "DriveMissing")])
    );
}

#[test]
fn drives_over_a_network_are_not_this_nodes_to_judge() {
    let mut snapshot = test_snapshot();
    for serial in ["A", "B"] {
        let drive = drive_mut(&mut snapshot, serial);
        drive.facts.transport = crate::drive::Transport::Iscsi;
        drive.health = Health::Bad;
    }
    assert_eq!(fault_summaries(&snapshot), Ok(Vec::new()));
}

/// Both volumes of the driver are on the network.
fn remote_snapshot() -> Snapshot {
    let mut snapshot = test_snapshot();
    for id in ["csi:d/m", "csi:d/s"] {
        Arc::make_mut(&mut volume_mut(&mut snapshot, id).facts).remote = true;
    }
    snapshot
}

fn volume_mut<'a>(snapshot: &'a mut Snapshot, id: &str) -> &'a mut Volume {
    let id = crate::fixture::volume(id);
    Arc::make_mut(snapshot.volumes.get_mut(&id).expect("known"))
}

fn silence(snapshot: &mut Snapshot, id: &str, reason: Reason) {
    let subject = Subject::Volume(crate::fixture::volume(id));
    add_finding(snapshot, subject, reason);
}

#[test]
fn a_backend_on_the_network_is_unreachable_when_no_volume_answers() {
    for reason in
        [Reason::ProbeTimeout, Reason::IoStalled, Reason::DeviceMissing, Reason::NotAccessible]
    {
        let mut snapshot = remote_snapshot();
        assert_eq!(fault_summaries(&snapshot), Ok(Vec::new()));
        silence(&mut snapshot, "csi:d/m", reason);
        let message = |count| {
            format!(
                "{count} of 2 volumes on the network do not answer: volume csi:d/m: {reason}: it is so"
            )
        };
        assert_eq!(
            fault_summaries(&snapshot),
            Ok(vec![(false, reason.name(), message(1))]),
            "one that answers proves that the backend is reached"
        );
        silence(&mut snapshot, "csi:d/s", reason);
        assert_eq!(fault_summaries(&snapshot), Ok(vec![(true, reason.name(), message(2))]));
    }
}

#[test]
fn a_remote_drive_that_is_offline_cuts_its_volumes_off() {
    let mut snapshot = test_snapshot();
    for serial in ["A", "B"] {
        drive_mut(&mut snapshot, serial).facts.transport = crate::drive::Transport::Iscsi;
    }
    let offline = Subject::Drive(DriveId::new("A"));
    add_finding(&mut snapshot, offline, Reason::DriveOffline);
    assert_eq!(
        fault_summaries(&snapshot).map(|faults| (faults[0].0, faults[0].1)),
        Ok((false, "DriveOffline")),
        "the mirror stands in for one of both volumes"
    );
    let offline = Subject::Drive(DriveId::new("B"));
    add_finding(&mut snapshot, offline, Reason::DriveOffline);
    assert_eq!(
        fault_summaries(&snapshot).map(|faults| (faults[0].0, faults[0].1)),
        Ok((true, "DriveOffline"))
    );
}

#[test]
fn a_volume_that_answers_nothing_yet_is_no_proof_that_the_backend_is_reached() {
    let mut snapshot = remote_snapshot();
    silence(&mut snapshot, "csi:d/m", Reason::ProbeTimeout);
    // No worker is left for it.
    volume_mut(&mut snapshot, "csi:d/s").health = Health::Unknown;
    assert!(fault_summaries(&snapshot).is_ok_and(|faults| faults[0].0));
}

#[test]
fn unknown_volumes_on_the_network_are_an_error_unless_their_first_probe_is_outstanding() {
    let mut snapshot = remote_snapshot();
    for id in ["csi:d/m", "csi:d/s"] {
        let of = volume_mut(&mut snapshot, id);
        of.health = Health::Unknown;
        of.health_unknown_cause = Some(UnknownCause::Pending);
    }
    assert_eq!(fault_summaries(&snapshot), Ok(Vec::new()));
    volume_mut(&mut snapshot, "csi:d/m").health_unknown_cause = Some(UnknownCause::Failed);
    assert!(fault_summaries(&snapshot).is_err());
    volume_mut(&mut snapshot, "csi:d/s").health = Health::Good;
    assert_eq!(fault_summaries(&snapshot), Ok(Vec::new()));
}

#[test]
fn a_volume_on_the_network_keeps_missing_local_drives_from_making_all_unreachable() {
    let mut snapshot = test_snapshot();
    Arc::make_mut(&mut volume_mut(&mut snapshot, "csi:d/m").facts).remote = true;
    remove_drive(&mut snapshot, "A");
    // m is still on the mirror's other drive.
    assert!(fault_summaries(&snapshot).is_ok_and(|faults| !faults[0].0));
    silence(&mut snapshot, "csi:d/m", Reason::ProbeTimeout);
    assert!(
        fault_summaries(&snapshot)
            .is_ok_and(|faults| faults.len() == 2 && faults.iter().all(|it| it.0))
    );
}

#[test]
fn the_pools_drives_count_before_it_has_a_volume() {
    let mut host = pool(None, &[]);
    host.read_all(0);
    host.read_provision(0);
    let mut snapshot = Snapshot {
        settled: true,
        node_context: host.facts.node_context.clone(),
        ..Snapshot::default()
    };
    snapshot.drives.insert(DriveId::new("P"), Arc::new(published("sdp", "P")));
    assert_eq!(faults(&snapshot, "own"), Ok(Vec::new()));
    assert!(pool_connectivity(&snapshot, "own").is_ok_and(|answer| answer.connected));
    remove_drive(&mut snapshot, "P");
    assert!(faults(&snapshot, "own").is_ok_and(|faults| faults[0].unreachable));
    assert!(pool_connectivity(&snapshot, "own").is_ok_and(|answer| !answer.connected));
    assert_eq!(faults(&snapshot, "other"), Ok(Vec::new()));
}

#[test]
fn the_pool_stack_is_kept_when_its_drive_is_removed() {
    let mut host = pool(None, &[]);
    host.read_all(0);
    host.read_provision(0);
    let stack = BTreeMap::from([(BackingKind::Loop, Stack::Drive(DriveId::new("P")))]);
    assert_eq!(host.facts.node_context.pool, stack);
    host.pull("sdp");
    host.inventory.devices.clear();
    host.scan(10);
    assert_eq!(host.facts.node_context.pool, stack);
    let mut snapshot = Snapshot {
        settled: true,
        node_context: host.facts.node_context.clone(),
        ..Snapshot::default()
    };
    snapshot.drives.insert(DriveId::new("P"), Arc::new(published("sdp", "P")));
    remove_drive(&mut snapshot, "P");
    assert!(pool_connectivity(&snapshot, "own").is_ok_and(|answer| !answer.connected));
}

#[test]
fn a_pool_whose_array_has_lost_a_leg_is_still_connected() {
    let legs =
        |serials: [&str; 2]| serials.map(|serial| Stack::Drive(DriveId::new(serial))).to_vec();
    let mirror =
        Stack::Redundant { level: "raid1 md0".into(), tolerates: 1, parts: legs(["A", "B"]) };
    let node_context = NodeContext {
        driver: Some("d".into()),
        pool: BTreeMap::from([(BackingKind::Loop, mirror)]),
        ..NodeContext::default()
    };
    let mut snapshot = Snapshot { node_context: Arc::new(node_context), ..test_snapshot() };
    let of = |snapshot: &Snapshot| {
        pool_connectivity(snapshot, "d")
            .map(|answer| (answer.connected, answer.messages.join("; ")))
    };
    assert_eq!(of(&snapshot), Ok((true, "driver d has no volumes here".into())));
    remove_drive(&mut snapshot, "A");
    let said =
        "driver d has no volumes here; redundancy stands in: drive sda (A): DriveMissing: it is so";
    assert_eq!(of(&snapshot), Ok((true, said.into())));
    let mut doubtful = snapshot.clone();
    add_finding(&mut doubtful, Subject::Drive(DriveId::new("B")), Reason::ProbeTimeout);
    assert!(
        of(&doubtful).is_err_and(|why| why.0.contains("whether drive sdb (B) serves is not known")),
        "{:?}",
        of(&doubtful)
    );
    remove_drive(&mut snapshot, "B");
    assert!(of(&snapshot).is_ok_and(|(connected, _)| !connected));
    assert_eq!(
        pool_connectivity(&snapshot, "another").map(|answer| answer.connected),
        Ok(true),
        "it is not that driver's pool"
    );
}

#[test]
fn a_drive_that_does_not_answer_smartctl_is_uncertain_and_not_missing() {
    let whole = test_snapshot();
    let of = |snapshot: &Snapshot, id: &str| connectivity(snapshot, &volumes(snapshot, &[id]));
    let mut snapshot = whole;
    add_finding(&mut snapshot, Subject::Drive(DriveId::new("A")), Reason::ProbeTimeout);
    let why = of(&snapshot, "csi:d/s").expect_err("it may serve and it may not");
    assert!(
        why.0.contains("whether drive sda (A) serves is not known: ProbeTimeout: it is so"),
        "{why}"
    );
    let mirrored = of(&snapshot, "csi:d/m").expect("the other leg serves");
    assert!(
        mirrored.connected
            && mirrored.messages[0].contains("redundancy stands in: whether drive sda (A)"),
        "{mirrored:?}"
    );
    remove_drive(&mut snapshot, "B");
    assert!(
        of(&snapshot, "csi:d/m").is_err(),
        "one leg is gone, and of the other nothing is known"
    );
    remove_drive(&mut snapshot, "A");
    assert!(
        of(&snapshot, "csi:d/m").is_ok_and(|answer| !answer.connected),
        "what is known outweighs the doubt"
    );
}

#[test]
fn unknown_health_is_an_error_and_never_healthy() {
    let mut snapshot = test_snapshot();
    drive_mut(&mut snapshot, "B").health = Health::Unknown;
    assert!(fault_summaries(&snapshot).is_err());
    assert!(connectivity(&snapshot, &volumes(&snapshot, &["csi:d/m"])).is_err());
    assert!(
        connectivity(&snapshot, &volumes(&snapshot, &["csi:d/s"])).is_ok(),
        "it does not stand on that drive"
    );
    drive_mut(&mut snapshot, "B").health_unknown_cause = Some(UnknownCause::NoSmart);
    assert!(
        fault_summaries(&snapshot).is_ok()
            && connectivity(&snapshot, &volumes(&snapshot, &["csi:d/m"])).is_ok(),
        "without smartctl, volumes are judged by their own evidence"
    );
    drive_mut(&mut snapshot, "B").health_unknown_cause = None;
    drive_mut(&mut snapshot, "B").health = Health::Good;
    for source in [Source::Kubelet, Source::Mounts, Source::Udev] {
        let mut blind = snapshot.clone();
        Arc::make_mut(&mut blind.node)
            .sources
            .insert(source, (SourceStatus::Down("no".into()), at(0)));
        assert!(
            fault_summaries(&blind).is_err()
                && connectivity(&blind, &volumes(&blind, &["csi:d/s"])).is_err()
        );
    }
    let unsettled = Snapshot { settled: false, ..snapshot };
    assert!(
        fault_summaries(&unsettled).is_err()
            && connectivity(&unsettled, &volumes(&unsettled, &["csi:d/s"])).is_err()
    );
}

#[test]
fn volumes_are_connected_when_every_needed_drive_and_the_volume_answer() {
    let whole = test_snapshot();
    let of = |snapshot: &Snapshot, id: &str| {
        connectivity(snapshot, &volumes(snapshot, &[id])).map(|answer| answer.connected)
    };
    assert_eq!((of(&whole, "csi:d/s"), of(&whole, "csi:d/m")), (Ok(true), Ok(true)));
    let mut snapshot = whole.clone();
    add_finding(&mut snapshot, Subject::Drive(DriveId::new("A")), Reason::DriveOffline);
    assert_eq!(
        (of(&snapshot, "csi:d/s"), of(&snapshot, "csi:d/m")),
        (Ok(false), Ok(true)),
        "the mirror stands in"
    );
    let said = connectivity(&snapshot, &volumes(&snapshot, &["csi:d/m"])).expect("told").messages;
    assert!(said[0].contains("redundancy stands in: drive sda (A): DriveOffline"), "{said:?}");
    for reason in [Reason::ProbeTimeout, Reason::IoStalled, Reason::DeviceMissing] {
        let mut snapshot = whole.clone();
        add_finding(&mut snapshot, Subject::Volume(crate::fixture::volume("csi:d/m")), reason);
        assert_eq!(of(&snapshot, "csi:d/m"), Ok(false), "{reason}");
    }
    let mut snapshot = whole;
    add_finding(
        &mut snapshot,
        Subject::Volume(crate::fixture::volume("csi:d/m")),
        Reason::ReadOnly,
    );
    assert_eq!(of(&snapshot, "csi:d/m"), Ok(true), "what is read-only answers");
}
