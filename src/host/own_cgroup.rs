//! Lets a process outlive its parent: a separate control group and the host's PID namespace, so
//! that neither an OOM kill of the daemon's group nor the end of its pod kills both.
//!
//! In: the host's root. Out: an error that explains why this is not possible, and what to change.
//! Must be called by a single-threaded process.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

use crate::root::HostRoot;
use diskvitals_finding::path::HostPath;

/// At the root of a hierarchy, beside systemd's groups; systemd does not touch groups that it did
/// not create.
const CGROUP_NAME: &str = "diskvitals-freeze";

const MOUNTINFO: &str = "/proc/self/mountinfo";

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error(
        "what must outlive the daemon would not be in the host's PID namespace, and would be killed meanwhile when the daemon's ends: run the daemon on the host, or with hostPID"
    )]
    ForeignPidNamespace,
    #[error(
        "whether what must outlive the daemon would be in the host's PID namespace is unknown: {} does not show this process", .0.display()
    )]
    UnknownPidNamespace(PathBuf),
    #[error(
        "this process is in a cgroup namespace that cannot be left, and so cannot leave the daemon's control group: run the daemon privileged, or with the host's cgroup namespace"
    )]
    ForeignCgroupNamespace,
    #[error(
        "the {hierarchy} is not mounted, and so the daemon's control group {path} cannot be left"
    )]
    NotMounted { hierarchy: &'static str, path: String },
    #[error("leaving the daemon's control group {0}")]
    Leave(String, #[source] Box<CgroupError>),
    #[error("reading {0}")]
    Read(&'static str, #[source] io::Error),
    #[error("writing {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("making {}", .0.display())]
    Create(PathBuf, #[source] io::Error),
    #[error("making {}, which `diskvitalsd worker apart /`, run by root, makes", .0.display())]
    CreateDenied(PathBuf, #[source] io::Error),
}

/// Whether this process is in the initial PID namespace, which ends with the machine. `root`: as
/// visible from the present mount namespace.
///
/// Only the /proc of the initial namespace shows kernel threads. This process is in the namespace
/// of that /proc if the namespace's name is the same. Where PID 1's name cannot be read (Yama, a
/// security module; even for root), its ids decide: NSpid has one id for each namespace from that
/// of the /proc mount downwards (proc_pid_status(5)).
pub fn check_host_pid_namespace(root: &HostRoot) -> Result<(), CgroupError> {
    let same = match (
        namespace_id(&root.at("/proc/1/ns/pid")),
        namespace_id(Path::new("/proc/self/ns/pid")),
    ) {
        (Some(host), Some(own)) => Some(host == own),
        _ => {
            let status = root.read("/proc/self/status").unwrap_or_default();
            let status = String::from_utf8_lossy(&status);
            status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))
                .map(|pids| pids.split_whitespace().count() == 1)
        }
    };
    let is_first = root.read("/proc/2/comm").is_ok_and(|name| name.trim_ascii() == b"kthreadd");
    match same {
        Some(true) if is_first => Ok(()),
        Some(_) => Err(CgroupError::ForeignPidNamespace),
        None => Err(CgroupError::UnknownPidNamespace(root.at("/proc"))),
    }
}

/// Moves this process into a separate control group at the root of each hierarchy that can kill for
/// lack of memory: the unified one, and version 1's `memory`. The root group is safe too. Must be
/// called in the host's mount namespace.
pub fn enter_own_cgroup() -> Result<(), CgroupError> {
    enter_host_cgroup_namespace();
    let read = |path: &'static str| {
        std::fs::read_to_string(path).map_err(|error| CgroupError::Read(path, error))
    };
    // In a cgroup namespace, paths above its root begin with `/..` (cgroup_namespaces(7)).
    if read("/proc/1/cgroup")?
        .lines()
        .any(|line| parse_cgroup_line(line).is_some_and(|(_, path)| path.starts_with("/..")))
    {
        return Err(CgroupError::ForeignCgroupNamespace);
    }
    let mounts = read_mountinfo()?;
    for line in read("/proc/self/cgroup")?.lines() {
        let Some((hierarchy, path)) = parse_cgroup_line(line) else {
            continue;
        };
        if path == "/" || path == format!("/{CGROUP_NAME}") {
            continue;
        }
        let Some(at) = mount_point(&mounts, hierarchy) else {
            return Err(CgroupError::NotMounted {
                hierarchy: hierarchy.name(),
                path: path.to_owned(),
            });
        };
        enter_in_hierarchy(&at)
            .map_err(|error| CgroupError::Leave(path.to_owned(), Box::new(error)))?;
    }
    Ok(())
}

/// Creates that group in the existing hierarchies, for processes that lack the permission. A
/// hierarchy's root has mode 0555, so creating a group needs CAP_DAC_OVERRIDE; entering an existing
/// group does not. Must be called in the host's mount namespace.
pub fn create_own_cgroup() -> Result<(), CgroupError> {
    let mounts = read_mountinfo()?;
    for hierarchy in [CgroupHierarchy::Unified, MEMORY] {
        if let Some(at) = mount_point(&mounts, hierarchy) {
            create_in_hierarchy(&at)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CgroupHierarchy<'a> {
    Unified,
    /// Of version 1, with this controller.
    V1(&'a str),
}

const MEMORY: CgroupHierarchy<'static> = CgroupHierarchy::V1("memory");

impl CgroupHierarchy<'_> {
    fn name(self) -> &'static str {
        match self {
            CgroupHierarchy::Unified => "unified cgroup hierarchy",
            CgroupHierarchy::V1(_) => "memory hierarchy of cgroups v1",
        }
    }
}

/// `0::/system.slice/x.service`, `4:memory:/x` (cgroups(7)); None for other hierarchies.
fn parse_cgroup_line(line: &str) -> Option<(CgroupHierarchy<'static>, &str)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if id == "0" && controllers.is_empty() {
        return Some((CgroupHierarchy::Unified, path));
    }
    controllers.split(',').any(|controller| controller == "memory").then_some((MEMORY, path))
}

/// The mount in mountinfo that shows the whole hierarchy.
pub(super) fn mount_point(mounts: &[u8], hierarchy: CgroupHierarchy<'_>) -> Option<HostPath> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let after = fields.iter().position(|field| *field == b"-")?;
        let (fs_type, options) = (*fields.get(after + 1)?, *fields.last()?);
        let fits = match hierarchy {
            CgroupHierarchy::Unified => fs_type == b"cgroup2",
            CgroupHierarchy::V1(controller) => {
                fs_type == b"cgroup"
                    && options
                        .split(|byte| *byte == b',')
                        .any(|option| option == controller.as_bytes())
            }
        };
        (fits && *fields.get(3)? == b"/")
            .then(|| fields.get(4).map(|path| HostPath::unescape(path)))?
    })
}

