//! What the daemon does to drives by a schedule, as a table.

use diskvitals_terminal::screen::{Screen, Tone, or_dash};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table as layout};
use diskvitals_wire as wire;
use diskvitals_wire::care_task::State;

struct Row {
    drive: String,
    task: wire::CareTask,
}

const COLUMNS: [Column<Row>; 5] = [
    column("DRIVE", 0, 0, |it, _| strong(or_dash(&it.drive))),
    column("TEST", 0, 0, |it, _| plain(kind(&it.task))),
    column("LAST", 0, 2, |it, screen| plain(last(&it.task, screen))),
    column("NEXT", 0, 1, |it, screen| plain(next(&it.task, screen))),
    column("WAITS FOR", 24, 0, |it, screen| state(&it.task, screen)),
];

const NOTHING: &str = "no self-test is scheduled: `care = \"standard\"` in /etc/diskvitals/diskvitals.toml starts a short one each week and a long one each month, on drives that report self-tests\n";

/// The most overdue first.
pub(crate) fn table(drives: &[wire::Drive], screen: &Screen) -> String {
    let of_drive = |drive: &wire::Drive| {
        let name = drive.name.clone();
        let row = move |task: &wire::CareTask| Row { drive: name.clone(), task: task.clone() };
        drive.care.iter().map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<Row> = drives.iter().flat_map(of_drive).collect();
    if rows.is_empty() {
        return NOTHING.to_owned();
    }
    rows.sort_by_key(|row| {
        let due = row.task.due.unwrap_or_default();
        (row.task.state() != State::Running, due.seconds, row.drive.clone())
    });
    layout(&COLUMNS, rows.iter(), screen)
}

fn kind(task: &wire::CareTask) -> &'static str {
    match task.kind() {
        wire::SelfTestKind::Short => "short self-test",
        wire::SelfTestKind::Long => "long self-test",
        wire::SelfTestKind::Unspecified => "unknown",
    }
}

fn last(task: &wire::CareTask, screen: &Screen) -> String {
    match &task.ended {
        Some(ended) => screen.ago(Some(ended)),
        None => "not known".to_owned(),
    }
}

fn next(task: &wire::CareTask, screen: &Screen) -> String {
    let due = task.due.unwrap_or_default();
    match task.state() {
        State::Running => "runs now".to_owned(),
        _ if !screen.since(&due).is_zero() => "due".to_owned(),
        _ => screen.date_time(Some(&due)),
    }
}

fn state(task: &wire::CareTask, screen: &Screen) -> Cell {
    match task.state() {
        State::Held => (screen.message(&task.why), Tone::Warning),
        _ => plain(""),
    }
}
