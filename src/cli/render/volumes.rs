//! Volumes: a table, worst first, and one volume in full.

use crate::render::drives::rank;
use crate::render::{errors, findings};
use crate::words::{enum_label, health, used_share};
use diskvitals_finding::reason::Reason;
use diskvitals_model::assess::scrub::ScrubKind;
use diskvitals_model::label;
use diskvitals_terminal::layout::{flag_names, heading, label_value_lines, labelled};
use diskvitals_terminal::screen::{Screen, bytes, escape_control, or_dash};
use diskvitals_terminal::table::{Column, column, plain, strong, table as layout, toned};
use diskvitals_wire as wire;

const COLUMNS: [Column<wire::Volume>; 9] = [
    column("WHERE", 24, 0, |it, _| strong(place(it))),
    column("HEALTH", 0, 0, |it, _| toned(health(it.health))),
    column("USED", 0, 2, |it, _| plain(used(it))),
    column("SIZE", 0, 3, |it, _| plain(size(it))),
    column("FS", 0, 5, |it, _| plain(kind(it))),
    column("DEVICE", 12, 4, |it, _| plain(device_word(it))),
    column("SCRUBBED", 0, 7, |it, screen| plain(oldest_scrub(it, screen))),
    column("FINDINGS", 12, 1, |it, _| (reasons(it), health(it.health).1)),
    column("ID", 20, 6, |it, _| plain(&it.id)),
];

pub fn table(volumes: &[wire::Volume], screen: &Screen) -> String {
    if volumes.is_empty() {
        return "no volumes\n".to_owned();
    }
    let mut sorted: Vec<&wire::Volume> = volumes.iter().collect();
    sorted.sort_by_cached_key(|volume| order(&place(volume), volume));
    layout(&COLUMNS, sorted, screen)
}

/// The table, and the static volumes that are no volumes of this node.
pub fn all(answer: &wire::ListVolumesResponse, screen: &Screen) -> String {
    let absent = answer.absent.iter().map(|volume| {
        let (handle, path) = (escape_control(&volume.handle), escape_control(&volume.path));
        format!("static volume {handle}: {path} was never on this node\n")
    });
    let absent: String = absent.collect();
    let between = if absent.is_empty() { "" } else { "\n" };
    format!("{}{between}{absent}", table(&answer.volumes, screen))
}

/// Worst first; among suspect ones, first those without redundancy left.
pub fn order(place: &str, volume: &wire::Volume) -> impl Ord + use<> {
    let mut reasons = volume.findings.iter().map(|finding| &finding.reason);
    let leads = reasons.any(|reason| reason.parse().is_ok_and(Reason::leads));
    (rank(volume.health), !leads, label::sort_key(place), volume.id.clone())
}

/// The name of the device below the volume: VG/LV, md0, sda1.
pub fn device(volume: &wire::Volume) -> &str {
    match volume.device_name.as_str() {
        "" => &volume.device,
        name => name,
    }
}

/// The pods that use the volume, otherwise its mount point, its PV or its id.
pub fn place(volume: &wire::Volume) -> String {
    let mut pods: Vec<String> = volume.pods.iter().map(pod).collect();
    pods.dedup();
    if !pods.is_empty() {
        return pods.join(", ");
    }
    let mounts = volume.mounts.iter().chain(&volume.missing_mounts);
    let shortest = mounts.map(|mount| mount.path.as_str()).min_by_key(|path| path.len());
    let names = [shortest.unwrap_or_default(), &volume.pv, &volume.id];
    let first = names.into_iter().find(|name| !name.is_empty());
    first.unwrap_or_default().to_owned()
}

fn pod(pod: &wire::PodUse) -> String {
    if pod.name.is_empty() {
        format!("pod {}", pod.uid)
    } else {
        format!("{}/{}", pod.namespace, pod.name)
    }
}

