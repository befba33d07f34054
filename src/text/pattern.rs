//! Shell-like patterns of whole names, as settings have them.

/// Matches a shell-like pattern: `*` any bytes (also `/` and none), `?` one byte. Backtracks only
/// to the last star.
pub fn matches(pattern: &str, text: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

pub fn matches_any(patterns: &[String], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| matches(pattern, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("/boot", "/boot", true),
            ("/boot", "/boot/efi", false),
            ("/boot*", "/boot/efi", true),
            ("/mnt/?", "/mnt/a", true),
            ("*snap*", "/var/lib/snapd/x", true),
            ("a*b*c", "aXbYb", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
