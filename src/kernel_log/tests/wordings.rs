//! Wordings of older and newer kernels: drives and their transports. Each text is composed from the
//! format string of its row.

use super::*;

#[test]
fn block_layer_and_partition_tables() {
    check(&[
        (
            "sda: unable to read partition table",
            "io sda unclear",
        ),
        ("Dev sda: unable to read RDB block 0", "io sda unclear"),
        // The block layer's text is the same for a locked drive and for a read-only range.
        (
            "critical medium error, dev nvme0n1, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
            "medium nvme0n1 unclear 8",
        ),
        (
            "nvme0n1: Write(0x1) @ LBA 1, 8 blocks, Write Fault (sct 0x2 / sc 0x80) DNR
             critical medium error, dev nvme0n1, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
            "medium nvme0n1 yes",
        ),
        (
            "critical medium error, dev sda, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
            "medium sda yes 8",
        ),
    ]);
}

#[test]
fn result_words_are_names_or_numbers() {
    let timeout = "timeout sda unclear";
    check(&[
        (
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_TIMEOUT cmd_age=30s",
            timeout,
        ),
        (
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK\\ndriverbyte=DRIVER_TIMEOUT",
            timeout,
        ),
        ("sd 0:0:0:0: [sda] UNKNOWN(0x2003) Result: hostbyte=0x00 driverbyte=0x06", timeout),
        (
            "sd 0:0:0:0: [sda]  
             Result: hostbyte=DID_OK driverbyte=DRIVER_TIMEOUT",
            timeout,
        ),
        (
            "sd 0:0:0:0: [sda]  
             Result: hostbyte=0x00 driverbyte=0x06",
            timeout,
        ),
        ("sd 0:0:0:0: [sda] Result: hostbyte=DID_OK driverbyte=DRIVER_TIMEOUT,SUGGEST_OK", timeout),
        (
            "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE",
            "nothing",
        ),
        (
            "sd 0:0:0:0: [sda] Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_TIMEOUT",
            "removed sda unclear",
        ),
        // The numbers of include/scsi/scsi.h: driver, host, message, status.
        ("sd 0:0:0:0: SCSI error: return code = 0x00010000", "removed 0:0:0:0 unclear"),
        ("sd 0:0:0:0: SCSI error: return code = 0x06000000", "timeout 0:0:0:0 unclear"),
        ("0:0:0:0: SCSI error: return code = 0x20008", "transport 0:0:0:0 unclear"),
        ("SCSI error : <0 0 1 0> return code = 0x10000", "removed unnamed unclear"),
        (
            "sd 0:0:0:0: Attached scsi disk sda
             sd 0:0:0:0: SCSI error: return code = 0x08000002
             sda: Current [descriptor]: sense key: Medium Error
                 Additional sense: Unrecovered read error - auto reallocate failed
             end_request: I/O error, dev sda, sector 1234",
            "medium sda yes",
        ),
        (
            "Current sda: sense key Medium Error
             Additional sense: Unrecovered read error - auto reallocate failed",
            "medium sda yes",
        ),
        ("sda: Current: sense key: Illegal Request", "nothing"),
        ("scsi1 (0:2): rejecting I/O to offline device", "removed host1 unclear"),
        (
            "sd 0:0:0:0: scsi: Device offlined - not ready after error recovery",
            "removed 0:0:0:0 unclear",
        ),
        ("sd 0:0:0:0: [sda] Spinning up disk....not responding...", timeout),
        ("sd 0:0:0:0: [sda] Spinning up disk.....ready", "nothing"),
        // storvsc writes its name in the place of the disk's.
        (
            "sd 2:0:0:0: [storvsc] Sense Key : Medium Error [current] 
             sd 2:0:0:0: [storvsc] Add. Sense: Unrecovered read error",
            "medium 2:0:0:0 yes",
        ),
    ]);
}

