use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::metrics::text::plain;
use crate::model::facts::smart::{Outcome, SmartFacts};
use crate::model::finding::{Acknowledgement, Finding, Severity, Status, Subject};
use crate::model::fixture::{World, at, drive, event, usage, volume};
use crate::model::ids::{DriveId, FindingId};
use crate::model::kernel::event::Class;
use crate::model::kernel::memory::Memory as Errors;
use crate::model::reason::Reason;
use crate::model::report::{Source, SourceStatus};
use crate::model::smart::fixture::{attribute, disk, nvme};
use crate::model::smart::memory::Memory;
use crate::model::smart::report::Report;
use crate::model::snapshot::{Drive, NodeState, Presence, StoreStatus, Volume, VolumeUsage};
use crate::model::timing::Timing;
use crate::model::volume::{Condition, CsiStatus, OperationalStatus, UsageStatus};

fn node() -> Arc<Node> {
    Arc::new(Node {
        name: "node-1".into(),
        kernel: "6.12.0".into(),
        version: "9.9.9".into(),
        started: at(-60),
    })
}

fn a_drive(name: &str, dev: &str, id: &str, smart: Option<SmartFacts>) -> Drive {
    Drive {
        facts: drive(name, dev, id),
        presence: Presence::Present,
        first_seen: at(0),
        last_seen: at(0),
        health: Health::Good,
        health_unknown_why: String::new(),
        findings: Vec::new(),
        maintenance: false,
        volumes: Vec::new(),
        errors: None,
        smart: smart.map(Arc::new),
    }
}

fn told(report: &Report, outcome: Outcome) -> SmartFacts {
    let mut memory = Memory::default();
    memory.take(report, at(10));
    SmartFacts {
        outcome: Some((at(20), outcome)),
        memory: Arc::new(memory),
        ..SmartFacts::default()
    }
}

fn finding(
    id: &str,
    subject: Subject,
    reason: Reason,
    severity: Severity,
    status: Status,
) -> Finding {
    Finding {
        id: FindingId::known(id),
        subject,
        reason,
        severity,
        status,
        message: String::new(),
        since: at(30),
        last_seen: at(40),
        count: 1,
        evidence: Vec::new(),
        clears_when: String::new(),
        acknowledged: None,
        cleared: None,
    }
}

