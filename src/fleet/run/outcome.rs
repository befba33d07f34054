//! What became of writes: what follows for the next ones, the counters and the log.
//!
//! In: ended writes of the present leadership. Out: the owner's changed state.

use tokio::time::Instant;

use crate::api::ClaimWrite;
use crate::claims::ledger::{ClaimLedger, Support};
use crate::events::{Announcement, regarding_claim};
use crate::model::Claim;
use crate::model::claims::Entry;
use crate::run::{Done, Owner};
use diskvitals_kubernetes::api_error::ApiError;

impl Owner {
    pub(super) fn finish(&mut self, done: Done) {
        match done {
            Done::Adopted(Ok(written)) => {
                self.pace.succeed();
                tracing::info!(
                    claims = written.len(),
                    "the health that was written before is known"
                );
                self.ledger = Some(ClaimLedger::new(self.timing.pauses, written));
                self.evaluate_at = Some(Instant::now());
            }
            Done::Adopted(Err(error)) => {
                self.is_adopting = false;
                self.fail("reading claims", error);
            }
            Done::Claim(claim, entry, write) => self.finish_claim(&claim, entry, write),
            Done::Event(_, Ok(())) => {
                self.pace.succeed();
                self.counters.count("events", "ok");
            }
            Done::Event(event, Err(error)) => {
                // An event is news for an hour: one that may not be written now is dropped.
                let is_final = !matches!(error, ApiError::Retryable { .. });
                self.counters.count("events", if is_final { "refused" } else { "error" });
                let error = match error {
                    ApiError::Forbidden(rejection) => ApiError::Rejected(rejection),
                    error => error,
                };
                self.fail("publishing an event", error);
                if !is_final {
                    self.events.put_back(event);
                }
            }
            Done::Report(report, Ok(gone)) => {
                self.pace.succeed();
                self.counters.count("retention", if gone { "ok" } else { "conflict" });
                if gone {
                    tracing::info!(
                        node = report.name,
                        "the report of a node that was deleted long ago is removed"
                    );
                }
            }
            Done::Release(done) => {
                match self.with_release(|release, cx| release.finish(done, cx)) {
                    Some(Err(error)) => {
                        self.counters.count("release", "error");
                        self.fail("proposing releases", error);
                    }
                    Some(Ok(())) | None => self.pace.succeed(),
                }
            }
            Done::Quarantine(done) => {
                match self.with_quarantines(|quarantines, cx| quarantines.finish(done, cx)) {
                    Some(Err(error)) => {
                        self.counters.count("quarantine", "error");
                        self.fail("writing a quarantine", error);
                    }
                    Some(Ok(())) | None => self.pace.succeed(),
                }
            }
            Done::Unreachable(done) => {
                match self.with_unreachable(|unreachable, cx| unreachable.finish(done, cx)) {
                    Some(Err(error)) => {
                        self.counters.count("unreachable", "error");
                        self.fail("tainting a node or moving its pods", error);
                    }
                    Some(Ok(())) | None => self.pace.succeed(),
                }
            }
            Done::Report(_, Err(error)) => {
                self.counters.count("retention", "error");
                // The next round finds it again.
                self.fail("deleting an old report", error);
            }
        }
    }

    fn finish_claim(&mut self, claim: &Claim, entry: Entry, write: ClaimWrite) {
        let now = self.now();
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let (namespace, name) = (claim.namespace.as_str(), claim.name.as_str());
        match write {
            ClaimWrite::Done => {
                let reasons: Vec<&str> =
                    entry.conditions.iter().map(|it| it.reason.as_str()).collect();
                if matches!(ledger.support, Support::Absent(_)) && !reasons.is_empty() {
                    tracing::info!("the API server keeps the health of claims now");
                }
                tracing::info!(
                    namespace,
                    claim = name,
                    health = reasons.join(","),
                    "health of a claim is written"
                );
                ledger.is_done(claim, entry);
                self.counters.count("claims", "ok");
                self.pace.succeed();
            }
            ClaimWrite::NotKept => {
                if ledger.is_not_kept(claim, now) {
                    tracing::warn!(
                        "the API server does not keep the health of claims: it needs Kubernetes 1.37 and the feature gate CSIVolumeHealth"
                    );
                }
                self.counters.count("claims", "unsupported");
                self.pace.succeed();
            }
            ClaimWrite::Gone => {
                ledger.is_gone(claim, now);
                self.counters.count("claims", "gone");
                self.pace.succeed();
            }
            ClaimWrite::Foreign(managers) => {
                let is_news = ledger.refuse(claim, now);
                self.counters.count("claims", "foreign");
                self.pace.succeed();
                if is_news {
                    tracing::warn!(
                        namespace,
                        claim = name,
                        managers,
                        "another manager writes the health of this claim: it is left alone"
                    );
                    let note = format!(
                        "status.healthStatus is written by another manager, so diskvitals does not write it: {managers}"
                    );
                    self.announce(Announcement {
                        regarding: regarding_claim(claim),
                        reason: "HealthStatusConflict",
                        note,
                        is_warning: true,
                    });
                }
            }
            ClaimWrite::Failed(error) => {
                if matches!(error, ApiError::Rejected(_)) {
                    ledger.refuse(claim, now);
                    self.counters.count("claims", "refused");
                } else {
                    ledger.retry(claim);
                    self.counters.count("claims", "error");
                }
                self.fail("writing the health of a claim", error);
            }
        }
    }

    fn fail(&mut self, operation: &'static str, error: ApiError) {
        self.counters.api_errors += 1;
        self.pace.fail(operation, error);
    }
}
