//! Measurements as an SVG: panels with one or more lines each. Readable on a light and on a dark
//! page.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

/// One line of a panel, by its number.
const COLORS: [&str; 3] = ["first", "second", "third"];
const STYLE: &str = "<style>
  .page { fill: #ffffff; } text { fill: #24292f; } .faint { fill: #57606a; } .frame { fill: none; stroke: #d0d7de; }
  .first { color: #0b5fa5; } .second { color: #c4501b; } .third { color: #2d7d46; }
  .line { fill: none; stroke: currentColor; stroke-width: 1.5; } .dot, text.key { fill: currentColor; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } text { fill: #e6edf3; } .faint { fill: #9198a1; } .frame { stroke: #3d444d; }
    .first { color: #58a6ff; } .second { color: #ff9e64; } .third { color: #56d364; } text.key { fill: currentColor; }
  }
</style>";

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 16.0;
/// For the numbers of the vertical axis.
const AXIS: f64 = 52.0;
const TITLE: f64 = 22.0;
const PLOT: f64 = 110.0;
/// For the numbers and the name of the horizontal axis.
const FOOT: f64 = 36.0;
/// Fewer points than this are drawn as dots too.
const DOTS: usize = 30;
/// The width of a character at the size of the keys, generously.
const CHARACTER: f64 = 7.0;

pub struct Panel {
    pub title: String,
    /// The name of the horizontal axis, with its unit.
    pub across: String,
    pub lines: Vec<PlotLine>,
}

pub struct PlotLine {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// `columns`: how many panels are beside each other.
pub fn write(path: &Path, panels: &[Panel], columns: usize) -> anyhow::Result<()> {
    std::fs::write(path, draw(panels, columns))
        .with_context(|| format!("writing {}", path.display()))
}

fn draw(panels: &[Panel], columns: usize) -> String {
    let (width, height) = (WIDTH / columns as f64, TITLE + PLOT + FOOT + MARGIN);
    let whole = height * panels.len().div_ceil(columns) as f64 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" width=\"{WIDTH}\" height=\"{whole}\" font-family=\"sans-serif\" font-size=\"12\">\n{STYLE}\n<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        let (left, top) = (width * (at % columns) as f64, MARGIN + height * (at / columns) as f64);
        // Writing into a string does not fail.
        let _ = writeln!(svg, "<g transform=\"translate({left} {top})\">");
        draw_panel(&mut svg, panel, width);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// At the origin.
fn draw_panel(svg: &mut String, panel: &Panel, width: f64) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let most_across = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
    let most = round_up(points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max));
    let (left, right) = (AXIS, width - MARGIN);
    let (top, bottom) = (TITLE, TITLE + PLOT);
    let place =
        |(x, y): (f64, f64)| (left + (right - left) * x / most_across, bottom - PLOT * y / most);
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"14\" font-weight=\"bold\">{}</text>",
        escape(&panel.title)
    );
    let _ = writeln!(
        svg,
        "<rect class=\"frame\" x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{PLOT}\"/>",
        right - left
    );
    for part in [0.0, 0.5, 1.0] {
        let (x, y) = place((most_across * part, most * part));
        let anchor = match part {
            0.0 => "start",
            1.0 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            svg,
            "<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><text class=\"faint\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            left - 6.0,
            y + 4.0,
            number(most * part),
            bottom + 15.0,
            number(most_across * part)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        bottom + 30.0,
        escape(&panel.across)
    );
    // The keys are at the right of the title, the last one at the edge.
    let mut end = right;
    let is_keyed = panel.lines.len() > 1;
    for (at, line) in panel.lines.iter().enumerate().rev() {
        let color = COLORS[at % COLORS.len()];
        if is_keyed {
            let _ = writeln!(
                svg,
                "<text class=\"key {color}\" x=\"{end}\" y=\"14\" text-anchor=\"end\">{}</text>",
                escape(&line.name)
            );
            end -= CHARACTER * line.name.chars().count() as f64 + MARGIN;
        }
        let places: Vec<(f64, f64)> = line.points.iter().copied().map(place).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline class=\"line {color}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in places.iter().filter(|_| places.len() < DOTS) {
            let _ = writeln!(
                svg,
                "<circle class=\"dot {color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }
}

/// The next number of one digit, or 1.5 or 2.5, times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

/// Without digits that say nothing: 3000, 1.5, 0.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(7.3, 8.0), (0.041, 0.05), (1000.0, 1000.0), (91.0, 100.0)] {
            assert!((round_up(value) - end).abs() < 1e-9, "{value}");
        }
        assert_eq!([0.0, 1.25, 3000.0].map(number), ["0", "1.25", "3000"]);
    }

    #[test]
    fn each_point_is_within_the_frame_of_its_panel() {
        let line =
            PlotLine { name: "a < b".into(), points: vec![(0.0, 0.0), (5.0, 3.0), (10.0, 10.0)] };
        let panel = Panel {
            title: "t".into(),
            across: "x".into(),
            lines: vec![
                line,
                PlotLine { name: "flat".into(), points: vec![(0.0, 1.0), (10.0, 1.0)] },
            ],
        };
        let svg = draw(&[panel], 1);
        let edges = (AXIS, WIDTH - MARGIN, TITLE, TITLE + PLOT);
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert!(
            svg.contains(&format!(
                "points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"",
                edges.0,
                edges.3,
                (edges.0 + edges.1) / 2.0,
                edges.3 - PLOT * 0.3,
                edges.1,
                edges.2
            )),
            "{svg}"
        );
    }
}
