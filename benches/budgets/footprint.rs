//! The cost of an idle daemon, including its workers: memory (all of it locked) and processor time;
//! and that of the shim while the kubelet asks it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use procfs::process::{Process, Status, all_processes};

use crate::calls;
use crate::client::channel;
use crate::csi::{self, Call};
use crate::daemon::{Daemon, Host, Program, check_snapshot};
use crate::figures::{Figures, Goal};
use crate::tree::Plan;

/// Interval at which usage changes; it is shorter than the probe interval.
const CHANGES: Duration = Duration::from_secs(20);
const MIB: f64 = 1_048_576.0;
/// Volumes of the kubelet that calls the shim, and how often it asks for the statistics of each, by
/// default.
const KUBELET_VOLUMES: usize = 100;
const STATS_INTERVAL: Duration = Duration::from_secs(60);

pub async fn measure(
    program: &Program,
    figures: &mut Figures,
    idle: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 64, volumes: 500, hung: 0 })?;
    let daemon = measure_idle(program, &host, figures, idle).await?;
    measure_wakeups(program, figures, idle).await?;
    measure_shim(program, &host, &daemon, figures, idle).await?;
    drop(daemon);
    measure_large(program, figures).await
}

async fn measure_idle(
    program: &Program,
    host: &Host,
    figures: &mut Figures,
    idle: Duration,
) -> anyhow::Result<Daemon> {
    let mut daemon = program.start(host.root(), "[probes]\ninterval = \"60s\"\n", None)?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(host, &node)?;
    // The work of the start is done, and the first probe round, distributed or not, has begun.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let pid = daemon.pid();
    let (started, before, woken) = (Instant::now(), cpu_time(pid)?, wakeups(pid)?);
    let transfers_before = transfers(pid)?;
    let end = tokio::time::Instant::now() + idle;
    for round in 1.. {
        host.vary_usage(round)?;
        tokio::time::sleep_until(end.min(tokio::time::Instant::now() + CHANGES)).await;
        if tokio::time::Instant::now() >= end {
            break;
        }
    }
    let spent = cpu_time(pid)?.saturating_sub(before);
    let share = spent.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    figures.add_processor("idle_cpu", share, "%_of_a_core", Goal::AtMost(0.2));

    let woken = wakeups(pid)?.saturating_sub(woken) as f64;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    figures.figure_without_goal("idle_wakeups_500_volumes", woken / minutes, "a_minute");
    let transfers = transfers(pid)?.saturating_sub(transfers_before) as f64;
    figures.figure_without_goal("idle_reads_writes_500_volumes", transfers / minutes, "a_minute");

    let status = status(pid)?;
    figures.add("rss", mib(status.vmrss), "MiB", Goal::AtMost(30.0));
    figures.add("rss_anonymous", mib(status.rssanon), "MiB", Goal::AtMost(14.0));
    figures.remark(&format!(
        "daemon: locked {:.1} MiB, file {:.1} MiB, threads {}",
        mib(status.vmlck),
        mib(status.rssfile),
        status.threads
    ));
    let family = process_tree(pid)?;
    let (mut rss, mut pss) = (0, 0);
    for process in &family {
        let (r, p) = memory(process)?;
        rss += r;
        pss += p;
    }
    // Shared pages are counted once: the workers run the daemon's own program.
    figures.add("memory_with_workers", pss as f64 / MIB, "MiB", Goal::AtMost(40.0));
    figures.figure_without_goal("memory_with_workers_rss_summed", rss as f64 / MIB, "MiB");
    figures.remark(&format!("{} workers", family.len() - 1));
    Ok(daemon)
}

/// A node with one drive and one volume.
async fn measure_wakeups(
    program: &Program,
    figures: &mut Figures,
    idle: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 1, volumes: 1, hung: 0 })?;
    let mut daemon = program.start(host.root(), "", None)?;
    daemon.wait_settled().await?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (started, before) = (Instant::now(), wakeups(daemon.pid())?);
    tokio::time::sleep(idle).await;
    let woken = wakeups(daemon.pid())?.saturating_sub(before) as f64;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    figures.add("idle_wakeups", woken / minutes, "a_minute", Goal::AtMost(60.0));
    Ok(())
}

