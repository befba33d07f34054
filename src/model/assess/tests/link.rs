//! Links that are slower or narrower than before, and lost paths.

use super::plain;
use crate::counters::{CounterDevice, CounterReading};
use crate::drive::Transport;
use crate::fixture::{TestHost, at};
use crate::link::{
    COMPLETED, IN_FLIGHT, LANES, NVME_PATHS, PATHS, PCIE_LINK, PHY_ERRORS, RATE, SAS_LINK,
    SHELF_LANES,
};
use crate::source_update::SourceUpdate;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;

fn limited(host: &mut TestHost, limit: Option<&str>, second: i64) -> Vec<String> {
    let drive = &mut host.inventory.drives[0];
    drive.location.ata_port = Some(3);
    drive.lowered_link_speed = limit.map(str::to_owned);
    host.scan(second);
    host.raised(second + 1)
}

#[test]
fn a_link_that_was_slowed_down_is_suspect_until_its_limit_is_gone() {
    let mut host = plain();
    assert_eq!(limited(&mut host, None, 10), [""; 0]);
    assert_eq!(limited(&mut host, Some("1.5 Gbps"), 20), ["A LinkDowngraded Suspect Degraded"]);
    let raised = host.raised_for(Reason::LinkDowngraded, 22).unwrap();
    assert_eq!(
        raised.message,
        "The kernel has limited the SATA link of drive A (sda) to 1.5 Gbps after errors"
    );
    assert_eq!(raised.evidence[0].source, "/sys/class/ata_link/link3/sata_spd_limit");
    assert_eq!(limited(&mut host, None, 30), [""; 0]);
    assert!(host.active.is_empty());
}

/// A reading of the kernel's counters, with what comes after it.
fn read(host: &mut TestHost, source: &str, file: &str, values: &[(&str, u64)], second: i64) {
    let reading = CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: source.into(),
        file: file.into(),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        details: Default::default(),
    };
    host.apply(SourceUpdate::Counters(Observation::ok(at(second), vec![reading])), second);
}

/// Readings of a PCIe link, a minute apart, with I/O in all of them.
fn pcie(host: &mut TestHost, slot: &str, lanes: u64, rate: u64, minutes: std::ops::Range<i64>) {
    for minute in minutes {
        let values =
            [(LANES, lanes), (RATE, rate), (COMPLETED, minute.unsigned_abs()), (IN_FLIGHT, 1)];
        read(host, PCIE_LINK, &format!("/sys/bus/pci/devices/{slot}"), &values, minute * 60);
    }
}

#[test]
fn a_pcie_link_with_fewer_lanes_than_before_is_suspect_after_ten_readings_with_io() {
    let mut host = plain();
    pcie(&mut host, "0000:01:00.0", 4, 16_000, 1..3);
    pcie(&mut host, "0000:01:00.0", 2, 16_000, 3..12);
    assert_eq!(host.raised(12 * 60), [""; 0], "nine readings");
    pcie(&mut host, "0000:01:00.0", 2, 16_000, 12..13);
    assert_eq!(host.raised(13 * 60), ["A LinkDowngraded Suspect Degraded"]);
    let raised = host.raised_for(Reason::LinkDowngraded, 13 * 60).unwrap();
    assert_eq!(raised.message, "The PCIe link of drive A (sda) has 2 instead of 4 lanes");
    assert_eq!(raised.evidence[0].text, "lanes 2, at best 4; rate 16 GT/s, at best 16 GT/s");
    assert!(raised.advice.unwrap().contains("riser"));
    pcie(&mut host, "0000:01:00.0", 4, 16_000, 14..15);
    assert_eq!(host.raised(15 * 60), [""; 0]);
}

#[test]
fn a_lower_rate_under_load_is_information_and_a_link_that_rests_is_none() {
    let mut host = plain();
    pcie(&mut host, "0000:01:00.0", 4, 16_000, 1..3);
    let rests = |host: &mut TestHost, minute: i64| {
        let values =
            [(LANES, 4), (RATE, 2500), (COMPLETED, 99 + minute.unsigned_abs()), (IN_FLIGHT, 0)];
        read(host, PCIE_LINK, "/sys/bus/pci/devices/0000:01:00.0", &values, minute * 60);
    };
    (3..40).for_each(|minute| rests(&mut host, minute));
    assert_eq!(host.raised(41 * 60), [""; 0]);
    pcie(&mut host, "0000:01:00.0", 4, 8000, 42..53);
    assert_eq!(host.raised(54 * 60), ["A LinkDowngraded Info Information"]);
}

