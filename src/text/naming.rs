//! Validation of the names of drivers and static volumes, wherever they are read (configuration,
//! command line of the shim, driver registration, record files).

/// Prefix of the pool's volume handles; no entry of `[[static]]` may have it.
pub const POOL_PREFIX: &str = "dv-";
/// Maximum length of a static volume's name: it fits a label, and a file name with `.json`.
pub(crate) const MAX_STATIC_NAME_LEN: usize = 63;
/// CSI, GetPluginInfoResponse.name.
const MAX_DRIVER_NAME_LEN: usize = 63;

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a driver's name has at most {MAX_DRIVER_NAME_LEN} characters, this one {0}")]
    DriverLength(usize),
    #[error(
        "a driver's name is made of ASCII letters, digits, `-`, `.` and `_`, and begins and ends with a letter or digit"
    )]
    Driver,
    #[error(
        "is not 1 to {MAX_STATIC_NAME_LEN} letters, digits, `.`, `_` and `-` that begin with a letter or digit"
    )]
    StaticVolume,
    #[error("begins with `{POOL_PREFIX}`, as volumes of the pool do")]
    PoolPrefix,
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// A driver name by CSI's rules (GetPluginInfoResponse.name): never more than one path component.
pub fn validate_driver(text: &str) -> Result<(), NameError> {
    let bytes = text.as_bytes();
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    if bytes.len() > MAX_DRIVER_NAME_LEN {
        return Err(NameError::DriverLength(text.chars().count()));
    }
    if !bytes.iter().copied().all(is_name_byte) || !end(bytes.first()) || !end(bytes.last()) {
        return Err(NameError::Driver);
    }
    Ok(())
}

/// The name of a `[[static]]` entry: it becomes a file name, and is a PV's handle.
pub fn validate_static_volume(text: &str) -> Result<(), NameError> {
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if !begins_well || text.len() > MAX_STATIC_NAME_LEN || !text.bytes().all(is_name_byte) {
        return Err(NameError::StaticVolume);
    }
    if text.starts_with(POOL_PREFIX) {
        return Err(NameError::PoolPrefix);
    }
    Ok(())
}

/// `00` of `Slot 00`: enclosures name their slots in either way.
pub fn slot_name(slot: &str) -> &str {
    let is_word = slot.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("slot "));
    match slot.get(5..) {
        Some(rest) if is_word => rest.trim_start(),
        _ => slot,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_drivers_name_is_short_and_plain() {
        for name in ["csi.diskvitals.io", "a", "a1", "1.io", "A-1_b.c", &"a".repeat(63)] {
            assert_eq!(validate_driver(name), Ok(()), "{name}");
        }
        for name in ["", "-a", "a-", ".a", "a_", "a b", "a/b", "ä", "a\0", &"a".repeat(64)] {
            assert!(validate_driver(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_static_volume_name_is_no_path_and_no_pool_handle() {
        for name in ["fast-1", "data.2_b", "a1", "a-"] {
            assert_eq!(validate_static_volume(name), Ok(()), "{name}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "dv-x", "-a", &"x".repeat(64), "a\0", "ä"] {
            assert!(validate_static_volume(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_allowed_name_is_one_path_component(text in "\\PC*") {
            for allowed in [validate_driver(&text), validate_static_volume(&text)] {
                prop_assert!(allowed.is_err() || (text.is_ascii() && !text.contains('/') && !text.is_empty() && text != "."));
            }
        }
    }

    #[test]
    fn a_slot_is_named_without_the_word() {
        for (slot, name) in [
            ("Slot 00", "00"),
            ("slot  7", "7"),
            ("Slot", "Slot"),
            ("SLOT_1", "SLOT_1"),
            ("Bay 3", "Bay 3"),
            ("", ""),
        ] {
            assert_eq!(slot_name(slot), name);
        }
    }
}
