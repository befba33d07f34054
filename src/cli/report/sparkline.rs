//! A drive's history as small drawings: a step line each for temperature, latency and the attributes
//! that decide its health.

use crate::render::smart::label_with_unit;
use crate::report::html::Html;
use diskvitals_terminal::screen::Screen;
use diskvitals_wire as wire;

const WIDTH: f64 = 96.0;
const HEIGHT: f64 = 20.0;
/// Maximum number of drawings for a drive: those that changed last first.
const MAX_SERIES: usize = 5;
/// Corners of a line; more cannot be distinguished in its width.
const MAX_CORNERS: usize = 96;
/// They change all the time and decide nothing: drawn besides the others.
const TRENDS: [&str; 2] = ["temperature", "latency"];

pub(super) fn cell(history: Option<&wire::SmartHistory>, screen: &Screen, html: &mut Html) {
    let series = history.map(|it| it.series.as_slice()).unwrap_or_default();
    let (trends, others): (Vec<&wire::SmartSeries>, Vec<_>) =
        series.iter().partition(|it| TRENDS.contains(&it.metric.as_str()));
    // It is in a column of its own.
    let decides = |it: &&&wire::SmartSeries| it.metric != "power_on_hours";
    let mut shown: Vec<&wire::SmartSeries> = others
        .iter()
        .filter(decides)
        .copied()
        .filter(|it| it.points.iter().any(|point| point.value > 0))
        .collect();
    shown.sort_by_key(|it| (!has_changed(it), it.metric.clone()));
    let zero = others.iter().filter(decides).count() - shown.len();
    let is_all_zero = shown.is_empty();
    if series.is_empty() {
        html.text_in("span", &[("class", "faint")], "no history");
        return;
    }
    let hidden = shown.len().saturating_sub(MAX_SERIES);
    for it in trends.into_iter().chain(shown.into_iter().take(MAX_SERIES)) {
        html.element("div", &[("class", "spark")], |html| {
            html.text_in("span", &[], &label_with_unit(&it.metric));
            draw(it, screen, html);
            html.text_in("span", &[("class", "num")], &figures(it));
        });
    }
    let rest = match (hidden, zero) {
        (0, 0) => return,
        (0, zero) if is_all_zero => format!("{zero} of {zero} counters are 0"),
        (0, 1) => "1 other counter is 0".to_owned(),
        (0, zero) => format!("{zero} other counters are 0"),
        (hidden, zero) => format!("{hidden} more, {zero} other counters are 0"),
    };
    html.text_in("span", &[("class", "faint")], &rest);
}

fn has_changed(series: &wire::SmartSeries) -> bool {
    let first = series.points.first().map(|point| point.value);
    series.points.iter().any(|point| Some(point.value) != first)
}

/// `3 → 24`, or `24`; of what goes up and down, `24 to 41`.
fn figures(series: &wire::SmartSeries) -> String {
    if TRENDS.contains(&series.metric.as_str()) {
        let least = series.points.iter().map(|point| point.minimum.unwrap_or(point.value)).min();
        let most = series.points.iter().map(|point| point.value).max();
        return match (least, most) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (_, most) => most.map(|it| it.to_string()).unwrap_or_default(),
        };
    }
    match (series.points.first(), series.points.last()) {
        (Some(first), Some(last)) if has_changed(series) => {
            format!("{} → {}", first.value, last.value)
        }
        (_, Some(last)) => last.value.to_string(),
        _ => String::new(),
    }
}

fn draw(series: &wire::SmartSeries, screen: &Screen, html: &mut Html) {
    let day = |point: Option<&wire::SmartPoint>| {
        let time = point.and_then(|point| point.time.as_ref());
        screen.date_time(time).chars().take(10).collect::<String>()
    };
    let title = format!(
        "{}: {} from {} to {}",
        label_with_unit(&series.metric),
        figures(series),
        day(series.points.first()),
        day(series.points.last())
    );
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    let size = (format!("{WIDTH}"), format!("{HEIGHT}"));
    let attributes = [
        ("class", "line"),
        ("role", "img"),
        ("viewBox", view.as_str()),
        ("width", &size.0),
        ("height", &size.1),
    ];
    html.element("svg", &attributes, |html| {
        html.text_in("title", &[], &title);
        html.element("path", &[("d", &path(&series.points))], |_| {});
    });
}

/// A value holds until the next point.
fn path(points: &[wire::SmartPoint]) -> String {
    let second = |point: &wire::SmartPoint| point.time.as_ref().map_or(0, |time| time.seconds);
    let times = points.iter().map(second);
    let (begin, end) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
    let values = points.iter().map(|point| point.value);
    let (least, most) = (values.clone().min().unwrap_or(0), values.max().unwrap_or(0));
    #[allow(clippy::cast_precision_loss)] // Pixels.
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let x = |point: &wire::SmartPoint| {
        WIDTH * share(second(point).abs_diff(begin), end.abs_diff(begin))
    };
    let y = |value: u64| match most > least {
        true => HEIGHT - 2.0 - (HEIGHT - 4.0) * share(value - least, most - least),
        false => HEIGHT / 2.0,
    };
    let step = points.len().div_ceil(MAX_CORNERS).max(1);
    let mut path = String::new();
    for (n, point) in points.iter().enumerate() {
        // The last point is always one.
        if n % step != 0 && n + 1 != points.len() {
            continue;
        }
        match path.is_empty() {
            true => path.push_str(&format!("M{:.1} {:.1}", x(point), y(point.value))),
            false => path.push_str(&format!("H{:.1}V{:.1}", x(point), y(point.value))),
        }
    }
    if points.len() == 1 || begin == end {
        path.push_str(&format!("H{WIDTH:.1}"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(i64, u64)]) -> Vec<wire::SmartPoint> {
        let point = |(seconds, value): &(i64, u64)| wire::SmartPoint {
            time: Some(prost_types::Timestamp { seconds: *seconds, nanos: 0 }),
            value: *value,
            minimum: None,
            mean: None,
        };
        values.iter().map(point).collect()
    }

    #[test]
    fn a_line_holds_each_value_until_the_next() {
        assert_eq!(path(&points(&[(0, 0), (50, 10), (100, 10)])), "M0.0 18.0H48.0V2.0H96.0V2.0");
        assert_eq!(path(&points(&[(5, 7)])), "M0.0 10.0H96.0");
        assert_eq!(path(&[]), "H96.0");
    }

    #[test]
    fn what_goes_up_and_down_is_shown_by_its_range() {
        let mut points = points(&[(0, 41), (50, 30), (100, 33)]);
        points[0].minimum = Some(24);
        let series =
            |metric: &str| wire::SmartSeries { metric: metric.into(), points: points.clone() };
        assert_eq!(figures(&series("temperature")), "24 to 41");
        assert_eq!(figures(&series("pending")), "41 → 33");
    }

    #[test]
    fn a_long_history_has_no_more_corners_than_pixels_and_ends_with_its_last_value() {
        let many: Vec<(i64, u64)> = (0..5000).map(|n| (n, n as u64)).collect();
        let path = path(&points(&many));
        assert!(path.matches('H').count() <= MAX_CORNERS, "{path}");
        assert!(path.ends_with("H96.0V2.0"), "{path}");
    }
}
