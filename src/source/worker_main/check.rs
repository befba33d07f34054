//! The helper that runs one checker: opens the devices read-only, creates the loops, and runs the
//! checker in its jail.
//!
//! In, one line each: `RunnerRequest`. Out, one line each: `RunnerEvent`. When its standard input
//! closes, the checker and the helper end. It has its own mount namespace, whose /dev has only the
//! nodes that it creates: it needs no others, and these are visible nowhere else.

use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc::{O_CLOEXEC, O_EXCL};

use crate::checks::runner::protocol::{RunnerEvent, RunnerRequest};
use crate::checks::runner::{Device, RunRequest};
use crate::superblock;
use crate::worker_main::write_json_line;
use diskvitals_checker as checker;
use diskvitals_checker::{CheckerInput, JAIL_ARGS, RunCallbacks, RunSpec, not_started};
use diskvitals_finding::dev::DevNo;
use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity};
use diskvitals_host::helper::Program;
use diskvitals_host::jail::{
    self, DeviceNode, IdError, Isolation, JailSpec, JailedProcess, RunGroup,
    clear_all_leftover_groups, clear_leftover_groups, free_id, kill_orphans, weakness,
};
use diskvitals_host::loops::{self, BACKING_NODE_NAME, LoopError, ReadOnlyLoop};
use diskvitals_host::root::HostRoot;
use diskvitals_host::trusted_file;
use diskvitals_text::causes::with_causes;

const DEV_DIR: &str = "/dev";

pub fn serve(root: &HostRoot) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    match recv(&mut input)? {
        None | Some(RunnerRequest::Start) => Ok(()),
        Some(RunnerRequest::DetachLoops) => {
            // Before the mount that may hold the host's /etc is left.
            let ids = jail::ids_of_runs(root);
            let mut lines = match enter_private_dev(root, None) {
                Ok(()) => loops::detach_all(root, Path::new(DEV_DIR)),
                Err(errno) => {
                    vec![format!(
                        "loops that were left over from filesystem checks were not looked for: making a /dev of its own: {errno}"
                    )]
                }
            };
            // After the loops: a process that cannot be killed takes time.
            lines.extend(clear_all_leftover_groups(root));
            match ids {
                Ok(ids) => lines.extend(kill_orphans(&ids)),
                Err(error) => lines.push(format!(
                    "processes of earlier filesystem checks were not looked for: {}",
                    with_causes(&error)
                )),
            }
            if jail::is_possible() {
                lines.extend(weakness(root));
            }
            write_json_line(&mut output, &RunnerEvent::LoopsDetached(lines))
        }
        Some(RunnerRequest::Run(request)) => {
            let opened = match OpenDevices::new(root, &request) {
                Ok(opened) => opened,
                Err(error) => {
                    return write_json_line(
                        &mut output,
                        &RunnerEvent::Finished(Box::new(not_started(
                            request.mode,
                            request.command_line(),
                            with_causes(&error),
                        ))),
                    );
                }
            };
            let plan = opened.jail_spec(&request);
            // Made before writers are held, and removed when they no longer wait: a process in it that cannot
            // be killed takes time.
            let group = Arc::new(RunGroup::create(root, &plan));
            write_json_line(&mut output, &RunnerEvent::Ready)?;
            match recv(&mut input)? {
                Some(RunnerRequest::Start) => {}
                _ => return Ok(()),
            }
            let (run, left) = opened.run(root, &request, plan, &group, &mut output);
            // The daemon may have exited; the helper still waits for a hanging checker.
            let told = write_json_line(&mut output, &RunnerEvent::Finished(Box::new(run)));
            // The loops disappear with the checker. The devices are closed after that: closing one
            // that does not respond may also take long.
            let gone = left.map_or(Ok(()), wait_for_exit);
            drop((group, opened));
            told.and(gone)
        }
    }
}

fn recv(input: &mut impl BufRead) -> io::Result<Option<RunnerRequest>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::from)
}

