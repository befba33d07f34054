//! The cost of the kernel log: processor time at the rate of a storm, compared with
//! node-problem-detector's kernel monitor with its default rules on the same stream, and memory
//! after a million records.
//!
//! The log is a named pipe in packet mode: each read returns one record, as with the device.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::Item;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::daemon::{Daemon, Host, Program};
use crate::events::{next as seen, watch};
use crate::figures::{Better, Comparison, Figures, Goal, Samples, milliseconds};
use crate::footprint::cpu_time;
use crate::peers::{self, Peers};
use crate::process::{self, Running};
use crate::tree::Plan;

/// Records per second, as on a busy node.
const RATE: u64 = 6_400;
const FLOOD_RECORDS: u64 = 1_000_000;
/// The daemon gives freed memory back every ten seconds.
const GIVES_BACK: Duration = Duration::from_secs(12);
/// The maximum without CAP_SYS_RESOURCE (pipe(7)); in packet mode 256 records.
const PIPE_BYTES: i32 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(120);
/// A reader that lets a full pipe wait for so long has ended, or hangs.
const READER_TIMEOUT: Duration = Duration::from_secs(10);
/// Beside a peer: how often each is measured, and by how much the rate is lowered until the peer
/// keeps up with it.
const TURNS: u32 = 2;
const RATE_STEP: f64 = 0.9;
const MAX_ATTEMPTS: u32 = 12;
/// Number of records whose latency is measured, for drives of the recorded host.
const ROUNDS: usize = 60;
const NVME: [&str; 2] = ["nvme0n1", "nvme1n1"];
/// The path of the pipe below the daemon's host root.
const PATH: &str = "/run/kernel-log";

/// node-problem-detector and its default rules.
struct Peer {
    program: PathBuf,
    rules: PathBuf,
}

impl Peer {
    const NAME: &str = "node-problem-detector";

    fn find(peers: &Peers, figures: &Figures) -> Option<Peer> {
        let program = peers.find(Peer::NAME, figures)?;
        let is_root = nix::unistd::geteuid().is_root();
        if !is_root {
            figures.remark("node-problem-detector reads /dev/kmsg: not measured without root");
        }
        let rules = program.parent()?.parent()?;
        let rules = rules.join("share/node-problem-detector/kernel-monitor.json");
        is_root.then_some(Peer { program, rules })
    }
}

pub async fn measure(
    program: &Program,
    peers: &Peers,
    figures: &mut Figures,
    time: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 8, volumes: 20, hung: 0 })?;
    let pipe = Pipe::make(&host.root().join(PATH.trim_start_matches('/')))?;
    let mut daemon =
        program.start(host.root(), &format!("[kernel_log]\npath = \"{PATH}\"\n"), None)?;
    daemon.wait_settled().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let next = measure_latency(&daemon, &pipe, figures).await?;
    let mut reader = Reader { pid: daemon.pid(), pipe, next };
    let share = reader.cpu_share(RATE, time).await?;
    let share = share.with_context(|| {
        format!("this machine is too busy, or the reader too slow, for {RATE} records/s")
    })?;
    figures.add_processor("kernel_log_cpu", share, "of_a_core", Goal::AtMost(0.05));
    figures.remark(&format!(
        "{RATE} records/s for {} s, one in a hundred about a drive",
        time.as_secs()
    ));

    let (before, _) = process::resident(daemon.pid())?;
    let started = Instant::now();
    reader.feed(FLOOD_RECORDS, None).await?;
    reader.pipe.wait_drained().await?;
    let took = started.elapsed();
    tokio::time::sleep(GIVES_BACK).await;
    figures.add(
        "kernel_log_rss_after_1m",
        process::resident(daemon.pid())?.0,
        "MiB",
        Goal::AtMost(30.0),
    );
    figures.figure_without_goal("kernel_log_rss_before", before, "MiB");
    figures.figure_without_goal(
        "kernel_log_records",
        FLOOD_RECORDS as f64 / took.as_secs_f64(),
        "records/s",
    );
    if let Some(peer) = Peer::find(peers, figures) {
        compare_with_peer(&peer, &mut reader, time, figures).await;
    }
    // The daemon must still run at the end.
    daemon.wait_settled().await.map(drop)
}

