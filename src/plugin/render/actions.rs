//! Actions, policies and retained volumes for people. Pure. The names of drives and the evidence come
//! from nodes: they are escaped.

use std::collections::BTreeMap;

use crate::render::{ago, first_known, shown};
use crate::view::actions::{ActionRow, Block, Line, PolicyRow, State, time_left};
use crate::view::retained::RetainedRow;
use diskvitals_cluster::gate::Gate;
use diskvitals_cluster::storage_action::{CLAIM_DELETED, CONFIRMED, POD_EVICTED, PREPARED};
use diskvitals_terminal::layout::{heading, label_value_lines, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, escape_control, or_dash, span};
use diskvitals_terminal::table::{Column, column, plain, strong, toned, wide_column};
use diskvitals_text::naming::slot_name;

/// What happens with an approved action, in order.
const STEPS: [&str; 8] = [
    "The controller has proposed the action, with the evidence above.",
    "You approve it: for one hour, and for this evidence only.",
    "The controller confirms on the node and in the cluster that nothing has changed: the same boot, the drive gone and nowhere else, the pod not Ready, enough members of the group Ready, room on another node.",
    "The PersistentVolume is set to Retain, so that nobody wipes a disk that may still be saved.",
    "The PersistentVolumeClaim is deleted by its uid. From here on there is no way back.",
    "The pod is evicted through the Eviction API, which observes PodDisruptionBudgets.",
    "The StatefulSet makes a new claim, bound to an empty volume on another node.",
    "The new pod is Ready. The old volume stays until a person deletes it.",
];
const WHERE: &str = "The controller carries out steps 4 to 8 in the namespaces that it is given (fleet.carryOut.namespaces of the chart). Elsewhere it stops after step 3: the action then names the commands of steps 4 to 6, and a person runs them.";
const WAY_BACK: &str = "Nothing is lost yet. To stop it, suspend the policy; to end it, take the label off the claim (docs/remediation.md). The volume is then put back as it was.";
const NO_WAY_BACK: &str =
    "The claim is deleted: nothing undoes that. The old volume is retained, with its data.";
const NEVER: &str = "The controller never force-deletes a pod, never deletes a PersistentVolume or a VolumeAttachment, never sets the out-of-service taint, and deletes no claim when something contradicts the evidence.";

fn state(row: &ActionRow) -> (&'static str, Tone) {
    match row.state {
        State::Waiting => ("waits for approval", Tone::Warning),
        State::Stuck => ("STUCK", Tone::Critical),
        State::ByHand => ("to be done by hand", Tone::Warning),
        State::Running => ("under way", Tone::Strong),
        State::Approved => ("approved", Tone::Strong),
        State::ApprovalInvalid => ("approval invalid", Tone::Warning),
        State::Unknown => ("unknown", Tone::Warning),
        State::Replaced => ("replaced", Tone::Good),
        State::Aborted => ("aborted", Tone::Plain),
        State::Rejected => ("rejected", Tone::Plain),
    }
}

fn approval(row: &ActionRow, screen: &Screen) -> String {
    let by = match (row.approved_by.as_str(), row.approved_at) {
        ("", _) => return String::new(),
        (name, at) => format!("{name}, {}", ago(at, screen)),
    };
    match (row.state, time_left(row, screen.now)) {
        (State::Approved, Some(left)) => format!("{by}; valid for {}", span(left)),
        (State::ApprovalInvalid, _) => format!("{by}: {}", row.why),
        _ => by,
    }
}

/// `NotApproved` is what waiting means.
fn gate(row: &ActionRow) -> Option<&Block> {
    let block = row.blocked_by.as_ref();
    block.filter(|it| it.gate != Gate::NotApproved.name())
}

const ACTIONS: [Column<ActionRow>; 16] = [
    column("NAMESPACE", 10, 0, |it, _| plain(&it.namespace)),
    column("ACTION", 0, 0, |it, _| strong(&it.name)),
    column("STATE", 0, 0, |it, _| toned(state(it))),
    column("CLAIM", 12, 3, |it, _| plain(&it.claim)),
    column("POD", 12, 4, |it, _| plain(&it.pod)),
    column("NODE", 12, 0, |it, _| plain(&it.node)),
    column("DRIVE", 0, 1, |it, _| plain(first_known(&it.drive.serial, &it.drive.id))),
    column("SLOT", 0, 2, |it, _| plain(slot_name(&it.drive.slot))),
    column("REASON", 12, 6, |it, _| plain(&it.reason)),
    column("SINCE", 0, 7, |it, screen| plain(ago(it.since, screen))),
    column("STEP", 0, 8, |it, _| plain(or_dash(&it.step))),
    column("HELD BY", 0, 0, |it, _| plain(gate(it).map_or("", |block| &block.gate))),
    column("APPROVAL", 16, 5, |it, screen| plain(approval(it, screen))),
    wide_column("TYPE", |it, _| plain(&it.kind)),
    wide_column("MODEL", |it, _| plain(it.drive.model.trim())),
    wide_column("POLICY", |it, _| plain(&it.policy)),
];

