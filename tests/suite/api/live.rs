//! `status --watch` and `watch` as processes: on a terminal of their own, and on pipes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use diskvitals_daemon::state::handle::{ChangeKind, ChangedItem};
use diskvitals_finding::Health;
use diskvitals_finding::dev::DevNo;
use diskvitals_model::block::{DiskStat, Transfers};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_wire as wire;
use nix::sys::signal::Signal;

use super::fixture::{Served, drive, snapshot};
use crate::child::Process;
use crate::programs::built_program;
use crate::terminal::Terminal;

/// Runs a test that blocks beside the server.
async fn beside<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(test).await.expect("no panic")
}

fn watch_on_terminal(socket: &Path, columns: u16, lines: u16) -> Terminal {
    let socket = socket.to_str().expect("text");
    Terminal::start(&["--socket", socket, "status", "--watch"], columns, lines)
}

fn added(served: &Served, name: &str) {
    let item = ChangedItem::Drive(Arc::new(drive(name, &format!("S-{name}"))));
    served.owner.change(ChangeKind::Added, item);
}

const RESTORED: &str = "\x1b[?25h\x1b[?7h\x1b[?1049l";

#[tokio::test(flavor = "multi_thread")]
async fn the_screen_follows_changes_and_sizes_and_q_restores_the_terminal() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let mut terminal = beside(move || {
        let terminal = watch_on_terminal(&socket, 100, 40);
        let frame = terminal.await_frame(|frame| frame.contains("sdb"));
        assert!(frame.starts_with("node1  Linux 6.12.0"), "{frame}");
        assert!(!frame.contains("sdc"), "{frame}");
        terminal
    })
    .await;
    added(&served, "sdc");
    beside(move || {
        terminal.await_frame(|frame| frame.contains("sdc"));
        terminal.resize(40, 8);
        let frame = terminal.await_frame(|frame| frame.lines().count() <= 8);
        assert!(frame.lines().all(|line| line.chars().count() <= 40), "{frame}");
        terminal.resize(100, 40);
        terminal.await_frame(|frame| frame.contains("sdc"));
        terminal.type_keys("xq");
        assert!(terminal.ended().success());
        terminal.await_output(|text| text.ends_with(RESTORED));
        let settings = terminal.settings();
        assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_and_signals_restore_the_terminal() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    beside(move || {
        let end_of = |end: &dyn Fn(&mut Terminal)| {
            let mut terminal = watch_on_terminal(&socket, 80, 24);
            terminal.await_frame(|frame| frame.contains("sdb"));
            end(&mut terminal);
            assert!(terminal.ended().success());
            terminal.await_output(|text| text.ends_with(RESTORED));
            assert!(terminal.settings().contains(" icanon"));
        };
        end_of(&|terminal| terminal.type_keys("\x03"));
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            end_of(&|terminal| terminal.signal(signal));
        }
    })
    .await;
}

