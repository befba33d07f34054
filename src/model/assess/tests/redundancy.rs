//! What is left of an array is judged, not whether something is missing.

use super::repaired::reads;
use super::{md_state, mirror};
use crate::block::{Layer, LayerState};
use crate::facts::{Facts, Urgency};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::{BtrfsFs, DmRaid, MdMember, MdState};
use diskvitals_finding::FindingDetails;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor, Event};

#[test]
fn a_degraded_array_without_a_volume_is_a_finding_of_the_device() {
    let mut host = mirror();
    host.umount("/data");
    host.read_mounts(5);
    host.layer("md0", md_state(1, &["sda"]), 10);
    assert_eq!(host.raised(11), ["dev:md0 RedundancyLost Suspect Degraded"]);
    let mut host = host.mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_mounts(20);
    assert_eq!(host.raised(21), ["fs:m RedundancyLost Suspect Degraded"]);
    assert_eq!(host.active.len(), 1, "the device's own is cleared");
}

#[test]
fn a_rebuild_tells_its_progress_and_a_dead_array_is_inaccessible() {
    let mut host = mirror();
    let LayerState::Md(mut md) = md_state(1, &["sda"]) else { unreachable!() };
    md.sync_action = Some("recover".into());
    md.sync_completed = Some((43, 100));
    host.layer("md0", LayerState::Md(md.clone()), 10);
    assert!(
        host.raised_for(Reason::RedundancyLost, 11)
            .unwrap()
            .message
            .contains("runs with 1 of 2 devices; rebuild, 43 % done")
    );
    md.sync_completed = Some((44, 100));
    assert_eq!(host.layer("md0", LayerState::Md(md.clone()), 12), Urgency::UsageOnly);
    md.array_state = "inactive".into();
    host.layer("md0", LayerState::Md(md), 20);
    assert_eq!(host.raised(21), ["fs:m RaidDegraded Bad Inaccessible"]);
}

/// An array md0 of so many disks sda, sdb, … on /data.
pub(super) fn array(level: &str, disks: usize) -> TestHost {
    let names: Vec<String> = names(disks);
    let below: Vec<&str> = names.iter().map(String::as_str).collect();
    let layer = Layer::Md { level: Some(level.into()) };
    let mut host = TestHost::default().with(device("md0", "9:0", layer, &below));
    for (at, name) in names.iter().enumerate() {
        host.plug(name, &format!("8:{}", 16 * at), &name[2..].to_uppercase());
    }
    let mut host = host.uuid("md0", "m").mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(0);
    host
}

fn names(disks: usize) -> Vec<String> {
    "abcdefghij".chars().take(disks).map(|letter| format!("sd{letter}")).collect()
}

/// Slots by letter: `+` in sync, `-` empty, `r` being filled.
pub(super) fn state(level: &str, slots: &str) -> MdState {
    let member = |(slot, (letter, name)): (usize, (char, String))| {
        let word = match letter {
            '+' => "in_sync",
            'r' => "spare",
            _ => return None,
        };
        Some(MdMember {
            device: name,
            state: word.into(),
            slot: Some(slot as u32),
            errors: 0,
            bad_blocks: Vec::new(),
        })
    };
    let named = slots.chars().zip(names(slots.len()));
    MdState {
        level: level.into(),
        raid_disks: slots.len() as u32,
        degraded: slots.chars().filter(|slot| *slot != '+').count() as u32,
        array_state: "clean".into(),
        members: named.enumerate().filter_map(member).collect(),
        ..MdState::default()
    }
}

fn found(host: &mut TestHost, md: MdState, second: i64) -> Vec<(Reason, FindingDetails)> {
    host.layer("md0", LayerState::Md(md), second);
    [Reason::RedundancyLost, Reason::RaidDegraded]
        .into_iter()
        .filter_map(|reason| Some((reason, host.raised_for(reason, second)?)))
        .collect()
}

pub(super) fn fail(host: &mut TestHost, device: &str, second: i64) {
    let event = Event {
        seq: second as u64,
        blame: Blame::Yes,
        ..event(Class::Medium, device, at(second), &[1])
    };
    let cursor =
        Cursor { boot_id: "b".into(), counted_to: Some(second as u64), reread_from: 0, lost: 0 };
    let batch = Batch {
        cursor,
        events: vec![event],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), second);
}

