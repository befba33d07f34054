//! The history of the attributes that decide the verdict: growth weighs more than level. Bounded;
//! kept in the store.
//!
//! In: reports, each with the time of its reading. Out: a series for each metric and its growth
//! (`series`), and the values of one report (`metric_values`). Must not contain: judgement of
//! values (`rules`), clocks.

mod endurance;
mod metric_values;
mod series;
mod trend;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::SelfTestKind;
use crate::report::{Body, Identity, InformationalException, SelfTests, SmartReport, WhenFailed};

pub use endurance::Endurance;
pub use metric_values::metric_values;
pub(super) use metric_values::{
    attribute_metric, endurance_used, is_solid_state, is_temperature, spare_available,
    spare_percent, wear_percent,
};
pub use series::Growth;
pub use trend::{Trend, TrendKind, TrendPoint};

/// The table of metrics: each row gives the variant, its name, and whether the value never
/// decreases in one drive. `name` and serde's names are generated from it.
macro_rules! metrics {
    ($($(#[$doc:meta])* $metric:ident = $name:literal, $monotonic:literal;)*) => {
        /// The metrics of which a series is kept: the first value, each change, and the last
        /// reading.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Metric {
            $($(#[$doc])* #[serde(rename = $name)] $metric,)*
        }

        impl Metric {
            /// The name in the store and in the gRPC API.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$metric => $name,)* }
            }

            /// Whether the value never decreases in one drive: a lower value restarts the series.
            pub(crate) fn is_monotonic(self) -> bool {
                match self { $(Metric::$metric => $monotonic,)* }
            }
        }
    };
}

metrics! {
    Reallocated = "reallocated", true;
    ReallocationEvents = "reallocation_events", true;
    Pending = "pending", false;
    OfflineUncorrectable = "offline_uncorrectable", false;
    ReportedUncorrectable = "reported_uncorrectable", true;
    SoftReadErrors = "soft_read_errors", true;
    EndToEndErrors = "end_to_end_errors", true;
    CommandTimeouts = "command_timeouts", true;
    SpinRetries = "spin_retries", true;
    CrcErrors = "crc_errors", true;
    LoggedErrors = "logged_errors", true;
    MediaErrors = "media_errors", true;
    GrownDefects = "grown_defects", true;
    UncorrectedErrors = "uncorrected_errors", true;
    /// The used share of the designed life, in percent. Several sources report it. They may differ
    /// by some percent, and not every reading has all of them.
    WearPercent = "wear_percent", false;
    /// The remaining spare blocks, in percent.
    SparePercent = "spare_percent", false;
    Temperature = "temperature", false;
    PowerOnHours = "power_on_hours", true;
    UnsafeShutdowns = "unsafe_shutdowns", true;
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SmartHistory {
    /// The last report and its time. It is valid while the drive sleeps or does not respond. Values
    /// that the drive reported before and that this report lacks are carried forward
    /// (`SmartReport::carry_forward`). The rules evaluate this report.
    pub last: Option<(Timestamp, Box<SmartReport>)>,
    /// The time since when every query has found the drive in standby.
    pub asleep_since: Option<Timestamp>,
    /// The last self-test of each kind that was started by a schedule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub started: BTreeMap<SelfTestKind, StartedTest>,
    pub series: BTreeMap<Metric, Series>,
    /// What changes all the time: no rule judges it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trends: BTreeMap<TrendKind, Trend>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedTest {
    pub at: Timestamp,
    /// How many in a row have not come to their end, this one included.
    pub attempts: u32,
    /// Why it did not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The changes of one value: the first reading, each change, the last reading. Between two points,
/// the value of the earlier one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Oldest first; at most `MAX_POINTS`.
    pub points: Vec<Point>,
    /// The last restart of the series: the counter decreased, or its meaning changed. Earlier
    /// values are no longer compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    pub at: Timestamp,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub at: Timestamp,
    pub value: u64,
}

impl SmartHistory {
    /// Records a report. A report of another drive starts a new history. An identical report
    /// changes nothing.
    pub fn record(&mut self, report: &SmartReport, at: Timestamp) {
        if self
            .last
            .as_ref()
            .is_some_and(|(_, last)| is_different_drive(&last.identity, &report.identity))
        {
            *self = SmartHistory::default();
        }
        let incomparable =
            self.last.as_ref().is_some_and(|(_, last)| is_incomparable(last, report));
        let mut merged = Box::new(report.clone());
        if let Some((_, last)) = &self.last {
            merged.carry_forward(last);
        }
        // A value that is not in the report has no reading. A partial value (one of several summed
        // counters) is recorded with the carried-forward part: otherwise the missing part would
        // look like growth in the next report.
        let reported = metric_values(report);
        for (metric, value) in
            metric_values(&merged).into_iter().filter(|(metric, _)| reported.contains_key(metric))
        {
            self.series.entry(metric).or_default().record(
                value,
                at,
                metric.is_monotonic(),
                incomparable,
            );
        }
        let temperature = reported.get(&Metric::Temperature);
        let is_known = self.last.as_ref().is_some_and(|(last, _)| *last == at);
        let temperature = temperature.filter(|_| !is_known);
        if let Some(celsius) = temperature.and_then(|celsius| u32::try_from(*celsius).ok()) {
            self.record_trend(TrendKind::Temperature, celsius, at);
        }
        self.asleep_since = None;
        self.last = Some((at, merged));
    }

    pub fn record_trend(&mut self, kind: TrendKind, value: u32, at: Timestamp) {
        self.trends.entry(kind).or_default().record(value, at);
    }

    /// Whether `new` differs in more than the times, temperature, hours and amount of I/O, which
    /// always change.
    pub fn has_changed(&self, new: &SmartHistory) -> bool {
        fn figures(history: &SmartHistory) -> impl Iterator<Item = (&Metric, Option<u64>)> {
            let last = |series: &Series| series.points.last().map(|point| point.value);
            let series = history.series.iter();
            series
                .filter(|(metric, _)| !matches!(metric, Metric::Temperature | Metric::PowerOnHours))
                .map(move |(metric, series)| (metric, last(series)))
        }
        fn warnings(history: &SmartHistory) -> Option<DriveWarnings<'_>> {
            history.last.as_ref().map(|(_, last)| last.as_ref().into())
        }
        !figures(self).eq(figures(new)) || warnings(self) != warnings(new)
    }

    /// Whether a crash may not lose `new`, when the store has this history.
    pub fn must_be_stored(&self, new: &SmartHistory) -> bool {
        fn identity(history: &SmartHistory) -> Option<([u32; 2], &Identity)> {
            let (_, last) = history.last.as_ref()?;
            Some((last.smartctl, &last.identity))
        }
        self.has_changed(new)
            || self.asleep_since != new.asleep_since
            || self.started != new.started
            || identity(self) != identity(new)
    }

    /// Inserts the history from the store before the readings since the start: the store may be
    /// slower than a drive.
    pub fn prepend(&mut self, older: SmartHistory) {
        let newer = std::mem::replace(self, older);
        let another = |(_, new): &(Timestamp, Box<SmartReport>)| {
            self.last
                .as_ref()
                .is_some_and(|(_, old)| is_different_drive(&old.identity, &new.identity))
        };
        if newer.last.as_ref().is_some_and(another) {
            *self = newer;
            return;
        }
        let incomparable = self
            .last
            .as_ref()
            .zip(newer.last.as_ref())
            .is_some_and(|((_, old), (_, new))| is_incomparable(old, new));
        for (metric, series) in newer.series {
            // A series that restarted is not compared with values before its restart.
            if series.reset.is_some() {
                self.series.insert(metric, series);
                continue;
            }
            let known = self.series.entry(metric).or_default();
            for (index, point) in series.points.into_iter().enumerate() {
                known.record(
                    point.value,
                    point.at,
                    metric.is_monotonic(),
                    incomparable && index == 0,
                );
            }
        }
        for (kind, trend) in newer.trends {
            self.trends.entry(kind).or_default().append(&trend);
        }
        self.asleep_since = newer.asleep_since;
        self.started.extend(newer.started);
        if let Some((at, mut last)) = newer.last {
            if let Some((_, older)) = &self.last {
                last.carry_forward(older);
            }
            self.last = Some((at, last));
        }
    }
}

/// The warnings of a report, besides the values that have a history.
#[derive(PartialEq)]
struct DriveWarnings<'a> {
    passed: Option<bool>,
    self_tests: &'a SelfTests,
    failed_attributes: Vec<(u8, WhenFailed)>,
    critical_warning: Option<u8>,
    exception: Option<&'a InformationalException>,
}

impl<'a> From<&'a SmartReport> for DriveWarnings<'a> {
    fn from(report: &'a SmartReport) -> Self {
        let mut warnings = DriveWarnings {
            passed: report.passed,
            self_tests: &report.self_tests,
            failed_attributes: Vec::new(),
            critical_warning: None,
            exception: None,
        };
        match &report.body {
            Body::Ata(ata) => {
                let attributes = ata.attributes.iter();
                warnings.failed_attributes =
                    attributes.map(|attribute| (attribute.id, attribute.when_failed)).collect();
            }
            Body::Nvme(nvme) => warnings.critical_warning = nvme.critical_warning,
            Body::Scsi(scsi) => warnings.exception = scsi.exception.as_ref(),
            Body::None => {}
        }
        warnings
    }
}

/// Whether two identities differ in known fields. A missing name is no difference. If both have a
/// world wide name, it decides alone: bridges and versions of smartctl write models differently.
fn is_different_drive(before: &Identity, now: &Identity) -> bool {
    if before.wwn.is_some() && now.wwn.is_some() {
        return before.wwn != now.wwn;
    }
    differ(&before.serial, &now.serial) || differ(&before.model, &now.model)
}

fn differ<T: PartialEq>(before: &Option<T>, now: &Option<T>) -> bool {
    before.is_some() && now.is_some() && before != now
}

/// Whether a step between two reports is no growth: another firmware may count differently, and
/// another smartctl or drive database may decode the same bytes differently. A missing field is no
/// difference.
fn is_incomparable(before: &SmartReport, now: &SmartReport) -> bool {
    before.smartctl != now.smartctl
        || differ(&before.identity.firmware, &now.identity.firmware)
        || differ(&before.identity.family, &now.identity.family)
        || differ(&before.identity.in_database, &now.identity.in_database)
}
