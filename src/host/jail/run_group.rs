//! A control group for one run, in cgroups v2 or v1 (cgroups(7)): what all its processes may use
//! together.
//!
//! In: the bounds. Out: the group, and what of memory and processes it cannot bound here. It is beside
//! the group of the process that supervises the run: there, the controllers are enabled already, and the
//! limits of the pod or slice hold as well. It is not below it: all processes of the daemon would have
//! to be in a group below theirs too (no internal processes, cgroups(7)), and a unit that was left so, with
//! a process that hangs, cannot be started again (EBUSY) before systemd 254 (`DelegateSubgroup=`).
//! A lock on its directory says that the run is supervised. A group without that lock is left over: the
//! next run and the next start of the daemon remove it.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;

use crate::jail::JailSpec;
use crate::jail::run_group::removal::kill_and_remove;
use crate::own_cgroup::{CgroupHierarchy, enter_host_cgroup_namespace, mount_point};
use crate::root::HostRoot;
use diskvitals_finding::dev::DevNo;
use diskvitals_text::causes::with_causes;

mod removal;

pub(super) use removal::{REMOVE_POLL_MILLIS, REMOVE_TIMEOUT};
pub use removal::{clear_all_leftover_groups, clear_leftover_groups};

const NAME_PREFIX: &str = "diskvitals-check-";
/// The controllers without which a run is not bounded as a whole.
const NEEDED: [&str; 2] = ["memory", "pids"];
/// Another process may take a name, or remove a group that is not locked yet.
const MAX_NAMES: usize = 8;
/// The share of a low-priority run: a tenth of a service's (cpu.weight 100, cpu.shares 1024), as much
/// as some seven threads of the lowest priority have.
const LOW_CPU_WEIGHT: u64 = 10;
const LOW_CPU_SHARES: u64 = 102;
/// Times the rate: more than a checker reads between two looks of its supervisor.
const BURST: u64 = 32;

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

/// For one run. It is removed, with all processes in it, when it is dropped.
#[derive(Debug)]
pub struct RunGroup {
    dirs: Vec<GroupDir>,
    bounds: RunBounds,
    unbounded: Unbounded,
}

/// Why no group bounds the memory of all processes of a run, or their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unbounded {
    pub memory: Option<String>,
    pub tasks: Option<String>,
}

#[derive(Debug)]
struct GroupDir {
    path: PathBuf,
    controllers: Vec<String>,
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
    /// Its root.
    hierarchy: PathBuf,
    path: PathBuf,
    is_v2: bool,
    controllers: Vec<String>,
}

impl Unbounded {
    fn note(&mut self, controller: &str, why: &GroupError) {
        let reason = match controller {
            "memory" => &mut self.memory,
            "pids" => &mut self.tasks,
            // What else is bounded is so by priority and by the supervisor as well.
            _ => return,
        };
        reason.get_or_insert_with(|| with_causes(why));
    }
}

impl RunGroup {
    /// Bounds what can be bounded here. Takes no longer than writing some files.
    pub fn create(root: &HostRoot, plan: &JailSpec) -> RunGroup {
        RunGroup::create_in(parents(root), plan.bounds(), root)
    }

    fn create_in(
        parents: Result<Vec<Parent>, GroupError>,
        bounds: RunBounds,
        root: &HostRoot,
    ) -> RunGroup {
        let mut group = RunGroup { dirs: Vec::new(), bounds, unbounded: Unbounded::default() };
        let parents = parents.unwrap_or_else(|error| {
            NEEDED.iter().for_each(|controller| group.unbounded.note(controller, &error));
            Vec::new()
        });
        for needed in NEEDED {
            if !parents.iter().any(|parent| parent.has(needed)) {
                group.unbounded.note(needed, &GroupError::NoController(needed));
            }
        }
        for parent in &parents {
            match GroupDir::create(parent) {
                Ok(dir) => {
                    dir.set_bounds(parent.is_v2, &group.bounds, root, &mut group.unbounded);
                    // Also without its bounds: to be removed.
                    group.dirs.push(dir);
                }
                Err(error) => parent
                    .controllers
                    .iter()
                    .for_each(|controller| group.unbounded.note(controller, &error)),
            }
        }
        group
    }

    /// Out: what is not bounded.
    pub(super) fn add(&self, pid: Pid) -> Unbounded {
        let mut unbounded = self.unbounded.clone();
        for dir in &self.dirs {
            if let Err(error) = write(&dir.path.join("cgroup.procs"), &pid.to_string()) {
                dir.controllers.iter().for_each(|controller| unbounded.note(controller, &error));
            }
        }
        unbounded
    }

