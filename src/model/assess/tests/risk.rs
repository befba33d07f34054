//! Members that are about to fail use up what may still fail; old findings, wear and age do not.

use super::mirror;
use super::redundancy::{array, fail, state};
use super::repaired::reads;
use super::smart::{failing, report};
use crate::block::LayerState;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_smart::SmartResponse;
use diskvitals_smart::report::{Body, SmartReport};

const DAY: i64 = 24 * 3600;

pub(super) fn answer(host: &mut TestHost, drive: &str, report: SmartReport, second: i64) {
    host.apply(
        SourceUpdate::Smart {
            drive: DriveId::new(drive),
            at: at(second),
            response: Box::new(SmartResponse::Report(Box::new(report))),
            duration: std::time::Duration::ZERO,
        },
        second,
    );
}

/// The message, if it is raised.
fn risk(host: &mut TestHost, second: i64) -> Option<String> {
    host.raised_for(Reason::RedundancyAtRisk, second).map(|raised| raised.message)
}

#[test]
fn pending_sectors_on_one_of_two_copies_leave_one() {
    let mut host = mirror();
    answer(&mut host, "A", report("A", 0, 8), 10);
    answer(&mut host, "B", report("B", 0, 0), 10);
    let message = "1 of the 2 copies of raid1 md0 is on sda (PendingSectors); no other may fail";
    assert_eq!(risk(&mut host, 11).as_deref(), Some(message));
    assert_eq!(
        host.raised(12),
        [
            "A PendingSectors Suspect Degraded",
            "fs:m DriveFailing Suspect Degraded",
            "fs:m RedundancyAtRisk Suspect Degraded"
        ]
    );
}

#[test]
fn a_finding_that_is_old_and_has_not_grown_is_no_risk_and_one_that_grows_is() {
    let mut host = mirror();
    answer(&mut host, "A", report("A", 0, 8), 10);
    assert!(risk(&mut host, 11).is_some(), "new");
    answer(&mut host, "A", report("A", 0, 8), 31 * DAY);
    assert_eq!(risk(&mut host, 31 * DAY), None, "old");
    assert!(host.raised(31 * DAY).contains(&"A PendingSectors Suspect Degraded".to_owned()));
    answer(&mut host, "A", report("A", 0, 9), 32 * DAY);
    assert!(risk(&mut host, 32 * DAY).is_some(), "grown");
}

#[test]
fn a_reallocated_sector_wear_age_and_unknown_health_are_no_risk() {
    let mut host = mirror();
    let mut worn = report("A", 1, 0);
    worn.identity.rotation_rate = Some(0);
    worn.power_on_hours = Some(9 * 8766);
    if let Body::Ata(ata) = &mut worn.body {
        ata.endurance_used = Some(130);
    }
    answer(&mut host, "A", worn, 10);
    // sdb has never answered.
    assert!(host.raised(11).contains(&"A WornOut Suspect Degraded".to_owned()));
    assert_eq!(risk(&mut host, 11), None);
}

#[test]
fn what_is_known_of_the_other_copies_is_in_the_sentence() {
    let mut host = mirror();
    answer(&mut host, "A", failing("A"), 10);
    let mut old = report("B", 0, 0);
    old.identity.rotation_rate = Some(0);
    old.power_on_hours = Some(6 * 8766);
    if let Body::Ata(ata) = &mut old.body {
        ata.endurance_used = Some(130);
    }
    answer(&mut host, "B", old, 10);
    let message = risk(&mut host, 11).unwrap();
    assert_eq!(
        message,
        "1 of the 2 copies of raid1 md0 is on sda (SmartFailing); no other may fail; sdb (WornOut, in use for 6 years)"
    );
}

