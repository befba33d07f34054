//! One drive: the samples of the hour that runs, and what is known of the hours before it.

use std::sync::Arc;

use crate::baseline::Baseline;
use crate::cell::Cell;
use crate::history::{History, Level};
use crate::sample::{Medium, Sample, samples};
use crate::silence::{Silence, Tally};
use crate::window::{Piece, Window};

/// Windows of an hour are at least 48 s long, and have two directions.
const MAX_SAMPLES: usize = 150;

/// What a drive is compared as: drives with the same are peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub medium: Medium,
    pub model: Arc<str>,
}

/// A cell in the last hour that had samples in it; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellNow {
    pub hour: u32,
    /// No samples: the drive never used this cell.
    pub samples: u16,
    /// The median of the hour.
    pub service: u32,
    /// What 95 of 100 of the drive's own windows needed at most.
    pub usual: Option<u32>,
    /// The median of the peers, and how many they are.
    pub peers: Option<(u32, u16)>,
}

#[derive(Clone, Debug)]
pub struct Drive {
    pub(crate) kind: Kind,
    window: Window,
    pub(crate) samples: Vec<Sample>,
    pub(crate) baseline: Box<Baseline>,
    pub(crate) history: History,
    tally: Tally,
    pub(crate) cells: [CellNow; Cell::COUNT],
}

impl Drive {
    pub fn new(kind: Kind) -> Drive {
        Drive {
            kind,
            window: Window::default(),
            samples: Vec::new(),
            baseline: Box::default(),
            history: History::default(),
            tally: Tally::default(),
            cells: [CellNow::default(); Cell::COUNT],
        }
    }

    /// `None`: no reading, a gap, or a counter that went back. What was begun is left out.
    pub(crate) fn observe(&mut self, piece: Option<&Piece>, window: u64, hour: u32) {
        let Some(piece) = piece else {
            self.window = Window::default();
            return;
        };
        let Some(full) = self.window.add(piece, window) else {
            return;
        };
        let medium = self.kind.medium;
        let samples = samples(&full.work, full.length, medium).into_iter().flatten();
        let of_load: Vec<Sample> = samples.collect();
        if of_load.is_empty() {
            return;
        }
        let is_judged = |sample: &&Sample| medium.is_judged(sample.cell.direction(), &full.work);
        let writes = (!of_load.iter().any(|it| is_judged(&it))).then_some(Silence::Writes);
        let silence = full.silence.or(writes);
        self.tally.count(hour / 24, silence);
        if silence.is_none() && self.samples.len() + 2 <= MAX_SAMPLES {
            self.samples.extend(of_load.iter().filter(is_judged));
        }
    }

    /// Starts anew: another firmware, scheduler or clock, or a person's order.
    pub fn relearn(&mut self) {
        *self = Drive::new(self.kind.clone());
    }

    pub fn level(&self) -> Level {
        self.history.level()
    }

    /// The slow hours of the last seven days.
    pub fn slow_hours(&self) -> &[u32] {
        self.history.slow_hours()
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The cells that the drive has used.
    pub fn cells(&self) -> impl Iterator<Item = (Cell, &CellNow)> {
        Cell::all().zip(&self.cells).filter(|(_, cell)| cell.samples > 0)
    }
}
