//! What a cause hits: mount points, pods, PVs, OSDs, zvols and swap on it, under people's names.

use std::collections::BTreeSet;

use crate::advice::has_last_copy;
use crate::assess::shares_controller;
use crate::block::Layer;
use crate::cause::{Cause, Grouping, Hit, HitKind, Origin};
use crate::label;
use crate::membership;
use crate::snapshot::{Drive, Volume};
use crate::stack;
use crate::volume::Impact;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Health, Subject};

impl Grouping<'_> {
    pub(super) fn hits(&self, origin: &Origin, cause: &Cause) -> Vec<Hit> {
        let volumes = self.snapshot.volumes.values();
        let mut hits: Vec<Hit> = volumes
            .filter(|volume| self.is_on(volume, origin))
            .flat_map(|volume| self.names(volume, origin, cause))
            .collect();
        if matches!(origin, Origin::Volume(_) | Origin::Filesystem(_)) {
            // The cause has this name itself.
            hits.retain(|hit| hit.name != cause.name && format!("pod {}", hit.name) != cause.name);
        }
        hits.extend(self.unmounted(origin));
        hits.sort_by_cached_key(|hit| {
            let (calm, name) = (hit.reasons.is_empty(), label::sort_key(&hit.name));
            (hit.covered, !hit.last_copy, calm, hit.kind, name, hit.name.clone())
        });
        hits.dedup_by(|a, b| (a.kind, &a.name) == (b.kind, &b.name));
        hits
    }

    fn is_on(&self, volume: &Volume, origin: &Origin) -> bool {
        let facts = &volume.facts;
        match origin {
            Origin::Volume(id) => facts.id == *id,
            Origin::Filesystem(uuid) => facts.fs_uuid.as_ref() == Some(uuid),
            Origin::Array(name) | Origin::Pool(name) | Origin::Device(name) => {
                facts.devices.contains(name)
            }
            Origin::MultiDevice(uuid) => {
                let stack = stack::of_volume(&self.snapshot.inventory, facts);
                stack.is_some_and(|(its, _)| its == uuid)
            }
            Origin::Source(_) => false,
            Origin::Drive(id) => self.snapshot.drives.get(id).is_some_and(|drive| {
                let drives = facts.drive_ids.iter();
                let drives = drives.filter_map(|id| Some(&self.snapshot.drives.get(id)?.facts));
                drive.volumes.contains(&facts.id)
                    || facts.drive_ids.contains(id)
                    || shares_controller(&drive.facts, drives)
            }),
        }
    }

    fn names(&self, volume: &Volume, origin: &Origin, cause: &Cause) -> Vec<Hit> {
        let facts = &volume.facts;
        let reasons: BTreeSet<Reason> = cause
            .consequences
            .iter()
            .filter(|finding| matches!(&finding.subject, Subject::Volume(id) if *id == facts.id))
            .map(|finding| finding.reason)
            .filter(|reason| *reason != Reason::DriveFailing)
            .collect();
        let covered = match origin {
            Origin::Drive(id) => self.is_covered(id, volume),
            Origin::Array(_) | Origin::MultiDevice(_) | Origin::Device(_) => {
                cause.severity < Severity::Bad && volume.health != Health::Bad
            }
            Origin::Pool(_) | Origin::Volume(_) | Origin::Filesystem(_) | Origin::Source(_) => {
                false
            }
        };
        let last_copy =
            covered && (has_last_copy(self.snapshot, volume) || self.has_one_path(origin));
        let hit = |kind, name: String| Hit {
            kind,
            name,
            volume: Some(facts.id.clone()),
            covered,
            last_copy,
            reasons: reasons.iter().copied().collect(),
        };
        let mounts = label::host_mounts(facts).map(|path| hit(HitKind::Mount, path.to_string()));
        let pods = label::pods(facts).into_iter().map(|pod| hit(HitKind::Pod, pod));
        let mut hits: Vec<Hit> = mounts.chain(pods).collect();
        if hits.is_empty() {
            hits.push(match &facts.pv {
                Some(pv) => hit(HitKind::Pv, pv.clone()),
                None => hit(HitKind::Device, label::volume(&self.snapshot.inventory, facts)),
            });
        }
        hits
    }

    /// The next failed path of a multipath device takes it away.
    fn has_one_path(&self, origin: &Origin) -> bool {
        let Origin::Device(name) = origin else {
            return false;
        };
        self.stack(name).and_then(|stack| stack.tolerates()) == Some(0)
    }

    /// Whether the volume stays intact if the drive fails together with every drive that is BAD.
    fn is_covered(&self, id: &DriveId, volume: &Volume) -> bool {
        let is_bad = |drive: &Drive| drive.health == Health::Bad;
        let fails = |other: &DriveId| {
            other == id || self.snapshot.drives.get(other).is_some_and(|it| is_bad(it))
        };
        match volume.facts.stack.impact(&fails) {
            Impact::Exposed | Impact::Unknown => false,
            Impact::Covered => true,
            // The stack lists only members that carry data: an array has lost the drive already.
            Impact::None => volume.facts.stack.has_redundancy() && volume.health != Health::Bad,
        }
    }

    /// Whether an array or a pool below the device may lose the drive together with every drive of it
    /// that is BAD.
    fn is_device_covered(&self, id: &DriveId, device: &str) -> bool {
        let inventory = &self.snapshot.inventory;
        inventory.devices_below(device).into_iter().any(|name| {
            let drives = inventory.drives_below(name);
            let is_bad = |it: &&DriveId| {
                self.snapshot.drives.get(*it).is_some_and(|it| it.health == Health::Bad)
            };
            let failing = drives.iter().filter(|it| **it == id || is_bad(it)).count();
            let tolerates = self.stack(name).and_then(|stack| stack.tolerates());
            drives.contains(id) && tolerates.is_some_and(|tolerates| failing <= tolerates)
        })
    }

    /// Swap, OSDs, and the zvols of which this host mounts nothing: those of virtual machines.
    fn unmounted(&self, origin: &Origin) -> Vec<Hit> {
        let inventory = &self.snapshot.inventory;
        let is_on = |device: &str| match origin {
            Origin::Drive(id) => inventory.drives_below(device).contains(id),
            Origin::Array(name) | Origin::Pool(name) | Origin::Device(name) => {
                inventory.devices_below(device).contains(name.as_str())
            }
            Origin::MultiDevice(_)
            | Origin::Volume(_)
            | Origin::Filesystem(_)
            | Origin::Source(_) => false,
        };
        let swaps = inventory.swaps.keys().filter(|device| is_on(device));
        let swaps = swaps.map(|device| (HitKind::Swap, device, label::device(inventory, device)));
        let osds = inventory.signatures.iter().filter(|(device, _)| is_on(device));
        let osds = osds.flat_map(|(device, found)| {
            let labels = found.iter().filter_map(|it| it.osd.as_ref());
            labels.map(move |it| (HitKind::Device, device, membership::osd_name(inventory, it)))
        });
        let volumes = || self.snapshot.volumes.values();
        let is_mounted =
            |device: &String| volumes().any(|volume| volume.facts.devices.contains(device));
        let zvols = inventory.devices.values().filter(|device| {
            matches!(device.layer, Layer::Zvol { .. })
                && is_on(&device.name)
                && !is_mounted(&device.name)
        });
        let zvols = zvols.map(|it| (HitKind::Device, &it.name, label::device(inventory, &it.name)));
        let hit = |(kind, device, name): (HitKind, &String, String)| Hit {
            kind,
            name,
            volume: None,
            covered: matches!(origin, Origin::Drive(id) if self.is_device_covered(id, device)),
            last_copy: false,
            reasons: Vec::new(),
        };
        swaps.chain(osds).chain(zvols).map(hit).collect()
    }
}
