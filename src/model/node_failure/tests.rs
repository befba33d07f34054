use std::sync::Arc;

use super::*;
use crate::fixture::{TestHost, at, mount};
use crate::fixture::{add_finding, published};
use crate::snapshot::NodeContext;
use crate::storage::tests::volume;
use crate::volume::Stack;
use diskvitals_finding::Subject;
use diskvitals_finding::ids::VolumeId;

/// `/` on sda, the kubelet's folder on sdb, data on sdc and sdd.
fn host() -> TestHost {
    let mut host = TestHost::default();
    for (name, dev, serial, path) in [
        ("sda", "8:0", "A", "/"),
        ("sdb", "8:16", "B", "/var/lib/kubelet"),
        ("sdc", "8:32", "C", "/data/c"),
        ("sdd", "8:48", "D", "/data/d"),
    ] {
        host.plug(name, dev, serial);
        host = host.mounted(dev, "/", path, "ext4", &format!("/dev/{name}"));
    }
    host.read_all(0);
    host
}

/// As it would be published of a host without findings.
fn snapshot(host: &TestHost) -> Snapshot {
    let mut snapshot = Snapshot {
        settled: true,
        node_context: host.facts.node_context.clone(),
        ..Snapshot::default()
    };
    for (id, known) in &host.facts.volumes {
        snapshot.volumes.insert(id.clone(), Arc::new(volume(known)));
    }
    for (id, known) in &host.facts.drives {
        let mut drive = published(&known.facts.name, id.as_str());
        drive.volumes = known.volumes.clone();
        snapshot.drives.insert(id.clone(), Arc::new(drive));
    }
    snapshot
}

fn of_mount(path: &str) -> Subject {
    Subject::Volume(VolumeId::mount(&path.into()))
}

fn reasons(snapshot: &Snapshot) -> Vec<&'static str> {
    let found = assess(snapshot);
    found.failures.iter().map(|it| it.reason.name()).collect()
}

fn lose(snapshot: &mut Snapshot, serials: &[&str]) {
    for serial in serials {
        let subject = Subject::Drive(DriveId::new(*serial));
        add_finding(snapshot, subject, Reason::DriveMissing);
    }
}

fn drive_mut<'a>(snapshot: &'a mut Snapshot, serial: &str) -> &'a mut Drive {
    let drive = snapshot.drives.get_mut(&DriveId::new(serial));
    Arc::make_mut(drive.expect("there"))
}

#[test]
fn each_system_directory_is_on_the_filesystem_that_holds_it() {
    let host = host();
    let holders: Vec<(String, Option<String>)> = host
        .facts
        .node_context
        .system_directories
        .iter()
        .map(|it| (it.path.to_string(), it.volume.as_ref().map(ToString::to_string)))
        .collect();
    let root = || Some(VolumeId::mount(&"/".into()).to_string());
    assert_eq!(
        holders,
        [
            ("/".into(), root()),
            (
                "/var/lib/kubelet".into(),
                Some(VolumeId::mount(&"/var/lib/kubelet".into()).to_string())
            ),
            ("/var/lib/containerd".into(), root()),
            ("/var/lib/containers".into(), root()),
        ]
    );
}

#[test]
fn a_read_only_gone_or_hung_system_filesystem_makes_the_node_unfit() {
    for (reason, expected) in [
        (Reason::ReadOnly, "SystemFilesystemReadOnly"),
        (Reason::FilesystemShutdown, "SystemFilesystemGone"),
        (Reason::NotAccessible, "SystemFilesystemGone"),
        (Reason::DeviceMissing, "SystemFilesystemGone"),
        (Reason::ProbeTimeout, "SystemFilesystemHung"),
        (Reason::IoStalled, "SystemFilesystemHung"),
    ] {
        for path in ["/", "/var/lib/kubelet"] {
            let mut snapshot = snapshot(&host());
            add_finding(&mut snapshot, of_mount(path), reason);
            assert_eq!(reasons(&snapshot), [expected], "{reason} of {path}");
        }
    }
}

#[test]
fn other_filesystems_and_other_findings_are_not_the_nodes() {
    let mut snapshot = snapshot(&host());
    add_finding(&mut snapshot, of_mount("/data/c"), Reason::ReadOnly);
    add_finding(&mut snapshot, of_mount("/"), Reason::OutOfSpace);
    add_finding(&mut snapshot, of_mount("/"), Reason::DriveFailing);
    assert_eq!(assess(&snapshot), NodeFailures::default());
}

