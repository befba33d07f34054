//! The drives of a node: closes each hour, compares, and says whose the slowness is.

use std::collections::BTreeMap;

use crate::cell::{Cell, Direction, LoadClass};
use crate::drive::{CellNow, Drive, Kind};
use crate::history::Level;
use crate::limits::Limits;
use crate::peers::{Medians, Reference, median, medians, reference};
use crate::sample::Sample;
use crate::window::Piece;

/// Why a drive is called slow: the cell with most slow samples of the hour; microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowHour {
    pub cell: Cell,
    pub now: CellNow,
    /// Of this direction, in all cells.
    pub slow: u16,
    pub judged: u16,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing that could be judged.
    NotJudged,
    Usual,
    /// It was slow, and so were too many others: a cable, a controller, the load.
    CommonCause,
    Slow(SlowHour),
}

#[derive(Clone, Debug, PartialEq)]
pub struct DriveHour {
    pub outcome: Outcome,
    /// Samples with something to compare them with.
    pub judged: u16,
    pub slow: u16,
    /// The median of samples by their reference: peers', else its own 95th percentile.
    pub slowdown: Option<f32>,
}

/// An hour that has ended (seconds / 3600).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeHour<K: Ord> {
    pub hour: u32,
    pub drives: BTreeMap<K, DriveHour>,
}

#[derive(Clone, Debug)]
pub struct Node<K: Ord> {
    limits: Limits,
    drives: BTreeMap<K, Drive>,
    hour: Option<u32>,
}

/// A drive's hour before it is known whose fault it was.
struct Findings {
    kind: Kind,
    hour: DriveHour,
    /// A direction with enough slow samples.
    slow: Option<SlowHour>,
    /// Slow by its own past alone, which peers that are slow too do not hide.
    is_slow_by_own: bool,
}

impl<K: Ord + Clone> Node<K> {
    pub fn new(limits: Limits) -> Node<K> {
        Node { limits, drives: BTreeMap::new(), hour: None }
    }

    /// A drive of another kind under the same name is another drive.
    pub fn add(&mut self, name: K, kind: Kind) {
        let drive = self.drives.entry(name).or_insert_with(|| Drive::new(kind.clone()));
        if drive.kind != kind {
            *drive = Drive::new(kind);
        }
    }

    pub fn remove(&mut self, name: &K) {
        self.drives.remove(name);
    }

    pub fn drives(&self) -> &BTreeMap<K, Drive> {
        &self.drives
    }

    pub fn drive_mut(&mut self, name: &K) -> Option<&mut Drive> {
        self.drives.get_mut(name)
    }

    /// The growth up to this second; `None` is a gap. Returns the hour that this one ends. Readings
    /// of one time come together, so that all drives have the hour.
    pub fn observe(&mut self, name: &K, second: u64, piece: Option<&Piece>) -> Option<NodeHour<K>> {
        let hour = second.saturating_mul(1_000) / self.limits.window.max(1) / 60;
        let hour = u32::try_from(hour).unwrap_or(u32::MAX);
        let ended = self.hour.replace(hour).filter(|before| *before != hour);
        let closed = ended.map(|ended| self.close(ended));
        if let Some(drive) = self.drives.get_mut(name) {
            drive.observe(piece, self.limits.window, hour);
        }
        closed
    }

    /// Judges the hour that runs, as at the end of a recording.
    pub fn finish(&mut self) -> Option<NodeHour<K>> {
        let hour = self.hour.take()?;
        Some(self.close(hour))
    }

    fn close(&mut self, hour: u32) -> NodeHour<K> {
        let medians: Vec<(Kind, Medians)> = self
            .drives
            .values()
            .map(|drive| (drive.kind.clone(), medians(&drive.samples)))
            .collect();
        let limits = self.limits;
        let mut found: Vec<Findings> = Vec::with_capacity(self.drives.len());
        for (index, drive) in self.drives.values_mut().enumerate() {
            let others = medians
                .iter()
                .enumerate()
                .filter(|(other, (kind, _))| *other != index && *kind == medians[index].0)
                .map(|(_, (_, medians))| medians);
            found.push(judge(drive, others, hour, &limits));
        }
        let shared = |finding: &Findings, is_alike: fn(&Kind, &Kind) -> bool| {
            let group = found
                .iter()
                .filter(|other| other.hour.judged > 0 && is_alike(&other.kind, &finding.kind));
            let slow = group.clone().filter(|it| it.slow.is_some() || it.is_slow_by_own).count();
            slow >= 2 && slow * 3 > group.count()
        };
        // A shelf may have several models.
        let is_common: Vec<bool> = found
            .iter()
            .map(|it| {
                shared(it, |a, b| a == b)
                    || shared(it, |a, b| a.medium.is_rotating() == b.medium.is_rotating())
            })
            .collect();
        let drives = self.drives.iter_mut().zip(found).zip(is_common);
        let drives = drives.map(|(((name, drive), finding), is_common)| {
            (name.clone(), conclude(drive, finding, is_common, hour))
        });
        NodeHour { hour, drives: drives.collect() }
    }
}

