//! The helper that runs one checker: opens the devices for reading only, makes the loops, keeps the
//! checker in its jail.
//!
//! In, a line each: `Ask`. Out, a line each: `Said`. The end of its standard input is the checker's
//! end and its own. It works in a mount namespace of its own whose /dev has the nodes that it makes
//! there: nobody's /dev is needed, and nobody else sees them.

use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{O_CLOEXEC, O_EXCL};

use crate::checker::{self, JAIL, Order, Source, Told, not_started};
use crate::host::helper::Program;
use crate::host::jail::{self, Cell, Jailed, NOBODY, Node, Plan};
use crate::host::loops::{self, Loop, LoopError, MARK};
use crate::host::root::HostRoot;
use crate::model::causes::with_causes;
use crate::model::check::{Filesystem, Mode, Run};
use crate::model::dev::DevNo;
use crate::source::checks::runner::pipe::{Ask, Said};
use crate::source::checks::runner::{Device, RunOrder};
use crate::source::worker::say;

const DEV: &str = "/dev";

pub fn serve(root: &HostRoot) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    match hear(&mut input)? {
        None | Some(Ask::Go) => Ok(()),
        Some(Ask::CleanUp) => {
            let lines = match own_dev(root, None) {
                Ok(()) => loops::detach_all(root, Path::new(DEV)),
                Err(errno) => {
                    vec![format!(
                        "loops that were left over from filesystem checks were not looked for: making a /dev of its own: {errno}"
                    )]
                }
            };
            say(&mut output, &Said::Cleaned(lines))
        }
        Some(Ask::Run(order)) => {
            let opened = match Opened::new(root, &order) {
                Ok(opened) => opened,
                Err(why) => {
                    return say(
                        &mut output,
                        &Said::Ended(Box::new(not_started(order.mode, shown(&order), why))),
                    );
                }
            };
            say(&mut output, &Said::Ready)?;
            match hear(&mut input)? {
                Some(Ask::Go) => {}
                _ => return Ok(()),
            }
            let (run, left) = opened.run(root, &order, &mut output);
            // Nobody may listen any more: then a checker that hangs is waited for all the same.
            let told = say(&mut output, &Said::Ended(Box::new(run)));
            // Its loops go with it; who waits for us waits for it. The devices are closed after
            // that: closing one that does not answer may take as long.
            let gone = left.map_or(Ok(()), await_end);
            drop(opened);
            told.and(gone)
        }
    }
}

fn hear(input: &mut impl BufRead) -> io::Result<Option<Ask>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line)
        .map(Some)
        .map_err(io::Error::from)
}

fn shown(order: &RunOrder) -> String {
    checker::shown(
        &order.command,
        &checker::arguments(
            order.filesystem,
            Source::Node(&Path::new(DEV).join(&order.device.name)),
        ),
    )
}

fn own_dev(root: &HostRoot, command: Option<&Path>) -> Result<(), Errno> {
    let (proc, sys) = (root.at("/proc"), root.at("/sys"));
    let keep: Vec<&Path> = [proc.as_path(), sys.as_path()]
        .into_iter()
        .chain(command)
        .collect();
    jail::private_dev(&keep)
}

/// Until a checker that could not be killed has gone.
fn await_end(mut left: Jailed) -> io::Result<()> {
    while left.ended(|_| ())?.is_none() {
        // Nothing but time to wait for: its pipes are of no more use.
        nix::poll::poll(&mut [], 500_u16).map_err(io::Error::from)?;
    }
    Ok(())
}

/// What the checker is going to read, held open.
struct Opened {
    nodes: Vec<Node>,
    loops: Vec<Loop>,
    /// As long as they are open, their numbers are not given to others.
    _devices: Vec<File>,
}