#[test]
fn libata_and_ide_before_their_present_forms() {
    check(&[
        // 2.6.12-2.6.17
        (
            "ata1: translated ATA stat/err 0x51/40 to SCSI SK/ASC/ASCQ 0x3/11/04
             ata1: status=0x51 { DriveReady SeekComplete Error }
             ata1: error=0x40 { UncorrectableError }",
            "medium ata1 yes",
        ),
        (
            "ata1: translated ATA stat/err 0x51/84 to SCSI SK/ASC/ASCQ 0xb/47/00",
            "transport ata1 unclear",
        ),
        (
            "ata1: translated ATA stat/err 0x51/04 to SCSI SK/ASC/ASCQ 0xb/00/00",
            "nothing",
        ),
        // 6.x without the blank
        ("ata1: error=0x40 {UncorrectableError }", "medium ata1 yes"),
        ("ata1: error=0x84 {DriveStatusError BadCRC }", "transport ata1 unclear"),
        ("ata1: error=0x04 {DriveStatusError }", "nothing"),
        (
            "ata1: command 0x25 timeout, stat 0xd0 host_stat 0x1",
            "timeout ata1 unclear",
        ),
        ("ata1: DMA timeout, stat 0x1", "timeout ata1 unclear"),
        // 2.6.18-2.6.20
        (
            "ata1.00: tag 0 cmd 0x25 Emask 0x9 stat 0x51 err 0x40 (media error)",
            "medium ata1.00 yes",
        ),
        (
            "ata1.00: tag 0 cmd 0xca Emask 0x4 stat 0x40 err 0x0 (timeout)",
            "timeout ata1.00 unclear",
        ),
        // 2.6.21-2.6.23
        (
            "ata1.00: cmd c8/00:08:3f:00:00/00:00:00:00:00/e0 tag 0 cdb 0x0 data 4096 in\\n         res 51/40:00:3f:00:00/00:00:00:00:00/e0 Emask 0x9 (media error)",
            "medium ata1.00 yes",
        ),
        // A device fault is the drive's own report.
        ("ata1.00: status: { DRDY DF ERR }", "medium ata1.00 yes"),
        ("ata1.00: status: { DRDY DF DRQ SENSE ERR }", "nothing"),
        (
            "ata1.00: qc timeout (cmd 0xec)
             ata1.00: failed to IDENTIFY (I/O error, err_mask=0x4)
             ata1.00: revalidation failed (errno=-5)
             ata1.00: disabled",
            "timeout ata1.00 unclear; removed ata1.00 yes",
        ),
        ("ata1.00: qc timeout after 5000 msecs (cmd 0xec)", "timeout ata1.00 unclear"),
        ("ata1.00: qc timeout (cmd 0xa1)", "nothing"),
        (
            "ata1: port failed to respond (30 secs, Status 0x80)
             ata1.00: disabled",
            "removed ata1.00 yes",
        ),
        (
            "ata1.00: irq_stat 0x20000000, host bus error",
            "transport ata1.00 no",
        ),
        (
            "hda: dma_intr: status=0x51 { DriveReady SeekComplete Error }
             hda: dma_intr: error=0x40 { UncorrectableError }, LBAsect=1234, high=0, low=1234, sector=1234
             ide: failed opcode was: unknown
             end_request: I/O error, dev hda, sector 1234",
            "medium hda yes 1234",
        ),
        (
            "hda: dma_intr: error=0x84 { DriveStatusError BadCRC }",
            "transport hda unclear",
        ),
        ("hda: drive_cmd: error=0x04 { DriveStatusError }", "nothing"),
        ("hdb: dma_timer_expiry: dma status == 0x61", "timeout hdb unclear"),
        ("hda: irq timeout: status=0xd0 { Busy }", "timeout hda unclear"),
        ("sda: dma_intr: error=0x40 { UncorrectableError }", "nothing"),
    ]);
}