/// Measures the time from a log record to the drive on Watch, in a quiet log and in a flood.
async fn measure_latency(
    daemon: &Daemon,
    pipe: &Pipe,
    figures: &mut Figures,
) -> anyhow::Result<u64> {
    let mut events = watch(daemon).await?;
    let mut next = 0;
    for (name, flood) in [("kernel_log_on_watch", false), ("kernel_log_on_watch_in_a_flood", true)]
    {
        let mut samples = Samples::default();
        for turn in 0..ROUNDS {
            if flood {
                pipe.feed(next, RATE / 10, Some(RATE)).await?;
                next += RATE / 10;
            }
            // The daemon stores few sectors of a drive, so the records are distributed over the
            // drives.
            let (drive, sector) = (turn % NVME.len(), 1_000_000 + next);
            let time = diskvitals_host::clock::monotonic().as_micros();
            let device = NVME[drive];
            let record = format!(
                "3,{next},{time},-;critical medium error, dev {device}, sector {sector} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n"
            );
            next += 1;
            let written = Instant::now();
            pipe.write(&record, READER_TIMEOUT)?;
            let shows = |event: &wire::WatchEvent| match &event.item {
                Some(Item::Drive(drive)) => drive
                    .errors
                    .iter()
                    .any(|tally| tally.sectors.iter().any(|place| place.sector == sector))
                    .then_some(()),
                _ => None,
            };
            let (arrived, ()) = seen(&mut events, "a record", shows).await?;
            samples.push(arrived.saturating_duration_since(written));
        }
        figures.figure_without_goal(
            &format!("{name}_p50"),
            milliseconds(samples.quantile(0.5)),
            "ms",
        );
        figures.add(
            &format!("{name}_p99"),
            milliseconds(samples.quantile(0.99)),
            "ms",
            Goal::AtMost(100.0),
        );
    }
    Ok(next)
}

/// A process that reads the log.
struct Reader {
    pid: i32,
    pipe: Pipe,
    /// The number of the next record.
    next: u64,
}

impl Reader {
    async fn feed(&mut self, records: u64, rate: Option<u64>) -> anyhow::Result<Duration> {
        let took = self.pipe.feed(self.next, records, rate).await?;
        self.next += records;
        Ok(took)
    }

    /// The share of one core while records arrive at `rate`; `None`: the reader does not keep up.
    async fn cpu_share(&mut self, rate: u64, time: Duration) -> anyhow::Result<Option<f64>> {
        let (started, before) = (Instant::now(), cpu_time(self.pid)?);
        let fed = self.feed((rate as f64 * time.as_secs_f64()) as u64, Some(rate)).await?;
        self.pipe.wait_drained().await?;
        let (spent, took) = (cpu_time(self.pid)?.saturating_sub(before), started.elapsed());
        let share = spent.as_secs_f64() / took.as_secs_f64();
        Ok((fed <= time.mul_f64(1.05)).then_some(share))
    }

    /// Records per second when the next one is written as soon as there is room for it.
    async fn full_rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        const PART: u64 = 1000;
        let (started, first) = (Instant::now(), self.next);
        while started.elapsed() < time {
            self.feed(PART, None).await?;
        }
        self.pipe.wait_drained().await?;
        Ok((self.next - first) as f64 / started.elapsed().as_secs_f64())
    }
}

async fn compare_with_peer(peer: &Peer, ours: &mut Reader, time: Duration, figures: &mut Figures) {
    if let Err(error) = measure_peer(peer, ours, time, figures).await {
        figures.not_measured(Peer::NAME, &error);
    }
}

/// Runs in a separate mount namespace with the pipe mounted over the device, because the peer has a
/// fixed path.
async fn measure_peer(
    peer: &Peer,
    ours: &mut Reader,
    time: Duration,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("making a folder")?;
    let path = dir.path().join("kmsg");
    let pipe = Pipe::make(&path)?;
    let script = r#"mount --bind "$1" /dev/kmsg && exec "$2" --enable-k8s-exporter=false --port=0 --config.system-log-monitor="$3" --prometheus-port="$4""#;
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh"]);
    // It does not run without an exporter.
    let port = peers::free_address()?.port().to_string();
    command.arg(&path).arg(&peer.program).arg(&peer.rules).arg(port);
    let mut running = Running::start(&mut command)?;
    let mut theirs = Reader { pid: running.pid(), pipe, next: 0 };
    tokio::time::sleep(Duration::from_secs(5)).await;
    let compared = compare(ours, &mut theirs, time, figures).await;
    // Its end explains why nobody read the pipe.
    running.must_run().context(Peer::NAME)?;
    compared
}

