//! One failing drive below several volumes: what is announced, as notifications, events and `watch`
//! do it.

use proptest::prelude::*;

use super::*;
use crate::block::Layer;
use crate::fixture::{TestHost, at, device, event, failing_probe, healthy_probe, usage, volume};
use crate::source_update::SourceUpdate;
use diskvitals_kernel_log::event::{Batch, Class, Cursor};

/// A host with its findings.
struct Node {
    host: TestHost,
    ledger: Ledger,
    seq: u64,
}

impl Node {
    /// Seven filesystems on the partitions of one drive.
    fn new() -> Node {
        let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
        for number in 1..=7 {
            let layer = Layer::Partition { number, start_bytes: u64::from(number) << 30 };
            let (name, dev) = (format!("sda{number}"), format!("8:{number}"));
            let mut part = device(&name, &dev, layer, &["sda"]);
            part.size_bytes = 1 << 30;
            let (path, source) = (format!("/data{number}"), format!("/dev/{name}"));
            host = host
                .with(part)
                .uuid(&name, &number.to_string())
                .mounted(&dev, "/", &path, "ext4", &source);
        }
        host.read_all(0);
        Node { host, ledger: Ledger::default(), seq: 0 }
    }

    fn log(&mut self, class: Class, device: &str, sectors: &[u64], second: i64) {
        self.seq += 1;
        let event = diskvitals_kernel_log::event::Event {
            seq: self.seq,
            ..event(class, device, at(second), sectors)
        };
        let batch = Batch {
            cursor: Cursor {
                boot_id: "boot".into(),
                counted_to: Some(self.seq),
                reread_from: self.seq + 1,
                lost: 0,
            },
            events: vec![event],
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        };
        self.host.apply(SourceUpdate::KernelLog(batch), second);
    }

    fn probe_all(&mut self, works: bool, second: i64) {
        for number in 1..=7 {
            let result = match works {
                true => healthy_probe(usage(1 << 30, 1 << 29)),
                false => failing_probe(5),
            };
            self.host.probe(&format!("/data{number}"), result, second);
        }
    }

    /// `KIND SUBJECT REASON` of each announced transition.
    fn announced(&mut self, second: i64) -> Vec<String> {
        let facts = &self.host.facts;
        let judgements =
            crate::assess::assess(facts, &self.ledger.levels(), &self.host.policy, at(second));
        let mut transitions = self.ledger.apply(judgements, at(second));
        let is_removed = |subject: &Subject| facts.is_removed(subject);
        transitions.extend(self.ledger.clear_subjects(is_removed, at(second)));
        let line = |transition: &Transition| {
            let finding = &transition.finding;
            format!("{} {} {}", transition.kind.name(), finding.subject, finding.reason)
        };
        transitions
            .iter()
            .filter(|transition| transition.finding.follows.is_none())
            .map(line)
            .collect()
    }
}

fn for_all_volumes(kind: &str) -> Vec<String> {
    (1..=7).map(|number| format!("{kind} fs:{number} DriveFailing")).collect()
}

fn with_drive(kind: &str, reason: &str) -> Vec<String> {
    let mut lines = vec![format!("{kind} A {reason}")];
    lines.extend(for_all_volumes(kind));
    lines
}