    /// The processes in the group that this process can see.
    pub(super) fn processes(&self) -> Vec<Pid> {
        self.dirs.first().map(|dir| processes(&dir.path)).unwrap_or_default()
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

/// At the daemon's start: why a filesystem check has weaker bounds here, as a line for the log. None: it
/// has not.
pub fn weakness(root: &HostRoot) -> Option<String> {
    let any = RunBounds {
        memory: 64 << 20,
        tasks: 64,
        low_priority: false,
        read_rate: None,
        devices: Vec::new(),
    };
    let group = RunGroup::create_in(parents(root), any, root);
    let Unbounded { memory, tasks } = group.unbounded.clone();
    let without = |what, why: Option<String>, instead| {
        Some(format!(
            "no control group bounds the {what} of all processes of a filesystem check here: {instead} ({})",
            why?
        ))
    };
    let memory = without("memory", memory, "each may use `checks.memory_bytes`");
    let tasks = without("number", tasks, "a limit of their user does (RLIMIT_NPROC)");
    let lines: Vec<String> = memory.into_iter().chain(tasks).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
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
                        controllers: parent.controllers.clone(),
                        _lock: lock,
                    });
                }
                // An error: that process has removed it.
                _ => drop(std::fs::remove_dir(&path)),
            }
        }
        Err(GroupError::NoName)
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    fn set_bounds(
        &self,
        is_v2: bool,
        bounds: &RunBounds,
        root: &HostRoot,
        unbounded: &mut Unbounded,
    ) {
        let set = |file: &str, value: String| write(&self.path.join(file), &value);
        let memory = || {
            let most = bounds.memory.to_string();
            if !is_v2 {
                set("memory.limit_in_bytes", most.clone())?;
                return set("memory.memsw.limit_in_bytes", most).or_else(if_absent);
            }
            set("memory.max", most)?;
            set("memory.oom.group", "1".to_owned()).or_else(if_absent)?;
            // It counts swap alone.
            set("memory.swap.max", "0".to_owned()).or_else(if_absent)
        };
        if self.has("memory")
            && let Err(error) = memory()
        {
            unbounded.note("memory", &error);
        }
        if self.has("pids")
            && let Err(error) = set("pids.max", bounds.tasks.to_string())
        {
            unbounded.note("pids", &error);
        }
        if self.has("cpu") && bounds.low_priority {
            match is_v2 {
                true => set("cpu.weight", LOW_CPU_WEIGHT.to_string()),
                false => set("cpu.shares", LOW_CPU_SHARES.to_string()),
            }
            // Its lowest priority as a process holds without it.
            .ok();
        }
        if let Some(rate) = bounds.read_rate.filter(|_| self.has("io")) {
            // The supervisor holds the checker at this rate, and knows how long. The kernel holds back
            // what escapes that, and no burst between two looks: nobody measures how long it does.
            let most = rate.saturating_mul(BURST);
            for dev in bounds.devices.iter().map(|dev| whole_disk(root, *dev)) {
                match is_v2 {
                    true => set("io.max", format!("{dev} rbps={most}")),
                    false => set("blkio.throttle.read_bps_device", format!("{dev} {most}")),
                }
                // The supervisor's own limit holds without it: a kernel without
                // CONFIG_BLK_DEV_THROTTLING has no such file, and not every device has a queue.
                .ok();
            }
        }
    }
}

impl Parent {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// What is optional in the kernel's configuration.
fn if_absent(error: GroupError) -> Result<(), GroupError> {
    match error {
        GroupError::Write(_, cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        error => Err(error),
    }
}

/// The directories that hold this process's own groups.
fn parents(root: &HostRoot) -> Result<Vec<Parent>, GroupError> {
    enter_host_cgroup_namespace();
    let read = |path: PathBuf| std::fs::read(&path).map_err(|error| GroupError::Read(path, error));
    let own = read("/proc/self/cgroup".into())?;
    // As PID 1 has mounted them: in a hardened unit and in a pod, our own mount is read-only. Where a
    // security module hides PID 1's, ours have to do.
    let host = root.at("/proc/1/root");
    let (host, table) = match std::fs::metadata(host.join(".")) {
        Ok(_) => (host, root.at("/proc/1/mountinfo")),
        Err(_) => ("/".into(), "/proc/self/mountinfo".into()),
    };
    let mounts = read(table)?;
    Ok(String::from_utf8_lossy(&own)
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
    let root = host.join(at.as_path().strip_prefix("/").ok()?);
    let path = root.join(above.strip_prefix("/").ok()?);
    let enabled = if is_v2 {
        std::fs::read_to_string(path.join("cgroup.subtree_control")).ok()?
    } else {
        names.replace(',', " ")
    };
    let controllers: Vec<String> =
        enabled.split_whitespace().filter_map(known).map(str::to_owned).collect();
    (!controllers.is_empty()).then_some(Parent { hierarchy: root, path, is_v2, controllers })
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

/// The processes in a group that this process can see.
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

#[cfg(test)]
mod tests;
