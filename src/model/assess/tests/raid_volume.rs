//! Arrays of RAID controllers.

use std::collections::BTreeMap;

use crate::assess::input::Context;
use crate::assess::risk::Outlook;
use crate::drive::Transport;
use crate::fixture::*;
use crate::policy::Policy;
use crate::raid_report::{
    ArrayName, CacheProtection, RaidFamily, RaidReport, Rebuild, ReportedArray,
};
use crate::source_update::SourceUpdate;
use crate::volume::Stack;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Subject, UnknownHealth, Verdict};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, DeviceName, Event, Line, LineOrigin};
use diskvitals_kernel_log::raid_array::ArrayState;

/// Two arrays of one controller.
fn controller() -> TestHost {
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
    for (number, drive) in host.inventory.drives.iter_mut().enumerate() {
        drive.transport = Transport::Raid;
        drive.location.pci = Some("0000:01:00.0".into());
        drive.location.hctl = Some(format!("0:2:{number}:0"));
    }
    host.read_all(0);
    host
}

fn log(host: &mut TestHost, number: u32, state: &str, seconds: i64) {
    let line = Line {
        time: at(seconds),
        text: format!(
            "megaraid_sas 0000:01:00.0: {seconds} (7s/0x0001/CRIT) - VD {number:02x}/{number} is now {state}"
        ),
        origin: LineOrigin::KernelLog,
    };
    let seq = u64::try_from(seconds).unwrap();
    let event = Event {
        seq,
        device: DeviceName::RaidArray { pci: "0000:01:00.0".into(), number },
        first: line.clone(),
        last: line,
        ..event(Class::ArrayState, "sda", at(seconds), &[])
    };
    let cursor =
        Cursor { boot_id: "boot".into(), counted_to: Some(seq), reread_from: seq + 1, lost: 0 };
    let batch = Batch {
        cursor,
        events: vec![event],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), seconds);
}

#[test]
fn the_array_that_the_firmware_names_is_degraded_and_no_other() {
    let mut host = controller();
    log(&mut host, 1, "PARTIALLY DEGRADED", 10);
    assert_eq!(host.raised(11), ["B RaidVolumeDegraded Suspect Degraded"]);
    log(&mut host, 1, "OFFLINE", 20);
    assert_eq!(host.raised(21), ["B RaidVolumeDegraded Bad Inaccessible"]);
}

#[test]
fn time_repairs_no_array_and_the_firmwares_word_does() {
    let mut host = arrays("megaraid_sas");
    report(&mut host, Observation::Unavailable, 2);
    log(&mut host, 0, "DEGRADED", 10);
    let year = 365 * 86_400;
    let unread = "B RaidStateUnknown Info Information";
    assert_eq!(host.raised(year), ["A RaidVolumeDegraded Suspect Degraded", unread]);
    log(&mut host, 0, "OPTIMAL", year + 10);
    assert_eq!(host.raised(year + 11), [unread]);
}

#[test]
fn after_a_start_an_old_record_waits_for_the_first_report() {
    let mut host = arrays("megaraid_sas");
    log(&mut host, 0, "DEGRADED", 10);
    assert_eq!(host.raised(11).len(), 1, "a new one does not");
    let mut host = arrays("megaraid_sas");
    log(&mut host, 0, "DEGRADED", 10);
    assert_eq!(host.raised(4 * 3600), [""; 0]);
    assert_eq!(unknown_health(&host, "A"), None, "at that time it was known");
    reported(&mut host, |_| (), 4 * 3600 + 1);
    assert_eq!(host.raised(4 * 3600 + 2), [""; 0]);
    assert_eq!(host.raised(8 * 3600), ["A RaidStateUnknown Info Information"], "no old record");
}

/// The same arrays, as the scan finds them.
fn arrays(driver: &str) -> TestHost {
    let mut host = controller();
    for drive in &mut host.inventory.drives {
        drive.location.array_driver = Some(driver.into());
    }
    host.read_all(0);
    read_nothing(&mut host);
    host
}

