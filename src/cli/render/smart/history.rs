//! The history of a drive: temperature, latency and the attributes that decide its health, one
//! sparkline each.

use crate::render::smart::label_with_unit;
use diskvitals_terminal::layout::heading;
use diskvitals_terminal::screen::{Screen, Tone, escape_control};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table};
use diskvitals_wire as wire;

const WIDTH: usize = 24;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub fn text(history: &wire::SmartHistory, screen: &Screen) -> String {
    let columns: [Column<Line>; 8] = [
        column("VALUE", 0, 0, |it, _| strong(label_with_unit(&it.series.metric))),
        column("HISTORY", 0, 0, |it, _| plain(sparkline(&it.series.points))),
        column("FIRST", 0, 3, |it, _| plain(it.first.value)),
        column("LAST", 0, 0, |it, _| strong(it.last.value)),
        column("MIN", 0, 5, |it, _| plain(it.min)),
        column("MAX", 0, 4, |it, _| plain(it.max)),
        column("FROM", 0, 1, |it, screen| minute(it.first, screen)),
        column("TO", 0, 2, |it, screen| minute(it.last, screen)),
    ];
    let rows: Vec<Line> = history.series.iter().filter_map(Line::new).collect();
    let title = heading(&format!("history of {}", escape_control(&history.drive_id)), screen);
    if rows.is_empty() {
        return format!(
            "{title}no history: SMART is not read, or the drive has reported no attribute that decides its health\n"
        );
    }
    format!("{title}{}", table(&columns, &rows, screen))
}

/// The values of a series that has any.
struct Line<'a> {
    series: &'a wire::SmartSeries,
    first: &'a wire::SmartPoint,
    last: &'a wire::SmartPoint,
    min: u64,
    max: u64,
}

impl Line<'_> {
    fn new(series: &wire::SmartSeries) -> Option<Line<'_>> {
        let points = &series.points;
        let values = || points.iter().map(|point| point.value);
        let least = points.iter().map(|point| point.minimum.unwrap_or(point.value));
        let (min, max) = (least.min()?, values().max()?);
        Some(Line { series, first: points.first()?, last: points.last()?, min, max })
    }
}

fn minute(point: &wire::SmartPoint, screen: &Screen) -> Cell {
    (screen.date_time(point.time.as_ref()).chars().take(16).collect(), Tone::Faint)
}

/// One block for each equal part of the time from the first to the last point. A value holds until
/// the next point. Each part shows its greatest value, also if the value rose and fell within it.
fn sparkline(points: &[wire::SmartPoint]) -> String {
    let second = |point: &wire::SmartPoint| point.time.as_ref().map_or(0, |time| time.seconds);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return String::new();
    };
    let values = || points.iter().map(|point| point.value);
    let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let (begin, length) = (second(first), second(last).saturating_sub(second(first)).max(0));
    let block = |value: u64| {
        let range = u128::from(most - least).max(1);
        let step = u128::from(value.saturating_sub(least)) * (BLOCKS.len() as u128 - 1) / range;
        // Any value above the minimum is visibly higher.
        let step = if value > least { step.max(1) } else { step };
        usize::try_from(step).ok().and_then(|step| BLOCKS.get(step)).copied().unwrap_or('█')
    };
    let parts = if length == 0 { 1 } else { WIDTH };
    let mut line = String::new();
    for part in 0..parts {
        let edge = |part: usize| {
            begin.saturating_add((i128::from(length) * part as i128 / parts as i128) as i64)
        };
        let (from, to) = (edge(part), edge(part + 1));
        let standing =
            points.iter().take_while(|point| second(point) <= from).last().map(|point| point.value);
        let within = points
            .iter()
            .filter(|point| second(point) > from && second(point) <= to)
            .map(|point| point.value)
            .max();
        let value = standing.into_iter().chain(within).max();
        line.push(block(value.unwrap_or(first.value)));
    }
    // The last block is the last reading, also if the value fell.
    line.pop();
    line.push(block(last.value));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(i64, u64)]) -> Vec<wire::SmartPoint> {
        let point = |(at, value): &(i64, u64)| wire::SmartPoint {
            time: Some(prost_types::Timestamp { seconds: *at, nanos: 0 }),
            value: *value,
            minimum: None,
            mean: None,
        };
        values.iter().map(point).collect()
    }

    #[test]
    fn a_steady_value_is_a_low_line_and_a_single_reading_one_block() {
        assert_eq!(sparkline(&points(&[(0, 4), (24_000, 4)])), "▁".repeat(24));
        assert_eq!(sparkline(&points(&[(5, 4)])), "▁");
        assert_eq!(sparkline(&[]), "");
    }

    #[test]
    fn a_value_lasts_until_the_next_point() {
        assert_eq!(
            sparkline(&points(&[(0, 0), (12_000, 7), (24_000, 7)])),
            format!("{}{}", "▁".repeat(11), "█".repeat(13))
        );
        let fell = sparkline(&points(&[(0, 100), (24_000, 10)]));
        assert!(fell.starts_with("██") && fell.ends_with('▁'), "{fell}");
    }

    #[test]
    fn a_small_rise_beside_a_great_one_is_seen() {
        let line =
            sparkline(&points(&[(0, 0), (8_000, 1), (16_000, u64::MAX), (24_000, u64::MAX)]));
        assert!(line.contains('▂') && line.ends_with('█'), "{line}");
    }
}