/// Writes the hour into the drive, and empties its samples.
fn conclude(drive: &mut Drive, finding: Findings, is_common: bool, hour: u32) -> DriveHour {
    let mut of_drive = finding.hour;
    let samples = std::mem::take(&mut drive.samples);
    match finding.slow {
        Some(_) if is_common => of_drive.outcome = Outcome::CommonCause,
        Some(slow) => {
            drive.history.slow(hour);
            of_drive.outcome = Outcome::Slow(slow);
        }
        None => drive.history.calm(hour, of_drive.judged.into(), of_drive.slow.into()),
    }
    // A slow drive must not teach itself that this is usual. What all drives have is their usual.
    if drive.history.level() == Level::Usual && finding.slow.is_none() {
        samples.iter().for_each(|sample| drive.baseline.learn(sample, hour));
    }
    of_drive
}

fn judge<'m>(
    drive: &mut Drive,
    others: impl Iterator<Item = &'m Medians> + Clone,
    hour: u32,
    limits: &Limits,
) -> Findings {
    for cell in Cell::all() {
        let mut values: Vec<u32> =
            drive.samples.iter().filter(|it| it.cell == cell).map(|it| it.service).collect();
        if !values.is_empty() {
            drive.cells[cell.index()] = CellNow {
                hour,
                samples: values.len() as u16,
                service: median(&mut values),
                usual: drive.baseline.usual(cell, hour),
                peers: reference(others.clone(), cell)
                    .map(|Reference { service, peers }| (service, peers)),
            };
        }
    }
    let mut ratios = Vec::new();
    let (mut judged, mut slow, mut slow_by_own) = ([0u16; 2], [0u16; 2], [0u16; 2]);
    let mut slow_by_cell = [0u16; Cell::COUNT];
    for sample in &drive.samples {
        let now = &drive.cells[sample.cell.index()];
        let Some(is_slow) = is_slow(sample, now, limits) else {
            continue;
        };
        let direction = sample.cell.direction() as usize;
        judged[direction] += 1;
        slow[direction] += u16::from(is_slow);
        slow_by_cell[sample.cell.index()] += u16::from(is_slow);
        slow_by_own[direction] += u16::from(
            sample.is_above_floor
                && now.usual.is_some_and(|usual| sample.is_times(limits.own, usual)),
        );
        let reference = now.peers.map(|(peers, _)| peers).or(now.usual);
        ratios.extend(reference.map(|it| sample.service as f32 / it.max(1) as f32));
    }
    let is_enough = |slow: &[u16; 2], direction: usize| {
        slow[direction] >= limits.slow_samples && slow[direction] * 2 >= judged[direction]
    };
    let slow_direction = [Direction::Read, Direction::Write]
        .into_iter()
        .find(|direction| is_enough(&slow, *direction as usize));
    let slow_hour = slow_direction.and_then(|direction| {
        let cells = Cell::all().filter(|cell| cell.direction() == direction);
        let cell = cells.max_by_key(|cell| slow_by_cell[cell.index()])?;
        let (slow, judged) = (slow[direction as usize], judged[direction as usize]);
        Some(SlowHour { cell, now: drive.cells[cell.index()], slow, judged })
    });
    let total = judged.iter().sum();
    Findings {
        kind: drive.kind.clone(),
        hour: DriveHour {
            outcome: if total == 0 { Outcome::NotJudged } else { Outcome::Usual },
            judged: total,
            slow: slow.iter().sum(),
            slowdown: (!ratios.is_empty()).then(|| median(&mut ratios)),
        },
        slow: slow_hour,
        is_slow_by_own: [0, 1].into_iter().any(|direction| is_enough(&slow_by_own, direction)),
    }
}

impl Sample {
    fn is_times(&self, factor: f32, reference: u32) -> bool {
        self.service as f32 >= factor * reference as f32
    }
}

/// `None`: there is nothing to compare it with.
fn is_slow(sample: &Sample, now: &CellNow, limits: &Limits) -> Option<bool> {
    let is_beyond = match (now.peers, now.usual) {
        (Some((peers, _)), Some(usual)) => {
            sample.is_times(limits.peers, peers) && sample.is_times(limits.own, usual)
        }
        (Some((peers, _)), None) => sample.is_times(limits.peers_only, peers),
        // A long queue is the load's own making, and the scheduler's.
        (None, Some(usual)) if sample.cell.load() < LoadClass::Deep => {
            sample.is_times(limits.own_only, usual)
        }
        (None, _) => return None,
    };
    Some(is_beyond && sample.is_above_floor)
}
