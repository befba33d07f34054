use crate::assess::pool::argument;
use crate::block::{BlockDevice, Layer, LayerState};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::{
    PoolScan, PoolState, PoolStatus, ScanState, Vdev, VdevClass, VdevState, ZfsPool,
};
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Subject, Verdict};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, DeviceName, Event};

fn state(state: PoolState) -> LayerState {
    LayerState::Zfs(ZfsPool { state, ..ZfsPool::default() })
}

/// A pool over sda1 and sdb1 with two datasets, one of them with a blank in its name.
pub(super) fn tank() -> TestHost {
    let partition = |name: &str, dev: &str, disk: &str| {
        device(name, dev, Layer::Partition { number: 1, start_bytes: 1 << 20 }, &[disk])
    };
    let pool = |below: &[&str]| BlockDevice {
        size_bytes: 0,
        iostats: false,
        ..device("zfs:tank", "0:0", Layer::ZfsPool { name: "tank".into() }, below)
    };
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(partition("sda1", "8:1", "sda"))
        .with(partition("sdb1", "8:17", "sdb"))
        .with(pool(&["sda1", "sdb1"]))
        .mounted("0:50", "/", "/tank", "zfs", "tank")
        .mounted("0:51", "/", "/home", "zfs", "tank/home dirs")
        .mounted("0:52", "/", "/home/.zfs/snapshot/a", "zfs", "tank/home dirs@a");
    host.read_all(0);
    host.layer("zfs:tank", state(PoolState::Online), 0);
    for path in ["/tank", "/home"] {
        host.probe(path, healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    }
    host
}

#[test]
fn datasets_are_volumes_on_the_drives_of_their_pool_and_snapshots_are_none() {
    let host = tank();
    let volumes = host.volumes();
    let ids: Vec<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["mnt:/home", "mnt:/tank"]);
    for volume in &volumes {
        assert_eq!(volume.device.as_deref(), Some("zfs:tank"));
        assert_eq!(volume.devices, ["zfs:tank", "sda1", "sdb1", "sda", "sdb"]);
        assert_eq!(volume.drive_ids.len(), 2);
    }
    let mut host = host;
    assert_eq!(host.raised(2), [""; 0]);
}

#[test]
fn each_state_of_a_pool_has_one_finding_for_each_volume() {
    for (word, expected) in [
        (PoolState::Online, None),
        (PoolState::Degraded, Some("PoolDegraded Suspect Degraded")),
        (PoolState::Suspended, Some("PoolSuspended Bad Inaccessible")),
        (PoolState::Faulted, Some("PoolFaulted Bad Inaccessible")),
        (PoolState::Unavail, Some("PoolFaulted Bad Inaccessible")),
        (PoolState::Removed, Some("PoolFaulted Bad Inaccessible")),
    ] {
        let mut host = tank();
        host.layer("zfs:tank", state(word), 10);
        let expected: Vec<String> = expected
            .into_iter()
            .flat_map(|text| ["mnt:/home", "mnt:/tank"].map(|id| format!("{id} {text}")))
            .collect();
        assert_eq!(host.raised(11), expected, "{word:?}");
        host.layer("zfs:tank", state(PoolState::Online), 20);
        assert_eq!(host.raised(21), [""; 0], "{word:?}");
    }
}

#[test]
fn the_evidence_is_the_file_of_the_module_and_the_advice_has_the_quoted_name() {
    let mut host = tank();
    host.layer("zfs:tank", state(PoolState::Suspended), 10);
    let raised = host.raised_for(Reason::PoolSuspended, 11).unwrap();
    assert_eq!(raised.evidence[0].source, "/proc/spl/kstat/zfs/tank/state");
    assert_eq!(raised.evidence[0].text, "SUSPENDED");
    assert!(raised.advice.unwrap().contains("`zpool clear tank`"));
    assert_eq!((argument("my pool"), argument("tank")), ("'my pool'".into(), "tank".into()));
}