#[test]
fn a_drive_in_another_slot_is_compared_with_nothing() {
    let mut host = plain();
    pcie(&mut host, "0000:01:00.0", 4, 16_000, 1..3);
    pcie(&mut host, "0000:01:00.0", 2, 16_000, 3..14);
    assert_eq!(host.raised(15 * 60).len(), 1);
    pcie(&mut host, "0000:02:00.0", 2, 16_000, 400..430);
    assert_eq!(host.raised(431 * 60), [""; 0]);
}

#[test]
fn a_reading_that_fails_clears_nothing() {
    let mut host = plain();
    pcie(&mut host, "0000:01:00.0", 4, 16_000, 1..3);
    pcie(&mut host, "0000:01:00.0", 2, 16_000, 3..14);
    host.apply(SourceUpdate::Counters(Observation::failed(at(900), "no")), 900);
    host.apply(SourceUpdate::Counters(Observation::ok(at(960), Vec::new())), 960);
    assert_eq!(host.raised(961), ["A LinkDowngraded Suspect Degraded"]);
}

#[test]
fn a_sas_link_is_judged_by_its_rate_the_way_to_its_shelf_and_the_errors_of_a_day() {
    let mut host = plain();
    let port = "/sys/devices/pci0000:00/0000:03:00.0/host0/port-0:0/expander-0:0/port-0:0:1";
    let hourly = |host: &mut TestHost, hour: i64, rate: u64, shelf: u64, errors: u64| {
        let values = [(LANES, 1), (RATE, rate), (SHELF_LANES, shelf), (PHY_ERRORS[0], errors)];
        read(host, SAS_LINK, port, &values, hour * 3600);
    };
    hourly(&mut host, 1, 12_000, 4, 500);
    hourly(&mut host, 2, 6000, 4, 500);
    assert_eq!(host.raised(3 * 3600), [""; 0], "once is chance");
    hourly(&mut host, 3, 6000, 4, 500);
    assert_eq!(host.raised(4 * 3600), ["A LinkDowngraded Suspect Degraded"]);
    (4..6).for_each(|hour| hourly(&mut host, hour, 12_000, 2, 500));
    assert_eq!(host.raised(6 * 3600), ["A LinkDowngraded Info Information"]);
    (6..30).for_each(|hour| hourly(&mut host, hour, 12_000, 4, 500));
    assert_eq!(host.raised(30 * 3600), [""; 0]);
    (30..56).for_each(|hour| hourly(&mut host, hour, 12_000, 4, 500 + 10 * hour.unsigned_abs()));
    assert_eq!(host.raised(56 * 3600), ["A LinkErrors Suspect Degraded"]);
    (56..106).for_each(|hour| hourly(&mut host, hour, 12_000, 4, 1050));
    assert_eq!(host.raised(106 * 3600), [""; 0]);
}

#[test]
fn a_volume_has_fewer_nvme_paths_than_before() {
    let mut host = plain();
    host.inventory.drives[0].transport = Transport::NvmeFabrics;
    host.scan(2);
    let paths = |host: &mut TestHost, usable: u64, second: i64| {
        read(host, NVME_PATHS, "/sys/class/block/sda", &[(PATHS, usable)], second);
        host.raised(second + 1)
    };
    assert_eq!(paths(&mut host, 2, 60), [""; 0]);
    assert_eq!(paths(&mut host, 1, 120), [""; 0], "a controller that is being reset");
    assert_eq!(paths(&mut host, 1, 130), [""; 0]);
    assert_eq!(paths(&mut host, 1, 180), ["fs:u PathsDegraded Suspect Degraded"]);
    let raised = host.raised_for(Reason::PathsDegraded, 182).unwrap();
    assert_eq!(raised.message, "drive A (sda) has 1 of 2 working paths");
    assert_eq!(paths(&mut host, 0, 240), ["fs:u PathsDegraded Bad Inaccessible"]);
    assert_eq!(paths(&mut host, 2, 300), [""; 0]);
}
