//! The configuration file of a running daemon: refused, mended, and programs that do not exist.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::process::{Daemon, TIMEOUT};
use crate::programs::built_program;

#[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
fn cli(daemon: &Daemon, command: &str) -> String {
    let output = Command::new(built_program("diskvitals"))
        .arg("--socket")
        .arg(daemon.dir.path().join("d.sock"))
        .arg(command)
        .output()
        .expect("starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn status_until(daemon: &Daemon, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    until(daemon, "status", what, is_so)
}

#[allow(clippy::disallowed_methods)] // Nothing announces it; the next question is asked a little later.
fn until(daemon: &Daemon, command: &str, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + TIMEOUT;
    loop {
        let text = cli(daemon, command);
        if is_so(&text) {
            return text;
        }
        assert!(Instant::now() < end, "not so: {what}\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start(config: &str) -> Daemon {
    start_with(config, &[])
}

fn start_with(config: &str, arguments: &[&str]) -> Daemon {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts/nvme-laptop");
    let mut daemon = Daemon::start_with(std::path::Path::new(host), config, None, arguments);
    let mut log = daemon.log.take().expect("a log");
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    daemon
}

fn write(daemon: &Daemon, config: &str) {
    std::fs::write(daemon.dir.path().join("config.toml"), config).expect("written");
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_refused_reload_is_a_warning_with_its_line_until_a_good_file_is_read() {
    let daemon = start("[probes]\ninterval = \"60s\"\n");
    let good = status_until(&daemon, "it answers", |text| text.contains("diskvitalsd"));
    assert!(!good.contains("configuration"), "{good}");
    write(&daemon, "[probes]\ninterval = \"60s\"\nintervall = \"60s\"\n");
    let refused = status_until(&daemon, "it warns", |text| text.contains("warning"));
    let refused = unwrapped(&refused);
    assert!(
        refused.contains("the configuration is refused, the settings before it stay in force: ")
            && refused.contains("config.toml:3: unknown field `intervall`"),
        "{refused}"
    );
    write(&daemon, "[probes]\ninterval = \"60s\"\n");
    status_until(&daemon, "the warning has gone", |text| {
        text.contains("diskvitalsd") && !text.contains("refused")
    });
    let path = daemon.dir.path().join("config.toml");
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a directory in place of the file");
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    let refused = status_until(&daemon, "it warns", |text| text.contains("warning"));
    assert!(unwrapped(&refused).contains("config.toml: Is a directory"), "{refused}");
    std::fs::remove_dir(&path).expect("removed");
    write(&daemon, "[probes]\nmax_stuck = 64\n");
    let later = status_until(&daemon, "a restart is due", |text| text.contains("restart"));
    assert!(
        unwrapped(&later).contains("probes.max_stuck has changed: restart diskvitalsd"),
        "{later}"
    );
    daemon.stop();
}

#[test]
fn a_daemon_starts_without_a_refused_override_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let over = dir.path().join("node.toml");
    std::fs::write(&over, "[smart]\npoll = \"20m\"\n").expect("written");
    let over = format!("--config-override={}", over.display());
    let daemon = start_with("[drives]\nignore = [\"sdz\"]\n", &[&over]);
    let text = status_until(&daemon, "it warns", |text| text.contains("warning"));
    let text = unwrapped(&text);
    assert!(
        text.contains("the configuration is refused, the other files are in force: ")
            && text.contains("node.toml:2: unknown field `poll`"),
        "{text}"
    );
    daemon.stop();
}

#[test]
fn a_daemon_starts_with_a_refused_file_and_says_so() {
    let daemon = start("[smart]\ntimeout = \"0s\"\n");
    let text = status_until(&daemon, "it warns", |text| text.contains("warning"));
    let text = unwrapped(&text);
    assert!(
        text.contains("the configuration is refused, the defaults are in force: ")
            && text.contains("config.toml:2: smart.timeout: 0s is too short"),
        "{text}"
    );
    write(&daemon, "[smart]\ntimeout = \"30s\"\n");
    status_until(&daemon, "the warning has gone", |text| {
        text.contains("diskvitalsd") && !text.contains("refused")
    });
    daemon.stop();
}

#[test]
fn config_prints_what_is_in_force_and_why_that_is_not_what_the_files_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let over = dir.path().join("node.toml");
    let path = over.to_str().expect("text");
    let config = "[probes]\ninterval = \"30s\"\ntimeout = \"5s\"\n";
    let daemon = start_with(config, &["--config-override", path]);
    let alone = until(&daemon, "config", "it answers", |text| text.contains("[probes]"));
    assert!(alone.contains("timeout = \"5s\"\n") && !alone.contains(path), "{alone}");
    let set = |text: &str| std::fs::write(&over, text).expect("written");
    set("[probes]\ntimeout = \"6s\"\nmax_stuck = 16\n");
    let merged = until(&daemon, "config", "it is merged", |text| text.contains("\"6s\""));
    assert!(merged.contains("interval = \"30s\"\n") && merged.contains(path), "{merged}");
    assert!(
        merged.contains("max_stuck = 32\n")
            && merged.contains("# warning: probes.max_stuck has changed: restart diskvitalsd"),
        "what only a start reads is as it was then: {merged}"
    );
    set("[probes]\ntimeout = \"7s\"\nwait = 1\n");
    let refused = until(&daemon, "config", "it warns", |text| text.contains("is refused"));
    assert!(
        refused.contains("timeout = \"6s\"\n") && refused.contains("node.toml:3: "),
        "{refused}"
    );
    std::fs::remove_file(&over).expect("removed");
    until(&daemon, "config", "it is over", |text| {
        text.contains("\"5s\"") && !text.contains("warning")
    });
    daemon.stop();
}

#[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
fn checked(config: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("x.toml");
    std::fs::write(&path, config).expect("written");
    let Output { status, stdout, stderr } = Command::new(built_program("diskvitalsd"))
        .arg("--check-config")
        .arg("--config")
        .arg(&path)
        .output()
        .expect("starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn check_config_refuses_a_program_that_does_not_exist_and_the_daemon_starts_without_it() {
    let config = "[smart]\ncommand = \"/nonexistent/smartctl\"\n";
    let (code, _, error) = checked(config);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("x.toml:2: smart.command: there is no program `/nonexistent/smartctl`"),
        "{error}"
    );
    let (code, out, _) = checked("[smart]\ninterval = \"30min\"\n");
    assert_eq!(code, Some(0), "a missing default is a warning at most");
    assert!(out.contains("command = \"/usr/sbin/smartctl\""), "{out}");

    let daemon = start(config);
    let text = status_until(&daemon, "smartctl is missing", |text| {
        text.contains("/nonexistent/smartctl does not exist") && text.contains("UNKNOWN nvme0n1")
    });
    assert!(
        text.contains("UNKNOWN nvme0n1")
            && !text.contains("nothing wrong")
            && !text.contains("nvme0n1  GOOD"),
        "{text}"
    );
    daemon.stop();
}