/// Processor time and memory of both at the highest rate that the peer keeps up with, in turns.
async fn compare(
    ours: &mut Reader,
    theirs: &mut Reader,
    time: Duration,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let turn = time / TURNS;
    let rates = (ours.full_rate(turn).await?, theirs.full_rate(turn).await?);
    let mut rate = rates.0.min(rates.1);
    let mut shares = None;
    for _attempt in 0..MAX_ATTEMPTS {
        rate *= RATE_STEP;
        shares = cpu_shares(ours, theirs, rate as u64, turn).await?;
        if shares.is_some() {
            break;
        }
    }
    let (of_ours, of_theirs) =
        shares.with_context(|| format!("a reader falls behind at {rate:.0} records/s"))?;
    figures.remark(&format!(
        "node-problem-detector keeps up with {rate:.0} records/s: both at this rate, {TURNS} turns of {turn:?} each"
    ));
    let comparison = |what, unit, better, ours, theirs| Comparison {
        peer: "node_problem_detector",
        what,
        unit,
        better,
        ours,
        theirs,
    };
    let memory = (process::memory(ours.pid)?, process::memory(theirs.pid)?);
    let resident = (process::resident(ours.pid)?, process::resident(theirs.pid)?);
    for comparison in [
        comparison("full_rate", "records/s", Better::More, rates.0, rates.1),
        comparison("cpu", "of_a_core", Better::Less, of_ours, of_theirs),
        comparison("rss", "MiB", Better::Less, resident.0.0, resident.1.0),
        comparison("memory", "MiB", Better::Less, memory.0, memory.1),
    ] {
        figures.compare(comparison);
    }
    Ok(())
}

/// Of both in turns, on average; `None`: one of them does not keep up.
async fn cpu_shares(
    ours: &mut Reader,
    theirs: &mut Reader,
    rate: u64,
    turn: Duration,
) -> anyhow::Result<Option<(f64, f64)>> {
    let (mut of_ours, mut of_theirs) = (0.0, 0.0);
    for _turn in 0..TURNS {
        for (reader, sum) in [(&mut *ours, &mut of_ours), (&mut *theirs, &mut of_theirs)] {
            let Some(share) = reader.cpu_share(rate, turn).await? else {
                return Ok(None);
            };
            *sum += share / f64::from(TURNS);
        }
    }
    Ok(Some((of_ours, of_theirs)))
}

/// The writing end. It is open for reading too: the daemon opens and closes its end at any time.
#[derive(Clone)]
pub struct Pipe(Arc<File>);

