//! Wordings of older and newer kernels: arrays, adapters, disks elsewhere, filesystems. Each text is
//! composed from the format string of its row.

use super::*;

#[test]
fn arrays_and_mapped_devices() {
    check(&[
        (
            "raid1: Disk failure on sdb1, disabling device.\\nraid1: Operation continuing on 1 devices.",
            "removed sdb1 unclear",
        ),
        (
            "raid5:md0: read error corrected (8 sectors at 1234 on sdb1)",
            "io sdb1 unclear 1234 corrected",
        ),
        (
            "md/raid:md0: read error on replacement device (sector 99 on sdc1).",
            "io sdc1 unclear 99",
        ),
        (
            "md/raid10:md0: unable to read back corrected sectors (8 sectors at 16 on sdc)",
            "io sdc unclear 16",
        ),
        // The block layer has named the sector, from the disk's start.
        (
            "I/O error, dev sdb, sector 3282 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2
             md/raid:md0: read error corrected (8 sectors at 1234 on sdb1)",
            "io sdb unclear 3282",
        ),
        ("md: disabled device sdb1, could not read superblock.", "io sdb1 unclear"),
        ("md/raid1:md0: active with 2 out of 2 mirrors", "nothing"),
        ("md/raid:md0: device sdb1 operational as raid disk 1", "nothing"),
        (
            "device-mapper: multipath: queue_if_no_path timeout on 253:8, failing queued IO",
            "transport 253:8 no",
        ),
        (
            "device-mapper: cache: 253:4: metadata operation 'dm_cache_commit' failed: error = -5",
            "readonly 253:4 unclear",
        ),
        (
            "device-mapper: thin: 253:4: dm_thin_find_block() failed: error = -5",
            "fs-error 253:4 unclear",
        ),
        (
            "device-mapper: thin: 253:4: unable to switch pool to write mode until repaired.",
            "readonly 253:4 unclear",
        ),
        (
            "device-mapper: thin: 253:4: reached low water mark for data device: sending event.",
            "nothing",
        ),
        (
            "device-mapper: integrity: Checksum failed when reading from journal, at sector 0x10",
            "fs-corruption unnamed unclear",
        ),
        ("device-mapper: integrity: Error on reading tags: -5", "fs-error unnamed unclear"),
        (
            "device-mapper: raid1: Unable to read primary mirror during recovery",
            "io unnamed unclear",
        ),
        (
            "bcache: cached_dev_status_update() sdb: device offline for 5 seconds",
            "removed sdb unclear",
        ),
        (
            "device-mapper: raid1: Read failure on mirror device 253:3.  Trying alternative device.",
            "io 253:3 unclear",
        ),
    ]);
}

