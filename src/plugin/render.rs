//! Rows as tables for people. Pure: rows and a `Screen` in, text out. Everything that a node wrote
//! is escaped.

pub(crate) mod actions;
pub(crate) mod overview;

use jiff::Timestamp;

use crate::view::Gap;
use crate::view::attachments::{AttachmentRow, State, VolumeView};
use crate::view::claims::{ClaimRow, StaleRow};
use crate::view::drives::{DriveRow, ModelRow};
use crate::view::nodes::Report;
use crate::view::unclean::{Clean, UncleanRow, VolumeUse, without_paths};
use diskvitals_cluster::node_storage::{Health, VolumeStatus};
use diskvitals_terminal::layout::{flag_names, label_value_lines, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control, or_dash};
use diskvitals_terminal::table::{
    Cell, Column, column, plain, strong, table, toned, wide_column, wide_table,
};
use diskvitals_text::naming::slot_name;

pub(crate) fn health(health: Health) -> (&'static str, Tone) {
    match health {
        Health::Good => ("GOOD", Tone::Good),
        Health::Suspect => ("SUSPECT", Tone::Warning),
        Health::Bad => ("BAD", Tone::Critical),
        Health::Unknown => ("UNKNOWN", Tone::Warning),
    }
}

fn status(status: VolumeStatus, health: Health) -> (&'static str, Tone) {
    match status {
        VolumeStatus::Inaccessible => ("INACCESSIBLE", Tone::Critical),
        VolumeStatus::DataLoss => ("DATA LOSS", Tone::Critical),
        VolumeStatus::Degraded => ("DEGRADED", Tone::Warning),
        VolumeStatus::Unknown => self::health(health),
    }
}

/// `just now`, `3 min ago`, a local time; `-` without one.
pub(crate) fn ago(time: Option<Timestamp>, screen: &Screen) -> String {
    match time.map(wire_time) {
        None => "-".to_owned(),
        Some(wire) => screen.ago(Some(&wire)),
    }
}

fn wire_time(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: 0 }
}

pub(crate) fn shown<T>(columns: &[Column<T>], rows: &[T], wide: bool, screen: &Screen) -> String {
    match wide {
        true => wide_table(columns, rows, screen),
        false => table(columns, rows, screen),
    }
}

const DRIVES: [Column<DriveRow>; 12] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("HEALTH", 0, 0, |it, _| toned(health(it.health))),
    column("SLOT", 0, 0, |it, _| plain(slot_name(&it.slot))),
    column("SERIAL", 0, 0, |it, _| plain(first_known(&it.serial, &it.id))),
    column("MODEL", 12, 4, |it, _| plain(it.model.trim())),
    column("REASON", 12, 2, |it, _| toned((&it.reason, health(it.health).1))),
    column("SINCE", 0, 3, |it, screen| plain(ago(it.since, screen))),
    column("REMARK", 12, 1, |it, screen| plain(drive_remark(it, screen))),
    wide_column("NAME", |it, _| plain(&it.name)),
    wide_column("ENCLOSURE", |it, _| plain(&it.enclosure)),
    wide_column("ID", |it, _| plain(&it.id)),
    wide_column("REPORT", |it, _| plain(it.report.why())),
];

pub(crate) fn drives(rows: &[DriveRow], wide: bool, screen: &Screen) -> String {
    shown(&DRIVES, rows, wide, screen)
}

pub(crate) fn first_known<'a>(name: &'a str, other: &'a str) -> &'a str {
    if name.is_empty() { other } else { name }
}

fn drive_remark(row: &DriveRow, screen: &Screen) -> String {
    let maintenance = match row.maintenance_until {
        Some(until) => format!("maintenance until {}", screen.date_time(Some(&wire_time(until)))),
        None => "maintenance".to_owned(),
    };
    flag_names(&[
        (row.acknowledged, "acknowledged"),
        (row.maintenance, &maintenance),
        (!row.report.mark().is_empty(), row.report.mark()),
    ])
}

