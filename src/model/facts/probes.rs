//! Probes: which mounts of volumes are probed, and the last result of each.
//!
//! In: the mounts of volumes, results of probes. Out: the last result of each mount, with the last
//! measured usage; which mounts are new although the mount table did not show it; which to probe at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::facts::Urgency;
use crate::facts::apply::set_stuck;
use crate::probe::{MountProbe, StuckProbe, Usage};
use diskvitals_finding::btrfs_space::BtrfsSpace;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::failure_domain::FailureDomains;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;
use diskvitals_text::duration::elapsed;

/// Records of the kernel's log cause at most this number of probes within `LOG_PERIOD`, and one of each
/// mount: any user may be able to forge them.
const MAX_FOR_LOG: usize = 16;
const LOG_PERIOD: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub struct Probes {
    results: BTreeMap<HostPath, ProbeFacts>,
    /// Every mount of every volume that can be probed, by path.
    mounts: BTreeMap<HostPath, ProbedMount>,
    /// The state before a restart of the daemon, for the next update of the volumes: each mount, and
    /// whether it had been probed with an answer.
    restored: BTreeMap<HostPath, (ProbedMount, bool)>,
    /// Mounts of filesystems that have just failed.
    requests: BTreeSet<HostPath>,
    /// Those that the kernel's log has caused, with their times.
    for_log: BTreeMap<HostPath, Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedMount {
    pub id: u32,
    pub dev: DevNo,
    pub volume: VolumeId,
    pub filesystem: String,
    /// A server answers, not a device of this node.
    pub is_network: bool,
    pub domains: FailureDomains,
}

#[derive(Clone, Debug, Default)]
pub struct ProbeFacts {
    pub result: Observation<MountProbe>,
    /// The last measured usage, with its time. It is shown, marked stale, while probes fail.
    pub usage: Option<(Usage, Timestamp)>,
    /// What a btrfs could allocate at that time.
    pub btrfs: Option<Box<BtrfsSpace>>,
    /// The UUID of the btrfs that the last answer was about, with the source of its mount then.
    pub mounted_btrfs: Option<(HostPath, String)>,
    pub stuck: Option<StuckProbe>,
    /// A probe of this mount has been answered, in this run or in an earlier one.
    pub answered: bool,
    /// The unique id of the mount, and when it was last seen.
    pub mount_id: Option<(u64, Timestamp)>,
}

/// What a probe's result changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeChange {
    pub urgency: Urgency,
    /// It is the first answer of this mount.
    pub is_first: bool,
    /// Another mount was there when it was last seen: it was mounted anew since then.
    pub replaced_since: Option<Timestamp>,
}

impl Probes {
    pub fn get(&self, path: &HostPath) -> Option<&ProbeFacts> {
        self.results.get(path)
    }

    pub fn mounts(&self) -> &BTreeMap<HostPath, ProbedMount> {
        &self.mounts
    }

    /// Returns whether something else was known before.
    pub(super) fn set_mounted_btrfs(
        &mut self,
        path: &HostPath,
        source: HostPath,
        uuid: String,
    ) -> bool {
        let named = Some((source, uuid));
        let known = self.results.get_mut(path);
        known.is_some_and(|known| {
            std::mem::replace(&mut known.mounted_btrfs, named.clone()) != named
        })
    }

    pub(super) fn stuck_count(&self) -> usize {
        let stuck = |probe: &&ProbeFacts| probe.stuck.is_some();
        self.results.values().filter(stuck).count()
    }

    pub(super) fn restore_mounts(&mut self, mounts: BTreeMap<HostPath, (ProbedMount, bool)>) {
        self.restored = mounts;
    }

    /// Before an update of the volumes: a mount of the same device is that from before the restart.
    pub(super) fn use_restored_mounts(&mut self) {
        for (path, (restored, answered)) in std::mem::take(&mut self.restored) {
            let mount = self.mounts.entry(path.clone());
            let mount = mount.or_insert_with(|| restored.clone());
            if mount.dev == restored.dev {
                *mount = restored;
                if answered {
                    self.results.entry(path).or_default().answered = true;
                }
            }
        }
    }

    pub(super) fn set_mounts(&mut self, mounts: BTreeMap<HostPath, ProbedMount>) {
        // Another filesystem on the same path has not been probed yet.
        self.results.retain(|path, _| {
            mounts.get(path).is_some_and(|mount| {
                self.mounts.get(path).is_none_or(|before| before.dev == mount.dev)
            })
        });
        self.mounts = mounts;
    }

