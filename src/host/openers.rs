//! Finds the processes that use a mount or a device: through an open file, a working directory, a
//! running program, or a mount in a separate namespace.
//!
//! In: a device number, and where it is mounted. Out: process ids, names and the kind of use. Reads
//! only /proc, and only files that the kernel generates without I/O (readlink, fdinfo, mountinfo):
//! nothing here queries the filesystem or the device, so a hung one can be examined too. Unreadable
//! entries (a process that exits, a security module) are skipped: an empty result does not prove
//! that nothing uses the device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::mount_tables::UsersTables;
use crate::root::HostRoot;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::mount::{Mount, parse};
use diskvitals_finding::path::HostPath;

/// Maximum number of openers in the result.
const MAX_OPENERS: usize = 32;
/// Maximum number of descriptors that are examined per process: far above usual limits.
const MAX_FDS_PER_PROCESS: usize = 65536;

/// The mount or device that processes may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTarget {
    /// The device number of the filesystem in mountinfo, or of the device itself.
    pub dev: DevNo,
    /// Only the mount at this path, in the mount namespace of PID 1; in other namespaces, mounts of
    /// the same directory or one below it. None: all mounts of `dev`.
    pub mount_point: Option<HostPath>,
    /// For a block device, its node (`/dev/loop3`): finds processes that have the node open.
    pub node: Option<HostPath>,
    /// The pod that the mount is for: what containers of other pods have mounted is theirs, also if
    /// it is the same directory.
    pub pod_uid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opener {
    pub pid: u32,
    pub comm: String,
    pub kind: OpenKind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenKind {
    OpenFile(HostPath),
    WorkingDirectory(HostPath),
    Executable(HostPath),
    MemoryMap(HostPath),
    /// In another mount namespace than PID 1's, and no copy of one of its mounts. One process is
    /// reported for all in that namespace.
    MountedElsewhere(HostPath),
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) ", self.pid, self.comm)?;
        match &self.kind {
            OpenKind::OpenFile(path) => write!(f, "has {path} open"),
            OpenKind::WorkingDirectory(path) => write!(f, "works in {path}"),
            OpenKind::Executable(path) => write!(f, "runs {path}"),
            OpenKind::MemoryMap(path) => write!(f, "has {path} mapped"),
            OpenKind::MountedElsewhere(path) => {
                write!(f, "has it mounted at {path} in a namespace of its own")
            }
        }
    }
}

impl OpenKind {
    /// As the process names it.
    pub fn path(&self) -> &HostPath {
        match self {
            OpenKind::OpenFile(path)
            | OpenKind::WorkingDirectory(path)
            | OpenKind::Executable(path)
            | OpenKind::MemoryMap(path)
            | OpenKind::MountedElsewhere(path) => path,
        }
    }
}

/// The first use that is found for each process, sorted by process id; `MAX_OPENERS` at most. May
/// take long: it reads /proc of all processes.
pub fn find_openers(root: &HostRoot, what: &OpenTarget) -> Vec<Opener> {
    let own = std::process::id();
    let mut namespaces: BTreeMap<PathBuf, Vec<MatchingMount>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    let mut found = Vec::new();
    let home = std::fs::read_link(root.at("/proc/1/ns/mnt"))
        .or_else(|_| std::fs::read_link("/proc/self/ns/mnt"))
        .unwrap_or_default();
    let host = read_mounts(&root.at("/proc/1"));
    let mut tables = UsersTables::new(root);
    let Ok(entries) = std::fs::read_dir(root.at("/proc")) else {
        return found;
    };
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids.into_iter().filter(|pid| *pid != own) {
        if found.len() >= MAX_OPENERS {
            break;
        }
        let process = root.at(format!("/proc/{pid}"));
        // A kernel thread, or a process that has exited: it uses nothing.
        let Ok(namespace) = std::fs::read_link(process.join("ns/mnt")) else {
            continue;
        };
        let foreign_namespace = namespace != home;
        let seen = namespaces.entry(namespace.clone()).or_insert_with(|| match foreign_namespace {
            true if tables.is_of_user(&process) => {
                let (text, _) = tables.read(&process).unwrap_or_default();
                mounts_elsewhere(&parse(&text).0, &host, what)
            }
            true => mounts_elsewhere(&read_mounts(&process), &host, what),
            false => mounts_at_home(&read_mounts(&process), what),
        });
        let has_own = seen.iter().any(|mount| mount.is_own);
        let copies: Vec<MatchingMount>;
        let seen = match has_own && is_of_another_pod(&process, what) {
            true => {
                copies = seen.iter().filter(|it| !it.is_own).cloned().collect();
                copies.as_slice()
            }
            false => seen.as_slice(),
        };
        let how = find_open_kind(&process, what, seen).or_else(|| {
            let own = seen.iter().find(|mount| mount.is_own)?;
            let is_first = named.insert(namespace);
            is_first.then(|| OpenKind::MountedElsewhere(own.mount_point.clone()))
        });
        if let Some(how) = how {
            let comm = String::from_utf8_lossy(
                std::fs::read(process.join("comm")).unwrap_or_default().trim_ascii_end(),
            )
            .into_owned();
            found.push(Opener { pid, comm, kind: how });
        }
    }
    found
}

