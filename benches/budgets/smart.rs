//! The cost of a round of SMART queries: 64 recorded drives with a smartctl that answers from
//! files, and the same with one drive that never answers. smartctl_exporter is measured on the same
//! smartctl, if it is built: there a round is a scrape.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use diskvitals_wire as wire;
use procfs::process::Process;

use crate::client::{Admin, Inventory};
use crate::daemon::{Daemon, Host, Program, check_snapshot};
use crate::figures::{Better, Comparison, Figures, Goal};
use crate::footprint::{cpu_time, process_tree};
use crate::peers::{Exporter, Peers};
use crate::process;
use crate::smartctl::{Ata, Nvme, Scsi, Smartctl};
use crate::tree::Plan;

pub const DRIVES: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a scrape that waits for a drive that never answers.
const HUNG_DRIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two rounds, so that none is too early.
const ROUND_PAUSE: Duration = Duration::from_millis(2500);
const ROUNDS: u32 = 3;
/// A list of all drives costs the daemon processor time, which counts as the round's.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub async fn measure(
    program: &Program,
    peers: &Peers,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: DRIVES, volumes: DRIVES, hung: 0 })?;
    let dir = tempfile::tempdir().context("making a folder for smartctl")?;
    let smartctl = Smartctl::new(dir.path()).context("writing smartctl")?;
    let devices = set_responses(&smartctl, DRIVES).context("writing the answers")?;

    let config = format!(
        "[smart]\ncommand = \"{}\"\ninterval = \"1h\"\nshortest_interval = \"1s\"\ntimeout = \"30s\"\n",
        smartctl.program().display()
    );
    let mut daemon = program.start(host.root(), &config, None)?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    let mut inventory = daemon.connect().await?;
    let told = |told: &BTreeMap<String, AnswerTime>| told.len() == DRIVES;
    wait(&mut inventory, "every drive has answered once", told).await?;

    let (mut wall, mut cpu, mut own) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        tokio::time::sleep(ROUND_PAUSE).await;
        let before = (
            answer_times(&mut inventory).await?,
            cpu_time(daemon.pid())?,
            cpu_time_of(daemon.pid())?,
        );
        wall += measure_round(&daemon, &mut inventory, &before.0, DRIVES).await?;
        // Every child has ended and was reaped.
        cpu += cpu_time(daemon.pid())?.saturating_sub(before.1);
        own += cpu_time_of(daemon.pid())?.saturating_sub(before.2);
    }
    let mut ours = Round {
        wall: (wall / ROUNDS).as_secs_f64(),
        cpu_with_smartctl: (cpu / ROUNDS).as_secs_f64(),
        cpu_own: (own / ROUNDS).as_secs_f64(),
        peak_rss: peak_rss(daemon.pid())?,
        memory: process::memory(daemon.pid())?,
        wall_one_hung: 0.0,
    };
    figures.add("smart_round_wall", ours.wall, "s", Goal::AtMost(10.0));
    figures.figure_without_goal("smart_round_cpu_with_smartctl", ours.cpu_with_smartctl, "s");
    figures.add_processor("smart_round_cpu_own", ours.cpu_own, "s", Goal::AtMost(0.5));
    figures.add("smart_round_peak_rss", ours.peak_rss, "MiB", Goal::AtMost(40.0));
    figures.remark(&format!(
        "{DRIVES} drives, {ROUNDS} rounds, two questions at a time; the time of smartctl (a shell script here) is in the second figure"
    ));

    // The first drive hangs, and blocks one of the two concurrent queries.
    tokio::time::sleep(ROUND_PAUSE).await;
    let hung = devices.first().context("a drive")?;
    smartctl.set_behavior(hung, "hang").context("letting a drive hang")?;
    let before = answer_times(&mut inventory).await?;
    let took = measure_round(&daemon, &mut inventory, &before, DRIVES - 1).await?;
    ours.wall_one_hung = took.as_secs_f64();
    figures.add("smart_round_wall_one_hung", ours.wall_one_hung, "s", Goal::AtMost(15.0));
    figures.remark("of the other 63, all answered, while one does not");
    drop(daemon);
    smartctl.reset_behavior(hung).context("letting it answer")?;

    let Some(peer) = peers.find("smartctl_exporter", figures) else {
        return Ok(());
    };
    match measure_exporter(Command::new(peer), &smartctl, &devices, figures).await {
        Ok(theirs) => compare(&ours, &theirs, figures),
        Err(error) => figures.not_measured("smartctl_exporter", &error),
    }
    Ok(())
}

