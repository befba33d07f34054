use super::*;
use crate::block::LayerState;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::stack::DmRaid;
use diskvitals_finding::observation::Observation;
use diskvitals_kernel_log::event::{Batch, Cursor, FullRead};

/// The same host after a restart of the daemon, as its store had it.
fn restarted(host: &TestHost, change: impl Fn(&mut CounterKey, &mut CounterHistory)) -> TestHost {
    let stored = host.facts.counters.iter().map(|(key, note)| {
        let (mut key, mut note) = (key.clone(), (**note).clone());
        change(&mut key, &mut note);
        (key, note)
    });
    let stored = stored.collect();
    let mut again = TestHost { facts: Facts::default(), ..host.clone() };
    again.facts.counters.restore(stored);
    again.read_all(0);
    again
}

fn unchanged(_: &mut CounterKey, _: &mut CounterHistory) {}

/// The log has the begin of a pass, and its end one second later.
fn pass(host: &mut TestHost, seq: u64, device: &str, member: Option<u64>, second: i64) {
    let read = |seq, is_done, second| FullRead {
        seq,
        device: device.into(),
        member,
        at: at(second),
        is_done,
    };
    let cursor = Cursor { boot_id: "b".into(), counted_to: Some(seq + 1), reread_from: 0, lost: 0 };
    let batch = Batch {
        cursor,
        events: Vec::new(),
        name_assignments: Vec::new(),
        full_reads: vec![read(seq, false, second), read(seq + 1, true, second + 1)],
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), second + 1);
}

fn ended_and_found(pass: WholePass) -> (Option<Timestamp>, Option<u64>) {
    (pass.ended, pass.found)
}

#[test]
fn a_pass_over_lvms_raid_is_remembered_by_the_uuid_of_its_device() {
    let raid = |action: &str, mismatches| {
        LayerState::DmRaid(DmRaid {
            level: "raid1".into(),
            health: "AA".into(),
            sync_action: Some(action.into()),
            mismatches: Some(mismatches),
            ..DmRaid::default()
        })
    };
    let mut host = TestHost::default()
        .with(dm("dm-0", "253:0", "vg-home", "LVM-1", &["sda", "sdb"]))
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B");
    host.read_all(0);
    host.layer("dm-0", raid("idle", 0), 5);
    assert_eq!(host.facts.last_pass("dm-0").watched_since, Some(at(5)));
    host.layer("dm-0", raid("check", 0), 10);
    pass(&mut host, 1, "mdX", None, 10);
    host.layer("dm-0", raid("idle", 8), 20);
    let again = restarted(&host, unchanged);
    for host in [host, again] {
        let known = host.facts.last_pass("dm-0");
        assert_eq!(ended_and_found(known), (Some(at(11)), Some(8)));
        assert_eq!(known.watched_since, Some(at(5)));
    }
}

#[test]
fn a_pass_that_an_earlier_version_noted_is_still_known() {
    let mut host = TestHost::default()
        .with(device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda"]))
        .disk("sda", "8:0", "A");
    host.inventory.devices.get_mut("md0").unwrap().links =
        vec!["/dev/disk/by-id/md-uuid-1:2:3:4".into()];
    host.read_all(0);
    let ended = Some(at(100));
    for device in ["md0", "zfs:tank"] {
        let known = WholePass { ended, found: Some(4), is_in_parts: true, watched_since: None };
        host.facts.record_pass(device, known);
        let again = restarted(&host, |key, note| {
            let found = note.details.remove("found").unwrap();
            if key.0 == Subject::Device("zfs:tank".into()) {
                key.1 = "zfs-scrub".into();
                note.details.insert("errors".into(), found);
            } else {
                key.1 = "md-read last".into();
                note.details.insert("differing".into(), found);
                note.details.insert("ended".into(), at(100).to_string());
            }
        });
        assert_eq!(again.facts.last_pass(device), known, "{device}");
    }
}

#[test]
fn what_was_noted_before_the_store_was_read_does_not_hide_what_it_has() {
    let note = |details: &[(&str, &str)]| {
        let mut note = CounterHistory::note("file".into(), [("pool", None)]);
        let details = details.iter().map(|(name, text)| ((*name).into(), (*text).into()));
        note.details = details.collect();
        note
    };
    let stored = note(&[("ended", "5"), ("found", "1"), ("watched", "old")]);
    let after = |newer: &CounterHistory| merged(stored.clone(), Some(newer));
    assert_eq!(after(&note(&[("watched", "new")])), stored);
    let newer = note(&[("ended", "9"), ("watched", "new")]);
    assert_eq!(after(&newer), note(&[("ended", "9"), ("watched", "old")]));
    let (before, other) = (note(&[("pool", "1")]), note(&[("pool", "2")]));
    assert_eq!(merged(before, Some(&other)), other, "another pool of this name");
}

#[test]
fn an_array_that_was_elsewhere_is_watched_anew() {
    let md = || {
        LayerState::Md(crate::stack::MdState {
            level: "raid1".into(),
            raid_disks: 2,
            ..Default::default()
        })
    };
    let mut host = TestHost::default()
        .with(device("md0", "9:0", Layer::Md { level: Some("raid1".into()) }, &["sda"]))
        .disk("sda", "8:0", "A");
    host.inventory.devices.get_mut("md0").unwrap().links =
        vec!["/dev/disk/by-id/md-uuid-1:2:3:4".into()];
    host.read_all(0);
    host.layer("md0", md(), 5);
    let since = |host: &TestHost| host.facts.last_pass("md0").watched_since;
    host.layer("md0", md(), 10);
    assert_eq!(since(&host), Some(at(5)));
    let stopped = host.inventory.devices.remove("md0").unwrap();
    host.scan(20);
    host.inventory.devices.insert("md0".into(), stopped);
    host.scan(30);
    host.layer("md0", md(), 31);
    assert_eq!(since(&host), Some(at(31)));
}

fn btrfs() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .mounted("0:41", "/", "/data", "btrfs", "/dev/sda");
    host.inventory.btrfs.push(BtrfsFs {
        uuid: "u".into(),
        devices: vec!["sda".into(), "sdb".into()],
        member_ids: vec![1, 2],
        ..BtrfsFs::default()
    });
    host.read_all(0);
    host
}