#[test]
fn a_state_that_cannot_be_read_clears_nothing() {
    let mut host = tank();
    host.layer("zfs:tank", state(PoolState::Suspended), 10);
    assert_eq!(host.raised(11).len(), 2);
    let failed = Observation::failed(at(20), "the pool is being imported or exported");
    host.apply(SourceUpdate::Layer { device: "zfs:tank".into(), state: failed }, 20);
    assert_eq!(host.raised(21), [""; 0], "nothing is raised anew");
    assert_eq!(host.active.len(), 2, "and nothing clears");
}

fn logged(host: &mut TestHost, events: Vec<Event>, seconds: i64) {
    let last = events.iter().map(|event| event.seq).max();
    let cursor = Cursor { boot_id: "boot".into(), counted_to: last, reread_from: 1, lost: 0 };
    let (name_assignments, full_reads) = (Vec::new(), Vec::new());
    let batch = Batch { cursor, events, name_assignments, full_reads, is_backlog: false };
    host.apply(SourceUpdate::KernelLog(batch), seconds);
}

#[test]
fn a_record_of_a_suspended_pool_is_about_all_its_volumes_until_the_module_has_shown_its_state() {
    let mut host = tank();
    let record = event(Class::FsShutdown, "", at(5), &[]);
    let of =
        |pool: &str, seq| Event { seq, device: DeviceName::Pool(pool.into()), ..record.clone() };
    logged(&mut host, vec![of("tank", 1), of("other", 2)], 5);
    let expected =
        ["mnt:/home", "mnt:/tank"].map(|id| format!("{id} FilesystemShutdown Suspect Degraded"));
    assert_eq!(host.raised(6), expected);
    host.layer("zfs:tank", state(PoolState::Suspended), 10);
    let expected =
        ["mnt:/home", "mnt:/tank"].map(|id| format!("{id} PoolSuspended Bad Inaccessible"));
    assert_eq!(host.raised(11), expected, "once");
    host.layer("zfs:tank", state(PoolState::Online), 20);
    assert_eq!(host.raised(21), [""; 0]);
    assert!(host.active.is_empty(), "{:?}", host.active);
    // Of a pool without volumes its state says everything.
    for path in ["/tank", "/home", "/home/.zfs/snapshot/a"] {
        host.umount(path);
    }
    host.read_mounts(25);
    logged(&mut host, vec![of("tank", 3)], 30);
    host.layer("zfs:tank", state(PoolState::Online), 40);
    assert_eq!(host.raised(41), [""; 0]);
}

#[test]
fn a_member_that_zfs_names_by_a_link_is_the_drive_that_had_the_link() {
    const LINK: &str = "disk/by-id/ata-A-part1";
    let mut host = tank();
    for (member, link) in [("sda1", LINK), ("sdb1", "disk/by-id/ata-B-part1")] {
        let found = host.inventory.devices.get_mut(member).unwrap();
        found.fs_type = Some("zfs_member".into());
        found.links = vec![format!("/dev/{link}"), "/dev/disk/by-uuid/17".into()];
    }
    host.scan(2);
    let a = Subject::Drive(DriveId::new("A"));
    let counted = |host: &TestHost, class| host.facts.tally(&a, class).map(|tally| tally.incidents);
    logged(&mut host, vec![Event { seq: 1, ..event(Class::Io, LINK, at(5), &[8]) }], 5);
    assert_eq!(counted(&host, Class::Io), Some(1));
    let tally = host.facts.tally(&a, Class::Io).unwrap();
    assert_eq!(tally.sectors[0].device, "sda1", "as the kernel names it");

    // The block layer has logged this error of a sector of the disk.
    let medium = Event { seq: 2, ..event(Class::Medium, "sda", at(100), &[2056]) };
    let repeated = Event { seq: 3, ..event(Class::Medium, LINK, at(101), &[8]) };
    logged(&mut host, vec![medium, repeated], 101);
    assert_eq!(counted(&host, Class::Medium), Some(1));

    host.pull("sda");
    host.inventory.devices.remove("sda1");
    host.scan(200);
    logged(&mut host, vec![Event { seq: 4, ..event(Class::Io, LINK, at(201), &[9]) }], 201);
    assert_eq!(counted(&host, Class::Io), Some(2), "gone, and still the drive that had it");
    let shared = event(Class::Io, "disk/by-uuid/17", at(300), &[]);
    logged(&mut host, vec![Event { seq: 5, ..shared }], 300);
    assert_eq!(host.facts.kernel.progress.unattributed, 1, "the pool's, of no member");
}

