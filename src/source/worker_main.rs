//! The main loop of a worker process: reads one job per line, performs it, writes the result. A job
//! may block for ever; therefore it runs in a separate process.
//!
//! Single-threaded, with few capabilities, in the host's mount namespace if it probes volumes. It
//! exits when its standard input is closed.

mod check;
mod freezer;
mod fs_errors;
mod host_mounts;
mod lvm;
mod mount_probe;
mod resume;
mod thaw;
mod xfs_health;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use caps::Capability;

use crate::jobs::{CounterGroup, Job, JobResult};
use crate::smart::controllers;
use crate::{counters, inventory, kubelet, lamps, layers, superblock};
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{Hello, write_json_line};
use diskvitals_host::{jail, namespace, nvme, own_cgroup, worker_pool};
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;

pub(crate) use lvm::REPLAY_DAMAGED;

/// The role of a worker process, and its mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// Our own mount namespace, in which `--host-root` leads to the host.
    OwnMounts,
    /// PID 1's: mounts are reached by paths on the host.
    HostMounts,
    /// PID 1's, as the helper that reports filesystem errors.
    FsErrors,
    /// Our own, as the helper that runs one checker (`checks::runner`).
    Check,
    /// The jail of a checker (`host::jail`): drops all capabilities itself.
    Jail,
    /// PID 1's, as the helper that holds a filesystem's writers (`checks::freezer`).
    Freezer,
    /// PID 1's, as the helper that reads the health of one XFS (`checks::xfs_health`).
    XfsHealth,
    /// PID 1's; the process becomes lvm(8).
    Lvm,
    /// PID 1's, as the helper that mounts a snapshot once, invisible to other processes.
    Replay,
}

impl WorkerRole {
    const NAMES: [(WorkerRole, &str); 9] = [
        (WorkerRole::OwnMounts, "own"),
        (WorkerRole::HostMounts, "host-mounts"),
        (WorkerRole::FsErrors, "fs-errors"),
        (WorkerRole::Check, "check"),
        (WorkerRole::Jail, "jail"),
        (WorkerRole::Freezer, "freezer"),
        (WorkerRole::XfsHealth, "xfs-health"),
        (WorkerRole::Lvm, "lvm"),
        (WorkerRole::Replay, "replay"),
    ];

    fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(role, _)| *role == self);
        known.map_or("", |(_, name)| name)
    }

    /// The capabilities that the role keeps. Some allow reading below directories of any owner,
    /// without a change of atime (open(2), O_NOATIME). CAP_SYS_ADMIN is needed for device-mapper's
    /// status (drivers/md/dm-ioctl.c), fanotify's marks on whole filesystems and NVMe's admin
    /// commands (nvme_cmd_allowed(), drivers/nvme/host/ioctl.c).
    fn capabilities(self) -> &'static [Capability] {
        match self {
            WorkerRole::OwnMounts | WorkerRole::FsErrors => {
                &[Capability::CAP_DAC_READ_SEARCH, Capability::CAP_SYS_ADMIN]
            }
            WorkerRole::HostMounts => &[Capability::CAP_DAC_READ_SEARCH, Capability::CAP_FOWNER],
            // XFS_IOC_BULKSTAT needs CAP_SYS_ADMIN (xfs_ioc_bulkstat(), fs/xfs/xfs_ioctl.c).
            WorkerRole::XfsHealth => &[
                Capability::CAP_DAC_READ_SEARCH,
                Capability::CAP_FOWNER,
                Capability::CAP_SYS_ADMIN,
            ],
            WorkerRole::Freezer => &[Capability::CAP_SYS_ADMIN],
            // For device-mapper's ioctls; the nodes of new devices if udev does not create them;
            // mlock(2) while a device is suspended; the host's control groups (/proc/1/ns).
            WorkerRole::Lvm => &[
                Capability::CAP_SYS_ADMIN,
                Capability::CAP_MKNOD,
                Capability::CAP_DAC_READ_SEARCH,
                Capability::CAP_IPC_LOCK,
                Capability::CAP_SYS_PTRACE,
            ],
            WorkerRole::Replay => &[Capability::CAP_SYS_ADMIN, Capability::CAP_MKNOD],
            // A mount namespace with its own device nodes, and loops (SYS_ADMIN, MKNOD, CHOWN); the
            // jail drops its privileges (SETPCAP, SETUID, SETGID), and is observed and killed from
            // outside (its /proc/PID/io is another user's: DAC_READ_SEARCH, SYS_PTRACE; KILL). Where the
            // daemon is in a hierarchy's root, which has mode 0555, so is the group of the run
            // (DAC_OVERRIDE; the unit's daemon is not, and lacks it).
            WorkerRole::Check => &[
                Capability::CAP_DAC_OVERRIDE,
                Capability::CAP_DAC_READ_SEARCH,
                Capability::CAP_SYS_ADMIN,
                Capability::CAP_MKNOD,
                Capability::CAP_CHOWN,
                Capability::CAP_SETPCAP,
                Capability::CAP_SETUID,
                Capability::CAP_SETGID,
                Capability::CAP_SYS_PTRACE,
                Capability::CAP_KILL,
            ],
            WorkerRole::Jail => &[],
        }
    }
}

