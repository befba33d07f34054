//! Thawing what freezers left behind that were killed: by their notes, of which a living writer's
//! is left alone. And resuming what lvm left (`resume`).
//!
//! Run by the daemon when a freezer has gone and at its start, and by the unit's ExecStopPost
//! (`diskvitalsd worker thaw ROOT INTENTS`), which also runs after daemon and freezer were killed
//! together.
//!
//! A note that only says `asking` is thawed by as well: SIGKILL does not end FIFREEZE, which waits
//! uninterruptibly and leaves the filesystem frozen with nobody to thaw it. That freeze is ours:
//! somebody else's would have answered EBUSY, and then the note would be gone. Only one that was
//! frozen by another in the instant between the note and the call could be thawed in error. Where
//! nothing is frozen, FITHAW says EINVAL, and that is that.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use caps::Capability;
use nix::errno::Errno;
use nix::poll::PollTimeout;

use super::freezer::{POLL_INTERVAL, enter_host_mounts};
use super::resume;
use crate::host::clock::monotonic;
use crate::host::freeze::OpenMount;
use crate::host::intents::{self, FreezeIntent, StoredIntent, lvm_intent};
use crate::host::namespace;
use crate::host::root::HostRoot;
use crate::model::causes::with_causes;
use crate::model::path::HostPath;
use crate::source::checks::freezer::protocol::{RepairResult, ResumeResult};
use crate::source::mounts;

/// A freezer whose pipe has ended thaws at once; one that was killed in FIFREEZE is back when the
/// filesystem is frozen. Longer is left to the next who looks: a service's stop is waited for.
const FREEZER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const CAPABILITIES: &[Capability] = &[
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
];

/// `worker thaw ROOT INTENTS`: a line for each note that something was done about.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(root), Some(intents)) = (args.next(), args.next()) else {
        eprintln!(
            "usage: diskvitalsd worker thaw ROOT INTENTS: thaws what freezers left behind that are gone, and resumes what lvm left"
        );
        return ExitCode::from(2);
    };
    let (root, intents) = (HostRoot::new(PathBuf::from(root)), Path::new(&intents));
    let thawed = repair(&root, intents, None);
    // By now in the host's mount namespace, where it has another name. Notes stay for the next
    // start: there may be a snapshot to be removed.
    let root = if root.is_recorded() {
        root
    } else {
        HostRoot::new("/")
    };
    let resumed = resume_on_host(&root, intents, false);
    thawed
        .lines
        .iter()
        .chain(&resumed.lines)
        .for_each(|line| eprintln!("diskvitalsd: {line}"));
    ExitCode::SUCCESS
}

/// `resume::resume`, where the host's names are.
pub(super) fn resume_on_host(root: &HostRoot, intents: &Path, forget: bool) -> ResumeResult {
    let failed = |why: String| ResumeResult {
        lines: vec![why],
        ..ResumeResult::default()
    };
    if root.is_recorded() {
        return ResumeResult::default();
    }
    // lvm does not run where the host's mounts are not reached: without notes, nothing was
    // suspended.
    let none = || lvm_intent::find(intents).is_ok_and(|found| found.is_empty());
    match enter_host(root, none) {
        Ok(true) => {}
        Ok(false) => return ResumeResult::default(),
        Err(why) => return failed(why),
    }
    resume::resume(&HostRoot::new("/"), intents, forget)
}

/// Into the host's mount namespace, with the rights that are needed there. False: it is not
/// reached, and there is nothing to be made good either.
fn enter_host(root: &HostRoot, nothing_is_noted: impl Fn() -> bool) -> Result<bool, String> {
    if let Err(why) = enter_host_mounts(root) {
        return if nothing_is_noted() {
            Ok(false)
        } else {
            Err(why)
        };
    }
    if nix::unistd::geteuid().is_root() {
        namespace::limit_capabilities(CAPABILITIES)?;
    }
    Ok(true)
}

