//! Holding the writers of a filesystem for the length of one run: the helper `freezer`, a process
//! of its own that thaws whatever happens.
//!
//! In: a mount point, a limit. Out: `Frozen`, and how long the writers were held. What it refuses,
//! and why: `refusal`. A helper that was killed is made good at once by another that thaws; what
//! daemon and helper left behind together is found by the intents in /run at the next start and by
//! the unit's ExecStopPost.

pub mod pipe;
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
use crate::source::checks::freezer::pipe::{Repaired, Resumed, Said, Told};

/// From the start of a helper until it is about to freeze: it looks at folders that may lie on slow
/// disks.
const PATIENCE_TO_BEGIN: Duration = Duration::from_secs(10);
/// FITHAW writes next to nothing.
const PATIENCE_TO_THAW: Duration = Duration::from_secs(5);
/// A process that can be killed is gone in milliseconds.
const PATIENCE_TO_DIE: Duration = Duration::from_secs(2);
/// A helper thaws by itself at the limit. One that has not so much later cannot: it was stopped, or
/// waits for memory.
const GRACE: Duration = Duration::from_secs(1);
const PATIENCE_TO_REPAIR: Duration = Duration::from_secs(10);
/// A helper that repairs may be killed as well.
const REPAIRS: usize = 3;

/// How freezing is done here.
#[derive(Clone, Debug)]
pub struct Freezer {
    pub program: Program,
    /// As the host names it: `/run/diskvitals/freeze`. Below a tmpfs: intents must die with the
    /// boot.
    pub intents: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FreezeOrder {
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
    NotOurs,
    /// It was tried; nothing is frozen now.
    #[error("{0}")]
    Failed(String),
    /// The freeze itself took longer than writers may be held.
    #[error("{0}")]
    Late(String),
    /// It may be frozen still, and nobody may be there to thaw it.
    #[error("{0}")]
    Unsure(String),
}

/// The filesystem's writers wait. Dropping it thaws, as does the end of this process.
#[derive(Debug)]
pub struct Frozen {
    /// Dropped or used: it is to be thawed.
    thaw: oneshot::Sender<()>,
    thawed: oneshot::Receiver<Thawed>,
    /// Received already.
    early: Option<Thawed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thawed {
    /// From before the freeze was asked for until writers went on.
    pub held: Duration,
    /// The call that froze took this long.
    pub freezing: Duration,
    /// It was thawed before it was asked for: the limit, the death of the helper. Then the run
    /// beneath it counts for nothing.
    pub early: Option<String>,
    pub way: Way,
}

/// How it came to be thawed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Asked,
    /// Writers may not be held for longer.
    Limit,
    /// The death of the helper, somebody else.
    Otherwise,
    /// It may be frozen still.
    Unsure,
}

impl Freezer {
    /// Dropping the future thaws, also what is only frozen later: a task of its own stays with the
    /// helper to its end.
    pub async fn freeze(&self, order: FreezeOrder) -> Result<Frozen, FreezeError> {
        let (frozen, is_frozen) = oneshot::channel();
        let (thaw, wanted) = oneshot::channel();
        let (ended, thawed) = oneshot::channel();
        let freezer = self.clone();
        tokio::spawn(async move {
            let check = order.check.clone();
            if let Some(outcome) = freezer.hold(order, frozen, wanted).await {
                if let Some(early) = &outcome.early {
                    tracing::warn!(%check, %early, "a filesystem was thawed before its check had ended");
                }
                // Nobody waits for it where the check was dropped.
                let _ = ended.send(outcome);
            }
        });
        match is_frozen.await {
            Ok(Ok(())) => Ok(Frozen {
                thaw,
                thawed,
                early: None,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(FreezeError::Failed("freezing ended without a word".into())),
        }
    }

    /// At the start: thaws what a daemon before left frozen. Out: a line for each, for the log.
    pub async fn recover(&self) -> Vec<String> {
        self.repair(None)
            .await
            .map_or_else(|why| vec![why], |repaired| repaired.lines)
    }

    /// The whole life of one helper. None where nothing was frozen; then `frozen` has been told
    /// why.
    async fn hold(
        &self,
        order: FreezeOrder,
        frozen: oneshot::Sender<Result<(), FreezeError>>,
        wanted: oneshot::Receiver<()>,
    ) -> Option<Thawed> {
        let check = order.check.clone();
        let limit = order.limit;
        let mut asked = Instant::now();
        let mut helper = match self.begin(order).await {
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
        let refused = |said: Said| match said {
            Said::Refused { why } => Some(FreezeError::Refused(why)),
            Said::NotOurs => Some(FreezeError::NotOurs),
            Said::Failed { why } => Some(FreezeError::Failed(why)),
            // Frozen only after its limit, and thawed at once.
            Said::Thawed { early, .. } => Some(FreezeError::Late(
                early.unwrap_or_else(|| "it was thawed at once".into()),
            )),
            Said::Asking | Said::Frozen { .. } | Said::Repaired(_) | Said::Resumed(_) => None,
        };
        let mut patience = PATIENCE_TO_BEGIN;
        let mut asking = false;
        let freezing = loop {
            match timeout(patience, helper.hear::<Said>()).await {
                Ok(Ok(Said::Asking)) => {
                    asked = Instant::now();
                    asking = true;
                    patience = limit + GRACE;
                }
                Ok(Ok(Said::Frozen { freezing })) => break freezing,
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
                    let error = match self.make_good(&check).await {
                        Ok(made_good) => FreezeError::Failed(gone(made_good)),
                        Err(why) => FreezeError::Unsure(gone(why)),
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
                        FreezeError::Late(why)
                    } else {
                        FreezeError::Failed(why)
                    })); // as above
                    return self.abandon(helper, &check).await;
                }
            }
        };
        // An error: nobody waits any more, and `wanted` says so below.
        let _ = frozen.send(Ok(()));
        Some(
            self.stay(helper, &check, limit, asked, freezing, wanted)
                .await,
        )
    }

