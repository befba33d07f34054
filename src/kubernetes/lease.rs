//! Leader election by one Lease object (coordination.k8s.io), as client-go does it.
//!
//! In: the lease as it was last read. Out: whether this process leads. A lease counts as expired
//! when it has not changed for its duration by the observer's own monotonic clock: clocks of nodes
//! differ. Leadership is no guard of a write: uid and resourceVersion are. Own code, because the
//! crate for it is ten times this size and has one author.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_error::ApiError;
use diskvitals_host::clock;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    pub holder: String,
    pub seconds: i32,
    pub transitions: i32,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    /// resourceVersion; None: it does not exist yet.
    pub version: Option<String>,
}

impl LeaseRecord {
    pub fn of(lease: Lease) -> LeaseRecord {
        let spec = lease.spec.unwrap_or_default();
        LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            seconds: spec.lease_duration_seconds.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or_default(),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            version: lease.metadata.resource_version,
        }
    }

    pub fn to_lease(&self, namespace: &str, name: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(self.seconds),
                lease_transitions: Some(self.transitions),
                acquire_time: self.acquired.map(MicroTime),
                renew_time: self.renewed.map(MicroTime),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Reads and writes leases; each call has a time limit.
pub trait LeaseStore {
    fn lease(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, ApiError>> + Send;

    /// Creates the lease, or replaces exactly the version that was read. None: another one was
    /// faster.
    fn write_lease(
        &self,
        namespace: &str,
        name: &str,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<Option<LeaseRecord>, ApiError>> + Send;
}

#[derive(Clone, Debug)]
pub struct LeaseTiming {
    pub duration: Duration,
    /// A leader that could not renew for this time stops leading, before others take over.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Default for LeaseTiming {
    fn default() -> LeaseTiming {
        LeaseTiming {
            duration: Duration::from_secs(15),
            // Two answers of 5 s each are in time.
            renew_deadline: Duration::from_secs(12),
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
        Election { identity, timing, observed: None }
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

pub struct Candidate<S> {
    pub api: Arc<S>,
    pub namespace: String,
    pub name: String,
    pub identity: String,
    pub timing: LeaseTiming,
    /// Time limit for one answer.
    pub request_timeout: Duration,
    /// Limit of the delay that the API server asks for.
    pub max_backoff: Duration,
}

/// Whether this process leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leads: bool,
    /// When others may take over, if nothing is renewed.
    pub until: Option<Instant>,
}

/// The lease as it was written, and when the write began: others measure from its end.
type Held = (LeaseRecord, Instant);

impl<S: LeaseStore> Candidate<S> {
    /// Runs until the future is dropped; `release` gives the lease away.
    pub async fn run(&self, leads: &watch::Sender<Leadership>) -> std::convert::Infallible {
        let start = Instant::now();
        let timing = &self.timing;
        let mut election = Election::new(self.identity.clone(), timing.clone());
        // Renewed by a write that began at this time: it leads.
        let mut renewed: Option<Instant> = None;
        let mut held: Option<LeaseRecord> = None;
        let mut is_failing = false;
        loop {
            let begin = Instant::now();
            // One who follows has no deadline: each of its two calls has a time limit.
            let deadline = renewed.map(|renewed| renewed + timing.renew_deadline);
            let limit = deadline.unwrap_or(begin + self.request_timeout * 3);
            let round = self.round(&mut election, held.take(), start);
            let mut asked = None;
            let failure = match tokio::time::timeout_at(limit, round).await {
                Ok(Ok(Some((record, begin)))) => {
                    (held, renewed) = (Some(record), Some(begin));
                    None
                }
                Ok(Ok(None)) => {
                    renewed = None;
                    None
                }
                Ok(Err(error)) => {
                    let (why, after) = error.into_message_and_delay();
                    asked = after.map(|after| after.min(self.max_backoff));
                    Some(why)
                }
                Err(_) => Some("the API server has not answered in time".to_owned()),
            };
            self.log_failure(failure, &mut is_failing);
            renewed = renewed.filter(|renewed| renewed.elapsed() < timing.renew_deadline);
            self.set(leads, renewed);
            let next = (begin + timing.retry).max(Instant::now() + asked.unwrap_or_default());
            let deadline = renewed.map(|renewed| renewed + timing.renew_deadline);
            if let Some(deadline) = deadline.filter(|deadline| *deadline < next) {
                tokio::time::sleep_until(deadline).await;
                renewed = None;
                self.set(leads, None);
            }
            tokio::time::sleep_until(next).await;
        }
    }

    fn log_failure(&self, failure: Option<String>, is_failing: &mut bool) {
        let was_failing = std::mem::replace(is_failing, failure.is_some());
        match failure {
            None if was_failing => tracing::info!("the lease can be read and written again"),
            Some(error) if !was_failing => tracing::warn!(
                lease = self.name,
                namespace = self.namespace,
                error,
                "the lease cannot be read or written"
            ),
            _ => {}
        }
    }

    /// A renewal alone wakes nobody.
    fn set(&self, leads: &watch::Sender<Leadership>, renewed: Option<Instant>) {
        let leading = renewed.is_some();
        let until = renewed.map(|renewed| renewed + self.timing.duration);
        let is_changed = leads.send_if_modified(|leadership| {
            let was_leading = leadership.leads;
            *leadership = Leadership { leads: leading, until };
            was_leading != leading
        });
        if is_changed && leading {
            tracing::info!(identity = self.identity, "leading");
        } else if is_changed {
            tracing::info!(identity = self.identity, "no longer leading");
        }
    }

    /// `held`: the lease as this process wrote it; it is renewed without reading it. None: another
    /// one holds it.
    async fn round(
        &self,
        election: &mut Election,
        held: Option<LeaseRecord>,
        start: Instant,
    ) -> Result<Option<Held>, ApiError> {
        if held.is_some()
            && let Some(renewed) = self.write(election, held, start).await?
        {
            return Ok(Some(renewed));
        }
        let read = self.api.lease(&self.namespace, &self.name).await?;
        self.write(election, read, start).await
    }

    async fn write(
        &self,
        election: &mut Election,
        read: Option<LeaseRecord>,
        start: Instant,
    ) -> Result<Option<Held>, ApiError> {
        let Some(record) = election.propose(read, start.elapsed(), clock::wall_now()) else {
            return Ok(None);
        };
        let begin = Instant::now();
        let written = self.api.write_lease(&self.namespace, &self.name, &record).await?;
        Ok(written.map(|written| (written, begin)))
    }

    /// At the end of the process: a standby need not wait.
    pub async fn release(&self) {
        let election = Election::new(self.identity.clone(), self.timing.clone());
        let released = async {
            let read = self.api.lease(&self.namespace, &self.name).await;
            let record = read.ok().flatten().and_then(|read| election.release(read))?;
            Some(self.api.write_lease(&self.namespace, &self.name, &record).await)
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
        assert!(ours.propose(Some(held_by("b", "1")), seconds(0), wall).is_none());
        assert!(ours.propose(Some(held_by("b", "1")), seconds(14), wall).is_none());
        // Renewed: the wait starts anew.
        assert!(ours.propose(Some(held_by("b", "2")), seconds(15), wall).is_none());
        assert!(ours.propose(Some(held_by("b", "2")), seconds(29), wall).is_none());
        let taken = ours.propose(Some(held_by("b", "2")), seconds(30), wall).expect("expired");
        assert_eq!((taken.holder.as_str(), taken.transitions), ("a", 1));
        assert_eq!(taken.version.as_deref(), Some("2"));
    }

    #[test]
    fn a_free_or_absent_lease_is_taken_at_once_and_the_own_one_is_renewed() {
        let mut ours = election("a");
        let wall = Timestamp::UNIX_EPOCH;
        assert!(ours.propose(None, seconds(0), wall).is_some_and(|it| it.version.is_none()));
        assert!(ours.propose(Some(held_by("", "1")), seconds(1), wall).is_some());
        let renewed = ours.propose(Some(held_by("a", "2")), seconds(2), wall);
        assert_eq!(renewed.map(|it| it.transitions), Some(0));
    }

    #[test]
    fn only_the_holder_gives_a_lease_away() {
        assert!(election("a").release(held_by("b", "1")).is_none());
        let given = election("a").release(held_by("a", "1")).expect("ours");
        assert_eq!((given.holder.as_str(), given.version.as_deref()), ("", Some("1")));
    }
}
