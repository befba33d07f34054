//! Stable ids of drives, volumes and findings. They are metric labels and file names, so they use
//! the small alphabet [A-Za-z0-9._:/-]. Copies share their text.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::hash::fnv1a_64;

/// Maximum length of an id. Longer inputs are cut and end with a hash, so that they stay distinct.
pub(crate) const MAX_ID_LEN: usize = 160;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// An existing id (read from the store, or named by a caller).
            pub fn known(text: impl AsRef<str>) -> Self {
                $name(text.as_ref().into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// `nguid.…`, `eui.…`, `naa.…`, `MODEL_SERIAL`, or `path:…` (unstable). Never a kernel name.
    DriveId
}
id! {
    /// `csi:DRIVER/HANDLE`, `fs:UUID` or `mnt:PATH`.
    VolumeId
}
id! {
    /// Stable per subject and reason from the moment a finding appears until it clears.
    FindingId
}

id! {
    /// The id of one filesystem check.
    CheckId
}

id! {
    /// `drive:ID`, `array:NAME`, `pool:NAME`, `device:NAME` or `mount:ID`: stable while the cause
    /// exists, and the same when it returns.
    CauseId
}

impl CauseId {
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        CauseId(shorten(&format!("{kind}:{}", escape(name.as_bytes()))).into())
    }
}

impl CheckId {
    /// Twelve hexadecimal digits: a hash of the target and the time of the request.
    pub fn new(target: &str, requested: Timestamp) -> Self {
        let hash = fnv1a_64(format!("{target}\0{}", requested.as_nanosecond()).bytes());
        CheckId(format!("{:012x}", hash & 0xffff_ffff_ffff).into())
    }
}

impl DriveId {
    /// An id from an identity of any bytes, escaped.
    pub fn new(identity: impl AsRef<[u8]>) -> Self {
        DriveId(shorten(&escape(identity.as_ref())).into())
    }
}

impl VolumeId {
    pub fn csi(driver: &str, handle: &str) -> Self {
        VolumeId(
            shorten(&format!("csi:{}/{}", escape(driver.as_bytes()), escape(handle.as_bytes())))
                .into(),
        )
    }

    pub fn filesystem(uuid: &str) -> Self {
        VolumeId(shorten(&format!("fs:{}", escape(uuid.as_bytes()))).into())
    }

    /// The UUID in an id of `filesystem`.
    pub(crate) fn filesystem_uuid(&self) -> Option<&str> {
        self.as_str().strip_prefix("fs:")
    }

    pub(crate) fn mount(path: &crate::model::path::HostPath) -> Self {
        VolumeId(shorten(&format!("mnt:{}", escape(path.as_bytes()))).into())
    }
}

impl FindingId {
    /// Twelve hexadecimal digits: a hash of the subject, the reason and the time of appearance.
    pub fn new(subject: &str, reason: &str, since: Timestamp) -> Self {
        let hash = fnv1a_64(format!("{subject}\0{reason}\0{}", since.as_microsecond()).bytes());
        FindingId(format!("{:012x}", hash & 0xffff_ffff_ffff).into())
    }
}

/// Keeps [A-Za-z0-9._:/-]; any other byte becomes `_xHH`. `_` itself is kept unless it starts text
/// that reads like this escape, so two inputs never have the same output.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b':' | b'/' | b'-' => {
                text.push(char::from(*byte))
            }
            b'_' if bytes.get(at + 1) != Some(&b'x') => text.push('_'),
            _ => text.push_str(&format!("_x{byte:02x}")),
        }
    }
    text
}

fn shorten(text: &str) -> String {
    if text.len() <= MAX_ID_LEN {
        return text.to_owned();
    }
    format!("{}-{:016x}", &text[..MAX_ID_LEN - 17], fnv1a_64(text.bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn different_inputs_have_different_ids(a in proptest::collection::vec(any::<u8>(), 0..300), b in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(a == b, DriveId::new(&a) == DriveId::new(&b));
        }

        #[test]
        fn an_id_is_short_and_of_the_alphabet(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let id = DriveId::new(&bytes);
            prop_assert!(id.as_str().len() <= MAX_ID_LEN);
            prop_assert!(id.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b)));
        }
    }
}
