//! Checks over time: restarts, schedules, clones, and which of them are kept.

use super::*;

#[test]
fn a_check_interrupted_by_a_daemon_stop_has_failed() {
    let mut host = plain();
    let check = start(&mut host, data(), 10).expect("begun");
    let mut later = plain();
    later.facts.checks.restore(vec![(check.id.clone(), (*check).clone())]);
    let known = &later.facts.checks.by_id[&check.id];
    assert_eq!((known.verdict, known.is_over()), (Some(CheckVerdict::Failed), true));
    assert!(wanted(&later, 20).is_empty());
}

#[test]
fn pruning_keeps_the_newest_checks_and_those_that_findings_depend_on() {
    let mut host = plain();
    let told = checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage); 30]),
        10,
    );
    for second in 0..20 {
        checked(
            &mut host,
            data(),
            CheckVerdict::Inconclusive,
            run(Mode::Live, RunResult::Findings, vec![flaw(Weight::Damage); 30]),
            100 + second * 10,
        );
    }
    host.facts.checks.prune(5);
    assert_eq!(host.facts.checks.by_id.len(), 6);
    assert_eq!(
        host.facts.checks.by_id[&told].runs[0].problems.len(),
        20,
        "what a finding shows of it is kept"
    );
    let short =
        host.facts.checks.by_id.values().filter(|check| {
            check.runs[0].problems.len() == 20 && check.runs[0].output.gzip.is_empty()
        });
    assert_eq!(short.count(), 4, "all but the newest two are shortened");
}

#[test]
fn scheduled_checks_start_when_due_and_never_on_a_failing_target() {
    let mut host = plain();
    let due = |host: &mut TestHost, second: i64| {
        let active = host.active.clone();
        host.facts.queue_due_checks(&host.policy.checks, &active, &TimeZone::UTC, at(second))
    };
    assert_eq!(due(&mut host, 10_000_000), 0, "off by default");
    host.policy.checks.interval = Some(Duration::from_secs(7200));
    host.policy.checks.jitter = Duration::ZERO;
    assert_eq!(due(&mut host, 7000), 0);
    host.active.insert((Subject::Drive(DriveId::new("A")), Reason::SmartFailing), active_at(BAD));
    assert_eq!(due(&mut host, 7300), 0);
    host.active.clear();
    assert_eq!(due(&mut host, 7300), 1);
    assert_eq!(due(&mut host, 7310), 0, "it goes on already");
    assert!(wanted(&host, 7310)[0].scheduled);
    assert!(!wanted(&host, 7310)[0].terms.freeze);
}

#[test]
fn a_clone_with_the_same_uuid_is_another_filesystem() {
    let mut host = plain()
        .disk("sdb", "8:16", "B")
        .uuid("sdb", "u")
        .mounted("8:16", "/", "/clone", "ext4", "/dev/sdb");
    host.read_all(1);
    let names: Vec<String> = host.facts.volumes.keys().map(ToString::to_string).collect();
    let (one, other) = (
        host.facts.volumes.values().next().expect("there").clone(),
        host.facts.volumes.values().nth(1).cloned(),
    );
    let Some(other) = other else {
        return assert_eq!(names.len(), 1, "clones that are one volume are judged as one");
    };
    checked(
        &mut host,
        request(RequestedTarget::Volume(one.facts.id.clone())),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    assert_eq!(host.facts.checks_of(&one).count(), 1);
    assert_eq!(host.facts.checks_of(&other).count(), 0, "{names:?}");
}

#[test]
fn a_check_of_a_device_belongs_to_the_volume_mounted_from_it_later() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u");
    host.inventory.devices.get_mut("sda").expect("there").fs_type = Some("ext4".into());
    host.read_all(0);
    checked(
        &mut host,
        request(RequestedTarget::Device("sda".into())),
        CheckVerdict::Corrupted,
        run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::Damage)]),
        5,
    );
    assert_eq!(host.raised(7), ["dev:sda FilesystemCorrupted Bad DataLoss"]);
    let mut host = TestHost { mounts: plain().mounts, ..host };
    host.read_mounts(10);
    assert_eq!(host.raised(11), ["fs:u FilesystemCorrupted Bad DataLoss"]);
}

