//! Whichever process dies and whatever hangs, the filesystem becomes writable again.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use diskvitals_finding::ids::CheckId;
use diskvitals_source::checks::freezer::protocol::{FreezerEvent, FreezerRequest};
use diskvitals_source::checks::freezer::{FreezeError, FreezeRequest, Freezer};
use nix::sys::signal::{Signal, kill};
use tokio::time::timeout;

use super::fixture::{
    Fixture, FuseVolume, LONG, THAW_LIMIT, Volume, Writer, freeze, order, refused,
    waits_in_the_kernel,
};
use crate::programs::built_program;
use crate::support::{Mode, SOON, eventually, pause};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filesystem_is_thawed_at_once_when_its_freezer_is_killed() {
    for make in [Fixture::ext4, Fixture::xfs, Fixture::btrfs] {
        let fixture = Fixture::new();
        let volume = make(&fixture);
        let writer = Writer::start(&volume);
        let frozen = freeze(&fixture, &volume, LONG).await;
        writer.is_held().await;
        kill(fixture.freezer_process(), Signal::SIGKILL).expect("sent");
        println!("writable {:?} after the freezer was killed", writer.continues(THAW_LIMIT).await);
        let thawed = timeout(SOON, frozen.thaw()).await.expect("an answer");
        let why = thawed.early_reason.expect("it was not asked for");
        assert!(
            why.contains("was left frozen by a freezer that was killed, and is thawed"),
            "{why}"
        );
        fixture.is_clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_continue_whenever_a_freezer_is_killed() {
    let fixture = Fixture::new();
    let volume = fixture.xfs();
    let writer = Writer::start(&volume);
    let (mut while_freezing, mut while_frozen) = (0, 0);
    for after in (0..60).step_by(3).map(Duration::from_millis) {
        let freezer = fixture.freezer();
        let order = order(&volume, LONG);
        let freezing = tokio::spawn(async move { freezer.freeze(order).await });
        eventually("the note", SOON, async || {
            let found = diskvitals_host::intents::find(&fixture.intents).expect("readable");
            (!found.is_empty()).then_some(())
        })
        .await;
        let pid = fixture.freezer_process();
        pause(after).await;
        kill(pid, Signal::SIGKILL).expect("sent");
        match timeout(SOON, freezing).await.expect("an answer").expect("no panic") {
            Ok(frozen) => {
                while_frozen += 1;
                assert!(frozen.thaw().await.early_reason.is_some());
            }
            Err(FreezeError::Failed(_)) => while_freezing += 1,
            Err(error) => panic!("{error}"),
        }
        writer.continues(THAW_LIMIT).await;
        fixture.is_clean();
    }
    println!("killed {while_freezing} times before it was frozen, {while_frozen} times after");
    assert!(while_freezing > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_freezer_is_killed_after_the_limit_and_its_filesystem_thawed() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let mut frozen = freeze(&fixture, &volume, Duration::from_secs(1)).await;
    kill(fixture.freezer_process(), Signal::SIGSTOP).expect("sent");
    writer.is_held().await;
    let why = timeout(SOON, frozen.wait_thawed_early()).await.expect("thawed");
    assert!(why.contains("did not thaw when it should have"), "{why}");
    writer.continues(THAW_LIMIT).await;
    fixture.is_clean();
}

/// A freezer whose pipe only this test holds: nothing reacts to its end as the daemon would.
struct LoneFreezer {
    child: Child,
    output: BufReader<ChildStdout>,
}

#[expect(clippy::disallowed_methods, reason = "a freezer without a daemon")]
fn lone_freezer(fixture: &Fixture, volume: &Volume) -> LoneFreezer {
    let Freezer { program, intents } = fixture.freezer();
    let mut child = Command::new(program.program)
        .args(program.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut request =
        serde_json::to_vec(&FreezerRequest::Freeze { freeze: order(volume, LONG), intents })
            .expect("encodes");
    request.push(b'\n');
    child.stdin.as_mut().expect("a pipe").write_all(&request).expect("sent");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lone = LoneFreezer { child, output };
    assert_eq!(lone.next_event(), FreezerEvent::AboutToFreeze);
    assert!(matches!(lone.next_event(), FreezerEvent::Frozen { .. }));
    lone
}

impl LoneFreezer {
    fn next_event(&mut self) -> FreezerEvent {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

impl Drop for LoneFreezer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_the_pipe_thaws_the_filesystem() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let mut lone = lone_freezer(&fixture, &volume);
    writer.is_held().await;
    drop(lone.child.stdin.take());
    writer.continues(THAW_LIMIT).await;
    assert!(
        matches!(lone.next_event(), FreezerEvent::Thawed { early: Some(why), .. } if why.contains("the daemon has gone"))
    );
    assert!(lone.child.wait().expect("ends").success());
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_the_daemon_thaws_even_when_another_process_holds_the_pipe() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let Freezer { program, intents } = fixture.freezer();
    let mut request =
        serde_json::to_vec(&FreezerRequest::Freeze { freeze: order(&volume, LONG), intents })
            .expect("encodes");
    request.push(b'\n');
    #[expect(
        clippy::disallowed_methods,
        reason = "a daemon that only starts a freezer, which is given this test's pipe"
    )]
    let mut child = Command::new("/bin/sh")
        .args(["-c", r#"exec 3<&0; "$0" "$@" <&3 3<&- & wait"#])
        .arg(program.program)
        .args(program.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.as_mut().expect("a pipe").write_all(&request).expect("sent");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let pipe = child.stdin.take();
    let mut daemon = LoneFreezer { child, output };
    assert_eq!(daemon.next_event(), FreezerEvent::AboutToFreeze);
    assert!(matches!(daemon.next_event(), FreezerEvent::Frozen { .. }));
    writer.is_held().await;
    daemon.child.kill().expect("sent");
    println!("writable {:?} after the daemon was killed", writer.continues(THAW_LIMIT).await);
    drop(pipe);
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freezer_killed_during_fifreeze_is_followed_by_a_thaw_when_the_call_returns() {
    let fixture = Fixture::new();
    let slow = FuseVolume::new(&fixture);
    slow.hang_with_something_to_write();
    let freezer = fixture.freezer();
    let order = order(&slow.volume, LONG);
    let freezing = tokio::spawn(async move { freezer.freeze(order).await });
    waits_in_the_kernel(&fixture).await;
    kill(fixture.freezer_process(), Signal::SIGKILL).expect("sent");
    pause(Duration::from_millis(300)).await;
    assert!(!freezing.is_finished(), "SIGKILL does not end FIFREEZE");
    slow.served.set(Mode::Pass);
    let error = timeout(SOON, freezing)
        .await
        .expect("an answer")
        .expect("no panic")
        .expect_err("not frozen");
    assert!(
        matches!(&error, FreezeError::Failed(why) if why.contains("is thawed") || why.contains("nothing was left frozen")),
        "{error}"
    );
    println!("{error}");
    assert!(!slow.volume.is_frozen());
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_that_exceeds_the_limit_is_abandoned_and_thawed_when_it_completes() {
    let fixture = Fixture::new();
    let slow = FuseVolume::new(&fixture);
    slow.hang_with_something_to_write();
    let error = refused(fixture.freezer(), order(&slow.volume, Duration::from_secs(1))).await;
    assert!(
        matches!(&error, FreezeError::TimedOut(why) if why.contains("was not frozen within")),
        "{error}"
    );
    // The freeze is not retried in the meantime.
    let error = refused(
        fixture.freezer(),
        FreezeRequest { check: CheckId::known("another"), ..order(&slow.volume, LONG) },
    )
    .await;
    assert!(
        matches!(&error, FreezeError::Failed(why) if why.contains("an earlier freeze of it is not over")),
        "{error}"
    );
    slow.answers_and_is_thawed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_filesystem_on_a_hung_device_delays_no_other_and_is_thawed_when_it_answers() {
    let fixture = Fixture::new();
    let slow = FuseVolume::new(&fixture);
    let frozen = freeze(&fixture, &slow.volume, LONG).await;
    slow.served.set(Mode::Hang);
    let thawed = timeout(SOON, frozen.thaw()).await.expect("an answer");
    println!("{thawed:?}");
    let answered = thawed.early_reason.is_none();
    assert!(answered || thawed.early_reason.is_some_and(|why| why.contains("waits in the kernel")));
    slow.answers_and_is_thawed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_test_with_a_hung_device_cleans_up() {
    let fixture = Fixture::new();
    let slow = FuseVolume::new(&fixture);
    slow.hang_with_something_to_write();
    let (freezer, order) = (fixture.freezer(), order(&slow.volume, LONG));
    let freezing = tokio::spawn(async move { freezer.freeze(order).await });
    waits_in_the_kernel(&fixture).await;
    // As at the end of any test, also of a failed one.
    let dropped = tokio::task::spawn_blocking(move || drop(slow));
    timeout(SOON, dropped).await.expect("nothing waits for the device").expect("no panic");
    // Data that the device did not accept may prevent a freeze.
    drop(timeout(SOON, freezing).await.expect("an answer"));
}

/// As the unit's ExecStopPost runs it.
fn thaw_as_the_unit_does(fixture: &Fixture) -> String {
    #[expect(clippy::disallowed_methods, reason = "as the unit runs it")]
    let output = Command::new(built_program("diskvitalsd"))
        .args(["worker", "thaw", "/"])
        .arg(&fixture.intents)
        .output()
        .expect("runs");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unit_and_the_next_start_thaw_abandoned_filesystems() {
    let fixture = Fixture::new();
    for (volume, by_unit) in
        [(fixture.ext4(), true), (fixture.xfs(), false), (fixture.btrfs(), true)]
    {
        let writer = Writer::start(&volume);
        let mut lone = lone_freezer(&fixture, &volume);
        writer.is_held().await;
        lone.child.kill().expect("sent");
        // Not reaped yet: a zombie counts as ended.
        let mut rest = Vec::new();
        lone.output.read_to_end(&mut rest).expect("the end of the pipe");
        writer.is_held().await;
        let since = Instant::now();
        let output = if by_unit {
            thaw_as_the_unit_does(&fixture)
        } else {
            fixture.freezer().thaw_leftovers().await.join("\n")
        };
        assert!(
            output.contains("was left frozen by a freezer that was killed, and is thawed"),
            "{output}"
        );
        writer.continues(THAW_LIMIT).await;
        println!(
            "{}: writable {:?} after it was looked for",
            volume.path.display(),
            since.elapsed()
        );
        assert!(since.elapsed() < THAW_LIMIT);
        fixture.is_clean();
    }
    assert_eq!(thaw_as_the_unit_does(&fixture), "");
    assert_eq!(fixture.freezer().thaw_leftovers().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freezer_killed_before_it_updated_its_note_is_followed_by_a_thaw() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let mut lone = lone_freezer(&fixture, &volume);
    lone.child.kill().expect("sent");
    lone.child.wait().expect("gone");
    // The state that a SIGKILL during FIFREEZE leaves.
    let note = fixture.intents.join("c0ffee.json");
    let text = std::fs::read_to_string(&note).expect("the note");
    assert!(text.starts_with(r#"{"stage":"frozen","#), "{text}");
    std::fs::write(&note, text.replacen("frozen", "asking", 1)).expect("written");
    writer.is_held().await;
    assert!(thaw_as_the_unit_does(&fixture).contains("is thawed"));
    writer.continues(THAW_LIMIT).await;
    fixture.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_freezer_is_left_alone() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let writer = Writer::start(&volume);
    let frozen = freeze(&fixture, &volume, LONG).await;
    assert!(thaw_as_the_unit_does(&fixture).contains("is still there"));
    writer.is_held().await;
    assert_eq!(frozen.thaw().await.early_reason, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_notes_are_removed_and_unreadable_ones_are_kept() {
    let fixture = Fixture::new();
    let volume = fixture.ext4();
    let lone = lone_freezer(&fixture, &volume);
    let note = fixture.intents.join("c0ffee.json");
    let text = std::fs::read_to_string(&note).expect("the note");
    drop(lone);
    volume.kept.thaw().expect("thawed by hand");
    assert_eq!(thaw_as_the_unit_does(&fixture), "");
    fixture.is_clean();

    // Frozen by another program since the boot that the note is from.
    volume.kept.freeze().expect("frozen");
    let boot = diskvitals_host::intents::boot_id().expect("readable");
    std::fs::write(&note, text.replace(&boot, "another-boot")).expect("written");
    assert_eq!(thaw_as_the_unit_does(&fixture), "");
    fixture.is_clean();
    volume.kept.thaw().expect("it was still frozen");

    std::fs::write(&note, "junk").expect("written");
    assert!(thaw_as_the_unit_does(&fixture).contains("is no note of a freeze"));
    assert!(note.exists());
}
