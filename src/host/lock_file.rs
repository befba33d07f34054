//! A lock that no other user can take: flock(2) on a file of mode 0600, in a directory that only
//! this uid may change. flock(2) needs only an open descriptor: whoever may open a file or a directory
//! for reading can lock it for as long as it likes.
//!
//! In: a directory and the name of the file. Out: the lock, or the process that holds it. The kernel
//! releases the lock when its holder ends. Does not depend on what the lock protects.

use std::fmt;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;

/// What a holder writes is a number and a name of 15 bytes at most (TASK_COMM_LEN).
const MAX_CONTENT: u64 = 64;

/// Held until it is dropped.
#[derive(Debug)]
pub struct LockFile(Flock<File>);

/// The process that holds a lock, as it wrote itself into the file. None: it has not written yet,
/// or its disk was full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    /// In the PID namespace of the holder.
    pub pid: Option<u32>,
    pub command: Option<String>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.command) {
            (None, _) => write!(f, "a process that has not written its id"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (Some(pid), Some(command)) => write!(f, "process {pid} ({command})"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    #[error("{} is locked by {holder}", path.display())]
    Held { path: PathBuf, holder: LockHolder },
    #[error(
        "{} belongs to uid {owner}, so that others could hold its lock, and this process has uid {}: give it to that uid, or remove it",
        path.display(),
        nix::unistd::geteuid()
    )]
    ForeignOwner { path: PathBuf, owner: u32 },
    #[error(
        "{} has mode {mode:04o}, so that others could replace the lock: take their right to write with `chmod go-w`",
        path.display()
    )]
    WritableByOthers { path: PathBuf, mode: u32 },
    #[error("{} is no regular file, so it cannot be the lock: remove it", .0.display())]
    NotAFile(PathBuf),
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error<'a, E: Into<io::Error>>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(E) -> LockFileError + 'a {
    move |source| LockFileError::Io { operation, path: path.to_owned(), source: source.into() }
}

impl LockFile {
    /// In a directory that contains nothing but locks. Created with mode 0700 if it is missing; it
    /// may not be a link.
    pub(crate) fn acquire_in_private(
        directory: &Path,
        name: &str,
    ) -> Result<LockFile, LockFileError> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_error("creating", directory)(error));
            }
            _ => {}
        }
        acquire(directory, OFlag::O_NOFOLLOW, name)
    }

    /// In a directory that exists and may be a link.
    pub fn acquire_in(directory: &Path, name: &str) -> Result<LockFile, LockFileError> {
        acquire(directory, OFlag::empty(), name)
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }
}

fn acquire(directory: &Path, follow: OFlag, name: &str) -> Result<LockFile, LockFileError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | follow;
    let opened = openat(AT_FDCWD, directory, flags, Mode::empty())
        .map(File::from)
        .map_err(io_error("opening", directory))?;
    check_owner(&opened, directory)?;
    let path = directory.join(name);
    // Without O_NONBLOCK, a FIFO would wait for its other end.
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(&opened, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .map(File::from)
        .map_err(io_error("opening", &path))?;
    let found = check_owner(&file, &path)?;
    if !found.is_file() {
        return Err(LockFileError::NotAFile(path));
    }
    // Earlier versions created the lock of the state directory with mode 0640.
    if found.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(io_error("setting the mode of", &path))?;
    }
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            // The content is for people. The lock holds without it, for example on a full disk.
            let _ = write_holder(&mut file);
            Ok(LockFile(file))
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            Err(LockFileError::Held { holder: read_holder(&mut file), path })
        }
        Err((_, errno)) => Err(io_error("locking", &path)(errno)),
    }
}

/// No other user may change it.
fn check_owner(file: &File, path: &Path) -> Result<Metadata, LockFileError> {
    let found = file.metadata().map_err(io_error("looking at", path))?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(LockFileError::ForeignOwner { path: path.to_owned(), owner: found.uid() });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(LockFileError::WritableByOthers { path: path.to_owned(), mode });
    }
    Ok(found)
}

