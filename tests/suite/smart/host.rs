//! A recorded host with three drives that report SMART data (`sda` SATA, `sdb` SAS, `nvme0n1`), its
//! daemon, and functions that wait.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::child::Process;
use crate::programs::built_program;
use crate::smartctl::{Ata, Nvme, Scsi, Smartctl};
use crate::tree;

/// For a busy machine; an expected result arrives much sooner.
pub const SOON: Duration = Duration::from_secs(30);

/// Every drive is queried every second.
pub const OFTEN: &str = "interval = \"1s\"\nsuspect_interval = \"1s\"\nidle_interval = \"1s\"\nshortest_interval = \"1s\"\ntimeout = \"20s\"\n";

pub struct Host {
    dir: tempfile::TempDir,
    pub smartctl: Smartctl,
    /// The settings in `[smart]`.
    settings: String,
}

pub fn sata() -> Ata {
    Ata::new("ZL200000", 0xa000_0000)
}

pub fn sas() -> Scsi {
    Scsi::new("ZL200001", 0x5000_c500_a000_0001)
}

pub fn nvme() -> Nvme {
    Nvme::new("S6ESNX0R000002")
}

impl Host {
    /// A host with healthy drives.
    pub fn new(settings: &str) -> Host {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("root")).expect("a folder");
        tree::write(&dir.path().join("root"), tree::Plan { drives: 3, volumes: 3, hung: 0 })
            .expect("the tree");
        let smartctl = Smartctl::new(&dir.path().join("smartctl")).expect("a smartctl");
        smartctl.set_response("/dev/sda", &sata().response()).expect("written");
        smartctl.set_response("/dev/sdb", &sas().response()).expect("written");
        smartctl.set_response("/dev/nvme0", &nvme().response()).expect("written");
        let settings = format!("command = \"{}\"\n{settings}", smartctl.program().display());
        Host { dir, smartctl, settings }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Replaces the settings of the running or the next daemon.
    pub fn configure(&self, settings: &str) {
        // The file is renamed into place, so that it is never half read.
        let new = self.dir.path().join("config.new");
        std::fs::write(&new, format!("[smart]\n{settings}")).expect("written");
        std::fs::rename(&new, self.dir.path().join("config.toml")).expect("in place");
    }

    /// Appends to the settings.
    pub fn configure_also(&self, more: &str) {
        self.configure(&format!("{}\n{more}", self.settings));
    }

    pub fn start(&self) -> Daemon {
        if !self.dir.path().join("config.toml").exists() {
            self.configure(&self.settings);
        }
        let path = |name: &str| self.dir.path().join(name);
        let log =
            std::fs::File::options().create(true).append(true).open(path("log")).expect("the log");
        #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
        let child = Command::new(built_program("diskvitalsd"))
            .arg("--host-root")
            .arg(self.root())
            .arg("--config")
            .arg(path("config.toml"))
            .args(["--log-format", "text"])
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

    /// Starts a daemon with the finding `PendingSectors` of `sda`.
    pub fn with_pending_sectors(settings: &str) -> (Host, Daemon, Value) {
        let host = Host::new(settings);
        let sda = Ata { pending: 8, ..sata() };
        host.smartctl.set_response("/dev/sda", &sda.response()).expect("written");
        let daemon = host.started();
        let finding =
            daemon.until("sectors wait", |daemon| daemon.finding("sda", "PendingSectors"));
        (host, daemon, finding)
    }

    /// Starts a daemon and waits until every drive has reported.
    pub fn started(&self) -> Daemon {
        let daemon = self.start();
        for drive in ["sda", "sdb", "nvme0n1"] {
            daemon.until(&format!("{drive} has answered"), |daemon| {
                state(&daemon.drive(drive)?, "STATE_ANSWERED")
            });
        }
        daemon
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The number of smartctl queries for the device.
    pub fn polls(&self, device: &str) -> usize {
        self.smartctl.count_calls(device, "")
    }
}

pub struct Daemon {
    process: Process,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// The answer of `diskvitals WORDS -o json`, or its error text.
    #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
    pub fn ask(&self, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(built_program("diskvitals"));
        let output = command
            .arg("--socket")
            .arg(&self.socket)
            .args(["-o", "json"])
            .args(words)
            .output()
            .expect("runs");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stdout)))
    }

    /// The text output for users.
    #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
    pub fn text(&self, words: &[&str]) -> String {
        let mut command = Command::new(built_program("diskvitals"));
        let output = command.arg("--socket").arg(&self.socket).args(words).output().expect("runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    pub fn drive(&self, name: &str) -> Option<Value> {
        self.ask(&["drive", name]).ok()
    }

    /// All current findings of the drive.
    pub fn findings(&self, name: &str) -> Vec<Value> {
        self.drive(name).and_then(|drive| drive["findings"].as_array().cloned()).unwrap_or_default()
    }

    pub fn finding(&self, name: &str, reason: &str) -> Option<Value> {
        self.findings(name).into_iter().find(|finding| finding["reason"] == reason)
    }

    /// The state of the source of SMART data.
    pub fn source(&self) -> Option<Value> {
        self.ask(&["status"]).ok()?["sources"]
            .as_array()?
            .iter()
            .find(|source| source["name"] == "smart")
            .cloned()
    }

    pub fn until<T: Holds>(&self, what: &str, mut condition: impl FnMut(&Daemon) -> T) -> T::Out {
        self.within(SOON, what, &mut condition)
    }

    pub fn within<T: Holds>(
        &self,
        time: Duration,
        what: &str,
        mut condition: impl FnMut(&Daemon) -> T,
    ) -> T::Out {
        let end = Instant::now() + time;
        loop {
            if let Some(out) = condition(self).held() {
                return out;
            }
            assert!(
                Instant::now() < end,
                "not so: {what}; {:#}\n{}",
                self.ask(&["drives"]).unwrap_or_default(),
                self.said()
            );
            pause(20);
        }
    }

    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.chars().skip(text.chars().count().saturating_sub(3000)).collect()
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(self) {
        self.process.end(Signal::SIGKILL);
    }
}

