//! Requests that wait for a reading of the I/O counters. The reading changes no snapshot and is not
//! published.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;

use diskvitals_finding::observation::Observation;
use diskvitals_model::block::DiskStat;

/// Beyond this number, a request fails: no counters could be read.
const MAX_WAITERS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct IoWaiters(Vec<(oneshot::Sender<Arc<Vec<DiskStat>>>, Timestamp)>);

impl IoWaiters {
    pub(crate) fn add(&mut self, reply: oneshot::Sender<Arc<Vec<DiskStat>>>, now: Timestamp) {
        self.0.retain(|(reply, _)| !reply.is_closed());
        if self.0.len() < MAX_WAITERS {
            self.0.push((reply, now));
        }
    }

    /// Answers the requests that were made before the reading. If the reading failed, they are
    /// dropped without an answer.
    pub(crate) fn reply(&mut self, seen: &Observation<Vec<DiskStat>>) {
        let Some(at) = seen.at() else { return };
        if !self.0.iter().any(|(_, asked)| *asked <= at) {
            return;
        }
        let stats = seen.value().cloned().map(Arc::new);
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, asked)| *asked <= at);
        self.0 = waiting;
        for (reply, _) in due {
            if let Some(stats) = &stats {
                // The client may have disconnected.
                let _ = reply.send(stats.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[tokio::test]
    async fn only_a_reading_made_after_the_request_answers_it() {
        let mut askers = IoWaiters::default();
        let (reply, mut answer) = oneshot::channel();
        askers.add(reply, at(10));
        askers.reply(&Observation::ok(at(9), Vec::new()));
        assert!(answer.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        askers.reply(&Observation::ok(at(10), Vec::new()));
        assert!(answer.try_recv().is_ok());
    }

    #[tokio::test]
    async fn a_failed_reading_releases_all_waiters() {
        let mut askers = IoWaiters::default();
        let (reply, mut answer) = oneshot::channel();
        askers.add(reply, at(10));
        askers.reply(&Observation::failed(at(11), "no"));
        assert!(
            answer.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
        );
    }
}
