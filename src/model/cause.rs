//! Active findings grouped by their cause: the drive, array, pool, other device or mount that has the
//! problem. Pure.
//!
//! In: a snapshot, and the states of its layers. Out: one `Cause` for each, with its findings, what
//! follows from it, and the mounts and pods that it hits. Every active finding is in at least one
//! cause. Judgement does not belong here: `assess` has decided severities, `ledger` what follows from
//! the failure of a drive.

mod describe;
pub(crate) mod figures;
mod hits;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::advice::{self, Action};
use crate::assess::shares_controller;
use crate::block::LayerState;
use crate::facts::Facts;
use crate::label;
use crate::snapshot::{Drive, Snapshot, Volume};
use crate::stack::{self, StorageStack};
use diskvitals_finding::ids::{CauseId, DriveId, FindingId, VolumeId};
use diskvitals_finding::reason::{LayerKind, LoggedErrors, Reason};
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Finding, Subject};

/// Ordered: among equally severe causes, what is below comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    Drive,
    Array,
    Pool,
    /// Any other block device: multipath, a partition without a volume.
    Device,
    /// A filesystem or a CSI volume.
    Mount,
    /// What the daemon cannot read.
    Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub id: CauseId,
    pub kind: CauseKind,
    pub subject: Subject,
    /// As people call it: `sda`, `md127`, `vg/pool`, `/srv`.
    pub name: String,
    /// `raid1, 1 of 2 devices`, `ext4 on vg/home`; empty for a drive.
    pub detail: String,
    /// Of a drive; otherwise empty.
    pub slot: String,
    pub model: String,
    pub serial: String,
    /// The worst of its findings that count; of all, if none counts.
    pub severity: Severity,
    /// False if all its findings are acknowledged, or explained by maintenance.
    pub counted: bool,
    pub since: Timestamp,
    /// Findings of the cause itself, worst first.
    pub findings: Vec<CauseFinding>,
    /// Findings of volumes that follow from it, worst first.
    pub consequences: Vec<CauseFinding>,
    /// What is on it, unprotected first.
    pub hits: Vec<Hit>,
    /// The message of the worst finding.
    pub message: String,
    /// What to do, in one sentence or two.
    pub action: String,
    /// The name that `diskvitals explain` takes.
    pub explain: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseFinding {
    pub id: FindingId,
    pub subject: Subject,
    pub reason: Reason,
    pub severity: Severity,
    pub acknowledged: bool,
    pub maintained: bool,
    /// The number behind the finding: `24`, `97 %`, `61 °C`; empty if it has none.
    pub figure: String,
    /// By how much its counter has grown within a day of the last reading; 0: not, or not known.
    pub grown_today: u64,
}

/// One name of something on a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub kind: HitKind,
    pub name: String,
    /// None for swap.
    pub volume: Option<VolumeId>,
    /// Redundancy keeps it intact without the cause.
    pub covered: bool,
    /// That is so, and no redundancy is left: the next failure may lose it.
    pub last_copy: bool,
    /// What follows there, `DriveFailing` left out.
    pub reasons: Vec<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HitKind {
    Mount,
    Pod,
    /// A PersistentVolume whose pods are not known.
    Pv,
    /// Anything else that carries a volume.
    Device,
    Swap,
}

/// Sort key of a cause in a list: those that count first, worst first. The id makes it unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CauseRank {
    pub group: u8,
    /// Less for worse ones; among equally severe ones, less for those that lead.
    pub severity: u8,
    pub kind: u8,
    pub name: String,
    pub id: String,
}

impl Cause {
    pub fn rank(&self) -> CauseRank {
        let name = match &self.subject {
            // A missing drive keeps its place.
            Subject::Drive(_) => self.name.strip_prefix("was ").unwrap_or(&self.name),
            _ => &self.name,
        };
        CauseRank {
            group: u8::from(!self.counted),
            severity: u8::MAX - 2 * self.severity as u8 - u8::from(self.leads()),
            kind: self.kind as u8,
            name: label::sort_key(name),
            id: self.id.to_string(),
        }
    }

    /// Whether it comes first among equally severe causes.
    fn leads(&self) -> bool {
        self.all_findings().any(|it| it.severity == self.severity && it.reason.leads())
    }

    fn all_findings(&self) -> impl Iterator<Item = &CauseFinding> {
        self.findings.iter().chain(&self.consequences)
    }

    pub fn contains(&self, finding: &FindingId) -> bool {
        self.all_findings().any(|it| it.id == *finding)
    }
}