/// `only`: of the note of this name.
pub fn repair(root: &HostRoot, intents: &Path, only: Option<&str>) -> RepairResult {
    let unknown = |why: String| RepairResult {
        lines: vec![why],
        maybe_frozen: true,
    };
    if root.is_recorded() {
        return RepairResult::default();
    }
    // A freezer refuses there: where no notes are seen either, nothing was frozen.
    let none = || intents::find(intents).is_ok_and(|found| found.is_empty());
    match enter_host(root, none) {
        Ok(true) => {}
        Ok(false) => return RepairResult::default(),
        Err(why) => return unknown(why),
    }
    let wanted = |found: &StoredIntent| {
        only.is_none_or(|only| found.path.file_stem().is_some_and(|name| name == only))
    };
    let mut repaired = RepairResult::default();
    let end = monotonic().saturating_add(FREEZER_EXIT_TIMEOUT);
    loop {
        let found = match intents::find(intents) {
            Ok(found) => found,
            Err(error) => {
                repaired.lines.push(with_causes(&error));
                return RepairResult {
                    maybe_frozen: true,
                    ..repaired
                };
            }
        };
        // What is about something else was said in the first round, and stays.
        let (waiting, settled): (Vec<StoredIntent>, Vec<StoredIntent>) =
            found.into_iter().filter(wanted).partition(|found| {
                found
                    .intent
                    .as_ref()
                    .is_some_and(|intent| is_current_boot(intent) && intent.is_writer_alive())
            });
        for (line, unsure) in settled.iter().filter_map(thaw) {
            repaired.maybe_frozen |= unsure;
            if !repaired.lines.contains(&line) {
                repaired.lines.push(line);
            }
        }
        if waiting.is_empty() {
            return repaired;
        }
        if monotonic() >= end {
            repaired.maybe_frozen = true;
            repaired.lines.extend(waiting.iter().filter_map(|found| {
                let intent = found.intent.as_ref()?;
                Some(format!(
                    "{}: its freezer, process {}, is still there, and thaws it when it can",
                    intent.mount, intent.pid
                ))
            }));
            return repaired;
        }
        // Waits for nothing but time: not a child, so nothing tells of its end.
        let _ = nix::poll::poll(
            &mut [],
            PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO),
        );
    }
}

fn is_current_boot(intent: &FreezeIntent) -> bool {
    // Unknown counts as now: then the worst is a FITHAW that finds nothing.
    intents::boot_id().is_ok_and(|boot| boot == intent.boot_id)
}

/// What was done about a note whose writer is gone, in words, and whether its filesystem may be
/// frozen still; the note goes where there is nothing more to do.
pub(super) fn thaw(found: &StoredIntent) -> Option<(String, bool)> {
    let name = found.path.display();
    let Some(intent) = &found.intent else {
        return Some((format!("{name} is no note of a freeze, and stays"), false));
    };
    let said = if is_current_boot(intent) {
        try_thaw(intent)
    } else {
        Ok(None)
    };
    match said {
        Ok(said) => match found.remove() {
            Ok(()) => said.map(|said| (said, false)),
            Err(error) => {
                let said = said.unwrap_or_else(|| format!("{} is not frozen", intent.mount));
                Some((format!("{said}; removing {name}: {error}"), false))
            }
        },
        Err(why) => Some((why, true)),
    }
}

/// None where it was not frozen. `Err`: it may be frozen still.
fn try_thaw(intent: &FreezeIntent) -> Result<Option<String>, String> {
    let mut problem = "it is not mounted there or anywhere else in the host's mount namespace: mount its device once more, then".to_owned();
    for path in paths(intent) {
        match OpenMount::open(&path) {
            Ok(mounted) if mounted.has_dev(intent.dev) => match mounted.thaw() {
                Ok(()) => {
                    return Ok(Some(format!(
                        "{path} was left frozen by a freezer that was killed, and is thawed"
                    )));
                }
                Err(Errno::EINVAL) => return Ok(None),
                Err(errno) => problem = format!("thawing it: {errno}; try"),
            },
            Ok(_) => {}
            Err(error) => problem = format!("{error}; try"),
        }
    }
    Err(format!(
        "{} may be frozen by a freezer that was killed: {problem} `fsfreeze -u {}`",
        intent.mount, intent.mount
    ))
}

/// Where it was, then wherever else the same filesystem is mounted.
fn paths(intent: &FreezeIntent) -> Vec<HostPath> {
    let mounts = read_mounts().unwrap_or_default();
    let others = mounts
        .into_iter()
        .filter(|mount| mount.dev == intent.dev && mount.mount_point != intent.mount);
    std::iter::once(intent.mount.clone())
        .chain(others.map(|mount| mount.mount_point))
        .collect()
}

fn read_mounts() -> io::Result<Vec<crate::model::mount::Mount>> {
    Ok(mounts::parse(&std::fs::read("/proc/self/mountinfo")?).0)
}
