//! The block layer's counters of a whole drive (Documentation/admin-guide/iostats.rst), and their
//! growth between two readings.

/// What one direction has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub ios: u64,
    /// Of 512 bytes.
    pub sectors: u64,
    /// The time that the requests took, added up.
    pub milliseconds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub read: Traffic,
    pub write: Traffic,
}

impl Counters {
    /// The fields behind the name in /proc/diskstats, or those of /sys/block/NAME/stat.
    pub fn parse(fields: &str) -> Option<Counters> {
        let mut numbers = fields.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || numbers.next().flatten();
        let mut traffic = || {
            let ios = next()?;
            let _merged: u64 = next()?;
            Some(Traffic { ios, sectors: next()?, milliseconds: next()? })
        };
        Some(Counters { read: traffic()?, write: traffic()? })
    }

    /// `None`: a counter went back, so the device is another one. Milliseconds have 32 bits and wrap.
    pub fn since(&self, earlier: &Counters) -> Option<Counters> {
        let growth = |now: &Traffic, then: &Traffic| {
            Some(Traffic {
                ios: now.ios.checked_sub(then.ios)?,
                sectors: now.sectors.checked_sub(then.sectors)?,
                milliseconds: now.milliseconds.checked_sub(then.milliseconds).or_else(|| {
                    let wrapped = now.milliseconds + (1 << 32);
                    (then.milliseconds < 1 << 32).then_some(wrapped - then.milliseconds)
                })?,
            })
        };
        Some(Counters {
            read: growth(&self.read, &earlier.read)?,
            write: growth(&self.write, &earlier.write)?,
        })
    }

    pub(crate) fn add(&mut self, more: &Counters) {
        for (sum, more) in [(&mut self.read, &more.read), (&mut self.write, &more.write)] {
            sum.ios = sum.ios.saturating_add(more.ios);
            sum.sectors = sum.sectors.saturating_add(more.sectors);
            sum.milliseconds = sum.milliseconds.saturating_add(more.milliseconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_diskstats_has_reads_then_writes() {
        let counters = Counters::parse("10 1 80 33 20 2 160 44 0 70 77 1 2 3 4").expect("counters");
        assert_eq!(counters.read, Traffic { ios: 10, sectors: 80, milliseconds: 33 });
        assert_eq!(counters.write, Traffic { ios: 20, sectors: 160, milliseconds: 44 });
        assert_eq!(Counters::parse("10 1 80 33 20 2 160"), None);
        assert_eq!(Counters::parse("10 1 80 33 20 2 160 x"), None);
    }

    #[test]
    fn milliseconds_wrap_at_32_bits_and_a_counter_that_goes_back_is_another_device() {
        let read = |ios, milliseconds| Counters {
            read: Traffic { ios, sectors: ios * 8, milliseconds },
            write: Traffic::default(),
        };
        let growth = read(30, 4).since(&read(10, u64::from(u32::MAX))).expect("growth");
        assert_eq!(growth.read, Traffic { ios: 20, sectors: 160, milliseconds: 5 });
        assert_eq!(read(9, 100).since(&read(10, 50)), None);
    }

    proptest! {
        #[test]
        fn growth_is_what_was_added(
            (ios, more) in (0u64..1 << 60, 0u64..1 << 32),
            (then, milliseconds) in (0u64..1 << 32, 0u64..1 << 32),
        ) {
            let before = Counters { read: Traffic { ios, sectors: ios, milliseconds: then }, ..Counters::default() };
            let mut after = before;
            after.read.ios += more;
            after.read.milliseconds = (then + milliseconds) % (1 << 32);
            let growth = after.since(&before).expect("growth");
            prop_assert_eq!(growth.read, Traffic { ios: more, sectors: 0, milliseconds });
        }
    }
}
