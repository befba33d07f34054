//! Classifies a disk: its kind and its transport, from its path in /sys/devices and its attributes.
//! Pure.

use diskvitals_model::drive::{DriveKind, Transport, is_emulated};

/// The attributes of a disk's attachment in sysfs.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskProperties<'a> {
    /// Kernel name: `sda`.
    pub name: &'a str,
    /// The device's directory: `/sys/devices/pci0000:00/…/block/sda`.
    pub sysfs: &'a str,
    /// SCSI inquiry vendor and model, NVMe or MMC model.
    pub vendor: Option<&'a str>,
    pub model: Option<&'a str>,
    /// The NVMe controller's `transport`: `pcie`, `tcp`, `rdma`, `fc`, `loop`.
    pub nvme_transport: Option<&'a str>,
    /// `proc_name` of the SCSI host: the driver (`ahci`, `megaraid_sas`).
    pub scsi_driver: Option<&'a str>,
    /// SCSI channel of the device.
    pub scsi_channel: Option<u32>,
    /// `raid_level` of hpsa and smartpqi: `N/A` on a physical disk.
    pub raid_level: Option<&'a str>,
    pub rotational: Option<bool>,
}

pub fn transport(properties: &DiskProperties<'_>) -> Transport {
    let has =
        |prefix: &str| components(properties.sysfs).any(|part| is_numbered_name(part, prefix));
    if let Some(nvme) = properties.nvme_transport {
        return if matches!(nvme, "tcp" | "rdma" | "fc" | "loop") {
            Transport::NvmeFabrics
        } else {
            Transport::Nvme
        };
    }
    if is_numbered_name(properties.name, "loop") {
        Transport::Loop
    } else if is_numbered_name(properties.name, "nbd") {
        Transport::Nbd
    } else if components(properties.sysfs).any(|part| part == "mmc_host") {
        Transport::Mmc
    } else if has("usb") {
        Transport::Usb
    } else if has("session") {
        Transport::Iscsi
    } else if components(properties.sysfs).any(|part| part.starts_with("rport-")) {
        Transport::FibreChannel
    } else if components(properties.sysfs)
        .any(|part| part.starts_with("VMBUS:") || part.starts_with("MSFT1000:"))
        || properties.scsi_driver == Some("storvsc_host")
    {
        Transport::HyperV
    } else if components(properties.sysfs).any(|part| part.starts_with("vbd-"))
        || properties.name.starts_with("xvd")
    {
        Transport::Xen
    } else if has("virtio") {
        Transport::Virtio
    } else if is_logical_disk(properties) {
        Transport::Raid
    } else if has("ata") || properties.vendor == Some("ATA") {
        // Includes SATA disks behind a SAS controller, whose translation reports this vendor
        // (SAT-3, 8.2.2).
        Transport::Sata
    } else if is_sas_attached(properties.sysfs) {
        Transport::Sas
    } else if properties.scsi_channel.is_some() {
        Transport::Scsi
    } else {
        Transport::Unknown
    }
}

/// A logical disk that a RAID controller builds from its physical ones.
fn is_logical_disk(properties: &DiskProperties<'_>) -> bool {
    let physical_vendor = matches!(properties.vendor, Some("ATA" | "NVMe"));
    match properties.scsi_driver {
        // Channels 0 and 1 are physical disks (MEGASAS_IS_LOGICAL in megaraid_sas.h).
        Some("megaraid_sas") => properties.scsi_channel.is_some_and(|channel| channel >= 2),
        // raid_level_show() of hpsa.c and smartpqi_init.c.
        Some("hpsa" | "smartpqi") => {
            properties.raid_level.is_some_and(|level| !level.starts_with("N/A"))
        }
        // Containers are on channel 0 (CONTAINER_CHANNEL in aacraid.h), physical disks on the
        // others.
        Some("aacraid") => properties.scsi_channel == Some(0),
        // Physical disks are below an end device of the SAS transport, volumes are not
        // (RAID_CHANNEL in mpt3sas_base.h).
        Some("mpt2sas" | "mpt3sas" | "mpi3mr") => {
            !is_sas_attached(properties.sysfs) && !physical_vendor
        }
        Some(
            "3w-9xxx" | "3w-sas" | "3w-xxxx" | "arcmsr" | "ips" | "megaraid" | "megaraid_legacy"
            | "stex",
        ) => !physical_vendor,
        _ => properties.name.starts_with("cciss!"),
    }
}

