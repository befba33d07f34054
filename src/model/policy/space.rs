//! When too little space is left: by share and bytes, by the time until it is full, and for single
//! volumes and filesystem types.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::volume::VolumeFacts;
use diskvitals_text::pattern;
use diskvitals_text::setting::{bytes, optional_bytes, optional_seconds, seconds};

/// The configuration file's `[space]`. Short of space is what has less than `raise_percent` of its
/// size or `raise_bytes`, whichever is less: 1 % of 20 TB is not full, and 6 GiB of 1 TiB are.
/// Cleared above `clear_percent` or twice `raise_bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpacePolicy {
    /// Available space in percent of the whole.
    pub raise_percent: u8,
    #[serde(with = "bytes")]
    pub raise_bytes: u64,
    pub clear_percent: u8,
    /// Available inodes in percent of all; filesystems without a fixed number are not judged.
    pub raise_inodes_percent: u8,
    pub clear_inodes_percent: u8,
    /// Raised when it will be full within this time at the rate of the last days; cleared at twice
    /// the time. 0: no forecast.
    #[serde(with = "seconds")]
    pub forecast: Duration,
    /// The forecast counts only below this share of available space.
    pub forecast_percent: u8,
    /// Other limits for some volumes: the first entry that fits.
    #[serde(rename = "limit", skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<SpaceLimit>,
}

impl Default for SpacePolicy {
    fn default() -> Self {
        SpacePolicy {
            raise_percent: 5,
            raise_bytes: 50 << 30,
            clear_percent: 7,
            raise_inodes_percent: 2,
            clear_inodes_percent: 4,
            forecast: Duration::from_secs(3 * 24 * 3600),
            forecast_percent: 25,
            limits: Vec::new(),
        }
    }
}

/// A `[[space.limit]]`. What it leaves out is as in `[space]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpaceLimit {
    /// Patterns of names: volume id, PersistentVolume, CSI driver, mount point. Empty: all.
    pub volumes: Vec<String>,
    /// Filesystem types. Empty: all.
    pub filesystems: Vec<String>,
    pub raise_percent: Option<u8>,
    #[serde(with = "optional_bytes", skip_serializing_if = "Option::is_none")]
    pub raise_bytes: Option<u64>,
    pub clear_percent: Option<u8>,
    pub raise_inodes_percent: Option<u8>,
    pub clear_inodes_percent: Option<u8>,
    #[serde(with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Duration>,
    pub forecast_percent: Option<u8>,
}

impl SpaceLimit {
    fn fits(&self, volume: &VolumeFacts) -> bool {
        let of_type =
            |fs_type: &String| self.filesystems.is_empty() || self.filesystems.contains(fs_type);
        let is_named = || {
            let names = volume.names();
            names.iter().any(|name| pattern::matches_any(&self.volumes, name.as_bytes()))
        };
        (self.volumes.is_empty() || is_named())
            && volume.fs_type.as_ref().map_or(self.filesystems.is_empty(), of_type)
    }

    fn applied_to(&self, base: &SpacePolicy) -> SpacePolicy {
        SpacePolicy {
            raise_percent: self.raise_percent.unwrap_or(base.raise_percent),
            raise_bytes: self.raise_bytes.unwrap_or(base.raise_bytes),
            clear_percent: self.clear_percent.unwrap_or(base.clear_percent),
            raise_inodes_percent: self.raise_inodes_percent.unwrap_or(base.raise_inodes_percent),
            clear_inodes_percent: self.clear_inodes_percent.unwrap_or(base.clear_inodes_percent),
            forecast: self.forecast.unwrap_or(base.forecast),
            forecast_percent: self.forecast_percent.unwrap_or(base.forecast_percent),
            limits: Vec::new(),
        }
    }
}

/// Writers are about to fail: less than a thousandth of the size, or than this, whichever is less.
const FULL_BYTES: u64 = 64 << 20;

