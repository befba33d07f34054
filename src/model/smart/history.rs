//! The values that decide, over time: growth beats level. Bounded; kept in the store.
//!
//! In: reports, each with the time of its reading. Out: a series a metric, and by how much it grew
//! (`series`); what the values of one report mean (`values`). May not enter: whether a value is bad
//! (`rules`), clocks.

mod metric_values;
mod series;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::smart::report::{Identity, SmartReport};

pub(super) use metric_values::{
    attribute_metric, endurance_used, is_solid_state, is_temperature, spare_available,
    spare_percent, wear_percent,
};
pub use series::{Growth, MAX_POINTS, OCCASION_GAP};

/// What is remembered of each drive. One series a metric, of changes, with the first value and the
/// last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Reallocated,
    ReallocationEvents,
    Pending,
    OfflineUncorrectable,
    ReportedUncorrectable,
    SoftReadErrors,
    EndToEndErrors,
    CommandTimeouts,
    SpinRetries,
    CrcErrors,
    LoggedErrors,
    MediaErrors,
    GrownDefects,
    UncorrectedErrors,
    /// Percent of the designed life that is used.
    WearPercent,
    /// Percent of spare blocks that are left.
    SparePercent,
    Temperature,
    PowerOnHours,
    UnsafeShutdowns,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SmartHistory {
    /// The last answer, and when: it stands while the drive sleeps or does not answer. Completed
    /// with what the drive told before and this answer does not tell (`Report::complete`): it is
    /// this that is judged.
    pub last: Option<(Timestamp, Box<SmartReport>)>,
    /// Since when it has been found asleep each time.
    pub asleep_since: Option<Timestamp>,
    pub series: BTreeMap<Metric, Series>,
}

/// How one value went: the first reading, each change, the last reading. Between two points the
/// earlier one's value stood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Oldest first; at most `MAX_POINTS`.
    pub points: Vec<Point>,
    /// When it last began anew: the counter went back, or what is counted changed. What was before
    /// is no longer compared with.
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

impl Metric {
    /// As it is serialised, on the wire and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Reallocated => "reallocated",
            Metric::ReallocationEvents => "reallocation_events",
            Metric::Pending => "pending",
            Metric::OfflineUncorrectable => "offline_uncorrectable",
            Metric::ReportedUncorrectable => "reported_uncorrectable",
            Metric::SoftReadErrors => "soft_read_errors",
            Metric::EndToEndErrors => "end_to_end_errors",
            Metric::CommandTimeouts => "command_timeouts",
            Metric::SpinRetries => "spin_retries",
            Metric::CrcErrors => "crc_errors",
            Metric::LoggedErrors => "logged_errors",
            Metric::MediaErrors => "media_errors",
            Metric::GrownDefects => "grown_defects",
            Metric::UncorrectedErrors => "uncorrected_errors",
            Metric::WearPercent => "wear_percent",
            Metric::SparePercent => "spare_percent",
            Metric::Temperature => "temperature",
            Metric::PowerOnHours => "power_on_hours",
            Metric::UnsafeShutdowns => "unsafe_shutdowns",
        }
    }

    /// Only ever counts up in one drive: when it is lower than before, it began anew. The others
    /// come and go.
    pub fn is_monotonic(self) -> bool {
        match self {
            Metric::Reallocated
            | Metric::ReallocationEvents
            | Metric::ReportedUncorrectable
            | Metric::SoftReadErrors
            | Metric::EndToEndErrors
            | Metric::CommandTimeouts
            | Metric::SpinRetries
            | Metric::CrcErrors
            | Metric::LoggedErrors
            | Metric::MediaErrors
            | Metric::GrownDefects
            | Metric::UncorrectedErrors
            | Metric::PowerOnHours
            | Metric::UnsafeShutdowns => true,
            // Wear is told by several sources that need not agree to the percent, and not all of
            // them are read each time.
            Metric::Pending
            | Metric::OfflineUncorrectable
            | Metric::WearPercent
            | Metric::SparePercent
            | Metric::Temperature => false,
        }
    }
}

/// The deciding values of one report, by what their names mean for this model. What the drive did
/// not tell is absent.
pub fn metric_values(report: &SmartReport) -> BTreeMap<Metric, u64> {
    metric_values::metric_values(report)
}

impl SmartHistory {
    /// Takes an answer in. Another drive's answer begins a new memory. The same answer again
    /// changes nothing.
    pub fn record(&mut self, report: &SmartReport, at: Timestamp) {
        if self
            .last
            .as_ref()
            .is_some_and(|(_, last)| is_different_drive(&last.identity, &report.identity))
        {
            *self = SmartHistory::default();
        }
        let incomparable = self
            .last
            .as_ref()
            .is_some_and(|(_, last)| is_incomparable(last, report));
        let mut merged = Box::new(report.clone());
        if let Some((_, last)) = &self.last {
            merged.carry_forward(last);
        }
        // Of what was not told there is no reading. What was told in part (one of several counters
        // that are summed up) is read as the whole has it: the other part would seem to have come
        // back with the next answer.
        let told = metric_values(report);
        for (metric, value) in metric_values(&merged)
            .into_iter()
            .filter(|(metric, _)| told.contains_key(metric))
        {
            self.series.entry(metric).or_default().record(
                value,
                at,
                metric.is_monotonic(),
                incomparable,
            );
        }
        self.asleep_since = None;
        self.last = Some((at, merged));
    }
}

impl SmartHistory {
    /// What the store remembered of the same drive comes before what was heard since: at a start,
    /// the store may be slower than a drive.
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
            // What began anew since is not compared with what was before that.
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
        self.asleep_since = newer.asleep_since;
        if let Some((at, mut last)) = newer.last {
            if let Some((_, older)) = &self.last {
                last.carry_forward(older);
            }
            self.last = Some((at, last));
        }
    }
}

/// Known things that differ. A name that one side does not tell is no difference; the world wide
/// name, where both tell it, decides alone: bridges and versions of smartctl write models
/// differently.
fn is_different_drive(before: &Identity, now: &Identity) -> bool {
    let differ =
        |a: &Option<String>, b: &Option<String>| a.as_ref().zip(b.as_ref()).map(|(a, b)| a != b);
    if let Some(differ) = differ(&before.wwn, &now.wwn) {
        return differ;
    }
    differ(&before.serial, &now.serial) == Some(true)
        || differ(&before.model, &now.model) == Some(true)
}

/// Other firmware may count otherwise, and another smartctl or drive database may read the same
/// bytes otherwise: a step between two such readings is no growth. What one of them does not tell
/// is no difference.
fn is_incomparable(before: &SmartReport, now: &SmartReport) -> bool {
    fn differ<T: PartialEq>(before: &Option<T>, now: &Option<T>) -> bool {
        before.is_some() && now.is_some() && before != now
    }
    before.smartctl != now.smartctl
        || differ(&before.identity.firmware, &now.identity.firmware)
        || differ(&before.identity.family, &now.identity.family)
        || differ(&before.identity.in_database, &now.identity.in_database)
}
