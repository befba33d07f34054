//! The map of the node as SVG: what stands on what, from the drives to the pods.

use crate::report::graph::{Column, Graph, Group, Node};
use crate::report::health_class;
use crate::report::html::Html;
use crate::words::health;
use diskvitals_terminal::layout::counted;

const BOX_WIDTH: usize = 176;
const BOX_HEIGHT: usize = 38;
const COLUMN_STEP: usize = BOX_WIDTH + 46;
const ROW_STEP: usize = BOX_HEIGHT + 8;
const TITLE_HEIGHT: usize = 26;
const GROUP_GAP: usize = 14;
/// A map of this width is drawn in its own size; a wider one is made smaller, down to this width.
const NARROW: usize = 900;
/// Characters that fit into a box.
const NAME_CHARACTERS: usize = 18;
const DETAIL_CHARACTERS: usize = 25;

pub(super) fn draw(graph: &Graph, html: &mut Html) {
    if graph.groups.is_empty() {
        html.text_in("p", &[("class", "faint")], "There is nothing to draw.");
    } else {
        let region = [
            ("class", "scroll"),
            ("role", "region"),
            ("aria-label", "Map of drives, layers, volumes and pods"),
            ("tabindex", "0"),
        ];
        html.element("div", &region, |html| svg(graph, html));
    }
    let (drives, volumes) = (graph.hidden_drives, graph.hidden_volumes);
    if drives.0 + volumes.0 > 0 {
        let parts = [hidden(drives, "drive"), hidden(volumes, "volume")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        html.text_in(
            "p",
            &[("class", "faint")],
            &format!("Not drawn: {}. The tables below have all of them.", parts.join(" and ")),
        );
    }
}

/// `12 drives, 2 of them not in good health`.
fn hidden((all, adverse): (usize, usize), name: &str) -> Option<String> {
    let text = counted(all as u64, name);
    match (all, adverse) {
        (0, _) => None,
        (_, 0) => Some(format!("{text} in good health")),
        (_, adverse) => Some(format!("{text} ({adverse} not in good health)")),
    }
}

fn svg(graph: &Graph, html: &mut Html) {
    let x = |column: Column| {
        let at = graph.columns.iter().position(|it| *it == column);
        at.unwrap_or(0) * COLUMN_STEP
    };
    let width = graph.columns.len().saturating_sub(1) * COLUMN_STEP + BOX_WIDTH;
    let rows: usize = graph.groups.iter().map(|group| group.rows).sum();
    let gaps = graph.groups.len().saturating_sub(1) * GROUP_GAP;
    let height = TITLE_HEIGHT + rows * ROW_STEP + gaps;
    let view = format!("0 0 {width} {height}");
    let class = if width <= NARROW { "map narrow" } else { "map" };
    let (width, height) = (width.to_string(), height.to_string());
    let attributes = [
        ("class", class),
        ("role", "img"),
        ("aria-labelledby", "graph-title graph-description"),
        ("viewBox", view.as_str()),
        ("width", width.as_str()),
        ("height", height.as_str()),
    ];
    html.element("svg", &attributes, |html| {
        html.text_in("title", &[("id", "graph-title")], "What stands on what");
        html.text_in("desc", &[("id", "graph-description")], &description(graph));
        for column in &graph.columns {
            text(html, "column", x(*column), 14, title(*column));
        }
        let mut top = TITLE_HEIGHT;
        for group in &graph.groups {
            html.element("g", &[], |html| {
                draw_group(group, top, &x, html);
            });
            top += group.rows * ROW_STEP + GROUP_GAP;
        }
    });
}

fn title(column: Column) -> &'static str {
    match column {
        Column::Drive => "DRIVE",
        Column::Layer(1) => "LAYER",
        Column::Layer(_) => "LAYER ABOVE",
        Column::Volume => "VOLUME",
        Column::Pod => "POD",
    }
}

