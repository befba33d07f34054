//! A control group for one run, in cgroups v2 or v1 (cgroups(7)): what all its processes may use
//! together.
//!
//! In: the bounds. Out: the group, or why there is none. It is beside the group of the process that
//! supervises the run: there, the controllers are enabled already, and the limits of the pod or slice
//! hold as well. A lock on its directory says that the run is supervised. A group without that lock
//! is left over: the next run and the next start of the daemon remove it.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::own_cgroup::{CgroupHierarchy, enter_host_cgroup_namespace, mount_point};
use crate::host::root::HostRoot;
use crate::model::dev::DevNo;

const NAME_PREFIX: &str = "diskvitals-check-";
/// Another process may take a name, or remove a group that is not locked yet.
const MAX_NAMES: usize = 8;
/// Killed processes leave their groups within this time, all together, or are blocked in the kernel.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);
const REMOVE_POLL_MILLIS: u16 = 2;
/// The share of a low-priority run: a tenth of a service's (cpu.weight 100, cpu.shares 1024), as much
/// as some seven threads of the lowest priority have.
const LOW_CPU_WEIGHT: u64 = 10;
const LOW_CPU_SHARES: u64 = 102;

/// What the processes of a run may use together.
#[derive(Clone, Debug)]
pub(super) struct RunBounds {
    pub memory: u64,
    /// Processes and threads.
    pub tasks: u64,
    pub low_priority: bool,
    /// Bytes per second, of each device.
    pub read_rate: Option<u64>,
    pub devices: Vec<DevNo>,
}

/// It is removed, with all processes in it, when it is dropped.
#[derive(Debug)]
pub(super) struct RunGroup {
    dirs: Vec<GroupDir>,
    bounds: RunBounds,
}

#[derive(Debug)]
struct GroupDir {
    path: PathBuf,
    /// It bounds memory or processes.
    is_needed: bool,
    _lock: Flock<File>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum GroupError {
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("making {}", .0.display())]
    Create(PathBuf, #[source] io::Error),
    #[error("writing {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("no control group can bound {0} here")]
    NoController(&'static str),
    #[error("names of control groups were taken by others {MAX_NAMES} times")]
    NoName,
}

/// A directory in which a group can be made, and the controllers that its groups have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    path: PathBuf,
    is_v2: bool,
    controllers: Vec<String>,
}

impl RunGroup {
    pub(super) fn create(root: &HostRoot, bounds: RunBounds) -> Result<RunGroup, GroupError> {
        RunGroup::create_in(&parents(root)?, bounds, root)
    }

