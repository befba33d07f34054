//! ZFS: `zpool replace` resilvers onto the new drive while the old one stays (zpool-replace(8)).

use crate::block::{Layer, LayerState};
use crate::facts::KnownDrive;
use crate::replacement::{Guide, Need, NewDrive, Step, StepKind, quoted};
use crate::stack::{PoolStatus, Vdev, VdevState};

impl<'a> Guide<'a> {
    pub(super) fn zfs(&self) -> Vec<Need<'_>> {
        let mut needs = Vec::new();
        for (name, layer) in &self.facts.layers {
            let device = self.inventory.devices.get(name);
            let Some(Layer::ZfsPool { name: pool }) = device.map(|it| &it.layer) else { continue };
            let Some(LayerState::Zfs(state)) = layer.state.last_known() else { continue };
            let is_below = self.inventory.drives_below(name).contains(self.id());
            match &state.status {
                Some(status) if state.status_error.is_none() => {
                    needs.extend(self.zfs_need(pool, status, is_below));
                }
                _ if is_below || self.is_missing() => needs.push(Need::Step(Step::new(
                    StepKind::NotKnown,
                    format!("What `zpool status` says of {pool} is not known."),
                ))),
                _ => {}
            }
        }
        needs
    }

    fn zfs_need(&self, pool: &'a str, status: &'a PoolStatus, is_below: bool) -> Option<Need<'_>> {
        let own = status.members().map(|(_, leaf)| leaf).find(|leaf| self.is_leaf(leaf));
        let Some(own) = own else {
            return is_below.then(|| {
                let text =
                    format!("Which member of {pool} it is cannot be told from `zpool status`.");
                Need::Step(Step::new(StepKind::NotKnown, text))
            });
        };
        if status.is_resilvering() || is_replacing(&status.vdevs, own) {
            return Some(Need::Step(Step::new(
                StepKind::Wait,
                format!(
                    "{pool}: a resilver runs, or its pair is not yet dissolved. `zpool status {}` shows the time left; leave all drives in until it has ended.",
                    quoted(pool)
                ),
            )));
        }
        let stack = pool.to_owned();
        let step = move |new: &KnownDrive| {
            let Some(disk) = self.disk_of(&new.facts.id) else {
                return Step::new(StepKind::NotKnown, "The new drive has no block device.");
            };
            let from = match own.guid.filter(|_| self.is_missing()) {
                Some(guid) => guid.to_string(),
                None => quoted(own.path.as_deref().unwrap_or(&own.name)),
            };
            Step::type_in(
                format!(
                    "Fill the new drive of {pool}; a running scrub stops for it. A spare that has stepped in goes back with `zpool detach` afterwards."
                ),
                [format!("zpool replace {} {from} {}", quoted(pool), self.path(&disk.name))],
            )
        };
        let leaf = quoted(own.path.as_deref().unwrap_or(&own.name));
        Some(Need::New(NewDrive {
            stack,
            is_on_old: own.state == Some(VdevState::Online)
                || own.state == Some(VdevState::Degraded),
            take_out: Some(format!("zpool offline {} {leaf}", quoted(pool))),
            step: Box::new(step),
        }))
    }

    /// By the GUID in its label, by the names of its devices, or of what the drive was.
    fn is_leaf(&self, leaf: &Vdev) -> bool {
        if leaf.device(self.inventory).is_some_and(|device| self.is_on(&device.name, self.id())) {
            return true;
        }
        let name = leaf.path.as_deref().unwrap_or(&leaf.name);
        let note = leaf.note.strip_prefix("was ").unwrap_or_default();
        let is_named = |link: &str| name == link || note == link;
        let devices = self.devices_of(self.id());
        if devices.iter().any(|device| {
            is_named(&format!("/dev/{}", device.name)) || device.links.iter().any(|it| is_named(it))
        }) {
            return true;
        }
        // A partition of it, by the name of the whole drive.
        let is_part = |link: &String| {
            [name, note].iter().any(|it| {
                let rest = it.strip_prefix(link.as_str());
                rest.is_some_and(|it| it.is_empty() || it.starts_with("-part"))
            })
        };
        let by_id = self.known.facts.links.iter().filter(|it| it.starts_with("/dev/disk/by-id/"));
        self.is_missing() && by_id.clone().any(is_part)
    }
}

/// Below a vdev `replacing-N`: the pair stays until the new one is complete.
fn is_replacing(vdevs: &[Vdev], leaf: &Vdev) -> bool {
    vdevs.iter().any(|vdev| {
        vdev.kind() == "replacing" && vdev.children.iter().any(|it| it == leaf)
            || is_replacing(&vdev.children, leaf)
    })
}
