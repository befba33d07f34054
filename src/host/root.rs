//! The paths of the host's /proc, /sys, /dev, /run, /etc and /var: below `/`, the mount of a
//! DaemonSet, or a recorded tree.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use diskvitals_finding::path::HostPath;

/// The host's root directory. All host files are read through it, so that tests can use a recorded
/// tree.
#[derive(Clone, Debug)]
pub struct HostRoot {
    dir: PathBuf,
    recorded: bool,
}

impl HostRoot {
    /// A tree with a directory `exec` and without `/proc/1/ns` is a recording: workers answer from
    /// `exec/` instead of querying a kernel, and there are no events. No live host has both.
    pub fn new(dir: impl Into<PathBuf>) -> HostRoot {
        let dir = dir.into();
        let recorded = dir.join("exec").is_dir() && !dir.join("proc/1/ns").exists();
        HostRoot { dir, recorded }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// The local path of `path`, an absolute path on the host.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.dir.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub fn at_host_path(&self, path: &HostPath) -> PathBuf {
        self.at(path.as_path())
    }

    /// Whether `path`, a device node, is the same device here and below the host's root. Nodes are
    /// never opened.
    pub fn is_same_device(&self, path: impl AsRef<Path>) -> bool {
        let number = |path: &Path| {
            std::fs::metadata(path)
                .ok()
                .map(|data| (data.file_type().is_block_device(), data.rdev()))
        };
        let (ours, theirs) = (number(path.as_ref()), number(&self.at(path.as_ref())));
        ours.is_some() && ours == theirs
    }

    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        std::fs::read(self.at(path))
    }
}
