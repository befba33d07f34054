//! Space of a btrfs: what it can still allocate, for data and for metadata.

use super::plain;
use crate::fixture::*;
use diskvitals_finding::btrfs_space::{BlockGroups, BtrfsSpace, DeviceSpace};
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;

const MIB: u64 = 1 << 20;
/// Flags of block groups: data, metadata, and both in two copies.
const DATA: u64 = 0x1;
const METADATA: u64 = 0x24;
const RAID1: u64 = 0x10;

fn groups(flags: u64, total: u64, used: u64) -> BlockGroups {
    BlockGroups { flags, total, used }
}

/// 100 GiB with so much unallocated space on each device.
fn btrfs(data: BlockGroups, metadata: BlockGroups, unallocated: &[u64]) -> BtrfsSpace {
    let device = |free: &u64| DeviceSpace {
        size: 100 * GIB,
        allocated: 100 * GIB - MIB - free,
        writable: true,
    };
    BtrfsSpace {
        groups: vec![data, metadata],
        devices: unallocated.iter().map(device).collect(),
        reserve: 100 * MIB,
        node_bytes: 16 << 10,
        ..BtrfsSpace::default()
    }
}

/// The finding when statfs reports so many GiB as available.
fn raised(statfs: u64, btrfs: BtrfsSpace) -> Option<(Severity, String)> {
    let mut host = plain();
    let mut probe = healthy_probe(usage(100 * GIB, statfs * GIB));
    probe.btrfs = Some(Box::new(btrfs));
    host.probe("/data", probe, 10);
    host.raised_for(Reason::OutOfSpace, 11).map(|raised| (raised.severity, raised.message))
}

#[test]
fn a_btrfs_without_space_for_metadata_is_bad_whatever_statfs_reports() {
    let metadata = groups(METADATA, 2 * GIB, 2 * GIB - 102 * MIB);
    let data = groups(DATA, 90 * GIB, 50 * GIB);
    let (severity, message) = raised(40, btrfs(data, metadata, &[0])).expect("is full");
    assert_eq!(severity, Severity::Bad);
    insta::assert_snapshot!(message, @r##"2.0 MiB of 1.9 GiB (less than 1 %) left for metadata at /data, and no device has space for another metadata chunk: nothing can be created, although 40.0 GiB are free for data. Delete some files or a snapshot, or add a device; then "btrfs balance start -dusage=50 /data" turns data chunks into space for metadata"##);
    // Another chunk can be made.
    assert_eq!(raised(40, btrfs(data, metadata, &[20 * GIB])), None);
    // Freed by the next commit.
    let mut pinned = btrfs(data, metadata, &[0]);
    pinned.groups[1].used -= GIB;
    pinned.metadata.pinned = GIB;
    let (severity, _) = raised(40, pinned).expect("hardly any is left");
    assert_eq!(severity, Severity::Suspect);
}

#[test]
fn full_data_chunks_are_no_fault_while_another_can_be_made() {
    let metadata = groups(METADATA, 2 * GIB, GIB);
    let data = groups(DATA, 80 * GIB, 80 * GIB);
    assert_eq!(raised(18, btrfs(data, metadata, &[18 * GIB])), None);
    let found = raised(18, btrfs(data, metadata, &[0])).expect("is full");
    assert_eq!(found.0, Severity::Bad);
    assert!(found.1.starts_with("0 B of 80.0 GiB"), "{}", found.1);
}

#[test]
fn the_small_device_decides_about_a_mirror() {
    let metadata = groups(METADATA, 2 * GIB, GIB);
    let data = groups(DATA | RAID1, 90 * GIB, 90 * GIB);
    let raid1 = |small: u64| raised(45, btrfs(data, metadata, &[small, 90 * GIB]));
    assert_eq!(raid1(0).map(|(severity, _)| severity), Some(Severity::Bad));
    assert_eq!(raid1(GIB).map(|(severity, _)| severity), Some(Severity::Suspect));
    assert_eq!(raid1(20 * GIB), None);
}

#[test]
fn without_the_figures_of_btrfs_statfs_counts() {
    let mut host = plain();
    host.probe("/data", healthy_probe(usage(100 * GIB, 0)), 10);
    assert!(host.raised_for(Reason::OutOfSpace, 11).is_some());
}
