//! The block layer, NVMe, host adapters, USB, MMC.

use super::*;

#[test]
fn block_layer_errors_of_all_kernel_versions() {
    check(&[
        // up to 3.15
        ("end_request: I/O error, dev sda, sector 1234", "io sda unclear 1234"),
        ("end_request: critical medium error, dev sdb, sector 99", "medium sdb yes 99"),
        ("end_request: recoverable transport error, dev sdb, sector 99", "transport sdb no 99"),
        ("end_request: critical target error, dev sdb, sector 99", "nothing"),
        ("end_request: critical nexus error, dev sdb, sector 99", "nothing"),
        // 3.16-4.14
        ("blk_update_request: I/O error, dev sda, sector 1234", "io sda unclear 1234"),
        ("blk_update_request: timeout error, dev sda, sector 1234", "timeout sda unclear 1234"),
        ("blk_update_request: critical space allocation error, dev dm-23, sector 8", "nothing"),
        // 4.14-5.2
        ("print_req_error: critical medium error, dev nvme0n1, sector 7", "medium nvme0n1 yes 7"),
        ("print_req_error: I/O error, dev sdb, sector 5 flags 801", "io sdb unclear 5"),
        // 5.3-5.15
        (
            "blk_update_request: critical medium error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "medium sda yes 2048",
        ),
        (
            "blk_update_request: operation not supported error, dev sda, sector 0 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 0",
            "nothing",
        ),
        // 5.16-6.18
        (
            "I/O error, dev sdc, sector 2048 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
            "io sdc unclear 2048",
        ),
        (
            "critical medium error, dev vda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "medium vda unclear 2048",
        ),
        (
            "device offline error, dev sdg, sector 350088 op 0x1:(WRITE) flags 0x9800 phys_seg 1 prio class 2",
            "removed sdg unclear 350088",
        ),
        (
            "reservation conflict error, dev sda, sector 1 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0",
            "nothing",
        ),
        (
            "duration limit exceeded error, dev sda, sector 1 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "nothing",
        ),
        ("Buffer I/O error on device sda1, logical block 5", "io sda1 unclear"),
        ("Buffer I/O error on dev sda1, logical block 5, async page read", "io sda1 unclear"),
        ("lost page write due to I/O error on sda1", "io sda1 unclear"),
    ]);
}

#[test]
fn non_drives_are_ignored() {
    check(&[
        (
            "I/O error, dev loop3, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "nothing",
        ),
        ("blk_update_request: critical medium error, dev sr0, sector 0", "nothing"),
        ("Buffer I/O error on dev fd0, logical block 0, async page read", "nothing"),
        ("blk_update_request: I/O error, dev nbd0, sector 0", "transport nbd0 no 0"),
        ("blk_update_request: I/O error, dev mtdblock1, sector 0", "nothing"),
        ("st 0:0:0:0: [st0] Sense Key : Medium Error [current]", "nothing"),
        (
            "sr 1:0:0:0: [sr0] tag#3 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE\nsr 1:0:0:0: [sr0] tag#3 Sense Key : Hardware Error [current]",
            "nothing",
        ),
        (
            "cp: attempt to access beyond end of device\\nsda1: rw=0, sector=99, nr_sectors = 8 limit=50",
            "nothing",
        ),
        ("INFO: task jbd2/sda1-8:311 blocked for more than 120 seconds.", "nothing"),
        ("nfs: server 10.0.0.1 not responding, still trying", "nothing"),
        ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0", "nothing"),
    ]);
}

