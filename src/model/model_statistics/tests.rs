use std::sync::Arc;

use super::*;
use crate::fixture::{TestHost, at, drive};
use crate::fixture::{add_finding, published};
use crate::snapshot::Snapshot;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Health, Subject};

/// A host with the drive A, and the snapshot that was published of it.
fn host() -> (TestHost, Snapshot) {
    let mut node = TestHost::default().disk("sda", "8:0", "A");
    node.scan(0);
    let mut snapshot = Snapshot::default();
    let drive = Arc::new(published("sda", "A"));
    snapshot.drives.insert(DriveId::new("A"), drive);
    (node, snapshot)
}

fn with_finding(snapshot: &Snapshot, reason: Reason) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let drive = snapshot.drives.get_mut(&DriveId::new("A")).expect("there");
    Arc::make_mut(drive).health = Health::Bad;
    add_finding(&mut snapshot, Subject::Drive(DriveId::new("A")), reason);
    snapshot
}

/// Counts with the findings of `now`, after `before` was published.
fn count(node: &mut TestHost, before: &Snapshot, now: &Snapshot, seconds: i64) -> (u64, u64) {
    let active = now.findings.values().map(AsRef::as_ref);
    node.facts.count_models(before, active, at(seconds));
    let models = &node.facts.models;
    let (_, tally) = models.tallies().next().expect("has one");
    (tally.in_service.as_secs(), tally.failures)
}

#[test]
fn time_in_service_adds_up_and_a_failure_counts_once() {
    let (mut node, good) = host();
    let bad = with_finding(&good, Reason::SmartFailing);
    assert_eq!(count(&mut node, &good, &good, 0), (0, 0));
    assert_eq!(count(&mut node, &good, &bad, 10), (10, 1));
    assert_eq!(count(&mut node, &bad, &bad, 20), (20, 1));
    let worse = with_finding(&bad, Reason::MediaErrors);
    assert_eq!(count(&mut node, &bad, &worse, 30), (30, 1));
    assert_eq!(count(&mut node, &worse, &good, 40), (40, 1));
    assert_eq!(count(&mut node, &good, &bad, 50), (50, 1), "it has failed before");
}

#[test]
fn a_restart_counts_no_failure_a_second_time() {
    let (mut node, good) = host();
    let bad = with_finding(&good, Reason::SmartFailing);
    count(&mut node, &good, &bad, 0);
    let stored = serde_json::to_string(&node.facts.drives[&DriveId::new("A")]).expect("written");
    let (mut restarted, good) = host();
    let known = serde_json::from_str(&stored).expect("read");
    restarted.facts.drives.insert(DriveId::new("A"), known);
    assert_eq!(count(&mut restarted, &good, &bad, 10).1, 0);
}

#[test]
fn a_drive_that_is_bad_when_it_is_judged_for_the_first_time_is_no_failure_of_today() {
    let (mut node, mut before) = host();
    let bad = with_finding(&before, Reason::SmartFailing);
    let drive = before.drives.get_mut(&DriveId::new("A")).expect("there");
    Arc::make_mut(drive).health = Health::Unknown;
    assert_eq!(count(&mut node, &before, &bad, 10).1, 0);
    assert_eq!(count(&mut node, &Snapshot::default(), &bad, 20).1, 0);
    assert_eq!(count(&mut node, &bad, &bad, 30).1, 0);
}

#[test]
fn a_drive_that_was_pulled_or_is_hot_has_not_failed_and_may_fail_later() {
    let (mut node, good) = host();
    let mut last = good.clone();
    for (reason, seconds) in [(Reason::DriveMissing, 10), (Reason::Overheating, 20)] {
        let now = with_finding(&last, reason);
        assert_eq!(count(&mut node, &last, &now, seconds).1, 0, "{reason}");
        last = now;
    }
    let now = with_finding(&last, Reason::PendingSectors);
    assert_eq!(count(&mut node, &last, &now, 30).1, 1);
    assert!(now.findings.values().all(|it| it.severity == Severity::Bad));
}

#[test]
fn a_missing_drive_is_not_in_service() {
    let (mut node, good) = host();
    count(&mut node, &good, &good, 0);
    let known = node.facts.drives.get_mut(&DriveId::new("A"));
    known.expect("there").missing_since = Some(at(0));
    assert_eq!(count(&mut node, &good, &good, 100), (0, 0));
}

#[test]
fn further_models_are_counted_together_and_what_has_no_model_is_not() {
    let mut statistics = ModelStatistics::default();
    let mut facts = drive("sda", "8:0", "A");
    for number in 0..MAX_MODELS + 10 {
        facts.model = Some(format!("Model {number:03}"));
        statistics.count_failure(&facts);
    }
    assert_eq!(statistics.tallies().count(), MAX_MODELS + 1);
    let (_, other) = statistics.tallies().find(|(key, _)| key.model == OTHER).expect("there");
    assert_eq!(other.failures, 10);
    facts.model = None;
    statistics.count_failure(&facts);
    facts.model = Some("LUN".into());
    facts.transport = Transport::Iscsi;
    statistics.count_failure(&facts);
    assert_eq!(statistics.failures(), MAX_MODELS as u64 + 10);
}