/// One drive of each kind of answer, a volume with two pods and one that no longer answers, and
/// what is known against them.
fn busy() -> Snapshot {
    let mut snapshot = Snapshot {
        settled: true,
        ..Snapshot::default()
    };
    let mut timing = Timing::default();
    [2, 2, 700, 99_000]
        .map(Duration::from_millis)
        .into_iter()
        .for_each(|took| timing.take(took));
    snapshot.node = Arc::new(NodeState {
        sources: BTreeMap::from([
            (Source::Udev, (SourceStatus::Active("events".into()), at(0))),
            (
                Source::KernelLog,
                (SourceStatus::Limited("lossy".into()), at(0)),
            ),
        ]),
        store: StoreStatus::Ok,
        stuck: BTreeMap::from([(Source::Probe, 1), (Source::Layers, 0), (Source::Smart, 0)]),
        timings: BTreeMap::from([(Source::Probe, timing)]),
        kernel_log_lost: Some(7),
        health: Some(Health::Bad),
        ..NodeState::default()
    });
    let mut failing = a_drive(
        "sda",
        "8:0",
        "WORN",
        Some(told(
            &disk().with(attribute(197, "Current_Pending_Sector", 100, 0, "8")),
            Outcome::Told,
        )),
    );
    let mut errors = Errors::default();
    errors.take(&event(Class::Medium, "sda", at(5), &[7]));
    (failing.health, failing.errors) = (Health::Bad, Some(Arc::new(errors)));
    let mut asleep = a_drive(
        "sdb",
        "8:16",
        "ASLEEP",
        Some(told(
            &disk(),
            Outcome::Asleep {
                mode: "standby".into(),
            },
        )),
    );
    asleep.facts.serial = Some("a\"b\\c\nd\u{1b}[31m".into());
    let mut gone = a_drive("sdc", "8:32", "GONE", Some(told(&disk(), Outcome::Told)));
    gone.presence = Presence::Missing { since: at(50) };
    let mut flash = a_drive(
        "nvme0n1",
        "259:0",
        "FLASH",
        Some(told(&nvme(), Outcome::Told)),
    );
    flash.maintenance = true;
    let bare = a_drive("vda", "252:0", "BARE", None);
    for drive in [failing, asleep, gone, flash, bare] {
        snapshot
            .drives
            .insert(drive.facts.id.clone(), Arc::new(drive));
    }
    let world = World::default()
        .disk("sda", "8:0", "WORN")
        .uuid("sda", "11-22")
        .mounted("8:0", "/", "/data", "xfs", "/dev/sda")
        .disk("sdb", "8:16", "ASLEEP")
        .mounted(
            "8:16",
            "/",
            "/var/lib/kubelet/plugins/kubernetes.io/csi/d/1/globalmount",
            "ext4",
            "/dev/sdb",
        )
        .mounted(
            "8:16",
            "/",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount",
            "ext4",
            "/dev/sdb",
        )
        .mounted(
            "8:16",
            "/",
            "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pv-h/mount",
            "ext4",
            "/dev/sdb",
        )
        .csi(
            "d",
            "h",
            Some("/var/lib/kubelet/plugins/kubernetes.io/csi/d/1/globalmount"),
            &[
                (
                    "u1",
                    "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount",
                ),
                (
                    "u2",
                    "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pv-h/mount",
                ),
            ],
        );
    for facts in world.volumes() {
        let stale = facts.driver.is_none().then_some(at(45));
        let usage = VolumeUsage::Mounted {
            usage: usage(1000, 400),
            at: at(41),
            stale,
        };
        let volume = Volume {
            usage,
            csi_status: CsiStatus::None,
            operational_status: OperationalStatus::Operative,
            usage_status: UsageStatus::InUse,
            health: if stale.is_some() {
                Health::Suspect
            } else {
                Health::Good
            },
            health_unknown_why: String::new(),
            condition: Condition {
                abnormal: stale.is_some(),
                message: String::new(),
            },
            findings: Vec::new(),
            first_seen: at(0),
            last_probe: Some(at(41)),
            errors: None,
            facts: Arc::new(facts),
        };
        snapshot
            .volumes
            .insert(volume.facts.id.clone(), Arc::new(volume));
    }
    let drive = |id: &str| Subject::Drive(DriveId::new(id));
    let mut known = finding(
        "b",
        Subject::Volume(volume("fs:11-22")),
        Reason::ProbeTimeout,
        Severity::Suspect,
        Status::Inaccessible,
    );
    known.acknowledged = Some(Acknowledgement {
        by: "uid 0".into(),
        time: at(60),
        note: "known".into(),
    });
    for finding in [
        finding(
            "a",
            drive("WORN"),
            Reason::PendingSectors,
            Severity::Bad,
            Status::Degraded,
        ),
        known,
        finding(
            "c",
            drive("FLASH"),
            Reason::WornOut,
            Severity::Suspect,
            Status::Degraded,
        ),
        finding(
            "d",
            Subject::Device("md0".into()),
            Reason::RaidDegraded,
            Severity::Suspect,
            Status::Degraded,
        ),
    ] {
        snapshot
            .findings
            .insert(finding.id.clone(), Arc::new(finding));
    }
    snapshot
}

/// For tests of what comes after the view.
pub(in crate::metrics) fn with_a_drive(id: &str) -> Snapshot {
    let drive = a_drive("sda", "8:0", id, None);
    Snapshot {
        settled: true,
        drives: BTreeMap::from([(drive.facts.id.clone(), Arc::new(drive))]),
        ..Snapshot::default()
    }
}

fn rendered(snapshot: Snapshot) -> String {
    render(&node(), &Arc::new(snapshot)).expect("is written")
}

/// Samples, without help and types.
fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn a_busy_node_reads_like_this() {
    insta::assert_snapshot!(rendered(busy()));
}

