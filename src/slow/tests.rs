//! Laws of a whole node.

use std::collections::BTreeMap;
use std::mem::size_of;

use proptest::prelude::*;

use crate::synthetic::{Fault, SyntheticNode};
use crate::*;

fn kind(medium: Medium) -> Kind {
    Kind { medium, model: "M".into() }
}

fn node(drives: usize, medium: Medium) -> Node<usize> {
    let mut node = Node::new(Limits::default());
    (0..drives).for_each(|drive| node.add(drive, kind(medium)));
    node
}

/// A minute of 4 KiB reads, 10 each second, of so many microseconds.
fn reads(microseconds: u64) -> Piece {
    let read = Traffic { ios: 600, sectors: 4_800, milliseconds: 600 * microseconds / 1_000 };
    let growth = Counters { read, write: Traffic::default() };
    Piece { growth, length: 60_000, silence: None }
}

/// Hours in which drive `d` needs `service(d, hour)` microseconds; the outcomes.
fn hours(
    node: &mut Node<usize>,
    hours: std::ops::Range<u64>,
    service: impl Fn(usize, u64) -> u64,
) -> Vec<NodeHour<usize>> {
    let names: Vec<usize> = node.drives().keys().copied().collect();
    let mut closed = Vec::new();
    for minute in hours.start * 60..hours.end * 60 {
        for name in &names {
            let piece = reads(service(*name, minute / 60));
            closed.extend(node.observe(name, minute * 60, Some(&piece)));
        }
    }
    closed.extend(node.finish());
    closed
}

fn slow_drives(hours: &[NodeHour<usize>]) -> Vec<usize> {
    let drives = hours.iter().flat_map(|hour| &hour.drives);
    let slow = drives.filter(|(_, of)| matches!(of.outcome, Outcome::Slow(_)));
    let mut slow: Vec<usize> = slow.map(|(name, _)| *name).collect();
    slow.dedup();
    slow
}

#[test]
fn a_drive_at_seven_times_its_peers_is_named_with_them_before_it_has_a_past() {
    let mut node = node(5, Medium::Rotating);
    let closed = hours(&mut node, 0..3, |drive, _| if drive == 2 { 77_000 } else { 11_000 });
    assert_eq!(slow_drives(&closed), [2]);
    let Outcome::Slow(slow) = closed[0].drives[&2].outcome else { panic!("{closed:?}") };
    assert_eq!((slow.now.peers, slow.now.usual), (Some((11_000, 4)), None));
    assert_eq!((slow.now.service / 1_000, slow.slow, slow.judged), (77, 60, 60));
    assert_eq!(node.drives()[&2].slow_hours(), [0, 1, 2]);
    assert_eq!(node.drives()[&2].level(), Level::Slow);
    hours(&mut node, 20..21, |drive, _| if drive == 2 { 77_000 } else { 11_000 });
    assert_eq!(node.drives()[&2].level(), Level::Persistent);
}

#[test]
fn with_a_past_half_of_that_is_enough() {
    let mut node = node(4, Medium::Rotating);
    assert_eq!(slow_drives(&hours(&mut node, 0..360, |_, _| 11_000)), [0; 0]);
    let closed = hours(&mut node, 360..361, |drive, _| if drive == 1 { 38_000 } else { 11_000 });
    assert_eq!(slow_drives(&closed), [1]);
    assert!(closed[0].drives[&1].slowdown.is_some_and(|ratio| (3.4..3.5).contains(&ratio)));
}

#[test]
fn a_lone_drive_is_judged_by_its_past_and_without_one_not_at_all() {
    let mut node = node(1, Medium::Rotating);
    let closed = hours(&mut node, 0..1, |_, _| 100_000);
    assert_eq!(closed[0].drives[&0].outcome, Outcome::NotJudged);
    let mut node = self::node(1, Medium::Rotating);
    let closed = hours(&mut node, 0..362, |_, hour| if hour < 360 { 11_000 } else { 90_000 });
    assert_eq!(slow_drives(&closed), [0]);
}

