//! Self-tests that an admin requests: accepted or refused, started, and reported.

use tokio::time::Instant;

use crate::context::SourceError;
use crate::smart::backend::Backend;
use crate::smart::plan::{Plan, QueryState};
use crate::smart::self_test::{SelfTestError, SelfTestStartResult};
use crate::smart::{SmartSource, SmartTaskResult, ToolState, query, self_test};
use diskvitals_finding::ids::DriveId;
use diskvitals_host::clock::now;
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_smart::SelfTestKind;

impl<W: Backend> SmartSource<W> {
    /// Checked when the self-test is requested, and again when it is started: a request that waited
    /// is refused when the conditions have changed.
    pub(super) fn check_self_test_allowed(&self, drive: &DriveId) -> Result<(), SelfTestError> {
        if let Some(why) = self.disabled_reason() {
            return Err(SelfTestError::Disabled(why));
        }
        if let ToolState::Unusable(why) = &self.tool {
            return Err(SelfTestError::ToolUnusable(why.clone()));
        }
        let plan =
            self.plans.get(drive).filter(|plan| plan.wanted).ok_or(SelfTestError::NotQueried)?;
        if let QueryState::Stuck { since } = plan.state {
            return Err(SelfTestError::StuckSince { since });
        }
        if plan.target.asleep {
            return Err(SelfTestError::Suspended);
        }
        Ok(())
    }

    pub(super) async fn report_self_test(
        &self,
        drive: DriveId,
        kind: SelfTestKind,
        result: Result<String, SelfTestError>,
    ) -> Result<(), SourceError> {
        self.context
            .report(SourceUpdate::SelfTest {
                drive,
                kind,
                at: now(),
                result: result.map_err(|error| error.to_string()),
            })
            .await
    }

    pub(super) fn accept_self_test(
        &mut self,
        drive: &DriveId,
        kind: SelfTestKind,
    ) -> Result<(), SelfTestError> {
        if matches!(self.tool, ToolState::Unknown) && self.disabled_reason().is_none() {
            return Err(SelfTestError::VersionUnknown);
        }
        self.check_self_test_allowed(drive)?;
        let plan = self.plans.get_mut(drive).ok_or(SelfTestError::NotQueried)?;
        if plan.pending_self_test.is_some() {
            return Err(SelfTestError::AnotherPending);
        }
        plan.pending_self_test = Some(kind);
        Ok(())
    }

    pub(super) async fn start_self_tests(&mut self, at: Instant) -> Result<(), SourceError> {
        let waiting = |(drive, plan): (&DriveId, &Plan)| {
            plan.pending_self_test.map(|kind| (drive.clone(), kind))
        };
        let waiting: Vec<(DriveId, SelfTestKind)> = self.plans.iter().filter_map(waiting).collect();
        for (drive, kind) in waiting {
            if let Err(error) = self.check_self_test_allowed(&drive) {
                if let Some(plan) = self.plans.get_mut(&drive) {
                    plan.pending_self_test = None;
                }
                self.plans.retain(|_, plan| plan.is_needed());
                self.report_self_test(drive, kind, Err(error)).await?;
            } else if self.is_ready() && self.in_flight < self.settings.at_once {
                self.start_self_test(drive, kind, at);
            }
        }
        Ok(())
    }

    fn start_self_test(&mut self, drive: DriveId, kind: SelfTestKind, at: Instant) {
        let Some(plan) =
            self.plans.get(&drive).filter(|plan| matches!(plan.state, QueryState::Idle))
        else {
            return;
        };
        let target = &plan.target;
        let (device, implied) =
            query::device_node(&self.context.root, &target.device, target.transport);
        let given = self.configured_type(target);
        let Some((slot_lock, controller_lock)) = self.lock_target(target, given) else {
            return;
        };
        let device_type = given.or(plan.hints.device_type.as_deref()).or(implied);
        let command = &self.settings.command;
        // A USB device's serial number is the bridge's.
        let usb = target.transport == Transport::Usb;
        let serial = match usb {
            true => plan.hints.serial.clone(),
            false => target.serial.clone(),
        };
        let identify = serial
            .map(|serial| (self_test::identify_command(command, &device, device_type), serial));
        let exec = self_test::start_command(command, device, device_type, kind);
        let host_device = target.device.clone();
        if let Some(plan) = self.plans.get_mut(&drive) {
            plan.pending_self_test = None;
            plan.mark_started(at, false);
        }
        self.in_flight += 1;
        let (backend, since) = (self.backend.clone(), now());
        let lost = SmartTaskResult::SelfTestStarted {
            drive: drive.clone(),
            kind,
            since,
            lock: None,
            result: SelfTestStartResult::Response(Err(SelfTestError::TaskLost)),
        };
        self.tasks.spawn(lost, async move {
            let _held = controller_lock;
            let result = match backend.is_suspended(host_device).await {
                Some(true) => SelfTestStartResult::Response(Err(SelfTestError::Suspended)),
                Some(false) => self_test::start(backend, exec, identify).await,
                None => SelfTestStartResult::Response(Err(SelfTestError::SuspendUnknown)),
            };
            SmartTaskResult::SelfTestStarted { drive, kind, since, lock: slot_lock, result }
        });
    }
}
