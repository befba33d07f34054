//! Tables that fit the terminal: less important columns are shortened first, then left out; where the
//! important ones do not fit either, each row takes several lines. Pure.

use comfy_table::{
    Attribute, Cell as Text, Color, ColumnConstraint, Row, Table as Layout, TableStyle, Width,
};

use crate::screen::{Screen, Tone, escape_control};
use crate::width::columns as columns_of;
use crate::width::shortened;

/// Space between columns.
const COLUMN_GAP: u16 = 2;

/// A title, and the cell below it of each row.
pub struct Column<T> {
    fit: Fit,
    /// The column is only in a wide table.
    only_wide: bool,
    cell: fn(&T, &Screen) -> Cell,
}

#[derive(Clone, Copy)]
struct Fit {
    title: &'static str,
    /// The column may be cut to this many columns of the terminal; 0: never.
    min_width: u16,
    /// Columns are left out when space is missing, the highest value first; 0: never.
    drop_priority: u8,
}

pub const fn column<T>(
    title: &'static str,
    min_width: u16,
    drop_priority: u8,
    cell: fn(&T, &Screen) -> Cell,
) -> Column<T> {
    Column { fit: Fit { title, min_width, drop_priority }, only_wide: false, cell }
}

pub const fn wide_column<T>(title: &'static str, cell: fn(&T, &Screen) -> Cell) -> Column<T> {
    Column { fit: Fit { title, min_width: 0, drop_priority: 0 }, only_wide: true, cell }
}

pub type Cell = (String, Tone);

pub fn toned((text, tone): (impl ToString, Tone)) -> Cell {
    (text.to_string(), tone)
}

pub fn plain(text: impl ToString) -> Cell {
    toned((text, Tone::Plain))
}

pub fn strong(text: impl ToString) -> Cell {
    toned((text, Tone::Strong))
}

/// Ends with a newline; empty without rows.
pub fn table<'a, T: 'a>(
    columns: &[Column<T>],
    rows: impl IntoIterator<Item = &'a T>,
    screen: &Screen,
) -> String {
    table_rows(columns, rows, screen).concat()
}

/// All columns, however wide the screen is.
pub fn wide_table<'a, T: 'a>(
    columns: &[Column<T>],
    rows: impl IntoIterator<Item = &'a T>,
    screen: &Screen,
) -> String {
    let unlimited = Screen { width: None, ..screen.clone() };
    rows_of(columns.iter(), rows, &unlimited).concat()
}

/// The title, then one text for each row, each ending with a newline. Where the columns that are never
/// left out do not fit, a row takes several lines, and there is no title.
pub fn table_rows<'a, T: 'a>(
    columns: &[Column<T>],
    rows: impl IntoIterator<Item = &'a T>,
    screen: &Screen,
) -> Vec<String> {
    rows_of(columns.iter().filter(|it| !it.only_wide), rows, screen)
}

fn rows_of<'a, 'b, T: 'a + 'b>(
    columns: impl Iterator<Item = &'b Column<T>> + Clone,
    rows: impl IntoIterator<Item = &'a T>,
    screen: &Screen,
) -> Vec<String> {
    let cells = |row| columns.clone().map(|it| (it.cell)(row, screen)).collect();
    let rows: Vec<Cells> = rows.into_iter().map(cells).collect();
    let columns: Vec<Fit> = columns.clone().map(|it| it.fit).collect();
    fitted(&columns, &rows, screen)
}

/// One for each column.
type Cells = Vec<Cell>;

fn fitted(columns: &[Fit], rows: &[Cells], screen: &Screen) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let all: Vec<usize> =
        (0..columns.len()).filter(|at| rows.iter().any(|row| !row[*at].0.is_empty())).collect();
    let mut shown = all.clone();
    loop {
        let layout = layout(columns, rows, &shown, screen);
        let natural = layout.column_max_content_widths();
        if let Some(widths) = fit(columns, &shown, &natural, screen.width) {
            let layout = cut(columns, rows, &shown, screen, &natural, &widths);
            return write(layout, &widths);
        }
        let droppable = (0..shown.len()).filter(|at| columns[shown[*at]].drop_priority > 0);
        match droppable.max_by_key(|at| columns[shown[*at]].drop_priority) {
            Some(at) => drop(shown.remove(at)),
            None => return stacked(columns, rows, &all, screen),
        }
    }
}

/// A serial number is not cut, however narrow the screen is.
const MIN_CELL: usize = 24;

/// Each row as `FIRST  SECOND`, and below it the other cells behind their titles, every column.
fn stacked(columns: &[Fit], rows: &[Cells], shown: &[usize], screen: &Screen) -> Vec<String> {
    let limit = screen.width.map_or(usize::MAX, usize::from);
    let mut texts = vec![String::new()];
    for row in rows {
        let (mut text, mut used) = (String::new(), 0);
        for (n, at) in shown.iter().enumerate() {
            let (cell, tone) = &row[*at];
            if cell.is_empty() {
                continue;
            }
            let title = match n {
                0 | 1 => String::new(),
                _ => format!("{} ", columns[*at].title.to_lowercase()),
            };
            let room = limit.saturating_sub(title.len() + 2).max(MIN_CELL);
            let cell = shortened(cell, room);
            let length = title.len() + columns_of(&cell);
            if used > 0 && (n == 2 || used + 2 + length > limit) {
                text.push_str("\n  ");
                used = 2;
            } else if used > 0 {
                text.push_str("  ");
                used += 2;
            }
            text.push_str(&title);
            text.push_str(&screen.paint(*tone, cell));
            used += length;
        }
        texts.push(text + "\n");
    }
    texts
}

