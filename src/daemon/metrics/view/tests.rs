use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use diskvitals_exposition::label::{MAX_LABEL_BYTES, label};
use diskvitals_exposition::plain_text::plain;
use diskvitals_finding::ids::{DriveId, FindingId};
use diskvitals_finding::provision::BackingKind;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::timing::Timing;
use diskvitals_finding::{Acknowledgement, Finding, Status, Subject};
use diskvitals_kernel_log::error_history::ErrorHistory as Errors;
use diskvitals_kernel_log::event::Class;
use diskvitals_model::assess::scrub::{LastScrub, ScrubKind};
use diskvitals_model::drive::FlashHealth;
use diskvitals_model::facts::smart::{SmartFacts, SmartOutcome};
use diskvitals_model::fixture::{TestHost, at, drive, event, usage, volume};
use diskvitals_model::link::{Compared, DriveLink, LinkKind};
use diskvitals_model::model_statistics::ModelStatistics;
use diskvitals_model::snapshot::{
    Drive, KnownPool, NodeContext, NodeState, Presence, StoreStatus, Volume, VolumeUsage,
};
use diskvitals_model::source_update::SourceStatus;
use diskvitals_model::stack::{PoolState, PoolStatus, Vdev, VdevState, ZfsPool};
use diskvitals_model::volume::{Condition, CsiStatus, OperationalStatus, Stack, UsageStatus};
use diskvitals_smart::fixture::{attribute, disk, nvme};
use diskvitals_smart::history::SmartHistory;
use diskvitals_smart::report::SmartReport;

fn node() -> Arc<Node> {
    Arc::new(Node {
        name: "node-1".into(),
        kernel: "6.12.0".into(),
        version: "9.9.9".into(),
        started: at(-60),
    })
}

fn present_drive(name: &str, dev: &str, id: &str, smart: Option<SmartFacts>) -> Drive {
    Drive {
        facts: drive(name, dev, id),
        presence: Presence::Present,
        first_seen: at(0),
        last_seen: at(0),
        health: Health::Good,
        health_unknown_why: String::new(),
        health_unknown_cause: None,
        findings: Vec::new(),
        maintenance: false,
        maintenance_order: None,
        lamp: None,
        member_of: Vec::new(),
        volumes: Vec::new(),
        errors: None,
        smart: smart.map(Arc::new),
        care: Vec::new(),
        flash: None,
        links: Vec::new(),
    }
}

fn smart_facts(report: &SmartReport, outcome: SmartOutcome) -> SmartFacts {
    let mut memory = SmartHistory::default();
    memory.record(report, at(10));
    SmartFacts {
        outcome: Some((at(20), outcome)),
        history: Arc::new(memory),
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
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    }
}