#[test]
fn a_pool_that_carries_no_volume_has_the_finding_itself() {
    let mut host = tank();
    for path in ["/tank", "/home", "/home/.zfs/snapshot/a"] {
        host.umount(path);
    }
    host.read_mounts(5);
    host.layer("zfs:tank", state(PoolState::Faulted), 10);
    assert_eq!(host.raised(11), ["dev:zfs:tank PoolFaulted Bad Inaccessible"]);
    // Exported.
    host.inventory.devices.remove("zfs:tank");
    host.scan(20);
    host.raised(21);
    assert!(host.active.is_empty(), "{:?}", host.active);
}

#[test]
fn a_drive_that_a_working_pool_lacks_makes_nothing_inaccessible() {
    let mut host = tank();
    host.pull("sdb");
    host.inventory.devices.get_mut("zfs:tank").unwrap().underlying = vec!["sda1".into()];
    host.scan(10);
    host.layer("zfs:tank", state(PoolState::Degraded), 11);
    assert_eq!(
        host.raised(12),
        [
            "B DriveMissing Bad Inaccessible",
            "mnt:/home DriveFailing Suspect Degraded",
            "mnt:/home PoolDegraded Suspect Degraded",
            "mnt:/tank DriveFailing Suspect Degraded",
            "mnt:/tank PoolDegraded Suspect Degraded",
        ]
    );
    // The spare took its place.
    host.layer("zfs:tank", state(PoolState::Online), 20);
    assert_eq!(host.raised(21), ["B DriveMissing Info Information"]);
}

/// The mirror of sda1 and sdb1, as `zpool status` shows it.
pub(super) fn mirrored(word: PoolState, sdb: VdevState, spare: Option<VdevState>) -> ZfsPool {
    let leaf = |name: &str, state| Vdev {
        name: format!("/dev/{name}"),
        state: Some(state),
        ..Vdev::default()
    };
    let mirror = Vdev {
        name: "mirror-0".into(),
        state: Some(VdevState::Online),
        children: vec![leaf("sda1", VdevState::Online), leaf("sdb1", sdb)],
        ..Vdev::default()
    };
    let spare = spare.map(|state| Vdev { class: VdevClass::Spare, ..leaf("sdx", state) });
    let vdevs = std::iter::once(mirror).chain(spare).collect();
    let mut pool = ZfsPool { state: word, ..ZfsPool::default() };
    pool.take(Ok(PoolStatus { vdevs, ..PoolStatus::default() }), at(9));
    pool
}

#[test]
fn a_degraded_pool_says_which_member_fails_and_what_may_still_fail() {
    let mut host = tank();
    let mut pool = mirrored(PoolState::Degraded, VdevState::Faulted, None);
    host.layer("zfs:tank", LayerState::Zfs(pool.clone()), 10);
    let raised = host.raised_for(Reason::PoolDegraded, 11).unwrap();
    assert_eq!(
        raised.message,
        "ZFS pool tank works without a part of its redundancy (state DEGRADED): sdb in mirror-0 is FAULTED; no redundancy left: the next failure may lose it"
    );
    assert_eq!(raised.evidence[1].text, "/dev/sdb1 FAULTED 0 0 0");
    assert_eq!(
        raised.advice.unwrap(),
        "Bring sdb back (`zpool online tank /dev/sdb1`), or replace it (`zpool replace tank /dev/sdb1 NEW`), this week."
    );
    // The tool does not answer any more: what it has said stays.
    pool.take(Err("zpool status: timed out".into()), at(20));
    host.layer("zfs:tank", LayerState::Zfs(pool), 20);
    assert!(host.raised_for(Reason::PoolDegraded, 21).unwrap().message.contains("sdb in mirror-0"));
}

