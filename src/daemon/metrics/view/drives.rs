//! Families about drives: identity, health, presence, errors in the kernel log.

use std::fmt;

use crate::metrics::view::{HEALTH_STATES, health, known};
use diskvitals_exposition::families::{BYTES, Families};
use diskvitals_kernel_log::event::Class;
use diskvitals_model::drive::{DriveKind, Transport};
use diskvitals_model::snapshot::{Presence, Snapshot};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let drives = || snapshot.drives.iter().map(|(id, drive)| (id.as_str(), drive));
    let mut family = families.gauge(
        "diskvitals_drive_info",
        None,
        "What a drive is; device is its kernel name now: always 1.",
    )?;
    for (id, drive) in drives() {
        let facts = &drive.facts;
        let labels = [
            ("drive", id),
            ("device", facts.name.as_str()),
            ("vendor", known(&facts.vendor)),
            ("model", known(&facts.model)),
            ("serial", known(&facts.serial)),
            ("firmware", known(&facts.firmware)),
            ("wwn", known(&facts.wwn)),
            ("kind", kind(facts.kind)),
            ("transport", transport(facts.transport)),
            ("enclosure", known(&facts.location.enclosure)),
            ("slot", known(&facts.location.slot)),
        ];
        family.value(&labels, 1)?;
    }
    let mut family = families.gauge(
        "diskvitals_drive_health",
        None,
        "1 for the state that the drive's health is in.",
    )?;
    for (id, drive) in drives() {
        family.states(Some(("drive", id)), "state", &HEALTH_STATES, health(drive.health))?;
    }
    let mut family =
        families.gauge("diskvitals_drive_present", None, "0 while a known drive is absent.")?;
    for (id, drive) in drives() {
        family.value(&[("drive", id)], u64::from(drive.presence == Presence::Present))?;
    }
    let mut family = families.gauge(
        "diskvitals_drive_maintenance",
        None,
        "1 while its findings are shown and not counted.",
    )?;
    for (id, drive) in drives() {
        family.value(&[("drive", id)], u64::from(drive.maintenance))?;
    }
    let mut family =
        families.gauge("diskvitals_drive_size", Some(&BYTES), "Its size, over all namespaces.")?;
    for (id, drive) in drives() {
        family.value(&[("drive", id)], drive.facts.size_bytes)?;
    }
    let help =
        "Incidents in the kernel log, by class; restarts at 0 after a long time without incidents.";
    let mut family = families.counter("diskvitals_io_errors", None, help)?;
    for (id, drive) in drives() {
        // All classes have a series, so that the first incident is an increase.
        for class in Class::ALL.into_iter().filter(|class| !class.is_filesystem_class()) {
            let tally = drive.errors.as_ref().and_then(|errors| errors.get(class));
            family.count(
                &[("drive", id), ("class", class.name())],
                tally.map_or(0, |tally| tally.incidents),
            )?;
        }
    }
    Ok(())
}

fn kind(kind: DriveKind) -> &'static str {
    match kind {
        DriveKind::Hdd => "hdd",
        DriveKind::Ssd => "ssd",
        DriveKind::Nvme => "nvme",
        DriveKind::Emmc => "emmc",
        DriveKind::Usb => "usb",
        DriveKind::Virtual => "virtual",
        DriveKind::Remote => "remote",
        DriveKind::Unknown => "unknown",
    }
}

fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Sata => "sata",
        Transport::Sas => "sas",
        Transport::Scsi => "scsi",
        Transport::Nvme => "nvme",
        Transport::Usb => "usb",
        Transport::Mmc => "mmc",
        Transport::Virtio => "virtio",
        Transport::Xen => "xen",
        Transport::HyperV => "hyper-v",
        Transport::Iscsi => "iscsi",
        Transport::FibreChannel => "fibre-channel",
        Transport::NvmeFabrics => "nvme-fabrics",
        Transport::Nbd => "nbd",
        Transport::Loop => "loop",
        Transport::Raid => "raid",
        Transport::Unknown => "unknown",
    }
}
