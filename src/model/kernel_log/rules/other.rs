//! Rules for other filesystems, and for records that are no errors but change the meaning of
//! errors: hypervisors, hot plugging, boots.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{
    MatchedText, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, FILESYSTEM, Rule};

pub(crate) const RULES: &[Rule] = &[
    FILESYSTEM.with_prefix("FAT-fs (").rule(
        "fat-error",
        "error, ",
        Cause(FsCorruption, Unclear),
        "fs/fat/misc.c __fat_fs_error(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("FAT-fs (").rule(
        "fat-read-only",
        "Filesystem has been set read-only",
        Cause(ReadOnly, Unclear),
        "fs/fat/misc.c __fat_fs_error(); 3.10-6.18",
    ),
    FILESYSTEM.with_prefix("F2FS-fs (").rule(
        "f2fs-inconsistent",
        "nconsistent",
        Cause(FsCorruption, Unclear),
        "fs/f2fs/; 4.0-6.18",
    ),
    FILESYSTEM.with_prefix("F2FS-fs (").rule(
        "f2fs-stopped",
        "Stopped filesystem due to reason",
        Cause(FsShutdown, Unclear),
        "fs/f2fs/super.c f2fs_handle_critical_error(); 6.6-6.18",
    ),
    // A task waits, for any reason; the record contains no drive.
    DRIVE.with_prefix("INFO: task ").rule(
        "hung-task",
        " blocked for more than ",
        Ignore,
        "kernel/hung_task.c check_hung_task(); 3.10-6.18",
    ),
    DRIVE.with_prefix("pciehp").rule(
        "slot-emptied",
        "Card not present",
        Record(RecordKind::Topology(TopologyUpdate::SlotEmptied)),
        "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("pcieport").rule(
        "slot-emptied-port",
        "Card not present",
        Record(RecordKind::Topology(TopologyUpdate::SlotEmptied)),
        "drivers/pci/hotplug/pciehp_ctrl.c; 4.20-6.18",
    ),
    DRIVE.with_prefix("pcieport").rule(
        "slot-down",
        "): Link Down",
        Record(RecordKind::Topology(TopologyUpdate::SlotEmptied)),
        "drivers/pci/hotplug/pciehp_ctrl.c pciehp_handle_presence_or_link_change(); 3.10-6.18",
    ),
    DRIVE.with_prefix("pcieport").rule(
        "slot-button",
        "ttention button pressed",
        Record(RecordKind::Topology(TopologyUpdate::SlotEmptied)),
        "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("Hypervisor detected: ").rule(
        "guest",
        "Hypervisor detected: ",
        Record(RecordKind::Topology(TopologyUpdate::VirtualMachine)),
        "arch/x86/kernel/cpu/hypervisor.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("Booting paravirtualized kernel on ").rule(
        "guest-kvm",
        "on KVM",
        Record(RecordKind::Topology(TopologyUpdate::VirtualMachine)),
        "arch/x86/kernel/paravirt.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("DMI: ").rule(
        "guest-dmi",
        "DMI: ",
        ParseKind(dmi),
        "arch/x86/kernel/setup.c, drivers/firmware/dmi_scan.c dmi_scan_machine(); 3.10-6.18",
    ),
    DRIVE.with_prefix("scsi").rule(
        "scsi-host",
        "scsi",
        Parse(scsi_host),
        "drivers/scsi/hosts.c scsi_add_host(): `scsi6 : ahci`, since 3.18 `scsi host6: ahci`; 3.10-6.18",
    ),
    DRIVE.with_prefix("Linux version ").rule(
        "boot",
        "Linux version ",
        Record(RecordKind::Topology(TopologyUpdate::Boot)),
        "init/version.c linux_banner; 3.10-6.18",
    ),
];

/// The machine's model and vendor.
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
    made.iter()
        .any(|name| text.after.contains(name))
        .then_some(RecordKind::Topology(TopologyUpdate::VirtualMachine))
}

/// The last row: messages of the adapters themselves begin with the same text.
fn scsi_host(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (head, driver) = text
        .all
        .trim_start()
        .split_once(": ")
        .or_else(|| text.all.trim_start().split_once(" : "))?;
    let head = head.strip_prefix("scsi")?.trim();
    let host = head.strip_prefix("host").unwrap_or(head).parse().ok()?;
    Some(ParsedRecord::new(
        DeviceName::ScsiHost(host),
        RecordKind::Topology(TopologyUpdate::ScsiHost {
            host,
            driver: driver.chars().take(80).collect(),
        }),
    ))
}
