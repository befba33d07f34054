//! Whether a line without a header is one of the kernel's: its records begin with the name of a
//! subsystem, a driver or a device.
//!
//! In: a line. Out: `Likeness`. Needed only to say how much of a file was understood: what a record
//! means is decided by the rules.

use diskvitals_kernel_log::rules;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// A record of the kernel, by its words.
    Kernel,
    /// `name: text`: the kernel and many others print this form.
    Possible,
    Other,
}

/// How records of the kernel begin that are about no drive.
const BEGINNINGS: [&str; 118] = [
    "ACPI: ",
    "AppArmor: ",
    "BIOS-e820: ",
    "BIOS-provided ",
    "Block layer SCSI ",
    "Bluetooth: ",
    "Booting Linux ",
    "Bridge firewalling ",
    "Btrfs loaded",
    "CPU: ",
    "CPU0: ",
    "Call Trace:",
    "Command line: ",
    "Console: ",
    "DMAR: ",
    "DMI: ",
    "EDAC ",
    "EXT4-fs ",
    "FS-Cache: ",
    "Freeing unused ",
    "Hardware name: ",
    "Hypervisor detected",
    "INFO: rcu",
    "INFO: task ",
    "IP-Config: ",
    "IPv6: ",
    "IPVS: ",
    "JBD2: ",
    "KVM: ",
    "Kernel command line: ",
    "Kernel panic ",
    "Key type ",
    "Linux version ",
    "Memory cgroup ",
    "Memory: ",
    "Modules linked in: ",
    "NET: ",
    "NFS: ",
    "NMI watchdog: ",
    "Out of memory: ",
    "PCI: ",
    "PM: ",
    "RAX: ",
    "RDX: ",
    "RIP: ",
    "RPC: ",
    "RSP: ",
    "Run /init ",
    "SCSI subsystem ",
    "SELinux: ",
    "SGI XFS ",
    "Serial: ",
    "TCP: ",
    "UDP: ",
    "VFS: ",
    "Workqueue: ",
    "XFS ",
    "Zone ranges:",
    "[drm",
    "acpi ",
    "acpi PNP",
    "ahci ",
    "alg: ",
    "amdgpu ",
    "ata_piix ",
    "audit: ",
    "bond0: ",
    "br0: ",
    "cfg80211: ",
    "cgroup: ",
    "clocksource: ",
    "cpuidle: ",
    "cryptd: ",
    "device eth",
    "device-mapper: ",
    "docker0: ",
    "e1000e ",
    "efi: ",
    "fbcon: ",
    "fuse: ",
    "hid-generic ",
    "hub ",
    "i8042: ",
    "i915 ",
    "igb ",
    "input: ",
    "iommu: ",
    "ipmi",
    "iwlwifi ",
    "ixgbe ",
    "libata version ",
    "loop: ",
    "mce: ",
    "megaraid_sas ",
    "microcode: ",
    "mlx5_core ",
    "mpt2sas",
    "mpt3sas",
    "nf_conntrack",
    "nouveau ",
    "nvme nvme",
    "oom-kill:",
    "overlayfs: ",
    "pci 0",
    "pci_bus ",
    "pcieport ",
    "perf: ",
    "process '",
    "r8169 ",
    "raid6: ",
    "random: ",
    "rcu: ",
    "rtc_cmos ",
    "sched: ",
    "smpboot: ",
    "snd_hda",
    "systemd[1]: ",
    "workingset: ",
];
/// The same, followed by a number: `usb 1-2: `, `sd 2:0:0:0: `, `ata3: `, `CPU 0`.
const NUMBERED: [&str; 20] = [
    "usb ",
    "usb usb",
    "sd ",
    "sr ",
    "scsi ",
    "scsi host",
    "ata",
    "nvme",
    "md/raid",
    "md",
    "dm-",
    "mmc",
    "mmcblk",
    "eth",
    "virbr",
    "veth",
    "hid-generic ",
    "tpm_tis ",
    "serial",
    "ttyS",
];

pub(crate) fn likeness(line: &str) -> Likeness {
    let text = line.trim_start();
    let is_numbered = |start: &&&str| {
        text.strip_prefix(**start).and_then(|rest| rest.split_once(": ")).is_some_and(
            |(number, _)| {
                number.starts_with(|c: char| c.is_ascii_digit())
                    && number
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b".:-_/".contains(&byte))
            },
        )
    };
    if BEGINNINGS.iter().any(|start| text.starts_with(start))
        || text.starts_with("md: ")
        || NUMBERED.iter().any(|start| is_numbered(&start))
        || is_trace(text)
        || rules::table().knows(text)
    {
        return Likeness::Kernel;
    }
    let name = text.split(": ").next().unwrap_or_default();
    let words: Vec<&str> = name.split(' ').collect();
    let is_name = name.len() < text.trim_end().len()
        && words.len() <= 3
        && words.iter().all(|word| {
            !word.is_empty()
                && word.len() <= 32
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-/:@()[]".contains(&byte))
        });
    match is_name {
        true => Likeness::Possible,
        false => Likeness::Other,
    }
}

/// ` ? schedule+0x4f/0xb0`, `00000010: 58 41 47 46 …`, `---[ end trace 0 ]---`
fn is_trace(text: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.starts_with("---[ end ")
        || text.contains("[ cut here ]")
        || ["<TASK>", "</TASK>", "<IRQ>", "</IRQ>"].contains(&text.trim_end())
        || text.split(' ').any(|word| {
            word.split_once("+0x")
                .and_then(|(_, numbers)| numbers.split_once("/0x"))
                .is_some_and(|(from, to)| is_hex(from) && is_hex(to))
        })
        || text.split_once(": ").is_some_and(|(address, _)| address.len() >= 8 && is_hex(address))
}
