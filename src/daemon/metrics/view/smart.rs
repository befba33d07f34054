//! Families about SMART data.
//!
//! Lifetime counters keep the value of the last report, with the time of that report; a temperature
//! that is not current is left out. A missing drive has no values.

use std::collections::BTreeSet;
use std::fmt;

use diskvitals_exposition::families::{BYTES, CELSIUS, Families, Family, SECONDS};
use diskvitals_host::clock;
use diskvitals_model::facts::smart::{SmartFacts, SmartOutcome};
use diskvitals_model::snapshot::{Presence, Snapshot};
use diskvitals_smart::history::Metric;
use diskvitals_smart::report::{Attribute, Body, Nvme, SmartReport};

/// The last reported value of each metric. Percentages are written as a ratio, the base unit.
const METRICS: [(Metric, &str, &str); 17] = [
    (
        Metric::Pending,
        "diskvitals_smart_pending_sectors",
        "Sectors that wait to be read or reallocated.",
    ),
    (
        Metric::OfflineUncorrectable,
        "diskvitals_smart_offline_uncorrectable_sectors",
        "Sectors that the drive's own scan could not read.",
    ),
    (
        Metric::Reallocated,
        "diskvitals_smart_reallocated_sectors",
        "Sectors or blocks replaced by spare ones.",
    ),
    (
        Metric::ReallocationEvents,
        "diskvitals_smart_reallocation_events",
        "Attempts to replace sectors.",
    ),
    (
        Metric::ReportedUncorrectable,
        "diskvitals_smart_reported_uncorrectable_errors",
        "Errors that the drive reported to the host and could not correct.",
    ),
    (Metric::SoftReadErrors, "diskvitals_smart_soft_read_errors", "Reads off track."),
    (
        Metric::EndToEndErrors,
        "diskvitals_smart_end_to_end_errors",
        "Data damaged inside the drive, on its way to the host.",
    ),
    (
        Metric::CommandTimeouts,
        "diskvitals_smart_command_timeouts",
        "Commands that the drive gave up.",
    ),
    (
        Metric::SpinRetries,
        "diskvitals_smart_spin_retries",
        "Repeated attempts to start the platters.",
    ),
    (Metric::CrcErrors, "diskvitals_smart_crc_errors", "Transfers damaged between drive and host."),
    (
        Metric::LoggedErrors,
        "diskvitals_smart_logged_errors",
        "Errors in the drive's own log, over its life.",
    ),
    (
        Metric::MediaErrors,
        "diskvitals_smart_media_errors",
        "Unrecovered errors of the medium (NVMe).",
    ),
    (
        Metric::GrownDefects,
        "diskvitals_smart_grown_defects",
        "Defects since the drive was made (SCSI).",
    ),
    (
        Metric::UncorrectedErrors,
        "diskvitals_smart_uncorrected_errors",
        "Reads, writes and verifications that failed (SCSI).",
    ),
    (
        Metric::UnsafeShutdowns,
        "diskvitals_smart_unsafe_shutdowns",
        "Losses of power without notice.",
    ),
    (
        Metric::WearPercent,
        "diskvitals_smart_wear_ratio",
        "Part of the designed life that is used; may pass 1.",
    ),
    (
        Metric::SparePercent,
        "diskvitals_smart_spare_ratio",
        "Part of the spare blocks that is left.",
    ),
];

const OUTCOMES: [&str; 6] = ["ok", "asleep", "not_applicable", "failed", "timed_out", "stuck"];

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let present = snapshot.drives.iter().filter(|(_, drive)| drive.presence == Presence::Present);
    let asked: Vec<(&str, &SmartFacts)> =
        present.filter_map(|(id, drive)| Some((id.as_str(), drive.smart.as_deref()?))).collect();
    let reported: Vec<(&str, &SmartFacts, &SmartReport)> = asked
        .iter()
        .filter_map(|(id, smart)| Some((*id, *smart, smart.history.last.as_ref()?.1.as_ref())))
        .collect();

    let help =
        "Outcome of the last SMART poll of the drive; absent for drives that are not polled.";
    let mut family = families.gauge("diskvitals_smart_outcome", None, help)?;
    for (id, smart) in &asked {
        if let Some(outcome) = outcome(smart) {
            family.states(Some(("drive", id)), "outcome", &OUTCOMES, outcome)?;
        }
    }
    let help =
        "Time of the drive's last SMART report, since the epoch: the time of the other values.";
    let mut family =
        families.gauge("diskvitals_smart_last_answer_timestamp", Some(&SECONDS), help)?;
    for (id, smart) in &asked {
        if let Some((at, _)) = &smart.history.last {
            family.signed(&[("drive", *id)], clock::wall(*at).as_second())?;
        }
    }
    let mut family = families.gauge(
        "diskvitals_smart_passed",
        None,
        "The drive's own verdict on itself; 0: it is failing.",
    )?;
    for (id, _, report) in &reported {
        if let Some(passed) = report.overall_passed() {
            family.value(&[("drive", *id)], u64::from(passed))?;
        }
    }
    temperatures(families, &reported)?;
    for (metric, name, help) in METRICS {
        let last =
            |smart: &SmartFacts| Some(smart.history.series.get(&metric)?.points.last()?.value);
        let mut family = match metric.is_monotonic() {
            true => families.counter(name, None, help)?,
            false => families.gauge(name, None, help)?,
        };
        for (id, value) in asked.iter().filter_map(|(id, smart)| Some((*id, last(smart)?))) {
            match metric {
                _ if metric.is_monotonic() => family.count(&[("drive", id)], value)?,
                Metric::WearPercent | Metric::SparePercent => {
                    family.fraction(&[("drive", id)], value as f64 / 100.0)?
                }
                _ => family.value(&[("drive", id)], value)?,
            }
        }
    }
    lifetime(families, &reported)?;
    attributes(families, &reported)
}

