//! Curves over what the daemon monitors and stores: a daemon of its own for each point, on recorded
//! hosts of different sizes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use diskvitals_daemon::state::store::{RowChanges, Store, StoreConfig, StoreEvent, WriteBatch};
use diskvitals_finding::ids::{DriveId, FindingId};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Clearance, Evidence, Finding, Status, Subject, WitnessKind};
use jiff::{SignedDuration, Timestamp};

use crate::daemon::{Host, Program, check_snapshot};
use crate::figures::{Samples, milliseconds};
use crate::footprint::cpu_time;
use crate::growth::Point;
use crate::smart;
use crate::smartctl::Smartctl;
use crate::tree::Plan;

/// After the work of the start, until memory is measured.
const PAUSE: Duration = Duration::from_secs(3);
const SMART_ROUND_PAUSE: Duration = Duration::from_millis(2500);
const SMART_ROUNDS: u32 = 2;
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_ROUNDS: u32 = 2;
const STARTS: usize = 3;
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// With 16 volumes: as many as fit onto one drive's partitions.
pub async fn over_drives(program: &Program) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for drives in [1, 64, 128, 192, 256] {
        let host = Host::recorded(Plan { drives, volumes: 16, hung: 0 })?;
        let dir = tempfile::tempdir().context("making a folder for smartctl")?;
        let smartctl = Smartctl::new(dir.path()).context("writing smartctl")?;
        smart::set_responses(&smartctl, drives).context("writing the answers")?;
        let config = format!(
            "[smart]\ncommand = \"{}\"\ninterval = \"1h\"\nshortest_interval = \"1s\"\n",
            smartctl.program().display()
        );
        let mut daemon = program.start(host.root(), &config, None)?;
        let (_took, node) = daemon.wait_settled().await?;
        check_snapshot(&host, &node)?;
        let mut inventory = daemon.connect().await?;
        let all = format!("{drives} drives have answered");
        smart::wait(&mut inventory, &all, |answers| answers.len() == drives).await?;
        let mut own = Duration::ZERO;
        for _round in 0..SMART_ROUNDS {
            tokio::time::sleep(SMART_ROUND_PAUSE).await;
            let answered = smart::answer_times(&mut inventory).await?;
            let before = smart::cpu_time_of(daemon.pid())?;
            smart::measure_round(&daemon, &mut inventory, &answered, drives).await?;
            own += smart::cpu_time_of(daemon.pid())?.saturating_sub(before);
        }
        drop(inventory);
        tokio::time::sleep(PAUSE).await;
        let time = milliseconds(own / SMART_ROUNDS);
        points.push(Point::measure(&daemon, drives, time)?);
    }
    Ok(points)
}

/// On 64 drives.
pub async fn over_volumes(program: &Program) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for volumes in [1, 750, 1500, 2250, 3000] {
        let host = Host::recorded(Plan { drives: smart::DRIVES, volumes, hung: 0 })?;
        let config = format!("[probes]\ninterval = \"{}s\"\n", PROBE_INTERVAL.as_secs());
        let mut daemon = program.start(host.root(), &config, None)?;
        let (_took, node) = daemon.wait_settled().await?;
        check_snapshot(&host, &node)?;
        tokio::time::sleep(PROBE_INTERVAL).await;
        let before = cpu_time(daemon.pid())?;
        for round in 1..=PROBE_ROUNDS {
            host.vary_usage(u64::from(round))?;
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
        let spent = cpu_time(daemon.pid())?.saturating_sub(before);
        let time = milliseconds(spent / PROBE_ROUNDS);
        points.push(Point::measure(&daemon, volumes, time)?);
    }
    Ok(points)
}

