//! The pool's directory: its free space, and the records beside the images.
//!
//! A file is written completely under another name, synced, renamed, and its directory synced:
//! after a crash the old or the new file exists.

use std::fs::{DirBuilder, File};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statvfs::statvfs;

use crate::step::{PoolCapacity, RecordFile, StepErrorKind};
use crate::worker::error::{StepWorkerError, io_error};
use diskvitals_finding::path::HostPath;

const SUFFIX: &str = ".json";
/// A record has a few hundred bytes; a longer file is no record.
const MAX_RECORD_BYTES: u64 = 1 << 20;

pub fn capacity(folder: &HostPath) -> Result<PoolCapacity, StepWorkerError> {
    let stat = statvfs(folder.as_path()).map_err(io_error("reading the free space of", folder))?;
    let unit = stat.fragment_size();
    Ok(PoolCapacity {
        total: stat.blocks().saturating_mul(unit),
        available: stat.blocks_available().saturating_mul(unit),
        unit,
        physical_volumes: Vec::new(),
    })
}

/// The records, sorted by name. Drafts of interrupted writes are not records; the next write of the
/// same name replaces them.
pub fn read(folder: &HostPath) -> Result<Vec<RecordFile>, StepWorkerError> {
    let listing = io_error("listing", folder);
    let entries = match std::fs::read_dir(folder.as_path()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(listing(error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let entry = entry.map_err(&listing)?;
        // The names of records are valid UTF-8.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.ends_with(SUFFIX) && !name.starts_with('.') {
            let text = read_text(&entry.path())
                .map_err(|error| format!("reading {}: {error}", entry.path().display()));
            records.push(RecordFile { name, text });
        }
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

fn read_text(path: &Path) -> io::Result<String> {
    // The open follows no link and does not wait for a pipe.
    let file =
        File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_RECORD_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{size} bytes are too many for a record"),
        ));
    }
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

pub fn write(folder: &HostPath, name: &str, text: &str) -> Result<(), StepWorkerError> {
    let path = record_path(folder, name)?;
    create_directory(folder)?;
    let draft = folder.as_path().join(format!(".{name}.draft"));
    let failed = |doing| io_error::<io::Error>(doing, &path.display());
    // An earlier draft is removed, not reused, because it could be a link.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("clearing the draft of")(error));
        }
        _ => {}
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .map_err(failed("making the draft of"))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // A full disk must not keep half a record. A draft that cannot be removed is not a record.
        std::fs::remove_file(&draft).ok();
        return Err(failed("writing")(error));
    }
    std::fs::rename(&draft, &path).map_err(failed("naming"))?;
    sync_directory(folder)
}

pub fn remove(folder: &HostPath, name: &str) -> Result<(), StepWorkerError> {
    let path = record_path(folder, name)?;
    match std::fs::remove_file(&path) {
        Ok(()) => sync_directory(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("removing", &path.display())(error)),
    }
}

/// Does not create missing parents: a pool whose disk is not mounted must not be created on the
/// disk below.
pub fn create_directory(folder: &HostPath) -> Result<(), StepWorkerError> {
    match DirBuilder::new().mode(0o700).create(folder.as_path()) {
        Ok(()) => match folder.as_path().parent() {
            Some(parent) => sync_directory(&HostPath::from(parent)),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StepWorkerError::io(format!("making {folder}"), error)),
    }
}

/// Writes the directory's entries to disk.
pub(crate) fn sync_directory(folder: &HostPath) -> Result<(), StepWorkerError> {
    File::open(folder.as_path())
        .and_then(|folder| folder.sync_all())
        .map_err(io_error("synchronising", folder))
}

/// The path of a record. The name must be a plain file name that `read` lists.
fn record_path(folder: &HostPath, name: &str) -> Result<PathBuf, StepWorkerError> {
    if name.contains(['/', '\0']) || name.starts_with('.') || !name.ends_with(SUFFIX) {
        return Err(StepErrorKind::InvalidPath
            .error(format!("`{}` is no name of a record", name.escape_debug())));
    }
    Ok(folder.as_path().join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, HostPath) {
        let dir = tempfile::tempdir().unwrap();
        let folder = HostPath::from(dir.path().join("pool").as_path());
        (dir, folder)
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_the_later_one_holds() {
        let (_dir, folder) = folder();
        assert_eq!(read(&folder).unwrap(), []);
        write(&folder, "b.json", "2").unwrap();
        write(&folder, "a.json", "old").unwrap();
        write(&folder, "a.json", "1").unwrap();
        let record =
            |name: &str, text: &str| RecordFile { name: name.into(), text: Ok(text.into()) };
        assert_eq!(read(&folder).unwrap(), [record("a.json", "1"), record("b.json", "2")]);
        remove(&folder, "a.json").unwrap();
        remove(&folder, "a.json").unwrap();
        assert_eq!(read(&folder).unwrap(), [record("b.json", "2")]);
    }

    #[test]
    fn the_temporary_file_of_an_interrupted_write_is_no_record_and_does_not_block_the_next() {
        let (_dir, folder) = folder();
        write(&folder, "a.json", "1").unwrap();
        std::fs::write(folder.as_path().join(".a.json.draft"), "hal").unwrap();
        assert_eq!(read(&folder).unwrap().len(), 1);
        write(&folder, "a.json", "2").unwrap();
        assert_eq!(read(&folder).unwrap()[0].text, Ok("2".into()));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let (_dir, folder) = folder();
        for name in ["../a.json", "a/b.json", ".a.json", "a", "", "a\0.json"] {
            assert_eq!(
                write(&folder, name, "").unwrap_err().kind,
                StepErrorKind::InvalidPath,
                "{name:?}"
            );
            assert_eq!(
                remove(&folder, name).unwrap_err().kind,
                StepErrorKind::InvalidPath,
                "{name:?}"
            );
        }
    }

    #[test]
    fn an_unreadable_record_has_an_error_and_the_others_are_listed() {
        let (_dir, folder) = folder();
        write(&folder, "a.json", "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.as_path().join("b.json")).unwrap();
        let records = read(&folder).unwrap();
        assert!(records[0].text.is_ok() && records[1].text.is_err(), "{records:?}");
    }

    #[test]
    fn a_folder_whose_parent_is_missing_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let folder = HostPath::from(dir.path().join("mnt/pool").as_path());
        assert_eq!(write(&folder, "a.json", "").unwrap_err().kind, StepErrorKind::NotFound);
    }
}
