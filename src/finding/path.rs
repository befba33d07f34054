//! Paths as the kernel has them: bytes, not text. Printed (JSON, logs, ids) with the octal escapes
//! of proc_pid_mountinfo(5), so that no byte is lost.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An absolute path (or a mount's source) by the host's name, never with the host root in front.
/// Copies share their bytes: a mount's path is in a dozen places.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(Arc<[u8]>);

impl HostPath {
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        HostPath(bytes.as_ref().into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The path relative to `base`, without a leading slash; empty when equal, `None` when it is
    /// not below `base`.
    pub fn strip_prefix(&self, base: &HostPath) -> Option<&[u8]> {
        if *base.0 == *b"/" {
            return self.0.strip_prefix(b"/");
        }
        match self.0.strip_prefix(&*base.0)? {
            [] => Some(&[]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }

    /// `/a/b`, `/a`, `/`.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(self.as_bytes());
        std::iter::from_fn(move || {
            let now = rest?;
            rest = match now.iter().rposition(|byte| *byte == b'/') {
                Some(0) if now.len() > 1 => Some(&now[..1]),
                Some(0) | None => None,
                Some(at) => Some(&now[..at]),
            };
            Some(now)
        })
    }

    pub fn join(&self, below: impl AsRef<[u8]>) -> HostPath {
        let mut bytes = self.0.to_vec();
        if bytes.last() != Some(&b'/') {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(below.as_ref());
        HostPath(bytes.into())
    }

    /// Reverts `\ooo`; a backslash without a valid escape is a literal backslash.
    pub fn unescape(text: &[u8]) -> HostPath {
        if !text.contains(&b'\\') {
            return HostPath(text.into());
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let [first, tail @ ..] = rest {
            match rest {
                [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                    bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                    rest = after;
                }
                _ => {
                    bytes.push(*first);
                    rest = tail;
                }
            }
        }
        HostPath(bytes.into())
    }
}

/// Printable text is unchanged; control characters, backslash and bytes that are not UTF-8 become
/// `\ooo`. Spaces are kept, because people read this.
impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            // Fast path: nearly all paths need no escape, and thousands are printed each minute.
            for piece in chunk.valid().split_inclusive(is_escaped) {
                let plain = piece.trim_end_matches(is_escaped);
                f.write_str(plain)?;
                for byte in piece.bytes().skip(plain.len()) {
                    write!(f, "\\{byte:03o}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\{byte:03o}")?;
            }
        }
        Ok(())
    }
}

fn is_escaped(c: char) -> bool {
    c == '\\' || c.is_control()
}

impl fmt::Debug for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<&str> for HostPath {
    fn from(text: &str) -> Self {
        HostPath(text.as_bytes().into())
    }
}

impl From<&Path> for HostPath {
    fn from(path: &Path) -> Self {
        HostPath(path.as_os_str().as_bytes().into())
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(HostPath::unescape(String::deserialize(deserializer)?.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_survive_writing_and_reading(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let path = HostPath::new(bytes);
            prop_assert_eq!(HostPath::unescape(path.to_string().as_bytes()), path);
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let base = HostPath::from("/var/lib");
        assert_eq!(HostPath::from("/var/lib/kubelet").strip_prefix(&base), Some(&b"kubelet"[..]));
        assert_eq!(HostPath::from("/var/library").strip_prefix(&base), None);
        assert_eq!(HostPath::from("/var").strip_prefix(&HostPath::from("/")), Some(&b"var"[..]));
    }
}
