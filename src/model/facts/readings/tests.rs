use super::*;
use crate::counters::CounterReading;
use crate::fixture::*;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::source::Source;
use diskvitals_kernel_log::event::{Batch, Cursor};
use diskvitals_smart::SmartResponse;
use diskvitals_smart::report::{Body, Identity, Nvme, SmartReport};

fn host() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host
}

fn is_outstanding(reading: &Reading) -> bool {
    matches!(reading, Reading::Outstanding(_))
}

#[test]
fn a_reading_from_before_the_request_does_not_answer_it() {
    let mut host = host();
    let path = HostPath::from("/data");
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 9);
    assert!(is_outstanding(&host.facts.scan_since(at(10))));
    assert!(is_outstanding(&host.facts.probe_since(&path, at(10))));
    host.scan(10);
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 10);
    assert_eq!(host.facts.scan_since(at(10)), Reading::Made);
    assert_eq!(host.facts.probe_since(&path, at(10)), Reading::Made);
}

#[test]
fn a_failed_reading_is_an_answer_that_says_why() {
    let mut host = host();
    let path = HostPath::from("/data");
    host.apply(SourceUpdate::Inventory(Observation::failed(at(11), "no sysfs")), 11);
    let scan = host.facts.scan_since(at(10));
    assert!(matches!(&scan, Reading::Impossible(why) if why.contains("no sysfs")));
    host.apply(
        SourceUpdate::Probe {
            path: path.clone(),
            result: Observation::failed(at(11), "no worker"),
            duration: std::time::Duration::ZERO,
        },
        11,
    );
    let probe = host.facts.probe_since(&path, at(10));
    assert!(matches!(&probe, Reading::Impossible(why) if why.contains("no worker")));
}

#[test]
fn a_probe_that_hangs_is_an_observation_and_an_unmounted_path_needs_none() {
    let mut host = host();
    host.stuck("/data", 5);
    let hung = host.facts.probe_since(&HostPath::from("/data"), at(10));
    assert_eq!(hung, Reading::Made);
    let gone = host.facts.probe_since(&HostPath::from("/gone"), at(10));
    assert_eq!(gone, Reading::Made);
}

fn read_log(host: &mut TestHost, epoch: &str, lost: u64, seconds: i64) {
    let cursor = Cursor { boot_id: epoch.into(), counted_to: Some(1), reread_from: 0, lost };
    host.apply(
        SourceUpdate::KernelLog(Batch {
            cursor,
            events: Vec::new(),
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        }),
        seconds,
    );
}

fn log_is(host: &mut TestHost, status: SourceStatus, seconds: i64) {
    host.apply(SourceUpdate::Source { source: Source::KernelLog, status }, seconds);
}

fn counters(host: &mut TestHost, read: Result<Vec<CounterReading>, &str>, seconds: i64) {
    let read = match read {
        Ok(read) => Observation::ok(at(seconds), read),
        Err(why) => Observation::failed(at(seconds), why),
    };
    host.apply(SourceUpdate::Counters(read), seconds);
}

fn smart(host: &mut TestHost, seconds: i64) {
    let report = SmartReport {
        smartctl: [7, 3],
        identity: Identity {
            device: "/dev/sda".into(),
            protocol: "NVMe".into(),
            serial: Some("A".into()),
            ..Identity::default()
        },
        body: Body::Nvme(Nvme::default()),
        ..SmartReport::default()
    };
    host.apply(
        SourceUpdate::Smart {
            drive: DriveId::new("A"),
            at: at(seconds),
            response: Box::new(SmartResponse::Report(Box::new(report))),
            duration: std::time::Duration::ZERO,
        },
        seconds,
    );
}

fn log_since(host: &TestHost, seconds: i64) -> Reading {
    let wanted = WantedReading::KernelLog(vec![DriveId::new("A")]);
    host.facts.reading_since(&wanted, at(seconds))
}

/// A host whose log has lost records at second 100.
fn lossy() -> TestHost {
    let mut host = host();
    log_is(&mut host, SourceStatus::Active("/dev/kmsg".into()), 1);
    read_log(&mut host, "boot", 0, 2);
    counters(&mut host, Ok(Vec::new()), 3);
    assert_eq!(log_since(&host, 50), Reading::Made);
    read_log(&mut host, "boot", 500, 100);
    host
}

