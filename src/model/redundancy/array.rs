//! An array as md's sysfs or dm-raid's status shows it: which of its slots hold current data.

use std::collections::BTreeSet;

use crate::redundancy::{CopySet, Scheme};

/// An array of a level with redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    scheme: Scheme,
    /// By slot.
    members: Vec<Member>,
    /// Parity that a crash has left behind, or that has yet to be computed for the first time, gives
    /// no data back.
    is_parity_stale: bool,
}

/// What is in one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// It holds current data.
    pub in_sync: bool,
    /// Kernel names: of a member and of its replacement, if it is being replaced.
    pub devices: Vec<String>,
    /// Devices that are being filled.
    pub filling: Vec<String>,
    /// Ranges that it does not hold (md.rst, `bad_blocks`): first sector and length.
    pub bad_blocks: Vec<(u64, u64)>,
}

impl Array {
    pub(crate) fn new(scheme: Scheme, members: Vec<Member>, is_parity_stale: bool) -> Array {
        Array { scheme, members, is_parity_stale }
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn count_in_sync(&self) -> usize {
        self.members.iter().filter(|member| member.in_sync).count()
    }

    /// Slots without a member that holds current data.
    pub(crate) fn missing_slots(&self) -> impl Iterator<Item = usize> {
        let slots = self.members.iter().enumerate();
        slots.filter(|(_, member)| !member.in_sync).map(|(slot, _)| slot)
    }

    /// Parity protects nothing before it is computed again.
    pub(crate) fn waits_for_parity(&self) -> bool {
        self.is_parity_stale && matches!(self.scheme, Scheme::Parity(_))
    }

    pub(crate) fn is_parity(&self) -> bool {
        matches!(self.scheme, Scheme::Parity(_))
    }

    pub(crate) fn is_mirror(&self) -> bool {
        self.scheme == Scheme::Mirror
    }

    /// Whether each member has all of the data, or all that is left of it.
    pub(crate) fn is_raid10(&self) -> bool {
        matches!(self.scheme, Scheme::Raid10(_))
    }

    /// How many members may fail while it is complete, in the worst case.
    pub(crate) fn by_design(&self) -> usize {
        let all = vec![true; self.members.len()];
        let sets = self.scheme.copy_sets(&all).unwrap_or_default();
        sets.iter().map(|set| set.tolerates).min().unwrap_or(0)
    }

    /// Whether it lacks a member, or a copy of something.
    pub(crate) fn is_short(&self) -> bool {
        self.missing_slots().next().is_some() || self.tolerates() < Some(self.by_design())
    }

    /// How many further members may fail, in the worst case. `None`: some of its data has no copy.
    pub fn tolerates(&self) -> Option<usize> {
        let sets = self.copy_sets()?;
        sets.iter().map(|set| set.tolerates).min()
    }

    /// All sets of members that hold the same data, each once; also those of single ranges that some
    /// members do not hold.
    pub(crate) fn copy_sets(&self) -> Option<Vec<CopySet>> {
        let in_sync: Vec<bool> = self.members.iter().map(|member| member.in_sync).collect();
        let mut sets: BTreeSet<CopySet> = self.scheme.copy_sets(&in_sync)?.into_iter().collect();
        for holes in self.holes() {
            let mut left = in_sync.clone();
            for slot in &holes {
                left[*slot] = false;
            }
            match self.scheme.copy_sets(&left) {
                Some(of_range) => sets.extend(of_range),
                // No copy of this range is left; of everything else there is.
                None => sets.extend(Some(CopySet {
                    members: (0..left.len()).filter(|slot| in_sync[*slot]).collect(),
                    tolerates: 0,
                })),
            }
        }
        let mut sets: Vec<CopySet> = sets.into_iter().collect();
        if self.waits_for_parity() {
            sets.iter_mut().for_each(|set| set.tolerates = 0);
        }
        Some(sets)
    }

    /// Slots that lack the same range, for each place where such a range begins.
    fn holes(&self) -> BTreeSet<BTreeSet<usize>> {
        let lacking = |at: Option<u64>| -> BTreeSet<usize> {
            let covers = |(start, length): &(u64, u64)| {
                at.is_none_or(|at| *start <= at && at - *start < *length)
            };
            let slots = self.members.iter().enumerate();
            slots
                .filter(|(_, member)| member.in_sync && member.bad_blocks.iter().any(covers))
                .map(|(slot, _)| slot)
                .collect()
        };
        let ranges = self.members.iter().flat_map(|member| &member.bad_blocks);
        match self.scheme {
            // The same data is at different places of its members: the worst case is that all ranges
            // are of the same data.
            Scheme::Raid10(layout) if !layout.has_equal_places() => {
                Some(lacking(None)).filter(|slots| !slots.is_empty()).into_iter().collect()
            }
            _ => ranges
                .map(|(start, _)| lacking(Some(*start)))
                .filter(|slots| !slots.is_empty())
                .collect(),
        }
    }
}
