//! Scrapes of a daemon with 500 volumes and 64 drives with SMART data: in both formats, plain and
//! compressed, each over a new connection; one after the other, and each with a newer snapshot than
//! the scrape before.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::daemon::{Daemon, Host, Program, check_snapshot};
use crate::figures::{Figures, Goal, Samples, milliseconds};
use crate::smart;
use crate::tree::Plan;

const SCRAPES: usize = 1000;
/// Number of scrapes with a new snapshot each.
const SNAPSHOTS: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(60);

pub async fn measure(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: smart::DRIVES, volumes: 500, hung: 0 })?;
    let tools = tempfile::tempdir().context("making a folder for smartctl")?;
    let smartctl = smart::with_one_sick_drive(tools.path())?;
    let dir = tempfile::tempdir_in("/dev/shm").context("making a folder for the daemon")?;
    let socket = dir.path().join("metrics.sock");
    let config = format!(
        "[smart]\ncommand = \"{}\"\n[metrics]\nlisten = \"unix:{}\"\n",
        smartctl.program().display(),
        socket.display()
    );
    let mut daemon = program.start(host.root(), &config, Some(dir))?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    let deadline = Instant::now() + TIMEOUT;
    while String::from_utf8_lossy(&scrape(&socket, PLAIN).await?.0)
        .matches("outcome=\"ok\"} 1\n")
        .count()
        < smart::DRIVES
    {
        ensure!(Instant::now() < deadline, "not every drive has told of itself");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (name, headers) in FORMATS {
        let (mut samples, mut size) = (Samples::default(), 0);
        for _ in 0..SCRAPES {
            let (text, took) = scrape(&socket, headers).await?;
            size = text.len();
            samples.push(took);
        }
        figures.figure_without_goal(
            &format!("metrics_scrape_{name}_p50"),
            milliseconds(samples.quantile(0.5)),
            "ms",
        );
        figures.add(
            &format!("metrics_scrape_{name}_p99"),
            milliseconds(samples.quantile(0.99)),
            "ms",
            Goal::AtMost(10.0),
        );
        figures.remark(&format!("{size} bytes, {SCRAPES} scrapes one after the other"));
    }
    let text = scrape(&socket, PLAIN).await?.0;
    figures.remark(&format!(
        "{} series",
        String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.starts_with("diskvitals_"))
            .count()
    ));
    measure_new_snapshots(&daemon, &socket, figures).await
}

/// Between two scrapes a finding is acknowledged, or the acknowledgement is removed.
async fn measure_new_snapshots(
    daemon: &Daemon,
    socket: &Path,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let finding = smart::sick_finding(&mut daemon.connect().await?).await?;
    let mut admin = daemon.admin().await?;
    for (name, headers) in FORMATS {
        let mut samples = Samples::default();
        for at in 0..SNAPSHOTS {
            smart::set_acknowledged(&mut admin, &finding, at % 2 == 0).await?;
            samples.push(scrape(socket, headers).await?.1);
        }
        figures.figure_without_goal(
            &format!("metrics_scrape_new_snapshot_{name}_p50"),
            milliseconds(samples.quantile(0.5)),
            "ms",
        );
        figures.add(
            &format!("metrics_scrape_new_snapshot_{name}_p99"),
            milliseconds(samples.quantile(0.99)),
            "ms",
            Goal::AtMost(10.0),
        );
    }
    figures.remark(&format!(
        "{SNAPSHOTS} scrapes each, between any two of which the snapshot has changed"
    ));
    Ok(())
}

pub const PLAIN: &str = "Accept: text/plain\r\n";
const FORMATS: [(&str, &str); 4] = [
    ("openmetrics", "Accept: application/openmetrics-text\r\n"),
    ("text", PLAIN),
    ("openmetrics_gzip", "Accept: application/openmetrics-text\r\nAccept-Encoding: gzip\r\n"),
    ("text_gzip", "Accept: text/plain\r\nAccept-Encoding: gzip\r\n"),
];

pub async fn scrape(socket: &Path, headers: &str) -> anyhow::Result<(Vec<u8>, Duration)> {
    tokio::time::timeout(TIMEOUT, scrape_without_limit(socket, headers))
        .await
        .with_context(|| format!("a scrape, for {TIMEOUT:?}"))?
}

async fn scrape_without_limit(socket: &Path, headers: &str) -> anyhow::Result<(Vec<u8>, Duration)> {
    let began = Instant::now();
    let mut stream =
        UnixStream::connect(socket).await.context("connecting to the metrics' socket")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.context("asking for the metrics")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.context("reading the metrics")?;
    let took = began.elapsed();
    let head: &[u8] = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    ensure!(
        head.starts_with(b"HTTP/1.1 200 "),
        "the daemon answers: {}",
        String::from_utf8_lossy(head)
    );
    Ok((answer, took))
}
