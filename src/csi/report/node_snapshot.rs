//! The part of the daemon's snapshot that Kubernetes needs, built from the messages of the daemon.
//!
//! In: messages of the daemon. Out: drives, volumes with their users, and issues. No I/O. A value
//! that only a newer daemon defines counts as unknown, never as good.

mod identity;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::health;
use crate::report::node_failures::NodeFailures;
use crate::report::node_snapshot::identity::{DriveIdentity, NodeIdentity, VolumeIdentity};
use diskvitals_finding::provision::PodRef;
use diskvitals_finding::reason::Reason;
use diskvitals_wire as wire;
use diskvitals_wire::node_watch::view::Objects;

pub(crate) use crate::report::node_snapshot::identity::StaleMount;

/// How long cleared issues are kept.
pub(crate) const CLEARED_RETENTION: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    Suspect,
    Bad,
    #[default]
    Unknown,
}

/// Severity of an issue, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Info,
    Suspect,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Drive(String),
    Volume(String),
    Device(String),
    /// What the daemon reads.
    Source {
        id: String,
        label: String,
    },
}

/// A finding of the daemon, or a volume's state without a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub subject: Subject,
    pub severity: Severity,
    /// FindingStatus on the wire; larger values are worse.
    pub status: i32,
    pub reason: String,
    pub message: String,
    /// None for a state, because the daemon reports no start for states.
    pub since: Option<Timestamp>,
    /// Grows each time that the finding is raised or worsens.
    pub count: u64,
    pub acknowledged: bool,
    /// Maintenance explains it.
    pub maintained: bool,
    pub cleared: Option<Cleared>,
    /// Another issue of the same volume announces the common cause.
    pub is_follower: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cleared {
    pub time: Timestamp,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    /// The name for messages.
    pub name: String,
    pub health: Health,
    pub why: String,
    /// The daemon's first evidence about it is outstanding.
    pub is_pending: bool,
    /// It is pending because it has been in standby since it is known: that does not count.
    pub is_asleep: bool,
    pub maintenance: bool,
    /// None: it is not under maintenance, or without an end.
    pub maintenance_until: Option<Timestamp>,
    /// Whether the daemon has SMART data of the drive.
    pub has_smart_data: bool,
    pub identity: DriveIdentity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The name for messages.
    pub name: String,
    pub health: Health,
    pub why: String,
    /// The daemon has not probed it yet.
    pub is_pending: bool,
    /// Pods whose names are known.
    pub pods: Vec<PodRef>,
    pub pv_uses: Vec<PvUse>,
    /// The reason why its state is abnormal, with or without a finding of the same.
    pub state_reason: Option<String>,
    /// Ids of the drives.
    pub drives: Vec<String>,
    pub identity: VolumeIdentity,
}

/// A PersistentVolume and the namespaces whose pods use it. Only the API server knows its claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PvUse {
    pub pv: String,
    pub namespaces: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSnapshot {
    /// Health of the node, without acknowledged findings and drives under maintenance.
    pub health: Health,
    pub drives: BTreeMap<String, Drive>,
    pub volumes: BTreeMap<String, Volume>,
    /// Indexed by finding id; a state has an id that no finding can have.
    pub issues: BTreeMap<String, Issue>,
    /// Recently cleared issues.
    pub recently_cleared: BTreeMap<String, Issue>,
    /// By cause: the ids of its findings.
    pub causes: BTreeMap<String, Vec<String>>,
    /// What makes the node as a whole unfit; None from an older daemon.
    pub failures: Option<NodeFailures>,
    /// By cause: the volumes on a drive, array or device with a problem, and whether redundancy
    /// keeps each intact.
    pub redundancy: BTreeMap<String, Vec<(String, bool)>>,
    pub node: NodeIdentity,
    /// None while they are not known.
    pub stale: Option<Vec<StaleMount>>,
    /// The storage below the volumes of each CSI driver that has some here.
    pub driver_storage: BTreeMap<String, DriverStorage>,
}

/// Whether the storage of a CSI driver on the network can be reached from this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverStorage {
    Reachable,
    /// No volume of it on the network shows whether it can be: there is none, or none is known.
    Unproven,
    Unreachable {
        reason: String,
        message: String,
    },
    Unknown(String),
}

impl DriverStorage {
    pub(crate) fn from_wire(health: &wire::StorageHealth) -> DriverStorage {
        let mut remote = health.faults.iter().filter(|fault| fault.remote);
        match (health.network(), remote.next()) {
            (wire::NetworkStorage::Reached, _) => DriverStorage::Reachable,
            (wire::NetworkStorage::CutOff, Some(fault)) => DriverStorage::Unreachable {
                reason: fault.reason.clone(),
                message: fault.message.clone(),
            },
            (wire::NetworkStorage::CutOff | wire::NetworkStorage::Unspecified, _) => {
                DriverStorage::Unproven
            }
        }
    }
}

