//! diskvitalsd on a testbed, with short intervals and loop devices as drives.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::lane::Lane;
use super::{Client, Monitor, Testbed};

use crate::programs::built_program;

/// Differences from the defaults: short intervals and quiet periods, the lane's loop devices
/// admitted, small filesystems judged by percent.
pub fn config() -> String {
    let admitted = Lane::of_this_process().loop_names();
    CONFIG.replace("admit = []", &format!("admit = [\"{admitted}\"]"))
}

/// The same, and no loop device is a drive.
pub const CONFIG: &str = r#"
[log]
level = "debug"
[drives]
admit = []
offline_after = "2s"
reconcile_interval = "10s"
[volumes]
not_mounted_after = "1s"
[probes]
interval = "1s"
timeout = "1s"
[io]
interval = "1s"
stalled_after = "3s"
[counters]
interval = "1s"
[errors]
quiet_after = "3s"
bad_quiet_after = "5s"
[space]
raise_percent = 5
clear_percent = 10
raise_inodes_percent = 5
clear_inodes_percent = 10
"#;

/// A started daemon must have its first complete snapshot by then (a debug build on a busy
/// machine).
const START_LIMIT: Duration = Duration::from_secs(20);

pub struct Daemon {
    child: Child,
    log: PathBuf,
    socket: PathBuf,
    pub client: Client,
    /// From the start to the first complete snapshot.
    pub settled_after: Duration,
}

/// The command line for `testbed`; tests change it.
#[derive(Clone, Debug)]
pub struct Arguments {
    pub socket: PathBuf,
    pub agent_socket: PathBuf,
    pub state_dir: PathBuf,
    pub config: PathBuf,
    pub kubelet_root: PathBuf,
    pub log: PathBuf,
    /// A program and its arguments, to which the daemon's command line is appended.
    pub through: Vec<String>,
}

impl Arguments {
    pub fn of(testbed: &Testbed) -> Arguments {
        let config = testbed.path("diskvitals.toml");
        if !config.exists() {
            std::fs::write(&config, self::config()).expect("the configuration");
        }
        Arguments {
            socket: testbed.path("run/s"),
            agent_socket: testbed.path("run/agent"),
            state_dir: testbed.path("state"),
            config,
            kubelet_root: testbed.kubelet.root().to_owned(),
            log: testbed.path("daemon.log"),
            through: Vec::new(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub fn spawn(&self) -> Child {
        let log =
            std::fs::File::options().create(true).append(true).open(&self.log).expect("the log");
        let mut words = self.through.iter().map(String::as_str);
        let mut words = words.by_ref().chain([built_program("diskvitalsd")]);
        Command::new(words.next().expect("a program"))
            .args(words)
            .arg("--socket")
            .arg(&self.socket)
            .arg("--agent-socket")
            .arg(&self.agent_socket)
            .arg("--state-dir")
            .arg(&self.state_dir)
            .arg("--config")
            .arg(&self.config)
            .arg("--kubelet-root")
            .arg(&self.kubelet_root)
            .args(["--log-format", "text"])
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("diskvitalsd starts")
    }

    /// Starts it and expects it to end by itself, soon. Returns its exit code and its output.
    pub async fn refused(&self) -> (i32, String) {
        let mut child = self.spawn();
        let status = timeout(Duration::from_secs(10), child.wait()).await;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let status = status
            .unwrap_or_else(|_| panic!("it runs, and should have refused to:\n{text}"))
            .expect("its status");
        (
            status
                .code()
                .unwrap_or_else(|| panic!("ended by signal {:?}:\n{text}", status.signal())),
            text,
        )
    }
}

impl Daemon {
    /// Started, with its first complete snapshot.
    pub async fn start(testbed: &Testbed) -> Daemon {
        Daemon::start_with(&Arguments::of(testbed)).await
    }

    pub async fn start_with(arguments: &Arguments) -> Daemon {
        let started = Instant::now();
        let mut daemon = Daemon::launch(arguments);
        loop {
            if let Ok(node) = daemon.client.try_node().await
                && node.settled
            {
                daemon.settled_after = started.elapsed();
                daemon.has_read_the_log().await;
                return daemon;
            }
            daemon.must_run();
            assert!(started.elapsed() < START_LIMIT, "no complete snapshot within {START_LIMIT:?}");
            super::pause(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the existing kernel log has been read, a moment after the first complete
    /// snapshot: later records are new, not history. Where the log is not read, or less is logged,
    /// there is nothing to wait for.
    async fn has_read_the_log(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let count = |log: &str, text: &str| log.matches(text).count();
        while Instant::now() < deadline {
            let log = self.log();
            if !log.contains(" DEBUG ")
                || count(&log, "history=true") >= count(&log, "the kernel log is read from")
            {
                return;
            }
            super::pause(Duration::from_millis(5)).await;
        }
    }

    /// Started, without waiting.
    pub fn launch(arguments: &Arguments) -> Daemon {
        // An earlier daemon on the same testbed wrote to the same file: it is printed whole on
        // failure.
        let child = arguments.spawn();
        Daemon {
            child,
            log: arguments.log.clone(),
            socket: arguments.socket.clone(),
            client: Client::new(&arguments.socket),
            settled_after: Duration::ZERO,
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().expect("it runs")).expect("a process number"))
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends requests without pause, from now until `finish`.
    pub fn monitor(&self) -> Monitor {
        Monitor::start(&self.socket)
    }

    pub fn must_run(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!("diskvitalsd has ended: {status}");
        }
    }

    /// SIGTERM: must end with 0 within 5 s, even if something hangs. Returns how long it took.
    pub async fn stop(mut self) -> Duration {
        let started = Instant::now();
        kill(self.pid(), Signal::SIGTERM).expect("SIGTERM");
        let status = self.ended(Duration::from_secs(5)).await;
        assert_eq!(status.code(), Some(0), "after SIGTERM: {status}");
        started.elapsed()
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        kill(self.pid(), Signal::SIGKILL).expect("SIGKILL");
        self.ended(Duration::from_secs(5)).await;
    }

    async fn ended(&mut self, within: Duration) -> ExitStatus {
        let status = timeout(within, self.child.wait()).await;
        status
            .unwrap_or_else(|_| panic!("diskvitalsd has not ended within {within:?}"))
            .expect("its status")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.log();
            // The frames of this test's own calls are most of it.
            let lines = text.lines().filter(|line| !line.contains(" frame="));
            let lines: Vec<&str> = lines.collect();
            eprintln!(
                "--- the end of the daemon log\n{}\n---",
                lines[lines.len().saturating_sub(60)..].join("\n")
            );
        }
    }
}
