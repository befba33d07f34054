use crate::drive::{DriveFacts, DriveKind, Transport};
use crate::fixture::*;
use crate::source_update::{RaidMemberDrive, SourceUpdate};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Subject, Verdict};
use diskvitals_smart::{SmartResponse, fixture};

const MINUTE: i64 = 60;

/// A disk `A` in a slot.
fn host() -> TestHost {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    at_place(&mut host, "sda", "slot-1");
    host.read_all(0);
    host
}

fn drive_mut<'a>(host: &'a mut TestHost, name: &str) -> &'a mut DriveFacts {
    let mut drives = host.inventory.drives.iter_mut();
    drives.find(|drive| drive.name == name).unwrap()
}

fn at_place(host: &mut TestHost, name: &str, place: &str) {
    drive_mut(host, name).place = DriveId::new(format!("path:{place}"));
}

/// A stick that calls itself as the disk does.
fn plug_stick(host: &mut TestHost, name: &str, dev: &str, identity: &str, place: &str) {
    host.plug(name, dev, identity);
    at_place(host, name, place);
    let stick = drive_mut(host, name);
    (stick.transport, stick.kind) = (Transport::Usb, DriveKind::Usb);
}

fn unplug(host: &mut TestHost, name: &str) {
    host.inventory.drives.retain(|drive| drive.name != name);
    host.inventory.devices.remove(name);
}

/// `name id` of each present drive.
fn present(host: &TestHost) -> Vec<String> {
    let known = host.facts.drives.values();
    let mut present: Vec<String> = known
        .filter(|known| known.missing_since.is_none())
        .map(|known| format!("{} {}", known.facts.name, known.facts.id))
        .collect();
    present.sort();
    present
}

fn missing(host: &TestHost) -> Vec<String> {
    let known = host.facts.drives.values();
    let missing = known.filter(|known| known.missing_since.is_some());
    missing.map(|known| known.facts.id.to_string()).collect()
}

/// The daemon starts anew. The store answers before the first scan, or after it.
fn restart(host: &TestHost, seconds: i64, is_store_late: bool) -> TestHost {
    let stored: Vec<_> = host.facts.drives.values().cloned().collect();
    let smart = host.facts.smart.iter();
    let smart = smart.map(|(id, smart)| (id.clone(), (*smart.history).clone()));
    let smart: Vec<_> = smart.collect();
    let mut after = TestHost { facts: Default::default(), ..host.clone() };
    let restore = |after: &mut TestHost| {
        stored.iter().cloned().for_each(|old| after.facts.restore_drive(old));
        after.facts.smart.restore(smart.clone());
        after.facts.identify_again(&after.settings, at(seconds));
    };
    if is_store_late {
        after.read_all(seconds);
        restore(&mut after);
    } else {
        restore(&mut after);
        after.read_all(seconds);
    }
    after
}

fn answer(host: &mut TestHost, id: &str, pending: u32, seconds: i64) {
    let report = fixture::disk().raw(197, &pending.to_string());
    let update = SourceUpdate::Smart {
        drive: DriveId::known(id),
        at: at(seconds),
        response: Box::new(SmartResponse::Report(Box::new(report))),
        duration: std::time::Duration::ZERO,
    };
    host.apply(update, seconds);
}

fn has(host: &TestHost, id: &str, reason: Reason) -> bool {
    let subject = Subject::Drive(DriveId::known(id));
    is_active(&host.active, &subject, reason)
}