#[test]
fn an_empty_node_has_no_series_of_drives_or_volumes() {
    let text = rendered(Snapshot {
        settled: true,
        ..Snapshot::default()
    });
    let others: Vec<&str> = samples(&text)
        .filter(|line| {
            !line.starts_with("diskvitals_node_") && !line.starts_with("diskvitals_store_")
        })
        .collect();
    assert_eq!(
        others,
        [
            "diskvitals_build_info{version=\"9.9.9\"} 1",
            "diskvitals_start_time_seconds 1799999940",
            "diskvitals_checks_running 0"
        ]
    );
}

#[test]
fn what_is_gone_from_the_picture_is_gone_from_the_answer() {
    let mut snapshot = busy();
    assert!(samples(&rendered(snapshot.clone())).any(|line| line.contains("\"FLASH\"")));
    snapshot.drives.remove(&DriveId::new("FLASH"));
    snapshot.findings.remove(&FindingId::known("c"));
    assert!(!rendered(snapshot).contains("FLASH"));
}

#[test]
fn a_temperature_that_is_not_of_now_is_not_told() {
    for (outcome, tells) in [
        (Outcome::Told, true),
        (
            Outcome::Asleep {
                mode: "standby".into(),
            },
            false,
        ),
        (Outcome::Failed { why: "no".into() }, false),
        (Outcome::TimedOut { why: "no".into() }, false),
    ] {
        let mut snapshot = Snapshot {
            settled: true,
            ..Snapshot::default()
        };
        let drive = a_drive("sda", "8:0", "A", Some(told(&disk(), outcome.clone())));
        snapshot
            .drives
            .insert(drive.facts.id.clone(), Arc::new(drive));
        let text = rendered(snapshot);
        assert_eq!(
            text.contains("diskvitals_drive_temperature_celsius{drive=\"A\"} 35"),
            tells,
            "{outcome:?}"
        );
        assert!(
            text.contains("diskvitals_smart_last_answer_timestamp_seconds{drive=\"A\"} 1800000010"),
            "{text}"
        );
    }
}

#[test]
fn the_older_format_has_the_same_samples() {
    let newer = rendered(busy());
    let older = plain(&newer);
    assert!(samples(&newer).eq(samples(&older)));
    assert!(
        older.contains("# TYPE diskvitals_io_errors_total counter\n"),
        "{older}"
    );
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
}

/// Name, labels and value of a sample, as a parser takes it apart.
fn apart(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let mut labels = BTreeMap::new();
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ').expect("a value");
        return (name.into(), labels, value.parse().expect("a number"));
    };
    let mut chars = rest.chars();
    loop {
        let key: String = chars.by_ref().take_while(|c| *c != '=').collect();
        assert_eq!(chars.next(), Some('"'), "{line}");
        let mut value = String::new();
        loop {
            match chars.next().expect("a closed value") {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(other @ ('"' | '\\')) => other,
                    other => panic!("escaped {other:?} in {line}"),
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(key, value).is_none(), "{line}");
        match chars.next() {
            Some(',') => {}
            Some('}') => break,
            other => panic!("{other:?} in {line}"),
        }
    }
    (
        name.into(),
        labels,
        chars.as_str().trim().parse().expect("a number"),
    )
}

#[test]
fn no_series_is_told_twice() {
    let text = rendered(busy());
    let mut series: Vec<_> = samples(&text)
        .map(apart)
        .map(|(name, labels, _)| (name, labels))
        .collect();
    let all = series.len();
    series.sort();
    series.dedup();
    assert_eq!(series.len(), all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_a_drive_is_called_a_parser_reads_it_back(model in any::<String>(), serial in "[\\\\\"\n{},=# a]{0,300}") {
        let mut snapshot = Snapshot { settled: true, ..Snapshot::default() };
        let mut drive = a_drive("sda", "8:0", "A", None);
        (drive.facts.model, drive.facts.serial) = (Some(model.clone()), Some(serial.clone()));
        snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
        let text = rendered(snapshot);
        let info = samples(&text).map(apart).find(|(name, ..)| name == "diskvitals_drive_info").expect("is told");
        prop_assert_eq!(&info.1["model"], &label(&model).into_owned());
        prop_assert_eq!(&info.1["serial"], &label(&serial).into_owned());
        prop_assert!(info.1.values().all(|value| value.len() <= LONGEST_LABEL && !value.chars().any(char::is_control)));
        prop_assert!(samples(&plain(&text)).map(apart).eq(samples(&text).map(apart)));
    }
}