impl NodeSnapshot {
    /// Without what Watch does not send: stale mounts and the storage of drivers.
    pub(crate) fn from_wire(node: &wire::Node, objects: &Objects, now: Timestamp) -> NodeSnapshot {
        let issue = |finding| Issue::from_finding(finding, &objects.volumes);
        let findings = objects.findings.values().filter_map(issue);
        let states = objects.volumes.values().filter_map(Issue::from_state);
        let cleared = objects.cleared.values().filter_map(issue);
        let recent = cleared.filter(|(_, issue)| {
            let time = issue.cleared.as_ref().map(|cleared| cleared.time);
            time.is_some_and(|time| now.duration_since(time) <= CLEARED_RETENTION)
        });
        NodeSnapshot {
            health: health_from_wire(node.health()),
            drives: by_id(&objects.drives, Drive::from_wire),
            volumes: by_id(&objects.volumes, Volume::from_wire),
            issues: findings.chain(states).collect(),
            recently_cleared: recent.collect(),
            causes: by_id(&objects.causes, finding_ids),
            failures: node.node_failures.as_ref().map(NodeFailures::from_wire),
            redundancy: by_id(&objects.causes, covered_volumes),
            node: NodeIdentity::from_wire(node),
            ..NodeSnapshot::default()
        }
    }

    /// The cause of a finding; if it has several, the first by its id.
    pub(crate) fn cause_of(&self, finding: &str) -> Option<&str> {
        let mut causes = self.causes.iter();
        causes
            .find(|(_, findings)| findings.iter().any(|id| id == finding))
            .map(|(cause, _)| cause.as_str())
    }

    /// Adverse issues, worst first. Among equally severe ones drives come first, because they cause
    /// the issues of volumes.
    pub(crate) fn adverse(&self) -> Vec<(&str, &Issue)> {
        let mut adverse: Vec<_> = self
            .issues
            .iter()
            .filter(|(_, issue)| issue.severity > Severity::Info)
            .map(|(id, issue)| (id.as_str(), issue))
            .collect();
        adverse.sort_by(|(a_id, a), (b_id, b)| {
            let of_drive = |issue: &Issue| matches!(issue.subject, Subject::Drive(_));
            (b.severity, of_drive(b), b.status)
                .cmp(&(a.severity, of_drive(a), a.status))
                .then_with(|| (&a.reason, &a.subject, a_id).cmp(&(&b.reason, &b.subject, b_id)))
        });
        adverse
    }

    /// The health of the node, with the states of volumes that no finding of the daemon describes.
    pub(crate) fn counted_health(&self) -> Health {
        let mut adverse = self.adverse().into_iter().map(|(_, issue)| issue);
        match adverse.find(|issue| issue.is_counted()).map(|worst| worst.severity) {
            Some(Severity::Bad) => Health::Bad,
            Some(Severity::Suspect) if self.health != Health::Bad => Health::Suspect,
            _ => self.health,
        }
    }

    /// Ids of the drives and volumes whose first evidence is outstanding; not of drives that sleep.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &String> {
        let drives = self.drives.iter();
        let drives = drives.filter(|(_, drive)| drive.is_pending && !drive.is_asleep);
        let volumes = self.volumes.iter().filter(|(_, volume)| volume.is_pending);
        drives.map(|(id, _)| id).chain(volumes.map(|(id, _)| id))
    }

    /// Whether redundancy keeps the volume's data intact although something below it has a problem.
    pub(crate) fn is_redundant(&self, volume: &str) -> bool {
        let hits = self.redundancy.values().flatten();
        let mut covered = hits.filter(|(id, _)| id == volume).map(|(_, it)| *it).peekable();
        covered.peek().is_some() && covered.all(|it| it)
    }

    /// The subject's name for messages.
    pub(crate) fn display_name<'a>(&'a self, subject: &'a Subject) -> &'a str {
        match subject {
            Subject::Drive(id) => self.drives.get(id).map_or(id, |drive| &drive.name),
            Subject::Volume(id) => self.volumes.get(id).map_or(id, |volume| &volume.name),
            Subject::Device(name) => name,
            Subject::Source { label, .. } => label,
        }
    }
}

fn by_id<T, U>(objects: &BTreeMap<String, T>, from_wire: fn(&T) -> U) -> BTreeMap<String, U> {
    objects.iter().map(|(id, object)| (id.clone(), from_wire(object))).collect()
}

fn finding_ids(cause: &wire::Cause) -> Vec<String> {
    let findings = cause.findings.iter().chain(&cause.consequences);
    findings.map(|finding| finding.finding_id.clone()).collect()
}

