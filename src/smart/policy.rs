//! The limits of the SMART rules, with their defaults and the overrides for single models or
//! drives. The configuration's `[smart.limits]` and `[[smart.override]]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::advisory::Advisory;
use diskvitals_finding::reason::Reason;
use diskvitals_text::pattern;
use diskvitals_text::setting::{optional_seconds, seconds};

/// Default path of smartctl. It is not used for a recorded tree: smartctl would not find its
/// drives.
pub const DEFAULT_SMARTCTL: &str = "/usr/sbin/smartctl";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmartPolicy {
    pub limits: SmartLimits,
    pub overrides: Vec<SmartOverride>,
    pub advisories: Vec<Advisory>,
}

/// The SMART policy in force for one drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveSmartPolicy {
    pub limits: SmartLimits,
    pub ignore_reasons: Vec<Reason>,
    pub ignore_attributes: Vec<u8>,
}

/// Defines the limits, and a variant in which each limit is optional.
macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident = $default:literal;)*) => {
        /// Each limit with its meaning and the source of its default. A limit of 0 switches its
        /// rule off.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct SmartLimits {
            /// The period in which growth counts. As long as `[errors] window`, in which errors of
            /// the kernel log are added up.
            #[serde(with = "seconds")]
            pub growth_window: Duration,
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Default for SmartLimits {
            fn default() -> Self {
                SmartLimits { growth_window: Duration::from_secs(7 * 24 * 3600), $($name: $default,)* }
            }
        }

        /// Limits that differ for some drives; missing values are taken from `[smart.limits]`.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct SmartLimitOverrides {
            #[serde(with = "optional_seconds", skip_serializing_if = "Option::is_none")]
            pub growth_window: Option<Duration>,
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)*
        }

        impl SmartLimits {
            pub fn with(&self, other: &SmartLimitOverrides) -> SmartLimits {
                SmartLimits {
                    growth_window: other.growth_window.unwrap_or(self.growth_window),
                    $($name: other.$name.unwrap_or(self.$name),)*
                }
            }
        }
    };
}

limits! {
    /// A counter grows when it increased at this many separate times within the window (an hour or
    /// more apart): one incident, however large, is not growth.
    growth_occasions = 2;
    /// Reallocated sectors or blocks, grown defects: SUSPECT. Drives with one fail within 60 days
    /// 14 times as often as those without (Pinheiro, Weber, Barroso: Failure Trends in a Large Disk
    /// Drive Population, FAST 2007, 3.5.2).
    reallocated_suspect = 1;
    /// The same: BAD. Below the makers' own thresholds: WD's tripped at 1,265 and Hitachi's at
    /// 1,975; Seagate's trip at 2,620 (36 of 100, of 4,095 spares). On SSDs only if the attribute's
    /// own scale has also fallen: their number of spare blocks differs widely.
    reallocated_bad = 1000;
    /// An increase of this many within the window, at `growth_occasions`: BAD. Our choice: at this
    /// rate `reallocated_bad` is reached in ten weeks.
    reallocated_growth_bad = 100;
    /// Sectors that cannot be read (pending, offline uncorrectable, the pending defects log):
    /// SUSPECT. After the first scan error drives fail within 60 days 39 times as often (the same
    /// study, 3.5.1).
    pending_suspect = 1;
    /// The same: BAD. A dozen physical sectors of 4 KiB (8 logical ones each): more than one mark
    /// on the medium. Our choice; no study sets one.
    pending_bad = 100;
    /// Errors that the drive could not correct and reported (ATA 187, NVMe media errors, SCSI's
    /// counters): SUSPECT. 187 is one of the five values that Backblaze names as predictors (5,
    /// 187, 188, 197, 198).
    uncorrected_suspect = 1;
    /// The same, only for SCSI drives: their counters mean the same for all makers (SPC-6, error
    /// counter log pages). BAD. The kernel gives up after five retries (drivers/scsi/sd.h,
    /// SD_MAX_RETRIES): this many means twenty sectors, or one that is read repeatedly.
    uncorrected_bad = 100;
    /// Errors in the data path through the drive's own cache (ATA 184): SUSPECT. Makers set their
    /// thresholds so that a few trip them (HP: 97, Seagate: 99).
    end_to_end_suspect = 1;
    /// Attempts to spin up that had to be repeated (ATA 10): SUSPECT. Makers' thresholds: 97 of 100
    /// (Seagate).
    spin_retries_suspect = 1;
    /// Percent of the designed life that is used: SUSPECT, to plan the replacement. Our choice: of
    /// a life of five years one is left. It never makes a drive BAD: NVMe Base 2.0, 5.16.1.3,
    /// Percentage Used: 100 may not indicate a failure.
    wear_suspect_percent = 80;
    /// The designed life ends within so many days, at the rate of the last 30 days or longer:
    /// Information, to plan. Our choice: half a year.
    wear_forecast_days = 180;
    /// Percent of the reserve between a new drive and its manufacturer's threshold that is used up:
    /// SUSPECT. At the threshold the drive itself reports a failure: BAD.
    reserve_suspect_percent = 80;
    /// Degrees Celsius above which a drive is too warm, for drives that report no limit. Nearly all
    /// data sheets of rotating drives: 60.
    temperature_rotating = 60;
    /// The same for SATA and SAS SSDs. Nearly all data sheets: 70. NVMe drives are judged by their
    /// own limits only.
    temperature_solid_state = 70;
    /// Replaces the drive's own limit and both limits above, unless 0.
    temperature = 0;
    /// The finding is over this many degrees below the limit.
    temperature_clear_below = 5;
    /// Days of operation without a self-test that ended, on a drive whose log has one: information.
    /// Our choice: a monthly test that was left out once.
    self_test_overdue_days = 45;
}

