//! The samples as an SVG: a panel for each column, a line for each daemon.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::soak::series::{COLUMNS, Sample, Series};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 120.0;
const LEFT: f64 = 130.0;
const MARGIN: f64 = 20.0;
const COLORS: [&str; 2] = ["#0b5fa5", "#c4501b"];

pub fn write(path: &Path, series: &[Series]) -> anyhow::Result<()> {
    std::fs::write(path, draw(series)).with_context(|| format!("writing {}", path.display()))
}

fn draw(series: &[Series]) -> String {
    let height = PANEL * COLUMNS.len() as f64 + 3.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let samples = || series.iter().flat_map(|daemon| &daemon.samples);
    let end = samples().map(|sample| sample.seconds).fold(1.0, f64::max);
    for (at, daemon) in series.iter().enumerate() {
        let x = LEFT + 160.0 * at as f64;
        let color = COLORS[at % COLORS.len()];
        // Writing into a string does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"15\" fill=\"{color}\">{}</text>",
            daemon.name
        );
    }
    for (at, (name, of)) in COLUMNS.iter().enumerate() {
        let top = 2.0 * MARGIN + PANEL * at as f64;
        let most = samples().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let _ = writeln!(
            svg,
            "<text x=\"5\" y=\"{}\">{name}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"gray\">{most:.1}</text><rect x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#ccc\"/>",
            top + PANEL / 2.0,
            LEFT - 5.0,
            top + 12.0,
            WIDTH - LEFT - MARGIN,
            PANEL - MARGIN,
        );
        for (at, daemon) in series.iter().enumerate() {
            let point = |sample: &Sample| {
                let x = LEFT + (WIDTH - LEFT - MARGIN) * sample.seconds / end;
                let y = top + (PANEL - MARGIN) * (1.0 - of(sample) / most);
                format!("{x:.1},{y:.1}")
            };
            let points: Vec<String> = daemon.samples.iter().map(point).collect();
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{}\" points=\"{}\"/>",
                COLORS[at % COLORS.len()],
                points.join(" ")
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"gray\">{:.2} h</text></svg>",
        WIDTH - MARGIN,
        height - 5.0,
        end / 3600.0
    );
    svg
}
