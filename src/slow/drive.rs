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
/// Bytes a millisecond (20 MB/s) that fill a cache faster than it may empty.
const MANY_WRITES: u64 = 20_000;
/// An SLC cache of 100 GB empties at 40 MB/s in less than that.
const RECOVERY_WINDOWS: u8 = 60;

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
    /// Windows with load until flash may have cleaned up after many writes.
    recovering: u8,
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
            recovering: 0,
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
        let is_beside_writes = !of_load.iter().any(|it| is_judged(&it));
        let bytes_written = full.work.write.sectors.saturating_mul(512);
        self.recovering = match bytes_written / full.length.max(1) >= MANY_WRITES {
            true if medium != Medium::Rotating => RECOVERY_WINDOWS,
            _ => self.recovering.saturating_sub(1),
        };
        let writes = (is_beside_writes || self.recovering > 0).then_some(Silence::Writes);
        let silence = full.silence.or(writes);
        self.tally.count(hour / 24, silence);
        if silence.is_none() && self.samples.len() + 2 <= MAX_SAMPLES {
            self.samples.extend(of_load.iter().filter(is_judged));
        }
    }

    pub fn level(&self) -> Level {
        self.history.level()
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The cells that the drive has used.
    pub fn cells(&self) -> impl Iterator<Item = (Cell, &CellNow)> {
        Cell::all().zip(&self.cells).filter(|(_, cell)| cell.samples > 0)
    }
}
