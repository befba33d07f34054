//! What no recorded host has: hostile names, missing histories, lists that a bundle lacks.

use scraper::{Html, Selector};

use crate::answers::Answers;
use crate::report::{page, text};
use diskvitals_terminal::fixture::{before, screen};
use diskvitals_text::echo::is_deceptive;
use diskvitals_wire as wire;

/// Markup, quotes, control characters, text that turns around, invisible text, no characters, and 4 KiB.
fn hostile() -> String {
    format!(
        "<script>alert('x')</script>\"'><img src=http://example.org/x onerror=y>&amp;]]>--!>\u{1b}[31m\r\n\0\t\u{202e}evil\u{2066}\u{200b}\u{feff}\u{fffe}{}MARK",
        "名".repeat(1365)
    )
}

fn hostile_finding(id: &str, subject: wire::Subject) -> wire::Finding {
    wire::Finding {
        id: id.to_owned(),
        subject: Some(subject),
        severity: wire::Severity::Bad.into(),
        reason: hostile(),
        message: hostile(),
        since: before(100),
        evidence: vec![wire::Evidence {
            source: hostile(),
            time: before(100),
            text: format!("{}\nsecond line", hostile()),
            ..Default::default()
        }],
        clears_when: hostile(),
        acknowledged: Some(wire::Acknowledgement {
            by: hostile(),
            time: before(50),
            note: hostile(),
        }),
        action: hostile(),
        ..Default::default()
    }
}