/// What a round of queries costs, in seconds and MiB.
struct Round {
    wall: f64,
    cpu_with_smartctl: f64,
    cpu_own: f64,
    peak_rss: f64,
    memory: f64,
    /// The round while one drive does not answer: until all others have.
    wall_one_hung: f64,
}

fn compare(ours: &Round, theirs: &Round, figures: &mut Figures) {
    let comparison = |what, unit, of: fn(&Round) -> f64| Comparison {
        peer: "smartctl_exporter",
        what,
        unit,
        better: Better::Less,
        ours: of(ours),
        theirs: of(theirs),
    };
    figures.compare_without_goal(comparison("round_wall", "s", |round| round.wall));
    figures.compare_without_goal(comparison("round_cpu_with_smartctl", "s", |round| {
        round.cpu_with_smartctl
    }));
    figures.remark("no goals: it asks all drives at once, ours two at a time");
    figures.compare(comparison("round_cpu_own", "s", |round| round.cpu_own));
    figures.compare(comparison("peak_rss", "MiB", |round| round.peak_rss));
    figures.compare(comparison("memory", "MiB", |round| round.memory));
    figures.compare(comparison("one_hung", "s", |round| round.wall_one_hung));
}

/// A smartctl that answers for all drives. The first has a finding, which can be acknowledged.
pub fn with_one_sick_drive(dir: &Path) -> anyhow::Result<Smartctl> {
    let smartctl = Smartctl::new(dir).context("writing smartctl")?;
    set_responses(&smartctl, DRIVES).context("writing the answers")?;
    let sick = Ata { pending: 8, ..Ata::new("ZL200000", 0xa000_0000) };
    smartctl.set_response("/dev/sda", &sick.response()).context("writing an answer")?;
    Ok(smartctl)
}

/// The id of the finding of that drive.
pub async fn sick_finding(inventory: &mut Inventory) -> anyhow::Result<String> {
    let findings = inventory
        .list_findings(wire::ListFindingsRequest::default())
        .await
        .context("asking ListFindings")?
        .into_inner();
    let mut findings = findings.findings.into_iter();
    let finding = findings.find(|finding| finding.reason == "PendingSectors");
    Ok(finding.context("no finding to acknowledge")?.id)
}

pub async fn set_acknowledged(
    admin: &mut Admin,
    finding: &str,
    acknowledge: bool,
) -> anyhow::Result<()> {
    let finding_id = finding.to_owned();
    if acknowledge {
        let request = wire::AcknowledgeFindingRequest {
            finding_id,
            note: "measured".into(),
            ..Default::default()
        };
        admin.acknowledge_finding(request).await.context("acknowledging")?;
    } else {
        admin
            .unacknowledge_finding(wire::UnacknowledgeFindingRequest { finding_id })
            .await
            .context("taking it back")?;
    }
    Ok(())
}

/// Sets one answer for each drive of a recorded host with so many. Returns smartctl's names of the
/// drives.
pub fn set_responses(smartctl: &Smartctl, drives: usize) -> std::io::Result<Vec<String>> {
    let mut devices = Vec::new();
    for at in 0..drives {
        let naa = 0xa000_0000_u64 + at as u64;
        let serial = format!("ZL2{at:05}");
        let (device, answer) = match at % 3 {
            2 => {
                (format!("/dev/nvme{}", at / 3), Nvme::new(&format!("S6ESNX0R{at:06}")).response())
            }
            1 => (
                format!("/dev/sd{}", crate::tree::letters(at)),
                Scsi::new(&serial, 0x5000_c500_0000_0000 | naa).response(),
            ),
            _ => {
                (format!("/dev/sd{}", crate::tree::letters(at)), Ata::new(&serial, naa).response())
            }
        };
        smartctl.set_response(&device, &answer)?;
        devices.push(device);
    }
    Ok(devices)
}

pub type AnswerTime = (i64, i32);

/// The time of the last answer of each drive that has answered.
pub async fn answer_times(
    inventory: &mut Inventory,
) -> anyhow::Result<BTreeMap<String, AnswerTime>> {
    let request = wire::ListDrivesRequest { page_size: 1000, page_token: String::new() };
    let answer = inventory.list_drives(request).await.context("asking ListDrives")?.into_inner();
    let moment = |drive: wire::Drive| {
        let answered = drive.smart?.answered?;
        Some((drive.id, (answered.seconds, answered.nanos)))
    };
    Ok(answer.drives.into_iter().filter_map(moment).collect())
}

