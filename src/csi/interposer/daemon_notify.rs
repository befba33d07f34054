//! Background tasks of the interposer: notify the daemon of lifecycle calls, and detect volumes
//! whose calls bypass the interposer. No call waits for them.
//!
//! In: calls that succeeded, the daemon's list of the driver's volumes. Out: notifications to the
//! daemon; one log line at the start and one at the end of a bypass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::interposer::health_source::{HealthSource, HealthSourceError, LifecycleEvent};
use crate::interposer::upstream_driver::UpstreamDriver;
use crate::interposer::volume_tracker::VolumeTracker;

/// Maximum number of queued notifications. A lost one is harmless, because the daemon also reads
/// mounts and records itself.
const QUEUE_CAPACITY: usize = 256;
/// Time limit for one answer of the daemon.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two checks of the list.
pub(crate) const BYPASS_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Queue of notifications to the daemon.
pub(crate) struct DaemonNotifier {
    queue: mpsc::Sender<LifecycleEvent>,
    overflowing: AtomicBool,
}

impl DaemonNotifier {
    pub(crate) fn new() -> (DaemonNotifier, mpsc::Receiver<LifecycleEvent>) {
        let (queue, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (DaemonNotifier { queue, overflowing: AtomicBool::new(false) }, receiver)
    }

    pub(crate) fn enqueue(&self, event: LifecycleEvent) {
        let overflows = self.queue.try_send(event).is_err();
        if overflows && !self.overflowing.swap(overflows, Ordering::AcqRel) {
            tracing::warn!(
                queue = QUEUE_CAPACITY,
                "more calls pass than diskvitalsd accepts notifications of; it finds these volumes at its next scan"
            );
        } else if !overflows {
            self.overflowing.store(false, Ordering::Release);
        }
    }
}

/// Never returns.
pub(crate) async fn deliver_events<W: HealthSource>(
    mut events: mpsc::Receiver<LifecycleEvent>,
    driver: &UpstreamDriver,
    health_source: &W,
) {
    while let Some(event) = events.recv().await {
        if let Err(error) = deliver(&event, driver, health_source).await {
            tracing::debug!(%error, "diskvitalsd was not notified of a call");
        }
    }
    // The sender lives as long as the calls; no end is needed after it.
    std::future::pending().await
}

async fn deliver<W: HealthSource>(
    event: &LifecycleEvent,
    driver: &UpstreamDriver,
    health_source: &W,
) -> Result<(), HealthSourceError> {
    let name = driver.name().await?;
    with_timeout(health_source.notify(name, event)).await
}

/// Never returns. While the driver is bypassed, each check notifies the daemon again, because it
/// may have restarted.
pub(crate) async fn detect_bypass<W: HealthSource>(
    driver: &UpstreamDriver,
    health_source: &W,
    tracker: &VolumeTracker,
    notifier: &DaemonNotifier,
    interval: Duration,
) {
    let mut checks = tokio::time::interval(interval);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = false;
    loop {
        checks.tick().await;
        let Ok(name) = driver.name().await else {
            continue;
        };
        let Ok(listed) = with_timeout(health_source.volumes(name)).await else {
            continue;
        };
        let bypassed = tracker.find_bypassed(&listed, Instant::now());
        if let (Some(handle), false) = (bypassed.first(), known) {
            tracing::warn!(
                driver = name,
                handle,
                volumes = bypassed.len(),
                "volumes of this driver are attached whose calls bypass the interposer: the kubelet reaches the driver by another socket \
                 (its registrar's --kubelet-registration-path), and gets none of its health"
            );
        } else if bypassed.is_empty() && known {
            tracing::info!(driver = name, "no volume of this driver still bypasses the interposer");
        }
        known = !bypassed.is_empty();
        for handle in bypassed {
            notifier.enqueue(LifecycleEvent::Bypassed { handle });
        }
    }
}

async fn with_timeout<T>(
    answer: impl Future<Output = Result<T, HealthSourceError>>,
) -> Result<T, HealthSourceError> {
    tokio::time::timeout(DAEMON_TIMEOUT, answer).await.unwrap_or_else(|_| {
        Err(HealthSourceError::Unavailable(format!(
            "diskvitalsd has not answered within {} s",
            DAEMON_TIMEOUT.as_secs()
        )))
    })
}