impl Opened {
    /// `Err`: why there can be no run.
    fn new(root: &HostRoot, order: &RunOrder) -> Result<Opened, String> {
        if !order.command.is_file() {
            let (name, package) = order.filesystem.checker();
            return Err(format!(
                "{name} is not installed: install the package {package} ({} is not there)",
                order.command.display()
            ));
        }
        own_dev(root, Some(&order.command))
            .map_err(|errno| format!("making a /dev of its own: {errno}"))?;
        let mut opened = Opened {
            nodes: Vec::new(),
            loops: Vec::new(),
            _devices: Vec::new(),
        };
        for (number, device) in std::iter::once(&order.device)
            .chain(&order.members)
            .enumerate()
        {
            let named = |error: LoopError| {
                format!("{} ({}): {}", device.name, device.dev, with_causes(&error))
            };
            if !is_there(root, device) {
                return Err(format!(
                    "{} is gone, or is another device than {} now",
                    device.name, device.dev
                ));
            }
            // Where backing_file shows our mark and nothing else.
            let dir = Path::new(DEV).join(number.to_string());
            std::fs::create_dir(&dir)
                .map_err(|error| format!("making {}: {error}", dir.display()))?;
            if order.mode == Mode::Unmounted && in_use(&dir, device.dev).map_err(named)? {
                return Err(format!(
                    "{} is in use outside this host's mount table",
                    device.name
                ));
            }
            let backing = loops::open_node(&dir, MARK, device.dev, O_CLOEXEC).map_err(named)?;
            if order.filesystem == Filesystem::Ext4 {
                // Through its page cache, where the mounted filesystem's metadata is.
                opened.nodes.push(Node {
                    name: device.name.clone(),
                    dev: device.dev,
                });
            } else {
                let attached = loops::attach(root, Path::new(DEV), &backing).map_err(named)?;
                opened.nodes.push(Node {
                    name: attached.name.clone(),
                    dev: attached.dev,
                });
                opened.loops.push(attached);
            }
            opened._devices.push(backing);
        }
        Ok(opened)
    }

    fn run(
        &self,
        root: &HostRoot,
        order: &RunOrder,
        output: &mut impl io::Write,
    ) -> (Run, Option<Jailed>) {
        let Some(first) = self.nodes.first() else {
            return (
                not_started(order.mode, shown(order), "without a device".to_owned()),
                None,
            );
        };
        let args = checker::arguments(
            order.filesystem,
            Source::Node(&Path::new(DEV).join(&first.name)),
        );
        for attached in &self.loops {
            if let Err(error) = attached.forget_cached() {
                return (
                    not_started(order.mode, shown(order), with_causes(&error)),
                    None,
                );
            }
        }
        let ours = Order {
            // Ourselves, also when the file has been replaced since we were started.
            program: Program {
                program: "/proc/self/exe".into(),
                args: JAIL.map(Into::into).to_vec(),
            },
            filesystem: order.filesystem,
            mode: order.mode,
            command: order.command.clone(),
            args,
            plan: Plan {
                cell: Some(Cell {
                    uid: NOBODY,
                    gid: NOBODY,
                    nodes: self.nodes.clone(),
                    image: None,
                }),
                memory: order.memory,
                unlimited_files: checker::wants_unlimited_files(order.filesystem),
                modest: order.mode != Mode::Frozen,
                parent: nix::unistd::getpid().as_raw(),
            },
            timeout: order.timeout,
            bytes_per_second: order
                .bytes_per_second
                .filter(|_| order.mode != Mode::Frozen),
        };
        // A daemon that does not listen any more closes our input as well.
        let mut phase = |phase: &str| drop(say(output, &Said::Phase(phase.to_owned())));
        let mut void = || self.void(root, order);
        let stdin = io::stdin();
        let mut done = checker::run(
            &ours,
            stdin.as_fd(),
            &mut Told {
                phase: &mut phase,
                void: &mut void,
            },
        );
        // The loop's name is nobody's business, and another one each time.
        done.run.command = shown(order);
        (done.run, done.left)
    }

    /// Why what was read does not count.
    fn void(&self, root: &HostRoot, order: &RunOrder) -> Option<String> {
        for (number, device) in std::iter::once(&order.device)
            .chain(&order.members)
            .enumerate()
        {
            if !is_there(root, device) {
                return Some(format!("{} was removed meanwhile", device.name));
            }
            if order.mode == Mode::Unmounted
                && in_use(&Path::new(DEV).join(number.to_string()), device.dev).unwrap_or(true)
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

/// Whether `dev` is the device of that name still.
fn is_there(root: &HostRoot, device: &Device) -> bool {
    let link = std::fs::read_link(root.at(format!("/sys/dev/block/{}", device.dev)));
    link.is_ok_and(|path| {
        path.file_name()
            .is_some_and(|name| name == device.name.as_str())
    })
}

/// Whether somebody (a mount in whatever namespace, a layer above it) claims it for himself:
/// open(2), O_EXCL on block devices. We do not keep the claim.
fn in_use(dir: &Path, dev: DevNo) -> Result<bool, LoopError> {
    match loops::open_node(dir, MARK, dev, O_EXCL | O_CLOEXEC) {
        Ok(_) => Ok(false),
        Err(LoopError::Open(_, error)) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