#[test]
fn a_queued_check_stops_when_its_target_starts_failing() {
    let mut host = plain();
    start(&mut host, data(), 10).expect("begun");
    host.active.insert((Subject::Drive(DriveId::new("A")), Reason::SmartFailing), active_at(BAD));
    assert!(
        wanted(&host, 11)[0]
            .cancellation
            .as_ref()
            .is_some_and(|stop| stop.reason.contains("SmartFailing"))
    );
}

#[test]
fn a_confirmed_corruption_survives_newer_weaker_checks() {
    let mut host = plain();
    let told = checked(
        &mut host,
        data(),
        CheckVerdict::Corrupted,
        run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)]),
        10,
    );
    for second in 0..12 {
        let (verdict, ballot) = if second % 2 == 0 {
            (CheckVerdict::Suspected, RunResult::Findings)
        } else {
            (CheckVerdict::Clean, RunResult::Clean)
        };
        checked(&mut host, data(), verdict, run(Mode::Live, ballot, Vec::new()), 100 + second * 10);
    }
    host.facts.checks.prune(3);
    assert!(host.facts.checks.by_id.contains_key(&told));
    assert_eq!(host.raised(500), ["fs:u FilesystemCorrupted Bad DataLoss"]);
}

#[test]
fn a_kernel_signal_during_a_live_check_is_the_evidence_and_not_the_checker_output() {
    let mut host = plain();
    let check = start(&mut host, data(), 10).expect("begun");
    let signal = diskvitals_fscheck::FilesystemSignal {
        kind: SignalKind::Corrupted,
        evidence: diskvitals_finding::Evidence {
            source: "XFS".into(),
            time: at(11),
            text: "AG 3 is sick".into(),
            witness: diskvitals_finding::WitnessKind::Other,
            present: false,
        },
    };
    let progress = CheckProgress {
        id: check.id.clone(),
        at: at(12),
        state: CheckState::Ended,
        runs: vec![run(Mode::Live, RunResult::Findings, vec![flaw(Weight::Damage)])],
        signals: vec![signal],
        outcome: Some(CheckOutcome {
            verdict: CheckVerdict::Corrupted,
            reason: "the kernel says so".into(),
            mode: Mode::Live,
        }),
    };
    host.apply(SourceUpdate::Check(Box::new(progress)), 12);
    assert_eq!(host.raised(13), ["fs:u FilesystemCorrupted Bad Degraded"]);
    assert_eq!(
        host.raised_for(Reason::FilesystemCorrupted, 14).expect("raised").evidence[0].text,
        "AG 3 is sick"
    );
}

#[test]
fn checker_findings_during_device_read_errors_are_inconclusive() {
    let mut host = plain();
    let broken = Event { seq: 1, ..event(Class::Io, "sda", at(11), &[5]) };
    let cursor = Cursor { boot_id: "b".into(), counted_to: Some(1), reread_from: 0, lost: 0 };
    let batch = Batch {
        cursor,
        events: vec![broken],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    let found = Arc::new(Run {
        started: at(10),
        ..(*run(Mode::Frozen, RunResult::Findings, vec![flaw(Weight::Damage)])).clone()
    });
    let mut told = host.clone();
    told.apply(SourceUpdate::KernelLog(batch), 11);
    let id = checked(&mut told, data(), CheckVerdict::Corrupted, found.clone(), 12);
    assert_eq!(
        told.facts.checks.by_id[&id].verdict,
        Some(CheckVerdict::Inconclusive),
        "{}",
        told.facts.checks.by_id[&id].reason
    );
    let id = checked(&mut host, data(), CheckVerdict::Corrupted, found, 12);
    assert_eq!(host.facts.checks.by_id[&id].verdict, Some(CheckVerdict::Corrupted));
}
