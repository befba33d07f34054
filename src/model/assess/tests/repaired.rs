//! Errors whose cause was repaired: a person says so, or all of the drive was read since.

use super::{md_state, mirror, plain};
use crate::block::{Extent, Layer, LayerState};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::{BtrfsFs, DmRaid};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_kernel_log::event::{Batch, Blame, Class, Cursor, Event, FullRead};

/// `reads`: `md0`, or `sda 2` for a member of a btrfs, with the begin.
fn log(
    host: &mut TestHost,
    seq: u64,
    errors: &[(Class, &str, &[u64])],
    reads: &[(&str, i64)],
    second: i64,
) {
    let errors = errors.iter().zip(seq..);
    let events: Vec<Event> = errors
        .map(|((class, device, sectors), seq)| Event {
            seq,
            blame: Blame::Unclear,
            ..event(*class, device, at(second), sectors)
        })
        .collect();
    let full_reads = reads.iter().flat_map(|(device, since)| {
        let begin = full_read(device, seq + 7, *since, false);
        [begin, full_read(device, seq + 8, second, true)]
    });
    apply(host, "b", seq, events, full_reads.collect(), second);
}

fn full_read(device: &str, seq: u64, second: i64, is_done: bool) -> FullRead {
    FullRead {
        seq,
        device: device.split(' ').next().unwrap_or_default().to_owned(),
        member: device.split_once(' ').and_then(|(_, id)| id.parse().ok()),
        at: at(second),
        is_done,
    }
}

fn apply(
    host: &mut TestHost,
    boot: &str,
    seq: u64,
    events: Vec<Event>,
    full_reads: Vec<FullRead>,
    second: i64,
) {
    let batch = Batch {
        cursor: Cursor { boot_id: boot.into(), counted_to: Some(seq + 9), reread_from: 0, lost: 0 },
        events,
        name_assignments: Vec::new(),
        full_reads,
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), second);
}

/// Begins (`+md0`) and ends (`-md0`) of reads, one a second.
pub(crate) fn reads(host: &mut TestHost, boot: &str, seq: u64, marks: &[&str], second: i64) {
    for (mark, number) in marks.iter().zip(0..) {
        let (sign, device) = mark.split_at(1);
        let seq = seq + number as u64 * 10;
        let read = full_read(device, seq, second + number, sign == "-");
        apply(host, boot, seq, Vec::new(), vec![read], second + number);
    }
}

fn of_drive(host: &mut TestHost, drive: &str, second: i64) -> Vec<String> {
    let mut lines = host.raised(second);
    lines.retain(|line| line.starts_with(&format!("{drive} ")));
    lines
}

#[test]
fn an_error_whose_repair_is_named_is_over_and_a_new_one_raises_it_again() {
    for (class, reason) in [
        (Class::Io, Reason::IoErrors),
        (Class::Medium, Reason::MediaErrors),
        (Class::Timeout, Reason::IoTimeouts),
        (Class::Reset, Reason::ControllerResets),
        (Class::Transport, Reason::LinkErrors),
    ] {
        let mut host = plain();
        let expected = format!("A {reason} Suspect Degraded");
        for second in [10, 1000] {
            log(&mut host, second as u64, &[(class, "sda", &[])], &[], second);
        }
        assert_eq!(of_drive(&mut host, "A", 1001), std::slice::from_ref(&expected));
        let drive = Subject::Drive(DriveId::new("A"));
        host.facts.forget_repaired(&drive, reason);
        assert_eq!(of_drive(&mut host, "A", 1002), [""; 0], "{reason}");
        log(&mut host, 2000, &[(class, "sda", &[])], &[], 2000);
        assert_eq!(of_drive(&mut host, "A", 2001), [expected]);
    }
    // What a drive counts itself, and what is so now, is not ended by a word.
    for reason in [Reason::PendingSectors, Reason::RaidDegraded, Reason::ReadOnly] {
        let drive = Subject::Drive(DriveId::new("A"));
        assert!(!crate::facts::repairs::ends(&drive, reason), "{reason}");
    }
}

