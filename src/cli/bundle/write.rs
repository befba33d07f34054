//! Writes the archive of a bundle, and files as a whole: no reader sees a part of one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::bundle::Part;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("a bundle is not written to a terminal: redirect standard output, or name a file")]
    Terminal,
    #[error("{} exists already: give another name, or --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error("{operation} {}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("packing the bundle")]
    Archive(#[source] io::Error),
    #[error("writing the bundle's manifest")]
    Manifest(#[source] serde_json::Error),
}

/// All files are in one folder: unpacking leaves nothing beside it.
pub(super) fn archive(folder: &str, parts: &[Part]) -> io::Result<Vec<u8>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut archive = tar::Builder::new(encoder);
    let time = super::now();
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(time);
        let path = format!("{folder}/{}", part.name);
        archive.append_data(&mut header, path, part.bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

pub(super) fn check_absent(path: &Path) -> Result<(), WriteError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => {
            Err(WriteError::File { operation: "looking for", path: path.to_owned(), source })
        }
        Ok(_) => Err(WriteError::Exists(path.to_owned())),
    }
}

/// Writes a temporary file beside `path` and renames it. `mode`: otherwise as the umask says.
pub(crate) fn write_file(
    path: &Path,
    bytes: &[u8],
    mode: Option<u32>,
    replace: bool,
) -> Result<(), WriteError> {
    let failed =
        |operation| move |source| WriteError::File { operation, path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| {
        failed("writing")(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))
    })?;
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(temporary_name);
    let written = create(&temporary, mode)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .map_err(failed("writing"))
        .and_then(|()| match rename(&temporary, path, replace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(WriteError::Exists(path.to_owned()))
            }
            renamed => renamed.map_err(failed("renaming the temporary file to")),
        });
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn create(path: &Path, mode: Option<u32>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(path)
}

fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return std::fs::rename(from, to);
    }
    // Not renameat2, which nix has with glibc alone: the static program has musl.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        // A filesystem without links: the file was absent a moment ago.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) =>
        {
            std::fs::rename(from, to)
        }
        Err(error) => Err(error),
    }
}