/// One drive of each kind of answer, a volume with two pods and one that no longer answers, and
/// what is known against them.
fn busy_snapshot() -> Snapshot {
    let mut snapshot = Snapshot { settled: true, ..Snapshot::default() };
    let mut timing = Timing::default();
    [2, 2, 700, 99_000].map(Duration::from_millis).into_iter().for_each(|took| timing.take(took));
    snapshot.node = Arc::new(NodeState {
        sources: BTreeMap::from([
            (Source::Udev, (SourceStatus::Active("events".into()), at(0))),
            (Source::KernelLog, (SourceStatus::Limited("lossy".into()), at(0))),
        ]),
        store: StoreStatus::Ok,
        stuck: BTreeMap::from([(Source::Probe, 1), (Source::Layers, 0), (Source::Smart, 0)]),
        timings: BTreeMap::from([(Source::Probe, timing)]),
        kernel_log_lost: Some(7),
        health: Some(Health::Bad),
        ..NodeState::default()
    });
    let mut failing = present_drive(
        "sda",
        "8:0",
        "WORN",
        Some(smart_facts(
            &disk().with(attribute(197, "Current_Pending_Sector", 100, 0, "8")),
            SmartOutcome::Report,
        )),
    );
    let mut errors = Errors::default();
    errors.add(&event(Class::Medium, "sda", at(5), &[7]));
    (failing.health, failing.errors) = (Health::Bad, Some(Arc::new(errors)));
    failing.findings = vec![FindingId::known("a")];
    let mut models = ModelStatistics::default();
    for seconds in [0, 90_000] {
        models.count_time([&failing.facts, &failing.facts].into_iter(), at(seconds));
    }
    models.count_failure(&failing.facts);
    snapshot.models = Arc::new(models);
    let pool = |serial| Stack::Drive(DriveId::new(serial));
    snapshot.node_context = Arc::new(NodeContext {
        pool: BTreeMap::from([(BackingKind::Loop, pool("WORN")), (BackingKind::Lvm, pool("BARE"))]),
        ..NodeContext::default()
    });
    let mut asleep = present_drive(
        "sdb",
        "8:16",
        "ASLEEP",
        Some(smart_facts(&disk(), SmartOutcome::Standby { mode: "standby".into() })),
    );
    asleep.facts.serial = Some("a\"b\\c\nd\u{1b}[31m".into());
    let mut gone =
        present_drive("sdc", "8:32", "GONE", Some(smart_facts(&disk(), SmartOutcome::Report)));
    gone.presence = Presence::Missing { since: at(50) };
    let mut flash = present_drive(
        "nvme0n1",
        "259:0",
        "FLASH",
        Some(smart_facts(&nvme(), SmartOutcome::Report)),
    );
    flash.maintenance = true;
    flash.links.push(DriveLink {
        kind: LinkKind::Pcie,
        file: "/sys/bus/pci/devices/0000:01:00.0".into(),
        lanes: Some(Compared { now: 2, best: 4, low_readings: 10 }),
        rate: Some(Compared { now: 16_000, best: 16_000, low_readings: 0 }),
        shelf_lanes: None,
        max_lanes: Some(4),
        max_rate: Some(16_000),
        errors_a_day: Vec::new(),
        changed: at(10),
    });
    asleep.flash = Some(FlashHealth { life_time: [3, 0], pre_eol_info: 1 });
    let bare = present_drive("vda", "252:0", "BARE", None);
    for drive in [failing, asleep, gone, flash, bare] {
        snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
    }
    let host = TestHost::default()
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
                ("u1", "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-h/mount"),
                ("u2", "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pv-h/mount"),
            ],
        );
    for facts in host.volumes() {
        let stale = facts.driver.is_none().then_some(at(45));
        let usage = VolumeUsage::Mounted {
            usage: usage(1000, 400),
            at: at(41),
            stale,
            full_at: Some(at(41 + 2 * 86_400)),
        };
        let volume = Volume {
            usage,
            csi_status: CsiStatus::None,
            operational_status: OperationalStatus::Operative,
            usage_status: UsageStatus::InUse,
            health: if stale.is_some() { Health::Suspect } else { Health::Good },
            health_unknown_why: String::new(),
            health_unknown_cause: None,
            redundancy: String::new(),
            scrubs: vec![LastScrub {
                name: "md0".into(),
                kind: ScrubKind::Check,
                ended: Some(at(10)),
                found: Some(0),
            }],
            condition: Some(Condition { abnormal: stale.is_some(), message: String::new() }),
            findings: Vec::new(),
            first_seen: at(0),
            last_probe: Some(at(41)),
            errors: None,
            facts: Arc::new(facts),
        };
        snapshot.volumes.insert(volume.facts.id.clone(), Arc::new(volume));
    }
    let drive = |id: &str| Subject::Drive(DriveId::new(id));
    let mut known = finding(
        "b",
        Subject::Volume(volume("fs:11-22")),
        Reason::ProbeTimeout,
        Severity::Suspect,
        Status::Inaccessible,
    );
    known.acknowledged =
        Some(Acknowledgement { by: "uid 0".into(), time: at(60), note: "known".into() });
    for finding in [
        finding("a", drive("WORN"), Reason::PendingSectors, Severity::Bad, Status::Degraded),
        known,
        Finding {
            maintained: true,
            ..finding("c", drive("FLASH"), Reason::WornOut, Severity::Suspect, Status::Degraded)
        },
        finding(
            "d",
            Subject::Device("md0".into()),
            Reason::RaidDegraded,
            Severity::Suspect,
            Status::Degraded,
        ),
    ] {
        snapshot.findings.insert(finding.id.clone(), Arc::new(finding));
    }
    let member = |name: &str, checksum_errors| Vdev {
        name: name.into(),
        state: Some(VdevState::Online),
        checksum_errors,
        ..Vdev::default()
    };
    let vdevs = vec![Vdev {
        name: "mirror-0".into(),
        children: vec![member("/dev/sdx1", 0), member("/dev/sdy1", 12)],
        ..Vdev::default()
    }];
    let mut pool = ZfsPool { state: PoolState::Degraded, ..ZfsPool::default() };
    pool.take(Ok(PoolStatus { vdevs, ..PoolStatus::default() }), at(30));
    let pool = KnownPool { pool, last_scrub: Some(at(20)) };
    let suspended = ZfsPool { state: PoolState::Suspended, ..ZfsPool::default() };
    let suspended = KnownPool { pool: suspended, last_scrub: None };
    for (name, pool) in [("tank", pool), ("my pool", suspended)] {
        snapshot.zfs_pools.insert(name.into(), Arc::new(pool));
    }
    snapshot
}

