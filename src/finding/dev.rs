//! Device numbers, as the kernel prints them: `major:minor`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevNo {
    pub major: u32,
    pub minor: u32,
}

impl DevNo {
    pub fn new(major: u32, minor: u32) -> Self {
        DevNo { major, minor }
    }

    /// Filesystems without their own block device (tmpfs, overlay, network, and btrfs subvolumes)
    /// have major number 0.
    pub fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

impl fmt::Display for DevNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device number (major:minor)")]
pub struct ParseDevNoError(pub String);

impl FromStr for DevNo {
    type Err = ParseDevNoError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseDevNoError(text.chars().take(40).collect());
        let (major, minor) = text.trim().split_once(':').ok_or_else(wrong)?;
        Ok(DevNo {
            major: major.parse().map_err(|_| wrong())?,
            minor: minor.parse().map_err(|_| wrong())?,
        })
    }
}

impl Serialize for DevNo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DevNo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
