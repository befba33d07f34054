//! Detects transitions between two snapshots of the node, each with the objects that it concerns.
//!
//! In: the snapshots before and after. Out: transitions. No I/O. If another process, or the same
//! process after a restart, detects the same transition, it has the same key and is published once.

use jiff::{SignedDuration, Timestamp};

use crate::report::node_snapshot::{Health, Issue, NodeSnapshot, PvUse, Severity, Subject, Volume};
use diskvitals_finding::provision::PodRef;

/// In the first snapshot, older issues count as published. The API server keeps events for an hour
/// (kube-apiserver --event-ttl), so a second write of a recent event is a conflict; an older event
/// is already deleted and would be published twice.
pub(crate) const FIRST_SNAPSHOT_WINDOW: SignedDuration = SignedDuration::from_mins(45);

/// Reason for a drive or volume whose health becomes unknown; the next constant: known again.
pub(crate) const HEALTH_UNKNOWN: &str = "HealthUnknown";
pub(crate) const HEALTH_KNOWN: &str = "HealthKnown";
/// Reason for the end of all reports.
pub(crate) const HEALTH_WITHDRAWN: &str = "HealthWithdrawn";

/// The object that an event is about.
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
    /// Health is no longer reported.
    Withdrawn,
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
            StorageTransitionKind::Withdrawn => "Withdrawn",
        }
    }

    pub fn is_warning(self) -> bool {
        match self {
            StorageTransitionKind::Raised
            | StorageTransitionKind::Worsened
            | StorageTransitionKind::Eased
            | StorageTransitionKind::BecameUnknown => true,
            StorageTransitionKind::Cleared
            | StorageTransitionKind::BecameKnown
            | StorageTransitionKind::Withdrawn => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageTransition {
    /// Identifies one transition of one drive or volume.
    pub key: String,
    pub target: EventTarget,
    pub kind: StorageTransitionKind,
    /// Reason of the finding, or one of the reasons above.
    pub reason: String,
    /// The text of the event, of any length.
    pub note: String,
    /// Id of the daemon's `Cause` that it is part of.
    pub cause: Option<String>,
    pub at: Timestamp,
}

/// One transition of a drive or volume, for all objects that it concerns.
struct Announcement<'a> {
    key: String,
    subject: &'a Subject,
    kind: StorageTransitionKind,
    reason: &'a str,
    note: String,
    cause: Option<&'a str>,
}

/// `before` is None for the first snapshot.
pub(crate) fn detect_transitions(
    before: Option<&NodeSnapshot>,
    after: &NodeSnapshot,
    now: Timestamp,
) -> Vec<StorageTransition> {
    let detector = TransitionDetector { before, after, now };
    let mut transitions = Vec::new();
    // Cleared issues come before active ones: if an issue has returned, the active one must be
    // last.
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
    // New problems come first, because events may wait and may be dropped; then the node's events,
    // the most informative. The transitions of one issue stay in their order.
    let warned: Vec<(String, EventTarget)> = transitions
        .iter()
        .filter(|transition| transition.kind.is_warning())
        .map(|transition| (transition.reason.clone(), transition.target.clone()))
        .collect();
    transitions.sort_by_cached_key(|transition| {
        let can_wait = !transition.kind.is_warning()
            && !warned.iter().any(|(reason, target)| {
                (reason, target) == (&transition.reason, &transition.target)
            });
        (can_wait, transition.target != EventTarget::Node)
    });
    transitions
}

/// The `before` of the next comparison: `after`, plus the missing issues that may not be over.
pub(crate) fn next_baseline(before: &NodeSnapshot, after: &NodeSnapshot) -> NodeSnapshot {
    let mut baseline = after.clone();
    let open = before
        .issues
        .iter()
        .filter(|(id, issue)| resolution(before, after, id, issue) == IssueResolution::Unresolved);
    baseline.issues.extend(open.map(|(id, issue)| (id.clone(), issue.clone())));
    // A daemon that has not looked yet changes nothing.
    for (id, drive) in &mut baseline.drives {
        let Some(old) = before.drives.get(id) else {
            continue;
        };
        drive.has_smart_data |= old.has_smart_data;
        if drive.is_pending {
            (drive.health, drive.is_pending) = (old.health, old.is_pending);
        }
    }
    for (id, volume) in &mut baseline.volumes {
        let Some(old) = before.volumes.get(id) else {
            continue;
        };
        keep_former_claims(volume, old);
        if volume.is_pending {
            (volume.health, volume.is_pending) = (old.health, old.is_pending);
        }
    }
    baseline
}

/// The claim of a volume stays after its pods were deleted. The kubelet then removes the records
/// that name the PersistentVolume.
fn keep_former_claims(volume: &mut Volume, old: &Volume) {
    if volume.pv_uses.is_empty() {
        volume.pv_uses.clone_from(&old.pv_uses);
        volume.name.clone_from(&old.name);
    }
    for pv_use in &mut volume.pv_uses {
        let former = old.pv_uses.iter().filter(|old| old.pv == pv_use.pv);
        pv_use.namespaces.extend(former.flat_map(|old| old.namespaces.iter().cloned()));
    }
}

/// The state of an issue of the last snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IssueResolution {
    /// The issue is present with any id, its end is recorded, or its subject no longer exists.
    Accounted,
    /// It is missing without a record, and its subject is known to be healthy. States end like
    /// this, and findings of a daemon that lost its history.
    Cleared,
    /// It is missing without a record, and nothing proves that it is over.
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
        || after.issues.values().any(|other| is_same_issue(issue, other))
        || has_new_clear_record(before, after, issue);
    if settled || issue.severity == Severity::Info || issue.is_follower {
        return IssueResolution::Accounted;
    }
    // A drive that had SMART data, and a daemon that has not queried it since: the drive may be
    // unchanged.
    let is_smart_current = |id: &String| {
        let answered = |snapshot: &NodeSnapshot| {
            snapshot.drives.get(id).is_some_and(|drive| drive.has_smart_data)
        };
        answered(after) || !answered(before)
    };
    let is_cleared = match &issue.subject {
        Subject::Drive(id) => {
            after.drives.get(id).map(|drive| drive.health == Health::Good && is_smart_current(id))
        }
        Subject::Volume(id) => after.volumes.get(id).map(|volume| match issue.since {
            Some(_) => volume.health == Health::Good && volume.drives.iter().all(is_smart_current),
            None => {
                volume.health != Health::Unknown
                    && volume.state_reason.as_ref() != Some(&issue.reason)
            }
        }),
        // The health of a device is unknown.
        Subject::Device(_) | Subject::Source { .. } => None,
    };
    match is_cleared {
        None => IssueResolution::Accounted,
        Some(true) => IssueResolution::Cleared,
        Some(false) => IssueResolution::Unresolved,
    }
}

