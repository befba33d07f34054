//! BAD from the kernel's log needs a second kind of witness, where there is one that answers.

use std::collections::BTreeMap;

use super::counters::{answer, count};
use super::plain;
use crate::counters::{CounterDevice, CounterReading, LIBATA_ERRORS};
use crate::drive::Transport;
use crate::fixture::*;
use crate::probe::{MountProbe, ProbeError};
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor, Event};

pub(super) const SENSE: &str = "sd 0:0:0:0: [sda] tag#1 Sense Key : Medium Error [current] ";
pub(super) const BLOCK: &str =
    "critical medium error, dev sda, sector 5000 op 0x0:(READ) flags 0x0 phys_seg 1";
const ERROR: &str = "I/O error, dev sda, sector 5000 op 0x0:(READ) flags 0x0 phys_seg 1";
const LIBATA: &str = "ata1.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x0";

/// A record in these words about these sectors.
pub(super) fn log(host: &mut TestHost, class: Class, text: &str, sectors: &[u64], second: i64) {
    let mut logged =
        Event { blame: Blame::Yes, seq: second as u64, ..event(class, "sda", at(second), sectors) };
    logged.first.text = text.to_owned();
    logged.last.text = text.to_owned();
    let cursor =
        Cursor { boot_id: "b".into(), counted_to: Some(second as u64), reread_from: 0, lost: 0 };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events: vec![logged],
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        second,
    );
}

const DEVICE: &str = "/sys/block/sda/device";

pub(super) fn scsi(host: &mut TestHost, errors: u64, second: i64) {
    count(host, "scsi", DEVICE, &[("ioerr_cnt", errors), ("iotmo_cnt", 0)], second);
}

/// Its severity and message, without what it counts.
pub(super) fn found(host: &mut TestHost, reason: Reason, second: i64) -> (String, String) {
    let raised = host.raised_for(reason, second).expect("raised");
    let (what, _) = raised.message.split_once(": 1 incident").unwrap_or_else(|| {
        let (what, _) = raised.message.rsplit_once(" incidents in").expect("a count");
        (what, "")
    });
    (format!("{:?}", raised.severity), what.to_owned())
}

/// A record of three sectors would make a drive BAD.
pub(super) const MANY: [u64; 3] = [5000, 6000, 7000];

#[test]
fn a_medium_error_alarms_at_once_and_is_bad_when_its_counter_has_moved() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    assert!(host.facts.take_counters_request(), "asked at once");
    let (severity, what) = found(&mut host, Reason::MediaErrors, 100);
    assert_eq!(severity, "Suspect");
    assert!(what.contains("so far only the kernel log says so"), "{what}");
    assert!(found(&mut host, Reason::IoErrors, 100).1.contains("so far only"));
    scsi(&mut host, 5, 102);
    let (severity, what) = found(&mut host, Reason::MediaErrors, 102);
    assert_eq!(severity, "Bad");
    assert!(!what.contains("log"), "{what}");
    assert_eq!(host.raised(102)[1], "fs:u IoErrors Bad DataLoss");
    // What is confirmed stays so, whatever the counter does later.
    log(&mut host, Class::Medium, SENSE, &[8000], 5000);
    scsi(&mut host, 5, 5002);
    assert_eq!(found(&mut host, Reason::MediaErrors, 5003).0, "Bad");
}

#[test]
fn a_record_that_moves_no_counter_is_a_suspicion_of_every_finding_from_it() {
    for (class, text, reason) in [
        (Class::Medium, SENSE, Reason::MediaErrors),
        (Class::Medium, BLOCK, Reason::MediaErrors),
        (Class::Io, ERROR, Reason::IoErrors),
        (Class::Io, "print_req_error: I/O error, dev sda, sector 5000", Reason::IoErrors),
        (
            Class::Timeout,
            "sd 0:0:0:0: [sda] tag#1 timing out command, waited 180s",
            Reason::IoTimeouts,
        ),
    ] {
        let mut host = plain();
        scsi(&mut host, 4, 5);
        for (second, sector) in
            [(100, 5000), (1000, 5000), (2000, 5000), (3000, 5000), (4000, 5000)]
        {
            log(&mut host, class, text, &[sector], second);
            assert_eq!(found(&mut host, reason, second).0, "Suspect", "{text}");
            scsi(&mut host, 4, second + 2);
            let (severity, what) = found(&mut host, reason, second + 60);
            assert_eq!(severity, "Suspect", "{text}");
            assert!(what.contains("(only the kernel log says so"), "{what}");
        }
        let bad = host.raised(4100);
        assert!(bad.iter().all(|one| one.contains("Suspect")), "{bad:?}");
        // A real one, among the others.
        log(&mut host, class, text, &[5000], 5000);
        scsi(&mut host, 5, 5002);
        assert_eq!(found(&mut host, reason, 5003).0, "Bad", "{text}");
    }
}