    async fn begin(&self, order: FreezeOrder) -> Result<Helper, HelperError> {
        let mut helper = Helper::start(&self.program).await?;
        helper
            .tell(&Told::Freeze {
                order,
                intents: self.intents.clone(),
            })
            .await?;
        Ok(helper)
    }

    /// A helper that waits in the kernel thaws as soon as it is back; were it killed there,
    /// somebody else must.
    async fn abandon(&self, mut helper: Helper, check: &CheckId) -> Option<Thawed> {
        let told = helper.tell(&Told::Thaw).await.is_ok();
        loop {
            match helper.hear::<Said>().await {
                Ok(Said::Asking | Said::Frozen { .. }) if told => {}
                Ok(_) => return None,
                Err(_) => {
                    let made_good = self.make_good(check).await.unwrap_or_else(|why| why);
                    tracing::warn!(%check, made_good, "a freezer that waited in the kernel has gone");
                    return None;
                }
            }
        }
    }

    /// While it is frozen, and until it is thawed.
    async fn stay(
        &self,
        mut helper: Helper,
        check: &CheckId,
        limit: Duration,
        asked: Instant,
        freezing: Duration,
        mut wanted: oneshot::Receiver<()>,
    ) -> Thawed {
        let mut told = false;
        let mut killed = false;
        let mut patience = Instant::now() + limit + GRACE;
        let gone = loop {
            tokio::select! {
                said = helper.hear::<Said>() => match said {
                    Ok(Said::Thawed { held, freezing, early, late }) => {
                        let way = match early {
                            None => Way::Asked,
                            Some(_) if late => Way::Limit,
                            Some(_) => Way::Otherwise,
                        };
                        return Thawed { held, freezing, early, way };
                    }
                    Ok(_) => {}
                    Err(error) => break with_causes(&error),
                },
                _ = &mut wanted, if !told => {
                    told = true;
                    // An error is the end of the helper, which is heard of above.
                    let _ = helper.tell(&Told::Thaw).await;
                    patience = patience.min(Instant::now() + PATIENCE_TO_THAW);
                }
                () = tokio::time::sleep_until(patience), if !killed => {
                    killed = true;
                    helper.kill();
                    patience = Instant::now() + PATIENCE_TO_DIE;
                }
                // It waits in the kernel: thawing an ext4 writes its superblock first
                // (ext4_unfreeze(), fs/ext4/super.c).
                () = tokio::time::sleep_until(patience), if killed => {
                    let (freezer, check) = (self.clone(), check.clone());
                    tokio::spawn(async move { freezer.abandon(helper, &check).await });
                    let why = "the freezer cannot be killed: its call waits in the kernel for a device that does not answer, and so do the filesystem's writers";
                    return Thawed { held: asked.elapsed(), freezing, early: Some(why.into()), way: Way::Unsure };
                }
            }
        };
        let (made_good, way) = match self.make_good(check).await {
            // Killed since it was still there a while after its limit, or after it was told.
            Ok(made_good) => (made_good, if killed { Way::Limit } else { Way::Otherwise }),
            Err(why) => (why, Way::Unsure),
        };
        let why = if killed {
            "the freezer did not thaw when it should have, and was killed".into()
        } else {
            format!("the freezer has gone ({gone})")
        };
        Thawed {
            held: asked.elapsed(),
            freezing,
            early: Some(format!("{why}; {made_good}")),
            way,
        }
    }

