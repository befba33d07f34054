//! Drives that md has taken out of an array.

use super::{md_state, mirror};
use crate::block::LayerState;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event, Line, LineOrigin};

fn with_faulty_member() -> TestHost {
    let mut world = mirror();
    let LayerState::Md(mut md) = md_state(1, &["sda", "sdb"]) else { unreachable!() };
    md.members[1].state = "faulty,write_mostly".into();
    md.members[1].slot = None;
    world.layer("md0", LayerState::Md(md), 10);
    world
}

fn is_raised(world: &mut TestHost, seconds: i64) -> bool {
    let lines = world.raised(seconds);
    lines.contains(&"B RaidMemberFailed Suspect Degraded".to_owned())
}

#[test]
fn a_drive_that_md_has_taken_out_endangers_no_volume_of_the_array() {
    let mut world = with_faulty_member();
    assert_eq!(
        world.raised(11),
        ["B RaidMemberFailed Suspect Degraded", "fs:m RedundancyLost Suspect Degraded"]
    );
}

#[test]
fn a_faulty_member_is_a_suspicion_with_mds_word_until_the_array_has_it_again() {
    let mut world = with_faulty_member();
    assert!(is_raised(&mut world, 11));
    let finding = world.raised_for(Reason::RaidMemberFailed, 12).unwrap();
    assert_eq!(finding.message, "md has taken drive B (sdb) out of md0 (raid1)");
    assert_eq!(
        (finding.evidence[0].source.as_str(), finding.evidence[0].text.as_str()),
        ("/sys/block/md0/md/dev-sdb/state", "faulty,write_mostly")
    );
    world.apply(
        SourceUpdate::Layer {
            device: "md0".into(),
            state: Observation::failed(at(20), "no answer"),
        },
        20,
    );
    world.judge(21);
    let active = |world: &TestHost| {
        let mut reasons = world.active.keys().map(|(_, reason)| *reason);
        reasons.any(|reason| reason == Reason::RaidMemberFailed)
    };
    assert!(active(&world), "a failed reading clears nothing");
    world.layer("md0", md_state(0, &["sda", "sdb"]), 30);
    assert_eq!(world.raised(31), [""; 0]);
    assert!(!active(&world));
}

#[test]
fn the_kernels_record_of_the_failure_is_evidence() {
    let mut world = with_faulty_member();
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
    world.apply(SourceUpdate::KernelLog(batch), 11);
    let finding = world.raised_for(Reason::RaidMemberFailed, 12).unwrap();
    assert!(finding.evidence.iter().any(|record| record.text == said.text));
}

#[test]
fn a_member_that_a_degraded_array_no_longer_lists_is_a_suspicion_until_it_is_replaced() {
    let mut world = mirror();
    for name in ["sda", "sdb"] {
        let device = world.inventory.devices.get_mut(name).unwrap();
        device.fs_type = Some("linux_raid_member".into());
        device.fs_uuid = Some("array".into());
    }
    let set_members = |world: &mut TestHost, names: &[&str]| {
        let md = world.inventory.devices.get_mut("md0").unwrap();
        md.underlying = names.iter().map(|name| (*name).to_owned()).collect();
    };
    set_members(&mut world, &["sda"]);
    world.scan(10);
    world.layer("md0", md_state(1, &["sda"]), 11);
    assert!(is_raised(&mut world, 12));
    let finding = world.raised_for(Reason::RaidMemberFailed, 13).unwrap();
    assert!(finding.evidence[0].text.contains("degraded 1 without sdb"), "{finding:?}");
    world.plug("sdc", "8:32", "C");
    set_members(&mut world, &["sda", "sdc"]);
    world.scan(20);
    world.layer("md0", md_state(0, &["sda", "sdc"]), 21);
    assert!(!is_raised(&mut world, 22));
}

#[test]
fn a_spare_and_a_foreign_superblock_are_no_failures() {
    let mut world = mirror();
    let (sda, sdb) = ("sda", "sdb");
    for (name, uuid) in [(sda, "array"), (sdb, "another")] {
        let device = world.inventory.devices.get_mut(name).unwrap();
        device.fs_type = Some("linux_raid_member".into());
        device.fs_uuid = Some(uuid.into());
    }
    let md = world.inventory.devices.get_mut("md0").unwrap();
    md.underlying = vec![sda.into()];
    world.scan(10);
    world.layer("md0", md_state(1, &[sda]), 11);
    assert!(!is_raised(&mut world, 12));
    let LayerState::Md(mut md) = md_state(1, &[sda, sdb]) else { unreachable!() };
    md.members[1].state = "spare".into();
    world.layer("md0", LayerState::Md(md), 20);
    assert!(!is_raised(&mut world, 21));
}
