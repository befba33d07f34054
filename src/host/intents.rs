//! Intents of freezes, on a tmpfs that is empty after a boot: with them, the daemon or a helper
//! finds the filesystems that killed processes left frozen.
//!
//! One file per freeze: created before the freeze, marked as frozen by one write in place, removed
//! after the thaw. So no file is created and no memory is needed while writers are held. The
//! intents of lvm(8), which suspends a volume while it changes it, are beside them (`lvm_intent`).
//! In: a directory of the host. Out: the intents of this boot. Does not depend on mounts.

pub mod lvm_intent;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;

/// linux/magic.h
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const SUFFIX: &str = ".json";

/// Both names have the same length: one overwrites the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// FIFREEZE is about to be called, or is running.
    #[serde(rename = "asking")]
    Freezing,
    #[serde(rename = "frozen")]
    Frozen,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeIntent {
    /// The first field, so that its offset in the file is fixed.
    pub stage: Stage,
    pub mount: HostPath,
    pub dev: DevNo,
    /// Process id of the helper in the host's PID namespace, and its start time in ticks after boot
    /// (proc_pid_stat(5)): process ids are reused.
    pub pid: u32,
    pub started: u64,
    pub boot_id: String,
}

/// Offset of the stage in the file.
const STAGE_OFFSET: u64 = r#"{"stage":""#.len() as u64;

#[derive(Debug, thiserror::Error)]
pub enum IntentError {
    #[error(
        "{0} is not in memory (tmpfs): notes of what is frozen must not outlive the boot, and must be writable when disks are not"
    )]
    NotInMemory(PathBuf),
    #[error("{doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("encoding the note {0}")]
    Encode(PathBuf, #[source] serde_json::Error),
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IntentError {
    let path = path.to_owned();
    move |source| IntentError::Io { doing, path, source }
}

/// An intent that was written; open for the change of its stage.
#[derive(Debug)]
pub struct IntentFile {
    path: PathBuf,
    file: File,
}

impl IntentFile {
    /// Creates the directory if it is missing. `name`: letters, digits and hyphens.
    pub fn create(
        directory: &Path,
        name: &str,
        intent: &FreezeIntent,
    ) -> Result<IntentFile, IntentError> {
        let (path, file) = write_atomically(directory, &format!("{name}{SUFFIX}"), intent)?;
        Ok(IntentFile { path, file })
    }

    /// Overwrites memory that is already allocated.
    pub fn mark_frozen(&self) -> io::Result<()> {
        self.file.write_all_at(b"frozen", STAGE_OFFSET)
    }

    pub fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// Creates the directory if it is missing. The file stays open.
fn write_atomically(
    directory: &Path,
    name: &str,
    note: &impl Serialize,
) -> Result<(PathBuf, File), IntentError> {
    if !directory.is_dir() {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(directory)
            .map_err(io("making", directory))?;
    }
    if !is_in_memory(directory).map_err(io("looking at", directory))? {
        return Err(IntentError::NotInMemory(directory.to_owned()));
    }
    let path = directory.join(name);
    // A reader finds a complete file or none.
    let draft = directory.join(format!(".{name}.draft"));
    let text =
        serde_json::to_vec(note).map_err(|error| IntentError::Encode(path.clone(), error))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .map_err(io("making", &draft))?;
    file.write_all(&text).map_err(io("writing", &draft))?;
    std::fs::rename(&draft, &path).map_err(io("making", &path))?;
    Ok((path, file))
}

/// An intent that was found; None where it cannot be parsed.
#[derive(Debug)]
pub struct StoredIntent<T = FreezeIntent> {
    pub path: PathBuf,
    pub intent: Option<T>,
}

/// Sorted by name. Empty where the directory is missing.
pub fn find(directory: &Path) -> Result<Vec<StoredIntent>, IntentError> {
    find_all(directory, SUFFIX)
}

fn find_all<T: DeserializeOwned>(
    directory: &Path,
    suffix: &str,
) -> Result<Vec<StoredIntent<T>>, IntentError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("reading", directory)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(io("reading", directory))?.path();
        if !path.to_string_lossy().ends_with(suffix) {
            continue;
        }
        match std::fs::read(&path) {
            Ok(text) => {
                found.push(StoredIntent { path, intent: serde_json::from_slice(&text).ok() })
            }
            // Removed since: the filesystem was thawed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("reading", &path)(error)),
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl<T> StoredIntent<T> {
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            // Two repairs run at the same time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl FreezeIntent {
    /// The process that wrote it, in this process' /proc, can still thaw.
    pub fn is_writer_alive(&self) -> bool {
        process_start_time(self.pid) == Some(self.started)
    }
}

/// When a process was started, in ticks after boot. None if it does not exist, or only waits to be
/// reaped: its descriptors are closed.
pub fn process_start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; `state` is field 3, `starttime` field 22
    // (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The id of the running boot.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn is_in_memory(directory: &Path) -> io::Result<bool> {
    let kind: FsType = statfs(directory)?.filesystem_type();
    // The type of the constant differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let ramfs = kind.0 as i64 == RAMFS_MAGIC;
    Ok(kind == TMPFS_MAGIC || ramfs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(pid: u32, started: u64) -> FreezeIntent {
        let (mount, dev) = (HostPath::from("/a b\n"), DevNo::new(7, 3));
        FreezeIntent { stage: Stage::Freezing, mount, dev, pid, started, boot_id: "b".into() }
    }

    fn memory() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").expect("a folder in memory")
    }

    #[test]
    fn an_intent_reads_back_before_and_after_it_is_marked_frozen() {
        let dir = memory();
        let intent = intent(1, 2);
        let noted = IntentFile::create(&dir.path().join("freeze"), "c1", &intent).expect("written");
        let found = |stage| {
            let found = find(&dir.path().join("freeze")).expect("readable");
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].intent, Some(FreezeIntent { stage, ..intent.clone() }));
        };
        found(Stage::Freezing);
        noted.mark_frozen().expect("marked");
        found(Stage::Frozen);
        noted.remove().expect("removed");
        assert!(find(&dir.path().join("freeze")).expect("readable").is_empty());
    }

    #[test]
    fn a_missing_directory_is_empty_and_junk_is_an_unreadable_intent() {
        let dir = memory();
        assert!(find(&dir.path().join("none")).expect("readable").is_empty());
        std::fs::write(dir.path().join("x.json"), "{").expect("written");
        std::fs::write(dir.path().join(".draft"), "{").expect("written");
        let found = find(dir.path()).expect("readable");
        assert_eq!(found.len(), 1);
        assert!(found[0].intent.is_none());
    }

    #[test]
    fn a_directory_on_a_disk_is_refused() {
        // /proc is certainly no tmpfs.
        let refused = IntentFile::create(Path::new("/proc/self"), "c", &intent(1, 2));
        assert!(matches!(refused, Err(IntentError::NotInMemory(_))), "{refused:?}");
    }

    #[test]
    fn a_writer_is_identified_by_pid_and_start_time() {
        let own = std::process::id();
        let started = process_start_time(own).expect("we live");
        assert!(intent(own, started).is_writer_alive());
        assert!(!intent(own, started + 1).is_writer_alive());
        assert!(!intent(u32::MAX, 1).is_writer_alive());
    }
}
