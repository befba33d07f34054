//! The worker process that executes steps: our own binary, which may hang and may be killed at any
//! moment.
//!
//! In: one step per line. Out: its result. A worker does not depend on the order of steps, on
//! volumes or on pods; each step detects by itself which parts are already done. The three roles
//! need different privileges: `host` (mounts, loop devices, files) runs in PID 1's mount namespace,
//! `tools` (blkid, mkfs and similar) in the namespace of our own programs, `lvm` in PID 1's mount
//! namespace, which contains lvm's configuration, locks and /dev.

mod content;
mod device;
mod error;
mod format;
mod image;
pub mod lvm;
mod mount_openers;
mod mounts;
mod ownership;
mod pod_holds;
mod records;
mod remains;
mod scan;
mod tool;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use caps::{CapSet, Capability};

use crate::step::spec::WorkerRole;
use crate::step::{Step, StepError, StepErrorKind, StepOutput};
use crate::worker::error::StepWorkerError;
use crate::worker::format::Permission;
use diskvitals_host::namespace::CapabilityError;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::Hello;
use diskvitals_host::{namespace, own_cgroup, worker_pool};
use diskvitals_text::causes::with_causes;

impl WorkerRole {
    /// The capabilities that the role keeps. All workers are uid 0, which may open root's files.
    fn capabilities(self) -> &'static [Capability] {
        match self {
            WorkerRole::Host => &[
                // For mounts, loop devices, and growth of an XFS or a btrfs.
                Capability::CAP_SYS_ADMIN,
                // For pods' folders, which belong to any user (fsGroup), and for linkat(2) with
                // AT_EMPTY_PATH, which names a finished image.
                Capability::CAP_DAC_READ_SEARCH,
                // For growth of a mounted ext4; effective for that call only (`host::resize`).
                Capability::CAP_SYS_RESOURCE,
                // For openers: /proc/PID/fd of other processes.
                Capability::CAP_SYS_PTRACE,
            ],
            // For device-mapper's ioctls, device nodes where udev does not create them, mlock(2)
            // while a device is suspended, and locks and archives of any owner.
            WorkerRole::Lvm => &[
                Capability::CAP_SYS_ADMIN,
                Capability::CAP_MKNOD,
                Capability::CAP_DAC_READ_SEARCH,
                Capability::CAP_IPC_LOCK,
                Capability::CAP_SYS_PTRACE,
            ],
            // For BLKBSZSET and BLKFLSBUF of mkfs.xfs and mkfs.btrfs (block/ioctl.c).
            WorkerRole::Tools => &[Capability::CAP_SYS_ADMIN],
        }
    }
}

/// The arguments of a worker process.
pub fn arguments(role: WorkerRole, root: &HostRoot) -> Vec<OsString> {
    vec!["step".into(), role.name().into(), root.dir().into()]
}

/// Runs the process. `args` are the arguments after `step`.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let role =
        args.next().and_then(|word| WorkerRole::ALL.into_iter().find(|role| word == role.name()));
    let (Some(role), Some(root), None) = (role, args.next(), args.next()) else {
        eprintln!(
            "`diskvitalsd step` is started by the daemon, for steps that change the host; do not run it by hand"
        );
        return ExitCode::from(2);
    };
    let worker = StepWorker::prepare(role, &HostRoot::new(PathBuf::from(root)));
    let hello = Hello { limitations: worker.limitations.clone() };
    let misunderstood = |message: String| Err(StepError::new(StepErrorKind::Other, message));
    match worker_pool::serve(
        &hello,
        |step: Step| worker.execute(&step).map_err(StepError::from),
        misunderstood,
    ) {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon has ended, so nothing can receive the result.
        Err(_) => ExitCode::FAILURE,
    }
}

/// A process that is ready to execute steps.
struct StepWorker {
    role: WorkerRole,
    /// The host's files: `/` once PID 1's mount namespace has been entered.
    root: HostRoot,
    /// The reason why the worker must not change anything.
    disabled_reason: Option<String>,
    limitations: Vec<String>,
}

/// The name of step processes for ps(1), at most 15 bytes.
pub(crate) const PROCESS_NAME: &std::ffi::CStr = c"diskvitals-step";