/// Arguments that start our binary as a worker.
pub fn arguments(place: WorkerRole, root: &HostRoot) -> Vec<OsString> {
    vec!["worker".into(), place.name().into(), root.dir().into()]
}

/// The arguments of the freezer. `needed`: files and directories whose filesystems must never be
/// frozen, as paths of the daemon or of the host.
pub fn freezer_arguments<'a>(
    root: &HostRoot,
    needed: impl IntoIterator<Item = &'a Path>,
) -> Vec<OsString> {
    let needed = needed.into_iter().map(OsString::from);
    arguments(WorkerRole::Freezer, root).into_iter().chain(needed).collect()
}

/// The main function of a worker process. `args`: the arguments after `worker`.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(word) = args.next() else {
        return usage_error();
    };
    if word == "thaw" {
        return thaw::main(args);
    }
    if word == "apart" {
        return make_own_cgroup(args);
    }
    let Some((place, _)) = WorkerRole::NAMES.into_iter().find(|(_, name)| word == *name) else {
        return usage_error();
    };
    if place == WorkerRole::Jail {
        return jail::enter(args);
    }
    let Some(root) = args.next() else {
        return usage_error();
    };
    let root = HostRoot::new(PathBuf::from(root));
    if place == WorkerRole::Freezer {
        // The freezer needs its privileges until it is ready, must be the last to be killed when
        // memory is short, and fails where other roles continue with limitations.
        return exit_code(freezer::serve(&root, args));
    }
    let limitations = prepare(place, &root);
    let served = match place {
        WorkerRole::FsErrors => fs_errors::serve(limitations),
        WorkerRole::Check => check::serve(&root),
        WorkerRole::XfsHealth => xfs_health::serve(&root),
        WorkerRole::Lvm => return lvm::become_lvm(&root, args, &limitations),
        WorkerRole::Replay => return lvm::replay(args, &limitations),
        // Both have returned above.
        WorkerRole::Freezer | WorkerRole::Jail => Ok(()),
        WorkerRole::OwnMounts | WorkerRole::HostMounts => {
            serve_jobs(&root, place, &Hello { limitations })
        }
    };
    exit_code(served)
}

/// `worker apart ROOT`: the unit's ExecStartPre, with privileges that the daemon lacks.
fn make_own_cgroup(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(root) = args.next() else {
        eprintln!(
            "usage: diskvitalsd worker apart ROOT: makes the control group for what must outlive the daemon"
        );
        return ExitCode::from(2);
    };
    let made = host_mounts::enter_host_mounts(&HostRoot::new(PathBuf::from(root)))
        .map_err(|error| with_causes(&error))
        .and_then(|()| own_cgroup::create_own_cgroup().map_err(|error| with_causes(&error)));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("diskvitalsd: nothing can be frozen: {}", Shown::screen(&why));
            ExitCode::FAILURE
        }
    }
}

