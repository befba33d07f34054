//! Attachments of volumes as a table, and the steps of a clean-up.

use diskvitals_terminal::screen::{Screen, Tone, escape_control, or_dash};
use diskvitals_terminal::table::{Column, column, plain, strong, table as layout};
use diskvitals_wire as wire;
use diskvitals_wire::cleanup_step::State;

const COLUMNS: [Column<wire::Attachment>; 6] = [
    column("PATH", 24, 0, |it, _| strong(&it.path)),
    column("VOLUME", 16, 2, |it, _| plain(owner(it))),
    column("ROLE", 0, 4, |it, _| plain(role(it))),
    column("POD", 16, 3, |it, _| plain(or_dash(&pod(it)))),
    column("SINCE", 0, 5, |it, screen| plain(screen.ago(it.since.as_ref()))),
    column("STALE", 24, 1, |it, _| (it.stale.clone(), Tone::Warning)),
];

pub fn table(attachments: &[wire::Attachment], screen: &Screen) -> String {
    if attachments.is_empty() {
        return "no stale attachments\n".to_owned();
    }
    layout(&COLUMNS, attachments, screen)
}

fn role(attachment: &wire::Attachment) -> &'static str {
    match attachment.role() {
        wire::MountRole::Staging => "staging",
        wire::MountRole::Pod => "pod",
        _ => "",
    }
}

fn pod(attachment: &wire::Attachment) -> String {
    match attachment.pod_name.as_str() {
        "" => attachment.pod_uid.clone(),
        name => format!("{}/{name}", attachment.pod_namespace),
    }
}

/// The record that named the volume may no longer exist: then only the path is known.
fn owner(attachment: &wire::Attachment) -> String {
    match (attachment.driver.as_str(), attachment.handle.as_str()) {
        ("", _) | (_, "") => or_dash(&attachment.volume_id).to_owned(),
        (driver, handle) => format!("{driver}/{handle}"),
    }
}

/// `query`: the name that the user gave. `commit`: the steps were to be executed.
pub fn cleanup(
    answer: &wire::ForceCleanupResponse,
    query: &str,
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
        let detail = match step.detail.as_str() {
            "" => String::new(),
            detail => format!(": {}", escape_control(detail)),
        };
        text.push_str(&format!(
            "{} {} {}{detail}\n",
            screen.paint(tone, format!("{word:8}")),
            escape_control(&step.action),
            escape_control(&step.path)
        ));
    }
    let all_done = answer.steps.iter().all(|it| it.state() == State::Done);
    match (commit, !all_done) {
        (false, _) => text.push_str(&format!(
            "nothing has been done; to execute these steps: diskvitals cleanup {} --yes\n",
            escape_control(query)
        )),
        (true, true) => text
            .push_str("not all steps are done; the daemon's log shows how they continue and end\n"),
        (true, false) => {}
    }
    text
}