impl Pipe {
    pub fn make(path: &Path) -> anyhow::Result<Pipe> {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
            .context("making a named pipe")?;
        // Opened for both directions, so that neither open waits for the other.
        let file = File::options().read(true).write(true).open(path).context("opening the pipe")?;
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_DIRECT | OFlag::O_NONBLOCK))
            .context("setting the pipe's packet mode")?;
        fcntl(&file, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).context("making the pipe larger")?;
        Ok(Pipe(Arc::new(file)))
    }

    /// Writes as fast as the records are read, or at a rate. Returns the duration.
    pub async fn feed(
        &self,
        first: u64,
        records: u64,
        rate: Option<u64>,
    ) -> anyhow::Result<Duration> {
        let pipe = self.clone();
        tokio::task::spawn_blocking(move || pipe.feed_records(first, records, rate))
            .await
            .context("feeding the pipe")?
    }

    fn feed_records(
        &self,
        first: u64,
        records: u64,
        rate: Option<u64>,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let mut record = String::new();
        for at in 0..records {
            while rate
                .is_some_and(|rate| started.elapsed().as_secs_f64() * (rate as f64) < at as f64)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            write_record(first + at, &mut record);
            self.write(&record, READER_TIMEOUT)?;
        }
        Ok(started.elapsed())
    }

    /// Waits while the pipe is full, at most for `patience`.
    fn write(&self, record: &str, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match (&*self.0).write(record.as_bytes()) {
                // A record is one packet, which is written whole or not at all.
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("writing into the pipe"),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("nobody has read the kernel log for {patience:?}");
            }
            let mut full = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
            let limit = PollTimeout::try_from(left).context("the time to wait for a reader")?;
            poll(&mut full, limit).context("waiting for the pipe")?;
        }
    }

    /// Waits until all records are read.
    async fn wait_drained(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        while poll(&mut waiting, PollTimeout::ZERO).context("looking into the pipe")? > 0 {
            if Instant::now() > deadline {
                bail!("the log was not read within {TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Messages of a node with healthy drives; the proportions are not those of a particular node.
const NOISE: [&str; 8] = [
    "audit: type=1400 audit(1700000000.123:456): apparmor=\"DENIED\" operation=\"open\" profile=\"runc\" name=\"/proc/sys/kernel\" comm=\"cat\"",
    "cni0: port 7(veth3f2a1b0c) entered forwarding state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "[UFW BLOCK] IN=eth0 OUT= MAC=52:54:00:12:34:56 SRC=192.0.2.17 DST=192.0.2.1 LEN=40 TTL=241 ID=54321 PROTO=TCP SPT=443 DPT=22 SYN URGP=0",
    "usb 1-1.4: new high-speed USB device number 12 using xhci_hcd",
    "overlayfs: upperdir is in-use as upperdir/workdir of another mount, accessing files from both mounts will result in undefined behavior.",
    "TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:6443. Sending cookies.",
    "EXT4-fs (sdb1): mounted filesystem 530e0179-b044-4633-bdf8-2d4c7adb053f r/w with ordered data mode. Quota mode: none.",
];

/// Writes one incident per hundred records.
fn write_record(seq: u64, record: &mut String) {
    record.clear();
    // Other programs would treat a record without its time as old.
    let time = diskvitals_host::clock::monotonic().as_micros();
    // Writing into a string does not fail.
    let _written = match seq % 100 {
        99 => writeln!(
            record,
            "3,{seq},{time},-;critical medium error, dev sd{}, sector {} op 0x0:(READ) flags 0x800 phys_seg 1 prio class 2",
            ['a', 'b', 'c'][(seq / 100 % 3) as usize],
            seq / 100 % 5000 * 8
        ),
        kind => writeln!(record, "6,{seq},{time},-;{}", NOISE[kind as usize % NOISE.len()]),
    };
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = Pipe::make(&dir.path().join("pipe")).expect("a pipe");
        let patience = Duration::from_millis(50);
        let error = (0..1_000_000)
            .find_map(|_| pipe.write("6,1,1,-;x\n", patience).err())
            .expect("a pipe has room for a few hundred records");
        assert_eq!(error.to_string(), "nobody has read the kernel log for 50ms");
    }

    #[tokio::test]
    async fn a_peer_that_ends_in_the_middle_is_a_missing_figure() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: left out");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("peer");
        // It reads for a moment, and is then killed.
        let script = "#!/bin/sh\n(sleep 6; kill -9 $$) &\nexec cat /dev/kmsg >/dev/null\n";
        std::fs::write(&program, script).expect("a script");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("its mode");
        let peer = Peer { program, rules: dir.path().join("rules") };
        let pipe = Pipe::make(&dir.path().join("pipe")).expect("a pipe");
        let mut command = Command::new("cat");
        let reader = Running::start(command.arg(dir.path().join("pipe"))).expect("a reader");
        let mut ours = Reader { pid: reader.pid(), pipe, next: 0 };
        let mut figures = Figures::default();
        let time = Duration::from_secs(3);
        let limit = Duration::from_secs(60);
        let measured = compare_with_peer(&peer, &mut ours, time, &mut figures);
        let ended = tokio::time::timeout(limit, measured).await;
        assert!(ended.is_ok(), "it waits for ever");
        assert_eq!(
            figures.missing(),
            [
                "node-problem-detector: node-problem-detector: /usr/bin/unshare has ended: signal: 9 (SIGKILL)"
            ]
        );
    }
}