/// A kernel log, and counters, without an error.
fn read_nothing(host: &mut TestHost) {
    let batch = Batch {
        cursor: Cursor { boot_id: "boot".into(), ..Cursor::default() },
        events: Vec::new(),
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: true,
    };
    host.apply(SourceUpdate::KernelLog(batch), 1);
    host.apply(SourceUpdate::Counters(Observation::ok(at(1), Vec::new())), 1);
}

fn unknown_health(host: &TestHost, drive: &str) -> Option<UnknownHealth> {
    unknown_at(2, &host.facts, &Subject::Drive(DriveId::new(drive)))
}

fn report(host: &mut TestHost, reports: Observation<Vec<RaidReport>>, seconds: i64) {
    report_of(host, RaidFamily::MegaRaid, reports, seconds);
}

fn report_of(
    host: &mut TestHost,
    family: RaidFamily,
    reports: Observation<Vec<RaidReport>>,
    seconds: i64,
) {
    host.apply(SourceUpdate::RaidReports { family, reports }, seconds);
}

/// Whether an active finding would stay, because it is not known whether it holds.
fn is_kept(host: &mut TestHost, reason: Reason, seconds: i64) -> bool {
    let judged = host.judge(seconds);
    let mut of_reason = judged.iter().filter(|it| it.reason == reason);
    of_reason.any(|it| matches!(it.verdict, Verdict::Unknown { .. }))
}

/// A report of both arrays.
fn of(states: [Option<ArrayState>; 2]) -> RaidReport {
    let array = |(number, state): (u32, Option<ArrayState>)| ReportedArray {
        name: ArrayName::Target(number),
        state,
        has_lost_blocks: false,
        forces_write_back: false,
        rebuild: None,
        text: format!("0/{number} RAID1"),
    };
    let arrays = (0..).zip(states).map(array).collect();
    RaidReport {
        tool: "storcli",
        pci: Some("0000:01:00.0".into()),
        arrays,
        ..RaidReport::default()
    }
}

fn reported(host: &mut TestHost, change: impl FnOnce(&mut RaidReport), seconds: i64) {
    let mut all = of([Some(ArrayState::Optimal); 2]);
    change(&mut all);
    report(host, Observation::ok(at(seconds), vec![all]), seconds);
}

#[test]
fn an_array_whose_state_nothing_reads_is_unknown_with_one_finding_for_its_controller() {
    let mut host = arrays("megaraid_sas");
    let pending = UnknownHealth::pending("array state: its controller is not asked yet");
    assert_eq!(unknown_health(&host, "A"), Some(pending));
    assert_eq!(host.raised(2), [""; 0]);
    report(&mut host, Observation::Unavailable, 2);
    let why = UnknownHealth::no_smart("array state not read: install storcli or perccli");
    assert_eq!(["A", "B"].map(|it| unknown_health(&host, it)), [Some(why.clone()), Some(why)]);
    assert_eq!(host.raised(2), ["A RaidStateUnknown Info Information"]);
    let message = host.raised_for(Reason::RaidStateUnknown, 2).unwrap().message;
    assert_eq!(
        message,
        "sda, sdb of the RAID controller at 0000:01:00.0: array state not read: install storcli or perccli"
    );
    log(&mut host, 0, "DEGRADED", 10);
    assert_eq!(unknown_health(&host, "A"), None, "the firmware's word is a state");
    let raised = ["A RaidVolumeDegraded Suspect Degraded", "B RaidStateUnknown Info Information"];
    assert_eq!(host.raised(11), raised);
    log(&mut host, 1, "OPTIMAL", 20);
    assert_eq!(unknown_health(&host, "B"), None);
    assert_eq!(host.raised(21), raised[..1]);
}

