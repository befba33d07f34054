//! One run of a checker: what it is, and its result. `monitor` follows the process.

mod monitor;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command_line;
use crate::run::monitor::RunMonitor;
use diskvitals_fscheck::run_result::{classify_run, says_no_error};
use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity, RunResult, Termination};
use diskvitals_host::clock::now;
use diskvitals_host::helper::Program;
use diskvitals_host::jail::{self, JailSpec, JailedProcess, PROGRESS_FD, RunGroup, is_fork};

/// How often xfs_repair prints a line about its progress, where it works on several allocation
/// groups at a time; elsewhere never.
const XFS_PROGRESS_SECONDS: u32 = 10;

/// The parameters of one run. `run` adds arguments by which the checker reports its progress: they
/// change nothing else, and are not shown.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// Our own binary, with the arguments that start it as the jail.
    pub program: Program,
    pub filesystem: Filesystem,
    pub mode: Mode,
    /// Absolute path.
    pub command: PathBuf,
    pub args: Vec<OsString>,
    pub plan: JailSpec,
    pub timeout: Duration,
    pub bytes_per_second: Option<u64>,
}

/// Callbacks during the run and at its end.
pub struct RunCallbacks<'a> {
    pub on_activity: &'a mut dyn FnMut(&RunActivity),
    /// Why the result is invalid for an external reason (the device was removed). Called after a
    /// run that ended by itself.
    pub invalid_because: &'a mut dyn FnMut() -> Option<String>,
}

#[derive(Debug)]
pub struct RunOutcome {
    pub run: Run,
    /// The checker, if it was killed and did not exit.
    pub unkillable: Option<JailedProcess>,
}

/// The result of a run that did not start.
pub fn not_started(mode: Mode, command: String, why: String) -> Run {
    Run { command, ..Run::failed(mode, now(), Termination::NotStarted(why.clone()), why) }
}

/// Returns when the checker has ended. `group`: of this run alone; who made it removes it when no writer
/// waits for the run. `stop`: readable or closed when the run must stop.
pub fn run(
    spec: &RunSpec,
    group: &Arc<RunGroup>,
    stop: BorrowedFd<'_>,
    callbacks: &mut RunCallbacks<'_>,
) -> RunOutcome {
    let command = command_line(&spec.command, &spec.args);
    let started = now();
    // Read before the start: the checker may already run while this thread waits for a processor.
    let since = Instant::now();
    let args = with_progress(spec);
    let jailed =
        match jail::start(&spec.program, &spec.plan, Arc::clone(group), &spec.command, &args) {
            Ok(jailed) => jailed,
            Err(error) => {
                let why = format!("starting {}: {error}", spec.command.display());
                return RunOutcome { run: not_started(spec.mode, command, why), unkillable: None };
            }
        };
    let mut monitor = RunMonitor::new(spec, since);
    let (end, unkillable) = monitor.run_to_end(jailed, spec, stop, callbacks);
    let duration = since.elapsed();
    let active = monitor.active(duration);
    let reader = &mut monitor.reader;
    let output = monitor.sink.finish(&mut |line| reader.push_line(line));
    if let Some(why) = monitor.jail_error {
        return RunOutcome { run: not_started(spec.mode, command, why), unkillable };
    }
    let parsed = monitor.reader.finish();
    // Called only if the run ended by itself. Otherwise the device may have blocked it, and would
    // block this call too.
    let invalid =
        if matches!(end, Termination::Exited(_)) { (callbacks.invalid_because)() } else { None };
    let exceeded = monitor.exceeded.map(|bound| format!("{} {bound}", spec.filesystem.checker().0));
    let refused =
        refusal(spec.filesystem, &monitor.refused, monitor.tasks_unbounded_because.as_deref());
    let (result, failure_reason) = match exceeded.or(refused).or(invalid).or(monitor.throttle_error)
    {
        Some(why) => (RunResult::Failed, why),
        None => classify_run(spec.filesystem, spec.mode, &parsed, &end),
    };
    let no_error_found = says_no_error(&parsed, &end);
    let run = Run {
        mode: spec.mode,
        started,
        duration,
        active,
        held: None,
        termination: end,
        result,
        failure_reason,
        checker_error: parsed.failure,
        problems: parsed.problems,
        more_problems: parsed.more_problems,
        no_error_found,
        pending_replay: parsed.pending_replay,
        bytes_read: monitor.bytes_read,
        peak_memory: monitor.peak_memory,
        command,
        output,
        filesystem_uuid: None,
    };
    RunOutcome { run, unkillable }
}

/// The arguments that make the checker report its progress, before its own.
fn with_progress(spec: &RunSpec) -> Vec<OsString> {
    let own = spec.args.iter().cloned();
    match spec.filesystem {
        Filesystem::Ext4 => {
            ["-C".into(), PROGRESS_FD.to_string().into()].into_iter().chain(own).collect()
        }
        Filesystem::Xfs => {
            ["-t".into(), XFS_PROGRESS_SECONDS.to_string().into()].into_iter().chain(own).collect()
        }
        Filesystem::Btrfs => own.collect(),
    }
}

/// Why a run proves nothing that used system calls which the jail refuses.
fn refusal(
    filesystem: Filesystem,
    numbers: &BTreeSet<i32>,
    tasks_unbounded_because: Option<&str>,
) -> Option<String> {
    if let Some(why) = tasks_unbounded_because
        && numbers.iter().copied().any(is_fork)
    {
        return Some(format!(
            "{} started another process, which it may not here: nothing would bound the number of its \
             processes. It runs as root, who alone may read the image, and {why}. Let other users read \
             the image (`chmod o+r`), or have control groups made",
            filesystem.checker().0
        ));
    }
    let list: Vec<String> = numbers.iter().map(i32::to_string).collect();
    (!list.is_empty()).then(|| {
        format!(
            "{} used a system call that its jail refuses: number {} (`ausyscall {} NUMBER` names \
             it). No checker of a distribution needs one: verify the program's file and report \
             its version",
            filesystem.checker().0,
            list.join(", "),
            std::env::consts::ARCH
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_system_call_is_named() {
        let refusal =
            |numbers: &[i32]| refusal(Filesystem::Xfs, &numbers.iter().copied().collect(), None);
        assert_eq!(refusal(&[]), None);
        let reason = refusal(&[42, 41]).unwrap();
        assert!(reason.starts_with(
            "xfs_repair used a system call that its jail refuses: number 41, 42 (`ausyscall "
        ));
    }

    #[test]
    fn a_process_that_nothing_would_bound_is_named() {
        let clone = i32::try_from(nix::libc::SYS_clone).unwrap();
        let refusal = refusal(
            Filesystem::Ext4,
            &[clone].into(),
            Some("no control group can bound pids here"),
        );
        assert_eq!(
            refusal.as_deref(),
            Some(
                "e2fsck started another process, which it may not here: nothing would bound the number of \
                 its processes. It runs as root, who alone may read the image, and no control group can \
                 bound pids here. Let other users read the image (`chmod o+r`), or have control groups \
                 made"
            )
        );
    }
}
