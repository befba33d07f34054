//! Freezes a filesystem for the duration of one run, through the helper `freezer`: a process that
//! thaws in every case.
//!
//! In: a mount point and a limit. Out: `FreezeGuard`, and how long the writers were held. `refusal`
//! decides which filesystems are never frozen. When the helper is killed, the daemon starts another
//! one that thaws. When both are killed, the next start or the unit's ExecStopPost thaws, using the
//! intents in /run.

pub mod protocol;
pub mod refusal;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::checks::freezer::protocol::{FreezerEvent, FreezerRequest, RepairResult, ResumeResult};
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::path::HostPath;
use diskvitals_host::helper::{Helper, HelperError, Program};
use diskvitals_text::causes::with_causes;

/// From the start of a helper until FIFREEZE: it examines folders that may be on slow disks.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// FITHAW writes very little.
const THAW_TIMEOUT: Duration = Duration::from_secs(5);
/// A process that can be killed exits in milliseconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// A helper thaws by itself at the limit. One that is this late cannot: it was stopped, or waits
/// for memory.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
const REPAIR_TIMEOUT: Duration = Duration::from_secs(10);
/// A helper that repairs may also be killed.
const MAX_REPAIR_ATTEMPTS: usize = 3;

/// The freezer program, and where its intents are.
#[derive(Clone, Debug)]
pub struct Freezer {
    pub program: Program,
    /// The path on the host: `/run/diskvitals/freeze`. On a tmpfs: intents must not survive a
    /// reboot.
    pub intents: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FreezeRequest {
    pub check: CheckId,
    /// In the host's mount namespace.
    pub mount: HostPath,
    /// The st_dev that the mount must have, or its number in mountinfo (they differ on btrfs).
    pub dev: DevNo,
    /// The longest time for which writers are held.
    pub limit: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// The filesystem is never frozen; the text contains the reason.
    #[error("{0}")]
    Refused(String),
    /// Another program has frozen it (EBUSY); we never thaw that.
    #[error("it is frozen already, by somebody else")]
    AlreadyFrozen,
    /// The freeze failed; nothing is frozen now.
    #[error("{0}")]
    Failed(String),
    /// The freeze took longer than writers may be held.
    #[error("{0}")]
    TimedOut(String),
    /// The filesystem may still be frozen, possibly with no process left to thaw it.
    #[error("{0}")]
    Unconfirmed(String),
}

/// Why a helper failed to repair or to resume.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Helper(HelperError),
    #[error("the helper has not answered within {} s", REPAIR_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the helper sent {0:?}, which was not requested")]
    Unexpected(Box<FreezerEvent>),
}

fn repair_failure(error: &RequestError) -> String {
    format!("looking for filesystems that were left frozen: {}", with_causes(error))
}

/// The filesystem may still be frozen; the text explains why this is unknown.
#[derive(Debug, thiserror::Error)]
#[error("whether it is thawed is unknown ({0})")]
struct ThawUnknown(String);

/// The end of a freeze that holds no writers.
fn freeze_error(event: FreezerEvent) -> FreezeError {
    match event {
        FreezerEvent::Refused { why } => FreezeError::Refused(why),
        FreezerEvent::AlreadyFrozen => FreezeError::AlreadyFrozen,
        FreezerEvent::Failed { why } => FreezeError::Failed(why),
        // Frozen only after the limit, and thawed at once.
        FreezerEvent::Thawed { early, .. } => {
            FreezeError::TimedOut(early.unwrap_or_else(|| "it was thawed at once".into()))
        }
        FreezerEvent::AboutToFreeze
        | FreezerEvent::Frozen { .. }
        | FreezerEvent::Repaired(_)
        | FreezerEvent::Resumed(_) => {
            FreezeError::Failed("the freezer sent an event that was not requested".into())
        }
    }
}

