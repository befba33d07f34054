//! A frozen run: everything is prepared before the writers are held, and the writers continue
//! before anything else is awaited.

use crate::checks::backend::Backend;
use crate::checks::freezer::{FreezeError, FreezeRequest, ThawCause, ThawResult};
use crate::checks::queue::{failed_outcome, in_parentheses};
use crate::checks::task::{
    Abort, CheckTask, EXIT_TIMEOUT, SYNCFS_TIMEOUT, THAW_TIMEOUT, failed_run,
};
use crate::checks::xfs_health::HealthScope;
use crate::worker_job::JobError;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::decision::CheckOutcome;
use diskvitals_fscheck::{Mode, RunActivity, RunResult, Termination};
use diskvitals_text::causes::with_causes;
use jiff::Timestamp;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a freeze would hold the writers for too long.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncFsError {
    #[error("syncfs took {:.1} s, longer than {} s: a freeze would take longer still", .0.as_secs_f64(), SYNCFS_TIMEOUT.as_secs())]
    Slow(Duration),
    #[error("syncfs took longer than {} s{}: a freeze would take longer still", SYNCFS_TIMEOUT.as_secs(), in_parentheses(.0.as_deref()))]
    Stuck(Option<String>),
    #[error(transparent)]
    NotCalled(JobError),
}

