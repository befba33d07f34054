//! Opens a file that decides what this process does (its configuration, a secret, a program that it
//! starts) only if nobody but root and the process's own user may change it, as sshd does
//! (auth_secure_path(), misc.c of OpenSSH).
//!
//! In: a path. Out: the open file, or which file or directory others may change, and what to do. What
//! was opened is judged, never a path: each directory and link on the way is opened and looked at
//! before the next step, so nobody can exchange one in between.
//!
//! The group's bit for writing covers access control lists too: where a file has one, the bit shows its
//! mask, the most that any entry but the owner's grants (acl(5)).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstatat};

/// The shipped file has about 10 KiB, most of it comments.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// As path_resolution(7).
const MAX_LINKS: usize = 40;
/// Of passwd(5) and group(5).
const MAX_DATABASE: u64 = 16 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TrustError {
    #[error(
        "{} belongs to uid {owner} (mode {mode:04o}), who could change what this process does: give it to root (`chown root {}`), or run this as that user if it is the service's own",
        path.display(), path.display()
    )]
    Owner { path: PathBuf, owner: u32, mode: u32 },
    #[error(
        "{} belongs to a user outside this process's user namespace (shown as uid {owner}), who could change what this process does: run this without a user namespace of its own (a pod: `hostUsers: true`), or mount the file with that namespace's ids",
        path.display()
    )]
    Unmapped { path: PathBuf, owner: u32 },
    #[error(
        "{} has mode {mode:04o} (owner uid {owner}, gid {group}), so that others could change what this process does: take their right to write (`chmod go-w {}`)",
        path.display(), path.display()
    )]
    Writable { path: PathBuf, owner: u32, group: u32, mode: u32 },
}

/// Opens it for reading. An error of kind `PermissionDenied` with a `TrustError` inside: others may
/// change it.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, &Trusted::of_this_process())
}

/// Whether others may change the program. Its script's interpreter and its libraries are the system's.
pub fn check_program(path: &Path) -> io::Result<()> {
    walk(path, &Trusted::of_this_process()).map(drop)
}

fn open_as(path: &Path, trusted: &Trusted) -> io::Result<File> {
    let found = walk(path, trusted)?;
    // Through the descriptor: the same file, whatever the path leads to now. Opening a FIFO must not wait
    // for its other end.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found)))?;
    // The content of a pipe may come later.
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// Who may own and change such files.
#[derive(Clone, Debug)]
struct Trusted {
    users: BTreeSet<u32>,
    /// Groups of this process.
    groups: BTreeSet<u32>,
    /// In a user namespace: the uid that all users outside appear as.
    outside: Option<u32>,
    passwd: PathBuf,
    group: PathBuf,
}

impl Trusted {
    /// Root, this process's user and, of a process that was started by sudo, the user who may do so:
    /// a developer's own checkout.
    fn of_this_process() -> Trusted {
        let euid = nix::unistd::geteuid();
        let sudo = std::env::var("SUDO_UID").ok();
        let sudo = sudo.filter(|_| euid.is_root()).and_then(|uid| uid.parse().ok());
        let further = nix::unistd::getgroups().unwrap_or_default();
        Trusted {
            users: [0, euid.as_raw()].into_iter().chain(sudo).collect(),
            groups: further
                .into_iter()
                .chain([nix::unistd::getegid()])
                .map(nix::unistd::Gid::as_raw)
                .collect(),
            outside: uid_of_outside(),
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
        }
    }

    fn check(&self, path: &Path, found: &Metadata) -> Result<(), TrustError> {
        let (owner, group) = (found.uid(), found.gid());
        let mode = found.mode() & 0o7777;
        if !self.users.contains(&owner) {
            if self.outside == Some(owner) {
                let path = path.to_owned();
                return Err(TrustError::Unmapped { path, owner });
            }
            return Err(TrustError::Owner { path: path.to_owned(), owner, mode });
        }
        // In a sticky directory, only a file's owner may rename or remove it. A link has no mode. What
        // is written to /dev/null is read nowhere.
        let is_sticky = found.is_dir() && mode & libc::S_ISVTX != 0;
        let by_group = mode & 0o020 != 0 && !self.has_only_trusted_members(group);
        let is_plain = found.is_symlink() || found.file_type().is_char_device();
        if is_plain || is_sticky || !(by_group || mode & 0o002 != 0) {
            return Ok(());
        }
        Err(TrustError::Writable { path: path.to_owned(), owner, group, mode })
    }

    /// root's group, a user's private group, and a group without a name that this process has: that of a
    /// pod (fsGroup).
    fn has_only_trusted_members(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        let read = |path: &Path| {
            let mut text = Vec::new();
            match File::open(path) {
                Ok(file) => {
                    io::Read::read_to_end(&mut io::Read::take(file, MAX_DATABASE), &mut text)?;
                }
                // An image without users.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            Ok::<_, io::Error>(String::from_utf8_lossy(&text).into_owned())
        };
        let (Ok(users), Ok(groups)) = (read(&self.passwd), read(&self.group)) else {
            return false;
        };
        let number = |field: Option<&&str>| field.and_then(|text| text.parse::<u32>().ok());
        let mut named = false;
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for line in users.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let is_trusted = number(fields.get(2)).is_some_and(|uid| self.users.contains(&uid));
            if is_trusted {
                names.extend(fields.first());
            } else if number(fields.get(3)) == Some(group) {
                return false;
            }
        }
        for line in groups.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if number(fields.get(2)) != Some(group) {
                continue;
            }
            named = true;
            let members = fields.get(3).copied().unwrap_or_default();
            let mut members = members.split(',').filter(|name| !name.is_empty());
            if !members.all(|name| names.contains(name)) {
                return false;
            }
        }
        named || self.groups.contains(&group)
    }
}

