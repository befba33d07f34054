//! The SCSI mid layer: the sense data decide.

use super::*;

const READ: &str = "sd 0:0:0:0: [sda] tag#1 CDB: Read(10) 28 00 00 00 08 00 00 00 08 00";

#[test]
fn medium_errors_of_all_kernel_versions() {
    check(&[
        // 3.10: over separate lines, some without the device
        (
            "sd 0:0:2:0: [sdc] Unhandled sense code
             sd 0:0:2:0: [sdc]  
             Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
             sd 0:0:2:0: [sdc]  
             Sense Key : Medium Error [current] 
             Info fld=0x7d0
             sd 0:0:2:0: [sdc]  
             Add. Sense: Unrecovered read error
             sd 0:0:2:0: [sdc] CDB: 
             Read(10): 28 00 00 00 07 d0 00 00 08 00
             end_request: critical medium error, dev sdc, sector 2000",
            "medium sdc yes",
        ),
        // 3.18-5.13
        (
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
             sd 0:0:0:0: [sda] tag#1 Sense Key : Medium Error [current] [descriptor] 
             sd 0:0:0:0: [sda] tag#1 Add. Sense: Unrecovered read error - auto reallocate failed
             sd 0:0:0:0: [sda] tag#1 CDB: Read(10) 28 00 00 00 08 00 00 00 08 00
             blk_update_request: I/O error, dev sda, sector 2048",
            "medium sda yes",
        ),
        // without CONFIG_SCSI_CONSTANTS
        (
            "sd 0:0:0:0: [sda] tag#8 UNKNOWN(0x2003) Result: hostbyte=0x00 driverbyte=0x08
             sd 0:0:0:0: [sda] tag#8 Sense Key : 0x3 [current] 
             sd 0:0:0:0: [sda] tag#8 ASC=0x11 ASCQ=0x0 
             sd 0:0:0:0: [sda] tag#8 CDB: opcode=0x88 88 00 00 00 00 00 00 00 08 00 00 00 00 08 00 00
             critical medium error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            "medium sda yes",
        ),
        // a hardware write error
        (
            "sd 0:1:0:5: [sdh] tag#360 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=3s
             sd 0:1:0:5: [sdh] tag#360 Sense Key : Hardware Error [current] 
             sd 0:1:0:5: [sdh] tag#360 Add. Sense: Logical unit failure
             sd 0:1:0:5: [sdh] tag#360 CDB: Write(10) 2a 00 46 86 12 00 00 00 80 00
             print_req_error: critical target error, dev sdh, sector 1416424885 flags 133334",
            "medium sdh yes",
        ),
    ]);
}

#[test]
fn each_failed_command_is_an_incident_and_its_sector_belongs_to_it() {
    let one = |sector: u64| {
        format!(
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK\nsd 0:0:0:0: [sda] tag#1 Sense Key : Medium Error [current]\nsd 0:0:0:0: [sda] tag#1 Add. Sense: Unrecovered read error\n{READ}\ncritical medium error, dev sda, sector {sector} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"
        )
    };
    let events = classify(&format!("{}\n{}", one(2048), one(4096)));
    assert_eq!(events.iter().map(|event| event.count).sum::<u64>(), 2);
    assert_eq!(
        events.iter().flat_map(|event| event.sectors.clone()).collect::<Vec<_>>(),
        [2048, 4096]
    );
    // The incident is emitted at the command's record, before the block layer's.
    assert_eq!(events.first().map(|event| event.seq), Some(3));
}

