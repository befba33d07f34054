//! Questions to drives: which are started now, with what, and what their ends mean for the plans.

use jiff::Timestamp;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::exec::Remains;
use crate::model::drive::Transport;
use crate::model::facts::elapsed;
use crate::model::ids::DriveId;
use crate::model::report::{Report, Request, SmartStuck, SmartTarget};
use crate::model::smart::{Answer, TestKind};
use crate::source::context::{DeviceType, SourceError};
use crate::source::inventory::text::matches_pattern;
use crate::source::smart::ask::{self, Question, Read, Reply};
use crate::source::smart::controllers::enumerate::StuckPlace;
use crate::source::smart::plan::{Doing, Plan};
use crate::source::smart::running::LOST;
use crate::source::smart::self_test::Begun;
use crate::source::smart::taken::Hold;
use crate::source::smart::world::World;
use crate::source::smart::{CHECK_AGAIN, Ended, MOST_STUCK, SUSPENDED, Smart, Tool, self_test};

impl<W: World> Smart<W> {
    /// What an admin, or the owner, says is to be given as `-d`.
    pub(super) fn given_type<'a>(&'a self, target: &'a SmartTarget) -> Option<&'a str> {
        let matches = |pattern: &Option<String>, text: &Option<String>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => matches_pattern(pattern, text),
            (Some(_), None) => false,
        };
        let set = |set: &&DeviceType| {
            matches(&set.model, &target.model) && matches(&set.serial, &target.serial)
        };
        let set = self
            .settings
            .device_types
            .iter()
            .find(set)
            .map(|set| set.device_type.as_str());
        set.or(target.device_type.as_deref())
    }

    /// Out: when the next one is due.
    pub(super) fn start_due(&mut self, at: Instant) -> Option<Instant> {
        let mut due: Vec<(Instant, DriveId)> = self
            .plans
            .iter()
            .filter_map(|(drive, plan)| Some((plan.due(&self.settings)?, drive.clone())))
            .collect();
        due.sort();
        let full = self.stuck() >= MOST_STUCK;
        for (when, drive) in due {
            if when > at {
                return Some(when);
            }
            if self.asking >= self.settings.at_once {
                // The end of one of them goes on.
                return None;
            }
            if !full || self.plans.get(&drive).is_some_and(Plan::answers) {
                self.start_question(drive, at);
            }
        }
        None
    }

    fn start_question(&mut self, drive: DriveId, at: Instant) {
        let Some(plan) = self.plans.get(&drive) else {
            return;
        };
        let (device, implied) = ask::node(
            &self.context.root,
            &plan.target.device,
            plan.target.transport,
        );
        let given = self.given_type(&plan.target).map(str::to_owned);
        // The end of whatever is there now goes on.
        let Some(Holds { place, lane }) = self.holds(&plan.target, given.as_deref()) else {
            return;
        };
        let read = if plan.wants_whole(at) {
            Read::Whole
        } else {
            plan.quick()
        };
        let usb = plan.target.transport == Transport::Usb;
        let question = Question {
            program: self.settings.command.clone(),
            device,
            read,
            timeout: self.settings.timeout,
            // A USB device's serial number is the bridge's.
            serial: plan.target.serial.clone().filter(|_| !usb),
            try_sat: usb && given.is_none() && !plan.learned.tried,
            device_type: given
                .or_else(|| plan.learned.device_type.clone())
                .or_else(|| implied.map(str::to_owned)),
        };
        let theirs = plan.target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.start(at, true);
        }
        self.asking += 1;
        let (world, since) = (self.world.clone(), now());
        let plain = |answer| Reply::Answered {
            answer,
            device_type: None,
            tried: false,
            another: false,
        };
        let lost = plain(Answer::Failed {
            why: LOST.to_owned(),
        });
        let lost = Ended::Asked {
            drive: drive.clone(),
            read,
            since,
            place: None,
            reply: lost,
        };
        self.running.spawn(lost, async move {
            let _until_the_end = lane;
            let reply = match world.suspended(theirs).await {
                true => plain(Answer::Asleep {
                    mode: "suspended".to_owned(),
                }),
                false => ask::ask(&world, &question).await,
            };
            Ended::Asked {
                drive,
                read,
                since,
                place,
                reply,
            }
        });
    }

    /// None: somebody else asks there.
    fn holds(&self, target: &SmartTarget, device_type: Option<&str>) -> Option<Holds> {
        let mut holds = Holds {
            place: None,
            lane: None,
        };
        if let Some(place) = &target.device_type {
            holds.place = Some(self.taken.place(&target.device, place)?);
        }
        if device_type.is_some_and(|device_type| device_type.starts_with("areca,")) {
            holds.lane = Some(self.taken.lane(&target.device)?);
        }
        Some(holds)
    }

    pub(super) async fn start_tests(&mut self, at: Instant) -> Result<(), SourceError> {
        let waiting =
            |(drive, plan): (&DriveId, &Plan)| plan.test.map(|kind| (drive.clone(), kind));
        let waiting: Vec<(DriveId, TestKind)> = self.plans.iter().filter_map(waiting).collect();
        for (drive, kind) in waiting {
            if let Err(why) = self.may_test(&drive) {
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.test = None;
                }
                self.plans.retain(|_, plan| plan.is_needed());
                self.context
                    .report(Report::SelfTest {
                        drive,
                        kind,
                        at: now(),
                        result: Err(why),
                    })
                    .await?;
            } else if self.ready() && self.asking < self.settings.at_once {
                self.start_test(drive, kind, at);
            }
        }
        Ok(())
    }

    fn start_test(&mut self, drive: DriveId, kind: TestKind, at: Instant) {
        let Some(plan) = self
            .plans
            .get(&drive)
            .filter(|plan| matches!(plan.doing, Doing::Nothing))
        else {
            return;
        };
        let target = &plan.target;
        let (device, implied) = ask::node(&self.context.root, &target.device, target.transport);
        let given = self.given_type(target);
        let Some(Holds { place, lane }) = self.holds(target, given) else {
            return;
        };
        let device_type = given.or(plan.learned.device_type.as_deref()).or(implied);
        let command = &self.settings.command;
        // A USB device's serial number is the bridge's.
        let usb = target.transport == Transport::Usb;
        let serial = if usb {
            &plan.learned.serial
        } else {
            &target.serial
        }
        .clone();
        let who = serial.map(|serial| (self_test::who(command, &device, device_type), serial));
        let exec = self_test::exec(command, device, device_type, kind);
        let theirs = target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.test = None;
            plan.start(at, false);
        }
        self.asking += 1;
        let (world, since) = (self.world.clone(), now());
        let lost = Ended::Tested {
            drive: drive.clone(),
            kind,
            since,
            place: None,
            begun: Begun::Said(Err(LOST.to_owned())),
        };
        self.running.spawn(lost, async move {
            let _until_the_end = lane;
            let begun = match world.suspended(theirs).await {
                true => Begun::Said(Err(SUSPENDED.to_owned())),
                false => self_test::begin(world, exec, who).await,
            };
            Ended::Tested {
                drive,
                kind,
                since,
                place,
                begun,
            }
        });
    }

    pub(super) async fn asked(
        &mut self,
        drive: DriveId,
        read: Read,
        since: Timestamp,
        place: Option<Hold>,
        reply: Reply,
        at: Instant,
    ) -> Result<(), SourceError> {
        let Some(plan) = self.plans.get_mut(&drive) else {
            return Ok(());
        };
        match reply {
            Reply::Stuck(remains) => {
                self.stuck_on(&drive, since, read == Read::Whole, remains, place)
                    .await
            }
            Reply::NoProgram(why) => {
                plan.unasked(at);
                tracing::warn!(why, "smartctl cannot be started any more");
                self.tool = Tool::Unknown;
                self.check_due = at + CHECK_AGAIN;
                Ok(())
            }
            Reply::Answered {
                answer: Answer::TimedOut { why },
                ..
            } if read == Read::Whole && plan.quick() != Read::Whole => {
                tracing::info!(%drive, why, "all of its log pages are too slow: it is asked for the quick ones alone");
                plan.without_slow_pages(&self.settings, at);
                Ok(())
            }
            Reply::Answered {
                answer,
                device_type,
                tried,
                another,
            } => {
                plan.learned.tried |= tried;
                if device_type.is_some() {
                    plan.learned.device_type = device_type;
                }
                plan.answered(&answer, read == Read::Whole, &self.settings, at);
                if another {
                    self.look_at_hardware();
                }
                let Some(plan) = self.plans.get(&drive) else {
                    return Ok(());
                };
                if !plan.wanted || self.ignored.contains(&drive) {
                    return Ok(());
                }
                if matches!(answer, Answer::Failed { .. } | Answer::TimedOut { .. }) {
                    self.hidden.doubt(&plan.target, at);
                }
                let at = now();
                let took = elapsed(since, at);
                self.context
                    .report(Report::Smart {
                        drive,
                        at,
                        answer: Box::new(answer),
                        took,
                    })
                    .await
            }
        }
    }

    /// Another drive has the name of the one that was meant.
    pub(super) fn look_at_hardware(&self) {
        // Fails when nobody listens: then nobody scans either.
        let _ = self.context.requests.send(Request::Inventory);
    }

    /// Asking a controller who is there has hung: where that is a drive we know, it is the drive
    /// that hangs.
    pub(super) async fn stuck_at(
        &mut self,
        controller: &str,
        places: &mut Vec<StuckPlace>,
    ) -> Result<(), SourceError> {
        let device = self.hidden.device(controller).cloned();
        for stuck in std::mem::take(places) {
            let is_there = |plan: &Plan| {
                let idle = plan.wanted && matches!(plan.doing, Doing::Nothing);
                idle && Some(&plan.target.device) == device.as_ref()
                    && plan.target.device_type.as_ref() == Some(&stuck.place)
            };
            match self
                .plans
                .iter()
                .find(|(_, plan)| is_there(plan))
                .map(|(drive, _)| drive.clone())
            {
                Some(drive) => {
                    self.stuck_on(&drive, stuck.since, false, stuck.remains, stuck.hold)
                        .await?
                }
                None => places.push(stuck),
            }
        }
        Ok(())
    }

    /// `whole`: while it read all log pages.
    pub(super) async fn stuck_on(
        &mut self,
        drive: &DriveId,
        since: Timestamp,
        whole: bool,
        remains: Remains,
        place: Option<Hold>,
    ) -> Result<(), SourceError> {
        if let Some(plan) = self.plans.get_mut(drive) {
            plan.stuck(since, whole, &self.settings, Instant::now());
        }
        let waiting_in = remains.waiting_in.clone();
        tracing::warn!(%drive, waiting_in, "smartctl hangs and cannot be killed; the drive is not asked until it has gone");
        let gone = drive.clone();
        self.running.spawn(
            Ended::Gone {
                drive: drive.clone(),
            },
            async move {
                remains.gone().await;
                drop(place);
                Ended::Gone { drive: gone }
            },
        );
        let stuck = Some(SmartStuck { since, waiting_in });
        self.context
            .report(Report::SmartStuck {
                drive: drive.clone(),
                stuck,
            })
            .await
    }
}

/// What is kept for as long as a question runs.
struct Holds {
    /// Behind a controller; until smartctl has really gone.
    place: Option<Hold>,
    lane: Option<Hold>,
}