#[test]
fn as_many_members_as_may_fail_are_at_risk_and_no_fewer() {
    for (level, slots, failed, expected) in [
        ("raid1", "+++", 1, None),
        (
            "raid1",
            "+++",
            2,
            Some(
                "2 of the 3 copies of raid1 md0 are on sda (MediaErrors), sdb (MediaErrors); no other may fail",
            ),
        ),
        (
            "raid5",
            "++++",
            1,
            Some("1 of the 4 members of raid5 md0 is on sda (MediaErrors); no other may fail"),
        ),
        ("raid6", "++++", 1, None),
        (
            "raid6",
            "++++",
            2,
            Some(
                "2 of the 4 members of raid6 md0 are on sda (MediaErrors), sdb (MediaErrors); no other may fail",
            ),
        ),
        // One is missing already.
        (
            "raid6",
            "+++-",
            1,
            Some("1 of the 3 members of raid6 md0 is on sda (MediaErrors); no other may fail"),
        ),
        // Redundancy is lost: RedundancyLost says it.
        ("raid6", "++--", 1, None),
        ("raid1", "+-", 1, None),
        ("raid0", "++", 1, None),
    ] {
        let mut host = array(level, slots.len());
        host.layer("md0", LayerState::Md(state(level, slots)), 5);
        for (device, second) in ["sda", "sdb"].into_iter().zip(10..).take(failed) {
            fail(&mut host, device, second);
        }
        assert_eq!(risk(&mut host, 20).as_deref(), expected, "{level} {slots} {failed}");
    }
}

#[test]
fn a_missing_drive_is_a_matter_of_the_array() {
    let mut host = mirror();
    host.pull("sda");
    host.scan(10);
    assert_eq!(risk(&mut host, 11), None);
}

#[test]
fn a_btrfs_is_an_array_too() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
    host.inventory.btrfs.push(btrfs("b-1", &["sda", "sdb"], "raid1"));
    host.read_all(0);
    fail(&mut host, "sdb", 10);
    let message = "1 of the 2 copies of btrfs raid1 is on sdb (MediaErrors); no other may fail";
    assert_eq!(risk(&mut host, 11).as_deref(), Some(message));
}

#[test]
fn what_runs_is_in_the_sentence() {
    let mut host = mirror();
    answer(&mut host, "A", report("A", 0, 8), 10);
    let mut md = state("raid1", "++");
    md.sync_action = Some("check".into());
    // 3 hours of 100 MiB/s.
    md.sync_completed = Some((737_280_000, 2_949_120_000));
    md.sync_speed = Some(102_400);
    host.layer("md0", LayerState::Md(md), 11);
    let message = risk(&mut host, 12).unwrap();
    assert!(message.ends_with("; check of md0, 25 % done, 3 hours left"), "{message}");
}

#[test]
fn when_an_array_was_last_read_completely_is_in_the_sentence() {
    let mut host = mirror();
    answer(&mut host, "A", report("A", 0, 8), 10);
    reads(&mut host, "b", 1, &["+md0", "-md0"], 20);
    let end = |host: &mut TestHost, second| {
        let message = risk(host, second).unwrap();
        message.rsplit_once("; ").unwrap().1.to_owned()
    };
    let last = host.facts.wall_text(at(21));
    assert_eq!(end(&mut host, 30), format!("md0 was last read completely at {last}"));
    let mut md = state("raid1", "++");
    (md.last_sync_action, md.mismatch_cnt) = (Some("check".into()), Some(128));
    md.sync_action = Some("idle".into());
    host.layer("md0", LayerState::Md(md), 40);
    let expected = format!("md0 was last read completely at {last}, 128 sectors differed");
    assert_eq!(end(&mut host, 40), expected);
    answer(&mut host, "A", report("A", 0, 9), 90 * DAY);
    assert_eq!(end(&mut host, 90 * DAY), "md0 has not been read completely for 90 days");
}

#[test]
fn an_array_without_a_volume_is_at_risk_too() {
    let mut host = mirror();
    host.umount("/data");
    host.read_mounts(5);
    answer(&mut host, "A", report("A", 0, 8), 10);
    assert_eq!(
        host.raised(11),
        ["A PendingSectors Suspect Degraded", "dev:md0 RedundancyAtRisk Suspect Degraded"]
    );
}