#[test]
fn a_slow_drive_does_not_teach_itself_that_this_is_usual() {
    let mut node = node(4, Medium::Rotating);
    let closed = hours(&mut node, 0..900, |drive, _| if drive == 3 { 80_000 } else { 11_000 });
    assert_eq!(slow_drives(&closed[899..]), [3]);
    let mut lone = self::node(1, Medium::Rotating);
    let slow = |_, hour| if hour < 360 { 11_000 } else { 90_000 };
    assert_eq!(slow_drives(&hours(&mut lone, 0..900, slow)[899..]), [0]);
}

#[test]
fn a_drive_that_is_well_again_clears_after_a_day() {
    let mut node = node(4, Medium::Rotating);
    hours(&mut node, 0..5, |drive, _| if drive == 3 { 80_000 } else { 11_000 });
    hours(&mut node, 5..28, |_, _| 11_000);
    assert_eq!(node.drives()[&3].level(), Level::Slow);
    hours(&mut node, 28..29, |_, _| 11_000);
    assert_eq!(node.drives()[&3].level(), Level::Usual);
}

#[test]
fn two_of_four_that_are_slow_at_once_have_a_common_cause() {
    let mut node = node(4, Medium::Rotating);
    hours(&mut node, 0..360, |_, _| 11_000);
    let closed = hours(&mut node, 360..363, |drive, _| if drive < 2 { 90_000 } else { 11_000 });
    assert_eq!(slow_drives(&closed), [0; 0]);
    let outcomes = closed[0].drives.values().map(|of| of.outcome).collect::<Vec<_>>();
    assert_eq!(outcomes[..2], [Outcome::CommonCause; 2]);
    assert_eq!(node.drives()[&0].level(), Level::Usual);
}

#[test]
fn drives_of_other_models_are_no_peers_and_share_a_common_cause() {
    let mut node = Node::new(Limits::default());
    for drive in 0..4usize {
        let model = format!("M{drive}");
        node.add(drive, Kind { medium: Medium::Rotating, model: model.into() });
    }
    let closed = hours(&mut node, 0..1, |drive, _| if drive == 0 { 90_000 } else { 11_000 });
    assert_eq!(closed[0].drives[&0].outcome, Outcome::NotJudged);
    hours(&mut node, 1..361, |_, _| 11_000);
    assert_eq!(slow_drives(&hours(&mut node, 361..364, |_, _| 90_000)), [0; 0]);
}

#[test]
fn a_silent_window_is_counted_and_not_judged() {
    let mut node = node(4, Medium::Rotating);
    for minute in 0..120 {
        for drive in 0..4 {
            let silence = (drive == 1).then_some(Silence::Checked);
            let slow = Piece { silence, ..reads(if drive == 1 { 90_000 } else { 11_000 }) };
            node.observe(&drive, minute * 60, Some(&slow));
        }
    }
    let tally = node.drives()[&1].tally();
    assert_eq!(tally.silenced().collect::<Vec<_>>(), [(Silence::Checked, 120)]);
    assert!(tally.is_hidden());
    assert_eq!(node.drives()[&1].level(), Level::Usual);
}

#[test]
fn writes_of_flash_are_counted_as_not_judged() {
    let mut node = node(4, Medium::Flash);
    for minute in 0..120 {
        for drive in 0..4 {
            let Piece { growth, .. } = reads(if drive == 1 { 90_000 } else { 1_000 });
            let growth = Counters { read: Traffic::default(), write: growth.read };
            let piece = Piece { growth, length: 60_000, silence: None };
            node.observe(&drive, minute * 60, Some(&piece));
        }
    }
    assert_eq!(node.drives()[&1].level(), Level::Usual);
    assert!(node.drives()[&1].tally().is_hidden());
}

