use super::plain;
use crate::assess::health;
use crate::facts::Urgency;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Health, Status, Subject};

#[test]
fn a_failed_source_makes_its_subjects_unknown_and_clears_nothing() {
    let mut host = plain();
    host.probe("/data", failing_probe(5), 5);
    host.judge(6);
    let subject = Subject::Volume(volume("fs:u"));
    host.apply(
        SourceUpdate::Mounts(Observation::failed(at(10), "reading /proc/1/mountinfo: no")),
        10,
    );
    host.judge(11);
    assert!(is_active(&host.active, &subject, Reason::NotAccessible));
    assert!(unknown_at(0, &host.facts, &subject).unwrap().why.contains("mountinfo"));
    host.read_mounts(20);
    assert_eq!(unknown_at(0, &host.facts, &subject), None);
    host.apply(SourceUpdate::Inventory(Observation::failed(at(30), "scan")), 30);
    let drive = Subject::Drive(DriveId::new("A"));
    assert!(
        unknown_at(0, &host.facts, &drive).is_some()
            && unknown_at(0, &host.facts, &subject).is_some()
    );
    assert_eq!(
        host.facts.drives[&DriveId::new("A")].missing_since,
        None,
        "a failed scan is not an empty one"
    );
}

#[test]
fn bad_health_outweighs_unknown() {
    assert_eq!(health(Some(Severity::Bad), true), Health::Bad);
    assert_eq!(health(Some(Severity::Suspect), true), Health::Suspect);
    assert_eq!(health(Some(Severity::Info), true), Health::Unknown);
    assert_eq!(health(None, false), Health::Good);
}

#[test]
fn a_probe_that_is_refused_leaves_health_unknown_only_when_nothing_answers() {
    let subject = Subject::Volume(volume("fs:u"));
    let mut host = plain();
    let mut refused = healthy_probe(usage(100 * GIB, 50 * GIB));
    refused.readdir = failing_probe(13).readdir;
    host.probe("/data", refused, 10);
    assert_eq!(
        unknown_at(0, &host.facts, &subject),
        None,
        "a squashed root cannot list, and the server answers"
    );
    host.probe("/data", failing_probe(13), 20);
    assert!(unknown_at(0, &host.facts, &subject).is_some());
}

#[test]
fn a_volume_hidden_by_a_mount_of_a_user_is_unknown_and_one_hidden_by_root_is_not() {
    let subject = Subject::Volume(volume("fs:u"));
    for (uid, above) in [(4001, "/"), (4001, "/data"), (0, "/data")] {
        let mut host = plain();
        host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 10);
        assert_eq!(unknown_at(11, &host.facts, &subject), None);
        let mut host = host.user_mounted(uid, "0:40", above, "fuse.x");
        host.read_mounts(20);
        let why = unknown_at(21, &host.facts, &subject).map(|unknown| unknown.why);
        let expected = format!(
            "/data cannot be probed: the user with uid 4001 has mounted a FUSE filesystem over it, at {above}"
        );
        assert_eq!(why, (uid != 0).then_some(expected), "uid {uid} at {above}");
    }
}

#[test]
fn a_volume_of_a_driver_that_a_mount_of_a_user_hides_is_unknown_and_not_unmounted() {
    const TARGET: &str = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount";
    let subject = Subject::Volume(volume("csi:d/h"));
    for above in ["/var/lib/kubelet/pods/u1", TARGET] {
        let mut host = plain()
            .disk("sdb", "8:16", "B")
            .mounted("8:16", "/", TARGET, "ext4", "/dev/sdb")
            .csi("d", "h", None, &[("u1", TARGET)])
            .user_mounted(4001, "0:40", above, "fuse.s3fs");
        host.read_all(1);
        assert_eq!(host.raised(600), [""; 0]);
        let unknown = unknown_at(600, &host.facts, &subject).unwrap();
        assert!(unknown.why.contains("uid 4001"), "{}", unknown.why);
        let volume = &host.facts.volumes[&volume("csi:d/h")].facts;
        assert_eq!(volume.drive_ids, [DriveId::new("B")]);
    }
}

#[test]
fn an_unmounted_volume_clears_its_findings() {
    let mut host = plain();
    host.probe("/data", failing_probe(5), 5);
    assert_eq!(host.raised(6).len(), 1);
    host.umount("/data");
    host.read_mounts(10);
    assert_eq!(host.raised(11), [""; 0]);
    assert!(host.active.is_empty());
    assert_eq!(
        host.probe("/data", failing_probe(5), 12),
        Urgency::Nothing,
        "a late answer of a mount that is gone"
    );
}

#[test]
fn no_restored_finding_is_cleared_before_settled() {
    let mut host = TestHost::default();
    host.active.insert(
        (Subject::Volume(volume("fs:u")), Reason::ReadOnly),
        active_at((Severity::Bad, Status::Inaccessible)),
    );
    host.judge(0);
    assert_eq!(host.active.len(), 1);
    host.read_all(1);
    host.judge(2);
    assert!(host.active.is_empty());
}
