//! The answer of `doctor`: a line for each source and program.

use crate::doctor::{Diagnosis, Item, Kind, State};
use diskvitals_terminal::layout::{Part, heading, wrapped, wrapped_parts};
use diskvitals_terminal::screen::{Screen, Tone};

/// The daemon, its sources, the programs; those that nothing here needs on one line.
pub(crate) fn text(diagnosis: &Diagnosis, screen: &Screen) -> String {
    let shown: Vec<&Item> =
        diagnosis.items.iter().filter(|item| item.state != State::NotNeeded).collect();
    let widths = (
        shown.iter().map(|item| item.name.len()).max().unwrap_or(0),
        shown.iter().map(|item| word(item.state).0.len()).max().unwrap_or(0),
    );
    let mut text = String::new();
    for (kind, title) in
        [(Kind::Daemon, "daemon"), (Kind::Source, "sources"), (Kind::Tool, "programs")]
    {
        let of_kind: Vec<_> = shown.iter().filter(|item| item.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&heading(title, screen));
        for item in of_kind {
            text.push_str(&line(item, widths, screen));
        }
    }
    if !diagnosis.limitations.is_empty() {
        text.push_str(&format!("\n{}", heading("missing privileges", screen)));
        for limitation in &diagnosis.limitations {
            text.push_str(&wrapped(limitation, "", screen));
        }
    }
    let unneeded: Vec<&str> = diagnosis
        .items
        .iter()
        .filter(|item| item.state == State::NotNeeded)
        .map(|item| item.name.as_str())
        .collect();
    if !unneeded.is_empty() {
        text.push('\n');
        text.push_str(&wrapped(&format!("not needed here: {}", unneeded.join(", ")), "", screen));
    }
    text
}

fn line(item: &Item, (name_width, state_width): (usize, usize), screen: &Screen) -> String {
    let (state, tone) = word(item.state);
    let action = match item.action.as_str() {
        "" => String::new(),
        action => format!("; {action}"),
    };
    let parts = [
        Part::new("", format!("{:name_width$}", item.name), Tone::Strong),
        Part::new("  ", format!("{state:state_width$}"), tone),
        Part::new("  ", screen.message(&format!("{}{action}", item.detail)), Tone::Plain),
    ];
    wrapped_parts(&parts, "", &" ".repeat(name_width + state_width + 4), screen)
}

fn word(state: State) -> (&'static str, Tone) {
    match state {
        State::Works => ("works", Tone::Good),
        State::Limited => ("limited", Tone::Warning),
        State::Failed => ("FAILED", Tone::Critical),
        State::Absent => ("absent", Tone::Warning),
        State::TooOld => ("too old", Tone::Warning),
        State::TimedOut => ("TIMED OUT", Tone::Critical),
        State::NotUnderstood => ("not understood", Tone::Warning),
        State::NoPermission => ("no permission", Tone::Warning),
        State::NotNeeded => ("not needed", Tone::Faint),
        State::Unknown => ("UNKNOWN", Tone::Warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_terminal::fixture::screen;

    fn item(kind: Kind, name: &str, state: State, detail: &str, action: &str) -> Item {
        Item {
            kind,
            name: name.into(),
            state,
            detail: detail.into(),
            action: action.into(),
            is_problem: state != State::Works,
        }
    }

    #[test]
    fn each_source_and_program_has_its_state_its_reason_and_what_to_install() {
        let diagnosis = Diagnosis {
            items: vec![
                item(Kind::Daemon, "diskvitalsd", State::Works, "1.2.3", ""),
                item(Kind::Source, "udev", State::Works, "udev events", ""),
                item(Kind::Source, "kubelet", State::NotNeeded, "no kubelet here", ""),
                item(
                    Kind::Source,
                    "kernel-log",
                    State::Failed,
                    "reading /dev/kmsg: permission denied: its data is unknown",
                    "",
                ),
                item(
                    Kind::Tool,
                    "xfs_repair",
                    State::Absent,
                    "not installed: such filesystems cannot be checked",
                    "install xfsprogs",
                ),
                item(Kind::Tool, "zpool", State::NotNeeded, "there is no ZFS here", ""),
            ],
            limitations: vec!["not root: raw devices cannot be read".into()],
        };
        insta::assert_snapshot!(text(&diagnosis, &screen(Some(80))), @"
        daemon
        diskvitalsd  works   1.2.3

        sources
        udev         works   udev events
        kernel-log   FAILED  reading /dev/kmsg: permission denied: its data is unknown

        programs
        xfs_repair   absent  not installed: such filesystems cannot be checked; install
                            xfsprogs

        missing privileges
        not root: raw devices cannot be read

        not needed here: kubelet, zpool
        ");
    }

    #[test]
    fn text_of_others_cannot_control_the_terminal() {
        let detail = "a\u{1b}[2Jb";
        let items = vec![item(Kind::Tool, "smartctl", State::Failed, detail, "")];
        let shown = text(&Diagnosis { items, limitations: Vec::new() }, &screen(None));
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}