    pub(super) fn apply_stuck(&mut self, path: HostPath, stuck: StuckProbe) -> Urgency {
        if !self.mounts.contains_key(&path) {
            return Urgency::Nothing;
        }
        set_stuck(&mut self.results.entry(path).or_default().stuck, stuck)
    }

    /// A filesystem has failed: which mount it had is known at once, so that a later one is new.
    pub(super) fn request(&mut self, volume: &VolumeId) {
        let mounts = self.mounts.iter();
        let of_volume = mounts.filter(|(_, mount)| mount.volume == *volume);
        self.requests.extend(of_volume.map(|(path, _)| path.clone()));
    }

    /// The kernel's log reports errors below these volumes, or of them: whether they can be read says
    /// more. One that does not answer is probed anyway.
    pub(super) fn request_for_log<'a>(
        &mut self,
        volumes: impl IntoIterator<Item = &'a VolumeId>,
        now: Timestamp,
    ) {
        self.for_log.retain(|_, at| elapsed(*at, now) < LOG_PERIOD);
        let mut room = MAX_FOR_LOG.saturating_sub(self.for_log.len());
        for volume in volumes {
            // Its other mounts read the same filesystem.
            let mut mounts = self.mounts.iter();
            let mount = mounts.find(|(_, mount)| mount.volume == *volume);
            let Some((path, _)) = mount.filter(|_| room > 0) else {
                continue;
            };
            let is_stuck = self.results.get(path).is_some_and(|probe| probe.stuck.is_some());
            if !is_stuck && !self.for_log.contains_key(path) {
                self.for_log.insert(path.clone(), now);
                self.requests.insert(path.clone());
                room -= 1;
            }
        }
    }

    pub(super) fn take_requests(&mut self) -> Vec<HostPath> {
        std::mem::take(&mut self.requests).into_iter().collect()
    }

    pub(super) fn apply(&mut self, path: HostPath, seen: Observation<MountProbe>) -> ProbeChange {
        // A result for an unmounted mount does not describe the current one.
        if !self.mounts.contains_key(&path) {
            return ProbeChange {
                urgency: Urgency::Nothing,
                is_first: false,
                replaced_since: None,
            };
        }
        let known = self.results.entry(path).or_default();
        let ProbeFacts { result, usage, btrfs, stuck, answered, mount_id, .. } = known;
        let mut is_first = false;
        let mut replaced_since = None;
        let mut change = match (&*result, &seen) {
            (Observation::Ok { value: before, .. }, Observation::Ok { value: after, .. })
                if before == after =>
            {
                Urgency::Nothing
            }
            (Observation::Ok { value: before, .. }, Observation::Ok { value: after, .. }) => {
                let same = before.statfs.is_ok() == after.statfs.is_ok()
                    && before.statfs.as_ref().err() == after.statfs.as_ref().err()
                    && before.readdir == after.readdir;
                if same { Urgency::UsageOnly } else { Urgency::Immediate }
            }
            (before, after) if before.error().is_some() && before.error() == after.error() => {
                Urgency::Nothing
            }
            (Observation::Unavailable, Observation::Unavailable) => Urgency::Nothing,
            _ => Urgency::Immediate,
        };
        if let Observation::Ok { at, value } = &seen {
            if stuck.take().is_some() {
                change = Urgency::Immediate;
            }
            // A filesystem that shows no size at all is not measured: FUSE answers like this to
            // those whom it does not serve (fuse_statfs(), fs/fuse/inode.c).
            if let Ok(measured) = value.statfs
                && measured.total_bytes > 0
            {
                *usage = Some((measured, *at));
                btrfs.clone_from(&value.btrfs);
            }
            is_first = !std::mem::replace(answered, true);
            if let Some(id) = value.mount_id {
                let before = mount_id.replace((id, *at));
                let other = before.filter(|(before, _)| *before != id);
                replaced_since = other.map(|(_, seen)| seen);
            }
            if replaced_since.is_some() {
                change = Urgency::Immediate;
            }
        }
        *result = seen;
        ProbeChange { urgency: change, is_first, replaced_since }
    }

    #[cfg(test)]
    pub fn insert(&mut self, path: HostPath, probe: ProbeFacts) {
        self.results.insert(path, probe);
    }

    #[cfg(test)]
    pub fn get_mut(&mut self, path: &HostPath) -> Option<&mut ProbeFacts> {
        self.results.get_mut(path)
    }
}
