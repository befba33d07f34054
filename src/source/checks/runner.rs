//! Runs a checker once, in processes that cannot write. The helper `check` opens the devices
//! read-only (XFS and btrfs through read-only direct-io loops), starts the jailed checker, reads
//! its output as a stream, and throttles it to spare the drive.
//!
//! In: a request. Out: one `fscheck::Run` with its result. Dropping the run kills the checker;
//! `OrphanedRuns` reports whether the checker exited. The caller freezes the filesystem.

mod orphans;
pub mod protocol;

pub use orphans::OrphanedRuns;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::checks::runner::orphans::GuardedHelper;
use crate::checks::runner::protocol::{RunnerEvent, RunnerRequest};
use diskvitals_checker::{CheckerInput, arguments, command_line, not_started};
use diskvitals_finding::dev::DevNo;
use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity, RunResult, Termination};
use diskvitals_host::exec::UnkillableChild;
use diskvitals_host::helper::{Helper, HelperError, Program};
use diskvitals_host::process::waiting_in;
use diskvitals_text::causes::with_causes;

/// Opening a device and making a loop takes milliseconds; udev or a sleeping drive may take longer.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);
/// The helper enforces the time-out of its checker; the daemon waits this much longer.
const HELPER_GRACE: Duration = Duration::from_secs(5);
/// A killed process has exited by then, or is blocked in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// A helper that has reported the end of its run removes the control group, and exits.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// A helper whose pipe is closed kills its checker, and then closes its devices.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A block device, by kernel name and number: no /dev is needed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Device {
    pub name: String,
    pub dev: DevNo,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunRequest {
    pub filesystem: Filesystem,
    pub mode: Mode,
    pub device: Device,
    /// The other members of a btrfs.
    pub members: Vec<Device>,
    /// Absolute path of the checker in our own mount namespace.
    pub command: PathBuf,
    /// Time-out of the run; for frozen runs, the freeze budget.
    pub timeout: Duration,
    /// Address space, in bytes.
    pub memory: u64,
    /// None: full speed at normal priority (frozen runs). Otherwise throttled to this rate, at the
    /// lowest I/O priority.
    pub bytes_per_second: Option<u64>,
}

impl RunRequest {
    /// The checker's command as messages show it.
    pub fn command_line(&self) -> String {
        let node = Path::new("/dev").join(&self.device.name);
        let input = CheckerInput::BlockDevice(&node);
        command_line(&self.command, &arguments(self.filesystem, input))
    }
}

/// A run that can start: its devices are open and its loops are made.
pub struct PreparedRun {
    request: RunRequest,
    helper: GuardedHelper,
}

/// A run that has ended; its helper may not have exited yet.
pub struct FinishedRun {
    pub run: Run,
    helper: GuardedHelper,
}

#[derive(Debug)]
pub struct ReapedRun {
    pub run: Run,
    /// A checker that could not be killed: until it exits, nothing else may check this filesystem.
    pub unkillable: Option<UnkillableChild>,
}

impl std::fmt::Debug for PreparedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("request", &self.request).finish_non_exhaustive()
    }
}

/// At the daemon's start: detaches the loops of a check that was killed together with the daemon.
/// Returns a log line for each.
pub async fn detach_leftover_loops(program: &Program) -> Vec<String> {
    let cleaned = async {
        let mut helper = Helper::start(program).await?;
        helper.send(&RunnerRequest::DetachLoops).await?;
        helper.recv::<RunnerEvent>().await
    };
    match timeout(PREPARE_TIMEOUT, cleaned).await {
        Ok(Ok(RunnerEvent::LoopsDetached(lines))) => lines,
        Ok(Ok(_)) => Vec::new(),
        Ok(Err(error)) => vec![format!("loops that were left over from filesystem checks were not looked for: {}", with_causes(&error))],
        Err(_) => vec!["loops that were left over from filesystem checks were not looked for: the helper does not answer".to_owned()],
    }
}