#[test]
fn a_stick_with_the_identity_of_a_disk_changes_nothing_of_the_disk() {
    let mut host = host();
    answer(&mut host, "A", 24, 1);
    host.judge(1);
    assert!(has(&host, "A", Reason::PendingSectors));
    plug_stick(&mut host, "sdz", "65:144", "A", "usb-1");
    host.scan(2);
    assert_eq!(present(&host), ["sda A", "sdz path:usb-1"]);
    assert_eq!(missing(&host), [] as [&str; 0]);
    let of = |name: &str| host.facts.device(name).unwrap().drive.clone().unwrap();
    assert_eq!([of("sda").as_str(), of("sdz").as_str()], ["A", "path:usb-1"]);
    answer(&mut host, "path:usb-1", 0, 3);
    let note = host.raised_for(Reason::DuplicateIdentity, 3).unwrap();
    assert_eq!(note.severity, Severity::Info);
    assert_eq!(
        note.message,
        "drive path:usb-1 (Test Disk, 100.0 GiB) (usb-1) reports the same identity as drive A (Test Disk, 100.0 GiB) (slot-1): A. History and findings of that identity stay with sda"
    );
    assert!(has(&host, "A", Reason::PendingSectors));
    assert!(!has(&host, "path:usb-1", Reason::PendingSectors));
    // The stick does not become the disk when that is lost.
    unplug(&mut host, "sda");
    host.scan(3 * MINUTE);
    host.judge(3 * MINUTE);
    assert_eq!((present(&host), missing(&host)), (vec!["sdz path:usb-1".into()], vec!["A".into()]));
    assert!(has(&host, "A", Reason::DriveMissing) && has(&host, "A", Reason::PendingSectors));
    assert!(!has(&host, "path:usb-1", Reason::DuplicateIdentity), "one is present");
    // Nor from another port.
    at_place(&mut host, "sdz", "usb-2");
    host.scan(4 * MINUTE);
    assert_eq!(present(&host), ["sdz path:usb-2"]);
    // The disk does when it returns, in another slot too.
    host.plug("sdb", "8:16", "A");
    at_place(&mut host, "sdb", "slot-7");
    host.scan(5 * MINUTE);
    assert_eq!(present(&host), ["sdb A", "sdz path:usb-2"]);
}

#[test]
fn after_a_restart_the_disk_is_the_one_at_its_place_whichever_is_found_first() {
    for (is_store_late, is_found_late) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let mut before = host();
        answer(&mut before, "A", 24, 1);
        before.judge(1);
        let disk = before.inventory.clone();
        plug_stick(&mut before, "sdz", "65:144", "A", "usb-1");
        if is_found_late {
            unplug(&mut before, "sda");
        }
        let mut after = restart(&before, MINUTE, is_store_late);
        if is_found_late {
            assert_eq!(present(&after), ["sdz A"], "nothing else is known yet");
            answer(&mut after, "A", 0, MINUTE + 1);
            after.judge(MINUTE + 1);
            assert!(has(&after, "A", Reason::PendingSectors), "the stick clears nothing");
            after.inventory.drives.extend(disk.drives);
            after.inventory.devices.extend(disk.devices);
            after.scan(2 * MINUTE);
        }
        let case = format!("store late: {is_store_late}, disk late: {is_found_late}");
        assert_eq!(present(&after), ["sda A", "sdz path:usb-1"], "{case}");
        assert_eq!(missing(&after), [] as [&str; 0], "{case}");
        let known = &after.facts.drives[&DriveId::known("A")];
        assert_eq!(known.first_seen, at(0), "{case}");
        after.judge(2 * MINUTE);
        assert!(has(&after, "A", Reason::PendingSectors), "{case}");
        let smart = after.facts.smart.get(&DriveId::known("A")).unwrap();
        let before = before.facts.smart.get(&DriveId::known("A")).unwrap();
        assert_eq!(smart.history, before.history, "{case}: nothing of the stick's");
    }
}

#[test]
fn a_second_restart_before_the_disk_is_found_changes_nothing() {
    for is_store_late in [false, true] {
        let mut before = host();
        answer(&mut before, "A", 24, 1);
        before.judge(1);
        let disk = before.inventory.clone();
        plug_stick(&mut before, "sdz", "65:144", "A", "usb-1");
        unplug(&mut before, "sda");
        let first = restart(&before, MINUTE, is_store_late);
        let mut after = restart(&first, 2 * MINUTE, is_store_late);
        after.inventory.drives.extend(disk.drives);
        after.inventory.devices.extend(disk.devices);
        after.scan(3 * MINUTE);
        assert_eq!(present(&after), ["sda A", "sdz path:usb-1"], "{is_store_late}");
    }
}