#[test]
fn disks_and_arrays_of_other_adapters_need_no_tool() {
    for mut host in [arrays("mpt3sas"), controller()] {
        read_nothing(&mut host);
        assert_eq!(unknown_health(&host, "A"), None);
        assert_eq!(host.raised(2), [""; 0]);
    }
    let why = unknown_health(&arrays("mpi3mr"), "A").unwrap().why;
    assert!(why.contains("storcli2 or perccli2, which diskvitals does not read"), "{why}");
}

#[test]
fn each_family_has_its_own_tool_and_its_own_name_for_an_array() {
    let wwn = |digit: &str| format!("naa.{}", digit.repeat(32));
    for (driver, family, tools) in [
        ("hpsa", RaidFamily::SmartArray, "ssacli or arcconf"),
        ("smartpqi", RaidFamily::SmartArray, "ssacli or arcconf"),
        ("aacraid", RaidFamily::Adaptec, "arcconf"),
    ] {
        let mut host = arrays(driver);
        for (drive, digit) in host.inventory.drives.iter_mut().zip(["a", "b"]) {
            drive.wwn = Some(wwn(digit));
            drive.location.hctl = drive.location.hctl.take().map(|it| it.replace("0:2:", "0:0:"));
        }
        host.read_all(1);
        report(&mut host, Observation::ok(at(1), vec![of([Some(ArrayState::Optimal); 2])]), 1);
        assert!(unknown_health(&host, "A").is_some(), "what storcli reports is of others");
        report_of(&mut host, family, Observation::Unavailable, 1);
        let why = unknown_health(&host, "A").unwrap().why;
        assert_eq!(why, format!("array state not read: install {tools}"));
        let mut all = of([Some(ArrayState::Optimal), Some(ArrayState::Degraded)]);
        if family == RaidFamily::Adaptec {
            // Older controllers have neither an address nor identifiers in the answer.
            all.pci = None;
        } else {
            (all.arrays[0].name, all.arrays[1].name) =
                (ArrayName::Wwn(wwn("a")), ArrayName::Wwn(wwn("b")));
        }
        report_of(&mut host, family, Observation::ok(at(2), vec![all.clone()]), 2);
        assert_eq!((unknown_health(&host, "A"), unknown_health(&host, "B")), (None, None));
        assert_eq!(host.raised(2), ["B RaidVolumeDegraded Suspect Degraded"], "{driver}");
        if family == RaidFamily::Adaptec {
            let two = Observation::ok(at(3), vec![all.clone(), all]);
            report_of(&mut host, family, two, 3);
            assert!(unknown_health(&host, "A").is_some(), "which of two it is is not known");
        } else {
            all.arrays[1].name = ArrayName::Target(1);
            report_of(&mut host, family, Observation::ok(at(3), vec![all]), 3);
            assert!(unknown_health(&host, "B").is_some(), "the driver made up the address");
        }
        assert!(is_kept(&mut host, Reason::RaidVolumeDegraded, 3), "it clears nothing");
    }
}

#[test]
fn blocks_that_no_member_can_give_are_a_finding_of_a_complete_array() {
    let mut host = arrays("megaraid_sas");
    let lost = |it: &mut RaidReport| it.arrays[0].has_lost_blocks = true;
    reported(&mut host, lost, 10);
    assert_eq!(host.raised(11), ["A RaidVolumeDegraded Suspect Degraded"]);
    let and_degraded = |it: &mut RaidReport| {
        lost(it);
        it.arrays[0].state = Some(ArrayState::Degraded);
    };
    reported(&mut host, and_degraded, 15);
    let message = host.raised_for(Reason::RaidVolumeDegraded, 16).unwrap().message;
    assert!(message.contains("is degraded; it has lost blocks; no hot spare"), "{message}");
    reported(&mut host, |_| (), 20);
    assert_eq!(host.raised(21), [""; 0]);
}

fn running() -> Rebuild {
    Rebuild { onto: vec!["252:3".into()], percent: Some(43), seconds_left: Some(3 * 3600) }
}

