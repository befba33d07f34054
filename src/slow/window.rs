//! Windows: pieces of growth are added up until they are about a minute.

use crate::counters::Counters;
use crate::silence::Silence;

/// The growth between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    pub growth: Counters,
    /// Milliseconds between the readings.
    pub length: u64,
    /// Why these counters tell nothing about the drive.
    pub silence: Option<Silence>,
}

/// A window that is being filled, and with `add` one that is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) work: Counters,
    pub(crate) length: u64,
    /// The first of its pieces'.
    pub(crate) silence: Option<Silence>,
}

impl Window {
    /// The window, once its length is as near to `target` as its pieces allow. One that is more than
    /// a fifth longer or shorter is left out.
    pub(crate) fn add(&mut self, piece: &Piece, target: u64) -> Option<Window> {
        self.work.add(&piece.growth);
        self.length = self.length.saturating_add(piece.length);
        self.silence = self.silence.or(piece.silence);
        if self.length.saturating_add(piece.length / 2) < target {
            return None;
        }
        let window = std::mem::take(self);
        (window.length.abs_diff(target) <= target / 5).then_some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(length: u64) -> Piece {
        Piece { length, ..Piece::default() }
    }

    #[test]
    fn a_late_reading_gives_no_window_and_the_next_one_begins_anew() {
        let mut window = Window::default();
        assert!(window.add(&piece(73_000), 60_000).is_none());
        assert!(window.add(&piece(60_000), 60_000).is_some());
    }

    #[test]
    fn a_piece_that_is_silent_makes_its_window_silent() {
        let mut window = Window::default();
        let silent = Piece { silence: Some(Silence::Checked), ..piece(10_000) };
        let pieces = [piece(10_000), silent, piece(40_000)];
        let full = pieces.iter().find_map(|piece| window.add(piece, 60_000)).expect("full");
        assert_eq!(full.silence, Some(Silence::Checked));
        assert_eq!(window.silence, None);
    }

    proptest! {
        #[test]
        fn readings_of_up_to_30_s_all_become_windows(length in 1u64..30_000) {
            let mut window = Window::default();
            let full = (0..60_000).find_map(|_| window.add(&piece(length), 60_000)).expect("full");
            prop_assert!(full.length.abs_diff(60_000) <= length / 2 + 1);
        }
    }
}