/// For tests of what comes after the view.
pub(in crate::metrics) fn snapshot_with_drive(id: &str) -> Snapshot {
    let drive = present_drive("sda", "8:0", id, None);
    Snapshot {
        settled: true,
        drives: BTreeMap::from([(drive.facts.id.clone(), Arc::new(drive))]),
        ..Snapshot::default()
    }
}

fn render_text(snapshot: Snapshot) -> String {
    render(&node(), &Arc::new(snapshot), &SocketRefusals::default()).expect("is written")
}

/// Samples, without help and types.
fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn a_busy_node_reads_like_this() {
    insta::assert_snapshot!(render_text(busy_snapshot()));
}

#[test]
fn an_empty_node_has_no_series_of_drives_or_volumes() {
    let text = render_text(Snapshot { settled: true, ..Snapshot::default() });
    let others: Vec<&str> = samples(&text)
        .filter(|line| {
            ["node_", "store_", "refusals_"]
                .iter()
                .all(|of| !line.starts_with(&format!("diskvitals_{of}")))
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
fn a_pool_of_which_the_drives_are_not_known_yet_is_neither_cordoned_nor_free() {
    let mut snapshot = busy_snapshot();
    snapshot.settled = false;
    let text = render_text(snapshot);
    let cordons: Vec<&str> =
        samples(&text).filter(|line| line.starts_with("diskvitals_pool_cordoned")).collect();
    assert_eq!(cordons, ["diskvitals_pool_cordoned{kind=\"loop\"} 1"]);
}

#[test]
fn models_whose_labels_are_equal_have_one_series() {
    let mut models = ModelStatistics::default();
    let mut facts = drive("sda", "8:0", "A");
    for end in ["x", "y"] {
        facts.model = Some(format!("{}{end}", "m".repeat(2 * MAX_LABEL_BYTES)));
        models.count_failure(&facts);
    }
    let text =
        render_text(Snapshot { settled: true, models: Arc::new(models), ..Snapshot::default() });
    let failures: Vec<&str> = samples(&text)
        .filter(|line| line.starts_with("diskvitals_model_drive_failures_total"))
        .collect();
    assert!(failures.len() == 1 && failures[0].ends_with(" 2"), "{failures:?}");
}

#[test]
fn a_removed_object_has_no_series() {
    let mut snapshot = busy_snapshot();
    assert!(samples(&render_text(snapshot.clone())).any(|line| line.contains("\"FLASH\"")));
    snapshot.drives.remove(&DriveId::new("FLASH"));
    snapshot.findings.remove(&FindingId::known("c"));
    assert!(!render_text(snapshot).contains("FLASH"));
}

#[test]
fn a_stale_temperature_has_no_series() {
    for (outcome, tells) in [
        (SmartOutcome::Report, true),
        (SmartOutcome::Standby { mode: "standby".into() }, false),
        (SmartOutcome::Failed { why: "no".into() }, false),
        (SmartOutcome::TimedOut { why: "no".into() }, false),
    ] {
        let mut snapshot = Snapshot { settled: true, ..Snapshot::default() };
        let drive = present_drive("sda", "8:0", "A", Some(smart_facts(&disk(), outcome.clone())));
        snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
        let text = render_text(snapshot);
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
    let newer = render_text(busy_snapshot());
    let older = plain(&newer);
    assert!(samples(&newer).eq(samples(&older)));
    assert!(older.contains("# TYPE diskvitals_io_errors_total counter\n"), "{older}");
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
}

/// Name, labels and value of a sample, as a parser takes it apart.
fn parse_sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
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
    (name.into(), labels, chars.as_str().trim().parse().expect("a number"))
}

#[test]
fn no_series_is_written_twice() {
    let text = render_text(busy_snapshot());
    let mut series: Vec<_> =
        samples(&text).map(parse_sample).map(|(name, labels, _)| (name, labels)).collect();
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
        let mut drive = present_drive("sda", "8:0", "A", None);
        (drive.facts.model, drive.facts.serial) = (Some(model.clone()), Some(serial.clone()));
        snapshot.drives.insert(drive.facts.id.clone(), Arc::new(drive));
        let text = render_text(snapshot);
        let info = samples(&text).map(parse_sample).find(|(name, ..)| name == "diskvitals_drive_info").expect("is told");
        prop_assert_eq!(&info.1["model"], &label(&model).into_owned());
        prop_assert_eq!(&info.1["serial"], &label(&serial).into_owned());
        prop_assert!(info.1.values().all(|value| value.len() <= MAX_LABEL_BYTES && !value.chars().any(char::is_control)));
        prop_assert!(samples(&plain(&text)).map(parse_sample).eq(samples(&text).map(parse_sample)));
    }
}