#[test]
fn nvme_error_recovery_is_one_incident() {
    check(&[
        // 4.4
        ("nvme nvme0: Timeout I/O 5 QID 1", "timeout nvme0 unclear"),
        // 4.8-5.x
        ("nvme nvme0: I/O 5 QID 1 timeout, aborting", "timeout nvme0 unclear"),
        // 6.1: the abort did not help
        (
            "nvme nvme0: I/O 900 (I/O Cmd) QID 2 timeout, aborting
             nvme nvme0: Abort status: 0x0
             nvme nvme0: I/O 900 QID 2 timeout, reset controller
             nvme0n1: I/O Cmd(0x2) @ LBA 1669653, 32 blocks, I/O Error (sct 0x3 / sc 0x71)
             I/O error, dev nvme0n1, sector 1669653 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2
             nvme nvme0: 2/0/0 default/read/poll queues",
            "timeout nvme0 unclear; reset nvme0 unclear",
        ),
        // 6.12
        ("nvme nvme0: I/O tag 32 (0020) opcode 0x2 (Read) QID 3 timeout, aborting req_op:READ(0) size:4096", "timeout nvme0 unclear"),
        ("nvme nvme0: I/O tag 32 (0020) QID 3 timeout, completion polled", "timeout nvme0 no"),
        ("nvme nvme0: I/O 7 QID 1 timeout, disable controller", "timeout nvme0 yes"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xf4444444, PCI_STATUS=0x10", "reset nvme0 unclear"),
        (
            "nvme nvme2: I/O 0 QID 0 timeout, reset controller\nnvme nvme2: Device not ready; aborting reset\nnvme nvme2: Removing after probe failure status: -19",
            "timeout nvme2 unclear; reset nvme2 unclear; removed nvme2 yes",
        ),
        ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "timeout nvme0 yes"),
        ("nvme nvme0: Device not ready; aborting shutdown, CSTS=0x1", "timeout nvme0 unclear"),
        ("nvme nvme2: Disabling device after reset failure: -19", "removed nvme2 unclear"),
        ("nvme nvme1: Duplicate cntlid 2 with nvme0, rejecting\nnvme nvme1: Removing after probe failure status: -22", "removed nvme1 no"),
        ("nvme nvme1: resetting controller due to persistent internal error", "reset nvme1 yes"),
        ("nvme nvme0: missing or invalid SUBNQN field.", "nothing"),
        ("nvme nvme0: failed to set APST feature (2)", "nothing"),
    ]);
}

#[test]
fn nvme_status_codes() {
    for (code, expected) in [
        ("sct 0x2 / sc 0x80", "medium nvme0n1 yes"),
        ("sct 0x2 / sc 0x81", "medium nvme0n1 yes"),
        ("sct 0x2 / sc 0x82", "medium nvme0n1 unclear"),
        ("sct 0x2 / sc 0x85", "nothing"),
        ("sct 0x2 / sc 0x86", "nothing"),
        ("sct 0x2 / sc 0x87", "nothing"),
        ("sct 0x3 / sc 0x71", "nothing"),
        ("sct 0x3 / sc 0x2", "transport nvme0n1 no"),
        ("sct 0x0 / sc 0x80", "nothing"),
        ("sct 0x0 / sc 0x6", "io nvme0n1 unclear"),
        ("sct 0x0 / sc 0x20", "readonly nvme0n1 unclear"),
        ("sct 0x1 / sc 0x80", "nothing"),
    ] {
        assert_eq!(
            classify_to_text(&format!(
                "nvme0n1: Read(0x2) @ LBA 2048, 8 blocks, Some Words ({code}) DNR"
            )),
            expected,
            "{code}"
        );
    }
    // The block layer reports the sector, in the same incident.
    let events = classify(
        "nvme0n1: I/O Cmd(0x2) @ LBA 256, 1 blocks, I/O Error (sct 0x2 / sc 0x81) \ncritical medium error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x800 phys_seg 1 prio class 2",
    );
    assert_eq!(
        events.iter().map(|event| (event.count, event.sectors.clone())).collect::<Vec<_>>(),
        [(1, vec![]), (0, vec![2048])]
    );
}

#[test]
fn network_errors_do_not_blame_the_drive() {
    check(&[
        (
            "nvme nvme1: new ctrl: \"nqn.x\"\nI/O error, dev nvme1n1, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "transport nvme1n1 no 8",
        ),
        ("nvme nvme1: starting error recovery", "transport nvme1 no"),
        (
            " connection1:0: detected conn error (1022)\nsd 7:0:0:0: Device offlined - not ready after error recovery",
            "transport unnamed no; removed 7:0:0:0 no",
        ),
        (" session4: session recovery timed out after 120 secs", "transport unnamed no"),
        ("device-mapper: multipath: Failing path 8:80.", "transport 8:80 no"),
        ("device-mapper: multipath: 253:8: Failing path 8:80.", "transport 8:80 no"),
        ("device-mapper: multipath: Reinstating path 8:80.", "nothing"),
        (
            " rport-7:0-1: blocked FC remote port time out: removing target and saving binding",
            "transport unnamed no",
        ),
        (
            "pcieport 0000:00:03.0: pciehp: Slot(3): Card not present\nblk_update_request: I/O error, dev nvme2n2, sector 9 op 0x0:(READ) flags 0x0 phys_seg 4 prio class 0",
            "removed nvme2n2 no 9",
        ),
    ]);
}

