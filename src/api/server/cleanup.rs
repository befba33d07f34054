//! ForceCleanup: removes the stale mounts of a volume whose pods no longer exist, step by step, and
//! logs each step.
//!
//! In: a plan (`model::cleanup`). Out: the state of each step. Worker processes execute the steps;
//! a step that hangs ends the clean-up, not the daemon. The answer does not wait for a step that is
//! still running when the answer is due; the step continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tonic::Status;

use crate::api::resolve::resolve_volume;
use crate::api::status::{failed_precondition, from_resolve_error};
use crate::api::wire;
use crate::api::wire::cleanup_step::State;
use crate::model::cleanup::{CleanupAction, CleanupPlan, CleanupTarget, plan};
use crate::model::path::HostPath;
use crate::model::snapshot::Snapshot;
use crate::model::source_update::SourceRequest as RefreshTarget;
use crate::provision::step::{RootedPath, Step, StepError, StepErrorKind, StepOutput};
use crate::state::handle::Handle;

/// Below what the server allows one answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(9);
/// The kernel takes a mount out of the tree first and then writes back what is not written, which a
/// device that hangs never takes.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(3);
/// The records of this node's own volumes are small.
const RESCAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Holders that a refusal names.
const MAX_NAMED_OPENERS: usize = 5;

/// What a clean-up needs done; in worker processes, each with its time-out.
#[tonic::async_trait]
pub trait CleanupBackend: Send + Sync + 'static {
    async fn execute(&self, target: &str, step: Step) -> Result<StepOutput, StepError>;

    /// Who holds what is mounted at these places, from /proc alone: a line each
    /// (`812 (mysqld) has /x/y open`). An error where that is unknown.
    async fn openers(&self, mounts: Vec<HostPath>) -> Result<Vec<String>, String>;

    /// The engine of the node's own volumes compares its records with the host again.
    async fn rescan(&self);
}

/// One clean-up at a time, and a lazy one beside it: that is for what the other hangs in.
#[derive(Clone)]
pub(crate) struct Cleaner {
    backend: Arc<dyn CleanupBackend>,
    permit: Arc<Mutex<()>>,
    lazy_permit: Arc<Mutex<()>>,
}

impl Cleaner {
    pub(crate) fn new(hands: Arc<dyn CleanupBackend>) -> Cleaner {
        Cleaner {
            backend: hands,
            permit: Arc::default(),
            lazy_permit: Arc::default(),
        }
    }

    pub(crate) async fn run(
        &self,
        handle: &Handle,
        request: &wire::ForceCleanupRequest,
    ) -> Result<wire::ForceCleanupResponse, Status> {
        let snapshot = handle.snapshot();
        let plan = make_plan(&snapshot, &request.query)?;
        self.refuse_if_in_use(&plan).await?;
        let volume_id = plan.volume.to_string();
        if !request.commit {
            return Ok(wire::ForceCleanupResponse {
                volume_id,
                steps: planned_steps(&plan),
            });
        }
        let turn = if request.lazy {
            &self.lazy_permit
        } else {
            &self.permit
        };
        let Ok(turn) = turn.clone().try_lock_owned() else {
            return Err(failed_precondition("another clean-up is under way"));
        };
        tracing::info!(
            volume = volume_id,
            lazy = request.lazy,
            steps = plan.actions.len(),
            "a clean-up begins"
        );
        let (told, mut shown) = watch::channel(planned_steps(&plan));
        let root = snapshot.node_context.kubelet_root.clone();
        let conduct = CleanupRun {
            hands: self.backend.clone(),
            handle: handle.clone(),
            root,
            lazy: request.lazy,
            progress: told,
            _permit: turn,
        };
        let mut work = tokio::spawn(conduct.run(plan));
        // A panic has been told by its thread, and shows as steps that were not begun.
        let _ = tokio::time::timeout(RESPONSE_TIMEOUT, &mut work).await;
        let steps = shown.borrow_and_update().clone();
        Ok(wire::ForceCleanupResponse { volume_id, steps })
    }

    async fn refuse_if_in_use(&self, plan: &CleanupPlan) -> Result<(), Status> {
        let looking =
            tokio::time::timeout(RESPONSE_TIMEOUT, self.backend.openers(plan.mounts.clone())).await;
        let holders = looking
            .unwrap_or_else(|_| Err(format!("no answer within {} s", RESPONSE_TIMEOUT.as_secs())));
        let holders = holders.map_err(|why| {
            failed_precondition(format!("whether a process uses it is unknown: {why}"))
        })?;
        if holders.is_empty() {
            return Ok(());
        }
        let more = holders.len().saturating_sub(MAX_NAMED_OPENERS);
        let rest = if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        };
        let named: Vec<String> = holders.into_iter().take(MAX_NAMED_OPENERS).collect();
        Err(failed_precondition(format!(
            "it is held: {}{rest}; what holds it must end first",
            named.join(", ")
        )))
    }
}

/// A path of one attachment means that one alone; anything else is a volume.
fn make_plan(snapshot: &Snapshot, query: &str) -> Result<CleanupPlan, Status> {
    let by_path = query.starts_with('/').then(|| {
        snapshot
            .node_context
            .resolve_kubelet_path(&HostPath::unescape(query.as_bytes()))
    });
    let wanted = match by_path.and_then(|path| snapshot.attachments.get(&path)) {
        Some(attachment) => CleanupTarget::Attachment(attachment),
        None => CleanupTarget::Volume(
            resolve_volume(snapshot, query).map_err(|error| from_resolve_error("query", &error))?,
        ),
    };
    plan(snapshot, wanted).map_err(|refusal| failed_precondition(refusal.to_string()))
}

