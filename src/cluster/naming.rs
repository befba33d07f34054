//! Names that the API server allows.

/// Whether the text is a DNS subdomain (RFC 1123), so that it is one component of a URL path.
pub fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let ends = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = part.as_bytes();
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_a_dns_subdomain() {
        for (text, good) in [
            ("pvc-1", true),
            ("a.b-c.d", true),
            ("", false),
            ("../nodes", false),
            ("a/b", false),
            ("a?b", false),
            ("A", false),
            ("-a", false),
            ("a..b", false),
        ] {
            assert_eq!(is_dns_subdomain(text), good, "{text}");
        }
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }
}