#[test]
fn each_state_has_its_reason_and_says_how_many_more_may_fail() {
    use Reason::{RaidDegraded, RedundancyLost};
    for (level, slots, reason, text) in [
        (
            "raid1",
            "+-",
            RedundancyLost,
            "no redundancy left: the only copy of md0 (raid1) is on sda; it runs with 1 of 2 devices",
        ),
        (
            "raid1",
            "++-",
            RaidDegraded,
            "md0 (raid1) runs with 2 of 3 devices: it survives the failure of one more device",
        ),
        (
            "raid5",
            "+++++-",
            RedundancyLost,
            "no redundancy left: md0 (raid5) needs every one of sda, sdb, sdc, sdd, sde; it runs with 5 of 6 devices",
        ),
        (
            "raid6",
            "++++-",
            RaidDegraded,
            "md0 (raid6) runs with 4 of 5 devices: it survives the failure of one more device",
        ),
        (
            "raid6",
            "+++--",
            RedundancyLost,
            "no redundancy left: md0 (raid6) needs every one of sda, sdb, sdc; it",
        ),
        (
            "raid10",
            "+-++",
            RedundancyLost,
            "no redundancy left: the only copy of a part of md0 (raid10) is on sda; it runs with 3 of 4",
        ),
        (
            "raid5",
            "+++--",
            RaidDegraded,
            "md0 (raid5) runs with 3 of 5 devices: too few to carry its data",
        ),
        ("raid10", "++--", RaidDegraded, "md0 (raid10) runs with 2 of 4 devices: too few"),
    ] {
        let mut host = array(level, slots.len());
        let found = found(&mut host, state(level, slots), 10);
        assert_eq!(found.len(), 1, "{level} {slots}: {found:#?}");
        assert_eq!(found[0].0, reason, "{level} {slots}");
        assert!(found[0].1.message.starts_with(text), "{level} {slots}: {}", found[0].1.message);
    }
    // Two of four may be missing, if every chunk has a copy.
    let mut host = array("raid10", 4);
    let found = found(&mut host, state("raid10", "+-+-"), 10);
    assert_eq!(found[0].0, RedundancyLost, "{found:#?}");
}

#[test]
fn what_is_complete_or_has_no_redundancy_by_design_is_no_finding() {
    for (level, slots) in [
        ("raid1", "++"),
        ("raid5", "+++"),
        ("raid10", "++++"),
        ("raid0", "++"),
        ("linear", "++"),
        ("raid1", "+"),
    ] {
        let mut host = array(level, slots.len());
        assert_eq!(found(&mut host, state(level, slots), 10), [], "{level} {slots}");
    }
}

#[test]
fn the_advice_depends_on_the_state() {
    let mut host = array("raid1", 2);
    let missing = found(&mut host, state("raid1", "+-"), 10).remove(0).1;
    let advice = missing.advice.unwrap();
    assert!(
        advice.starts_with("Replace the missing device today: `mdadm /dev/md0 --add"),
        "{advice}"
    );
    assert!(
        advice.contains("`--re-add`, or `--add` if mdadm refuses that) only if it tests healthy"),
        "{advice}"
    );

    let mut rebuilding = state("raid1", "+r");
    rebuilding.sync_action = Some("recover".into());
    rebuilding.sync_completed = Some((10, 100));
    let rebuilding = found(&mut host, rebuilding, 20).remove(0).1;
    assert!(rebuilding.message.contains("; rebuild onto sdb, 10 % done"), "{}", rebuilding.message);
    assert_eq!(
        rebuilding.advice.unwrap(),
        "md0 is being rebuilt: wait until that has ended, and do not pull any of its drives."
    );

    fail(&mut host, "sda", 30);
    fail(&mut host, "sda", 700);
    let last = found(&mut host, state("raid1", "+-"), 710).remove(0).1;
    let advice = last.advice.unwrap();
    assert!(
        advice.starts_with(
            "Back up md0 now: its only copy is on sda (MediaErrors), and a rebuild reads all of it."
        ),
        "{advice}"
    );
}