#[test]
fn a_disk_that_moves_to_another_slot_keeps_its_history_without_an_alarm() {
    for is_off in [false, true] {
        let mut host = host();
        answer(&mut host, "A", 24, 1);
        host.judge(1);
        unplug(&mut host, "sda");
        if !is_off {
            host.scan(2);
            host.judge(2);
        }
        host.plug("sdc", "8:32", "A");
        at_place(&mut host, "sdc", "slot-2");
        if is_off {
            host = restart(&host, MINUTE, false);
        } else {
            host.scan(MINUTE);
        }
        host.judge(MINUTE);
        assert_eq!((present(&host), missing(&host)), (vec!["sdc A".into()], vec![]));
        assert!(!has(&host, "A", Reason::DriveMissing));
        // A new fault is found at once, a repair when it is certain that it is the same drive.
        answer(&mut host, "A", 400, MINUTE + 1);
        let raised = host.raised_for(Reason::PendingSectors, MINUTE + 1).unwrap();
        assert!(raised.message.contains("400"), "{}", raised.message);
        answer(&mut host, "A", 0, MINUTE + 2);
        host.judge(MINUTE + 2);
        assert!(has(&host, "A", Reason::PendingSectors));
        host.judge(12 * MINUTE);
        assert!(!has(&host, "A", Reason::PendingSectors));
        // Its former slot is no longer its place.
        plug_stick(&mut host, "sdz", "65:144", "A", "slot-1");
        host.scan(13 * MINUTE);
        assert_eq!(present(&host), ["sdc A", "sdz path:slot-1"]);
    }
}

#[test]
fn bridges_with_one_serial_number_are_two_drives_with_one_note() {
    let mut host = TestHost::default();
    plug_stick(&mut host, "sda", "8:0", "DOCK", "usb-1");
    plug_stick(&mut host, "sdb", "8:16", "DOCK", "usb-2");
    host.read_all(0);
    let both = ["sda path:usb-1", "sdb path:usb-2"];
    assert_eq!(present(&host), both);
    let raised = host.raised(1);
    assert_eq!(raised, ["path:usb-2 DuplicateIdentity Info Information"]);
    // The one that stays is still itself, after a restart too.
    unplug(&mut host, "sda");
    host.scan(2);
    assert_eq!(present(&host), both[1..]);
    let after = restart(&host, 3, true);
    assert_eq!(
        (present(&after), missing(&after)),
        (vec![both[1].into()], vec!["path:usb-1".into()])
    );
}

#[test]
fn part_of_an_identity_takes_nothing_either() {
    let mut host = TestHost::default().disk("sda", "8:0", "naa.5");
    drive_mut(&mut host, "sda").identities.push(DriveId::new("M_S"));
    at_place(&mut host, "sda", "slot-1");
    host.read_all(0);
    // The WWN alone, the serial number alone.
    plug_stick(&mut host, "sdx", "65:112", "naa.5", "usb-1");
    drive_mut(&mut host, "sdx").identities.push(DriveId::new("M_OTHER"));
    plug_stick(&mut host, "sdy", "65:128", "M_S", "usb-2");
    host.scan(1);
    assert_eq!(present(&host), ["sda naa.5", "sdx M_OTHER", "sdy path:usb-2"]);
    let notes = host.raised(2);
    assert_eq!(
        notes,
        [
            "M_OTHER DuplicateIdentity Info Information",
            "path:usb-2 DuplicateIdentity Info Information"
        ]
    );
}

#[test]
fn disks_of_one_target_and_paths_of_one_disk_have_no_note() {
    let mut host = TestHost::default();
    for (name, dev, id, hctl) in
        [("sda", "8:0", "naa.1", "0:0:1:0"), ("sdb", "8:16", "naa.2", "0:0:1:1")]
    {
        host.plug(name, dev, id);
        let unit = drive_mut(&mut host, name);
        unit.location.hctl = Some(hctl.into());
        unit.identities.push(DriveId::new("M_S"));
    }
    let mut second = drive_mut(&mut host, "sda").devices[0].clone();
    (second.name, second.dev) = ("sdc".into(), "8:32".parse().unwrap());
    drive_mut(&mut host, "sda").devices.push(second);
    host.read_all(0);
    assert_eq!(present(&host), ["sda naa.1", "sdb naa.2"]);
    assert_eq!(host.raised(1), [] as [&str; 0]);
    // A path fails: the drive is the same, at once and without a move.
    let unit = drive_mut(&mut host, "sda");
    unit.devices.remove(0);
    (unit.name, unit.place) = ("sdc".into(), DriveId::new("path:other"));
    host.scan(2);
    assert_eq!(present(&host), ["sdb naa.2", "sdc naa.1"]);
    assert!(!host.facts.drives[&DriveId::known("naa.1")].has_just_moved(at(2)));
}

