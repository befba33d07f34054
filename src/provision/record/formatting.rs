//! The record of what permits the next mkfs on a volume, of the last mkfs that was permitted by a
//! person or by reading the whole device, and of the device of a static volume.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::record::VERSION;
use crate::step::{DeviceIdentity, ScanState};
use diskvitals_finding::path::HostPath;

/// An authorization that was not used by then is void.
const AUTHORIZATION_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormatRecord {
    pub version: u32,
    pub handle: String,
    /// We created the volume, and nothing has used it since.
    #[serde(default)]
    pub new: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<FormatAuthorization>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formatted: Option<PastFormat>,
    /// The path of a static volume's device or directory that was here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<HostPath>,
    #[serde(flatten)]
    pub unknown_fields: Map<String, Value>,
}

/// Root's permission for one mkfs on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatAuthorization {
    pub device: DeviceIdentity,
    pub since: Timestamp,
}

/// A mkfs that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastFormat {
    pub at: Timestamp,
    pub device: DeviceIdentity,
    pub permitted_by: FormatBasis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatBasis {
    Scan,
    Authorization,
}

impl FormatRecord {
    pub fn none(handle: &str) -> FormatRecord {
        FormatRecord {
            version: VERSION,
            handle: handle.to_owned(),
            new: false,
            scan: None,
            authorization: None,
            formatted: None,
            seen: None,
            unknown_fields: Map::new(),
        }
    }

    /// Such a record has no file.
    pub fn is_empty(&self) -> bool {
        *self == FormatRecord::none(&self.handle)
    }
}

impl FormatAuthorization {
    pub fn expires(&self) -> Timestamp {
        self.since.checked_add(AUTHORIZATION_LIFETIME).unwrap_or(self.since)
    }

    /// A clock that was set back does not extend it.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.since <= now && now < self.expires()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authorization_ends_after_a_day_and_not_before_it_began() {
        let authorization =
            FormatAuthorization { device: DeviceIdentity::default(), since: Timestamp::UNIX_EPOCH };
        let at = |hours| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
        assert!(authorization.is_valid(at(0)) && authorization.is_valid(at(23)));
        assert!(!authorization.is_valid(at(24)) && !authorization.is_valid(at(-1)));
    }
}
