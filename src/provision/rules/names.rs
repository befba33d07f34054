//! Handles and names of volumes. A handle of the pool is random, so that a user who may name a
//! volume in a PV cannot guess another one. A static volume's handle is its entry's name.

use crate::model::naming;
use crate::model::naming::POOL_PREFIX;
use crate::provision::error::ProvisionError;

/// CSI, "Size Limits": 128 bytes for what is not said otherwise.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// A handle of the pool's, of random bits.
pub(crate) fn pool_handle(bits: [u8; 16]) -> String {
    bits.iter().fold(POOL_PREFIX.to_owned(), |text, byte| {
        text + &format!("{byte:02x}")
    })
}

/// Whether `text` is a handle as the pool gives them.
pub(crate) fn is_pool_handle(text: &str) -> bool {
    text.strip_prefix(POOL_PREFIX).is_some_and(|rest| {
        rest.len() == 32
            && rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether `text` may name an entry of `[[static]]`.
pub(crate) fn is_static_name(text: &str) -> bool {
    naming::validate_static_volume(text).is_ok()
}

/// A volume's name as the caller asks for it: data, never part of a path.
pub(crate) fn check_name(name: &str) -> Result<(), ProvisionError> {
    if name.is_empty() {
        return Err(ProvisionError::invalid_argument("name", "is empty"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(ProvisionError::invalid_argument(
            "name",
            format!(
                "has {} bytes, at most {MAX_NAME_BYTES} are allowed",
                name.len()
            ),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(ProvisionError::invalid_argument(
            "name",
            "has control characters",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_made_of_all_its_random_bits() {
        let handle = pool_handle([0xab; 16]);
        assert_eq!(handle, format!("dv-{}", "ab".repeat(16)));
        assert!(is_pool_handle(&handle));
        assert!(
            !is_pool_handle("dv-x")
                && !is_pool_handle(&handle.to_uppercase())
                && !is_pool_handle(&format!("{handle}/.."))
        );
    }

    #[test]
    fn no_handle_of_the_pool_is_a_static_name() {
        assert!(is_static_name("fast-1") && !is_static_name(&pool_handle([0; 16])));
    }

    #[test]
    fn a_name_has_128_bytes_at_most_and_no_control_characters() {
        assert!(check_name(&"n".repeat(128)).is_ok());
        for bad in [String::new(), "n".repeat(129), "a\0b".into(), "a\nb".into()] {
            assert!(
                matches!(
                    check_name(&bad),
                    Err(ProvisionError::InvalidArgument { field: "name", .. })
                ),
                "{bad:?}"
            );
        }
    }
}
