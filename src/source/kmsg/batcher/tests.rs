use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::kmsg::log_epoch::Medium;
use diskvitals_kernel_log::event::Class;
use diskvitals_kernel_log::rollup::MAX_EVENTS;

const BOOT: &str = "bc410abf";
const DEVICE: MediumProperties =
    MediumProperties { contiguous: true, has_newest: true, pieces: Pieces::Flagged };

fn clock() -> KernelClock {
    KernelClock {
        now: Timestamp::from_second(1_700_001_000).expect("in range"),
        monotonic: Duration::from_secs(1000),
    }
}

fn at(seq: u64) -> Timestamp {
    clock().now + SignedDuration::from_millis(seq.cast_signed())
}

fn arrival(seq: u64) -> KernelClock {
    KernelClock { now: at(seq), monotonic: clock().monotonic + Duration::from_millis(seq) }
}

fn batcher(stored: Option<&Cursor>) -> Batcher {
    Batcher::new(
        StartPosition::new(BOOT, Medium::Kmsg, stored),
        DEVICE,
        clock(),
        ClassifierOptions::default(),
    )
}

#[test]
fn a_piece_of_a_line_is_no_evidence() {
    const TEXT: &str = "critical medium error, dev sda, sector 4242 op 0x0:(READ) flags 0x0";
    let old = Pieces::of_release("3.10.0-1160.el7.x86_64", 4);
    let journal = Pieces::Unmarked { default_level: 4 };
    assert_eq!(old, Pieces::FollowingFlagged { default_level: 4 });
    for release in ["4.10.0", "4.19.0-27-amd64", "6.18.44", "unknown"] {
        assert_eq!(Pieces::of_release(release, 4), Pieces::Flagged, "{release}");
    }
    for (pieces, level, flag, device, is_evidence) in [
        (Pieces::Flagged, 3, "-", "", true),
        (Pieces::Flagged, 4, "-", "", true),
        // The name of a control group, which the kernel appends to a line of its own.
        (Pieces::Flagged, 4, "c", "", false),
        (Pieces::Flagged, 3, "c", "", false),
        (Pieces::Flagged, 4, "c", "\n DEVICE=b8:0\n", false),
        (old, 4, "c", "", false),
        (old, 3, "c", "", true),
        (old, 3, "+", "", false),
        (old, 4, "-", "", false),
        (old, 3, "-", "", true),
        (journal, 4, "-", "", false),
        (journal, 3, "-", "", true),
        (journal, 4, "-", "\n DEVICE=b8:0\n", true),
    ] {
        let medium = MediumProperties { pieces, ..DEVICE };
        let start = StartPosition::new(BOOT, Medium::Kmsg, None);
        let mut reading = Batcher::new(start, medium, clock(), ClassifierOptions::default());
        let record = format!("{level},1,1000,{flag},caller=T7;{TEXT}{device}");
        reading.push(record.as_bytes(), arrival(1), None);
        reading.push(noise(2).as_bytes(), arrival(2), None);
        assert_eq!(reading.has_events(), is_evidence, "{pieces:?} {record}");
    }
}