/// The result of a condition: a boolean or an optional value.
pub trait Holds {
    type Out;
    fn held(self) -> Option<Self::Out>;
}

impl Holds for bool {
    type Out = ();
    fn held(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Holds for Option<T> {
    type Out = T;
    fn held(self) -> Option<T> {
        self
    }
}

pub fn state(drive: &Value, state: &str) -> Option<()> {
    (drive["smart"]["state"] == state).then_some(())
}

/// The newest value that the drive's verdict uses.
pub fn value(drive: &Value, metric: &str) -> Option<u64> {
    drive["smart"]["values"].as_array()?.iter().find(|value| value["metric"] == metric)?["value"]
        .as_str()?
        .parse()
        .ok()
}

/// All evidence as one text.
pub fn evidence(finding: &Value) -> String {
    finding["evidence"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("{}: {}\n", one["source"], one["text"]))
        .collect()
}

/// Adds a RAID controller to sysfs: a SCSI host with this number and driver.
pub fn controller(root: &Path, number: u32, driver: &str) {
    let host = format!("pci0000:c0/0000:c0:01.0/0000:c1:00.0/host{number}/scsi_host/host{number}");
    let folder = root.join("sys/devices").join(&host);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("proc_name"), format!("{driver}\n")).expect("written");
    std::fs::write(folder.join("unique_id"), "1\n").expect("written");
    std::fs::create_dir_all(root.join("sys/class/scsi_host")).expect("a folder");
    std::os::unix::fs::symlink(
        format!("../../devices/{host}"),
        root.join(format!("sys/class/scsi_host/host{number}")),
    )
    .expect("linked");
}

/// The only wait without a condition: the pause between two polls.
#[allow(clippy::disallowed_methods, reason = "between two looks at another process")]
pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Replaces the drive in a slot by another one, in sysfs and udev records.
pub fn exchange(root: &Path, old: (&str, &str), new: (&str, &str)) {
    // Serial number and WWN are in sysfs attributes and in udev records.
    let mut folders = vec![root.join("run/udev/data"), root.join("sys/devices")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable") {
            let entry = entry.expect("readable");
            let kind = entry.file_type().expect("has a type");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).expect("readable");
                // Page 80h begins with two bytes that are not text, and keeps its length.
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                let changed = text.replace(old.0, new.0).replace(old.1, new.1);
                if changed != text {
                    let bytes: Vec<u8> = changed.chars().map(|character| character as u8).collect();
                    std::fs::write(entry.path(), bytes).expect("written");
                }
            }
        }
    }
}