/// What a finding comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Drive(DriveId),
    /// Kernel name.
    Array(String),
    /// A filesystem over several devices, by UUID.
    MultiDevice(String),
    Pool(String),
    Device(String),
    /// By UUID: mounted or not.
    Filesystem(String),
    Volume(VolumeId),
    Source(Source),
}

impl Origin {
    /// Its kernel name, if it is a device above the drives.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Origin::Array(name) | Origin::Pool(name) | Origin::Device(name) => Some(name),
            Origin::Drive(_)
            | Origin::MultiDevice(_)
            | Origin::Filesystem(_)
            | Origin::Volume(_)
            | Origin::Source(_) => None,
        }
    }
}

#[derive(Default)]
struct Group<'a> {
    own: Vec<&'a Finding>,
    consequences: Vec<&'a Finding>,
}

/// All causes of the snapshot's active findings.
pub fn group(snapshot: &Snapshot, facts: &Facts, now: Timestamp) -> BTreeMap<CauseId, Cause> {
    if snapshot.findings.is_empty() {
        return BTreeMap::new();
    }
    let grouping = Grouping { snapshot, facts, now };
    let mut groups: BTreeMap<Origin, Group> = BTreeMap::new();
    for finding in snapshot.findings.values().map(Arc::as_ref) {
        let (origins, follows) = grouping.origins(finding);
        for origin in origins {
            let group = groups.entry(origin).or_default();
            match follows {
                true => group.consequences.push(finding),
                false => group.own.push(finding),
            }
        }
    }
    let causes = groups.iter().map(|(origin, group)| {
        let cause = grouping.cause(origin, group);
        (cause.id.clone(), cause)
    });
    causes.collect()
}

pub(crate) struct Grouping<'a> {
    pub snapshot: &'a Snapshot,
    pub facts: &'a Facts,
    pub now: Timestamp,
}

impl<'a> Grouping<'a> {
    /// The origins of a finding, and whether it is a consequence there.
    pub(crate) fn origins(&self, finding: &Finding) -> (Vec<Origin>, bool) {
        let id = match &finding.subject {
            Subject::Drive(id) => return (vec![Origin::Drive(id.clone())], false),
            Subject::Device(name) => {
                let filesystem = self.filesystem_of_device(name, finding.reason);
                let origin = filesystem.unwrap_or_else(|| self.device_origin(name));
                return (vec![origin], false);
            }
            Subject::Source(source) => return (vec![Origin::Source(*source)], false),
            Subject::Volume(id) => id,
        };
        let Some(volume) = self.snapshot.volumes.get(id) else {
            return (vec![Origin::Volume(id.clone())], false);
        };
        let follows = finding.reason.is_of_drives() || self.follows_drive(volume, finding);
        let layers = self.layer_origins(volume, finding.reason);
        let drives = match follows {
            true => self.worst_drives(volume),
            false => self.former_members(&layers),
        };
        // An array that lacks a drive has its own cause only if that drive is not known.
        let lacks_drive = |id: &DriveId| self.own_findings(id).any(|it| it.reason.leaves_array());
        if !layers.is_empty() && !drives.iter().any(lacks_drive) {
            return (layers, false);
        }
        if drives.is_empty() {
            return match self.stopped_pool(volume, finding.reason) {
                Some(pool) => (vec![pool], true),
                None => (vec![self.volume_origin(volume)], false),
            };
        }
        (drives.into_iter().map(Origin::Drive).collect(), true)
    }

    /// The ZFS pool that has stopped below the volume, if that explains why reads or writes of it fail.
    fn stopped_pool(&self, volume: &Volume, reason: Reason) -> Option<Origin> {
        let stops = |it: &Reason| it.layer() == Some(LayerKind::Zpool) && it.is_unreachable();
        let findings = volume.findings.iter().filter_map(|id| self.snapshot.findings.get(id));
        let stopped = findings.map(|finding| finding.reason).filter(|_| reason.follows_drive());
        self.layer_origins(volume, stopped.into_iter().find(stops)?).into_iter().next()
    }

    /// Whether DriveFailing announces the finding, or the finding announces DriveFailing.
    fn follows_drive(&self, volume: &Volume, finding: &Finding) -> bool {
        let leader = finding.follows.as_ref().unwrap_or(&finding.id);
        let mut others = volume.findings.iter().filter_map(|id| self.snapshot.findings.get(id));
        others.any(|other| {
            other.reason == Reason::DriveFailing
                && (other.id == *leader || other.follows.as_ref() == Some(leader))
        })
    }

