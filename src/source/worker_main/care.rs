//! Starts a check of an md array, or a scrub of a ZFS pool or a btrfs, and ends when that has begun.
//!
//! md's and ZFS's run in the kernel. One of btrfs is a process, which must outlive the daemon: it is in a
//! control group and a process group of its own. Runs in the host's mount namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::lvm::refused;
use crate::zpool;
use diskvitals_finding::path::HostPath;
use diskvitals_host::detached::{DetachedError, run_detached};
use diskvitals_host::own_cgroup::{self, CgroupError};
use diskvitals_host::root::HostRoot;
use diskvitals_host::{btrfs, trusted_file};
use diskvitals_model::care::scrubs::{ScrubStart, ScrubTarget};
use diskvitals_text::causes::with_causes;

const BTRFS: [&str; 4] =
    ["/usr/bin/btrfs", "/usr/sbin/btrfs", "/sbin/btrfs", "/usr/local/bin/btrfs"];
/// `btrfs scrub resume`, where nothing is left of the last one (btrfs-scrub(8)).
const NOTHING_LEFT: i32 = 2;

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("writing `check` to {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("{} is `{found}`, not `{expected}`", path.display())]
    NotIdle { path: PathBuf, found: String, expected: &'static str },
    #[error("opening {0}")]
    Open(HostPath, #[source] io::Error),
    #[error("asking the btrfs at {0} what runs on it")]
    Ask(HostPath, #[source] io::Error),
    #[error("another filesystem is mounted at {0}")]
    Another(HostPath),
    #[error("{what} runs on {mount} already")]
    Runs { what: String, mount: HostPath },
    #[error("{0} is not installed on the host")]
    NoProgram(&'static str),
    #[error(transparent)]
    Untrusted(io::Error),
    #[error(transparent)]
    Program(DetachedError),
    #[error(transparent)]
    Cgroup(CgroupError),
}

/// `args`: the JSON of a `ScrubStart`.
pub(super) fn start(
    root: &HostRoot,
    mut args: impl Iterator<Item = OsString>,
    limitations: &[String],
) -> ExitCode {
    let start = args.next().and_then(|arg| serde_json::from_str(arg.to_str()?).ok());
    let Some(ScrubStart { target, is_resumed }) = start else {
        return refused("no check or scrub was named");
    };
    if let Some(limitation) = limitations.first() {
        return refused(limitation);
    }
    if root.is_recorded() {
        return refused("a recorded tree has nothing to check");
    }
    let begun = match &target {
        ScrubTarget::Md(device) => check_md(device),
        ScrubTarget::Zpool(pool) => scrub_pool(pool),
        ScrubTarget::Btrfs { uuid, mount } => scrub_btrfs(uuid, mount, is_resumed),
    };
    match begun {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refused(&with_causes(&error)),
    }
}

/// Documentation/admin-guide/md.rst. Never `repair`, which may copy the damaged half over the good one.
fn check_md(device: &str) -> Result<(), StartError> {
    let file = |name: &str| PathBuf::from(format!("/sys/block/{device}/md/{name}"));
    // Read again: the array may have changed since the plan was made.
    for (name, expected) in [("degraded", "0"), ("sync_action", "idle")] {
        let path = file(name);
        let found = std::fs::read_to_string(&path);
        let found = found.map_err(|error| StartError::Read(path.clone(), error))?;
        let found = found.trim().to_owned();
        if found != expected {
            return Err(StartError::NotIdle { path, found, expected });
        }
    }
    let path = file("sync_action");
    std::fs::write(&path, "check").map_err(|error| StartError::Write(path, error))
}

fn scrub_pool(pool: &str) -> Result<(), StartError> {
    let program = installed("zpool", &zpool::PROGRAMS)?;
    run_detached(&program, &["scrub".as_ref(), pool.as_ref()]).map_err(StartError::Program)
}

fn scrub_btrfs(uuid: &str, mount: &HostPath, is_resumed: bool) -> Result<(), StartError> {
    let open = |error| StartError::Open(mount.clone(), error);
    let directory = File::open(mount.as_path()).map_err(open)?;
    let ask = |error| StartError::Ask(mount.clone(), error);
    if btrfs::uuid(directory.as_fd()).map_err(ask)? != uuid {
        return Err(StartError::Another(mount.clone()));
    }
    if let Some(what) = btrfs::running_read(directory.as_fd()).map_err(ask)? {
        return Err(StartError::Runs { what, mount: mount.clone() });
    }
    drop(directory);
    let program = installed("btrfs", &BTRFS)?;
    own_cgroup::check_host_pid_namespace(&HostRoot::new("/")).map_err(StartError::Cgroup)?;
    own_cgroup::enter_own_cgroup().map_err(StartError::Cgroup)?;
    let place = mount.as_path().as_os_str();
    let scrub =
        |command: &str| run_detached(&program, &["scrub".as_ref(), command.as_ref(), place]);
    let begun = match is_resumed.then(|| scrub("resume")) {
        Some(Err(DetachedError::Failed { status, .. })) if status.code() == Some(NOTHING_LEFT) => {
            scrub("start")
        }
        Some(resumed) => resumed,
        None => scrub("start"),
    };
    begun.map_err(StartError::Program)
}

fn installed(name: &'static str, places: &[&str]) -> Result<PathBuf, StartError> {
    let found = places.iter().map(Path::new).find(|place| place.exists());
    let program = found.ok_or(StartError::NoProgram(name))?;
    trusted_file::check_program(program).map_err(StartError::Untrusted)?;
    Ok(program.to_owned())
}
