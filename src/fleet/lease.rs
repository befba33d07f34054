//! Leader election by one Lease object (coordination.k8s.io), as client-go does it.
//!
//! In: the lease as it was last read. Out: whether this process leads. A lease counts as expired
//! when it has not changed for its duration by the observer's own monotonic clock: clocks of nodes
//! differ. Leadership is no guard of a write: uid and resourceVersion are. Own code, because the
//! crate for it is ten times this size and has one author.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::fleet::api::Api;
use crate::host::clock;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub holder: String,
    pub seconds: i32,
    pub transitions: i32,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    /// resourceVersion; None: it does not exist yet.
    pub version: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseTiming {
    pub duration: Duration,
    /// A leader that could not renew for this time stops leading, before others take over.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Default for LeaseTiming {
    fn default() -> LeaseTiming {
        LeaseTiming {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// What one process knows of the lease. Pure: times are arguments.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    timing: LeaseTiming,
    observed: Option<(LeaseRecord, Duration)>,
}

impl Election {
    pub(crate) fn new(identity: String, timing: LeaseTiming) -> Election {
        Election {
            identity,
            timing,
            observed: None,
        }
    }

    /// The record to write: to acquire a free or expired lease, or to renew the own one.
    pub(crate) fn propose(
        &mut self,
        read: Option<LeaseRecord>,
        now: Duration,
        wall: Timestamp,
    ) -> Option<LeaseRecord> {
        let read = read.unwrap_or_default();
        let is_changed = self.observed.as_ref().is_none_or(|(seen, _)| *seen != read);
        if is_changed {
            self.observed = Some((read.clone(), now));
        }
        let since = self.observed.as_ref().map_or(now, |(_, since)| *since);
        let is_ours = read.holder == self.identity;
        // An own duration that is longer keeps two versions with other settings apart.
        let lasts = Duration::from_secs(u64::try_from(read.seconds).unwrap_or_default())
            .max(self.timing.duration);
        let is_free = read.holder.is_empty() || now.saturating_sub(since) >= lasts;
        (is_ours || is_free).then(|| LeaseRecord {
            holder: self.identity.clone(),
            seconds: i32::try_from(self.timing.duration.as_secs().max(1)).unwrap_or(i32::MAX),
            transitions: read.transitions.saturating_add(i32::from(!is_ours)),
            acquired: if is_ours { read.acquired } else { Some(wall) },
            renewed: Some(wall),
            version: read.version,
        })
    }

    /// The record that gives the own lease away.
    fn release(&self, read: LeaseRecord) -> Option<LeaseRecord> {
        (read.holder == self.identity).then(|| LeaseRecord {
            holder: String::new(),
            seconds: 1,
            ..read
        })
    }
}

pub(crate) struct Candidate {
    pub api: Arc<Api>,
    pub namespace: String,
    pub name: String,
    pub identity: String,
    pub timing: LeaseTiming,
}

impl Candidate {
    /// Runs until the future is dropped; `release` gives the lease away.
    pub(crate) async fn run(&self, leads: &watch::Sender<bool>) -> std::convert::Infallible {
        let start = Instant::now();
        let mut election = Election::new(self.identity.clone(), self.timing.clone());
        let mut renewed = start;
        let mut is_failing = false;
        loop {
            let begun = Instant::now();
            match self.round(&mut election, start.elapsed()).await {
                Ok(leading) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("the lease can be read and written again");
                    }
                    // Others measure from the write: the own time runs from before it.
                    renewed = if leading { begun } else { renewed };
                    self.set(leads, leading);
                }
                Err(why) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(
                            lease = self.name,
                            namespace = self.namespace,
                            error = why,
                            "the lease cannot be read or written"
                        );
                    }
                    if renewed.elapsed() >= self.timing.renew_deadline {
                        self.set(leads, false);
                    }
                }
            }
            tokio::time::sleep(self.timing.retry).await;
        }
    }

    fn set(&self, leads: &watch::Sender<bool>, leading: bool) {
        let is_changed =
            leads.send_if_modified(|leads| std::mem::replace(leads, leading) != leading);
        if is_changed && leading {
            tracing::info!(identity = self.identity, "leading");
        } else if is_changed {
            tracing::info!(identity = self.identity, "no longer leading");
        }
    }

    async fn round(&self, election: &mut Election, now: Duration) -> Result<bool, String> {
        let said = |error: crate::csi::report::api::ApiError| error.into_message_and_delay().0;
        // Both calls together within the deadline: a leader that waits longer must stop.
        let calls = async {
            let read = self
                .api
                .lease(&self.namespace, &self.name)
                .await
                .map_err(said)?;
            let Some(record) = election.propose(read, now, clock::wall_now()) else {
                return Ok(false);
            };
            let written = self
                .api
                .write_lease(&self.namespace, &self.name, &record)
                .await;
            Ok(written.map_err(said)?.is_some())
        };
        match tokio::time::timeout(self.timing.renew_deadline / 2, calls).await {
            Ok(leading) => leading,
            Err(_) => Err("the API server has not answered in time".to_owned()),
        }
    }

    /// At the end of the process: a standby need not wait.
    pub(crate) async fn release(&self) {
        let election = Election::new(self.identity.clone(), self.timing.clone());
        let released = async {
            let read = self.api.lease(&self.namespace, &self.name).await;
            let record = read
                .ok()
                .flatten()
                .and_then(|read| election.release(read))?;
            Some(
                self.api
                    .write_lease(&self.namespace, &self.name, &record)
                    .await,
            )
        };
        match tokio::time::timeout(Duration::from_secs(2), released).await {
            Ok(Some(Ok(_))) => tracing::info!("the lease is released"),
            Ok(None) => {}
            Ok(Some(Err(_))) | Err(_) => {
                tracing::warn!("the lease was not released: a standby waits until it expires");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election(identity: &str) -> Election {
        Election::new(identity.into(), LeaseTiming::default())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held_by(holder: &str, version: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.into(),
            seconds: 15,
            version: Some(version.into()),
            ..LeaseRecord::default()
        }
    }

    #[test]
    fn a_lease_is_taken_over_only_when_it_has_not_changed_for_its_duration() {
        let mut ours = election("a");
        let wall = Timestamp::UNIX_EPOCH;
        assert!(
            ours.propose(Some(held_by("b", "1")), seconds(0), wall)
                .is_none()
        );
        assert!(
            ours.propose(Some(held_by("b", "1")), seconds(14), wall)
                .is_none()
        );
        // Renewed: the wait starts anew.
        assert!(
            ours.propose(Some(held_by("b", "2")), seconds(15), wall)
                .is_none()
        );
        assert!(
            ours.propose(Some(held_by("b", "2")), seconds(29), wall)
                .is_none()
        );
        let taken = ours
            .propose(Some(held_by("b", "2")), seconds(30), wall)
            .expect("expired");
        assert_eq!((taken.holder.as_str(), taken.transitions), ("a", 1));
        assert_eq!(taken.version.as_deref(), Some("2"));
    }

    #[test]
    fn a_free_or_absent_lease_is_taken_at_once_and_the_own_one_is_renewed() {
        let mut ours = election("a");
        let wall = Timestamp::UNIX_EPOCH;
        assert!(
            ours.propose(None, seconds(0), wall)
                .is_some_and(|it| it.version.is_none())
        );
        assert!(
            ours.propose(Some(held_by("", "1")), seconds(1), wall)
                .is_some()
        );
        let renewed = ours.propose(Some(held_by("a", "2")), seconds(2), wall);
        assert_eq!(renewed.map(|it| it.transitions), Some(0));
    }

    #[test]
    fn only_the_holder_gives_a_lease_away() {
        assert!(election("a").release(held_by("b", "1")).is_none());
        let given = election("a").release(held_by("a", "1")).expect("ours");
        assert_eq!(
            (given.holder.as_str(), given.version.as_deref()),
            ("", Some("1"))
        );
    }
}