pub(crate) fn is_sas_attached(sysfs: &str) -> bool {
    components(sysfs).any(|part| part.starts_with("end_device-"))
}

pub fn kind(properties: &DiskProperties<'_>, transport: Transport) -> DriveKind {
    match transport {
        Transport::Loop | Transport::Virtio | Transport::Xen | Transport::HyperV => {
            DriveKind::Virtual
        }
        _ if transport.is_remote() || is_numbered_name(properties.name, "rbd") => DriveKind::Remote,
        _ if is_virtual_disk(properties) => DriveKind::Virtual,
        Transport::Mmc => DriveKind::Emmc,
        Transport::Usb => DriveKind::Usb,
        Transport::Nvme => DriveKind::Nvme,
        _ => match properties.rotational {
            // A disk that the kernel emulates has no device above it.
            _ if properties.sysfs.starts_with("/sys/devices/virtual/") => DriveKind::Virtual,
            Some(true) => DriveKind::Hdd,
            Some(false) => DriveKind::Ssd,
            None => DriveKind::Unknown,
        },
    }
}

fn is_virtual_disk(properties: &DiskProperties<'_>) -> bool {
    is_emulated(properties.vendor, properties.model)
        // Disks of scsi_debug, and of VMware's paravirtual controller, whatever the disk reports.
        || components(properties.sysfs).any(|part| is_numbered_name(part, "pseudo_"))
        || properties.scsi_driver == Some("vmw_pvscsi")
}

/// Address of the nearest PCI device above: `0000:03:00.0`.
pub(crate) fn pci_address(sysfs: &str) -> Option<&str> {
    components(sysfs).filter(|part| is_pci_address(part)).last()
}

/// DOMAIN:BUS:DEVICE.FUNCTION.
fn is_pci_address(part: &str) -> bool {
    let mut fields = part.split([':', '.']);
    let mut hex = |length: std::ops::RangeInclusive<usize>| {
        fields.next().is_some_and(|field| {
            length.contains(&field.len()) && field.bytes().all(|b| b.is_ascii_hexdigit())
        })
    };
    // Domains have four digits, or more behind a VMD controller.
    hex(4..=8)
        && hex(2..=2)
        && hex(2..=2)
        && hex(1..=1)
        && fields.next().is_none()
        && part.matches(':').count() == 2
}

