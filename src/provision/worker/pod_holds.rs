//! What holds pods: mounts of their volumes in any mount namespace, and processes in their control
//! groups. The proof that a node has nothing left of a pod needs both.
//!
//! In: uids of pods. Out: one entry per hold. Only /proc is read, because a mount may hang. What
//! cannot be read is an error, unless its process has ended: an empty result is a proof. Users can
//! neither make a hold nor prevent the answer: in namespaces and control groups that they name,
//! `places` decides, and their tables of mounts have bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::worker::error::StepWorkerError;
use diskvitals_finding::mount::{Mount, parse};
use diskvitals_finding::path::HostPath;
use diskvitals_host::mount_tables::UsersTables;
use diskvitals_host::openers::{OpenKind, OpenTarget, find_openers, is_copy, pods_of_groups};
use diskvitals_host::root::HostRoot;
use diskvitals_model::clean_order::{HoldKind, PodHold, PodHolds};
use diskvitals_model::graph::mounts::user_of;

mod places;

use places::{Places, Table};

/// Holds of one kind that are named for one pod.
const MAX_NAMED: usize = 4;
/// Mounts whose users are looked for: each reads /proc of all processes.
const MAX_EXAMINED: usize = 8;
/// Plugins whose volumes exist on this node only, and end with their pod.
const NODE_LOCAL_PLUGINS: [&[u8]; 5] = [
    b"kubernetes.io~configmap",
    b"kubernetes.io~downward-api",
    b"kubernetes.io~empty-dir",
    b"kubernetes.io~projected",
    b"kubernetes.io~secret",
];

pub(crate) fn holds_of_pods(
    root: &HostRoot,
    kubelet_root: &HostPath,
    pod_uids: &[String],
) -> Result<PodHolds, StepWorkerError> {
    let pods: BTreeSet<&str> = pod_uids.iter().map(String::as_str).collect();
    let mut found = Holds::default();
    let host = std::fs::read(root.at("/proc/1/mountinfo"))
        .and_then(|text| parse_all(&text))
        .map_err(|error| StepWorkerError::io("reading /proc/1/mountinfo", error))?;
    let places = Places::new(kubelet_root, &host);
    let of_host: Vec<(String, &Mount)> = {
        let table = Table::new(&host);
        let of_pods = host.iter().filter_map(|mount| {
            let uid = trusted_pod_of(mount, &places, &table)?;
            pods.contains(uid.as_str()).then_some((uid, mount))
        });
        of_pods.collect()
    };
    for (uid, mount) in &of_host {
        found.add(uid, HoldKind::Mount, mount.mount_point.to_string());
    }
    let mut tables = UsersTables::new(root);
    let namespaces = list_namespaces(root, &tables, &pods, &mut found)?;
    let mut not_read = Vec::new();
    for namespace in &namespaces {
        let Some((pid, mounts)) = namespace.read(root, &mut tables, &mut not_read)? else {
            continue;
        };
        let table = Table::new(&mounts);
        for mount in &mounts {
            let uid = match namespace.maker {
                Maker::Root => trusted_pod_of(mount, &places, &table),
                Maker::Runtime | Maker::User => places.pod_of(mount, &table),
            };
            let Some(uid) = uid.filter(|uid| pods.contains(uid.as_str())) else {
                continue;
            };
            if !host.iter().any(|there| is_copy(mount, there)) {
                let (comm, at) = (command(&root.at(format!("/proc/{pid}"))), &mount.mount_point);
                let text =
                    format!("{pid} ({comm}) has it mounted at {at} in a namespace of its own");
                found.add(&uid, HoldKind::MountElsewhere, text);
            }
        }
    }
    add_openers(root, &of_host, &mut found);
    found.0.sort();
    let more = not_read.len().saturating_sub(MAX_NAMED);
    not_read.truncate(MAX_NAMED);
    not_read.extend((more > 0).then(|| format!("{more} more")));
    Ok(PodHolds { holds: found.0, not_read })
}

/// Who can have made the mounts of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Maker {
    /// A program of the host, as root: a path is as good as in the host's own namespace.
    Root,
    /// A container runtime: paths are as the pod says.
    Runtime,
    /// Anybody: a user namespace.
    User,
}

/// A mount namespace, other than the host's, as the processes with this root see it.
struct Namespace {
    maker: Maker,
    processes: Vec<u32>,
}