/// Linux 3.5 to 4.9: the kernel stores the pieces of a line one by one where the console was busy.
#[test]
fn the_pieces_of_a_line_are_joined_and_a_piece_alone_is_dropped() {
    let old = Pieces::of_release("3.10.0-1160.el7.x86_64", 4);
    let events = |records: &[&str]| -> Vec<String> {
        let medium = MediumProperties { pieces: old, ..DEVICE };
        let start = StartPosition::new(BOOT, Medium::Kmsg, None);
        let mut reading = Batcher::new(start, medium, clock(), ClassifierOptions::default());
        let records = records.iter().zip(1..);
        let records = records.map(|(record, seq)| record.replacen('#', &seq.to_string(), 1));
        let batches = read(&mut reading, records);
        let events = batches.into_iter().flat_map(|batch| batch.events);
        events
            .map(|event| format!("{} {} {}", event.class.name(), event.device, event.last.text))
            .collect()
    };
    let whole = "medium sda blk_update_request: critical medium error, dev sda, sector 4242";
    let begin = "3,#,1000,c;blk_update_request: ";
    let rest = "4,#,1001,+;critical medium error, dev sda, sector 4242";
    assert_eq!(events(&[begin, rest]), [whole]);
    assert_eq!(events(&[begin, rest, "6,#,1002,-;usb 1-1: new device"]), [whole]);
    let (key, value) = ("4,#,1001,+;critical medium error, ", "4,#,1002,+;dev sda, sector 4242");
    assert_eq!(events(&[begin, key, value]), [whole]);
    // Another line is between them, or the first piece is not there.
    assert_eq!(events(&[begin, "6,#,1001,-;usb 1-1: x", rest]), NOTHING);
    assert_eq!(events(&[rest]), NOTHING);
    // A name that a user has chosen, behind a line of the kernel.
    let chosen = "4,#,1001,+;critical medium error, dev sda, sector 4242 op 0x0:(READ) flags 0x0";
    for first in [
        "6,#,1000,c;Task in /",
        "4,#,1000,c;Memory cgroup stats for /",
        "3,#,1000,c;EXT4-fs error (device ",
    ] {
        assert_eq!(events(&[first, chosen]), NOTHING, "{first}");
        assert_eq!(events(&[first, "6,#,1000,-;x", chosen]), NOTHING, "{first}");
    }
    // Many pieces: what is read stays bounded.
    let mut many = vec![begin];
    many.resize(3000, "4,#,1001,+;0123456789");
    many.push("3,#,2000,-;critical medium error, dev sdb, sector 8 op 0x0:(READ) flags 0x0");
    assert_eq!(events(&many).len(), 1);
}

const NOTHING: [&str; 0] = [];

fn noise(seq: u64) -> String {
    format!("6,{seq},{},-;usb 1-1: new high-speed USB device number 2", seq.wrapping_mul(1000))
}

fn failure(seq: u64, device: &str, sector: u64) -> String {
    format!(
        "3,{seq},{},-;I/O error, dev {device}, sector {sector} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        seq.wrapping_mul(1000)
    )
}

/// Reads the records, and returns the batches that are ready.
fn read(reading: &mut Batcher, records: impl IntoIterator<Item = String>) -> Vec<Batch> {
    for record in records {
        let seq = record::parse(record.as_bytes()).map_or(0, |record| record.seq);
        reading.push(record.as_bytes(), arrival(seq), None);
    }
    reading.finish_batch();
    reading.take_batches()
}

/// The owner's side: events that are counted already are not counted again.
#[derive(Default)]
struct FakeOwner {
    cursor: Option<Cursor>,
    counted: BTreeMap<(Class, String), u64>,
    again: u64,
}

impl FakeOwner {
    fn apply(&mut self, batch: Batch) {
        let known = self
            .cursor
            .as_ref()
            .filter(|cursor| cursor.boot_id == batch.cursor.boot_id)
            .and_then(|cursor| cursor.counted_to);
        let mut last = None;
        for event in batch.events {
            assert!(last.replace(event.seq) <= Some(event.seq), "in the order of seq");
            if Some(event.seq) <= known {
                self.again += event.records;
            } else {
                *self.counted.entry((event.class, event.device.to_string())).or_default() +=
                    event.records;
            }
        }
        assert!(batch.cursor.counted_to >= known, "{:?} after {known:?}", batch.cursor);
        assert!(
            Some(batch.cursor.reread_from)
                <= batch.cursor.counted_to.map(|counted| counted + 1).or(Some(0))
        );
        self.cursor = Some(batch.cursor);
    }

    fn total(&self) -> u64 {
        self.counted.values().sum()
    }
}

#[test]
fn a_new_log_is_read_from_its_oldest_record_without_counting_losses() {
    let mut reading = batcher(None);
    let batches = read(&mut reading, [noise(500), failure(501, "sda", 8)]);
    assert_eq!(batches.len(), 1);
    assert!(batches[0].is_backlog);
    assert_eq!(
        batches[0].cursor,
        Cursor { boot_id: BOOT.into(), counted_to: Some(501), reread_from: 501, lost: 0 },
        "it may go on"
    );
    // The kernel's clock shows 0.501 s after the boot, which was 1000 s ago.
    assert_eq!(
        batches[0].events[0].first.time,
        clock().now - SignedDuration::from_millis(1_000_000 - 501)
    );
    assert_eq!(reading.catch_up(), CatchUp::Live);
    let live = read(&mut reading, [failure(502, "sda", 8)]).pop().expect("a batch");
    assert_eq!((live.is_backlog, live.events[0].first.time), (false, at(502)));
}