/// One line for a message: `812 (mysqld) has /x/y open, 900 (bash) works in /x`; None if there is
/// no opener.
pub fn summary(holders: &[Opener]) -> Option<String> {
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// A mount of the device in some namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MatchingMount {
    id: u32,
    mount_point: HostPath,
    /// It is in a namespace other than PID 1's, and no copy of a mount there.
    is_own: bool,
}

impl MatchingMount {
    fn new(mount: &Mount, is_own: bool) -> Self {
        MatchingMount { id: mount.id, mount_point: mount.mount_point.clone(), is_own }
    }
}

fn is_of_another_pod(process: &Path, what: &OpenTarget) -> bool {
    let Some(uid) = &what.pod_uid else {
        return false;
    };
    let groups = std::fs::read(process.join("cgroup")).unwrap_or_default();
    let pods = pods_of_groups(&groups);
    !pods.is_empty() && !pods.contains(uid)
}

/// The uids of the pods whose control groups are among these (the content of /proc/PID/cgroup):
/// `…/podUID/…` (cgroupfs), `…-podUID.slice/…` with underscores (systemd);
/// pkg/kubelet/cm/pod_container_manager_linux.go. Several, where a pod runs a kubelet.
pub fn pods_of_groups(groups: &[u8]) -> BTreeSet<String> {
    let parts = groups.split(|byte| matches!(byte, b'/' | b'\n'));
    let parts = parts.filter_map(|part| std::str::from_utf8(part).ok());
    let pods = parts.flat_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        // The uid of a static pod can be any name, also one with `-pod` in it.
        part.match_indices("pod").filter_map(move |(at, word)| {
            let (before, uid) = (&part[..at], &part[at + word.len()..]);
            let is_pod = (before.is_empty() || before.ends_with('-')) && !uid.is_empty();
            is_pod.then(|| uid.replace('_', "-"))
        })
    });
    pods.collect()
}

fn read_mounts(process: &Path) -> Vec<Mount> {
    parse(&std::fs::read(process.join("mountinfo")).unwrap_or_default()).0
}

fn mounts_at_home(mounts: &[Mount], what: &OpenTarget) -> Vec<MatchingMount> {
    let is_meant = |mount: &&Mount| {
        let place = what.mount_point.as_ref();
        mount.dev == what.dev && place.is_none_or(|place| *place == mount.mount_point)
    };
    let meant = mounts.iter().filter(is_meant);
    meant.map(|mount| MatchingMount::new(mount, false)).collect()
}

fn mounts_elsewhere(mounts: &[Mount], host: &[Mount], what: &OpenTarget) -> Vec<MatchingMount> {
    // Without the mount itself nothing tells which directory is meant: any counts.
    let directory = what.mount_point.as_ref().and_then(|place| {
        let mut host = host.iter().rev();
        let mount = host.find(|mount| mount.dev == what.dev && mount.mount_point == *place)?;
        Some(&mount.root)
    });
    let is_meant = |mount: &&Mount| {
        let is_below = |directory| mount.root.strip_prefix(directory).is_some();
        mount.dev == what.dev && directory.is_none_or(is_below)
    };
    let is_own = |mount: &Mount| !host.iter().any(|original| is_copy(mount, original));
    let meant = mounts.iter().filter(is_meant);
    meant.map(|mount| MatchingMount::new(mount, is_own(mount))).collect()
}

/// Whether a mount in another namespace is a copy of a mount of the host: a container that mounts
/// the kubelet's directory has a copy of each mount in it, which disappears with the original
/// (mount_namespaces(7), shared subtrees).
pub fn is_copy(mount: &Mount, original: &Mount) -> bool {
    let (at, original_at) = (mount.mount_point.as_bytes(), original.mount_point.as_bytes());
    mount.dev == original.dev && mount.root == original.root && at.ends_with(original_at)
}