/// Only current temperatures: a drive that sleeps or does not respond has none.
fn temperatures(
    families: &mut Families<'_>,
    reported: &[(&str, &SmartFacts, &SmartReport)],
) -> fmt::Result {
    let mut family = families.gauge(
        "diskvitals_drive_temperature",
        Some(&CELSIUS),
        "As of the drive's last report.",
    )?;
    for (id, smart, _) in reported {
        let now = matches!(smart.outcome, Some((_, SmartOutcome::Report))) && smart.stuck.is_none();
        let series = smart.history.series.get(&Metric::Temperature);
        if let Some(point) = series.and_then(|series| series.points.last()).filter(|_| now) {
            family.value(&[("drive", *id)], point.value)?;
        }
    }
    let help = "The drive's own limit, where it reports one.";
    let mut family = families.gauge("diskvitals_drive_temperature_limit", Some(&CELSIUS), help)?;
    for (id, _, report) in reported {
        if let Some(limit) = report.temperature_limit {
            family.signed(&[("drive", *id)], limit)?;
        }
    }
    Ok(())
}

fn lifetime(
    families: &mut Families<'_>,
    reported: &[(&str, &SmartFacts, &SmartReport)],
) -> fmt::Result {
    fn nvme(report: &SmartReport) -> Option<&Nvme> {
        match &report.body {
            Body::Nvme(nvme) => Some(nvme),
            _ => None,
        }
    }
    let of_each = |mut family: Family<'_>, value: fn(&SmartReport) -> Option<u64>| -> fmt::Result {
        let mut values = reported.iter().filter_map(|(id, _, report)| Some((*id, value(report)?)));
        values.try_for_each(|(id, value)| family.count(&[("drive", id)], value))
    };
    let family = families.counter(
        "diskvitals_smart_power_cycles",
        None,
        "How often the drive was switched on.",
    )?;
    of_each(family, |report| report.power_cycles)?;
    let family = families.counter(
        "diskvitals_smart_power_on",
        Some(&SECONDS),
        "How long the drive has been switched on, by its hours.",
    )?;
    of_each(family, |report| report.power_on_hours.map(|hours| hours.saturating_mul(3600)))?;
    // NVM Express Base 2.0, figure 207: the unit is a thousand blocks of 512 bytes.
    let family = families.counter(
        "diskvitals_smart_written",
        Some(&BYTES),
        "Written by the host (NVMe).",
    )?;
    of_each(family, |report| Some(nvme(report)?.data_units_written?.saturating_mul(512_000)))?;
    let family =
        families.counter("diskvitals_smart_read", Some(&BYTES), "Read by the host (NVMe).")?;
    of_each(family, |report| Some(nvme(report)?.data_units_read?.saturating_mul(512_000)))?;
    let mut family = families.gauge(
        "diskvitals_smart_critical_warning",
        None,
        "The bits of the critical warning (NVMe).",
    )?;
    for (id, value) in
        reported.iter().filter_map(|(id, _, report)| Some((*id, nvme(report)?.critical_warning?)))
    {
        family.value(&[("drive", id)], u64::from(value))?;
    }
    let mut family = families.gauge(
        "diskvitals_smart_spare_threshold_ratio",
        None,
        "Below so much the maker calls it failed (NVMe).",
    )?;
    for (id, value) in reported
        .iter()
        .filter_map(|(id, _, report)| Some((*id, nvme(report)?.available_spare_threshold?)))
    {
        family.fraction(&[("drive", id)], f64::from(value) / 100.0)?;
    }
    Ok(())
}

/// At most one attribute of each number: 255 per drive.
fn attributes(
    families: &mut Families<'_>,
    reported: &[(&str, &SmartFacts, &SmartReport)],
) -> fmt::Result {
    let help = "Attributes of ATA drives as they stand, named as smartmontools names them: raw, value, worst, threshold.";
    let mut family = families.gauge("diskvitals_smart_attribute", None, help)?;
    for (id, _, report) in reported {
        let Body::Ata(ata) = &report.body else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for attribute in ata.attributes.iter().filter(|attribute| seen.insert(attribute.id)) {
            let Attribute { id: number, name, value, worst, threshold, raw, .. } = attribute;
            let number = number.to_string();
            let kinds = [
                ("raw", Some(*raw)),
                ("value", Some((*value).into())),
                ("worst", Some((*worst).into())),
            ];
            for (kind, value) in kinds.into_iter().chain([("threshold", threshold.map(u64::from))])
            {
                let labels = [
                    ("drive", *id),
                    ("id", number.as_str()),
                    ("name", name.as_str()),
                    ("kind", kind),
                ];
                value.map_or(Ok(()), |value| family.value(&labels, value))?;
            }
        }
    }
    Ok(())
}

fn outcome(smart: &SmartFacts) -> Option<&'static str> {
    if smart.stuck.is_some() {
        return Some("stuck");
    }
    Some(match &smart.outcome.as_ref()?.1 {
        SmartOutcome::Report => "ok",
        SmartOutcome::Standby { .. } => "asleep",
        SmartOutcome::NotApplicable { .. } => "not_applicable",
        SmartOutcome::Failed { .. } => "failed",
        SmartOutcome::TimedOut { .. } => "timed_out",
    })
}
