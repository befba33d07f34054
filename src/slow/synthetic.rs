//! Synthetic drives: windows of healthy and of slow drives under mixed loads, from a seed.
//!
//! A model, and no field data: the values are those of common drives, the disturbances those that
//! docs/slow-drives.md lists. Every window comes as growth of counters, as from a kernel.

use crate::counters::{Counters, Traffic};

pub const WINDOW_SECONDS: u64 = 60;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    fn is_hit(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Of mean 0 and deviation 1: the sum of 12.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn lognormal(&mut self, deviation: f64) -> f64 {
        (self.normal() * deviation).exp()
    }

    /// A number of minutes with this mean.
    fn minutes(&mut self, mean: f64) -> u32 {
        1 + (-mean * (1.0 - self.unit()).ln()) as u32
    }
}

/// What is asked of a drive.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Requests a second.
    reads: f64,
    writes: f64,
    read_kib: f64,
    write_kib: f64,
    /// The part of the requests that needs a seek.
    random: f64,
    /// Requests in flight when the drive cannot keep up.
    depth: f64,
}

impl Load {
    fn any(random: &mut Random, is_rotating: bool) -> Load {
        let sizes = [4.0, 8.0, 16.0, 64.0, 128.0, 512.0];
        let mut size = || sizes[(random.unit() * 6.0) as usize];
        let (read_kib, write_kib) = (size(), size());
        let (low, high) = if is_rotating { (0.0f64, 5.0f64) } else { (2.5, 8.5) };
        Load {
            reads: random.between(low, high).exp(),
            writes: random.between(low, high).exp() * 0.6,
            read_kib,
            write_kib,
            random: random.unit(),
            depth: random.between(0.0, 4.0).exp(),
        }
    }

    fn stream(kib: f64, depth: f64, reads: f64, writes: f64) -> Load {
        Load { reads, writes, read_kib: kib, write_kib: kib, random: 0.05, depth }
    }
}

/// What passes, and is healthy.
#[derive(Clone, Copy, Debug, Default)]
struct Disturbance {
    minutes: u32,
    reads: f64,
    writes: f64,
}

#[derive(Clone, Debug)]
struct Drive {
    /// This one's speed, within the spread of a model.
    speed: f64,
    /// Its part of the node's load.
    weight: f64,
    own_load: Option<Load>,
    /// GiB that its SLC cache takes, and those in it; writes faster than it empties fill it.
    cache: f64,
    cached: f64,
    collecting: Disturbance,
    housekeeping: Disturbance,
    half_hour: u64,
    is_slow_now: bool,
}

/// A fault of the first drive.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub from_minute: u64,
    /// By what a request takes longer.
    pub factor: f64,
    /// The part of half-hours in which it does.
    pub part: f64,
}

/// The drives of a node, of one model, with their load.
#[derive(Clone, Debug)]
pub struct SyntheticNode {
    random: Random,
    is_rotating: bool,
    /// Requests that flash of this model serves at a time.
    servers: f64,
    drives: Vec<Drive>,
    load: Load,
    load_left: u32,
    burst_left: u32,
    /// A rebuild or a scrub that nothing silences.
    rebuild_left: u32,
    wave: f64,
    fault: Option<Fault>,
    minute: u64,
}

impl SyntheticNode {
    /// The drives of one array share their load; others have one each.
    pub fn new(
        seed: u64,
        drives: usize,
        is_rotating: bool,
        is_array: bool,
        fault: Option<Fault>,
    ) -> SyntheticNode {
        let mut random = Random::new(seed);
        let cache = random.between(2.5, 5.0).exp();
        let servers = (2.0 + (random.unit() * 4.0).floor()).exp2();
        let load = Load::any(&mut random, is_rotating);
        let drives = (0..drives).map(|_| {
            let is_hot = random.is_hit(0.1);
            Drive {
                speed: random.lognormal(0.06),
                weight: random.lognormal(0.3) * if is_hot { 4.0 } else { 1.0 },
                own_load: (!is_array).then(|| Load::any(&mut random, is_rotating)),
                cache: cache * random.lognormal(0.1),
                cached: 0.0,
                collecting: Disturbance::default(),
                housekeeping: Disturbance::default(),
                half_hour: u64::MAX,
                is_slow_now: false,
            }
        });
        let drives = drives.collect();
        let (load_left, burst_left, rebuild_left) = (60, 0, 0);
        SyntheticNode {
            random,
            is_rotating,
            servers,
            drives,
            load,
            load_left,
            burst_left,
            rebuild_left,
            wave: 0.0,
            fault,
            minute: 0,
        }
    }

