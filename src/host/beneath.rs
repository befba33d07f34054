//! Paths that a caller named, resolved below a folder and nowhere else, and through no link: name
//! by name, each opened with O_NOFOLLOW in the folder before it. openat2(2) would do it in one
//! call, but where setuid files are forbidden by seccomp (the unit's RestrictSUIDSGID), that call
//! is ENOSYS: its flags cannot be looked into.
//!
//! In: the folder and the path. Out: a descriptor of the path's parent and its last name. What is
//! done to that name is done relative to the descriptor: nothing is resolved a second time, and
//! nobody can swap a folder for a link in between. Knows nothing of what the path is for.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use crate::model::path::HostPath;

#[derive(Debug, thiserror::Error)]
pub enum BeneathError {
    #[error("{path} is not below {root}")]
    Outside { root: HostPath, path: HostPath },
    #[error("{0} has a part that is empty, `.` or `..`, or a NUL in it")]
    Parts(HostPath),
    #[error("opening {0}")]
    Root(HostPath, #[source] Errno),
    /// ELOOP: a symbolic link. ENOENT: a folder is missing.
    #[error("resolving {path} below {root}")]
    Resolve {
        root: HostPath,
        path: HostPath,
        #[source]
        source: Errno,
    },
}

impl BeneathError {
    /// A folder on the way is missing.
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            BeneathError::Resolve {
                source: Errno::ENOENT,
                ..
            } | BeneathError::Root(_, Errno::ENOENT)
        )
    }

    /// What the caller named is wrong, not the machine.
    pub fn is_callers(&self) -> bool {
        match self {
            BeneathError::Outside { .. } | BeneathError::Parts(_) => true,
            BeneathError::Resolve { source, .. } => {
                matches!(source, Errno::ELOOP | Errno::ENOTDIR | Errno::ENAMETOOLONG)
            }
            BeneathError::Root(..) => false,
        }
    }
}

/// The last name of a path, in its folder.
#[derive(Debug)]
pub struct Spot {
    /// Opened with O_PATH.
    pub parent: OwnedFd,
    pub name: CString,
    /// For messages.
    pub path: HostPath,
}

/// `path` must lie below `root`, both absolute. Its folder must be there; itself it need not be.
/// `root` is the configuration's, and may be a link.
pub fn find(root: &HostPath, path: &HostPath) -> Result<Spot, BeneathError> {
    let outside = || BeneathError::Outside {
        root: root.clone(),
        path: path.clone(),
    };
    let below = path
        .strip_prefix(root)
        .filter(|below| !below.is_empty())
        .ok_or_else(outside)?;
    let parts = || BeneathError::Parts(path.clone());
    if below
        .split(|byte| *byte == b'/')
        .any(|part| matches!(part, b"" | b"." | b".."))
    {
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
        .map_err(|errno| BeneathError::Root(root.clone(), errno))?;
    for folder in &names {
        parent = enter(&parent, folder).map_err(|source| BeneathError::Resolve {
            root: root.clone(),
            path: path.clone(),
            source,
        })?;
    }
    Ok(Spot {
        parent,
        name,
        path: path.clone(),
    })
}

/// The folder of this name; a link to one is ELOOP.
fn enter(parent: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match openat(parent, name.as_c_str(), flags, Mode::empty()) {
        // What a link is called here (open(2), O_PATH with O_NOFOLLOW and O_DIRECTORY).
        Err(Errno::ENOTDIR) if readlinkat(parent, name.as_c_str()).is_ok() => Err(Errno::ELOOP),
        opened => opened,
    }
}

impl Spot {
    /// What is there, through a mount upon it, opened with O_PATH; asks no filesystem that is
    /// mounted there. A link is ELOOP.
    pub fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(
            self.parent.as_fd(),
            self.name.as_c_str(),
            flags,
            Mode::empty(),
        )?;
        // O_PATH with O_NOFOLLOW opens a link itself, and only a link can be read as one: of all
        // else the kernel says so without asking its filesystem (do_readlinkat(), fs/stat.c).
        if readlinkat(&opened, c"").is_ok() {
            Err(Errno::ELOOP)
        } else {
            Ok(opened)
        }
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
    fn a_path_below_is_found_whether_it_is_there_or_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let root = path(dir.path());
        assert_eq!(
            find(&root, &root.join("a/b")).unwrap().name.as_bytes(),
            b"b"
        );
        assert!(find(&root, &root.join("a")).unwrap().open().is_ok());
        assert_eq!(
            find(&root, &root.join("a/b")).unwrap().open().unwrap_err(),
            Errno::ENOENT
        );
        assert!(find(&root, &root.join("x/y")).unwrap_err().is_absent());
    }

    #[test]
    fn what_lies_outside_or_is_spelt_to_lead_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = path(dir.path());
        for wrong in ["a/../../x", "..", "a//b", "./a", "a/", "a\0b", ""] {
            assert!(
                find(&root, &root.join(wrong)).unwrap_err().is_callers(),
                "{wrong:?}"
            );
        }
        assert!(find(&root, &"/etc/passwd".into()).unwrap_err().is_callers());
        assert!(find(&root, &root).unwrap_err().is_callers());
        let beside = HostPath::new([root.as_bytes(), b"x/y"].concat());
        assert!(find(&root, &beside).unwrap_err().is_callers());
    }

    #[test]
    fn a_link_is_not_followed_wherever_it_stands_and_wherever_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("inside")).unwrap();
        symlink("/etc", dir.path().join("outside")).unwrap();
        let root = path(dir.path());
        for link in ["inside/b", "outside/x"] {
            let error = find(&root, &root.join(link)).unwrap_err();
            assert!(
                error.is_callers() && !error.is_absent(),
                "{link}: {error:?}"
            );
        }
        assert_eq!(
            find(&root, &root.join("outside"))
                .unwrap()
                .open()
                .unwrap_err(),
            Errno::ELOOP
        );
    }

    #[test]
    fn a_folder_that_is_swapped_for_a_link_all_the_time_never_leads_out() {
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
            if let Ok(spot) = find(&root, &root.join("a/b/c")) {
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
