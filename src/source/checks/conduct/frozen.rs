//! A run while the writers are held: everything is ready before they are, and they go on before
//! anything is waited for.

use crate::model::check::steps::Outcome;
use crate::model::check::{Ballot, End, Mode, Stop, Verdict};
use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::source::checks::conduct::{
    Conductor, Cut, LAST_WORD, SYNC, THAW, not_done, stopped, with_phase,
};
use crate::source::checks::freezer::{FreezeError, FreezeOrder, Thawed, Way};
use crate::source::checks::health::Extent;
use crate::source::checks::world::World;
use jiff::Timestamp;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

impl<W: World> Conductor<W> {
    pub(super) async fn frozen_run(&mut self) -> Result<(), Cut> {
        let Some(mount) = self.wanted.target.mount.clone() else {
            self.no_freeze = Some("it is not mounted in the host's mount namespace".to_owned());
            return Ok(());
        };
        let dev = self.wanted.target.shown_dev();
        // Also where nothing has changed since the check began: what was found damaged meanwhile
        // may never be thawed again.
        if let Err(why) = self.ask_for_sickness(Extent::Groups).await? {
            self.no_freeze = Some(why);
            return Ok(());
        }
        if self.kernel_speaks() {
            return Ok(());
        }
        let Some(prepared) = self
            .prepare(self.order(Mode::Frozen, self.device()))
            .await?
        else {
            return Ok(());
        };
        let name = self.name_of_run(Mode::Frozen);
        if let Err(why) = self.writes_out(&name, mount.clone(), dev).await? {
            self.no_freeze = Some(why);
            return Ok(());
        }
        if self.kernel_speaks() {
            return Ok(());
        }
        self.doing(format!("{name}: freezing"));
        let world = self.world.clone();
        let (started, began) = (self.clock.now(), Instant::now());
        let order = FreezeOrder {
            check: self.wanted.id.clone(),
            mount,
            dev,
            limit: self.wanted.terms.budget,
        };
        match self.unless_stopped(Box::pin(world.freeze(order))).await? {
            Ok(frozen) => {
                Box::pin(self.check_frozen(prepared, frozen, &name, started, began)).await
            }
            Err(error @ (FreezeError::Refused(_) | FreezeError::NotOurs)) => {
                self.no_freeze = Some(error.to_string());
                Ok(())
            }
            Err(FreezeError::Failed(why)) => {
                self.add(not_done(
                    Mode::Frozen,
                    started,
                    began.elapsed(),
                    End::NotStarted(why.clone()),
                    format!("freezing: {why}"),
                ));
                Ok(())
            }
            // It held the writers for as long as they may be, as does a run that takes too long.
            Err(FreezeError::Late(why)) => {
                self.add(not_done(
                    Mode::Frozen,
                    started,
                    began.elapsed(),
                    End::TimedOut,
                    format!("freezing: {why}"),
                ));
                Ok(())
            }
            Err(FreezeError::Unsure(why)) => {
                self.add(not_done(
                    Mode::Frozen,
                    started,
                    began.elapsed(),
                    End::NotStarted(why.clone()),
                    format!("freezing: {why}"),
                ));
                Err(Cut::Unsure(why))
            }
        }
    }

