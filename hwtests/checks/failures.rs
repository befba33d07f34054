//! Devices and checkers that fail, hang, disappear or are killed during a check: the verdict is
//! never CLEAN or CORRUPTED, and the daemon continues to answer.

use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use diskvitals_wire::check::{State, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::fixture::{
    CHECK_LIMIT, ON_DEMAND, Script, THAW_LIMIT, Volume, begin, cancel, check, ended, get, make,
    nothing_is_left, of, of_device, on_a_server, phase, processes, start, try_begin,
};
use crate::support::fuse::{Effect, Fault};
use crate::support::tools::run;
use crate::support::{FuseServer, Mode as Server, SOON, Testbed, eventually};

#[track_caller]
fn is_inconclusive(check: &diskvitals_wire::Check) {
    assert!(matches!(check.verdict(), Verdict::Failed | Verdict::Inconclusive), "{check:#?}");
    assert!(!check.reason.is_empty(), "{check:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_whose_device_fails_or_hangs_is_inconclusive() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let testbed = Testbed::new();
        let disk = make(&testbed, filesystem);
        disk.detach();
        let served = FuseServer::mount(&testbed.path("fuse"), &disk.image);
        let disk = testbed.attach(&served.file());
        let daemon = start(&testbed, ON_DEMAND).await;
        served.fault(vec![Fault::reads(0..1 << 40)]);
        is_inconclusive(&check(&daemon.client, of_device(&disk, filesystem)).await);
        served.fault(Vec::new());

        // The check is not answered, but the daemon answers and ends in time.
        run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
        served.fault(vec![Fault { effect: Effect::Hang, ..Fault::reads(0..1 << 40) }]);
        let begun = begin(
            &daemon.client,
            diskvitals_wire::StartCheckRequest { force: true, ..of_device(&disk, filesystem) },
        )
        .await;
        for _ in 0..20 {
            let started = Instant::now();
            daemon.client.node().await;
            assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
            crate::support::pause(Duration::from_millis(50)).await;
        }
        cancel(&daemon.client, &begun.id).await;
        is_inconclusive(&ended(&daemon.client, &begun.id, CHECK_LIMIT).await);
        assert!(daemon.stop().await < Duration::from_secs(10));
        served.fault(Vec::new());
        nothing_is_left(&testbed, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_with_a_check_that_hangs_ends_in_time() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    disk.detach();
    let served = FuseServer::mount(&testbed.path("fuse"), &disk.image);
    let disk = testbed.attach(&served.file());
    let daemon = start(&testbed, ON_DEMAND).await;
    run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
    served.fault(vec![Fault { effect: Effect::Hang, ..Fault::reads(0..1 << 40) }]);
    let begun = begin(&daemon.client, of_device(&disk, Filesystem::Ext4)).await;
    phase(&daemon.client, &begun.id, "run").await;
    assert!(daemon.stop().await < Duration::from_secs(10));
    served.fault(Vec::new());
    nothing_is_left(&testbed, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_whose_device_fails_during_a_run_is_inconclusive() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let testbed = Testbed::new();
        let (served, disk) = on_a_server(&testbed, filesystem);
        let daemon = start(&testbed, ON_DEMAND).await;
        served.fault(vec![Fault { after: 12, ..Fault::reads(0..1 << 40) }]);
        let check = check(&daemon.client, of_device(&disk, filesystem)).await;
        is_inconclusive(&check);
        // The kernel's records about the drive may stop the check before its checker has ended.
        assert!(!check.runs.is_empty() || check.reason.contains("IoErrors"), "{check:#?}");
        served.set(Server::Fail);
        nothing_is_left(&testbed, None).await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_whose_checker_is_killed_crashes_or_lacks_memory_is_inconclusive() {
    for body in
        ["kill -KILL $$", "kill -SEGV $$", "exec dd if=/dev/zero of=/dev/null bs=600M count=1"]
    {
        let testbed = Testbed::new();
        let script = Script::new(&testbed, body);
        let disk = make(&testbed, Filesystem::Ext4);
        let daemon =
            start(&testbed, &format!("{ON_DEMAND}memory_bytes = 268435456\n{}", script.tools()))
                .await;
        let unmounted = check(&daemon.client, of_device(&disk, Filesystem::Ext4)).await;
        assert_eq!(unmounted.verdict(), Verdict::Failed, "{unmounted:#?}");
        let volume = Volume::mount(&testbed, disk, "ext4", "");
        let live = check(&daemon.client, of(&volume.at)).await;
        assert_eq!(live.verdict(), Verdict::Failed, "{live:#?}");
        nothing_is_left(&testbed, Some(&volume)).await;
        daemon.stop().await;
    }
    // Killed from outside, each time.
    let testbed = Testbed::new();
    let script = Script::by_turns(&testbed);
    let daemon = start(&testbed, &format!("{ON_DEMAND}{}", script.tools())).await;
    let volume = Volume::filled(&testbed, Filesystem::Ext4);
    let begun = begin(&daemon.client, of(&volume.at)).await;
    let path = script.path.display().to_string();
    let ended = tokio::time::timeout(CHECK_LIMIT, async {
        loop {
            // The shell has the script as its argument. Helpers name it too and must not be killed.
            for pid in processes(&path) {
                let line =
                    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                if line.starts_with("/bin/sh") {
                    // It may have ended already.
                    kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
                }
            }
            let check = get(&daemon.client, &begun.id).await;
            if check.verdict() != Verdict::Unspecified {
                return check;
            }
            crate::support::pause(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it ends");
    assert_eq!(ended.verdict(), Verdict::Failed, "{ended:#?}");
    assert!(ended.runs.iter().all(|run| run.signal == 9), "{ended:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_has_one_check_at_a_time_and_others_wait_in_the_queue() {
    let testbed = Testbed::new();
    let script = Script::by_turns(&testbed);
    let daemon = start(&testbed, &format!("{ON_DEMAND}{}", script.tools())).await;
    let one = Volume::filled(&testbed, Filesystem::Ext4);
    let other = Volume::mount(&testbed, testbed.ext4("f.img", 64, &[]), "ext4", "");
    let first = begin(&daemon.client, of(&one.at)).await;
    phase(&daemon.client, &first.id, "live run").await;
    let again = try_begin(&daemon.client, &of(&one.at)).await.expect_err("one at a time");
    assert!(
        matches!(again.code(), tonic::Code::FailedPrecondition | tonic::Code::AlreadyExists),
        "{again}"
    );
    let second = begin(&daemon.client, of(&other.at)).await;
    let queued = get(&daemon.client, &second.id).await;
    assert_eq!(queued.state(), State::Queued, "{queued:#?}");
    // Cancelled in the queue: at once.
    cancel(&daemon.client, &second.id).await;
    let gone = ended(&daemon.client, &second.id, SOON).await;
    assert!(gone.cancelled && gone.runs.is_empty(), "{gone:#?}");
    // Cancelled during a live run.
    cancel(&daemon.client, &first.id).await;
    let stopped = ended(&daemon.client, &first.id, SOON).await;
    assert!(stopped.cancelled, "{stopped:#?}");
    is_inconclusive(&stopped);
    nothing_is_left(&testbed, Some(&one)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_are_queued_run_one_after_the_other_to_their_ends() {
    let testbed = Testbed::new();
    let script = Script::by_turns(&testbed);
    let daemon = start(&testbed, &format!("{ON_DEMAND}at_once = 1\n{}", script.tools())).await;
    let disks = [1, 2, 3].map(|number| testbed.ext4(&format!("{number}.img"), 64, &[]));
    let mut ids = Vec::new();
    for disk in &disks {
        ids.push(begin(&daemon.client, of_device(disk, Filesystem::Ext4)).await.id);
    }
    let path = script.path.display().to_string();
    for (at, id) in ids.iter().enumerate() {
        let runs = phase(&daemon.client, id, "unmounted run").await;
        assert_eq!(runs.state(), State::Running, "{runs:#?}");
        for later in &ids[at + 1..] {
            let queued = get(&daemon.client, later).await;
            assert_eq!(
                (queued.state(), queued.runs.len(), queued.started.is_none()),
                (State::Queued, 0, true),
                "{queued:#?}"
            );
            assert!(queued.phase.contains("other checks go on"), "{queued:#?}");
        }
        // When it sleeps, it has read the previous turn; a turn that it missed is followed by
        // another.
        let mut turn = 100 * u32::try_from(at).expect("few");
        let over = eventually("the check ends", CHECK_LIMIT, async || {
            if !processes(&path).is_empty() {
                turn += 1;
                script.turn_to(turn);
            }
            crate::support::pause(Duration::from_millis(100)).await;
            Some(get(&daemon.client, id).await).filter(|check| check.state() == State::Ended)
        })
        .await;
        // A check as strong as the script's that raised the finding.
        assert_eq!((over.verdict(), over.runs.len()), (Verdict::Corrupted, 1), "{over:#?}");
    }
    let ends: Vec<_> = begin_and_end(&daemon.client, &ids).await;
    let in_order = |pair: &[(Moment, Moment)]| pair[0].1 <= pair[1].0;
    assert!(ends.windows(2).all(in_order), "{ends:?}");
    nothing_is_left(&testbed, None).await;
    daemon.stop().await;
}

/// Seconds and nanoseconds.
type Moment = (i64, i32);

/// When each check started and ended.
async fn begin_and_end(client: &crate::support::Client, ids: &[String]) -> Vec<(Moment, Moment)> {
    let mut all = Vec::new();
    for id in ids {
        let check = get(client, id).await;
        let moment = |time: Option<prost_types::Timestamp>| {
            time.map(|time| (time.seconds, time.nanos)).expect("a time")
        };
        all.push((moment(check.started), moment(check.ended)));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_that_goes_away_ends_its_check() {
    let testbed = Testbed::new();
    let script = Script::by_turns(&testbed);
    let daemon = start(&testbed, &format!("{ON_DEMAND}{}", script.tools())).await;
    let mut volume = Volume::filled(&testbed, Filesystem::Ext4);
    let begun = begin(&daemon.client, of(&volume.at)).await;
    phase(&daemon.client, &begun.id, "live run").await;
    volume.umount();
    is_inconclusive(&ended(&daemon.client, &begun.id, SOON + THAW_LIMIT).await);
    nothing_is_left(&testbed, None).await;
    daemon.stop().await;
}