#[test]
fn a_spare_in_use_or_a_lost_member_below_an_online_pool_is_a_finding() {
    for (sdb, spare, is_raised) in [
        (VdevState::Online, None, false),
        (VdevState::Online, Some(VdevState::Available), false),
        (VdevState::Online, Some(VdevState::Unavail), false),
        (VdevState::Online, Some(VdevState::InUse), true),
        (VdevState::Unavail, None, true),
    ] {
        let mut host = tank();
        let pool = mirrored(PoolState::Online, sdb, spare);
        host.layer("zfs:tank", LayerState::Zfs(pool), 10);
        let raised = host.raised_for(Reason::PoolDegraded, 11);
        assert_eq!(raised.is_some(), is_raised, "{sdb:?} {spare:?}");
    }
}

/// Its label names no pool. What it holds would be lost with it.
#[test]
fn a_spare_in_use_is_a_member_of_the_pool() {
    let partition =
        device("sdc1", "8:33", Layer::Partition { number: 1, start_bytes: 1 << 20 }, &["sdc"]);
    let mut host = tank().disk("sdc", "8:32", "C").with(partition);
    host.scan(2);
    let mut pool = mirrored(PoolState::Degraded, VdevState::Unavail, Some(VdevState::InUse));
    let top = &mut pool.status.as_mut().unwrap().vdevs[0];
    let lost = top.children.pop().unwrap();
    let member =
        Vdev { name: "/dev/sdc1".into(), state: Some(VdevState::Online), ..Vdev::default() };
    let children = vec![lost, member];
    top.children.push(Vdev {
        name: "spare-1".into(),
        state: Some(VdevState::Degraded),
        children,
        ..Vdev::default()
    });
    let devices = |host: &TestHost| {
        host.facts.volumes[&volume("mnt:/tank")].facts.devices.contains(&"sdc1".to_owned())
    };
    assert!(!devices(&host));
    host.layer("zfs:tank", LayerState::Zfs(pool.clone()), 10);
    assert!(devices(&host), "as soon as the tool has said it");
    host.scan(11);
    assert!(devices(&host), "a scan does not know it");
    host.pull("sdc");
    host.scan(12);
    assert!(host.raised(12).contains(&"C DriveMissing Bad Inaccessible".to_owned()));
}

#[test]
fn data_errors_are_lost_data_until_the_tool_counts_none() {
    let mut host = tank();
    let mut pool = mirrored(PoolState::Online, VdevState::Online, None);
    pool.status.as_mut().unwrap().data_errors = 3;
    host.layer("zfs:tank", LayerState::Zfs(pool), 10);
    assert_eq!(
        host.raised(11),
        ["mnt:/home PoolDataErrors Bad DataLoss", "mnt:/tank PoolDataErrors Bad DataLoss"]
    );
    // After a restart, before `zpool` has answered.
    host.layer("zfs:tank", state(PoolState::Online), 20);
    assert_eq!((host.raised(21).len(), host.active.len()), (0, 2));
    let pool = mirrored(PoolState::Online, VdevState::Online, None);
    host.layer("zfs:tank", LayerState::Zfs(pool), 30);
    host.raised(31);
    assert!(host.active.is_empty(), "{:?}", host.active);
}