/// What is said of what may still fail and of what runs, of a volume on sdb.
fn sentence(host: &TestHost, seconds: i64) -> Option<String> {
    let (policy, drives) = (Policy::default(), BTreeMap::new());
    let context = Context { facts: &host.facts, policy: &policy, now: at(seconds) };
    let stack = Stack::Drive(DriveId::new("B"));
    Outlook { context, drives: &drives }.sentence(&stack, &["sdb".into()])
}

#[test]
fn a_volume_on_an_array_that_rebuilds_says_so_unless_the_log_is_newer() {
    let mut host = arrays("megaraid_sas");
    let rebuild = |it: &mut RaidReport| {
        it.arrays[1].state = Some(ArrayState::Degraded);
        it.arrays[1].rebuild = Some(running());
    };
    reported(&mut host, |_| (), 10);
    assert_eq!(sentence(&host, 11), None);
    reported(&mut host, rebuild, 20);
    let text = "rebuild of sdb onto 252:3, 43 % done, 3 hours left";
    assert_eq!(sentence(&host, 21).as_deref(), Some(text));
    log(&mut host, 1, "OPTIMAL", 30);
    assert_eq!(sentence(&host, 31), None);
    reported(&mut host, |it| it.arrays[1].rebuild = Some(Rebuild::default()), 40);
    assert_eq!(sentence(&host, 41).as_deref(), Some("rebuild of sdb"), "the tool knows no more");
    assert_eq!(sentence(&host, 40 + 3 * 3600), None, "that was long ago");
}

#[test]
fn an_array_that_is_offline_or_has_lost_blocks_does_not_only_wait_for_its_rebuild() {
    let mut host = arrays("megaraid_sas");
    for (state, has_lost_blocks, seconds) in
        [(ArrayState::Offline, false, 10), (ArrayState::Degraded, true, 20)]
    {
        let rebuild = |it: &mut RaidReport| {
            it.arrays[1].rebuild = Some(running());
            (it.arrays[1].state, it.arrays[1].has_lost_blocks) = (Some(state), has_lost_blocks);
        };
        reported(&mut host, rebuild, seconds);
        let raised = host.raised_for(Reason::RaidVolumeDegraded, seconds + 1).unwrap();
        assert!(raised.message.contains("; rebuild onto 252:3, 43 % done"), "{}", raised.message);
        assert_eq!(raised.advice, None);
    }
}

#[test]
fn the_newest_of_the_tools_report_and_the_log_is_the_state() {
    let mut host = arrays("megaraid_sas");
    reported(&mut host, |_| (), 10);
    assert_eq!((unknown_health(&host, "A"), host.raised(11)), (None, Vec::<String>::new()));
    log(&mut host, 1, "DEGRADED", 20);
    let degraded = ["B RaidVolumeDegraded Suspect Degraded"];
    assert_eq!(host.raised(21), degraded);
    let rebuild = |it: &mut RaidReport| {
        it.arrays[1].state = Some(ArrayState::Degraded);
        it.arrays[1].rebuild = Some(running());
        (it.failed, it.hot_spares) = (vec!["252:4 (Failed)".into()], 1);
    };
    reported(&mut host, rebuild, 30);
    let raised = host.raised_for(Reason::RaidVolumeDegraded, 31).unwrap();
    assert_eq!(
        raised.message,
        "the RAID controller reports that drive B (sdb) is degraded; rebuild onto 252:3, 43 % done, 3 hours left; not working: 252:4 (Failed); 1 hot spare in the controller"
    );
    let wait =
        "sdb is being rebuilt: wait until that has ended, and do not pull any of its drives.";
    assert_eq!(raised.advice.as_deref(), Some(wait));
    report(&mut host, Observation::failed(at(40), "timed out"), 40);
    assert_eq!(host.raised(41), degraded, "no answer clears nothing");
    assert!(is_kept(&mut host, Reason::RaidVolumeDegraded, 30 + 3 * 3600));
    reported(&mut host, |_| (), 12_000);
    assert_eq!(host.raised(12_001), [""; 0]);
    reported(&mut host, |it| it.arrays[0].state = Some(ArrayState::Offline), 13_000);
    assert_eq!(host.raised(13_001), ["A RaidVolumeDegraded Bad Inaccessible"]);
}