    fn create_in(
        parents: &[Parent],
        bounds: RunBounds,
        root: &HostRoot,
    ) -> Result<RunGroup, GroupError> {
        for needed in ["memory", "pids"] {
            if !parents.iter().any(|parent| parent.has(needed)) {
                return Err(GroupError::NoController(needed));
            }
        }
        let mut group = RunGroup {
            dirs: Vec::new(),
            bounds,
        };
        for parent in parents {
            match GroupDir::create(parent) {
                Ok(dir) => {
                    let set = dir.set_bounds(parent, &group.bounds, root);
                    // Also without its bounds: to be removed.
                    group.dirs.push(dir);
                    set?;
                }
                Err(_) if !parent.is_needed() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(group)
    }

    /// After an error, some bounds may hold nevertheless.
    pub(super) fn add(&self, pid: Pid) -> Result<(), GroupError> {
        self.dirs.iter().try_for_each(|dir| {
            match write(&dir.path.join("cgroup.procs"), &pid.to_string()) {
                Err(error) if dir.is_needed => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// The processes in the group that this process can see.
    pub(super) fn processes(&self) -> Vec<Pid> {
        self.dirs
            .first()
            .map(|dir| processes(&dir.path))
            .unwrap_or_default()
    }

    /// Which bound the run has reached; continues a sentence that begins with the checker's name.
    pub(super) fn exceeded(&self) -> Option<String> {
        let count = |file, field| {
            let texts = self.dirs.iter().map(|dir| dir.path.join(file));
            texts
                .filter_map(|path| std::fs::read_to_string(path).ok())
                .any(|text| counter(&text, field) > 0)
        };
        if count("memory.events", "oom_kill") || count("memory.oom_control", "oom_kill") {
            return Some(format!(
                "had a process killed for lack of memory: the processes of a run may use {} MiB together \
                 (`checks.memory_bytes` and what the kernel needs for it), and no more than the node or \
                 pod has",
                self.bounds.memory >> 20
            ));
        }
        count("pids.events", "max").then(|| {
            format!(
                "wanted more than the {} processes and threads that a run may have (more with a \
                 higher `checks.memory_bytes`), or than its slice or pod allows",
                self.bounds.tasks
            )
        })
    }
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        for dir in &self.dirs {
            // What is left has a process that cannot be killed; without its lock, the next run or
            // start removes it.
            kill_and_remove(&dir.path, deadline);
        }
    }
}

/// Before a run and at the daemon's start: removes groups that are left over, with their processes. Out:
/// a line for the log of each that could not be removed.
pub(crate) fn clear_leftover_groups(root: &HostRoot) -> Vec<String> {
    let Ok(parents) = parents(root) else {
        // Without control groups, nothing is left over.
        return Vec::new();
    };
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    let left = parents
        .iter()
        .flat_map(|parent| clear(&parent.path, deadline));
    left.map(|path| {
        format!(
            "the control group {} of an earlier filesystem check has a process that cannot be killed",
            path.display()
        )
    })
    .collect()
}

/// Removes the groups that nobody supervises. Out: those that could not be removed.
fn clear(parent: &Path, deadline: Instant) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(NAME_PREFIX))
    });
    ours.map(|entry| entry.path())
        .filter(|path| match File::open(path) {
            Ok(dir) => match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
                Ok(_held) => !kill_and_remove(path, deadline),
                Err(_) => false,
            },
            // Removed meanwhile.
            Err(_) => false,
        })
        .collect()
}

impl GroupDir {
    fn create(parent: &Parent) -> Result<GroupDir, GroupError> {
        for number in 0..MAX_NAMES {
            let name = format!("{NAME_PREFIX}{}-{number}", std::process::id());
            let path = parent.path.join(name);
            // Others, and the run itself, can neither lock it nor make groups in it.
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(GroupError::Create(path, error)),
            }
            // Between these two steps, another process may find it without a lock, and remove it.
            let lock = File::open(&path)
                .ok()
                .and_then(|dir| Flock::lock(dir, FlockArg::LockExclusiveNonblock).ok());
            match lock {
                Some(lock) if path.join("cgroup.procs").exists() => {
                    return Ok(GroupDir {
                        path,
                        is_needed: parent.is_needed(),
                        _lock: lock,
                    });
                }
                // An error: that process has removed it.
                _ => drop(std::fs::remove_dir(&path)),
            }
        }
        Err(GroupError::NoName)
    }

    fn set_bounds(
        &self,
        parent: &Parent,
        bounds: &RunBounds,
        root: &HostRoot,
    ) -> Result<(), GroupError> {
        let set = |file: &str, value: String| write(&self.path.join(file), &value);
        let memory = bounds.memory.to_string();
        if parent.has("memory") && parent.is_v2 {
            set("memory.max", memory)?;
            set("memory.oom.group", "1".to_owned()).or_else(if_absent)?;
            // It counts swap alone.
            set("memory.swap.max", "0".to_owned()).or_else(if_absent)?;
        } else if parent.has("memory") {
            set("memory.limit_in_bytes", memory.clone())?;
            set("memory.memsw.limit_in_bytes", memory).or_else(if_absent)?;
        }
        if parent.has("pids") {
            set("pids.max", bounds.tasks.to_string())?;
        }
        if parent.has("cpu") && bounds.low_priority {
            match parent.is_v2 {
                true => set("cpu.weight", LOW_CPU_WEIGHT.to_string()),
                false => set("cpu.shares", LOW_CPU_SHARES.to_string()),
            }
            // Its lowest priority as a process holds without it.
            .ok();
        }
        if let Some(rate) = bounds.read_rate.filter(|_| parent.has("io")) {
            // The supervisor holds the checker at this rate, and knows how long. The kernel holds back
            // only what escapes that.
            let most = rate.saturating_mul(2);
            for dev in bounds.devices.iter().map(|dev| whole_disk(root, *dev)) {
                match parent.is_v2 {
                    true => set("io.max", format!("{dev} rbps={most}")),
                    false => set("blkio.throttle.read_bps_device", format!("{dev} {most}")),
                }
                // The supervisor's own limit holds without it: a kernel without
                // CONFIG_BLK_DEV_THROTTLING has no such file, and not every device has a queue.
                .ok();
            }
        }
        Ok(())
    }
}

