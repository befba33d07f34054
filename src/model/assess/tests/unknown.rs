use super::plain;
use crate::model::assess::{health, health_unknown};
use crate::model::facts::Change;
use crate::model::finding::{Health, Severity, Subject};
use crate::model::fixture::*;
use crate::model::ids::DriveId;
use crate::model::observation::Observation;
use crate::model::reason::Reason;
use crate::model::report::Report;

#[test]
fn a_failed_source_makes_its_things_unknown_and_clears_nothing() {
    let mut world = plain();
    world.probe("/data", answers(5), 5);
    world.judge(6);
    let subject = Subject::Volume(volume("fs:u"));
    world.tell(
        Report::Mounts(Observation::failed(at(10), "reading /proc/1/mountinfo: no")),
        10,
    );
    world.judge(11);
    assert!(is_active(&world.active, &subject, Reason::NotAccessible));
    assert!(
        health_unknown(&world.facts, &subject)
            .unwrap()
            .contains("mountinfo")
    );
    world.read_mounts(20);
    assert_eq!(health_unknown(&world.facts, &subject), None);
    world.tell(Report::Inventory(Observation::failed(at(30), "scan")), 30);
    let drive = Subject::Drive(DriveId::new("A"));
    assert!(
        health_unknown(&world.facts, &drive).is_some()
            && health_unknown(&world.facts, &subject).is_some()
    );
    assert_eq!(
        world.facts.drives[&DriveId::new("A")].missing_since,
        None,
        "a failed scan is not an empty one"
    );
}

#[test]
fn known_badness_outweighs_the_unknown() {
    assert_eq!(health(Some(Severity::Bad), true), Health::Bad);
    assert_eq!(health(Some(Severity::Suspect), true), Health::Suspect);
    assert_eq!(health(Some(Severity::Info), true), Health::Unknown);
    assert_eq!(health(None, false), Health::Good);
}

#[test]
fn a_probe_that_is_refused_leaves_health_unknown_only_when_nothing_answers() {
    let subject = Subject::Volume(volume("fs:u"));
    let mut world = plain();
    let mut refused = healthy(usage(100 * GIB, 50 * GIB));
    refused.readdir = answers(13).readdir;
    world.probe("/data", refused, 10);
    assert_eq!(
        health_unknown(&world.facts, &subject),
        None,
        "a squashed root cannot list, and the server answers"
    );
    world.probe("/data", answers(13), 20);
    assert!(health_unknown(&world.facts, &subject).is_some());
}

#[test]
fn what_is_unmounted_clears_its_findings() {
    let mut world = plain();
    world.probe("/data", answers(5), 5);
    assert_eq!(world.raised(6).len(), 1);
    world.umount("/data");
    world.read_mounts(10);
    assert_eq!(world.raised(11), [""; 0]);
    assert!(world.active.is_empty());
    assert_eq!(
        world.probe("/data", answers(5), 12),
        Change::Nothing,
        "a late answer of a mount that is gone"
    );
}

#[test]
fn before_the_first_full_picture_no_stored_finding_is_cleared_for_want_of_its_subject() {
    let mut world = World::default();
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
