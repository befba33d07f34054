//! Selects the records that a finding keeps: the first, and the latest ones. The same text from the
//! same source is not a new record. Which of them still hold follows from the newest judgement.

use diskvitals_finding::{Evidence, MAX_EVIDENCE};

/// The evidence of a new finding.
pub(crate) fn first(evidence: &[Evidence]) -> Vec<Evidence> {
    match distinct(evidence).as_slice() {
        [] => Vec::new(),
        [first, rest @ ..] => {
            std::iter::once(first).chain(latest(rest)).map(|record| (*record).clone()).collect()
        }
    }
}

/// `kept` with the new records of `new`, each marked with whether `new` has it as present; None if
/// nothing changes.
pub(crate) fn add(kept: &[Evidence], new: &[Evidence]) -> Option<Vec<Evidence>> {
    let merged = add_records(kept, new);
    let mut all = merged.clone().unwrap_or_else(|| kept.to_vec());
    let mut changed = merged.is_some();
    for record in &mut all {
        let present = new.iter().any(|it| it.present && same(it, record));
        // Rows of earlier versions do not name the kind.
        let kind = new.iter().find(|it| same(it, record)).map_or(record.witness, |it| it.witness);
        changed |= (record.present, record.witness) != (present, kind);
        (record.present, record.witness) = (present, kind);
    }
    changed.then_some(all)
}

/// `kept`, of which nothing is known to hold now; None if nothing changes.
pub(crate) fn without_present(kept: &[Evidence]) -> Option<Vec<Evidence>> {
    let absent = |record: &Evidence| Evidence { present: false, ..record.clone() };
    let any = kept.iter().any(|record| record.present);
    any.then(|| kept.iter().map(absent).collect())
}

fn add_records(kept: &[Evidence], new: &[Evidence]) -> Option<Vec<Evidence>> {
    let Some((first_kept, rest)) = kept.split_first() else {
        return (!new.is_empty()).then(|| first(new));
    };
    // Cut before it is compared, so that adding a long list again changes nothing.
    let others: Vec<&Evidence> =
        distinct(new).into_iter().filter(|record| !same(record, first_kept)).collect();
    let fresh = latest(&others);
    if fresh.iter().all(|record| rest.iter().any(|known| same(known, record))) {
        return None;
    }
    let mut all: Vec<&Evidence> =
        rest.iter().filter(|known| !fresh.iter().any(|record| same(known, record))).collect();
    all.extend(fresh.iter().copied());
    Some(std::iter::once(first_kept).chain(latest(&all).iter().copied()).cloned().collect())
}

fn distinct(records: &[Evidence]) -> Vec<&Evidence> {
    let new = |(at, record): &(usize, &Evidence)| {
        !records[..*at].iter().any(|before| same(before, record))
    };
    records.iter().enumerate().filter(new).map(|(_, record)| record).collect()
}

fn latest<T>(records: &[T]) -> &[T] {
    &records[records.len().saturating_sub(MAX_EVIDENCE - 1)..]
}

fn same(a: &Evidence, b: &Evidence) -> bool {
    a.source == b.source && a.text == b.text
}
