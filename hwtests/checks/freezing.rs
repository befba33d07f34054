//! A process dies, or the check is cancelled, while writers are held: the writers continue soon and
//! nothing is left behind.

use std::time::Duration;

use diskvitals_fscheck::Filesystem;
use diskvitals_wire::check::{State, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::fixture::{
    CHECK_LIMIT, ON_DEMAND, Script, THAW_LIMIT, Volume, begin, cancel, ended, freezer, frozen, get,
    nothing_is_left, of, phase, start,
};
use crate::support::daemon::Arguments;
use crate::support::{Daemon, SOON, Testbed, eventually, pause};

/// Long enough for a test that is itself delayed.
const CHECKS: &str = "budget = \"30s\"\n";

struct Held {
    daemon: Daemon,
    volume: Volume,
    script: Script,
    id: String,
    /// The id of the freezer's process.
    pid: i32,
    testbed: Testbed,
}

/// A check whose live run has found a problem, and whose frozen run holds the writers until the
/// script's next turn.
async fn held() -> Held {
    let testbed = Testbed::new();
    let script = Script::by_turns(&testbed);
    let daemon = start(&testbed, &format!("{ON_DEMAND}{CHECKS}{}", script.tools())).await;
    let volume = Volume::filled(&testbed, Filesystem::Ext4);
    let id = begin(&daemon.client, frozen(of(&volume.at))).await.id;
    phase(&daemon.client, &id, "live run").await;
    eventually("the checker runs", SOON, async || {
        super::fixture::processes(&script.path.display().to_string()).first().copied()
    })
    .await;
    // When it sleeps, its first look at the turn is over; before that, a turn would be missed and
    // another round needed.
    let mut turn = 0;
    let pid = loop {
        turn += 1;
        script.turn_to(turn);
        if let Ok(pid) = tokio::time::timeout(Duration::from_secs(5), freezer(&testbed)).await {
            break pid;
        }
        assert!(turn < 6, "never frozen: {:#?}", get(&daemon.client, &id).await);
    };
    Held { daemon, volume, script, id, pid, testbed }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_leaves_nothing_frozen_and_the_next_one_knows_the_check() {
    let Held { daemon, volume, id, testbed, .. } = held().await;
    daemon.kill().await;
    volume.is_writable(THAW_LIMIT).await;
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    let check = get(&daemon.client, &id).await;
    assert_eq!((check.state(), check.verdict()), (State::Ended, Verdict::Failed), "{check:#?}");
    assert!(!check.reason.is_empty(), "{check:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_start_thaws_after_daemon_and_freezer_were_killed_together() {
    let Held { daemon, volume, id, pid, testbed, .. } = held().await;
    // The freezer is killed first, so that the rest of the daemon cannot thaw.
    kill(daemon.pid(), Signal::SIGSTOP).expect("SIGSTOP");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("SIGKILL");
    daemon.kill().await;
    let started = Instant::now();
    let daemon = Daemon::start_with(&Arguments::of(&testbed)).await;
    volume.is_writable(THAW_LIMIT).await;
    println!("thawed by the next start within {:?}", started.elapsed());
    eventually("the findings of the live run", SOON, async || {
        daemon.log().contains("was left frozen").then_some(())
    })
    .await;
    let check = get(&daemon.client, &id).await;
    assert_eq!(check.verdict(), Verdict::Failed, "{check:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_freezer_is_thawed_at_once_and_its_run_is_discarded() {
    let Held { daemon, volume, id, pid, script, testbed } = held().await;
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("SIGKILL");
    volume.is_writable(THAW_LIMIT).await;
    // The daemon may retry the run.
    cancel(&daemon.client, &id).await;
    script.turn_to(99);
    let check = ended(&daemon.client, &id, CHECK_LIMIT).await;
    assert!(!matches!(check.verdict(), Verdict::Clean | Verdict::Corrupted), "{check:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_cancelled_during_or_between_frozen_runs_leaves_nothing_frozen() {
    let Held { daemon, volume, id, testbed, .. } = held().await;
    cancel(&daemon.client, &id).await;
    volume.is_writable(THAW_LIMIT).await;
    let check = ended(&daemon.client, &id, SOON).await;
    assert!(check.cancelled && check.verdict() == Verdict::Inconclusive, "{check:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;

    let Held { daemon, volume, id, script, testbed, .. } = held().await;
    let mut turn = 50;
    eventually("the check waits between frozen runs", SOON, async || {
        // The script may not have looked yet.
        turn += 1;
        script.turn_to(turn);
        pause(Duration::from_millis(300)).await;
        (get(&daemon.client, &id).await.state() == State::Waiting).then_some(())
    })
    .await;
    volume.is_writable(THAW_LIMIT).await;
    cancel(&daemon.client, &id).await;
    let check = ended(&daemon.client, &id, SOON).await;
    assert!(check.cancelled && check.verdict() == Verdict::Inconclusive, "{check:#?}");
    nothing_is_left(&testbed, Some(&volume)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_stopped_while_a_filesystem_is_frozen_thaws_it() {
    let Held { daemon, volume, testbed, .. } = held().await;
    assert!(daemon.stop().await < Duration::from_secs(10));
    volume.is_writable(THAW_LIMIT).await;
    nothing_is_left(&testbed, Some(&volume)).await;
}