#[test]
fn a_flood_of_records_does_not_outrun_the_counter() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    for second in 100..200 {
        log(&mut host, Class::Medium, SENSE, &[second as u64 * 8], second);
        if second % 5 == 1 {
            scsi(&mut host, 4, second);
        }
        assert_eq!(found(&mut host, Reason::MediaErrors, second).0, "Suspect", "{second}");
    }
}

#[test]
fn a_silent_witness_makes_no_drive_milder() {
    let log_alone = |host: &mut TestHost, text: &str, second: i64| {
        log(host, Class::Medium, text, &MANY, second);
        let (severity, what) = found(host, Reason::MediaErrors, second);
        assert_eq!(severity, "Bad", "{text}");
        assert!(what.ends_with("(log alone)"), "{what}");
    };
    // It has no counter.
    let mut host = plain();
    log_alone(&mut host, BLOCK, 100);
    scsi(&mut host, 0, 102);
    assert_eq!(found(&mut host, Reason::MediaErrors, 200).0, "Bad", "its first reading");
    scsi(&mut host, 0, 300);
    log(&mut host, Class::Medium, BLOCK, &[9000], 400);
    scsi(&mut host, 0, 402);
    assert_eq!(
        found(&mut host, Reason::MediaErrors, 403).0,
        "Bad",
        "another record does not help it"
    );
    // Its counter is not read any more.
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    assert_eq!(found(&mut host, Reason::MediaErrors, 109).0, "Suspect");
    let (severity, what) = found(&mut host, Reason::MediaErrors, 110);
    assert_eq!(severity, "Bad");
    assert!(what.ends_with("(log alone)"), "{what}");
    // The record is not of a command of the SCSI layer: an adapter's firmware has met the error.
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log_alone(
        &mut host,
        "megaraid_sas 0000:03:00.0: 1 (1s/0x0002/FATAL) - Unrecoverable medium error",
        100,
    );
    scsi(&mut host, 4, 102);
    assert_eq!(found(&mut host, Reason::MediaErrors, 103).0, "Bad");
    // Before 6.1 nothing counts what libata's error handler ends.
    let mut host = plain();
    host.inventory.drives[0].location.ata_port = Some(1);
    host.read_all(1);
    count(&mut host, "scsi", DEVICE, &[("ioerr_cnt", 4)], 5);
    log_alone(&mut host, LIBATA, 100);
    count(&mut host, "scsi", DEVICE, &[("ioerr_cnt", 4)], 102);
    assert_eq!(found(&mut host, Reason::MediaErrors, 103).0, "Bad");
}

#[test]
fn a_disk_of_libata_is_confirmed_by_its_error_handler_and_not_by_refused_commands() {
    let libata = |host: &mut TestHost, refused, handled, second| {
        let values = [("ioerr_cnt", refused), (LIBATA_ERRORS, handled)];
        count(host, "scsi", DEVICE, &values, second);
    };
    let mut host = plain();
    libata(&mut host, 4, 7, 5);
    log(&mut host, Class::Medium, LIBATA, &MANY, 100);
    let mut handled = host.clone();
    libata(&mut handled, 4, 8, 102);
    assert_eq!(found(&mut handled, Reason::MediaErrors, 103).0, "Bad");
    // smartctl has asked for a page that the disk does not have.
    libata(&mut host, 5, 7, 102);
    assert_eq!(found(&mut host, Reason::MediaErrors, 200).0, "Suspect");
    // No time-out is reported for what the handler counts.
    assert!(handled.raised_for(Reason::IoTimeouts, 104).is_none());
}

