//! Whether a drive can be pulled: the drive as people recognize it, the answer, what stands against it.

use crate::render::{drives, lamps};
use diskvitals_terminal::layout::{heading, label_value_lines, labelled, wrapped};
use diskvitals_terminal::screen::{Screen, Tone, bytes, escape_control, or_dash};
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;

const COMPARE: &str = "Before you pull it, compare the serial on its label with this one.";

pub(crate) fn text(removal: &wire::Removal, screen: &Screen) -> String {
    let drive = removal.drive.clone().unwrap_or_default();
    let location = drive.location.clone().unwrap_or_default();
    let (word, tone) = match removal.answer() {
        wire::removal::Answer::Yes => ("yes", Tone::Good),
        wire::removal::Answer::No => ("no", Tone::Critical),
        wire::removal::Answer::NotKnown | wire::removal::Answer::Unspecified => {
            ("not known", Tone::Warning)
        }
    };
    let slot = match location.slot.as_str() {
        "" => location.path.clone(),
        slot => format!("enclosure {}, slot {}", or_dash(&location.enclosure), slot_name(slot)),
    };
    let mut lines = vec![
        ("can be pulled", screen.paint(tone, word)),
        ("name", escape_control(&drive.name)),
        ("model", escape_control(format!("{} {}", drive.vendor, drive.model).trim())),
        ("serial", escape_control(&drive.serial)),
        ("slot", escape_control(&slot)),
        ("lamp lit", drive.lamp.as_ref().map(|it| lamps::words(it, screen)).unwrap_or_default()),
        ("kind", format!("{}, {}", drives::kind(&drive), bytes(drive.size_bytes))),
    ];
    for (label, values) in [("volumes", &drive.volume_ids), ("member of", &drive.member_of)] {
        lines.extend(labelled(label, values.iter().map(|it| escape_control(it))));
    }
    let objections = removal.objections.iter().map(|it| screen.message(&it.text));
    lines.extend(labelled("because", objections));
    let mut text = heading(&format!("drive {}", escape_control(&drive.id)), screen);
    text.push_str(&label_value_lines(&lines));
    text.push_str(&format!("{COMPARE}\n"));
    if let Some(next) = &removal.step {
        text.push_str(&format!("\n{}", step(next, screen)));
    }
    text
}

/// `NEXT type:`, then what to know of the new drive, and the commands as they are typed.
pub(crate) fn step(step: &wire::ReplacementStep, screen: &Screen) -> String {
    use wire::replacement_step::Kind;
    let (word, tone) = match step.kind() {
        Kind::PutBack => ("put back the other drive", Tone::Critical),
        Kind::NotKnown | Kind::Unspecified => ("find out", Tone::Warning),
        Kind::Save => ("save what is on it", Tone::Critical),
        Kind::Insert => ("insert the new drive", Tone::Good),
        Kind::Unfit => ("take another drive", Tone::Critical),
        Kind::Type => ("read, then type", Tone::Good),
        Kind::Wait => ("wait", Tone::Warning),
        Kind::Pull => ("pull the drive", Tone::Good),
        Kind::Done => ("done", Tone::Good),
    };
    let mut text = format!("NEXT {}\n", screen.paint(tone, word));
    text.push_str(&wrapped(&step.text, "    ", screen));
    for warning in &step.warnings {
        text.push_str(&wrapped(&format!("Note: {warning}."), "    ", screen));
    }
    for command in &step.commands {
        text.push_str(&format!("\n      {}\n", escape_control(command)));
    }
    text
}
