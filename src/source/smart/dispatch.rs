//! Questions to drives: which are started now, with what, and what their ends mean for the plans.

use jiff::Timestamp;
use tokio::time::Instant;

use crate::host::clock::now;
use crate::host::exec::UnkillableChild;
use crate::model::drive::Transport;
use crate::model::facts::elapsed;
use crate::model::ids::DriveId;
use crate::model::smart::{SelfTestKind, SmartResponse};
use crate::model::source_update::{SmartTarget, SourceRequest, SourceUpdate, StuckSmartctl};
use crate::source::context::{DeviceType, SourceError};
use crate::source::inventory::formats::matches_pattern;
use crate::source::smart::backend::Backend;
use crate::source::smart::controller_locks::ControllerLockGuard;
use crate::source::smart::controllers::enumerate::StuckSlot;
use crate::source::smart::plan::{Plan, QueryState};
use crate::source::smart::query::{self, Query, QueryOutcome, ReadScope};
use crate::source::smart::self_test::SelfTestStartResult;
use crate::source::smart::tasks::TASK_LOST;
use crate::source::smart::{
    CHECK_RETRY_INTERVAL, MAX_STUCK, SUSPEND_UNKNOWN, SUSPENDED, SmartSource, SmartTaskResult,
    ToolState, self_test,
};

impl<W: Backend> SmartSource<W> {
    /// What an admin, or the owner, says is to be given as `-d`.
    pub(super) fn configured_type<'a>(&'a self, target: &'a SmartTarget) -> Option<&'a str> {
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
        let full = self.stuck_count() >= MAX_STUCK;
        for (when, drive) in due {
            if when > at {
                return Some(when);
            }
            if self.in_flight >= self.settings.at_once {
                // The end of one of them goes on.
                return None;
            }
            if !full || self.plans.get(&drive).is_some_and(Plan::is_responsive) {
                self.start_query(drive, at);
            }
        }
        None
    }