#[test]
fn half_of_the_drives_that_carry_volumes_make_the_node_unfit_and_fewer_do_not() {
    let mut snapshot = snapshot(&host());
    lose(&mut snapshot, &["C"]);
    assert_eq!(reasons(&snapshot), [""; 0], "one of four");
    lose(&mut snapshot, &["D"]);
    assert_eq!(reasons(&snapshot), ["DrivesUnreachable"]);
    let message = &assess(&snapshot).failures[0].message;
    assert_eq!(
        message,
        "2 of 4 drives that carry volumes are unreachable: sdc (DriveMissing), sdd (DriveMissing)"
    );
}

#[test]
fn of_two_drives_one_or_both_make_the_node_unfit_as_the_share_says() {
    for (percent, one) in [(50, &["DrivesUnreachable"][..]), (51, &[])] {
        let mut snapshot = snapshot(&host());
        Arc::make_mut(&mut snapshot.node).failure_policy.unreachable_percent = percent;
        for idle in ["A", "B"] {
            drive_mut(&mut snapshot, idle).volumes.clear();
        }
        lose(&mut snapshot, &["C"]);
        assert_eq!(reasons(&snapshot), one, "{percent} %");
        lose(&mut snapshot, &["D"]);
        assert_eq!(reasons(&snapshot), ["DrivesUnreachable"], "{percent} %");
    }
}

#[test]
fn idle_maintained_and_remote_drives_do_not_count() {
    let mut snapshot = snapshot(&host());
    drive_mut(&mut snapshot, "A").volumes.clear();
    drive_mut(&mut snapshot, "B").maintenance = true;
    lose(&mut snapshot, &["A", "B"]);
    assert_eq!(reasons(&snapshot), [""; 0]);
    drive_mut(&mut snapshot, "C").facts.transport = crate::drive::Transport::Iscsi;
    lose(&mut snapshot, &["C"]);
    assert_eq!(reasons(&snapshot), [""; 0]);
    lose(&mut snapshot, &["D"]);
    assert_eq!(reasons(&snapshot), ["DrivesUnreachable"], "the only one that counts");
}

#[test]
fn drives_whose_loss_redundancy_covers_do_not_count() {
    let mut snapshot = snapshot(&host());
    let mirror = Stack::Redundant {
        level: "raid1 md0".into(),
        tolerates: 1,
        parts: ["A", "B"].map(|it| Stack::Drive(DriveId::new(it))).to_vec(),
    };
    let id = VolumeId::mount(&"/".into());
    let root = Arc::make_mut(snapshot.volumes.get_mut(&id).expect("there"));
    Arc::make_mut(&mut root.facts).stack = mirror;
    for serial in ["A", "B"] {
        drive_mut(&mut snapshot, serial).volumes = vec![id.clone()];
    }
    snapshot.drives.remove(&DriveId::new("C"));
    snapshot.drives.remove(&DriveId::new("D"));
    lose(&mut snapshot, &["A"]);
    assert_eq!(reasons(&snapshot), [""; 0], "the mirror works");
    lose(&mut snapshot, &["B"]);
    assert_eq!(reasons(&snapshot), ["DrivesUnreachable"]);
}

#[test]
fn a_system_filesystem_that_was_unmounted_after_its_drive_was_lost_stays_gone() {
    let mut host = host();
    host.pull("sdb");
    host.mounts.mounts.retain(|it| it.mount_point != "/var/lib/kubelet".into());
    host.read_all(10);
    let context: &NodeContext = &host.facts.node_context;
    let kubelet = &context.system_directories[1];
    assert_eq!(kubelet.volume, Some(VolumeId::mount(&"/var/lib/kubelet".into())));
    // Mounted anew from another drive.
    host.plug("sde", "8:64", "E");
    host.mounts.mounts.push(mount(90, 1, "8:64", "/", "/var/lib/kubelet", "ext4", "/dev/sde"));
    host.read_all(20);
    let again = snapshot(&host);
    let holder = again.node_context.system_directories[1].volume.clone();
    let holder = &again.volumes[&holder.expect("known")];
    assert_eq!(holder.facts.device.as_deref(), Some("sde"));
}

#[test]
fn what_is_not_known_is_no_failure_and_no_fitness() {
    let mut unsettled = snapshot(&host());
    unsettled.settled = false;
    let mut unprobed = snapshot(&host());
    let id = VolumeId::mount(&"/".into());
    let root = Arc::make_mut(unprobed.volumes.get_mut(&id).expect("there"));
    root.health = Health::Unknown;
    root.health_unknown_why = "probing /: no worker".into();
    for snapshot in [unsettled, unprobed] {
        let found = assess(&snapshot);
        assert_eq!((found.failures.len(), found.unknown.len()), (0, 1), "{found:?}");
    }
    let mut both = snapshot(&host());
    both.settled = false;
    add_finding(&mut both, of_mount("/"), Reason::ReadOnly);
    assert_eq!(
        assess(&both).failures[0].since,
        at(0),
        "a failure is one, whatever else is unknown"
    );
}
