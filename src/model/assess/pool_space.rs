//! Whether a ZFS pool is full. All its datasets show the same space, as far as no quota or reservation of
//! their own decides: it is judged once, by what the pool's root dataset can still write. FREE of `zpool
//! list` counts parity, and what ZFS keeps for itself.

use std::collections::BTreeMap;

use crate::assess::drive_failure::Verdicts;
use crate::assess::input::{Context, VolumeInput};
use crate::assess::layers::{clear_without_layer, label};
use crate::assess::pool::argument;
use crate::assess::space::{Measured, Space, newest_usage, statfs_evidence};
use crate::assess::text::{BAD, SUSPECT, format_share, percent, raised, unknown};
use crate::block::LayerState;
use crate::facts::Facts;
use crate::stack;
use crate::volume::VolumeFacts;
use diskvitals_finding::path::HostPath;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{FindingDetails, Verdict};
use diskvitals_text::size::format_bytes;

/// By the device of the pool.
pub(crate) type PoolRooms<'a> = BTreeMap<&'a str, PoolRoom<'a>>;

/// What a pool can still write.
pub(crate) struct PoolRoom<'a> {
    /// Of the root dataset; where that is not mounted, of the dataset that can write most.
    measured: Measured<'a>,
    is_root: bool,
    volume: &'a VolumeFacts,
    /// About, in bytes.
    total: u64,
}

/// What is known of each pool: the datasets that are mounted show it.
pub(super) fn of_pools(facts: &Facts) -> PoolRooms<'_> {
    let mut rooms = PoolRooms::new();
    for volume in facts.volumes.values().map(|known| &known.facts) {
        let Some((device, pool)) = pool_of_dataset(volume) else { continue };
        let Some(Ok(measured)) = newest_usage(facts, volume) else { continue };
        let is_root = volume.source == Some(HostPath::from(pool));
        let total = measured.usage.total_bytes;
        let left = measured.usage.available_bytes;
        let new = PoolRoom { measured, is_root, volume, total };
        let Some(room) = rooms.get_mut(device) else {
            let total = total.max(usable_bytes(facts, device));
            rooms.insert(device, PoolRoom { total, ..new });
            continue;
        };
        let total = total.max(room.total);
        if (is_root, left) > (room.is_root, room.measured.usage.available_bytes) {
            *room = new;
        }
        room.total = total;
    }
    rooms
}

/// The device and the name of the pool, if the volume is one of its datasets.
fn pool_of_dataset(volume: &VolumeFacts) -> Option<(&str, &str)> {
    let device = volume.device.as_deref().filter(|_| is_dataset(volume))?;
    Some((device, stack::pool_of_device(device)?))
}

fn is_dataset(volume: &VolumeFacts) -> bool {
    volume.fs_type.as_deref() == Some("zfs")
}

/// What the members of a pool can hold, without parity and copies; 0: its layout is not known.
fn usable_bytes(facts: &Facts, device: &str) -> u64 {
    let state = facts.layers.get(device).and_then(|layer| layer.state.last_known());
    let (Some(inventory), Some(LayerState::Zfs(pool))) = (facts.inventory(), state) else {
        return 0;
    };
    let size = |name: &String| inventory.devices.get(name).map_or(0, |device| device.size_bytes);
    let members = inventory.devices.get(device).map(|device| &device.underlying);
    let all: u64 = members.into_iter().flatten().map(size).sum();
    let (data, width) = pool.status.as_ref().map_or((0, 1), |status| status.data_share());
    (u128::from(all) * data as u128 / width.max(1) as u128) as u64
}

/// The root dataset of the pool below the volume has less than `[space] raise_percent` of the pool or
/// `raise_bytes`, whichever is less; where it is not mounted, the dataset that can write most has. Source:
/// statfs of its mount. SUSPECT, degraded; BAD when writers are about to fail, as for OutOfSpace, and on
/// datasets only: a zvol may have a reservation. A dataset at its own quota, or with a reservation, is not
/// judged. Clears as OutOfSpace does.
pub(crate) fn full(input: &VolumeInput) -> Option<Verdict> {
    let (Context { facts, policy, .. }, volume) = (input.context, &input.known.facts);
    let mut devices = volume.devices.iter();
    let Some(device) = devices.find(|name| stack::pool_of_device(name).is_some()) else {
        return clear_without_layer(facts, volume);
    };
    let pool = label(facts, device);
    let Some(room) = input.pools.get(device.as_str()) else {
        return unknown(format!("no dataset of ZFS pool {pool} shows what it can still write"));
    };
    let Measured { path, at, usage, .. } = room.measured;
    let policy = policy.space.for_volume(room.volume);
    let space = Space::plain(room.total, usage.available_bytes);
    let own = match newest_usage(facts, volume) {
        // Nothing writes to it, or what it can write is not known.
        Some(Err(verdict)) => return Some(verdict),
        Some(Ok(own)) => is_dataset(volume).then_some(own.usage.available_bytes),
        None if is_dataset(volume) => return None,
        None => None,
    };
    let has_own_limit = own.is_some_and(|own| {
        let is_less =
            own.saturating_mul(2).saturating_add(policy.full_below(space.total)) < space.left;
        is_less || own.saturating_sub(space.left) > policy.short_below(space.total)
    });
    if has_own_limit || !space.is_short(input.active, &policy) {
        return Some(Verdict::Clear);
    }
    let share = format_share(space.left, percent(space.left, space.total)?);
    let (left, total) = (format_bytes(space.left), format_bytes(space.total));
    let message = format!(
        "ZFS pool {pool} is nearly full: {left} of about {total} ({share}) left for what has no reservation, by {path}"
    );
    let is_full = space.is_full(input.active, &policy) && is_dataset(volume);
    let proof = vec![statfs_evidence(path, at, usage)];
    let verdict =
        raised(if is_full { BAD } else { SUSPECT }, message, proof, space.clears(&policy), None)?;
    let Verdict::Raised(details) = verdict else {
        return Some(verdict);
    };
    let name = argument(&pool);
    let advice = format!(
        "Look what takes the space (`zfs list -r -o space {name}`): files, snapshots (USEDSNAP), reservations (USEDREFRESERV). Destroy snapshots that nobody needs first: a deleted file stays in them. Or add a vdev like the others."
    );
    Some(Verdict::Raised(FindingDetails { advice: Some(advice), ..details }))
}

/// The full pool is the cause of what a dataset lacks. Its inodes are free space too (module/os/linux/zfs/
/// zfs_vfsops.c, zfs_statvfs()).
pub(super) fn answer_for_dataset(verdicts: &mut Verdicts, volume: &VolumeFacts) {
    let is_full = |(reason, verdict, _): &(Reason, Option<Verdict>, _)| {
        *reason == Reason::PoolFull && matches!(verdict, Some(Verdict::Raised(_)))
    };
    if !is_dataset(volume) || !verdicts.iter().any(is_full) {
        return;
    }
    for (reason, verdict, _) in verdicts {
        if matches!(reason, Reason::OutOfSpace | Reason::OutOfInodes) {
            *verdict = Some(Verdict::Clear);
        }
    }
}
