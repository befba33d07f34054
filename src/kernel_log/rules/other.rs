//! Rules for other filesystems, and for records that are no errors but change the meaning of
//! errors: hypervisors, hot plugging, boots.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::DeviceName;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, FILESYSTEM, Role, RuleAction, RuleFamily, rules};

const FAT: RuleFamily = FILESYSTEM.with_prefix("FAT-fs (<disk>): ");
const F2FS: RuleFamily = FILESYSTEM.with_prefix("F2FS-fs (<disk>): ");
/// `bcachefs (sda1): `, `bcachefs (sda1 inum 123 offset 4096): `, `bcachefs (sda1 sector 4096): `
const BCACHEFS: RuleFamily = FILESYSTEM
    .with_prefix("bcachefs (<dev>{ inum <dec>}{ offset <dec>}{ sector <dec>}): ")
    .with_role(Role::Bcachefs);
/// A further line of a message: each is a record of its own, without the prefix
/// (bch2_print_string_as_lines()).
const BCACHEFS_LINE: RuleFamily = FILESYSTEM.with_role(Role::Bcachefs);
const SLOT: RuleFamily = DRIVE.with_prefix("pcieport <pci>: {pciehp: }Slot(<word>): ");
const SCSI_HOST: RuleFamily = DRIVE.with_prefix("scsi{ host}<host>{ }: ");

const SLOT_EMPTIED: RuleAction = Record(RecordKind::Topology(TopologyUpdate::SlotEmptied));
const VIRTUAL_MACHINE: RuleAction = Record(RecordKind::Topology(TopologyUpdate::VirtualMachine));

