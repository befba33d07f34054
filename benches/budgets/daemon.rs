//! A daemon to measure: started with its own state, sockets and configuration, and stopped when
//! dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use diskvitals_wire as wire;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::client::{self, Inventory};
use crate::process;
use crate::tree::{self, Plan, TreeVolume};

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(7);
/// For one answer of a daemon that is being waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Program {
    pub path: PathBuf,
    pub verbose: bool,
}

pub struct Daemon {
    child: Child,
    /// The folder of sockets, state and configuration.
    dir: TempDir,
    started: Instant,
}

/// A recorded host, and its folder.
pub struct Host {
    dir: TempDir,
    pub plan: Plan,
    pub volumes: Vec<TreeVolume>,
}

impl Host {
    pub fn recorded(plan: Plan) -> anyhow::Result<Host> {
        let dir = tempfile::tempdir().context("making a folder for the recorded host")?;
        let volumes = tree::write(dir.path(), plan).context("writing the recorded host")?;
        Ok(Host { dir, plan, volumes })
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Changes the answers of half of the mounts: the usage of volumes in use changes every minute.
    pub fn vary_usage(&self, round: u64) -> anyhow::Result<()> {
        let file = self.root().join("exec/probes.json");
        let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let mut answers: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&text).context("parsing the answers")?;
        for answer in answers.values_mut().step_by(2) {
            if let Some(statfs) = answer.get_mut("statfs") {
                statfs["used_bytes"] = (10_000_000_000 + round * 4096).into();
                statfs["available_bytes"] = (20_000_000_000 - round * 4096).into();
            }
        }
        // The file is replaced atomically: a worker reads it at any moment.
        let new = file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&answers).context("writing the answers")?)
            .with_context(|| format!("writing {}", new.display()))?;
        std::fs::rename(&new, &file).with_context(|| format!("replacing {}", file.display()))
    }
}

impl Program {
    /// Starts on `host_root` with this configuration, in a new folder or in that of an earlier
    /// daemon.
    pub fn start(
        &self,
        host_root: &Path,
        config: &str,
        dir: Option<TempDir>,
    ) -> anyhow::Result<Daemon> {
        self.start_at(host_root, Path::new(tree::KUBELET_ROOT), config, dir)
    }

    pub fn start_at(
        &self,
        host_root: &Path,
        kubelet_root: &Path,
        config: &str,
        dir: Option<TempDir>,
    ) -> anyhow::Result<Daemon> {
        let dir = match dir {
            Some(dir) => dir,
            // The folder is in memory, like /run: the notes about frozen filesystems are beside the
            // socket.
            None => tempfile::tempdir_in("/dev/shm").context("making a folder for the daemon")?,
        };
        let file = dir.path().join("diskvitals.toml");
        std::fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        for name in ["state", "csi"] {
            std::fs::create_dir_all(dir.path().join(name))
                .with_context(|| format!("making {name}"))?;
        }
        let mut command = Command::new(&self.path);
        command
            .arg("--host-root")
            .arg(host_root)
            .arg("--kubelet-root")
            .arg(kubelet_root)
            .arg("--config")
            .arg(&file);
        command
            .arg("--socket")
            .arg(dir.path().join("diskvitals.sock"))
            .arg("--agent-socket")
            .arg(dir.path().join("csi/agent.sock"));
        command
            .arg("--state-dir")
            .arg(dir.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !self.verbose {
            command.stderr(Stdio::null());
        }
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("starting {}", self.path.display()))?;
        Ok(Daemon { child, dir, started })
    }
}

