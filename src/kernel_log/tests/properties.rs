//! Properties that hold for any log.

use super::*;
use crate::rules;

fn fragment() -> impl Strategy<Value = String> {
    let words = [
        "sd 0:0:0:0: [sda] ",
        "sd 1:0:0:0: ",
        "ata1.00: ",
        "ata1: ",
        "nvme nvme0: ",
        "nvme0n1: ",
        "EXT4-fs error (device sda1): ",
        "XFS (dm-20): ",
        "BTRFS error (device sda3): ",
        "md/raid1:md0: ",
        "device-mapper: thin: 253:4: ",
        "tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK",
        "Sense Key : Medium Error [current]",
        "Sense Key : 0x2 [",
        "Add. Sense: Unrecovered read error",
        "ASC=0x11 ASCQ=0x0",
        "CDB: Read(10) 28 00 00",
        "exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x6",
        "res 41/40:00:00:00:00/00:00:00:00:00/00 Emask 0x409 (media error)",
        "error: { UNC }",
        "hard resetting link",
        "disabled",
        "I/O 5 QID 1 timeout, aborting",
        "I/O error, dev sda, sector 99",
        "critical medium error, dev sda, sector 7 op 0x0:(READ)",
        "312 callbacks suppressed",
        "Disk failure on sdb1",
        "Internal error x at line 1",
        "attempting task abort! scmd(1)",
        "Linux version 6",
        " (sct 0x2 / sc 0x81)",
        "rejecting I/O to offline device",
        "scsi host1: ahci",
        "Attached SCSI disk",
        "\\",
        "[",
        "(",
        "é",
        "\u{0}",
    ];
    prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(fragment(), 1..4).prop_map(|parts| parts.concat())
}

/// One message of each kind that blames a drive or a filesystem, retracts evidence, or changes what
/// is known of devices.
const MESSAGES: [&str; 40] = [
    "critical medium error, dev vda, sector 4242 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "blk_update_request: I/O error, dev sda, sector 4242",
    "x: critical medium error, dev vda, sector 4242 op 0x0:(READ)",
    "critical target error, dev loop0, sector 8 op 0x0:(READ)",
    "Buffer I/O error on dev loop0, logical block 5, async page read",
    "loop0: rw=0, want=12, limit=4",
    "attempt to access beyond end of device\nloop0: rw=0, want=12, limit=4",
    "x: attempt to access beyond end of device\nloop0: rw=0, sector=12, nr_sectors = 8 limit=4",
    "sda: detected capacity change from 1000 to 0",
    "loop0: detected capacity change from 0 to 1000",
    "print_req_error: 312 callbacks suppressed",
    "EXT4-fs (vda): hecksum invalid",
    "EXT4-fs (vda): Remounting filesystem read-only",
    "EXT4-fs (vda): mounted filesystem with ordered data mode. Opts: (null)",
    "EXT4-fs error (device vda): ext4_lookup:1584: inode #2: comm ls: deleted inode referenced: 12",
    "EXT4-fs (vda): shut down requested (1)",
    "Aborting journal on device vda-8.",
    "JBD2: recovery failed",
    "XFS (vda): Internal error x at line 1 of file fs/xfs/xfs_alloc.c.  Caller x",
    "XFS (vda): Metadata corruption detected at xfs_agf_read_verify+0x1/0x2 [xfs], xfs_agf block 0x1",
    "XFS (vda): User initiated shutdown received.",
    "BTRFS error (device vda): parent transid verify failed on 1 wanted 2 found 3",
    "BTRFS error (device vda): bdev /dev/vda errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
    "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK",
    "sd 0:0:0:0: [sda] tag#1 Sense Key : Medium Error [current]",
    "Sense Key : Medium Error [current]",
    "Sense Key : 0x3 [current]",
    "Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK",
    "CDB: Read(10) 28 00 00 00 00 00 00 00 08 00",
    "sd 0:0:0:0: rejecting I/O to offline device",
    "scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK    2.5+ PQ: 0 ANSI: 5",
    "ata1.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x6",
    "ata1.00: error: { UNC }",
    "res 41/40:00:00:00:00/00:00:00:00:00/00 Emask 0x409 (media error) <F>",
    "nvme nvme0: I/O 5 QID 1 timeout, reset controller",
    "nvme0n1: Read(0x2) @ LBA 8, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81)",
    "md/raid1:md0: Disk failure on vda1, disabling device.",
    "device-mapper: thin: 253:4: switching pool to read-only mode",
    "Linux version 6.1.0",
    "Hypervisor detected: KVM",
];