#[test]
fn a_check_of_the_array_that_ended_clean_ends_the_errors_of_its_members() {
    for class in [Class::Io, Class::Medium, Class::Timeout] {
        let mut host = mirror();
        host.layer("md0", md_state(0, &["sda", "sdb"]), 1);
        let errors: &[(Class, &str, &[u64])] = &[(class, "sda", &[5000])];
        log(&mut host, 10, errors, &[], 10);
        assert_eq!(of_drive(&mut host, "A", 11).len(), 1, "{class:?}");
        // Begun before the error.
        log(&mut host, 20, &[], &[("md0", 5)], 20);
        assert_eq!(of_drive(&mut host, "A", 21).len(), 1, "{class:?}");
        // An error of any kind since it began: it was not clean.
        log(&mut host, 30, &[(Class::Reset, "sda", &[])], &[], 30);
        log(&mut host, 40, &[], &[("md0", 25)], 40);
        assert_eq!(of_drive(&mut host, "A", 41).len(), 2, "{class:?}");
        log(&mut host, 50, &[], &[("md0", 45)], 50);
        assert_eq!(
            of_drive(&mut host, "A", 51),
            ["A ControllerResets Suspect Degraded"],
            "{class:?}"
        );
    }
}

#[test]
fn a_check_proves_nothing_about_what_it_does_not_read() {
    let part = |name: &str, dev: &str, number: u32, start: u64, sectors: u64| {
        let layer = Layer::Partition { number, start_bytes: start * 512 };
        let mut part = device(name, dev, layer, &["sda"]);
        part.size_bytes = sectors * 512;
        part
    };
    let md = Layer::Md { level: Some("raid1".into()) };
    let host = || {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .with(part("sda1", "8:1", 1, 2048, 100_000))
            .with(device("md0", "9:0", md.clone(), &["sda1", "sdb"]));
        host.read_all(0);
        host.layer("md0", md_state(0, &["sda1", "sdb"]), 0);
        host
    };
    let inside: &[u64] = &[50_000];
    let outside: &[u64] = &[200_000];
    for (sectors, is_over) in [(inside, true), (outside, false), (&[][..], false)] {
        let mut host = host();
        log(&mut host, 10, &[(Class::Medium, "sda", sectors)], &[], 10);
        log(&mut host, 20, &[], &[("md0", 15)], 20);
        assert_eq!(of_drive(&mut host, "A", 21).is_empty(), is_over, "{sectors:?}");
    }
    // A member that is not in sync was not read.
    let mut host = host();
    let mut state = md_state(1, &["sda1", "sdb"]);
    if let crate::block::LayerState::Md(md) = &mut state {
        md.members[0].state = "faulty".to_owned();
    }
    host.layer("md0", state, 5);
    log(&mut host, 10, &[(Class::Io, "sda", inside)], &[], 10);
    log(&mut host, 20, &[], &[("md0", 15)], 20);
    let left = of_drive(&mut host, "A", 21);
    assert!(left.iter().any(|line| line.starts_with("A IoErrors")), "{left:?}");
}

#[test]
fn the_text_says_what_ends_an_error_after_its_repair() {
    let mut host = plain();
    log(&mut host, 10, &[(Class::Io, "sda", &[])], &[], 10);
    let raised = host.raised_for(Reason::IoErrors, 11).expect("raised");
    assert!(
        raised.clears_when.contains("`diskvitals ack --repaired`")
            && raised.clears_when.contains("a later check of its array"),
        "{}",
        raised.clears_when
    );
}

fn of_volume(host: &mut TestHost, id: &str, second: i64) -> Vec<String> {
    let mut lines = host.raised(second);
    lines.retain(|line| line.starts_with(&format!("{id} IoErrors")));
    lines
}

#[test]
fn a_check_of_the_array_that_ended_clean_ends_the_errors_of_the_array_itself() {
    let error: &[(Class, &str, &[u64])] = &[(Class::Io, "md0", &[5000])];
    let of_member: &[(Class, &str, &[u64])] = &[(Class::Io, "sda", &[5000])];
    for (degraded, during, is_over) in
        [(0, &[][..], true), (1, &[], false), (0, error, false), (0, of_member, false)]
    {
        let mut host = mirror();
        host.layer("md0", md_state(degraded, &["sda", "sdb"]), 1);
        log(&mut host, 10, error, &[], 10);
        assert_eq!(of_volume(&mut host, "fs:m", 11).len(), 1);
        log(&mut host, 20, during, &[], 20);
        log(&mut host, 30, &[], &[("md0", 15)], 30);
        let left = of_volume(&mut host, "fs:m", 31);
        assert_eq!(left.is_empty(), is_over, "{degraded} {during:?}: {left:?}");
    }
    // Records were lost: errors may have been among them.
    let mut host = mirror();
    log(&mut host, 10, error, &[], 10);
    host.facts.restart_quiet_times(at(20));
    log(&mut host, 30, &[], &[("md0", 15)], 30);
    assert_eq!(of_volume(&mut host, "fs:m", 31).len(), 1);
}