/// Adds the processes in control groups of the pods to `found`.
fn list_namespaces(
    root: &HostRoot,
    tables: &UsersTables,
    pods: &BTreeSet<&str>,
    found: &mut Holds,
) -> Result<Vec<Namespace>, StepWorkerError> {
    let home = std::fs::read_link(root.at("/proc/1/ns/mnt")).ok();
    // The host itself may be in a control group of a pod, or of a user. A kernel without control groups
    // has no such file.
    let init = of_process(std::fs::read(root.at("/proc/1/cgroup")))
        .map_err(|error| StepWorkerError::io("reading /proc/1/cgroup", error))?
        .unwrap_or_default();
    let mut namespaces: BTreeMap<(PathBuf, PathBuf), Namespace> = BTreeMap::new();
    let entries = std::fs::read_dir(root.at("/proc"))
        .map_err(|error| StepWorkerError::io("reading /proc", error))?;
    for entry in entries {
        let entry = entry.map_err(|error| StepWorkerError::io("reading /proc", error))?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let process = entry.path();
        let groups = of_process(std::fs::read(process.join("cgroup")))
            .map_err(|error| reading(pid, "cgroup", error))?;
        let its_pods = pods_of_process(&groups.unwrap_or_default(), &init);
        for uid in its_pods.iter().filter(|uid| pods.contains(uid.as_str())) {
            let text = format!("{pid} ({}) runs in its container", command(&process));
            found.add(uid, HoldKind::Process, text);
        }
        let namespace = of_process(std::fs::read_link(process.join("ns/mnt")))
            .map_err(|error| reading(pid, "ns/mnt", error))?;
        let Some(namespace) = namespace.filter(|it| home.as_ref() != Some(it)) else {
            continue;
        };
        // A process in a chroot does not see all mounts. Without the link it has ended.
        let its_root = std::fs::read_link(process.join("root")).unwrap_or_default();
        let maker = match its_pods.is_empty() {
            _ if tables.is_of_user(&process) => Maker::User,
            true => Maker::Root,
            false => Maker::Runtime,
        };
        let namespace = namespaces
            .entry((namespace, its_root))
            .or_insert(Namespace { maker, processes: Vec::new() });
        // Nobody without root's rights has a process of the host in a namespace of his own. The
        // reverse is usual: a sandbox in a namespace that root has made.
        namespace.maker = match (namespace.maker, maker) {
            (Maker::User, other) | (other, Maker::User) => other,
            (one, other) => one.max(other),
        };
        namespace.processes.push(pid);
    }
    let mut namespaces: Vec<Namespace> = namespaces.into_values().collect();
    namespaces.sort_by_key(|namespace| namespace.maker);
    Ok(namespaces)
}

impl Namespace {
    /// The mounts, and the process that has them; None if all its processes have ended.
    fn read(
        &self,
        root: &HostRoot,
        tables: &mut UsersTables,
        not_read: &mut Vec<String>,
    ) -> Result<Option<(u32, Vec<Mount>)>, StepWorkerError> {
        for &pid in &self.processes {
            let process = root.at(format!("/proc/{pid}"));
            if self.maker != Maker::User {
                let read = std::fs::read(process.join("mountinfo"));
                let mounts = of_process(read.and_then(|text| parse_all(&text)))
                    .map_err(|error| reading(pid, "mountinfo", error))?;
                match mounts {
                    Some(mounts) => return Ok(Some((pid, mounts))),
                    None => continue,
                }
            }
            let why = match of_process(tables.read(&process)) {
                Ok(None) => continue,
                Ok(Some((text, is_complete))) => {
                    if !is_complete {
                        not_read.push(format!("{pid} ({}) has too many mounts", command(&process)));
                    }
                    return Ok(Some((pid, parse(&text).0)));
                }
                Err(error) => error,
            };
            not_read.push(format!("{pid} ({}): {why}", command(&process)));
        }
        Ok(None)
    }
}

fn reading(pid: u32, what: &str, error: io::Error) -> StepWorkerError {
    StepWorkerError::io(format!("reading /proc/{pid}/{what}"), error)
}

/// The pods that a process is of. A user names control groups below `user.slice`, and a container
/// those below its own, as he likes: the outermost pod counts, unless the host itself is in it.
fn pods_of_process(groups: &[u8], init: &[u8]) -> BTreeSet<String> {
    let is_of_user = |groups: &[u8]| {
        let mut parts = groups.split(|byte| matches!(byte, b'/' | b'\n'));
        parts.any(|part| part == b"user.slice")
    };
    let (outer, has_user) = (pods_of_groups(init), is_of_user(init));
    let lines = groups.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| has_user || !is_of_user(line));
    let mut found = BTreeSet::new();
    for line in lines {
        for part in line.split(|byte| *byte == b'/') {
            let pods = pods_of_groups(part);
            let pods: BTreeSet<&String> = pods.difference(&outer).collect();
            let is_pod = pods.iter().any(|uid| is_generated(uid));
            found.extend(pods.into_iter().cloned());
            if is_pod {
                break;
            }
        }
    }
    found
}