// No row for hung tasks (`INFO: task …`): a task waits, for any reason; the record contains no
// drive.
rules! {
    "fat-error": FAT, "error, "
        => Cause(FsCorruption, Unclear), "fs/fat/misc.c __fat_fs_error(); 3.10-6.18";
    "fat-io": FAT, "<FAT read failed (blocknr |Directory bread(block \
         |unable to read inode block for updating |unable to read boot sector to mark fs as >"
        => Effect(FsError, Unclear), "fs/fat/fatent.c fat_ent_bread(), dir.c fat_get_entry(), \
            inode.c __fat_write_inode(), fat_set_state(); 2.6.34-6.18";
    "reiserfs-error": FILESYSTEM, "REISERFS <error|panic|abort> (device <disk>): "
        => Cause(FsCorruption, Unclear), "fs/reiserfs/prints.c __reiserfs_error(), \
            __reiserfs_panic(), reiserfs_abort(); 2.6.32-6.12";
    "fat-read-only": FAT, "Filesystem has been set read-only$"
        => Cause(ReadOnly, Unclear), "fs/fat/misc.c __fat_fs_error(); 3.10-6.18";
    "f2fs-inconsistent": F2FS,
        "{<word>: }{inode (ino=<hex>) has }{Current segment's next free block offset is }\
         <I|i>nconsistent "
        => Cause(FsCorruption, Unclear), "fs/f2fs/; 4.0-6.18";
    "f2fs-stopped": F2FS, "Stopped filesystem due to reason: <dec>$"
        => Cause(FsShutdown, Unclear), "fs/f2fs/super.c f2fs_handle_critical_error(); 6.6-6.18";
    "f2fs-damaged": F2FS, ""
        => ParseKind(f2fs_damaged),
           "fs/f2fs/: messages that ask for fsck, or are about a wrong bitmap or address; 3.8-6.18";
    "bcachefs": BCACHEFS, ""
        => ParseKind(bcachefs),
           "fs/bcachefs/error.c bch2_inconsistent_error(), bch2_fatal_error(), io_read.c; 6.7-6.17";
    "bcachefs-read-only": BCACHEFS_LINE, "<emergency read only at seq \
         |inconsistency detected - emergency read only at journal seq ><dec>$"
        => Cause(FsShutdown, Unclear), "fs/bcachefs/super.c __bch2_fs_emergency_read_only(), \
            error.c bch2_inconsistent_error(); 6.7-6.17";
    "bcachefs-fatal": BCACHEFS_LINE, "fatal error - emergency read only$"
        => Cause(FsShutdown, Unclear), "fs/bcachefs/error.c bch2_fatal_error(); 6.7-6.17";
    "bcachefs-checksum": BCACHEFS_LINE,
        "{data }checksum error, type <word>: got <hex> should be <hex>"
        => Cause(FsCorruption, Unclear), "fs/bcachefs/checksum.c bch2_csum_err_msg(); 6.9-6.17";
    "bcachefs-key": BCACHEFS_LINE, "invalid bkey in <word> btree=<word> level=<dec>: "
        => Cause(FsCorruption, Unclear), "fs/bcachefs/error.c __bch2_bkey_fsck_err(); 6.12-6.17";
    "bcachefs-node": BCACHEFS_LINE,
        "<error validating btree node |btree node read error>< at btree |for btree |: btree >\
         <word> level <dec>/<dec>"
        => Cause(FsCorruption, Unclear),
           "fs/bcachefs/btree_io.c btree_err_msg(), btree_node_read_work(); 6.7-6.17";
    "quota": FILESYSTEM, "Quota error (device <disk>): <word>: "
        => ParseKind(quota),
           "fs/quota/dquot.c __quota_error(): the quota file's structure; 2.6.37-6.18";
    "slot-emptied": DRIVE,
        "pciehp{ <pci>:pcie<hex>}: {Slot(<word>): }Card not present{ on Slot(<word>)}$"
        => SLOT_EMPTIED, "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18";
    "slot-emptied-port": SLOT, "Card not present$"
        => SLOT_EMPTIED, "drivers/pci/hotplug/pciehp_ctrl.c; 4.20-6.18";
    // `Link Down/Up ignored (recovered by DPC)`: the slot is not empty.
    "slot-down": SLOT, "Link Down$"
        => SLOT_EMPTIED,
           "drivers/pci/hotplug/pciehp_ctrl.c pciehp_handle_presence_or_link_change(); 3.10-6.18";
    "slot-button": SLOT, "<A|a>ttention button pressed$"
        => SLOT_EMPTIED, "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18";
    "guest": DRIVE, "Hypervisor detected: <word>{ <word>}$"
        => VIRTUAL_MACHINE, "arch/x86/kernel/cpu/hypervisor.c; 3.10-6.18";
    "guest-kvm": DRIVE, "Booting paravirtualized kernel on KVM$"
        => VIRTUAL_MACHINE, "arch/x86/kernel/paravirt.c; 3.10-6.18";
    "guest-dmi": DRIVE, "DMI: "
        => ParseKind(dmi),
           "arch/x86/kernel/setup.c, drivers/firmware/dmi_scan.c dmi_scan_machine(); 3.10-6.18";
    "scsi-host": SCSI_HOST, "<SRP.T10:|IBM |><word>{ Storage Adapter}$"
        => Parse(scsi_host), "drivers/scsi/hosts.c scsi_add_host(): `scsi6 : ahci`, \
            since 3.18 `scsi host6: ahci`; 3.10-6.18";
    // Each name is longer than what a program's name of 15 bytes can contain after `scsi6: `.
    "scsi-host-model": SCSI_HOST, "<usb-storage |VMware PVSCSI |Virtio SCSI HBA|Xen SCSI frontend\
         |iSCSI Initiator over |scsi_debug: version |scsi_debug, version |SCSI DEBUG\
         |SCSI host adapter emulation|InfiniBand SRP |Emulex LP|Emulex OneConnect|Emulex 10Gbe\
         |QLogic Offload |QLogic QEDI |QLogic BR-series |QLogic Fibre Channel \
         |Brocade FC/FCOE Adapter|Broadcom Offload |FCoE Driver|Chelsio FCoE driver|IBM POWER \
         |IBM PCI ServeRAID|ATTO ExpressSAS|Avago SAS based MegaRAID|LSI SAS based MegaRAID\
         |LSI Logic MegaRAID|Fusion MPT SAS Host|ioc0: LSI|ioc1: LSI|ioc2: LSI|ioc3: LSI\
         |MPI3 Storage Controller|3ware 9000 Storage|3ware Storage Controller|Adaptec AIC\
         |Areca SATA |Areca SAS/SATA |Areca NVMe/SAS|Areca unknown |RocketRAID 3xxx\
         |Marvell Storage Controller|PMC MaxRAID|BusLogic BT-|sym-2.2.3>"
        => Parse(scsi_host), "drivers/scsi/hosts.c scsi_add_host(): \
            the text of scsi_host_template.info or .name; 3.10-6.18";
    // Up to the dot it is longer than the name of a program.
    "boot": DRIVE, "Linux version <dec>.<dec>"
        => Record(RecordKind::Topology(TopologyUpdate::Boot)),
           "init/version.c linux_banner; 3.10-6.18";
}

