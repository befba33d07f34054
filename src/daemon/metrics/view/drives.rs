//! Families about drives: identity, health, presence, errors in the kernel log.

use std::fmt;
use std::sync::Arc;

use crate::metrics::view::{HEALTH_STATES, health, known};
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_kernel_log::error_history::ErrorHistory;
use diskvitals_kernel_log::event::Class;
use diskvitals_model::drive::{DriveKind, Transport};
use diskvitals_model::link::{Compared, DriveLink, LinkKind};
use diskvitals_model::snapshot::{Drive, Presence, Snapshot};

const FAMILIES: [FamilyRow<Drive>; 9] = families! {
    Drive:
    Gauge "diskvitals_drive_info": "What a drive is; device is its kernel name now: always 1."
        => info;
    Gauge "diskvitals_drive_health": "1 for the state that the drive's health is in."
        => |it, to| to.states("state", &HEALTH_STATES, health(it.health));
    Gauge "diskvitals_drive_present": "0 while a known drive is absent."
        => |it, to| to.value(it.presence == Presence::Present);
    Gauge "diskvitals_drive_maintenance": "1 while its findings are shown and not counted."
        => |it, to| to.value(it.maintenance);
    Gauge "diskvitals_drive_size" in BYTES: "Its size, over all namespaces."
        => |it, to| to.value(it.facts.size_bytes);
    Gauge "diskvitals_drive_command_timeout" in SECONDS:
        "After so long without an answer the kernel resets the drive (SCSI and SATA)."
        => |it, to| to.value(it.facts.command_timeout);
    Gauge "diskvitals_flash_wear_ratio":
        "At least so much of the designed life is used, in tenths (UFS; eMMC at boot)."
        => |it, to| to.value(flash_wear(it));
    Gauge "diskvitals_drive_link_ratio":
        "Lanes, rate or paths, by value, of the best that the drive had in its place."
        => links;
    Counter "diskvitals_io_errors":
        "Incidents in the kernel log, by class; restarts at 0 after a long time without incidents."
        => |it, to| errors(&it.errors, |class| !class.is_filesystem_class(), to);
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let drives = snapshot.drives.iter();
    let drives: Vec<_> = drives.map(|(id, it)| ([("drive", id.as_str())], &**it)).collect();
    families.encode(&FAMILIES, &drives)
}

fn info(drive: &Drive, to: &mut Samples<'_, '_>) -> fmt::Result {
    let facts = &drive.facts;
    to.info(&[
        ("device", &facts.name),
        ("vendor", known(&facts.vendor)),
        ("model", known(&facts.model)),
        ("serial", known(&facts.serial)),
        ("firmware", known(&facts.firmware)),
        ("wwn", known(&facts.wwn)),
        ("kind", kind(facts.kind)),
        ("transport", transport(facts.transport)),
        ("enclosure", known(&facts.location.enclosure)),
        ("slot", known(&facts.location.slot)),
    ])
}

fn flash_wear(drive: &Drive) -> Option<f64> {
    Some(drive.flash?.used_percent()? as f64 / 100.0)
}

/// The worst of several of a kind.
fn links(drive: &Drive, to: &mut Samples<'_, '_>) -> fmt::Result {
    for kind in [LinkKind::Pcie, LinkKind::Sas, LinkKind::NvmePaths] {
        let of_kind = || drive.links.iter().filter(|link| link.kind == kind);
        let worst = |of: fn(&DriveLink) -> Option<Compared>| {
            of_kind().filter_map(of).map(Compared::ratio).min_by(f64::total_cmp)
        };
        for (value, worst) in [
            ("lanes", worst(|link| link.lanes)),
            ("rate", worst(|link| link.rate)),
            ("shelf_lanes", worst(|link| link.shelf_lanes)),
        ] {
            if let Some(worst) = worst {
                to.labeled(&[("link", kind.name()), ("value", value)], worst)?;
            }
        }
    }
    Ok(())
}

/// All classes have a series, so that the first incident is an increase.
pub(super) fn errors(
    errors: &Option<Arc<ErrorHistory>>,
    is_shown: fn(&Class) -> bool,
    to: &mut Samples<'_, '_>,
) -> fmt::Result {
    Class::ALL.into_iter().filter(is_shown).try_for_each(|class| {
        let tally = errors.as_ref().and_then(|errors| errors.get(class));
        to.labeled(&[("class", class.name())], tally.map_or(0, |tally| tally.incidents))
    })
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
