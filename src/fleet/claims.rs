//! The duty `claims`: the health of claims whose volume is tied to one node.
//!
//! In: what should stand in claims (`model::claims`), and what became of writes. Out: some writes at
//! a time (`ledger`), and an event where another manager writes the field.

pub(crate) mod ledger;

use std::fmt;
use std::sync::Arc;

use crate::api::ClaimWrite;
use crate::calls::{Call, Caller, Calls, Outcome};
use crate::claims::ledger::{ClaimLedger, Pauses, Support};
use crate::duty::{Context, Duty, DutyFigures};
use crate::events::{Announcement, regarding_claim};
use crate::listing::List;
use crate::model::claims::{Entry, desired};
use crate::model::{Claim, Elapsed, Policy};
use crate::timing::Timing;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow};
use diskvitals_host::clock;
use diskvitals_kubernetes::api_error::ApiError;

enum Done {
    Adopted(Result<Vec<(Claim, Entry)>, ApiError>),
    Written(Claim, Entry, ClaimWrite),
}

pub(crate) struct Claims {
    policy: Policy,
    pauses: Pauses,
    /// None until the claims that this manager wrote before are known.
    ledger: Option<ClaimLedger>,
    is_adopting: bool,
    calls: Calls<Done>,
    announcements: Vec<Announcement>,
}

impl Claims {
    pub(crate) fn new(timing: &Timing) -> Claims {
        Claims {
            policy: timing.policy,
            pauses: timing.pauses,
            ledger: None,
            is_adopting: false,
            calls: Calls::default(),
            announcements: Vec::new(),
        }
    }

    fn finish(&mut self, claim: &Claim, entry: Entry, write: ClaimWrite, now: Elapsed) -> Outcome {
        let Some(ledger) = &mut self.ledger else {
            return Outcome::Done(None);
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
                Outcome::Done(Some("ok"))
            }
            ClaimWrite::NotKept => {
                if ledger.is_not_kept(claim, now) {
                    tracing::warn!(
                        "the API server does not keep the health of claims: it needs Kubernetes 1.37 and the feature gate CSIVolumeHealth"
                    );
                }
                Outcome::Done(Some("unsupported"))
            }
            ClaimWrite::Gone => {
                ledger.is_gone(claim, now);
                Outcome::Done(Some("gone"))
            }
            ClaimWrite::Foreign(managers) => {
                if ledger.refuse(claim, now) {
                    tracing::warn!(
                        namespace,
                        claim = name,
                        managers,
                        "another manager writes the health of this claim: it is left alone"
                    );
                    let note = format!(
                        "status.healthStatus is written by another manager, so diskvitals does not write it: {managers}"
                    );
                    let (of, reason) = (regarding_claim(claim), "HealthStatusConflict");
                    self.announcements.push(Announcement::new(of, reason, note, true));
                }
                Outcome::Done(Some("foreign"))
            }
            ClaimWrite::Failed(error) => {
                let counted = if matches!(error, ApiError::Rejected(_)) {
                    ledger.refuse(claim, now);
                    "refused"
                } else {
                    ledger.retry(claim);
                    "error"
                };
                let operation = "writing the health of a claim";
                Outcome::Failed { counted: Some(counted), operation, error }
            }
        }
    }
}

impl Duty for Claims {
    fn lists(&self) -> &'static [List] {
        &[List::Volumes]
    }

    fn observe(&mut self, cx: Context<'_>) {
        if let Some(ledger) = &mut self.ledger {
            let desired = desired(cx.view, &ledger.written, &self.policy, cx.now.elapsed);
            ledger.set_desired(desired);
        }
    }

    fn reset(&mut self, _now: Elapsed) {
        self.ledger = None;
        self.is_adopting = false;
        self.calls = Calls::default();
    }

    fn precedes_events(&self) -> bool {
        true
    }

    fn next_time(&self, now: Elapsed) -> Option<Elapsed> {
        match &self.ledger {
            Some(ledger) => ledger.next_time(now),
            None => (!self.is_adopting).then_some(now),
        }
    }

    fn next_call(&mut self, cx: Context<'_>, caller: &Caller) -> Option<Call> {
        let api = caller.api.clone();
        let Some(ledger) = &mut self.ledger else {
            let is_adopting = std::mem::replace(&mut self.is_adopting, true);
            let adopt = async move { Done::Adopted(api.own_claims().await) };
            return (!is_adopting).then(|| self.calls.start(adopt));
        };
        let (claim, entry) = ledger.next(cx.now.elapsed)?;
        Some(self.calls.start(async move {
            let write = api.apply_health(&claim, &entry.conditions, clock::wall_now()).await;
            Done::Written(claim, entry, write)
        }))
    }

    fn end_call(&mut self, cx: Context<'_>) -> Outcome {
        match self.calls.take() {
            Some(Done::Adopted(Ok(written))) => {
                tracing::info!(
                    claims = written.len(),
                    "the health that was written before is known"
                );
                self.ledger = Some(ClaimLedger::new(self.pauses, written));
                Outcome::Read
            }
            Some(Done::Adopted(Err(error))) => {
                self.is_adopting = false;
                Outcome::Failed { counted: None, operation: "reading claims", error }
            }
            Some(Done::Written(claim, entry, write)) => {
                self.finish(&claim, entry, write, cx.now.elapsed)
            }
            None => Outcome::Done(None),
        }
    }

    fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }

    fn metrics(&self) -> Option<Arc<dyn DutyFigures>> {
        let ledger = self.ledger.as_ref()?;
        Some(Arc::new(Figures {
            written: ledger.written.len() as u64,
            waiting: ledger.backlog() as u64,
            support: ledger.support,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    written: u64,
    waiting: u64,
    support: Support,
}

const FAMILIES: [FamilyRow<Figures>; 2] = families! {
    Figures:
    Gauge "diskvitals_fleet_claims": "Claims with health that this replica has written."
        => |it, to| to.value(it.written);
    Gauge "diskvitals_fleet_claims_waiting": "Claims whose health is still to be written."
        => |it, to| to.value(it.waiting);
};

/// Once the API server has answered a write.
const ANSWERED: [FamilyRow<Figures>; 1] = families! {
    Figures:
    Gauge "diskvitals_fleet_claim_health_supported": "Whether the API server keeps the health of claims."
        => |it, to| to.value(it.support == Support::Present);
};

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families.encode(&FAMILIES, &[([], self)])?;
        match self.support {
            Support::Unknown => Ok(()),
            _ => families.encode(&ANSWERED, &[([], self)]),
        }
    }
}
