//! Families of records that are about no kernel driver alone: pools, unplugged disks, controllers of
//! phones, PCIe errors.

use crate::tests::check;

#[test]
fn a_pool_reports_the_errors_of_its_devices() {
    check(&[
        (
            "zio pool=tank vdev=/dev/sdc1 error=5 type=1 offset=270336 size=8192 flags=721601",
            "io sdc1 unclear 528",
        ),
        (
            "zio pool=tank vdev=/dev/disk/by-id/ata-DISK_0001-part1 error=5 type=2 offset=4096 size=4096 flags=1808aa",
            "io disk/by-id/ata-DISK_0001-part1 unclear 8",
        ),
        (
            "zio pool=tank vdev=/dev/sdc1 error=61 type=1 offset=512 size=4096 flags=1572992",
            "medium sdc1 yes 1",
        ),
        (
            "zio pool=tank vdev=/dev/disk/by-id/ata-DISK_0001-part1 error=61 type=1 offset=512 size=4096 flags=1572992",
            "medium disk/by-id/ata-DISK_0001-part1 yes 1",
        ),
        // Not the name of a drive.
        (
            "zio pool=tank vdev=/dev/mapper/luks-1 error=61 type=1 offset=512 size=4096 flags=1572992",
            "medium mapper/luks-1 unclear 1",
        ),
        // A locked NVMe drive refuses writes with the same status.
        (
            "zio pool=tank vdev=/dev/nvme0n1p1 error=61 type=2 offset=512 size=4096 flags=1572992",
            "medium nvme0n1p1 unclear 1",
        ),
        (
            "zio pool=tank vdev=/dev/sdc1 error=110 type=1 offset=512 size=4096 flags=1572992",
            "timeout sdc1 unclear 1",
        ),
        // A flush failed.
        (
            "zio pool=tank vdev=/dev/sdc1 error=5 type=5 offset=0 size=0 flags=1049728",
            "io sdc1 unclear 0",
        ),
        // Not supported by the device.
        (
            "zio pool=tank vdev=/dev/sdc1 error=95 type=5 offset=0 size=0 flags=1049728",
            "nothing",
        ),
        // The block layer's record has the sector of the disk.
        (
            "blk_update_request: I/O error, dev sdc, sector 2576 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
             zio pool=tank vdev=/dev/sdc1 error=5 type=1 offset=270336 size=8192 flags=721601",
            "io sdc unclear 2576",
        ),
        (
            "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.",
            "fs-shutdown tank unclear",
        ),
        ("WARNING: Pool 'x' is fine", "nothing"),
    ]);
}

#[test]
fn lines_of_bcachefs_without_its_prefix_belong_to_its_last_filesystem() {
    check(&[
        ("bcachefs (sdb1): error in recovery: EIO", "nothing"),
        (
            "bcachefs (sdb1): error in recovery: EIO
             emergency read only at seq 11",
            "fs-shutdown sdb1 unclear",
        ),
        (
            "bcachefs (sdb1): error validating btree node at btree extents level 0/1
             emergency read only at seq 11",
            "fs-corruption sdb1 unclear; fs-shutdown sdb1 unclear",
        ),
        (
            "inconsistency detected - emergency read only at journal seq 1234",
            "fs-shutdown unnamed unclear",
        ),
        ("fatal error - emergency read only", "fs-shutdown unnamed unclear"),
        (
            "checksum error, type crc32c: got 0x1234 should be 0x5678",
            "fs-corruption unnamed unclear",
        ),
        (
            "bcachefs (sdb1 inum 4096): data read error: checksum error",
            "fs-corruption sdb1 unclear",
        ),
        ("bcachefs (sdb1 sector 4096): IO error: EIO", "fs-error sdb1 unclear"),
        ("emergency read only at sequence", "nothing"),
    ]);
}

const DISCONNECT: &str = "usb 2-1: USB disconnect, device number 3\n";
const FLUSH: &str = "sd 6:0:0:0: [sdb] Synchronizing SCSI cache\n";
const FLUSH_FAILED: &str = "sd 6:0:0:0: [sdb] Synchronize Cache(10) failed: Result: hostbyte=DID_ERROR driverbyte=DRIVER_OK\n";