/// Whether two issues are the same: a daemon without its history gives an issue another id.
fn is_same_issue(one: &Issue, other: &Issue) -> bool {
    (&one.subject, &one.reason) == (&other.subject, &other.reason)
}

/// A new clear record exists under any id.
fn has_new_clear_record(before: &NodeSnapshot, after: &NodeSnapshot, issue: &Issue) -> bool {
    after
        .recently_cleared
        .iter()
        .any(|(id, other)| is_same_issue(issue, other) && !before.recently_cleared.contains_key(id))
}

/// Neither a wait for the first answer nor its good end is a transition.
fn health_before(health: Health, is_pending: bool) -> Health {
    if is_pending { Health::Good } else { health }
}

struct TransitionDetector<'a> {
    before: Option<&'a NodeSnapshot>,
    after: &'a NodeSnapshot,
    now: Timestamp,
}

impl TransitionDetector<'_> {
    fn detect_active(&self, id: &str, issue: &Issue, transitions: &mut Vec<StorageTransition>) {
        if issue.is_follower {
            return;
        }
        let old = self.before.and_then(|before| {
            let same_id = before.issues.get(id);
            same_id.or_else(|| self.find_under_other_id(before, issue))
        });
        let adverse = issue.severity > Severity::Info;
        let kind = match old {
            None => {
                let is_first = self.before.is_none();
                let is_recent = issue.since.is_some_and(|since| self.is_recent(since));
                if !adverse || (is_first && !is_recent) {
                    return;
                }
                StorageTransitionKind::Raised
            }
            Some(old) => {
                let (before, now) = ((old.severity, old.status), (issue.severity, issue.status));
                let was_adverse = old.severity > Severity::Info;
                match (was_adverse, adverse) {
                    _ if before == now && adverse && !issue.acknowledged => {
                        let new = self.new_users(&issue.subject);
                        let note = format!(
                            "{}: {}{}",
                            self.display_name(&issue.subject),
                            issue.text(),
                            self.since_text(issue)
                        );
                        let kind = StorageTransitionKind::Raised;
                        let raised = self.announcement(self.key(id, issue), id, issue, kind, note);
                        self.emit_to(new, &raised, transitions);
                        return;
                    }
                    _ if before == now => return,
                    (false, false) => return,
                    (false, true) => StorageTransitionKind::Raised,
                    _ if now > before => StorageTransitionKind::Worsened,
                    _ => StorageTransitionKind::Eased,
                }
            }
        };
        let words = match kind {
            StorageTransitionKind::Worsened => "worsened: ",
            StorageTransitionKind::Eased => "eased: ",
            _ => "",
        };
        let note = format!(
            "{}: {words}{}{}",
            self.display_name(&issue.subject),
            issue.text(),
            self.since_text(issue)
        );
        let key = self.key(id, issue);
        self.emit(&self.announcement(key, id, issue, kind, note), transitions);
    }

    fn announcement<'a>(
        &'a self,
        key: String,
        id: &str,
        issue: &'a Issue,
        kind: StorageTransitionKind,
        note: String,
    ) -> Announcement<'a> {
        // The cause of a cleared finding may have ended with it.
        let before = || self.before.and_then(|before| before.cause_of(id));
        Announcement {
            key,
            subject: &issue.subject,
            kind,
            reason: &issue.reason,
            note,
            cause: self.after.cause_of(id).or_else(before),
        }
    }

    fn since_text(&self, issue: &Issue) -> String {
        match issue.since {
            Some(since) if self.now.duration_since(since) >= SignedDuration::from_mins(1) => {
                format!(" (since {since:.0})")
            }
            _ => String::new(),
        }
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
            // Its users are unknown now, and were known to an earlier reporter.
            None => !self.is_recent(cleared.time) || self.is_gone(&issue.subject),
            Some(before) => before.recently_cleared.contains_key(id),
        };
        if already_reported || issue.severity == Severity::Info || issue.is_follower {
            return;
        }
        // It appeared and ended between two snapshots: its start was not published.
        if let Some(before) = self.before
            && !before.issues.contains_key(id)
            && !before.issues.values().any(|old| is_same_issue(old, issue))
        {
            let note = format!("{}: {}", self.display_name(&issue.subject), issue.text());
            let kind = StorageTransitionKind::Raised;
            let key = self.key(id, issue);
            self.emit(&self.announcement(key, id, issue, kind, note), transitions);
        }
        // The names of before: what has ended may have no pod any more.
        let was = self.before.and_then(|before| before.issues.get(id)).unwrap_or(issue);
        let note = format!(
            "{}: cleared, {}. It was: {}",
            self.display_name(&issue.subject),
            cleared.why,
            was.text()
        );
        let (key, kind) = (format!("{id} cleared"), StorageTransitionKind::Cleared);
        self.emit(&self.announcement(key, id, issue, kind, note), transitions);
    }

    fn detect_cleared_without_record(
        &self,
        id: &str,
        issue: &Issue,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let note =
            format!("{}: cleared. It was: {}", self.display_name(&issue.subject), issue.text());
        let key = match issue.since {
            Some(_) => format!("{id} cleared"),
            // The next occurrence has the same id.
            None => format!("{id} cleared {}", self.now),
        };
        let kind = StorageTransitionKind::Cleared;
        self.emit(&self.announcement(key, id, issue, kind, note), transitions);
    }

    fn detect_health_changes(
        &self,
        before: &NodeSnapshot,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let drives = self.after.drives.iter().filter_map(|(id, drive)| {
            let old = before.drives.get(id)?;
            (!drive.is_pending).then(|| {
                (
                    Subject::Drive(id.clone()),
                    health_before(old.health, old.is_pending),
                    drive.health,
                    &drive.why,
                )
            })
        });
        let volumes = self.after.volumes.iter().filter_map(|(id, volume)| {
            let old = before.volumes.get(id)?;
            (!volume.is_pending).then(|| {
                (
                    Subject::Volume(id.clone()),
                    health_before(old.health, old.is_pending),
                    volume.health,
                    &volume.why,
                )
            })
        });
        for (subject, old, new, why) in drives.chain(volumes) {
            let name = self.display_name(&subject);
            let (kind, reason, note) = match (old, new) {
                (Health::Unknown, Health::Unknown) => continue,
                (_, Health::Unknown) => (
                    StorageTransitionKind::BecameUnknown,
                    HEALTH_UNKNOWN,
                    format!("{name}: health unknown: {why}"),
                ),
                // In other cases the finding is published.
                (Health::Unknown, Health::Good) => (
                    StorageTransitionKind::BecameKnown,
                    HEALTH_KNOWN,
                    format!("{name}: health known again, no findings"),
                ),
                _ => continue,
            };
            let changed = Announcement {
                key: format!("{subject:?} {} {}", kind.action(), self.now),
                subject: &subject,
                kind,
                reason,
                note,
                cause: None,
            };
            self.emit(&changed, transitions);
        }
    }

    fn is_gone(&self, subject: &Subject) -> bool {
        matches!(subject, Subject::Volume(id) if !self.after.volumes.contains_key(id))
    }

    fn is_recent(&self, time: Timestamp) -> bool {
        self.now.duration_since(time) <= FIRST_SNAPSHOT_WINDOW
    }

    /// The key is equal in every process that detects the transition: the count of a finding grows
    /// when it worsens, and not when it improves.
    fn key(&self, id: &str, issue: &Issue) -> String {
        match issue.since {
            Some(_) => format!("{id} {} {:?} {}", issue.count, issue.severity, issue.status),
            None => format!("{id} {:?} {} {}", issue.severity, issue.status, self.now),
        }
    }

    /// The name of a subject; if the subject no longer exists, its last name.
    fn display_name<'a>(&'a self, subject: &'a Subject) -> &'a str {
        let known = match subject {
            Subject::Drive(id) => self.after.drives.contains_key(id),
            // The name of its PersistentVolume is kept.
            Subject::Volume(id) => {
                let has_claim = |snapshot: &NodeSnapshot| {
                    let volume = snapshot.volumes.get(id);
                    volume.map(|volume| !volume.pv_uses.is_empty())
                };
                let before = self.before.and_then(has_claim).unwrap_or_default();
                has_claim(self.after).is_some_and(|now| now || !before)
            }
            Subject::Device(_) | Subject::Source { .. } => true,
        };
        match self.before {
            Some(before) if !known => before.display_name(subject),
            _ => self.after.display_name(subject),
        }
    }

    /// Adds a transition for each user of the volume; without users, for the node.
    fn emit(&self, announced: &Announcement, transitions: &mut Vec<StorageTransition>) {
        let subject = announced.subject;
        let volume = self
            .volume(self.after, subject)
            .or_else(|| self.before.and_then(|before| self.volume(before, subject)));
        let mut targets = volume.as_ref().map(users).unwrap_or_default();
        if !targets.iter().any(|target| matches!(target, EventTarget::Pod(_))) {
            targets.insert(0, EventTarget::Node);
        }
        self.emit_to(targets, announced, transitions);
    }

    fn emit_to(
        &self,
        targets: Vec<EventTarget>,
        announced: &Announcement,
        transitions: &mut Vec<StorageTransition>,
    ) {
        let one = |target| StorageTransition {
            key: announced.key.clone(),
            target,
            kind: announced.kind,
            reason: announced.reason.to_owned(),
            note: announced.note.clone(),
            cause: announced.cause.map(str::to_owned),
            at: self.now,
        };
        transitions.extend(targets.into_iter().map(one));
    }

    /// The volume in `snapshot`, with the claims that used it before.
    fn volume(&self, snapshot: &NodeSnapshot, subject: &Subject) -> Option<Volume> {
        let Subject::Volume(id) = subject else {
            return None;
        };
        let mut volume = snapshot.volumes.get(id)?.clone();
        if let Some(old) = self.before.and_then(|before| before.volumes.get(id)) {
            keep_former_claims(&mut volume, old);
        }
        Some(volume)
    }

    /// The pods and claims that use the volume now and did not before.
    fn new_users(&self, subject: &Subject) -> Vec<EventTarget> {
        let before = self.before.and_then(|before| self.volume(before, subject));
        let (Some(before), Some(after)) = (before, self.volume(self.after, subject)) else {
            return Vec::new();
        };
        let old = users(&before);
        let is_same = |one: &EventTarget, other: &EventTarget| match (one, other) {
            (EventTarget::Pod(one), EventTarget::Pod(other)) => one.uid == other.uid,
            // Without a namespace, its claim could not be found.
            (EventTarget::Claim(one), EventTarget::Claim(other)) => {
                one.pv == other.pv && one.namespaces.is_empty() == other.namespaces.is_empty()
            }
            _ => false,
        };
        users(&after).into_iter().filter(|new| !old.iter().any(|old| is_same(old, new))).collect()
    }
}

/// The pods and claims that use the volume.
pub(crate) fn users(volume: &Volume) -> Vec<EventTarget> {
    let pods = volume.pods.iter().cloned().map(EventTarget::Pod);
    let claims = volume.pv_uses.iter().cloned().map(EventTarget::Claim);
    pods.chain(claims).collect()
}

#[cfg(test)]
pub(super) mod tests;
