//! libata: one exception, one incident.

use super::*;

#[test]
fn an_exception_is_one_incident_with_the_disk_that_the_scsi_layer_names() {
    let lines = "ata7.00: exception Emask 0x0 SAct 0x100000 SErr 0x0 action 0x0
        ata7.00: irq_stat 0x40000008
        ata7.00: failed command: READ FPDMA QUEUED
        ata7.00: cmd 60/08:a0:d0:07:00/00:00:00:00:00/40 tag 20 ncq 4096 in\\n         res 41/40:00:d0:07:00/00:00:00:00:00/40 Emask 0x409 (media error) <F>
        ata7.00: status: { DRDY ERR }
        ata7.00: error: { UNC }
        ata7.00: configured for UDMA/133
        sd 3:0:0:0: [sdb] tag#20 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
        sd 3:0:0:0: [sdb] tag#20 Sense Key : Medium Error [current] [descriptor] 
        sd 3:0:0:0: [sdb] tag#20 Add. Sense: Unrecovered read error - auto reallocate failed
        sd 3:0:0:0: [sdb] tag#20 CDB: Read(10) 28 00 00 00 07 d0 00 00 08 00
        blk_update_request: I/O error, dev sdb, sector 2000
        ata7: EH complete";
    assert_eq!(classify_to_text(lines), "medium ata7.00 yes");
    let last = classify(lines).pop().unwrap();
    assert_eq!(
        (last.device.to_string().as_str(), last.other_names[0].to_string().as_str()),
        ("sdb", "ata7")
    );
}

#[test]
fn the_error_mask_text_determines_the_class() {
    let one = |words: &str| {
        format!(
            "ata1.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x6 frozen\nata1.00: failed command: READ FPDMA QUEUED\nata1.00: cmd 60/08:00:00:00:00/00:00:00:00:00/40 tag 0 ncq dma 4096 in\\n         res 40/00:00:00:00:00/00:00:00:00:00/00 Emask 0x4 ({words})\nata1.00: status: {{ DRDY }}\nata1: hard resetting link\nata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)\nata1.00: configured for UDMA/133\nata1: EH complete"
        )
    };
    for (words, expected) in [
        ("media error", "medium ata1.00 yes"),
        ("timeout", "timeout ata1.00 unclear"),
        ("ATA bus error", "transport ata1.00 unclear"),
        ("host bus error", "transport ata1.00 no"),
        ("HSM violation", "transport ata1.00 unclear"),
        ("device error", "nothing"),
    ] {
        assert_eq!(classify_to_text(&one(words)), expected, "{words}");
        // rsyslog writes line breaks in this form; some texts print the rest on a line of its own.
        assert_eq!(
            classify_to_text(&one(words).replace("\\n         res", "\n         res")),
            expected,
            "{words}"
        );
    }
}

/// The records that libata prints for QEMU's disks, and for drives whose log 10h cannot be read
/// (observed in the lab; the texts are composed).
#[test]
fn no_sector_is_recorded_when_the_failed_ncq_command_is_unknown() {
    let report = |active: &str, log: &str| {
        format!(
            "scsi host2: ahci
             ata3: SATA max UDMA/133 abar m2048@0xfea0 port 0xfea01 irq 30
             sd 2:0:0:0: [sdm] Attached SCSI disk
             {log}
             ata3.00: exception Emask 0x1 SAct {active} SErr 0x0 action 0x0
             ata3.00: failed command: READ FPDMA QUEUED
             ata3.00: cmd 60/02:50:02:00:08/00:00:00:00:00/40 tag 10 ncq dma 1024 in\\n         res 41/04:00:00:00:00/00:00:00:00:00/a0 Emask 0x1 (device error)
             ata3.00: status: {{ DRDY ERR }}
             ata3.00: error: {{ ABRT }}
             sd 2:0:0:0: [sdm] tag#10 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=0s
             sd 2:0:0:0: [sdm] tag#10 Sense Key : Aborted Command [current] 
             sd 2:0:0:0: [sdm] tag#10 Add. Sense: No additional sense information
             sd 2:0:0:0: [sdm] tag#10 CDB: Read(10) 28 00 00 08 00 02 00 00 02 00
             I/O error, dev sdm, sector 524290 op 0x0:(READ) flags 0x83700 phys_seg 1 prio class 2
             ata3: EH complete"
        )
    };
    let unread = "ata3: failed to read log page 10h (errno=-5)";
    let sectors = |lines: &str| -> Vec<u64> {
        classify(lines).iter().flat_map(|event| event.sectors.clone()).collect()
    };
    // Two commands were in flight, and one of them did not fail.
    assert_eq!(classify_to_text(&report("0x600", unread)), "io sdm unclear");
    assert_eq!(sectors(&report("0x600", unread)), [0; 0]);
    let first = classify(&report("0x600", unread)).remove(0).first.text;
    assert!(first.contains("exception Emask"), "{first} is quoted as evidence");
    // A single command in flight is the failed one. A readable log names the failed command.
    assert_eq!(sectors(&report("0x400", unread)), [524_290]);
    assert_eq!(sectors(&report("0x600", "")), [524_290]);
    // Then the kernel stops queueing and retries the commands one by one: a failure now is real.
    let alone = "ata3.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x0
        ata3.00: failed command: READ DMA
        ata3.00: cmd c8/00:08:00:40:06/00:00:00:00:00/e0 tag 11 dma 4096 in\\n         res 41/04:08:00:40:06/00:00:00:00:00/e0 Emask 0x1 (device error)
        ata3.00: status: { DRDY ERR }
        ata3.00: error: { ABRT }
        I/O error, dev sdm, sector 409600 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2";
    assert_eq!(sectors(&format!("{}\n{alone}", report("0x600", unread))), [409_600]);
}

