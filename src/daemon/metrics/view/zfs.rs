//! Families about ZFS pools.

use std::fmt;

use crate::metrics::view::second;
use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow, Samples};
use diskvitals_model::snapshot::{KnownPool, Snapshot};
use diskvitals_model::stack::{PoolState, PoolStatus, VdevClass};

const FAMILIES: [FamilyRow<KnownPool>; 5] = families! {
    KnownPool:
    Gauge "diskvitals_zfs_pool_state": "1 for the state that ZFS gives the pool."
        => |it, to| to.states("state", &PoolState::ALL.map(PoolState::word), it.pool.state.word());
    Gauge "diskvitals_zfs_pool_status_timestamp" in SECONDS:
        "When `zpool status` last answered about the pool, since the epoch."
        => |it, to| to.value(it.pool.status_at.map(second));
    Gauge "diskvitals_zfs_pool_data_errors": "Blocks that no copy could repair."
        => |it, to| to.value(it.pool.status.as_ref().map(|status| status.data_errors));
    Gauge "diskvitals_zfs_pool_last_scrub_timestamp" in SECONDS:
        "When the last known scrub of the pool ended, since the epoch."
        => |it, to| to.value(it.last_scrub.map(|ended| ended.as_second()));
    Counter "diskvitals_zfs_member_errors":
        "Errors that ZFS has counted of a member since the import or `zpool clear`."
        => |it, to| it.pool.status.as_ref().map_or(Ok(()), |status| members(status, to));
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let pools = snapshot.zfs_pools.iter();
    let pools: Vec<_> = pools.map(|(name, it)| ([("pool", name.as_str())], &**it)).collect();
    families.encode(&FAMILIES, &pools)
}

/// A spare in use is listed twice, with counts in its place only.
fn members(status: &PoolStatus, to: &mut Samples<'_, '_>) -> fmt::Result {
    let counted = status.members().filter(|(_, member)| member.class != VdevClass::Spare);
    counted.map(|(_, member)| member).try_for_each(|member| {
        let name = ("member", member.name.as_str());
        to.labeled(&[name, ("kind", "read")], member.read_errors)?;
        to.labeled(&[name, ("kind", "write")], member.write_errors)?;
        to.labeled(&[name, ("kind", "checksum")], member.checksum_errors)
    })
}