impl StepWorker {
    /// Enters the namespace and drops capabilities. The caller must be single-threaded.
    fn prepare(role: WorkerRole, root: &HostRoot) -> StepWorker {
        let mut worker =
            StepWorker { role, root: root.clone(), disabled_reason: None, limitations: Vec::new() };
        // It is optional.
        let _ = nix::sys::prctl::set_name(PROCESS_NAME);
        if root.is_recorded() {
            worker.disabled_reason =
                Some("a recorded tree has nothing that could be changed".to_owned());
        } else if role != WorkerRole::Tools {
            match namespace::enter_host_mounts(root) {
                Ok(()) => worker.root = HostRoot::new("/"),
                // If the host's root is `/`, this namespace counts as the host's; the limitation is
                // reported.
                Err(error) if root.dir() == std::path::Path::new("/") => worker
                    .limitations
                    .push(format!("volumes are mounted here: {}", with_causes(&error))),
                // With another root the same paths would name other files.
                Err(error) => {
                    worker.disabled_reason =
                        Some(format!("nothing is mounted or made: {}", with_causes(&error)))
                }
            }
        }
        // An lvm that is killed with the daemon's control group leaves devices suspended.
        if role == WorkerRole::Lvm
            && worker.disabled_reason.is_none()
            && let Err(error) = own_cgroup::enter_own_cgroup()
        {
            worker.limitations.push(with_causes(&error));
        }
        if !nix::unistd::geteuid().is_root() {
            worker.limitations.push("not root: volumes cannot be made or mounted".to_owned());
        } else if let Err(error) = drop_capabilities(role) {
            worker.limitations.push(format!(
                "processes that execute steps keep more rights than they need ({})",
                with_causes(&error)
            ));
        }
        worker
    }

    fn execute(&self, step: &Step) -> Result<StepOutput, StepWorkerError> {
        // It changes nothing.
        let is_reading = matches!(step, Step::ListPodHolds { .. });
        if let Some(why) = self.disabled_reason.as_ref().filter(|_| !is_reading) {
            return Err(StepErrorKind::Unsupported.error(why.clone()));
        }
        match self.role {
            WorkerRole::Host => self.execute_on_host(step),
            WorkerRole::Tools => self.execute_with_tools(step),
            WorkerRole::Lvm => self.execute_with_lvm(step),
        }
    }

    fn execute_on_host(&self, step: &Step) -> Result<StepOutput, StepWorkerError> {
        let nothing = |()| StepOutput::Empty;
        match step {
            Step::DirectoryCapacity { folder } => {
                records::capacity(folder).map(StepOutput::Capacity)
            }
            Step::ReadRecords { folder } => {
                records::read(folder).map(|records| StepOutput::Records { records })
            }
            Step::WriteRecord { folder, name, text } => {
                records::write(folder, name, text).map(nothing)
            }
            Step::RemoveRecord { folder, name } => records::remove(folder, name).map(nothing),
            Step::CreateImage { image, size } => image::create(image, *size).map(nothing),
            Step::GrowImage { image, size } => image::grow(image, *size).map(nothing),
            Step::RemoveImage { image, wipe } => {
                image::remove(&self.root, image, *wipe).map(nothing)
            }
            Step::AttachImage { image, read_only } => {
                image::attach(image, *read_only).map(StepOutput::Device)
            }
            Step::DetachImage { image } => image::detach(&self.root, image).map(nothing),
            Step::FindImage { image } => {
                Ok(image::find(image)?.map_or(StepOutput::Empty, StepOutput::Device))
            }
            Step::ResolveDevice { path } => device::resolve(path).map(StepOutput::Device),
            Step::CheckDirectory { path, roots } => {
                device::check_directory(path, roots).map(nothing)
            }
            Step::CheckTarget { target } => mounts::check_target(target).map(nothing),
            Step::Mount { device, target, fs_type, options, read_only } => {
                mounts::mount(device, target, fs_type, options, *read_only).map(nothing)
            }
            Step::Bind { source, target, read_only } => {
                mounts::bind(source, target, *read_only).map(nothing)
            }
            Step::BindDevice { device, target, read_only } => {
                mounts::bind_device(device, target, *read_only).map(nothing)
            }
            Step::Unmount { target, lazy } => {
                mounts::unmount(&self.root, target, *lazy).map(nothing)
            }
            Step::RemoveTarget { target, owner } => {
                mounts::remove_target(target, owner.as_ref()).map(nothing)
            }
            Step::ListOpeners { mounts } => mount_openers::openers_of_mounts(&self.root, mounts)
                .map(|holders| StepOutput::Openers { openers: holders }),
            Step::ListPodHolds { kubelet_root, pod_uids } => {
                pod_holds::holds_of_pods(&self.root, kubelet_root, pod_uids)
                    .map(|found| StepOutput::PodHolds { found })
            }
            Step::FindMount { target, folder } => mounts::find_mount(target, folder.as_ref())
                .map(|mounted| StepOutput::Mounted { mounted }),
            Step::FindRemains { at, image, device } => {
                remains::find(at.as_ref(), image.as_ref(), device.as_deref())
                    .map(StepOutput::Remains)
            }
            Step::GrowFilesystem { device, at, fs_type } => {
                mounts::grow(device, at, fs_type).map(nothing)
            }
            other => Err(wrong_role(other)),
        }
    }

