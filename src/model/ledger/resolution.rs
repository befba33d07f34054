//! Resolves several verdicts on one subject and reason to one, in any order: raised counts before
//! unknown, unknown before clear, and of two raised ones the worse.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Evidence, FindingDetails, Judgement, Subject, Verdict};

pub(crate) fn resolve(judgements: Vec<Judgement>) -> BTreeMap<(Subject, Reason), Verdict> {
    let mut settled: BTreeMap<(Subject, Reason), Verdict> = BTreeMap::new();
    for Judgement { subject, reason, verdict } in judgements {
        let key = (subject, reason);
        let weaker = |known: &Verdict| compare(&verdict, known) == Ordering::Greater;
        if settled.get(&key).is_none_or(weaker) {
            settled.insert(key, verdict);
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

/// A total order, so that the order of verdicts does not matter; beyond severity and status it has
/// no meaning.
fn compare_raised(a: &FindingDetails, b: &FindingDetails) -> Ordering {
    let record = |evidence: &Evidence| {
        (
            evidence.source.clone(),
            evidence.text.clone(),
            evidence.time,
            evidence.witness,
            evidence.present,
        )
    };
    (a.severity, a.status, &a.message, &a.clears_when, a.since)
        .cmp(&(b.severity, b.status, &b.message, &b.clears_when, b.since))
        .then_with(|| a.evidence.iter().map(record).cmp(b.evidence.iter().map(record)))
}
