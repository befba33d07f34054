//! Stable ids of drives, volumes and findings. They are metric labels and file names, so they use
//! the small alphabet [A-Za-z0-9._:/-]. Copies share their text.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_text::hash::{fnv1a_64, sha256_short};

/// Maximum length of an id. Names of this length and longer ones are cut and end with a hash, so
/// that they stay distinct. Others choose them: the handle of a volume, a mount point, a serial
/// number.
pub const MAX_ID_LEN: usize = 160;
/// Length of the hash: 32 hexadecimal digits.
const HASH_LEN: usize = 32;

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
    pub fn new(kind: &str, name: &str) -> Self {
        CauseId(shorten(&format!("{kind}:{}", escape(name.as_bytes()))).into())
    }
}

impl CheckId {
    /// Twelve hexadecimal digits: a hash of the target and the time of the request.
    pub fn new(target: &str, requested: Timestamp) -> Self {
        CheckId(twelve_digits(&format!("{target}\0{}", requested.as_nanosecond())).into())
    }
}

impl DriveId {
    /// An id from an identity of any bytes, escaped.
    pub fn new(identity: impl AsRef<[u8]>) -> Self {
        DriveId(shorten(&Self::name(identity)).into())
    }

    /// The text that the id is made of, of any length.
    pub fn name(identity: impl AsRef<[u8]>) -> String {
        escape(identity.as_ref())
    }
}

impl VolumeId {
    pub fn csi(driver: &str, handle: &str) -> Self {
        VolumeId(shorten(&Self::csi_name(driver, handle)).into())
    }

    /// The text that the id is made of, of any length.
    pub fn csi_name(driver: &str, handle: &str) -> String {
        format!("csi:{}/{}", escape(driver.as_bytes()), escape(handle.as_bytes()))
    }

    pub fn filesystem(uuid: &str) -> Self {
        VolumeId(shorten(&format!("fs:{}", escape(uuid.as_bytes()))).into())
    }

    /// The UUID in an id of `filesystem`.
    pub fn filesystem_uuid(&self) -> Option<&str> {
        self.as_str().strip_prefix("fs:")
    }

    pub fn mount(path: &crate::path::HostPath) -> Self {
        VolumeId(shorten(&Self::mount_name(path)).into())
    }

    /// The text that the id is made of, of any length.
    pub fn mount_name(path: &crate::path::HostPath) -> String {
        format!("mnt:{}", escape(path.as_bytes()))
    }
}

impl FindingId {
    /// Twelve hexadecimal digits: a hash of the subject, the reason and the time of appearance.
    pub fn new(subject: &str, reason: &str, since: Timestamp) -> Self {
        let text = format!("{subject}\0{reason}\0{}", since.as_microsecond());
        FindingId(twelve_digits(&text).into())
    }
}

/// Keeps [A-Za-z0-9._:/-]; any other byte becomes `_xHH`. `_` itself is kept unless it starts text
/// that reads like this escape, so two inputs never have the same output.
pub fn escape(bytes: &[u8]) -> String {
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

/// A name of exactly the maximum length is cut, too: it could be the id of a longer one.
fn shorten(name: &str) -> String {
    if name.len() < MAX_ID_LEN {
        return name.to_owned();
    }
    format!("{}-{}", &name[..MAX_ID_LEN - HASH_LEN - 1], sha256_short(name.as_bytes()))
}

fn twelve_digits(text: &str) -> String {
    format!("{:.12}", sha256_short(text.as_bytes()))
}

/// The id that one of these names has now, if `stored` is the one that earlier versions gave to it.
/// Other names may have had the same: their last 16 digits were of FNV-1a. None if several have.
pub fn renamed(stored: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let own = names.into_iter().filter(|name| former_id(name) == stored);
    let ids: BTreeSet<String> = own.map(|name| shorten(&name)).collect();
    let mut ids = ids.into_iter();
    ids.next().filter(|id| id != stored && ids.next().is_none())
}

/// Whether earlier versions made this id of a longer name.
pub fn is_former(id: &str) -> bool {
    let hash = id.get(MAX_ID_LEN - 17..).and_then(|end| end.strip_prefix('-'));
    id.len() == MAX_ID_LEN && hash.is_some_and(|it| it.bytes().all(|b| b.is_ascii_hexdigit()))
}

pub fn former_id(name: &str) -> String {
    if name.len() <= MAX_ID_LEN {
        return name.to_owned();
    }
    format!("{}-{:016x}", &name[..MAX_ID_LEN - 17], fnv1a_64(name.bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIVER: &str = "disk.csi.azure.com";

    /// Two names that were chosen for their former id, which is the same.
    fn chosen() -> [String; 2] {
        let disks = "/subscriptions/6ba7b810-9dad-11d1-80b4-00c04fd430c8/resourceGroups/MC-prod-westeurope/providers/Microsoft.Compute/disks";
        ["f-3ZXCzn2RI", "s-N.Sqhm8MH"].map(|own| format!("{disks}/pvc-{own}-data"))
    }

    #[test]
    fn a_handle_that_was_chosen_to_collide_takes_the_id_of_no_other_volume() {
        let names = chosen().map(|handle| VolumeId::csi_name(DRIVER, &handle));
        let former = former_id(&names[0]);
        assert_eq!(former, former_id(&names[1]));
        let [one, other] = chosen().map(|handle| VolumeId::csi(DRIVER, &handle).to_string());
        assert_ne!(one, other);
        assert_eq!((one.len(), is_former(&one), is_former(&former)), (MAX_ID_LEN, false, true));
        assert_eq!(renamed(&former, [names[0].clone()]), Some(one));
        assert_eq!(renamed(&former, names), None);
    }

    #[test]
    fn a_handle_that_is_the_end_of_an_id_takes_the_id_of_no_other_volume() {
        let id = VolumeId::csi(DRIVER, &chosen()[0]);
        let (_, end) = id.as_str().split_once(DRIVER).unwrap();
        assert_ne!(VolumeId::csi(DRIVER, &end[1..]), id);
    }

    #[test]
    fn ids_of_short_names_are_as_ever() {
        let short = "x".repeat(MAX_ID_LEN - 1);
        assert_eq!(DriveId::new(&short).as_str(), short);
        assert_eq!(renamed(&short, [short.clone()]), None);
    }

    #[test]
    fn findings_and_checks_of_chosen_subjects_have_different_ids() {
        // Both have the FNV-1a hash 0, as in `model::hash`.
        let [one, other] = ["!0IC=VloaY", "QvXtM>@Fp%"];
        let at = Timestamp::UNIX_EPOCH;
        assert_ne!(FindingId::new(one, "ReadOnly", at), FindingId::new(other, "ReadOnly", at));
        assert_ne!(CheckId::new(one, at), CheckId::new(other, at));
        assert_eq!((FindingId::new(one, "", at).0.len(), CheckId::new(one, at).0.len()), (12, 12));
    }

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