#[test]
fn adapters_and_their_firmware() {
    check(&[
        ("sas: TMF task timeout for 5000c500a1b2c3d4 and not done", "timeout unnamed unclear"),
        ("sas: I_T nexus reset for dev 5000c500a1b2c3d4", "reset unnamed unclear"),
        (
            "sas: error from  device 5000c500a1b2c3d4, LUN 0x0 couldn't be recovered in any way",
            "removed unnamed unclear",
        ),
        ("mptbase: ioc0: WARNING - IOC is in FAULT state (1804h)!!!", "reset unnamed no"),
        ("mptbase: ioc0:   PhysDisk is now failed, ", "removed unnamed unclear"),
        ("mptbase: ioc0:   volume is now degraded, enabled", "removed unnamed no"),
        ("mptbase: ioc0:   volume is now optimal, enabled", "nothing"),
        ("mpt3sas_cm0: SAS host is non-operational !!!!", "removed unnamed no"),
        ("sd 0:2:0:0: [sda] megasas: RESET cmd=2a retries=0", "timeout sda no; reset sda no"),
        (
            "sd 0:2:0:0: megasas: RESET -1234 cmd=28 retries=0",
            "timeout 0:2:0:0 no; reset 0:2:0:0 no",
        ),
        (
            "megaraid_sas 0000:01:00.0: Found FW in FAULT state, will reset adapter scsi0.",
            "reset 0000:01:00.0 no",
        ),
        (
            "megaraid_sas 0000:01:00.0: IO/DCMD timeout is detected, forcibly FAULT Firmware",
            "timeout 0000:01:00.0 no",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1234 (700000000s/0x0002/WARN) - Unexpected sense: PD 05(e0x20/s5) Path 500, CDB: 28 00, Sense: 3/11/00",
            "medium 0000:01:00.0 unclear",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1235 (700000000s/0x0001/CRIT) - VD 00/0 is now DEGRADED",
            "array-state 0000:01:00.0 VD 0 unclear",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1238 (700000000s/0x0001/info) - VD 02/2 is now OPTIMAL",
            "array-state 0000:01:00.0 VD 2 no",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1239 (boot + 7s/0x0001/CRIT) - VD 00/1 is now OFFLINE",
            "array-state 0000:01:00.0 unclear",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1240 (700000000s/0x0002/CRIT) - PD 05(e0x20/s5) is now FAILED",
            "removed 0000:01:00.0 unclear",
        ),
        (
            "megaraid_sas 0000:01:00.0: 1236 (boot + 5s/0x0020/FATAL) - Controller encountered a fatal error and was reset",
            "reset 0000:01:00.0 no",
        ),
        ("megaraid_sas 0000:01:00.0: 1237 (700000000s/0x0020/info) - Time established", "nothing"),
        ("hpsa 0000:03:00.0: resetting device 2:0:0:0", "reset 2:0:0:0 unclear"),
        (
            "hpsa 0000:03:00.0: cp ffff8800 has status 0x2 Sense: 0x3, ASC: 0x11, ASCQ: 0x0, Returning result: 0x2",
            "medium 0000:03:00.0 unclear",
        ),
        (
            "hpsa 0000:03:00.0: cp ffff8800 has status 0x2 Sense: 0x5, ASC: 0x20, ASCQ: 0x0, Returning result: 0x2",
            "nothing",
        ),
        ("hpsa 0000:03:00.0: cp ffff8800 timedout", "timeout 0000:03:00.0 no"),
        (
            "smartpqi 0000:5c:00.0: no heartbeat detected - last heartbeat count: 77",
            "reset 0000:5c:00.0 no",
        ),
        (
            "sd 0:1:0:0: [sda] tag#5 received 'logical unit failure' from controller for scsi 0:1:0:0",
            "removed sda unclear",
        ),
        ("aacraid: SCSI bus appears hung", "reset unnamed no"),
        ("AAC: Host adapter dead -3", "removed unnamed no"),
        ("sd 0:0:0:0: Device offlined - array failed", "removed 0:0:0:0 unclear"),
        (
            "3w-9xxx: scsi0: AEN: ERROR (0x04:0x0009): Drive timeout detected:port=4.",
            "timeout unnamed unclear",
        ),
        (
            "3w-9xxx: scsi0: AEN: ERROR (0x04:0x0002): Degraded unit:unit=0, port=4.",
            "removed unnamed unclear",
        ),
        ("3w-9xxx: scsi0: AEN: INFO (0x04:0x0029): Verify started:unit=0.", "nothing"),
        ("arcmsr0: wait 'abort all outstanding command' timeout", "reset unnamed no"),
    ]);
}

