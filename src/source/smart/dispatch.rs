//! Starts queries and self-tests, and applies their results to the plans.

use jiff::Timestamp;
use tokio::time::Instant;

use crate::context::{DeviceType, SourceError};
use crate::inventory::formats::matches_pattern;
use crate::smart::backend::Backend;
use crate::smart::controller_locks::ControllerLockGuard;
use crate::smart::controllers::enumerate::StuckSlot;
use crate::smart::plan::{Plan, QueryState};
use crate::smart::query::{self, Query, QueryOutcome, QueryResponse, ReadScope};
use crate::smart::tasks::TASK_LOST;
use crate::smart::{
    CHECK_RETRY_INTERVAL, MAX_STUCK, SUSPEND_UNKNOWN, SmartSource, SmartTaskResult, ToolState,
};
use diskvitals_finding::ids::DriveId;
use diskvitals_host::clock::now;
use diskvitals_host::exec::UnkillableChild;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::{SmartTarget, SourceRequest, SourceUpdate, StuckSmartctl};
use diskvitals_smart::SmartResponse;
use diskvitals_text::duration::elapsed;

impl<W: Backend> SmartSource<W> {
    /// The device type (`-d`) from the configuration or from the target.
    pub(super) fn configured_type<'a>(&'a self, target: &'a SmartTarget) -> Option<&'a str> {
        let matches = |pattern: &Option<String>, text: &Option<String>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => matches_pattern(pattern, text),
            (Some(_), None) => false,
        };
        let set = |set: &&DeviceType| {
            matches(&set.model, &target.model) && matches(&set.serial, &target.serial)
        };
        let set = self.settings.device_types.iter().find(set).map(|set| set.device_type.as_str());
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
        let at_stuck_limit = self.stuck_count() >= MAX_STUCK;
        for (when, drive) in due {
            if when > at {
                return Some(when);
            }
            if self.in_flight >= self.settings.at_once {
                // It continues when the running query ends.
                return None;
            }
            if !at_stuck_limit || self.plans.get(&drive).is_some_and(Plan::is_responsive) {
                self.start_query(drive, at);
            }
        }
        None
    }

    fn start_query(&mut self, drive: DriveId, at: Instant) {
        let Some(plan) = self.plans.get(&drive) else {
            return;
        };
        let (device, implied) =
            query::device_node(&self.context.root, &plan.target.device, plan.target.transport);
        let given = self.configured_type(&plan.target).map(str::to_owned);
        // It continues when the process that holds the lock ends.
        let Some((slot_lock, controller_lock)) = self.lock_target(&plan.target, given.as_deref())
        else {
            return;
        };
        let scope = if plan.is_full_due(at) { ReadScope::Full } else { plan.quick_scope() };
        let usb = plan.target.transport == Transport::Usb;
        let query = Query {
            program: self.settings.command.clone(),
            device,
            scope,
            timeout: self.settings.timeout,
            // A USB device's serial number is the bridge's.
            serial: plan.target.serial.clone().filter(|_| !usb),
            try_sat: usb && given.is_none() && !plan.hints.fallback_tried,
            device_type: given
                .or_else(|| plan.hints.device_type.clone())
                .or_else(|| implied.map(str::to_owned)),
        };
        let host_device = plan.target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.mark_started(at, true);
        }
        self.in_flight += 1;
        let (backend, since) = (self.backend.clone(), now());
        let outcome_of = |response: SmartResponse| QueryOutcome::Response(response.into());
        let failed = move |why: &str| outcome_of(SmartResponse::Failed { why: why.to_owned() });
        let lost = SmartTaskResult::Queried {
            drive: drive.clone(),
            scope,
            since,
            lock: None,
            outcome: failed(TASK_LOST),
        };
        self.tasks.spawn(lost, async move {
            let _held = controller_lock;
            let outcome = match backend.is_suspended(host_device).await {
                Some(true) => outcome_of(SmartResponse::Standby { mode: "suspended".to_owned() }),
                Some(false) => query::query(&backend, &query).await,
                None => failed(SUSPEND_UNKNOWN),
            };
            SmartTaskResult::Queried { drive, scope, since, lock: slot_lock, outcome }
        });
    }

    /// None: a lock is held.
    pub(super) fn lock_target(
        &self,
        target: &SmartTarget,
        device_type: Option<&str>,
    ) -> Option<QueryLocks> {
        let slot = match &target.device_type {
            Some(slot) => Some(self.locks.lock_slot(&target.device, slot)?),
            None => None,
        };
        let controller = match device_type {
            Some(name) if name.starts_with("areca,") => {
                Some(self.locks.lock_controller(&target.device)?)
            }
            _ => None,
        };
        Some((slot, controller))
    }

    pub(super) async fn finish_query(
        &mut self,
        drive: DriveId,
        scope: ReadScope,
        since: Timestamp,
        slot_lock: Option<ControllerLockGuard>,
        outcome: QueryOutcome,
        at: Instant,
    ) -> Result<(), SourceError> {
        let Some(plan) = self.plans.get_mut(&drive) else {
            return Ok(());
        };
        match outcome {
            QueryOutcome::Stuck(child) => {
                self.mark_stuck(&drive, since, scope == ReadScope::Full, child, slot_lock).await
            }
            QueryOutcome::StartFailed(why) => {
                plan.reset_query(at);
                tracing::warn!(why, "smartctl can no longer be started");
                self.tool = ToolState::Unknown;
                self.check_due = at + CHECK_RETRY_INTERVAL;
                Ok(())
            }
            QueryOutcome::Response(QueryResponse {
                response: SmartResponse::TimedOut { why },
                ..
            }) if scope == ReadScope::Full && plan.quick_scope() != ReadScope::Full => {
                tracing::info!(%drive, why, "all of its log pages are too slow: it is asked for the quick ones alone");
                plan.retry_quick(&self.settings, at);
                Ok(())
            }
            QueryOutcome::Response(QueryResponse {
                response,
                output,
                device_type,
                fallback_tried,
                wrong_drive,
            }) => {
                plan.hints.fallback_tried |= fallback_tried;
                if device_type.is_some() {
                    plan.hints.device_type = device_type;
                }
                plan.record_response(&response, scope == ReadScope::Full, &self.settings, at);
                if wrong_drive {
                    self.request_inventory();
                }
                let Some(plan) = self.plans.get(&drive) else {
                    return Ok(());
                };
                if !plan.wanted || self.ignored.contains(&drive) {
                    return Ok(());
                }
                if matches!(response, SmartResponse::Failed { .. } | SmartResponse::TimedOut { .. })
                {
                    self.raid_members.recheck_slot(&plan.target, at);
                }
                if let Some(output) = output {
                    let drive = drive.clone();
                    self.context.report(SourceUpdate::SmartOutput { drive, output }).await?;
                }
                let at = now();
                self.context
                    .report(SourceUpdate::Smart {
                        drive,
                        at,
                        response: Box::new(response),
                        duration: elapsed(since, at),
                    })
                    .await
            }
        }
    }

    /// Requests a scan: the device name belongs to another drive.
    pub(super) fn request_inventory(&self) {
        // Fails if no source listens: then no source scans either.
        let _ = self.context.requests.send(SourceRequest::Inventory);
    }

    /// Handles slots at which the enumeration of a controller hangs. If a slot contains a known
    /// drive, that drive is marked stuck.
    pub(super) async fn mark_stuck_slots(
        &mut self,
        controller: &str,
        stuck_slots: &mut Vec<StuckSlot>,
    ) -> Result<(), SourceError> {
        let device = self.raid_members.controller_node(controller).cloned();
        for stuck in std::mem::take(stuck_slots) {
            let is_there = |plan: &Plan| {
                let idle = plan.wanted && matches!(plan.state, QueryState::Idle);
                idle && Some(&plan.target.device) == device.as_ref()
                    && plan.target.device_type.as_ref() == Some(&stuck.slot)
            };
            match self.plans.iter().find(|(_, plan)| is_there(plan)).map(|(drive, _)| drive.clone())
            {
                Some(drive) => {
                    self.mark_stuck(&drive, stuck.since, false, stuck.child, stuck.lock).await?
                }
                None => stuck_slots.push(stuck),
            }
        }
        Ok(())
    }

    /// `full`: smartctl hung while it read all log pages.
    pub(super) async fn mark_stuck(
        &mut self,
        drive: &DriveId,
        since: Timestamp,
        full: bool,
        child: UnkillableChild,
        slot_lock: Option<ControllerLockGuard>,
    ) -> Result<(), SourceError> {
        if let Some(plan) = self.plans.get_mut(drive) {
            plan.mark_stuck(since, full, &self.settings, Instant::now());
        }
        let waiting_in = child.waiting_in.clone();
        tracing::warn!(%drive, waiting_in, "smartctl hangs and cannot be killed; the drive is not asked until it has gone");
        let stuck_drive = drive.clone();
        self.tasks.spawn(
            SmartTaskResult::StuckProcessExited { drive: drive.clone() },
            async move {
                child.exited().await;
                drop(slot_lock);
                SmartTaskResult::StuckProcessExited { drive: stuck_drive }
            },
        );
        let stuck = Some(StuckSmartctl { since, waiting_in });
        self.context.report(SourceUpdate::SmartStuck { drive: drive.clone(), stuck }).await
    }
}

/// The locks of one run of smartctl: of the slot, which is held until smartctl has exited, even if
/// it cannot be killed, and of the controller.
pub(super) type QueryLocks = (Option<ControllerLockGuard>, Option<ControllerLockGuard>);
