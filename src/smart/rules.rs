//! The SMART rules: one table, and the evaluation of a report by it.
//!
//! In: a `SmartReport`, its `SmartHistory`, the limits of the policy. Out: `RuleHit`s. Pure and
//! without a clock: the current time is that of the last reading.
//!
//! BAD: the drive reports its own failure, or it continues to lose data. SUSPECT: a sign that
//! precedes failure. Information: no action is needed. A missing value is unknown and raises
//! nothing. Heat, wear and cables are never a failure of the drive.

mod advisories;
mod attributes;
mod counters;
mod self_assessment;
pub mod self_tests;
mod temperature;
mod text;
mod wear;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;

use crate::advisory::Advisory;
use crate::history::{self, Growth, Metric, Series, SmartHistory};
use crate::policy::{SmartLimits, SmartPolicy};
use crate::report::{Ata, Attribute, Body, Nvme, Scsi, SmartReport};
use crate::rules::counters::{growth, level};
use crate::rules::self_assessment::{critical_warning, explained_warning};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{MAX_EVIDENCE, Status};

/// A finding about the drive, before it gets its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleHit {
    pub reason: Reason,
    pub severity: Severity,
    pub status: Status,
    /// One sentence with the numbers, without the drive's name: `269 sectors wait to be reallocated
    /// (12 more in 3 days)`.
    pub message: String,
    /// The lines of the report that prove it, as smartctl prints them: `197 Current_Pending_Sector
    /// value 99 worst 98 threshold 0 raw 269`.
    pub evidence: Vec<String>,
    /// What ends it, of each rule that holds.
    pub clears: Vec<&'static str>,
}

/// A row of the table.
pub struct Rule {
    pub reason: Reason,
    evaluate: fn(&RuleInput) -> Option<Symptom>,
    /// The rest of "It is over when". True of what the drive counts: many counters never fall.
    clears: &'static str,
}

const NOT_REPORTED: &str = "the drive answers and no longer reports it, or is replaced";
const NEVER: &str =
    "never by itself, because the count does not fall: acknowledge it, or replace the drive";
const NO_SPARE: &str =
    "never by itself, because spare blocks are not regained: acknowledge it, or replace the drive";
const WORN: &str =
    "never by itself, because wear does not fall: acknowledge it, or replace the drive";
const REMEMBERED: &str =
    "never by itself, because the drive remembers it: acknowledge it, or replace the drive";
const NO_GROWTH: &str = "its count has not grown for `[smart.limits] growth_window`";
const COOL: &str = "the drive is `[smart.limits] temperature_clear_below` degrees below its limit";

/// The result of one rule for one drive.
struct Symptom {
    severity: Severity,
    message: String,
    evidence: Vec<String>,
}

impl Symptom {
    fn suspect(message: impl Into<String>, evidence: Vec<String>) -> Symptom {
        Symptom { severity: Severity::Suspect, message: message.into(), evidence }
    }
}

/// A row is its reason, its judgement, what ends it, and the document that defines its values:
///
/// ```text
///     LinkErrors: counters::crc => NO_GROWTH,
///         "drivedb.h 199; ACS-4, Device Statistics page 06h";
/// ```
macro_rules! rules {
    ($($reason:ident: $evaluate:expr => $clears:expr, $source:literal;)*) => {
        /// All rules. Several rules may have one reason: their symptoms are merged, the worst first,
        /// otherwise in this order.
        pub const RULES: &[Rule] = &[
            $(Rule { reason: Reason::$reason, evaluate: $evaluate, clears: $clears }),*
        ];
    };
}