#[test]
fn the_messages_themselves_are_recognized() {
    let unknown: Vec<&str> =
        MESSAGES.into_iter().filter(|text| rules::table().parse(text).is_none()).collect();
    assert_eq!(
        unknown,
        [
            "x: critical medium error, dev vda, sector 4242 op 0x0:(READ)",
            "EXT4-fs (vda): hecksum invalid",
        ]
    );
}

/// The text in every place of a record that a user fills, also from its 16th byte on.
fn assert_proves_nothing(text: &str) {
    for quoted in [text.to_owned(), format!("x\n{text}"), format!("\n{text}")] {
        for record in foreign_text::records(&quoted) {
            assert!(
                rules::table().parse(&record).is_none(),
                "{record}\n  is read as the kernel's own message"
            );
        }
    }
}

#[test]
fn a_message_that_the_kernel_quotes_for_a_user_proves_nothing() {
    MESSAGES.iter().for_each(|text| assert_proves_nothing(text));
}

#[test]
fn the_name_of_the_program_and_a_path_decide_nothing_in_a_filesystems_error() {
    for name in [
        "x",
        "IO failure",
        "x: IO failure",
        "error -5",
        "sda: I/O error",
        "No space left",
        "a: b: c",
        ") in f:1: x",
    ] {
        for (message, expected) in [
            ("deleted inode referenced: 12", "fs-corruption sdb unclear"),
            ("reading directory lblock 0", "fs-error sdb unclear"),
        ] {
            for text in [
                format!(
                    "EXT4-fs error (device sdb): ext4_lookup:1584: inode #2: comm {name}: {message}"
                ),
                format!(
                    "EXT4-fs error (device sdb): ext4_readdir:1584: inode #2: block 5: comm x: path /a/{name}: {message}"
                ),
            ] {
                assert_eq!(classify_to_text(&text), expected, "{text}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_that_the_kernel_quotes_for_a_user_proves_anything(text in text()) {
        assert_proves_nothing(&text);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = record::parse(&bytes);
    }

    #[test]
    fn events_are_bounded_and_in_order(texts in proptest::collection::vec(text(), 1..80)) {
        let mut classifier = Classifier::new(ClassifierOptions::default());
        let mut events = Vec::new();
        for (seq, text) in texts.iter().enumerate() {
            let before = events.len();
            classifier.push(&Record::from_text(seq as u64, seq as u64 * 777, text), Timestamp::UNIX_EPOCH, &mut events);
            // A record emits events of itself, and of the incidents that it ends.
            prop_assert!(events[before..].iter().all(|event| event.seq == seq as u64));
        }
        for event in &events {
            prop_assert!(event.count <= 1 && event.sectors.len() <= 1 && event.last.text.len() <= 1024 && event.first.text.len() <= 1024);
        }
    }

    /// A reader that starts again at `oldest_open` decides everything after it the same way.
    #[test]
    fn replaying_from_the_oldest_open_record_decides_the_same(texts in proptest::collection::vec(text(), 1..60), cut in 0_usize..60, gap in 1_u64..40_000_000) {
        let cut = cut.min(texts.len() - 1);
        let run = |classifier: &mut Classifier, from: usize, to: usize| {
            let mut events = Vec::new();
            for (seq, text) in texts.iter().enumerate().take(to).skip(from) {
                classifier.push(&Record::from_text(seq as u64, seq as u64 * gap, text), Timestamp::UNIX_EPOCH, &mut events);
            }
            events
        };
        let mut whole = Classifier::new(ClassifierOptions::default());
        run(&mut whole, 0, cut);
        let from = whole.oldest_open().map_or(cut, |seq| seq as usize);
        let expected = run(&mut whole, cut, texts.len());
        let mut again = Classifier::new(ClassifierOptions::default());
        let replayed = run(&mut again, from, texts.len());
        let after: Vec<_> = replayed.into_iter().filter(|event| event.seq >= cut as u64).map(|event| (event.seq, event.class, event.count)).collect();
        let expected: Vec<_> = expected.into_iter().map(|event| (event.seq, event.class, event.count)).collect();
        prop_assert_eq!(after, expected);
    }
}

#[test]
fn records_of_user_space_are_ignored() {
    let mut events = Vec::new();
    let mut forged =
        Record::from_text(1, 1, "critical medium error, dev sda, sector 7 op 0x0:(READ)");
    forged.facility = 1;
    Classifier::new(ClassifierOptions::default()).push(&forged, Timestamp::UNIX_EPOCH, &mut events);
    assert!(events.is_empty());
}

/// Found by fuzzing: a flood of records from programs kept an incident open, and a reader would
/// have started far back.
#[test]
fn user_space_records_count_towards_expiry() {
    let (mut classifier, mut events) = (Classifier::new(ClassifierOptions::default()), Vec::new());
    classifier.push(
        &Record::from_text(1, 1, "I/O error, dev sda, sector 99"),
        Timestamp::UNIX_EPOCH,
        &mut events,
    );
    let mut forged = Record::from_text(50_000, 2, "anything");
    forged.facility = 3;
    classifier.push(&forged, Timestamp::UNIX_EPOCH, &mut events);
    assert_eq!(classifier.oldest_open(), None);
}

#[test]
fn suppressed_callbacks_are_counted() {
    let events = classify(
        "print_req_error: 312 callbacks suppressed\nblk_update_request: I/O error, dev sdb, sector 9",
    );
    assert_eq!(events.iter().map(|event| event.suppressed).collect::<Vec<_>>(), [312]);
}

#[test]
fn an_admitted_loop_device_is_classified() {
    let mut events = Vec::new();
    let mut classifier = Classifier::new(ClassifierOptions {
        admit: vec!["loop*".to_owned()],
        ..ClassifierOptions::default()
    });
    classifier.push(
        &Record::from_text(
            1,
            1,
            "I/O error, dev loop3, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        ),
        Timestamp::UNIX_EPOCH,
        &mut events,
    );
    assert_eq!(events.len(), 1);
}

#[test]
fn disk_name_assignments_are_reported() {
    let mut classifier = Classifier::new(ClassifierOptions::default());
    for (seq, text) in [
        "sd 2:0:0:0: [sdb] Attached SCSI disk",
        "nvme nvme1: pci function 0000:05:00.0",
        "mmcblk0: mmc0:0001 DG4016 14.7 GiB",
    ]
    .iter()
    .enumerate()
    {
        classifier.push(
            &Record::from_text(seq as u64, 0, text),
            Timestamp::UNIX_EPOCH,
            &mut Vec::new(),
        );
    }
    assert_eq!(
        classifier
            .take_name_assignments()
            .iter()
            .map(|attached| attached.name.clone())
            .collect::<Vec<_>>(),
        ["sdb", "nvme1", "mmcblk0"]
    );
}

#[test]
fn a_name_assignment_is_reported_and_ends_the_open_incident() {
    let assigned = |text: &str| {
        let mut classifier = Classifier::new(ClassifierOptions {
            admit: vec!["loop*".to_owned()],
            ..ClassifierOptions::default()
        });
        classifier.push(&Record::from_text(1, 0, text), Timestamp::UNIX_EPOCH, &mut Vec::new());
        classifier
            .take_name_assignments()
            .into_iter()
            .map(|attached| (attached.name, attached.is_filesystem))
            .next()
    };
    for (text, name, filesystem) in [
        ("loop3: detected capacity change from 0 to 164305", "loop3", false),
        (
            "virtio_blk virtio1: [vda] 164305 512-byte logical blocks (67.1 MB/64.0 MiB)",
            "vda",
            false,
        ),
        ("EXT4-fs (dm-22): mounted filesystem with ordered data mode. Opts: (null)", "dm-22", true),
        (
            "XFS (nvme0n1p3): Mounting V5 Filesystem 6b1d3b1e-7a57-4b61-8e0e-1b9a3d1f8a11",
            "nvme0n1p3",
            true,
        ),
        (
            "BTRFS info (device sdc1): first mount of filesystem e8abcaed-9001-4251-b79c-0ef7c4c1ded6",
            "sdc1",
            true,
        ),
    ] {
        assert_eq!(assigned(text), Some((name.to_owned(), filesystem)), "{text}");
    }
    assert_eq!(assigned("EXT4-fs (sda1): re-mounted 2a5b r/w."), Some(("sda1".to_owned(), true)));
    assert_eq!(assigned("loop3: detected capacity change from 164305 to 295477"), None);
    let shutdown = "XFS (sda1): Filesystem has been shut down due to log error (0x2).";
    let events = classify(&format!("{shutdown}\nXFS (sda1): Mounting V5 Filesystem\n{shutdown}"));
    assert_eq!(events.iter().map(|event| event.count).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn an_hour_of_failures_is_a_few_incidents_in_bounded_memory() {
    let mut classifier = Classifier::new(ClassifierOptions::default());
    let (mut incidents, mut events) = (0, Vec::new());
    for seq in 0..100_000_u64 {
        classifier.push(
            &Record::from_text(
                seq,
                seq * 36_000,
                &format!(
                    "I/O error, dev sd{}, sector {seq} op 0x0:(READ) flags 0",
                    ['a', 'b'][seq as usize % 2]
                ),
            ),
            Timestamp::UNIX_EPOCH,
            &mut events,
        );
        incidents += events.drain(..).map(|event| event.count).sum::<u64>();
        assert!(classifier.oldest_open().is_none_or(|from| seq - from <= 16_384));
    }
    assert!((2..60).contains(&incidents), "{incidents}");
}
