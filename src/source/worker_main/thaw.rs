//! Thaws filesystems that killed freezers left frozen, and resumes volumes that killed lvm
//! processes left suspended (`resume`). It uses their intents; a process that is still alive is
//! left alone.
//!
//! The daemon calls it at its start and when a freezer has exited. The unit's ExecStopPost also
//! calls it (`diskvitalsd worker thaw ROOT INTENTS`), even after daemon and freezer were killed
//! together.
//!
//! An intent in the state `asking` is also thawed: SIGKILL does not end FIFREEZE, which waits
//! uninterruptibly and leaves the filesystem frozen with nothing to thaw it. That freeze is ours:
//! with another program's freeze, the call would have failed with EBUSY, and the intent would have
//! been removed. Only a freeze by another program in the instant between the intent and the call
//! could be thawed in error. If nothing is frozen, FITHAW returns EINVAL.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use caps::Capability;
use nix::errno::Errno;
use nix::poll::PollTimeout;

use super::host_mounts::{HostMountsError, enter_host_mounts};
use super::resume;
use crate::checks::freezer::protocol::{RepairResult, ResumeResult};
use crate::mounts;
use diskvitals_finding::path::HostPath;
use diskvitals_host::clock::monotonic;
use diskvitals_host::freeze::OpenMount;
use diskvitals_host::intents::{self, FreezeIntent, StoredIntent, lvm_intent};
use diskvitals_host::namespace::{self, CapabilityError};
use diskvitals_host::root::HostRoot;
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;

/// Interval of checks for the exit of a process that is not a child: the kernel does not report it.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A freezer whose pipe has closed thaws at once; one that was killed in FIFREEZE exits when that
/// returns. Longer waits are left to the next repair: a service's stop waits for this one.
const FREEZER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const CAPABILITIES: &[Capability] =
    &[Capability::CAP_SYS_ADMIN, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_FOWNER];

/// `worker thaw ROOT INTENTS`: prints a line for each intent that was handled.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(root), Some(intents)) = (args.next(), args.next()) else {
        eprintln!(
            "usage: diskvitalsd worker thaw ROOT INTENTS: thaws what freezers left behind that are gone, and resumes what lvm left"
        );
        return ExitCode::from(2);
    };
    let (root, intents) = (HostRoot::new(PathBuf::from(root)), Path::new(&intents));
    let thawed = repair(&root, intents, None);
    // Already in the host's mount namespace, where the root has another path. Intents stay for the
    // next start, which may have to remove a snapshot.
    let root = if root.is_recorded() { root } else { HostRoot::new("/") };
    let resumed = resume_on_host(&root, intents, false);
    thawed
        .lines
        .iter()
        .chain(&resumed.lines)
        .for_each(|line| eprintln!("diskvitalsd: {}", Shown::screen(line)));
    ExitCode::SUCCESS
}

/// Calls `resume::resume` in the host's mount namespace.
pub(super) fn resume_on_host(root: &HostRoot, intents: &Path, forget: bool) -> ResumeResult {
    if root.is_recorded() {
        return ResumeResult::default();
    }
    // lvm does not run if the host's mounts are not reachable: without intents, nothing was
    // suspended.
    let none = || lvm_intent::find(intents).is_ok_and(|found| found.is_empty());
    match enter_host(root, none) {
        Ok(true) => {}
        Ok(false) => return ResumeResult::default(),
        Err(error) => {
            return ResumeResult { lines: vec![with_causes(&error)], ..ResumeResult::default() };
        }
    }
    resume::resume(&HostRoot::new("/"), intents, forget)
}

/// Enters the host's mount namespace with the capabilities that are needed there. False: it is not
/// reachable, and there is nothing to repair.
fn enter_host(
    root: &HostRoot,
    nothing_is_noted: impl Fn() -> bool,
) -> Result<bool, EnterHostError> {
    match enter_host_mounts(root) {
        Err(_) if nothing_is_noted() => return Ok(false),
        entered => entered?,
    }
    if nix::unistd::geteuid().is_root() {
        namespace::limit_capabilities(CAPABILITIES)?;
    }
    Ok(true)
}

#[derive(Debug, thiserror::Error)]
enum EnterHostError {
    #[error(transparent)]
    Mounts(#[from] HostMountsError),
    #[error(transparent)]
    Capabilities(#[from] CapabilityError),
}

/// `only`: the intent of this name.
pub fn repair(root: &HostRoot, intents: &Path, only: Option<&str>) -> RepairResult {
    if root.is_recorded() {
        return RepairResult::default();
    }
    // A freezer refuses to freeze there: without intents, nothing was frozen.
    let none = || intents::find(intents).is_ok_and(|found| found.is_empty());
    match enter_host(root, none) {
        Ok(true) => {}
        Ok(false) => return RepairResult::default(),
        Err(error) => {
            return RepairResult { lines: vec![with_causes(&error)], maybe_frozen: true };
        }
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
                return RepairResult { maybe_frozen: true, ..repaired };
            }
        };
        // Lines about other intents come from the first round, and stay.
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
        // Only sleeps: the kernel does not report the exit of a process that is not a child.
        let _ = nix::poll::poll(
            &mut [],
            PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO),
        );
    }
}

fn is_current_boot(intent: &FreezeIntent) -> bool {
    // An unknown boot id counts as the current one: at worst, FITHAW finds nothing frozen.
    intents::boot_id().is_ok_and(|boot| boot == intent.boot_id)
}

/// Handles the intent of a dead process. Returns the actions, as text, and whether the filesystem
/// may still be frozen. Removes the intent when nothing is left to do.
pub(super) fn thaw(found: &StoredIntent) -> Option<(String, bool)> {
    let name = found.path.display();
    let Some(intent) = &found.intent else {
        return Some((format!("{name} is no note of a freeze, and stays"), false));
    };
    let said = if is_current_boot(intent) { try_thaw(intent) } else { Ok(None) };
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

/// None: it was not frozen. An error: it may still be frozen.
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

/// The recorded mount point first, then all other mounts of the same filesystem.
fn paths(intent: &FreezeIntent) -> Vec<HostPath> {
    let mounts = read_mounts().unwrap_or_default();
    let others = mounts
        .into_iter()
        .filter(|mount| mount.dev == intent.dev && mount.mount_point != intent.mount);
    std::iter::once(intent.mount.clone()).chain(others.map(|mount| mount.mount_point)).collect()
}

fn read_mounts() -> io::Result<Vec<diskvitals_finding::mount::Mount>> {
    Ok(mounts::parse(&std::fs::read("/proc/self/mountinfo")?).0)
}