/// `drive ID (NAME) failed` and `drive ID (NAME): it fails`: what follows the name.
fn without_drive_name<'a>(message: &'a str, id: &str) -> &'a str {
    let after_id = message.strip_prefix("drive ").and_then(|rest| rest.strip_prefix(id));
    let Some(rest) = after_id else { return message };
    let rest = match rest.strip_prefix(" (").and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.trim_start_matches(':').trim_start()
}

impl Issue {
    pub(crate) fn is_counted(&self) -> bool {
        !self.acknowledged && !self.maintained
    }

    /// The message for use after the subject's name. The daemon's messages about a drive begin with
    /// its id and kernel name.
    pub(crate) fn text(&self) -> &str {
        match &self.subject {
            Subject::Drive(id) => without_drive_name(&self.message, id),
            Subject::Volume(_) | Subject::Device(_) | Subject::Source { .. } => &self.message,
        }
    }

    fn from_finding(
        finding: &wire::Finding,
        volumes: &BTreeMap<String, wire::Volume>,
    ) -> Option<(String, Issue)> {
        let wire_subject = finding.subject.clone()?;
        let subject = match wire_subject.kind() {
            wire::SubjectKind::Drive => Subject::Drive(wire_subject.id),
            wire::SubjectKind::Volume => Subject::Volume(wire_subject.id),
            wire::SubjectKind::Source => {
                Subject::Source { id: wire_subject.id, label: wire_subject.name }
            }
            // Unspecified may be a kind of a newer daemon.
            wire::SubjectKind::Device | wire::SubjectKind::Unspecified => {
                Subject::Device(wire_subject.id)
            }
        };
        let message = match &subject {
            Subject::Volume(id) => volumes.get(id),
            Subject::Drive(_) | Subject::Device(_) | Subject::Source { .. } => None,
        }
        .map_or_else(
            || health::without_kubelet_paths(&finding.message),
            |volume| health::without_paths(&finding.message, volume),
        );
        let cleared = finding.cleared.as_ref().and_then(|cleared| {
            Some(Cleared { time: timestamp_from_wire(cleared.time)?, why: cleared.why.clone() })
        });
        let issue = Issue {
            subject,
            severity: severity_from_wire(finding.severity()),
            status: finding.status,
            reason: finding.reason.clone(),
            message,
            since: timestamp_from_wire(finding.since),
            count: finding.count,
            acknowledged: finding.acknowledged.is_some(),
            maintained: finding.maintained(),
            cleared,
            is_follower: !finding.follows.is_empty(),
        };
        Some((finding.id.clone(), issue))
    }

    /// The issue of a volume whose state is abnormal without a finding that explains it.
    fn from_state(volume: &wire::Volume) -> Option<(String, Issue)> {
        let state = health::state_status(volume)?;
        let (severity, status) = match state.status {
            health::HealthErrorType::Degraded => (Severity::Suspect, wire::FindingStatus::Degraded),
            health::HealthErrorType::Inaccessible => {
                (Severity::Bad, wire::FindingStatus::Inaccessible)
            }
            health::HealthErrorType::DataLoss => (Severity::Bad, wire::FindingStatus::DataLoss),
        };
        let mut adverse = volume.findings.iter().filter(|finding| {
            finding.cleared.is_none() && severity_from_wire(finding.severity()) > Severity::Info
        });
        // An acknowledged finding hides only the state that it caused.
        let says_it = |finding: &wire::Finding| {
            explains_state(&finding.reason, &state.reason)
                || finding.acknowledged.is_none() && finding.status >= i32::from(status)
        };
        if adverse.any(says_it) {
            return None;
        }
        let issue = Issue {
            subject: Subject::Volume(volume.id.clone()),
            severity,
            status: status.into(),
            reason: state.reason,
            message: state.message,
            since: None,
            count: 0,
            acknowledged: false,
            maintained: false,
            cleared: None,
            is_follower: false,
        };
        // Finding ids are hexadecimal digits.
        Some((format!("state of {}", volume.id), issue))
    }
}

impl Drive {
    fn from_wire(drive: &wire::Drive) -> Drive {
        let model_and_serial: Vec<&str> = [&drive.model, &drive.serial]
            .into_iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
            .collect();
        let kernel = if drive.name.is_empty() { &drive.id } else { &drive.name };
        let name = if model_and_serial.is_empty() {
            format!("drive {kernel}")
        } else {
            format!("drive {kernel} ({})", model_and_serial.join(" "))
        };
        let (health, why) = (health_from_wire(drive.health()), drive.health_unknown_why.clone());
        let is_asleep = drive.health_unknown_cause() == wire::UnknownCause::Asleep;
        let order = drive.maintenance_order.as_ref();
        let answered = drive.smart.as_ref().is_some_and(|smart| smart.answered.is_some());
        Drive {
            name,
            health,
            why,
            is_pending: is_asleep || drive.health_unknown_cause() == wire::UnknownCause::Pending,
            is_asleep,
            maintenance: drive.maintenance,
            maintenance_until: timestamp_from_wire(order.and_then(|it| it.until)),
            has_smart_data: answered,
            identity: DriveIdentity::from_wire(drive),
        }
    }
}