pub(crate) fn actions(rows: &[ActionRow], wide: bool, screen: &Screen) -> String {
    shown(&ACTIONS, rows, wide, screen)
}

/// Each gate of the rows once, in words; and how to go on.
pub(crate) fn legend(rows: &[ActionRow], screen: &Screen) -> String {
    let mut gates: BTreeMap<&str, &Block> = BTreeMap::new();
    gates.extend(rows.iter().filter_map(gate).map(|it| (it.gate.as_str(), it)));
    let mut text = String::new();
    for block in gates.values() {
        text.push('\n');
        text.push_str(&held(block, screen));
    }
    let is_explained = |row: &&ActionRow| {
        !row.why.is_empty()
            && match row.state {
                State::Stuck | State::ByHand | State::Approved => true,
                State::Running => gate(row).is_none(),
                _ => false,
            }
    };
    for row in rows.iter().filter(is_explained) {
        let why = format!("{}: {}: {}", row.name, state(row).0, row.why);
        text.push('\n');
        text.push_str(&wrapped(&why, "", screen));
    }
    if rows.iter().any(|row| row.state == State::Waiting) {
        text.push_str("\nshow one with its evidence: kubectl diskvitals actions ACTION\n");
    }
    text
}

fn held(block: &Block, screen: &Screen) -> String {
    let text = format!("{}: {} {}", block.gate, block.meaning, block.advice);
    wrapped(&text, "", screen)
}

/// One action with everything that a person needs for a decision.
pub(crate) fn action(row: &ActionRow, screen: &Screen) -> String {
    let (word, tone) = state(row);
    let lines = [
        ("action", format!("{}/{}", row.namespace, row.name)),
        ("type", row.kind.clone()),
        (
            "state",
            match (row.state, row.why.as_str()) {
                (_, "") => word.to_owned(),
                (_, why) => format!("{word}: {why}"),
            },
        ),
        ("claim", row.claim.clone()),
        ("volume", row.volume.clone()),
        ("pod", row.pod.clone()),
        ("node", row.node.clone()),
        ("group", row.group.clone()),
        ("drive", drive(row)),
        (
            "finding",
            match row.reason.as_str() {
                "" => String::new(),
                reason => format!("{reason} ({})", ago(row.since, screen)),
            },
        ),
        ("policy", row.policy.clone()),
        ("proposed", ago(row.created, screen)),
        ("step", row.step.clone()),
        (
            "held by",
            gate(row).map_or_else(String::new, |it| {
                format!("{}: {} {}", it.gate, it.meaning, it.advice)
            }),
        ),
        (if row.state == State::Rejected { "rejected" } else { "approved" }, approval(row, screen)),
        ("note", row.note.clone()),
    ];
    let lines = lines.map(|(label, text)| (label, escape_control(&text)));
    let mut text = label_value_lines(&lines);
    if tone == Tone::Critical {
        text.push_str(&wrapped(
            "A stuck action waits for a person: docs/remediation.md has the runbook.",
            "",
            screen,
        ));
    }
    let title = match row.has_new_evidence {
        true => "evidence (no longer that of the proposal)",
        false => "evidence",
    };
    text.push_str(&format!("\n{}", heading(title, screen)));
    match row.evidence.is_empty() {
        true => text.push_str("  none\n"),
        false => {
            for line in &row.evidence {
                text.push_str(&wrapped(&screen.local_times(line), "  ", screen));
            }
        }
    }
    if !row.steps.is_empty() {
        text.push_str(&format!("\n{}", heading("steps", screen)));
        for Line { time, text: step } in &row.steps {
            let line = format!("{}  {}", ago(*time, screen), screen.local_times(step));
            text.push_str(&wrapped(&line, "  ", screen));
        }
    }
    match row.state {
        State::Waiting => text.push_str(&what_follows(screen)),
        State::Running => text.push_str(&what_is_left(row, screen)),
        _ => {}
    }
    text
}