rules! {
    SmartFailing: self_assessment::overall => NOT_REPORTED,
        "smartctl(8), EXIT STATUS bit 3; ACS-4, SMART RETURN STATUS";
    SmartFailing: self_assessment::scsi_predicts_failure => NOT_REPORTED,
        "SPC-6, additional sense codes, 5Dh; Informational Exceptions log page";
    SmartFailing: |it| explained_warning(it, 0b100, "The drive says that its reliability is degraded")
        => NOT_REPORTED, "NVMe Base 2.0 5.16.1.3, Critical Warning bit 2";
    // Written data may be lost at a power failure.
    SmartFailing: |it| critical_warning(it, 0b1_0000, Severity::Bad,
        "The power-loss backup of the drive's memory has failed: what it says is written may be lost")
        => NOT_REPORTED, "NVMe Base 2.0 5.16.1.3, Critical Warning bit 4";
    DriveReadOnly: |it| explained_warning(it, 0b1000, "The drive has made its medium read-only")
        => NOT_REPORTED, "NVMe Base 2.0 5.16.1.3, Critical Warning bit 3";
    SpareLow: wear::nvme_spare => NO_SPARE,
        "NVMe Base 2.0 5.16.1.3, Critical Warning bit 0, Available Spare";
    SpareLow: wear::ata_spare => NO_SPARE,
        "drivedb.h, attributes of the reserve; smartctl(8) -A, VALUE and THRESH";
    SmartAttributeFailing: attributes::prefailure => REMEMBERED,
        "smartctl(8) -A, Pre-failure; EXIT STATUS bit 4";
    PendingSectors: counters::pending
        => "the drive reports no such sector, or the drive is replaced",
        "drivedb.h 197, 198; ACS-4, Pending Defects log; SBC-4, Pending Defects log page";
    PendingSectors: counters::background_scan
        => "the drive's scan has no unrepaired error, or the drive is replaced",
        "SBC-4, Background Scan log page";
    MediaErrors: counters::uncorrected => NEVER,
        "drivedb.h 187; NVMe Base 2.0 5.16.1.3, Media and Data Integrity Errors; SPC-6, error counter log pages";
    MediaErrors: counters::logged_errors
        => "its error log has not grown for `[smart.limits] growth_window`",
        "smartctl(8) -l error, EXIT STATUS bit 6";
    SelfTestFailed: self_tests::failed
        => "a later extended test has passed: `diskvitals self-test DRIVE long`",
        "smartctl(8), EXIT STATUS bit 7; self-test logs of ACS-4, NVMe Base 2.0 5.16.1.7, SPC-6";
    SelfTestOverdue: self_tests::overdue
        => "a self-test has ended (`diskvitals self-test DRIVE long`)",
        "self-test logs of ACS-4, NVMe Base 2.0 5.16.1.7, SPC-6; the period is ours";
    ReallocatedSectors: counters::reallocated => NEVER,
        "drivedb.h 5; ACS-4, Device Statistics page 03h; SBC-4, READ DEFECT DATA (grown list)";
    // Data corrupted between the drive's cache and its medium.
    SmartAttributeSuspect: |it| level(it, Metric::EndToEndErrors, it.limits.end_to_end_suspect,
        ("end-to-end error", "end-to-end errors")) => NEVER, "drivedb.h 184";
    // A fault of the motor, the bearing or the power supply.
    SmartAttributeSuspect: |it| level(it, Metric::SpinRetries, it.limits.spin_retries_suspect,
        ("spin-up had to be tried again", "spin-ups had to be tried again"))
        => NEVER, "drivedb.h 10";
    // An old count may come from a pulled cable or a reset.
    SmartAttributeSuspect: |it| growth(it, Metric::CommandTimeouts,
        ("command timed out", "commands timed out"))
        => NO_GROWTH, "drivedb.h 188 and its raw16 format for Seagate";
    // Off-track reads. Some manufacturers store a rate there.
    SmartAttributeSuspect: |it| growth(it, Metric::SoftReadErrors,
        ("soft read error", "soft read errors")) => NO_GROWTH, "drivedb.h 201";
    SmartAttributeSuspect: attributes::old_age
        => "the attribute is above its threshold, or the drive is replaced",
        "smartctl(8) -A, Old_age; EXIT STATUS bit 5";
    SmartAttributeSuspect: self_assessment::nvme_other_warnings => NOT_REPORTED,
        "NVMe Base 2.0 5.16.1.3, Critical Warning bit 5 and reserved";
    SmartAttributeSuspect: self_assessment::scsi_warning => NOT_REPORTED,
        "SPC-6, additional sense codes, 0Bh";
    WornOut: wear::threshold => WORN,
        "smartctl(8) -A, Old_age; drivedb.h, attributes of wear";
    WornOut: wear::percent_used => WORN,
        "NVMe Base 2.0 5.16.1.3, Percentage Used; ACS-4, Device Statistics page 07h; SBC-4, Solid State Media log page; drivedb.h";
    WornOut: wear::forecast
        => "100 % is further away than `[smart.limits] wear_forecast_days`, at the rate then",
        "as above, and the history of the value";
    Overheating: temperature::nvme_warning => COOL,
        "NVMe Base 2.0 5.16.1.3, Critical Warning bit 1";
    Overheating: temperature::scsi_warning => "the drive no longer reports it",
        "SPC-6, additional sense codes, 0Bh/01h";
    Overheating: temperature::attribute_threshold => "the attribute is above its threshold",
        "smartctl(8) -A; drivedb.h 190, 194";
    Overheating: temperature::above_limit => COOL,
        "NVMe WCTEMP; SCSI trip temperature; ACS-4 SCT status; the drive's sheet";
    LinkErrors: counters::crc => NO_GROWTH,
        "drivedb.h 199; ACS-4, Device Statistics page 06h";
    FirmwareNotice: firmware_notice
        => "the drive has other firmware, or the database no longer lists the fault",
        "drivedb.h, warnings";
    FirmwareNotice: advisories::published => "the drive has other firmware, or the advisory is removed",
        "systemd/advisories.toml; [[smart.advisory]]";
}