/// Goes to the file from `/`, and follows links as the kernel does. Out: the file, opened with O_PATH.
fn walk(path: &Path, trusted: &Trusted) -> io::Result<File> {
    let mut rest: Vec<OsString> = steps(&std::path::absolute(path)?);
    let (mut at, mut dirs) = (PathBuf::from("/"), vec![root()?]);
    judge(&at, &dirs[0], None, trusted)?;
    let mut links = 0;
    while let Some(step) = rest.pop() {
        if step == ".." {
            at.pop();
            match dirs.as_slice() {
                // `/`, or where a link of procfs led to.
                [only] => {
                    let above = step_to(only, &step, OFlag::O_DIRECTORY)?;
                    judge(&at, &above, None, trusted)?;
                    dirs = vec![above];
                }
                _ => drop(dirs.pop()),
            }
            continue;
        }
        let Some(dir) = dirs.last() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let next = at.join(&step);
        let mut file = step_to(dir, &step, OFlag::O_NOFOLLOW)?;
        if !rest.is_empty() && file.metadata()?.is_dir() {
            // This mounts what is mounted on demand (autofs).
            file = step_to(dir, &step, OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY)?;
        }
        let found = judge(&next, &file, Some(dir), trusted)?;
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(nix::errno::Errno::ELOOP.into());
            }
            if leads_to_a_file(dir)? {
                let file = step_to(dir, &step, OFlag::empty())?;
                judge(&next, &file, None, trusted)?;
                at = next;
                dirs = vec![file];
                continue;
            }
            let target = readlinkat(&file, OsStr::new(""))?;
            if target.as_bytes().first() == Some(&b'/') {
                at = PathBuf::from("/");
                dirs = vec![root()?];
            }
            rest.extend(steps(Path::new(&target)));
        } else {
            at = next;
            dirs.push(file);
        }
    }
    dirs.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir))
        .map(|step| step.as_os_str().to_owned())
        .collect()
}

fn root() -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open("/")
}

fn step_to(dir: &File, step: &OsStr, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
    Ok(File::from(openat(dir, step, flags, Mode::empty())?))
}

/// Whether links in this directory lead to an open file or directory (/proc/PID/fd/N, exe, root), not to
/// the path that they show: it may have none (`pipe:[7]`, `/x (deleted)`), or one of another mount
/// namespace. Only links at the root of procfs (`self`) are as others are.
fn leads_to_a_file(dir: &File) -> io::Result<bool> {
    const PROC_ROOT_INODE: u64 = 1;
    let is_procfs =
        nix::sys::statfs::fstatfs(dir)?.filesystem_type() == nix::sys::statfs::PROC_SUPER_MAGIC;
    Ok(is_procfs && dir.metadata()?.ino() != PROC_ROOT_INODE)
}

/// `above`: the directory that it was reached from.
fn judge(
    path: &Path,
    file: &File,
    above: Option<&File>,
    trusted: &Trusted,
) -> io::Result<Metadata> {
    let found = file.metadata()?;
    match trusted.check(path, &found) {
        Err(TrustError::Writable { .. })
            if found.is_dir() && above.is_some_and(|above| is_config_map(file, above, trusted)) =>
        {
            Ok(found)
        }
        // A memfd has mode 0777, and no path: only who has its descriptor can change it.
        Err(TrustError::Writable { .. }) if is_memfd(&found) => Ok(found),
        Err(error) => Err(io::Error::new(io::ErrorKind::PermissionDenied, error)),
        Ok(()) => Ok(found),
    }
}

/// The kubelet mounts a ConfigMap read-only, each as a mount of its own. Its directory has mode 0777, and
/// users cannot reach it elsewhere. A read-only mount alone proves nothing: in a hardened unit all are.
fn is_config_map(dir: &File, above: &File, trusted: &Trusted) -> bool {
    use nix::sys::statvfs::{FsFlags, fstatvfs};
    let is_read_only = fstatvfs(dir).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
    let is_mount = mount_id(dir).zip(mount_id(above)).is_some_and(|(own, outer)| own != outer);
    // Its current content. In any other such directory, users can make a link of this name, and not
    // give it to root.
    let is_link_of_root = |found: FileStat| {
        found.st_mode & libc::S_IFMT == libc::S_IFLNK && trusted.users.contains(&found.st_uid)
    };
    is_read_only
        && is_mount
        && fstatat(dir, "..data", AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(is_link_of_root)
}

/// All memfds are in one filesystem, which is mounted nowhere (shmem_init(), mm/shmem.c).
fn is_memfd(found: &Metadata) -> bool {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let any = memfd_create("compared", MFdFlags::MFD_CLOEXEC);
    any.is_ok_and(|any| File::from(any).metadata().is_ok_and(|any| any.dev() == found.dev()))
}

/// The mount that it was reached by (proc_pid_fdinfo(5)).
fn mount_id(file: &File) -> Option<u64> {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

/// None: in the first user namespace, or one like it (user_namespaces(7)).
fn uid_of_outside() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    let uid = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    uid.trim().parse().ok()
}

pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bounded(path)?).map_err(|_| io::Error::other("the file is not UTF-8"))
}

/// The content of a file of at most `MAX_FILE_BYTES` that nobody else may change.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("the file is larger than 1 MiB, so it is no configuration"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