    fn start_query(&mut self, drive: DriveId, at: Instant) {
        let Some(plan) = self.plans.get(&drive) else {
            return;
        };
        let (device, implied) = query::device_node(
            &self.context.root,
            &plan.target.device,
            plan.target.transport,
        );
        let given = self.configured_type(&plan.target).map(str::to_owned);
        // The end of whatever is there now goes on.
        let Some(QueryLocks {
            slot: place,
            controller: lane,
        }) = self.lock_target(&plan.target, given.as_deref())
        else {
            return;
        };
        let read = if plan.is_full_due(at) {
            ReadScope::Full
        } else {
            plan.quick_scope()
        };
        let usb = plan.target.transport == Transport::Usb;
        let query = Query {
            program: self.settings.command.clone(),
            device,
            scope: read,
            timeout: self.settings.timeout,
            // A USB device's serial number is the bridge's.
            serial: plan.target.serial.clone().filter(|_| !usb),
            try_sat: usb && given.is_none() && !plan.hints.fallback_tried,
            device_type: given
                .or_else(|| plan.hints.device_type.clone())
                .or_else(|| implied.map(str::to_owned)),
        };
        let theirs = plan.target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.mark_started(at, true);
        }
        self.in_flight += 1;
        let (world, since) = (self.backend.clone(), now());
        let plain = |answer| QueryOutcome::Response {
            response: answer,
            device_type: None,
            fallback_tried: false,
            wrong_drive: false,
        };
        let lost = plain(SmartResponse::Failed {
            why: TASK_LOST.to_owned(),
        });
        let lost = SmartTaskResult::Queried {
            drive: drive.clone(),
            read,
            since,
            lock: None,
            outcome: lost,
        };
        self.tasks.spawn(lost, async move {
            let _until_the_end = lane;
            let reply = match world.is_suspended(theirs).await {
                Some(true) => plain(SmartResponse::Standby {
                    mode: "suspended".to_owned(),
                }),
                Some(false) => query::query(&world, &query).await,
                None => plain(SmartResponse::Failed {
                    why: SUSPEND_UNKNOWN.to_owned(),
                }),
            };
            SmartTaskResult::Queried {
                drive,
                read,
                since,
                lock: place,
                outcome: reply,
            }
        });
    }

    /// None: somebody else asks there.
    fn lock_target(&self, target: &SmartTarget, device_type: Option<&str>) -> Option<QueryLocks> {
        let mut holds = QueryLocks {
            slot: None,
            controller: None,
        };
        if let Some(place) = &target.device_type {
            holds.slot = Some(self.locks.lock_slot(&target.device, place)?);
        }
        if device_type.is_some_and(|device_type| device_type.starts_with("areca,")) {
            holds.controller = Some(self.locks.lock_controller(&target.device)?);
        }
        Some(holds)
    }

    pub(super) async fn start_self_tests(&mut self, at: Instant) -> Result<(), SourceError> {
        let waiting = |(drive, plan): (&DriveId, &Plan)| {
            plan.pending_self_test.map(|kind| (drive.clone(), kind))
        };
        let waiting: Vec<(DriveId, SelfTestKind)> = self.plans.iter().filter_map(waiting).collect();
        for (drive, kind) in waiting {
            if let Err(why) = self.check_self_test_allowed(&drive) {
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.pending_self_test = None;
                }
                self.plans.retain(|_, plan| plan.is_needed());
                self.context
                    .report(SourceUpdate::SelfTest {
                        drive,
                        kind,
                        at: now(),
                        result: Err(why),
                    })
                    .await?;
            } else if self.is_ready() && self.in_flight < self.settings.at_once {
                self.start_self_test(drive, kind, at);
            }
        }
        Ok(())
    }

    fn start_self_test(&mut self, drive: DriveId, kind: SelfTestKind, at: Instant) {
        let Some(plan) = self
            .plans
            .get(&drive)
            .filter(|plan| matches!(plan.state, QueryState::Idle))
        else {
            return;
        };
        let target = &plan.target;
        let (device, implied) =
            query::device_node(&self.context.root, &target.device, target.transport);
        let given = self.configured_type(target);
        let Some(QueryLocks {
            slot: place,
            controller: lane,
        }) = self.lock_target(target, given)
        else {
            return;
        };
        let device_type = given.or(plan.hints.device_type.as_deref()).or(implied);
        let command = &self.settings.command;
        // A USB device's serial number is the bridge's.
        let usb = target.transport == Transport::Usb;
        let serial = if usb {
            &plan.hints.serial
        } else {
            &target.serial
        }
        .clone();
        let who = serial.map(|serial| {
            (
                self_test::identify_command(command, &device, device_type),
                serial,
            )
        });
        let exec = self_test::start_command(command, device, device_type, kind);
        let theirs = target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.pending_self_test = None;
            plan.mark_started(at, false);
        }
        self.in_flight += 1;
        let (world, since) = (self.backend.clone(), now());
        let lost = SmartTaskResult::SelfTestStarted {
            drive: drive.clone(),
            kind,
            since,
            lock: None,
            result: SelfTestStartResult::Response(Err(TASK_LOST.to_owned())),
        };
        self.tasks.spawn(lost, async move {
            let _until_the_end = lane;
            let begun = match world.is_suspended(theirs).await {
                Some(true) => SelfTestStartResult::Response(Err(SUSPENDED.to_owned())),
                Some(false) => self_test::start(world, exec, who).await,
                None => SelfTestStartResult::Response(Err(SUSPEND_UNKNOWN.to_owned())),
            };
            SmartTaskResult::SelfTestStarted {
                drive,
                kind,
                since,
                lock: place,
                result: begun,
            }
        });
    }

    pub(super) async fn finish_query(
        &mut self,
        drive: DriveId,
        read: ReadScope,
        since: Timestamp,
        place: Option<ControllerLockGuard>,
        reply: QueryOutcome,
        at: Instant,
    ) -> Result<(), SourceError> {
        let Some(plan) = self.plans.get_mut(&drive) else {
            return Ok(());
        };
        match reply {
            QueryOutcome::Stuck(remains) => {
                self.mark_stuck(&drive, since, read == ReadScope::Full, remains, place)
                    .await
            }
            QueryOutcome::StartFailed(why) => {
                plan.reset_query(at);
                tracing::warn!(why, "smartctl cannot be started any more");
                self.tool = ToolState::Unknown;
                self.check_due = at + CHECK_RETRY_INTERVAL;
                Ok(())
            }
            QueryOutcome::Response {
                response: SmartResponse::TimedOut { why },
                ..
            } if read == ReadScope::Full && plan.quick_scope() != ReadScope::Full => {
                tracing::info!(%drive, why, "all of its log pages are too slow: it is asked for the quick ones alone");
                plan.retry_quick(&self.settings, at);
                Ok(())
            }
            QueryOutcome::Response {
                response: answer,
                device_type,
                fallback_tried: tried,
                wrong_drive: another,
            } => {
                plan.hints.fallback_tried |= tried;
                if device_type.is_some() {
                    plan.hints.device_type = device_type;
                }
                plan.record_response(&answer, read == ReadScope::Full, &self.settings, at);
                if another {
                    self.request_inventory();
                }
                let Some(plan) = self.plans.get(&drive) else {
                    return Ok(());
                };
                if !plan.wanted || self.ignored.contains(&drive) {
                    return Ok(());
                }
                if matches!(
                    answer,
                    SmartResponse::Failed { .. } | SmartResponse::TimedOut { .. }
                ) {
                    self.raid_members.recheck_slot(&plan.target, at);
                }
                let at = now();
                let took = elapsed(since, at);
                self.context
                    .report(SourceUpdate::Smart {
                        drive,
                        at,
                        response: Box::new(answer),
                        duration: took,
                    })
                    .await
            }
        }
    }

    /// Another drive has the name of the one that was meant.
    pub(super) fn request_inventory(&self) {
        // Fails when nobody listens: then nobody scans either.
        let _ = self.context.requests.send(SourceRequest::Inventory);
    }

    /// Asking a controller who is there has hung: where that is a drive we know, it is the drive
    /// that hangs.
    pub(super) async fn mark_stuck_slots(
        &mut self,
        controller: &str,
        places: &mut Vec<StuckSlot>,
    ) -> Result<(), SourceError> {
        let device = self.raid_members.controller_node(controller).cloned();
        for stuck in std::mem::take(places) {
            let is_there = |plan: &Plan| {
                let idle = plan.wanted && matches!(plan.state, QueryState::Idle);
                idle && Some(&plan.target.device) == device.as_ref()
                    && plan.target.device_type.as_ref() == Some(&stuck.slot)
            };
            match self
                .plans
                .iter()
                .find(|(_, plan)| is_there(plan))
                .map(|(drive, _)| drive.clone())
            {
                Some(drive) => {
                    self.mark_stuck(&drive, stuck.since, false, stuck.remains, stuck.lock)
                        .await?
                }
                None => places.push(stuck),
            }
        }
        Ok(())
    }

    /// `whole`: while it read all log pages.
    pub(super) async fn mark_stuck(
        &mut self,
        drive: &DriveId,
        since: Timestamp,
        whole: bool,
        remains: UnkillableChild,
        place: Option<ControllerLockGuard>,
    ) -> Result<(), SourceError> {
        if let Some(plan) = self.plans.get_mut(drive) {
            plan.mark_stuck(since, whole, &self.settings, Instant::now());
        }
        let waiting_in = remains.waiting_in.clone();
        tracing::warn!(%drive, waiting_in, "smartctl hangs and cannot be killed; the drive is not asked until it has gone");
        let gone = drive.clone();
        self.tasks.spawn(
            SmartTaskResult::StuckProcessExited {
                drive: drive.clone(),
            },
            async move {
                remains.exited().await;
                drop(place);
                SmartTaskResult::StuckProcessExited { drive: gone }
            },
        );
        let stuck = Some(StuckSmartctl { since, waiting_in });
        self.context
            .report(SourceUpdate::SmartStuck {
                drive: drive.clone(),
                stuck,
            })
            .await
    }
}

/// What is kept for as long as a question runs.
struct QueryLocks {
    /// Behind a controller; until smartctl has really gone.
    slot: Option<ControllerLockGuard>,
    controller: Option<ControllerLockGuard>,
}
