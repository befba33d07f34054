//! Who may be checked, what is wanted of the source, and what is remembered.

mod lifetime;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::assess::BAD;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::ids::DriveId;
use diskvitals_fscheck::decision::CheckOutcome;
use diskvitals_fscheck::policy::{Permission, VolumeCheckPolicy};
use diskvitals_fscheck::{
    CheckProgress, CheckVerdict, CheckerOutput, Problem, Run, RunResult, SignalKind, Termination,
    Weight,
};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event, Line};

pub fn plain() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host
}

pub fn request(what: RequestedTarget) -> CheckRequest {
    CheckRequest {
        target: what,
        filesystem: None,
        runs: None,
        freeze: false,
        snapshot: false,
        force: false,
        requested_by: "uid 0 (root)".into(),
    }
}

pub fn data() -> CheckRequest {
    request(RequestedTarget::Volume(volume("fs:u")))
}

fn start(
    host: &mut TestHost,
    asked: CheckRequest,
    second: i64,
) -> Result<Arc<Check>, StartCheckError> {
    let active = host.active.clone();
    host.facts.start_check(asked, &host.policy.checks, &active, at(second))
}

pub fn run(mode: Mode, ballot: RunResult, flaws: Vec<Problem>) -> Arc<Run> {
    Arc::new(Run {
        mode,
        started: at(0),
        duration: Duration::from_secs(2),
        active: Duration::from_secs(1),
        held: None,
        termination: Termination::Exited(if ballot == RunResult::Clean { 0 } else { 4 }),
        result: ballot,
        failure_reason: String::new(),
        problems: flaws,
        more_problems: 0,
        no_error_found: false,
        pending_replay: None,
        bytes_read: 4096,
        peak_memory: None,
        checker_error: None,
        command: "e2fsck -fn /dev/sda".into(),
        output: CheckerOutput { gzip: vec![1, 2, 3].into(), written: 9, kept: 9 },
        filesystem_uuid: None,
    })
}

pub fn flaw(weight: Weight) -> Problem {
    Problem {
        kind: "inode-checksum".into(),
        ids: vec!["12".into()],
        weight,
        text: "Inode 12 passes checks, but checksum does not match inode.".into(),
    }
}

/// It goes from start to end.
pub fn checked(
    host: &mut TestHost,
    asked: CheckRequest,
    verdict: CheckVerdict,
    run: Arc<Run>,
    second: i64,
) -> CheckId {
    let check = start(host, asked, second).expect("it may be checked");
    let outcome = CheckOutcome { verdict, reason: "because".into(), mode: run.mode };
    let progress = CheckProgress {
        id: check.id.clone(),
        at: at(second + 1),
        state: CheckState::Ended,
        runs: vec![run],
        signals: Vec::new(),
        outcome: Some(outcome),
    };
    host.apply(SourceUpdate::Check(Box::new(progress)), second + 1);
    check.id.clone()
}

fn wanted(host: &TestHost, second: i64) -> Vec<DesiredCheck> {
    host.facts.desired_checks(&host.policy, &host.active, at(second))
}

#[test]
fn a_volume_is_checked_where_it_is_mounted_and_as_the_policy_says() {
    let mut host = plain();
    let check = start(&mut host, data(), 10).expect("begun");
    let target = &check.target;
    assert_eq!(
        (target.name.as_str(), target.device.as_str(), target.mode),
        ("fs:u", "sda", Mode::Live)
    );
    assert_eq!(
        (target.mount.clone(), target.uuid.as_deref()),
        (Some(HostPath::from("/data")), Some("u"))
    );
    assert_eq!(target.drives, [DriveId::new("A")]);
    assert_eq!((check.terms.runs, check.terms.freeze), (3, false));
    let wanted = wanted(&host, 10);
    assert_eq!(
        (wanted.len(), &wanted[0].id, &wanted[0].cancellation, wanted[0].signals.len()),
        (1, &check.id, &None, 0)
    );
}

#[test]
fn a_device_that_carries_a_mounted_volume_is_that_volume_and_one_that_does_not_is_unmounted() {
    let mut host = plain().disk("sdb", "8:16", "B").uuid("sdb", "v");
    host.inventory.devices.get_mut("sdb").expect("there").fs_type = Some("xfs".into());
    host.read_all(1);
    let check =
        start(&mut host, request(RequestedTarget::Device("sda".into())), 10).expect("begun");
    assert_eq!((check.target.name.as_str(), check.target.mode), ("fs:u", Mode::Live));
    let check =
        start(&mut host, request(RequestedTarget::Device("sdb".into())), 11).expect("begun");
    assert_eq!(
        (check.target.name.as_str(), check.target.mode, check.target.filesystem),
        ("/dev/sdb", Mode::Unmounted, Filesystem::Xfs)
    );
}