fn read_mountinfo() -> Result<Vec<u8>, CgroupError> {
    std::fs::read(MOUNTINFO).map_err(|error| CgroupError::Read(MOUNTINFO, error))
}

fn enter_in_hierarchy(hierarchy: &HostPath) -> Result<(), CgroupError> {
    let procs = create_in_hierarchy(hierarchy)?.join("cgroup.procs");
    // 0 means the process that writes (cgroup_procs_write(), kernel/cgroup/cgroup.c).
    std::fs::write(&procs, "0").map_err(|error| CgroupError::Write(procs, error))
}

/// Uses an existing group unchanged, which needs no privileges.
fn create_in_hierarchy(hierarchy: &HostPath) -> Result<PathBuf, CgroupError> {
    let own = hierarchy.as_path().join(CGROUP_NAME);
    match std::fs::create_dir(&own) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(CgroupError::CreateDenied(own, error))
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError::Create(own, error))
        }
        _ => Ok(own),
    }
}

/// Device and inode number of a file in /proc/PID/ns.
fn namespace_id(path: &Path) -> Option<(u64, u64)> {
    let data = std::fs::metadata(path).ok()?;
    Some((data.dev(), data.ino()))
}

/// Where permitted; the check of paths afterwards shows whether it was necessary.
pub(super) fn enter_host_cgroup_namespace() {
    let id = |path| namespace_id(Path::new(path));
    if id("/proc/1/ns/cgroup") != id("/proc/self/ns/cgroup")
        && let Ok(namespace) = std::fs::File::open("/proc/1/ns/cgroup")
    {
        // If refused, PID 1's group is shown above our root, which is checked next.
        let _ = setns(namespace, CloneFlags::CLONE_NEWCGROUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_limiting_cgroups_are_left() {
        assert_eq!(
            parse_cgroup_line("0::/system.slice/diskvitalsd.service"),
            Some((CgroupHierarchy::Unified, "/system.slice/diskvitalsd.service"))
        );
        assert_eq!(parse_cgroup_line("4:memory:/a:b"), Some((MEMORY, "/a:b")));
        assert_eq!(parse_cgroup_line("9:name=systemd:/x"), None);
        assert_eq!(parse_cgroup_line("6:freezer:/x"), None);
    }

    #[test]
    fn an_existing_cgroup_is_reused() {
        let hierarchy = tempfile::tempdir().unwrap();
        let at = HostPath::from(hierarchy.path());
        assert_eq!(create_in_hierarchy(&at).unwrap(), hierarchy.path().join(CGROUP_NAME));
        assert_eq!(create_in_hierarchy(&at).unwrap(), hierarchy.path().join(CGROUP_NAME));
        let error = create_in_hierarchy(&"/nonexistent".into()).unwrap_err();
        assert_eq!(error.to_string(), "making /nonexistent/diskvitals-freeze");
    }

    #[test]
    fn a_hierarchy_is_found_where_its_root_is_mounted() {
        let mounts = b"30 25 0:26 /kubepods /pod rw - cgroup2 cgroup2 rw\n\
                       31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                       32 25 0:26 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            mount_point(mounts, CgroupHierarchy::Unified),
            Some("/sys/fs/cgroup/uni fied".into())
        );
        assert_eq!(mount_point(mounts, MEMORY), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(
            mount_point(b"1 0 0:5 / /proc rw - proc proc rw\n", CgroupHierarchy::Unified),
            None
        );
    }
}
