//! Metrics of the daemon as a process, over TCP and over a unix socket, while drives appear and
//! disappear.

use std::io::{BufRead, Read};
use std::os::unix::net::UnixStream;

use crate::process::{Daemon, http_get, scrape, scrape_until};
use crate::{smartctl, tree};

fn host(drives: usize, volumes: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    tree::write(dir.path(), tree::Plan { drives, volumes, hung: 0 }).expect("is written");
    dir
}

#[test]
fn metrics_are_off_by_default() {
    let host = host(1, 0);
    let mut daemon = Daemon::start(host.path(), "", None);
    let mut log = daemon.log.take().expect("a log");
    let mut line = String::new();
    while log.read_line(&mut line).expect("reads") > 0 {
        assert!(!line.contains("metrics are served"), "{line}");
        if line.contains("diskvitalsd started") {
            break;
        }
        line.clear();
    }
    assert!(line.contains("diskvitalsd started"));
    daemon.stop();
}

#[test]
fn a_configured_unix_socket_serves_metrics_and_is_removed_at_exit() {
    let host = host(2, 2);
    let mut daemon =
        Daemon::start(host.path(), "[metrics]\nlisten = \"unix:DIR/metrics.sock\"\n", None);
    let mut log = daemon.log.take().expect("a log");
    let mut line = String::new();
    while !line.contains("metrics are served") {
        line.clear();
        assert!(log.read_line(&mut line).expect("reads") > 0, "it ended");
    }
    // Reads on, because otherwise the daemon's log would block.
    let reader = std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let socket = daemon.dir.path().join("metrics.sock");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&socket).expect("is there"));
    assert_eq!(mode & 0o777, 0o660);
    let answer = http_get(UnixStream::connect(&socket).expect("connects"), "*/*");
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{answer}"
    );
    assert_eq!(
        answer.lines().filter(|line| line.starts_with("diskvitals_drive_info{")).count(),
        2,
        "{answer}"
    );
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.child.wait().expect("ends").success());
    assert!(!socket.exists());
    reader.join().expect("ends").expect("reads");
}

#[test]
fn the_first_scrape_is_complete_and_a_removed_drive_loses_its_series() {
    let host = host(3, 0);
    let record = host.path().join("run/udev/data/b8:0");
    let told = std::fs::read_to_string(&record)
        .expect("udev's record")
        .replace("E:ID_MODEL=", "E:ID_MODEL=a\"b\\c");
    std::fs::write(&record, told).expect("is written");
    // A removed drive with volumes stays listed as missing; this one has none.
    for table in ["proc/1/mountinfo", "etc/fstab"] {
        let path = host.path().join(table);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let others: Vec<&str> = text
            .lines()
            .filter(|line| {
                !line.contains("/dev/sdb")
                    && !line.contains("UUID=00000001-1f2e-4d3c-8b5a-000000000001")
            })
            .collect();
        std::fs::write(&path, others.join("\n") + "\n").expect("is written");
    }
    let config = "[drives]\nforget_missing_after = 0\nreconcile_interval = \"10s\"\n[smart]\nenabled = false\n";
    let mut daemon = Daemon::start(host.path(), config, Some("127.0.0.1:0"));
    let address = daemon.address();
    let mut log = daemon.log.take().expect("a log");
    let reader = std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let first = scrape(address);
    let drives =
        |text: &str| text.lines().filter(|line| line.starts_with("diskvitals_drive_info{")).count();
    assert_eq!(drives(&first), 3, "{first}");
    // The quotes in a drive's model name are escaped.
    assert!(first.contains("model=\"a\\\"b\\\\c"), "{first}");
    let id = |line: &str| line.split('"').nth(1).expect("an id").to_owned();
    let gone = first
        .lines()
        .find(|line| line.starts_with("diskvitals_drive_info{") && line.contains("device=\"sdb\""))
        .map(id)
        .expect("sdb");
    assert!(
        first.contains(&format!("diskvitals_drive_health{{drive=\"{gone}\",state=\"good\"}} 1\n")),
        "{first}"
    );

    for link in ["sys/class/block/sdb", "sys/block/sdb"] {
        std::fs::remove_file(host.path().join(link)).expect("goes");
    }
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    let after = scrape_until(address, "the drive's series are gone", |text| drives(text) == 2);
    assert!(!after.contains(&gone), "{after}");
    daemon.stop();
    reader.join().expect("ends").expect("reads");
}

#[test]
fn smart_metrics_carry_the_ids_of_their_drives() {
    let host = host(1, 1);
    let dir = tempfile::tempdir().expect("a folder");
    let smartctl = smartctl::Smartctl::new(dir.path()).expect("is written");
    let answer = smartctl::Ata::new("ZL200000", 0xa000_0000).response();
    smartctl.set_response("/dev/sda", &answer).expect("is written");
    let config = format!("[smart]\ncommand = \"{}\"\n", smartctl.program().display());
    let mut daemon = Daemon::start(host.path(), &config, Some("127.0.0.1:0"));
    let address = daemon.address();
    let mut log = daemon.log.take().expect("a log");
    let reader = std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let text =
        scrape_until(address, "the drive has told", |text| text.contains("outcome=\"ok\"} 1\n"));
    let pending = text
        .lines()
        .find(|line| line.starts_with("diskvitals_smart_pending_sectors{drive=\""))
        .expect("is told");
    assert!(pending.ends_with(" 0"), "{pending}");
    assert!(text.contains("diskvitals_probe_duration_seconds_count{source=\"smart\"} "), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("diskvitals_drive_temperature_celsius{drive=\"")),
        "{text}"
    );
    daemon.stop();
    reader.join().expect("ends").expect("reads");
}

#[test]
fn a_wildcard_listen_address_is_refused() {
    let host = host(1, 0);
    let mut daemon = Daemon::start(host.path(), "", Some("0.0.0.0:0"));
    assert_eq!(daemon.child.wait().expect("ends").code(), Some(2));
    let mut said = String::new();
    daemon.log.take().expect("a log").read_to_string(&mut said).expect("reads");
    assert!(said.contains("means every address of the node"), "{said}");
}
