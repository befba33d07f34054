//! The screen of `status --watch`: what `status` shows, with running checks and self-tests and the
//! drives' I/O, in the lines and columns of the terminal. What does not fit is counted, the least
//! important first. Pure.

pub mod position;

use std::collections::BTreeMap;

use crate::render::live::position::Position;
use crate::render::status::{self, StatusView};
use crate::render::{causes, checks, drives, findings, smart};
use diskvitals_model::label;
use diskvitals_terminal::layout::{counted, heading, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, bytes, escape_control, or_dash, span};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table_rows};
use diskvitals_terminal::width::clipped;
use diskvitals_wire as wire;

/// On a lower terminal nothing is reserved for the less important parts.
const LOW: usize = 8;
/// Lines that do not scroll: the node, its verdict, the keys.
const FIXED: usize = 3;
/// Before the lines of causes while one is selected.
const MARK: &str = "> ";
const NO_MARK: &str = "  ";
/// Without a known height.
const DEFAULT_LINES: u16 = 24;

type DriveRow<'a> = (&'a wire::Drive, Option<&'a IoRate>);

/// The I/O of a drive between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoRate {
    /// Bytes per second.
    pub read: u64,
    pub written: u64,
    /// Completed requests per second.
    pub requests: u64,
    /// Mean time of the completed requests; None if there were none.
    pub latency_ms: Option<f64>,
    /// Requests are in flight, and none was completed.
    pub waits: bool,
}

/// Since when the daemon does not answer, and why.
#[derive(Clone, Debug)]
pub struct Outage {
    pub since: prost_types::Timestamp,
    pub why: String,
}

pub struct LiveView<'a> {
    pub status: StatusView<'a>,
    /// Those that have not ended.
    pub checks: &'a [wire::Check],
    /// By drive; a drive without two readings is not in it.
    pub io: &'a BTreeMap<String, IoRate>,
    pub outage: Option<&'a Outage>,
}

/// Part of the screen. A block is shown as a whole.
struct Section {
    title: Option<String>,
    blocks: Vec<Block>,
    /// Ends the section if only the first blocks are shown: their number, and that of the others.
    more: fn(usize, usize) -> String,
}

struct Block {
    /// A blank line is before it, if there is space.
    separate: bool,
    lines: Vec<String>,
}

impl Block {
    fn of(lines: Vec<String>) -> Block {
        Block { separate: false, lines }
    }
}

/// At most `height` lines, none wider than the screen.
pub fn lines(
    view: &LiveView,
    position: &mut Position,
    screen: &Screen,
    height: Option<u16>,
) -> Vec<String> {
    let height = lines_of(height);
    let mut lines = banner(view.outage, screen);
    lines.extend(split(&status::head(&view.status, screen)));
    let footer = footer(screen);
    lines.truncate(height);
    let room = height.saturating_sub(lines.len() + 1);
    let all = view.status.causes.unwrap_or_default();
    if let Some(cause) = position.opened(all) {
        let text = causes::in_full(cause, view.status.findings, screen);
        let whole = split(&format!("\n{text}"));
        lines.extend(scrolled(whole, position, room));
    } else if position.is_start() {
        lines.extend(fitted(&sections(view, None, screen), room));
    } else {
        let sections = sections(view, position.selected.as_deref(), screen);
        if let Some(selected) = selected_lines(view, position, &sections[0]) {
            position.reveal(selected, room);
        }
        let whole = sections.iter().flat_map(Section::spacious).collect();
        lines.extend(scrolled(whole, position, room));
    }
    if lines.len() < height {
        lines.push(footer);
    }
    let limit = screen.width.map_or(usize::MAX, usize::from);
    lines.iter().map(|line| clipped(line, limit)).collect()
}

/// How many lines a page key moves.
pub fn page(height: Option<u16>) -> usize {
    lines_of(height).saturating_sub(FIXED)
}

fn lines_of(height: Option<u16>) -> usize {
    usize::from(height.unwrap_or(DEFAULT_LINES)).max(1)
}

fn sections(view: &LiveView, selected: Option<&str>, screen: &Screen) -> [Section; 6] {
    [
        cause_section(view, selected, screen),
        Section::of_text(&status::cordons(view.status.node, screen)),
        Section::of_text(&status::unknown(&view.status, screen)),
        running(view, screen),
        drive_section(view, screen),
        Section::of_text(&status::monitoring_gaps(view.status.node, screen)),
    ]
}

/// The part of the lines at this position.
fn scrolled(all: Vec<String>, position: &mut Position, room: usize) -> Vec<String> {
    let shown = position.clamp(all.len(), room);
    all[shown].to_vec()
}

/// The lines of the selected cause in the section of causes.
fn selected_lines(
    view: &LiveView,
    position: &Position,
    section: &Section,
) -> Option<std::ops::Range<usize>> {
    let selected = position.selected.as_ref()?;
    let causes = view.status.causes.unwrap_or_default();
    let at = causes.iter().position(|cause| cause.id == *selected)?;
    let height = |block: &Block| block.lines.len() + usize::from(block.separate);
    let start: usize = section.blocks.iter().take(at).map(height).sum();
    Some(start..start + section.blocks.get(at).map(height)?)
}

