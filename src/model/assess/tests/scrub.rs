//! How long ago the last check or scrub ended, and since when its absence is known.

use super::pool::{mirrored, tank};
use super::redundancy::{array, state};
use super::repaired::reads;
use crate::block::LayerState;
use crate::care::triggers::{ScrubTrigger, TriggerTarget};
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use crate::stack::{BtrfsFs, MdState, PoolScan, PoolState, ScanState, VdevState};
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::source::Source;

const DAY: i64 = 24 * 3600;

fn message(host: &mut TestHost, second: i64) -> Option<String> {
    host.raised_for(Reason::ScrubOverdue, second).map(|raised| raised.message)
}

fn mirror() -> TestHost {
    let mut host = array("raid1", 2);
    host.inventory.devices.get_mut("md0").unwrap().links =
        vec!["/dev/disk/by-id/md-uuid-1:2:3:4".into()];
    host.scan(1);
    host.layer("md0", LayerState::Md(state("raid1", "++")), 2);
    host
}

#[test]
fn an_array_that_was_never_checked_is_overdue_after_it_was_watched_for_the_limit() {
    let mut host = mirror();
    assert_eq!(message(&mut host, 45 * DAY), None);
    assert_eq!(
        message(&mut host, 46 * DAY).unwrap(),
        "no check of md0 (raid1) has ended for 46 days, as long as it has been watched; none is known"
    );
    let md = MdState { sync_action: Some("check".into()), ..state("raid1", "++") };
    host.layer("md0", LayerState::Md(md), 46 * DAY);
    assert!(message(&mut host, 46 * DAY).unwrap().ends_with("; one is running"));
    reads(&mut host, "b", 1, &["+md0", "-md0"], 46 * DAY);
    host.layer("md0", LayerState::Md(state("raid1", "++")), 46 * DAY + 2);
    assert_eq!(message(&mut host, 47 * DAY), None);
    assert!(!host.active.keys().any(|(_, reason)| *reason == Reason::ScrubOverdue));
    let last = host.facts.wall_text(at(46 * DAY + 1));
    assert_eq!(
        message(&mut host, 92 * DAY).unwrap(),
        format!("no check of md0 (raid1) has ended for 46 days; the last one ended at {last}")
    );
    host.policy.scrub_overdue_days = 0;
    assert_eq!(message(&mut host, 92 * DAY), None, "none is wanted");
}

#[test]
fn a_gap_of_the_log_may_have_had_the_end_of_a_check() {
    let mut host = mirror();
    reads(&mut host, "b", 1, &["+md0", "-md0"], 10);
    host.facts.restart_quiet_times(at(30 * DAY));
    assert_eq!(message(&mut host, 75 * DAY), None);
    let last = host.facts.wall_text(at(11));
    assert_eq!(
        message(&mut host, 76 * DAY).unwrap(),
        format!(
            "no check of md0 (raid1) has ended for 46 days at least; the last known one ended at {last}"
        )
    );
    let (source, status) = (Source::KernelLog, SourceStatus::Down("no".into()));
    host.apply(SourceUpdate::Source { source, status }, 77 * DAY);
    assert_eq!(message(&mut host, 77 * DAY), None, "nothing would show the end");
    assert!(host.active.keys().any(|(_, reason)| *reason == Reason::ScrubOverdue), "nor ends it");
}

#[test]
fn the_end_of_a_check_that_cannot_be_attributed_may_be_of_any_array() {
    for marks in [&["-md0"][..], &["+mdX", "-mdX"]] {
        let mut host = mirror();
        reads(&mut host, "b", 1, marks, 30 * DAY);
        assert_eq!(message(&mut host, 75 * DAY), None, "{marks:?}");
        assert!(message(&mut host, 76 * DAY).is_some(), "{marks:?}");
    }
}

#[test]
fn what_has_no_redundancy_needs_no_check() {
    let mut host = array("raid0", 2);
    host.layer("md0", LayerState::Md(state("raid0", "++")), 2);
    assert_eq!(message(&mut host, 400 * DAY), None);
}

fn scanned(host: &mut TestHost, scan: Option<PoolScan>, second: i64) {
    let mut pool = mirrored(PoolState::Online, VdevState::Online, None);
    pool.status.as_mut().unwrap().scan = scan;
    pool.status_at = Some(at(second));
    host.layer("zfs:tank", LayerState::Zfs(pool), second);
}

fn scan(is_resilver: bool, ended: i64) -> Option<PoolScan> {
    let state = ScanState::Finished;
    Some(PoolScan { is_resilver, state, errors: 2, ended: Some(at(ended)) })
}