#[test]
fn the_mirror_of_a_pool_covers_a_failing_drive() {
    let mut host = tank();
    let pool = mirrored(PoolState::Online, VdevState::Online, None);
    host.layer("zfs:tank", LayerState::Zfs(pool), 5);
    host.pull("sdb");
    host.inventory.devices.get_mut("zfs:tank").unwrap().underlying = vec!["sda1".into()];
    host.scan(10);
    let pool = mirrored(PoolState::Degraded, VdevState::Unavail, None);
    host.layer("zfs:tank", LayerState::Zfs(pool), 11);
    assert_eq!(
        host.raised(12),
        [
            "B DriveMissing Bad Inaccessible",
            "mnt:/home DriveFailing Suspect Degraded",
            "mnt:/home PoolDegraded Suspect Degraded",
            "mnt:/tank DriveFailing Suspect Degraded",
            "mnt:/tank PoolDegraded Suspect Degraded",
        ]
    );
}

#[test]
fn counted_errors_of_a_member_stay_after_an_import_and_end_after_a_quiet_time() {
    let mut host = tank();
    let mut pool = mirrored(PoolState::Online, VdevState::Online, None);
    host.layer("zfs:tank", LayerState::Zfs(pool.clone()), 9);
    assert_eq!(host.raised(9), [""; 0]);
    pool.status.as_mut().unwrap().vdevs[0].children[1].checksum_errors = 12;
    pool.status_at = Some(at(10));
    host.layer("zfs:tank", LayerState::Zfs(pool.clone()), 10);
    assert_eq!(host.raised(11), ["B PoolErrors Suspect Degraded"]);
    let raised = host.raised_for(Reason::PoolErrors, 12).unwrap();
    assert!(
        raised.message.ends_with("0 read, 0 write and 12 checksum errors of it in mirror-0"),
        "{}",
        raised.message
    );
    pool.status.as_mut().unwrap().vdevs[0].children[1].checksum_errors = 0;
    pool.status_at = Some(at(20));
    host.layer("zfs:tank", LayerState::Zfs(pool), 20);
    assert_eq!(host.raised(21), ["B PoolErrors Suspect Degraded"]);
    let quiet = i64::try_from(host.policy.errors.quiet_after.as_secs()).unwrap();
    assert_eq!(host.raised(quiet + 30), [""; 0]);
    assert!(host.active.is_empty(), "{:?}", host.active);
}

#[test]
fn as_many_errors_on_all_members_point_elsewhere() {
    let mut host = tank();
    let mut pool = mirrored(PoolState::Online, VdevState::Online, None);
    for (member, count) in pool.status.as_mut().unwrap().vdevs[0].children.iter_mut().zip([9, 11]) {
        member.checksum_errors = count;
    }
    host.layer("zfs:tank", LayerState::Zfs(pool), 10);
    assert_eq!(host.raised(11), ["A PoolErrors Suspect Degraded", "B PoolErrors Suspect Degraded"]);
    let raised = host.raised_for(Reason::PoolErrors, 12).unwrap();
    assert!(raised.message.contains("look at memory, adapter and cables first"));
}

/// As openebs/zfs-localpv mounts it.
#[test]
fn a_claims_dataset_leads_from_its_pod_to_the_drives_of_the_pool() {
    let target = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount";
    let host = tank().mounted("0:70", "/", target, "zfs", "tank/pvc-1").csi(
        "zfs.csi.openebs.io",
        "pvc-1",
        None,
        &[("u1", target)],
    );
    let volumes = host.volumes();
    let volume = volumes.iter().find(|it| it.handle.as_deref() == Some("pvc-1")).unwrap();
    assert_eq!(volume.devices, ["zfs:tank", "sda1", "sdb1", "sda", "sdb"]);
    assert_eq!((volume.drive_ids.len(), volume.pods.len(), volume.remote), (2, 1, false));
}