#[test]
fn a_stick_hides_no_member_of_a_raid_controller() {
    let mut host = TestHost::default().disk("sda", "8:0", "LOGICAL");
    host.read_all(0);
    let mut facts = drive("megaraid,3@host0", "0:0", "M");
    facts.devices.clear();
    facts.place = DriveId::new("path:raid-3");
    (facts.location.slot, facts.location.pci) =
        (Some("megaraid,3".into()), Some("0000:03:00.0".into()));
    let list = |facts: &DriveFacts| SourceUpdate::RaidMembers {
        controller: "megaraid host0".into(),
        drives: Observation::ok(
            at(1),
            vec![RaidMemberDrive {
                facts: facts.clone(),
                device: "/dev/bus/0".into(),
                device_type: "megaraid,3".into(),
            }],
        ),
    };
    host.apply(list(&facts), 1);
    plug_stick(&mut host, "sdz", "65:144", "M", "usb-1");
    host.scan(2);
    host.apply(list(&facts), 3);
    let all = ["megaraid,3@host0 M", "sda LOGICAL", "sdz path:usb-1"];
    assert_eq!(present(&host), all);
    // In the other order too: the member keeps its own smartctl device.
    let mut host = restart(&host, MINUTE, false);
    host.apply(list(&facts), MINUTE + 1);
    assert_eq!(present(&host), all);
    // A disk that the controller passes through is the kernel's own device of it.
    let passed = drive_mut(&mut host, "sdz");
    (passed.transport, passed.kind, passed.place) =
        (Transport::Sata, DriveKind::Ssd, DriveId::new("path:phy3"));
    host.scan(MINUTE + 2);
    assert_eq!(present(&host), ["sda LOGICAL", "sdz M"]);
}

#[test]
fn no_order_of_appearance_gives_a_known_identity_to_a_newcomer() {
    // Any scan of any subset of the real disk and three impostors, in any order.
    for first in 0..4u8 {
        for mask in 0..16u8 {
            let mut host = host();
            for number in 0..3 {
                let at = (first + number) % 3;
                if mask & (1 << at) != 0 {
                    plug_stick(
                        &mut host,
                        &format!("sdx{at}"),
                        &format!("65:{at}"),
                        "A",
                        &format!("usb-{at}"),
                    );
                }
            }
            if mask & 8 != 0 {
                host.inventory.drives.reverse();
            }
            host.scan(1);
            let ids = present(&host);
            assert_eq!(ids.len(), 1 + (mask & 7).count_ones() as usize);
            assert!(ids.contains(&"sda A".into()), "{ids:?}");
            assert!(host.judge(2).iter().all(|it| !matches!(&it.verdict, Verdict::Raised(raised) if raised.severity > Severity::Info)));
        }
    }
}

/// Two docks that answer one serial number, with disks of these sizes, and what is on them.
fn docks(disks: [(u64, &str); 2]) -> TestHost {
    let mut host = TestHost::default();
    plug_stick(&mut host, "sda", "8:0", "DOCK", "usb-1");
    host.inventory.drives[0].size_bytes = disks[0].0 * GIB;
    host = host.uuid("sda", disks[0].1);
    host.read_all(0);
    plug_stick(&mut host, "sdb", "8:16", "DOCK", "usb-2");
    drive_mut(&mut host, "sdb").size_bytes = disks[1].0 * GIB;
    host = host.uuid("sdb", disks[1].1);
    host.scan(1);
    assert_eq!(present(&host), ["sda DOCK", "sdb path:usb-2"]);
    answer(&mut host, "DOCK", 24, 2);
    host.judge(2);
    assert!(has(&host, "DOCK", Reason::PendingSectors));
    host
}

fn swap_ports(host: &mut TestHost) {
    at_place(host, "sda", "usb-2");
    at_place(host, "sdb", "usb-1");
}