/// A reading of the record: of each member the end and the errors, or nothing of them.
fn record(host: &mut TestHost, members: [Option<(i64, u64)>; 2], second: i64) {
    let reading = |(index, end): (usize, &Option<(i64, u64)>)| {
        let (name, id) = [("sda", "1"), ("sdb", "2")][index];
        let values = end.iter().flat_map(|(end, errors)| {
            let end = at(*end).as_second().unsigned_abs();
            [("ended".to_owned(), end), ("errors".to_owned(), *errors)]
        });
        CounterReading {
            device: CounterDevice::Block(name.into()),
            source: "btrfs-scrub".into(),
            file: format!("record of {id}"),
            values: values.collect(),
            details: [("devid".to_owned(), id.to_owned())].into(),
        }
    };
    let readings = members.iter().enumerate().map(reading).collect();
    host.apply(SourceUpdate::Counters(Observation::ok(at(second), readings)), second);
}

fn btrfs_pass(host: &TestHost) -> (Option<Timestamp>, Option<u64>) {
    ended_and_found(host.facts.last_pass_of_btrfs(&host.inventory.btrfs[0]))
}

#[test]
fn a_scrub_of_a_btrfs_has_ended_when_that_of_its_last_member_has() {
    let mut host = btrfs();
    record(&mut host, [None, None], 10);
    assert_eq!(btrfs_pass(&host), (None, None));
    record(&mut host, [Some((20, 1)), None], 30);
    assert_eq!(btrfs_pass(&host), (None, None), "one member");
    record(&mut host, [Some((20, 1)), Some((25, 2))], 40);
    assert_eq!(btrfs_pass(&host), (Some(at(20)), Some(3)));
    let again = restarted(&host, unchanged);
    assert_eq!(btrfs_pass(&again), (Some(at(20)), Some(3)));
    // The next one runs.
    record(&mut host, [None, None], 50);
    assert_eq!(btrfs_pass(&host), (Some(at(20)), Some(3)));
    // The log has the end before the record is read again.
    pass(&mut host, 1, "sda", Some(1), 500);
    assert_eq!(btrfs_pass(&host), (Some(at(20)), Some(3)));
    pass(&mut host, 10, "sdb", Some(2), 500);
    assert_eq!(btrfs_pass(&host), (Some(at(501)), None));
    record(&mut host, [Some((20, 1)), Some((25, 2))], 510);
    assert_eq!(btrfs_pass(&host), (Some(at(501)), None), "an old record of another root");
    record(&mut host, [Some((500, 0)), Some((501, 0))], 520);
    assert_eq!(btrfs_pass(&host), (Some(at(500)), Some(0)));
}

#[test]
fn the_record_of_a_btrfs_scrub_is_read_at_the_start_and_each_day() {
    let mut host = btrfs();
    let is_due = |host: &TestHost| host.facts.probe_targets()[0].awaited_scrub.is_some();
    assert!(is_due(&host));
    record(&mut host, [None, None], 10);
    assert!(!is_due(&host));
    host.apply(SourceUpdate::Counters(Observation::ok(at(80_000), Vec::new())), 80_000);
    assert!(!is_due(&host));
    host.apply(SourceUpdate::Counters(Observation::ok(at(86_410), Vec::new())), 86_410);
    assert!(is_due(&host));
}
