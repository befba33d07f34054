//! What the other drives of the same model needed in the same hour.

use crate::cell::Cell;
use crate::sample::Sample;

/// Samples of a cell that make a median.
const MIN_SAMPLES: usize = 10;
/// One other drive may be the odd one, and of two nobody says which.
const MIN_PEERS: usize = 3;

/// A drive's median service time of an hour in each cell, in microseconds.
pub(crate) type Medians = [Option<u32>; Cell::COUNT];

pub(crate) fn medians(samples: &[Sample]) -> Medians {
    let mut by_cell = [const { Vec::new() }; Cell::COUNT];
    for sample in samples {
        by_cell[sample.cell.index()].push(sample.service);
    }
    by_cell.map(|mut values| (values.len() >= MIN_SAMPLES).then(|| median(&mut values)))
}

/// The upper one of two.
pub(crate) fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    let middle = values.len() / 2;
    let by_size = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    *values.select_nth_unstable_by(middle, by_size).1
}

/// What the peers needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The median of the peers' medians, microseconds.
    pub(crate) service: u32,
    pub(crate) peers: u16,
}

/// In this cell, or in the nearest one of lower load. `others` has all but the drive itself, which
/// therefore cannot move what it is compared with.
pub(crate) fn reference<'m>(
    others: impl Iterator<Item = &'m Medians> + Clone,
    cell: Cell,
) -> Option<Reference> {
    cell.and_lighter().find_map(|cell| {
        let mut values: Vec<u32> =
            others.clone().filter_map(|medians| medians[cell.index()]).collect();
        (values.len() >= MIN_PEERS)
            .then(|| Reference { service: median(&mut values), peers: values.len() as u16 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Direction;
    use proptest::prelude::*;

    fn drive(service: u32) -> Medians {
        let cell = Cell::of(Direction::Read, 4096.0, 0.5);
        medians(&[Sample { service, cell, is_above_floor: true }; MIN_SAMPLES])
    }

    #[test]
    fn two_others_are_no_peers_and_nine_samples_no_median() {
        let cell = Cell::of(Direction::Read, 4096.0, 0.5);
        let drives = [drive(1), drive(2)];
        assert_eq!(reference(drives.iter(), cell), None);
        assert_eq!(
            medians(&[Sample { service: 1, cell, is_above_floor: true }; 9])[cell.index()],
            None
        );
    }

    #[test]
    fn a_busy_read_has_the_peers_of_a_lower_load_and_a_busy_write_has_not() {
        let drives = [drive(10), drive(11), drive(12)];
        let busy = |direction| reference(drives.iter(), Cell::of(direction, 4096.0, 9.0));
        assert_eq!(busy(Direction::Read), Some(Reference { service: 11, peers: 3 }));
        assert_eq!(busy(Direction::Write), None);
    }

    proptest! {
        #[test]
        fn one_odd_peer_does_not_move_the_reference_out_of_the_others(
            odd: u32, others in proptest::collection::vec(100u32..200, 3..20),
        ) {
            let mut drives: Vec<Medians> = others.iter().map(|service| drive(*service)).collect();
            drives.push(drive(odd));
            let cell = Cell::of(Direction::Read, 4096.0, 0.5);
            let reference = reference(drives.iter(), cell).expect("peers");
            prop_assert!((100..200).contains(&reference.service));
            prop_assert_eq!(usize::from(reference.peers), drives.len());
        }

        #[test]
        fn the_order_of_the_peers_does_not_matter(services in proptest::collection::vec(1u32..1000, 3..20)) {
            let drives: Vec<Medians> = services.iter().map(|service| drive(*service)).collect();
            let cell = Cell::of(Direction::Read, 4096.0, 0.5);
            prop_assert_eq!(reference(drives.iter(), cell), reference(drives.iter().rev(), cell));
        }
    }
}
