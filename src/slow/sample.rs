//! A sample: the service time that a drive needed in one window, in one direction.

use crate::cell::{Cell, Direction};
use crate::counters::{Counters, Traffic};

/// What the drive is made of: how many requests a window needs, and what time is slow at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    Rotating,
    /// Rotating, with overlapping tracks: it rewrites whole zones when it likes.
    Shingled,
    Flash,
    /// Counted by a kernel before 4.19, in ticks of 1 to 10 ms.
    FlashByTicks,
}

impl Medium {
    fn min_ios(self) -> u64 {
        match self {
            Medium::Rotating | Medium::Shingled => 30,
            Medium::Flash => 200,
            Medium::FlashByTicks => 1_000,
        }
    }

    pub(crate) fn is_rotating(self) -> bool {
        matches!(self, Medium::Rotating | Medium::Shingled)
    }

    /// Garbage collection and a full SLC cache make the writes of healthy flash 3 to 15 times slower for
    /// hours, each drive at its own time, and reads wait for them; shingled drives likewise. Of these,
    /// reads are judged that are not beside many writes.
    pub(crate) fn is_judged(self, direction: Direction, work: &Counters) -> bool {
        let is_alone = work.write.milliseconds <= work.read.milliseconds / 2
            && work.write.sectors <= work.read.sectors / 2;
        self == Medium::Rotating || (direction == Direction::Read && is_alone)
    }

    /// Requests that it serves at a time: flash at least so many, an arm one.
    fn servers(self) -> f32 {
        if self.is_rotating() { 1.0 } else { 4.0 }
    }

    /// Microseconds; nothing faster is called slow, whatever the peers do.
    fn floor(self, bytes: f32) -> f32 {
        match self {
            Medium::Rotating | Medium::Shingled => 25_000.0 + bytes / 60.0,
            Medium::Flash | Medium::FlashByTicks => 500.0 + bytes / 500.0,
        }
    }
}

/// Each reading's sum of milliseconds is truncated: below this the error counts.
const MIN_MILLISECONDS: u64 = 20;
/// More requests in flight are no reading: a counter was set anew.
const MAX_IN_FLIGHT: f32 = 65_536.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Microseconds that a request needed, without the time that it waited for those before it.
    pub(crate) service: u32,
    pub(crate) cell: Cell,
    /// Whether the time is one that may be called slow.
    pub(crate) is_above_floor: bool,
}

/// The samples of a window of so many milliseconds, at most one for each direction.
pub(crate) fn samples(work: &Counters, length: u64, medium: Medium) -> [Option<Sample>; 2] {
    // Little's law: the mean number in flight is the time of all requests by the time that passed.
    let busy = work.read.milliseconds.saturating_add(work.write.milliseconds);
    let in_flight = busy as f32 / length.max(1) as f32;
    let sample = move |direction, traffic: Traffic| {
        let is_enough = traffic.ios >= medium.min_ios()
            && traffic.milliseconds >= MIN_MILLISECONDS
            && in_flight <= MAX_IN_FLIGHT;
        is_enough.then(|| {
            let ios = traffic.ios as f32;
            let latency = traffic.milliseconds as f32 * 1_000.0 / ios;
            let bytes = traffic.sectors as f32 * 512.0 / ios;
            let service = latency / (in_flight / medium.servers()).max(1.0);
            Sample {
                service: service as u32,
                cell: Cell::of(direction, bytes, in_flight),
                is_above_floor: service >= medium.floor(bytes),
            }
        })
    };
    [sample(Direction::Read, work.read), sample(Direction::Write, work.write)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::LoadClass;
    use proptest::prelude::*;

    fn reads(ios: u64, milliseconds: u64) -> Counters {
        let read = Traffic { ios, sectors: ios * 8, milliseconds };
        Counters { read, write: Traffic::default() }
    }

    #[test]
    fn the_wait_for_requests_of_our_own_is_no_service_time() {
        let of = |work| samples(&work, 60_000, Medium::Rotating)[0].expect("a sample");
        assert_eq!(of(reads(600, 6_000)).service, 10_000);
        // Eight in flight, 80 ms each.
        let deep = of(reads(6_000, 480_000));
        assert_eq!((deep.service, deep.cell.load()), (10_000, LoadClass::Many));
        let flash = samples(&reads(6_000, 480_000), 60_000, Medium::Flash)[0].expect("a sample");
        assert_eq!(flash.service, 40_000, "it serves four at a time");
    }

    #[test]
    fn few_requests_and_truncated_times_are_no_sample() {
        let count = |work, medium| samples(&work, 60_000, medium).iter().flatten().count();
        assert_eq!(count(reads(29, 900), Medium::Rotating), 0);
        assert_eq!(count(reads(30, 900), Medium::Rotating), 1);
        assert_eq!(count(reads(199, 900), Medium::Flash), 0);
        assert_eq!(count(reads(400, 900), Medium::FlashByTicks), 0);
        assert_eq!(count(reads(5_000, 19), Medium::Flash), 0);
        assert_eq!(count(reads(5_000, u64::from(u32::MAX)), Medium::Flash), 0, "set anew");
    }

    #[test]
    fn a_large_request_may_take_longer_before_it_is_slow() {
        let of = |sectors: u64| {
            let read = Traffic { ios: 600, sectors: 600 * sectors, milliseconds: 18_000 };
            let work = Counters { read, write: Traffic::default() };
            samples(&work, 60_000, Medium::Rotating)[0].expect("a sample").is_above_floor
        };
        assert_eq!((of(8), of(2_048)), (true, false), "30 ms for 4 KiB, and for 1 MiB");
    }

    proptest! {
        #[test]
        fn no_growth_is_too_large(ios: u64, sectors: u64, milliseconds: u64, length: u64) {
            let traffic = Traffic { ios, sectors, milliseconds };
            let work = Counters { read: traffic, write: traffic };
            for sample in samples(&work, length, Medium::Flash).into_iter().flatten() {
                prop_assert!(sample.service as f32 <= milliseconds as f32 * 1_000.0);
            }
        }
    }
}