pub async fn wait(
    inventory: &mut Inventory,
    what: &str,
    holds: impl Fn(&BTreeMap<String, AnswerTime>) -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let now = answer_times(inventory).await?;
        if holds(&now) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("not so within {TIMEOUT:?}: {what}; {} drives have answered", now.len());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Refreshes all drives and waits until `enough` of them have answered again.
pub async fn measure_round(
    daemon: &Daemon,
    inventory: &mut Inventory,
    before: &BTreeMap<String, AnswerTime>,
    enough: usize,
) -> anyhow::Result<Duration> {
    let mut admin = daemon.admin().await?;
    let started = Instant::now();
    admin.refresh(wire::RefreshRequest::default()).await.context("asking Refresh")?;
    let anew = |now: &BTreeMap<String, AnswerTime>| {
        now.iter().filter(|(id, moment)| before.get(*id) != Some(*moment)).count() >= enough
    };
    wait(inventory, &format!("{enough} drives have answered anew"), anew).await?;
    Ok(started.elapsed())
}

/// The processor time of the daemon and its workers, without the programs that they started and
/// reaped.
pub fn cpu_time_of(pid: i32) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for process in process_tree(pid)? {
        // A process that has just ended is smartctl.
        if let Ok(stat) = process.stat()
            && (stat.pid == pid || stat.comm.starts_with("diskvitals"))
        {
            ticks += stat.utime + stat.stime;
        }
    }
    Ok(Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64))
}

fn peak_rss(pid: i32) -> anyhow::Result<f64> {
    let status =
        Process::new(pid).and_then(|process| process.status()).context("reading a /proc entry")?;
    Ok(status.vmhwm.unwrap_or_default() as f64 / 1024.0)
}

async fn measure_exporter(
    mut command: Command,
    smartctl: &Smartctl,
    devices: &[String],
    figures: &Figures,
) -> anyhow::Result<Round> {
    command
        .arg(format!("--smartctl.path={}", smartctl.program().display()))
        .arg("--smartctl.interval=1s");
    command.args(devices.iter().map(|device| format!("--smartctl.device={device}")));
    let mut exporter = Exporter::start("smartctl_exporter", command).await?;
    let pid = exporter.pid();
    let mut wall = Duration::ZERO;
    let before = (cpu_time(pid)?, cpu_time_of(pid)?);
    for _ in 0..ROUNDS {
        tokio::time::sleep(ROUND_PAUSE).await;
        let scraped = exporter.scrape(TIMEOUT).await?;
        let (text, took) = scraped.with_context(|| format!("no scrape within {TIMEOUT:?}"))?;
        wall += took;
        let answered =
            text.lines().filter(|line| line.starts_with("smartctl_device_smart_status{")).count();
        if answered != devices.len() {
            bail!("smartctl_exporter tells of {answered} drives where there are {}", devices.len());
        }
    }
    let per_round = |after: Duration, before| (after.saturating_sub(before) / ROUNDS).as_secs_f64();
    let mut round = Round {
        wall: (wall / ROUNDS).as_secs_f64(),
        cpu_with_smartctl: per_round(cpu_time(pid)?, before.0),
        cpu_own: per_round(cpu_time_of(pid)?, before.1),
        peak_rss: peak_rss(pid)?,
        memory: process::memory(pid)?,
        wall_one_hung: HUNG_DRIVE_TIMEOUT.as_secs_f64(),
    };
    let most = max_concurrent_calls(smartctl);
    figures.remark(&format!("smartctl_exporter: up to {most} questions at a time"));

    tokio::time::sleep(ROUND_PAUSE).await;
    let hung = devices.first().context("a drive")?;
    smartctl.set_behavior(hung, "hang").context("letting a drive hang")?;
    match exporter.scrape(HUNG_DRIVE_TIMEOUT).await? {
        Some((_text, took)) => round.wall_one_hung = took.as_secs_f64(),
        None => figures.remark(&format!(
            "smartctl_exporter with one hung drive: nothing within {HUNG_DRIVE_TIMEOUT:?}, of no drive; the ratio is at least so large"
        )),
    }
    // The process that hangs is the exporter's child.
    for process in process_tree(pid)? {
        if process.pid != pid {
            // The process may have ended already.
            let _ended = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(process.pid),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
    }
    Ok(round)
}

/// The largest number of concurrent smartctl runs since it was created.
fn max_concurrent_calls(smartctl: &Smartctl) -> usize {
    let (mut running, mut most) = (0_usize, 0);
    for line in smartctl.calls() {
        if line.starts_with("begin") {
            running += 1;
            most = most.max(running);
        } else {
            running = running.saturating_sub(1);
        }
    }
    most
}
