//! Which volumes contain a sector of a device: through partitions and linear device-mapper extents.
//!
//! In: the devices below a volume, and the inventory. A sector that cannot be mapped (inside an
//! array, a crypt or thin mapping) counts as part of the volume.

use std::collections::BTreeMap;

use crate::block::{Extent, Inventory, Layer, LayerState};
use crate::facts::LayerFacts;
use crate::volume::VolumeFacts;

const SECTOR: u64 = 512;
/// More layers than any real system has; it also ends the search in a cyclic graph.
const MAX_DEPTH: usize = 32;

/// Whether the sector (of 512 bytes) of `device` may be one of the volume's.
pub(crate) fn may_contain_sector(
    inventory: &Inventory,
    layers: &BTreeMap<String, LayerFacts>,
    volume: &VolumeFacts,
    device: &str,
    sector: u64,
) -> bool {
    volume.devices.iter().any(|name| name == device)
        && sector_reaches_volume(inventory, layers, volume, device, sector, 0)
}

fn sector_reaches_volume(
    inventory: &Inventory,
    layers: &BTreeMap<String, LayerFacts>,
    volume: &VolumeFacts,
    device: &str,
    sector: u64,
    depth: usize,
) -> bool {
    if volume.device.as_deref() == Some(device) || depth >= MAX_DEPTH {
        return true;
    }
    let above = volume
        .devices
        .iter()
        .filter_map(|name| inventory.devices.get(name))
        .filter(|upper| upper.underlying.iter().any(|name| name == device));
    let mut any = false;
    for upper in above {
        any = true;
        let at = match &upper.layer {
            Layer::Partition { start_bytes, .. } => {
                let start = start_bytes / SECTOR;
                sector.checked_sub(start).filter(|at| *at < upper.size_bytes / SECTOR)
            }
            Layer::Dm { .. } => match (
                layers.get(&upper.name).and_then(|layer| layer.state.last_known()),
                inventory.devices.get(device),
            ) {
                (Some(LayerState::Linear { extents }), Some(below)) => {
                    extents.iter().find_map(|extent| extent.map(below.dev, sector))
                }
                // Any sector of it may be any sector of the layer above.
                _ => return true,
            },
            _ => return true,
        };
        if at.is_some_and(|at| {
            sector_reaches_volume(inventory, layers, volume, &upper.name, at, depth + 1)
        }) {
            return true;
        }
    }
    // A loop device's file, a member of a btrfs: the used part of the device is unknown.
    !any
}

impl Extent {
    /// Maps a sector of the lower device to the upper device.
    fn map(&self, dev: diskvitals_finding::dev::DevNo, sector: u64) -> Option<u64> {
        let at =
            sector.checked_sub(self.offset).filter(|at| self.dev == dev && *at < self.length)?;
        self.start.checked_add(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestHost, at, device, dm};

    fn part(start: u64, sectors: u64) -> crate::block::BlockDevice {
        let mut part = device(
            "sda1",
            "8:1",
            Layer::Partition { number: 1, start_bytes: start * SECTOR },
            &["sda"],
        );
        part.size_bytes = sectors * SECTOR;
        part
    }

    #[test]
    fn a_partition_holds_the_sectors_between_its_ends() {
        let mut other = part(4096, 1000);
        (other.name, other.dev) = ("sda2".into(), "8:2".parse().unwrap());
        let mut host =
            TestHost::default().disk("sda", "8:0", "A").with(part(2048, 2048)).with(other);
        host = host.mounted("8:1", "/", "/one", "ext4", "/dev/sda1").mounted(
            "8:2",
            "/",
            "/two",
            "ext4",
            "/dev/sda2",
        );
        let volumes = host.volumes();
        let held = |sector| {
            let in_it = |volume: &&VolumeFacts| {
                may_contain_sector(&host.inventory, &host.facts.layers, volume, "sda", sector)
            };
            volumes
                .iter()
                .filter(in_it)
                .map(|volume| volume.mounts[0].path.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (held(2047), held(2048), held(4095), held(4096)),
            (vec![], vec!["/one".to_owned()], vec!["/one".into()], vec!["/two".into()])
        );
        assert!(
            may_contain_sector(&host.inventory, &host.facts.layers, &volumes[0], "sda1", 5),
            "the partition's own name"
        );
        assert!(!may_contain_sector(&host.inventory, &host.facts.layers, &volumes[0], "sdz", 5));
    }

    #[test]
    fn a_logical_volume_in_pieces_holds_its_pieces_and_an_array_may_hold_any() {
        let mut host = TestHost::default().disk("sda", "8:0", "A").with(part(2048, 100_000));
        host = host.with(dm("dm-0", "253:0", "vg-data", "LVM-x", &["sda1"])).mounted(
            "253:0",
            "/",
            "/data",
            "xfs",
            "/dev/mapper/vg-data",
        );
        host.read_all(0);
        let holds = |host: &TestHost, sector| {
            may_contain_sector(
                &host.inventory,
                &host.facts.layers,
                &host.volumes()[0],
                "sda",
                sector,
            )
        };
        assert!(holds(&host, 2048 + 5000), "not asked yet: perhaps");
        let dev = "8:1".parse().unwrap();
        let extents = vec![
            Extent { start: 0, length: 100, dev, offset: 1000 },
            Extent { start: 100, length: 50, dev, offset: 5000 },
        ];
        host.layer("dm-0", LayerState::Linear { extents }, 1);
        assert!(holds(&host, 2048 + 1000) && holds(&host, 2048 + 5049));
        assert!(!holds(&host, 2048 + 1100) && !holds(&host, 2048 + 5050) && !holds(&host, 1000));
        let _ = at(0);
    }
}