/// Live records, each with the kernel's time and that of its arrival in ms, and how many ms the clock
/// has stood still in suspend until then.
fn times(records: &[(u64, u64, u64)]) -> Vec<i64> {
    let mut reading = batcher(None);
    reading.catch_up();
    let times = records.iter().enumerate().map(|(seq, &(written, arrived, suspended))| {
        let record = format!("3,{seq},{},-;I/O error, dev sda, sector 8", written * 1000);
        let clock = KernelClock {
            now: at(arrived),
            monotonic: clock().monotonic + Duration::from_millis(arrived - suspended),
        };
        reading.push(record.as_bytes(), clock, None);
        reading.finish_batch();
        let batch = reading.take_batches().pop().expect("a batch");
        let time = batch.events[0].last.time;
        i64::try_from(time.duration_since(at(0)).as_millis()).expect("in range")
    });
    times.collect()
}

#[test]
fn a_live_record_that_was_read_late_has_the_time_at_which_it_was_written() {
    // 7 s behind our clock; 3 ms until the reader reads.
    let prompt = (10_000, 17_003, 0);
    assert_eq!(times(&[prompt]), [17_003], "nothing to compare with");
    // The daemon was stopped for 20 s.
    let late = [(12_000, 40_000, 0), (39_000, 46_003, 0)];
    assert_eq!(times(&[prompt, late[0], late[1]]), [17_003, 19_003, 46_003]);
    assert_eq!(times(&late), [40_000, 46_003], "never before it was written");
    // An hour in suspend is no delay.
    assert_eq!(times(&[prompt, (11_000, 3_618_003, 3_600_000)]), [17_003, 3_618_003]);
    // In more than ten minutes the clocks may have drifted.
    assert_eq!(times(&[prompt, (610_000, 618_000, 0)]), [17_003, 618_000]);
    assert_eq!(
        times(&[prompt, (610_000, 618_000, 0), (611_000, 618_500, 0)]),
        [17_003, 618_000, 618_500]
    );
}

#[test]
fn the_kernels_clock_is_never_ahead_of_ours() {
    let ahead = read(
        &mut batcher(None),
        [failure(1, "sda", 8).replace(",1000,", ",18446744073709551615,")],
    );
    assert_eq!(ahead[0].events[0].first.time, clock().now);
    let early = KernelClock { monotonic: Duration::MAX, ..clock() };
    let mut early = Batcher::new(
        StartPosition::new(BOOT, Medium::Kmsg, None),
        DEVICE,
        early,
        ClassifierOptions::default(),
    );
    assert_eq!(read(&mut early, [failure(1, "sda", 8)]).len(), 1);
}

#[test]
fn a_jump_of_the_sequence_number_is_a_counted_loss() {
    let mut reading = batcher(None);
    reading.catch_up();
    let batches = read(&mut reading, [noise(1), noise(2), noise(10), noise(11)]);
    let last = batches.last().expect("a batch");
    assert_eq!((last.cursor.lost, last.cursor.counted_to), (7, Some(11)));
    let more = read(&mut reading, [noise(12), noise(20)]);
    assert_eq!(more[0].cursor.lost, 14);
}

#[test]
fn what_a_full_ring_overwrites_while_it_is_read_for_the_first_time_is_not_lost() {
    let later = |seq: u64| noise(seq).replace(&format!(",{},", seq * 1000), ",1000000001,");
    let mut first = batcher(None);
    assert_eq!(read(&mut first, [noise(1), noise(9), noise(10)])[0].cursor.lost, 0);
    // So long a flood that records from after the start are gone too.
    assert_eq!(read(&mut first, [later(15)])[0].cursor.lost, 4);
    let stored = Cursor { boot_id: BOOT.into(), counted_to: Some(1), reread_from: 1, lost: 0 };
    assert_eq!(read(&mut batcher(Some(&stored)), [noise(1), noise(9)])[0].cursor.lost, 7);
}