fn exit_code(served: std::io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon has exited: nothing reads an error.
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage_error() -> ExitCode {
    eprintln!(
        "`diskvitalsd worker` is how the daemon starts its probe processes; it is of no use by hand"
    );
    ExitCode::from(2)
}

/// Enters the namespace, drops privileges, and makes itself the first process to be killed when
/// memory is short. Failures are returned as limitations, as text.
fn prepare(place: WorkerRole, root: &HostRoot) -> Vec<String> {
    let mut limitations = Vec::new();
    // A name of at most 15 bytes, for ps(1). A failure does no harm.
    let _ = nix::sys::prctl::set_name(c"diskvitals-work");
    // lvm must not die while it has a device suspended: it keeps the daemon's score.
    if place != WorkerRole::Lvm {
        // May be forbidden in a container: then all processes keep the same score.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    }
    if !matches!(place, WorkerRole::OwnMounts | WorkerRole::Check) && !root.is_recorded() {
        limitations
            .extend(namespace::enter_host_mounts(root).err().map(|error| with_causes(&error)));
    }
    if nix::unistd::geteuid().is_root() {
        if let Err(error) = namespace::limit_capabilities(place.capabilities()) {
            limitations.push(format!(
                "probe processes keep more rights than they need ({})",
                with_causes(&error)
            ));
        }
    } else {
        limitations.push("not root: volumes and folders of other users may not be read".into());
    }
    limitations
}

fn serve_jobs(root: &HostRoot, place: WorkerRole, hello: &Hello) -> std::io::Result<()> {
    worker_pool::serve(
        hello,
        |job: Job| run_job(root, place, &job),
        |error| JobResult::Failed { error },
    )
}

fn run_job(root: &HostRoot, place: WorkerRole, job: &Job) -> JobResult {
    match job {
        Job::Inventory { admit, ignore } => {
            inventory::scan(root, admit, ignore).map_or_else(failed_result, JobResult::Inventory)
        }
        Job::Layer { device, layer } => {
            layers::read(root, device, layer).map_or_else(failed_result, JobResult::Layer)
        }
        Job::Superblock { .. } | Job::Signatures { .. } if root.is_recorded() => {
            JobResult::Failed { error: "a recorded tree has no devices to read".to_owned() }
        }
        Job::Superblock { device, dev, only_ext } => {
            superblock::read(root, device, *dev, *only_ext)
                .map_or_else(failed_result, JobResult::Superblock)
        }
        Job::Signatures { device, dev, size } => {
            superblock::read_signatures(root, device, *dev, *size)
                .map_or_else(failed_result, JobResult::Signatures)
        }
        Job::Kubelet { kubelet_root } => {
            kubelet::scan(root, kubelet_root).map_or_else(failed_result, JobResult::Kubelet)
        }
        Job::ProbeMount { path, .. } if root.is_recorded() => {
            mount_probe::recorded_probe(root, path)
                .map_or_else(failed_result, JobResult::ProbeMount)
        }
        Job::ProbeMount { path, id, dev, is_btrfs } if place == WorkerRole::HostMounts => {
            mount_probe::probe(path, *id, *dev, *is_btrfs)
                .map_or_else(failed_result, JobResult::ProbeMount)
        }
        Job::Counters { group: CounterGroup::Xfs { .. } | CounterGroup::Btrfs { .. } }
            if root.is_recorded() =>
        {
            JobResult::Counters(counters::empty())
        }
        Job::Counters { group: CounterGroup::Xfs { path, .. } | CounterGroup::Btrfs { path } }
            if place != WorkerRole::HostMounts =>
        {
            wrong_namespace(&path.to_string())
        }
        Job::Counters { group: CounterGroup::BtrfsScrub { .. } }
            if place != WorkerRole::HostMounts && !root.is_recorded() =>
        {
            wrong_namespace("/var/lib/btrfs")
        }
        Job::Counters { group: part } => {
            counters::read(root, part).map_or_else(failed_result, JobResult::Counters)
        }
        Job::Controllers => {
            controllers::find(root).map_or_else(failed_result, JobResult::Controllers)
        }
        Job::NvmeEvents { .. } if root.is_recorded() => {
            JobResult::Failed { error: "a recorded tree has no drives to set".to_owned() }
        }
        Job::NvmeEvents { controller } => nvme::enable_health_events(root, controller)
            .map_or_else(failed_result, |set| JobResult::NvmeEvents { changed: set }),
        Job::SyncFs { .. } if root.is_recorded() => {
            JobResult::Failed { error: "a recorded tree has nothing to write out".to_owned() }
        }
        Job::SyncFs { path, dev } if place == WorkerRole::HostMounts => {
            mount_probe::sync(path, *dev)
                .map_or_else(failed_result, |took| JobResult::SyncFs { elapsed: took })
        }
        Job::SyncFs { path, .. } => wrong_namespace(&path.to_string()),
        Job::FindLamp { .. } | Job::SwitchLamp { .. } if root.is_recorded() => {
            JobResult::Failed { error: "a recorded tree has no lamps".to_owned() }
        }
        // The daemon's own /sys may be read-only (ProtectKernelTunables=).
        Job::FindLamp { .. } | Job::SwitchLamp { .. } if place != WorkerRole::HostMounts => {
            wrong_namespace("/sys")
        }
        Job::FindLamp { devices, controllers } => {
            lamps::find(&HostRoot::new("/"), devices, controllers)
                .map_or_else(failed_result, JobResult::Lamp)
        }
        Job::SwitchLamp { place, is_on } => lamps::switch(&HostRoot::new("/"), place, *is_on)
            .map_or_else(failed_result, |()| JobResult::LampSwitched),
        Job::ProbeMount { path, .. } => wrong_namespace(&path.to_string()),
    }
}

fn wrong_namespace(what: &str) -> JobResult {
    JobResult::Failed { error: format!("this worker is not in the host's mount namespace: {what}") }
}

/// An error with its causes, as text: it crosses a pipe.
fn failed_result(error: impl std::error::Error) -> JobResult {
    JobResult::Failed { error: with_causes(&error) }
}