fn planned_steps(plan: &CleanupPlan) -> Vec<wire::CleanupStep> {
    let step = |action: &CleanupAction| wire::CleanupStep {
        action: action.description().to_owned(),
        path: action.path().to_string(),
        state: State::Planned.into(),
        detail: String::new(),
    };
    plan.actions.iter().map(step).collect()
}

struct CleanupRun {
    hands: Arc<dyn CleanupBackend>,
    handle: Handle,
    root: HostPath,
    lazy: bool,
    progress: watch::Sender<Vec<wire::CleanupStep>>,
    _permit: OwnedMutexGuard<()>,
}

impl CleanupRun {
    async fn run(self, plan: CleanupPlan) {
        for (at, action) in plan.actions.iter().enumerate() {
            self.set_step_state(at, State::Planned, "under way");
            let (state, detail) = self.execute_action(&plan, action).await;
            let (path, volume) = (action.path().to_string(), plan.volume.as_str());
            match state {
                State::Failed => tracing::warn!(
                    volume,
                    step = action.description(),
                    path,
                    detail,
                    "a step of a clean-up failed"
                ),
                _ => tracing::info!(
                    volume,
                    step = action.description(),
                    path,
                    detail,
                    "a step of a clean-up is done"
                ),
            }
            self.set_step_state(at, state, &detail);
            if state == State::Failed && action.is_required() {
                break;
            }
        }
        if plan.is_provided
            && tokio::time::timeout(RESCAN_TIMEOUT, self.hands.rescan())
                .await
                .is_err()
        {
            tracing::warn!(
                "the node's own volumes were not rescanned after a clean-up: their disk does not respond"
            );
        }
        for target in [RefreshTarget::Mounts, RefreshTarget::Kubelet] {
            // An error: the daemon ends, and reads both again when it starts.
            let _ = self.handle.refresh(target).await;
        }
    }

    async fn execute_action(&self, plan: &CleanupPlan, action: &CleanupAction) -> (State, String) {
        let target = self.lock_target(plan, action);
        let mut taken = std::pin::pin!(self.hands.execute(&target, self.step(action)));
        let CleanupAction::Unmount { path } = action else {
            return self.outcome(action, taken.await);
        };
        if let Ok(taken) = tokio::time::timeout(UNMOUNT_TIMEOUT, &mut taken).await {
            return self.outcome(action, taken);
        }
        // Under a name of its own: the step that hangs keeps the other one.
        let look = Step::FindMount {
            target: RootedPath {
                root: self.root.clone(),
                path: path.clone(),
            },
        };
        match tokio::time::timeout(
            UNMOUNT_TIMEOUT,
            self.hands.execute(&format!("look at {path}"), look),
        )
        .await
        {
            Ok(Ok(StepOutput::Mounted { mounted: None })) => (
                State::Done,
                "it is detached from the tree; the kernel has not released the device yet"
                    .to_owned(),
            ),
            _ => self.outcome(action, taken.await),
        }
    }

    /// Whose turn a step waits for. What is taken out of the tree lazily, with the place beneath
    /// it, waits for no step of the volume: one that hangs is what it is for.
    fn lock_target(&self, plan: &CleanupPlan, action: &CleanupAction) -> String {
        match action {
            CleanupAction::Unmount { path }
            | CleanupAction::Remove { path }
            | CleanupAction::RemoveIfEmpty { path }
                if self.lazy =>
            {
                format!("lazily {path}")
            }
            _ => plan.target.clone(),
        }
    }

    fn step(&self, action: &CleanupAction) -> Step {
        let target = |path: &HostPath| RootedPath {
            root: self.root.clone(),
            path: path.clone(),
        };
        match action {
            CleanupAction::Unmount { path } => Step::Unmount {
                target: target(path),
                lazy: self.lazy,
            },
            CleanupAction::Remove { path } | CleanupAction::RemoveIfEmpty { path } => {
                Step::RemoveTarget {
                    target: target(path),
                }
            }
            CleanupAction::Detach { image } => Step::DetachImage {
                image: image.clone(),
            },
            CleanupAction::Deactivate { group, name } => Step::DeactivateLogicalVolume {
                group: group.clone(),
                name: name.clone(),
            },
        }
    }

    fn outcome(
        &self,
        action: &CleanupAction,
        taken: Result<StepOutput, StepError>,
    ) -> (State, String) {
        match taken {
            Ok(_) => (State::Done, String::new()),
            Err(error)
                if matches!(action, CleanupAction::RemoveIfEmpty { .. })
                    && error.kind == StepErrorKind::InUse =>
            {
                (State::Done, "it is not empty and stays".to_owned())
            }
            Err(error) => {
                let lazily = matches!(action, CleanupAction::Unmount { .. })
                    && !self.lazy
                    && matches!(error.kind, StepErrorKind::InUse | StepErrorKind::Stuck);
                let hint = if lazily {
                    "; a lazy unmount takes it out of the tree all the same"
                } else {
                    ""
                };
                (State::Failed, format!("{error}{hint}"))
            }
        }
    }

    fn set_step_state(&self, at: usize, state: State, detail: &str) {
        self.progress.send_modify(|steps| {
            if let Some(step) = steps.get_mut(at) {
                step.state = state.into();
                step.detail = detail.to_owned();
            }
        });
    }
}