#[test]
fn the_filesystem_of_a_device_must_be_known_or_given() {
    let mut host = plain().disk("sdb", "8:16", "B");
    host.read_all(1);
    let unknown = request(RequestedTarget::Device("sdb".into()));
    assert!(
        matches!(start(&mut host, unknown.clone(), 5), Err(StartCheckError::NotCheckable(why)) if why.contains("not known"))
    );
    assert!(
        start(&mut host, CheckRequest { filesystem: Some(Filesystem::Ext4), ..unknown }, 5).is_ok()
    );
    let wrong = CheckRequest { filesystem: Some(Filesystem::Xfs), ..data() };
    assert!(
        matches!(start(&mut host, wrong, 5), Err(StartCheckError::NotCheckable(why)) if why.contains("is ext4 and not xfs"))
    );
    host.mount_mut("/data").fs_type = "vfat".into();
    host.read_mounts(6);
    assert!(
        matches!(start(&mut host, data(), 7), Err(StartCheckError::NotCheckable(why)) if why.contains("vfat"))
    );
}

#[test]
fn a_volume_removed_before_the_check_starts_is_reported_as_gone() {
    let mut host = plain();
    host.umount("/data");
    host.read_mounts(6);
    assert_eq!(start(&mut host, data(), 7), Err(StartCheckError::VolumeGone(volume("fs:u"))));
}

#[test]
fn one_check_per_filesystem_and_the_queue_is_bounded() {
    let mut host = plain();
    let first = start(&mut host, data(), 10).expect("begun");
    assert_eq!(
        start(&mut host, request(RequestedTarget::Device("sda".into())), 11),
        Err(StartCheckError::AlreadyRunning { what: "fs:u".into(), id: first.id.clone() })
    );
    let mut host = host.disk("sdb", "8:16", "B");
    host.read_all(12);
    let other = CheckRequest {
        filesystem: Some(Filesystem::Ext4),
        ..request(RequestedTarget::Device("sdb".into()))
    };
    host.policy.checks.max_queued = 1;
    assert_eq!(start(&mut host, other, 13), Err(StartCheckError::QueueFull(1)));
}

#[test]
fn a_failing_target_is_refused_unless_forced_and_a_forced_check_never_freezes() {
    let mut host = plain();
    host.policy.checks.freeze = Permission::OnDemand;
    host.active.insert((Subject::Drive(DriveId::new("A")), Reason::MediaErrors), active_at(BAD));
    assert!(
        matches!(start(&mut host, data(), 10), Err(StartCheckError::TargetFailing { why, .. }) if why.contains("MediaErrors"))
    );
    let forced =
        start(&mut host, CheckRequest { force: true, freeze: true, ..data() }, 11).expect("forced");
    assert!(!forced.terms.freeze, "a failing drive's writers are never held");
    let mut stalled = plain();
    stalled.active.insert((Subject::Volume(volume("fs:u")), Reason::IoStalled), active_at(BAD));
    assert!(matches!(start(&mut stalled, data(), 10), Err(StartCheckError::TargetFailing { .. })));
}

#[test]
fn freezing_requires_permission_by_the_policy() {
    let mut host = plain();
    let freeze = CheckRequest { freeze: true, ..data() };
    assert_eq!(
        start(&mut host, freeze.clone(), 1),
        Err(StartCheckError::NotAllowed { what: "fs:u".into(), key: "freeze" })
    );
    host.policy.checks.policies = vec![VolumeCheckPolicy {
        volumes: vec!["/da*".into()],
        freeze: Some(Permission::OnDemand),
        runs: Some(7),
        ..Default::default()
    }];
    let check = start(&mut host, freeze, 2).expect("allowed by the mount point");
    assert_eq!((check.terms.freeze, check.terms.runs), (true, 7));
}