/// The array may have another kernel name by then.
#[test]
fn the_missing_member_is_named_also_after_a_restart_and_until_it_is_replaced() {
    let restarted = |host: &TestHost| {
        let mut facts = Facts::default();
        let stored = host.facts.counters.iter();
        let stored = stored.map(|(key, history)| (key.clone(), (**history).clone()));
        facts.counters.restore(stored.collect());
        facts.drives = host.facts.drives.clone();
        TestHost { facts, ..host.clone() }
    };
    let mut host = array("raid1", 2);
    let md0 = host.inventory.devices.get_mut("md0").unwrap();
    md0.links = vec!["/dev/disk/by-id/md-uuid-1:2:3:4".into()];
    host.scan(5);
    assert_eq!(found(&mut host, state("raid1", "++"), 10), []);
    host.pull("sdb");
    let md0 = host.inventory.devices.get_mut("md0").unwrap();
    md0.underlying = vec!["sda".into()];
    host.scan(20);
    found(&mut host, state("raid1", "+-"), 21);
    let mut again = restarted(&host);
    again.read_all(100);
    let lost = found(&mut again, state("raid1", "+-"), 110).remove(0).1;
    assert!(
        lost.message.contains(
            "; missing: raid device 1 (was sdb, serial B, last in sync 2027-01-15T08:00:10Z)"
        ),
        "{}",
        lost.message
    );
    // Replaced; the next loss is another one's.
    again.plug("sdb", "8:16", "C");
    let md0 = again.inventory.devices.get_mut("md0").unwrap();
    md0.underlying = vec!["sda".into(), "sdb".into()];
    again.scan(200);
    assert_eq!(found(&mut again, state("raid1", "++"), 210), []);
    let mut again = restarted(&again);
    again.read_all(300);
    let lost = found(&mut again, state("raid1", "+-"), 310).remove(0).1;
    assert!(!lost.message.contains("serial B"), "{}", lost.message);
}

#[test]
fn the_missing_member_is_named_when_it_was_seen() {
    let mut host = array("raid1", 2);
    assert_eq!(found(&mut host, state("raid1", "++"), 10), []);
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(20);
    let lost = found(&mut host, state("raid1", "+-"), 21).remove(0).1;
    assert!(
        lost.message.contains(
            "; missing: raid device 1 (was sdb, serial B, last in sync 2027-01-15T08:00:10Z)"
        ),
        "{}",
        lost.message
    );
    // A drive that was there before the daemon started is known by the array's superblock on it.
    let mut host = array("raid1", 2);
    for name in ["sda", "sdb"] {
        let device = host.inventory.devices.get_mut(name).unwrap();
        (device.fs_type, device.fs_uuid) = (Some("linux_raid_member".into()), Some("array".into()));
        device.fs_usage = Some("raid".into());
    }
    host.scan(10);
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(20);
    let lost = found(&mut host, state("raid1", "+-"), 21).remove(0).1;
    assert!(
        lost.message.contains("; missing: raid device 1 (was sdb, serial B, last seen "),
        "{}",
        lost.message
    );
}

#[test]
fn a_faulty_member_that_is_still_listed_is_named_once_and_is_removed_first() {
    let mut host = array("raid1", 2);
    let layer = Layer::Partition { start_bytes: 1 << 20, number: 1 };
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda1".into(), "sdb1".into()];
    for (name, dev, disk) in [("sda1", "8:1", "sda"), ("sdb1", "8:17", "sdb")] {
        host = host.with(device(name, dev, layer.clone(), &[disk]));
    }
    host.scan(5);
    let mut md = state("raid1", "++");
    for member in &mut md.members {
        member.device.push('1');
    }
    assert_eq!(found(&mut host, md.clone(), 10), []);
    (md.members[1].state, md.degraded) = ("faulty".into(), 1);
    let lost = found(&mut host, md, 20).remove(0).1;
    assert_eq!(
        lost.message,
        "no redundancy left: the only copy of md0 (raid1) is on sda; it runs with 1 of 2 devices; faulty: sdb1 (serial B, last in sync 2027-01-15T08:00:10Z)"
    );
    assert_eq!(
        lost.advice.unwrap(),
        "Remove what is faulty from the array: `mdadm /dev/md0 --remove /dev/sdb1`. Replace its drive today: partition the new drive like the others and add the partition: `mdadm /dev/md0 --add /dev/NEW_PARTITION`. Add the old drive again (`--re-add`, or `--add` if mdadm refuses that) only if cable or power was at fault and it tests healthy."
    );
    assert_eq!(lost.clears_when, "all 2 raid devices of md0 are present and in sync");
}

#[test]
fn what_ends_it_is_what_it_lacks() {
    for (level, slots, expected) in [
        ("raid6", "+++-", "all 4 raid devices of md0 are present and in sync"),
        ("raid6", "++--", "the array survives the failure of a member again"),
        ("raid1", "--", "md0 runs, with all 2 raid devices present and in sync"),
    ] {
        let mut host = array(level, slots.len());
        let found = found(&mut host, state(level, slots), 10).remove(0).1;
        assert_eq!(found.clears_when, expected, "{level} {slots}");
    }
}