#[test]
fn a_check_of_the_only_array_of_dm_raid_ends_the_errors_of_the_array() {
    let raid = |health: &str| {
        LayerState::DmRaid(DmRaid {
            level: "raid1".into(),
            health: health.into(),
            sync_action: Some("idle".into()),
            ..DmRaid::default()
        })
    };
    for (others, health, is_over) in [
        (&[][..], "AA", true),
        (&[], "Aa", false),
        (&[Some(raid("AA"))], "AA", false),
        (&[Some(LayerState::Plain)], "AA", true),
        (&[None], "AA", false),
    ] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .with(dm("dm-5", "253:5", "vg-lv", "LVM-e", &["sda"]))
            .uuid("dm-5", "m")
            .mounted("253:5", "/", "/data", "ext4", "/dev/mapper/vg-lv");
        for name in ["dm-6"].iter().take(others.len()) {
            host = host.with(dm(name, "253:6", "vg-other", "LVM-f", &["sda"]));
        }
        host.read_all(0);
        host.layer("dm-5", raid(health), 1);
        if let [Some(other)] = others {
            host.layer("dm-6", other.clone(), 1);
        }
        log(&mut host, 10, &[(Class::Io, "dm-5", &[5000])], &[], 10);
        assert_eq!(of_volume(&mut host, "fs:m", 11).len(), 1);
        log(&mut host, 20, &[], &[("mdX", 15)], 20);
        let left = of_volume(&mut host, "fs:m", 21);
        assert_eq!(left.is_empty(), is_over, "{others:?} {health}: {left:?}");
    }
}

#[test]
fn a_check_of_dm_raid_ends_the_errors_of_its_drives_in_the_pieces_that_it_read() {
    let leg = |offset: u64| LayerState::Linear {
        extents: vec![
            Extent { start: 0, length: 1000, dev: "8:0".parse().unwrap(), offset },
            Extent {
                start: 1000,
                length: 1000,
                dev: "8:0".parse().unwrap(),
                offset: offset + 50_000,
            },
        ],
    };
    for (health, sectors, is_over) in [
        ("AA", &[2048_u64, 3047][..], true),
        ("AA", &[52_048], true),
        ("AA", &[2048, 3048], false),
        ("AA", &[10_000], false),
        ("AA", &[], false),
        ("Aa", &[2048], false),
    ] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .with(dm("dm-1", "253:1", "vg-lv_rimage_0", "LVM-a", &["sda"]))
            .with(dm("dm-5", "253:5", "vg-lv", "LVM-e", &["dm-1"]));
        host.read_all(0);
        host.layer("dm-1", leg(2048), 1);
        let raid = LayerState::DmRaid(DmRaid {
            level: "raid1".into(),
            health: health.into(),
            sync_action: Some("idle".into()),
            ..DmRaid::default()
        });
        host.layer("dm-5", raid, 1);
        log(&mut host, 10, &[(Class::Io, "sda", sectors)], &[], 10);
        let open = |host: &mut TestHost, second| {
            let lines = host.raised(second);
            lines.iter().filter(|line| line.starts_with('A')).count()
        };
        assert_eq!(open(&mut host, 11), 1, "{sectors:?}");
        log(&mut host, 20, &[], &[("mdX", 15)], 20);
        assert_eq!(open(&mut host, 21), usize::from(!is_over), "{health} {sectors:?}");
    }
}

#[test]
fn a_scrub_of_a_btrfs_counts_once_it_has_read_every_member() {
    let host = || {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
        host.inventory
            .btrfs
            .push(BtrfsFs { member_ids: vec![1, 3], ..btrfs("b-1", &["sda", "sdb"], "raid1") });
        host.read_all(0);
        let errors: &[(Class, &str, &[u64])] =
            &[(Class::Io, "sda", &[5000]), (Class::Timeout, "sdb", &[])];
        log(&mut host, 10, errors, &[], 10);
        host
    };
    let open = |host: &mut TestHost, second| {
        let lines = host.raised(second);
        let of_drives = lines.iter().filter(|line| line.starts_with(['A', 'B']));
        of_drives.count()
    };
    for (reads, left) in [
        (&[("sda 1", 20)][..], 2),
        (&[("sda 1", 20), ("sda 1", 21)], 2),
        (&[("sda 1", 20), ("sda 2", 20)], 2),
        // The errors came after the begin of one of them.
        (&[("sda 1", 20), ("sda 3", 5)], 2),
        (&[("sda 1", 20), ("sda 3", 20)], 0),
    ] {
        let mut host = host();
        assert_eq!(open(&mut host, 11), 2);
        for (read, seq) in reads.iter().zip(20..) {
            log(&mut host, seq * 10, &[], &[*read], 30 + seq as i64);
        }
        assert_eq!(open(&mut host, 100), left, "{reads:?}");
    }
}

