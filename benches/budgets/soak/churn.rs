//! What the daemons go through during a soak: clients and reloads for both, mounts, loop devices,
//! I/O errors and checks on this machine's kernel, and the faults of a recorded host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::Change;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::client;
use crate::daemon::{Daemon, Host, Program};
use crate::figures::Figures;
use crate::fuse::{FuseServer, Mode};
use crate::kernel_log::Pipe;
use crate::metrics;
use crate::process::{self, TOOL_TIMEOUT};
use crate::smartctl::Smartctl;

const SCRAPE_INTERVAL: Duration = Duration::from_millis(500);
const RELOAD_INTERVAL: Duration = Duration::from_secs(7);
const FAULT_INTERVAL: Duration = Duration::from_secs(4);
/// How long a watcher that reads nothing stays.
const SLOW_WATCHER: u64 = 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// Loop devices that no test uses: the daemon examines no others.
const FIRST_LOOP: u64 = 8000;
const LOOPS: u64 = 8;
const KERNEL_LOG: &str = "/run/kernel-log";
/// Records of the recorded kernel log per fault, one in a hundred about a drive.
const RECORDS: u64 = 400;

#[derive(Clone, Default)]
pub struct Counts(Arc<Counters>);

#[derive(Default)]
struct Counters {
    is_over: AtomicBool,
    counts: [AtomicU64; What::NAMES.len()],
}

#[derive(Clone, Copy)]
enum What {
    Scrape,
    Watch,
    Reload,
    Mount,
    Unplug,
    IoErrors,
    Check,
    Hang,
    LogRecords,
}

impl What {
    const NAMES: [&'static str; 9] = [
        "scrapes",
        "watchers",
        "reloads",
        "mounts",
        "loop devices unplugged while mounted",
        "mounts with I/O errors",
        "checks",
        "drives whose smartctl hangs",
        "kernel log records",
    ];
}

impl Counts {
    fn add(&self, what: What, count: u64) {
        self.0.counts[what as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// The churn ends after the step that it is in.
    pub fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Fails if something never happened: the run would say nothing about it.
    pub fn print(&self, figures: &Figures) -> anyhow::Result<()> {
        for (name, count) in What::NAMES.iter().zip(&self.0.counts) {
            let count = count.load(Ordering::Relaxed);
            figures.remark(&format!("{count} {name}"));
            ensure!(count > 0, "no {name} in the whole run");
        }
        Ok(())
    }
}

/// Scrapes, watchers that read the snapshot and go, and one at a time that reads nothing.
pub async fn clients(socket: PathBuf, metrics: PathBuf, counts: Counts) -> anyhow::Result<()> {
    let mut slow = None;
    for round in 0.. {
        if counts.is_over() {
            break;
        }
        metrics::scrape(&metrics, metrics::PLAIN).await?;
        counts.add(What::Scrape, 1);
        let request = wire::WatchRequest { resume_revision: 0 };
        let mut inventory = client::connect(&socket).await?;
        let mut events = inventory.watch(request).await.context("asking Watch")?.into_inner();
        if round % SLOW_WATCHER == 0 {
            slow = Some((events, inventory));
        } else {
            while let Some(event) = events.message().await.context("reading Watch")? {
                if event.change() == Change::SnapshotEnd {
                    break;
                }
            }
        }
        counts.add(What::Watch, 1);
        tokio::time::sleep(SCRAPE_INTERVAL).await;
    }
    drop(slow);
    Ok(())
}

pub async fn reloads(file: PathBuf, configs: [String; 2], counts: Counts) -> anyhow::Result<()> {
    for config in configs.iter().cycle() {
        if counts.is_over() {
            break;
        }
        replace(&file, config)?;
        counts.add(What::Reload, 1);
        tokio::time::sleep(RELOAD_INTERVAL).await;
    }
    Ok(())
}

fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, file))
        .with_context(|| format!("replacing {}", file.display()))
}

/// The recorded host with its smartctl and its kernel log.
pub struct Recorded {
    host: Host,
    smartctl: Smartctl,
    drives: Vec<String>,
    pipe: Pipe,
}

impl Recorded {
    pub fn new(host: Host, smartctl: Smartctl, drives: Vec<String>) -> anyhow::Result<Recorded> {
        let pipe = Pipe::make(&host.root().join(KERNEL_LOG.trim_start_matches('/')))?;
        Ok(Recorded { host, smartctl, drives, pipe })
    }

