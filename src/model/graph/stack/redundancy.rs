//! How the parts of a stack are combined.

use crate::volume::Stack;

/// A stack with more parts becomes a plain list of its drives. Every drive is then required, which
/// never hides a failure.
const MAX_PARTS: usize = 1024;

/// The sets of an array's members that hold the same data. Members that are being filled hold none yet:
/// losing one costs the rebuild, not the data.
pub(super) fn with_rebuild(level: String, mut sets: Vec<Stack>, filling: Vec<Stack>) -> Stack {
    if !filling.is_empty() {
        sets.push(Stack::Redundant {
            level: format!("{level}, rebuilding"),
            tolerates: filling.len(),
            parts: filling,
        });
    }
    combine(sets)
}

/// Combines parts: duplicates count once (paths of a drive), empty parts are dropped.
pub(in crate::graph) fn combine(parts: Vec<Stack>) -> Stack {
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
    Stack::All(stack.drives().into_iter().cloned().map(Stack::Drive).collect())
}

fn count(stack: &Stack) -> usize {
    match stack {
        Stack::Nothing | Stack::Drive(_) => 1,
        Stack::All(parts) | Stack::Redundant { parts, .. } => {
            1 + parts.iter().map(count).sum::<usize>()
        }
    }
}