/// libata refuses all commands of a disk that it has given up, and its error handler sees none of them.
#[test]
fn a_disk_that_libata_has_given_up_is_not_refuted_by_its_error_handler() {
    let mut host = plain();
    for (refused, second) in [(4, 5), (9, 102), (15, 107)] {
        let values = [("ioerr_cnt", refused), (LIBATA_ERRORS, 7)];
        count(&mut host, "scsi", DEVICE, &values, second);
        if second == 5 {
            log(&mut host, Class::Io, ERROR, &MANY, 100);
        }
    }
    let (severity, what) = found(&mut host, Reason::IoErrors, 112);
    assert!(!what.contains("have not moved"), "{what}");
    assert_eq!(severity, alone(ERROR), "{what}");
}

/// What the same record means where nothing can refute it.
fn alone(text: &str) -> String {
    let mut host = plain();
    log(&mut host, Class::Io, text, &MANY, 100);
    found(&mut host, Reason::IoErrors, 112).0
}

/// A command that times out is counted then, and logged after its aborts and resets.
#[test]
fn an_error_after_a_long_recovery_is_confirmed_by_its_time_out() {
    let mut host = plain();
    let timed_out = |host: &mut TestHost, count_, second| {
        count(host, "scsi", DEVICE, &[("ioerr_cnt", 4), ("iotmo_cnt", count_)], second);
    };
    timed_out(&mut host, 0, 5);
    timed_out(&mut host, 1, 101);
    log(&mut host, Class::Io, ERROR, &MANY, 160);
    timed_out(&mut host, 1, 165);
    let (severity, what) = found(&mut host, Reason::IoErrors, 172);
    assert_eq!(severity, alone(ERROR), "{what}");
    assert!(!what.contains("log"), "{what}");
}

#[test]
fn an_nvme_drive_is_asked_for_its_own_count() {
    let text = "nvme0n1: I/O Cmd(0x2) @ LBA 5000, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE";
    let nvme = |media_errors| {
        let mut host = plain();
        host.inventory.drives[0].transport = Transport::Nvme;
        host.read_all(1);
        answer(&mut host, media_errors, 5);
        log(&mut host, Class::Medium, text, &MANY, 100);
        host
    };
    let judged = |host: &mut TestHost, second| {
        let subject = diskvitals_finding::Subject::Drive(DriveId::new("A"));
        let tally = host.facts.tally(&subject, Class::Medium).expect("counted").clone();
        let context = crate::assess::input::Context {
            facts: &host.facts,
            policy: &host.policy,
            now: at(second),
        };
        crate::assess::counters::proof(context, &subject, Class::Medium, &tally)
    };
    use crate::assess::counters::Proof;
    // One that has never counted an error may not count any.
    let mut host = nvme(0);
    assert_eq!(host.facts.take_smart_request(), []);
    assert_eq!(judged(&mut host, 100), Proof::LogAlone);
    answer(&mut host, 0, 102);
    assert_eq!(judged(&mut host, 103), Proof::LogAlone);
    answer(&mut host, 1, 160);
    assert_eq!(judged(&mut host, 161), Proof::Confirmed);
    // This one does.
    let mut host = nvme(3);
    assert_eq!(host.facts.take_smart_request(), [DriveId::new("A")]);
    assert!(matches!(judged(&mut host, 101), Proof::Doubted(_)));
    assert_eq!(judged(&mut host.clone(), 110), Proof::LogAlone, "no answer");
    let mut moved = host.clone();
    answer(&mut moved, 4, 102);
    assert_eq!(judged(&mut moved, 103), Proof::Confirmed);
    answer(&mut host, 3, 102);
    assert!(matches!(judged(&mut host, 200), Proof::Doubted(_)));
}

#[test]
fn a_failed_read_by_our_own_probe_or_a_state_in_sysfs_is_a_witness() {
    let doubted = || {
        let mut host = plain();
        scsi(&mut host, 4, 5);
        log(&mut host, Class::Medium, SENSE, &MANY, 100);
        scsi(&mut host, 4, 102);
        assert_eq!(found(&mut host, Reason::MediaErrors, 103).0, "Suspect");
        host
    };
    let mut host = doubted();
    let failed = || ProbeError {
        operation: "readdir".into(),
        errno: 5,
        text: "Input/output error (EIO)".into(),
    };
    let probe =
        MountProbe { statfs: Err(failed()), readdir: Err(failed()), btrfs: None, mount_id: None };
    let update = SourceUpdate::Probe {
        path: HostPath::new("/data"),
        result: Observation::ok(at(104), probe),
        duration: std::time::Duration::ZERO,
    };
    host.apply(update, 104);
    assert_eq!(found(&mut host, Reason::MediaErrors, 105).0, "Bad");
    let mut host = doubted();
    host.inventory.drives[0].state = Some("offline".into());
    host.read_all(104);
    assert_eq!(found(&mut host, Reason::MediaErrors, 105).0, "Bad");
}