#[test]
fn bridges_with_one_serial_number_that_swap_ports_do_not_swap_their_histories() {
    // By size, by content, by both; seen by one scan, after a restart, with a late store.
    for disks in [[(100, ""), (200, "")], [(100, "U1"), (100, "U2")], [(100, "U1"), (200, "U2")]] {
        for restarted in [None, Some(false), Some(true)] {
            let mut host = docks(disks);
            let back = host.inventory.clone();
            swap_ports(&mut host);
            match restarted {
                None => {
                    host.scan(3 * MINUTE);
                }
                Some(is_store_late) => host = restart(&host, 3 * MINUTE, is_store_late),
            }
            let case = format!("{disks:?} {restarted:?}");
            assert_eq!(present(&host), ["sda DOCK", "sdb path:usb-1"], "{case}");
            answer(&mut host, "path:usb-1", 0, 3 * MINUTE + 1);
            host.judge(20 * MINUTE);
            assert!(has(&host, "DOCK", Reason::PendingSectors), "{case}");
            assert!(!has(&host, "path:usb-1", Reason::PendingSectors), "{case}");
            host.inventory = back;
            host.scan(30 * MINUTE);
            assert_eq!(present(&host), ["sda DOCK", "sdb path:usb-2"], "{case}: back");
        }
    }
}

#[test]
fn another_disk_behind_a_bridge_has_a_history_of_its_own() {
    // One dock, one disk after the other.
    let mut host = TestHost::default();
    plug_stick(&mut host, "sda", "8:0", "DOCK", "usb-1");
    host.read_all(0);
    answer(&mut host, "DOCK", 24, 2);
    host.judge(2);
    let first = host.inventory.clone();
    for (size, id) in [(200, "path:usb-1"), (300, "path:usb-1/medium-2"), (200, "path:usb-1")] {
        unplug(&mut host, "sda");
        host.scan(3 * MINUTE);
        host.inventory = first.clone();
        host.inventory.drives[0].size_bytes = size * GIB;
        host.scan(4 * MINUTE);
        assert_eq!(present(&host), [format!("sda {id}")]);
        assert!(!drive_facts(&host, id).id_stable);
        answer(&mut host, id, 0, 5 * MINUTE);
        host.judge(20 * MINUTE);
        assert!(has(&host, "DOCK", Reason::PendingSectors));
    }
    host.inventory = first;
    host.scan(30 * MINUTE);
    assert_eq!(present(&host), ["sda DOCK"]);
}

#[test]
fn the_next_disk_in_a_dock_that_stood_empty_has_a_history_of_its_own() {
    let mut host = TestHost::default();
    plug_stick(&mut host, "sda", "8:0", "DOCK", "usb-1");
    host.read_all(0);
    answer(&mut host, "DOCK", 24, 2);
    host.judge(2);
    let size = drive_mut(&mut host, "sda").size_bytes;
    for (size, second, id) in [(0, 3, "DOCK"), (2 * size, 4, "path:usb-1"), (size, 5, "DOCK")] {
        drive_mut(&mut host, "sda").size_bytes = size;
        host.scan(second);
        assert_eq!(present(&host), [format!("sda {id}")], "{size}");
    }
}

#[test]
fn a_number_of_a_place_is_no_identity_of_a_disk_that_moved() {
    let mut host = TestHost::default();
    plug_stick(&mut host, "sda", "8:0", "DOCK", "usb-1");
    host.read_all(0);
    let size = drive_mut(&mut host, "sda").size_bytes;
    for (disk, second, id) in [(2, 1, "path:usb-1"), (4, 2, "path:usb-1/medium-2")] {
        drive_mut(&mut host, "sda").size_bytes = disk * size;
        host.scan(second);
        assert_eq!(present(&host), [format!("sda {id}")]);
    }
    // The third disk, at another place, is known by that, and the next one here is not it.
    at_place(&mut host, "sda", "usb-2");
    host.scan(5);
    let moved = present(&host);
    assert!(!moved[0].contains("medium"), "{moved:?}");
    at_place(&mut host, "sda", "usb-1");
    drive_mut(&mut host, "sda").size_bytes = 8 * size;
    host.scan(6);
    assert_eq!(present(&host), ["sda path:usb-1/medium-3"]);
}

fn drive_facts<'a>(host: &'a TestHost, id: &str) -> &'a DriveFacts {
    &host.facts.drives[&DriveId::known(id)].facts
}