/// The uid of an object, or the hash of a static pod. Other groups can have names with `pod` in them: a
/// kubelet's `--cgroup-root=/pods`.
fn is_generated(uid: &str) -> bool {
    uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Who uses a mount of a pod none of whose containers runs, for people: why the kubelet does not get
/// rid of it.
fn add_openers(root: &HostRoot, of_host: &[(String, &Mount)], found: &mut Holds) {
    let is_kept = |uid: &str| {
        let mut holds = found.0.iter();
        holds.any(|hold| hold.pod_uid == uid && hold.kind == HoldKind::Process)
    };
    let idle = of_host.iter().filter(|(uid, _)| !is_kept(uid));
    let idle: Vec<&(String, &Mount)> = idle.take(MAX_EXAMINED).collect();
    for (uid, mount) in idle {
        let what = OpenTarget {
            dev: mount.dev,
            mount_point: Some(mount.mount_point.clone()),
            node: None,
            pod_uid: Some(uid.clone()),
        };
        for opener in find_openers(root, &what) {
            // A container may have a mount of its own in the same filesystem. Mounts in other
            // namespaces were found above.
            let is_there = opener.kind.path().to_string().contains(uid.as_str());
            if is_there && !matches!(opener.kind, OpenKind::MountedElsewhere(_)) {
                found.add(uid, HoldKind::Opener, opener.to_string());
            }
        }
    }
}

#[derive(Default)]
struct Holds(Vec<PodHold>);

impl Holds {
    fn add(&mut self, uid: &str, kind: HoldKind, detail: String) {
        let same = |hold: &&PodHold| hold.pod_uid == uid && hold.kind == kind;
        if self.0.iter().filter(same).any(|hold| hold.detail == detail) {
            return;
        }
        // Each mount counts: it is compared with the attachments.
        if kind == HoldKind::Mount || self.0.iter().filter(same).count() < MAX_NAMED {
            self.0.push(PodHold { pod_uid: uid.to_owned(), kind, detail });
        }
    }
}

/// None: the process has ended. A zombie has no mounts (EINVAL).
fn of_process<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    let ended = [Errno::ENOENT, Errno::ESRCH, Errno::EINVAL].map(|errno| errno as i32);
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error().is_some_and(|it| ended.contains(&it)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_all(text: &[u8]) -> io::Result<Vec<Mount>> {
    let (mounts, invalid) = parse(text);
    match invalid.into_iter().next() {
        None => Ok(mounts),
        // A mount that cannot be read may be one of the pod's.
        Some(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
    }
}

fn command(process: &Path) -> String {
    // It is only a name for people.
    let comm = std::fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

/// The pod of a mount that may be of a volume which another node can reach: by its place below the
/// kubelet's directory, or, for a bind mount, by its place in its filesystem.
pub(super) fn pod_of(mount: &Mount) -> Option<&str> {
    pod_at(&mount.mount_point, mount).or_else(|| pod_at(&mount.root, mount))
}

/// Where only root can mount, or users their own FUSE filesystems: also by the path alone, because
/// a kubelet may have its directory in a namespace of its own.
fn trusted_pod_of(mount: &Mount, places: &Places, table: &Table<'_>) -> Option<String> {
    let by_path = || pod_at(&mount.mount_point, mount).filter(|_| user_of(mount).is_none());
    places.pod_of(mount, table).or_else(|| by_path().map(str::to_owned))
}

fn pod_at<'a>(path: &'a HostPath, mount: &Mount) -> Option<&'a str> {
    let parts = split(path.as_bytes());
    let uid = (0..parts.len()).find_map(|at| parse_place(&parts[at..], mount))?;
    std::str::from_utf8(uid).ok()
}

fn split(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').collect()
}

/// The uid in a path that begins with the kubelet's directory `pods` or `volumeDevices`.
fn parse_place<'a>(parts: &[&'a [u8]], mount: &Mount) -> Option<&'a [u8]> {
    match parts {
        [b"pods", uid, b"volumes", plugin, _, ..] if !is_node_local(plugin) => Some(uid),
        [b"pods", uid, b"volume-subpaths", ..] if !is_node_local_subpath(mount) => Some(uid),
        [b"pods", uid, b"volumeDevices", _, ..] | [b"volumeDevices", b"publish", _, uid, ..] => {
            Some(uid)
        }
        _ => None,
    }
}

fn is_node_local(plugin: &[u8]) -> bool {
    NODE_LOCAL_PLUGINS.contains(&plugin)
}

/// A directory of such a volume for one container. A tmpfs is memory of this node.
fn is_node_local_subpath(mount: &Mount) -> bool {
    let mut root = mount.root.as_bytes().split(|byte| *byte == b'/');
    mount.fs_type == "tmpfs" || root.any(is_node_local)
}

#[cfg(test)]
mod tests;