#[test]
fn empty_slots_of_a_vendors_system_mirror_are_no_finding_until_one_held_a_member() {
    let mut host = array("raid1", 4);
    assert_eq!(found(&mut host, state("raid1", "++--"), 10), []);
    assert_eq!(found(&mut host, state("raid1", "+++-"), 20), [], "a bay is filled");
    let lost = found(&mut host, state("raid1", "++--"), 30);
    assert_eq!(lost[0].0, Reason::RaidDegraded);
    assert_eq!(found(&mut host, state("raid1", "+---"), 40)[0].0, Reason::RedundancyLost);
}

#[test]
fn ranges_without_a_second_copy_and_parity_that_is_not_computed_are_no_redundancy() {
    let mut host = array("raid1", 2);
    let mut lacking = state("raid1", "++");
    lacking.members[0].bad_blocks = vec![(8, 8)];
    let lost = found(&mut host, lacking, 10).remove(0).1;
    assert!(
        lost.message.starts_with("no redundancy left: the only copy of some ranges of md0 (raid1) is on sdb; sda lacks 1 range"),
        "{}",
        lost.message
    );
    assert!(lost.advice.unwrap().contains("--replace"));

    let mut host = array("raid5", 3);
    let mut resync = state("raid5", "+++");
    resync.is_resync_due = true;
    resync.sync_action = Some("resync".into());
    let lost = found(&mut host, resync.clone(), 10).remove(0);
    assert_eq!(lost.0, Reason::RedundancyLost);
    assert!(lost.1.advice.unwrap().contains("wait until that has ended"));
    let idle = MdState { sync_action: Some("idle".into()), ..resync.clone() };
    assert_eq!(
        found(&mut host, idle, 20).remove(0).1.advice.unwrap(),
        "Let the synchronization of md0 run (`mdadm --readwrite /dev/md0`, or `idle` to /sys/block/md0/md/sync_action)."
    );
    // Copies are complete while they are compared.
    resync.level = "raid1".into();
    assert_eq!(found(&mut array("raid1", 3), resync, 10), []);
}

#[test]
fn a_btrfs_is_judged_by_its_profiles_and_missing_devices() {
    for (data, metadata, missing, expected) in [
        ("raid1", "raid1", 0, None),
        ("raid1", "raid1", 1, Some("RedundancyLost Suspect Degraded")),
        ("raid1c3", "raid1c3", 1, Some("RaidDegraded Suspect Degraded")),
        ("raid6", "raid1c3", 2, Some("RedundancyLost Suspect Degraded")),
        ("single", "raid1", 0, None),
    ] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
        host.inventory.btrfs.push(BtrfsFs {
            missing_devices: missing,
            metadata_profiles: vec![metadata.into()],
            ..btrfs("b-1", &["sda", "sdb"], data)
        });
        host.read_all(0);
        let raised = host.raised(10);
        let raised: Vec<&str> =
            raised.iter().filter_map(|line| line.split_once(' ')).map(|(_, it)| it).collect();
        assert_eq!(raised, Vec::from_iter(expected), "{data} {metadata} {missing}");
    }
    // Written while a device was missing: the kernel made a chunk without a second copy.
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
    host.inventory.btrfs.push(BtrfsFs {
        missing_devices: 1,
        data_profiles: vec!["raid1".into(), "single".into()],
        ..btrfs("b-1", &["sda"], "raid1")
    });
    host.read_all(0);
    let lost = host.raised_for(Reason::RedundancyLost, 10).unwrap();
    assert!(lost.message.contains("runs with 1 of 2 devices"), "{}", lost.message);
}

