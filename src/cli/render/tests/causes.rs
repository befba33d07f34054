//! Blocks of causes, and screens of many of them.

use super::*;
use crate::render::causes::block;

pub(super) fn cause(name: &str, severity: wire::Severity, hits: usize) -> wire::Cause {
    let finding = |reason: &str, figure: &str, grown_today| wire::CauseFinding {
        finding_id: format!("{reason}-{name}"),
        reason: reason.into(),
        severity: severity.into(),
        figure: figure.into(),
        grown_today,
        ..Default::default()
    };
    let hit = |n: usize| wire::CauseHit {
        kind: wire::cause_hit::Kind::Mount.into(),
        name: format!("/srv/bay{n}"),
        ..Default::default()
    };
    wire::Cause {
        id: format!("drive:{name}"),
        kind: wire::cause::Kind::Drive.into(),
        name: name.into(),
        slot: "00".into(),
        model: "INTEL SSDSC2KB960G8".into(),
        serial: "PHYF8421007W960CGN".into(),
        severity: severity.into(),
        counted: true,
        findings: vec![finding("SmartFailing", "", 0), finding("PendingSectors", "24", 8)],
        consequences: vec![finding("DriveFailing", "", 0)],
        hits: (0..hits).map(hit).collect(),
        message: "the drive reports that it fails".into(),
        action: "Replace it now. This host has no other copy of what is on it: save that first."
            .into(),
        explain: name.into(),
        ..Default::default()
    }
}

fn blocks(causes: &[wire::Cause], width: Option<u16>) -> String {
    let shown = causes.iter().map(|cause| block(cause, &[], &screen(width)));
    shown.collect()
}

#[test]
fn a_bad_cause_takes_four_lines_another_one_three_and_an_acknowledged_one_two() {
    let bad = cause("sda", wire::Severity::Bad, 2);
    insta::assert_snapshot!(blocks(std::slice::from_ref(&bad), Some(120)), @r#"
    sda  slot 00  INTEL SSDSC2KB960G8  PHYF8421007W960CGN  BAD  SmartFailing, PendingSectors (24, +8 today)
      hits /srv/bay0  /srv/bay1
      Replace it now. This host has no other copy of what is on it: save that first.
      diskvitals explain sda
    "#);
    insta::assert_snapshot!(blocks(std::slice::from_ref(&bad), Some(80)), @r#"
    sda  slot 00  PHYF8421007W960CGN  BAD  SmartFailing
      hits /srv/bay0  /srv/bay1
      Replace it now. This host has no other copy of what is on it: save that first.
      diskvitals explain sda  # also PendingSectors (24, +8 today)
    "#);
    let suspect = cause("sdb", wire::Severity::Suspect, 500);
    insta::assert_snapshot!(blocks(&[suspect], Some(80)), @r#"
    sdb  slot 00  PHYF8421007W960CGN  SUSPECT  SmartFailing, +1 more
      hits /srv/bay0  /srv/bay1  /srv/bay2  /srv/bay3  /srv/bay4  +495 more
      Replace it now. This host has no other copy of what is on it: save that first.
    "#);
    let mut acknowledged = cause("sdc", wire::Severity::Bad, 0);
    acknowledged.counted = false;
    for finding in &mut acknowledged.findings {
        finding.acknowledged = true;
    }
    // Who and why is in its findings.
    let finding = wire::Finding {
        id: "PendingSectors-sdc".into(),
        acknowledged: Some(wire::Acknowledgement {
            by: "root".into(),
            time: before(180),
            note: "the replacement is ordered".into(),
        }),
        ..Default::default()
    };
    insta::assert_snapshot!(block(&acknowledged, &[finding], &screen(Some(80))), @r#"
    sdc  slot 00  PHYF8421007W960CGN  acked  SmartFailing, +1 more
      Replace it now. This host has no other copy of what is on it: save that first.
      acknowledged by root, 3 min ago: the replacement is ordered
    "#);
}

#[test]
fn hostile_names_are_escaped_and_cut_and_many_causes_are_counted() {
    let hostile = format!("\u{1b}[31m\u{202e}\u{200b}<b>&{}", "x".repeat(4096));
    let mut one = cause(&hostile, wire::Severity::Bad, 3);
    (one.slot, one.model, one.serial) = (hostile.clone(), hostile.clone(), hostile.clone());
    (one.detail, one.message) = (hostile.clone(), hostile.clone());
    one.hits[1].name = hostile.clone();
    one.findings[0].reason = hostile.clone();
    for kind in [wire::cause::Kind::Drive, wire::cause::Kind::Mount] {
        one.kind = kind.into();
        for width in [Some(40), Some(80), Some(200), None] {
            let text = blocks(std::slice::from_ref(&one), width);
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{text}");
            assert!(text.lines().count() < 300, "{width:?}");
            if width.is_none() {
                assert_eq!(text.lines().count(), 4);
            }
        }
    }
    let many: Vec<wire::Cause> =
        (0..256).map(|n| cause(&format!("sd{n}"), wire::Severity::Bad, 500)).collect();
    let node = node(wire::Health::Bad);
    let view = StatusView {
        node: &node,
        drives: &[],
        volumes: &[],
        findings: &[finding()],
        causes: Some(&many),
    };
    for width in [Some(40), Some(80), None] {
        let text = status::screen(&view, &screen(width));
        assert!(text.contains("and 244 more causes (244 BAD): diskvitals findings"), "{text}");
        let limit = width.map_or(usize::MAX, usize::from);
        for line in text.lines().skip(3) {
            assert!(line.chars().count() <= limit.max(60), "{width:?}: {line}");
        }
    }
}