impl<W: Backend> CheckTask<W> {
    pub(super) async fn frozen_run(&mut self) -> Result<(), Abort> {
        let Some(mount) = self.desired.target.mount.clone() else {
            self.freeze_refusal =
                Some("it is not mounted in the host's mount namespace".to_owned());
            return Ok(());
        };
        let dev = self.desired.target.mountinfo_dev();
        // Needed even if no signal is new: a filesystem that was damaged since the check started
        // might never thaw.
        if let Err(error) = self.query_xfs_health(HealthScope::Groups).await? {
            self.freeze_refusal = Some(with_causes(&error));
            return Ok(());
        }
        if self.has_signals() {
            return Ok(());
        }
        let Some(prepared) = self.prepare(self.run_request(Mode::Frozen, self.device())).await?
        else {
            return Ok(());
        };
        let name = self.run_label(Mode::Frozen);
        if let Err(error) = self.probe_syncfs(&name, mount.clone(), dev).await? {
            self.freeze_refusal = Some(error.to_string());
            return Ok(());
        }
        if self.has_signals() {
            return Ok(());
        }
        self.set_phase(format!("{name}: freezing"));
        let backend = self.backend.clone();
        let (started, began) = (self.clock.now(), Instant::now());
        let request = FreezeRequest {
            check: self.desired.id.clone(),
            mount,
            dev,
            limit: self.desired.terms.budget,
        };
        match self.or_cancelled(Box::pin(backend.freeze(request))).await? {
            Ok(frozen) => {
                Box::pin(self.check_frozen(prepared, frozen, &name, started, began)).await
            }
            Err(error @ (FreezeError::Refused(_) | FreezeError::AlreadyFrozen)) => {
                self.freeze_refusal = Some(error.to_string());
                Ok(())
            }
            Err(error) => {
                let termination = match &error {
                    // The writers were held for the whole limit, as in a run that takes too long.
                    FreezeError::TimedOut(_) => Termination::TimedOut,
                    error => Termination::NotStarted(error.to_string()),
                };
                self.record_run(failed_run(
                    Mode::Frozen,
                    started,
                    began.elapsed(),
                    termination,
                    format!("freezing: {error}"),
                ));
                match error {
                    FreezeError::Unconfirmed(why) => Err(Abort::ThawUnconfirmed(why)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Writers are held from here until the thaw.
    async fn check_frozen(
        &mut self,
        prepared: W::PreparedRun,
        mut frozen: W::FreezeGuard,
        name: &str,
        started: Timestamp,
        began: Instant,
    ) -> Result<(), Abort> {
        enum FrozenRunEnd<H> {
            Finished(H),
            ThawedEarly(String),
            Cancelled,
        }
        let (activity, mut activities) = watch::channel(RunActivity::default());
        self.set_activity(name, started, &activities.borrow_and_update());
        let backend = self.backend.clone();
        let (over, thawed) = {
            let mut run = Box::pin(backend.run(prepared, &activity));
            let over = loop {
                tokio::select! {
                    biased;
                    finished = &mut run => break FrozenRunEnd::Finished(finished),
                    why = backend.wait_thawed_early(&mut frozen) => break FrozenRunEnd::ThawedEarly(why),
                    () = self.inputs.cancel.cancelled() => break FrozenRunEnd::Cancelled,
                    Ok(()) = activities.changed() => self.set_activity(name, started, &activities.borrow_and_update()),
                }
            };
            // Thaws first: killing the checker may take a while.
            let thawed = self.thaw(frozen, began).await;
            match over {
                // The checker is about to reach its own time-out, unless it hangs.
                FrozenRunEnd::ThawedEarly(why) if thawed.cause == ThawCause::Limit => {
                    match tokio::time::timeout(EXIT_TIMEOUT, &mut run).await {
                        Ok(finished) => (FrozenRunEnd::Finished(finished), thawed),
                        Err(_) => (FrozenRunEnd::ThawedEarly(why), thawed),
                    }
                }
                over => (over, thawed),
            }
        };
        let early = |why: &str| {
            format!("writers went on in the middle of it ({why}): what was read counts for nothing")
        };
        let late = thawed.cause == ThawCause::Limit;
        let recorded = match over {
            FrozenRunEnd::Cancelled => Err(Abort::Cancelled),
            FrozenRunEnd::ThawedEarly(why) => {
                let end = if late { Termination::TimedOut } else { Termination::Signal(9) };
                let mut run = failed_run(Mode::Frozen, started, began.elapsed(), end, early(&why));
                run.held = Some(thawed.held);
                self.record_run(run);
                Ok(())
            }
            FrozenRunEnd::Finished(finished) => {
                let reaped = backend.reap(finished).await;
                self.record_reaped(reaped, started, |run| {
                    run.held = Some(thawed.held);
                    if let Some(why) = &thawed.early_reason {
                        run.result = RunResult::Failed;
                        run.failure_reason = early(why);
                        if late && !matches!(run.termination, Termination::Stuck(_)) {
                            run.termination = Termination::TimedOut;
                        }
                    }
                })
            }
        };
        // This outcome takes precedence: a person must act.
        match thawed.early_reason {
            Some(why) if thawed.cause == ThawCause::Unconfirmed => Err(Abort::ThawUnconfirmed(why)),
            _ => recorded,
        }
    }

    async fn thaw(&self, frozen: W::FreezeGuard, began: Instant) -> ThawResult {
        let thaw = Box::pin(self.backend.thaw(frozen));
        if let Ok(thawed) = tokio::time::timeout(THAW_TIMEOUT, thaw).await {
            return thawed;
        }
        tracing::error!(check = %self.desired.id, target = %self.desired.target.name, "a thaw was not confirmed in {} s", THAW_TIMEOUT.as_secs());
        ThawResult {
            held: began.elapsed(),
            freeze_duration: Duration::ZERO,
            early_reason: Some(format!(
                "the thaw was not confirmed in {} s",
                THAW_TIMEOUT.as_secs()
            )),
            cause: ThawCause::Unconfirmed,
        }
    }

    pub(super) fn thaw_unconfirmed_outcome(&self, why: &str) -> CheckOutcome {
        let mount = self
            .desired
            .target
            .mount
            .as_ref()
            .map_or_else(|| "MOUNTPOINT".to_owned(), HostPath::to_string);
        let reason = format!(
            "The filesystem at {mount} may be frozen still, and then all that write to it wait: {why}. Thaw it by `fsfreeze -u {mount}`, which does no harm where it is not frozen, then check it again."
        );
        failed_outcome(reason, self.strongest_mode())
    }

    /// Checks that dirty data is written in time. Otherwise the freeze, which waits for it, would
    /// hold the writers for longer.
    pub(super) async fn probe_syncfs(
        &mut self,
        name: &str,
        mount: HostPath,
        dev: DevNo,
    ) -> Result<Result<(), SyncFsError>, Abort> {
        self.set_phase(format!("{name}: syncfs"));
        let backend = self.backend.clone();
        let synced =
            self.or_cancelled(Box::pin(backend.syncfs(mount, dev, SYNCFS_TIMEOUT))).await?;
        Ok(match synced {
            Ok(elapsed) if elapsed <= SYNCFS_TIMEOUT => Ok(()),
            Ok(elapsed) => Err(SyncFsError::Slow(elapsed)),
            Err(JobError::Stuck { waiting_in, .. }) => Err(SyncFsError::Stuck(waiting_in)),
            Err(error) => Err(SyncFsError::NotCalled(error)),
        })
    }
}
