//! The side of the pipe where steps are taken: a process of our own binary that may hang, and be
//! killed, at any moment.
//!
//! In: a step a line. Out: what came of it. It knows nothing of the order of steps, of volumes or
//! of pods; each step finds out by itself what is done already. Three places, since they need
//! different rights: `host` (mounts, loop devices, files: in PID 1's mount namespace), `tools`
//! (blkid, mkfs and their like: where our own programs are), `lvm` (in PID 1's mount namespace,
//! where lvm's configuration, locks and /dev are).

mod content;
mod device;
mod failure;
mod format;
mod holding;
mod image;
mod logical;
mod mounts;
mod records;
mod tool;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use caps::{CapSet, Capability};

use crate::attach::step::about::Site;
use crate::attach::step::{Done, Step, StepError, Trouble};
use crate::attach::worker::failure::Failure;
use crate::host::root::HostRoot;
use crate::host::worker::Hello;
use crate::host::{apart, namespace, worker};

impl Site {
    const ALL: [Site; 3] = [Site::Host, Site::Lvm, Site::Tools];

    pub fn name(self) -> &'static str {
        match self {
            Site::Host => "host",
            Site::Lvm => "lvm",
            Site::Tools => "tools",
        }
    }

    /// What it keeps; all are uid 0, and open what root owns without a right.
    fn rights(self) -> &'static [Capability] {
        match self {
            Site::Host => &[
                // Mounts, loop devices, growing an XFS or a btrfs.
                Capability::CAP_SYS_ADMIN,
                // Folders of pods belong to any user (fsGroup); a finished image gets its name by
                // linkat(2), AT_EMPTY_PATH.
                Capability::CAP_DAC_READ_SEARCH,
                // Growing a mounted ext4; effective for that call only (`host::resize`).
                Capability::CAP_SYS_RESOURCE,
                // Who holds what: /proc/PID/fd of others.
                Capability::CAP_SYS_PTRACE,
            ],
            // device-mapper's ioctls; the nodes of what it makes where udev does not; mlock(2)
            // while a device is suspended; locks and archives of any owner.
            Site::Lvm => &[
                Capability::CAP_SYS_ADMIN,
                Capability::CAP_MKNOD,
                Capability::CAP_DAC_READ_SEARCH,
                Capability::CAP_IPC_LOCK,
                Capability::CAP_SYS_PTRACE,
            ],
            // BLKBSZSET and BLKFLSBUF of mkfs.xfs and mkfs.btrfs (block/ioctl.c).
            Site::Tools => &[Capability::CAP_SYS_ADMIN],
        }
    }
}

/// Arguments that make our binary take steps.
pub fn arguments(site: Site, root: &HostRoot) -> Vec<OsString> {
    vec!["step".into(), site.name().into(), root.dir().into()]
}

/// The whole life of the process. `args` are those behind the word `step`.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let site = args
        .next()
        .and_then(|word| Site::ALL.into_iter().find(|site| word == site.name()));
    let (Some(site), Some(root), None) = (site, args.next(), args.next()) else {
        eprintln!(
            "`diskvitalsd step` is how the daemon starts the processes that change the host; it is of no use by hand"
        );
        return ExitCode::from(2);
    };
    let taker = Taker::prepare(site, &HostRoot::new(PathBuf::from(root)));
    let hello = Hello {
        limitations: taker.limitations.clone(),
    };
    let misunderstood = |message| {
        Err(StepError {
            kind: Trouble::Failed,
            message,
        })
    };
    match worker::serve(
        &hello,
        |step: Step| taker.take(&step).map_err(StepError::from),
        misunderstood,
    ) {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon is gone, and with it whoever could be told.
        Err(_) => ExitCode::FAILURE,
    }
}

/// A process that is ready to take steps.
struct Taker {
    site: Site,
    /// The host's files as they are seen from here: `/` once PID 1's mount namespace has been
    /// entered.
    root: HostRoot,
    /// Why it must not touch anything.
    refused: Option<String>,
    limitations: Vec<String>,
}

impl Taker {
    /// Enters the namespace and gives up rights. To be called by a single-threaded process.
    fn prepare(site: Site, root: &HostRoot) -> Taker {
        let mut taker = Taker {
            site,
            root: root.clone(),
            refused: None,
            limitations: Vec::new(),
        };
        // A name of 15 bytes at most, for ps(1). Without it the process works as well.
        let _ = nix::sys::prctl::set_name(c"diskvitals-step");
        if root.is_recorded() {
            taker.refused = Some("a recorded tree has nothing that could be changed".to_owned());
        } else if site != Site::Tools {
            match namespace::enter_host_mounts(root) {
                Ok(()) => taker.root = HostRoot::new("/"),
                // Where the host is `/`, this namespace is taken for the host's, and that it may
                // not be is said.
                Err(why) if root.dir() == std::path::Path::new("/") => taker
                    .limitations
                    .push(format!("volumes are mounted here: {why}")),
                // Elsewhere paths would mean other things here than there.
                Err(why) => taker.refused = Some(format!("nothing is mounted or made: {why}")),
            }
        }
        // An lvm that is killed with the daemon's group leaves what it suspended.
        if site == Site::Lvm
            && taker.refused.is_none()
            && let Err(why) = apart::own_control_group()
        {
            taker.limitations.push(why);
        }
        if !nix::unistd::geteuid().is_root() {
            taker
                .limitations
                .push("not root: volumes cannot be made or mounted".to_owned());
        } else if let Err(why) = give_up(site) {
            taker.limitations.push(format!(
                "processes that take steps keep more rights than they need ({why})"
            ));
        }
        taker
    }