#[test]
fn an_idle_usb_disk_may_be_unplugged() {
    let idle = format!("{DISCONNECT}{FLUSH}{FLUSH_FAILED}");
    check(&[
        (&idle, "nothing"),
        (&format!("{DISCONNECT}{FLUSH}"), "nothing"),
        // Its filesystem had been unmounted.
        (
            &format!(
                "EXT4-fs (sdb1): mounted filesystem with ordered data mode\nEXT4-fs (sdb1): unmounting filesystem.\n{idle}"
            ),
            "nothing",
        ),
        // Another disk is mounted.
        (&format!("EXT4-fs (sdc1): mounted filesystem with ordered data mode\n{idle}"), "nothing"),
        // The machine suspends, and a mouse was unplugged: the disk is a SATA disk.
        (
            &format!(
                "scsi host6: ahci\nsd 6:0:0:0: [sdb] Attached SCSI disk\nXFS (sdb1): Mounting V5 Filesystem\n{DISCONNECT}{FLUSH}"
            ),
            "nothing",
        ),
        // The machine stops: nothing was unplugged.
        (FLUSH, "nothing"),
        (FLUSH_FAILED, "removed sdb unclear"),
        // Long after another device was unplugged.
        (&format!("{DISCONNECT}@100 {FLUSH}@100 {FLUSH_FAILED}"), "removed sdb unclear"),
    ]);
}

#[test]
fn a_usb_disk_that_was_in_use_was_removed() {
    let unplugged = format!("{DISCONNECT}{FLUSH}");
    let idle = format!("{unplugged}{FLUSH_FAILED}");
    check(&[
        (
            &format!("EXT4-fs (sdb1): mounted filesystem with ordered data mode\n{unplugged}"),
            "removed sdb no",
        ),
        (&format!("XFS (sdb): Mounting V5 Filesystem\n{idle}"), "removed sdb no"),
        (
            &format!(
                "scsi host6: usb-storage 2-1:1.0\nsd 6:0:0:0: [sdb] Attached SCSI disk\nXFS (sdb): Mounting V5 Filesystem\n{DISCONNECT}"
            ),
            "removed sdb no",
        ),
        // FAT says nothing when it is mounted.
        (
            &format!("{idle}FAT-fs (sdb1): unable to read boot sector to mark fs as dirty"),
            "removed sdb no; fs-error sdb1 unclear",
        ),
        // Lost writes, an aborted journal, errors beside it: before and after.
        (
            &format!(
                "{DISCONNECT}Buffer I/O error on dev sdb1, logical block 5, lost async page write\n{FLUSH}{FLUSH_FAILED}"
            ),
            "io sdb1 unclear; removed sdb no",
        ),
        (
            &format!("{idle}Aborting journal on device sdb1-8."),
            "removed sdb no; readonly sdb1 unclear",
        ),
        (
            &format!(
                "{idle}blk_update_request: I/O error, dev sdb, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0"
            ),
            "removed sdb no",
        ),
    ]);
}

#[test]
fn adapters_report_an_abort_only_by_its_result() {
    check(&[
        (
            "sd 0:0:5:0: task abort: SUCCESS scmd(0x00000000e6a9c4e5)",
            "timeout 0:0:5:0 unclear",
        ),
        (
            "sd 0:0:5:0: [sdf] task abort: FAILED scmd(ffff8814605d2100)",
            "timeout sdf unclear",
        ),
        // One incident with its beginning.
        (
            "sd 0:0:5:0: attempting task abort!scmd(0x55), outstanding for 30220 ms & timeout 30000 ms
             sd 0:0:5:0: task abort: SUCCESS scmd(0x55)",
            "timeout 0:0:5:0 unclear",
        ),
        (
            "sd 0:0:5:0: device reset: FAILED scmd(0x55)",
            "reset 0:0:5:0 unclear",
        ),
    ]);
}