    /// The growth of each drive's counters in the next minute.
    pub fn minute(&mut self) -> Vec<Counters> {
        let random = &mut self.random;
        if self.load_left == 0 {
            self.load = Load::any(random, self.is_rotating);
            self.load_left = random.minutes(240.0);
        }
        if self.burst_left == 0 && random.is_hit(1.0 / 360.0) {
            self.burst_left = random.minutes(15.0);
        }
        if self.rebuild_left == 0 && random.is_hit(1.0 / 86_400.0) {
            self.rebuild_left = random.minutes(900.0);
        }
        self.load_left -= 1;
        self.burst_left = self.burst_left.saturating_sub(1);
        self.rebuild_left = self.rebuild_left.saturating_sub(1);
        self.wave = 0.95 * self.wave + 0.15 * random.normal();
        let of_day = self.minute % 1440;
        let by_day = 0.55 - 0.45 * (of_day as f64 / 1440.0 * std::f64::consts::TAU).cos();
        let burst = if self.burst_left > 0 { 5.0 } else { 1.0 };
        let activity = by_day * burst * self.wave.exp();
        let growth = (0..self.drives.len()).map(|index| self.drive_minute(index, activity));
        let growth = growth.collect();
        self.minute += 1;
        growth
    }

    fn drive_minute(&mut self, index: usize, activity: f64) -> Counters {
        let random = &mut self.random;
        let drive = &mut self.drives[index];
        if drive.own_load.is_some() && random.is_hit(1.0 / 240.0) {
            drive.own_load = Some(Load::any(random, self.is_rotating));
        }
        let mut load = drive.own_load.unwrap_or(self.load);
        let activity = activity * drive.weight * random.lognormal(0.25);
        load.reads *= activity;
        load.writes *= activity;
        // Backup: a night's two hours, Sunday's eight, the drives one after the other.
        let (of_day, day) = (self.minute % 1440, self.minute / 1440);
        let length = if day % 7 == 6 { 480 } else { 120 };
        let start = 60 + index as u64 * 45 % 240;
        if (start..start + length).contains(&of_day) {
            load =
                Load::stream(512.0, 8.0, if self.is_rotating { 250.0 } else { 900.0 }, load.writes);
        }
        if self.rebuild_left > 0 {
            let (reads, writes) = if index == 1 { (5.0, 200.0) } else { (200.0, 5.0) };
            let mixed = Load::stream(256.0, 12.0, reads + load.reads, writes + load.writes);
            load = Load { random: 0.3, ..mixed };
        }
        drive.disturb(random, self.is_rotating, &load);
        let slow = drive.slowdown(random, self.fault.filter(|_| index == 0), self.minute);
        let (reads, writes) = (
            drive.speed
                * slow
                * random.lognormal(0.12)
                * drive.collecting.reads()
                * drive.housekeeping.reads(),
            drive.speed
                * slow
                * random.lognormal(0.2)
                * drive.collecting.writes()
                * drive.housekeeping.writes(),
        );
        if self.is_rotating {
            rotating(&load, reads, writes)
        } else {
            flash(&load, reads, writes, self.servers)
        }
    }
}

impl Disturbance {
    fn reads(&self) -> f64 {
        if self.minutes > 0 { self.reads } else { 1.0 }
    }

    fn writes(&self) -> f64 {
        if self.minutes > 0 { self.writes } else { 1.0 }
    }
}