/// A counter that began anew after the record has nothing to say of it.
#[test]
fn a_disk_that_was_plugged_in_again_is_not_refuted() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    scsi(&mut host, 0, 102);
    let (severity, what) = found(&mut host, Reason::MediaErrors, 103);
    assert_eq!(severity, "Bad");
    assert!(what.ends_with("(log alone)"), "{what}");
}

/// What counts is stored with the counts: a restart or a boot makes no forged record true.
#[test]
fn the_answer_outlives_a_restart() {
    let mut host = plain();
    scsi(&mut host, 4, 5);
    log(&mut host, Class::Medium, SENSE, &MANY, 100);
    scsi(&mut host, 4, 102);
    let subject = diskvitals_finding::Subject::Drive(DriveId::new("A"));
    let stored = serde_json::to_string(host.facts.errors(&subject).expect("counted")).unwrap();
    let mut later = plain();
    later.facts.restore_errors(vec![(subject, serde_json::from_str(&stored).unwrap())], None);
    scsi(&mut later, 0, 200);
    assert_eq!(found(&mut later, Reason::MediaErrors, 201).0, "Suspect");
}

#[test]
fn btrfs_counts_what_its_own_statistics_say_and_nothing_else_refutes() {
    let file = [("read_errs", 2), ("write_errs", 0), ("corruption_errs", 1)];
    let errs =
        "BTRFS error (device sda): bdev /dev/sda errs: wr 0, rd 3, flush 0, corrupt 0, gen 0";
    let tree = "BTRFS error (device sda): bad tree block start, mirror 1 want 30 have 0";
    for (text, moves, expected) in [
        (errs, false, "Suspect"),
        (errs, true, "Bad"),
        // The kernel does not count it.
        (tree, false, "Bad"),
    ] {
        let mut host = plain();
        host.inventory.devices.get_mut("sda").unwrap().fs_type = Some("btrfs".into());
        for mount in &mut host.mounts.mounts {
            mount.fs_type = "btrfs".into();
        }
        host.read_all(1);
        let read = |host: &mut TestHost, more, second| {
            let reading = CounterReading {
                device: CounterDevice::Block("sda".into()),
                source: "btrfs".into(),
                file: "/sys/fs/btrfs/u/devinfo/1/error_stats".into(),
                values: file
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value + more))
                    .collect(),
                details: BTreeMap::new(),
            };
            host.apply(SourceUpdate::Counters(Observation::ok(at(second), vec![reading])), second);
        };
        read(&mut host, 0, 5);
        for second in [100, 1000, 2000] {
            log(&mut host, Class::FsError, text, &[], second);
            read(&mut host, u64::from(moves) * second as u64, second + 2);
        }
        let raised = host.raised_for(Reason::FilesystemErrors, 2010).expect("raised");
        assert_eq!(format!("{:?}", raised.severity), expected, "{text}: {}", raised.message);
        let alone = raised.message.contains("(log alone)");
        assert_eq!(alone, text == tree, "{}", raised.message);
    }
}

/// The superblock says when it counted: an error of last year is no witness of a record of today.
#[test]
fn a_filesystem_that_is_mounted_again_confirms_by_counts_of_the_same_time_only() {
    let text = "EXT4-fs error (device sda): ext4_lookup:1787: inode #2: comm ls: deleted inode referenced: 12";
    for (counted, is_confirmed) in [(10, false), (99, true)] {
        let mut host = plain();
        for second in [100, 1000, 2000] {
            log(&mut host, Class::FsError, text, &[], second);
        }
        let reading = CounterReading {
            device: CounterDevice::Block("sda".into()),
            source: "ext4".into(),
            file: "/sys/fs/ext4/sda".into(),
            values: [("errors_count".to_owned(), 5)].into(),
            details: [("last_error_time".to_owned(), at(counted).as_second().to_string())].into(),
        };
        host.apply(SourceUpdate::Counters(Observation::ok(at(2030), vec![reading])), 2030);
        let raised = host.raised_for(Reason::FilesystemErrors, 2031).expect("raised");
        assert_eq!(!raised.message.contains("(log alone)"), is_confirmed, "{}", raised.message);
    }
}