fn enter_private_dev(root: &HostRoot, command: Option<&Path>) -> Result<(), Errno> {
    let (proc, sys) = (root.at("/proc"), root.at("/sys"));
    let keep: Vec<&Path> = [proc.as_path(), sys.as_path()].into_iter().chain(command).collect();
    jail::private_dev(&keep)
}

/// Waits for the exit of a checker that could not be killed.
fn wait_for_exit(mut left: JailedProcess) -> io::Result<()> {
    while left.try_wait(|_| ())?.is_none() {
        // Only sleeps: the pipes are no longer used.
        nix::poll::poll(&mut [], 500_u16).map_err(io::Error::from)?;
    }
    Ok(())
}

/// The devices that the checker reads, held open.
struct OpenDevices {
    /// The checker's user and group.
    id: u32,
    nodes: Vec<DeviceNode>,
    loops: Vec<ReadOnlyLoop>,
    /// While they are open, their numbers are not reused.
    _devices: Vec<File>,
    /// Of the first device, if its superblock can be read.
    filesystem_uuid: Option<String>,
}

/// Why no run is possible.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("{name} is not installed: install the package {package} ({} is not there)", command.display())]
    NotInstalled { name: &'static str, package: &'static str, command: PathBuf },
    #[error("looking who may change the checker")]
    Untrusted(#[source] io::Error),
    #[error("choosing a user id for the checker")]
    Id(#[source] IdError),
    #[error("making a /dev of its own")]
    PrivateDev(#[source] Errno),
    #[error("making {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error("{0} ({1})")]
    Device(String, DevNo, #[source] LoopError),
    #[error("{0} is gone, or is another device than {1} now")]
    Replaced(String, DevNo),
    #[error("{0} is in use outside this host's mount table")]
    InUse(String),
}

impl OpenDevices {
    fn new(root: &HostRoot, request: &RunRequest) -> Result<OpenDevices, OpenError> {
        if !request.command.is_file() {
            let (name, package) = request.filesystem.checker();
            return Err(OpenError::NotInstalled {
                name,
                package,
                command: request.command.clone(),
            });
        }
        trusted_file::check_program(&request.command).map_err(OpenError::Untrusted)?;
        // Before the mount that may hold the host's /etc is left.
        let id = free_id(root).map_err(OpenError::Id)?;
        enter_private_dev(root, Some(&request.command)).map_err(OpenError::PrivateDev)?;
        // Now, while no writers are held.
        clear_leftover_groups(root);
        let mut opened = OpenDevices {
            id,
            nodes: Vec::new(),
            loops: Vec::new(),
            _devices: Vec::new(),
            filesystem_uuid: None,
        };
        for (number, device) in std::iter::once(&request.device).chain(&request.members).enumerate()
        {
            let named = |error| OpenError::Device(device.name.clone(), device.dev, error);
            if !is_same_device(root, device) {
                return Err(OpenError::Replaced(device.name.clone(), device.dev));
            }
            // In this directory, backing_file is only our own name.
            let dir = Path::new(DEV_DIR).join(number.to_string());
            std::fs::create_dir(&dir).map_err(|error| OpenError::Directory(dir.clone(), error))?;
            if request.mode == Mode::Unmounted && in_use(&dir, device.dev).map_err(named)? {
                return Err(OpenError::InUse(device.name.clone()));
            }
            let backing =
                loops::open_node(&dir, BACKING_NODE_NAME, device.dev, O_CLOEXEC).map_err(named)?;
            if request.filesystem == Filesystem::Ext4 {
                // Through its page cache, which has the mounted filesystem's metadata.
                opened.nodes.push(DeviceNode { name: device.name.clone(), dev: device.dev });
            } else {
                let attached = loops::attach(root, Path::new(DEV_DIR), &backing).map_err(named)?;
                opened.nodes.push(DeviceNode { name: attached.name.clone(), dev: attached.dev });
                opened.loops.push(attached);
            }
            if number == 0 {
                // The checker reports a device that cannot be read.
                let found = superblock::read_from(&backing).ok().flatten();
                opened.filesystem_uuid = found.map(|found| found.uuid);
            }
            opened._devices.push(backing);
        }
        Ok(opened)
    }

    fn jail_spec(&self, request: &RunRequest) -> JailSpec {
        JailSpec {
            isolation: Some(Isolation {
                uid: self.id,
                gid: self.id,
                nodes: self.nodes.clone(),
                image: None,
            }),
            memory: request.memory,
            unlimited_files: checker::needs_unlimited_file_size(request.filesystem),
            low_priority: request.mode != Mode::Frozen,
            parent: nix::unistd::getpid().as_raw(),
            progress: checker::reports_on_descriptor(request.filesystem),
            read_rate: request.bytes_per_second.filter(|_| request.mode != Mode::Frozen),
        }
    }

    fn run(
        &self,
        root: &HostRoot,
        request: &RunRequest,
        plan: JailSpec,
        group: &Arc<RunGroup>,
        output: &mut impl io::Write,
    ) -> (Run, Option<JailedProcess>) {
        let Some(first) = self.nodes.first() else {
            return (
                not_started(request.mode, request.command_line(), "without a device".to_owned()),
                None,
            );
        };
        let args = checker::arguments(
            request.filesystem,
            CheckerInput::BlockDevice(&Path::new(DEV_DIR).join(&first.name)),
        );
        for attached in &self.loops {
            if let Err(error) = attached.flush_buffers() {
                return (
                    not_started(request.mode, request.command_line(), with_causes(&error)),
                    None,
                );
            }
        }
        let ours = RunSpec {
            // Our own binary, even if its file was replaced after the start.
            program: Program {
                program: "/proc/self/exe".into(),
                args: JAIL_ARGS.map(Into::into).to_vec(),
            },
            filesystem: request.filesystem,
            mode: request.mode,
            command: request.command.clone(),
            args,
            bytes_per_second: plan.read_rate,
            plan,
            timeout: request.timeout,
        };
        // If the daemon has exited, our input is closed too.
        let mut activity = |activity: &RunActivity| {
            drop(write_json_line(output, &RunnerEvent::Activity(activity.clone())))
        };
        let mut void = || self.invalid_reason(root, request);
        let stdin = io::stdin();
        let mut done = checker::run(
            &ours,
            group,
            stdin.as_fd(),
            &mut RunCallbacks { on_activity: &mut activity, invalid_because: &mut void },
        );
        // The loop's name is of no interest and changes each time.
        done.run.command = request.command_line();
        done.run.filesystem_uuid.clone_from(&self.filesystem_uuid);
        (done.run, done.unkillable)
    }

    /// Why the read data is invalid.
    fn invalid_reason(&self, root: &HostRoot, request: &RunRequest) -> Option<String> {
        for (number, device) in std::iter::once(&request.device).chain(&request.members).enumerate()
        {
            if !is_same_device(root, device) {
                return Some(format!("{} was removed meanwhile", device.name));
            }
            if request.mode == Mode::Unmounted
                && in_use(&Path::new(DEV_DIR).join(number.to_string()), device.dev).unwrap_or(true)
            {
                return Some(format!("{} was taken into use meanwhile", device.name));
            }
        }
        self.loops
            .iter()
            .find_map(|attached| attached.verify(root).err())
            .map(|error| with_causes(&error))
    }
}

/// Whether `dev` is still the device with that name.
fn is_same_device(root: &HostRoot, device: &Device) -> bool {
    let link = std::fs::read_link(root.at(format!("/sys/dev/block/{}", device.dev)));
    link.is_ok_and(|path| path.file_name().is_some_and(|name| name == device.name.as_str()))
}

/// Whether a mount in any namespace, or a layer above the device, has claimed it: open(2), O_EXCL
/// on block devices. The claim is released at once.
fn in_use(dir: &Path, dev: DevNo) -> Result<bool, LoopError> {
    match loops::open_node(dir, BACKING_NODE_NAME, dev, O_EXCL | O_CLOEXEC) {
        Ok(_) => Ok(false),
        Err(LoopError::Open(_, error)) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
