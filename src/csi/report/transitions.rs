//! What is new between two pictures of the node: transitions, each for the objects that it
//! concerns.
//!
//! In: the picture before and the one after. Out: news. Pure. News that is found again by another
//! process, or after a restart, has the same key, so that nothing is told twice.

use jiff::{SignedDuration, Timestamp};

use crate::csi::report::node_snapshot::{Health, Issue, NodeSnapshot, PvUse, Severity, Subject};
use crate::model::provision::PodRef;

/// At the first sight of a node, what began before that is taken as told: events that were told
/// live for an hour (kube-apiserver --event-ttl), and make telling them again a conflict; older
/// ones have gone, and would be told twice.
pub const FIRST_SNAPSHOT_WINDOW: SignedDuration = SignedDuration::from_mins(45);

/// Of a thing whose health has become unknown, and known again.
pub const HEALTH_UNKNOWN: &str = "HealthUnknown";
pub const HEALTH_KNOWN: &str = "HealthKnown";

/// Which object an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventTarget {
    Node,
    Pod(PodRef),
    Claim(PvUse),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageTransitionKind {
    Raised,
    Worsened,
    Eased,
    Cleared,
    BecameUnknown,
    BecameKnown,
}

impl StorageTransitionKind {
    /// An event's action.
    pub fn action(self) -> &'static str {
        match self {
            StorageTransitionKind::Raised => "Raised",
            StorageTransitionKind::Worsened => "Worsened",
            StorageTransitionKind::Eased => "Eased",
            StorageTransitionKind::Cleared => "Cleared",
            StorageTransitionKind::BecameUnknown => "Lost",
            StorageTransitionKind::BecameKnown => "Found",
        }
    }

    pub fn is_warning(self) -> bool {
        match self {
            StorageTransitionKind::Raised
            | StorageTransitionKind::Worsened
            | StorageTransitionKind::Eased
            | StorageTransitionKind::BecameUnknown => true,
            StorageTransitionKind::Cleared | StorageTransitionKind::BecameKnown => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageTransition {
    /// One transition of one thing.
    pub key: String,
    pub target: EventTarget,
    pub kind: StorageTransitionKind,
    /// Of the finding; [`UNKNOWN`] or [`KNOWN`].
    pub reason: String,
    /// Any length.
    pub note: String,
    pub at: Timestamp,
}

/// `before`: None at the first sight.
pub fn detect_transitions(
    before: Option<&NodeSnapshot>,
    after: &NodeSnapshot,
    now: Timestamp,
) -> Vec<StorageTransition> {
    let detector = TransitionDetector { before, after, now };
    let mut transitions = Vec::new();
    // What is over before what is there: of what has come again meanwhile, that is the last word.
    for (id, issue) in &after.recently_cleared {
        detector.detect_cleared(id, issue, &mut transitions);
    }
    if let Some(before) = before {
        for (id, issue) in before
            .issues
            .iter()
            .filter(|(id, issue)| resolution(before, after, id, issue) == IssueResolution::Cleared)
        {
            detector.detect_cleared_without_record(id, issue, &mut transitions);
        }
    }
    for (id, issue) in &after.issues {
        detector.detect_active(id, issue, &mut transitions);
    }
    if let Some(before) = before {
        detector.detect_health_changes(before, &mut transitions);
    }
    // The node first: where there is too much to be told at once, it says most in least.
    transitions.sort_by_key(|transition| transition.target != EventTarget::Node);
    transitions
}

/// What is to be the picture before of the next news: the one after, with what has gone from it and
/// is not known to be over.
pub fn next_baseline(before: &NodeSnapshot, after: &NodeSnapshot) -> NodeSnapshot {
    let mut baseline = after.clone();
    let open = before
        .issues
        .iter()
        .filter(|(id, issue)| resolution(before, after, id, issue) == IssueResolution::Unresolved);
    baseline
        .issues
        .extend(open.map(|(id, issue)| (id.clone(), issue.clone())));
    for (id, drive) in &mut baseline.drives {
        drive.has_smart_data |= before.drives.get(id).is_some_and(|old| old.has_smart_data);
    }
    baseline
}

/// What has become of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IssueResolution {
    /// It is there, under whatever id, its end is on record, or there is nothing left that it could
    /// be about.
    Accounted,
    /// It has gone without a record, and what it was about is known to be well. So states end, and
    /// findings where the daemon has lost its history.
    Cleared,
    /// It has gone without a record, and nothing says that it is over.
    Unresolved,
}

fn resolution(
    before: &NodeSnapshot,
    after: &NodeSnapshot,
    id: &str,
    issue: &Issue,
) -> IssueResolution {
    let settled = after.issues.contains_key(id)
        || after.recently_cleared.contains_key(id)
        || after
            .issues
            .values()
            .any(|other| is_same_issue(issue, other))
        || has_new_clear_record(before, after, issue);
    if settled || issue.severity == Severity::Info {
        return IssueResolution::Accounted;
    }
    // A drive that has said something of itself, and a daemon that has not asked it since: the
    // drive may well be as it was.
    let is_smart_current = |id: &String| {
        let answered = |snapshot: &NodeSnapshot| {
            snapshot
                .drives
                .get(id)
                .is_some_and(|drive| drive.has_smart_data)
        };
        answered(after) || !answered(before)
    };
    let is_cleared = match &issue.subject {
        Subject::Drive(id) => after
            .drives
            .get(id)
            .map(|drive| drive.health == Health::Good && is_smart_current(id)),
        Subject::Volume(id) => after.volumes.get(id).map(|volume| match issue.since {
            Some(_) => volume.health == Health::Good && volume.drives.iter().all(is_smart_current),
            None => {
                volume.health != Health::Unknown
                    && volume.state_reason.as_ref() != Some(&issue.reason)
            }
        }),
        // Of those nothing tells how they are.
        Subject::Device(_) => None,
    };
    match is_cleared {
        None => IssueResolution::Accounted,
        Some(true) => IssueResolution::Cleared,
        Some(false) => IssueResolution::Unresolved,
    }
}

/// A daemon that has lost its history, or does not have it yet, gives the same trouble another id.
fn is_same_issue(one: &Issue, other: &Issue) -> bool {
    (&one.subject, &one.reason) == (&other.subject, &other.reason)
}

/// By a record that was not there before, under whatever id.
fn has_new_clear_record(before: &NodeSnapshot, after: &NodeSnapshot, issue: &Issue) -> bool {
    after
        .recently_cleared
        .iter()
        .any(|(id, other)| is_same_issue(issue, other) && !before.recently_cleared.contains_key(id))
}

struct TransitionDetector<'a> {
    before: Option<&'a NodeSnapshot>,
    after: &'a NodeSnapshot,
    now: Timestamp,
}