#[test]
fn the_last_scrub_is_remembered_when_a_resilver_follows_and_while_the_pool_is_exported() {
    let scan = |is_resilver, second| PoolScan {
        is_resilver,
        state: ScanState::Finished,
        errors: 2,
        ended: Some(at(second)),
    };
    let mut host = tank();
    for name in ["sda1", "sdb1"] {
        host.inventory.devices.get_mut(name).unwrap().fs_uuid = Some("17002345678901234567".into());
    }
    host.scan(1);
    let last = |host: &TestHost| {
        let pass = host.facts.last_pass("zfs:tank");
        pass.ended.zip(pass.found)
    };
    assert_eq!(last(&host), None);
    let mut pool = mirrored(PoolState::Online, VdevState::Online, None);
    for (second, scan) in [(10, scan(false, 9)), (20, scan(true, 19))] {
        pool.status.as_mut().unwrap().scan = Some(scan);
        host.layer("zfs:tank", LayerState::Zfs(pool.clone()), second);
        assert_eq!(last(&host), Some((at(9), 2)));
    }
    let exported = host.inventory.devices.remove("zfs:tank").unwrap();
    host.scan(30);
    host.inventory.devices.insert("zfs:tank".into(), exported);
    host.scan(40);
    assert_eq!(last(&host), Some((at(9), 2)));
    // Destroyed, and created anew.
    for name in ["sda1", "sdb1"] {
        host.inventory.devices.get_mut(name).unwrap().fs_uuid = Some("5".into());
    }
    host.scan(50);
    assert_eq!(last(&host), None);
}

#[test]
fn slow_requests_of_a_member_are_a_part_of_the_evidence() {
    let mut host = tank();
    let mut pool = mirrored(PoolState::Degraded, VdevState::Faulted, None);
    pool.status.as_mut().unwrap().vdevs[0].children[1].slow_ios = 7;
    host.layer("zfs:tank", LayerState::Zfs(pool), 10);
    let raised = host.raised_for(Reason::PoolDegraded, 11).unwrap();
    assert_eq!(raised.evidence[1].text, "/dev/sdb1 FAULTED 0 0 0 7 slow");
}

/// It may hold the only copy, or one of several: neither is claimed.
#[test]
fn while_the_layout_is_not_known_a_failing_member_costs_no_data_and_is_not_covered() {
    let mut host = tank();
    let failed = |seq, sector| Event { seq, ..event(Class::Medium, "sda1", at(5), &[sector]) };
    logged(&mut host, (1..=6).map(|seq| failed(seq, seq * 8)).collect(), 5);
    let volume = Subject::Volume(VolumeId::known("mnt:/tank"));
    let raised = |host: &mut TestHost, second| -> Vec<(Reason, Severity, String)> {
        let of_volume = host.judge(second).into_iter().filter(|it| it.subject == volume);
        let of_volume = of_volume.filter_map(|it| match it.verdict {
            Verdict::Raised(raised) => Some((it.reason, raised.severity, raised.message)),
            _ => None,
        });
        of_volume.collect()
    };
    let found = raised(&mut host, 6);
    let [(Reason::DriveFailing, Severity::Suspect, message)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(message.contains("covers them is not known"), "{message}");

    let vdev = |name: &str| Vdev {
        name: format!("/dev/{name}"),
        state: Some(VdevState::Online),
        ..Vdev::default()
    };
    let stripe = vec![vdev("sda1"), vdev("sdb1")];
    let status = PoolStatus { vdevs: stripe, ..PoolStatus::default() };
    let pool = ZfsPool { status: Some(status), ..ZfsPool::default() };
    host.layer("zfs:tank", LayerState::Zfs(pool), 7);
    host.scan(7);
    let found = raised(&mut host, 8);
    let reasons: Vec<_> = found.iter().map(|(reason, severity, _)| (*reason, *severity)).collect();
    assert_eq!(
        reasons,
        [(Reason::IoErrors, Severity::Bad), (Reason::DriveFailing, Severity::Bad)],
        "{found:?}"
    );
}
