//! What the daemon reports, as the planner needs it: causes with their findings, cleared findings,
//! and how many drives are well.
//!
//! In: wire messages of the daemon. Out: plain values with escaped text. A value that only a newer
//! daemon defines counts as unknown, never as good. No I/O.

mod origin;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::message::{Acknowledged, Cleared, Evidence, Hit, Item, Level, Transition, clean};
use crate::node_state::origin::Origins;
use diskvitals_finding::reason::Reason;
use diskvitals_wire as wire;
use diskvitals_wire::node_watch::view::Objects;

/// Of one cause.
const MAX_HITS: usize = 64;
const MAX_EVIDENCE: usize = 16;
const MAX_FINDINGS: usize = 256;
/// In a digest.
const MAX_UNREAD: usize = 20;

/// One complete answer of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeState {
    pub host: String,
    pub causes: Vec<ObservedCause>,
    /// Cleared findings that would have been announced, by id.
    pub cleared: BTreeMap<String, ClearedFinding>,
    /// Drives, volumes and sources that are known to be well.
    pub good: BTreeSet<String>,
    /// All drives, volumes and sources.
    pub subjects: BTreeSet<String>,
    pub counts: NodeCounts,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedCause {
    /// As [`Transition::Present`].
    pub item: Item,
    pub subject: String,
    /// Not acknowledged, and not explained by maintenance.
    pub counted: bool,
    pub acknowledged: bool,
    /// Maintenance explains one of its findings.
    pub maintained: bool,
    /// The worst `wire::FindingStatus` of its BAD findings that count; 0: none.
    pub status: i32,
    pub findings: Vec<ObservedFinding>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedFinding {
    pub id: String,
    /// Reason and subject: the same if the daemon gives it another id.
    pub key: String,
    /// Information while maintenance explains it: what is left at the end is new.
    pub severity: Level,
    pub acknowledged: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClearedFinding {
    pub item: Item,
    pub cleared: Cleared,
    /// Another finding of the volume announces it, or maintenance explains it.
    pub follows: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeCounts {
    pub drives: Counts,
    pub volumes: Counts,
    pub near_end_of_life: Vec<String>,
    /// Sources of the daemon that could not be read.
    pub unread: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub good: usize,
    pub suspect: usize,
    pub bad: usize,
    pub unknown: usize,
    pub asleep: usize,
    pub maintenance: usize,
}

impl Counts {
    pub(crate) fn total(&self) -> usize {
        self.good + self.suspect + self.bad + self.unknown + self.asleep + self.maintenance
    }

    /// Nothing at all is unknown: a node has drives.
    pub(crate) fn level(&self) -> Level {
        match self {
            Counts { bad: 1.., .. } => Level::Bad,
            Counts { suspect: 1.., .. } => Level::Suspect,
            Counts { unknown: 1.., .. } => Level::Unknown,
            _ => Level::Good,
        }
    }

    fn add(&mut self, health: wire::Health, asleep: bool, maintenance: bool) {
        let count = match health {
            _ if maintenance => &mut self.maintenance,
            wire::Health::Good => &mut self.good,
            wire::Health::Suspect => &mut self.suspect,
            wire::Health::Bad => &mut self.bad,
            wire::Health::Unknown | wire::Health::Unspecified if asleep => &mut self.asleep,
            wire::Health::Unknown | wire::Health::Unspecified => &mut self.unknown,
        };
        *count += 1;
    }
}

impl NodeState {
    pub(crate) fn from_wire(node: &wire::Node, objects: &Objects) -> NodeState {
        let origins = Origins::new(objects.drives.values(), objects.volumes.values());
        let causes = objects.causes.values();
        let mut causes: Vec<_> =
            causes.map(|cause| observed_cause(cause, objects, &origins)).collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.item.rank()));
        let cleared = objects
            .cleared
            .iter()
            .filter_map(|(id, finding)| Some((id.clone(), cleared_finding(finding, &origins)?)));
        let mut state = NodeState {
            host: clean(&node.name),
            causes,
            cleared: cleared.collect(),
            good: BTreeSet::new(),
            subjects: BTreeSet::new(),
            counts: NodeCounts { unread: unread(node), ..NodeCounts::default() },
        };
        for drive in objects.drives.values() {
            let asleep = drive.health_unknown_cause() == wire::UnknownCause::Asleep;
            state.counts.drives.add(drive.health(), asleep, drive.maintenance);
            state.subjects.insert(drive.id.clone());
            if drive.health() == wire::Health::Good {
                state.good.insert(drive.id.clone());
            }
            let worn = drive
                .findings
                .iter()
                .any(|finding| finding.reason.parse().is_ok_and(Reason::is_wear));
            if worn {
                let name = format!("{} {} {}", drive.name, drive.model, drive.serial);
                state.counts.near_end_of_life.push(clean(name.trim()));
            }
        }
        for source in &node.sources {
            use wire::source_state::State;
            state.subjects.insert(source.name.clone());
            if matches!(source.state(), State::Active | State::Absent) {
                state.good.insert(source.name.clone());
            }
        }
        for volume in objects.volumes.values() {
            state.counts.volumes.add(volume.health(), false, false);
            state.subjects.insert(volume.id.clone());
            if volume.health() == wire::Health::Good {
                state.good.insert(volume.id.clone());
            }
        }
        state
    }
}

/// Sources that are down, and what single readings did not yield.
fn unread(node: &wire::Node) -> Vec<String> {
    let down = node
        .sources
        .iter()
        .filter(|source| source.state() == wire::source_state::State::Down)
        .map(|source| clean(&format!("source {}: {}", source.name, source.detail)));
    let warnings = node.warnings.iter().map(|text| clean(text));
    down.chain(warnings).take(MAX_UNREAD).collect()
}

/// An unknown severity of a newer daemon is at least suspect.
fn level(severity: wire::Severity) -> Level {
    match severity {
        wire::Severity::Info => Level::Info,
        wire::Severity::Suspect | wire::Severity::Unspecified => Level::Suspect,
        wire::Severity::Bad => Level::Bad,
    }
}

fn time(time: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
}

fn observed_cause(cause: &wire::Cause, objects: &Objects, origins: &Origins<'_>) -> ObservedCause {
    use wire::cause::Kind;
    let kind = match cause.kind() {
        Kind::Drive => "drive",
        Kind::Array => "array",
        Kind::Pool => "pool",
        Kind::Mount => "mount",
        Kind::Source => "source",
        Kind::Device | Kind::Unspecified => "device",
    };
    let members = || cause.findings.iter().chain(&cause.consequences);
    let known = || members().filter_map(|member| objects.findings.get(&member.finding_id));
    // An array has a finding for each of its volumes, with the same evidence.
    let mut evidence: Vec<Evidence> = Vec::new();
    // What a drive's findings do to a volume is proven by theirs.
    let is_proof = |it: &&wire::Finding| it.reason.parse() != Ok(Reason::DriveFailing);
    for record in known().filter(is_proof).flat_map(|finding| &finding.evidence) {
        let record = evidence_of(record);
        let is_new =
            |other: &Evidence| (&other.source, &other.text) != (&record.source, &record.text);
        if evidence.len() < MAX_EVIDENCE && evidence.iter().all(is_new) {
            evidence.push(record);
        }
    }
    // The worst first, and what a person has taken note of last. A consequence is named if it is
    // worse than all that the cause has itself.
    let rank = |finding: &&wire::CauseFinding| {
        let severity = level(finding.severity());
        (finding.acknowledged, std::cmp::Reverse(severity))
    };
    let mut named: Vec<&wire::CauseFinding> = cause.findings.iter().collect();
    let worst = cause.consequences.iter().min_by_key(rank);
    let exceeds = |worst: &&wire::CauseFinding| {
        let mut own = cause.findings.iter();
        own.all(|finding| rank(&finding) > rank(worst))
    };
    named.extend(worst.filter(exceeds));
    named.sort_by_key(rank);
    let mut reasons = Vec::new();
    for finding in named {
        let reason = match finding.figure.as_str() {
            "" => clean(&finding.reason),
            figure => clean(&format!("{} ({figure})", finding.reason)),
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let own_reasons = cause.findings.iter().map(|finding| finding.reason.as_str());
    let acknowledged = known().find_map(|finding| finding.acknowledged.as_ref());
    let item = Item {
        transition: Transition::Present,
        time: time(cause.since).unwrap_or_default(),
        severity: level(cause.severity()),
        cause: clean(&cause.id),
        kind: kind.to_owned(),
        name: clean(&cause.name),
        detail: clean(&cause.detail),
        slot: clean(&cause.slot),
        model: clean(&cause.model),
        serial: clean(&cause.serial),
        reasons,
        message: clean(&cause.message),
        since: time(cause.since),
        hits: hits(&cause.hits),
        more_hits: cause.more_hits + cause.hits.len().saturating_sub(MAX_HITS) as u64,
        only_on_it: cause.kind() == Kind::Drive && cause.consequences.is_empty(),
        evidence,
        action: clean(&cause.action),
        command: explain_command(&cause.explain),
        acknowledged: acknowledged.map(|acknowledged| Acknowledged {
            by: clean(&acknowledged.by),
            note: clean(&acknowledged.note),
        }),
        cleared: None,
        good: false,
        user_made: origins.is_user_made(cause.subject.as_ref(), own_reasons),
    };
    let subject = cause.subject.as_ref();
    ObservedCause {
        item,
        subject: subject.map(|subject| subject.id.clone()).unwrap_or_default(),
        counted: cause.counted,
        acknowledged: !cause.findings.is_empty()
            && cause.findings.iter().all(|finding| finding.acknowledged),
        maintained: members().any(|finding| finding.maintained()),
        status: known()
            .filter(|finding| finding.severity() == wire::Severity::Bad && finding.is_counted())
            .map(|finding| finding.status)
            .max()
            .unwrap_or_default(),
        findings: members()
            .take(MAX_FINDINGS)
            .map(|finding| ObservedFinding {
                id: finding.finding_id.clone(),
                key: key(&finding.reason, finding.subject.as_ref()),
                severity: match finding.maintained() {
                    true => Level::Info,
                    false => level(finding.severity()),
                },
                acknowledged: finding.acknowledged,
            })
            .collect(),
    }
}

fn evidence_of(evidence: &wire::Evidence) -> Evidence {
    Evidence {
        source: clean(&evidence.source),
        time: time(evidence.time),
        text: clean(&evidence.text),
    }
}

fn key(reason: &str, subject: Option<&wire::Subject>) -> String {
    format!("{reason} {}", subject.map_or("", |subject| &subject.id))
}

/// A name is quoted for a shell where it must be.
fn explain_command(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/-@+".contains(c);
    let name = clean(name);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => format!("diskvitals explain {name}"),
        false => format!("diskvitals explain '{}'", name.replace('\'', r"'\''")),
    }
}

/// The node's own mounts and swap before what is named after pods and claims.
fn hits(hits: &[wire::CauseHit]) -> Vec<Hit> {
    let mut hits: Vec<Hit> = hits.iter().map(hit).collect();
    let is_own = |hit: &Hit| matches!(hit.kind.as_str(), "mount" | "swap" | "device");
    hits.sort_by_key(|hit| (hit.covered, !hit.last_copy, !is_own(hit)));
    hits.truncate(MAX_HITS);
    hits
}

fn hit(hit: &wire::CauseHit) -> Hit {
    use wire::cause_hit::Kind;
    Hit {
        kind: match hit.kind() {
            Kind::Mount => "mount",
            Kind::Pod => "pod",
            Kind::Pv => "pv",
            Kind::Swap => "swap",
            Kind::Device | Kind::Unspecified => "device",
        }
        .to_owned(),
        name: clean(&hit.name),
        covered: hit.covered,
        last_copy: hit.last_copy,
    }
}

fn cleared_finding(finding: &wire::Finding, origins: &Origins<'_>) -> Option<ClearedFinding> {
    let cleared = finding.cleared.as_ref()?;
    let why = match finding.clears_when.as_str() {
        condition if condition.is_empty() || condition.starts_with("never") => cleared.why.clone(),
        condition => format!("{}: {condition}", cleared.why),
    };
    let cleared = Cleared { time: time(cleared.time)?, why: clean(&why) };
    let subject = finding.subject.as_ref();
    let name = subject.map_or("", |subject| match subject.name.as_str() {
        "" => subject.id.as_str(),
        name => name,
    });
    let item = Item {
        transition: Transition::Cleared,
        time: cleared.time,
        severity: level(finding.severity()),
        cause: format!("finding:{}", clean(&finding.id)),
        kind: "finding".to_owned(),
        name: clean(name),
        detail: String::new(),
        slot: String::new(),
        model: String::new(),
        serial: String::new(),
        reasons: vec![clean(&finding.reason)],
        message: clean(&finding.message),
        since: time(finding.since),
        hits: Vec::new(),
        more_hits: 0,
        only_on_it: false,
        evidence: finding.evidence.iter().take(MAX_EVIDENCE).map(evidence_of).collect(),
        action: clean(&finding.action),
        command: explain_command(subject.map_or("", |subject| &subject.id)),
        acknowledged: None,
        cleared: Some(cleared.clone()),
        good: false,
        user_made: origins.is_user_made(subject, [finding.reason.as_str()]),
    };
    let follows = !finding.follows.is_empty() || finding.maintained();
    Some(ClearedFinding { item, cleared, follows })
}

#[cfg(test)]
mod tests;
