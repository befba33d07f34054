//! Secrets: passwords, tokens and addresses that only a file has. They are read for each use, so a
//! changed file is in force at once, and never printed.
//!
//! In: the name of a file. Out: its content, without the newline at its end.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use diskvitals_host::trusted_file;

/// A secret is short.
const MAX_BYTES: u64 = 16 << 10;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretFile {
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("reading the secret {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the secret {} is empty", .0.display())]
    Empty(PathBuf),
    #[error("the secret {} is not one line of text", .0.display())]
    NotText(PathBuf),
    #[error("the secret {} is larger than {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("reading the secret {}: the reader has ended", .0.display())]
    Lost(PathBuf),
}

/// A secret's text. Its only output is `expose`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl SecretFile {
    /// A relative name is that of a systemd credential (systemd.exec(5), LoadCredential=), or without
    /// credentials of a file in `folder`.
    pub(crate) fn new(path: PathBuf, folder: &Path) -> SecretFile {
        let base = std::env::var_os("CREDENTIALS_DIRECTORY");
        let base = base.map_or_else(|| folder.to_owned(), PathBuf::from);
        SecretFile { path: base.join(path) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it on another thread: its disk may not respond.
    pub(crate) async fn read(&self) -> Result<Secret, SecretError> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.read_now())
            .await
            .unwrap_or_else(|_| Err(SecretError::Lost(self.path.clone())))
    }

    fn read_now(&self) -> Result<Secret, SecretError> {
        let path = || self.path.clone();
        let failed = |source| SecretError::Read { path: path(), source };
        let mut bytes = Vec::new();
        let file = trusted_file::open(&self.path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(SecretError::TooLarge(path()));
        }
        let text = String::from_utf8(bytes).map_err(|_| SecretError::NotText(path()))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(SecretError::Empty(path()));
        }
        match text.contains(char::is_control) {
            true => Err(SecretError::NotText(path())),
            false => Ok(Secret(text.to_owned())),
        }
    }

    /// Everyone on the host may read it.
    pub(crate) fn is_public(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.mode() & 0o004 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_anew_and_never_shown() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = SecretFile::new("token".into(), dir.path());
        let write = |content: &[u8]| std::fs::write(dir.path().join("token"), content);
        let read = || file.read_now().map(|secret| secret.expose().to_owned());
        assert!(matches!(read(), Err(SecretError::Read { .. })));
        write(b"first\n").expect("written");
        assert_eq!(read().expect("read"), "first");
        write(b"second\r\n").expect("written");
        assert_eq!(read().expect("read"), "second");
        assert_eq!(format!("{:?}", file.read_now().expect("read")), "(secret)");
        for (content, expected) in [
            (&b"\n"[..], "is empty"),
            (b"a\nb\n", "not one line"),
            (b"\xff", "not one line"),
            (&[b'x'; 20_000], "larger than"),
        ] {
            write(content).expect("written");
            let error = read().expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