/// Before the first answer.
pub fn waiting(outage: Option<&Outage>, screen: &Screen) -> Vec<String> {
    let mut lines = banner(outage, screen);
    if lines.is_empty() {
        lines.push("waiting for the first answer of diskvitalsd".to_owned());
    }
    lines.push(footer(screen));
    let limit = screen.width.map_or(usize::MAX, usize::from);
    lines.iter().map(|line| clipped(line, limit)).collect()
}

fn split(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn banner(outage: Option<&Outage>, screen: &Screen) -> Vec<String> {
    let Some(outage) = outage else {
        return Vec::new();
    };
    let text = format!(
        "NO ANSWER from diskvitalsd since {} ({}): {}. What follows is old.",
        screen.date_time(Some(&outage.since)),
        screen.ago(Some(&outage.since)),
        outage.why
    );
    let lines = split(&wrapped(&text, "", screen));
    let shown = lines.iter().take(4);
    shown.map(|line| screen.paint(Tone::Critical, line)).collect()
}

fn footer(screen: &Screen) -> String {
    let now = screen.clock();
    let keys = "q quits  ↑↓ PgDn scroll  Enter shows a cause in full";
    screen.paint(Tone::Faint, format!("{now}  {keys}"))
}

impl Section {
    /// A text that begins with a blank line; each line for itself.
    fn of_text(text: &str) -> Section {
        let mut separate = false;
        let mut blocks = Vec::new();
        for line in text.lines() {
            match line {
                "" => separate = true,
                line => blocks.push(Block {
                    separate: std::mem::take(&mut separate),
                    lines: vec![line.to_owned()],
                }),
            }
        }
        Section {
            title: None,
            blocks,
            more: |_, rest| format!("and {}: diskvitals status", counted(rest as u64, "more line")),
        }
    }

    fn spacious(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.blocks.is_empty() {
            return lines;
        }
        if let Some(title) = &self.title {
            lines.extend([String::new(), title.clone()]);
        }
        for block in &self.blocks {
            if block.separate {
                lines.push(String::new());
            }
            lines.extend_from_slice(&block.lines);
        }
        lines
    }

    /// Without blank lines, and at most so many.
    fn within(&self, room: usize) -> Vec<String> {
        let wanted: usize = self.blocks.iter().map(|block| block.lines.len()).sum();
        let title = self.title.iter().cloned();
        if self.blocks.is_empty() || room == 0 {
            return Vec::new();
        }
        if wanted + title.len() <= room {
            let blocks = self.blocks.iter().flat_map(|block| block.lines.clone());
            return title.chain(blocks).collect();
        }
        // One line says how many there are.
        let room = room - 1;
        if title.len() > 0 && room < 2 {
            return vec![(self.more)(0, self.blocks.len())];
        }
        let mut lines: Vec<String> = title.collect();
        let mut shown = 0;
        for block in &self.blocks {
            let left = room.saturating_sub(lines.len());
            if block.lines.len() <= left {
                lines.extend_from_slice(&block.lines);
            } else if shown == 0 && left > 0 {
                lines.extend_from_slice(&block.lines[..left]);
            } else {
                break;
            }
            shown += 1;
        }
        if shown < self.blocks.len() {
            lines.push((self.more)(shown, self.blocks.len() - shown));
        }
        lines
    }
}

/// Blank lines go first, then the end of the last section.
fn fitted(sections: &[Section], room: usize) -> Vec<String> {
    let spacious: Vec<String> = sections.iter().flat_map(Section::spacious).collect();
    if spacious.len() <= room {
        return spacious;
    }
    let mut lines = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let left = room.saturating_sub(lines.len());
        let others = sections[at + 1..].iter();
        let reserved = match left > LOW {
            true => others.filter(|it| !it.blocks.is_empty()).count(),
            false => 0,
        };
        lines.extend(section.within(left - reserved));
    }
    lines
}

fn cause_section(view: &LiveView, selected: Option<&str>, screen: &Screen) -> Section {
    let all = view.status.causes.unwrap_or_default();
    if all.is_empty() && !view.status.findings.is_empty() {
        // A daemon that does not know causes yet.
        return Section {
            more: |_, rest| {
                format!("and {}: diskvitals findings", counted(rest as u64, "more finding"))
            },
            ..Section::of_text(&format!("\n{}", findings::table(view.status.findings, screen)))
        };
    }
    let mark = |cause: &wire::Cause, at: usize| match selected {
        None => "",
        Some(id) if at == 0 && cause.id == id => MARK,
        Some(_) => NO_MARK,
    };
    let narrower = Screen {
        width: screen
            .width
            .map(|width| width.saturating_sub(selected.map_or(0, |_| MARK.len() as u16))),
        ..screen.clone()
    };
    let mut separate = true;
    let blocks = all.iter().map(|cause| {
        let text = causes::block(cause, view.status.findings, &narrower);
        let lines = text.lines().enumerate();
        Block {
            separate: std::mem::replace(&mut separate, causes::is_urgent(cause)),
            lines: lines.map(|(at, line)| format!("{}{line}", mark(cause, at))).collect(),
        }
    });
    Section {
        title: None,
        blocks: blocks.collect(),
        more: |_, rest| format!("and {}: diskvitals findings", counted(rest as u64, "more cause")),
    }
}

