//! Which members hold the copies of a chunk in md's raid10 (md(4), RAID10; drivers/md/raid10.c).

use std::collections::BTreeSet;

/// The layout word of md: copies side by side ("near"), copies in other sections of the members or in
/// the next stripes ("far", "offset"), and how far the latter wander.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raid10 {
    near: usize,
    far: usize,
    far_sets: FarSets,
}

/// The members that hold far copies of each other (setup_geo(): bits 17 and 18 of the layout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FarSets {
    All,
    /// As many sets as far copies. mdadm never makes it.
    Divided,
    /// Sets as small as their copies.
    Smallest,
}

/// mdadm's own choice, `n2`.
const DEFAULT_LAYOUT: u32 = 0x102;

impl Raid10 {
    /// A layout that the kernel would refuse, or that is not known, counts as mdadm's default. Where
    /// the copies of "offset" (bit 16) are differs from "far", but not on which members.
    pub(crate) fn from_layout(layout: Option<u32>) -> Raid10 {
        let valid = |layout: &u32| layout & 0xff != 0 && layout & 0xff00 != 0 && layout >> 19 == 0;
        let layout = layout.filter(valid).unwrap_or(DEFAULT_LAYOUT);
        Raid10 {
            near: (layout & 0xff) as usize,
            far: (layout >> 8 & 0xff) as usize,
            far_sets: match layout >> 17 {
                0 => FarSets::All,
                1 => FarSets::Divided,
                _ => FarSets::Smallest,
            },
        }
    }

    /// Copies of one chunk are at the same place of their members only without far copies.
    pub(super) fn has_equal_places(self) -> bool {
        self.far == 1
    }

    /// The members of each chunk's copies, as __raid10_find_phys() computes them. The pattern repeats
    /// after as many chunks as there are members.
    pub(super) fn copy_sets(self, disks: usize) -> BTreeSet<BTreeSet<usize>> {
        if disks == 0 {
            return BTreeSet::new();
        }
        let near = self.near.min(disks);
        let set_size = match self.far_sets {
            FarSets::All => disks,
            FarSets::Divided => disks / self.far,
            FarSets::Smallest => self.far * near,
        };
        let set_size = set_size.clamp(1, disks);
        // What does not fill a set of its own belongs to the last one.
        let last_start = (disks / set_size - 1) * set_size;
        let last_size = set_size + disks % set_size;
        let far_copy = |disk: usize| match disk + near {
            next if !disks.is_multiple_of(set_size) && next > last_start => {
                (next - last_start) % last_size + last_start
            }
            next => next % set_size + disk / set_size * set_size,
        };
        let copies_of = |chunk: usize| -> BTreeSet<usize> {
            let first = chunk * near % disks;
            let near_copies = (0..near).map(|copy| (first + copy) % disks);
            let all = near_copies.flat_map(|disk| {
                std::iter::successors(Some(disk), |disk| Some(far_copy(*disk))).take(self.far)
            });
            all.collect()
        };
        (0..disks).map(copies_of).collect()
    }
}
