//! One verdict for each subject and reason, whatever the order in which several were given: being
//! so outweighs not knowing, not knowing outweighs being over, and of two that say it is so the
//! worse one speaks.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::model::finding::{Evidence, FindingDetails, Judgement, Subject, Verdict};
use crate::model::reason::Reason;

pub(crate) fn resolve(judgements: Vec<Judgement>) -> BTreeMap<(Subject, Reason), Verdict> {
    let mut settled: BTreeMap<(Subject, Reason), Verdict> = BTreeMap::new();
    for Judgement {
        subject,
        reason,
        verdict,
    } in judgements
    {
        match settled.entry((subject, reason)) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(verdict);
            }
            std::collections::btree_map::Entry::Occupied(mut said) => {
                if compare(&verdict, said.get()) == Ordering::Greater {
                    said.insert(verdict);
                }
            }
        }
    }
    settled
}

fn compare(a: &Verdict, b: &Verdict) -> Ordering {
    match (a, b) {
        (Verdict::Raised(a), Verdict::Raised(b)) => compare_raised(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Clear => 0,
        Verdict::Unknown { .. } => 1,
        Verdict::Raised(_) => 2,
    }
}

/// Total, so that the order of saying does not matter; beyond severity and status it has no
/// meaning.
fn compare_raised(a: &FindingDetails, b: &FindingDetails) -> Ordering {
    let texts = |raised: &FindingDetails| {
        let record = |evidence: &Evidence| {
            (
                evidence.source.clone(),
                evidence.text.clone(),
                evidence.time,
            )
        };
        raised.evidence.iter().map(record).collect::<Vec<_>>()
    };
    (a.severity, a.status, &a.message, &a.clears_when, a.since)
        .cmp(&(b.severity, b.status, &b.message, &b.clears_when, b.since))
        .then_with(|| texts(a).cmp(&texts(b)))
}