    pub fn root(&self) -> &Path {
        self.host.root()
    }

    pub fn config(&self) -> String {
        format!(
            "[kernel_log]\npath = \"{KERNEL_LOG}\"\n[smart]\ncommand = \"{}\"\ninterval = \"30s\"\nidle_interval = \"30s\"\nshortest_interval = \"2s\"\ntimeout = \"3s\"\n",
            self.smartctl.program().display()
        )
    }

    /// Each round one drive begins to hang and an earlier one answers again; usage changes, the
    /// kernel log has errors, and a finding is acknowledged.
    pub async fn run(self, socket: PathBuf, counts: Counts) -> anyhow::Result<()> {
        let mut admin = client::admin(&socket).await?;
        let mut inventory = client::connect(&socket).await?;
        let (mut next, mut hung) = (0, Vec::new());
        for round in 0.. {
            if counts.is_over() {
                break;
            }
            let drive = self.drives[round as usize % self.drives.len()].clone();
            self.smartctl.set_behavior(&drive, "hang").context("letting a drive hang")?;
            hung.push(drive);
            if hung.len() > 2 {
                let well = hung.remove(0);
                self.smartctl.reset_behavior(&well).context("letting a drive answer")?;
            }
            counts.add(What::Hang, 1);
            self.host.vary_usage(round)?;
            self.pipe.feed(next, RECORDS, None).await?;
            next += RECORDS;
            counts.add(What::LogRecords, RECORDS);
            let findings = inventory
                .list_findings(wire::ListFindingsRequest::default())
                .await
                .context("asking ListFindings")?
                .into_inner();
            if let Some(finding) = findings.findings.first() {
                let request = wire::AcknowledgeFindingRequest {
                    finding_id: finding.id.clone(),
                    note: "soak".into(),
                    ..Default::default()
                };
                // It may have cleared since it was listed.
                let _gone = admin.acknowledge_finding(request).await;
            }
            tokio::time::sleep(FAULT_INTERVAL).await;
        }
        Ok(())
    }
}

/// The churn of this machine's kernel. All of it blocks, so it has a thread of its own.
pub struct Kernel {
    client: PathBuf,
    socket: PathBuf,
    image: PathBuf,
    dir: PathBuf,
}

impl Kernel {
    pub const CONFIG: &str = "[drives]\nadmit = [\"loop8???\"]\nreconcile_interval = \"10s\"\n[io]\nstalled_after = \"60s\"\n[errors]\nquiet_after = \"30s\"\nbad_quiet_after = \"60s\"\n";