#[test]
fn a_disk_that_is_resized_or_formatted_is_itself() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "U1");
    plug_stick(&mut host, "sdb", "8:16", "DOCK", "usb-1");
    host = host.uuid("sdb", "U2");
    host.read_all(0);
    drive_mut(&mut host, "sda").size_bytes = 7 * GIB;
    let mut host = host.uuid("sda", "U3").uuid("sdb", "U4");
    host.scan(1);
    assert_eq!(present(&host), ["sda A", "sdb DOCK"]);
    // A reader's card is taken out, and another one put in.
    drive_mut(&mut host, "sdb").removable = true;
    for (size, second) in [(0, 2), (9, 3)] {
        drive_mut(&mut host, "sdb").size_bytes = size * GIB;
        host.scan(second);
        assert_eq!(present(&host), ["sda A", "sdb DOCK"]);
    }
}

#[test]
fn drives_of_one_identity_that_moved_keep_their_histories_when_the_store_is_late() {
    let mut host = docks([(100, "U1"), (200, "U2")]);
    at_place(&mut host, "sda", "usb-3");
    at_place(&mut host, "sdb", "usb-4");
    for is_store_late in [false, true] {
        let mut after = restart(&host, MINUTE, is_store_late);
        assert_eq!(present(&after), ["sda DOCK", "sdb path:usb-4"], "{is_store_late}");
        after.judge(MINUTE + 1);
        assert!(has(&after, "DOCK", Reason::PendingSectors));
        // What is new stays so in the next scan.
        after.scan(MINUTE + 2);
        assert_eq!(present(&after), ["sda DOCK", "sdb path:usb-4"], "{is_store_late}");
    }
}

#[test]
fn a_second_identity_is_enough_when_a_better_one_is_new() {
    let mut host = TestHost::default().disk("sda", "8:0", "M_S");
    at_place(&mut host, "sda", "slot-1");
    host.read_all(0);
    unplug(&mut host, "sda");
    host.scan(1);
    host.plug("sdb", "8:16", "M_S");
    at_place(&mut host, "sdb", "slot-2");
    drive_mut(&mut host, "sdb").identities = vec![DriveId::new("naa.5"), DriveId::new("M_S")];
    let mut other = host.clone();
    host.scan(2);
    assert_eq!((present(&host), missing(&host)), (vec!["sdb M_S".into()], vec![]));
    // A drive with another WWN is another one, whatever else is the same.
    unplug(&mut host, "sdb");
    host.scan(3);
    host.plug("sdc", "8:32", "M_S");
    at_place(&mut host, "sdc", "slot-3");
    drive_mut(&mut host, "sdc").identities = vec![DriveId::new("naa.6"), DriveId::new("M_S")];
    host.scan(4);
    assert_eq!(present(&host), ["sdc naa.6"]);
    // Nor is it enough while another one has it.
    other.plug("sdc", "8:32", "M_S");
    at_place(&mut other, "sdc", "slot-1");
    other.scan(2);
    assert_eq!(present(&other), ["sdb naa.5", "sdc M_S"]);
}

#[test]
fn a_disk_that_is_put_back_keeps_what_was_read_meanwhile() {
    let mut host = host();
    answer(&mut host, "A", 24, 1);
    host.judge(1);
    let mut there = unplug_and_plug(&host, "slot-2", MINUTE);
    answer(&mut there, "A", 400, MINUTE + 1);
    let mut back = unplug_and_plug(&there, "slot-1", 2 * MINUTE);
    assert_eq!(present(&back), ["sdc A"]);
    let raised = back.raised_for(Reason::PendingSectors, 2 * MINUTE).unwrap();
    assert!(raised.message.contains("400"), "{}", raised.message);
    // It may have been another one meanwhile: nothing is cleared yet.
    answer(&mut back, "A", 0, 3 * MINUTE);
    back.judge(3 * MINUTE);
    assert!(has(&back, "A", Reason::PendingSectors));
    // And one that appears where it was is not it.
    let mut twice = back.clone();
    plug_stick(&mut twice, "sdz", "65:144", "A", "slot-2");
    twice.scan(3 * MINUTE);
    assert_eq!(present(&twice), ["sdc A", "sdz path:slot-2"]);
    back.judge(13 * MINUTE);
    assert!(!has(&back, "A", Reason::PendingSectors));
}