fn used(volume: &wire::Volume) -> String {
    let Some(usage) = &volume.usage else {
        return "-".to_owned();
    };
    let stale = if usage.stale_since.is_some() { "?" } else { "" };
    used_share(usage).map(|share| format!("{share}{stale}")).unwrap_or_default()
}

fn size(volume: &wire::Volume) -> String {
    volume.capacity.map_or("-".to_owned(), |capacity| bytes(capacity.total_bytes))
}

fn kind(volume: &wire::Volume) -> &str {
    match &volume.filesystem {
        _ if volume.block => "block",
        Some(filesystem) => &filesystem.r#type,
        None => "",
    }
}

fn device_word(volume: &wire::Volume) -> &str {
    match device(volume) {
        "" if volume.remote => "remote",
        name => name,
    }
}

/// The day of the one that is longest ago; empty where nothing is scrubbed.
fn oldest_scrub(volume: &wire::Volume, screen: &Screen) -> String {
    match volume.scrubs.iter().min_by_key(|it| it.ended.map(|ended| ended.seconds)) {
        None => String::new(),
        Some(oldest) => day(oldest, screen).unwrap_or_else(|| "?".to_owned()),
    }
}

fn day(scrub: &wire::LastScrub, screen: &Screen) -> Option<String> {
    let ended = scrub.ended.as_ref()?;
    Some(screen.date_time(Some(ended)).chars().take(10).collect())
}

/// `check of md0 2026-11-01, without a difference`, `no scrub of tank known`.
pub fn scrub(scrub: &wire::LastScrub, screen: &Screen) -> String {
    let (kind, name) = (escape_control(&scrub.kind), escape_control(&scrub.name));
    let Some(day) = day(scrub, screen) else {
        return format!("no {kind} of {name} known");
    };
    let of = if kind == "check" { ScrubKind::Check } else { ScrubKind::Scrub };
    format!("{kind} of {name} {day}{}", of.result(scrub.found))
}

fn reasons(volume: &wire::Volume) -> String {
    let reasons = volume.findings.iter().map(|finding| finding.reason.as_str());
    reasons.collect::<Vec<_>>().join(", ")
}

/// `vg/home (dm-3)`.
fn device_in_full(volume: &wire::Volume) -> String {
    match device(volume) {
        name if name == volume.device => name.to_owned(),
        name => format!("{name} ({})", volume.device),
    }
}

fn stands_on(volume: &wire::Volume) -> &[String] {
    match volume.device_names.is_empty() {
        true => &volume.devices,
        false => &volume.device_names,
    }
}