fn drive(row: &ActionRow) -> String {
    let drive = &row.drive;
    let parts = [
        drive.model.trim().to_owned(),
        match drive.serial.as_str() {
            "" => String::new(),
            serial => format!("serial {serial}"),
        },
        match slot_name(&drive.slot) {
            "" => String::new(),
            slot => format!("slot {slot}"),
        },
        drive.id.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
    parts.join(", ")
}

fn what_follows(screen: &Screen) -> String {
    let mut text = steps_after(0, "what an approval starts", screen);
    text.push_str(&wrapped(WHERE, "  ", screen));
    text.push_str(&wrapped(NEVER, "  ", screen));
    text
}

fn what_is_left(row: &ActionRow, screen: &Screen) -> String {
    let (done, way_back) = match row.step.as_str() {
        CLAIM_DELETED => (5, NO_WAY_BACK),
        POD_EVICTED => (6, NO_WAY_BACK),
        PREPARED => (4, WAY_BACK),
        CONFIRMED => (3, WAY_BACK),
        // Of a newer version, perhaps.
        _ => return String::new(),
    };
    let mut text = steps_after(done, "what is left to do", screen);
    text.push_str(&wrapped(way_back, "  ", screen));
    text
}

fn steps_after(done: usize, title: &str, screen: &Screen) -> String {
    let mut text = format!("\n{}", heading(title, screen));
    for (at, step) in STEPS.iter().enumerate().skip(done) {
        text.push_str(&wrapped(&format!("{}. {step}", at + 1), "  ", screen));
    }
    text
}

/// What a person reads last before the question.
pub(crate) fn consequence(row: &ActionRow, screen: &Screen) -> String {
    let text = format!(
        "If the controller carries out actions in this namespace, the claim {}/{} is deleted. Nothing undoes that.",
        row.namespace, row.claim
    );
    wrapped(&text, "", screen)
}

/// One line for each policy.
pub(crate) fn policies(rows: &[PolicyRow], screen: &Screen) -> String {
    let mut text = String::new();
    for row in rows {
        let mut parts = vec![format!("policy {} ({})", row.name, row.mode)];
        if row.suspended {
            parts.push("suspended".to_owned());
        }
        match &row.unknown {
            Some(why) => parts.push(why.clone()),
            None => parts.push(match row.mode.as_str() {
                "Observe" => format!("would release {}", claims(row.would_act)),
                _ => format!("{} may be released now", claims(row.would_act)),
            }),
        }
        if !row.blocked.is_empty() && row.unknown.is_none() {
            let gates = row.blocked.iter();
            let gates: Vec<String> = gates.map(|it| format!("{} {}", it.gate, it.count)).collect();
            parts.push(format!("held back: {}", gates.join(", ")));
        }
        if row.breaker.is_some() {
            parts.push(breaker(row, screen));
        }
        text.push_str(&wrapped(&parts.join("; "), "", screen));
    }
    text
}

fn claims(count: u32) -> String {
    diskvitals_terminal::layout::counted(count.into(), "claim")
}

/// `breaker OPEN for 3 h ago (ManyDrives): 7 drives …`
pub(crate) fn breaker(row: &PolicyRow, screen: &Screen) -> String {
    let Some(open) = &row.breaker else {
        return "breaker closed".to_owned();
    };
    let message = match open.message.as_str() {
        "" => String::new(),
        message => format!(": {}", screen.local_times(message)),
    };
    let since = ago(open.since, screen);
    format!("breaker OPEN, opened {since} by {}{message}", open.opener)
}

const RETAINED: [Column<RetainedRow>; 9] = [
    column("NODE", 12, 0, |it, _| plain(or_dash(&it.node))),
    column("VOLUME", 16, 0, |it, _| strong(&it.volume)),
    column("DRIVE", 12, 0, |it, _| plain(or_dash(&it.drives.join(", ")))),
    column("DRIVE STATE", 12, 1, |it, _| plain(&it.drive_state)),
    column("NAMESPACE", 10, 4, |it, _| plain(or_dash(&it.namespace))),
    column("CLAIM", 12, 2, |it, _| plain(or_dash(&it.claim))),
    column("SINCE", 0, 3, |it, screen| plain(ago(it.since, screen))),
    column("RECLAIM", 0, 5, |it, _| plain(or_dash(&it.reclaim_policy))),
    wide_column("ACTION", |it, _| plain(&it.action)),
];

pub(crate) fn retained(rows: &[RetainedRow], wide: bool, screen: &Screen) -> String {
    let mut text = shown(&RETAINED, rows, wide, screen);
    text.push_str(&wrapped(
        "Nothing deletes them. When the data is no longer needed: kubectl delete pv VOLUME (docs/remediation.md).",
        "",
        screen,
    ));
    text
}
