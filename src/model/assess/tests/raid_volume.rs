//! Arrays of RAID controllers.

use crate::drive::Transport;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Subject, UnknownHealth};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, DeviceName, Event, Line, LineOrigin};

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
    let mut host = controller();
    log(&mut host, 0, "DEGRADED", 10);
    let year = 365 * 86_400;
    assert_eq!(host.raised(year), ["A RaidVolumeDegraded Suspect Degraded"]);
    log(&mut host, 0, "OPTIMAL", year + 10);
    assert_eq!(host.raised(year + 11), [""; 0]);
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

#[test]
fn an_array_whose_state_nothing_reads_is_unknown_with_one_finding_for_its_controller() {
    let mut host = arrays("megaraid_sas");
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
    assert!(unknown_health(&arrays("smartpqi"), "A").unwrap().why.contains("ssacli"));
    assert!(unknown_health(&arrays("aacraid"), "A").unwrap().why.contains("arcconf"));
}