/// A warning in drivedb.h about firmware with known faults. Information: an admin must read whether
/// the fault concerns this host.
fn firmware_notice(case: &RuleInput) -> Option<Symptom> {
    let notices = case.report.messages.iter().filter(|message| message.is_firmware_notice());
    let evidence: Vec<String> = notices.map(|message| message.text.clone()).collect();
    let message = evidence.first()?.trim_start_matches("==> WARNING: ").trim().to_owned();
    Some(Symptom { severity: Severity::Info, message, evidence })
}

/// Evaluates all rules. Out: at most one hit for each reason, the most severe first. `report` is
/// the last report of `history`, with missing values carried forward. Without a history (a recorded
/// file), only levels count.
pub fn evaluate(
    report: &SmartReport,
    history: Option<&SmartHistory>,
    policy: &SmartPolicy,
) -> Vec<RuleHit> {
    let terms =
        policy.for_drive(report.identity.model.as_deref(), report.identity.serial.as_deref());
    let report = without_attributes(report, &terms.ignore_attributes);
    let case = RuleInput {
        values: history::metric_values(&report),
        report: &report,
        history,
        limits: &terms.limits,
        advisories: &policy.advisories,
    };
    let mut causes: Vec<(usize, Reason, Symptom)> = RULES
        .iter()
        .enumerate()
        .filter(|(_, rule)| !terms.ignore_reasons.contains(&rule.reason))
        .filter_map(|(row, rule)| Some((row, rule.reason, (rule.evaluate)(&case)?)))
        .collect();
    causes.sort_by_key(|(row, _, cause)| (std::cmp::Reverse(cause.severity), *row));
    let causes = match case.ata() {
        Some(ata) if causes.len() > 1 => fold_by_attribute(causes, ata, &case),
        _ => causes,
    };
    let mut by_reason: BTreeMap<Reason, (usize, Vec<Holding>)> = BTreeMap::new();
    for (row, reason, cause) in causes {
        let (first_row, of_reason) = by_reason.entry(reason).or_insert((row, Vec::new()));
        *first_row = row.min(*first_row);
        of_reason.push((cause, RULES[row].clears));
    }
    let mut hits: Vec<(usize, RuleHit)> = by_reason
        .into_iter()
        .filter_map(|(reason, (row, causes))| Some((row, merge(reason, causes)?)))
        .collect();
    hits.sort_by_key(|(row, hit)| (std::cmp::Reverse(hit.severity), *row));
    hits.into_iter().map(|(_, hit)| hit).collect()
}

/// One attribute, one finding: a symptom that rests only on attributes that a worse one quotes is
/// reported with that one. The causes are sorted, the worst first.
fn fold_by_attribute(
    causes: Vec<(usize, Reason, Symptom)>,
    ata: &Ata,
    case: &RuleInput,
) -> Vec<(usize, Reason, Symptom)> {
    // Attribute 196 supports a finding and never raises one.
    let identity = &case.report.identity;
    let lines = text::attribute_lines(ata, |attribute| {
        history::attribute_metric(attribute, ata, identity) != Some(Metric::ReallocationEvents)
    });
    let mut kept: Vec<(usize, Reason, Symptom)> = Vec::new();
    for (row, reason, cause) in causes {
        let quoted: Vec<&String> =
            cause.evidence.iter().filter(|line| lines.contains(line)).collect();
        let covers = |(_, other, worse): &&mut (usize, Reason, Symptom)| {
            *other != reason
                && worse.severity > Severity::Info
                && quoted.iter().all(|line| worse.evidence.contains(line))
        };
        let may_fold = !quoted.is_empty() && cause.severity > Severity::Info;
        match kept.iter_mut().find(covers).filter(|_| may_fold) {
            Some((_, _, worse)) => {
                worse.message = format!("{}; {}", worse.message, cause.message);
                let more = cause.evidence.into_iter();
                let more: Vec<String> =
                    more.filter(|line| !worse.evidence.contains(line)).collect();
                worse.evidence.extend(more);
            }
            None => kept.push((row, reason, cause)),
        }
    }
    kept
}

