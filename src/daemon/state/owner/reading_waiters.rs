//! Requests that wait for readings which are newer than they are: a scan of the hardware, the mount
//! table, the kubelet's records, probes of some mounts, and the kernel log.
//!
//! In: requests, the facts. Out: for each request, once its readings are made or its time is over,
//! what is missing. The owner then publishes and answers from that snapshot.

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::state::handle::FreshReadings;
use diskvitals_model::facts::Facts;
use diskvitals_model::facts::readings::{Reading, WantedReading};

/// Beyond this number a request is refused.
const MAX_WAITERS: usize = 32;

pub(crate) type Reply = oneshot::Sender<FreshReadings>;

#[derive(Debug, Default)]
pub(crate) struct ReadingWaiters(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    since: Timestamp,
    until: Instant,
    wanted: Vec<WantedReading>,
    reply: Reply,
}

/// A request that is to be answered.
#[derive(Debug)]
pub(crate) struct DueReply {
    pub reply: Reply,
    /// The scan of the hardware has succeeded.
    pub inventory: bool,
    /// The kernel log is read, or what makes up for its losses.
    pub kernel_log: bool,
    pub missing: Vec<String>,
}

impl ReadingWaiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// False, and the reply is dropped, if too many wait.
    pub(crate) fn add(
        &mut self,
        wanted: Vec<WantedReading>,
        since: Timestamp,
        until: Instant,
        reply: Reply,
    ) -> bool {
        self.0.retain(|waiter| !waiter.reply.is_closed());
        let fits = self.0.len() < MAX_WAITERS;
        if fits {
            self.0.push(Waiter { since, until, wanted, reply });
        }
        fits
    }

    /// Takes the requests whose readings are made, or whose time is over. `settled`: the daemon's
    /// first readings are complete.
    pub(crate) fn take_due(&mut self, facts: &Facts, settled: bool, now: Instant) -> Vec<DueReply> {
        let mut due = Vec::new();
        for waiter in std::mem::take(&mut self.0) {
            let (mut missing, mut waits) = (Vec::new(), !settled);
            let (mut inventory, mut kernel_log) = (false, false);
            for wanted in &waiter.wanted {
                match facts.reading_since(wanted, waiter.since) {
                    Reading::Made => {
                        inventory |= *wanted == WantedReading::Hardware;
                        kernel_log |= matches!(wanted, WantedReading::KernelLog(_));
                    }
                    Reading::Impossible(why) => missing.push(why),
                    Reading::Outstanding(what) => {
                        waits = true;
                        missing.push(what);
                    }
                }
            }
            if !waits || waiter.until <= now {
                due.push(DueReply { reply: waiter.reply, inventory, kernel_log, missing });
            } else {
                self.0.push(waiter);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests;