const CLAIMS: [Column<ClaimRow>; 12] = [
    column("NAMESPACE", 10, 0, |it, _| plain(or_dash(&it.namespace))),
    // Without a claim, the volume is the name that is left.
    column("CLAIM", 12, 0, |it, _| strong(first_known(&it.claim, &it.volume))),
    column("STATUS", 0, 0, |it, _| toned(status(it.status, it.health))),
    column("REASON", 12, 2, |it, _| plain(&it.reason)),
    column("POD", 12, 3, |it, _| plain(or_dash(&it.pods.join(", ")))),
    column("NODE", 12, 0, |it, _| plain(&it.node)),
    column("SINCE", 0, 5, |it, screen| plain(ago(it.since, screen))),
    column("DRIVE", 12, 4, |it, _| plain(it.drives.join(", "))),
    column("ACTION", 12, 0, |it, _| plain(&it.action)),
    column("REMARK", 12, 1, |it, _| plain(claim_remark(it))),
    wide_column("VOLUME", |it, _| plain(&it.volume)),
    wide_column("MESSAGE", |it, screen| plain(screen.local_times(&claim_message(it)))),
];

pub(crate) fn claims(rows: &[ClaimRow], wide: bool, screen: &Screen) -> String {
    shown(&CLAIMS, rows, wide, screen)
}

fn claim_message(row: &ClaimRow) -> String {
    let claim = match row.claim.as_str() {
        "" => String::new(),
        claim => format!("{}/{claim}", row.namespace),
    };
    let volume = VolumeUse { volume: row.volume.clone(), claim, used_by: Vec::new() };
    match row.is_of_kubernetes {
        true => without_paths(&row.message, &[volume]),
        false => row.message.clone(),
    }
}

fn claim_remark(row: &ClaimRow) -> String {
    let copies = match (row.redundant, row.has_last_copy) {
        (_, true) => "last copy",
        (true, false) => "redundant",
        (false, false) => "",
    };
    let marks = [row.remark.as_str(), copies, row.report.mark()];
    let marks = marks.into_iter().filter(|it| !it.is_empty());
    marks.collect::<Vec<_>>().join("; ")
}

const STALE: [Column<StaleRow>; 9] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("CLAIM", 12, 0, |it, _| plain(or_dash(&it.volume.claim))),
    column("VOLUME", 16, 3, |it, _| plain(or_dash(&it.volume.volume))),
    // The claim says more than its path.
    column("PATH", 24, 2, |it, _| plain(if it.volume.claim.is_empty() { &it.path } else { "" })),
    column("ROLE", 0, 4, |it, _| plain(&it.role)),
    column("SINCE", 0, 3, |it, screen| plain(ago(it.since, screen))),
    column("WHY", 16, 1, |it, _| (stale_why(it), Tone::Warning)),
    wide_column("MOUNT", |it, _| plain(&it.path)),
    wide_column("POD UID", |it, _| plain(&it.pod_uid)),
];

pub(crate) fn stale(rows: &[StaleRow], wide: bool, screen: &Screen) -> String {
    shown(&STALE, rows, wide, screen)
}

fn stale_why(row: &StaleRow) -> String {
    let volumes = std::slice::from_ref(&row.volume);
    let why = without_paths(&row.reason, volumes);
    sentences(&[&why, &used_by(row.volume.used_by.iter()), row.report.mark()])
}

fn sentences(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

fn used_by<'a>(pods: impl Iterator<Item = &'a String>) -> String {
    let pods: Vec<&str> = pods.map(String::as_str).collect();
    match pods.as_slice() {
        [] => String::new(),
        [one] => format!("{one} uses it too"),
        several => format!("{} use it too", several.join(", ")),
    }
}

const UNCLEAN: [Column<UncleanRow>; 10] = [
    column("NODE", 12, 0, |it, _| strong(&it.node)),
    column("STATE", 0, 0, |it, _| toned(unclean_state(it))),
    column("CLAIM", 12, 0, |it, _| plain(or_dash(&claims_of(it)))),
    column("POD", 12, 3, |it, _| plain(pod(&it.pod, &it.pod_uid))),
    column("SINCE", 0, 4, |it, screen| plain(ago(it.since, screen))),
    column("REASON", 0, 2, |it, _| plain(&it.reason)),
    column("WHY", 24, 0, |it, _| toned((unclean_why(it), unclean_state(it).1))),
    wide_column("VOLUME", |it, _| {
        let volumes = it.volumes.iter().map(|it| it.volume.as_str());
        plain(volumes.collect::<Vec<_>>().join(", "))
    }),
    wide_column("POD UID", |it, _| plain(&it.pod_uid)),
    wide_column("MESSAGE", |it, _| plain(&it.message)),
];