impl Parent {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Without a group here, a run may start threads only.
    fn is_needed(&self) -> bool {
        self.has("memory") || self.has("pids")
    }
}

/// What is optional in the kernel's configuration.
fn if_absent(error: GroupError) -> Result<(), GroupError> {
    match error {
        GroupError::Write(_, cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        error => Err(error),
    }
}

/// The directories that hold this process's own groups, where PID 1 has mounted them. In a hardened
/// unit and in a pod, our own mount of them is read-only.
fn parents(root: &HostRoot) -> Result<Vec<Parent>, GroupError> {
    enter_host_cgroup_namespace();
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).map_err(|error| GroupError::Read(path, error))
    };
    let own = read("/proc/self/cgroup".into())?;
    let table = root.at("/proc/1/mountinfo");
    let mounts = std::fs::read(&table).map_err(|error| GroupError::Read(table, error))?;
    let host = root.at("/proc/1/root");
    Ok(own
        .lines()
        .filter_map(|line| parent_of(line, &mounts, &host))
        .collect())
}

/// `line`: of /proc/self/cgroup. None: a hierarchy without a controller that bounds anything, or one
/// that is not visible as a whole.
fn parent_of(line: &str, mounts: &[u8], host: &Path) -> Option<Parent> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (names, own) = (fields.next()?, fields.next()?);
    let is_v2 = names.is_empty();
    let hierarchy = if is_v2 {
        CgroupHierarchy::Unified
    } else {
        CgroupHierarchy::V1(names.split(',').find(|name| known(name).is_some())?)
    };
    let above = Path::new(own).parent().unwrap_or(Path::new("/"));
    // Above the root of a cgroup namespace that cannot be left (cgroup_namespaces(7)).
    if own.starts_with("/..") {
        return None;
    }
    let at = mount_point(mounts, hierarchy)?;
    let path = host
        .join(at.as_path().strip_prefix("/").ok()?)
        .join(above.strip_prefix("/").ok()?);
    let enabled = if is_v2 {
        std::fs::read_to_string(path.join("cgroup.subtree_control")).ok()?
    } else {
        names.replace(',', " ")
    };
    let controllers: Vec<String> = enabled
        .split_whitespace()
        .filter_map(known)
        .map(str::to_owned)
        .collect();
    (!controllers.is_empty()).then_some(Parent {
        path,
        is_v2,
        controllers,
    })
}

/// The controllers that bound a run, by the names of v2.
fn known(controller: &str) -> Option<&'static str> {
    match controller {
        "memory" => Some("memory"),
        "pids" => Some("pids"),
        "cpu" => Some("cpu"),
        "io" | "blkio" => Some("io"),
        _ => None,
    }
}

/// A partition has no limits of its own.
fn whole_disk(root: &HostRoot, dev: DevNo) -> DevNo {
    let sysfs = root.at(format!("/sys/dev/block/{dev}"));
    let parent = sysfs.join("partition").exists().then(|| {
        let text = std::fs::read_to_string(sysfs.join("../dev")).ok()?;
        text.trim().parse().ok()
    });
    parent.flatten().unwrap_or(dev)
}

fn write(path: &Path, value: &str) -> Result<(), GroupError> {
    // Never creates: the files of a group exist.
    let written = File::options()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    written.map_err(|error| GroupError::Write(path.to_owned(), error))
}

fn processes(group: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // 0: in a PID namespace that this process does not see.
    text.lines()
        .filter_map(|line| line.parse().ok().filter(|pid| *pid > 0))
        .map(Pid::from_raw)
        .collect()
}

/// `oom_kill 2` in a file of one counter per line.
fn counter(text: &str, field: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == field)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or_default()
}

/// Whether the group is gone, with those in it. Each is killed at least once.
fn kill_and_remove(group: &Path, deadline: Instant) -> bool {
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

fn groups_in(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests;
