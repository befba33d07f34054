//! Sequences of events, and the lines of them.

use super::*;
use crate::args::findings::{FindingFilter, Level};
use crate::render::watch::line;
use diskvitals_terminal::fixture::{before, screen};

fn event(change: Change, item: Option<Item>) -> wire::WatchEvent {
    wire::WatchEvent { revision: 7, time: before(0), change: change.into(), item }
}

fn drive(health: wire::Health) -> Item {
    Item::Drive(wire::Drive {
        id: "nguid.1".into(),
        name: "nvme0n1".into(),
        health: health.into(),
        ..Default::default()
    })
}

fn volume(health: wire::Health) -> Item {
    Item::Volume(wire::Volume { id: "fs:u".into(), health: health.into(), ..Default::default() })
}

fn finding(reason: &str) -> Item {
    Item::Finding(wire::Finding {
        id: format!("id-{reason}"),
        severity: wire::Severity::Bad.into(),
        reason: reason.into(),
        message: "it fails".into(),
        ..Default::default()
    })
}

/// A drive's failure, with a volume's finding that follows.
fn cause(figure: &str) -> Item {
    let of = |reason: &str| wire::CauseFinding {
        finding_id: format!("id-{reason}"),
        reason: reason.into(),
        figure: figure.into(),
        ..Default::default()
    };
    Item::Cause(wire::Cause {
        id: "drive:nguid.1".into(),
        name: "nvme0n1".into(),
        severity: wire::Severity::Bad.into(),
        counted: true,
        findings: vec![of("SmartFailing")],
        consequences: vec![of("DriveFailing")],
        hits: vec![wire::CauseHit { name: "/srv/\u{202e}a".into(), ..Default::default() }],
        ..Default::default()
    })
}

fn list(items: Vec<Item>) -> Vec<wire::WatchEvent> {
    let items = items.into_iter().map(|it| event(Change::Added, Some(it)));
    std::iter::once(event(Change::SnapshotBegin, None))
        .chain(items)
        .chain([event(Change::SnapshotEnd, None)])
        .collect()
}

fn lines(journal: &mut Journal, events: Vec<wire::WatchEvent>) -> String {
    let screen = screen(None);
    let entries = events.iter().filter_map(|event| journal.apply(event, &screen));
    entries.flatten().map(|it| line(&it, &screen)).collect()
}

fn everything() -> Vec<Item> {
    vec![
        drive(wire::Health::Bad),
        volume(wire::Health::Bad),
        finding("SmartFailing"),
        finding("DriveFailing"),
        cause(""),
    ]
}

#[test]
fn a_failing_drive_with_the_findings_that_follow_is_one_line() {
    let mut journal = Journal::new(false);
    let healthy = vec![drive(wire::Health::Good), volume(wire::Health::Good)];
    lines(&mut journal, list(healthy));
    let changes = everything().into_iter().map(|it| event(Change::Modified, Some(it))).collect();
    insta::assert_snapshot!(lines(&mut journal, changes), @"2026-03-01 12:00:00  added    cause    BAD  nvme0n1: SmartFailing; hits /srv/\\u{202e}a");
}

#[test]
fn the_list_is_complete_and_changes_follow() {
    let mut journal = Journal::new(false);
    let mut events = list(everything());
    events.extend([
        event(Change::Modified, Some(cause("24"))),
        event(Change::Modified, Some(cause("24"))),
        event(Change::Modified, Some(volume(wire::Health::Unknown))),
        event(Change::Modified, Some(drive(wire::Health::Good))),
        event(Change::Removed, Some(cause("24"))),
    ]);
    insta::assert_snapshot!(lines(&mut journal, events), @r"
    2026-03-01 12:00:00  everything, at revision 7:
    2026-03-01 12:00:00  added    drive    BAD  nvme0n1 (nguid.1)
    2026-03-01 12:00:00  added    volume   BAD  fs:u
    2026-03-01 12:00:00  added    cause    BAD  nvme0n1: SmartFailing; hits /srv/\u{202e}a
    2026-03-01 12:00:00  end of the list; changes follow
    2026-03-01 12:00:00  changed  cause    BAD  nvme0n1: SmartFailing (24); hits /srv/\u{202e}a
    2026-03-01 12:00:00  changed  volume   UNKNOWN  fs:u
    2026-03-01 12:00:00  removed  cause    BAD  nvme0n1: SmartFailing (24); hits /srv/\u{202e}a
    ");
}

#[test]
fn after_a_restart_only_what_has_changed_meanwhile_is_printed() {
    let mut journal = Journal::new(false);
    lines(&mut journal, list(everything()));
    assert_eq!(lines(&mut journal, list(everything())), "");
    let fewer = vec![drive(wire::Health::Good), finding("SmartFailing"), cause("")];
    insta::assert_snapshot!(lines(&mut journal, list(fewer)), @"2026-03-01 12:00:00  removed  volume   BAD  fs:u");
}

#[test]
fn only_changes_have_no_list() {
    let mut journal = Journal::new(true);
    let mut events = list(vec![drive(wire::Health::Good)]);
    assert_eq!(lines(&mut journal, events.clone()), "");
    events = list(everything());
    insta::assert_snapshot!(lines(&mut journal, events), @r"
    2026-03-01 12:00:00  added    volume   BAD  fs:u
    2026-03-01 12:00:00  added    cause    BAD  nvme0n1: SmartFailing; hits /srv/\u{202e}a
    ");
}

#[test]
fn a_filter_keeps_the_problems_with_such_findings() {
    for (reason, is_shown) in [("smartfailing", true), ("PendingSectors", false)] {
        let mut journal = Journal::new(true);
        journal.set_filter(filter(reason));
        lines(&mut journal, list(Vec::new()));
        let shown = lines(&mut journal, list(everything()));
        assert_eq!(shown.lines().count(), usize::from(is_shown), "{shown}");
        assert_eq!(shown.contains("cause"), is_shown);
    }
}

fn filter(reason: &str) -> Resolved {
    Resolved::of(FindingFilter {
        severity: Some(Level::Suspect),
        reason: vec![reason.into()],
        ..Default::default()
    })
}

#[test]
fn findings_of_a_daemon_without_causes_have_lines_except_followers() {
    let mut journal = Journal::new(true);
    journal.set_causes(false);
    lines(&mut journal, list(Vec::new()));
    let Item::Finding(mut follower) = finding("DriveFailing") else {
        unreachable!("it is a finding");
    };
    follower.follows = "ba9876543210".into();
    let events =
        [finding("SmartFailing"), Item::Finding(follower)].map(|it| event(Change::Added, Some(it)));
    insta::assert_snapshot!(lines(&mut journal, events.into()), @"2026-03-01 12:00:00  added    finding  BAD  SmartFailing -: it fails [id-SmartFailing]");
}