/// Nodes in quarantine, or with `AttachmentsClean` not True.
pub(crate) fn unclean(rows: &[UncleanRow], wide: bool, screen: &Screen) -> String {
    shown(&UNCLEAN, rows, wide, screen)
}

fn unclean_state(row: &UncleanRow) -> (&'static str, Tone) {
    match (row.is_in_quarantine, row.clean) {
        (true, _) if row.is_second_writer() => ("QUARANTINE", Tone::Critical),
        (true, _) => ("QUARANTINE", Tone::Warning),
        (false, Clean::Unknown) => ("UNKNOWN", Tone::Warning),
        (false, Clean::No | Clean::Yes) => ("NOT CLEAN", Tone::Warning),
    }
}

fn claims_of(row: &UncleanRow) -> String {
    let names = row.volumes.iter().map(|it| first_known(&it.claim, &it.volume));
    names.collect::<Vec<_>>().join(", ")
}

fn unclean_why(row: &UncleanRow) -> String {
    let why = without_paths(&row.message, &row.volumes);
    // The row has the claim.
    let why = match why.split_once(": ") {
        Some((claim, rest)) if claim == claims_of(row) => rest.to_owned(),
        _ => why,
    };
    let advice = if row.message.is_empty() { "" } else { row.advice };
    sentences(&[&why, &used_by(row.used_by()), row.report.mark(), advice])
}

fn marked(text: &str, report: &Report) -> String {
    match report.mark() {
        "" => text.to_owned(),
        mark => format!("{text}; {mark}"),
    }
}

const MODELS: [Column<ModelRow>; 7] = [
    column("MODEL", 16, 0, |it, _| strong(or_dash(it.model.trim()))),
    column("FIRMWARE", 0, 0, |it, _| plain(or_dash(&it.firmware))),
    column("KIND", 0, 0, |it, _| plain(or_dash(&it.kind))),
    column("DRIVES", 0, 0, |it, _| plain(it.drives)),
    column("BAD", 0, 0, |it, _| unless_zero(it.bad, Tone::Critical)),
    column("SUSPECT", 0, 0, |it, _| unless_zero(it.suspect, Tone::Warning)),
    column("NODES", 0, 1, |it, _| plain(it.nodes)),
];

pub(crate) fn models(rows: &[ModelRow], wide: bool, screen: &Screen) -> String {
    shown(&MODELS, rows, wide, screen)
}

/// In this tone, unless it is zero.
fn unless_zero(count: u64, tone: Tone) -> Cell {
    toned((count, if count > 0 { tone } else { Tone::Plain }))
}

const ATTACHMENTS: [Column<AttachmentRow>; 7] = [
    column("NODE", 12, 0, |it, _| strong(or_dash(&it.node))),
    column("POD", 16, 0, |it, _| plain(pod(&it.pod, &it.pod_uid))),
    column("STATE", 0, 0, |it, _| toned(state(it))),
    column("EVIDENCE", 0, 3, |it, _| plain(or_dash(it.evidence))),
    column("SINCE", 0, 4, |it, screen| plain(ago(it.since, screen))),
    column("PATH", 24, 2, |it, _| plain(or_dash(&it.path))),
    column("WHY", 16, 1, |it, _| toned((&it.why, state(it).1))),
];

fn pod(name: &str, uid: &str) -> String {
    match (name, uid) {
        ("", "") => "-".to_owned(),
        ("", uid) => format!("uid {uid}"),
        (pod, _) => pod.to_owned(),
    }
}

fn state(row: &AttachmentRow) -> (&'static str, Tone) {
    match row.state {
        State::Expected => ("expected", Tone::Plain),
        State::Stale => ("STALE", Tone::Critical),
        State::Held => ("HELD", Tone::Critical),
        State::Unknown => ("unknown", Tone::Warning),
    }
}

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
    let mut text = label_value_lines(&head);
    text.push('\n');
    text.push_str(&match view.attachments.is_empty() {
        true if view.gaps.is_empty() => "no pod uses it, and no node has it mounted\n".to_owned(),
        true => "no mount is known, but not everything was seen\n".to_owned(),
        false => shown(&ATTACHMENTS, &view.attachments, wide, screen),
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