#[test]
fn error_register_bits_determine_the_class() {
    check(&[
        ("ata1.00: error: { UNC }", "medium ata1.00 yes"),
        ("ata1.00: error: { AMNF }", "medium ata1.00 yes"),
        ("ata1.00: error: { ICRC ABRT }", "transport ata1.00 unclear"),
        ("ata1.00: error: { IDNF }", "medium ata1.00 unclear"),
        ("ata1.00: error: { ABRT }", "nothing"),
        ("ata1.00: error: { ICRC UNC AMNF IDNF ABRT }", "nothing"),
        ("ata1: SError: { 10B8B Dispar }", "transport ata1 unclear"),
        ("ata1: SError: { PHYRdyChg CommWake DevExch }", "nothing"),
        ("ata1.00: irq_stat 0x08000000, interface fatal error", "transport ata1.00 unclear"),
    ]);
}

#[test]
fn empty_ports_and_hotplug_are_no_incidents() {
    check(&[
        ("ata3: SATA link down (SStatus 0 SControl 300)", "nothing"),
        (
            "ata1: link is slow to respond, please be patient (ready=0)\nata1: COMRESET failed (errno=-16)\nata1: hard resetting link\nata1: SATA link down (SStatus 0 SControl 300)",
            "nothing",
        ),
        (
            "ata7: exception Emask 0x10 SAct 0x0 SErr 0x4040000 action 0xe frozen\nata7: irq_stat 0x00000040, connection status changed\nata7: SError: { CommWake DevExch }\nata7: hard resetting link\nata7: SATA link up 6.0 Gbps (SStatus 133 SControl 300)\nata7.00: configured for UDMA/133\nata7: EH complete",
            "nothing",
        ),
    ]);
}

#[test]
fn a_drive_that_fails_its_resets_is_blamed_and_one_with_its_link_down_is_unclear() {
    check(&[
        (
            "ata1: hard resetting link\nata1: link is slow to respond, please be patient (ready=0)\nata1: COMRESET failed (errno=-16)\nata1: hard resetting link\nata1.00: disabled\nata1: EH complete",
            "removed ata1.00 yes",
        ),
        (
            "ata1: link is slow to respond, please be patient (ready=0)\nata1.00: disable device",
            "removed ata1.00 yes",
        ),
        (
            "ata6: SATA link down (SStatus 0 SControl 300)\nata6.00: disabled\nata6.00: detaching (SCSI 5:0:0:0)",
            "removed ata6.00 unclear",
        ),
        ("ata2.00: Entering standby power mode\nata2.00: disable device", "nothing"),
    ]);
}

#[test]
fn ata_ports_are_mapped_to_disks_from_the_log() {
    check(&[
        (
            "scsi host2: ahci
             ata3: SATA max UDMA/133 abar m2048@0xfea0 port 0xfea01 irq 30
             sd 2:0:0:0: [sdm] Attached SCSI disk
             ata3.00: error: { UNC }",
            "medium sdm yes",
        ),
        ("ata2.00: ATAPI: HL-DT-ST DVD, 1.00, max UDMA/100\nata2.00: error: { UNC }", "nothing"),
    ]);
}