/// For those who do not see it: what has findings.
fn description(graph: &Graph) -> String {
    let nodes = graph.groups.iter().flat_map(|group| &group.nodes);
    let adverse: Vec<String> = nodes
        .filter(|node| health_class(node.health) != "none" && health_class(node.health) != "good")
        .map(|node| format!("{} is {}", node.name, health(node.health).0))
        .collect();
    match adverse.is_empty() {
        true => "Everything drawn is in good health.".to_owned(),
        false => format!("{}.", adverse.join(", ")),
    }
}

fn draw_group(group: &Group, top: usize, x: &impl Fn(Column) -> usize, html: &mut Html) {
    let y = |node: &Node| top + node.row * ROW_STEP;
    for node in &group.nodes {
        for below in node.below.iter().filter_map(|at| group.nodes.get(*at)) {
            let (from, to) = (x(below.column) + BOX_WIDTH, x(node.column));
            let (start, end) = (y(below) + BOX_HEIGHT / 2, y(node) + BOX_HEIGHT / 2);
            // Two layers of one column are joined at their sides.
            let middle = if to > from { (from + to) / 2 } else { from + 20 };
            let end_x = if to > from { to } else { from };
            let path = format!("M{from} {start}C{middle} {start} {middle} {end} {end_x} {end}");
            let class = format!("edge {}", health_class(below.flow));
            html.element("path", &[("class", &class), ("d", &path)], |_| {});
        }
    }
    for node in &group.nodes {
        draw_node(node, x(node.column), y(node), html);
    }
}

fn draw_node(node: &Node, x: usize, y: usize, html: &mut Html) {
    let class = health_class(node.health);
    let group_class = format!("node {class}");
    let (left, at) = (x.to_string(), y.to_string());
    let (width, height) = (BOX_WIDTH.to_string(), BOX_HEIGHT.to_string());
    // An SVG within an SVG cuts off what leaves its box: wide letters, for example.
    let place = [
        ("class", group_class.as_str()),
        ("x", left.as_str()),
        ("y", at.as_str()),
        ("width", width.as_str()),
        ("height", height.as_str()),
    ];
    html.element("svg", &place, |html| {
        let title = match (node.detail.as_str(), class) {
            ("", "none") => node.name.clone(),
            (detail, "none") => format!("{}: {detail}", node.name),
            (detail, _) => format!("{} ({}): {detail}", node.name, health(node.health).0),
        };
        html.text_in("title", &[], &title);
        // Half of the line lies on each side of the edge.
        let (inner_width, inner_height) =
            ((BOX_WIDTH - 1).to_string(), (BOX_HEIGHT - 1).to_string());
        let frame = [
            ("class", "frame"),
            ("x", "0.5"),
            ("y", "0.5"),
            ("width", inner_width.as_str()),
            ("height", inner_height.as_str()),
            ("rx", "5"),
        ];
        html.element("rect", &frame, |_| {});
        let stripe =
            [("class", "stripe"), ("width", "5"), ("height", height.as_str()), ("rx", "2")];
        html.element("rect", &stripe, |_| {});
        let mark = match class {
            "bad" => "✖ ",
            "suspect" => "▲ ",
            "unknown" => "? ",
            _ => "",
        };
        let name = format!("{mark}{}", cut(&node.name, NAME_CHARACTERS));
        text(html, "name", 13, 16, &name);
        text(html, "detail", 13, 30, &cut(&node.detail, DETAIL_CHARACTERS));
    });
}

fn text(html: &mut Html, class: &'static str, x: usize, y: usize, content: &str) {
    let (x, y) = (x.to_string(), y.to_string());
    let attributes = [("class", class), ("x", x.as_str()), ("y", y.as_str())];
    html.text_in("text", &attributes, content);
}

/// The end of a path says more than its beginning.
fn cut(text: &str, limit: usize) -> String {
    let shown = diskvitals_terminal::screen::escape_control(text);
    let length = shown.chars().count();
    if length <= limit {
        return shown;
    }
    match shown.starts_with('/') {
        true => ['…'].into_iter().chain(shown.chars().skip(length - (limit - 1))).collect(),
        false => diskvitals_terminal::width::shortened(&shown, limit),
    }
}
