//! Drives: a table, worst first, and one drive in full.

use crate::render::{errors, findings, lamps, maintenance, smart};
use crate::words::{enum_label, health};
use diskvitals_model::label;
use diskvitals_terminal::layout::{flag_names, heading, label_value_lines, labelled};
use diskvitals_terminal::screen::{Screen, bytes, escape_control, or_dash};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table as layout};
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;

const COLUMNS: [Column<wire::Drive>; 13] = [
    column("NAME", 0, 0, |it, _| strong(or_dash(&it.name))),
    column("HEALTH", 0, 0, |it, _| health_and_presence(it)),
    column("SLOT", 0, 0, |it, _| plain(slot(it))),
    column("KIND", 0, 4, |it, _| plain(kind(it))),
    column("SIZE", 0, 3, |it, _| plain(bytes(it.size_bytes))),
    column("MODEL", 10, 5, |it, _| plain(it.model.trim())),
    column("SERIAL", 0, 0, |it, _| plain(&it.serial)),
    column("TEMP", 0, 0, |it, _| plain(smart::temperature(it))),
    column("WEAR", 0, 0, |it, _| plain(smart::wear(it))),
    column("HOURS", 0, 0, |it, _| plain(smart::power_on_hours(it))),
    column("VOLUMES", 0, 6, |it, _| plain(it.volume_ids.len())),
    column("BASIS", 12, 2, |it, screen| (basis(it, screen), health(it.health).1)),
    column("ID", 20, 7, |it, _| plain(&it.id)),
];

pub fn table(drives: &[wire::Drive], screen: &Screen) -> String {
    if drives.is_empty() {
        return "no drives\n".to_owned();
    }
    let mut sorted: Vec<&wire::Drive> = drives.iter().collect();
    sorted.sort_by_cached_key(|it| (rank(it.health), label::sort_key(&it.name), it.id.clone()));
    layout(&COLUMNS, sorted, screen)
}

/// The sort order: bad before suspect before unknown before good.
pub fn rank(health: i32) -> u8 {
    match wire::Health::try_from(health) {
        Ok(wire::Health::Bad) => 0,
        Ok(wire::Health::Suspect) => 1,
        Ok(wire::Health::Unknown) => 2,
        _ => 3,
    }
}

pub(crate) fn health_and_presence(drive: &wire::Drive) -> Cell {
    let (word, tone) = health(drive.health);
    match drive.presence() {
        wire::Presence::Missing => (format!("{word}, missing"), tone),
        _ => (word.to_owned(), tone),
    }
}

fn slot(drive: &wire::Drive) -> &str {
    drive.location.as_ref().map_or("", |it| slot_name(&it.slot))
}

/// `maintenance until …`, if it is under it.
fn maintenance(drive: &wire::Drive, screen: &Screen) -> Option<String> {
    let end = drive.maintenance_order.as_ref().map(|it| maintenance::end(it, screen));
    drive.maintenance.then(|| format!("maintenance{}", end.unwrap_or_default()))
}

fn basis(drive: &wire::Drive, screen: &Screen) -> String {
    let reasons = drive.findings.iter().map(|finding| finding.reason.as_str());
    let maintenance = maintenance(drive, screen).map(|it| format!("({it})"));
    let rest = smart::rest(drive, screen);
    let basis = Some(drive.health_basis.as_str()).filter(|it| !it.is_empty());
    basis
        .into_iter()
        .chain(reasons)
        .chain(rest.as_deref())
        .chain(maintenance.as_deref())
        .collect::<Vec<_>>()
        .join(", ")
}

pub fn kind(drive: &wire::Drive) -> String {
    match drive.kind() {
        wire::DriveKind::Hdd
        | wire::DriveKind::Ssd
        | wire::DriveKind::Nvme
        | wire::DriveKind::Usb => enum_label(drive.kind().as_str_name(), "DRIVE_KIND_")
            .to_ascii_uppercase()
            .replace("NVME", "NVMe"),
        wire::DriveKind::Emmc => "eMMC".to_owned(),
        kind => enum_label(kind.as_str_name(), "DRIVE_KIND_"),
    }
}

fn device(device: &wire::DriveDevice) -> String {
    let size = bytes(device.size_bytes);
    let text = format!("{} ({}) {size} {} {}", device.name, device.dev, device.state, device.hctl);
    text.trim_end().to_owned()
}

/// What its flash reports, in the steps of its codes.
fn flash(drive: &wire::Drive) -> String {
    let flash = drive.flash.unwrap_or_default();
    let used =
        flash.used_percent.map(|percent| format!("{percent} % or more of the designed life used"));
    let reserve = flash.reserve_used_percent.map(|percent| match percent {
        0 => "reserved blocks in order".to_owned(),
        percent => format!("{percent} % or more of the reserved blocks used"),
    });
    used.into_iter().chain(reserve).collect::<Vec<_>>().join(", ")
}

