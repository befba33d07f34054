//! Which btrfs a mount shows. Its device number is anonymous, and its source is only a name: of a
//! link that udev does not know, of a device that was removed.
//!
//! In: the UUIDs that probes have read from the kernel, the volumes as they were. Out: the UUID by
//! device number, for the graph.

use crate::facts::Facts;
use crate::graph::MountedBtrfs;
use diskvitals_finding::path::HostPath;

impl Facts {
    /// A mount with the path, device number and source of a former one counts as that one until its
    /// next probe. The answer of a probe counts more than the UUID of the former volume, which may
    /// come from the name.
    pub(super) fn mounted_btrfs(&self) -> MountedBtrfs<'_> {
        let mut mounted = MountedBtrfs::new();
        for (path, target) in self.probes.mounts() {
            if target.filesystem != "btrfs" {
                continue;
            }
            let named = self.probes.get(path).and_then(|probe| probe.mounted_btrfs.as_ref());
            if let Some((source, uuid)) = named {
                mounted.insert(target.dev, (source, uuid));
            } else if let Some(known) = self.volumes.get(&target.volume)
                && let (Some(source), Some(uuid)) = (&known.facts.source, &known.facts.fs_uuid)
            {
                mounted.entry(target.dev).or_insert((source, uuid));
            }
        }
        mounted
    }

    /// After a probe. Returns whether the volume may be on other devices than those that are known.
    pub(super) fn note_mounted_btrfs(&mut self, path: &HostPath) -> bool {
        let named = || {
            let space = self.probes.get(path)?.result.value()?.btrfs.as_ref()?;
            let target = self.probes.mounts().get(path)?;
            let volume = &self.volumes.get(&target.volume)?.facts;
            let is_known = self.btrfs_below(volume).is_some_and(|fs| fs.uuid == space.uuid);
            Some((volume.source.clone()?, space.uuid.clone(), is_known))
        };
        match named() {
            Some((source, uuid, is_known)) if !uuid.is_empty() => {
                self.probes.set_mounted_btrfs(path, source, uuid) && !is_known
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
