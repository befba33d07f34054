//! Handles and names of volumes. A handle of the pool is random, so that a user with the right to
//! write a PV cannot guess another handle. A static volume's handle is its entry's name.

use crate::error::ProvisionError;
use diskvitals_text::naming;
use diskvitals_text::naming::POOL_PREFIX;

/// CSI, "Size Limits": 128 bytes unless the specification names another limit.
pub const MAX_NAME_BYTES: usize = 128;

/// A handle of a pool volume, from random bits.
pub(crate) fn pool_handle(bits: [u8; 16]) -> String {
    format!("{POOL_PREFIX}{:032x}", u128::from_be_bytes(bits))
}

/// Whether `text` has the form of a pool handle.
pub(crate) fn is_pool_handle(text: &str) -> bool {
    text.strip_prefix(POOL_PREFIX).is_some_and(|rest| {
        rest.len() == 32 && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether `text` may name an entry of `[[static]]`.
pub(crate) fn is_static_name(text: &str) -> bool {
    naming::validate_static_volume(text).is_ok()
}

/// Checks the name that a caller requests for a volume. The name is data, never part of a path.
pub(crate) fn check_name(name: &str) -> Result<(), ProvisionError> {
    let problem = match name.len() {
        0 => "is empty".to_owned(),
        1..=MAX_NAME_BYTES if !name.chars().any(char::is_control) => return Ok(()),
        1..=MAX_NAME_BYTES => "has control characters".to_owned(),
        length => format!("has {length} bytes, at most {MAX_NAME_BYTES} are allowed"),
    };
    Err(ProvisionError::invalid_argument("name", problem))
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
