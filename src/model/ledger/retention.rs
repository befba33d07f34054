//! Which cleared findings leave the history when it is full.
//!
//! In: the history, newest first. Out: what is dropped. What users can make has at most half of the
//! history as long as there is anything else, and each subject an equal part: neither pods nor one
//! drive that fails again and again push the past of the others out. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use diskvitals_finding::ids::FindingId;
use diskvitals_finding::{Finding, Subject};

/// The positions of each subject's findings, newest first.
type Subjects<'a> = BTreeMap<&'a Subject, Vec<usize>>;

pub(super) fn surplus(history: &[&Arc<Finding>], max: usize) -> BTreeSet<FindingId> {
    let is_user_made =
        |finding: &Finding| finding.cleared.as_ref().is_some_and(|it| it.is_user_made);
    let (mut of_users, mut others) = (Subjects::new(), Subjects::new());
    let mut count_of_users = 0;
    for (position, finding) in history.iter().enumerate() {
        let subjects = match is_user_made(finding) {
            true => &mut of_users,
            false => &mut others,
        };
        count_of_users += usize::from(is_user_made(finding));
        subjects.entry(&finding.subject).or_default().push(position);
    }
    let mut surplus = BTreeSet::new();
    while surplus.len() + max < history.len() {
        let dropped = if count_of_users > max / 2 {
            count_of_users -= 1;
            drop_oldest_of_largest(&mut of_users)
        } else {
            drop_oldest_of_largest(&mut others)
        };
        let Some(position) = dropped else { break };
        surplus.insert(history[position].id.clone());
    }
    surplus
}

/// Of the subject with the most findings; of several, of that whose oldest is the oldest.
fn drop_oldest_of_largest(subjects: &mut Subjects<'_>) -> Option<usize> {
    let largest = subjects
        .iter_mut()
        .max_by_key(|(subject, positions)| {
            (positions.len(), positions.last().copied(), Reverse(**subject))
        })
        .map(|(_, positions)| positions)?;
    largest.pop()
}
