//! The screen of `status --watch`: heights, widths, old states, hostile names.

use std::collections::BTreeMap;

use super::*;
use crate::render::live::position::Position;
use crate::render::live::{IoRate, LiveView, Outage, lines};
use diskvitals_host::terminal::Key;
use diskvitals_terminal::width::columns;

struct Node {
    node: wire::Node,
    drives: Vec<wire::Drive>,
    causes: Vec<wire::Cause>,
    findings: Vec<wire::Finding>,
    checks: Vec<wire::Check>,
    io: BTreeMap<String, IoRate>,
    outage: Option<Outage>,
}

fn disk(name: &str, health: wire::Health) -> wire::Drive {
    let mut disk = drive(name, health);
    disk.smart = Some(wire::Smart {
        temperature_celsius: Some(38),
        wear_percent: Some(97),
        answered: before(20),
        self_tests: (name == "sdb").then(|| wire::SelfTests {
            running_remaining_percent: Some(60),
            long_minutes: 200,
            requested: Some(wire::SelfTestRequest {
                kind: wire::SelfTestKind::Long.into(),
                started: true,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    disk
}

fn node() -> Node {
    let rate = |requests: u64, latency_ms, waits| IoRate {
        read: requests * 4096,
        written: 0,
        requests,
        latency_ms,
        waits,
    };
    let mut gone = drive("sdc", wire::Health::Bad);
    gone.presence = wire::Presence::Missing.into();
    let running = wire::Check {
        target: "fs:u".into(),
        state: wire::check::State::Running.into(),
        phase: "Pass 2".into(),
        started: before(65),
        progress: Some(wire::RunProgress {
            percent: Some(37),
            remaining: Some(prost_types::Duration { seconds: 130, nanos: 0 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    Node {
        node: wire::Node {
            name: "node1".into(),
            kernel: "6.12.0".into(),
            version: "0.1.0".into(),
            started: before(4000),
            settled: true,
            health: wire::Health::Bad.into(),
            store: "ok".into(),
            ..Default::default()
        },
        drives: vec![disk("sda", wire::Health::Good), disk("sdb", wire::Health::Good), gone],
        causes: vec![
            causes::cause("sdc", wire::Severity::Bad, 2),
            causes::cause("sdd", wire::Severity::Suspect, 1),
        ],
        findings: vec![finding(), finding()],
        checks: vec![running],
        io: BTreeMap::from([
            ("nguid.sda".to_owned(), rate(1200, Some(1.23), false)),
            ("nguid.sdb".to_owned(), rate(0, None, true)),
        ]),
        outage: None,
    }
}

fn shown(of: &Node, width: u16, height: u16) -> Vec<String> {
    shown_at(of, &mut Position::default(), width, height)
}

fn shown_at(of: &Node, position: &mut Position, width: u16, height: u16) -> Vec<String> {
    let view = LiveView {
        status: StatusView {
            node: &of.node,
            drives: &of.drives,
            volumes: &[],
            findings: &of.findings,
            causes: Some(&of.causes),
        },
        checks: &of.checks,
        io: &of.io,
        outage: of.outage.as_ref(),
    };
    lines(&view, position, &screen(Some(width)), Some(height))
}

#[test]
fn a_screen_with_space_shows_everything() {
    insta::assert_snapshot!(shown(&node(), 80, 40).join("\n"));
}

#[test]
fn a_low_screen_counts_what_does_not_fit_and_keeps_the_causes() {
    insta::assert_snapshot!(shown(&node(), 80, 14).join("\n"));
    for height in 1..40 {
        let lines = shown(&node(), 80, height);
        assert!(lines.len() <= usize::from(height), "{height}: {lines:#?}");
    }
    let few = shown(&node(), 80, 6).join("\n");
    assert!(few.contains("sdc  slot 00") && few.contains("CRITICAL"), "{few}");
}

#[test]
fn an_old_state_is_marked_as_old() {
    let mut node = node();
    node.io.clear();
    node.outage = Some(Outage {
        since: before(12).unwrap(),
        why: "connecting to /run/x.sock: Connection refused".into(),
    });
    insta::assert_snapshot!(shown(&node, 60, 40).join("\n"));
}

#[test]
fn hostile_and_wide_names_stay_in_their_columns() {
    let mut node = node();
    node.node.name = "备份\u{1b}[2J\u{202e}".repeat(50);
    node.drives[0].name = "盘\r\n🙂e\u{301}".into();
    node.drives[1].model = "x\u{200b}".repeat(4096);
    node.causes[0].name = "卷".repeat(400);
    node.checks[0].target = "\u{7}/卷".repeat(300);
    for width in [1, 10, 40, 80, 120, 200] {
        for line in shown(&node, width, 30) {
            assert!(columns(&line) <= usize::from(width), "{width}: {line}");
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line}");
        }
    }
}

#[test]
fn every_line_is_reached_by_scrolling_and_a_cause_is_shown_in_full() {
    let mut node = node();
    node.findings[0].id = node.causes[0].findings[0].finding_id.clone();
    let whole = shown(&node, 80, 200);
    let mut position = Position::default();
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..20 {
        seen.extend(shown_at(&node, &mut position, 80, 10));
        position.apply(Key::PageDown, &node.causes, 7);
    }
    for line in &whole {
        assert!(seen.contains(line), "{line}");
    }
    position.apply(Key::Home, &node.causes, 7);
    position.apply(Key::Down, &node.causes, 7);
    let selected = shown_at(&node, &mut position, 80, 30).join("\n");
    assert!(selected.contains("\n> sdc  slot 00"), "{selected}");
    position.apply(Key::Enter, &node.causes, 7);
    insta::assert_snapshot!(shown_at(&node, &mut position, 80, 40).join("\n"));
    for width in [10, 40, 200] {
        for line in shown_at(&node, &mut position, width, 12) {
            assert!(columns(&line) <= usize::from(width), "{width}: {line}");
        }
    }
}
