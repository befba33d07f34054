use crate::facts::{Facts, KnownVolume, StoredVolume};
use crate::fixture::*;
use crate::probe::MountProbe;
use crate::stack::PulledMember;
use diskvitals_finding::btrfs_space::BtrfsSpace;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Subject, UnknownCause};

const LINK: &str = "/dev/disk/by-id/wwn-0x5000";

/// Two btrfs of two devices each. The first is mounted at /halves by a link that no scan knows.
fn host() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .disk("sdc", "8:32", "C")
        .disk("sdd", "8:48", "D")
        .uuid("sda", "b-1")
        .uuid("sdb", "b-1")
        .uuid("sdc", "b-2")
        .uuid("sdd", "b-2")
        .mounted("0:40", "/", "/halves", "btrfs", LINK);
    host.inventory.btrfs =
        vec![btrfs("b-1", &["sda", "sdb"], "raid1"), btrfs("b-2", &["sdc", "sdd"], "raid1")];
    host.read_all(0);
    host
}

fn probe_of(uuid: &str) -> MountProbe {
    let space = BtrfsSpace { uuid: uuid.into(), ..BtrfsSpace::default() };
    MountProbe { btrfs: Some(Box::new(space)), ..healthy_probe(usage(100 * GIB, 50 * GIB)) }
}

/// Each volume with its device.
fn volumes(host: &TestHost) -> Vec<String> {
    let text = |known: &KnownVolume| {
        format!("{} {}", known.facts.id, known.facts.device.as_deref().unwrap_or("-"))
    };
    host.facts.volumes.values().map(text).collect()
}

fn unknown(host: &TestHost, id: &str) -> Option<(UnknownCause, String)> {
    let unknown = unknown_at(0, &host.facts, &Subject::Volume(volume(id)))?;
    Some((unknown.cause, unknown.why))
}

#[test]
fn a_btrfs_mounted_by_a_link_that_no_scan_knows_is_found_by_the_uuid_that_the_kernel_names() {
    let sources = [LINK, "/dev/root", "/dev/mapper/gone", "/dev/sdx", "/hidden/link", "none"];
    for source in sources {
        let mut host = host();
        host.mount_mut("/halves").source = source.into();
        host.read_mounts(1);
        assert_eq!(volumes(&host), ["mnt:/halves -"]);
        let cause = unknown(&host, "mnt:/halves").map(|(cause, _)| cause);
        assert_eq!(cause, Some(UnknownCause::Pending));
        host.probe("/halves", probe_of("b-1"), 2);
        assert_eq!(volumes(&host), ["fs:b-1 sda"], "{source}");
        let known = &host.facts.volumes[&volume("fs:b-1")];
        assert_eq!(known.facts.drive_ids, [DriveId::new("A"), DriveId::new("B")]);
        assert_eq!(unknown(&host, "fs:b-1"), None);
        // Without another answer, too.
        host.read_all(3);
        assert_eq!(volumes(&host), ["fs:b-1 sda"], "{source}");
    }
}

#[test]
fn a_btrfs_whose_devices_cannot_be_found_is_listed_as_unknown() {
    for uuid in ["", "b-9"] {
        let mut host = host();
        host.probe("/halves", probe_of(uuid), 2);
        assert_eq!(volumes(&host), ["mnt:/halves -"]);
        let (cause, why) = unknown(&host, "mnt:/halves").expect("unknown");
        assert_eq!(cause, UnknownCause::Failed);
        assert_eq!(
            why,
            format!(
                "/halves: the source {LINK} leads to no known block device, so its drives are not known"
            )
        );
    }
    // A later scan lists it.
    let mut host = host();
    let all = std::mem::take(&mut host.inventory.btrfs);
    host.scan(1);
    host.probe("/halves", probe_of("b-1"), 2);
    assert_eq!(volumes(&host), ["mnt:/halves -"]);
    host.inventory.btrfs = all;
    host.scan(3);
    assert_eq!(volumes(&host), ["fs:b-1 sda"]);
}

#[test]
fn what_the_kernel_says_of_a_mount_counts_more_than_the_name_of_its_source() {
    let mut host = host();
    host.mount_mut("/halves").source = "/dev/sdc".into();
    host.read_mounts(1);
    assert_eq!(volumes(&host), ["fs:b-2 sdc"]);
    host.probe("/halves", probe_of("b-1"), 2);
    assert_eq!(volumes(&host), ["fs:b-1 sda"]);
}

#[test]
fn an_answer_says_nothing_of_a_later_mount_with_another_source() {
    let mut host = host();
    host.probe("/halves", probe_of("b-1"), 2);
    // The kernel uses device numbers again.
    host.mount_mut("/halves").source = "/dev/sdc".into();
    host.read_mounts(3);
    assert_eq!(volumes(&host), ["fs:b-2 sdc"]);
    host.mount_mut("/halves").source = "/dev/other".into();
    for second in [4, 5] {
        host.read_all(second);
        assert_eq!(volumes(&host), ["mnt:/halves -"]);
    }
    host.probe("/halves", probe_of("b-2"), 6);
    assert_eq!(volumes(&host), ["fs:b-2 sdc"]);
    // Mounted anew by the same name; only the next probe can show it.
    host.probe("/halves", probe_of("b-1"), 16);
    assert_eq!(volumes(&host), ["fs:b-1 sda"]);
}

#[test]
fn a_restart_of_the_daemon_keeps_the_volume_of_a_link_that_no_scan_knows() {
    let mut host = host();
    host.probe("/halves", probe_of("b-1"), 2);
    let stored: Vec<StoredVolume> = host.facts.stored_volumes().into_values().collect();
    let restart = |host: &TestHost| {
        let mut restarted = TestHost { facts: Facts::default(), ..host.clone() };
        restarted.restore_volumes(stored.clone(), 10);
        restarted.read_all(11);
        restarted
    };
    assert_eq!(volumes(&restart(&host)), ["fs:b-1 sda"]);
    // The member whose link it was is pulled meanwhile.
    host.pull("sda");
    let fs = &mut host.inventory.btrfs[0];
    fs.devices.retain(|name| name != "sda");
    fs.pulled.push(PulledMember { name: "sda".into(), drive: None });
    fs.missing_devices = 1;
    let mut restarted = restart(&host);
    assert_eq!(volumes(&restarted), ["fs:b-1 sdb"]);
    assert_eq!(unknown(&restarted, "fs:b-1"), None);
    assert!(restarted.raised_for(Reason::RedundancyLost, 12).is_some());
}