#[test]
fn disks_on_other_machines_have_errors_and_no_fault() {
    check(&[
        ("block nbd0: Connection timed out", "timeout nbd0 no"),
        (
            "block nbd0: Receive control failed (result -32)
             block nbd0: shutting down sockets
             I/O error, dev nbd0, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "transport nbd0 no",
        ),
        (
            "I/O error, dev nbd0, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "transport nbd0 no 8",
        ),
        (
            "block nbd0: NBD_DISCONNECT
             block nbd0: shutting down sockets",
            "nothing",
        ),
        ("rbd: rbd0: write at objno 12 0~4096 result -108", "transport rbd0 no"),
        ("rbd: rbd0: write 1000 at 2000 (0)", "nothing"),
        ("rbd: rbd0:   result -110", "transport rbd0 no"),
        (
            "hv_storvsc f8b3781a-1e82-4818-a1c3-63d806ec15bb: tag#12 cmd 0x2a status: scsi 0x2 srb 0x4 hv 0xc0000001",
            "io unnamed no",
        ),
        ("hv_storvsc vmbus_0_1: cmd 0x28 scsi status 0x2 srb status 0x84", "io unnamed no"),
        (
            "hv_storvsc f8b3781a-1e82-4818-a1c3-63d806ec15bb: tag#12 cmd 0x85 status: scsi 0x2 srb 0x6 hv 0xc0000001",
            "nothing",
        ),
        (
            "sd 2:0:0:0: [sda] task abort on host 2, 00000000deadbeef
             sd 2:0:0:0: [sda] SCSI Bus reset",
            "timeout sda no; reset sda no",
        ),
        (
            "sd 0:0:0:0: [sda] tag#1 abort
             sd 0:0:0:0: device reset",
            "timeout sda no; reset sda no",
        ),
        ("zfcp 0.0.1900: The local link is down: no light detected", "transport unnamed no"),
        (
            "dasd-eckd 0.0.4711: Accessing the DASD failed because of a hardware error",
            "io unnamed no",
        ),
        (
            "ufshcd-qcom 1d84000.ufshc: ufshcd_abort: Device abort task at tag 5",
            "timeout unnamed unclear",
        ),
        (
            "exynos-ufs 11100000.ufs: ufshcd_abort: Device abort task at tag 17",
            "timeout unnamed unclear",
        ),
        (
            "ufshcd-qcom 1d84000.ufshc: pwr ctrl cmd 0x18 with mode 0x0 completion timeout",
            "timeout unnamed unclear",
        ),
    ]);
}

