//! Rows as tables for people. Pure: rows and a `Screen` in, text out. Everything that a node wrote
//! is escaped.

pub(crate) mod actions;
pub(crate) mod overview;

use jiff::Timestamp;

use crate::view::Gap;
use crate::view::attachments::{State, VolumeView};
use crate::view::claims::{ClaimRow, StaleRow};
use crate::view::drives::{DriveRow, ModelRow};
use crate::view::nodes::Report;
use diskvitals_cluster::node_storage::{Health, VolumeStatus};
use diskvitals_terminal::layout::wrapped;
use diskvitals_terminal::screen::{Screen, Tone, escape_control, or_dash};
use diskvitals_terminal::table::{Cells, Column, column, plain, table};
use diskvitals_text::naming::slot_name;

pub(crate) fn health(health: Health) -> (&'static str, Tone) {
    match health {
        Health::Good => ("GOOD", Tone::Good),
        Health::Suspect => ("SUSPECT", Tone::Warning),
        Health::Bad => ("BAD", Tone::Critical),
        Health::Unknown => ("UNKNOWN", Tone::Warning),
    }
}

fn status(status: VolumeStatus, health: Health) -> (String, Tone) {
    let (word, tone) = match status {
        VolumeStatus::Inaccessible => ("INACCESSIBLE", Tone::Critical),
        VolumeStatus::DataLoss => ("DATA LOSS", Tone::Critical),
        VolumeStatus::Degraded => ("DEGRADED", Tone::Warning),
        VolumeStatus::Unknown => self::health(health),
    };
    (word.to_owned(), tone)
}

/// `just now`, `3 min ago`, a local time; `-` without one.
pub(crate) fn ago(time: Option<Timestamp>, screen: &Screen) -> String {
    let wire = time.map(|time| prost_types::Timestamp { seconds: time.as_second(), nanos: 0 });
    match wire {
        None => "-".to_owned(),
        Some(wire) => screen.ago(Some(&wire)),
    }
}

/// The less important columns are only in the wide table.
pub(crate) fn shown(
    columns: &'static [Column],
    rows: Vec<Cells>,
    only_wide: &[&str],
    wide: bool,
    screen: &Screen,
) -> String {
    let keep: Vec<usize> =
        (0..columns.len()).filter(|at| wide || !only_wide.contains(&columns[*at].title)).collect();
    let columns: Vec<Column> = keep
        .iter()
        .map(|at| {
            let it = &columns[*at];
            // A wide table loses no column.
            column(
                it.title,
                if wide { 0 } else { it.min_width },
                if wide { 0 } else { it.drop_priority },
            )
        })
        .collect();
    let rows = rows.into_iter().map(|row| {
        let mut row: Vec<_> = row.into_iter().map(Some).collect();
        keep.iter().filter_map(|at| row[*at].take()).collect::<Cells>()
    });
    let unlimited = Screen { width: None, ..screen.clone() };
    table(&columns, rows, if wide { &unlimited } else { screen })
}

const DRIVES: [Column; 12] = [
    column("NODE", 12, 0),
    column("HEALTH", 0, 0),
    column("SLOT", 0, 0),
    column("SERIAL", 0, 0),
    column("MODEL", 12, 4),
    column("REASON", 12, 2),
    column("SINCE", 0, 3),
    column("REMARK", 12, 1),
    column("NAME", 0, 0),
    column("ENCLOSURE", 0, 0),
    column("ID", 0, 0),
    column("REPORT", 0, 0),
];

pub(crate) fn drives(rows: &[DriveRow], wide: bool, screen: &Screen) -> String {
    let cells = rows.iter().map(|row| {
        let (word, tone) = health(row.health);
        let aside = [
            (row.acknowledged, "acknowledged"),
            (row.maintenance, "maintenance"),
            (!row.report.mark().is_empty(), row.report.mark()),
        ];
        vec![
            (row.node.clone(), Tone::Strong),
            (word.to_owned(), tone),
            plain(slot_name(&row.slot)),
            plain(match row.serial.as_str() {
                "" => &row.id,
                serial => serial,
            }),
            plain(row.model.trim()),
            (row.reason.clone(), tone),
            plain(ago(row.since, screen)),
            plain(diskvitals_terminal::layout::flag_names(&aside)),
            plain(&row.name),
            plain(&row.enclosure),
            plain(&row.id),
            plain(row.report.why()),
        ]
    });
    let only_wide = ["NAME", "ENCLOSURE", "ID", "REPORT"];
    shown(&DRIVES, cells.collect(), &only_wide, wide, screen)
}

const CLAIMS: [Column; 12] = [
    column("NAMESPACE", 10, 0),
    column("CLAIM", 12, 0),
    column("STATUS", 0, 0),
    column("REASON", 12, 2),
    column("POD", 12, 3),
    column("NODE", 12, 0),
    column("SINCE", 0, 5),
    column("DRIVE", 12, 4),
    column("ACTION", 12, 0),
    column("REMARK", 12, 1),
    column("VOLUME", 0, 0),
    column("MESSAGE", 0, 0),
];