#[test]
fn nvme_over_networks_and_under_the_pci_core() {
    check(&[
        ("nvme nvme1: queue 3: timeout request 0x61 type 4", "timeout nvme1 no"),
        (
            "nvme nvme1: I/O tag 5 (1005) type 4 opcode 0x1 (Write) QID 1 timeout",
            "timeout nvme1 no",
        ),
        ("nvme nvme1: I/O 5 QID 1 timeout", "timeout nvme1 no"),
        (
            "nvme nvme1: NVME-FC{0.3}: io timeout: opcode 1 fctype 0 w10/11: x00000000/x00000008",
            "timeout nvme1 no",
        ),
        ("nvme nvme1: NVME-FC{0}: io failed due to lldd error 6", "transport nvme1 no"),
        ("nvme nvme1: failed to send request -32", "transport nvme1 no"),
        ("nvme nvme1: receive failed:  -104", "transport nvme1 no"),
        ("nvme nvme1: failed to connect socket: -111", "transport nvme1 no"),
        (
            "nvme nvme1: Reconnecting in 10 seconds...
             nvme nvme1: Removing controller...",
            "transport nvme1 no; removed nvme1 no",
        ),
        ("nvme nvme1: ANATT timeout, resetting controller.", "reset nvme1 no"),
        ("block nvme1n1: no usable path - requeuing I/O", "transport nvme1n1 no"),
        (
            "nvme nvme0: I/O tag 5 (1005) opcode 0x2 (Read) QID 3 timeout, aborting req_op:READ(0) size:131072",
            "timeout nvme0 unclear",
        ),
        (
            "nvme 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "removed 0000:01:00.0 unclear",
        ),
        (
            "nvme 0000:01:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
            "removed 0000:01:00.0 unclear",
        ),
        (
            "nvme 0000:01:00.0: Refused to change power state, currently in D3",
            "removed 0000:01:00.0 unclear",
        ),
        ("nvme nvme0: failure state error detected, request disconnect", "removed nvme0 unclear"),
        ("nvme nvme0: IO queues not created", "removed nvme0 unclear"),
        ("nvme nvme0: Fw activation timeout, reset controller", "reset nvme0 unclear"),
        ("nvme nvme0: failed to set APST feature (-19)", "nothing"),
        ("nvme nvme1: creating 8 I/O queues.", "nothing"),
        ("nvme nvme1: Successfully reconnected (1 attempt)", "nothing"),
    ]);
}

#[test]
fn cards_and_their_hosts() {
    let card = "mmcblk0: mmc0:0001 SD16G 14.8 GiB\n";
    check(&[
        (
            "mmcblk0: error -110 sending read/write command, response 0x900",
            "timeout mmcblk0 unclear",
        ),
        ("mmcblk0: error -110 sending status command, retrying", "timeout mmcblk0 unclear"),
        ("mmcblk0: error -84 requesting status", "transport mmcblk0 unclear"),
        ("mmcblk0: error -123 sending stop command", "removed mmcblk0 unclear"),
        (
            "mmcblk0: response CRC error sending r/w cmd command, card status 0x900",
            "transport mmcblk0 unclear",
        ),
        (
            "mmcblk0: unknown error -110 sending r/w cmd command, card status 0x900",
            "timeout mmcblk0 unclear",
        ),
        ("mmcblk0: command error, retrying timeout", "timeout mmcblk0 unclear"),
        ("mmcblk0: recovery failed!", "timeout mmcblk0 unclear"),
        (&format!("{card}mmc0: Card stuck being busy! mmc_do_erase"), "timeout mmcblk0 unclear"),
        (&format!("{card}mmc0: running CQE recovery"), "reset mmcblk0 unclear"),
        (&format!("{card}mmc0: tried to HW reset card, got error -110"), "reset mmcblk0 unclear"),
        (&format!("{card}mmc0: cache flush error -110"), "timeout mmcblk0 unclear"),
        (&format!("{card}mmc0: ADMA error: 0x02000000"), "transport mmcblk0 unclear"),
        (&format!("{card}mmc0: Card removed during transfer!"), "removed mmcblk0 no"),
        (&format!("{card}mmc0: Controller never released inhibit bit(s)."), "timeout mmcblk0 no"),
        // The card is unknown: no drive can be blamed.
        ("mmc1: error -110 whilst initialising SD card", "timeout mmc1 no"),
        ("mmc1: error -84 whilst initialising MMC card", "transport mmc1 unclear"),
        ("mmc1: Timeout waiting for hardware interrupt.", "timeout mmc1 no"),
        ("mmc1: Timeout waiting for hardware cmd interrupt.", "timeout mmc1 no"),
        // A radio is no drive.
        ("mmc1: error -110 whilst initialising SDIO card", "nothing"),
        (
            "mmc1: new high speed SDIO card at address 0001
             mmc1: Timeout waiting for hardware interrupt.",
            "nothing",
        ),
        ("mmc1: new ultra high speed SDR104 SDHC card at address aaaa", "nothing"),
        ("mmc0: card 0001 removed", "nothing"),
    ]);
}

#[test]
fn usb_of_older_kernels() {
    check(&[
        (
            "scsi6 : usb-storage 4-2:1.0
             usb 4-2: reset high speed USB device using ehci_hcd and address 3",
            "reset host6 no",
        ),
        (
            "scsi6 : usb-storage 4-2:1.0
             usb 4-2: reset high speed USB device number 3 using ehci_hcd",
            "reset host6 no",
        ),
        ("scsi host6: uas_eh_bus_reset_handler start", "reset host6 no"),
        ("usb 4-2: USB disconnect, address 3", "nothing"),
    ]);
}