#[test]
fn sense_keys_and_host_bytes() {
    let command = |host: &str, key: &str, sense: &str| {
        let mut text = format!(
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte={host} driverbyte=DRIVER_OK\n"
        );
        if !key.is_empty() {
            text.push_str(&format!("sd 0:0:0:0: [sda] tag#1 Sense Key : {key} [current] \nsd 0:0:0:0: [sda] tag#1 Add. Sense: {sense}\n"));
        }
        classify_to_text(&format!(
            "{text}{READ}\nI/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"
        ))
    };
    for (host, key, sense, expected) in [
        ("DID_OK", "Medium Error", "Unrecovered read error", "medium sda yes"),
        ("DID_OK", "Hardware Error", "Internal target failure", "medium sda yes"),
        ("DID_OK", "Illegal Request", "Logical block address out of range", "nothing"),
        ("DID_OK", "Illegal Request", "Unaligned write command", "nothing"),
        ("DID_OK", "Unit Attention", "Power on, reset, or bus device reset occurred", "nothing"),
        ("DID_OK", "Data Protect", "Write protected", "nothing"),
        ("DID_OK", "Not Ready", "Medium not present", "nothing"),
        ("DID_OK", "Not Ready", "Logical unit is in process of becoming ready", "nothing"),
        (
            "DID_OK",
            "Not Ready",
            "Logical unit not ready, cause not reportable",
            "removed sda unclear",
        ),
        ("DID_OK", "Aborted Command", "Ack/nak timeout", "transport sda unclear"),
        ("DID_OK", "Aborted Command", "Incompatible medium installed", "nothing"),
        ("DID_OK", "Aborted Command", "I/O process terminated", "io sda unclear"),
        ("DID_OK", "", "", "io sda unclear 2048"),
        ("DID_NO_CONNECT", "", "", "removed sda unclear"),
        ("DID_BAD_TARGET", "", "", "removed sda unclear"),
        ("DID_TIME_OUT", "", "", "timeout sda unclear"),
        ("DID_ERROR", "", "", "transport sda unclear"),
        ("DID_SOFT_ERROR", "", "", "transport sda unclear"),
        ("DID_TRANSPORT_DISRUPTED", "", "", "transport sda no"),
        ("DID_NEXUS_FAILURE", "", "", "nothing"),
        ("0x03", "", "", "timeout sda unclear"),
    ] {
        assert_eq!(command(host, key, sense), expected, "{host} {key} {sense}");
    }
}

#[test]
fn failed_drives_are_removed_and_ejected_drives_are_ignored() {
    check(&[
        (
            "sd 0:0:0:0: Device offlined - not ready after error recovery\nsd 0:0:0:0: rejecting I/O to offline device",
            "removed 0:0:0:0 unclear",
        ),
        ("sd 0:0:0:0: [sda] Medium access timeout failure. Offlining disk!", "removed sda yes"),
        ("sd 0:0:1:0: timing out command, waited 1080s", "timeout 0:0:1:0 unclear"),
        (
            "sd 9:0:0:0: [sdl] Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR driverbyte=DRIVER_OK",
            "removed sdl unclear",
        ),
        ("sd 9:0:0:0: [sdl] Synchronizing SCSI cache\nsd 9:0:0:0: [sdl] Stopping disk", "nothing"),
        ("scsi 17:0:0:0: Power-on or device reset occurred", "nothing"),
        (
            "sd 1:2:0:0: [sdc] Unit Not Ready\nsd 1:2:0:0: [sdc] Sense Key : Hardware Error [current] \nsd 1:2:0:0: [sdc] Add. Sense: Internal target failure",
            "nothing",
        ),
        (
            "sd 6:0:0:0: [sda] Write Protect is off\nsd 6:0:0:0: [sda] Mode Sense: 73 00 10 08",
            "nothing",
        ),
    ]);
}

#[test]
fn virtual_disks_are_not_blamed() {
    check(&[
        (
            "scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK    2.5+ PQ: 0 ANSI: 5
             critical medium error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
             sd 0:0:0:0: [sda] Attached SCSI disk",
            // The block name was assigned after the error.
            "medium sda yes 8",
        ),
        (
            "scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK    2.5+ PQ: 0 ANSI: 5
             sd 0:0:0:0: [sda] Attached SCSI disk
             critical medium error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "medium sda unclear 8",
        ),
        ("Hypervisor detected: KVM\nblk_update_request: critical medium error, dev sda, sector 8", "medium sda unclear 8"),
        (
            "sd 3:0:0:1: [sdf] FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
             sd 3:0:0:1: [sdf] Sense Key : Medium Error [current]
             sd 3:0:0:1: [sdf] Add. Sense: Unrecovered read error
             sd 3:0:0:1: [sdf] CDB: Write(10) 2a 00 00 21 08 00 00 00 08 00",
            "medium sdf unclear",
        ),
    ]);
}
