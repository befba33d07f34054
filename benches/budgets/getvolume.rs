//! GetVolume under load: 1,000 volumes on 64 drives, one of which does not answer its probes.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use diskvitals_wire as wire;

use crate::calls::{self, Calls};
use crate::client::{Inventory, channel};
use crate::csi::{self, Call};
use crate::daemon::{Daemon, Host, Program, check_snapshot, cores, pin};
use crate::figures::{Better, Comparison, Figures, Goal};
use crate::peers::Peers;
use crate::tree::Plan;

const CONNECTIONS: usize = 16;
/// Calls per second that one core must answer.
const RATE: u32 = 5000;

pub async fn measure(
    program: &Program,
    peers: &Peers,
    figures: &mut Figures,
    load: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 64, volumes: 1000, hung: 1 })?;
    // The daemon runs on one core, the clients on another: they do as much work as the daemon.
    let pinned = cores() > 1;
    pin(pinned.then_some(0))?;
    let started = program.start(host.root(), "[probes]\ntimeout = \"2s\"\n", None);
    pin(pinned.then_some(1))?;
    let mut daemon = started?;
    if !pinned {
        figures.remark("one core only: daemon and client share it");
    }
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    daemon
        .wait_for(Duration::from_secs(90), |node| node.stuck_probes > 0)
        .await
        .context("waiting for the hung mount to be known")?;

    let requests = requests(&host);
    let mut one = closed_loop(&daemon, &requests, 1, load).await?;
    one.print_median(figures, "getvolume_1_connection");
    figures.add("getvolume_1_connection_p99", one.milliseconds(0.99), "ms", Goal::AtMost(1.0));
    figures.figure_without_goal("getvolume_1_connection_rate", one.rate(), "calls/s");

    let mut many = closed_loop(&daemon, &requests, CONNECTIONS, load).await?;
    figures.add(
        "getvolume_16_connections_rate_on_one_core",
        many.rate(),
        "calls/s",
        Goal::AtLeast(f64::from(RATE)),
    );
    many.print_median(figures, "getvolume_16_connections_saturated");
    figures.figure_without_goal(
        "getvolume_16_connections_saturated_p99",
        many.milliseconds(0.99),
        "ms",
    );

    let mut paced = paced(&daemon, &requests, load).await?;
    figures.figure_without_goal("getvolume_at_5000_per_s_rate", paced.rate(), "calls/s");
    paced.print_median(figures, "getvolume_at_5000_per_s");
    let ours = paced.milliseconds(0.99);
    figures.add("getvolume_at_5000_per_s_p99", ours, "ms", Goal::AtMost(1.0));
    if let Some(mock) = peers.find("csi-mock", figures) {
        match paced_mock(&mock, pinned, load).await {
            Ok(mut theirs) => figures.compare_with_goal(
                Comparison {
                    peer: "csi_mock",
                    what: "getvolume_at_5000_per_s_p99",
                    unit: "ms",
                    better: Better::Less,
                    ours,
                    theirs: theirs.milliseconds(0.99),
                },
                1.0 / 1.5,
            ),
            Err(error) => figures.not_measured("csi_mock_getvolume", &error),
        }
    }

    pin(None)?;
    daemon.unpin()?;
    let free = closed_loop(&daemon, &requests, CONNECTIONS, load).await?;
    figures.figure_without_goal("getvolume_16_connections_rate_not_pinned", free.rate(), "calls/s");
    Ok(())
}

/// Calls of csi-mock at the same rate, on the same cores.
async fn paced_mock(program: &Path, pinned: bool, load: Duration) -> anyhow::Result<Calls> {
    let dir = tempfile::tempdir_in("/dev/shm").context("making a folder")?;
    pin(pinned.then_some(0))?;
    let started = csi::start_mock(program, &dir).await;
    pin(pinned.then_some(1))?;
    let (_mock, socket, target) = started?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(csi::client(channel(&socket).await?));
    }
    calls::run(clients, &[target], load, Some(pace()?), csi::caller(Call::Stats)).await
}

/// Each volume by its id and by driver and handle, in a scattered order.
fn requests(host: &Host) -> Vec<wire::GetVolumeRequest> {
    let by_id = |id: String| wire::GetVolumeRequest { id, ..Default::default() };
    let count = host.volumes.len();
    // 7 shares no factor with the number of volumes, so that all of them are requested.
    (0..2 * count)
        .map(|at| {
            let volume = &host.volumes[at * 7 % count];
            if at % 2 == 0 {
                by_id(volume.id())
            } else {
                wire::GetVolumeRequest {
                    id: String::new(),
                    driver: volume.driver.clone(),
                    handle: volume.handle.clone(),
                }
            }
        })
        .collect()
}

/// Each connection calls again after each answer.
async fn closed_loop(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    connections: usize,
    load: Duration,
) -> anyhow::Result<Calls> {
    run(daemon, requests, connections, load, None).await
}

/// Makes `RATE` calls per second over all connections, however long the answers take.
async fn paced(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    load: Duration,
) -> anyhow::Result<Calls> {
    run(daemon, requests, CONNECTIONS, load, Some(pace()?)).await
}

/// Between the calls of one connection.
fn pace() -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(1) * u32::try_from(CONNECTIONS)? / RATE)
}

async fn run(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    connections: usize,
    load: Duration,
    interval: Option<Duration>,
) -> anyhow::Result<Calls> {
    let mut clients = Vec::new();
    for _connection in 0..connections {
        clients.push(daemon.connect().await?);
    }
    let call = |mut client: Inventory, request: wire::GetVolumeRequest| async move {
        let answer = client.get_volume(request.clone()).await;
        answer.with_context(|| format!("GetVolume {request:?}"))?;
        Ok(())
    };
    calls::run(clients, requests, load, interval, call).await
}
