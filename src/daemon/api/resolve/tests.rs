//! Names that are given by people, and what they mean.

use std::sync::Arc;

use super::*;
use diskvitals_finding::Health;
use diskvitals_model::fixture::published;
use diskvitals_model::snapshot::{MountPoint, NodeContext, VolumeUsage};
use diskvitals_model::volume::{
    CsiStatus, MountRole, OperationalStatus, UsageStatus, VolumeFacts, VolumeMount,
};

#[test]
fn a_mounted_path_that_is_no_volume_says_why() {
    let mut context = NodeContext::default();
    for (path, why) in [
        ("/pool", Exclusion::Type),
        ("/scratch", Exclusion::IgnoredMount),
        ("/home/u/far", Exclusion::User(4001)),
    ] {
        let of_type = ("fuse.mergerfs".to_owned(), why);
        context.excluded_mounts.insert(path.into(), of_type);
    }
    let snapshot = Snapshot { node_context: Arc::new(context), ..Snapshot::default() };
    let answer = |query: &str| {
        let error = resolve(&snapshot, query).expect_err("no volume");
        error.to_string()
    };
    assert_eq!(
        answer("/pool"),
        "nothing here is known as `/pool`: fuse.mergerfs is mounted there, a type that counts as a volume only where [volumes] admit_mounts names the mount point"
    );
    assert!(answer("/scratch").ends_with("which [volumes] ignore_mounts leaves out"));
    assert_eq!(
        answer("/home/u/far"),
        "nothing here is known as `/home/u/far`: fuse.mergerfs is mounted there by the user with uid 4001, so it is not probed and not judged; it counts as a volume only where [volumes] admit_mounts names the mount point"
    );
}

fn mounted(points: &[(&str, &str, &str)]) -> NodeContext {
    let point = |(path, fs_type, source): &(&str, &str, &str)| {
        let what = MountPoint { fs_type: (*fs_type).to_owned(), source: (*source).into() };
        (HostPath::from(*path), what)
    };
    NodeContext { mount_points: points.iter().map(point).collect(), ..NodeContext::default() }
}

#[test]
fn any_path_means_the_volume_of_the_longest_mount_above_it() {
    let points = [
        ("/", "ext4", "/dev/sda1"),
        ("/srv", "xfs", "/dev/sdb1"),
        ("/srv/my web", "xfs", "/dev/sdb1"),
        ("/srv/stacked", "ext4", "/dev/sdd1"),
        ("/run", "tmpfs", "tmpfs"),
    ];
    let volumes = [
        ("fs:root", "/dev/sda1", &["/"][..]),
        ("fs:srv", "/dev/sdb1", &["/srv", "/srv/my web"]),
        ("fs:below", "/dev/sdc1", &["/srv/stacked"]),
        ("fs:above", "/dev/sdd1", &["/srv/stacked"]),
    ];
    let mut snapshot = Snapshot { node_context: Arc::new(mounted(&points)), ..Snapshot::default() };
    for (id, source, mounts) in volumes {
        let volume = volume_on(id, source, mounts);
        let id = volume.facts.id.clone();
        snapshot.volumes.insert(id, Arc::new(volume));
    }
    let volume = |query: &str| {
        let resolved = resolve_volume(&snapshot, query).map_err(|it| it.to_string());
        resolved.map(|it| it.facts.id.to_string())
    };
    for (path, id) in [
        ("path:/etc/fstab", "fs:root"),
        ("path:/srv", "fs:srv"),
        ("path:/srv/a/b", "fs:srv"),
        ("path:/srvx", "fs:root"),
        ("path:/srv/my web/a", "fs:srv"),
        ("path:/srv/my\\040web/a", "fs:srv"),
        ("path:/srv/stacked/a", "fs:above"),
    ] {
        assert_eq!(volume(path), Ok(id.to_owned()), "{path}");
    }
    assert_eq!(
        volume("path:/run/lock/a").unwrap_err(),
        "nothing here is known as `/run/lock/a`: it is on /run: tmpfs, which is no volume"
    );
    // A mistyped path is not the root's.
    assert!(volume("/srx/a").is_err());
    assert!(volume("path:relative").is_err());
}

fn volume_on(id: &str, source: &str, mounts: &[&str]) -> Volume {
    let mount = |path: &&str| VolumeMount {
        path: (*path).into(),
        role: MountRole::Host,
        options: Arc::default(),
        super_options: Arc::default(),
        root: "/".into(),
        pod_uid: None,
    };
    let facts = VolumeFacts {
        id: VolumeId::known(id),
        source: Some(source.into()),
        mounts: mounts.iter().map(mount).collect(),
        ..VolumeFacts::default()
    };
    Volume {
        facts: facts.into(),
        usage: VolumeUsage::NotMeasured,
        csi_status: CsiStatus::None,
        operational_status: OperationalStatus::Operative,
        usage_status: UsageStatus::InUse,
        health: Health::Good,
        health_unknown_why: String::new(),
        health_unknown_cause: None,
        redundancy: String::new(),
        scrubs: Vec::new(),
        condition: None,
        findings: Vec::new(),
        first_seen: jiff::Timestamp::UNIX_EPOCH,
        last_probe: None,
        errors: None,
    }
}

/// A drive that is not known here may end so too: what touches a drive needs its whole name.
#[test]
fn the_end_of_a_serial_says_that_it_is_one() {
    let mut snapshot = Snapshot::default();
    let drive = published("sda", "ZX10ABCD");
    let id = drive.facts.id.clone();
    snapshot.drives.insert(id.clone(), Arc::new(drive));
    let wholly = Ok(Resolved::Subject(Subject::Drive(id.clone())));
    for (query, expected) in [
        ("abcd", Ok(Resolved::EndOfSerial(id.clone()))),
        ("zx10abcd", wholly.clone()),
        ("ZX10ABCD", wholly.clone()),
        ("sda", wholly),
    ] {
        assert_eq!(resolve(&snapshot, query), expected, "{query}");
        assert_eq!(resolve_drive(&snapshot, query).unwrap().facts.id, id, "{query}");
    }
}
