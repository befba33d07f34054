//! The table of docs/slow-drives.md: false alarms and detection on synthetic drives.
//! `cargo run --release -p diskvitals-slow --features fixtures --example slow_drives`
//! Arguments: drive-years for each row (default 100), the first seed (default 1000000), seeds for each
//! detection (default 20). Tuning uses seeds below 1000000.

use std::collections::BTreeMap;

use diskvitals_slow::synthetic::{Fault, Random, SyntheticNode};
use diskvitals_slow::{Drive, Kind, Level, Limits, Medium, Node, Outcome, Piece};

const DAY: u64 = 1440;
/// Minutes without a fault before detection is measured, and the days of a healthy run.
const LEARNED: u64 = 21 * DAY;
const HEALTHY_DAYS: u64 = 90;
const SEARCH: u64 = 21 * DAY;

/// What a row is about.
#[derive(Clone, Copy)]
struct Drives {
    is_rotating: bool,
    count: usize,
    is_array: bool,
}

impl Drives {
    fn all() -> impl Iterator<Item = Drives> {
        let of = |is_rotating| {
            let kinds = [(13, true), (13, false), (5, true), (5, false), (1, false)];
            kinds.map(|(count, is_array)| Drives { is_rotating, count, is_array })
        };
        [true, false].into_iter().flat_map(of)
    }

    fn name(self) -> String {
        let medium = if self.is_rotating { "HDD" } else { "SSD" };
        match (self.count, self.is_array) {
            (1, _) => format!("{medium}, alone"),
            (count, true) => format!("{medium}, {} peers in its array", count - 1),
            (count, false) => format!("{medium}, {} peers with other loads", count - 1),
        }
    }
}

struct Run {
    source: SyntheticNode,
    node: Node<usize>,
    minute: u64,
}

impl Run {
    fn new(seed: u64, drives: Drives, fault: Option<Fault>) -> Run {
        let Drives { is_rotating, count, is_array } = drives;
        let medium = if is_rotating { Medium::Rotating } else { Medium::Flash };
        let mut node = Node::new(Limits::default());
        for drive in 0..count {
            node.add(drive, Kind { medium, model: "synthetic".into() });
        }
        Run {
            source: SyntheticNode::new(seed, count, is_rotating, is_array, fault),
            node,
            minute: 0,
        }
    }

    /// A minute; the outcomes of the hour that ended.
    fn step(&mut self) -> BTreeMap<usize, Outcome> {
        let mut ended = BTreeMap::new();
        for (drive, growth) in self.source.minute().into_iter().enumerate() {
            let piece = Piece { growth, length: 60_000, silence: None };
            if let Some(hour) = self.node.observe(&drive, self.minute * 60, Some(&piece)) {
                ended = hour.drives.into_iter().map(|(name, of)| (name, of.outcome)).collect();
            }
        }
        self.minute += 1;
        ended
    }

    fn level(&self, drive: usize) -> Level {
        self.node.drives().get(&drive).map_or(Level::Usual, Drive::level)
    }
}

/// Slow hours, and the times that a drive became Suspect.
fn false_alarms(seed: u64, drives: Drives) -> (u32, u32) {
    let mut run = Run::new(seed, drives, None);
    let (mut hours, mut suspects) = (0, 0);
    let mut levels = vec![Level::Usual; drives.count];
    for _ in 0..HEALTHY_DAYS * DAY {
        for (drive, outcome) in run.step() {
            hours += u32::from(matches!(outcome, Outcome::Slow(_)));
            let level = run.level(drive);
            suspects += u32::from(level == Level::Persistent && levels[drive] != level);
            levels[drive] = level;
        }
    }
    (hours, suspects)
}

/// Hours with load from the fault until its first slow hour, and until it is Suspect.
fn detection(seed: u64, drives: Drives, factor: f64, part: f64) -> [Option<f64>; 2] {
    let from_minute = LEARNED + (Random::new(seed ^ 0x5eed).unit() * 1440.0) as u64;
    let mut run = Run::new(seed, drives, Some(Fault { from_minute, factor, part }));
    while run.minute < from_minute {
        run.step();
    }
    // A false alarm before the fault finds nothing.
    let before_fault = run.level(0);
    let (mut loaded, mut found) = (0u32, [None; 2]);
    let load = |run: &Run| {
        run.node.drives().get(&0).map_or(0, |drive| {
            let tally = drive.tally();
            tally.judged() + tally.silenced().map(|(_, windows)| windows).sum::<u32>()
        })
    };
    while run.minute < from_minute + SEARCH && found[1].is_none() {
        let before = load(&run);
        run.step();
        loaded += u32::from(load(&run) > before);
        let level = run.level(0);
        for (found, least) in found.iter_mut().zip([Level::Slow, Level::Persistent]) {
            if found.is_none() && level >= least && before_fault < least {
                *found = Some(f64::from(loaded) / 60.0);
            }
        }
    }
    found
}

/// Median and worst; or how many were not found.
fn hours(found: impl Iterator<Item = Option<f64>>) -> String {
    let (mut times, mut missed) = (Vec::new(), 0);
    for time in found {
        match time {
            Some(time) => times.push(time),
            None => missed += 1,
        }
    }
    times.sort_by(f64::total_cmp);
    // Who was not found counts as later than all others.
    let median =
        times.get((times.len() + missed) / 2).map_or("-".to_owned(), |time| format!("{time:.1}"));
    match times.last() {
        Some(worst) if missed == 0 => format!("{median} / {worst:.0}"),
        _ => format!("{median} / {missed} not"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let years = arguments.next().unwrap_or(100);
    let first = arguments.next().unwrap_or(1_000_000);
    let seeds = arguments.next().unwrap_or(20);
    println!("| Healthy drives | Drive-years | Slow hours | for each drive-year | SUSPECT |");
    println!("|---|---|---|---|---|");
    for drives in Drives::all() {
        let days = HEALTHY_DAYS * drives.count as u64;
        let runs = (years * 365).div_ceil(days);
        let (mut hours, mut suspects) = (0, 0);
        for seed in first..first + runs {
            let (more, again) = false_alarms(seed, drives);
            (hours, suspects) = (hours + more, suspects + again);
        }
        let done = (runs * days) as f64 / 365.0;
        let rate = f64::from(hours) / done;
        println!("| {} | {done:.0} | {hours} | {rate:.3} | {suspects} |", drives.name());
    }
    println!();
    println!("| Slow drive | x3 | x5 | x10 | x10 in 30 % of half-hours |");
    println!("|---|---|---|---|---|");
    for drives in Drives::all() {
        let cells = [(3.0, 1.0), (5.0, 1.0), (10.0, 1.0), (10.0, 0.3)].map(|(factor, part)| {
            let found: Vec<_> =
                (first..first + seeds).map(|seed| detection(seed, drives, factor, part)).collect();
            let [slow, suspect] = [0, 1].map(|which| hours(found.iter().map(|it| it[which])));
            format!("{slow}; {suspect}")
        });
        println!("| {} | {} |", drives.name(), cells.join(" | "));
    }
}
