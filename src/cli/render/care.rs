//! What the daemon does by a schedule to drives and arrays, as a table.

use diskvitals_terminal::screen::{Screen, Tone, or_dash};
use diskvitals_terminal::table::{Cell, Column, column, plain, strong, table as layout};
use diskvitals_wire as wire;
use diskvitals_wire::care_task::State;
use prost_types::Timestamp;

struct Row {
    name: String,
    task: &'static str,
    ended: Option<Timestamp>,
    due: Option<Timestamp>,
    state: State,
    why: String,
    /// What else starts it.
    others: String,
}

const COLUMNS: [Column<Row>; 5] = [
    column("NAME", 0, 0, |it, _| strong(or_dash(&it.name))),
    column("TASK", 0, 0, |it, _| plain(it.task)),
    column("LAST", 0, 2, |it, screen| plain(last(it, screen))),
    column("NEXT", 0, 1, |it, screen| plain(next(it, screen))),
    column("WAITS FOR", 24, 0, state),
];

const NOTHING: &str = "nothing is scheduled: `care = \"standard\"` in /etc/diskvitals/diskvitals.toml starts self-tests and scrubs, on drives that report self-tests and on md, ZFS and btrfs\n";

/// What runs comes first, then the most overdue; what has no schedule here is last.
pub(crate) fn table(answer: &wire::ListDrivesResponse, screen: &Screen) -> String {
    let of_drive = |drive: &wire::Drive| {
        let name = drive.name.clone();
        let row = move |task: &wire::CareTask| Row {
            name: name.clone(),
            task: kind(task),
            ended: task.ended,
            due: task.due,
            state: task.state(),
            why: task.why.clone(),
            others: String::new(),
        };
        drive.care.iter().map(row).collect::<Vec<_>>()
    };
    let of_array = |task: &wire::ScrubTask| Row {
        name: task.name.clone(),
        task: if matches!(&*task.task, "btrfs-scrub" | "zpool-scrub") { "scrub" } else { "check" },
        ended: task.ended,
        due: task.due,
        state: task.state(),
        why: task.why.clone(),
        others: task.others.clone(),
    };
    let drives = answer.drives.iter().flat_map(of_drive);
    let mut rows: Vec<Row> = drives.chain(answer.scrubs.iter().map(of_array)).collect();
    if rows.is_empty() {
        return NOTHING.to_owned();
    }
    rows.sort_by_key(|row| {
        let due = row.due.map(|due| due.seconds);
        (row.state != State::Running, due.is_none(), due, row.name.clone())
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

fn last(row: &Row, screen: &Screen) -> String {
    match &row.ended {
        Some(ended) => screen.ago(Some(ended)),
        None => "not known".to_owned(),
    }
}

fn next(row: &Row, screen: &Screen) -> String {
    match (row.state, row.due) {
        (State::Running, _) => "runs now".to_owned(),
        (_, None) => "not scheduled".to_owned(),
        (_, Some(due)) if !screen.since(&due).is_zero() => "due".to_owned(),
        (_, Some(due)) => screen.date_time(Some(&due)),
    }
}

fn state(row: &Row, screen: &Screen) -> Cell {
    match (row.state, row.due) {
        (State::Held, Some(_)) => (screen.message(&row.why), Tone::Warning),
        (_, None) if !row.others.is_empty() => plain(screen.message(&row.others)),
        (State::Held, None) => plain(screen.message(&row.why)),
        _ => plain(""),
    }
}
