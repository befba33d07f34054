//! The worker's side of the pipe: reads a question a line, does it, writes the answer. It may block for ever; that is what it is for.
//!
//! Single-threaded, with few rights, in the host's mount namespace where volumes are asked. Its end is the end of its standard input.

mod fs_errors;
mod mount;

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use caps::Capability;

use crate::host::namespace;
use crate::host::root::HostRoot;
use crate::host::worker::Hello;
use crate::source::jobs::{Answer, Job, Part};
use crate::source::{counters, inventory, kubelet, layers};

/// Where a worker works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Our own mount namespace, where `--host-root` leads to the host.
    Own,
    /// PID 1's: mounts are reached by the paths that the host uses.
    HostMounts,
    /// PID 1's too, as a helper that answers no questions but tells of filesystems' errors.
    FsErrors,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Own => "own",
            Place::HostMounts => "host-mounts",
            Place::FsErrors => "fs-errors",
        }
    }

    /// What it keeps. Reading below directories of any owner, and directories without a change of atime (open(2), O_NOATIME);
    /// device-mapper's status asks for CAP_SYS_ADMIN (drivers/md/dm-ioctl.c), and so do fanotify's marks on whole filesystems.
    fn rights(self) -> &'static [Capability] {
        match self {
            Place::Own | Place::FsErrors => &[Capability::CAP_DAC_READ_SEARCH, Capability::CAP_SYS_ADMIN],
            Place::HostMounts => &[Capability::CAP_DAC_READ_SEARCH, Capability::CAP_FOWNER],
        }
    }
}

/// Arguments that make our binary a worker.
pub fn arguments(place: Place, root: &HostRoot) -> Vec<OsString> {
    vec!["worker".into(), place.name().into(), root.dir().into()]
}

/// The whole life of a worker process. `args` are those behind the word `worker`.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let place = match args.next() {
        Some(place) if place == Place::Own.name() => Place::Own,
        Some(place) if place == Place::HostMounts.name() => Place::HostMounts,
        Some(place) if place == Place::FsErrors.name() => Place::FsErrors,
        _ => return wrong_start(),
    };
    let Some(root) = args.next() else { return wrong_start() };
    let root = HostRoot::new(PathBuf::from(root));
    let limitations = prepare(place, &root);
    let served = match place {
        Place::FsErrors => fs_errors::serve(limitations),
        Place::Own | Place::HostMounts => serve(&root, place, &Hello { limitations }),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon is gone, and with it whoever could be told.
        Err(_) => ExitCode::FAILURE,
    }
}

fn wrong_start() -> ExitCode {
    eprintln!("`diskvitalsd worker` is how the daemon starts its probe processes; it is of no use by hand");
    ExitCode::from(2)
}

/// Enters the namespace, gives up rights, and makes itself the first to go when memory is short. What fails is a limitation in words.
fn prepare(place: Place, root: &HostRoot) -> Vec<String> {
    let mut limitations = Vec::new();
    // A name of 15 bytes at most, for ps(1). Without it the process works as well.
    let _ = nix::sys::prctl::set_name(c"diskvitals-work");
    // May be forbidden in a container: then all are as likely as each other.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    if place != Place::Own && !root.is_recorded() {
        limitations.extend(namespace::enter_host_mounts(root).err());
    }
    if nix::unistd::geteuid().is_root() {
        if let Err(error) = namespace::keep_only(place.rights()) {
            limitations.push(format!("probe processes keep more rights than they need ({error})"));
        }
    } else {
        limitations.push("not root: volumes and folders of other users may not be read".into());
    }
    limitations
}

fn serve(root: &HostRoot, place: Place, hello: &Hello) -> std::io::Result<()> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    say(&mut output, hello)?;
    for line in input.lines() {
        let answer = match serde_json::from_str::<Job>(&line?) {
            Ok(job) => perform(root, place, &job),
            Err(error) => Answer::Failed { error: format!("a worker was asked what it does not understand: {error}") },
        };
        say(&mut output, &answer)?;
    }
    Ok(())
}

fn say(output: &mut impl Write, what: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

fn perform(root: &HostRoot, place: Place, job: &Job) -> Answer {
    match job {
        Job::Inventory { admit, ignore } => inventory::scan(root, admit, ignore).map_or_else(failed, Answer::Inventory),
        Job::Layer { device, layer } => layers::read(root, device, layer).map_or_else(failed, Answer::Layer),
        Job::Kubelet { kubelet_root } => kubelet::scan(root, kubelet_root).map_or_else(failed, Answer::Kubelet),
        Job::ProbeMount { path } if root.is_recorded() => mount::recorded(root, path).map_or_else(failed, Answer::ProbeMount),
        Job::ProbeMount { path } if place == Place::HostMounts => Answer::ProbeMount(mount::probe(path)),
        Job::Counters { part: Part::Xfs { .. } | Part::Btrfs { .. } } if root.is_recorded() => Answer::Counters(counters::none()),
        Job::Counters { part: Part::Xfs { path, .. } | Part::Btrfs { path } } if place != Place::HostMounts => misplaced(&path.to_string()),
        Job::Counters { part } => counters::read(root, part).map_or_else(failed, Answer::Counters),
        Job::ProbeMount { path } => misplaced(&path.to_string()),
    }
}

fn misplaced(what: &str) -> Answer {
    Answer::Failed { error: format!("this worker is not in the host's mount namespace: {what}") }
}

/// An error with its causes: it crosses a pipe, where only text goes.
fn failed(error: impl std::error::Error) -> Answer {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    Answer::Failed { error: text }
}
