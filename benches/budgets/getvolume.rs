//! GetVolume under load: 1,000 volumes on 64 drives, one of which does not answer its probes.

use std::time::{Duration, Instant};

use anyhow::Context;
use diskvitals::api::wire;
use tokio::time::MissedTickBehavior;

use crate::client::Inventory;
use crate::daemon::{Daemon, Host, Program, check_snapshot, cores, pin};
use crate::figures::{Figures, Goal, Samples, milliseconds};
use crate::tree::Plan;

const CONNECTIONS: usize = 16;
/// Calls a second that one core must bear.
const RATE: u32 = 5000;

pub async fn measure(
    program: &Program,
    figures: &mut Figures,
    load: Duration,
) -> anyhow::Result<()> {
    let host = Host::recorded(Plan {
        drives: 64,
        volumes: 1000,
        hung: 1,
    })?;
    // The daemon on one core, the load from another: the client's work is as much as the daemon's.
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
    figures.figure_without_goal(
        "getvolume_1_connection_p50",
        milliseconds(one.samples.quantile(0.5)),
        "ms",
    );
    figures.add(
        "getvolume_1_connection_p99",
        milliseconds(one.samples.quantile(0.99)),
        "ms",
        Goal::AtMost(1.0),
    );
    figures.figure_without_goal("getvolume_1_connection_rate", one.rate(), "calls/s");

    let mut many = closed_loop(&daemon, &requests, CONNECTIONS, load).await?;
    figures.add(
        "getvolume_16_connections_rate_on_one_core",
        many.rate(),
        "calls/s",
        Goal::AtLeast(f64::from(RATE)),
    );
    figures.figure_without_goal(
        "getvolume_16_connections_saturated_p50",
        milliseconds(many.samples.quantile(0.5)),
        "ms",
    );
    figures.figure_without_goal(
        "getvolume_16_connections_saturated_p99",
        milliseconds(many.samples.quantile(0.99)),
        "ms",
    );

    let mut paced = paced(&daemon, &requests, load).await?;
    figures.figure_without_goal("getvolume_at_5000_per_s_rate", paced.rate(), "calls/s");
    figures.figure_without_goal(
        "getvolume_at_5000_per_s_p50",
        milliseconds(paced.samples.quantile(0.5)),
        "ms",
    );
    figures.add(
        "getvolume_at_5000_per_s_p99",
        milliseconds(paced.samples.quantile(0.99)),
        "ms",
        Goal::AtMost(1.0),
    );

    pin(None)?;
    daemon.unpin()?;
    let free = closed_loop(&daemon, &requests, CONNECTIONS, load).await?;
    figures.figure_without_goal(
        "getvolume_16_connections_rate_not_pinned",
        free.rate(),
        "calls/s",
    );
    Ok(())
}

/// Each volume by its id and by driver and handle, in an order that jumps about.
fn requests(host: &Host) -> Vec<wire::GetVolumeRequest> {
    let by_id = |id: String| wire::GetVolumeRequest {
        id,
        ..Default::default()
    };
    let count = host.volumes.len();
    // 7 shares no factor with the number of volumes: every one is met.
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

struct Load {
    samples: Samples,
    took: Duration,
}

impl Load {
    fn rate(&self) -> f64 {
        self.samples.len() as f64 / self.took.as_secs_f64()
    }
}

/// As fast as each connection gets its answers, one call in flight on each.
async fn closed_loop(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    connections: usize,
    load: Duration,
) -> anyhow::Result<Load> {
    run(daemon, requests, connections, load, None).await
}

/// At `RATE` calls a second over all connections, whatever the answers take.
async fn paced(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    load: Duration,
) -> anyhow::Result<Load> {
    let every =
        Duration::from_secs(1) * u32::try_from(CONNECTIONS).context("counting connections")? / RATE;
    run(daemon, requests, CONNECTIONS, load, Some(every)).await
}

async fn run(
    daemon: &Daemon,
    requests: &[wire::GetVolumeRequest],
    connections: usize,
    load: Duration,
    every: Option<Duration>,
) -> anyhow::Result<Load> {
    let mut callers = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for _connection in 0..connections {
        clients.push(daemon.connect().await?);
    }
    let started = Instant::now();
    for (at, client) in clients.into_iter().enumerate() {
        // Each its own part of the list first, and its own phase of the pace.
        let mut own = requests.to_vec();
        own.rotate_left(at * requests.len() / connections);
        let offset = every.unwrap_or_default() * u32::try_from(at).unwrap_or_default()
            / u32::try_from(connections).context("counting connections")?;
        callers.spawn(call(client, own, started + load, every, offset));
    }
    let mut samples = Samples::default();
    while let Some(done) = callers.join_next().await {
        samples.extend(done.context("calling")??);
    }
    Ok(Load {
        samples,
        took: started.elapsed(),
    })
}

async fn call(
    mut client: Inventory,
    requests: Vec<wire::GetVolumeRequest>,
    until: Instant,
    every: Option<Duration>,
    offset: Duration,
) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    let mut pace = every.map(|every| {
        let mut pace = tokio::time::interval_at(tokio::time::Instant::now() + offset, every);
        // A late tick is made up for, so that the rate is kept.
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        pace
    });
    for request in requests.iter().cycle() {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        let sent = Instant::now();
        if sent > until {
            break;
        }
        client
            .get_volume(request.clone())
            .await
            .with_context(|| format!("GetVolume {request:?}"))?;
        samples.push(sent.elapsed());
    }
    Ok(samples)
}
