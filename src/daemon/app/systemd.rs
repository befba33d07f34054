//! Messages to systemd (sd_notify(3)): ready, alive, status. Without systemd there is no socket, and
//! nothing is sent.

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::app::error::RunError;
use crate::state::handle::Handle;
use crate::state::owner::Heartbeat;
use diskvitals_host::timer_grid::TimerGrid;

/// READY with the first complete snapshot, then keep-alives while the owner's loop runs.
pub(crate) async fn run(
    handle: Handle,
    heartbeat: Heartbeat,
    grid: TimerGrid,
) -> Result<Infallible, RunError> {
    let mut snapshots = handle.snapshots();
    let settled = snapshots.wait_for(|snapshot| snapshot.settled).await;
    settled.map_err(|_| RunError::TaskEnded("owner")).map(drop)?;
    send(NotifyState::Ready);
    let watchdog = sd_notify::watchdog_enabled();
    let every =
        watchdog.map_or(Duration::from_secs(30), |period| period / 4).min(Duration::from_secs(30));
    let (mut last_beat, mut last_status) = (None, String::new());
    loop {
        let beat = Some(heartbeat.count());
        if last_beat != beat && watchdog.is_some() {
            send(NotifyState::Watchdog);
        }
        last_beat = beat;
        let snapshot = handle.snapshot();
        let findings = snapshot.findings.values();
        let adverse = findings.filter(|finding| finding.is_counted()).count();
        let line = format!(
            "{} drives, {} volumes, {adverse} findings that count",
            snapshot.drives.len(),
            snapshot.volumes.len()
        );
        if line != last_status {
            send(NotifyState::Status(&line));
            last_status = line;
        }
        tokio::time::sleep_until(grid.after(every)).await;
    }
}

fn send(state: NotifyState<'_>) {
    // A lost message is repeated soon, or the service is restarted.
    let _ = sd_notify::notify(&[state]);
}
