//! Tells the daemon what passed by, and asks it now and then what did not. Runs beside the calls:
//! none of them waits for it.
//!
//! In: calls that succeeded, the daemon's list of the driver's volumes. Out: what the daemon is
//! told; a line in the log when the driver is reached by another way, and one when that is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::csi::interposer::driver::Driver;
use crate::csi::interposer::seen::Seen;
use crate::csi::interposer::verdict::{Passing, Witness, WitnessError};

/// Calls that wait to be told of. The daemon sees mounts and records by itself as well, so that
/// nothing is lost with one that is not told.
const QUEUE: usize = 256;
/// For one answer of the daemon.
const ANSWER: Duration = Duration::from_secs(1);
/// Between two looks at the list.
pub const LOOK: Duration = Duration::from_secs(60);

/// Where calls put what is to be told.
pub struct Telling {
    queue: mpsc::Sender<Passing>,
    overflowing: AtomicBool,
}

impl Telling {
    pub fn new() -> (Telling, mpsc::Receiver<Passing>) {
        let (queue, told) = mpsc::channel(QUEUE);
        (
            Telling {
                queue,
                overflowing: AtomicBool::new(false),
            },
            told,
        )
    }

    pub fn tell(&self, passing: Passing) {
        let overflows = self.queue.try_send(passing).is_err();
        if overflows && !self.overflowing.swap(overflows, Ordering::AcqRel) {
            tracing::warn!(
                queue = QUEUE,
                "more calls pass than diskvitalsd is told of: it sees those volumes at its next look"
            );
        } else if !overflows {
            self.overflowing.store(false, Ordering::Release);
        }
    }
}

/// Never returns.
pub async fn tell_on<W: Witness>(mut told: mpsc::Receiver<Passing>, driver: &Driver, witness: &W) {
    while let Some(passing) = told.recv().await {
        if let Err(error) = tell(&passing, driver, witness).await {
            tracing::debug!(%error, "a call that passed was not told");
        }
    }
    // The sender lives as long as the calls do; without them there is nothing to end.
    std::future::pending().await
}

async fn tell<W: Witness>(
    passing: &Passing,
    driver: &Driver,
    witness: &W,
) -> Result<(), WitnessError> {
    let name = driver.name().await?;
    answered(witness.told(name, passing)).await
}

/// Never returns. While the driver is bypassed, the daemon is told at each look: it may have been
/// restarted since the last.
pub async fn watch<W: Witness>(
    driver: &Driver,
    witness: &W,
    seen: &Seen,
    telling: &Telling,
    pause: Duration,
) {
    let mut looks = tokio::time::interval(pause);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = false;
    loop {
        looks.tick().await;
        let Ok(name) = driver.name().await else {
            continue;
        };
        let Ok(listed) = answered(witness.volumes(name)).await else {
            continue;
        };
        let bypassed = seen.look(&listed, Instant::now());
        if let (Some(handle), false) = (bypassed.first(), known) {
            tracing::warn!(
                driver = name,
                handle,
                volumes = bypassed.len(),
                "volumes of this driver are here whose calls did not pass: the kubelet reaches the driver by another socket \
                 (its registrar's --kubelet-registration-path), and sees none of our health"
            );
        } else if bypassed.is_empty() && known {
            tracing::info!(
                driver = name,
                "no volume of this driver bypasses us any more"
            );
        }
        known = !bypassed.is_empty();
        for handle in bypassed {
            telling.tell(Passing::Bypassed { handle });
        }
    }
}

async fn answered<T>(
    answer: impl Future<Output = Result<T, WitnessError>>,
) -> Result<T, WitnessError> {
    tokio::time::timeout(ANSWER, answer)
        .await
        .unwrap_or_else(|_| {
            Err(WitnessError::Away(format!(
                "diskvitalsd has not answered within {} s",
                ANSWER.as_secs()
            )))
        })
}