    /// Writers wait from here until it is thawed.
    async fn check_frozen(
        &mut self,
        prepared: W::Prepared,
        mut frozen: W::Frozen,
        name: &str,
        started: Timestamp,
        began: Instant,
    ) -> Result<(), Cut> {
        enum Over<H> {
            Heard(H),
            Early(String),
            Stopped(Stop),
        }
        self.doing(name.to_owned());
        let (world, mut told) = (self.world.clone(), self.means.told.clone());
        let (phase, mut phases) = watch::channel(String::new());
        let (over, thawed) = {
            let mut run = Box::pin(world.check(prepared, &phase));
            let over = loop {
                tokio::select! {
                    biased;
                    heard = &mut run => break Over::Heard(heard),
                    why = world.thawed_early(&mut frozen) => break Over::Early(why),
                    stop = stopped(&mut told) => break Over::Stopped(stop),
                    Ok(()) = phases.changed() => self.doing(with_phase(name, &phases.borrow_and_update())),
                }
            };
            // Writers first: the checker is killed behind it, which may take its time.
            let thawed = self.thaw(frozen, began).await;
            match over {
                // It is about to end for its own time-out, unless it hangs: that must be known.
                Over::Early(why) if thawed.way == Way::Limit => {
                    match tokio::time::timeout(LAST_WORD, &mut run).await {
                        Ok(heard) => (Over::Heard(heard), thawed),
                        Err(_) => (Over::Early(why), thawed),
                    }
                }
                over => (over, thawed),
            }
        };
        let early = |why: &str| {
            format!("writers went on in the middle of it ({why}): what was read counts for nothing")
        };
        let late = thawed.way == Way::Limit;
        let taken = match over {
            Over::Stopped(stop) => Err(Cut::Stopped(stop)),
            Over::Early(why) => {
                let end = if late { End::TimedOut } else { End::Signal(9) };
                let mut run = not_done(Mode::Frozen, started, began.elapsed(), end, early(&why));
                run.held = Some(thawed.held);
                self.add(run);
                Ok(())
            }
            Over::Heard(heard) => {
                let ran = world.settle(heard).await;
                self.took(ran, started, |run| {
                    run.held = Some(thawed.held);
                    if let Some(why) = &thawed.early {
                        run.ballot = Ballot::Failed;
                        run.why = early(why);
                        if late && !matches!(run.end, End::Stuck(_)) {
                            run.end = End::TimedOut;
                        }
                    }
                })
            }
        };
        // Whatever else there is to say: this must be seen to.
        match thawed.early {
            Some(why) if thawed.way == Way::Unsure => Err(Cut::Unsure(why)),
            _ => taken,
        }
    }

    async fn thaw(&self, frozen: W::Frozen, began: Instant) -> Thawed {
        match tokio::time::timeout(THAW, Box::pin(self.world.thaw(frozen))).await {
            Ok(thawed) => thawed,
            Err(_) => {
                tracing::error!(check = %self.wanted.id, target = %self.wanted.target.name, "a thaw was not confirmed in {} s", THAW.as_secs());
                let early = Some(format!(
                    "that it was thawed was not confirmed in {} s",
                    THAW.as_secs()
                ));
                Thawed {
                    held: began.elapsed(),
                    freezing: Duration::ZERO,
                    early,
                    way: Way::Unsure,
                }
            }
        }
    }

    pub(super) fn unsure(&self, why: &str) -> Outcome {
        let mount = self
            .wanted
            .target
            .mount
            .as_ref()
            .map_or_else(|| "MOUNTPOINT".to_owned(), HostPath::to_string);
        let reason = format!(
            "The filesystem at {mount} may be frozen still, and then all that write to it wait: {why}. Thaw it by `fsfreeze -u {mount}`, which does no harm where it is not frozen, then check it again."
        );
        Outcome {
            verdict: Verdict::Failed,
            reason,
            mode: self.strongest(),
        }
    }

    /// What is written so far goes out in its time, or a freeze, which waits for it, would hold the
    /// writers for longer still. The error within says why not.
    pub(super) async fn writes_out(
        &mut self,
        name: &str,
        mount: HostPath,
        dev: DevNo,
    ) -> Result<Result<(), String>, Cut> {
        self.doing(format!("{name}: syncfs"));
        let world = self.world.clone();
        Ok(
            match self
                .unless_stopped(Box::pin(world.sync(mount, dev, SYNC)))
                .await?
            {
                Ok(took) if took <= SYNC => Ok(()),
                Ok(took) => Err(format!(
                    "syncfs took {:.1} s, longer than {} s: a freeze would take longer still",
                    took.as_secs_f64(),
                    SYNC.as_secs()
                )),
                Err(why) => Err(why),
            },
        )
    }
}
