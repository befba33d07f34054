//! Reads a support bundle, which may come from anywhere: cut short, changed, of another version, or no
//! bundle at all.
//!
//! In: a file. Out: `Answers`, with what is missing. Nothing is unpacked to disk: only files with known
//! names are read, in memory, and each within limits.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::answers::Answers;
use crate::bundle::contents::{
    self, AnswerFile, FORMAT, KERNEL_LOG, KIND, MANIFEST, Manifest, SMARTCTL,
};
use diskvitals_wire as wire;

/// Limits of what is read: a bundle of 256 drives and 5,000 volumes has 40 MiB.
const MAX_ENTRIES: usize = 10_000;
const MAX_ENTRY_BYTES: u64 = 128 << 20;
const MAX_BYTES: u64 = 512 << 20;
const MAX_MISSING: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("reading {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is no support bundle: it {what}. `diskvitals bundle FILE` writes one", path.display())]
    NoBundle { path: PathBuf, what: String },
}

pub fn read(path: &Path) -> Result<Answers, ReadError> {
    let open = |source| ReadError::Open { path: path.to_owned(), source };
    let input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(open)?),
    };
    let mut input = BufReader::new(input);
    let start = input.fill_buf().map_err(open)?;
    if let Some(what) = not_gzip(start) {
        return Err(ReadError::NoBundle { path: path.to_owned(), what: what.to_owned() });
    }
    from_gzip(input).map_err(|what| ReadError::NoBundle { path: path.to_owned(), what })
}

/// What the file is instead.
fn not_gzip(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => None,
        [] => Some("is empty"),
        [b'P', b'K', ..] => Some("is a ZIP archive"),
        [b'{' | b'[', ..] => Some("is JSON, perhaps one file of a bundle"),
        [b'<', ..] => Some("is HTML or XML, perhaps a report"),
        [0xfd, b'7', b'z', ..] | [b'B', b'Z', b'h', ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Some("is compressed, but not with gzip")
        }
        start if start.get(257..262) == Some(b"ustar") => {
            Some("is a tar archive without compression: compress it with gzip")
        }
        _ => Some("is not compressed with gzip"),
    }
}

/// The bundle as far as it can be read. The error: what the file is instead.
pub(super) fn from_gzip(input: impl BufRead) -> Result<Answers, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(input).take(MAX_BYTES));
    let entries = archive.entries().map_err(|error| format!("cannot be unpacked ({error})"))?;
    let mut reading = Reading::default();
    let mut cut = None;
    for (at, entry) in entries.enumerate() {
        if at >= MAX_ENTRIES {
            cut = Some(format!("it has more than {MAX_ENTRIES} files"));
            break;
        }
        let end = entry.and_then(|mut entry| reading.add(&mut entry));
        match end {
            Ok(()) => {}
            Err(_) if reading.manifest.is_none() => break,
            Err(error) => {
                cut = Some(error.to_string());
                break;
            }
        }
    }
    reading.finish(cut)
}

#[derive(Default)]
struct Reading {
    manifest: Option<Manifest>,
    /// The folder of all files with its slash; empty in bundles of older versions.
    folder: String,
    answers: Answers,
    /// Names of the files that were read completely.
    read: Vec<String>,
    gaps: Vec<String>,
    lost: Vec<&'static str>,
    unknown_files: usize,
}

