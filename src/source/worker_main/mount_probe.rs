//! One probe of a mounted volume: statfs(2), one read of its top directory, the mount's unique id, and
//! what a btrfs can allocate. It changes no atime, and keeps no descriptor and no working directory.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;

use diskvitals_finding::btrfs_space::BtrfsSpace;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::{self, Mount};
use diskvitals_finding::path::HostPath;
use diskvitals_host::btrfs;
use diskvitals_host::clock::monotonic;
use diskvitals_host::freeze::OpenMount;
use diskvitals_host::mounting::{mount_id, unique_mount_id};
use diskvitals_host::root::HostRoot;
use diskvitals_model::probe::{MountProbe, ProbeError, Usage};

#[derive(Debug, thiserror::Error)]
pub enum ProbeJobError {
    #[error("finding what is mounted at {path}")]
    Identify {
        path: HostPath,
        #[source]
        source: io::Error,
    },
    /// The path leads to another filesystem, often the one beneath. Its answer is not the volume's.
    #[error("{path} is not mounted where volumes are probed (a mount namespace of its own)")]
    NotMounted { path: HostPath },
}

/// `id` and `dev` are the mount's in the host's mountinfo.
pub fn probe(
    path: &HostPath,
    id: u32,
    dev: DevNo,
    is_btrfs: bool,
) -> Result<MountProbe, ProbeJobError> {
    // Queries nothing and changes no atime: an automount is not triggered, a dead server not asked.
    let opened = open(path.as_path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    let place = match opened {
        Ok(place) => place,
        Err(errno) => {
            let error = probe_error("open", errno);
            return Ok(MountProbe {
                statfs: Err(error.clone()),
                readdir: Err(error),
                btrfs: None,
                mount_id: None,
            });
        }
    };
    let is_it = is_mount(&place, path, id, dev)
        .map_err(|source| ProbeJobError::Identify { path: path.clone(), source })?;
    if !is_it {
        return Err(ProbeJobError::NotMounted { path: path.clone() });
    }
    Ok(MountProbe {
        statfs: usage(&place),
        readdir: read_directory(&place),
        btrfs: is_btrfs.then(|| btrfs_space(&place)).flatten(),
        mount_id: unique_mount_id(place.as_fd()),
    })
}

/// None for a mount of one file, and where the kernel does not answer: then statfs alone counts.
fn btrfs_space(place: &OwnedFd) -> Option<Box<BtrfsSpace>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOATIME | OFlag::O_CLOEXEC;
    let directory = openat(place, ".", flags, Mode::empty()).ok()?;
    btrfs::space(directory.as_fd()).ok().map(Box::new)
}

/// Mount ids are unique among all mount namespaces. Only a namespace of its own, or a mount that was
/// replaced, needs a look into the table, whose reading can wait for a mount(2) that hangs.
fn is_mount(place: &OwnedFd, path: &HostPath, id: u32, dev: DevNo) -> io::Result<bool> {
    let opened = mount_id(place.as_fd())?;
    if opened == id {
        return Ok(true);
    }
    let table = std::fs::read("/proc/self/mountinfo")?;
    let prefix = format!("{opened} ");
    let mut lines = table.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.starts_with(prefix.as_bytes()));
    let (mounts, _) = mount::parse(line.unwrap_or_default());
    // stat(2) returns the number of a btrfs subvolume, mountinfo that of the filesystem.
    let is_it = |mount: &Mount| mount.mount_point == *path && mount.dev == dev;
    Ok(mounts.first().is_some_and(is_it))
}

/// As in statvfs(3): the available space is that for unprivileged users.
fn usage(place: &OwnedFd) -> Result<Usage, ProbeError> {
    let answer = fstatvfs(place).map_err(|errno| probe_error("statfs", errno))?;
    let unit = answer.fragment_size();
    let total_inodes = answer.files();
    Ok(Usage {
        total_bytes: answer.blocks().saturating_mul(unit),
        available_bytes: answer.blocks_available().saturating_mul(unit),
        used_bytes: answer.blocks().saturating_sub(answer.blocks_free()).saturating_mul(unit),
        total_inodes,
        available_inodes: answer.files_available(),
        used_inodes: total_inodes.saturating_sub(answer.files_free()),
    })
}