#[test]
fn records_lost_between_two_runs_are_counted_and_counted_ones_are_not_lost() {
    let stored = Cursor { boot_id: BOOT.into(), counted_to: Some(100), reread_from: 90, lost: 5 };
    // The ring buffer starts among the counted records, or after them.
    assert_eq!(read(&mut batcher(Some(&stored)), [noise(95), noise(96)])[0].cursor.lost, 5);
    let batch = read(&mut batcher(Some(&stored)), [noise(111), noise(112)]).remove(0);
    assert_eq!((batch.cursor.lost, batch.cursor.counted_to), (15, Some(112)));
}

#[test]
fn the_cursor_does_not_go_back_while_counted_records_are_read_again() {
    let stored = Cursor { boot_id: BOOT.into(), counted_to: Some(100), reread_from: 90, lost: 0 };
    let batch = read(&mut batcher(Some(&stored)), (80..95).map(noise)).remove(0);
    assert_eq!(batch.cursor, Cursor { reread_from: 95, ..stored });
}

#[test]
fn a_cursor_beyond_the_end_belongs_to_another_log() {
    let stored = Cursor {
        boot_id: BOOT.into(),
        counted_to: Some(1_000_000),
        reread_from: 1_000_001,
        lost: 0,
    };
    let mut reading = batcher(Some(&stored));
    assert!(read(&mut reading, (0..10).map(noise))[0].events.is_empty());
    assert_eq!(reading.catch_up(), CatchUp::CursorAhead);
    let mut at_its_end = self::batcher(Some(&stored));
    read(&mut at_its_end, [noise(1_000_000)]);
    assert_eq!(at_its_end.catch_up(), CatchUp::Live);
    // A pipe may have no record yet.
    let mut pipe = Batcher::new(
        StartPosition::new(BOOT, Medium::Kmsg, Some(&stored)),
        MediumProperties { has_newest: false, ..DEVICE },
        clock(),
        ClassifierOptions::default(),
    );
    assert_eq!(pipe.catch_up(), CatchUp::Live);
}

#[test]
fn another_boot_is_read_from_its_start() {
    let stored = Cursor {
        boot_id: "another".into(),
        counted_to: Some(1_000_000),
        reread_from: 1_000_001,
        lost: 7,
    };
    let batch = read(&mut batcher(Some(&stored)), [failure(3, "sda", 8)]).remove(0);
    assert_eq!((batch.events.len(), batch.cursor.lost, batch.cursor.counted_to), (1, 0, Some(3)));
}

#[test]
fn numbers_that_go_back_are_another_log_and_the_cursor_says_so() {
    let mut reading = batcher(None);
    let batches =
        read(&mut reading, [failure(10, "sda", 8), failure(3, "sda", 8), failure(4, "sda", 8)]);
    let reported: Vec<_> = batches
        .iter()
        .map(|batch| (batch.cursor.boot_id.as_str(), batch.cursor.counted_to, batch.events.len()))
        .collect();
    assert_eq!(reported, [("bc410abf", Some(10), 1), ("bc410abf+1", Some(4), 1)]);
    let mut ledger = FakeOwner::default();
    batches.into_iter().for_each(|batch| ledger.apply(batch));
    assert_eq!(ledger.total(), 3);
    // A new run recognizes the same epoch.
    let batch =
        read(&mut self::batcher(ledger.cursor.as_ref()), (0..6).map(|seq| failure(seq, "sda", 8)))
            .remove(0);
    assert_eq!(
        (
            batch.cursor.boot_id.as_str(),
            batch
                .events
                .iter()
                .filter(|event| event.seq > 4)
                .map(|event| event.records)
                .sum::<u64>()
        ),
        ("bc410abf+1", 1)
    );
}

