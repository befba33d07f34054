//! Mounts by descriptors: fsopen(2), fsconfig(2), fsmount(2), open_tree(2), mount_setattr(2),
//! move_mount(2) (since 5.2, mount_setattr 5.12).
//!
//! Unlike with mount(2), the target is a descriptor, so no path is resolved twice; the mount is
//! complete, including read-only, before it is visible; and the kernel reports as text why it
//! refused (the log of the context). In: descriptors, names and options. Out: mounts, or errors.
//! Options are interpreted only as far as different kernel calls take them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::resolve_beneath::ResolvedPath;
use crate::sys;
use diskvitals_finding::path::HostPath;

/// MOUNT_ATTR_ of linux/mount.h.
const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEV: u64 = 0x4;
const NO_EXEC: u64 = 0x8;
const NO_ATIME: u64 = 0x10;
const STRICT_ATIME: u64 = 0x20;
const NO_DIR_ATIME: u64 = 0x80;
const NO_SYMFOLLOW: u64 = 0x0020_0000;
/// Maximum number of kernel messages that are reported.
const MAX_MESSAGES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("`{0}` has a NUL in it")]
    Nul(String),
    #[error("asking the kernel for the filesystem {fs_type}")]
    OpenFsContext {
        fs_type: String,
        #[source]
        source: io::Error,
    },
    #[error("the mount option `{option}` of {fs_type} was refused{said}")]
    Option {
        fs_type: String,
        option: String,
        said: FsContextLog,
        #[source]
        source: io::Error,
    },
    #[error("opening the {fs_type} on {device}{said}")]
    Create {
        fs_type: String,
        device: HostPath,
        said: FsContextLog,
        #[source]
        source: io::Error,
    },
    #[error("{doing} {path}")]
    Call {
        doing: &'static str,
        path: HostPath,
        #[source]
        source: io::Error,
    },
}

/// The kernel's messages about an error.
#[derive(Debug, Default)]
pub struct FsContextLog(Vec<String>);

impl std::fmt::Display for FsContextLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0.join("; ")) }
    }
}

/// A mount that is not attached to any path. Dropping it removes it.
#[derive(Debug)]
pub struct DetachedMount(OwnedFd);

/// The options, separated for the kernel: those of the mount, and those of the filesystem.
#[derive(Debug, PartialEq, Eq)]
struct ParsedOptions<'a> {
    flags: u64,
    filesystem: Vec<&'a str>,
}

/// Some options are flags of the mount or are meant for mount(8); all others are passed to the
/// filesystem.
fn parse_options(options: &[String]) -> ParsedOptions<'_> {
    let mut sorted = ParsedOptions { flags: 0, filesystem: Vec::new() };
    for option in options {
        let (set, clear) = match option.as_str() {
            "nosuid" => (NO_SUID, 0),
            "suid" => (0, NO_SUID),
            "nodev" => (NO_DEV, 0),
            "dev" => (0, NO_DEV),
            "noexec" => (NO_EXEC, 0),
            "exec" => (0, NO_EXEC),
            "noatime" => (NO_ATIME, STRICT_ATIME),
            // The kernel's default.
            "relatime" | "atime" | "nostrictatime" => (0, NO_ATIME | STRICT_ATIME),
            "strictatime" => (STRICT_ATIME, NO_ATIME),
            "nodiratime" => (NO_DIR_ATIME, 0),
            "diratime" => (0, NO_DIR_ATIME),
            "nosymfollow" => (NO_SYMFOLLOW, 0),
            // fstab(5): options for mount(8), not for the kernel.
            "defaults" | "auto" | "noauto" | "_netdev" | "nofail" | "user" | "nouser" | "users"
            | "owner" | "group" | "" => continue,
            comment if comment.starts_with("x-") || comment.starts_with("X-") => continue,
            other => {
                sorted.filesystem.push(other);
                continue;
            }
        };
        sorted.flags = sorted.flags & !clear | set;
    }
    sorted
}

fn c_string(text: &str) -> Result<CString, MountError> {
    CString::new(text).map_err(|_| MountError::Nul(text.to_owned()))
}

