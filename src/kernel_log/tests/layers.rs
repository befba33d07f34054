//! md, device-mapper, bcache.

use super::*;

#[test]
fn md_errors_name_the_member() {
    check(&[
        (
            "md/raid1:md0: Disk failure on sdb1, disabling device.\\nmd/raid1:md0: Operation continuing on 1 devices.",
            "removed sdb1 unclear",
        ),
        ("md/raid:md3: Disk failure on sdk1, disabling device.", "removed sdk1 unclear"),
        (
            "md/raid0:md0: Disk failure on nvme0n1 detected, failing array.",
            "removed nvme0n1 unclear",
        ),
        ("md: super_written gets error=-5, uptodate=0", "nothing"),
        ("md: super_written gets error=-5", "nothing"),
        (
            "md/raid:md127: read error corrected (8 sectors at 8285246349 on sdb1)",
            "io sdb1 unclear 8285246349 corrected",
        ),
        (
            "md/raid:md0: read error NOT corrected!! (sector 2837989 on sdj1).",
            "io sdj1 unclear 2837989",
        ),
        (
            "md/raid:md0: read error not correctable (sector 2837989 on sdj1).",
            "io sdj1 unclear 2837989",
        ),
        ("md/raid:md0: Too many read errors, failing device sdc1.", "removed sdc1 unclear"),
        (
            "md/raid10:md0: sdb1: Raid device exceeded read_error threshold [cur 21:max 20]",
            "removed sdb1 unclear",
        ),
        ("md/raid1:md0: sda1: unrecoverable I/O read error for block 0", "io md0 unclear"),
        ("md/raid1:md0: rescheduling sector 2048", "nothing"),
        ("md: data-check of RAID array md0\nmd: md0: data-check done.", "nothing"),
        ("md/raid1:md0: not clean -- starting background reconstruction", "nothing"),
        ("md: kicking non-fresh sdb1 from array!", "removed sdb1 unclear"),
    ]);
}

#[test]
fn device_mapper_pool_and_checksum_errors() {
    check(&[
        (
            "device-mapper: thin: 253:6: reached low water mark for data device: sending event.",
            "nothing",
        ),
        (
            "device-mapper: thin: 253:6: switching pool to out-of-data-space (queue IO) mode",
            "readonly 253:6 no",
        ),
        (
            "device-mapper: thin: 253:6: switching pool to out-of-data-space (error IO) mode",
            "readonly 253:6 no",
        ),
        ("device-mapper: thin: 253:6: switching pool to read-only mode", "readonly 253:6 no"),
        ("device-mapper: thin: 253:6: switching pool to write mode", "nothing"),
        (
            "device-mapper: thin: 253:8: metadata operation 'dm_thin_insert_block' failed: error = -28\ndevice-mapper: thin: 253:8: aborting current metadata transaction",
            "readonly 253:8 no",
        ),
        (
            "device-mapper: integrity: dm-20: Checksum failed at sector 0x51a8",
            "fs-corruption dm-20 unclear",
        ),
        (
            "device-mapper: crypt: dm-20: INTEGRITY AEAD ERROR, sector 80",
            "fs-corruption dm-20 unclear",
        ),
        ("device-mapper: verity: 253:0: data block 5 is corrupted", "fs-corruption 253:0 unclear"),
        ("device-mapper: raid1: Mirror read failed.", "io unnamed unclear"),
        (
            "device-mapper: raid1: Mirror read failed from 253:8. Trying alternative device.",
            "io 253:8 unclear",
        ),
        ("device-mapper: snapshots: Invalidating snapshot: Error reading/writing.", "nothing"),
        ("device-mapper: space map metadata: unable to allocate new metadata block", "nothing"),
        ("device-mapper: dust: block 23713 removed from badblocklist by write", "nothing"),
        (
            "bcache: bch_count_io_errors() nvme0n1p9: IO error on writing btree.",
            "io nvme0n1p9 unclear",
        ),
        (
            "bcache: bch_cache_set_error() error on 2b7a2a4a-1b5c-4d3e-9d5b-0a6a1f4e7c11: nvme0n1p5: too many IO errors reading, disabling caching",
            "io nvme0n1p5 unclear",
        ),
        (
            "bcache: bch_count_backing_io_errors() md3: Read-ahead I/O failed on backing device, ignore",
            "nothing",
        ),
        (
            "bcache: bch_count_backing_io_errors() md3: IO error on backing device, unrecoverable",
            "io md3 unclear",
        ),
    ]);
}

#[test]
fn the_begin_and_the_end_of_a_read_of_a_whole_device_are_reported() {
    let reads = |lines: &[&str]| {
        let mut classifier = Classifier::new(ClassifierOptions::default());
        let mut events = Vec::new();
        for (second, text) in lines.iter().enumerate() {
            classifier.push(
                &Record::from_text(second as u64, second as u64 * 1_000_000, text),
                Timestamp::from_second(second as i64).expect("a time"),
                &mut events,
            );
        }
        assert!(events.is_empty(), "{events:?}");
        let reads = classifier.take_full_reads().into_iter();
        reads.map(|read| (read.device, read.member, read.is_done)).collect::<Vec<_>>()
    };
    for (line, device, member, is_done) in [
        ("md: data-check of RAID array md0", "md0", None, false),
        ("md: md0: data-check done.", "md0", None, true),
        ("md: requested-resync of RAID array md127", "md127", None, false),
        ("md: md127: requested-resync done.", "md127", None, true),
        // Since 6.11.
        ("md: check of RAID array md0", "md0", None, false),
        ("md: md0: repair done.", "md0", None, true),
        // dm-raid has no name there.
        ("md: data-check of RAID array mdX", "mdX", None, false),
        ("md: mdX: data-check done.", "mdX", None, true),
        ("BTRFS info (device sda1): scrub: started on devid 3", "sda1", Some(3), false),
        (
            "BTRFS info (device sda1): scrub: finished on devid 3 with status: 0",
            "sda1",
            Some(3),
            true,
        ),
    ] {
        assert_eq!(reads(&[line]), [(device.to_owned(), member, is_done)], "{line}");
    }
    for line in [
        "md: md0: data-check interrupted.",
        "md: md0: check interrupted.",
        "md: recover of RAID array md0",
        "md: md0: recover done.",
        "md: resync of RAID array md0",
        "md: md0: resync done.",
        "BTRFS info (device sda1): scrub: not finished on devid 1 with status: -125",
    ] {
        assert_eq!(reads(&[line]), [], "{line}");
    }
}