impl SpacePolicy {
    /// A volume of this size is short of space (SUSPECT) while fewer bytes are available.
    pub fn short_below(&self, total_bytes: u64) -> u64 {
        let share = u128::from(total_bytes) * u128::from(self.raise_percent);
        u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX).min(self.raise_bytes)
    }

    /// Its writers are about to fail (BAD) while fewer bytes are available. A limit that is set very
    /// low leaves room for SUSPECT.
    pub fn full_below(&self, total_bytes: u64) -> u64 {
        let short = self.short_below(total_bytes);
        total_bytes.div_ceil(1000).min(FULL_BYTES).min(short.div_ceil(2))
    }

    /// The limits of one volume.
    pub(crate) fn for_volume(&self, volume: &VolumeFacts) -> SpacePolicy {
        let found = self.limits.iter().find(|limit| limit.fits(volume));
        found.cloned().unwrap_or_default().applied_to(self)
    }

    /// The first value that contradicts itself or another, with its key.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let names_nothing =
            |limit: &SpaceLimit| limit.volumes.is_empty() && limit.filesystems.is_empty();
        if self.limits.iter().any(names_nothing) {
            let why = "names nothing: give patterns of volumes, or filesystems".to_owned();
            return Some(("space.limit", why));
        }
        self.contradiction(&KEYS).or_else(|| {
            let mut limits = self.limits.iter();
            limits.find_map(|limit| limit.applied_to(self).contradiction(&LIMIT_KEYS))
        })
    }

    /// `keys`: of the percentages, in the order below.
    fn contradiction(&self, keys: &[&'static str; 5]) -> Option<(&'static str, String)> {
        let percents = [
            self.raise_percent,
            self.clear_percent,
            self.raise_inodes_percent,
            self.clear_inodes_percent,
            self.forecast_percent,
        ];
        let excess = keys.iter().zip(percents).find(|(_, value)| *value > 100);
        if let Some((key, value)) = excess {
            return Some((key, format!("{value} is more than 100 %")));
        }
        [(0, 1), (2, 3)].into_iter().find(|(raise, clear)| percents[*clear] < percents[*raise]).map(
            |(raise, clear)| {
                let raise = keys[raise];
                let why = format!("must not be below {raise}: the finding would come and go");
                (keys[clear], why)
            },
        )
    }
}

const KEYS: [&str; 5] = [
    "space.raise_percent",
    "space.clear_percent",
    "space.raise_inodes_percent",
    "space.clear_inodes_percent",
    "space.forecast_percent",
];
const LIMIT_KEYS: [&str; 5] = [
    "space.limit.raise_percent",
    "space.limit.clear_percent",
    "space.limit.raise_inodes_percent",
    "space.limit.clear_inodes_percent",
    "space.limit.forecast_percent",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(path: &str, fs_type: &str) -> VolumeFacts {
        VolumeFacts {
            fs_type: Some(fs_type.to_owned()),
            pv: Some(path.to_owned()),
            ..VolumeFacts::default()
        }
    }

    #[test]
    fn the_first_limit_that_fits_a_volume_replaces_what_it_names() {
        let policy: SpacePolicy = toml::from_str(
            "raise_percent = 10\nclear_percent = 12\n\
             [[limit]]\nvolumes = [\"scratch-*\"]\nraise_percent = 1\nforecast = \"0s\"\n\
             [[limit]]\nfilesystems = [\"xfs\"]\nraise_bytes = 7\n",
        )
        .expect("parses");
        assert_eq!(policy.problem(), None);
        let limits = |path: &str, fs_type: &str| {
            let policy = policy.for_volume(&volume(path, fs_type));
            (policy.raise_percent, policy.raise_bytes, policy.forecast.as_secs())
        };
        assert_eq!(limits("scratch-1", "xfs"), (1, 50 << 30, 0));
        assert_eq!(limits("data", "xfs"), (10, 7, 3 * 86_400));
        assert_eq!(limits("data", "ext4"), (10, 50 << 30, 3 * 86_400));
    }

    #[test]
    fn the_limits_are_the_smaller_of_a_share_and_an_amount() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        const TIB: u64 = 1 << 40;
        let policy = SpacePolicy::default();
        for (total, short, full) in [
            (20 * TIB, 50 * GIB, 64 * MIB),
            (TIB, 50 * GIB, 64 * MIB),
            (100 * GIB, 5 * GIB, 64 * MIB),
            (GIB, GIB / 20 + 1, GIB / 1000 + 1),
            (0, 0, 0),
            (u64::MAX, 50 * GIB, 64 * MIB),
        ] {
            assert_eq!(
                (policy.short_below(total), policy.full_below(total)),
                (short, full),
                "{total}"
            );
        }
        let small = SpacePolicy { raise_bytes: MIB, ..SpacePolicy::default() };
        assert_eq!((small.short_below(TIB), small.full_below(TIB)), (MIB, MIB / 2));
        let off = SpacePolicy { raise_percent: 0, ..SpacePolicy::default() };
        assert_eq!((off.short_below(TIB), off.full_below(TIB)), (0, 0));
    }

    #[test]
    fn a_contradiction_is_named_by_its_key() {
        for (text, key) in [
            ("raise_percent = 8", "space.clear_percent"),
            ("forecast_percent = 101", "space.forecast_percent"),
            ("[[limit]]\nraise_percent = 1", "space.limit"),
            (
                "[[limit]]\nvolumes = [\"a\"]\nclear_inodes_percent = 1",
                "space.limit.clear_inodes_percent",
            ),
        ] {
            let policy: SpacePolicy = toml::from_str(text).expect("parses");
            assert_eq!(policy.problem().map(|(key, _)| key), Some(key), "{text}");
        }
    }
}