impl TransitionDetector<'_> {
    fn detect_active(&self, id: &str, issue: &Issue, transitions: &mut Vec<StorageTransition>) {
        let kind = match self.before.map(|before| {
            before
                .issues
                .get(id)
                .or_else(|| self.find_under_other_id(before, issue))
        }) {
            // First sight.
            None if issue.severity > Severity::Info
                && issue.since.is_some_and(|since| self.is_recent(since)) =>
            {
                StorageTransitionKind::Raised
            }
            None => return,
            Some(None) if issue.severity > Severity::Info => StorageTransitionKind::Raised,
            Some(None) => return,
            Some(Some(old)) if (old.severity, old.status) == (issue.severity, issue.status) => {
                return;
            }
            Some(Some(old))
                if old.severity == Severity::Info && issue.severity > Severity::Info =>
            {
                StorageTransitionKind::Raised
            }
            Some(Some(old))
                if (old.severity, issue.severity) == (Severity::Info, Severity::Info) =>
            {
                return;
            }
            Some(Some(old))
                if issue.severity > old.severity
                    || (issue.severity == old.severity && issue.status > old.status) =>
            {
                StorageTransitionKind::Worsened
            }
            Some(Some(_)) => StorageTransitionKind::Eased,
        };
        let words = match kind {
            StorageTransitionKind::Worsened => "worse than before: ",
            StorageTransitionKind::Eased => "less bad than before: ",
            _ => "",
        };
        let since = match issue.since {
            Some(since) if self.now.duration_since(since) >= SignedDuration::from_mins(1) => {
                format!(" (since {since:.0})")
            }
            _ => String::new(),
        };
        let note = format!(
            "{}: {words}{}{since}",
            self.display_name(&issue.subject),
            issue.message
        );
        self.emit(
            self.key(id, issue),
            &issue.subject,
            kind,
            &issue.reason,
            &note,
            transitions,
        );
    }

    fn find_under_other_id<'a>(
        &self,
        before: &'a NodeSnapshot,
        issue: &Issue,
    ) -> Option<&'a Issue> {
        if has_new_clear_record(before, self.after, issue) {
            return None;
        }
        let left = |id: &String| {
            !self.after.issues.contains_key(id) && !self.after.recently_cleared.contains_key(id)
        };
        before
            .issues
            .iter()
            .find(|(id, old)| is_same_issue(old, issue) && left(id))
            .map(|(_, old)| old)
    }

    fn detect_cleared(&self, id: &str, issue: &Issue, transitions: &mut Vec<StorageTransition>) {
        let Some(cleared) = &issue.cleared else {
            return;
        };
        let already_reported = match self.before {
            None => !self.is_recent(cleared.time),
            Some(before) => before.recently_cleared.contains_key(id),
        };
        // What came and went between two looks is told by its end.
        if already_reported || issue.severity == Severity::Info {
            return;
        }
        let note = format!(
            "{}: over, {}. It was: {}",
            self.display_name(&issue.subject),
            cleared.why,
            issue.message
        );
        self.emit(
            format!("{id} cleared"),
            &issue.subject,
            StorageTransitionKind::Cleared,
            &issue.reason,
            &note,
            transitions,
        );
    }

    fn detect_cleared_without_record(
        &self,
        id: &str,
        issue: &Issue,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let note = format!(
            "{}: over. It was: {}",
            self.display_name(&issue.subject),
            issue.message
        );
        let key = match issue.since {
            Some(_) => format!("{id} cleared"),
            // The next time it has the same id.
            None => format!("{id} cleared {}", self.now),
        };
        self.emit(
            key,
            &issue.subject,
            StorageTransitionKind::Cleared,
            &issue.reason,
            &note,
            transitions,
        );
    }

    fn detect_health_changes(
        &self,
        before: &NodeSnapshot,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let drives = self.after.drives.iter().filter_map(|(id, drive)| {
            let old = before.drives.get(id)?;
            Some((
                Subject::Drive(id.clone()),
                old.health,
                drive.health,
                &drive.why,
            ))
        });
        let volumes = self.after.volumes.iter().filter_map(|(id, volume)| {
            let old = before.volumes.get(id)?;
            Some((
                Subject::Volume(id.clone()),
                old.health,
                volume.health,
                &volume.why,
            ))
        });
        for (subject, old, new, why) in drives.chain(volumes) {
            let name = self.display_name(&subject);
            let (kind, reason, note) = match (old, new) {
                (Health::Unknown, Health::Unknown) => continue,
                (_, Health::Unknown) => (
                    StorageTransitionKind::BecameUnknown,
                    HEALTH_UNKNOWN,
                    format!("{name}: how it is cannot be told: {why}"),
                ),
                // Otherwise the finding says it.
                (Health::Unknown, Health::Good) => (
                    StorageTransitionKind::BecameKnown,
                    HEALTH_KNOWN,
                    format!("{name}: how it is can be told again, and nothing is found against it"),
                ),
                _ => continue,
            };
            self.emit(
                format!("{subject:?} {} {}", kind.action(), self.now),
                &subject,
                kind,
                reason,
                &note,
                transitions,
            );
        }
    }

    fn is_recent(&self, time: Timestamp) -> bool {
        self.now.duration_since(time) <= FIRST_SNAPSHOT_WINDOW
    }

    /// The same for who sees the same transition: a finding's count grows when it gets worse, and
    /// not when it eases.
    fn key(&self, id: &str, issue: &Issue) -> String {
        match issue.since {
            Some(_) => format!("{id} {} {:?} {}", issue.count, issue.severity, issue.status),
            None => format!("{id} {:?} {} {}", issue.severity, issue.status, self.now),
        }
    }

    /// Of what has gone, as it was called.
    fn display_name<'a>(&'a self, subject: &'a Subject) -> &'a str {
        let known = match subject {
            Subject::Drive(id) => self.after.drives.contains_key(id),
            Subject::Volume(id) => self.after.volumes.contains_key(id),
            Subject::Device(_) => true,
        };
        match self.before {
            Some(before) if !known => before.display_name(subject),
            _ => self.after.display_name(subject),
        }
    }

    /// To who uses a volume; of what nobody uses, to the node.
    fn emit(
        &self,
        key: String,
        subject: &Subject,
        kind: StorageTransitionKind,
        reason: &str,
        note: &str,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let volume = match subject {
            Subject::Volume(id) => self
                .after
                .volumes
                .get(id)
                .or_else(|| self.before?.volumes.get(id)),
            Subject::Drive(_) | Subject::Device(_) => None,
        };
        let pods = volume
            .into_iter()
            .flat_map(|volume| &volume.pods)
            .cloned()
            .map(EventTarget::Pod);
        let claims = volume
            .into_iter()
            .flat_map(|volume| &volume.pv_uses)
            .cloned()
            .map(EventTarget::Claim);
        let mut targets: Vec<EventTarget> = pods.chain(claims).collect();
        if !targets
            .iter()
            .any(|target| matches!(target, EventTarget::Pod(_)))
        {
            targets.insert(0, EventTarget::Node);
        }
        let one = |target| StorageTransition {
            key: key.clone(),
            target,
            kind,
            reason: reason.to_owned(),
            note: note.to_owned(),
            at: self.now,
        };
        transitions.extend(targets.into_iter().map(one));
    }
}

#[cfg(test)]
pub(super) mod tests;
