//! What holds pods: mounts of their volumes in any mount namespace, and processes in their control
//! groups. The proof that a node has nothing left of a pod needs both.
//!
//! In: uids of pods. Out: one entry per hold. Only /proc is read, because a mount may hang. What
//! cannot be read is an error, unless its process has ended: an empty result is a proof.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::host::openers::{OpenKind, OpenTarget, find_openers, is_copy, pods_of_groups};
use crate::host::root::HostRoot;
use crate::model::clean_order::{HoldKind, PodHold};
use crate::model::mount::{Mount, parse};
use crate::provision::worker::error::StepWorkerError;

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
    pod_uids: &[String],
) -> Result<Vec<PodHold>, StepWorkerError> {
    let pods: BTreeSet<&str> = pod_uids.iter().map(String::as_str).collect();
    let mut found = Holds::default();
    let host = read_mounts(&root.at("/proc/1/mountinfo"))
        .map_err(|error| StepWorkerError::io("reading /proc/1/mountinfo", error))?;
    for mount in &host {
        if let Some(uid) = pod_of(mount).filter(|uid| pods.contains(uid)) {
            found.add(uid, HoldKind::Mount, mount.mount_point.to_string());
        }
    }
    let home = std::fs::read_link(root.at("/proc/1/ns/mnt")).ok();
    let mut namespaces = BTreeSet::from_iter(home);
    let entries = std::fs::read_dir(root.at("/proc"))
        .map_err(|error| StepWorkerError::io("reading /proc", error))?;
    for entry in entries {
        let entry = entry.map_err(|error| StepWorkerError::io("reading /proc", error))?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let process = entry.path();
        let reading =
            |what: &str, error| StepWorkerError::io(format!("reading /proc/{pid}/{what}"), error);
        let groups = of_process(std::fs::read(process.join("cgroup")))
            .map_err(|error| reading("cgroup", error))?;
        for uid in groups.as_deref().map(pods_of_groups).unwrap_or_default() {
            if pods.contains(uid.as_str()) {
                let text = format!("{pid} ({}) runs in its container", command(&process));
                found.add(&uid, HoldKind::Process, text);
            }
        }
        let namespace = of_process(std::fs::read_link(process.join("ns/mnt")))
            .map_err(|error| reading("ns/mnt", error))?;
        let Some(namespace) = namespace.filter(|it| !namespaces.contains(it)) else {
            continue;
        };
        let mounts = of_process(read_mounts(&process.join("mountinfo")))
            .map_err(|error| reading("mountinfo", error))?;
        // Its last process has ended; another one of the same namespace is asked.
        let Some(mounts) = mounts else { continue };
        namespaces.insert(namespace);
        for mount in &mounts {
            let Some(uid) = pod_of(mount).filter(|uid| pods.contains(uid)) else {
                continue;
            };
            if !host.iter().any(|there| is_copy(mount, there)) {
                let (comm, at) = (command(&process), &mount.mount_point);
                let text =
                    format!("{pid} ({comm}) has it mounted at {at} in a namespace of its own");
                found.add(uid, HoldKind::MountElsewhere, text);
            }
        }
    }
    add_openers(root, &host, &pods, &mut found);
    found.0.sort();
    Ok(found.0)
}

/// Who uses a mount of a pod none of whose containers runs, for people: why the kubelet does not get
/// rid of it.
fn add_openers(root: &HostRoot, host: &[Mount], pods: &BTreeSet<&str>, found: &mut Holds) {
    let is_kept = |uid: &str| {
        let mut holds = found.0.iter();
        holds.any(|hold| hold.pod_uid == uid && hold.kind == HoldKind::Process)
    };
    let idle = host.iter().filter_map(|mount| {
        let uid = pod_of(mount).filter(|uid| pods.contains(uid) && !is_kept(uid))?;
        Some((uid, mount))
    });
    let idle: Vec<(&str, &Mount)> = idle.take(MAX_EXAMINED).collect();
    for (uid, mount) in idle {
        let what = OpenTarget {
            dev: mount.dev,
            mount_point: Some(mount.mount_point.clone()),
            node: None,
            pod_uid: Some(uid.to_owned()),
        };
        for opener in find_openers(root, &what) {
            // A container may have a mount of its own in the same filesystem. Mounts in other
            // namespaces were found above.
            let is_there = opener.kind.path().to_string().contains(uid);
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
            self.0.push(PodHold {
                pod_uid: uid.to_owned(),
                kind,
                detail,
            });
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

fn read_mounts(path: &Path) -> io::Result<Vec<Mount>> {
    let (mounts, invalid) = parse(&std::fs::read(path)?);
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
    [&mount.mount_point, &mount.root]
        .into_iter()
        .find_map(|path| {
            let parts: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
            let uid = (0..parts.len()).find_map(|at| match &parts[at..] {
                [b"pods", uid, b"volumes", plugin, _, ..] if !is_node_local(plugin) => Some(*uid),
                [b"pods", uid, b"volume-subpaths", ..] if !is_node_local_subpath(mount) => {
                    Some(*uid)
                }
                [b"pods", uid, b"volumeDevices", _, ..]
                | [b"volumeDevices", b"publish", _, uid] => Some(*uid),
                _ => None,
            })?;
            std::str::from_utf8(uid).ok()
        })
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
