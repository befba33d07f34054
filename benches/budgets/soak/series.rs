//! The samples of one daemon, and the straight line through them.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::figures::Figures;
use crate::picture::{Panel, PlotLine};
use crate::straight_line;

/// The share of the run that is warm-up: caches and pools fill, and histories reach their bounds.
const WARM_UP: f64 = 0.3;
const MIN_SAMPLES: usize = 10;

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub seconds: f64,
    pub resident_mib: f64,
    pub anonymous_mib: f64,
    pub descriptors: f64,
    pub threads: f64,
    /// The daemon and its workers.
    pub processes: f64,
    pub database_mib: f64,
    pub get_volume_ms: f64,
    pub scrape_ms: f64,
}

/// A name and its value in a sample.
type Column = (&'static str, fn(&Sample) -> f64);

/// The columns after the time, as in the CSV and in the picture.
pub const COLUMNS: [Column; 8] = [
    ("resident_mib", |sample| sample.resident_mib),
    ("anonymous_mib", |sample| sample.anonymous_mib),
    ("descriptors", |sample| sample.descriptors),
    ("threads", |sample| sample.threads),
    ("processes", |sample| sample.processes),
    ("database_mib", |sample| sample.database_mib),
    ("get_volume_ms", |sample| sample.get_volume_ms),
    ("scrape_ms", |sample| sample.scrape_ms),
];

pub struct Series {
    pub name: &'static str,
    pub samples: Vec<Sample>,
}

/// A line fitted by least squares to the samples after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub per_hour: f64,
    /// How long the samples are that it rests on.
    pub hours: f64,
}

impl Series {
    pub fn new(name: &'static str) -> Series {
        Series { name, samples: Vec::new() }
    }

    fn after_warm_up(&self) -> &[Sample] {
        let end = self.samples.last().map_or(0.0, |last| last.seconds);
        let from = self.samples.partition_point(|sample| sample.seconds < end * WARM_UP);
        &self.samples[from..]
    }

    /// None: too few samples.
    pub fn fit(&self, of: impl Fn(&Sample) -> f64) -> Option<Fit> {
        let samples = self.after_warm_up();
        let (first, last) = (samples.first()?, samples.last()?);
        if samples.len() < MIN_SAMPLES {
            return None;
        }
        let hours = |sample: &Sample| sample.seconds / 3600.0;
        let points: Vec<(f64, f64)> =
            samples.iter().map(|sample| (hours(sample), of(sample))).collect();
        Some(Fit { per_hour: straight_line::slope(&points)?, hours: hours(last) - hours(first) })
    }

    /// The line of one column in a picture.
    fn plot_line(&self, of: impl Fn(&Sample) -> f64) -> PlotLine {
        let point = |sample: &Sample| (sample.seconds / 3600.0, of(sample));
        PlotLine { name: self.name.to_owned(), points: self.samples.iter().map(point).collect() }
    }

    /// The figures without a limit: the mean, and the worst latencies.
    pub fn print(&self, figures: &Figures) {
        let samples = self.after_warm_up();
        for (name, of) in COLUMNS {
            let mean = samples.iter().map(of).sum::<f64>() / samples.len() as f64;
            let most = samples.iter().map(of).fold(f64::MIN, f64::max);
            figures
                .remark(&format!("{}: {name} {mean:.2} on average, {most:.2} at most", self.name));
        }
    }
}

pub fn write_csv(path: &Path, series: &[Series]) -> anyhow::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = format!("daemon,seconds,{}\n", names.join(","));
    for daemon in series {
        for sample in &daemon.samples {
            // Writing into a string does not fail.
            let _ = write!(text, "{},{:.1}", daemon.name, sample.seconds);
            for (_, of) in COLUMNS {
                let _ = write!(text, ",{:.3}", of(sample));
            }
            text.push('\n');
        }
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// A panel for each column, a line for each daemon.
pub fn panels(series: &[Series]) -> Vec<Panel> {
    COLUMNS
        .iter()
        .map(|(name, of)| Panel {
            title: (*name).to_owned(),
            across: "hours".to_owned(),
            lines: series.iter().map(|daemon| daemon.plot_line(of)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(of: impl Fn(f64) -> f64) -> Series {
        let sample = |number: u32| {
            let seconds = f64::from(number) * 10.0;
            Sample {
                seconds,
                resident_mib: of(seconds),
                anonymous_mib: 0.0,
                descriptors: 0.0,
                threads: 0.0,
                processes: 0.0,
                database_mib: 0.0,
                get_volume_ms: 0.0,
                scrape_ms: 0.0,
            }
        };
        Series { name: "x", samples: (0..=360).map(sample).collect() }
    }

    #[test]
    fn a_leak_has_its_slope_and_the_warm_up_does_not_count() {
        let leak = series(|seconds| 20.0 + 6.0 * seconds / 3600.0);
        let fit = leak.fit(|sample| sample.resident_mib).expect("samples");
        assert!((fit.per_hour - 6.0).abs() < 1e-9 && (fit.hours - 0.7).abs() < 1e-9);
        let steady = series(|seconds| if seconds < 1000.0 { seconds } else { 1000.0 });
        let fit = steady.fit(|sample| sample.resident_mib).expect("samples");
        assert!(fit.per_hour.abs() < 1e-9, "{fit:?}");
        assert_eq!(Series::new("x").fit(|sample| sample.threads), None);
    }
}