/// On eight drives with 20 volumes.
pub async fn over_findings(program: &Program) -> anyhow::Result<Vec<Point>> {
    let host = Host::recorded(Plan { drives: 8, volumes: 20, hung: 0 })?;
    let config = "[history]\nmax_findings = 10000\n";
    let mut points = Vec::new();
    for findings in [0, 2500, 5000, 7500, 10_000] {
        let dir = tempfile::tempdir_in("/dev/shm").context("making a folder for the daemon")?;
        store_findings(&dir.path().join("state"), findings).await?;
        let mut dir = Some(dir);
        let mut samples = Samples::default();
        for start in 1..=STARTS {
            let mut daemon = program.start(host.root(), config, dir.take())?;
            let (took, node) = daemon.wait_settled().await?;
            check_snapshot(&host, &node)?;
            samples.push(took);
            if start == STARTS {
                tokio::time::sleep(PAUSE).await;
                let time = milliseconds(samples.quantile(0.5));
                points.push(Point::measure(&daemon, findings, time)?);
            }
            dir = Some(daemon.stop()?);
        }
        let state = dir.context("the folder of the daemon")?;
        let kept = stored_findings(&state.path().join("state")).await?;
        ensure!(
            kept >= findings,
            "{kept} of {findings} findings were kept: the figure would be too small"
        );
    }
    Ok(points)
}

/// Writes findings that have cleared, each of one of 200 drives that are gone.
async fn store_findings(state: &Path, count: usize) -> anyhow::Result<()> {
    std::fs::create_dir_all(state).context("making the state folder")?;
    let (store, _events) = open_store(state).await?;
    let begin = Timestamp::now() - SignedDuration::from_hours(48);
    let finding = |number: usize| {
        let drive = DriveId::known(format!("naa.5000c500ee{:06x}", number % 200));
        let subject = Subject::Drive(drive);
        let since = begin + SignedDuration::from_secs(i64::try_from(number).unwrap_or_default());
        let reason = Reason::PendingSectors;
        let message = format!("{} sectors could not be read and are not remapped", number % 64);
        let finding = Finding {
            id: FindingId::new(&subject.to_string(), reason.name(), since),
            subject,
            reason,
            severity: Severity::Suspect,
            status: Status::Degraded,
            evidence: vec![Evidence {
                source: "smartctl --json --xall /dev/sda".to_owned(),
                time: since,
                text: format!("Current_Pending_Sector (197) raw value {}", number % 64),
                witness: WitnessKind::Smart,
                present: false,
            }],
            message,
            since,
            last_seen: since,
            count: 1,
            clears_when: reason.clears().to_owned(),
            acknowledged: None,
            maintained: false,
            cleared: Some(Clearance {
                time: since + SignedDuration::from_hours(1),
                why: "the drive reports 0".to_owned(),
                is_user_made: false,
            }),
            follows: None,
            advice: None,
        };
        (finding.id.clone(), Arc::new(finding))
    };
    let findings = RowChanges { upserted: (0..count).map(finding).collect(), deleted: Vec::new() };
    let batch = WriteBatch { findings, ..WriteBatch::default() };
    store.write(batch, Vec::new()).context("storing findings")?;
    ensure!(
        store.close(STORE_TIMEOUT).await,
        "the findings are not stored within {STORE_TIMEOUT:?}"
    );
    Ok(())
}

async fn stored_findings(state: &Path) -> anyhow::Result<usize> {
    let (store, count) = open_store(state).await?;
    store.close(STORE_TIMEOUT).await;
    Ok(count)
}

/// The store, and how many findings it has.
async fn open_store(state: &Path) -> anyhow::Result<(Store, usize)> {
    let (store, mut events) =
        Store::spawn(StoreConfig::new(state), None).context("starting the store")?;
    let opened = async {
        while let Some(event) = events.recv().await {
            if let StoreEvent::Opened(contents) = event {
                return Ok(contents.findings.len());
            }
        }
        anyhow::bail!("the store has ended")
    };
    let count =
        tokio::time::timeout(STORE_TIMEOUT, opened).await.context("opening the store")??;
    Ok((store, count))
}