#[test]
fn lost_records_are_made_up_for_by_counters_and_by_the_drive_that_were_read_since_the_request() {
    let mut host = lossy();
    smart(&mut host, 101);
    counters(&mut host, Ok(Vec::new()), 102);
    // Also before and after the reader has said so.
    for limited in [false, true] {
        if limited {
            log_is(&mut host, SourceStatus::Limited("500 records were overwritten".into()), 103);
        }
        let Reading::Outstanding(what) = log_since(&host, 105) else { panic!("{limited}") };
        assert!(what.starts_with("kernel-log has lost records since 2027-01-15T08:01:25Z, until 2027-01-15T08:01:40Z, and the error counters"), "{what}");
    }
    // A flood that goes on.
    read_log(&mut host, "boot", 900, 106);
    counters(&mut host, Ok(Vec::new()), 107);
    let Reading::Outstanding(what) = log_since(&host, 105) else { panic!("the drive") };
    assert!(what.contains("until 2027-01-15T08:01:46Z, and drive A"), "{what}");
    smart(&mut host, 108);
    assert_eq!(log_since(&host, 105), Reading::Made);
    assert!(is_outstanding(&log_since(&host, 109)));
    // A drive that is gone is in no need of being asked.
    host.pull("sda");
    host.scan(110);
    counters(&mut host, Ok(Vec::new()), 111);
    assert_eq!(log_since(&host, 109), Reading::Made);
    // What limits the reader for a moment longer than the loss matters is still the loss.
    assert!(is_outstanding(&log_since(&host, 1000)));
}

#[test]
fn lost_records_are_not_made_up_for_by_counters_that_cannot_be_read() {
    let mut host = lossy();
    counters(&mut host, Err("no sysfs"), 106);
    let Reading::Impossible(why) = log_since(&host, 105) else { panic!("it is read") };
    assert!(why.contains("since 2027") && why.ends_with("could not be read: no sysfs"), "{why}");
}

#[test]
fn no_counter_makes_up_for_a_log_that_is_not_read_itself() {
    let mut host = lossy();
    let is_impossible = |host: &TestHost| match log_since(host, 105) {
        Reading::Impossible(why) => why.contains("since 2027-01-15T08:01:41Z: why"),
        _ => false,
    };
    counters(&mut host, Ok(Vec::new()), 106);
    log_is(&mut host, SourceStatus::Down("why".into()), 101);
    assert!(is_impossible(&host));
    // journald's copy after a loss.
    log_is(&mut host, SourceStatus::Limited("why".into()), 107);
    read_log(&mut host, "boot/journal+1", 0, 108);
    assert!(is_impossible(&host));
    log_is(&mut host, SourceStatus::Absent("why".into()), 109);
    assert!(matches!(log_since(&host, 105), Reading::Impossible(_)));
}

#[test]
fn each_loss_of_the_boot_is_remembered_for_what_failed_then() {
    let mut host = lossy();
    for (lost, seconds) in [(600, 400), (700, 3000), (800, 9000)] {
        read_log(&mut host, "boot", lost, seconds);
    }
    let losses = host.facts.losses_of_boot();
    let times: Vec<_> = losses.iter().map(|lost| (lost.from, lost.until)).collect();
    assert_eq!(times, [(at(85), at(400)), (at(2985), at(3000)), (at(8985), at(9000))]);
    let may_include = |failed: i64| losses.iter().any(|lost| lost.may_include(at(failed)));
    let failed = [(0, true), (300, true), (519, true), (521, false), (2864, false), (9120, true)];
    assert_eq!(failed.map(|(failed, _)| (failed, may_include(failed))), failed);
    for loss in 0..100 {
        read_log(&mut host, "boot", 1000 + loss, 20_000 + 1000 * loss as i64);
    }
    assert_eq!(host.facts.losses_of_boot().len(), 33);
    read_log(&mut host, "next boot", 0, 200_000);
    assert_eq!(host.facts.losses_of_boot(), []);
}