#[test]
fn a_read_that_goes_on_after_an_interruption_has_read_all_since_its_first_begin() {
    let errors: &[(Class, &str, &[u64])] = &[(Class::Io, "sda", &[5000])];
    let md = |name: &str| {
        let mut host = mirror();
        host.layer("md0", md_state(0, &["sda", "sdb"]), 1);
        (host, name.to_owned())
    };
    let btrfs_on_a = |name: &str| {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .mounted("0:40", "/", "/data", "btrfs", "/dev/sda");
        host.inventory
            .btrfs
            .push(BtrfsFs { member_ids: vec![1], ..btrfs("b-1", &["sda"], "single") });
        host.read_all(0);
        (host, name.to_owned())
    };
    for (make, device) in
        [(&md as &dyn Fn(&str) -> (TestHost, String), "md0"), (&btrfs_on_a, "sda 1")]
    {
        for boot in ["b", "another"] {
            // The error came between the two begins: what was read before it may be where it was.
            for (begun, is_over) in [(5, false), (15, true)] {
                let (mut host, device) = make(device);
                let (begin, end) = (format!("+{device}"), format!("-{device}"));
                if begun < 10 {
                    reads(&mut host, "b", 1, &[&begin], begun);
                }
                log(&mut host, 20, errors, &[], 10);
                if begun > 10 {
                    reads(&mut host, "b", 30, &[&begin], begun);
                }
                // A reader that starts again sends a begin again.
                reads(&mut host, "b", 30, &[&begin], begun);
                reads(&mut host, boot, 50, &[&begin, &end], 20);
                let left = of_drive(&mut host, "A", 30);
                assert_eq!(left.is_empty(), is_over, "{device} {boot} {begun}: {left:?}");
                // The next one begins anew.
                reads(&mut host, boot, 80, &[&begin, &end], 40);
                assert_eq!(of_drive(&mut host, "A", 50), [""; 0], "{device} {boot}");
                log(&mut host, 2000, errors, &[], 60);
                // Without a begin nothing is known of its extent.
                reads(&mut host, "b", 3000, &[&end], 70);
                assert_eq!(of_drive(&mut host, "A", 71).len(), 1, "{device} {boot}");
            }
        }
    }
}

#[test]
fn a_check_of_dm_raid_is_of_the_only_array_that_was_seen_in_one() {
    let raid = |action: &str| {
        LayerState::DmRaid(DmRaid {
            level: "raid1".into(),
            health: "AA".into(),
            sync_action: Some(action.into()),
            ..DmRaid::default()
        })
    };
    for (seen, marks, is_over) in [
        (&["dm-5"][..], &["+mdX", "-mdX"][..], true),
        (&["dm-6"], &["+mdX", "-mdX"], false),
        // The other one may have ended.
        (&["dm-5", "dm-6"], &["+mdX", "-mdX"], false),
        (&["dm-5"], &["+mdX", "+mdX", "-mdX"], false),
        (&["dm-5"], &["+mdX", "+mdX", "-mdX", "-mdX"], false),
        (&[], &["+mdX", "-mdX"], false),
    ] {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .with(dm("dm-5", "253:5", "vg-lv", "LVM-e", &["sda"]))
            .with(dm("dm-6", "253:6", "vg-other", "LVM-f", &["sda"]))
            .uuid("dm-5", "m")
            .mounted("253:5", "/", "/data", "ext4", "/dev/mapper/vg-lv");
        host.read_all(0);
        for name in ["dm-5", "dm-6"] {
            // A check from before.
            host.layer(name, raid("check"), 1);
            host.layer(name, raid("idle"), 2);
        }
        log(&mut host, 10, &[(Class::Io, "dm-5", &[5000])], &[], 10);
        let (end, begins) = marks.split_last().expect("marks");
        reads(&mut host, "b", 20, begins, 15);
        for name in seen {
            host.layer(name, raid("check"), 18);
        }
        reads(&mut host, "b", 100, &[end], 20);
        let left = of_volume(&mut host, "fs:m", 31);
        assert_eq!(left.is_empty(), is_over, "{seen:?} {marks:?}: {left:?}");
    }
}
