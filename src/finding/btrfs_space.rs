//! What a btrfs can still allocate. statfs(2) does not show it: it has one figure for data, and
//! metadata lives in chunks of its own.
//!
//! In: the block groups and the space of each member device, as the kernel reports them. Out: the
//! room for data and for metadata: what is free in their chunks, and the chunks that can still be
//! made of the space that no chunk has, by the profile, device by device (btrfs(5), PROFILES;
//! fs/btrfs/volumes.c).

use serde::{Deserialize, Serialize};

/// Flags of block groups (include/uapi/linux/btrfs_tree.h).
const DATA: u64 = 1;
const METADATA: u64 = 1 << 2;
const PROFILES: u64 = 0x7f8;
/// Not a block group: the kernel's reserve for metadata.
pub const GLOBAL_RESERVE: u64 = 1 << 49;

/// The first MiB of each device is never allocated (BTRFS_DEVICE_RANGE_RESERVED).
const DEVICE_RESERVED: u64 = 1 << 20;
/// BTRFS_STRIPE_LEN: no smaller piece of a device becomes part of a chunk.
const STRIPE: u64 = 64 << 10;
/// Slices of the unallocated space in which chunks over some of the devices are counted.
const SLICES: u64 = 256;

/// The largest reservation of metadata for one operation, in nodes: creating a file reserves about
/// eight items, each for a path of eight levels that may split, and as much again for delayed
/// references (btrfs_calc_insert_metadata_size(), btrfs_calc_delayed_ref_bytes()). Measured: with
/// 16 KiB nodes, creating fails at 3.7 MiB. Doubled, because it must not fail before it is seen.
const OPERATION_NODES: u64 = 512;

/// The block groups of one kind and profile, added up (struct btrfs_ioctl_space_info).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockGroups {
    pub flags: u64,
    pub total: u64,
    pub used: u64,
}

/// A member device (struct btrfs_ioctl_dev_info_args).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpace {
    pub size: u64,
    pub allocated: u64,
    /// Not missing, not a seed, and not being removed.
    pub writable: bool,
}

/// Parts of the chunks that are not used and cannot be: sysfs, allocation/KIND/.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// Freed, until the next commit (bytes_pinned).
    pub pinned: u64,
    /// In block groups that are read-only, and in zones that must be reset first (bytes_readonly,
    /// bytes_zone_unusable).
    pub read_only: u64,
}

/// The space of one btrfs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BtrfsSpace {
    /// As in /sys/fs/btrfs. Empty in a recorded tree without it.
    #[serde(default)]
    pub uuid: String,
    pub groups: Vec<BlockGroups>,
    pub devices: Vec<DeviceSpace>,
    /// The unused part of the global reserve.
    pub reserve: u64,
    pub data: Withheld,
    pub metadata: Withheld,
    pub node_bytes: u64,
    /// A balance is running: chunks may be converted to another profile.
    pub balancing: bool,
}

/// Room for one kind of content, in bytes of content (not of copies).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub used: u64,
    /// Free in the chunks.
    pub free: u64,
    /// Freed, until the next commit.
    pub pinned: u64,
    /// In chunks that can still be made.
    pub new_chunks: u64,
}

impl Room {
    pub fn left(&self) -> u64 {
        self.free.saturating_add(self.new_chunks)
    }

    pub fn total(&self) -> u64 {
        self.used.saturating_add(self.left())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    pub data: Room,
    pub metadata: Room,
    /// Data and metadata share their chunks (mkfs.btrfs --mixed).
    pub mixed: bool,
    /// The next operations fail with ENOSPC, whatever is free for data.
    pub metadata_exhausted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    Single,
    Dup,
    Raid0,
    /// Each stripe on this many devices.
    Copies(usize),
    Raid10,
    /// All devices, with this many stripes of parity.
    Parity(usize),
}

/// By flag, the most redundant first, as btrfs_reduce_alloc_profile() chooses.
const BY_REDUNDANCY: [(u64, Profile); 8] = [
    (1 << 10, Profile::Copies(4)),
    (1 << 8, Profile::Parity(2)),
    (1 << 9, Profile::Copies(3)),
    (1 << 7, Profile::Parity(1)),
    (1 << 6, Profile::Raid10),
    (1 << 4, Profile::Copies(2)),
    (1 << 5, Profile::Dup),
    (1 << 3, Profile::Raid0),
];

impl Profile {
    /// devs_min of btrfs_raid_array (Linux 5.15 and later).
    fn least_devices(self) -> usize {
        match self {
            Profile::Single | Profile::Dup | Profile::Raid0 => 1,
            Profile::Copies(copies) => copies,
            Profile::Raid10 => 2,
            Profile::Parity(parity) => parity + 1,
        }
    }