#[test]
fn the_state_of_64_drives_is_less_than_half_a_mebibyte() {
    let samples = 150 * size_of::<sample::Sample>();
    let drive =
        size_of::<Drive>() + size_of::<baseline::Baseline>() + samples + 168 * size_of::<u32>();
    assert!(64 * drive <= 512 << 10, "{drive} bytes a drive");
    let mut node = node(1, Medium::Rotating);
    for second in 0..20_000 {
        node.observe(&0, second, Some(&reads(10_000)));
    }
    assert!(node.drives()[&0].samples.capacity() <= 256);
}

fn synthetic_slow(seed: u64, is_rotating: bool, fault: Option<Fault>) -> Vec<usize> {
    let drives = 4;
    let mut source = SyntheticNode::new(seed, drives, is_rotating, true, fault);
    let medium = if is_rotating { Medium::Rotating } else { Medium::Flash };
    let mut node = node(drives, medium);
    let mut closed = Vec::new();
    for minute in 0..17 * 1440 {
        for (drive, growth) in source.minute().into_iter().enumerate() {
            let piece = Piece { growth, length: 60_000, silence: None };
            closed.extend(node.observe(&drive, minute * 60, Some(&piece)));
        }
    }
    slow_drives(&closed)
}

#[test]
fn of_synthetic_drives_the_slow_one_is_found_and_no_healthy_one() {
    for is_rotating in [true, false] {
        let fault = Fault { from_minute: 15 * 1440, factor: 10.0, part: 1.0 };
        assert_eq!(synthetic_slow(7, is_rotating, Some(fault)), [0]);
        assert_eq!(synthetic_slow(8, is_rotating, None), [0; 0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn equal_drives_are_never_slow_however_slow_they_are(
        drives in 1usize..8, services in proptest::collection::vec(1_000u64..2_000_000, 30),
    ) {
        let mut node = node(drives, Medium::Rotating);
        let closed = hours(&mut node, 0..30, |_, hour| services[hour as usize]);
        prop_assert_eq!(slow_drives(&closed), [0; 0]);
    }

    #[test]
    fn the_order_of_drives_does_not_change_who_is_slow(
        services in proptest::collection::vec(5_000u64..200_000, 4..9),
    ) {
        let mut forward = node(services.len(), Medium::Rotating);
        let mut back = forward.clone();
        let last = services.len() - 1;
        hours(&mut forward, 0..3, |drive, _| services[drive]);
        hours(&mut back, 0..3, |drive, _| services[last - drive]);
        let levels = |node: &Node<usize>| -> BTreeMap<usize, Level> {
            node.drives().iter().map(|(name, drive)| (*name, drive.level())).collect()
        };
        let (forward, back) = (levels(&forward), levels(&back));
        for drive in 0..services.len() {
            prop_assert_eq!(forward[&drive], back[&(last - drive)]);
        }
    }

    #[test]
    fn no_gap_reset_or_odd_growth_makes_equal_drives_slow(
        odd in proptest::collection::vec((0usize..4, 0u64..180, proptest::option::of((0u64..200, 0u64..1 << 33, 0u64..200_000))), 0..25),
    ) {
        let mut node = node(4, Medium::Rotating);
        let mut closed = Vec::new();
        for minute in 0..180u64 {
            for drive in 0..4usize {
                let mut piece = Some(reads(11_000));
                for (_, _, odd) in odd.iter().filter(|it| (it.0, it.1) == (drive, minute)) {
                    piece = odd.map(|(ios, milliseconds, length)| {
                        let read = Traffic { ios, sectors: ios, milliseconds };
                        let growth = Counters { read, write: Traffic::default() };
                        Piece { growth, length, silence: None }
                    });
                }
                closed.extend(node.observe(&drive, minute * 60, piece.as_ref()));
            }
        }
        prop_assert_eq!(slow_drives(&closed), [0; 0]);
    }
}