fn find_open_kind(process: &Path, what: &OpenTarget, seen: &[MatchingMount]) -> Option<OpenKind> {
    let link = |name: &str| {
        std::fs::read_link(process.join(name)).ok().map(|path| HostPath::from(path.as_path()))
    };
    let below = |path: &HostPath| {
        seen.iter().any(|mount| {
            mount.mount_point.as_bytes() != b"/" && path.strip_prefix(&mount.mount_point).is_some()
        })
    };
    for name in ["cwd", "root"] {
        if let Some(path) = link(name).filter(below) {
            return Some(OpenKind::WorkingDirectory(path));
        }
    }
    if let Some(path) = link("exe").filter(below) {
        return Some(OpenKind::Executable(path));
    }
    let entries = std::fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_FDS_PER_PROCESS);
    for entry in entries {
        let Ok(path) = std::fs::read_link(entry.path()).map(|path| HostPath::from(path.as_path()))
        else {
            continue;
        };
        if what.node.as_ref() == Some(&path) {
            return Some(OpenKind::OpenFile(path));
        }
        if seen.is_empty() {
            continue;
        }
        let info = std::fs::read_to_string(process.join("fdinfo").join(entry.file_name()))
            .unwrap_or_default();
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:"))
            .and_then(|id| id.trim().parse::<u32>().ok());
        if id.is_some_and(|id| seen.iter().any(|mount| mount.id == id)) {
            return Some(OpenKind::OpenFile(path));
        }
    }
    if seen.is_empty() {
        return None;
    }
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    // The filesystem of a directory that is mounted again is in use at many other places.
    let is_there = |path: &HostPath| what.mount_point.is_none() || below(path);
    find_mapping(&maps, what.dev, is_there)
}

