//! Holding the writers of a filesystem for the length of one run: the helper `freezer`, a process
//! of its own that thaws whatever happens.
//!
//! In: a mount point, a limit. Out: `Frozen`, and how long the writers were held. What it refuses,
//! and why: `refusal`. A helper that was killed is made good at once by another that thaws; what
//! daemon and helper left behind together is found by the intents in /run at the next start and by
//! the unit's ExecStopPost.

pub mod protocol;
pub mod refusal;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use crate::host::helper::{Helper, HelperError, Program};
use crate::model::causes::with_causes;
use crate::model::dev::DevNo;
use crate::model::ids::CheckId;
use crate::model::path::HostPath;
use crate::source::checks::freezer::protocol::{
    FreezerEvent, FreezerRequest, RepairResult, ResumeResult,
};

/// From the start of a helper until it is about to freeze: it looks at folders that may lie on slow
/// disks.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// FITHAW writes next to nothing.
const THAW_TIMEOUT: Duration = Duration::from_secs(5);
/// A process that can be killed is gone in milliseconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// A helper thaws by itself at the limit. One that has not so much later cannot: it was stopped, or
/// waits for memory.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
const REPAIR_TIMEOUT: Duration = Duration::from_secs(10);
/// A helper that repairs may be killed as well.
const MAX_REPAIR_ATTEMPTS: usize = 3;

