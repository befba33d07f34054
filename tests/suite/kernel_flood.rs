//! The kernel log through the whole daemon: a pipe replaces /dev/kmsg on a recorded host. The
//! daemon is killed repeatedly during a flood: it counts every record once, counts only records of
//! the kernel itself, and its memory does not grow.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::child::Process;
use crate::programs::built_program;
use crate::tree;

const SOON: Duration = Duration::from_secs(30);

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host { dir };
        std::fs::create_dir(host.root()).expect("a folder");
        tree::write(&host.root(), tree::Plan { drives: 3, volumes: 3, hung: 0 }).expect("the tree");
        std::fs::create_dir_all(host.root().join("dev")).expect("dev");
        nix::unistd::mkfifo(
            &host.root().join("dev/kmsg"),
            nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR,
        )
        .expect("a pipe");
        host
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn start(&self) -> Daemon {
        let path = |name: &str| self.dir.path().join(name);
        let log =
            std::fs::File::options().create(true).append(true).open(path("log")).expect("the log");
        #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
        let child = Command::new(built_program("diskvitalsd"))
            .arg("--host-root")
            .arg(self.root())
            .args(["--config", "/dev/null", "--log-format", "text"])
            .arg("--socket")
            .arg(path("d.sock"))
            .arg("--agent-socket")
            .arg(path("a.sock"))
            .arg("--state-dir")
            .arg(path("state"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("starts");
        Daemon { process: Process(child), socket: path("d.sock"), log: path("log") }
    }

    /// Opens the writing end without waiting for a reader.
    fn log(&self) -> std::fs::File {
        std::fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(0)
            .open(self.root().join("dev/kmsg"))
            .expect("the pipe")
    }
}

struct Daemon {
    process: Process,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
    fn json(&self, words: &[&str]) -> Option<Value> {
        let mut command = Command::new(built_program("diskvitals"));
        let output = command
            .arg("--socket")
            .arg(&self.socket)
            .args(["-o", "json"])
            .args(words)
            .output()
            .expect("runs");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// The number of records of that class that the daemon attributes to the drive.
    fn records(&self, name: &str, class: &str) -> u64 {
        let Some(drive) = self.json(&["drive", name]) else {
            return 0;
        };
        let tallies = drive["errors"].as_array().cloned().unwrap_or_default();
        let tally = tallies.iter().find(|tally| tally["class"] == class);
        tally.map_or(0, |tally| {
            tally["records"].as_str().expect("a count").parse().expect("a number")
        })
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Daemon) -> bool) {
        let end = Instant::now() + SOON;
        while !holds(self) {
            assert!(
                Instant::now() < end,
                "not so: {what}; {:#}\n{}",
                self.json(&["drives"]).unwrap_or_default(),
                self.said()
            );
            pause(20);
        }
    }

    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.chars().skip(text.chars().count().saturating_sub(3000)).collect()
    }

    fn kill(self) {
        self.process.end(Signal::SIGKILL);
    }
}

/// The only wait without a condition: the pause between two polls.
#[allow(clippy::disallowed_methods, reason = "between two looks at another process")]
fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// A record in the format of /dev/kmsg: one record in a hundred is an error, and user space wrote
/// some.
fn record(seq: u64) -> String {
    let usec = seq * 1000;
    match seq % 100 {
        7 => format!(
            "3,{seq},{usec},-;critical medium error, dev sda, sector {} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n",
            seq % 5000
        ),
        8 => format!(
            "11,{seq},{usec},-;critical medium error, dev sda, sector 1 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n"
        ),
        _ => format!(
            "6,{seq},{usec},-;audit: type=1400 audit({seq}): apparmor=\"STATUS\" operation=\"profile_load\"\n"
        ),
    }
}

#[test]
fn a_daemon_killed_repeatedly_during_a_flood_counts_every_record_once() {
    const RECORDS: u64 = 60_000;
    let host = Host::new();
    let all: Vec<String> = (0..RECORDS).map(record).collect();
    for round in 1..=10_u64 {
        let daemon = host.start();
        // Each round writes the ring from its start, like the device, and more of it than the last
        // round.
        let upto = (RECORDS * round / 10) as usize;
        let writer = std::thread::spawn({
            let (mut log, text) = (host.log(), all[..upto].concat());
            move || {
                log.write_all(text.as_bytes()).expect("the pipe takes it");
                log
            }
        });
        if round == 10 {
            daemon.until("every record is counted once", |daemon| {
                daemon.records("sda", "medium") == RECORDS / 100
            });
            pause(500);
            assert_eq!(daemon.records("sda", "medium"), RECORDS / 100, "and stays so");
            let drive = daemon.json(&["drive", "sda"]).expect("a drive");
            let first = drive["errors"][0]["first"]["text"].as_str().expect("a record").to_owned();
            assert!(first.starts_with("critical medium error, dev sda, sector 7 "), "{first}");
            assert!(
                daemon.json(&["drive", "sdb"]).expect("a drive")["errors"]
                    .as_array()
                    .expect("a list")
                    .is_empty()
            );
            drop(writer.join().expect("written"));
            return;
        }
        // The kill comes at a different moment of the flood in each round.
        daemon.until("it has begun", |daemon| {
            daemon.records("sda", "medium") > 0 || daemon.json(&["status"]).is_some()
        });
        pause(37 * round);
        daemon.kill();
        // Nothing reads the pipe now. Opening and closing the reading end makes the writer end.
        drain(&host.root().join("dev/kmsg"), &writer);
        drop(writer.join().expect("written"));
    }
}

/// Drains the pipe until the writer has finished.
fn drain(pipe: &Path, writer: &std::thread::JoinHandle<std::fs::File>) {
    let mut reader = std::fs::File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(pipe)
        .expect("the pipe");
    let mut buffer = vec![0; 1 << 16];
    loop {
        match std::io::Read::read(&mut reader, &mut buffer) {
            Ok(_) => {}
            Err(error)
                if error.kind() == std::io::ErrorKind::WouldBlock && writer.is_finished() =>
            {
                return;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => pause(1),
            Err(error) => panic!("the pipe: {error}"),
        }
    }
}
