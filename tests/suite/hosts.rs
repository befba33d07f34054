//! Complete recorded hosts: the daemon runs on each tree below tests/hosts, and its answers about
//! drives, volumes and findings are compared with the tree's expected.json. Each new folder is a
//! new test. `UPDATE_EXPECTED=1 cargo test --test suite hosts::` rewrites the files; review them
//! before the commit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::programs::built_program;
use crate::smartctl::Smartctl;
use crate::terminal::Terminal;

pub(super) struct Daemon {
    child: Child,
    pub(super) socket: PathBuf,
    /// Removed with the daemon.
    dir: Option<tempfile::TempDir>,
}

impl Daemon {
    pub(super) fn start(tree: &Path) -> Daemon {
        let dir = tempfile::tempdir().expect("dir");
        let mut daemon = Daemon::start_in(tree, dir.path());
        daemon.dir = Some(dir);
        daemon
    }

    /// With the state of the daemon that ran in this directory before.
    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    pub(super) fn start_in(tree: &Path, dir: &Path) -> Daemon {
        let config = dir.join("diskvitals.toml");
        let mut settings = "[volumes]\nnot_mounted_after = 0\n".to_owned();
        if let Some(smartctl) = recorded_smartctl(tree, dir) {
            let program = smartctl.program();
            settings.push_str(&format!("[smart]\ncommand = \"{}\"\n", program.display()));
        }
        std::fs::write(&config, settings).expect("configuration");
        let socket = dir.join("d.sock");
        let child = Command::new(built_program("diskvitalsd"))
            .arg("--host-root")
            .arg(tree)
            .arg("--config")
            .arg(&config)
            .arg("--socket")
            .arg(&socket)
            .arg("--agent-socket")
            .arg(dir.join("a.sock"))
            .arg("--state-dir")
            .arg(dir.join("state"))
            .spawn()
            .expect("starts");
        Daemon { child, socket, dir: None }
    }

    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    fn ask(&self, words: &[&str]) -> Output {
        Command::new(built_program("diskvitals"))
            .arg("--socket")
            .arg(&self.socket)
            .args(["-o", "json"])
            .args(words)
            .output()
            .expect("runs")
    }

    fn json(&self, words: &[&str]) -> Option<Value> {
        let output = self.ask(words);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Returns the complete answer: settled, every probe reported, and the same twice.
    pub(super) fn answer(&self) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        let mut last = Value::Null;
        loop {
            assert!(Instant::now() < end, "no steady answer; last: {last:#}");
            let settled = self.json(&["status"]).is_some_and(|node| {
                // All counters have been read: those of links and of flash come last.
                let mut sources = node["sources"].as_array().into_iter().flatten();
                node["settled"] == true && sources.any(|source| source["name"] == "counters")
            });
            let now = if settled { self.all() } else { Value::Null };
            if settled && now == last && told(&now) {
                return now;
            }
            last = now;
            wait();
        }
    }

    /// The command's output on a terminal of this width.
    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    pub(super) fn on_terminal(&self, columns: u16, words: &str) -> String {
        let inside = format!(
            "stty cols {columns} rows 24; exec {} --socket {} {words}",
            built_program("diskvitals"),
            self.socket.display()
        );
        let output = Command::new("script")
            .args(["-qec", &inside, "/dev/null"])
            .env("NO_COLOR", "1")
            .env("TERM", "xterm")
            .env("TZ", "UTC")
            .stdin(std::process::Stdio::null())
            .output()
            .expect("runs");
        String::from_utf8(output.stdout).expect("text").replace("\r\n", "\n")
    }

    fn all(&self) -> Value {
        let part = |what: &str| {
            self.json(&[what]).map(|answer| answer[what].clone()).unwrap_or(Value::Null)
        };
        let causes = self.json(&["status"]).map(|node| node["causes"].clone());
        let mut all = json!({"drives": part("drives"), "volumes": part("volumes"), "findings": part("findings"), "causes": causes});
        steady(&mut all);
        all
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("running");
        let status = self.child.wait().expect("ends");
        if !std::thread::panicking() {
            assert!(status.success(), "{status}");
        }
    }
}

