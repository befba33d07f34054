//! What names are allowed, for whoever reads one: the configuration, the shim's command line, a
//! driver that is registered, a record's file.

/// What handles of the pool begin with; no entry of `[[static]]` may.
pub const POOL_PREFIX: &str = "dv-";
/// Longest name of a static volume: fits a label and a file's name with room for `.json`.
pub const LONGEST_STATIC: usize = 63;
/// CSI, GetPluginInfoResponse.name.
const LONGEST_DRIVER: usize = 63;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// A driver's name as CSI has it (GetPluginInfoResponse.name): never more than one part of a path.
pub fn driver(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    if bytes.len() > LONGEST_DRIVER {
        return Err(format!(
            "a driver's name has at most {LONGEST_DRIVER} characters, this one {}",
            text.chars().count()
        ));
    }
    if !bytes.iter().copied().all(is_plain) || !end(bytes.first()) || !end(bytes.last()) {
        return Err("a driver's name is made of ASCII letters, digits, `-`, `.` and `_`, and begins and ends with a letter or digit".into());
    }
    Ok(())
}

/// The name of an entry of `[[static]]`: it becomes a file's name, and is a PV's handle.
pub fn static_volume(text: &str) -> Result<(), String> {
    let begins_well = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins_well || text.len() > LONGEST_STATIC || !text.bytes().all(is_plain) {
        return Err(format!(
            "is not 1 to {LONGEST_STATIC} letters, digits, `.`, `_` and `-` that begin with a letter or digit"
        ));
    }
    if text.starts_with(POOL_PREFIX) {
        return Err(format!(
            "begins with `{POOL_PREFIX}`, as volumes of the pool do"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_drivers_name_is_short_and_plain() {
        for name in [
            "csi.diskvitals.io",
            "a",
            "a1",
            "1.io",
            "A-1_b.c",
            &"a".repeat(63),
        ] {
            assert_eq!(driver(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "-a",
            "a-",
            ".a",
            "a_",
            "a b",
            "a/b",
            "ä",
            "a\0",
            &"a".repeat(64),
        ] {
            assert!(driver(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_static_name_is_a_plain_word_that_is_no_path_and_no_pool_handle() {
        for name in ["fast-1", "data.2_b", "a1", "a-"] {
            assert_eq!(static_volume(name), Ok(()), "{name}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "dv-x",
            "-a",
            &"x".repeat(64),
            "a\0",
            "ä",
        ] {
            assert!(static_volume(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_allowed_is_one_plain_part_of_a_path(text in "\\PC*") {
            for allowed in [driver(&text), static_volume(&text)] {
                prop_assert!(allowed.is_err() || (text.is_ascii() && !text.contains('/') && !text.is_empty() && text != "."));
            }
        }
    }
}
