//! Output for monitoring systems: states, figures, hostile names.

use super::*;
use crate::render::{checkmk, nagios};

struct Node {
    node: wire::Node,
    drives: Vec<wire::Drive>,
    volumes: Vec<wire::Volume>,
    causes: Vec<wire::Cause>,
    findings: Vec<wire::Finding>,
}

impl Node {
    fn view(&self) -> StatusView<'_> {
        StatusView {
            node: &self.node,
            drives: &self.drives,
            volumes: &self.volumes,
            findings: &self.findings,
            causes: Some(&self.causes),
        }
    }
}

fn answered(drive: &mut wire::Drive, state: wire::smart::State) {
    drive.smart = Some(wire::Smart {
        state: state.into(),
        answered: before(20),
        temperature_celsius: Some(38),
        wear_percent: Some(97),
        values: vec![wire::SmartValue {
            metric: "pending".into(),
            value: 24,
            ..Default::default()
        }],
        ..Default::default()
    });
}

fn node() -> Node {
    let mut good = drive("sda", wire::Health::Good);
    answered(&mut good, wire::smart::State::Answered);
    let mut silent = drive("sdb", wire::Health::Unknown);
    answered(&mut silent, wire::smart::State::Failed);
    silent.health_unknown_why = "smartctl did not answer".into();
    let mut acknowledged = drive("sdc", wire::Health::Bad);
    acknowledged.findings =
        vec![wire::Finding { acknowledged: Some(wire::Acknowledgement::default()), ..finding() }];
    let mut mounted = volume(wire::Health::Good, Vec::new());
    mounted.driver.clear();
    mounted.pods.clear();
    mounted.usage =
        Some(wire::Usage { used_bytes: 40 << 30, available_bytes: 60 << 30, ..Default::default() });
    Node {
        node: wire::Node { settled: true, health: wire::Health::Bad.into(), ..Default::default() },
        drives: vec![good, silent, acknowledged],
        volumes: vec![mounted, volume(wire::Health::Bad, vec![finding()])],
        findings: vec![finding(), finding()],
        causes: vec![
            causes::cause("sdc", wire::Severity::Bad, 2),
            causes::cause("sdd", wire::Severity::Suspect, 1),
        ],
    }
}

#[test]
fn nagios_has_a_line_with_data_and_a_line_for_each_cause() {
    insta::assert_snapshot!(nagios::output(&node().view()));
    insta::assert_snapshot!(nagios::unknown("no diskvitalsd | at\n/x"), @r"DISKVITALS UNKNOWN - no diskvitalsd \u{7c} at\n/x");
}

#[test]
fn checkmk_has_a_line_for_the_node_each_drive_and_each_volume() {
    insta::assert_snapshot!(checkmk::output(&node().view()));
    insta::assert_snapshot!(checkmk::unknown("no\ndiskvitalsd"), @r#"3 "diskvitals node" - no/ndiskvitalsd"#);
}

#[test]
fn hostile_names_do_not_leave_their_place() {
    let hostile = "a|b'c\"=d\n2 \"fake\" - x\u{1b}[2J\u{202e};`$";
    let mut node = node();
    node.drives[0].name = hostile.into();
    node.drives[1].id = hostile.into();
    node.volumes[0].mounts[0].path = format!("/{hostile}");
    node.causes[0].name = hostile.into();
    node.causes[0].action = hostile.into();
    node.drives[1].health_unknown_why = hostile.repeat(400);
    let text = nagios::output(&node.view());
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(text.matches('|').count(), 1, "{text}");
    let data = text.lines().next().unwrap().split('|').nth(1).unwrap();
    for entry in data.trim().split(" '").skip(1) {
        assert_eq!(entry.matches('\'').count(), 1, "{entry}");
        assert_eq!(entry.matches('=').count(), 1, "{entry}");
    }
    let text = checkmk::output(&node.view());
    assert_eq!(text.lines().count(), 6, "{text}");
    for line in text.lines() {
        let parts: Vec<&str> = line.splitn(3, '"').collect();
        assert!(parts[2].starts_with(' ') && !parts[1].contains('\''), "{line}");
        assert!(["0 ", "1 ", "2 ", "3 "].contains(&parts[0]), "{line}");
        assert!(!line.contains('\\') && !line.chars().any(char::is_control), "{line}");
    }
    assert!(text.len() < 4000, "{}", text.len());
}

#[test]
fn a_figure_without_a_current_reading_is_unknown() {
    let node = node();
    let text = nagios::output(&node.view());
    assert!(text.contains("'sdb_temperature'=U;") && text.contains("'sda_temperature'=38;"));
    assert!(!text.contains("sdc_"), "it was never queried: {text}");
    let text = checkmk::output(&node.view());
    let silent = text.lines().find(|line| line.contains("nguid.sdb")).unwrap();
    assert!(silent.starts_with("3 ") && silent.contains("\" - "), "{silent}");
}