impl Daemon {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("diskvitals.sock")
    }

    pub fn agent_socket(&self) -> PathBuf {
        self.dir.path().join("csi/agent.sock")
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("diskvitals.toml")
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn must_run(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("waiting for the daemon")? {
            Some(status) => bail!("the daemon has ended: {status} (--verbose shows its log)"),
            None => Ok(()),
        }
    }

    pub async fn connect(&self) -> anyhow::Result<Inventory> {
        client::connect(&self.socket()).await
    }

    pub async fn admin(&self) -> anyhow::Result<client::Admin> {
        client::admin(&self.socket()).await
    }

    /// Waits until `GetNode` reports the first complete snapshot. Returns the time since the start,
    /// and the answer.
    pub async fn wait_settled(&mut self) -> anyhow::Result<(Duration, wire::Node)> {
        self.wait_for(Duration::from_secs(60), |node| node.settled)
            .await
            .context("waiting for the first complete snapshot")
    }

    /// Polls every two milliseconds.
    pub async fn wait_for(
        &mut self,
        patience: Duration,
        is_so: impl Fn(&wire::Node) -> bool,
    ) -> anyhow::Result<(Duration, wire::Node)> {
        let deadline = Instant::now() + patience;
        let mut last = None;
        let mut inventory = None;
        loop {
            self.must_run()?;
            if inventory.is_none() {
                // The daemon may not be listening yet.
                inventory = self.connect().await.ok();
            }
            if let Some(inventory) = &mut inventory {
                let answer = inventory.get_node(wire::GetNodeRequest {});
                let node = tokio::time::timeout(ANSWER_TIMEOUT, answer)
                    .await
                    .with_context(|| format!("GetNode, for {ANSWER_TIMEOUT:?}"))?
                    .context("asking GetNode")?
                    .into_inner();
                if is_so(&node) {
                    return Ok((self.started.elapsed(), node));
                }
                last = Some(node);
            }
            if Instant::now() > deadline {
                bail!("not within {patience:?}; the node is {last:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the daemon and returns its folder, so that a successor finds the state.
    pub fn stop(mut self) -> anyhow::Result<TempDir> {
        let spare = tempfile::tempdir().context("making a folder")?;
        self.end();
        Ok(std::mem::replace(&mut self.dir, spare))
    }

    /// Ends the daemon, and measures its process when it has ended and was not reaped yet.
    pub async fn end_and_measure<T>(
        self,
        limit: Duration,
        measure: impl Fn(i32) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).context("ending the daemon")?;
        let deadline = Instant::now() + limit;
        loop {
            let process = procfs::process::Process::new(self.pid());
            let stat = process.and_then(|process| process.stat());
            if stat.context("reading the daemon's state")?.state == 'Z' {
                return measure(self.pid());
            }
            if Instant::now() > deadline {
                bail!("the daemon did not end within {limit:?} of SIGTERM");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn end(&mut self) {
        // The daemon may have ended already: then there is nothing to signal.
        let _ended = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        // The daemon guarantees to end within five seconds, whatever hangs.
        match process::wait(&mut self.child, SHUTDOWN_TIMEOUT) {
            Ok(Some(_status)) => return,
            Ok(None) => {
                eprintln!("error: the daemon did not end within {SHUTDOWN_TIMEOUT:?} of SIGTERM");
            }
            Err(error) => eprintln!("error: waiting for the daemon's end: {error}"),
        }
        process::kill(&mut self.child, "the daemon");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Fails if the daemon did not read the recorded host completely: the figures would then be wrong.
pub fn check_snapshot(host: &Host, node: &wire::Node) -> anyhow::Result<()> {
    if (node.drives as usize) != host.plan.drives || (node.volumes as usize) < host.plan.volumes {
        let wanted =
            format!("{} drives and at least {} volumes", host.plan.drives, host.plan.volumes);
        bail!(
            "the daemon sees {} drives and {} volumes where there are {wanted}; warnings: {:?}",
            node.drives,
            node.volumes,
            node.warnings
        );
    }
    Ok(())
}

/// Pins this thread, and all that it starts later, to one core; `None`: to all cores.
pub fn pin(core: Option<usize>) -> anyhow::Result<()> {
    sched_setaffinity(Pid::from_raw(0), &cpus(core)?).context("setting the processor affinity")
}

impl Daemon {
    /// Allows all threads and workers of the daemon to run on all cores again.
    pub fn unpin(&self) -> anyhow::Result<()> {
        for process in crate::footprint::process_tree(self.pid())? {
            for task in process.tasks().context("listing threads")?.flatten() {
                // A thread that has ended needs no cores.
                let _gone = sched_setaffinity(Pid::from_raw(task.tid), &cpus(None)?);
            }
        }
        Ok(())
    }
}

fn cpus(core: Option<usize>) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    match core {
        Some(core) => set.set(core).context("naming a core")?,
        None => {
            for core in 0..std::thread::available_parallelism().map_or(1, usize::from).max(cores())
            {
                set.set(core).context("naming a core")?;
            }
        }
    }
    Ok(set)
}

/// Number of the machine's cores, even if this thread is pinned.
pub fn cores() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(1)
}