/// An error also counts as a run: one that did not start (`Termination::NotStarted`), with the
/// result FAILED. When the future or the prepared run is dropped, a process that cannot be killed
/// is added to the orphans.
pub async fn prepare(
    program: &Program,
    orphans: &OrphanedRuns,
    request: RunRequest,
) -> Result<PreparedRun, Box<ReapedRun>> {
    let failed = |why: String| {
        Box::new(ReapedRun {
            run: not_started(request.mode, request.command_line(), why),
            unkillable: None,
        })
    };
    let helper = Helper::start(program).await.map_err(|error| failed(with_causes(&error)))?;
    let mut helper = GuardedHelper::new(helper, orphans);
    let ready = async {
        let helper = helper.helper()?;
        helper.send(&RunnerRequest::Run(Box::new(request.clone()))).await?;
        helper.recv::<RunnerEvent>().await
    };
    match timeout(PREPARE_TIMEOUT, ready).await {
        Ok(Ok(RunnerEvent::Ready)) => Ok(PreparedRun { request, helper }),
        Ok(Ok(RunnerEvent::Finished(run))) => {
            Err(Box::new(ReapedRun { run: *run, unkillable: None }))
        }
        Ok(Ok(_)) => {
            Err(failed("the helper that runs checkers says what makes no sense".to_owned()))
        }
        Ok(Err(error)) => Err(failed(with_causes(&error))),
        Err(_) => {
            let why = format!(
                "opening {} has taken more than {} s",
                request.device.name,
                PREPARE_TIMEOUT.as_secs()
            );
            let mut reaped = failed(why);
            reaped.unkillable = kill_and_reap(helper).await;
            if let Some(unkillable) = &reaped.unkillable {
                reaped.run.termination = Termination::Stuck(unkillable.waiting_in.clone());
            }
            Err(reaped)
        }
    }
}

impl PreparedRun {
    /// Returns when the checker has ended, by itself or by its time-out. `activity`: what the checker
    /// says of itself. Dropping the future kills the checker.
    pub async fn run(mut self, activity: &watch::Sender<RunActivity>) -> FinishedRun {
        let deadline = Instant::now() + self.request.timeout + HELPER_GRACE;
        let run = match timeout_at(deadline, self.follow(activity)).await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) => self.kill_lost_run(
                Termination::Signal(9),
                format!("the helper that runs the checker was lost: {}", with_causes(&error)),
            ),
            Err(_) => self.kill_lost_run(
                Termination::TimedOut,
                "the helper that runs the checker does not answer".to_owned(),
            ),
        };
        FinishedRun { run, helper: self.helper }
    }

    async fn follow(&mut self, activity: &watch::Sender<RunActivity>) -> Result<Run, HelperError> {
        let helper = self.helper.helper()?;
        helper.send(&RunnerRequest::Start).await?;
        loop {
            match helper.recv::<RunnerEvent>().await? {
                RunnerEvent::Activity(now) => drop(activity.send_replace(now)),
                RunnerEvent::Finished(run) => return Ok(*run),
                RunnerEvent::Ready | RunnerEvent::LoopsDetached(_) => {}
            }
        }
    }

    fn kill_lost_run(&mut self, termination: Termination, why: String) -> Run {
        self.helper.kill();
        Run {
            termination,
            result: RunResult::Failed,
            failure_reason: why.clone(),
            ..not_started(self.request.mode, self.request.command_line(), why)
        }
    }
}

impl FinishedRun {
    /// Waits for the processes of the run to exit, or returns the one that does not.
    pub async fn reap(self) -> ReapedRun {
        let FinishedRun { run, helper } = self;
        // The helper keeps running while its checker cannot be killed, or a device cannot be
        // closed.
        let unkillable = match (&run.termination, helper) {
            (Termination::Stuck(waiting_in), helper) => helper
                .take()
                .map(|helper| UnkillableChild::watch(waiting_in.clone(), helper.close())),
            (Termination::TimedOut | Termination::Cancelled | Termination::Signal(_), helper) => {
                end_and_reap(helper).await
            }
            // Dropping the helper: it closes its devices and exits, or becomes an orphan.
            (Termination::Exited(_) | Termination::NotStarted(_), _) => None,
        };
        ReapedRun { run, unkillable }
    }
}

/// Waits for the helper's end, which is soon unless the run was lost, and kills it then.
async fn end_and_reap(mut helper: GuardedHelper) -> Option<UnkillableChild> {
    let end = async {
        while let Ok(helper) = helper.helper()
            && helper.recv::<RunnerEvent>().await.is_ok()
        {}
    };
    timeout(END_TIMEOUT, end).await.ok();
    kill_and_reap(helper).await
}

/// Kills the helper. Returns the process if it does not exit.
async fn kill_and_reap(helper: GuardedHelper) -> Option<UnkillableChild> {
    let mut helper = helper.take()?;
    helper.kill();
    await_exit(helper, KILL_TIMEOUT).await
}

/// Closes the helper's input, which ends it, and waits a moment for its exit.
async fn await_exit(helper: Helper, within: Duration) -> Option<UnkillableChild> {
    let id = helper.id();
    let mut end = Box::pin(helper.close());
    match timeout(within, &mut end).await {
        Ok(()) => None,
        // Only a helper in state D itself waits in the kernel; others wait for their checker.
        Err(_) => {
            Some(UnkillableChild::watch(waiting_in(id).filter(|state| state.starts_with('D')), end))
        }
    }
}