#[test]
fn a_phones_storage_is_a_drive_of_this_machine() {
    let disk = |text: &str| format!("ufshcd-qcom 1d84000.ufshc: {text}");
    for (text, expected) in [
        ("OCS error from controller = 7 for tag 12", "transport unnamed unclear"),
        ("ufshcd_abort: Device abort task at tag 5", "timeout unnamed unclear"),
        (
            "ufshcd_try_to_abort_task: no response from device. tag = 5, err -110",
            "timeout unnamed unclear",
        ),
        ("__ufshcd_issue_tm_cmd: task management cmd 0x80 timed-out", "timeout unnamed unclear"),
        ("link startup failed -110", "transport unnamed unclear"),
        ("ufshcd_link_recovery: link recovery failed, err -110", "removed unnamed unclear"),
        ("ufshcd_host_reset_and_restore: Host init failed -110", "removed unnamed unclear"),
        ("ufshcd_verify_dev_init: NOP OUT failed -11", "timeout unnamed unclear"),
        (
            "ufshcd_query_flag: Sending flag query for idn 1 failed, err = -11",
            "timeout unnamed unclear",
        ),
        // The device does not have the flag.
        ("ufshcd_query_flag: Sending flag query for idn 18 failed, err = 253", "nothing"),
        ("Resetting the controller is not supported", "nothing"),
    ] {
        check(&[(&disk(text), expected)]);
    }
}

#[test]
fn uncorrected_pcie_errors_of_a_storage_controller() {
    let attached = "nvme nvme0: pci function 0000:03:00.0\n";
    check(&[
        (
            "nvme 0000:03:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
            "transport 0000:03:00.0 unclear",
        ),
        (
            "nvme 0000:03:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)",
            "transport 0000:03:00.0 unclear",
        ),
        (
            &format!(
                "{attached}nvme 0000:03:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)"
            ),
            "transport nvme0 unclear",
        ),
        (
            "ahci 0000:00:17.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Completer ID)",
            "transport 0000:00:17.0 unclear",
        ),
        (
            "nvme 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "nothing",
        ),
        (
            "nvme 0000:03:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
            "nothing",
        ),
        // No storage; what is behind the port is unknown.
        (
            "iwlwifi 0000:04:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            "nothing",
        ),
        (
            "pcieport 0000:00:1c.0: AER: Uncorrected (Non-Fatal) error received: 0000:03:00.0",
            "nothing",
        ),
    ]);
}

#[test]
fn a_full_thin_pool_and_the_filesystem_above() {
    check(&[
        (
            "device-mapper: thin: 253:4: switching pool to out-of-data-space mode",
            "readonly 253:4 no",
        ),
        (
            "device-mapper: thin: 253:4: no free data space available.",
            "readonly 253:4 no",
        ),
        (
            "device-mapper: thin: 253:4: reached low water mark for data device: sending event.",
            "nothing",
        ),
        (
            "EXT4-fs warning (device dm-5): ext4_end_bio:343: I/O error 3 writing to inode 12 starting block 39425)
             Buffer I/O error on device dm-5, logical block 39425",
            "fs-error dm-5 no; io dm-5 unclear",
        ),
        (
            "XFS (dm-5): metadata I/O error in \"xfs_buf_ioend+0x1/0x2 [xfs]\" at daddr 0x10 len 8 error 28",
            "fs-error dm-5 no",
        ),
    ]);
}

#[test]
fn a_card_that_stops_answering_is_not_excused() {
    check(&[
        ("mmc0: cqhci: timeout for tag 3", "timeout mmc0 unclear"),
        ("mmc0: running CQE recovery", "reset mmc0 unclear"),
        ("mmc0: error -110 whilst initialising MMC card", "timeout mmc0 unclear"),
        ("mmc0: error -110 during resume (card was removed?)", "timeout mmc0 no"),
        ("mmc0: cache flush error -110", "timeout mmc0 unclear"),
        (
            "mmc0: new HS400 MMC card at address 0001
             mmc0: Timeout waiting for hardware interrupt.",
            "timeout mmc0 unclear",
        ),
    ]);
}