impl Reading {
    /// The error: the archive ends here, or is damaged.
    fn add(&mut self, entry: &mut tar::Entry<impl Read>) -> io::Result<()> {
        if entry.header().entry_type().is_dir() {
            return Ok(());
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if self.manifest.is_none()
            && let Some(folder) = path.strip_suffix(MANIFEST)
            && folder.ends_with('/')
            && folder.matches('/').count() == 1
        {
            folder.clone_into(&mut self.folder);
        }
        let name = path.strip_prefix(&self.folder).unwrap_or(&path).to_owned();
        let size = entry.header().size()?;
        if self.manifest.is_none() && name != MANIFEST {
            return Err(io::Error::other("the manifest is not the first file"));
        }
        if size > MAX_ENTRY_BYTES {
            return Err(io::Error::other(format!(
                "one of its files has more than {} MiB",
                MAX_ENTRY_BYTES >> 20
            )));
        }
        let file = AnswerFile::ALL.into_iter().find(|file| file.name() == name);
        let is_known = file.is_some() || name == MANIFEST;
        let is_other = name == KERNEL_LOG || name.starts_with(SMARTCTL);
        let mut bytes = Vec::new();
        let length = match is_known {
            true => entry.read_to_end(&mut bytes)? as u64,
            false => io::copy(entry, &mut io::sink())?,
        };
        if length < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if name == MANIFEST {
            self.manifest = Some(manifest(&bytes)?);
        } else if let Some(file) = file {
            let lost = match serde_json::from_slice(&bytes) {
                Ok(value) => contents::add_json(&mut self.answers, file, value),
                Err(_) => 1,
            };
            if lost > 0 {
                let gap = format!("{}: {lost} entries of {name} cannot be read", file.title());
                self.gaps.push(gap);
                self.lost.push(file.title());
            }
        } else if !is_other {
            self.unknown_files += 1;
        }
        self.read.push(name);
        Ok(())
    }

    fn finish(self, cut: Option<String>) -> Result<Answers, String> {
        let Some(manifest) = self.manifest else {
            return Err(
                "is compressed, but contains no complete manifest.json at its start".to_owned()
            );
        };
        let mut answers = self.answers;
        // A value that only a newer daemon defines is not good.
        let drives = answers.drives.iter_mut().map(|drive| &mut drive.health);
        let volumes = answers.volumes.iter_mut().map(|volume| &mut volume.health);
        for health in drives.chain(volumes) {
            if *health == wire::Health::Unspecified as i32 {
                *health = wire::Health::Unknown.into();
            }
        }
        answers.lost = self.lost;
        answers.version = manifest.diskvitals;
        answers.redacted = manifest.redacted;
        answers.taken = manifest.time.parse().unwrap_or_default();
        if answers.node.name.is_empty() {
            answers.node.name = manifest.host;
        }
        let mut gaps = Vec::new();
        if manifest.format > FORMAT {
            gaps.push(format!(
                "this bundle has a newer format ({}, by diskvitals {}) than this program knows ({FORMAT}): it may contain more, or mean something else",
                manifest.format, answers.version
            ));
        }
        if let Some(why) = cut {
            gaps.push(format!("this bundle is cut short or damaged: {why}"));
        }
        let missing = |name: &&str| !self.read.iter().any(|read| read == name);
        let listed: Vec<&str> = manifest.files.iter().map(String::as_str).collect();
        let lost: Vec<&str> = listed.iter().copied().filter(missing).collect();
        for file in AnswerFile::ALL {
            if lost.contains(&file.name()) {
                gaps.push(format!("{}: {} is missing in the bundle", file.title(), file.name()));
                answers.lost.push(file.title());
            }
        }
        let others = lost.iter().filter(|name| {
            let answer = AnswerFile::ALL.iter().any(|file| file.name() == **name);
            !answer
        });
        match others.count() {
            0 => {}
            count => gaps.push(format!("{count} other files are missing in the bundle")),
        }
        if self.unknown_files > 0 {
            gaps.push(format!(
                "{} files in the bundle are unknown to this version and were skipped",
                self.unknown_files
            ));
        }
        gaps.extend(self.gaps);
        gaps.extend(manifest.missing.into_iter().take(MAX_MISSING));
        answers.gaps = gaps;
        Ok(answers)
    }
}

fn manifest(bytes: &[u8]) -> io::Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(io::Error::other)?;
    match manifest.kind == KIND {
        true => Ok(manifest),
        false => Err(io::Error::other("another program's manifest")),
    }
}