    fn execute_with_tools(&self, step: &Step) -> Result<StepOutput, StepWorkerError> {
        let nothing = |()| StepOutput::Empty;
        match step {
            Step::ProbeContent { device } => {
                content::probe(&self.root, device).map(StepOutput::Content)
            }
            Step::Format { device, fs_type, options, proof } => {
                let permission = Permission::Proof(proof);
                format::format(&self.root, device, fs_type, options, &permission).map(nothing)
            }
            Step::RepeatFormat { device, expected, fs_type, options } => {
                let permission = Permission::Interrupted(expected);
                format::format(&self.root, device, fs_type, options, &permission).map(nothing)
            }
            Step::Scan { device, state, tracked } => {
                scan::scan(&self.root, device, state, *tracked).map(StepOutput::Scanned)
            }
            Step::WipeSignatures { device } => {
                format::wipe_signatures(&self.root, device).map(nothing)
            }
            Step::GrowFilesystem { device, fs_type, .. } => {
                format::grow_unmounted(&self.root, device, fs_type).map(nothing)
            }
            other => Err(wrong_role(other)),
        }
    }

    fn execute_with_lvm(&self, step: &Step) -> Result<StepOutput, StepWorkerError> {
        let nothing = |()| StepOutput::Empty;
        match step {
            Step::VolumeGroupCapacity { group } => lvm::capacity(group).map(StepOutput::Capacity),
            Step::ListLogicalVolumes { group, tag } => {
                lvm::list_tagged(group, tag).map(|volumes| StepOutput::LogicalVolumes { volumes })
            }
            Step::CreateLogicalVolume { group, name, size, tags } => {
                lvm::create(group, name, *size, tags).map(nothing)
            }
            Step::TagLogicalVolume { group, name, add, remove } => {
                lvm::change_tags(group, name, add, remove).map(nothing)
            }
            Step::GrowLogicalVolume { group, name, size } => {
                lvm::grow(group, name, *size).map(nothing)
            }
            Step::RemoveLogicalVolume { group, name, wipe } => {
                lvm::remove(&self.root, group, name, *wipe).map(nothing)
            }
            Step::ActivateLogicalVolume { group, name } => {
                lvm::activate(group, name).map(StepOutput::Device)
            }
            Step::DeactivateLogicalVolume { group, name } => {
                lvm::deactivate(&self.root, group, name).map(nothing)
            }
            other => Err(wrong_role(other)),
        }
    }
}

fn drop_capabilities(role: WorkerRole) -> Result<(), CapabilityError> {
    namespace::limit_capabilities(role.capabilities())?;
    caps::drop(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE)
        .map_err(|error| CapabilityError::Drop("unneeded effective", error))
}

fn wrong_role(step: &Step) -> StepWorkerError {
    StepErrorKind::Other.error(format!("this step belongs to another worker role: {step:?}"))
}