    /// `image`: an ext4 in a file. `dir`: for what the churn needs.
    pub fn new(
        program: &Program,
        image: &Path,
        dir: &Path,
        daemon: &Daemon,
    ) -> anyhow::Result<Kernel> {
        let kernel = Kernel {
            client: program.path.with_file_name("diskvitals"),
            socket: daemon.socket(),
            image: image.to_owned(),
            dir: dir.join("kernel"),
        };
        for name in ["mount", "bind", "fuse"] {
            let folder = kernel.dir.join(name);
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("making {}", folder.display()))?;
        }
        Ok(kernel)
    }

    pub fn run(self, counts: &Counts) -> anyhow::Result<()> {
        for cycle in 0.. {
            if counts.is_over() {
                break;
            }
            self.cycle(cycle, counts)
                .with_context(|| format!("cycle {cycle} of the kernel's churn"))?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn cycle(&self, cycle: u64, counts: &Counts) -> anyhow::Result<()> {
        let copy = self.dir.join(format!("disk-{}", cycle % LOOPS));
        let mut command = Command::new("cp");
        command.arg("--sparse=always").args([&self.image, &copy]);
        succeed(&mut command)?;
        // Every fourth disk is a file of a server that can fail.
        let server = (cycle % 4 == 3).then(|| FuseServer::mount(&self.dir.join("fuse"), &copy));
        let file = server.as_ref().map_or(copy, |_| self.dir.join("fuse").join(crate::fuse::FILE));
        let device = PathBuf::from(format!("/dev/loop{}", FIRST_LOOP + cycle % LOOPS));
        let mut disk = Disk {
            server: server.as_ref().map(|_| self.dir.join("fuse")),
            device: None,
            mounts: Vec::new(),
        };
        disk.attach(&device, &file)?;
        let top = self.dir.join("mount");
        disk.mount(&top)?;
        disk.bind(&top, &self.dir.join("bind"))?;
        counts.add(What::Mount, 2);
        std::fs::write(top.join("file"), vec![b'x'; 1 << 16]).context("writing a file")?;
        if let Some(server) = &server {
            server.set(Mode::Fail);
            // It fails, with the kernel's message.
            let _failed = std::fs::File::open(top.join("file")).and_then(|file| file.sync_all());
            let _failed = std::fs::read_dir(&top).map(Iterator::count);
            server.set(Mode::Pass);
            counts.add(What::IoErrors, 1);
        } else if cycle % 4 == 1 {
            disk.detach()?;
            counts.add(What::Unplug, 1);
        } else if cycle.is_multiple_of(8) {
            self.check(&top)?;
            counts.add(What::Check, 1);
        }
        disk.remove()
    }

    /// Whatever its verdict is: the filesystem is in use.
    fn check(&self, target: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(&self.client);
        command.arg("--socket").arg(&self.socket);
        command.args(["--output", "json", "check", "--filesystem", "ext4"]);
        command.arg(target);
        let begun = Instant::now();
        loop {
            let output = process::output(&mut command, TOOL_TIMEOUT)?;
            let answer = serde_json::from_slice::<serde_json::Value>(&output.stdout);
            let answer = answer.unwrap_or_default();
            if answer.get("check").unwrap_or(&answer)["verdict"].is_string() {
                return Ok(());
            }
            // It was mounted a moment ago.
            if begun.elapsed() > BUSY_TIMEOUT {
                bail!("no check: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// A loop device and its mounts; all are removed when it is dropped.
struct Disk {
    /// Where the server of its file is mounted.
    server: Option<PathBuf>,
    device: Option<PathBuf>,
    mounts: Vec<PathBuf>,
}

impl Disk {
    fn attach(&mut self, device: &Path, file: &Path) -> anyhow::Result<()> {
        succeed(Command::new("/sbin/losetup").args([device, file]))?;
        self.device = Some(device.to_owned());
        Ok(())
    }

    fn mount(&mut self, at: &Path) -> anyhow::Result<()> {
        let device = self.device.as_deref().context("it is attached")?;
        let flags = MsFlags::empty();
        mount(Some(device), at, Some("ext4"), flags, None::<&str>).context("mounting")?;
        self.mounts.push(at.to_owned());
        Ok(())
    }

    fn bind(&mut self, from: &Path, at: &Path) -> anyhow::Result<()> {
        let flags = MsFlags::MS_BIND;
        mount(Some(from), at, None::<&str>, flags, None::<&str>).context("a bind mount")?;
        self.mounts.push(at.to_owned());
        Ok(())
    }

    /// While it is mounted, it goes with its last mount.
    fn detach(&mut self) -> anyhow::Result<()> {
        let Some(device) = self.device.take() else {
            return Ok(());
        };
        succeed(Command::new("/sbin/losetup").arg("--detach").arg(device))
    }

    fn remove(mut self) -> anyhow::Result<()> {
        while let Some(at) = self.mounts.pop() {
            unmount(&at)?;
        }
        self.detach()?;
        self.server.take().map_or(Ok(()), |at| unmount(&at))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After an error: nothing of ours may stay mounted.
        let detach = |at: &PathBuf| {
            if let Err(error) = umount2(at, MntFlags::MNT_DETACH) {
                eprintln!("error: unmounting {}: {error}", at.display());
            }
        };
        self.mounts.iter().rev().for_each(detach);
        if let Err(error) = self.detach() {
            eprintln!("error: {error:#}");
        }
        self.server.iter().for_each(detach);
    }
}

/// A probe keeps a mount busy for a moment.
fn unmount(at: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match umount2(at, MntFlags::empty()) {
            Err(Errno::EBUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done.with_context(|| format!("unmounting {}", at.display())),
        }
    }
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = process::output(command, TOOL_TIMEOUT)?;
    ensure!(
        output.status.success(),
        "{}: {}",
        command.get_program().to_string_lossy(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