#[test]
fn a_pulled_drive_is_announced_once_and_once_for_each_volume() {
    let mut node = Node::new();
    node.host.pull("sda");
    node.host.scan(10);
    assert_eq!(node.announced(10), with_drive("raised", "DriveMissing"));
    node.probe_all(false, 12);
    for number in 1..=7 {
        node.log(Class::FsShutdown, &format!("sda{number}"), &[], 13);
        node.log(Class::FsError, &format!("sda{number}"), &[], 13);
    }
    assert_eq!(node.announced(14), [""; 0]);
    let findings = node.ledger.active().count();
    assert_eq!(findings, 1 + 7 * 5, "all of them are there");

    let volume_finding = node.ledger.active().find(|finding| {
        finding.reason == Reason::DriveFailing && finding.subject == Subject::Volume(volume("fs:1"))
    });
    let message = &volume_finding.unwrap().message;
    for reason in ["DeviceMissing", "NotAccessible", "FilesystemShutdown"] {
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn the_announcing_finding_ends_with_the_last_that_follows_it() {
    let mut node = Node::new();
    node.log(Class::Medium, "sda", &[8], 10);
    assert_eq!(node.announced(10), with_drive("raised", "MediaErrors"));
    node.probe_all(false, 12);
    assert_eq!(node.announced(12), for_all_volumes("worsened"), "access fails: BAD");
    // The log is quiet for long enough, and access still fails.
    let later = 40 * 24 * 3600;
    node.probe_all(false, later);
    assert_eq!(node.announced(later), ["cleared A MediaErrors"]);
    assert_eq!(node.announced(later + 1), [""; 0]);
    for finding in node.ledger.active() {
        assert!(
            finding.reason != Reason::DriveFailing
                || finding.message.contains("still has NotAccessible"),
            "{finding:?}"
        );
    }
    node.probe_all(true, later + 10);
    assert_eq!(node.announced(later + 10), for_all_volumes("cleared"));
    assert_eq!(node.ledger.active().count(), 0);
}

#[test]
fn the_failure_of_the_drive_is_announced_also_after_what_it_caused() {
    let mut node = Node::new();
    node.probe_all(false, 9);
    let mut raised = node.announced(9);
    node.host.pull("sda");
    node.host.scan(10);
    raised.extend(node.announced(10));
    let mut expected: Vec<String> =
        (1..=7).map(|number| format!("raised fs:{number} NotAccessible")).collect();
    expected.extend(with_drive("raised", "DriveMissing"));
    assert_eq!(raised, expected);
    // Unmounted: it was announced with DriveFailing, and so is its end.
    for number in 1..=7 {
        node.host.umount(&format!("/data{number}"));
    }
    node.host.read_mounts(20);
    assert_eq!(node.announced(20), [""; 0]);
    node.host.plug("sda", "8:0", "A");
    node.host.scan(30);
    let cleared = node.announced(30);
    assert_eq!(cleared.len(), 1 + 7, "{cleared:?}");
    assert_eq!(node.ledger.active().count(), 0);
}

#[test]
fn each_worsening_of_a_volume_is_announced_once() {
    let mut node = Node::new();
    node.log(Class::Medium, "sda", &[8], 10);
    node.announced(10);
    let status = |node: &Node| {
        let failing = Subject::Volume(volume("fs:1"));
        let mut active = node.ledger.active();
        let found = active.find(|it| it.subject == failing && it.reason == Reason::DriveFailing);
        let finding = found.unwrap();
        (finding.severity, finding.status)
    };
    assert_eq!(status(&node), (Severity::Suspect, Status::Degraded));
    node.log(Class::FsError, "sda1", &[], 11);
    node.announced(11);
    node.probe_all(false, 12);
    assert_eq!(node.announced(12), for_all_volumes("worsened"));
    assert_eq!(status(&node), (Severity::Bad, Status::Inaccessible));
    assert_eq!(node.announced(13), [""; 0]);
}

fn of_failure(subject: &Subject, reason: Reason, level: Level) -> Judgement {
    let details =
        FindingDetails { of_drive_failure: true, ..raised(level.0, level.1, reason.name()) };
    Judgement { subject: subject.clone(), reason, verdict: Verdict::Raised(details) }
}

fn follows(ledger: &Ledger, reason: Reason) -> Option<Reason> {
    let find = |is_it: &dyn Fn(&Finding) -> bool| ledger.active().find(|it| is_it(it)).cloned();
    let leader = find(&|it| it.reason == reason)?.follows.clone()?;
    Some(find(&|it| it.id == leader).unwrap().reason)
}

#[test]
fn what_becomes_worse_than_the_finding_it_follows_takes_its_place() {
    const SUSPECT: Level = (Severity::Suspect, Status::Degraded);
    const BAD: Level = (Severity::Bad, Status::Degraded);
    const LOST: Level = (Severity::Bad, Status::DataLoss);
    let subject = Subject::Volume(volume("fs:1"));
    let (first, second) = (Reason::NotAccessible, Reason::FilesystemErrors);
    let mut ledger = Ledger::default();
    let mut round = |at_second: i64, levels: &[(Reason, Level)]| {
        let judgements = levels.iter().map(|(reason, level)| of_failure(&subject, *reason, *level));
        let transitions = ledger.apply(judgements.collect(), at(at_second));
        let announced = transitions.iter().filter(|it| it.finding.follows.is_none());
        let lines = announced.map(|it| format!("{} {}", it.kind.name(), it.finding.reason));
        let lines = lines.collect::<Vec<_>>().join(", ");
        (lines, follows(&ledger, first), follows(&ledger, second))
    };
    assert_eq!(round(0, &[(first, BAD)]), ("raised NotAccessible".into(), None, None));
    assert_eq!(round(1, &[(first, BAD), (second, SUSPECT)]), (String::new(), None, Some(first)));
    assert_eq!(
        round(2, &[(first, BAD), (second, LOST)]),
        ("worsened FilesystemErrors".into(), Some(second), None)
    );
    assert_eq!(round(3, &[(first, SUSPECT), (second, LOST)]), ("".into(), Some(second), None));
    let failing = Reason::DriveFailing;
    assert_eq!(
        round(4, &[(first, SUSPECT), (second, LOST), (failing, LOST)]),
        ("raised DriveFailing".into(), Some(failing), Some(failing)),
        "the lower layer is the cause as soon as it is known"
    );
}

/// Its leader is milder now: the volume is as bad as before, and neither line would be news.
#[test]
fn a_finding_whose_leader_eases_takes_its_place_without_a_line() {
    let (bad, suspect) = ((Severity::Bad, Status::Degraded), (Severity::Suspect, Status::Degraded));
    let subject = Subject::Volume(volume("fs:1"));
    let (first, second) = (Reason::NotAccessible, Reason::FilesystemErrors);
    let mut ledger = Ledger::default();
    ledger.apply(vec![of_failure(&subject, first, bad)], at(0));
    for (second_of_day, level) in [(1, bad), (2, suspect)] {
        let judgements =
            vec![of_failure(&subject, first, level), of_failure(&subject, second, bad)];
        let transitions = ledger.apply(judgements, at(second_of_day));
        assert!(transitions.iter().all(|it| it.finding.follows.is_some()), "{transitions:?}");
    }
    assert_eq!(follows(&ledger, first), Some(second));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In any order of arrival: what is announced of a volume is as bad as the volume is, and a round
    /// announces at most one worsening of it.
    #[test]
    fn what_is_announced_is_as_bad_as_the_volume(steps in proptest::collection::vec((0..7u8, 1..90i64), 1..12)) {
        let mut node = Node::new();
        let mut second = 10;
        for (step, later) in steps {
            second += later;
            let is_there = node.host.facts.device("sda").is_some();
            match step {
                0 if is_there => node.host.pull("sda"),
                1 if !is_there => node.host.plug("sda", "8:0", "A"),
                0 | 1 => continue,
                2 => node.probe_all(false, second),
                3 => node.probe_all(true, second),
                4 => node.log(Class::Medium, "sda", &[8], second),
                5 => node.log(Class::FsError, "sda1", &[], second),
                _ => node.log(Class::FsShutdown, "sda1", &[], second),
            }
            node.host.scan(second);
            let announced = node.announced(second);
            for number in 1..=7 {
                let subject = Subject::Volume(volume(&format!("fs:{number}")));
                let all = || node.ledger.active().filter(|it| it.subject == subject);
                let leaders = || all().filter(|it| it.follows.is_none());
                prop_assert_eq!(all().map(|it| it.severity).max(), leaders().map(|it| it.severity).max());
                prop_assert_eq!(all().map(|it| it.status).max(), leaders().map(|it| it.status).max());
                for follower in all().filter(|it| it.follows.is_some()) {
                    prop_assert!(leaders().any(|it| Some(&it.id) == follower.follows.as_ref()), "{follower:?}");
                }
                let of_failure = |line: &&String| {
                    line.contains(&format!("fs:{number} ")) && !line.starts_with("cleared") && !line.starts_with("eased")
                };
                let fails = |it: &Arc<Finding>| it.reason == Reason::DriveFailing && !it.message.contains("good again");
                if leaders().any(fails) {
                    prop_assert!(announced.iter().filter(of_failure).count() <= 1, "{:?}", announced);
                }
            }
        }
    }
}

#[test]
fn a_worn_drive_and_another_drive_explain_no_failure_of_a_volume() {
    let mut node = Node::new();
    node.host.pull("sdb");
    node.host.scan(10);
    node.announced(10);
    node.probe_all(false, 12);
    let lines = node.announced(12);
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("NotAccessible")), "{lines:?}");
}

#[test]
fn findings_that_follow_keep_following_under_the_ids_of_the_store() {
    let mut node = Node::new();
    node.host.pull("sda");
    node.host.scan(10);
    node.announced(10);
    let stored: Vec<Finding> = node
        .ledger
        .active()
        .filter(|finding| finding.reason == Reason::DriveFailing)
        .map(|finding| Finding {
            id: FindingId::new("old", &finding.subject.to_string(), at(1)),
            ..(**finding).clone()
        })
        .collect();
    node.ledger.restore(stored.clone(), at(11));
    for finding in node.ledger.active() {
        if let Some(leader) = &finding.follows {
            assert!(stored.iter().any(|stored| stored.id == *leader));
        }
    }
}