/// Mounts the filesystem of a device. Always without device nodes, whatever the options are: a
/// pod's volume must not give access to the host's drives.
pub fn filesystem(
    fs_type: &str,
    device: &HostPath,
    options: &[String],
    read_only: bool,
) -> Result<DetachedMount, MountError> {
    let context = sys::fsopen(&c_string(fs_type)?)
        .map_err(|source| MountError::OpenFsContext { fs_type: fs_type.to_owned(), source })?;
    let sorted = parse_options(options);
    let refused = |option: &str, said, source| MountError::Option {
        fs_type: fs_type.to_owned(),
        option: option.to_owned(),
        said,
        source,
    };
    let configure = |option: &str, what: sys::FsConfigCommand<'_>| {
        sys::fsconfig(context.as_fd(), what)
            .map_err(|source| refused(option, read_context_log(&context), source))
    };
    let path = CString::new(device.as_bytes()).map_err(|_| MountError::Nul(device.to_string()))?;
    configure("source", sys::FsConfigCommand::Value(c"source", &path))?;
    for option in &sorted.filesystem {
        match option.split_once('=') {
            Some((key, value)) => {
                configure(option, sys::FsConfigCommand::Value(&c_string(key)?, &c_string(value)?))?
            }
            None => configure(option, sys::FsConfigCommand::Flag(&c_string(option)?))?,
        }
    }
    if read_only {
        configure("ro", sys::FsConfigCommand::Flag(c"ro"))?;
    }
    sys::fsconfig(context.as_fd(), sys::FsConfigCommand::Create).map_err(|source| {
        MountError::Create {
            fs_type: fs_type.to_owned(),
            device: device.clone(),
            said: read_context_log(&context),
            source,
        }
    })?;
    let flags = sorted.flags | NO_DEV | if read_only { READ_ONLY } else { 0 };
    let mount = sys::fsmount(context.as_fd(), flags).map_err(|source| MountError::Call {
        doing: "mounting",
        path: device.clone(),
        source,
    })?;
    Ok(DetachedMount(mount))
}

/// The kind of file that a bind mount shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountSourceKind {
    /// A directory; device nodes in it are disabled.
    Directory,
    /// A device node, which must stay usable.
    DeviceNode,
}

/// A bind mount of `source`, without the mounts below it.
pub fn bind(
    source: BorrowedFd<'_>,
    path: &HostPath,
    shown: MountSourceKind,
    read_only: bool,
) -> Result<DetachedMount, MountError> {
    let call = |doing| move |source| MountError::Call { doing, path: path.clone(), source };
    let mount = sys::clone_mount(source).map_err(call("making a bind mount of"))?;
    let mut flags = if shown == MountSourceKind::Directory { NO_DEV } else { 0 };
    if read_only {
        flags |= READ_ONLY;
    }
    if flags != 0 {
        sys::set_mount_flags(mount.as_fd(), flags)
            .map_err(call("setting the flags of a bind mount of"))?;
    }
    Ok(DetachedMount(mount))
}

impl DetachedMount {
    /// Attaches the mount at `target`.
    pub fn attach(self, target: BorrowedFd<'_>, path: &HostPath) -> Result<(), MountError> {
        sys::move_mount(self.0.as_fd(), target).map_err(|source| MountError::Call {
            doing: "mounting at",
            path: path.clone(),
            source,
        })
    }
}

/// Unmounts the topmost mount there. `lazy`: detaches it at once; it ends at its last close. Needs
/// a single-threaded process: since umount2(2) takes no descriptor, the working directory changes
/// to the parent directory during the call.
pub fn unmount(spot: &ResolvedPath, lazy: bool) -> Result<(), Errno> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    if lazy {
        flags |= MntFlags::MNT_DETACH;
    }
    nix::unistd::fchdir(&spot.parent)?;
    let name: &CStr = &spot.name;
    let done = umount2(name, flags);
    // This process must not keep the directory busy. `/` always exists.
    nix::unistd::chdir(c"/").and(done)
}

/// The mount id of `file` in mountinfo (proc_pid_fdinfo(5)); queries no filesystem.
pub fn mount_id(file: BorrowedFd<'_>) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!(
        "/proc/self/fdinfo/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file)
    ))?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The id of the mount that no other mount of this boot has; None where the kernel does not tell.
pub fn unique_mount_id(file: BorrowedFd<'_>) -> Option<u64> {
    sys::unique_mount_id(file).ok().flatten()
}

/// Each read returns one message. ENODATA: there are no more messages.
fn read_context_log(context: &OwnedFd) -> FsContextLog {
    let (mut said, mut buffer) = (FsContextLog::default(), [0; 1024]);
    while said.0.len() < MAX_MESSAGES
        && let Ok(length @ 1..) = nix::unistd::read(context, &mut buffer)
    {
        // The prefix is `e `, `w ` or `i `.
        let text = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
        said.0.push(text.get(2..).unwrap_or(&text).to_owned());
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn mount_options_are_separated_from_filesystem_options() {
        let options =
            words("defaults noatime nosuid discard commit=30 x-systemd.automount _netdev noexec");
        assert_eq!(
            parse_options(&options),
            ParsedOptions {
                flags: NO_ATIME | NO_SUID | NO_EXEC,
                filesystem: vec!["discard", "commit=30"]
            }
        );
    }

    #[test]
    fn the_later_of_two_opposite_options_holds() {
        assert_eq!(parse_options(&words("nosuid suid")).flags, 0);
        assert_eq!(parse_options(&words("noatime strictatime")).flags, STRICT_ATIME);
        assert_eq!(parse_options(&words("strictatime relatime noexec")).flags, NO_EXEC);
    }

    #[test]
    fn the_mount_of_an_open_file_is_known_without_asking_its_filesystem() {
        let file = std::fs::File::open("/proc/self/mountinfo").unwrap();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let id = mount_id(file.as_fd()).unwrap();
        assert!(
            table
                .lines()
                .any(|line| line.starts_with(&format!("{id} ")) && line.contains(" /proc "))
        );
    }
}