/// A smartctl that gives the recorded answers of the tree, if it has any.
pub(super) fn recorded_smartctl(tree: &Path, dir: &Path) -> Option<Smartctl> {
    let answers = tree.join("exec/smartctl/dev");
    answers.is_dir().then(|| {
        let smartctl = Smartctl::new(&dir.join("smartctl")).expect("a smartctl");
        copy_tree(&answers, &dir.join("smartctl/dev"));
        smartctl
    })
}

/// Disks behind a controller are in folders: `bus/0.megaraid,8.json`.
fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("entry");
        let copy = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_tree(&entry.path(), &copy),
            false => drop(std::fs::copy(entry.path(), copy).expect("copied")),
        }
    }
}

/// No event announces the end of changes, so the test polls after a delay.
#[allow(clippy::disallowed_methods)]
fn wait() {
    std::thread::sleep(Duration::from_millis(150));
}

/// Whether every source has answered once.
fn told(all: &Value) -> bool {
    let is_pending = |item: &Value| item["healthUnknownCause"] == "UNKNOWN_CAUSE_PENDING";
    let drives = all["drives"].as_array().expect("a list");
    if drives.iter().any(is_pending) {
        return false;
    }
    let volumes = all["volumes"].as_array().expect("a list");
    volumes.iter().all(|volume| {
        volume["block"] == true
            || volume["mounts"] == json!([])
            || volume["lastProbe"] != Value::Null
    })
}

/// Removes times, and ids derived from times, which differ between runs.
fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(text)
                        if matches!(
                            name.as_str(),
                            "since"
                                | "lastSeen"
                                | "firstSeen"
                                | "missingSince"
                                | "lastProbe"
                                | "time"
                                | "staleSince"
                                | "asked"
                                | "answered"
                                | "firstTime"
                        ) =>
                    {
                        *text = "TIME".into();
                    }
                    Value::String(text)
                        if matches!(name.as_str(), "id" | "findingId" | "follows")
                            && text.len() == 12
                            && text.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
                    {
                        *text = "FINDING".into()
                    }
                    // Equally severe findings are sorted by their times.
                    Value::Array(findings) if name == "findings" => {
                        findings.iter_mut().for_each(steady);
                        findings.sort_by_key(|finding| {
                            format!("{} {}", finding["reason"], finding["subject"]["id"])
                        });
                    }
                    _ => steady(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(steady),
        Value::String(text) if text.contains("`diskvitals ack ") => *text = without_ids(text),
        Value::String(text) if text.contains("T") && text.contains("since 20") => {
            *text = text
                .split("since 20")
                .map(|part| {
                    part.split_once('Z')
                        .filter(|(time, _)| time.len() < 32)
                        .map_or(part, |(_, rest)| rest)
                })
                .collect::<Vec<_>>()
                .join("since TIME");
        }
        _ => {}
    }
}

/// An advice with the ids of findings replaced: they are hashes of times.
fn without_ids(advice: &str) -> String {
    let is_id = |word: &str| word.len() == 12 && word.bytes().all(|it| it.is_ascii_hexdigit());
    let words = advice.split(' ');
    words.map(|word| if is_id(word) { "FINDING" } else { word }).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_recorded_host_gives_its_expected_answers() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let mut seen = 0;
    for entry in std::fs::read_dir(&hosts).expect("tests/hosts") {
        let tree = entry.expect("entry").path();
        if !tree.join("exec").is_dir() {
            continue;
        }
        seen += 1;
        let answer = Daemon::start(&tree).answer();
        let path = tree.join("expected.json");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, format!("{answer:#}\n")).expect("written");
            continue;
        }
        let expected: Value = serde_json::from_slice(
            &std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
        .expect("JSON");
        if expected != answer {
            panic!(
                "{}: another answer than expected:\n{}",
                tree.display(),
                differences("", &expected, &answer).join("\n")
            );
        }
    }
    assert!(seen >= 8, "only {seen} recorded hosts");
}

