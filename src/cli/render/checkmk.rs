//! The status as lines of a Checkmk local check: `STATE "ITEM" METRICS TEXT`, for the node, each
//! drive and each volume. Pure.

use crate::render::figures::{self, Figure, safe_name, safe_text};
use crate::render::status::{StatusView, summary, verdict};
use crate::words::used_share;
use diskvitals_terminal::screen::or_dash;
use diskvitals_wire as wire;

/// Characters that Checkmk removes from the names of services, or that end them.
const FORBIDDEN: &str = "\"'\\;|<>~!$%^&*?,()=`";
const MAX_TEXT: usize = 300;

pub fn unknown(why: &str) -> String {
    line(3, "diskvitals node", &[], why)
}

pub fn output(view: &StatusView) -> String {
    let counts = [
        ("drives", view.drives.len()),
        ("volumes", view.volumes.len()),
        ("findings", view.findings.len()),
    ];
    let counts = counts.map(|(name, count)| format!("{name}={count}"));
    let mut text = line(verdict(view).exit_code(), "diskvitals node", &counts, &summary(view));
    for drive in view.drives {
        // The kernel's name may be another drive's after a reboot.
        text.push_str(&line(
            state(drive.health, &drive.findings),
            &format!("diskvitals drive {}", drive.id),
            &metrics(&figures::of_drive(drive)),
            &drive_text(drive),
        ));
    }
    let names = figures::volume_names(view.volumes);
    for (name, volume) in names.iter().zip(view.volumes) {
        text.push_str(&line(
            state(volume.health, &volume.findings),
            &format!("diskvitals volume {name}"),
            &metrics(&figures::of_volume(volume)),
            &volume_text(volume),
        ));
    }
    text
}

fn line(state: u8, item: &str, metrics: &[String], text: &str) -> String {
    let metrics = match metrics {
        [] => "-".to_owned(),
        metrics => metrics.join("|"),
    };
    format!(
        "{state} \"{}\" {metrics} {}\n",
        safe_name(item, FORBIDDEN),
        // Checkmk reads \n as a line break.
        safe_text(text, MAX_TEXT).replace('\\', "/")
    )
}

/// Acknowledged findings and maintenance do not count; what is unknown is unknown.
fn state(health: i32, findings: &[wire::Finding]) -> u8 {
    let adverse = |severity: wire::Severity| {
        let mut counted = findings.iter().filter(|it| it.is_counted());
        counted.any(|it| it.severity() == severity)
    };
    match wire::Health::try_from(health) {
        Ok(wire::Health::Good) => 0,
        Ok(wire::Health::Bad | wire::Health::Suspect) if adverse(wire::Severity::Bad) => 2,
        Ok(wire::Health::Bad | wire::Health::Suspect) if adverse(wire::Severity::Suspect) => 1,
        // None of its findings counts.
        Ok(wire::Health::Bad | wire::Health::Suspect) if !findings.is_empty() => 0,
        _ => 3,
    }
}

/// Values that are not known now are left out: a metric has no other form of it.
fn metrics(figures: &[Figure]) -> Vec<String> {
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let known = figures.iter().filter_map(|it| Some((it, it.value?)));
    known
        .map(|(it, value)| {
            let (min, max) = (number(it.min), number(it.max));
            format!("{}={value};;;{min};{max}", it.metric)
        })
        .collect()
}

fn drive_text(drive: &wire::Drive) -> String {
    let missing = match drive.presence() {
        wire::Presence::Missing => ", missing",
        _ => "",
    };
    let maintenance = if drive.maintenance { ", under maintenance" } else { "" };
    let what = format!(
        "{} {} {}{missing}{maintenance}",
        or_dash(&drive.name),
        drive.model.trim(),
        drive.serial
    );
    // One of both is empty.
    let remark = format!("{}{}", drive.health_unknown_why, drive.health_basis);
    with_reasons(what.trim(), &drive.findings, &remark)
}

fn volume_text(volume: &wire::Volume) -> String {
    let share = volume.usage.as_ref().and_then(used_share);
    let used = share.map_or("use unknown".to_owned(), |share| format!("{share} used"));
    let what = format!("{}, {used}", super::volumes::place(volume));
    with_reasons(&what, &volume.findings, &volume.health_unknown_why)
}

fn with_reasons(what: &str, findings: &[wire::Finding], remark: &str) -> String {
    let messages = findings.iter().map(|finding| {
        let acknowledged = match finding.acknowledged {
            Some(_) => " (acknowledged)",
            None => "",
        };
        format!("{}{acknowledged}: {}", finding.reason, finding.message)
    });
    let remark = Some(remark.to_owned()).filter(|it| !it.is_empty());
    let all: Vec<String> = remark.into_iter().chain(messages).collect();
    match all.is_empty() {
        true => what.to_owned(),
        false => format!("{what}: {}", all.join("; ")),
    }
}