    /// What came of it, in words. The error: it may be frozen still.
    async fn make_good(&self, check: &CheckId) -> Result<String, String> {
        let mut failed = String::new();
        for _ in 0..REPAIRS {
            match self.repair(Some(check)).await {
                Ok(Repaired {
                    lines,
                    unsure: false,
                }) if lines.is_empty() => return Ok("nothing was left frozen".into()),
                Ok(Repaired {
                    lines,
                    unsure: false,
                }) => return Ok(lines.join("; ")),
                Ok(Repaired {
                    lines,
                    unsure: true,
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

    async fn repair(&self, only: Option<&CheckId>) -> Result<Repaired, String> {
        let told = Told::Repair {
            intents: self.intents.clone(),
            only: only.map(note),
        };
        match self.ask(&told).await {
            Ok(Ok(Said::Repaired(repaired))) => Ok(repaired),
            Ok(Ok(other)) => Err(format!("the freezer says what it was not asked: {other:?}")),
            Ok(Err(error)) => Err(format!(
                "looking for what was left frozen: {}",
                with_causes(&error)
            )),
            Err(_) => Err(format!(
                "looking for what was left frozen takes longer than {} s",
                PATIENCE_TO_REPAIR.as_secs()
            )),
        }
    }

    /// What lvm processes left suspended that are gone. `forget`: what they were about to change is
    /// not asked about again.
    pub async fn resume(&self, forget: bool) -> Resumed {
        let failed = |why: String| Resumed {
            lines: vec![format!(
                "looking for volumes that were left suspended: {why}"
            )],
            ..Resumed::default()
        };
        match self
            .ask(&Told::Resume {
                intents: self.intents.clone(),
                forget,
            })
            .await
        {
            Ok(Ok(Said::Resumed(resumed))) => resumed,
            Ok(Ok(other)) => failed(format!("the helper says what it was not asked: {other:?}")),
            Ok(Err(error)) => failed(with_causes(&error)),
            Err(_) => failed(format!(
                "it takes longer than {} s; see `dmsetup info`",
                PATIENCE_TO_REPAIR.as_secs()
            )),
        }
    }

    /// One question to a helper of its own.
    async fn ask(&self, told: &Told) -> Result<Result<Said, HelperError>, Elapsed> {
        let asking = async {
            let mut helper = Helper::start(&self.program).await?;
            helper.tell(told).await?;
            helper.hear::<Said>().await
        };
        timeout(PATIENCE_TO_REPAIR, asking).await
    }
}

impl Frozen {
    /// Until it is thawed without having been asked for. Cancel-safe.
    pub async fn thawed_early(&mut self) -> String {
        let early = match &self.early {
            Some(early) => early,
            None => {
                let thawed = (&mut self.thawed).await.unwrap_or_else(|_| lost());
                self.early.insert(thawed)
            }
        };
        early
            .early
            .clone()
            .unwrap_or_else(|| "it was thawed".into())
    }

    pub async fn thaw(self) -> Thawed {
        if let Some(early) = self.early {
            return early;
        }
        // An error: it has been thawed already, of which the other channel tells.
        let _ = self.thaw.send(());
        self.thawed.await.unwrap_or_else(|_| lost())
    }
}

/// The task that stays with the helper is gone, which only the end of the daemon does.
fn lost() -> Thawed {
    Thawed {
        held: Duration::ZERO,
        freezing: Duration::ZERO,
        early: Some("the daemon is ending".into()),
        way: Way::Otherwise,
    }
}

/// The name of a check's note: ids may hold slashes.
pub fn note(check: &CheckId) -> String {
    check
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}