    /// The adverse findings of a drive.
    pub(crate) fn own_findings(&self, drive: &DriveId) -> impl Iterator<Item = &'a Finding> {
        let findings = &self.snapshot.findings;
        let drive = self.snapshot.drives.get(drive);
        drive
            .into_iter()
            .flat_map(|drive| &drive.findings)
            .filter_map(|id| findings.get(id).map(Arc::as_ref))
            .filter(|finding| finding.severity > Severity::Info)
    }

    /// Those of the failing drives below the volume that are as bad as the worst of them.
    fn worst_drives(&self, volume: &Volume) -> Vec<DriveId> {
        let failing = self.failing_drives(volume);
        let worst = failing.iter().map(|(severity, _)| *severity).max();
        let failing = failing.into_iter().filter(|(severity, _)| Some(*severity) == worst);
        failing.map(|(_, id)| id.clone()).collect()
    }

    /// The drives below the volume that have adverse findings, with the worst severity of each.
    pub(crate) fn failing_drives(&self, volume: &Volume) -> Vec<(Severity, &'a DriveId)> {
        let of_volume = || {
            let ids = volume.facts.drive_ids.iter();
            ids.filter_map(|id| Some(&self.snapshot.drives.get(id)?.facts))
        };
        let below = |id: &DriveId, drive: &Drive| {
            volume.facts.drive_ids.contains(id) || shares_controller(&drive.facts, of_volume())
        };
        let drives = self.snapshot.drives.iter();
        drives
            .filter(|(_, drive)| !drive.findings.is_empty())
            .filter(|(id, drive)| below(id, drive))
            .filter_map(|(id, _)| {
                let worst = self.own_findings(id).map(|finding| finding.severity).max();
                Some((worst?, id))
            })
            .collect()
    }

    /// The drives that md has taken out of these arrays.
    fn former_members(&self, layers: &[Origin]) -> Vec<DriveId> {
        if !layers.iter().any(|layer| matches!(layer, Origin::Array(_))) {
            return Vec::new();
        }
        let inventory = &self.snapshot.inventory;
        let is_former = |id: &DriveId| {
            layers.iter().any(|layer| match layer {
                Origin::Array(name) => self
                    .stack(name)
                    .is_some_and(|it| !it.runs_without(inventory, name, id).is_empty()),
                _ => false,
            })
        };
        let is_reported =
            |id: &DriveId| self.own_findings(id).any(|it| it.reason == Reason::RaidMemberFailed);
        let drives = self.snapshot.drives.keys();
        let former = drives.filter(|id| is_reported(id) && is_former(id));
        former.cloned().collect()
    }

    fn layer_state(&self, name: &str) -> Option<&'a LayerState> {
        self.facts.layers.get(name)?.state.last_known()
    }

    fn stack(&self, name: &str) -> Option<&'a dyn StorageStack> {
        self.layer_state(name)?.stack()
    }

    /// None: it is none, or its state is not known.
    pub(crate) fn stack_of(&self, origin: &Origin) -> Option<&'a dyn StorageStack> {
        match origin {
            Origin::MultiDevice(uuid) => stack::of_uuid(&self.snapshot.inventory, uuid),
            other => self.stack(other.device()?),
        }
    }

    fn device_origin(&self, name: &str) -> Origin {
        match self.stack(name).map(|stack| stack.kind()) {
            Some(LayerKind::Array) => Origin::Array(name.to_owned()),
            Some(LayerKind::Pool | LayerKind::Zpool) => Origin::Pool(name.to_owned()),
            Some(LayerKind::Paths | LayerKind::Cache | LayerKind::Scrubbed) | None => {
                Origin::Device(name.to_owned())
            }
        }
    }

    /// The filesystem itself, so that it is one cause with what is known of its device while it is not
    /// mounted. Volumes that share a UUID (a snapshot beside its origin) are each its own.
    fn volume_origin(&self, volume: &Volume) -> Origin {
        let facts = &volume.facts;
        match &facts.fs_uuid {
            Some(uuid) if self.volumes_of(uuid).take(2).count() == 1 => {
                Origin::Filesystem(uuid.clone())
            }
            _ => Origin::Volume(facts.id.clone()),
        }
    }

    fn volumes_of<'s>(&'s self, uuid: &'s str) -> impl Iterator<Item = &'a Volume> + 's {
        let volumes = self.snapshot.volumes.values().map(Arc::as_ref);
        volumes.filter(move |volume| volume.facts.fs_uuid.as_deref() == Some(uuid))
    }

    /// The filesystem that a device's finding is about.
    fn filesystem_of_device(&self, name: &str, reason: Reason) -> Option<Origin> {
        let is_about_it = match reason.logged_errors()? {
            LoggedErrors::Corruption | LoggedErrors::Filesystem => true,
            LoggedErrors::Io => self.layer_state(name).is_none(),
            LoggedErrors::Medium
            | LoggedErrors::Timeout
            | LoggedErrors::Reset
            | LoggedErrors::Transport
            | LoggedErrors::ArrayState => false,
        };
        let uuid = self.facts.device_uuid(name).filter(|_| is_about_it)?;
        (self.volumes_of(uuid).take(2).count() < 2).then(|| Origin::Filesystem(uuid.clone()))
    }

    /// The arrays, pools and multipath devices below the volume that a finding of this reason is
    /// about: those in a bad state; without one, the state was read earlier, and all of the kind.
    pub(crate) fn layer_origins(&self, volume: &Volume, reason: Reason) -> Vec<Origin> {
        let Some(kind) = reason.layer() else {
            return Vec::new();
        };
        if let Some((uuid, stack)) = stack::of_volume(&self.snapshot.inventory, &volume.facts)
            && stack.kind() == kind
            && stack.is_bad()
        {
            return vec![Origin::MultiDevice(uuid.to_owned())];
        }
        let names = volume.facts.devices.iter();
        let of_kind: Vec<(&String, &dyn StorageStack)> = names
            .filter_map(|name| Some((name, self.stack(name)?)))
            .filter(|(_, stack)| match kind {
                LayerKind::Scrubbed => stack.is_scrubbed(),
                _ => stack.kind() == kind,
            })
            .collect();
        let bad: Vec<_> = of_kind.iter().filter(|(_, stack)| stack.is_bad()).collect();
        let shown = match bad.is_empty() {
            true => of_kind.iter().collect(),
            false => bad,
        };
        shown.into_iter().map(|(name, _)| self.device_origin(name)).collect()
    }

    fn cause(&self, origin: &Origin, group: &Group) -> Cause {
        let mut own = group.own.clone();
        let mut consequences = group.consequences.clone();
        for findings in [&mut own, &mut consequences] {
            findings.sort_by(|a, b| {
                (b.weight(), a.reason, &a.subject)
                    .cmp(&(a.weight(), b.reason, &b.subject))
                    .then_with(|| a.id.cmp(&b.id))
            });
        }
        let all = || own.iter().chain(&consequences);
        let counted = all().filter(|finding| !finding.is_set_aside());
        let counted = counted.map(|finding| finding.severity).max();
        let any = all().map(|finding| finding.severity).max();
        let first = own.first().or(consequences.first());
        let entries = |findings: &[&Finding]| -> Vec<CauseFinding> {
            let findings = findings.iter().map(|it| self.cause_finding(it));
            let mut entries: Vec<CauseFinding> = findings.collect();
            // What grows comes first.
            entries.sort_by_key(|it| {
                std::cmp::Reverse((it.severity, it.reason.leads(), it.grown_today > 0))
            });
            entries
        };
        let mut cause = Cause {
            severity: counted.or(any).unwrap_or(Severity::Info),
            counted: counted.is_some(),
            since: own.iter().map(|finding| finding.since).min().unwrap_or(self.now),
            // One array has one finding for each of its volumes.
            message: first.map(|finding| finding.message.clone()).unwrap_or_default(),
            action: first
                .map(|finding| advice::for_finding(self.snapshot, finding))
                .unwrap_or_default(),
            findings: entries(&own),
            consequences: entries(&consequences),
            ..self.described(origin)
        };
        if let Origin::Drive(id) = origin
            && let Some(drive) = self.snapshot.drives.get(id)
            && let Some(advice) = advice::advise(self.snapshot, drive)
            // The text of the reason is more exact than that.
            && advice.action != Action::Watch
        {
            cause.action = advice.to_do;
        }
        cause.hits = self.hits(origin, &cause);
        cause
    }

    fn cause_finding(&self, finding: &Finding) -> CauseFinding {
        let (figure, grown_today) = figures::of_finding(self.snapshot, finding, self.now);
        CauseFinding {
            id: finding.id.clone(),
            subject: finding.subject.clone(),
            reason: finding.reason,
            severity: finding.severity,
            acknowledged: finding.acknowledged.is_some(),
            maintained: finding.maintained,
            figure,
            grown_today,
        }
    }
}

/// Without findings, about nothing.
impl Default for Cause {
    fn default() -> Self {
        Cause {
            id: CauseId::default(),
            kind: CauseKind::Device,
            subject: Subject::Device(String::new()),
            name: String::new(),
            detail: String::new(),
            slot: String::new(),
            model: String::new(),
            serial: String::new(),
            severity: Severity::Info,
            counted: false,
            since: Timestamp::UNIX_EPOCH,
            findings: Vec::new(),
            consequences: Vec::new(),
            hits: Vec::new(),
            message: String::new(),
            action: String::new(),
            explain: String::new(),
        }
    }
}