    fn take(&self, step: &Step) -> Result<Done, Failure> {
        if let Some(why) = &self.refused {
            return Err(Failure::new(Trouble::Unsupported, why.clone()));
        }
        match self.site {
            Site::Host => self.on_the_host(step),
            Site::Tools => self.with_tools(step),
            Site::Lvm => self.with_lvm(step),
        }
    }

    fn on_the_host(&self, step: &Step) -> Result<Done, Failure> {
        let nothing = |()| Done::Nothing;
        match step {
            Step::FolderRoom { folder } => records::room(folder).map(Done::Room),
            Step::ReadRecords { folder } => {
                records::read(folder).map(|records| Done::Records { records })
            }
            Step::WriteRecord { folder, name, text } => {
                records::write(folder, name, text).map(nothing)
            }
            Step::RemoveRecord { folder, name } => records::remove(folder, name).map(nothing),
            Step::MakeImage { image, size } => image::make(image, *size).map(nothing),
            Step::GrowImage { image, size } => image::grow(image, *size).map(nothing),
            Step::RemoveImage { image, wipe } => {
                image::remove(&self.root, image, *wipe).map(nothing)
            }
            Step::AttachImage { image, read_only } => {
                image::attach(image, *read_only).map(Done::Device)
            }
            Step::DetachImage { image } => image::detach(&self.root, image).map(nothing),
            Step::FindImage { image } => {
                Ok(image::find(image)?.map_or(Done::Nothing, Done::Device))
            }
            Step::ResolveDevice { path } => device::resolve(path).map(Done::Device),
            Step::CheckFolder { path, roots } => device::check_folder(path, roots).map(nothing),
            Step::Mount {
                device,
                target,
                fs_type,
                options,
                read_only,
            } => mounts::mount(device, target, fs_type, options, *read_only).map(nothing),
            Step::Bind {
                source,
                target,
                read_only,
            } => mounts::bind(source, target, *read_only).map(nothing),
            Step::BindDevice {
                device,
                target,
                read_only,
            } => mounts::bind_device(device, target, *read_only).map(nothing),
            Step::Unmount { target, lazy } => {
                mounts::unmount(&self.root, target, *lazy).map(nothing)
            }
            Step::RemoveTarget { target } => mounts::remove_target(target).map(nothing),
            Step::Holders { mounts } => {
                holding::holders(&self.root, mounts).map(|holders| Done::Holders { holders })
            }
            Step::WhatIsMounted { target } => {
                mounts::what_is_mounted(target).map(|mounted| Done::Mounted { mounted })
            }
            Step::GrowFilesystem {
                device,
                at,
                fs_type,
            } => mounts::grow(device, at, fs_type).map(nothing),
            other => Err(misplaced(other)),
        }
    }

    fn with_tools(&self, step: &Step) -> Result<Done, Failure> {
        match step {
            Step::LookAt { device } => content::look(&self.root, device).map(Done::Content),
            Step::Format {
                device,
                fs_type,
                options,
            } => format::format(
                &self.root,
                device,
                fs_type,
                options,
                format::Before::Nothing,
            )
            .map(|()| Done::Nothing),
            Step::FormatAgain {
                device,
                was,
                fs_type,
                options,
            } => format::format(
                &self.root,
                device,
                fs_type,
                options,
                format::Before::CutOff(was),
            )
            .map(|()| Done::Nothing),
            Step::Blank { device } => format::blank(&self.root, device).map(|()| Done::Nothing),
            Step::GrowFilesystem {
                device, fs_type, ..
            } => format::grow_unmounted(&self.root, device, fs_type).map(|()| Done::Nothing),
            other => Err(misplaced(other)),
        }
    }

    fn with_lvm(&self, step: &Step) -> Result<Done, Failure> {
        let nothing = |()| Done::Nothing;
        match step {
            Step::GroupRoom { group } => logical::room(group).map(Done::Room),
            Step::LogicalVolumes { group, tag } => {
                logical::tagged(group, tag).map(|volumes| Done::LogicalVolumes { volumes })
            }
            Step::MakeLogicalVolume {
                group,
                name,
                size,
                tags,
            } => logical::make(group, name, *size, tags).map(nothing),
            Step::TagLogicalVolume {
                group,
                name,
                add,
                remove,
            } => logical::tag(group, name, add, remove).map(nothing),
            Step::GrowLogicalVolume { group, name, size } => {
                logical::grow(group, name, *size).map(nothing)
            }
            Step::RemoveLogicalVolume { group, name, wipe } => {
                logical::remove(&self.root, group, name, *wipe).map(nothing)
            }
            Step::ActivateLogicalVolume { group, name } => {
                logical::activate(group, name).map(Done::Device)
            }
            Step::DeactivateLogicalVolume { group, name } => {
                logical::deactivate(&self.root, group, name).map(nothing)
            }
            other => Err(misplaced(other)),
        }
    }
}

fn give_up(site: Site) -> Result<(), String> {
    namespace::keep_only(site.rights())?;
    caps::drop(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE)
        .map_err(|error| error.to_string())
}

fn misplaced(step: &Step) -> Failure {
    Failure::new(
        Trouble::Failed,
        format!("this process is not the one that takes this step: {step:?}"),
    )
}