    /// Content that fits into new chunks on devices with this much unallocated space each.
    fn capacity(self, unallocated: &[u64]) -> u64 {
        let sum = unallocated.iter().fold(0_u64, |sum, free| sum.saturating_add(*free));
        match self {
            Profile::Single | Profile::Raid0 => sum,
            Profile::Dup => unallocated.iter().map(|free| free / 2).fold(0, u64::saturating_add),
            Profile::Copies(copies) => copies_capacity(unallocated, copies),
            Profile::Raid10 => striped_capacity(unallocated, 2, 2, |devices| devices / 2),
            Profile::Parity(parity) => {
                striped_capacity(unallocated, parity + 1, 1, |devices| devices - parity)
            }
        }
    }
}

/// Each chunk takes the devices with the most space. So that much fits of which each device can
/// hold its copies: the largest amount with the sum of min(space, amount) at least `copies` times
/// the amount.
fn copies_capacity(unallocated: &[u64], copies: usize) -> u64 {
    let sum = |limit: u64| -> u128 {
        let parts = unallocated.iter().map(|free| u128::from((*free).min(limit)));
        parts.sum()
    };
    let fits = |amount: u64| sum(amount) >= u128::from(amount) * copies as u128;
    if unallocated.len() < copies {
        return 0;
    }
    let (mut fitting, mut excess) = (0, u64::MAX);
    while excess - fitting > 1 {
        let middle = fitting + (excess - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            excess = middle;
        }
    }
    fitting
}

/// Each chunk takes all devices that have space left, in a multiple of `increment`.
fn striped_capacity(
    unallocated: &[u64],
    least: usize,
    increment: usize,
    data_stripes: impl Fn(usize) -> usize,
) -> u64 {
    let mut free = unallocated.to_vec();
    let slice =
        (free.iter().fold(0_u64, |sum, free| sum.saturating_add(*free)) / SLICES).max(STRIPE);
    let mut content = 0_u64;
    loop {
        free.retain(|free| *free >= STRIPE);
        free.sort_unstable_by(|a, b| b.cmp(a));
        let devices = free.len() - free.len() % increment;
        let Some(smallest) = devices.checked_sub(1).and_then(|last| free.get(last)).copied() else {
            return content;
        };
        if devices < least {
            return content;
        }
        // If a device is left out, the next chunk may leave out another one.
        let step = if devices == free.len() { smallest } else { smallest.min(slice) };
        free.iter_mut().take(devices).for_each(|free| *free -= step);
        content = content.saturating_add(step.saturating_mul(data_stripes(devices) as u64));
    }
}

/// None without metadata: then these are not the figures of a whole filesystem.
pub fn allocatable(space: &BtrfsSpace) -> Option<Allocatable> {
    let writable = space.devices.iter().filter(|device| device.writable);
    let unallocated: Vec<u64> = writable
        .clone()
        .map(|device| {
            let free = device.size.saturating_sub(device.allocated).saturating_sub(DEVICE_RESERVED);
            if free < STRIPE { 0 } else { free }
        })
        .collect();
    let of = |kind: u64| space.groups.iter().filter(move |groups| groups.flags & kind != 0);
    of(METADATA).next()?;
    let mixed = of(METADATA).any(|groups| groups.flags & DATA != 0);
    let room = |kind: u64, withheld: Withheld, reserve: u64| {
        let profiles = profiles(of(kind).map(|groups| groups.flags), unallocated.len());
        let next = |profile: &Profile| profile.capacity(&unallocated);
        // A balance that converts decides by its target, which is one of the profiles.
        let new_chunks = if space.balancing {
            profiles.iter().map(next).max()
        } else {
            profiles.first().map(next)
        };
        let is_redundant = profiles
            .first()
            .is_some_and(|profile| !matches!(profile, Profile::Single | Profile::Raid0));
        // The kernel puts nothing that is to have copies into chunks without (find_free_extent()).
        let usable = of(kind).filter(|groups| {
            space.balancing || !is_redundant || groups.flags & PROFILES & !(1 << 3) != 0
        });
        let free: u64 = usable
            .map(|groups| groups.total.saturating_sub(groups.used))
            .fold(0, u64::saturating_add);
        let held = [withheld.read_only, reserve, withheld.pinned];
        Room {
            used: of(kind).map(|groups| groups.used).fold(0, u64::saturating_add),
            free: held.iter().fold(free, |free, held| free.saturating_sub(*held)),
            pinned: withheld.pinned,
            new_chunks: new_chunks.unwrap_or(0),
        }
    };
    let metadata = room(METADATA, space.metadata, space.reserve);
    let data = if mixed { metadata } else { room(DATA, space.data, 0) };
    let soon = metadata.left().saturating_add(metadata.pinned);
    Some(Allocatable {
        data,
        metadata,
        mixed,
        metadata_exhausted: soon < space.node_bytes.saturating_mul(OPERATION_NODES),
    })
}

/// The profiles of these block groups that so many devices allow, most redundant first; single, if
/// there is no other.
fn profiles(flags: impl Iterator<Item = u64> + Clone, devices: usize) -> Vec<Profile> {
    let is_used = |bit: u64| flags.clone().any(|flags| flags & bit != 0);
    let known = BY_REDUNDANCY.into_iter();
    let mut found: Vec<Profile> = known
        .filter(|(bit, profile)| is_used(*bit) && profile.least_devices() <= devices)
        .map(|(_, profile)| profile)
        .collect();
    if found.is_empty() || flags.clone().any(|flags| flags & PROFILES == 0) {
        found.push(Profile::Single);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;
    const RAID0: u64 = 1 << 3;
    const RAID1: u64 = 1 << 4;
    const DUP: u64 = 1 << 5;
    const RAID10: u64 = 1 << 6;
    const RAID5: u64 = 1 << 7;
    const RAID6: u64 = 1 << 8;
    const RAID1C3: u64 = 1 << 9;
    const RAID1C4: u64 = 1 << 10;

    fn device(unallocated: u64) -> DeviceSpace {
        DeviceSpace {
            size: 10 * GIB + unallocated + DEVICE_RESERVED,
            allocated: 10 * GIB,
            writable: true,
        }
    }

    fn groups(flags: u64, total: u64, used: u64) -> BlockGroups {
        BlockGroups { flags, total, used }
    }

    /// Data and metadata of one profile, with 1 GiB free in each.
    fn filesystem(profile: u64, unallocated: &[u64]) -> BtrfsSpace {
        BtrfsSpace {
            groups: vec![
                groups(DATA | profile, 5 * GIB, 4 * GIB),
                groups(2 | profile, 8 * MIB, 16 * KIB),
                groups(METADATA | profile, 2 * GIB, GIB),
            ],
            devices: unallocated.iter().copied().map(device).collect(),
            node_bytes: 16 * KIB,
            ..BtrfsSpace::default()
        }
    }

    fn room(space: &BtrfsSpace) -> Allocatable {
        allocatable(space).expect("has metadata")
    }

    /// Data in new chunks, in GiB.
    fn new_data(profile: u64, gib: &[u64]) -> u64 {
        let unallocated: Vec<u64> = gib.iter().map(|gib| gib * GIB).collect();
        room(&filesystem(profile, &unallocated)).data.new_chunks / GIB
    }

    #[test]
    fn each_profile_uses_the_unallocated_space_of_each_device_as_it_can() {
        for (profile, devices, expected) in [
            (0, &[100][..], 100),
            (0, &[1, 4], 5),
            (DUP, &[100], 50),
            (DUP, &[10, 4], 7),
            (RAID0, &[4, 4], 8),
            (RAID0, &[1, 4], 5),
            (RAID1, &[4, 4], 4),
            (RAID1, &[1, 4], 1),
            (RAID1, &[0, 4], 0),
            (RAID1, &[4, 4, 4], 6),
            (RAID1, &[1, 1, 4], 2),
            (RAID1C3, &[4, 4, 4], 4),
            (RAID1C3, &[1, 4, 4], 1),
            (RAID1C3, &[4, 4, 4, 4], 5),
            (RAID1C4, &[4, 4, 4, 4], 4),
            (RAID1C4, &[2, 4, 4, 4], 2),
            (RAID10, &[4, 4, 4, 4], 8),
            (RAID10, &[4, 1, 1, 1], 2),
            (RAID5, &[4, 4, 4], 8),
            (RAID5, &[1, 4, 4], 2 + 3),
            (RAID5, &[1, 4], 1),
            (RAID6, &[4, 4, 4, 4], 8),
            (RAID6, &[1, 4, 4, 4], 2 + 3),
            (RAID6, &[0, 0, 4], 0),
        ] {
            assert_eq!(new_data(profile, devices), expected, "profile {profile:#x} on {devices:?}");
        }
        // Three devices in pairs: the one that is left out changes.
        let odd = room(&filesystem(RAID10, &[4 * GIB; 3])).data.new_chunks;
        assert!((6 * GIB - 128 * MIB..=6 * GIB).contains(&odd), "{odd}");
    }

    #[test]
    fn raid1_of_1_and_4_terabytes_is_full_when_the_small_one_is() {
        let mut space = filesystem(RAID1, &[0, 3 * TIB]);
        space.groups[0] = groups(DATA | RAID1, TIB, TIB);
        let room = room(&space);
        assert_eq!((room.data.left(), room.data.total()), (0, TIB));
        assert!(!room.metadata_exhausted, "a GiB is free in its chunks");
    }

    #[test]
    fn full_chunks_are_no_fault_while_another_can_be_made() {
        let mut space = filesystem(DUP, &[10 * GIB]);
        space.groups[2] = groups(METADATA | DUP, GIB, GIB);
        assert!(!room(&space).metadata_exhausted);
        assert_eq!(room(&space).metadata.left(), 5 * GIB);
        // Only what no chunk can be made of is left.
        space.devices = vec![device(0)];
        assert!(room(&space).metadata_exhausted);
        space.devices = vec![device(STRIPE - 1)];
        assert!(room(&space).metadata_exhausted);
    }

    #[test]
    fn the_reserve_and_read_only_groups_are_not_free() {
        // As measured on a filesystem of 1500 MiB on which nothing could be created.
        let mut space = BtrfsSpace {
            groups: vec![
                groups(DATA, 1_397_751_808, 698_724_352),
                groups(2 | DUP, 8_388_608, 16_384),
                groups(METADATA | DUP, 78_643_200, 68_894_720),
            ],
            devices: vec![DeviceSpace {
                size: 1_572_864_000,
                allocated: 1_571_815_424,
                writable: true,
            }],
            reserve: 5_767_168,
            metadata: Withheld { pinned: 0, read_only: 65_536 },
            node_bytes: 16 * KIB,
            ..BtrfsSpace::default()
        };
        let full = room(&space);
        assert!(full.metadata_exhausted);
        assert_eq!(full.metadata.left(), 3_915_776);
        assert_eq!(full.data.left(), 699_027_456);
        space.metadata.read_only = 0;
        space.reserve = 0;
        assert!(!room(&space).metadata_exhausted);
        // What is freed by the next commit is not available yet, and is not missing either.
        space.metadata.pinned = 9_000_000;
        assert_eq!(room(&space).metadata.left(), 748_480);
        assert!(!room(&space).metadata_exhausted);
    }

    #[test]
    fn mixed_block_groups_have_one_room() {
        let mut space = filesystem(0, &[GIB]);
        space.groups = vec![groups(DATA | METADATA, 3 * GIB, GIB), groups(2, MIB, 0)];
        space.reserve = 512 * MIB;
        let room = room(&space);
        assert!(room.mixed);
        assert_eq!(room.data, room.metadata);
        assert_eq!(room.data.left(), 2 * GIB - 512 * MIB + GIB);
    }

    #[test]
    fn a_conversion_uses_the_profile_that_it_converts_to() {
        let mut space = filesystem(0, &[0, 4 * GIB]);
        space.groups.push(groups(DATA | RAID1, GIB, GIB));
        // It was stopped: new chunks have the more redundant profile, and nothing that is to have
        // copies is put into chunks without.
        assert_eq!(room(&space).data.left(), 0);
        // It runs, perhaps back to single.
        space.balancing = true;
        assert_eq!(room(&space).data.left(), 5 * GIB);
    }

    #[test]
    fn a_missing_device_takes_no_chunk() {
        let mut space = filesystem(RAID1, &[4 * GIB; 3]);
        space.devices[2].writable = false;
        assert_eq!(room(&space).data.new_chunks, 4 * GIB);
        // One of two is missing: the kernel makes single chunks then.
        let mut space = filesystem(RAID1, &[4 * GIB; 2]);
        space.devices[1].writable = false;
        assert_eq!(room(&space).data.new_chunks, 4 * GIB);
        let mut space = filesystem(RAID6, &[4 * GIB; 3]);
        space.devices[0].writable = false;
        assert_eq!(room(&space).data.new_chunks, 8 * GIB);
    }

    #[test]
    fn figures_without_metadata_are_none_of_a_filesystem() {
        assert_eq!(allocatable(&BtrfsSpace::default()), None);
    }

    proptest::proptest! {
        /// Whatever the kernel reports: no panic, an end, and never more than the devices have.
        #[test]
        fn new_chunks_never_exceed_the_devices(
            profile in proptest::sample::select(vec![0, RAID0, RAID1, DUP, RAID10, RAID5, RAID6, RAID1C3, RAID1C4]),
            unallocated in proptest::collection::vec(0_u64..40 * TIB, 0..9),
        ) {
            let space = filesystem(profile, &unallocated);
            let sum: u64 = unallocated.iter().sum();
            let found = room(&space);
            proptest::prop_assert!(found.data.new_chunks <= sum);
            let more: Vec<u64> = unallocated.iter().map(|free| free + GIB).collect();
            let grown = room(&filesystem(profile, &more));
            // Counting in slices may be off by one of them.
            let slice = sum / 100;
            proptest::prop_assert!(grown.data.new_chunks + slice >= found.data.new_chunks);
        }
    }
}
