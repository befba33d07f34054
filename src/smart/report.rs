//! The health data of one drive from one run of smartctl. Differences between versions (from 7.0
//! on) are removed, and nothing is evaluated.
//!
//! An amount that the drive or smartctl did not report is absent: absent is never zero.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SmartReport {
    /// smartctl's version: `[7, 3]`.
    pub smartctl: [u32; 2],
    /// smartctl(8), EXIT STATUS: a bit mask. Bits 0 to 2 are about the command, 3 to 7 about the
    /// drive.
    pub exit_status: u8,
    /// smartctl's own warnings and errors, and drivedb's warnings (firmware with known bugs).
    pub messages: Vec<Message>,
    /// What of the output was left out because it is no evidence, and why: sentences for people.
    pub notes: Vec<String>,
    /// The text output was present (`--json=o`): only it contains the warnings of drivedb.
    pub with_text: bool,
    pub identity: Identity,
    pub available: Option<bool>,
    pub enabled: Option<bool>,
    /// The drive's own overall verdict. Absent means unknown.
    pub passed: Option<bool>,
    pub temperature: Option<i64>,
    /// The temperature limit of the drive, if it reports one.
    pub temperature_limit: Option<i64>,
    pub power_on_hours: Option<u64>,
    pub power_cycles: Option<u64>,
    pub self_tests: SelfTests,
    pub body: Body,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    pub text: String,
    /// `error`, `warning`, `information`.
    pub severity: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The device and the type as given to smartctl: `/dev/sda`, `/dev/bus/0`; `sat`, `nvme`,
    /// `megaraid,3`.
    pub device: String,
    pub device_type: String,
    /// `ATA`, `NVMe`, `SCSI`.
    pub protocol: String,
    pub vendor: Option<String>,
    pub model: Option<String>,
    /// drivedb's name of the family; absent for a drive that is not in drivedb.
    pub family: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// In the format of sysfs: `naa.…`, `eui.…`, lower case.
    pub wwn: Option<String>,
    pub size_bytes: Option<u64>,
    /// Revolutions per minute; 0: solid state.
    pub rotation_rate: Option<u32>,
    /// This model is in drivedb: its names of attributes are the vendor's.
    pub in_database: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Ata(Ata),
    Nvme(Nvme),
    Scsi(Scsi),
    #[default]
    None,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ata {
    pub attributes: Vec<Attribute>,
    /// Number of errors in the drive's lifetime (summary, comprehensive or extended log).
    pub error_count: Option<u64>,
    /// The newest logged errors as text, with the power-on hour.
    pub last_errors: Vec<LoggedError>,
    /// Entries of the pending defects log (ACS-4, log 0Ch).
    pub pending_defects: Option<u64>,
    /// Device statistics (ACS-4, log 04h) that are valid.
    pub statistics: Vec<Statistic>,
    /// The used percent of the designed life, which smartctl 7.5 and newer reads from statistics or
    /// attributes.
    pub endurance_used: Option<u8>,
    /// The remaining percent of spare blocks, and the vendor's threshold, from the same sources.
    pub spare_available: Option<u8>,
    pub spare_threshold: Option<u8>,
    pub error_recovery: Option<ErrorRecovery>,
    /// What IDENTIFY DEVICE says of zones (ACS-4, word 69): `host_aware`, `device_managed`. Most
    /// drives with drive-managed SMR say nothing.
    pub zoned: Option<String>,
}