impl Drive {
    /// Garbage collection while the cache is full of writes, and the firmware's own work.
    fn disturb(&mut self, random: &mut Random, is_rotating: bool, load: &Load) {
        self.collecting.minutes = self.collecting.minutes.saturating_sub(1);
        self.housekeeping.minutes = self.housekeeping.minutes.saturating_sub(1);
        // It empties at 40 MB/s.
        let grown = (load.writes * load.write_kib / 1024.0 - 40.0) * 60.0 / 1024.0;
        self.cached = (self.cached + grown).clamp(0.0, self.cache * 1.2);
        if !is_rotating && self.cached >= self.cache && self.collecting.minutes == 0 {
            self.collecting = Disturbance {
                minutes: random.minutes(25.0),
                reads: random.between(1.2, 5.0),
                writes: random.between(3.0, 15.0),
            };
        }
        if self.housekeeping.minutes == 0 && random.is_hit(1.0 / (21.0 * 1440.0)) {
            let (low, high) = if is_rotating { (1.1, 2.2) } else { (1.1, 2.5) };
            let factor = random.between(low, high);
            let minutes = 30 + random.minutes(90.0);
            self.housekeeping = Disturbance { minutes, reads: factor, writes: factor };
        }
    }

    fn slowdown(&mut self, random: &mut Random, fault: Option<Fault>, minute: u64) -> f64 {
        let Some(fault) = fault.filter(|fault| minute >= fault.from_minute) else {
            return 1.0;
        };
        let half_hour = (minute - fault.from_minute) / 30;
        if half_hour != self.half_hour {
            self.half_hour = half_hour;
            self.is_slow_now = random.is_hit(fault.part);
        }
        if self.is_slow_now { fault.factor } else { 1.0 }
    }
}

/// Growth from rates a second, and the time of one request in milliseconds.
fn growth(load: &Load, served: f64, read_ms: f64, write_ms: f64) -> Counters {
    let traffic = |rate: f64, kib: f64, ms: f64| {
        let ios = (rate * served * WINDOW_SECONDS as f64) as u64;
        Traffic { ios, sectors: ios * (kib * 2.0) as u64, milliseconds: (ios as f64 * ms) as u64 }
    };
    Counters {
        read: traffic(load.reads, load.read_kib, read_ms),
        write: traffic(load.writes, load.write_kib, write_ms),
    }
}

/// One arm: a queue before one server, sorted when it is long; few writes go to the cache.
fn rotating(load: &Load, read_factor: f64, write_factor: f64) -> Counters {
    let sorted = 1.0 + 0.15 * load.depth.log2().max(0.0);
    let read = (0.25 + load.random * 9.0 + load.read_kib / 170.0) * read_factor;
    let write = (0.25 + load.random * 5.0 + load.write_kib / 160.0) * write_factor;
    let rate = load.reads + load.writes;
    let used = (load.reads * read + load.writes * write) / 1_000.0;
    if used > 0.9 {
        let served = (0.98 / used * sorted).min(1.0);
        let wait = load.depth * 1_000.0 / (rate * served);
        return growth(load, served, wait.max(read / sorted), wait.max(write / sorted));
    }
    let queue = (used / (1.0 - used)).min(load.depth.max(used));
    let cached = if used < 0.6 { 0.3 * write_factor + load.write_kib / 1_000.0 } else { write };
    let wait = (queue * 1_000.0 - load.writes * cached) / load.reads.max(0.01);
    growth(load, 1.0, wait.clamp(read, read * (1.0 + queue)), cached)
}

/// Many servers; a write goes to the cache.
fn flash(load: &Load, read_factor: f64, write_factor: f64, servers: f64) -> Counters {
    let read = (0.085 + load.read_kib / 480.0) * read_factor;
    let write = (0.03 + load.write_kib / 420.0) * write_factor;
    let rate = load.reads + load.writes;
    let used = (load.reads * read + load.writes * write) / 1_000.0 / servers;
    if used > 0.9 || load.depth < used * servers {
        let most = (load.depth * 1_000.0 * rate / (load.reads * read + load.writes * write))
            .min(rate * 0.9 / used);
        let served = (most / rate).min(1.0);
        let wait = load.depth * 1_000.0 / (rate * served);
        return growth(load, served, wait.max(read), wait.max(write));
    }
    let wait = 1.0 + 0.5 * used / (1.0 - used);
    growth(load, 1.0, read * wait, write * wait)
}
