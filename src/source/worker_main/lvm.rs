//! Two tasks for checks of logical volumes, each in a separate process: running lvm(8) in the
//! host's mount namespace, and replaying a snapshot's log by a private mount.
//!
//! An lvcreate or lvremove that is killed between its suspend and its resume leaves the origin
//! suspended, and all its writers blocked. So the process leaves the process group and the control
//! group by which it would be killed, is not the first victim when memory is short, and records an
//! intent. If it is killed nevertheless, `resume` resumes the volume by that intent.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Pid, getpgid, getppid, setpgid};

use crate::checks::lvm::LvmChange;
use diskvitals_finding::dev::DevNo;
use diskvitals_host::intents::IntentError;
use diskvitals_host::intents::lvm_intent::LvmIntent;
use diskvitals_host::own_cgroup::CgroupError;
use diskvitals_host::root::HostRoot;
use diskvitals_host::{dm, exec, intents, own_cgroup, trusted_file};
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;

/// Exit status of a replay that the kernel refused because the filesystem is damaged.
pub(crate) const REPLAY_DAMAGED: u8 = 3;

/// A private tmpfs is mounted here: the directory exists on every host.
const TMPFS_DIR: &str = "/run";

/// Becomes lvm. `args`: its program, its change (JSON of `Option<LvmChange>`), and its arguments.
pub(crate) fn become_lvm(
    root: &HostRoot,
    mut args: impl Iterator<Item = OsString>,
    limitations: &[String],
) -> ExitCode {
    let (Some(program), Some(changes)) = (args.next(), args.next()) else {
        return refused("no program was named");
    };
    let Some(changes) = changes
        .to_str()
        .and_then(|changes| serde_json::from_str::<Option<LvmChange>>(changes).ok())
    else {
        return refused("what it is about to change makes no sense");
    };
    let args: Vec<OsString> = args.collect();
    if let Err(error) = trusted_file::check_program(Path::new(&program)) {
        return refused(&error.to_string());
    }
    if let Some(limitation) = limitations.first() {
        return refused(limitation);
    }
    if let Some(changes) = changes
        && let Err(error) = detach_from_daemon(root, changes)
    {
        return refused(&with_causes(&error));
    }
    // lvm would run modprobe, which may not load modules here. If the kernel does not support the
    // query either, lvcreate reports what is missing. Needed for thin volumes too: lvcreate queries
    // the target before it examines the origin.
    if args.iter().any(|arg| arg == "--snapshot") {
        dm::load_target(&HostRoot::new("/"), "snapshot").ok();
    }
    let error = exec::exec(Path::new(&program), &args);
    refused(&format!("starting {}: {error}", program.display()))
}

/// From here on this process survives its parent, and an intent records its change. Runs in the
/// host's mount namespace.
fn detach_from_daemon(root: &HostRoot, changes: LvmChange) -> Result<(), DetachError> {
    getpgid(Some(getppid()))
        .and_then(|group| setpgid(Pid::from_raw(0), group))
        .map_err(DetachError::ProcessGroup)?;
    // The process is already in the host's mount namespace.
    let here = if root.is_recorded() { root.clone() } else { HostRoot::new("/") };
    own_cgroup::check_host_pid_namespace(&here)?;
    own_cgroup::enter_own_cgroup()?;
    let pid = std::process::id();
    let started = intents::process_start_time(pid).ok_or(DetachError::OwnProc)?;
    let LvmChange { intents, group, volume, snapshot } = changes;
    LvmIntent { group, volume, snapshot, pid, started }.write(&intents)?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum DetachError {
    #[error("leaving the process group")]
    ProcessGroup(#[source] Errno),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("this process' own /proc cannot be read")]
    OwnProc,
    #[error(transparent)]
    Intent(#[from] IntentError),
}

/// `args`: the filesystem's type, and the snapshot's device number.
pub fn replay(mut args: impl Iterator<Item = OsString>, limitations: &[String]) -> ExitCode {
    let mut next = || args.next().and_then(|arg| arg.into_string().ok());
    let (Some(filesystem), Some(Ok(dev))) = (next(), next().map(|dev| dev.parse::<DevNo>())) else {
        return refused("no filesystem and device were named");
    };
    if let Some(limitation) = limitations.first() {
        return refused(limitation);
    }
    match mount_once(&filesystem, dev) {
        Ok(()) => ExitCode::SUCCESS,
        Err((what, errno @ (Errno::EUCLEAN | Errno::EBADMSG))) => {
            eprintln!("{what}: {} ({errno:?})", errno.desc());
            ExitCode::from(REPLAY_DAMAGED)
        }
        Err((what, errno)) => refused(&format!("{what}: {} ({errno:?})", errno.desc())),
    }
}

fn mount_once(filesystem: &str, dev: DevNo) -> Result<(), (&'static str, Errno)> {
    let none = None::<&str>;
    let with = |what| move |errno| (what, errno);
    // The snapshot has the UUID of its mounted origin. ext4: an error must not cause a kernel
    // panic, whatever the superblock requests.
    let options = match filesystem {
        "xfs" => "nouuid",
        "ext4" => "errors=continue",
        _ => return Err(("mounting a snapshot of this filesystem", Errno::EOPNOTSUPP)),
    };
    unshare(CloneFlags::CLONE_NEWNS).map_err(with("making a mount namespace"))?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(with("keeping mounts private"))?;
    mount(
        Some("diskvitals"),
        TMPFS_DIR,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        Some("size=64k,mode=0700"),
    )
    .map_err(with("mounting a tmpfs"))?;
    let (node, at) = (format!("{TMPFS_DIR}/device"), format!("{TMPFS_DIR}/mount"));
    let number = makedev(u64::from(dev.major), u64::from(dev.minor));
    mknod(node.as_str(), SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, number)
        .map_err(with("making a device node"))?;
    nix::unistd::mkdir(at.as_str(), Mode::S_IRWXU).map_err(with("making a mount point"))?;
    let flags = MsFlags::MS_NOATIME | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID;
    mount(Some(node.as_str()), at.as_str(), Some(filesystem), flags, Some(options))
        .map_err(with("mounting the snapshot"))?;
    umount2(at.as_str(), MntFlags::UMOUNT_NOFOLLOW).map_err(with("unmounting the snapshot"))
}

pub(super) fn refused(why: &str) -> ExitCode {
    eprintln!("{}", Shown::screen(why));
    ExitCode::FAILURE
}
