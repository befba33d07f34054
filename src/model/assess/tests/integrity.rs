//! dm-integrity's count of sectors without their checksum.

use crate::block::LayerState;
use crate::fixture::*;
use crate::stack::DmIntegrity;
use diskvitals_finding::reason::Reason;

fn count(host: &mut TestHost, mismatches: u64, second: i64) {
    let status_line = format!("0 8 integrity {mismatches} 8 -");
    let state = LayerState::Integrity(DmIntegrity { mismatches, status_line });
    host.layer("dm-0", state, second);
}

fn on_one_drive() -> TestHost {
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B").with(dm(
        "dm-0",
        "253:0",
        "vg-home_rimage_0",
        "LVM-x",
        &["sda"],
    ));
    host.read_all(0);
    host
}

#[test]
fn growth_is_the_drives_finding_and_what_was_there_before_is_none() {
    let mut host = on_one_drive();
    count(&mut host, 3, 1);
    assert_eq!(host.raised(2), [""; 0], "an old count");
    count(&mut host, 5, 10);
    assert_eq!(host.raised(11), ["A IntegrityErrors Suspect Degraded"]);
    let raised = host.raised_for(Reason::IntegrityErrors, 12).unwrap();
    assert!(raised.message.contains("2 sectors of vg-home_rimage_0"), "{}", raised.message);
    assert_eq!(raised.evidence[0].text, "0 8 integrity 5 8 -");
    // Activated again: it counts from zero, and the finding stays until its quiet time has passed.
    count(&mut host, 0, 20);
    assert_eq!(host.raised(21), ["A IntegrityErrors Suspect Degraded"]);
    let quiet = i64::try_from(host.policy.errors.quiet_after.as_secs()).unwrap();
    count(&mut host, 0, quiet + 30);
    assert_eq!(host.raised(quiet + 31), [""; 0]);
}

#[test]
fn a_count_above_two_drives_blames_neither() {
    let mut host = on_one_drive();
    host.inventory.devices.get_mut("dm-0").unwrap().underlying.push("sdb".into());
    host.read_all(1);
    count(&mut host, 0, 2);
    count(&mut host, 9, 3);
    assert_eq!(host.raised(4), [""; 0]);
}
