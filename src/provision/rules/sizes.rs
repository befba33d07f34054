//! Sizes of volumes in bytes: evaluates a capacity range (CSI, CapacityRange).

use crate::error::ProvisionError;

/// The size if a request names none.
pub const DEFAULT_SIZE: u64 = 1 << 30;
/// The size of the smallest volume; a smaller filesystem is useless.
pub const MIN_SIZE: u64 = 1 << 20;
/// The maximum: the protocol has capacities as int64.
const MAX_SIZE: u64 = i64::MAX as u64;

/// A requested size in bytes; 0 means that the bound is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityRange {
    pub required: u64,
    pub limit: u64,
}

impl CapacityRange {
    pub fn check(self) -> Result<(), ProvisionError> {
        if self.required > MAX_SIZE || self.limit > MAX_SIZE {
            return Err(ProvisionError::OutOfRange(format!(
                "more than {MAX_SIZE} bytes are requested"
            )));
        }
        if self.limit != 0 && self.limit < self.required {
            return Err(ProvisionError::OutOfRange(format!(
                "limit_bytes {} is less than required_bytes {}",
                self.limit, self.required
            )));
        }
        Ok(())
    }

    pub fn contains(self, size: u64) -> bool {
        size >= self.required && (self.limit == 0 || size <= self.limit)
    }

    /// The size of a new volume: the required size (or the default, within the limit), at least
    /// `least`. It is rounded up to a multiple of `unit` (the pool's block or extent) if the limit
    /// allows it, otherwise down.
    pub(crate) fn size_for_new(self, least: u64, unit: u64) -> Result<u64, ProvisionError> {
        self.check()?;
        let least = least.max(MIN_SIZE);
        let most = self.most();
        if most < least {
            return Err(ProvisionError::OutOfRange(format!(
                "limit_bytes {most} is less than {least}, the smallest that is possible here"
            )));
        }
        let wanted =
            if self.required == 0 { DEFAULT_SIZE.min(most) } else { self.required }.max(least);
        self.round_to_unit(wanted, least, unit)
    }

    fn most(self) -> u64 {
        if self.limit == 0 { MAX_SIZE } else { self.limit }
    }

    /// The size to grow to from `now`. A volume that is large enough keeps its size.
    pub(crate) fn size_for_growth(self, now: u64, unit: u64) -> Result<u64, ProvisionError> {
        self.check()?;
        if self.limit != 0 && self.limit < now {
            return Err(ProvisionError::OutOfRange(format!(
                "limit_bytes {} is less than its {now} bytes: volumes are never made smaller",
                self.limit
            )));
        }
        if self.required <= now {
            return Ok(now);
        }
        self.round_to_unit(self.required, self.required, unit)
    }

    fn round_to_unit(self, wanted: u64, least: u64, unit: u64) -> Result<u64, ProvisionError> {
        let (most, unit) = (self.most(), unit.max(1));
        let up = wanted.div_ceil(unit).checked_mul(unit).filter(|up| *up <= most);
        // A default may be reduced to fit a limit that is not a multiple; a required size may not.
        let down = wanted / unit * unit;
        let fits = |size: &u64| *size >= least && *size >= self.required && *size > 0;
        up.or(Some(down).filter(fits)).ok_or_else(|| {
            ProvisionError::OutOfRange(format!("no multiple of {unit} bytes lies between {least} and {most}: sizes here are such multiples"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(required: u64, limit: u64) -> CapacityRange {
        CapacityRange { required, limit }
    }

    proptest! {
        #[test]
        fn a_new_size_lies_within_its_range_and_is_a_multiple_of_the_unit(required: u64, limit: u64, unit in prop_oneof![Just(4096u64), Just(4 << 20)]) {
            if let Ok(size) = range(required, limit).size_for_new(0, unit) {
                prop_assert!(range(required, limit).contains(size));
                prop_assert!(size % unit == 0 && size >= MIN_SIZE && i64::try_from(size).is_ok());
            }
        }

        #[test]
        fn nothing_shrinks(required: u64, limit: u64, now in 1u64 << 20..1 << 40) {
            if let Ok(size) = range(required, limit).size_for_growth(now, 4096) {
                prop_assert!(size >= now && range(required, limit).contains(size));
            }
        }
    }

    #[test]
    fn without_a_size_it_is_a_gibibyte_within_the_limit() {
        assert_eq!(range(0, 0).size_for_new(0, 4096), Ok(DEFAULT_SIZE));
        assert_eq!(range(0, 5_000_001).size_for_new(0, 4096), Ok(4_997_120));
        assert_eq!(range(1 << 20, 1 << 20).size_for_new(0, 4096), Ok(1 << 20));
    }

    #[test]
    fn an_impossible_range_is_out_of_range() {
        for (required, limit) in [
            (2, 1),
            (u64::MAX, 0),
            (1 << 63, 0),
            (0, 1),
            (4097, 4098),
            ((1 << 20) + 1, (1 << 20) + 2),
            (i64::MAX as u64, 0),
        ] {
            let answer = range(required, limit).size_for_new(0, 4096);
            assert!(
                matches!(answer, Err(ProvisionError::OutOfRange(_))),
                "{required} {limit}: {answer:?}"
            );
        }
        assert!(matches!(
            range(0, 200 << 20).size_for_new(300 << 20, 4096),
            Err(ProvisionError::OutOfRange(_))
        ));
    }

    #[test]
    fn a_volume_that_is_large_enough_is_not_grown() {
        assert_eq!(range(1, 0).size_for_growth(1 << 20, 4096), Ok(1 << 20));
        assert_eq!(range(2 << 20, 2 << 20).size_for_growth(1 << 20, 4096), Ok(2 << 20));
        assert!(matches!(
            range(1, 10).size_for_growth(1 << 20, 4096),
            Err(ProvisionError::OutOfRange(_))
        ));
    }
}
