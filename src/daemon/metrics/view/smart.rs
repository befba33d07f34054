//! Families about SMART data.
//!
//! Lifetime counters keep the value of the last report, with the time of that report; a temperature
//! that is not current is left out. A missing drive has no values.

use std::collections::BTreeSet;
use std::fmt;

use crate::metrics::view::second;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_model::facts::smart::{SmartFacts, SmartOutcome};
use diskvitals_model::snapshot::{Presence, Snapshot};
use diskvitals_smart::history::Metric;
use diskvitals_smart::report::{Ata, Attribute, Body, ErrorRecovery, Nvme, SmartReport};

const OUTCOMES: [&str; 6] = ["ok", "asleep", "not_applicable", "failed", "timed_out", "stuck"];

/// Percentages are written as a ratio, the base unit.
const FAMILIES: [FamilyRow<SmartFacts>; 31] = families! {
    SmartFacts:
    Gauge "diskvitals_smart_outcome":
        "Outcome of the last SMART poll of the drive; absent for drives that are not polled."
        => |it, to| outcome(it).map_or(Ok(()), |now| to.states("outcome", &OUTCOMES, now));
    Gauge "diskvitals_smart_last_answer_timestamp" in SECONDS:
        "Time of the drive's last SMART report, since the epoch: the time of the other values."
        => |it, to| to.value(it.history.last.as_ref().map(|(at, _)| second(*at)));
    Gauge "diskvitals_smart_passed": "The drive's own verdict on itself; 0: it is failing."
        => |it, to| to.value(report(it).and_then(SmartReport::overall_passed));
    Gauge "diskvitals_drive_temperature" in CELSIUS: "As of the drive's last report."
        => |it, to| to.value(last(it, Metric::Temperature).filter(|_| is_current(it)));
    Gauge "diskvitals_drive_temperature_limit" in CELSIUS:
        "The drive's own limit, where it reports one."
        => |it, to| to.value(report(it).and_then(|report| report.temperature_limit));
    Gauge "diskvitals_smart_pending_sectors": "Sectors that wait to be read or reallocated."
        => |it, to| to.value(last(it, Metric::Pending));
    Gauge "diskvitals_smart_offline_uncorrectable_sectors":
        "Sectors that the drive's own scan could not read."
        => |it, to| to.value(last(it, Metric::OfflineUncorrectable));
    Counter "diskvitals_smart_reallocated_sectors": "Sectors or blocks replaced by spare ones."
        => |it, to| to.value(last(it, Metric::Reallocated));
    Counter "diskvitals_smart_reallocation_events": "Attempts to replace sectors."
        => |it, to| to.value(last(it, Metric::ReallocationEvents));
    Counter "diskvitals_smart_reported_uncorrectable_errors":
        "Errors that the drive reported to the host and could not correct."
        => |it, to| to.value(last(it, Metric::ReportedUncorrectable));
    Counter "diskvitals_smart_soft_read_errors": "Reads off track."
        => |it, to| to.value(last(it, Metric::SoftReadErrors));
    Counter "diskvitals_smart_end_to_end_errors":
        "Data damaged inside the drive, on its way to the host."
        => |it, to| to.value(last(it, Metric::EndToEndErrors));
    Counter "diskvitals_smart_command_timeouts": "Commands that the drive gave up."
        => |it, to| to.value(last(it, Metric::CommandTimeouts));
    Counter "diskvitals_smart_spin_retries": "Repeated attempts to start the platters."
        => |it, to| to.value(last(it, Metric::SpinRetries));
    Counter "diskvitals_smart_crc_errors": "Transfers damaged between drive and host."
        => |it, to| to.value(last(it, Metric::CrcErrors));
    Counter "diskvitals_smart_logged_errors": "Errors in the drive's own log, over its life."
        => |it, to| to.value(last(it, Metric::LoggedErrors));
    Counter "diskvitals_smart_media_errors": "Unrecovered errors of the medium (NVMe)."
        => |it, to| to.value(last(it, Metric::MediaErrors));
    Counter "diskvitals_smart_grown_defects": "Defects since the drive was made (SCSI)."
        => |it, to| to.value(last(it, Metric::GrownDefects));
    Counter "diskvitals_smart_uncorrected_errors":
        "Reads, writes and verifications that failed (SCSI)."
        => |it, to| to.value(last(it, Metric::UncorrectedErrors));
    Counter "diskvitals_smart_unsafe_shutdowns": "Losses of power without notice."
        => |it, to| to.value(last(it, Metric::UnsafeShutdowns));
    Gauge "diskvitals_smart_wear_ratio": "Part of the designed life that is used; may pass 1."
        => |it, to| to.value(last(it, Metric::WearPercent).map(ratio));
    Gauge "diskvitals_smart_endurance_left" in SECONDS:
        "Until all of the designed life is used, at the rate of the last 30 days or longer."
        => |it, to| to.value(it.history.endurance().map(|it| it.days_left.saturating_mul(86_400)));
    Gauge "diskvitals_smart_spare_ratio": "Part of the spare blocks that is left."
        => |it, to| to.value(last(it, Metric::SparePercent).map(ratio));
    Counter "diskvitals_smart_power_cycles": "How often the drive was switched on."
        => |it, to| to.value(report(it).and_then(|report| report.power_cycles));
    Counter "diskvitals_smart_power_on" in SECONDS:
        "How long the drive has been switched on, by its hours."
        => |it, to| to.value(report(it).and_then(|it| Some(it.power_on_hours?.saturating_mul(3600))));
    Counter "diskvitals_smart_written" in BYTES: "Written by the host (NVMe)."
        => |it, to| to.value(nvme(it).and_then(|it| it.data_units_written).map(data_units));
    Counter "diskvitals_smart_read" in BYTES: "Read by the host (NVMe)."
        => |it, to| to.value(nvme(it).and_then(|it| it.data_units_read).map(data_units));
    Gauge "diskvitals_smart_error_recovery" in SECONDS:
        "How long it tries to read or write a sector (SCT ERC); 0: without limit (ATA)."
        => |it, to| to.value(error_recovery(it));
    Gauge "diskvitals_smart_critical_warning": "The bits of the critical warning (NVMe)."
        => |it, to| to.value(nvme(it).and_then(|it| it.critical_warning).map(u64::from));
    Gauge "diskvitals_smart_spare_threshold_ratio":
        "Below so much the maker calls it failed (NVMe)."
        => |it, to| to.value(nvme(it).and_then(|it| it.available_spare_threshold).map(u64::from).map(ratio));
    Gauge "diskvitals_smart_attribute":
        "Attributes of ATA drives as they stand, named as smartmontools names them: raw, value, worst, threshold."
        => attributes;
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let present = snapshot.drives.iter().filter(|(_, drive)| drive.presence == Presence::Present);
    let asked: Vec<_> = present
        .filter_map(|(id, drive)| Some(([("drive", id.as_str())], drive.smart.as_deref()?)))
        .collect();
    families.encode(&FAMILIES, &asked)
}

