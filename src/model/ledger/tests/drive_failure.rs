//! One failing drive below several volumes: what is announced, as notifications, events and `watch`
//! do it.

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
            crate::assess::assess(facts, &self.ledger.severities(), &self.host.policy, at(second));
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
fn a_volume_that_failed_a_moment_before_its_drive_is_announced_once() {
    let mut node = Node::new();
    node.probe_all(false, 9);
    let mut raised = node.announced(9);
    node.host.pull("sda");
    node.host.scan(10);
    raised.extend(node.announced(10));
    let mut expected: Vec<String> =
        (1..=7).map(|number| format!("raised fs:{number} NotAccessible")).collect();
    expected.push("raised A DriveMissing".into());
    assert_eq!(raised, expected);
    // Unmounted: DriveFailing takes over, without another line.
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
