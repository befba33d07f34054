//! How many members each RAID level and btrfs profile may lose, and how parts are combined.

use crate::model::block::MdState;
use crate::model::volume::Stack;

/// A stack with more parts becomes a plain list of its drives. Every drive is then required, which
/// never hides a failure.
const MAX_PARTS: usize = 1024;

/// Members that are being rebuilt hold no data yet: losing one costs the rebuild, not the data.
pub(super) fn with_rebuild(
    level: String,
    tolerates: usize,
    working: Vec<Stack>,
    filling: Vec<Stack>,
) -> Stack {
    let rebuild = (!filling.is_empty()).then(|| Stack::Redundant {
        level: format!("{level}, rebuilding"),
        tolerates: filling.len(),
        parts: filling,
    });
    let whole = Stack::Redundant {
        level,
        tolerates,
        parts: working,
    };
    match rebuild {
        Some(rebuild) => Stack::All(vec![whole, rebuild]),
        None => whole,
    }
}

/// How many members a RAID of this level may lose; `None` for a level without redundancy. Names of
/// md (md.rst) and of dm-raid (`raid5_ls`…).
pub(crate) fn tolerance(level: &str, disks: usize) -> Option<usize> {
    match level {
        "raid1" | "mirror" => Some(disks.saturating_sub(1)),
        level if level.starts_with("raid10") => Some(1),
        level if level.starts_with("raid4") || level.starts_with("raid5") => Some(1),
        level if level.starts_with("raid6") => Some(2),
        _ => None,
    }
}

pub(crate) fn btrfs_tolerance(profile: &str) -> usize {
    match profile.to_ascii_lowercase().as_str() {
        "raid1" | "raid10" | "raid5" => 1,
        "raid1c3" | "raid6" => 2,
        "raid1c4" => 3,
        _ => 0,
    }
}

/// Members that hold data, and those that are being rebuilt. Faulty members and idle spares are in
/// neither list.
pub(super) fn md_members(state: &MdState) -> (Vec<String>, Vec<String>) {
    let mut working = Vec::new();
    let mut rebuilding = Vec::new();
    for member in state.members.iter().filter(|member| member.slot.is_some()) {
        let is = |word: &str| member.state.split(',').any(|part| part.trim() == word);
        if is("in_sync") {
            working.push(member.device.clone());
        } else if !is("faulty") {
            rebuilding.push(member.device.clone());
        }
    }
    (working, rebuilding)
}

/// Combines parts: duplicates count once (paths of a drive), empty parts are dropped.
pub(in crate::model::graph) fn combine(parts: Vec<Stack>) -> Stack {
    let mut kept: Vec<Stack> = Vec::new();
    for part in parts {
        if part != Stack::Nothing && !kept.contains(&part) {
            kept.push(part);
        }
    }
    match kept.len() {
        0 => Stack::Nothing,
        1 => kept.remove(0),
        _ => Stack::All(kept),
    }
}

pub(super) fn bounded(stack: Stack) -> Stack {
    if count(&stack) <= MAX_PARTS {
        return stack;
    }
    Stack::All(
        stack
            .drives()
            .into_iter()
            .cloned()
            .map(Stack::Drive)
            .collect(),
    )
}

fn count(stack: &Stack) -> usize {
    match stack {
        Stack::Nothing | Stack::Drive(_) => 1,
        Stack::All(parts) | Stack::Redundant { parts, .. } => {
            1 + parts.iter().map(count).sum::<usize>()
        }
    }
}
