//! How many further members an array may lose, by the copies that are left. Pure.
//!
//! In: the state of an array as its driver shows it. Out: the sets of members that hold the same data,
//! and how many of each may still fail, in the worst case. Severities and texts do not belong here.

mod array;
mod raid10;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use array::{Array, Member};
pub use raid10::Raid10;

/// How an array keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Each member has all of the data.
    Mirror,
    /// All members together have the data, and parity for as many as this.
    Parity(usize),
    /// Each chunk is on some of the members.
    Raid10(Raid10),
}

impl Scheme {
    /// `None` for a level without redundancy. Names of md (md.rst) and of dm-raid (`raid5_ls`…).
    pub fn of(level: &str, layout: Option<u32>) -> Option<Scheme> {
        match level {
            "raid1" | "mirror" => Some(Scheme::Mirror),
            level if level.starts_with("raid10") => {
                Some(Scheme::Raid10(Raid10::from_layout(layout)))
            }
            level if level.starts_with("raid4") || level.starts_with("raid5") => {
                Some(Scheme::Parity(1))
            }
            level if level.starts_with("raid6") => Some(Scheme::Parity(2)),
            _ => None,
        }
    }

    /// The sets of members that hold the same data. `in_sync`: by slot, whether a member holds current
    /// data. `None` when some of the data has no copy left.
    pub(crate) fn copy_sets(self, in_sync: &[bool]) -> Option<Vec<CopySet>> {
        let all = 0..in_sync.len();
        let present: BTreeSet<usize> = all.filter(|slot| in_sync[*slot]).collect();
        let missing = in_sync.len() - present.len();
        match self {
            Scheme::Mirror => Some(vec![CopySet::copies(present)?]),
            Scheme::Parity(parity) => {
                Some(vec![CopySet { tolerates: parity.checked_sub(missing)?, members: present }])
            }
            Scheme::Raid10(layout) => {
                let sets = layout.copy_sets(in_sync.len()).into_iter();
                sets.map(|set| CopySet::copies(&set & &present)).collect()
            }
        }
    }

    /// How many further members may fail, in the worst case. `None` when some of the data has no copy
    /// left.
    #[cfg(test)]
    pub fn tolerates(self, in_sync: &[bool]) -> Option<usize> {
        let sets = self.copy_sets(in_sync)?;
        sets.iter().map(|set| set.tolerates).min()
    }
}

/// Members that hold the same data, by slot. It is lost when more than `tolerates` of them fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopySet {
    pub members: BTreeSet<usize>,
    pub tolerates: usize,
}

impl CopySet {
    fn copies(members: BTreeSet<usize>) -> Option<CopySet> {
        let tolerates = members.len().checked_sub(1)?;
        Some(CopySet { members, tolerates })
    }
}
