use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::stack::{DmRaid, MdMember, MdState, StorageStack};

/// How many copies of each chunk are where, drawn as md(4) describes it: rows of chunks on a table of
/// members, and for each further far copy the same table again, moved on by the near copies within each
/// set of members.
fn drawn(disks: usize, near: usize, far: usize, far_sets: bool) -> Vec<BTreeSet<usize>> {
    // One place after the other, row by row, is one copy of a chunk.
    let rows = near * disks;
    let chunks = rows * disks / near;
    let place = |row: usize, member: usize| (row * disks + member) / near;
    let mut copies = vec![BTreeSet::new(); chunks];
    let sets: Vec<Vec<usize>> = match far_sets {
        false => vec![(0..disks).collect()],
        true => {
            let size = near * far;
            let full = disks / size;
            let start = |set: usize| set * size;
            (0..full)
                .map(|set| match set + 1 == full {
                    // What is left over belongs to the last set.
                    true => (start(set)..disks).collect(),
                    false => (start(set)..start(set + 1)).collect(),
                })
                .collect()
        }
    };
    for row in 0..rows {
        for set in &sets {
            for (at, member) in set.iter().enumerate() {
                for copy in 0..far {
                    let moved = (at + copy * near) % set.len();
                    copies[place(row, *member)].insert(set[moved]);
                }
            }
        }
    }
    copies
}

/// Every choice of `count` of these.
fn choices(of: &[usize], count: usize) -> Vec<Vec<usize>> {
    match (count, of) {
        (0, _) => vec![Vec::new()],
        (_, []) => Vec::new(),
        (count, [first, rest @ ..]) => {
            let mut with = choices(rest, count - 1);
            with.iter_mut().for_each(|choice| choice.push(*first));
            with.extend(choices(rest, count));
            with
        }
    }
}

/// The largest number of members of which every choice may fail; None if data is lost already.
fn tried(copies: &[BTreeSet<usize>], present: &[usize]) -> Option<usize> {
    let survives = |failed: &[usize]| {
        copies.iter().all(|members| {
            let mut members = members.iter();
            members.any(|it| present.contains(it) && !failed.contains(it))
        })
    };
    (0..=present.len())
        .take_while(|count| choices(present, *count).iter().all(|failed| survives(failed)))
        .last()
}

#[derive(Clone, Debug)]
struct Layout {
    disks: usize,
    near: usize,
    far: usize,
    word: u32,
    far_sets: bool,
}

/// Layouts that mdadm makes: near; far and offset, each in the old and in the corrected form.
fn layouts() -> impl Strategy<Value = Layout> {
    let shape = (2usize..9, 1usize..4, 1usize..4, any::<bool>(), any::<bool>());
    shape
        .prop_filter("more copies than members", |(disks, near, far, ..)| {
            near * far > 1 && near * far <= *disks
        })
        .prop_map(|(disks, near, far, offset, far_sets)| {
            let far_sets = far_sets && far > 1;
            let word =
                (near | far << 8) as u32 | u32::from(offset) << 16 | u32::from(far_sets) << 18;
            Layout { disks, near, far, word, far_sets }
        })
}

proptest! {
    #[test]
    fn a_raid10_tolerates_what_trying_every_failure_shows(layout in layouts(), lost in 0u32..256) {
        let scheme = Scheme::Raid10(Raid10::from_layout(Some(layout.word)));
        let in_sync: Vec<bool> = (0..layout.disks).map(|slot| lost >> slot & 1 == 0).collect();
        let present: Vec<usize> = (0..layout.disks).filter(|slot| in_sync[*slot]).collect();
        let copies = drawn(layout.disks, layout.near, layout.far, layout.far_sets);
        prop_assert_eq!(scheme.tolerates(&in_sync), tried(&copies, &present), "{:?}", layout);
    }

    #[test]
    fn a_further_loss_never_adds_redundancy(
        level in prop::sample::select(vec!["raid1", "raid4", "raid5", "raid6", "raid10", "raid10_near"]),
        word in prop::sample::select(vec![0x102u32, 0x103, 0x201, 0x10201, 0x40201, 0x202]),
        in_sync in prop::collection::vec(any::<bool>(), 1..9),
        further in any::<prop::sample::Index>(),
    ) {
        let scheme = Scheme::of(level, Some(word)).unwrap();
        let mut after = in_sync.clone();
        after[further.index(in_sync.len())] = false;
        let before = scheme.tolerates(&in_sync);
        // Nothing is less than none.
        prop_assert!(scheme.tolerates(&after) <= before);
        // The loss of one member costs one at most, as far as any was left.
        if let Some(before @ 1..) = before {
            prop_assert!(scheme.tolerates(&after) >= Some(before - 1));
        }
    }

    #[test]
    fn ranges_that_members_lack_never_add_redundancy(
        level in prop::sample::select(vec!["raid1", "raid5", "raid6", "raid10"]),
        disks in 2usize..7,
        ranges in prop::collection::vec((0usize..7, 0u64..40, 1u64..9), 0..6),
        is_resync_due in any::<bool>(),
    ) {
        let mut md = complete(level, disks);
        let whole = array(&md).tolerates().unwrap();
        for (member, start, length) in ranges {
            md.members[member % disks].bad_blocks.push((start, length));
        }
        md.is_resync_due = is_resync_due;
        let left = array(&md).tolerates();
        // The array runs: never below 0.
        prop_assert!(left.is_some() && left <= Some(whole));
    }
}

