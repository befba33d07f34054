//! Drives that md has taken out of an array.

use super::{md_state, mirror};
use crate::block::LayerState;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event, Line, LineOrigin};

fn with_faulty_member() -> TestHost {
    let mut host = mirror();
    let LayerState::Md(mut md) = md_state(1, &["sda", "sdb"]) else { unreachable!() };
    md.members[1].state = "faulty,write_mostly".into();
    md.members[1].slot = None;
    host.layer("md0", LayerState::Md(md), 10);
    host
}

fn is_raised(host: &mut TestHost, seconds: i64) -> bool {
    let lines = host.raised(seconds);
    lines.contains(&"B RaidMemberFailed Suspect Degraded".to_owned())
}

#[test]
fn a_drive_that_md_has_taken_out_endangers_no_volume_of_the_array() {
    let mut host = with_faulty_member();
    assert_eq!(
        host.raised(11),
        ["B RaidMemberFailed Suspect Degraded", "fs:m RedundancyLost Suspect Degraded"]
    );
}

#[test]
fn a_faulty_member_is_a_suspicion_with_mds_word_until_the_array_has_it_again() {
    let mut host = with_faulty_member();
    assert!(is_raised(&mut host, 11));
    let finding = host.raised_for(Reason::RaidMemberFailed, 12).unwrap();
    assert_eq!(finding.message, "md has taken drive B (sdb) out of md0 (raid1)");
    assert_eq!(
        (finding.evidence[0].source.as_str(), finding.evidence[0].text.as_str()),
        ("/sys/block/md0/md/dev-sdb/state", "faulty,write_mostly")
    );
    host.apply(
        SourceUpdate::Layer {
            device: "md0".into(),
            state: Observation::failed(at(20), "no answer"),
        },
        20,
    );
    host.judge(21);
    let active = |host: &TestHost| {
        let mut reasons = host.active.keys().map(|(_, reason)| *reason);
        reasons.any(|reason| reason == Reason::RaidMemberFailed)
    };
    assert!(active(&host), "a failed reading clears nothing");
    host.layer("md0", md_state(0, &["sda", "sdb"]), 30);
    assert_eq!(host.raised(31), [""; 0]);
    assert!(!active(&host));
}

#[test]
fn the_kernels_record_of_the_failure_is_evidence() {
    let mut host = with_faulty_member();
    let said = Line {
        time: at(9),
        text: "md/raid1:md0: Disk failure on sdb, disabling device.".into(),
        origin: LineOrigin::KernelLog,
    };
    let event = Event {
        first: said.clone(),
        last: said.clone(),
        ..event(Class::Removed, "sdb", at(9), &[])
    };
    let batch = Batch {
        cursor: Cursor { boot_id: "boot".into(), counted_to: Some(1), reread_from: 2, lost: 0 },
        events: vec![event],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), 11);
    let finding = host.raised_for(Reason::RaidMemberFailed, 12).unwrap();
    assert!(finding.evidence.iter().any(|record| record.text == said.text));
}

#[test]
fn a_member_that_a_degraded_array_no_longer_lists_is_a_suspicion_until_it_is_replaced() {
    let mut host = mirror();
    for name in ["sda", "sdb"] {
        let device = host.inventory.devices.get_mut(name).unwrap();
        device.fs_type = Some("linux_raid_member".into());
        device.fs_uuid = Some("array".into());
    }
    let set_members = |host: &mut TestHost, names: &[&str]| {
        let md = host.inventory.devices.get_mut("md0").unwrap();
        md.underlying = names.iter().map(|name| (*name).to_owned()).collect();
    };
    set_members(&mut host, &["sda"]);
    host.scan(10);
    host.layer("md0", md_state(1, &["sda"]), 11);
    assert!(is_raised(&mut host, 12));
    let finding = host.raised_for(Reason::RaidMemberFailed, 13).unwrap();
    assert!(finding.evidence[0].text.contains("degraded 1 without sdb"), "{finding:?}");
    host.plug("sdc", "8:32", "C");
    set_members(&mut host, &["sda", "sdc"]);
    host.scan(20);
    host.layer("md0", md_state(0, &["sda", "sdc"]), 21);
    assert!(!is_raised(&mut host, 22));
}

#[test]
fn a_spare_and_a_foreign_superblock_are_no_failures() {
    let mut host = mirror();
    let (sda, sdb) = ("sda", "sdb");
    for (name, uuid) in [(sda, "array"), (sdb, "another")] {
        let device = host.inventory.devices.get_mut(name).unwrap();
        device.fs_type = Some("linux_raid_member".into());
        device.fs_uuid = Some(uuid.into());
    }
    let md = host.inventory.devices.get_mut("md0").unwrap();
    md.underlying = vec![sda.into()];
    host.scan(10);
    host.layer("md0", md_state(1, &[sda]), 11);
    assert!(!is_raised(&mut host, 12));
    let LayerState::Md(mut md) = md_state(1, &[sda, sdb]) else { unreachable!() };
    md.members[1].state = "spare".into();
    host.layer("md0", LayerState::Md(md), 20);
    assert!(!is_raised(&mut host, 21));
}
