//! The numbers behind a cause: counters of drives with their growth and the fill of volumes.

use jiff::{SignedDuration, Timestamp};

use crate::probe::used_share;
use crate::snapshot::{Snapshot, VolumeUsage};
use diskvitals_finding::reason::Figure;
use diskvitals_finding::{Finding, Subject};
use diskvitals_smart::history::{Metric, Series};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The figure of a finding, and the growth of its counter within a day of the last reading. Growth is
/// unknown (0) if that reading is older than a day.
pub(super) fn of_finding(snapshot: &Snapshot, finding: &Finding, now: Timestamp) -> (String, u64) {
    match &finding.subject {
        Subject::Drive(id) => {
            let smart = snapshot.drives.get(id).and_then(|it| it.smart.as_ref());
            let series = smart.map(|smart| &smart.history.series);
            let (metrics, unit) = finding.reason.figure().map(metrics).unwrap_or_default();
            let largest = metrics
                .iter()
                .filter_map(|metric| {
                    let series = series?.get(metric)?;
                    Some((series.points.last()?.value, series))
                })
                .filter(|(value, _)| *value > 0)
                .max_by_key(|(value, _)| *value);
            match largest {
                Some((value, series)) if unit.is_empty() => {
                    (value.to_string(), grown_today(series, now))
                }
                Some((value, _)) => (format!("{value}{unit}"), 0),
                None => (String::new(), 0),
            }
        }
        Subject::Volume(id) => {
            let volume = snapshot.volumes.get(id);
            // A btrfs is not judged by statfs, of which these figures are.
            let is_btrfs =
                volume.is_some_and(|volume| volume.facts.fs_type.as_deref() == Some("btrfs"));
            let usage = volume.filter(|_| !is_btrfs).map(|volume| volume.usage);
            let fill = finding.reason.figure().and_then(|figure| fill(usage, figure));
            (fill.unwrap_or_default(), 0)
        }
        Subject::Device(_) | Subject::Source(_) => (String::new(), 0),
    }
}

/// The metrics of a drive, and their unit; counters have none.
pub(crate) fn metrics(figure: Figure) -> (&'static [Metric], &'static str) {
    match figure {
        Figure::Pending => (&[Metric::Pending, Metric::OfflineUncorrectable], ""),
        Figure::Reallocated => (&[Metric::Reallocated, Metric::GrownDefects], ""),
        Figure::Uncorrectable => {
            (&[Metric::ReportedUncorrectable, Metric::MediaErrors, Metric::UncorrectedErrors], "")
        }
        Figure::LinkErrors => (&[Metric::CrcErrors], ""),
        Figure::WearPercent => (&[Metric::WearPercent], " % used"),
        Figure::Spare => (&[Metric::SparePercent], " % left"),
        Figure::Temperature => (&[Metric::Temperature], " °C"),
        Figure::Space | Figure::Inodes => (&[], ""),
    }
}

fn grown_today(series: &Series, now: Timestamp) -> u64 {
    let Some(last) = series.points.last() else {
        return 0;
    };
    match now.duration_since(last.at) < DAY {
        true => series.growth(DAY).map_or(0, |growth| growth.by),
        false => 0,
    }
}

fn fill(usage: Option<VolumeUsage>, figure: Figure) -> Option<String> {
    let Some(VolumeUsage::Mounted { usage, .. }) = usage else {
        return None;
    };
    let (used, available) = match figure {
        Figure::Space => (usage.used_bytes, usage.available_bytes),
        Figure::Inodes => (usage.used_inodes, usage.available_inodes),
        Figure::Pending
        | Figure::Reallocated
        | Figure::Uncorrectable
        | Figure::LinkErrors
        | Figure::WearPercent
        | Figure::Spare
        | Figure::Temperature => return None,
    };
    used_share(used, available)
}
