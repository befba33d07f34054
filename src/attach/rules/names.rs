//! Handles and names. A handle of the pool is random: nobody who may name a volume in a PV can
//! guess another one's. A static volume's is its entry's name.

use crate::attach::fault::Fault;
use crate::model::naming;
use crate::model::naming::POOL_PREFIX;

/// CSI, "Size Limits": 128 bytes for what is not said otherwise.
pub const LONGEST_NAME: usize = 128;

/// A handle of the pool's, of random bits.
pub fn handle(bits: [u8; 16]) -> String {
    bits.iter().fold(POOL_PREFIX.to_owned(), |text, byte| {
        text + &format!("{byte:02x}")
    })
}

/// Whether `text` is a handle as the pool gives them.
pub fn is_pool_handle(text: &str) -> bool {
    text.strip_prefix(POOL_PREFIX).is_some_and(|rest| {
        rest.len() == 32
            && rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether `text` may name an entry of `[[static]]`.
pub fn is_static_name(text: &str) -> bool {
    naming::static_volume(text).is_ok()
}

/// A volume's name as the caller asks for it: data, never part of a path.
pub fn check_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::invalid("name", "is empty"));
    }
    if name.len() > LONGEST_NAME {
        return Err(Fault::invalid(
            "name",
            format!(
                "has {} bytes, at most {LONGEST_NAME} are allowed",
                name.len()
            ),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(Fault::invalid("name", "has control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_made_of_all_its_random_bits() {
        let handle = handle([0xab; 16]);
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
        assert!(is_static_name("fast-1") && !is_static_name(&handle([0; 16])));
    }

    #[test]
    fn a_name_has_128_bytes_at_most_and_no_control_characters() {
        assert!(check_name(&"n".repeat(128)).is_ok());
        for bad in [String::new(), "n".repeat(129), "a\0b".into(), "a\nb".into()] {
            assert!(
                matches!(check_name(&bad), Err(Fault::Invalid { field: "name", .. })),
                "{bad:?}"
            );
        }
    }
}