/// The disk is taken out and found in this slot, or by one scan.
fn unplug_and_plug(host: &TestHost, slot: &str, seconds: i64) -> TestHost {
    let mut host = host.clone();
    host.inventory.drives.clear();
    host.inventory.devices.clear();
    host.scan(seconds - 1);
    host.plug("sdc", "8:32", "A");
    at_place(&mut host, "sdc", slot);
    host.scan(seconds);
    host
}

fn with_member(host: &mut TestHost, name: &str, fs_type: &str, uuids: (&str, &str)) {
    let device = host.inventory.devices.get_mut(name).unwrap();
    (device.fs_type, device.fs_usage) = (Some(fs_type.into()), Some("raid".into()));
    (device.fs_uuid, device.fs_uuid_sub) = (Some(uuids.0.into()), Some(uuids.1.into()));
}

/// The copy is plugged in first after a restart, or last.
#[test]
fn a_copied_physical_volume_is_noted_and_takes_and_clears_nothing() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").with(dm(
        "dm-0",
        "253:0",
        "vg-data",
        "LVM-x",
        &["sda"],
    ));
    with_member(&mut host, "sda", "LVM2_member", ("PV1", ""));
    let mut host = host.uuid("dm-0", "F").mounted("253:0", "/", "/data", "ext4", "/dev/dm-0");
    host.read_all(0);
    answer(&mut host, "A", 24, 1);
    host.judge(1);
    let before = host.raised(1);
    host.plug("sdb", "8:16", "B");
    with_member(&mut host, "sdb", "LVM2_member", ("PV1", ""));
    host.scan(2);
    answer(&mut host, "B", 0, 3);
    let noted = host.raised(3);
    let mut expected = before.clone();
    expected.push("B DuplicateIdentity Info Information".into());
    let sorted = |mut findings: Vec<String>| {
        findings.sort();
        findings
    };
    assert_eq!(sorted(noted.clone()), sorted(expected));
    let note = host.raised_for(Reason::DuplicateIdentity, 3).unwrap();
    assert!(note.message.contains("has the same superblock as drive A"), "{}", note.message);
    assert_eq!(host.facts.volumes[&volume("fs:F")].facts.drive_ids, [DriveId::new("A")]);
    for is_store_late in [false, true] {
        let mut after = restart(&host, MINUTE, is_store_late);
        assert_eq!(sorted(after.raised(MINUTE)), sorted(noted.clone()), "{is_store_late}");
    }
    unplug(&mut host, "sdb");
    host.scan(4);
    assert!(host.raised_for(Reason::DuplicateIdentity, 5).is_none());
    // Another PV is none.
    host.plug("sdb", "8:16", "B");
    with_member(&mut host, "sdb", "LVM2_member", ("PV2", ""));
    host.scan(6);
    assert!(host.raised_for(Reason::DuplicateIdentity, 7).is_none());
}

#[test]
fn a_copied_member_of_an_array_is_noted_and_is_no_member_of_it() {
    let md = crate::block::Layer::Md { level: Some("raid1".into()) };
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .with(device("md0", "9:0", md, &["sda", "sdb"]))
        .uuid("md0", "F")
        .mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    with_member(&mut host, "sda", "linux_raid_member", ("ARRAY", "M1"));
    with_member(&mut host, "sdb", "linux_raid_member", ("ARRAY", "M2"));
    host.read_all(0);
    let state = |degraded, members: &[&str]| crate::assess::tests::md_state(degraded, members);
    host.layer("md0", state(0, &["sda", "sdb"]), 1);
    assert_eq!(host.raised(1), [] as [&str; 0], "members of one array are no copies");
    host.plug("sdc", "8:32", "C");
    with_member(&mut host, "sdc", "linux_raid_member", ("ARRAY", "M1"));
    host.scan(2);
    assert_eq!(host.raised(2), ["C DuplicateIdentity Info Information"]);
    // Degraded by something else: the copy of a member that it has is not the one that it lacks.
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(3);
    host.layer("md0", state(1, &["sda"]), 3);
    let findings = host.raised(4);
    assert!(findings.iter().any(|it| it.starts_with("fs:F RedundancyLost")), "{findings:?}");
    let about_copy: Vec<&String> = findings.iter().filter(|it| it.starts_with("C ")).collect();
    assert_eq!(about_copy, ["C DuplicateIdentity Info Information"]);
}