/// proc_pid_maps(5): `55d0…-55d0… r--p 00000000 07:03 12 /x/y`; the device number is hexadecimal.
fn find_mapping(maps: &[u8], dev: DevNo, is_there: impl Fn(&HostPath) -> bool) -> Option<OpenKind> {
    let wanted = format!("{:02x}:{:02x}", dev.major, dev.minor);
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        if fields.nth(3)? != wanted.as_bytes() {
            return None;
        }
        let path = HostPath::new(fields.nth(1).unwrap_or_default().trim_ascii());
        is_there(&path).then_some(OpenKind::MemoryMap(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two directories of one filesystem, and one of them mounted twice.
    const HOST: &str = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                        40 20 7:3 /a /pods/a\\040b rw - ext4 /dev/loop3 rw\n\
                        41 20 7:3 /a /staged/a rw - ext4 /dev/loop3 rw\n\
                        42 20 7:3 /b /staged/b rw - ext4 /dev/loop3 rw\n";

    fn what(at: Option<&str>) -> OpenTarget {
        OpenTarget {
            dev: DevNo::new(7, 3),
            mount_point: at.map(HostPath::from),
            node: None,
            pod_uid: None,
        }
    }

    fn table(lines: &str) -> Vec<Mount> {
        let (mounts, invalid) = parse(lines.as_bytes());
        assert_eq!(invalid, Vec::<String>::new());
        mounts
    }

    fn elsewhere(mounts: &str, what: &OpenTarget) -> Vec<(u32, bool)> {
        mounts_elsewhere(&table(mounts), &table(HOST), what)
            .iter()
            .map(|seen| (seen.id, seen.is_own))
            .collect()
    }

    #[test]
    fn of_the_hosts_mounts_the_one_at_the_path_counts() {
        let ids = |at| {
            mounts_at_home(&table(HOST), &what(at)).iter().map(|seen| seen.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(Some("/pods/a b")), [40]);
        assert_eq!(ids(None), [40, 41, 42]);
    }

    #[test]
    fn a_containers_own_mount_of_the_directory_or_below_it_counts() {
        let own = "90 80 7:3 /a /data rw - ext4 /dev/loop3 rw\n\
                   91 80 7:3 /a/sub /sub rw - ext4 /dev/loop3 rw\n";
        let both = [(90, true), (91, true)];
        assert_eq!(elsewhere(own, &what(Some("/pods/a b"))), both);
        assert_eq!(elsewhere(own, &what(None)), both);
    }

    #[test]
    fn another_directory_of_the_same_filesystem_in_a_container_is_another_mount() {
        let other = "90 80 7:3 /b /data rw - ext4 /dev/loop3 rw\n\
                     91 80 7:3 / /host rw - ext4 /dev/loop3 rw\n\
                     92 80 7:3 /ab /ab rw - ext4 /dev/loop3 rw\n";
        assert_eq!(elsewhere(other, &what(Some("/pods/a b"))), []);
        assert_eq!(elsewhere(other, &what(Some("/staged/b"))), [(90, true)]);
        // The mount is gone meanwhile: which directory it was is unknown.
        assert_eq!(elsewhere(other, &what(Some("/pods/gone"))).len(), 3);
    }

    #[test]
    fn copies_of_the_hosts_mounts_are_no_mounts_of_a_containers_own() {
        let copies = "90 80 7:3 /a /host/pods/a\\040b rw - ext4 /dev/loop3 rw\n\
                      91 80 7:3 /a /host/staged/a rw - ext4 /dev/loop3 rw\n\
                      92 80 7:3 /a /staged/b rw - ext4 /dev/loop3 rw\n";
        // Open files in a copy keep the mount all the same. The last is at the path of another one.
        let expected = [(90, false), (91, false), (92, true)];
        assert_eq!(elsewhere(copies, &what(Some("/pods/a b"))), expected);
    }

    /// A container with the directory of `/pods/a b` at /data, in this control group.
    fn container_in(group: &str, pod_uid: Option<&str>) -> Vec<Opener> {
        let host = tempfile::tempdir().unwrap();
        let data = "90 80 7:3 /a /data rw - ext4 /dev/loop3 rw\n";
        for (pid, group, namespace, mounts) in
            [(1, "/", "mnt:[1]", HOST), (4_000_100, group, "mnt:[2]", data)]
        {
            let process = host.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(process.join("ns")).unwrap();
            std::os::unix::fs::symlink(namespace, process.join("ns/mnt")).unwrap();
            std::fs::write(process.join("mountinfo"), mounts).unwrap();
            std::fs::write(process.join("cgroup"), format!("0::{group}\n")).unwrap();
            std::fs::write(process.join("comm"), "mysqld\n").unwrap();
        }
        let mut what = what(Some("/pods/a b"));
        what.pod_uid = pod_uid.map(str::to_owned);
        find_openers(&HostRoot::new(host.path()), &what)
    }

    #[test]
    fn a_container_of_another_pod_has_a_mount_of_its_own() {
        let group = "/kubepods.slice/kubepods-podu1_2.slice/cri-containerd-1.scope";
        let named = [Opener {
            pid: 4_000_100,
            comm: "mysqld".into(),
            kind: OpenKind::MountedElsewhere("/data".into()),
        }];
        assert_eq!(container_in(group, Some("u1-2")), named);
        assert_eq!(container_in(group, None), named);
        assert_eq!(container_in("/user.slice", Some("u1-2")), named);
        assert_eq!(container_in(group, Some("u3")), []);
        // A kubelet in a pod.
        let nested = "/kubepods/podouter/cgroup/kubepods/besteffort/podu1-2/1";
        assert_eq!(container_in(nested, Some("u1-2")), named);
        assert_eq!(container_in(nested, Some("outer")), named);
    }

    #[test]
    fn a_mapping_is_known_by_the_number_of_its_device() {
        let maps = b"7f00-7f10 r--p 00000000 fe:01 12                         /lib/x\n7f20-7f30 rw-s 00000000 07:03 13    /staged/a b\n";
        let any = |_: &HostPath| true;
        assert_eq!(
            find_mapping(maps, DevNo::new(7, 3), any),
            Some(OpenKind::MemoryMap("/staged/a b".into()))
        );
        assert_eq!(find_mapping(maps, DevNo::new(7, 4), any), None);
        // A library on the same filesystem does not keep a mount of one of its directories.
        let is_there = |path: &HostPath| path.strip_prefix(&"/pods/x".into()).is_some();
        assert_eq!(find_mapping(maps, DevNo::new(7, 3), is_there), None);
    }

    #[test]
    fn openers_are_summarized_in_one_line() {
        let open =
            Opener { pid: 812, comm: "mysqld".into(), kind: OpenKind::OpenFile("/x/y".into()) };
        let works =
            Opener { pid: 900, comm: "bash".into(), kind: OpenKind::WorkingDirectory("/x".into()) };
        assert_eq!(
            summary(&[open, works]).unwrap(),
            "812 (mysqld) has /x/y open, 900 (bash) works in /x"
        );
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn a_child_with_an_open_device_node_is_found() {
        #[expect(clippy::disallowed_methods, reason = "somebody who holds a file open")]
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("1000")
            .stdin(std::fs::File::open("/dev/zero").unwrap())
            .spawn()
            .unwrap();
        let what = OpenTarget {
            dev: DevNo::new(7, 250),
            mount_point: None,
            node: Some("/dev/zero".into()),
            pod_uid: None,
        };
        let found = find_openers(&HostRoot::new("/"), &what);
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = child.id();
        assert!(
            found
                .iter()
                .any(|holder| holder.pid == pid
                    && holder.kind == OpenKind::OpenFile("/dev/zero".into())),
            "{found:?}"
        );
    }
}
