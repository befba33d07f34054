//! One probe of a mounted volume: statfs(2), and one read of its top directory. It changes no
//! atime, and keeps no descriptor and no working directory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;

use crate::host::clock::monotonic;
use crate::host::freeze::OpenMount;
use crate::host::root::HostRoot;
use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::model::probe::{MountProbe, ProbeError, Usage};

pub(crate) fn probe(path: &HostPath) -> MountProbe {
    MountProbe {
        statfs: usage(path),
        readdir: read_directory(path),
    }
}

/// As in statvfs(3): the available space is that for unprivileged users.
fn usage(path: &HostPath) -> Result<Usage, ProbeError> {
    let answer = statvfs(path.as_path()).map_err(|errno| probe_error("statfs", errno))?;
    let unit = answer.fragment_size();
    let total_inodes = answer.files();
    Ok(Usage {
        total_bytes: answer.blocks().saturating_mul(unit),
        available_bytes: answer.blocks_available().saturating_mul(unit),
        used_bytes: answer
            .blocks()
            .saturating_sub(answer.blocks_free())
            .saturating_mul(unit),
        total_inodes,
        available_inodes: answer.files_available(),
        used_inodes: total_inodes.saturating_sub(answer.files_free()),
    })
}

/// Opens the directory and reads its first entries. A mount of one file (a bind mount) is opened
/// and not read.
fn read_directory(path: &HostPath) -> Result<(), ProbeError> {
    let plain = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let open = |flags| open(path.as_path(), plain | flags, Mode::empty());
    let opened = match open(OFlag::O_DIRECTORY | OFlag::O_NOATIME) {
        Ok(directory) => return first_entry(directory),
        Err(Errno::ENOTDIR) => open(OFlag::empty()),
        // Not the owner, and no permission for O_NOATIME: only opening changes nothing.
        Err(Errno::EPERM) => open(OFlag::O_DIRECTORY),
        Err(errno) => Err(errno),
    };
    opened.map(drop).map_err(|errno| probe_error("open", errno))
}

fn first_entry(directory: OwnedFd) -> Result<(), ProbeError> {
    let mut entries =
        nix::dir::Dir::from_fd(directory).map_err(|errno| probe_error("open", errno))?;
    match entries.iter().next() {
        Some(Err(errno)) => Err(probe_error("readdir", errno)),
        // Even an empty directory has `.`; one without it is unusual, but readable.
        Some(Ok(_)) | None => Ok(()),
    }
}

fn probe_error(operation: &str, errno: Errno) -> ProbeError {
    ProbeError {
        operation: operation.into(),
        errno: errno as i32,
        text: format!("{} ({errno:?})", errno.desc()),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Open(#[from] crate::host::freeze::FreezeError),
    #[error("another filesystem than {dev} is mounted at {path}")]
    DifferentFilesystem { path: HostPath, dev: DevNo },
    #[error("writing out the filesystem at {path}: {errno}")]
    Sync { path: HostPath, errno: Errno },
}

/// Measures the duration of syncfs(2).
pub(crate) fn sync(path: &HostPath, dev: DevNo) -> Result<Duration, SyncError> {
    let mounted = OpenMount::open(path)?;
    if !mounted.has_dev(dev) {
        return Err(SyncError::DifferentFilesystem {
            path: path.clone(),
            dev,
        });
    }
    let began = monotonic();
    mounted.sync().map_err(|errno| SyncError::Sync {
        path: path.clone(),
        errno,
    })?;
    Ok(monotonic().saturating_sub(began))
}

/// The answers of a recorded tree: `exec/probes.json`, by mount point.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum RecordedProbe {
    Hang { hang: bool },
    Error { errno: i32, operation: String },
    Response { statfs: Usage },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    #[error("reading exec/probes.json of the recorded tree")]
    Read(#[source] std::io::Error),
    #[error("understanding exec/probes.json of the recorded tree")]
    Parse(#[source] serde_json::Error),
}

pub(crate) fn recorded_probe(
    root: &HostRoot,
    path: &HostPath,
) -> Result<MountProbe, RecordingError> {
    let answers = read_recording(root)?;
    Ok(match answers.get(&path.to_string()) {
        Some(RecordedProbe::Hang { hang: true }) => hang(),
        Some(RecordedProbe::Response { statfs }) => MountProbe {
            statfs: Ok(*statfs),
            readdir: Ok(()),
        },
        Some(RecordedProbe::Error { errno, operation }) => {
            let failure = probe_error(operation, Errno::from_raw(*errno));
            let statfs = if operation == "statfs" {
                Err(failure.clone())
            } else {
                Ok(Usage::default())
            };
            MountProbe {
                statfs,
                readdir: Err(failure),
            }
        }
        Some(RecordedProbe::Hang { hang: false }) | None => {
            let failure = probe_error("statfs", Errno::ENOENT);
            MountProbe {
                statfs: Err(failure.clone()),
                readdir: Err(failure),
            }
        }
    })
}

type Recording = Arc<BTreeMap<String, RecordedProbe>>;

/// Reads the recording each time: a test may change it.
fn read_recording(root: &HostRoot) -> Result<Recording, RecordingError> {
    static READ: Mutex<Option<(SystemTime, Recording)>> = Mutex::new(None);
    const FILE: &str = "/exec/probes.json";
    let changed = std::fs::metadata(root.at(FILE))
        .and_then(|file| file.modified())
        .map_err(RecordingError::Read)?;
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    match &*read {
        Some((at, answers)) if *at == changed => Ok(answers.clone()),
        _ => {
            let text = root.read(FILE).map_err(RecordingError::Read)?;
            let answers: Recording =
                Arc::new(serde_json::from_slice(&text).map_err(RecordingError::Parse)?);
            *read = Some((changed, answers.clone()));
            Ok(answers)
        }
    }
}

/// Simulates a process that is blocked in the kernel: ends with the daemon, or by SIGKILL.
fn hang() -> MountProbe {
    let mut line = [0; 1];
    // The daemon sends nothing to a stuck worker; the end of the pipe ends this process.
    while matches!(nix::unistd::read(std::io::stdin(), &mut line), Ok(1..)) {}
    std::process::exit(0)
}