/// Revisions begin with the time of the start, so that those of a restarted daemon are higher.
fn after_restart() -> Snapshot {
    Snapshot { revision: 9000, ..snapshot(0) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_daemon_is_shown_with_the_last_state_and_a_restarted_one_is_found() {
    let mut served = Served::start(snapshot(0)).await;
    added(&served, "sdc");
    let socket = served.socket();
    let terminal = beside(move || {
        let terminal = watch_on_terminal(&socket, 100, 40);
        terminal.await_frame(|frame| frame.contains("sdc") && !frame.contains("NO ANSWER"));
        terminal
    })
    .await;
    served.stop().await;
    let terminal = beside(move || {
        let frame = terminal.await_frame(|frame| frame.contains("NO ANSWER"));
        assert!(
            frame.replace('\n', " ").contains("What follows is old") && frame.contains("sdc"),
            "{frame}"
        );
        terminal
    })
    .await;
    let _served = Served::again(served, after_restart()).await;
    beside(move || {
        let frame =
            terminal.await_frame(|frame| !frame.contains("NO ANSWER") && !frame.contains("sdc"));
        assert!(frame.contains("sdb"), "{frame}");
    })
    .await;
}

#[allow(clippy::disallowed_methods)] // The very program that is tested.
fn piped(socket: &Path, words: &[&str]) -> (Process, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(built_program("diskvitals"))
        .args(words)
        .env("DISKVITALS_SOCKET", socket)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    (Process(child), lines)
}

fn line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_there_is_one_plain_line_for_each_change() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let (process, mut lines) = beside(move || {
        let (process, mut lines) = piped(&socket, &["status", "--watch"]);
        let mut first = line(&mut lines);
        assert!(first.ends_with("everything, at revision 1000:"), "{first}");
        while !first.ends_with("end of the list; changes follow") {
            first = line(&mut lines);
            assert!(!first.contains('\x1b'), "{first}");
        }
        (process, lines)
    })
    .await;
    added(&served, "sdc");
    let mut process = beside(move || {
        assert_eq!(
            line(&mut lines),
            "2026-03-01 12:00:00  added    drive    GOOD  sdc (MODEL_S-sdc)"
        );
        drop(lines);
        process
    })
    .await;
    // The pipe is closed, and nothing changes.
    let status = beside(move || process.0.wait().expect("it ends")).await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_survives_a_restart_and_repeats_nothing() {
    let mut served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let (process, mut lines) = beside(move || {
        let (process, mut lines) = piped(&socket, &["watch"]);
        while !line(&mut lines).ends_with("changes follow") {}
        (process, lines)
    })
    .await;
    served.stop().await;
    let mut lines = beside(move || {
        let lost = line(&mut lines);
        assert!(lost.contains("no answer from diskvitalsd, trying again: "), "{lost}");
        lines
    })
    .await;
    let served = Served::again(served, after_restart()).await;
    let mut lines = beside(move || {
        let found = line(&mut lines);
        assert!(found.ends_with("connected to diskvitalsd again"), "{found}");
        lines
    })
    .await;
    added(&served, "sdc");
    let next = beside(move || line(&mut lines)).await;
    assert!(next.ends_with("added    drive    GOOD  sdc (MODEL_S-sdc)"), "{next}");
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_of_one_drive_leaves_out_the_others() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let (process, mut lines) = beside(move || {
        let (process, mut lines) = piped(&socket, &["watch", "--drive", "sda"]);
        while !line(&mut lines).ends_with("changes follow") {}
        (process, lines)
    })
    .await;
    added(&served, "sdc");
    let mut gone = drive("sda", "S1");
    gone.presence = diskvitals_model::snapshot::Presence::Missing { since: super::fixture::now() };
    let gone = ChangedItem::Drive(Arc::new(gone));
    served.owner.change(ChangeKind::Modified, gone);
    let next = beside(move || line(&mut lines)).await;
    assert!(next.ends_with("changed  drive    GOOD  sda (MODEL_S1), MISSING"), "{next}");
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_as_json_are_all_events_without_the_list() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let words = ["watch", "--changes", "-o", "json"];
    let (process, mut lines) = piped(&socket, &words);
    let next = tokio::task::spawn_blocking(move || line(&mut lines));
    // The command prints no mark of its beginning.
    while served.owner.watchers() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut sda = drive("sda", "S1");
    sda.health = Health::Suspect;
    let sda = ChangedItem::Drive(Arc::new(sda));
    served.owner.change(ChangeKind::Modified, sda);
    let event: serde_json::Value = serde_json::from_str(&next.await.unwrap()).expect("JSON");
    assert_eq!(event["change"], "CHANGE_MODIFIED");
    assert_eq!(event["drive"]["name"], "sda");
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_one_document_for_each_change() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let (process, mut lines) = beside(move || {
        let (process, mut lines) = piped(&socket, &["status", "--watch", "-o", "json"]);
        let first: serde_json::Value = serde_json::from_str(&line(&mut lines)).expect("JSON");
        assert_eq!(first["drives"], 2);
        assert!(first["causes"].is_array());
        (process, lines)
    })
    .await;
    added(&served, "sdc");
    let second = beside(move || line(&mut lines)).await;
    let second: serde_json::Value = serde_json::from_str(&second).expect("JSON");
    assert_eq!(second["drives"], 3);
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_screen_without_a_daemon_is_one_line_and_an_exit_status() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("none.sock");
    beside(move || {
        let mut terminal = watch_on_terminal(&socket, 80, 24);
        assert_eq!(terminal.ended().code(), Some(1));
        let text = terminal.await_output(|text| text.ends_with('\n'));
        assert!(text.starts_with("diskvitals: no diskvitalsd at "), "{text}");
    })
    .await;
}

#[tokio::test]
async fn the_io_counters_are_those_of_whole_drives_that_the_kernel_counts() {
    let served = Served::start(snapshot(0)).await;
    let client = served.client().await;
    let stat = |name: &str, dev| DiskStat {
        dev,
        name: name.into(),
        completed: 30,
        sectors_written: 8,
        in_flight: 2,
        transfers: Transfers {
            reads: 10,
            writes: 20,
            sectors_read: 4,
            read_milliseconds: 50,
            write_milliseconds: 60,
        },
        line: "".into(),
    };
    // sdb has no counters, or they are another device's.
    for of_sdb in [None, Some(stat("sdb", DevNo::new(65, 0)))] {
        let reading = [stat("sda", DevNo::new(8, 0))].into_iter().chain(of_sdb);
        served.owner.io.lock().unwrap().push_back(reading.collect());
        let answer = client.drive_io().await.unwrap().expect("it knows the call");
        let expected = wire::DriveIo {
            drive_id: "MODEL_S1".into(),
            reads: 10,
            writes: 20,
            read_bytes: 2048,
            written_bytes: 4096,
            read_milliseconds: 50,
            write_milliseconds: 60,
            in_flight: 2,
        };
        assert_eq!(answer.drives, [expected]);
    }
    assert!(client.drive_io().await.is_err(), "there is no reading");
}

#[tokio::test(flavor = "multi_thread")]
async fn monitoring_systems_get_one_line_without_a_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("none.sock");
    for (format, status, begins) in [
        ("nagios", 3, "DISKVITALS UNKNOWN - no diskvitalsd at "),
        ("checkmk", 0, "3 \"diskvitals node\" - no diskvitalsd at "),
    ] {
        let socket = socket.clone();
        let (code, text) = beside(move || finished(&socket, &["status", "--format", format])).await;
        assert_eq!(code, Some(status));
        assert!(text.starts_with(begins) && text.lines().count() == 1, "{text}");
    }
    let wrong = beside(move || finished(&socket, &["status", "--format", "other"])).await;
    assert_eq!(wrong.0, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_ends_with_the_state_of_the_node() {
    let served = Served::start(snapshot(0)).await;
    let socket = served.socket();
    let (code, text) = beside(move || finished(&socket, &["status", "--format", "nagios"])).await;
    assert_eq!(code, Some(2));
    assert!(text.starts_with("DISKVITALS CRITICAL - 2 drives, 2 volumes, "), "{text}");
}

fn finished(socket: &Path, words: &[&str]) -> (Option<i32>, String) {
    use std::io::Read;
    let (mut process, mut output) = piped(socket, words);
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    (process.0.wait().expect("it ends").code(), text)
}
