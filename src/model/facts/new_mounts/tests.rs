use super::*;
use crate::fixture::*;
use crate::probe::MountProbe;
use crate::source_update::SourceUpdate;
use crate::superblock::{ExtState, Superblock};
use diskvitals_finding::observation::Observation;
use diskvitals_kernel_log::event::{Batch, Cursor};

fn mounted() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.inventory.devices.get_mut("sda").unwrap().fs_type = Some("ext4".into());
    host.read_all(0);
    host
}

fn probe(host: &mut TestHost, path: &str, mount_id: u64, second: i64) {
    let probe =
        MountProbe { mount_id: Some(mount_id), ..healthy_probe(usage(100 * GIB, 50 * GIB)) };
    host.probe(path, probe, second);
}

fn fails(host: &mut TestHost, classes: &[Class], second: i64) {
    let event = |class: &Class| diskvitals_kernel_log::event::Event {
        seq: second as u64,
        ..event(*class, "sda", at(second), &[])
    };
    let batch = Batch {
        cursor: Cursor {
            boot_id: "b".into(),
            counted_to: Some(second as u64),
            reread_from: 0,
            lost: 0,
        },
        events: classes.iter().map(event).collect(),
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), second);
}

fn superblock(host: &mut TestHost, last_mounted: i64, second: i64) {
    let ext = ExtState { last_mounted: Some(at(last_mounted)), ..ExtState::default() };
    let superblock = Superblock { fs_type: "ext4".into(), uuid: "u".into(), ext: Some(ext) };
    let update = SourceUpdate::Superblock {
        device: "sda".into(),
        dev: "8:0".parse().unwrap(),
        superblock: Observation::ok(at(second), Some(superblock)),
    };
    host.apply(update, second);
}

/// The classes that are left, in order.
fn left(host: &TestHost) -> Vec<Class> {
    let subject = Subject::Volume(volume("fs:u"));
    let errors = host.facts.errors(&subject);
    errors.map_or(Vec::new(), |errors| errors.tallies.keys().copied().collect())
}

const ALL: [Class; 4] = [Class::ReadOnly, Class::FsShutdown, Class::FsError, Class::FsCorruption];

fn sorted(classes: &[Class]) -> Vec<Class> {
    let mut classes = classes.to_vec();
    classes.sort();
    classes
}

#[test]
fn a_new_id_ends_a_read_only_state_and_a_shutdown_but_no_errors_and_no_corruption() {
    let mut host = mounted();
    probe(&mut host, "/data", 5, 1);
    fails(&mut host, &ALL, 10);
    assert_eq!(
        host.facts.take_probe_requests(),
        [HostPath::from("/data")],
        "the mount that has failed is known at once"
    );
    probe(&mut host, "/data", 5, 11);
    assert_eq!(left(&host), sorted(&ALL), "the same mount");
    probe(&mut host, "/data", 9, 70);
    let stay = sorted(&[Class::FsError, Class::FsCorruption]);
    assert_eq!(left(&host), stay);
    let known = &host.facts.volumes[&volume("fs:u")];
    assert_eq!(oldest_mount(known), Some(at(11)));
}

#[test]
fn a_new_mount_that_is_read_only_too_ends_nothing() {
    let mut host = mounted();
    probe(&mut host, "/data", 5, 1);
    fails(&mut host, &[Class::ReadOnly], 10);
    probe(&mut host, "/data", 5, 11);
    host.mount_mut("/data").super_options = vec!["ro".into()].into();
    host.read_mounts(12);
    probe(&mut host, "/data", 9, 70);
    assert_eq!(left(&host), [Class::ReadOnly]);
}

#[test]
fn a_filesystem_that_another_mount_holds_was_not_unmounted() {
    let mut host = mounted().mounted("8:0", "/a", "/other", "ext4", "/dev/sda");
    host.read_mounts(1);
    for (path, id) in [("/data", 5), ("/other", 6)] {
        probe(&mut host, path, id, 2);
    }
    fails(&mut host, &[Class::ReadOnly], 10);
    for (path, id) in [("/data", 5), ("/other", 6)] {
        probe(&mut host, path, id, 11);
    }
    probe(&mut host, "/data", 9, 70);
    assert_eq!(left(&host), [Class::ReadOnly]);
    probe(&mut host, "/other", 6, 71);
    assert_eq!(left(&host), [Class::ReadOnly]);
    probe(&mut host, "/other", 10, 130);
    assert_eq!(left(&host), []);
}

#[test]
fn whether_a_failure_was_before_the_new_mount_or_after_it_is_for_the_superblock_to_say() {
    for (last_mounted, is_over) in [(20, true), (10, false), (5, false), (900, false)] {
        let mut host = mounted();
        probe(&mut host, "/data", 5, 1);
        // The daemon did not run: what it reads next is the failure, and then the new mount.
        fails(&mut host, &[Class::ReadOnly], 11);
        probe(&mut host, "/data", 9, 70);
        assert_eq!(left(&host), [Class::ReadOnly]);
        superblock(&mut host, last_mounted, 71);
        assert_eq!(left(&host).is_empty(), is_over, "{last_mounted}");
        // Without another new id, its time proves nothing.
        fails(&mut host, &[Class::ReadOnly], 80);
        superblock(&mut host, 90, 100);
        assert_eq!(left(&host), [Class::ReadOnly]);
    }
}

#[test]
fn a_failure_that_is_read_after_the_proof_is_of_the_mount_that_is_gone() {
    let mut host = mounted();
    probe(&mut host, "/data", 5, 1);
    probe(&mut host, "/data", 9, 70);
    superblock(&mut host, 20, 71);
    fails(&mut host, &ALL, 20);
    let stay = sorted(&[Class::FsError, Class::FsCorruption]);
    assert_eq!(left(&host), stay);
    fails(&mut host, &[Class::ReadOnly], 21);
    assert!(left(&host).contains(&Class::ReadOnly), "of the new one");
}

#[test]
fn without_the_ids_of_a_newer_kernel_nothing_is_proven() {
    let mut host = mounted();
    host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    fails(&mut host, &[Class::ReadOnly], 10);
    for second in [11, 70] {
        host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), second);
    }
    probe(&mut host, "/data", 9, 130);
    assert_eq!(left(&host), [Class::ReadOnly]);
}