pub fn one(volume: &wire::Volume, screen: &Screen) -> String {
    let (word_of_health, tone) = health(volume.health);
    let fs = volume.filesystem.clone().unwrap_or_default();
    let fs_text = match (fs.uuid.as_str(), fs.label.as_str()) {
        ("", "") => fs.r#type.clone(),
        (uuid, "") => format!("{}, uuid {uuid}", fs.r#type),
        (uuid, label) => format!("{}, uuid {}, label {label}", fs.r#type, or_dash(uuid)),
    };
    let condition = volume.condition.clone().unwrap_or_default();
    let mut lines = vec![
        ("health", screen.paint(tone, word_of_health)),
        ("id", escape_control(&volume.id)),
        ("unknown because", screen.message(&volume.health_unknown_why)),
        (
            "condition",
            if condition.abnormal {
                screen.paint(tone, format!("abnormal: {}", screen.message(&condition.message)))
            } else {
                screen.message(&condition.message)
            },
        ),
        ("driver", escape_control(&volume.driver)),
        ("handle", escape_control(&volume.handle)),
        ("PV", escape_control(&volume.pv)),
        (
            "kind",
            flag_names(&[
                (volume.block, "raw block"),
                (volume.ephemeral, "ephemeral"),
                (volume.remote, "remote"),
            ]),
        ),
        ("filesystem", escape_control(&fs_text)),
        ("source", escape_control(&volume.source)),
        ("device", escape_control(&device_in_full(volume))),
        ("status", status(volume)),
        ("space", space(volume)),
        ("inodes", inodes(volume)),
        (
            "usage",
            volume
                .usage
                .as_ref()
                .and_then(|usage| usage.stale_since.as_ref())
                .map(|since| {
                    format!(
                        "stale: the volume has not answered since {}",
                        screen.date_time(Some(since))
                    )
                })
                .unwrap_or_default(),
        ),
        (
            "last scrub",
            volume.scrubs.iter().map(|it| scrub(it, screen)).collect::<Vec<_>>().join("; "),
        ),
        ("last probe", volume.last_probe.map(|time| screen.ago(Some(&time))).unwrap_or_default()),
        ("first seen", screen.ago(volume.first_seen.as_ref())),
    ];
    let mounts = volume.mounts.iter().map(|mount| {
        let root = if matches!(mount.root.as_str(), "" | "/") {
            String::new()
        } else {
            format!(" showing {}", mount.root)
        };
        format!("{} ({}{}){root}", mount.path, role(mount), mount.options.join(","))
    });
    let missing = volume
        .missing_mounts
        .iter()
        .map(|mount| format!("{} ({}NOT MOUNTED)", mount.path, role(mount)));
    let lists: [(&str, Vec<String>); 4] = [
        ("mounts", mounts.chain(missing).collect()),
        (
            "pods",
            volume
                .pods
                .iter()
                .map(|use_| format!("{} as {}", pod(use_), use_.volume_name))
                .collect(),
        ),
        ("stands on", vec![stands_on(volume).join(" → ")]),
        ("drives", volume.drive_ids.clone()),
    ];
    for (label, values) in &lists {
        lines.extend(labelled(label, values.iter().map(|it| escape_control(it))));
    }
    lines.extend(errors::lines(&volume.errors, screen));
    let title = format!("volume {}", escape_control(&place(volume)));
    let mut text = heading(&title, screen);
    text.push_str(&label_value_lines(&lines));
    text.push_str(&findings::in_full(&volume.findings, screen));
    text
}

fn role(mount: &wire::VolumeMount) -> &'static str {
    match mount.role() {
        wire::MountRole::Staging => "staging, ",
        wire::MountRole::Pod => "pod, ",
        _ => "",
    }
}

fn status(volume: &wire::Volume) -> String {
    let mut words = Vec::new();
    if volume.csi_status() != wire::CsiStatus::None {
        words.push(enum_label(volume.csi_status().as_str_name(), "CSI_STATUS_"));
    }
    let operational = match volume.operational_status() {
        wire::OperationalStatus::Operative => "usable",
        wire::OperationalStatus::Inoperative => "not usable",
        wire::OperationalStatus::Missing => "missing",
        wire::OperationalStatus::Unspecified => "unspecified",
    };
    words.push(operational.to_owned());
    words.push(enum_label(volume.usage_status().as_str_name(), "USAGE_STATUS_"));
    words.join(", ")
}

fn space(volume: &wire::Volume) -> String {
    match (&volume.usage, &volume.capacity) {
        (Some(usage), Some(capacity)) => {
            let percent = used_share(usage).map(|share| format!(" ({share})")).unwrap_or_default();
            format!(
                "{} used of {}{percent}, {} available",
                bytes(usage.used_bytes),
                bytes(capacity.total_bytes),
                bytes(usage.available_bytes)
            )
        }
        (None, Some(capacity)) => bytes(capacity.total_bytes),
        _ => "not known yet".to_owned(),
    }
}

fn inodes(volume: &wire::Volume) -> String {
    match (&volume.usage, &volume.capacity) {
        (Some(usage), Some(capacity)) if capacity.total_inodes > 0 => {
            format!(
                "{} used of {}, {} available",
                usage.used_inodes, capacity.total_inodes, usage.available_inodes
            )
        }
        _ => String::new(),
    }
}