pub(crate) fn claims(rows: &[ClaimRow], wide: bool, screen: &Screen) -> String {
    let cells = rows.iter().map(|row| {
        let (word, tone) = status(row.status, row.health);
        let marks = [
            row.remark.as_str(),
            match (row.redundant, row.has_last_copy) {
                (_, true) => "last copy",
                (true, false) => "redundant",
                (false, false) => "",
            },
            row.report.mark(),
        ];
        let marks: Vec<&str> = marks.into_iter().filter(|it| !it.is_empty()).collect();
        // Without a claim, the volume is the name that is left.
        let name = match row.claim.as_str() {
            "" => row.volume.clone(),
            claim => claim.to_owned(),
        };
        vec![
            plain(or_dash(&row.namespace)),
            (name, Tone::Strong),
            (word, tone),
            plain(&row.reason),
            plain(or_dash(&row.pods.join(", "))),
            plain(&row.node),
            plain(ago(row.since, screen)),
            plain(row.drives.join(", ")),
            plain(&row.action),
            plain(marks.join("; ")),
            plain(&row.volume),
            plain(screen.local_times(&row.message)),
        ]
    });
    shown(&CLAIMS, cells.collect(), &["VOLUME", "MESSAGE"], wide, screen)
}

const STALE: [Column; 7] = [
    column("NODE", 12, 0),
    column("VOLUME", 16, 0),
    column("PATH", 24, 2),
    column("ROLE", 0, 4),
    column("SINCE", 0, 3),
    column("WHY", 16, 1),
    column("POD UID", 0, 0),
];

pub(crate) fn stale(rows: &[StaleRow], wide: bool, screen: &Screen) -> String {
    let cells = rows.iter().map(|row| {
        let why = match row.report.mark() {
            "" => row.reason.clone(),
            mark => format!("{}; {mark}", row.reason),
        };
        vec![
            (row.node.clone(), Tone::Strong),
            plain(or_dash(&row.volume)),
            plain(&row.path),
            plain(&row.role),
            plain(ago(row.since, screen)),
            (why, Tone::Warning),
            plain(&row.pod_uid),
        ]
    });
    shown(&STALE, cells.collect(), &["POD UID"], wide, screen)
}

const MODELS: [Column; 7] = [
    column("MODEL", 16, 0),
    column("FIRMWARE", 0, 0),
    column("KIND", 0, 0),
    column("DRIVES", 0, 0),
    column("BAD", 0, 0),
    column("SUSPECT", 0, 0),
    column("NODES", 0, 1),
];

pub(crate) fn models(rows: &[ModelRow], wide: bool, screen: &Screen) -> String {
    let cells = rows.iter().map(|row| {
        let tone = |count: u64, tone| if count > 0 { tone } else { Tone::Plain };
        vec![
            (or_dash(row.model.trim()).to_owned(), Tone::Strong),
            plain(or_dash(&row.firmware)),
            plain(or_dash(&row.kind)),
            plain(row.drives),
            (row.bad.to_string(), tone(row.bad, Tone::Critical)),
            (row.suspect.to_string(), tone(row.suspect, Tone::Warning)),
            plain(row.nodes),
        ]
    });
    shown(&MODELS, cells.collect(), &[], wide, screen)
}

const ATTACHMENTS: [Column; 7] = [
    column("NODE", 12, 0),
    column("POD", 16, 0),
    column("STATE", 0, 0),
    column("EVIDENCE", 0, 3),
    column("SINCE", 0, 4),
    column("PATH", 24, 2),
    column("WHY", 16, 1),
];

pub(crate) fn attachments(view: &VolumeView, wide: bool, screen: &Screen) -> String {
    let mut head = vec![
        ("volume", view.volume.clone()),
        ("claim", view.claim.clone()),
        ("driver", view.driver.clone()),
        ("handle", if wide { view.handle.clone() } else { String::new() }),
        ("access", view.access_modes.join(", ")),
    ];
    head.extend(view.fences.iter().map(|(who, text)| (*who, text.clone())));
    let head: Vec<(&str, String)> =
        head.into_iter().map(|(label, text)| (label, escape_control(&text))).collect();
    let mut text = diskvitals_terminal::layout::label_value_lines(&head);
    let cells = view.attachments.iter().map(|row| {
        let (word, tone) = match row.state {
            State::Expected => ("expected", Tone::Plain),
            State::Stale => ("STALE", Tone::Critical),
            State::Unknown => ("unknown", Tone::Warning),
        };
        let pod = match (row.pod.as_str(), row.pod_uid.as_str()) {
            ("", "") => "-".to_owned(),
            ("", uid) => format!("uid {uid}"),
            (pod, _) => pod.to_owned(),
        };
        vec![
            (or_dash(&row.node).to_owned(), Tone::Strong),
            plain(pod),
            (word.to_owned(), tone),
            plain(or_dash(row.evidence)),
            plain(ago(row.since, screen)),
            plain(or_dash(&row.path)),
            (row.why.clone(), tone),
        ]
    });
    let rows: Vec<Cells> = cells.collect();
    text.push('\n');
    text.push_str(&match rows.is_empty() {
        true if view.gaps.is_empty() => "no pod uses it, and no node has it mounted\n".to_owned(),
        true => "no mount is known, but not everything was seen\n".to_owned(),
        false => shown(&ATTACHMENTS, rows, &[], wide, screen),
    });
    text.push_str(&gaps(&view.gaps, screen));
    text
}

/// What the answer does not contain.
pub(crate) fn gaps(gaps: &[Gap], screen: &Screen) -> String {
    let mut text = String::new();
    for gap in gaps {
        if text.is_empty() {
            text.push('\n');
        }
        let label = screen.paint(Tone::Warning, "not seen");
        let body = wrapped(&format!("{}: {}", gap.what, gap.why), "           ", screen);
        text.push_str(&format!("{label}:  {}", body.trim_start()));
    }
    text
}

/// Nodes whose report is not current, for the commands that show rows of nodes.
pub(crate) fn silent_gap(silent: &[(&str, &Report)]) -> Option<Gap> {
    let names: Vec<&str> = silent.iter().map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| {
        Gap::new(
            crate::view::drives::some(&names),
            "no current report: what is there now is not known (kubectl diskvitals)",
        )
    })
}