#[test]
fn adapter_and_bridge_errors() {
    check(&[
        (
            "sd 0:0:5:0: attempting task abort!scmd(0x055555552a603f11), outstanding for 33333 ms & timeout 33333 ms",
            "timeout 0:0:5:0 unclear",
        ),
        (
            "mpt2sas3: attempting task abort! scmd(ffff88)\nsd 9:0:3:0: CDB: Test Unit Ready: 00 00 00 00 00 00",
            "timeout 9:0:3:0 unclear",
        ),
        (
            "mptscsih: ioc1: attempting task abort! (sc=f444dd5b62087f55)\nsd 6:0:7:0: [sds] CDB: Read(10): 28 00 0a 11 c0 08 00 00 10 00",
            "timeout sds unclear",
        ),
        (
            "mpt3sas_cm0: log_info(0x36675858): originator(PL), code(0x12), sub_code(0x0303)",
            "nothing",
        ),
        (
            "megaraid_sas 0000:01:00.0: megasas_disable_intr_fusion is called outbound_intr_mask:0x4555555e",
            "nothing",
        ),
        (
            "megaraid_sas 0000:01:00.0: FW detected to be in faultstate, resetting adapter...",
            "reset 0000:01:00.0 no",
        ),
        (
            "hpsa 0000:03:00.0: scsi 0:1:0:0: resetting logical  Direct-Access HP",
            "reset 0:1:0:0 unclear",
        ),
        (
            "hpsa 0000:03:00.0: scsi 0:1:0:0: reset logical  completed successfully Direct-Access HP",
            "nothing",
        ),
        ("aacraid: Host adapter abort request.", "timeout unnamed no; reset unnamed no"),
        (
            "sd 3:0:0:0: [sdb] tag#9 uas_eh_abort_handler 0 uas-tag 1 inflight: CMD",
            "timeout sdb no",
        ),
        (
            "scsi host3: uas_eh_device_reset_handler start\nscsi host3: uas_eh_device_reset_handler success",
            "reset host3 no",
        ),
        ("usb 2-2: reset SuperSpeed USB device number 2 using xhci_hcd", "nothing"),
        (
            "scsi host6: usb-storage 2-2:1.0\nusb 2-2: reset SuperSpeed USB device number 2 using xhci_hcd",
            "reset host6 no",
        ),
        ("usb 1-2: USB disconnect, device number 3", "nothing"),
        ("mmcblk1: error -110 requesting status", "timeout mmcblk1 unclear"),
        (
            "mmcblk0: error -84 transferring data, sector 128, nr 8, cmd response 0x900, card status 0xb00",
            "transport mmcblk0 unclear",
        ),
        // The host's record: attributed to its card if the card is known; no drive is blamed without
        // one.
        ("mmc1: Timeout waiting for hardware interrupt.", "timeout mmc1 no"),
        (
            "mmcblk0: mmc1:0001 SD16G 14.8 GiB\nmmcblk0boot0: mmc1:0001 SD16G partition 1 4.00 MiB\nmmc1: Timeout waiting for hardware interrupt.\nmmc0: cqhci: timeout for tag 3",
            "timeout mmcblk0 unclear; timeout mmc0 unclear",
        ),
    ]);
}

#[test]
fn a_request_beyond_the_end_does_not_hide_a_failure_of_the_device() {
    check(&[(
        "dd: attempt to access beyond end of device\\nsda1: rw=0, sector=5, nr_sectors = 8 limit=4
         I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "io sda unclear 2048",
    )]);
}

#[test]
fn an_error_is_not_retracted_by_a_later_rejection_of_the_sector() {
    check(&[(
        "I/O error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2
         @70 critical target error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "io sda unclear 8",
    )]);
}

