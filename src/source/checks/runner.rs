//! One run of a checker, in processes of its own that cannot write: the helper `check` opens the
//! devices for reading only (XFS and btrfs through read-only direct-io loops), starts the jailed
//! checker, reads its output as a stream, holds it back where it must spare the drive.
//!
//! In: an order. Out: one `model::check::Run`, its ballot already given. Dropping it kills the
//! checker; `Strays` tell whether it went. Knows nothing of freezing.

pub mod pipe;
mod strays;

pub use strays::Strays;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::checker::{Source, arguments, not_started, shown};
use crate::host::exec::Remains;
use crate::host::helper::{Helper, HelperError, Program};
use crate::host::process::waiting_in;
use crate::model::causes::with_causes;
use crate::model::check::{Ballot, End, Filesystem, Mode, Run};
use crate::model::dev::DevNo;
use crate::source::checks::runner::pipe::{Ask, Said};
use crate::source::checks::runner::strays::Leashed;

/// Opening a device and making a loop takes milliseconds. Udev or a sleeping drive may take its
/// time.
const PREPARING: Duration = Duration::from_secs(20);
/// The helper keeps the time-out of its checker; this long after that it is not waited for any
/// more.
const OVERDUE: Duration = Duration::from_secs(5);
/// A process that was killed has gone by then, or is held by the kernel.
const DYING: Duration = Duration::from_secs(1);
/// A helper that is let go of kills its checker, and closes its devices first.
const LEAVING: Duration = Duration::from_secs(5);

/// A block device, by kernel name and number: no /dev of anybody is needed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Device {
    pub name: String,
    pub dev: DevNo,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunOrder {
    pub filesystem: Filesystem,
    pub mode: Mode,
    pub device: Device,
    /// The other members of a btrfs.
    pub members: Vec<Device>,
    /// The checker's program, absolute, as our own mount namespace has it.
    pub command: PathBuf,
    /// For the run itself; frozen ones: the budget.
    pub timeout: Duration,
    /// Address space, in bytes.
    pub memory: u64,
    /// None: as fast as it can, at usual priority (frozen runs); else held back to this, at the
    /// lowest I/O priority.
    pub bytes_per_second: Option<u64>,
}

/// Devices are open, loops are made, the checker can begin.
pub struct Prepared {
    order: RunOrder,
    helper: Leashed,
}

/// A run that is over; whoever waits for that need not wait for what is left of it.
pub struct Heard {
    pub run: Run,
    helper: Leashed,
}

