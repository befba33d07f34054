//! Arrays of RAID controllers.

use crate::drive::Transport;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
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