#[test]
fn a_rejected_request_does_not_hide_other_errors() {
    check(&[
        // An admin command's status, printed by nvme_log_err_passthru(), before 6.9 by
        // nvme_log_error().
        (
            "nvme nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2)
             I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "io nvme0n1 unclear 2048",
        ),
        (
            "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2)
             critical medium error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "medium nvme0n1 yes 2048",
        ),
        (
            "@10 nvme0n1: Write Zeroes(0x8) @ LBA 0, 8 blocks, Invalid Field in Command (sct 0x0 / sc 0x2) DNR
             @60 critical medium error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "medium nvme0n1 yes 2048",
        ),
        (
            "@10 nvme0n1: Write Zeroes(0x8) @ LBA 0, 8 blocks, Invalid Field in Command (sct 0x0 / sc 0x2) DNR
             @60 I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "io nvme0n1 unclear 2048",
        ),
        (
            "nvme0n1: Write Zeroes(0x8) @ LBA 0, 8 blocks, Invalid Field in Command (sct 0x0 / sc 0x2) DNR
             I/O error, dev nvme0n1, sector 0 op 0x9:(WRITE_ZEROES) flags 0x0 phys_seg 0 prio class 2",
            "nothing",
        ),
        // A locked drive: nvme_error_status() makes BLK_STS_MEDIUM of Access Denied.
        (
            "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Access Denied (sct 0x2 / sc 0x86) DNR
             critical medium error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
             Buffer I/O error on dev nvme0n1, logical block 0, async page read",
            "nothing",
        ),
        (
            "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Access Denied (sct 0x2 / sc 0x86) DNR
             nvme nvme0: I/O 5 QID 1 timeout, aborting
             critical medium error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            "timeout nvme0 unclear; medium nvme0n1 yes 0",
        ),
        (
            "@1 sd 0:0:0:0: [sda] tag#3 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
             @1 sd 0:0:0:0: [sda] tag#3 Sense Key : Illegal Request [current]
             @1 sd 0:0:0:0: [sda] tag#3 Add. Sense: Invalid field in cdb
             @1 sd 0:0:0:0: [sda] tag#3 CDB: Write same(16) 93 08 00 00 00 00 00 00 00 00 00 00 00 08 00 00
             @60 blk_update_request: critical medium error, dev sda, sector 99",
            "medium sda yes 99",
        ),
        // Decided at the next record, with the time of the first.
        (
            "@1 sd 0:0:0:0: [sda] Add. Sense: Incompatible medium installed
             @60 blk_update_request: I/O error, dev sda, sector 99",
            "io sda unclear 99",
        ),
        (
            "@1 sd 0:0:0:0: [sda] Unit Not Ready
             @1 sd 0:0:0:0: [sda] Sense Key : Not Ready [current]
             @60 blk_update_request: I/O error, dev sda, sector 99",
            "io sda unclear 99",
        ),
        (
            "@1 sd 0:0:0:0: [sda] tag#3 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE
             @1 sd 0:0:0:0: [sda] tag#3 Sense Key : Illegal Request [current]
             @60 blk_update_request: I/O error, dev sda, sector 99",
            "io sda unclear 99",
        ),
    ]);
}

#[test]
fn requests_beyond_the_end_of_a_device_are_no_errors() {
    check(&[
        // up to 4.4 two printks, until 5.11 one record
        (
            "attempt to access beyond end of device
             sda1: rw=0, want=12, limit=4
             Buffer I/O error on dev sda1, logical block 5, async page read",
            "nothing",
        ),
        (
            "attempt to access beyond end of device\\nsda1: rw=0, want=12, limit=4
             Buffer I/O error on dev sda1, logical block 5, async page read",
            "nothing",
        ),
        (
            "dd: attempt to access beyond end of device\\nsda1: rw=0, sector=5, nr_sectors = 8 limit=4
             Buffer I/O error on dev sda1, logical block 5, async page read",
            "nothing",
        ),
        (
            "dd: attempt to access beyond end of device
             nvme1n1: rw=465452, sector=5, nr_sectors = 8 limit=4
             XFS (nvme1n1): log I/O error -5
             @1 Buffer I/O error on dev nvme1n1, logical block 5, async page read",
            "fs-error nvme1n1 unclear",
        ),
        (
            "dd: attempt to access beyond end of device\\nsda1: rw=0, sector=5, nr_sectors = 8 limit=4
             @9 Buffer I/O error on dev sda1, logical block 5, async page read",
            "io sda1 unclear",
        ),
        (
            "dd: attempt to access beyond end of device\\nsda1: rw=0, sector=5, nr_sectors = 8 limit=4
             blk_update_request: critical medium error, dev sda, sector 99",
            "medium sda yes 99",
        ),
        // The device was removed.
        (
            "dd: attempt to access beyond end of device\\nsda1: rw=0, sector=5, nr_sectors = 8 limit=0
             Buffer I/O error on dev sda1, logical block 5, async page read",
            "io sda1 unclear",
        ),
    ]);
}

#[test]
fn only_suppressed_storage_records_are_counted() {
    for (function, count) in [
        ("net_ratelimit", 0),
        ("handle_bad_sector", 0),
        ("blk_update_request", 312),
        ("EXT4-fs warning", 312),
    ] {
        let events = classify(&format!(
            "{function}: 312 callbacks suppressed\nblk_update_request: I/O error, dev sda, sector 8 op 0x0:(READ)"
        ));
        assert_eq!(events.iter().map(|event| event.suppressed).sum::<u64>(), count, "{function}");
    }
}