/// The shim in its mode driver, while the kubelet asks for the statistics of its volumes.
async fn measure_shim(
    program: &Program,
    host: &Host,
    daemon: &Daemon,
    figures: &mut Figures,
    time: Duration,
) -> anyhow::Result<()> {
    let driver = &host.volumes.first().context("a volume")?.driver;
    let mut targets = csi::volumes(daemon, driver).await?;
    targets.truncate(KUBELET_VOLUMES);
    let dir = tempfile::tempdir_in("/dev/shm").context("making a folder")?;
    let socket = dir.path().join("csi.sock");
    let shim = program.path.with_file_name("diskvitals-csi");
    let mut running = csi::start_shim(&shim, daemon, &socket, &["--driver-name", driver])?;
    csi::ready(&mut running, &socket).await?;
    let pid = running.pid();
    let client = csi::client(channel(&socket).await?);
    let (started, before) = (Instant::now(), cpu_time(pid)?);
    let interval = STATS_INTERVAL / u32::try_from(targets.len())?;
    let asked = calls::run(vec![client], &targets, time, Some(interval), csi::caller(Call::Stats));
    let asked = asked.await?;
    let spent = cpu_time(pid)?.saturating_sub(before);
    let share = spent.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    figures.add_processor("shim_cpu", share, "%_of_a_core", Goal::AtMost(0.5));
    let rss = mib(status(pid)?.vmrss);
    figures.add("shim_rss", rss, "MiB", Goal::AtMost(8.0));
    figures.remark(&format!("shim: {:.2} calls a second", asked.rate()));
    Ok(())
}

/// A storage node: many drives and volumes.
async fn measure_large(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 256, volumes: 1000, hung: 0 })?;
    let mut daemon = program.start(host.root(), "[probes]\ninterval = \"60s\"\n", None)?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    // The memory that only the start needs is given back after ten seconds.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let rss = mib(status(daemon.pid())?.vmrss);
    figures.add("rss_1000_volumes", rss, "MiB", Goal::AtMost(48.0));
    Ok(())
}

fn status(pid: i32) -> anyhow::Result<Status> {
    let process = Process::new(pid).with_context(|| format!("reading /proc/{pid}"))?;
    process.status().context("reading its status")
}

fn mib(kib: Option<u64>) -> f64 {
    kib.unwrap_or_default() as f64 / 1024.0
}

/// A process and all its descendants.
pub fn process_tree(pid: i32) -> anyhow::Result<Vec<Process>> {
    let all: Vec<(Process, i32)> = all_processes()
        .context("listing processes")?
        .flatten()
        .filter_map(|process| process.stat().ok().map(|stat| (process, stat.ppid)))
        .collect();
    let mut members = BTreeSet::from([pid]);
    loop {
        let more: Vec<i32> = all
            .iter()
            .filter(|(process, parent)| members.contains(parent) && !members.contains(&process.pid))
            .map(|(process, _)| process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        members.extend(more);
    }
    Ok(all
        .into_iter()
        .map(|(process, _)| process)
        .filter(|process| members.contains(&process.pid))
        .collect())
}

/// Resident and proportional bytes, from smaps_rollup.
pub fn memory(process: &Process) -> anyhow::Result<(u64, u64)> {
    let rollup = process
        .smaps_rollup()
        .with_context(|| format!("reading smaps_rollup of {}", process.pid))?;
    let map = rollup.memory_map_rollup.iter().next().context("an empty smaps_rollup")?;
    let of = |key: &str| map.extension.map.get(key).copied().unwrap_or_default();
    Ok((of("Rss"), of("Pss")))
}

/// How often threads of the daemon and its workers have waited and were woken: proc(5),
/// voluntary_ctxt_switches.
fn wakeups(pid: i32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for process in process_tree(pid)? {
        for task in process.tasks().context("listing threads")?.flatten() {
            // A thread that has ended is left out.
            sum += task.status().ok().and_then(|it| it.voluntary_ctxt_switches).unwrap_or_default();
        }
    }
    Ok(sum)
}

/// System calls of the daemon and its workers that read or wrote: proc(5), syscr and syscw of
/// /proc/PID/io.
fn transfers(pid: i32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for process in process_tree(pid)? {
        let io = process.io().with_context(|| format!("reading io of {}", process.pid))?;
        sum += io.syscr + io.syscw;
    }
    Ok(sum)
}

/// The processor time of the daemon, its running workers, and those that were reaped.
pub fn cpu_time(pid: i32) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for process in process_tree(pid)? {
        // A process that has just ended counts with its parent's children.
        if let Ok(stat) = process.stat() {
            ticks += stat.utime
                + stat.stime
                + u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
        }
    }
    Ok(Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64))
}