#[test]
fn a_check_stops_when_its_mount_disappears_or_it_is_cancelled() {
    let mut host = plain().mounted("8:0", "/x", "/pod", "ext4", "/dev/sda");
    host.read_all(1);
    start(&mut host, data(), 10).expect("begun");
    host.umount("/pod");
    host.read_mounts(11);
    assert_eq!(
        wanted(&host, 11)[0].cancellation.as_ref().map(|stop| stop.reason.as_str()),
        Some("/pod was unmounted")
    );
    let mut host = plain();
    start(&mut host, data(), 10).expect("begun");
    host.mounts.mounts.clear();
    host.apply(
        SourceUpdate::Mounts(diskvitals_finding::observation::Observation::failed(at(11), "no")),
        11,
    );
    assert_eq!(
        wanted(&host, 11)[0].cancellation,
        None,
        "a table that cannot be read takes nothing away"
    );
    let id = host.facts.checks.by_id.keys().next().expect("there").clone();
    assert!(host.facts.cancel_check(&id).expect("goes on").cancelled);
    assert!(wanted(&host, 12)[0].cancellation.is_some());
}

#[test]
fn a_mount_during_an_unmounted_check_makes_it_inconclusive() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u");
    host.inventory.devices.get_mut("sda").expect("there").fs_type = Some("ext4".into());
    host.read_all(0);
    let check = start(&mut host, request(RequestedTarget::Device("sda".into())), 5).expect("begun");
    let mut host = TestHost { mounts: plain().mounts, ..host };
    host.read_mounts(6);
    // The volume is there now; the check was of the device.
    let progress = CheckProgress {
        id: check.id.clone(),
        at: at(7),
        state: CheckState::Ended,
        runs: vec![run(Mode::Unmounted, RunResult::Findings, vec![flaw(Weight::Damage)])],
        signals: Vec::new(),
        outcome: Some(CheckOutcome {
            verdict: CheckVerdict::Corrupted,
            reason: "x".into(),
            mode: Mode::Unmounted,
        }),
    };
    host.apply(SourceUpdate::Check(Box::new(progress)), 7);
    let check = &host.facts.checks.by_id[&check.id];
    assert_eq!(check.verdict, Some(CheckVerdict::Inconclusive), "{}", check.reason);
}

#[test]
fn kernel_signals_are_passed_on_and_a_clean_still_check_clears_them() {
    let mut host = plain();
    let said = |event: Event| {
        let words =
            "EXT4-fs error (device sda): ext4_lookup:1855: inode #2: comm ls: bad extra_isize"
                .to_owned();
        Event {
            first: Line { text: words.clone(), ..event.first },
            last: Line { text: words, ..event.last },
            ..event
        }
    };
    let corruption = said(Event { seq: 1, ..event(Class::FsCorruption, "sda", at(5), &[]) });
    let cursor = Cursor { boot_id: "b".into(), counted_to: Some(1), reread_from: 0, lost: 0 };
    let batch = Batch {
        cursor,
        events: vec![corruption],
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    };
    host.apply(SourceUpdate::KernelLog(batch), 5);
    start(&mut host, data(), 10).expect("begun");
    let signals = wanted(&host, 10)[0].signals.clone();
    assert_eq!(
        signals.iter().map(|signal| signal.kind).collect::<Vec<_>>(),
        [SignalKind::Corrupted]
    );
    let outcome = CheckOutcome {
        verdict: CheckVerdict::Inconclusive,
        reason: "stopped".into(),
        mode: Mode::Live,
    };
    let id = host.facts.checks.by_id.keys().next().expect("there").clone();
    let ended = CheckProgress {
        id,
        at: at(10),
        state: CheckState::Ended,
        runs: Vec::new(),
        signals: Vec::new(),
        outcome: Some(outcome),
    };
    host.apply(SourceUpdate::Check(Box::new(ended)), 10);
    assert!(host.raised(11).contains(&"fs:u FilesystemCorrupted Bad Degraded".to_owned()));
    checked(
        &mut host,
        data(),
        CheckVerdict::Clean,
        run(Mode::Live, RunResult::Clean, Vec::new()),
        20,
    );
    assert!(
        host.raised(22).contains(&"fs:u FilesystemCorrupted Bad Degraded".to_owned()),
        "a live check is too weak"
    );
    let clean = Arc::new(Run {
        started: at(30),
        ..(*run(Mode::Unmounted, RunResult::Clean, Vec::new())).clone()
    });
    // As an admin does: unmounted, checked, mounted again.
    let id = checked(&mut host, data(), CheckVerdict::Clean, clean, 30);
    let check = Arc::make_mut(host.facts.checks.by_id.get_mut(&id).expect("there"));
    (check.mode, check.verdict) = (Mode::Unmounted, Some(CheckVerdict::Clean));
    assert_eq!(host.raised(32), [""; 0]);
}