/// A symptom, and what ends it.
type Holding = (Symptom, &'static str);

fn merge(reason: Reason, mut causes: Vec<Holding>) -> Option<RuleHit> {
    causes.sort_by_key(|(cause, _)| std::cmp::Reverse(cause.severity));
    let severity = causes.first()?.0.severity;
    let mut clears: Vec<&'static str> = Vec::new();
    for (_, condition) in &causes {
        if !clears.contains(condition) {
            clears.push(condition);
        }
    }
    let message =
        causes.iter().map(|(cause, _)| cause.message.as_str()).collect::<Vec<_>>().join("; ");
    let mut evidence: Vec<String> = Vec::new();
    for line in causes.into_iter().flat_map(|(cause, _)| cause.evidence) {
        if evidence.len() < MAX_EVIDENCE && !evidence.contains(&line) {
            evidence.push(line);
        }
    }
    // Only the kernel, whose read failed, can prove the loss of data: a drive reports sectors, but
    // not whether they contained data.
    let status = if severity == Severity::Info { Status::Information } else { Status::Degraded };
    Some(RuleHit { reason, severity, status, message, evidence, clears })
}

/// The report without the ignored attributes.
fn without_attributes<'a>(report: &'a SmartReport, ignored: &[u8]) -> Cow<'a, SmartReport> {
    let mut report = Cow::Borrowed(report);
    let is_ignored = |attribute: &Attribute| ignored.contains(&attribute.id);
    let any = matches!(&report.body, Body::Ata(ata) if ata.attributes.iter().any(is_ignored));
    if any && let Body::Ata(ata) = &mut report.to_mut().body {
        ata.attributes.retain(|attribute| !is_ignored(attribute));
    }
    report
}

/// The input of every rule: one drive.
struct RuleInput<'a> {
    report: &'a SmartReport,
    values: BTreeMap<Metric, u64>,
    history: Option<&'a SmartHistory>,
    limits: &'a SmartLimits,
    advisories: &'a [Advisory],
}

impl RuleInput<'_> {
    fn ata(&self) -> Option<&Ata> {
        match &self.report.body {
            Body::Ata(ata) => Some(ata),
            _ => None,
        }
    }

    fn nvme(&self) -> Option<&Nvme> {
        match &self.report.body {
            Body::Nvme(nvme) => Some(nvme),
            _ => None,
        }
    }

    fn scsi(&self) -> Option<&Scsi> {
        match &self.report.body {
            Body::Scsi(scsi) => Some(scsi),
            _ => None,
        }
    }

    fn value(&self, metric: Metric) -> Option<u64> {
        self.values.get(&metric).copied()
    }

    /// The value, if it has reached the limit.
    fn value_from(&self, metric: Metric, limit: u64) -> Option<u64> {
        self.value(metric).filter(|value| reaches_limit(*value, limit))
    }

    /// The series of a metric that this report contains.
    fn series(&self, metric: Metric) -> Option<&Series> {
        self.values.get(&metric)?;
        self.history?.series.get(&metric)
    }

    fn growth(&self, metric: Metric) -> Option<Growth> {
        self.series(metric)?.growth(to_signed_duration(self.limits.growth_window))
    }

    /// The growth, if the value increased on `growth_occasions` occasions within the window.
    fn repeated_growth(&self, metric: Metric) -> Option<Growth> {
        let occasions = self.limits.growth_occasions;
        self.growth(metric).filter(|growth| occasions > 0 && growth.occasions >= occasions)
    }
}

/// Whether the value has reached the limit. 0 is "no limit".
fn reaches_limit(value: u64, limit: u64) -> bool {
    limit > 0 && value >= limit
}

fn to_signed_duration(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
