//! How much the daemon writes to its disk in a day, for 64 drives and 500 volumes: idle (only usage,
//! temperatures and hours change), and with drives of which each loses sectors every hour.
//!
//! Measured in /proc/PID/io. A day is put together from its parts: what is written by itself, as much
//! as in the measured time; rounds of SMART queries, each a refresh here and every ten minutes there;
//! and four times what waits, which the end of the daemon writes too: an upper bound, since the
//! larger part of it is written once a day.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use procfs::process::Process;

use crate::client::Inventory;
use crate::daemon::{Host, Program, check_snapshot};
use crate::figures::{Figures, Goal};
use crate::smart::{self, answer_times, measure_round};
use crate::smartctl::{Ata, Smartctl};
use crate::tree::Plan;

/// `[smart] interval` by default.
const ROUNDS_PER_DAY: f64 = 144.0;
/// `TIMESTAMP_WRITE_INTERVAL` of src/daemon/state/owner/store_sync.rs.
const WAITING_WRITES_PER_DAY: f64 = 4.0;
const AGEING_ROUNDS_PER_DAY: f64 = 24.0;
/// Rounds that are measured.
const ROUNDS: u32 = 3;
const ROUND_PAUSE: Duration = Duration::from_millis(2500);
/// Until what a round changed is with the disk.
const WRITE_PAUSE: Duration = Duration::from_secs(3);
const END_TIMEOUT: Duration = Duration::from_secs(10);
const MB: f64 = 1e6;

pub async fn measure(
    program: &Program,
    figures: &mut Figures,
    idle: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: smart::DRIVES, volumes: 500, hung: 0 })?;
    // In memory: the kernel counts what smartctl writes as the daemon's, its parent's.
    let tools = tempfile::tempdir_in("/dev/shm").context("making a folder for smartctl")?;
    let smartctl = Smartctl::new(tools.path()).context("writing smartctl")?;
    smart::set_responses(&smartctl, smart::DRIVES).context("writing the answers")?;
    let config = format!(
        "[smart]\ncommand = \"{}\"\nshortest_interval = \"1s\"\n",
        smartctl.program().display()
    );
    // On a disk: the kernel counts no writes into memory.
    let dir = tempfile::tempdir().context("making a folder for the daemon")?;
    let mut daemon = program.start(host.root(), &config, Some(dir))?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    let mut inventory = daemon.connect().await?;
    all_have_answered(&mut inventory).await?;
    tokio::time::sleep(WRITE_PAUSE).await;
    ensure!(
        written(daemon.pid())? > 0,
        "the kernel counts no writes: is the folder for temporary files in memory?"
    );

    let (began, before) = (Instant::now(), written(daemon.pid())?);
    host.vary_usage(1)?;
    tokio::time::sleep(idle).await;
    let by_itself = (written(daemon.pid())? - before) as f64 / began.elapsed().as_secs_f64();
    figures.figure_without_goal("written_by_itself", by_itself * 86_400.0 / MB, "MB/day");

    let mut round_bytes = [0.0, 0.0];
    for (bytes, ageing) in round_bytes.iter_mut().zip([false, true]) {
        let before = written(daemon.pid())?;
        for round in 1..=ROUNDS {
            set_answers(&smartctl, round, ageing).context("writing the answers")?;
            tokio::time::sleep(ROUND_PAUSE).await;
            let answered = answer_times(&mut inventory).await?;
            measure_round(&daemon, &mut inventory, &answered, smart::DRIVES).await?;
        }
        tokio::time::sleep(WRITE_PAUSE).await;
        *bytes = (written(daemon.pid())? - before) as f64 / f64::from(ROUNDS);
    }
    let [steady, ageing] = round_bytes;
    figures.figure_without_goal("written_by_a_round", steady / 1e3, "kB");
    figures.figure_without_goal("written_by_a_round_of_ageing_drives", ageing / 1e3, "kB");

    // What is in the database's log already is not written at the end.
    checkpoint(&daemon.state_dir().join(diskvitals_daemon::state::store::DATABASE))?;
    let before = written(daemon.pid())?;
    let at_the_end = daemon.end_and_measure(END_TIMEOUT, written).await?;
    let waiting = (at_the_end - before) as f64;
    figures.figure_without_goal("written_at_the_end", waiting / 1e3, "kB");
    let day = |rounds: f64| {
        by_itself * 86_400.0
            + rounds * ageing
            + (ROUNDS_PER_DAY - rounds) * steady
            + WAITING_WRITES_PER_DAY * waiting
    };
    figures.add("written_in_an_idle_day", day(0.0) / MB, "MB", Goal::AtMost(5.0));
    figures.figure_without_goal(
        "written_in_a_day_of_ageing_drives",
        day(AGEING_ROUNDS_PER_DAY) / MB,
        "MB",
    );
    Ok(())
}

/// Bytes that the process has caused to be written to a disk.
fn written(pid: i32) -> anyhow::Result<u64> {
    let io = Process::new(pid).and_then(|process| process.io());
    Ok(io.context("reading the daemon's /proc/PID/io")?.write_bytes)
}

fn checkpoint(database: &Path) -> anyhow::Result<()> {
    let busy: i64 = rusqlite::Connection::open(database)
        .and_then(|connection| {
            connection.busy_timeout(END_TIMEOUT)?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        })
        .context("a checkpoint of the database")?;
    ensure!(busy == 0, "the database is busy");
    Ok(())
}

async fn all_have_answered(inventory: &mut Inventory) -> anyhow::Result<()> {
    let answered = |times: &std::collections::BTreeMap<_, _>| times.len() == smart::DRIVES;
    smart::wait(inventory, "every drive has answered once", answered).await
}

/// A third of the drives (the SATA disks) with other temperatures and hours, or with more sectors
/// that cannot be read.
fn set_answers(smartctl: &Smartctl, round: u32, ageing: bool) -> std::io::Result<()> {
    for at in (0..smart::DRIVES).step_by(3) {
        let naa = 0xa000_0000_u64 + at as u64;
        let mut drive = Ata::new(&format!("ZL2{at:05}"), naa);
        drive.temperature += i64::from(round);
        drive.hours += u64::from(round);
        if ageing {
            drive.reallocated = u64::from(round) * 8;
            drive.pending = u64::from(round);
        }
        smartctl
            .set_response(&format!("/dev/sd{}", crate::tree::letters(at)), &drive.response())?;
    }
    Ok(())
}
