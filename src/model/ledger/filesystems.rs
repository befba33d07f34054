//! A filesystem is a volume while it is mounted, and its device otherwise. Its finding is the same one:
//! it goes from the one subject to the other with its id, its start and its acknowledgement.

use std::sync::Arc;

use crate::ledger::Ledger;
use diskvitals_finding::{Finding, Judgement, Subject, Verdict};

impl Ledger {
    /// Before `judgements` are applied: an active finding whose filesystem is now raised under the
    /// other subject goes there. `uuid`: of the filesystem of a subject. A UUID that several volumes
    /// or devices have moves nothing.
    pub fn follow_filesystems(
        &mut self,
        judgements: &[Judgement],
        uuid: impl Fn(&Subject) -> Option<String>,
    ) {
        let is_raised = |subject: &Subject, reason| {
            judgements.iter().any(|it| {
                it.subject == *subject
                    && it.reason == reason
                    && matches!(it.verdict, Verdict::Raised(_))
            })
        };
        for judgement in judgements {
            let (subject, reason) = (&judgement.subject, judgement.reason);
            let is_new = matches!(judgement.verdict, Verdict::Raised(_))
                && !self.active.contains_key(&(subject.clone(), reason));
            if !is_new || !matches!(subject, Subject::Device(_) | Subject::Volume(_)) {
                continue;
            }
            let Some(filesystem) = uuid(subject) else {
                continue;
            };
            let mut former = self.active.keys().filter(|(other, its_reason)| {
                *its_reason == reason
                    && is_other_side(subject, other)
                    && uuid(other).as_ref() == Some(&filesystem)
                    && !is_raised(other, reason)
            });
            let (Some(key), None) = (former.next().cloned(), former.next()) else {
                continue;
            };
            if let Some(mut entry) = self.active.remove(&key) {
                entry.finding = Arc::new(Finding {
                    subject: subject.clone(),
                    follows: None,
                    ..(*entry.finding).clone()
                });
                self.active.insert((subject.clone(), reason), entry);
            }
        }
    }
}

fn is_other_side(one: &Subject, other: &Subject) -> bool {
    matches!(
        (one, other),
        (Subject::Device(_), Subject::Volume(_)) | (Subject::Volume(_), Subject::Device(_))
    )
}