/// SCT Error Recovery Control (ACS-4): how long the drive tries to read or write a sector
/// before it reports an error. Most drives forget a setting when they lose power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorRecovery {
    /// The drive has no such limit.
    Unsupported,
    Off,
    Deciseconds(u16),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribute {
    pub id: u8,
    /// The name in drivedb for this model; otherwise `Unknown_Attribute` or similar.
    pub name: String,
    /// 1 to 253, higher is better; how the value falls depends on the vendor.
    pub value: u8,
    pub worst: u8,
    /// Absent if the drive reports none.
    pub threshold: Option<u8>,
    pub when_failed: WhenFailed,
    /// Below the threshold means imminent failure (otherwise: the end of its designed life).
    pub prefailure: bool,
    /// 48 bits in a vendor-specific format.
    pub raw: u64,
    /// The interpretation by smartctl for this model: `12 (Min/Max 8/41)`, `0 0 3`.
    pub raw_text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFailed {
    Never,
    Now,
    Past,
    /// The drive reported no threshold.
    #[default]
    #[serde(rename = "untold")]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoggedError {
    pub hours: Option<u64>,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistic {
    pub page: u8,
    pub offset: u32,
    pub name: String,
    pub value: i64,
    /// Normalized (about 0 to 100) instead of an amount.
    pub normalized: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvme {
    /// Bits of critical_warning: 0 spare below threshold, 1 temperature, 2 reliability degraded, 3
    /// media read-only, 4 volatile memory backup failed, 5 persistent memory region.
    pub critical_warning: Option<u8>,
    /// Percent.
    pub available_spare: Option<u8>,
    pub available_spare_threshold: Option<u8>,
    /// The used percent of the designed life; may exceed 100.
    pub percentage_used: Option<u8>,
    pub media_errors: Option<u64>,
    pub error_log_entries: Option<u64>,
    pub unsafe_shutdowns: Option<u64>,
    /// In units of 512,000 bytes.
    pub data_units_written: Option<u64>,
    pub data_units_read: Option<u64>,
    /// Minutes above the warning and the critical composite temperature.
    pub warning_temperature_minutes: Option<u64>,
    pub critical_temperature_minutes: Option<u64>,
    /// The newest entries of the error log about the medium, as text.
    pub last_errors: Vec<LoggedError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scsi {
    /// From the informational exception (SPC-6, Informational Exceptions log page); 5Dh is a
    /// predicted failure.
    pub exception: Option<InformationalException>,
    /// Number of elements, regardless of the unit in smartctl's version.
    pub grown_defects: Option<u64>,
    pub pending_defects: Option<u64>,
    pub read: Option<ErrorCounter>,
    pub write: Option<ErrorCounter>,
    pub verify: Option<ErrorCounter>,
    /// The used percent of the designed life (Solid State Media log page).
    pub percentage_used: Option<u8>,
    /// The status of the background scan, and the number of medium errors that it found and that
    /// are not repaired.
    pub background_scan: Option<String>,
    pub background_errors: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InformationalException {
    pub asc: u8,
    pub ascq: u8,
    pub text: String,
}

/// A row of a SCSI error counter page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorCounter {
    pub corrected: Option<u64>,
    pub uncorrected: Option<u64>,
    /// As text, in 10^9 bytes.
    pub gigabytes: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfTests {
    /// Remaining percent of the running test.
    pub running: Option<u8>,
    /// The newest test is first.
    pub log: Vec<SelfTest>,
    /// The log was read: then an empty log means that no test was made.
    #[serde(rename = "told")]
    pub log_read: bool,
    /// The outcome of the last test from the drive's status, if the log was not read (ATA).
    pub last: Option<SelfTestOutcome>,
    /// Duration of a test in minutes, as the drive reports it.
    pub short_minutes: Option<u32>,
    pub long_minutes: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfTest {
    /// `Short offline`, `Extended`, `Background long`: smartctl's text.
    pub kind: String,
    /// The test reads the whole medium: its success outdates the failures before it.
    pub extended: bool,
    pub outcome: SelfTestOutcome,
    /// smartctl's text: `Completed: read failure`.
    pub text: String,
    /// Power-on hour; ATA's older logs have 16 bits for it, which may have wrapped.
    pub hours: Option<u64>,
    pub lba: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestOutcome {
    Passed,
    /// The drive found a fault. Not: aborted, or interrupted by the host or a reset.
    Failed,
    Running,
    #[default]
    Other,
}

/// The kind of the log entry for a failure that only the drive's status reports.
pub(crate) const STATUS_ONLY_KIND: &str = "The last";

impl SelfTest {
    pub(crate) fn is_status_only(&self) -> bool {
        self.kind == STATUS_ONLY_KIND
    }
}

impl Message {
    /// Whether the message is about the model or its firmware, and not about this reading.
    pub(crate) fn is_firmware_notice(&self) -> bool {
        self.severity != "error"
            && (self.text.contains("==> WARNING") || self.text.to_lowercase().contains("firmware"))
    }

    /// If a bridge does not pass on the drive's verdict, smartctl evaluates the attributes itself
    /// (ataprint.cpp: "based on an Attribute check").
    pub(crate) fn is_attribute_check_warning(&self) -> bool {
        self.text.contains("based on an Attribute check")
    }
}

impl SmartReport {
    /// The overall verdict of the drive. If it is missing, exit status bit 3 means that it was bad
    /// (smartctl(8), EXIT STATUS).
    pub fn overall_passed(&self) -> Option<bool> {
        self.passed.or((self.exit_status & 8 != 0).then_some(false))
    }

    /// What says that the drive itself decides where its overlapping (shingled) tracks are rewritten.
    pub fn drive_managed_smr(&self) -> Option<String> {
        let family = self.identity.family.as_ref().filter(|family| family.ends_with("(SMR)"));
        match &self.body {
            Body::Ata(Ata { zoned: Some(zoned), .. }) if zoned == "device_managed" => {
                Some("Zoned Device: Device managed zones".to_owned())
            }
            _ => family.map(|family| format!("Model Family: {family}")),
        }
    }

    /// Whether logs were read, and nothing that says how the drive is.
    pub fn has_only_logs(&self) -> bool {
        self.body != Body::None && !self.has_health_data()
    }

    /// Whether the report has data about health: a verdict, attributes, a health log or counters.
    /// Logs alone are not enough: an empty one would count as good health.
    pub fn has_health_data(&self) -> bool {
        let counted = |counter: &Option<ErrorCounter>| counter.is_some();
        self.passed.is_some()
            || match &self.body {
                Body::Ata(ata) => !ata.attributes.is_empty(),
                Body::Nvme(nvme) => {
                    nvme.critical_warning.is_some()
                        || nvme.available_spare.is_some()
                        || nvme.percentage_used.is_some()
                        || nvme.media_errors.is_some()
                }
                Body::Scsi(scsi) => {
                    scsi.exception.is_some()
                        || scsi.grown_defects.is_some()
                        || scsi.pending_defects.is_some()
                        || scsi.percentage_used.is_some()
                        || [&scsi.read, &scsi.write, &scsi.verify].into_iter().any(counted)
                }
                Body::None => false,
            }
    }
}

impl SelfTestOutcome {
    pub fn name(self) -> &'static str {
        match self {
            SelfTestOutcome::Passed => "passed",
            SelfTestOutcome::Failed => "failed",
            SelfTestOutcome::Running => "running",
            SelfTestOutcome::Other => "other",
        }
    }
}