fn write_holder(file: &mut File) -> io::Result<()> {
    // The main thread's name: that of the program.
    let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    file.set_len(0)?;
    file.write_all(format!("{} {}\n", std::process::id(), command.trim_end()).as_bytes())
}

fn read_holder(file: &mut File) -> LockHolder {
    let mut content = Vec::new();
    // If the file is unreadable, its holder is unknown.
    let _ = file.take(MAX_CONTENT).read_to_end(&mut content);
    parse_holder(&String::from_utf8_lossy(&content))
}

fn parse_holder(content: &str) -> LockHolder {
    let line = content.lines().next().unwrap_or_default();
    let (pid, command) = line.split_once(' ').unwrap_or((line, ""));
    LockHolder {
        pid: pid.parse().ok(),
        command: (!command.is_empty()).then(|| command.escape_debug().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_lock_is_private_names_its_holder_and_is_free_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("locks");
        let lock = LockFile::acquire_in_private(&private, "a").unwrap();
        assert_eq!((mode(&private), mode(&private.join("a"))), (0o700, 0o600));
        match LockFile::acquire_in_private(&private, "a") {
            Err(LockFileError::Held { holder, .. }) => {
                assert_eq!(holder.pid, Some(std::process::id()));
                assert!(holder.command.is_some());
            }
            other => panic!("{other:?}"),
        }
        LockFile::acquire_in_private(&private, "b").expect("another lock");
        drop(lock);
        LockFile::acquire_in_private(&private, "a").unwrap();
    }

    #[test]
    fn a_directory_or_file_that_others_may_write_is_refused_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("locks");
        drop(LockFile::acquire_in_private(&private, "a").unwrap());
        for (path, wrong, right) in [
            (&private, 0o1777, 0o700),
            (&private, 0o720, 0o700),
            (&private.join("a"), 0o602, 0o600),
        ] {
            set_mode(path, wrong);
            let error = LockFile::acquire_in_private(&private, "a").unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("{} has mode {wrong:04o}", path.display()))
                    && error.to_string().contains("chmod go-w"),
                "{error}"
            );
            set_mode(path, right);
        }
        LockFile::acquire_in_private(&private, "a").unwrap();
    }

    #[test]
    fn a_file_that_others_may_read_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "1\n").unwrap();
        set_mode(&path, 0o644);
        let _lock = LockFile::acquire_in(dir.path(), "lock").unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn links_and_other_kinds_of_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        LockFile::acquire_in_private(&link, "a").unwrap_err();
        LockFile::acquire_in(&link, "a").expect("a state directory may be a link");
        std::fs::write(dir.path().join("precious"), "text").unwrap();
        std::os::unix::fs::symlink(dir.path().join("precious"), real.join("b")).unwrap();
        LockFile::acquire_in(&real, "b").unwrap_err();
        nix::unistd::mkfifo(&real.join("c"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(matches!(LockFile::acquire_in(&real, "c"), Err(LockFileError::NotAFile(_))));
        assert_eq!(std::fs::read_to_string(dir.path().join("precious")).unwrap(), "text");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(4001), None).unwrap();
        let error = LockFile::acquire_in(dir.path(), "lock").unwrap_err();
        assert!(error.to_string().contains("belongs to uid 4001"), "{error}");
        assert!(!dir.path().join("lock").exists());
    }

    #[test]
    fn a_holder_is_a_number_and_a_name_without_control_characters() {
        let text = |content| parse_holder(content).to_string();
        assert_eq!(text("12 diskvitalsd\n"), "process 12 (diskvitalsd)");
        // As earlier versions wrote it.
        assert_eq!(text("12\n"), "process 12");
        assert_eq!(text("12 a\u{1b}[2J b\n"), "process 12 (a\\u{1b}[2J b)");
        for unknown in ["", "x\n", "-3 a\n"] {
            assert_eq!(text(unknown), "a process that has not written its id");
        }
    }
}