/// SCSI `host:channel:target:lun`, the component of that form nearest to the disk.
pub fn hctl(sysfs: &str) -> Option<&str> {
    components(sysfs)
        .filter(|part| {
            part.split(':').count() == 4
                && part.split(':').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
        .last()
}

/// Number of the libata port above: `3` of `…/ata3/host2/target2:0:0/…`.
pub fn ata_port(sysfs: &str) -> Option<u32> {
    components(sysfs).find(|part| is_numbered_name(part, "ata"))?.strip_prefix("ata")?.parse().ok()
}

fn components(sysfs: &str) -> impl Iterator<Item = &str> {
    sysfs.split('/').filter(|part| !part.is_empty())
}

/// `usb1` for `usb`: the prefix and a number.
pub(crate) fn is_numbered_name(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(
        sysfs: &str,
        vendor: &str,
        scsi_driver: Option<&str>,
        rotational: bool,
    ) -> (Transport, DriveKind) {
        let properties = DiskProperties {
            name: sysfs.rsplit('/').next().unwrap_or_default(),
            sysfs,
            vendor: Some(vendor),
            scsi_driver,
            scsi_channel: hctl(sysfs).and_then(|text| text.split(':').nth(1)?.parse().ok()),
            rotational: Some(rotational),
            ..DiskProperties::default()
        };
        let transport = transport(&properties);
        (transport, kind(&properties, transport))
    }

    #[test]
    fn the_sysfs_path_determines_the_transport() {
        let pci = "/sys/devices/pci0000:00/0000:00:1f.2";
        let check = |path: &str, vendor: &str, driver: &str, rotational: bool| {
            classified(&format!("{pci}/{path}"), vendor, Some(driver), rotational)
        };
        assert_eq!(
            check("ata1/host0/target0:0:0/0:0:0:0/block/sda", "ATA", "ahci", true),
            (Transport::Sata, DriveKind::Hdd)
        );
        let sas =
            "host0/port-0:0/expander-0:0/port-0:0:1/end_device-0:0:1/target0:0:1/0:0:1:0/block/sdb";
        assert_eq!(check(sas, "SEAGATE", "mpt3sas", true), (Transport::Sas, DriveKind::Hdd));
        assert_eq!(check(sas, "ATA", "mpt3sas", false), (Transport::Sata, DriveKind::Ssd));
        assert_eq!(
            check("host0/target0:1:0/0:1:0:0/block/sdb", "LSI", "mpt3sas", true),
            (Transport::Raid, DriveKind::Hdd)
        );
        assert_eq!(
            check("host0/target0:2:0/0:2:0:0/block/sdb", "DELL", "megaraid_sas", true),
            (Transport::Raid, DriveKind::Hdd)
        );
        assert_eq!(
            check("host0/target0:0:9/0:0:9:0/block/sdb", "SEAGATE", "megaraid_sas", true),
            (Transport::Scsi, DriveKind::Hdd)
        );
        assert_eq!(
            check("usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", "WD", "uas", true),
            (Transport::Usb, DriveKind::Usb)
        );
        assert_eq!(
            check("host3/rport-3:0-1/target3:0:0/3:0:0:4/block/sdx", "NETAPP", "qla2xxx", false),
            (Transport::FibreChannel, DriveKind::Remote)
        );
        assert_eq!(
            check("virtio1/block/vda", "0x1af4", "", true),
            (Transport::Virtio, DriveKind::Virtual)
        );
        assert_eq!(
            check("virtio1/host0/target0:0:0/0:0:0:1/block/sda", "QEMU", "virtio_scsi", false),
            (Transport::Virtio, DriveKind::Virtual)
        );
        assert_eq!(
            check("ata1/host0/target0:0:0/0:0:0:0/block/sda", "VBOX", "ahci", true),
            (Transport::Sata, DriveKind::Virtual)
        );
        assert_eq!(
            check("mmc_host/mmc0/mmc0:0001/block/mmcblk0", "", "", false),
            (Transport::Mmc, DriveKind::Emmc)
        );
        assert_eq!(
            classified("/sys/devices/vbd-51712/block/xvda", "", None, false),
            (Transport::Xen, DriveKind::Virtual)
        );
        assert_eq!(
            classified(
                "/sys/devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sdc",
                "LIO-ORG",
                None,
                false
            ),
            (Transport::Iscsi, DriveKind::Remote)
        );
        assert_eq!(
            classified("/sys/devices/virtual/block/nbd3", "", None, false),
            (Transport::Nbd, DriveKind::Remote)
        );
    }

    #[test]
    fn addresses_are_the_ones_nearest_to_the_disk() {
        let path = "/sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/host0/port-0:0/end_device-0:0/target0:0:1/0:0:1:0/block/sdb";
        assert_eq!(pci_address(path), Some("0000:03:00.0"));
        assert_eq!(hctl(path), Some("0:0:1:0"));
        assert_eq!(
            pci_address(
                "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0"
            ),
            Some("10000:e1:00.0")
        );
        assert_eq!(pci_address("/sys/devices/virtual/block/loop0"), None);
        assert_eq!(hctl("/sys/devices/virtual/block/loop0"), None);
    }
}
