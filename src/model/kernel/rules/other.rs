//! Other filesystems, and what is no error but changes what errors mean: hypervisors, hot plugging,
//! boots.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Learn, Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "fat-error",
        "FAT-fs (",
        "error, ",
        Cause(FsCorruption, Unclear),
        "fs/fat/misc.c __fat_fs_error(); 3.10-6.18",
    ),
    rule(
        "fat-read-only",
        "FAT-fs (",
        "Filesystem has been set read-only",
        Cause(ReadOnly, Unclear),
        "fs/fat/misc.c __fat_fs_error(); 3.10-6.18",
    ),
    rule(
        "f2fs-inconsistent",
        "F2FS-fs (",
        "nconsistent",
        Cause(FsCorruption, Unclear),
        "fs/f2fs/; 4.0-6.18",
    ),
    rule(
        "f2fs-stopped",
        "F2FS-fs (",
        "Stopped filesystem due to reason",
        Cause(FsShutdown, Unclear),
        "fs/f2fs/super.c f2fs_handle_critical_error(); 6.6-6.18",
    ),
    // A task that waits, for whatever; no drive is named.
    rule(
        "hung-task",
        "INFO: task ",
        " blocked for more than ",
        Harmless,
        "kernel/hung_task.c check_hung_task(); 3.10-6.18",
    ),
    rule(
        "slot-emptied",
        "pciehp",
        "Card not present",
        Read(slot),
        "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18",
    ),
    rule(
        "slot-emptied-port",
        "pcieport",
        "Card not present",
        Read(slot),
        "drivers/pci/hotplug/pciehp_ctrl.c; 4.20-6.18",
    ),
    rule(
        "slot-down",
        "pcieport",
        "): Link Down",
        Read(slot),
        "drivers/pci/hotplug/pciehp_ctrl.c pciehp_handle_presence_or_link_change(); 3.10-6.18",
    ),
    rule(
        "slot-button",
        "pcieport",
        "ttention button pressed",
        Read(slot),
        "drivers/pci/hotplug/pciehp_ctrl.c; 3.10-6.18",
    ),
    rule(
        "guest",
        "Hypervisor detected: ",
        "Hypervisor detected: ",
        Read(guest),
        "arch/x86/kernel/cpu/hypervisor.c; 3.10-6.18",
    ),
    rule(
        "guest-kvm",
        "Booting paravirtualized kernel on ",
        "on KVM",
        Read(guest),
        "arch/x86/kernel/paravirt.c; 3.10-6.18",
    ),
    rule(
        "guest-dmi",
        "DMI: ",
        "DMI: ",
        Read(dmi),
        "arch/x86/kernel/setup.c, drivers/firmware/dmi_scan.c dmi_scan_machine(); 3.10-6.18",
    ),
    rule(
        "scsi-host",
        "scsi",
        "scsi",
        Read(host),
        "drivers/scsi/hosts.c scsi_add_host(): `scsi6 : ahci`, since 3.18 `scsi host6: ahci`; 3.10-6.18",
    ),
    rule(
        "boot",
        "Linux version ",
        "Linux version ",
        Read(boot),
        "init/version.c linux_banner; 3.10-6.18",
    ),
];

fn slot(_: &Text<'_>) -> Option<Said> {
    Some(Said::new(Device::Unnamed, Part::Learn(Learn::SlotEmptied)))
}

fn guest(_: &Text<'_>) -> Option<Said> {
    Some(Said::new(Device::Unnamed, Part::Learn(Learn::Guest)))
}

/// The machine's name and maker.
fn dmi(text: &Text<'_>) -> Option<Said> {
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
        .then(|| Said::new(Device::Unnamed, Part::Learn(Learn::Guest)))
}

fn boot(_: &Text<'_>) -> Option<Said> {
    Some(Said::new(Device::Unnamed, Part::Learn(Learn::Boot)))
}

/// Last of all rows: adapters' own words begin so too.
fn host(text: &Text<'_>) -> Option<Said> {
    let (head, driver) = text
        .all
        .trim_start()
        .split_once(": ")
        .or_else(|| text.all.trim_start().split_once(" : "))?;
    let head = head.strip_prefix("scsi")?.trim();
    let host = head.strip_prefix("host").unwrap_or(head).parse().ok()?;
    Some(Said::new(
        Device::ScsiHost(host),
        Part::Learn(Learn::Host {
            host,
            driver: driver.chars().take(80).collect(),
        }),
    ))
}
