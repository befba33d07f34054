//! Resolves a path that a caller named, only below a given directory and never through a link: each
//! component is opened with O_NOFOLLOW in the directory before it. openat2(2) would do it in one
//! call, but where seccomp forbids setuid files (the unit's RestrictSUIDSGID), it is ENOSYS:
//! seccomp cannot inspect its flags.
//!
//! In: the directory and the path. Out: a descriptor of the parent directory, and the last
//! component. Later operations are relative to the descriptor: no path is resolved twice, and no
//! directory can be replaced by a link in between. Does not depend on the purpose of the path.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use diskvitals_finding::path::HostPath;

#[derive(Debug, thiserror::Error)]
pub enum PathResolveError {
    #[error("{path} is not below {root}")]
    OutsideRoot { root: HostPath, path: HostPath },
    #[error("{0} has a part that is empty, `.` or `..`, or a NUL in it")]
    InvalidComponent(HostPath),
    #[error("opening {0}")]
    OpenRoot(HostPath, #[source] Errno),
    /// ELOOP: a symbolic link. ENOENT: a directory is missing.
    #[error("resolving {path} below {root}")]
    Resolve {
        root: HostPath,
        path: HostPath,
        #[source]
        source: Errno,
    },
}

impl PathResolveError {
    /// A directory in the path is missing.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            PathResolveError::Resolve { source: Errno::ENOENT, .. }
                | PathResolveError::OpenRoot(_, Errno::ENOENT)
        )
    }

    /// The path that the caller named is invalid; the machine has no fault.
    pub fn is_invalid_argument(&self) -> bool {
        match self {
            PathResolveError::OutsideRoot { .. } | PathResolveError::InvalidComponent(_) => true,
            PathResolveError::Resolve { source, .. } => {
                matches!(source, Errno::ELOOP | Errno::ENOTDIR | Errno::ENAMETOOLONG)
            }
            PathResolveError::OpenRoot(..) => false,
        }
    }
}

/// The last component of a path, and its directory.
#[derive(Debug)]
pub struct ResolvedPath {
    /// Opened with O_PATH.
    pub parent: OwnedFd,
    pub name: CString,
    /// For messages.
    pub path: HostPath,
}

/// `path` must lie below `root`; both are absolute. Its directory must exist; `path` itself need
/// not. `root` comes from the configuration and may be a link.
pub fn resolve(root: &HostPath, path: &HostPath) -> Result<ResolvedPath, PathResolveError> {
    let outside = || PathResolveError::OutsideRoot { root: root.clone(), path: path.clone() };
    let below = path.strip_prefix(root).filter(|below| !below.is_empty()).ok_or_else(outside)?;
    let parts = || PathResolveError::InvalidComponent(path.clone());
    if below.split(|byte| *byte == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        return Err(parts());
    }
    let mut names = below
        .split(|byte| *byte == b'/')
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| parts())?;
    let name = names.pop().ok_or_else(parts)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut parent = openat(AT_FDCWD, root.as_path(), flags, Mode::empty())
        .map_err(|errno| PathResolveError::OpenRoot(root.clone(), errno))?;
    for folder in &names {
        parent = open_subdirectory(&parent, folder).map_err(|source| {
            PathResolveError::Resolve { root: root.clone(), path: path.clone(), source }
        })?;
    }
    Ok(ResolvedPath { parent, name, path: path.clone() })
}

/// Opens the directory of this name; a link to a directory is ELOOP.
fn open_subdirectory(parent: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match openat(parent, name.as_c_str(), flags, Mode::empty()) {
        // The error for a link with these flags (open(2), O_PATH with O_NOFOLLOW and O_DIRECTORY).
        Err(Errno::ENOTDIR) if readlinkat(parent, name.as_c_str()).is_ok() => Err(Errno::ELOOP),
        opened => opened,
    }
}

impl ResolvedPath {
    /// Opens the path with O_PATH, on top of a mount there; does not query the mounted filesystem.
    /// A link is ELOOP.
    pub fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(self.parent.as_fd(), self.name.as_c_str(), flags, Mode::empty())?;
        // O_PATH with O_NOFOLLOW opens a link itself, and readlink succeeds only on links: it
        // rejects other files without a call to their filesystem (do_readlinkat(), fs/stat.c).
        if readlinkat(&opened, c"").is_ok() { Err(Errno::ELOOP) } else { Ok(opened) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(path: &std::path::Path) -> HostPath {
        HostPath::from(path)
    }

    #[test]
    fn a_path_below_the_root_resolves_whether_it_exists_or_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let root = path(dir.path());
        assert_eq!(resolve(&root, &root.join("a/b")).unwrap().name.as_bytes(), b"b");
        assert!(resolve(&root, &root.join("a")).unwrap().open().is_ok());
        assert_eq!(resolve(&root, &root.join("a/b")).unwrap().open().unwrap_err(), Errno::ENOENT);
        assert!(resolve(&root, &root.join("x/y")).unwrap_err().is_not_found());
    }

    #[test]
    fn paths_outside_the_root_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = path(dir.path());
        for wrong in ["a/../../x", "..", "a//b", "./a", "a/", "a\0b", ""] {
            assert!(
                resolve(&root, &root.join(wrong)).unwrap_err().is_invalid_argument(),
                "{wrong:?}"
            );
        }
        assert!(resolve(&root, &"/etc/passwd".into()).unwrap_err().is_invalid_argument());
        assert!(resolve(&root, &root).unwrap_err().is_invalid_argument());
        let beside = HostPath::new([root.as_bytes(), b"x/y"].concat());
        assert!(resolve(&root, &beside).unwrap_err().is_invalid_argument());
    }

    #[test]
    fn symlinks_are_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("inside")).unwrap();
        symlink("/etc", dir.path().join("outside")).unwrap();
        let root = path(dir.path());
        for link in ["inside/b", "outside/x"] {
            let error = resolve(&root, &root.join(link)).unwrap_err();
            assert!(error.is_invalid_argument() && !error.is_not_found(), "{link}: {error:?}");
        }
        assert_eq!(
            resolve(&root, &root.join("outside")).unwrap().open().unwrap_err(),
            Errno::ELOOP
        );
    }

    #[test]
    fn a_directory_swapped_for_a_symlink_never_escapes_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let (root, at) = (path(dir.path()), dir.path().join("a"));
        std::fs::create_dir(elsewhere.path().join("b")).unwrap();
        let own = std::fs::metadata(dir.path()).unwrap();
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let swapping = std::thread::spawn({
            let (over, at, elsewhere) = (over.clone(), at.clone(), elsewhere.path().to_owned());
            move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::create_dir_all(at.join("b")).ok();
                    std::fs::remove_dir_all(&at).ok();
                    symlink(&elsewhere, &at).ok();
                    std::fs::remove_file(&at).ok();
                }
            }
        });
        for _ in 0..2000 {
            if let Ok(spot) = resolve(&root, &root.join("a/b/c")) {
                // The folder `b` elsewhere has another number than any that was made here.
                let found = nix::sys::stat::fstat(&spot.parent).unwrap();
                let theirs = std::os::unix::fs::MetadataExt::ino(
                    &std::fs::metadata(elsewhere.path().join("b")).unwrap(),
                );
                assert!(
                    found.st_ino != theirs
                        || found.st_dev != std::os::unix::fs::MetadataExt::dev(&own)
                );
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        swapping.join().unwrap();
    }
}