impl Volume {
    fn from_wire(volume: &wire::Volume) -> Volume {
        let host = volume.mounts.iter().find(|mount| mount.role() == wire::MountRole::Host);
        let name = match (volume.pv.as_str(), host) {
            ("", Some(mount)) => format!("filesystem {}", mount.path),
            ("", None) => format!("volume {}", volume.id),
            (pv, _) => format!("volume {pv}"),
        };
        let mut pods: Vec<PodRef> = volume
            .pods
            .iter()
            .filter(|pod| !pod.name.is_empty() && !pod.namespace.is_empty())
            .map(|pod| PodRef {
                uid: pod.uid.clone(),
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
            })
            .collect();
        pods.sort_by(|a, b| (&a.uid, &a.namespace, &a.name).cmp(&(&b.uid, &b.namespace, &b.name)));
        pods.dedup();
        let state = health::state_status(volume).map(|state| state.reason);
        let (health, why) = (health_from_wire(volume.health()), volume.health_unknown_why.clone());
        Volume {
            name,
            health,
            why,
            is_pending: volume.health_unknown_cause() == wire::UnknownCause::Pending,
            pods,
            pv_uses: pv_uses(volume),
            state_reason: state,
            drives: volume.drive_ids.clone(),
            identity: VolumeIdentity::from_wire(volume),
        }
    }
}

/// A pool and a volume itself have no redundancy that could hide their problem.
fn covered_volumes(cause: &wire::Cause) -> Vec<(String, bool)> {
    use wire::cause::Kind;
    match cause.kind() {
        Kind::Drive | Kind::Array | Kind::Device => {}
        Kind::Pool | Kind::Mount | Kind::Source | Kind::Unspecified => return Vec::new(),
    }
    let hits = cause.hits.iter().filter(|hit| !hit.volume_id.is_empty());
    let mut volumes: Vec<_> = hits.map(|hit| (hit.volume_id.clone(), hit.covered)).collect();
    volumes.sort();
    volumes.dedup();
    volumes
}

/// PersistentVolumes of a volume. In the directories of these plugins the kubelet uses the name of
/// the PersistentVolume.
fn pv_uses(volume: &wire::Volume) -> Vec<PvUse> {
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    if !volume.pv.is_empty() {
        uses.entry(&volume.pv).or_default();
    }
    for pod in &volume.pods {
        let parts: Vec<&str> = pod.path.split('/').collect();
        let plugin = parts.iter().position(|part| *part == pod.uid).and_then(|at| {
            match parts.get(at + 1..at + 3) {
                Some(["volumes", plugin]) => Some(*plugin),
                _ => None,
            }
        });
        let pv = match plugin {
            Some("kubernetes.io~local-volume") => pod.volume_name.as_str(),
            Some("kubernetes.io~csi") if !volume.ephemeral => pod.volume_name.as_str(),
            // For another plugin this may be the name in the pod's specification; the record of a
            // raw block volume names its PV.
            _ => volume.pv.as_str(),
        };
        if !pv.is_empty() {
            uses.entry(pv)
                .or_default()
                .extend(Some(pod.namespace.clone()).filter(|namespace| !namespace.is_empty()));
        }
    }
    uses.into_iter().map(|(pv, namespaces)| PvUse { pv: pv.to_owned(), namespaces }).collect()
}

/// Whether the daemon derives a volume's state from findings of this reason (`model::condition`).
fn explains_state(finding: &str, state: &str) -> bool {
    let finding = finding.parse();
    let unmounted = finding.clone().is_ok_and(Reason::is_unmounted);
    match state.parse() {
        Ok(Reason::DeviceMissing) => unmounted || finding == Ok(Reason::DeviceMissing),
        Ok(Reason::NotMounted) => unmounted,
        // Every finding results in this state.
        _ => true,
    }
}

fn health_from_wire(health: wire::Health) -> Health {
    match health {
        wire::Health::Good => Health::Good,
        wire::Health::Suspect => Health::Suspect,
        wire::Health::Bad => Health::Bad,
        wire::Health::Unknown | wire::Health::Unspecified => Health::Unknown,
    }
}

/// An unknown severity of a newer daemon is at least suspect.
fn severity_from_wire(severity: wire::Severity) -> Severity {
    match severity {
        wire::Severity::Info => Severity::Info,
        wire::Severity::Suspect | wire::Severity::Unspecified => Severity::Suspect,
        wire::Severity::Bad => Severity::Bad,
    }
}

pub(crate) fn timestamp_from_wire(time: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
}

#[cfg(test)]
mod tests;
