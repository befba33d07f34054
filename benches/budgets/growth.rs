//! How the daemon grows with what it monitors and with its clients: memory and time over the number
//! of drives, volumes, cleared findings and watchers.
//!
//! Out: the slope of a straight line through each curve, whether it bends upwards, and the curves as
//! a picture.

mod clients;
mod hosts;

use std::path::Path;

use anyhow::Context;

use crate::daemon::{Daemon, Program};
use crate::figures::{Figures, Goal};
use crate::picture::{self, Panel, PlotLine};
use crate::process;
use crate::straight_line::slope;

/// Growth of less than this share of the first point is no growth: a slope of it is noise.
const FLAT: f64 = 0.05;

struct Point {
    /// The number of drives, or of what the curve is over.
    size: usize,
    resident_mib: f64,
    anonymous_mib: f64,
    /// In milliseconds.
    time: f64,
}

impl Point {
    fn measure(daemon: &Daemon, size: usize, time: f64) -> anyhow::Result<Point> {
        let (resident_mib, anonymous_mib) = process::resident(daemon.pid())?;
        Ok(Point { size, resident_mib, anonymous_mib, time })
    }
}

/// What is the same for all points of a curve.
struct Subject {
    name: &'static str,
    one: &'static str,
    /// What the time is.
    time: &'static str,
    /// The largest slope of the anonymous memory, in KiB.
    limit: f64,
}

/// Between a straight line and a square: the first points may lie in memory that the heap has free
/// after the start.
const LARGEST_BEND: f64 = 1.4;

const DRIVES: Subject = Subject {
    name: "drives",
    one: "drive",
    time: "processor time of a round of SMART queries",
    limit: 64.0,
};
const VOLUMES: Subject = Subject {
    name: "volumes",
    one: "volume",
    time: "processor time of a probe round",
    limit: 32.0,
};
const FINDINGS: Subject =
    Subject { name: "cleared findings", one: "finding", time: "start until settled", limit: 2.0 };
const WATCHERS: Subject = Subject {
    name: "watchers",
    one: "watcher",
    time: "until the last watcher has an event",
    limit: 256.0,
};

pub async fn measure(
    program: &Program,
    figures: &mut Figures,
    picture: Option<&Path>,
) -> anyhow::Result<()> {
    let mut panels = Vec::new();
    for subject in [DRIVES, VOLUMES, FINDINGS, WATCHERS] {
        let measured = match subject.name {
            "drives" => hosts::over_drives(program).await,
            "volumes" => hosts::over_volumes(program).await,
            "cleared findings" => hosts::over_findings(program).await,
            _ => clients::over_watchers(program).await,
        };
        match measured.and_then(|points| print(&subject, &points, figures).map(|()| points)) {
            Ok(points) => panels.extend(subject.panels(&points)),
            Err(error) => figures.not_measured(&format!("growth_{}", subject.id()), &error),
        }
    }
    if let Some(path) = picture {
        picture::write(path, &panels, 2)?;
        figures.remark(&path.display().to_string());
    }
    Ok(())
}

fn print(subject: &Subject, points: &[Point], figures: &mut Figures) -> anyhow::Result<()> {
    for point in points {
        figures.remark(&format!(
            "{} {}: resident {:.1} MiB, anonymous {:.1} MiB, {} {:.2} ms",
            point.size,
            subject.name,
            point.resident_mib,
            point.anonymous_mib,
            subject.time,
            point.time
        ));
    }
    let name = format!("growth_{}", subject.id());
    let memory = curve(points, |point| point.anonymous_mib * 1024.0);
    let per_one = slope(&memory).context("one size only")?;
    figures.add(
        &format!("{name}_memory"),
        per_one,
        &format!("KiB_per_{}", subject.one),
        Goal::AtMost(subject.limit),
    );
    print_bend(&format!("{name}_memory_bend"), &memory, figures);
    let time = curve(points, |point| point.time * 1e3);
    let per_one = slope(&time).context("one size only")?;
    figures.figure_without_goal(
        &format!("{name}_time"),
        per_one,
        &format!("us_per_{}", subject.one),
    );
    match bend(&time) {
        Some(bend) => figures.figure_without_goal(&format!("{name}_time_bend"), bend, "times"),
        None => figures.remark(&format!("{name}_time does not grow")),
    }
    Ok(())
}

fn print_bend(name: &str, points: &[(f64, f64)], figures: &mut Figures) {
    match bend(points) {
        Some(bend) => figures.add(name, bend, "times", Goal::AtMost(LARGEST_BEND)),
        None => figures.remark(&format!("{name}: it does not grow")),
    }
}

fn curve(points: &[Point], of: impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let point = |point: &Point| (point.size as f64, of(point));
    points.iter().map(point).collect()
}

/// How many times as steep the second half is as the whole: one for a straight line, 1.5 for a
/// square, less than one for a curve that flattens. `None`: there is no growth.
fn bend(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let whole = slope(points)?;
    if last.1 - first.1 < first.1 * FLAT || whole <= 0.0 {
        return None;
    }
    Some(slope(&points[points.len() / 2..])? / whole)
}

impl Subject {
    fn id(&self) -> String {
        self.name.replace(' ', "_")
    }

    fn panels(&self, points: &[Point]) -> [Panel; 2] {
        let line = |name: &str, of: fn(&Point) -> f64| PlotLine {
            name: name.to_owned(),
            points: curve(points, of),
        };
        let panel = |title: String, lines| Panel { title, across: self.name.to_owned(), lines };
        [
            panel(
                "memory, MiB".to_owned(),
                vec![
                    line("resident", |point| point.resident_mib),
                    line("anonymous", |point| point.anonymous_mib),
                ],
            ),
            panel(format!("{}, ms", self.time), vec![line("time", |point| point.time)]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let point = |number: u32| (f64::from(number), of(f64::from(number)));
        [0, 10, 20, 30, 40].map(point).to_vec()
    }

    #[test]
    fn a_straight_line_does_not_bend_and_a_square_does() {
        let straight = bend(&sizes(|size| 5.0 + 3.0 * size)).expect("growth");
        assert!((straight - 1.0).abs() < 1e-9, "{straight}");
        let square = bend(&sizes(|size| 5.0 + size * size)).expect("growth");
        assert!((square - 1.5).abs() < 1e-9, "{square}");
        let root = bend(&sizes(|size| 5.0 + size.sqrt())).expect("growth");
        assert!(root < 0.8, "{root}");
        assert_eq!(bend(&sizes(|_| 5.0)), None);
        assert_eq!(bend(&sizes(|size| 100.0 + size * 0.1)), None);
    }

    #[test]
    fn a_curve_that_bends_upwards_misses_its_goal() {
        let mut figures = Figures::default();
        print_bend("straight", &sizes(|size| 1.0 + size), &mut figures);
        assert_eq!(figures.short(), 0);
        print_bend("square", &sizes(|size| 1.0 + size * size), &mut figures);
        assert_eq!(figures.short(), 1);
    }
}