#[test]
fn filesystems_of_other_versions() {
    check(&[
        (
            "BTRFS warning (device sda1): tree block 123 mirror 1 has bad csum, has 0x1 want 0x2",
            "fs-corruption sda1 unclear copies 0 1",
        ),
        ("BTRFS error (device sda1): 2 errors while writing supers", "fs-error sda1 unclear"),
        (
            "BTRFS error (device sda1): IO error rebuilding logical 123 for dev /dev/sdb1",
            "fs-error sda1 unclear",
        ),
        (
            "BTRFS error (device sda1): superblock contains fatal errors",
            "fs-corruption sda1 unclear",
        ),
        (
            "JBD2: previous I/O error detected for journal superblock update for sda1-8.",
            "fs-error sda1 unclear",
        ),
        ("JBD2: journal transaction 12 on sda1-8 is corrupt.", "fs-corruption sda1 unclear"),
        ("JBD2: Invalid checksum found in transaction 12", "fs-corruption unnamed unclear"),
        ("EXT4-fs (sda1): corrupt root inode, run e2fsck", "fs-corruption sda1 unclear"),
        ("EXT4-fs (sda1): I/O error on journal device", "fs-error sda1 unclear"),
        (
            "EXT4-fs warning (device sda1): htree_dirblock_to_tree:1067: inode #2: lblock 0: comm ls: error -5 reading directory block",
            "fs-error sda1 unclear",
        ),
        (
            "EXT4-fs warning (device sda1): htree_dirblock_to_tree:1067: inode #2: lblock 0: comm ls: error -74 reading directory block",
            "fs-corruption sda1 unclear",
        ),
        (
            "EXT4-fs (sda1): delayed block allocation failed for inode 12 at logical offset 0 with max blocks 8 with error -5",
            "fs-error sda1 unclear",
        ),
        (
            "EXT4-fs (sda1): delayed block allocation failed for inode 12 at logical offset 0 with max blocks 8 with error -28",
            "nothing",
        ),
        (
            "EXT4-fs (sda1): ext4_da_writepages: jbd2_start: 1024 pages, ino 12; err -30",
            "fs-error sda1 unclear",
        ),
        ("FAT-fs (sdb1): FAT read failed (blocknr 47)", "fs-error sdb1 unclear"),
        (
            "REISERFS error (device sda2): vs-5150 search_by_key: invalid format found in block 12. Fsck?",
            "fs-corruption sda2 unclear",
        ),
        ("JBD: IO error recovering block 12 in log", "fs-error unnamed unclear"),
        ("JBD2: IO error -5 recovering block 12 in log", "fs-error unnamed unclear"),
        (
            "jbd2_journal_bmap: journal block not found at offset 12 on sda1-8",
            "fs-corruption sda1 unclear",
        ),
        (
            "Filesystem \"sda1\": XFS internal error xfs_trans_cancel at line 1162 of file fs/xfs/xfs_trans.c.  Caller 0xffffffff",
            "fs-corruption sda1 unclear",
        ),
        (
            "Filesystem \"dm-0\": Corruption of in-memory data detected.  Shutting down filesystem: dm-0",
            "fs-shutdown dm-0 unclear",
        ),
        ("I/O Error Detected.  Shutting down filesystem: sda1", "fs-shutdown sda1 unclear"),
        (
            "I/O error in filesystem (\"sda1\") meta-data dev sda1 block 0x10       (\"xlog_iodone\") error 5 buf count 1024",
            "fs-error sda1 unclear",
        ),
        (
            "dm-0: writeback error on inode 71, offset 239466496, sector 668620",
            "fs-error dm-0 unclear",
        ),
        ("XFS (sda1): xfs_log_force: error 5 returned.", "fs-error sda1 unclear"),
        (
            "XFS (sda1): page discard on page ffffea0000, inode 0x43, offset 0.",
            "fs-error sda1 unclear",
        ),
        (
            "BTRFS critical (device sda1): unable to find logical 123 length 4096",
            "fs-corruption sda1 unclear",
        ),
        (
            "BTRFS error (device sda1): level verify failed on logical 123 mirror 1 wanted 1 found 0",
            "fs-corruption sda1 unclear copies 0 1",
        ),
        ("BTRFS error (device sda1): failed to read block groups: -5", "fs-error sda1 unclear"),
        (
            "BTRFS warning (device sda1): devid 2 uuid 9a2b7e05-3b1f-4a0e-8ef2-50a0c3c1f0aa is missing",
            "removed sda1 unclear",
        ),
        (
            "F2FS-fs (mmcblk0p1): sanity_check_inode: corrupted inode ino=12, run fsck to fix.",
            "fs-corruption mmcblk0p1 unclear",
        ),
        ("F2FS-fs (mmcblk0p1): Bitmap was wrongly set, blk:12", "fs-corruption mmcblk0p1 unclear"),
        ("F2FS-fs (mmcblk0p1): Found nat_bits in checkpoint", "nothing"),
        // A program has the name `F2FS-fs (sda): ` or `bcachefs (sd): `, and its file the rest.
        (
            "F2FS-fs (sda): [7]: segfault at 0 ip 0 sp 0 error 6 in x run fsck to fix.\\n[559e+1000]",
            "nothing",
        ),
        (
            "bcachefs (sd): [7]: segfault at 0 ip 0 sp 0 error 6 in checksum error[559e+1000]",
            "nothing",
        ),
        ("bcachefs (sda1): fatal error - emergency read only", "fs-shutdown sda1 unclear"),
        (
            "bcachefs (sda1 inum 123 offset 4096): data checksum error: got 1 should be 2",
            "fs-corruption sda1 unclear",
        ),
        ("bcachefs (sda1): journal read done, replaying entries 1-2", "nothing"),
        (
            "Quota error (device sda1): qtree_write_dquot: dquota write failed",
            "fs-error sda1 unclear",
        ),
        (
            "Quota error (device sda1): find_tree_dqentry: Quota structure has offset to other block",
            "fs-corruption sda1 unclear",
        ),
    ]);
}
