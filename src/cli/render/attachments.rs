//! Attachments of volumes as a table, and the steps of a clean-up.

use crate::api::wire;
use crate::api::wire::cleanup_step::State;
use crate::cli::screen::{Screen, Tone, escape_control, or_dash};
use crate::cli::table::{Column, column, table as layout};

const COLUMNS: [Column; 6] = [
    column("PATH", 24, 0),
    column("VOLUME", 16, 2),
    column("ROLE", 0, 4),
    column("POD", 16, 3),
    column("SINCE", 0, 5),
    column("STALE", 24, 1),
];

pub(crate) fn table(attachments: &[wire::Attachment], screen: &Screen) -> String {
    if attachments.is_empty() {
        return "nothing is left over\n".to_owned();
    }
    let rows: Vec<Vec<(String, Tone)>> = attachments
        .iter()
        .map(|attachment| row(attachment, screen))
        .collect();
    layout(&COLUMNS, &rows, screen)
}

fn row(attachment: &wire::Attachment, screen: &Screen) -> Vec<(String, Tone)> {
    let role = match attachment.role() {
        wire::MountRole::Staging => "staging",
        wire::MountRole::Pod => "pod",
        _ => "",
    };
    let pod = match attachment.pod_name.as_str() {
        "" => attachment.pod_uid.clone(),
        name => format!("{}/{name}", attachment.pod_namespace),
    };
    vec![
        (attachment.path.clone(), Tone::Strong),
        (owner(attachment), Tone::Plain),
        (role.to_owned(), Tone::Plain),
        (or_dash(&pod).to_owned(), Tone::Plain),
        (screen.ago(attachment.since.as_ref()), Tone::Plain),
        (attachment.stale.clone(), Tone::Warning),
    ]
}

/// The record that named the volume may be gone, and with it everything but what lies there.
fn owner(attachment: &wire::Attachment) -> String {
    match (attachment.driver.as_str(), attachment.handle.as_str()) {
        ("", _) | (_, "") => or_dash(&attachment.volume_id).to_owned(),
        (driver, handle) => format!("{driver}/{handle}"),
    }
}

/// `asked`: as the volume was named; `commit`: it was to be done.
pub(crate) fn cleanup(
    answer: &wire::ForceCleanupResponse,
    asked: &str,
    commit: bool,
    screen: &Screen,
) -> String {
    let mut text = String::new();
    for step in &answer.steps {
        let (word, tone) = match (step.state(), commit) {
            (State::Done, _) => ("done", Tone::Good),
            (State::Failed, _) => ("FAILED", Tone::Critical),
            (_, true) => ("not done", Tone::Warning),
            (_, false) => ("would", Tone::Plain),
        };
        let detail = if step.detail.is_empty() {
            String::new()
        } else {
            format!(": {}", escape_control(&step.detail))
        };
        text.push_str(&format!(
            "{} {} {}{detail}\n",
            screen.paint(tone, format!("{word:8}")),
            escape_control(&step.action),
            escape_control(&step.path)
        ));
    }
    let left = answer
        .steps
        .iter()
        .any(|step| !matches!(step.state(), State::Done));
    match (commit, left) {
        (false, _) => text.push_str(&format!(
            "nothing has been done; to do it: diskvitals cleanup {} --yes\n",
            escape_control(asked)
        )),
        (true, true) => text.push_str(
            "not all of it is done; what goes on, and how it ends, is in the daemon's log\n",
        ),
        (true, false) => {}
    }
    text
}