#[derive(Debug)]
pub struct Ran {
    pub run: Run,
    /// What is left of a checker that could not be killed: until it is gone, nothing else may check
    /// this filesystem.
    pub remains: Option<Remains>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// At the daemon's start: detaches the loops that a check left which was killed with everything
/// around it. Out: a line for each, for the log.
pub async fn clean_up(program: &Program) -> Vec<String> {
    let cleaned = async {
        let mut helper = Helper::start(program).await?;
        helper.tell(&Ask::CleanUp).await?;
        helper.hear::<Said>().await
    };
    match timeout(PREPARING, cleaned).await {
        Ok(Ok(Said::Cleaned(lines))) => lines,
        Ok(Ok(_)) => Vec::new(),
        Ok(Err(error)) => vec![format!("loops that were left over from filesystem checks were not looked for: {}", with_causes(&error))],
        Err(_) => vec!["loops that were left over from filesystem checks were not looked for: the helper does not answer".to_owned()],
    }
}

/// `Err` is a run too: one that did not begin (`End::NotStarted`), with its FAILED ballot. When the
/// future, or what it makes, is dropped, nothing is left but what cannot be killed: that is among
/// the strays.
pub async fn prepare(
    program: &Program,
    strays: &Strays,
    order: RunOrder,
) -> Result<Prepared, Box<Ran>> {
    let failed = |why: String| {
        Box::new(Ran {
            run: not_started(order.mode, command(&order), why),
            remains: None,
        })
    };
    let helper = Helper::start(program)
        .await
        .map_err(|error| failed(with_causes(&error)))?;
    let mut helper = Leashed::new(helper, strays);
    let ready = async {
        let helper = helper.helper()?;
        helper.tell(&Ask::Run(Box::new(order.clone()))).await?;
        helper.hear::<Said>().await
    };
    match timeout(PREPARING, ready).await {
        Ok(Ok(Said::Ready)) => Ok(Prepared { order, helper }),
        Ok(Ok(Said::Ended(run))) => Err(Box::new(Ran {
            run: *run,
            remains: None,
        })),
        Ok(Ok(_)) => Err(failed(
            "the helper that runs checkers says what makes no sense".to_owned(),
        )),
        Ok(Err(error)) => Err(failed(with_causes(&error))),
        Err(_) => {
            let why = format!(
                "opening {} has taken more than {} s",
                order.device.name,
                PREPARING.as_secs()
            );
            let mut ran = failed(why);
            ran.remains = bury(helper).await;
            if let Some(remains) = &ran.remains {
                ran.run.end = End::Stuck(remains.waiting_in.clone());
            }
            Err(ran)
        }
    }
}

impl Prepared {
    /// Until its end is heard of, by itself or by its time-out. `phase`: what the checker says it
    /// is doing. When the future is dropped, the checker is killed.
    pub async fn run(mut self, phase: &watch::Sender<String>) -> Heard {
        let deadline = Instant::now() + self.order.timeout + OVERDUE;
        match timeout_at(deadline, self.follow(phase)).await {
            Ok(Ok(run)) => Heard {
                run,
                helper: self.helper,
            },
            Ok(Err(error)) => {
                let run = self.lost(
                    End::Signal(9),
                    format!(
                        "the helper that runs the checker was lost: {}",
                        with_causes(&error)
                    ),
                );
                self.helper.kill();
                Heard {
                    run,
                    helper: self.helper,
                }
            }
            Err(_) => {
                let run = self.lost(
                    End::TimedOut,
                    "the helper that runs the checker does not answer".to_owned(),
                );
                self.helper.kill();
                Heard {
                    run,
                    helper: self.helper,
                }
            }
        }
    }

    async fn follow(&mut self, phase: &watch::Sender<String>) -> Result<Run, HelperError> {
        let helper = self.helper.helper()?;
        helper.tell(&Ask::Go).await?;
        loop {
            match helper.hear::<Said>().await? {
                Said::Phase(text) => drop(phase.send_replace(text)),
                Said::Ended(run) => return Ok(*run),
                Said::Ready | Said::Cleaned(_) => {}
            }
        }
    }

    fn lost(&self, end: End, why: String) -> Run {
        Run {
            end,
            ballot: Ballot::Failed,
            why: why.clone(),
            ..not_started(self.order.mode, command(&self.order), why)
        }
    }
}

impl Heard {
    /// Sees to it that nothing is left, or says what is.
    pub async fn settle(self) -> Ran {
        let Heard { run, helper } = self;
        // The helper stays as long as a checker that cannot be killed, and as long as a device does
        // not let itself be closed.
        let remains = match (&run.end, helper) {
            (End::Stuck(waiting_in), helper) => helper
                .take()
                .map(|helper| Remains::until(waiting_in.clone(), helper.ended())),
            (End::TimedOut | End::Stopped | End::Signal(_), helper) => bury(helper).await,
            // Let go of: it closes its devices and ends, or is among the strays.
            (End::Exited(_) | End::NotStarted(_), _) => None,
        };
        Ran { run, remains }
    }
}

/// Kills it. Out: what is left of it, if it does not go.
async fn bury(helper: Leashed) -> Option<Remains> {
    let mut helper = helper.take()?;
    helper.kill();
    linger(helper, DYING).await
}

/// Closes its input, which ends it, and waits a moment for that.
async fn linger(helper: Helper, within: Duration) -> Option<Remains> {
    let id = helper.id();
    let mut end = Box::pin(helper.ended());
    match timeout(within, &mut end).await {
        Ok(()) => None,
        // One that only waits for its checker has nothing to tell.
        Err(_) => Some(Remains::until(
            waiting_in(id).filter(|state| state.starts_with('D')),
            end,
        )),
    }
}

fn command(order: &RunOrder) -> String {
    shown(
        &order.command,
        &arguments(
            order.filesystem,
            Source::Node(&Path::new("/dev").join(&order.device.name)),
        ),
    )
}
