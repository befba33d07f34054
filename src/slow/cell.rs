//! Cells: like is compared with like only. A cell is a direction, a size of requests and a load.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// The mean size of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Up to 24 KiB.
    Small,
    /// Up to 192 KiB.
    Medium,
    Large,
}

/// The mean number of requests in flight, of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadClass {
    /// Up to 1.
    One,
    /// Up to 4.
    Few,
    /// Up to 16.
    Many,
    Deep,
}

const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];
const SIZES: [SizeClass; 3] = [SizeClass::Small, SizeClass::Medium, SizeClass::Large];
const LOADS: [LoadClass; 4] = [LoadClass::One, LoadClass::Few, LoadClass::Many, LoadClass::Deep];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(u8);

impl Cell {
    pub const COUNT: usize = 24;

    /// Bytes of the mean request, and requests in flight.
    pub(crate) fn of(direction: Direction, bytes: f32, in_flight: f32) -> Cell {
        let size = [24.0, 192.0].iter().filter(|kib| bytes > **kib * 1024.0).count();
        let load = [1.0, 4.0, 16.0].iter().filter(|limit| in_flight > **limit).count();
        Cell((direction as usize * 12 + size * 4 + load) as u8)
    }

    pub fn all() -> impl Iterator<Item = Cell> {
        (0..Cell::COUNT as u8).map(Cell)
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub fn direction(self) -> Direction {
        DIRECTIONS[self.index() / 12]
    }

    pub fn size(self) -> SizeClass {
        SIZES[self.index() / 4 % 3]
    }

    pub fn load(self) -> LoadClass {
        LOADS[self.index() % 4]
    }

    /// This cell, and for reads those of lower load, the nearest first. A slow drive has more requests
    /// in flight than its peers at the same work, and no peer is in its cell. A healthy drive serves a
    /// read of a long queue no slower than one of a short queue, so that this comparison accuses nobody.
    /// Not so for writes: a cache takes the few, not the many.
    pub(crate) fn and_lighter(self) -> impl Iterator<Item = Cell> {
        let lighter = match self.direction() {
            Direction::Read => self.0 % 4,
            Direction::Write => 0,
        };
        (0..=lighter).map(move |less| Cell(self.0 - less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_have_the_limits_that_their_names_say() {
        let cell = Cell::of(Direction::Write, 24.0 * 1024.0, 1.0);
        assert_eq!((cell.size(), cell.load()), (SizeClass::Small, LoadClass::One));
        let cell = Cell::of(Direction::Write, 24.0 * 1024.0 + 1.0, 1.1);
        assert_eq!((cell.size(), cell.load()), (SizeClass::Medium, LoadClass::Few));
        let cell = Cell::of(Direction::Read, 1e6, 17.0);
        assert_eq!((cell.size(), cell.load()), (SizeClass::Large, LoadClass::Deep));
        assert_eq!(cell.and_lighter().count(), 4);
    }

    proptest! {
        #[test]
        fn every_request_has_one_cell(bytes in 0f32..1e8, in_flight in 0f32..1e5, is_read: bool) {
            let direction = if is_read { Direction::Read } else { Direction::Write };
            let cell = Cell::of(direction, bytes, in_flight);
            prop_assert_eq!(Cell::all().nth(cell.index()), Some(cell));
            prop_assert_eq!(cell.direction(), direction);
            for other in cell.and_lighter() {
                prop_assert_eq!((other.direction(), other.size()), (direction, cell.size()));
                prop_assert!(other.load() <= cell.load());
            }
        }
    }
}
