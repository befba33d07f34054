use super::plain;
use crate::model::assess::health;
use crate::model::facts::Urgency;
use crate::model::finding::{Health, Severity, Subject};
use crate::model::fixture::*;
use crate::model::ids::DriveId;
use crate::model::observation::Observation;
use crate::model::reason::Reason;
use crate::model::source_update::SourceUpdate;

#[test]
fn a_failed_source_makes_its_subjects_unknown_and_clears_nothing() {
    let mut world = plain();
    world.probe("/data", failing_probe(5), 5);
    world.judge(6);
    let subject = Subject::Volume(volume("fs:u"));
    world.apply(
        SourceUpdate::Mounts(Observation::failed(at(10), "reading /proc/1/mountinfo: no")),
        10,
    );
    world.judge(11);
    assert!(is_active(&world.active, &subject, Reason::NotAccessible));
    assert!(
        unknown_at(0, &world.facts, &subject)
            .unwrap()
            .why
            .contains("mountinfo")
    );
    world.read_mounts(20);
    assert_eq!(unknown_at(0, &world.facts, &subject), None);
    world.apply(
        SourceUpdate::Inventory(Observation::failed(at(30), "scan")),
        30,
    );
    let drive = Subject::Drive(DriveId::new("A"));
    assert!(
        unknown_at(0, &world.facts, &drive).is_some()
            && unknown_at(0, &world.facts, &subject).is_some()
    );
    assert_eq!(
        world.facts.drives[&DriveId::new("A")].missing_since,
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
    let mut world = plain();
    let mut refused = healthy_probe(usage(100 * GIB, 50 * GIB));
    refused.readdir = failing_probe(13).readdir;
    world.probe("/data", refused, 10);
    assert_eq!(
        unknown_at(0, &world.facts, &subject),
        None,
        "a squashed root cannot list, and the server answers"
    );
    world.probe("/data", failing_probe(13), 20);
    assert!(unknown_at(0, &world.facts, &subject).is_some());
}

#[test]
fn an_unmounted_volume_clears_its_findings() {
    let mut world = plain();
    world.probe("/data", failing_probe(5), 5);
    assert_eq!(world.raised(6).len(), 1);
    world.umount("/data");
    world.read_mounts(10);
    assert_eq!(world.raised(11), [""; 0]);
    assert!(world.active.is_empty());
    assert_eq!(
        world.probe("/data", failing_probe(5), 12),
        Urgency::Nothing,
        "a late answer of a mount that is gone"
    );
}

#[test]
fn no_restored_finding_is_cleared_before_settled() {
    let mut world = TestHost::default();
    world.active.insert(
        (Subject::Volume(volume("fs:u")), Reason::ReadOnly),
        Severity::Bad,
    );
    world.judge(0);
    assert_eq!(world.active.len(), 1);
    world.read_all(1);
    world.judge(2);
    assert!(world.active.is_empty());
}
