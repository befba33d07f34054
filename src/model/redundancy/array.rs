//! An array as md's sysfs or dm-raid's status shows it: which of its slots hold current data.

use std::collections::BTreeSet;

use crate::block::LayerState;
use crate::redundancy::{CopySet, Scheme};
use crate::stack::{DmRaid, MdState};

/// More than any metadata format of md allows.
const MAX_SLOTS: usize = 4096;

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
    /// `None` for other layers, and for levels without redundancy.
    pub fn of(state: &LayerState) -> Option<Array> {
        match state {
            LayerState::Md(md) => Array::of_md(md),
            LayerState::DmRaid(DmRaid { level, health, layout, .. }) => {
                Array::of_dm_raid(level, health, *layout)
            }
            _ => None,
        }
    }

    /// Spares, and members that are being filled, hold no current data; a member that is only written
    /// to does, and so does the old member while its replacement is filled (state_show(),
    /// drivers/md/md.c).
    pub(crate) fn of_md(md: &MdState) -> Option<Array> {
        let scheme = Scheme::of(&md.level, md.layout)?;
        let slots = md.members.iter().filter_map(|member| member.slot);
        let slots = slots.map(|slot| slot as usize + 1).max().unwrap_or(0);
        let slots = slots.max(md.raid_disks as usize).min(MAX_SLOTS);
        let mut members = vec![Member::default(); slots];
        for member in &md.members {
            let Some(slot) = member.slot.and_then(|slot| members.get_mut(slot as usize)) else {
                continue;
            };
            if member.is("in_sync") {
                slot.in_sync = true;
                slot.devices.push(member.device.clone());
                slot.bad_blocks.extend(&member.bad_blocks);
            } else if !member.is("faulty") {
                slot.filling.push(member.device.clone());
            }
        }
        // The files are read one after the other. The kernel's own count decides.
        let degraded = md.degraded as usize;
        let listed = members.iter().filter(|member| !member.in_sync).count();
        if md.members.is_empty() || degraded == 0 {
            members.iter_mut().for_each(|member| member.in_sync = true);
        }
        let unlisted = degraded.saturating_sub(if md.members.is_empty() { 0 } else { listed });
        let in_sync = members.iter_mut().rev().filter(|member| member.in_sync);
        in_sync.take(unlisted).for_each(|member| member.in_sync = false);
        Some(Array { scheme, members, is_parity_stale: md.is_resync_due })
    }

    /// Letters: `A` in sync, `a` not in sync, `D` dead, `-` missing (__raid_dev_status(),
    /// drivers/md/dm-raid.c). While the whole array is synchronized, after its creation or a crash, no
    /// leg is `A`: then each leg of a mirror holds all that was written, and no parity is valid.
    fn of_dm_raid(level: &str, health: &str, layout: Option<u32>) -> Option<Array> {
        let scheme = Scheme::of(level, layout)?;
        let is_whole_sync = !health.contains('A');
        let members = health.chars().map(|leg| Member {
            in_sync: leg == 'A' || (leg == 'a' && is_whole_sync),
            ..Member::default()
        });
        Some(Array { scheme, members: members.collect(), is_parity_stale: is_whole_sync })
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