/// Opens the directory and reads its first entries. A mount of one file (a bind mount) is opened
/// and not read.
fn read_directory(place: &OwnedFd) -> Result<(), ProbeError> {
    let plain = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let directory = |flags| openat(place, ".", plain | OFlag::O_DIRECTORY | flags, Mode::empty());
    let opened = match directory(OFlag::O_NOATIME) {
        Ok(directory) => return first_entry(directory),
        Err(Errno::ENOTDIR) => {
            let link = format!("/proc/self/fd/{}", place.as_raw_fd());
            open(link.as_str(), plain, Mode::empty())
        }
        // Not the owner, and no permission for O_NOATIME: only opening changes nothing.
        Err(Errno::EPERM) => directory(OFlag::empty()),
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
pub enum SyncError {
    #[error(transparent)]
    Open(#[from] diskvitals_host::freeze::FreezeError),
    #[error("another filesystem than {dev} is mounted at {path}")]
    DifferentFilesystem { path: HostPath, dev: DevNo },
    #[error("writing out the filesystem at {path}: {errno}")]
    Sync { path: HostPath, errno: Errno },
}

/// Measures the duration of syncfs(2).
pub fn sync(path: &HostPath, dev: DevNo) -> Result<Duration, SyncError> {
    let mounted = OpenMount::open(path)?;
    if !mounted.has_dev(dev) {
        return Err(SyncError::DifferentFilesystem { path: path.clone(), dev });
    }
    let began = monotonic();
    mounted.sync().map_err(|errno| SyncError::Sync { path: path.clone(), errno })?;
    Ok(monotonic().saturating_sub(began))
}

/// The answers of a recorded tree: `exec/probes.json`, by mount point.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum RecordedProbe {
    Hang {
        hang: bool,
    },
    Error {
        errno: i32,
        operation: String,
    },
    Response {
        statfs: Usage,
        #[serde(default)]
        btrfs: Option<Box<BtrfsSpace>>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
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
        Some(RecordedProbe::Response { statfs, btrfs }) => MountProbe {
            statfs: Ok(*statfs),
            readdir: Ok(()),
            btrfs: btrfs.clone(),
            mount_id: None,
        },
        Some(RecordedProbe::Error { errno, operation }) => {
            let failure = probe_error(operation, Errno::from_raw(*errno));
            let statfs =
                if operation == "statfs" { Err(failure.clone()) } else { Ok(Usage::default()) };
            MountProbe { statfs, readdir: Err(failure), btrfs: None, mount_id: None }
        }
        Some(RecordedProbe::Hang { hang: false }) | None => {
            let failure = probe_error("statfs", Errno::ENOENT);
            MountProbe {
                statfs: Err(failure.clone()),
                readdir: Err(failure),
                btrfs: None,
                mount_id: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own_mount(path: &str) -> Mount {
        let table = std::fs::read("/proc/self/mountinfo").expect("readable");
        let (mounts, _) = mount::parse(&table);
        let mut mounts = mounts.into_iter();
        let found = mounts.rfind(|mount| mount.mount_point == HostPath::from(path));
        found.expect("mounted")
    }

    #[test]
    fn a_mount_is_known_by_its_id_or_by_the_own_table() {
        let proc = own_mount("/proc");
        let path = HostPath::from("/proc");
        let answer = probe(&path, proc.id, proc.dev, false).expect("mounted");
        assert_eq!(answer.readdir, Ok(()));
        let again = probe(&path, proc.id, proc.dev, false).expect("mounted");
        assert_eq!(answer.mount_id, again.mount_id);
        // The id is another one in a mount namespace of its own.
        assert!(probe(&path, u32::MAX, proc.dev, false).is_ok());
        let other = DevNo::new(8, 1);
        assert!(matches!(
            probe(&path, u32::MAX, other, false),
            Err(ProbeJobError::NotMounted { .. })
        ));
    }

    #[test]
    fn the_filesystem_beneath_a_path_does_not_answer_for_it() {
        let proc = own_mount("/proc");
        let folder = HostPath::from("/proc/sys");
        assert!(matches!(
            probe(&folder, u32::MAX, proc.dev, false),
            Err(ProbeJobError::NotMounted { .. })
        ));
        let gone = probe(&HostPath::from("/nonexistent"), 1, proc.dev, false).expect("an answer");
        assert_eq!(gone.statfs.expect_err("nothing there").errno, 2);
    }

    #[test]
    fn a_mount_of_one_file_is_opened_and_not_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let place = open(file.path(), OFlag::O_PATH, Mode::empty()).expect("opened");
        assert_eq!(read_directory(&place), Ok(()));
    }
}
