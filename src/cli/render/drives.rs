//! Drives: a table, worst first, and one drive in full.

use crate::render::{errors, findings, smart};
use crate::words::{enum_label, health};
use diskvitals_model::label;
use diskvitals_terminal::layout::{flag_names, heading, label_value_lines, labelled};
use diskvitals_terminal::screen::{Screen, Tone, bytes, escape_control, or_dash};
use diskvitals_terminal::table::{Cells, Column, column, plain, table as layout};
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;

const COLUMNS: [Column; 13] = [
    column("NAME", 0, 0),
    column("HEALTH", 0, 0),
    column("SLOT", 0, 0),
    column("KIND", 0, 4),
    column("SIZE", 0, 3),
    column("MODEL", 10, 5),
    column("SERIAL", 0, 0),
    column("TEMP", 0, 0),
    column("WEAR", 0, 0),
    column("HOURS", 0, 0),
    column("VOLUMES", 0, 6),
    column("BASIS", 12, 2),
    column("ID", 20, 7),
];

pub fn table(drives: &[wire::Drive], screen: &Screen) -> String {
    if drives.is_empty() {
        return "no drives\n".to_owned();
    }
    let mut sorted: Vec<&wire::Drive> = drives.iter().collect();
    sorted.sort_by_cached_key(|it| (rank(it.health), label::sort_key(&it.name), it.id.clone()));
    layout(&COLUMNS, sorted.into_iter().map(row), screen)
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

fn row(drive: &wire::Drive) -> Cells {
    let (word_of_health, tone) = health(drive.health);
    let health_text = match drive.presence() {
        wire::Presence::Missing => format!("{word_of_health}, missing"),
        _ => word_of_health.to_owned(),
    };
    let reasons = drive.findings.iter().map(|finding| finding.reason.as_str());
    let maintenance = drive.maintenance.then_some("(maintenance)");
    let basis = Some(drive.health_basis.as_str()).filter(|it| !it.is_empty());
    let marks: Vec<&str> = basis.into_iter().chain(reasons).chain(maintenance).collect();
    vec![
        (or_dash(&drive.name).to_owned(), Tone::Strong),
        (health_text, tone),
        plain(drive.location.as_ref().map_or("", |it| slot_name(&it.slot))),
        plain(kind(drive)),
        plain(bytes(drive.size_bytes)),
        plain(drive.model.trim()),
        plain(&drive.serial),
        plain(smart::temperature(drive)),
        plain(smart::wear(drive)),
        plain(smart::power_on_hours(drive)),
        plain(drive.volume_ids.len()),
        (marks.join(", "), tone),
        plain(&drive.id),
    ]
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
    let maintenance = "under maintenance: its findings do not count";
    let flags = [
        (drive.removable, "removable"),
        (drive.asleep, "asleep"),
        (drive.maintenance, maintenance),
    ];
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
        ("slot", escape_control(&slot)),
        ("pci", escape_control(&location.pci)),
        ("sas address", escape_control(&location.sas_address)),
        ("path", escape_control(&location.path)),
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
    for (label, values) in
        [("devices", &devices), ("links", &drive.links), ("volumes", &drive.volume_ids)]
    {
        lines.extend(labelled(label, values.iter().map(|it| escape_control(it))));
    }
    lines.extend(errors::lines(&drive.errors, screen));
    text.push_str(&label_value_lines(&lines));
    text.push_str(&smart::section(drive, screen));
    text.push_str(&findings::in_full(&drive.findings, screen));
    text
}
