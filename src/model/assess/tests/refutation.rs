//! A counter that stands still refutes a record only if it would have counted the error: it was there
//! before the record, was read after it, and is the counter of every path.

use std::collections::BTreeMap;

use super::counters::answer;
use super::plain;
use super::second_witness::{BLOCK, MANY, SENSE, found, log, scsi};
use crate::counters::{CounterDevice, CounterReading, DISK_SEQUENCE};
use crate::drive::{DriveDevice, Transport};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::Class;

fn path(name: &str, dev: &str) -> DriveDevice {
    DriveDevice {
        name: name.into(),
        dev: dev.parse().unwrap(),
        size_bytes: 100 * GIB,
        state: Some("running".into()),
        hctl: None,
    }
}

/// The disk A with the paths sda and sdb.
fn two_paths() -> TestHost {
    let mut host = plain();
    host.inventory.drives[0].devices.push(path("sdb", "8:16"));
    let mut second = host.inventory.devices["sda"].clone();
    (second.name, second.dev) = ("sdb".into(), "8:16".parse().unwrap());
    (second.fs_uuid, second.fs_type) = (None, None);
    host.inventory.devices.insert("sdb".into(), second);
    host.scan(1);
    host
}

fn lose(host: &mut TestHost, name: &str, second: i64) {
    let drive = &mut host.inventory.drives[0];
    drive.devices.retain(|device| device.name != name);
    drive.name = drive.devices[0].name.clone();
    host.inventory.devices.remove(name);
    host.scan(second);
}

/// Its failed commands, and which disk of this boot it is.
fn reading(name: &str, errors: u64, sequence: &str) -> CounterReading {
    CounterReading {
        device: CounterDevice::Block(name.into()),
        source: "scsi".into(),
        file: format!("/sys/block/{name}/device"),
        values: [("ioerr_cnt", errors), ("iotmo_cnt", 0)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        details: BTreeMap::from([(DISK_SEQUENCE.to_owned(), sequence.to_owned())]),
    }
}

fn read(host: &mut TestHost, readings: &[CounterReading], second: i64) {
    let seen = Observation::ok(at(second), readings.to_vec());
    host.apply(SourceUpdate::Counters(seen), second);
}

fn is_bad_alone(host: &mut TestHost, second: i64) {
    let (severity, what) = found(host, Reason::MediaErrors, second);
    assert_eq!(severity, "Bad", "{what}");
    assert!(what.contains("(log alone)"), "{what}");
}

#[test]
fn a_path_that_has_gone_is_not_refuted_by_another_path() {
    let both = |second_path| [reading("sda", 4, "1"), reading("sdb", second_path, "2")];
    let mut host = two_paths();
    read(&mut host, &both(2), 5);
    read(&mut host, &both(2), 65);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    let mut there = host.clone();
    read(&mut there, &both(2), 102);
    let what = found(&mut there, Reason::MediaErrors, 112).1;
    assert!(what.contains("have not moved"), "{what}");
    // A later record is not refuted either once one has gone.
    log(&mut there, Class::Medium, SENSE, &MANY, 200);
    lose(&mut there, "sda", 201);
    read(&mut there, &both(2)[1..], 202);
    is_bad_alone(&mut there, 212);
    // The scan finds it before the counters do, or after them, or it is back by then.
    for (scan, back) in [(101, false), (103, false), (101, true)] {
        let mut host = host.clone();
        let present = host.inventory.clone();
        if scan == 101 {
            lose(&mut host, "sda", scan);
        }
        if back {
            host.inventory = present;
            host.scan(102);
            read(&mut host, &[reading("sda", 4, "3"), reading("sdb", 2, "2")], 102);
        } else {
            read(&mut host, &both(2)[1..], 102);
        }
        if scan == 103 {
            lose(&mut host, "sda", scan);
        }
        is_bad_alone(&mut host, 112);
        read(&mut host, &both(2)[1..], 162);
        is_bad_alone(&mut host, 163);
    }
    // Long gone, it excuses no forged record.
    let mut host = two_paths();
    read(&mut host, &both(2), 5);
    lose(&mut host, "sda", 50);
    read(&mut host, &both(2)[1..], 65);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    read(&mut host, &both(2)[1..], 102);
    assert_eq!(found(&mut host, Reason::MediaErrors, 112).0, "Suspect");
    // The other path's counter confirms.
    read(&mut host, &both(3)[1..], 162);
    log(&mut host, Class::Medium, SENSE, &MANY, 163);
    assert_eq!(found(&mut host, Reason::MediaErrors, 164).0, "Bad");
}

#[test]
fn a_path_whose_counter_was_never_read_is_not_refuted() {
    let mut host = plain();
    read(&mut host, &[reading("sda", 4, "1")], 5);
    read(&mut host, &[reading("sda", 4, "1")], 65);
    host.inventory.drives[0].devices.push(path("sdb", "8:16"));
    host.scan(70);
    log(&mut host, Class::Medium, BLOCK, &MANY, 71);
    let mut gone = host.clone();
    read(&mut host, &[reading("sda", 4, "1")], 73);
    is_bad_alone(&mut host, 82);
    lose(&mut gone, "sdb", 72);
    read(&mut gone, &[reading("sda", 4, "1")], 73);
    is_bad_alone(&mut gone, 82);
}

/// Its count of zero says nothing of the record of the disk that had the name.
#[test]
fn a_counter_that_began_anew_at_the_same_value_refutes_nothing() {
    for (errors, sequence, refuted) in [(0, "1", true), (0, "2", false), (1, "2", false)] {
        let mut host = plain();
        read(&mut host, &[reading("sda", 0, "1")], 5);
        read(&mut host, &[reading("sda", 0, "1")], 65);
        log(&mut host, Class::Medium, SENSE, &MANY, 100);
        read(&mut host, &[reading("sda", errors, sequence)], 102);
        if refuted {
            assert_eq!(found(&mut host, Reason::MediaErrors, 112).0, "Suspect");
        } else {
            is_bad_alone(&mut host, 112);
        }
    }
    // It was missing in one reading: another device has the name, also where nothing numbers disks.
    let mut host = plain();
    let unnumbered = || CounterReading { details: BTreeMap::new(), ..reading("sda", 0, "") };
    read(&mut host, &[unnumbered()], 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    read(&mut host, &[], 101);
    read(&mut host, &[unnumbered()], 106);
    is_bad_alone(&mut host, 112);
}

/// Other counters may take long: what is reported at the end was read at the beginning.
#[test]
fn a_counter_that_was_read_before_the_record_refutes_nothing() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    // Begun at 99, reported at 130.
    let seen = Observation::ok(at(99), vec![reading("sda", 4, "1")]);
    host.apply(SourceUpdate::Counters(seen), 130);
    is_bad_alone(&mut host, 131);
    // Nor is the growth lost that such a reading shows.
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    let seen = Observation::ok(at(99), vec![reading("sda", 5, "1")]);
    host.apply(SourceUpdate::Counters(seen), 101);
    scsi(&mut host, 5, 110);
    let (severity, what) = found(&mut host, Reason::MediaErrors, 111);
    assert_eq!(severity, "Bad");
    assert!(!what.contains("log"), "{what}");
    // Also if the record comes after that reading, and is of a time long after its begin.
    let mut host = plain();
    scsi(&mut host, 4, 5);
    let seen = Observation::ok(at(90), vec![reading("sda", 5, "1")]);
    host.apply(SourceUpdate::Counters(seen), 101);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    scsi(&mut host, 5, 110);
    let (severity, what) = found(&mut host, Reason::MediaErrors, 111);
    assert_eq!(severity, "Bad");
    assert!(!what.contains("log"), "{what}");
}

#[test]
fn a_refuted_record_is_not_confirmed_by_an_error_after_a_restart() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    scsi(&mut host, 4, 102);
    let subject = diskvitals_finding::Subject::Drive(DriveId::new("A"));
    let stored = host.facts.errors(&subject).expect("counted").clone();
    let counters = host.facts.counters.iter();
    let counters: Vec<_> =
        counters.map(|(key, history)| (key.clone(), (**history).clone())).collect();
    let mut later = plain();
    later.facts.counters.restore(counters);
    later.facts.restore_errors(vec![(subject, stored)], None);
    scsi(&mut later, 5, 200);
    assert_eq!(found(&mut later, Reason::MediaErrors, 201).0, "Suspect");
}