/// Ages and the machine's own names, which differ between runs.
fn steady_screen(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("diskvitalsd"), "{text}");
    lines[0] = "NODE";
    // A recorded tree has no events; the sentence contains the time, and is broken by its length.
    let end = lines.iter().position(|line| line.starts_with("  source "));
    lines.truncate(end.unwrap_or(lines.len()));
    lines.join("\n")
}

#[test]
fn two_dying_disks_and_four_smaller_troubles_take_a_few_lines_each_with_their_mount_points() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/two-dying-disks");
    let daemon = Daemon::start(&tree);
    let causes = daemon.answer()["causes"].clone();
    assert_eq!(causes.as_array().map(Vec::len), Some(6), "{causes:#}");
    for columns in [40, 80, 120, 200] {
        let text = daemon.on_terminal(columns, "status");
        for line in text.lines() {
            let width = line.chars().count();
            assert!(width <= usize::from(columns).max(64), "{columns}: {line}");
        }
        if columns >= 80 {
            // Four lines for each BAD cause and for the last copy, three for each other one; the head.
            let causes = steady_screen(&text);
            assert!(causes.lines().count() <= 26, "{columns}:\n{causes}");
            for place in ["/srv/bay0", "db/mysql-0", "/srv/bay1", "/srv/archive", "/srv/images"] {
                assert!(text.contains(place), "{columns}: {place}\n{text}");
            }
        }
        insta::assert_snapshot!(
            format!("two_dying_disks_at_{columns}_columns"),
            steady_screen(&text)
        );
    }
}

#[test]
fn the_live_screen_of_two_dying_disks_has_their_figures_at_any_width() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/two-dying-disks");
    let daemon = Daemon::start(&tree);
    daemon.answer();
    let socket = daemon.socket.to_str().expect("text");
    for columns in [40, 80, 120, 200] {
        let mut terminal = Terminal::start(
            &["--socket", socket, "status", "--watch"],
            columns,
            if columns < 80 { 66 } else { 36 },
        );
        // Rates need two readings.
        let frame = terminal.await_frame(|frame| frame.contains("0 B/s"));
        for line in frame.lines() {
            let width = line.chars().count();
            assert!(width <= usize::from(columns), "{columns}: {line}");
        }
        insta::assert_snapshot!(
            format!("live_two_dying_disks_at_{columns}_columns"),
            steady_screen(&frame)
        );
        terminal.type_keys("\x1b[B\x1b[B\x1b[A");
        terminal.await_frame(|frame| frame.contains("\n> sda  slot 00"));
        terminal.type_keys("\r");
        terminal.await_frame(|frame| frame.contains("\nfindings\n"));
        terminal.type_keys("\x1b");
        terminal.await_frame(|frame| frame.contains("\n> sda  slot 00"));
        terminal.type_keys("\x1b[H");
        terminal.await_frame(|frame| !frame.contains("> sda") && frame.contains("\nsda  slot 00"));
        terminal.type_keys("q");
        assert!(terminal.ended().success());
    }
}

#[test]
fn a_ceph_node_and_a_host_of_virtual_machines_read_well_on_one_screen() {
    for (host, words) in [
        ("ceph-node", "explain sda"),
        ("ceph-node", "explain sde"),
        ("proxmox", "status"),
        ("ceph-node", "status"),
    ] {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(host);
        let daemon = Daemon::start(&tree);
        daemon.answer();
        let text = daemon.on_terminal(120, words);
        assert!(text.lines().count() <= 24, "{host} {words}:\n{text}");
        let text = if words == "status" { steady_screen(&text) } else { text };
        insta::assert_snapshot!(format!("{host} {words}").replace([' ', '-'], "_"), text);
    }
}

fn differences(at: &str, expected: &Value, answer: &Value) -> Vec<String> {
    match (expected, answer) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            names
                .into_iter()
                .flat_map(|name| {
                    differences(
                        &format!("{at}.{name}"),
                        a.get(name).unwrap_or(&Value::Null),
                        b.get(name).unwrap_or(&Value::Null),
                    )
                })
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .flat_map(|(n, (a, b))| differences(&format!("{at}[{n}]"), a, b))
            .collect(),
        (a, b) if a == b => Vec::new(),
        (a, b) => vec![format!("{at}: expected {a}, got {b}")],
    }
}
