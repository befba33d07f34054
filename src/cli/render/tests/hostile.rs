//! Every text field of every answer is hostile, and no screen, page or line shows it as it is.

use prost_reflect::prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use crate::answers::Answers;
use crate::json;
use crate::render::{
    attachments, causes, checkmk, checks, drives, explain, findings, nagios, reasons, smart,
    status, volumes,
};
use crate::report::{page, text};
use diskvitals_terminal::fixture::screen;
use diskvitals_text::echo::{Shown, is_deceptive};
use diskvitals_wire as wire;

/// A line break, colors, the name of the field, a title of the terminal, text that turns around,
/// invisible text.
fn hostile(field: &str) -> String {
    format!("x\n\u{1b}[31mEVIL {field}<\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{2066}\u{200b}y")
}

/// Messages contain themselves (a node of a chain, a finding of a cause).
const MAX_DEPTH: usize = 5;

fn filled<M: Message + Default>(name: &str) -> M {
    let pool = json::descriptor(name).expect("known");
    let message = fill(&pool, MAX_DEPTH);
    message.transcode_to().expect("the same message")
}

fn fill(descriptor: &MessageDescriptor, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        // Of alternatives, the last one stays.
        if let Some(value) = value(&field, depth) {
            message.set_field(&field, value);
        }
    }
    message
}

fn value(field: &FieldDescriptor, depth: usize) -> Option<Value> {
    if field.is_map() {
        return None;
    }
    let one = match field.kind() {
        Kind::String => Value::String(hostile(field.full_name())),
        Kind::Bool => Value::Bool(true),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(7),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(7),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(7),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(7),
        Kind::Float => Value::F32(7.0),
        Kind::Double => Value::F64(7.0),
        Kind::Bytes => Value::Bytes(hostile(field.full_name()).into()),
        Kind::Enum(_) => Value::EnumNumber(2),
        Kind::Message(_) if depth == 0 => return None,
        Kind::Message(inner) => Value::Message(fill(&inner, depth - 1)),
    };
    Some(match field.is_list() {
        true => Value::List(vec![one]),
        false => one,
    })
}

#[test]
fn no_field_of_an_answer_controls_a_terminal_a_page_or_a_line() {
    let answers = Answers {
        version: hostile("version"),
        node: filled("Node"),
        drives: vec![filled("Drive")],
        volumes: vec![filled("Volume")],
        findings: vec![filled("Finding")],
        causes: Some(vec![filled("Cause")]),
        checks: vec![filled("Check")],
        attachments: vec![filled("Attachment")],
        reasons: vec![filled("ReasonText")],
        histories: vec![filled("SmartHistory")],
        explanations: vec![filled("Explanation")],
        gaps: vec![hostile("gap")],
        ..Answers::default()
    };
    let all: wire::Explanation = filled("Explanation");
    let view = status::StatusView {
        node: &answers.node,
        drives: &answers.drives,
        volumes: &answers.volumes,
        findings: &answers.findings,
        causes: answers.causes.as_deref(),
    };
    let mut raw = std::collections::BTreeSet::new();
    let (drive, cause) = (&answers.drives[0], &answers.causes.as_ref().unwrap()[0]);
    for width in [None, Some(40), Some(120)] {
        let screen = screen(width);
        let shown = [
            ("status", status::screen(&view, &screen)),
            ("drives", drives::table(&answers.drives, &screen)),
            ("drive", drives::one(drive, &screen)),
            ("smart", smart::attributes(drive, &screen)),
            ("volumes", volumes::table(&answers.volumes, &screen)),
            ("findings", findings::table(&answers.findings, &screen)),
            ("finding", findings::one(&answers.findings[0], &screen)),
            ("cause", causes::in_full(cause, &answers.findings, &screen)),
            ("checks", checks::table(&answers.checks, &screen)),
            ("check", checks::in_full(&answers.checks[0], &screen)),
            ("attachments", attachments::table(&answers.attachments, &screen)),
            ("explain", explain::tree(&all, &screen)),
            ("reason", reasons::one(&answers.reasons[0], &screen)),
            ("report", text::report(&answers, &screen)),
            ("page", page::report(&answers, &screen)),
            ("nagios", nagios::output(&view)),
            ("checkmk", checkmk::output(&view)),
        ];
        for (what, text) in shown {
            for part in text.split('\n').filter_map(|line| line.strip_prefix("\u{1b}[31mEVIL ")) {
                let field = part.split('<').next().unwrap_or_default();
                raw.insert(format!("{what}: {field}"));
            }
            let is_bad = |c: char| is_deceptive(c) && c != '\n';
            if text.chars().any(is_bad) {
                raw.insert(format!("{what}: {:?}", around(&text, is_bad)));
            }
        }
    }
    assert!(raw.is_empty(), "shown as they are:\n{}", Vec::from_iter(raw).join("\n"));
    let json = json::pretty("Node", &answers.node).expect("JSON");
    assert!(json.contains('\u{202e}'), "only the outlet escapes");
    assert!(!Shown::json(&json).as_str().contains('\u{202e}'));
}

fn around(text: &str, bad: impl Fn(char) -> bool) -> String {
    let at = text.find(bad).unwrap_or(0);
    let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
    text[from..].chars().take(90).collect()
}