/// For drives with a matching model and serial (patterns with `*` and `?`; a missing pattern
/// matches all). The first match counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmartOverride {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// smartctl's `-d` for the drive; `ignore`: it is not queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_type: Option<String>,
    /// Reasons that its SMART data does not raise.
    pub ignore_reasons: Vec<Reason>,
    /// ATA attributes by number that are not judged.
    pub ignore_attributes: Vec<u8>,
    pub limits: SmartLimitOverrides,
}

impl SmartLimits {
    /// A contradiction in the settings: the key of the configuration, and a sentence.
    pub fn validation_error(&self) -> Option<(&'static str, String)> {
        let contradiction = |key, suspect: u64, bad: u64| {
            (bad != 0 && suspect > bad)
                .then(|| (key, format!("{bad} is below what is SUSPECT ({suspect})")))
        };
        let uncorrected = (self.uncorrected_suspect, self.uncorrected_bad);
        contradiction(
            "smart.limits.reallocated_bad",
            self.reallocated_suspect,
            self.reallocated_bad,
        )
        .or(contradiction("smart.limits.pending_bad", self.pending_suspect, self.pending_bad))
        .or(contradiction("smart.limits.uncorrected_bad", uncorrected.0, uncorrected.1))
    }
}

impl SmartPolicy {
    /// The policy for one drive. A pattern for a property that the drive does not report never
    /// matches.
    pub fn for_drive(&self, model: Option<&str>, serial: Option<&str>) -> DriveSmartPolicy {
        match self.overrides.iter().find(|set| set.matches(model, serial)) {
            None => DriveSmartPolicy { limits: self.limits.clone(), ..DriveSmartPolicy::default() },
            Some(set) => DriveSmartPolicy {
                limits: self.limits.with(&set.limits),
                ignore_reasons: set.ignore_reasons.clone(),
                ignore_attributes: set.ignore_attributes.clone(),
            },
        }
    }
}

impl SmartOverride {
    pub fn matches(&self, model: Option<&str>, serial: Option<&str>) -> bool {
        let fits = |pattern: &Option<String>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(text)) => pattern::matches(pattern, text.as_bytes()),
        };
        fits(&self.model, model) && fits(&self.serial, serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> SmartPolicy {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_first_override_that_matches_counts_and_changes_only_what_it_names() {
        let policy = policy(
            r#"
            limits.pending_bad = 50
            [[overrides]]
            model = "TESTDISK*"
            serial = "X?7"
            ignore_attributes = [188]
            [[overrides]]
            model = "TESTDISK*"
            ignore_reasons = ["Overheating"]
            limits = { pending_suspect = 9, growth_window = "1h" }
            "#,
        );
        let first = policy.for_drive(Some("TESTDISK 2T"), Some("XY7"));
        assert_eq!((first.ignore_attributes, first.limits.pending_suspect), (vec![188], 1));
        let second = policy.for_drive(Some("TESTDISK 2T"), Some("XYZ"));
        assert_eq!(second.ignore_reasons, vec![Reason::Overheating]);
        assert_eq!((second.limits.pending_suspect, second.limits.pending_bad), (9, 50));
        assert_eq!(second.limits.growth_window, Duration::from_secs(3600));
        let other = policy.for_drive(Some("OTHER"), Some("XY7"));
        assert_eq!(other.limits, policy.limits);
    }

    #[test]
    fn a_missing_model_or_serial_matches_no_pattern() {
        let policy = policy("[[overrides]]\nserial = \"*\"\nlimits.pending_bad = 5\n");
        assert_eq!(policy.for_drive(Some("TESTDISK"), None).limits, SmartLimits::default());
        assert_eq!(policy.for_drive(None, Some("X")).limits.pending_bad, 5);
    }

    #[test]
    fn a_limit_that_does_not_exist_is_refused() {
        assert!(toml::from_str::<SmartPolicy>("limits.pending_worse = 1").is_err());
        assert!(toml::from_str::<SmartPolicy>("[[overrides]]\nlimits.pending_worse = 1").is_err());
        assert!(
            toml::from_str::<SmartPolicy>("[[overrides]]\nignore_reasons = [\"Tired\"]").is_err()
        );
    }
}