#[test]
fn a_pool_that_dates_its_last_scrub_need_not_have_been_watched() {
    let mut host = tank();
    scanned(&mut host, scan(false, -50 * DAY), 10);
    host.facts.restart_quiet_times(at(10));
    let last = host.facts.wall_text(at(-50 * DAY));
    assert_eq!(
        message(&mut host, 20).unwrap(),
        format!(
            "no scrub of tank (ZFS) has ended for 50 days; the last one ended at {last}, errors: 2"
        )
    );
    scanned(&mut host, scan(false, DAY), 2 * DAY);
    assert_eq!(message(&mut host, 46 * DAY), None);
    assert_eq!(message(&mut host, 60 * DAY), None, "`zpool status` has not answered since");
    // The resilver may have replaced the record of a scrub before it.
    scanned(&mut host, scan(true, 50 * DAY), 60 * DAY);
    assert!(message(&mut host, 60 * DAY).is_some(), "no: it was watched");
    host.facts.restart_quiet_times(at(49 * DAY));
    assert_eq!(message(&mut host, 60 * DAY), None);
}

#[test]
fn what_starts_scrubs_is_named_and_its_period_counts() {
    let trigger = |file: &str, days| ScrubTrigger {
        file: file.into(),
        period_days: Some(days),
        ..ScrubTrigger::of(TriggerTarget::Zfs)
    };
    let triggers = |host: &mut TestHost, triggers| {
        host.apply(SourceUpdate::ScrubTriggers(Observation::ok(at(10), triggers)), 10);
    };
    let end = |host: &mut TestHost| {
        let message = message(host, 20)?;
        Some(message.rsplit_once("errors: 2").unwrap().1.to_owned())
    };
    let cron = || trigger("/etc/cron.d/zfsutils-linux", 31);
    let mut host = tank();
    scanned(&mut host, scan(false, -50 * DAY), 10);
    assert_eq!(end(&mut host).unwrap(), "", "it was not looked for");
    let md = ScrubTrigger { of: TriggerTarget::Md, ..trigger("/etc/cron.d/mdadm", 31) };
    let other = ScrubTrigger { only: vec!["other".into()], ..trigger("weekly@other", 7) };
    triggers(&mut host, vec![md, other]);
    assert_eq!(end(&mut host).unwrap(), "; no timer or cron job that starts one was found");
    let off = ScrubTrigger { off: Some("it is masked".into()), ..trigger("weekly@tank", 92) };
    triggers(&mut host, vec![cron(), off]);
    let expected = "; /etc/cron.d/zfsutils-linux should have started one; weekly@tank starts none: it is masked";
    assert_eq!(end(&mut host).unwrap(), expected);
    triggers(&mut host, vec![cron()]);
    let mut pool = mirrored(PoolState::Degraded, VdevState::Faulted, None);
    pool.status.as_mut().unwrap().scan = scan(false, -50 * DAY);
    host.layer("zfs:tank", LayerState::Zfs(pool), 10);
    let expected = "; /etc/cron.d/zfsutils-linux leaves out a pool that is not ONLINE";
    assert_eq!(end(&mut host).unwrap(), expected);
    let quarterly = ScrubTrigger { only: vec!["tank".into()], ..trigger("q@tank", 92) };
    triggers(&mut host, vec![quarterly]);
    assert_eq!(end(&mut host), None, "once in a quarter");
}

#[test]
fn a_btrfs_is_overdue_only_by_the_record_of_its_scrubs() {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("0:41", "/", "/data", "btrfs", "/dev/sda");
    host.inventory.btrfs.push(BtrfsFs {
        uuid: "u".into(),
        label: Some("home".into()),
        devices: vec!["sda".into()],
        member_ids: vec![1],
        data_profiles: vec!["single".into()],
        ..BtrfsFs::default()
    });
    host.read_all(0);
    assert_eq!(message(&mut host, 400 * DAY), None, "the record was never read");
    let record = |host: &mut TestHost, values: &[(&str, u64)], second| {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let reading = crate::counters::CounterReading {
            device: crate::counters::CounterDevice::Block("sda".into()),
            source: "btrfs-scrub".into(),
            file: "record".into(),
            values: values.collect(),
            details: [("devid".to_owned(), "1".to_owned())].into(),
        };
        let update = SourceUpdate::Counters(Observation::ok(at(second), vec![reading]));
        host.apply(update, second);
    };
    record(&mut host, &[], 400 * DAY);
    assert_eq!(message(&mut host, 401 * DAY), None, "there is none, and it is watched since then");
    record(&mut host, &[], 446 * DAY);
    assert!(message(&mut host, 446 * DAY).unwrap().contains("none is known"));
    let ended = at(300 * DAY).as_second().unsigned_abs();
    record(&mut host, &[("ended", ended), ("errors", 0)], 446 * DAY);
    let last = host.facts.wall_text(at(300 * DAY));
    assert_eq!(
        message(&mut host, 446 * DAY).unwrap(),
        format!(
            "no scrub of btrfs home (single) has ended for 146 days; the last one ended at {last}, no errors"
        )
    );
}