#[test]
fn lvms_raid_is_judged_by_its_letters() {
    let host = || {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .with(dm("dm-1", "253:1", "vg-lv_rimage_0", "LVM-a", &["sda"]))
            .with(dm("dm-3", "253:3", "vg-lv_rimage_1", "LVM-c", &["sdb"]))
            .with(dm("dm-5", "253:5", "vg-lv", "LVM-e", &["dm-1", "dm-3"]))
            .uuid("dm-5", "m")
            .mounted("253:5", "/", "/data", "ext4", "/dev/mapper/vg-lv");
        host.read_all(0);
        host
    };
    for (health, action, expected) in [
        ("AA", "idle", None),
        ("aa", "resync", None),
        (
            "AD",
            "idle",
            Some(
                "the only copy of vg-lv (raid1) is on sda; it runs with 1 of 2 legs; missing: leg 1 (on sdb)",
            ),
        ),
        (
            "Aa",
            "recover",
            Some(
                "the only copy of vg-lv (raid1) is on sda; it runs with 1 of 2 legs; rebuild onto sdb",
            ),
        ),
        // It came back, and nothing fills it.
        ("Aa", "idle", Some("the only copy of vg-lv (raid1) is on sda; it runs with 1 of 2 legs")),
    ] {
        let mut host = host();
        let state = LayerState::DmRaid(DmRaid {
            level: "raid1".into(),
            health: health.into(),
            sync_action: Some(action.into()),
            status_line: "0 8 raid raid1".into(),
            ..DmRaid::default()
        });
        host.layer("dm-5", state, 10);
        let found = host.raised_for(Reason::RedundancyLost, 11);
        let message =
            found.as_ref().map(|it| it.message.trim_start_matches("no redundancy left: "));
        assert_eq!(message, expected, "{health} {action}");
        if health == "Aa" && action == "idle" {
            assert!(found.unwrap().advice.unwrap().contains("lvchange --refresh"));
        }
    }
    let mut host = host();
    let state = DmRaid { level: "raid5_ls".into(), health: "aa".into(), ..DmRaid::default() };
    host.layer("dm-5", LayerState::DmRaid(state), 10);
    assert_eq!(
        host.raised_for(Reason::RedundancyLost, 11).unwrap().advice.unwrap(),
        "Let the synchronization of vg-lv run (`lvchange --syncaction repair vg-lv`)."
    );
}

/// md127 is given to whichever array comes first.
#[test]
fn another_array_with_the_name_has_no_slots_of_the_former_one() {
    let link = |uuid: &str| vec![format!("/dev/disk/by-id/md-uuid-{uuid}")];
    let mut host = array("raid1", 2);
    host.inventory.devices.get_mut("md0").unwrap().links = link("1:2:3:4");
    host.scan(5);
    assert_eq!(found(&mut host, state("raid1", "++"), 10), []);
    // The state of the other one arrives before the scan that finds it, or after it.
    for is_state_first in [true, false] {
        let mut host = host.clone();
        let own = |facts: &Facts| {
            facts.layers["md0"].slots.values().map(|it| it.device.clone()).collect::<Vec<_>>()
        };
        host.plug("sdc", "8:32", "C");
        host.plug("sdd", "8:48", "D");
        let md0 = host.inventory.devices.get_mut("md0").unwrap();
        (md0.links, md0.underlying) = (link("5:6:7:8"), vec!["sdc".into()]);
        let mut other = state("raid1", "+-");
        other.members.retain(|member| member.device == "sda");
        other.members[0].device = "sdc".into();
        if is_state_first {
            host.layer("md0", LayerState::Md(other.clone()), 19);
            assert!(!own(&host.facts).contains(&"sdc".into()), "nothing of it is noted");
        }
        host.scan(20);
        host.layer("md0", LayerState::Md(other), 21);
        assert_eq!(own(&host.facts), ["sdc"], "{is_state_first}");
        let notes =
            host.facts.counters.iter().filter(|((_, series), _)| series.starts_with("md-slot"));
        assert_eq!(notes.count(), 0, "{is_state_first}");
    }
}

#[test]
fn what_was_in_the_slots_of_an_array_that_is_gone_is_forgotten() {
    let mut host = array("raid1", 2);
    let md0 = host.inventory.devices.get_mut("md0").unwrap();
    md0.links = vec!["/dev/disk/by-id/md-uuid-00000001:00000002:00000003:00000004".into()];
    let member = host.inventory.devices.get_mut("sda").unwrap();
    member.fs_type = Some("linux_raid_member".into());
    member.fs_usage = Some("raid".into());
    member.fs_uuid = Some("00000001-0000-0002-0000-000300000004".into());
    host.read_all(5);
    found(&mut host, state("raid1", "++"), 10);
    host.pull("sdb");
    host.inventory.devices.get_mut("md0").unwrap().underlying = vec!["sda".into()];
    host.scan(20);
    found(&mut host, state("raid1", "+-"), 21);
    let notes = |host: &TestHost| {
        let counters = host.facts.counters.iter();
        counters.filter(|((_, series), _)| series.starts_with("md-slot")).count()
    };
    let policy = host.policy.errors.clone();
    let forget = |host: &mut TestHost, second| {
        host.scan(second);
        host.facts.forget_errors(&policy, at(second));
        notes(host)
    };
    assert_eq!(forget(&mut host, 30), 1);
    // Stopped, and one of its members is there; or away.
    host.inventory.devices.remove("md0");
    assert_eq!(forget(&mut host, 40), 1);
    let mut away = host.clone();
    away.pull("sda");
    assert_eq!(forget(&mut away, 50), 1);
    // Its members are wiped.
    host.inventory.devices.get_mut("sda").unwrap().fs_type = None;
    host.inventory.devices.get_mut("sda").unwrap().fs_usage = None;
    assert_eq!(forget(&mut host, 60), 0);
}