fn complete(level: &str, disks: usize) -> MdState {
    let member = |slot: usize| MdMember {
        device: format!("sd{}", ["a", "b", "c", "d", "e", "f", "g", "h"][slot]),
        state: "in_sync".into(),
        slot: Some(slot as u32),
        errors: 0,
        bad_blocks: Vec::new(),
    };
    MdState {
        level: level.into(),
        raid_disks: disks as u32,
        array_state: "clean".into(),
        members: (0..disks).map(member).collect(),
        ..MdState::default()
    }
}

fn array(md: &MdState) -> Array {
    md.array().unwrap()
}

#[test]
fn each_level_tolerates_what_its_members_in_sync_allow() {
    for (level, layout, in_sync, expected) in [
        ("raid1", None, "11", Some(1)),
        ("raid1", None, "10", Some(0)),
        ("raid1", None, "110", Some(1)),
        ("raid1", None, "1", Some(0)),
        ("raid5", None, "1111", Some(1)),
        ("raid5", None, "0111", Some(0)),
        ("raid4", None, "0011", None),
        ("raid6", None, "11101", Some(1)),
        ("raid6_zr", None, "10101", Some(0)),
        ("raid10", Some(0x102), "1111", Some(1)),
        // Two of four, of different pairs: every chunk has one copy.
        ("raid10", Some(0x102), "1010", Some(0)),
        ("raid10", Some(0x102), "0011", None),
        // The next member has the far copy.
        ("raid10", Some(0x201), "1010", Some(0)),
        ("raid10", Some(0x103), "111", Some(2)),
    ] {
        let in_sync: Vec<bool> = in_sync.chars().map(|slot| slot == '1').collect();
        let scheme = Scheme::of(level, layout).unwrap();
        assert_eq!(scheme.tolerates(&in_sync), expected, "{level} {in_sync:?}");
    }
    assert_eq!(Scheme::of("raid0", None), None);
    assert_eq!(Scheme::of("linear", None), None);
}

#[test]
fn what_counts_as_a_copy() {
    let mut md = complete("raid1", 2);
    // A member that is only written to is one, and so is the old one while its replacement is filled.
    md.members[1].state = "in_sync,write_mostly,want_replacement".into();
    md.members.push(MdMember { state: "spare,replacement".into(), ..md.members[1].clone() });
    assert_eq!(array(&md).tolerates(), Some(1));
    // The replacement is complete before the old one leaves: the slot still counts once.
    md.members[2].state = "in_sync,replacement".into();
    assert_eq!(array(&md).tolerates(), Some(1));
    // A member that is being filled, and a spare, are none.
    md.members.pop();
    md.members[1].state = "spare".into();
    md.degraded = 1;
    assert_eq!(array(&md).tolerates(), Some(0));
    md.members[1].slot = None;
    assert_eq!(array(&md).tolerates(), Some(0));
}

#[test]
fn a_range_that_a_member_lacks_has_one_copy_less() {
    let mut md = complete("raid1", 2);
    md.members[0].bad_blocks = vec![(100, 8)];
    let left = array(&md);
    assert_eq!(left.tolerates(), Some(0));
    let sets = left.copy_sets().unwrap();
    let last: Vec<_> = sets.iter().filter(|set| set.tolerates == 0).collect();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].members, BTreeSet::from([1]), "sdb holds the range alone");
    // Different ranges of two members of three: each has two copies.
    let mut md = complete("raid1", 3);
    md.members[0].bad_blocks = vec![(100, 8)];
    md.members[1].bad_blocks = vec![(200, 8)];
    assert_eq!(array(&md).tolerates(), Some(1));
    md.members[1].bad_blocks = vec![(104, 8)];
    assert_eq!(array(&md).tolerates(), Some(0));
}

#[test]
fn parity_counts_only_when_it_is_computed_and_copies_always() {
    for (level, expected) in [("raid5", 0), ("raid6", 0), ("raid1", 3), ("raid10", 1)] {
        let mut md = complete(level, 4);
        md.is_resync_due = true;
        assert_eq!(array(&md).tolerates(), Some(expected), "{level}");
    }
}

#[test]
fn the_letters_of_lvm_are_members() {
    for (level, health, expected) in [
        ("raid1", "AA", Some(1)),
        ("raid1", "Aa", Some(0)),
        ("raid1", "AD", Some(0)),
        ("raid1", "A-", Some(0)),
        // The first synchronization, or the one after a crash: both legs hold what was written.
        ("raid1", "aa", Some(1)),
        ("raid5_ls", "aaa", Some(0)),
        ("raid6_zr", "aaaaa", Some(0)),
        ("raid5_ls", "AAD", Some(0)),
        ("raid5_ls", "ADD", None),
        ("raid6_zr", "AAAAD", Some(1)),
        ("raid10", "AAAD", Some(0)),
        ("raid10", "ADDA", Some(0)),
        ("raid10", "DDAA", None),
    ] {
        let state = DmRaid {
            level: level.into(),
            health: health.into(),
            sync_action: None,
            ..DmRaid::default()
        };
        let left = state.tolerates();
        assert_eq!(left, expected, "{level} {health}");
    }
}

#[test]
fn the_kernels_own_count_decides_about_a_list_that_was_read_while_it_changed() {
    let mut md = complete("raid5", 4);
    md.degraded = 1;
    assert_eq!(array(&md).tolerates(), Some(0), "the list is older");
    md.degraded = 0;
    md.members.pop();
    assert_eq!(array(&md).tolerates(), Some(1), "the list is newer");
    md.members.clear();
    md.degraded = 1;
    assert_eq!(array(&md).tolerates(), Some(0), "there is no list");
}