fn drive_section(view: &LiveView, screen: &Screen) -> Section {
    let mut sorted: Vec<&wire::Drive> = view.status.drives.iter().collect();
    sorted.sort_by_cached_key(|it| {
        (drives::rank(it.health), label::sort_key(&it.name), it.id.clone())
    });
    let columns: [Column<DriveRow>; 10] = [
        column("DRIVE", 0, 0, |(drive, _), _| strong(or_dash(&drive.name))),
        column("HEALTH", 0, 0, |(drive, _), _| drives::health_and_presence(drive)),
        column("TEMP", 0, 0, |(drive, _), _| plain(or_dash(&smart::temperature(drive)))),
        column("WEAR", 0, 0, |(drive, _), _| plain(or_dash(&smart::wear(drive)))),
        column("READ", 0, 2, |(_, io), _| known(*io, |io| per_second(io.read))),
        column("WRITE", 0, 1, |(_, io), _| known(*io, |io| per_second(io.written))),
        column("IO/S", 0, 4, |(_, io), _| known(*io, |io| plain(io.requests))),
        column("LATENCY", 0, 3, |(_, io), _| known(*io, latency)),
        column("MODEL", 10, 5, |(drive, _), _| plain(drive.model.trim())),
        column("REST", 0, 6, |(drive, _), screen| {
            plain(smart::rest(drive, screen).unwrap_or_default())
        }),
    ];
    let rows: Vec<DriveRow> = sorted.into_iter().map(|it| (it, view.io.get(&it.id))).collect();
    let mut rows = table_rows(&columns, &rows, screen).into_iter();
    let title = rows.next().map(|title| title.trim_end().to_owned());
    Section {
        title: title.filter(|title| !title.is_empty()),
        blocks: rows.map(|row| Block::of(split(&row))).collect(),
        more: |shown, rest| match shown {
            0 => format!("{}: diskvitals drives", counted(rest as u64, "drive")),
            _ => format!("and {}: diskvitals drives", counted(rest as u64, "more drive")),
        },
    }
}

fn known(io: Option<&IoRate>, cell: fn(&IoRate) -> Cell) -> Cell {
    io.map_or_else(|| plain("-"), cell)
}

fn per_second(count: u64) -> Cell {
    plain(format!("{}/s", bytes(count)))
}

fn latency(io: &IoRate) -> Cell {
    match io.waits {
        true => ("waits".to_owned(), Tone::Critical),
        false => plain(io.latency_ms.map_or("-".to_owned(), milliseconds)),
    }
}

fn milliseconds(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.1} ms"),
        10.0..1000.0 => format!("{value:.0} ms"),
        _ => format!("{:.1} s", value / 1000.0),
    }
}

/// Checks and self-tests that have not ended, one line each.
fn running(view: &LiveView, screen: &Screen) -> Section {
    let checks = view.checks.iter().map(|check| {
        let begun = check.started.as_ref().or(check.asked.as_ref());
        let elapsed = begun.map(|begun| screen.since(begun)).unwrap_or_default();
        let (what, progress) = checks::progress(check, elapsed, check.cancelled);
        format!("check {what}  {progress}")
    });
    let tests = view.status.drives.iter().filter_map(|drive| self_test(drive, screen));
    let lines: Vec<String> = checks.chain(tests).collect();
    Section {
        title: Some(heading("running", screen).trim_end().to_owned()),
        blocks: lines.into_iter().map(|it| Block::of(vec![it])).collect(),
        more: |shown, rest| match shown {
            0 => format!("running: {rest} (diskvitals checks, diskvitals drives)"),
            _ => format!("and {rest} more that run"),
        },
    }
}

/// `self-test sda (long): 40 %, about 3 h left`; the time only if the drive reports how long its
/// tests take.
fn self_test(drive: &wire::Drive, screen: &Screen) -> Option<String> {
    let tests = drive.smart.as_ref()?.self_tests.as_ref()?;
    let remaining = tests.running_remaining_percent?.min(100);
    let requested = tests.requested.as_ref().filter(|request| request.started);
    let (kind, minutes) = match requested.map(|request| request.kind()) {
        Some(wire::SelfTestKind::Short) => (" (short)", tests.short_minutes),
        Some(wire::SelfTestKind::Long) => (" (long)", tests.long_minutes),
        _ => ("", 0),
    };
    let left = match minutes {
        0 => String::new(),
        minutes => {
            let seconds = u64::from(minutes) * 60 * u64::from(remaining) / 100;
            let left = std::time::Duration::from_secs(seconds.div_ceil(60) * 60);
            format!(", about {} left", span(left))
        }
    };
    let answered = drive.smart.as_ref().and_then(|it| it.answered.as_ref());
    Some(format!(
        "self-test {}{kind}: {} %{left} (read {})",
        escape_control(or_dash(&drive.name)),
        100 - remaining,
        screen.ago(answered)
    ))
}
