//! The Explain answer: the chain of objects that a subject belongs to, with findings, advice and
//! checks. Pure.
//!
//! In: a snapshot and the objects that a query resolved to. Out: the wire's Explanation. A device
//! that left the inventory (a removed drive) is shown from the volume's stored list of devices.

mod chain;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::finding_order::rank;
use crate::api::resolve::{
    Resolved, reachable, underlying_devices, underlying_drives, volumes_on_device,
};
use diskvitals_convert as convert;
use diskvitals_finding::ids::{DriveId, VolumeId};
use diskvitals_finding::{Finding, Subject};
use diskvitals_model::advice::{Advice, advise};
use diskvitals_model::block::BlockDevice;
use diskvitals_model::snapshot::{Drive, Snapshot, Volume};
use diskvitals_wire as wire;

/// Maximum number of full drive and volume messages in one answer; the chain names the rest.
const MAX_FULL_MESSAGES: usize = 256;
/// Maximum number of findings in one answer.
const MAX_FINDINGS: usize = 256;
/// Maximum number of checks in one answer: each has up to `MAX_KEPT_OUTPUT` bytes per run.
const MAX_CHECKS: usize = 16;
/// Maximum number of the subject's cleared findings in one answer.
const MAX_CLEARED: usize = 20;

pub(crate) fn explain(snapshot: &Snapshot, named: &Resolved) -> wire::Explanation {
    let subjects = named.subjects();
    let around = RelatedObjects::from_subjects(snapshot, &subjects);
    let findings = findings(snapshot, &around, &subjects);
    wire::Explanation {
        subject: subjects.first().map(|subject| convert::subject(snapshot, subject)),
        subjects: subjects.iter().map(|subject| convert::subject(snapshot, subject)).collect(),
        chain: chain::chain(snapshot, &around),
        drives: around
            .drives_in(snapshot)
            .take(MAX_FULL_MESSAGES)
            .map(|drive| convert::drive(snapshot, drive))
            .collect(),
        volumes: around
            .volumes_in(snapshot)
            .take(MAX_FULL_MESSAGES)
            .map(|it| convert::volume(snapshot, it))
            .collect(),
        findings,
        advice: advice(snapshot, &around),
        checks: checks(snapshot, &around),
    }
}

/// The newest check of each volume, and of each device that was checked under its own name.
fn checks(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::Check> {
    let of_volumes = around.volumes.iter().filter_map(|id| {
        convert::check::newest_check(snapshot, |check| snapshot.is_check_of(check, id))
    });
    let on_device = |name: &String| {
        convert::check::newest_check(snapshot, |check| {
            check.target.volume.is_none() && check.target.device == *name
        })
    };
    let mut found: Vec<_> = of_volumes.chain(around.devices.iter().filter_map(on_device)).collect();
    found.sort_by(|a, b| (b.asked, &b.id).cmp(&(a.asked, &a.id)));
    found.dedup_by(|a, b| a.id == b.id);
    found.truncate(MAX_CHECKS);
    found.into_iter().map(convert::check::check_with_output).collect()
}

fn advice(snapshot: &Snapshot, around: &RelatedObjects) -> Vec<wire::Advice> {
    let drives = around.drives_in(snapshot);
    let mut all: Vec<Advice> = drives.filter_map(|drive| advise(snapshot, drive)).collect();
    all.sort_by(|a, b| b.action.cmp(&a.action).then_with(|| a.drive.cmp(&b.drive)));
    all.truncate(MAX_FULL_MESSAGES);
    all.iter().map(convert::advice).collect()
}

/// The objects that the answer contains.
#[derive(Default)]
struct RelatedObjects {
    drives: BTreeSet<DriveId>,
    /// Kernel names. Devices that are drives themselves are not in the chain.
    devices: BTreeSet<String>,
    volumes: BTreeSet<VolumeId>,
}

impl RelatedObjects {
    fn from_subjects(snapshot: &Snapshot, subjects: &[Subject]) -> RelatedObjects {
        let mut around = RelatedObjects::default();
        for subject in subjects {
            match subject {
                Subject::Volume(id) => around.add_volume(snapshot, id),
                Subject::Drive(id) => {
                    around.drives.insert(id.clone());
                    let Some(drive) = snapshot.drives.get(id) else {
                        continue;
                    };
                    around.volumes.extend(drive.volumes.iter().cloned());
                    // The kernel names of a missing drive may belong to another drive by now.
                    let own = |device: &&BlockDevice| device.drive.as_ref() == Some(id);
                    for device in snapshot.inventory.devices.values().filter(own) {
                        around.add_dependents(snapshot, &device.name);
                    }
                }
                Subject::Source(_) => {}
                Subject::Device(name) => {
                    around.add_underlying(snapshot, name);
                    around.add_dependents(snapshot, name);
                    around.drives.extend(underlying_drives(snapshot, name));
                    around.volumes.extend(volumes_on_device(snapshot, name));
                }
            }
        }
        around
    }

    fn add_volume(&mut self, snapshot: &Snapshot, id: &VolumeId) {
        self.volumes.insert(id.clone());
        let Some(volume) = snapshot.volumes.get(id) else {
            return;
        };
        self.drives.extend(volume.facts.drive_ids.iter().cloned());
        for name in &volume.facts.devices {
            self.devices.insert(name.clone());
            self.add_underlying(snapshot, name);
        }
    }

    fn add_underlying(&mut self, snapshot: &Snapshot, device: &str) {
        let names = underlying_devices(snapshot, device);
        self.devices.extend(names.into_iter().map(str::to_owned));
    }

    fn add_dependents(&mut self, snapshot: &Snapshot, device: &str) {
        let devices = &snapshot.inventory.devices;
        let names = reachable(device, |name| {
            let stands_on =
                move |other: &&BlockDevice| other.underlying.iter().any(|it| it == name);
            devices.values().filter(stands_on).map(|it| it.name.as_str())
        });
        self.devices.extend(names.into_iter().map(str::to_owned));
    }

    fn drives_in<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Drive> {
        let drives = self.drives.iter();
        drives.filter_map(|id| snapshot.drives.get(id).map(AsRef::as_ref))
    }

    fn volumes_in<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Volume> {
        let volumes = self.volumes.iter();
        volumes.filter_map(|id| snapshot.volumes.get(id).map(AsRef::as_ref))
    }
}

fn findings(
    snapshot: &Snapshot,
    around: &RelatedObjects,
    subjects: &[Subject],
) -> Vec<wire::Finding> {
    let concerns = |finding: &&Arc<Finding>| match &finding.subject {
        Subject::Drive(id) => around.drives.contains(id),
        Subject::Volume(id) => around.volumes.contains(id),
        Subject::Device(name) => around.devices.contains(name),
        Subject::Source(_) => subjects.contains(&finding.subject),
    };
    let mut active: Vec<_> = snapshot.findings.values().filter(concerns).collect();
    active.sort_by_cached_key(|finding| rank(snapshot, finding).lowest_first());
    active.truncate(MAX_FINDINGS);
    let cleared = snapshot
        .history
        .iter()
        .filter(|finding| subjects.contains(&finding.subject))
        .take(MAX_CLEARED);
    active.into_iter().chain(cleared).map(|finding| convert::finding(snapshot, finding)).collect()
}