/// `PCIe, 2 lanes (at best 4) at 8 GT/s (at best 16); the drive: 4 lanes at 16 GT/s`.
fn drive_link(link: &wire::DriveLink) -> String {
    let compared = |now: String, best: String| match now == best {
        true => now,
        false => format!("{now} (at best {best})"),
    };
    let (lane, unit) = match link.kind.as_str() {
        "PCIe" => ("lanes", "GT/s"),
        "SAS" => ("lanes", "Gbit/s"),
        _ => ("usable", ""),
    };
    let rate = |rate: u32| format!("{}", f64::from(rate) / 1000.0);
    let mut text = link.kind.clone();
    if link.best_lanes > 0 {
        let lanes = compared(link.lanes.to_string(), link.best_lanes.to_string());
        text.push_str(&format!(", {lanes} {lane}"));
    }
    if link.best_rate > 0 {
        text.push_str(&format!(" at {} {unit}", compared(rate(link.rate), rate(link.best_rate))));
    }
    if link.best_shelf_lanes > 0 {
        let lanes = compared(link.shelf_lanes.to_string(), link.best_shelf_lanes.to_string());
        text.push_str(&format!("; {lanes} lanes to its shelf"));
    }
    if (link.max_lanes, link.max_rate) != (link.lanes, link.rate) && link.max_lanes > 0 {
        let rate = rate(link.max_rate);
        text.push_str(&format!("; the drive: {} lanes at {rate} {unit}", link.max_lanes));
    }
    text
}

pub fn one(drive: &wire::Drive, screen: &Screen) -> String {
    let (word_of_health, tone) = health(drive.health);
    let location = drive.location.clone().unwrap_or_default();
    let slot = match (location.enclosure.as_str(), location.slot.as_str()) {
        ("", "") => String::new(),
        (enclosure, slot) => {
            let slot = slot_name(or_dash(slot));
            format!("enclosure {}, slot {slot}", or_dash(enclosure))
        }
    };
    let flags = [(drive.removable, "removable"), (drive.asleep, "asleep")];
    let maintenance = maintenance(drive, screen).map(|it| match &drive.maintenance_order {
        Some(order) => format!("{it} by {}: {}", order.by, order.note),
        None => format!("{it} by the configuration"),
    });
    let devices: Vec<String> = drive.devices.iter().map(device).collect();
    let mut text = heading(&format!("drive {}", escape_control(&drive.id)), screen);
    let mut lines = vec![
        ("health", screen.paint(tone, word_of_health)),
        ("judged by", escape_control(&drive.health_basis)),
        ("unknown because", screen.message(&drive.health_unknown_why)),
        ("name", escape_control(&drive.name)),
        (
            "id",
            if drive.id_stable {
                String::new()
            } else {
                "not stable: the drive reports no unique identity; this id names its slot"
                    .to_owned()
            },
        ),
        ("model", escape_control(format!("{} {}", drive.vendor, drive.model).trim())),
        ("serial", escape_control(&drive.serial)),
        ("firmware", escape_control(&drive.firmware)),
        ("wwn", escape_control(&drive.wwn)),
        (
            "kind",
            format!(
                "{} over {}",
                kind(drive),
                enum_label(drive.transport().as_str_name(), "TRANSPORT_")
            ),
        ),
        (
            "size",
            format!(
                "{} (blocks of {} / {} bytes, logical / physical)",
                bytes(drive.size_bytes),
                drive.logical_block_size,
                drive.physical_block_size
            ),
        ),
        (
            "rotational",
            drive
                .rotational
                .map(|yes| if yes { "yes" } else { "no" }.to_owned())
                .unwrap_or_default(),
        ),
        ("write cache", escape_control(&drive.write_cache)),
        ("kernel state", escape_control(&drive.state)),
        ("remarks", flag_names(&flags)),
        (
            "under",
            maintenance
                .map(|it| format!("{}; its findings do not count", escape_control(&it)))
                .unwrap_or_default(),
        ),
        ("slot", escape_control(&slot)),
        ("lamp lit", drive.lamp.as_ref().map(|it| lamps::words(it, screen)).unwrap_or_default()),
        ("pci", escape_control(&location.pci)),
        ("sas address", escape_control(&location.sas_address)),
        ("path", escape_control(&location.path)),
        ("flash", flash(drive)),
        ("first seen", screen.ago(drive.first_seen.as_ref())),
    ];
    if drive.presence() == wire::Presence::Missing {
        lines.insert(
            1,
            (
                "missing",
                format!(
                    "since {} ({})",
                    screen.date_time(drive.missing_since.as_ref()),
                    screen.ago(drive.missing_since.as_ref())
                ),
            ),
        );
    }
    let drive_links: Vec<String> = drive.drive_links.iter().map(drive_link).collect();
    for (label, values) in [
        ("link", &drive_links),
        ("devices", &devices),
        ("links", &drive.links),
        ("volumes", &drive.volume_ids),
        ("member of", &drive.member_of),
    ] {
        lines.extend(labelled(label, values.iter().map(|it| escape_control(it))));
    }
    lines.extend(errors::lines(&drive.errors, screen));
    text.push_str(&label_value_lines(&lines));
    text.push_str(&smart::section(drive, screen));
    text.push_str(&findings::in_full(&drive.findings, screen));
    text
}