/// The whole record is one line of the kernel: a program's name can be as long as `F2FS-fs (sda): `,
/// and no record about a program ends with these words.
fn f2fs_damaged(text: &MatchedText<'_>) -> Option<RecordKind> {
    let line = text.after.trim_ascii_end();
    if line.contains('\n') {
        return None;
    }
    let ends = ["run fsck to fix.", "run fsck to fix", "run fsck to fix it", "run fsck to repair"];
    let begins = [
        "Bitmap was wrongly ",
        "invalid blkaddr",
        "access invalid blkaddr",
        "SIT is corrupted ",
        "Invalid segment type",
        "Failed to get valid F2FS checkpoint",
        "Failed to read root inode",
        "checksum invalid, nid = ",
        "inode mapping table is corrupted",
        "nat entry is corrupted",
    ];
    (ends.iter().any(|end| line.ends_with(end))
        || begins.iter().any(|start| line.starts_with(start)))
    .then_some(RecordKind::Cause(FsCorruption, Unclear))
}

/// The messages changed in each release; these words are in the texts of all of them. A program's
/// name is shorter than the prefix with a device's name of three letters.
fn bcachefs(text: &MatchedText<'_>) -> Option<RecordKind> {
    if text.device.to_string().len() < 3 {
        return None;
    }
    let has = |words: &[&str]| words.iter().any(|word| text.after.contains(word));
    Some(match () {
        () if has(&["emergency read only", "emergency read-only"]) => {
            RecordKind::Cause(FsShutdown, Unclear)
        }
        () if has(&[
            "checksum error",
            "inconsistency detected",
            "btree node read error",
            "error validating btree node",
            "invalid bkey in ",
        ]) =>
        {
            RecordKind::Cause(FsCorruption, Unclear)
        }
        () if has(&["data read error", "data write error", "IO error:", "journal write error"]) => {
            RecordKind::Effect(FsError, Unclear)
        }
        // The lines that follow are about this filesystem.
        () => RecordKind::Continuation,
    })
}

/// The kernel cannot read or write its quota file, or the file contradicts itself.
fn quota(text: &MatchedText<'_>) -> Option<RecordKind> {
    let of_device = ["Can't read ", "Can't write ", "Error -5 ", "dquota write failed"];
    Some(if of_device.iter().any(|start| text.after.starts_with(start)) {
        RecordKind::Effect(FsError, Unclear)
    } else {
        RecordKind::Cause(FsCorruption, Unclear)
    })
}

/// The machine's vendor, model and board, and its firmware: `Red Hat KVM, BIOS 1.16.1 04/01/2014`. A
/// program's name can be `DMI: QEMU`: no record about a program has this form.
fn dmi(text: &MatchedText<'_>) -> Option<RecordKind> {
    let made = [
        "QEMU",
        "VMware",
        "VirtualBox",
        "Virtual Machine",
        "Bochs",
        "KVM",
        "Xen",
        "Google Compute Engine",
        "OpenStack",
        "RHEV",
        "Nutanix AHV",
    ];
    let ids = text.after.trim_ascii_end();
    let (_, firmware) = ids.split_once(", BIOS ")?;
    let (_, date) = firmware.rsplit_once(' ')?;
    (is_date(date)
        && !ids.contains(": ")
        && !ids.contains('\n')
        && made.iter().any(|name| ids.contains(name)))
    .then_some(RecordKind::Topology(TopologyUpdate::VirtualMachine))
}

/// `04/01/2014`, `2/2/2022`
fn is_date(text: &str) -> bool {
    text.split('/').count() == 3
        && text.split('/').all(|part| {
            (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
}

fn scsi_host(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let DeviceName::ScsiHost(host) = *text.device else {
        return None;
    };
    let driver = text.fields.concat() + text.after;
    Some(ParsedRecord::new(
        DeviceName::ScsiHost(host),
        RecordKind::Topology(TopologyUpdate::ScsiHost {
            host,
            driver: driver.chars().take(80).collect(),
        }),
    ))
}
