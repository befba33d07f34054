//! What a drive or volume is made of, as far as advice depends on it: a file behind a loop device has no
//! cable, and the disk of a hypervisor cannot be replaced on this host.

use crate::advice::Action;
use crate::block::Layer;
use crate::drive::DriveKind;
use crate::snapshot::Snapshot;
use diskvitals_finding::Subject;
use diskvitals_finding::reason::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A drive in this host, or what stands on several kinds.
    Physical,
    /// A file behind a loop device.
    File,
    /// A hypervisor's or cloud's disk.
    Virtual,
    /// A disk, or a server, behind a network.
    Remote,
}

impl Medium {
    pub(super) fn of(snapshot: &Snapshot, subject: &Subject) -> Medium {
        let inventory = &snapshot.inventory;
        let is_file = |device: &str| {
            let below = inventory.devices_below(device);
            let mut layers = below.iter().filter_map(|name| inventory.devices.get(*name));
            layers.any(|device| matches!(device.layer, Layer::Loop { .. }))
        };
        let (device, drives) = match subject {
            Subject::Drive(id) => {
                let drive = snapshot.drives.get(id);
                let name = drive.map(|drive| drive.facts.name.clone());
                (name, vec![id.clone()])
            }
            Subject::Device(name) => {
                let drives = inventory.drives_below(name).into_iter().cloned();
                (Some(name.clone()), drives.collect())
            }
            Subject::Volume(id) => match snapshot.volumes.get(id) {
                Some(volume) => (volume.facts.device.clone(), volume.facts.drive_ids.to_vec()),
                None => (None, Vec::new()),
            },
            Subject::Source(_) => (None, Vec::new()),
        };
        if device.is_some_and(|device| is_file(&device)) {
            return Medium::File;
        }
        let drives = drives.iter().filter_map(|id| snapshot.drives.get(id));
        let mut kinds: Vec<Medium> = drives
            .map(|drive| match drive.facts.kind {
                _ if drive.facts.transport.is_remote() => Medium::Remote,
                DriveKind::Remote => Medium::Remote,
                DriveKind::Virtual => Medium::Virtual,
                _ => Medium::Physical,
            })
            .collect();
        kinds.dedup();
        match kinds.as_slice() {
            [one] => *one,
            _ => Medium::Physical,
        }
    }

    /// Instead of the reason's text, which is about drives with a cable.
    pub(super) fn action(self, reason: Reason) -> Option<&'static str> {
        if !reason.is_about_hardware() {
            return None;
        }
        Some(match self {
            Medium::Physical => return None,
            Medium::File => {
                "Look at the file behind the loop device: the filesystem that holds it, the free space there, and the drives below."
            }
            Medium::Virtual => {
                "Look for the cause at the hypervisor or cloud that provides the disk. Make sure that there is a backup."
            }
            Medium::Remote => {
                "Check the network, and the server or storage array that provides the disk."
            }
        })
    }

    /// Instead of the words for a drive that can be pulled.
    pub(super) fn words(self, action: Action) -> Option<&'static str> {
        let is_about_hardware = matches!(
            action,
            Action::LookAtPath
                | Action::ReseatCable
                | Action::PlanReplacement
                | Action::BringBack
                | Action::ReplaceNow
                | Action::Cool
        );
        if !is_about_hardware {
            return None;
        }
        match (self, action) {
            (Medium::Physical, _) => None,
            (Medium::File, _) => {
                Some("Look at the file behind the loop device, and the drives below")
            }
            (Medium::Virtual, Action::ReplaceNow) => {
                Some("Move the data to another disk now; the hypervisor or cloud provides this one")
            }
            (Medium::Virtual, _) => Some("Look at the hypervisor or cloud that provides the disk"),
            (Medium::Remote, _) => Some("Check the network, and the server that provides the disk"),
        }
    }
}