/// What md shows after `last`, while `action` runs, and whether it is reported.
fn checked(
    host: &mut TestHost,
    level: &str,
    (last, action, count): (&str, &str, u64),
    second: i64,
) -> bool {
    let md = MdState {
        sync_action: Some(action.into()),
        last_sync_action: Some(last.into()),
        mismatch_cnt: Some(count),
        ..state(level, "+++")
    };
    host.layer("md0", LayerState::Md(md), second);
    host.judge(second);
    host.active.keys().any(|(_, reason)| *reason == Reason::ArrayMismatch)
}

fn raid5() -> TestHost {
    let mut host = array("raid5", 3);
    host.inventory.devices.get_mut("md0").unwrap().links =
        vec!["/dev/disk/by-id/md-uuid-1:2:3:4".into()];
    host.scan(1);
    host
}

#[test]
fn parity_that_a_check_found_wrong_is_reported_until_a_whole_check_finds_none() {
    let mut host = raid5();
    assert!(!checked(&mut host, "raid5", ("resync", "idle", 128), 10), "no check");
    assert!(!checked(&mut host, "raid5", ("check", "check", 128), 20), "it runs");
    assert!(checked(&mut host, "raid5", ("check", "idle", 128), 30));
    let message = host.raised_for(Reason::ArrayMismatch, 30).unwrap().message;
    assert_eq!(
        message,
        "the last check of md0 (raid5) found 128 sectors whose data and parity do not match"
    );
    let stored: Vec<_> =
        host.facts.counters.iter().map(|(key, it)| (key.clone(), (**it).clone())).collect();
    let mut restarted = raid5();
    restarted.facts.counters.restore(stored);
    for mut host in [host, restarted] {
        assert!(checked(&mut host, "raid5", ("none", "idle", 0), 40), "assembled anew");
        assert!(checked(&mut host, "raid5", ("check", "check", 0), 50), "a later check");
        assert!(checked(&mut host, "raid5", ("check", "idle", 0), 60), "which was interrupted");
        reads(&mut host, "b", 1, &["+md0", "-md0"], 70);
        assert!(checked(&mut host, "raid5", ("none", "idle", 0), 75), "nothing says what it found");
        assert!(!checked(&mut host, "raid5", ("check", "idle", 0), 80), "and one that was not");
    }
}

#[test]
fn a_check_in_parts_proves_no_absence() {
    let mut host = raid5();
    assert!(checked(&mut host, "raid5", ("check", "idle", 8), 10), "the first part");
    reads(&mut host, "b", 1, &["+md0", "+md0", "-md0"], 20);
    assert!(checked(&mut host, "raid5", ("check", "idle", 0), 30), "the last part");
}

#[test]
fn mirrors_differ_without_a_fault() {
    let mut host = array("raid1", 3);
    assert!(!checked(&mut host, "raid1", ("check", "idle", 128), 10));
}

#[test]
fn what_dm_raid_counts_is_reported_too() {
    let mut host = array("raid5", 3);
    let raid = |action: &str, mismatches| {
        LayerState::DmRaid(DmRaid {
            level: "raid5_ls".into(),
            health: "AAA".into(),
            sync_action: Some(action.into()),
            mismatches: Some(mismatches),
            ..DmRaid::default()
        })
    };
    host.layer("md0", raid("check", 8), 10);
    assert_eq!(host.raised_for(Reason::ArrayMismatch, 10), None, "it runs");
    host.layer("md0", raid("idle", 8), 20);
    assert!(host.raised_for(Reason::ArrayMismatch, 20).is_some());
}
