//! The end of a run's group: kills what is in it, and removes it. The kernel removes no group that has
//! a process.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};

use crate::jail::run_group::{NAME_PREFIX, parents, processes, write};
use crate::root::HostRoot;

/// Killed processes leave their groups within this time, all together, or are blocked in the kernel.
pub(in crate::jail) const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);
pub(in crate::jail) const REMOVE_POLL_MILLIS: u16 = 2;

/// systemd and container runtimes nest groups less deep.
const MAX_DEPTH: usize = 12;

/// Before a run: removes the groups beside our own that are left over, with their processes. What cannot be
/// removed hinders no run.
pub fn clear_leftover_groups(root: &HostRoot) {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    for parent in parents(root).unwrap_or_default() {
        clear(&parent.path, 0, deadline);
    }
}

/// At the daemon's start: the same in whole hierarchies, because the daemon that was killed may have been in
/// another group. Out: a line for the log of each that could not be removed.
pub fn clear_all_leftover_groups(root: &HostRoot) -> Vec<String> {
    // Without control groups, nothing is left over.
    let parents = parents(root).unwrap_or_default();
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    let left = parents.iter().flat_map(|parent| clear(&parent.hierarchy, MAX_DEPTH, deadline));
    left.map(|path| {
        format!(
            "the control group {} of an earlier filesystem check has a process that cannot be killed",
            path.display()
        )
    })
    .collect()
}

/// Removes the groups in `dir` that nobody supervises. Out: those that could not be removed.
pub(super) fn clear(dir: &Path, depth: usize, deadline: Instant) -> Vec<PathBuf> {
    let (ours, others): (Vec<_>, Vec<_>) =
        groups_in(dir).into_iter().partition(|path| is_ours(path));
    let left = ours.into_iter().filter(|path| match File::open(path) {
        Ok(dir) => match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(held) => is_still(path, &held) && !kill_and_remove(path, deadline),
            Err(_) => false,
        },
        // Removed meanwhile.
        Err(_) => false,
    });
    let below = others.iter().filter(|_| depth > 0).flat_map(|dir| clear(dir, depth - 1, deadline));
    left.chain(below).collect()
}

/// Its owner may have removed it meanwhile, and made another one of the same name.
fn is_still(path: &Path, dir: &File) -> bool {
    let same = |found: std::fs::Metadata| Some((found.dev(), found.ino()));
    let ours = dir.metadata().ok().and_then(same);
    ours.is_some() && ours == std::fs::metadata(path).ok().and_then(same)
}

/// Users can make groups of any name where one is delegated to them.
fn is_ours(group: &Path) -> bool {
    let name = group.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(NAME_PREFIX))
        && std::fs::metadata(group)
            .is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw())
}

/// Whether the group is gone, with those in it. Each is killed at least once.
pub(super) fn kill_and_remove(group: &Path, deadline: Instant) -> bool {
    loop {
        let is_last = Instant::now() >= deadline;
        if remove_tree(group) {
            return true;
        }
        // Again and again: a process may have forked meanwhile.
        kill_tree(group);
        // Only sleeps.
        nix::poll::poll(&mut [], REMOVE_POLL_MILLIS).ok();
        if is_last {
            return remove_tree(group);
        }
    }
}

fn remove_tree(group: &Path) -> bool {
    for below in groups_in(group) {
        remove_tree(&below);
    }
    match std::fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// What could not be killed shows in that the group stays.
fn kill_tree(group: &Path) {
    // Kills all at once, also in groups below (5.14).
    if write(&group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for below in groups_in(group) {
        kill_tree(&below);
    }
    for pid in processes(group) {
        kill(pid, Signal::SIGKILL).ok();
    }
}

pub(super) fn groups_in(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
