//! Usage of a volume in bytes and inodes, converted from the daemon's API to CSI.

use crate::wire;
use crate::wire::volume_usage::Unit;
use diskvitals_wire as daemon;

/// Usage of a volume in bytes and inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// A raw block volume: only `bytes.total` is known.
    pub block: bool,
    pub bytes: Amount,
    /// None for block volumes, and for filesystems that create inodes on demand.
    pub inodes: Option<Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub total: u64,
    pub available: u64,
    pub used: u64,
}

/// Converts the daemon's answer.
pub(crate) fn from_daemon(answer: &daemon::VolumeUsageAnswer) -> Usage {
    let amount = |total, available, used| Amount { total, available, used };
    Usage {
        block: answer.block,
        bytes: amount(answer.total_bytes, answer.available_bytes, answer.used_bytes),
        inodes: answer.total_inodes.map(|total| {
            amount(total, answer.available_inodes.unwrap_or(0), answer.used_inodes.unwrap_or(0))
        }),
    }
}

/// Bytes, and inodes if the filesystem counts them. A raw block volume has only its size
/// (Kubernetes accepts that, but treats an answer without any entry as an error).
pub(crate) fn to_wire(usage: &Usage) -> Vec<wire::VolumeUsage> {
    if usage.block {
        return vec![block_usage(usage.bytes.total)];
    }
    let bytes = entry(Unit::Bytes, usage.bytes);
    std::iter::once(bytes).chain(usage.inodes.map(|inodes| entry(Unit::Inodes, inodes))).collect()
}

/// The usage of a raw block volume.
pub(crate) fn block_usage(total: u64) -> wire::VolumeUsage {
    entry(Unit::Bytes, Amount { total, ..Amount::default() })
}

fn entry(unit: Unit, amount: Amount) -> wire::VolumeUsage {
    let Amount { total, available, used } = amount;
    wire::VolumeUsage {
        unit: unit.into(),
        total: saturating_i64(total),
        available: saturating_i64(available),
        used: saturating_i64(used),
    }
}

/// CSI uses signed numbers; larger values saturate.
pub(crate) fn saturating_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_volume_has_bytes_and_inodes() {
        let answer = daemon::VolumeUsageAnswer {
            total_bytes: 100,
            available_bytes: 40,
            used_bytes: 50,
            total_inodes: Some(10),
            available_inodes: Some(7),
            used_inodes: Some(3),
            ..Default::default()
        };
        let entry = |unit: Unit, total, available, used| wire::VolumeUsage {
            unit: unit.into(),
            total,
            available,
            used,
        };
        assert_eq!(
            to_wire(&from_daemon(&answer)),
            [entry(Unit::Bytes, 100, 40, 50), entry(Unit::Inodes, 10, 7, 3)]
        );
    }

    #[test]
    fn a_filesystem_that_makes_inodes_as_it_needs_them_has_bytes_only() {
        assert_eq!(
            to_wire(&from_daemon(&daemon::VolumeUsageAnswer {
                total_bytes: u64::MAX,
                ..Default::default()
            })),
            [block_usage(u64::MAX)]
        );
    }

    #[test]
    fn a_block_volume_has_a_size_and_nothing_else() {
        let answer = daemon::VolumeUsageAnswer {
            block: true,
            total_bytes: 5,
            used_bytes: 3,
            total_inodes: Some(1),
            ..Default::default()
        };
        assert_eq!(
            to_wire(&from_daemon(&answer)),
            [wire::VolumeUsage { unit: Unit::Bytes.into(), total: 5, available: 0, used: 0 }]
        );
    }
}