#[test]
fn a_report_that_is_old_or_of_something_else_is_no_state() {
    let why = |host: &TestHost, seconds| {
        let subject = Subject::Drive(DriveId::new("A"));
        unknown_at(seconds, &host.facts, &subject).map(|it| it.why)
    };
    let mut host = arrays("megaraid_sas");
    reported(&mut host, |_| (), 10);
    assert_eq!(why(&host, 3 * 3600), None);
    assert!(why(&host, 10 + 3 * 3600).unwrap().contains("the last answer is from"));
    report(&mut host, Observation::failed(at(20), "not understood: no JSON"), 20);
    assert_eq!(why(&host, 21), None, "the last answer still counts");
    let later = why(&host, 10 + 3 * 3600);
    assert_eq!(later.as_deref(), Some("array state not read: not understood: no JSON"));
    let not_listed = "array state not read: storcli does not list it";
    reported(&mut host, |it| it.pci = Some("0000:02:00.0".into()), 30);
    assert_eq!(why(&host, 31).as_deref(), Some(not_listed));
    reported(&mut host, |it| it.pci = None, 40);
    assert_eq!(why(&host, 41).as_deref(), Some(not_listed));
    reported(&mut host, |it| drop(it.arrays.remove(0)), 50);
    assert_eq!(why(&host, 51).as_deref(), Some(not_listed));
    reported(&mut host, |it| it.arrays[0].state = None, 60);
    assert_eq!(why(&host, 61).as_deref(), Some("array state not understood: 0/0 RAID1"));
}

#[test]
fn a_cache_without_a_battery_is_a_finding_after_a_day_or_when_write_back_is_forced() {
    let mut host = arrays("megaraid_sas");
    let impaired = |it: &mut RaidReport| {
        it.protection = CacheProtection::Impaired("Charging".into());
        it.arrays[0].forces_write_back = true;
    };
    let day = 86_400;
    reported(&mut host, impaired, 10);
    reported(&mut host, impaired, day);
    assert_eq!(host.raised(day), [""; 0], "it may be a learn cycle");
    reported(&mut host, impaired, day + 10);
    let unprotected = ["A RaidCacheUnprotected Suspect Degraded"];
    assert_eq!(host.raised(day + 11), unprotected);
    reported(&mut host, |_| (), day + 15);
    assert!(is_kept(&mut host, Reason::RaidCacheUnprotected, day + 16), "it says nothing of it");
    reported(&mut host, |it| it.protection = CacheProtection::Optimal, day + 20);
    assert_eq!(host.raised(day + 21), [""; 0]);
    reported(&mut host, impaired, day + 30);
    assert_eq!(host.raised(day + 31), [""; 0]);
    let absent = |it: &mut RaidReport| it.protection = CacheProtection::Absent;
    reported(&mut host, absent, day + 40);
    assert_eq!(host.raised(day + 41), [""; 0], "then it writes through");
    let forced = |it: &mut RaidReport| {
        absent(it);
        it.arrays[1].forces_write_back = true;
    };
    reported(&mut host, forced, day + 50);
    assert_eq!(host.raised(day + 51), unprotected);
    reported(&mut host, |it| it.has_preserved_cache = true, day + 60);
    assert_eq!(host.raised(day + 61), unprotected);
}

#[test]
fn foreign_drives_are_information_for_the_controller() {
    let mut host = arrays("megaraid_sas");
    reported(&mut host, |it| it.foreign = vec!["252:5".into()], 10);
    assert_eq!(host.raised(11), ["A RaidForeignConfig Info Information"]);
    reported(&mut host, |_| (), 20);
    assert_eq!(host.raised(21), [""; 0]);
}
