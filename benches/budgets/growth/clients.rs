//! The curve over clients of Watch: one daemon, and more and more connections to it.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::Item;
use nix::unistd::{Uid, geteuid, seteuid};

use crate::client::Admin;
use crate::daemon::{Daemon, Host, Program, check_snapshot};
use crate::events::{Events, next, watch};
use crate::figures::{Samples, milliseconds};
use crate::growth::Point;
use crate::smart;
use crate::tree::Plan;

const PAUSE: Duration = Duration::from_secs(3);
const EVENTS: usize = 20;
/// A user may have 32 connections; root is also the one who acknowledges.
const USERS: [u32; 3] = [0, 65_534, 65_533];

/// 64 drives, one with a finding, and 500 volumes. The event is the acknowledgement of the finding.
pub async fn over_watchers(program: &Program) -> anyhow::Result<Vec<Point>> {
    ensure!(geteuid().is_root(), "a user may have 32 watchers: more of them need root");
    let host = Host::recorded(Plan { drives: smart::DRIVES, volumes: 500, hung: 0 })?;
    let dir = tempfile::tempdir().context("making a folder for smartctl")?;
    let smartctl = smart::with_one_sick_drive(dir.path())?;
    let config =
        format!("[smart]\ncommand = \"{}\"\ninterval = \"1h\"\n", smartctl.program().display());
    let mut daemon = program.start(host.root(), &config, None)?;
    let (_took, node) = daemon.wait_settled().await?;
    check_snapshot(&host, &node)?;
    let mut inventory = daemon.connect().await?;
    smart::wait(&mut inventory, "every drive has answered", |answers| {
        answers.len() == smart::DRIVES
    })
    .await?;
    let finding = smart::sick_finding(&mut inventory).await?;
    drop(inventory);
    admit_other_users(&daemon)?;

    let mut admin = daemon.admin().await?;
    let (mut points, mut watchers) = (Vec::new(), Vec::new());
    for count in [1, 16, 32, 48, 64] {
        while watchers.len() < count {
            let user = USERS[watchers.len() % USERS.len()];
            watchers.push(watch_as(&daemon, Uid::from_raw(user)).await?);
        }
        let mut samples = Samples::default();
        for turn in 0..EVENTS {
            samples.push(event(&mut admin, &finding, turn % 2 == 0, &mut watchers).await?);
        }
        tokio::time::sleep(PAUSE).await;
        let time = milliseconds(samples.quantile(0.5));
        points.push(Point::measure(&daemon, count, time)?);
    }
    Ok(points)
}

/// The daemon's folder is this user's alone.
fn admit_other_users(daemon: &Daemon) -> anyhow::Result<()> {
    let socket = daemon.socket();
    let folder = socket.parent().context("the socket's folder")?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))
        .context("opening the daemon's folder")
}

async fn watch_as(daemon: &Daemon, user: Uid) -> anyhow::Result<Events> {
    seteuid(user).context("becoming another user")?;
    let events = watch(daemon).await;
    seteuid(Uid::from_raw(0)).context("becoming root again")?;
    events.with_context(|| format!("a watcher of user {user}"))
}

/// From the call until the last watcher has the finding as it is then.
async fn event(
    admin: &mut Admin,
    finding: &str,
    acknowledge: bool,
    watchers: &mut [Events],
) -> anyhow::Result<Duration> {
    let called = Instant::now();
    smart::set_acknowledged(admin, finding, acknowledge).await?;
    let is_it = |event: &wire::WatchEvent| match &event.item {
        Some(Item::Finding(changed)) => {
            (changed.id == finding && changed.acknowledged.is_some() == acknowledge).then_some(())
        }
        _ => None,
    };
    let mut last = Duration::ZERO;
    for events in watchers {
        let (arrived, ()) = next(events, "an acknowledgement", is_it).await?;
        last = last.max(arrived.saturating_duration_since(called));
    }
    Ok(last)
}
