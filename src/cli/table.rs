//! Tables that fit the terminal: less important columns are shortened first, then left out. Pure.

use comfy_table::{
    Attribute, Cell, Color, ColumnConstraint, Row, Table as Layout, TableStyle, Width,
};

use crate::cli::screen::{Screen, Tone, escape_control};

/// Space between columns.
const COLUMN_GAP: u16 = 2;

pub(crate) struct Column {
    pub title: &'static str,
    /// May be cut down to so many characters; 0: never.
    pub min_width: u16,
    /// Left out when there is no room, the highest first; 0: never.
    pub drop_priority: u8,
}

pub(crate) const fn column(title: &'static str, shrink_to: u16, drop: u8) -> Column {
    Column {
        title,
        min_width: shrink_to,
        drop_priority: drop,
    }
}

/// `rows` have one entry for each column. Ends with a newline; empty without rows.
pub(crate) fn table(columns: &[Column], rows: &[Vec<(String, Tone)>], screen: &Screen) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut shown: Vec<usize> = (0..columns.len())
        .filter(|at| {
            rows.iter()
                .any(|row| row.get(*at).is_some_and(|(text, _)| !text.is_empty()))
        })
        .collect();
    loop {
        let layout = layout(columns, rows, &shown, screen);
        let natural = layout.column_max_content_widths();
        let Some(widths) = fit(columns, &shown, &natural, screen.width) else {
            let least = shown
                .iter()
                .enumerate()
                .max_by_key(|(_, at)| columns[**at].drop_priority)
                .map(|(place, _)| place);
            match least {
                Some(place) => drop(shown.remove(place)),
                None => return String::new(),
            }
            continue;
        };
        return write(
            cut(columns, rows, &shown, screen, &natural, &widths),
            &widths,
        );
    }
}

/// Width of each shown column; None: a column should be left out first.
fn fit(
    columns: &[Column],
    shown: &[usize],
    natural: &[u16],
    width: Option<u16>,
) -> Option<Vec<u16>> {
    let mut widths = natural.to_vec();
    let Some(width) = width else {
        return Some(widths);
    };
    let room = width.saturating_sub(
        COLUMN_GAP * u16::try_from(shown.len().saturating_sub(1)).unwrap_or(u16::MAX),
    );
    let mut over = widths
        .iter()
        .map(|width| u32::from(*width))
        .sum::<u32>()
        .saturating_sub(u32::from(room));
    let mut order: Vec<usize> = (0..shown.len())
        .filter(|place| columns[shown[*place]].min_width > 0)
        .collect();
    order.sort_by_key(|place| std::cmp::Reverse(columns[shown[*place]].drop_priority));
    for place in order {
        let least = columns[shown[place]].min_width.min(widths[place]);
        let cut = over.min(u32::from(widths[place] - least));
        widths[place] -= u16::try_from(cut).unwrap_or(0);
        over -= cut;
    }
    let can_drop = shown.iter().any(|at| columns[*at].drop_priority > 0);
    if over > 0 && can_drop {
        None
    } else {
        Some(widths)
    }
}

/// The layout with every text cut to its column. Characters are counted, not cells: what is wider
/// than that, the layout cuts once more.
fn cut(
    columns: &[Column],
    rows: &[Vec<(String, Tone)>],
    shown: &[usize],
    screen: &Screen,
    natural: &[u16],
    widths: &[u16],
) -> Layout {
    if natural == widths {
        return layout(columns, rows, shown, screen);
    }
    let short = |text: &str, width: u16| {
        let (text, width) = (escape_control(text), usize::from(width));
        if text.chars().count() <= width {
            text
        } else {
            text.chars()
                .take(width.saturating_sub(1))
                .chain(['…'])
                .collect()
        }
    };
    let mut rows = rows.to_vec();
    for row in &mut rows {
        for (at, width) in shown.iter().zip(widths) {
            if let Some((text, _)) = row.get_mut(*at) {
                *text = short(text, *width);
            }
        }
    }
    layout(columns, &rows, shown, screen)
}

fn layout(
    columns: &[Column],
    rows: &[Vec<(String, Tone)>],
    shown: &[usize],
    screen: &Screen,
) -> Layout {
    let mut layout = Layout::new();
    layout
        .load_style(TableStyle::new())
        .set_truncation_indicator("…");
    if screen.color {
        layout.enforce_styling();
    } else {
        layout.force_no_tty();
    }
    let titles = shown
        .iter()
        .map(|at| Cell::new(columns[*at].title).add_attribute(Attribute::Bold));
    layout.set_header(Row::from(titles.collect::<Vec<_>>()));
    for row in rows {
        let cells = shown
            .iter()
            .filter_map(|at| row.get(*at))
            .map(|(text, tone)| cell(text, *tone));
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        layout.add_row(row);
    }
    layout
}

fn write(mut layout: Layout, widths: &[u16]) -> String {
    for (column, width) in layout.column_iter_mut().zip(widths) {
        column.set_padding((0, COLUMN_GAP));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + COLUMN_GAP)));
    }
    let mut text = String::new();
    for line in layout.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cell(text: &str, tone: Tone) -> Cell {
    let cell = Cell::new(escape_control(text));
    match tone {
        Tone::Plain => cell,
        Tone::Strong => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::Green),
        Tone::Warning => cell.fg(Color::Yellow),
        Tone::Critical => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        Tone::Faint => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::screen::tests::screen;

    const COLUMNS: [Column; 3] = [
        column("NAME", 0, 0),
        column("MESSAGE", 8, 1),
        column("EXTRA", 0, 2),
    ];

    fn rows() -> Vec<Vec<(String, Tone)>> {
        vec![vec![
            ("sda".to_owned(), Tone::Plain),
            ("a rather long message".to_owned(), Tone::Plain),
            ("extra".to_owned(), Tone::Plain),
        ]]
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        insta::assert_snapshot!(table(&COLUMNS, &rows(), &screen(None)), @"
        NAME  MESSAGE                EXTRA
        sda   a rather long message  extra
        ");
    }

    #[test]
    fn the_long_column_is_cut_and_then_the_least_important_is_left_out() {
        insta::assert_snapshot!(table(&COLUMNS, &rows(), &screen(Some(24))), @r#"
        NAME  MESSAGE      EXTRA
        sda   a rather l…  extra
        "#);
        insta::assert_snapshot!(table(&COLUMNS, &rows(), &screen(Some(16))), @r#"
        NAME  MESSAGE
        sda   a rather …
        "#);
        for width in 1..60 {
            let text = table(&COLUMNS, &rows(), &screen(Some(width)));
            assert!(
                width < 14
                    || text
                        .lines()
                        .all(|line| line.chars().count() <= usize::from(width)),
                "{width}: {text}"
            );
        }
    }
}