#[test]
fn a_controller_or_a_namespace_of_an_nvme_drive_does_not_refute_another_one() {
    let text = "nvme0n1: I/O Cmd(0x2) @ LBA 5000, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE";
    let paths = |names: &[&str]| -> Vec<String> { names.iter().map(|it| (*it).into()).collect() };
    for (controllers, devices, asked) in [
        (paths(&["nvme0"]), 1, true),
        (paths(&["nvme0"]), 2, true),
        (paths(&["nvme0", "nvme1"]), 1, false),
        (paths(&[]), 2, false),
    ] {
        let mut host = plain();
        let drive = &mut host.inventory.drives[0];
        drive.transport = Transport::Nvme;
        drive.location.controllers.clone_from(&controllers);
        if devices == 2 {
            drive.devices.push(path("sdb", "8:16"));
        }
        host.read_all(1);
        answer(&mut host, 3, 5);
        log(&mut host, Class::Medium, text, &MANY, 100);
        let due = host.facts.take_smart_request();
        assert_eq!(due.len(), usize::from(asked), "{controllers:?} {devices}");
        answer(&mut host, 3, 102);
        let (severity, what) = found(&mut host, Reason::MediaErrors, 112);
        assert_eq!(severity, if asked { "Suspect" } else { "Bad" }, "{what}");
    }
}

#[test]
fn a_record_about_a_drive_probes_its_volumes_at_once_and_a_flood_no_more() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    host.facts.take_probe_requests();
    log(&mut host, Class::Medium, SENSE, &[5000], 100);
    assert_eq!(host.facts.take_probe_requests(), [HostPath::new("/data")]);
    let mut probes = 0;
    for second in 100..160 {
        for sector in 0..20 {
            log(&mut host, Class::Medium, SENSE, &[second as u64 * 800 + sector * 8], second);
            probes += host.facts.take_probe_requests().len();
        }
    }
    assert_eq!(probes, 5, "each ten seconds");
    // One that does not answer is not asked more often.
    host.stuck("/data", 170);
    log(&mut host, Class::Medium, SENSE, &[9], 171);
    assert_eq!(host.facts.take_probe_requests(), []);
}

#[test]
fn a_flood_about_a_drive_with_many_volumes_probes_few_of_them() {
    let mut host = TestHost::default().disk("sda", "8:0", "A");
    for number in 1..=100 {
        let (name, dev) = (format!("sda{number}"), format!("8:{number}"));
        let layer = crate::block::Layer::Partition { number, start_bytes: u64::from(number) * GIB };
        let mount_point = format!("/data{number}");
        host = host.with(device(&name, &dev, layer, &["sda"])).uuid(&name, &name).mounted(
            &dev,
            "/",
            &mount_point,
            "ext4",
            &name,
        );
    }
    host.read_all(0);
    host.facts.take_probe_requests();
    let mut probes = 0;
    for second in 100..160 {
        log(&mut host, Class::Medium, SENSE, &[second as u64 * 8], second);
        probes += host.facts.take_probe_requests().len();
    }
    assert!((16..=96).contains(&probes), "{probes}");
}