fn report(smart: &SmartFacts) -> Option<&SmartReport> {
    Some(smart.history.last.as_ref()?.1.as_ref())
}

fn nvme(smart: &SmartFacts) -> Option<&Nvme> {
    match &report(smart)?.body {
        Body::Nvme(nvme) => Some(nvme),
        _ => None,
    }
}

fn error_recovery(smart: &SmartFacts) -> Option<f64> {
    match &report(smart)?.body {
        Body::Ata(Ata { error_recovery: Some(ErrorRecovery::Deciseconds(limit)), .. }) => {
            Some(f64::from(*limit) / 10.0)
        }
        Body::Ata(Ata { error_recovery: Some(ErrorRecovery::Off), .. }) => Some(0.0),
        _ => None,
    }
}

/// The last reported value.
fn last(smart: &SmartFacts, metric: Metric) -> Option<u64> {
    Some(smart.history.series.get(&metric)?.points.last()?.value)
}

/// A drive that sleeps or does not respond has no temperature.
fn is_current(smart: &SmartFacts) -> bool {
    matches!(smart.outcome, Some((_, SmartOutcome::Report))) && smart.stuck.is_none()
}

fn ratio(percent: u64) -> f64 {
    percent as f64 / 100.0
}

/// NVM Express Base 2.0, figure 207: the unit is a thousand blocks of 512 bytes.
fn data_units(count: u64) -> u64 {
    count.saturating_mul(512_000)
}

/// At most one attribute of each number: 255 per drive.
fn attributes(smart: &SmartFacts, to: &mut Samples<'_, '_>) -> fmt::Result {
    let Some(Body::Ata(ata)) = report(smart).map(|report| &report.body) else {
        return Ok(());
    };
    let mut seen = BTreeSet::new();
    for attribute in ata.attributes.iter().filter(|attribute| seen.insert(attribute.id)) {
        let Attribute { id, name, value, worst, threshold, raw, .. } = attribute;
        let number = id.to_string();
        let kinds = [
            ("raw", Some(*raw)),
            ("value", Some((*value).into())),
            ("worst", Some((*worst).into())),
            ("threshold", threshold.map(u64::from)),
        ];
        for (kind, value) in kinds {
            to.labeled(&[("id", &number), ("name", name), ("kind", kind)], value)?;
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
