//! The pool's folder: its room, and the small files beside the images that tell what they are.
//!
//! A file is written whole under another name, synchronised, renamed, and its folder synchronised:
//! after a crash there is the old one or the new one.

use std::fs::{DirBuilder, File};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statvfs::statvfs;

use crate::attach::step::{Record, Room, Trouble};
use crate::attach::worker::failure::Failure;
use crate::model::path::HostPath;

const SUFFIX: &str = ".json";
/// A record is a few hundred bytes; what is longer is none of ours.
const LONGEST: u64 = 1 << 20;

pub fn room(folder: &HostPath) -> Result<Room, Failure> {
    let told = statvfs(folder.as_path())
        .map_err(|errno| Failure::io(format!("asking for the room in {folder}"), errno))?;
    let unit = told.fragment_size();
    Ok(Room {
        total: told.blocks().saturating_mul(unit),
        available: told.blocks_available().saturating_mul(unit),
        unit,
    })
}

/// By name. Drafts of writes that were cut off are no records; the next write of the same name
/// takes their place.
pub fn read(folder: &HostPath) -> Result<Vec<Record>, Failure> {
    let listing = |error: io::Error| Failure::io(format!("listing {folder}"), error);
    let entries = match std::fs::read_dir(folder.as_path()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(listing(error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let entry = entry.map_err(listing)?;
        // Names of ours are plain; one that is not text is not ours.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.ends_with(SUFFIX) && !name.starts_with('.') {
            let text = text_of(&entry.path())
                .map_err(|error| format!("reading {}: {error}", entry.path().display()));
            records.push(Record { name, text });
        }
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

fn text_of(path: &Path) -> io::Result<String> {
    // A link or a pipe in its place is not followed and not waited for.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let size = file.metadata()?.len();
    if size > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{size} bytes are no record of ours"),
        ));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

pub fn write(folder: &HostPath, name: &str, text: &str) -> Result<(), Failure> {
    let path = path_of(folder, name)?;
    make_folder(folder)?;
    let draft = folder.as_path().join(format!(".{name}.draft"));
    let failed = |doing: &'static str| {
        let path = path.display().to_string();
        move |error: io::Error| Failure::io(format!("{doing} {path}"), error)
    };
    // What an earlier write left there is removed, not written into: it could be a link.
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
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        // A full disk should not keep half a record; what cannot be removed is no record either.
        std::fs::remove_file(&draft).ok();
        return Err(failed("writing")(error));
    }
    std::fs::rename(&draft, &path).map_err(failed("giving its name to"))?;
    synchronise(folder)
}

pub fn remove(folder: &HostPath, name: &str) -> Result<(), Failure> {
    let path = path_of(folder, name)?;
    match std::fs::remove_file(&path) {
        Ok(()) => synchronise(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::io(format!("removing {}", path.display()), error)),
    }
}

/// Without parents that are missing: a pool on a disk that is not mounted must not come into being
/// on the one below.
pub fn make_folder(folder: &HostPath) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o700).create(folder.as_path()) {
        Ok(()) => match folder.as_path().parent() {
            Some(parent) => synchronise(&HostPath::from(parent)),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Failure::io(format!("making {folder}"), error)),
    }
}

/// Names in it are on disk when this returns.
pub fn synchronise(folder: &HostPath) -> Result<(), Failure> {
    File::open(folder.as_path())
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Failure::io(format!("synchronising {folder}"), error))
}

/// A name is a name: nothing that leads elsewhere, or that would not be found again.
fn path_of(folder: &HostPath, name: &str) -> Result<PathBuf, Failure> {
    if name.contains(['/', '\0']) || name.starts_with('.') || !name.ends_with(SUFFIX) {
        return Err(Failure::new(
            Trouble::Path,
            format!("`{}` is no name of a record", name.escape_debug()),
        ));
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
        let record = |name: &str, text: &str| Record {
            name: name.into(),
            text: Ok(text.into()),
        };
        assert_eq!(
            read(&folder).unwrap(),
            [record("a.json", "1"), record("b.json", "2")]
        );
        remove(&folder, "a.json").unwrap();
        remove(&folder, "a.json").unwrap();
        assert_eq!(read(&folder).unwrap(), [record("b.json", "2")]);
    }

    #[test]
    fn a_draft_of_a_write_that_was_cut_off_is_no_record_and_in_nobodys_way() {
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
                Trouble::Path,
                "{name:?}"
            );
            assert_eq!(
                remove(&folder, name).unwrap_err().kind,
                Trouble::Path,
                "{name:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_others_are_there() {
        let (_dir, folder) = folder();
        write(&folder, "a.json", "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.as_path().join("b.json")).unwrap();
        let records = read(&folder).unwrap();
        assert!(
            records[0].text.is_ok() && records[1].text.is_err(),
            "{records:?}"
        );
    }

    #[test]
    fn a_folder_whose_parent_is_missing_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let folder = HostPath::from(dir.path().join("mnt/pool").as_path());
        assert_eq!(
            write(&folder, "a.json", "").unwrap_err().kind,
            Trouble::NotFound
        );
    }
}