#[test]
fn events_before_a_device_was_attached_are_not_attributed_to_it() {
    let attached = |seq: u64| format!("5,{seq},{seq}000,-;sd 2:0:0:0: [sda] Attached SCSI disk");
    let log = [
        failure(3, "sda", 8),
        attached(5),
        failure(7, "sda", 8),
        failure(8, "sdb", 8),
        attached(9),
        failure(10, "sda", 16),
    ];
    let reported = |log: &[String]| -> Vec<_> {
        let events = read(&mut batcher(None), log.to_vec()).remove(0).events;
        events.iter().map(|event| (event.seq, event.device.to_string())).collect()
    };
    assert_eq!(reported(&log), [(8, "sdb".to_owned()), (10, "sda".to_owned())]);
    assert_eq!(reported(&log[..2]), [(3, "sda".to_owned())], "while it was probed");
    // Live, the owner knows who had the name.
    let mut live = batcher(None);
    live.catch_up();
    assert_eq!(
        read(&mut live, log)
            .pop()
            .expect("a batch")
            .events
            .iter()
            .filter(|event| event.device.to_string() == "sda")
            .count(),
        3
    );
}

#[test]
fn a_drive_attached_while_the_daemon_was_down_does_not_inherit_events() {
    let stored = Cursor { boot_id: BOOT.into(), counted_to: Some(5), reread_from: 6, lost: 0 };
    let at = |text: String, usec: u64| {
        text.replacen(
            &format!(",{}000,", text.split(',').nth(1).expect("a number")),
            &format!(",{usec},"),
            1,
        )
    };
    let log = [
        at(failure(6, "sda", 8), 10_000_000),
        "5,7,100000000,-;sd 2:0:0:0: [sda] Attached SCSI disk".to_owned(),
        at(failure(8, "sda", 16), 101_000_000),
    ];
    let events = read(&mut batcher(Some(&stored)), log).remove(0).events;
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_record_that_comes_twice_is_one() {
    assert_eq!(
        read(&mut batcher(None), [failure(3, "sda", 8), failure(3, "sda", 8)])[0].events[0].count,
        1
    );
}

#[test]
fn only_records_of_the_kernel_facility_are_classified() {
    let users = failure(4, "sda", 8).replacen("3,", "11,", 1);
    let batch = read(&mut batcher(None), [users, noise(5)]).remove(0);
    assert_eq!((batch.events.len(), batch.cursor.counted_to), (0, Some(5)));
}

#[test]
fn only_live_records_are_reported_after_a_change_of_medium() {
    let stored =
        Cursor { boot_id: format!("{BOOT}/journal"), counted_to: Some(7), reread_from: 8, lost: 0 };
    let mut reading = batcher(Some(&stored));
    assert!(read(&mut reading, [failure(1, "sda", 8)])[0].events.is_empty());
    assert_eq!(reading.catch_up(), CatchUp::Live);
    let batch = read(&mut reading, [failure(2, "sda", 8)]).pop().expect("a batch");
    assert_eq!(
        (batch.events.len(), batch.cursor.boot_id.as_str(), batch.cursor.counted_to),
        (1, "bc410abf+1", Some(2))
    );
}

#[test]
fn junk_is_skipped_and_counted() {
    let mut reading = batcher(None);
    for junk in [&b""[..], b"\0\xff\xfe", b";", b"6,1", b"x,y,z,-;t", &[b'7'; 70_000]] {
        reading.push(junk, arrival(0), None);
    }
    assert_eq!(
        (reading.unreadable, reading.has_events(), reading.cursor().counted_to),
        (6, false, None)
    );
}

#[test]
fn a_sequence_number_at_the_end_of_all_numbers_does_no_harm() {
    let mut reading = batcher(None);
    let batches =
        read(&mut reading, [noise(1), failure(u64::MAX, "sda", 8), failure(u64::MAX, "sda", 8)]);
    assert_eq!(
        (batches[0].cursor.counted_to, batches[0].cursor.lost),
        (Some(u64::MAX), u64::MAX - 2)
    );
    read(&mut reading, [noise(2)]);
}

#[test]
fn a_flood_of_a_million_records_of_a_thousand_devices_is_a_bounded_batch_with_exact_counts() {
    let mut reading = batcher(None);
    let mut record = String::new();
    for seq in 0..1_000_000_u64 {
        use std::fmt::Write;
        record.clear();
        write!(
            record,
            "3,{seq},{seq},-;I/O error, dev dm-{}, sector {} op 0x0:(READ) flags 0x0",
            seq % 1000,
            seq * 8
        )
        .expect("into a string");
        reading.push(record.as_bytes(), arrival(0), None);
        assert!(
            reading.events.len() <= ROLLUP_THRESHOLD
                && reading.attached.len() <= MAX_ATTACHED
                && reading.ready.is_empty()
        );
    }
    reading.finish_batch();
    let batch = reading.take_batches().pop().expect("a batch");
    assert!(batch.events.len() <= MAX_EVENTS, "{}", batch.events.len());
    assert_eq!(batch.events.iter().map(|event| event.records).sum::<u64>(), 1_000_000);
    assert_eq!(batch.cursor.counted_to, Some(999_999));
}

/// A log of incidents, some of several records, among noise, with gaps and with records of user
/// space.
fn log() -> impl Strategy<Value = Vec<String>> {
    let record = (0..8_u8, 0..3_u64, 0..4_u64, prop_oneof![20 => Just(1_u64), 1 => 2..50_u64]);
    prop::collection::vec(record, 1..120).prop_map(|records| {
        let mut seq = 7;
        let mut log = Vec::new();
        for (what, device, sector, step) in records {
            seq += step;
            let (letter, host) = (["sda", "sdb", "sdc"][device as usize], device + 2);
            let sd = |text: &str| {
                format!("3,{seq},{},-;sd {host}:0:0:0: [{letter}] tag#1 {text}\n SUBSYSTEM=scsi\n DEVICE=+scsi:{host}:0:0:0", seq * 1000)
            };
            log.push(match what {
                0 | 1 => failure(seq, letter, sector * 8 + 2048),
                2 => failure(seq, letter, sector).replacen("3,", "11,", 1),
                3 => sd("FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=0s"),
                4 => sd("Sense Key : Medium Error [current] "),
                5 => sd("Add. Sense: Unrecovered read error"),
                _ => noise(seq),
            });
        }
        log
    })
}

proptest! {
    #[test]
    fn stopped_and_resumed_anywhere_it_counts_the_same(log in log(), runs in prop::collection::vec((1..40_usize, 1..6_usize, any::<bool>()), 1..12)) {
        // Without a stop.
        let stored = Cursor { boot_id: BOOT.into(), counted_to: Some(0), reread_from: 0, lost: 0 };
        let mut whole = FakeOwner::default();
        let mut only = batcher(Some(&stored));
        read(&mut only, log.clone()).into_iter().for_each(|batch| whole.apply(batch));

        // Each run reads some records, cuts a batch now and then, and is killed; the last batch may
        // not have been stored.
        let mut ledger = FakeOwner { cursor: Some(stored), ..FakeOwner::default() };
        let mut place = 0;
        for (length, every, stored) in runs {
            let mut run = batcher(ledger.cursor.as_ref());
            for (at_record, record) in log.iter().take(place + length).enumerate() {
                run.push(record.as_bytes(), arrival(0), None);
                if at_record % every == 0 {
                    run.finish_batch();
                    run.take_batches().into_iter().for_each(|batch| ledger.apply(batch));
                }
            }
            run.finish_batch();
            if stored {
                run.take_batches().into_iter().for_each(|batch| ledger.apply(batch));
            }
            place += length;
        }
        let mut last = batcher(ledger.cursor.as_ref());
        read(&mut last, log).into_iter().for_each(|batch| ledger.apply(batch));
        prop_assert_eq!(&ledger.counted, &whole.counted);
        prop_assert_eq!(ledger.cursor.map(|cursor| (cursor.counted_to, cursor.lost)), whole.cursor.map(|cursor| (cursor.counted_to, cursor.lost)));
    }

    #[test]
    fn no_record_makes_it_panic(records in prop::collection::vec(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        (any::<u16>(), any::<u64>(), any::<u64>()).prop_map(|(priority, seq, time)| format!("{priority},{seq},{time},-;I/O error, dev sda, sector {seq}").into_bytes()),
    ], 0..60), stored in prop::option::of((any::<u64>(), any::<u64>(), any::<u64>()))) {
        let stored = stored.map(|(counted, reread, lost)| Cursor { boot_id: BOOT.into(), counted_to: Some(counted), reread_from: reread, lost });
        let mut reading = batcher(stored.as_ref());
        for record in records {
            reading.push(&record, arrival(0), None);
        }
        reading.catch_up();
        reading.finish_batch();
        reading.take_batches();
    }
}