fn hostile_answers() -> Answers {
    let subject = wire::Subject {
        kind: wire::SubjectKind::Drive.into(),
        id: "naa.5".to_owned(),
        name: hostile(),
    };
    let mut cleared = hostile_finding("f2", subject.clone());
    cleared.cleared = Some(wire::Cleared { time: before(10), why: hostile() });
    let finding = hostile_finding("f1", subject.clone());
    let drive = wire::Drive {
        id: "naa.5".to_owned(),
        name: hostile(),
        model: hostile(),
        serial: hostile(),
        firmware: hostile(),
        health: wire::Health::Unknown.into(),
        health_unknown_why: hostile(),
        findings: vec![finding.clone()],
        location: Some(wire::Location { slot: hostile(), ..Default::default() }),
        smart: Some(wire::Smart {
            state: wire::smart::State::Failed.into(),
            detail: hostile(),
            temperature_celsius: Some(i32::MAX),
            temperature_limit_celsius: Some(1),
            wear_percent: Some(u32::MAX),
            self_tests: Some(wire::SelfTests {
                log: vec![wire::SelfTest {
                    kind: hostile(),
                    outcome: hostile(),
                    text: hostile(),
                    ..Default::default()
                }],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let volume = wire::Volume {
        id: "mnt:1".to_owned(),
        pv: hostile(),
        device: hostile(),
        device_name: hostile(),
        filesystem: Some(wire::Filesystem { r#type: hostile(), ..Default::default() }),
        mounts: vec![wire::VolumeMount { path: hostile(), ..Default::default() }],
        pods: vec![wire::PodUse { namespace: hostile(), name: hostile(), ..Default::default() }],
        usage: Some(wire::Usage {
            used_bytes: u64::MAX,
            available_bytes: u64::MAX,
            full_at: before(-1_000_000),
            ..Default::default()
        }),
        health: wire::Health::Bad.into(),
        ..Default::default()
    };
    let node = |id: &str, kind: &str, below: &str| wire::ChainNode {
        id: id.to_owned(),
        kind: kind.to_owned(),
        name: hostile(),
        detail: hostile(),
        stands_on: vec![below.to_owned(), id.to_owned(), "nowhere".to_owned()],
        health: wire::Health::Bad.into(),
    };
    let cause = wire::Cause {
        subject: Some(subject),
        name: hostile(),
        detail: hostile(),
        slot: hostile(),
        model: hostile(),
        serial: hostile(),
        severity: wire::Severity::Bad.into(),
        counted: true,
        findings: vec![wire::CauseFinding {
            finding_id: "f1".to_owned(),
            reason: hostile(),
            figure: hostile(),
            ..Default::default()
        }],
        hits: vec![wire::CauseHit {
            name: hostile(),
            reasons: vec![hostile()],
            ..Default::default()
        }],
        message: hostile(),
        action: hostile(),
        explain: hostile(),
        ..Default::default()
    };
    Answers {
        version: hostile(),
        taken: screen(None).now,
        node: wire::Node {
            name: hostile(),
            kernel: hostile(),
            version: hostile(),
            settled: true,
            store: hostile(),
            warnings: vec![hostile()],
            limitations: vec![hostile()],
            sources: vec![wire::SourceState {
                name: hostile(),
                state: wire::source_state::State::Down.into(),
                detail: hostile(),
                since: before(5),
                is_missed: true,
            }],
            ..Default::default()
        },
        drives: vec![drive],
        volumes: vec![volume],
        findings: vec![finding, cleared],
        causes: Some(vec![cause]),
        checks: vec![wire::Check {
            id: hostile(),
            target: hostile(),
            reason: hostile(),
            state: wire::check::State::Ended.into(),
            ..Default::default()
        }],
        histories: vec![wire::SmartHistory {
            drive_id: "naa.5".to_owned(),
            series: vec![wire::SmartSeries {
                metric: hostile(),
                points: vec![
                    wire::SmartPoint {
                        time: before(i64::MAX / 4),
                        value: u64::MAX,
                        minimum: None,
                        mean: None,
                    },
                    wire::SmartPoint {
                        time: before(-i64::MAX / 4),
                        value: 0,
                        minimum: None,
                        mean: None,
                    },
                ],
            }],
        }],
        explanations: vec![wire::Explanation {
            chain: vec![
                node("drive:naa.5", "drive", ""),
                node("device:a", "md", "device:b"),
                node("device:b", "crypt", "device:a"),
                node("filesystem:x", "filesystem", "device:b"),
                node("volume:mnt:1", "volume", "filesystem:x"),
                node("pod:1", "pod", "volume:mnt:1"),
            ],
            ..Default::default()
        }],
        gaps: vec![hostile()],
        ..Answers::default()
    }
}

/// The page, parsed as a browser does, without a complaint of the parser.
fn valid(page: &str) -> Html {
    let parsed = Html::parse_document(page);
    assert_eq!(parsed.errors, Vec::<String>::new());
    for forbidden in ["script", "img", "iframe", "link", "base", "form", "object", "a[href^=http]"]
    {
        let selector = Selector::parse(forbidden).expect("a selector");
        assert_eq!(parsed.select(&selector).count(), 0, "{forbidden}");
    }
    parsed
}

#[test]
fn hostile_names_are_escaped_everywhere_and_nothing_is_lost() {
    let answers = hostile_answers();
    let page = page::report(&answers, &screen(None));
    let parsed = valid(&page);
    let shown = |c: char| c != '\n' && is_deceptive(c);
    assert!(!page.chars().any(shown), "{:?}", page.chars().find(|c| shown(*c)));
    assert!(!page.contains('\u{fffe}'));
    let text_of_page: String = parsed.root_element().text().collect();
    assert!(text_of_page.contains("<script>alert('x')</script>"));
    assert!(text_of_page.contains("second line"));
    assert!(page.matches("MARK").count() > 60, "{}", page.matches("MARK").count());
    assert!(page.len() < 1 << 20, "{}", page.len());
    for width in [1, 40, 78, 200] {
        let text = text::report(&answers, &screen(Some(width)));
        assert!(!text.chars().any(shown), "{width}");
        assert!(text.matches("MARK").count() > 10, "{width}");
    }
}

#[test]
fn no_sequence_of_findings_is_worse_than_its_page() {
    let mut answers = hostile_answers();
    answers.findings =
        (0..5000).map(|n| hostile_finding(&n.to_string(), wire::Subject::default())).collect();
    let page = page::report(&answers, &screen(None));
    valid(&page);
    assert!(page.len() < 4 << 20, "{}", page.len());
}

#[test]
fn a_report_without_history_says_so() {
    let mut answers = hostile_answers();
    answers.histories.clear();
    let page = page::report(&answers, &screen(None));
    valid(&page);
    assert!(page.contains("no history"));
}

/// What is too wide for a box ends at its edge; a map of few columns is not made larger.
#[test]
fn the_map_is_as_large_as_its_boxes_and_cuts_off_what_leaves_them() {
    let mut answers = hostile_answers();
    let classes = |answers: &Answers| -> Vec<String> {
        let page = valid(&page::report(answers, &screen(None)));
        let map = Selector::parse("svg.map").expect("a selector");
        let node = Selector::parse("svg.map svg.node[width='176']").expect("a selector");
        assert_eq!(page.select(&node).count(), answers.explanations[0].chain.len());
        page.select(&map).filter_map(|it| it.attr("class").map(str::to_owned)).collect()
    };
    answers.explanations[0].chain.retain(|node| node.kind != "filesystem");
    assert_eq!(classes(&answers), ["map"]);
    answers.explanations[0].chain.retain(|node| node.kind == "drive");
    assert_eq!(classes(&answers), ["map narrow"]);
}

#[test]
fn times_have_a_zone_once() {
    let mut answers = hostile_answers();
    answers.taken = "2026-01-02T03:04:05Z".parse().unwrap();
    let screen = diskvitals_terminal::screen::Screen {
        zone: jiff::tz::TimeZone::fixed(jiff::tz::offset(1)),
        ..screen(Some(78))
    };
    assert!(page::report(&answers, &screen).contains("2026-01-02 04:04:05 +01"));
    assert!(text::report(&answers, &screen).contains("04:04:05 +01"));
}

#[test]
fn lists_that_a_bundle_lacks_are_not_empty_and_not_good() {
    let mut answers = Answers {
        taken: screen(None).now,
        lost: vec!["the node", "drives", "volumes", "findings", "causes"],
        gaps: vec!["drives: drives.json is missing in the bundle".to_owned()],
        ..Answers::default()
    };
    answers.node.settled = true;
    answers.node.health = wire::Health::Good.into();
    let page = page::report(&answers, &screen(None));
    let text: String = valid(&page).root_element().text().collect();
    for expected in [
        "UNKNOWN",
        "an unknown number of drives, an unknown number of volumes",
        "The drives are missing in the bundle.",
        "Whether there are findings is not known",
        "drives.json is missing",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    insta::assert_snapshot!(text::report(&answers, &screen(Some(40))));
}

#[test]
fn a_healthy_node_says_that_everything_was_seen() {
    let mut answers =
        Answers { taken: screen(None).now, causes: Some(Vec::new()), ..Answers::default() };
    answers.node.settled = true;
    answers.node.health = wire::Health::Good.into();
    answers.node.store = "ok".to_owned();
    let page = page::report(&answers, &screen(None));
    let text: String = valid(&page).root_element().text().collect();
    assert!(text.contains("GOOD"), "{text}");
    assert!(text.contains("All sources answered"), "{text}");
}