/// Writers are held. Dropping the guard thaws, as does the end of this process.
#[derive(Debug)]
pub struct FreezeGuard {
    /// Used or dropped: a request to thaw.
    thaw: oneshot::Sender<()>,
    thawed: oneshot::Receiver<ThawResult>,
    /// The result, when it was thawed without a request.
    early: Option<ThawResult>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThawResult {
    /// From just before the freeze until the writers continued.
    pub held: Duration,
    /// Duration of the FIFREEZE call.
    pub freeze_duration: Duration,
    /// Why it was thawed without a request: the limit, or the death of the helper. The run is
    /// invalid then.
    pub early_reason: Option<String>,
    pub cause: ThawCause,
}

/// Why the filesystem was thawed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThawCause {
    Requested,
    /// The time limit was reached.
    Limit,
    /// The helper died, or another program thawed it.
    Unexpected,
    /// The filesystem may still be frozen.
    Unconfirmed,
}

impl Freezer {
    /// Dropping the future thaws, even if the freeze succeeds later: a separate task stays with the
    /// helper until it exits.
    pub async fn freeze(&self, request: FreezeRequest) -> Result<FreezeGuard, FreezeError> {
        let (frozen, is_frozen) = oneshot::channel();
        let (thaw, wanted) = oneshot::channel();
        let (ended, thawed) = oneshot::channel();
        let freezer = self.clone();
        tokio::spawn(async move {
            let check = request.check.clone();
            if let Some(outcome) = freezer.run_helper(request, frozen, wanted).await {
                if let Some(early) = &outcome.early_reason {
                    tracing::warn!(%check, %early, "a filesystem was thawed before its check had ended");
                }
                // The receiver is closed if the check was dropped.
                let _ = ended.send(outcome);
            }
        });
        match is_frozen.await {
            Ok(Ok(())) => Ok(FreezeGuard { thaw, thawed, early: None }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(FreezeError::Failed("freezing ended without a word".into())),
        }
    }

    /// At the daemon's start: thaws the filesystems that an earlier daemon left frozen. Returns a
    /// log line for each.
    pub async fn thaw_leftovers(&self) -> Vec<String> {
        self.repair(None)
            .await
            .map_or_else(|error| vec![repair_failure(&error)], |repaired| repaired.lines)
    }

    /// The life cycle of one helper. None: nothing was frozen, and `frozen` has received the
    /// reason.
    async fn run_helper(
        &self,
        request: FreezeRequest,
        frozen: oneshot::Sender<Result<(), FreezeError>>,
        wanted: oneshot::Receiver<()>,
    ) -> Option<ThawResult> {
        let check = request.check.clone();
        let limit = request.limit;
        let mut asked = Instant::now();
        let mut helper = match self.start_helper(request).await {
            Ok(helper) => helper,
            Err(error) => {
                // The receiver is closed if the check was dropped.
                let _ = frozen.send(Err(FreezeError::Failed(format!(
                    "it was not frozen: {}",
                    with_causes(&error)
                ))));
                return None;
            }
        };

        let mut patience = START_TIMEOUT;
        let mut asking = false;
        let freezing = loop {
            match timeout(patience, helper.recv::<FreezerEvent>()).await {
                Ok(Ok(FreezerEvent::AboutToFreeze)) => {
                    asked = Instant::now();
                    asking = true;
                    patience = limit + LIMIT_GRACE;
                }
                Ok(Ok(FreezerEvent::Frozen { freeze_duration })) => break freeze_duration,
                Ok(Ok(event)) => {
                    let _ = frozen.send(Err(freeze_error(event))); // Fails if the check is dropped.
                    return None;
                }
                // The helper may have died inside the call, which the kernel still completes.
                Ok(Err(error)) => {
                    let gone = format!("the freezer has gone ({})", with_causes(&error));
                    let error = match self.ensure_thawed(&check).await {
                        Ok(repaired) => FreezeError::Failed(format!("{gone}; {repaired}")),
                        Err(error) => FreezeError::Unconfirmed(format!("{gone}; {error}")),
                    };
                    let _ = frozen.send(Err(error)); // Fails if the check is dropped.
                    return None;
                }
                Err(_) => {
                    let why = format!(
                        "it was not frozen within {:.0?}; should the kernel do it yet, it is thawed at once. Until then its writers may be waiting",
                        patience
                    );
                    // A helper that has not called FIFREEZE yet checks for our request before it
                    // does.
                    let _ = frozen.send(Err(if asking {
                        FreezeError::TimedOut(why)
                    } else {
                        FreezeError::Failed(why)
                    })); // Fails if the check is dropped.
                    return self.await_abandoned(helper, &check).await;
                }
            }
        };
        // An error: the check was dropped, which `wanted` reports below.
        let _ = frozen.send(Ok(()));
        Some(self.await_thaw(helper, &check, limit, asked, freezing, wanted).await)
    }

    async fn start_helper(&self, request: FreezeRequest) -> Result<Helper, HelperError> {
        let mut helper = Helper::start_urgent(&self.program).await?;
        helper
            .send(&FreezerRequest::Freeze { freeze: request, intents: self.intents.clone() })
            .await?;
        Ok(helper)
    }

    /// A helper that waits in the kernel thaws as soon as its call returns; if it is killed there,
    /// another helper must thaw.
    async fn await_abandoned(&self, mut helper: Helper, check: &CheckId) -> Option<ThawResult> {
        let sent = helper.send(&FreezerRequest::Thaw).await.is_ok();
        loop {
            match helper.recv::<FreezerEvent>().await {
                Ok(FreezerEvent::AboutToFreeze | FreezerEvent::Frozen { .. }) if sent => {}
                Ok(_) => return None,
                Err(_) => {
                    let repaired = match self.ensure_thawed(check).await {
                        Ok(repaired) => repaired,
                        Err(error) => error.to_string(),
                    };
                    tracing::warn!(%check, repaired, "a freezer that waited in the kernel has gone");
                    return None;
                }
            }
        }
    }

    /// While it is frozen, and until it is thawed.
    async fn await_thaw(
        &self,
        mut helper: Helper,
        check: &CheckId,
        limit: Duration,
        asked: Instant,
        freezing: Duration,
        mut wanted: oneshot::Receiver<()>,
    ) -> ThawResult {
        let mut requested = false;
        let mut killed = false;
        let mut patience = Instant::now() + limit + LIMIT_GRACE;
        let gone = loop {
            tokio::select! {
                event = helper.recv::<FreezerEvent>() => match event {
                    Ok(FreezerEvent::Thawed { held, freeze_duration, early: early_reason, late }) => {
                        let cause = match &early_reason {
                            None => ThawCause::Requested,
                            Some(_) if late => ThawCause::Limit,
                            Some(_) => ThawCause::Unexpected,
                        };
                        return ThawResult { held, freeze_duration, early_reason, cause };
                    }
                    Ok(_) => {}
                    Err(error) => break with_causes(&error),
                },
                _ = &mut wanted, if !requested => {
                    requested = true;
                    // An error means that the helper has exited, which is handled above.
                    let _ = helper.send(&FreezerRequest::Thaw).await;
                    patience = patience.min(Instant::now() + THAW_TIMEOUT);
                }
                () = tokio::time::sleep_until(patience), if !killed => {
                    killed = true;
                    helper.kill();
                    patience = Instant::now() + KILL_TIMEOUT;
                }
                // The helper waits in the kernel: thawing an ext4 first writes its superblock
                // (ext4_unfreeze(), fs/ext4/super.c).
                () = tokio::time::sleep_until(patience), if killed => {
                    let (freezer, check) = (self.clone(), check.clone());
                    tokio::spawn(async move { freezer.await_abandoned(helper, &check).await });
                    let why = "the freezer cannot be killed: its call waits in the kernel for a device that does not answer, and so do the filesystem's writers";
                    return ThawResult { held: asked.elapsed(), freeze_duration: freezing, early_reason: Some(why.into()), cause: ThawCause::Unconfirmed };
                }
            }
        };
        let (repaired, cause) = match self.ensure_thawed(check).await {
            // The helper was killed because it was late after its limit or after the request to
            // thaw.
            Ok(repaired) if killed => (repaired, ThawCause::Limit),
            Ok(repaired) => (repaired, ThawCause::Unexpected),
            Err(error) => (error.to_string(), ThawCause::Unconfirmed),
        };
        let why = if killed {
            "the freezer did not thaw when it should have, and was killed".into()
        } else {
            format!("the freezer has gone ({gone})")
        };
        ThawResult {
            held: asked.elapsed(),
            freeze_duration: freezing,
            early_reason: Some(format!("{why}; {repaired}")),
            cause,
        }
    }

    /// Returns the actions, as text. An error: the filesystem may still be frozen.
    async fn ensure_thawed(&self, check: &CheckId) -> Result<String, ThawUnknown> {
        let mut failed = String::new();
        for _ in 0..MAX_REPAIR_ATTEMPTS {
            match self.repair(Some(check)).await {
                Ok(repaired) if repaired.maybe_frozen => {
                    failed = repaired.lines.join("; ");
                    break;
                }
                Ok(repaired) if repaired.lines.is_empty() => {
                    return Ok("nothing was left frozen".into());
                }
                Ok(repaired) => return Ok(repaired.lines.join("; ")),
                Err(error) => failed = repair_failure(&error),
            }
        }
        tracing::error!(%check, why = failed, "a filesystem may be frozen still: thaw it by `fsfreeze -u`");
        Err(ThawUnknown(failed))
    }

    async fn repair(&self, only: Option<&CheckId>) -> Result<RepairResult, RequestError> {
        let request =
            FreezerRequest::Repair { intents: self.intents.clone(), only: only.map(intent_name) };
        match self.request(&request).await? {
            FreezerEvent::Repaired(repaired) => Ok(repaired),
            other => Err(RequestError::Unexpected(Box::new(other))),
        }
    }

    /// Resumes volumes that dead lvm processes left suspended. `forget`: removes their intents too.
    pub(crate) async fn resume_suspended(&self, forget: bool) -> ResumeResult {
        let request = FreezerRequest::Resume { intents: self.intents.clone(), forget };
        let error = match self.request(&request).await {
            Ok(FreezerEvent::Resumed(resumed)) => return resumed,
            Ok(other) => RequestError::Unexpected(Box::new(other)),
            Err(error) => error,
        };
        ResumeResult {
            lines: vec![format!(
                "looking for volumes that were left suspended: {}; see `dmsetup info`",
                with_causes(&error)
            )],
            ..ResumeResult::default()
        }
    }

    /// Sends one request to a separate helper.
    async fn request(&self, request: &FreezerRequest) -> Result<FreezerEvent, RequestError> {
        let response = async {
            let mut helper = Helper::start_urgent(&self.program).await?;
            helper.send(request).await?;
            helper.recv::<FreezerEvent>().await
        };
        timeout(REPAIR_TIMEOUT, response)
            .await
            .map_err(|_| RequestError::TimedOut)?
            .map_err(RequestError::Helper)
    }
}

impl FreezeGuard {
    /// Returns when the filesystem is thawed without a request. Cancel-safe.
    pub async fn wait_thawed_early(&mut self) -> String {
        let early = match &self.early {
            Some(early) => early,
            None => {
                let thawed = (&mut self.thawed).await.unwrap_or_else(|_| daemon_ending());
                self.early.insert(thawed)
            }
        };
        early.early_reason.clone().unwrap_or_else(|| "it was thawed".into())
    }

    pub async fn thaw(self) -> ThawResult {
        if let Some(early) = self.early {
            return early;
        }
        // An error: it was thawed already; the other channel has the result.
        let _ = self.thaw.send(());
        self.thawed.await.unwrap_or_else(|_| daemon_ending())
    }
}

/// The task that stays with the helper ends only with the daemon.
fn daemon_ending() -> ThawResult {
    ThawResult {
        held: Duration::ZERO,
        freeze_duration: Duration::ZERO,
        early_reason: Some("the daemon is ending".into()),
        cause: ThawCause::Unexpected,
    }
}

/// The file name of a check's intent: ids may contain slashes.
pub(crate) fn intent_name(check: &CheckId) -> String {
    check.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