/// Width of each shown column; None: a column must be left out first, or no column may be.
fn fit(columns: &[Fit], shown: &[usize], natural: &[u16], width: Option<u16>) -> Option<Vec<u16>> {
    let mut widths = natural.to_vec();
    let Some(width) = width else {
        return Some(widths);
    };
    let room = width.saturating_sub(
        COLUMN_GAP * u16::try_from(shown.len().saturating_sub(1)).unwrap_or(u16::MAX),
    );
    let mut over =
        widths.iter().map(|width| u32::from(*width)).sum::<u32>().saturating_sub(u32::from(room));
    let mut order: Vec<usize> =
        (0..shown.len()).filter(|at| columns[shown[*at]].min_width > 0).collect();
    order.sort_by_key(|at| std::cmp::Reverse(columns[shown[*at]].drop_priority));
    for at in order {
        let least = columns[shown[at]].min_width.min(widths[at]);
        let cut = over.min(u32::from(widths[at] - least));
        widths[at] -= u16::try_from(cut).unwrap_or(0);
        over -= cut;
    }
    (over == 0).then_some(widths)
}

/// The layout with every text cut to its column.
fn cut(
    columns: &[Fit],
    rows: &[Cells],
    shown: &[usize],
    screen: &Screen,
    natural: &[u16],
    widths: &[u16],
) -> Layout {
    if natural == widths {
        return layout(columns, rows, shown, screen);
    }
    let mut rows = rows.to_vec();
    for row in &mut rows {
        for (at, width) in shown.iter().zip(widths) {
            row[*at].0 = shortened(&row[*at].0, usize::from(*width));
        }
    }
    layout(columns, &rows, shown, screen)
}

fn layout(columns: &[Fit], rows: &[Cells], shown: &[usize], screen: &Screen) -> Layout {
    let mut layout = Layout::new();
    layout.load_style(TableStyle::new()).set_truncation_indicator("…");
    if screen.color {
        layout.enforce_styling();
    } else {
        layout.force_no_tty();
    }
    let title = |at: &usize| Text::new(columns[*at].title).add_attribute(Attribute::Bold);
    layout.set_header(shown.iter().map(title));
    for row in rows {
        let mut row = Row::from(shown.iter().map(|at| painted(&row[*at])));
        row.max_height(1);
        layout.add_row(row);
    }
    layout
}

fn write(mut layout: Layout, widths: &[u16]) -> Vec<String> {
    for (at, (column, width)) in layout.column_iter_mut().zip(widths).enumerate() {
        // Behind the last one, colored spaces would make a line wider than the terminal.
        let gap = if at + 1 < widths.len() { COLUMN_GAP } else { 0 };
        column.set_padding((0, gap));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + gap)));
    }
    let lines = layout.lines();
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn painted((text, tone): &Cell) -> Text {
    let cell = Text::new(escape_control(text));
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
    use crate::fixture::screen;

    const COLUMNS: [Column<[&str; 3]>; 3] = [
        column("NAME", 0, 0, |it, _| plain(it[0])),
        column("MESSAGE", 8, 1, |it, _| plain(it[1])),
        column("EXTRA", 0, 2, |it, _| plain(it[2])),
    ];
    const ROW: [&str; 3] = ["sda", "a rather long message", "extra"];

    /// The first four are never left out.
    const MANY: [Column<&str>; 5] = [
        column("NAME", 0, 0, |it, _| plain(it)),
        column("HEALTH", 0, 0, |_, _| plain("GOOD")),
        column("SERIAL", 0, 0, |_, _| plain("PHYF8421007W960CGN")),
        column("HOURS", 0, 0, |_, _| plain("31207")),
        column("ID", 8, 1, |_, _| plain("naa.5000c500a1d00001")),
    ];

    #[test]
    fn only_a_wide_table_has_all_columns_and_no_limit() {
        let columns =
            [column("A", 1, 1, |it: &&str, _| plain(it)), wide_column("B", |_, _| plain("b"))];
        assert_eq!(table(&columns, &["long"], &screen(Some(3))), "A\nlo…\n");
        assert_eq!(wide_table(&columns, &["long"], &screen(Some(3))), "A     B\nlong  b\n");
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        insta::assert_snapshot!(table(&COLUMNS, &[ROW], &screen(None)), @"
        NAME  MESSAGE                EXTRA
        sda   a rather long message  extra
        ");
    }

    #[test]
    fn a_table_with_colors_is_not_wider_than_the_terminal() {
        let mut screen = screen(Some(24));
        screen.color = true;
        for line in table(&COLUMNS, &[ROW], &screen).lines() {
            assert_eq!(crate::width::clipped(line, 24), line);
        }
    }

    #[test]
    fn the_long_column_is_cut_and_then_the_least_important_is_left_out() {
        insta::assert_snapshot!(table(&COLUMNS, &[ROW], &screen(Some(24))), @r#"
        NAME  MESSAGE      EXTRA
        sda   a rather l…  extra
        "#);
        insta::assert_snapshot!(table(&COLUMNS, &[ROW], &screen(Some(16))), @r#"
        NAME  MESSAGE
        sda   a rather…
        "#);
        insta::assert_snapshot!(table(&MANY, &["sda", "sdb"], &screen(Some(24))), @r#"
        sda  GOOD
          serial PHYF8421007W960CGN
          hours 31207
          id naa.5000c500a1d00001
        sdb  GOOD
          serial PHYF8421007W960CGN
          hours 31207
          id naa.5000c500a1d00001
        "#);
        for width in 1..60 {
            let text = table(&COLUMNS, &[ROW], &screen(Some(width)));
            assert!(
                width < 14 || text.lines().all(|line| line.chars().count() <= usize::from(width)),
                "{width}: {text}"
            );
        }
    }
}