/// How freezing is done here.
#[derive(Clone, Debug)]
pub struct Freezer {
    pub program: Program,
    /// As the host names it: `/run/diskvitals/freeze`. Below a tmpfs: intents must die with the
    /// boot.
    pub intents: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FreezeRequest {
    pub check: CheckId,
    /// In the host's mount namespace.
    pub mount: HostPath,
    /// st_dev that must be found there, or the number in mountinfo (which differ on btrfs).
    pub dev: DevNo,
    /// Writers are held no longer than this from the moment they are.
    pub limit: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// It will not be frozen, now or later; says why.
    #[error("{0}")]
    Refused(String),
    /// Somebody else has frozen it (EBUSY): never thawed by us.
    #[error("it is frozen already, by somebody else")]
    AlreadyFrozen,
    /// It was tried; nothing is frozen now.
    #[error("{0}")]
    Failed(String),
    /// The freeze itself took longer than writers may be held.
    #[error("{0}")]
    TimedOut(String),
    /// It may be frozen still, and nobody may be there to thaw it.
    #[error("{0}")]
    Unconfirmed(String),
}

/// The filesystem's writers wait. Dropping it thaws, as does the end of this process.
#[derive(Debug)]
pub struct FreezeGuard {
    /// Dropped or used: it is to be thawed.
    thaw: oneshot::Sender<()>,
    thawed: oneshot::Receiver<ThawResult>,
    /// Received already.
    early: Option<ThawResult>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThawResult {
    /// From before the freeze was asked for until writers went on.
    pub held: Duration,
    /// The call that froze took this long.
    pub freeze_duration: Duration,
    /// It was thawed before it was asked for: the limit, the death of the helper. Then the run
    /// beneath it counts for nothing.
    pub early_reason: Option<String>,
    pub cause: ThawCause,
}

/// How it came to be thawed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThawCause {
    Requested,
    /// Writers may not be held for longer.
    Limit,
    /// The death of the helper, somebody else.
    Unexpected,
    /// It may be frozen still.
    Unconfirmed,
}

impl Freezer {
    /// Dropping the future thaws, also what is only frozen later: a task of its own stays with the
    /// helper to its end.
    pub async fn freeze(&self, order: FreezeRequest) -> Result<FreezeGuard, FreezeError> {
        let (frozen, is_frozen) = oneshot::channel();
        let (thaw, wanted) = oneshot::channel();
        let (ended, thawed) = oneshot::channel();
        let freezer = self.clone();
        tokio::spawn(async move {
            let check = order.check.clone();
            if let Some(outcome) = freezer.run_helper(order, frozen, wanted).await {
                if let Some(early) = &outcome.early_reason {
                    tracing::warn!(%check, %early, "a filesystem was thawed before its check had ended");
                }
                // Nobody waits for it where the check was dropped.
                let _ = ended.send(outcome);
            }
        });
        match is_frozen.await {
            Ok(Ok(())) => Ok(FreezeGuard {
                thaw,
                thawed,
                early: None,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(FreezeError::Failed("freezing ended without a word".into())),
        }
    }

    /// At the start: thaws what a daemon before left frozen. Out: a line for each, for the log.
    pub async fn thaw_leftovers(&self) -> Vec<String> {
        self.repair(None)
            .await
            .map_or_else(|why| vec![why], |repaired| repaired.lines)
    }

    /// The whole life of one helper. None where nothing was frozen; then `frozen` has been told
    /// why.
    async fn run_helper(
        &self,
        order: FreezeRequest,
        frozen: oneshot::Sender<Result<(), FreezeError>>,
        wanted: oneshot::Receiver<()>,
    ) -> Option<ThawResult> {
        let check = order.check.clone();
        let limit = order.limit;
        let mut asked = Instant::now();
        let mut helper = match self.start_helper(order).await {
            Ok(helper) => helper,
            Err(error) => {
                // Nobody waits for it where the check was dropped.
                let _ = frozen.send(Err(FreezeError::Failed(format!(
                    "it was not frozen: {}",
                    with_causes(&error)
                ))));
                return None;
            }
        };
        let refused = |said: FreezerEvent| match said {
            FreezerEvent::Refused { why } => Some(FreezeError::Refused(why)),
            FreezerEvent::AlreadyFrozen => Some(FreezeError::AlreadyFrozen),
            FreezerEvent::Failed { why } => Some(FreezeError::Failed(why)),
            // Frozen only after its limit, and thawed at once.
            FreezerEvent::Thawed { early, .. } => Some(FreezeError::TimedOut(
                early.unwrap_or_else(|| "it was thawed at once".into()),
            )),
            FreezerEvent::AboutToFreeze
            | FreezerEvent::Frozen { .. }
            | FreezerEvent::Repaired(_)
            | FreezerEvent::Resumed(_) => None,
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
                Ok(Ok(FreezerEvent::Frozen {
                    freeze_duration: freezing,
                })) => break freezing,
                Ok(Ok(said)) => {
                    let error = refused(said).unwrap_or_else(|| {
                        FreezeError::Failed("the freezer says what it was not asked".into())
                    });
                    let _ = frozen.send(Err(error)); // as above
                    return None;
                }
                // It may have died in the middle of the call, which the kernel completes first.
                Ok(Err(error)) => {
                    let gone = |what: String| {
                        format!("the freezer has gone ({}); {what}", with_causes(&error))
                    };
                    let error = match self.ensure_thawed(&check).await {
                        Ok(made_good) => FreezeError::Failed(gone(made_good)),
                        Err(why) => FreezeError::Unconfirmed(gone(why)),
                    };
                    let _ = frozen.send(Err(error)); // as above
                    return None;
                }
                Err(_) => {
                    let why = format!(
                        "it was not frozen within {:.0?}; should the kernel do it yet, it is thawed at once. Until then its writers may be waiting",
                        patience
                    );
                    // One that has not come to asking the kernel looks for our word before it does.
                    let _ = frozen.send(Err(if asking {
                        FreezeError::TimedOut(why)
                    } else {
                        FreezeError::Failed(why)
                    })); // as above
                    return self.await_abandoned(helper, &check).await;
                }
            }
        };
        // An error: nobody waits any more, and `wanted` says so below.
        let _ = frozen.send(Ok(()));
        Some(
            self.await_thaw(helper, &check, limit, asked, freezing, wanted)
                .await,
        )
    }

    async fn start_helper(&self, order: FreezeRequest) -> Result<Helper, HelperError> {
        let mut helper = Helper::start(&self.program).await?;
        helper
            .send(&FreezerRequest::Freeze {
                order,
                intents: self.intents.clone(),
            })
            .await?;
        Ok(helper)
    }

    /// A helper that waits in the kernel thaws as soon as it is back; were it killed there,
    /// somebody else must.
    async fn await_abandoned(&self, mut helper: Helper, check: &CheckId) -> Option<ThawResult> {
        let told = helper.send(&FreezerRequest::Thaw).await.is_ok();
        loop {
            match helper.recv::<FreezerEvent>().await {
                Ok(FreezerEvent::AboutToFreeze | FreezerEvent::Frozen { .. }) if told => {}
                Ok(_) => return None,
                Err(_) => {
                    let made_good = self.ensure_thawed(check).await.unwrap_or_else(|why| why);
                    tracing::warn!(%check, made_good, "a freezer that waited in the kernel has gone");
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
        let mut told = false;
        let mut killed = false;
        let mut patience = Instant::now() + limit + LIMIT_GRACE;
        let gone = loop {
            tokio::select! {
                said = helper.recv::<FreezerEvent>() => match said {
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
                _ = &mut wanted, if !told => {
                    told = true;
                    // An error is the end of the helper, which is heard of above.
                    let _ = helper.send(&FreezerRequest::Thaw).await;
                    patience = patience.min(Instant::now() + THAW_TIMEOUT);
                }
                () = tokio::time::sleep_until(patience), if !killed => {
                    killed = true;
                    helper.kill();
                    patience = Instant::now() + KILL_TIMEOUT;
                }
                // It waits in the kernel: thawing an ext4 writes its superblock first
                // (ext4_unfreeze(), fs/ext4/super.c).
                () = tokio::time::sleep_until(patience), if killed => {
                    let (freezer, check) = (self.clone(), check.clone());
                    tokio::spawn(async move { freezer.await_abandoned(helper, &check).await });
                    let why = "the freezer cannot be killed: its call waits in the kernel for a device that does not answer, and so do the filesystem's writers";
                    return ThawResult { held: asked.elapsed(), freeze_duration: freezing, early_reason: Some(why.into()), cause: ThawCause::Unconfirmed };
                }
            }
        };
        let (made_good, way) = match self.ensure_thawed(check).await {
            // Killed since it was still there a while after its limit, or after it was told.
            Ok(made_good) => (
                made_good,
                if killed {
                    ThawCause::Limit
                } else {
                    ThawCause::Unexpected
                },
            ),
            Err(why) => (why, ThawCause::Unconfirmed),
        };
        let why = if killed {
            "the freezer did not thaw when it should have, and was killed".into()
        } else {
            format!("the freezer has gone ({gone})")
        };
        ThawResult {
            held: asked.elapsed(),
            freeze_duration: freezing,
            early_reason: Some(format!("{why}; {made_good}")),
            cause: way,
        }
    }

    /// What came of it, in words. The error: it may be frozen still.
    async fn ensure_thawed(&self, check: &CheckId) -> Result<String, String> {
        let mut failed = String::new();
        for _ in 0..MAX_REPAIR_ATTEMPTS {
            match self.repair(Some(check)).await {
                Ok(RepairResult {
                    lines,
                    maybe_frozen: false,
                }) if lines.is_empty() => return Ok("nothing was left frozen".into()),
                Ok(RepairResult {
                    lines,
                    maybe_frozen: false,
                }) => return Ok(lines.join("; ")),
                Ok(RepairResult {
                    lines,
                    maybe_frozen: true,
                }) => {
                    failed = lines.join("; ");
                    break;
                }
                Err(why) => failed = why,
            }
        }
        tracing::error!(%check, why = failed, "a filesystem may be frozen still: thaw it by `fsfreeze -u`");
        Err(format!("whether it is thawed is unknown ({failed})"))
    }

    async fn repair(&self, only: Option<&CheckId>) -> Result<RepairResult, String> {
        let told = FreezerRequest::Repair {
            intents: self.intents.clone(),
            only: only.map(intent_name),
        };
        match self.request(&told).await {
            Ok(Ok(FreezerEvent::Repaired(repaired))) => Ok(repaired),
            Ok(Ok(other)) => Err(format!("the freezer says what it was not asked: {other:?}")),
            Ok(Err(error)) => Err(format!(
                "looking for what was left frozen: {}",
                with_causes(&error)
            )),
            Err(_) => Err(format!(
                "looking for what was left frozen takes longer than {} s",
                REPAIR_TIMEOUT.as_secs()
            )),
        }
    }

    /// What lvm processes left suspended that are gone. `forget`: what they were about to change is
    /// not asked about again.
    pub async fn resume_suspended(&self, forget: bool) -> ResumeResult {
        let failed = |why: String| ResumeResult {
            lines: vec![format!(
                "looking for volumes that were left suspended: {why}"
            )],
            ..ResumeResult::default()
        };
        match self
            .request(&FreezerRequest::Resume {
                intents: self.intents.clone(),
                forget,
            })
            .await
        {
            Ok(Ok(FreezerEvent::Resumed(resumed))) => resumed,
            Ok(Ok(other)) => failed(format!("the helper says what it was not asked: {other:?}")),
            Ok(Err(error)) => failed(with_causes(&error)),
            Err(_) => failed(format!(
                "it takes longer than {} s; see `dmsetup info`",
                REPAIR_TIMEOUT.as_secs()
            )),
        }
    }

    /// One question to a helper of its own.
    async fn request(
        &self,
        told: &FreezerRequest,
    ) -> Result<Result<FreezerEvent, HelperError>, Elapsed> {
        let asking = async {
            let mut helper = Helper::start(&self.program).await?;
            helper.send(told).await?;
            helper.recv::<FreezerEvent>().await
        };
        timeout(REPAIR_TIMEOUT, asking).await
    }
}

impl FreezeGuard {
    /// Until it is thawed without having been asked for. Cancel-safe.
    pub async fn wait_thawed_early(&mut self) -> String {
        let early = match &self.early {
            Some(early) => early,
            None => {
                let thawed = (&mut self.thawed).await.unwrap_or_else(|_| daemon_ending());
                self.early.insert(thawed)
            }
        };
        early
            .early_reason
            .clone()
            .unwrap_or_else(|| "it was thawed".into())
    }

    pub async fn thaw(self) -> ThawResult {
        if let Some(early) = self.early {
            return early;
        }
        // An error: it has been thawed already, of which the other channel tells.
        let _ = self.thaw.send(());
        self.thawed.await.unwrap_or_else(|_| daemon_ending())
    }
}

/// The task that stays with the helper is gone, which only the end of the daemon does.
fn daemon_ending() -> ThawResult {
    ThawResult {
        held: Duration::ZERO,
        freeze_duration: Duration::ZERO,
        early_reason: Some("the daemon is ending".into()),
        cause: ThawCause::Unexpected,
    }
}

/// The name of a check's note: ids may hold slashes.
pub fn intent_name(check: &CheckId) -> String {
    check
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}
